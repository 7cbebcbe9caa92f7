//! Drops what a schema does not know.

use serde_json::{Map, Value};

use super::Structural;

const META_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Removes the fields of a whole custom resource that `schema` does not have, except metadata and type. The paths of
/// what went, sorted: `spec.containers[0].foo`.
pub fn prune(tree: &mut Map<String, Value>, schema: &Structural) -> Vec<String> {
    let mut pass = Pass::default();
    if schema.preserves_unknown_fields() {
        pass.below_members(tree, schema, true);
    } else {
        pass.members(tree, schema, true);
    }
    pass.dropped.sort();
    pass.dropped
}

/// As [`prune`], of a value below the root, as defaults are.
pub fn prune_value(value: &mut Value, schema: &Structural, embedded: bool) {
    Pass::default().value(value, Some(schema), embedded || schema.embedded_resource);
}

#[derive(Default)]
struct Pass {
    path: String,
    dropped: Vec<String>,
}

impl Pass {
    fn value(&mut self, value: &mut Value, schema: Option<&Structural>, embedded: bool) {
        let preserved = schema.filter(|schema| schema.preserves_unknown_fields());
        match (value, schema) {
            (Value::Object(members), _) if preserved.is_some() => {
                if let Some(schema) = preserved {
                    self.below_members(members, schema, embedded);
                }
            }
            (Value::Object(members), Some(schema)) => self.members(members, schema, embedded),
            (Value::Object(members), None) => {
                for (key, _) in std::mem::take(members) {
                    self.record(&key);
                }
            }
            (Value::Array(items), schema) => {
                let items_schema = schema.and_then(|schema| schema.items.as_deref());
                for (at, item) in items.iter_mut().enumerate() {
                    self.at_index(at, |pass| match preserved {
                        Some(_) => pass.below(item, items_schema),
                        None => pass.value(item, items_schema, is_embedded(items_schema)),
                    });
                }
            }
            _ => {}
        }
    }

    fn members(&mut self, members: &mut Map<String, Value>, schema: &Structural, embedded: bool) {
        members.retain(|key, value| {
            let is_meta = META_FIELDS.contains(&key.as_str());
            if embedded && is_meta {
                return true;
            }
            let property = match (schema.properties.get(key), &schema.additional) {
                (Some(property), _) => Some(property),
                (None, Some(additional)) => additional.schema(),
                (None, None) => {
                    if !is_meta || !self.path.is_empty() {
                        self.record(key);
                    }
                    return false;
                }
            };
            self.at_key(key, |pass| pass.value(value, property, is_embedded(property)));
            true
        });
    }

    /// Under a schema that keeps what it does not know: only what it does know is pruned.
    fn below(&mut self, value: &mut Value, schema: Option<&Structural>) {
        let Some(schema) = schema else { return };
        match value {
            Value::Object(members) => self.below_members(members, schema, schema.embedded_resource),
            Value::Array(items) => {
                for (at, item) in items.iter_mut().enumerate() {
                    self.at_index(at, |pass| pass.below(item, schema.items.as_deref()));
                }
            }
            _ => {}
        }
    }

    fn below_members(&mut self, members: &mut Map<String, Value>, schema: &Structural, embedded: bool) {
        for (key, value) in members.iter_mut() {
            if embedded && META_FIELDS.contains(&key.as_str()) {
                continue;
            }
            let property = match (schema.properties.get(key), &schema.additional) {
                (Some(property), _) => Some(property),
                (None, Some(additional)) => additional.schema(),
                (None, None) => continue,
            };
            self.at_key(key, |pass| pass.value(value, property, is_embedded(property)));
        }
    }

    fn record(&mut self, key: &str) {
        let separator = if self.path.is_empty() { "" } else { "." };
        self.dropped.push(format!("{}{separator}{key}", self.path));
    }

    fn at_key(&mut self, key: &str, visit: impl FnOnce(&mut Self)) {
        let len = self.path.len();
        if len > 0 {
            self.path.push('.');
        }
        self.path.push_str(key);
        visit(self);
        self.path.truncate(len);
    }

    fn at_index(&mut self, index: usize, visit: impl FnOnce(&mut Self)) {
        let len = self.path.len();
        self.path.push_str(&format!("[{index}]"));
        visit(self);
        self.path.truncate(len);
    }
}

fn is_embedded(schema: Option<&Structural>) -> bool {
    schema.is_some_and(|schema| schema.embedded_resource)
}
