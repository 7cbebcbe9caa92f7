//! What runs in members shows in workspaces: in that of the cluster, or in the one that a namespace is labelled for.

use std::sync::Arc;

use anyhow::Result;
use serde_json::{Value, json};
use store::{Store, memory::MemoryStore};
use testing::{assignments::assign, hub::eventually};

use crate::world::{CLUSTERS, Members, World, brisk};

async fn pods(world: &World, workspace: &str) -> Result<Vec<String>> {
    let path = format!("/clusters/{workspace}/api/v1/pods");
    let list = world.admin.get(&path).await?.json();
    let name = |it: &Value| {
        let metadata = &it["metadata"];
        format!(
            "{}/{}",
            metadata["namespace"].as_str().unwrap_or("?"),
            metadata["name"].as_str().unwrap_or("?")
        )
    };
    Ok(list["items"].as_array().into_iter().flatten().map(name).collect())
}

async fn until_pods(world: &World, workspace: &str, expected: &[&str]) -> Result<()> {
    let what = format!("{workspace} shows {expected:?}");
    let found = eventually(&what, || async {
        let mut shown = pods(world, workspace).await?;
        shown.sort();
        Ok((shown == expected).then_some(()))
    });
    match found.await {
        Ok(()) => Ok(()),
        Err(error) => Err(error.context(format!("{:?}", pods(world, workspace).await?))),
    }
}

async fn mk_workspace(world: &World, name: &str) -> Result<()> {
    let workspace = json!({"metadata": {"name": name}});
    world.admin.post("/clusters/root/apis/hanse.io/v1alpha1/workspaces", &workspace).await.map(drop)
}

async fn mk_namespace(members: &Members, name: &str, labels: Value) -> Result<()> {
    let namespace = json!({"metadata": {"name": name, "labels": labels}});
    members.post("one", "/api/v1/namespaces", namespace).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_of_a_member_show_as_they_are_there() -> Result<()> {
    let (world, members) = (World::start().await?, Members::start(&["one"]).await?);
    members.mk_node("one", "node").await?;
    members.mk_pod("one", "default", "first", "node").await?;
    world.join("eu-1", &members.access("one")).await?;
    until_pods(&world, "default", &["default/first"]).await?;
    members.mk_pod("one", "default", "second", "node").await?;
    until_pods(&world, "default", &["default/first", "default/second"]).await?;
    // Lost is not gone.
    world.cuts.cut(members.hub.peer.address);
    world.until("eu-1", "Timeout").await?;
    assert_eq!(pods(&world, "default").await?.len(), 2);
    let path = "/clusters/one/api/v1/namespaces/default/pods/first?gracePeriodSeconds=0";
    members.admin.delete(path).await?;
    world.cuts.heal(members.hub.peer.address);
    until_pods(&world, "default", &["default/second"]).await?;
    world.admin.delete(&format!("{CLUSTERS}/eu-1")).await?;
    until_pods(&world, "default", &[]).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_shows_in_the_workspace_it_is_labelled_for() -> Result<()> {
    let (world, members) = (World::start().await?, Members::start(&["one"]).await?);
    mk_namespace(&members, "placed", json!({api::WORKSPACE_LABEL: "team"})).await?;
    mk_namespace(&members, "plain", json!({})).await?;
    members.mk_node("one", "node").await?;
    for namespace in ["placed", "plain"] {
        members.mk_pod("one", namespace, "a", "node").await?;
    }
    world.join("eu-1", &members.access("one")).await?;
    until_pods(&world, "default", &["plain/a"]).await?;
    // The workspace comes later than what is meant for it.
    let workspace = json!({"metadata": {"name": "team"}});
    world.admin.post("/clusters/root/apis/hanse.io/v1alpha1/workspaces", &workspace).await?;
    until_pods(&world, "team", &["placed/a"]).await?;
    until_pods(&world, "default", &["plain/a"]).await?;
    // It moves with its label.
    let label = |name: Value| json!({"metadata": {"labels": {api::WORKSPACE_LABEL: name}}});
    members.admin.merge_patch("/clusters/one/api/v1/namespaces/placed", &label(Value::Null)).await?;
    until_pods(&world, "default", &["placed/a", "plain/a"]).await?;
    until_pods(&world, "team", &[]).await?;
    members.admin.merge_patch("/clusters/one/api/v1/namespaces/plain", &label(json!("team"))).await?;
    until_pods(&world, "team", &["plain/a"]).await?;
    // A namespace that is new shows at once.
    mk_namespace(&members, "later", json!({api::WORKSPACE_LABEL: "team"})).await?;
    members.mk_pod("one", "later", "b", "node").await?;
    until_pods(&world, "team", &["later/b", "plain/a"]).await?;
    world.admin.delete(&format!("{CLUSTERS}/eu-1")).await?;
    until_pods(&world, "team", &[]).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_former_workspace_of_that_name_left_does_not_show() -> Result<()> {
    let (world, members) = (World::start().await?, Members::start(&["one"]).await?);
    mk_workspace(&world, "team").await?;
    let id = world.hub.peer.hub.space("team").map_err(|it| anyhow::anyhow!("{it:?}"))?.id().to_string();
    members.mk_node("one", "node").await?;
    for (name, id) in [("of-the-former", "0123456789abcdef"), ("of-this-one", &id)] {
        let labels = json!({api::WORKSPACE_LABEL: "team", api::WORKSPACE_ID_LABEL: id});
        mk_namespace(&members, name, labels).await?;
        members.mk_pod("one", name, "web", "node").await?;
    }
    world.join("eu-1", &members.access("one")).await?;
    until_pods(&world, "team", &["of-this-one/web"]).await?;
    assert_eq!(pods(&world, "default").await?, [""; 0]);
    // Made anew under the same name, it sees nothing of that either.
    let path = "/clusters/root/apis/hanse.io/v1alpha1/workspaces/team";
    world.admin.delete(path).await?;
    eventually("the workspace is gone", || async {
        Ok((world.admin.get(path).await?.code == 404).then_some(()))
    })
    .await?;
    mk_workspace(&world, "team").await?;
    mk_namespace(&members, "new", json!({api::WORKSPACE_LABEL: "team"})).await?;
    members.mk_pod("one", "new", "api", "node").await?;
    until_pods(&world, "team", &["new/api"]).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_shows_by_the_name_that_its_workspace_has_for_it() -> Result<()> {
    let (world, members) = (World::start().await?, Members::start(&["one"]).await?);
    mk_workspace(&world, "acme").await?;
    members.mk_node("one", "node").await?;
    let labels = json!({api::WORKSPACE_LABEL: "acme", api::NAMESPACE_LABEL: "shop"});
    mk_namespace(&members, "acme-shop", labels).await?;
    mk_namespace(&members, "shop", json!({api::WORKSPACE_LABEL: "acme"})).await?;
    // Without a workspace it says nothing.
    mk_namespace(&members, "plain", json!({api::NAMESPACE_LABEL: "shop"})).await?;
    for namespace in ["acme-shop", "plain"] {
        members.mk_pod("one", namespace, "web", "node").await?;
    }
    world.join("eu-1", &members.access("one")).await?;
    until_pods(&world, "acme", &["shop/web"]).await?;
    until_pods(&world, "default", &["plain/web"]).await?;
    let shown = world.admin.get("/clusters/acme/api/v1/namespaces/shop/pods/web").await?.json();
    let there = members.get("one", "/api/v1/namespaces/acme-shop/pods/web").await?.json();
    assert_eq!(shown["metadata"]["uid"], there["metadata"]["uid"]);
    // Two that are one here: both show.
    members.mk_pod("one", "shop", "web", "node").await?;
    until_pods(&world, "acme", &["shop/web", "shop/web-eu-1"]).await?;
    let path = "/clusters/acme/api/v1/namespaces/shop/pods/web?gracePeriodSeconds=0";
    let deleted = world.admin.delete(path).await?;
    assert_eq!(deleted.code, 200, "{}", deleted.text());
    until_pods(&world, "acme", &["shop/web-eu-1"]).await?;
    assert_eq!(members.get("one", "/api/v1/namespaces/acme-shop/pods/web").await?.code, 404);
    // Its name here changes with the label.
    members.mk_pod("one", "acme-shop", "api", "node").await?;
    until_pods(&world, "acme", &["shop/api", "shop/web-eu-1"]).await?;
    let label = json!({"metadata": {"labels": {api::NAMESPACE_LABEL: "front"}}});
    members.admin.merge_patch("/clusters/one/api/v1/namespaces/acme-shop", &label).await?;
    until_pods(&world, "acme", &["front/api", "shop/web-eu-1"]).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_cluster_of_its_own_a_workspace_has_its_own_names() -> Result<()> {
    let (world, members) = (World::start().await?, Members::start(&["one"]).await?);
    mk_workspace(&world, "mine").await?;
    mk_workspace(&world, "yours").await?;
    members.mk_node("one", "node").await?;
    for (namespace, workspace) in [("mine-shop", "mine"), ("yours-shop", "yours")] {
        let labels = json!({api::WORKSPACE_LABEL: workspace, api::NAMESPACE_LABEL: "shop"});
        mk_namespace(&members, namespace, labels).await?;
        members.mk_pod("one", namespace, "web", "node").await?;
    }
    crate::world::join(&crate::world::access(&world.hub, "mine"), "eu-1", &members.access("one")).await?;
    until_pods(&world, "mine", &["shop/web"]).await?;
    assert_eq!(pods(&world, "yours").await?, [] as [String; 0]);
    Ok(())
}

/// The hub learns of it only by what is not there any more.
#[tokio::test(flavor = "multi_thread")]
async fn a_labelled_namespace_that_went_while_the_hub_was_down_is_gone_from_its_workspace() -> Result<()> {
    let (store, directory) = (Arc::new(MemoryStore::new()) as Arc<dyn Store>, tempfile::tempdir()?);
    let members = Members::start(&["one"]).await?;
    let world = World::start_on(store.clone(), Some(directory.path()), brisk()).await?;
    mk_workspace(&world, "team").await?;
    mk_namespace(&members, "placed", json!({api::WORKSPACE_LABEL: "team"})).await?;
    members.mk_node("one", "node").await?;
    members.mk_pod("one", "placed", "a", "node").await?;
    world.join("eu-1", &members.access("one")).await?;
    until_pods(&world, "team", &["placed/a"]).await?;
    world.hub.stop().await;
    let kept = std::fs::read_dir(directory.path())?.filter_map(|file| std::fs::read(file.ok()?.path()).ok());
    assert!(
        kept.into_iter().any(|file| String::from_utf8_lossy(&file).contains("\"placed\"")),
        "it was seen"
    );
    let there = "/clusters/one/api/v1/namespaces/placed";
    members.admin.delete(&format!("{there}/pods/a?gracePeriodSeconds=0")).await?;
    members.admin.delete(there).await?;
    eventually("the namespace is gone", || async {
        Ok((members.admin.get(there).await?.code == 404).then_some(()))
    })
    .await?;

    let world = World::start_on(store, Some(directory.path()), brisk()).await?;

    until_pods(&world, "team", &[]).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_shows_when_the_one_that_had_its_name_is_gone() -> Result<()> {
    let (world, members) = (World::start().await?, Members::start(&["one", "two"]).await?);
    mk_workspace(&world, "team").await?;
    mk_namespace(&members, "placed", json!({api::WORKSPACE_LABEL: "team"})).await?;
    members.mk_node("one", "node").await?;
    members.mk_pod("one", "placed", "a", "node").await?;
    members.mk_pod("one", "default", "seen", "node").await?;
    members.mk_node("two", "node").await?;
    members.mk_pod("two", "default", "own", "node").await?;
    let team = crate::world::access(&world.hub, "team");
    crate::world::join(&team, "eu-1", &members.access("two")).await?;
    until_pods(&world, "team", &["default/own"]).await?;
    // The platform's, of the same name, has something there too, and must wait.
    world.join("eu-1", &members.access("one")).await?;
    until_pods(&world, "default", &["default/seen"]).await?;
    assert_eq!(pods(&world, "team").await?, ["default/own"]);

    world.admin.delete(&format!("/clusters/team{CLUSTERS}/eu-1")).await?;

    until_pods(&world, "team", &["placed/a"]).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_holder_of_a_workspace_puts_nothing_into_those_of_others() -> Result<()> {
    let (world, members) = (World::start().await?, Members::start(&["one"]).await?);
    for name in ["mine", "yours"] {
        let workspace = json!({"metadata": {"name": name}});
        world.admin.post("/clusters/root/apis/hanse.io/v1alpha1/workspaces", &workspace).await?;
    }
    members.mk_node("one", "node").await?;
    for (namespace, workspace) in [("a", "yours"), ("b", "mine")] {
        mk_namespace(&members, namespace, json!({api::WORKSPACE_LABEL: workspace})).await?;
        members.mk_pod("one", namespace, "pod", "node").await?;
    }
    crate::world::join(&crate::world::access(&world.hub, "mine"), "eu-1", &members.access("one")).await?;
    until_pods(&world, "mine", &["b/pod"]).await?;
    assert_eq!(pods(&world, "yours").await?, [] as [String; 0]);
    Ok(())
}

/// The UID of a `Cluster` of the workspace `default`.
async fn uid(world: &World, name: &str) -> Result<String> {
    Ok(world.cluster(name).await?["metadata"]["uid"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_shows_where_something_is_assigned_to_it_before_it_has_anything_there() -> Result<()> {
    let (world, members) = (World::start().await?, Members::start(&["one"]).await?);
    mk_workspace(&world, "team").await?;
    members.mk_node("one", "node").await?;
    members.mk_pod("one", "default", "seen", "node").await?;
    world.join("eu-1", &members.access("one")).await?;
    until_pods(&world, "default", &["default/seen"]).await?;
    // All of its kinds, so that there is nothing left to wait for.
    eventually("all is seen", || async {
        let events = world.admin.get("/api/v1/events").await?.code;
        let sets = world.admin.get("/apis/apps/v1/replicasets").await?.code;
        Ok((events == 200 && sets == 200).then_some(()))
    })
    .await?;
    let list = "/clusters/team/api/v1/pods";
    let before = world.admin.get(list).await?.json();
    assign(&world.hub.peer.hub, "team", "shop", "a", &[("eu-1", &uid(&world, "eu-1").await?)]).await?;
    let after = eventually("it answers", || async {
        let answer = world.admin.get(list).await?;
        Ok((answer.code == 200).then_some(answer))
    })
    .await?;
    assert!(after.headers.get("warning").is_none());
    assert_ne!(after.json()["metadata"]["resourceVersion"], before["metadata"]["resourceVersion"]);
    let id = world.hub.peer.hub.space("team").map(|space| space.id().clone()).ok();
    let id = id.ok_or_else(|| anyhow::anyhow!("no workspace"))?;
    assert_eq!(world.hub.peer.hub.views.clusters(&id), ["eu-1"]);
    // And when it has something, that is seen.
    mk_namespace(&members, "shop", json!({api::WORKSPACE_LABEL: "team"})).await?;
    members.mk_pod("one", "shop", "web", "node").await?;
    until_pods(&world, "team", &["shop/web"]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_restart_a_list_waits_for_who_has_something_assigned() -> Result<()> {
    let store = Arc::new(MemoryStore::new()) as Arc<dyn Store>;
    let members = Members::start(&["one"]).await?;
    let world = World::start_on(store.clone(), None, brisk()).await?;
    mk_workspace(&world, "team").await?;
    mk_namespace(&members, "shop", json!({api::WORKSPACE_LABEL: "team"})).await?;
    members.mk_node("one", "node").await?;
    members.mk_pod("one", "shop", "web", "node").await?;
    world.join("eu-1", &members.access("one")).await?;
    assign(&world.hub.peer.hub, "team", "shop", "a", &[("eu-1", &uid(&world, "eu-1").await?)]).await?;
    until_pods(&world, "team", &["shop/web"]).await?;
    world.hub.stop().await;

    // What was seen is not kept, and the member cannot be reached.
    let world = World::start_cut_off(store, members.hub.peer.address, brisk()).await?;

    let refused = world.admin.get("/clusters/team/api/v1/pods").await?;
    assert_eq!(refused.code, 503, "{}", refused.text());
    world.cuts.heal(members.hub.peer.address);
    // From then on every answer is the whole one.
    eventually("it is seen", || async {
        let answer = world.admin.get("/clusters/team/api/v1/pods").await?;
        if answer.code == 503 {
            return Ok(None);
        }
        assert_eq!(answer.json()["items"][0]["metadata"]["name"], "web", "{}", answer.text());
        Ok(Some(()))
    })
    .await
}
