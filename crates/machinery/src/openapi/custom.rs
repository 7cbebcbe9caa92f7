//! Schemas of custom kinds, as clients are told of them.
//!
//! They are published as their definitions have them, with the type and metadata that every object has. The older
//! form has no junctors and no nulls, and kubectl's reader of it trips over types where anything goes; there such
//! parts say less.

use serde_json::{Map, Value, json};

use super::{META, reference, words};
use crate::{resource::Custom, structural::Structural};

const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";

/// The schema of a custom kind.
pub fn schema(custom: &Custom) -> Value {
    let mut schema = match structural(custom) {
        Some(members) => {
            let mut schema = spine(members.clone());
            add_resource_fields(&mut schema);
            schema
        }
        None => untyped(),
    };
    mark_selectable(&mut schema, custom);
    Value::Object(schema)
}

/// As [`schema`], in the older form.
pub fn older_schema(custom: &Custom) -> Value {
    let published = structural(custom).filter(|members| !is_set(members, PRESERVE) && custom.version.prunes);
    let mut schema = match published {
        Some(members) => {
            let mut schema = older_spine(members.clone());
            add_resource_fields(&mut schema);
            schema
        }
        None => untyped(),
    };
    mark_selectable(&mut schema, custom);
    Value::Object(schema)
}

/// What list and object say of the fields that selectors know.
pub fn mark_selectable(schema: &mut Map<String, Value>, custom: &Custom) {
    let fields: Vec<Value> =
        custom.version.selectable.iter().map(|field| json!({"fieldPath": field.name})).collect();
    if !fields.is_empty() {
        schema.insert("x-kubernetes-selectable-fields".to_owned(), Value::Array(fields));
    }
}

fn untyped() -> Map<String, Value> {
    Map::from_iter([("type".to_owned(), json!("object"))])
}

/// The schema as it is written, if it is one that can be relied upon.
fn structural(custom: &Custom) -> Option<&Map<String, Value>> {
    const TYPES: [&str; 7] = ["", "array", "boolean", "integer", "number", "object", "string"];
    let members = custom.source.as_object()?;
    let read = Structural::read(&custom.source);
    let is_typed = !read.any(&|node: &Structural| !TYPES.contains(&node.type_name.as_str()));
    (is_typed && read.is_structural()).then_some(members)
}

fn is_set(members: &Map<String, Value>, key: &str) -> bool {
    members.get(key) == Some(&Value::Bool(true))
}

fn add_resource_fields(schema: &mut Map<String, Value>) {
    let properties = schema.entry("properties").or_insert_with(|| json!({}));
    if let Some(properties) = properties.as_object_mut() {
        properties.insert("apiVersion".to_owned(), json!({"type": "string"}));
        properties.insert("kind".to_owned(), json!({"type": "string"}));
        let metadata = json!({"allOf": [reference(&format!("{META}.ObjectMeta"))]});
        properties.insert("metadata".to_owned(), metadata);
        words::describe("", properties);
    }
}

/// Resources inside of others have type and metadata too, and must say their type.
fn add_embedded_fields(schema: &mut Map<String, Value>) {
    if !is_set(schema, "x-kubernetes-embedded-resource") {
        return;
    }
    add_resource_fields(schema);
    let required = schema.entry("required").or_insert_with(|| json!([]));
    if let Some(required) = required.as_array_mut() {
        for key in ["kind", "apiVersion"] {
            if !required.iter().any(|it| it == key) {
                required.push(json!(key));
            }
        }
    }
}

fn below(schema: &mut Map<String, Value>, change: fn(Map<String, Value>) -> Map<String, Value>) {
    let apply = |value: &mut Value| {
        if let Value::Object(members) = value.take() {
            *value = Value::Object(change(members));
        }
    };
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        properties.values_mut().for_each(apply);
    }
    for key in ["items", "additionalProperties"] {
        if let Some(value) = schema.get_mut(key).filter(|value| value.is_object()) {
            apply(value);
        }
    }
}

fn spine(mut schema: Map<String, Value>) -> Map<String, Value> {
    unfold(&mut schema);
    below(&mut schema, spine);
    add_embedded_fields(&mut schema);
    schema
}

/// Spells out what an int-or-string is, for readers that do not know the extension.
fn unfold(schema: &mut Map<String, Value>) {
    if !is_set(schema, "x-kubernetes-int-or-string") {
        return;
    }
    let either = json!([{"type": "integer"}, {"type": "string"}]);
    let first_all_of = schema.get("allOf").and_then(|all| all.get(0)).and_then(|first| first.get("anyOf"));
    if schema.get("anyOf") == Some(&either) || first_all_of == Some(&either) {
        return;
    }
    if !schema.contains_key("anyOf") {
        schema.insert("anyOf".to_owned(), either);
        return;
    }
    let mut all = vec![json!({"anyOf": either})];
    if let Some(Value::Array(others)) = schema.remove("allOf") {
        all.extend(others);
    }
    schema.insert("allOf".to_owned(), Value::Array(all));
}

fn older_spine(mut schema: Map<String, Value>) -> Map<String, Value> {
    for key in ["allOf", "anyOf", "oneOf", "not", "default"] {
        schema.remove(key);
    }
    let preserves = is_set(&schema, PRESERVE);
    if is_set(&schema, "nullable") {
        for key in ["nullable", "type", "items", "properties"] {
            schema.remove(key);
        }
    }
    if preserves {
        schema.remove("items");
        schema.remove("properties");
    }
    let type_is = |schema: &Map<String, Value>, name: &str| schema.get("type").is_some_and(|it| it == name);
    if type_is(&schema, "array") && !schema.contains_key("items") || preserves && type_is(&schema, "object") {
        schema.remove("type");
    }
    drop_nullable_requirements(&mut schema);
    below(&mut schema, older_spine);
    if !preserves {
        add_embedded_fields(&mut schema);
    }
    schema
}

/// What may be null cannot be asked for.
fn drop_nullable_requirements(schema: &mut Map<String, Value>) {
    let nullable = |value: &Value| value.get("nullable") == Some(&Value::Bool(true));
    let any = schema.get("additionalProperties").is_some_and(nullable);
    let properties = schema.get("properties").and_then(Value::as_object);
    let names: Vec<String> = properties
        .into_iter()
        .flatten()
        .filter(|(_, property)| nullable(property))
        .map(|(name, _)| name.clone())
        .collect();
    let Some(Value::Array(required)) = schema.get_mut("required") else { return };
    required.retain(|it| !any && !names.iter().any(|name| it == name));
    if required.is_empty() {
        schema.remove("required");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{resource::Schema, resource::custom_resources, revision::Revision};

    fn published(source: Value) -> (Value, Value) {
        let definition = json!({
            "metadata": {"name": "foos.g.io"},
            "spec": {"group": "g.io", "scope": "Cluster", "names": {"plural": "foos", "kind": "Foo"},
                     "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": source},
                                   "selectableFields": [{"jsonPath": ".spec.color"}]}]},
            "status": {"conditions": [{"type": "Established", "status": "True"}],
                       "acceptedNames": {"plural": "foos", "singular": "foo", "kind": "Foo", "listKind": "FooList"}},
        });
        let resources = custom_resources(definition.as_object().unwrap(), Revision::ZERO);
        let Schema::Custom(custom) = &resources[0].schema else { panic!("custom") };
        (schema(custom), older_schema(custom))
    }

    const SELECTABLE: &str = "x-kubernetes-selectable-fields";

    #[test]
    fn schemas_are_published_with_what_every_object_has() {
        let (new, old) = published(json!({"type": "object", "required": ["n"], "properties": {
            "n": {"type": "string", "nullable": true, "default": "x"},
            "port": {"x-kubernetes-int-or-string": true, "maxLength": 5},
            "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"a": {"type": "string"}}},
            "template": {"type": "object", "x-kubernetes-embedded-resource": true, "properties": {"spec": {"type": "object"}}},
            "one": {"type": "string", "oneOf": [{"minLength": 1}]},
        }}));
        assert_eq!(new[SELECTABLE], json!([{"fieldPath": "spec.color"}]));
        assert_eq!(new["required"], json!(["n"]));
        let properties = &new["properties"];
        assert_eq!(properties["kind"]["type"], "string");
        assert_eq!(properties["port"]["anyOf"], json!([{"type": "integer"}, {"type": "string"}]));
        assert_eq!(properties["template"]["required"], json!(["kind", "apiVersion"]));
        assert_eq!(
            properties["template"]["properties"]["metadata"]["allOf"],
            json!([{"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}])
        );
        assert_eq!(old.get("required"), None);
        assert_eq!(old["properties"]["n"], json!({}));
        assert_eq!(old["properties"]["port"], json!({"x-kubernetes-int-or-string": true, "maxLength": 5}));
        assert_eq!(old["properties"]["any"], json!({PRESERVE: true}));
        assert_eq!(old["properties"]["one"], json!({"type": "string"}));
    }

    #[test]
    fn what_is_not_structural_is_an_object() {
        for source in [json!({"type": "object", "properties": {"a": {}}}), Value::Null] {
            let (new, old) = published(source);
            assert_eq!(new, json!({"type": "object", SELECTABLE: [{"fieldPath": "spec.color"}]}));
            assert_eq!(old, new);
        }
    }
}
