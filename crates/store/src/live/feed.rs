//! The change feed: one queue of all events, which also bounds the memory of the rings.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use machinery::Object;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{Shared, Topic};
use crate::{Event, EventChange, WorkspaceId};

/// What happened next, in any workspace.
#[derive(Clone, Debug)]
pub enum FeedItem {
    Event(Arc<Event>),
    WorkspaceRemoved(WorkspaceId),
    /// The reader was too slow and has missed something: it must look at everything again.
    Lagged,
}

/// All events of all topics in the order of their publication. The oldest leaves when all together weigh more than the
/// budget, and with it its topic's ring, unless its workspace has little there.
pub(super) struct Queue {
    budget: usize,
    entries: Mutex<Entries>,
    grown: Notify,
    /// What all workspaces are spared.
    spared: Arc<AtomicUsize>,
}

/// What stays in the rings of one workspace after it has left the queue: a small share for each, so that one that
/// churns does not take the others' recent history from memory. It goes when it is compacted.
pub(super) struct Spared {
    share: usize,
    most: usize,
    own: AtomicUsize,
    all: Arc<AtomicUsize>,
}

/// Of the budget: what each workspace is spared at most, and all of them together.
const SHARES: usize = 1024;
const SPARED_SHARES: usize = SHARES / 2;

impl Spared {
    /// Only whoever publishes spares, one at a time.
    fn try_take(&self, weight: usize) -> bool {
        let (own, all) = (self.own.load(Ordering::Relaxed), self.all.load(Ordering::Relaxed));
        let fits = own + weight <= self.share && all + weight <= self.most;
        if fits {
            self.own.fetch_add(weight, Ordering::Relaxed);
            self.all.fetch_add(weight, Ordering::Relaxed);
        }
        fits
    }

    pub(super) fn release(&self, weight: usize) {
        self.own.fetch_sub(weight, Ordering::Relaxed);
        self.all.fetch_sub(weight, Ordering::Relaxed);
    }
}

#[derive(Default)]
struct Entries {
    queue: VecDeque<Entry>,
    /// The number of the entry at the front; entries are numbered from 0 for ever.
    first: u64,
    weight: usize,
    /// Where the feeds are that are open.
    feeds: Vec<Weak<AtomicU64>>,
}

enum Entry {
    Event(Arc<Topic>, Arc<Event>),
    WorkspaceRemoved(WorkspaceId),
    /// What happened here is not known.
    Gap,
}

const OVERHEAD: usize = 256;

/// The memory that goes when an event goes. An object that was put is alive, or is the `old` of a later event and
/// weighs there; so an event holds the state before it, and its copy of what it removed.
pub(super) fn weight_of(event: &Event) -> usize {
    let weight = |object: &Arc<Object>| object.weight();
    let removed = match &event.change {
        EventChange::Removed(object) => object.weight(),
        EventChange::Put(_) => 0,
    };
    OVERHEAD + removed + event.old.as_ref().map_or(0, weight)
}

impl Entry {
    fn weight(&self) -> usize {
        match self {
            Entry::Event(_, event) => weight_of(event),
            Entry::WorkspaceRemoved(_) | Entry::Gap => OVERHEAD,
        }
    }

    /// Nobody but feeds needs it.
    fn has_left_its_ring(&self) -> bool {
        match self {
            Entry::Event(topic, event) => topic.ring.read().dropped >= event.revision,
            Entry::WorkspaceRemoved(_) | Entry::Gap => true,
        }
    }
}

impl Topic {
    /// An event leaves the queue: it stays in the ring if the workspace has little there.
    fn leave_queue(&self, event: &Event) {
        let mut ring = self.ring.write();
        if event.revision <= ring.dropped {
            return;
        }
        match self.spared.try_take(weight_of(event)) {
            true => ring.spared += 1,
            false => ring.drop_upto(event.revision, &self.spared),
        }
    }
}

impl Entries {
    fn push(&mut self, entry: Entry) {
        self.weight += entry.weight();
        self.queue.push_back(entry);
    }

    fn evict(&mut self, budget: usize) {
        while self.weight > budget {
            let Some(entry) = self.pop() else { return };
            if let Entry::Event(topic, event) = &entry {
                topic.leave_queue(event);
            }
        }
    }

    fn pop(&mut self) -> Option<Entry> {
        let entry = self.queue.pop_front()?;
        self.first += 1;
        self.weight -= entry.weight();
        Some(entry)
    }

    /// Every feed has had the entries before this one.
    fn read_by_all(&mut self) -> u64 {
        self.feeds.retain(|feed| feed.strong_count() > 0);
        let positions = self.feeds.iter().filter_map(Weak::upgrade);
        let end = self.first + self.queue.len() as u64;
        positions.map(|position| position.load(Ordering::Relaxed)).fold(end, u64::min)
    }
}

impl Queue {
    pub(super) fn new(budget: usize) -> Self {
        Self { budget, entries: Mutex::default(), grown: Notify::new(), spared: Arc::default() }
    }

    /// For the rings of a new workspace.
    pub(super) fn spared(&self) -> Spared {
        let share = self.budget / SHARES;
        Spared { share, most: share * SPARED_SHARES, own: AtomicUsize::new(0), all: self.spared.clone() }
    }

    /// Lets go of what has left its ring and was read by every feed. Looks no further than the first entry that stays.
    pub(super) fn sweep(&self) {
        let mut entries = self.entries.lock();
        let end = entries.read_by_all();
        while entries.first < end && entries.queue.front().is_some_and(Entry::has_left_its_ring) {
            entries.pop();
        }
        if entries.queue.len() < entries.queue.capacity() / 4 {
            entries.queue.shrink_to_fit();
        }
    }

    pub(super) fn append(&self, events: impl Iterator<Item = (Arc<Topic>, Arc<Event>)>) {
        let mut entries = self.entries.lock();
        for (topic, event) in events {
            entries.push(Entry::Event(topic, event));
        }
        entries.evict(self.budget);
        drop(entries);
        self.grown.notify_waiters();
    }

    pub(super) fn append_gap(&self) {
        self.entries.lock().push(Entry::Gap);
        self.grown.notify_waiters();
    }

    pub(super) fn append_removal(&self, workspace: WorkspaceId) {
        self.entries.lock().push(Entry::WorkspaceRemoved(workspace));
        self.grown.notify_waiters();
    }
}

/// Every record of every workspace since the feed was opened.
pub struct Feed {
    shared: Arc<Shared>,
    /// The number of the next entry.
    next: Arc<AtomicU64>,
}

impl Feed {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let next = {
            let mut entries = shared.queue.entries.lock();
            let next = Arc::new(AtomicU64::new(entries.first + entries.queue.len() as u64));
            entries.feeds.push(Arc::downgrade(&next));
            next
        };
        Self { shared, next }
    }

    /// Waits for the next item. Dropping the future loses nothing.
    pub async fn next(&mut self) -> FeedItem {
        let shared = self.shared.clone();
        loop {
            let woken = shared.queue.grown.notified();
            if let Some(item) = self.try_next() {
                return item;
            }
            woken.await;
        }
    }

    /// The next item if there is one.
    pub fn try_next(&mut self) -> Option<FeedItem> {
        let entries = self.shared.queue.entries.lock();
        let Some(index) = self.next.load(Ordering::Relaxed).checked_sub(entries.first) else {
            self.next.store(entries.first + entries.queue.len() as u64, Ordering::Relaxed);
            return Some(FeedItem::Lagged);
        };
        let entry = entries.queue.get(index as usize)?;
        self.next.fetch_add(1, Ordering::Relaxed);
        Some(match entry {
            Entry::Event(_, event) => FeedItem::Event(event.clone()),
            Entry::WorkspaceRemoved(workspace) => FeedItem::WorkspaceRemoved(workspace.clone()),
            Entry::Gap => FeedItem::Lagged,
        })
    }
}
