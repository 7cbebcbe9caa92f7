//! Namespaces that have another name in the member than in the workspace.

use anyhow::Result;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use store::Collection;
use testing::hub::outfitted;

use crate::{Cluster, PODS, World, create, delete_with, mk_pod, pods};

const THERE: &str = "/api/v1/namespaces/acme-shop/pods";

/// A member that has the namespace `shop` of the workspace as `acme-shop`, with a pod.
async fn mapped(world: &World) -> Result<Cluster> {
    let eu = Cluster::start("eu-1").await?;
    create(&eu.client, "/api/v1/namespaces", &json!({"metadata": {"name": "acme-shop"}})).await?;
    outfitted(&eu.client, "/api/v1/namespaces/acme-shop").await?;
    create(&eu.client, THERE, &mk_pod("web")).await?;
    eu.join(world);
    eu.report_all(world).await?;
    eu.report_pods_of(world, &["acme-shop"]).await?;
    Ok(eu)
}

#[tokio::test]
async fn objects_show_in_the_namespace_that_theirs_stands_for() -> Result<()> {
    let world = World::start().await?;
    let eu = mapped(&world).await?;
    assert_eq!(world.names(PODS).await?, ["web"]);
    assert_eq!(world.names(THERE).await?, [""; 0], "there is no such namespace here");
    let shown = world.get(&format!("{PODS}/web")).await?;
    assert_eq!(shown["metadata"]["namespace"], "shop");
    assert_eq!(shown["metadata"]["annotations"]["hanse.io/namespace"], "acme-shop");
    let uid = &shown["metadata"]["uid"];
    let event = json!({
        "metadata": {"name": "web.1", "namespace": "acme-shop", "uid": "e1"}, "reason": "Started",
        "type": "Normal", "count": 1,
        "involvedObject": {"kind": "Pod", "namespace": "acme-shop", "name": "web", "uid": uid},
    });
    eu.put(&world, &Collection::new("", "events"), &event);
    let selector = format!(
        "fieldSelector=involvedObject.namespace%3Dshop,involvedObject.name%3Dweb,involvedObject.uid%3D{}",
        uid.as_str().unwrap()
    );
    assert_eq!(world.names(&format!("/api/v1/namespaces/shop/events?{selector}")).await?, ["web.1"]);
    Ok(())
}

#[tokio::test]
async fn what_is_done_to_them_is_done_in_their_own_namespace() -> Result<()> {
    let world = World::start().await?;
    let eu = mapped(&world).await?;
    let path = format!("{PODS}/web");
    let patched = world.client.merge_patch(&path, &json!({"metadata": {"labels": {"a": "b"}}})).await?;
    assert_eq!(patched.code, StatusCode::OK, "{}", patched.text());
    assert_eq!(patched.json()["metadata"]["namespace"], "shop");
    let there = eu.client.get(&format!("{THERE}/web")).await?.json();
    assert_eq!(there["metadata"]["labels"]["a"], "b");
    assert!(there["metadata"]["annotations"]["hanse.io/namespace"].is_null(), "the hub's marks stay here");

    let mut debugged = world.get(&path).await?;
    debugged["spec"]["ephemeralContainers"] = json!([{"name": "debug", "image": "example.com/debug"}]);
    let put = world.client.put(&format!("{path}/ephemeralcontainers"), &debugged).await?;
    assert_eq!(put.code, StatusCode::OK, "{}", put.text());
    let strategic = [("content-type", "application/strategic-merge-patch+json")];
    let more = json!({
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"ephemeralContainers": [{"name": "more", "image": "example.com/debug"}]},
    });
    let below = format!("{path}/ephemeralcontainers");
    let patched = world.client.call(Method::PATCH, &below, &strategic, more.to_string()).await?;
    assert_eq!(patched.code, StatusCode::OK, "{}", patched.text());

    world.client.get(&format!("{path}/log?container=main")).await?;
    assert_eq!(eu.last_asked().1, format!("{THERE}/web/log?container=main"));

    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "web"}});
    let dry = json!({"dryRun": ["All"]});
    let mut evicted = eviction.clone();
    evicted["deleteOptions"] = dry;
    let evicted = world.client.post(&format!("{path}/eviction"), &evicted).await?;
    assert_eq!(evicted.code, StatusCode::CREATED, "{}", evicted.text());
    let (_, asked, sent) = eu.last_asked();
    assert_eq!(asked, format!("{THERE}/web/eviction"));
    assert_eq!(sent["metadata"]["namespace"], "acme-shop");

    let deleted = delete_with(&world.client, &path, json!({"gracePeriodSeconds": 0})).await?;
    assert_eq!(deleted.code, StatusCode::OK, "{}", deleted.text());
    assert_eq!(eu.client.get(&format!("{THERE}/web")).await?.code, StatusCode::NOT_FOUND);
    Ok(())
}

#[tokio::test]
async fn two_namespaces_that_are_one_here_show_side_by_side() -> Result<()> {
    let world = World::start().await?;
    let eu = mapped(&world).await?;
    create(&eu.client, PODS, &mk_pod("web")).await?;
    create(&eu.client, PODS, &mk_pod("other")).await?;
    eu.report_pods_of(&world, &["acme-shop", "shop"]).await?;
    assert_eq!(world.names(PODS).await?, ["other", "web", "web-eu-1"], "nothing is hidden");
    let namespace = async |name: &str| -> Result<Value> {
        Ok(world.get(&format!("{PODS}/{name}")).await?["metadata"]["annotations"]["hanse.io/namespace"]
            .clone())
    };
    assert_eq!((namespace("web").await?, namespace("web-eu-1").await?), (json!("acme-shop"), json!(null)));
    // Each is asked for by its own name.
    for (shown, there) in [("web", THERE), ("web-eu-1", PODS)] {
        delete_with(&world.client, &format!("{PODS}/{shown}"), json!({"gracePeriodSeconds": 0})).await?;
        assert_eq!(eu.last_asked().1, format!("{there}/web"));
    }
    Ok(())
}

#[tokio::test]
async fn an_object_moves_when_its_namespace_stands_for_another() -> Result<()> {
    let world = World::start().await?;
    let eu = mapped(&world).await?;
    let pod = eu.client.get(&format!("{THERE}/web")).await?.json();
    let plain = bytes::Bytes::from(pod.to_string());
    world.views().put(&world.workspace(), "eu-1", &pods(), plain.into());
    assert_eq!(world.names(PODS).await?, [""; 0]);
    assert_eq!(world.names(THERE).await?, ["web"]);
    eu.put(&world, &pods(), &pod);
    assert_eq!(world.names(PODS).await?, ["web"]);
    assert_eq!(world.names("/api/v1/pods").await?, ["web"]);
    Ok(())
}
