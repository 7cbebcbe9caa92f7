//! How long things take at most, with the settings that hubs are run with, on a clock that jumps; and what outlasts hours
//! that nobody could wait for.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use http::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    app::{self, NS},
    history::{Deed, History, Mark, TOKENS},
    jumping::{HUB, Jumping},
    world::{
        CLUSTERS, assignment_path, collection, condition, deployment_path, is_rolled_out, path, pods_path,
        text,
    },
};

const NAMESPACE: &str = "/api/v1/namespaces/shop";
const EVENTS: &str = "/api/v1/namespaces/shop/events";
/// How often is looked. Nothing that is measured is known any better.
const LOOK: Duration = Duration::from_millis(50);
/// Nothing that is measured takes longer.
const LONGEST: Duration = Duration::from_secs(120);

/// How long it takes until an answer of the hub is as it should be.
async fn measured(world: &Jumping, path: &str, holds: impl Fn(&Value) -> bool) -> Result<Duration> {
    let since = Instant::now();
    loop {
        let found = crate::jumping::ask(&world.peer.hub, Method::GET, path, None).await?;
        if holds(&found) {
            return Ok(since.elapsed());
        }
        ensure!(since.elapsed() < LONGEST, "{path} stays {found}");
        tokio::time::sleep(LOOK).await;
    }
}

/// Whether an Event of that reason is about an object of that name.
fn tells(list: &Value, name: &str, reason: &str) -> bool {
    let mut events = list["items"].as_array().into_iter().flatten();
    events.any(|it| it["involvedObject"]["name"] == name && it["reason"] == reason)
}

fn items(list: &Value) -> Vec<Value> {
    list["items"].as_array().cloned().unwrap_or_default()
}

async fn create_in(world: &Jumping, member: &str, object: &Value) -> Result<()> {
    let made = world.ask_member(member, Method::POST, &collection(object), Some(object)).await?;
    ensure!(made["metadata"]["uid"].is_string(), "{made}");
    Ok(())
}

/// The UIDs of the pods of a member, with how often they were restarted.
async fn pods(world: &Jumping, member: &str) -> Result<BTreeSet<(String, u64)>> {
    let list = world.ask_member(member, Method::GET, &pods_path(), None).await?;
    let of = |pod: &Value| {
        let restarts = pod["status"]["containerStatuses"][0]["restartCount"].as_u64().unwrap_or(0);
        (text(pod, "/metadata/uid").to_owned(), restarts)
    };
    Ok(items(&list).iter().map(of).collect())
}

/// `web` runs in both.
async fn running(world: &Jumping) -> Result<()> {
    world.create(&app::namespace(NS)).await?;
    world.patch(NAMESPACE, &json!({"metadata": {"annotations": {"hanse.io/clusters": "m1,m2"}}})).await?;
    for object in app::web() {
        world.create(&object).await?;
    }
    world.until(&deployment_path("web"), |it| is_rolled_out(it, 3)).await.map(drop)
}

#[tokio::test(start_paused = true)]
async fn u1_7_a_refusal_is_on_the_object_in_five_seconds() -> Result<()> {
    let world = Jumping::start(&["m1"]).await?;
    create_in(&world, "m1", &app::namespace(NS)).await?;
    let quota = json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "strict", "namespace": NS},
        "spec": {"hard": {"count/deployments.apps": "0"}},
    });
    create_in(&world, "m1", &quota).await?;
    let in_force = |it: &Value| it["status"]["hard"]["count/deployments.apps"] == "0";
    world.until_there("m1", &path(&quota), in_force).await?;
    world.create(&app::namespace(NS)).await?;
    world.create(&app::deployment("web", 3)).await?;
    let since = Instant::now();
    let refused = |it: &Value| condition(it, "Synced")["reason"] == "Refused";
    measured(&world, &deployment_path("web"), refused).await?;
    measured(&world, EVENTS, |it| tells(it, "web", "Refused")).await?;
    assert!(since.elapsed() <= Duration::from_secs(5), "{:?}", since.elapsed());
    Ok(())
}

/// A rejected copy, one that would take another's place, and what finds no place: each is on the object, or beside it.
#[tokio::test(start_paused = true)]
async fn x4_whatever_is_stuck_shows_in_ten_seconds() -> Result<()> {
    let world = Jumping::start(&["m1"]).await?;
    create_in(&world, "m1", &app::namespace(NS)).await?;
    let settings = app::config_map("settings", "theirs");
    create_in(&world, "m1", &settings).await?;
    world.create(&app::namespace(NS)).await?;
    let mut nowhere = app::deployment("nowhere", 1);
    nowhere["metadata"]["annotations"] = json!({"hanse.io/clusters": "atlantis"});
    for object in [&app::deployment("web", 1), &settings, &nowhere] {
        world.create(object).await?;
    }
    let since = Instant::now();
    measured(&world, EVENTS, |it| tells(it, "settings", "Conflict") && tells(it, "nowhere", "Unplaced"))
        .await?;
    let in_conflict = |it: &Value| it["status"]["clusters"][0]["reason"] == "Conflict";
    measured(&world, &assignment_path(&settings), in_conflict).await?;
    let is_unplaced = |it: &Value| condition(it, "Synced")["reason"] == "Unplaced";
    measured(&world, &deployment_path("nowhere"), is_unplaced).await?;
    assert!(since.elapsed() <= Duration::from_secs(10), "{:?}", since.elapsed());
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn scenario_07_an_image_that_one_cluster_cannot_have_is_told_in_ten_seconds() -> Result<()> {
    let world = Jumping::start(&["m1", "m2"]).await?;
    world.create(&app::namespace(NS)).await?;
    world.patch(NAMESPACE, &json!({"metadata": {"annotations": {"hanse.io/clusters": "m1,m2"}}})).await?;
    let image = json!({"path": "/spec/template/spec/containers/0/image", "value": "registry.invalid/main:1"});
    world
        .create(&json!({
            "apiVersion": "hanse.io/v1alpha1", "kind": "Override", "metadata": {"name": "bad-image"},
            "spec": {
                "select": [{"kinds": ["Deployment"], "namespaces": [NS]}], "clusters": {"names": ["m2"]},
                "patches": [image],
            },
        }))
        .await?;
    world.create(&app::deployment("web", 4)).await?;
    let since = Instant::now();
    measured(&world, EVENTS, |it| tells(it, "web", "ErrImagePull")).await?;
    let is_honest = |it: &Value| {
        it["status"]["readyReplicas"] == 2
            && text(&condition(it, "Progressing"), "/message").contains("m2")
            && condition(it, "Available")["status"] == "False"
    };
    measured(&world, &deployment_path("web"), is_honest).await?;
    assert!(since.elapsed() <= Duration::from_secs(10), "{:?}", since.elapsed());
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn scenario_10_a_deletion_leaves_nothing_in_thirty_seconds() -> Result<()> {
    let world = Jumping::start(&["m1", "m2"]).await?;
    running(&world).await?;
    let delete = json!({"propagationPolicy": "Background"});
    let since = Instant::now();
    crate::jumping::ask(&world.peer.hub, Method::DELETE, &deployment_path("web"), Some(&delete)).await?;
    for member in ["m1", "m2"] {
        for kind in ["apis/apps/v1/namespaces/shop/deployments", "apis/apps/v1/namespaces/shop/replicasets"] {
            world.until_there(member, &format!("/{kind}"), |it| items(it).is_empty()).await?;
        }
        world.until_there(member, &pods_path(), |it| items(it).is_empty()).await?;
    }
    assert!(since.elapsed() <= Duration::from_secs(30), "{:?}", since.elapsed());
    Ok(())
}

/// Each of them, from the moment at which its cluster has it.
#[tokio::test(start_paused = true)]
async fn u1_6_pods_show_in_two_seconds() -> Result<()> {
    let world = Jumping::start(&["m1", "m2"]).await?;
    running(&world).await?;
    for replicas in 4..9_u64 {
        world.patch(&deployment_path("web"), &json!({"spec": {"replicas": replicas}})).await?;
        let begun = Instant::now();
        let there = loop {
            let there: BTreeSet<_> =
                pods(&world, "m1").await?.union(&pods(&world, "m2").await?).cloned().collect();
            if there.len() as u64 == replicas {
                break there;
            }
            ensure!(begun.elapsed() < LONGEST, "there are {} of {replicas}", there.len());
            tokio::time::sleep(LOOK).await;
        };
        let shown = |it: &Value| {
            let uids: BTreeSet<String> =
                items(it).iter().map(|pod| text(pod, "/metadata/uid").to_owned()).collect();
            there.iter().all(|(uid, _)| uids.contains(uid))
        };
        let took = measured(&world, &pods_path(), shown).await?;
        assert!(took + LOOK <= Duration::from_secs(2), "{took:?}");
    }
    Ok(())
}

/// What ended in a member, by its own records.
fn ends(history: &History, since: Mark) -> Vec<Deed> {
    history.since(since).into_iter().filter(Deed::is_end).collect()
}

/// A quarter of an hour without a word, while the hub comes back three times with nothing that it had seen.
#[tokio::test(start_paused = true)]
async fn scenario_12_a_quarter_of_an_hour_apart_with_three_restarts_ends_nothing() -> Result<()> {
    let mut world = Jumping::start(&["m1", "m2"]).await?;
    running(&world).await?;
    let before = pods(&world, "m1").await?;
    ensure!(!before.is_empty(), "nothing runs in m1");
    let there = History::begin(&*world.member("m1")?.hub().store);
    let mark = there.mark();
    world.net.partition(HUB, "m1");
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_secs(300)).await;
        assert_eq!(pods(&world, "m1").await?, before);
        world = world.restarted_with(&["m2"]).await?;
    }
    world.net.heal(HUB, "m1");
    world.until_ready("m1").await?;
    world.until(&deployment_path("web"), |it| is_rolled_out(it, 3)).await?;
    // It is looked after again, and so all was compared.
    world.create(&app::config_map("later", "x")).await?;
    world.until_there("m1", &path(&app::config_map("later", "x")), |it| it["data"].is_object()).await?;
    assert_eq!(pods(&world, "m1").await?, before);
    assert_eq!(ends(&there, mark), []);
    Ok(())
}

/// A day without a hub: pods run on, their tokens are good for another day, and when it is back nothing is restarted, and
/// tokens are renewed.
#[tokio::test(start_paused = true)]
async fn x6_a_day_without_the_hub_ends_nothing() -> Result<()> {
    const DAY: Duration = Duration::from_secs(24 * 60 * 60);
    let world = Jumping::start(&["m1", "m2"]).await?;
    running(&world).await?;
    let secrets = format!("{NAMESPACE}/secrets");
    let tokens = |list: &Value| -> BTreeSet<(String, String)> {
        let of = |it: &Value| (text(it, "/metadata/name").to_owned(), it["data"].to_string());
        items(list).iter().map(of).filter(|(name, _)| name.starts_with(TOKENS)).collect()
    };
    let made = tokens(&world.until_there("m1", &secrets, |it| !tokens(it).is_empty()).await?);
    let there = Arc::new(History::begin(&*world.member("m1")?.hub().store));
    let (mark, reads) = (there.mark(), there.clone());
    // It holds only so much that was not read.
    let reader = tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_secs(600)).await;
            reads.mark();
        }
    });
    let before = pods(&world, "m1").await?;
    let world = world.restarted_after(DAY).await?;
    assert_eq!(pods(&world, "m1").await?, before);
    world.until_ready("m1").await?;
    world.until(&deployment_path("web"), |it| is_rolled_out(it, 3)).await?;
    let is_renewed = |it: &Value| !tokens(it).is_subset(&made);
    world.until_there("m1", &secrets, is_renewed).await.context("no token was renewed")?;
    world.create(&app::config_map("later", "x")).await?;
    world.until_there("m1", &path(&app::config_map("later", "x")), |it| it["data"].is_object()).await?;
    assert_eq!(pods(&world, "m1").await?, before);
    assert_eq!(ends(&there, mark), []);
    reader.abort();
    Ok(())
}

/// A move that was under way when the hub went, and the cluster that it went to is lost when the hub is back: what is stored
/// of that one is no reason to end what runs.
#[tokio::test(start_paused = true)]
async fn a_cluster_that_is_lost_while_the_hub_is_away_takes_nobodys_place() -> Result<()> {
    let world = Jumping::start(&["m1", "m2"]).await?;
    world.create(&app::namespace(NS)).await?;
    world.patch(NAMESPACE, &json!({"metadata": {"annotations": {"hanse.io/clusters": "m1"}}})).await?;
    let web = app::deployment("web", 3);
    world.create(&web).await?;
    world.until(&deployment_path("web"), |it| is_rolled_out(it, 3)).await?;
    let before = pods(&world, "m1").await?;
    ensure!(before.len() == 3, "{before:?}");
    // Given a move to m2 that m1 knows nothing of,
    world.net.partition(HUB, "m1");
    let is_lost = |it: &Value| condition(it, "Ready")["status"] == "False";
    world.until(&format!("{CLUSTERS}/m1"), is_lost).await?;
    world.patch(NAMESPACE, &json!({"metadata": {"annotations": {"hanse.io/clusters": "m2"}}})).await?;
    let report = |it: &Value, name: &str| {
        items(&json!({"items": it["status"]["clusters"]})).into_iter().find(|it| it["name"] == name)
    };
    let is_moved = |it: &Value| report(it, "m2").is_some_and(|it| it["ready"] == true);
    let moved = world.until(&assignment_path(&web), is_moved).await?;
    ensure!(report(&moved, "m1").is_some(), "{moved}");
    // when the hub is back, and finds m1 and not m2,
    world.net.partition(HUB, "m2");
    let world = world.restarted_after(Duration::ZERO).await?;
    world.net.heal(HUB, "m1");
    world.until_ready("m1").await?;
    tokio::time::sleep(Duration::from_secs(60)).await;
    // then what runs in m1 runs on,
    assert_eq!(pods(&world, "m1").await?, before);
    // and goes when m2 is there again.
    world.net.heal(HUB, "m2");
    world.until_ready("m2").await?;
    let is_gone = |it: &Value| it["code"] == 404;
    let since = Instant::now();
    world.until_there("m1", &deployment_path("web"), is_gone).await?;
    assert!(since.elapsed() <= Duration::from_secs(10), "{:?}", since.elapsed());
    world.until(&deployment_path("web"), |it| is_rolled_out(it, 3)).await.map(drop)
}
