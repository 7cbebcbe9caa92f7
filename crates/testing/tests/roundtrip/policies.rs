//! Who decides, how often it is decided, and what a decision leaves behind.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use futures_util::{StreamExt, TryStreamExt, stream};
use http::Method;
use serde_json::{Value, json};
use testing::patience::{Patience, STANDSTILL};

use crate::{
    app::{self, NS},
    history::{Deed, Mark, What},
    world::{
        CLUSTERS, World, apply, assignment_path, collection, condition, deployment_path, path, pods_path,
        shares, text,
    },
};

const NAMESPACE: &str = "/api/v1/namespaces/shop";
/// Of X5: so many, of which one in so many is on the member that flaps.
const NAMESPACES: usize = 1000;
const ONE_IN: usize = 50;
const FLAPS: usize = 10;
const LOOK_EVERY: Duration = Duration::from_millis(200);
const ASK_EVERY: Duration = Duration::from_millis(20);

async fn in_m1(members: &[&str]) -> Result<World> {
    let world = World::start(members).await?;
    world.namespace(NS).await?;
    world.annotate(NAMESPACE, json!({"hanse.io/clusters": "m1"})).await?;
    world.apply_all(&app::web()).await?;
    world.until_rolled_out("web", 3).await?;
    Ok(world)
}

fn on(cluster: &str, name: &str) -> Value {
    json!({
        "apiVersion": "hanse.io/v1alpha1", "kind": "Placement", "metadata": {"name": name},
        "spec": {"select": [{"kinds": ["Deployment"], "namespaces": [NS]}], "clusters": {"names": [cluster]}},
    })
}

async fn until_decided(world: &World, layer: &str, cluster: &str) -> Result<()> {
    let is_so = |it: &Value| {
        it["spec"]["decision"]["layer"] == layer
            && shares(it).iter().map(|it| it.0.as_str()).collect::<Vec<_>>() == [cluster]
    };
    let assignment = assignment_path(&app::deployment("web", 1));
    world.until(&assignment, &format!("{layer} decides for {cluster}"), is_so).await?;
    world.until_rolled_out("web", 1).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn s3_1_layers_of_policy_and_the_one_that_decided_is_named() -> Result<()> {
    let world = World::start(&["m1", "m2"]).await?;
    world.namespace(NS).await?;
    world.apply(&app::deployment("web", 1)).await?;
    world.until_rolled_out("web", 1).await?;
    let assignment = world.assignment(&app::deployment("web", 1)).await?;
    assert_eq!(assignment["spec"]["decision"]["layer"], "Default");
    apply(&world.client, "/clusters/root", &on("m1", "global")).await?;
    until_decided(&world, "Root", "m1").await?;
    world.apply(&on("m2", "local")).await?;
    until_decided(&world, "Workspace", "m2").await?;
    let assignment = world.assignment(&app::deployment("web", 1)).await?;
    assert_eq!(assignment["spec"]["decision"]["policy"], "local");
    world.annotate(NAMESPACE, json!({"hanse.io/clusters": "m1"})).await?;
    until_decided(&world, "Namespace", "m1").await?;
    world.annotate(&deployment_path("web"), json!({"hanse.io/clusters": "m2"})).await?;
    until_decided(&world, "Object", "m2").await?;
    // The object may name a policy as well as clusters, also one that would not select it.
    let mut named = on("m1", "named");
    named["spec"]["select"] = json!([{"kinds": ["StatefulSet"]}]);
    world.apply(&named).await?;
    let by_name = json!({"hanse.io/clusters": null, "hanse.io/placement": "named"});
    world.annotate(&deployment_path("web"), by_name).await?;
    until_decided(&world, "Object", "m1").await?;
    let assignment = world.assignment(&app::deployment("web", 1)).await?;
    assert_eq!(assignment["spec"]["decision"]["policy"], "named");
    // And back again, layer by layer.
    world.annotate(NAMESPACE, json!({"hanse.io/clusters": "m2"})).await?;
    world.annotate(&deployment_path("web"), json!({"hanse.io/placement": null})).await?;
    until_decided(&world, "Namespace", "m2").await?;
    world.apply(&on("m1", "local")).await?;
    world.annotate(NAMESPACE, json!({"hanse.io/clusters": null})).await?;
    until_decided(&world, "Workspace", "m1").await?;
    apply(&world.client, "/clusters/root", &on("m2", "global")).await?;
    world.client.delete(&path(&on("m1", "local"))).await?;
    until_decided(&world, "Root", "m2").await?;
    world.client.delete(&format!("/clusters/root{}", path(&on("m2", "global")))).await?;
    // With nothing said, it stays where it is.
    until_decided(&world, "Default", "m2").await
}

/// Clusters come and change that are no business of what runs.
#[tokio::test(flavor = "multi_thread")]
async fn s3_3_unrelated_clusters_move_nothing() -> Result<()> {
    let world = World::start(&["m1", "m2"]).await?;
    world.namespace(NS).await?;
    world.apply_all(&app::web()).await?;
    world.until_rolled_out("web", 3).await?;
    let home = shares(&world.assignment(&app::deployment("web", 3)).await?)[0].0.clone();
    let other = if home == "m1" { "m2" } else { "m1" };
    world.barrier(NS, 0, &["m1", "m2"]).await?;
    let (here, there) = (world.here.mark(), world.there.mark());
    world.patch(&format!("{CLUSTERS}/{other}"), json!({"metadata": {"labels": {"new": "label"}}})).await?;
    world.patch(&format!("{CLUSTERS}/{other}"), json!({"spec": {"unschedulable": true}})).await?;
    world.patch(&format!("{CLUSTERS}/{other}"), json!({"spec": {"unschedulable": false}})).await?;
    world.clusters.simulation.add("m3", sim::ClusterOptions::default()).await?;
    world.join("m3").await?;
    world.barrier(NS, 1, &["m1", "m2", "m3"]).await?;
    let moved = world.here.since(here).into_iter();
    let moved = moved
        .filter(|it| it.resource == "assignments" && it.namespace == NS && !it.name.contains("barrier-"));
    // A namespace is wherever anything of it is, so that the barrier brings it to m3.
    let moved: Vec<_> = moved.filter(|it| it.name != format!("namespaces.{NS}")).collect();
    assert_eq!(moved, []);
    let mut writes = world.writes_to_copies(there);
    writes.retain(|it| !it.name.contains("barrier-") && it.resource != "namespaces");
    assert_eq!(writes, []);
    Ok(())
}

/// Whatever roles allow; and Assignments can be found by the cluster they name.
#[tokio::test(flavor = "multi_thread")]
async fn s1_1_assignments_are_written_by_hanse_alone() -> Result<()> {
    let world = in_m1(&["m1", "m2"]).await?;
    let assignment = assignment_path(&app::deployment("web", 3));
    let before = world.get(&assignment).await?;
    let patch = json!({"spec": {"clusters": [{"name": "m2", "uid": "x"}]}});
    let refused = [
        world.client.merge_patch(&assignment, &patch).await?,
        world
            .client
            .merge_patch(&format!("{assignment}/status"), &json!({"status": {"clusters": []}}))
            .await?,
        world.client.put(&assignment, &before).await?,
        world.client.delete(&assignment).await?,
        world
            .client
            .call(Method::DELETE, &format!("/apis/hanse.io/v1alpha1/namespaces/{NS}/assignments"), &[], "")
            .await?,
    ];
    for answer in refused {
        assert!([403, 405, 422].contains(&answer.code.as_u16()), "{}: {}", answer.code, answer.text());
    }
    assert_eq!(world.get(&assignment).await?["spec"], before["spec"]);
    let by_cluster = |cluster: &str| {
        format!(
            "/apis/hanse.io/v1alpha1/namespaces/{NS}/assignments?labelSelector=cluster.hanse.io/{cluster}"
        )
    };
    assert!(!crate::world::items(&world.client, &by_cluster("m1")).await?.is_empty());
    assert!(crate::world::items(&world.client, &by_cluster("m2")).await?.is_empty());
    Ok(())
}

/// From the first to the last, seen by somebody who watches: along the arrows, and the old one goes when the new one is
/// available.
#[tokio::test(flavor = "multi_thread")]
async fn s1_2_states_change_along_their_arrows_only() -> Result<()> {
    let world = World::start(&["m1", "m2"]).await?;
    world.namespace(NS).await?;
    world.annotate(NAMESPACE, json!({"hanse.io/clusters": "m1"})).await?;
    let list = format!("/apis/hanse.io/v1alpha1/namespaces/{NS}/assignments");
    let version = text(&world.get(&list).await?, "/metadata/resourceVersion").to_owned();
    let mut watch = world.client.watch(&format!("{list}?watch=true&resourceVersion={version}")).await?;
    let mut seen: Vec<Vec<(String, &str)>> = Vec::new();
    let mut next = async |seen: &mut Vec<Vec<(String, &'static str)>>| -> Result<Value> {
        loop {
            let event = watch.expect().await?;
            if event["object"]["spec"]["object"]["kind"] != "Deployment" {
                continue;
            }
            let now = if event["type"] == "DELETED" { Vec::new() } else { states(&event["object"]) };
            if seen.last() != Some(&now) {
                seen.push(now);
            }
            return Ok(event["object"].clone());
        }
    };
    let ready = |name: &str| vec![(name.to_owned(), "Ready")];
    world.apply_all(&app::web()).await?;
    while seen.last() != Some(&ready("m1")) {
        next(&mut seen).await?;
    }
    world.annotate(NAMESPACE, json!({"hanse.io/clusters": "m2"})).await?;
    while seen.last() != Some(&ready("m2")) {
        let assignment = next(&mut seen).await?;
        // m1 lets go of it only when m2 has it all.
        let is_ready = states(&assignment).contains(&("m2".to_owned(), "Ready"));
        let has_all = report(&assignment, "m2")["status"]["availableReplicas"] == 3;
        assert!(!is_ready || has_all, "{assignment}");
    }
    world.client.call(Method::DELETE, &deployment_path("web"), &[], "").await?;
    while seen.last().is_some_and(|it| !it.is_empty()) {
        next(&mut seen).await?;
    }
    let both = |new| vec![("m1".to_owned(), "Draining"), ("m2".to_owned(), new)];
    let assigned = |name: &str| vec![(name.to_owned(), "Assigned")];
    let mut expected =
        vec![assigned("m1"), ready("m1"), both("Assigned"), both("Ready"), ready("m2"), Vec::new()];
    // What is deleted drains, whatever it was.
    expected.insert(5, vec![("m2".to_owned(), "Draining")]);
    assert_eq!(seen, expected);
    world.member("m1").await?.until_gone(&deployment_path("web")).await
}

/// What a cluster says of its copy.
fn report<'a>(assignment: &'a Value, cluster: &str) -> &'a Value {
    let mut reports = assignment["status"]["clusters"].as_array().into_iter().flatten();
    reports.find(|it| it["name"] == cluster).unwrap_or(&Value::Null)
}

/// How far an object is in each cluster.
fn states(assignment: &Value) -> Vec<(String, &'static str)> {
    let is_deleted = assignment["metadata"]["deletionTimestamp"].is_string();
    let state = |target: &Value| match text(target, "/state") {
        _ if is_deleted => "Draining",
        "Draining" => "Draining",
        "Assigned" if report(assignment, text(target, "/name"))["ready"] == true => "Ready",
        "Assigned" => "Assigned",
        other => panic!("{other:?} is no state"),
    };
    let clusters = assignment["spec"]["clusters"].as_array().into_iter().flatten();
    clusters.map(|it| (text(it, "/name").to_owned(), state(it))).collect()
}

/// A cluster that something has left leaves no trace on it.
#[tokio::test(flavor = "multi_thread")]
async fn d03_nothing_of_a_cluster_stays_on_an_object_that_left_it() -> Result<()> {
    let world = in_m1(&["m1", "m2"]).await?;
    world.annotate(&deployment_path("web"), json!({"hanse.io/clusters": "m1,m2"})).await?;
    let web = app::deployment("web", 3);
    world
        .until(&assignment_path(&web), "both", |it| {
            it["status"]["clusters"].as_array().is_some_and(|it| it.len() == 2)
        })
        .await?;
    world.until_rolled_out("web", 3).await?;
    world.annotate(&deployment_path("web"), json!({"hanse.io/clusters": "m1"})).await?;
    let only_m1 = |it: &Value| shares(it).len() == 1;
    let assignment = world.until(&assignment_path(&web), "m2 is left", only_m1).await?;
    assert!(!assignment["spec"]["clusters"].to_string().contains("m2"));
    let assignment = world
        .until(&assignment_path(&web), "nothing is said of it", |it| {
            !it["status"].to_string().contains("\"m2\"")
        })
        .await?;
    assert!(!assignment["metadata"]["labels"].to_string().contains("m2"), "{}", assignment["metadata"]);
    world.until_rolled_out("web", 3).await?;
    let web = world
        .until(&deployment_path("web"), "nor on the object", |it| !it["status"].to_string().contains("m2"))
        .await?;
    assert!(!web["metadata"]["managedFields"].to_string().contains("m2"));
    world.member("m2").await?.until_gone(&deployment_path("web")).await
}

/// Annotations and labels that come, change and go: each is a change, in both directions; a status is none.
#[tokio::test(flavor = "multi_thread")]
async fn d04_what_changes_a_copy_and_what_does_not() -> Result<()> {
    let world = in_m1(&["m1"]).await?;
    let member = world.member("m1").await?;
    let settings = app::config_map("settings", "one");
    for value in [json!("a"), json!("b"), Value::Null] {
        let patch = json!({"metadata": {"annotations": {"example.com/x": value}, "labels": {"x": value}}});
        world.patch(&path(&settings), patch).await?;
        let follows = |it: &Value| {
            it["metadata"]["annotations"]["example.com/x"] == value && it["metadata"]["labels"]["x"] == value
        };
        member.until(&path(&settings), &format!("it follows to {value}"), follows).await?;
    }
    // Hanse's own do not travel.
    world.annotate(&path(&settings), json!({"hanse.io/note": "here"})).await?;
    world.barrier(NS, 0, &["m1"]).await?;
    let mark = world.there.mark();
    world
        .patch(&format!("{}/status", deployment_path("web")), json!({"status": {"collisionCount": 7}}))
        .await?;
    world.barrier(NS, 1, &["m1"]).await?;
    let mut writes = world.writes_to_copies(mark);
    writes.retain(|it| !it.name.contains("barrier-"));
    assert_eq!(writes, []);
    assert!(!member.get(&path(&settings)).await?.to_string().contains("hanse.io/note"));
    world.until_rolled_out("web", 3).await?;
    Ok(())
}

/// Somebody's finalizer holds an object that is to go, while it is spread over two clusters.
#[tokio::test(flavor = "multi_thread")]
async fn d06_an_object_that_waits_for_a_finalizer_makes_no_work() -> Result<()> {
    let world = in_m1(&["m1", "m2"]).await?;
    world.annotate(NAMESPACE, json!({"hanse.io/clusters": "m1,m2"})).await?;
    world.member("m2").await?.until_there(&deployment_path("web")).await?;
    let is_up = |it: &Value| {
        it["status"]["readyReplicas"] == it["spec"]["replicas"]
            && it["status"]["observedGeneration"] == it["metadata"]["generation"]
    };
    // While pods come up, it is told now and then how far they are.
    world.until(&deployment_path("web"), "its pods are up", is_up).await?;
    world.patch(&deployment_path("web"), json!({"metadata": {"finalizers": ["example.com/hold"]}})).await?;
    world.client.delete(&deployment_path("web")).await?;
    world
        .until(&deployment_path("web"), "it is being deleted", |it| {
            it["metadata"]["deletionTimestamp"].is_string()
        })
        .await?;
    let about_web = |it: &crate::history::Deed| it.name == "web" || it.name == "deployments.apps.web";
    world.until_at_rest(&["m1", "m2"], about_web).await?;
    world.patch(&deployment_path("web"), json!({"metadata": {"finalizers": null}})).await?;
    world.until_gone(&deployment_path("web")).await?;
    for member in ["m1", "m2"] {
        world.member(member).await?.until_gone(&deployment_path("web")).await?;
    }
    Ok(())
}

/// A member that comes and goes: X5, what is not there is not looked at. And D7's other half: who waits is woken.
#[tokio::test(flavor = "multi_thread")]
async fn d07_x5_a_flapping_member_concerns_those_who_are_there_or_wait_for_it() -> Result<()> {
    let world = in_m1(&["m1", "m2"]).await?;
    for number in 0..30 {
        world.apply(&app::config_map(&format!("more-{number}"), "x")).await?;
    }
    // What nothing names is wherever workloads of its namespace are, so that this one has its own.
    world.namespace("elsewhere").await?;
    let mut waiting = app::deployment("waiting", 1);
    waiting["metadata"]["namespace"] = json!("elsewhere");
    waiting["metadata"]["annotations"] = json!({"hanse.io/clusters": "m2"});
    world.barrier(NS, 0, &["m1"]).await?;
    let (here, there) = (world.here.mark(), world.there.mark());
    let decided = decisions(&world).await?;
    let is_lost = |it: &Value| api::cluster::condition(it, "Ready").is_some_and(|it| it["status"] != "True");
    for round in 0..5 {
        world.clusters.simulation.stop("m2").await?;
        world.until(&format!("{CLUSTERS}/m2"), "it is lost", is_lost).await?;
        if round == 4 {
            world.apply(&waiting).await?;
        }
        world.clusters.simulation.resume("m2").await?;
        world.until_ready("m2").await?;
    }
    // Who named it has it as soon as it is back.
    world.until(&path(&waiting), "it runs", |it| it["status"]["readyReplicas"] == 1).await?;
    world.barrier(NS, 1, &["m1"]).await?;
    let of_others = |it: &crate::history::Deed| it.namespace == NS && !it.name.contains("barrier-");
    let deeds: Vec<_> = world.here.since(here).into_iter().filter(of_others).collect();
    assert_eq!(deeds, [], "in the hub");
    let m1: Vec<_> = world.deeds("m1", there)?.into_iter().filter(of_others).collect();
    assert_eq!(m1, [], "in m1");
    // Nor were they looked at: each of the ten turns would be as many decisions as there are objects.
    let again = decisions(&world).await? - decided;
    assert!(again < 34, "{again} decisions");
    Ok(())
}

fn is_on_m2(number: usize) -> bool {
    number.is_multiple_of(ONE_IN)
}

/// A namespace with one small object.
async fn fill(world: &World, number: usize) -> Result<()> {
    let namespace = format!("crowd-{number}");
    let mut settings = app::config_map("settings", "one");
    settings["metadata"]["namespace"] = json!(namespace);
    let cluster = if is_on_m2(number) { "m2" } else { "m1" };
    settings["metadata"]["annotations"] = json!({"hanse.io/clusters": cluster});
    for object in [app::namespace(&namespace), settings] {
        let made = world.client.post(&collection(&object), &object).await?;
        ensure!(made.code == 201, "{}: {}", path(&object), made.text());
    }
    Ok(())
}

/// The number of the namespace that it is in, or that it is.
fn crowd(deed: &Deed) -> Option<usize> {
    let name = if deed.namespace.is_empty() { &deed.name } else { &deed.namespace };
    name.strip_prefix("crowd-")?.parse().ok()
}

fn is_filled(deed: &Deed) -> bool {
    deed.what == What::Made && deed.resource == "configmaps" && crowd(deed).is_some()
}

async fn until_filled(world: &World, since: Mark) -> Result<()> {
    let mut patience = Patience::default();
    loop {
        // What is read now and then does not become too much to be kept.
        world.here.mark();
        let copies = world.writes_to_copies(since).into_iter().filter(is_filled).count();
        if copies == NAMESPACES {
            return Ok(());
        }
        ensure!(patience.lasts(copies), "{copies} copies are there");
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

async fn flap(world: &World, member: &str) -> Result<()> {
    let is_lost = |it: &Value| api::cluster::condition(it, "Ready").is_some_and(|it| it["status"] != "True");
    for _ in 0..FLAPS {
        world.clusters.simulation.stop(member).await?;
        world.until(&format!("{CLUSTERS}/{member}"), "it is lost", is_lost).await?;
        world.clusters.simulation.resume(member).await?;
        world.until_ready(member).await?;
    }
    Ok(())
}

/// Reads and writes one after the other, until it is over; how long each took.
async fn ask_until(world: &World, over: &AtomicBool) -> Result<Vec<Duration>> {
    // It goes to no cluster, so that nothing is decided because of it.
    let role = path(&app::role("asked"));
    let mut took = Vec::new();
    while !over.load(Ordering::Relaxed) {
        let (number, since) = (took.len(), Instant::now());
        let asked = async {
            if number.is_multiple_of(4) {
                let change = json!({"metadata": {"annotations": {"example.com/number": number.to_string()}}});
                return world.client.merge_patch(&role, &change).await;
            }
            let settings = format!("/api/v1/namespaces/crowd-{}/configmaps/settings", number % NAMESPACES);
            world.client.get(&settings).await
        };
        let answer = tokio::time::timeout(STANDSTILL, asked).await.context("there is no answer")??;
        ensure!(answer.code == 200, "{number}: {}", answer.text());
        took.push(since.elapsed());
        tokio::time::sleep(ASK_EVERY).await;
    }
    Ok(took)
}

/// What a member that comes and goes costs is what is there, not what there is. How long requests take meanwhile is for
/// people to read.
#[tokio::test(flavor = "multi_thread")]
async fn x5_a_thousand_namespaces_and_a_member_that_flaps() -> Result<()> {
    let world = World::start(&["m1", "m2"]).await?;
    world.namespace(NS).await?;
    world.apply(&app::role("asked")).await?;
    let begin = world.there.mark();
    let filled = stream::iter(0..NAMESPACES).map(|number| fill(&world, number)).buffer_unordered(16);
    filled.try_collect::<Vec<()>>().await?;
    until_filled(&world, begin).await?;
    world.until_at_rest(&["m1", "m2"], |it| crowd(it).is_some()).await?;

    let (here, there) = (world.here.mark(), world.there.mark());
    let decided = decisions(&world).await?;
    let (over, since) = (AtomicBool::new(false), Instant::now());
    let flaps = async {
        let flapped = flap(&world, "m2").await;
        over.store(true, Ordering::Relaxed);
        flapped
    };
    let (flapped, asked) = tokio::join!(flaps, ask_until(&world, &over));
    flapped?;
    let mut took = asked?;
    took.sort_unstable();
    let within = |hundredths: usize| took[(took.len() - 1) * hundredths / 100];
    let (half, most, all) = (within(50), within(99), within(100));
    let (count, flapping) = (took.len(), since.elapsed());
    println!("{FLAPS} flaps in {flapping:?}; {count} requests: p50 {half:?}, p99 {most:?}, max {all:?}");
    world.barrier(NS, 99, &["m1", "m2"]).await?;

    let deeds = world.here.since(here).into_iter().filter(|it| crowd(it).is_some());
    let (of_m2, others): (Vec<Deed>, Vec<Deed>) = deeds.partition(|it| crowd(it).is_some_and(is_on_m2));
    assert_eq!(others, [], "in the hub");
    // Each time it goes, and each time it comes.
    let bound = 2 * FLAPS * NAMESPACES / ONE_IN;
    assert!(of_m2.len() <= bound, "{} writes about what is there: {of_m2:?}", of_m2.len());
    let m1: Vec<_> = world.deeds("m1", there)?.into_iter().filter(|it| crowd(it).is_some()).collect();
    assert_eq!(m1, [], "in m1");
    let m2: Vec<_> = world.writes_to_copies(there).into_iter().filter(|it| crowd(it).is_some()).collect();
    assert_eq!(m2, [], "in m2");
    // One pass through all of them would be more.
    let again = decisions(&world).await? - decided;
    assert!(again <= bound as u64, "{again} decisions");
    Ok(())
}

/// How often it was decided where something is to be.
async fn decisions(world: &World) -> Result<u64> {
    let metrics = world.client.get("/metrics").await?.text();
    let line = metrics.lines().find_map(|line| line.strip_prefix("hanse_placement_decisions_total "));
    Ok(line.context("no such metric")?.parse()?)
}

/// To another cluster and back, before and after it got there: nothing that pods need is missing.
#[tokio::test(flavor = "multi_thread")]
async fn d12_there_and_back_again_misses_nothing() -> Result<()> {
    let world = in_m1(&["m1", "m2"]).await?;
    for (round, wait) in [false, true, false, true].into_iter().enumerate() {
        world.annotate(NAMESPACE, json!({"hanse.io/clusters": "m2"})).await?;
        if wait {
            let m2 = world.member("m2").await?;
            m2.until(&deployment_path("web"), "it got there", |it| it["status"]["readyReplicas"] == 3)
                .await?;
        }
        world.annotate(NAMESPACE, json!({"hanse.io/clusters": "m1"})).await?;
        let is_back = |it: &Value| shares(it) == [("m1".to_owned(), 3)];
        world
            .until(
                &assignment_path(&app::deployment("web", 3)),
                &format!("round {round}: it is back"),
                is_back,
            )
            .await?;
        world.until_rolled_out("web", 3).await?;
    }
    let (m1, m2) = (world.member("m1").await?, world.member("m2").await?);
    for object in app::web() {
        m1.until_there(&path(&object)).await?;
        m2.until_gone(&path(&object)).await?;
    }
    let runs = |it: &Value| {
        it["items"]
            .as_array()
            .is_some_and(|pods| pods.len() == 3 && pods.iter().all(|it| it["status"]["phase"] == "Running"))
    };
    m1.until(&pods_path(), "its pods run", runs).await?;
    Ok(())
}

/// Objects that are applied in the moment after their namespace.
#[tokio::test(flavor = "multi_thread")]
async fn d13_what_is_made_just_after_its_namespace_is_placed() -> Result<()> {
    let world = World::start(&["m1", "m2"]).await?;
    let mut all = Vec::new();
    for number in 0..20 {
        let name = format!("quick-{number}");
        let mut object = app::config_map("settings", "one");
        object["metadata"]["namespace"] = json!(name);
        let mut web = app::deployment("web", 1);
        web["metadata"]["namespace"] = json!(name);
        world.namespace(&name).await?;
        world.apply(&object).await?;
        world.apply(&web).await?;
        all.extend([object, web]);
    }
    for object in &all {
        let applied = |it: &Value| it["status"]["clusters"][0]["applied"] == true;
        world.until(&assignment_path(object), "it is placed", applied).await?;
    }
    Ok(())
}

/// A member is unjoined, its work is done elsewhere, and it is joined again: nothing there is revived, made or ended.
#[tokio::test(flavor = "multi_thread")]
async fn d08_a_member_that_is_joined_again_revives_nothing() -> Result<()> {
    let world = World::start(&["m1", "m2"]).await?;
    world.namespace(NS).await?;
    world.apply_all(&app::web()).await?;
    world.until_rolled_out("web", 3).await?;
    let home = shares(&world.assignment(&app::deployment("web", 3)).await?)[0].0.clone();
    let other = if home == "m1" { "m2" } else { "m1" };
    let pods = world.member(&home).await?.pods(NS).await?;
    let hub = crate::world::sync_client(&crate::world::access(&world.hub, api::DEFAULT));
    let request = sync::unjoin::Request {
        name: &home,
        hub: &hub,
        member: None,
        forget: false,
        delete_namespaces: false,
    };
    sync::unjoin::unjoin(&request).await?;
    world.until_gone(&format!("{CLUSTERS}/{home}")).await?;
    world
        .member(other)
        .await?
        .until(&deployment_path("web"), "it runs elsewhere", |it| it["status"]["readyReplicas"] == 3)
        .await?;
    let mark = world.there.mark();
    world.join(&home).await?;
    world.barrier(NS, 1, &["m1", "m2"]).await?;
    let revived = world.deeds(&home, mark)?.into_iter();
    let revived =
        revived.filter(|it| it.namespace == NS && it.what != What::Status && !it.name.contains("barrier-"));
    assert_eq!(revived.collect::<Vec<_>>(), []);
    assert_eq!(world.member(&home).await?.pods(NS).await?, pods);
    assert_eq!(shares(&world.assignment(&app::deployment("web", 3)).await?), [(other.to_owned(), 3)]);
    let web = world.get(&deployment_path("web")).await?;
    assert_eq!((&web["status"]["replicas"], condition(&web, "Synced")), (&json!(3), Value::Null));
    Ok(())
}

/// A Deployment of one pod that asks for a tenth of a processor.
fn small(number: usize) -> Value {
    let mut object = app::deployment(&format!("small-{number}"), 1);
    object["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "100m"}});
    object
}

/// What was promised before a restart is not promised again, though no cluster has counted it (A2.4).
#[tokio::test(flavor = "multi_thread")]
async fn a2_4_creates_at_once_and_a_restart_never_exceed_a_bound() -> Result<()> {
    let mut world = World::start(&["m1"]).await?;
    world.namespace(NS).await?;
    let cluster = format!("{CLUSTERS}/m1");
    world.patch(&cluster, json!({"spec": {"capacity": {"bounds": {"cpu": "1"}}}})).await?;
    let list = format!("/apis/hanse.io/v1alpha1/namespaces/{NS}/assignments");
    let placed = |it: &Value| {
        let all = it["items"].as_array().into_iter().flatten();
        let all = all.filter(|it| text(it, "/spec/object/name").starts_with("small-"));
        let (some, none): (Vec<&Value>, Vec<&Value>) = all.partition(|it| !shares(it).is_empty());
        (some.len(), none.len())
    };
    // Nothing arrives, and nothing is counted.
    world.cut("m1")?;
    futures_util::future::try_join_all((0..15).map(|number| {
        let (world, object) = (&world, small(number));
        async move { world.apply(&object).await }
    }))
    .await?;
    world.until(&list, "ten have a place, and five have none", |it| placed(it) == (10, 5)).await?;
    world.restart_hub(false).await?;
    futures_util::future::try_join_all((15..30).map(|number| {
        let (world, object) = (&world, small(number));
        async move { world.apply(&object).await }
    }))
    .await?;
    world.until(&list, "all are decided", |it| placed(it).0 + placed(it).1 == 30).await?;
    assert_eq!(placed(&world.get(&list).await?), (10, 20));

    world.heal("m1")?;
    world.until_ready("m1").await?;
    let is_full = |it: &Value| it["status"]["requested"]["cpu"] == "1";
    world.until(&cluster, "it has counted them", is_full).await?;
    world.barrier(NS, 0, &["m1"]).await?;
    let m1 = world.member("m1").await?;
    assert_eq!((placed(&world.get(&list).await?), m1.pods(NS).await?.len()), ((10, 20), 10));

    world.patch(&cluster, json!({"spec": {"capacity": {"bounds": {"cpu": "1500m"}}}})).await?;
    world.until(&list, "there is room for five more", |it| placed(it) == (15, 15)).await?;
    let is_full = |it: &Value| it["status"]["requested"]["cpu"] == "1500m";
    world.until(&cluster, "it has counted these, too", is_full).await?;
    world.barrier(NS, 1, &["m1"]).await?;
    assert_eq!((placed(&world.get(&list).await?), m1.pods(NS).await?.len()), ((15, 15), 15));
    Ok(())
}
