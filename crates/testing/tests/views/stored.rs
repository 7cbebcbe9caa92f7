//! What the workspace itself stores of the kinds of a view is written and read as ever.

use anyhow::Result;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use testing::hub::eventually;

use crate::{Cluster, PODS, World, create, delete_with, mk_pod};

fn revision(object: &Value) -> &str {
    object["metadata"]["resourceVersion"].as_str().unwrap_or_default()
}

#[tokio::test]
async fn who_writes_reads_what_was_written() -> Result<()> {
    let world = World::start().await?;
    let _eu = Cluster::joined(&world, "eu-1", &["web"]).await?;
    let path = format!("{PODS}/mine");
    let made = create(&world.client, PODS, &mk_pod("mine")).await?;
    assert_eq!(revision(&world.get(&path).await?), revision(&made));
    for round in 0..5 {
        let patch = json!({"metadata": {"labels": {"round": round.to_string()}}});
        let patched = world.client.merge_patch(&path, &patch).await?.json();
        let read = world.get(&path).await?;
        assert_eq!(read["metadata"]["labels"]["round"], round.to_string());
        assert_eq!(revision(&read), revision(&patched));
    }
    Ok(())
}

#[tokio::test]
async fn preconditions_are_about_the_revisions_that_clients_see() -> Result<()> {
    let world = World::start().await?;
    let _eu = Cluster::joined(&world, "eu-1", &["web"]).await?;
    let path = format!("{PODS}/mine");
    let first = create(&world.client, PODS, &mk_pod("mine")).await?;
    let mut second = first.clone();
    second["metadata"]["labels"]["x"] = json!("1");
    let updated = world.client.put(&path, &second).await?;
    assert_eq!(updated.code, StatusCode::OK, "{}", updated.text());
    let again = world.client.put(&path, &second).await?;
    assert_eq!(again.code, StatusCode::CONFLICT, "{}", again.text());
    let stale = json!({"metadata": {"resourceVersion": revision(&first), "labels": {"x": "2"}}});
    assert_eq!(world.client.merge_patch(&path, &stale).await?.code, StatusCode::CONFLICT);
    let wrong = json!({"preconditions": {"resourceVersion": revision(&first)}});
    assert_eq!(delete_with(&world.client, &path, wrong).await?.code, StatusCode::CONFLICT);
    let right = json!({"preconditions": {"resourceVersion": revision(&updated.json())}});
    assert_eq!(delete_with(&world.client, &path, right).await?.code, StatusCode::OK);
    assert_eq!(world.client.get(&path).await?.code, StatusCode::NOT_FOUND);
    Ok(())
}

#[tokio::test]
async fn many_writers_lose_nothing() -> Result<()> {
    let world = World::start().await?;
    let _eu = Cluster::joined(&world, "eu-1", &["web"]).await?;
    let path = format!("{PODS}/mine");
    create(&world.client, PODS, &mk_pod("mine")).await?;
    let add = |at: usize| {
        let (client, path) = (world.client.clone(), path.clone());
        async move {
            loop {
                let mut pod = client.get(&path).await?.json();
                pod["metadata"]["labels"][format!("writer-{at}")] = json!("was-here");
                match client.put(&path, &pod).await?.code {
                    StatusCode::OK => return anyhow::Ok(()),
                    StatusCode::CONFLICT => {}
                    other => anyhow::bail!("{other}"),
                }
            }
        }
    };
    futures_util::future::try_join_all((0..8).map(add)).await?;
    let labels = world.get(&path).await?["metadata"]["labels"].as_object().map_or(0, |labels| labels.len());
    assert_eq!(labels, 9);
    Ok(())
}

#[tokio::test]
async fn applies_evictions_and_status_work_on_stored_pods() -> Result<()> {
    let world = World::start().await?;
    let _eu = Cluster::joined(&world, "eu-1", &["web"]).await?;
    let path = format!("{PODS}/mine");
    let config = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "mine"},
        "spec": {"containers": [{"name": "main", "image": "example.com/main"}]},
    });
    let headers = [("content-type", "application/apply-patch+yaml")];
    let applied =
        world.client.call(Method::PATCH, &format!("{path}?fieldManager=me"), &headers, config.to_string()).await?;
    assert_eq!(applied.code, StatusCode::CREATED, "{}", applied.text());
    let status = json!({"status": {"phase": "Running"}});
    let patched = world.client.merge_patch(&format!("{path}/status"), &status).await?;
    assert_eq!(patched.code, StatusCode::OK, "{}", patched.text());
    let eviction = json!({
        "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "mine"},
        "deleteOptions": {"preconditions": {"resourceVersion": revision(&patched.json())}},
    });
    let evicted = world.client.post(&format!("{path}/eviction"), &eviction).await?;
    assert_eq!(evicted.code, StatusCode::CREATED, "{}", evicted.text());
    Ok(())
}

#[tokio::test]
async fn a_namespace_goes_without_its_members_pods() -> Result<()> {
    let world = World::start().await?;
    let eu = Cluster::joined(&world, "eu-1", &["web"]).await?;
    create(&world.client, PODS, &mk_pod("mine")).await?;
    world.client.delete("/api/v1/namespaces/shop").await?;
    eventually("the namespace is gone", || async {
        Ok((world.client.get("/api/v1/namespaces/shop").await?.code == StatusCode::NOT_FOUND).then_some(()))
    })
    .await?;
    assert_eq!(world.names(PODS).await?, ["web"], "it is in its cluster as before");
    assert_eq!(eu.was_asked(), 0, "nobody asked the cluster for anything");
    Ok(())
}
