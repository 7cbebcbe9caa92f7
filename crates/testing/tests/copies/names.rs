//! Namespaces of several workspaces in one cluster.

use anyhow::Result;
use api::assignment::reason;
use serde_json::json;

use crate::{
    hand::{CONFIG_MAP, Hand, NAMESPACE, copy, is_there, one_cluster, target},
    world::CLUSTERS,
};

#[tokio::test(flavor = "multi_thread")]
async fn namespaces_of_another_workspace_get_another_name_where_theirs_is_taken() -> Result<()> {
    let (world, members) = one_cluster().await?;
    let (own, team) = (Hand::new(&world), Hand::of(&world, "team").await?);
    own.namespace("shop", &["eu-1"]).await?;
    own.until_applied(&NAMESPACE, "shop", "shop", "eu-1").await?;
    for (namespace, there) in [("shop", "team-shop"), ("default", "team-default"), ("free", "free")] {
        team.namespace(namespace, &["eu-1"]).await?;
        team.config_map(namespace, "settings", json!({"of": namespace}), &["eu-1"]).await?;
        let made = copy(&members, "one", &CONFIG_MAP.path(there, "settings"), |_| true).await?;
        assert_eq!(made["data"]["of"], namespace);
        assert_eq!(made["metadata"]["labels"]["hanse.io/workspace"], "team");
        let labels =
            copy(&members, "one", &NAMESPACE.path("", there), |_| true).await?["metadata"]["labels"].clone();
        assert_eq!(labels["hanse.io/workspace"], "team");
        let other = (namespace != there).then(|| json!(namespace));
        assert_eq!(labels.get("hanse.io/namespace"), other.as_ref());
    }
    assert!(!is_there(&members, "one", &CONFIG_MAP.path("shop", "settings")).await?);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_former_workspace_of_that_name_left_is_left_alone() -> Result<()> {
    let (world, members) = one_cluster().await?;
    let former = json!({api::WORKSPACE_LABEL: "team", api::WORKSPACE_ID_LABEL: "0123456789abcdef"});
    members
        .post("one", "/api/v1/namespaces", json!({"metadata": {"name": "shop", "labels": former}}))
        .await?;
    let team = Hand::of(&world, "team").await?;
    team.namespace("shop", &["eu-1"]).await?;
    team.config_map("shop", "settings", json!({}), &["eu-1"]).await?;
    copy(&members, "one", &CONFIG_MAP.path("team-shop", "settings"), |_| true).await?;
    assert!(!is_there(&members, "one", &CONFIG_MAP.path("shop", "settings")).await?);
    // So it is with a copy, though there is no object any more that it was made from.
    let metadata = json!({"name": "left", "labels": former, "annotations": {api::SOURCE_ANNOTATION: "gone"}});
    members.post("one", "/api/v1/namespaces/team-shop/configmaps", json!({"metadata": metadata})).await?;
    team.config_map("shop", "left", json!({}), &["eu-1"]).await?;
    team.until(&CONFIG_MAP, "shop", "left", "eu-1", |it| it.reason == reason::CONFLICT).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn who_has_not_the_cluster_does_not_take_over_its_namespaces() -> Result<()> {
    let (world, members) = one_cluster().await?;
    let (cert, kube) = (Hand::of(&world, "cert").await?, Hand::of(&world, "kube").await?);
    for name in ["manager", "cert-manager", "system"] {
        members.post("one", "/api/v1/namespaces", json!({"metadata": {"name": name}})).await?;
    }
    for (hand, namespace, reason, words) in [
        (&cert, "manager", reason::CONFLICT, "whoever has the cluster"),
        (&kube, "system", reason::INVALID, "kept for the cluster itself: give it another name"),
    ] {
        let adopt = json!({api::ADOPT_ANNOTATION: "true"});
        hand.make(&NAMESPACE, "", json!({"metadata": {"name": namespace, "annotations": adopt}})).await?;
        hand.assign(&NAMESPACE, namespace, namespace, &[target("eu-1")]).await?;
        let refused = |it: &api::assignment::Report| it.reason == reason;
        let report = hand.until(&NAMESPACE, namespace, namespace, "eu-1", refused).await?;
        assert!(report.message.contains(words), "{}", report.message);
    }
    for name in ["cert-manager", "kube-system"] {
        let labels =
            copy(&members, "one", &NAMESPACE.path("", name), |_| true).await?["metadata"]["labels"].clone();
        assert_eq!(labels.get(api::WORKSPACE_LABEL), None, "{name}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_may_want_the_workspace_before_every_name() -> Result<()> {
    let (world, members) = one_cluster().await?;
    let prefixed = json!({"spec": {"namespaces": "Prefixed"}});
    assert_eq!(world.admin.merge_patch(&format!("{CLUSTERS}/eu-1"), &prefixed).await?.code, 200);
    let hand = Hand::new(&world);
    hand.namespace("shop", &["eu-1"]).await?;
    hand.config_map("shop", "settings", json!({}), &["eu-1"]).await?;
    copy(&members, "one", &CONFIG_MAP.path("default-shop", "settings"), |_| true).await?;
    let long = "n".repeat(60);
    hand.namespace(&long, &["eu-1"]).await?;
    let report = hand.until(&NAMESPACE, &long, &long, "eu-1", |it| it.reason == reason::INVALID).await?;
    assert!(report.message.contains("give it a shorter name"), "{}", report.message);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_for_its_namespace_says_so() -> Result<()> {
    let (world, members) = one_cluster().await?;
    let hand = Hand::new(&world);
    hand.make(&NAMESPACE, "", json!({"metadata": {"name": "shop"}})).await?;
    hand.config_map("shop", "settings", json!({}), &["eu-1"]).await?;
    let waits = |it: &api::assignment::Report| it.reason == "NamespaceMissing";
    hand.until(&CONFIG_MAP, "shop", "settings", "eu-1", waits).await?;
    assert!(!is_there(&members, "one", &NAMESPACE.path("", "shop")).await?);
    hand.namespace("shop", &["eu-1"]).await?;
    hand.until_applied(&CONFIG_MAP, "shop", "settings", "eu-1").await?;
    Ok(())
}
