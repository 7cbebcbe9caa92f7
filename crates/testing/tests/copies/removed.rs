//! Copies are removed only when the Assignment says so.

use anyhow::Result;
use api::assignment::{Propagation, Report};
use serde_json::{Value, json};
use testing::{hub::eventually, simulated::TestClusters};

use crate::{
    hand::{CONFIG_MAP, DEPLOYMENT, Hand, NAMESPACE, access, copy, is_there, one_cluster, patch, share},
    world::World,
};

#[tokio::test(flavor = "multi_thread")]
async fn what_is_in_a_namespace_goes_before_it_and_finalizers_are_waited_for() -> Result<()> {
    let (world, members) = one_cluster().await?;
    let hand = Hand::new(&world);
    hand.namespace("shop", &["eu-1"]).await?;
    hand.config_map("shop", "settings", json!({"a": "1"}), &["eu-1"]).await?;
    hand.until_applied(&CONFIG_MAP, "shop", "settings", "eu-1").await?;
    let path = CONFIG_MAP.path("shop", "settings");
    patch(&members, "one", &path, json!({"metadata": {"finalizers": ["example.com/held"]}})).await?;
    hand.unassign(&NAMESPACE, "shop", "shop").await?;
    let waits = |it: &Report| it.message.contains("1 other");
    hand.until(&NAMESPACE, "shop", "shop", "eu-1", waits).await?;
    hand.unassign(&CONFIG_MAP, "shop", "settings").await?;
    let waits = |it: &Report| it.message.contains("example.com/held");
    let report = hand.until(&CONFIG_MAP, "shop", "settings", "eu-1", waits).await?;
    assert!(!report.is_gone());
    assert!(is_there(&members, "one", "/api/v1/namespaces/shop").await?);
    patch(&members, "one", &path, json!({"metadata": {"finalizers": null}})).await?;
    hand.until(&CONFIG_MAP, "shop", "settings", "eu-1", Report::is_gone).await?;
    hand.until(&NAMESPACE, "shop", "shop", "eu-1", Report::is_gone).await?;
    assert!(!is_there(&members, "one", "/api/v1/namespaces/shop").await?);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_that_was_there_before_stays() -> Result<()> {
    let (world, members) = one_cluster().await?;
    let hand = Hand::new(&world);
    hand.namespace("default", &["eu-1"]).await?;
    hand.config_map("default", "settings", json!({}), &["eu-1"]).await?;
    hand.until_applied(&CONFIG_MAP, "default", "settings", "eu-1").await?;
    hand.unassign(&CONFIG_MAP, "default", "settings").await?;
    hand.unassign(&NAMESPACE, "default", "default").await?;
    hand.until(&CONFIG_MAP, "default", "settings", "eu-1", Report::is_gone).await?;
    hand.until(&NAMESPACE, "default", "default", "eu-1", Report::is_gone).await?;
    let namespace = copy(&members, "one", "/api/v1/namespaces/default", |_| true).await?;
    assert_eq!(namespace["metadata"].get("deletionTimestamp"), None);
    assert!(!is_there(&members, "one", &CONFIG_MAP.path("default", "settings")).await?);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn without_an_assignment_nothing_is_deleted() -> Result<()> {
    let (world, members) = one_cluster().await?;
    let hand = Hand::new(&world);
    hand.namespace("shop", &["eu-1"]).await?;
    for name in ["forgotten", "elsewhere", "foreign"] {
        hand.config_map("shop", name, json!({"a": "1"}), &["eu-1"]).await?;
        hand.until_applied(&CONFIG_MAP, "shop", name, "eu-1").await?;
    }
    hand.forget(&CONFIG_MAP, "shop", "forgotten").await?;
    hand.assign(&CONFIG_MAP, "shop", "elsewhere", &[]).await?;
    // Somebody made it their own.
    let path = CONFIG_MAP.path("shop", "foreign");
    hand.assign(&CONFIG_MAP, "shop", "foreign", &[]).await?;
    let theirs = json!({"metadata": {"annotations": {"hanse.io/source-uid": "of-another"}}});
    patch(&members, "one", &path, theirs).await?;
    hand.assign(&CONFIG_MAP, "shop", "foreign", &[crate::hand::draining("eu-1")]).await?;
    hand.until(&CONFIG_MAP, "shop", "foreign", "eu-1", Report::is_gone).await?;
    for name in ["forgotten", "elsewhere", "foreign"] {
        assert!(is_there(&members, "one", &CONFIG_MAP.path("shop", name)).await?, "{name}");
    }
    Ok(())
}

async fn workload(hand: &Hand<'_>, name: &str) -> Result<()> {
    let labels = json!({"app": name});
    let template =
        json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let spec = json!({"replicas": 2, "selector": {"matchLabels": labels}, "template": template});
    hand.make(&DEPLOYMENT, "shop", json!({"metadata": {"name": name}, "spec": spec})).await?;
    hand.assign(&DEPLOYMENT, "shop", name, &[share("eu-1", 2)]).await?;
    let runs = |it: &Report| it.applied && it.status["readyReplicas"] == 2;
    hand.until(&DEPLOYMENT, "shop", name, "eu-1", runs).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_copy_owns_goes_with_it_or_stays_as_the_user_wants() -> Result<()> {
    let (world, clusters) = (World::start().await?, TestClusters::start(&["eu"]).await?);
    world.join("eu-1", &access(&clusters, "eu")?).await?;
    let hand = Hand::new(&world);
    hand.namespace("shop", &["eu-1"]).await?;
    let admin = clusters.admin("eu").await?;
    workload(&hand, "shown").await?;
    let owner = hand.get(&DEPLOYMENT.path("shop", "shown")).await?["metadata"]["uid"].clone();
    eventually("its replica set shows as its own", || async {
        let sets = hand.get("/apis/apps/v1/namespaces/shop/replicasets").await?;
        let owners = sets["items"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|it| &it["metadata"]["ownerReferences"][0]["uid"]);
        Ok(owners.clone().any(|it| *it == owner).then_some(()))
    })
    .await?;
    hand.unassign(&DEPLOYMENT, "shop", "shown").await?;
    let modes = [Propagation::Background, Propagation::Foreground, Propagation::Orphan];
    for (mode, name) in modes.into_iter().zip(["background", "foreground", "orphan"]) {
        workload(&hand, name).await?;
        hand.assign_as(&DEPLOYMENT, "shop", name, &[share("eu-1", 2)], |spec| spec.propagation = Some(mode))
            .await?;
        hand.unassign(&DEPLOYMENT, "shop", name).await?;
        hand.until(&DEPLOYMENT, "shop", name, "eu-1", Report::is_gone).await?;
        assert_eq!(admin.get(&DEPLOYMENT.path("shop", name)).await?.code, 404);
    }
    let owners = eventually("only what was orphaned is left", || async {
        let sets = admin.get("/apis/apps/v1/namespaces/shop/replicasets").await?.json();
        let names: Vec<Value> = sets["items"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|it| it["metadata"]["labels"]["app"].clone())
            .collect();
        Ok((names.len() <= 1).then_some(names))
    })
    .await?;
    assert_eq!(owners, [json!("orphan")]);
    Ok(())
}
