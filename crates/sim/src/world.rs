//! What a controller sees of its cluster.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use serde_json::Value;

use crate::{Kind, Pod, tree};

/// A creation that the API server did not do. It is kept until a creation for the same object succeeds.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    /// The message of the API server's status.
    pub message: String,
    pub at: Timestamp,
    /// How many were refused in a row.
    pub times: u32,
    /// The controller has not seen it yet.
    pub fresh: bool,
    /// It was refused because its namespace is on its way out.
    pub namespace_ends: bool,
}

impl Refusal {
    /// How long not to try again.
    pub fn rest(&self, now: Timestamp) -> Option<Duration> {
        let wait = FIRST_WAIT.saturating_mul(1 << self.times.min(20)).min(LONGEST_WAIT);
        let waited = Duration::try_from(now.duration_since(self.at)).unwrap_or_default();
        wait.checked_sub(waited).filter(|rest| !rest.is_zero())
    }
}

/// How upstream's queues wait before something that failed is tried again.
const FIRST_WAIT: Duration = Duration::from_millis(5);
const LONGEST_WAIT: Duration = Duration::from_secs(1000);

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

    /// Pods of the whole cluster that have no node but are to get one.
    fn nominated(&self) -> Vec<Arc<Pod>> {
        let mut pods = self.pods_on("");
        pods.retain(|pod| pod.nominated.is_some());
        pods
    }

    /// Those whose controlling owner has this UID.
    fn pods_of(&self, namespace: &str, owner: &str) -> Vec<Arc<Pod>>;

    /// Pods of a namespace that nobody controls.
    fn orphan_pods(&self, namespace: &str) -> Vec<Arc<Pod>> {
        let mut pods = self.pods(namespace);
        pods.retain(|pod| pod.controller.is_none());
        pods
    }

    /// Objects of a namespace that nobody controls.
    fn orphans(&self, kind: Kind, namespace: &str) -> Vec<Value> {
        let mut objects = self.list(kind, Some(namespace));
        objects.retain(|object| tree::controller(object).is_none());
        objects
    }

    /// The last creation that a controller of `kind` asked for because of this object, if it was refused.
    fn refusal(&self, _kind: Kind, _namespace: &str, _name: &str) -> Option<Refusal> {
        None
    }

    /// The finished pods beyond the newest `kept` of the whole cluster; none as long as there are not more.
    fn finished_beyond(&self, _kept: usize) -> Vec<Arc<Pod>> {
        Vec::new()
    }

    /// What a pod uses of a resource now, in the unit of its quantity (cores, bytes), if somebody has set it.
    fn usage(&self, pod: &Pod, resource: &str) -> Option<f64>;
}
