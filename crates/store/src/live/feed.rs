//! The change feed: one queue of all events, which also bounds the memory of the rings.

use std::{collections::VecDeque, sync::Arc};

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

/// All events of all topics in the order of their publication. The oldest leaves, also its topic's ring, when all
/// together weigh more than the budget.
pub(super) struct Queue {
    budget: usize,
    entries: Mutex<Entries>,
    grown: Notify,
}

#[derive(Default)]
struct Entries {
    queue: VecDeque<Entry>,
    /// The number of the entry at the front; entries are numbered from 0 for ever.
    first: u64,
    weight: usize,
}

enum Entry {
    Event(Arc<Topic>, Arc<Event>),
    WorkspaceRemoved(WorkspaceId),
    /// What happened here is not known.
    Gap,
}

impl Entry {
    /// The memory that goes when this entry goes. An object that was put is alive, or is the `old` of a later
    /// entry and weighs there; so an entry holds the state before it, and its copy of what it removed.
    fn weight(&self) -> usize {
        const OVERHEAD: usize = 256;
        let Entry::Event(_, event) = self else { return OVERHEAD };
        let weight_of = |object: &Arc<Object>| object.weight();
        let removed = match &event.change {
            EventChange::Removed(object) => object.weight(),
            EventChange::Put(_) => 0,
        };
        OVERHEAD + removed + event.old.as_ref().map_or(0, weight_of)
    }
}

impl Entries {
    fn push(&mut self, entry: Entry) {
        self.weight += entry.weight();
        self.queue.push_back(entry);
    }

    fn pop(&mut self) -> Option<Entry> {
        let entry = self.queue.pop_front()?;
        self.first += 1;
        self.weight -= entry.weight();
        Some(entry)
    }

    fn evict(&mut self, budget: usize) {
        while self.weight > budget {
            let Some(entry) = self.pop() else { return };
            if let Entry::Event(topic, event) = &entry {
                topic.ring.write().drop_upto(event.revision);
            }
        }
    }

    /// Lets go of events that no ring has any more, from the oldest on.
    fn evict_forgotten(&mut self) {
        let (mut seen, mut forgotten) = (0, 0);
        for entry in &self.queue {
            seen += 1;
            match entry {
                Entry::Event(topic, event) if event.revision > topic.ring.read().dropped => break,
                Entry::Event(..) => forgotten = seen,
                // Goes with what is behind it.
                Entry::WorkspaceRemoved(_) | Entry::Gap => {}
            }
        }
        for _ in 0..forgotten {
            self.pop();
        }
        // What a burst needed is not kept for the next one.
        if self.queue.len() < self.queue.capacity() / 4 {
            self.queue.shrink_to(2 * self.queue.len());
        }
    }
}

impl Queue {
    pub(super) fn new(budget: usize) -> Self {
        Self { budget, entries: Mutex::default(), grown: Notify::new() }
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

    /// After rings have dropped events because their history is forgotten: otherwise it would be remembered here until
    /// there is enough else. A reader that has not come that far has lagged.
    pub(super) fn forget(&self) {
        self.entries.lock().evict_forgotten();
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
    next: u64,
}

impl Feed {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let next = {
            let entries = shared.queue.entries.lock();
            entries.first + entries.queue.len() as u64
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
        let Some(index) = self.next.checked_sub(entries.first) else {
            self.next = entries.first + entries.queue.len() as u64;
            return Some(FeedItem::Lagged);
        };
        let entry = entries.queue.get(index as usize)?;
        self.next += 1;
        Some(match entry {
            Entry::Event(_, event) => FeedItem::Event(event.clone()),
            Entry::WorkspaceRemoved(workspace) => FeedItem::WorkspaceRemoved(workspace.clone()),
            Entry::Gap => FeedItem::Lagged,
        })
    }
}
