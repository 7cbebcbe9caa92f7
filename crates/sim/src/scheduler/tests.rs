use serde_json::{Value, json};

use super::*;
use crate::testing::Written;

fn node(name: &str, zone: &str, cpu: &str, taints: Value) -> Value {
    json!({
        "metadata": {"name": name, "labels": {"zone": zone, "kubernetes.io/hostname": name}},
        "spec": {"taints": taints},
        "status": {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "4"}},
    })
}

fn pod(name: &str, on: &str, spec: Value) -> Value {
    let mut pod = json!({
        "metadata": {"namespace": "default", "name": name, "uid": name, "labels": {"app": "web"}},
        "spec": {"nodeName": on, "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
        "status": {"phase": if on.is_empty() { "Pending" } else { "Running" }},
    });
    for (key, value) in tree::members(&spec, "") {
        pod["spec"][key] = value.clone();
    }
    pod
}

fn two_nodes() -> Written {
    Written::new().with(NODES, node("a", "one", "4", json!([]))).with(NODES, node("b", "two", "4", json!([])))
}

/// The node that the pod is put on, or why on none.
fn decide(world: &Written, pod: &Value) -> Result<String, String> {
    let plan = Scheduler.reconcile(world, pod);
    for action in &plan.actions {
        match action {
            Action::Bind { node, .. } => return Ok(node.clone()),
            Action::Event { warning: true, message, .. } => return Err(message.clone()),
            _ => {}
        }
    }
    Err(String::new())
}

#[test]
fn a_pod_goes_where_there_is_room() {
    let mut world = two_nodes().with(PODS, pod("p1", "a", json!({}))).with(PODS, pod("p2", "a", json!({})));
    assert_eq!(decide(&world, &pod("new", "", json!({}))), Ok("b".into()));
    for number in 0..4 {
        world.put(PODS, pod(&format!("q{number}"), "b", json!({})));
    }
    assert_eq!(decide(&world, &pod("new", "", json!({}))), Ok("a".into()));
    world.put(PODS, pod("p3", "a", json!({})));
    world.put(PODS, pod("p4", "a", json!({})));
    assert_eq!(
        decide(&world, &pod("new", "", json!({}))),
        Err("0/2 nodes are available: 2 Insufficient cpu, 2 Too many pods. preemption: 0/2 nodes are available: 2 No \
             preemption victims found for incoming pod."
            .into())
    );
    let mut done = pod("p4", "a", json!({}));
    done["status"]["phase"] = json!("Succeeded");
    world.put(PODS, done);
    assert_eq!(decide(&world, &pod("new", "", json!({}))), Ok("a".into()), "what has finished takes no room");
}

#[test]
fn reasons_are_told_as_people_know_them() {
    let tainted = json!([{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]);
    let world = Written::new()
        .with(NODES, node("a", "one", "4", tainted))
        .with(NODES, node("b", "two", "4", json!([])));
    let picky = pod("p", "", json!({"nodeSelector": {"zone": "three"}, "tolerations": []}));
    assert_eq!(
        decide(&world, &picky),
        Err("0/2 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 1 node(s) had untolerated \
             taint {gpu: yes}. preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
            .into())
    );
    let tolerant = pod(
        "p",
        "",
        json!({
            "nodeSelector": {"zone": "one"}, "tolerations": [{"key": "gpu", "operator": "Exists"}],
        }),
    );
    assert_eq!(decide(&world, &tolerant), Ok("a".into()));
    assert_eq!(
        decide(&Written::new(), &pod("p", "", json!({}))),
        Err("no nodes available to schedule pods".into())
    );
}

#[test]
fn what_is_said_once_is_not_said_again() {
    let mut world = Written::new();
    let waiting = pod("p", "", json!({}));
    world.put(PODS, waiting.clone());
    let plan = Scheduler.reconcile(&world, &waiting);
    assert_eq!(plan.actions.len(), 2);
    if let Action::PatchStatus { patch, .. } = &plan.actions[0] {
        world.patch_status(PODS, "default", "p", patch);
    }
    let again = world.get(PODS, "default", "p").unwrap();
    assert_eq!(Scheduler.reconcile(&world, &again), Plan::nothing());
}

#[test]
fn pods_keep_together_and_apart() {
    let term = json!([{"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "zone"}]);
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let near = pod("new", "", json!({"affinity": {"podAffinity": {required: term}}}));
    let away = pod("new", "", json!({"affinity": {"podAntiAffinity": {required: term}}}));
    assert!(decide(&two_nodes(), &near).is_ok(), "the first of its kind is near to itself");
    let world = two_nodes().with(PODS, pod("p1", "a", json!({})));
    assert_eq!(decide(&world, &near), Ok("a".into()));
    assert_eq!(decide(&world, &away), Ok("b".into()));
    let both = two_nodes()
        .with(PODS, pod("p1", "a", json!({})))
        .with(PODS, pod("p2", "b", json!({"affinity": {"podAntiAffinity": {required: term}}})));
    assert!(decide(&both, &away).unwrap_err().contains("2 node(s) didn't match pod anti-affinity rules"));
    assert_eq!(decide(&both, &pod("new", "", json!({}))), Ok("a".into()), "p2 wants nobody beside it");
}

#[test]
fn pods_are_spread_within_their_skew() {
    let constraint = |when: &str| {
        json!({"topologySpreadConstraints": [{
            "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": when,
            "labelSelector": {"matchLabels": {"app": "web"}},
        }]})
    };
    let world = two_nodes().with(PODS, pod("p1", "a", json!({})));
    assert_eq!(decide(&world, &pod("new", "", constraint("DoNotSchedule"))), Ok("b".into()));
    let one_place = Written::new()
        .with(NODES, node("a", "one", "4", json!([])))
        .with(NODES, node("b", "two", "0", json!([])))
        .with(PODS, pod("p1", "a", json!({})));
    let why = decide(&one_place, &pod("new", "", constraint("DoNotSchedule"))).unwrap_err();
    assert!(why.contains("1 node(s) didn't match pod topology spread constraints"), "{why}");
    assert_eq!(decide(&one_place, &pod("new", "", constraint("ScheduleAnyway"))), Ok("a".into()));
}

#[test]
fn claims_come_first() {
    let mounts = json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]});
    let claim = |volume: &str| {
        json!({
            "metadata": {"namespace": "default", "name": "data", "uid": "u"},
            "spec": {"storageClassName": "slow", "volumeName": volume},
        })
    };
    let wanted = pod("p", "", mounts);
    assert_eq!(
        decide(&two_nodes(), &wanted),
        Err("0/2 nodes are available: persistentvolumeclaim \"data\" not found.".into())
    );
    let unbound = two_nodes().with(CLAIMS, claim(""));
    assert!(decide(&unbound, &wanted).unwrap_err().contains("unbound immediate PersistentVolumeClaims"));
    let local = json!({
        "metadata": {"name": "disk"},
        "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["two"]}]},
        ]}}},
    });
    let bound = two_nodes().with(CLAIMS, claim("disk")).with(VOLUMES, local);
    assert_eq!(decide(&bound, &wanted), Ok("b".into()));
    let class = json!({"metadata": {"name": "slow"}, "volumeBindingMode": "WaitForFirstConsumer"});
    let late = two_nodes().with(CLAIMS, claim("")).with(crate::kind::STORAGE_CLASSES, class);
    let plan = Scheduler.reconcile(&late, &wanted);
    assert!(
        matches!(&plan.actions[0], Action::Patch { patch, .. } if patch.to_string().contains("selected-node"))
    );
}

#[test]
fn what_makes_room_wakes_those_who_wait() {
    let mut waiting = pod("waiting", "", json!({}));
    waiting["status"] = json!({"conditions": [{"type": "PodScheduled", "status": "False"}]});
    let world = two_nodes()
        .with(PODS, waiting)
        .with(PODS, pod("not-tried-yet", "", json!({})))
        .with(PODS, pod("p1", "a", json!({})));
    let there = pod("p1", "a", json!({}));
    let mut done = there.clone();
    done["status"]["phase"] = json!("Failed");
    let mut cordoned = node("a", "one", "4", json!([]));
    cordoned["spec"]["unschedulable"] = json!(true);
    let open = node("a", "one", "4", json!([]));
    let cases = [
        (PODS, Some(&there), None, 1),
        (PODS, Some(&there), Some(&done), 1),
        (PODS, Some(&there), Some(&there), 0),
        (NODES, Some(&cordoned), Some(&open), 1),
        (NODES, Some(&open), Some(&open), 0),
        (NODES, None, Some(&open), 1),
    ];
    for (kind, old, new, expected) in cases {
        let woken = Scheduler.wakes(&world, &Changed { kind, old, new });
        assert_eq!(woken.len(), expected, "{kind:?} {old:?} {new:?}");
    }
}

#[test]
fn ports_of_a_node_are_given_once_for_each_address() {
    let with = |name: &str, on: &str, address: &str, protocol: &str| {
        let port = json!({"containerPort": 80, "hostPort": 8080, "hostIP": address, "protocol": protocol});
        pod(name, on, json!({"nodeName": on, "containers": [{"name": "c", "ports": [port]}]}))
    };
    let one_node = || Written::new().with(NODES, node("a", "one", "4", json!([])));
    let table = [
        ("127.0.0.1", "TCP", "127.0.0.1", "TCP", false),
        ("127.0.0.1", "TCP", "127.0.0.2", "TCP", true),
        ("127.0.0.1", "TCP", "127.0.0.1", "UDP", true),
        ("", "TCP", "127.0.0.1", "TCP", false),
        ("127.0.0.1", "TCP", "0.0.0.0", "TCP", false),
    ];
    for (there, protocol, wanted, other_protocol, fits) in table {
        let world = one_node().with(PODS, with("p", "a", there, protocol));
        let decision = decide(&world, &with("new", "", wanted, other_protocol));
        assert_eq!(decision.is_ok(), fits, "{there} {protocol}, {wanted} {other_protocol}: {decision:?}");
    }
}

/// A pod that takes so much, and is so important.
fn ranked(name: &str, on: &str, cpu: &str, priority: i64) -> Value {
    let requests = json!({"cpu": cpu});
    pod(
        name,
        on,
        json!({
            "nodeName": on, "priority": priority, "containers": [{"name": "c", "resources": {"requests": requests}}],
        }),
    )
}

/// Who goes, and where the pod is to go then.
fn preempted(world: &Written, pod: &Value) -> (Vec<String>, String) {
    let mut gone = Vec::new();
    let mut nominated = String::new();
    for action in Scheduler.reconcile(world, pod).actions {
        match action {
            Action::Delete { name, .. } => gone.push(name),
            Action::PatchStatus { name, patch, .. } if name == "new" => {
                nominated = tree::text(&patch, "/status/nominatedNodeName").to_owned();
            }
            _ => {}
        }
    }
    (gone, nominated)
}

#[test]
fn the_less_important_make_room() {
    type Case = (&'static str, Vec<Value>, Value, &'static [&'static str], &'static str);
    let started = |mut pod: Value, time: &str| {
        pod["status"]["startTime"] = json!(time);
        pod
    };
    let never = |mut pod: Value| {
        pod["spec"]["preemptionPolicy"] = json!("Never");
        pod
    };
    let on_both = |one: Value, other: Value| vec![one, other];
    let (early, late) = ("2026-01-01T00:00:00Z", "2026-01-01T00:00:09Z");
    let table: [Case; 8] = [
        (
            "nobody is less important",
            on_both(ranked("p", "a", "4", 5), ranked("q", "b", "4", 5)),
            ranked("new", "", "4", 5),
            &[],
            "",
        ),
        (
            "the least important goes",
            on_both(ranked("p", "a", "4", 2), ranked("q", "b", "4", 1)),
            ranked("new", "", "1", 5),
            &["q"],
            "b",
        ),
        (
            "as few as possible go",
            vec![ranked("p", "a", "2", 1), ranked("p2", "a", "2", 1), ranked("q", "b", "4", 1)],
            ranked("new", "", "4", 5),
            &["q"],
            "b",
        ),
        (
            "who need not go stays",
            vec![ranked("p", "a", "3", 1), ranked("p2", "a", "1", 2), ranked("q", "b", "4", 9)],
            ranked("new", "", "2", 5),
            &["p"],
            "a",
        ),
        (
            "of equals the youngest goes",
            on_both(started(ranked("p", "a", "4", 1), late), started(ranked("q", "b", "4", 1), early)),
            ranked("new", "", "4", 5),
            &["p"],
            "a",
        ),
        (
            "it does not want that",
            on_both(ranked("p", "a", "4", 1), ranked("q", "b", "4", 1)),
            never(ranked("new", "", "4", 5)),
            &[],
            "",
        ),
        (
            "no node is large enough",
            on_both(ranked("p", "a", "4", 1), ranked("q", "b", "4", 1)),
            ranked("new", "", "5", 5),
            &[],
            "",
        ),
        (
            "there is room",
            on_both(ranked("p", "a", "4", 1), ranked("q", "b", "1", 1)),
            ranked("new", "", "3", 5),
            &[],
            "",
        ),
    ];
    for (why, there, new, victims, node) in table {
        let world = there.into_iter().fold(two_nodes(), |world, pod| world.with(PODS, pod));
        let (gone, nominated) = preempted(&world, &new);
        assert_eq!(
            (gone.as_slice(), nominated.as_str()),
            (victims.iter().map(|it| it.to_string()).collect::<Vec<_>>().as_slice(), node),
            "{why}"
        );
    }
}

#[test]
fn budgets_are_kept_where_that_is_possible() {
    let budget = json!({
        "metadata": {"namespace": "default", "name": "b"},
        "spec": {"selector": {"matchLabels": {"app": "kept"}}}, "status": {"disruptionsAllowed": 0},
    });
    let mut kept = ranked("p", "a", "4", 1);
    kept["metadata"]["labels"]["app"] = json!("kept");
    let world = two_nodes().with(crate::kind::BUDGETS, budget).with(PODS, kept);
    let other = world.with(PODS, ranked("q", "b", "4", 2));
    assert_eq!(preempted(&other, &ranked("new", "", "4", 5)), (vec!["q".to_owned()], "b".to_owned()));
    let important = other.with(PODS, ranked("q", "b", "4", 9));
    assert_eq!(preempted(&important, &ranked("new", "", "4", 5)), (vec!["p".to_owned()], "a".to_owned()));
}

#[test]
fn a_place_is_kept_for_whom_others_went() {
    let mut hoping = ranked("hoping", "", "4", 5);
    hoping["status"]["nominatedNodeName"] = json!("a");
    let mut leaving = ranked("p", "a", "4", 1);
    leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    leaving["status"]["conditions"] =
        json!([{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]);
    let world = two_nodes().with(PODS, hoping.clone()).with(PODS, ranked("q", "b", "4", 3));
    assert!(decide(&world, &ranked("new", "", "1", 5)).is_err(), "its place is taken");
    assert_eq!(decide(&world, &ranked("new", "", "1", 6)), Ok("a".into()), "not for one more important");
    assert_eq!(decide(&world, &hoping), Ok("a".into()));

    let waits = world.with(PODS, leaving);
    assert_eq!(
        decide(&waits, &hoping),
        Err("0/2 nodes are available: 2 Insufficient cpu. preemption: not eligible due to a terminating pod on the \
             nominated node."
            .into())
    );
}

#[test]
fn victims_learn_why() {
    let world =
        Written::new().with(NODES, node("a", "one", "4", json!([]))).with(PODS, ranked("p", "a", "4", 1));
    let plan = Scheduler.reconcile(&world, &ranked("new", "", "4", 5));
    let said: Vec<String> = plan
        .actions
        .iter()
        .map(|action| match action {
            Action::PatchStatus { name, patch, .. } => {
                let condition = tree::items(patch, "/status/conditions").last().cloned().unwrap_or_default();
                format!(
                    "{name}: {} {}",
                    tree::text(&condition, "/reason"),
                    tree::text(&condition, "/message")
                )
            }
            Action::Event { reason, message, .. } => format!("{reason}: {message}"),
            Action::Delete { name, .. } => format!("{name} goes"),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        said,
        [
            "new: Unschedulable 0/1 nodes are available: 1 Insufficient cpu.",
            "FailedScheduling: 0/1 nodes are available: 1 Insufficient cpu.",
            "p: PreemptionByScheduler default-scheduler: preempting to accommodate a higher priority pod",
            "p goes",
            "Preempted: Preempted by pod new on node a",
        ]
    );
}
