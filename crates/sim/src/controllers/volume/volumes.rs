//! Volumes: free, bound, or left behind.

use serde_json::{Value, json};

use super::{BOUND_BY_CONTROLLER, PROVISIONED_BY, is_for};
use crate::{
    Action, Kind, Plan, World,
    controllers::{Changed, Controller, Name},
    kind, tree,
};

const KIND: Kind = kind::VOLUMES;

pub struct Volumes;

impl Controller for Volumes {
    fn kind(&self) -> Kind {
        KIND
    }

    fn name(&self) -> &'static str {
        "persistent-volume-binder"
    }

    fn listens_to(&self) -> &'static [Kind] {
        &[kind::CLAIMS]
    }

    fn wakes(&self, _world: &dyn World, changed: &Changed<'_>) -> Vec<Name> {
        match tree::text(changed.object(), "/spec/volumeName") {
            "" => Vec::new(),
            volume => vec![(String::new(), volume.to_owned())],
        }
    }

    fn reconcile(&self, world: &dyn World, volume: &Value) -> Plan {
        let mut plan = Plan::nothing();
        let Some(reference) = volume.pointer("/spec/claimRef") else {
            set_phase(&mut plan, volume, "Available");
            return plan;
        };
        if tree::text(reference, "/uid").is_empty() {
            set_phase(&mut plan, volume, "Available");
            return plan;
        }
        let claim =
            world.get(kind::CLAIMS, tree::text(reference, "/namespace"), tree::text(reference, "/name"));
        match claim.filter(|claim| is_for(volume, claim)) {
            Some(claim) if tree::text(&claim, "/spec/volumeName") == tree::name(volume) => {
                set_phase(&mut plan, volume, "Bound");
            }
            // The claim is about to learn of it.
            Some(_) => {}
            None => release(&mut plan, volume),
        }
        plan
    }
}

fn set_phase(plan: &mut Plan, volume: &Value, phase: &str) {
    let current = tree::text(volume, "/status/phase");
    if current == phase || tree::is_deleting(volume) {
        return;
    }
    let status = json!({ "phase": phase });
    plan.then(Action::PatchStatus {
        kind: KIND,
        namespace: String::new(),
        name: tree::name(volume).to_owned(),
        patch: json!({ "metadata": { "uid": tree::uid(volume) }, "status": status }),
    });
}

/// Its claim is gone.
fn release(plan: &mut Plan, volume: &Value) {
    set_phase(plan, volume, "Released");
    match tree::text(volume, "/spec/persistentVolumeReclaimPolicy") {
        "Delete" if !tree::is_deleting(volume) => {
            // Nobody but its provisioner can delete what it made; here that is nobody else than us.
            if tree::annotation(volume, PROVISIONED_BY).is_empty() {
                return;
            }
            plan.then(Action::delete(KIND, volume));
        }
        "Recycle" => {
            let annotations = json!({ BOUND_BY_CONTROLLER: null });
            let patch = json!({ "metadata": { "annotations": annotations }, "spec": { "claimRef": null } });
            plan.then(Action::patch(KIND, volume, patch));
            plan.note(KIND, volume, "VolumeRecycled", "Volume recycled");
        }
        _ => {}
    }
}
