//! What a schema says about JSON: how CEL types it, how it is read, and how large it can be.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    escape::{escape, is_reserved},
    types::Type,
};

/// The largest request Kubernetes accepts: what bounds a value that its schema does not.
pub const MAX_REQUEST_BYTES: u64 = 3 * 1024 * 1024;

/// Holds what one schema declares.
#[derive(Debug, Clone)]
pub struct Decl {
    pub shape: Shape,
    /// Whether null is a value.
    pub nullable: bool,
    /// The most elements, entries, characters or bytes a value has: the estimate's `maxItems`, `maxProperties` or
    /// `maxLength`.
    pub max_elements: u64,
    /// The fewest bytes a value takes as JSON.
    pub min_size: u64,
}

#[derive(Debug, Clone)]
pub enum Shape {
    Bool,
    Int,
    Double,
    String,
    /// A string of base64: `format: byte`.
    Bytes,
    /// A string such as `1h30m`: `format: duration`.
    Duration,
    /// A string such as `2026-11-15`: `format: date`.
    Date,
    /// A string in RFC 3339: `format: date-time`.
    DateTime,
    /// `x-kubernetes-int-or-string`.
    IntOrString,
    /// JSON without a schema: `dyn`.
    Dyn,
    /// Data kept by `x-kubernetes-preserve-unknown-fields` without a type: compared, never read.
    Preserved,
    List(Arc<Decl>, ListType),
    /// `additionalProperties`.
    Map(Arc<Decl>),
    Object(Arc<ObjectType>),
}

/// `x-kubernetes-list-type`: what makes two lists equal and what `+` does.
#[derive(Debug, Clone)]
pub enum ListType {
    Atomic,
    Set,
    /// With the names of the keys.
    Map(Arc<[String]>),
}

/// The fields of an object.
#[derive(Debug, Default)]
pub struct ObjectType {
    pub name: Arc<str>,
    /// By their names in JSON.
    pub fields: BTreeMap<String, Arc<Decl>>,
}

impl ObjectType {
    pub fn new(name: &str, fields: impl IntoIterator<Item = (String, Arc<Decl>)>) -> Arc<Self> {
        Arc::new(ObjectType { name: name.into(), fields: fields.into_iter().collect() })
    }

    /// The type of a field by its escaped name.
    pub fn field_type(&self, identifier: &str) -> Option<Type> {
        self.field(identifier)?.cel_type()
    }

    /// A field by its escaped name; reserved words need no escape where they follow a dot.
    pub fn field(&self, identifier: &str) -> Option<&Arc<Decl>> {
        if is_reserved(identifier) {
            return self.fields.get(identifier);
        }
        if let Some(decl) = self.fields.get(identifier)
            && escape(identifier).as_deref() == Some(identifier)
        {
            return Some(decl);
        }
        let name = crate::escape::unescape(identifier)?;
        let decl = self.fields.get(&name)?;
        (escape(&name).as_deref() == Some(identifier)).then_some(decl)
    }
}

impl Decl {
    pub fn new(shape: Shape) -> Self {
        let (max_elements, min_size) = shape.sizes();
        Decl { shape, nullable: false, max_elements, min_size }
    }

    pub fn nullable(mut self, nullable: bool) -> Self {
        self.nullable = nullable;
        self
    }

    pub fn max_elements(mut self, max_elements: u64) -> Self {
        self.max_elements = max_elements;
        self
    }

    pub fn min_size(mut self, min_size: u64) -> Self {
        self.min_size = min_size;
        self
    }

    /// The type expressions see; `None` for what they cannot use.
    pub fn cel_type(&self) -> Option<Type> {
        Some(match &self.shape {
            Shape::Bool => Type::Bool,
            Shape::Int => Type::Int,
            Shape::Double => Type::Double,
            Shape::String => Type::String,
            Shape::Bytes => Type::Bytes,
            Shape::Duration => Type::Duration,
            Shape::Date | Shape::DateTime => Type::Timestamp,
            Shape::IntOrString | Shape::Dyn => Type::Dyn,
            Shape::Preserved => return None,
            Shape::List(items, _) => Type::list(items.cel_type()?),
            Shape::Map(values) => Type::map(Type::String, values.cel_type()?),
            Shape::Object(object) => Type::Object(object.name.clone()),
        })
    }

    /// Calls `found` for every object type in the declaration.
    pub(crate) fn each_object(&self, found: &mut impl FnMut(&Arc<ObjectType>) -> bool) {
        match &self.shape {
            Shape::List(inner, _) | Shape::Map(inner) => inner.each_object(found),
            Shape::Object(object) if found(object) => {
                for field in object.fields.values() {
                    field.each_object(found);
                }
            }
            _ => {}
        }
    }
}

impl Shape {
    /// The most elements and the fewest bytes where the schema bounds neither.
    fn sizes(&self) -> (u64, u64) {
        const LONGEST: u64 = MAX_REQUEST_BYTES - 2;
        match self {
            Shape::Bool => (0, 4),
            Shape::Int | Shape::Double => (0, 1),
            Shape::String | Shape::Bytes => (LONGEST, 2),
            Shape::Duration => (32, 3),
            Shape::Date => (12, 12),
            Shape::DateTime => (32, 21),
            Shape::IntOrString => (LONGEST, 1),
            Shape::Dyn | Shape::Preserved => (0, 1),
            Shape::List(items, _) => (LONGEST / (items.min_size + 1), 2),
            Shape::Map(values) => (LONGEST / (values.min_size + 6), 2),
            Shape::Object(_) => (0, 2),
        }
    }
}
