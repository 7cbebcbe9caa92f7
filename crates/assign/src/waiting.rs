//! Who waits for what of which cluster, so that a change wakes those it concerns and nobody else.

use std::collections::{HashMap, HashSet};

use placement::{Decision, Directory, Layer, Stance};
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
    /// Those that have no place for all of it.
    pending: HashSet<Id>,
    /// What keeps clusters from having more of those that would have it.
    lacks: HashMap<Id, HashMap<String, Why>>,
    /// The same by cluster.
    by_cluster: HashMap<String, HashSet<Id>>,
    /// Those whose policy may want clusters that they are not on.
    broad: HashSet<Id>,
    /// Where objects are, by cluster.
    assigned: HashMap<String, HashSet<Id>>,
    /// The same by object.
    places: HashMap<Id, Vec<String>>,
}

impl Waiting {
    /// How many wait for a place.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Takes down what a decision leaves to wait for.
    pub fn note(&mut self, id: &Id, decision: &Decision, directory: &Directory, every_node: bool) {
        self.forget(id);
        let is_broad = decision.strategy.is_some() && (decision.layer != Layer::Default || every_node);
        let is_pending = decision.pending > 0 || decision.is_unplaced;
        if is_broad {
            self.broad.insert(id.clone());
        }
        if is_pending {
            self.pending.insert(id.clone());
        }
        if !is_broad && !is_pending {
            return;
        }
        let mut lacks = HashMap::new();
        for verdict in decision.verdicts.all.iter().filter(|it| it.stance() != Stance::Out) {
            let Some(entry) = directory.entries().get(verdict.cluster) else { continue };
            // Whoever is divided may want more of a cluster that is full.
            let has = decision.shares.get(entry.cluster.name.as_str()).map_or(0, |share| share.replicas);
            let is_full = verdict.room.is_some_and(|room| has >= room);
            let why = match verdict.objection {
                None if is_pending || is_full => Why::Room,
                Some(_) if is_pending || !verdict.present => Why::Other,
                _ => continue,
            };
            lacks.insert(entry.cluster.name.to_string(), why);
        }
        lacks.extend(decision.missing.iter().map(|name| (name.clone(), Why::Other)));
        for name in lacks.keys() {
            self.by_cluster.entry(name.clone()).or_default().insert(id.clone());
        }
        if !lacks.is_empty() {
            self.lacks.insert(id.clone(), lacks);
        }
    }

    /// It waits for nothing any more.
    pub fn forget(&mut self, id: &Id) {
        self.broad.remove(id);
        self.pending.remove(id);
        for name in self.lacks.remove(id).into_iter().flat_map(HashMap::into_keys) {
            if let Some(ids) = self.by_cluster.get_mut(&name) {
                ids.remove(id);
                if ids.is_empty() {
                    self.by_cluster.remove(&name);
                }
            }
        }
    }

    /// Where there is something of it now.
    pub fn places(&mut self, id: &Id, clusters: Vec<String>) {
        for name in self.places.remove(id).into_iter().flatten().filter(|name| !clusters.contains(name)) {
            if let Some(ids) = self.assigned.get_mut(&name) {
                ids.remove(id);
                if ids.is_empty() {
                    self.assigned.remove(&name);
                }
            }
        }
        for name in &clusters {
            self.assigned.entry(name.clone()).or_default().insert(id.clone());
        }
        if !clusters.is_empty() {
            self.places.insert(id.clone(), clusters);
        }
    }

    /// Those that there is something of in a cluster.
    pub fn assigned_to(&self, cluster: &str) -> impl Iterator<Item = &Id> {
        self.assigned.get(cluster).into_iter().flatten()
    }

    /// Nothing of a workspace is left.
    pub fn forget_workspace(&mut self, workspace: &WorkspaceId) {
        let known = self.places.keys().chain(self.lacks.keys()).chain(&self.pending).chain(&self.broad);
        let ids: HashSet<Id> = known.filter(|id| id.workspace == *workspace).cloned().collect();
        for id in ids {
            self.forget(&id);
            self.places(&id, Vec::new());
        }
    }

    /// Those that a change of a cluster concerns.
    pub fn concerned(&self, cluster: &str, turn: Turn) -> HashSet<Id> {
        let waiting = |room_only: bool| {
            let ids = self.by_cluster.get(cluster).into_iter().flatten();
            ids.filter(move |id| {
                !room_only || self.lacks.get(*id).and_then(|it| it.get(cluster)) == Some(&Why::Room)
            })
        };
        let assigned = || self.assigned.get(cluster).into_iter().flatten();
        match turn {
            Turn::Nothing => HashSet::new(),
            Turn::Room => waiting(true).cloned().collect(),
            Turn::Ready => waiting(false).cloned().collect(),
            Turn::New => self.pending.iter().chain(&self.broad).cloned().collect(),
            Turn::Other => {
                waiting(false).chain(&self.pending).chain(&self.broad).chain(assigned()).cloned().collect()
            }
            Turn::Gone => assigned().cloned().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use placement::{Cluster, Input, decide};
    use serde_json::json;
    use store::Key;

    use super::*;

    fn id(name: &str) -> Id {
        Id::new(&WorkspaceId("w".into()), &Key::new("apps", "deployments", "shop", name))
    }

    fn deployment(name: &str, clusters: &str) -> kinds::Subject {
        let object = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": name, "namespace": "shop", "annotations": {"hanse.io/clusters": clusters}},
            "spec": {"replicas": 3, "template": {"spec": {"containers": [
                {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}},
            ]}}},
        });
        kinds::subject(&object).unwrap()
    }

    fn cluster(name: &str, cpus: u64, ready: &str) -> Cluster {
        let object = json!({
            "metadata": {"name": name}, "status": {
                "allocatable": {"cpu": cpus.to_string(), "pods": "100"},
                "conditions": [{"type": "Ready", "status": ready, "reason": "R"}],
            },
        });
        Cluster::read(&object).unwrap()
    }

    #[test]
    fn a_change_wakes_those_it_concerns() {
        let directory = Directory::new([
            cluster("full", 1, "True"),
            cluster("lost", 9, "False"),
            cluster("wide", 9, "True"),
        ]);
        let mut waiting = Waiting::default();
        for (name, clusters) in
            [("a", "full"), ("b", "lost"), ("c", "wide"), ("d", "wide,lost"), ("e", "none")]
        {
            let subject = deployment(name, clusters);
            let decision = decide(&Input::new(&subject, &directory));
            waiting.note(&id(name), &decision, &directory, false);
        }
        let woken = |cluster: &str, turn: Turn| {
            let mut names: Vec<String> =
                waiting.concerned(cluster, turn).iter().map(|it| it.key.item.name().into()).collect();
            names.sort();
            names.concat()
        };
        assert_eq!(waiting.pending(), 3, "a has no room, b no cluster that is ready, e none at all");
        assert_eq!(woken("full", Turn::Room), "a");
        assert_eq!(woken("lost", Turn::Room), "", "it is not room that they lack");
        assert_eq!(woken("lost", Turn::Ready), "bd");
        assert_eq!(woken("wide", Turn::Ready), "");
        assert_eq!(woken("none", Turn::New), "abcde");
        assert_eq!(woken("wide", Turn::Nothing), "");
        waiting.forget(&id("b"));
        assert_eq!(waiting.concerned("lost", Turn::Ready).len(), 1);
        assert!(waiting.concerned("full", Turn::Other).contains(&id("e")), "labels may be what it waits for");
        waiting.places(&id("a"), vec!["full".into()]);
        assert_eq!(waiting.assigned_to("full").count(), 1);
        waiting.places(&id("a"), vec!["wide".into()]);
        assert_eq!((waiting.assigned_to("full").count(), waiting.assigned_to("wide").count()), (0, 1));
        waiting.forget_workspace(&WorkspaceId("w".into()));
        assert_eq!((waiting.pending(), waiting.assigned_to("wide").count()), (0, 0));
    }
}
