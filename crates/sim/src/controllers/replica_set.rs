//! ReplicaSets and ReplicationControllers: so many pods of one template.

mod ranking;

pub use ranking::first_to_go;

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use machinery::selector::LabelSelector;
use serde_json::{Value, json};

use super::{Changed, Controller, Name, claim, conditions, conditions::Condition, template};
use crate::{Action, Kind, Plan, Pod, Refusal, World, kind, tree};

/// No more pods are made or deleted at once.
const BURST: i64 = 500;
const FAILURE: &str = "ReplicaFailure";

/// For one of the two kinds.
pub struct ReplicaSets {
    kind: Kind,
}

impl ReplicaSets {
    pub const REPLICA_SETS: ReplicaSets = ReplicaSets { kind: kind::REPLICA_SETS };
    pub const REPLICATION_CONTROLLERS: ReplicaSets = ReplicaSets { kind: kind::REPLICATION_CONTROLLERS };

    fn selector(&self, set: &Value) -> LabelSelector {
        if self.kind == kind::REPLICA_SETS {
            return claim::selector(set);
        }
        let labels = tree::members(set, "/spec/selector");
        let selector =
            LabelSelector::from_labels(labels.map(|(key, value)| (key, value.as_str().unwrap_or_default())));
        if selector.is_empty() { LabelSelector::nothing() } else { selector }
    }

    /// Makes or deletes pods until there are as many as there should be.
    fn manage(&self, world: &dyn World, plan: &mut Plan, set: &Value, active: &[Arc<Pod>]) {
        let missing = replicas(set).saturating_sub(active.len() as i64);
        if missing > 0 {
            let pod = template::pod(set.pointer("/spec/template").unwrap_or(&Value::Null), self.kind, set);
            for _ in 0..missing.min(BURST) {
                plan.then(Action::create(kind::PODS, pod.clone()));
                plan.then(Action::Announce {
                    object: tree::reference(self.kind, set),
                    reason: "SuccessfulCreate",
                    message: "Created pod: ",
                });
            }
        }
        if missing < 0 {
            let surplus = usize::try_from(missing.saturating_neg().min(BURST)).unwrap_or(0);
            let related = self.related(world, set);
            for pod in first_to_go(active, &related, surplus, world.now()) {
                plan.then(Action::delete_pod(&pod));
                plan.note(self.kind, set, "SuccessfulDelete", format!("Deleted pod: {}", pod.name));
            }
        }
    }

    /// Pods of all sets with the same controller: those of one Deployment are spread together.
    fn related(&self, world: &dyn World, set: &Value) -> Vec<Arc<Pod>> {
        let namespace = tree::namespace(set);
        let siblings = match tree::controller(set) {
            Some(controller) => world.owned(self.kind, namespace, tree::text(controller, "/uid")),
            None => vec![set.clone()],
        };
        siblings.iter().flat_map(|sibling| world.pods_of(namespace, tree::uid(sibling))).collect()
    }

    fn status(
        &self,
        set: &Value,
        (active, terminating): (&[Arc<Pod>], usize),
        refusal: Option<&Refusal>,
        now: Timestamp,
    ) -> Value {
        let labels = tree::members(set, "/spec/template/metadata/labels");
        let template =
            LabelSelector::from_labels(labels.map(|(key, value)| (key, value.as_str().unwrap_or_default())));
        let min_ready = min_ready(set);
        let count = |holds: &dyn Fn(&Pod) -> bool| active.iter().filter(|pod| holds(pod)).count();

        let mut all = conditions::of(set);
        match refusal {
            Some(refusal) if conditions::find(&all, FAILURE).is_none() => {
                let failure = Condition::new(FAILURE, "True", "FailedCreate", refusal.message.as_str());
                conditions::set(&mut all, failure.at(now));
            }
            Some(_) => {}
            None => conditions::remove(&mut all, FAILURE),
        }
        let mut status = json!({
            "replicas": active.len(),
            "fullyLabeledReplicas": count(&|pod| template.matches(&pod.labels)),
            "readyReplicas": count(&|pod| pod.ready),
            "availableReplicas": count(&|pod| pod.is_available(min_ready, now)),
            "observedGeneration": tree::number(set, "/metadata/generation").unwrap_or(0),
            "conditions": all,
        });
        if self.kind == kind::REPLICA_SETS {
            status["terminatingReplicas"] = terminating.into();
        }
        tree::compact(status, &["replicas", "terminatingReplicas"])
    }
}

pub fn replicas(set: &Value) -> i64 {
    tree::number(set, "/spec/replicas").unwrap_or(1)
}

pub fn min_ready(set: &Value) -> i64 {
    tree::number(set, "/spec/minReadySeconds").unwrap_or(0)
}

/// When the next of these pods will have been ready for long enough.
pub fn next_available<'a>(
    pods: impl Iterator<Item = &'a Arc<Pod>>,
    min_ready: i64,
    now: Timestamp,
) -> Option<Duration> {
    let waiting = pods.filter(|pod| pod.ready && !pod.is_available(min_ready, now));
    let left = waiting.filter_map(|pod| {
        let passed = now.duration_since(pod.ready_changed?);
        let left = jiff::SignedDuration::from_secs(min_ready).checked_sub(passed)?;
        Duration::try_from(left).ok()
    });
    left.min().map(|left| left.max(Duration::from_millis(1)))
}

impl Controller for ReplicaSets {
    fn kind(&self) -> Kind {
        self.kind
    }

    fn name(&self) -> &'static str {
        if self.kind == kind::REPLICA_SETS { "replicaset-controller" } else { "replication-controller" }
    }

    fn listens_to(&self) -> &'static [Kind] {
        &[kind::PODS]
    }

    fn wakes(&self, world: &dyn World, changed: &Changed<'_>) -> Vec<Name> {
        match changed.new {
            Some(pod) => claim::selecting(world, self.kind, pod, |set| self.selector(set)),
            None => Vec::new(),
        }
    }

    fn reconcile(&self, world: &dyn World, set: &Value) -> Plan {
        let mut plan = Plan::nothing();
        let now = world.now();
        let selector = self.selector(set);
        let active = claim::pods(world, &mut plan, (self.kind, set), &selector, Pod::is_active);
        let own = world.pods_of(tree::namespace(set), tree::uid(set));
        let leaves = |pod: &&Arc<Pod>| {
            pod.terminating.is_some() && !pod.is_finished() && selector.matches(&pod.labels)
        };
        let terminating = own.iter().filter(leaves).count();

        let lacks = replicas(set) > active.len() as i64 && !tree::is_deleting(set);
        let refusal = world.refusal(self.kind, tree::namespace(set), tree::name(set)).filter(|_| lacks);
        let refused = refusal.as_ref().filter(|refusal| !refusal.namespace_ends);
        if let Some(refusal) = refused.filter(|refusal| refusal.fresh) {
            plan.warn(self.kind, set, "FailedCreate", format!("Error creating: {}", refusal.message));
        }
        let rest = refusal.as_ref().and_then(|refusal| refusal.rest(now));
        if let Some(rest) = rest {
            plan.look_again(rest);
        } else if !tree::is_deleting(set) {
            self.manage(world, &mut plan, set, &active);
        }
        plan.set_status(self.kind, set, self.status(set, (&active, terminating), refused, now));
        if let Some(wait) = next_available(active.iter(), min_ready(set), now) {
            plan.look_again(wait);
        }
        plan
    }
}
