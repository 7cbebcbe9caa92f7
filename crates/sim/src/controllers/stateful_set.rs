//! StatefulSets: pods with numbers, each with claims of its own.

mod claims;
mod pods;

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};

use self::pods::{Ordinals, ordinal_in};
use super::{
    Changed, Controller, Name, claim, history,
    replica_set::{min_ready, next_available, replicas},
    share::share,
};
use crate::{Action, Kind, Plan, Pod, World, kind, pod::Phase, tree};

pub struct StatefulSets;

const KIND: Kind = kind::STATEFUL_SETS;
pub(super) const REVISION: &str = "controller-revision-hash";
const HASH: &str = "controller.kubernetes.io/hash";

impl Controller for StatefulSets {
    fn kind(&self) -> Kind {
        KIND
    }

    fn name(&self) -> &'static str {
        "statefulset-controller"
    }

    fn listens_to(&self) -> &'static [Kind] {
        &[kind::PODS, kind::CLAIMS]
    }

    fn wakes(&self, world: &dyn World, changed: &Changed<'_>) -> Vec<Name> {
        match (changed.kind, changed.new) {
            (kind::PODS, Some(pod)) => claim::selecting(world, KIND, pod, claim::selector),
            // A pod may wait for a claim of its predecessor to be gone.
            (kind::CLAIMS, None) => claims::users(world, changed.object()),
            _ => Vec::new(),
        }
    }

    fn reconcile(&self, world: &dyn World, set: &Value) -> Plan {
        let mut plan = Plan::nothing();
        let selector = claim::selector(set);
        let mut revisions = claim::objects(world, &mut plan, kind::REVISIONS, (KIND, set), &selector);
        let is_member = |pod: &Pod| ordinal_in(set, &pod.name).is_some();
        let pods = claim::pods(world, &mut plan, (KIND, set), &selector, is_member);
        if !plan.actions.is_empty() {
            return plan;
        }
        revisions.sort_by(history::in_order);
        let Some(revisions) = Revisions::settle(world, &mut plan, set, revisions) else { return plan };
        let pods = pods.into_iter().filter_map(|pod| Some((ordinal_in(set, &pod.name)?, pod))).collect();
        let mut work = Work { world, set, ordinals: Ordinals::of(set), pods, revisions, plan };
        work.reconcile();
        work.plan
    }
}

/// The one that pods are to have, the one they had before, and the rest.
struct Revisions {
    current: Value,
    update: Value,
    all: Vec<Value>,
    collisions: i64,
}

impl Revisions {
    /// `None`: something is planned that must happen before.
    fn settle(world: &dyn World, plan: &mut Plan, set: &Value, all: Vec<Value>) -> Option<Revisions> {
        let collisions = tree::number(set, "/status/collisionCount").unwrap_or(0);
        let data = history::data(set);
        let next = all.last().map_or(1, |last| history::number(last).saturating_add(1));
        let equal = all.iter().rev().find(|revision| history::is_of(revision, &data));
        if tree::is_deleting(set) && equal.is_none() {
            // Whoever deletes it in the foreground deletes what it owns first: a new one would go, and come, for ever.
            return None;
        }
        let Some(update) = equal.cloned() else {
            let fresh = history::fresh(world, (KIND, set), HASH, next, collisions);
            plan.then(Action::create(kind::REVISIONS, fresh.object));
            if fresh.collisions != collisions {
                let mut status = set.get("status").cloned().unwrap_or_else(|| json!({}));
                status["collisionCount"] = fresh.collisions.into();
                plan.set_status(KIND, set, status);
            }
            return None;
        };
        if all.last().is_some_and(|last| tree::name(last) != tree::name(&update)) {
            plan.then(Action::patch(kind::REVISIONS, &update, json!({ "revision": next })));
            return None;
        }
        let current = tree::text(set, "/status/currentRevision");
        let current = all.iter().find(|it| tree::name(it) == current).unwrap_or(&update).clone();
        Some(Revisions { current, update, all, collisions })
    }
}

/// One look at a StatefulSet.
struct Work<'a> {
    world: &'a dyn World,
    set: &'a Value,
    ordinals: Ordinals,
    pods: BTreeMap<i64, Arc<Pod>>,
    revisions: Revisions,
    plan: Plan,
}

impl Work<'_> {
    fn reconcile(&mut self) {
        if !tree::is_deleting(self.set) {
            let one_by_one = tree::text(self.set, "/spec/podManagementPolicy") != "Parallel";
            if self.fill(one_by_one) && self.shrink(one_by_one) {
                self.update();
            }
        }
        let status = self.status();
        self.plan.set_status(KIND, self.set, status);
        self.forget_old_revisions();
        if let Some(wait) = next_available(self.pods.values(), min_ready(self.set), self.world.now()) {
            self.plan.look_again(wait);
        }
    }

    /// Makes what is missing. Says whether to go on: one by one, every pod waits for those before it.
    fn fill(&mut self, one_by_one: bool) -> bool {
        for ordinal in self.ordinals.all() {
            let goes_on = match self.pods.get(&ordinal).cloned() {
                Some(pod) => self.keep(ordinal, &pod, one_by_one),
                None => {
                    self.make(ordinal);
                    !one_by_one
                }
            };
            if !goes_on && one_by_one {
                return false;
            }
        }
        true
    }

    fn keep(&mut self, ordinal: i64, pod: &Pod, one_by_one: bool) -> bool {
        if pod.is_finished() {
            if pod.terminating.is_none() {
                self.delete(pod);
            }
            return false;
        }
        if pod.phase == Phase::Pending {
            self.make_claims(ordinal, &pod.name);
        }
        if one_by_one && !self.is_settled(pod) {
            return false;
        }
        self.set_claim_owners(ordinal, pod);
        self.set_identity(ordinal, pod);
        true
    }

    /// It is running, available, and stays.
    fn is_settled(&self, pod: &Pod) -> bool {
        pod.terminating.is_none() && pod.phase == Phase::Running && self.is_available(pod)
    }

    fn is_available(&self, pod: &Pod) -> bool {
        pod.is_available(min_ready(self.set), self.world.now())
    }

    /// Deletes pods beyond the last number, the highest first.
    fn shrink(&mut self, one_by_one: bool) -> bool {
        let beyond: Vec<_> =
            self.pods.iter().filter(|(ordinal, _)| !self.ordinals.contain(**ordinal)).collect();
        let beyond: Vec<(i64, Arc<Pod>)> =
            beyond.into_iter().rev().map(|(at, pod)| (*at, pod.clone())).collect();
        for (ordinal, pod) in &beyond {
            self.set_claim_owners(*ordinal, pod);
        }
        let first_unhealthy = self.first_unhealthy();
        for (_, pod) in &beyond {
            if pod.terminating.is_some() {
                if one_by_one {
                    return false;
                }
                continue;
            }
            let may_go = self.is_settled(pod) || first_unhealthy.as_deref() == Some(pod.name.as_str());
            if one_by_one && !may_go {
                return false;
            }
            self.delete(pod);
            if one_by_one {
                return false;
            }
        }
        beyond.is_empty() || !one_by_one
    }

    fn first_unhealthy(&self) -> Option<String> {
        let is_unhealthy = |pod: &&Arc<Pod>| !self.is_available(pod) || pod.terminating.is_some();
        let within = self.ordinals.all().find_map(|ordinal| match self.pods.get(&ordinal) {
            Some(pod) => is_unhealthy(&pod).then(|| pod.name.to_string()),
            None => Some(pods::name(self.set, ordinal)),
        });
        let beyond = self.pods.iter().filter(|(ordinal, _)| !self.ordinals.contain(**ordinal));
        within.or_else(|| beyond.map(|(_, pod)| pod).find(is_unhealthy).map(|pod| pod.name.to_string()))
    }

    /// Deletes pods of another revision, the highest first, so that they are made anew.
    fn update(&mut self) {
        if tree::text(self.set, "/spec/updateStrategy/type") == "OnDelete" {
            return;
        }
        let partition = tree::number(self.set, "/spec/updateStrategy/rollingUpdate/partition").unwrap_or(0);
        let all = self.ordinals.all();
        let outdated: Vec<i64> = (all.start.saturating_add(partition)..all.end).rev().collect();
        let most = self.set.pointer("/spec/updateStrategy/rollingUpdate/maxUnavailable");
        match share(most, replicas(self.set), false) {
            None => self.update_next(&outdated),
            Some(most) => self.update_some(&outdated, most.max(1)),
        }
    }

    /// The next one, once those after it are available.
    fn update_next(&mut self, ordinals: &[i64]) {
        for ordinal in ordinals {
            if let Some(pod) = self.outdated(*ordinal) {
                return self.delete(&pod);
            }
            if self.is_unavailable(*ordinal) {
                return;
            }
        }
    }

    /// As long as no more than `most` are unavailable.
    fn update_some(&mut self, ordinals: &[i64], most: i64) {
        let unavailable = self.ordinals.all().filter(|ordinal| self.is_unavailable(*ordinal)).count() as i64;
        let room = usize::try_from(most - unavailable).unwrap_or(0);
        let outdated: Vec<_> =
            ordinals.iter().filter_map(|ordinal| self.outdated(*ordinal)).take(room).collect();
        for pod in outdated {
            self.delete(&pod);
        }
    }

    fn outdated(&self, ordinal: i64) -> Option<Arc<Pod>> {
        let update = tree::name(&self.revisions.update);
        let pod = self.pods.get(&ordinal)?;
        (pod.label(REVISION) != Some(update) && pod.terminating.is_none()).then(|| pod.clone())
    }

    fn is_unavailable(&self, ordinal: i64) -> bool {
        self.pods.get(&ordinal).is_none_or(|pod| !self.is_available(pod) || pod.terminating.is_some())
    }

    fn delete(&mut self, pod: &Pod) {
        self.plan.then(Action::delete_pod(pod));
        let message = format!("Delete Pod {} in StatefulSet {} successful", pod.name, tree::name(self.set));
        self.plan.note(KIND, self.set, "SuccessfulDelete", message);
    }

    fn status(&self) -> Value {
        let (current, update) = (tree::name(&self.revisions.current), tree::name(&self.revisions.update));
        let count = |holds: &dyn Fn(&Pod) -> bool| self.pods.values().filter(|pod| holds(pod)).count() as i64;
        let has =
            |revision: &str| count(&|pod| pod.terminating.is_none() && pod.label(REVISION) == Some(revision));
        let is_ready = |pod: &Pod| pod.phase == Phase::Running && pod.ready;
        let (ready, updated) = (count(&is_ready), has(update));
        let wanted = replicas(self.set);
        let is_complete = tree::text(self.set, "/spec/updateStrategy/type") != "OnDelete"
            && updated == wanted
            && ready == wanted
            && self.pods.len() as i64 == wanted;
        let status = json!({
            "observedGeneration": tree::number(self.set, "/metadata/generation").unwrap_or(0),
            "replicas": self.pods.len(),
            "readyReplicas": ready,
            "availableReplicas": count(&|pod| is_ready(pod) && self.is_available(pod)),
            "currentReplicas": if is_complete { updated } else { has(current) },
            "updatedReplicas": updated,
            "currentRevision": if is_complete { update } else { current },
            "updateRevision": update,
            "collisionCount": self.revisions.collisions,
        });
        tree::compact(status, &["replicas", "availableReplicas", "collisionCount"])
    }

    fn forget_old_revisions(&mut self) {
        let limit = tree::number(self.set, "/spec/revisionHistoryLimit").unwrap_or(10);
        let Ok(limit) = usize::try_from(limit) else { return };
        let is_used = |name: &str| {
            name == tree::name(&self.revisions.current)
                || name == tree::name(&self.revisions.update)
                || self.pods.values().any(|pod| pod.label(REVISION) == Some(name))
        };
        let unused: Vec<&Value> = self.revisions.all.iter().filter(|it| !is_used(tree::name(it))).collect();
        for revision in unused.iter().take(unused.len().saturating_sub(limit)) {
            self.plan.then(Action::delete(kind::REVISIONS, revision));
        }
    }
}
