//! What is committed, in memory: the part that every engine shares.
//!
//! ```text
//!   Live ── workspace ── State: head + one ordered map per collection (one lock, changed by whole commits)
//!     |         └─────── topic per collection: ring of recent events, wake-up of its watchers
//!     └── one queue of all events, oldest first: change feed, and the bound on the rings' memory; a workspace with
//!         few events keeps them in its rings beyond that, so that one that churns does not take them from it
//! ```
//!
//! An engine validates and applies commits to a [`Stage`], makes them durable, and then *publishes* the stage. One
//! thread publishes at a time; any number read.
//!
//! # Why readers never see a half
//!
//! For each commit a publication 1. appends the events to the rings of their topics, 2. changes the workspace's
//! [`State`], maps and head together, under its lock; for the whole batch it then 3. wakes the watchers and
//! 4. appends to the feed. Because of the lock, `get` and `list` see all of a commit or nothing of it, also across
//! collections, and a head is always the end of a commit. The lock is held for a microsecond: a list takes a free
//! snapshot of a persistent map and reads it after letting go. Nodes of the map are copied only while somebody holds
//! a snapshot; without one a write changes them in place, which is what makes it cheap.
//!
//! A watch loads the head H *before* it looks at the ring and takes only events up to H. Events up to H were in
//! their rings before H could be loaded (1 before 2), so none is missing unless it was evicted, which the ring
//! remembers. Events after H belong to commits that lists do not show yet and are left for the next time. A list at
//! H followed by a watch after H therefore has neither gap nor overlap.
//!
//! A watcher registers for its wake-up before it looks; a publication wakes after it changed the state. Either the
//! look sees the new head or the wake-up comes.
//!
//! # Locks
//!
//! Whoever holds the lock of a state, of a ring or of the topics takes no other. Before those may come the lock of the
//! workspaces or of the queue.

mod feed;
mod history;
mod listing;
mod stage;
mod watch;

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use jiff::Timestamp;
use machinery::{Object, Revision};
use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;

use crate::{Bounds, Collection, Error, Event, ItemKey, Key, Span, Usage, WorkspaceId};

pub use feed::{Feed, FeedItem};
pub use history::{Epochs, PastEpoch};
pub use listing::Listing;
pub use stage::{Followed, Journal, NoJournal, Stage, object_from};
pub use watch::{Batch, Watch};

/// Where a record lies in an engine's log; 0 for engines that have none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place(pub u64);

/// When an object goes by itself: microseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Expiry(pub i64);

impl Expiry {
    pub const NEVER: Expiry = Expiry(i64::MAX);

    pub fn of(time: Option<Timestamp>) -> Self {
        time.map_or(Self::NEVER, |time| Self(time.as_microsecond()))
    }
}

/// A live object and what the store knows about it beside its content.
#[derive(Clone, Debug)]
pub struct Item {
    pub object: Arc<Object>,
    pub place: Place,
    pub expires: Expiry,
}

/// The live objects of one collection.
pub type Items = imbl::OrdMap<ItemKey, Item>;

/// One collection at one commit end.
#[derive(Clone, Default)]
struct Shelf {
    items: Items,
    /// The end of the last commit that touched it; zero if none did.
    changed: Revision,
}

/// Everything that readers of one workspace see, at one commit end.
#[derive(Clone)]
pub struct State {
    /// The end of the last commit.
    pub head: Revision,
    /// The history up to here is gone by request. The origin if nothing was compacted.
    pub forgotten: Revision,
    pub epochs: Epochs,
    pub usage: Usage,
    /// By [`Topic::index`]; a collection beyond the end is empty.
    shelves: Vec<Shelf>,
}

impl State {
    fn starting_at(origin: Revision) -> Self {
        Self {
            head: origin,
            forgotten: origin,
            epochs: Epochs::starting_at(origin),
            usage: Usage::default(),
            shelves: Vec::new(),
        }
    }

    fn items(&self, topic: &Topic) -> Option<&Items> {
        self.shelves.get(topic.index).map(|shelf| &shelf.items)
    }

    fn shelf_mut(&mut self, topic: &Topic) -> &mut Shelf {
        if self.shelves.len() <= topic.index {
            self.shelves.resize_with(topic.index + 1, Shelf::default);
        }
        &mut self.shelves[topic.index]
    }

    /// The position from which a reader that has seen everything up to `after` goes on.
    fn resume(&self, after: Revision) -> Result<Revision, Error> {
        let position = self.epochs.resume(after, self.head)?;
        if position < self.forgotten {
            return Err(Error::Expired { oldest: self.forgotten });
        }
        Ok(position)
    }
}

/// A workspace as an engine loads it when it starts.
pub struct Loaded {
    pub head: Revision,
    pub forgotten: Revision,
    pub epochs: Epochs,
    pub collections: Vec<(Collection, Items)>,
}

/// A workspace as it was at one commit end, for whoever writes it down. Costs nothing but what changes meanwhile.
pub struct Snapshot {
    workspace: Arc<Workspace>,
    state: State,
}

impl Snapshot {
    pub fn id(&self) -> &WorkspaceId {
        &self.workspace.id
    }

    pub fn state(&self) -> &State {
        &self.state
    }

    /// The collections that hold, or have held, objects, in order.
    pub fn collections(&self) -> Vec<(Collection, Items)> {
        let topics = self.workspace.topics.read();
        let touched = topics.values().filter(|topic| topic.touched.load(Ordering::Acquire));
        let with_items = |topic: &Arc<Topic>| {
            let items = self.state.items(topic).cloned().unwrap_or_default();
            (topic.collection.clone(), items)
        };
        let mut collections: Vec<_> = touched.map(with_items).collect();
        collections.sort_by(|(left, _), (right, _)| left.cmp(right));
        collections
    }
}

/// One workspace. Outlives its removal for as long as a watch holds it.
struct Workspace {
    id: WorkspaceId,
    state: RwLock<State>,
    topics: RwLock<HashMap<Collection, Arc<Topic>>>,
    /// Events up to here never were in this process's memory.
    memory_from: Revision,
    /// What its rings hold beyond the queue's budget.
    spared: Arc<feed::Spared>,
    removed: AtomicBool,
}

/// One collection of a workspace, as watchers know it.
struct Topic {
    collection: Collection,
    index: usize,
    ring: RwLock<Ring>,
    changed: Notify,
    /// So many there are.
    watches: AtomicUsize,
    /// Holds, or has held, objects.
    touched: AtomicBool,
    spared: Arc<feed::Spared>,
}

/// The recent events of a topic, oldest first.
struct Ring {
    events: VecDeque<Arc<Event>>,
    /// So many of the first have left the queue, and stay because their workspace has few.
    spared: usize,
    /// The newest revision that is no longer, or never was, in `events`.
    dropped: Revision,
}

impl Ring {
    /// The index of the first event after `position`.
    fn after(&self, position: Revision) -> usize {
        self.events.partition_point(|event| event.revision <= position)
    }

    fn drop_upto(&mut self, upto: Revision, spared: &feed::Spared) {
        while let Some(event) = self.events.pop_front_if(|event| event.revision <= upto) {
            self.dropped = event.revision;
            if self.spared > 0 {
                self.spared -= 1;
                spared.release(feed::weight_of(&event));
            }
        }
        if self.events.is_empty() {
            self.events = VecDeque::new();
        }
    }
}

impl Workspace {
    fn new(id: WorkspaceId, state: State, queue: &feed::Queue) -> Self {
        Self {
            id,
            spared: Arc::new(queue.spared()),
            memory_from: state.head,
            state: RwLock::new(state),
            topics: RwLock::default(),
            removed: AtomicBool::new(false),
        }
    }

    fn topic(&self, collection: &Collection) -> Option<Arc<Topic>> {
        self.topics.read().get(collection).cloned()
    }

    fn topic_or_new(&self, collection: &Collection) -> Arc<Topic> {
        if let Some(topic) = self.topic(collection) {
            return topic;
        }
        let mut topics = self.topics.write();
        let index = topics.len();
        let ring = Ring { events: VecDeque::new(), spared: 0, dropped: self.memory_from };
        let topic = topics.entry(collection.clone()).or_insert_with(|| {
            Arc::new(Topic {
                collection: collection.clone(),
                index,
                ring: RwLock::new(ring),
                changed: Notify::new(),
                watches: AtomicUsize::new(0),
                touched: AtomicBool::new(false),
                spared: self.spared.clone(),
            })
        });
        topic.clone()
    }

    fn all_topics(&self) -> Vec<Arc<Topic>> {
        self.topics.read().values().cloned().collect()
    }

    fn has_history(&self) -> bool {
        let state = self.state.read();
        state.head > state.epochs.origin() || state.forgotten > state.epochs.origin()
    }
}

/// Reads events that have left memory, from wherever the engine keeps them.
pub trait Archive: Send + Sync + 'static {
    /// The position after which every record of `workspace` can still be read; `None`: from its origin.
    fn floor(&self, workspace: &WorkspaceId) -> Option<Revision>;

    /// The first `max` events of a collection with `after` < revision <= `upto`, in order; fewer only if there are
    /// no more.
    fn read(
        &self,
        workspace: &WorkspaceId,
        collection: &Collection,
        after: Revision,
        upto: Revision,
        max: usize,
    ) -> Result<Vec<Arc<Event>>, Error>;
}

/// How much a live state remembers, and where histories begin.
pub struct Options {
    /// Workspaces without a history stand before the first revision of this epoch.
    pub first_epoch: u32,
    /// Bytes of history held in memory, over all workspaces.
    pub ring_bytes: usize,
    pub archive: Option<Arc<dyn Archive>>,
    /// What each workspace may hold, but for those that are not bounded.
    pub bounds: Bounds,
    pub unbounded: Vec<WorkspaceId>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            first_epoch: 1,
            ring_bytes: 64 << 20,
            archive: None,
            bounds: Bounds::NONE,
            unbounded: Vec::new(),
        }
    }
}

struct Shared {
    origin: Revision,
    workspaces: RwLock<HashMap<WorkspaceId, Arc<Workspace>>>,
    queue: feed::Queue,
    expiries: Mutex<BTreeSet<(Expiry, WorkspaceId, Key)>>,
    archive: Option<Arc<dyn Archive>>,
    bounds: Bounds,
    unbounded: Vec<WorkspaceId>,
}

/// The committed state of all workspaces. Cheap to clone; clones share.
#[derive(Clone)]
pub struct Live {
    shared: Arc<Shared>,
}

impl Live {
    pub fn new(options: Options) -> Self {
        let shared = Shared {
            origin: Revision::start_of_epoch(options.first_epoch),
            workspaces: RwLock::default(),
            queue: feed::Queue::new(options.ring_bytes),
            expiries: Mutex::default(),
            archive: options.archive,
            bounds: options.bounds,
            unbounded: options.unbounded,
        };
        Self { shared: Arc::new(shared) }
    }

    fn workspace(&self, id: &WorkspaceId) -> Option<Arc<Workspace>> {
        self.shared.workspaces.read().get(id).cloned()
    }

    fn workspace_or_new(&self, id: &WorkspaceId) -> Arc<Workspace> {
        if let Some(workspace) = self.workspace(id) {
            return workspace;
        }
        let state = || State::starting_at(self.shared.origin);
        let new = || Arc::new(Workspace::new(id.clone(), state(), &self.shared.queue));
        self.shared.workspaces.write().entry(id.clone()).or_insert_with(new).clone()
    }

    pub fn head(&self, id: &WorkspaceId) -> Revision {
        self.workspace(id).map_or(self.shared.origin, |workspace| workspace.state.read().head)
    }

    pub fn get(&self, id: &WorkspaceId, key: &Key) -> Option<Arc<Object>> {
        self.item(id, key).map(|item| item.object)
    }

    fn item(&self, id: &WorkspaceId, key: &Key) -> Option<Item> {
        let workspace = self.workspace(id)?;
        let topic = workspace.topic(&key.collection)?;
        let state = workspace.state.read();
        state.items(&topic)?.get(&key.item).cloned()
    }

    /// Where a workspace stands, up to where its history is gone, and its epochs; `None` if it has no history.
    pub fn position(&self, id: &WorkspaceId) -> Option<(Revision, Revision, Epochs)> {
        let workspace = self.workspace(id)?;
        let state = workspace.state.read();
        Some((state.head, state.forgotten, state.epochs.clone()))
    }

    /// The position before the first record of a history that has not begun.
    pub fn origin(&self) -> Revision {
        self.shared.origin
    }

    /// What the engine keeps about an object.
    pub fn place(&self, id: &WorkspaceId, key: &Key) -> Option<Place> {
        self.item(id, key).map(|item| item.place)
    }

    /// Whether there is anything to forget about `id`.
    pub fn knows(&self, id: &WorkspaceId) -> bool {
        self.workspace(id).is_some()
    }

    pub fn list(
        &self,
        id: &WorkspaceId,
        collection: &Collection,
        at: Option<Revision>,
    ) -> Result<Listing, Error> {
        let Some(workspace) = self.workspace(id) else {
            let state = State::starting_at(self.shared.origin);
            at.map_or(Ok(state.head), |at| state.resume(at))?;
            return Ok(Listing::new(state.head, Items::new()));
        };
        let topic = match at {
            Some(_) => Some(workspace.topic_or_new(collection)),
            None => workspace.topic(collection),
        };
        let (head, position, items) = {
            let state = workspace.state.read();
            let position = at.map_or(Ok(state.head), |at| state.resume(at))?;
            let items = topic.as_ref().and_then(|topic| state.items(topic));
            (state.head, position, items.cloned().unwrap_or_default())
        };
        let now = Listing::new(head, items);
        match topic {
            Some(topic) if position != head => now.undone_to(position, &self.shared, &workspace, &topic),
            _ => Ok(now),
        }
    }

    pub fn last_change(&self, id: &WorkspaceId, collection: &Collection) -> Revision {
        let Some(workspace) = self.workspace(id) else { return Revision::ZERO };
        let topic = workspace.topic(collection);
        let state = workspace.state.read();
        let shelf = topic.and_then(|topic| state.shelves.get(topic.index));
        shelf.map_or(Revision::ZERO, |shelf| shelf.changed)
    }

    pub fn usage(&self, id: &WorkspaceId) -> Usage {
        self.workspace(id).map_or(Usage::default(), |workspace| workspace.state.read().usage)
    }

    /// How many objects of each collection all workspaces have together.
    pub fn totals(&self) -> HashMap<Collection, u64> {
        let workspaces: Vec<_> = self.shared.workspaces.read().values().cloned().collect();
        let mut totals: HashMap<Collection, u64> = HashMap::new();
        for workspace in workspaces {
            for topic in workspace.all_topics() {
                let count = workspace.state.read().items(&topic).map_or(0, Items::len) as u64;
                match totals.get_mut(&topic.collection) {
                    Some(total) => *total += count,
                    None => drop(totals.insert(topic.collection.clone(), count)),
                }
            }
        }
        totals
    }

    fn bounds(&self, id: &WorkspaceId) -> Bounds {
        if self.shared.unbounded.contains(id) { Bounds::NONE } else { self.shared.bounds }
    }

    pub fn collections(&self, id: &WorkspaceId) -> Vec<Collection> {
        let Some(workspace) = self.workspace(id) else { return Vec::new() };
        let topics = workspace.topics.read();
        let touched = topics.values().filter(|topic| topic.touched.load(Ordering::Acquire));
        let mut collections: Vec<_> = touched.map(|topic| topic.collection.clone()).collect();
        collections.sort();
        collections
    }

    pub fn workspaces(&self) -> Vec<WorkspaceId> {
        let workspaces = self.shared.workspaces.read();
        let with_history = workspaces.values().filter(|workspace| workspace.has_history());
        let mut ids: Vec<_> = with_history.map(|workspace| workspace.id.clone()).collect();
        ids.sort();
        ids
    }

    pub fn watch(&self, id: &WorkspaceId, span: Span, after: Revision) -> Result<Watch, Error> {
        let workspace = self.workspace_or_new(id);
        let topic = workspace.topic_or_new(&span.collection);
        Watch::new(self.shared.clone(), workspace, topic, span, after)
    }

    /// Whether somebody watches a collection now.
    pub fn is_watched(&self, id: &WorkspaceId, collection: &Collection) -> bool {
        let topic = self.workspace(id).and_then(|workspace| workspace.topic(collection));
        topic.is_some_and(|topic| topic.watches.load(Ordering::Acquire) > 0)
    }

    pub fn feed(&self) -> Feed {
        Feed::new(self.shared.clone())
    }

    /// The objects that should be gone by `now`, with the revision at which they expire.
    pub fn due(&self, now: Timestamp, max: usize) -> Vec<(WorkspaceId, Key, Revision)> {
        let bound = Expiry(now.as_microsecond());
        let due: Vec<_> = {
            let expiries = self.shared.expiries.lock();
            expiries.iter().take_while(|(expiry, ..)| *expiry <= bound).take(max).cloned().collect()
        };
        // Somebody may have written the object anew in the meantime, to live longer.
        let still_due = |(_, id, key): (Expiry, WorkspaceId, Key)| {
            let item = self.item(&id, &key).filter(|item| item.expires <= bound)?;
            Some((id, key, item.object.revision))
        };
        due.into_iter().filter_map(still_due).collect()
    }

    /// What `id` is right now, at one commit end; `None` if it has no history.
    pub fn snapshot(&self, id: &WorkspaceId) -> Option<Snapshot> {
        let workspace = self.workspace(id).filter(|workspace| workspace.has_history())?;
        let state = workspace.state.read().clone();
        Some(Snapshot { workspace, state })
    }

    /// What every workspace with a history is right now. Only whoever publishes may ask, so that all are of one
    /// moment; it costs two pointers each.
    pub fn snapshots(&self) -> Vec<Snapshot> {
        let workspaces = self.shared.workspaces.read();
        let with_history = workspaces.values().filter(|workspace| workspace.has_history());
        let snapshot = |workspace: &Arc<Workspace>| Snapshot {
            workspace: workspace.clone(),
            state: workspace.state.read().clone(),
        };
        let mut snapshots: Vec<_> = with_history.map(snapshot).collect();
        snapshots.sort_by(|left, right| left.id().cmp(right.id()));
        snapshots
    }

    /// Puts a workspace in place of what is known of it, when it is not known what happened in between: whoever
    /// watches it must begin again, and so must whoever reads the feed.
    pub fn replace(&self, id: &WorkspaceId, loaded: Loaded) {
        if let Some(old) = self.shared.workspaces.write().remove(id) {
            self.retire(&old);
        }
        self.load(id, loaded);
        self.shared.queue.append_gap();
    }

    /// Puts a workspace in place that was read back. Nothing may be known of it.
    pub fn load(&self, id: &WorkspaceId, loaded: Loaded) {
        let mut state = State::starting_at(self.shared.origin);
        (state.head, state.forgotten, state.epochs) = (loaded.head, loaded.forgotten, loaded.epochs);
        let workspace = Workspace::new(id.clone(), state.clone(), &self.shared.queue);
        let mut expiries = self.shared.expiries.lock();
        for (collection, items) in loaded.collections {
            let topic = workspace.topic_or_new(&collection);
            topic.touched.store(true, Ordering::Release);
            for (name, item) in items.iter().filter(|(_, item)| item.expires != Expiry::NEVER) {
                let key = Key { collection: collection.clone(), item: name.clone() };
                expiries.insert((item.expires, id.clone(), key));
            }
            for item in items.values() {
                state.usage.objects += 1;
                state.usage.bytes += item.object.body_slice().len() as u64;
            }
            // From what is empty, nothing can have been computed before.
            let changed = if items.is_empty() { Revision::ZERO } else { loaded.head };
            *state.shelf_mut(&topic) = Shelf { items, changed };
        }
        *workspace.state.write() = state;
        self.shared.workspaces.write().insert(id.clone(), Arc::new(workspace));
    }
}
