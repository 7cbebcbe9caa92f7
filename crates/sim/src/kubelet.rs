//! What nodes do with the pods that are bound to them: the life of a pod from its start to its end, in time.
//!
//! All that is known of a pod's life is on the pod: when it started, which container is in which state since when. So
//! this is a function of the pod and the clock, and goes on after a restart.

mod containers;
mod images;
mod needs;
mod status;

pub(crate) use containers::{program, surroundings};

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};

use crate::{
    Action, Kind, Plan, Propagation, World,
    addresses::Addresses,
    controllers::{Changed, Controller, Name},
    kind::{NODES, PODS},
    script, tree,
};

/// How fast things go where a pod does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Until containers run.
    pub start_after: Duration,
    /// Until a running container is ready; one without a probe for that is ready when it runs.
    pub ready_after: Duration,
    /// Until the containers of a job have done their work.
    pub job_takes: Duration,
    /// Until a pod that is told to stop has stopped.
    pub stop_after: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            start_after: Duration::ZERO,
            ready_after: Duration::ZERO,
            job_takes: Duration::from_secs(1),
            stop_after: Duration::ZERO,
        }
    }
}

/// What a pod says about its simulated life, by annotations.
pub const START_AFTER: &str = "sim.hanse.io/start-after";
pub const READY_AFTER: &str = "sim.hanse.io/ready-after";
pub const EXIT_AFTER: &str = "sim.hanse.io/exit-after";
pub const EXIT_CODE: &str = "sim.hanse.io/exit-code";
pub const STOP_AFTER: &str = "sim.hanse.io/stop-after";
/// Why its containers do not start: `ImagePullBackOff`, `CrashLoopBackOff` …
pub const STUCK: &str = "sim.hanse.io/stuck";
/// On a node: `true` if it is down.
pub const DOWN: &str = "sim.hanse.io/down";

/// The life that one pod is to have.
pub(crate) struct Life {
    start_after: Duration,
    /// As it says itself, or else what a probe takes.
    ready_after: (Option<Duration>, Duration),
    stop_after: Duration,
    exit_after: Option<Duration>,
    exit_code: i32,
    job_takes: Duration,
    is_job: bool,
    stuck: String,
}

impl Life {
    fn of(pod: &Value, pace: &Pace) -> Life {
        let said = |key: &str| script::duration(tree::annotation(pod, key));
        Life {
            start_after: said(START_AFTER).unwrap_or(pace.start_after),
            ready_after: (said(READY_AFTER), pace.ready_after),
            stop_after: said(STOP_AFTER).unwrap_or(pace.stop_after),
            exit_after: said(EXIT_AFTER),
            exit_code: tree::annotation(pod, EXIT_CODE).parse().unwrap_or(0),
            job_takes: pace.job_takes,
            is_job: tree::controller(pod).is_some_and(|owner| tree::text(owner, "/kind") == "Job"),
            stuck: tree::annotation(pod, STUCK).to_owned(),
        }
    }
}

pub struct Kubelet {
    pub pace: Pace,
    pub addresses: Arc<Addresses>,
}

impl Controller for Kubelet {
    fn kind(&self) -> Kind {
        PODS
    }

    fn name(&self) -> &'static str {
        "kubelet"
    }

    fn listens_to(&self) -> &'static [Kind] {
        &[NODES]
    }

    /// A node that comes back goes on with its pods.
    fn wakes(&self, world: &dyn World, changed: &Changed<'_>) -> Vec<Name> {
        let (Some(old), Some(new)) = (changed.old, changed.new) else { return Vec::new() };
        if is_down(old) == is_down(new) {
            return Vec::new();
        }
        let pods = world.pods_on(tree::name(new));
        pods.iter().map(|pod| (pod.namespace.to_string(), pod.name.to_string())).collect()
    }

    fn reconcile(&self, world: &dyn World, pod: &Value) -> Plan {
        let node = tree::text(pod, "/spec/nodeName");
        let mut plan = Plan::nothing();
        // Nobody runs it, or nobody can be asked.
        let Some(node) = world.get(NODES, "", node).filter(|node| !node.is_null() && !is_down(node)) else {
            return plan;
        };
        let life = Life::of(pod, &self.pace);
        if tree::is_deleting(pod) {
            self.stop(world, pod, &node, &life, &mut plan);
            return plan;
        }
        if matches!(tree::text(pod, "/status/phase"), "Succeeded" | "Failed") {
            return plan;
        }
        let address = match tree::text(pod, "/status/podIP") {
            "" => self.addresses.give(tree::uid(pod)).map(|it| it.to_string()).unwrap_or_default(),
            known => known.to_owned(),
        };
        let step = status::next(world, pod, &node, &life, &address);
        if let Some(after) = step.again {
            plan.look_again(after);
        }
        if let Some(status) = step.status {
            plan.then(Action::PatchStatus {
                kind: PODS,
                namespace: tree::namespace(pod).into(),
                name: tree::name(pod).into(),
                patch: json!({"metadata": {"uid": tree::uid(pod)}, "status": status}),
            });
        }
        for (warning, reason, message) in step.notes {
            plan.then(Action::Event { object: pod.clone(), warning, reason, message });
        }
        plan
    }
}

pub fn is_down(node: &Value) -> bool {
    tree::annotation(node, DOWN) == "true"
}

impl Kubelet {
    /// A pod that is to go is gone when its containers have stopped, and its grace period is the longest that takes.
    fn stop(&self, world: &dyn World, pod: &Value, node: &Value, life: &Life, plan: &mut Plan) {
        let grace = tree::number(pod, "/metadata/deletionGracePeriodSeconds").unwrap_or(0).max(0) as u64;
        let takes = life.stop_after.min(Duration::from_secs(grace));
        let due = tree::time(pod, "/metadata/deletionTimestamp");
        let asked = due.and_then(|due| due.checked_sub(jiff::SignedDuration::from_secs(grace as i64)).ok());
        let since = asked.map_or(0, |asked| world.now().duration_since(asked).as_millis().max(0)) as u128;
        if since < takes.as_millis() {
            plan.look_again(takes.saturating_sub(Duration::from_millis(since as u64)));
            return;
        }
        if !matches!(tree::text(pod, "/status/phase"), "Succeeded" | "Failed") {
            let message = "Stopping container".to_owned();
            plan.then(Action::Event { object: pod.clone(), warning: false, reason: "Killing", message });
            // Those who keep it wait for its end; nobody else would see it.
            if tree::items(pod, "/metadata/finalizers").len() > 0 {
                plan.then(Action::PatchStatus {
                    kind: PODS,
                    namespace: tree::namespace(pod).into(),
                    name: tree::name(pod).into(),
                    patch: json!({
                        "metadata": {"uid": tree::uid(pod)}, "status": status::stopped(pod, node, world.now()),
                    }),
                });
            }
        }
        plan.then(Action::Delete {
            kind: PODS,
            namespace: tree::namespace(pod).into(),
            name: tree::name(pod).into(),
            uid: tree::uid(pod).into(),
            grace: Some(0),
            propagation: Propagation::Default,
        });
    }
}

#[cfg(test)]
mod tests;
