//! How the columns of workloads are computed.

use serde_json::{Value, json};

use super::at;
use crate::{
    selector::LabelSelector,
    table::{age_of, human_duration},
};

pub fn count(object: &Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0)
}

pub fn length(object: &Value, pointer: &str) -> usize {
    object.pointer(pointer).and_then(Value::as_array).map_or(0, Vec::len)
}

pub fn containers(object: &Value, list: &str, member: &str) -> Value {
    let containers = object.pointer(list).and_then(Value::as_array).into_iter().flatten();
    json!(containers.map(|container| at(container, member)).collect::<Vec<_>>().join(","))
}

/// A map of labels: `a=b,c=d`.
pub fn labels(object: &Value, pointer: &str) -> Value {
    let labels = object.pointer(pointer).and_then(Value::as_object).filter(|labels| !labels.is_empty());
    let Some(labels) = labels else { return json!("<none>") };
    let pairs = labels.iter().map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()));
    json!(pairs.collect::<Vec<_>>().join(","))
}

/// A selector in the notation of queries; `<none>` for one that selects everything or nothing.
pub fn formatted_selector(object: &Value, pointer: &str) -> Value {
    let text = selector_text(object.pointer(pointer)).unwrap_or_else(|| "<error>".to_owned());
    json!(if text.is_empty() { "<none>" } else { &text })
}

/// Deployments show an odd selector in other words.
pub fn deployment_selector(object: &Value, _: i64) -> Value {
    json!(selector_text(object.pointer("/spec/selector")).unwrap_or_else(|| "<invalid>".to_owned()))
}

fn selector_text(object: Option<&Value>) -> Option<String> {
    LabelSelector::from_object(object.unwrap_or(&Value::Null)).ok().map(|selector| selector.to_string())
}

pub fn ready_of_desired(object: &Value, _: i64) -> Value {
    json!(format!("{}/{}", count(object, "/status/readyReplicas"), count(object, "/spec/replicas")))
}

/// `daemonset.apps/name` of the owner that controls it.
pub fn controller(object: &Value, _: i64) -> Value {
    let owners = object.pointer("/metadata/ownerReferences").and_then(Value::as_array).into_iter().flatten();
    let Some(owner) = owners.into_iter().find(|owner| owner["controller"] == true) else {
        return json!("<none>");
    };
    let kind = at(owner, "/kind").to_lowercase();
    let group = at(owner, "/apiVersion").split_once('/').map_or("", |(group, _)| group).to_lowercase();
    let dot = if group.is_empty() { "" } else { "." };
    json!(format!("{kind}{dot}{group}/{}", at(owner, "/name")))
}

pub fn scale_target(object: &Value, _: i64) -> Value {
    json!(format!("{}/{}", at(object, "/spec/scaleTargetRef/kind"), at(object, "/spec/scaleTargetRef/name")))
}

pub fn min_pods(object: &Value, _: i64) -> Value {
    match object.pointer("/spec/minReplicas").and_then(Value::as_i64) {
        Some(number) => json!(number.to_string()),
        None => json!("<unset>"),
    }
}

pub fn time_zone(object: &Value, _: i64) -> Value {
    json!(object.pointer("/spec/timeZone").and_then(Value::as_str).unwrap_or("<none>"))
}

pub fn suspend(object: &Value, _: i64) -> Value {
    json!(match object.pointer("/spec/suspend").and_then(Value::as_bool) {
        Some(true) => "True",
        Some(false) => "False",
        None => "<unset>",
    })
}

pub fn last_schedule(object: &Value, now: i64) -> Value {
    match at(object, "/status/lastScheduleTime") {
        "" => json!("<none>"),
        time => json!(age_of(time, now)),
    }
}

pub fn completions(object: &Value, _: i64) -> Value {
    let succeeded = count(object, "/status/succeeded");
    let wanted = object.pointer("/spec/completions").and_then(Value::as_i64);
    json!(match (wanted, count(object, "/spec/parallelism")) {
        (Some(wanted), _) => format!("{succeeded}/{wanted}"),
        (None, parallelism @ 2..) => format!("{succeeded}/1 of {parallelism}"),
        (None, _) => format!("{succeeded}/1"),
    })
}

pub fn job_duration(object: &Value, now: i64) -> Value {
    let second = |pointer| at(object, pointer).parse::<jiff::Timestamp>().ok().map(|time| time.as_second());
    let Some(start) = second("/status/startTime") else { return json!("") };
    json!(human_duration(second("/status/completionTime").unwrap_or(now) - start))
}

pub fn job_status(object: &Value, _: i64) -> Value {
    let conditions =
        object.pointer("/status/conditions").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let holds = |kind: &str| {
        let condition = conditions.iter().find(|condition| condition["type"] == kind);
        condition.is_some_and(|condition| condition["status"] == "True")
    };
    let deleting = !at(object, "/metadata/deletionTimestamp").is_empty();
    json!(match () {
        _ if holds("Complete") => "Complete",
        _ if holds("Failed") => "Failed",
        _ if deleting => "Terminating",
        _ if holds("Suspended") => "Suspended",
        _ if holds("FailureTarget") => "FailureTarget",
        _ if holds("SuccessCriteriaMet") => "SuccessCriteriaMet",
        _ => "Running",
    })
}

/// A number or a percentage.
pub fn bound(object: &Value, pointer: &str) -> Value {
    match object.pointer(pointer) {
        Some(Value::String(text)) => json!(text),
        Some(Value::Number(number)) => json!(number.to_string()),
        _ => json!("N/A"),
    }
}
