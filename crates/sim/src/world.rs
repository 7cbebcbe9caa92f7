//! What a controller sees of its cluster.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use crate::{Kind, Pod};

/// A cluster at one moment: all that was written before the controller was asked is in it.
pub trait World {
    fn now(&self) -> Timestamp;

    fn get(&self, kind: Kind, namespace: &str, name: &str) -> Option<Value>;

    /// All of a namespace, or of the cluster if `namespace` is `None`, ordered by namespace and name.
    fn list(&self, kind: Kind, namespace: Option<&str>) -> Vec<Value>;

    /// Those whose controlling owner has this UID.
    fn owned(&self, kind: Kind, namespace: &str, owner: &str) -> Vec<Value>;

    /// Pods are many: this is what most decisions need of them. [`World::get`] has the rest.
    fn pods(&self, namespace: &str) -> Vec<Arc<Pod>>;

    /// Pods of the whole cluster on a node.
    fn pods_on(&self, node: &str) -> Vec<Arc<Pod>>;

    /// Those whose controlling owner has this UID.
    fn pods_of(&self, namespace: &str, owner: &str) -> Vec<Arc<Pod>>;

    /// What a pod uses of a resource now, in the unit of its quantity (cores, bytes), if somebody has set it.
    fn usage(&self, pod: &Pod, resource: &str) -> Option<f64>;
}
