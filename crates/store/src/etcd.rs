//! The engine for a region that outgrows one machine: several servers at once on one etcd cluster.
//!
//! ```text
//!   commit ─> route ─┬─ led here ──> writer: one transaction, fenced ──> etcd
//!                    └─ led there ─> courier ─> the leader's writer        |
//!   get · list · watch <── live state <── follow: every head, in order <───┘
//! ```
//!
//! Every server follows everything and holds all live objects in memory. Each workspace is led by one of them, which
//! is the only one to write to it: its transactions compare the leader's key and the head of the history, so that a
//! leader that was paused writes nothing. The others pass on what they are asked to commit. [`writer`] says why nothing
//! is written twice or shown before it is written, [`read`] when a read is as new as it must be, [`lead`] how leaders
//! change, [`follow`] what happens when etcd has forgotten what a server missed, [`one_cluster`] how it is noticed that
//! etcd is another than it was.
//!
//! History is as long as the memory ring: a watch that has fallen further behind has expired.

mod blob;
mod fill;
mod follow;
mod layout;
mod lead;
mod one_cluster;
mod read;
mod route;
mod shared;
mod wire;
mod writer;

use std::{collections::HashMap, sync::Arc, time::Duration};

use ::etcd::{Compare, Etcd, Keys, Op, Range, Txn};
use bytes::Bytes;
use compact_str::CompactString;
use env::{BoxFuture, Env};
use jiff::Timestamp;
use machinery::{Object, Revision};
use tokio::sync::{mpsc, watch};

use self::{
    blob::ReadError,
    layout::{FORMAT, Layout, Meta},
    one_cluster::OneCluster,
    shared::{Parts, Shared},
    writer::{Deed, Done, Failure, Writer},
};
use crate::{
    Bounds, Collection, Commit, Committed, Error, Feed, Key, Listing, Snapshot, Span, Store, Usage, Watch,
    WorkspaceId, Write,
    live::{self, Live},
    memory::expiry_commit,
};

pub use fill::{Mover, can_leave, fill, is_leaving, is_open, leave, read, retire, servers, stay};
pub use layout::Registration;
pub use route::{Courier, NoCourier, Undelivered};

/// Times and sizes.
#[derive(Clone, Debug)]
pub struct Options {
    /// Below this, everything is kept.
    pub prefix: String,
    /// After so long without a sign of life, others take over from a server.
    pub lease: Duration,
    /// After so long without an answer from etcd or a leader, a request is given up.
    pub patience: Duration,
    /// After so long, where etcd was not heard of for as long as a lease lasts.
    pub grace: Duration,
    /// How long etcd keeps history.
    pub history: Duration,
    /// History held in memory.
    pub ring_bytes: usize,
    /// Requests that may wait for the writer.
    pub queue: usize,
    /// Whoever leads this workspace is on duty for all.
    pub duty: WorkspaceId,
    /// What each workspace may hold, but for those that are not bounded.
    pub bounds: Bounds,
    pub unbounded: Vec<WorkspaceId>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            prefix: "hanse".to_owned(),
            lease: Duration::from_secs(5),
            patience: Duration::from_secs(15),
            grace: Duration::from_secs(1),
            history: Duration::from_secs(5 * 60),
            ring_bytes: 64 << 20,
            queue: 1024,
            duty: WorkspaceId("root".into()),
            bounds: Bounds::NONE,
            unbounded: Vec::new(),
        }
    }
}

/// Why a store in etcd cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(transparent)]
    Etcd(#[from] ::etcd::Error),
    #[error(transparent)]
    Store(#[from] Error),
    #[error("what is kept in etcd below /{prefix} has format {found}, this program knows format {known}")]
    Format { prefix: String, found: u32, known: u32 },
    #[error("what is kept in etcd below /{prefix} must not be used: {why}")]
    Closed { prefix: String, why: String },
    #[error("etcd holds something below /{prefix} already")]
    NotEmpty { prefix: String },
    #[error("etcd holds nothing below /{prefix}")]
    Empty { prefix: String },
    #[error(
        "somebody else has begun to move to /{prefix} since, and has it now: nothing more is written there"
    )]
    Superseded { prefix: String },
    #[error("etcd holds another installation at /{other}, and /{prefix} would be mixed up with it")]
    Nested { prefix: String, other: String },
}

impl From<ReadError> for OpenError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Etcd(error) => OpenError::Etcd(error),
            ReadError::Store(error) => OpenError::Store(error),
        }
    }
}

/// A store in etcd, as one server sees it. Cheap to clone; clones share.
#[derive(Clone)]
pub struct EtcdStore {
    shared: Arc<Shared>,
}

/// Who does what one server does for all.
#[derive(Clone, Debug)]
pub enum OnDuty {
    Here,
    There(Registration),
    /// Nobody, or somebody who has not said how it is reached.
    Unclear,
}

/// What one server is doing among the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The etcd revision up to which it has followed.
    pub followed: i64,
    /// How long nobody can take over from it, if it is not heard of any more.
    pub lease_left: Duration,
    /// How many workspaces it leads.
    pub led: usize,
    /// How many servers there are, this one among them.
    pub servers: usize,
    /// A transaction was sent, and its outcome is not known yet.
    pub under_way: bool,
    pub on_duty: bool,
}

/// What all servers agree on, and when that was written; made by the first.
async fn meta(etcd: &dyn Etcd, layout: &Layout) -> Result<(Meta, ::etcd::Revision), OpenError> {
    let fresh = Meta { format: FORMAT, first_epoch: 1, closed: None };
    let value = serde_json::to_vec(&fresh).unwrap_or_default().into();
    get_or_put(etcd, layout.meta(), value).await?;
    let found = etcd.range(Range::now(Keys::one(layout.meta()))).await?;
    let unreadable = |what: &str| OpenError::Store(layout::unreadable(&format!("what it is: {what}")));
    let kv = found.kvs.first().ok_or_else(|| unreadable("nothing"))?;
    let meta = serde_json::from_slice(&kv.value).map_err(|error| unreadable(&error.to_string()))?;
    Ok((meta, kv.modified))
}

/// Refuses a prefix above or below that of another installation, whose keys would be taken for this one's.
async fn check_neighbours(etcd: &dyn Etcd, layout: &Layout) -> Result<(), OpenError> {
    let prefix = layout.prefix();
    let nested = |other: &str| OpenError::Nested { prefix: prefix.to_owned(), other: other.to_owned() };
    for (at, _) in prefix.match_indices('/') {
        let other = &prefix[..at];
        if !etcd.range(Range::now(Keys::one(Layout::new(other).meta()))).await?.kvs.is_empty() {
            return Err(nested(other));
        }
    }
    let ours = Range { limit: 1, keys_only: true, ..Range::now(Keys::with_prefix(&layout.all())) };
    let first = etcd.range(ours).await?.kvs.into_iter().next();
    let foreign = first.filter(|kv| layout.read(&kv.key).is_err());
    foreign.map_or(Ok(()), |kv| Err(nested(String::from_utf8_lossy(&kv.key).trim_start_matches('/'))))
}

/// What is kept at `key`; if nothing is, `value`, and then that is.
async fn get_or_put(etcd: &dyn Etcd, key: Bytes, value: Bytes) -> Result<Bytes, ::etcd::Error> {
    // One that is full refuses whatever could put something.
    let found = etcd.range(Range::now(Keys::one(key.clone()))).await?;
    if let Some(kv) = found.kvs.into_iter().next() {
        return Ok(kv.value);
    }
    let txn = Txn {
        when: vec![Compare::Created(key.clone(), 0)],
        then: vec![Op::Put { key: key.clone(), value: value.clone(), lease: None }],
        otherwise: vec![Op::Range(Keys::one(key))],
    };
    let answer = etcd.txn(txn).await?;
    if answer.held {
        return Ok(value);
    }
    Ok(answer.ranges.into_iter().flatten().next().map_or(value, |kv| kv.value))
}

impl EtcdStore {
    /// Joins the servers on `etcd`. Reads everything, and has followed it to now, before it returns.
    pub async fn open(
        env: &Env,
        etcd: Arc<dyn Etcd>,
        courier: Arc<dyn Courier>,
        options: Options,
    ) -> Result<Self, OpenError> {
        let etcd = Arc::new(OneCluster::new(etcd, env.clock.clone()));
        let layout = Layout::new(&options.prefix);
        check_neighbours(&*etcd, &layout).await?;
        let (meta, meta_at) = meta(&*etcd, &layout).await?;
        let prefix = layout.prefix().to_owned();
        if let Some(why) = meta.closed {
            return Err(OpenError::Closed { prefix, why });
        }
        if meta.format != FORMAT {
            return Err(OpenError::Format { prefix, found: meta.format, known: FORMAT });
        }
        let live = Live::new(live::Options {
            first_epoch: meta.first_epoch,
            ring_bytes: options.ring_bytes,
            archive: None,
            bounds: options.bounds,
            unbounded: options.unbounded.clone(),
        });
        let installed = follow::start(&*etcd, &layout).await?.install(&live);
        let (requests, queue) = mpsc::channel(options.queue.max(1));
        let shared = Arc::new(Shared::new(Parts {
            env: env.clone(),
            etcd,
            layout,
            name: new_name(env),
            options,
            courier,
            live,
            requests,
        }));
        let from = installed.at;
        shared.change(|state| {
            state.applied = installed.applied;
            state.leaders = installed.leaders;
            state.servers = installed.servers;
            state.followed = from;
            state.meta = meta_at;
        });
        match lead::register(&shared).await {
            // What is there can be read, and a lease is asked for again until there is room for one.
            Err(error @ ::etcd::Error::NoSpace(_)) => drop(lead::pause_without_lease(&shared, &error)),
            registered => registered?,
        }
        let spawn = |task: BoxFuture<'static, ()>| env.tasks.spawn(task);
        spawn(Box::pin(follow::follow(shared.clone(), from)));
        spawn(Box::pin(lead::keep(shared.clone())));
        spawn(Box::pin(Writer::new(shared.clone(), queue).run()));
        spawn(Box::pin(lead::tidy(shared.clone())));
        let store = Self { shared };
        if let Err(error) = follow::catch_up(&store.shared).await {
            // Its tasks run already, and it would be taken for one of the servers.
            store.close().await;
            return Err(error.into());
        }
        spawn(Box::pin(lead::stand_by(store.shared.clone())));
        Ok(store)
    }

    /// Finishes what is under way, gives up what this server leads, and stops. Reads go on.
    pub async fn close(&self) {
        let idle = |state: &shared::State| state.flight.is_none().then_some(());
        let _ = self.shared.until_or(self.shared.options.patience, idle).await;
        self.shared.change(|state| state.closing = true);
        lead::resign(&self.shared).await;
    }

    /// Does what another server asks for; see [`Courier`].
    pub fn receive(&self, letter: Bytes) -> BoxFuture<'static, Bytes> {
        let shared = self.shared.clone();
        Box::pin(async move { route::receive(&shared, &letter).await })
    }

    /// Tells the other servers how this one is reached. Until then they cannot pass anything on to it.
    pub async fn announce(&self, registration: Registration) -> Result<(), ::etcd::Error> {
        *self.shared.registration.lock() = Some(registration);
        let lease = self.shared.state().lease;
        match lease {
            Some(lease) => lead::announce(&self.shared, lease.id).await,
            // Whoever gets the next one announces it.
            None => Ok(()),
        }
    }

    /// Whether a letter comes from one of the other servers: only they can read this one's secret.
    pub fn is_secret(&self, shown: &[u8]) -> bool {
        let registration = self.shared.registration.lock();
        let secret = registration.as_ref().map_or(&[][..], |registration| registration.secret.as_bytes());
        // All of it is looked at, so that how long that takes tells nothing.
        let differences = secret.iter().zip(shown).fold(0, |sum, (own, shown)| sum | (own ^ shown));
        secret.len() >= 32 && secret.len() == shown.len() && differences == 0
    }

    /// Who is on duty, as far as is known here.
    pub fn who_is_on_duty(&self) -> OnDuty {
        match self.shared.standing(&self.shared.options.duty) {
            _ if self.shared.on_duty() => OnDuty::Here,
            shared::Standing::Theirs(registration) => OnDuty::There(registration),
            _ => OnDuty::Unclear,
        }
    }

    /// How this server stands, for whoever runs it.
    pub fn standing(&self) -> Standing {
        let state = self.shared.state();
        let lease = state.lease.map(|lease| lease.until.saturating_sub(self.shared.now()));
        Standing {
            followed: state.followed,
            lease_left: lease.unwrap_or_default(),
            led: state.led.len(),
            servers: state.servers.len(),
            under_way: state.flight.is_some(),
            on_duty: self.shared.on_duty(),
        }
    }

    fn ask(&self, workspace: &WorkspaceId, deed: Deed) -> BoxFuture<'static, Result<Done, Error>> {
        let asked = route::ask(&self.shared, workspace, deed, false);
        Box::pin(async move {
            asked.await.map_err(|failure| match failure {
                Failure::Error(error) => error,
                Failure::NotLeader => Error::Unavailable("nobody leads the workspace now".to_owned()),
            })
        })
    }

    fn ask_for_nothing(&self, workspace: &WorkspaceId, deed: Deed) -> BoxFuture<'static, Result<(), Error>> {
        let asked = self.ask(workspace, deed);
        Box::pin(async move { asked.await.map(drop) })
    }
}

/// What all servers of one store share by `name`: what is there, or `fresh` if nothing is.
pub async fn share_value(
    etcd: &dyn Etcd,
    prefix: &str,
    name: &str,
    fresh: Bytes,
) -> Result<Bytes, ::etcd::Error> {
    get_or_put(etcd, Layout::new(prefix).shared(name), fresh).await
}

/// What all servers of one store share by `name`, if they do.
pub async fn shared_value(etcd: &dyn Etcd, prefix: &str, name: &str) -> Result<Option<Bytes>, ::etcd::Error> {
    let found = etcd.range(Range::now(Keys::one(Layout::new(prefix).shared(name)))).await?;
    Ok(found.kvs.into_iter().next().map(|kv| kv.value))
}

/// Whether anything is kept below `prefix`.
pub async fn is_empty(etcd: &dyn Etcd, prefix: &str) -> Result<bool, ::etcd::Error> {
    let keys = Keys::with_prefix(&Layout::new(prefix).all());
    let found = etcd.range(Range { limit: 1, keys_only: true, ..Range::now(keys) }).await?;
    Ok(found.kvs.is_empty())
}

fn new_name(env: &Env) -> CompactString {
    let mut bytes = [0; 8];
    env.random.fill(&mut bytes);
    compact_str::format_compact!("{:016x}", u64::from_be_bytes(bytes))
}

impl Store for EtcdStore {
    fn head(&self, workspace: &WorkspaceId) -> Revision {
        self.shared.live.head(workspace)
    }

    fn get(&self, workspace: &WorkspaceId, key: &Key) -> Option<Arc<Object>> {
        self.shared.live.get(workspace, key)
    }

    fn list(
        &self,
        workspace: &WorkspaceId,
        collection: &Collection,
        at: Option<Revision>,
    ) -> Result<Listing, Error> {
        self.shared.live.list(workspace, collection, at)
    }

    fn last_change(&self, workspace: &WorkspaceId, collection: &Collection) -> Revision {
        self.shared.live.last_change(workspace, collection)
    }

    fn collections(&self, workspace: &WorkspaceId) -> Vec<Collection> {
        self.shared.live.collections(workspace)
    }

    fn workspaces(&self) -> Vec<WorkspaceId> {
        self.shared.live.workspaces()
    }

    fn usage(&self, workspace: &WorkspaceId) -> Usage {
        self.shared.live.usage(workspace)
    }

    fn totals(&self) -> HashMap<Collection, u64> {
        self.shared.live.totals()
    }

    fn snapshot(&self, workspace: &WorkspaceId) -> Option<Snapshot> {
        self.shared.live.snapshot(workspace)
    }

    fn level(&self, workspace: &WorkspaceId) -> Option<BoxFuture<'static, Result<(), Error>>> {
        read::level(&self.shared, workspace)
    }

    fn is_well(&self) -> Result<(), String> {
        if let Some(why) = self.shared.etcd.replaced() {
            return Err(shared::replaced(why));
        }
        let state = self.shared.state();
        match () {
            () if state.closing => Err("it is stopping".to_owned()),
            () if state.resyncing => Err("everything is being read again from etcd".to_owned()),
            () if !self.shared.lease_holds(&state) => Err(state.why_not_leading().to_string()),
            () => Ok(()),
        }
    }

    fn duty(&self) -> Option<watch::Receiver<bool>> {
        Some(self.shared.duty())
    }

    fn commit(
        &self,
        workspace: &WorkspaceId,
        commit: Commit,
    ) -> BoxFuture<'static, Result<Vec<Committed>, Error>> {
        let asked = self.ask(workspace, Deed::Commit(commit));
        Box::pin(async move {
            match asked.await? {
                Done::Committed(committed) => Ok(committed),
                Done::Nothing | Done::Epoch(_) => Err(Error::Unknown("an answer to another question".into())),
            }
        })
    }

    fn commit_at(
        &self,
        workspace: &WorkspaceId,
        after: Revision,
        records: Vec<(Revision, Write)>,
    ) -> BoxFuture<'static, Result<(), Error>> {
        self.ask_for_nothing(workspace, Deed::CommitAt(after, records))
    }

    fn watch(&self, workspace: &WorkspaceId, span: Span, after: Revision) -> Result<Watch, Error> {
        self.shared.live.watch(workspace, span, after)
    }

    fn feed(&self) -> Feed {
        self.shared.live.feed()
    }

    fn begin_epoch(
        &self,
        workspace: &WorkspaceId,
        epoch: u32,
    ) -> BoxFuture<'static, Result<Revision, Error>> {
        let asked = self.ask(workspace, Deed::BeginEpoch(epoch));
        Box::pin(async move {
            match asked.await? {
                Done::Epoch(start) => Ok(start),
                Done::Nothing | Done::Committed(_) => {
                    Err(Error::Unknown("an answer to another question".into()))
                }
            }
        })
    }

    fn compact(&self, workspace: &WorkspaceId, upto: Revision) -> BoxFuture<'static, Result<(), Error>> {
        self.ask_for_nothing(workspace, Deed::Compact(upto))
    }

    fn remove_workspace(&self, workspace: &WorkspaceId) -> BoxFuture<'static, Result<(), Error>> {
        self.ask_for_nothing(workspace, Deed::Remove)
    }

    fn expire(&self, now: Timestamp) -> BoxFuture<'static, Result<usize, Error>> {
        let store = self.clone();
        Box::pin(async move {
            let expire = |(workspace, key, revision)| store.commit(&workspace, expiry_commit(key, revision));
            crate::memory::expire_due(&store.shared.live, now, expire).await
        })
    }
}
