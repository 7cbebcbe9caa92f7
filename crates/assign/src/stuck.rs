//! Pods that cannot run, told on what they belong to: `kubectl describe deployment` is where people look first, and the
//! Events of the pods are not there.
//!
//! ```text
//!   views' feed ──> pod that waits ──> its owner, and the owner's ──> Event, once for each cluster and reason
//! ```

use std::sync::Arc;

use api::assignment::Reference;
use machinery::Object;
use serde_json::Value;
use server::{Hub, space::Space};
use store::{Commit, Expect, FeedItem, Key, WorkspaceId};

use crate::events::{self, News};

/// Why containers wait that do not run by waiting alone, as kubelets call it.
const REASONS: [&str; 8] = [
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
    "CrashLoopBackOff",
];

/// How often an Event is tried that others are faster than.
const ATTEMPTS: u32 = 5;

/// Kinds that have pods, or have what has them.
const OWNERS: [(&str, &str, &str); 7] = [
    ("apps", "Deployment", "deployments"),
    ("apps", "ReplicaSet", "replicasets"),
    ("apps", "StatefulSet", "statefulsets"),
    ("apps", "DaemonSet", "daemonsets"),
    ("batch", "Job", "jobs"),
    ("batch", "CronJob", "cronjobs"),
    ("", "ReplicationController", "replicationcontrollers"),
];

/// Reads the feed of the views for ever. What falls into a gap is told with the pod's next change.
pub async fn follow(hub: Arc<Hub>, mut feed: store::Feed) {
    loop {
        let FeedItem::Event(event) = feed.next().await else { continue };
        let Some(pod) = event.after().filter(|_| event.key.collection.parts() == ("", "pods")) else {
            continue;
        };
        let Some(news) = told(pod) else { continue };
        if let Err(error) = tell(&hub, &event.workspace, pod, &news).await {
            tracing::warn!(key = ?event.key, %error, "cannot tell that a pod does not run");
        }
    }
}

/// What it is told on may be written to just then, as its status is, and a pod that waits for good does not change again.
async fn tell(
    hub: &Hub,
    workspace: &WorkspaceId,
    pod: &Object,
    news: &(String, News),
) -> Result<(), store::Error> {
    for attempt in 1.. {
        let Some(commit) = commit(hub, workspace, pod, news) else { break };
        match hub.store.commit(workspace, commit).await {
            Err(store::Error::Conflict { .. }) if attempt < ATTEMPTS => {}
            Ok(_) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// What is to be told of a pod: its cluster, and the news.
fn told(pod: &Object) -> Option<(String, News)> {
    // Hardly any waits, and none else need be taken apart.
    if !std::str::from_utf8(pod.body_slice()).is_ok_and(|text| text.contains(r#""waiting""#)) {
        return None;
    }
    let pod = Value::Object(pod.tree().ok()?);
    let cluster = pod["metadata"]["labels"][api::CLUSTER_LABEL].as_str()?.to_owned();
    let containers = ["initContainerStatuses", "containerStatuses"]
        .into_iter()
        .flat_map(|field| pod["status"][field].as_array().into_iter().flatten());
    let (reason, container) = containers
        .filter_map(|it| {
            let reason = it["state"]["waiting"]["reason"].as_str()?;
            Some((REASONS.into_iter().find(|known| *known == reason)?, it))
        })
        .next()?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (name, container, why) = (
        text(&pod["metadata"]["name"]),
        text(&container["name"]),
        text(&container["state"]["waiting"]["message"]),
    );
    let message = format!("in {cluster}, container {container} of pod {name} does not run: {why}");
    Some((cluster, ("Warning", reason, message.trim_end_matches(": ").to_owned())))
}

/// The Event on what the pod belongs to; `None`: it belongs to nothing, or that was told lately.
fn commit(hub: &Hub, workspace: &WorkspaceId, pod: &Object, told: &(String, News)) -> Option<Commit> {
    let space = hub.space_by_id(workspace)?;
    let (owner, about) = owner(hub, &space, pod)?;
    let namespace = pod.head.namespace.as_str();
    let home = space.get(&Key::new("", "namespaces", "", namespace))?;
    if owner.head.deleting || home.head.deleting {
        return None;
    }
    let (cluster, news) = told;
    let write = events::stuck(hub, workspace, namespace, &about, cluster, news).ok()??;
    let key = Key::new(about.group(), &about.resource, namespace, &about.name);
    Some(Commit { guards: vec![(key, Expect::At(owner.revision))], writes: vec![write] })
}

/// The last in the chain of owners that is stored here: what somebody applied.
fn owner(hub: &Hub, space: &Space, pod: &Object) -> Option<(Arc<Object>, Reference)> {
    let view = hub.views.of(space.id());
    let mut found = None;
    let mut owners = pod.head.owners.clone();
    // None of these has more owners than this above it.
    for _ in 0..3 {
        let Some(owner) = owners.iter().find(|owner| owner.controller) else { break };
        let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
        let is_it = |(of, kind, _): &(&str, &str, &str)| *of == group && *kind == owner.kind;
        let Some((_, _, resource)) = OWNERS.into_iter().find(is_it) else { break };
        let key = Key::new(group, resource, &pod.head.namespace, &owner.name);
        let stored = hub.store.get(space.id(), &key).filter(|it| it.head.uid == owner.uid);
        let seen = || view.as_ref()?.get(&key).filter(|it| it.head.uid == owner.uid);
        let Some(object) = stored.clone().or_else(seen) else { break };
        let about = Reference {
            api_version: owner.api_version.to_string(),
            kind: owner.kind.to_string(),
            resource: resource.to_owned(),
            name: owner.name.to_string(),
            uid: owner.uid.to_string(),
        };
        owners = object.head.owners.clone();
        if let Some(stored) = stored {
            found = Some((stored, about));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use machinery::{Draft, EventType, Revision};
    use serde_json::json;

    use super::*;

    fn pod(status: Value) -> Object {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "web-1", "namespace": "shop", "uid": "u", "labels": {"hanse.io/cluster": "m2"}},
            "status": status,
        });
        let Value::Object(pod) = pod else { unreachable!() };
        Draft::encode(&pod).unwrap().seal(Revision::BASE, EventType::Added)
    }

    #[test]
    fn only_what_does_not_pass_by_itself_is_told() {
        let waits = |reason: &str| {
            let state = json!({"waiting": {"reason": reason, "message": "no such image"}});
            told(&pod(json!({"containerStatuses": [
                {"name": "beside", "state": {"running": {}}}, {"name": "main", "state": state},
            ]})))
        };
        let (cluster, (kind, reason, message)) = waits("ErrImagePull").unwrap();
        assert_eq!((cluster.as_str(), kind, reason), ("m2", "Warning", "ErrImagePull"));
        assert_eq!(message, "in m2, container main of pod web-1 does not run: no such image");
        assert_eq!(waits("ContainerCreating"), None);
        assert_eq!(told(&pod(json!({"phase": "Running"}))), None);
    }
}
