//! More ways to read and fill in the members of a tree.

use serde_json::{Value, json};

use super::parts::{number, object, text};
use crate::{field_error::Cause, names, resource::Tree};

/// A member that is set: `null` counts as absent.
pub fn set<'a>(tree: &'a Tree, key: &str) -> Option<&'a Value> {
    tree.get(key).filter(|value| !value.is_null())
}

/// The object at `key`, made if it is not there.
pub fn made<'a>(tree: &'a mut Tree, key: &str) -> &'a mut Tree {
    let value = tree.entry(key).or_insert_with(|| json!({}));
    if !value.is_object() {
        *value = json!({});
    }
    match value {
        Value::Object(object) => object,
        _ => unreachable!("just made an object"),
    }
}

/// A number, zero if it is not set.
pub fn count(tree: &Tree, key: &str) -> i64 {
    number(tree, key).unwrap_or(0)
}

/// Sets what is not set at all; an empty text counts as set.
pub fn default_to(tree: &mut Tree, key: &str, value: impl Into<Value>) {
    if set(tree, key).is_none() {
        tree.insert(key.to_owned(), value.into());
    }
}

/// Sets a member, or removes it for `None`.
pub fn assign(tree: &mut Tree, key: &str, value: Option<Value>) {
    match value {
        Some(value) => tree.insert(key.to_owned(), value),
        None => tree.remove(key),
    };
}

/// A text of the metadata; empty if there is none.
pub fn metadata<'a>(tree: &'a Tree, key: &str) -> &'a str {
    object(tree, "metadata").map_or("", |metadata| text(metadata, key))
}

/// An annotation's value; empty if there is none.
pub fn annotation<'a>(tree: &'a Tree, key: &str) -> &'a str {
    let annotations = object(tree, "metadata").and_then(|metadata| object(metadata, "annotations"));
    annotations.map_or("", |annotations| text(annotations, key))
}

/// Kinds that check a changed object as if it were new look at the prefix of its name once more.
pub fn name_prefix(new: &Tree, old: Option<&Tree>) -> Vec<Cause> {
    let prefix = metadata(new, "generateName");
    let reasons = match old {
        Some(_) if !prefix.is_empty() => names::subdomain_name(prefix, true),
        _ => Vec::new(),
    };
    reasons.iter().map(|it| Cause::invalid("metadata.generateName", &json!(prefix), it)).collect()
}
