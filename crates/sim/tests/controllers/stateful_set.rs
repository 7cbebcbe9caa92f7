//! StatefulSets.

use serde_json::{Value, json};
use sim::{kind, tree};

use crate::cluster::{Cluster, Kubelet, template};

fn set(replicas: i64) -> Value {
    json!({
        "metadata": { "name": "db" },
        "spec": {
            "replicas": replicas, "serviceName": "db", "selector": { "matchLabels": { "app": "db" } },
            "template": template("db", "a"),
        },
    })
}

fn with_claims(mut object: Value) -> Value {
    object["spec"]["volumeClaimTemplates"] = json!([{
        "metadata": { "name": "data" },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
    }]);
    object
}

fn counts(cluster: &Cluster) -> [i64; 5] {
    let set = cluster.get(kind::STATEFUL_SETS, "db");
    ["replicas", "readyReplicas", "availableReplicas", "currentReplicas", "updatedReplicas"]
        .map(|field| tree::number(&set, &format!("/status/{field}")).unwrap_or(0))
}

fn images(cluster: &Cluster) -> Vec<String> {
    let text = |pod: &Value| format!("{} {}", tree::name(pod), tree::text(pod, "/spec/containers/0/image"));
    cluster.all(kind::PODS).iter().map(text).collect()
}

#[test]
fn pods_come_and_go_one_by_one() {
    let mut cluster = Cluster::new(2);
    cluster.kubelet = Kubelet::Stuck;
    cluster.create(kind::STATEFUL_SETS, set(3));
    assert_eq!(cluster.names(kind::PODS), ["db-0"]);
    cluster.set_ready("db-0", true);
    assert_eq!(cluster.names(kind::PODS), ["db-0", "db-1"]);
    cluster.set_ready("db-1", true);
    cluster.set_ready("db-2", true);
    assert_eq!(counts(&cluster), [3, 3, 3, 3, 3]);
    let pod = cluster.get(kind::PODS, "db-2");
    assert_eq!(tree::label(&pod, "statefulset.kubernetes.io/pod-name"), "db-2");
    assert_eq!(tree::label(&pod, "apps.kubernetes.io/pod-index"), "2");
    assert_eq!((tree::text(&pod, "/spec/hostname"), tree::text(&pod, "/spec/subdomain")), ("db-2", "db"));
    assert!(cluster.has_event("SuccessfulCreate: Create Pod db-2 in StatefulSet db successful"));

    // One that is not ready keeps those above it from going.
    cluster.set_ready("db-0", false);
    cluster.patch(kind::STATEFUL_SETS, "db", json!({ "spec": { "replicas": 1 } }));
    assert_eq!(cluster.names(kind::PODS), ["db-0", "db-1", "db-2"]);
    cluster.set_ready("db-0", true);
    assert_eq!(cluster.names(kind::PODS), ["db-0"]);
    assert!(cluster.has_event("SuccessfulDelete: Delete Pod db-2 in StatefulSet db successful"));
}

#[test]
fn in_parallel_nobody_waits() {
    let mut cluster = Cluster::new(2);
    cluster.kubelet = Kubelet::Stuck;
    let mut object = set(3);
    object["spec"]["podManagementPolicy"] = "Parallel".into();
    object["spec"]["ordinals"] = json!({ "start": 5 });
    cluster.create(kind::STATEFUL_SETS, object);
    assert_eq!(cluster.names(kind::PODS), ["db-5", "db-6", "db-7"]);
    cluster.patch(kind::STATEFUL_SETS, "db", json!({ "spec": { "replicas": 0 } }));
    assert_eq!(cluster.names(kind::PODS), [] as [&str; 0]);
}

#[test]
fn an_update_goes_from_the_last_to_the_partition() {
    let mut cluster = Cluster::new(2);
    cluster.create(kind::STATEFUL_SETS, set(3));
    let first = tree::text(&cluster.get(kind::STATEFUL_SETS, "db"), "/status/currentRevision").to_owned();
    let rolling = json!({ "type": "RollingUpdate", "rollingUpdate": { "partition": 2 } });
    cluster.patch(
        kind::STATEFUL_SETS,
        "db",
        json!({ "spec": { "template": template("db", "b"), "updateStrategy": rolling } }),
    );
    assert_eq!(images(&cluster), ["db-0 a", "db-1 a", "db-2 b"]);
    assert_eq!(counts(&cluster), [3, 3, 3, 2, 1]);
    let stored = cluster.get(kind::STATEFUL_SETS, "db");
    assert_eq!(tree::text(&stored, "/status/currentRevision"), first);
    assert_ne!(tree::text(&stored, "/status/updateRevision"), first);

    // Below the partition even a new pod is an old one.
    cluster.delete(kind::PODS, "db-0");
    assert_eq!(images(&cluster), ["db-0 a", "db-1 a", "db-2 b"]);

    let rolling = json!({ "type": "RollingUpdate", "rollingUpdate": { "partition": 0 } });
    cluster.patch(kind::STATEFUL_SETS, "db", json!({ "spec": { "updateStrategy": rolling } }));
    assert_eq!(images(&cluster), ["db-0 b", "db-1 b", "db-2 b"]);
    assert_eq!(counts(&cluster), [3, 3, 3, 3, 3]);
    let stored = cluster.get(kind::STATEFUL_SETS, "db");
    assert_eq!(stored["status"]["currentRevision"], stored["status"]["updateRevision"]);
    assert_eq!(stored["status"]["collisionCount"], 0);
    assert_eq!(cluster.names(kind::REVISIONS).len(), 2);
}

#[test]
fn going_back_uses_the_revision_that_was() {
    let mut cluster = Cluster::new(2);
    cluster.create(kind::STATEFUL_SETS, set(1));
    let first = tree::text(&cluster.get(kind::STATEFUL_SETS, "db"), "/status/updateRevision").to_owned();
    for image in ["b", "a"] {
        cluster.patch(kind::STATEFUL_SETS, "db", json!({ "spec": { "template": template("db", image) } }));
    }
    let revision = cluster.get(kind::REVISIONS, &first);
    assert_eq!(revision["revision"], 3);
    assert_eq!(tree::text(&cluster.get(kind::STATEFUL_SETS, "db"), "/status/currentRevision"), first);
    assert_eq!(cluster.names(kind::REVISIONS).len(), 2);
}

#[test]
fn on_delete_nothing_is_updated_by_itself() {
    let mut cluster = Cluster::new(2);
    let mut object = set(2);
    object["spec"]["updateStrategy"] = json!({ "type": "OnDelete" });
    cluster.create(kind::STATEFUL_SETS, object);
    cluster.patch(kind::STATEFUL_SETS, "db", json!({ "spec": { "template": template("db", "b") } }));
    assert_eq!(images(&cluster), ["db-0 a", "db-1 a"]);
    cluster.delete(kind::PODS, "db-1");
    assert_eq!(images(&cluster), ["db-0 a", "db-1 b"]);
}

#[test]
fn several_may_be_updated_at_once() {
    let mut cluster = Cluster::new(2);
    let mut object = set(4);
    let rolling = json!({ "partition": 0, "maxUnavailable": 2 });
    object["spec"]["updateStrategy"] = json!({ "type": "RollingUpdate", "rollingUpdate": rolling });
    object["spec"]["podManagementPolicy"] = "Parallel".into();
    cluster.create(kind::STATEFUL_SETS, object);
    cluster.kubelet = Kubelet::Stuck;
    cluster.patch(kind::STATEFUL_SETS, "db", json!({ "spec": { "template": template("db", "b") } }));
    assert_eq!(images(&cluster), ["db-0 a", "db-1 a", "db-2 b", "db-3 b"]);
}

#[test]
fn a_pod_that_failed_is_made_anew() {
    let mut cluster = Cluster::new(1);
    cluster.create(kind::STATEFUL_SETS, set(2));
    let before = tree::uid(&cluster.get(kind::PODS, "db-0")).to_owned();
    cluster.end_pod("db-0", "Failed", 1);
    assert_ne!(tree::uid(&cluster.get(kind::PODS, "db-0")), before);
    assert_eq!(counts(&cluster), [2, 2, 2, 2, 2]);
}

#[test]
fn each_pod_has_its_claims_and_they_stay() {
    let mut cluster = Cluster::new(1);
    cluster.create(kind::STATEFUL_SETS, with_claims(set(2)));
    assert_eq!(cluster.names(kind::CLAIMS), ["data-db-0", "data-db-1"]);
    let pod = cluster.get(kind::PODS, "db-1");
    assert_eq!(tree::text(&pod, "/spec/volumes/0/persistentVolumeClaim/claimName"), "data-db-1");
    assert_eq!(tree::label(&cluster.get(kind::CLAIMS, "data-db-1"), "app"), "db");
    cluster.patch(kind::STATEFUL_SETS, "db", json!({ "spec": { "replicas": 0 } }));
    cluster.delete(kind::STATEFUL_SETS, "db");
    assert_eq!(cluster.names(kind::CLAIMS), ["data-db-0", "data-db-1"]);
}

#[test]
fn claims_go_with_whom_the_policy_names() {
    let table = [("Delete", "Retain", 1, 1), ("Retain", "Delete", 2, 0), ("Delete", "Delete", 1, 0)];
    for (scaled, deleted, after_scaling, after_deletion) in table {
        let mut cluster = Cluster::new(1);
        let mut object = with_claims(set(2));
        object["spec"]["persistentVolumeClaimRetentionPolicy"] =
            json!({ "whenScaled": scaled, "whenDeleted": deleted });
        cluster.create(kind::STATEFUL_SETS, object);
        cluster.patch(kind::STATEFUL_SETS, "db", json!({ "spec": { "replicas": 1 } }));
        assert_eq!(cluster.names(kind::CLAIMS).len(), after_scaling, "{scaled} {deleted}");
        cluster.patch(kind::STATEFUL_SETS, "db", json!({ "spec": { "replicas": 2 } }));
        assert_eq!(cluster.names(kind::PODS).len(), 2, "{scaled} {deleted}");
        cluster.patch(kind::STATEFUL_SETS, "db", json!({ "spec": { "replicas": 1 } }));
        cluster.delete(kind::STATEFUL_SETS, "db");
        let left = if deleted == "Retain" { after_deletion } else { 0 };
        assert_eq!(cluster.names(kind::CLAIMS).len(), left, "{scaled} {deleted}");
    }
}

#[test]
fn availability_takes_its_time() {
    let mut cluster = Cluster::new(1);
    let mut object = set(2);
    object["spec"]["minReadySeconds"] = 10.into();
    cluster.create(kind::STATEFUL_SETS, object);
    assert_eq!(counts(&cluster), [1, 1, 0, 1, 1]);
    cluster.seconds(11);
    assert_eq!(cluster.names(kind::PODS), ["db-0", "db-1"]);
    cluster.seconds(11);
    assert_eq!(counts(&cluster), [2, 2, 2, 2, 2]);
}

#[test]
fn one_on_its_way_out_makes_no_revision_anew() {
    let mut cluster = Cluster::new(1);
    let mut object = set(1);
    object["metadata"]["finalizers"] = json!(["foregroundDeletion"]);
    cluster.create(kind::STATEFUL_SETS, object);
    let revisions = cluster.names(kind::REVISIONS);
    assert_eq!(revisions.len(), 1);
    cluster.delete(kind::STATEFUL_SETS, "db");
    assert!(tree::is_deleting(&cluster.get(kind::STATEFUL_SETS, "db")));
    // When the garbage collector deletes what it owns
    cluster.delete(kind::REVISIONS, &revisions[0]);
    // Then that stays so, and the set can go.
    assert!(cluster.names(kind::REVISIONS).is_empty());
}
