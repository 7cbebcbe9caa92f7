//! How lists and maps merge, and what that asks of their items.

use crate::{
    definition::internal,
    field_error::Cause,
    gotext,
    structural::{Path, Structural},
};

/// Whether the items of a set can change in part.
pub fn is_loose_set(schema: &Structural) -> bool {
    loose_set(schema).is_some()
}

/// Whether a list of type `map` or `set` has items or keys that may be missing.
pub fn is_unsound_map(schema: &Structural) -> bool {
    let mut causes = Vec::new();
    sound_map(schema, &Path::Root, &mut causes);
    !causes.is_empty()
}

fn loose_set(schema: &Structural) -> Option<&'static str> {
    let items = schema.items.as_ref().filter(|_| schema.list_type.as_deref() == Some("set"))?;
    match items.type_name.as_str() {
        "array" if items.list_type.as_deref().is_some_and(|it| it != "atomic") => {
            Some("x-kubernetes-list-type")
        }
        "object" if items.map_type.as_deref() != Some("atomic") => Some("x-kubernetes-map-type"),
        _ => None,
    }
}

/// How lists and maps merge.
pub fn topology(schema: &Structural, atomic_sets: bool, path: &Path<'_>, causes: &mut Vec<Cause>) {
    let type_name = schema.type_name.as_str();
    let mut expect_type = |is_set: bool, expected: &str, member: &str| {
        if !is_set || type_name == expected {
            return false;
        }
        let field = path.child("type").to_string();
        let why = format!("must be {expected} if {member} is specified");
        causes.push(match type_name {
            "" => Cause::required(field, &why),
            _ => Cause::invalid(field, &type_name.into(), &why),
        });
        true
    };
    expect_type(schema.map_type.is_some(), "object", "x-kubernetes-map-type");
    if let Some(map_type) = schema.map_type.as_deref()
        && !matches!(map_type, "atomic" | "granular")
    {
        let field = path.child("x-kubernetes-map-type").to_string();
        causes.push(Cause::not_supported(field, &map_type.into(), &["atomic", "granular"]));
    }
    let mut wrong_type = false;
    if schema.list_type.is_some() && type_name != "array" {
        wrong_type = true;
        let field = path.child("type").to_string();
        let why = "must be array if x-kubernetes-list-type is specified";
        causes.push(match type_name {
            "" => Cause::required(field, why),
            _ => Cause::invalid(field, &type_name.into(), why),
        });
    }
    if !wrong_type
        && atomic_sets
        && let Some(member) = loose_set(schema)
    {
        // Upstream shows the list type of the items in either case.
        let shown = schema.items.as_ref().and_then(|items| items.list_type.as_ref());
        let field = path.child("items").child(member).to_string();
        let why = "must be atomic as item of a list with x-kubernetes-list-type=set";
        causes.push(Cause::invalid_text(field, &gotext::json(&shown), why));
    }
    if let Some(list_type) = schema.list_type.as_deref()
        && !matches!(list_type, "atomic" | "set" | "map")
    {
        let field = path.child("x-kubernetes-list-type").to_string();
        causes.push(Cause::not_supported(field, &list_type.into(), &["atomic", "set", "map"]));
    }
    map_keys(schema, path, causes);
}

fn map_keys(schema: &Structural, path: &Path<'_>, causes: &mut Vec<Cause>) {
    let list_type = schema.list_type.as_deref();
    if !schema.list_map_keys.is_empty() && list_type != Some("map") {
        let field = path.child("x-kubernetes-list-type").to_string();
        let why = "must be map if x-kubernetes-list-map-keys is non-empty";
        causes.push(match list_type {
            None => Cause::required(field, why),
            Some(list_type) => Cause::invalid(field, &list_type.into(), why),
        });
    }
    if list_type != Some("map") {
        return;
    }
    let keys_field = || path.child("x-kubernetes-list-map-keys").to_string();
    if schema.list_map_keys.is_empty() {
        causes.push(Cause::required(keys_field(), "must not be empty if x-kubernetes-list-type is map"));
    }
    let items_path = path.child("items");
    let Some(items) = &schema.items else {
        let schemas = schema.unsupported.as_ref().map(|it| it.item_schemas.as_slice()).unwrap_or_default();
        causes.push(match schemas {
            [] => {
                let why = "must have a schema if x-kubernetes-list-type is map";
                Cause::required(items_path.to_string(), why)
            }
            schemas => {
                let why = "must only have a single schema if x-kubernetes-list-type is map";
                Cause::invalid_text(items_path.to_string(), &internal::items(schema, schemas), why)
            }
        });
        return;
    };
    if items.type_name != "object" {
        let why = "must be object if parent array's x-kubernetes-list-type is map";
        let field = items_path.child("type").to_string();
        causes.push(Cause::invalid(field, &items.type_name.as_str().into(), why));
        return;
    }
    let shown = serde_json::json!(schema.list_map_keys);
    for (at, key) in schema.list_map_keys.iter().enumerate() {
        match items.properties.get(key) {
            Some(property) if matches!(property.type_name.as_str(), "array" | "object") => {
                let why = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                let field = items_path.child("properties").key(key).child("type").to_string();
                causes.push(Cause::invalid(field, &items.type_name.as_str().into(), why));
            }
            Some(_) => {}
            None => {
                causes.push(Cause::invalid(
                    keys_field(),
                    &shown,
                    "entries must all be names of item properties",
                ));
            }
        }
        if schema.list_map_keys[..at].contains(key) {
            causes.push(Cause::invalid(keys_field(), &shown, "must not contain duplicate entries"));
        }
    }
}

pub fn sound_map(schema: &Structural, path: &Path<'_>, causes: &mut Vec<Cause>) {
    let (Some(items), Some(list_type @ ("set" | "map"))) = (&schema.items, schema.list_type.as_deref())
    else {
        return;
    };
    let path = path.child("items");
    if items.nullable {
        let why = format!("cannot be nullable when x-kubernetes-list-type is {list_type}");
        causes.push(Cause::forbidden(path.child("nullable").to_string(), &why));
    }
    if list_type != "map" {
        return;
    }
    for key in &schema.list_map_keys {
        let Some(property) = items.properties.get(key) else { continue };
        let path = path.child("properties");
        let path = path.key(key);
        if !items.required.contains(key) && property.default.is_none() {
            let why = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            causes.push(Cause::required(path.child("default").to_string(), why));
        }
        if property.nullable {
            let why = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            causes.push(Cause::forbidden(path.child("nullable").to_string(), why));
        }
    }
}
