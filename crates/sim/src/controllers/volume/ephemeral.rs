//! Claims that come and go with one pod.

use serde_json::{Value, json};

use crate::{Action, Kind, Plan, World, controllers::Controller, kind, tree};

/// Makes the claims of pods' ephemeral volumes.
pub struct Ephemeral;

impl Controller for Ephemeral {
    fn kind(&self) -> Kind {
        kind::PODS
    }

    fn name(&self) -> &'static str {
        "ephemeral-volume-controller"
    }

    fn reconcile(&self, world: &dyn World, pod: &Value) -> Plan {
        let mut plan = Plan::nothing();
        if tree::is_deleting(pod) {
            return plan;
        }
        for volume in tree::items(pod, "/spec/volumes") {
            let Some(template) = volume.pointer("/ephemeral/volumeClaimTemplate") else { continue };
            let claim = claim(pod, tree::text(volume, "/name"), template);
            // One of that name that is not the pod's is not used: the pod waits.
            if world.get(kind::CLAIMS, tree::namespace(pod), tree::name(&claim)).is_none() {
                plan.then(Action::create(kind::CLAIMS, claim));
            }
        }
        plan
    }
}

fn claim(pod: &Value, volume: &str, template: &Value) -> Value {
    let mut metadata = json!({
        "name": format!("{}-{volume}", tree::name(pod)), "namespace": tree::namespace(pod),
        "ownerReferences": [tree::controller_reference(kind::PODS, pod)],
    });
    for member in ["labels", "annotations"] {
        if let Some(members) = template.pointer(&format!("/metadata/{member}")) {
            metadata[member] = members.clone();
        }
    }
    let spec = template.get("spec").cloned().unwrap_or_else(|| json!({}));
    json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec})
}
