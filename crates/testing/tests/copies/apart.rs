//! The link breaks, the hub begins anew: nothing is lost, and nothing done twice.

use std::sync::Arc;

use anyhow::Result;
use serde_json::{Value, json};
use store::{Store, memory::MemoryStore};
use testing::hub::eventually;

use crate::{
    hand::{CONFIG_MAP, Hand, NAMESPACE, copy, is_there, one_cluster, writes},
    world::{Members, World, brisk, ready},
};

#[tokio::test(flavor = "multi_thread")]
async fn what_changed_while_the_link_was_cut_arrives_after_it() -> Result<()> {
    let (world, members) = one_cluster().await?;
    let hand = Hand::new(&world);
    hand.namespace("shop", &["eu-1"]).await?;
    for name in ["changed", "removed", "drifted"] {
        hand.config_map("shop", name, json!({"a": "1"}), &["eu-1"]).await?;
        hand.until_applied(&CONFIG_MAP, "shop", name, "eu-1").await?;
    }
    world.cuts.cut(members.hub.peer.address);
    eventually("it is noticed", || async {
        let cluster = world.cluster("eu-1").await?;
        Ok((ready(&cluster)["status"] == "False").then_some(()))
    })
    .await?;
    hand.patch(&CONFIG_MAP, "shop", "changed", json!({"data": {"a": "2"}})).await?;
    hand.unassign(&CONFIG_MAP, "shop", "removed").await?;
    hand.config_map("shop", "new", json!({"a": "1"}), &["eu-1"]).await?;
    let path = format!("/clusters/one{}", CONFIG_MAP.path("shop", "drifted"));
    members.admin.merge_patch(&path, &json!({"data": {"a": "theirs"}})).await?;
    assert!(hand.reports(&CONFIG_MAP, "shop", "changed")?.iter().all(|it| it.applied), "nothing is known");
    world.cuts.heal(members.hub.peer.address);
    copy(&members, "one", &CONFIG_MAP.path("shop", "changed"), |it| it["data"]["a"] == "2").await?;
    copy(&members, "one", &CONFIG_MAP.path("shop", "new"), |_| true).await?;
    copy(&members, "one", &CONFIG_MAP.path("shop", "drifted"), |it| it["data"]["a"] == "1").await?;
    hand.until(&CONFIG_MAP, "shop", "removed", "eu-1", |it| it.is_gone()).await?;
    assert!(!is_there(&members, "one", &CONFIG_MAP.path("shop", "removed")).await?);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hub_that_begins_anew_finds_its_copies_and_writes_none_of_them() -> Result<()> {
    let members = Members::start(&["one"]).await?;
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let world = World::start_on(store.clone(), None, brisk()).await?;
    world.join("eu-1", &members.access("one")).await?;
    let hand = Hand::new(&world);
    hand.namespace("shop", &["eu-1"]).await?;
    for name in ["rests", "changes", "lost"] {
        hand.config_map("shop", name, json!({"a": "1", "b": "1"}), &["eu-1"]).await?;
        hand.until_applied(&CONFIG_MAP, "shop", name, "eu-1").await?;
    }
    let version = |object: Value| object["metadata"]["resourceVersion"].clone();
    let rests = version(copy(&members, "one", &CONFIG_MAP.path("shop", "rests"), |_| true).await?);
    let namespace = version(copy(&members, "one", &NAMESPACE.path("", "shop"), |_| true).await?);
    let reported = hand.reports(&CONFIG_MAP, "shop", "rests")?;
    world.hub.stop().await;
    // A hub without sessions, where something changes meanwhile, and an Assignment is missing as in an older backup.
    let world = World::start_quietly(store.clone()).await?;
    let hand = Hand::new(&world);
    hand.patch(&CONFIG_MAP, "shop", "changes", json!({"data": {"b": null}})).await?;
    hand.forget(&CONFIG_MAP, "shop", "lost").await?;
    world.hub.stop().await;
    let world = World::start_on(store, None, brisk()).await?;
    let hand = Hand::new(&world);
    copy(&members, "one", &CONFIG_MAP.path("shop", "changes"), |it| it["data"] == json!({"a": "1"})).await?;
    hand.config_map("shop", "last", json!({}), &["eu-1"]).await?;
    hand.until_applied(&CONFIG_MAP, "shop", "last", "eu-1").await?;
    assert_eq!(version(copy(&members, "one", &CONFIG_MAP.path("shop", "rests"), |_| true).await?), rests);
    assert_eq!(version(copy(&members, "one", &NAMESPACE.path("", "shop"), |_| true).await?), namespace);
    assert!(is_there(&members, "one", &CONFIG_MAP.path("shop", "lost")).await?);
    assert_eq!(hand.reports(&CONFIG_MAP, "shop", "rests")?, reported);
    assert_eq!((writes(&world, "created").await?, writes(&world, "applied").await?), (1, 1));
    Ok(())
}
