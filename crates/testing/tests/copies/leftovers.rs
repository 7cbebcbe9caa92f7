//! What is left in members that nothing in the hub wants.

use std::sync::Arc;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use store::memory::MemoryStore;
use testing::hub::eventually;

use crate::{
    hand::{CONFIG_MAP, Hand, NAMESPACE, SECRET, copy, is_there, one_cluster},
    world::{Members, World, brisk},
};

/// `resource namespace/name reason` of those that a cluster says it has.
fn leftovers(cluster: &Value) -> Vec<String> {
    let text = |it: &Value, key: &str| it[key].as_str().unwrap_or_default().to_owned();
    let items = cluster["status"]["leftovers"]["items"].as_array().into_iter().flatten();
    let line = |it: &Value| {
        format!(
            "{} {}/{} {}",
            text(it, "resource"),
            text(it, "namespace"),
            text(it, "name"),
            text(it, "reason")
        )
    };
    items.map(line).collect()
}

async fn until(world: &World, expected: &[&str]) -> Result<Value> {
    let what = format!("{expected:?} are left over");
    let found = eventually(&what, || async {
        let cluster = world.cluster("eu-1").await?;
        Ok((leftovers(&cluster) == expected).then_some(cluster))
    });
    match found.await {
        Ok(cluster) => Ok(cluster),
        Err(error) => Err(error).context(world.cluster("eu-1").await?["status"]["leftovers"].to_string()),
    }
}

/// A copy as a session would have made it.
async fn plant(members: &Members, path: &str, name: &str, workspace: &str, source: &str) -> Result<Value> {
    let metadata = json!({
        "name": name, "labels": {"hanse.io/workspace": workspace}, "annotations": {"hanse.io/source-uid": source},
    });
    members.post("one", path, json!({"metadata": metadata})).await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nothing_in_the_hub_wants_is_kept_and_listed_on_the_cluster() -> Result<()> {
    let (world, members) = one_cluster().await?;
    let hand = Hand::new(&world);
    hand.namespace("shop", &["eu-1"]).await?;
    for name in ["wanted", "kept"] {
        hand.config_map("shop", name, json!({"a": "1"}), &["eu-1"]).await?;
        hand.until_applied(&CONFIG_MAP, "shop", name, "eu-1").await?;
    }
    // As after an older backup was restored.
    hand.forget(&CONFIG_MAP, "shop", "kept").await?;
    plant(&members, "/api/v1/namespaces/shop/configmaps", "old", "default", "gone-for-good").await?;
    plant(&members, "/api/v1/namespaces", "theirs", "former", "gone-as-well").await?;
    // What others make from a copy may carry its marks; it goes with what it was made from.
    let derived = json!({"metadata": {
        "name": "derived", "labels": {"hanse.io/workspace": "default"}, "annotations": {"hanse.io/source-uid": "gone"},
        "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "wanted",
            "uid": copy(&members, "one", &CONFIG_MAP.path("shop", "wanted"), |_| true).await?["metadata"]["uid"]}],
    }});
    members.post("one", "/api/v1/namespaces/shop/configmaps", derived).await?;
    let cluster = until(
        &world,
        &[
            "namespaces /theirs WorkspaceGone",
            "configmaps shop/kept NotAssigned",
            "configmaps shop/old ObjectGone",
        ],
    )
    .await?;
    let leftovers = &cluster["status"]["leftovers"];
    assert_eq!((&leftovers["count"], &leftovers["items"][1]["workspace"]), (&json!(3), &json!("default")));
    assert!(
        leftovers["items"][1]["since"].as_str().is_some_and(|since| since.starts_with("20")),
        "{leftovers}"
    );
    // It is told a moment after it is written down.
    let told = eventually("it is told by an Event", || async {
        let events = world.admin.get("/api/v1/namespaces/default/events").await?.json();
        Ok(events["items"].as_array().into_iter().flatten().find(|it| it["reason"] == "Leftovers").cloned())
    });
    let told = told.await?;
    assert_eq!(told["involvedObject"]["uid"], cluster["metadata"]["uid"]);
    assert!(is_there(&members, "one", &CONFIG_MAP.path("shop", "old")).await?);
    // One is applied again, and taken over; the other is deleted by hand.
    let was = copy(&members, "one", &CONFIG_MAP.path("shop", "old"), |_| true).await?;
    hand.config_map("shop", "old", json!({"a": "1"}), &["eu-1"]).await?;
    let taken = copy(&members, "one", &CONFIG_MAP.path("shop", "old"), |it| it["data"]["a"] == "1").await?;
    assert_eq!(taken["metadata"]["uid"], was["metadata"]["uid"]);
    members.admin.delete(&format!("/clusters/one{}", CONFIG_MAP.path("shop", "kept"))).await?;
    until(&world, &["namespaces /theirs WorkspaceGone"]).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_forgotten_cluster_still_has_is_listed_when_it_is_joined_again() -> Result<()> {
    let store = Arc::new(MemoryStore::new());
    let members = Members::start(&["one"]).await?;
    let world = World::start_on(store.clone(), None, brisk()).await?;
    world.join("eu-1", &members.access("one")).await?;
    let hand = Hand::new(&world);
    hand.namespace("shop", &["eu-1"]).await?;
    hand.make(&SECRET, "shop", json!({"metadata": {"name": "password"}})).await?;
    hand.assign(&SECRET, "shop", "password", &[crate::hand::target("eu-1")]).await?;
    hand.until_applied(&SECRET, "shop", "password", "eu-1").await?;
    world.forget("eu-1").await?;
    for (spot, name) in [(&SECRET, "password"), (&NAMESPACE, "shop")] {
        hand.forget(spot, "shop", name).await?;
    }
    world.admin.delete("/api/v1/namespaces/shop/secrets/password").await?;
    world.join("eu-1", &members.access("one")).await?;
    until(&world, &["namespaces /shop NotAssigned", "secrets shop/password ObjectGone"]).await?;
    assert!(is_there(&members, "one", &SECRET.path("shop", "password")).await?);
    Ok(())
}
