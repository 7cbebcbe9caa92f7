//! One cluster, and a hub that is killed meanwhile.

use serde_json::json;
use testing::{
    operator::{Operator, eventually},
    real::{Options, RealCluster},
};

#[test]
fn a_real_cluster_is_joined_seen_and_left_as_it_was() {
    let cluster =
        RealCluster::start(Options { controller_manager: true, fsync: false, ..Options::default() })
            .expect("it starts");
    let mut operator = Operator::start(cluster.kubectl()).expect("the hub starts");
    let kubeconfig = cluster.kubeconfig.display().to_string();

    let join = |name: &str| {
        operator.hanse(&["join", name, "--kubeconfig", &kubeconfig, "--region", "eu", "--zone", "eu-a"])
    };
    let said = join("real-1").ok();
    assert!(said.contains("real-1 is ready"), "{said}");
    let said = join("real-1").ok();
    assert!(said.contains("joined again"), "{said}");
    join("real-2").refused("joined already, as real-1");

    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "worker"},
        "status": {
            "capacity": {"cpu": "4", "memory": "8Gi"}, "allocatable": {"cpu": "3500m", "memory": "7Gi"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    });
    operator.create(&cluster.kubeconfig, &node);
    let make = ["create", "deployment", "web", "--image=nginx", "--replicas=2"];
    operator.kubectl(&cluster.kubeconfig, &make).ok();
    let seen = eventually("the cluster is known", || {
        let cluster = operator.object("cluster", "real-1");
        let status = &cluster["status"];
        match status["nodes"]["total"] == 1 && status["version"] == "v1.36.4" && status["apis"][0].is_object()
        {
            true => Ok(cluster),
            false => Err(status.to_string()),
        }
    });
    assert_eq!(
        seen["status"]["skew"],
        json!({"missingFields": {}}),
        "it is of the release that this hub speaks"
    );
    assert_eq!(seen["metadata"]["labels"]["topology.kubernetes.io/zone"], "eu-a");
    let table = operator.hanse(&["clusters"]).ok();
    let row = table.lines().find(|line| line.starts_with("real-1")).unwrap_or_default();
    let cells: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(cells.get(1..6), Some(&["True", "v1.36.4", "eu", "eu-a", "1"][..]), "{table}");
    let nodes = operator.hub(&["get", "nodes"]).ok();
    assert!(nodes.contains("real-1") && nodes.contains("Ready"), "{nodes}");

    // A hub that is killed goes on where it was.
    operator.restart_hub().expect("it starts again");
    let before = operator.object("cluster", "real-1")["status"]["heartbeat"].clone();
    eventually("it is heard of again", || {
        let cluster = operator.object("cluster", "real-1");
        match cluster["status"]["heartbeat"] != before {
            true => Ok(()),
            false => Err(cluster["status"]["conditions"].to_string()),
        }
    });

    operator.hanse(&["unjoin", "real-1"]).ok();
    let member = |args: &[&str]| operator.kubectl(&cluster.kubeconfig, args);
    for what in ["namespace/hanse-system", "clusterrole/hanse:session", "clusterrolebinding/hanse:session"] {
        eventually(&format!("{what} is gone"), || match member(&["get", what]) {
            said if !said.done && said.text.contains("NotFound") => Ok(()),
            said => Err(said.text),
        });
    }
    // What runs there goes on.
    member(&["get", "deployment", "web"]).ok();
    eventually("the node is gone", || match operator.hub(&["get", "node", "real-1"]) {
        said if said.done => Err(said.text),
        _ => Ok(()),
    });
}
