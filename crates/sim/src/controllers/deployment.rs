//! Deployments: one ReplicaSet per template, and the way from one to the next.
//!
//! ```text
//!   claim sets ─> paused? ─> rollback asked for? ─> scaled? ─> RollingUpdate | Recreate ─> status
//!                    └────────────> proportional scaling <─┘
//! ```

mod revisions;
mod scaling;
mod sets;
mod status;

use serde_json::Value;

use self::sets::{Fence, Sets};
use super::{Changed, Controller, Name, claim};
use crate::{Kind, Plan, World, kind, tree};

pub struct Deployments;

const KIND: Kind = kind::DEPLOYMENTS;
/// Set by clients of old APIs to ask for a rollback; its value is a revision, 0 for the last one.
const ROLLBACK: &str = "deprecated.deployment.rollback.to";

impl Controller for Deployments {
    fn kind(&self) -> Kind {
        KIND
    }

    fn name(&self) -> &'static str {
        "deployment-controller"
    }

    fn listens_to(&self) -> &'static [Kind] {
        &[kind::REPLICA_SETS, kind::PODS]
    }

    fn wakes(&self, world: &dyn World, changed: &Changed<'_>) -> Vec<Name> {
        if changed.kind == kind::REPLICA_SETS {
            return match changed.new {
                Some(set) => claim::selecting(world, KIND, set, claim::selector),
                None => Vec::new(),
            };
        }
        if changed.new.is_some() {
            return Vec::new();
        }
        self.waits_for_end_of(world, changed.object()).into_iter().collect()
    }

    fn reconcile(&self, world: &dyn World, deployment: &Value) -> Plan {
        let mut plan = Plan::nothing();
        let selector = claim::selector(deployment);
        if selector.is_empty() {
            return selects_all(deployment);
        }
        let sets = claim::objects(world, &mut plan, kind::REPLICA_SETS, (KIND, deployment), &selector);
        if !plan.actions.is_empty() {
            return plan;
        }
        let mut work =
            Work { world, deployment, fence: Fence::of(deployment), sets: Sets::of(deployment, sets), plan };
        work.reconcile();
        work.plan
    }
}

impl Deployments {
    /// One that is recreated begins again when the last of its old pods is gone.
    fn waits_for_end_of(&self, world: &dyn World, pod: &Value) -> Option<Name> {
        let owner = tree::controller(pod).filter(|owner| tree::text(owner, "/kind") == "ReplicaSet")?;
        let set = world.get(kind::REPLICA_SETS, tree::namespace(pod), tree::text(owner, "/name"))?;
        let owner = tree::controller(&set).filter(|owner| tree::text(owner, "/kind") == KIND.kind)?;
        let deployment = world.get(KIND, tree::namespace(pod), tree::text(owner, "/name"))?;
        let recreates = tree::text(&deployment, "/spec/strategy/type") == "Recreate";
        recreates.then(|| claim::name_of(&deployment))
    }
}

fn selects_all(deployment: &Value) -> Plan {
    let mut plan = Plan::nothing();
    let generation = tree::number(deployment, "/metadata/generation").unwrap_or(0);
    if tree::number(deployment, "/status/observedGeneration").unwrap_or(0) < generation {
        let message = "This deployment is selecting all pods. A non-empty selector is required.";
        plan.warn(KIND, deployment, "SelectingAll", message);
        let mut status = deployment.get("status").cloned().unwrap_or_default();
        status["observedGeneration"] = generation.into();
        plan.set_status(KIND, deployment, status);
    }
    plan
}

/// One look at a Deployment.
struct Work<'a> {
    world: &'a dyn World,
    deployment: &'a Value,
    fence: Fence,
    sets: Sets,
    plan: Plan,
}

impl Work<'_> {
    fn reconcile(&mut self) {
        if tree::is_deleting(self.deployment) {
            return self.report_counts();
        }
        if self.report_pause() {
            return;
        }
        if tree::flag(self.deployment, "/spec/paused") {
            return self.hold();
        }
        if let Ok(revision) = tree::annotation(self.deployment, ROLLBACK).parse::<i64>() {
            return self.roll_back(revision);
        }
        if self.sync_revision(false) {
            return;
        }
        if self.sets.were_scaled(self.fence.replicas) {
            return self.hold();
        }
        match tree::text(self.deployment, "/spec/strategy/type") {
            "Recreate" => self.recreate(),
            _ => self.roll(),
        }
    }

    /// Keeps what there is, in the right size: while paused, and after somebody changed the number of replicas.
    fn hold(&mut self) {
        if self.sync_revision(false) {
            return;
        }
        self.scale_in_proportion();
        if tree::flag(self.deployment, "/spec/paused")
            && tree::annotation(self.deployment, ROLLBACK).is_empty()
        {
            self.clean_up();
        }
        self.report_counts();
    }

    fn name(&self) -> &str {
        tree::name(self.deployment)
    }
}
