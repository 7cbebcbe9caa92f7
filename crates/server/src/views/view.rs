//! The view of one workspace: one history of what is stored there and of what members have.
//!
//! Whoever reads brings the history level with the store and with what sessions told first, so that a write that was
//! answered is seen. The mutex orders all that changes the history; readers of lists and watches hold it only for that first step.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use compact_str::CompactString;
use machinery::{Draft, EventType, Object, Revision, object::Owner};
use parking_lot::{Mutex, MutexGuard};
use store::{
    Change, Collection, Commit, Committed, Error, Expect, ItemKey, Key, Listing, Span, Store, Watch,
    WorkspaceId, Write,
    live::{Epochs, Loaded},
    memory::MemoryStore,
};

use super::{
    Member, Placed, copies::Copies, gather::Gathered, kinds::Kind, mirror::Mirror, render, sight::Sight,
};
use crate::space::Current;

/// One workspace's view.
pub struct View {
    pub(super) id: WorkspaceId,
    pub(super) store: Arc<dyn Store>,
    pub(super) memory: MemoryStore,
    /// Before the first record of this history; what is before it was never here.
    origin: Revision,
    known: Mutex<Known>,
    /// What was told and does not show yet. Locked after `known`, or alone.
    pub(super) gathered: Mutex<Gathered>,
    /// Of all that shows.
    owned: Mutex<Owned>,
    /// Something happened that is not kept yet.
    pub(super) changed: AtomicBool,
}

/// What is known beside the objects themselves.
#[derive(Default)]
pub(super) struct Known {
    pub clusters: BTreeMap<CompactString, Cluster>,
    pub items: HashMap<Kind, HashMap<ItemKey, Item>>,
    pub mirrors: HashMap<Kind, Mirror>,
    pub copies: Copies,
    /// UIDs of objects that show as part of another or not by themselves, and the UID that shows.
    pub aliases: HashMap<CompactString, CompactString>,
    /// Why it is not known which clusters there are: what was kept is damaged.
    pub damaged: Option<String>,
}

/// A member.
#[derive(Default)]
pub(super) struct Cluster {
    /// Its session, as long as it is connected.
    pub member: Option<Arc<dyn Member>>,
    /// The UID of its `kube-system` namespace; empty before it is known.
    pub identity: String,
    pub seen: BTreeMap<Kind, Seen>,
    /// Its objects that were placed from here, by their UID there.
    pub placed: HashMap<CompactString, Placed>,
    /// Those that are about to be, by kind, namespace and name there.
    pub announced: HashMap<[CompactString; 3], Placed>,
}

impl Cluster {
    /// By the session that is connected.
    fn has_seen_all(&self, kind: Kind) -> bool {
        self.seen.get(&kind).is_some_and(|seen| seen.whole && seen.confirmed)
    }
}

/// What was seen of one kind in one cluster.
#[derive(Default)]
pub(super) struct Seen {
    /// What each object there is called here, by namespace and name there.
    pub names: HashMap<ItemKey, ItemKey>,
    /// Copies of what is stored here, which do not show by themselves.
    pub hidden: HashMap<ItemKey, Hidden>,
    /// All objects were seen at least once.
    pub whole: bool,
    /// All objects were seen by the session that is connected.
    pub confirmed: bool,
    /// Since when nothing was seen.
    pub stale: Option<String>,
}

/// A copy that does not show by itself.
pub(super) struct Hidden {
    pub part: Part,
    /// As it would show by its own name; its namespace is the one it would show in.
    pub draft: Draft,
}

/// Whose an object of the view is.
pub(super) enum Item {
    /// The workspace's own, at this revision of the store.
    Stored { revision: Revision, uid: CompactString },
    /// A member's, or that of several who show as one; the first's UID shows.
    Members(Vec<Part>),
}

/// An object of one member.
#[derive(Clone)]
pub(super) struct Part {
    pub cluster: CompactString,
    /// Its namespace, name and revision there.
    pub namespace: CompactString,
    pub name: CompactString,
    pub revision: CompactString,
    pub uid: CompactString,
    /// The UID of the placed object that owns it.
    pub owner: Option<CompactString>,
    /// The UID of the object that it says to be a copy of.
    pub source: Option<CompactString>,
    /// As it shows alone, if it shows with others.
    pub alone: Option<Box<Draft>>,
}

impl Part {
    /// Where its cluster has it.
    pub fn own(&self) -> ItemKey {
        ItemKey::new(&self.namespace, &self.name)
    }
}

impl Known {
    fn target(&self, kind: Kind, part: &Part) -> Target {
        Target {
            cluster: part.cluster.to_string(),
            member: self.clusters.get(&part.cluster).and_then(|cluster| cluster.member.clone()),
            kind,
            namespace: part.namespace.to_string(),
            name: part.name.to_string(),
            uid: part.uid.to_string(),
            revision: part.revision.to_string(),
        }
    }
}

/// What belongs to whom, by the owner's UID as it shows.
#[derive(Default)]
pub(super) struct Owned(HashMap<(Kind, CompactString), BTreeSet<ItemKey>>);

impl Owned {
    fn add(&mut self, kind: Kind, item: &ItemKey, owners: &[Owner]) {
        for owner in owners {
            self.0.entry((kind, owner.uid.clone())).or_default().insert(item.clone());
        }
    }

    fn remove(&mut self, kind: Kind, item: &ItemKey, owners: &[Owner]) {
        for owner in owners {
            let place = (kind, owner.uid.clone());
            if let Some(items) = self.0.get_mut(&place) {
                items.remove(item);
                if items.is_empty() {
                    self.0.remove(&place);
                }
            }
        }
    }

    fn of(&self, kind: Kind, owner: &str) -> impl Iterator<Item = &ItemKey> {
        self.0.get(&(kind, owner.into())).into_iter().flatten()
    }
}

/// A change of the view: first something goes, then something comes.
#[derive(Default)]
pub(super) struct Step {
    gone: BTreeSet<(Kind, ItemKey)>,
    put: BTreeMap<(Kind, ItemKey), Draft>,
    /// What shows several members' objects as one, to be added up once all of them are known.
    sums: BTreeSet<(Kind, ItemKey)>,
    /// Of what is put; some of it may be put otherwise since.
    owned: Owned,
}

impl Step {
    pub fn put(&mut self, kind: Kind, item: ItemKey, draft: Draft) {
        self.owned.add(kind, &item, &draft.head().owners);
        self.sums.remove(&(kind, item.clone()));
        self.put.insert((kind, item), draft);
    }

    /// Something of what shows as one there is another.
    pub fn add_up(&mut self, kind: Kind, item: ItemKey) {
        self.sums.insert((kind, item));
    }

    pub fn take_sums(&mut self) -> BTreeSet<(Kind, ItemKey)> {
        std::mem::take(&mut self.sums)
    }

    pub fn remove(&mut self, kind: Kind, item: ItemKey) {
        let place = (kind, item);
        self.put.remove(&place);
        self.sums.remove(&place);
        self.gone.insert(place);
    }

    pub fn pending(&self, kind: Kind, item: &ItemKey) -> Option<&Draft> {
        self.put.get(&(kind, item.clone()))
    }
}

/// Where a request about one member's object goes.
pub struct Target {
    pub cluster: String,
    /// `None`: there is no session with it now.
    pub member: Option<Arc<dyn Member>>,
    pub kind: Kind,
    /// Namespace, name, UID and revision there.
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub revision: String,
}

/// What is known of an object that others belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    Here,
    /// It was removed, or every member was seen and has it not.
    Gone,
    /// Some member that may have it is out of sight.
    Unknown,
}

impl View {
    pub(super) fn new(id: WorkspaceId, store: Arc<dyn Store>, memory: MemoryStore, origin: Revision) -> View {
        let epochs = Epochs::starting_at(origin);
        memory.load(&id, Loaded { head: origin, forgotten: origin, epochs, collections: Vec::new() });
        let view = View {
            id,
            store,
            memory,
            origin,
            known: Mutex::default(),
            gathered: Mutex::default(),
            owned: Mutex::default(),
            changed: AtomicBool::new(false),
        };
        drop(view.level());
        view
    }

    /// What is known, once it is level with the store and with what sessions told.
    pub(super) fn level(&self) -> MutexGuard<'_, Known> {
        let mut known = self.lock();
        self.settle(&mut known);
        known
    }

    /// What is known, once it is level with the store; what sessions told may not show yet.
    pub(super) fn lock(&self) -> MutexGuard<'_, Known> {
        let mut known = self.known.lock();
        self.catch_up(&mut known);
        known
    }

    pub(super) fn has_gathered(&self) -> bool {
        !self.gathered.lock().is_empty()
    }

    pub(super) fn key(kind: Kind, item: &ItemKey) -> Key {
        Key { collection: kind.collection(), item: item.clone() }
    }

    pub(super) fn object(&self, kind: Kind, item: &ItemKey) -> Option<Arc<Object>> {
        self.memory.get(&self.id, &View::key(kind, item))
    }

    /// Makes a change visible. What would change nothing is left out.
    pub(super) fn commit(&self, known: &Known, mut step: Step) {
        known.add_up(&mut step);
        let Step { gone, put, .. } = step;
        let mut owned = self.owned.lock();
        let mut removals = Vec::new();
        for (kind, item) in gone {
            let Some(object) = self.object(kind, &item) else { continue };
            owned.remove(kind, &item, &object.head.owners);
            let change = Change::Remove;
            removals.push(Write { key: View::key(kind, &item), expect: Expect::Anything, change });
        }
        self.commit_all(removals);
        let mut puts = Vec::new();
        for ((kind, item), draft) in put {
            let before = self.object(kind, &item);
            if before.as_ref().is_some_and(|object| render::is_same(object, &draft)) {
                continue;
            }
            let before = before.as_ref().map(|object| &object.head.owners[..]).unwrap_or_default();
            if before != &draft.head().owners[..] {
                owned.remove(kind, &item, before);
                owned.add(kind, &item, &draft.head().owners);
            }
            let change = Change::Put { draft, expires: None };
            puts.push(Write { key: View::key(kind, &item), expect: Expect::Anything, change });
        }
        drop(owned);
        self.commit_all(puts);
    }

    /// What shows as belonging to `owner`, or is about to; perhaps some that did.
    pub(super) fn owned_by(&self, kind: Kind, owner: &str, step: &Step) -> BTreeSet<ItemKey> {
        self.owned.lock().of(kind, owner).chain(step.owned.of(kind, owner)).cloned().collect()
    }

    fn commit_all(&self, writes: Vec<Write>) {
        if writes.is_empty() {
            return;
        }
        self.changed.store(true, Ordering::Relaxed);
        if let Err(error) = self.memory.commit_now(&self.id, &Commit { guards: Vec::new(), writes }) {
            tracing::error!(workspace = %self.id, %error, "a view did not change as it should have");
        }
    }

    pub fn head(&self) -> Revision {
        drop(self.level());
        self.memory.head(&self.id)
    }

    /// Whether a revision is one of this history. One that lies ahead is not: nobody else hands them out.
    pub fn knows(&self, revision: Revision) -> bool {
        drop(self.lock());
        revision.epoch() == 0 || (self.origin <= revision && revision <= self.memory.head(&self.id))
    }

    pub fn get(&self, key: &Key) -> Option<Arc<Object>> {
        drop(self.level());
        self.memory.get(&self.id, key)
    }

    /// An object as it shows, and what must hold in the store for it to be still so. Of a member's object nothing in
    /// the store can hold.
    pub fn current(&self, key: &Key) -> Current {
        let known = self.level();
        let items = Kind::of(&key.collection).and_then(|kind| known.items.get(&kind));
        let expect = match items.and_then(|items| items.get(&key.item)) {
            Some(Item::Stored { revision, .. }) => Expect::At(*revision),
            Some(Item::Members(_)) => Expect::At(Revision::BASE),
            None => Expect::Absent,
        };
        Current { object: self.memory.get(&self.id, key), expect }
    }

    pub fn list(&self, collection: &Collection, at: Option<Revision>) -> Result<Listing, Error> {
        drop(self.level());
        self.memory.list(&self.id, collection, at)
    }

    pub fn watch(&self, span: Span, after: Revision) -> Result<Watch, Error> {
        if !self.knows(after) {
            return Err(Error::Expired { oldest: self.origin });
        }
        let watch = self.memory.watch(&self.id, span, after);
        // What was told while nobody watched does not wait any longer.
        drop(self.level());
        watch
    }

    /// What was committed to the store, at the revision that it has in the view.
    pub fn settled(&self, key: &Key, committed: Committed) -> Committed {
        let known = self.lock();
        let mirror = Kind::of(&key.collection).and_then(|kind| known.mirrors.get(&kind));
        // Where it is not known any more, a revision that no object has: whoever goes on from it must look again.
        let revision = mirror.and_then(|it| it.shown_at(committed.revision)).unwrap_or(self.origin);
        let object = match self.memory.get(&self.id, key).filter(|object| object.revision == revision) {
            Some(object) => object,
            None => Arc::new(committed.object.with_revision(revision, EventType::Modified)),
        };
        Committed { revision, object }
    }

    /// Where requests about the object at `key` go; empty if it is not a member's.
    pub fn targets(&self, key: &Key) -> Vec<Target> {
        let known = self.level();
        let Some(kind) = Kind::of(&key.collection) else { return Vec::new() };
        let item = known.items.get(&kind).and_then(|items| items.get(&key.item));
        let Some(Item::Members(parts)) = item else { return Vec::new() };
        parts.iter().map(|part| known.target(kind, part)).collect()
    }

    /// Whether the object at `key` is a member's.
    pub fn is_members(&self, key: &Key) -> bool {
        let known = self.level();
        let items = Kind::of(&key.collection).and_then(|kind| known.items.get(&kind));
        matches!(items.and_then(|items| items.get(&key.item)), Some(Item::Members(_)))
    }

    /// Where the copies are of what is stored at `key`, those that can be reached first; empty if it has none.
    pub fn copies(&self, key: &Key) -> Vec<Target> {
        let known = self.level();
        let Some(kind) = Kind::of(&key.collection) else { return Vec::new() };
        let item = known.items.get(&kind).and_then(|items| items.get(&key.item));
        let Some(Item::Stored { uid, .. }) = item else { return Vec::new() };
        let mut targets: Vec<Target> =
            known.hidden(kind, uid).iter().map(|hidden| known.target(kind, &hidden.part)).collect();
        targets.sort_by_key(|target| target.member.is_none());
        targets
    }

    /// Which clusters a list of `collection` is about.
    pub fn sight(&self, collection: &Collection) -> Sight {
        let known = self.known.lock();
        let mut sight = Sight { damaged: known.damaged.clone(), ..Sight::default() };
        let Some(kind) = Kind::of(collection) else { return sight };
        for (name, cluster) in &known.clusters {
            match cluster.seen.get(&kind) {
                Some(Seen { whole: true, stale: Some(since), .. }) => {
                    sight.stale.push((name.to_string(), since.clone()));
                }
                Some(Seen { whole: true, .. }) => {}
                _ => sight.unseen.push(name.to_string()),
            }
        }
        sight
    }

    pub(super) fn has_cluster(&self, cluster: &str) -> bool {
        self.known.lock().clusters.contains_key(cluster)
    }

    /// The workspace of the cluster that shows by this name, if it has a session; `None`: none shows.
    pub(super) fn holder(&self, cluster: &str) -> Option<Option<WorkspaceId>> {
        let known = self.known.lock();
        known.clusters.get(cluster).map(|it| it.member.as_ref().map(|member| member.home().clone()))
    }

    /// Whether the present session with a cluster has seen all objects of the kind of `key`.
    pub fn is_in_sight(&self, cluster: &str, key: &Key) -> bool {
        let Some(kind) = Kind::of(&key.collection) else { return false };
        self.known.lock().clusters.get(cluster).is_some_and(|cluster| cluster.has_seen_all(kind))
    }

    /// What is known of the object with `uid`, which should be at `key`. `joined`: the clusters that the workspace has.
    /// `is_hidden`: others may have it.
    pub fn presence(&self, key: &Key, uid: &str, joined: &[CompactString], is_hidden: bool) -> Presence {
        let known = self.level();
        let Some(kind) = Kind::of(&key.collection) else { return Presence::Unknown };
        if self.memory.get(&self.id, key).is_some_and(|object| object.head.uid == uid)
            || known.aliases.contains_key(uid)
        {
            return Presence::Here;
        }
        // It may show by another name.
        let listing = self.memory.list(&self.id, &key.collection, None);
        let mut namesakes = listing.iter().flat_map(|it| it.iter(Some(key.item.namespace()), None));
        if namesakes.any(|(_, object)| object.head.uid == uid) {
            return Presence::Here;
        }
        if known.mirrors.get(&kind).is_some_and(|mirror| mirror.saw_removed(uid)) {
            return Presence::Gone;
        }
        let all = known.damaged.is_none()
            && !is_hidden
            && known.clusters.values().all(|cluster| cluster.has_seen_all(kind))
            && joined.iter().all(|name| known.clusters.contains_key(name));
        if all { Presence::Gone } else { Presence::Unknown }
    }

    /// How many members' objects there are of each kind, and how many of them were not seen lately.
    pub fn counts(&self) -> BTreeMap<Kind, (usize, usize)> {
        let known = self.known.lock();
        let mut counts = BTreeMap::new();
        for (kind, seen) in known.clusters.values().flat_map(|cluster| &cluster.seen) {
            let (all, stale) = counts.entry(*kind).or_insert((0, 0));
            *all += seen.names.len();
            if seen.stale.is_some() {
                *stale += seen.names.len();
            }
        }
        counts
    }

    /// How many clusters there are, and how many of them have no session now.
    pub fn cluster_counts(&self) -> (usize, usize) {
        let known = self.known.lock();
        let lost = known.clusters.values().filter(|cluster| cluster.member.is_none()).count();
        (known.clusters.len(), lost)
    }

    pub(super) fn has_seen(&self, cluster: &str, identity: &str) -> bool {
        self.known.lock().clusters.get(cluster).is_some_and(|it| it.identity == identity)
    }

    pub fn clusters(&self) -> Vec<String> {
        self.known.lock().clusters.keys().map(CompactString::to_string).collect()
    }

    pub(super) fn origin(&self) -> Revision {
        self.origin
    }
}
