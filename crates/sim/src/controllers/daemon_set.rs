//! DaemonSets: one pod on every node that takes it.

mod nodes;
mod rolling;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::SignedDuration;
use serde_json::{Value, json};

use self::nodes::Eligibility;
use super::{
    Changed, Controller, Name, claim, history,
    replica_set::{min_ready, next_available},
    stateful_set::REVISION,
};
use crate::{Action, Kind, Plan, Pod, World, kind, pod::Phase, tree};

pub struct DaemonSets;

const KIND: Kind = kind::DAEMON_SETS;
/// No more pods are made or deleted at once.
const BURST: usize = 250;
/// A pod that failed is replaced no sooner after it was made.
const FAILED_REST: SignedDuration = SignedDuration::from_secs(1);

impl Controller for DaemonSets {
    fn kind(&self) -> Kind {
        KIND
    }

    fn name(&self) -> &'static str {
        "daemon-set-controller"
    }

    fn listens_to(&self) -> &'static [Kind] {
        &[kind::PODS, kind::NODES]
    }

    fn wakes(&self, world: &dyn World, changed: &Changed<'_>) -> Vec<Name> {
        if changed.kind == kind::PODS {
            return match changed.new {
                Some(pod) => claim::selecting(world, KIND, pod, claim::selector),
                None => Vec::new(),
            };
        }
        if !nodes::matters(changed) {
            return Vec::new();
        }
        world.list(KIND, None).iter().map(claim::name_of).collect()
    }

    fn reconcile(&self, world: &dyn World, set: &Value) -> Plan {
        let mut plan = Plan::nothing();
        let selector = claim::selector(set);
        if tree::is_deleting(set) || selector.is_empty() {
            return plan;
        }
        let revisions = claim::objects(world, &mut plan, kind::REVISIONS, (KIND, set), &selector);
        let pods = claim::pods(world, &mut plan, (KIND, set), &selector, |_| true);
        if !plan.actions.is_empty() {
            return plan;
        }
        let Some(history) = History::settle(world, &mut plan, set, revisions) else { return plan };
        let eligible = |node: Value| (Eligibility::of(set, &node), tree::name(&node).to_owned());
        let nodes =
            world.list(kind::NODES, None).into_iter().map(eligible).map(|(it, name)| (name, it)).collect();
        let mut work = Work { world, set, pods: nodes::by_node(world, pods), nodes, history, plan };
        work.reconcile();
        work.plan
    }
}

/// The revision that pods are to have, and older ones.
struct History {
    hash: String,
    old: Vec<Value>,
}

impl History {
    /// `None`: something is planned that must happen before.
    fn settle(world: &dyn World, plan: &mut Plan, set: &Value, revisions: Vec<Value>) -> Option<History> {
        let data = history::data(set);
        let (mut current, old): (Vec<Value>, Vec<Value>) =
            revisions.into_iter().partition(|revision| history::is_of(revision, &data));
        current.sort_by(history::in_order);
        let next = old.iter().map(history::number).max().unwrap_or(0).saturating_add(1);
        let Some(newest) = current.pop() else {
            let collisions = tree::number(set, "/status/collisionCount").unwrap_or(0);
            let fresh = history::fresh(world, (KIND, set), REVISION, next, collisions);
            plan.then(Action::create(kind::REVISIONS, fresh.object));
            if fresh.collisions != collisions {
                let mut status = set.get("status").cloned().unwrap_or_else(|| json!({}));
                status["collisionCount"] = fresh.collisions.into();
                plan.set_status(KIND, set, status);
            }
            return None;
        };
        if history::number(&newest) < next {
            plan.then(Action::patch(kind::REVISIONS, &newest, json!({ "revision": next })));
            return None;
        }
        let hash = tree::label(&newest, REVISION).to_owned();
        Some(History { hash, old })
    }
}

/// One look at a DaemonSet.
struct Work<'a> {
    world: &'a dyn World,
    set: &'a Value,
    /// By the node they are on or are meant for, oldest first.
    pods: BTreeMap<String, Vec<Arc<Pod>>>,
    nodes: BTreeMap<String, Eligibility>,
    history: History,
    plan: Plan,
}

/// What to do with pods.
#[derive(Default)]
struct Changes {
    nodes: Vec<String>,
    pods: Vec<Arc<Pod>>,
}

impl Work<'_> {
    fn reconcile(&mut self) {
        let mut changes = Changes::default();
        for (name, eligibility) in self.nodes.clone() {
            self.see_to(&name, eligibility, &mut changes);
        }
        for (node, pods) in &self.pods {
            if !self.nodes.contains_key(node) {
                changes.pods.extend(pods.iter().filter(|pod| pod.node.is_empty()).cloned());
            }
        }
        if changes.nodes.is_empty() && changes.pods.is_empty() && self.rolls() {
            changes = self.roll();
        }
        self.carry_out(changes);
        self.forget_old_revisions();
        let status = self.status();
        self.plan.set_status(KIND, self.set, status);
        let pods = self.pods.values().flatten();
        if let Some(wait) = next_available(pods, min_ready(self.set), self.world.now()) {
            self.plan.look_again(wait);
        }
    }

    fn rolls(&self) -> bool {
        tree::text(self.set, "/spec/updateStrategy/type") != "OnDelete"
    }

    /// What must change on one node, apart from updates.
    fn see_to(&mut self, node: &str, eligibility: Eligibility, changes: &mut Changes) {
        let pods = self.pods.get(node).cloned().unwrap_or_default();
        if eligibility.starts && pods.is_empty() {
            changes.nodes.push(node.to_owned());
            return;
        }
        let staying: Vec<Arc<Pod>> = pods.into_iter().filter(|pod| pod.terminating.is_none()).collect();
        if !eligibility.stays {
            changes.pods.extend(staying);
            return;
        }
        let (finished, running): (Vec<_>, Vec<_>) = staying.into_iter().partition(|pod| pod.is_finished());
        for pod in finished {
            self.replace_finished(node, pod, changes);
        }
        if !self.surges() {
            changes.pods.extend(running.into_iter().skip(1));
            return;
        }
        if running.is_empty() && eligibility.starts {
            changes.nodes.push(node.to_owned());
            return;
        }
        self.keep_newest_and_oldest(&running, changes);
    }

    fn replace_finished(&mut self, node: &str, pod: Arc<Pod>, changes: &mut Changes) {
        let (namespace, name) = (&pod.namespace, &pod.name);
        if pod.phase == Phase::Succeeded {
            let message = format!(
                "Found succeeded daemon pod {namespace}/{name} on node {node}, will try to delete it"
            );
            self.plan.note(KIND, self.set, "SucceededDaemonPod", message);
            changes.pods.push(pod);
            return;
        }
        let age = pod.created.map_or(FAILED_REST, |created| self.world.now().duration_since(created));
        if age < FAILED_REST {
            let rest = FAILED_REST.saturating_sub(age);
            self.plan.look_again(Duration::try_from(rest).unwrap_or_default());
            return;
        }
        let message =
            format!("Found failed daemon pod {namespace}/{name} on node {node}, will try to kill it");
        self.plan.warn(KIND, self.set, "FailedDaemonPod", message);
        changes.pods.push(pod);
    }

    /// While surging there may be one pod of each revision.
    fn keep_newest_and_oldest(&self, running: &[Arc<Pod>], changes: &mut Changes) {
        let (new, old): (Vec<_>, Vec<_>) = running.iter().cloned().partition(|pod| self.is_updated(pod));
        changes.pods.extend(
            new.iter().chain(&old).skip(1).filter(|pod| !old.first().is_some_and(|it| it == *pod)).cloned(),
        );
        if let (Some(new), Some(old)) = (new.first(), old.first())
            && (!old.ready || self.is_available(new))
        {
            changes.pods.push(old.clone());
        }
    }

    fn is_available(&self, pod: &Pod) -> bool {
        pod.is_available(min_ready(self.set), self.world.now())
    }

    fn is_updated(&self, pod: &Pod) -> bool {
        let generation = tree::annotation(self.set, nodes::GENERATION);
        pod.label(REVISION) == Some(self.history.hash.as_str())
            || (!generation.is_empty() && pod.label("pod-template-generation") == Some(generation))
    }

    fn carry_out(&mut self, changes: Changes) {
        let refusal = self.world.refusal(KIND, tree::namespace(self.set), tree::name(self.set));
        let refusal = refusal.filter(|_| !changes.nodes.is_empty());
        let rest = refusal.as_ref().and_then(|refusal| refusal.rest(self.world.now()));
        if let Some(refusal) = refusal.filter(|refusal| refusal.fresh && !refusal.namespace_ends) {
            self.plan.warn(KIND, self.set, "FailedCreate", format!("Error creating: {}", refusal.message));
        }
        for pod in changes.pods.iter().take(BURST) {
            self.plan.then(Action::delete_pod(pod));
            self.plan.note(KIND, self.set, "SuccessfulDelete", format!("Deleted pod: {}", pod.name));
        }
        if let Some(rest) = rest {
            self.plan.look_again(rest);
            return;
        }
        for node in changes.nodes.iter().take(BURST) {
            self.plan.then(Action::create(kind::PODS, nodes::pod(self.set, &self.history.hash, node)));
            self.plan.then(Action::Announce {
                object: tree::reference(KIND, self.set),
                reason: "SuccessfulCreate",
                message: "Created pod: ",
            });
        }
    }

    fn forget_old_revisions(&mut self) {
        let limit = tree::number(self.set, "/spec/revisionHistoryLimit").unwrap_or(10);
        let limit = usize::try_from(limit).unwrap_or(0);
        let mut old: Vec<&Value> = self.history.old.iter().collect();
        let surplus = old.len().saturating_sub(limit);
        old.sort_by(|one, other| history::in_order(one, other));
        let is_used = |revision: &Value| {
            let hash = tree::label(revision, REVISION);
            self.pods.values().flatten().any(|pod| pod.label(REVISION) == Some(hash))
        };
        for revision in old.into_iter().filter(|revision| !is_used(revision)).take(surplus) {
            self.plan.then(Action::delete(kind::REVISIONS, revision));
        }
    }

    fn status(&self) -> Value {
        let [mut desired, mut current, mut misplaced, mut ready, mut updated, mut available] = [0_i64; 6];
        for (node, eligibility) in &self.nodes {
            let pod = self.pods.get(node).and_then(|pods| pods.first());
            if !eligibility.starts {
                misplaced += i64::from(pod.is_some());
                continue;
            }
            desired += 1;
            let Some(pod) = pod else { continue };
            current += 1;
            ready += i64::from(pod.ready);
            available += i64::from(self.is_available(pod));
            updated += i64::from(self.is_updated(pod));
        }
        let mut status = json!({
            "observedGeneration": tree::number(self.set, "/metadata/generation").unwrap_or(0),
            "desiredNumberScheduled": desired,
            "currentNumberScheduled": current,
            "numberMisscheduled": misplaced,
            "numberReady": ready,
            "updatedNumberScheduled": updated,
            "numberAvailable": available,
            "numberUnavailable": desired - available,
        });
        for kept in ["collisionCount", "conditions"] {
            if let Some(value) = self.set.pointer("/status").and_then(|status| status.get(kept)) {
                status[kept] = value.clone();
            }
        }
        let always =
            ["desiredNumberScheduled", "currentNumberScheduled", "numberMisscheduled", "numberReady"];
        tree::compact(status, &[&always[..], &["collisionCount"]].concat())
    }
}
