//! Applied to the hub, run by a real kubelet.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use testing::{
    operator::{Operator, Said, eventually},
    real::{IMAGE, RealCluster},
};

const NAMESPACE: &str = "market";

fn deployment(name: &str, replicas: u64) -> Value {
    let labels = json!({"app": name});
    let environment = json!([
        {"name": "COLOUR", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "colour"}}},
        {"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "password", "key": "word"}}},
    ]);
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels},
            "spec": {"terminationGracePeriodSeconds": 1, "containers": [{
                "name": "main", "image": IMAGE, "imagePullPolicy": "Never", "env": environment,
                "command": ["sh", "-c", "echo it is $COLOUR and $PASSWORD; sleep 3600"],
            }]},
        }},
    })
}

fn hub(operator: &Operator, args: &[&str]) -> Said {
    operator.hub(&[&["-n", NAMESPACE][..], args].concat())
}

fn member(operator: &Operator, cluster: &RealCluster, args: &[&str]) -> Said {
    operator.kubectl(&cluster.kubeconfig, &[&["-n", NAMESPACE][..], args].concat())
}

/// Which containers run there, each with how often it was started again.
fn containers(operator: &Operator, cluster: &RealCluster) -> BTreeSet<String> {
    let each = "{range .items[*].status.containerStatuses[*]}{.containerID} {.restartCount}{\"\\n\"}{end}";
    let said = member(operator, cluster, &["get", "pods", "-o", &format!("jsonpath={each}")]).ok();
    said.lines().map(str::to_owned).collect()
}

/// No placement object of any kind: it runs, it is seen, and it has what it refers to.
pub fn scenario_01_first_apply(operator: &Operator, cluster: &RealCluster) {
    operator.hub(&["create", "namespace", NAMESPACE]).ok();
    hub(operator, &["create", "configmap", "settings", "--from-literal=colour=green"]).ok();
    hub(operator, &["create", "secret", "generic", "password", "--from-literal=word=open"]).ok();
    operator.create(&operator.kubeconfig(), &deployment("web", 3));
    hub(operator, &["expose", "deployment", "web", "--port=80"]).ok();

    hub(operator, &["rollout", "status", "deployment/web", "--timeout=120s"]).ok();

    let web: Value = serde_json::from_str(&hub(operator, &["get", "deployment", "web", "-o", "json"]).ok())
        .expect("kubectl writes JSON");
    assert_eq!(web["status"]["observedGeneration"], web["metadata"]["generation"], "{web}");
    let rows = hub(operator, &["get", "pods", "--no-headers"]).ok();
    let names: BTreeSet<&str> =
        rows.lines().filter(|row| row.contains("Running")).filter_map(|row| row.split(' ').next()).collect();
    assert_eq!(names.len(), 3, "{rows}");
    assert_eq!(containers(operator, cluster).len(), 3);
    for name in names {
        assert_eq!(hub(operator, &["logs", name]).ok(), "it is green and open\n");
    }
}

/// Without the hub the kubelet goes on with what it has, and nothing starts anew when the hub is back.
pub fn scenario_12_containers_outlive_the_hub(operator: &mut Operator, cluster: &RealCluster) {
    let before = containers(operator, cluster);
    for _ in 0..2 {
        operator.stop_hub().expect("it runs");
        assert_eq!(containers(operator, cluster), before);
        operator.restart_hub().expect("it starts again");
        // What is asked of it next is done: it has found the cluster again.
        hub(operator, &["annotate", "configmap", "settings", "asked=again", "--overwrite"]).ok();
        hub(operator, &["create", "configmap", "barrier"]).ok();
        eventually("the hub is at work again", || {
            match member(operator, cluster, &["get", "cm", "barrier"]) {
                said if said.done => Ok(()),
                said => Err(said.text),
            }
        });
        hub(operator, &["delete", "configmap", "barrier"]).ok();
        assert_eq!(containers(operator, cluster), before);
    }
    hub(operator, &["rollout", "status", "deployment/web", "--timeout=60s"]).ok();
}

/// In the background, in the foreground, and leaving alone what runs.
pub fn scenario_10_delete_and_cascade(operator: &Operator, cluster: &RealCluster) {
    let there = |what: &str, of: &str| {
        member(operator, cluster, &["get", what, "-l", &format!("app={of}"), "-o", "name"]).ok()
    };
    let applied = |name: &str| {
        operator.create(&operator.kubeconfig(), &deployment(name, 1));
        hub(operator, &["rollout", "status", &format!("deployment/{name}"), "--timeout=120s"]).ok();
    };
    applied("foreground");
    hub(operator, &["delete", "deployment", "foreground", "--cascade=foreground"]).ok();
    assert_eq!(there("deployments,replicasets,pods", "foreground"), "", "kubectl waits until all is gone");

    applied("orphan");
    let before = there("replicasets,pods", "orphan");
    hub(operator, &["delete", "deployment", "orphan", "--cascade=orphan"]).ok();
    eventually("the copy is gone", || match member(operator, cluster, &["get", "deployment", "orphan"]) {
        said if !said.done && said.text.contains("NotFound") => Ok(()),
        said => Err(said.text),
    });
    assert_eq!(there("replicasets,pods", "orphan"), before);
    member(operator, cluster, &["delete", "replicaset", "-l", "app=orphan"]).ok();

    hub(operator, &["delete", "deployment", "web"]).ok();
    eventually("nothing of it is left", || match there("deployments,replicasets,pods", "web") {
        left if left.is_empty() => Ok(()),
        left => Err(left),
    });
    operator.hub(&["delete", "namespace", NAMESPACE, "--timeout=60s"]).ok();
}
