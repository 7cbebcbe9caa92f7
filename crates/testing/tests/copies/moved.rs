//! An object that goes from one cluster to another.

use anyhow::Result;
use api::assignment::{Report, Target};
use serde_json::json;
use testing::simulated::TestClusters;

use crate::{
    hand::{DEPLOYMENT, Hand, access, draining, share},
    world::World,
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
