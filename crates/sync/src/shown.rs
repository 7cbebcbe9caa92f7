//! What one session shows in workspaces. After its end nothing is shown any more, however late it comes.

use std::{collections::HashSet, sync::Arc};

use bytes::Bytes;
use parking_lot::Mutex;
use server::views::{Member, Views};
use store::{Collection, WorkspaceId};

/// A session's side of the views.
pub struct Shown {
    views: Views,
    cluster: String,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    over: bool,
    /// The session that is under way: the member, and its identity.
    joined: Option<(Arc<dyn Member>, String)>,
    workspaces: HashSet<WorkspaceId>,
}

impl Shown {
    /// The cluster shows in `own` at least. One that was seen before is waited for; one that never was, such as one
    /// that cannot be reached from the beginning, keeps nobody from what others have.
    pub fn new(views: Views, own: WorkspaceId, cluster: &str, was_seen: bool) -> Shown {
        if was_seen {
            views.expect(&own, cluster);
        }
        let state = State { workspaces: HashSet::from([own]), ..State::default() };
        Shown { views, cluster: cluster.to_owned(), state: Mutex::new(state) }
    }

    /// A connection was made, to the cluster that was joined.
    pub fn begin(&self, member: Arc<dyn Member>, identity: &str) {
        let mut state = self.state.lock();
        if state.over {
            return;
        }
        for workspace in &state.workspaces {
            self.views.join(workspace, member.clone(), identity);
        }
        state.joined = Some((member, identity.to_owned()));
    }

    fn enter(&self, state: &mut State, workspace: &WorkspaceId) -> bool {
        let Some((member, identity)) = &state.joined else { return false };
        if !state.over && !state.workspaces.contains(workspace) {
            self.views.join(workspace, member.clone(), identity);
            state.workspaces.insert(workspace.clone());
        }
        !state.over
    }

    /// All objects of a collection, by workspace. Where none of them is, none is left.
    pub fn replace(&self, collection: &Collection, objects: Vec<(WorkspaceId, Bytes)>) {
        let mut state = self.state.lock();
        let mut by_workspace = std::collections::HashMap::<WorkspaceId, Vec<Bytes>>::new();
        for (workspace, object) in objects {
            by_workspace.entry(workspace).or_default().push(object);
        }
        for workspace in by_workspace.keys() {
            if !self.enter(&mut state, workspace) {
                return;
            }
        }
        if state.over || state.joined.is_none() {
            return;
        }
        for workspace in &state.workspaces {
            let objects = by_workspace.remove(workspace).unwrap_or_default();
            self.views.replace(workspace, &self.cluster, collection, objects);
        }
    }

    pub fn put(&self, workspace: &WorkspaceId, collection: &Collection, object: Bytes) {
        let mut state = self.state.lock();
        if self.enter(&mut state, workspace) {
            self.views.put(workspace, &self.cluster, collection, object);
        }
    }

    pub fn remove(&self, workspace: &WorkspaceId, collection: &Collection, object: Bytes) {
        let mut state = self.state.lock();
        if self.enter(&mut state, workspace) {
            self.views.remove(workspace, &self.cluster, collection, object);
        }
    }

    /// The connection is lost; what was reported stays.
    pub fn lost(&self) {
        let mut state = self.state.lock();
        if !state.over && state.joined.take().is_some() {
            state.workspaces.iter().for_each(|workspace| self.views.lost(workspace, &self.cluster));
        }
    }

    /// The session ends, and another may follow: nothing more comes from this one.
    pub fn end(&self) {
        self.lost();
        self.state.lock().over = true;
    }

    /// The cluster is not joined any more.
    pub fn leave(&self) {
        let mut state = self.state.lock();
        if !std::mem::replace(&mut state.over, true) {
            state.workspaces.iter().for_each(|workspace| self.views.leave(workspace, &self.cluster));
        }
    }
}
