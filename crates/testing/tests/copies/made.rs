//! Copies are made, changed with their object, and refused.

use anyhow::Result;
use api::assignment::reason;
use serde_json::json;
use testing::hub::eventually;

use crate::hand::{CONFIG_MAP, Hand, NAMESPACE, SECRET, copy, is_there, one_cluster, target};

#[tokio::test(flavor = "multi_thread")]
async fn an_assigned_object_is_in_its_cluster_and_says_whose_it_is() -> Result<()> {
    let (world, members) = one_cluster().await?;
    let hand = Hand::new(&world);
    // In any order: a namespace is there before anything in it.
    hand.make(&NAMESPACE, "", json!({"metadata": {"name": "shop", "labels": {"team": "blue"}}})).await?;
    hand.config_map("shop", "settings", json!({"a": "1"}), &["eu-1"]).await?;
    hand.namespace("shop", &["eu-1"]).await?;
    let path = CONFIG_MAP.path("shop", "settings");
    let made = copy(&members, "one", &path, |_| true).await?;
    let source = hand.get(&path).await?;
    assert_eq!(made["data"], json!({"a": "1"}));
    assert_eq!(made["metadata"]["labels"], json!({"hanse.io/workspace": "default"}));
    assert_eq!(made["metadata"]["annotations"]["hanse.io/source-uid"], source["metadata"]["uid"]);
    let namespace = copy(&members, "one", "/api/v1/namespaces/shop", |_| true).await?;
    assert_eq!(namespace["metadata"]["labels"]["team"], "blue");
    assert_eq!(namespace["metadata"]["labels"]["hanse.io/workspace"], "default");
    let report = hand.until_applied(&CONFIG_MAP, "shop", "settings", "eu-1").await?;
    assert_eq!((report.reason.as_str(), report.generation), ("", 1));
    let report = hand.until_applied(&NAMESPACE, "shop", "shop", "eu-1").await?;
    assert_eq!(report.status["phase"], "Active", "what the member says of it");
    // What changes here changes there; what goes here goes there.
    hand.patch(&CONFIG_MAP, "shop", "settings", json!({"data": {"a": null, "b": "2"}})).await?;
    copy(&members, "one", &path, |it| it["data"] == json!({"b": "2"})).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_names_no_cluster_or_another_one_does_nothing() -> Result<()> {
    let (world, members) = one_cluster().await?;
    let hand = Hand::new(&world);
    hand.namespace("shop", &["eu-1"]).await?;
    hand.make(&CONFIG_MAP, "shop", json!({"metadata": {"name": "nowhere"}})).await?;
    hand.assign(&CONFIG_MAP, "shop", "nowhere", &[]).await?;
    hand.make(&CONFIG_MAP, "shop", json!({"metadata": {"name": "earlier"}})).await?;
    let mut earlier = target("eu-1");
    earlier.uid = "of-a-cluster-of-that-name-that-is-gone".into();
    hand.assign(&CONFIG_MAP, "shop", "earlier", &[earlier]).await?;
    hand.config_map("shop", "last", json!({}), &["eu-1"]).await?;
    hand.until_applied(&CONFIG_MAP, "shop", "last", "eu-1").await?;
    for name in ["nowhere", "earlier"] {
        assert!(!is_there(&members, "one", &CONFIG_MAP.path("shop", name)).await?, "{name}");
        assert!(hand.reports(&CONFIG_MAP, "shop", name)?.is_empty());
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_is_told_where_the_user_looks_and_tried_again() -> Result<()> {
    let (world, members) = one_cluster().await?;
    let hand = Hand::new(&world);
    hand.namespace("shop", &["eu-1"]).await?;
    hand.until_applied(&NAMESPACE, "shop", "shop", "eu-1").await?;
    let quota = json!({"metadata": {"name": "few"}, "spec": {"hard": {"count/secrets": "0"}}});
    members.post("one", "/api/v1/namespaces/shop/resourcequotas", quota).await?;
    copy(&members, "one", "/api/v1/namespaces/shop/resourcequotas/few", |it| {
        it["status"]["hard"]["count/secrets"] == "0"
    })
    .await?;
    hand.make(&SECRET, "shop", json!({"metadata": {"name": "key"}})).await?;
    hand.assign(&SECRET, "shop", "key", &[target("eu-1")]).await?;
    let report = hand.until(&SECRET, "shop", "key", "eu-1", |it| it.reason == reason::REFUSED).await?;
    assert!(report.message.contains("exceeded quota: few"), "{}", report.message);
    assert!(!report.applied);
    let warnings = eventually("an event", || async {
        let warnings = hand.warnings("shop", "key").await?;
        Ok((!warnings.is_empty()).then_some(warnings))
    })
    .await?;
    assert!(
        warnings[0].starts_with("cluster eu-1: ") && warnings[0].contains("exceeded quota"),
        "{warnings:?}"
    );
    let path = "/clusters/one/api/v1/namespaces/shop/resourcequotas/few";
    members.admin.merge_patch(path, &json!({"spec": {"hard": {"count/secrets": "5"}}})).await?;
    hand.until_applied(&SECRET, "shop", "key", "eu-1").await?;
    assert_eq!(hand.warnings("shop", "key").await?.len(), 1, "the same is not said twice");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_rendered_is_invalid_until_the_override_is_mended() -> Result<()> {
    let (world, members) = one_cluster().await?;
    let hand = Hand::new(&world);
    hand.namespace("shop", &["eu-1"]).await?;
    let path = "/apis/hanse.io/v1alpha1/overrides";
    let patches = |name: &str| json!([{"op": "replace", "path": format!("/data/{name}"), "value": "over"}]);
    let object = json!({
        "apiVersion": api::API_VERSION, "kind": "Override", "metadata": {"name": "change"},
        "spec": {"select": [{"kinds": ["ConfigMap"], "names": ["settings"]}], "patches": patches("none")},
    });
    assert_eq!(world.admin.post(path, &object).await?.code, 201);
    hand.config_map("shop", "settings", json!({"a": "1"}), &["eu-1"]).await?;
    let report =
        hand.until(&CONFIG_MAP, "shop", "settings", "eu-1", |it| it.reason == reason::INVALID).await?;
    assert!(report.message.contains("/data/none"), "{}", report.message);
    let mended = json!({"spec": {"patches": patches("a")}});
    assert_eq!(world.admin.merge_patch(&format!("{path}/change"), &mended).await?.code, 200);
    copy(&members, "one", &CONFIG_MAP.path("shop", "settings"), |it| it["data"]["a"] == "over").await?;
    world.admin.delete(&format!("{path}/change")).await?;
    copy(&members, "one", &CONFIG_MAP.path("shop", "settings"), |it| it["data"]["a"] == "1").await?;
    Ok(())
}
