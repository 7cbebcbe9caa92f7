//! Limit ranges, priorities, runtimes and default classes.

use anyhow::Result;
use http::StatusCode;
use serde_json::{Value, json};

use crate::{NAMESPACE, mk, mk_hub, mk_pod, refusal};

#[tokio::test]
async fn a_limit_range_fills_in_and_bounds() -> Result<()> {
    let (_hub, client) = mk_hub().await?;
    let range = json!({"metadata": {"name": "r"}, "spec": {"limits": [
        {"type": "Container", "default": {"cpu": "500m"}, "max": {"cpu": "1"}, "min": {"cpu": "100m"}},
        {"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}},
    ]}});
    mk(&client, &format!("{NAMESPACE}/limitranges"), range).await?;
    let pods = format!("{NAMESPACE}/pods");
    let plain = json!({"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let pod = mk(&client, &pods, plain).await?;
    assert_eq!(
        pod["spec"]["containers"][0]["resources"],
        json!({"limits": {"cpu": "500m"}, "requests": {"cpu": "500m"}})
    );
    assert_eq!(
        pod["metadata"]["annotations"]["kubernetes.io/limit-ranger"],
        "LimitRanger plugin set: cpu request for container c; cpu limit for container c"
    );
    assert_eq!(pod["status"]["qosClass"], "Burstable");
    let answer = client.post(&pods, &mk_pod("b", "50m")).await?;
    assert_eq!(
        refusal(&answer),
        "pods \"b\" is forbidden: minimum cpu usage per Container is 100m, but request is 50m"
    );
    let claim = json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "2Gi"}}}});
    let answer = client.post(&format!("{NAMESPACE}/persistentvolumeclaims"), &claim).await?;
    assert!(
        refusal(&answer)
            .ends_with("maximum storage usage per PersistentVolumeClaim is 1Gi, but request is 2Gi")
    );
    // What is there already is not judged again
    let label =
        client.merge_patch(&format!("{pods}/a"), &json!({"metadata": {"labels": {"x": "y"}}})).await?;
    assert_eq!(label.code, StatusCode::OK);
    Ok(())
}

#[tokio::test]
async fn pods_get_the_priority_of_their_class() -> Result<()> {
    let (_hub, client) = mk_hub().await?;
    let classes = "/apis/scheduling.k8s.io/v1/priorityclasses";
    let pods = format!("{NAMESPACE}/pods");
    let class = |name: &str, default: bool| json!({"metadata": {"name": name}, "value": 500, "globalDefault": default, "preemptionPolicy": "Never"});
    let with = |name: &str, spec: Value| {
        let mut pod = mk_pod(name, "1");
        for (key, value) in spec.as_object().into_iter().flatten() {
            pod["spec"][key] = value.clone();
        }
        pod
    };
    let seen = |pod: &Value| json!([pod["spec"]["priority"], pod["spec"]["preemptionPolicy"]]);
    let pod = mk(&client, &pods, mk_pod("none", "1")).await?;
    assert_eq!(seen(&pod), json!([0, "PreemptLowerPriority"]));
    let pod =
        mk(&client, &pods, with("system", json!({"priorityClassName": "system-node-critical"}))).await?;
    assert_eq!(seen(&pod), json!([2_000_001_000, "PreemptLowerPriority"]));
    mk(&client, classes, class("usual", true)).await?;
    let pod = mk(&client, &pods, mk_pod("usual", "1")).await?;
    assert_eq!(seen(&pod), json!([500, "Never"]));
    assert_eq!(pod["spec"]["priorityClassName"], "usual");
    let answer = client.post(&pods, &with("x", json!({"priorityClassName": "nope"}))).await?;
    assert_eq!(refusal(&answer), "pods \"x\" is forbidden: no PriorityClass with name nope was found");
    let answer = client.post(classes, &class("second", true)).await?;
    assert_eq!(
        refusal(&answer),
        "priorityclasses.scheduling.k8s.io \"second\" is forbidden: PriorityClass usual is already marked as default. \
         Only one default can exist"
    );
    // The default may be changed otherwise
    let answer =
        client.merge_patch(&format!("{classes}/usual"), &json!({"description": "for everybody"})).await?;
    assert_eq!(answer.code, StatusCode::OK, "{}", answer.text());
    Ok(())
}

#[tokio::test]
async fn nodes_runtimes_and_classes_leave_their_marks() -> Result<()> {
    let (_hub, client) = mk_hub().await?;
    let node = json!({"metadata": {"name": "n", "labels": {"topology.kubernetes.io/zone": "z1"}}});
    let node = mk(&client, "/api/v1/nodes", node).await?;
    assert_eq!(
        node["spec"]["taints"],
        json!([{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}])
    );
    let runtime =
        json!({"metadata": {"name": "vm"}, "handler": "vm", "overhead": {"podFixed": {"cpu": "250m"}}});
    mk(&client, "/apis/node.k8s.io/v1/runtimeclasses", runtime).await?;
    let mut pod = mk_pod("a", "1");
    pod["spec"]["runtimeClassName"] = json!("vm");
    let pods = format!("{NAMESPACE}/pods");
    let made = mk(&client, &pods, pod.clone()).await?;
    assert_eq!(made["spec"]["overhead"], json!({"cpu": "250m"}));
    let keys: Vec<&str> = made["spec"]["tolerations"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|it| it["key"].as_str())
        .collect();
    assert_eq!(keys, ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]);
    pod["spec"]["runtimeClassName"] = json!("nope");
    assert!(
        refusal(&client.post(&pods, &pod).await?).contains("pod rejected: RuntimeClass \"nope\" not found")
    );
    // A pod that is bound says where it is
    let binding = json!({"metadata": {"name": "a"}, "target": {"kind": "Node", "name": "n"}});
    let answer = client.post(&format!("{pods}/a/binding"), &binding).await?;
    assert_eq!(answer.code, StatusCode::CREATED, "{}", answer.text());
    let bound = client.get(&format!("{pods}/a")).await?.json();
    assert_eq!(bound["metadata"]["labels"]["topology.kubernetes.io/zone"], "z1");
    // Classes that are marked as default are
    let mark = |key: &str| json!({"metadata": {"name": "usual", "annotations": {key: "true"}}});
    let mut storage = mark("storageclass.kubernetes.io/is-default-class");
    storage["provisioner"] = json!("example.com/disk");
    mk(&client, "/apis/storage.k8s.io/v1/storageclasses", storage).await?;
    let claim = json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}}});
    let claim = mk(&client, &format!("{NAMESPACE}/persistentvolumeclaims"), claim).await?;
    assert_eq!(claim["spec"]["storageClassName"], "usual");
    let mut ingress = mark("ingressclass.kubernetes.io/is-default-class");
    ingress["spec"] = json!({"controller": "example.com/ingress"});
    mk(&client, "/apis/networking.k8s.io/v1/ingressclasses", ingress).await?;
    let ingress = json!({"metadata": {"name": "i"},
        "spec": {"defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}}});
    let ingress = mk(&client, "/apis/networking.k8s.io/v1/namespaces/shop/ingresses", ingress).await?;
    assert_eq!(ingress["spec"]["ingressClassName"], "usual");
    Ok(())
}
