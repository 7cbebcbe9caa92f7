//! Who waits for what of which cluster, so that a change wakes those it concerns and nobody else.

use std::collections::{HashMap, HashSet};

use placement::{Decision, Directory, Layer};
use store::WorkspaceId;

use crate::{clusters::Turn, queue::Id};

/// Why a cluster has nothing of an object that waits for a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    /// It has no room.
    Room,
    /// Something else, which room does not change.
    Other,
}

#[derive(Debug, Default)]
pub struct Waiting {
    /// Those that have no place for all of it, and what each cluster lacks.
    pending: HashMap<Id, HashMap<String, Why>>,
    /// The same by cluster.
    by_cluster: HashMap<String, HashSet<Id>>,
    /// Those whose policy may want clusters that they are not on.
    broad: HashSet<Id>,
    /// Where objects are.
    assigned: HashMap<String, HashSet<Id>>,
}

impl Waiting {
    /// How many wait for a place.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Takes down what a decision leaves to wait for.
    pub fn note(&mut self, id: &Id, decision: &Decision, directory: &Directory, every_node: bool) {
        self.forget(id);
        if decision.strategy.is_some() && (decision.layer != Layer::Default || every_node) {
            self.broad.insert(id.clone());
        }
        if decision.pending == 0 && !decision.is_unplaced {
            return;
        }
        let mut lacks = HashMap::new();
        for verdict in &decision.verdicts.all {
            let Some(entry) = directory.entries().get(verdict.cluster) else { continue };
            let why = if verdict.objection.is_none() { Why::Room } else { Why::Other };
            lacks.insert(entry.cluster.name.to_string(), why);
        }
        for name in lacks.keys().chain(&decision.missing) {
            self.by_cluster.entry(name.clone()).or_default().insert(id.clone());
        }
        self.pending.insert(id.clone(), lacks);
    }

    /// It waits for nothing any more.
    pub fn forget(&mut self, id: &Id) {
        self.broad.remove(id);
        for name in self.pending.remove(id).into_iter().flat_map(HashMap::into_keys) {
            if let Some(ids) = self.by_cluster.get_mut(&name) {
                ids.remove(id);
                if ids.is_empty() {
                    self.by_cluster.remove(&name);
                }
            }
        }
    }

    /// Something of it is in that cluster.
    pub fn entered(&mut self, id: &Id, cluster: &str) {
        self.assigned.entry(cluster.to_owned()).or_default().insert(id.clone());
    }

    /// Nothing of it is in that cluster any more.
    pub fn left(&mut self, id: &Id, cluster: &str) {
        if let Some(ids) = self.assigned.get_mut(cluster) {
            ids.remove(id);
            if ids.is_empty() {
                self.assigned.remove(cluster);
            }
        }
    }

    /// Those that a change of a cluster concerns.
    pub fn concerned(&self, cluster: &str, turn: Turn) -> HashSet<Id> {
        let waiting = |room_only: bool| {
            let ids = self.by_cluster.get(cluster).into_iter().flatten();
            ids.filter(move |id| {
                !room_only || self.pending.get(*id).and_then(|it| it.get(cluster)) == Some(&Why::Room)
            })
        };
        let assigned = || self.assigned.get(cluster).into_iter().flatten();
        match turn {
            Turn::Nothing => HashSet::new(),
            Turn::Room => waiting(true).cloned().collect(),
            Turn::Ready => waiting(false).chain(&self.broad).cloned().collect(),
            Turn::New => self.pending.keys().chain(&self.broad).cloned().collect(),
            Turn::Other => waiting(false).chain(&self.broad).chain(assigned()).cloned().collect(),
            Turn::Gone => assigned().cloned().collect(),
        }
    }

    /// Those of a workspace that wait for a place.
    pub fn pending_in(&self, workspace: &WorkspaceId) -> Vec<Id> {
        self.pending.keys().filter(|id| id.workspace == *workspace).cloned().collect()
    }
}
