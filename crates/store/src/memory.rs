//! A store that keeps nothing: for simulated clusters and tests.

use std::{collections::HashMap, sync::Arc};

use env::BoxFuture;
use jiff::Timestamp;
use machinery::{Object, Revision};
use parking_lot::Mutex;

use crate::{
    Change, Collection, Commit, Committed, Error, Expect, Feed, Key, Listing, Snapshot, Span, Store, Usage,
    Watch, WorkspaceId, Write,
    live::{Live, Loaded, NoJournal, Options, Stage},
};

/// Live state and one lock that orders commits. History is as long as the memory ring.
#[derive(Clone)]
pub struct MemoryStore {
    live: Live,
    order: Arc<Mutex<()>>,
}

impl MemoryStore {
    pub fn new() -> Self {
        Self::with_options(Options::default())
    }

    pub fn with_options(options: Options) -> Self {
        Self { live: Live::new(options), order: Arc::default() }
    }

    /// As [`Store::commit`], which nothing here needs to wait for.
    pub fn commit_now(&self, workspace: &WorkspaceId, commit: &Commit) -> Result<Vec<Committed>, Error> {
        let _turn = self.order.lock();
        let mut stage = Stage::new(&self.live);
        let committed = stage.commit(workspace, commit, &mut NoJournal)?;
        self.live.publish(stage);
        Ok(committed)
    }

    /// Puts a workspace in place, at a revision of the caller's choice. Nothing may be known of it.
    /// Whether somebody watches a collection now.
    pub fn is_watched(&self, workspace: &WorkspaceId, collection: &Collection) -> bool {
        self.live.is_watched(workspace, collection)
    }

    pub fn load(&self, workspace: &WorkspaceId, loaded: Loaded) {
        let _turn = self.order.lock();
        self.live.load(workspace, loaded);
    }

    /// Runs one step of the history with nobody else writing.
    fn in_order<T: Send + 'static>(
        &self,
        step: impl FnOnce(&Live) -> Result<T, Error> + Send + 'static,
    ) -> BoxFuture<'static, Result<T, Error>> {
        let store = self.clone();
        Box::pin(async move {
            let _turn = store.order.lock();
            step(&store.live)
        })
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

/// What removes an object that has expired, unless somebody was faster.
pub(crate) fn expiry_commit(key: Key, revision: Revision) -> Commit {
    let write = Write { key, expect: Expect::At(revision), change: Change::Remove };
    Commit { guards: Vec::new(), writes: vec![write] }
}

/// Removes what is due by `now`, for engines that take commits off a queue; says how many went.
pub(crate) async fn expire_due(
    live: &Live,
    now: Timestamp,
    expire: impl Fn((WorkspaceId, Key, Revision)) -> BoxFuture<'static, Result<Vec<Committed>, Error>>,
) -> Result<usize, Error> {
    /// Enough to fill a batch, not enough to hold up other writers for long.
    const AT_ONCE: usize = 256;
    let mut removed = 0;
    loop {
        let due = live.due(now, AT_ONCE);
        if due.is_empty() {
            return Ok(removed);
        }
        let commits: Vec<_> = due.into_iter().map(&expire).collect();
        for commit in commits {
            match commit.await {
                Ok(_) => removed += 1,
                // Somebody was faster.
                Err(Error::Conflict { .. }) => {}
                Err(other) => return Err(other),
            }
        }
    }
}

impl Store for MemoryStore {
    fn head(&self, workspace: &WorkspaceId) -> Revision {
        self.live.head(workspace)
    }

    fn get(&self, workspace: &WorkspaceId, key: &Key) -> Option<Arc<Object>> {
        self.live.get(workspace, key)
    }

    fn list(
        &self,
        workspace: &WorkspaceId,
        collection: &Collection,
        at: Option<Revision>,
    ) -> Result<Listing, Error> {
        self.live.list(workspace, collection, at)
    }

    fn last_change(&self, workspace: &WorkspaceId, collection: &Collection) -> Revision {
        self.live.last_change(workspace, collection)
    }

    fn collections(&self, workspace: &WorkspaceId) -> Vec<Collection> {
        self.live.collections(workspace)
    }

    fn workspaces(&self) -> Vec<WorkspaceId> {
        self.live.workspaces()
    }

    fn snapshot(&self, workspace: &WorkspaceId) -> Option<Snapshot> {
        self.live.snapshot(workspace)
    }

    fn usage(&self, workspace: &WorkspaceId) -> Usage {
        self.live.usage(workspace)
    }

    fn totals(&self) -> HashMap<Collection, u64> {
        self.live.totals()
    }

    fn commit(
        &self,
        workspace: &WorkspaceId,
        commit: Commit,
    ) -> BoxFuture<'static, Result<Vec<Committed>, Error>> {
        let (store, workspace) = (self.clone(), workspace.clone());
        Box::pin(async move { store.commit_now(&workspace, &commit) })
    }

    fn commit_at(
        &self,
        workspace: &WorkspaceId,
        after: Revision,
        records: Vec<(Revision, Write)>,
    ) -> BoxFuture<'static, Result<(), Error>> {
        let workspace = workspace.clone();
        self.in_order(move |live| {
            let mut stage = Stage::new(live);
            stage.commit_at(&workspace, after, &records, &mut NoJournal)?;
            live.publish(stage);
            Ok(())
        })
    }

    fn watch(&self, workspace: &WorkspaceId, span: Span, after: Revision) -> Result<Watch, Error> {
        self.live.watch(workspace, span, after)
    }

    fn feed(&self) -> Feed {
        self.live.feed()
    }

    fn begin_epoch(
        &self,
        workspace: &WorkspaceId,
        epoch: u32,
    ) -> BoxFuture<'static, Result<Revision, Error>> {
        let workspace = workspace.clone();
        self.in_order(move |live| {
            let start = live.epoch_start(&workspace, epoch)?;
            live.begin_epoch(&workspace, start);
            Ok(start)
        })
    }

    fn compact(&self, workspace: &WorkspaceId, upto: Revision) -> BoxFuture<'static, Result<(), Error>> {
        let workspace = workspace.clone();
        self.in_order(move |live| {
            if let Some(upto) = live.compaction(&workspace, upto)? {
                live.compact(&workspace, upto);
                live.sweep();
            }
            Ok(())
        })
    }

    fn remove_workspace(&self, workspace: &WorkspaceId) -> BoxFuture<'static, Result<(), Error>> {
        let workspace = workspace.clone();
        self.in_order(move |live| {
            live.remove_workspace(&workspace);
            live.sweep();
            Ok(())
        })
    }

    fn expire(&self, now: Timestamp) -> BoxFuture<'static, Result<usize, Error>> {
        self.in_order(move |live| {
            let mut stage = Stage::new(live);
            let mut removed = 0;
            for (workspace, key, revision) in live.due(now, usize::MAX) {
                let commit = expiry_commit(key, revision);
                removed += usize::from(stage.commit(&workspace, &commit, &mut NoJournal).is_ok());
            }
            live.publish(stage);
            Ok(removed)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn keeps_the_contract() {
        crate::suite::run(async |_| Arc::new(MemoryStore::new()) as Arc<dyn Store>).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn keeps_the_contract_on_many_threads() {
        crate::suite::run(async |_| Arc::new(MemoryStore::new()) as Arc<dyn Store>).await;
    }
}
