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

use super::{Member, Sighting, gather::Told, kinds::Kind, render, view::View};
use crate::body::Body;

const CLUSTERS: [&str; 3] = ["eu-1", "us-1", "ap-1"];
const NAMES: [&str; 3] = ["web", "web-eu-1", "api"];
/// Namespaces of members; all show as the first.
const NAMESPACES: [&str; 2] = ["shop", "acme-shop"];

/// An object of a member: its namespace and name there, and the stored one that it says to be a copy of. What is not
/// stored yet may be later, under that UID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct There {
    namespace: usize,
    name: usize,
    copy_of: Option<usize>,
}

#[derive(Clone, Debug)]
enum Op {
    Put {
        cluster: usize,
        there: There,
        content: u8,
    },
    Remove {
        cluster: usize,
        namespace: usize,
        name: usize,
    },
    Replace {
        cluster: usize,
        there: Vec<There>,
        content: u8,
    },
    Lose {
        cluster: usize,
    },
    Leave {
        cluster: usize,
    },
    Store {
        name: usize,
        content: u8,
    },
    Unstore {
        name: usize,
    },
    /// One by another UID takes its place, in one write.
    Exchange {
        name: usize,
        content: u8,
    },
}

fn there() -> impl Strategy<Value = There> {
    let copy_of = prop_oneof![2 => Just(None), 1 => (0..NAMES.len()).prop_map(Some)];
    (0..NAMESPACES.len(), 0..NAMES.len(), copy_of).prop_map(|(namespace, name, copy_of)| There {
        namespace,
        name,
        copy_of,
    })
}

fn op() -> impl Strategy<Value = Op> {
    let (clusters, names) = (0..CLUSTERS.len(), 0..NAMES.len());
    prop_oneof![
        6 => (clusters.clone(), there(), any::<u8>()).prop_map(|(cluster, there, content)| Op::Put { cluster, there, content }),
        2 => (clusters.clone(), 0..NAMESPACES.len(), names.clone()).prop_map(|(cluster, namespace, name)| Op::Remove { cluster, namespace, name }),
        2 => (clusters.clone(), prop::collection::vec(there(), 0..4), any::<u8>()).prop_map(|(cluster, there, content)| Op::Replace { cluster, there, content }),
        1 => clusters.clone().prop_map(|cluster| Op::Lose { cluster }),
        1 => clusters.prop_map(|cluster| Op::Leave { cluster }),
        3 => (names.clone(), any::<u8>()).prop_map(|(name, content)| Op::Store { name, content }),
        2 => names.clone().prop_map(|name| Op::Unstore { name }),
        1 => (names, any::<u8>()).prop_map(|(name, content)| Op::Exchange { name, content }),
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

/// What there is, by whose it is and its namespace and name there: UID and content.
type Truth = BTreeMap<(Option<usize>, usize, usize), (String, u8)>;

struct Bench {
    store: MemoryStore,
    view: View,
    truth: Truth,
    /// Of members' objects, the UIDs that they say to be copies of.
    sources: BTreeMap<(usize, usize, usize), String>,
    /// How often the stored object of each name was another one.
    lives: [usize; NAMES.len()],
    /// Whoever watches from the beginning.
    watch: Watch,
    told: BTreeMap<ItemKey, Bytes>,
    made: usize,
    revision: u64,
}

fn sighting(object: &Value) -> Sighting {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    let own = Some(ItemKey::new(text("namespace"), text("name")));
    Sighting { object: object.to_string().into(), own, namespace: None }
}

fn tell(view: &View, cluster: usize, kind: Kind, object: Sighting, is_gone: bool) {
    view.gather(Told { cluster: CLUSTERS[cluster].into(), kind, object, is_gone });
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
        Bench {
            store,
            view,
            truth: Truth::new(),
            sources: BTreeMap::new(),
            lives: [0; NAMES.len()],
            watch,
            told: BTreeMap::new(),
            made: 0,
            revision: 0,
        }
    }

    /// The UID that the object of a name has, or will have, in the store.
    fn stored_uid(&self, name: usize) -> String {
        format!("stored-{name}-{}", self.lives[name])
    }

    fn stored_pod(&mut self, name: usize, content: u8) -> Draft {
        let uid = self.stored_uid(name);
        self.truth.insert((None, 0, name), (uid.clone(), content));
        let Value::Object(tree) = json!({
            "kind": "Pod", "apiVersion": "v1",
            "metadata": {"name": NAMES[name], "namespace": NAMESPACES[0], "uid": uid},
            "spec": {"content": content},
        }) else {
            unreachable!()
        };
        Draft::encode(&tree).unwrap()
    }

    fn pod(&mut self, cluster: usize, there: There, content: u8) -> Sighting {
        self.made += 1;
        self.revision += 1;
        let There { namespace, name, copy_of } = there;
        let new = (format!("uid-{}", self.made), content);
        let entry = self.truth.entry((Some(cluster), namespace, name)).or_insert(new);
        entry.1 = content;
        let uid = entry.0.clone();
        let mut annotations = json!({"own": "note"});
        self.sources.remove(&(cluster, namespace, name));
        if let Some(source) = copy_of.map(|name| self.stored_uid(name)) {
            annotations[api::SOURCE_ANNOTATION] = json!(source);
            self.sources.insert((cluster, namespace, name), source);
        }
        let object = json!({
            "kind": "Pod", "apiVersion": "v1",
            "metadata": {
                "name": NAMES[name], "namespace": NAMESPACES[namespace], "uid": uid,
                "resourceVersion": self.revision.to_string(), "annotations": annotations,
            },
            "spec": {"content": content},
        });
        let home = (namespace != 0).then(|| NAMESPACES[0].into());
        Sighting { namespace: home, ..sighting(&object) }
    }

    fn perform(&mut self, op: &Op) {
        match op {
            Op::Put { cluster, there, content } => {
                let pod = self.pod(*cluster, *there, *content);
                tell(&self.view, *cluster, Kind::Pods, pod, false);
            }
            Op::Remove { cluster, namespace, name } => {
                let Some((uid, _)) = self.truth.remove(&(Some(*cluster), *namespace, *name)) else { return };
                self.sources.remove(&(*cluster, *namespace, *name));
                let metadata = json!({"name": NAMES[*name], "namespace": NAMESPACES[*namespace], "uid": uid});
                let pod = json!({"metadata": metadata});
                tell(&self.view, *cluster, Kind::Pods, sighting(&pod), true);
            }
            Op::Replace { cluster, there, content } => {
                let here: BTreeMap<(usize, usize), There> =
                    there.iter().map(|it| ((it.namespace, it.name), *it)).collect();
                self.truth.retain(|(whose, namespace, name), _| {
                    *whose != Some(*cluster) || here.contains_key(&(*namespace, *name))
                });
                let pods: Vec<Sighting> =
                    here.values().map(|there| self.pod(*cluster, *there, *content)).collect();
                self.view.replace(CLUSTERS[*cluster], Kind::Pods, &pods);
            }
            Op::Lose { cluster } => self.view.lost(CLUSTERS[*cluster], "2026-01-01T00:00:00Z"),
            Op::Leave { cluster } => {
                self.truth.retain(|(whose, ..), _| *whose != Some(*cluster));
                self.view.leave(CLUSTERS[*cluster]);
                assert!(self.view.join(Arc::new(Silent(CLUSTERS[*cluster])), "again"));
            }
            Op::Store { name, content } => {
                let draft = self.stored_pod(*name, *content);
                self.commit(*name, Change::Put { draft, expires: None });
            }
            Op::Unstore { name } => {
                if self.truth.remove(&(None, 0, *name)).is_some() {
                    self.commit(*name, Change::Remove);
                    self.lives[*name] += 1;
                }
            }
            Op::Exchange { name, content } => {
                if self.truth.contains_key(&(None, 0, *name)) {
                    self.lives[*name] += 1;
                    let draft = self.stored_pod(*name, *content);
                    self.commit(*name, Change::Put { draft, expires: None });
                }
            }
        }
    }

    fn commit(&self, name: usize, change: Change) {
        let key = Key::new("", "pods", NAMESPACES[0], NAMES[name]);
        let writes = vec![Write { key, expect: Expect::Anything, change }];
        self.store.commit_now(&id(), &Commit { guards: vec![], writes }).unwrap();
    }

    /// Whether a member's object of this name is a copy of what is stored: one of another name is none, whatever it says.
    fn is_copy(&self, name: usize, source: &str) -> bool {
        self.truth.get(&(None, 0, name)).is_some_and(|(stored, _)| stored == source)
    }

    /// What should show: all there is but the copies of what is stored.
    fn expected(&self) -> Truth {
        let shows = |(whose, namespace, name): &(Option<usize>, usize, usize)| {
            let source = whose.and_then(|cluster| self.sources.get(&(cluster, *namespace, *name)));
            !source.is_some_and(|source| self.is_copy(*name, source))
        };
        self.truth.clone().into_iter().filter(|(place, _)| shows(place)).collect()
    }

    /// What is shown, by whose it is and its namespace and name there.
    fn shown(&self) -> Truth {
        let listing = self.view.list(&Kind::Pods.collection(), None).unwrap();
        let mut shown = Truth::new();
        for (item, object) in listing.iter(None, None) {
            let tree: Tree = object.tree().unwrap();
            assert_eq!((item.namespace(), item.name()), (NAMESPACES[0], object.head.name.as_str()));
            let cluster = object.head.label(render::CLUSTER);
            let whose = cluster.map(|name| CLUSTERS.iter().position(|it| *it == name).unwrap());
            let annotations = &tree["metadata"]["annotations"];
            let name = annotations[render::NAME].as_str().unwrap_or(item.name());
            let name = NAMES.iter().position(|it| *it == name).unwrap();
            let namespace = annotations[render::NAMESPACE].as_str().unwrap_or(item.namespace());
            let namespace = NAMESPACES.iter().position(|it| *it == namespace).unwrap();
            if whose.is_none() {
                assert_eq!(item.name(), NAMES[name], "what is stored has its name");
            }
            let content = tree["spec"]["content"].as_u64().unwrap() as u8;
            let before = shown.insert((whose, namespace, name), (object.head.uid.to_string(), content));
            assert!(before.is_none(), "shown twice: {item:?}");
        }
        shown
    }

    /// Requests go where things are: about what shows to whoever has it, about what is stored to its copies.
    fn check_targets(&self) {
        let listing = self.view.list(&Kind::Pods.collection(), None).unwrap();
        for (item, object) in listing.iter(None, None) {
            let key = Key { collection: Kind::Pods.collection(), item: item.clone() };
            let targets = match object.head.label(render::CLUSTER) {
                Some(_) => self.view.targets(&key),
                None => self.view.copies(&key),
            };
            let uids: BTreeSet<String> = targets.iter().map(|target| target.uid.clone()).collect();
            let of_copies = self
                .sources
                .iter()
                .filter(|((.., name), source)| **source == object.head.uid && self.is_copy(*name, source));
            let place =
                |(cluster, namespace, name): &(usize, usize, usize)| (Some(*cluster), *namespace, *name);
            let copies = of_copies.filter_map(|(there, _)| self.truth.get(&place(there)));
            let expected: BTreeSet<String> = match object.head.label(render::CLUSTER) {
                Some(_) => BTreeSet::from([object.head.uid.to_string()]),
                None => copies.map(|(uid, _)| uid.clone()).collect(),
            };
            assert_eq!(uids, expected, "{item:?}");
            for target in targets {
                let cluster = CLUSTERS.iter().position(|it| *it == target.cluster);
                let namespace = NAMESPACES.iter().position(|it| *it == target.namespace).unwrap();
                let name = NAMES.iter().position(|it| *it == target.name).unwrap();
                assert_eq!(self.truth[&(cluster, namespace, name)].0, target.uid);
            }
        }
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
    /// Whether somebody looks after each step or not.
    #[test]
    fn what_is_shown_is_what_there_is(ops in prop::collection::vec((op(), any::<bool>()), 1..40)) {
        let mut bench = Bench::new();
        for (op, looks) in &ops {
            bench.perform(op);
            if !looks {
                continue;
            }
            prop_assert_eq!(bench.shown(), bench.expected(), "after {:?}", op);
            bench.check_targets();
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
        prop_assert_eq!(bench.shown(), bench.expected());
        bench.check_targets();
        let stale = bench.view.list(&Kind::Pods.collection(), None).unwrap();
        for (_, object) in stale.iter(None, None).filter(|(_, object)| object.head.label(render::CLUSTER).is_some()) {
            let tree = object.tree().unwrap();
            prop_assert!(tree["metadata"]["annotations"][render::STALE].is_string());
        }
        // What stood behind comes forward, as old as it is.
        for name in 0..NAMES.len() {
            bench.perform(&Op::Unstore { name });
        }
        prop_assert_eq!(bench.shown(), bench.expected());
        let all = bench.view.list(&Kind::Pods.collection(), None).unwrap();
        for (_, object) in all.iter(None, None) {
            prop_assert!(object.tree().unwrap()["metadata"]["annotations"][render::STALE].is_string());
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

    fn set(&mut self, cluster: usize, replicas: u8) -> Sighting {
        self.bench.made += 1;
        self.bench.revision += 1;
        let new = (format!("set-{}", self.bench.made), replicas);
        let entry = self.sets.entry(cluster).or_insert(new);
        entry.1 = replicas;
        let owner = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": format!("deployment-{cluster}")});
        let set = json!({
            "metadata": {
                "name": "web-1", "namespace": "shop", "uid": entry.0, "resourceVersion": self.bench.revision.to_string(),
                "ownerReferences": [owner],
            },
            "spec": {"replicas": replicas},
        });
        sighting(&set)
    }

    fn put_pod(&mut self, cluster: usize) {
        let Some((owner, _)) = self.sets.get(&cluster).cloned() else { return };
        let reference = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": owner});
        let pod = json!({
            "metadata": {"name": CLUSTERS[cluster], "namespace": "shop", "uid": format!("pod-{cluster}"), "ownerReferences": [reference]},
            "spec": {},
        });
        self.pods.insert(cluster, owner);
        tell(&self.bench.view, cluster, Kind::Pods, sighting(&pod), false);
    }

    fn perform(&mut self, op: &SetOp) {
        match op {
            SetOp::Put { cluster, replicas, pod_first } => {
                let set = self.set(*cluster, *replicas);
                if *pod_first {
                    self.put_pod(*cluster);
                }
                tell(&self.bench.view, *cluster, Kind::ReplicaSets, set, false);
                self.put_pod(*cluster);
            }
            SetOp::Remove { cluster } => {
                let Some((uid, _)) = self.sets.remove(cluster) else { return };
                let gone = json!({"metadata": {"name": "web-1", "namespace": "shop", "uid": uid}});
                tell(&self.bench.view, *cluster, Kind::ReplicaSets, sighting(&gone), true);
            }
            SetOp::Replace { cluster, replicas } => {
                if replicas.is_none() {
                    self.sets.remove(cluster);
                }
                let sets: Vec<Sighting> =
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
    fn divided_sets_are_one_and_own_all_their_pods(ops in prop::collection::vec((set_op(), any::<bool>()), 1..30)) {
        let mut divided = Divided::new();
        for (op, looks) in &ops {
            divided.perform(op);
            if *looks {
                divided.check();
            }
        }
    }
}
