//! Lists: made by expressions, or views of JSON arrays.

use std::sync::Arc;

use serde_json::Value as Json;

use super::Value;
use crate::{
    decl::{Decl, ListType},
    error::{Eval, EvalError},
};

#[derive(Debug, Clone)]
pub struct List<'a> {
    repr: Repr<'a>,
    /// For a list a schema types: what makes it equal to another and what `+` does. `None` for CEL's own.
    kind: Option<&'a ListType>,
}

#[derive(Debug, Clone)]
enum Repr<'a> {
    Made(Arc<Vec<Value<'a>>>),
    /// Items and their schema; without one they are `dyn`.
    Json(&'a [Json], Option<&'a Decl>),
}

impl<'a> List<'a> {
    pub fn new(values: Vec<Value<'a>>) -> Self {
        List { repr: Repr::Made(Arc::new(values)), kind: None }
    }

    pub(super) fn typed(items: &'a [Json], decl: &'a Decl, kind: &'a ListType) -> Self {
        List { repr: Repr::Json(items, Some(decl)), kind: Some(kind) }
    }

    pub(super) fn dynamic(items: &'a [Json]) -> Self {
        List { repr: Repr::Json(items, None), kind: None }
    }

    /// Whether the list is CEL's own, not one a schema types.
    pub fn is_plain(&self) -> bool {
        self.kind.is_none()
    }

    /// The name of the type Kubernetes keeps such a list in.
    pub(crate) fn go_type(&self) -> &'static str {
        match self.kind {
            None => "*types.baseList",
            Some(ListType::Atomic) => "*common.unstructuredList",
            Some(ListType::Set) => "*common.unstructuredSetList",
            Some(ListType::Map(_)) => "*common.unstructuredMapList",
        }
    }

    pub(super) fn kind(&self) -> Option<&'a ListType> {
        self.kind
    }

    pub fn len(&self) -> usize {
        match &self.repr {
            Repr::Made(values) => values.len(),
            Repr::Json(items, _) => items.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The element, if the list has it; an error if the data does not fit the schema.
    pub fn get(&self, index: usize) -> Option<Eval<Value<'a>>> {
        match &self.repr {
            Repr::Made(values) => values.get(index).cloned().map(Ok),
            Repr::Json(items, decl) => items.get(index).map(|item| match decl {
                Some(decl) => Value::from_json(item, decl),
                None => Ok(Value::from_untyped_json(item)),
            }),
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = Eval<Value<'a>>> + '_ {
        (0..self.len()).map_while(|index| self.get(index))
    }

    /// All elements; an error if one of them does not fit the schema.
    pub fn values(&self) -> Eval<Vec<Value<'a>>> {
        self.iter().collect()
    }

    /// This list with the other's elements behind its own, or merged in if the schema says that it is a set or a map.
    pub fn concat(&self, other: &List<'a>) -> Eval<List<'a>> {
        match self.kind {
            None if self.is_empty() => return Ok(other.clone()),
            None if other.is_empty() => return Ok(self.clone()),
            None | Some(ListType::Atomic) => {}
            Some(ListType::Set) => return self.union(other),
            Some(ListType::Map(keys)) => return self.merge(other, keys),
        }
        let mut values = self.values()?;
        values.reserve(other.len());
        for value in other.iter() {
            values.push(value?);
        }
        Ok(List { repr: Repr::Made(Arc::new(values)), kind: self.kind })
    }

    fn union(&self, other: &List<'a>) -> Eval<List<'a>> {
        let mut values = self.values()?;
        let mut seen: std::collections::HashSet<String> = values.iter().map(Value::identity).collect();
        for value in other.iter() {
            let value = value?;
            if seen.insert(value.identity()) {
                values.push(value);
            }
        }
        Ok(List { repr: Repr::Made(Arc::new(values)), kind: self.kind })
    }

    fn merge(&self, other: &List<'a>, keys: &[String]) -> Eval<List<'a>> {
        let mut values = self.values()?;
        let mut positions: std::collections::HashMap<String, usize> =
            values.iter().enumerate().map(|(index, value)| (value.map_key(keys), index)).collect();
        for value in other.iter() {
            let value = value?;
            match positions.get(&value.map_key(keys)) {
                Some(position) => values[*position] = value,
                None => {
                    positions.insert(value.map_key(keys), values.len());
                    values.push(value);
                }
            }
        }
        Ok(List { repr: Repr::Made(Arc::new(values)), kind: self.kind })
    }

    /// The element as indexing reads it.
    pub fn at(&self, index: &Value<'_>) -> Eval<Value<'a>> {
        let position = super::index_of(index)?;
        if !self.is_plain() && !matches!(index, Value::Int(_)) {
            return Err(EvalError::invalid(format!("unsupported index: {index}")));
        }
        usize::try_from(position)
            .ok()
            .and_then(|position| self.get(position))
            .unwrap_or_else(|| Err(EvalError::out_of_bounds(index)))
    }
}

impl Value<'_> {
    /// What tells an element of a set from the others.
    pub(super) fn identity(&self) -> String {
        match self {
            Value::String(text) => format!("s{}", &**text),
            other => format!("{}:{other}", other.type_name()),
        }
    }

    /// What tells an element of a list of type map from the others.
    pub(super) fn map_key(&self, keys: &[String]) -> String {
        let mut identity = String::new();
        for key in keys {
            let name = crate::escape::escape(key).unwrap_or_else(|| key.clone());
            let value = match self {
                Value::Map(map) => map.json(&name).map(Json::to_string).unwrap_or_default(),
                _ => String::new(),
            };
            identity.push_str(&value);
            identity.push('\0');
        }
        identity
    }
}
