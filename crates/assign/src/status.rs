//! The status of an object, of what the clusters report that have copies of it.

use std::collections::BTreeMap;

use api::assignment::{Assignment, Part, State, reason};
use kinds::{
    Kind, MemberStatus, Share,
    running::{unpinned, within_share},
};
use machinery::{
    Object,
    schema::{Type, Types},
};
use serde_json::{Value, json};

use crate::record::{reported, share};

/// The type of the condition that says whether an object is in members as it should be. It is there only while that is
/// not so.
pub const SYNCED: &str = "Synced";
/// What pods say instead, while they have no place.
const SCHEDULED: &str = "PodScheduled";

/// The status that `object` should have; `None`: nobody but its user has anything to say there. `failing`: what cannot be
/// done about it, reason and message.
pub fn of(
    kind: &Kind,
    object: &Value,
    assignment: &Assignment,
    failing: Option<(String, String)>,
    is_ready: impl Fn(&str) -> bool,
    now: &str,
) -> Option<Value> {
    let targets = assignment.spec.clusters.iter();
    let mut members: BTreeMap<String, MemberStatus> = targets
        .filter(|target| !assignment.report(&target.uid).is_some_and(|it| it.is_gone()))
        .map(|target| {
            let report = reported(assignment, target);
            let share = share(target);
            let status = report.map(|it| within_share(&unpinned(&it.status, it.replicas, &share), &share));
            let known = MemberStatus {
                assigned: share,
                generation: report.map_or(0, |it| it.copy_generation),
                source_generation: report.map_or(0, |it| it.generation),
                status: status.unwrap_or_default(),
                reachable: is_ready(&target.name),
                leaving: target.state == State::Draining,
            };
            (target.name.clone(), known)
        })
        .collect();
    let done = assignment.spec.finished.iter().filter(|part| part.completions > 0);
    members.extend(done.map(|part| finished(part, object)));
    let old = object.get("status").cloned().unwrap_or_default();
    let mut status = match members.values().all(|member| member.status.is_null()) {
        // Nothing is known of it yet, and nothing is made up.
        true => old.clone(),
        false => kind.aggregate(object, &members),
    };
    let trouble = failing.or_else(|| trouble(assignment));
    if has_conditions(object) && (status.is_object() || trouble.is_some()) {
        if !status.is_object() {
            status = json!({});
        }
        tell(&mut status, &old, trouble, kind.kind == "Pod", now);
    }
    kinds::stamp(&mut status, now);
    status.is_object().then_some(status)
}

/// What a copy did that is not there any more counts like a part that is done, and is not waited for.
fn finished(part: &Part, object: &Value) -> (String, MemberStatus) {
    let done = |kind: &str| json!({"type": kind, "status": "True", "reason": "CompletionsReached"});
    let member = MemberStatus {
        assigned: Share { completions: Some(part.completions), ..Share::default() },
        source_generation: object["metadata"]["generation"].as_i64().unwrap_or(0),
        status: json!({
            "succeeded": part.completions, "conditions": [done("SuccessCriteriaMet"), done("Complete")],
        }),
        reachable: true,
        ..MemberStatus::default()
    };
    // It may have another copy now.
    (format!("{}, before", part.cluster), member)
}

/// Whether the object says that it is not in members as it should be.
pub fn is_told(object: &Object) -> bool {
    let text = SYNCED.as_bytes();
    let mentions = object.body_slice().windows(text.len()).any(|window| window == text);
    let conditions = || {
        let tree = object.tree().ok()?;
        Some(tree.get("status")?["conditions"].as_array()?.iter().any(|it| it["type"] == SYNCED))
    };
    mentions && conditions().unwrap_or(false)
}

/// What keeps the object from being in members as it should be: reason and message.
fn trouble(assignment: &Assignment) -> Option<(String, String)> {
    let decision = &assignment.spec.decision;
    let mut first: Option<String> = None;
    let mut messages: Vec<String> = Vec::new();
    if !decision.message.is_empty() {
        first = Some(if assignment.spec.clusters.is_empty() { "Unplaced" } else { "Pending" }.to_owned());
        messages.push(decision.message.clone());
        // Also of those that could have it, had they more room.
        let lacking = decision.verdicts.iter().filter(|it| !it.message.is_empty());
        messages.extend(lacking.map(|it| format!("{}: {}", it.cluster, it.message)));
    }
    for target in assignment.spec.clusters.iter().filter(|it| it.state != State::Draining) {
        let Some(report) = assignment.report(&target.uid) else { continue };
        if report.applied || report.reason.is_empty() || report.reason == reason::GONE {
            continue;
        }
        first.get_or_insert_with(|| report.reason.clone());
        messages.push(format!("{}: {}", report.name, report.message));
    }
    let mut message = messages.join("; ");
    message.truncate(message.floor_char_boundary(4096));
    first.map(|reason| (reason, message))
}

/// Whether objects of this kind have conditions in their status.
fn has_conditions(object: &Value) -> bool {
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    let (group, version) = text("apiVersion").rsplit_once('/').unwrap_or(("", text("apiVersion")));
    let types = Types::builtin();
    let Some(message) = types.get_kind(group, version, text("kind")) else {
        return object["status"]["conditions"].is_array();
    };
    match types.field(message, "status").map(|field| &field.ty) {
        Some(Type::Message(id)) => types.field(types.message(*id), "conditions").is_some(),
        _ => false,
    }
}

/// Puts the condition among the others, or takes it away.
fn tell(status: &mut Value, old: &Value, trouble: Option<(String, String)>, is_pod: bool, now: &str) {
    let is_told = |condition: &Value| {
        condition["type"] == SYNCED
            || (is_pod && condition["type"] == SCHEDULED && condition["reason"] == "Unschedulable")
    };
    let before = old["conditions"].as_array().into_iter().flatten().find(|it| is_told(it)).cloned();
    // Indexing would leave a null where there is nothing.
    if let Some(conditions) = status.get_mut("conditions").and_then(Value::as_array_mut) {
        conditions.retain(|it| it["type"] != SYNCED);
    }
    let Some((reason, message)) = trouble else { return };
    let unplaced = is_pod && matches!(reason.as_str(), "Unplaced" | "Pending");
    let (kind, reason) = if unplaced { (SCHEDULED, "Unschedulable".to_owned()) } else { (SYNCED, reason) };
    let since = before.filter(|it| it["type"] == kind).map(|it| it["lastTransitionTime"].clone());
    let condition = json!({
        "type": kind, "status": "False", "reason": reason, "message": message,
        "lastTransitionTime": since.unwrap_or_else(|| json!(now)),
    });
    match status.get_mut("conditions").and_then(Value::as_array_mut) {
        Some(conditions) => {
            conditions.retain(|it| it["type"] != kind);
            conditions.push(condition);
        }
        None => status["conditions"] = json!([condition]),
    }
}

#[cfg(test)]
mod tests {
    use api::assignment::{Report, Spec, Status, Target};

    use super::*;

    fn deployment() -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "namespace": "shop", "generation": 2}, "spec": {"replicas": 5},
        })
    }

    fn target(name: &str, replicas: u64) -> Target {
        Target { name: name.into(), uid: name.into(), replicas: Some(replicas), ..Target::default() }
    }

    fn report(name: &str, ready: u64) -> Report {
        Report {
            name: name.into(),
            uid: name.into(),
            generation: 2,
            copy_generation: 1,
            applied: true,
            status: json!({
                "observedGeneration": 1, "replicas": ready, "updatedReplicas": ready, "readyReplicas": ready,
                "availableReplicas": ready,
            }),
            ..Report::default()
        }
    }

    fn status(assignment: &Assignment, object: &Value) -> Value {
        let kind = kinds::of("apps", "Deployment");
        of(&kind, object, assignment, None, |_| true, "2026-01-01T00:00:00Z").unwrap()
    }

    #[test]
    fn counts_are_sums_and_the_generation_is_the_hubs() {
        let assignment = Assignment {
            spec: Spec { clusters: vec![target("eu", 3), target("us", 2)], ..Spec::default() },
            status: Status { clusters: vec![report("eu", 3), report("us", 2)] },
        };
        let status = status(&assignment, &deployment());
        assert_eq!((&status["readyReplicas"], &status["observedGeneration"]), (&json!(5), &json!(2)));
        assert!(!status.to_string().contains(SYNCED));
        assert!(status.get("conditions").is_none_or(Value::is_array), "clients take null for an error");
    }

    #[test]
    fn a_refusal_is_on_the_object_and_goes_when_it_is_over() {
        let mut refused = report("us", 0);
        (refused.applied, refused.reason, refused.message) =
            (false, reason::REFUSED.into(), "quota exceeded".into());
        let mut assignment = Assignment {
            spec: Spec { clusters: vec![target("eu", 3), target("us", 2)], ..Spec::default() },
            status: Status { clusters: vec![report("eu", 3), refused] },
        };
        let mut object = deployment();
        let told = |status: &Value| {
            let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
            conditions.into_iter().find(|it| it["type"] == SYNCED)
        };
        let first = status(&assignment, &object);
        let condition = told(&first).unwrap();
        assert_eq!((&condition["status"], &condition["reason"]), (&json!("False"), &json!("Refused")));
        assert!(condition["message"].as_str().unwrap().contains("us: quota exceeded"));
        object["status"] = first;
        assignment.status.clusters[1] = report("us", 2);
        assert!(told(&status(&assignment, &object)).is_none());
    }

    #[test]
    fn an_object_that_is_nowhere_says_why() {
        let mut assignment = Assignment::default();
        assignment.spec.decision.message = "pending: no cluster can have it".into();
        let status = status(&assignment, &deployment());
        assert_eq!(status["conditions"][0]["reason"], "Unplaced");
        let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
        assert!(of(&kinds::of("", "ConfigMap"), &config, &assignment, None, |_| true, "").is_none());
    }
}
