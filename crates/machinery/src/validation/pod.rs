//! Pods and pod templates.
//!
//! ```text
//!   defaults ──> what the author left open
//!   create, update, resize, status ──> what may be asked of a pod, by path and time
//!   spec ──> volumes, containers (environment, mounts, probes, resources), security, affinity
//!   options ──> what a stored spec may keep though a new one could not have it
//! ```

mod affinity;
mod amounts;
mod annotations;
mod containers;
mod create;
mod defaults;
mod environment;
mod equality;
mod images;
mod mounts;
mod options;
mod probes;
mod resize;
mod resources;
mod security;
pub(super) mod shape;
mod spec;
mod status;
mod update;
mod volumes;
mod warnings;

use serde_json::Value;

use self::options::Options;
use super::parts::{Path, items, list, object};
use crate::{field_error::Cause, metadata, resource::Tree};

pub use amounts::quality_of_service;
pub(super) use amounts::round_up;
pub use create::prepare_pod;
pub use defaults::{default_pod, default_spec, default_template};
pub use resize::{only_resources, resized_pod};
pub use status::{changed_status, only_status};
pub use update::{added_ephemeral_containers, only_ephemeral_containers};
pub use warnings::{
    claim_spec as claim_warnings, node_selector_term as node_selector_warnings, old_node_label,
};

/// What is wrong with a pod, new or changed.
pub fn pod(new: &Tree, old: Option<&Tree>) -> Vec<Cause> {
    match old {
        Some(old) => update::changed_pod(new, old),
        None => create::new_pod(new),
    }
}

/// What the author of a pod should know.
pub fn pod_warnings(new: &Tree, old: Option<&Tree>) -> Vec<String> {
    match old {
        // Only by its own path does the status change.
        Some(old) if new.get("status") != old.get("status") => status::warnings(new),
        Some(_) => Vec::new(),
        None => once(warnings::of_new_pod(new)),
    }
}

/// What the author of a template at `path` should know.
pub fn template_warnings(template: &Tree, path: &str) -> Vec<String> {
    once(warnings::of_template(template, path))
}

/// Nobody is told the same twice.
fn once(warnings: Vec<String>) -> Vec<String> {
    let mut told = std::collections::BTreeSet::new();
    warnings.into_iter().filter(|warning| told.insert(warning.clone())).collect()
}

/// What is wrong with a spec of pods at `path` outside of a template; `old` is the one it replaces.
pub fn spec(spec: &Tree, old: Option<&Tree>, path: &str) -> Vec<Cause> {
    let options = old.map_or(Options::of_new(false), |old| Options::of_update(false, old, None));
    spec::spec(spec, None, &Path::new(path), &options)
}

/// How many seconds a pod that is deleted has to end by itself: what was asked for or what it says, but none if it
/// does not run anywhere or has ended already.
pub fn grace(pod: &Tree, asked: Option<i64>) -> i64 {
    let spec = pod.get("spec").and_then(Value::as_object);
    let number = |key: &str| spec.and_then(|spec| spec.get(key)).and_then(Value::as_i64);
    let on_node =
        spec.and_then(|spec| spec.get("nodeName")).and_then(Value::as_str).is_some_and(|it| !it.is_empty());
    let phase = pod.get("status").and_then(|status| status.get("phase")).and_then(Value::as_str);
    if !on_node || matches!(phase, Some("Failed" | "Succeeded")) {
        return 0;
    }
    match asked.or(number("terminationGracePeriodSeconds")).unwrap_or(0) {
        ..0 => 1,
        seconds => seconds,
    }
}

/// How upstream spells the path to the pod as a whole.
const NOWHERE: &str = "[]";

/// Every container with the list it is in and its place there, in the order in which they start.
fn each_container(spec: &Tree) -> impl Iterator<Item = (&Tree, &'static str, usize)> {
    ["initContainers", "containers", "ephemeralContainers"]
        .into_iter()
        .flat_map(|kind| items(spec, kind).map(move |(at, container)| (container, kind, at)))
}

/// What is wrong with a template at `path`; `old` is the one it replaces.
pub fn template(template: &Tree, old: Option<&Tree>, path: &str) -> Vec<Cause> {
    let empty = Tree::new();
    let path = Path::new(path);
    let (labels_path, annotations_path) = (path.child("labels"), path.child("annotations"));
    let own_metadata = object(template, "metadata");
    let own_spec = object(template, "spec").unwrap_or(&empty);
    let options = match old {
        Some(old) => {
            Options::of_update(false, object(old, "spec").unwrap_or(&empty), object(old, "metadata"))
        }
        None => Options::of_new(false),
    };
    let member = |key: &str| own_metadata.and_then(|metadata| metadata.get(key));
    let mut causes = metadata::labels(member("labels"), &labels_path.to_string());
    causes.extend(metadata::annotations(member("annotations"), &annotations_path.to_string()));
    let any_cost = options.any_deletion_cost;
    causes.extend(annotations::annotations(own_metadata, own_spec, any_cost, &annotations_path));
    let spec_path = path.child("spec");
    causes.extend(spec::spec(own_spec, None, &spec_path, &options));
    causes.extend(annotations::matching_profiles(own_metadata, own_spec, &spec_path));
    if !list(own_spec, "ephemeralContainers").is_empty() {
        let detail = "ephemeral containers not allowed in pod template";
        causes.push(Cause::forbidden(&spec_path.child("ephemeralContainers"), detail));
    }
    causes
}

#[cfg(test)]
mod tests;
