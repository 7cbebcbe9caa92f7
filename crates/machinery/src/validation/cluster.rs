//! Kinds about the machines, their storage and their limits: their defaults and rules.

pub mod claim;
pub mod classes;
pub mod limits;
pub mod node;
pub mod quota;
pub mod storage;
pub mod volume;

use serde_json::{Value, json};

use super::parts::{Path, list, texts};
use crate::{field_error::Cause, quantity::Quantity, resource::Tree};

const ACCESS_MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
const VOLUME_MODES: [&str; 2] = ["Block", "Filesystem"];
/// The annotation that came before `storageClassName`.
const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

/// How a volume may be mounted; one way excludes all others.
fn access_modes(spec: &Tree, path: &Path<'_>, why_required: &str) -> (Option<Cause>, Vec<Cause>) {
    let path = path.child("accessModes");
    let missing = list(spec, "accessModes").is_empty().then(|| Cause::required(&path, why_required));
    let unknown = texts(spec, "accessModes").filter(|mode| !ACCESS_MODES.contains(mode));
    let mut causes: Vec<Cause> =
        unknown.map(|mode| Cause::not_supported(&path, &json!(mode), &ACCESS_MODES)).collect();
    let has = |wanted: bool| {
        texts(spec, "accessModes")
            .any(|it| ACCESS_MODES.contains(&it) && (it == "ReadWriteOncePod") == wanted)
    };
    if has(true) && has(false) {
        causes.push(Cause::forbidden(&path, "may not use ReadWriteOncePod with other access modes"));
    }
    (missing, causes)
}

fn volume_mode(spec: &Tree, path: &Path<'_>) -> Option<Cause> {
    let mode = spec.get("volumeMode").and_then(Value::as_str)?;
    let path = path.child("volumeMode");
    (!VOLUME_MODES.contains(&mode)).then(|| Cause::not_supported(&path, &json!(mode), &VOLUME_MODES))
}

fn quantity(value: &Value) -> Quantity {
    value.as_str().and_then(|text| Quantity::parse(text).ok()).unwrap_or(Quantity::ZERO)
}

/// The amount of storage in a list of resources.
fn storage_in(tree: Option<&Tree>) -> Option<Quantity> {
    tree.and_then(|resources| resources.get("storage")).map(quantity)
}

/// An amount that is not below zero, rounded to whole numbers.
fn basic_quantity(value: &Value, path: &Path<'_>) -> Option<Cause> {
    let number = quantity(value).value();
    (number < 0).then(|| Cause::invalid(path, &json!(number), "must be a valid resource quantity"))
}

/// What was said of labels of nodes that have been renamed.
fn deprecated_label(key: &str) -> Option<&'static str> {
    Some(match key {
        "beta.kubernetes.io/arch" => "deprecated since v1.14; use \"kubernetes.io/arch\" instead",
        "beta.kubernetes.io/os" => "deprecated since v1.14; use \"kubernetes.io/os\" instead",
        "failure-domain.beta.kubernetes.io/region" => {
            "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead"
        }
        "failure-domain.beta.kubernetes.io/zone" => {
            "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead"
        }
        "beta.kubernetes.io/instance-type" => {
            "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead"
        }
        "app.kubernetes.io/created-by" => "deprecated since v1.9",
        "scheduler.alpha.kubernetes.io/preferAvoidPods" => {
            "deprecated since v1.22; use Taints and Tolerations instead"
        }
        "node-role.kubernetes.io/master" => "use \"node-role.kubernetes.io/control-plane\" instead",
        _ => return None,
    })
}

fn immutable(new: &Tree, old: &Tree, key: &str, path: &Path<'_>) -> Option<Cause> {
    let now = new.get(key).unwrap_or(&Value::Null);
    let was = old.get(key).unwrap_or(&Value::Null);
    (now != was).then(|| Cause::invalid(path, now, super::parts::IMMUTABLE))
}

#[cfg(test)]
mod tests;
