//! All that decisions are made from, kept level with the store's feed; and what must be decided again.

mod anew;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use api::assignment::{Assignment, State};
use compact_str::CompactString;
use kinds::{Kind, Target, Travel};
use machinery::Object;
use placement::{CLUSTERS, PLACEMENT, Policies, Policy};
use serde_json::Value;
use server::{
    Hub,
    alarms::Alarms,
    hub::{default_id, root_id},
    space::Space,
};
use store::{Collection, Event, Key, WorkspaceId};

use crate::{
    clusters::{Clusters, Turn, is_platform},
    failing::Failing,
    holds::{Holds, Returned},
    leave::Leaving,
    namespace::Namespace,
    queue::{Aspect, Haste, Id, Queue},
    record, scale,
    users::Users,
    waiting::Waiting,
};

/// What is known of a workspace.
#[derive(Default)]
pub struct Workspace {
    /// By name; the one without a name has what is in none.
    pub namespaces: HashMap<CompactString, Namespace>,
    pub users: Users,
    /// How many workloads each cluster has that were placed by default: the first is where others go.
    homes: BTreeMap<String, usize>,
    /// Where each of them was counted.
    counted: HashMap<Key, Vec<String>>,
    policies: Arc<Policies>,
    /// The clusters whose node is cordoned here.
    cordoned: BTreeSet<String>,
}

impl Workspace {
    pub fn home(&self) -> Option<&str> {
        self.homes
            .iter()
            .max_by_key(|(name, count)| (**count, std::cmp::Reverse(*name)))
            .map(|(name, _)| name.as_str())
    }
}

pub struct World {
    pub hub: Arc<Hub>,
    pub clusters: Clusters,
    pub waiting: Waiting,
    pub holds: Holds,
    pub leaving: Leaving,
    pub queue: Queue,
    pub failing: Failing,
    /// When what is tolerated for a time is over.
    pub alarms: Alarms<Id>,
    /// There is no cluster and there never was: nothing is looked at, and nothing written.
    asleep: bool,
    pub workspaces: HashMap<WorkspaceId, Workspace>,
}

fn placements() -> Collection {
    Collection::new(api::GROUP, api::placement::PLURAL)
}

/// What was stored was checked; whatever cannot be read all the same selects nothing.
fn policy(object: &Object) -> Option<Policy> {
    let tree = Value::Object(object.tree().ok()?);
    Policy::read(&tree).inspect_err(|problem| tracing::warn!(%problem, "a Placement cannot be read")).ok()
}

/// Group and kind, of how every object begins.
pub fn kind_of(object: &Object) -> Option<(&str, &str, &str)> {
    let text = std::str::from_utf8(object.type_slice()).ok()?;
    let parts: Vec<&str> = text.split('"').collect();
    let (kind, api_version) = (*parts.get(3)?, *parts.get(7)?);
    Some((api_version.split_once('/').map_or("", |(group, _)| group), api_version, kind))
}

impl World {
    pub fn new(hub: Arc<Hub>) -> World {
        World {
            hub,
            clusters: Clusters::default(),
            waiting: Waiting::default(),
            holds: Holds::default(),
            leaving: Leaving::default(),
            queue: Queue::default(),
            failing: Failing::default(),
            alarms: Alarms::default(),
            asleep: true,
            workspaces: HashMap::new(),
        }
    }

    /// Where each is to be is looked at when it is its turn.
    fn place_in_turn(&mut self, ids: impl IntoIterator<Item = Id>) {
        ids.into_iter().for_each(|id| self.queue.add(id, Aspect::Place, Haste::InTurn));
    }

    pub fn workspace(&mut self, id: &WorkspaceId) -> &mut Workspace {
        self.workspaces.entry(id.clone()).or_default()
    }

    pub fn namespace(&self, id: &Id) -> Option<&Namespace> {
        self.workspaces.get(&id.workspace)?.namespaces.get(id.realm())
    }

    fn namespace_mut(&mut self, workspace: &WorkspaceId, name: &str) -> &mut Namespace {
        self.workspace(workspace).namespaces.entry(name.into()).or_default()
    }

    /// The `Placement`s of a workspace.
    pub fn policies(&self, workspace: &WorkspaceId) -> Arc<Policies> {
        self.workspaces.get(workspace).map(|known| known.policies.clone()).unwrap_or_default()
    }

    fn policies_mut(&mut self, workspace: &WorkspaceId) -> &mut Policies {
        Arc::make_mut(&mut self.workspace(workspace).policies)
    }

    /// The clusters whose node is cordoned in a workspace.
    pub fn cordoned(&self, workspace: &WorkspaceId) -> BTreeSet<String> {
        self.workspaces.get(workspace).map(|known| known.cordoned.clone()).unwrap_or_default()
    }

    /// A node is as it is here. Whoever waits may wait for that; nobody leaves because of it.
    fn observe_node(&mut self, workspace: &WorkspaceId, name: &str, node: Option<&Object>) {
        let tree = node.and_then(|node| node.tree().ok()).unwrap_or_default();
        let is = tree.get("spec").is_some_and(|spec| spec["unschedulable"] == true);
        let was = self.workspaces.get(workspace).is_some_and(|known| known.cordoned.contains(name));
        if is == was {
            return;
        }
        let cordoned = &mut self.workspace(workspace).cordoned;
        let _ = if is { cordoned.insert(name.to_owned()) } else { cordoned.remove(name) };
        let ids = self.waiting.concerned(name, Turn::Ready);
        let here = ids.into_iter().filter(|id| id.workspace == *workspace);
        self.place_in_turn(here.collect::<Vec<_>>());
    }

    /// What is known of a kind, with what its definition says if it has one.
    pub fn kind(&self, space: &Space, collection: &Collection, group: &str, kind: &str) -> Kind {
        let known = kinds::of(group, kind);
        if !known.kind.is_empty() {
            return known;
        }
        let served = self.hub.served(space);
        kinds::generic(served.registry.stored(collection).and_then(|it| it.scale.clone()))
    }

    /// True: everything must be looked at.
    #[must_use]
    pub fn observe(&mut self, event: &Event) -> bool {
        let awakes = [api::cluster::PLURAL, api::assignment::PLURAL];
        match event.key.collection.parts() {
            (api::GROUP, resource) if self.asleep && awakes.contains(&resource) => return true,
            _ if self.asleep => {}
            _ => self.take_note(event),
        }
        false
    }

    fn take_note(&mut self, event: &Event) {
        let (workspace, key) = (&event.workspace, &event.key);
        match key.collection.parts() {
            (api::GROUP, api::cluster::PLURAL) => {
                self.observe_cluster(workspace, key.item.name(), event.after().map(AsRef::as_ref));
            }
            (api::GROUP, api::placement::PLURAL) => {
                let read = |object: Option<&Arc<Object>>| object.and_then(|object| policy(object));
                self.observe_policy(
                    workspace,
                    key.item.name(),
                    [read(event.old.as_ref()), read(event.after())],
                );
            }
            (api::GROUP, api::assignment::PLURAL) => {
                self.observe_assignment(workspace, event.after(), event.object(), Haste::Now);
            }
            (api::GROUP, _) => {}
            ("", "nodes") => {
                self.observe_node(workspace, key.item.name(), event.after().map(AsRef::as_ref));
            }
            ("", "namespaces") => self.observe_namespace(event),
            _ if is_as_it_was(event) => {}
            _ => self.observe_object(workspace, key, event.after(), Haste::Now),
        }
    }

    fn observe_cluster(&mut self, home: &WorkspaceId, name: &str, object: Option<&Object>) {
        let uid = object.map(|object| object.head.uid.clone());
        let was_ready = self.clusters.is_ready(home, name);
        let turn = self.clusters.observe(home, name, object, self.hub.now());
        if let Some(uid) = uid {
            let counted = self.holds.reported(&uid);
            self.give_back(counted.into_iter().map(|(name, amounts)| (uid.clone(), name, amounts)).collect());
        }
        let is_concerned = |id: &Id| is_platform(home) || id.workspace == *home;
        let ids = self.waiting.concerned(name, turn);
        self.place_in_turn(ids.into_iter().filter(is_concerned));
        let is_ready = self.clusters.is_ready(home, name);
        if was_ready != is_ready {
            // What waits for it says so; a workspace that goes does not wait.
            let leaving = self.waiting.assigned_to(name);
            let leaving = leaving.filter(|id| is_concerned(id) && self.leaving.contains(id));
            self.place_in_turn(leaving.cloned().collect::<Vec<_>>());
        }
        if !was_ready && is_ready {
            // What it says counts again, whatever else has become of it.
            let ids: Vec<Id> =
                self.waiting.assigned_to(name).filter(|id| is_concerned(id)).cloned().collect();
            ids.into_iter().for_each(|id| self.queue.add(id, Aspect::Status, Haste::InTurn));
        }
        if turn == Turn::Gone {
            // Some that are on their way out waited for it.
            let ids = self.holds_copies(home, name);
            self.place_in_turn(ids);
        }
    }

    /// All that has an Assignment which names the cluster.
    fn holds_copies(&self, home: &WorkspaceId, cluster: &str) -> Vec<Id> {
        let concerned = self.workspaces.iter().filter(|(id, _)| is_platform(home) || *id == home);
        let mut ids = Vec::new();
        for (workspace, known) in concerned {
            for (name, namespace) in &known.namespaces {
                let here = namespace.all().filter(|(_, it)| it.placed.contains_key(cluster));
                ids.extend(here.map(|(key, _)| Id::new(workspace, key)));
                if name.is_empty() {
                    continue;
                }
                ids.push(Id::new(workspace, &Key::new("", "namespaces", "", name)));
            }
        }
        ids
    }

    fn observe_policy(&mut self, workspace: &WorkspaceId, name: &str, policies: [Option<Policy>; 2]) {
        let is_root = *workspace == root_id();
        match &policies[1] {
            Some(policy) => self.policies_mut(workspace).put(policy.clone()),
            None => self.policies_mut(workspace).remove(name),
        }
        let mut ids = Vec::new();
        for (id, known) in self.workspaces.iter().filter(|(id, _)| is_root || *id == workspace) {
            for (namespace, objects) in &known.namespaces {
                let labels = namespace_of(&self.hub, id, namespace);
                let labels: placement::cluster::Labels = placement::policy::labels(&labels.labels);
                for (key, object) in objects.all() {
                    let subject = &object.subject;
                    let is_named = subject.annotations.get(PLACEMENT).is_some_and(|it| it == name);
                    let is_selected =
                        policies.iter().flatten().any(|policy| policy.selects(subject, &labels).is_some());
                    if is_named || is_selected {
                        ids.push(Id::new(id, key));
                    }
                }
            }
        }
        self.place_in_turn(ids);
        // Kinds that stay in the hub by default were not looked at while nothing selected them.
        let workspaces: Vec<WorkspaceId> = match is_root {
            true => self.hub.store.workspaces(),
            false => vec![workspace.clone()],
        };
        if policies[1].is_some() {
            workspaces.iter().for_each(|workspace| self.look_for_selected(workspace));
        }
    }

    fn look_for_selected(&mut self, workspace: &WorkspaceId) {
        let store = self.hub.store.clone();
        for collection in store.collections(workspace) {
            let Ok(listing) = store.list(workspace, &collection, None) else { continue };
            let first = listing.iter(None, None).next();
            let travel = first
                .and_then(|(_, object)| kind_of(object))
                .map(|(group, _, kind)| kinds::of(group, kind).travel);
            if travel == Some(Travel::IfSelected) {
                for (item, object) in listing.iter(None, None) {
                    let key = Key { collection: collection.clone(), item: item.clone() };
                    self.observe_object(workspace, &key, Some(object), Haste::InTurn);
                }
            }
        }
    }

    fn observe_namespace(&mut self, event: &Event) {
        let id = Id::new(&event.workspace, &event.key);
        let annotations = |object: Option<&Arc<Object>>| {
            object.map(|object| {
                serde_json::from_slice::<Meta>(object.body_slice()).map(|it| it.metadata).unwrap_or_default()
            })
        };
        if annotations(event.old.as_ref()) != annotations(event.after()) {
            let keys: Vec<Key> = self.namespace(&id).into_iter().flat_map(Namespace::keys).cloned().collect();
            self.place_in_turn(keys.iter().map(|key| Id::new(&id.workspace, key)));
            // It may say itself where it is to be.
            self.queue.add(id.clone(), Aspect::Place, Haste::Now);
        }
        if event.after().is_none() {
            self.drop_if_empty(&id.workspace, id.namespace());
        }
    }

    fn drop_if_empty(&mut self, workspace: &WorkspaceId, namespace: &str) {
        let namespaces = &mut self.workspace(workspace).namespaces;
        if namespaces.get(namespace).is_some_and(Namespace::is_empty) {
            namespaces.remove(namespace);
        }
    }

    fn observe_object(
        &mut self,
        workspace: &WorkspaceId,
        key: &Key,
        object: Option<&Arc<Object>>,
        haste: Haste,
    ) {
        let subject = object.and_then(|object| self.subject(workspace, key, object));
        let (users, concerned) = match (object, subject) {
            (Some(object), Some(subject)) => {
                let users = self.workspace(workspace).users.put(key, subject.named());
                let mut concerned = self.namespace_mut(workspace, key.item.namespace()).put(key, subject);
                if object.head.deleting {
                    concerned.push(key.clone());
                }
                if !concerned.is_empty() {
                    concerned.extend(self.named_by(workspace, key));
                }
                (users, concerned)
            }
            // It was selected by what it said itself, and says so no more. What is only not understood stays as it was.
            (Some(object), None) if !self.is_no_longer_selected(workspace, key, object) => return,
            _ => match self.forget_object(workspace, key) {
                Some(forgotten) => forgotten,
                None => return,
            },
        };
        self.place_shared(workspace, &users, haste);
        self.look_at(workspace, &concerned, haste);
    }

    /// What named clusters because of an object that is gone, or is to be nowhere, and what is concerned by that. `None`: it was
    /// not known.
    fn forget_object(&mut self, workspace: &WorkspaceId, key: &Key) -> Option<(BTreeSet<Target>, Vec<Key>)> {
        let name = key.item.namespace();
        self.namespace(&Id::new(workspace, key))?.get(key)?;
        let mut concerned = self.named_by(workspace, key);
        let users = self.workspace(workspace).users.remove(key);
        concerned.extend(self.namespace_mut(workspace, name).remove(key));
        self.waiting.forget(&Id::new(workspace, key));
        self.drop_if_empty(workspace, name);
        concerned.push(key.clone());
        Some((users, concerned))
    }

    fn is_no_longer_selected(&mut self, workspace: &WorkspaceId, key: &Key, object: &Object) -> bool {
        let space = self.hub.space_by_id(workspace);
        space.is_some_and(|space| self.is_unselected(&space, key, object))
    }

    /// Where they are to be, and of autoscalers what their target is to have.
    fn look_at(&mut self, workspace: &WorkspaceId, keys: &[Key], haste: Haste) {
        for key in keys {
            let id = Id::new(workspace, key);
            if scale::is_autoscaler(key) {
                self.queue.add(id.clone(), Aspect::Scale, haste);
            }
            self.queue.add(id, Aspect::Place, haste);
        }
    }

    /// `None`: objects of its kind stay in the hub, or nothing selects it.
    fn subject(&mut self, workspace: &WorkspaceId, key: &Key, object: &Object) -> Option<kinds::Subject> {
        let (group, _, name) = kind_of(object)?;
        let travel = kinds::of(group, name).travel(key.item.name());
        // What Hanse itself writes or is told by is no workload, whatever a policy selects.
        let is_reserved = |namespace: &str| {
            namespace == api::SYSTEM_NAMESPACE || dialects::RESERVED_NAMESPACES.contains(&namespace)
        };
        let group = key.collection.parts().0;
        let is_own = group == api::GROUP || dialects::is_dialect(group) || is_reserved(key.item.namespace());
        if travel == Travel::Stays || is_own {
            return None;
        }
        let space = self.hub.space_by_id(workspace)?;
        let is_named = travel == Travel::Named;
        // What every API server has, so has every member; and nothing else goes anywhere that is in no namespace.
        if key.item.namespace().is_empty() && (!is_named || space.in_base(key)) {
            return None;
        }
        if travel == Travel::IfSelected && !self.may_be_selected(&space, object) {
            return None;
        }
        let tree = Value::Object(object.tree().ok()?);
        if is_hubs_own(key, &tree) || self.clusters.is_credential(workspace, key) {
            return None;
        }
        let kind = self.kind(&space, &key.collection, group, name);
        kind.subject(&tree)
            .inspect_err(
                |problem| tracing::warn!(?key, %problem, "an object is not understood, and not placed"),
            )
            .ok()
    }

    /// Whether an object that is not looked at, though it is there, is one that is to be nowhere; another one may only
    /// not be understood.
    pub fn is_unselected(&mut self, space: &Space, key: &Key, object: &Object) -> bool {
        let Some((group, _, name)) = kind_of(object) else { return false };
        match kinds::of(group, name).travel(key.item.name()) {
            Travel::Stays => true,
            Travel::IfSelected => !self.may_be_selected(space, object),
            _ => false,
        }
    }

    fn may_be_selected(&mut self, space: &Space, object: &Object) -> bool {
        let mentions =
            |text: &str| object.metadata_member().windows(text.len()).any(|window| window == text.as_bytes());
        !self.policies(space.id()).is_empty()
            || !self.policies(&root_id()).is_empty()
            || [CLUSTERS, PLACEMENT, placement::dialect::FEDERATED].into_iter().any(mentions)
    }

    /// An Assignment is as it is in `after`; `object` is it, or what it was last.
    fn observe_assignment(
        &mut self,
        workspace: &WorkspaceId,
        after: Option<&Arc<Object>>,
        object: &Object,
        haste: Haste,
    ) {
        let Ok(assignment) = self.hub.assignments.read(object) else { return };
        let reference = &assignment.spec.object;
        let namespace = object.head.namespace.as_str();
        let inside = if reference.is_in_namespace() { namespace } else { "" };
        let key = Key::new(reference.group(), &reference.resource, inside, &reference.name);
        let id = Id::new(workspace, &key);
        let placed = match after {
            Some(_) => record::placed(&assignment),
            None => BTreeMap::new(),
        };
        self.count_homes(&id, &assignment, after.is_some());
        self.waiting.places(&id, placed.keys().cloned().collect());
        self.leaving.observe(&id, after.is_some_and(|after| after.head.deleting));
        for report in assignment.status.clusters.iter().filter(|it| it.applied) {
            let wanted =
                assignment.spec.clusters.iter().find(|it| it.uid == report.uid).and_then(|it| it.replicas);
            let ready = report.status["readyReplicas"].as_u64().unwrap_or(0);
            self.holds.applied(&id, &report.uid, wanted.is_none_or(|wanted| ready >= wanted));
        }
        let clusters = placed.keys().cloned().collect();
        let users = self.workspace(workspace).users.place(&key, clusters);
        self.place_shared(workspace, &users, haste);
        let (concerned, moves) = self.namespace_mut(workspace, id.realm()).place(&key, placed);
        let is_out = |target: &&api::assignment::Target| target.state == State::Draining;
        let leaving = assignment
            .spec
            .clusters
            .iter()
            .filter(is_out)
            .any(|target| assignment.report(&target.uid).is_some_and(|report| report.is_gone()));
        if after.is_none() || object.head.deleting || leaving || object.head.owners.is_empty() {
            self.queue.add_heard(id.clone(), Aspect::Place, haste);
        }
        self.queue.add(id.clone(), Aspect::Status, haste);
        if scale::is_autoscaler(&key) {
            self.queue.add(id.clone(), Aspect::Scale, haste);
            if assignment.spec.clusters.len() > 1 {
                // What they do decides which bounds they have.
                self.queue.add(id.clone(), Aspect::Place, Haste::InTurn);
            }
        }
        if record::may_be_divided_anew(&assignment) {
            self.queue.add(id.clone(), Aspect::Place, Haste::InTurn);
        }
        if after.is_some() {
            let has_home = id.is_namespace() || self.namespace(&id).is_some_and(|it| it.get(&key).is_some());
            if !has_home {
                // Its object is gone, or not to be placed any more.
                self.queue.add_heard(id.clone(), Aspect::Place, haste);
            }
        }
        if moves && !id.is_shared() {
            let namespace = Key::new("", "namespaces", "", namespace);
            self.queue.add(Id::new(workspace, &namespace), Aspect::Place, haste);
        }
        self.look_at(workspace, &concerned, haste);
        self.drop_if_empty(workspace, id.realm());
    }

    /// Keeps count of where the default has put workloads.
    fn count_homes(&mut self, id: &Id, assignment: &Assignment, is_there: bool) {
        let known = self.namespace(id).and_then(|it| it.get(&id.key));
        let is_workload = known.is_some_and(|it| it.subject.replicas.is_some() && !it.subject.every_node);
        let counts = is_there && is_workload && assignment.spec.decision.layer == "Default";
        let targets = assignment.spec.clusters.iter().filter(|it| counts && it.state != State::Draining);
        let after: Vec<String> = targets.map(|it| it.name.clone()).collect();
        let workspace = self.workspace(&id.workspace);
        for name in workspace.counted.remove(&id.key).unwrap_or_default() {
            if let Some(count) = workspace.homes.get_mut(&name) {
                *count = count.saturating_sub(1);
            }
        }
        after.iter().for_each(|name| *workspace.homes.entry(name.clone()).or_default() += 1);
        workspace.homes.retain(|_, count| *count > 0);
        if !after.is_empty() {
            workspace.counted.insert(id.key.clone(), after);
        }
    }

    pub fn forget(&mut self, workspace: &WorkspaceId) {
        self.workspaces.remove(workspace);
        self.waiting.forget_workspace(workspace);
        self.leaving.forget_workspace(workspace);
        let returned = self.holds.forget(workspace);
        self.give_back(returned);
        for name in self.clusters.names(workspace) {
            self.observe_cluster(workspace, &name, None);
        }
    }

    /// Room is held for nobody any more: whoever waits for it is woken.
    pub fn give_back(&mut self, returned: Vec<Returned>) {
        for (uid, name, amounts) in returned {
            self.clusters.release(&uid, &name, &amounts);
            let ids = self.waiting.concerned(&name, Turn::Room);
            self.place_in_turn(ids);
        }
    }

    /// A decision says what is written down already: nothing more is promised than was, and nobody has seen it held.
    pub fn take_back(&mut self, id: &Id) {
        for (uid, name, amounts) in self.holds.undo(id) {
            self.clusters.release(&uid, &name, &amounts);
        }
    }

    /// A claim that others waited for is not written down.
    pub fn wake_waiting_for(&mut self, id: &Id) {
        let waiting = self.namespace(id).map(|it| it.waiting_for(&id.key)).unwrap_or_default();
        self.place_in_turn(waiting.iter().map(|key| Id::new(&id.workspace, key)));
    }

    /// The cluster that a workspace prefers.
    pub fn home(&self, workspace: &WorkspaceId) -> Option<String> {
        self.workspaces.get(workspace)?.home().map(str::to_owned)
    }
}

/// What is good in the hub alone: credentials for it, and the service that is its own address.
fn is_hubs_own(key: &Key, tree: &Value) -> bool {
    match key.collection.parts() {
        ("", "secrets") => tree["type"].as_str().is_some_and(|it| kinds::HUB_CREDENTIALS.contains(&it)),
        ("", "services") | ("discovery.k8s.io", "endpointslices") => {
            (key.item.namespace(), key.item.name()) == ("default", "kubernetes")
        }
        _ => false,
    }
}

/// Whose workspace it is; nobody's are those of the platform.
pub fn account(space: &Space) -> Option<&str> {
    (*space.id() != root_id() && *space.id() != default_id()).then(|| space.name())
}

#[derive(Default, serde::Deserialize)]
struct Meta {
    #[serde(default)]
    metadata: Described,
}

#[derive(Default, PartialEq, serde::Deserialize)]
struct Described {
    #[serde(default)]
    labels: Option<BTreeMap<String, String>>,
    #[serde(default)]
    annotations: Option<BTreeMap<String, String>>,
    #[serde(default, rename = "deletionTimestamp")]
    deleted: Option<String>,
}

fn described(object: &Object) -> Described {
    serde_json::from_slice::<Meta>(object.body_slice()).map(|it| it.metadata).unwrap_or_default()
}

/// Whether only the status of an object is another, which says nothing of where it is to be.
fn is_as_it_was(event: &Event) -> bool {
    let (Some(old), Some(new)) = (&event.old, event.after()) else { return false };
    let (was, is) = (&old.head, &new.head);
    was.generation > 0
        && (was.generation, &was.uid, was.deleting) == (is.generation, &is.uid, is.deleting)
        // It may wait for nothing else any more.
        && (!is.deleting || was.finalizers == is.finalizers)
        && (new.has_metadata_of(old) || described(old) == described(new))
}

/// What placement needs to know of a namespace.
pub fn namespace_of(hub: &Hub, workspace: &WorkspaceId, name: &str) -> placement::Namespace {
    let object =
        hub.space_by_id(workspace).and_then(|space| space.get(&Key::new("", "namespaces", "", name)));
    let meta = object
        .and_then(|object| serde_json::from_slice::<Meta>(object.body_slice()).ok())
        .unwrap_or_default();
    placement::Namespace {
        labels: meta.metadata.labels.unwrap_or_default(),
        annotations: meta.metadata.annotations.unwrap_or_default(),
    }
}
