//! A cluster that is written down, for tests of what is pure.

use std::{collections::BTreeMap, sync::Arc};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::{Kind, Pod, World, kind::PODS, tree};

pub struct Written {
    pub now: Timestamp,
    objects: BTreeMap<(Kind, String, String), Value>,
}

impl Written {
    pub fn new() -> Written {
        Written {
            now: "2026-01-01T00:00:00Z".parse().unwrap_or(Timestamp::UNIX_EPOCH),
            objects: BTreeMap::new(),
        }
    }

    pub fn with(mut self, kind: Kind, object: Value) -> Written {
        self.put(kind, object);
        self
    }

    pub fn put(&mut self, kind: Kind, object: Value) {
        let key = (kind, tree::namespace(&object).to_owned(), tree::name(&object).to_owned());
        self.objects.insert(key, object);
    }

    pub fn pass(&mut self, seconds: i64) {
        self.now += SignedDuration::from_secs(seconds);
    }

    /// As the API server merges what is below `status`.
    pub fn patch_status(&mut self, kind: Kind, namespace: &str, name: &str, patch: &Value) {
        let key = (kind, namespace.to_owned(), name.to_owned());
        let Some(object) = self.objects.get_mut(&key) else { return };
        for (member, value) in tree::members(patch, "/status") {
            object["status"][member] = value.clone();
        }
    }
}

impl World for Written {
    fn now(&self) -> Timestamp {
        self.now
    }

    fn get(&self, kind: Kind, namespace: &str, name: &str) -> Option<Value> {
        self.objects.get(&(kind, namespace.to_owned(), name.to_owned())).cloned()
    }

    fn list(&self, kind: Kind, namespace: Option<&str>) -> Vec<Value> {
        let here = |key: &(Kind, String, String)| key.0 == kind && namespace.is_none_or(|it| key.1 == it);
        self.objects.iter().filter(|(key, _)| here(key)).map(|(_, object)| object.clone()).collect()
    }

    fn owned(&self, kind: Kind, namespace: &str, owner: &str) -> Vec<Value> {
        let is_owned =
            |it: &Value| tree::controller(it).is_some_and(|it| tree::uid(&json!({"metadata": it})) == owner);
        self.list(kind, Some(namespace)).into_iter().filter(is_owned).collect()
    }

    fn pods(&self, namespace: &str) -> Vec<Arc<Pod>> {
        self.list(PODS, Some(namespace)).iter().map(|pod| Arc::new(Pod::of(pod))).collect()
    }

    fn pods_on(&self, node: &str) -> Vec<Arc<Pod>> {
        let all = self.list(PODS, None);
        all.iter().map(|pod| Arc::new(Pod::of(pod))).filter(|pod| pod.node == node).collect()
    }

    fn pods_of(&self, namespace: &str, owner: &str) -> Vec<Arc<Pod>> {
        self.pods(namespace).into_iter().filter(|pod| pod.is_controlled_by(owner)).collect()
    }

    fn usage(&self, _pod: &Pod, _resource: &str) -> Option<f64> {
        None
    }
}
