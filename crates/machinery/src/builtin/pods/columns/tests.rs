//! What the real server shows for the same pods.

use super::*;

/// An hour after the ends below.
const NOW: i64 = 1_577_840_400;

fn state(name: &str, ready: bool, restarts: i64, state: Value) -> Value {
    json!({"name": name, "ready": ready, "restartCount": restarts, "state": state})
}

fn after_end(mut status: Value) -> Value {
    status["lastState"] = json!({"terminated": {"exitCode": 1, "finishedAt": "2020-01-01T00:00:00Z"}});
    status
}

fn one() -> Value {
    json!({"containers": [{"name": "app"}]})
}

fn several() -> Value {
    json!({
        "containers": [{"name": "app"}, {"name": "b"}],
        "initContainers": [{"name": "i"}, {"name": "side", "restartPolicy": "Always"}],
        "readinessGates": [{"conditionType": "a.b/c"}, {"conditionType": "d"}],
    })
}

#[test]
fn the_status_is_what_the_containers_say_together() {
    let running = || json!({"running": {}});
    let waiting = |reason: &str| json!({"waiting": {"reason": reason}});
    let ended = |code: i64, signal: i64, reason: &str| json!({"terminated": {"exitCode": code, "signal": signal, "reason": reason}});
    let of = |states: Vec<Value>| json!({"phase": "Running", "containerStatuses": states});
    let init = |states: Vec<Value>| json!({"phase": "Pending", "initContainerStatuses": states});
    let completed = || state("app", false, 0, ended(0, 0, "Completed"));
    let mut ready_half = of(vec![completed(), state("b", true, 0, running())]);
    ready_half["conditions"] = json!([{"type": "Ready", "status": "True"}]);
    let mut sidecar = of(vec![state("app", true, 0, running()), state("b", false, 1, running())]);
    sidecar["initContainerStatuses"] = json!([
        after_end(state("i", false, 7, ended(0, 0, ""))),
        after_end(state("side", true, 2, running())),
    ]);
    sidecar["initContainerStatuses"][1]["started"] = json!(true);
    let mut initialized = init(vec![state("i", false, 0, waiting("X"))]);
    initialized["containerStatuses"] = json!([state("app", true, 0, running())]);
    initialized["conditions"] = json!([{"type": "Initialized", "status": "True"}]);
    let gated = json!({"conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}]});
    let rows = [
        (one(), json!({"phase": "Pending"}), "0/1 Pending 0"),
        (one(), json!({"phase": "Failed", "reason": "Evicted"}), "0/1 Evicted 0"),
        (one(), of(vec![state("app", true, 0, running())]), "1/1 Running 0"),
        (one(), of(vec![after_end(state("app", true, 3, running()))]), "1/1 Running 3 (60m ago)"),
        (
            one(),
            of(vec![after_end(state("app", false, 5, waiting("CrashLoopBackOff")))]),
            "0/1 CrashLoopBackOff 5 (60m ago)",
        ),
        (one(), of(vec![state("app", false, 0, ended(137, 0, "OOMKilled"))]), "0/1 OOMKilled 0"),
        (one(), of(vec![state("app", false, 0, ended(137, 9, ""))]), "0/1 Signal:9 0"),
        (one(), of(vec![state("app", false, 0, ended(2, 0, ""))]), "0/1 ExitCode:2 0"),
        (one(), of(vec![completed()]), "0/1 Completed 0"),
        (one(), gated, "0/1 SchedulingGated 0"),
        (several(), ready_half, "1/3 Running 0"),
        (several(), of(vec![completed(), state("b", true, 0, running())]), "1/3 NotReady 0"),
        (several(), of(vec![completed(), state("b", false, 0, ended(1, 0, "Error"))]), "0/3 Error 0"),
        (several(), init(vec![state("i", false, 0, running())]), "0/3 Init:0/2 0"),
        (
            several(),
            init(vec![
                state("i", false, 0, ended(0, 0, "")),
                after_end(state("side", false, 2, waiting("PodInitializing"))),
            ]),
            "0/3 Init:1/2 2 (60m ago)",
        ),
        (several(), init(vec![state("i", false, 0, ended(3, 0, ""))]), "0/3 Init:ExitCode:3 0"),
        (several(), init(vec![state("i", false, 0, ended(3, 11, ""))]), "0/3 Init:Signal:11 0"),
        (several(), init(vec![state("i", false, 0, ended(3, 0, "Error"))]), "0/3 Init:Error 0"),
        (
            several(),
            init(vec![state("i", false, 0, waiting("ImagePullBackOff"))]),
            "0/3 Init:ImagePullBackOff 0",
        ),
        (several(), sidecar, "2/3 Running 3 (60m ago)"),
        (several(), initialized, "1/3 Init:X 0"),
    ];
    for (spec, own_status, wanted) in rows {
        let pod = json!({"spec": spec, "status": own_status});
        let cells = [ready(&pod, NOW), status(&pod, NOW), restarts(&pod, NOW)];
        let cells: Vec<&str> = cells.iter().filter_map(Value::as_str).collect();
        assert_eq!(cells.join(" "), wanted, "{own_status}");
    }
}

#[test]
fn a_pod_on_its_way_out_is_terminating() {
    for (phase, reason, wanted) in
        [("Running", "", "Terminating"), ("Succeeded", "", "Succeeded"), ("Running", "NodeLost", "Unknown")]
    {
        let pod = json!({
            "metadata": {"deletionTimestamp": "2020-01-01T00:00:00Z"},
            "status": {"phase": phase, "reason": reason},
        });
        assert_eq!(status(&pod, NOW), wanted);
    }
}

#[test]
fn wide_cells_say_when_there_is_nothing() {
    let pod = json!({"spec": several(), "status": {
        "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}],
        "conditions": [{"type": "a.b/c", "status": "True"}, {"type": "d", "status": "False"}],
    }});
    assert_eq!(ip(&pod, NOW), "10.0.0.1");
    assert_eq!(or_none(&pod, "/spec/nodeName"), "<none>");
    assert_eq!(readiness_gates(&pod, NOW), "1/2");
    assert_eq!(readiness_gates(&json!({}), NOW), "<none>");
}

#[test]
fn templates_show_their_containers_and_labels() {
    let template = json!({"template": {
        "metadata": {"labels": {"b": "c", "a": "b"}},
        "spec": {"containers": [{"name": "app", "image": "x:1"}, {"name": "b", "image": "y"}]},
    }});
    assert_eq!(containers(&template, "name"), "app,b");
    assert_eq!(containers(&template, "image"), "x:1,y");
    assert_eq!(pod_labels(&template, NOW), "a=b,b=c");
    assert_eq!(pod_labels(&json!({}), NOW), "<none>");
}
