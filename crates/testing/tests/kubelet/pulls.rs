//! An image that cannot be had, as a real kubelet finds it.

use serde_json::{Value, json};
use testing::operator::{Operator, eventually};

const NAMESPACE: &str = "far";
/// No resolver has an answer for it.
const MISSING: &str = "registry.invalid/web:1";

fn deployment() -> Value {
    let labels = json!({"app": "web"});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": NAMESPACE},
        "spec": {
            "replicas": 2, "progressDeadlineSeconds": 5, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": MISSING}]}},
        },
    })
}

/// What the user applied says it, and what belongs to it.
pub fn scenario_07_an_image_that_cannot_be_pulled_is_told(operator: &Operator) {
    operator.hub(&["create", "namespace", NAMESPACE]).ok();
    operator.create(&operator.kubeconfig(), &deployment());

    eventually("the pods say that it cannot be pulled", || {
        let pods = operator.hub(&["get", "pods", "-n", NAMESPACE]).text;
        let is_told = |line: &str| line.contains("ErrImagePull") || line.contains("ImagePullBackOff");
        if pods.lines().filter(|line| is_told(line)).count() == 2 { Ok(()) } else { Err(pods) }
    });
    eventually("so do the events of the pods", || {
        let events = operator.hub(&["events", "-n", NAMESPACE, "--types=Warning"]).text;
        if events.contains("Failed to pull image") && events.contains(MISSING) { Ok(()) } else { Err(events) }
    });
    eventually("the Deployment says where it does not go on", || {
        let described = operator.hub(&["describe", "deployment", "web", "-n", NAMESPACE]).text;
        let parts = ["0 available", "ProgressDeadlineExceeded", "MinimumReplicasUnavailable"];
        // Of the cluster's own event about a pod, which is one of these by turns.
        let is_told = ["ErrImagePull", "ImagePullBackOff"].iter().any(|part| described.contains(part));
        if is_told && parts.iter().all(|part| described.contains(part)) { Ok(()) } else { Err(described) }
    });
    let explained = operator.hanse(&["explain", "deployment/web", "-n", NAMESPACE]).ok();
    assert!(explained.contains("Pods that do not run") && explained.contains(MISSING), "{explained}");
    operator.hub(&["delete", "namespace", NAMESPACE, "--timeout=60s"]).ok();
}
