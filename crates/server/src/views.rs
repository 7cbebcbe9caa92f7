//! Views: kinds whose objects come also from member clusters.
//!
//! ```text
//!   sessions ── replace · put · remove · lost ──┐    (gathered until somebody looks)
//!                                               ├──> one history per workspace ──> get · list · watch
//!   store ───── what is stored in these kinds ──┘    (memory; resourceVersions of its own)
//!
//!   delete · evict · label · logs ──> Member::send ──> the member
//! ```
//!
//! Sessions with members report what they see, as the member sent it. Nothing of it is written to the store, and nothing
//! is taken for gone because it was not seen. A workspace without members has no view, and is read as ever.
//!
//! # Revisions
//!
//! All revisions that clients see of these kinds are of the view's history, also those of stored objects. A history
//! begins anew with the process, in an epoch that the store never reaches and at a random place in it: a revision of
//! another process, of an earlier one or of the store itself is never mistaken for one of its own, and has expired.

mod assigned;
mod copies;
mod evict;
mod forward;
mod gather;
mod keep;
mod kinds;
mod merge;
mod mirror;
#[cfg(test)]
mod model;
mod names;
mod plain;
pub(crate) mod render;
mod report;
mod restore;
mod sight;
mod stored;
mod streams;
mod view;

use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use compact_str::CompactString;
use env::{BoxFuture, Env};
use http::{Request, Response};
use machinery::{Revision, resource::Resource, status::Status};
use parking_lot::RwLock;
use store::{Collection, Feed, FeedItem, ItemKey, Key, Store, WorkspaceId, memory::MemoryStore};
use tokio::sync::{Notify, watch};

use crate::{
    body::Body,
    hub::{self, seconds_text},
    space::Space,
};
use assigned::{Assigned, Named};
use gather::Told;
use keep::{Damage, Kept};
use kinds::Kind;

pub use forward::{deleted, write};
pub use render::{CLUSTER, NAME, NAMESPACE, REPLICAS, STALE};
pub use sight::Sight;
pub use streams::{UPGRADE, join, stream};
pub use view::{Presence, Target, View};

/// A member cluster as the hub's views know it: what a session with it implements.
pub trait Member: Send + Sync + 'static {
    /// The name of its `Cluster`.
    fn cluster(&self) -> &str;

    /// The workspace that its `Cluster` is in. Clusters of the platform show in other workspaces too, which may have one of
    /// the same name.
    fn home(&self) -> &WorkspaceId;

    /// Sends a request on to the member with the session's own credential; its path and query are as the member has
    /// them, without scheme and host. The answer is streamed: dropping its body ends the stream at the member.
    /// Where the request asks for an upgrade and the answer is 101, its extensions hold hyper's `OnUpgrade`.
    /// `Err`: the member was not reached; whatever it answers itself, refusals too, is `Ok`.
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'static, Result<Response<Body>, Status>>;

    /// Resolves when nothing may come from the member any more: it was unjoined. Bodies of answers end by themselves
    /// then; what left HTTP behind is ended by whoever has it.
    fn over(&self) -> BoxFuture<'static, ()>;
}

/// A session that a cluster can be asked by to show where nothing of it was seen.
pub trait Host: Send + Sync + 'static {
    /// The cluster is to show in a workspace, though it may have nothing there.
    fn show_in(&self, workspace: &WorkspaceId);
}

/// An object as a session reports it.
pub struct Sighting {
    /// As the member has it.
    pub object: Bytes,
    /// Where the member has it, if that is known without reading it all.
    pub own: Option<ItemKey>,
    /// The namespace that it shows in, if the member calls that by another name.
    pub namespace: Option<CompactString>,
}

impl From<Bytes> for Sighting {
    fn from(object: Bytes) -> Sighting {
        Sighting { object, own: None, namespace: None }
    }
}

/// What a member's object was placed from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The UID of the object in the workspace.
    pub uid: String,
    /// Each of its clusters has a whole copy of it, so that names below it are equal everywhere.
    pub duplicated: bool,
}

/// What all views show together.
#[derive(Debug, Default)]
pub struct Counts {
    /// Members' objects, by kind.
    pub objects: BTreeMap<&'static str, usize>,
    /// Of those, the ones that were not seen lately.
    pub stale: BTreeMap<&'static str, usize>,
    /// Clusters, once per workspace.
    pub clusters: usize,
    /// Of those, the ones without a session.
    pub lost: usize,
}

/// The views of all workspaces. Cheap to clone; clones share.
#[derive(Clone)]
pub struct Views(Arc<Inner>);

struct Inner {
    env: Env,
    store: Arc<dyn Store>,
    memory: MemoryStore,
    /// Where what was seen is kept; `None`: nowhere.
    directory: Option<PathBuf>,
    stopping: watch::Receiver<bool>,
    views: RwLock<HashMap<WorkspaceId, Arc<View>>>,
    /// What is assigned to clusters.
    assigned: Assigned,
    /// By the UID of the `Cluster`.
    hosts: RwLock<HashMap<CompactString, Weak<dyn Host>>>,
    /// There is a view, and what looks after views runs.
    any: AtomicBool,
    /// Something was told that may not show yet.
    told: Arc<Notify>,
    /// Turns true when what was seen is kept for the last time.
    closed: watch::Sender<bool>,
}

/// The kinds that members' objects are shown of.
pub fn collections() -> [Collection; 4] {
    Kind::ALL.map(Kind::collection)
}

/// Epochs of views begin here; those of stores never get as far.
const FIRST_EPOCH: u32 = 1 << 15;
const LAST_EPOCH: u32 = (1 << 17) - 1;
/// 2025-01-01, in seconds: epochs are counted in hours from there.
const EPOCHS_SINCE: i64 = 1_735_689_600;
/// Of the room in an epoch, so much is for where its history begins.
const START_BITS: u32 = 34;

/// Whether a revision of a kind is of some view.
pub fn is_view_revision(resource: &Resource, revision: Revision) -> bool {
    revision.epoch() >= FIRST_EPOCH && Kind::find(&resource.stored_group, &resource.plural).is_some()
}

/// Where a history begins that comes after one of the epoch `after`.
fn origin(env: &Env, after: u32) -> Revision {
    let hours = env.clock.now().as_second().saturating_sub(EPOCHS_SINCE) / 3600;
    let hours = u32::try_from(hours).unwrap_or(0).min(LAST_EPOCH);
    let epoch = FIRST_EPOCH.saturating_add(hours).max(after.saturating_add(1)).min(LAST_EPOCH);
    let mut random = [0; 8];
    env.random.fill(&mut random);
    let start = u64::from_le_bytes(random) >> (u64::BITS - START_BITS);
    let epoch = Revision::start_of_epoch(epoch);
    Revision::from_u64(epoch.as_u64() + start).unwrap_or(epoch)
}

impl Views {
    /// What was seen before this process is shown again, as not seen since. `directory`: where it is kept.
    pub fn open(
        env: Env,
        store: Arc<dyn Store>,
        directory: Option<PathBuf>,
        stopping: watch::Receiver<bool>,
    ) -> Views {
        let inner = Inner {
            env,
            store,
            memory: MemoryStore::new(),
            directory,
            stopping,
            views: RwLock::default(),
            assigned: Assigned::default(),
            hosts: RwLock::default(),
            any: AtomicBool::new(false),
            told: Arc::default(),
            closed: watch::Sender::new(true),
        };
        let views = Views(Arc::new(inner));
        views.restore();
        views
    }

    fn restore(&self) {
        let Some(directory) = &self.0.directory else { return };
        let files = self.0.env.files.list(directory).unwrap_or_default();
        let known = self.0.store.workspaces();
        for path in files {
            let Some(id) = workspace_of(&path) else { continue };
            if !known.contains(&id) && id != hub::default_id() && id != hub::root_id() {
                self.0.remove_file(&id);
                continue;
            }
            self.restore_one(&path, &id);
        }
    }

    fn restore_one(&self, path: &Path, id: &WorkspaceId) {
        let read = self.0.env.files.read(path).map_err(|error| error.to_string());
        let kept =
            read.and_then(|bytes| Kept::decode(&bytes.into()).map_err(|damage: Damage| damage.to_string()));
        match kept {
            Ok(kept) => {
                let view = self.view_after(id, kept.meta.epoch);
                view.restore(kept, &seconds_text(self.0.env.clock.now()));
            }
            Err(why) => {
                let path = path.display();
                tracing::error!(%path, why, "what was seen of members cannot be read");
                self.view_after(id, 0).be_blind(format!(
                    "what was seen of members before cannot be read, and they were not seen since ({path}: {why}; if \
                     there are none any more, remove the file and start again)"
                ));
            }
        }
    }

    /// The view of a workspace; `None` if no cluster shows there.
    pub fn of(&self, workspace: &WorkspaceId) -> Option<Arc<View>> {
        if !self.0.any.load(Ordering::Acquire) {
            return None;
        }
        self.0.views.read().get(workspace).cloned()
    }

    /// The view that objects of a kind are read from; `None`: from the store.
    pub fn for_kind(&self, workspace: &WorkspaceId, group: &str, plural: &str) -> Option<Arc<View>> {
        Kind::find(group, plural)?;
        self.invite(workspace);
        self.of(workspace)
    }

    /// Clusters that something of the workspace is assigned to show there, also if they have nothing there yet.
    fn invite(&self, workspace: &WorkspaceId) {
        for named in self.0.assigned.clusters(&*self.0.store, workspace) {
            if self.of(workspace).is_some_and(|view| view.has_cluster(&named.name)) {
                continue;
            }
            let host = self.0.hosts.read().get(&named.uid).and_then(Weak::upgrade);
            if let Some(host) = host {
                host.show_in(workspace);
            }
        }
    }

    /// A session with the cluster whose `Cluster` has this UID.
    pub fn host(&self, uid: &str, host: Weak<dyn Host>) {
        self.0.hosts.write().insert(uid.into(), host);
    }

    /// A session is gone; there may be another one.
    pub fn host_is_gone(&self, uid: &str) {
        let mut hosts = self.0.hosts.write();
        if hosts.get(uid).is_some_and(|host| host.strong_count() == 0) {
            hosts.remove(uid);
        }
    }

    /// What is remembered of a workspace and can be made again.
    pub fn forget_space(&self, workspace: &WorkspaceId) {
        self.0.assigned.forget(workspace);
    }

    fn view(&self, workspace: &WorkspaceId) -> Arc<View> {
        self.of(workspace).unwrap_or_else(|| self.view_after(workspace, 0))
    }

    fn view_after(&self, workspace: &WorkspaceId, epoch: u32) -> Arc<View> {
        self.look_after();
        let mut views = self.0.views.write();
        let new = || {
            let origin = origin(&self.0.env, epoch);
            Arc::new(View::new(workspace.clone(), self.0.store.clone(), self.0.memory.clone(), origin))
        };
        views.entry(workspace.clone()).or_insert_with(new).clone()
    }

    /// Starts what looks after views, when there is the first.
    fn look_after(&self) {
        if self.0.any.swap(true, Ordering::AcqRel) {
            return;
        }
        // Before the view looks at the store, so that nothing falls between them.
        let feed = self.0.store.feed();
        let (inner, stopping) = (Arc::downgrade(&self.0), self.0.stopping.clone());
        self.0.env.tasks.spawn(Box::pin(follow(inner, feed, stopping)));
        let (inner, stopping) = (Arc::downgrade(&self.0), self.0.stopping.clone());
        self.0.env.tasks.spawn(Box::pin(gather::show(inner, stopping)));
        if self.0.directory.is_some() {
            self.0.closed.send_replace(false);
            let (inner, stopping) = (Arc::downgrade(&self.0), self.0.stopping.clone());
            self.0.env.tasks.spawn_blocking_loop("views", Box::pin(keep(inner, stopping)));
        }
    }

    /// The cluster is joined and shows in `workspace`; its session has not begun. Until it was seen, lists say so.
    pub fn expect(&self, workspace: &WorkspaceId, cluster: &str) {
        self.view(workspace).expect(cluster);
    }

    /// The clusters that show in `workspace`, whether they have a session or not.
    pub fn clusters(&self, workspace: &WorkspaceId) -> Vec<String> {
        self.of(workspace).map_or_else(Vec::new, |view| view.clusters())
    }

    /// The workspaces that clusters show in.
    pub fn workspaces(&self) -> Vec<WorkspaceId> {
        let views = self.0.views.read();
        views.values().filter(|view| view.cluster_counts().0 > 0).map(|view| view.id.clone()).collect()
    }

    /// The workspaces in which something was seen of the cluster of that name and identity.
    pub fn seen_in(&self, cluster: &str, identity: &str) -> Vec<WorkspaceId> {
        let views = self.all().into_iter().filter(|view| view.has_seen(cluster, identity));
        views.map(|view| view.id.clone()).collect()
    }

    /// A session with the cluster has begun; `identity` is the UID of the member's `kube-system` namespace. What was
    /// known of it before stays, unconfirmed; if it was another cluster by that name, all of it goes. False: a cluster of
    /// that name that is joined elsewhere shows here, and this one must report nothing.
    #[must_use]
    pub fn join(&self, workspace: &WorkspaceId, member: Arc<dyn Member>, identity: &str) -> bool {
        self.view(workspace).join(member, identity)
    }

    /// Whether there is a session with the cluster of that name, whoever's it is.
    pub fn is_held(&self, workspace: &WorkspaceId, cluster: &str) -> bool {
        self.of(workspace).is_some_and(|view| view.is_held(cluster))
    }

    /// All objects of one collection at the member: what is not among them is gone. Pods are best reported before
    /// events, which are about them.
    pub fn replace(
        &self,
        workspace: &WorkspaceId,
        cluster: &str,
        collection: &Collection,
        objects: Vec<Sighting>,
    ) {
        if let Some((view, kind)) = self.about(workspace, collection) {
            view.replace(cluster, kind, &objects);
        }
    }

    /// One object is at the member as it is here.
    pub fn put(&self, workspace: &WorkspaceId, cluster: &str, collection: &Collection, object: Sighting) {
        self.tell(workspace, cluster, collection, object, false);
    }

    /// One object is gone from the member; this is its last state.
    pub fn remove(&self, workspace: &WorkspaceId, cluster: &str, collection: &Collection, object: Sighting) {
        self.tell(workspace, cluster, collection, object, true);
    }

    fn tell(
        &self,
        workspace: &WorkspaceId,
        cluster: &str,
        collection: &Collection,
        object: Sighting,
        is_gone: bool,
    ) {
        if let Some((view, kind)) = self.about(workspace, collection) {
            view.gather(Told { cluster: cluster.into(), kind, object, is_gone });
            self.0.told.notify_one();
        }
    }

    /// The member's object with the UID `uid` was placed from an object of the workspace: what it owns there shows as
    /// owned by that one. Best said before what it owns is reported.
    pub fn placed(&self, workspace: &WorkspaceId, cluster: &str, uid: &str, from: Placed) {
        // It may be the first that the workspace has there.
        self.invite(workspace);
        if let Some(view) = self.of(workspace) {
            view.placed(cluster, uid, Some(from));
        }
    }

    /// An object of the workspace is about to be placed: what is owned at the member by one of that kind, namespace and
    /// name there is taken for its own, until [`Views::placed`] says which one it is.
    pub fn announce(&self, workspace: &WorkspaceId, cluster: &str, object: [&str; 3], from: Placed) {
        if let Some(view) = self.of(workspace) {
            view.announce(cluster, object, from);
        }
    }

    /// It is no longer there, or no longer placed.
    pub fn displaced(&self, workspace: &WorkspaceId, cluster: &str, uid: &str) {
        if let Some(view) = self.of(workspace) {
            view.placed(cluster, uid, None);
        }
    }

    /// The session lost its connection: what it reported stays, marked as stale.
    pub fn lost(&self, workspace: &WorkspaceId, cluster: &str) {
        if let Some(view) = self.of(workspace) {
            view.lost(cluster, &seconds_text(self.0.env.clock.now()));
        }
    }

    /// The session cannot keep up with a collection: what it reported of it stays, marked as stale, until it reports all
    /// of it again.
    pub fn outdated(&self, workspace: &WorkspaceId, cluster: &str, collection: &Collection) {
        if let Some((view, kind)) = self.about(workspace, collection) {
            view.outdated(cluster, kind, &seconds_text(self.0.env.clock.now()));
        }
    }

    /// The cluster is not joined any more: all it reported goes.
    pub fn leave(&self, workspace: &WorkspaceId, cluster: &str) {
        if let Some(view) = self.of(workspace) {
            view.leave(cluster);
        }
    }

    /// Where a report goes; a kind that has no view is nobody's.
    fn about(&self, workspace: &WorkspaceId, collection: &Collection) -> Option<(Arc<View>, Kind)> {
        Some((self.of(workspace)?, Kind::of(collection)?))
    }

    /// What members know of an owner that is not in the store. `None`: it is not theirs to know.
    pub fn presence(&self, space: &Space, key: &Key, uid: &str) -> Option<Presence> {
        Kind::of(&key.collection)?;
        let joined = space.stored(&Collection::new(api::GROUP, "clusters"));
        let joined: Vec<_> = joined.iter(None, None).map(|(item, _)| item.name().into()).collect();
        let is_hidden = self.platform_is_hidden(key);
        match self.of(space.id()) {
            Some(view) => Some(view.presence(key, uid, &joined, is_hidden)),
            None if joined.is_empty() && !is_hidden => None,
            None => Some(Presence::Unknown),
        }
    }

    /// Whether a cluster of the platform, which may show in any workspace, was not seen whole by its present session.
    fn platform_is_hidden(&self, key: &Key) -> bool {
        let clusters = Collection::new(api::GROUP, api::cluster::PLURAL);
        let homes = [api::ROOT, api::DEFAULT].map(|name| WorkspaceId(name.into()));
        homes.iter().any(|home| {
            let Ok(joined) = self.0.store.list(home, &clusters, None) else { return true };
            let view = self.of(home);
            let is_seen = |name: &str| view.as_ref().is_some_and(|view| view.is_in_sight(name, key));
            joined.iter(None, None).any(|(item, _)| !is_seen(item.name()))
        })
    }

    /// Resolves when the server has stopped and what was seen is kept.
    pub async fn close(&self) {
        // Whoever could say so is held here.
        let _ = self.0.closed.subscribe().wait_for(|closed| *closed).await;
    }

    /// Which clusters an answer of a kind cannot be sure about; `None`: the kind is nobody's but the workspace's own.
    pub fn sight(&self, space: &Space, view: Option<&View>, resource: &Resource) -> Option<Sight> {
        let kind = Kind::find(&resource.stored_group, &resource.plural)?;
        let mut sight = view.map(|view| view.sight(&kind.collection())).unwrap_or_default();
        if view.is_none() && self.0.store.duty().is_some() {
            // Its own clusters may show at another server, which has the sessions with them.
            let joined = space.stored(&Collection::new(api::GROUP, api::cluster::PLURAL));
            sight.unseen.extend(joined.iter(None, None).map(|(item, _)| item.name().to_owned()));
        }
        for named in self.0.assigned.clusters(&*self.0.store, space.id()) {
            let Some(home) = self.home_of(space.id(), &named) else { continue };
            match view.and_then(|view| view.holder(&named.name)) {
                None if !sight.unseen.iter().any(|name| *name == named.name) => {
                    sight.unseen.push(named.name.to_string());
                }
                Some(Some(holder)) if holder != home => sight.masked.push(named.name.to_string()),
                _ => {}
            }
        }
        Some(sight)
    }

    /// The workspace that has the cluster which an Assignment names, if there is still such a one.
    fn home_of(&self, workspace: &WorkspaceId, named: &Named) -> Option<WorkspaceId> {
        let key = Key::new(api::GROUP, api::cluster::PLURAL, "", &named.name);
        let is_it = |home: &WorkspaceId| {
            let cluster = self.0.store.get(home, &key);
            cluster.is_some_and(|cluster| cluster.head.uid == named.uid && !cluster.head.deleting)
        };
        [workspace.clone(), hub::root_id(), hub::default_id()].into_iter().find(is_it)
    }

    /// What happens in all views from now on.
    pub fn feed(&self) -> Feed {
        self.0.memory.feed()
    }

    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for view in self.all() {
            for (kind, (all, stale)) in view.counts() {
                *counts.objects.entry(kind.plural()).or_default() += all;
                *counts.stale.entry(kind.plural()).or_default() += stale;
            }
            let (all, lost) = view.cluster_counts();
            counts.clusters += all;
            counts.lost += lost;
        }
        counts
    }

    fn all(&self) -> Vec<Arc<View>> {
        self.0.views.read().values().cloned().collect()
    }
}

/// Whether objects of a kind come from members too.
pub fn shows(resource: &Resource) -> bool {
    Kind::find(&resource.stored_group, &resource.plural).is_some()
}

/// The workspace that a file is about; none for files that are being written.
fn workspace_of(path: &Path) -> Option<WorkspaceId> {
    let name = path.file_name()?.to_str()?;
    let is_id = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    is_id.then(|| WorkspaceId(name.into()))
}

/// Takes over what is stored as it happens, for those who watch and do not ask.
async fn follow(inner: Weak<Inner>, mut feed: Feed, mut stopping: watch::Receiver<bool>) {
    loop {
        let item = tokio::select! {
            item = feed.next() => item,
            () = hub::stopped(&mut stopping) => return,
        };
        let Some(inner) = inner.upgrade() else { return };
        match item {
            FeedItem::Event(event) if Kind::of(&event.key.collection).is_some() => {
                if let Some(view) = inner.views.read().get(&event.workspace).cloned() {
                    drop(view.lock());
                }
            }
            FeedItem::Event(_) => {}
            FeedItem::WorkspaceRemoved(id) => inner.forget(&id).await,
            FeedItem::Lagged => {
                let views: Vec<Arc<View>> = inner.views.read().values().cloned().collect();
                views.iter().for_each(|view| drop(view.lock()));
            }
        }
    }
}

/// How often what was seen is kept, if something was.
const KEEP_EVERY: Duration = Duration::from_secs(10);
/// A disk is not kept busier than this.
const KEPT_BYTES_PER_SECOND: usize = 4 << 20;

/// Says that nothing is kept any more, however that ends.
struct Closing(watch::Sender<bool>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.send_replace(true);
    }
}

async fn keep(inner: Weak<Inner>, mut stopping: watch::Receiver<bool>) {
    let Some(_closing) = inner.upgrade().map(|inner| Closing(inner.closed.clone())) else { return };
    let mut pause = KEEP_EVERY;
    loop {
        let Some(clock) = inner.upgrade().map(|inner| inner.env.clock.clone()) else { return };
        let stops = tokio::select! {
            () = clock.sleep(pause) => false,
            () = hub::stopped(&mut stopping) => true,
        };
        let Some(inner) = inner.upgrade() else { return };
        let written = inner.keep_all();
        if stops {
            return;
        }
        pause = KEEP_EVERY.max(Duration::from_secs((written / KEPT_BYTES_PER_SECOND) as u64));
    }
}

impl Inner {
    /// Writes down what has changed; says how many bytes that were.
    fn keep_all(&self) -> usize {
        let views: Vec<Arc<View>> = self.views.read().values().cloned().collect();
        views.iter().map(|view| self.keep(view)).sum()
    }

    fn keep(&self, view: &View) -> usize {
        let (Some(directory), Some(kept)) = (&self.directory, view.to_keep()) else { return 0 };
        if kept.meta.clusters.is_empty() {
            self.remove_file(&view.id);
            return 0;
        }
        let bytes = kept.encode();
        let files = &self.env.files;
        let path = directory.join(view.id.0.as_str());
        let written = files.create_dir_all(directory).and_then(|()| files.write_atomic(&path, &bytes, true));
        if let Err(error) = written {
            tracing::warn!(path = %path.display(), %error, "cannot keep what was seen of members");
            view.changed.store(true, Ordering::Relaxed);
        }
        bytes.len()
    }

    async fn forget(&self, id: &WorkspaceId) {
        if self.views.write().remove(id).is_none() {
            return;
        }
        if let Err(error) = self.memory.remove_workspace(id).await {
            tracing::error!(workspace = %id, %error, "a view was not forgotten");
        }
        self.remove_file(id);
    }

    fn remove_file(&self, id: &WorkspaceId) {
        let Some(directory) = &self.directory else { return };
        // It may never have been written.
        let _ = self.env.files.remove(&directory.join(id.0.as_str()));
    }
}
