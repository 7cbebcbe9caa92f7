//! Controllers: one per kind, each a pure function from a [`World`] to a [`Plan`].

mod autoscaler;
mod budget;
mod claim;
mod collection;
mod conditions;
mod cron_job;
mod daemon_set;
mod deployment;
mod history;
mod job;
mod node;
pub mod placement;
mod replica_set;
mod service;
mod share;
mod stateful_set;
mod template;
mod volume;

use serde_json::Value;

use crate::{Kind, Plan, World};

/// Namespace and name of an object; the namespace is empty for cluster-scoped ones.
pub type Name = (String, String);

/// A change of an object.
#[derive(Clone, Copy, Debug)]
pub struct Changed<'a> {
    pub kind: Kind,
    /// `None`: it is new.
    pub old: Option<&'a Value>,
    /// `None`: it is gone.
    pub new: Option<&'a Value>,
}

impl<'a> Changed<'a> {
    /// As it is, or was last.
    pub fn object(&self) -> &'a Value {
        self.new.or(self.old).unwrap_or(&Value::Null)
    }
}

pub trait Controller: Send + Sync {
    /// What it reconciles. The engine asks it about an object of this kind whenever that changed, or something changed
    /// that the object controls by an owner reference.
    fn kind(&self) -> Kind;

    /// By which name its requests are known, as in `deployment-controller`.
    fn name(&self) -> &'static str;

    /// The kinds, besides its own, whose changes it wants to hear of in [`Controller::wakes`].
    fn listens_to(&self) -> &'static [Kind] {
        &[]
    }

    /// Which objects of its kind must be looked at because of a change of something they do not control.
    fn wakes(&self, _world: &dyn World, _changed: &Changed<'_>) -> Vec<Name> {
        Vec::new()
    }

    /// What is to be done. `object` exists; it may be on its way out.
    fn reconcile(&self, world: &dyn World, object: &Value) -> Plan;
}

/// All of them.
pub fn all() -> Vec<Box<dyn Controller>> {
    vec![
        Box::new(deployment::Deployments),
        Box::new(replica_set::ReplicaSets::REPLICA_SETS),
        Box::new(replica_set::ReplicaSets::REPLICATION_CONTROLLERS),
        Box::new(stateful_set::StatefulSets),
        Box::new(daemon_set::DaemonSets),
        Box::new(job::Jobs),
        Box::new(cron_job::CronJobs),
        Box::new(autoscaler::Autoscalers::default()),
        Box::new(budget::Budgets),
        Box::new(service::Slices),
        Box::new(service::Endpoints),
        Box::new(service::Leftovers),
        Box::new(service::Mirrors),
        Box::new(volume::Claims),
        Box::new(volume::Ephemeral),
        Box::new(volume::Volumes),
        Box::new(node::NodeLifecycle),
        Box::new(node::TaintEviction),
        Box::new(collection::PodCollection),
    ]
}
