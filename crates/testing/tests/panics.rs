//! A controller that panics has failed once; it and all others go on.

#![allow(clippy::disallowed_methods)] // Tests run on the real machine.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
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
    let store = Arc::new(Trap { inner: MemoryStore::new(), sprung: AtomicBool::new(false) });
    let hub = TestHub::start_on(store, Default::default()).await?;
    let client = hub.admin().await?;
    create(&client, NAMESPACES, json!({"metadata": {"name": "first"}})).await?;
    outfitted(&client, &format!("{NAMESPACES}/first")).await?;
    until_panics(&client, 1).await
}

#[tokio::test]
async fn changes_are_followed_after_one_that_made_a_controller_panic() -> Result<()> {
    let store = Arc::new(Trap { inner: MemoryStore::new(), sprung: AtomicBool::new(true) });
    let hub = TestHub::start_on(store, Default::default()).await?;
    let client = hub.admin().await?;
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    create(&client, leases, json!({"metadata": {"name": "l"}, "spec": {}})).await?;
    assert_eq!(client.delete(&format!("{leases}/l")).await?.code, StatusCode::OK);
    until_panics(&client, 1).await?;
    create(&client, NAMESPACES, json!({"metadata": {"name": "second"}})).await?;
    outfitted(&client, &format!("{NAMESPACES}/second")).await
}
