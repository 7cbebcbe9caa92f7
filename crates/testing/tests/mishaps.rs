//! What goes wrong at the worst moment, by a store that sees to it: a controller that panics has failed once, and it and
//! all others go on; a workspace that goes while it is asked for is gone; a write without an answer may have happened.

#![allow(clippy::disallowed_methods)] // Tests run on the real machine.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicI32, Ordering},
};

use anyhow::Result;
use env::BoxFuture;
use http::StatusCode;
use machinery::Object;
use serde_json::{Value, json};
use store::{Commit, Committed, Error, Key, Store, WorkspaceId, memory::MemoryStore};
use testing::{
    client::Client,
    hub::{TestHub, eventually, outfitted},
    interposed::{Between, Interposed},
};

const NAMESPACES: &str = "/api/v1/namespaces";
const DEFINITIONS: (&str, &str) = ("apiextensions.k8s.io", "customresourcedefinitions");

/// A store that panics where only controllers come by: when a lease is gone, its definition is looked for by whoever
/// reads the feed, and the first account `default` of a namespace is made by a worker.
struct Trap {
    sprung: AtomicBool,
    /// How often the workspace `team` is still found; below zero: always.
    finds: AtomicI32,
}

impl Trap {
    fn set(sprung: bool) -> Arc<Interposed<Trap>> {
        Interposed::new(Trap { sprung: AtomicBool::new(sprung), finds: AtomicI32::new(-1) })
    }
}

impl Between for Trap {
    fn commit(
        &self,
        store: &MemoryStore,
        workspace: &WorkspaceId,
        commit: Commit,
    ) -> BoxFuture<'static, Result<Vec<Committed>, Error>> {
        let account = Key::new("", "serviceaccounts", "first", "default");
        let is_account = commit.writes.iter().any(|write| write.key == account);
        assert!(!is_account || self.sprung.swap(true, Ordering::SeqCst), "on purpose");
        store.commit(workspace, commit)
    }

    fn get(&self, store: &MemoryStore, workspace: &WorkspaceId, key: &Key) -> Option<Arc<Object>> {
        assert!(
            *key != Key::new(DEFINITIONS.0, DEFINITIONS.1, "", "leases.coordination.k8s.io"),
            "on purpose"
        );
        if *key == Key::new(api::GROUP, "workspaces", "", "team") {
            let next = |left: i32| (left > 0).then(|| left - 1);
            let left = self.finds.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next);
            if left == Err(0) {
                return None;
            }
        }
        store.get(workspace, key)
    }
}

async fn create(client: &Client, path: &str, object: Value) -> Result<()> {
    let made = client.post(path, &object).await?;
    assert_eq!(made.code, StatusCode::CREATED, "{path}: {}", made.text());
    Ok(())
}

async fn until_panics(client: &Client, count: u32) -> Result<()> {
    eventually("so many panics are counted", || async {
        let text = client.get("/metrics").await?.text();
        Ok(text.contains(&format!("hanse_controller_panics_total {count}\n")).then_some(()))
    })
    .await
}

#[tokio::test]
async fn a_worker_that_panics_tries_again() -> Result<()> {
    let hub = TestHub::start_on(Trap::set(false), Default::default()).await?;
    let client = hub.admin().await?;
    create(&client, NAMESPACES, json!({"metadata": {"name": "first"}})).await?;
    outfitted(&client, &format!("{NAMESPACES}/first")).await?;
    until_panics(&client, 1).await
}

#[tokio::test]
async fn changes_are_followed_after_one_that_made_a_controller_panic() -> Result<()> {
    let hub = TestHub::start_on(Trap::set(true), Default::default()).await?;
    let client = hub.admin().await?;
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    create(&client, leases, json!({"metadata": {"name": "l"}, "spec": {}})).await?;
    assert_eq!(client.delete(&format!("{leases}/l")).await?.code, StatusCode::OK);
    until_panics(&client, 1).await?;
    create(&client, NAMESPACES, json!({"metadata": {"name": "second"}})).await?;
    outfitted(&client, &format!("{NAMESPACES}/second")).await
}

#[tokio::test]
async fn a_workspace_that_goes_while_it_is_asked_for_is_not_remembered() -> Result<()> {
    // Given a workspace that somebody asks for
    let store = Trap::set(true);
    let hub = TestHub::start_on(store.clone(), Default::default()).await?;
    let client = hub.admin().await?;
    let path = "/clusters/root/apis/hanse.io/v1alpha1/workspaces";
    create(&client, path, json!({"metadata": {"name": "team"}})).await?;
    let hub = &hub.peer.hub;
    let id = hub.space("team").map_err(|status| anyhow::anyhow!("{status}"))?.id().clone();
    assert!(hub.space_by_id(&id).is_some());
    // When it is found, and is forgotten and gone right after that
    hub.forget_space(&id);
    store.between.finds.store(1, Ordering::SeqCst);
    // Then it is not there, neither by its name nor by its id
    assert!(hub.space("team").is_err());
    assert!(hub.space_by_id(&id).is_none());
    Ok(())
}

/// Loses the answer to the write of one object.
struct Silence;

impl Between for Silence {
    fn commit(
        &self,
        store: &MemoryStore,
        workspace: &WorkspaceId,
        commit: Commit,
    ) -> BoxFuture<'static, Result<Vec<Committed>, Error>> {
        let lost = commit.writes.iter().any(|write| write.key.item.name() == "lost");
        let committed = store.commit(workspace, commit);
        Box::pin(async move {
            let committed = committed.await?;
            if lost { Err(Error::Unknown("nobody answered".to_owned())) } else { Ok(committed) }
        })
    }
}

#[tokio::test]
async fn a_write_without_an_answer_is_504_and_is_not_to_be_sent_again_unseen() -> Result<()> {
    let hub = TestHub::start_on(Interposed::new(Silence), Default::default()).await?;
    let client = hub.admin().await?;
    let maps = format!("{NAMESPACES}/default/configmaps");
    let answer = client.post(&maps, &json!({"metadata": {"name": "lost"}})).await?;
    let status = answer.json();
    assert_eq!(
        (answer.code, &status["reason"]),
        (StatusCode::GATEWAY_TIMEOUT, &json!("Timeout")),
        "{status}"
    );
    let message = status["message"].as_str().unwrap_or_default();
    assert!(message.contains("the outcome of the write is unknown"), "{message}");
    assert!(message.ends_with("nobody answered"), "{message}");
    assert!(!answer.headers.contains_key("retry-after"), "clients would do it twice");
    assert_eq!(client.get(&format!("{maps}/lost")).await?.code, StatusCode::OK, "it had happened");
    Ok(())
}
