//! What the server does to definitions before it stores them.

use serde_json::{Value, json};

use super::{
    Definition, Names,
    status::{Condition, set_condition},
    validate,
};
use crate::{
    field_error::Cause,
    gotext,
    resource::{Tree, only},
    structural::{Path, Structural, is_known_format},
};

/// Holds a deleted definition until its objects are gone.
pub const CLEANUP_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

fn text<'t>(tree: &'t Tree, key: &str) -> &'t str {
    tree.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// The name of the version that objects are stored in.
fn storage_version(tree: &Tree) -> Option<String> {
    let versions = tree.get("spec").and_then(|spec| spec.get("versions")).and_then(Value::as_array);
    let storage = versions.into_iter().flatten().find(|version| version["storage"] == true)?;
    storage.get("name").and_then(Value::as_str).map(str::to_owned)
}

pub fn default(tree: &mut Tree) {
    if let Some(spec) = tree.get_mut("spec").and_then(Value::as_object_mut) {
        default_names(spec);
        if spec.get("conversion").is_none_or(Value::is_null) {
            spec.insert("conversion".into(), json!({"strategy": "None"}));
        }
        let service = spec
            .get_mut("conversion")
            .and_then(|conversion| conversion.pointer_mut("/webhook/clientConfig/service"))
            .and_then(Value::as_object_mut);
        if let Some(service) = service
            && service.get("port").is_none_or(Value::is_null)
        {
            service.insert("port".into(), json!(443));
        }
    }
    let stored = tree.get("status").and_then(|status| status.get("storedVersions")).and_then(Value::as_array);
    if stored.is_none_or(Vec::is_empty)
        && let Some(version) = storage_version(tree)
    {
        store_version(tree, version);
    }
}

fn default_names(spec: &mut Tree) {
    let Some(names) = spec.get_mut("names").and_then(Value::as_object_mut) else { return };
    let kind = text(names, "kind").to_owned();
    if text(names, "singular").is_empty() && !kind.is_empty() {
        names.insert("singular".into(), json!(kind.to_lowercase()));
    }
    if text(names, "listKind").is_empty() && !kind.is_empty() {
        names.insert("listKind".into(), json!(format!("{kind}List")));
    }
}

/// Adds a version to `status.storedVersions`.
fn store_version(tree: &mut Tree, version: String) {
    let status = tree.entry("status").or_insert_with(|| json!({}));
    if !status.is_object() {
        *status = json!({});
    }
    let Some(status) = status.as_object_mut() else { return };
    let stored = status.entry("storedVersions").or_insert_with(|| json!([]));
    if !stored.is_array() {
        *stored = json!([]);
    }
    if let Some(stored) = stored.as_array_mut()
        && !stored.iter().any(|it| *it == version)
    {
        stored.push(json!(version));
    }
}

/// A status as Go writes an empty one.
fn empty_status() -> Value {
    json!({"conditions": null, "acceptedNames": Names::default().to_json(), "storedVersions": null})
}

/// Nobody sets the status of a new definition.
pub fn prepare_create(tree: &mut Tree) {
    tree.insert("status".into(), empty_status());
    if let Some(version) = storage_version(tree) {
        store_version(tree, version);
    }
}

/// The status stays, except that a new storage version is one of those that objects may be stored in.
pub fn prepare_update(new: &mut Tree, old: &Tree) {
    new.insert("status".into(), old.get("status").cloned().unwrap_or_else(empty_status));
    if let Some(version) = storage_version(new) {
        store_version(new, version);
    }
}

/// `/status` changes no more than that.
pub fn only_status(new: &mut Tree, old: &Tree) {
    only(new, old, "status");
}

/// What is wrong with a new status.
pub fn validate_status(new: &Tree, _: &Tree) -> Vec<Cause> {
    let root = Path::Root;
    let status = root.child("status");
    let names = Names::read(new.get("status").and_then(|status| status.get("acceptedNames")));
    validate::names(&names, &status.child("acceptedNames"))
}

/// What a deletion changes at first: the definition is held until its objects are gone.
pub fn mark_deleted(tree: &mut Tree, now: &str) {
    let metadata = tree.entry("metadata").or_insert_with(|| json!({}));
    if let Some(metadata) = metadata.as_object_mut() {
        let finalizers = metadata.entry("finalizers").or_insert_with(|| json!([]));
        if !finalizers.is_array() {
            *finalizers = json!([]);
        }
        if let Some(finalizers) = finalizers.as_array_mut()
            && !finalizers.iter().any(|it| it == CLEANUP_FINALIZER)
        {
            finalizers.push(json!(CLEANUP_FINALIZER));
        }
    }
    let message = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
    set_condition(tree, &Condition::new("Terminating", "True", "InstanceDeletionPending", message), now);
}

/// Formats that say nothing, unless they did so before.
pub fn warnings(new: &Tree, old: Option<&Tree>) -> Vec<String> {
    let known = old.map(unknown_formats).unwrap_or_default();
    let found = unknown_formats(new);
    let fresh = found.iter().filter(|format| !known.contains(format));
    fresh.map(|format| format!("unrecognized format {}", gotext::quote(format))).collect()
}

fn unknown_formats(tree: &Tree) -> Vec<String> {
    let definition = Definition::read(tree);
    let mut formats = Vec::new();
    let mut before = None;
    for schema in definition.schemas() {
        // Versions that share one schema are looked at once.
        if before.replace(schema) != Some(schema) {
            collect_unknown_formats(schema, &mut formats);
        }
    }
    formats
}

fn collect_unknown_formats(schema: &Structural, formats: &mut Vec<String>) {
    let format = schema.format.as_str();
    let is_known = match schema.type_name.as_str() {
        _ if format.is_empty() => true,
        "" | "string" => is_known_format(format),
        "integer" => matches!(format, "int32" | "int64"),
        "number" => matches!(format, "float" | "double"),
        _ => false,
    };
    if !is_known {
        formats.push(format.to_owned());
    }
    schema.children().for_each(|child| collect_unknown_formats(child, formats));
}
