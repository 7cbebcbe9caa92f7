//! What becomes of a definition: which of its names are accepted, and whether it is established.
//!
//! Upstream has a controller each for names, establishing, schemas and approval; here one function says what they
//! settle on.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::{Definition, Names, Version, approval};
use crate::{
    field_error::Cause,
    gotext,
    resource::Tree,
    structural::{Path, aggregate},
};

/// An entry of `status.conditions`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    pub kind: &'static str,
    /// `True`, `False` or `Unknown`.
    pub status: &'static str,
    pub reason: &'static str,
    pub message: String,
}

impl Condition {
    pub fn new(
        kind: &'static str,
        status: &'static str,
        reason: &'static str,
        message: impl Into<String>,
    ) -> Self {
        Self { kind, status, reason, message: message.into() }
    }

    /// While the objects of a deleted definition are being deleted.
    pub fn deleting_instances() -> Self {
        let message = "CustomResource deletion is in progress";
        Self::new("Terminating", "True", "InstanceDeletionInProgress", message)
    }

    /// When the objects of a deleted definition are gone.
    pub fn instances_deleted() -> Self {
        Self::new("Terminating", "False", "InstanceDeletionCompleted", "removed all instances")
    }

    /// When a deleted definition never had objects.
    pub fn never_established() -> Self {
        Self::new("Terminating", "False", "NeverEstablished", "resource was never established")
    }
}

/// The conditions of a definition.
pub fn conditions_of(definition: &Tree) -> impl Iterator<Item = &Tree> {
    let conditions =
        definition.get("status").and_then(|status| status.get("conditions")).and_then(Value::as_array);
    conditions.into_iter().flatten().filter_map(Value::as_object)
}

fn find<'t>(definition: &'t Tree, kind: &str) -> Option<&'t Tree> {
    conditions_of(definition).find(|condition| condition.get("type").is_some_and(|found| found == kind))
}

/// Whether a condition is `True`.
pub fn is_true(definition: &Tree, kind: &str) -> bool {
    find(definition, kind)
        .is_some_and(|condition| condition.get("status").is_some_and(|status| status == "True"))
}

/// Sets a condition of a definition; `now` is an RFC 3339 time.
pub fn set_condition(definition: &mut Tree, condition: &Condition, now: &str) {
    let status = object_at(definition, "status");
    let conditions = status.entry("conditions").or_insert_with(|| json!([]));
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let Some(conditions) = conditions.as_array_mut() else { return };
    let mut entry = json!({
        "type": condition.kind, "status": condition.status, "lastTransitionTime": now,
        "reason": condition.reason, "message": condition.message,
    });
    match conditions.iter_mut().find(|it| it["type"] == condition.kind) {
        None => conditions.push(entry),
        Some(existing) => {
            let unchanged =
                existing["status"] == condition.status && existing["lastTransitionTime"].is_string();
            if unchanged {
                entry["lastTransitionTime"] = existing["lastTransitionTime"].take();
            }
            if let (Some(existing), Value::Object(entry)) = (existing.as_object_mut(), entry) {
                existing.extend(entry);
            }
        }
    }
}

/// Removes a condition.
pub fn remove_condition(definition: &mut Tree, kind: &str) {
    let conditions = definition.get_mut("status").and_then(|status| status.get_mut("conditions"));
    if let Some(Value::Array(conditions)) = conditions {
        conditions.retain(|condition| condition["type"] != kind);
    }
}

fn object_at<'t>(tree: &'t mut Tree, key: &str) -> &'t mut Map<String, Value> {
    let value = tree.entry(key).or_insert_with(|| json!({}));
    if !value.is_object() {
        *value = json!({});
    }
    match value {
        Value::Object(members) => members,
        // It has just been made one.
        _ => unreachable!("an object"),
    }
}

/// The definition with the status that its spec and the other definitions lead to; `None` if it has that already.
/// `others` may hold the definition itself, and those of other groups; `now` is an RFC 3339 time.
pub fn next_status<'t>(definition: &Tree, others: impl Iterator<Item = &'t Tree>, now: &str) -> Option<Tree> {
    let read = Definition::read(definition);
    let mut next = definition.clone();
    accept_names(&mut next, &read, others, now);
    establish(&mut next, &read, now);
    match schema_condition(&read) {
        Some(condition) => set_if_changed(&mut next, &condition, now),
        None => remove_condition(&mut next, "NonStructuralSchema"),
    }
    if let Some(condition) = approval::condition(&next, &read.group) {
        set_if_changed(&mut next, &condition, now);
    }
    (next.get("status") != definition.get("status")).then_some(next)
}

fn set_if_changed(definition: &mut Tree, condition: &Condition, now: &str) {
    let same = find(definition, condition.kind).is_some_and(|found| {
        found.get("status").is_some_and(|it| it == condition.status)
            && found.get("reason").is_some_and(|it| it == condition.reason)
            && found.get("message").is_some_and(|it| *it == condition.message)
    });
    if !same {
        set_condition(definition, condition, now);
    }
}

fn accepted(definition: &Tree) -> Names {
    Names::read(definition.get("status").and_then(|status| status.get("acceptedNames")))
}

fn accept_names<'t>(next: &mut Tree, read: &Definition, others: impl Iterator<Item = &'t Tree>, now: &str) {
    let before = accepted(next);
    if before == read.names {
        return;
    }
    let mut taken = Taken::default();
    for other in others {
        let group = other.get("spec").and_then(|spec| spec.get("group"));
        if group.is_some_and(|group| *group == read.group) {
            taken.claim(&accepted(other));
        }
    }
    taken.claim(&before);
    let (names, condition) = settle(&read.names, &before, &taken);
    object_at(next, "status").insert("acceptedNames".into(), names.to_json());
    let is_accepted = condition.status == "True";
    set_if_changed(next, &condition, now);
    let established = match find(next, "Established") {
        Some(_) if is_true(next, "Established") => return,
        _ if is_accepted => {
            Condition::new("Established", "False", "Installing", "the initial names have been accepted")
        }
        Some(_) => return,
        None => Condition::new("Established", "False", "NotAccepted", "not all names are accepted"),
    };
    set_condition(next, &established, now);
}

#[derive(Default)]
struct Taken {
    resources: BTreeSet<String>,
    kinds: BTreeSet<String>,
}

impl Taken {
    fn claim(&mut self, names: &Names) {
        self.resources.extend([names.plural.clone(), names.singular.clone()]);
        self.resources.extend(names.short_names.iter().cloned());
        self.kinds.extend([names.kind.clone(), names.list_kind.clone()]);
    }
}

/// Of each name: the one asked for, unless another definition has it. The last conflict is told.
fn settle(asked: &Names, before: &Names, taken: &Taken) -> (Names, Condition) {
    let mut conflict: Option<(&'static str, String)> = None;
    let mut choose = |asked: &str, before: &str, taken: &BTreeSet<String>, reason: &'static str| {
        if asked == before || !taken.contains(asked) {
            return asked.to_owned();
        }
        conflict = Some((reason, in_use(asked)));
        before.to_owned()
    };
    let plural = choose(&asked.plural, &before.plural, &taken.resources, "PluralConflict");
    let singular = choose(&asked.singular, &before.singular, &taken.resources, "SingularConflict");
    let mut short_names = before.short_names.clone();
    let (mut short_conflict, mut kind_conflict) = (None, None);
    let conflicts: Vec<String> = asked
        .short_names
        .iter()
        .filter(|name| !before.short_names.contains(name) && taken.resources.contains(*name))
        .map(|name| in_use(name))
        .collect();
    match conflicts.as_slice() {
        [] => short_names = asked.short_names.clone(),
        [only] => short_conflict = Some(only.clone()),
        several => short_conflict = Some(format!("[{}]", several.join(", "))),
    }
    let mut choose_kind = |asked: &str, before: &str, reason: &'static str| {
        if asked == before || !taken.kinds.contains(asked) {
            return asked.to_owned();
        }
        kind_conflict = Some((reason, in_use(asked)));
        before.to_owned()
    };
    let kind = choose_kind(&asked.kind, &before.kind, "KindConflict");
    let list_kind = choose_kind(&asked.list_kind, &before.list_kind, "ListKindConflict");
    let conflict = kind_conflict.or(short_conflict.map(|text| ("ShortNamesConflict", text))).or(conflict);
    let condition = match conflict {
        Some((reason, message)) => Condition::new("NamesAccepted", "False", reason, message),
        None => Condition::new("NamesAccepted", "True", "NoConflicts", "no conflicts found"),
    };
    let categories = asked.categories.clone();
    (Names { plural, singular, kind, list_kind, short_names, categories }, condition)
}

fn in_use(name: &str) -> String {
    format!("{} is already in use", gotext::quote(name))
}

impl Names {
    pub(super) fn to_json(&self) -> Value {
        let mut names = json!({"plural": self.plural, "kind": self.kind});
        for (key, text) in [("singular", &self.singular), ("listKind", &self.list_kind)] {
            if !text.is_empty() {
                names[key] = json!(text);
            }
        }
        for (key, texts) in [("shortNames", &self.short_names), ("categories", &self.categories)] {
            if !texts.is_empty() {
                names[key] = json!(texts);
            }
        }
        names
    }
}

fn establish(next: &mut Tree, read: &Definition, now: &str) {
    if !is_true(next, "NamesAccepted") || is_true(next, "Established") {
        return;
    }
    let bundle = read.conversion.as_ref().and_then(|conversion| conversion.client.as_ref());
    let bad_bundle =
        bundle.and_then(|client| super::conversion::ca_bundle_mistake(&client.ca_bundle)).is_some();
    let condition = if bad_bundle {
        let message = "The conversion webhook CABundle is invalid";
        Condition::new("Established", "False", "InvalidCABundle", message)
    } else {
        Condition::new("Established", "True", "InitialNamesAccepted", "the initial names have been accepted")
    };
    set_if_changed(next, &condition, now);
}

fn schema_condition(read: &Definition) -> Option<Condition> {
    let mut causes = Vec::new();
    if read.preserve_unknown_fields {
        causes.push(Cause::invalid("spec.preserveUnknownFields", &true.into(), "must be false"));
    }
    let root = Path::Root;
    let versions = root.child("spec");
    let versions = versions.child("versions");
    for (at, version) in read.versions.iter().enumerate() {
        let Some(schema) = version.structural() else { continue };
        if let Some(error) = schema.unsupported_member() {
            let Version { name, .. } = version;
            let message = format!("failed to check validation schema for version {name}: {error}");
            return Some(Condition::new("NonStructuralSchema", "Unknown", "StructuralError", message));
        }
        let path = versions.index(at);
        causes.extend(schema.violations(&path.child("schema").child("openAPIV3Schema")));
    }
    aggregate(&causes).map(|message| Condition::new("NonStructuralSchema", "True", "Violations", message))
}
