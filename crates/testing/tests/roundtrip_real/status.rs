//! What real members say comes back onto the object that was applied.

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

/// One row for each kind: what its member says by itself, or, where there is no controller, is told to say.
pub fn u1_3_the_status_of_every_kind_comes_back(world: &World) {
    provide_volume(world, "m1", "said");
    space(world, "said", "m1");
    let mut balanced = app::service("balanced");
    balanced["spec"]["type"] = json!("LoadBalancer");
    let address = json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}});
    // Some time, by the clock of the member.
    const ANY: Value = Value::Null;
    let rows: Vec<(Value, Option<Value>, &str, Value)> = vec![
        (app::deployment("web", 3), None, "/status/readyReplicas", json!(3)),
        (app::stateful_set("db", 2), None, "/status/readyReplicas", json!(2)),
        (app::daemon_set("agent"), None, "/status/numberReady", json!(1)),
        (app::replica_set("set", 2), None, "/status/readyReplicas", json!(2)),
        (app::job("once"), None, "/status/succeeded", json!(1)),
        (app::cron_job("often"), None, "/status/lastScheduleTime", ANY),
        (app::pod("bare"), None, "/status/phase", json!("Running")),
        (app::claim("data"), None, "/status/phase", json!("Bound")),
        (balanced, Some(address.clone()), "/status/loadBalancer/ingress/0/ip", json!("192.0.2.1")),
        (app::ingress("web"), Some(address), "/status/loadBalancer/ingress/0/ip", json!("192.0.2.1")),
        (app::autoscaler("web"), None, "/status/currentReplicas", json!(3)),
        (app::budget("web"), None, "/status/currentHealthy", json!(3)),
    ];
    world.apply("said.json", &in_namespace("said", rows.iter().map(|row| row.0.clone()).collect()));
    for (object, told, pointer, expected) in &rows {
        let (kind, name) = (kind(object), name(object));
        if let Some(status) = told {
            eventually("it is there to be told", || {
                let status = json!({"status": status}).to_string();
                let patch = [
                    "patch",
                    &kind,
                    name,
                    "-n",
                    "said",
                    "--subresource=status",
                    "--type=merge",
                    "-p",
                    &status,
                ];
                let said = world.m("m1", &patch);
                if said.done { Ok(()) } else { Err(said.text) }
            });
        }
        world.until_in("said", &kind, name, &format!("{pointer} is {expected}"), |it| {
            it.pointer(pointer).is_some_and(|it| it == expected || (*expected == ANY && !it.is_null()))
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

/// A kind that no member serves is said to be nowhere, until one does; then its status comes back, too (U1.3).
pub fn u1_2_a_kind_that_no_member_serves_is_nowhere_until_one_does(world: &World) {
    world.k(&["create", "ns", "odd"]).ok();
    world.apply("widgets.json", &[widgets()]);
    world.k(&["wait", "--for=condition=Established", "crd/widgets.example.com", "--timeout=60s"]).ok();
    let everywhere = json!({
        "apiVersion": "hanse.io/v1alpha1", "kind": "Placement", "metadata": {"name": "widgets"},
        "spec": {"select": [{"apiGroups": ["example.com"], "kinds": ["Widget"]}], "strategy": "Duplicate"},
    });
    let widget = json!({
        "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "one", "namespace": "odd"},
        "spec": {"size": 3},
    });
    world.apply("widget.json", &[everywhere, widget]);
    eventually("an Event tells it", || {
        let said = world.k(&["get", "events", "-n", "odd"]).ok();
        if said.contains("Unplaced") && said.contains("m1: ") { Ok(()) } else { Err(said) }
    });

    // Sessions have no rights to kinds that nobody knows, until the member's admin gives them.
    let rights = [
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "widgets"},
            "rules": [{"apiGroups": ["example.com"], "resources": ["widgets", "widgets/status"], "verbs": ["*"]}],
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": "widgets"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "widgets"},
            "subjects": [{"kind": "ServiceAccount", "name": "hanse-session", "namespace": "hanse-system"}],
        }),
    ];
    let all: Vec<Value> = std::iter::once(widgets()).chain(rights).collect();
    world.m("m1", &["apply", "-f", &world.file("served.json", &all)]).ok();
    world.m("m1", &["wait", "--for=condition=Established", "crd/widgets.example.com", "--timeout=60s"]).ok();
    // Definitions of members are looked at now and then, and when a session begins.
    flap(world, "m1");

    eventually("it is there", || match world.there("m1", "odd", "widget", "one") {
        copy if copy["spec"] == json!({"size": 3}) => Ok(()),
        copy => Err(copy.to_string()),
    });
    let status = json!({"status": {"phase": "Up"}}).to_string();
    let patch =
        ["patch", "widget", "one", "-n", "odd", "--subresource=status", "--type=merge", "-p", &status];
    world.m("m1", &patch).ok();
    world.until_in("odd", "widget", "one", "what it says is said", |it| it["status"]["phase"] == "Up");
    world.k(&["delete", "placement", "widgets"]).ok();
    world.k(&["delete", "ns", "odd", "--wait=false"]).ok();
}
