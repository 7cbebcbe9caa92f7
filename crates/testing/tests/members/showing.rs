//! What runs in members shows in workspaces: in that of the cluster, or in the one that a namespace is labelled for.

use anyhow::Result;
use serde_json::{Value, json};
use testing::hub::eventually;

use crate::world::{CLUSTERS, Members, World};

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
