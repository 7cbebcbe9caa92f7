//! Default classes, and what protects storage that is in use.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::amounts::amounts_of;
use crate::{
    quantity::Quantity,
    resource::Tree,
    validation::parts::{flag, object, object_mut, text, texts},
};

const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";
const INGRESS_ANNOTATION: &str = "kubernetes.io/ingress.class";
const DEFAULT_STORAGE: [&str; 2] =
    ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
const DEFAULT_INGRESS: [&str; 1] = ["ingressclass.kubernetes.io/is-default-class"];

fn annotation<'a>(object_: &'a Tree, key: &str) -> Option<&'a str> {
    object(object(object_, "metadata")?, "annotations")?.get(key)?.as_str()
}

fn member<'a>(object_: &'a Tree, key: &str) -> &'a str {
    object(object_, "metadata").map(|metadata| text(metadata, key)).unwrap_or_default()
}

/// The class of a claim, be it empty; the annotation is older and goes first.
pub fn storage_class(claim: &Tree) -> Option<&str> {
    annotation(claim, CLASS_ANNOTATION).or_else(|| object(claim, "spec")?.get("storageClassName")?.as_str())
}

/// Whether an ingress says who serves it.
pub fn has_ingress_class(ingress: &Tree) -> bool {
    let named =
        object(ingress, "spec").and_then(|spec| spec.get("ingressClassName")).is_some_and(Value::is_string);
    named || annotation(ingress, INGRESS_ANNOTATION).is_some()
}

/// Of the classes that are marked as default, the newest; of equally old ones the first by name.
fn newest_default<'a>(classes: impl IntoIterator<Item = &'a Tree>, marks: &[&str]) -> Option<String> {
    let marked =
        classes.into_iter().filter(|class| marks.iter().any(|mark| annotation(class, mark) == Some("true")));
    let best = marked.min_by(|a, b| {
        let by_age = member(b, "creationTimestamp").cmp(member(a, "creationTimestamp"));
        by_age.then_with(|| member(a, "name").cmp(member(b, "name")))
    });
    best.map(|class| member(class, "name").to_owned())
}

pub fn default_storage_class<'a>(classes: impl IntoIterator<Item = &'a Tree>) -> Option<String> {
    newest_default(classes, &DEFAULT_STORAGE)
}

pub fn default_ingress_class<'a>(classes: impl IntoIterator<Item = &'a Tree>) -> Option<String> {
    newest_default(classes, &DEFAULT_INGRESS)
}

/// Sets a text of the spec.
pub fn set_in_spec(object_: &mut Tree, key: &str, value: &str) {
    object_.entry("spec").or_insert_with(|| json!({}));
    if let Some(spec) = object_mut(object_, "spec") {
        spec.insert(key.to_owned(), json!(value));
    }
}

/// The attribute classes that a claim or a volume has, is to have, or is on its way to.
pub fn attribute_classes(user: &Tree) -> BTreeSet<&str> {
    let (spec, status) = (object(user, "spec"), object(user, "status"));
    let modified = status.and_then(|status| object(status, "modifyVolumeStatus"));
    let named = [
        spec.map(|it| text(it, "volumeAttributesClassName")),
        status.map(|it| text(it, "currentVolumeAttributesClassName")),
        modified.map(|it| text(it, "targetVolumeAttributesClassName")),
    ];
    named.into_iter().flatten().filter(|name| !name.is_empty()).collect()
}

/// The finalizer that keeps an object of this kind while it is in use.
pub fn protection(group: &str, resource: &str) -> Option<&'static str> {
    Some(match (group, resource) {
        ("", "persistentvolumes") => "kubernetes.io/pv-protection",
        ("", "persistentvolumeclaims") => "kubernetes.io/pvc-protection",
        ("storage.k8s.io", "volumeattributesclasses") => "kubernetes.io/vac-protection",
        _ => return None,
    })
}

pub fn protect(object_: &mut Tree, finalizer: &str) {
    let metadata = object_.entry("metadata").or_insert_with(|| json!({}));
    let Some(metadata) = metadata.as_object_mut() else { return };
    if texts(metadata, "finalizers").any(|it| it == finalizer) {
        return;
    }
    let finalizers = metadata.entry("finalizers").or_insert_with(|| json!([]));
    match finalizers.as_array_mut() {
        Some(finalizers) => finalizers.push(json!(finalizer)),
        None => *finalizers = json!([finalizer]),
    }
}

/// Why a claim cannot grow; `class` finds a storage class by its name.
pub fn check_growth(
    new: &Tree,
    old: &Tree,
    class: impl FnOnce(&str) -> Option<Tree>,
) -> Result<(), &'static str> {
    let size = |claim: &Tree| {
        let requests = object(claim, "spec").map(|spec| amounts_of(spec, "requests")).unwrap_or_default();
        requests.get("storage").cloned().unwrap_or(Quantity::ZERO)
    };
    if size(new) <= size(old) {
        return Ok(());
    }
    if object(old, "status").map(|status| text(status, "phase")) != Some("Bound") {
        return Err("Only bound persistent volume claims can be expanded");
    }
    let named = storage_class(new).filter(|name| !name.is_empty() && Some(*name) == storage_class(old));
    match named.and_then(class).is_some_and(|class| flag(&class, "allowVolumeExpansion")) {
        true => Ok(()),
        false => Err(
            "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk_class(name: &str, created: &str, mark: Value) -> Tree {
        let class = json!({"metadata": {"name": name, "creationTimestamp": created,
            "annotations": {"storageclass.kubernetes.io/is-default-class": mark}}});
        class.as_object().cloned().unwrap_or_default()
    }

    #[test]
    fn the_newest_default_wins() {
        let classes = [
            mk_class("old", "2026-01-01T00:00:00Z", json!("true")),
            mk_class("b", "2026-01-02T00:00:00Z", json!("true")),
            mk_class("a", "2026-01-02T00:00:00Z", json!("true")),
            mk_class("newest", "2026-01-03T00:00:00Z", json!("false")),
        ];
        assert_eq!(default_storage_class(&classes).as_deref(), Some("a"));
        assert_eq!(default_storage_class(&classes[3..]), None);
    }

    #[test]
    fn only_bound_claims_of_classes_that_allow_it_grow() {
        let claim = |size: &str, phase: &str| {
            let claim = json!({
                "spec": {"storageClassName": "fast", "resources": {"requests": {"storage": size}}},
                "status": {"phase": phase},
            });
            claim.as_object().cloned().unwrap_or_default()
        };
        let allows =
            |allows: bool| move |_: &str| json!({"allowVolumeExpansion": allows}).as_object().cloned();
        let (small, large) = (claim("1Gi", "Bound"), claim("2Gi", "Bound"));
        assert_eq!(check_growth(&large, &small, allows(true)), Ok(()));
        assert_eq!(check_growth(&small, &large, allows(false)), Ok(()), "smaller is not for this rule");
        assert!(check_growth(&large, &small, allows(false)).is_err());
        assert!(check_growth(&large, &claim("1Gi", "Pending"), allows(true)).is_err());
    }
}
