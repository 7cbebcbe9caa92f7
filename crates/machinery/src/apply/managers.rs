//! `metadata.managedFields`: what each manager owns, as objects carry it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    fields::FieldSet,
    merge::{Managers, Owned},
};
use crate::{gotext, resource::Tree, schema};

const FIELDS_V1: &str = "FieldsV1";

/// How many managers may own fields by writes other than apply.
pub(super) const MAX_UPDATERS: usize = 10;
/// Owns what the oldest of more managers did.
const ANCIENT: &str = "ancient-changes";

/// What a manager did when it came to own fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Apply,
    Update,
}

impl Operation {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// Who is told from whom: by name, operation and subresource, and for updates by version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Identifier {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub manager: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub operation: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subresource: String,
}

impl Identifier {
    pub fn new(manager: &str, operation: Operation, api_version: &str, subresource: &str) -> Self {
        Self {
            manager: manager.to_owned(),
            operation: operation.as_str().to_owned(),
            // An applier stays the same, whatever version it applies.
            api_version: if operation == Operation::Apply { String::new() } else { api_version.to_owned() },
            time: None,
            subresource: subresource.to_owned(),
        }
    }

    /// As upstream sorts by and messages are sorted by.
    pub fn text(&self) -> String {
        gotext::json(self)
    }

    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}

/// The managers of an object, and when each last wrote.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Managed {
    pub fields: Managers,
    /// RFC 3339, in seconds; `None` where it is not known.
    pub times: BTreeMap<String, Option<String>>,
}

/// Why `managedFields` cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ManagedFieldsError(pub String);

/// One entry of `managedFields`.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Entry {
    manager: Option<String>,
    operation: Option<String>,
    api_version: Option<String>,
    time: Option<String>,
    fields_type: Option<String>,
    fields_v1: Option<Value>,
    subresource: Option<String>,
}

/// The entries of an object; `None` if there are none, or what is there are no entries.
fn entries(tree: &Tree) -> Option<Vec<Entry>> {
    let list = tree.get("metadata")?.get("managedFields")?.as_array()?;
    list.iter().map(read_entry).collect()
}

fn read_entry(entry: &Value) -> Option<Entry> {
    let mut entry = entry.as_object().and_then(|_| Entry::deserialize(entry).ok())?;
    if let Some(time) = &mut entry.time {
        *time = schema::time_text(schema::parse_time(time).ok()?.0, None);
    }
    Some(entry)
}

/// Whether an object asks to forget all managers: `managedFields: []` or `[{}]`.
pub fn asks_for_reset(tree: &Tree) -> bool {
    let list =
        tree.get("metadata").and_then(|metadata| metadata.get("managedFields")).and_then(Value::as_array);
    match list.map(Vec::as_slice) {
        Some([]) => true,
        Some([Value::Object(entry)]) => entry.values().all(|value| value.is_null() || value == ""),
        _ => false,
    }
}

impl Managed {
    /// The managers of an object.
    pub fn decode(tree: &Tree) -> Result<Self, ManagedFieldsError> {
        let mut managed = Self::default();
        for (at, entry) in entries(tree).into_iter().flatten().enumerate() {
            managed.add(at, entry).map_err(ManagedFieldsError)?;
        }
        Ok(managed)
    }

    fn add(&mut self, at: usize, entry: Entry) -> Result<(), String> {
        let operation = match entry.operation.as_deref() {
            Some("Apply") => Operation::Apply,
            Some("Update") => Operation::Update,
            _ => return Err("operation must be `Apply` or `Update`".to_owned()),
        };
        let api_version = entry.api_version.unwrap_or_default();
        if api_version.is_empty() {
            return Err("apiVersion must not be empty".to_owned());
        }
        match entry.fields_type.as_deref() {
            Some(FIELDS_V1) => {}
            None | Some("") => return Err(format!("missing fieldsType in managed fields entry {at}")),
            Some(other) => {
                let other = gotext::quote(other);
                return Err(format!("invalid fieldsType {other} in managed fields entry {at}"));
            }
        }
        let set = match &entry.fields_v1 {
            Some(fields) => FieldSet::from_value(fields)
                .map_err(|error| format!("error decoding versioned set: error decoding set: {error}"))?,
            None => FieldSet::default(),
        };
        let manager = entry.manager.unwrap_or_default();
        let subresource = entry.subresource.unwrap_or_default();
        let identifier = Identifier::new(&manager, operation, &api_version, &subresource).text();
        let applied = operation == Operation::Apply;
        self.fields.insert(identifier.clone(), Owned { set, api_version, applied });
        self.times.insert(identifier, entry.time);
        Ok(())
    }

    /// Writes the managers into an object.
    pub fn encode(&self, tree: &mut Tree) {
        if self.fields.is_empty() {
            remove_managed_fields(tree);
            return;
        }
        let mut entries: Vec<_> =
            self.fields.iter().map(|(identifier, owned)| self.entry(identifier, owned)).collect();
        entries.sort_by(|(a, _), (b, _)| a.cmp(b));
        let entries = entries.into_iter().map(|(_, entry)| entry).collect();
        let metadata = tree.entry("metadata").or_insert_with(|| json!({}));
        if let Value::Object(metadata) = metadata {
            metadata.insert("managedFields".to_owned(), Value::Array(entries));
        }
    }

    /// An entry, and what it is sorted by.
    fn entry(&self, identifier: &str, owned: &Owned) -> ((String, i64, String, String, String), Value) {
        let Identifier { manager, operation, subresource, .. } =
            Identifier::parse(identifier).unwrap_or_default();
        let operation = if owned.applied { Operation::Apply.as_str().to_owned() } else { operation };
        let time = self.times.get(identifier).cloned().flatten();
        let mut entry = Tree::from_iter([("fieldsV1".to_owned(), owned.set.to_value())]);
        let texts = [
            ("fieldsType", FIELDS_V1),
            ("manager", manager.as_str()),
            ("operation", &operation),
            ("apiVersion", &owned.api_version),
            ("time", time.as_deref().unwrap_or_default()),
            ("subresource", &subresource),
        ];
        for (name, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
            entry.insert(name.to_owned(), Value::String(text.to_owned()));
        }
        let seconds = self.seconds(identifier);
        ((operation, seconds, manager, owned.api_version.clone(), subresource), Value::Object(entry))
    }

    fn seconds(&self, identifier: &str) -> i64 {
        let time = self.times.get(identifier).and_then(Option::as_deref);
        time.and_then(|time| schema::parse_time(time).ok()).map_or(0, |(seconds, _)| seconds)
    }

    /// Joins the oldest updaters while there are more than `most`: those of a version go together.
    pub fn join_oldest(&mut self, most: usize) {
        let mut updaters: Vec<String> =
            self.fields.iter().filter(|(_, owned)| !owned.applied).map(|(id, _)| id.clone()).collect();
        if updaters.len() <= most {
            return;
        }
        updaters.sort_by_cached_key(|updater| (self.seconds(updater), updater.clone()));
        let mut left = updaters.len();
        let mut first_of_version: BTreeMap<String, String> = BTreeMap::new();
        for updater in updaters {
            if left <= most {
                return;
            }
            let Some(version) = self.fields.get(&updater).map(|owned| owned.api_version.clone()) else {
                continue;
            };
            let Some(first) = first_of_version.get(&version) else {
                first_of_version.insert(version, updater);
                continue;
            };
            self.join(&updater, first, &version);
            left -= 1;
        }
    }

    /// Gives what `updater` owns to the bucket of its version, which begins as `first`.
    fn join(&mut self, updater: &str, first: &str, version: &str) {
        let bucket = Identifier::new(ANCIENT, Operation::Update, version, "").text();
        let Some(owned) = self.fields.get(updater).cloned() else { return };
        let before = match self.fields.get(&bucket) {
            Some(before) => before.set.clone(),
            None => self.fields.remove(first).map(|first| first.set).unwrap_or_default(),
        };
        self.fields.insert(bucket.clone(), Owned { set: owned.set.clone().union(before), ..owned });
        // If that is the bucket itself, it is gone: so it is upstream.
        self.fields.remove(updater);
        let time = self.times.get(updater).cloned().flatten();
        self.times.insert(bucket, time);
    }
}

pub(super) fn remove_managed_fields(tree: &mut Tree) {
    if let Some(Value::Object(metadata)) = tree.get_mut("metadata") {
        metadata.remove("managedFields");
    }
}
