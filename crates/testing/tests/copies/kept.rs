//! What others do to copies, and what belongs to others.

use anyhow::Result;
use api::assignment::reason;
use serde_json::json;

use crate::hand::{
    AUTOSCALER, CONFIG_MAP, DEPLOYMENT, Hand, POD, copy, one_cluster, patch, share, target, writes,
};

#[tokio::test(flavor = "multi_thread")]
async fn what_was_sent_is_put_back_and_what_others_add_stays() -> Result<()> {
    let (world, members) = one_cluster().await?;
    let hand = Hand::new(&world);
    hand.namespace("shop", &["eu-1"]).await?;
    hand.config_map("shop", "settings", json!({"a": "1"}), &["eu-1"]).await?;
    let path = CONFIG_MAP.path("shop", "settings");
    copy(&members, "one", &path, |_| true).await?;
    let change = json!({"data": {"a": "changed", "theirs": "x"}, "metadata": {"labels": {"mine": "yes"}}});
    patch(&members, "one", &path, change).await?;
    let back = copy(&members, "one", &path, |it| it["data"]["a"] == "1").await?;
    assert_eq!(back["data"]["theirs"], "x");
    assert_eq!(back["metadata"]["labels"]["mine"], "yes");
    // One that is deleted there is made again.
    members.admin.delete(&format!("/clusters/one{path}")).await?;
    let uid = back["metadata"]["uid"].clone();
    copy(&members, "one", &path, |it| it["metadata"]["uid"] != uid).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_written_at_rest() -> Result<()> {
    let (world, members) = one_cluster().await?;
    let hand = Hand::new(&world);
    hand.namespace("shop", &["eu-1"]).await?;
    hand.config_map("shop", "settings", json!({"a": "1"}), &["eu-1"]).await?;
    hand.until_applied(&CONFIG_MAP, "shop", "settings", "eu-1").await?;
    let path = CONFIG_MAP.path("shop", "settings");
    let rests = copy(&members, "one", &path, |_| true).await?;
    // What does not travel, and what only touches it, is no reason to write.
    let touch = json!({"metadata": {"annotations": {"hanse.io/clusters": "eu-1"}}});
    hand.patch(&CONFIG_MAP, "shop", "settings", touch).await?;
    hand.assign(&CONFIG_MAP, "shop", "settings", &[share("eu-1", 1)]).await?;
    hand.config_map("shop", "last", json!({}), &["eu-1"]).await?;
    hand.until_applied(&CONFIG_MAP, "shop", "last", "eu-1").await?;
    assert_eq!(writes(&world, "applied").await?, 0);
    let later = copy(&members, "one", &path, |_| true).await?;
    assert_eq!(later["metadata"]["resourceVersion"], rests["metadata"]["resourceVersion"]);
    Ok(())
}

/// By the revision and by what was sent, and not by the generation, which a ConfigMap does not have.
#[tokio::test(flavor = "multi_thread")]
async fn a_report_says_what_the_copy_was_made_of() -> Result<()> {
    let (world, members) = one_cluster().await?;
    let hand = Hand::new(&world);
    hand.namespace("shop", &["eu-1"]).await?;
    hand.config_map("shop", "settings", json!({"a": "1"}), &["eu-1"]).await?;
    let first = hand.until(&CONFIG_MAP, "shop", "settings", "eu-1", |it| !it.rendered.is_empty()).await?;
    let path = CONFIG_MAP.path("shop", "settings");
    let made = copy(&members, "one", &path, |_| true).await?;
    // What does not travel makes no other copy, and is not told of.
    let touch = json!({"metadata": {"annotations": {"hanse.io/clusters": "eu-1"}}});
    let touched = hand.patch(&CONFIG_MAP, "shop", "settings", touch).await?;
    assert_ne!(touched["metadata"]["resourceVersion"], json!(first.revision));
    let changed = hand.patch(&CONFIG_MAP, "shop", "settings", json!({"data": {"a": "2"}})).await?;
    let is_other = |it: &api::assignment::Report| it.rendered != first.rendered;
    let second = hand.until(&CONFIG_MAP, "shop", "settings", "eu-1", is_other).await?;
    assert_eq!(
        changed["metadata"]["resourceVersion"],
        json!(second.revision),
        "nothing was said of the one between"
    );
    // The same as before is not the same revision.
    let back = hand.patch(&CONFIG_MAP, "shop", "settings", json!({"data": {"a": "1"}})).await?;
    let is_back = |it: &api::assignment::Report| it.rendered == first.rendered;
    let third = hand.until(&CONFIG_MAP, "shop", "settings", "eu-1", is_back).await?;
    assert_eq!(back["metadata"]["resourceVersion"], json!(third.revision));
    let now = copy(&members, "one", &path, |it| it["data"]["a"] == "1").await?;
    assert_eq!(now["metadata"]["uid"], made["metadata"]["uid"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_of_somebody_else_is_left_alone_until_it_may_be_taken_over() -> Result<()> {
    let (world, members) = one_cluster().await?;
    let hand = Hand::new(&world);
    members.post("one", "/api/v1/namespaces", json!({"metadata": {"name": "shop"}})).await?;
    let theirs = json!({"metadata": {"name": "settings"}, "data": {"theirs": "x", "a": "0"}});
    let theirs = members.post("one", "/api/v1/namespaces/shop/configmaps", theirs).await?;
    hand.namespace("shop", &["eu-1"]).await?;
    hand.config_map("shop", "settings", json!({"a": "1"}), &["eu-1"]).await?;
    let conflict = |it: &api::assignment::Report| it.reason == reason::CONFLICT;
    let report = hand.until(&CONFIG_MAP, "shop", "settings", "eu-1", conflict).await?;
    assert!(report.message.contains("hanse.io/adopt"), "{}", report.message);
    let path = CONFIG_MAP.path("shop", "settings");
    let still = copy(&members, "one", &path, |_| true).await?;
    assert_eq!(still["metadata"]["resourceVersion"], theirs["metadata"]["resourceVersion"]);
    let namespace = copy(&members, "one", "/api/v1/namespaces/shop", |_| true).await?;
    assert_eq!(namespace["metadata"]["labels"].get("hanse.io/workspace"), None, "it is used as it is");
    let adopt = json!({"metadata": {"annotations": {"hanse.io/adopt": "true"}}});
    hand.patch(&CONFIG_MAP, "shop", "settings", adopt).await?;
    let taken = copy(&members, "one", &path, |it| it["data"]["a"] == "1").await?;
    assert_eq!(taken["metadata"]["uid"], theirs["metadata"]["uid"]);
    assert_eq!(taken["data"]["theirs"], "x");
    hand.until_applied(&CONFIG_MAP, "shop", "settings", "eu-1").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_an_object_that_is_no_more_is_taken_over_and_one_of_another_is_not() -> Result<()> {
    let (world, members) = one_cluster().await?;
    let hand = Hand::new(&world);
    hand.namespace("shop", &["eu-1"]).await?;
    hand.until_applied(&crate::hand::NAMESPACE, "shop", "shop", "eu-1").await?;
    let other = hand.make(&CONFIG_MAP, "shop", json!({"metadata": {"name": "other"}})).await?;
    for (name, source) in [("left", json!("gone-for-good")), ("taken", other["metadata"]["uid"].clone())] {
        let metadata = json!({
            "name": name, "labels": {"hanse.io/workspace": "default"}, "annotations": {"hanse.io/source-uid": source},
        });
        members.post("one", "/api/v1/namespaces/shop/configmaps", json!({"metadata": metadata})).await?;
        hand.config_map("shop", name, json!({"a": "1"}), &["eu-1"]).await?;
    }
    copy(&members, "one", &CONFIG_MAP.path("shop", "left"), |it| it["data"]["a"] == "1").await?;
    hand.until(&CONFIG_MAP, "shop", "taken", "eu-1", |it| it.reason == reason::CONFLICT).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_run_for_an_object_that_is_no_more_is_not_taken_for_the_new_one() -> Result<()> {
    let (world, members) = one_cluster().await?;
    let hand = Hand::new(&world);
    hand.namespace("shop", &["eu-1"]).await?;
    hand.until_applied(&crate::hand::NAMESPACE, "shop", "shop", "eu-1").await?;
    let once = json!({
        "restartPolicy": "Never", "automountServiceAccountToken": false, "containers": [{"name": "c", "image": "i"}],
    });
    // Given a pod that has run for an object of that name, and of which nothing else is known,
    let metadata = json!({
        "name": "migrate", "labels": {"hanse.io/workspace": "default"}, "annotations": {"hanse.io/source-uid": "gone"},
    });
    let left = json!({"metadata": metadata, "spec": once});
    let left = members.post("one", "/api/v1/namespaces/shop/pods", left).await?;
    let status = format!("{}/status", POD.path("shop", "migrate"));
    patch(&members, "one", &status, json!({"status": {"phase": "Succeeded"}})).await?;
    // when one of that name is made anew,
    hand.make(&POD, "shop", json!({"metadata": {"name": "migrate"}, "spec": once})).await?;
    hand.assign(&POD, "shop", "migrate", &[target("eu-1")]).await?;
    // then it has not run, and what is in its way is left alone, until somebody deletes it.
    let report = hand.until(&POD, "shop", "migrate", "eu-1", |it| it.reason == reason::CONFLICT).await?;
    assert!(report.message.contains("delete that one there") && report.status.is_null(), "{report:?}");
    let path = POD.path("shop", "migrate");
    assert_eq!(copy(&members, "one", &path, |_| true).await?["metadata"]["uid"], left["metadata"]["uid"]);
    members.admin.delete(&format!("/clusters/one{path}?gracePeriodSeconds=0")).await?;
    let made = copy(&members, "one", &path, |it| it["metadata"]["uid"] != left["metadata"]["uid"]).await?;
    assert_ne!(made["status"]["phase"], "Succeeded");
    hand.until_applied(&POD, "shop", "migrate", "eu-1").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_that_an_autoscaler_decides_are_left_to_it() -> Result<()> {
    let (world, members) = one_cluster().await?;
    let hand = Hand::new(&world);
    hand.namespace("shop", &["eu-1"]).await?;
    let labels = json!({"app": "web"});
    let template =
        json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}});
    let spec = json!({"replicas": 2, "selector": {"matchLabels": labels}, "template": template});
    hand.make(&DEPLOYMENT, "shop", json!({"metadata": {"name": "web"}, "spec": spec})).await?;
    let autoscaler = json!({"metadata": {"name": "web"}, "spec": {
        "maxReplicas": 9, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
    }});
    hand.make(&AUTOSCALER, "shop", autoscaler).await?;
    hand.assign(&DEPLOYMENT, "shop", "web", &[share("eu-1", 2)]).await?;
    let path = DEPLOYMENT.path("shop", "web");
    copy(&members, "one", &path, |it| it["spec"]["replicas"] == 2).await?;
    // As the member's autoscaler does.
    let scale = json!({"spec": {"replicas": 7}});
    members.admin.merge_patch(&format!("/clusters/one{path}/scale"), &scale).await?;
    let containers = json!([{"name": "c", "image": "i:2"}]);
    let newer = json!({"spec": {"template": {"spec": {"containers": containers}}}});
    hand.patch(&DEPLOYMENT, "shop", "web", newer).await?;
    let changed =
        copy(&members, "one", &path, |it| it["spec"]["template"]["spec"]["containers"][0]["image"] == "i:2")
            .await?;
    assert_eq!(changed["spec"]["replicas"], 7);
    // As in one cluster, it leaves alone what is scaled to nothing.
    for replicas in [0, 3] {
        hand.patch(&DEPLOYMENT, "shop", "web", json!({"spec": {"replicas": replicas}})).await?;
        hand.assign(&DEPLOYMENT, "shop", "web", &[share("eu-1", replicas)]).await?;
        copy(&members, "one", &path, |it| it["spec"]["replicas"] == replicas).await?;
    }
    // And it finds again what somebody scaled to nothing where it must not be.
    let nothing = json!({"spec": {"replicas": 0}});
    members.admin.merge_patch(&format!("/clusters/one{path}/scale"), &nothing).await?;
    copy(&members, "one", &path, |it| it["spec"]["replicas"] == 3).await?;
    hand.patch(&DEPLOYMENT, "shop", "web", json!({"spec": {"replicas": 2}})).await?;
    hand.assign(&DEPLOYMENT, "shop", "web", &[share("eu-1", 2)]).await?;
    // Without it the share counts again.
    let gone = format!("/clusters/default{}", AUTOSCALER.path("shop", "web"));
    world.admin.delete(&gone).await?;
    copy(&members, "one", &path, |it| it["spec"]["replicas"] == 2).await?;
    hand.assign(&DEPLOYMENT, "shop", "web", &[target("eu-1")]).await?;
    Ok(())
}
