//! The status of a pod, from those of its containers.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{
    Life,
    containers::{Advanced, Container, Role, not_yet},
    needs,
};
use crate::{World, tree};

/// What a pod's status becomes now.
pub struct Step {
    /// A merge patch; `None`: as it is.
    pub status: Option<Value>,
    pub again: Option<Duration>,
    pub notes: Vec<(bool, &'static str, String)>,
}

struct Progress {
    init: Vec<Value>,
    main: Vec<Value>,
    initialized: bool,
    init_failed: bool,
    /// Its containers were stopped: why, if it was not asked to go.
    stopped: Option<Option<(&'static str, &'static str)>>,
    again: Option<Duration>,
    notes: Vec<(bool, &'static str, String)>,
}

/// The code of a program that was stopped by force.
const KILLED: i32 = 137;
const LATE: &str = "Pod was active on the node longer than the specified deadline";

impl Progress {
    /// Ends what runs if the pod's time is over.
    fn mind_deadline(&mut self, pod: &Value, started: Timestamp, now: Timestamp) {
        let Some(seconds) = tree::number(pod, "/spec/activeDeadlineSeconds") else { return };
        let due = started.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX);
        if now < due {
            let left = Duration::try_from(due.duration_since(now)).unwrap_or_default();
            self.again = Some(self.again.map_or(left, |again| again.min(left)));
            return;
        }
        self.again = None;
        self.notes.push((false, "DeadlineExceeded", LATE.to_owned()));
        self.stop(Some(("DeadlineExceeded", LATE)), now);
    }

    fn stop(&mut self, why: Option<(&'static str, &'static str)>, now: Timestamp) {
        self.stopped = Some(why);
        for status in self.init.iter_mut().chain(&mut self.main) {
            let Some(began) = status.pointer("/state/running/startedAt").cloned() else { continue };
            status["state"] = json!({"terminated": {
                "exitCode": KILLED, "reason": "Error", "startedAt": began, "finishedAt": tree::time_text(now),
                "containerID": status.get("containerID").cloned().unwrap_or_default(),
            }});
            status["ready"] = json!(false);
            status["started"] = json!(false);
        }
    }

    fn take(&mut self, advanced: Advanced) -> Value {
        self.again = self.again.into_iter().chain(advanced.again).min();
        self.notes.extend(advanced.notes);
        advanced.status
    }
}

pub fn next(world: &dyn World, pod: &Value, node: &Value, life: &Life, address: &str) -> Step {
    let now = world.now();
    let started = tree::time(pod, "/status/startTime").unwrap_or(now);
    let mut progress = Progress {
        init: Vec::new(),
        main: Vec::new(),
        initialized: true,
        init_failed: false,
        stopped: None,
        again: None,
        notes: Vec::new(),
    };
    let unmounted = needs::missing_volume(world, pod);
    if let Some(why) = &unmounted {
        progress.again = Some(Duration::from_secs(2));
        if tree::time(pod, "/status/startTime").is_none() {
            progress.notes.push((true, "FailedMount", why.clone()));
        }
    }
    advance_all(world, pod, life, unmounted.is_none().then_some(started), &mut progress);
    progress.mind_deadline(pod, started, now);
    let status = summary(pod, node, address, started, now, &progress);
    let known = pod.get("status").cloned().unwrap_or_default();
    let differs =
        |(key, value): (&String, &Value)| !tree::same(value, known.get(key).unwrap_or(&Value::Null));
    let changes = status.as_object().is_some_and(|it| it.iter().any(differs));
    Step { status: changes.then_some(status), again: progress.again, notes: progress.notes }
}

/// The status of a pod whose containers were stopped because it is to go.
pub fn stopped(pod: &Value, node: &Value, now: Timestamp) -> Value {
    let all = |pointer: &str| tree::items(pod, pointer).cloned().collect();
    let mut progress = Progress {
        init: all("/status/initContainerStatuses"),
        main: all("/status/containerStatuses"),
        initialized: tree::condition(pod, "Initialized")
            .is_some_and(|it| tree::text(it, "/status") == "True"),
        init_failed: false,
        stopped: None,
        again: None,
        notes: Vec::new(),
    };
    progress.stop(None, now);
    let started = tree::time(pod, "/status/startTime").unwrap_or(now);
    summary(pod, node, tree::text(pod, "/status/podIP"), started, now, &progress)
}

fn status_of<'a>(pod: &'a Value, pointer: &str, spec: &Value) -> Option<&'a Value> {
    tree::items(pod, pointer).find(|it| tree::text(it, "/name") == tree::text(spec, "/name"))
}

fn advance_all(
    world: &dyn World,
    pod: &Value,
    life: &Life,
    since: Option<Timestamp>,
    progress: &mut Progress,
) {
    let mut may_start = since;
    for spec in tree::items(pod, "/spec/initContainers") {
        let role = if tree::text(spec, "/restartPolicy") == "Always" { Role::Sidecar } else { Role::Init };
        let status = status_of(pod, "/status/initContainerStatuses", spec);
        let container = Container { world, pod, spec, status, role, may_start };
        let advanced = progress.take(container.advance(life));
        let code = tree::number(&advanced, "/state/terminated/exitCode");
        let is_done = match role {
            Role::Sidecar => advanced.pointer("/state/running").is_some(),
            _ => code == Some(0),
        };
        progress.init_failed |= role == Role::Init && code.is_some_and(|code| code != 0);
        if !is_done {
            progress.initialized = false;
            may_start = None;
        }
        progress.init.push(advanced);
    }
    for spec in tree::items(pod, "/spec/containers") {
        let status = status_of(pod, "/status/containerStatuses", spec);
        let container = Container { world, pod, spec, status, role: Role::Main, may_start };
        let mut advanced = container.advance(life);
        if since.is_none() && status.is_none() {
            advanced.status["state"] = json!({"waiting": {"reason": not_yet(pod)}});
        }
        let advanced = progress.take(advanced);
        progress.main.push(advanced);
    }
}

fn is(status: &Value, member: &str) -> bool {
    status.get("state").is_some_and(|state| state.get(member).is_some())
}

fn phase(pod: &Value, progress: &Progress) -> &'static str {
    let never = tree::text(pod, "/spec/restartPolicy") == "Never";
    if progress.stopped.is_some() || (progress.init_failed && never) {
        return "Failed";
    }
    let ended = |it: &&Value| is(it, "terminated");
    if !progress.initialized
        || progress.main.iter().all(|it| {
            is(it, "waiting")
                && tree::number(it, "/restartCount") == Some(0)
                && it.pointer("/lastState/terminated").is_none()
        })
    {
        return "Pending";
    }
    if progress.main.iter().filter(ended).count() == progress.main.len() {
        let well = |it: &Value| tree::number(it, "/state/terminated/exitCode") == Some(0);
        return if progress.main.iter().all(well) { "Succeeded" } else { "Failed" };
    }
    "Running"
}

fn summary(
    pod: &Value,
    node: &Value,
    address: &str,
    started: Timestamp,
    now: Timestamp,
    progress: &Progress,
) -> Value {
    let phase = phase(pod, progress);
    let finished = matches!(phase, "Succeeded" | "Failed");
    let unready: Vec<&str> = progress
        .main
        .iter()
        .chain(progress.init.iter().filter(|it| is(it, "running")))
        .filter(|it| !tree::flag(it, "/ready"))
        .map(|it| tree::text(it, "/name"))
        .collect();
    let host = tree::items(node, "/status/addresses")
        .find(|it| tree::text(it, "/type") == "InternalIP")
        .map_or("", |it| tree::text(it, "/address"));
    let on_host = tree::flag(pod, "/spec/hostNetwork");
    let address = if on_host { host } else { address };
    let mut status = json!({
        "phase": phase,
        "startTime": tree::time_text(started),
        "hostIP": host,
        "hostIPs": [{"ip": host}],
        "containerStatuses": progress.main,
        "conditions": conditions(pod, now, phase, finished, progress, &unready),
    });
    if let Some((reason, message)) = progress.stopped.flatten() {
        status["reason"] = json!(reason);
        status["message"] = json!(message);
    }
    if let Some(generation) = tree::number(pod, "/metadata/generation") {
        status["observedGeneration"] = json!(generation);
    }
    if !progress.init.is_empty() {
        status["initContainerStatuses"] = json!(progress.init);
    }
    let created = progress
        .init
        .iter()
        .chain(&progress.main)
        .any(|it| !is(it, "waiting") || tree::number(it, "/restartCount") > Some(0));
    if created && !address.is_empty() {
        status["podIP"] = json!(address);
        status["podIPs"] = json!([{"ip": address}]);
    }
    status
}

fn conditions(
    pod: &Value,
    now: Timestamp,
    phase: &str,
    finished: bool,
    progress: &Progress,
    unready: &[&str],
) -> Vec<Value> {
    let created = phase != "Pending" || progress.init.iter().any(|it| !is(it, "waiting"));
    let not_ready = format!("containers with unready status: [{}]", unready.join(" "));
    let containers = match (finished, unready.is_empty() && phase == "Running") {
        (true, _) if phase == "Succeeded" => ("False", "PodCompleted", ""),
        (true, _) => ("False", "PodFailed", ""),
        (false, true) => ("True", "", ""),
        (false, false) => ("False", "ContainersNotReady", not_ready.as_str()),
    };
    let gates_open = tree::items(pod, "/spec/readinessGates").all(|gate| {
        let condition = tree::condition(pod, tree::text(gate, "/conditionType"));
        condition.is_some_and(|it| tree::text(it, "/status") == "True")
    });
    let ready = match containers {
        ("True", ..) if !gates_open => {
            ("False", "ReadinessGatesNotReady", "corresponding condition of pod readiness gate is not true")
        }
        other => other,
    };
    let incomplete: Vec<&str> = progress
        .init
        .iter()
        .filter(|it| tree::number(it, "/state/terminated/exitCode") != Some(0) && !is(it, "running"))
        .map(|it| tree::text(it, "/name"))
        .collect();
    let not_initialized = format!("containers with incomplete status: [{}]", incomplete.join(" "));
    let initialized = match (progress.initialized, phase) {
        (_, "Succeeded") => ("True", "PodCompleted", ""),
        (true, _) => ("True", "", ""),
        (false, _) => ("False", "ContainersNotInitialized", not_initialized.as_str()),
    };
    let sandbox = if created && !finished { "True" } else { "False" };
    let own = [
        ("PodReadyToStartContainers", (sandbox, "", "")),
        ("Initialized", initialized),
        ("Ready", ready),
        ("ContainersReady", containers),
        ("PodScheduled", ("True", "", "")),
    ];
    let is_own = |it: &&Value| own.iter().any(|(kind, _)| *kind == tree::text(it, "/type"));
    let mut conditions: Vec<Value> = Vec::new();
    for (kind, (value, reason, message)) in own {
        let known = tree::condition(pod, kind);
        let since = known
            .filter(|it| tree::text(it, "/status") == value)
            .map(|it| tree::text(it, "/lastTransitionTime"));
        let since = since.filter(|it| !it.is_empty()).map_or_else(|| tree::time_text(now), str::to_owned);
        let mut condition =
            json!({"type": kind, "status": value, "lastProbeTime": null, "lastTransitionTime": since});
        if let Some(generation) = tree::number(pod, "/metadata/generation") {
            condition["observedGeneration"] = json!(generation);
        }
        for (key, text) in [("reason", reason), ("message", message)] {
            if !text.is_empty() {
                condition[key] = json!(text);
            }
        }
        conditions.push(condition);
    }
    // Those of others stay: readiness gates, disruption.
    conditions.extend(tree::items(pod, "/status/conditions").filter(|it| !is_own(it)).cloned());
    conditions
}
