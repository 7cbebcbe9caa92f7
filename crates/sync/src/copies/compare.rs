//! Whether a member's object is what was sent, whatever others have added to it.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
};

use compact_str::CompactString;
use serde_json::{Map, Value, value::RawValue};

/// Members of a list are known by one of these, where they have it.
const NAMES: [&str; 9] =
    ["name", "mountPath", "devicePath", "containerPort", "port", "ip", "key", "topologyKey", "type"];

/// What an object consists of, as it was sent.
pub type Members<'a> = BTreeMap<CompactString, &'a RawValue>;

/// Of all that an object says but its status, and what says merely that it was written. A member says the same in the same
/// words each time; where it did not, the object would be compared once more than it need be.
pub fn fingerprint(object: &Members<'_>, metadata: &Members<'_>) -> u64 {
    // Items of lists leave out what they are.
    const LEFT_OUT: [&str; 4] = ["kind", "apiVersion", "metadata", "status"];
    const WRITTEN: [&str; 2] = ["managedFields", "resourceVersion"];
    let said = object.iter().filter(|(name, _)| !LEFT_OUT.contains(&name.as_str()));
    let described = metadata.iter().filter(|(name, _)| !WRITTEN.contains(&name.as_str()));
    let mut hasher = DefaultHasher::new();
    for part in [said.collect::<Vec<_>>(), described.collect()] {
        hasher.write_usize(part.len());
        for (name, value) in part {
            (name, value.get()).hash(&mut hasher);
        }
    }
    hasher.finish()
}

/// Whether `there` has all that was `sent`.
pub fn contains(there: &Value, sent: &Value) -> bool {
    match (there, sent) {
        (Value::Object(there), Value::Object(sent)) => {
            sent.iter().all(|(key, sent)| there.get(key).map_or(is_nothing(sent), |it| contains(it, sent)))
        }
        (Value::Array(there), Value::Array(sent)) => has_items(there, sent),
        (there, sent) => there == sent,
    }
}

/// Members leave out what is empty.
fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Bool(true) => false,
    }
}

fn has_items(there: &[Value], sent: &[Value]) -> bool {
    if there.len() == sent.len() && there.iter().zip(sent).all(|(there, sent)| contains(there, sent)) {
        return true;
    }
    // Others may have added some, as webhooks add containers.
    let name = |item: &Value| NAMES.iter().find(|name| item.get(**name).is_some()).copied();
    sent.iter().all(|sent| {
        name(sent).is_some_and(|name| there.iter().any(|it| it[name] == sent[name] && contains(it, sent)))
    })
}

/// Whether all fields that `manager` applied are still `sent`: one that is not is to go.
pub fn owns_no_more(object: &Value, manager: &str, sent: &Value) -> bool {
    applied_fields(object, manager).all(|fields| fields.as_object().is_none_or(|it| are_sent(it, sent)))
}

fn applied_fields<'a>(object: &'a Value, manager: &'a str) -> impl Iterator<Item = &'a Value> {
    let entries = object["metadata"]["managedFields"].as_array().into_iter().flatten();
    entries
        .filter(move |it| {
            it["manager"] == manager
                && it["operation"] == "Apply"
                && it["subresource"].as_str().unwrap_or("").is_empty()
        })
        .map(|entry| &entry["fieldsV1"])
}

fn are_sent(fields: &Map<String, Value>, sent: &Value) -> bool {
    fields.iter().all(|(key, below)| {
        let found = match key.split_at_checked(2) {
            Some(("f:", name)) => sent.get(name),
            Some(("k:", keys)) => item_with(sent, keys),
            Some(("v:", value)) => item_that_is(sent, value),
            // The thing itself, or a place in a list, which cannot be told.
            _ => return true,
        };
        match (found, below.as_object()) {
            (Some(found), Some(below)) => are_sent(below, found),
            (found, _) => found.is_some(),
        }
    })
}

fn item_with<'a>(sent: &'a Value, keys: &str) -> Option<&'a Value> {
    let keys: Map<String, Value> = serde_json::from_str(keys).ok()?;
    // Keys may have defaults, which need not be sent.
    let same = |item: &&Value| keys.iter().all(|(key, value)| item.get(key).is_none_or(|it| it == value));
    sent.as_array()?.iter().find(same)
}

fn item_that_is<'a>(sent: &'a Value, value: &str) -> Option<&'a Value> {
    let value: Value = serde_json::from_str(value).ok()?;
    sent.as_array()?.iter().find(|item| **item == value)
}

/// Whether `manager` applied the field at `path`, as in `.spec.replicas`.
pub fn owns(object: &Value, manager: &str, path: &str) -> bool {
    let keys: Vec<String> =
        path.split('.').filter(|key| !key.is_empty()).map(|key| format!("f:{key}")).collect();
    applied_fields(object, manager)
        .any(|fields| keys.iter().try_fold(fields, |fields, key| fields.get(key)).is_some())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_others_add_is_no_difference() {
        let rows = [
            (json!({"a": 1, "b": 2}), json!({"a": 1}), true),
            (json!({"a": 1}), json!({"a": 2}), false),
            (json!({"a": 1}), json!({"a": 1, "b": 2}), false),
            (json!({}), json!({"a": {}, "b": [], "c": "", "d": false, "e": null, "f": 0}), true),
            (json!([{"name": "a", "x": 1}]), json!([{"name": "a"}]), true),
            (json!([{"name": "b"}, {"name": "a", "x": 1}]), json!([{"name": "a"}]), true),
            (json!([{"name": "b"}]), json!([{"name": "a"}]), false),
            (json!(["a", "b"]), json!(["a"]), false),
            (json!(["a"]), json!(["a"]), true),
            (json!([]), json!([{"name": "a"}]), false),
        ];
        for (there, sent, same) in rows {
            assert_eq!(contains(&there, &sent), same, "{there} {sent}");
        }
    }

    #[test]
    fn a_fingerprint_is_of_what_is_wanted_not_of_what_came_of_it() {
        let print = |object: Value| {
            let text = object.to_string();
            let members: Members<'_> = serde_json::from_str(&text).unwrap();
            fingerprint(&members, &serde_json::from_str(members["metadata"].get()).unwrap())
        };
        let plain = print(json!({"metadata": {"name": "a"}, "spec": {"x": 1}}));
        let busy = json!({
            "kind": "A", "apiVersion": "v1", "spec": {"x": 1}, "status": {"y": 1},
            "metadata": {"resourceVersion": "7", "name": "a", "managedFields": [{}]},
        });
        assert_eq!(print(busy), plain);
        for other in [
            json!({"metadata": {"name": "a"}, "spec": {"x": 2}}),
            json!({"metadata": {"name": "b"}, "spec": {"x": 1}}),
            json!({"metadata": {"name": "a", "spec": {"x": 1}}}),
            json!({"metadata": {"name": "a"}, "spec": {"x": 1}, "data": {}}),
        ] {
            assert_ne!(print(other.clone()), plain, "{other}");
        }
    }

    #[test]
    fn a_field_that_is_not_sent_any_more_is_noticed() {
        let object = json!({"metadata": {"managedFields": [
            {"manager": "hanse", "operation": "Apply", "fieldsV1": {
                "f:metadata": {"f:labels": {"f:a": {}}},
                "f:spec": {
                    "f:replicas": {},
                    "f:containers": {".": {}, "k:{\"name\":\"c\"}": {".": {}, "f:image": {}}},
                    "f:finalizers": {"v:\"x\"": {}},
                },
            }},
            {"manager": "other", "operation": "Apply", "fieldsV1": {"f:spec": {"f:paused": {}}}},
            {"manager": "hanse", "operation": "Update", "fieldsV1": {"f:spec": {"f:odd": {}}}},
        ]}});
        let sent = json!({
            "metadata": {"labels": {"a": "1"}},
            "spec": {"replicas": 1, "containers": [{"name": "c", "image": "i"}], "finalizers": ["x"]},
        });
        assert!(owns_no_more(&object, "hanse", &sent));
        for path in ["/metadata/labels", "/spec/replicas", "/spec/containers/0/image", "/spec/finalizers/0"] {
            let mut less = sent.clone();
            machinery::patch::json_patch(
                &mut less,
                format!(r#"[{{"op":"remove","path":"{path}"}}]"#).as_bytes(),
            )
            .unwrap();
            assert!(!owns_no_more(&object, "hanse", &less), "{path}");
        }
        assert!(owns(&object, "hanse", ".spec.replicas"));
        assert!(!owns(&object, "hanse", ".spec.paused"));
    }
}
