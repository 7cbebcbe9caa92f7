//! Fills in defaults, and drops the nulls that a schema does not allow.

use serde_json::{Map, Value};

use super::{Structural, embedded, prune};

impl Structural {
    /// Sets what the client left out and the schema has a default for. Defaults of members of a default apply too.
    pub fn fill_defaults(&self, tree: &mut Map<String, Value>) {
        fill_members(tree, self);
    }

    /// Removes nulls where the schema has neither `nullable` nor a default.
    pub fn drop_nulls(&self, tree: &mut Map<String, Value>) {
        drop_member_nulls(tree, self);
    }

    /// The schema with every default pruned of fields that the schema does not know, as it is served.
    pub fn with_pruned_defaults(mut self) -> Self {
        let root = self.clone();
        prune_defaults(&mut self, &root, &mut Vec::new());
        self
    }
}

fn is_forbidden_null(value: &Value, schema: &Structural) -> bool {
    value.is_null() && !schema.nullable
}

fn fill_members(members: &mut Map<String, Value>, schema: &Structural) {
    for (key, property) in &schema.properties {
        let Some(default) = &property.default else { continue };
        if members.get(key).is_none_or(|value| is_forbidden_null(value, property)) {
            members.insert(key.clone(), default.clone());
        }
    }
    for (key, value) in members.iter_mut() {
        if let Some(property) = schema.properties.get(key) {
            fill(value, property);
        } else if let Some(additional) = schema.additional_schema() {
            fill_element(value, additional);
        }
    }
}

fn fill(value: &mut Value, schema: &Structural) {
    match value {
        Value::Object(members) => fill_members(members, schema),
        Value::Array(items) => {
            if let Some(schema) = &schema.items {
                items.iter_mut().for_each(|item| fill_element(item, schema));
            }
        }
        _ => {}
    }
}

/// An item of a list or a map: only a null can stand for its default.
fn fill_element(value: &mut Value, schema: &Structural) {
    if is_forbidden_null(value, schema) {
        *value = schema.default.clone().unwrap_or_default();
    }
    fill(value, schema);
}

fn drop_member_nulls(members: &mut Map<String, Value>, schema: &Structural) {
    members.retain(|key, value| {
        let Some(property) = schema.member(key) else { return true };
        if is_forbidden_null(value, property) && property.default.is_none() {
            return false;
        }
        drop_nulls(value, property);
        true
    });
}

fn drop_nulls(value: &mut Value, schema: &Structural) {
    match value {
        Value::Object(members) => drop_member_nulls(members, schema),
        Value::Array(items) => {
            if let Some(schema) = &schema.items {
                items.iter_mut().for_each(|item| drop_nulls(item, schema));
            }
        }
        _ => {}
    }
}

/// One step from the root of a resource to a default in its schema.
#[derive(Clone)]
pub(super) enum Step {
    Key(String),
    Index,
}

/// The object in which `value` stands where `steps` lead, and nothing else.
pub(super) fn surround(value: Value, steps: &[Step]) -> Value {
    steps.iter().rev().fold(value, |inner, step| match step {
        Step::Key(key) => Value::Object(Map::from_iter([(key.clone(), inner)])),
        Step::Index => Value::Array(vec![inner]),
    })
}

fn focus(object: Value, steps: &[Step]) -> Option<Value> {
    steps.iter().try_fold(object, |value, step| match (step, value) {
        (Step::Key(key), Value::Object(mut members)) => members.remove(key),
        (Step::Index, Value::Array(items)) => items.into_iter().next(),
        _ => None,
    })
}

/// Each default is pruned as part of a whole resource, since what metadata may hold depends on where it is.
fn prune_defaults(schema: &mut Structural, root: &Structural, steps: &mut Vec<Step>) {
    if let Some(default) = schema.default.take() {
        let mut object = surround(default, steps);
        embedded::coerce_leniently(&mut object, root);
        prune::prune_value(&mut object, root, true);
        schema.default = focus(object, steps);
    }
    if let Some(additional) = schema.additional.as_mut().and_then(|additional| additional.schema_mut()) {
        prune_below(additional, root, steps, Step::Key("*".to_owned()));
    }
    if let Some(items) = &mut schema.items {
        prune_below(items, root, steps, Step::Index);
    }
    for (key, property) in &mut schema.properties {
        prune_below(property, root, steps, Step::Key(key.clone()));
    }
}

fn prune_below(schema: &mut Structural, root: &Structural, steps: &mut Vec<Step>, step: Step) {
    steps.push(step);
    prune_defaults(schema, root, steps);
    steps.pop();
}
