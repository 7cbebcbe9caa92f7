//! The claims of each pod, and who takes them along when it goes.

use serde_json::{Value, json};

use super::{KIND, Work, pods};
use crate::{
    Action, Kind, Pod, World,
    controllers::{Name, claim},
    kind, tree,
};

/// Of the pod with this number: the template's name, and the claim.
fn of(set: &Value, ordinal: i64) -> Vec<(String, Value)> {
    let templates = tree::items(set, "/spec/volumeClaimTemplates");
    let claim = |template: &Value| {
        let volume = tree::name(template).to_owned();
        let mut labels = template.pointer("/metadata/labels").cloned().unwrap_or_else(|| json!({}));
        for (key, value) in tree::members(set, "/spec/selector/matchLabels") {
            labels[key] = value.clone();
        }
        let mut metadata = json!({
            "name": format!("{volume}-{}-{ordinal}", tree::name(set)),
            "namespace": tree::namespace(set),
            "labels": labels,
        });
        if let Some(annotations) = template.pointer("/metadata/annotations") {
            metadata["annotations"] = annotations.clone();
        }
        let spec = template.get("spec").cloned().unwrap_or_else(|| json!({}));
        let claim = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec,
        });
        (volume, claim)
    };
    templates.map(claim).collect()
}

/// What the pod mounts: its claims, and what its template has besides.
pub fn volumes(set: &Value, pod: &Value, ordinal: i64) -> Vec<Value> {
    let claims = of(set, ordinal);
    let own = claims.iter().map(|(volume, claim)| {
        json!({ "name": volume, "persistentVolumeClaim": { "claimName": tree::name(claim) } })
    });
    let is_other = |volume: &&Value| claims.iter().all(|(name, _)| name != tree::text(volume, "/name"));
    own.chain(tree::items(pod, "/spec/volumes").filter(is_other).cloned()).collect()
}

/// A claim still belongs to an earlier pod of this name, and goes with it.
pub fn are_stale(world: &dyn World, set: &Value, ordinal: i64) -> bool {
    if policy(set, "whenScaled") == "Retain" {
        return false;
    }
    let pod = pods::name(set, ordinal);
    of(set, ordinal).iter().any(|(_, claim)| {
        let stored = world.get(kind::CLAIMS, tree::namespace(set), tree::name(claim));
        stored.is_some_and(|claim| owners(&claim).iter().any(|owner| is_reference(owner, kind::PODS, &pod)))
    })
}

/// Sets whose pods use a claim of this name.
pub fn users(world: &dyn World, gone: &Value) -> Vec<Name> {
    let name = tree::name(gone);
    let sets = world.list(KIND, Some(tree::namespace(gone)));
    let uses = |set: &&Value| {
        tree::items(set, "/spec/volumeClaimTemplates").any(|template| {
            let rest = name.strip_prefix(tree::name(template)).and_then(|rest| rest.strip_prefix('-'));
            rest.is_some_and(|pod| pods::ordinal_in(set, pod).is_some())
        })
    };
    sets.iter().filter(uses).map(claim::name_of).collect()
}

fn policy<'a>(set: &'a Value, when: &str) -> &'a str {
    let policy =
        set.pointer("/spec/persistentVolumeClaimRetentionPolicy").and_then(|policy| policy.get(when));
    policy.and_then(Value::as_str).unwrap_or("Retain")
}

fn owners(claim: &Value) -> Vec<Value> {
    tree::items(claim, "/metadata/ownerReferences").cloned().collect()
}

fn is_reference(owner: &Value, kind: Kind, name: &str) -> bool {
    tree::text(owner, "/apiVersion") == kind.api_version()
        && tree::text(owner, "/kind") == kind.kind
        && tree::text(owner, "/name") == name
}

impl Work<'_> {
    /// Says whether the pod can be made: none of its claims is on its way out.
    pub(super) fn make_claims(&mut self, ordinal: i64, pod: &str) -> bool {
        let mut usable = true;
        for (_, claim) in of(self.set, ordinal) {
            let name = tree::name(&claim).to_owned();
            if let Some(stored) = self.world.get(kind::CLAIMS, tree::namespace(self.set), &name) {
                usable &= !tree::is_deleting(&stored);
                continue;
            }
            self.plan.then(Action::create(kind::CLAIMS, claim));
            let set = tree::name(self.set);
            let message = format!("Create Claim {name} Pod {pod} in StatefulSet {set} success");
            self.plan.note(KIND, self.set, "SuccessfulCreate", message);
        }
        usable
    }

    /// A claim that goes with its set or its pod is owned by it.
    pub(super) fn set_claim_owners(&mut self, ordinal: i64, pod: &Pod) {
        for (_, claim) in of(self.set, ordinal) {
            let Some(stored) = self.world.get(kind::CLAIMS, tree::namespace(self.set), tree::name(&claim))
            else {
                continue;
            };
            let wanted = self.owners_of(&stored, ordinal, pod);
            if let Some(wanted) = wanted.filter(|wanted| *wanted != owners(&stored)) {
                self.plan.then(claim::with_owners(kind::CLAIMS, &stored, wanted));
            }
        }
    }

    /// `None`: as they are.
    fn owners_of(&self, stored: &Value, ordinal: i64, pod: &Pod) -> Option<Vec<Value>> {
        let set = self.set;
        let mut all = owners(stored);
        let refers = |owner: &Value| {
            is_reference(owner, KIND, tree::name(set)) || is_reference(owner, kind::PODS, &pod.name)
        };
        let is_own = |owner: &Value| [tree::uid(set), pod.uid.as_str()].contains(&tree::text(owner, "/uid"));
        if all.iter().any(|owner| refers(owner) && !is_own(owner)) {
            return None;
        }
        let (scaled, deleted) =
            (policy(set, "whenScaled") == "Delete", policy(set, "whenDeleted") == "Delete");
        let has_other_controller = all.iter().any(|owner| tree::flag(owner, "/controller") && !is_own(owner));
        all.retain(|owner| !refers(owner));
        if (scaled || deleted) && has_other_controller {
            return Some(all);
        }
        let is_beyond = !self.ordinals.contain(ordinal);
        if deleted && !(scaled && is_beyond) {
            all.push(tree::controller_reference(KIND, set));
        }
        if scaled && is_beyond {
            all.push(json!({
                "apiVersion": "v1", "kind": "Pod", "name": pod.name.as_str(), "uid": pod.uid.as_str(),
                "controller": true, "blockOwnerDeletion": true,
            }));
        }
        Some(all)
    }
}
