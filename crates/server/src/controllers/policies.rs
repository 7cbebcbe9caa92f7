//! Policies: their expressions are checked against the kinds they name, and their status says what was found.

use machinery::{
    Object,
    admission::types::{self, Kind},
    resource::{Resource, Tree},
    status::Status,
};
use serde_json::{Value, json};
use store::{Collection, Key, WorkspaceId};

use super::{Controllers, queue::Work};
use crate::{admission::policies, registry::Registry, replace, space::Space};

fn collection() -> Collection {
    Collection::new(policies::GROUP, "validatingadmissionpolicies")
}

/// A policy that has changed since it was looked at is looked at.
pub fn observe(controllers: &Controllers, workspace: &WorkspaceId, key: &Key, new: Option<&Object>) {
    if key.collection == collection() && new.is_some() {
        controllers.queue.add(Work::Policy(workspace.clone(), key.item.name().into()));
    }
}

/// Brings the status of a policy to what its expressions lead to.
pub async fn settle(controllers: &Controllers, space: &Space, name: &str) -> Result<(), Status> {
    let key = Key::new(policies::GROUP, "validatingadmissionpolicies", "", name);
    let Some(object) = space.get(&key).filter(|object| !object.head.deleting) else { return Ok(()) };
    let tree = object.tree().map_err(Status::internal)?;
    if is_observed(&tree) {
        return Ok(());
    }
    let Some(context) = controllers.context_for(space, &key) else { return Ok(()) };
    let served = controllers.hub.served(space);
    let (seen, found) = (generation(&tree), check(&tree, &served.registry));
    replace::edit(&context, &key, &object.head.uid, |tree| {
        // Somebody may have changed it meanwhile: it will be looked at again.
        if generation(tree) != seen {
            return;
        }
        let status = tree.entry("status").or_insert_with(|| json!({}));
        status["observedGeneration"] = json!(seen);
        status["typeChecking"] = found.clone();
    })
    .await
}

fn generation(tree: &Tree) -> i64 {
    let generation = tree.get("metadata").and_then(|metadata| metadata.get("generation"));
    generation.and_then(Value::as_i64).unwrap_or_default()
}

fn is_observed(tree: &Tree) -> bool {
    let observed = tree.get("status").and_then(|status| status.get("observedGeneration"));
    generation(tree) <= observed.and_then(Value::as_i64).unwrap_or_default()
}

fn check(policy: &Tree, registry: &Registry) -> Value {
    let mut kinds = Vec::new();
    for (group, version, plural) in types::named_resources(policy) {
        let is_named = |it: &&std::sync::Arc<Resource>| {
            (group.is_empty() || it.group == group) && it.version == version && it.plural == plural
        };
        kinds.extend(registry.all().filter(is_named).map(|resource| Kind::of(resource)));
    }
    let kind = policy.get("spec").and_then(|spec| spec.get("paramKind"));
    let text = |key: &str| kind.and_then(|kind| kind.get(key)).and_then(Value::as_str).unwrap_or_default();
    let params = registry.find_kind(text("apiVersion"), text("kind")).map(|resource| Kind::of(resource));
    types::check(policy, &types::chosen(kinds), params.as_ref())
}
