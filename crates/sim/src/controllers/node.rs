//! Nodes: what their conditions mean for the pods on them.

use std::{sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{Changed, Controller, Name, placement};
use crate::{Action, Kind, Plan, Pod, World, kind, tree};

const KIND: Kind = kind::NODES;
const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
/// Which condition, with which status, is which taint.
const TAINTS: [(&str, &str, &str); 6] = [
    ("Ready", "False", NOT_READY),
    ("Ready", "Unknown", UNREACHABLE),
    ("MemoryPressure", "True", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure"),
    ("NetworkUnavailable", "True", "node.kubernetes.io/network-unavailable"),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure"),
];
const LABELS: [(&str, &str); 2] =
    [("kubernetes.io/os", "beta.kubernetes.io/os"), ("kubernetes.io/arch", "beta.kubernetes.io/arch")];

/// Turns conditions into taints, and marks pods on nodes that are not ready.
pub struct NodeLifecycle;

fn readiness(node: &Value) -> &str {
    tree::condition(node, "Ready").map_or("", |condition| tree::text(condition, "/status"))
}

impl Controller for NodeLifecycle {
    fn kind(&self) -> Kind {
        KIND
    }

    fn name(&self) -> &'static str {
        "node-controller"
    }

    fn listens_to(&self) -> &'static [Kind] {
        &[KIND]
    }

    /// When the last node goes down, or the first one comes up, that matters to all.
    fn wakes(&self, world: &dyn World, changed: &Changed<'_>) -> Vec<Name> {
        if changed.old.map(readiness) == changed.new.map(readiness) {
            return Vec::new();
        }
        let nodes = world.list(KIND, None);
        nodes.iter().map(|node| (String::new(), tree::name(node).to_owned())).collect()
    }

    fn reconcile(&self, world: &dyn World, node: &Value) -> Plan {
        let mut plan = Plan::nothing();
        let taints = taints(world, node);
        let mut patch = json!({});
        if !tree::same(&json!(placement::taints(node)), &json!(taints)) {
            patch["spec"]["taints"] = if taints.is_empty() { Value::Null } else { json!(taints) };
            patch["metadata"]["resourceVersion"] = node["metadata"]["resourceVersion"].clone();
        }
        for (label, old_label) in LABELS {
            let value = tree::label(node, label);
            if !value.is_empty() && tree::label(node, old_label) != value {
                patch["metadata"]["labels"][old_label] = value.into();
            }
        }
        if patch != json!({}) {
            plan.then(Action::patch(KIND, node, patch));
        }
        if ["False", "Unknown"].contains(&readiness(node)) {
            mark_pods(world, &mut plan, node);
        }
        plan
    }
}

/// As they should be: ours by its conditions, all others as they are.
fn taints(world: &dyn World, node: &Value) -> Vec<Value> {
    let mut wanted: Vec<(&str, &str)> = Vec::new();
    for condition in tree::items(node, "/status/conditions") {
        let (kind, status) = (tree::text(condition, "/type"), tree::text(condition, "/status"));
        let found = TAINTS.iter().find(|(of, when, _)| *of == kind && *when == status);
        wanted.extend(found.map(|(_, _, taint)| (*taint, "NoSchedule")));
    }
    if tree::flag(node, "/spec/unschedulable") {
        wanted.push((UNSCHEDULABLE, "NoSchedule"));
    }
    match readiness(node) {
        _ if !evicts(world) => {}
        "False" => wanted.push((NOT_READY, "NoExecute")),
        "Unknown" => wanted.push((UNREACHABLE, "NoExecute")),
        _ => {}
    }
    let is_ours = |taint: &Value| {
        let (key, effect) = (tree::text(taint, "/key"), tree::text(taint, "/effect"));
        let of_condition = TAINTS.iter().any(|(_, _, taint)| *taint == key);
        match effect {
            "NoSchedule" => of_condition || key == UNSCHEDULABLE,
            "NoExecute" => key == NOT_READY || key == UNREACHABLE,
            _ => false,
        }
    };
    let is_wanted = |taint: &Value| {
        wanted
            .iter()
            .any(|(key, effect)| tree::text(taint, "/key") == *key && tree::text(taint, "/effect") == *effect)
    };
    let mut taints = placement::taints(node);
    taints.retain(|taint| !is_ours(taint) || is_wanted(taint));
    for (key, effect) in wanted {
        let has = |taint: &Value| tree::text(taint, "/key") == key && tree::text(taint, "/effect") == effect;
        if !taints.iter().any(has) {
            taints.push(json!({ "key": key, "effect": effect, "timeAdded": tree::time_text(world.now()) }));
        }
    }
    taints
}

/// If no node is ready, the fault is more likely to be with whoever says so: nothing is evicted.
fn evicts(world: &dyn World) -> bool {
    let is_excluded = |node: &Value| {
        node.pointer("/metadata/labels")
            .is_some_and(|it| it.get("node.kubernetes.io/exclude-disruption").is_some())
    };
    world.list(KIND, None).iter().any(|node| !is_excluded(node) && readiness(node) == "True")
}

/// Nobody on a node that does not answer can say that its pods are not ready.
fn mark_pods(world: &dyn World, plan: &mut Plan, node: &Value) {
    let mut marked = false;
    for pod in world.pods_on(tree::name(node)).iter().filter(|pod| pod.ready) {
        let Some(tree) = world.get(kind::PODS, &pod.namespace, &pod.name) else { continue };
        let mut all: Vec<Value> = tree::items(&tree, "/status/conditions").cloned().collect();
        for condition in all.iter_mut().filter(|it| tree::text(it, "/type") == "Ready") {
            condition["status"] = "False".into();
            condition["lastTransitionTime"] = tree::time_text(world.now()).into();
        }
        plan.then(patch_status(&tree, json!({ "conditions": all })));
        plan.warn(kind::PODS, &tree, "NodeNotReady", "Node is not ready");
        marked = true;
    }
    if marked {
        let message = format!("Node {} status is now: NodeNotReady", tree::name(node));
        plan.note(KIND, node, "NodeNotReady", message);
    }
}

pub fn patch_status(pod: &Value, status: Value) -> Action {
    let version = tree::text(pod, "/metadata/resourceVersion");
    Action::PatchStatus {
        kind: kind::PODS,
        namespace: tree::namespace(pod).to_owned(),
        name: tree::name(pod).to_owned(),
        patch: json!({ "metadata": { "uid": tree::uid(pod), "resourceVersion": version }, "status": status }),
    }
}

/// The condition that says why a pod goes, set or added.
pub fn with_disruption(pod: &Value, reason: &str, message: &str, now: Timestamp) -> Vec<Value> {
    let mut all: Vec<Value> = tree::items(pod, "/status/conditions").cloned().collect();
    let mut condition = json!({
        "type": "DisruptionTarget", "status": "True", "reason": reason, "message": message,
        "lastProbeTime": null, "lastTransitionTime": tree::time_text(now),
    });
    let generation = tree::number(pod, "/metadata/generation")
        .filter(|_| pod.pointer("/status/observedGeneration").is_some());
    if let Some(generation) = generation {
        condition["observedGeneration"] = generation.into();
    }
    super::conditions::set_in_place(&mut all, condition);
    all
}

/// Evicts pods that do not bear their node's taints, or not for longer.
pub struct TaintEviction;

impl Controller for TaintEviction {
    fn kind(&self) -> Kind {
        KIND
    }

    fn name(&self) -> &'static str {
        "taint-eviction-controller"
    }

    fn listens_to(&self) -> &'static [Kind] {
        &[kind::PODS]
    }

    fn wakes(&self, _world: &dyn World, changed: &Changed<'_>) -> Vec<Name> {
        let node = |pod: &Value| tree::text(pod, "/spec/nodeName").to_owned();
        let bound = changed.new.map(node).filter(|node| !node.is_empty());
        let moved = bound.filter(|_| changed.old.map(node) != changed.new.map(node));
        moved.map(|node| (String::new(), node)).into_iter().collect()
    }

    fn reconcile(&self, world: &dyn World, node: &Value) -> Plan {
        let mut plan = Plan::nothing();
        let mut taints = placement::taints(node);
        taints.retain(|taint| tree::text(taint, "/effect") == "NoExecute");
        if taints.is_empty() {
            return plan;
        }
        for pod in world.pods_on(tree::name(node)) {
            if pod.terminating.is_none() && !pod.is_finished() {
                see_to(world, &mut plan, &pod, &taints);
            }
        }
        plan
    }
}

fn see_to(world: &dyn World, plan: &mut Plan, pod: &Arc<Pod>, taints: &[Value]) {
    let Some(tree) = world.get(kind::PODS, &pod.namespace, &pod.name) else { return };
    let tolerations: Vec<Value> = tree::items(&tree, "/spec/tolerations").cloned().collect();
    let left = match bears(&tolerations, taints) {
        None => SignedDuration::ZERO,
        Some(None) => return,
        Some(Some(seconds)) => {
            let added = taints.iter().filter_map(|taint| tree::time(taint, "/timeAdded"));
            let since = added.chain(pod.created).max().unwrap_or_else(|| world.now());
            SignedDuration::from_secs(seconds).saturating_sub(world.now().duration_since(since))
        }
    };
    if left.is_positive() {
        return plan.look_again(Duration::try_from(left).unwrap_or_default());
    }
    let message = "Taint manager: deleting due to NoExecute taint";
    let conditions = with_disruption(&tree, "DeletionByTaintManager", message, world.now());
    let event = format!("Marking for deletion Pod {}/{}", pod.namespace, pod.name);
    plan.note(kind::PODS, &tree, "TaintManagerEviction", event);
    plan.then(patch_status(&tree, json!({ "conditions": conditions })));
    plan.then(Action::delete_pod(pod));
}

/// `None`: some taint is not borne at all; `Some(None)`: all are, for ever; else for so many seconds.
fn bears(tolerations: &[Value], taints: &[Value]) -> Option<Option<i64>> {
    let mut shortest = None;
    for taint in taints {
        let mut bearing =
            tolerations.iter().filter(|toleration| placement::tolerates(toleration, taint)).peekable();
        bearing.peek()?;
        for seconds in bearing.filter_map(|toleration| tree::number(toleration, "/tolerationSeconds")) {
            let seconds = seconds.max(0);
            shortest = Some(shortest.map_or(seconds, |shortest: i64| shortest.min(seconds)));
        }
    }
    Some(shortest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_toleration_decides() {
        let taint = |key: &str| json!({ "key": key, "effect": "NoExecute" });
        let toleration = |key: &str, seconds: Option<i64>| {
            let mut toleration = json!({ "key": key, "operator": "Exists", "effect": "NoExecute" });
            if let Some(seconds) = seconds {
                toleration["tolerationSeconds"] = seconds.into();
            }
            toleration
        };
        let table = [
            (vec![], vec![taint("a")], None),
            (vec![toleration("a", None)], vec![taint("a")], Some(None)),
            (vec![toleration("a", Some(300))], vec![taint("a")], Some(Some(300))),
            (vec![toleration("a", Some(300))], vec![taint("a"), taint("b")], None),
            (
                vec![toleration("a", Some(300)), toleration("b", Some(30))],
                vec![taint("a"), taint("b")],
                Some(Some(30)),
            ),
            (vec![toleration("a", Some(-1))], vec![taint("a")], Some(Some(0))),
        ];
        for (tolerations, taints, expected) in table {
            assert_eq!(bears(&tolerations, &taints), expected, "{tolerations:?} {taints:?}");
        }
    }
}
