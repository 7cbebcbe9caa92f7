//! What does not travel: fields that the hub's API server chose, and those that mean something in the hub alone.

use serde_json::Value;

use crate::fields::{at, at_mut, flag, remove, text};

/// What belongs to one API server and one object in it.
const METADATA: [&str; 11] = [
    "uid",
    "resourceVersion",
    "generation",
    "generateName",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
    "selfLink",
    "ownerReferences",
    "finalizers",
];
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Volumes of this name hold the token that the API server adds to a pod.
const TOKEN_VOLUME: &str = "kube-api-access-";

/// Of every kind.
pub(super) fn metadata(copy: &mut Value) {
    remove(copy, "status");
    if let Some(metadata) = at_mut(copy, "metadata").and_then(Value::as_object_mut) {
        for key in METADATA {
            metadata.remove(key);
        }
    }
    annotations(copy, &[LAST_APPLIED]);
}

/// Removes annotations, and the map of them once it is empty.
fn annotations(copy: &mut Value, keys: &[&str]) {
    members(copy, "metadata.annotations", keys);
}

fn members(copy: &mut Value, path: &str, keys: &[&str]) {
    let Some(map) = at_mut(copy, path).and_then(Value::as_object_mut) else { return };
    for key in keys {
        map.remove(*key);
    }
    if map.is_empty() {
        remove(copy, path);
    }
}

pub(crate) fn nothing_more(_: &mut Value) {}

pub(crate) fn deployment(copy: &mut Value) {
    annotations(copy, &["deployment.kubernetes.io/revision"]);
}

/// A selector that was generated selects by the UID of the hub's Job; the member generates its own.
pub(crate) fn job(copy: &mut Value) {
    if flag(copy, "spec.manualSelector") {
        return;
    }
    remove(copy, "spec.selector");
    let generated =
        ["controller-uid", "job-name", "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name"];
    members(copy, "metadata.labels", &generated);
    members(copy, "spec.template.metadata.labels", &generated);
}

/// Nodes, priorities, overhead and tokens are the member's to choose, and it refuses pods that come with others. So it does
/// with ephemeral containers, which it takes by another way.
pub(crate) fn pod(copy: &mut Value) {
    let paths = [
        "spec.nodeName",
        "spec.priority",
        "spec.preemptionPolicy",
        "spec.overhead",
        "spec.ephemeralContainers",
    ];
    for path in paths {
        remove(copy, path);
    }
    let is_token = |item: &Value| text(item, "name").starts_with(TOKEN_VOLUME);
    items(copy, "spec.volumes", |volume| !(is_token(volume) && at(volume, "projected").is_some()));
    for path in ["spec.containers", "spec.initContainers"] {
        for container in at_mut(copy, path).and_then(Value::as_array_mut).into_iter().flatten() {
            items(container, "volumeMounts", |mount| !is_token(mount));
        }
    }
}

/// Keeps the items of a list for which `keep` holds, and the list while it has any.
fn items(holder: &mut Value, path: &str, keep: impl FnMut(&Value) -> bool) {
    let Some(items) = at_mut(holder, path).and_then(Value::as_array_mut) else { return };
    items.retain(keep);
    if items.is_empty() {
        remove(holder, path);
    }
}

/// How a claim was bound in another cluster says nothing here.
pub(crate) fn claim(copy: &mut Value) {
    annotations(
        copy,
        &[
            "pv.kubernetes.io/bind-completed",
            "pv.kubernetes.io/bound-by-controller",
            "volume.kubernetes.io/selected-node",
            "volume.kubernetes.io/storage-provisioner",
            "volume.beta.kubernetes.io/storage-provisioner",
        ],
    );
}

/// What is the default in the workspace is not that for everybody in a cluster. The hub names it in what it stores, so that
/// nothing is lost.
pub(crate) fn class(copy: &mut Value) {
    annotations(
        copy,
        &[
            "storageclass.kubernetes.io/is-default-class",
            "storageclass.beta.kubernetes.io/is-default-class",
            "ingressclass.kubernetes.io/is-default-class",
        ],
    );
    remove(copy, "globalDefault");
}

pub(crate) fn volume(copy: &mut Value) {
    remove(copy, "spec.claimRef.uid");
    remove(copy, "spec.claimRef.resourceVersion");
}

/// Addresses and ports of nodes are the member's; that a Service has no address is the user's.
pub(crate) fn service(copy: &mut Value) {
    if text(copy, "spec.clusterIP") != "None" {
        remove(copy, "spec.clusterIP");
        remove(copy, "spec.clusterIPs");
    }
    remove(copy, "spec.healthCheckNodePort");
    for port in at_mut(copy, "spec.ports").and_then(Value::as_array_mut).into_iter().flatten() {
        remove(port, "nodePort");
    }
}

/// Tokens of service accounts are good in one cluster only.
pub(crate) fn secret(copy: &mut Value) {
    if text(copy, "type") == "kubernetes.io/service-account-token" {
        remove(copy, "data");
        annotations(copy, &["kubernetes.io/service-account.uid"]);
    }
}

pub(crate) fn service_account(copy: &mut Value) {
    let generated = format!("{}-token-", text(copy, "metadata.name"));
    items(copy, "secrets", |secret| !text(secret, "name").starts_with(&generated));
}

/// A namespace may have another name in the member.
pub(crate) fn namespace(copy: &mut Value) {
    remove(copy, "spec.finalizers");
    members(copy, "metadata.labels", &["kubernetes.io/metadata.name"]);
    if at(copy, "spec").is_some_and(|spec| spec.as_object().is_some_and(|spec| spec.is_empty())) {
        remove(copy, "spec");
    }
}
