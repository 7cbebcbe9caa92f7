//! Volumes and claims.

use serde_json::{Value, json};
use sim::{kind, tree};

use crate::cluster::Cluster;

fn claim(name: &str, size: &str, spec: Value) -> Value {
    let mut claim = json!({
        "metadata": { "name": name },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": size } } },
        "status": { "phase": "Pending" },
    });
    for (key, value) in spec.as_object().expect("a spec") {
        claim["spec"][key] = value.clone();
    }
    claim
}

fn volume(name: &str, size: &str, spec: Value) -> Value {
    let mut volume = json!({
        "metadata": { "name": name },
        "spec": {
            "accessModes": ["ReadWriteOnce"], "capacity": { "storage": size },
            "persistentVolumeReclaimPolicy": "Retain",
        },
    });
    for (key, value) in spec.as_object().expect("a spec") {
        volume["spec"][key] = value.clone();
    }
    volume
}

fn class(name: &str, mode: &str, provisioner: &str) -> Value {
    json!({
        "metadata": { "name": name }, "provisioner": provisioner, "volumeBindingMode": mode,
        "reclaimPolicy": "Delete",
    })
}

fn phase(object: &Value) -> &str {
    tree::text(object, "/status/phase")
}

#[test]
fn a_claim_gets_the_smallest_volume_that_will_do() {
    let mut cluster = Cluster::new(1);
    cluster.create(kind::VOLUMES, volume("small", "1Gi", json!({})));
    cluster.create(kind::VOLUMES, volume("large", "10Gi", json!({})));
    cluster.create(kind::VOLUMES, volume("medium", "5Gi", json!({})));
    cluster.create(kind::VOLUMES, volume("other", "5Gi", json!({ "storageClassName": "fast" })));
    cluster.create(kind::CLAIMS, claim("data", "2Gi", json!({ "storageClassName": "" })));
    let stored = cluster.get(kind::CLAIMS, "data");
    assert_eq!((phase(&stored), tree::text(&stored, "/spec/volumeName")), ("Bound", "medium"));
    assert_eq!(tree::text(&stored, "/status/capacity/storage"), "5Gi");
    assert_eq!(tree::annotation(&stored, "pv.kubernetes.io/bind-completed"), "yes");
    let volume = cluster.get(kind::VOLUMES, "medium");
    assert_eq!((phase(&volume), tree::text(&volume, "/spec/claimRef/uid")), ("Bound", tree::uid(&stored)));
    assert_eq!(phase(&cluster.get(kind::VOLUMES, "large")), "Available");

    cluster.delete(kind::CLAIMS, "data");
    assert_eq!(phase(&cluster.get(kind::VOLUMES, "medium")), "Released");
}

#[test]
fn a_claim_waits_for_a_volume_that_fits() {
    let mut cluster = Cluster::new(1);
    let selector = json!({ "matchLabels": { "tier": "gold" } });
    cluster
        .create(kind::CLAIMS, claim("data", "2Gi", json!({ "storageClassName": "", "selector": selector })));
    assert_eq!(phase(&cluster.get(kind::CLAIMS, "data")), "Pending");
    assert!(cluster.has_event(
        "FailedBinding: no persistent volumes available for this claim and no storage class is set"
    ));
    cluster.create(kind::VOLUMES, volume("plain", "2Gi", json!({})));
    assert_eq!(phase(&cluster.get(kind::CLAIMS, "data")), "Pending");
    let mut gold = volume("gold", "2Gi", json!({}));
    gold["metadata"]["labels"] = json!({ "tier": "gold" });
    cluster.create(kind::VOLUMES, gold);
    assert_eq!(tree::text(&cluster.get(kind::CLAIMS, "data"), "/spec/volumeName"), "gold");
}

#[test]
fn a_class_with_a_provisioner_makes_a_volume() {
    let mut cluster = Cluster::new(1);
    cluster.create(kind::STORAGE_CLASSES, class("fast", "Immediate", "example.com/disk"));
    let made = cluster.create(kind::CLAIMS, claim("data", "2Gi", json!({ "storageClassName": "fast" })));
    let stored = cluster.get(kind::CLAIMS, "data");
    let name = format!("pvc-{}", tree::uid(&made));
    assert_eq!((phase(&stored), tree::text(&stored, "/spec/volumeName")), ("Bound", name.as_str()));
    let volume = cluster.get(kind::VOLUMES, &name);
    assert_eq!(phase(&volume), "Bound");
    assert_eq!(tree::annotation(&volume, "pv.kubernetes.io/provisioned-by"), "example.com/disk");
    cluster.delete(kind::CLAIMS, "data");
    assert_eq!(cluster.find(kind::VOLUMES, &name), None);
}

#[test]
fn a_class_may_wait_for_a_pod() {
    let mut cluster = Cluster::new(1);
    cluster.create(kind::STORAGE_CLASSES, class("late", "WaitForFirstConsumer", "example.com/disk"));
    cluster.create(kind::CLAIMS, claim("data", "2Gi", json!({ "storageClassName": "late" })));
    assert_eq!(phase(&cluster.get(kind::CLAIMS, "data")), "Pending");
    assert!(
        cluster.has_event("WaitForFirstConsumer: waiting for first consumer to be created before binding")
    );
    let node = json!({ "metadata": { "annotations": { "volume.kubernetes.io/selected-node": "node-0" } } });
    cluster.patch(kind::CLAIMS, "data", node);
    assert_eq!(phase(&cluster.get(kind::CLAIMS, "data")), "Bound");
}

#[test]
fn a_class_that_comes_later_is_taken_up() {
    let mut cluster = Cluster::new(1);
    cluster.create(kind::CLAIMS, claim("data", "2Gi", json!({})));
    cluster.create(kind::CLAIMS, claim("named", "2Gi", json!({ "storageClassName": "fast" })));
    assert!(cluster.has_event("ProvisioningFailed: storageclass.storage.k8s.io \"fast\" not found"));
    let mut fast = class("fast", "Immediate", "example.com/disk");
    fast["metadata"]["annotations"] = json!({ "storageclass.kubernetes.io/is-default-class": "true" });
    cluster.create(kind::STORAGE_CLASSES, fast);
    assert_eq!(phase(&cluster.get(kind::CLAIMS, "data")), "Bound");
    assert_eq!(phase(&cluster.get(kind::CLAIMS, "named")), "Bound");
    assert_eq!(tree::text(&cluster.get(kind::CLAIMS, "data"), "/spec/storageClassName"), "fast");
}

#[test]
fn a_volume_may_be_meant_for_a_claim_and_a_claim_may_name_a_volume() {
    let mut cluster = Cluster::new(1);
    let reference = json!({ "namespace": "default", "name": "data" });
    cluster.create(kind::VOLUMES, volume("mine", "5Gi", json!({ "claimRef": reference })));
    cluster.create(kind::VOLUMES, volume("free", "2Gi", json!({})));
    cluster.create(kind::CLAIMS, claim("data", "2Gi", json!({ "storageClassName": "" })));
    assert_eq!(tree::text(&cluster.get(kind::CLAIMS, "data"), "/spec/volumeName"), "mine");
    cluster
        .create(kind::CLAIMS, claim("large", "3Gi", json!({ "storageClassName": "", "volumeName": "free" })));
    assert_eq!(phase(&cluster.get(kind::CLAIMS, "large")), "Pending");
    assert!(
        cluster
            .has_event("VolumeMismatch: Cannot bind to requested volume \"free\": requested PV is too small")
    );
    cluster
        .create(kind::CLAIMS, claim("named", "1Gi", json!({ "storageClassName": "", "volumeName": "free" })));
    assert_eq!(phase(&cluster.get(kind::CLAIMS, "named")), "Bound");
}

#[test]
fn a_claim_that_lost_its_volume_says_so() {
    let mut cluster = Cluster::new(1);
    cluster.create(kind::VOLUMES, volume("one", "1Gi", json!({})));
    cluster.create(kind::CLAIMS, claim("data", "1Gi", json!({ "storageClassName": "" })));
    cluster.delete(kind::VOLUMES, "one");
    assert_eq!(phase(&cluster.get(kind::CLAIMS, "data")), "Lost");
    assert!(
        cluster
            .has_event("ClaimLost: Bound claim has lost its PersistentVolume. Data on the volume is lost!")
    );
}

#[test]
fn an_ephemeral_volume_has_a_claim_that_is_its_pods_own() {
    let mut cluster = Cluster::new(1);
    cluster.create(kind::STORAGE_CLASSES, class("fast", "Immediate", "example.com/disks"));
    let template = json!({"metadata": {"labels": {"of": "scratch"}}, "spec": {
        "accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "resources": {"requests": {"storage": "1Gi"}},
    }});
    cluster.create(
        kind::PODS,
        json!({
            "metadata": {"name": "render"},
            "spec": {"volumes": [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}]},
        }),
    );
    let claim = cluster.get(kind::CLAIMS, "render-scratch");
    assert_eq!((phase(&claim), tree::label(&claim, "of")), ("Bound", "scratch"));
    let pod = cluster.get(kind::PODS, "render");
    assert_eq!(tree::controller(&claim).map(|it| tree::text(it, "/uid")), Some(tree::uid(&pod)));
}
