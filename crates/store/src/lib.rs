//! Where objects live: one history per workspace, behind one contract.
//!
//! ```text
//!   commit ──> engine (log, etcd, consensus) ──> live state ──> get · list · watch · feed
//!              orders, makes durable             what is committed, in memory
//! ```
//!
//! # Words
//!
//! * A **history** belongs to one workspace and is a sequence of records; each record is one object put or
//!   removed and has its own [`Revision`]. Histories of different workspaces are independent.
//! * A **commit** is a group of consecutive records that become visible together or not at all.
//! * The **live state** is what a history adds up to: all objects of the workspace, in memory.
//!
//! # The contract of [`Store`]
//!
//! 1. *Durable.* When `commit` returns `Ok`, its records MUST survive a crash of the process and of the machine.
//! 2. *Nothing invented.* A commit that returned `Err` MUST NOT become visible later, except after
//!    [`Error::Unknown`], which says that the outcome cannot be known.
//! 3. *Compare and set.* All expectations of a commit hold at the one point in the history where it takes effect.
//! 4. *One order.* Revisions grow by one per record within an epoch. `get`, `list` and `watch` of one workspace
//!    never show a later commit without every earlier one, and never show part of a commit.
//! 5. *Read your writes.* After `commit` returned, every `get`, `list` and `watch` that starts sees it.
//! 6. *Watches are exact.* A watch after revision R delivers every record after R of its range exactly once, in
//!    order, or fails with [`Error::Expired`]; it never skips. A slow watcher costs no memory of its own: it falls
//!    behind in the shared history until that has been compacted, and then fails.
//! 7. *Lists stand at commit ends.* The revision of a [`Listing`] is the end of a commit, and a watch after it
//!    continues it without gap or overlap.
//! 8. *Errors change nothing.* A refused commit consumes no revision.
//!
//! [`suite`] holds these as tests that every implementation runs.

pub mod backup;
pub mod embedded;
pub mod etcd;
pub mod live;
pub mod memory;
pub mod suite;
mod turns;

use std::{collections::HashMap, fmt, sync::Arc};

use compact_str::{CompactString, format_compact};
use env::BoxFuture;
use jiff::Timestamp;
use machinery::{Draft, EventType, Object, Revision};

pub use live::{Batch, Feed, FeedItem, Listing, Snapshot, Watch};

/// The immutable short id of a workspace. A re-created workspace has another one.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkspaceId(pub CompactString);

impl fmt::Debug for WorkspaceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for WorkspaceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A resource type within a workspace: `<group|core>/<resource>`, as in `core/configmaps`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Collection(pub CompactString);

impl Collection {
    /// `group` is empty for the core group.
    pub fn new(group: &str, resource: &str) -> Self {
        let group = if group.is_empty() { "core" } else { group };
        Self(format_compact!("{group}/{resource}"))
    }

    /// Group and resource; the core group is empty.
    pub fn parts(&self) -> (&str, &str) {
        match self.0.split_once('/') {
            Some(("core", resource)) => ("", resource),
            Some(parts) => parts,
            None => ("", &self.0),
        }
    }
}

impl fmt::Debug for Collection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An object's place within its collection: `<namespace|->/<name>`. Orders by its bytes, as etcd does: the items
/// of one namespace are neighbours.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ItemKey(pub CompactString);

impl ItemKey {
    /// `namespace` is empty for cluster-scoped objects.
    pub fn new(namespace: &str, name: &str) -> Self {
        let namespace = if namespace.is_empty() { "-" } else { namespace };
        Self(format_compact!("{namespace}/{name}"))
    }

    pub fn namespace(&self) -> &str {
        match self.0.split_once('/') {
            Some(("-", _)) | None => "",
            Some((namespace, _)) => namespace,
        }
    }

    pub fn name(&self) -> &str {
        self.0.split_once('/').map_or("", |(_, name)| name)
    }
}

impl fmt::Debug for ItemKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An object's place within a workspace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub collection: Collection,
    pub item: ItemKey,
}

impl Key {
    pub fn new(group: &str, resource: &str, namespace: &str, name: &str) -> Self {
        Self { collection: Collection::new(group, resource), item: ItemKey::new(namespace, name) }
    }
}

/// Which objects a list or a watch is about: a collection, or one namespace of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    pub collection: Collection,
    pub namespace: Option<CompactString>,
}

impl Span {
    pub fn contains(&self, item: &ItemKey) -> bool {
        self.namespace.as_ref().is_none_or(|namespace| item.namespace() == namespace)
    }
}

/// What must hold of a key for a commit to take effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    Anything,
    Absent,
    /// Exists; last changed at this revision.
    At(Revision),
}

/// One record to be.
#[derive(Clone, Debug)]
pub struct Write {
    pub key: Key,
    pub expect: Expect,
    pub change: Change,
}

#[derive(Clone, Debug)]
pub enum Change {
    /// `expires`: the store removes the object by itself after this time, as a record of its own.
    Put { draft: Draft, expires: Option<Timestamp> },
    /// Fails with [`Error::Conflict`] if the key is absent.
    Remove,
}

/// A group of writes that take effect together.
#[derive(Clone, Debug, Default)]
pub struct Commit {
    /// Keys that are not written but must be as expected, such as the namespace of a new object.
    pub guards: Vec<(Key, Expect)>,
    /// At least one; no key twice.
    pub writes: Vec<Write>,
}

/// A record that took effect, in commit order.
#[derive(Clone, Debug)]
pub struct Committed {
    pub revision: Revision,
    /// The object put; for a removal, the last state at the revision of the removal.
    pub object: Arc<Object>,
}

/// A record as watchers see it.
#[derive(Debug)]
pub struct Event {
    pub workspace: WorkspaceId,
    pub key: Key,
    pub revision: Revision,
    /// The first revision of the commit this record belongs to.
    pub commit_start: Revision,
    /// The last revision of that commit.
    pub commit_end: Revision,
    /// The state before; `None` if the object did not exist.
    pub old: Option<Arc<Object>>,
    pub change: EventChange,
}

#[derive(Debug)]
pub enum EventChange {
    Put(Arc<Object>),
    /// Carries the last state at the revision of the removal.
    Removed(Arc<Object>),
}

impl Event {
    /// The state after; `None` if the object is gone.
    pub fn after(&self) -> Option<&Arc<Object>> {
        match &self.change {
            EventChange::Put(object) => Some(object),
            EventChange::Removed(_) => None,
        }
    }

    /// The object the event carries, whatever happened to it.
    pub fn object(&self) -> &Arc<Object> {
        match &self.change {
            EventChange::Put(object) | EventChange::Removed(object) => object,
        }
    }

    /// What it is to a watcher without selectors.
    pub fn event_type(&self) -> EventType {
        match (&self.old, &self.change) {
            (_, EventChange::Removed(_)) => EventType::Deleted,
            (None, EventChange::Put(_)) => EventType::Added,
            (Some(_), EventChange::Put(_)) => EventType::Modified,
        }
    }
}

/// What the live objects of a workspace add up to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub objects: u64,
    /// Of their encoded bodies.
    pub bytes: u64,
}

/// What a workspace may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    pub objects: u64,
    pub bytes: u64,
}

impl Bounds {
    pub const NONE: Bounds = Bounds { objects: u64::MAX, bytes: u64::MAX };

    /// What grows must stay within; what is too much already may stay, and become less.
    fn allow(&self, before: Usage, after: Usage) -> bool {
        let allow = |before: u64, after: u64, most: u64| after <= most || after <= before;
        allow(before.objects, after.objects, self.objects) && allow(before.bytes, after.bytes, self.bytes)
    }
}

/// Why the store did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An expectation did not hold; nothing was changed. Read again and decide again.
    #[error("{key:?} is not as expected")]
    Conflict { key: Key, current: Option<Arc<Object>> },
    /// The history before `oldest` was compacted away. List again.
    #[error("history before {oldest} is gone")]
    Expired { oldest: Revision },
    /// The revision lies in the future of this store, which stands at `current`.
    #[error("revision is ahead of {current}")]
    Ahead { current: Revision },
    /// The records do not continue this history, which stands at `head`. Bring the replica level first.
    #[error("records do not continue the history at {head}")]
    Discontinuous { head: Revision },
    /// The request makes no sense whatever the state: no writes, a key twice, too large. A bug in the caller.
    #[error("invalid commit: {0}")]
    Invalid(&'static str),
    /// The workspace holds as much as it may; nothing was changed. Remove something first.
    #[error("the workspace holds {} objects of {} bytes and may hold {} of {}", usage.objects, usage.bytes, bounds.objects, bounds.bytes)]
    Full { usage: Usage, bounds: Bounds },
    /// No room on disk; nothing was changed and reads go on. Free some space and try again.
    #[error("no space left: {0}")]
    NoSpace(String),
    /// Nothing was changed; the store takes no writes now (stopping, or failed before). Reads go on.
    #[error("store takes no writes: {0}")]
    Unavailable(String),
    /// The disk failed in the middle of making this durable: it may or may not be there after a restart.
    #[error("outcome unknown: {0}")]
    Unknown(String),
}

/// Holds the histories of many workspaces. See the module's head for its contract.
///
/// A workspace that the store has never heard of is empty and stands at the start of the store's first epoch;
/// nothing needs to be created before the first commit.
pub trait Store: Send + Sync + 'static {
    /// The revision of the latest commit of `workspace`.
    fn head(&self, workspace: &WorkspaceId) -> Revision;

    fn get(&self, workspace: &WorkspaceId, key: &Key) -> Option<Arc<Object>>;

    /// All objects of a collection, at the latest commit or as they were at the commit end `at`; if `at` lies
    /// inside a commit, at its end. The latest costs nothing but what is read from the [`Listing`], the past about
    /// as much as happened to the collection since. `Err`: `Expired` or `Ahead`.
    fn list(
        &self,
        workspace: &WorkspaceId,
        collection: &Collection,
        at: Option<Revision>,
    ) -> Result<Listing, Error>;

    /// The end of the latest commit that touched `collection`; `Revision::ZERO` if it was empty when the store was
    /// opened and none has touched it since. What was computed from the collection at that revision, since then, is
    /// still right. After a restart it may be later than the truth, never earlier unless the collection is empty.
    fn last_change(&self, workspace: &WorkspaceId, collection: &Collection) -> Revision;

    /// The collections of `workspace` that hold, or have held, objects.
    fn collections(&self, workspace: &WorkspaceId) -> Vec<Collection>;

    /// The workspaces that have a history.
    fn workspaces(&self) -> Vec<WorkspaceId>;

    /// Resolves when `get`, `list` and `watch` of `workspace` see every commit that was acknowledged, by any process,
    /// before the call. `None`: they do. `Err`: it cannot be known now.
    fn level(&self, _workspace: &WorkspaceId) -> Option<BoxFuture<'static, Result<(), Error>>> {
        None
    }

    /// Whether most-recent reads and writes can be served now; why not.
    fn is_well(&self) -> Result<(), String> {
        Ok(())
    }

    /// Whether this process looks after all workspaces: of those that share a store, one does, most of the time.
    /// `None`: it always does.
    fn duty(&self) -> Option<tokio::sync::watch::Receiver<bool>> {
        None
    }

    /// All of `workspace` at its latest commit; `None` if it has no history. What [`backup::Export`] is made of.
    fn snapshot(&self, workspace: &WorkspaceId) -> Option<Snapshot>;

    /// What the objects of `workspace` add up to, at the latest commit.
    fn usage(&self, workspace: &WorkspaceId) -> Usage {
        let mut usage = Usage::default();
        for collection in self.collections(workspace) {
            let Ok(listing) = self.list(workspace, &collection, None) else { continue };
            usage.objects += listing.len() as u64;
            usage.bytes +=
                listing.iter(None, None).map(|(_, object)| object.body_slice().len() as u64).sum::<u64>();
        }
        usage
    }

    /// How many objects of each collection all workspaces have together. Not of one moment.
    fn totals(&self) -> HashMap<Collection, u64> {
        let mut totals = HashMap::new();
        for workspace in self.workspaces() {
            for collection in self.collections(&workspace) {
                let count = self.list(&workspace, &collection, None).map_or(0, |listing| listing.len());
                *totals.entry(collection).or_insert(0) += count as u64;
            }
        }
        totals
    }

    /// Makes `commit` durable and visible, or changes nothing. Once polled, dropping the future does not stop it.
    fn commit(
        &self,
        workspace: &WorkspaceId,
        commit: Commit,
    ) -> BoxFuture<'static, Result<Vec<Committed>, Error>>;

    /// One commit that a leader elsewhere has made, at the revisions it gave its records. `after` MUST be the head
    /// of this store's history; the revisions MUST be consecutive and continue it, or begin a later epoch at its
    /// first revision. `Err`: `Discontinuous`, or `Conflict` if an expectation of the leader's does not hold here.
    fn commit_at(
        &self,
        workspace: &WorkspaceId,
        after: Revision,
        records: Vec<(Revision, Write)>,
    ) -> BoxFuture<'static, Result<(), Error>>;

    /// The records of `span` after revision `after`. `Err`: `Expired` or `Ahead`.
    fn watch(&self, workspace: &WorkspaceId, span: Span, after: Revision) -> Result<Watch, Error>;

    /// Every record of every workspace from now on, in the order the store commits them.
    fn feed(&self) -> Feed;

    /// From now on revisions of `workspace` are of `epoch`, which MUST be later than its current one; answers the
    /// new head. Revisions of earlier epochs that lie after the end this history knows of have `Expired`.
    fn begin_epoch(&self, workspace: &WorkspaceId, epoch: u32)
    -> BoxFuture<'static, Result<Revision, Error>>;

    /// Forgets the history of `workspace` up to and including `upto`; live objects stay. A log record itself.
    fn compact(&self, workspace: &WorkspaceId, upto: Revision) -> BoxFuture<'static, Result<(), Error>>;

    /// Forgets the history of `workspaces` up to now, as [`Store::compact`] does for one, and gives back the room that
    /// nothing needs any more; answers how many bytes of disk that were, as far as this engine has a disk.
    fn forget_history(&self, workspaces: Vec<WorkspaceId>) -> BoxFuture<'static, Result<u64, Error>> {
        let forget = |workspace: &WorkspaceId| self.compact(workspace, self.head(workspace));
        let forgotten: Vec<_> = workspaces.iter().map(forget).collect();
        Box::pin(async move {
            for done in forgotten {
                done.await?;
            }
            Ok(0)
        })
    }

    /// Forgets a workspace, its objects and its history; watches on it end with `Expired`.
    fn remove_workspace(&self, workspace: &WorkspaceId) -> BoxFuture<'static, Result<(), Error>>;

    /// Removes what has expired by `now`, as ordinary records. Whoever runs the store calls it now and then.
    fn expire(&self, now: Timestamp) -> BoxFuture<'static, Result<usize, Error>>;
}
