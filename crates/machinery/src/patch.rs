//! JSON Patch (RFC 6902) and JSON Merge Patch (RFC 7396), as upstream applies them.
//!
//! Upstream's library is kinder than the RFCs in places, and clients rely on it: `replace` of an absent key adds it,
//! `copy` of an absent key gives `null`, negative indices count from the end, and a merge patch drops `null` members
//! also inside lists it adds.

use serde_json::{Map, Value};

use crate::{gojson, gotext};

pub const MAX_OPERATIONS: usize = 10_000;
/// Bytes that all `copy` operations of a patch may add.
pub const MAX_COPIED_BYTES: usize = 3 * 1024 * 1024;
/// Steps that one patch may take: items shifted in lists, values measured before they move. Upstream has no such
/// bound; what people write takes thousands.
const MAX_WORK: usize = 50_000_000;

/// Says why a patch was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// The patch itself is wrong: 400.
    #[error("{0}")]
    Malformed(String),
    /// The patch does not fit the object: 422. Upstream keeps this text to itself and answers
    /// "the server rejected our request due to an error in our request".
    #[error("{0}")]
    Inapplicable(String),
    /// More operations than allowed: 413.
    #[error("{0}")]
    TooLarge(String),
}

impl PatchError {
    /// Whether a `test` in the patch found another value than the one it names.
    pub fn is_failed_test(&self) -> bool {
        matches!(self, PatchError::Inapplicable(why) if why.starts_with("testing value ") && why.ends_with(": test failed"))
    }
}

/// Applies a JSON Patch. On an error `doc` is left partly patched.
pub fn json_patch(doc: &mut Value, patch: &[u8]) -> Result<(), PatchError> {
    let operations = decode(patch)?;
    if operations.len() > MAX_OPERATIONS {
        let count = operations.len();
        let message =
            format!("The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {count}");
        return Err(PatchError::TooLarge(message));
    }
    let mut effort = Effort::default();
    for operation in operations {
        operation.apply(doc, &mut effort).map_err(PatchError::Inapplicable)?;
    }
    Ok(())
}

/// Members of a JSON Patch's operations that mean nothing, for field validation: `json patch unknown field "[0].x"`.
pub fn json_patch_unknown_fields(patch: &[u8]) -> Vec<String> {
    let Ok(Value::Array(operations)) = serde_json::from_slice(patch) else { return Vec::new() };
    let mut found = Vec::new();
    for (at, operation) in operations.iter().enumerate() {
        let names = operation.as_object().into_iter().flat_map(Map::keys);
        let unknown = names.filter(|name| !matches!(name.as_str(), "op" | "path" | "from" | "value"));
        found.extend(unknown.map(|name| format!("json patch unknown field \"[{at}].{name}\"")));
    }
    found
}

/// Applies a JSON Merge Patch.
pub fn merge_patch(doc: &mut Value, patch: &[u8]) -> Result<(), PatchError> {
    let patch = gojson::parse(patch).map_err(decoding)?;
    match patch {
        Value::Object(patch) => {
            merge_members(object_of(doc), patch);
            Ok(())
        }
        Value::Null => Err(PatchError::Malformed("Invalid JSON Patch".to_owned())),
        other => Err(decoding(format!(
            "json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            gojson::type_name(&other)
        ))),
    }
}

/// Merges a tree into another by the rules of [`merge_patch`]. Neither may be deeper than JSON text can be.
pub fn merge_tree(doc: &mut Value, patch: Value) {
    match (doc, patch) {
        (Value::Object(doc), Value::Object(patch)) => merge_members(doc, patch),
        (doc @ Value::Object(_), patch) => *doc = patch,
        (doc, patch) => {
            *doc = patch;
            prune_nulls(doc);
        }
    }
}

fn object_of(doc: &mut Value) -> &mut Map<String, Value> {
    if !doc.is_object() {
        *doc = Value::Object(Map::new());
    }
    match doc {
        Value::Object(members) => members,
        _ => unreachable!("it was just made an object"),
    }
}

fn merge_members(doc: &mut Map<String, Value>, patch: Map<String, Value>) {
    for (key, mut value) in patch {
        if value.is_null() {
            doc.remove(&key);
            continue;
        }
        match doc.get_mut(&key) {
            Some(current) if !current.is_null() => merge_tree(current, value),
            _ => {
                prune_nulls(&mut value);
                doc.insert(key, value);
            }
        }
    }
}

fn prune_nulls(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|_, member| !member.is_null());
            members.values_mut().for_each(prune_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(prune_nulls),
        _ => {}
    }
}

fn decoding(detail: String) -> PatchError {
    PatchError::Malformed(format!("error decoding patch: {detail}"))
}

/// What a patch has cost so far.
#[derive(Default)]
struct Effort {
    copied: usize,
    work: usize,
}

impl Effort {
    fn spend(&mut self, steps: usize) -> Result<(), String> {
        self.work = self.work.saturating_add(steps);
        if self.work > MAX_WORK { Err("the patch takes too much work".to_owned()) } else { Ok(()) }
    }

    fn copy(&mut self, bytes: usize) -> Result<(), String> {
        self.copied += bytes;
        if self.copied <= MAX_COPIED_BYTES {
            return Ok(());
        }
        let copied = self.copied;
        Err(format!(
            "Unable to complete the copy, the accumulated size increase of copy is {copied}, exceeding the limit {MAX_COPIED_BYTES}"
        ))
    }

    /// Many small patches must not build what nobody can read back: `value` is to stand below `levels` containers.
    fn check_depth(&mut self, value: &Value, levels: usize) -> Result<(), String> {
        match value {
            Value::Array(items) => {
                self.enter(levels, items.len())?;
                items.iter().try_for_each(|item| self.check_depth(item, levels + 1))
            }
            Value::Object(members) => {
                self.enter(levels, members.len())?;
                members.values().try_for_each(|member| self.check_depth(member, levels + 1))
            }
            _ => Ok(()),
        }
    }

    fn enter(&mut self, levels: usize, items: usize) -> Result<(), String> {
        if levels >= gojson::MAX_DEPTH {
            return Err("exceeded max depth".to_owned());
        }
        self.spend(items)
    }
}

/// One step of a JSON Patch. Its members may be absent or of a wrong type until it is applied.
struct Operation(Map<String, Value>);

fn decode(patch: &[u8]) -> Result<Vec<Operation>, PatchError> {
    const LIST: &str = "[]handlers.jsonPatchOp";
    let operations = match gojson::parse(patch).map_err(decoding)? {
        Value::Array(operations) => operations,
        Value::Null => return Ok(Vec::new()),
        other => return Err(mistyped(&other, &format!("Go value of type {LIST}"))),
    };
    operations.into_iter().map(decode_operation).collect()
}

fn decode_operation(operation: Value) -> Result<Operation, PatchError> {
    let members = match operation {
        Value::Object(members) => members,
        Value::Null => Map::new(),
        other => return Err(mistyped(&other, "Go value of type handlers.jsonPatchOp")),
    };
    for field in ["op", "path", "from"] {
        match members.get(field) {
            None | Some(Value::Null | Value::String(_)) => {}
            Some(other) => {
                return Err(mistyped(other, &format!("Go struct field jsonPatchOp.{field} of type string")));
            }
        }
    }
    Ok(Operation(members))
}

fn mistyped(value: &Value, target: &str) -> PatchError {
    decoding(format!("json: cannot unmarshal {} into {target}", gojson::type_name(value)))
}

impl Operation {
    fn apply(mut self, doc: &mut Value, effort: &mut Effort) -> Result<(), String> {
        let kind = self.text("op").unwrap_or("unknown").to_owned();
        match kind.as_str() {
            "add" => self.add(doc, effort),
            "remove" => self.remove(doc, effort),
            "replace" => self.replace(doc, effort),
            "move" => self.relocate(doc, effort),
            "copy" => self.copy(doc, effort),
            "test" => self.test(doc),
            _ => Err(format!("Unexpected kind: {kind}")),
        }
    }

    fn text(&self, member: &str) -> Option<&str> {
        self.0.get(member).and_then(Value::as_str)
    }

    fn path(&self) -> Result<&str, String> {
        self.text("path").ok_or_else(|| "operation missing path field: missing value".to_owned())
    }

    fn from(&self, kind: &str) -> Result<&str, String> {
        let missing = || {
            format!("{kind} operation failed to decode from: operation, missing from field: missing value")
        };
        self.text("from").ok_or_else(missing)
    }

    fn take_value(&mut self) -> Value {
        self.0.remove("value").unwrap_or(Value::Null)
    }

    fn add(&mut self, doc: &mut Value, effort: &mut Effort) -> Result<(), String> {
        let value = self.take_value();
        let path = self.path().map_err(|_| "add operation failed to decode path: missing value")?;
        let missing =
            || format!("add operation does not apply: doc is missing path: \"{path}\": missing value");
        let mut place = Place::find(doc, path).ok_or_else(missing)?;
        place.add(value, effort).map_err(|error| format!("error in add for path: '{path}': {error}"))
    }

    fn remove(&self, doc: &mut Value, effort: &mut Effort) -> Result<(), String> {
        let path = self.path().map_err(|_| "remove operation failed to decode path: missing value")?;
        let missing =
            || format!("remove operation does not apply: doc is missing path: \"{path}\": missing value");
        let mut place = Place::find(doc, path).ok_or_else(missing)?;
        place.remove(effort).map(drop).map_err(|error| format!("error in remove for path: '{path}': {error}"))
    }

    fn replace(&mut self, doc: &mut Value, effort: &mut Effort) -> Result<(), String> {
        let value = self.take_value();
        let path =
            self.path().map_err(|error| format!("replace operation failed to decode path: {error}"))?;
        if path.is_empty() {
            if !value.is_object() && !value.is_array() {
                return Err("replace operation value must be object or array: %!w(<nil>)".to_owned());
            }
            *doc = value;
            return Ok(());
        }
        let missing = |what: &str| {
            format!("replace operation does not apply: doc is missing {what}: {path}: missing value")
        };
        let mut place = Place::find(doc, path).ok_or_else(|| missing("path"))?;
        place.get().map_err(|_| missing("key"))?;
        place.set(value, effort).map_err(|error| format!("error in remove for path: '{path}': {error}"))
    }

    fn relocate(&self, doc: &mut Value, effort: &mut Effort) -> Result<(), String> {
        let from = self.from("move")?;
        let missing = |what: &str, path: &str| {
            format!("move operation does not apply: doc is missing {what} path: {path}: missing value")
        };
        let mut place = Place::find(doc, from).ok_or_else(|| missing("from", from))?;
        let key = place.key.clone();
        let value =
            place.remove(effort).map_err(|error| format!("error in move for path: '{key}': {error}"))?;
        let path = self.path().map_err(|error| format!("move operation failed to decode path: {error}"))?;
        let mut place = Place::find(doc, path).ok_or_else(|| missing("destination", path))?;
        place.add(value, effort).map_err(|error| format!("error in move for path: '{path}': {error}"))
    }

    fn copy(&self, doc: &mut Value, effort: &mut Effort) -> Result<(), String> {
        let from = self.from("copy")?;
        let missing = |what: &str, path: &str| {
            format!("copy operation does not apply: doc is missing {what} path: {path}: missing value")
        };
        let place = Place::find(doc, from).ok_or_else(|| missing("from", from))?;
        let found = place.get().map_err(|error| format!("error in copy for from: '{from}': {error}"))?;
        let value = found.cloned().unwrap_or(Value::Null);
        let path = self.path().map_err(|_| "copy operation failed to decode path: missing value")?;
        let mut place = Place::find(doc, path).ok_or_else(|| missing("destination", path))?;
        if !value.is_null() {
            effort.copy(gotext::json(&value).len())?;
        }
        place.add(value, effort).map_err(|error| format!("error while adding value during copy: {error}"))
    }

    fn test(&self, doc: &mut Value) -> Result<(), String> {
        let path = self.path().map_err(|error| format!("test operation failed to decode path: {error}"))?;
        let wanted = self.0.get("value").unwrap_or(&Value::Null);
        let failed = || format!("testing value {path} failed: test failed");
        if path.is_empty() {
            return if doc == wanted { Ok(()) } else { Err(failed()) };
        }
        let missing = || format!("test operation does not apply: is missing path: {path}: missing value");
        let place = Place::find(doc, path).ok_or_else(missing)?;
        let found = place.get().map_err(|error| format!("error in test for path: '{path}': {error}"))?;
        if found.unwrap_or(&Value::Null) == wanted { Ok(()) } else { Err(failed()) }
    }
}

/// The container that a path's last step is in, and that step.
struct Place<'a> {
    container: &'a mut Value,
    key: String,
    /// How deep the container is.
    level: usize,
}

impl<'a> Place<'a> {
    /// `None` when there is no such container.
    fn find(doc: &'a mut Value, path: &str) -> Option<Self> {
        // Whatever precedes the first slash is skipped, as upstream does.
        let (_, steps) = path.split_once('/')?;
        let (parents, key) = match steps.rsplit_once('/') {
            Some((parents, key)) => (Some(parents), key),
            None => (None, steps),
        };
        let mut container = doc;
        let mut level = 1;
        for step in parents.into_iter().flat_map(|parents| parents.split('/')) {
            container = child(container, &decode_step(step))?;
            level += 1;
        }
        (container.is_object() || container.is_array()).then(|| Self {
            container,
            key: decode_step(key),
            level,
        })
    }

    fn get(&self) -> Result<Option<&Value>, String> {
        match &*self.container {
            Value::Array(items) => Ok(items.get(index_of(&self.key, items.len())?)),
            other => Ok(other.get(&self.key)),
        }
    }

    fn set(&mut self, value: Value, effort: &mut Effort) -> Result<(), String> {
        effort.check_depth(&value, self.level)?;
        match &mut *self.container {
            Value::Array(items) => {
                let index = index_of(&self.key, items.len())?;
                items[index] = value;
            }
            Value::Object(members) => drop(members.insert(self.key.clone(), value)),
            _ => {}
        }
        Ok(())
    }

    fn add(&mut self, value: Value, effort: &mut Effort) -> Result<(), String> {
        effort.check_depth(&value, self.level)?;
        match &mut *self.container {
            Value::Array(items) if self.key == "-" => items.push(value),
            Value::Array(items) => {
                // A new item may also stand after the last.
                let index = index_of(&self.key, items.len() + 1).map_err(|error| {
                    match error.starts_with("strconv") {
                        true => format!("value was not a proper array index: '{}': {error}", self.key),
                        false => error,
                    }
                })?;
                effort.spend(items.len() - index)?;
                items.insert(index, value);
            }
            Value::Object(members) => drop(members.insert(self.key.clone(), value)),
            _ => {}
        }
        Ok(())
    }

    fn remove(&mut self, effort: &mut Effort) -> Result<Value, String> {
        match &mut *self.container {
            Value::Array(items) => {
                let index = index_of(&self.key, items.len())?;
                effort.spend(items.len() - index)?;
                Ok(items.remove(index))
            }
            Value::Object(members) => members
                .remove(&self.key)
                .ok_or_else(|| format!("Unable to remove nonexistent key: {}: missing value", self.key)),
            _ => Ok(Value::Null),
        }
    }
}

fn child<'a>(container: &'a mut Value, step: &str) -> Option<&'a mut Value> {
    match container {
        Value::Array(items) => {
            let index = index_of(step, items.len()).ok()?;
            items.get_mut(index)
        }
        Value::Object(members) => members.get_mut(step),
        _ => None,
    }
}

fn decode_step(step: &str) -> String {
    let mut out = String::with_capacity(step.len());
    let mut rest = step;
    while let Some(at) = rest.find('~') {
        out.push_str(&rest[..at]);
        let (decoded, skip) = match rest.as_bytes().get(at + 1) {
            Some(b'1') => ('/', 2),
            Some(b'0') => ('~', 2),
            _ => ('~', 1),
        };
        out.push(decoded);
        rest = &rest[at + skip..];
    }
    out.push_str(rest);
    out
}

/// The index that a step means in a list of `len` items; negative ones count from the end.
fn index_of(step: &str, len: usize) -> Result<usize, String> {
    let number: i64 = step.parse().map_err(|error: std::num::ParseIntError| {
        use std::num::IntErrorKind::{NegOverflow, PosOverflow};
        let why = if matches!(error.kind(), PosOverflow | NegOverflow) {
            "value out of range"
        } else {
            "invalid syntax"
        };
        format!("strconv.Atoi: parsing {}: {why}", gotext::quote(step))
    })?;
    let len = len as i64;
    let index = if number < 0 { number + len } else { number };
    if !(0..len).contains(&index) {
        return Err(format!("Unable to access invalid index: {number}: invalid index referenced"));
    }
    Ok(index as usize)
}

#[cfg(test)]
mod tests;
