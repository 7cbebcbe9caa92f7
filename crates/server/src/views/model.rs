//! Any order of reports, losses and stored writes, compared with what should then be shown.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, LazyLock},
};

use bytes::Bytes;
use env::BoxFuture;
use http::{Request, Response};
use machinery::{Draft, EventType, Revision, resource::Tree, status::Status};
use proptest::prelude::*;
use serde_json::{Value, json};
use store::{Change, Commit, Expect, ItemKey, Key, Span, Watch, WorkspaceId, Write, memory::MemoryStore};

use super::{Member, kinds::Kind, render, view::View};
use crate::body::Body;

const CLUSTERS: [&str; 3] = ["eu-1", "us-1", "ap-1"];
const NAMES: [&str; 3] = ["web", "web-eu-1", "api"];

#[derive(Clone, Debug)]
enum Op {
    Put { cluster: usize, name: usize, content: u8 },
    Remove { cluster: usize, name: usize },
    Replace { cluster: usize, names: BTreeSet<usize>, content: u8 },
    Lose { cluster: usize },
    Leave { cluster: usize },
    Store { name: usize, content: u8 },
    Unstore { name: usize },
}

fn op() -> impl Strategy<Value = Op> {
    let (clusters, names) = (0..CLUSTERS.len(), 0..NAMES.len());
    let set = prop::collection::btree_set(names.clone(), 0..=NAMES.len());
    prop_oneof![
        4 => (clusters.clone(), names.clone(), any::<u8>()).prop_map(|(cluster, name, content)| Op::Put { cluster, name, content }),
        2 => (clusters.clone(), names.clone()).prop_map(|(cluster, name)| Op::Remove { cluster, name }),
        2 => (clusters.clone(), set, any::<u8>()).prop_map(|(cluster, names, content)| Op::Replace { cluster, names, content }),
        1 => clusters.clone().prop_map(|cluster| Op::Lose { cluster }),
        1 => clusters.prop_map(|cluster| Op::Leave { cluster }),
        2 => (names.clone(), any::<u8>()).prop_map(|(name, content)| Op::Store { name, content }),
        1 => names.prop_map(|name| Op::Unstore { name }),
    ]
}

struct Silent(&'static str);

impl Member for Silent {
    fn over(&self) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }

    fn cluster(&self) -> &str {
        self.0
    }

    fn home(&self) -> &WorkspaceId {
        static HOME: LazyLock<WorkspaceId> = LazyLock::new(|| WorkspaceId("home".into()));
        &HOME
    }

    fn send(&self, _: Request<Bytes>) -> BoxFuture<'static, Result<Response<Body>, Status>> {
        Box::pin(async { Err(Status::no_such_path()) })
    }
}

/// What there is, by whose it is and its name there.
type Truth = BTreeMap<(Option<usize>, usize), (String, u8)>;

struct Bench {
    store: MemoryStore,
    view: View,
    truth: Truth,
    /// Whoever watches from the beginning.
    watch: Watch,
    told: BTreeMap<ItemKey, Bytes>,
    made: usize,
    revision: u64,
}

fn id() -> WorkspaceId {
    WorkspaceId("w".into())
}

impl Bench {
    fn new() -> Bench {
        let store = MemoryStore::new();
        let origin = Revision::start_of_epoch(40_000);
        let view = View::new(id(), Arc::new(store.clone()), MemoryStore::new(), origin);
        for name in CLUSTERS {
            assert!(view.join(Arc::new(Silent(name)), name));
        }
        let span = Span { collection: Kind::Pods.collection(), namespace: None };
        let watch = view.watch(span, origin).unwrap();
        Bench { store, view, truth: Truth::new(), watch, told: BTreeMap::new(), made: 0, revision: 0 }
    }

    fn pod(&mut self, whose: Option<usize>, name: usize, content: u8) -> Value {
        self.made += 1;
        self.revision += 1;
        let new = (format!("uid-{}", self.made), content);
        let entry = self.truth.entry((whose, name)).or_insert(new);
        entry.1 = content;
        json!({
            "kind": "Pod", "apiVersion": "v1",
            "metadata": {
                "name": NAMES[name], "namespace": "shop", "uid": entry.0, "resourceVersion": self.revision.to_string(),
            },
            "spec": {"content": content},
        })
    }

    fn perform(&mut self, op: &Op) {
        match op {
            Op::Put { cluster, name, content } => {
                let pod = self.pod(Some(*cluster), *name, *content);
                self.view.put(CLUSTERS[*cluster], Kind::Pods, &pod.to_string().into());
            }
            Op::Remove { cluster, name } => {
                let Some((uid, _)) = self.truth.remove(&(Some(*cluster), *name)) else { return };
                let pod = json!({"metadata": {"name": NAMES[*name], "namespace": "shop", "uid": uid}});
                self.view.remove(CLUSTERS[*cluster], Kind::Pods, &pod.to_string().into());
            }
            Op::Replace { cluster, names, content } => {
                self.truth.retain(|(whose, name), _| *whose != Some(*cluster) || names.contains(name));
                let pods: Vec<Bytes> = names
                    .iter()
                    .map(|name| self.pod(Some(*cluster), *name, *content).to_string().into())
                    .collect();
                self.view.replace(CLUSTERS[*cluster], Kind::Pods, &pods);
            }
            Op::Lose { cluster } => self.view.lost(CLUSTERS[*cluster], "2026-01-01T00:00:00Z"),
            Op::Leave { cluster } => {
                self.truth.retain(|(whose, _), _| *whose != Some(*cluster));
                self.view.leave(CLUSTERS[*cluster]);
                assert!(self.view.join(Arc::new(Silent(CLUSTERS[*cluster])), "again"));
            }
            Op::Store { name, content } => {
                let Value::Object(tree) = self.pod(None, *name, *content) else { unreachable!() };
                let draft = Draft::encode(&tree).unwrap();
                self.commit(*name, Change::Put { draft, expires: None });
            }
            Op::Unstore { name } => {
                if self.truth.remove(&(None, *name)).is_some() {
                    self.commit(*name, Change::Remove);
                }
            }
        }
    }

    fn commit(&self, name: usize, change: Change) {
        let key = Key::new("", "pods", "shop", NAMES[name]);
        let writes = vec![Write { key, expect: Expect::Anything, change }];
        self.store.commit_now(&id(), &Commit { guards: vec![], writes }).unwrap();
    }

    /// What is shown, by whose it is and its name there.
    fn shown(&self) -> Truth {
        let listing = self.view.list(&Kind::Pods.collection(), None).unwrap();
        let mut shown = Truth::new();
        for (item, object) in listing.iter(None, None) {
            let tree: Tree = object.tree().unwrap();
            assert_eq!(item.name(), object.head.name);
            let cluster = object.head.label(render::CLUSTER);
            let whose = cluster.map(|name| CLUSTERS.iter().position(|it| *it == name).unwrap());
            let annotations = &tree["metadata"]["annotations"];
            let name = annotations[render::NAME].as_str().unwrap_or(item.name());
            let name = NAMES.iter().position(|it| *it == name).unwrap();
            if whose.is_none() {
                assert_eq!(item.name(), NAMES[name], "what is stored has its name");
            }
            let content = tree["spec"]["content"].as_u64().unwrap() as u8;
            let before = shown.insert((whose, name), (object.head.uid.to_string(), content));
            assert!(before.is_none(), "shown twice: {item:?}");
        }
        shown
    }

    /// A watcher's list is the list.
    fn follow(&mut self) {
        loop {
            let batch = self.watch.take(7).unwrap();
            if batch.events.is_empty() {
                break;
            }
            for event in &batch.events {
                let item = event.key.item.clone();
                match event.event_type() {
                    EventType::Added => assert!(self.told.insert(item, event.object().body()).is_none()),
                    EventType::Modified => assert!(self.told.insert(item, event.object().body()).is_some()),
                    EventType::Deleted => assert!(self.told.remove(&item).is_some()),
                }
            }
        }
        let listing = self.view.list(&Kind::Pods.collection(), None).unwrap();
        let listed: BTreeMap<ItemKey, Bytes> =
            listing.iter(None, None).map(|(item, object)| (item.clone(), object.body())).collect();
        assert_eq!(self.told, listed);
    }
}

proptest! {
    #[test]
    fn what_is_shown_is_what_there_is(ops in prop::collection::vec(op(), 1..40)) {
        let mut bench = Bench::new();
        for op in &ops {
            bench.perform(op);
            prop_assert_eq!(bench.shown(), bench.truth.clone(), "after {:?}", op);
            bench.follow();
        }
    }

    #[test]
    fn a_view_that_is_kept_and_restored_shows_the_same(ops in prop::collection::vec(op(), 1..40)) {
        let mut bench = Bench::new();
        ops.iter().for_each(|op| bench.perform(op));
        bench.shown();
        let Some(kept) = bench.view.to_keep() else { return Ok(()) };
        let kept = super::keep::Kept::decode(&kept.encode().into()).unwrap();
        let origin = Revision::start_of_epoch(40_001);
        bench.view = View::new(id(), Arc::new(bench.store.clone()), MemoryStore::new(), origin);
        bench.view.restore(kept, "2026-01-02T00:00:00Z");
        prop_assert_eq!(bench.shown(), bench.truth.clone());
        let stale = bench.view.list(&Kind::Pods.collection(), None).unwrap();
        for (_, object) in stale.iter(None, None).filter(|(_, object)| object.head.label(render::CLUSTER).is_some()) {
            let tree = object.tree().unwrap();
            prop_assert!(tree["metadata"]["annotations"][render::STALE].is_string());
        }
    }
}

/// Replica sets of one divided Deployment, with a pod in each cluster.
#[derive(Clone, Debug)]
enum SetOp {
    Put { cluster: usize, replicas: u8, pod_first: bool },
    Remove { cluster: usize },
    Replace { cluster: usize, replicas: Option<u8> },
    Lose { cluster: usize },
    Restart,
}

fn set_op() -> impl Strategy<Value = SetOp> {
    let clusters = 0..CLUSTERS.len();
    prop_oneof![
        4 => (clusters.clone(), any::<u8>(), any::<bool>()).prop_map(|(cluster, replicas, pod_first)| SetOp::Put { cluster, replicas, pod_first }),
        2 => clusters.clone().prop_map(|cluster| SetOp::Remove { cluster }),
        2 => (clusters.clone(), any::<Option<u8>>()).prop_map(|(cluster, replicas)| SetOp::Replace { cluster, replicas }),
        1 => clusters.prop_map(|cluster| SetOp::Lose { cluster }),
        1 => Just(SetOp::Restart),
    ]
}

struct Divided {
    bench: Bench,
    /// UID and replicas in each cluster.
    sets: BTreeMap<usize, (String, u8)>,
    /// The UID that owns the pod of each cluster, there.
    pods: BTreeMap<usize, String>,
}

impl Divided {
    fn new() -> Divided {
        let bench = Bench::new();
        for (at, name) in CLUSTERS.iter().enumerate() {
            let placed = super::Placed { uid: "hub".into(), duplicated: false };
            bench.view.placed(name, &format!("deployment-{at}"), Some(placed));
        }
        Divided { bench, sets: BTreeMap::new(), pods: BTreeMap::new() }
    }

    fn set(&mut self, cluster: usize, replicas: u8) -> Bytes {
        self.bench.made += 1;
        self.bench.revision += 1;
        let new = (format!("set-{}", self.bench.made), replicas);
        let entry = self.sets.entry(cluster).or_insert(new);
        entry.1 = replicas;
        let owner = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": format!("deployment-{cluster}")});
        json!({
            "metadata": {
                "name": "web-1", "namespace": "shop", "uid": entry.0, "resourceVersion": self.bench.revision.to_string(),
                "ownerReferences": [owner],
            },
            "spec": {"replicas": replicas},
        })
        .to_string()
        .into()
    }

    fn put_pod(&mut self, cluster: usize) {
        let Some((owner, _)) = self.sets.get(&cluster).cloned() else { return };
        let reference = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": owner});
        let pod = json!({
            "metadata": {"name": CLUSTERS[cluster], "namespace": "shop", "uid": format!("pod-{cluster}"), "ownerReferences": [reference]},
            "spec": {},
        });
        self.pods.insert(cluster, owner);
        self.bench.view.put(CLUSTERS[cluster], Kind::Pods, &pod.to_string().into());
    }

    fn perform(&mut self, op: &SetOp) {
        match op {
            SetOp::Put { cluster, replicas, pod_first } => {
                let set = self.set(*cluster, *replicas);
                if *pod_first {
                    self.put_pod(*cluster);
                }
                self.bench.view.put(CLUSTERS[*cluster], Kind::ReplicaSets, &set);
                self.put_pod(*cluster);
            }
            SetOp::Remove { cluster } => {
                let Some((uid, _)) = self.sets.remove(cluster) else { return };
                let gone = json!({"metadata": {"name": "web-1", "namespace": "shop", "uid": uid}});
                self.bench.view.remove(CLUSTERS[*cluster], Kind::ReplicaSets, &gone.to_string().into());
            }
            SetOp::Replace { cluster, replicas } => {
                if replicas.is_none() {
                    self.sets.remove(cluster);
                }
                let sets: Vec<Bytes> =
                    replicas.iter().map(|replicas| self.set(*cluster, *replicas)).collect();
                self.bench.view.replace(CLUSTERS[*cluster], Kind::ReplicaSets, &sets);
            }
            SetOp::Lose { cluster } => self.bench.view.lost(CLUSTERS[*cluster], "2026-01-01T00:00:00Z"),
            SetOp::Restart => {
                let Some(kept) = self.bench.view.to_keep() else { return };
                let origin = Revision::start_of_epoch(40_001);
                self.bench.view =
                    View::new(id(), Arc::new(self.bench.store.clone()), MemoryStore::new(), origin);
                self.bench.view.restore(kept, "2026-01-02T00:00:00Z");
            }
        }
    }

    fn check(&self) {
        let list = |kind: Kind| self.bench.view.list(&kind.collection(), None).unwrap();
        let sets = list(Kind::ReplicaSets);
        let shown: Vec<_> = sets.iter(None, None).collect();
        if self.sets.is_empty() {
            assert!(shown.is_empty());
            return;
        }
        let [(item, one)] = &shown[..] else { panic!("{shown:?}") };
        assert_eq!(item.name(), "web-1");
        let tree = one.tree().unwrap();
        let sum: u64 = self.sets.values().map(|(_, replicas)| u64::from(*replicas)).sum();
        assert_eq!(tree["spec"]["replicas"], sum);
        assert_eq!(one.head.owners[0].uid, "hub");
        assert!(self.sets.values().any(|(uid, _)| *uid == one.head.uid), "it is one of theirs");
        for (_, pod) in list(Kind::Pods).iter(None, None) {
            let cluster = CLUSTERS.iter().position(|it| *it == pod.head.name).unwrap();
            let owner = &self.pods[&cluster];
            if self.sets.get(&cluster).is_some_and(|(uid, _)| uid == owner) {
                assert_eq!(pod.head.owners[0].uid, one.head.uid, "the pod of {}", CLUSTERS[cluster]);
            }
        }
    }
}

proptest! {
    #[test]
    fn divided_sets_are_one_and_own_all_their_pods(ops in prop::collection::vec(set_op(), 1..30)) {
        let mut divided = Divided::new();
        for op in &ops {
            divided.perform(op);
            divided.check();
        }
    }
}
