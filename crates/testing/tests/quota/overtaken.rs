//! A count that takes long, and is overtaken.

use std::sync::Arc;

use anyhow::Result;
use env::BoxFuture;
use jiff::Timestamp;
use machinery::{Object, Revision};
use serde_json::{Value, json};
use store::{
    Collection, Commit, Committed, Error, Feed, Key, Listing, Span, Store, Watch, WorkspaceId, Write,
    memory::MemoryStore,
};
use testing::hub::{TestHub, eventually};
use tokio::sync::watch;

use crate::{NAMESPACE, eventually_used, mk, mk_quota, used};

/// A store that holds counts back: commits of a quota alone wait until they may pass.
struct Gate {
    inner: MemoryStore,
    open: watch::Receiver<bool>,
    waiting: watch::Sender<usize>,
}

impl Gate {
    fn is_count(commit: &Commit) -> bool {
        matches!(&commit.writes[..], [one] if one.key.collection == Collection::new("", "resourcequotas"))
    }
}

impl Store for Gate {
    fn commit(
        &self,
        workspace: &WorkspaceId,
        commit: Commit,
    ) -> BoxFuture<'static, Result<Vec<Committed>, Error>> {
        let (is_count, mut open) = (Gate::is_count(&commit), self.open.clone());
        let passed = self.inner.commit(workspace, commit);
        let waiting = self.waiting.clone();
        Box::pin(async move {
            if is_count && !*open.borrow() {
                waiting.send_modify(|count| *count += 1);
                let _ = open.wait_for(|open| *open).await;
            }
            passed.await
        })
    }

    fn head(&self, workspace: &WorkspaceId) -> Revision {
        self.inner.head(workspace)
    }

    fn get(&self, workspace: &WorkspaceId, key: &Key) -> Option<Arc<Object>> {
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

#[tokio::test]
async fn a_count_that_was_overtaken_by_a_charge_is_made_again() -> Result<()> {
    // Given a quota with two secrets charged
    let (gate, open) = watch::channel(true);
    let (waiting, mut held) = watch::channel(0);
    let store = Arc::new(Gate { inner: MemoryStore::new(), open, waiting });
    let hub = TestHub::start_on(store, Default::default()).await?;
    let client = hub.admin().await?;
    mk(&client, "/api/v1/namespaces", json!({"metadata": {"name": "shop"}})).await?;
    mk_quota(&client, "q", json!({"hard": {"secrets": "10"}})).await?;
    let secrets = format!("{NAMESPACE}/secrets");
    for name in ["a", "b"] {
        mk(&client, &secrets, json!({"metadata": {"name": name}})).await?;
    }
    let start = used(&client, "q").await?;
    assert_eq!(start, json!({"secrets": "2"}));
    let mut changes = client.watch(&format!("{NAMESPACE}/resourcequotas?watch=1&resourceVersion=0")).await?;
    changes.expect().await?;
    // When a count after a deletion has seen one secret, and before it is written down a third one is charged
    gate.send(false)?;
    client.delete(&format!("{secrets}/a")).await?;
    held.wait_for(|count| *count > 0).await?;
    mk(&client, &secrets, json!({"metadata": {"name": "c"}})).await?;
    assert_eq!(used(&client, "q").await?, json!({"secrets": "3"}), "nothing was given back yet");
    gate.send(true)?;
    // Then what the count saw is never written, and the next count is right
    eventually_used(&client, "q", json!({"secrets": "2"})).await?;
    let seen = |event: Value| event["object"]["status"]["used"]["secrets"].clone();
    assert_eq!(seen(changes.expect().await?), "3");
    assert_eq!(seen(changes.expect().await?), "2");
    Ok(())
}

#[tokio::test]
async fn nobody_waits_for_a_count() -> Result<()> {
    // Given a count that does not come to an end
    let (gate, open) = watch::channel(true);
    let (waiting, mut held) = watch::channel(0);
    let store = Arc::new(Gate { inner: MemoryStore::new(), open, waiting });
    let hub = TestHub::start_on(store, Default::default()).await?;
    let client = hub.admin().await?;
    mk(&client, "/api/v1/namespaces", json!({"metadata": {"name": "shop"}})).await?;
    mk_quota(&client, "q", json!({"hard": {"secrets": "100"}})).await?;
    let secrets = format!("{NAMESPACE}/secrets");
    mk(&client, &secrets, json!({"metadata": {"name": "first"}})).await?;
    gate.send(false)?;
    client.delete(&format!("{secrets}/first")).await?;
    held.wait_for(|count| *count > 0).await?;
    // When objects are made meanwhile, then they are charged as ever
    for number in 0..20 {
        mk(&client, &secrets, json!({"metadata": {"name": format!("s-{number}")}})).await?;
    }
    gate.send(true)?;
    eventually("the count is right", async || {
        Ok((used(&client, "q").await? == json!({"secrets": "20"})).then_some(()))
    })
    .await
}
