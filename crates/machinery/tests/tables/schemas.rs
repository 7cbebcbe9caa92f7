//! Upstream's merge schemas, built with our builder.

use std::collections::BTreeMap;

use machinery::apply::{Atom, ListAtom, ListMerge, MapField, Scalar, Schema, SchemaBuilder, TypeId, TypeRef};
use serde_json::Value;

/// A schema as recorded, and all types that calls refer to.
pub struct Recorded {
    schema: Schema,
    types: BTreeMap<String, TypeId>,
}

/// The schemas of one process, by number.
pub struct Schemas(BTreeMap<u64, Recorded>);

pub fn read(calls: &[Value]) -> Schemas {
    let mut references: BTreeMap<u64, Vec<&Value>> = BTreeMap::new();
    for call in calls {
        let conversions = call["conversions"].as_array().into_iter().flatten();
        for place in conversions.chain([call]) {
            if let (Some(schema), reference @ Value::Object(_)) = (place["schema"].as_u64(), &place["type"]) {
                references.entry(schema).or_default().push(reference);
            }
        }
    }
    let schemas = calls.iter().filter(|call| call["call"] == "schema").map(|call| {
        let id = call["id"].as_u64().unwrap();
        let references = references.remove(&id).unwrap_or_default();
        (id, build(&call["types"], &references))
    });
    Schemas(schemas.collect())
}

impl Schemas {
    pub fn get(&self, place: &Value) -> Option<TypeRef<'_>> {
        let recorded = self.0.get(&place["schema"].as_u64()?)?;
        let id = recorded.types.get(&place["type"].to_string())?;
        Some(recorded.schema.get(*id))
    }
}

fn build(types: &Value, references: &[&Value]) -> Recorded {
    let mut builder = SchemaBuilder::new();
    for (name, definition) in types.as_object().unwrap() {
        let atom = atom(&mut builder, definition);
        let id = named(&mut builder, name);
        if !matches!(name.as_str(), "__untyped_atomic_" | "__untyped_deduced_") {
            builder.define(id, atom);
        }
    }
    let ids: BTreeMap<String, TypeId> = references
        .iter()
        .map(|reference| (reference.to_string(), type_of(&mut builder, reference).unwrap()))
        .collect();
    Recorded { schema: builder.build(), types: ids }
}

fn named(builder: &mut SchemaBuilder, name: &str) -> TypeId {
    match name {
        "__untyped_atomic_" => builder.untyped(),
        "__untyped_deduced_" => builder.deduced(),
        name => builder.declare(name),
    }
}

fn type_of(builder: &mut SchemaBuilder, reference: &Value) -> Option<TypeId> {
    let id = match (reference["named"].as_str(), &reference["inlined"]) {
        (Some(name), _) => named(builder, name),
        (None, inlined @ Value::Object(_)) => {
            let atom = atom(builder, inlined);
            builder.add(atom)
        }
        _ => return None,
    };
    Some(match reference["relationship"].as_str() {
        Some(relationship) => builder.with_atomic(id, relationship == "atomic"),
        None => id,
    })
}

fn atom(builder: &mut SchemaBuilder, definition: &Value) -> Atom {
    let scalar = definition["scalar"].as_str().map(|scalar| match scalar {
        "numeric" => Scalar::Numeric,
        "string" => Scalar::String,
        "boolean" => Scalar::Boolean,
        _ => Scalar::Untyped,
    });
    let list = definition.get("list").map(|list| {
        let keys: Vec<_> = list["keys"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let merge = match list["relationship"].as_str() {
            Some("atomic") => ListMerge::Atomic,
            _ if keys.is_empty() => ListMerge::Set,
            _ => ListMerge::Keys(keys.into_iter().map(Into::into).collect()),
        };
        let element = type_of(builder, &list["element"]).unwrap_or(builder.untyped());
        ListAtom { element, merge }
    });
    let map = definition.get("map").map(|map| {
        let mut fields = Vec::new();
        for field in map["fields"].as_array().into_iter().flatten() {
            let ty = type_of(builder, &field["type"]).unwrap_or(builder.untyped());
            let default = Some(field["default"].clone()).filter(|default| !default.is_null());
            fields.push(MapField { name: field["name"].as_str().unwrap_or_default().into(), ty, default });
        }
        let element = type_of(builder, &map["element"]);
        builder.object(fields, element, map["relationship"] == "atomic")
    });
    Atom { scalar, list, map }
}
