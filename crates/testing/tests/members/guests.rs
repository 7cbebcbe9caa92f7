//! Workspaces that use a cluster of the platform see a node for it.

use std::sync::Arc;

use anyhow::Result;
use serde_json::{Value, json};
use store::{Change, Commit, Expect, Key, Store, Write, memory::MemoryStore};
use testing::{assignments::assign, hub::eventually};

use crate::world::{CLUSTERS, Members, World, brisk};

async fn mk_workspace(world: &World, name: &str) -> Result<()> {
    let workspace = json!({"metadata": {"name": name}});
    world.admin.post("/clusters/root/apis/hanse.io/v1alpha1/workspaces", &workspace).await.map(drop)
}

fn path(workspace: &str) -> String {
    format!("/clusters/{workspace}/api/v1/nodes/eu-1")
}

/// Waits until the node of `eu-1` in a workspace is as it should be.
async fn until(world: &World, workspace: &str, what: &str, is_so: impl Fn(&Value) -> bool) -> Result<Value> {
    let found = eventually(what, || async {
        let node = world.admin.get(&path(workspace)).await?;
        let node = if node.code == 200 { node.json() } else { Value::Null };
        Ok(is_so(&node).then_some(node))
    });
    match found.await {
        Ok(node) => Ok(node),
        Err(error) => Err(error.context(world.admin.get(&path(workspace)).await?.text())),
    }
}

/// A cluster that is joined in `default`, and its UID.
async fn joined(world: &World, members: &Members) -> Result<String> {
    members.mk_node("one", "first").await?;
    world.join("eu-1", &members.access("one")).await?;
    let cluster = world.until("eu-1", "Ready").await?;
    Ok(cluster["metadata"]["uid"].as_str().unwrap_or_default().to_owned())
}

fn cpu(node: &Value) -> &str {
    node["status"]["capacity"]["cpu"].as_str().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workspace_that_uses_a_cluster_sees_a_node_for_it() -> Result<()> {
    let (world, members) = (World::start().await?, Members::start(&["one"]).await?);
    mk_workspace(&world, "team").await?;
    mk_workspace(&world, "other").await?;
    let uid = joined(&world, &members).await?;
    until(&world, "default", "its own node is there", |node| cpu(node) == "4").await?;
    assert_eq!(world.admin.get(&path("team")).await?.code, 404, "nothing is assigned to it");

    assign(&world.hub.peer.hub, "team", "shop", "a", &[("eu-1", &uid)]).await?;

    let node = until(&world, "team", "a node is there", |node| cpu(node) == "4").await?;
    assert_eq!(node["metadata"]["labels"][api::CLUSTER_LABEL], "eu-1");
    assert_eq!(node["metadata"]["labels"][api::REGION_LABEL], "eu");
    assert!(node["metadata"]["ownerReferences"].is_null(), "its owner is in another workspace");
    assert_eq!(node["status"]["conditions"][0]["status"], "True");
    assert_eq!(world.admin.get(&path("other")).await?.code, 404);
    // A cordon is that workspace's own, and stays while all else is kept level.
    let cordon = json!({"spec": {"unschedulable": true}});
    assert_eq!(world.admin.merge_patch(&path("team"), &cordon).await?.code, 200);
    members.mk_node("one", "second").await?;
    let node = until(&world, "team", "both nodes are counted", |node| cpu(node) == "8").await?;
    assert_eq!(node["spec"]["unschedulable"], true);
    assert!(world.cluster("eu-1").await?["spec"]["unschedulable"].is_null());
    let own = until(&world, "default", "its own node, too", |node| cpu(node) == "8").await?;
    assert!(own["spec"]["unschedulable"].is_null());
    // What the operator wants shows as a taint.
    world.admin.merge_patch(&format!("{CLUSTERS}/eu-1"), &cordon).await?;
    let is_tainted = |node: &Value| node["spec"]["taints"][0]["key"] == "node.kubernetes.io/unschedulable";
    until(&world, "team", "the taint is there", is_tainted).await?;
    let refused = world.admin.delete(&path("team")).await?;
    assert_eq!(refused.code, 403, "{}", refused.text());

    world.admin.delete(&format!("{CLUSTERS}/eu-1")).await?;

    until(&world, "team", "it goes with its cluster", Value::is_null).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_the_workspace_has_itself_stays_as_it_is() -> Result<()> {
    let (world, members) = (World::start().await?, Members::start(&["one"]).await?);
    mk_workspace(&world, "team").await?;
    mk_workspace(&world, "other").await?;
    let uid = joined(&world, &members).await?;
    let own = json!({"metadata": {"name": "eu-1", "labels": {"own": "yes"}}});
    let made = world.admin.post("/clusters/team/api/v1/nodes", &own).await?.json();
    for workspace in ["team", "other"] {
        assign(&world.hub.peer.hub, workspace, "shop", "a", &[("eu-1", &uid)]).await?;
    }
    until(&world, "other", "who has none gets one", |node| cpu(node) == "4").await?;
    assert_eq!(world.admin.get(&path("team")).await?.json()["metadata"], made["metadata"]);
    world.admin.delete(&path("team")).await?;
    until(&world, "team", "when it is gone there is room", |node| cpu(node) == "4").await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_of_clusters_that_went_while_nobody_looked_go() -> Result<()> {
    let store = Arc::new(MemoryStore::new()) as Arc<dyn Store>;
    let members = Members::start(&["one"]).await?;
    let world = World::start_on(store.clone(), None, brisk()).await?;
    mk_workspace(&world, "team").await?;
    let uid = joined(&world, &members).await?;
    assign(&world.hub.peer.hub, "team", "shop", "a", &[("eu-1", &uid)]).await?;
    until(&world, "team", "a node is there", |node| cpu(node) == "4").await?;
    world.hub.stop().await;
    let key = Key::new(api::GROUP, api::cluster::PLURAL, "", "eu-1");
    let writes = vec![Write { key, expect: Expect::Anything, change: Change::Remove }];
    store.commit(&server::hub::default_id(), Commit { guards: Vec::new(), writes }).await?;

    let world = World::start_on(store, None, brisk()).await?;

    until(&world, "team", "it goes", Value::is_null).await.map(drop)
}
