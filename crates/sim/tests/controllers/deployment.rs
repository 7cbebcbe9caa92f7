//! Deployments.

use std::{cell::Cell, rc::Rc};

use proptest::prelude::*;
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

fn image(image: &str) -> Value {
    json!({ "spec": { "template": template("web", image) } })
}

/// `image: size` of every set, by revision.
fn sets(cluster: &Cluster) -> Vec<String> {
    let mut sets = cluster.all(kind::REPLICA_SETS);
    sets.sort_by_key(|set| revision(set).parse::<i64>().unwrap_or(0));
    let text = |set: &Value| {
        let image = tree::text(set, "/spec/template/spec/containers/0/image").to_owned();
        format!("{} {image}: {}", revision(set), tree::number(set, "/spec/replicas").unwrap_or(0))
    };
    sets.iter().map(text).collect()
}

fn revision(object: &Value) -> &str {
    tree::annotation(object, "deployment.kubernetes.io/revision")
}

fn numbers(deployment: &Value) -> [i64; 5] {
    ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas", "unavailableReplicas"]
        .map(|field| tree::number(deployment, &format!("/status/{field}")).unwrap_or(0))
}

fn web(cluster: &Cluster) -> Value {
    cluster.get(kind::DEPLOYMENTS, "web")
}

const COMPLETE: [&str; 2] =
    ["Available=True MinimumReplicasAvailable", "Progressing=True NewReplicaSetAvailable"];

#[test]
fn it_makes_a_set_and_reports_success() {
    let mut cluster = Cluster::new(2);
    cluster.create(kind::DEPLOYMENTS, deployment(3));
    let stored = web(&cluster);
    assert_eq!(numbers(&stored), [3, 3, 3, 3, 0]);
    assert_eq!(conditions(&stored), COMPLETE);
    assert_eq!(revision(&stored), "1");
    assert_eq!(stored["status"]["terminatingReplicas"], 0);
    assert_eq!(sets(&cluster), ["1 a: 3"]);
    let set = &cluster.all(kind::REPLICA_SETS)[0];
    let hash = tree::label(set, "pod-template-hash");
    assert_eq!(tree::name(set), format!("web-{hash}"));
    assert_eq!(tree::text(set, "/spec/selector/matchLabels/pod-template-hash"), hash);
    assert_eq!(tree::annotation(set, "deployment.kubernetes.io/desired-replicas"), "3");
    assert_eq!(tree::annotation(set, "deployment.kubernetes.io/max-replicas"), "4");
    let progressing = tree::condition(&stored, "Progressing").expect("a condition");
    let message = format!("ReplicaSet \"{}\" has successfully progressed.", tree::name(set));
    assert_eq!(tree::text(progressing, "/message"), message);
    assert!(
        cluster
            .has_event(&format!("ScalingReplicaSet: Scaled up replica set {} from 0 to 3", tree::name(set)))
    );
}

#[test]
fn scaling_changes_the_one_set() {
    let mut cluster = Cluster::new(2);
    cluster.create(kind::DEPLOYMENTS, deployment(3));
    for size in [6, 2, 0, 4] {
        cluster.patch(kind::DEPLOYMENTS, "web", json!({ "spec": { "replicas": size } }));
        assert_eq!(numbers(&web(&cluster)), [size, size, size, size, 0], "{size}");
        assert_eq!(sets(&cluster), [format!("1 a: {size}")]);
    }
    assert_eq!(conditions(&web(&cluster)), COMPLETE);
}

#[test]
fn a_rollout_ends_with_the_new_set_alone() {
    let mut cluster = Cluster::new(2);
    cluster.create(kind::DEPLOYMENTS, deployment(4));
    cluster.patch(kind::DEPLOYMENTS, "web", image("b"));
    assert_eq!(sets(&cluster), ["1 a: 0", "2 b: 4"]);
    assert_eq!(numbers(&web(&cluster)), [4, 4, 4, 4, 0]);
    assert_eq!(revision(&web(&cluster)), "2");
    assert_eq!(conditions(&web(&cluster)), COMPLETE);
}

#[test]
fn going_back_takes_up_the_old_set_as_the_newest() {
    let mut cluster = Cluster::new(2);
    cluster.create(kind::DEPLOYMENTS, deployment(2));
    cluster.patch(kind::DEPLOYMENTS, "web", image("b"));
    cluster.patch(kind::DEPLOYMENTS, "web", image("a"));
    assert_eq!(sets(&cluster), ["2 b: 0", "3 a: 2"]);
    let set = cluster.all(kind::REPLICA_SETS).into_iter().find(|set| revision(set) == "3").expect("the set");
    assert_eq!(tree::annotation(&set, "deployment.kubernetes.io/revision-history"), "1");
    assert_eq!(conditions(&web(&cluster)), COMPLETE);
}

#[test]
fn a_rollback_can_be_asked_for_by_annotation() {
    let mut cluster = Cluster::new(2);
    cluster.create(kind::DEPLOYMENTS, deployment(2));
    cluster.patch(kind::DEPLOYMENTS, "web", image("b"));
    let back =
        |to: &str| json!({ "metadata": { "annotations": { "deprecated.deployment.rollback.to": to } } });
    cluster.patch(kind::DEPLOYMENTS, "web", back("0"));
    assert_eq!(sets(&cluster), ["2 b: 0", "3 a: 2"]);
    assert!(cluster.has_event("DeploymentRollback: Rolled back deployment \"web\" to revision 1"));
    cluster.patch(kind::DEPLOYMENTS, "web", back("9"));
    assert!(
        cluster.has_event("DeploymentRollbackRevisionNotFound: Unable to find the revision to rollback to.")
    );
    assert_eq!(tree::annotation(&web(&cluster), "deprecated.deployment.rollback.to"), "");
}

#[test]
fn a_rollout_that_gets_stuck_keeps_what_works_and_misses_its_deadline() {
    let mut cluster = Cluster::new(2);
    let mut object = deployment(4);
    object["spec"]["progressDeadlineSeconds"] = 60.into();
    cluster.create(kind::DEPLOYMENTS, object);
    cluster.kubelet = Kubelet::Stuck;
    cluster.patch(kind::DEPLOYMENTS, "web", image("broken"));
    assert_eq!(sets(&cluster), ["1 a: 3", "2 broken: 2"]);
    assert_eq!(numbers(&web(&cluster)), [5, 2, 3, 3, 2]);
    assert_eq!(
        conditions(&web(&cluster)),
        ["Available=True MinimumReplicasAvailable", "Progressing=True ReplicaSetUpdated"]
    );
    cluster.seconds(59);
    assert_eq!(tree::text(tree::condition(&web(&cluster), "Progressing").expect("one"), "/status"), "True");
    cluster.seconds(4);
    assert_eq!(
        conditions(&web(&cluster)),
        ["Available=True MinimumReplicasAvailable", "Progressing=False ProgressDeadlineExceeded"]
    );

    cluster.kubelet = Kubelet::Runs;
    cluster.patch(kind::DEPLOYMENTS, "web", image("a"));
    assert_eq!(sets(&cluster), ["2 broken: 0", "3 a: 4"]);
    assert_eq!(conditions(&web(&cluster)), COMPLETE);
}

#[test]
fn recreating_waits_for_the_last_old_pod() {
    let mut cluster = Cluster::new(2);
    let mut object = deployment(3);
    object["spec"]["strategy"] = json!({ "type": "Recreate" });
    cluster.create(kind::DEPLOYMENTS, object);
    let most = Rc::new(Cell::new(0));
    let seen = most.clone();
    cluster.watch = Some(Rc::new(move |cluster| {
        let images: std::collections::BTreeSet<String> = cluster
            .all(kind::PODS)
            .iter()
            .map(|pod| tree::text(pod, "/spec/containers/0/image").to_owned())
            .collect();
        seen.set(seen.get().max(images.len()));
    }));
    cluster.patch(kind::DEPLOYMENTS, "web", image("b"));
    assert_eq!(most.get(), 1);
    assert_eq!(sets(&cluster), ["1 a: 0", "2 b: 3"]);
    assert_eq!(conditions(&web(&cluster)), COMPLETE);
}

#[test]
fn while_paused_only_the_size_changes() {
    let mut cluster = Cluster::new(2);
    cluster.create(kind::DEPLOYMENTS, deployment(2));
    cluster.patch(kind::DEPLOYMENTS, "web", json!({ "spec": { "paused": true } }));
    assert_eq!(
        conditions(&web(&cluster)),
        ["Available=True MinimumReplicasAvailable", "Progressing=Unknown DeploymentPaused"]
    );
    cluster.patch(kind::DEPLOYMENTS, "web", image("b"));
    cluster.patch(kind::DEPLOYMENTS, "web", json!({ "spec": { "replicas": 3 } }));
    assert_eq!(sets(&cluster), ["1 a: 3"]);
    cluster.patch(kind::DEPLOYMENTS, "web", json!({ "spec": { "paused": false } }));
    assert_eq!(sets(&cluster), ["1 a: 0", "2 b: 3"]);
    assert_eq!(conditions(&web(&cluster)), COMPLETE);
}

#[test]
fn scaling_within_a_rollout_keeps_its_proportions() {
    let mut cluster = Cluster::new(2);
    let mut object = deployment(10);
    let rolling = json!({ "maxSurge": 3, "maxUnavailable": 2 });
    object["spec"]["strategy"] = json!({ "type": "RollingUpdate", "rollingUpdate": rolling });
    cluster.create(kind::DEPLOYMENTS, object);
    cluster.kubelet = Kubelet::Stuck;
    cluster.patch(kind::DEPLOYMENTS, "web", image("b"));
    assert_eq!(sets(&cluster), ["1 a: 8", "2 b: 5"]);
    cluster.patch(kind::DEPLOYMENTS, "web", json!({ "spec": { "replicas": 15 } }));
    assert_eq!(sets(&cluster), ["1 a: 11", "2 b: 7"]);
}

#[test]
fn history_is_kept_up_to_its_limit() {
    let mut cluster = Cluster::new(1);
    let mut object = deployment(1);
    object["spec"]["revisionHistoryLimit"] = 2.into();
    cluster.create(kind::DEPLOYMENTS, object);
    for next in ["b", "c", "d", "e"] {
        cluster.patch(kind::DEPLOYMENTS, "web", image(next));
    }
    assert_eq!(sets(&cluster), ["3 c: 0", "4 d: 0", "5 e: 1"]);
}

#[test]
fn a_set_of_the_same_name_counts_as_a_collision() {
    let mut first = Cluster::new(1);
    first.create(kind::DEPLOYMENTS, deployment(1));
    let taken = first.names(kind::REPLICA_SETS).remove(0);

    let mut cluster = Cluster::new(1);
    let other = json!({
        "metadata": { "name": taken },
        "spec": { "replicas": 0, "selector": { "matchLabels": { "app": "other" } }, "template": template("other", "x") },
    });
    cluster.create(kind::REPLICA_SETS, other);
    cluster.create(kind::DEPLOYMENTS, deployment(1));
    assert_eq!(web(&cluster)["status"]["collisionCount"], 1);
    assert_eq!(numbers(&web(&cluster)), [1, 1, 1, 1, 0]);
    assert_eq!(cluster.names(kind::REPLICA_SETS).len(), 2);
}

#[test]
fn a_refused_pod_shows_in_the_deployment() {
    let mut cluster = Cluster::new(1);
    cluster.judge = Some(Rc::new(|_| Err("exceeded quota".to_owned())));
    cluster.create(kind::DEPLOYMENTS, deployment(1));
    let all = conditions(&web(&cluster));
    assert!(all.contains(&"ReplicaFailure=True FailedCreate".to_owned()), "{all:?}");
    assert!(all.contains(&"Available=False MinimumReplicasUnavailable".to_owned()), "{all:?}");
}

#[test]
fn annotations_go_along_but_not_all() {
    let mut cluster = Cluster::new(1);
    let mut object = deployment(1);
    object["metadata"]["annotations"] =
        json!({ "team": "a", "kubectl.kubernetes.io/last-applied-configuration": "{}" });
    cluster.create(kind::DEPLOYMENTS, object);
    cluster.patch(kind::DEPLOYMENTS, "web", json!({ "metadata": { "annotations": { "team": "b" } } }));
    let set = &cluster.all(kind::REPLICA_SETS)[0];
    assert_eq!(tree::annotation(set, "team"), "b");
    assert_eq!(tree::annotation(set, "kubectl.kubernetes.io/last-applied-configuration"), "");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// However pods come up, and whatever is asked for meanwhile, a rollout stays between its fences.
    #[test]
    fn a_rollout_stays_between_its_fences(
        replicas in 1_i64..8,
        surge in 0_i64..4,
        unavailable in 0_i64..4,
        steps in prop::collection::vec(0_usize..8, 1..40),
    ) {
        let unavailable = if surge == 0 { unavailable.max(1) } else { unavailable };
        let mut cluster = Cluster::new(2);
        let mut object = deployment(replicas);
        let rolling = json!({ "maxSurge": surge, "maxUnavailable": unavailable });
        object["spec"]["strategy"] = json!({ "type": "RollingUpdate", "rollingUpdate": rolling });
        cluster.create(kind::DEPLOYMENTS, object);
        cluster.kubelet = Kubelet::Stuck;
        cluster.watch = Some(Rc::new(move |cluster| {
            let wanted: i64 = cluster
                .all(kind::REPLICA_SETS)
                .iter()
                .map(|set| tree::number(set, "/spec/replicas").unwrap_or(0))
                .sum();
            assert!(wanted <= replicas + surge, "{wanted} pods are more than {replicas} + {surge}");
            let pods = cluster.all(kind::PODS);
            let is_ready = |pod: &&Value| !tree::is_deleting(pod) && tree::condition(pod, "Ready")
                .is_some_and(|it| tree::text(it, "/status") == "True");
            let ready = pods.iter().filter(is_ready).count() as i64;
            assert!(ready >= replicas - unavailable, "{ready} ready pods are less than {replicas} - {unavailable}");
        }));
        for (at, step) in steps.iter().enumerate() {
            match step {
                0 => cluster.patch(kind::DEPLOYMENTS, "web", image(["b", "c", "a"][at % 3])),
                _ => {
                    let waiting: Vec<String> = cluster
                        .all(kind::PODS)
                        .iter()
                        .filter(|pod| tree::text(pod, "/status/phase") == "Pending" && !tree::is_deleting(pod))
                        .map(|pod| tree::name(pod).to_owned())
                        .collect();
                    if let Some(name) = waiting.get(step % waiting.len().max(1)) {
                        cluster.set_ready(name, true);
                    }
                }
            }
            cluster.seconds(1);
        }
        cluster.watch = None;
        for _ in 0..40 {
            for pod in cluster.all(kind::PODS) {
                if tree::text(&pod, "/status/phase") == "Pending" {
                    cluster.set_ready(tree::name(&pod), true);
                }
            }
        }
        prop_assert_eq!(numbers(&web(&cluster)), [replicas, replicas, replicas, replicas, 0]);
    }
}
