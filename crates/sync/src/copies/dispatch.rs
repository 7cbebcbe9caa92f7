//! Which sessions a change in the hub concerns.

use std::{collections::HashMap, sync::Arc, time::Duration};

use api::assignment::{self, State};
use compact_str::CompactString;
use kinds::Subject;
use machinery::Object;
use serde::Deserialize;
use serde_json::{Value, value::RawValue};
use server::{Hub, hub::root_id};
use store::{Event, Key, WorkspaceId};

use super::{
    deed::says_failing,
    errand::adopts,
    overrides::Override,
    recent::Recent,
    reporter,
    seen::Type,
    work::{Errand, Haste},
};
use crate::session::Session;

/// Sessions by the UID of their `Cluster`.
pub struct Dispatch {
    hub: Arc<Hub>,
    sessions: HashMap<CompactString, Arc<Session>>,
    /// Objects that somebody has just written: what is decided of them goes first.
    recent: Recent,
}

/// What of an Assignment says whom it concerns.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Wire<'a> {
    #[serde(borrow)]
    spec: Option<&'a RawValue>,
    #[serde(borrow)]
    status: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Clusters {
    clusters: Vec<Cluster>,
    object: assignment::Reference,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Cluster {
    uid: CompactString,
    state: State,
}

fn read<'a>(object: &'a Object) -> Wire<'a> {
    serde_json::from_slice(object.body_slice()).unwrap_or_default()
}

fn clusters(part: Option<&RawValue>) -> Clusters {
    part.and_then(|part| serde_json::from_str(part.get()).ok()).unwrap_or_default()
}

/// The kind that an Assignment is about.
pub fn type_of(assignment: &Object) -> Option<Type> {
    let reference = clusters(read(assignment).spec).object;
    let is_told = !reference.resource.is_empty();
    is_told.then(|| Type { api_version: reference.api_version.into(), plural: reference.resource.into() })
}

impl Dispatch {
    pub fn new(hub: Arc<Hub>) -> Dispatch {
        Dispatch { hub, sessions: HashMap::new(), recent: Recent::default() }
    }

    /// A session has begun. Whatever names its cluster comes later, or was there when the process began: then it is
    /// looked at with everything else.
    pub fn add(&mut self, uid: &str, session: &Arc<Session>) {
        self.sessions.insert(uid.into(), session.clone());
    }

    pub fn remove(&mut self, uid: &str) {
        self.sessions.remove(uid);
    }

    fn elapsed(&self) -> Duration {
        self.hub.env.clock.elapsed()
    }

    /// All Assignments, to the sessions that they name.
    pub async fn look_at_everything(&self) {
        // Some may have gone that nobody saw go.
        self.sessions.values().for_each(|session| session.copies.look_again(None));
        for workspace in self.hub.store.workspaces() {
            tokio::task::yield_now().await;
            let Ok(listing) = self.hub.store.list(&workspace, &reporter::collection(), None) else {
                continue;
            };
            for (item, object) in listing.iter(None, None) {
                let errand = Errand { workspace: workspace.clone(), item: item.clone() };
                for (_, session) in self.named(object) {
                    session.welcome(&workspace);
                    session.copies.want(&errand, None, Haste::InTurn);
                }
            }
        }
    }

    /// The session with the cluster whose `Cluster` has this UID.
    pub fn session(&self, uid: &str) -> Option<&Arc<Session>> {
        self.sessions.get(uid)
    }

    /// The sessions that an Assignment names.
    fn named(&self, object: &Object) -> impl Iterator<Item = (CompactString, &Arc<Session>)> {
        let wire = read(object);
        let mut uids: Vec<CompactString> = [wire.spec, wire.status]
            .into_iter()
            .flat_map(|part| clusters(part).clusters)
            .map(|it| it.uid)
            .collect();
        uids.sort();
        uids.dedup();
        uids.into_iter().filter_map(|uid| self.sessions.get(&uid).map(|session| (uid, session)))
    }

    /// A workspace is gone with all that was in it.
    pub fn forget(&self, workspace: &WorkspaceId) {
        self.sessions.values().for_each(|session| session.copies.look_again(Some(workspace)));
    }

    pub fn observe(&self, event: &Event) {
        if self.sessions.is_empty() {
            return;
        }
        match event.key.collection.parts() {
            (api::GROUP, assignment::PLURAL) => self.assignment_changed(event),
            (api::GROUP, api::overrides::PLURAL) => self.override_changed(event),
            ("", "namespaces") => self.namespace_changed(event),
            // Nobody places them, and there are many.
            ("" | "events.k8s.io", "events") => {}
            ("autoscaling", "horizontalpodautoscalers") => {
                self.autoscaler_changed(event);
                self.object_changed(event);
            }
            _ => self.object_changed(event),
        }
    }

    fn assignment_changed(&self, event: &Event) {
        let errand = Errand { workspace: event.workspace.clone(), item: event.key.item.clone() };
        let (old, new) = (event.old.as_deref(), event.after());
        if let (Some(old), Some(new)) = (old, new)
            && old.head.deleting == new.head.deleting
        {
            let (before, after) = (read(old).spec, read(new).spec);
            if before.map(RawValue::get) == after.map(RawValue::get) {
                // Only what was reported has changed: those look who wait for the others.
                let draining = clusters(after).clusters.into_iter().filter(|it| it.state == State::Draining);
                for session in draining.filter_map(|it| self.sessions.get(&it.uid)) {
                    session.copies.want(&errand, None, Haste::Now);
                }
                return;
            }
        }
        let mut concerned: HashMap<CompactString, &Arc<Session>> = HashMap::new();
        for object in old.into_iter().chain(new.map(|new| &**new)) {
            concerned.extend(self.named(object));
        }
        let is_hurried = errand == errand.of_namespace() || self.recent.contains(&errand, self.elapsed());
        let haste = if is_hurried { Haste::Now } else { Haste::InTurn };
        for session in concerned.values() {
            session.welcome(&event.workspace);
            session.copies.want(&errand, Some(self.elapsed()), haste);
        }
    }

    fn object_changed(&self, event: &Event) {
        let (group, plural) = event.key.collection.parts();
        let name = event.key.item.name();
        let namespace = match event.key.item.namespace() {
            "" => assignment::NAMESPACE_OF_SHARED,
            namespace => namespace,
        };
        let errand = Errand::new(&event.workspace, namespace, &assignment::name_of(group, plural, name));
        if event.old.is_none() {
            self.recent.note(&errand, self.elapsed());
        }
        self.about(&errand, || changes_copies(event));
    }

    /// An Assignment is looked at, if there is one.
    fn about(&self, errand: &Errand, is_news: impl Fn() -> bool) {
        let Some(object) = self.hub.store.get(&errand.workspace, &reporter::key(errand)) else { return };
        if is_news() {
            let now = self.elapsed();
            self.recent.note(errand, now);
            self.named(&object).for_each(|(_, session)| session.copies.want(errand, Some(now), Haste::Now));
        }
    }

    fn namespace_changed(&self, event: &Event) {
        let name = event.key.item.name();
        let errand = Errand::new(&event.workspace, name, &assignment::name_of("", "namespaces", name));
        self.about(&errand, || changes_copies(event));
        // What is in it may be taken over now, or be selected by other Overrides.
        let (Some(old), Some(new)) = (event.old.as_deref(), event.after()) else { return };
        if old.head.labels == new.head.labels && adopts(old) == adopts(new) {
            return;
        }
        self.all_of(&event.workspace, Some(name), |_, _| true);
    }

    fn autoscaler_changed(&self, event: &Event) {
        let Some(space) = self.hub.space_by_id(&event.workspace) else { return };
        let targets = [event.old.as_deref(), event.after().map(|it| &**it)].map(|object| {
            let tree = object?.tree().ok()?;
            let target = tree.get("spec")?.get("scaleTargetRef")?.clone();
            let served = self.hub.served(&space);
            let found =
                served.registry.find_kind(target["apiVersion"].as_str()?, target["kind"].as_str()?)?;
            Some((found.group.clone(), found.plural.clone(), target["name"].as_str()?.to_owned()))
        });
        if targets[0] == targets[1] {
            return;
        }
        for (group, plural, name) in targets.into_iter().flatten() {
            let name = assignment::name_of(&group, &plural, &name);
            self.about(&Errand::new(&event.workspace, event.key.item.namespace(), &name), || true);
        }
    }

    fn override_changed(&self, event: &Event) {
        let sides = [event.old.as_deref(), event.after().map(|it| &**it)];
        let read: Vec<Override> = sides.into_iter().flatten().filter_map(Override::read).collect();
        let workspaces = match event.workspace == root_id() {
            true => self.hub.store.workspaces(),
            false => vec![event.workspace.clone()],
        };
        for workspace in workspaces {
            self.all_of(&workspace, None, |subject, namespace| {
                read.iter().any(|it| it.selects(subject, namespace))
            });
        }
    }

    /// Assignments of a workspace, or of a namespace of it, whose object is meant.
    fn all_of(
        &self,
        workspace: &WorkspaceId,
        namespace: Option<&str>,
        is_meant: impl Fn(&Subject, &super::overrides::Labels) -> bool,
    ) {
        let Ok(listing) = self.hub.store.list(workspace, &reporter::collection(), None) else { return };
        let Some(space) = self.hub.space_by_id(workspace) else { return };
        for (item, object) in listing.iter(namespace, None) {
            let spec = clusters(read(object).spec);
            let subject = self.subject(workspace, item.namespace(), &spec.object);
            let around = space.get(&Key::new("", "namespaces", "", item.namespace()));
            let labels = around.map(|it| it.head.labels.to_vec()).unwrap_or_default();
            if !is_meant(&subject, &labels) {
                continue;
            }
            let errand = Errand { workspace: workspace.clone(), item: item.clone() };
            let now = Some(self.elapsed());
            self.named(object).for_each(|(_, session)| session.copies.want(&errand, now, Haste::InTurn));
        }
    }

    fn subject(
        &self,
        workspace: &WorkspaceId,
        namespace: &str,
        reference: &assignment::Reference,
    ) -> Subject {
        let key = Key::new(reference.group(), &reference.resource, namespace, &reference.name);
        let object = self.hub.store.get(workspace, &key);
        let labels = object.as_ref().map(|object| &object.head.labels[..]).unwrap_or_default();
        Subject {
            group: reference.group().to_owned(),
            kind: reference.kind.clone(),
            namespace: namespace.to_owned(),
            name: reference.name.clone(),
            labels: labels.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect(),
            ..Subject::default()
        }
    }
}

/// Whether anything changed that a copy is made from: what became of it is no news to those who reported it.
fn changes_copies(event: &Event) -> bool {
    let (Some(old), Some(new)) = (event.old.as_deref(), event.after()) else { return true };
    if old.head.generation != new.head.generation || old.head.uid != new.head.uid {
        return true;
    }
    if says_failing(new) && !says_failing(old) {
        // A part has failed, and the others stop.
        return true;
    }
    if old.head.generation > 0 && new.has_metadata_of(old) {
        // What has a generation has a new one with everything else but its status.
        return false;
    }
    let plain = |object: &Object| {
        let mut tree = object.tree().ok()?;
        tree.remove("status");
        let metadata = tree.get_mut("metadata")?.as_object_mut()?;
        for key in ["resourceVersion", "managedFields", "finalizers", "ownerReferences"] {
            metadata.remove(key);
        }
        Some(Value::Object(tree))
    };
    plain(old) != plain(new)
}
