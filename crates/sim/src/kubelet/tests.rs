use serde_json::{Value, json};

use super::*;
use crate::{kind::CONFIG_MAPS, testing::Written};

/// A pod on a node, and the node's kubelet at work.
struct Bench {
    world: Written,
    kubelet: Kubelet,
    notes: Vec<String>,
}

impl Bench {
    fn new(pod: Value) -> Bench {
        let mut pod = pod;
        pod["metadata"]["namespace"] = json!("default");
        pod["metadata"]["name"] = json!("p");
        pod["metadata"]["uid"] = json!("u");
        pod["spec"]["nodeName"] = json!("n");
        if pod["spec"]["containers"].is_null() {
            pod["spec"]["containers"] = json!([{"name": "c", "image": "web:1", "readinessProbe": {}}]);
        }
        let node = json!({"metadata": {"name": "n"}, "status": {"addresses": [
            {"type": "InternalIP", "address": "10.0.0.1"},
        ]}});
        let pace = Pace {
            start_after: Duration::from_secs(2),
            ready_after: Duration::from_secs(3),
            job_takes: Duration::from_secs(4),
            stop_after: Duration::from_secs(1),
        };
        Bench {
            world: Written::new().with(NODES, node).with(PODS, pod),
            kubelet: Kubelet { pace, addresses: Arc::new(Addresses::new(0)) },
            notes: Vec::new(),
        }
    }

    fn pod(&self) -> Value {
        self.world.get(PODS, "default", "p").unwrap_or_default()
    }

    /// Lets the kubelet work until it has nothing to do; says whether it deleted the pod.
    fn settle(&mut self) -> bool {
        for _ in 0..20 {
            let plan = self.kubelet.reconcile(&self.world, &self.pod());
            let mut changed = false;
            for action in plan.actions {
                match action {
                    Action::PatchStatus { patch, .. } => {
                        changed = true;
                        self.world.patch_status(PODS, "default", "p", &patch);
                    }
                    Action::Event { reason, .. } => self.notes.push(reason.to_owned()),
                    Action::Delete { grace: Some(0), .. } => return true,
                    other => panic!("a kubelet does not do that: {other:?}"),
                }
            }
            if !changed {
                return false;
            }
        }
        panic!("it does not come to rest");
    }

    fn after(&mut self, seconds: i64) -> String {
        self.world.pass(seconds);
        self.settle();
        let pod = self.pod();
        let status = tree::items(&pod, "/status/containerStatuses").next().cloned().unwrap_or_default();
        let state = tree::members(&status, "/state").next().map(|(name, state)| (name, state.clone()));
        let (name, state) = state.unwrap_or_default();
        let reason = tree::text(&state, "/reason");
        let ready = tree::condition(&pod, "Ready").map_or("", |it| tree::text(it, "/status"));
        format!(
            "{} {name}{}{reason} ready={ready}",
            tree::text(&pod, "/status/phase"),
            if reason.is_empty() { "" } else { ":" }
        )
    }
}

#[test]
fn a_pod_starts_and_becomes_ready_in_its_time() {
    let mut bench = Bench::new(json!({}));
    assert_eq!(bench.after(0), "Pending waiting:ContainerCreating ready=False");
    assert_eq!(bench.after(1), "Pending waiting:ContainerCreating ready=False");
    assert_eq!(bench.after(1), "Running running ready=False");
    assert_eq!(bench.after(3), "Running running ready=True");
    let pod = bench.pod();
    assert_eq!(tree::text(&pod, "/status/hostIP"), "10.0.0.1");
    assert!(tree::text(&pod, "/status/podIP").starts_with("127."));
    assert_eq!(bench.notes, ["Pulled", "Created", "Started"]);
    assert_eq!(bench.after(1000), "Running running ready=True");
}

#[test]
fn annotations_say_how_it_goes_instead() {
    let annotated = |annotations: Value| Bench::new(json!({"metadata": {"annotations": annotations}}));
    let mut quick = annotated(json!({START_AFTER: "0s", READY_AFTER: "0s"}));
    assert_eq!(quick.after(0), "Running running ready=True");
    let mut stuck = annotated(json!({STUCK: "ImagePullBackOff"}));
    assert_eq!(stuck.after(60), "Pending waiting:ImagePullBackOff ready=False");
    let mut crashing = annotated(json!({START_AFTER: "0s", EXIT_AFTER: "5s", EXIT_CODE: "3"}));
    assert_eq!(crashing.after(0), "Running running ready=False");
    assert_eq!(crashing.after(5), "Running waiting:CrashLoopBackOff ready=False");
    assert_eq!(crashing.after(10), "Running running ready=False");
    assert_eq!(crashing.after(5), "Running waiting:CrashLoopBackOff ready=False");
    assert_eq!(crashing.after(19), "Running waiting:CrashLoopBackOff ready=False", "longer each time");
    assert_eq!(crashing.after(1), "Running running ready=False");
    let pod = crashing.pod();
    assert_eq!(tree::number(&pod, "/status/containerStatuses/0/restartCount"), Some(2));
    assert_eq!(tree::number(&pod, "/status/containerStatuses/0/lastState/terminated/exitCode"), Some(3));
}

#[test]
fn an_image_that_cannot_be_had_is_tried_again_and_again() {
    let mut bench =
        Bench::new(json!({"spec": {"containers": [{"name": "c", "image": "registry.invalid/web:1"}]}}));
    assert_eq!(bench.after(0), "Pending waiting:ContainerCreating ready=False");
    assert_eq!(bench.after(2), "Pending waiting:ErrImagePull ready=False");
    assert_eq!(bench.notes, ["Pulling", "Failed", "Failed"]);
    assert_eq!(bench.after(2), "Pending waiting:ImagePullBackOff ready=False");
    assert_eq!(bench.after(7), "Pending waiting:ImagePullBackOff ready=False");
    assert_eq!(bench.notes.len(), 5, "that it waits is told once");
    assert_eq!(bench.after(1), "Pending waiting:ErrImagePull ready=False");
    let never = json!({"name": "c", "image": "registry.invalid/web:1", "imagePullPolicy": "Never"});
    let mut never = Bench::new(json!({"spec": {"containers": [never]}}));
    never.after(0);
    assert_eq!(never.after(1000), "Pending waiting:ErrImageNeverPull ready=False");
}

#[test]
fn what_a_command_does_decides_the_end() {
    let with = |policy: &str, script: &str| {
        Bench::new(json!({
            "metadata": {"annotations": {START_AFTER: "0s"}},
            "spec": {"restartPolicy": policy, "containers": [
                {"name": "c", "image": "busybox", "command": ["sh", "-c", script]},
            ]},
        }))
    };
    let mut good = with("Never", "echo hi; sleep 2");
    good.after(0);
    assert_eq!(good.after(2), "Succeeded terminated:Completed ready=False");
    let mut bad = with("Never", "exit 7");
    assert_eq!(bad.after(0), "Failed terminated:Error ready=False");
    let mut again = with("OnFailure", "exit 7");
    assert_eq!(again.after(0), "Running waiting:CrashLoopBackOff ready=False");
}

#[test]
fn what_a_run_left_on_a_volume_is_there_for_the_next() {
    let fails_once = |path: &str| {
        let script = format!("if [[ -r {path} ]]\nthen\n\texit 0\nelse\n\ttouch {path}\n\texit 1\nfi");
        Bench::new(json!({"spec": {
            "restartPolicy": "OnFailure", "volumes": [{"name": "data", "emptyDir": {}}],
            "containers": [{
                "name": "c", "command": ["sh", "-c"], "args": [script],
                "volumeMounts": [{"name": "data", "mountPath": "/data"}],
            }],
        }}))
    };
    for (path, expected) in [
        ("/data/foo", "Succeeded terminated:Completed ready=False"),
        ("/tmp/foo", "Running waiting:CrashLoopBackOff ready=False"),
    ] {
        let mut bench = fails_once(path);
        bench.settle();
        assert_eq!(bench.after(2), "Running waiting:CrashLoopBackOff ready=False", "{path}");
        assert_eq!(bench.after(10), expected, "{path}");
    }
}

#[test]
fn a_script_knows_what_its_pod_says_of_itself() {
    let mut bench = Bench::new(json!({
        "metadata": {"labels": {"batch.kubernetes.io/job-completion-index": "3"}},
        "spec": {"restartPolicy": "Never", "containers": [{
            "name": "c", "command": ["sh", "-c", "exit $INDEX"],
            "env": [{"name": "INDEX", "valueFrom": {"fieldRef": {
                "fieldPath": "metadata.labels['batch.kubernetes.io/job-completion-index']",
            }}}],
        }]},
    }));
    bench.settle();
    assert_eq!(bench.after(2), "Failed terminated:Error ready=False");
    let code = bench.pod().pointer("/status/containerStatuses/0/state/terminated/exitCode").cloned();
    assert_eq!(code, Some(json!(3)));
}

#[test]
fn the_containers_of_a_job_come_to_an_end() {
    let mut bench = Bench::new(json!({
        "metadata": {"annotations": {START_AFTER: "0s"}, "ownerReferences": [
            {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": true},
        ]},
        "spec": {"restartPolicy": "Never"},
    }));
    assert_eq!(bench.after(0), "Running running ready=False");
    assert_eq!(bench.after(4), "Succeeded terminated:Completed ready=False");
}

#[test]
fn init_containers_go_first_and_sidecars_stay() {
    let mut bench = Bench::new(json!({
        "metadata": {"annotations": {START_AFTER: "0s", READY_AFTER: "0s"}},
        "spec": {
            "initContainers": [
                {"name": "first", "image": "busybox", "command": ["sleep", "2"]},
                {"name": "side", "image": "proxy", "restartPolicy": "Always"},
            ],
            "containers": [{"name": "c", "image": "web:1"}],
        },
    }));
    assert_eq!(bench.after(0), "Pending waiting:PodInitializing ready=False");
    assert_eq!(bench.after(2), "Running running ready=True");
    let pod = bench.pod();
    let inits: Vec<&str> = tree::items(&pod, "/status/initContainerStatuses")
        .flat_map(|it| tree::members(it, "/state"))
        .map(|(state, _)| state)
        .collect();
    assert_eq!(inits, ["terminated", "running"]);
}

#[test]
fn scripts_that_are_not_understood_do_as_programs_that_are_not_known() {
    let waits = json!({"name": "wait", "image": "busybox", "command": ["sh", "-c", "until nc -z db; do sleep 1; done"]});
    let copies =
        json!({"name": "copy", "image": "busybox", "command": ["sh", "-c", "mkdir -p /data && cp a /data"]});
    let serves = json!({"name": "c", "image": "store", "command": ["sh", "-ce", "store server"]});
    let mut bench = Bench::new(json!({
        "metadata": {"annotations": {START_AFTER: "0s", READY_AFTER: "0s"}},
        "spec": {"initContainers": [waits, copies], "containers": [serves]},
    }));
    assert_eq!(bench.after(1), "Running running ready=True");
}

#[test]
fn where_something_must_go_first_all_wait_for_the_pod() {
    let mut bench = Bench::new(json!({"spec": {"initContainers": [{"name": "a"}, {"name": "b"}]}}));
    assert_eq!(bench.after(0), "Pending waiting:PodInitializing ready=False");
    let pod = bench.pod();
    for status in tree::items(&pod, "/status/initContainerStatuses") {
        assert_eq!(tree::text(status, "/state/waiting/reason"), "PodInitializing", "{status}");
    }
}

#[test]
fn nothing_starts_without_what_it_is_made_of() {
    let spec = json!({"metadata": {"annotations": {START_AFTER: "0s", READY_AFTER: "0s"}}, "spec": {
        "volumes": [{"name": "v", "configMap": {"name": "settings"}}],
        "containers": [{"name": "c", "image": "web:1", "env": [
            {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "other", "key": "a"}}},
        ]}],
    }});
    let mut bench = Bench::new(spec);
    assert_eq!(bench.after(0), "Pending waiting:ContainerCreating ready=False");
    assert_eq!(bench.notes, ["FailedMount"]);
    let map = |name: &str| json!({"metadata": {"namespace": "default", "name": name}, "data": {"b": "1"}});
    bench.world.put(CONFIG_MAPS, map("settings"));
    assert_eq!(bench.after(2), "Pending waiting:CreateContainerConfigError ready=False");
    bench.world.put(CONFIG_MAPS, map("other"));
    let message = |bench: &Bench| {
        tree::text(&bench.pod(), "/status/containerStatuses/0/state/waiting/message").to_owned()
    };
    bench.after(2);
    assert_eq!(message(&bench), "couldn't find key a in ConfigMap default/other");
    let mut whole = map("other");
    whole["data"]["a"] = json!("2");
    bench.world.put(CONFIG_MAPS, whole);
    assert_eq!(bench.after(2), "Running running ready=True");
}

#[test]
fn a_pod_ends_when_its_time_is_over() {
    let mut bench = Bench::new(json!({"spec": {"activeDeadlineSeconds": 8}}));
    bench.settle();
    bench.after(2);
    assert_eq!(bench.after(5), "Running running ready=True");
    assert_eq!(bench.after(1), "Failed terminated:Error ready=False");
    assert_eq!(tree::text(&bench.pod(), "/status/reason"), "DeadlineExceeded");
    assert_eq!(bench.notes.last().map(String::as_str), Some("DeadlineExceeded"));
}

#[test]
fn a_pod_that_is_to_go_goes_after_its_containers() {
    let mut bench = Bench::new(json!({}));
    bench.after(0);
    let mut pod = bench.pod();
    pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:30Z");
    pod["metadata"]["deletionGracePeriodSeconds"] = json!(30);
    bench.world.put(PODS, pod);
    assert!(!bench.settle(), "its containers take a second to stop");
    bench.world.pass(1);
    assert!(bench.settle());
}

#[test]
fn a_pod_that_others_keep_has_ended() {
    let mut bench = Bench::new(json!({"metadata": {"finalizers": ["example.com/kept"]}}));
    bench.settle();
    assert_eq!(bench.after(2), "Running running ready=False");
    let mut pod = bench.pod();
    pod["metadata"]["deletionTimestamp"] = json!(tree::time_text(bench.world.now));
    pod["metadata"]["deletionGracePeriodSeconds"] = json!(0);
    bench.world.put(PODS, pod);
    assert!(bench.settle());
    assert_eq!(bench.after(0), "Failed terminated:Error ready=False");
    assert_eq!(bench.notes.iter().filter(|note| *note == "Killing").count(), 1);
}

#[test]
fn a_node_that_is_down_does_nothing() {
    let mut bench = Bench::new(json!({}));
    let mut node = bench.world.get(NODES, "", "n").unwrap();
    node["metadata"]["annotations"] = json!({DOWN: "true"});
    bench.world.put(NODES, node);
    assert_eq!(bench.after(60), "  ready=");
}
