//! Letting go of storage that nobody uses any more.
//!
//! Claims, volumes and classes of volumes are held by a finalizer from the start. One that is being deleted keeps it as
//! long as it is in use: a claim by a pod on a node, a volume by the claim it is bound to, a class by claims and volumes.

use std::collections::HashSet;

use compact_str::CompactString;
use machinery::{
    Object, Revision,
    admission::classes,
    resource::Tree,
    status::Status,
    validation::parts::{items, object, text},
};
use memchr::memmem;
use serde_json::Value;
use store::{Collection, Key, WorkspaceId};

use super::{Controllers, queue::Work};
use crate::{replace, space::Space};

const CLASSES: (&str, &str) = ("storage.k8s.io", "volumeattributesclasses");
/// How the fields end in which claims and volumes name their class.
const CLASS_NAME: &str = "olumeAttributesClassName\"";
/// The kinds of volumes of a pod that stand for a claim.
const CLAIM_VOLUMES: [&str; 2] = ["\"persistentVolumeClaim\"", "\"ephemeral\""];
/// After so many objects others of this thread have their turn.
const AT_ONCE: usize = 64;

fn claims() -> Collection {
    Collection::new("", "persistentvolumeclaims")
}

fn pods() -> Collection {
    Collection::new("", "pods")
}

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
    let queue = |collection: Collection, namespace: &str| {
        controllers.queue.add(Work::Protected(workspace.clone(), collection, namespace.into()));
    };
    if new.is_some_and(|object| held_by(key, object).is_some()) {
        queue(key.collection.clone(), key.item.namespace());
    }
    // What it used is not read here, where all workspaces wait: it is enough to know that it may have used some.
    match (key.collection.parts(), old) {
        (("", "pods"), Some(pod)) if may_release(pod, new) && mentions(pod, &CLAIM_VOLUMES) => {
            queue(claims(), key.item.namespace());
        }
        (("", "persistentvolumeclaims" | "persistentvolumes"), Some(user))
            if mentions(user, &[CLASS_NAME]) =>
        {
            queue(Collection::new(CLASSES.0, CLASSES.1), "");
        }
        _ => {}
    }
}

/// A pod's volumes never change, so it uses what it uses until it ends.
fn may_release(pod: &Object, new: Option<&Object>) -> bool {
    new.is_none_or(|new| new.head.deleting || new.head.uid != pod.head.uid)
}

fn mentions(object: &Object, names: &[&str]) -> bool {
    names.iter().any(|name| memmem::find(object.body_slice(), name.as_bytes()).is_some())
}

fn tree_of(object: &Object) -> Tree {
    object.tree().unwrap_or_default()
}

fn classes_of(user: &Object) -> Vec<String> {
    match mentions(user, &[CLASS_NAME]) {
        true => classes::attribute_classes(&tree_of(user)).iter().map(ToString::to_string).collect(),
        false => Vec::new(),
    }
}

/// Lets go of what is not in use.
pub async fn release(
    controllers: &Controllers,
    space: &Space,
    collection: &Collection,
    namespace: &str,
) -> Result<(), Status> {
    let within = Some(namespace).filter(|namespace| !namespace.is_empty());
    let mut outcome = Ok(());
    let mut uses: Option<Uses> = None;
    for (item, object) in space.latest(collection).iter(within, None) {
        let key = Key { collection: collection.clone(), item: item.clone() };
        let Some(finalizer) = held_by(&key, object) else { continue };
        // Known of all at once, and again only when users have changed since.
        let known = match uses.take().filter(|uses| uses.is_current(space)) {
            Some(known) => known,
            None => Uses::read(space, collection, within).await,
        };
        let is_used = known.has(object);
        uses = Some(known);
        if is_used {
            continue;
        }
        let Some(context) = controllers.context_for(space, &key) else { return Ok(()) };
        let edited = replace::edit(&context, &key, &object.head.uid, |tree| {
            let finalizers = tree.get_mut("metadata").and_then(|it| it.get_mut("finalizers"));
            if let Some(finalizers) = finalizers.and_then(Value::as_array_mut) {
                finalizers.retain(|it| it != finalizer);
            }
        });
        // One that is not let go of must not hold up the others.
        outcome = edited.await.and(outcome);
    }
    outcome
}

/// What is in use of a kind of storage.
enum Uses {
    /// A volume says itself whether it is.
    Volumes,
    Claims {
        at: Revision,
        /// By volumes that name a claim.
        named: HashSet<String>,
        /// By volumes that a claim is made for: its name, and the UID of the pod.
        made: HashSet<(String, CompactString)>,
    },
    Classes {
        at: [Revision; 2],
        named: HashSet<String>,
    },
}

fn class_users() -> [Collection; 2] {
    ["persistentvolumes", "persistentvolumeclaims"].map(|users| Collection::new("", users))
}

impl Uses {
    async fn read(space: &Space, collection: &Collection, within: Option<&str>) -> Uses {
        match collection.parts() {
            ("", "persistentvolumeclaims") => Uses::of_claims(space, within).await,
            ("", "persistentvolumes") => Uses::Volumes,
            _ => Uses::of_classes(space).await,
        }
    }

    async fn of_claims(space: &Space, within: Option<&str>) -> Uses {
        // Before what it tells of, so that a change in between is noticed.
        let at = space.last_change(&pods());
        let (mut named, mut made) = (HashSet::new(), HashSet::new());
        let listing = space.latest(&pods());
        let all: Vec<_> = listing.iter(within, None).collect();
        for some in all.chunks(AT_ONCE) {
            for (_, pod) in some {
                note_claims(pod, &mut named, &mut made);
            }
            tokio::task::yield_now().await;
        }
        Uses::Claims { at, named, made }
    }

    async fn of_classes(space: &Space) -> Uses {
        let at = class_users().map(|users| space.last_change(&users));
        let mut named = HashSet::new();
        for users in class_users() {
            let listing = space.latest(&users);
            let all: Vec<_> = listing.iter(None, None).collect();
            for some in all.chunks(AT_ONCE) {
                named.extend(some.iter().flat_map(|(_, user)| classes_of(user)));
                tokio::task::yield_now().await;
            }
        }
        Uses::Classes { at, named }
    }

    fn is_current(&self, space: &Space) -> bool {
        match self {
            Uses::Volumes => true,
            Uses::Claims { at, .. } => space.last_change(&pods()) == *at,
            Uses::Classes { at, .. } => class_users().map(|users| space.last_change(&users)) == *at,
        }
    }

    fn has(&self, object: &Object) -> bool {
        let name = object.head.name.as_str();
        match self {
            Uses::Volumes => {
                let phase = tree_of(object).get("status").and_then(|it| it.get("phase")).cloned();
                phase.is_some_and(|phase| phase == "Bound")
            }
            Uses::Claims { named, made, .. } => {
                let mut owners = object.head.owners.iter().filter(|owner| owner.controller);
                named.contains(name)
                    || owners.any(|owner| made.contains(&(name.to_owned(), owner.uid.clone())))
            }
            Uses::Classes { named, .. } => named.contains(name),
        }
    }
}

/// Kubelets see pods once they are on a node. A claim that was made for a pod is not needed when that has ended.
fn note_claims(pod: &Object, named: &mut HashSet<String>, made: &mut HashSet<(String, CompactString)>) {
    if !mentions(pod, &CLAIM_VOLUMES) {
        return;
    }
    let tree = tree_of(pod);
    let Some(spec) = object(&tree, "spec").filter(|spec| !text(spec, "nodeName").is_empty()) else { return };
    let metadata = object(&tree, "metadata");
    let grace = metadata.and_then(|it| it.get("deletionGracePeriodSeconds")).and_then(Value::as_i64);
    let has_ended = pod.head.deleting && grace == Some(0);
    for (_, volume) in items(spec, "volumes") {
        match (object(volume, "persistentVolumeClaim"), object(volume, "ephemeral")) {
            (Some(claim), _) => {
                named.insert(text(claim, "claimName").to_owned());
            }
            (_, Some(_)) if !has_ended => {
                let name = format!("{}-{}", pod.head.name, text(volume, "name"));
                made.insert((name, pod.head.uid.clone()));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use machinery::{Draft, EventType};
    use serde_json::json;

    use super::*;

    fn mk_pod(uid: &str, deleting: bool, volumes: Value) -> Object {
        let mut tree = json!({
            "kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p", "namespace": "n", "uid": uid},
            "spec": {"nodeName": "node", "volumes": volumes},
        });
        if deleting {
            tree["metadata"]["deletionTimestamp"] = json!("2030-01-01T00:00:00Z");
            tree["metadata"]["deletionGracePeriodSeconds"] = json!(0);
        }
        let tree = tree.as_object().cloned().unwrap_or_default();
        Draft::encode(&tree).unwrap().seal(Revision::default(), EventType::Added)
    }

    #[test]
    fn only_a_pod_that_ends_lets_go_of_its_claims() {
        let pod = mk_pod("1", false, json!([]));
        for (new, expected) in [
            (None, true),
            (Some(mk_pod("1", false, json!([]))), false),
            (Some(mk_pod("1", true, json!([]))), true),
            (Some(mk_pod("2", false, json!([]))), true),
        ] {
            assert_eq!(may_release(&pod, new.as_ref()), expected, "{new:?}");
        }
    }

    #[test]
    fn only_pods_with_volumes_of_claims_are_read() {
        for (volumes, expected) in [
            (json!([]), false),
            (json!([{"name": "v", "emptyDir": {}}]), false),
            (json!([{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]), true),
            (json!([{"name": "v", "ephemeral": {}}]), true),
        ] {
            assert_eq!(mentions(&mk_pod("1", false, volumes.clone()), &CLAIM_VOLUMES), expected, "{volumes}");
        }
    }

    #[test]
    fn a_claim_made_for_a_pod_is_used_until_that_ends_and_a_named_one_until_it_is_gone() {
        let volumes = json!([
            {"name": "v", "ephemeral": {}},
            {"name": "w", "persistentVolumeClaim": {"claimName": "c"}},
        ]);
        for (deleting, expected) in [(false, 1), (true, 0)] {
            let (mut named, mut made) = (HashSet::new(), HashSet::new());
            note_claims(&mk_pod("1", deleting, volumes.clone()), &mut named, &mut made);
            assert!(named.contains("c"));
            assert_eq!(made.iter().filter(|it| **it == ("p-v".to_owned(), "1".into())).count(), expected);
        }
    }
}
