//! What goes wrong at the worst moment, by a store that sees to it: a controller that panics has failed once, and it and
//! all others go on; a workspace that goes while it is asked for is gone.

#![allow(clippy::disallowed_methods)] // Tests run on the real machine.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicI32, Ordering},
};

use anyhow::Result;
use env::BoxFuture;
use http::StatusCode;
use jiff::Timestamp;
use machinery::{Object, Revision};
use serde_json::{Value, json};
use store::{
    Collection, Commit, Committed, Error, Feed, Key, Listing, Span, Store, Watch, WorkspaceId, Write,
    memory::MemoryStore,
};
use testing::{
    client::Client,
    hub::{TestHub, eventually, outfitted},
};

const NAMESPACES: &str = "/api/v1/namespaces";
const DEFINITIONS: (&str, &str) = ("apiextensions.k8s.io", "customresourcedefinitions");

/// A store that panics where only controllers come by: when a lease is gone, its definition is looked for by whoever
/// reads the feed, and the first account `default` of a namespace is made by a worker.
struct Trap {
    inner: MemoryStore,
    sprung: AtomicBool,
    /// How often the workspace `team` is still found; below zero: always.
    finds: AtomicI32,
}

impl Trap {
    fn set(sprung: bool) -> Arc<Trap> {
        let (inner, finds) = (MemoryStore::new(), AtomicI32::new(-1));
        Arc::new(Trap { inner, sprung: AtomicBool::new(sprung), finds })
    }
}

impl Store for Trap {
    fn commit(
        &self,
        workspace: &WorkspaceId,
        commit: Commit,
    ) -> BoxFuture<'static, Result<Vec<Committed>, Error>> {
        let account = Key::new("", "serviceaccounts", "first", "default");
        let is_account = commit.writes.iter().any(|write| write.key == account);
        assert!(!is_account || self.sprung.swap(true, Ordering::SeqCst), "on purpose");
        self.inner.commit(workspace, commit)
    }

    fn head(&self, workspace: &WorkspaceId) -> Revision {
        self.inner.head(workspace)
    }

    fn get(&self, workspace: &WorkspaceId, key: &Key) -> Option<Arc<Object>> {
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
        self.inner.get(workspace, key)
    }

    fn list(
        &self,
        workspace: &WorkspaceId,
        collection: &Collection,
        at: Option<Revision>,
    ) -> Result<Listing, Error> {
        self.inner.list(workspace, collection, at)
    }

    fn last_change(&self, workspace: &WorkspaceId, collection: &Collection) -> Revision {
        self.inner.last_change(workspace, collection)
    }

    fn collections(&self, workspace: &WorkspaceId) -> Vec<Collection> {
        self.inner.collections(workspace)
    }

    fn workspaces(&self) -> Vec<WorkspaceId> {
        self.inner.workspaces()
    }

    fn commit_at(
        &self,
        workspace: &WorkspaceId,
        after: Revision,
        records: Vec<(Revision, Write)>,
    ) -> BoxFuture<'static, Result<(), Error>> {
        self.inner.commit_at(workspace, after, records)
    }

    fn watch(&self, workspace: &WorkspaceId, span: Span, after: Revision) -> Result<Watch, Error> {
        self.inner.watch(workspace, span, after)
    }

    fn feed(&self) -> Feed {
        self.inner.feed()
    }

    fn begin_epoch(
        &self,
        workspace: &WorkspaceId,
        epoch: u32,
    ) -> BoxFuture<'static, Result<Revision, Error>> {
        self.inner.begin_epoch(workspace, epoch)
    }

    fn compact(&self, workspace: &WorkspaceId, upto: Revision) -> BoxFuture<'static, Result<(), Error>> {
        self.inner.compact(workspace, upto)
    }

    fn remove_workspace(&self, workspace: &WorkspaceId) -> BoxFuture<'static, Result<(), Error>> {
        self.inner.remove_workspace(workspace)
    }

    fn expire(&self, now: Timestamp) -> BoxFuture<'static, Result<usize, Error>> {
        self.inner.expire(now)
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
    hub.forget_space("team", &id);
    store.finds.store(1, Ordering::SeqCst);
    // Then it is not there, neither by its name nor by its id
    assert!(hub.space("team").is_err());
    assert!(hub.space_by_id(&id).is_none());
    Ok(())
}
