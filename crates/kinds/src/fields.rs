//! Fields by their path, `spec.template.spec`, in objects that may be of any shape.

use serde_json::{Map, Value};

fn keys(path: &str) -> impl Iterator<Item = &str> {
    path.split('.').filter(|key| !key.is_empty())
}

pub fn at<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    keys(path).try_fold(value, |value, key| value.get(key)).filter(|value| !value.is_null())
}

pub fn text<'a>(value: &'a Value, path: &str) -> &'a str {
    at(value, path).and_then(Value::as_str).unwrap_or_default()
}

pub fn flag(value: &Value, path: &str) -> bool {
    at(value, path).and_then(Value::as_bool).unwrap_or(false)
}

/// A number that is not negative; what is negative counts as none at all.
pub fn count(value: &Value, path: &str) -> Option<u64> {
    let number = at(value, path)?;
    number.as_u64().or_else(|| number.as_i64().map(|_| 0))
}

pub fn number(value: &Value, path: &str) -> i64 {
    at(value, path).and_then(Value::as_i64).unwrap_or(0)
}

pub fn list<'a>(value: &'a Value, path: &str) -> &'a [Value] {
    at(value, path).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

pub fn map<'a>(value: &'a Value, path: &str) -> Option<&'a Map<String, Value>> {
    at(value, path).and_then(Value::as_object)
}

/// Sets a field and makes the objects around it that are missing; what is in the way and no object stays.
pub fn put(value: &mut Value, path: &str, new: impl Into<Value>) {
    let mut place = value;
    for key in keys(path) {
        if place.is_null() {
            *place = Value::Object(Map::new());
        }
        let Some(members) = place.as_object_mut() else { return };
        place = members.entry(key).or_insert(Value::Null);
    }
    *place = new.into();
}

pub fn remove(value: &mut Value, path: &str) -> Option<Value> {
    let (holder, key) = path.rsplit_once('.').unwrap_or(("", path));
    let mut place = value;
    for key in keys(holder) {
        place = place.get_mut(key)?;
    }
    place.as_object_mut()?.remove(key)
}

pub fn at_mut<'a>(value: &'a mut Value, path: &str) -> Option<&'a mut Value> {
    keys(path).try_fold(value, |value, key| value.get_mut(key))
}

/// The group and the version in an `apiVersion`.
pub fn group_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_are_found_set_and_removed_by_their_path() {
        let mut object = json!({"spec": {"replicas": 3, "paused": true, "odd": -1, "none": null}});
        assert_eq!(count(&object, "spec.replicas"), Some(3));
        assert_eq!(count(&object, ".spec.replicas"), Some(3), "as definitions spell them");
        assert_eq!(count(&object, "spec.odd"), Some(0));
        assert_eq!(at(&object, "spec.none"), None);
        assert!(flag(&object, "spec.paused"));
        put(&mut object, "spec.ordinals.start", 4);
        assert_eq!(count(&object, "spec.ordinals.start"), Some(4));
        put(&mut object, "spec.replicas.deeper", 4);
        assert_eq!(count(&object, "spec.replicas"), Some(3), "a number has no fields");
        assert_eq!(remove(&mut object, "spec.ordinals.start"), Some(json!(4)));
        assert_eq!(remove(&mut object, "status.any"), None);
    }
}
