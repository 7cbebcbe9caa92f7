//! Where the objects of a member go: namespaces to the homes, nodes and pods to the count, kinds of views to the views.

use std::sync::Arc;

use server::views::Sighting;
use store::{Collection, ItemKey, WorkspaceId};

use crate::{
    capacity::Capacity,
    homes::Home,
    objects::{self, Head},
    reflect::Sink,
    session::Session,
    unscheduled::Unscheduled,
};

pub struct NamespaceSink(Arc<Session>);

impl NamespaceSink {
    pub fn new(session: &Arc<Session>) -> NamespaceSink {
        NamespaceSink(session.clone())
    }
}

impl Sink for NamespaceSink {
    fn begin(&mut self) {
        self.0.homes.begin_list();
        self.0.namespaces_begin();
    }

    fn listed_one(&mut self, object: &[u8]) {
        self.0.homes.listed_one(object);
        self.0.namespace_listed(object);
    }

    fn end(&mut self) {
        if self.0.homes.end_list() {
            // Who gets tokens there goes by what is known here.
            self.0.tokens.look_at_everything();
        }
        self.0.namespaces_end();
        self.0.news.notify_one();
    }

    fn put(&mut self, object: &[u8], _: &Head<'_>) {
        if self.0.homes.put(object) {
            self.0.tokens.look_at_everything();
        }
        self.0.namespace_put(object);
    }

    fn removed(&mut self, object: &[u8], _: &Head<'_>) {
        self.0.homes.removed(object);
        self.0.namespace_removed(object);
    }
}

pub struct NodeSink {
    session: Arc<Session>,
    listed: Capacity,
}

impl NodeSink {
    pub fn new(session: &Arc<Session>) -> NodeSink {
        NodeSink { session: session.clone(), listed: Capacity::default() }
    }
}

impl Sink for NodeSink {
    fn begin(&mut self) {
        self.listed = Capacity::default();
    }

    fn listed_one(&mut self, object: &[u8]) {
        self.listed.put_node(object);
    }

    fn end(&mut self) {
        let listed = std::mem::take(&mut self.listed);
        self.session.capacity.lock().take_nodes(listed);
        self.session.news.notify_one();
    }

    fn put(&mut self, object: &[u8], _: &Head<'_>) {
        self.session.capacity.lock().put_node(object);
        self.session.news.notify_one();
    }

    fn removed(&mut self, _: &[u8], head: &Head<'_>) {
        self.session.capacity.lock().remove_node(&head.metadata.name);
        self.session.news.notify_one();
    }
}

/// A kind that is shown in workspaces.
pub struct Kind {
    pub group: &'static str,
    pub resource: &'static str,
    pub api_version: &'static str,
    pub kind: &'static str,
}

pub struct ViewSink {
    session: Arc<Session>,
    kind: Kind,
    collection: Collection,
    listing: Vec<(WorkspaceId, Sighting)>,
    /// Of the namespaces, when the list began.
    generation: u64,
    listed_pods: Capacity,
    listed_unscheduled: Unscheduled,
}

impl ViewSink {
    pub fn new(session: &Arc<Session>, kind: Kind) -> ViewSink {
        let collection = Collection::new(kind.group, kind.resource);
        ViewSink {
            session: session.clone(),
            kind,
            collection,
            listing: Vec::new(),
            generation: 0,
            listed_pods: Capacity::default(),
            listed_unscheduled: Unscheduled::default(),
        }
    }

    fn is_pods(&self) -> bool {
        self.kind.kind == "Pod"
    }

    /// Where the object shows, and how.
    fn place(&self, object: &[u8], head: &Head<'_>) -> Option<(WorkspaceId, Sighting)> {
        match self.session.homes.of(&head.metadata.namespace) {
            Home::Shown(workspace, namespace) => {
                let object = objects::with_kind(object, head, self.kind.api_version, self.kind.kind);
                let own = Some(ItemKey::new(&head.metadata.namespace, &head.metadata.name));
                Some((workspace, Sighting { object, own, namespace }))
            }
            // When something is known of its namespace, all is listed again.
            Home::Hidden | Home::Unknown => None,
        }
    }
}

impl Sink for ViewSink {
    fn begin(&mut self) {
        self.listing.clear();
        self.generation = self.session.homes.current();
        self.listed_pods = Capacity::default();
        self.listed_unscheduled = Unscheduled::default();
    }

    fn listed_one(&mut self, object: &[u8]) {
        if self.is_pods() {
            self.listed_pods.put_pod(object);
        }
        let head = objects::head(object);
        if let Some(head) = head.as_ref().filter(|_| self.is_pods()) {
            self.listed_unscheduled.put(&head.metadata.namespace, &head.metadata.name, object);
        }
        let placed = head.and_then(|head| self.place(object, &head));
        self.listing.extend(placed);
    }

    fn end(&mut self) {
        let listing = std::mem::take(&mut self.listing);
        self.session.shown.replace(&self.collection, listing, self.generation);
        if self.is_pods() {
            let listed = std::mem::take(&mut self.listed_pods);
            self.session.capacity.lock().take_pods(listed);
            let waiting = std::mem::take(&mut self.listed_unscheduled);
            let (now, after) = self.session.age();
            self.session.unscheduled.lock().replace(waiting, now, after);
            self.session.waiting.notify_one();
        }
        self.session.news.notify_one();
    }

    fn given_up(&mut self) {
        self.session.shown.outdated(&self.collection);
    }

    fn put(&mut self, object: &[u8], head: &Head<'_>) {
        if self.is_pods() {
            self.session.capacity.lock().put_pod(object);
            self.session.recount.notify_one();
            let (namespace, name) = (&head.metadata.namespace, &head.metadata.name);
            if self.session.unscheduled.lock().put(namespace, name, object) {
                self.session.waiting.notify_one();
            }
        }
        if let Some((workspace, object)) = self.place(object, head) {
            self.session.shown.put(&workspace, &self.collection, object);
        }
    }

    fn removed(&mut self, object: &[u8], head: &Head<'_>) {
        if self.is_pods() {
            let (namespace, name) = (&head.metadata.namespace, &head.metadata.name);
            self.session.capacity.lock().remove_pod(namespace, name);
            self.session.recount.notify_one();
            if self.session.unscheduled.lock().remove(namespace, name) {
                self.session.waiting.notify_one();
            }
        }
        if let Some((workspace, object)) = self.place(object, head) {
            self.session.shown.remove(&workspace, &self.collection, object);
        }
    }
}
