//! What the feed has shown of a cluster, found without looking at everything: pods by namespace, owner and node; other
//! objects that have owners by these.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use compact_str::CompactString;
use store::ItemKey;

use crate::{Kind, Pod};

/// The pods of one cluster.
#[derive(Default)]
pub struct Pods {
    all: BTreeMap<ItemKey, Arc<Pod>>,
    by_owner: Index,
    /// Under an empty name: those that have none.
    by_node: Index,
    nominated: BTreeSet<ItemKey>,
    finished: usize,
}

type Index = HashMap<CompactString, BTreeMap<ItemKey, Arc<Pod>>>;

fn forget(index: &mut Index, under: &str, key: &ItemKey) {
    if let Some(pods) = index.get_mut(under) {
        pods.remove(key);
        if pods.is_empty() {
            index.remove(under);
        }
    }
}

fn is_nominated(pod: &Pod) -> bool {
    pod.nominated.is_some() && pod.node.is_empty()
}

impl Pods {
    pub fn put(&mut self, key: ItemKey, pod: Arc<Pod>) {
        self.remove(&key);
        if let Some(controller) = &pod.controller {
            self.by_owner.entry(controller.uid.clone()).or_default().insert(key.clone(), pod.clone());
        }
        self.by_node.entry(pod.node.clone()).or_default().insert(key.clone(), pod.clone());
        if is_nominated(&pod) {
            self.nominated.insert(key.clone());
        }
        self.finished += usize::from(pod.is_finished());
        self.all.insert(key, pod);
    }

    pub fn remove(&mut self, key: &ItemKey) {
        let Some(pod) = self.all.remove(key) else { return };
        if let Some(controller) = &pod.controller {
            forget(&mut self.by_owner, &controller.uid, key);
        }
        forget(&mut self.by_node, &pod.node, key);
        if is_nominated(&pod) {
            self.nominated.remove(key);
        }
        self.finished -= usize::from(pod.is_finished());
    }

    /// Those that have finished, beyond the newest `kept`.
    pub fn finished_beyond(&self, kept: usize) -> Vec<Arc<Pod>> {
        if self.finished <= kept {
            return Vec::new();
        }
        let mut finished: Vec<Arc<Pod>> =
            self.all.values().filter(|pod| pod.is_finished()).cloned().collect();
        finished.sort_by_key(|pod| std::cmp::Reverse(pod.created));
        finished.split_off(kept)
    }

    pub fn in_namespace(&self, namespace: &str) -> Vec<Arc<Pod>> {
        let from = ItemKey::new(namespace, "");
        let here = self.all.range(from..).take_while(|(key, _)| key.namespace() == namespace);
        here.map(|(_, pod)| pod.clone()).collect()
    }

    pub fn of(&self, owner: &str) -> Vec<Arc<Pod>> {
        found(self.by_owner.get(owner))
    }

    pub fn on(&self, node: &str) -> Vec<Arc<Pod>> {
        found(self.by_node.get(node))
    }

    /// Those that have no node but are to get one.
    pub fn nominated(&self) -> Vec<Arc<Pod>> {
        self.nominated.iter().filter_map(|key| self.all.get(key).cloned()).collect()
    }
}

fn found(pods: Option<&BTreeMap<ItemKey, Arc<Pod>>>) -> Vec<Arc<Pod>> {
    pods.into_iter().flat_map(BTreeMap::values).cloned().collect()
}

/// The objects of one cluster that controllers have: by whom they are controlled.
#[derive(Default)]
pub struct Controlled {
    /// Whose each is; `None`: nobody's.
    owners: HashMap<(Kind, ItemKey), Option<CompactString>>,
    by_owner: HashMap<(Kind, CompactString), BTreeSet<ItemKey>>,
    orphans: HashMap<Kind, BTreeSet<ItemKey>>,
}

impl Controlled {
    pub fn put(&mut self, kind: Kind, key: &ItemKey, owner: Option<CompactString>) {
        if self.owners.get(&(kind, key.clone())) == Some(&owner) {
            return;
        }
        self.remove(kind, key);
        match &owner {
            Some(owner) => self.by_owner.entry((kind, owner.clone())).or_default().insert(key.clone()),
            None => self.orphans.entry(kind).or_default().insert(key.clone()),
        };
        self.owners.insert((kind, key.clone()), owner);
    }

    pub fn remove(&mut self, kind: Kind, key: &ItemKey) {
        match self.owners.remove(&(kind, key.clone())) {
            None => {}
            Some(None) => drop(self.orphans.get_mut(&kind).map(|orphans| orphans.remove(key))),
            Some(Some(owner)) => {
                let under = (kind, owner);
                if let Some(owned) = self.by_owner.get_mut(&under) {
                    owned.remove(key);
                    if owned.is_empty() {
                        self.by_owner.remove(&under);
                    }
                }
            }
        }
    }

    /// Those that the object with this UID controls.
    pub fn of(&self, kind: Kind, owner: &str) -> impl Iterator<Item = &ItemKey> {
        self.by_owner.get(&(kind, owner.into())).into_iter().flatten()
    }

    /// Those of a namespace that nobody controls.
    pub fn orphans(&self, kind: Kind, namespace: &str) -> impl Iterator<Item = &ItemKey> {
        let from = ItemKey::new(namespace, "");
        let here = self.orphans.get(&kind).into_iter().flat_map(move |all| all.range(from.clone()..));
        here.take_while(move |key| key.namespace() == namespace)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::kind::{JOBS, REPLICA_SETS};

    use super::*;

    #[test]
    fn a_pod_is_found_where_it_is_and_not_where_it_was() {
        let mut pods = Pods::default();
        let pod = |node: &str| {
            let hoped = if node.is_empty() { "n1" } else { "" };
            Arc::new(Pod::of(&json!({
                "metadata": {"namespace": "a", "name": "p", "uid": "1", "ownerReferences": [
                    {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "9", "controller": true},
                ]},
                "spec": {"nodeName": node},
                "status": {"nominatedNodeName": hoped},
            })))
        };
        let key = ItemKey::new("a", "p");
        pods.put(key.clone(), pod(""));
        assert_eq!((pods.on("").len(), pods.of("9").len(), pods.in_namespace("a").len()), (1, 1, 1));
        assert_eq!(pods.nominated().len(), 1);
        pods.put(key.clone(), pod("n1"));
        assert_eq!((pods.on("").len(), pods.on("n1").len(), pods.of("9").len()), (0, 1, 1));
        assert!(pods.nominated().is_empty());
        assert!(pods.in_namespace("aa").is_empty());
        pods.remove(&key);
        assert!(pods.by_owner.is_empty() && pods.by_node.is_empty() && pods.all.is_empty());
    }
    #[test]
    fn an_object_is_found_with_whoever_controls_it_now() {
        let mut all = Controlled::default();
        let (a, b) = (ItemKey::new("n", "a"), ItemKey::new("m", "b"));
        let found = |all: &Controlled, owner: &str| all.of(REPLICA_SETS, owner).cloned().collect::<Vec<_>>();
        let orphans = |all: &Controlled| all.orphans(REPLICA_SETS, "n").cloned().collect::<Vec<_>>();
        all.put(REPLICA_SETS, &a, None);
        all.put(REPLICA_SETS, &b, None);
        all.put(JOBS, &a, Some("1".into()));
        assert_eq!((orphans(&all), found(&all, "1")), (vec![a.clone()], vec![]), "of its kind and namespace");
        all.put(REPLICA_SETS, &a, Some("1".into()));
        assert_eq!((orphans(&all), found(&all, "1")), (vec![], vec![a.clone()]), "it was adopted");
        all.put(REPLICA_SETS, &a, Some("2".into()));
        assert_eq!((found(&all, "1"), found(&all, "2")), (vec![], vec![a.clone()]));
        all.remove(REPLICA_SETS, &a);
        assert_eq!((orphans(&all), found(&all, "2")), (vec![], vec![]));
    }
}
