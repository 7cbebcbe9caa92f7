//! PodDisruptionBudgets.

use serde_json::{Value, json};
use sim::{kind, tree};

use crate::cluster::{Cluster, Kubelet, conditions, template};

fn deployment(replicas: i64) -> Value {
    json!({
        "metadata": { "name": "web" },
        "spec": {
            "replicas": replicas, "selector": { "matchLabels": { "app": "web" } }, "template": template("web", "a"),
        },
    })
}

fn budget(spec: Value) -> Value {
    let mut budget = json!({
        "metadata": { "name": "web" }, "spec": { "selector": { "matchLabels": { "app": "web" } } },
    });
    for (key, value) in spec.as_object().expect("a spec") {
        budget["spec"][key] = value.clone();
    }
    budget
}

/// Allowed, healthy, wanted, expected.
fn counts(cluster: &Cluster) -> [i64; 4] {
    let budget = cluster.get(kind::BUDGETS, "web");
    ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"]
        .map(|field| tree::number(&budget, &format!("/status/{field}")).expect("a number"))
}

#[test]
fn it_says_how_many_may_go() {
    let table = [
        (json!({ "minAvailable": 2 }), 4, [2, 4, 2, 4]),
        (json!({ "minAvailable": "50%" }), 3, [1, 3, 2, 3]),
        (json!({ "maxUnavailable": 1 }), 3, [1, 3, 2, 3]),
        (json!({ "maxUnavailable": "34%" }), 3, [2, 3, 1, 3]),
        (json!({ "minAvailable": 5 }), 3, [0, 3, 5, 3]),
        (json!({ "maxUnavailable": 5 }), 3, [3, 3, 0, 3]),
    ];
    for (spec, replicas, expected) in table {
        let mut cluster = Cluster::new(1);
        cluster.create(kind::DEPLOYMENTS, deployment(replicas));
        cluster.create(kind::BUDGETS, budget(spec.clone()));
        assert_eq!(counts(&cluster), expected, "{spec} of {replicas}");
        let condition = if expected[0] > 0 {
            "DisruptionAllowed=True SufficientPods"
        } else {
            "DisruptionAllowed=False InsufficientPods"
        };
        assert_eq!(conditions(&cluster.get(kind::BUDGETS, "web")), [condition]);
    }
}

#[test]
fn it_follows_its_pods_and_their_controller() {
    let mut cluster = Cluster::new(1);
    cluster.create(kind::BUDGETS, budget(json!({ "maxUnavailable": 1 })));
    assert_eq!(counts(&cluster), [0, 0, 0, 0]);
    cluster.create(kind::DEPLOYMENTS, deployment(3));
    assert_eq!(counts(&cluster), [1, 3, 2, 3]);
    let pod = cluster.names(kind::PODS).remove(0);
    cluster.set_ready(&pod, false);
    assert_eq!(counts(&cluster), [0, 2, 2, 3]);
    cluster.set_ready(&pod, true);
    cluster.kubelet = Kubelet::Stuck;
    cluster.patch(kind::DEPLOYMENTS, "web", json!({ "spec": { "replicas": 5 } }));
    assert_eq!(counts(&cluster), [0, 3, 4, 5]);
}

#[test]
fn a_granted_eviction_counts_until_it_is_done_or_overdue() {
    let mut cluster = Cluster::new(1);
    cluster.create(kind::DEPLOYMENTS, deployment(3));
    cluster.create(kind::BUDGETS, budget(json!({ "minAvailable": 2 })));
    assert_eq!(counts(&cluster), [1, 3, 2, 3]);
    let pod = cluster.names(kind::PODS).remove(0);
    let at = tree::time_text(cluster.time());
    cluster.patch_status(
        kind::BUDGETS,
        "web",
        json!({ "disruptedPods": { pod: at }, "disruptionsAllowed": 0 }),
    );
    assert_eq!(counts(&cluster), [0, 2, 2, 3]);
    cluster.seconds(100);
    assert_eq!(counts(&cluster), [0, 2, 2, 3]);
    cluster.seconds(60);
    assert_eq!(counts(&cluster), [1, 3, 2, 3]);
    assert!(cluster.get(kind::BUDGETS, "web").pointer("/status/disruptedPods").is_none());
    assert!(
        cluster.has_event("NotDeleted: Pod was expected by PDB default/default to be deleted but it wasn't")
    );
}

#[test]
fn a_part_of_what_nobody_scales_is_not_known() {
    let mut cluster = Cluster::new(1);
    let owner = json!({
        "apiVersion": "example.com/v1", "kind": "Thing", "name": "thing", "uid": "1", "controller": true,
    });
    let pod = json!({
        "metadata": { "name": "odd", "labels": { "app": "web" }, "ownerReferences": [owner] }, "spec": {},
    });
    cluster.create(kind::PODS, pod);
    cluster.create(kind::BUDGETS, budget(json!({ "maxUnavailable": 1 })));
    let stored = cluster.get(kind::BUDGETS, "web");
    assert_eq!(conditions(&stored), ["DisruptionAllowed=False SyncFailed"]);
    let message = tree::text(&stored, "/status/conditions/0/message");
    assert_eq!(message, "found no controllers for pod \"odd\"");
}
