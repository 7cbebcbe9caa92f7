//! Letting go of storage that nobody uses any more.
//!
//! Claims, volumes and classes of volumes are held by a finalizer from the start. One that is being deleted keeps it as
//! long as it is in use: a claim by a pod on a node, a volume by the claim it is bound to, a class by claims and volumes.

use machinery::{
    Object,
    admission::classes,
    resource::Tree,
    status::Status,
    validation::parts::{items, object, text},
};
use serde_json::Value;
use store::{Collection, Key, WorkspaceId};

use super::{Controllers, queue::Work};
use crate::{replace, space::Space};

const CLASSES: (&str, &str) = ("storage.k8s.io", "volumeattributesclasses");

/// The finalizer of an object that waits for nothing but its users.
fn held_by(key: &Key, object: &Object) -> Option<&'static str> {
    let (group, resource) = key.collection.parts();
    let finalizer = classes::protection(group, resource)?;
    (object.head.deleting && object.head.finalizers.iter().any(|it| it == finalizer)).then_some(finalizer)
}

/// Queues what a change may have been the last use of.
pub fn observe(
    controllers: &Controllers,
    workspace: &WorkspaceId,
    key: &Key,
    old: Option<&Object>,
    new: Option<&Object>,
) {
    if new.is_some_and(|object| held_by(key, object).is_some()) {
        controllers.queue.add(Work::Protected(workspace.clone(), key.clone()));
    }
    let released: Vec<Key> = match (key.collection.parts(), old) {
        (("", "pods"), Some(pod)) => claims_of(pod, key.item.namespace()),
        (("", "persistentvolumeclaims" | "persistentvolumes"), Some(user)) => classes_of(user),
        _ => return,
    };
    for key in released {
        let held = controllers.hub.store.get(workspace, &key);
        if held.is_some_and(|object| held_by(&key, &object).is_some()) {
            controllers.queue.add(Work::Protected(workspace.clone(), key));
        }
    }
}

fn tree_of(object: &Object) -> Tree {
    object.tree().unwrap_or_default()
}

/// The name of the claim that a volume of a pod stands for.
fn claim_of(pod: &str, volume: &Tree) -> Option<String> {
    match (object(volume, "persistentVolumeClaim"), object(volume, "ephemeral")) {
        (Some(claim), _) => Some(text(claim, "claimName").to_owned()),
        (_, Some(_)) => Some(format!("{pod}-{}", text(volume, "name"))),
        _ => None,
    }
}

fn claims_of(pod: &Object, namespace: &str) -> Vec<Key> {
    let tree = tree_of(pod);
    let volumes = object(&tree, "spec").into_iter().flat_map(|spec| items(spec, "volumes"));
    let names = volumes.filter_map(|(_, volume)| claim_of(&pod.head.name, volume));
    names.map(|name| Key::new("", "persistentvolumeclaims", namespace, &name)).collect()
}

fn classes_of(user: &Object) -> Vec<Key> {
    let tree = tree_of(user);
    let names = classes::attribute_classes(&tree);
    names.iter().map(|name| Key::new(CLASSES.0, CLASSES.1, "", name)).collect()
}

/// Lets go of what is not in use.
pub async fn release(controllers: &Controllers, space: &Space, key: &Key) -> Result<(), Status> {
    let Some(object) = space.get(key) else { return Ok(()) };
    let Some(finalizer) = held_by(key, &object) else { return Ok(()) };
    if is_used(space, key, &object) {
        return Ok(());
    }
    let Some(context) = controllers.context_for(space, key) else { return Ok(()) };
    replace::edit(&context, key, &object.head.uid, |tree| {
        let finalizers = tree.get_mut("metadata").and_then(|it| it.get_mut("finalizers"));
        if let Some(finalizers) = finalizers.and_then(Value::as_array_mut) {
            finalizers.retain(|it| it != finalizer);
        }
    })
    .await
}

fn is_used(space: &Space, key: &Key, object: &Object) -> bool {
    match key.collection.parts() {
        ("", "persistentvolumeclaims") => {
            let pods = space.latest(&Collection::new("", "pods"));
            pods.iter(Some(key.item.namespace()), None).any(|(_, pod)| uses_claim(pod, object))
        }
        ("", "persistentvolumes") => {
            let phase = tree_of(object).get("status").and_then(|it| it.get("phase")).cloned();
            phase.is_some_and(|phase| phase == "Bound")
        }
        _ => ["persistentvolumes", "persistentvolumeclaims"].into_iter().any(|users| {
            let listing = space.latest(&Collection::new("", users));
            listing.iter(None, None).any(|(_, user)| classes_of(user).contains(key))
        }),
    }
}

/// Kubelets see pods once they are on a node. A claim that was made for a pod is not needed when that has ended.
fn uses_claim(pod: &Object, claim: &Object) -> bool {
    let tree = tree_of(pod);
    let Some(spec) = object(&tree, "spec").filter(|spec| !text(spec, "nodeName").is_empty()) else {
        return false;
    };
    let metadata = object(&tree, "metadata");
    let grace = metadata.and_then(|it| it.get("deletionGracePeriodSeconds")).and_then(Value::as_i64);
    let has_ended = pod.head.deleting && grace == Some(0);
    let is_own = claim.head.owners.iter().any(|owner| owner.controller && owner.uid == pod.head.uid);
    items(spec, "volumes").any(|(_, volume)| {
        claim_of(&pod.head.name, volume).is_some_and(|name| name == claim.head.name)
            && (object(volume, "persistentVolumeClaim").is_some() || (is_own && !has_ended))
    })
}
