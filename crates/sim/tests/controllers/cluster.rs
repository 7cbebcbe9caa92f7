//! A cluster for controllers: objects in a map, an API server and an engine of a few lines, and a kubelet that does as
//! it is told.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use sim::{
    Action, Kind, Plan, Pod, Propagation, Refusal, World,
    controllers::{self, Changed, Controller, Name},
    kind, tree,
};

/// More plans than this in a row: the controllers do not come to rest.
const SPINNING: usize = 20_000;

type Key = (Kind, String, String);
type Judge = Rc<dyn Fn(&Value) -> Result<(), String>>;
type Watch = Rc<dyn Fn(&Cluster)>;

/// What the kubelets do with pods without being asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kubelet {
    /// Nothing.
    Idle,
    /// Runs them, and ends them when they are deleted.
    Runs,
    /// Ends them when they are deleted, but no new ones become ready.
    Stuck,
}

pub struct Cluster {
    objects: BTreeMap<Key, Value>,
    controllers: Rc<Vec<Box<dyn Controller>>>,
    queue: VecDeque<(usize, Name)>,
    timers: BTreeSet<(Timestamp, usize, Name)>,
    refusals: HashMap<(usize, Name), Refusal>,
    /// The controller that is asked now.
    asked: RefCell<usize>,
    now: Timestamp,
    counter: u64,
    pub kubelet: Kubelet,
    /// `reason: message`, in order.
    pub events: Vec<String>,
    /// By pod name and resource, in cores or bytes.
    pub usage: HashMap<(String, String), f64>,
    /// Says no to pods.
    pub judge: Option<Judge>,
    /// Called after every change.
    pub watch: Option<Watch>,
}

impl Cluster {
    pub fn new(nodes: usize) -> Cluster {
        let mut cluster = Cluster {
            objects: BTreeMap::new(),
            controllers: Rc::new(controllers::all()),
            queue: VecDeque::new(),
            timers: BTreeSet::new(),
            refusals: HashMap::new(),
            asked: RefCell::new(0),
            now: "2026-01-01T00:00:00Z".parse().expect("a time"),
            counter: 0,
            kubelet: Kubelet::Runs,
            events: Vec::new(),
            usage: HashMap::new(),
            judge: None,
            watch: None,
        };
        for number in 0..nodes {
            cluster.add_node(&format!("node-{number}"));
        }
        cluster
    }

    pub fn add_node(&mut self, name: &str) {
        self.create(
            kind::NODES,
            json!({
                "metadata": { "name": name },
                "status": { "conditions": [{ "type": "Ready", "status": "True" }] },
            }),
        );
    }

    pub fn create(&mut self, kind: Kind, object: Value) -> Value {
        let created = self.admit(kind, object).expect("an object that may be created");
        self.settle();
        created
    }

    pub fn get(&self, kind: Kind, name: &str) -> Value {
        self.find(kind, name).unwrap_or_else(|| panic!("no {} {name}", kind.kind))
    }

    pub fn find(&self, kind: Kind, name: &str) -> Option<Value> {
        let namespace = if kind.namespaced { "default" } else { "" };
        self.objects.get(&(kind, namespace.to_owned(), name.to_owned())).cloned()
    }

    pub fn all(&self, kind: Kind) -> Vec<Value> {
        self.objects.iter().filter(|((of, _, _), _)| *of == kind).map(|(_, object)| object.clone()).collect()
    }

    pub fn names(&self, kind: Kind) -> Vec<String> {
        self.all(kind).iter().map(|object| tree::name(object).to_owned()).collect()
    }

    /// A merge patch, by a user.
    pub fn patch(&mut self, kind: Kind, name: &str, patch: Value) {
        let namespace = if kind.namespaced { "default" } else { "" };
        self.merge(kind, namespace, name, &patch, false).expect("an object to patch");
        self.settle();
    }

    pub fn patch_status(&mut self, kind: Kind, name: &str, status: Value) {
        let namespace = if kind.namespaced { "default" } else { "" };
        self.merge(kind, namespace, name, &json!({ "status": status }), true).expect("an object to patch");
        self.settle();
    }

    pub fn delete(&mut self, kind: Kind, name: &str) {
        let object = self.get(kind, name);
        self.remove(kind, tree::namespace(&object), name, None);
        self.settle();
    }

    /// Marks a pod as ended.
    pub fn end_pod(&mut self, name: &str, phase: &str, exit_code: i64) {
        let at = tree::time_text(self.now);
        self.patch_status(
            kind::PODS,
            name,
            json!({
                "phase": phase,
                "conditions": [{ "type": "Ready", "status": "False", "lastTransitionTime": at }],
                "containerStatuses": [
                    { "name": "main", "state": { "terminated": { "exitCode": exit_code, "finishedAt": at } } }],
            }),
        );
    }

    pub fn set_ready(&mut self, name: &str, ready: bool) {
        let at = tree::time_text(self.now);
        let status = if ready { "True" } else { "False" };
        self.patch_status(
            kind::PODS,
            name,
            json!({
                "phase": "Running",
                "conditions": [{ "type": "Ready", "status": status, "lastTransitionTime": at }],
            }),
        );
    }

    /// Lets time pass, and everything that is due happen in order.
    pub fn pass(&mut self, duration: Duration) {
        let end = self.now + SignedDuration::try_from(duration).expect("a short time");
        self.settle();
        while let Some((at, controller, name)) = self.timers.first().cloned().filter(|(at, _, _)| *at <= end)
        {
            self.timers.pop_first();
            self.now = self.now.max(at);
            self.enqueue(controller, name);
            self.settle();
        }
        self.now = end;
        self.settle();
    }

    pub fn seconds(&mut self, seconds: u64) {
        self.pass(Duration::from_secs(seconds));
    }

    pub fn time(&self) -> Timestamp {
        self.now
    }

    pub fn has_event(&self, text: &str) -> bool {
        self.events.iter().any(|event| event.contains(text))
    }

    /// Controllers and kubelets until nothing is left to do now.
    pub fn settle(&mut self) {
        let mut plans = 0;
        loop {
            while let Some((controller, name)) = self.queue.pop_front() {
                plans += 1;
                assert!(plans < SPINNING, "controllers do not come to rest at {name:?}");
                self.ask(controller, &name);
            }
            if !self.run_kubelets() {
                return;
            }
        }
    }

    fn ask(&mut self, at: usize, name: &Name) {
        let controllers = self.controllers.clone();
        let controller = &controllers[at];
        let key = (controller.kind(), name.0.clone(), name.1.clone());
        let Some(object) = self.objects.get(&key).cloned() else { return };
        *self.asked.borrow_mut() = at;
        let plan = controller.reconcile(&*self, &object);
        if let Some(refusal) = self.refusals.get_mut(&(at, name.clone())) {
            refusal.fresh = false;
        }
        let Plan { actions, again } = plan;
        if let Some(again) = again {
            self.timers.retain(|(_, of, which)| !(*of == at && which == name));
            let when = self.now + SignedDuration::try_from(again).expect("a short time");
            self.timers.insert((when, at, name.clone()));
        }
        let mut created = String::new();
        for action in actions {
            match self.carry_out(action, &mut created) {
                Ok(true) => {
                    self.refusals.remove(&(at, name.clone()));
                }
                Ok(false) => {}
                Err(Some(message)) => {
                    self.refuse(at, name, message);
                    return self.enqueue(at, name.clone());
                }
                Err(None) => return self.enqueue(at, name.clone()),
            }
        }
    }

    fn refuse(&mut self, at: usize, name: &Name, message: String) {
        let times = self.refusals.get(&(at, name.clone())).map_or(0, |refusal| refusal.times) + 1;
        let refusal = Refusal { message, at: self.now, times, fresh: true, namespace_ends: false };
        self.refusals.insert((at, name.clone()), refusal);
    }

    /// Whether something was created; else why not, or nothing if it was a conflict.
    fn carry_out(&mut self, action: Action, created: &mut String) -> Result<bool, Option<String>> {
        match action {
            Action::Create { kind, object } => {
                let made = self.admit(kind, object).map_err(Some)?;
                *created = tree::name(&made).to_owned();
                return Ok(true);
            }
            Action::Replace { kind, object } => self.replace(kind, object, false)?,
            Action::Status { kind, object } => self.replace(kind, object, true)?,
            Action::Patch { kind, namespace, name, patch } => {
                self.merge(kind, &namespace, &name, &patch, false)?
            }
            Action::PatchStatus { kind, namespace, name, patch } => {
                self.merge(kind, &namespace, &name, &patch, true)?;
            }
            Action::Delete { kind, namespace, name, uid, grace, propagation } => {
                let key = (kind, namespace.clone(), name.clone());
                let Some(object) = self.objects.get(&key) else { return Ok(false) };
                assert_eq!(tree::uid(object), uid, "a deletion of what is there");
                if kind == kind::JOBS {
                    assert_ne!(propagation, Propagation::Default, "Jobs orphan their pods");
                }
                self.remove(kind, &namespace, &name, grace);
            }
            Action::Bind { namespace, name, node, .. } => {
                self.merge(kind::PODS, &namespace, &name, &json!({ "spec": { "nodeName": node } }), false)?;
            }
            Action::Scale { kind, namespace, name, replicas } => {
                self.merge(kind, &namespace, &name, &json!({ "spec": { "replicas": replicas } }), false)?;
            }
            Action::Event { reason, message, .. } => self.events.push(format!("{reason}: {message}")),
            Action::Announce { reason, message, .. } => {
                self.events.push(format!("{reason}: {message}{created}"));
            }
        }
        Ok(false)
    }

    fn admit(&mut self, kind: Kind, mut object: Value) -> Result<Value, String> {
        if kind == kind::PODS
            && let Some(judge) = &self.judge
        {
            judge(&object)?;
        }
        self.counter += 1;
        let metadata = &mut object["metadata"];
        if metadata.get("name").is_none() {
            let prefix = metadata["generateName"].as_str().expect("a name").to_owned();
            metadata["name"] = format!("{prefix}{:05}", self.counter).into();
        }
        if kind.namespaced {
            metadata["namespace"] = "default".into();
        }
        metadata["uid"] = format!("uid-{}", self.counter).into();
        metadata["creationTimestamp"] = tree::time_text(self.now).into();
        metadata["generation"] = 1.into();
        object["apiVersion"] = kind.api_version().into();
        object["kind"] = kind.kind.into();
        default(kind, &mut object);
        let key = (kind, tree::namespace(&object).to_owned(), tree::name(&object).to_owned());
        if self.objects.contains_key(&key) {
            return Err(format!("{} \"{}\" already exists", kind.plural, key.2));
        }
        self.store(key, Some(object.clone()));
        Ok(object)
    }

    fn replace(&mut self, kind: Kind, object: Value, status: bool) -> Result<(), Option<String>> {
        let key = (kind, tree::namespace(&object).to_owned(), tree::name(&object).to_owned());
        let Some(stored) = self.objects.get(&key).cloned() else { return Err(None) };
        let version = tree::text(&object, "/metadata/resourceVersion");
        if !version.is_empty() && version != tree::text(&stored, "/metadata/resourceVersion") {
            return Err(None);
        }
        let mut new = stored.clone();
        if status {
            new["status"] = object["status"].clone();
        } else {
            let status = new["status"].clone();
            new = object;
            new["status"] = status;
        }
        assert_ne!(new, stored, "an action that changes nothing");
        self.update(key, &stored, new);
        Ok(())
    }

    fn merge(
        &mut self,
        kind: Kind,
        namespace: &str,
        name: &str,
        patch: &Value,
        status: bool,
    ) -> Result<(), Option<String>> {
        let key = (kind, namespace.to_owned(), name.to_owned());
        let Some(stored) = self.objects.get(&key).cloned() else { return Err(None) };
        for field in ["uid", "resourceVersion"] {
            let wanted = patch.pointer("/metadata").and_then(|metadata| metadata.get(field));
            if wanted.is_some_and(|wanted| *wanted != stored["metadata"][field]) {
                return Err(None);
            }
        }
        let mut new = stored.clone();
        merge_patch(&mut new, patch);
        if status {
            let status = new["status"].clone();
            new = stored.clone();
            new["status"] = status;
        }
        if new != stored {
            self.update(key, &stored, new);
        }
        Ok(())
    }

    fn update(&mut self, key: Key, stored: &Value, mut new: Value) {
        if new.get("spec") != stored.get("spec") {
            let generation = tree::number(stored, "/metadata/generation").unwrap_or(0) + 1;
            new["metadata"]["generation"] = generation.into();
        }
        let finalizers = tree::items(&new, "/metadata/finalizers").len();
        let is_over = tree::is_deleting(&new) && finalizers == 0 && key.0 != kind::PODS;
        let ended_pod = key.0 == kind::PODS
            && tree::is_deleting(&new)
            && finalizers == 0
            && tree::number(&new, "/metadata/deletionGracePeriodSeconds") == Some(0);
        self.store(key, if is_over || ended_pod { None } else { Some(new) });
    }

    fn remove(&mut self, kind: Kind, namespace: &str, name: &str, grace: Option<u64>) {
        let key = (kind, namespace.to_owned(), name.to_owned());
        let Some(object) = self.objects.get(&key).cloned() else { return };
        let is_bound = kind == kind::PODS && !tree::text(&object, "/spec/nodeName").is_empty();
        let ended = ["Succeeded", "Failed"].contains(&tree::text(&object, "/status/phase"));
        let waits = is_bound && !ended && grace != Some(0) && self.kubelet != Kubelet::Idle;
        if tree::items(&object, "/metadata/finalizers").len() == 0 && !waits {
            return self.store(key, None);
        }
        if tree::is_deleting(&object) && grace != Some(0) {
            return;
        }
        let mut object = object;
        object["metadata"]["deletionTimestamp"] = tree::time_text(self.now).into();
        object["metadata"]["deletionGracePeriodSeconds"] = if waits { 30 } else { 0 }.into();
        self.store(key, Some(object));
    }

    /// Writes, wakes who must look, and lets go of what the object owned.
    fn store(&mut self, key: Key, object: Option<Value>) {
        let old = self.objects.get(&key).cloned();
        let mut object = object;
        if let Some(object) = &mut object {
            self.counter += 1;
            object["metadata"]["resourceVersion"] = self.counter.to_string().into();
            self.objects.insert(key.clone(), object.clone());
        } else {
            self.objects.remove(&key);
        }
        let changed = Changed { kind: key.0, old: old.as_ref(), new: object.as_ref() };
        self.wake(&key, &changed);
        if object.is_none() {
            self.collect(tree::uid(&old.unwrap_or_default()));
        }
        if let Some(watch) = self.watch.clone() {
            watch(self);
        }
    }

    fn wake(&mut self, key: &Key, changed: &Changed<'_>) {
        let controllers = self.controllers.clone();
        for (at, controller) in controllers.iter().enumerate() {
            if controller.kind() == key.0 {
                self.enqueue(at, (key.1.clone(), key.2.clone()));
            }
            for object in [changed.old, changed.new].into_iter().flatten() {
                let Some(owner) = tree::controller(object) else { continue };
                let kind = Kind::named(tree::text(owner, "/apiVersion"), tree::text(owner, "/kind"));
                if kind == Some(controller.kind()) {
                    self.enqueue(at, (key.1.clone(), tree::text(owner, "/name").to_owned()));
                }
            }
            if controller.listens_to().contains(&key.0) {
                for name in controller.wakes(&*self, changed) {
                    self.enqueue(at, name);
                }
            }
        }
    }

    fn enqueue(&mut self, controller: usize, name: Name) {
        let item = (controller, name);
        if !self.queue.contains(&item) {
            self.queue.push_back(item);
        }
    }

    fn collect(&mut self, uid: &str) {
        let is_owned = |object: &Value| {
            tree::items(object, "/metadata/ownerReferences").any(|owner| tree::text(owner, "/uid") == uid)
        };
        let owned: Vec<Key> =
            self.objects.iter().filter(|(_, object)| is_owned(object)).map(|(key, _)| key.clone()).collect();
        for (kind, namespace, name) in owned {
            self.remove(kind, &namespace, &name, None);
        }
    }

    /// Says whether anything happened.
    fn run_kubelets(&mut self) -> bool {
        if self.kubelet == Kubelet::Idle {
            return false;
        }
        let nodes = self.names(kind::NODES);
        let is_free = |node: &&Value| tree::items(node, "/spec/taints").len() == 0;
        let free: Vec<String> =
            self.all(kind::NODES).iter().filter(is_free).map(|node| tree::name(node).to_owned()).collect();
        let mut busy = false;
        for pod in self.all(kind::PODS) {
            let (namespace, name) = (tree::namespace(&pod).to_owned(), tree::name(&pod).to_owned());
            let key = (kind::PODS, namespace.clone(), name.clone());
            let is_tracked = tree::items(&pod, "/metadata/finalizers").len() > 0;
            let is_bound = !tree::text(&pod, "/spec/nodeName").is_empty();
            let grace = tree::number(&pod, "/metadata/deletionGracePeriodSeconds");
            if tree::is_deleting(&pod) && is_bound && grace != Some(0) {
                busy = true;
                if !is_tracked {
                    self.store(key, None);
                    continue;
                }
                let mut ended = pod.clone();
                ended["metadata"]["deletionGracePeriodSeconds"] = 0.into();
                ended["status"]["phase"] = "Failed".into();
                self.store(key, Some(ended));
            } else if !is_bound && !tree::is_deleting(&pod) {
                let term = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution\
                            /nodeSelectorTerms/0/matchFields/0/values/0";
                let wanted = tree::text(&pod, term);
                let node = if wanted.is_empty() {
                    free.get(self.counter as usize % free.len().max(1))
                } else {
                    None
                };
                let Some(node) = node.cloned().or_else(|| nodes.iter().find(|it| *it == wanted).cloned())
                else {
                    continue;
                };
                busy = true;
                let mut bound = pod.clone();
                bound["spec"]["nodeName"] = node.into();
                if self.kubelet == Kubelet::Runs {
                    bound["status"] = self.running();
                }
                self.store(key, Some(bound));
            }
        }
        busy
    }

    fn running(&self) -> Value {
        let at = tree::time_text(self.now);
        json!({
            "phase": "Running",
            "podIP": format!("10.0.{}.{}", self.counter / 250 % 250, self.counter % 250),
            "startTime": at,
            "conditions": [{ "type": "Ready", "status": "True", "lastTransitionTime": at }],
        })
    }
}

/// The little of what the API server does that controllers rely on.
fn default(kind: Kind, object: &mut Value) {
    let uid = object["metadata"]["uid"].clone();
    match kind {
        kind::PODS if object.pointer("/status/phase").is_none() => {
            object["status"]["phase"] = "Pending".into();
        }
        kind::JOBS => {
            let label = "batch.kubernetes.io/controller-uid";
            object["spec"]["selector"]["matchLabels"][label] = uid.clone();
            object["spec"]["template"]["metadata"]["labels"][label] = uid;
        }
        kind::DEPLOYMENTS => {
            let spec = &mut object["spec"];
            if spec.get("strategy").is_none() {
                let rolling = json!({ "maxSurge": "25%", "maxUnavailable": "25%" });
                spec["strategy"] = json!({ "type": "RollingUpdate", "rollingUpdate": rolling });
            }
            if spec.get("progressDeadlineSeconds").is_none() {
                spec["progressDeadlineSeconds"] = 600.into();
            }
        }
        kind::STATEFUL_SETS | kind::DAEMON_SETS if object.pointer("/spec/updateStrategy").is_none() => {
            let rolling = match kind {
                kind::STATEFUL_SETS => json!({ "partition": 0 }),
                _ => json!({ "maxUnavailable": 1, "maxSurge": 0 }),
            };
            object["spec"]["updateStrategy"] = json!({ "type": "RollingUpdate", "rollingUpdate": rolling });
        }
        _ => {}
    }
}

fn merge_patch(target: &mut Value, patch: &Value) {
    let Value::Object(members) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (key, value) in members {
        if value.is_null() {
            target.as_object_mut().expect("an object").remove(key);
        } else {
            merge_patch(&mut target[key.as_str()], value);
        }
    }
}

impl World for Cluster {
    fn now(&self) -> Timestamp {
        self.now
    }

    fn get(&self, kind: Kind, namespace: &str, name: &str) -> Option<Value> {
        self.objects.get(&(kind, namespace.to_owned(), name.to_owned())).cloned()
    }

    fn list(&self, kind: Kind, namespace: Option<&str>) -> Vec<Value> {
        let mut objects = self.all(kind);
        objects.retain(|object| namespace.is_none_or(|namespace| tree::namespace(object) == namespace));
        objects
    }

    fn owned(&self, kind: Kind, namespace: &str, owner: &str) -> Vec<Value> {
        let mut objects = self.list(kind, Some(namespace));
        objects.retain(|object| tree::controller(object).is_some_and(|it| tree::text(it, "/uid") == owner));
        objects
    }

    fn pods(&self, namespace: &str) -> Vec<Arc<Pod>> {
        self.list(kind::PODS, Some(namespace)).iter().map(|pod| Arc::new(Pod::of(pod))).collect()
    }

    fn pods_on(&self, node: &str) -> Vec<Arc<Pod>> {
        let mut pods = self.pods("default");
        pods.retain(|pod| pod.node == node);
        pods
    }

    fn pods_of(&self, namespace: &str, owner: &str) -> Vec<Arc<Pod>> {
        let mut pods = self.pods(namespace);
        pods.retain(|pod| pod.is_controlled_by(owner));
        pods
    }

    fn refusal(&self, _kind: Kind, namespace: &str, name: &str) -> Option<Refusal> {
        let name = (namespace.to_owned(), name.to_owned());
        self.refusals.get(&(*self.asked.borrow(), name)).cloned()
    }

    fn usage(&self, pod: &Pod, resource: &str) -> Option<f64> {
        self.usage.get(&(pod.name.to_string(), resource.to_owned())).copied()
    }
}

/// A pod template with one label.
pub fn template(app: &str, image: &str) -> Value {
    json!({
        "metadata": { "labels": { "app": app } },
        "spec": { "containers": [{ "name": "main", "image": image }] },
    })
}

/// Conditions as `Type=Status Reason`, by type.
pub fn conditions(object: &Value) -> Vec<String> {
    let text = |condition: &Value| {
        let of = |at: &str| tree::text(condition, at).to_owned();
        format!("{}={} {}", of("/type"), of("/status"), of("/reason"))
    };
    let mut all: Vec<String> = tree::items(object, "/status/conditions").map(text).collect();
    all.sort();
    all
}
