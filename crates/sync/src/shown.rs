//! What one session shows in workspaces. After its end nothing is shown any more, however late it comes.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use server::views::{Member, Sighting, Views};
use store::{Collection, WorkspaceId};
use tokio::sync::watch;

use crate::homes;

/// A session's side of the views.
pub struct Shown {
    views: Views,
    cluster: String,
    /// Clusters of the platform's own workspaces show in those of others, too.
    may_show_elsewhere: bool,
    /// Of what is known of namespaces.
    generation: watch::Receiver<u64>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    over: bool,
    /// The session that is under way: the member, and its identity.
    joined: Option<(Arc<dyn Member>, String)>,
    /// Where it shows; false: where it would, but for another one of its name or because it is out of reach.
    workspaces: HashMap<WorkspaceId, bool>,
    /// Kinds that are kept up with, and the generation of the namespaces that their objects were placed by.
    listed: HashMap<Collection, u64>,
}

impl Shown {
    /// The cluster shows in `own` at least. One that was seen before is waited for; one that never was, such as one
    /// that cannot be reached from the beginning, keeps nobody from what others have.
    pub fn new(
        views: Views,
        own: WorkspaceId,
        cluster: &str,
        was_seen: bool,
        generation: watch::Receiver<u64>,
    ) -> Shown {
        if was_seen {
            views.expect(&own, cluster);
        }
        let may_show_elsewhere = homes::may_choose(&own);
        let state = State { workspaces: HashMap::from([(own, false)]), ..State::default() };
        let state = Mutex::new(state);
        Shown { views, cluster: cluster.to_owned(), may_show_elsewhere, generation, state }
    }

    /// A connection was made, to the cluster that was joined.
    pub fn begin(&self, member: Arc<dyn Member>, identity: &str) {
        let mut state = self.state.lock();
        if state.over {
            return;
        }
        // Before this process it may have shown where none of its namespaces belongs any more.
        if self.may_show_elsewhere {
            for workspace in self.views.seen_in(&self.cluster, identity) {
                state.workspaces.entry(workspace).or_insert(false);
            }
        }
        for (workspace, shows) in &mut state.workspaces {
            *shows = self.views.join(workspace, member.clone(), identity);
        }
        state.joined = Some((member, identity.to_owned()));
        state.listed.clear();
    }

    /// Makes it show where another one of its name did until now; true if there is such a place, so that all kinds must
    /// be listed for it.
    #[must_use]
    pub fn try_again(&self) -> bool {
        let mut state = self.state.lock();
        let State { over: false, joined: Some((member, identity)), workspaces, .. } = &mut *state else {
            return false;
        };
        let mut entered = false;
        for (workspace, shows) in workspaces.iter_mut().filter(|(_, shows)| !**shows) {
            if !self.views.is_held(workspace, &self.cluster) {
                *shows = self.views.join(workspace, member.clone(), identity);
                entered |= *shows;
            }
        }
        entered
    }

    /// Makes it show in a workspace. What is listed by what is known of namespaces has nothing there, or it would show
    /// there already: so nothing must be listed again for that to be known. All else is being listed.
    fn enter(&self, state: &mut State, workspace: &WorkspaceId) {
        let Some((member, identity)) = &state.joined else { return };
        if state.over || state.workspaces.contains_key(workspace) {
            return;
        }
        let shows = self.views.join(workspace, member.clone(), identity);
        state.workspaces.insert(workspace.clone(), shows);
        let generation = *self.generation.borrow();
        for (collection, _) in state.listed.iter().filter(|(_, listed)| shows && **listed == generation) {
            self.views.replace(workspace, &self.cluster, collection, Vec::new());
        }
    }

    /// Makes it show in a workspace, whether it has something there or not.
    pub fn show_in(&self, workspace: &WorkspaceId) {
        if self.may_show_elsewhere {
            self.enter(&mut self.state.lock(), workspace);
        }
    }

    /// All objects of a collection, by workspace. Where none of them is, none is left. `generation`: that of the
    /// namespaces when the list began.
    pub fn replace(&self, collection: &Collection, objects: Vec<(WorkspaceId, Sighting)>, generation: u64) {
        let mut state = self.state.lock();
        if state.over || state.joined.is_none() {
            return;
        }
        let mut by_workspace = HashMap::<WorkspaceId, Vec<Sighting>>::new();
        for (workspace, object) in objects {
            by_workspace.entry(workspace).or_default().push(object);
        }
        by_workspace.keys().for_each(|workspace| self.enter(&mut state, workspace));
        for (workspace, _) in state.workspaces.iter().filter(|(_, shows)| **shows) {
            let objects = by_workspace.remove(workspace).unwrap_or_default();
            self.views.replace(workspace, &self.cluster, collection, objects);
        }
        state.listed.insert(collection.clone(), generation);
    }

    pub fn put(&self, workspace: &WorkspaceId, collection: &Collection, object: Sighting) {
        let mut state = self.state.lock();
        self.enter(&mut state, workspace);
        if state.shows_in(workspace) {
            self.views.put(workspace, &self.cluster, collection, object);
        }
    }

    pub fn remove(&self, workspace: &WorkspaceId, collection: &Collection, object: Sighting) {
        if self.state.lock().shows_in(workspace) {
            self.views.remove(workspace, &self.cluster, collection, object);
        }
    }

    /// What was reported of a collection is not kept up with.
    pub fn outdated(&self, collection: &Collection) {
        let mut state = self.state.lock();
        state.listed.remove(collection);
        for (workspace, _) in state.workspaces.iter().filter(|(workspace, _)| state.shows_in(workspace)) {
            self.views.outdated(workspace, &self.cluster, collection);
        }
    }

    /// The connection is lost; what was reported stays.
    pub fn lost(&self) {
        let mut state = self.state.lock();
        if state.over || state.joined.take().is_none() {
            return;
        }
        state.listed.clear();
        for (workspace, shows) in &mut state.workspaces {
            if std::mem::take(shows) {
                self.views.lost(workspace, &self.cluster);
            }
        }
    }

    /// The session ends, and another may follow: nothing more comes from this one.
    pub fn end(&self) {
        self.lost();
        self.state.lock().over = true;
    }

    /// The workspace is no more: nothing is joined to it again.
    pub fn forget(&self, workspace: &WorkspaceId) {
        self.state.lock().workspaces.remove(workspace);
    }

    /// The cluster is not joined any more.
    pub fn leave(&self) {
        let mut state = self.state.lock();
        if std::mem::replace(&mut state.over, true) {
            return;
        }
        for (workspace, shows) in &state.workspaces {
            // Another one of its name may show there.
            if *shows || !self.views.is_held(workspace, &self.cluster) {
                self.views.leave(workspace, &self.cluster);
            }
        }
    }
}

impl State {
    fn shows_in(&self, workspace: &WorkspaceId) -> bool {
        !self.over && self.joined.is_some() && self.workspaces.get(workspace) == Some(&true)
    }
}
