//! Claims of persistent volumes.

use serde_json::{Value, json};

use super::{
    super::{
        annotation, label_selector,
        members::{assign, default_to, made},
        pod::{round_up, shape},
    },
    CLASS_ANNOTATION, basic_quantity, immutable, quantity, storage_in,
};
use crate::{
    field_error::Cause,
    gotext, names,
    quantity::Quantity,
    resource::Tree,
    validation::parts::{
        self, ClaimOptions, Path, claim_spec, entries, invalid_each, object, object_mut, resource_quantity,
        set_default, text,
    },
};

const SPEC: Path<'_> = Path::new("spec");
const ATTRIBUTES_CLASS: &str = "volumeAttributesClassName";

pub fn prepare_create(tree: &mut Tree) {
    tree.insert("status".into(), json!({"phase": "Pending"}));
    let spec = made(tree, "spec");
    drop_foreign_source(spec, None);
    drop_unknown_source(spec, None);
    mirror_sources(spec);
}

pub fn prepare_update(new: &mut Tree, old: &Tree) {
    let was = object(old, "spec");
    let spec = made(new, "spec");
    drop_foreign_source(spec, was);
    drop_unknown_source(spec, was);
    mirror_sources(spec);
}

fn is_set(spec: &Tree, key: &str) -> bool {
    object(spec, key).is_some()
}

/// Sources in other namespaces belong to a feature that is off.
fn drop_foreign_source(spec: &mut Tree, was: Option<&Tree>) {
    let is_foreign = object(spec, "dataSourceRef").is_some_and(|it| !text(it, "namespace").is_empty());
    if is_foreign && !was.is_some_and(|was| is_set(was, "dataSourceRef")) {
        spec.remove("dataSourceRef");
    }
}

/// The older of both fields ignores what it does not know.
fn drop_unknown_source(spec: &mut Tree, was: Option<&Tree>) {
    let had_any = was.is_some_and(|was| is_set(was, "dataSource") || is_set(was, "dataSourceRef"));
    if had_any || is_set(spec, "dataSourceRef") {
        return;
    }
    let is_known = object(spec, "dataSource").is_some_and(|it| {
        matches!(
            (text(it, "kind"), text(it, "apiGroup")),
            ("PersistentVolumeClaim", "") | ("VolumeSnapshot", "snapshot.storage.k8s.io")
        )
    });
    if !is_known {
        spec.remove("dataSource");
    }
}

/// Both fields say the same.
fn mirror_sources(spec: &mut Tree) {
    let copy = |source: &Tree| -> Value {
        let mut copy = source.clone();
        copy.remove("namespace");
        copy.into()
    };
    match (object(spec, "dataSource"), object(spec, "dataSourceRef")) {
        (Some(source), None) => {
            let copy = copy(source);
            spec.insert("dataSourceRef".into(), copy);
        }
        (None, Some(reference)) if text(reference, "namespace").is_empty() => {
            let copy = copy(reference);
            spec.insert("dataSource".into(), copy);
        }
        _ => {}
    }
}

pub fn default(tree: &mut Tree) {
    let status = made(tree, "status");
    set_default(status, "phase", "Pending");
    round_up(status, "capacity");
    round_up(status, "allocatedResources");
    if let Some(spec) = object_mut(tree, "spec") {
        default_spec(spec);
    }
}

/// Also of a claim that is a template.
pub fn default_spec(spec: &mut Tree) {
    default_to(spec, "volumeMode", "Filesystem");
    if let Some(resources) = object_mut(spec, "resources") {
        round_up(resources, "limits");
        round_up(resources, "requests");
    }
}

/// What stored claims had before rules became stricter.
fn leniency(spec: &Tree) -> ClaimOptions {
    let has_group = |key: &str| object(spec, key).is_some_and(|it| is_present(it, "apiGroup"));
    ClaimOptions {
        any_selector_value: !label_selector(spec.get("selector"), &SPEC, false).is_empty(),
        any_source_group: has_group("dataSource") || has_group("dataSourceRef"),
    }
}

pub fn validate(new: &Tree, old: Option<&Tree>) -> Vec<Cause> {
    let empty = Tree::new();
    let spec = object(new, "spec").unwrap_or(&empty);
    let was = old.map(|old| object(old, "spec").unwrap_or(&empty));
    let mut causes = claim_spec(spec, was.map(leniency).unwrap_or_default(), &SPEC);
    if let (Some(old), Some(was)) = (old, was) {
        causes.extend(changes(new, old, spec, was));
    }
    causes
}

fn is_present(tree: &Tree, key: &str) -> bool {
    tree.get(key).is_some_and(|value| !value.is_null())
}

fn requested(spec: &Tree) -> Quantity {
    let requests = object(spec, "resources").and_then(|resources| object(resources, "requests"));
    storage_in(requests).unwrap_or(Quantity::ZERO)
}

fn changes(new: &Tree, old: &Tree, spec: &Tree, was: &Tree) -> Vec<Cause> {
    let mut causes = Vec::new();
    let (now_annotation, was_annotation) =
        (annotation(new, CLASS_ANNOTATION), annotation(old, CLASS_ANNOTATION));
    let now_class = spec.get("storageClassName").and_then(Value::as_str);
    let had_class = is_present(was, "storageClassName");
    let follows_annotation = was_annotation.is_some()
        && !had_class
        && now_class == was_annotation
        && (now_annotation.is_none() || now_annotation == was_annotation);
    if !follows_annotation && now_annotation.unwrap_or_default() != was_annotation.unwrap_or_default() {
        let path = format!("metadata.annotations.{CLASS_ANNOTATION}");
        let value = json!(now_annotation.unwrap_or_default());
        causes.push(Cause::invalid(path, &value, parts::IMMUTABLE));
    }
    let follows_nothing =
        now_class.is_some() && !had_class && (was_annotation.is_none() || was_annotation == now_class);
    let (now, before) = compared(new, spec, was, (follows_annotation, follows_nothing));
    if now != before {
        let diff = shape::changes("PersistentVolumeClaimSpec", &before, &now);
        let detail = format!(
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n{diff}"
        );
        causes.push(Cause::forbidden(&SPEC, &detail));
    }
    let held = storage_in(object(old, "status").and_then(|status| object(status, "capacity")));
    let (size, had) = (requested(spec), requested(was));
    if size < had && size <= held.unwrap_or(Quantity::ZERO) {
        let detail = "field can not be less than status.capacity";
        causes.push(Cause::forbidden(
            Path::new("spec.resources.requests").child("storage").to_string(),
            detail,
        ));
    }
    causes.extend(immutable(spec, was, "volumeMode", &Path::new("volumeMode")));
    causes.extend(attributes_class_change(old, spec, was));
    causes
}

/// The new spec and the old one, the same in what may change.
fn compared(new: &Tree, spec: &Tree, was: &Tree, follows: (bool, bool)) -> (Tree, Tree) {
    let (mut now, mut before) = (spec.clone(), was.clone());
    if text(&before, "volumeName").is_empty() {
        assign(&mut before, "volumeName", now.get("volumeName").cloned());
    }
    match follows {
        (true, _) => drop(now.remove("storageClassName")),
        (false, true) => assign(&mut now, "storageClassName", was.get("storageClassName").cloned()),
        _ => {}
    }
    let is_bound = object(new, "status").is_some_and(|status| text(status, "phase") == "Bound");
    if is_bound {
        assign(&mut now, ATTRIBUTES_CLASS, was.get(ATTRIBUTES_CLASS).cloned());
        let requests = object_mut(&mut now, "resources").and_then(|it| object_mut(it, "requests"));
        let had = object(was, "resources").and_then(|it| object(it, "requests")?.get("storage").cloned());
        if let Some(requests) = requests {
            assign(requests, "storage", had);
        }
    }
    (now, before)
}

/// A class of attributes that was applied can be changed, not taken away.
fn attributes_class_change(old: &Tree, spec: &Tree, was: &Tree) -> Option<Cause> {
    let class = |spec: &Tree| spec.get(ATTRIBUTES_CLASS).filter(|class| !class.is_null()).cloned();
    let applied = object(old, "status").is_some_and(|it| is_present(it, "currentVolumeAttributesClassName"));
    if class(spec) == class(was) || !applied {
        return None;
    }
    let what = match class(spec) {
        None => "nil",
        Some(class) if class == "" => "empty string",
        Some(_) => return None,
    };
    let detail =
        format!("update to {what} is forbidden when status.currentVolumeAttributesClassName is not nil");
    Some(Cause::forbidden(&SPEC.child(ATTRIBUTES_CLASS), &detail))
}

/// What is wrong with a new status.
pub fn status(new: &Tree, _: &Tree) -> Vec<Cause> {
    let empty = Tree::new();
    let status = object(new, "status").unwrap_or(&empty);
    let mut causes = Vec::new();
    if object(new, "spec").is_none_or(|spec| parts::list(spec, "accessModes").is_empty()) {
        causes.push(Cause::required("Spec.accessModes", ""));
    }
    let path = Path::new("status");
    let capacity = path.child("capacity");
    for (name, value) in entries(status, "capacity") {
        causes.extend(basic_quantity(value, &capacity.key(name)));
    }
    causes.extend(resizes(status, &path.child("allocatedResourceStatuses")));
    let allocated = path.child("allocatedResources");
    for (name, value) in entries(status, "allocatedResources") {
        let named = resource_key(name, &allocated);
        if !named.is_empty() {
            causes.extend(named);
            continue;
        }
        match basic_quantity(value, &allocated.key(name)) {
            Some(cause) => causes.push(cause),
            None => causes.extend(resource_quantity("storage", value, &allocated.key(name))),
        }
    }
    causes
}

fn resizes(status: &Tree, path: &Path<'_>) -> Vec<Cause> {
    const STATES: [&str; 5] = [
        "ControllerResizeInProgress",
        "ControllerResizeInfeasible",
        "NodeResizeInProgress",
        "NodeResizeInfeasible",
        "NodeResizePending",
    ];
    let mut causes = Vec::new();
    for (name, state) in entries(status, "allocatedResourceStatuses") {
        causes.extend(resource_key(name, path));
        if !STATES.iter().any(|known| state == known) {
            // Upstream shows the resource, not the state.
            causes.push(Cause::not_supported(path, &json!(name), &STATES));
        }
    }
    causes
}

/// Kubernetes' own names are `storage` and no other.
fn resource_key(name: &str, path: &Path<'_>) -> Vec<Cause> {
    let reasons = names::is_qualified_name(name);
    if !reasons.is_empty() {
        return invalid_each(path, name, reasons).collect();
    }
    if parts::is_native_resource(name) && name != "storage" {
        return vec![Cause::not_supported(path, &json!(name), &["storage"])];
    }
    Vec::new()
}

pub fn warn(new: &Tree, _: Option<&Tree>) -> Vec<String> {
    let mut warnings = Vec::new();
    if annotation(new, CLASS_ANNOTATION).is_some() {
        let message = "deprecated since v1.8; use \"storageClassName\" attribute instead";
        warnings.push(format!("metadata.annotations[{CLASS_ANNOTATION}]: {message}"));
    }
    if let Some(spec) = object(new, "spec") {
        warnings.extend(warn_spec(spec, &SPEC));
    }
    warnings
}

/// Also of a claim that is a template.
pub fn warn_spec(spec: &Tree, path: &Path<'_>) -> Vec<String> {
    let mut warnings = Vec::new();
    for key in ["requests", "limits"] {
        let resources = object(spec, "resources").and_then(|resources| object(resources, key));
        let Some(value) = resources.and_then(|resources| resources.get("storage")) else { continue };
        let amount = quantity(value);
        if amount.milli_value() % 1000 != 0 {
            let shown = gotext::quote(&amount.to_string());
            let problem = format!("fractional byte value {shown} is invalid, must be an integer");
            warnings.push(format!("{path}.resources.{key}[storage]: {problem}"));
        }
    }
    warnings
}
