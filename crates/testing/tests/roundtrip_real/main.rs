//! The round trip on three real control planes with kwok, by the real program and kubectl. What was written in a
//! member is what its own audit log says.

#![allow(clippy::disallowed_methods)] // Tests run on the real machine.

#[path = "../roundtrip/app.rs"]
#[allow(dead_code)] // Others use the rest of it.
mod app;
mod leaving;
mod policies;
mod refusals;
mod status;
mod tenants;
mod world;

use std::time::Duration;

use serde_json::{Value, json};
use testing::operator::eventually;

use world::{MEMBERS, Promise, World, condition, told};

/// One world for all of them, since control planes take their time to start; each has a namespace of its own.
#[test]
fn scenarios_on_three_real_clusters() {
    let mut world = World::start();
    scenario_01_first_apply_without_placement_objects(&world);
    scenario_02_applying_the_same_again_writes_nothing(&world);
    scenario_06_spread_two_to_one_and_scale(&world);
    scenario_07_honest_status(&world);
    scenario_10_deletion_in_all_ways(&world);
    d05_x2_the_same_name_is_not_the_same_object(&world);
    s1_1_assignments_are_written_by_hanse_alone(&world);
    refusals::u1_7_d09_x4_what_a_member_refuses_is_told_until_it_is_put_right(&world);
    refusals::bad_input_unknown_clusters_and_names_too_long(&world);
    tenants::scenario_19_d11_s2_1_two_workspaces_with_equal_names(&world);
    scenario_12_a_partition_with_restarts(&mut world);
    leaving::x6_members_go_on_without_the_hub(&mut world);
    leaving::d14_deleting_a_workspace_with_a_dead_member(&world);
    leaving::scenario_11_deleting_a_namespace_with_a_dead_member(&world);
    leaving::x1_an_older_backup_deletes_nothing(&mut world);
    x2_every_write_names_the_uid(&world);
}

/// Defects and requirements that simulated members show as well, one after the other for the same reason.
#[test]
#[ignore = "takes minutes; the lane members-long runs it"]
fn what_simulated_members_show_on_three_real_clusters() {
    let world = World::start();
    scenario_06_an_autoscaler_changes_only_the_total(&world);
    status::u1_1_x3_everything_of_an_application_without_any_placement_object(&world);
    status::u1_3_u1_6_the_status_of_every_kind_comes_back(&world);
    status::u1_4_a_cluster_that_has_not_followed_is_named(&world);
    status::u1_2_u1_3_a_kind_that_no_member_serves_is_nowhere_until_one_does(&world);
    policies::d03_nothing_of_a_cluster_stays_on_an_object_that_left_it(&world);
    policies::d04_what_changes_a_copy_and_what_does_not(&world);
    policies::d06_an_object_that_waits_for_a_finalizer_makes_no_work(&world);
    policies::d07_x5_a_flapping_member_concerns_those_who_are_there_or_wait_for_it(&world);
    policies::d12_there_and_back_again_misses_nothing(&world);
    policies::d13_what_is_made_just_after_its_namespace_is_placed(&world);
    policies::s1_2_every_transition_is_told(&world);
    policies::s3_1_layers_of_policy_and_the_one_that_decided_is_named(&world);
    policies::s3_3_unrelated_clusters_move_nothing(&world);
    policies::s3_4_what_an_object_says_is_additive_and_limited(&world);
    policies::impossible_policies_are_told_and_end_nothing(&world);
    refusals::bad_input_a_policy_that_no_cluster_satisfies(&world);
    tenants::d02_a_tenant_brings_classes_to_a_cluster_of_the_platform_only_if_they_are_admitted(&world);
    policies::d08_a_member_that_is_joined_again_revives_nothing(&world);
    leaving::scenario_11_what_is_left_over_goes_by_command_only(&world);
    x2_every_write_names_the_uid(&world);
}

/// The same objects in another namespace.
fn in_namespace(namespace: &str, mut objects: Vec<Value>) -> Vec<Value> {
    objects.iter_mut().for_each(|it| it["metadata"]["namespace"] = json!(namespace));
    objects
}

fn running(world: &World, namespace: &str) -> Vec<usize> {
    MEMBERS.iter().map(|member| world.pods(member, namespace).len()).collect()
}

fn home(world: &World, namespace: &str, name: &str) -> String {
    let assignment = format!("deployments.apps.{name}");
    let ask = ["get", "-n", namespace, "assignment", &assignment, "-o", "jsonpath={.spec.clusters[*].name}"];
    world.k(&ask).ok()
}

fn scenario_01_first_apply_without_placement_objects(world: &World) {
    world.k(&["create", "ns", "shop"]).ok();
    world.apply("app.json", &in_namespace("shop", app::web()));
    world.rolled_out("shop", "web");
    let table = eventually("three pods run", || {
        let said = world.k(&["get", "pods", "-n", "shop", "--no-headers"]).ok();
        let rows = said.lines().filter(|line| line.contains("Running")).count();
        if rows == 3 { Ok(said) } else { Err(said) }
    });
    let names: std::collections::BTreeSet<&str> =
        table.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(names.len(), 3, "{table}");
    let generations = world
        .k(&[
            "get",
            "deploy",
            "web",
            "-n",
            "shop",
            "-o",
            "jsonpath={.metadata.generation}/{.status.observedGeneration}",
        ])
        .ok();
    assert_eq!(generations.split_once('/').map(|it| it.0 == it.1), Some(true), "{generations}");
    let mut counts = running(world, "shop");
    counts.sort_unstable();
    assert_eq!(counts, [0, 0, 3], "one of them runs all");
}

fn scenario_02_applying_the_same_again_writes_nothing(world: &World) {
    let file = world.file("app.json", &in_namespace("shop", app::web()));
    world.barrier("shop", 1, &MEMBERS);
    let member = home(world, "shop", "web");
    let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
    let versions = || {
        let here = world.until_in("shop", "deploy", "web", "it is there", |it| it["spec"].is_object());
        (version(&here), version(&world.there(&member, "shop", "deploy", "web")))
    };
    let writes: Vec<usize> = world.members.iter().map(|it| it.session_writes().len()).collect();
    // After the first of its kind, which may say who manages what.
    for way in [&["apply"][..], &["apply", "--server-side", "--force-conflicts"]] {
        let apply = || world.k(&[way, &["-f", &file]].concat()).ok();
        apply();
        let before = versions();
        for _ in 0..20 {
            apply();
            world.k(&["diff", "-f", &file]).ok();
        }
        assert_eq!(versions(), before, "{way:?}: in the hub, and of the copy");
    }
    world.barrier("shop", 2, &MEMBERS);
    for (member, before) in world.members.iter().zip(writes) {
        let mut new = member.session_writes().split_off(before);
        new.retain(|it| it["objectRef"]["name"] != "barrier-2" && it["objectRef"]["resource"] != "events");
        assert!(new.is_empty(), "{}: {:?}", member.name, told(&new));
    }
}

fn two_to_one(namespace: &str) -> Value {
    json!({
        "apiVersion": "hanse.io/v1alpha1", "kind": "Placement", "metadata": {"name": format!("two-to-one-{namespace}")},
        "spec": {
            "select": [{"kinds": ["Deployment"], "namespaces": [namespace]}],
            "clusters": {"names": ["m1", "m2"]},
            "strategy": "Divide",
            "divide": {"by": "Weight", "rebalance": true, "shares": [
                {"cluster": "m1", "weight": 2}, {"cluster": "m2", "weight": 1},
            ]},
        },
    })
}

fn scenario_06_spread_two_to_one_and_scale(world: &World) {
    world.k(&["create", "ns", "spread"]).ok();
    world.apply("placement.json", &[two_to_one("spread")]);
    world.apply("spread.json", &in_namespace("spread", vec![app::deployment("web", 3)]));
    world.rolled_out("spread", "web");
    world.k(&["scale", "-n", "spread", "deploy/web", "--replicas=7"]).ok();
    world.rolled_out("spread", "web");
    let table = world.k(&["get", "deploy", "web", "-n", "spread", "--no-headers"]).ok();
    assert!(table.contains("7/7"), "{table}");
    // A cluster that did not answer for a moment has its share later.
    eventually("five, two and none", || match running(world, "spread") {
        counts if counts == [5, 2, 0] => Ok(()),
        counts => Err(format!("{counts:?}")),
    });
    // The same each time.
    let names: Vec<String> = (0..10).map(|round| format!("again-{round}")).collect();
    let again = names.iter().map(|name| app::deployment(name, 7)).collect();
    world.apply("again-and-again.json", &in_namespace("spread", again));
    for name in &names {
        let name = format!("deployments.apps.{name}");
        world.until_in("spread", "assignment", &name, "five and two", |it| {
            shares(it) == [("m1", 5), ("m2", 2)]
        });
    }
    let file = world.file(
        "again-and-again.json",
        &in_namespace("spread", names.iter().map(|name| app::deployment(name, 7)).collect()),
    );
    world.k(&["delete", "-f", &file]).ok();
}

/// Where an Assignment has its object, with the replicas of each.
fn shares(assignment: &Value) -> Vec<(&str, u64)> {
    let clusters = assignment["spec"]["clusters"].as_array().into_iter().flatten();
    clusters.filter_map(|it| Some((it["name"].as_str()?, it["replicas"].as_u64()?))).collect()
}

/// Nobody measures pods here. That there are to be more than there are needs no measure: each cluster has its part of them,
/// and pods that were there go on.
fn scenario_06_an_autoscaler_changes_only_the_total(world: &World) {
    world.k(&["create", "ns", "scaled"]).ok();
    world.apply("scaled-placement.json", &[two_to_one("scaled")]);
    world.apply("scaled.json", &in_namespace("scaled", vec![app::deployment("web", 3)]));
    world.rolled_out("scaled", "web");
    let until_pods = |expected: [usize; 3]| {
        eventually(&format!("{expected:?} pods"), || {
            let pods = MEMBERS.map(|member| world.pods(member, "scaled"));
            if pods.each_ref().map(|it| it.len()) == expected { Ok(pods) } else { Err(format!("{pods:?}")) }
        })
    };
    let before = until_pods([2, 1, 0]);

    let mut autoscaler = app::autoscaler("web");
    (autoscaler["spec"]["minReplicas"], autoscaler["spec"]["maxReplicas"]) = (json!(9), json!(12));
    world.apply("autoscaler.json", &in_namespace("scaled", vec![autoscaler]));

    world.until_in("scaled", "deploy", "web", "there are to be nine, and nine run", |it| {
        it["spec"]["replicas"] == 9 && it["status"]["readyReplicas"] == 9
    });
    let after = until_pods([6, 3, 0]);
    for (before, after) in before.iter().zip(&after) {
        assert!(before.is_subset(after), "{before:?} {after:?}");
    }
    world.until_in("scaled", "assignment", "deployments.apps.web", "six and three", |it| {
        shares(it) == [("m1", 6), ("m2", 3)]
    });
}

/// Also U1.5: what each cluster says of it is there to be read; and which cluster a pod is in, and whose it is (U1.6).
fn s1_1_assignments_are_written_by_hanse_alone(world: &World) {
    let patch = json!({"spec": {"clusters": []}}).to_string();
    let write = ["patch", "assignment", "deployments.apps.web", "-n", "spread", "--type=merge", "-p", &patch];
    let said = world.k(&write);
    assert!(
        !said.done && (said.text.contains("orbidden") || said.text.contains("not allowed")),
        "{}",
        said.text
    );
    let found =
        world.k(&["get", "assignments", "-n", "spread", "-l", "cluster.hanse.io/m2", "-o", "name"]).ok();
    assert!(found.contains("deployments.apps.web"), "{found}");
    world.until_in("spread", "assignment", "deployments.apps.web", "each says what it has", |it| {
        let mut reports = it["status"]["clusters"].as_array().cloned().unwrap_or_default();
        reports.sort_by_key(|it| it["name"].to_string());
        let ready: Vec<(&Value, &Value)> =
            reports.iter().map(|it| (&it["name"], &it["status"]["readyReplicas"])).collect();
        ready == [(&json!("m1"), &json!(5)), (&json!("m2"), &json!(2))]
    });
    let path = "jsonpath={range .items[*]}{.metadata.labels.hanse\\.io/cluster}:{.metadata.ownerReferences[0].kind} {end}";
    let pods = world.k(&["get", "pods", "-n", "spread", "-l", "app=web", "-o", path]).ok();
    assert_eq!(pods.matches("m1:ReplicaSet").count(), 5, "{pods}");
    assert_eq!(pods.matches("m2:ReplicaSet").count(), 2, "{pods}");
    let web = world.until_in("spread", "deploy", "web", "it is there", |it| it.is_object());
    let owner = |it: &Value| it["metadata"]["ownerReferences"][0]["uid"].clone();
    eventually("the pods are of its ReplicaSets", || {
        let (sets, pods) = (world.items("spread", "rs", "app=web"), world.items("spread", "pods", "app=web"));
        let own = sets.iter().filter(|it| owner(it) == web["metadata"]["uid"]);
        let own: Vec<&Value> = own.map(|it| &it["metadata"]["uid"]).collect();
        let is_own = |pod: &Value| own.contains(&&owner(pod));
        if pods.len() == 7 && pods.iter().all(is_own) { Ok(()) } else { Err(format!("{sets:?} {pods:?}")) }
    });
}

/// Nodes that kwok pretends to be pull no images: in m2 no node is good enough instead.
fn scenario_07_honest_status(world: &World) {
    world.k(&["create", "ns", "honest"]).ok();
    let broken = json!({
        "apiVersion": "hanse.io/v1alpha1", "kind": "Override", "metadata": {"name": "no-node-in-m2"},
        "spec": {
            "select": [{"kinds": ["Deployment"], "namespaces": ["honest"]}],
            "clusters": {"names": ["m2"]},
            "patches": [{"op": "add", "path": "/spec/template/spec/nodeSelector", "value": {"no-such": "node"}}],
        },
    });
    world.apply("honest-policy.json", &[two_to_one("honest"), broken]);
    world.apply("honest.json", &in_namespace("honest", vec![app::deployment("web", 7)]));
    world.until_in("honest", "deploy", "web", "five of seven, and m2 is named", |it| {
        let progressing = condition(it, "Progressing");
        it["status"]["readyReplicas"] == 5
            && it["status"]["unavailableReplicas"] == 2
            && condition(it, "Available")["status"] == "False"
            && progressing["message"].as_str().is_some_and(|it| it.contains("m2"))
    });
    let table = world.k(&["get", "deploy", "web", "-n", "honest", "--no-headers"]).ok();
    assert!(table.contains("5/7"), "{table}");
    let tells = |said: String| if said.contains("FailedScheduling") { Ok(()) } else { Err(said) };
    let events = ["get", "events", "-n", "honest"];
    eventually("the member tells it", || tells(world.m("m2", &events).ok()));
    let promise = Promise::within(Duration::from_secs(10));
    promise.kept("the member's event shows", || tells(world.k(&events).ok()));
}

fn scenario_10_deletion_in_all_ways(world: &World) {
    world.k(&["create", "ns", "ends"]).ok();
    world.k(&["annotate", "ns", "ends", "hanse.io/clusters=m1"]).ok();
    let names = ["background", "foreground", "orphan"];
    world.apply("ends.json", &in_namespace("ends", names.map(|name| app::deployment(name, 2)).to_vec()));
    names.iter().for_each(|name| world.rolled_out("ends", name));
    let of = |name: &str| format!("app={name}");

    world.k(&["delete", "-n", "ends", "deploy/foreground", "--cascade=foreground"]).ok();
    let left =
        world.m("m1", &["get", "pods,rs,deploy", "-n", "ends", "-l", &of("foreground"), "-o", "name"]).ok();
    assert_eq!(left.trim().replace("No resources found in ends namespace.", ""), "", "it returned only then");

    let path = "jsonpath={.metadata.uid}";
    let uid = world.k(&["get", "-n", "ends", "deploy/background", "-o", path]).ok();
    let promise = Promise::within(Duration::from_secs(30));
    world.k(&["delete", "-n", "ends", "deploy/background"]).ok();
    promise.kept("nothing is left with the mark of it", || {
        let left: Vec<String> = MEMBERS.iter().flat_map(|member| marked(world, member, &uid)).collect();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    });
    world.until_gone_there("m1", "ends", &["pods,rs,deploy", "-l", &of("background")]);
    world.until_gone_there("m1", "ends", &["deploy/background"]);

    let uids = || {
        world
            .m(
                "m1",
                &[
                    "get",
                    "rs,pods",
                    "-n",
                    "ends",
                    "-l",
                    &of("orphan"),
                    "-o",
                    "jsonpath={.items[*].metadata.uid}",
                ],
            )
            .ok()
    };
    let before = uids();
    world.k(&["delete", "-n", "ends", "deploy/orphan", "--cascade=orphan"]).ok();
    world.until_gone_there("m1", "ends", &["deploy/orphan"]);
    world.barrier("ends", 1, &["m1"]);
    assert_eq!(uids(), before, "the ReplicaSet and its pods stay");
}

/// What a member has that says it is a copy of this object.
fn marked(world: &World, member: &str, uid: &str) -> Vec<String> {
    let all = ["get", "deploy,rs,pods,svc,cm,secret,sa", "-A", "-o", "json"];
    let all: Value = serde_json::from_str(&world.m(member, &all).ok()).expect("a list");
    let all = all["items"].as_array().into_iter().flatten();
    let marked = all.filter(|it| it["metadata"]["annotations"]["hanse.io/source-uid"] == uid);
    marked.map(|it| format!("{member}: {} {}", it["kind"], it["metadata"]["name"])).collect()
}

fn d05_x2_the_same_name_is_not_the_same_object(world: &World) {
    world.m("m1", &["create", "ns", "shared"]).ok();
    world.m("m1", &["create", "configmap", "settings", "-n", "shared", "--from-literal=of=theirs"]).ok();
    let theirs = world.there("m1", "shared", "configmap", "settings");
    world.k(&["create", "ns", "shared"]).ok();
    let ours = |name: &str, value: usize| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": {"round": value.to_string()},
            "metadata": {"name": name, "namespace": "shared", "annotations": {"hanse.io/clusters": "m1"}},
        })
    };
    world.apply("ours.json", &[ours("settings", 0)]);
    eventually("the conflict is told, with what to do", || {
        let said = world.k(&["get", "events", "-n", "shared"]).ok();
        if said.contains("Conflict") && said.contains("hanse.io/adopt") { Ok(()) } else { Err(said) }
    });
    world.k(&["delete", "configmap", "settings", "-n", "shared"]).ok();
    world.barrier("shared", 1, &["m1"]);
    assert_eq!(world.there("m1", "shared", "configmap", "settings"), theirs, "it was left alone");

    // Deleted and made again, over and over: the last one stays.
    for round in 0..10 {
        world.k(&["delete", "configmap", "again", "-n", "shared", "--ignore-not-found"]).ok();
        world.apply("again.json", &[ours("again", round)]);
    }
    let last = world.k(&["get", "configmap", "again", "-n", "shared", "-o", "jsonpath={.metadata.uid}"]).ok();
    let copy = eventually("the last one arrives", || {
        let copy = world.there("m1", "shared", "configmap", "again");
        match copy["metadata"]["annotations"]["hanse.io/source-uid"] == last {
            true => Ok(copy),
            false => Err(copy.to_string()),
        }
    });
    world.barrier("shared", 2, &["m1"]);
    let now = world.there("m1", "shared", "configmap", "again");
    assert_eq!((&now["metadata"]["uid"], &now["data"]["round"]), (&copy["metadata"]["uid"], &json!("9")));
}

fn scenario_12_a_partition_with_restarts(world: &mut World) {
    let member = home(world, "shop", "web");
    let others: Vec<&str> = MEMBERS.into_iter().filter(|it| *it != member).collect();
    world.barrier("shop", 3, &MEMBERS);
    let (pods, writes) = (world.pods(&member, "shop"), world.member(&member).session_writes().len());
    let ends = world.member(&member).ends("shop").len();

    world.member(&member).link.cut();
    let is_lost = |it: &Value| {
        let conditions = it["status"]["conditions"].as_array().into_iter().flatten();
        conditions.into_iter().any(|it| it["type"] == "Ready" && it["status"] != "True")
    };
    world.until("cluster", &member, "it is lost", is_lost);
    for round in 10..12 {
        // Everything that it had seen is gone with it.
        let _ = std::fs::remove_dir_all(world.operator.data.join("views"));
        let _ = std::fs::remove_file(world.operator.data.join("views"));
        world.operator.restart_hub().expect("it starts again");
        world.barrier("spread", round, &others);
    }
    world.operator.restart_hub().expect("it starts again");
    world.member(&member).link.heal();
    world.until("cluster", &member, "it is back", |it| !is_lost(it) && it["status"]["conditions"].is_array());
    world.barrier("shop", 4, &MEMBERS);

    assert_eq!(world.pods(&member, "shop"), pods);
    let ended = world.member(&member).ends("shop").split_off(ends);
    assert!(ended.is_empty(), "by whomever: {:?}", told(&ended));
    let mut new = world.member(&member).session_writes().split_off(writes);
    new.retain(|it| {
        it["verb"] == "delete" || it["verb"] == "deletecollection" || it["objectRef"]["namespace"] == "shop"
    });
    new.retain(|it| it["objectRef"]["name"] != "barrier-4" && it["objectRef"]["resource"] != "events");
    assert!(new.is_empty(), "{:?}", told(&new));
    world.rolled_out("shop", "web");
}

/// By what the members were sent, all the time: what is deleted, and what is changed that was there before.
fn x2_every_write_names_the_uid(world: &World) {
    let (mut deletes, mut changes) = (0, 0);
    for member in &world.members {
        for event in member.session_writes() {
            assert_ne!(event["verb"], "deletecollection", "{event}");
            if event["verb"] == "delete" {
                deletes += 1;
                assert!(event["requestObject"]["preconditions"]["uid"].is_string(), "{event}");
            }
            // Without force, what others have is not overwritten.
            if event["requestURI"].as_str().is_some_and(|it| it.contains("force=true")) {
                changes += 1;
                assert!(event["requestObject"]["metadata"]["uid"].is_string(), "{event}");
            }
        }
    }
    assert!(deletes > 0 && changes > 0, "{deletes} were deleted and {changes} changed");
}
