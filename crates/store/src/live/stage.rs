//! Commits on their way: validated against what the stage adds up to, then published or thrown away.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, atomic::Ordering},
};

use machinery::{EventType, Object, Revision};

use super::{Epochs, Expiry, Item, Live, Place, Topic, Workspace};
use crate::{
    Bounds, Change, Commit, Committed, Error, Event, EventChange, Expect, Key, Usage, WorkspaceId, Write,
};

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

/// A record that another process made.
pub struct Followed {
    pub revision: Revision,
    pub key: Key,
    /// What was put; `None`: removed.
    pub put: Option<Item>,
}

/// Reads an object as an engine keeps it. What replaces nothing is sent as ADDED.
pub fn object_from(body: &[u8], replaces: bool) -> Result<Arc<Object>, machinery::ObjectError> {
    let event = if replaces { EventType::Modified } else { EventType::Added };
    Object::from_body(body, event).map(Arc::new)
}

/// A batch of commits, each seeing the ones before it, that nobody else sees until it is published. Dropping it
/// leaves no trace.
pub struct Stage {
    live: Live,
    workspaces: HashMap<WorkspaceId, Staged>,
    commits: Vec<StagedCommit>,
}

/// A workspace as the stage has changed it so far.
struct Staged {
    workspace: Arc<Workspace>,
    head: Revision,
    epochs: Epochs,
    usage: Usage,
    bounds: Bounds,
    /// What keys are now, where that is not what the live state says.
    changed: HashMap<Key, Option<Item>>,
}

/// A commit that is to be published.
struct StagedCommit {
    workspace: Arc<Workspace>,
    end: Revision,
    epochs: Epochs,
    /// Of the workspace, with this.
    usage: Usage,
    records: Vec<StagedRecord>,
}

struct StagedRecord {
    topic: Arc<Topic>,
    event: Arc<Event>,
    place: Place,
    expires: Expiry,
    expired_before: Expiry,
}

impl Stage {
    pub fn new(live: &Live) -> Self {
        Self { live: live.clone(), workspaces: HashMap::new(), commits: Vec::new() }
    }

    pub fn is_empty(&self) -> bool {
        self.commits.is_empty()
    }

    /// Gives `commit` the next revisions, or changes nothing.
    pub fn commit(
        &mut self,
        id: &WorkspaceId,
        commit: &Commit,
        journal: &mut impl Journal,
    ) -> Result<Vec<Committed>, Error> {
        check_shape(commit.writes.iter())?;
        let staged = self.staged(id);
        let head = staged.head;
        let end = head.seq() + commit.writes.len() as u64;
        let end = (end < 1 << 36).then(|| Revision::from_u64(head.as_u64() - head.seq() + end)).flatten();
        let end =
            end.ok_or_else(|| Error::Unavailable(format!("epoch {} has no revisions left", head.epoch())))?;
        for (key, expect) in &commit.guards {
            check(key, *expect, staged.current(key))?;
        }
        let previous = staged.check_writes(commit.writes.iter())?;
        staged.check_room(&commit.writes, &previous, end)?;
        let staged_commit = staged.apply(id, (head.next(), end), commit.writes.iter(), previous, journal);
        let committed = |record: &StagedRecord| Committed {
            revision: record.event.revision,
            object: record.event.object().clone(),
        };
        let answer = staged_commit.records.iter().map(committed).collect();
        self.commits.push(staged_commit);
        Ok(answer)
    }

    /// Takes over a commit at the revisions a leader gave it, or changes nothing.
    pub fn commit_at(
        &mut self,
        id: &WorkspaceId,
        after: Revision,
        records: &[(Revision, Write)],
        journal: &mut impl Journal,
    ) -> Result<(), Error> {
        let writes = || records.iter().map(|(_, write)| write);
        check_shape(writes())?;
        let (start, end) = (records[0].0, records[records.len() - 1].0);
        let staged = self.staged(id);
        let head = staged.head;
        staged.continues(after, records.iter().map(|(revision, _)| *revision))?;
        let previous = staged.check_writes(writes())?;
        staged.begin_epoch_of(head, start);
        let staged_commit = staged.apply(id, (start, end), writes(), previous, journal);
        self.commits.push(staged_commit);
        Ok(())
    }

    /// Takes in a commit that another process made, object by object as it stored them, or changes nothing.
    pub fn follow(&mut self, id: &WorkspaceId, records: Vec<Followed>) -> Result<(), Error> {
        let staged = self.staged(id);
        let head = staged.head;
        let (Some(first), Some(last)) = (records.first(), records.last()) else {
            return Err(Error::Invalid("no records"));
        };
        let bounds = (first.revision, last.revision);
        staged.continues(head, records.iter().map(|record| record.revision))?;
        let mut previous = Vec::with_capacity(records.len());
        for record in &records {
            let current = staged.current(&record.key);
            if record.put.is_none() && current.is_none() {
                return Err(Error::Conflict { key: record.key.clone(), current: None });
            }
            previous.push(current);
        }
        staged.begin_epoch_of(head, bounds.0);
        let mut taken = Vec::with_capacity(records.len());
        for (record, previous) in records.into_iter().zip(previous) {
            taken.push(staged.take_followed(id, record, bounds, previous));
        }
        staged.head = bounds.1;
        let (workspace, epochs, usage) = (staged.workspace.clone(), staged.epochs.clone(), staged.usage);
        self.commits.push(StagedCommit { workspace, end: bounds.1, epochs, usage, records: taken });
        Ok(())
    }

    /// Where `id` stands if the stage is published, and its epochs then.
    pub fn position(&mut self, id: &WorkspaceId) -> (Revision, Epochs) {
        let staged = self.staged(id);
        (staged.head, staged.epochs.clone())
    }

    fn staged(&mut self, id: &WorkspaceId) -> &mut Staged {
        let live = &self.live;
        self.workspaces.entry(id.clone()).or_insert_with(|| {
            let workspace = live.workspace_or_new(id);
            let (head, epochs, usage) = {
                let state = workspace.state.read();
                (state.head, state.epochs.clone(), state.usage)
            };
            Staged { workspace, head, epochs, usage, bounds: live.bounds(id), changed: HashMap::new() }
        })
    }
}

impl Staged {
    /// Whether consecutive `revisions`, of one commit made after `after`, are the next ones here.
    fn continues(&self, after: Revision, revisions: impl Iterator<Item = Revision>) -> Result<(), Error> {
        let head = self.head;
        let mut last: Option<Revision> = None;
        let mut good = after == head;
        for revision in revisions {
            good &= match last {
                None => {
                    let continues = revision.as_u64() == head.as_u64() + 1 && revision.seq() > 0;
                    let begins_epoch = revision.epoch() > head.epoch() && revision.seq() == 1;
                    continues || begins_epoch
                }
                Some(last) => revision.as_u64() == last.as_u64() + 1 && revision.epoch() == last.epoch(),
            };
            last = Some(revision);
        }
        if good { Ok(()) } else { Err(Error::Discontinuous { head }) }
    }

    /// Ends the current epoch at `head` if `start` is of a later one.
    fn begin_epoch_of(&mut self, head: Revision, start: Revision) {
        if start.epoch() > head.epoch() {
            self.epochs = self.epochs.followed_by(head, Revision::start_of_epoch(start.epoch()));
        }
    }

    fn take_followed(
        &mut self,
        id: &WorkspaceId,
        record: Followed,
        (commit_start, commit_end): (Revision, Revision),
        previous: Option<Item>,
    ) -> StagedRecord {
        let topic = self.workspace.topic_or_new(&record.key.collection);
        let old = previous.as_ref().map(|item| item.object.clone());
        let (change, place, expires) = match (record.put, &old) {
            (Some(item), _) => (EventChange::Put(item.object), item.place, item.expires),
            (None, Some(old)) => {
                let last = old.with_revision(record.revision, EventType::Deleted);
                (EventChange::Removed(Arc::new(last)), Place::default(), Expiry::NEVER)
            }
            (None, None) => unreachable!("a removal of nothing is refused before"),
        };
        let (workspace, key, revision) = (id.clone(), record.key, record.revision);
        let event = Event { workspace, key, revision, commit_start, commit_end, old, change };
        self.usage.take_away(event.old.as_deref());
        self.usage.add(event.after().map(AsRef::as_ref));
        let item = event.after().map(|object| Item { object: object.clone(), place, expires });
        self.changed.insert(event.key.clone(), item);
        let expired_before = previous.map_or(Expiry::NEVER, |item| item.expires);
        StagedRecord { topic, event: Arc::new(event), place, expires, expired_before }
    }

    fn current(&self, key: &Key) -> Option<Item> {
        if let Some(changed) = self.changed.get(key) {
            return changed.clone();
        }
        let topic = self.workspace.topic(&key.collection)?;
        let state = self.workspace.state.read();
        state.items(&topic)?.get(&key.item).cloned()
    }

    /// Whether all writes are as expected; gives what they replace.
    fn check_writes<'w>(&self, writes: impl Iterator<Item = &'w Write>) -> Result<Vec<Option<Item>>, Error> {
        let check_write = |write: &Write| {
            let current = self.current(&write.key);
            if matches!(write.change, Change::Remove) && current.is_none() {
                return Err(Error::Conflict { key: write.key.clone(), current: None });
            }
            check(&write.key, write.expect, current)
        };
        writes.map(check_write).collect()
    }

    /// Whether the workspace may hold what a commit adds. What only marks objects as deleted passes: it is how there
    /// will be room again.
    fn check_room(&self, writes: &[Write], previous: &[Option<Item>], end: Revision) -> Result<(), Error> {
        if self.bounds == Bounds::NONE {
            return Ok(());
        }
        let mut after = self.usage;
        let mut adds = false;
        for (write, previous) in writes.iter().zip(previous) {
            after.take_away(previous.as_ref().map(|item| &*item.object));
            if let Change::Put { draft, .. } = &write.change {
                adds |= !draft.head().deleting;
                after.objects += 1;
                after.bytes += draft.sealed_len(end) as u64;
            }
        }
        if adds && !self.bounds.allow(self.usage, after) {
            return Err(Error::Full { usage: self.usage, bounds: self.bounds });
        }
        Ok(())
    }

    /// Makes the events of a commit that was found right.
    fn apply<'w>(
        &mut self,
        id: &WorkspaceId,
        (start, end): (Revision, Revision),
        writes: impl Iterator<Item = &'w Write>,
        previous: Vec<Option<Item>>,
        journal: &mut impl Journal,
    ) -> StagedCommit {
        let mut records = Vec::with_capacity(previous.len());
        let mut revision = start;
        for (write, previous) in writes.zip(previous) {
            let topic = self.workspace.topic_or_new(&write.key.collection);
            let event = event_of(id, write, revision, (start, end), previous.as_ref());
            let expires = match &write.change {
                Change::Put { expires, .. } => Expiry::of(*expires),
                Change::Remove => Expiry::NEVER,
            };
            let place = journal.record(&event, expires, previous.as_ref());
            let item = event.after().map(|object| Item { object: object.clone(), place, expires });
            self.usage.take_away(event.old.as_deref());
            self.usage.add(event.after().map(AsRef::as_ref));
            self.changed.insert(write.key.clone(), item);
            let expired_before = previous.map_or(Expiry::NEVER, |item| item.expires);
            records.push(StagedRecord { topic, event: Arc::new(event), place, expires, expired_before });
            if revision < end {
                revision = revision.next();
            }
        }
        self.head = end;
        StagedCommit {
            workspace: self.workspace.clone(),
            end,
            epochs: self.epochs.clone(),
            usage: self.usage,
            records,
        }
    }
}

impl Usage {
    fn add(&mut self, object: Option<&Object>) {
        self.objects += u64::from(object.is_some());
        self.bytes += object.map_or(0, |object| object.body_slice().len() as u64);
    }

    fn take_away(&mut self, object: Option<&Object>) {
        self.objects = self.objects.saturating_sub(u64::from(object.is_some()));
        self.bytes = self.bytes.saturating_sub(object.map_or(0, |object| object.body_slice().len() as u64));
    }
}

fn check(key: &Key, expect: Expect, current: Option<Item>) -> Result<Option<Item>, Error> {
    let holds = match (expect, &current) {
        (Expect::Anything, _) | (Expect::Absent, None) => true,
        (Expect::At(revision), Some(item)) => item.object.revision == revision,
        (Expect::Absent, Some(_)) | (Expect::At(_), None) => false,
    };
    if holds {
        return Ok(current);
    }
    Err(Error::Conflict { key: key.clone(), current: current.map(|item| item.object) })
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

impl StagedCommit {
    fn publish(&self) {
        let mut state = self.workspace.state.write();
        for record in &self.records {
            let shelf = state.shelf_mut(&record.topic);
            shelf.changed = self.end;
            let key = &record.event.key.item;
            let Some(object) = record.event.after() else {
                shelf.items.remove(key);
                continue;
            };
            let item = Item { object: object.clone(), place: record.place, expires: record.expires };
            match shelf.items.get_mut(key) {
                Some(slot) => *slot = item,
                None => drop(shelf.items.insert(key.clone(), item)),
            }
        }
        state.head = self.end;
        state.usage = self.usage;
        if state.epochs != self.epochs {
            state.epochs = self.epochs.clone();
        }
    }
}

impl Live {
    /// Makes a stage visible. See the module's head for the order of things.
    pub fn publish(&self, stage: Stage) {
        for commit in &stage.commits {
            for record in &commit.records {
                record.topic.ring.write().events.push_back(record.event.clone());
                record.topic.touched.store(true, Ordering::Release);
            }
            commit.publish();
        }
        let records = || stage.commits.iter().flat_map(|commit| &commit.records);
        let mut woken = HashSet::new();
        for record in records() {
            if woken.insert(Arc::as_ptr(&record.topic)) {
                record.topic.changed.notify_waiters();
            }
        }
        self.publish_expiries(records());
        self.shared.queue.append(records().map(|record| (record.topic.clone(), record.event.clone())));
    }

    fn publish_expiries<'r>(&self, records: impl Iterator<Item = &'r StagedRecord>) {
        let changed: Vec<_> = records.filter(|record| record.expires != record.expired_before).collect();
        if changed.is_empty() {
            return;
        }
        let mut expiries = self.shared.expiries.lock();
        for record in changed {
            let mut entry = (record.expired_before, record.event.workspace.clone(), record.event.key.clone());
            expiries.remove(&entry);
            if record.expires != Expiry::NEVER {
                entry.0 = record.expires;
                expiries.insert(entry);
            }
        }
    }

    /// Where compacting `id` up to `upto` would leave its history; `None` if it changes nothing.
    pub fn compaction(&self, id: &WorkspaceId, upto: Revision) -> Result<Option<Revision>, Error> {
        let Some(workspace) = self.workspace(id) else { return Ok(None) };
        let state = workspace.state.read();
        let upto = state.epochs.resume(upto, state.head)?;
        Ok((upto > state.forgotten).then_some(upto))
    }

    /// Forgets history, as [`Live::compaction`] said.
    pub fn compact(&self, id: &WorkspaceId, upto: Revision) {
        let Some(workspace) = self.workspace(id) else { return };
        {
            let mut state = workspace.state.write();
            state.forgotten = state.forgotten.max(upto);
        }
        for topic in workspace.all_topics() {
            topic.ring.write().drop_upto(upto, &topic.spared);
            topic.changed.notify_waiters();
        }
    }

    /// Lets go of events that have left the rings, as far as every feed has had them. After compactions and removals.
    pub fn sweep(&self) {
        self.shared.queue.sweep();
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
        let mut state = workspace.state.write();
        state.epochs = state.epochs.followed_by(state.head, start);
        state.head = start;
    }

    /// Forgets a workspace and ends its watches.
    pub fn remove_workspace(&self, id: &WorkspaceId) {
        let Some(workspace) = self.shared.workspaces.write().remove(id) else { return };
        self.retire(&workspace);
        self.shared.queue.append_removal(id.clone());
    }

    /// Ends the watches of a workspace that is not in place any more.
    pub(super) fn retire(&self, workspace: &Workspace) {
        workspace.removed.store(true, Ordering::Release);
        self.forget_expiries(workspace);
        let head = workspace.state.read().head;
        for topic in workspace.all_topics() {
            topic.ring.write().drop_upto(head, &topic.spared);
            topic.changed.notify_waiters();
        }
    }

    /// Looks at what the workspace holds, not at what all others have that expires.
    fn forget_expiries(&self, workspace: &Workspace) {
        let state = workspace.state.read().clone();
        for topic in workspace.all_topics() {
            let expiring = state.items(&topic).into_iter().flatten();
            let expiring: Vec<_> = expiring.filter(|(_, item)| item.expires != Expiry::NEVER).collect();
            if expiring.is_empty() {
                continue;
            }
            let mut expiries = self.shared.expiries.lock();
            for (name, item) in expiring {
                let key = Key { collection: topic.collection.clone(), item: name.clone() };
                expiries.remove(&(item.expires, workspace.id.clone(), key));
            }
        }
    }
}
