use serde_json::json;

use super::{
    super::{Duplicates, field_set, validate},
    *,
};

#[test]
fn built_in_types_merge_as_declared() {
    let fields = |name: &str, value: Value| {
        let ty = Schema::builtin().named(name).unwrap();
        validate(ty, &value, Duplicates::Refused).unwrap();
        field_set(ty, &value).unwrap().to_json()
    };
    for (name, value, expected) in [
        ("core/v1.ConfigMap", json!({"data": {"a": "1"}}), r#"{"f:data":{"f:a":{}}}"#),
        // A port's protocol has a default, which is part of its key.
        (
            "core/v1.Container",
            json!({"ports": [{"containerPort": 80}]}),
            r#"{"f:ports":{"k:{\"containerPort\":80,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{}}}}"#,
        ),
        ("core/v1.PodSpec", json!({"nodeSelector": {"a": "b"}}), r#"{"f:nodeSelector":{}}"#),
        ("meta/v1.ObjectMeta", json!({"finalizers": ["x"]}), r#"{"f:finalizers":{"v:\"x\"":{}}}"#),
        ("apps/v1.DeploymentSpec", json!({"selector": {"matchLabels": {"a": "b"}}}), r#"{"f:selector":{}}"#),
        ("core/v1.ResourceRequirements", json!({"limits": {"cpu": 1}}), r#"{"f:limits":{"f:cpu":{}}}"#),
    ] {
        assert_eq!(fields(name, value), expected, "{name}");
    }
}

#[test]
fn custom_kinds_merge_as_their_schema_says() {
    let openapi = json!({"type": "object", "properties": {
        "metadata": {"type": "object"},
        "spec": {"type": "object", "properties": {
            "set": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
            "keyed": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["id"],
                "items": {"type": "object", "properties": {"id": {"type": "integer", "default": 7}, "v": {"type": "string"}}}},
            "whole": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": {"type": "string"}},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "port": {"x-kubernetes-int-or-string": true},
            "embedded": {"type": "object", "x-kubernetes-embedded-resource": true},
        }},
    }});
    let mut builder = SchemaBuilder::new();
    let id = builder.custom_resource(&openapi, false).unwrap();
    let schema = builder.build();
    let value = json!({
        "apiVersion": "e.com/v1", "kind": "E", "metadata": {"labels": {"a": "b"}, "finalizers": ["f"]},
        "spec": {
            "set": ["a"], "keyed": [{"v": "x"}], "whole": {"a": "b"}, "free": {"a": {"b": [1]}}, "port": "http",
            "embedded": {"metadata": {"finalizers": ["f"]}},
        },
    });
    validate(schema.get(id), &value, Duplicates::Refused).unwrap();
    assert_eq!(
        field_set(schema.get(id), &value).unwrap().to_value(),
        json!({
            "f:apiVersion": {}, "f:kind": {},
            "f:metadata": {"f:labels": {"f:a": {}}, "f:finalizers": {"v:\"f\"": {}}},
            "f:spec": {
                "f:set": {"v:\"a\"": {}}, "f:keyed": {"k:{\"id\":7}": {".": {}, "f:v": {}}}, "f:whole": {},
                "f:free": {"f:a": {".": {}, "f:b": {}}}, "f:port": {},
                "f:embedded": {"f:metadata": {"f:finalizers": {"v:\"f\"": {}}}},
            },
        })
    );
    let unknown = json!({"spec": {"other": 1}});
    let error = validate(schema.get(id), &unknown, Duplicates::Refused).unwrap_err();
    assert_eq!(error.to_string(), ".spec.other: field not declared in schema");
}

#[test]
fn schemas_that_cannot_be_used_are_refused() {
    for (schema, why) in [
        (json!({"type": "text"}), "unrecognized type: 'text'"),
        (json!({"type": "array"}), "`items` must be specified on arrays"),
        (
            json!({"type": "array", "items": [{}]}),
            "structural schema arrays must have exactly one member subtype",
        ),
        (json!({"type": "array", "items": {}, "x-kubernetes-list-type": "map"}), "missing map keys"),
        (json!({"type": "array", "items": {}, "x-kubernetes-list-type": "bag"}), "unknown list type bag"),
        (json!({"type": "object", "x-kubernetes-map-type": "bag"}), "unknown map type bag"),
    ] {
        let schema = json!({"type": "object", "properties": {"a": schema}});
        let error = SchemaBuilder::new().custom_resource(&schema, false).unwrap_err();
        assert_eq!(error.to_string(), why);
    }
}
