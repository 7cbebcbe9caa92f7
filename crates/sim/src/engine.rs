//! Follows the change feed of all clusters, asks controllers what is to be done, and does it.

use std::{
    collections::HashMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use compact_str::CompactString;
use jiff::Timestamp;
use machinery::{Object, Owner};
use parking_lot::{Mutex, RwLock};
use serde_json::Value;
use server::{Hub, hub::stopped, space::Space};
use store::{Event, Feed, FeedItem, ItemKey, Key, WorkspaceId};

use crate::{
    Action, Kind, Plan, Pod, Refusal, World,
    api::{Api, Refused},
    controllers::{Changed, Controller},
    index::{Controlled, Pods},
    kind::{CONTROLLED, PODS},
    queue::{Queue, Work},
    runtime::Runtime,
    tree,
};

/// Clusters that are worked on at once.
const WORKERS: usize = 2;

/// A cluster as the engine knows it.
pub struct Cluster {
    pub name: String,
    pub id: WorkspaceId,
    pub pods: Mutex<Pods>,
    /// Locked after `pods`.
    pub controlled: Mutex<Controlled>,
    /// Nothing is done in it meanwhile: its controllers and nodes are down.
    pub paused: AtomicBool,
}

pub struct Engine {
    pub hub: Arc<Hub>,
    pub api: Api,
    controllers: Vec<Box<dyn Controller>>,
    /// Those that reconcile a kind.
    of_kind: HashMap<Kind, Vec<u8>>,
    /// Those that listen to a kind.
    listeners: HashMap<Kind, Vec<u8>>,
    queue: Queue,
    feed: Mutex<Feed>,
    clusters: RwLock<HashMap<WorkspaceId, Arc<Cluster>>>,
    /// Creations that were refused, by whom they were asked for.
    refusals: Mutex<HashMap<Work, Refusal>>,
    runtime: Arc<Runtime>,
}

/// A cluster at this moment.
pub struct Seen<'a> {
    space: &'a Space,
    pods: &'a Pods,
    controlled: &'a Controlled,
    now: Timestamp,
    /// What was refused lately of what the object that is looked at asked for.
    refusal: Option<Refusal>,
}

impl Engine {
    pub fn new(hub: Arc<Hub>, controllers: Vec<Box<dyn Controller>>, runtime: Arc<Runtime>) -> Arc<Engine> {
        let mut of_kind: HashMap<Kind, Vec<u8>> = HashMap::new();
        let mut listeners: HashMap<Kind, Vec<u8>> = HashMap::new();
        for (number, controller) in (0u8..).zip(&controllers) {
            of_kind.entry(controller.kind()).or_default().push(number);
            for kind in controller.listens_to() {
                listeners.entry(*kind).or_default().push(number);
            }
        }
        Arc::new(Engine {
            api: Api::new(hub.clone()),
            controllers,
            of_kind,
            listeners,
            queue: Queue::new(hub.env.clock.clone()),
            feed: Mutex::new(hub.store.feed()),
            clusters: RwLock::default(),
            refusals: Mutex::default(),
            runtime,
            hub,
        })
    }

    /// Works until the hub stops.
    pub fn start(self: &Arc<Engine>) {
        let engine = self.clone();
        self.spawn(async move { engine.follow().await });
        for _ in 0..WORKERS {
            let engine = self.clone();
            self.spawn(async move { engine.work().await });
        }
    }

    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let mut stopping = self.hub.stopping.clone();
        self.hub.env.tasks.spawn(Box::pin(async move {
            tokio::select! {
                () = work => {}
                () = stopped(&mut stopping) => {}
            }
        }));
    }

    /// From now on the workspace is a cluster: what is in it is looked at, and what changes.
    pub fn adopt(&self, cluster: Arc<Cluster>) {
        self.clusters.write().insert(cluster.id.clone(), cluster.clone());
        self.look_at_all(&cluster);
    }

    pub fn forget(&self, id: &WorkspaceId) {
        self.clusters.write().remove(id);
        self.refusals.lock().retain(|work, _| work.cluster != *id);
        self.queue.forget(id);
    }

    pub fn cluster(&self, id: &WorkspaceId) -> Option<Arc<Cluster>> {
        self.clusters.read().get(id).cloned()
    }

    /// Everything in it is looked at again, as controllers do that were down.
    pub fn look_at_all(&self, cluster: &Cluster) {
        let Some(space) = self.hub.space_by_id(&cluster.id) else { return };
        {
            // Locked before the list is taken: what the feed brings later is later, or comes once more.
            let mut pods = cluster.pods.lock();
            *pods = Pods::default();
            for (key, object) in space.latest(&PODS.collection()).iter(None, None) {
                self.index(cluster, &mut pods, key, object);
            }
            let mut controlled = cluster.controlled.lock();
            *controlled = Controlled::default();
            for kind in CONTROLLED {
                for (key, object) in space.latest(&kind.collection()).iter(None, None) {
                    controlled.put(*kind, key, controller_of(object));
                }
            }
        }
        for (kind, numbers) in &self.of_kind {
            for (key, _) in space.latest(&kind.collection()).iter(None, None) {
                numbers.iter().for_each(|number| self.ask(&cluster.id, *number, key.namespace(), key.name()));
            }
        }
    }

    /// Whether nothing is left to do now; timers do not count.
    pub fn is_idle(&self) -> bool {
        self.catch_up();
        self.queue.is_idle()
    }

    async fn follow(&self) {
        // The feed that is drained is shared; this one only tells that there is something.
        let mut signal = self.hub.store.feed();
        loop {
            signal.next().await;
            while signal.try_next().is_some() {}
            self.catch_up();
        }
    }

    /// Takes in all that has been committed.
    fn catch_up(&self) {
        let mut feed = self.feed.lock();
        while let Some(item) = feed.try_next() {
            match item {
                FeedItem::Event(event) => self.observe(&event),
                FeedItem::WorkspaceRemoved(workspace) => self.forget(&workspace),
                FeedItem::Lagged => {
                    let clusters: Vec<_> = self.clusters.read().values().cloned().collect();
                    clusters.iter().for_each(|cluster| self.look_at_all(cluster));
                }
            }
        }
    }

    fn observe(&self, event: &Event) {
        let Some(kind) = Kind::stored_in(&event.key.collection) else { return };
        let Some(cluster) = self.cluster(&event.workspace) else { return };
        let (old, new) = (event.old.as_deref(), event.after().map(AsRef::as_ref));
        if kind == PODS {
            let mut pods = cluster.pods.lock();
            match new {
                Some(object) => self.index(&cluster, &mut pods, &event.key.item, object),
                None => {
                    pods.remove(&event.key.item);
                    self.runtime.gone(&event.object().head.uid);
                }
            }
        }
        let item = &event.key.item;
        if CONTROLLED.contains(&kind) {
            let mut controlled = cluster.controlled.lock();
            match new {
                Some(object) => controlled.put(kind, item, controller_of(object)),
                None => controlled.remove(kind, item),
            }
        }
        if new.is_some() {
            for number in self.of_kind.get(&kind).into_iter().flatten() {
                self.ask(&cluster.id, *number, item.namespace(), item.name());
            }
        }
        let owners = old.into_iter().chain(new).flat_map(|object| object.head.owners.iter());
        for owner in owners.filter(|owner| owner.controller) {
            self.ask_owner(&cluster.id, item.namespace(), owner);
        }
        if let Some(numbers) = self.listeners.get(&kind) {
            self.tell(&cluster, kind, old, new, numbers);
        }
    }

    fn index(&self, cluster: &Cluster, pods: &mut Pods, key: &ItemKey, object: &Object) {
        // Stored bytes were a tree when they were written.
        let Ok(tree) = object.tree() else { return };
        let tree = Value::Object(tree);
        if !cluster.paused.load(Ordering::Relaxed) {
            self.runtime.observe(cluster, &tree);
        }
        pods.put(key.clone(), Arc::new(Pod::of(&tree)));
    }

    fn ask_owner(&self, cluster: &WorkspaceId, namespace: &str, owner: &Owner) {
        let Some(kind) = Kind::named(&owner.api_version, &owner.kind) else { return };
        let namespace = if kind.namespaced { namespace } else { "" };
        for number in self.of_kind.get(&kind).into_iter().flatten() {
            self.ask(cluster, *number, namespace, &owner.name);
        }
    }

    /// Lets those who listen say what a change means to them.
    fn tell(
        &self,
        cluster: &Cluster,
        kind: Kind,
        old: Option<&Object>,
        new: Option<&Object>,
        numbers: &[u8],
    ) {
        let Some(space) = self.hub.space_by_id(&cluster.id) else { return };
        let read = |object: &Object| object.tree().ok().map(Value::Object);
        let (old, new) = (old.and_then(read), new.and_then(read));
        let changed = Changed { kind, old: old.as_ref(), new: new.as_ref() };
        let (pods, controlled) = (cluster.pods.lock(), cluster.controlled.lock());
        let seen =
            Seen { space: &space, pods: &pods, controlled: &controlled, now: self.hub.now(), refusal: None };
        for number in numbers {
            let Some(controller) = self.controllers.get(usize::from(*number)) else { continue };
            let woken = self.guarded(controller.name(), || controller.wakes(&seen, &changed));
            for (namespace, name) in woken.unwrap_or_default() {
                self.ask(&cluster.id, *number, &namespace, &name);
            }
        }
    }

    fn ask(&self, cluster: &WorkspaceId, controller: u8, namespace: &str, name: &str) {
        self.queue.add(Work {
            cluster: cluster.clone(),
            controller,
            namespace: namespace.into(),
            name: name.into(),
        });
    }

    async fn work(&self) {
        loop {
            let work = self.queue.take().await;
            self.catch_up();
            match self.attempt(&work).await {
                Ok(()) => self.queue.done(&work),
                Err(refused) => {
                    tracing::debug!(?work, %refused, "a simulated controller will try again");
                    self.queue.failed(&work);
                }
            }
            // A cluster with much to do must not keep others of this thread from their turn.
            tokio::task::yield_now().await;
        }
    }

    async fn attempt(&self, work: &Work) -> Result<(), Refused> {
        let Some(cluster) = self.cluster(&work.cluster) else { return Ok(()) };
        // When it is up again everything is looked at.
        if cluster.paused.load(Ordering::Relaxed) {
            return Ok(());
        }
        let Some(controller) = self.controllers.get(usize::from(work.controller)) else { return Ok(()) };
        let Some(plan) = self.plan(&cluster, &**controller, work) else { return Ok(()) };
        let mut created = String::new();
        for action in &plan.actions {
            let done = self.api.perform(&cluster.name, controller.name(), action, &created).await;
            if matches!(action, Action::Create { .. }) {
                self.note_creation(work, &done);
            }
            if let Some(name) = done? {
                created = name;
            }
        }
        if let Some(after) = plan.again {
            self.queue.add_after(work.clone(), after);
        }
        Ok(())
    }

    /// Controllers are told of what was refused, and tell people.
    fn note_creation(&self, work: &Work, done: &Result<Option<String>, Refused>) {
        let mut refusals = self.refusals.lock();
        match done {
            Ok(_) => drop(refusals.remove(work)),
            Err(refused) => {
                let times = refusals.get(work).map_or(0, |before| before.times);
                let refusal = Refusal {
                    message: refused.message.clone(),
                    at: self.hub.now(),
                    times: times.saturating_add(1),
                    fresh: true,
                    namespace_ends: refused.namespace_ends,
                };
                refusals.insert(work.clone(), refusal);
            }
        }
    }

    fn plan(&self, cluster: &Cluster, controller: &dyn Controller, work: &Work) -> Option<Plan> {
        let space = self.hub.space_by_id(&cluster.id)?;
        let (pods, controlled) = (cluster.pods.lock(), cluster.controlled.lock());
        let refusal = self.refusals.lock().get(work).cloned();
        let seen = Seen { space: &space, pods: &pods, controlled: &controlled, now: self.hub.now(), refusal };
        let Some(object) = seen.get(controller.kind(), &work.namespace, &work.name) else {
            self.refusals.lock().remove(work);
            return None;
        };
        let plan = self.guarded(controller.name(), || controller.reconcile(&seen, &object));
        if let Some(refusal) = self.refusals.lock().get_mut(work) {
            refusal.fresh = false;
        }
        plan
    }

    /// A controller that panics at one object goes on with the others; this one is looked at when it changes again.
    fn guarded<T>(&self, controller: &str, step: impl FnOnce() -> T) -> Option<T> {
        // What is shared is only read, and locks are not poisoned.
        let done = catch_unwind(AssertUnwindSafe(step));
        if done.is_err() {
            self.hub.metrics.controller_panics.inc();
            tracing::error!(controller, "a simulated controller panicked");
        }
        done.ok()
    }
}

/// The UID of whoever controls an object.
fn controller_of(object: &Object) -> Option<CompactString> {
    object.head.owners.iter().find(|owner| owner.controller).map(|owner| owner.uid.as_str().into())
}

impl World for Seen<'_> {
    fn now(&self) -> Timestamp {
        self.now
    }

    fn get(&self, kind: Kind, namespace: &str, name: &str) -> Option<Value> {
        let key = Key { collection: kind.collection(), item: ItemKey::new(namespace, name) };
        self.space.get(&key)?.tree().ok().map(Value::Object)
    }

    fn list(&self, kind: Kind, namespace: Option<&str>) -> Vec<Value> {
        let listing = self.space.latest(&kind.collection());
        let trees = listing.iter(namespace, None).filter_map(|(_, object)| object.tree().ok());
        trees.map(Value::Object).collect()
    }

    fn owned(&self, kind: Kind, namespace: &str, owner: &str) -> Vec<Value> {
        debug_assert!(CONTROLLED.contains(&kind), "{kind:?} has no index");
        let owned = self.controlled.of(kind, owner).filter(|key| key.namespace() == namespace);
        owned.filter_map(|key| self.get(kind, key.namespace(), key.name())).collect()
    }

    fn orphans(&self, kind: Kind, namespace: &str) -> Vec<Value> {
        debug_assert!(CONTROLLED.contains(&kind), "{kind:?} has no index");
        let orphans = self.controlled.orphans(kind, namespace);
        orphans.filter_map(|key| self.get(kind, key.namespace(), key.name())).collect()
    }

    fn pods(&self, namespace: &str) -> Vec<Arc<Pod>> {
        self.pods.in_namespace(namespace)
    }

    fn pods_on(&self, node: &str) -> Vec<Arc<Pod>> {
        self.pods.on(node)
    }

    fn nominated(&self) -> Vec<Arc<Pod>> {
        self.pods.nominated()
    }

    fn pods_of(&self, _namespace: &str, owner: &str) -> Vec<Arc<Pod>> {
        self.pods.of(owner)
    }

    fn refusal(&self, _kind: Kind, _namespace: &str, _name: &str) -> Option<Refusal> {
        self.refusal.clone()
    }

    fn finished_beyond(&self, kept: usize) -> Vec<Arc<Pod>> {
        self.pods.finished_beyond(kept)
    }

    fn usage(&self, pod: &Pod, resource: &str) -> Option<f64> {
        let mut object = self.get(PODS, &pod.namespace, &pod.name)?;
        let pointer = format!("/metadata/annotations/sim.hanse.io~1usage-{resource}");
        // The pod itself, or whoever made it: a Deployment is two steps away.
        for _ in 0..3 {
            if let Ok(quantity) = tree::text(&object, &pointer).parse::<machinery::quantity::Quantity>() {
                return Some(quantity.approximately());
            }
            let owner = tree::controller(&object)?.clone();
            let kind = Kind::named(tree::text(&owner, "/apiVersion"), tree::text(&owner, "/kind"))?;
            object = self.get(kind, &pod.namespace, tree::text(&owner, "/name"))?;
        }
        None
    }
}
