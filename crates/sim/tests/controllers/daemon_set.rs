//! DaemonSets.

use serde_json::{Value, json};
use sim::{kind, tree};

use crate::cluster::{Cluster, Kubelet, template};

fn set() -> Value {
    json!({
        "metadata": { "name": "agent" },
        "spec": { "selector": { "matchLabels": { "app": "agent" } }, "template": template("agent", "a") },
    })
}

fn counts(cluster: &Cluster) -> [i64; 6] {
    let set = cluster.get(kind::DAEMON_SETS, "agent");
    [
        "desiredNumberScheduled",
        "currentNumberScheduled",
        "numberReady",
        "updatedNumberScheduled",
        "numberAvailable",
        "numberMisscheduled",
    ]
    .map(|field| tree::number(&set, &format!("/status/{field}")).unwrap_or(0))
}

fn by_node(cluster: &Cluster) -> Vec<String> {
    let text = |pod: &Value| {
        format!("{} {}", tree::text(pod, "/spec/nodeName"), tree::text(pod, "/spec/containers/0/image"))
    };
    let mut all: Vec<String> = cluster.all(kind::PODS).iter().map(text).collect();
    all.sort();
    all
}

#[test]
fn every_node_has_one() {
    let mut cluster = Cluster::new(2);
    cluster.create(kind::DAEMON_SETS, set());
    assert_eq!(by_node(&cluster), ["node-0 a", "node-1 a"]);
    assert_eq!(counts(&cluster), [2, 2, 2, 2, 2, 0]);
    cluster.add_node("node-2");
    assert_eq!(by_node(&cluster), ["node-0 a", "node-1 a", "node-2 a"]);
    assert_eq!(counts(&cluster), [3, 3, 3, 3, 3, 0]);
    assert_eq!(cluster.names(kind::REVISIONS).len(), 1);
    let pod = &cluster.all(kind::PODS)[0];
    let keys: Vec<&str> = tree::items(pod, "/spec/tolerations").map(|it| tree::text(it, "/key")).collect();
    assert!(
        keys.contains(&"node.kubernetes.io/unreachable") && keys.contains(&"node.kubernetes.io/pid-pressure")
    );
}

#[test]
fn nodes_that_do_not_fit_have_none() {
    let mut cluster = Cluster::new(2);
    let mut object = set();
    object["spec"]["template"]["spec"]["nodeSelector"] = json!({ "disk": "ssd" });
    cluster.create(kind::DAEMON_SETS, object);
    assert_eq!(counts(&cluster), [0; 6]);
    cluster.patch(kind::NODES, "node-1", json!({ "metadata": { "labels": { "disk": "ssd" } } }));
    assert_eq!(by_node(&cluster), ["node-1 a"]);
    cluster.patch(kind::NODES, "node-1", json!({ "metadata": { "labels": { "disk": "hdd" } } }));
    assert_eq!(by_node(&cluster), [] as [&str; 0]);
}

#[test]
fn a_taint_keeps_new_ones_out_and_drives_old_ones_away() {
    let mut cluster = Cluster::new(1);
    cluster.create(kind::DAEMON_SETS, set());
    let taint = |effect: &str| json!({ "spec": { "taints": [{ "key": "mine", "effect": effect }] } });
    cluster.patch(kind::NODES, "node-0", taint("NoSchedule"));
    assert_eq!(by_node(&cluster), ["node-0 a"]);
    assert_eq!(counts(&cluster), [0, 0, 0, 0, 0, 1]);
    cluster.patch(kind::NODES, "node-0", taint("NoExecute"));
    assert_eq!(by_node(&cluster), [] as [&str; 0]);
}

#[test]
fn an_update_takes_so_many_nodes_at_a_time() {
    let mut cluster = Cluster::new(3);
    cluster.create(kind::DAEMON_SETS, set());
    cluster.kubelet = Kubelet::Stuck;
    cluster.patch(kind::DAEMON_SETS, "agent", json!({ "spec": { "template": template("agent", "b") } }));
    assert_eq!(by_node(&cluster).iter().filter(|pod| pod.ends_with('b')).count(), 1);
    assert_eq!(counts(&cluster), [3, 3, 2, 1, 2, 0]);
    for _ in 0..3 {
        for pod in cluster.all(kind::PODS) {
            if tree::text(&pod, "/status/phase") == "Pending" {
                cluster.set_ready(tree::name(&pod), true);
            }
        }
    }
    assert_eq!(by_node(&cluster), ["node-0 b", "node-1 b", "node-2 b"]);
    assert_eq!(counts(&cluster), [3, 3, 3, 3, 3, 0]);
    assert_eq!(cluster.names(kind::REVISIONS).len(), 2);
}

#[test]
fn a_surge_replaces_a_pod_when_its_successor_is_ready() {
    let mut cluster = Cluster::new(2);
    let mut object = set();
    object["spec"]["updateStrategy"] =
        json!({ "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": 0, "maxSurge": 1 } });
    cluster.create(kind::DAEMON_SETS, object);
    cluster.kubelet = Kubelet::Stuck;
    cluster.patch(kind::DAEMON_SETS, "agent", json!({ "spec": { "template": template("agent", "b") } }));
    let pods = by_node(&cluster);
    assert_eq!(pods.len(), 3, "{pods:?}");
    assert_eq!(pods.iter().filter(|pod| pod.ends_with('a')).count(), 2);
    for _ in 0..3 {
        for pod in cluster.all(kind::PODS) {
            if tree::text(&pod, "/status/phase") == "Pending" {
                cluster.set_ready(tree::name(&pod), true);
            }
        }
    }
    assert_eq!(by_node(&cluster), ["node-0 b", "node-1 b"]);
}

#[test]
fn on_delete_nothing_is_updated_by_itself() {
    let mut cluster = Cluster::new(1);
    let mut object = set();
    object["spec"]["updateStrategy"] = json!({ "type": "OnDelete" });
    cluster.create(kind::DAEMON_SETS, object);
    cluster.patch(kind::DAEMON_SETS, "agent", json!({ "spec": { "template": template("agent", "b") } }));
    assert_eq!(by_node(&cluster), ["node-0 a"]);
    let pod = cluster.names(kind::PODS).remove(0);
    cluster.delete(kind::PODS, &pod);
    assert_eq!(by_node(&cluster), ["node-0 b"]);
}

#[test]
fn history_is_kept_up_to_its_limit() {
    let mut cluster = Cluster::new(1);
    let mut object = set();
    object["spec"]["revisionHistoryLimit"] = 1.into();
    cluster.create(kind::DAEMON_SETS, object);
    for image in ["b", "c", "d"] {
        cluster.patch(
            kind::DAEMON_SETS,
            "agent",
            json!({ "spec": { "template": template("agent", image) } }),
        );
    }
    assert_eq!(cluster.names(kind::REVISIONS).len(), 2);
}

#[test]
fn a_pod_that_failed_is_replaced() {
    let mut cluster = Cluster::new(1);
    cluster.create(kind::DAEMON_SETS, set());
    cluster.seconds(5);
    let pod = cluster.names(kind::PODS).remove(0);
    cluster.end_pod(&pod, "Failed", 1);
    cluster.seconds(5);
    assert_eq!(counts(&cluster), [1, 1, 1, 1, 1, 0]);
    assert!(cluster.has_event("FailedDaemonPod: Found failed daemon pod"));
}
