//! An object that goes from one cluster to another.

use anyhow::Result;
use api::assignment::{Report, Target};
use serde_json::json;
use testing::{hub::eventually, simulated::TestClusters};

use crate::{
    hand::{CONFIG_MAP, DEPLOYMENT, Hand, access, draining, is_there, share, target},
    world::{Members, World, ready},
};

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_goes_when_those_that_stay_do_well() -> Result<()> {
    let (world, clusters) = (World::start().await?, TestClusters::start(&["eu", "us"]).await?);
    for name in ["eu", "us"] {
        world.join(name, &access(&clusters, name)?).await?;
    }
    let hand = Hand::new(&world);
    hand.namespace("shop", &["eu", "us"]).await?;
    // In one of them no node is good enough.
    let path = "/apis/hanse.io/v1alpha1/overrides";
    let nowhere =
        json!([{"op": "add", "path": "/spec/template/spec/nodeSelector", "value": {"is": "nowhere"}}]);
    let object = json!({
        "apiVersion": api::API_VERSION, "kind": "Override", "metadata": {"name": "picky"},
        "spec": {"select": [{"kinds": ["Deployment"]}], "clusters": {"names": ["us"]}, "patches": nowhere},
    });
    assert_eq!(world.admin.post(path, &object).await?.code, 201);
    let labels = json!({"app": "web"});
    let template =
        json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let spec = json!({"replicas": 3, "selector": {"matchLabels": labels}, "template": template});
    hand.make(&DEPLOYMENT, "shop", json!({"metadata": {"name": "web"}, "spec": spec})).await?;
    hand.assign(&DEPLOYMENT, "shop", "web", &[share("eu", 3)]).await?;
    let runs = |it: &Report| it.applied && it.status["readyReplicas"] == 3;
    hand.until(&DEPLOYMENT, "shop", "web", "eu", runs).await?;
    let leaving = Target { replicas: Some(3), ..draining("eu") };
    hand.assign(&DEPLOYMENT, "shop", "web", &[leaving, share("us", 3)]).await?;
    let waits = |it: &Report| it.applied && it.status["replicas"] == 3;
    hand.until(&DEPLOYMENT, "shop", "web", "us", waits).await?;
    clusters.settled().await?;
    let eu = clusters.admin("eu").await?;
    let still = eu.get(&DEPLOYMENT.path("shop", "web")).await?;
    assert_eq!(still.json()["spec"]["replicas"], 3, "{}", still.text());
    assert_eq!(world.admin.delete(&format!("{path}/picky")).await?.code, 200);
    hand.until(&DEPLOYMENT, "shop", "web", "us", runs).await?;
    hand.until(&DEPLOYMENT, "shop", "web", "eu", Report::is_gone).await?;
    assert_eq!(eu.get(&DEPLOYMENT.path("shop", "web")).await?.code, 404);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_stays_while_a_cluster_that_is_to_have_it_does_not_answer() -> Result<()> {
    let world = World::start().await?;
    let (here, there) = (Members::start(&["one"]).await?, Members::start(&["one"]).await?);
    world.join("eu", &here.access("one")).await?;
    world.join("us", &there.access("one")).await?;
    let hand = Hand::new(&world);
    hand.namespace("shop", &["eu", "us"]).await?;
    hand.config_map("shop", "settings", json!({"a": "1"}), &["eu", "us"]).await?;
    for cluster in ["eu", "us"] {
        hand.until_applied(&CONFIG_MAP, "shop", "settings", cluster).await?;
    }
    world.cuts.cut(there.hub.peer.address);
    eventually("it is noticed", || async {
        let cluster = world.cluster("us").await?;
        Ok((ready(&cluster)["status"] == "False").then_some(()))
    })
    .await?;
    hand.assign(&CONFIG_MAP, "shop", "settings", &[draining("eu"), target("us")]).await?;
    hand.config_map("shop", "last", json!({}), &["eu"]).await?;
    hand.until_applied(&CONFIG_MAP, "shop", "last", "eu").await?;
    assert!(is_there(&here, "one", &CONFIG_MAP.path("shop", "settings")).await?);
    world.cuts.heal(there.hub.peer.address);
    hand.until(&CONFIG_MAP, "shop", "settings", "eu", Report::is_gone).await?;
    assert!(is_there(&there, "one", &CONFIG_MAP.path("shop", "settings")).await?);
    Ok(())
}
