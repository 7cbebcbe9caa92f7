//! Jobs.

use proptest::prelude::*;
use serde_json::{Value, json};
use sim::{kind, tree};

use crate::cluster::{Cluster, conditions};

fn job(spec: Value) -> Value {
    let mut job = json!({
        "metadata": { "name": "work" },
        "spec": {
            "parallelism": 1, "completions": 1, "backoffLimit": 6, "completionMode": "NonIndexed",
            "template": {
                "metadata": { "labels": { "app": "work" } },
                "spec": { "restartPolicy": "Never", "containers": [{ "name": "main", "image": "a" }] },
            },
        },
    });
    for (key, value) in spec.as_object().expect("a spec") {
        job["spec"][key] = value.clone();
    }
    job
}

fn work(cluster: &Cluster) -> Value {
    cluster.get(kind::JOBS, "work")
}

fn counts(cluster: &Cluster) -> [i64; 5] {
    let job = work(cluster);
    ["active", "ready", "succeeded", "failed", "terminating"]
        .map(|field| tree::number(&job, &format!("/status/{field}")).unwrap_or(0))
}

/// Names of pods that run.
fn running(cluster: &Cluster) -> Vec<String> {
    let runs = |pod: &&Value| tree::text(pod, "/status/phase") == "Running" && !tree::is_deleting(pod);
    cluster.all(kind::PODS).iter().filter(runs).map(|pod| tree::name(pod).to_owned()).collect()
}

fn indexes(cluster: &Cluster) -> Vec<String> {
    let index = |name: &String| {
        tree::annotation(&cluster.get(kind::PODS, name), "batch.kubernetes.io/job-completion-index")
            .to_owned()
    };
    running(cluster).iter().map(index).collect()
}

fn end(cluster: &mut Cluster, phase: &str, code: i64) {
    let pod = running(cluster).remove(0);
    cluster.end_pod(&pod, phase, code);
}

fn end_index(cluster: &mut Cluster, index: &str, phase: &str, code: i64) {
    let has = |name: &String| {
        tree::annotation(&cluster.get(kind::PODS, name), "batch.kubernetes.io/job-completion-index") == index
    };
    let pod = running(cluster).into_iter().find(has).expect("a pod of the index");
    cluster.end_pod(&pod, phase, code);
}

const COMPLETE: [&str; 2] =
    ["Complete=True CompletionsReached", "SuccessCriteriaMet=True CompletionsReached"];

#[test]
fn a_job_that_succeeds() {
    let mut cluster = Cluster::new(1);
    cluster.create(kind::JOBS, job(json!({})));
    assert_eq!(counts(&cluster), [1, 1, 0, 0, 0]);
    let pod = cluster.names(kind::PODS).remove(0);
    assert_eq!(
        cluster.get(kind::PODS, &pod)["metadata"]["finalizers"],
        json!(["batch.kubernetes.io/job-tracking"])
    );
    end(&mut cluster, "Succeeded", 0);
    assert_eq!(counts(&cluster), [0, 0, 1, 0, 0]);
    let stored = work(&cluster);
    assert_eq!(conditions(&stored), COMPLETE);
    assert_eq!(stored["status"]["uncountedTerminatedPods"], json!({}));
    assert_eq!(stored["status"]["ready"], 0);
    assert!(stored.pointer("/status/completionTime").is_some());
    assert_eq!(tree::items(&cluster.get(kind::PODS, &pod), "/metadata/finalizers").len(), 0);
    assert!(cluster.has_event("Completed: Job completed"));
}

#[test]
fn no_more_run_at_once_than_may_and_no_more_in_all_than_must() {
    let mut cluster = Cluster::new(1);
    cluster.create(kind::JOBS, job(json!({ "parallelism": 2, "completions": 3 })));
    assert_eq!(counts(&cluster), [2, 2, 0, 0, 0]);
    end(&mut cluster, "Succeeded", 0);
    assert_eq!(counts(&cluster), [2, 2, 1, 0, 0]);
    end(&mut cluster, "Succeeded", 0);
    assert_eq!(counts(&cluster), [1, 1, 2, 0, 0]);
    end(&mut cluster, "Succeeded", 0);
    assert_eq!(counts(&cluster), [0, 0, 3, 0, 0]);
    assert_eq!(conditions(&work(&cluster)), COMPLETE);
    assert_eq!(cluster.names(kind::PODS).len(), 3);
}

#[test]
fn a_queue_of_work_is_done_when_its_workers_end() {
    let mut cluster = Cluster::new(1);
    let mut object = job(json!({ "parallelism": 2 }));
    object["spec"].as_object_mut().expect("a spec").remove("completions");
    cluster.create(kind::JOBS, object);
    end(&mut cluster, "Succeeded", 0);
    assert_eq!(counts(&cluster), [1, 1, 1, 0, 0]);
    end(&mut cluster, "Succeeded", 0);
    assert_eq!(conditions(&work(&cluster)), COMPLETE);
}

#[test]
fn failures_are_tried_again_after_ever_longer_waits_until_too_many() {
    let mut cluster = Cluster::new(1);
    cluster.create(kind::JOBS, job(json!({ "backoffLimit": 2 })));
    end(&mut cluster, "Failed", 1);
    assert_eq!(counts(&cluster), [0, 0, 0, 1, 0]);
    cluster.seconds(9);
    assert_eq!(running(&cluster).len(), 0);
    cluster.seconds(1);
    assert_eq!(running(&cluster).len(), 1);
    end(&mut cluster, "Failed", 1);
    cluster.seconds(19);
    assert_eq!(running(&cluster).len(), 0);
    cluster.seconds(1);
    end(&mut cluster, "Failed", 1);
    let stored = work(&cluster);
    assert_eq!(counts(&cluster), [0, 0, 0, 3, 0]);
    assert_eq!(
        conditions(&stored),
        ["Failed=True BackoffLimitExceeded", "FailureTarget=True BackoffLimitExceeded"]
    );
    let failed = tree::condition(&stored, "Failed").expect("a condition");
    assert_eq!(tree::text(failed, "/message"), "Job has reached the specified backoff limit");
    assert!(stored.pointer("/status/completionTime").is_none());
    assert!(cluster.has_event("BackoffLimitExceeded: Job has reached the specified backoff limit"));
}

#[test]
fn what_still_runs_goes_when_the_job_has_failed() {
    let mut cluster = Cluster::new(1);
    cluster.create(kind::JOBS, job(json!({ "parallelism": 3, "completions": 3, "backoffLimit": 0 })));
    end(&mut cluster, "Failed", 1);
    assert_eq!(counts(&cluster), [0, 0, 0, 3, 0]);
    assert_eq!(
        conditions(&work(&cluster)),
        ["Failed=True BackoffLimitExceeded", "FailureTarget=True BackoffLimitExceeded"]
    );
    assert_eq!(running(&cluster).len(), 0);
}

#[test]
fn a_deadline_ends_a_job() {
    let mut cluster = Cluster::new(1);
    cluster.create(kind::JOBS, job(json!({ "activeDeadlineSeconds": 30 })));
    cluster.seconds(29);
    assert_eq!(counts(&cluster), [1, 1, 0, 0, 0]);
    cluster.seconds(1);
    assert_eq!(
        conditions(&work(&cluster)),
        ["Failed=True DeadlineExceeded", "FailureTarget=True DeadlineExceeded"]
    );
    assert_eq!(counts(&cluster), [0, 0, 0, 1, 0]);
}

#[test]
fn a_suspended_job_has_no_pods() {
    let mut cluster = Cluster::new(1);
    cluster.create(kind::JOBS, job(json!({ "suspend": true, "parallelism": 2, "completions": 2 })));
    assert_eq!(conditions(&work(&cluster)), ["Suspended=True JobSuspended"]);
    assert!(work(&cluster).pointer("/status/startTime").is_none());
    cluster.patch(kind::JOBS, "work", json!({ "spec": { "suspend": false } }));
    assert_eq!(counts(&cluster), [2, 2, 0, 0, 0]);
    assert_eq!(conditions(&work(&cluster)), ["Suspended=False JobResumed"]);
    cluster.patch(kind::JOBS, "work", json!({ "spec": { "suspend": true } }));
    assert_eq!(counts(&cluster), [0, 0, 0, 0, 0]);
    assert_eq!(cluster.names(kind::PODS), [] as [&str; 0]);
    assert!(cluster.has_event("Suspended: Job suspended") && cluster.has_event("Resumed: Job resumed"));
}

#[test]
fn every_index_is_done_once() {
    let mut cluster = Cluster::new(1);
    cluster
        .create(kind::JOBS, job(json!({ "completionMode": "Indexed", "parallelism": 2, "completions": 4 })));
    assert_eq!(indexes(&cluster), ["0", "1"]);
    let pod = cluster.get(kind::PODS, &running(&cluster)[1]);
    assert!(tree::name(&pod).starts_with("work-1-"));
    assert_eq!(tree::text(&pod, "/spec/hostname"), "work-1");
    assert_eq!(tree::text(&pod, "/spec/containers/0/env/0/name"), "JOB_COMPLETION_INDEX");
    end_index(&mut cluster, "1", "Succeeded", 0);
    assert_eq!(indexes(&cluster), ["0", "2"]);
    end_index(&mut cluster, "2", "Succeeded", 0);
    assert_eq!(work(&cluster)["status"]["completedIndexes"], "1,2");
    end_index(&mut cluster, "3", "Succeeded", 0);
    end_index(&mut cluster, "0", "Succeeded", 0);
    assert_eq!(work(&cluster)["status"]["completedIndexes"], "0-3");
    assert_eq!(counts(&cluster), [0, 0, 4, 0, 0]);
    assert_eq!(conditions(&work(&cluster)), COMPLETE);
}

#[test]
fn each_index_has_a_limit_of_its_own() {
    let mut cluster = Cluster::new(1);
    let spec = json!({
        "completionMode": "Indexed", "parallelism": 2, "completions": 2, "backoffLimitPerIndex": 1,
        "backoffLimit": i32::MAX,
    });
    cluster.create(kind::JOBS, job(spec));
    end_index(&mut cluster, "0", "Failed", 1);
    assert_eq!(indexes(&cluster), ["1"]);
    cluster.seconds(10);
    assert_eq!(indexes(&cluster).len(), 2);
    end_index(&mut cluster, "0", "Failed", 1);
    assert_eq!(work(&cluster)["status"]["failedIndexes"], "0");
    end_index(&mut cluster, "1", "Succeeded", 0);
    assert_eq!(
        conditions(&work(&cluster)),
        ["Failed=True FailedIndexes", "FailureTarget=True FailedIndexes"]
    );
    assert_eq!(counts(&cluster), [0, 0, 1, 2, 0]);
}

#[test]
fn a_policy_ends_a_job_or_overlooks_failures() {
    let mut cluster = Cluster::new(1);
    let rules = json!([
        { "action": "FailJob", "onExitCodes": { "operator": "In", "values": [42] } },
        { "action": "Ignore", "onExitCodes": { "operator": "In", "values": [7] } },
    ]);
    cluster.create(kind::JOBS, job(json!({ "podFailurePolicy": { "rules": rules }, "backoffLimit": 0 })));
    end(&mut cluster, "Failed", 7);
    cluster.seconds(30);
    assert_eq!(counts(&cluster), [1, 1, 0, 0, 0]);
    end(&mut cluster, "Failed", 42);
    assert_eq!(
        conditions(&work(&cluster)),
        ["Failed=True PodFailurePolicy", "FailureTarget=True PodFailurePolicy"]
    );
    assert_eq!(counts(&cluster), [0, 0, 0, 1, 0]);
}

#[test]
fn enough_successes_may_be_less_than_all() {
    let mut cluster = Cluster::new(1);
    let policy = json!({ "rules": [{ "succeededIndexes": "0-1", "succeededCount": 1 }] });
    let spec = json!({
        "completionMode": "Indexed", "parallelism": 3, "completions": 3, "successPolicy": policy,
    });
    cluster.create(kind::JOBS, job(spec));
    end_index(&mut cluster, "2", "Succeeded", 0);
    assert_eq!(counts(&cluster), [2, 2, 1, 0, 0]);
    end_index(&mut cluster, "0", "Succeeded", 0);
    assert_eq!(
        conditions(&work(&cluster)),
        ["Complete=True SuccessPolicy", "SuccessCriteriaMet=True SuccessPolicy"]
    );
    assert_eq!(running(&cluster).len(), 0);
    let complete = work(&cluster);
    assert_eq!(
        tree::text(tree::condition(&complete, "Complete").expect("one"), "/message"),
        "Matched rules at index 0"
    );
}

#[test]
fn fewer_at_once_lets_some_go_without_counting_them() {
    let mut cluster = Cluster::new(1);
    cluster.create(kind::JOBS, job(json!({ "parallelism": 3, "completions": 6 })));
    cluster.patch(kind::JOBS, "work", json!({ "spec": { "parallelism": 1 } }));
    assert_eq!(counts(&cluster), [1, 1, 0, 0, 0]);
}

#[test]
fn a_job_that_is_deleted_lets_go_of_its_pods() {
    let mut cluster = Cluster::new(1);
    cluster.create(kind::JOBS, job(json!({})));
    cluster.delete(kind::JOBS, "work");
    assert_eq!(cluster.names(kind::PODS), [] as [&str; 0]);
}

#[test]
fn a_job_of_somebody_else_is_left_alone() {
    let mut cluster = Cluster::new(1);
    cluster.create(kind::JOBS, job(json!({ "managedBy": "example.com/queue" })));
    assert_eq!(cluster.names(kind::PODS), [] as [&str; 0]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Whatever fails on the way, as many succeed as were asked for, and none is counted twice.
    #[test]
    fn completions_are_exact(
        completions in 1_i64..6,
        parallelism in 1_i64..5,
        indexed in any::<bool>(),
        steps in prop::collection::vec((0_usize..5, any::<bool>()), 0..30),
    ) {
        let mut cluster = Cluster::new(2);
        let mode = if indexed { "Indexed" } else { "NonIndexed" };
        let spec = json!({
            "completions": completions, "parallelism": parallelism, "completionMode": mode, "backoffLimit": 1000,
        });
        cluster.create(kind::JOBS, job(spec));
        let (mut succeeded, mut failed) = (0, 0);
        for (which, success) in steps {
            let pods = running(&cluster);
            let Some(pod) = pods.get(which % pods.len().max(1)).cloned() else {
                cluster.seconds(700);
                continue;
            };
            cluster.end_pod(&pod, if success { "Succeeded" } else { "Failed" }, i64::from(!success));
            if success { succeeded += 1 } else { failed += 1 }
            let [active, _, counted, lost, _] = counts(&cluster);
            prop_assert_eq!((counted, lost), (succeeded, failed));
            prop_assert!(active <= parallelism && active + counted <= completions);
        }
        for _ in 0..200 {
            let Some(pod) = running(&cluster).pop() else {
                if conditions(&work(&cluster)) == COMPLETE {
                    break;
                }
                cluster.seconds(700);
                continue;
            };
            cluster.end_pod(&pod, "Succeeded", 0);
        }
        prop_assert_eq!(counts(&cluster), [0, 0, completions, failed, 0]);
        prop_assert_eq!(conditions(&work(&cluster)), COMPLETE);
    }
}
