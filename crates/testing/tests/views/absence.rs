//! What was not seen is not absent.

use std::sync::Arc;

use anyhow::{Context, Result};
use http::StatusCode;
use serde_json::json;
use store::WorkspaceId;
use testing::hub::eventually;

use crate::{Cluster, PODS, World, create, mk_pod, names, pods, warnings};

#[tokio::test]
async fn a_cluster_that_was_never_seen_is_missed() -> Result<()> {
    let world = World::start().await?;
    create(&world.client, PODS, &mk_pod("mine")).await?;
    world.views().expect(&world.workspace(), "eu-1");
    let watch = format!(
        "{PODS}?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    );
    for path in [PODS.to_owned(), format!("{PODS}/web"), format!("{PODS}?watch=true&timeoutSeconds=1"), watch]
    {
        let refused = world.client.get(&path).await?;
        assert_eq!(refused.code, StatusCode::SERVICE_UNAVAILABLE, "{path}: {}", refused.text());
        assert_eq!(refused.headers["retry-after"], "1");
        assert!(refused.text().contains("eu-1"), "{}", refused.text());
    }
    let refused = world.client.delete(&format!("{PODS}/web")).await?;
    assert_eq!(refused.code, StatusCode::SERVICE_UNAVAILABLE, "{}", refused.text());
    assert_eq!(
        world.client.get(&format!("{PODS}/mine")).await?.code,
        StatusCode::OK,
        "what is there is there"
    );
    for (path, headers) in
        [(format!("{PODS}?partial=true"), vec![]), (PODS.to_owned(), vec![("hanse-partial", "true")])]
    {
        let partial = world.client.call(http::Method::GET, &path, &headers, "").await?;
        assert_eq!(names(&partial.json()), ["mine"]);
        assert!(warnings(&partial)[0].contains("eu-1 was not seen yet"), "{:?}", warnings(&partial));
    }
    let eu = Cluster::joined(&world, "eu-1", &["web"]).await?;
    assert_eq!(world.names(PODS).await?, ["mine", "web"]);
    drop(eu);
    Ok(())
}

#[tokio::test]
async fn one_kind_that_was_seen_does_not_wait_for_the_others() -> Result<()> {
    let world = World::start().await?;
    let eu = Cluster::start("eu-1").await?;
    eu.join(&world);
    eu.report(&world, &pods()).await?;
    assert_eq!(world.client.get(PODS).await?.code, StatusCode::OK);
    assert_eq!(world.client.get(crate::SETS).await?.code, StatusCode::SERVICE_UNAVAILABLE);
    Ok(())
}

#[tokio::test]
async fn what_a_lost_session_reported_stays_and_says_how_old_it_is() -> Result<()> {
    let world = World::start().await?;
    let eu = Cluster::joined(&world, "eu-1", &["web"]).await?;
    let _us = Cluster::joined(&world, "us-1", &["api"]).await?;
    let revision = world.get(PODS).await?["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let mut watch = world.client.watch(&format!("{PODS}?watch=true&resourceVersion={revision}")).await?;
    eu.lose(&world);
    let list = world.client.get(PODS).await?;
    assert_eq!(names(&list.json()), ["api", "web"]);
    assert!(warnings(&list)[0].contains("eu-1 was not seen since"), "{:?}", warnings(&list));
    assert_eq!(warnings(&list).len(), 1);
    let event = watch.expect().await?;
    assert_eq!(event["type"], "MODIFIED", "never DELETED");
    assert!(event["object"]["metadata"]["annotations"]["hanse.io/stale"].is_string());
    eu.lose(&world);
    // Meanwhile one went and one came.
    eu.client.delete(&format!("{PODS}/web")).await?;
    create(&eu.client, PODS, &mk_pod("new")).await?;
    eu.join(&world);
    let list = world.client.get(PODS).await?;
    assert_eq!(names(&list.json()), ["api", "web"], "a connection alone confirms nothing");
    eu.report(&world, &pods()).await?;
    let list = world.client.get(PODS).await?;
    assert_eq!(names(&list.json()), ["api", "new"]);
    assert!(warnings(&list).is_empty(), "{:?}", warnings(&list));
    Ok(())
}

#[tokio::test]
async fn what_is_confirmed_loses_its_mark() -> Result<()> {
    let world = World::start().await?;
    let eu = Cluster::joined(&world, "eu-1", &["web"]).await?;
    let before = world.get(&format!("{PODS}/web")).await?;
    eu.lose(&world);
    eu.join(&world);
    eu.report(&world, &pods()).await?;
    let mut after = world.get(&format!("{PODS}/web")).await?;
    after["metadata"]["resourceVersion"] = before["metadata"]["resourceVersion"].clone();
    assert_eq!(after, before);
    Ok(())
}

#[tokio::test]
async fn a_list_that_brings_nothing_new_is_no_event() -> Result<()> {
    let world = World::start().await?;
    let eu = Cluster::joined(&world, "eu-1", &["web"]).await?;
    let before = world.get(PODS).await?;
    eu.report_all(&world).await?;
    assert_eq!(world.get(PODS).await?, before);
    Ok(())
}

#[tokio::test]
async fn an_unjoined_cluster_takes_its_objects_with_it() -> Result<()> {
    let world = World::start().await?;
    let eu = Cluster::joined(&world, "eu-1", &["web"]).await?;
    assert_eq!(world.views().clusters(&world.workspace()), ["eu-1"]);
    world.views().leave(&world.workspace(), "eu-1");
    assert_eq!(world.names(PODS).await?, [""; 0]);
    eu.report(&world, &pods()).await?;
    assert_eq!(world.names(PODS).await?, [""; 0], "a late report of a cluster that left is nobody's");
    assert!(world.views().workspaces().is_empty());
    Ok(())
}

#[tokio::test]
async fn another_cluster_by_the_same_name_is_another_cluster() -> Result<()> {
    let world = World::start().await?;
    let eu = Cluster::joined(&world, "eu-1", &["web"]).await?;
    eu.become_another();
    eu.join(&world);
    let refused = world.client.get(PODS).await?;
    assert_eq!(refused.code, StatusCode::SERVICE_UNAVAILABLE, "it was never seen: {}", refused.text());
    Ok(())
}

#[tokio::test]
async fn nonsense_from_a_member_is_left_out() -> Result<()> {
    let world = World::start().await?;
    let eu = Cluster::joined(&world, "eu-1", &["web"]).await?;
    let views = world.views();
    for nonsense in [
        "",
        "null",
        "[1]",
        "{}",
        r#"{"metadata":{"name":"x"}}"#,
        r#"{"metadata":{"name":"a/b","namespace":"shop","uid":"u"}}"#,
    ] {
        views.put(&world.workspace(), "eu-1", &pods(), bytes::Bytes::from(nonsense).into());
        views.remove(&world.workspace(), "eu-1", &pods(), bytes::Bytes::from(nonsense).into());
    }
    let odd = r#"{"metadata":{"name":"odd","namespace":"shop","uid":"u","labels":3,"ownerReferences":"x"},"spec":7}"#;
    views.put(&world.workspace(), "eu-1", &pods(), bytes::Bytes::from(odd).into());
    views.put(&world.workspace(), "nobody", &pods(), bytes::Bytes::from(odd).into());
    assert!(world.names(PODS).await?.contains(&"web".to_owned()));
    drop(eu);
    Ok(())
}

#[tokio::test]
async fn a_cluster_of_the_same_name_that_is_joined_elsewhere_gets_no_say() -> Result<()> {
    let world = World::start().await?;
    let _eu = Cluster::joined(&world, "eu", &["web"]).await?;
    let mut other = Cluster::start("eu").await?;
    let session = Arc::get_mut(&mut other.session).context("nobody else has it")?;
    session.home = WorkspaceId("elsewhere".into());
    let joined = world.views().join(&world.workspace(), other.session.clone(), "another identity");
    assert!(!joined, "requests about what the first shows must never go to the second");
    assert_eq!(world.names(PODS).await?, ["web"]);
    assert!(world.views().is_held(&world.workspace(), "eu"));
    Ok(())
}

#[tokio::test]
async fn what_a_cluster_of_the_platform_may_have_is_not_gone_before_it_was_seen() -> Result<()> {
    const CLUSTERS: &str = "/apis/hanse.io/v1alpha1/clusters";
    const MAPS: &str = "/clusters/team/api/v1/namespaces/default/configmaps";
    let world = World::start().await?;
    let spec = json!({"endpoint": "https://a", "secretRef": {"namespace": "a", "name": "a"}});
    create(&world.client, CLUSTERS, &json!({"metadata": {"name": "eu-1"}, "spec": spec})).await?;
    let team = json!({"metadata": {"name": "team"}});
    create(&world.client, "/clusters/root/apis/hanse.io/v1alpha1/workspaces", &team).await?;
    let owned_by = |name: &str, kind: &str| {
        let owner = json!({"apiVersion": "v1", "kind": kind, "name": "web", "uid": "of-a-web"});
        json!({"metadata": {"name": name, "ownerReferences": [owner]}})
    };
    let is_gone = async |name: &str| {
        let path = format!("{MAPS}/{name}");
        eventually(&format!("{name} is gone"), || async {
            Ok((world.client.get(&path).await?.code == StatusCode::NOT_FOUND).then_some(()))
        })
        .await
    };
    create(&world.client, MAPS, &owned_by("of-a-pod", "Pod")).await?;
    create(&world.client, MAPS, &owned_by("of-a-map", "ConfigMap")).await?;
    // Nobody but the workspace has config maps.
    is_gone("of-a-map").await?;
    assert_eq!(world.client.get(&format!("{MAPS}/of-a-pod")).await?.code, StatusCode::OK);
    world.client.delete(&format!("{CLUSTERS}/eu-1")).await?;
    is_gone("of-a-pod").await
}
