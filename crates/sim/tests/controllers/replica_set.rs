//! ReplicaSets and ReplicationControllers.

use std::rc::Rc;

use serde_json::{Value, json};
use sim::{kind, tree};

use crate::cluster::{Cluster, Kubelet, conditions, template};

fn set(replicas: i64) -> Value {
    json!({
        "metadata": { "name": "web" },
        "spec": {
            "replicas": replicas, "selector": { "matchLabels": { "app": "web" } }, "template": template("web", "a"),
        },
    })
}

fn counts(set: &Value) -> [i64; 5] {
    ["replicas", "readyReplicas", "availableReplicas", "fullyLabeledReplicas", "terminatingReplicas"]
        .map(|field| tree::number(set, &format!("/status/{field}")).unwrap_or(0))
}

#[test]
fn there_are_as_many_pods_as_asked_for() {
    let mut cluster = Cluster::new(2);
    cluster.create(kind::REPLICA_SETS, set(3));
    assert_eq!(counts(&cluster.get(kind::REPLICA_SETS, "web")), [3, 3, 3, 3, 0]);
    assert_eq!(
        cluster
            .events
            .iter()
            .filter(|event| event.starts_with("SuccessfulCreate: Created pod: web-"))
            .count(),
        3
    );

    cluster.patch(kind::REPLICA_SETS, "web", json!({ "spec": { "replicas": 5 } }));
    assert_eq!(counts(&cluster.get(kind::REPLICA_SETS, "web")), [5, 5, 5, 5, 0]);

    cluster.patch(kind::REPLICA_SETS, "web", json!({ "spec": { "replicas": 1 } }));
    let set = cluster.get(kind::REPLICA_SETS, "web");
    assert_eq!(counts(&set), [1, 1, 1, 1, 0]);
    assert_eq!(set["status"]["observedGeneration"], set["metadata"]["generation"]);

    let pod = cluster.names(kind::PODS).remove(0);
    cluster.delete(kind::PODS, &pod);
    assert_eq!(cluster.names(kind::PODS).len(), 1);
    assert!(!cluster.names(kind::PODS).contains(&pod));
}

#[test]
fn pods_on_their_way_out_are_counted_apart() {
    let mut cluster = Cluster::new(1);
    cluster.create(kind::REPLICA_SETS, set(2));
    let pod = cluster.names(kind::PODS).remove(0);
    cluster.patch(kind::PODS, &pod, json!({ "metadata": { "finalizers": ["example.com/mine"] } }));
    cluster.delete(kind::PODS, &pod);
    assert_eq!(cluster.names(kind::PODS).len(), 3);
    // The kubelet has ended it, so it does not count as terminating either.
    assert_eq!(counts(&cluster.get(kind::REPLICA_SETS, "web")), [2, 2, 2, 2, 0]);
}

#[test]
fn what_is_selected_is_taken_up_and_what_is_not_is_given_up() {
    let mut cluster = Cluster::new(1);
    cluster.create(
        kind::PODS,
        json!({ "metadata": { "name": "lone", "labels": { "app": "web" } }, "spec": {} }),
    );
    let set = cluster.create(kind::REPLICA_SETS, set(2));
    assert_eq!(cluster.names(kind::PODS).len(), 2);
    let lone = cluster.get(kind::PODS, "lone");
    assert_eq!(tree::text(&lone, "/metadata/ownerReferences/0/uid"), tree::uid(&set));

    cluster.patch(kind::PODS, "lone", json!({ "metadata": { "labels": { "app": "other" } } }));
    assert_eq!(tree::items(&cluster.get(kind::PODS, "lone"), "/metadata/ownerReferences").len(), 0);
    assert_eq!(cluster.names(kind::PODS).len(), 3);

    // One that comes back makes one too many.
    cluster.patch(kind::PODS, "lone", json!({ "metadata": { "labels": { "app": "web" } } }));
    assert_eq!(cluster.names(kind::PODS).len(), 2);
}

#[test]
fn availability_takes_its_time() {
    let mut cluster = Cluster::new(1);
    let mut object = set(2);
    object["spec"]["minReadySeconds"] = 10.into();
    cluster.create(kind::REPLICA_SETS, object);
    assert_eq!(counts(&cluster.get(kind::REPLICA_SETS, "web")), [2, 2, 0, 2, 0]);
    cluster.seconds(9);
    assert_eq!(counts(&cluster.get(kind::REPLICA_SETS, "web")), [2, 2, 0, 2, 0]);
    cluster.seconds(2);
    assert_eq!(counts(&cluster.get(kind::REPLICA_SETS, "web")), [2, 2, 2, 2, 0]);
}

#[test]
fn a_refusal_is_reported_and_tried_again_later() {
    let mut cluster = Cluster::new(1);
    cluster.judge = Some(Rc::new(|_| Err("pods \"web-\" is forbidden: exceeded quota".to_owned())));
    cluster.create(kind::REPLICA_SETS, set(2));
    let stored = cluster.get(kind::REPLICA_SETS, "web");
    assert_eq!(conditions(&stored), ["ReplicaFailure=True FailedCreate"]);
    let message = tree::text(&stored, "/status/conditions/0/message");
    assert_eq!(message, "pods \"web-\" is forbidden: exceeded quota");
    assert!(cluster.has_event("FailedCreate: Error creating: pods \"web-\" is forbidden: exceeded quota"));

    cluster.judge = None;
    cluster.seconds(60);
    let stored = cluster.get(kind::REPLICA_SETS, "web");
    assert_eq!(conditions(&stored), [] as [&str; 0]);
    assert_eq!(counts(&stored), [2, 2, 2, 2, 0]);
}

#[test]
fn pods_that_ended_are_replaced_and_kept() {
    let mut cluster = Cluster::new(1);
    cluster.create(kind::REPLICA_SETS, set(1));
    let pod = cluster.names(kind::PODS).remove(0);
    cluster.end_pod(&pod, "Failed", 1);
    assert_eq!(cluster.names(kind::PODS).len(), 2);
    assert_eq!(counts(&cluster.get(kind::REPLICA_SETS, "web")), [1, 1, 1, 1, 0]);
}

#[test]
fn a_replication_controller_does_the_same() {
    let mut cluster = Cluster::new(1);
    let mut object = set(2);
    object["spec"]["selector"] = json!({ "app": "web" });
    cluster.create(kind::REPLICATION_CONTROLLERS, object);
    let stored = cluster.get(kind::REPLICATION_CONTROLLERS, "web");
    assert_eq!(counts(&stored), [2, 2, 2, 2, 0]);
    assert!(stored.pointer("/status/terminatingReplicas").is_none());
    cluster.kubelet = Kubelet::Runs;
    cluster.delete(kind::REPLICATION_CONTROLLERS, "web");
    assert_eq!(cluster.names(kind::PODS), [] as [&str; 0]);
}
