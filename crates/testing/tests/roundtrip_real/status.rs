//! What real members say comes back onto the object that was applied.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use testing::operator::eventually;

use crate::{
    app, home, in_namespace,
    policies::{flap, space},
    world::{MEMBERS, World, condition},
};

fn kind(object: &Value) -> String {
    let group = object["apiVersion"].as_str().unwrap_or_default();
    let kind = object["kind"].as_str().unwrap_or_default();
    match group.split_once('/') {
        Some((group, version)) => format!("{kind}.{version}.{group}"),
        None => kind.to_owned(),
    }
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// A volume that a claim of [`app::claim`] takes, in a cluster that makes none by itself.
fn provide_volume(world: &World, member: &str, called: &str) {
    let volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": called},
        "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/nowhere"},
        },
    });
    world.m(member, &["apply", "-f", &world.file("volume.json", &[volume])]).ok();
}

/// One of everything, without any placement object; and nothing of ours is where a user's tools would find a difference (X3).
pub fn u1_1_x3_everything_of_an_application_without_any_placement_object(world: &World) {
    MEMBERS.iter().for_each(|member| provide_volume(world, member, "whole"));
    world.k(&["create", "ns", "whole"]).ok();
    let all = in_namespace("whole", app::everything());
    world.apply("whole.json", &all);
    world.rolled_out("whole", "web");
    let member = home(world, "whole", "web");
    for object in &all {
        let (kind, name) = (kind(object), name(object));
        // Rights are the workspace's own.
        let is_wanted = !kind.starts_with("Role");
        eventually(&format!("{kind} {name} in {member}: {is_wanted}"), || {
            let found = world.there(&member, "whole", &kind, name)["metadata"]["uid"].is_string();
            if found == is_wanted { Ok(()) } else { Err(found.to_string()) }
        });
    }
    for object in in_namespace("whole", app::web()) {
        let stored =
            world.until_in("whole", &kind(&object), name(&object), "it is there", |it| it.is_object());
        let metadata = &stored["metadata"];
        for key in ["labels", "finalizers", "ownerReferences"] {
            assert!(metadata[key].is_null(), "{key}: {metadata}");
        }
        let annotations = metadata["annotations"].as_object().into_iter().flatten();
        let annotations: Vec<&String> = annotations.map(|(key, _)| key).collect();
        assert_eq!(annotations, ["kubectl.kubernetes.io/last-applied-configuration"]);
        if object["kind"] == "Deployment" {
            assert_eq!(metadata["generation"], 1);
        }
    }
}

/// One row for each kind: what its members say by themselves, or, where there is no controller, are told to say. What is in
/// both of them is summed up. U1.6 too: whose pods are whose is told by UID.
pub fn u1_3_u1_6_the_status_of_every_kind_comes_back(world: &World) {
    const BOTH: [&str; 2] = ["m1", "m2"];
    BOTH.iter().for_each(|member| provide_volume(world, member, "said"));
    space(world, "said", "m1,m2");
    let mut balanced = app::service("balanced");
    balanced["spec"]["type"] = json!("LoadBalancer");
    let mut work = app::job("once");
    (work["spec"]["parallelism"], work["spec"]["completions"]) = (json!(2), json!(4));
    let address = |ip: &str| json!({"loadBalancer": {"ingress": [{"ip": ip}]}});
    let told = || Some([("m1", address("192.0.2.1")), ("m2", address("192.0.2.2"))]);
    let one = |pointer: &'static str, value: Value| vec![(pointer, value)];
    let both = vec![
        ("/status/loadBalancer/ingress/0/ip", json!("192.0.2.1")),
        ("/status/loadBalancer/ingress/1/ip", json!("192.0.2.2")),
    ];
    // Some time, by the clock of the member.
    const ANY: Value = Value::Null;
    // What, in how many clusters, what these are told to say, and what comes of it.
    type Row = (Value, usize, Option<[(&'static str, Value); 2]>, Vec<(&'static str, Value)>);
    let rows: Vec<Row> = vec![
        (app::deployment("web", 4), 2, None, one("/status/readyReplicas", json!(4))),
        (app::stateful_set("db", 2), 2, None, one("/status/readyReplicas", json!(2))),
        (app::daemon_set("agent"), 2, None, one("/status/numberReady", json!(2))),
        (app::replica_set("set", 2), 2, None, one("/status/readyReplicas", json!(2))),
        (work, 2, None, one("/status/succeeded", json!(4))),
        // Each time it is one pod.
        (app::cron_job("often"), 1, None, one("/status/lastScheduleTime", ANY)),
        (app::pod("bare"), 1, None, one("/status/phase", json!("Running"))),
        (app::claim("data"), 1, None, one("/status/phase", json!("Bound"))),
        (balanced, 2, told(), both.clone()),
        (app::ingress("web"), 2, told(), both),
        (app::autoscaler("web"), 2, None, one("/status/currentReplicas", json!(4))),
        (app::budget("web"), 2, None, one("/status/currentHealthy", json!(4))),
    ];
    let mut all: Vec<Value> = rows.iter().map(|row| row.0.clone()).collect();
    // What the Ingress is for.
    all.push(app::service("web"));
    world.apply("said.json", &in_namespace("said", all));
    for (object, clusters, told, expected) in &rows {
        let (kind, name) = (kind(object), name(object));
        eventually(&format!("{kind} {name} is in {clusters}"), || {
            let has = |member: &&str| world.there(member, "said", &kind, name)["metadata"]["uid"].is_string();
            let homes: Vec<&str> = MEMBERS.into_iter().filter(has).collect();
            if homes.len() == *clusters { Ok(()) } else { Err(format!("{homes:?}")) }
        });
        for (member, status) in told.iter().flatten() {
            let status = json!({"status": status}).to_string();
            let patch =
                ["patch", &kind, name, "-n", "said", "--subresource=status", "--type=merge", "-p", &status];
            world.m(member, &patch).ok();
        }
        let is_said = |it: &Value, pointer: &str, expected: &Value| {
            it.pointer(pointer).is_some_and(|it| it == expected || (*expected == ANY && !it.is_null()))
        };
        world.until_in("said", &kind, name, &format!("{expected:?}"), |it| {
            expected.iter().all(|(pointer, expected)| is_said(it, pointer, expected))
        });
    }
    for (kind, name) in
        [("statefulset", "db"), ("daemonset", "agent"), ("replicaset", "set"), ("job", "once")]
    {
        let owner = world.until_in("said", kind, name, "it is there", |it| it.is_object());
        eventually(&format!("pods of {kind} {name} in both say whose they are"), || {
            let pods = world.items("said", "pods", &format!("app={name}"));
            let is_own = |it: &Value| it["metadata"]["ownerReferences"][0]["uid"] == owner["metadata"]["uid"];
            let clusters = pods.iter().filter_map(|it| it["metadata"]["labels"]["hanse.io/cluster"].as_str());
            let is_so = clusters.collect::<BTreeSet<&str>>() == BTreeSet::from(BOTH);
            if is_so && pods.iter().all(is_own) { Ok(()) } else { Err(format!("{pods:?}")) }
        });
    }
    world.k(&["delete", "ns", "said", "--wait=false"]).ok();
}

/// Counters are sums, and the generation is that of the last to follow.
pub fn u1_4_a_cluster_that_has_not_followed_is_named(world: &World) {
    space(world, "behind", "m1,m2");
    world.apply("behind.json", &in_namespace("behind", vec![app::deployment("web", 4)]));
    world.rolled_out("behind", "web");
    let before = world.until_in("behind", "deploy", "web", "it is available", |it| {
        it["status"]["readyReplicas"] == 4 && condition(it, "Available")["status"] == "True"
    });
    let generation = before["metadata"]["generation"].as_u64().expect("a number");
    world.member("m2").link.cut();
    world.k(&["set", "image", "deploy/web", "-n", "behind", "main=example.com/main:2"]).ok();
    eventually("m1 follows", || {
        let web = world.there("m1", "behind", "deploy", "web");
        let image = &web["spec"]["template"]["spec"]["containers"][0]["image"];
        let follows = image == "example.com/main:2" && web["status"]["updatedReplicas"] == 2;
        if follows { Ok(()) } else { Err(web["status"].to_string()) }
    });
    let web = world.until_in("behind", "deploy", "web", "it says that m2 is behind", |it| {
        condition(it, "Progressing")["message"].as_str().is_some_and(|it| it.contains("m2"))
    });
    assert_eq!(web["metadata"]["generation"], generation + 1);
    assert_eq!(web["status"]["observedGeneration"], generation, "m2 has not followed: {}", web["status"]);
    world.member("m2").link.heal();
    world.rolled_out("behind", "web");
    world.until_in("behind", "deploy", "web", "both have followed", |it| {
        it["status"]["observedGeneration"] == generation + 1 && it["status"]["updatedReplicas"] == 4
    });
}

fn widgets() -> Value {
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version = json!({
        "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": any, "status": any}}},
    });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "versions": [version],
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
        },
    })
}

/// The member serves widgets from now on. What its session may do with them it asks for itself.
fn serve_widgets(world: &World, member: &str) {
    world.m(member, &["apply", "-f", &world.file("served.json", &[widgets()])]).ok();
    world
        .m(member, &["wait", "--for=condition=Established", "crd/widgets.example.com", "--timeout=60s"])
        .ok();
    // Definitions of members are looked at now and then, and when a session begins.
    flap(world, member);
}

fn widget(name: &str) -> Value {
    json!({
        "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name, "namespace": "odd"},
        "spec": {"size": 3},
    })
}

/// A member has the widget, and says this of it.
fn say(world: &World, member: &str, name: &str, status: Value) {
    eventually(&format!("{name} is in {member}"), || match world.there(member, "odd", "widget", name) {
        copy if copy["spec"] == json!({"size": 3}) => Ok(()),
        copy => Err(copy.to_string()),
    });
    let status = json!({"status": status}).to_string();
    let patch = ["patch", "widget", name, "-n", "odd", "--subresource=status", "--type=merge", "-p", &status];
    world.m(member, &patch).ok();
}

/// A kind that no member serves is said to be nowhere, until one does; then its status comes back, too. Where two serve it,
/// what all say is said, and of conditions the worst (U1.3).
pub fn u1_2_u1_3_a_kind_that_no_member_serves_is_nowhere_until_one_does(world: &World) {
    world.k(&["create", "ns", "odd"]).ok();
    world.apply("widgets.json", &[widgets()]);
    world.k(&["wait", "--for=condition=Established", "crd/widgets.example.com", "--timeout=60s"]).ok();
    let everywhere = json!({
        "apiVersion": "hanse.io/v1alpha1", "kind": "Placement", "metadata": {"name": "widgets"},
        "spec": {"select": [{"apiGroups": ["example.com"], "kinds": ["Widget"]}], "strategy": "Duplicate"},
    });
    world.apply("widget.json", &[everywhere, widget("one")]);
    eventually("an Event tells it", || {
        let said = world.k(&["get", "events", "-n", "odd"]).ok();
        if said.contains("Unplaced") && said.contains("m1: ") { Ok(()) } else { Err(said) }
    });

    serve_widgets(world, "m1");
    say(world, "m1", "one", json!({"phase": "Up"}));
    let rights = world.m("m1", &["get", "clusterrole", "hanse:session:placed", "-o", "json"]).ok();
    assert!(rights.contains("widgets"), "nobody else gave it any: {rights}");
    world.until_in("odd", "widget", "one", "what it says is said", |it| it["status"]["phase"] == "Up");

    serve_widgets(world, "m2");
    world.until("cluster", "m2", "it is known to serve it", |it| {
        it["status"]["apis"].to_string().contains("widgets")
    });
    world.apply("widget.json", &[widget("two")]);
    for (member, ready) in [("m1", "True"), ("m2", "False")] {
        let condition = json!({
            "type": "Ready", "status": ready, "reason": "Because", "message": "so it is",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        say(world, member, "two", json!({"phase": "Up", "conditions": [condition]}));
    }
    world.until_in("odd", "widget", "two", "what all say is said, and the worst condition", |it| {
        let ready = condition(it, "Ready");
        it["status"]["phase"] == "Up"
            && ready["status"] == "False"
            && ready["message"].as_str().is_some_and(|it| it.contains("m2"))
    });
    world.k(&["delete", "placement", "widgets"]).ok();
    world.k(&["delete", "ns", "odd", "--wait=false"]).ok();
}
