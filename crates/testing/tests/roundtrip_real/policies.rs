//! Where things are to be, changed and changed back, and what that costs those whom it does not concern.

use serde_json::{Value, json};
use testing::operator::eventually;

use crate::{
    app, home, in_namespace,
    world::{MEMBERS, World, condition, told},
};

/// A namespace whose workloads are in these clusters.
pub fn space(world: &World, name: &str, clusters: &str) {
    world.k(&["create", "ns", name]).ok();
    place(world, name, clusters);
}

fn place(world: &World, namespace: &str, clusters: &str) {
    let clusters = format!("hanse.io/clusters={clusters}");
    world.k(&["annotate", "ns", namespace, "--overwrite", &clusters]).ok();
}

/// What was written about one namespace so far, but for barriers and Events: by the session of each member, and in the hub.
fn marks(world: &World, namespace: &str) -> (Vec<usize>, String) {
    let is_of = |it: &Value| {
        let (object, name) = (&it["objectRef"], it["objectRef"]["name"].as_str().unwrap_or_default());
        object["namespace"] == namespace && object["resource"] != "events" && !name.starts_with("barrier-")
    };
    let writes = world.members.iter().map(|it| it.session_writes().iter().filter(|it| is_of(it)).count());
    let path = "jsonpath={range .items[*]}{.kind} {.metadata.name} {.metadata.resourceVersion}{\"\\n\"}{end}";
    let here = world.k(&["get", "deploy,cm,svc,assignments", "-n", namespace, "-o", path]).ok();
    let here: Vec<&str> = here.lines().filter(|line| !line.contains("barrier-")).collect();
    (writes.collect(), here.join("\n"))
}

fn is_lost(cluster: &Value) -> bool {
    let ready = condition(cluster, "Ready");
    ready.is_object() && ready["status"] != "True"
}

/// As far as the hub can tell, a member is away and comes back.
pub fn flap(world: &World, member: &str) {
    world.member(member).link.cut();
    world.until("cluster", member, "it is lost", is_lost);
    world.member(member).link.heal();
    world.until("cluster", member, "it is back", |it| condition(it, "Ready")["status"] == "True");
}

fn clusters_of(assignment: &Value) -> Vec<&str> {
    let clusters = assignment["spec"]["clusters"].as_array().into_iter().flatten();
    clusters.filter_map(|it| it["name"].as_str()).collect()
}

/// A cluster that something has left leaves no trace on it.
pub fn d03_nothing_of_a_cluster_stays_on_an_object_that_left_it(world: &World) {
    space(world, "traces", "m1,m2");
    world.apply("traces.json", &in_namespace("traces", vec![app::deployment("web", 4)]));
    world.rolled_out("traces", "web");
    world.until_in("traces", "assignment", "deployments.apps.web", "both say what they have", |it| {
        it["status"]["clusters"].as_array().is_some_and(|it| it.len() == 2)
    });
    place(world, "traces", "m1");
    let assignment =
        world.until_in("traces", "assignment", "deployments.apps.web", "nothing is said of m2", |it| {
            clusters_of(it) == ["m1"] && !it["status"].to_string().contains("\"m2\"")
        });
    assert!(!assignment["metadata"]["labels"].to_string().contains("m2"), "{}", assignment["metadata"]);
    world.rolled_out("traces", "web");
    let web = world.until_in("traces", "deploy", "web", "nor on the object", |it| {
        it["status"]["readyReplicas"] == 4 && !it["status"].to_string().contains("m2")
    });
    assert!(!web["metadata"]["managedFields"].to_string().contains("m2"));
    world.until_gone_there("m2", "traces", &["deploy,rs,pods"]);
}

/// Annotations and labels that come, change and go: each is a change, in both directions.
pub fn d04_what_changes_a_copy_and_what_does_not(world: &World) {
    space(world, "edits", "m1");
    world.apply("edits.json", &in_namespace("edits", app::web()));
    world.rolled_out("edits", "web");
    for value in [json!("a"), json!("b"), Value::Null] {
        let patch = json!({"metadata": {"annotations": {"example.com/x": value}, "labels": {"x": value}}});
        let patch = patch.to_string();
        world.k(&["patch", "configmap", "settings", "-n", "edits", "--type=merge", "-p", &patch]).ok();
        eventually(&format!("it follows to {value}"), || {
            let metadata = world.there("m1", "edits", "configmap", "settings")["metadata"].clone();
            let follows =
                metadata["annotations"]["example.com/x"] == value && metadata["labels"]["x"] == value;
            if follows && metadata["uid"].is_string() { Ok(()) } else { Err(metadata.to_string()) }
        });
    }
    // Hanse's own do not travel, and a status is none.
    world.barrier("edits", 1, &["m1"]);
    let (before, _) = marks(world, "edits");
    world.k(&["annotate", "configmap", "settings", "-n", "edits", "hanse.io/note=here"]).ok();
    let status = json!({"status": {"collisionCount": 7}}).to_string();
    let patch =
        ["patch", "deploy", "web", "-n", "edits", "--subresource=status", "--type=merge", "-p", &status];
    world.k(&patch).ok();
    world.barrier("edits", 2, &["m1"]);
    assert_eq!(marks(world, "edits").0, before);
    let copy = world.there("m1", "edits", "configmap", "settings");
    assert!(!copy.to_string().contains("hanse.io/note"), "{copy}");
    world.rolled_out("edits", "web");
}

/// Somebody's finalizer holds an object that is to go, while it is spread over two clusters.
pub fn d06_an_object_that_waits_for_a_finalizer_makes_no_work(world: &World) {
    space(world, "held", "m1,m2");
    world.apply("held.json", &in_namespace("held", vec![app::deployment("web", 4)]));
    world.rolled_out("held", "web");
    let hold = json!({"metadata": {"finalizers": ["example.com/hold"]}}).to_string();
    world.k(&["patch", "deploy", "web", "-n", "held", "--type=merge", "-p", &hold]).ok();
    world.k(&["delete", "deploy", "web", "-n", "held", "--wait=false"]).ok();
    world.until_in("held", "deploy", "web", "it is being deleted", |it| {
        it["metadata"]["deletionTimestamp"].is_string()
    });
    world.barrier("held", 1, &["m1", "m2"]);
    let mut before = marks(world, "held");
    // What it came to is told once more; after that there is nothing to tell.
    eventually("it comes to rest", || {
        world.barrier("held", 2, &["m1", "m2"]);
        let now = marks(world, "held");
        let rests = now == before;
        before = now;
        if rests { Ok(()) } else { Err(format!("{before:?}")) }
    });
    for round in 3..6 {
        world.barrier("held", round, &["m1", "m2"]);
        assert_eq!(marks(world, "held"), before);
    }
    let free = json!({"metadata": {"finalizers": null}}).to_string();
    world.k(&["patch", "deploy", "web", "-n", "held", "--type=merge", "-p", &free]).ok();
    world.k(&["wait", "--for=delete", "deploy/web", "-n", "held", "--timeout=120s"]).ok();
    for member in ["m1", "m2"] {
        world.until_gone_there(member, "held", &["deploy,rs,pods"]);
    }
}

/// A member that comes and goes: what is not there is not looked at (X5); who waits for it is woken (D7).
pub fn d07_x5_a_flapping_member_concerns_those_who_are_there_or_wait_for_it(world: &World) {
    space(world, "calm", "m1");
    world.apply("calm.json", &in_namespace("calm", app::web()));
    world.rolled_out("calm", "web");
    world.k(&["create", "ns", "waits"]).ok();
    let mut waiting = app::deployment("waiting", 1);
    waiting["metadata"]["annotations"] = json!({"hanse.io/clusters": "m2"});
    world.barrier("calm", 1, &["m1"]);
    let before = marks(world, "calm");

    flap(world, "m2");
    world.member("m2").link.cut();
    world.until("cluster", "m2", "it is lost", is_lost);
    world.apply("waits.json", &in_namespace("waits", vec![waiting]));
    world.member("m2").link.heal();

    world.rolled_out("waits", "waiting");
    world.barrier("calm", 2, &["m1"]);
    assert_eq!(marks(world, "calm"), before);
}

/// To another cluster and back, before and after it got there: nothing that pods need is missing.
pub fn d12_there_and_back_again_misses_nothing(world: &World) {
    space(world, "back", "m1");
    world.apply("back.json", &in_namespace("back", app::web()));
    world.rolled_out("back", "web");
    for waits in [false, true] {
        place(world, "back", "m2");
        if waits {
            eventually("it got there", || match world.there("m2", "back", "deploy", "web") {
                web if web["status"]["readyReplicas"] == 3 => Ok(()),
                web => Err(web["status"].to_string()),
            });
        }
        place(world, "back", "m1");
        world.until_in("back", "assignment", "deployments.apps.web", "it is back", |it| {
            clusters_of(it) == ["m1"]
        });
        world.rolled_out("back", "web");
    }
    for object in ["configmap/settings", "secret/password", "deploy/web", "svc/web"] {
        world.m("m1", &["get", object, "-n", "back"]).ok();
        world.until_gone_there("m2", "back", &[object]);
    }
    eventually("its pods run", || match world.pods("m1", "back") {
        pods if pods.len() == 3 => Ok(()),
        pods => Err(format!("{pods:?}")),
    });
}

/// Objects that are applied in the moment after their namespace.
pub fn d13_what_is_made_just_after_its_namespace_is_placed(world: &World) {
    let names: Vec<String> = (0..8).map(|number| format!("quick-{number}")).collect();
    let all: Vec<Value> = names
        .iter()
        .flat_map(|name| {
            let objects =
                in_namespace(name, vec![app::config_map("settings", "one"), app::deployment("web", 1)]);
            std::iter::once(app::namespace(name)).chain(objects)
        })
        .collect();
    world.apply("quick.json", &all);
    for name in &names {
        for assignment in ["configmaps.settings", "deployments.apps.web"] {
            world.until_in(name, "assignment", assignment, "it is placed", |it| {
                it["status"]["clusters"][0]["applied"] == true
            });
        }
        world.k(&["delete", "ns", name, "--wait=false"]).ok();
    }
}

/// Who decides is named, from the default to the object's own word, and back.
pub fn s3_1_layers_of_policy_and_the_one_that_decided_is_named(world: &World) {
    let decided = |layer: &str, cluster: Option<&str>| {
        world.until_in("layers", "assignment", "deployments.apps.web", &format!("{layer} decides"), |it| {
            let is_there = cluster.is_none_or(|cluster| clusters_of(it) == [cluster]);
            it["spec"]["decision"]["layer"] == layer && is_there
        })
    };
    let on = |cluster: &str, name: &str| {
        let policy = json!({
            "apiVersion": "hanse.io/v1alpha1", "kind": "Placement", "metadata": {"name": name},
            "spec": {
                "select": [{"kinds": ["Deployment"], "namespaces": ["layers"]}], "clusters": {"names": [cluster]},
            },
        });
        world.file("layers-policy.json", &[policy])
    };
    world.k(&["create", "ns", "layers"]).ok();
    world.apply("layers.json", &in_namespace("layers", vec![app::deployment("web", 1)]));
    decided("Default", None);
    world.w("root", &["apply", "-f", &on("m1", "layers-of-root")]).ok();
    let by_root = decided("Root", Some("m1"));
    assert_eq!(by_root["spec"]["decision"]["policy"], "layers-of-root");
    world.k(&["apply", "-f", &on("m2", "layers-on-m2")]).ok();
    let by_policy = decided("Workspace", Some("m2"));
    assert_eq!(by_policy["spec"]["decision"]["policy"], "layers-on-m2");
    place(world, "layers", "m1");
    decided("Namespace", Some("m1"));
    world.k(&["annotate", "deploy", "web", "-n", "layers", "hanse.io/clusters=m2"]).ok();
    decided("Object", Some("m2"));
    world.k(&["annotate", "deploy", "web", "-n", "layers", "hanse.io/clusters-"]).ok();
    decided("Namespace", Some("m1"));
    world.k(&["annotate", "ns", "layers", "hanse.io/clusters-"]).ok();
    decided("Workspace", Some("m2"));
    world.k(&["delete", "placement", "layers-on-m2"]).ok();
    decided("Root", Some("m1"));
    world.w("root", &["delete", "placement", "layers-of-root"]).ok();
    // With nothing said, it stays where it is.
    decided("Default", Some("m1"));
    world.rolled_out("layers", "web");
}

/// Clusters change that are no business of what runs.
pub fn s3_3_unrelated_clusters_move_nothing(world: &World) {
    world.k(&["create", "ns", "still"]).ok();
    world.apply("still.json", &in_namespace("still", app::web()));
    world.rolled_out("still", "web");
    let here = home(world, "still", "web");
    let other = MEMBERS.into_iter().find(|it| *it != here).expect("there are three");
    world.barrier("still", 1, &MEMBERS);
    let before = marks(world, "still");
    for patch in [
        json!({"metadata": {"labels": {"new": "label"}}}),
        json!({"spec": {"unschedulable": true}}),
        json!({"spec": {"unschedulable": false}}),
        json!({"metadata": {"labels": {"new": null}}}),
    ] {
        world.k(&["patch", "cluster", other, "--type=merge", "-p", &patch.to_string()]).ok();
    }
    world.barrier("still", 2, &MEMBERS);
    assert_eq!(marks(world, "still"), before);
}

/// What one object says of itself takes it to another cluster as well, and nothing else but what it needs; and no cluster
/// is opened by it that is closed to whoever says so.
pub fn s3_4_what_an_object_says_is_additive_and_limited(world: &World) {
    space(world, "adds", "m1");
    let all = vec![app::deployment("web", 2), app::deployment("other", 2)];
    world.apply("adds.json", &in_namespace("adds", all));
    ["web", "other"].iter().for_each(|name| world.rolled_out("adds", name));
    let before = world.pods("m1", "adds");
    assert_eq!(before.len(), 4);
    // In one step: what is there is divided between all that are named.
    let grow = json!({"metadata": {"annotations": {"hanse.io/clusters": "m1,m2"}}, "spec": {"replicas": 4}});
    world.k(&["patch", "deploy", "web", "-n", "adds", "--type=merge", "-p", &grow.to_string()]).ok();
    world.rolled_out("adds", "web");
    eventually("it is there as well", || match world.there("m2", "adds", "deploy", "web") {
        web if web["status"]["readyReplicas"] == 2 => Ok(()),
        web => Err(web["status"].to_string()),
    });
    assert_eq!(world.pods("m1", "adds"), before, "nothing moved");
    assert!(world.there("m2", "adds", "deploy", "other").is_null());
    world.k(&["delete", "ns", "adds", "--wait=false"]).ok();

    // One who has an account is given what is open to it, whatever it says.
    let open_to = |accounts: Value| {
        let patch = json!({"spec": {"accounts": accounts}}).to_string();
        world.k(&["patch", "cluster", "m3", "--type=merge", "-p", &patch]).ok();
    };
    open_to(json!(["others"]));
    world.create_workspace("adders");
    let mut web = app::deployment("web", 2);
    web["metadata"]["annotations"] = json!({"hanse.io/clusters": "m1,m3"});
    world.w("adders", &["create", "ns", "limited"]).ok();
    let file = world.file("limited.json", &in_namespace("limited", vec![web]));
    world.w("adders", &["apply", "-f", &file]).ok();
    world.w("adders", &["rollout", "status", "-n", "limited", "deploy/web", "--timeout=300s"]).ok();
    let said =
        world.w("adders", &["get", "assignment", "deployments.apps.web", "-n", "limited", "-o", "json"]).ok();
    let assignment: Value = serde_json::from_str(&said).expect("kubectl writes JSON");
    assert_eq!(clusters_of(&assignment), ["m1"], "{assignment}");
    assert!(said.contains("adders may not use it"), "{assignment}");
    assert!(world.there("m3", "limited", "deploy", "web").is_null());
    world.delete_workspace("adders");
    open_to(Value::Null);
}

/// Each transition is told once, in order.
pub fn s1_2_every_transition_is_told(world: &World) {
    space(world, "steps", "m1");
    world.apply("steps.json", &in_namespace("steps", vec![app::deployment("web", 3)]));
    world.rolled_out("steps", "web");
    place(world, "steps", "m2");
    let expected = ["Placed: on m1 (3)", "Moved: from m1 to m2 (3)", "Drained: nothing of it is left in m1"]
        .map(str::to_owned);
    eventually("all of them are told", || {
        let said = world.k(&["get", "events", "-n", "steps", "-o", "json"]).ok();
        let list: Value = serde_json::from_str(&said).expect("a list");
        let mut events: Vec<&Value> = list["items"].as_array().into_iter().flatten().collect();
        events.retain(|it| {
            it["involvedObject"]["name"] == "web" && it["source"]["component"] == "hanse-placement"
        });
        let version =
            |it: &Value| it["metadata"]["resourceVersion"].as_str().and_then(|it| it.parse::<u64>().ok());
        events.sort_by_key(|it| version(it));
        let word = |it: &Value, key: &str| it[key].as_str().unwrap_or_default().to_owned();
        let told: Vec<String> =
            events.iter().map(|it| format!("{}: {}", word(it, "reason"), word(it, "message"))).collect();
        if told == expected { Ok(()) } else { Err(format!("{told:?}")) }
    });
    world.until_gone_there("m1", "steps", &["deploy,rs,pods"]);
}

/// A policy that nothing can satisfy says so on what it selects, and what runs goes on until it can.
pub fn impossible_policies_are_told_and_end_nothing(world: &World) {
    space(world, "dreams", "m1");
    world.apply("dreams.json", &in_namespace("dreams", vec![app::deployment("web", 2)]));
    world.rolled_out("dreams", "web");
    let pods = world.pods("m1", "dreams");
    place(world, "dreams", "atlantis");
    world.until_in("dreams", "deploy", "web", "it is told", |it| {
        condition(it, "Synced")["message"].as_str().is_some_and(|it| it.contains("atlantis"))
    });
    world.barrier("dreams", 1, &["m1"]);
    assert_eq!(world.pods("m1", "dreams"), pods, "it runs on");
    place(world, "dreams", "m1");
    world
        .until_in("dreams", "deploy", "web", "nothing is in the way", |it| condition(it, "Synced").is_null());
    assert_eq!(world.pods("m1", "dreams"), pods);
}

/// A member is unjoined, its work is done elsewhere, and it is joined again: nothing there is revived, made or ended.
pub fn d08_a_member_that_is_joined_again_revives_nothing(world: &World) {
    world.k(&["create", "ns", "leaves"]).ok();
    world.apply("leaves.json", &in_namespace("leaves", app::web()));
    world.rolled_out("leaves", "web");
    let left = home(world, "leaves", "web");
    let pods = world.pods(&left, "leaves");
    world.operator.hanse(&["unjoin", &left]).ok();
    world.until_in("leaves", "assignment", "deployments.apps.web", "it is elsewhere", |it| {
        !clusters_of(it).is_empty() && !clusters_of(it).contains(&left.as_str())
    });
    world.rolled_out("leaves", "web");
    let elsewhere = home(world, "leaves", "web");
    let before = world.member(&left).session_writes().len();

    world.join(&left);
    world.barrier("leaves", 1, &MEMBERS);

    let mut revived = world.member(&left).session_writes().split_off(before);
    revived.retain(|it| it["objectRef"]["namespace"] == "leaves" && it["objectRef"]["name"] != "barrier-1");
    assert!(revived.is_empty(), "{:?}", told(&revived));
    assert_eq!(world.pods(&left, "leaves"), pods);
    assert_eq!(home(world, "leaves", "web"), elsewhere);
    let web = world.until_in("leaves", "deploy", "web", "three run", |it| it["status"]["replicas"] == 3);
    assert!(condition(&web, "Synced").is_null(), "{}", web["status"]);
}
