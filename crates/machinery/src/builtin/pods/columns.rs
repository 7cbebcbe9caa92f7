//! What `kubectl get pods` shows.

use serde_json::{Value, json};

use super::super::at;

/// What the states of a pod's containers come to.
struct Summary<'a> {
    ready: usize,
    all: usize,
    reason: String,
    restarts: i64,
    /// When the last of them ended.
    last_restart: &'a str,
}

fn list<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn number(object: &Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0)
}

fn is_sidecar(container: &Value) -> bool {
    at(container, "/restartPolicy") == "Always"
}

fn has_condition(pod: &Value, kind: &str) -> bool {
    let conditions = list(pod, "/status/conditions").iter();
    conditions.filter(|it| at(it, "/type") == kind).any(|it| at(it, "/status") == "True")
}

/// `OOMKilled`, or the signal, or the code it ended with.
fn end_of(state: &Value) -> String {
    match (at(state, "/reason"), number(state, "/signal")) {
        ("", 0) => format!("ExitCode:{}", number(state, "/exitCode")),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

/// Times in one format compare as texts.
fn later<'a>(one: &'a str, other: &'a str) -> &'a str {
    if other > one { other } else { one }
}

impl<'a> Summary<'a> {
    fn of(pod: &'a Value) -> Self {
        let mut summary = Summary {
            ready: 0,
            all: list(pod, "/spec/containers").len(),
            reason: at(pod, "/status/phase").to_owned(),
            restarts: 0,
            last_restart: "",
        };
        summary.all += list(pod, "/spec/initContainers").iter().filter(|it| is_sidecar(it)).count();
        if !at(pod, "/status/reason").is_empty() {
            summary.reason = at(pod, "/status/reason").to_owned();
        }
        let gated = list(pod, "/status/conditions")
            .iter()
            .any(|it| at(it, "/type") == "PodScheduled" && at(it, "/reason") == "SchedulingGated");
        if gated {
            summary.reason = "SchedulingGated".to_owned();
        }
        let (is_initializing, sidecar_restarts, sidecar_restart) = summary.count_init_containers(pod);
        if !is_initializing || first_condition_is_true(pod, "Initialized") {
            (summary.restarts, summary.last_restart) = (sidecar_restarts, sidecar_restart);
            summary.count_containers(pod);
        }
        if !at(pod, "/metadata/deletionTimestamp").is_empty() {
            if at(pod, "/status/reason") == "NodeLost" {
                summary.reason = "Unknown".to_owned();
            } else if !matches!(at(pod, "/status/phase"), "Failed" | "Succeeded") {
                summary.reason = "Terminating".to_owned();
            }
        }
        summary
    }

    /// Whether they are not through, and how often and when sidecars among them started again.
    fn count_init_containers(&mut self, pod: &'a Value) -> (bool, i64, &'a str) {
        let containers = list(pod, "/spec/initContainers");
        let (mut sidecar_restarts, mut sidecar_restart) = (0, "");
        for (index, status) in list(pod, "/status/initContainerStatuses").iter().enumerate() {
            let finished = at(status, "/lastState/terminated/finishedAt");
            let count = number(status, "/restartCount");
            self.restarts += count;
            self.last_restart = later(self.last_restart, finished);
            let container = containers.iter().rfind(|it| at(it, "/name") == at(status, "/name"));
            let is_sidecar = container.is_some_and(is_sidecar);
            if is_sidecar {
                sidecar_restarts += count;
                sidecar_restart = later(sidecar_restart, finished);
            }
            let terminated = status.pointer("/state/terminated");
            if terminated.is_some_and(|state| number(state, "/exitCode") == 0) {
                continue;
            }
            if is_sidecar && status["started"] == true {
                self.ready += usize::from(status["ready"] == true);
                continue;
            }
            self.reason = match (terminated, at(status, "/state/waiting/reason")) {
                (Some(state), _) => format!("Init:{}", end_of(state)),
                (None, "" | "PodInitializing") => format!("Init:{index}/{}", containers.len()),
                (None, reason) => format!("Init:{reason}"),
            };
            return (true, sidecar_restarts, sidecar_restart);
        }
        (false, sidecar_restarts, sidecar_restart)
    }

    fn count_containers(&mut self, pod: &'a Value) {
        let mut is_running = false;
        let mut error = None;
        for status in list(pod, "/status/containerStatuses").iter().rev() {
            self.restarts += number(status, "/restartCount");
            self.last_restart = later(self.last_restart, at(status, "/lastState/terminated/finishedAt"));
            if !at(status, "/state/waiting/reason").is_empty() {
                self.reason = at(status, "/state/waiting/reason").to_owned();
            } else if let Some(state) = status.pointer("/state/terminated") {
                self.reason = end_of(state);
                if number(state, "/exitCode") != 0 {
                    error = Some(self.reason.clone());
                }
            } else if status["ready"] == true && status.pointer("/state/running").is_some() {
                is_running = true;
                self.ready += 1;
            }
        }
        if self.reason != "Completed" {
            return;
        }
        // One that is through does not speak for those that run.
        if is_running && has_condition(pod, "Ready") {
            self.reason = "Running".to_owned();
        } else if let Some(error) = error {
            self.reason = error;
        } else if is_running {
            self.reason = "NotReady".to_owned();
        }
    }
}

fn first_condition_is_true(pod: &Value, kind: &str) -> bool {
    let condition = list(pod, "/status/conditions").iter().find(|it| at(it, "/type") == kind);
    condition.is_some_and(|it| at(it, "/status") == "True")
}

pub fn ready(pod: &Value, _: i64) -> Value {
    let summary = Summary::of(pod);
    json!(format!("{}/{}", summary.ready, summary.all))
}

pub fn status(pod: &Value, _: i64) -> Value {
    json!(Summary::of(pod).reason)
}

pub fn restarts(pod: &Value, now: i64) -> Value {
    let summary = Summary::of(pod);
    if summary.restarts == 0 || summary.last_restart.is_empty() {
        return json!(summary.restarts.to_string());
    }
    json!(format!("{} ({} ago)", summary.restarts, crate::table::age_of(summary.last_restart, now)))
}

pub fn ip(pod: &Value, _: i64) -> Value {
    or_none(pod, "/status/podIPs/0/ip")
}

pub fn or_none(pod: &Value, pointer: &str) -> Value {
    match at(pod, pointer) {
        "" => json!("<none>"),
        text => json!(text),
    }
}

pub fn readiness_gates(pod: &Value, _: i64) -> Value {
    let gates = list(pod, "/spec/readinessGates");
    if gates.is_empty() {
        return json!("<none>");
    }
    let met = gates.iter().filter(|gate| first_condition_is_true(pod, at(gate, "/conditionType"))).count();
    json!(format!("{met}/{}", gates.len()))
}

/// One field of each container of a template.
pub fn containers(template: &Value, key: &str) -> Value {
    let containers = list(template, "/template/spec/containers").iter();
    let texts: Vec<&str> = containers.map(|it| it[key].as_str().unwrap_or_default()).collect();
    json!(texts.join(","))
}

pub fn pod_labels(template: &Value, _: i64) -> Value {
    let labels = template.pointer("/template/metadata/labels").and_then(Value::as_object);
    let texts: Vec<String> = labels
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    if texts.is_empty() { json!("<none>") } else { json!(texts.join(",")) }
}

#[cfg(test)]
mod tests;
