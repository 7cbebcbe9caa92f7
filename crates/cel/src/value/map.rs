//! Maps: made by expressions, or views of JSON objects.

use std::{collections::HashMap, sync::Arc};

use serde_json::Value as Json;

use super::{Text, Value, whole, whole_unsigned};
use crate::{
    decl::{Decl, ObjectType},
    error::{Eval, EvalError},
    escape::{escape, unescape},
};

#[derive(Debug, Clone)]
pub struct Map<'a>(Repr<'a>);

#[derive(Debug, Clone)]
enum Repr<'a> {
    Made(Arc<Made<'a>>),
    Json(&'a serde_json::Map<String, Json>, View<'a>),
}

/// What types the values of a JSON object.
#[derive(Debug, Clone, Copy)]
pub(super) enum View<'a> {
    Object(&'a ObjectType),
    Values(&'a Decl),
    Dynamic,
}

/// Holds the entries of a map that an expression made, in the order of their making.
#[derive(Debug, Clone, Default)]
pub struct Made<'a> {
    entries: Vec<(Value<'a>, Value<'a>)>,
    positions: HashMap<Key<'a>, usize>,
}

/// A key as it is looked up.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Key<'a> {
    Bool(bool),
    Int(i64),
    Uint(u64),
    /// By its bits.
    Double(u64),
    String(Text<'a>),
    Other(String),
}

impl<'a> Key<'a> {
    pub fn of(value: &Value<'a>) -> Self {
        match value {
            Value::Bool(value) => Key::Bool(*value),
            Value::Int(value) => Key::Int(*value),
            Value::Uint(value) => Key::Uint(*value),
            // There is one zero among keys.
            Value::Double(value) => Key::Double(if *value == 0.0 { 0 } else { value.to_bits() }),
            Value::String(text) => Key::String(text.clone()),
            other => Key::Other(other.identity()),
        }
    }
}

impl<'a> Made<'a> {
    pub fn insert(&mut self, key: Value<'a>, value: Value<'a>) {
        match self.positions.get(&Key::of(&key)) {
            Some(position) => self.entries[*position].1 = value,
            None => {
                self.positions.insert(Key::of(&key), self.entries.len());
                self.entries.push((key, value));
            }
        }
    }

    pub fn remove(&mut self, key: &Value<'a>) {
        if let Some(position) = self.positions.remove(&Key::of(key)) {
            self.entries.remove(position);
            for other in self.positions.values_mut() {
                *other -= usize::from(*other > position);
            }
        }
    }

    /// Numbers of different types are one key if they are equal.
    pub fn find(&self, key: &Value<'a>) -> Option<&Value<'a>> {
        let exact = |key: Key<'a>| self.positions.get(&key).map(|position| &self.entries[*position].1);
        if let Some(found) = exact(Key::of(key)) {
            return Some(found);
        }
        match key {
            Value::Double(double) => whole(*double)
                .and_then(|int| exact(Key::Int(int)))
                .or_else(|| whole_unsigned(*double).and_then(|uint| exact(Key::Uint(uint)))),
            Value::Int(int) => u64::try_from(*int).ok().and_then(|uint| exact(Key::Uint(uint))),
            Value::Uint(uint) => i64::try_from(*uint).ok().and_then(|int| exact(Key::Int(int))),
            _ => None,
        }
    }
}

impl<'a> Map<'a> {
    pub fn new(entries: impl IntoIterator<Item = (Value<'a>, Value<'a>)>) -> Self {
        let mut made = Made::default();
        for (key, value) in entries {
            made.insert(key, value);
        }
        Map::made(made)
    }

    pub fn made(made: Made<'a>) -> Self {
        Map(Repr::Made(Arc::new(made)))
    }

    pub(super) fn json_view(entries: &'a serde_json::Map<String, Json>, view: View<'a>) -> Self {
        Map(Repr::Json(entries, view))
    }

    /// Whether the map is CEL's own, not one a schema types.
    pub fn is_plain(&self) -> bool {
        matches!(self.0, Repr::Made(_) | Repr::Json(_, View::Dynamic))
    }

    pub fn len(&self) -> usize {
        match &self.0 {
            Repr::Made(made) => made.entries.len(),
            Repr::Json(entries, _) => entries.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value of a key; an error if the key's type is none the map has, or the data does not fit its schema.
    pub fn find(&self, key: &Value<'a>) -> Eval<Option<Value<'a>>> {
        match &self.0 {
            Repr::Made(made) => Ok(made.find(key).cloned()),
            Repr::Json(entries, view) => match key {
                Value::String(name) => find_json(entries, *view, name),
                _ if matches!(view, View::Dynamic) => Ok(None),
                _ => Err(EvalError::no_such_overload()),
            },
        }
    }

    /// The value of a string key that the caller owns.
    pub fn find_str(&self, key: &Arc<str>) -> Eval<Option<Value<'a>>> {
        match &self.0 {
            Repr::Made(made) => Ok(made.find(&Value::String(Text::Shared(key.clone()))).cloned()),
            Repr::Json(entries, view) => find_json(entries, *view, key),
        }
    }

    pub fn keys(&self) -> Vec<Value<'a>> {
        match &self.0 {
            Repr::Made(made) => made.entries.iter().map(|(key, _)| key.clone()).collect(),
            Repr::Json(entries, view) => entries.keys().filter_map(|name| json_key(name, *view)).collect(),
        }
    }

    /// Keys with their values.
    pub fn entries(&self) -> Eval<Vec<(Value<'a>, Value<'a>)>> {
        match &self.0 {
            Repr::Made(made) => Ok(made.entries.clone()),
            Repr::Json(..) => {
                let mut entries = Vec::with_capacity(self.len());
                for key in self.keys() {
                    if let Some(value) = self.find(&key)? {
                        entries.push((key, value));
                    }
                }
                Ok(entries)
            }
        }
    }

    pub fn into_made(self) -> Eval<Made<'a>> {
        match self.0 {
            Repr::Made(made) => Ok(Arc::unwrap_or_clone(made)),
            Repr::Json(..) => {
                let mut made = Made::default();
                for (key, value) in self.entries()? {
                    made.insert(key, value);
                }
                Ok(made)
            }
        }
    }

    /// The data of an entry, where it is still JSON.
    pub(super) fn json(&self, name: &str) -> Option<&'a Json> {
        match &self.0 {
            Repr::Json(entries, _) => entries.get(name),
            Repr::Made(_) => None,
        }
    }

    pub(super) fn json_entries(&self) -> Option<&'a serde_json::Map<String, Json>> {
        match &self.0 {
            Repr::Json(entries, _) => Some(entries),
            Repr::Made(_) => None,
        }
    }

    /// Whether the schema types the value of a name as it stands in JSON.
    pub(super) fn types_field(&self, name: &str) -> bool {
        match &self.0 {
            Repr::Json(_, View::Object(object)) => object.fields.contains_key(name),
            _ => true,
        }
    }
}

fn find_json<'a>(
    entries: &'a serde_json::Map<String, Json>,
    view: View<'a>,
    key: &str,
) -> Eval<Option<Value<'a>>> {
    match view {
        View::Dynamic => Ok(entries.get(key).map(Value::from_untyped_json)),
        View::Values(decl) => entries.get(key).map(|value| Value::from_json(value, decl)).transpose(),
        View::Object(object) => {
            let has_escapes = key.contains("__");
            let unescaped = if has_escapes { unescape(key) } else { Some(key.to_owned()) };
            let Some(name) = unescaped else { return Ok(None) };
            match (entries.get(&name), object.fields.get(&name)) {
                (Some(value), Some(decl)) if !value.is_null() => Value::from_json(value, decl).map(Some),
                _ => Ok(None),
            }
        }
    }
}

fn json_key<'a>(name: &'a str, view: View<'a>) -> Option<Value<'a>> {
    match view {
        View::Dynamic | View::Values(_) => Some(Value::String(Text::Borrowed(name))),
        View::Object(object) if object.fields.contains_key(name) => Some(match escape(name) {
            Some(escaped) if escaped != name => Value::string(escaped),
            _ => Value::String(Text::Borrowed(name)),
        }),
        View::Object(_) => None,
    }
}

impl Key<'_> {
    /// The key with nothing borrowed, to be looked up among constants.
    pub fn into_static(self) -> Key<'static> {
        match self {
            Key::Bool(value) => Key::Bool(value),
            Key::Int(value) => Key::Int(value),
            Key::Uint(value) => Key::Uint(value),
            Key::Double(value) => Key::Double(value),
            Key::String(text) => Key::String(Text::Shared(Arc::from(&*text))),
            Key::Other(text) => Key::Other(text),
        }
    }
}
