//! kubectl's annotation: what it applied before the server did.

use serde_json::{Value, json};

use super::{Conflict, Duplicates, FieldSet, Request, compare_trees, tree_field_set};
use crate::{gotext, resource::Tree};

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// The manager that kubectl is for server-side apply; it alone goes on where its annotation ends.
pub(super) const KUBECTL: &str = "kubectl";
const MAX_ANNOTATIONS_BYTES: usize = 256 * 1024;

/// The conflicts that are not about what kubectl itself applied last, and that is still so.
pub(super) fn remaining_conflicts(
    request: &Request<'_>,
    live: &Tree,
    conflicts: Vec<Conflict>,
) -> Vec<Conflict> {
    let Some(own) = still_as_applied(request, live) else { return conflicts };
    conflicts.into_iter().filter(|conflict| !own.has(&conflict.path)).collect()
}

/// The fields of the last applied configuration that the object has unchanged.
fn still_as_applied(request: &Request<'_>, live: &Tree) -> Option<FieldSet> {
    let text = annotations(live)?.get(ANNOTATION)?.as_str()?;
    let Value::Object(applied) = serde_json::from_str(text).ok()? else { return None };
    let kind = applied.get("kind").and_then(Value::as_str).unwrap_or_default();
    if kind.is_empty() || applied.get("apiVersion").and_then(Value::as_str) != Some(request.api_version) {
        return None;
    }
    let live = request.typed(live, Duplicates::Refused).ok()?;
    let applied = request.typed(&applied, Duplicates::Refused).ok()?;
    let comparison = compare_trees(live.ty, &applied.tree, &live.tree).ok()?;
    let set = tree_field_set(applied.ty, &applied.tree).ok()?;
    Some(set.difference(&comparison.modified).difference(&comparison.added).difference(&comparison.removed))
}

fn annotations(tree: &Tree) -> Option<&Tree> {
    tree.get("metadata")?.get("annotations")?.as_object()
}

/// Brings the annotation up to date, if there is one.
pub(super) fn refresh(object: &mut Tree, config: &Tree) {
    let has_text = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty());
    if !annotations(object).and_then(|annotations| annotations.get(ANNOTATION)).is_some_and(has_text) {
        return;
    }
    let text = last_applied(config);
    let annotations = object.get_mut("metadata").and_then(|metadata| metadata.get_mut("annotations"));
    let Some(Value::Object(annotations)) = annotations else { return };
    annotations.insert(ANNOTATION.to_owned(), json!(text));
    let size = |(key, value): (&String, &Value)| key.len() + value.as_str().map_or(0, str::len);
    if annotations.iter().map(size).sum::<usize>() > MAX_ANNOTATIONS_BYTES {
        annotations.remove(ANNOTATION);
    }
}

/// The configuration as the annotation holds it, without the annotation itself.
fn last_applied(config: &Tree) -> String {
    let mut config = config.clone();
    if let Some(Value::Object(metadata)) = config.get_mut("metadata") {
        match metadata.get_mut("annotations") {
            Some(Value::Object(annotations)) if annotations.values().all(Value::is_string) => {
                annotations.remove(ANNOTATION);
            }
            _ => drop(metadata.remove("annotations")),
        }
    }
    gotext::json(&config) + "\n"
}
