//! Virtual nodes in workspaces that use a cluster of the platform.
//!
//! The node of a cluster is in the workspace of its `Cluster`. A workspace that has something assigned to a cluster of the
//! platform sees one too, from when the first Assignment names it until the `Cluster` is gone. An owner cannot be in another
//! workspace: the node says by an annotation whose it is, and sessions remove it. Whether it is cordoned is up to that
//! workspace.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use http::Method;
use machinery::Object;
use parking_lot::Mutex;
use serde_json::{Value, json};
use server::{
    Hub,
    desk::{Desk, Refused},
};
use store::{Collection, Key, WorkspaceId};

use crate::{
    client::JSON,
    node::{Facts, says},
    report::PATCH,
    session::Session,
};

/// On a node outside of its cluster's workspace, an annotation: the UID of the `Cluster` that it stands for.
const CLUSTER_UID: &str = "hanse.io/cluster-uid";
const NODES: &str = "/api/v1/nodes";
/// So many nodes are written in one go; then whatever else is to be reported has its turn.
const AT_ONCE: usize = 32;

/// The workspaces that use a cluster without having it.
#[derive(Default)]
pub struct Guests {
    /// What each was last told; `None`: it is to be looked at.
    told: Mutex<BTreeMap<WorkspaceId, Option<Arc<str>>>>,
    /// Somebody is to be looked at.
    pending: AtomicBool,
}

impl Guests {
    /// A workspace uses the cluster.
    pub fn want(&self, workspace: &WorkspaceId) -> bool {
        let mut told = self.told.lock();
        if told.contains_key(workspace) {
            return false;
        }
        told.insert(workspace.clone(), None);
        self.pending.store(true, Ordering::Relaxed);
        true
    }

    /// A node of the cluster's name was changed there, by whomever.
    pub fn look_at(&self, workspace: &WorkspaceId) -> bool {
        let mut told = self.told.lock();
        let Some(entry) = told.get_mut(workspace) else { return false };
        *entry = None;
        self.pending.store(true, Ordering::Relaxed);
        true
    }

    pub fn forget(&self, workspace: &WorkspaceId) {
        self.told.lock().remove(workspace);
    }

    pub fn all(&self) -> Vec<WorkspaceId> {
        self.told.lock().keys().cloned().collect()
    }

    pub fn wait(&self) {
        self.pending.store(true, Ordering::Relaxed);
    }

    pub fn is_pending(&self) -> bool {
        self.pending.swap(false, Ordering::Relaxed)
    }

    /// Those that were told something else, or nothing; some of them.
    fn behind(&self, news: &str) -> Vec<WorkspaceId> {
        let told = self.told.lock();
        let behind = told.iter().filter(|(_, told)| told.as_deref() != Some(news));
        behind.take(AT_ONCE).map(|(workspace, _)| workspace.clone()).collect()
    }

    fn note(&self, workspace: &WorkspaceId, news: &Arc<str>) {
        if let Some(told) = self.told.lock().get_mut(workspace) {
            *told = Some(news.clone());
        }
    }
}

/// The UID of the `Cluster` that a node outside of its workspace stands for.
fn cluster_of(node: &Object) -> Option<String> {
    node.head.label(api::CLUSTER_LABEL)?;
    let tree = node.tree().ok()?;
    Some(tree.get("metadata")?["annotations"][CLUSTER_UID].as_str()?.to_owned())
}

/// The nodes of a workspace that stand for clusters of others, with the UIDs of those.
pub fn nodes_in(hub: &Hub, workspace: &WorkspaceId) -> Vec<(String, Arc<Object>)> {
    let Ok(listing) = hub.store.list(workspace, &Collection::new("", "nodes"), None) else {
        return Vec::new();
    };
    listing.iter(None, None).filter_map(|(_, node)| Some((cluster_of(node)?, node.clone()))).collect()
}

/// Removes the node of a cluster that is gone, in one workspace, if there is one.
pub async fn remove(hub: &Hub, desk: &Desk, workspace: &WorkspaceId, name: &str, uid: &str) {
    let Some(space) = hub.space_by_id(workspace) else { return };
    let node = space.get(&Key::new("", "nodes", "", name));
    let Some(node) = node.filter(|node| cluster_of(node).as_deref() == Some(uid)) else { return };
    let options = json!({
        "apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": node.head.uid.as_str()},
    });
    let path = format!("{NODES}/{name}");
    match desk.call(space.name(), Method::DELETE, &path, JSON, &options).await {
        Ok(_) => {}
        Err(Refused { code: 404 | 409, .. }) => {}
        // It is removed when sessions begin anew.
        Err(refused) => tracing::warn!(cluster = name, %workspace, %refused, "cannot remove a virtual node"),
    }
}

impl Facts<'_> {
    /// What a workspace of guests is told. Cordoned it is only by that workspace; what the operator wants shows as taint.
    fn guest_node(&self) -> Value {
        let mut spec = self.spec();
        if let Some(spec) = spec.as_object_mut() {
            spec.remove("unschedulable");
        }
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {
                "name": self.name, "labels": self.labels(), "annotations": {CLUSTER_UID: self.wanted.uid},
            },
            "spec": spec,
            "status": self.status(),
        })
    }
}

impl Session {
    /// Tells those who use the cluster how it is, as far as they do not know. True: some are left to be told.
    pub async fn tell_guests(&self, facts: &Facts<'_>) -> Result<bool, Refused> {
        if self.guests.told.lock().is_empty() {
            return Ok(false);
        }
        let wanted = facts.guest_node();
        let news: Arc<str> = wanted.to_string().into();
        let behind = self.guests.behind(&news);
        for workspace in &behind {
            self.tell_guest(workspace, &wanted, facts.ready).await?;
            self.guests.note(workspace, &news);
        }
        Ok(behind.len() == AT_ONCE)
    }

    async fn tell_guest(&self, workspace: &WorkspaceId, wanted: &Value, ready: bool) -> Result<(), Refused> {
        let Some(space) = self.shared.hub.space_by_id(workspace) else { return Ok(()) };
        let node = space.get(&Key::new("", "nodes", "", self.name()));
        let uid = wanted["metadata"]["annotations"][CLUSTER_UID].as_str();
        match node {
            // From the first time that it could be used.
            None if ready => self.call_in(space.name(), Method::POST, NODES, JSON, wanted).await,
            None => Ok(()),
            Some(node) if cluster_of(&node).as_deref() == uid => {
                let Ok(tree) = node.tree() else { return Ok(()) };
                self.update_guest(space.name(), &Value::Object(tree), wanted).await
            }
            Some(_) => {
                let workspace = space.name();
                tracing::info!(cluster = %self.name(), workspace, "a node of that name is there, and stays as it is");
                Ok(())
            }
        }
    }

    async fn update_guest(&self, workspace: &str, node: &Value, wanted: &Value) -> Result<(), Refused> {
        let path = format!("{NODES}/{}", self.name());
        let test = json!({"op": "test", "path": "/metadata/uid", "value": node["metadata"]["uid"]});
        let (labels, taints) = (&wanted["metadata"]["labels"], &wanted["spec"]["taints"]);
        if node["metadata"]["labels"] != *labels || node["spec"]["taints"] != *taints {
            let mut patch =
                vec![test.clone(), json!({"op": "add", "path": "/metadata/labels", "value": labels})];
            if !taints.is_null() {
                patch.push(json!({"op": "add", "path": "/spec/taints", "value": taints}));
            } else if !node["spec"]["taints"].is_null() {
                patch.push(json!({"op": "remove", "path": "/spec/taints"}));
            }
            self.call_in(workspace, Method::PATCH, &path, PATCH, &Value::Array(patch)).await?;
        }
        let status = &wanted["status"];
        let same = ["capacity", "allocatable"].iter().all(|key| node["status"][key] == status[key]);
        if same && says(&node["status"], status) {
            return Ok(());
        }
        let patch = json!([test, {"op": "add", "path": "/status", "value": status}]);
        self.call_in(workspace, Method::PATCH, &format!("{path}/status"), PATCH, &patch).await
    }

    /// What somebody else did meanwhile is looked at when it is heard of.
    async fn call_in(
        &self,
        workspace: &str,
        method: Method,
        path: &str,
        kind: &str,
        body: &Value,
    ) -> Result<(), Refused> {
        self.shared.hub.metrics.members.status_writes.inc();
        match self.shared.desk.call(workspace, method, path, kind, body).await {
            Ok(_) => Ok(()),
            Err(Refused { code: 404 | 409 | 422, .. }) => Ok(()),
            Err(refused) => Err(refused),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_told_is_told_again_only_what_is_new() {
        let (guests, one, two) = (Guests::default(), WorkspaceId("1".into()), WorkspaceId("2".into()));
        assert!(guests.want(&one) && !guests.want(&one) && guests.want(&two));
        assert!(guests.is_pending() && !guests.is_pending());
        let news: Arc<str> = "well".into();
        assert_eq!(guests.behind(&news), [one.clone(), two.clone()]);
        guests.note(&one, &news);
        assert_eq!(guests.behind(&news), std::slice::from_ref(&two));
        assert_eq!(guests.behind("not well").len(), 2);
        assert!(guests.look_at(&one) && guests.is_pending());
        assert_eq!(guests.behind(&news).len(), 2);
        guests.forget(&one);
        assert!(!guests.look_at(&one));
        assert_eq!(guests.all(), [two]);
    }

    #[test]
    fn only_some_are_told_at_once() {
        let guests = Guests::default();
        for number in 0..AT_ONCE * 2 {
            guests.want(&WorkspaceId(number.to_string().into()));
        }
        assert_eq!(guests.behind("news").len(), AT_ONCE);
    }
}
