//! From a workspace to a cluster of the platform and back: what users see of what runs there.

use anyhow::{Context, Result};
use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Value, json};
use sync::client::{Access, Identity};
use testing::{
    hub::{eventually, outfitted},
    simulated::TestClusters,
};

use crate::world::{CLUSTERS, World};

const ACME: &str = "/clusters/acme";
const PODS: &str = "/clusters/acme/api/v1/namespaces/shop/pods";

/// What the only context of a kubeconfig says.
fn access(kubeconfig: &str) -> Result<Access> {
    let config: Value = serde_saphyr::from_str(kubeconfig)?;
    let data = |entry: &Value, key: &str| -> Result<Vec<u8>> {
        Ok(BASE64_STANDARD.decode(entry[key].as_str().with_context(|| format!("no {key}"))?)?)
    };
    let (cluster, user) = (&config["clusters"][0]["cluster"], &config["users"][0]["user"]);
    Ok(Access {
        server: cluster["server"].as_str().context("no server")?.to_owned(),
        authority: data(cluster, "certificate-authority-data")?,
        server_name: None,
        identity: Identity::Certificate {
            certificate: data(user, "client-certificate-data")?,
            key: data(user, "client-key-data")?,
        },
    })
}

/// A hub that decides and acts, and a cluster that has the workspace's namespaces by other names.
async fn start() -> Result<(World, TestClusters)> {
    let (world, clusters) = (World::start().await?, TestClusters::start(&["one"]).await?);
    assign::start(&world.hub.peer.hub);
    let workspace = json!({"metadata": {"name": "acme"}});
    world.admin.post("/clusters/root/apis/hanse.io/v1alpha1/workspaces", &workspace).await?;
    world.join("eu-1", &access(&clusters.simulation.kubeconfig("one")?)?).await?;
    world.until("eu-1", "Ready").await?;
    let prefixed = json!({"spec": {"namespaces": "Prefixed"}});
    world.admin.merge_patch(&format!("{CLUSTERS}/eu-1"), &prefixed).await?;
    let namespaces = format!("{ACME}/api/v1/namespaces");
    world.admin.post(&namespaces, &json!({"metadata": {"name": "shop"}})).await?;
    outfitted(&world.admin, &format!("{namespaces}/shop")).await?;
    Ok((world, clusters))
}

async fn create(world: &World, path: &str, object: Value) -> Result<Value> {
    let made = world.admin.post(path, &object).await?;
    anyhow::ensure!(made.code == 201, "{path}: {}", made.text());
    Ok(made.json())
}

/// Waits until just so many pods show, and all of them run.
async fn running(world: &World, count: usize) -> Result<Vec<Value>> {
    eventually("the pods run", || async {
        let list = world.admin.get(PODS).await?.json();
        let pods = list["items"].as_array().cloned().unwrap_or_default();
        let all_run = pods.iter().all(|pod| pod["status"]["phase"] == "Running");
        Ok((pods.len() == count && all_run).then_some(pods))
    })
    .await
}

fn spec() -> Value {
    json!({"containers": [{"name": "main", "image": "example.com/main"}]})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stored_pod_is_one_pod_wherever_it_runs() -> Result<()> {
    let (world, clusters) = start().await?;
    let stored = create(&world, PODS, json!({"metadata": {"name": "web"}, "spec": spec()})).await?;
    let pods = running(&world, 1).await?;
    assert_eq!(pods[0]["metadata"]["uid"], stored["metadata"]["uid"]);
    assert_eq!(pods[0]["spec"]["nodeName"], "eu-1");
    let there = clusters.admin("one").await?.get("/api/v1/namespaces/acme-shop/pods/web").await?.json();
    assert_eq!(there["metadata"]["annotations"][api::SOURCE_ANNOTATION], stored["metadata"]["uid"]);
    let log = world.admin.get(&format!("{PODS}/web/log")).await?;
    assert!(log.code == 200 && log.text().contains("started"), "{}", log.text());
    let uid = stored["metadata"]["uid"].as_str().unwrap_or_default();
    let events = format!("{ACME}/api/v1/namespaces/shop/events?fieldSelector=involvedObject.uid%3D{uid}");
    eventually("its events are its own", || async {
        let list = world.admin.get(&events).await?.json();
        let events = list["items"].as_array().cloned().unwrap_or_default();
        Ok(events.iter().any(|event| event["reason"] == "Started").then_some(()))
    })
    .await?;

    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "web"}});
    create(&world, &format!("{PODS}/web/eviction"), eviction).await?;

    eventually("it is gone, here and there", || async {
        let here = world.admin.get(&format!("{PODS}/web")).await?.code == 404;
        let there = clusters.admin("one").await?.get("/api/v1/namespaces/acme-shop/pods/web").await?;
        Ok((here && there.code == 404).then_some(()))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_deployment_made_there_belongs_to_it_here() -> Result<()> {
    let (world, _clusters) = start().await?;
    let labels = json!({"app": "api"});
    let deployment = json!({
        "metadata": {"name": "api"},
        "spec": {
            "replicas": 2, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec()},
        },
    });
    let deployment =
        create(&world, &format!("{ACME}/apis/apps/v1/namespaces/shop/deployments"), deployment).await?;
    let pods = running(&world, 2).await?;
    let sets = world.admin.get(&format!("{ACME}/apis/apps/v1/namespaces/shop/replicasets")).await?.json();
    assert_eq!(sets["items"].as_array().map_or(0, Vec::len), 1);
    let set = &sets["items"][0]["metadata"];
    assert_eq!(set["ownerReferences"][0]["uid"], deployment["metadata"]["uid"]);
    for pod in &pods {
        assert_eq!(pod["metadata"]["namespace"], "shop");
        assert_eq!(pod["metadata"]["annotations"]["hanse.io/namespace"], "acme-shop");
        assert_eq!(pod["metadata"]["ownerReferences"][0]["uid"], set["uid"]);
    }
    eventually("there is a node for the cluster", || async {
        let nodes = world.admin.get(&format!("{ACME}/api/v1/nodes")).await?.json();
        Ok((nodes["items"][0]["metadata"]["name"] == "eu-1").then_some(()))
    })
    .await?;
    // One that is deleted here is deleted there, and made again by what made it.
    let first = pods[0]["metadata"]["name"].as_str().unwrap_or_default();
    let deleted = world.admin.delete(&format!("{PODS}/{first}?gracePeriodSeconds=0")).await?;
    assert_eq!(deleted.code, 200, "{}", deleted.text());
    eventually("another one has its place", || async {
        let list = world.admin.get(PODS).await?.json();
        let pods = list["items"].as_array().cloned().unwrap_or_default();
        Ok((pods.len() == 2 && pods.iter().all(|pod| pod["metadata"]["name"] != first)).then_some(()))
    })
    .await
}
