//! What rules in CEL know of the values of a schema.

use std::{collections::BTreeMap, sync::Arc};

use cel::{Decl, ListType, MAX_REQUEST_BYTES, ObjectType, Shape};

use super::Structural;

impl Structural {
    /// The declaration of values of this schema; `None` for what rules cannot use. At the root of a resource, type and
    /// name are known even if the schema says nothing of them.
    pub fn declaration(&self, is_resource: bool) -> Option<Decl> {
        declare(self, is_resource, "selfType", None)
    }

    /// The declaration of a resource of which the metadata is known too, also of resources in it.
    pub fn declaration_with(&self, name: &str, metadata: &Arc<Decl>) -> Option<Decl> {
        declare(self, true, name, Some(metadata))
    }

    /// Whether there is a declaration.
    pub fn is_declarable(&self) -> bool {
        if self.int_or_string {
            return true;
        }
        match self.type_name.as_str() {
            "array" => self.items.as_deref().is_some_and(Structural::is_declarable),
            "object" => self.additional_schema().is_none_or(Structural::is_declarable),
            "string" | "boolean" | "number" | "integer" => true,
            _ => false,
        }
    }
}

fn bound(limit: i64) -> u64 {
    u64::try_from(limit).unwrap_or(0)
}

fn declare(schema: &Structural, is_resource: bool, name: &str, metadata: Option<&Arc<Decl>>) -> Option<Decl> {
    let declared = if schema.int_or_string {
        longest(Decl::new(Shape::IntOrString), schema)
    } else {
        match schema.type_name.as_str() {
            "array" => list(schema, name, metadata)?,
            "object" => object(schema, is_resource, name, metadata)?,
            "string" => text(schema),
            "boolean" => Decl::new(Shape::Bool),
            "number" => Decl::new(Shape::Double),
            "integer" => Decl::new(Shape::Int),
            _ => return None,
        }
    };
    Some(declared.nullable(schema.nullable))
}

/// A character takes up to four bytes.
fn longest(decl: Decl, schema: &Structural) -> Decl {
    match schema.max_length {
        Some(max) => decl.max_elements(bound(max).saturating_mul(4)),
        None => decl,
    }
}

fn list(schema: &Structural, name: &str, metadata: Option<&Arc<Decl>>) -> Option<Decl> {
    let items = schema.items.as_deref()?;
    let items = Arc::new(declare(items, items.embedded_resource, &format!("{name}.@items"), metadata)?);
    let kind = match schema.list_type.as_deref() {
        Some("set") => ListType::Set,
        Some("map") => ListType::Map(schema.list_map_keys.clone().into()),
        _ => ListType::Atomic,
    };
    let decl = Decl::new(Shape::List(items, kind));
    Some(match schema.max_items {
        Some(max) => decl.max_elements(bound(max)),
        None => decl,
    })
}

fn object(schema: &Structural, is_resource: bool, name: &str, metadata: Option<&Arc<Decl>>) -> Option<Decl> {
    if let Some(values) = schema.additional_schema() {
        let values =
            Arc::new(declare(values, values.embedded_resource, &format!("{name}.@values"), metadata)?);
        let decl = Decl::new(Shape::Map(values));
        return Some(match schema.max_properties {
            Some(max) => decl.max_elements(bound(max)),
            None => decl,
        });
    }
    let mut fields: BTreeMap<String, Arc<Decl>> = BTreeMap::new();
    // `{}`
    let mut min_size: u64 = 2;
    let resource = is_resource.then(|| resource_fields(schema)).flatten();
    for (key, property) in resource.as_ref().unwrap_or(&schema.properties) {
        match declare(property, property.embedded_resource, &format!("{name}.{key}"), metadata) {
            Some(field) => {
                if schema.required.contains(key) && property.default.is_none() {
                    min_size = min_size.saturating_add(key.len() as u64 + field.min_size + 4);
                }
                fields.insert(key.clone(), Arc::new(field));
            }
            // Nothing is known of it, but two objects may differ in it.
            None if property.preserves_unknown_fields() => {
                fields.insert(key.clone(), Arc::new(Decl::new(Shape::Preserved).nullable(property.nullable)));
            }
            None => {}
        }
    }
    if let Some(metadata) = metadata.filter(|_| is_resource) {
        fields.insert("metadata".to_owned(), metadata.clone());
    }
    Some(Decl::new(Shape::Object(ObjectType::new(name, fields))).min_size(min_size))
}

/// The properties of a resource with those that every resource has; `None` if the schema has them all itself.
fn resource_fields(schema: &Structural) -> Option<BTreeMap<String, Structural>> {
    let of_type = |schema: Option<&Structural>, name: &str| schema.is_some_and(|it| it.type_name == name);
    let metadata = schema.properties.get("metadata");
    let name = |key: &str| metadata.and_then(|metadata| metadata.properties.get(key));
    let is_complete = of_type(schema.properties.get("kind"), "string")
        && of_type(schema.properties.get("apiVersion"), "string")
        && of_type(metadata, "object")
        && of_type(name("name"), "string")
        && of_type(name("generateName"), "string");
    if is_complete {
        return None;
    }
    let typed = |name: &str| Structural { type_name: name.to_owned(), ..Structural::default() };
    let mut metadata = typed("object");
    for key in ["name", "generateName"] {
        metadata.properties.insert(key.to_owned(), typed("string"));
    }
    let mut fields = schema.properties.clone();
    fields.insert("kind".to_owned(), typed("string"));
    fields.insert("apiVersion".to_owned(), typed("string"));
    fields.insert("metadata".to_owned(), metadata);
    Some(fields)
}

fn text(schema: &Structural) -> Decl {
    match schema.format.as_str() {
        "byte" => {
            let decl = Decl::new(Shape::Bytes);
            match schema.max_length {
                Some(max) => decl.max_elements(bound(max)),
                None => decl,
            }
        }
        "duration" => Decl::new(Shape::Duration),
        "date" => Decl::new(Shape::Date),
        "date-time" => Decl::new(Shape::DateTime),
        _ => {
            let decl = Decl::new(Shape::String);
            if schema.max_length.is_none() && !schema.enumeration.is_empty() {
                let lengths = schema.enumeration.iter().filter_map(|value| value.as_str().map(str::len));
                return decl.max_elements(lengths.max().unwrap_or(0) as u64);
            }
            longest(decl, schema)
        }
    }
}

/// How often values of at least `min_size` bytes fit into one request.
pub fn max_cardinality(min_size: u64) -> u64 {
    MAX_REQUEST_BYTES / (min_size + 1)
}
