//! Everything anew: what is known, as the store has it.

use std::sync::Arc;

use api::assignment::{Assignment, State, Target};
use jiff::{SignedDuration, Timestamp};
use kinds::Split;
use machinery::Object;
use serde_json::Value;
use store::{Collection, Key, WorkspaceId};

use super::{World, placements, policy};
use crate::{
    holds::{MOST_REPORTS, REPORTS},
    queue::{Haste, Id},
};

/// A cluster counts at least so often while there is something to count.
const COUNTS_WITHIN: SignedDuration = SignedDuration::from_secs(5);

impl World {
    /// Everything anew.
    pub async fn look_at_everything(&mut self) {
        let (hub, queue) = (self.hub.clone(), std::mem::take(&mut self.queue));
        let failing = std::mem::take(&mut self.failing);
        // What is being written down is not in the store yet.
        let tried = std::mem::take(&mut self.holds).tried();
        *self = World { queue, failing, ..World::new(hub) };
        let store = self.hub.store.clone();
        let clusters = Collection::new(api::GROUP, api::cluster::PLURAL);
        let workspaces = store.workspaces();
        for workspace in &workspaces {
            for (item, object) in list(&store, workspace, &clusters) {
                self.clusters.observe(workspace, item.name(), Some(&object), self.hub.now());
            }
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
        // On top of what is in the store, so that only that is left if they are not written down.
        for (id, cluster, amounts) in tried {
            self.try_hold(&id, &cluster, &amounts);
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

    /// Room that was promised before and may not show yet in what clusters report is held again: for all of it that the
    /// cluster is to have and has not counted.
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
            let counted_at = self.clusters.counted_at(workspace, &target.name);
            let uncounted =
                replicas.saturating_sub(counted(&assignment, target, subject.splits, object, counted_at));
            if is_it && uncounted > 0 {
                self.hold(&id, &target.name, &placement::Decision::reservation(&subject, uncounted));
            }
        }
    }

    /// Holds room in a cluster for an object.
    pub fn hold(&mut self, id: &Id, cluster: &str, amounts: &kinds::Resources) {
        if let Some(uid) = self.clusters.hold(&id.workspace, cluster, amounts) {
            self.holds.add(id, &uid, cluster, amounts);
        }
    }

    /// The same for a decision that is not written down yet.
    pub fn try_hold(&mut self, id: &Id, cluster: &str, amounts: &kinds::Resources) {
        if let Some(uid) = self.clusters.hold(&id.workspace, cluster, amounts) {
            self.holds.try_add(id, &uid, cluster, amounts);
        }
    }
}

/// How much of what it has of an object a cluster has counted, by the same rule as while it is held: the pods are there, and
/// the cluster has counted since, for long if not all of them are ready. Whether its copy is as it should be makes no
/// difference to those that run. `counted_at`: when it last did.
fn counted(
    assignment: &Assignment,
    target: &Target,
    splits: Split,
    object: &Object,
    counted_at: Option<Timestamp>,
) -> u64 {
    let Some(report) = assignment.report(&target.uid).filter(|report| report.run == target.run) else {
        return 0;
    };
    let wanted = target.replicas.unwrap_or(0);
    let there = match splits {
        // What has not been raised there yet has not been counted.
        Split::Replicas | Split::Ordinals => report.status["replicas"].as_u64().unwrap_or(0),
        _ if report.applied => wanted,
        _ => 0,
    };
    let is_ready = report.status["readyReplicas"].as_u64().unwrap_or(0) >= wanted;
    let reports = if is_ready { REPORTS } else { MOST_REPORTS };
    let Some(long) = COUNTS_WITHIN.checked_mul(i32::from(reports)) else { return 0 };
    // Since when it is as it is: since then nothing of it has come or gone.
    let made = object.tree().ok().and_then(|tree| time(&tree.get("metadata")?["creationTimestamp"]));
    let conditions = report.status["conditions"].as_array().into_iter().flatten();
    let turns = conditions.flat_map(|it| [time(&it["lastTransitionTime"]), time(&it["lastUpdateTime"])]);
    let since = turns.chain([made]).flatten().max();
    let is_counted =
        since.zip(counted_at).is_some_and(|(since, counted_at)| counted_at.duration_since(since) > long);
    if is_counted { there } else { 0 }
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

#[cfg(test)]
mod tests {
    use api::assignment::{Report, Spec, Status};
    use machinery::{Draft, EventType, Revision};
    use serde_json::json;

    use super::*;

    /// How many of its pods count, ten hours after it came to be as it is.
    fn counted_of(wanted: u64, splits: Split, applied: bool, status: Value) -> u64 {
        let target =
            Target { name: "a".into(), uid: "a".into(), replicas: Some(wanted), ..Target::default() };
        let report = Report { name: "a".into(), uid: "a".into(), applied, status, ..Report::default() };
        let assignment = Assignment {
            spec: Spec { clusters: vec![target.clone()], ..Spec::default() },
            status: Status { clusters: vec![report] },
        };
        let tree = json!({
            "kind": "Assignment", "apiVersion": api::API_VERSION,
            "metadata": {"name": "web", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"},
        });
        let draft = Draft::encode(tree.as_object().unwrap()).unwrap();
        let object = draft.seal(Revision::start_of_epoch(1), EventType::Added);
        counted(&assignment, &target, splits, &object, time(&json!("2026-01-01T10:00:00Z")))
    }

    #[test]
    fn what_runs_is_counted_and_what_is_still_to_come_is_not() {
        let runs = |all: u64, ready: u64| json!({"replicas": all, "readyReplicas": ready});
        assert_eq!(counted_of(3, Split::Replicas, true, runs(3, 3)), 3);
        assert_eq!(counted_of(200, Split::Replicas, true, runs(2, 2)), 2, "it was raised a moment ago");
        assert_eq!(counted_of(50, Split::Replicas, false, runs(50, 50)), 50, "an update of it is refused");
        assert_eq!(counted_of(50, Split::Replicas, true, json!({})), 0, "none has come up yet");
        assert_eq!(counted_of(3, Split::JobCounts, true, json!({"succeeded": 3})), 3);
        assert_eq!(counted_of(3, Split::JobCounts, false, Value::Null), 0, "it is not there");
        let turned = json!([{"type": "Available", "lastTransitionTime": "2026-01-01T09:59:58Z"}]);
        let mut lately = runs(3, 3);
        lately["conditions"] = turned;
        assert_eq!(counted_of(3, Split::Replicas, true, lately), 0, "the cluster may have counted before");
    }
}
