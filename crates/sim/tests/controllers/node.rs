//! Nodes that fail, and what is cleared away after them.

use serde_json::{Value, json};
use sim::{kind, tree};

use crate::cluster::{Cluster, Kubelet, template};

fn set(tolerations: Value) -> Value {
    let mut template = template("web", "a");
    template["spec"]["tolerations"] = tolerations;
    json!({
        "metadata": { "name": "web" },
        "spec": { "replicas": 1, "selector": { "matchLabels": { "app": "web" } }, "template": template },
    })
}

fn tolerations(seconds: i64) -> Value {
    let toleration = |key: &str| json!({ "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds });
    json!([toleration("node.kubernetes.io/not-ready"), toleration("node.kubernetes.io/unreachable")])
}

fn set_ready(cluster: &mut Cluster, node: &str, status: &str) {
    cluster.patch_status(kind::NODES, node, json!({ "conditions": [{ "type": "Ready", "status": status }] }));
}

fn taints(cluster: &Cluster, node: &str) -> Vec<String> {
    let text = |taint: &Value| format!("{}:{}", tree::text(taint, "/key"), tree::text(taint, "/effect"));
    tree::items(&cluster.get(kind::NODES, node), "/spec/taints").map(text).collect()
}

#[test]
fn conditions_become_taints() {
    let mut cluster = Cluster::new(2);
    set_ready(&mut cluster, "node-0", "False");
    assert_eq!(
        taints(&cluster, "node-0"),
        ["node.kubernetes.io/not-ready:NoSchedule", "node.kubernetes.io/not-ready:NoExecute"]
    );
    set_ready(&mut cluster, "node-0", "Unknown");
    assert_eq!(
        taints(&cluster, "node-0"),
        ["node.kubernetes.io/unreachable:NoSchedule", "node.kubernetes.io/unreachable:NoExecute"]
    );
    set_ready(&mut cluster, "node-0", "True");
    assert_eq!(taints(&cluster, "node-0"), [] as [&str; 0]);
    cluster.patch(kind::NODES, "node-1", json!({ "spec": { "unschedulable": true } }));
    assert_eq!(taints(&cluster, "node-1"), ["node.kubernetes.io/unschedulable:NoSchedule"]);
}

#[test]
fn taints_of_others_stay() {
    let mut cluster = Cluster::new(2);
    let own = json!([{ "key": "mine", "effect": "NoSchedule" }]);
    cluster.patch(kind::NODES, "node-0", json!({ "spec": { "taints": own } }));
    set_ready(&mut cluster, "node-0", "False");
    set_ready(&mut cluster, "node-0", "True");
    assert_eq!(taints(&cluster, "node-0"), ["mine:NoSchedule"]);
}

#[test]
fn pods_leave_a_failed_node_after_a_while() {
    let mut cluster = Cluster::new(1);
    cluster.create(kind::REPLICA_SETS, set(tolerations(300)));
    let pod = cluster.names(kind::PODS).remove(0);
    cluster.add_node("node-1");
    cluster.kubelet = Kubelet::Stuck;
    set_ready(&mut cluster, "node-0", "Unknown");
    let stored = cluster.get(kind::PODS, &pod);
    assert_eq!(tree::text(tree::condition(&stored, "Ready").expect("one"), "/status"), "False");
    assert!(cluster.has_event("NodeNotReady: Node is not ready"));
    cluster.seconds(299);
    assert_eq!(cluster.names(kind::PODS), [pod.as_str()]);
    cluster.seconds(2);
    assert!(!cluster.names(kind::PODS).contains(&pod));
    assert!(cluster.has_event(&format!("TaintManagerEviction: Marking for deletion Pod default/{pod}")));
}

#[test]
fn a_node_that_comes_back_keeps_its_pods() {
    let mut cluster = Cluster::new(1);
    cluster.create(kind::REPLICA_SETS, set(tolerations(300)));
    let pods = cluster.names(kind::PODS);
    cluster.add_node("node-1");
    set_ready(&mut cluster, "node-0", "False");
    cluster.seconds(200);
    set_ready(&mut cluster, "node-0", "True");
    cluster.seconds(200);
    assert_eq!(cluster.names(kind::PODS), pods);
}

#[test]
fn nothing_is_evicted_when_all_nodes_seem_to_fail() {
    let mut cluster = Cluster::new(1);
    cluster.create(kind::REPLICA_SETS, set(tolerations(1)));
    let pods = cluster.names(kind::PODS);
    set_ready(&mut cluster, "node-0", "Unknown");
    assert_eq!(taints(&cluster, "node-0"), ["node.kubernetes.io/unreachable:NoSchedule"]);
    cluster.seconds(60);
    assert_eq!(cluster.names(kind::PODS), pods);
}

#[test]
fn a_taint_evicts_at_once_who_does_not_bear_it() {
    let mut cluster = Cluster::new(1);
    cluster.create(kind::REPLICA_SETS, set(json!([])));
    let pod = cluster.names(kind::PODS).remove(0);
    cluster.kubelet = Kubelet::Stuck;
    let taint = json!([{ "key": "mine", "effect": "NoExecute" }]);
    cluster.patch(kind::NODES, "node-0", json!({ "spec": { "taints": taint } }));
    assert_eq!(cluster.find(kind::PODS, &pod), None);
}

#[test]
fn pods_of_a_node_that_is_gone_go_too() {
    let mut cluster = Cluster::new(1);
    cluster.create(kind::REPLICA_SETS, set(json!([])));
    let pod = cluster.names(kind::PODS).remove(0);
    cluster.seconds(60);
    cluster.add_node("node-1");
    cluster.delete(kind::NODES, "node-0");
    assert_eq!(cluster.find(kind::PODS, &pod), None);
    assert_eq!(cluster.names(kind::PODS).len(), 1);
}
