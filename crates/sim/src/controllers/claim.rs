//! Who controls what: owners take up what they select and nobody controls, and give up what they do not select.

use std::sync::Arc;

use machinery::selector::LabelSelector;
use serde_json::{Value, json};

use crate::{Action, Kind, Plan, Pod, World, controllers::Name, kind, tree};

/// Of an object with a `spec.selector` of type LabelSelector. One that cannot be read selects nothing.
pub fn selector(owner: &Value) -> LabelSelector {
    let selector = owner.pointer("/spec/selector").unwrap_or(&Value::Null);
    LabelSelector::from_object(selector).unwrap_or_else(|_| LabelSelector::nothing())
}

/// The pods that `owner` has once `plan` is carried out, of those that `counts` accepts. Those on their way out are
/// neither taken up nor given up.
pub fn pods(
    world: &dyn World,
    plan: &mut Plan,
    (kind, owner): (Kind, &Value),
    selector: &LabelSelector,
    counts: impl Fn(&Pod) -> bool,
) -> Vec<Arc<Pod>> {
    let (namespace, uid) = (tree::namespace(owner), tree::uid(owner));
    let mut claimed = Vec::new();
    for pod in world.pods_of(namespace, uid) {
        if !counts(&pod) {
            continue;
        }
        if selector.matches(&pod.labels) {
            claimed.push(pod);
        } else if !tree::is_deleting(owner) {
            release(world, plan, &pod, uid);
        }
    }
    if tree::is_deleting(owner) {
        return claimed;
    }
    for pod in world.orphan_pods(namespace) {
        if pod.terminating.is_none() && counts(&pod) && selector.matches(&pod.labels) {
            adopt(world, plan, &pod, (kind, owner));
            claimed.push(pod);
        }
    }
    claimed
}

fn adopt(world: &dyn World, plan: &mut Plan, pod: &Pod, (kind, owner): (Kind, &Value)) {
    if let Some(tree) = world.get(kind::PODS, &pod.namespace, &pod.name) {
        plan.then(adoption(kind::PODS, &tree, (kind, owner)));
    }
}

fn release(world: &dyn World, plan: &mut Plan, pod: &Pod, uid: &str) {
    if let Some(tree) = world.get(kind::PODS, &pod.namespace, &pod.name) {
        plan.then(release_of(kind::PODS, &tree, uid));
    }
}

fn adoption(kind: Kind, object: &Value, (owner_kind, owner): (Kind, &Value)) -> Action {
    let mut owners: Vec<Value> = tree::items(object, "/metadata/ownerReferences").cloned().collect();
    owners.retain(|reference| tree::text(reference, "/uid") != tree::uid(owner));
    owners.push(tree::controller_reference(owner_kind, owner));
    with_owners(kind, object, owners)
}

fn release_of(kind: Kind, object: &Value, uid: &str) -> Action {
    let mut owners: Vec<Value> = tree::items(object, "/metadata/ownerReferences").cloned().collect();
    owners.retain(|reference| tree::text(reference, "/uid") != uid);
    with_owners(kind, object, owners)
}

/// The list of owners is replaced whole, so nobody may have changed it in between.
pub fn with_owners(kind: Kind, object: &Value, owners: Vec<Value>) -> Action {
    let version = tree::text(object, "/metadata/resourceVersion");
    Action::patch(
        kind,
        object,
        json!({ "metadata": { "ownerReferences": owners, "resourceVersion": version } }),
    )
}

/// As [`pods`], for objects of another kind.
pub fn objects(
    world: &dyn World,
    plan: &mut Plan,
    kind: Kind,
    (owner_kind, owner): (Kind, &Value),
    selector: &LabelSelector,
) -> Vec<Value> {
    let (namespace, uid) = (tree::namespace(owner), tree::uid(owner));
    let mut claimed = Vec::new();
    for object in world.owned(kind, namespace, uid) {
        if selector.matches(&tree::labels(&object, "/metadata/labels")) {
            claimed.push(object);
        } else if !tree::is_deleting(owner) {
            plan.then(release_of(kind, &object, uid));
        }
    }
    if tree::is_deleting(owner) {
        return claimed;
    }
    for object in world.orphans(kind, namespace) {
        if !tree::is_deleting(&object) && selector.matches(&tree::labels(&object, "/metadata/labels")) {
            plan.then(adoption(kind, &object, (owner_kind, owner)));
            claimed.push(object);
        }
    }
    claimed
}

/// Objects of `kind` whose selector takes an orphan with these labels, to be looked at because of it.
pub fn selecting(
    world: &dyn World,
    kind: Kind,
    orphan: &Value,
    selector: impl Fn(&Value) -> LabelSelector,
) -> Vec<Name> {
    if tree::controller(orphan).is_some() {
        return Vec::new();
    }
    let labels = tree::labels(orphan, "/metadata/labels");
    if labels.is_empty() {
        return Vec::new();
    }
    let selects = |owner: &&Value| {
        let selector = selector(owner);
        !selector.is_empty() && selector.matches(&labels)
    };
    let owners = world.list(kind, Some(tree::namespace(orphan)));
    owners.iter().filter(selects).map(name_of).collect()
}

pub fn name_of(object: &Value) -> Name {
    (tree::namespace(object).to_owned(), tree::name(object).to_owned())
}
