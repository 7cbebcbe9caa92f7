//! Takes fields out of a value, or leaves only them.

use serde_json::Value;

use super::{
    element::PathElement,
    fields::{FieldSet, NOTHING},
    schema::{ListAtom, MapAtom, TypeRef},
    typed::{Shape, item_element, tree_field_set},
};
use crate::resource::Tree;

/// An object without these fields. What is empty for it is `null`.
pub fn remove_fields(ty: TypeRef<'_>, tree: Tree, fields: &FieldSet) -> Tree {
    as_tree(Pass::Remove.value(ty, Value::Object(tree), fields))
}

/// A value without these fields.
pub fn remove_from_value(ty: TypeRef<'_>, value: Value, fields: &FieldSet) -> Value {
    Pass::Remove.value(ty, value, fields)
}

/// These fields of an object alone. `with_keys`: and the keys of all items that are on the way to one.
pub fn extract_fields(ty: TypeRef<'_>, tree: Tree, fields: &FieldSet, with_keys: bool) -> Tree {
    let keys = if with_keys { key_fields(ty, &tree, fields) } else { FieldSet::default() };
    as_tree(Pass::Extract.value(ty, Value::Object(tree), &fields.clone().union(keys)))
}

/// These fields of a value alone.
pub fn extract_from_value(ty: TypeRef<'_>, value: Value, fields: &FieldSet) -> Value {
    Pass::Extract.value(ty, value, fields)
}

fn as_tree(value: Value) -> Tree {
    match value {
        Value::Object(tree) => tree,
        _ => Tree::new(),
    }
}

fn key_fields(ty: TypeRef<'_>, tree: &Tree, fields: &FieldSet) -> FieldSet {
    let mut keys = FieldSet::default();
    let Ok(present) = tree_field_set(ty, tree) else { return keys };
    for path in fields.paths().iter().filter(|path| present.has(path)) {
        for (at, element) in path.iter().enumerate() {
            let PathElement::Key(names) = element else { continue };
            for (name, _) in names {
                let mut key = path[..=at].to_vec();
                key.push(PathElement::Field(name.clone()));
                keys.insert(&key);
            }
        }
    }
    keys
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Pass {
    Remove,
    Extract,
}

impl Pass {
    fn value(self, ty: TypeRef<'_>, value: Value, fields: &FieldSet) -> Value {
        match (Shape::of(ty, Some(&value)), value) {
            (Ok(Shape::Scalar(_)), value) => value,
            (Ok(Shape::List(list)), Value::Array(items)) => {
                if items.is_empty() || list.is_atomic() {
                    return self.whole(Value::Array(items));
                }
                let items = self.items(ty, list, items, fields);
                if items.is_empty() { Value::Null } else { Value::Array(items) }
            }
            (Ok(Shape::Map(map)), Value::Object(members)) => {
                if members.is_empty() || map.is_atomic() {
                    return self.whole(Value::Object(members));
                }
                let members = self.members(ty, map, members, fields);
                if members.is_empty() { Value::Null } else { Value::Object(members) }
            }
            _ => Value::Null,
        }
    }

    /// What is one field as a whole goes or stays as such.
    fn whole(self, value: Value) -> Value {
        if self == Self::Extract { value } else { Value::Null }
    }

    fn items(self, ty: TypeRef<'_>, list: &ListAtom, items: Vec<Value>, fields: &FieldSet) -> Vec<Value> {
        let mut kept = Vec::with_capacity(items.len());
        for item in items {
            // The list was checked; an item without an element is in no set.
            let element = item_element(ty, list, &item).ok();
            let is_named = element.as_ref().is_some_and(|element| fields.owns(element));
            let below = element.as_ref().map_or(&NOTHING, |element| fields.below(element));
            let stays = match self {
                Self::Remove => !is_named,
                Self::Extract => is_named || !below.is_empty(),
            };
            if !stays {
                continue;
            }
            kept.push(if below.is_empty() { item } else { self.value(ty.at(list.element), item, below) });
        }
        kept
    }

    fn members(self, ty: TypeRef<'_>, map: &MapAtom, members: Tree, fields: &FieldSet) -> Tree {
        let mut kept = Tree::new();
        for (name, value) in members {
            let element = PathElement::field(&name);
            let below = fields.below(&element);
            let descend = |value: Value, fields: &FieldSet| match map.member(&name) {
                Some(id) => self.value(ty.at(id), value, fields),
                None => Value::Null,
            };
            let value = match (self, fields.owns(&element)) {
                (Self::Remove, true) => continue,
                // Upstream goes on with the set of this level, not of the one below.
                (Self::Extract, true) => descend(value, fields),
                (_, false) if !below.is_empty() => descend(value, below),
                (Self::Remove, false) => value,
                (Self::Extract, false) => continue,
            };
            kept.insert(name, value);
        }
        kept
    }
}
