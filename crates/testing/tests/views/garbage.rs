//! What belongs to a member's object goes when that is known to be gone, and not before.

use anyhow::Result;
use http::StatusCode;
use serde_json::{Value, json};
use testing::hub::eventually;

use crate::{Cluster, PODS, World, create, mk_pod, pods};

const CONFIG_MAPS: &str = "/api/v1/namespaces/shop/configmaps";

fn owned_by(name: &str, pod: &Value) -> Value {
    json!({"metadata": {"name": name, "ownerReferences": [{
        "apiVersion": "v1", "kind": "Pod", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"],
    }]}})
}

pub async fn mk_owned(world: &World, name: &str, pod: &Value) -> Result<()> {
    create(&world.client, CONFIG_MAPS, &owned_by(name, pod)).await.map(|_| ())
}

pub async fn exists(world: &World, name: &str) -> Result<bool> {
    Ok(world.client.get(&format!("{CONFIG_MAPS}/{name}")).await?.code == StatusCode::OK)
}

pub async fn goes(world: &World, name: &str) -> Result<()> {
    eventually(&format!("{name} is collected"), || async { Ok((!exists(world, name).await?).then_some(())) }).await
}

/// Waits until the collector has looked at all that was there before.
pub async fn collector_has_looked(world: &World) -> Result<()> {
    let nobody = json!({"metadata": {"name": "nobody", "uid": "nobody"}});
    let orphan = json!({"metadata": {"name": "canary", "ownerReferences": [{
        "apiVersion": "v1", "kind": "Secret", "name": "nobody", "uid": nobody["metadata"]["uid"],
    }]}});
    create(&world.client, CONFIG_MAPS, &orphan).await?;
    goes(world, "canary").await
}

#[tokio::test]
async fn it_stays_as_long_as_its_owner_and_no_longer() -> Result<()> {
    let world = World::start().await?;
    let eu = Cluster::joined(&world, "eu-1", &["web"]).await?;
    let pod = eu.pod("web").await?;
    mk_owned(&world, "dependent", &pod).await?;
    collector_has_looked(&world).await?;
    assert!(exists(&world, "dependent").await?);
    eu.remove(&world, &pods(), &pod);
    goes(&world, "dependent").await
}

#[tokio::test]
async fn it_stays_while_a_cluster_is_out_of_sight() -> Result<()> {
    let world = World::start().await?;
    let eu = Cluster::joined(&world, "eu-1", &["web"]).await?;
    let us = Cluster::joined(&world, "us-1", &[]).await?;
    us.lose(&world);
    let pod = eu.pod("web").await?;
    mk_owned(&world, "dependent", &pod).await?;
    eu.remove(&world, &pods(), &pod);
    let unheard = json!({"metadata": {"name": "unheard", "uid": "of-nobody"}});
    mk_owned(&world, "of-unheard", &unheard).await?;
    collector_has_looked(&world).await?;
    assert!(exists(&world, "dependent").await? && exists(&world, "of-unheard").await?);
    us.join(&world);
    us.report_all(&world).await?;
    goes(&world, "dependent").await?;
    goes(&world, "of-unheard").await
}

#[tokio::test]
async fn members_objects_are_never_collected_by_the_hub() -> Result<()> {
    let world = World::start().await?;
    let eu = Cluster::joined(&world, "eu-1", &[]).await?;
    let mut pod = mk_pod("web");
    pod["metadata"]["namespace"] = json!("shop");
    pod["metadata"]["uid"] = json!("u1");
    pod["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "apps/v1", "kind": "Deployment", "name": "gone", "uid": "gone", "controller": true}]);
    eu.put(&world, &pods(), &pod);
    collector_has_looked(&world).await?;
    assert_eq!(world.names(PODS).await?, ["web"]);
    assert_eq!(eu.was_asked(), 0);
    Ok(())
}
