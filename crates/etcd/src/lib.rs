//! etcd, as far as Hanse uses it: ranges, transactions, watches, leases and compaction.
//!
//! ```text
//!   Etcd ─┬─ Client      gRPC to the members of a cluster; TLS, user and password
//!         ├─ SimEtcd     the same rules in memory, with faults that follow from a seed
//!         └─ Observed    around one of them: tells somebody how calls go
//! ```
//!
//! [`Etcd`] is a plain account of what etcd does, with nothing hidden: no retries behind the caller's back and no
//! caches. What a caller must know about a call that failed is in [`Error`]: whether it can have had an effect.
//! [`suite`] holds what it promises as tests that both run.

use std::{
    ops::{Bound, RangeBounds},
    time::Duration,
};

use bytes::Bytes;
use env::BoxFuture;

mod client;
pub mod limits;
mod observed;
mod sim;
pub mod suite;

pub use client::{Client, Endpoint, Identity, Misconfigured, Options, Tls, User};
pub use observed::{Observed, Observer};
pub use sim::{Backup, Faults, SimEtcd};

/// The number of a state of the whole store. Every transaction that writes makes the next one.
pub type Revision = i64;

/// What a process holds for as long as it says that it is alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LeaseId(pub i64);

/// A key and what is known about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyValue {
    pub key: Bytes,
    pub value: Bytes,
    /// When it was created, and not deleted since.
    pub created: Revision,
    /// When it was last written.
    pub modified: Revision,
    /// Goes when this does.
    pub lease: Option<LeaseId>,
}

/// Keys from `start` to before `end`; without an end, the one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
    pub start: Bytes,
    pub end: Option<Bytes>,
}

type Bounds<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

impl Keys {
    pub fn one(key: impl Into<Bytes>) -> Self {
        Self { start: key.into(), end: None }
    }

    /// All that begin with `prefix`, which MUST NOT be empty or end with the byte 0xff.
    pub fn with_prefix(prefix: &[u8]) -> Self {
        Self { start: Bytes::copy_from_slice(prefix), end: Some(after_prefix(prefix)) }
    }

    pub fn contains(&self, key: &[u8]) -> bool {
        self.bounds().is_some_and(|bounds| RangeBounds::<[u8]>::contains(&bounds, key))
    }

    /// On etcd's wire an end of the one byte 0 means no end, and an empty one means the one key.
    pub(crate) fn bounds(&self) -> Option<Bounds<'_>> {
        let start = &self.start[..];
        match self.end.as_deref() {
            None | Some([]) => Some((Bound::Included(start), Bound::Included(start))),
            Some([0]) => Some((Bound::Included(start), Bound::Unbounded)),
            Some(end) if start < end => Some((Bound::Included(start), Bound::Excluded(end))),
            Some(_) => None,
        }
    }
}

/// The first key after all that begin with `prefix`.
pub fn after_prefix(prefix: &[u8]) -> Bytes {
    let mut end = prefix.to_vec();
    if let Some(last) = end.last_mut() {
        *last = last.saturating_add(1);
    }
    end.into()
}

/// Reads keys, in order.
#[derive(Clone, Debug)]
pub struct Range {
    pub keys: Keys,
    /// As they were then; `None`: now, with everything that was acknowledged before (linearizable).
    pub at: Option<Revision>,
    /// 0: all.
    pub limit: usize,
    /// Without values.
    pub keys_only: bool,
}

impl Range {
    pub fn now(keys: Keys) -> Self {
        Self { keys, at: None, limit: 0, keys_only: false }
    }
}

#[derive(Clone, Debug)]
pub struct Ranged {
    /// The revision of the store when it answered.
    pub revision: Revision,
    pub kvs: Vec<KeyValue>,
    /// There are more than the limit.
    pub more: bool,
}

/// What must hold of a key.
#[derive(Clone, Debug)]
pub enum Compare {
    /// 0: it does not exist.
    Created(Bytes, Revision),
    /// 0: it does not exist.
    Modified(Bytes, Revision),
    Exists(Bytes),
}

#[derive(Clone, Debug)]
pub enum Op {
    Put { key: Bytes, value: Bytes, lease: Option<LeaseId> },
    Delete(Keys),
    Range(Keys),
}

/// Does `then` if all of `when` holds, else `otherwise`; at one point of the history. No key may be put twice.
#[derive(Clone, Debug, Default)]
pub struct Txn {
    pub when: Vec<Compare>,
    pub then: Vec<Op>,
    pub otherwise: Vec<Op>,
}

#[derive(Clone, Debug)]
pub struct TxnAnswer {
    /// Whether all of `when` held.
    pub held: bool,
    /// The revision of the store after it: if it wrote, the one it made.
    pub revision: Revision,
    /// What the ranges among its operations found, in their order.
    pub ranges: Vec<Vec<KeyValue>>,
}

/// Everything that happens to `keys` from revision `from` on.
#[derive(Clone, Debug)]
pub struct WatchFrom {
    pub keys: Keys,
    /// The first revision that is told.
    pub from: Revision,
}

/// Whole transactions, in order; all that one did to the watched keys is told at once.
#[derive(Clone, Debug)]
pub struct Changes {
    /// Everything of the watched keys up to here has been told.
    pub revision: Revision,
    /// May be empty: then only that nothing happened up to `revision` is told.
    pub events: Vec<Change>,
}

#[derive(Clone, Debug)]
pub enum Change {
    Put(KeyValue),
    /// Deleted at this revision.
    Deleted(Bytes, Revision),
}

impl Change {
    pub fn key(&self) -> &Bytes {
        match self {
            Change::Put(kv) => &kv.key,
            Change::Deleted(key, _) => key,
        }
    }

    pub fn revision(&self) -> Revision {
        match self {
            Change::Put(kv) => kv.modified,
            Change::Deleted(_, revision) => *revision,
        }
    }
}

/// A watch that was accepted.
pub trait Watcher: Send {
    /// What came next. After an error the watch is over; it goes on by a new one from the revision after the last
    /// that was told. Dropping the future loses nothing.
    fn next(&mut self) -> BoxFuture<'_, Result<Changes, Error>>;

    /// Asks the server to tell how far it is, even if nothing happened: an empty [`Changes`] will come.
    fn ask_progress(&mut self);
}

/// Why etcd did not do what was asked.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// It had no effect and will have none. Another member may take it.
    #[error("etcd does not answer: {0}")]
    Unreachable(String),
    /// It was sent and there was no answer: it may have had its effect, or may have it yet.
    #[error("no answer from etcd: {0}")]
    Uncertain(String),
    /// What was asked for lies before the revision up to which history was forgotten, if that is known (else 0).
    #[error("etcd has forgotten the history up to revision {0}")]
    Compacted(Revision),
    /// The lease is gone, with all its keys.
    #[error("the lease is gone")]
    LeaseGone,
    /// It had no effect: larger than etcd takes.
    #[error("larger than etcd takes: {0}")]
    TooLarge(String),
    /// The quota of etcd's store is used up. A transaction that made it so was carried out all the same.
    #[error("etcd is full: {0}")]
    NoSpace(String),
    /// It had no effect: wrong user, password or certificate, or no permission.
    #[error("etcd refuses access: {0}")]
    Denied(String),
    /// It is not the cluster that it was: it was made anew, or restored from a backup. Whatever is known of the one
    /// before says nothing about this one; what was asked may have had its effect there.
    #[error("etcd was replaced: {0}")]
    Replaced(String),
    /// It had no effect: the request makes no sense to etcd.
    #[error("etcd refuses: {0}")]
    Refused(String),
}

impl Error {
    /// Its name among the others, as metrics have it.
    pub fn kind(&self) -> &'static str {
        match self {
            Error::Unreachable(_) => "unreachable",
            Error::Uncertain(_) => "uncertain",
            Error::Compacted(_) => "compacted",
            Error::LeaseGone => "lease_gone",
            Error::TooLarge(_) => "too_large",
            Error::NoSpace(_) => "no_space",
            Error::Denied(_) => "denied",
            Error::Replaced(_) => "replaced",
            Error::Refused(_) => "refused",
        }
    }
}

/// A cluster of etcd members.
pub trait Etcd: Send + Sync + 'static {
    fn range(&self, range: Range) -> BoxFuture<'static, Result<Ranged, Error>>;

    fn txn(&self, txn: Txn) -> BoxFuture<'static, Result<TxnAnswer, Error>>;

    /// Fails, or ends, with `Compacted` if `from` lies in forgotten history; ends if the member it is served by loses
    /// its leader.
    fn watch(&self, watch: WatchFrom) -> BoxFuture<'static, Result<Box<dyn Watcher>, Error>>;

    /// A new lease that goes `ttl` after it was granted or last kept alive.
    fn grant(&self, ttl: Duration) -> BoxFuture<'static, Result<LeaseId, Error>>;

    /// Says once that its holder is alive: it goes on for what is answered, from when this was asked at the earliest.
    fn keep_alive(&self, lease: LeaseId) -> BoxFuture<'static, Result<Duration, Error>>;

    /// Deletes a lease and all its keys.
    fn revoke(&self, lease: LeaseId) -> BoxFuture<'static, Result<(), Error>>;

    /// Forgets the history before `revision`. What that one itself deleted may not be told to later watches either: they
    /// are safe from the one after it on.
    fn compact(&self, revision: Revision) -> BoxFuture<'static, Result<(), Error>>;
}
