//! Writes to members' objects.

use anyhow::Result;
use http::{Method, StatusCode};
use serde_json::json;

use crate::{Cluster, PODS, World, create, delete_with, mk_pod, pods};

#[tokio::test]
async fn a_deletion_goes_to_the_member_with_the_uid_of_what_was_meant() -> Result<()> {
    let world = World::start().await?;
    let _eu = Cluster::joined(&world, "eu-1", &["web"]).await?;
    let us = Cluster::joined(&world, "us-1", &["web"]).await?;
    let uid = us.pod("web").await?["metadata"]["uid"].clone();
    let options = json!({"gracePeriodSeconds": 0, "propagationPolicy": "Background"});
    let deleted = delete_with(&world.client, &format!("{PODS}/web-us-1"), options).await?;
    assert_eq!(deleted.code, StatusCode::OK, "{}", deleted.text());
    assert_eq!(deleted.json()["metadata"]["name"], "web-us-1");
    let (method, path, sent) = us.last_asked();
    assert_eq!((method, path), ("DELETE".to_owned(), format!("{PODS}/web")));
    assert_eq!(sent["preconditions"], json!({"uid": uid}));
    assert_eq!(sent["gracePeriodSeconds"], 0);
    assert_eq!(us.client.get(&format!("{PODS}/web")).await?.code, StatusCode::NOT_FOUND);
    Ok(())
}

#[tokio::test]
async fn what_was_made_again_under_its_name_is_not_deleted() -> Result<()> {
    let world = World::start().await?;
    let eu = Cluster::joined(&world, "eu-1", &["web"]).await?;
    // The view has not heard of it yet.
    eu.client.delete(&format!("{PODS}/web")).await?;
    create(&eu.client, PODS, &mk_pod("web")).await?;
    for (method, body) in
        [(Method::DELETE, json!({})), (Method::PATCH, json!({"metadata": {"labels": {"a": "b"}}}))]
    {
        let headers = [(
            "content-type",
            if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" },
        )];
        let refused = world.client.call(method, &format!("{PODS}/web"), &headers, body.to_string()).await?;
        assert_eq!(refused.code, StatusCode::CONFLICT, "{}", refused.text());
    }
    assert_eq!(eu.client.get(&format!("{PODS}/web")).await?.code, StatusCode::OK);
    Ok(())
}

#[tokio::test]
async fn labels_and_annotations_are_the_members_and_are_seen_at_once() -> Result<()> {
    let world = World::start().await?;
    let eu = Cluster::joined(&world, "eu-1", &["web"]).await?;
    let path = format!("{PODS}/web");
    let before = world.get(&path).await?;
    let patch = json!({"metadata": {"labels": {"tier": "front", "app": null}, "annotations": {"note": "x"}}});
    let patched = world.client.merge_patch(&format!("{path}?fieldManager=kubectl-label"), &patch).await?;
    assert_eq!(patched.code, StatusCode::OK, "{}", patched.text());
    let labels = json!({"tier": "front", "hanse.io/cluster": "eu-1"});
    assert_eq!(patched.json()["metadata"]["labels"], labels);
    let read = world.get(&path).await?;
    assert_eq!(read, patched.json(), "who writes reads what was written");
    assert_ne!(read["metadata"]["resourceVersion"], before["metadata"]["resourceVersion"]);
    let there = eu.pod("web").await?;
    assert_eq!(there["metadata"]["labels"], json!({"tier": "front"}), "the hub's marks stay with the hub");
    assert_eq!(there["metadata"]["annotations"], json!({"note": "x"}));
    // An update that changes nothing else is the same.
    let mut pod = read.clone();
    pod["metadata"]["labels"]["tier"] = json!("back");
    let updated = world.client.put(&path, &pod).await?;
    assert_eq!(updated.code, StatusCode::OK, "{}", updated.text());
    assert_eq!(eu.pod("web").await?["metadata"]["labels"]["tier"], "back");
    let stale = world.client.put(&path, &pod).await?;
    assert_eq!(stale.code, StatusCode::CONFLICT, "{}", stale.text());
    Ok(())
}

#[tokio::test]
async fn an_older_report_does_not_undo_a_write() -> Result<()> {
    let world = World::start().await?;
    let eu = Cluster::joined(&world, "eu-1", &["web"]).await?;
    let old = eu.pod("web").await?;
    let patch = json!({"metadata": {"labels": {"tier": "front"}}});
    world.client.merge_patch(&format!("{PODS}/web"), &patch).await?;
    eu.put(&world, &pods(), &old);
    assert_eq!(world.get(&format!("{PODS}/web")).await?["metadata"]["labels"]["tier"], "front");
    Ok(())
}

#[tokio::test]
async fn other_writes_are_refused_and_say_whose_it_is() -> Result<()> {
    let world = World::start().await?;
    let eu = Cluster::joined(&world, "eu-1", &["web"]).await?;
    let path = format!("{PODS}/web");
    let asked = eu.was_asked();
    let spec = json!({"spec": {"activeDeadlineSeconds": 5}});
    let status = json!({"status": {"phase": "Failed"}});
    let finalizers = json!({"metadata": {"finalizers": ["example.com/hold"]}});
    for (path, patch) in
        [(path.clone(), spec), (format!("{path}/status"), status), (path.clone(), finalizers)]
    {
        let refused = world.client.merge_patch(&path, &patch).await?;
        assert_eq!(refused.code, StatusCode::METHOD_NOT_ALLOWED, "{path}: {}", refused.text());
        assert!(refused.text().contains("eu-1"), "{}", refused.text());
    }
    let own = json!({"metadata": {"labels": {"hanse.io/cluster": "us-1"}}});
    let refused = world.client.merge_patch(&path, &own).await?;
    assert_eq!(refused.code, StatusCode::UNPROCESSABLE_ENTITY, "{}", refused.text());
    assert_eq!(eu.was_asked(), asked, "the member was not asked");
    Ok(())
}

#[tokio::test]
async fn evictions_are_the_members_to_admit() -> Result<()> {
    let world = World::start().await?;
    let eu = Cluster::joined(&world, "eu-1", &["web"]).await?;
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "web"}});
    let evicted = world.client.post(&format!("{PODS}/web/eviction"), &eviction).await?;
    assert_eq!(evicted.code, StatusCode::CREATED, "{}", evicted.text());
    let (_, path, sent) = eu.last_asked();
    assert_eq!(path, format!("{PODS}/web/eviction"));
    assert!(sent["deleteOptions"]["preconditions"]["uid"].is_string());
    assert_eq!(eu.client.get(&format!("{PODS}/web")).await?.code, StatusCode::NOT_FOUND);
    Ok(())
}

#[tokio::test]
async fn ephemeral_containers_are_added_where_the_pod_runs() -> Result<()> {
    let world = World::start().await?;
    let _eu = Cluster::joined(&world, "eu-1", &["web"]).await?;
    let us = Cluster::joined(&world, "us-1", &["web"]).await?;
    let container = json!({"name": "debug", "image": "example.com/debug"});
    let patch = json!({"spec": {"ephemeralContainers": [container]}});
    let headers = [("content-type", "application/strategic-merge-patch+json")];
    let path = format!("{PODS}/web-us-1/ephemeralcontainers");
    let patched = world.client.call(Method::PATCH, &path, &headers, patch.to_string()).await?;
    assert_eq!(patched.code, StatusCode::OK, "{}", patched.text());
    assert_eq!(patched.json()["metadata"]["name"], "web-us-1");
    assert_eq!(us.pod("web").await?["spec"]["ephemeralContainers"][0]["name"], "debug");
    let shown = world.get(&format!("{PODS}/web-us-1")).await?;
    assert_eq!(shown["spec"]["ephemeralContainers"][0]["name"], "debug");
    Ok(())
}

#[tokio::test]
async fn a_dry_run_leaves_everything_as_it_is() -> Result<()> {
    let world = World::start().await?;
    let eu = Cluster::joined(&world, "eu-1", &["web"]).await?;
    let path = format!("{PODS}/web");
    let before = world.get(&path).await?;
    let patch = json!({"metadata": {"labels": {"tier": "front"}}});
    let tried = world.client.merge_patch(&format!("{path}?dryRun=All"), &patch).await?;
    assert_eq!(tried.json()["metadata"]["labels"]["tier"], "front");
    let tried = delete_with(&world.client, &path, json!({"dryRun": ["All"]})).await?;
    assert_eq!(tried.code, StatusCode::OK, "{}", tried.text());
    assert_eq!(world.get(&path).await?, before);
    assert!(eu.pod("web").await?["metadata"]["labels"]["tier"].is_null());
    Ok(())
}

#[tokio::test]
async fn a_collection_is_deleted_wherever_its_objects_are() -> Result<()> {
    let world = World::start().await?;
    let eu = Cluster::joined(&world, "eu-1", &["web", "api"]).await?;
    create(&world.client, PODS, &mk_pod("mine")).await?;
    let deleted = world.client.delete(&format!("{PODS}?labelSelector=app%20in%20(web,mine)")).await?;
    assert_eq!(deleted.code, StatusCode::OK, "{}", deleted.text());
    assert_eq!(crate::names(&deleted.json()), ["mine", "web"]);
    eu.report(&world, &pods()).await?;
    assert_eq!(world.names(PODS).await?, ["api"]);
    Ok(())
}

#[tokio::test]
async fn without_a_session_writes_are_refused_and_nobody_is_kept_waiting() -> Result<()> {
    let world = World::start().await?;
    let eu = Cluster::joined(&world, "eu-1", &["web"]).await?;
    eu.lose(&world);
    let refused = world.client.delete(&format!("{PODS}/web")).await?;
    assert_eq!(refused.code, StatusCode::SERVICE_UNAVAILABLE, "{}", refused.text());
    // Clients that are told when to try again do so for a minute, without a word.
    assert!(!refused.headers.contains_key("retry-after") && refused.text().contains("eu-1"));
    Ok(())
}

#[tokio::test]
async fn who_may_not_here_may_not_there() -> Result<()> {
    let world = World::start().await?;
    let eu = Cluster::joined(&world, "eu-1", &["web"]).await?;
    let stranger = world.hub.user("stranger", &[]).await?;
    for path in [format!("{PODS}/web"), format!("{PODS}/web/log")] {
        assert_eq!(stranger.get(&path).await?.code, StatusCode::FORBIDDEN);
    }
    assert_eq!(stranger.delete(&format!("{PODS}/web")).await?.code, StatusCode::FORBIDDEN);
    assert_eq!(eu.was_asked(), 0);
    Ok(())
}
