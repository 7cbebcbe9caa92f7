//! ControllerRevisions: the templates that a StatefulSet or DaemonSet has had.

use std::cmp::Ordering;

use serde_json::{Value, json};

use super::template;
use crate::{Kind, World, kind, tree};

/// Longest part of a revision's name that comes from its owner's.
const NAME_PREFIX: usize = 223;

/// What a revision keeps of an object: a patch that brings its template back.
pub fn data(object: &Value) -> Value {
    let mut template = object.pointer("/spec/template").cloned().unwrap_or_default();
    template["$patch"] = "replace".into();
    json!({ "spec": { "template": template } })
}

/// The template that a revision keeps.
pub fn template(revision: &Value) -> Value {
    let mut template = revision.pointer("/data/spec/template").cloned().unwrap_or_default();
    if let Some(members) = template.as_object_mut() {
        members.remove("$patch");
    }
    template
}

pub fn is_of(revision: &Value, data: &Value) -> bool {
    template::pruned(&revision["data"]) == template::pruned(data)
}

pub fn number(revision: &Value) -> i64 {
    tree::number(revision, "/revision").unwrap_or(0)
}

/// Oldest first.
pub fn in_order(one: &Value, other: &Value) -> Ordering {
    let key = |revision: &Value| (number(revision), tree::time(revision, "/metadata/creationTimestamp"));
    key(one).cmp(&key(other)).then_with(|| tree::name(one).cmp(tree::name(other)))
}

/// A revision to be made, and how many names were taken by others.
pub struct Fresh {
    pub object: Value,
    pub collisions: i64,
}

/// Of `owner` as it is now. `hash_label` carries the hash that its name ends with.
pub fn fresh(
    world: &dyn World,
    (kind, owner): (Kind, &Value),
    hash_label: &str,
    number: i64,
    collisions: i64,
) -> Fresh {
    let data = data(owner);
    let mut collisions = collisions;
    let prefix = tree::name(owner);
    let prefix = prefix.get(..NAME_PREFIX.min(prefix.len())).unwrap_or(prefix);
    let (hash, name) = loop {
        let hash = template::hash(&data, Some(collisions));
        let name = format!("{prefix}-{hash}");
        if world.get(kind::REVISIONS, tree::namespace(owner), &name).is_none() {
            break (hash, name);
        }
        collisions += 1;
    };
    let mut labels = owner.pointer("/spec/template/metadata/labels").cloned().unwrap_or_else(|| json!({}));
    labels[hash_label] = hash.into();
    let annotations = owner.pointer("/metadata/annotations").cloned().unwrap_or_else(|| json!({}));
    let object = json!({
        "apiVersion": "apps/v1", "kind": "ControllerRevision",
        "metadata": {
            "name": name,
            "namespace": tree::namespace(owner),
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [tree::controller_reference(kind, owner)],
        },
        "data": data,
        "revision": number,
    });
    Fresh { object, collisions }
}
