//! Jobs over clusters: what is said of them while they run and when they end, and that the API server takes it.

mod judges;

use std::collections::BTreeMap;

use kinds::{MemberStatus, Share, aggregate};
use machinery::validation::workloads;
use proptest::prelude::*;
use serde_json::{Value, json};

/// The states that a Job in a cluster goes through; each may be skipped, none comes back.
const STATES: [&str; 4] = ["unseen", "running", "ending", "ended"];

#[derive(Clone, Debug)]
struct Local {
    completions: u64,
    fails: bool,
    /// The state in each step.
    states: Vec<usize>,
}

fn any_local() -> impl Strategy<Value = Local> {
    let fails = prop_oneof![3 => Just(false), 1 => Just(true)];
    (1u64..4, fails, prop::collection::vec(0usize..STATES.len(), 4)).prop_map(
        |(completions, fails, mut states)| {
            states.sort_unstable();
            Local { completions, fails, states }
        },
    )
}

fn status(local: &Local, state: usize) -> Value {
    let condition = |kind: &str| json!({"type": kind, "status": "True", "reason": "R", "lastTransitionTime": "2026-01-01T00:00:09Z"});
    let (first, last) =
        if local.fails { ("FailureTarget", "Failed") } else { ("SuccessCriteriaMet", "Complete") };
    let start = "2026-01-01T00:00:01Z";
    match STATES[state] {
        "running" => json!({"active": 1, "ready": 1, "startTime": start}),
        "ending" => json!({"terminating": 1, "startTime": start, "conditions": [condition(first)]}),
        "ended" => {
            let mut status = json!({"startTime": start, "conditions": [condition(first), condition(last)]});
            match local.fails {
                true => status["failed"] = json!(1),
                false => {
                    status["succeeded"] = json!(local.completions);
                    status["completionTime"] = json!("2026-01-01T00:00:09Z");
                }
            }
            status
        }
        _ => Value::Null,
    }
}

fn members(locals: &[Local], step: usize) -> BTreeMap<String, MemberStatus> {
    let member = |local: &Local| MemberStatus {
        assigned: Share { replicas: 1, completions: Some(local.completions), ..Share::default() },
        generation: 1,
        source_generation: 1,
        status: status(local, local.states[step]),
        reachable: true,
        leaving: false,
    };
    locals.iter().enumerate().map(|(at, local)| (format!("c{at}"), member(local))).collect()
}

fn holds(job: &Value, kind: &str) -> bool {
    let conditions = job["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.iter().any(|it| it["type"] == kind && it["status"] == "True")
}

fn job(completions: u64) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "generation": 1},
        "spec": {"parallelism": 2, "completions": completions},
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_job_ends_when_all_its_parts_have(locals in prop::collection::vec(any_local(), 1..4), missing in 0u64..2) {
        let mut job = job(locals.iter().map(|local| local.completions).sum::<u64>() + missing);
        for step in 0..4 {
            let members = members(&locals, step);
            let before = job.clone();
            job["status"] = aggregate(&before, &members);
            let (new, old) = (job.as_object().expect("a job"), before.as_object().expect("a job"));
            let causes = workloads::job_status(new, old);
            prop_assert!(causes.is_empty(), "{causes:?}: {before:#} {job:#}");
            let each = |kind: &str| members.values().all(|it| holds(&json!({"status": it.status}), kind));
            let any = |kind: &str| members.values().any(|it| holds(&json!({"status": it.status}), kind));
            prop_assert_eq!(holds(&job, "Complete"), each("Complete") && missing == 0, "{:#}", &job);
            prop_assert_eq!(judges::wait(&job, "Complete"), judges::argo(&job));
            prop_assert!(judges::kstatus(&job) || !holds(&job, "Complete"));
            prop_assert!(!judges::kstatus(&job) || !holds(&job, "Failed"));
            prop_assert_eq!(holds(&job, "FailureTarget"), any("Failed") || any("FailureTarget"));
            if holds(&job, "Failed") {
                prop_assert!(any("Failed"));
            }
            if any("Failed") && locals.iter().all(|local| matches!(local.states[step], 0 | 3)) {
                prop_assert!(holds(&job, "Failed"), "nothing runs any more: {:#}", &job);
            }
        }
    }
}

#[test]
fn what_was_counted_stays_counted_when_a_cluster_is_lost() {
    let local = |states| Local { completions: 2, fails: false, states };
    let both = [local(vec![3, 3, 3, 3]), local(vec![1, 3, 3, 3])];
    let mut job = job(4);
    job["status"] = aggregate(&job, &members(&both, 0));
    assert_eq!(job["status"]["succeeded"], 2);
    job["status"] = aggregate(&job, &members(&both[1..], 0));
    assert_eq!(job["status"]["succeeded"], 2, "the work is done, whoever did it");
    assert!(!holds(&job, "Complete"));
}

#[test]
fn a_job_that_is_over_says_so_for_ever() {
    let done = [Local { completions: 2, fails: false, states: vec![3; 4] }];
    let mut job = job(2);
    job["status"] = aggregate(&job, &members(&done, 0));
    assert!(holds(&job, "Complete") && job["status"]["completionTime"].is_string());
    assert_eq!(aggregate(&job, &BTreeMap::new()), job["status"], "its copies were removed after a while");
}

#[test]
fn what_is_left_of_a_job_stops_when_a_part_has_failed() {
    let kind = kinds::of("batch", "Job");
    let ended = |kind: &str| json!({"conditions": [{"type": kind, "status": "True"}]});
    let mut whole = job(2);
    let running = json!({"active": 1});
    assert!(!kind.stops(&whole, &running));
    whole["status"] = ended("FailureTarget");
    assert!(kind.stops(&whole, &running));
    for end in ["SuccessCriteriaMet", "FailureTarget", "Complete", "Failed"] {
        assert!(!kind.stops(&whole, &ended(end)), "its own cluster brings it to its end: {end}");
    }
    let mut copy = job(1);
    kind.stop_if_failing(&whole, &running, &mut copy);
    assert_eq!(copy["spec"]["suspend"], true);
    assert!(!kinds::of("batch", "CronJob").stops(&whole, &running));

    // Who stops says that it is suspended, which the whole is not.
    let part = |status: Value| MemberStatus {
        assigned: Share { replicas: 1, completions: Some(1), ..Share::default() },
        source_generation: 1,
        reachable: true,
        status,
        ..MemberStatus::default()
    };
    let failed = json!({
        "startTime": "2026-01-01T00:00:00Z", "failed": 1,
        "conditions": [{"type": "FailureTarget", "status": "True"}, {"type": "Failed", "status": "True"}],
    });
    let mut members = BTreeMap::from([("a".to_owned(), part(failed)), ("b".to_owned(), part(running))]);
    whole["status"] = aggregate(&whole, &members);
    assert!(holds(&whole, "FailureTarget") && !holds(&whole, "Failed"));
    members.insert("b".to_owned(), part(ended("Suspended")));
    whole["status"] = aggregate(&whole, &members);
    assert!(holds(&whole, "Failed") && !whole["status"].to_string().contains("Suspended"), "{whole}");
}

#[test]
fn a_job_is_suspended_once_all_its_parts_are() {
    let suspended = |is: bool| MemberStatus {
        assigned: Share { replicas: 1, completions: Some(1), ..Share::default() },
        source_generation: 1,
        reachable: true,
        status: json!({"conditions": [{"type": "Suspended", "status": if is { "True" } else { "False" }}]}),
        ..MemberStatus::default()
    };
    let mut job = job(2);
    job["spec"]["suspend"] = json!(true);
    for (second, expected) in [(false, false), (true, true)] {
        let members =
            BTreeMap::from([("a".to_owned(), suspended(true)), ("b".to_owned(), suspended(second))]);
        job["status"] = aggregate(&job, &members);
        assert_eq!(holds(&job, "Suspended"), expected);
    }
}
