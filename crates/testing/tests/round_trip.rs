//! Apply once, run on the right clusters, read one truth back, delete once.

#![allow(clippy::disallowed_methods)] // Tests run on the real machine.

#[allow(dead_code)] // It serves other tests too.
#[path = "copies/hand.rs"]
mod hand;
#[allow(dead_code)]
#[path = "members/world.rs"]
mod world;

use anyhow::Result;
use hand::access;
use serde_json::json;
use testing::{hub::eventually, simulated::TestClusters};
use world::World;

#[tokio::test(flavor = "multi_thread")]
async fn what_is_applied_runs_and_what_is_deleted_is_gone() -> Result<()> {
    let (world, clusters) = (World::start().await?, TestClusters::start(&["eu", "us"]).await?);
    assign::start(&world.hub.peer.hub);
    for name in ["eu", "us"] {
        world.join(name, &access(&clusters, name)?).await?;
        world.until(name, "Ready").await?;
    }
    let admin = &world.admin;
    let annotations = json!({"hanse.io/clusters": "eu,us"});
    let namespace = json!({"metadata": {"name": "shop", "annotations": annotations}});
    assert_eq!(admin.post("/api/v1/namespaces", &namespace).await?.code, 201);
    let labels = json!({"app": "web"});
    let template = json!({"metadata": {"labels": labels}, "spec": {
        "containers": [{"name": "c", "image": "i", "envFrom": [{"configMapRef": {"name": "settings"}}]}],
    }});
    let spec = json!({"replicas": 5, "selector": {"matchLabels": labels}, "template": template});
    let settings = json!({"metadata": {"name": "settings"}, "data": {"a": "1"}});
    assert_eq!(admin.post("/api/v1/namespaces/shop/configmaps", &settings).await?.code, 201);
    let web = json!({"metadata": {"name": "web"}, "spec": spec});
    assert_eq!(admin.post("/apis/apps/v1/namespaces/shop/deployments", &web).await?.code, 201);
    let path = "/apis/apps/v1/namespaces/shop/deployments/web";
    let shown = eventually("it runs", || async {
        let web = admin.get(path).await?.json();
        Ok((web["status"]["readyReplicas"] == 5).then_some(web))
    });
    if let Err(error) = shown.await {
        let assignments = admin.get("/apis/hanse.io/v1alpha1/namespaces/shop/assignments").await?.text();
        return Err(error.context(assignments));
    }
    let mut replicas = 0;
    for name in ["eu", "us"] {
        let copy = clusters.admin(name).await?.get(path).await?.json();
        replicas += copy["spec"]["replicas"].as_u64().unwrap_or(0);
        let settings = "/api/v1/namespaces/shop/configmaps/settings";
        assert_eq!(clusters.admin(name).await?.get(settings).await?.code, 200);
    }
    assert_eq!(replicas, 5);
    assert_eq!(admin.delete("/api/v1/namespaces/shop").await?.code, 200);
    let gone = eventually("all of it is gone", || async {
        let mut left = admin.get("/api/v1/namespaces/shop").await?.code != 404;
        for name in ["eu", "us"] {
            left |= clusters.admin(name).await?.get("/api/v1/namespaces/shop").await?.code != 404;
        }
        Ok((!left).then_some(()))
    });
    if let Err(error) = gone.await {
        let assignments = admin.get("/apis/hanse.io/v1alpha1/namespaces/shop/assignments").await?.text();
        let namespace = admin.get("/api/v1/namespaces/shop").await?.text();
        return Err(error.context(assignments).context(namespace));
    }
    Ok(())
}

/// Without members a hub is an API server like any other; the first one gets what waited for it.
#[tokio::test(flavor = "multi_thread")]
async fn what_waits_for_a_first_cluster_is_left_alone_until_it_comes() -> Result<()> {
    let (world, clusters) = (World::start().await?, TestClusters::start(&["eu"]).await?);
    assign::start(&world.hub.peer.hub);
    let admin = &world.admin;
    assert_eq!(admin.post("/api/v1/namespaces", &json!({"metadata": {"name": "shop"}})).await?.code, 201);
    let labels = json!({"app": "web"});
    let template =
        json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let spec = json!({"replicas": 2, "selector": {"matchLabels": labels}, "template": template});
    let web = json!({"metadata": {"name": "web"}, "spec": spec});
    let path = "/apis/apps/v1/namespaces/shop/deployments";
    let made = admin.post(path, &web).await?.json();
    let path = format!("{path}/web");
    assert_eq!(admin.get(&path).await?.json(), made, "nobody wrote to it");
    let assignments = admin.get("/apis/hanse.io/v1alpha1/namespaces/shop/assignments").await?.json();
    assert_eq!(assignments["items"], json!([]));

    world.join("eu", &access(&clusters, "eu")?).await?;

    eventually("it runs", || async {
        Ok((admin.get(&path).await?.json()["status"]["readyReplicas"] == 2).then_some(()))
    })
    .await
}
