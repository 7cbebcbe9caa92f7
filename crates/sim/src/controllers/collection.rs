//! What nobody else clears away: pods without a node, and pods long after their end.

use std::time::Duration;

use jiff::SignedDuration;
use serde_json::{Value, json};

use super::{Changed, Controller, Name, job, node, placement};
use crate::{Action, Kind, Plan, Pod, World, kind, tree};

/// Pods that ended are kept up to so many.
const KEPT: usize = 12_500;
/// A pod may be there before its node is.
const QUARANTINE: SignedDuration = SignedDuration::from_secs(40);

/// Clears away pods.
pub struct PodCollection;

impl Controller for PodCollection {
    fn kind(&self) -> Kind {
        kind::PODS
    }

    fn name(&self) -> &'static str {
        "pod-garbage-collector"
    }

    fn listens_to(&self) -> &'static [Kind] {
        &[kind::NODES, kind::JOBS]
    }

    fn wakes(&self, world: &dyn World, changed: &Changed<'_>) -> Vec<Name> {
        let object = changed.object();
        let pods = match (changed.kind, changed.new) {
            (kind::NODES, None) => world.pods_on(tree::name(object)),
            (kind::NODES, Some(node)) if is_out_of_service(node) => world.pods_on(tree::name(object)),
            (kind::JOBS, None) => world.pods_of(tree::namespace(object), tree::uid(object)),
            _ => Vec::new(),
        };
        pods.iter().map(|pod| (pod.namespace.to_string(), pod.name.to_string())).collect()
    }

    fn reconcile(&self, world: &dyn World, tree: &Value) -> Plan {
        let mut plan = Plan::nothing();
        let pod = Pod::of(tree);
        if pod.is_tracked && !has_job(world, &pod) {
            job::release_pod(world, &mut plan, &pod);
            return plan;
        }
        if pod.is_finished() {
            for surplus in world.finished_beyond(KEPT) {
                plan.then(delete_now(&surplus));
            }
            return plan;
        }
        if pod.node.is_empty() {
            if pod.terminating.is_some() {
                end(&mut plan, tree, &pod, None);
            }
            return plan;
        }
        match world.get(kind::NODES, "", &pod.node) {
            None => end_orphan(world, &mut plan, tree, &pod),
            Some(node) if pod.terminating.is_some() && is_out_of_service(&node) => {
                end(&mut plan, tree, &pod, None)
            }
            Some(_) => {}
        }
        plan
    }
}

fn is_out_of_service(node: &Value) -> bool {
    let is_ready = tree::condition(node, "Ready").is_some_and(|it| tree::text(it, "/status") == "True");
    let is_out = |taint: &Value| tree::text(taint, "/key") == "node.kubernetes.io/out-of-service";
    !is_ready && placement::taints(node).iter().any(is_out)
}

/// Whoever would count it is there.
fn has_job(world: &dyn World, pod: &Pod) -> bool {
    let Some(controller) = &pod.controller else { return false };
    if controller.kind != "Job" {
        return true;
    }
    let job = world.get(kind::JOBS, &pod.namespace, &controller.name);
    job.is_some_and(|job| tree::uid(&job) == controller.uid)
}

fn end_orphan(world: &dyn World, plan: &mut Plan, tree: &Value, pod: &Pod) {
    let age = pod.created.map_or(QUARANTINE, |created| world.now().duration_since(created));
    let left = QUARANTINE.saturating_sub(age);
    if left.is_positive() {
        return plan.look_again(Duration::try_from(left).unwrap_or_default());
    }
    let message = "PodGC: node no longer exists";
    let conditions = node::with_disruption(tree, "DeletionByPodGC", message, world.now());
    end(plan, tree, pod, Some(conditions));
}

fn end(plan: &mut Plan, tree: &Value, pod: &Pod, conditions: Option<Vec<Value>>) {
    let mut status = json!({ "phase": "Failed" });
    if let Some(conditions) = conditions {
        status["conditions"] = conditions.into();
    }
    plan.then(node::patch_status(tree, status));
    plan.then(delete_now(pod));
}

fn delete_now(pod: &Pod) -> Action {
    match Action::delete_pod(pod) {
        Action::Delete { kind, namespace, name, uid, propagation, .. } => {
            Action::Delete { kind, namespace, name, uid, grace: Some(0), propagation }
        }
        other => other,
    }
}
