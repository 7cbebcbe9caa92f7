//! Values of a definition as upstream prints them in messages: Go's internal types, in the order of their fields,
//! without the names that JSON gives them.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use super::{Definition, Version};
use crate::{
    gotext,
    structural::{Additional, Dependency, Rule, Structural},
};

/// Writes the fields of a Go struct.
#[derive(Default)]
struct Struct(Vec<String>);

impl Struct {
    fn field(&mut self, name: &str, value: &(impl Serialize + ?Sized)) -> &mut Self {
        self.text(name, gotext::json(value))
    }

    fn text(&mut self, name: &str, value: String) -> &mut Self {
        self.0.push(format!("\"{name}\":{value}"));
        self
    }

    fn finish(&self) -> String {
        format!("{{{}}}", self.0.join(","))
    }
}

fn null() -> String {
    "null".to_owned()
}

/// A slice: nil where it is empty.
fn list<T>(items: &[T], show: impl Fn(&T) -> String) -> String {
    if items.is_empty() {
        return null();
    }
    format!("[{}]", items.iter().map(show).collect::<Vec<_>>().join(","))
}

fn map<'a, T: 'a>(
    items: impl ExactSizeIterator<Item = (&'a String, &'a T)>,
    show: impl Fn(&T) -> String,
) -> String {
    if items.len() == 0 {
        return null();
    }
    let members: Vec<String> =
        items.map(|(key, value)| format!("{}:{}", gotext::json(key), show(value))).collect();
    format!("{{{}}}", members.join(","))
}

fn additional(value: Option<&Additional>) -> String {
    let (allows, schema) = match value {
        None => return null(),
        Some(Additional::Allowed(allowed)) => (*allowed, null()),
        Some(Additional::Schema(schema)) => (true, self::schema(schema)),
    };
    Struct::default().field("Allows", &allows).text("Schema", schema).finish()
}

/// An `apiextensions.JSONSchemaProps`.
pub fn schema(node: &Structural) -> String {
    let unsupported = node.unsupported.as_deref().cloned().unwrap_or_default();
    let mut out = Struct::default();
    out.field("ID", &unsupported.id)
        .field("Schema", &unsupported.schema)
        .field("Ref", &unsupported.reference)
        .field("Description", &node.description)
        .field("Type", &node.type_name)
        .field("Nullable", &node.nullable)
        .field("Format", &node.format)
        .field("Title", &node.title)
        .field("Default", &node.default)
        .field("Maximum", &node.maximum)
        .field("ExclusiveMaximum", &node.exclusive_maximum)
        .field("Minimum", &node.minimum)
        .field("ExclusiveMinimum", &node.exclusive_minimum)
        .field("MaxLength", &node.max_length)
        .field("MinLength", &node.min_length)
        .field("Pattern", node.pattern.as_ref().map_or("", |pattern| pattern.text.as_str()))
        .field("MaxItems", &node.max_items)
        .field("MinItems", &node.min_items)
        .field("UniqueItems", &node.unique_items)
        .field("MultipleOf", &node.multiple_of)
        .text("Enum", list(&node.enumeration, |value: &Value| gotext::json(value)))
        .field("MaxProperties", &node.max_properties)
        .field("MinProperties", &node.min_properties)
        .text("Required", list(&node.required, gotext::json))
        .text("Items", items(node, &unsupported.item_schemas))
        .text("AllOf", list(&node.all_of, schema))
        .text("OneOf", list(&node.one_of, schema))
        .text("AnyOf", list(&node.any_of, schema))
        .text("Not", node.not.as_deref().map_or_else(null, schema))
        .text("Properties", map(node.properties.iter(), schema))
        .text("AdditionalProperties", additional(node.additional.as_ref()))
        .text("PatternProperties", map(unsupported.pattern_properties.iter(), schema))
        .text("Dependencies", dependencies(unsupported.dependencies.as_ref()))
        .text("AdditionalItems", additional(unsupported.additional_items.as_ref()))
        .text("Definitions", map(unsupported.definitions.iter(), schema))
        .text("ExternalDocs", external_docs(node))
        .field("Example", &node.example)
        .field("XPreserveUnknownFields", &node.preserve_unknown_fields)
        .field("XEmbeddedResource", &node.embedded_resource)
        .field("XIntOrString", &node.int_or_string)
        .text("XListMapKeys", list(&node.list_map_keys, gotext::json))
        .field("XListType", &node.list_type)
        .field("XMapType", &node.map_type)
        .text("XValidations", list(&node.rules, rule));
    out.finish()
}

fn dependencies(all: Option<&BTreeMap<String, Dependency>>) -> String {
    let Some(all) = all else { return null() };
    let show = |dependency: &Dependency| {
        let (schema, names) = match dependency {
            Dependency::Schema(schema) => (self::schema(schema), null()),
            Dependency::Properties(names) => (null(), gotext::json(names)),
        };
        Struct::default().text("Schema", schema).text("Property", names).finish()
    };
    map(all.iter(), show)
}

/// An `apiextensions.JSONSchemaPropsOrArray`.
pub fn items(node: &Structural, schemas: &[Structural]) -> String {
    if node.items.is_none() && schemas.is_empty() {
        return null();
    }
    let single = node.items.as_deref().map_or_else(null, schema);
    Struct::default().text("Schema", single).text("JSONSchemas", list(schemas, schema)).finish()
}

fn external_docs(node: &Structural) -> String {
    let Some((description, url)) = &node.external_docs else { return null() };
    Struct::default().field("Description", description).field("URL", url).finish()
}

/// An `apiextensions.ValidationRule`.
pub fn rule(rule: &Rule) -> String {
    Struct::default()
        .field("Rule", &rule.rule)
        .field("Message", &rule.message)
        .field("MessageExpression", &rule.message_expression)
        .field("Reason", &rule.reason)
        .field("FieldPath", &rule.field_path)
        .field("OptionalOldSelf", &rule.optional_old_self)
        .finish()
}

/// `spec.versions`, where what all versions share stands elsewhere.
pub fn versions(definition: &Definition, shared: &super::validate::Shared) -> String {
    if definition.versions.is_empty() {
        return null();
    }
    let shown: Vec<String> = definition.versions.iter().map(|it| version(it, shared)).collect();
    format!("[{}]", shown.join(","))
}

fn version(version: &Version, shared: &super::validate::Shared) -> String {
    let schema = version.schema.as_ref().filter(|_| !shared.schema).map(|schema| {
        Struct::default().text("OpenAPIV3Schema", schema.as_ref().map_or_else(null, self::schema)).finish()
    });
    let subresources = version.subresources.as_ref().filter(|_| !shared.subresources).map(|it| {
        let scale = it.scale.as_ref().map(|scale| {
            Struct::default()
                .field("SpecReplicasPath", &scale.spec_replicas)
                .field("StatusReplicasPath", &scale.status_replicas)
                .field("LabelSelectorPath", &scale.label_selector)
                .finish()
        });
        let status = if it.status { "{}".to_owned() } else { null() };
        Struct::default().text("Status", status).text("Scale", scale.unwrap_or_else(null)).finish()
    });
    let columns = if shared.columns { &[] } else { version.columns.as_slice() };
    let selectable = if shared.selectable { &[] } else { version.selectable.as_slice() };
    Struct::default()
        .field("Name", &version.name)
        .field("Served", &version.served)
        .field("Storage", &version.storage)
        .field("Deprecated", &version.deprecated)
        .field("DeprecationWarning", &version.deprecation_warning)
        .text("Schema", schema.unwrap_or_else(null))
        .text("Subresources", subresources.unwrap_or_else(null))
        .text(
            "AdditionalPrinterColumns",
            list(columns, |column| {
                Struct::default()
                    .field("Name", &column.name)
                    .field("Type", &column.type_name)
                    .field("Format", &column.format)
                    .field("Description", &column.description)
                    .field("Priority", &column.priority)
                    .field("JSONPath", &column.json_path)
                    .finish()
            }),
        )
        .text("SelectableFields", list(selectable, |path| Struct::default().field("JSONPath", path).finish()))
        .finish()
}
