//! OpenAPI v3: what kubectl reads to validate, explain and patch.
//!
//! One document per group version. Its components are the table's messages; its paths say which verbs a resource
//! has, of which kind it is, and that the server checks fields (`fieldValidation`). The table holds no descriptions;
//! only what every object has is described.

mod custom;
pub mod gnostic;
mod paths;
pub mod v2;
mod words;

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::{
    resource::{Resource, Schema, Subresource},
    schema::{Field, Message, MessageId, Type, Types},
};

const REFERENCE: &str = "#/components/schemas/";
const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";
const GROUP_VERSION_KIND: &str = "x-kubernetes-group-version-kind";

/// The document of one group version: all of `resources` are of it.
pub fn document(resources: &[&Resource]) -> Value {
    let types = Types::builtin();
    let mut roots: Vec<&str> =
        vec!["meta/v1.Status", "meta/v1.DeleteOptions", "meta/v1.APIResourceList", "meta/v1.WatchEvent"];
    let mut extra = Map::new();
    let list_names: Vec<String> =
        resources.iter().map(|resource| format!("{}List", resource.row.type_name)).collect();
    for (resource, list_name) in resources.iter().zip(&list_names) {
        match &resource.schema {
            Schema::Typed(message) => roots.push(message.name),
            Schema::Custom(custom) | Schema::Own(custom) => {
                extra.insert(schema_name(resource), custom::schema(custom));
            }
            Schema::Untyped => {
                extra.insert(schema_name(resource), untyped_object());
            }
        }
        if types.get(list_name).is_some() {
            roots.push(list_name);
        } else if resource.verb_allowed("list") {
            roots.push("meta/v1.ListMeta");
            extra.insert(list_schema_name(resource), untyped_list(resource));
        }
        for subresource in &resource.subresources {
            roots.extend(other_kind(types, resource, subresource).map(|message| message.name));
        }
    }
    if extra.keys().next().is_some() {
        roots.push("meta/v1.ObjectMeta");
    }
    let mut schemas = match components_for(types, &roots) {
        Value::Object(schemas) => schemas,
        _ => Map::new(),
    };
    schemas.extend(extra);
    schemas.insert(format!("{META}.Patch"), json!({"type": "object"}));
    for resource in resources {
        mark_kind(&mut schemas, &schema_name(resource), resource, &resource.kind);
        mark_kind(&mut schemas, &list_schema_name(resource), resource, &resource.list_kind);
    }
    json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "unversioned"},
        "paths": paths::paths(types, resources),
        "components": {
            "schemas": schemas,
            "securitySchemes": {"BearerToken": {"type": "apiKey", "in": "header", "name": "authorization"}},
        },
    })
}

/// The schemas of messages, by the table's names, and of all that they refer to.
pub fn components_for(types: &Types, roots: &[&str]) -> Value {
    let mut components = Components { types, schemas: Map::new(), seen: BTreeSet::new() };
    for message in roots.iter().filter_map(|name| types.get(name)) {
        components.message(message);
    }
    for kind in ["Status", "DeleteOptions", "WatchEvent", "APIResourceList"] {
        if let Some(Value::Object(schema)) = components.schemas.get_mut(&format!("{META}.{kind}")) {
            schema
                .insert(GROUP_VERSION_KIND.to_owned(), json!([{"group": "", "kind": kind, "version": "v1"}]));
        }
    }
    Value::Object(components.schemas)
}

fn mark_kind(schemas: &mut Map<String, Value>, name: &str, resource: &Resource, kind: &str) {
    if let Some(Value::Object(schema)) = schemas.get_mut(name) {
        let kinds = json!([{"group": resource.group, "kind": kind, "version": resource.version}]);
        schema.insert(GROUP_VERSION_KIND.to_owned(), kinds);
    }
}

/// `io.k8s.api.core.v1.ConfigMap`: the name of a message's schema.
pub fn component_name(table_name: &str) -> String {
    let (package, name) = table_name.rsplit_once('.').unwrap_or(("", table_name));
    let dotted = package.replace('/', ".");
    match package.split('/').next() {
        Some("meta") => format!("io.k8s.apimachinery.pkg.apis.{dotted}.{name}"),
        Some("apiextensions") => format!("io.k8s.apiextensions-apiserver.pkg.apis.{dotted}.{name}"),
        Some("apiregistration") => format!("io.k8s.kube-aggregator.pkg.apis.{dotted}.{name}"),
        _ => format!("io.k8s.api.{dotted}.{name}"),
    }
}

/// The name of a resource's schema; kinds without a message are named after their group, as custom resources are.
fn schema_name(resource: &Resource) -> String {
    if let Schema::Typed(message) = &resource.schema {
        return component_name(message.name);
    }
    let group: Vec<&str> = resource.group.split('.').rev().collect();
    format!("{}.{}.{}", group.join("."), resource.version, resource.kind)
}

fn list_schema_name(resource: &Resource) -> String {
    let typed = format!("{}List", resource.row.type_name);
    if Types::builtin().get(&typed).is_some() {
        component_name(&typed)
    } else {
        let group: Vec<&str> = resource.group.split('.').rev().collect();
        format!("{}.{}.{}", group.join("."), resource.version, resource.list_kind)
    }
}

/// The type of what is sent and answered at a path below an object, unless it is the object's own.
fn other_kind<'t>(types: &'t Types, resource: &Resource, subresource: &Subresource) -> Option<&'t Message> {
    let (group, version, kind) = resource.kind_at(subresource);
    let own = (resource.group.as_str(), resource.version.as_str(), resource.kind.as_str());
    if (group, version, kind) == own { None } else { types.get_kind(group, version, kind) }
}

fn untyped_object() -> Value {
    json!({
        "type": "object",
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"allOf": [reference(&format!("{META}.ObjectMeta"))]},
        },
        "x-kubernetes-preserve-unknown-fields": true,
    })
}

fn untyped_list(resource: &Resource) -> Value {
    let mut list = json!({
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "items": {"type": "array", "items": reference(&schema_name(resource))},
            "metadata": {"allOf": [reference(&format!("{META}.ListMeta"))]},
        },
    });
    if let (Some(custom), Some(list)) = (resource.structural(), list.as_object_mut()) {
        custom::mark_selectable(list, custom);
    }
    list
}

fn reference(name: &str) -> Value {
    json!({"$ref": format!("{REFERENCE}{name}")})
}

struct Components<'t> {
    types: &'t Types,
    schemas: Map<String, Value>,
    seen: BTreeSet<&'static str>,
}

impl Components<'_> {
    fn message(&mut self, message: &Message) {
        if !self.seen.insert(message.name) {
            return;
        }
        let types = self.types;
        let mut properties = Map::new();
        for field in types.fields(message) {
            properties.insert(field.name.to_owned(), self.property(field));
        }
        words::describe(message.name, &mut properties);
        let mut schema = Map::from_iter([("type".to_owned(), json!("object"))]);
        let required = required_fields(types, message);
        if !required.is_empty() {
            schema.insert("required".to_owned(), json!(required));
        }
        if !properties.is_empty() {
            schema.insert("properties".to_owned(), Value::Object(properties));
        }
        if message.atomic {
            schema.insert("x-kubernetes-map-type".to_owned(), json!("atomic"));
        }
        self.schemas.insert(component_name(message.name), Value::Object(schema));
    }

    fn property(&mut self, field: &Field) -> Value {
        let mut schema = self.value(&field.ty, field.go_type);
        if let Some(name) = schema.remove("$ref") {
            schema.insert("allOf".to_owned(), json!([{"$ref": name}]));
        }
        let default = match field.default {
            Some(default) => serde_json::from_str(default).ok(),
            None if field.pointer => None,
            None => zero(&field.ty).filter(|_| !field.omit_empty || matches!(field.ty, Type::Message(_))),
        };
        schema.extend(default.map(|default| ("default".to_owned(), default)));
        let values = self.types.enum_values(field);
        if !values.is_empty() && field.ty == Type::String {
            schema.insert("enum".to_owned(), json!(values));
        }
        let extensions = [
            ("x-kubernetes-list-type", field.list_type.map(|list| json!(list.as_str()))),
            (
                "x-kubernetes-list-map-keys",
                Some(json!(field.map_keys)).filter(|_| !field.map_keys.is_empty()),
            ),
            ("x-kubernetes-map-type", field.map_type.map(|map| json!(map))),
            ("x-kubernetes-patch-merge-key", field.patch_merge_key.map(|key| json!(key))),
            (
                "x-kubernetes-patch-strategy",
                Some(json!(field.patch_strategy.text)).filter(|_| !field.patch_strategy.text.is_empty()),
            ),
        ];
        for (name, value) in extensions {
            schema.extend(value.map(|value| (name.to_owned(), value)));
        }
        Value::Object(schema)
    }

    fn value(&mut self, ty: &Type, go_type: &'static str) -> Map<String, Value> {
        let schema = match ty {
            Type::String => json!({"type": "string"}),
            Type::Bytes => json!({"type": "string", "format": "byte"}),
            Type::Bool => json!({"type": "boolean"}),
            Type::Int32 => json!({"type": "integer", "format": "int32"}),
            Type::Int64 => json!({"type": "integer", "format": "int64"}),
            Type::Float64 => json!({"type": "number", "format": "double"}),
            Type::List(element) | Type::Wrapped(element) => {
                let items = self.element(
                    element,
                    self.types.element_of(go_type.trim_start_matches('*')).unwrap_or(go_type),
                );
                json!({"type": "array", "items": items})
            }
            Type::Map(element) => {
                let values = self.element(
                    element,
                    self.types.element_of(go_type.trim_start_matches('*')).unwrap_or(go_type),
                );
                json!({"type": "object", "additionalProperties": values})
            }
            Type::Message(id) => self.message_reference(*id),
            _ => self.special(ty, go_type),
        };
        match schema {
            Value::Object(schema) => schema,
            _ => Map::new(),
        }
    }

    /// An item of a list or map; it has a default, since it cannot be left out.
    fn element(&mut self, ty: &Type, go_type: &'static str) -> Value {
        let mut schema = self.value(ty, go_type);
        if let Some(default) = zero(ty) {
            if let Some(name) = schema.remove("$ref") {
                schema.insert("allOf".to_owned(), json!([{"$ref": name}]));
            }
            schema.insert("default".to_owned(), default);
        }
        Value::Object(schema)
    }

    fn message_reference(&mut self, id: MessageId) -> Value {
        let message = self.types.message(id);
        self.message(message);
        reference(&component_name(message.name))
    }

    /// Types with a JSON form of their own have a schema of their own.
    fn special(&mut self, ty: &Type, go_type: &str) -> Value {
        let go_type = go_type.trim_start_matches('*');
        let (name, schema) = match ty {
            Type::Time | Type::MicroTime => (
                component_name(&format!("meta/v1.{go_type}")),
                json!({"type": "string", "format": "date-time"}),
            ),
            Type::Duration => (component_name("meta/v1.Duration"), json!({"type": "string"})),
            Type::Quantity => (
                "io.k8s.apimachinery.pkg.api.resource.Quantity".to_owned(),
                json!({"oneOf": [{"type": "string"}, {"type": "number"}]}),
            ),
            Type::IntOrString => (
                "io.k8s.apimachinery.pkg.util.intstr.IntOrString".to_owned(),
                json!({"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]}),
            ),
            Type::Raw => match go_type {
                "FieldsV1" => (component_name("meta/v1.FieldsV1"), json!({"type": "object"})),
                "JSON" => (component_name("apiextensions/v1.JSON"), json!({})),
                "Any" => return json!({"type": "object"}),
                _ => ("io.k8s.apimachinery.pkg.runtime.RawExtension".to_owned(), json!({"type": "object"})),
            },
            Type::SchemaOrBool(id) | Type::SchemaOrArray(id) | Type::SchemaOrStrings(id) => {
                self.message(self.types.message(*id));
                let name = match ty {
                    Type::SchemaOrBool(_) => "apiextensions/v1.JSONSchemaPropsOrBool",
                    Type::SchemaOrArray(_) => "apiextensions/v1.JSONSchemaPropsOrArray",
                    _ => "apiextensions/v1.JSONSchemaPropsOrStringArray",
                };
                (component_name(name), json!({}))
            }
            _ => return json!({}),
        };
        let reference = reference(&name);
        self.schemas.entry(name).or_insert(schema);
        reference
    }
}

/// In the order of declaration, those of inlined messages in their place.
fn required_fields(types: &Types, message: &Message) -> Vec<&'static str> {
    let mut found = Vec::new();
    for field in &message.fields {
        match field.ty {
            Type::Message(id) if field.inline => found.extend(required_fields(types, types.message(id))),
            _ if field.required => found.push(field.name),
            _ => {}
        }
    }
    found
}

/// What a value that cannot be left out is when it is: scalars and messages have such a thing.
fn zero(ty: &Type) -> Option<Value> {
    match ty {
        Type::String => Some(json!("")),
        Type::Bool => Some(json!(false)),
        Type::Int32 | Type::Int64 | Type::Float64 => Some(json!(0)),
        Type::Message(_) => Some(json!({})),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
