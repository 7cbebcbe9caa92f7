//! Commits on their way: validated and applied to a copy, then published or thrown away.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, atomic::Ordering},
};

use machinery::{EventType, Revision};

use super::{Expiry, Item, Live, Place, State, Topic, Workspace};
use crate::{Change, Commit, Committed, Error, Event, EventChange, Expect, Key, WorkspaceId, Write};

/// Where an engine writes records down while a stage takes them in.
pub trait Journal {
    /// Takes a record whose commit has been validated. `previous` is what it replaces or removes.
    fn record(&mut self, event: &Event, expires: Expiry, previous: Option<&Item>) -> Place;
}

/// For engines that write nothing down.
pub struct NoJournal;

impl Journal for NoJournal {
    fn record(&mut self, _event: &Event, _expires: Expiry, _previous: Option<&Item>) -> Place {
        Place::default()
    }
}

/// A batch of commits, each seeing the ones before it, that nobody else sees until it is published. Dropping it
/// leaves no trace.
pub struct Stage {
    live: Live,
    workspaces: HashMap<WorkspaceId, Staged>,
    events: Vec<(Arc<Topic>, Arc<Event>)>,
    expiries: Vec<(Key, WorkspaceId, Expiry, Expiry)>,
}

struct Staged {
    workspace: Arc<Workspace>,
    state: State,
}

impl Stage {
    pub fn new(live: &Live) -> Self {
        Self { live: live.clone(), workspaces: HashMap::new(), events: Vec::new(), expiries: Vec::new() }
    }

    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Gives `commit` the next revisions, or changes nothing.
    pub fn commit(
        &mut self,
        id: &WorkspaceId,
        commit: &Commit,
        journal: &mut impl Journal,
    ) -> Result<Vec<Committed>, Error> {
        check_shape(commit.writes.iter())?;
        let head = self.staged(id).state.head;
        let count = commit.writes.len() as u64;
        if head.seq() + count >= 1 << 36 {
            return Err(Error::Unavailable(format!("epoch {} has no revisions left", head.epoch())));
        }
        let end = Revision::from_u64(head.as_u64() + count)
            .ok_or_else(|| Error::Unavailable("the last epoch has no revisions left".to_owned()))?;
        let staged = self.staged(id);
        for (key, expect) in &commit.guards {
            staged.check(key, *expect)?;
        }
        for write in &commit.writes {
            staged.check_write(write)?;
        }
        let start = head.next();
        Ok(self.apply(id, start, end, commit.writes.iter(), journal))
    }

    /// Takes over a commit at the revisions a leader gave it, or changes nothing.
    pub fn commit_at(
        &mut self,
        id: &WorkspaceId,
        after: Revision,
        records: &[(Revision, Write)],
        journal: &mut impl Journal,
    ) -> Result<(), Error> {
        check_shape(records.iter().map(|(_, write)| write))?;
        let (start, end) = (records[0].0, records[records.len() - 1].0);
        let staged = self.staged(id);
        let head = staged.state.head;
        let continues = start.as_u64() == head.as_u64() + 1 && start.seq() > 0;
        let begins_epoch = start.epoch() > head.epoch() && start.seq() == 1;
        let consecutive = records.windows(2).all(|pair| pair[0].0.as_u64() + 1 == pair[1].0.as_u64());
        if after != head || !(continues || begins_epoch) || !consecutive || start.epoch() != end.epoch() {
            return Err(Error::Discontinuous { head });
        }
        for (_, write) in records {
            staged.check_write(write)?;
        }
        if begins_epoch {
            let epoch_start = Revision::start_of_epoch(start.epoch());
            staged.state.epochs = staged.state.epochs.followed_by(head, epoch_start);
        }
        self.apply(id, start, end, records.iter().map(|(_, write)| write), journal);
        Ok(())
    }

    fn staged(&mut self, id: &WorkspaceId) -> &mut Staged {
        let live = &self.live;
        self.workspaces.entry(id.clone()).or_insert_with(|| {
            let workspace = live.workspace_or_new(id);
            let state = State::clone(&workspace.state.load());
            Staged { workspace, state }
        })
    }

    fn apply<'w>(
        &mut self,
        id: &WorkspaceId,
        start: Revision,
        end: Revision,
        writes: impl Iterator<Item = &'w Write>,
        journal: &mut impl Journal,
    ) -> Vec<Committed> {
        let Some(staged) = self.workspaces.get_mut(id) else { return Vec::new() };
        let mut committed = Vec::with_capacity((end.as_u64() - start.as_u64()) as usize + 1);
        let mut revision = start;
        for write in writes {
            let topic = staged.workspace.topic_or_new(&write.key.collection);
            let shelf = staged.state.shelf_mut(&topic);
            shelf.changed = end;
            let items = &mut shelf.items;
            let previous = match write.change {
                Change::Put { .. } => items.get(&write.key.item).cloned(),
                Change::Remove => items.remove(&write.key.item),
            };
            let expires = match &write.change {
                Change::Put { expires, .. } => Expiry::of(*expires),
                Change::Remove => Expiry::NEVER,
            };
            let event = event_of(id, write, revision, (start, end), previous.as_ref());
            let place = journal.record(&event, expires, previous.as_ref());
            if let EventChange::Put(object) = &event.change {
                let item = Item { object: object.clone(), place, expires };
                items.insert(write.key.item.clone(), item);
            }
            let expired_before = previous.map_or(Expiry::NEVER, |item| item.expires);
            if expired_before != expires {
                self.expiries.push((write.key.clone(), id.clone(), expired_before, expires));
            }
            committed.push(Committed { revision, object: event.object().clone() });
            self.events.push((topic, Arc::new(event)));
            if revision < end {
                revision = revision.next();
            }
        }
        staged.state.head = end;
        committed
    }
}

impl Staged {
    fn current(&self, key: &Key) -> Option<&Item> {
        let topic = self.workspace.topic(&key.collection)?;
        self.state.items(&topic)?.get(&key.item)
    }

    fn check(&self, key: &Key, expect: Expect) -> Result<(), Error> {
        let holds = match (expect, self.current(key)) {
            (Expect::Anything, _) | (Expect::Absent, None) => true,
            (Expect::At(revision), Some(item)) => item.object.revision == revision,
            (Expect::Absent, Some(_)) | (Expect::At(_), None) => false,
        };
        if holds { Ok(()) } else { Err(self.conflict(key)) }
    }

    fn check_write(&self, write: &Write) -> Result<(), Error> {
        self.check(&write.key, write.expect)?;
        match write.change {
            Change::Remove if self.current(&write.key).is_none() => Err(self.conflict(&write.key)),
            _ => Ok(()),
        }
    }

    fn conflict(&self, key: &Key) -> Error {
        let current = self.current(key).map(|item| item.object.clone());
        Error::Conflict { key: key.clone(), current }
    }
}

fn check_shape<'w>(writes: impl ExactSizeIterator<Item = &'w Write>) -> Result<(), Error> {
    match writes.len() {
        0 => return Err(Error::Invalid("no writes")),
        1 => return Ok(()),
        _ => {}
    }
    let mut seen = HashSet::new();
    for write in writes {
        if !seen.insert(&write.key) {
            return Err(Error::Invalid("a key is written twice"));
        }
    }
    Ok(())
}

fn event_of(
    id: &WorkspaceId,
    write: &Write,
    revision: Revision,
    (commit_start, commit_end): (Revision, Revision),
    previous: Option<&Item>,
) -> Event {
    let old = previous.map(|item| item.object.clone());
    let change = match (&write.change, &old) {
        (Change::Put { draft, .. }, None) => {
            EventChange::Put(Arc::new(draft.seal(revision, EventType::Added)))
        }
        (Change::Put { draft, .. }, Some(_)) => {
            EventChange::Put(Arc::new(draft.seal(revision, EventType::Modified)))
        }
        (Change::Remove, Some(old)) => {
            EventChange::Removed(Arc::new(old.with_revision(revision, EventType::Deleted)))
        }
        (Change::Remove, None) => unreachable!("a removal of nothing is refused before"),
    };
    Event { workspace: id.clone(), key: write.key.clone(), revision, commit_start, commit_end, old, change }
}

impl Live {
    /// Makes a stage visible. See the module's head for the order of things.
    pub fn publish(&self, stage: Stage) {
        if stage.is_empty() {
            return;
        }
        for (topic, event) in &stage.events {
            topic.ring.write().events.push_back(event.clone());
            topic.touched.store(true, Ordering::Release);
        }
        for staged in stage.workspaces.into_values() {
            if staged.state.head != staged.workspace.state.load().head {
                staged.workspace.state.store(Arc::new(staged.state));
            }
        }
        let mut woken = HashSet::new();
        for (topic, _) in &stage.events {
            if woken.insert(Arc::as_ptr(topic)) {
                topic.changed.notify_waiters();
            }
        }
        if !stage.expiries.is_empty() {
            let mut expiries = self.shared.expiries.lock();
            for (key, id, before, after) in stage.expiries {
                let mut entry = (before, id, key);
                expiries.remove(&entry);
                if after != Expiry::NEVER {
                    entry.0 = after;
                    expiries.insert(entry);
                }
            }
        }
        self.shared.queue.append(stage.events.into_iter());
    }

    /// Where compacting `id` up to `upto` would leave its history; `None` if it changes nothing.
    pub fn compaction(&self, id: &WorkspaceId, upto: Revision) -> Result<Option<Revision>, Error> {
        let Some(workspace) = self.workspace(id) else { return Ok(None) };
        let state = workspace.state.load();
        let upto = state.epochs.resume(upto, state.head)?;
        Ok((upto > state.forgotten).then_some(upto))
    }

    /// Forgets history, as [`Live::compaction`] said.
    pub fn compact(&self, id: &WorkspaceId, upto: Revision) {
        let Some(workspace) = self.workspace(id) else { return };
        let mut state = State::clone(&workspace.state.load());
        state.forgotten = upto;
        workspace.state.store(Arc::new(state));
        for topic in workspace.topics.read().values() {
            topic.ring.write().drop_upto(upto);
            topic.changed.notify_waiters();
        }
    }

    /// The head that `id` would have after beginning `epoch`.
    pub fn epoch_start(&self, id: &WorkspaceId, epoch: u32) -> Result<Revision, Error> {
        let head = self.head(id);
        if epoch <= head.epoch() || epoch >= 1 << 17 {
            return Err(Error::Discontinuous { head });
        }
        Ok(Revision::start_of_epoch(epoch))
    }

    /// Begins an epoch, as [`Live::epoch_start`] said.
    pub fn begin_epoch(&self, id: &WorkspaceId, start: Revision) {
        let workspace = self.workspace_or_new(id);
        let mut state = State::clone(&workspace.state.load());
        state.epochs = state.epochs.followed_by(state.head, start);
        state.head = start;
        workspace.state.store(Arc::new(state));
    }

    /// Forgets a workspace and ends its watches.
    pub fn remove_workspace(&self, id: &WorkspaceId) {
        let Some(workspace) = self.shared.workspaces.write().remove(id) else { return };
        workspace.removed.store(true, Ordering::Release);
        self.shared.expiries.lock().retain(|(_, owner, _)| owner != id);
        for topic in workspace.topics.read().values() {
            topic.changed.notify_waiters();
        }
        self.shared.queue.append_removal(id.clone());
    }
}
