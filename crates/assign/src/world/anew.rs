//! Everything anew: what is known, as the store has it.

use std::sync::Arc;

use api::assignment::{Assignment, State, Target};
use jiff::{SignedDuration, Timestamp};
use machinery::Object;
use serde_json::Value;
use store::{Collection, Key, WorkspaceId};

use super::{World, placements, policy};
use crate::{
    holds::{MOST_REPORTS, REPORTS},
    queue::{Aspect, Haste, Id},
};

/// A cluster counts at least so often while there is something to count.
const COUNTS_WITHIN: SignedDuration = SignedDuration::from_secs(5);

impl World {
    /// Everything anew.
    pub async fn look_at_everything(&mut self) {
        let (hub, queue) = (self.hub.clone(), std::mem::take(&mut self.queue));
        let failing = std::mem::take(&mut self.failing);
        // What is being written down is not in the store yet.
        let promised = std::mem::take(&mut self.holds).of(|id| queue.is_busy(id, Aspect::Place));
        *self = World { queue, failing, ..World::new(hub) };
        let store = self.hub.store.clone();
        let clusters = Collection::new(api::GROUP, api::cluster::PLURAL);
        let workspaces = store.workspaces();
        for workspace in &workspaces {
            for (item, object) in list(&store, workspace, &clusters) {
                self.clusters.observe(workspace, item.name(), Some(&object), self.hub.now());
            }
        }
        for (id, cluster, amounts) in promised {
            self.hold(&id, &cluster, &amounts);
        }
        let assignments = Collection::new(api::GROUP, api::assignment::PLURAL);
        let is_assigned =
            |it: &WorkspaceId| store.list(it, &assignments, None).is_ok_and(|it| !it.is_empty());
        self.asleep = self.clusters.is_empty() && !workspaces.iter().any(is_assigned);
        if self.asleep {
            return;
        }
        for workspace in &workspaces {
            for (_, object) in list(&store, workspace, &placements()) {
                policy(&object).into_iter().for_each(|policy| self.policies_mut(workspace).put(policy));
            }
        }
        for workspace in &workspaces {
            tokio::task::yield_now().await;
            self.look_at_workspace(workspace).await;
        }
    }

    /// All objects of a workspace, then where they are.
    async fn look_at_workspace(&mut self, workspace: &WorkspaceId) {
        const AT_ONCE: usize = 500;
        let store = self.hub.store.clone();
        let mut assignments = Vec::new();
        for collection in store.collections(workspace) {
            let (group, _) = collection.parts();
            let listed = list(&store, workspace, &collection);
            if group == api::GROUP {
                if collection.parts().1 == api::assignment::PLURAL {
                    assignments = listed;
                }
                continue;
            }
            for (at, (item, object)) in listed.into_iter().enumerate() {
                if collection.parts() == ("", "nodes") {
                    self.observe_node(workspace, item.name(), Some(&object));
                    continue;
                }
                let key = Key { collection: collection.clone(), item };
                self.observe_object(workspace, &key, Some(&object), Haste::InTurn);
                if at % AT_ONCE == AT_ONCE - 1 {
                    tokio::task::yield_now().await;
                }
            }
        }
        for (_, object) in assignments {
            self.hold_again(workspace, &object);
            self.observe_assignment(workspace, Some(&object), &object, Haste::InTurn);
        }
    }

    /// Room that was promised before and may not show yet in what clusters report is held again. What it was for is not
    /// known any more: it is held for all that the cluster is to have of it.
    fn hold_again(&mut self, workspace: &WorkspaceId, object: &Object) {
        let Ok(assignment) = self.hub.assignments.read(object) else { return };
        let reference = &assignment.spec.object;
        let namespace = if reference.is_in_namespace() { object.head.namespace.as_str() } else { "" };
        let key = Key::new(reference.group(), &reference.resource, namespace, &reference.name);
        let id = Id::new(workspace, &key);
        let known = self.namespace(&id).and_then(|it| it.get(&key));
        let Some(subject) = known.map(|it| it.subject.clone()).filter(|it| !it.needs.is_empty()) else {
            return;
        };
        for target in assignment.spec.clusters.iter().filter(|it| it.state != State::Draining) {
            let Some(replicas) = target.replicas.filter(|it| *it > 0) else { continue };
            let is_it =
                self.clusters.uid(workspace, &target.name).is_some_and(|uid| *uid == target.uid.as_str());
            let counted = self.clusters.counted_at(workspace, &target.name);
            if is_it && !is_counted(&assignment, target, object, counted) {
                self.hold(&id, &target.name, &placement::Decision::reservation(&subject, replicas));
            }
        }
    }

    /// Holds room in a cluster for an object.
    pub fn hold(&mut self, id: &Id, cluster: &str, amounts: &kinds::Resources) {
        if let Some(uid) = self.clusters.hold(&id.workspace, cluster, amounts) {
            self.holds.add(id, &uid, cluster, amounts);
        }
    }
}

/// Whether a cluster has counted what it has of an object, by the same rule as while it is held: its copy is there, and
/// the cluster has counted since, for long if there is not all of it. `counted`: when it last did.
fn is_counted(assignment: &Assignment, target: &Target, object: &Object, counted: Option<Timestamp>) -> bool {
    let Some(report) = assignment.report(&target.uid).filter(|report| report.applied) else { return false };
    let ready = report.status["readyReplicas"].as_u64().unwrap_or(0);
    let is_ready = target.replicas.is_none_or(|wanted| ready >= wanted);
    let reports = if is_ready { REPORTS } else { MOST_REPORTS };
    let Some(long) = COUNTS_WITHIN.checked_mul(i32::from(reports)) else { return false };
    // Since when it is as it is: since then nothing of it has come or gone.
    let made = object.tree().ok().and_then(|tree| time(&tree.get("metadata")?["creationTimestamp"]));
    let conditions = report.status["conditions"].as_array().into_iter().flatten();
    let turns = conditions.flat_map(|it| [time(&it["lastTransitionTime"]), time(&it["lastUpdateTime"])]);
    let since = turns.chain([made]).flatten().max();
    since.zip(counted).is_some_and(|(since, counted)| counted.duration_since(since) > long)
}

fn time(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}

fn list(
    store: &Arc<dyn store::Store>,
    workspace: &WorkspaceId,
    collection: &Collection,
) -> Vec<(store::ItemKey, Arc<Object>)> {
    let listing = store.list(workspace, collection, None);
    listing
        .map(|it| it.iter(None, None).map(|(item, object)| (item.clone(), object.clone())).collect())
        .unwrap_or_default()
}
