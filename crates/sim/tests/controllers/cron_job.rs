//! CronJobs.

use serde_json::{Value, json};
use sim::{kind, tree};

use crate::cluster::Cluster;

fn cron(schedule: &str, spec: Value) -> Value {
    let template = json!({
        "metadata": { "labels": { "app": "tick" } },
        "spec": { "restartPolicy": "Never", "containers": [{ "name": "main", "image": "a" }] },
    });
    let mut cron = json!({
        "metadata": { "name": "tick" },
        "spec": {
            "schedule": schedule, "concurrencyPolicy": "Allow",
            "successfulJobsHistoryLimit": 3, "failedJobsHistoryLimit": 1,
            "jobTemplate": { "metadata": { "labels": { "from": "tick" } }, "spec": {
                "parallelism": 1, "completions": 1, "backoffLimit": 0, "completionMode": "NonIndexed",
                "template": template,
            } },
        },
    });
    for (key, value) in spec.as_object().expect("a spec") {
        cron["spec"][key] = value.clone();
    }
    cron
}

fn tick(cluster: &Cluster) -> Value {
    cluster.get(kind::CRON_JOBS, "tick")
}

fn end_all(cluster: &mut Cluster, phase: &str) {
    for pod in cluster.all(kind::PODS) {
        if tree::text(&pod, "/status/phase") == "Running" {
            cluster.end_pod(tree::name(&pod), phase, i64::from(phase == "Failed"));
        }
    }
}

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;

#[test]
fn a_job_starts_when_it_is_time() {
    let mut cluster = Cluster::new(1);
    cluster.create(kind::CRON_JOBS, cron("*/5 * * * *", json!({})));
    cluster.seconds(4 * MINUTE);
    assert_eq!(cluster.names(kind::JOBS), [] as [&str; 0]);
    cluster.seconds(MINUTE + 1);
    let jobs = cluster.all(kind::JOBS);
    let minutes = cluster.time().as_second() / 60;
    assert_eq!(cluster.names(kind::JOBS), [format!("tick-{minutes}")]);
    assert_eq!(tree::label(&jobs[0], "from"), "tick");
    assert_eq!(
        tree::annotation(&jobs[0], "batch.kubernetes.io/cronjob-scheduled-timestamp"),
        "2026-01-01T00:05:00Z"
    );
    let stored = tick(&cluster);
    assert_eq!(tree::text(&stored, "/status/lastScheduleTime"), "2026-01-01T00:05:00Z");
    assert_eq!(tree::text(&stored, "/status/active/0/name"), tree::name(&jobs[0]));
    end_all(&mut cluster, "Succeeded");
    let stored = tick(&cluster);
    assert!(stored.pointer("/status/active").is_none());
    assert_eq!(tree::text(&stored, "/status/lastSuccessfulTime"), "2026-01-01T00:05:01Z");
    assert!(cluster.has_event("SawCompletedJob: Saw completed job: tick-"));
}

#[test]
fn days_go_by_and_little_is_kept() {
    let mut cluster = Cluster::new(1);
    cluster.create(kind::CRON_JOBS, cron("0 */6 * * *", json!({ "timeZone": "Europe/Berlin" })));
    let mut started = 0;
    for hour in 0..72 {
        cluster.seconds(HOUR);
        if !tree::items(&tick(&cluster), "/status/active").as_slice().is_empty() {
            started += 1;
            end_all(&mut cluster, if hour % 4 == 0 { "Failed" } else { "Succeeded" });
        }
    }
    assert_eq!(started, 12);
    let jobs = cluster.names(kind::JOBS);
    assert!(jobs.len() <= 4, "{jobs:?}");
    // Midnight in Berlin is eleven in the evening.
    assert_eq!(tree::text(&tick(&cluster), "/status/lastScheduleTime"), "2026-01-03T23:00:00Z");
}

#[test]
fn what_runs_still_decides_about_the_next() {
    let table = [("Allow", 3, 3), ("Forbid", 1, 1), ("Replace", 1, 1)];
    for (policy, jobs, active) in table {
        let mut cluster = Cluster::new(1);
        cluster.create(kind::CRON_JOBS, cron("* * * * *", json!({ "concurrencyPolicy": policy })));
        cluster.seconds(3 * MINUTE + 1);
        assert_eq!(cluster.names(kind::JOBS).len(), jobs, "{policy}");
        assert_eq!(tree::items(&tick(&cluster), "/status/active").len(), active, "{policy}");
        let last = tree::text(&cluster.all(kind::JOBS)[jobs - 1], "/metadata/creationTimestamp").to_owned();
        let expected = if policy == "Forbid" { "2026-01-01T00:01:00Z" } else { "2026-01-01T00:03:00Z" };
        assert_eq!(last, expected, "{policy}");
        if policy == "Forbid" {
            assert!(cluster.has_event("JobAlreadyActive"));
            // The time that was missed is made up for as soon as possible.
            end_all(&mut cluster, "Succeeded");
            assert_eq!(cluster.names(kind::JOBS).len(), 2);
        }
    }
}

#[test]
fn a_suspended_one_starts_the_last_missed_job_when_it_goes_on() {
    let mut cluster = Cluster::new(1);
    cluster.create(kind::CRON_JOBS, cron("0 * * * *", json!({ "suspend": true })));
    cluster.seconds(5 * HOUR + 10 * MINUTE);
    assert_eq!(cluster.names(kind::JOBS), [] as [&str; 0]);
    cluster.patch(kind::CRON_JOBS, "tick", json!({ "spec": { "suspend": false } }));
    assert_eq!(cluster.names(kind::JOBS).len(), 1);
    assert_eq!(tree::text(&tick(&cluster), "/status/lastScheduleTime"), "2026-01-01T05:00:00Z");
}

#[test]
fn what_is_too_late_does_not_start() {
    let mut cluster = Cluster::new(1);
    cluster.create(
        kind::CRON_JOBS,
        cron("0 * * * *", json!({ "suspend": true, "startingDeadlineSeconds": 60 })),
    );
    cluster.seconds(HOUR + 10 * MINUTE);
    cluster.patch(kind::CRON_JOBS, "tick", json!({ "spec": { "suspend": false } }));
    assert_eq!(cluster.names(kind::JOBS), [] as [&str; 0]);
    cluster.seconds(HOUR);
    assert_eq!(cluster.names(kind::JOBS).len(), 1);
}

#[test]
fn many_missed_times_are_worth_a_word() {
    let mut cluster = Cluster::new(1);
    cluster.create(kind::CRON_JOBS, cron("* * * * *", json!({ "suspend": true })));
    cluster.seconds(3 * HOUR);
    cluster.patch(kind::CRON_JOBS, "tick", json!({ "spec": { "suspend": false } }));
    assert!(cluster.has_event("TooManyMissedTimes"));
    assert_eq!(cluster.names(kind::JOBS).len(), 1);
    assert_eq!(tree::text(&tick(&cluster), "/status/lastScheduleTime"), "2026-01-01T03:00:00Z");
}

#[test]
fn a_job_that_went_missing_is_forgotten() {
    let mut cluster = Cluster::new(1);
    cluster.create(kind::CRON_JOBS, cron("0 * * * *", json!({})));
    cluster.seconds(HOUR + 1);
    let job = cluster.names(kind::JOBS).remove(0);
    cluster.delete(kind::JOBS, &job);
    assert!(tick(&cluster).pointer("/status/active").is_none());
    assert!(cluster.has_event(&format!("MissingJob: Active job went missing: {job}")));
}
