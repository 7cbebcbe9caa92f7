//! Nodes that take a DaemonSet's pods.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};

use super::KIND;
use crate::{
    Pod, World,
    controllers::{Changed, placement, stateful_set::REVISION, template},
    kind, tree,
};

pub const GENERATION: &str = "deprecated.daemonset.template.generation";

/// Whether a node should get a pod, and whether one that is there may stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Eligibility {
    pub starts: bool,
    pub stays: bool,
}

impl Eligibility {
    pub fn of(set: &Value, node: &Value) -> Eligibility {
        let spec = set.pointer("/spec/template/spec").unwrap_or(&Value::Null);
        let named = tree::text(spec, "/nodeName");
        if !(named.is_empty() || named == tree::name(node)) || !placement::selects(spec, node) {
            return Eligibility { starts: false, stays: false };
        }
        let (taints, tolerations) = (placement::taints(node), tolerations(spec));
        let lacks = |effects: &[&str]| placement::untolerated(&taints, &tolerations, effects).is_some();
        Eligibility { starts: !lacks(&["NoSchedule", "NoExecute"]), stays: !lacks(&["NoExecute"]) }
    }
}

/// Daemons run on nodes that are in trouble: they may be there to help.
fn tolerations(spec: &Value) -> Vec<Value> {
    let mut all: Vec<Value> = tree::items(spec, "/tolerations").cloned().collect();
    let mut troubles = vec![
        ("not-ready", "NoExecute"),
        ("unreachable", "NoExecute"),
        ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"),
        ("pid-pressure", "NoSchedule"),
        ("unschedulable", "NoSchedule"),
    ];
    if tree::flag(spec, "/hostNetwork") {
        troubles.push(("network-unavailable", "NoSchedule"));
    }
    for (trouble, effect) in troubles {
        let toleration = json!({
            "key": format!("node.kubernetes.io/{trouble}"), "operator": "Exists", "effect": effect,
        });
        let same = |it: &Value| {
            ["/key", "/effect", "/operator", "/value"]
                .iter()
                .all(|at| tree::text(it, at) == tree::text(&toleration, at))
        };
        match all.iter_mut().find(|it| same(it)) {
            Some(found) => *found = toleration,
            None => all.push(toleration),
        }
    }
    all
}

/// Only labels, taints, readiness of the pool of nodes decide; nodes report much else, and often.
pub fn matters(changed: &Changed<'_>) -> bool {
    let (Some(old), Some(new)) = (changed.old, changed.new) else { return true };
    ["/metadata/labels", "/spec/taints", "/spec/unschedulable"]
        .iter()
        .any(|pointer| old.pointer(pointer) != new.pointer(pointer))
}

/// A pod for one node; the scheduler binds it.
pub fn pod(set: &Value, hash: &str, node: &str) -> Value {
    let mut pod = template::pod(set.pointer("/spec/template").unwrap_or(&Value::Null), KIND, set);
    let labels = &mut pod["metadata"]["labels"];
    let generation = tree::annotation(set, GENERATION);
    if !generation.is_empty() {
        labels["pod-template-generation"] = generation.into();
    }
    labels[REVISION] = hash.into();
    let tolerations = tolerations(&pod["spec"]);
    pod["spec"]["tolerations"] = tolerations.into();
    pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] = json!({
        "nodeSelectorTerms": [
            { "matchFields": [{ "key": "metadata.name", "operator": "In", "values": [node] }] },
        ],
    });
    pod
}

/// Pods by the node they are on, or are meant for; those on nodes first, then oldest first. Those that have ended and
/// are being deleted do not count.
pub fn by_node(world: &dyn World, pods: Vec<Arc<Pod>>) -> BTreeMap<String, Vec<Arc<Pod>>> {
    let mut by_node: BTreeMap<String, Vec<Arc<Pod>>> = BTreeMap::new();
    for pod in pods {
        if pod.is_finished() && pod.terminating.is_some() {
            continue;
        }
        if let Some(node) = target(world, &pod) {
            by_node.entry(node).or_default().push(pod);
        }
    }
    for pods in by_node.values_mut() {
        pods.sort_by_cached_key(|pod| (pod.node.is_empty(), pod.created, pod.name.clone()));
    }
    by_node
}

fn target(world: &dyn World, pod: &Pod) -> Option<String> {
    if !pod.node.is_empty() {
        return Some(pod.node.to_string());
    }
    let tree = world.get(kind::PODS, &pod.namespace, &pod.name)?;
    let required =
        "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
    let fields = tree::items(&tree, required).flat_map(|term| tree::items(term, "/matchFields"));
    let mut names = fields.filter(|field| tree::text(field, "/key") == "metadata.name");
    names.next().map(|field| tree::text(field, "/values/0").to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_runs_where_it_is_wanted_and_borne() {
        let plain = json!({ "metadata": { "name": "n", "labels": { "disk": "ssd" } } });
        let tainted = |key: &str, effect: &str| json!({ "metadata": { "name": "n" }, "spec": { "taints": [{ "key": key, "effect": effect }] } });
        let set = |spec: Value| json!({ "spec": { "template": { "spec": spec } } });
        let table = [
            (set(json!({})), plain.clone(), (true, true)),
            (set(json!({ "nodeSelector": { "disk": "ssd" } })), plain.clone(), (true, true)),
            (set(json!({ "nodeSelector": { "disk": "hdd" } })), plain.clone(), (false, false)),
            (set(json!({ "nodeName": "other" })), plain, (false, false)),
            (set(json!({})), tainted("mine", "NoSchedule"), (false, true)),
            (set(json!({})), tainted("mine", "NoExecute"), (false, false)),
            (set(json!({})), tainted("node.kubernetes.io/unschedulable", "NoSchedule"), (true, true)),
            (set(json!({})), tainted("node.kubernetes.io/unreachable", "NoExecute"), (true, true)),
            (set(json!({})), tainted("node.kubernetes.io/network-unavailable", "NoSchedule"), (false, true)),
            (
                set(json!({ "hostNetwork": true })),
                tainted("node.kubernetes.io/network-unavailable", "NoSchedule"),
                (true, true),
            ),
        ];
        for (set, node, (starts, stays)) in table {
            assert_eq!(Eligibility::of(&set, &node), Eligibility { starts, stays }, "{set} on {node}");
        }
    }
}
