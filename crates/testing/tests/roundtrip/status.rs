//! What members say comes back onto the object that was applied.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::{
    app::{self, NS},
    world::{
        Member, World, assignment_path, condition, deployment_path, is_rolled_out, items, path, pods_path,
        shares, text,
    },
};

const NAMESPACE: &str = "/api/v1/namespaces/shop";

async fn spread(members: &[&str]) -> Result<World> {
    let world = World::start(members).await?;
    world.namespace(NS).await?;
    world.annotate(NAMESPACE, json!({"hanse.io/clusters": members.join(",")})).await?;
    Ok(world)
}

/// What rollout status waits for is waited for here; kubectl itself is asked by tests/kubectl/roundtrip.
#[tokio::test(flavor = "multi_thread")]
async fn u1_1_everything_of_an_application_without_any_placement_object() -> Result<()> {
    let world = World::start(&["m1"]).await?;
    world.member("m1").await?.provide_volumes().await?;
    world.namespace(NS).await?;
    world.apply_all(&app::everything()).await?;
    world.until_rolled_out("web", 3).await?;
    let member = world.member("m1").await?;
    for object in app::everything() {
        match text(&object, "/kind") {
            // Rights are the workspace's own.
            "Role" | "RoleBinding" => assert!(!member.has(&path(&object)).await?, "{object}"),
            _ => drop(member.until_there(&path(&object)).await?),
        }
    }
    Ok(())
}

fn widgets() -> Value {
    let schema = json!({
        "type": "object",
        "properties": {
            "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        },
    });
    let version = json!({
        "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
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

fn widget() -> Value {
    json!({
        "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "one", "namespace": NS},
        "spec": {"size": 3},
    })
}

fn widgets_everywhere() -> Value {
    json!({
        "apiVersion": "hanse.io/v1alpha1", "kind": "Placement", "metadata": {"name": "widgets"},
        "spec": {"select": [{"apiGroups": ["example.com"], "kinds": ["Widget"]}], "strategy": "Duplicate"},
    })
}

/// Served: as in one cluster.
async fn until_served(client: &testing::client::Client) -> Result<()> {
    let path = "/apis/example.com/v1/namespaces/default/widgets";
    crate::world::until(client, path, "it is served", |it| it["items"].is_array()).await.map(drop)
}

/// The member serves widgets. What its session may do with them it asks for itself.
async fn take_widgets(member: &Member) -> Result<()> {
    member.create(&widgets()).await?;
    until_served(&member.client).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn u1_2_a_kind_that_no_member_serves_is_said_to_be_nowhere_until_one_does() -> Result<()> {
    let world = World::start(&["m1"]).await?;
    world.namespace(NS).await?;
    world.apply(&widgets()).await?;
    until_served(&world.client).await?;
    world.apply(&widgets_everywhere()).await?;
    world.apply(&widget()).await?;

    let says_why = |it: &Value| {
        let decision = &it["spec"]["decision"];
        let verdicts = decision["verdicts"].as_array().into_iter().flatten();
        !text(decision, "/message").is_empty()
            && verdicts.into_iter().any(|it| it["cluster"] == "m1" && text(it, "/message").contains("serve"))
    };
    world.until(&assignment_path(&widget()), "it is said why it is nowhere", says_why).await?;
    let is_told = |list: &Value| {
        let mut events = list["items"].as_array().into_iter().flatten();
        events.any(|it| {
            it["reason"] == "Unplaced"
                && it["involvedObject"]["kind"] == "Widget"
                && text(it, "/message").contains("m1: ")
        })
    };
    world.until(&format!("/api/v1/namespaces/{NS}/events"), "an event tells it", is_told).await?;

    let m1 = world.member("m1").await?;
    take_widgets(&m1).await?;
    // Definitions of members are looked at now and then, and when a session begins.
    world.cut("m1")?;
    let is_lost = |it: &Value| api::cluster::condition(it, "Ready").is_some_and(|it| it["status"] != "True");
    world.until(&format!("{}/m1", crate::world::CLUSTERS), "it is lost", is_lost).await?;
    world.heal("m1")?;

    m1.until_there(&path(&widget())).await?;
    let is_placed =
        |it: &Value| shares(it) == [("m1".to_owned(), 0)] && text(it, "/spec/decision/message").is_empty();
    world.until(&assignment_path(&widget()), "it is somewhere", is_placed).await?;
    Ok(())
}

/// Nobody who makes objects of their own kinds finds copies of them in clusters without having asked for it; and nobody needs
/// to know the kind to ask for it.
#[tokio::test(flavor = "multi_thread")]
async fn u1_2_objects_of_ones_own_kinds_stay_in_the_hub_until_a_placement_selects_them() -> Result<()> {
    let world = World::start(&[]).await?;
    world.clusters.simulation.add("m1", sim::ClusterOptions::default()).await?;
    // Its session finds the kind there when it begins.
    let m1 = world.member("m1").await?;
    take_widgets(&m1).await?;
    world.join("m1").await?;
    world.namespace(NS).await?;
    world.apply(&widgets()).await?;
    until_served(&world.client).await?;
    let placement = |name: &str, select: Value| {
        let spec = json!({"select": [select], "clusters": {"names": ["m1"]}});
        json!({
            "apiVersion": "hanse.io/v1alpha1", "kind": "Placement", "metadata": {"name": name}, "spec": spec,
        })
    };
    world.apply(&placement("others", json!({"kinds": ["Deployment"]}))).await?;
    world.apply(&widget()).await?;
    world.barrier(NS, 0, &["m1"]).await?;
    assert_eq!(world.get(&assignment_path(&widget())).await?["code"], 404);
    assert!(!m1.has(&path(&widget())).await?);

    let all = placement("all", json!({"namespaces": [NS]}));
    world.apply(&all).await?;
    m1.until_there(&path(&widget())).await?;
    world.client.delete(&path(&all)).await?;
    m1.until_gone(&path(&widget())).await?;
    world.until_gone(&assignment_path(&widget())).await?;
    assert_eq!(world.get(&path(&widget())).await?["spec"], json!({"size": 3}));
    Ok(())
}

/// With no Placement anywhere, nothing else says of it that it is to be somewhere.
#[tokio::test(flavor = "multi_thread")]
async fn u1_2_objects_of_ones_own_kinds_leave_with_the_annotation_that_named_their_clusters() -> Result<()> {
    let world = World::start(&[]).await?;
    world.clusters.simulation.add("m1", sim::ClusterOptions::default()).await?;
    let m1 = world.member("m1").await?;
    take_widgets(&m1).await?;
    world.join("m1").await?;
    world.namespace(NS).await?;
    world.apply(&widgets()).await?;
    until_served(&world.client).await?;
    world.apply(&widget()).await?;
    world.annotate(&path(&widget()), json!({"hanse.io/clusters": "m1"})).await?;
    m1.until_there(&path(&widget())).await?;

    world.annotate(&path(&widget()), json!({"hanse.io/clusters": null})).await?;

    m1.until_gone(&path(&widget())).await?;
    world.until_gone(&assignment_path(&widget())).await?;
    assert_eq!(world.get(&path(&widget())).await?["spec"], json!({"size": 3}));
    // And it comes back as it went.
    world.annotate(&path(&widget()), json!({"hanse.io/clusters": "m1"})).await?;
    m1.until_there(&path(&widget())).await?;
    Ok(())
}

/// Also U1.3 of kinds that nobody knows: what all say is said, and of conditions the worst.
#[tokio::test(flavor = "multi_thread")]
async fn u1_2_u1_3_objects_of_ones_own_kinds_are_placed_and_summed_up() -> Result<()> {
    let world = World::start(&["m1", "m2"]).await?;
    world.namespace(NS).await?;
    let (m1, m2) = (world.member("m1").await?, world.member("m2").await?);
    for member in [&m1, &m2] {
        take_widgets(member).await?;
    }
    world.apply(&widgets()).await?;
    until_served(&world.client).await?;
    // A hub that comes later knows at once what members serve; this one is told when it asks again.
    let mut world = world;
    world.restart_hub(false).await?;
    for name in ["m1", "m2"] {
        let serves = |it: &Value| it["status"]["apis"].to_string().contains("widgets");
        world.until(&format!("{}/{name}", crate::world::CLUSTERS), "it is known to serve it", serves).await?;
    }
    world.apply(&widgets_everywhere()).await?;
    world.apply(&widget()).await?;

    for (member, ready) in [(&m1, "True"), (&m2, "False")] {
        let copy = member.until_there(&path(&widget())).await?;
        assert_eq!(copy["spec"], json!({"size": 3}));
        let condition = json!({
            "type": "Ready", "status": ready, "reason": "Because", "message": "so it is",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        let status = json!({"status": {"phase": "Up", "conditions": [condition]}});
        member.client.merge_patch(&format!("{}/status", path(&widget())), &status).await?;
    }
    let is_summed = |it: &Value| {
        let ready = condition(it, "Ready");
        it["status"]["phase"] == "Up" && ready["status"] == "False" && text(&ready, "/message").contains("m2")
    };
    world.until(&path(&widget()), "what all say is said, and the worst condition", is_summed).await?;
    Ok(())
}

/// One row for each kind: what its members say by themselves, or, where there is no controller, are told to say. What is in
/// both of them is summed up.
#[tokio::test(flavor = "multi_thread")]
async fn u1_3_the_status_of_every_kind_comes_back() -> Result<()> {
    let world = spread(&["m1", "m2"]).await?;
    let mut balanced = app::service("balanced");
    balanced["spec"]["type"] = json!("LoadBalancer");
    let mut work = app::job("once");
    (work["spec"]["parallelism"], work["spec"]["completions"]) = (json!(2), json!(4));
    let address = |ip: &str| json!({"loadBalancer": {"ingress": [{"ip": ip}]}});
    let told = || Some([("m1", address("192.0.2.1")), ("m2", address("192.0.2.2"))]);
    let both = json!([{"ip": "192.0.2.1"}, {"ip": "192.0.2.2"}]);
    let both_virtual = json!([{"ip": "192.0.2.1", "ipMode": "VIP"}, {"ip": "192.0.2.2", "ipMode": "VIP"}]);
    // Some time, by the clock of the member.
    const ANY: Value = Value::Null;
    // What, in how many clusters, what these are told to say, and what comes of it.
    type Row = (Value, usize, Option<[(&'static str, Value); 2]>, &'static str, Value);
    let rows: Vec<Row> = vec![
        (app::deployment("web", 4), 2, None, "/status/readyReplicas", json!(4)),
        (app::stateful_set("db", 2), 2, None, "/status/readyReplicas", json!(2)),
        (app::daemon_set("agent"), 2, None, "/status/numberReady", json!(4)),
        (app::replica_set("set", 2), 2, None, "/status/readyReplicas", json!(2)),
        (work, 2, None, "/status/succeeded", json!(4)),
        // Each time it is one pod.
        (app::cron_job("often"), 1, None, "/status/lastScheduleTime", ANY),
        (app::pod("bare"), 1, None, "/status/phase", json!("Running")),
        (app::claim("data"), 1, None, "/status/phase", json!("Bound")),
        (balanced, 2, told(), "/status/loadBalancer/ingress", both_virtual),
        (app::ingress("web"), 2, told(), "/status/loadBalancer/ingress", both),
        (app::autoscaler("web"), 2, None, "/status/currentReplicas", json!(4)),
        (app::budget("web"), 2, None, "/status/currentHealthy", json!(4)),
    ];
    for name in ["m1", "m2"] {
        world.member(name).await?.provide_volumes().await?;
    }
    // What the Ingress is for.
    world.apply(&app::service("web")).await?;
    for (object, ..) in &rows {
        world.apply(object).await?;
    }
    for (object, clusters, told, pointer, expected) in &rows {
        let kind = text(object, "/kind");
        let is_placed = |it: &Value| shares(it).len() == *clusters;
        let what = format!("{kind} is in {clusters}");
        let assignment = world.until(&assignment_path(object), &what, is_placed).await?;
        for (cluster, _) in shares(&assignment) {
            let member = world.member(&cluster).await?;
            member.until_there(&path(object)).await?;
            for (_, status) in told.iter().flatten().filter(|(name, _)| *name == cluster) {
                let path = format!("{}/status", path(object));
                member.client.merge_patch(&path, &json!({"status": status})).await?;
            }
        }
        let what = format!("{pointer} of {kind} is {expected}");
        world
            .until(&path(object), &what, |it| {
                it.pointer(pointer)
                    .is_some_and(|found| found == expected || (*expected == ANY && !found.is_null()))
            })
            .await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn u1_4_counters_are_sums_and_the_generation_is_that_of_the_last_to_follow() -> Result<()> {
    let world = spread(&["m1", "m2"]).await?;
    world.apply(&app::deployment("web", 4)).await?;
    let web = world.until_rolled_out("web", 4).await?;
    assert_eq!(condition(&web, "Available")["status"], "True");
    world.cut("m2")?;
    let mut newer = app::deployment("web", 4);
    newer["spec"]["template"]["spec"]["containers"][0]["image"] = json!("example.com/main:2");
    world.apply(&newer).await?;
    let m1 = world.member("m1").await?;
    let has_newer =
        |it: &Value| it["spec"]["template"]["spec"]["containers"][0]["image"] == "example.com/main:2";
    let follows = |it: &Value| has_newer(it) && is_rolled_out(it, 2);
    m1.until(&deployment_path("web"), "m1 follows", follows).await?;
    let says_m2 = |it: &Value| text(&condition(it, "Progressing"), "/message").contains("m2");
    let web = world.until(&deployment_path("web"), "it says that m2 is behind", says_m2).await?;
    assert_eq!(web["metadata"]["generation"], 2);
    assert_eq!(web["status"]["observedGeneration"], 1, "m2 has not followed: {}", web["status"]);
    world.heal("m2")?;
    world.until_rolled_out("web", 4).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn u1_5_the_status_in_each_cluster_can_be_read() -> Result<()> {
    let world = spread(&["m1", "m2"]).await?;
    world.apply(&app::deployment("web", 4)).await?;
    world.until_rolled_out("web", 4).await?;
    let assignment = world.assignment(&app::deployment("web", 4)).await?;
    assert_eq!(shares(&assignment), [("m1".to_owned(), 2), ("m2".to_owned(), 2)]);
    let reports = assignment["status"]["clusters"].as_array().context("no reports")?;
    for report in reports {
        assert_eq!(
            (&report["applied"], &report["status"]["readyReplicas"]),
            (&json!(true), &json!(2)),
            "{report}"
        );
    }
    assert_eq!(reports.len(), 2);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn u1_6_pods_show_with_unique_names_their_owners_and_their_cluster() -> Result<()> {
    let world = spread(&["m1", "m2"]).await?;
    world.apply(&app::deployment("web", 4)).await?;
    let web = world.until_rolled_out("web", 4).await?;
    world
        .until(&pods_path(), "four pods", |it| it["items"].as_array().is_some_and(|it| it.len() == 4))
        .await?;
    let pods = items(&world.client, &pods_path()).await?;
    let mut names: Vec<&str> = pods.iter().map(|pod| text(pod, "/metadata/name")).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 4);
    let sets = items(&world.client, &format!("/apis/apps/v1/namespaces/{NS}/replicasets")).await?;
    for set in &sets {
        assert_eq!(set["metadata"]["ownerReferences"][0]["uid"], web["metadata"]["uid"]);
    }
    for pod in &pods {
        let owner = &pod["metadata"]["ownerReferences"][0];
        assert_eq!(owner["kind"], "ReplicaSet", "{pod}");
        assert!(sets.iter().any(|set| set["metadata"]["uid"] == owner["uid"]), "it shows too: {pod}");
        let cluster = text(pod, "/metadata/labels/hanse.io~1cluster");
        assert!(["m1", "m2"].contains(&cluster), "{pod}");
        let there = world.member(cluster).await?.pods(NS).await?;
        let uid = text(pod, "/metadata/uid");
        assert!(there.iter().any(|it| it.0 == uid), "it is the member's own");
    }
    Ok(())
}

/// ReplicaSets of one Deployment that have the same name in two clusters are one to whoever looks.
#[tokio::test(flavor = "multi_thread")]
async fn u1_6_equal_replica_sets_show_as_one() -> Result<()> {
    let world = spread(&["m1", "m2"]).await?;
    world.apply(&app::deployment("web", 4)).await?;
    world.until_rolled_out("web", 4).await?;
    let is_one = |it: &Value| {
        it["items"].as_array().is_some_and(|it| it.len() == 1 && it[0]["status"]["readyReplicas"] == 4)
    };
    let sets = format!("/apis/apps/v1/namespaces/{NS}/replicasets");
    world.until(&sets, "one ReplicaSet shows, summed up", is_one).await.map(drop)
}

/// Nothing of ours is where a user's tools would find a difference.
#[tokio::test(flavor = "multi_thread")]
async fn x3_the_hubs_bookkeeping_is_not_on_the_users_objects() -> Result<()> {
    let world = spread(&["m1", "m2"]).await?;
    world.apply_all(&app::web()).await?;
    world.until_rolled_out("web", 3).await?;
    for object in app::web() {
        let stored = world.get(&path(&object)).await?;
        let metadata = &stored["metadata"];
        for key in ["annotations", "labels", "finalizers", "ownerReferences"] {
            assert!(metadata[key].is_null(), "{key}: {metadata}");
        }
        let managers = metadata["managedFields"].as_array().context("no managers")?;
        let of_users = managers.iter().filter(|it| it["subresource"].is_null());
        let names: Vec<&str> = of_users.map(|it| text(it, "/manager")).collect();
        assert_eq!(names, ["kubectl"], "{metadata}");
        if text(&object, "/kind") == "Deployment" {
            assert_eq!(metadata["generation"], 1);
        }
    }
    Ok(())
}

/// What is said of a share is true of the share alone.
#[tokio::test(flavor = "multi_thread")]
async fn u1_4_a_share_says_nothing_of_the_whole() -> Result<()> {
    let world = spread(&["m1", "m2"]).await?;
    world.apply(&app::deployment("web", 4)).await?;
    world.until_rolled_out("web", 4).await?;
    for member in ["m1", "m2"] {
        let copy = world.member(member).await?.get(&deployment_path("web")).await?;
        assert!(is_rolled_out(&copy, 2), "{}", copy["status"]);
    }
    Ok(())
}

/// What is promised to those who look after it.
#[tokio::test(flavor = "multi_thread")]
async fn metrics_tell_of_placement_and_copies() -> Result<()> {
    let world = spread(&["m1", "m2"]).await?;
    world.apply(&app::deployment("web", 2)).await?;
    world.until_rolled_out("web", 2).await?;
    let metrics = world.client.get("/metrics").await?.text();
    let value = |name: &str| {
        let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|it| it.parse::<f64>().ok())
    };
    for name in [
        "hanse_placement_decisions_total",
        "hanse_placement_writes_total",
        "hanse_copies",
        "hanse_copy_reports_total",
        "hanse_copy_lag_seconds_count",
    ] {
        assert!(value(name).is_some_and(|it| it > 0.0), "{name}: {:?}", value(name));
    }
    for name in ["hanse_placement_pending", "hanse_placement_queue", "hanse_copy_queue"] {
        assert!(value(name).is_some(), "{name}");
    }
    assert!(metrics.contains(r#"hanse_copy_writes_total{outcome="created"}"#), "{metrics}");
    Ok(())
}
