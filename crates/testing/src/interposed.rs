//! A store in memory with somebody in between, who holds back, breaks or overtakes what passes.

use std::sync::Arc;

use env::BoxFuture;
use jiff::Timestamp;
use machinery::{Object, Revision};
use store::{
    Collection, Commit, Committed, Error, Feed, Key, Listing, Snapshot, Span, Store, Usage, Watch,
    WorkspaceId, Write, memory::MemoryStore,
};

/// Whoever is in between; what is not said here passes as it is.
pub trait Between: Send + Sync + 'static {
    fn commit(
        &self,
        store: &MemoryStore,
        workspace: &WorkspaceId,
        commit: Commit,
    ) -> BoxFuture<'static, Result<Vec<Committed>, Error>> {
        store.commit(workspace, commit)
    }

    fn get(&self, store: &MemoryStore, workspace: &WorkspaceId, key: &Key) -> Option<Arc<Object>> {
        store.get(workspace, key)
    }

    fn level(
        &self,
        store: &MemoryStore,
        workspace: &WorkspaceId,
    ) -> Option<BoxFuture<'static, Result<(), Error>>> {
        store.level(workspace)
    }

    fn is_well(&self, store: &MemoryStore) -> Result<(), String> {
        store.is_well()
    }

    /// Called before a collection is listed.
    fn before_list(&self, _store: &MemoryStore, _workspace: &WorkspaceId, _collection: &Collection) {}
}

pub struct Interposed<B> {
    pub store: MemoryStore,
    pub between: B,
}

impl<B: Between> Interposed<B> {
    pub fn new(between: B) -> Arc<Self> {
        Arc::new(Interposed { store: MemoryStore::new(), between })
    }
}

impl<B: Between> Store for Interposed<B> {
    fn head(&self, workspace: &WorkspaceId) -> Revision {
        self.store.head(workspace)
    }

    fn get(&self, workspace: &WorkspaceId, key: &Key) -> Option<Arc<Object>> {
        self.between.get(&self.store, workspace, key)
    }

    fn list(
        &self,
        workspace: &WorkspaceId,
        collection: &Collection,
        at: Option<Revision>,
    ) -> Result<Listing, Error> {
        self.between.before_list(&self.store, workspace, collection);
        self.store.list(workspace, collection, at)
    }

    fn last_change(&self, workspace: &WorkspaceId, collection: &Collection) -> Revision {
        self.store.last_change(workspace, collection)
    }

    fn collections(&self, workspace: &WorkspaceId) -> Vec<Collection> {
        self.store.collections(workspace)
    }

    fn workspaces(&self) -> Vec<WorkspaceId> {
        self.store.workspaces()
    }

    fn level(&self, workspace: &WorkspaceId) -> Option<BoxFuture<'static, Result<(), Error>>> {
        self.between.level(&self.store, workspace)
    }

    fn is_well(&self) -> Result<(), String> {
        self.between.is_well(&self.store)
    }

    fn snapshot(&self, workspace: &WorkspaceId) -> Option<Snapshot> {
        self.store.snapshot(workspace)
    }

    fn usage(&self, workspace: &WorkspaceId) -> Usage {
        self.store.usage(workspace)
    }

    fn commit(
        &self,
        workspace: &WorkspaceId,
        commit: Commit,
    ) -> BoxFuture<'static, Result<Vec<Committed>, Error>> {
        self.between.commit(&self.store, workspace, commit)
    }

    fn commit_at(
        &self,
        workspace: &WorkspaceId,
        after: Revision,
        records: Vec<(Revision, Write)>,
    ) -> BoxFuture<'static, Result<(), Error>> {
        self.store.commit_at(workspace, after, records)
    }

    fn watch(&self, workspace: &WorkspaceId, span: Span, after: Revision) -> Result<Watch, Error> {
        self.store.watch(workspace, span, after)
    }

    fn feed(&self) -> Feed {
        self.store.feed()
    }

    fn begin_epoch(
        &self,
        workspace: &WorkspaceId,
        epoch: u32,
    ) -> BoxFuture<'static, Result<Revision, Error>> {
        self.store.begin_epoch(workspace, epoch)
    }

    fn compact(&self, workspace: &WorkspaceId, upto: Revision) -> BoxFuture<'static, Result<(), Error>> {
        self.store.compact(workspace, upto)
    }

    fn remove_workspace(&self, workspace: &WorkspaceId) -> BoxFuture<'static, Result<(), Error>> {
        self.store.remove_workspace(workspace)
    }

    fn expire(&self, now: Timestamp) -> BoxFuture<'static, Result<usize, Error>> {
        self.store.expire(now)
    }
}
