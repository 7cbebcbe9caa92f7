//! Pods and pod templates.
//!
//! ```text
//!   defaults ──> what the author left open
//!   spec ──> volumes, containers (environment, mounts, probes, resources), security, affinity
//!   options ──> what a stored spec may keep though a new one could not have it
//! ```

mod affinity;
mod amounts;
mod annotations;
mod containers;
mod defaults;
mod environment;
mod images;
mod mounts;
mod options;
mod probes;
mod resources;
mod security;
mod spec;
mod volumes;

use self::options::Options;
use super::parts::{Path, items, list, object};
use crate::{field_error::Cause, metadata, resource::Tree};

pub use defaults::{default_pod, default_spec, default_template};

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
