//! What cannot be written down again and again is told: nothing is tried for ever in silence (X4).

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use anyhow::{Context, Result};
use env::BoxFuture;
use serde_json::Value;
use store::{Commit, Committed, Error, Store, WorkspaceId, memory::MemoryStore};
use testing::interposed::{Between, Interposed};

use crate::{
    app::{self, NS},
    world::{World, assignment_path, condition, path, text},
};

/// Of the Deployment and the ConfigMap that are called so, no Assignment can be written while it is shut.
const NAME: &str = "unlucky";

#[derive(Default)]
struct Gate {
    open: AtomicBool,
}

impl Between for Gate {
    fn commit(
        &self,
        store: &MemoryStore,
        workspace: &WorkspaceId,
        commit: Commit,
    ) -> BoxFuture<'static, Result<Vec<Committed>, Error>> {
        let is_meant = |it: &store::Write| {
            it.key.collection.parts() == (api::GROUP, api::assignment::PLURAL)
                && it.key.item.name().ends_with(NAME)
        };
        if !self.open.load(Ordering::SeqCst) && commit.writes.iter().any(is_meant) {
            return Box::pin(std::future::ready(Err(Error::NoSpace("the disk is full".into()))));
        }
        store.commit(workspace, commit)
    }
}

async fn failing(world: &World) -> Result<i64> {
    let metrics = world.client.get("/metrics").await?.text();
    let line = metrics.lines().find_map(|line| line.strip_prefix("hanse_placement_failing "));
    Ok(line.context("no such metric")?.parse()?)
}

async fn until_failing(world: &World, expected: i64) -> Result<()> {
    testing::hub::eventually(&format!("{expected} fail"), || async {
        Ok((failing(world).await? == expected).then_some(()))
    })
    .await
}

async fn until_told(world: &World, kind: &str) -> Result<Value> {
    let find = |list: &Value| {
        let events = list["items"].as_array().cloned().unwrap_or_default();
        events.into_iter().find(|it| {
            it["reason"] == "Failing"
                && it["type"] == "Warning"
                && (&it["involvedObject"]["kind"], &it["involvedObject"]["name"])
                    == (&Value::from(kind), &Value::from(NAME))
        })
    };
    let path = format!("/api/v1/namespaces/{NS}/events");
    let list = world.until(&path, &format!("an event tells of the {kind}"), |it| find(it).is_some()).await?;
    find(&list).context("it was there")
}

#[tokio::test(flavor = "multi_thread")]
async fn x4_what_the_store_refuses_again_and_again_is_told_until_it_is_over() -> Result<()> {
    let store = Interposed::new(Gate::default());
    let on: Arc<dyn Store> = store.clone();
    let world = World::start_on(on, &["m1"]).await?;
    world.namespace(NS).await?;
    let (web, settings) = (app::deployment(NAME, 2), app::config_map(NAME, "x"));
    let lucky = app::deployment("lucky", 1);
    world.apply_all(&[lucky.clone(), web.clone(), settings.clone()]).await?;

    // On the object, where it has conditions; by an Event in any case; and for whoever looks after the hub.
    let says = |it: &Value| {
        let synced = condition(it, "Synced");
        (&synced["status"], &synced["reason"]) == (&Value::from("False"), &Value::from("Failing"))
            && text(&synced, "/message").contains("the disk is full")
    };
    world.until(&path(&web), "it says so itself", says).await?;
    for kind in ["Deployment", "ConfigMap"] {
        let event = until_told(&world, kind).await?;
        assert!(text(&event, "/message").contains("the disk is full"), "{event}");
        assert_eq!(event["count"], 1, "it is not told with every try: {event}");
    }
    until_failing(&world, 2).await?;
    assert_eq!(world.client.get(&assignment_path(&web)).await?.code, 404);
    // Nobody else suffers.
    world.until_rolled_out("lucky", 1).await?;
    assert!(condition(&world.get(&path(&lucky)).await?, "Synced").is_null());

    store.between.open.store(true, Ordering::SeqCst);
    world.until_rolled_out(NAME, 2).await?;
    world.until(&path(&web), "it is over", |it| condition(it, "Synced").is_null()).await?;
    world.member("m1").await?.until_there(&path(&settings)).await?;
    until_failing(&world, 0).await
}
