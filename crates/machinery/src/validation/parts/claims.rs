//! Claims of volumes, also in the templates of them that pods and stateful sets hold.

use serde_json::{Value, json};

use super::{
    Path, dns_subdomain, invalid_each, object, positive_quantity, resource_quantity, template_metadata, text,
    texts,
};
use crate::{field_error::Cause, names, resource::Tree, selector};

const ACCESS_MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
const VOLUME_MODES: [&str; 2] = ["Block", "Filesystem"];
const ONLY_POD: &str = "ReadWriteOncePod";

/// What the spec of a claim may keep from the one it replaces.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClaimOptions {
    pub any_selector_value: bool,
    pub any_source_group: bool,
}

/// A template of claims inside another object.
pub fn claim_template(template: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let empty = Tree::new();
    let mut causes = Vec::new();
    if let Some(metadata) = object(template, "metadata") {
        causes.extend(template_metadata(metadata, &path.child("metadata")));
    }
    let spec = object(template, "spec").unwrap_or(&empty);
    causes.extend(claim_spec(spec, ClaimOptions::default(), &path.child("spec")));
    causes
}

pub fn claim_spec(spec: &Tree, options: ClaimOptions, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let modes_path = path.child("accessModes");
    if texts(spec, "accessModes").next().is_none() {
        causes.push(Cause::required(&modes_path, "at least 1 access mode is required"));
    }
    if let Some(selector) = spec.get("selector") {
        let field = path.child("selector").to_string();
        causes.extend(selector::validate_object_with(selector, &field, options.any_selector_value));
    }
    let unknown = texts(spec, "accessModes").filter(|mode| !ACCESS_MODES.contains(mode));
    causes.extend(unknown.map(|mode| Cause::not_supported(&modes_path, &json!(mode), &ACCESS_MODES)));
    let has_other = texts(spec, "accessModes").any(|it| it != ONLY_POD && ACCESS_MODES.contains(&it));
    if has_other && texts(spec, "accessModes").any(|mode| mode == ONLY_POD) {
        causes.push(Cause::forbidden(&modes_path, "may not use ReadWriteOncePod with other access modes"));
    }
    causes.extend(storage_request(spec, &path.child("resources").key("storage")));
    causes.extend(class_name(spec, "storageClassName", path));
    let mode = spec.get("volumeMode").and_then(Value::as_str).filter(|mode| !VOLUME_MODES.contains(mode));
    causes.extend(mode.map(|it| Cause::not_supported(&path.child("volumeMode"), &json!(it), &VOLUME_MODES)));
    causes.extend(data_sources(spec, options, path));
    causes.extend(class_name(spec, "volumeAttributesClassName", path));
    causes
}

fn storage_request(spec: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let requests = object(spec, "resources").and_then(|resources| object(resources, "requests"));
    let Some(storage) = requests.and_then(|requests| requests.get("storage")) else {
        return vec![Cause::required(path, "")];
    };
    match positive_quantity(storage, path) {
        Some(cause) => vec![cause],
        None => resource_quantity("storage", storage, path),
    }
}

fn class_name(spec: &Tree, key: &str, path: &Path<'_>) -> Vec<Cause> {
    match text(spec, key) {
        "" => Vec::new(),
        name => invalid_each(&path.child(key), name, names::subdomain_name(name, false)).collect(),
    }
}

/// What a volume is filled with, in the old field and in the new one.
fn data_sources(spec: &Tree, options: ClaimOptions, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let (source, reference) = (object(spec, "dataSource"), object(spec, "dataSourceRef"));
    for (key, source) in [("dataSource", source), ("dataSourceRef", reference)] {
        if let Some(source) = source {
            causes.extend(data_source(source, options, &path.child(key)));
        }
    }
    let (Some(source), Some(reference)) = (source, reference) else { return causes };
    let same = ["apiGroup", "kind", "name"].iter().all(|key| source.get(*key) == reference.get(*key));
    let detail = match (text(reference, "namespace"), same) {
        ("", true) => return causes,
        ("", false) => "must match dataSourceRef",
        _ => "may not be specified when dataSourceRef.namespace is specified",
    };
    // Upstream shows the path as the value, and paths have no fields to show.
    causes.push(Cause::invalid_text(path, "{}", detail));
    causes
}

fn data_source(source: &Tree, options: ClaimOptions, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    for key in ["name", "kind"] {
        if text(source, key).is_empty() {
            causes.push(Cause::required(&path.child(key), ""));
        }
    }
    let (group, kind) = (text(source, "apiGroup"), text(source, "kind"));
    if group.is_empty() && kind != "PersistentVolumeClaim" {
        let detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
        causes.push(Cause::invalid(path, &json!(kind), detail));
    }
    if !group.is_empty() && !options.any_source_group {
        causes.extend(dns_subdomain(group, &path.child("apiGroup")));
    }
    let namespace = text(source, "namespace");
    if !namespace.is_empty() {
        let reasons = names::label_name(namespace, false);
        causes.extend(invalid_each(&path.child("namespace"), namespace, reasons));
    }
    causes
}

/// The name of a driver of volumes.
pub fn csi_driver_name(name: &str, path: &Path<'_>) -> Vec<Cause> {
    if name.is_empty() {
        return vec![Cause::required(path, "")];
    }
    let too_long = (name.len() > names::LABEL_MAX).then(|| Cause::too_long(path, names::LABEL_MAX));
    let reasons = names::is_dns1123_subdomain(&name.to_lowercase());
    too_long.into_iter().chain(invalid_each(path, name, reasons)).collect()
}
