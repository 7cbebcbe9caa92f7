//! The merge schema of the built-in types, as upstream derives it from its OpenAPI definitions.

use serde_json::{Value, json};

use super::{Atom, ListMerge, MapField, Scalar, Schema, SchemaBuilder, TypeId};
use crate::schema::{Field, ListType, Message, MessageId, Type, Types};

pub(super) fn build(types: &Types) -> Schema {
    let mut builder = SchemaBuilder::new();
    for message in types.messages() {
        define(&mut builder, types, message);
    }
    builder.build()
}

impl SchemaBuilder {
    /// Adds a built-in type and all that it refers to: `meta/v1.ObjectMeta` is part of every custom kind.
    pub fn add_message(&mut self, types: &Types, message: &Message) -> TypeId {
        if let Some(id) = self.names.get(message.name) {
            return *id;
        }
        let id = self.declare(message.name);
        for referred in messages_in(types, message) {
            self.add_message(types, types.message(referred));
        }
        define(self, types, message);
        id
    }
}

fn messages_in(types: &Types, message: &Message) -> Vec<MessageId> {
    fn of(ty: &Type) -> Option<MessageId> {
        match ty {
            Type::Message(id) => Some(*id),
            Type::List(element) | Type::Wrapped(element) | Type::Map(element) => of(element),
            _ => None,
        }
    }
    types.fields(message).filter_map(|field| of(&field.ty)).collect()
}

fn define(builder: &mut SchemaBuilder, types: &Types, message: &Message) {
    let fields: Vec<MapField> = types
        .fields(message)
        .map(|field| MapField {
            name: field.name.into(),
            ty: field_type(builder, types, field),
            default: default_of(field),
        })
        .collect();
    // An object that declares nothing may hold anything.
    let element = fields.is_empty().then(|| builder.deduced());
    let map = builder.object(fields, element, message.atomic);
    let id = builder.declare(message.name);
    builder.define(id, Atom { map: Some(map), ..Default::default() });
}

fn field_type(builder: &mut SchemaBuilder, types: &Types, field: &Field) -> TypeId {
    match &field.ty {
        Type::List(element) | Type::Wrapped(element) => {
            let element = value_type(builder, types, element, field.go_type);
            builder.list(element, list_merge(field))
        }
        Type::Map(element) => {
            let element = value_type(builder, types, element, field.go_type);
            let map = builder.object([], Some(element), field.map_type == Some("atomic"));
            builder.map(map)
        }
        ty => {
            let id = value_type(builder, types, ty, field.go_type);
            match (ty, field.map_type) {
                (Type::Message(_), Some(map_type)) => builder.with_atomic(id, map_type == "atomic"),
                _ => id,
            }
        }
    }
}

/// Lists that say nothing about server-side apply merge as they do in strategic merge patches.
fn list_merge(field: &Field) -> ListMerge {
    match field.list_type {
        Some(ListType::Atomic) => ListMerge::Atomic,
        Some(ListType::Set) => ListMerge::Set,
        Some(ListType::Map) => ListMerge::Keys(field.map_keys.iter().map(|key| (*key).into()).collect()),
        None if !field.patch_strategy.merge => ListMerge::Atomic,
        None => match field.patch_merge_key {
            Some(key) => ListMerge::Keys([key.into()].into()),
            None => ListMerge::Set,
        },
    }
}

fn value_type(builder: &mut SchemaBuilder, types: &Types, ty: &Type, go_type: &str) -> TypeId {
    match ty {
        Type::String | Type::Bytes | Type::Duration => builder.scalar(Scalar::String),
        Type::Bool => builder.scalar(Scalar::Boolean),
        Type::Int32 | Type::Int64 | Type::Float64 => builder.scalar(Scalar::Numeric),
        Type::Time | Type::MicroTime => untyped_scalar(builder, "meta/v1.Time"),
        Type::Quantity => untyped_scalar(builder, "resource.Quantity"),
        Type::Message(id) => builder.declare(types.message(*id).name),
        Type::List(element) | Type::Wrapped(element) => {
            let element = value_type(builder, types, element, go_type);
            builder.list(element, ListMerge::Atomic)
        }
        Type::Map(element) => {
            let element = value_type(builder, types, element, go_type);
            let map = builder.object([], Some(element), false);
            builder.map(map)
        }
        Type::Raw if go_type.contains("FieldsV1") || go_type.contains("Any") => {
            let map = builder.object([], Some(builder.deduced()), false);
            builder.map(map)
        }
        Type::Raw if !go_type.contains("JSON") => builder.untyped(),
        // Their definitions name no type, so they may be anything.
        Type::Raw
        | Type::IntOrString
        | Type::SchemaOrBool(_)
        | Type::SchemaOrArray(_)
        | Type::SchemaOrStrings(_) => builder.deduced(),
    }
}

/// Scalars with a definition of their own.
fn untyped_scalar(builder: &mut SchemaBuilder, name: &str) -> TypeId {
    let id = builder.declare(name);
    builder.define(id, Atom { scalar: Some(Scalar::Untyped), ..Default::default() });
    id
}

/// What the definition says a left-out member is; members that are always there are empty.
fn default_of(field: &Field) -> Option<Value> {
    if let Some(default) = field.default {
        return serde_json::from_str(default).ok();
    }
    if field.pointer || field.omit_empty {
        return None;
    }
    match field.ty {
        Type::String => Some(json!("")),
        Type::Bool => Some(json!(false)),
        Type::Int32 | Type::Int64 | Type::Float64 => Some(json!(0)),
        _ => None,
    }
}
