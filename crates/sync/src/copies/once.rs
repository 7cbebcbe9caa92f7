//! What runs once: a pod, and a Job that is over. Where a copy of it was and is no more, none is made again.

use api::assignment::Report;
use kinds::Kind;
use serde_json::{Value, json};

/// What is said of an object of which there was a copy that is gone, if none is to be made again. `known`: what was said
/// of it before.
pub fn over(kind: &Kind, known: Option<&Report>) -> Option<Report> {
    // Without a generation there never was a copy.
    let known = known.filter(|known| known.generation > 0 && !known.is_gone())?;
    let mut report = Report { applied: true, reason: String::new(), message: String::new(), ..known.clone() };
    if is_pod(kind) {
        if !is_over(&known.status) {
            report.status = lost(&known.status, &known.name);
        }
        return Some(report);
    }
    (is_job(kind) && is_done(&known.status)).then_some(report)
}

/// Whether a copy with this status, as JSON, is of what runs once, and has run.
pub fn has_ended(kind: &Kind, status: &[u8]) -> bool {
    if !is_pod(kind) && !is_job(kind) {
        return false;
    }
    let status: Value = serde_json::from_slice(status).unwrap_or_default();
    if is_pod(kind) { is_over(&status) } else { is_done(&status) }
}

fn is_pod(kind: &Kind) -> bool {
    kind.group.is_empty() && kind.kind == "Pod"
}

fn is_job(kind: &Kind) -> bool {
    kind.group == "batch" && kind.kind == "Job"
}

/// A pod.
fn is_over(status: &Value) -> bool {
    matches!(status["phase"].as_str(), Some("Succeeded" | "Failed"))
}

/// A Job.
fn is_done(status: &Value) -> bool {
    let is_true =
        |it: &Value| it["status"] == "True" && matches!(it["type"].as_str(), Some("Complete" | "Failed"));
    status["conditions"].as_array().is_some_and(|all| all.iter().any(is_true))
}

/// The status of a pod that was deleted where it ran, as of one whose node has lost its containers.
fn lost(before: &Value, cluster: &str) -> Value {
    let mut status = if before.is_object() { before.clone() } else { json!({}) };
    status["phase"] = json!("Failed");
    status["reason"] = json!("Lost");
    status["message"] = json!(format!("it was deleted in cluster {cluster}, and a pod runs only once"));
    for condition in entries(&mut status, "conditions") {
        if matches!(condition["type"].as_str(), Some("Ready" | "ContainersReady")) {
            condition["status"] = json!("False");
            condition["reason"] = json!("PodFailed");
        }
    }
    for list in ["initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"] {
        entries(&mut status, list).for_each(end);
    }
    status
}

fn entries<'a>(status: &'a mut Value, list: &str) -> impl Iterator<Item = &'a mut Value> {
    status.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten()
}

/// What became of it nobody knows; the code is that of a process which was killed.
fn end(container: &mut Value) {
    let Some(fields) = container.as_object_mut() else { return };
    if fields.get("state").is_some_and(|state| state["terminated"].is_object()) {
        return;
    }
    let terminated = json!({"exitCode": 137, "reason": "ContainerStatusUnknown",
        "message": "The container could not be located when the pod was deleted"});
    fields.insert("state".into(), json!({"terminated": terminated}));
    fields.insert("ready".into(), json!(false));
    fields.insert("started".into(), json!(false));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(generation: i64, status: Value) -> Report {
        Report {
            name: "eu-1".into(),
            uid: "u".into(),
            generation,
            applied: true,
            status,
            ..Report::default()
        }
    }

    #[test]
    fn what_ran_once_does_not_run_again() {
        let (pod, job, set) =
            (kinds::of("", "Pod"), kinds::of("batch", "Job"), kinds::of("apps", "Deployment"));
        let done = json!({"conditions": [{"type": "Complete", "status": "True"}]});
        let busy = json!({"conditions": [{"type": "Complete", "status": "False"}], "active": 1});
        let rows = [
            (&pod, report(0, Value::Null), false, "there never was a copy"),
            (&pod, report(1, Value::Null), true, "it was made, and nothing seen of it"),
            (&pod, report(1, json!({"phase": "Succeeded"})), true, "it has ended"),
            (&job, report(1, busy), false, "a Job that goes on is to be finished"),
            (&job, report(1, done), true, "a Job that is over is collected some time"),
            (&set, report(3, json!({"replicas": 1})), false, "a Deployment is to be there"),
            (&pod, Report { reason: "Gone".into(), ..report(1, Value::Null) }, false, "it was to go"),
        ];
        for (kind, known, is_over, why) in rows {
            assert_eq!(over(kind, Some(&known)).is_some(), is_over, "{why}");
        }
        assert!(over(&pod, None).is_none());
    }

    #[test]
    fn only_what_runs_once_has_ended() {
        let (pod, job, set) =
            (kinds::of("", "Pod"), kinds::of("batch", "Job"), kinds::of("apps", "Deployment"));
        let failed = json!({"conditions": [{"type": "Failed", "status": "True"}]});
        let begun = json!({"conditions": [{"type": "Suspended", "status": "True"}], "active": 1});
        let rows = [
            (&pod, json!({"phase": "Succeeded"}), true),
            (&pod, json!({"phase": "Failed"}), true),
            (&pod, json!({"phase": "Running"}), false),
            (&job, failed.clone(), true),
            (&job, begun, false),
            (&job, Value::Null, false),
            (&set, failed, false),
        ];
        for (kind, status, ended) in rows {
            assert_eq!(has_ended(kind, status.to_string().as_bytes()), ended, "{} {status}", kind.kind);
        }
        assert!(!has_ended(&job, b""), "nothing is seen of it");
    }

    #[test]
    fn a_pod_that_was_deleted_under_way_has_failed() {
        let pod = kinds::of("", "Pod");
        let running = json!({
            "phase": "Running", "podIP": "10.0.0.1",
            "conditions": [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "True"}],
            "containerStatuses": [
                {"name": "a", "ready": true, "state": {"running": {}}},
                {"name": "b", "ready": false, "state": {"terminated": {"exitCode": 0}}},
            ],
        });
        let first = over(&pod, Some(&report(1, running))).unwrap();
        let status = &first.status;
        assert_eq!((&status["phase"], &status["reason"]), (&json!("Failed"), &json!("Lost")));
        assert_eq!(status["podIP"], "10.0.0.1");
        assert_eq!(status["conditions"][0]["status"], "True");
        assert_eq!(status["conditions"][1]["status"], "False");
        assert_eq!(status["containerStatuses"][0]["state"]["terminated"]["exitCode"], 137);
        assert_eq!(status["containerStatuses"][1]["state"]["terminated"]["exitCode"], 0);
        assert!(status.get("initContainerStatuses").is_none());
        assert_eq!(over(&pod, Some(&first)).as_ref(), Some(&first), "it stays so");
        let ended = report(1, json!({"phase": "Succeeded", "podIP": "10.0.0.2"}));
        assert_eq!(over(&pod, Some(&ended)), Some(ended), "what it came to stays");
    }
}
