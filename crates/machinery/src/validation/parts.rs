//! Parts of specs that many kinds have, and how a spec is read and its fields are named.
//!
//! Trees come here typed and in canonical form: what is absent is empty, zero or false.

mod addresses;
mod claims;
mod path;
mod resources;
mod scheduling;

use serde_json::{Value, json};

use crate::{field_error::Cause, metadata, names, resource::Tree};

pub use addresses::{
    cidr, cidr_warnings, interface_address, ip, ip_warnings, legacy_cidr, legacy_ip, parse_cidr_sloppy,
    parse_ip_sloppy,
};
pub use claims::{ClaimOptions, claim_spec, claim_template, csi_driver_name};
pub use path::Path;
pub use resources::{
    container_resource_name, divides_into_huge_pages, is_extended_resource, is_huge_pages,
    is_integer_resource, is_native_resource, is_overcommit_allowed, is_standard_quota_resource,
    is_standard_resource, positive_quantity, quantity_in, resource_name, resource_quantity,
};
pub use scheduling::{
    node_selector, node_selector_requirement, node_selector_term, preferred_scheduling_terms, taints,
    tolerations, topology_selector_term, weight,
};

pub const NOT_NEGATIVE: &str = "must be greater than or equal to 0";
pub const NOT_POSITIVE: &str = "must be greater than zero";
pub const IMMUTABLE: &str = "field is immutable";
pub const NOT_INTEGER: &str = "must be an integer";

pub fn text<'a>(tree: &'a Tree, key: &str) -> &'a str {
    tree.get(key).and_then(Value::as_str).unwrap_or_default()
}

pub fn object<'a>(tree: &'a Tree, key: &str) -> Option<&'a Tree> {
    tree.get(key).and_then(Value::as_object)
}

pub fn object_mut<'a>(tree: &'a mut Tree, key: &str) -> Option<&'a mut Tree> {
    tree.get_mut(key).and_then(Value::as_object_mut)
}

pub fn list<'a>(tree: &'a Tree, key: &str) -> &'a [Value] {
    tree.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The objects of a list, with their places.
pub fn items<'a>(tree: &'a Tree, key: &str) -> impl Iterator<Item = (usize, &'a Tree)> {
    list(tree, key).iter().enumerate().filter_map(|(at, item)| item.as_object().map(|item| (at, item)))
}

pub fn items_mut<'a>(tree: &'a mut Tree, key: &str) -> impl Iterator<Item = &'a mut Tree> {
    tree.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut)
}

/// The texts of a list.
pub fn texts<'a>(tree: &'a Tree, key: &str) -> impl Iterator<Item = &'a str> {
    list(tree, key).iter().map(|item| item.as_str().unwrap_or_default())
}

/// The members of a map of texts, or of anything.
pub fn entries<'a>(tree: &'a Tree, key: &str) -> impl Iterator<Item = (&'a str, &'a Value)> {
    object(tree, key).into_iter().flatten().map(|(key, value)| (key.as_str(), value))
}

pub fn number(tree: &Tree, key: &str) -> Option<i64> {
    tree.get(key).and_then(Value::as_i64)
}

pub fn flag(tree: &Tree, key: &str) -> bool {
    tree.get(key).and_then(Value::as_bool).unwrap_or(false)
}

/// Sets a text that is empty.
pub fn set_default(tree: &mut Tree, key: &str, value: &str) {
    if text(tree, key).is_empty() {
        tree.insert(key.to_owned(), json!(value));
    }
}

/// Sets what is absent, where that is something else than empty.
pub fn set_absent(tree: &mut Tree, key: &str, value: impl Into<Value>) {
    if tree.get(key).is_none_or(Value::is_null) {
        tree.insert(key.to_owned(), value.into());
    }
}

/// A cause for each of the reasons that [`names`] gives.
pub fn invalid_each(path: &Path<'_>, value: &str, reasons: Vec<String>) -> impl Iterator<Item = Cause> {
    let causes: Vec<Cause> = reasons.iter().map(|it| Cause::invalid(path, &json!(value), it)).collect();
    causes.into_iter()
}

pub fn dns_label(value: &str, path: &Path<'_>) -> impl Iterator<Item = Cause> {
    invalid_each(path, value, names::is_dns1123_label(value))
}

pub fn dns_subdomain(value: &str, path: &Path<'_>) -> impl Iterator<Item = Cause> {
    invalid_each(path, value, names::is_dns1123_subdomain(value))
}

/// A label key, and whatever else is a qualified name.
pub fn qualified_name(value: &str, path: &Path<'_>) -> impl Iterator<Item = Cause> {
    invalid_each(path, value, names::is_qualified_name(value))
}

pub fn not_negative(value: i64, path: &Path<'_>) -> Option<Cause> {
    (value < 0).then(|| Cause::invalid(path, &json!(value), NOT_NEGATIVE))
}

pub fn positive(value: i64, path: &Path<'_>) -> Option<Cause> {
    (value <= 0).then(|| Cause::invalid(path, &json!(value), NOT_POSITIVE))
}

pub fn port_number(value: i64, path: &Path<'_>) -> impl Iterator<Item = Cause> {
    names::is_port_number(value).into_iter().map(move |it| Cause::invalid(path, &json!(value), &it))
}

/// A port of a container by its number or by its name.
pub fn port_number_or_name(port: Option<&Value>, path: &Path<'_>) -> Vec<Cause> {
    match port {
        Some(Value::String(name)) => invalid_each(path, name, names::is_port_name(name)).collect(),
        port => port_number(port.and_then(Value::as_i64).unwrap_or(0), path).collect(),
    }
}

/// A value that must be one of a few texts; `Required` when it is empty.
pub fn one_of(value: &str, path: &Path<'_>, valid: &[&str]) -> Option<Cause> {
    if value.is_empty() {
        return Some(Cause::required(path, ""));
    }
    (!valid.contains(&value)).then(|| Cause::not_supported(path, &json!(value), valid))
}

/// Metadata inside a template of something else than a pod: only labels and annotations may be set.
pub fn template_metadata(metadata: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let mut causes =
        metadata::annotations(metadata.get("annotations"), &path.child("annotations").to_string());
    causes.extend(metadata::labels(metadata.get("labels"), &path.child("labels").to_string()));
    let set = metadata.iter().filter(|(_, value)| !value.is_null()).map(|(key, _)| key.as_str());
    let unwanted = set.filter(|key| !matches!(*key, "annotations" | "labels"));
    // Upstream names the Go field, its first letter in lower case.
    let shown = unwanted.map(|key| if key == "uid" { "uID" } else { key });
    causes.extend(shown.map(|key| Cause::forbidden(&path.child(key), "cannot be set")));
    causes
}

/// What Go holds as the zero value.
pub fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
    }
}

#[cfg(test)]
mod tests;
