//! Which clusters something of a workspace is assigned to.
//!
//! A cluster of the platform shows where it has something. Before it was seen, after a restart or when another server took
//! over, nothing but the Assignments tells where that is: so they are asked, and who is named there is waited for. What
//! they say is made from all of them once, and kept level by what changes.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use compact_str::CompactString;
use machinery::Object;
use parking_lot::Mutex;
use serde::Deserialize;
use store::{Collection, ItemKey, Span, Store, Watch, WorkspaceId};

use crate::recent::Recent;

/// So many changes are taken at once.
const AT_ONCE: usize = 1024;

/// A cluster as Assignments name it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
pub struct Named {
    pub name: CompactString,
    /// Of its `Cluster`.
    pub uid: CompactString,
}

pub(super) struct Assigned {
    collection: Collection,
    indexes: Recent<Arc<Mutex<Index>>>,
}

impl Default for Assigned {
    fn default() -> Self {
        let collection = Collection::new(api::GROUP, api::assignment::PLURAL);
        Self { collection, indexes: Recent::default() }
    }
}

/// What the Assignments of one workspace say.
#[derive(Default)]
struct Index {
    /// `None`: they must be listed first.
    watch: Option<Watch>,
    named: HashMap<ItemKey, Box<[Named]>>,
    /// By how many Assignments.
    counts: BTreeMap<Named, usize>,
}

#[derive(Deserialize)]
struct Wire {
    spec: Spec,
}

#[derive(Deserialize)]
struct Spec {
    #[serde(default)]
    clusters: Vec<Named>,
}

impl Index {
    fn put(&mut self, item: &ItemKey, object: &Object) {
        self.remove(item);
        let wire: Option<Wire> = serde_json::from_slice(object.body_slice()).ok();
        let clusters = wire.map(|wire| wire.spec.clusters).filter(|clusters| !clusters.is_empty());
        let Some(clusters) = clusters else { return };
        for named in &clusters {
            *self.counts.entry(named.clone()).or_default() += 1;
        }
        self.named.insert(item.clone(), clusters.into());
    }

    fn remove(&mut self, item: &ItemKey) {
        for named in self.named.remove(item).iter().flatten() {
            if let Some(count) = self.counts.get_mut(named) {
                *count -= 1;
                if *count == 0 {
                    self.counts.remove(named);
                }
            }
        }
    }

    fn catch_up(&mut self, store: &dyn Store, workspace: &WorkspaceId, collection: &Collection) {
        loop {
            match self.watch.as_mut().map(|watch| watch.take(AT_ONCE)) {
                Some(Ok(batch)) if batch.events.is_empty() => return,
                Some(Ok(batch)) => {
                    for event in &batch.events {
                        match event.after() {
                            Some(object) => self.put(&event.key.item, object),
                            None => self.remove(&event.key.item),
                        }
                    }
                }
                None | Some(Err(_)) => return self.read_all(store, workspace, collection),
            }
        }
    }

    fn read_all(&mut self, store: &dyn Store, workspace: &WorkspaceId, collection: &Collection) {
        *self = Index::default();
        let Ok(listing) = store.list(workspace, collection, None) else { return };
        for (item, object) in listing.iter(None, None) {
            self.put(item, object);
        }
        let span = Span { collection: collection.clone(), namespace: None };
        self.watch = store.watch(workspace, span, listing.revision).ok();
    }
}

impl Assigned {
    /// The clusters that any Assignment of the workspace names.
    pub fn clusters(&self, store: &dyn Store, workspace: &WorkspaceId) -> Vec<Named> {
        // Most workspaces have none, and pay for no more than this.
        if store.last_change(workspace, &self.collection) == machinery::Revision::ZERO {
            return Vec::new();
        }
        let index = self.indexes.get(workspace).unwrap_or_else(|| {
            let new = Arc::<Mutex<Index>>::default();
            self.indexes.insert(workspace, new.clone());
            new
        });
        let mut index = index.lock();
        index.catch_up(store, workspace, &self.collection);
        index.counts.keys().cloned().collect()
    }

    pub fn forget(&self, workspace: &WorkspaceId) {
        self.indexes.forget(workspace);
    }
}

#[cfg(test)]
mod tests {
    use machinery::Draft;
    use proptest::prelude::*;
    use serde_json::{Value, json};
    use store::{Change, Commit, Expect, Key, Write, memory::MemoryStore};

    use super::*;

    fn workspace() -> WorkspaceId {
        WorkspaceId("w".into())
    }

    fn commit(store: &MemoryStore, name: &str, change: Change) {
        let key = Key::new(api::GROUP, api::assignment::PLURAL, "shop", name);
        let writes = vec![Write { key, expect: Expect::Anything, change }];
        store.commit_now(&workspace(), &Commit { guards: vec![], writes }).unwrap();
    }

    fn put(store: &MemoryStore, name: &str, spec: Value) {
        let Value::Object(tree) = json!({
            "apiVersion": api::API_VERSION, "kind": "Assignment",
            "metadata": {"name": name, "namespace": "shop", "uid": name}, "spec": spec,
        }) else {
            unreachable!()
        };
        commit(store, name, Change::Put { draft: Draft::encode(&tree).unwrap(), expires: None });
    }

    fn names(assigned: &Assigned, store: &MemoryStore) -> Vec<String> {
        assigned.clusters(store, &workspace()).iter().map(|it| format!("{}/{}", it.name, it.uid)).collect()
    }

    #[test]
    fn what_says_nothing_names_nobody() {
        let (store, assigned) = (MemoryStore::new(), Assigned::default());
        assert_eq!(names(&assigned, &store), [""; 0]);
        for (at, spec) in
            [json!({}), json!({"clusters": []}), json!({"clusters": 7}), json!(3)].iter().enumerate()
        {
            put(&store, &format!("a{at}"), spec.clone());
            assert_eq!(names(&assigned, &store), [""; 0], "{spec}");
        }
    }

    #[test]
    fn a_cluster_is_its_uid_not_its_name() {
        let (store, assigned) = (MemoryStore::new(), Assigned::default());
        for (name, uid) in [("a", "1"), ("b", "2")] {
            put(&store, name, json!({"clusters": [{"name": "eu-1", "uid": uid}]}));
        }
        assert_eq!(names(&assigned, &store), ["eu-1/1", "eu-1/2"]);
    }

    proptest! {
        #[test]
        fn it_is_level_with_all_assignments(
            ops in prop::collection::vec((0usize..4, prop::collection::btree_set(0usize..4, 0..4), any::<bool>()), 1..40),
        ) {
            let (store, assigned) = (MemoryStore::new(), Assigned::default());
            let mut truth: BTreeMap<usize, Vec<String>> = BTreeMap::new();
            for (item, clusters, looks) in ops {
                if clusters.is_empty() && truth.remove(&item).is_some() {
                    commit(&store, &item.to_string(), Change::Remove);
                } else {
                    let entries: Vec<Value> =
                        clusters.iter().map(|at| json!({"name": format!("c{at}"), "uid": "u"})).collect();
                    put(&store, &item.to_string(), json!({"clusters": entries}));
                    truth.insert(item, clusters.iter().map(|at| format!("c{at}/u")).collect());
                }
                if looks {
                    let mut expected: Vec<String> = truth.values().flatten().cloned().collect();
                    expected.sort();
                    expected.dedup();
                    prop_assert_eq!(names(&assigned, &store), expected);
                }
            }
        }
    }
}
