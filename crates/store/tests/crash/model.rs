//! What the store should hold, learnt from its answers alone.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;
use machinery::Revision;
use parking_lot::Mutex;
use store::{Committed, Error, Event, Key, Span, Store, WorkspaceId, suite::value_of};

/// One write of a commit as the model sees it: what it puts, or that it removes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effect {
    pub key: Key,
    /// `None`: a removal.
    pub value: Option<String>,
    pub expires: Option<Timestamp>,
}

/// A commit whose answer is not known.
#[derive(Clone, Debug)]
pub struct Attempt {
    pub number: u64,
    pub workspace: WorkspaceId,
    pub effects: Vec<Effect>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Live {
    pub revision: Revision,
    pub value: String,
    pub expires: Option<Timestamp>,
}

/// The part that those who work on the store write down as they go.
#[derive(Default)]
pub struct Shared {
    next_attempt: u64,
    pub attempts: Vec<Attempt>,
    /// Acknowledged records that have not been compared yet.
    pub acknowledged: BTreeMap<WorkspaceId, BTreeMap<Revision, Effect>>,
    /// Expiry was asked for up to here; whether it was done is not known.
    pub expiry_attempted: Option<Timestamp>,
    /// Expiry was acknowledged: until when, and where the workspaces stood when it was asked for.
    pub expiry_done: Vec<(Timestamp, BTreeMap<WorkspaceId, Revision>)>,
    /// Workspaces that were made to be removed, and how far that got.
    pub doomed: BTreeMap<WorkspaceId, Doom>,
    /// What watchers have seen.
    pub mirrors: BTreeMap<(WorkspaceId, store::Collection), Mirror>,
    /// The history has been compared up to here, so that it may be compacted up to here.
    pub compared: BTreeMap<WorkspaceId, Revision>,
    /// Compactions that were acknowledged.
    pub compacted: BTreeMap<WorkspaceId, Revision>,
    /// Positions of epochs that were skipped: nobody can have been there.
    pub never: Vec<(WorkspaceId, Revision)>,
    pub short_history: bool,
    next_doomed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doom {
    Filled,
    Asked,
    Gone,
}

/// A watcher's copy of a collection.
#[derive(Clone, Debug, Default)]
pub struct Mirror {
    pub position: Option<Revision>,
    pub items: BTreeMap<store::ItemKey, Revision>,
}

impl Mirror {
    pub fn apply(&mut self, event: &Event) {
        assert!(self.position < Some(event.revision), "an event twice or out of order");
        let before = self.items.get(&event.key.item).copied();
        assert_eq!(
            event.old.as_ref().map(|old| old.revision),
            before,
            "an event was skipped before {event:?}"
        );
        match event.after() {
            Some(object) => self.items.insert(event.key.item.clone(), object.revision),
            None => self.items.remove(&event.key.item),
        };
        self.position = Some(event.revision);
    }
}

impl Shared {
    pub fn attempt(&mut self, workspace: &WorkspaceId, effects: Vec<Effect>) -> u64 {
        self.next_attempt += 1;
        let number = self.next_attempt;
        self.attempts.push(Attempt { number, workspace: workspace.clone(), effects });
        number
    }

    /// Takes down what became of an attempt.
    pub fn answered(&mut self, number: u64, result: &Result<Vec<Committed>, Error>) {
        if matches!(result, Err(Error::Unknown(_))) {
            return;
        }
        let index = self.attempts.iter().position(|attempt| attempt.number == number).expect("was attempted");
        let attempt = self.attempts.swap_remove(index);
        let Ok(committed) = result else { return };
        let acknowledged = self.acknowledged.entry(attempt.workspace).or_default();
        assert_eq!(committed.len(), attempt.effects.len());
        for (committed, effect) in committed.iter().zip(attempt.effects) {
            let before = acknowledged.insert(committed.revision, effect);
            assert!(before.is_none(), "a revision was given twice");
        }
    }

    pub fn new_doomed(&mut self) -> WorkspaceId {
        self.next_doomed += 1;
        WorkspaceId(format!("doomed-{}", self.next_doomed).into())
    }
}

/// How much happened, to show that the test tests something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub starts: u64,
    pub crashes_while_starting: u64,
    pub acknowledged: u64,
    /// Commits without an answer that turned out to be there, and not to be there.
    pub unanswered_kept: u64,
    pub unanswered_lost: u64,
    pub incomplete_writes: u64,
    /// Comparisons by state, because history did not reach.
    pub without_history: u64,
    pub disk_changes: u64,
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.starts += other.starts;
        self.crashes_while_starting += other.crashes_while_starting;
        self.acknowledged += other.acknowledged;
        self.unanswered_kept += other.unanswered_kept;
        self.unanswered_lost += other.unanswered_lost;
        self.incomplete_writes += other.incomplete_writes;
        self.without_history += other.without_history;
        self.disk_changes += other.disk_changes;
    }
}

/// Everything that has been compared, and what is still to be.
pub struct Model {
    pub tally: Tally,
    shared: Arc<Mutex<Shared>>,
    state: BTreeMap<WorkspaceId, BTreeMap<Key, Live>>,
}

pub fn workspaces() -> Vec<WorkspaceId> {
    ["a", "b", "c"].map(|name| WorkspaceId(name.into())).to_vec()
}

pub fn collections() -> Vec<store::Collection> {
    ["things", "others"].map(|name| store::Collection::new("", name)).to_vec()
}

fn span(collection: &store::Collection) -> Span {
    Span { collection: collection.clone(), namespace: None }
}

impl Model {
    pub fn new(short_history: bool) -> Self {
        let shared = Shared { short_history, ..Shared::default() };
        Self { shared: Arc::new(Mutex::new(shared)), state: BTreeMap::new(), tally: Tally::default() }
    }

    pub fn shared(&self) -> Arc<Mutex<Shared>> {
        self.shared.clone()
    }

    /// Compares a store that was just opened with what is known, and learns what became of open attempts.
    pub fn compare(&mut self, store: &impl Store) {
        let shared = self.shared.clone();
        let mut shared = shared.lock();
        self.tally.starts += 1;
        for workspace in workspaces() {
            match history(store, &workspace, shared.compared.get(&workspace)) {
                Ok(events) => self.compare_history(&mut shared, &workspace, &events),
                Err(Error::Expired { .. }) if shared.short_history => {
                    self.tally.without_history += 1;
                    self.compare_state(store, &mut shared, &workspace);
                }
                Err(other) => panic!("{workspace}: {other}"),
            }
            self.compare_lists(store, &workspace);
            shared.compared.insert(workspace.clone(), store.head(&workspace));
        }
        self.compare_expiry(&mut shared);
        compare_doomed(store, &mut shared);
        compare_gone(store, &shared);
        compare_mirrors(store, &mut shared);
        self.tally.unanswered_lost += shared.attempts.len() as u64;
        shared.attempts.clear();
        shared.expiry_attempted = None;
    }

    fn compare_history(&mut self, shared: &mut Shared, workspace: &WorkspaceId, events: &[Arc<Event>]) {
        let mut acknowledged = shared.acknowledged.remove(workspace).unwrap_or_default();
        for commit in events.chunk_by(|left, right| left.commit_end == right.commit_end) {
            let (first, last) = (&commit[0], &commit[commit.len() - 1]);
            assert_eq!(
                (first.revision, last.revision),
                (first.commit_start, first.commit_end),
                "part of a commit"
            );
            let consecutive =
                commit.windows(2).all(|pair| pair[0].revision.as_u64() + 1 == pair[1].revision.as_u64());
            assert!(consecutive, "a hole in a commit");
            let known: Vec<_> =
                commit.iter().filter_map(|event| acknowledged.remove(&event.revision)).collect();
            self.tally.acknowledged += u64::from(!known.is_empty());
            let effects = match known.len() {
                0 => self.explain(shared, workspace, commit),
                _ => known,
            };
            assert_eq!(effects.len(), commit.len(), "a commit is mixed with another");
            for (event, effect) in commit.iter().zip(effects) {
                self.compare_event(workspace, event, &effect);
            }
        }
        assert!(acknowledged.is_empty(), "{workspace}: acknowledged and lost: {acknowledged:?}");
    }

    /// What made a commit that nobody got an answer for: the expiry of an object, or an open attempt.
    fn explain(
        &mut self,
        shared: &mut Shared,
        workspace: &WorkspaceId,
        commit: &[Arc<Event>],
    ) -> Vec<Effect> {
        // Expiry first: an open attempt to remove the same object may be a later commit.
        if let [event] = commit
            && event.after().is_none()
            && self.is_due(shared, workspace, &event.key)
        {
            return vec![Effect { key: event.key.clone(), value: None, expires: None }];
        }
        let is_it = |attempt: &Attempt| {
            attempt.workspace == *workspace
                && attempt.effects.len() == commit.len()
                && attempt.effects.iter().zip(commit).all(|(effect, event)| {
                    effect.key == event.key && effect.value == event.after().map(|object| value_of(object))
                })
        };
        let index = shared.attempts.iter().position(is_it);
        let index = index.unwrap_or_else(|| panic!("{workspace}: nobody wrote {commit:?}"));
        self.tally.unanswered_kept += 1;
        shared.attempts.remove(index).effects
    }

    fn is_due(&self, shared: &Shared, workspace: &WorkspaceId, key: &Key) -> bool {
        let live = self.state.get(workspace).and_then(|state| state.get(key));
        live.and_then(|live| live.expires).is_some_and(|at| Some(at) <= shared.expiry_attempted)
    }

    fn compare_event(&mut self, workspace: &WorkspaceId, event: &Event, effect: &Effect) {
        let state = self.state.entry(workspace.clone()).or_default();
        let before = state.get(&event.key).map(|live| (live.revision, live.value.clone()));
        let old = event.old.as_ref().map(|old| (old.revision, value_of(old)));
        assert_eq!(old, before, "{workspace}: the state before {event:?}");
        assert_eq!(event.key, effect.key);
        assert_eq!(event.after().map(|object| value_of(object)), effect.value, "{workspace}: {event:?}");
        match &effect.value {
            Some(value) => {
                let live = Live { revision: event.revision, value: value.clone(), expires: effect.expires };
                state.insert(event.key.clone(), live);
            }
            None => drop(state.remove(&event.key)),
        }
    }

    /// Without history: every key is as acknowledged last, or as an open attempt made it.
    fn compare_state(&mut self, store: &impl Store, shared: &mut Shared, workspace: &WorkspaceId) {
        let mut expected = self.state.remove(workspace).unwrap_or_default();
        for (revision, effect) in shared.acknowledged.remove(workspace).unwrap_or_default() {
            assert!(store.head(workspace) >= revision, "acknowledged and lost");
            match effect.value {
                Some(value) => {
                    drop(expected.insert(effect.key, Live { revision, value, expires: effect.expires }))
                }
                None => drop(expected.remove(&effect.key)),
            }
        }
        let actual = list_all(store, workspace);
        let keys: BTreeSet<&Key> = actual.keys().chain(expected.keys()).collect();
        let mut state = BTreeMap::new();
        for key in keys {
            let now = actual.get(key);
            let before = expected.get(key).map(|live| (live.revision, live.value.clone()));
            let expires = if now == before.as_ref() {
                expected.get(key).and_then(|live| live.expires)
            } else {
                explain_state(shared, workspace, key, now, expected.get(key))
            };
            if let Some((revision, value)) = now.cloned() {
                state.insert(key.clone(), Live { revision, value, expires });
            }
        }
        self.state.insert(workspace.clone(), state);
    }

    fn compare_lists(&self, store: &impl Store, workspace: &WorkspaceId) {
        let state = self.state.get(workspace).cloned().unwrap_or_default();
        let expected = state.into_iter().map(|(key, live)| (key, (live.revision, live.value)));
        assert_eq!(list_all(store, workspace), expected.collect(), "{workspace}: the live objects");
    }

    fn compare_expiry(&self, shared: &mut Shared) {
        for (until, heads) in std::mem::take(&mut shared.expiry_done) {
            for (workspace, state) in &self.state {
                let asked_at = heads.get(workspace).copied().unwrap_or(Revision::ZERO);
                let overdue = state.iter().find(|(_, live)| {
                    live.revision <= asked_at && live.expires.is_some_and(|expires| expires <= until)
                });
                assert!(overdue.is_none(), "{workspace}: {overdue:?} should have expired");
            }
        }
    }

    /// A restored store holds the same objects, in a later epoch.
    pub fn compare_restored(&self, store: &impl Store, restored: &impl Store) {
        let mut ids = store.workspaces();
        assert_eq!(restored.workspaces(), ids);
        ids.push(WorkspaceId("unknown".into()));
        for id in ids {
            assert_eq!(list_all(restored, &id), list_all(store, &id), "{id}");
            assert!(restored.head(&id).epoch() > store.head(&id).epoch());
            let lost = restored.watch(&id, span(&collections()[0]), store.head(&id).next());
            assert!(matches!(lost, Err(Error::Expired { .. })), "seen after the backup");
        }
    }
}

/// All events after `compared`, of all collections, in order.
fn history(
    store: &impl Store,
    workspace: &WorkspaceId,
    compared: Option<&Revision>,
) -> Result<Vec<Arc<Event>>, Error> {
    let after = compared.copied().unwrap_or(Revision::ZERO);
    let mut events = Vec::new();
    for collection in collections() {
        let mut watch = store.watch(workspace, span(&collection), after)?;
        loop {
            let batch = watch.take(3)?;
            let done = batch.complete_to == store.head(workspace);
            events.extend(batch.events);
            if done {
                break;
            }
        }
    }
    events.sort_by_key(|event| event.revision);
    Ok(events)
}

/// What is gone stays gone.
fn compare_gone(store: &impl Store, shared: &Shared) {
    let before = |revision: &Revision| Revision::from_u64(revision.as_u64() - 1).filter(|it| it.epoch() > 0);
    let compacted = shared.compacted.iter().filter_map(|(id, upto)| Some((id.clone(), before(upto)?)));
    for (workspace, position) in compacted.chain(shared.never.iter().cloned()) {
        let watch = store.watch(&workspace, span(&collections()[0]), position);
        assert!(matches!(watch, Err(Error::Expired { .. })), "{workspace}: {position:?} is gone");
    }
}

/// Which open attempt made a key what it is now; gives the expiry it set.
fn explain_state(
    shared: &Shared,
    workspace: &WorkspaceId,
    key: &Key,
    now: Option<&(Revision, String)>,
    before: Option<&Live>,
) -> Option<Timestamp> {
    let value = now.map(|(_, value)| value);
    let effects = shared.attempts.iter().filter(|attempt| attempt.workspace == *workspace);
    let mut effects = effects.flat_map(|attempt| &attempt.effects);
    if let Some(effect) = effects.find(|effect| effect.key == *key && effect.value.as_ref() == value) {
        return effect.expires;
    }
    // It may have been made by one attempt and expired since.
    let expiries =
        shared.attempts.iter().flat_map(|attempt| &attempt.effects).filter(|effect| effect.key == *key);
    let mut expiries = expiries.map(|effect| effect.expires).chain([before.and_then(|live| live.expires)]);
    let due = expiries.any(|expires| expires.is_some() && expires <= shared.expiry_attempted);
    assert!(value.is_none() && due, "{workspace}: nobody made {key:?} {now:?}, it was {before:?}");
    None
}

fn list_all(store: &impl Store, workspace: &WorkspaceId) -> BTreeMap<Key, (Revision, String)> {
    let mut all = BTreeMap::new();
    for collection in collections() {
        let listing = store.list(workspace, &collection, None).expect("lists");
        assert_eq!(listing.revision, store.head(workspace));
        for (item, object) in listing.iter(None, None) {
            let key = Key { collection: collection.clone(), item: item.clone() };
            assert_eq!(store.get(workspace, &key).map(|object| object.revision), Some(object.revision));
            all.insert(key, (object.revision, value_of(object)));
        }
    }
    all
}

fn compare_doomed(store: &impl Store, shared: &mut Shared) {
    shared.doomed.retain(|workspace, doom| {
        let objects = list_all(store, workspace).len();
        match (*doom, objects) {
            (Doom::Filled | Doom::Asked, 1) => true,
            (Doom::Asked | Doom::Gone, 0) => false,
            other => panic!("{workspace}: {other:?}"),
        }
    });
}

/// Watchers go on where they were, and have then seen everything.
fn compare_mirrors(store: &impl Store, shared: &mut Shared) {
    for ((workspace, collection), mirror) in &mut shared.mirrors {
        let Some(position) = mirror.position else { continue };
        match catch_up(store, workspace, collection, mirror) {
            Ok(()) => {
                let listing = store.list(workspace, collection, None).expect("lists");
                let listed = listing.iter(None, None).map(|(key, object)| (key.clone(), object.revision));
                assert_eq!(mirror.items, listed.collect(), "{workspace}: what a watcher has seen");
            }
            Err(Error::Expired { .. }) if shared.short_history => *mirror = Mirror::default(),
            Err(other) => panic!("{workspace} after {position:?}: {other}"),
        }
    }
}

fn catch_up(
    store: &impl Store,
    workspace: &WorkspaceId,
    collection: &store::Collection,
    mirror: &mut Mirror,
) -> Result<(), Error> {
    let mut watch = store.watch(workspace, span(collection), mirror.position.unwrap_or(Revision::ZERO))?;
    loop {
        let batch = watch.take(2)?;
        batch.events.iter().for_each(|event| mirror.apply(event));
        mirror.position = Some(batch.complete_to);
        if batch.complete_to == store.head(workspace) {
            return Ok(());
        }
    }
}
