//! Where things run, as a table of scenes.
//!
//! Clusters are written as `Cluster` objects, workloads as what users apply, policies as `Placement`s.

mod named;
mod parts;

use std::collections::BTreeMap;

use kinds::{Share, Subject};
use placement::{
    Cluster, ClusterVerdict, Decision, Directory, Fields, Input, Layer, Namespace, Objection, Outcome,
    Policies, Policy, cluster::Network, decide, follow,
};
use serde_json::{Value, json};

const REGION: &str = "topology.kubernetes.io/region";

/// A ready cluster in a region, with room for so many processors.
fn cluster(name: &str, region: &str, cpu: u64) -> Value {
    json!({
        "metadata": {"name": name, "labels": {REGION: region}},
        "spec": {"network": "Flat"},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "allocatable": {"cpu": cpu.to_string(), "memory": "1Ti", "pods": "1000"},
            "requested": {"cpu": "0", "memory": "0", "pods": "0"},
        },
    })
}

fn three() -> Vec<Value> {
    vec![cluster("ap-1", "ap", 100), cluster("eu-1", "eu", 100), cluster("us-1", "us", 100)]
}

fn directory(clusters: &[Value]) -> Directory {
    Directory::new(clusters.iter().map(|it| Cluster::read(it).unwrap()))
}

fn changed(mut clusters: Vec<Value>, name: &str, change: impl FnOnce(&mut Value)) -> Vec<Value> {
    change(clusters.iter_mut().find(|it| it["metadata"]["name"] == name).unwrap());
    clusters
}

fn not_ready(cluster: &mut Value) {
    cluster["status"]["conditions"] = json!([{"type": "Ready", "status": "False", "reason": "Unreachable"}]);
}

fn taint(effect: &str) -> impl FnOnce(&mut Value) {
    let taint = json!([{"key": "k", "value": "v", "effect": effect}]);
    move |cluster| cluster["spec"]["taints"] = taint
}

/// A workload whose pods ask for one processor each.
fn workload(kind: &str, replicas: u64, change: impl FnOnce(&mut Value)) -> Subject {
    let mut object = json!({
        "apiVersion": "apps/v1", "kind": kind, "metadata": {"namespace": "shop", "name": "web"},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "a", "image": "b", "resources": {"requests": {"cpu": "1"}}}]},
            },
        },
    });
    change(&mut object);
    kinds::subject(&object).unwrap()
}

fn deployment(replicas: u64) -> Subject {
    workload("Deployment", replicas, |_| {})
}

fn policy(spec: Value) -> Policy {
    let mut spec = spec;
    if spec["select"].is_null() {
        spec["select"] = json!([{"kinds": ["Deployment", "StatefulSet", "DaemonSet"]}]);
    }
    Policy::read(&json!({"metadata": {"name": "p"}, "spec": spec})).unwrap()
}

fn current(shares: &[(&str, u64)]) -> BTreeMap<String, Share> {
    let share = |replicas| Share { replicas, ..Share::default() };
    shares.iter().map(|(name, replicas)| ((*name).to_owned(), share(*replicas))).collect()
}

fn shown(decision: &Decision) -> String {
    let shares = decision.shares.iter().map(|(name, share)| format!("{name}={}", share.replicas));
    let mut shown: Vec<String> = shares.collect();
    if decision.pending > 0 {
        shown.push(format!("pending={}", decision.pending));
    }
    shown.join(" ")
}

struct Scene<'a> {
    what: &'a str,
    clusters: Vec<Value>,
    subject: Subject,
    policy: Option<Value>,
    current: &'a [(&'a str, u64)],
    home: Option<&'a str>,
    wanted: &'a str,
}

impl Default for Scene<'_> {
    fn default() -> Self {
        Scene {
            what: "",
            clusters: three(),
            subject: deployment(6),
            policy: None,
            current: &[],
            home: None,
            wanted: "",
        }
    }
}

fn play(mut scene: Scene<'_>) {
    let policies: Policies = scene.policy.into_iter().map(policy).collect();
    let mut current = current(scene.current);
    for when in ["at first", "when that was done"] {
        // What runs is reported.
        for cluster in &mut scene.clusters {
            let runs = cluster["metadata"]["name"].as_str().and_then(|name| current.get(name));
            cluster["status"]["requested"]["cpu"] = json!(runs.map_or(0, |it| it.replicas).to_string());
        }
        let directory = directory(&scene.clusters);
        let input = Input {
            workspace: &policies,
            current: &current,
            home: scene.home,
            ..Input::new(&scene.subject, &directory)
        };
        let decision = decide(&input);
        let text = decision.explain(&input).render();
        assert_eq!(shown(&decision), scene.wanted, "{} {when}\n{text}", scene.what);
        current = decision.shares;
    }
}

#[test]
fn division() {
    let divide = |divide: Value| Some(json!({"strategy": "Divide", "divide": divide}));
    for scene in [
        Scene {
            what: "evenly",
            policy: divide(json!({})),
            wanted: "ap-1=2 eu-1=2 us-1=2",
            ..Scene::default()
        },
        Scene {
            what: "what runs stays",
            policy: divide(json!({})),
            current: &[("eu-1", 4)],
            wanted: "ap-1=1 eu-1=4 us-1=1",
            ..Scene::default()
        },
        Scene {
            what: "unless it is to be rebalanced",
            policy: divide(json!({"rebalance": true})),
            current: &[("eu-1", 4)],
            wanted: "ap-1=2 eu-1=2 us-1=2",
            ..Scene::default()
        },
        Scene {
            what: "by weight; who has no share gets nothing",
            policy: divide(
                json!({"by": "Weight", "shares": [{"cluster": "eu-1", "weight": 2}, {"cluster": "us-1"}]}),
            ),
            wanted: "eu-1=4 us-1=2",
            ..Scene::default()
        },
        Scene {
            what: "nothing at all stands by where it may run, even if more is free elsewhere",
            clusters: vec![cluster("ap-1", "ap", 900), cluster("eu-1", "eu", 10), cluster("us-1", "us", 900)],
            subject: deployment(0),
            policy: divide(json!({"by": "Weight", "shares": [{"cluster": "eu-1", "weight": 1}]})),
            wanted: "eu-1=0",
            ..Scene::default()
        },
        Scene {
            what: "nor where there may be none of it",
            clusters: vec![cluster("ap-1", "ap", 900), cluster("eu-1", "eu", 10)],
            subject: deployment(0),
            policy: divide(json!({"shares": [{"cluster": "ap-1", "max": 0}]})),
            wanted: "eu-1=0",
            ..Scene::default()
        },
        Scene {
            what: "by selector, and the rest",
            policy: divide(json!({"by": "Weight", "shares": [
                {"selector": {"matchLabels": {REGION: "eu"}}, "weight": 4}, {"cluster": "*", "weight": 1}]})),
            wanted: "ap-1=1 eu-1=4 us-1=1",
            ..Scene::default()
        },
        Scene {
            what: "within bounds, and what does not fit waits",
            policy: divide(json!({"shares": [{"cluster": "eu-1", "min": 3}, {"cluster": "*", "max": 1}]})),
            subject: deployment(9),
            clusters: changed(three(), "eu-1", |it| it["status"]["allocatable"]["cpu"] = json!("5")),
            wanted: "ap-1=1 eu-1=5 us-1=1 pending=2",
            ..Scene::default()
        },
        Scene {
            what: "by free capacity",
            policy: divide(json!({"by": "Capacity"})),
            clusters: vec![cluster("a", "x", 2), cluster("b", "x", 4)],
            subject: deployment(3),
            wanted: "a=1 b=2",
            ..Scene::default()
        },
        Scene {
            what: "over-committed processors are more, and a bound stands for what there is",
            policy: divide(json!({"by": "Capacity"})),
            clusters: changed(
                changed(vec![cluster("a", "x", 2), cluster("b", "x", 90)], "a", |it| {
                    it["spec"]["capacity"] = json!({"overcommit": {"cpu": "1.5"}});
                }),
                "b",
                |it| it["spec"]["capacity"] = json!({"bounds": {"cpu": "6"}}),
            ),
            subject: deployment(20),
            wanted: "a=3 b=6 pending=11",
            ..Scene::default()
        },
        Scene {
            what: "a bound counts before anything is reported, and what is neither bound nor reported is not judged",
            policy: divide(json!({})),
            clusters: changed(vec![cluster("a", "x", 2), cluster("b", "x", 90)], "a", |it| {
                it["spec"]["capacity"] = json!({"bounds": {"cpu": 4}});
                it["status"]["allocatable"] = json!({});
            }),
            subject: deployment(10),
            wanted: "a=4 b=6",
            ..Scene::default()
        },
        Scene {
            what: "zero is a number, and the object is somewhere",
            policy: divide(json!({})),
            subject: deployment(0),
            current: &[("eu-1", 4)],
            wanted: "eu-1=0",
            ..Scene::default()
        },
        Scene {
            what: "as federation did it",
            policy: divide(json!({"algorithm": "Federation"})),
            subject: deployment(7),
            wanted: "ap-1=1 eu-1=3 us-1=3",
            ..Scene::default()
        },
    ] {
        play(scene);
    }
}

#[test]
fn health_taints_and_cordon() {
    let even = || Some(json!({"strategy": "Divide"}));
    let eu = |change: Box<dyn FnOnce(&mut Value)>| changed(three(), "eu-1", change);
    for scene in [
        Scene {
            what: "an unhealthy cluster keeps what it has, and the others take what is new",
            clusters: eu(Box::new(not_ready)),
            subject: deployment(9),
            policy: even(),
            current: &[("ap-1", 2), ("eu-1", 2), ("us-1", 2)],
            wanted: "ap-1=3 eu-1=2 us-1=4",
            ..Scene::default()
        },
        Scene {
            what: "also when all is rebalanced",
            clusters: eu(Box::new(not_ready)),
            policy: Some(json!({"strategy": "Divide", "divide": {"rebalance": true}})),
            current: &[("eu-1", 1)],
            wanted: "ap-1=2 eu-1=1 us-1=3",
            ..Scene::default()
        },
        Scene {
            what: "a cordoned one is not begun with",
            clusters: eu(Box::new(|it| it["spec"]["unschedulable"] = json!(true))),
            policy: even(),
            wanted: "ap-1=3 us-1=3",
            ..Scene::default()
        },
        Scene {
            what: "nor a tainted one",
            clusters: eu(Box::new(taint("NoSchedule"))),
            policy: even(),
            wanted: "ap-1=3 us-1=3",
            ..Scene::default()
        },
        Scene {
            what: "unless the policy bears it",
            clusters: eu(Box::new(taint("NoSchedule"))),
            policy: Some(json!({"strategy": "Divide", "tolerations": [{"key": "k", "operator": "Exists"}]})),
            wanted: "ap-1=2 eu-1=2 us-1=2",
            ..Scene::default()
        },
        Scene {
            what: "one that would rather not gets what others have no room for",
            clusters: changed(
                changed(three()[1..].to_vec(), "eu-1", taint("PreferNoSchedule")),
                "us-1",
                |it| it["status"]["allocatable"]["cpu"] = json!("4"),
            ),
            policy: even(),
            wanted: "eu-1=2 us-1=4",
            ..Scene::default()
        },
        Scene {
            what: "one that drives out loses what others can have",
            clusters: eu(Box::new(taint("NoExecute"))),
            policy: even(),
            current: &[("eu-1", 6)],
            wanted: "ap-1=3 us-1=3",
            ..Scene::default()
        },
        Scene {
            what: "and keeps what nobody else can",
            clusters: changed(three()[1..].to_vec(), "eu-1", taint("NoExecute"))
                .into_iter()
                .map(|mut it| {
                    if it["metadata"]["name"] == "us-1" {
                        it["status"]["allocatable"]["cpu"] = json!("2");
                    }
                    it
                })
                .collect(),
            policy: even(),
            current: &[("eu-1", 6)],
            wanted: "eu-1=4 us-1=2",
            ..Scene::default()
        },
        Scene {
            what: "a cluster that is not in the directory is unknown, not lost",
            policy: even(),
            current: &[("gone", 4), ("us-1", 2)],
            wanted: "gone=4 us-1=2",
            ..Scene::default()
        },
    ] {
        play(scene);
    }
}

#[test]
fn spreading() {
    let region = |max_skew: u64| json!([{"topologyKey": REGION, "maxSkew": max_skew}]);
    let two_of = |max_skew: u64| json!([{"topologyKey": REGION, "maxSkew": max_skew, "maxDomains": 2}]);
    for scene in [
        Scene {
            what: "where nothing is to be is no region to spread over",
            subject: deployment(12),
            policy: Some(json!({"strategy": "Divide", "spread": region(1), "divide": {
                "by": "Weight", "shares": [{"cluster": "us-1", "weight": 1}, {"cluster": "ap-1", "weight": 1}]}})),
            wanted: "ap-1=6 us-1=6",
            ..Scene::default()
        },
        Scene {
            what: "nor is it one of the regions to choose, though it has some",
            clusters: vec![cluster("a", "eu", 100), cluster("b", "us", 9), cluster("c", "ap", 5)],
            subject: deployment(10),
            policy: Some(json!({"strategy": "Divide", "spread": two_of(2), "divide": {
                "by": "Weight", "rebalance": true,
                "shares": [{"cluster": "a", "weight": 0}, {"cluster": "*", "weight": 1}]}})),
            current: &[("a", 5)],
            wanted: "b=5 c=5",
            ..Scene::default()
        },
        Scene {
            what: "an empty region that can gain nothing is not chosen either",
            clusters: changed(three(), "ap-1", not_ready),
            policy: Some(json!({"strategy": "Divide", "spread": two_of(1)})),
            current: &[("ap-1", 0)],
            wanted: "eu-1=3 us-1=3",
            ..Scene::default()
        },
        Scene {
            what: "a region that would rather not counts as one",
            clusters: changed(
                vec![cluster("a", "eu", 10), cluster("b", "us", 3)],
                "b",
                taint("PreferNoSchedule"),
            ),
            subject: deployment(12),
            policy: Some(json!({"strategy": "Divide", "spread": region(1)})),
            wanted: "a=4 b=3 pending=5",
            ..Scene::default()
        },
    ] {
        play(scene);
    }
}

#[test]
fn groups_are_a_standing_preference() {
    let groups = || {
        Some(json!({"strategy": "Divide", "groups": [
            {"name": "near", "selector": {"matchLabels": {REGION: "eu"}}},
            {"name": "far", "names": ["us-1", "ap-1"]},
        ]}))
    };
    let small = || changed(three(), "eu-1", |it| it["status"]["allocatable"]["cpu"] = json!("4"));
    for scene in [
        Scene { what: "the first takes all", policy: groups(), wanted: "eu-1=6", ..Scene::default() },
        Scene {
            what: "the next takes what has no room",
            policy: groups(),
            clusters: small(),
            wanted: "ap-1=1 eu-1=4 us-1=1",
            ..Scene::default()
        },
        Scene {
            what: "and gives it back when there is",
            policy: groups(),
            current: &[("ap-1", 1), ("eu-1", 4), ("us-1", 1)],
            wanted: "eu-1=6",
            ..Scene::default()
        },
        Scene {
            what: "one that is lost keeps what it has",
            policy: groups(),
            clusters: changed(three(), "eu-1", not_ready),
            current: &[("eu-1", 4)],
            wanted: "ap-1=1 eu-1=4 us-1=1",
            ..Scene::default()
        },
        Scene {
            what: "also for pods with names of their own",
            clusters: vec![cluster("a", "eu", 3), cluster("b", "eu", 100), cluster("c", "eu", 100)],
            subject: workload("StatefulSet", 5, |_| {}),
            policy: Some(json!({"strategy": "Divide", "groups": [{"names": ["a", "b"]}, {"names": ["c"]}]})),
            current: &[("a", 3)],
            wanted: "a=3 b=2",
            ..Scene::default()
        },
        Scene {
            what: "also for a single one",
            policy: Some(json!({"strategy": "Single", "groups": [{"names": ["eu-1"]}, {"names": ["us-1"]}]})),
            current: &[("us-1", 6)],
            wanted: "eu-1=6",
            ..Scene::default()
        },
    ] {
        play(scene);
    }
}

#[test]
fn without_a_strategy_the_kind_decides() {
    let set = || workload("StatefulSet", 6, |_| {});
    for scene in [
        Scene {
            what: "what has replicas is divided",
            policy: Some(json!({})),
            wanted: "ap-1=2 eu-1=2 us-1=2",
            ..Scene::default()
        },
        Scene {
            what: "pods with names of their own are in one cluster",
            subject: set(),
            policy: Some(json!({"clusters": {"names": ["eu-1", "us-1"]}})),
            current: &[("us-1", 6)],
            wanted: "us-1=6",
            ..Scene::default()
        },
        Scene {
            what: "one that may keep nothing does not hold the last of them",
            subject: set(),
            policy: Some(json!({"divide": {"by": "Weight", "shares": [{"cluster": "eu-1", "weight": 1}]}})),
            current: &[("eu-1", 1), ("us-1", 1)],
            wanted: "eu-1=6",
            ..Scene::default()
        },
        Scene {
            what: "unless divide is written, which means to divide them",
            subject: set(),
            policy: Some(json!({"divide": {}})),
            wanted: "ap-1=2 eu-1=2 us-1=2",
            ..Scene::default()
        },
    ] {
        play(scene);
    }
}

#[test]
fn single_and_duplicate() {
    for scene in [
        Scene {
            what: "it stays where it is",
            policy: Some(json!({"strategy": "Single"})),
            current: &[("us-1", 6)],
            wanted: "us-1=6",
            ..Scene::default()
        },
        Scene {
            what: "and begins where all of it fits",
            policy: Some(json!({"strategy": "Single"})),
            clusters: vec![cluster("a", "x", 5), cluster("b", "x", 6), cluster("c", "x", 4)],
            wanted: "b=6",
            ..Scene::default()
        },
        Scene {
            what: "each has all of it",
            policy: Some(json!({"strategy": "Duplicate", "clusters": {"selector": {"matchExpressions": [
                {"key": REGION, "operator": "NotIn", "values": ["ap"]}]}}})),
            wanted: "eu-1=6 us-1=6",
            ..Scene::default()
        },
        Scene {
            what: "a set whose pods have names is in one cluster, if nothing else is said",
            policy: Some(json!({"clusters": {"names": ["us-1"]}})),
            subject: workload("StatefulSet", 3, |_| {}),
            wanted: "us-1=3",
            ..Scene::default()
        },
        Scene {
            what: "a cluster of each region",
            policy: Some(
                json!({"strategy": "Duplicate", "spread": [{"topologyKey": REGION, "maxDomains": 2}]}),
            ),
            subject: deployment(1),
            current: &[("eu-1", 1), ("us-1", 1)],
            wanted: "eu-1=1 us-1=1",
            ..Scene::default()
        },
    ] {
        play(scene);
    }
}

#[test]
fn the_default_prefers_one_cluster() {
    let islands = || {
        let mut clusters = vec![cluster("a", "x", 4), cluster("b", "x", 4)];
        clusters.iter_mut().for_each(|it| it["spec"]["network"] = json!("None"));
        clusters
    };
    let joined = || vec![cluster("a", "x", 4), cluster("b", "x", 4)];
    let volume = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]);
    for scene in [
        Scene { what: "the home", home: Some("us-1"), wanted: "us-1=6", ..Scene::default() },
        Scene {
            what: "where it is",
            home: Some("us-1"),
            current: &[("eu-1", 6)],
            wanted: "eu-1=6",
            ..Scene::default()
        },
        Scene {
            what: "it spills over a network",
            clusters: joined(),
            home: Some("b"),
            wanted: "a=2 b=4",
            ..Scene::default()
        },
        Scene {
            what: "and not without one",
            clusters: islands(),
            home: Some("b"),
            wanted: "b=4 pending=2",
            ..Scene::default()
        },
        Scene {
            what: "never with names of its own",
            clusters: joined(),
            home: Some("b"),
            subject: workload("StatefulSet", 6, |_| {}),
            wanted: "b=4 pending=2",
            ..Scene::default()
        },
        Scene {
            what: "nor with a volume",
            clusters: joined(),
            home: Some("b"),
            subject: workload("Deployment", 6, |it| it["spec"]["template"]["spec"]["volumes"] = volume),
            wanted: "b=4 pending=2",
            ..Scene::default()
        },
        Scene {
            what: "growth does not move what runs",
            clusters: joined(),
            current: &[("a", 4), ("b", 1)],
            subject: deployment(7),
            wanted: "a=4 b=3",
            ..Scene::default()
        },
        Scene {
            what: "and what shrinks is what was spilled",
            clusters: joined(),
            current: &[("a", 4), ("b", 2)],
            subject: deployment(3),
            wanted: "a=3",
            ..Scene::default()
        },
        Scene {
            what: "what runs on every node runs in every cluster",
            subject: workload("DaemonSet", 0, |_| {}),
            wanted: "ap-1=0 eu-1=0 us-1=0",
            ..Scene::default()
        },
    ] {
        play(scene);
    }
}

#[test]
fn what_is_confined_grows_in_one_cluster_alone() {
    let three = || vec![cluster("a", "eu", 4), cluster("b", "eu", 2), cluster("d", "eu", 100)];
    let clusters = || changed(three(), "b", |it| it["spec"]["network"] = json!("None"));
    play(Scene {
        what: "what is elsewhere stays",
        clusters: clusters(),
        subject: deployment(8),
        current: &[("a", 1), ("b", 2)],
        wanted: "a=1 b=2 pending=5",
        ..Scene::default()
    });
    play(Scene {
        what: "a cluster that is lost is not the one",
        clusters: changed(clusters(), "b", not_ready),
        subject: deployment(8),
        current: &[("a", 1), ("b", 2)],
        wanted: "a=4 b=2 d=2",
        ..Scene::default()
    });
}

#[test]
fn what_pods_ask_of_nodes_is_asked_of_clusters() {
    let pods = |change: Value| {
        workload("Deployment", 6, |it| {
            let spec = it["spec"]["template"]["spec"].as_object_mut().unwrap();
            change.as_object().unwrap().iter().for_each(|(key, value)| {
                spec.insert(key.clone(), value.clone());
            });
        })
    };
    let divide = || Some(json!({"strategy": "Divide"}));
    let two_in_eu = || vec![cluster("eu-1", "eu", 99), cluster("eu-2", "eu", 99), cluster("us-1", "us", 99)];
    for scene in [
        Scene {
            what: "node selector",
            subject: pods(json!({"nodeSelector": {REGION: "eu", "kubernetes.io/os": "linux"}})),
            policy: divide(),
            wanted: "eu-1=6",
            ..Scene::default()
        },
        Scene {
            what: "affinity",
            subject: pods(
                json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
                {"nodeSelectorTerms": [{"matchExpressions": [{"key": REGION, "operator": "NotIn", "values": ["eu"]}]}]}}}}),
            ),
            policy: divide(),
            wanted: "ap-1=3 us-1=3",
            ..Scene::default()
        },
        Scene {
            what: "preferred affinity",
            subject: pods(
                json!({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution":
                [{"weight": 50, "preference": {"matchExpressions": [{"key": REGION, "operator": "In", "values": ["us"]}]}}]}}}),
            ),
            policy: Some(json!({"strategy": "Single"})),
            wanted: "us-1=6",
            ..Scene::default()
        },
        Scene {
            what: "tolerations",
            clusters: changed(three(), "eu-1", taint("NoSchedule")),
            subject: pods(json!({"tolerations": [{"key": "k", "value": "v"}]})),
            policy: divide(),
            wanted: "ap-1=2 eu-1=2 us-1=2",
            ..Scene::default()
        },
        Scene {
            what: "topology spread",
            clusters: two_in_eu(),
            subject: pods(json!({"topologySpreadConstraints": [{"topologyKey": REGION, "maxSkew": 1,
                "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "web"}}}]})),
            policy: Some(
                json!({"strategy": "Divide", "divide": {"shares": [{"cluster": "eu-2", "max": 1}]}}),
            ),
            wanted: "eu-1=2 eu-2=1 us-1=3",
            ..Scene::default()
        },
    ] {
        play(scene);
    }
}

#[test]
fn the_most_specific_layer_counts() {
    let directory = directory(&three());
    let to = |name: &str, select: Value| {
        let policy = json!({"metadata": {"name": name}, "spec": {
            "select": select, "strategy": "Single", "clusters": {"names": [name]}}});
        Policy::read(&policy).unwrap()
    };
    let everything = || json!([{"namespaces": ["shop"]}]);
    let root = Policies::from([to("ap-1", everything())]);
    let none = Policies::new();
    let by_kind = Policies::from([
        to("us-1", json!([{"kinds": ["Deployment"]}])),
        to("eu-1", json!([{"names": ["web"]}])),
    ]);
    let note = |key: &str, value: &str| BTreeMap::from([(key.to_owned(), value.to_owned())]);
    let annotated = |key: &str, value: &str| Subject { annotations: note(key, value), ..deployment(2) };
    let namespace = Namespace { annotations: note("hanse.io/clusters", "us-1"), ..Namespace::default() };
    let plain = Namespace::default();
    type Case<'a> = (Subject, &'a Namespace, &'a Policies, &'a Policies, Layer, &'a str);
    let cases: [Case<'_>; 9] = [
        (
            annotated("hanse.io/clusters", "eu-1, us-1"),
            &namespace,
            &by_kind,
            &root,
            Layer::Object,
            "eu-1=1 us-1=1",
        ),
        (annotated("hanse.io/placement", "ap-1"), &namespace, &by_kind, &root, Layer::Object, "ap-1=2"),
        (annotated("hanse.io/placement", "none"), &plain, &by_kind, &root, Layer::Object, ""),
        (
            annotated(
                "federation.alpha.kubernetes.io/cluster-selector",
                r#"[{"key": "topology.kubernetes.io/region", "operator": "in", "values": ["ap"]}]"#,
            ),
            &namespace,
            &by_kind,
            &root,
            Layer::Object,
            "ap-1=2",
        ),
        (
            annotated("federation.alpha.kubernetes.io/cluster-selector", "x"),
            &plain,
            &none,
            &none,
            Layer::Object,
            "",
        ),
        (deployment(2), &namespace, &by_kind, &root, Layer::Namespace, "us-1=2"),
        // Aimed by name, before aimed by kind.
        (deployment(2), &plain, &by_kind, &root, Layer::Workspace, "eu-1=2"),
        (deployment(2), &plain, &none, &root, Layer::Root, "ap-1=2"),
        (deployment(2), &plain, &none, &none, Layer::Default, "eu-1=2"),
    ];
    for (subject, namespace, workspace, root, layer, wanted) in cases {
        let input =
            Input { namespace, workspace, root, home: Some("eu-1"), ..Input::new(&subject, &directory) };
        let decision = decide(&input);
        assert_eq!((decision.layer, shown(&decision).as_str()), (layer, wanted), "{decision:?}");
    }
}

#[test]
fn what_cannot_be_read_moves_nothing() {
    let directory = directory(&three());
    let mut subject = deployment(3);
    subject.annotations.insert("hanse.io/placement".into(), "none".into());
    let current = current(&[("us-1", 3)]);
    let decision = decide(&Input { current: &current, ..Input::new(&subject, &directory) });
    assert!(matches!(decision.outcome, Outcome::Broken(_)));
    assert_eq!(decision.shares, current);
    assert!(Policy::read(&json!({"metadata": {"name": "p"}, "spec": {"strategy": "Somewhere"}})).is_err());
}

#[test]
fn an_account_uses_what_it_may_whatever_is_written() {
    let clusters = changed(three(), "eu-1", |it| it["spec"]["accounts"] = json!(["team-a"]));
    let directory = directory(&clusters);
    let mut subject = deployment(4);
    subject.annotations.insert("hanse.io/clusters".into(), "eu-1,us-1".into());
    for (account, wanted) in
        [(Some("team-a"), "eu-1=2 us-1=2"), (Some("team-b"), "us-1=4"), (None, "eu-1=2 us-1=2")]
    {
        let decision = decide(&Input { account, ..Input::new(&subject, &directory) });
        assert_eq!(shown(&decision), wanted, "{account:?}");
    }
}

#[test]
fn a_cluster_must_take_the_object() {
    let object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"namespace": "shop", "name": "web"},
        "spec": {"replicas": 1, "selector": {}, "template": {"spec": {
            "hostUsers": false, "priorityClassName": "high", "containers": [{"name": "a", "image": "b"}]}}},
    });
    let subject = kinds::subject(&object).unwrap();
    let fields = Fields::used(&object);
    let cases: [(Value, Option<Objection>); 6] = [
        (json!({}), None),
        (json!({"apis": [{"groupVersion": "v1", "resources": ["pods"]}]}), Some(Objection::NoGroupVersion)),
        (
            json!({"apis": [{"groupVersion": "apps/v1", "resources": ["daemonsets"]}]}),
            Some(Objection::NoResource),
        ),
        (json!({"apis": [{"groupVersion": "apps/v1", "resources": ["deployments"]}]}), None),
        (json!({"skew": {"missingFields": {"core/v1.PodSpec": ["hostUsers"]}}}), Some(Objection::LacksField)),
        (json!({"classes": {"PriorityClass": ["low"]}}), Some(Objection::NoClass(0))),
    ];
    for (status, objection) in cases {
        let clusters = changed(three()[..1].to_vec(), "ap-1", |it| {
            for (key, value) in status.as_object().unwrap() {
                it["status"][key] = value.clone();
            }
        });
        let directory = directory(&clusters);
        let input = Input { fields: &fields, ..Input::new(&subject, &directory) };
        let decision = decide(&input);
        assert_eq!(decision.verdicts.all[0].objection, objection, "{status}");
        assert_eq!(decision.is_unplaced, objection.is_some());
    }
}

#[test]
fn tolerations_run_out_in_their_time() {
    let clusters = changed(three()[1..].to_vec(), "eu-1", taint("NoExecute"));
    let directory = Directory::new(clusters.iter().map(|cluster| {
        let mut cluster = Cluster::read(cluster).unwrap();
        cluster.taints.iter_mut().for_each(|taint| taint.since = Some(1000));
        cluster
    }));
    let subject = workload("Deployment", 2, |it| {
        it["spec"]["template"]["spec"]["tolerations"] =
            json!([{"key": "k", "operator": "Exists", "tolerationSeconds": 300}]);
    });
    let current = current(&[("eu-1", 2)]);
    let at = |now| decide(&Input { current: &current, now, ..Input::new(&subject, &directory) });
    for (now, left) in [(0, 300), (1000, 300), (1299, 1)] {
        let decision = at(now);
        assert_eq!((shown(&decision).as_str(), decision.leaving["eu-1"]), ("eu-1=2", left), "{now}");
    }
    assert_eq!(shown(&at(1300)), "us-1=2");
}

#[test]
fn what_was_decided_is_reserved_until_it_is_reported() {
    let mut directory = directory(&[cluster("a", "x", 4), cluster("b", "x", 4)]);
    let policies = Policies::from([policy(json!({"strategy": "Single"}))]);
    let subject = deployment(3);
    let mut used = Vec::new();
    for _ in 0..3 {
        let decision = decide(&Input { workspace: &policies, ..Input::new(&subject, &directory) });
        for (name, amounts) in &decision.reservations {
            directory.reserve(name, amounts);
        }
        used.push(shown(&decision));
    }
    used.sort();
    assert_eq!(
        used,
        ["a=1 pending=2", "a=3", "b=3"].map(str::to_owned),
        "no two of them think that they have all the room"
    );
}

#[test]
fn an_explanation_says_what_would_change_it() {
    let mut clusters = changed(three(), "eu-1", |it| it["spec"]["unschedulable"] = json!(true));
    clusters = changed(clusters, "us-1", taint("NoSchedule"));
    clusters = changed(clusters, "ap-1", |it| it["status"]["allocatable"]["cpu"] = json!("1500m"));
    let directory = directory(&clusters);
    let subject = deployment(3);
    let policies = Policies::from([policy(json!({"strategy": "Divide"}))]);
    let input = Input { workspace: &policies, ..Input::new(&subject, &directory) };
    let text = decide(&input).explain(&input).render();
    assert_eq!(
        text,
        "Deployment shop/web: 1 replica in 1 cluster, 2 pending\n\
         Decided by a Placement of the workspace, p.\n\
         \n\
         CLUSTER  REPLICAS  HAS  ROOM  SCORE  WHY\n\
         ap-1     1         0    1     100    insufficient cpu: room for 1 replica\n\
         \n\
         Not in:\n  \
         eu-1: it is cordoned (would change it: kubectl uncordon eu-1)\n  \
         us-1: untolerated taint k=v:NoSchedule (would change it: a toleration of it)\n"
    );
}

#[test]
fn networks_are_read() {
    let network = |name: &str| {
        Cluster::read(&json!({"metadata": {"name": "a"}, "spec": {"network": name}})).unwrap().network
    };
    assert_eq!(
        [network("Flat"), network("Gateway"), network("x")],
        [Network::Flat, Network::Gateway, Network::None]
    );
    for nonsense in [json!(null), json!([]), json!({"metadata": {"name": 3}}), json!({"metadata": {}})] {
        assert!(Cluster::read(&nonsense).is_none());
    }
}
