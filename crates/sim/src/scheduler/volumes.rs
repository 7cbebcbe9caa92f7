//! Claims of a pod: they must be there, and what they are bound to must be reachable from the node.

use serde_json::{Value, json};

use super::{Candidate, Unfit, hopeless};
use crate::{
    Action, World,
    controllers::placement,
    kind::{CLAIMS, STORAGE_CLASSES, VOLUMES},
    tree,
};

const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

/// The names of the claims that a pod mounts.
fn claim_names(pod: &Value) -> Vec<String> {
    let volumes = tree::items(pod, "/spec/volumes");
    let names = volumes.filter_map(|volume| match tree::text(volume, "/persistentVolumeClaim/claimName") {
        "" if volume.get("ephemeral").is_some() => {
            Some(format!("{}-{}", tree::name(pod), tree::text(volume, "/name")))
        }
        "" => None,
        name => Some(name.to_owned()),
    });
    names.collect()
}

fn waits_for_consumer(world: &dyn World, claim: &Value) -> bool {
    let class = tree::text(claim, "/spec/storageClassName");
    let class = world.get(STORAGE_CLASSES, "", class);
    class.is_some_and(|it| tree::text(&it, "/volumeBindingMode") == "WaitForFirstConsumer")
}

/// What must happen to the claims before any node does.
pub fn pending(world: &dyn World, pod: &Value) -> Option<String> {
    for name in claim_names(pod) {
        let Some(claim) = world.get(CLAIMS, tree::namespace(pod), &name) else {
            return Some(format!("persistentvolumeclaim \"{name}\" not found"));
        };
        if tree::is_deleting(&claim) {
            return Some(format!("persistentvolumeclaim \"{name}\" is being deleted"));
        }
        let bound = !tree::text(&claim, "/spec/volumeName").is_empty();
        if !bound && !waits_for_consumer(world, &claim) {
            return Some("pod has unbound immediate PersistentVolumeClaims".into());
        }
    }
    None
}

pub fn problem(world: &dyn World, pod: &Value, candidate: &Candidate) -> Option<Unfit> {
    for name in claim_names(pod) {
        let claim = world.get(CLAIMS, tree::namespace(pod), &name)?;
        let volume = world.get(VOLUMES, "", tree::text(&claim, "/spec/volumeName"));
        let required = volume.as_ref().and_then(|it| it.pointer("/spec/nodeAffinity/required"));
        if required.is_some_and(|it| !placement::matches_any(it, &candidate.node)) {
            return hopeless("node(s) didn't match PersistentVolume's node affinity");
        }
        let selected = claim.pointer("/metadata/annotations").and_then(|it| it.get(SELECTED_NODE));
        let elsewhere = selected.and_then(Value::as_str).is_some_and(|node| node != candidate.name);
        if volume.is_none() && elsewhere {
            return hopeless("node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)");
        }
    }
    None
}

/// Tells those who provide volumes where they are needed.
pub fn select_node(world: &dyn World, pod: &Value, node: &str) -> Vec<Action> {
    let claims =
        claim_names(pod).into_iter().filter_map(|name| world.get(CLAIMS, tree::namespace(pod), &name));
    let unbound = claims.filter(|claim| tree::text(claim, "/spec/volumeName").is_empty());
    let select = |claim: Value| Action::Patch {
        kind: CLAIMS,
        namespace: tree::namespace(&claim).into(),
        name: tree::name(&claim).into(),
        patch: json!({"metadata": {"uid": tree::uid(&claim), "annotations": {SELECTED_NODE: node}}}),
    };
    unbound.map(select).collect()
}
