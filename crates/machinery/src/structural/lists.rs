//! Lists that are sets or maps: nothing stands in them twice.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::{Path, Structural};
use crate::{field_error::Cause, gotext};

/// What stands twice in lists of type `set` and `map` anywhere in the object.
pub fn duplicates(members: &Map<String, Value>, schema: &Structural) -> Vec<Cause> {
    let mut causes = Vec::new();
    check_members(members, schema, &Path::Root, &mut causes);
    causes
}

fn check_members(
    members: &Map<String, Value>,
    schema: &Structural,
    path: &Path<'_>,
    causes: &mut Vec<Cause>,
) {
    for (key, value) in members {
        if let Some(additional) = schema.additional_schema() {
            check(value, additional, &path.key(key), causes);
        }
        if let Some(property) = schema.properties.get(key) {
            check(value, property, &path.child(key), causes);
        }
    }
}

fn check(value: &Value, schema: &Structural, path: &Path<'_>, causes: &mut Vec<Cause>) {
    match value {
        Value::Object(members) => check_members(members, schema, path, causes),
        Value::Array(items) => {
            match schema.list_type.as_deref() {
                Some("set") => {
                    let places = repeated(items.iter().map(identity));
                    let told =
                        places.into_iter().map(|at| Cause::duplicate(path.index(at).to_string(), &items[at]));
                    causes.extend(told);
                }
                Some("map") => causes.extend(repeated_keys(items, schema, path)),
                _ => {}
            }
            if let Some(schema) = &schema.items {
                for (at, item) in items.iter().enumerate() {
                    check(item, schema, &path.index(at), causes);
                }
            }
        }
        _ => {}
    }
}

fn repeated_keys(items: &[Value], schema: &Structural, path: &Path<'_>) -> Vec<Cause> {
    let stray = items.iter().position(|item| !item.is_object() && !item.is_null());
    if let Some(at) = stray {
        let why = "must be an object for an array of list-type map";
        return vec![Cause::invalid(path.index(at).to_string(), &items[at], why)];
    }
    let key_of = |item: &Value| {
        let named =
            schema.list_map_keys.iter().filter_map(|name| Some((name.clone(), item.get(name)?.clone())));
        Value::Object(named.collect())
    };
    let keys: Vec<Value> = items.iter().map(key_of).collect();
    let places = match schema.list_map_keys.as_slice() {
        [only] => repeated(items.iter().map(|item| item.get(only).map_or_else(String::new, identity))),
        _ => repeated(keys.iter().map(identity)),
    };
    places.into_iter().map(|at| Cause::duplicate(path.index(at).to_string(), &keys[at])).collect()
}

/// A text that two values share if upstream takes them for the same: 1 and 1.0 are, but only inside of something.
fn identity(value: &Value) -> String {
    if is_scalar(value) { value.to_string() } else { gotext::json(value) }
}

/// The places of second occurrences; later ones are not told again.
fn repeated(texts: impl Iterator<Item = String>) -> Vec<usize> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut found = Vec::new();
    for (at, text) in texts.enumerate() {
        let times = seen.entry(text).or_default();
        *times += 1;
        if *times == 2 {
            found.push(at);
        }
    }
    found
}

/// What correlates an item of a list of type `map` with one of the old list: its keys, which must be scalars.
pub fn correlation_key(item: &Value, keys: &[String]) -> Option<String> {
    let members = item.as_object()?;
    let values = keys.iter().map(|key| members.get(key).filter(|value| is_scalar(value)));
    let values: Option<Vec<&Value>> = values.collect();
    values.map(|values| json!(values).to_string())
}

fn is_scalar(value: &Value) -> bool {
    matches!(value, Value::Bool(_) | Value::Number(_) | Value::String(_))
}
