//! Metadata and type of a custom resource and of the resources embedded in it.
//!
//! Whatever a schema says of `metadata`, it has the type of `ObjectMeta`: it is decoded as such, and checked as such.

use serde_json::{Map, Value};

use super::{Path, Structural};
use crate::{
    field_error::Cause,
    gotext, metadata, names,
    schema::{self, Message, Options, Types},
};

/// What to do with metadata of a wrong type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// As in requests.
    Refuse,
    /// As in stored objects.
    Drop,
}

/// Gives `metadata` of a whole object the form of `ObjectMeta`. The paths of unknown fields: `metadata.foo`.
pub fn conform_metadata(tree: &mut Map<String, Value>, malformed: Malformed) -> Result<Vec<String>, String> {
    let Some(metadata) = tree.get_mut("metadata") else { return Ok(Vec::new()) };
    let unknown = conform(metadata, malformed)?;
    Ok(unknown.into_iter().map(|path| format!("metadata.{path}")).collect())
}

/// Gives the metadata of embedded resources the form of `ObjectMeta`. The paths of unknown fields, sorted.
pub fn coerce(
    tree: &mut Map<String, Value>,
    schema: &Structural,
    malformed: Malformed,
) -> Result<Vec<String>, Cause> {
    let mut unknown = Vec::new();
    coerce_members(tree, schema, false, &Path::Root, malformed, &mut unknown)?;
    unknown.sort();
    Ok(unknown)
}

/// As [`coerce`], of one value below the root; `embedded` says whether it is a resource.
pub fn coerce_value(
    value: &mut Value,
    schema: &Structural,
    embedded: bool,
    path: &Path<'_>,
) -> Result<(), Cause> {
    coerce_any(value, schema, embedded, path, Malformed::Refuse, &mut Vec::new())
}

/// For defaults inside of a whole resource: drops what is malformed.
pub(super) fn coerce_leniently(object: &mut Value, schema: &Structural) {
    // Nothing is refused here.
    drop(coerce_any(object, schema, true, &Path::Root, Malformed::Drop, &mut Vec::new()));
}

fn object_meta() -> Option<(&'static Types, &'static Message)> {
    let types = Types::builtin();
    Some((types, types.get("meta/v1.ObjectMeta")?))
}

fn conform(metadata: &mut Value, malformed: Malformed) -> Result<Vec<String>, String> {
    let Some((types, message)) = object_meta() else { return Ok(Vec::new()) };
    let mut conformed = metadata.clone();
    let unknown = match schema::conform(types, message, &mut conformed, Options::default()) {
        Ok(found) => found.unknown,
        Err(error) if malformed == Malformed::Refuse => return Err(error.0),
        Err(_) => {
            let Value::Object(members) = &*metadata else {
                let found = gotext::type_of(metadata);
                return Err(format!("invalid metadata: expected object, got {found}"));
            };
            conformed = well_formed_members(types, message, members);
            Vec::new()
        }
    };
    *metadata = conformed;
    let path_of = |text: &String| text.strip_prefix("unknown field \"")?.strip_suffix('"').map(str::to_owned);
    Ok(unknown.iter().filter_map(path_of).collect())
}

fn well_formed_members(types: &Types, message: &Message, members: &Map<String, Value>) -> Value {
    let mut kept = Map::new();
    for (key, value) in members {
        let mut single = Value::Object(Map::from_iter([(key.clone(), value.clone())]));
        if schema::conform(types, message, &mut single, Options::default()).is_ok()
            && let Some(value) = single.get_mut(key)
        {
            kept.insert(key.clone(), value.take());
        }
    }
    Value::Object(kept)
}

fn coerce_any(
    value: &mut Value,
    schema: &Structural,
    embedded: bool,
    path: &Path<'_>,
    malformed: Malformed,
    unknown: &mut Vec<String>,
) -> Result<(), Cause> {
    match value {
        Value::Object(members) => coerce_members(members, schema, embedded, path, malformed, unknown),
        Value::Array(items) => {
            let Some(schema) = &schema.items else { return Ok(()) };
            items.iter_mut().enumerate().try_for_each(|(at, item)| {
                coerce_any(item, schema, schema.embedded_resource, &path.index(at), malformed, unknown)
            })
        }
        _ => Ok(()),
    }
}

fn coerce_members(
    members: &mut Map<String, Value>,
    schema: &Structural,
    embedded: bool,
    path: &Path<'_>,
    malformed: Malformed,
    unknown: &mut Vec<String>,
) -> Result<(), Cause> {
    if embedded {
        coerce_resource(members, path, malformed, unknown)?;
    }
    for (key, value) in members.iter_mut() {
        let below = match schema.properties.get(key) {
            Some(property) => Some((property, path.child(key))),
            None => schema.additional_schema().map(|additional| (additional, path.key(key))),
        };
        if let Some((schema, path)) = below {
            coerce_any(value, schema, schema.embedded_resource, &path, malformed, unknown)?;
        }
    }
    Ok(())
}

fn coerce_resource(
    members: &mut Map<String, Value>,
    path: &Path<'_>,
    malformed: Malformed,
    unknown: &mut Vec<String>,
) -> Result<(), Cause> {
    for key in ["apiVersion", "kind"] {
        match members.get(key) {
            None | Some(Value::String(_)) => {}
            Some(_) if malformed == Malformed::Drop => drop(members.remove(key)),
            Some(value) => {
                return Err(Cause::invalid(path.child(key).to_string(), value, "must be a string"));
            }
        }
    }
    let Some(metadata) = members.get_mut("metadata") else { return Ok(()) };
    let original = metadata.clone();
    match conform(metadata, malformed) {
        Ok(found) => {
            unknown.extend(found.iter().map(|name| format!("{}.{name}", path.child("metadata"))));
            let stamp = metadata.get("creationTimestamp");
            if stamp.is_some_and(Value::is_null)
                && let Some(metadata) = metadata.as_object_mut()
            {
                metadata.remove("creationTimestamp");
            }
        }
        Err(error) if malformed == Malformed::Refuse => {
            return Err(Cause::invalid(path.child("metadata").to_string(), &original, &error));
        }
        Err(_) => {}
    }
    Ok(())
}

/// What is wrong with embedded resources.
pub fn check(
    members: &Map<String, Value>,
    schema: &Structural,
    embedded: bool,
    path: &Path<'_>,
) -> Vec<Cause> {
    let mut causes = Vec::new();
    check_members(members, schema, embedded, path, &mut causes);
    causes
}

/// As [`check`], of any value.
pub fn check_value(value: &Value, schema: &Structural, embedded: bool, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    check_any(value, schema, embedded, path, &mut causes);
    causes
}

fn check_any(value: &Value, schema: &Structural, embedded: bool, path: &Path<'_>, causes: &mut Vec<Cause>) {
    match value {
        Value::Object(members) => check_members(members, schema, embedded, path, causes),
        Value::Array(items) => {
            if let Some(schema) = &schema.items {
                for (at, item) in items.iter().enumerate() {
                    check_any(item, schema, schema.embedded_resource, &path.index(at), causes);
                }
            }
        }
        _ => {}
    }
}

fn check_members(
    members: &Map<String, Value>,
    schema: &Structural,
    embedded: bool,
    path: &Path<'_>,
    causes: &mut Vec<Cause>,
) {
    if embedded {
        causes.extend(check_resource(members, path));
    }
    for (key, value) in members {
        if let Some(property) = schema.properties.get(key) {
            check_any(value, property, property.embedded_resource, &path.child(key), causes);
        } else if let Some(additional) = schema.additional_schema() {
            check_any(value, additional, additional.embedded_resource, &path.key(key), causes);
        }
    }
}

fn check_resource(members: &Map<String, Value>, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    for key in ["apiVersion", "kind"] {
        let field = || path.child(key).to_string();
        match members.get(key) {
            None => causes.push(Cause::required(field(), "")),
            Some(Value::String(text)) if text.is_empty() => {
                causes.push(Cause::invalid(field(), &"".into(), "must not be empty"));
            }
            Some(value @ Value::String(text)) => {
                let why = if key == "kind" { kind_mistake(text) } else { group_version_mistake(text) };
                causes.extend(why.map(|why| Cause::invalid(field(), value, &why)));
            }
            Some(value) => causes.push(Cause::invalid(field(), value, "must be a string")),
        }
    }
    if let Some(metadata) = members.get("metadata") {
        causes.extend(check_metadata(metadata, &path.child("metadata")));
    }
    causes
}

fn kind_mistake(kind: &str) -> Option<String> {
    let problems = names::is_dns1035_label(&kind.to_lowercase());
    let why = || format!("may have mixed case, but should otherwise match: {}", problems.join(","));
    (!problems.is_empty()).then(why)
}

fn group_version_mistake(text: &str) -> Option<String> {
    (text.matches('/').count() > 1).then(|| format!("unexpected GroupVersion string: {text}"))
}

fn check_metadata(metadata: &Value, path: &Path<'_>) -> Vec<Cause> {
    let mut conformed = metadata.clone();
    if let Err(error) = conform(&mut conformed, Malformed::Refuse) {
        return vec![Cause::invalid(path.to_string(), metadata, &error)];
    }
    let Value::Object(mut members) = conformed else { return Vec::new() };
    let text = |members: &Map<String, Value>, key: &str| {
        members.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    if text(&members, "name").is_empty() {
        // An embedded resource needs no name.
        members.insert("name".into(), "fakename".into());
    }
    let namespaced = !text(&members, "namespace").is_empty();
    let mut causes = metadata::validate_create(&members, namespaced, names::path_segment_name);
    let prefix = path.to_string();
    for cause in &mut causes {
        cause.field = format!("{prefix}{}", cause.field.strip_prefix("metadata").unwrap_or(&cause.field));
    }
    causes
}
