//! Something is deleted: in all ways there are, and under another's name.

use anyhow::{Context, Result};
use http::Method;
use serde_json::{Value, json};
use sync::unjoin;

use crate::{
    app::{self, NS},
    history::{TOKENS, What},
    world::{
        CLUSTERS, World, access, apply, assignment_path, condition, deployment_path, is_rolled_out, path,
        pods_path, shares, sync_client, text,
    },
};

const NAMESPACE: &str = "/api/v1/namespaces/shop";
pub const WORKSPACES: &str = "/clusters/root/apis/hanse.io/v1alpha1/workspaces";
const TEAM: &str = "/clusters/team";

/// A world where `web` runs in m1.
async fn running() -> Result<World> {
    let world = World::start(&["m1", "m2"]).await?;
    world.namespace(NS).await?;
    world.annotate(NAMESPACE, json!({"hanse.io/clusters": "m1"})).await?;
    world.apply_all(&app::web()).await?;
    world.until_rolled_out("web", 3).await?;
    Ok(world)
}

async fn delete(world: &World, path: &str, propagation: &str) -> Result<()> {
    let options = json!({"propagationPolicy": propagation}).to_string();
    let json = [("content-type", "application/json")];
    let answer = world.client.call(Method::DELETE, path, &json, options).await?;
    anyhow::ensure!(answer.code.is_success(), "{path}: {}", answer.text());
    Ok(())
}

/// What of the namespace in the member is a copy, by its marks.
async fn copies(world: &World, member: &str) -> Result<Vec<String>> {
    let member = world.member(member).await?;
    let mut found = Vec::new();
    for kind in ["deployments", "replicasets"] {
        found.extend(member.items(&format!("/apis/apps/v1/namespaces/{NS}/{kind}")).await?);
    }
    for kind in ["services", "configmaps", "secrets", "pods"] {
        found.extend(member.items(&format!("/api/v1/namespaces/{NS}/{kind}")).await?);
    }
    let is_copy = |it: &&Value| it["metadata"]["annotations"][api::SOURCE_ANNOTATION].is_string();
    let names = found.iter().filter(is_copy).map(|it| text(it, "/metadata/name").to_owned());
    Ok(names.filter(|name| !name.starts_with(TOKENS)).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_10_deleting_in_the_background_leaves_nothing_marked() -> Result<()> {
    let world = running().await?;
    let member = world.member("m1").await?;
    for object in app::web() {
        delete(&world, &path(&object), "Background").await?;
    }
    for object in app::web() {
        world.until_gone(&path(&object)).await?;
        world.until_gone(&assignment_path(&object)).await?;
        member.until_gone(&path(&object)).await?;
    }
    member.until(&pods_path(), "no pod is left", |it| it["items"] == json!([])).await?;
    world.until(&pods_path(), "no pod shows", |it| it["items"] == json!([])).await?;
    assert_eq!(copies(&world, "m1").await?, [""; 0]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_10_foreground_ends_only_after_the_pods_are_gone_in_members() -> Result<()> {
    let world = running().await?;
    let member = world.member("m1").await?;
    let pods = member.pods(NS).await?;
    let mark = world.there.mark();
    delete(&world, &deployment_path("web"), "Foreground").await?;
    world.until_gone(&deployment_path("web")).await?;
    // The member's history at this moment.
    let ended = world.deeds("m1", mark)?;
    for (uid, _) in &pods {
        let is_end = ended.iter().any(|deed| deed.what == What::Removed && deed.uid == *uid);
        assert!(is_end, "pod {uid} was there when the Deployment had gone: {ended:?}");
    }
    assert!(!member.has(&deployment_path("web")).await?);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_10_orphans_go_on_running() -> Result<()> {
    let world = running().await?;
    let member = world.member("m1").await?;
    let pods = member.pods(NS).await?;
    let mark = world.there.mark();
    delete(&world, &deployment_path("web"), "Orphan").await?;
    world.until_gone(&deployment_path("web")).await?;
    member.until_gone(&deployment_path("web")).await?;
    world.until_gone(&assignment_path(&app::deployment("web", 3))).await?;
    world.barrier(NS, 1, &["m1"]).await?;
    assert_eq!(member.pods(NS).await?, pods);
    let sets = member.items(&format!("/apis/apps/v1/namespaces/{NS}/replicasets")).await?;
    assert_eq!(sets.len(), 1);
    let ends =
        world.deeds("m1", mark)?.into_iter().filter(|deed| deed.is_end() && deed.resource != "deployments");
    assert_eq!(ends.collect::<Vec<_>>(), []);
    Ok(())
}

/// What was deleted is not what was made under its name meanwhile: here and there (X2).
#[tokio::test(flavor = "multi_thread")]
async fn d05_deleting_and_making_again_never_removes_the_new_one() -> Result<()> {
    let world = running().await?;
    let member = world.member("m1").await?;
    let settings = app::config_map("settings", "one");
    let mut last = Value::Null;
    for round in 0..20 {
        delete(&world, &path(&settings), "Background").await?;
        // It may take a moment until the name is free.
        world.until_gone(&path(&settings)).await?;
        last = world.apply(&app::config_map("settings", &round.to_string())).await?;
    }
    let uid = last["metadata"]["uid"].clone();
    let is_new = |it: &Value| it["metadata"]["annotations"][api::SOURCE_ANNOTATION] == uid;
    let copy = member.until(&path(&settings), "the last one arrived", is_new).await?;
    world.barrier(NS, 1, &["m1"]).await?;
    let now = member.get(&path(&settings)).await?;
    assert_eq!((&now["metadata"]["uid"], &now["data"]["key"]), (&copy["metadata"]["uid"], &json!("19")));
    Ok(())
}

/// While nobody looked, somebody put another in the place of the copy. It is not ours to delete (X2).
#[tokio::test(flavor = "multi_thread")]
async fn d05_another_object_in_the_place_of_a_copy_is_not_deleted() -> Result<()> {
    let world = running().await?;
    let member = world.member("m1").await?;
    let settings = app::config_map("settings", "theirs");
    world.cut("m1")?;
    member.client.delete(&path(&settings)).await?;
    let theirs = member.create(&settings).await?;
    let mark = world.there.mark();
    delete(&world, &path(&settings), "Background").await?;
    world.heal("m1")?;
    world.until_gone(&assignment_path(&settings)).await?;
    world.until_ready("m1").await?;
    world.barrier(NS, 1, &["m1"]).await?;
    let now = member.get(&path(&settings)).await?;
    assert_eq!(now["metadata"]["uid"], theirs["metadata"]["uid"]);
    let touched = world.deeds("m1", mark)?.into_iter().filter(|deed| deed.name == "settings");
    assert_eq!(touched.collect::<Vec<_>>(), []);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn x2_bad_input_conflicting_owners_a_foreign_object_is_never_overwritten() -> Result<()> {
    let world = World::start(&["m1"]).await?;
    let member = world.member("m1").await?;
    member.create(&app::namespace(NS)).await?;
    let theirs = member.create(&app::deployment("web", 1)).await?;
    member.until(&deployment_path("web"), "it runs", |it| is_rolled_out(it, 1)).await?;
    world.clusters.settled().await?;
    let mark = world.there.mark();
    world.namespace(NS).await?;
    world.apply(&app::deployment("web", 3)).await?;

    let is_told = |it: &Value| {
        let synced = condition(it, "Synced");
        synced["reason"] == "Conflict" && text(&synced, "/message").contains(api::ADOPT_ANNOTATION)
    };
    world.until(&deployment_path("web"), "the conflict is told, with what to do", is_told).await?;
    let about_it = |list: &Value| {
        let mut events = list["items"].as_array().into_iter().flatten();
        events.any(|it| it["reason"] == "Conflict" && it["involvedObject"]["name"] == "web")
    };
    world.until(&format!("{NAMESPACE}/events"), "as an event too", about_it).await?;
    let is_theirs = |deed: &crate::history::Deed| deed.resource == "deployments" && deed.what != What::Status;
    let touched =
        || -> Result<Vec<_>> { Ok(world.deeds("m1", mark)?.into_iter().filter(is_theirs).collect()) };
    assert_eq!(touched()?, []);

    // Deleting ours is no reason to delete theirs.
    delete(&world, &deployment_path("web"), "Background").await?;
    world.until_gone(&deployment_path("web")).await?;
    world.until_gone(&assignment_path(&app::deployment("web", 3))).await?;
    world.barrier(NS, 1, &["m1"]).await?;
    assert_eq!(touched()?, []);

    // Told to, it is taken over, as the object that it is.
    let mut web = app::deployment("web", 3);
    web["metadata"]["annotations"] = json!({api::ADOPT_ANNOTATION: "true"});
    world.apply(&web).await?;
    world.until_rolled_out("web", 3).await?;
    let now = member.get(&deployment_path("web")).await?;
    assert_eq!(now["metadata"]["uid"], theirs["metadata"]["uid"]);
    Ok(())
}

async fn forget(world: &World, cluster: &str) -> Result<()> {
    let hub = sync_client(&access(&world.hub, api::DEFAULT));
    let request =
        unjoin::Request { name: cluster, hub: &hub, member: None, forget: true, delete_namespaces: false };
    unjoin::unjoin(&request).await?;
    world.until_gone(&format!("{CLUSTERS}/{cluster}")).await
}

/// The member is gone for good, or seems to be.
#[tokio::test(flavor = "multi_thread")]
async fn scenario_11_deleting_a_namespace_with_a_dead_member() -> Result<()> {
    let world = running().await?;
    world.annotate(NAMESPACE, json!({"hanse.io/clusters": "m1,m2"})).await?;
    let m2 = world.member("m2").await?;
    m2.until_there(&deployment_path("web")).await?;
    world.until_rolled_out("web", 3).await?;
    let pods = world.member("m1").await?.pods(NS).await?;
    world.clusters.simulation.stop("m1").await?;
    let mark = world.there.mark();

    delete(&world, NAMESPACE, "Background").await?;

    // Where it can, it goes; and it says for whom it waits.
    m2.until_gone(NAMESPACE).await?;
    let waits_for_m1 = |it: &Value| {
        it["items"].as_array().is_some_and(|all| {
            !all.is_empty() && all.iter().all(|it| shares(it).iter().all(|(name, _)| name == "m1"))
        })
    };
    let assignments = format!("/apis/hanse.io/v1alpha1/namespaces/{NS}/assignments");
    world.until(&assignments, "only m1 is left", waits_for_m1).await?;
    let names_m1 = |it: &Value, kind: &str| {
        let told = condition(it, kind);
        let message = text(&told, "/message");
        told["status"] == "True" && message.contains("with copies in m1") && !message.contains("m2")
    };
    let says_so = |it: &Value| {
        it["status"]["phase"] == "Terminating"
            && names_m1(it, "NamespaceFinalizersRemaining")
            && names_m1(it, "NamespaceContentRemaining")
    };
    world.until(NAMESPACE, "it says which cluster keeps it", says_so).await?;
    // Nobody knew that m1 was dead when it began. It is told once.
    let events = "/api/v1/namespaces/default/events";
    let about_it = |list: &Value| -> Vec<Value> {
        let events = list["items"].as_array().into_iter().flatten();
        let waits = |it: &&Value| it["reason"] == "WaitingForCluster" && it["involvedObject"]["name"] == NS;
        events.filter(waits).cloned().collect()
    };
    let told = world.until(events, "an event tells it", |it| !about_it(it).is_empty()).await?;
    assert!(text(&about_it(&told)[0], "/message").contains("hanse unjoin m1 --forget"), "{told}");
    world.namespace("other").await?;
    world.barrier("other", 0, &["m2"]).await?;
    let told = about_it(&world.get(events).await?);
    assert_eq!(told.iter().map(|it| it["count"].clone()).collect::<Vec<_>>(), [json!(1)], "{told:?}");

    // Somebody says that the member does not come back.
    forget(&world, "m1").await?;
    world.until_gone(NAMESPACE).await?;

    // It does after all. The hub has no memory of what was there, so nothing is deleted, and nothing starts again.
    world.clusters.simulation.resume("m1").await?;
    world.join("m1").await?;
    world.barrier("other", 1, &["m1", "m2"]).await?;
    let m1 = world.member("m1").await?;
    assert_eq!(m1.pods(NS).await?, pods);
    // What is applied again is what runs there, and goes with it.
    world.namespace(NS).await?;
    world.annotate(NAMESPACE, json!({"hanse.io/clusters": "m1"})).await?;
    world.apply_all(&app::web()).await?;
    world.until_rolled_out("web", 3).await?;
    let now = m1.pods(NS).await?;
    assert!(now.is_superset(&pods), "they go on: {now:?}, {pods:?}");
    let made = world.deeds("m1", mark)?.into_iter();
    let made = made.filter(|deed| deed.namespace == NS && deed.what == What::Made && deed.resource == "pods");
    assert_eq!(made.count(), now.len() - pods.len());
    delete(&world, NAMESPACE, "Background").await?;
    world.until_gone(NAMESPACE).await?;
    m1.until_gone(NAMESPACE).await.context("what was left goes with it")
}

/// A workspace where something runs in m1, which is dead then.
async fn with_a_workspace_in_a_dead_member() -> Result<World> {
    let world = World::start(&["m1"]).await?;
    world.client.post(WORKSPACES, &json!({"metadata": {"name": "team"}})).await?;
    apply(&world.client, TEAM, &app::namespace(NS)).await?;
    apply(&world.client, TEAM, &app::deployment("web", 1)).await?;
    let runs = |it: &Value| it["status"]["readyReplicas"] == 1;
    world.until(&format!("{TEAM}{}", deployment_path("web")), "it runs", runs).await?;
    world.clusters.simulation.stop("m1").await?;
    Ok(world)
}

#[tokio::test(flavor = "multi_thread")]
async fn d14_deleting_a_workspace_does_not_wait_for_a_dead_member() -> Result<()> {
    let world = with_a_workspace_in_a_dead_member().await?;
    let gone = world.client.delete(&format!("{WORKSPACES}/team")).await?;
    assert!(gone.code.is_success(), "{}", gone.text());
    world.until_gone(&format!("{WORKSPACES}/team")).await?;
    assert_ne!(world.get(&format!("{CLUSTERS}/m1")).await?["metadata"]["uid"], Value::Null);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn d14_nor_for_one_that_is_said_to_be_gone() -> Result<()> {
    let world = with_a_workspace_in_a_dead_member().await?;
    let gone = world.client.delete(&format!("{WORKSPACES}/team")).await?;
    assert!(gone.code.is_success(), "{}", gone.text());
    forget(&world, "m1").await?;
    world.until_gone(&format!("{WORKSPACES}/team")).await
}

/// What a workspace has in members goes with it.
#[tokio::test(flavor = "multi_thread")]
async fn deleting_a_workspace_leaves_nothing_in_members() -> Result<()> {
    let world = World::start(&["m1"]).await?;
    world.client.post(WORKSPACES, &json!({"metadata": {"name": "team"}})).await?;
    apply(&world.client, TEAM, &app::namespace(NS)).await?;
    apply(&world.client, TEAM, &app::deployment("web", 1)).await?;
    let runs = |it: &Value| it["status"]["readyReplicas"] == 1;
    world.until(&format!("{TEAM}{}", deployment_path("web")), "it runs", runs).await?;
    let m1 = world.member("m1").await?;
    let is_ours = |it: &Value| it["metadata"]["labels"]["hanse.io/workspace"] == "team";
    assert!(m1.items("/api/v1/namespaces").await?.iter().any(is_ours));
    let gone = world.client.delete(&format!("{WORKSPACES}/team")).await?;
    assert!(gone.code.is_success(), "{}", gone.text());
    world.until_gone(&format!("{WORKSPACES}/team")).await?;
    let left = m1.items("/api/v1/namespaces").await?;
    let is_alive = |it: &&Value| is_ours(it) && it["metadata"]["deletionTimestamp"].is_null();
    assert!(!left.iter().any(|it| is_alive(&it)), "{left:?}");
    Ok(())
}
