//! The merge schema of a custom kind, from the `openAPIV3Schema` of one of its versions.

use serde_json::{Map, Value};

use super::{Atom, ListAtom, ListMerge, MapAtom, MapField, Scalar, SchemaBuilder, TypeId};
use crate::{gojson, schema::Types};

/// Why a schema cannot be used; upstream then merges objects of the kind without one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct StructuralError(pub String);

type Built<T> = Result<T, StructuralError>;

impl SchemaBuilder {
    /// The type of a custom kind. `schema` is JSON Schema as a CustomResourceDefinition has it; `apiVersion`, `kind`
    /// and `metadata` are what they are for every kind, whatever it says about them.
    pub fn custom_resource(&mut self, schema: &Value, preserve_unknown: bool) -> Built<TypeId> {
        Walk { schema, preserve_unknown, is_object: true, depth: 0 }.add(self)
    }
}

#[derive(Clone, Copy)]
struct Walk<'v> {
    schema: &'v Value,
    preserve_unknown: bool,
    /// Has `apiVersion`, `kind` and `metadata`.
    is_object: bool,
    depth: usize,
}

impl<'v> Walk<'v> {
    fn below(&self, schema: &'v Value) -> Self {
        Self { schema, is_object: false, depth: self.depth + 1, ..*self }
    }

    fn add(mut self, builder: &mut SchemaBuilder) -> Built<TypeId> {
        if self.depth > gojson::MAX_DEPTH {
            return Err(StructuralError("too many levels".to_owned()));
        }
        // It goes on for all that is below.
        self.preserve_unknown |= self.is_true("x-kubernetes-preserve-unknown-fields");
        self.is_object |= self.is_true("x-kubernetes-embedded-resource");
        let atom = match self.text("type").unwrap_or_default() {
            "" => Atom {
                scalar: Some(Scalar::Untyped),
                list: Some(self.list(builder)?),
                map: Some(self.map(builder)?),
            },
            "object" => Atom { map: Some(self.map(builder)?), ..Default::default() },
            "array" => Atom { list: Some(self.list(builder)?), ..Default::default() },
            "integer" | "number" => scalar(Scalar::Numeric),
            "boolean" => scalar(Scalar::Boolean),
            "string" => match self.text("format") {
                None | Some("" | "byte") => scalar(Scalar::String),
                Some(_) => scalar(Scalar::Untyped),
            },
            other => return Err(StructuralError(format!("unrecognized type: '{other}'"))),
        };
        Ok(builder.add(atom))
    }

    fn text(&self, key: &str) -> Option<&'v str> {
        self.schema.get(key).and_then(Value::as_str)
    }

    fn is_true(&self, extension: &str) -> bool {
        self.schema.get(extension) == Some(&Value::Bool(true))
    }

    fn map(&self, builder: &mut SchemaBuilder) -> Built<MapAtom> {
        let none = Map::new();
        let properties = self.schema.get("properties").and_then(Value::as_object).unwrap_or(&none);
        let mut fields = if self.is_object { object_fields(builder) } else { Vec::new() };
        for (name, property) in properties {
            if self.is_object && matches!(name.as_str(), "apiVersion" | "kind" | "metadata") {
                continue;
            }
            let ty = self.below(property).add(builder)?;
            fields.push(MapField {
                name: name.as_str().into(),
                ty,
                default: property.get("default").cloned(),
            });
        }
        let element = match self.schema.get("additionalProperties") {
            None if self.preserve_unknown || fields.is_empty() => Some(builder.deduced()),
            None | Some(Value::Bool(false)) => None,
            Some(Value::Bool(true)) => Some(builder.deduced()),
            Some(element) => Some(self.below(element).add(builder)?),
        };
        let atomic = match self.text("x-kubernetes-map-type") {
            Some("atomic") => true,
            None | Some("granular") => false,
            Some(other) => return Err(StructuralError(format!("unknown map type {other}"))),
        };
        Ok(builder.object(fields, element, atomic))
    }

    fn list(&self, builder: &mut SchemaBuilder) -> Built<ListAtom> {
        let merge = match self.text("x-kubernetes-list-type") {
            None | Some("atomic") => ListMerge::Atomic,
            Some("set") => ListMerge::Set,
            Some("map") => {
                let keys = self.schema.get("x-kubernetes-list-map-keys").and_then(Value::as_array);
                let keys = keys.ok_or_else(|| StructuralError("missing map keys".to_owned()))?;
                ListMerge::Keys(keys.iter().filter_map(Value::as_str).map(Into::into).collect())
            }
            Some(other) => return Err(StructuralError(format!("unknown list type {other}"))),
        };
        let element = match self.schema.get("items") {
            Some(items @ Value::Object(_)) => self.below(items).add(builder)?,
            Some(_) => {
                let why = "structural schema arrays must have exactly one member subtype";
                return Err(StructuralError(why.to_owned()));
            }
            None if self.text("type").is_some() => {
                return Err(StructuralError("`items` must be specified on arrays".to_owned()));
            }
            None => builder.untyped(),
        };
        Ok(ListAtom { element, merge })
    }
}

fn scalar(scalar: Scalar) -> Atom {
    Atom { scalar: Some(scalar), ..Default::default() }
}

/// What every object has.
fn object_fields(builder: &mut SchemaBuilder) -> Vec<MapField> {
    let types = Types::builtin();
    let text = builder.scalar(Scalar::String);
    let field = |name: &str, ty| MapField { name: name.into(), ty, default: None };
    let mut fields = vec![field("apiVersion", text), field("kind", text)];
    if let Some(message) = types.get("meta/v1.ObjectMeta") {
        let metadata = builder.add_message(types, message);
        fields.push(field("metadata", metadata));
    }
    fields
}
