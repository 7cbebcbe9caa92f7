//! What streams from the member tell: copies of one kind, and namespaces.

use std::sync::Arc;

use store::WorkspaceId;

use super::{
    Copies,
    namespaces::Told,
    seen::{Known, Seen, Type},
    work::Errand,
};
use crate::{objects::Head, reflect::Sink, session::Session};

/// Copies of one kind.
pub struct CopySink {
    pub session: Arc<Session>,
    pub ty: Type,
}

impl CopySink {
    fn with<T: Default>(&self, act: impl FnOnce(&mut super::OfType) -> T) -> T {
        self.session.copies.state.lock().types.get_mut(&self.ty).map(act).unwrap_or_default()
    }

    fn tell(&self, errand: Option<Errand>) {
        if let Some(errand) = errand {
            self.session.copies.work.look(&errand);
        }
    }

    /// It cannot be listed for now.
    pub fn failed(copies: &Copies, ty: &Type) {
        let waiting = match copies.state.lock().types.get_mut(ty) {
            Some(of_type) if of_type.known == Known::Not => {
                of_type.known = Known::Failed;
                of_type.errands()
            }
            _ => Vec::new(),
        };
        copies.renew_all(&waiting);
    }
}

impl Sink for CopySink {
    fn begin(&mut self) {
        self.with(|all| all.begin_list());
    }

    fn listed_one(&mut self, object: &[u8]) {
        self.with(|all| all.listed_one(object));
    }

    fn end(&mut self) {
        let concerned = self.with(|all| all.end_list());
        self.session.copies.renew_all(&concerned);
    }

    fn given_up(&mut self) {
        self.with(|all| all.known = Known::Not);
        CopySink::failed(&self.session.copies, &self.ty);
    }

    fn put(&mut self, object: &[u8], _: &Head<'_>) {
        let Some((item, seen)) = Seen::read(object) else { return };
        let errand = self.with(|all| all.put(item, seen));
        self.tell(errand);
    }

    fn removed(&mut self, _: &[u8], head: &Head<'_>) {
        let item = store::ItemKey::new(&head.metadata.namespace, &head.metadata.name);
        if let Some(errand) = self.with(|all| all.remove(&item, &head.metadata.uid)) {
            // Where somebody deletes it again and again, it is made with pauses.
            self.session.copies.work.look(&errand);
        }
    }
}

/// What the stream of namespaces tells beside where objects show.
impl Session {
    pub fn namespaces_begin(&self) {
        self.copies.state.lock().namespaces.begin_list();
    }

    pub fn namespace_listed(&self, object: &[u8]) {
        self.copies.state.lock().namespaces.listed_one(object);
    }

    pub fn namespaces_end(&self) {
        let (first, told) = {
            let mut state = self.copies.state.lock();
            let first = !state.namespaces.complete;
            (first, state.namespaces.end_list())
        };
        if first {
            let all: Vec<Errand> = self.copies.state.lock().records.keys().cloned().collect();
            self.copies.renew_all(&all);
        } else {
            told.iter().for_each(|told| self.namespace_told(told));
        }
    }

    pub fn namespace_put(&self, object: &[u8]) {
        let told = self.copies.state.lock().namespaces.put(object);
        told.iter().for_each(|told| self.namespace_told(told));
    }

    pub fn namespace_removed(&self, object: &[u8]) {
        let told = self.copies.state.lock().namespaces.remove(object);
        told.iter().for_each(|told| self.namespace_told(told));
    }

    /// Whatever waits for that namespace goes on.
    fn namespace_told(&self, told: &Told) {
        let workspace: Option<WorkspaceId> = match &told.workspace {
            None => Some(self.place.0.clone()),
            Some(name) => self.shared.hub.space(name).ok().map(|space| space.id().clone()),
        };
        let Some(workspace) = workspace else { return };
        let errands: Vec<Errand> = {
            let state = self.copies.state.lock();
            let found = state.by_namespace.get(&(workspace, told.namespace.clone()));
            found.into_iter().flatten().cloned().collect()
        };
        self.copies.renew_all(&errands);
    }
}
