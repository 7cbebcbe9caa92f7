//! Which part of an old object a part of the new one corresponds to.
//!
//! An update may leave wrong what was wrong before: errors in a value that equals its old counterpart are forgiven.

use std::collections::HashMap;

use serde_json::Value;

use super::{Structural, lists};

/// A value, what it was before, and the schema by which they correspond.
#[derive(Clone, Copy)]
pub struct Counterpart<'a> {
    pub new: &'a Value,
    pub old: &'a Value,
    pub schema: &'a Structural,
}

impl<'a> Counterpart<'a> {
    pub fn key(&self, key: &str) -> Option<Counterpart<'a>> {
        let (new, old) = (self.new.as_object()?.get(key)?, self.old.as_object()?.get(key)?);
        Some(Counterpart { new, old, schema: self.schema.member(key)? })
    }

    /// The old list, if its items can be told apart.
    pub fn items(&self) -> Option<Items<'a>> {
        Items::of(self.old.as_array()?, self.schema)
    }

    /// Whether nothing changed. The order of a list of type `map` does not count.
    pub fn is_unchanged(&self) -> bool {
        match (self.new, self.old) {
            (Value::Array(new), Value::Array(old)) => {
                if new.len() != old.len() {
                    return false;
                }
                match self.items() {
                    None => new == old,
                    Some(items) => {
                        new.iter().all(|item| items.counterpart(item).is_some_and(|item| item.is_unchanged()))
                    }
                }
            }
            (Value::Object(new), Value::Object(old)) => {
                new.len() == old.len()
                    && new.keys().all(|key| self.key(key).is_some_and(|member| member.is_unchanged()))
            }
            (new, old) => new == old,
        }
    }
}

/// The items of an old list of type `map`, by their keys.
pub struct Items<'a> {
    by_key: HashMap<String, &'a Value>,
    keys: &'a [String],
    schema: &'a Structural,
}

impl<'a> Items<'a> {
    /// Only items of lists of type `map` can be told apart.
    pub fn of(old: &'a [Value], schema: &'a Structural) -> Option<Self> {
        let is_map = schema.type_name == "array" && schema.list_type.as_deref() == Some("map");
        let keys = schema.list_map_keys.as_slice();
        if !is_map || keys.is_empty() {
            return None;
        }
        let mut by_key = HashMap::with_capacity(old.len());
        for item in old {
            if let Some(key) = lists::correlation_key(item, keys) {
                by_key.entry(key).or_insert(item);
            }
        }
        Some(Self { by_key, keys, schema: schema.items.as_deref()? })
    }

    /// The old item that has the keys of `new`.
    pub fn old(&self, new: &Value) -> Option<&'a Value> {
        self.by_key.get(&lists::correlation_key(new, self.keys)?).copied()
    }

    pub fn counterpart(&self, new: &'a Value) -> Option<Counterpart<'a>> {
        Some(Counterpart { new, old: self.old(new)?, schema: self.schema })
    }
}
