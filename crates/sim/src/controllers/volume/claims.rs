//! Binding claims.

use machinery::{quantity::Quantity, selector::LabelSelector};
use serde_json::{Value, json};

use super::{BIND_COMPLETED, BOUND_BY_CONTROLLER, PROVISIONED_BY, SELECTED_NODE, class, is_for};
use crate::{
    Action, Kind, Plan, World,
    controllers::{Changed, Controller, Name, claim, placement},
    kind, tree,
};

const KIND: Kind = kind::CLAIMS;
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";
const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";

pub struct Claims;

impl Controller for Claims {
    fn kind(&self) -> Kind {
        KIND
    }

    fn name(&self) -> &'static str {
        "persistent-volume-binder"
    }

    fn listens_to(&self) -> &'static [Kind] {
        &[kind::VOLUMES, kind::STORAGE_CLASSES]
    }

    fn wakes(&self, world: &dyn World, changed: &Changed<'_>) -> Vec<Name> {
        if let Some(reference) = changed.object().pointer("/spec/claimRef") {
            let name = |at: &str| tree::text(reference, at).to_owned();
            return vec![(name("/namespace"), name("/name"))];
        }
        if changed.new.is_none() {
            return Vec::new();
        }
        let claims = world.list(KIND, None);
        let waits = |claim: &&Value| tree::text(claim, "/status/phase") != "Bound";
        claims.iter().filter(waits).map(claim::name_of).collect()
    }

    fn reconcile(&self, world: &dyn World, claim: &Value) -> Plan {
        let mut work = Work { world, claim, plan: Plan::nothing() };
        if tree::is_deleting(claim) {
            return work.plan;
        }
        if tree::annotation(claim, BIND_COMPLETED).is_empty() {
            work.sync_unbound();
        } else {
            work.sync_bound();
        }
        work.plan
    }
}

struct Work<'a> {
    world: &'a dyn World,
    claim: &'a Value,
    plan: Plan,
}

impl Work<'_> {
    fn sync_unbound(&mut self) {
        let name = tree::text(self.claim, "/spec/volumeName");
        if !name.is_empty() {
            return self.sync_named(name);
        }
        let storage_class = self.world.get(kind::STORAGE_CLASSES, "", class(self.claim));
        let waits = storage_class
            .as_ref()
            .is_some_and(|it| tree::text(it, "/volumeBindingMode") == "WaitForFirstConsumer");
        let node = match tree::annotation(self.claim, SELECTED_NODE) {
            "" => None,
            node => self.world.get(kind::NODES, "", node),
        };
        if let Some(volume) = self.best_match(waits, node.as_ref()) {
            return self.bind(&volume);
        }
        if self.take_default_class() {
            return;
        }
        if waits && node.is_none() {
            let message = "waiting for first consumer to be created before binding";
            return self.wait("WaitForFirstConsumer", false, message.to_owned());
        }
        match (storage_class, class(self.claim)) {
            (Some(class), _) if tree::text(&class, "/provisioner") == NO_PROVISIONER => {
                let message = "no volume plugin matched name: kubernetes.io/no-provisioner";
                self.wait("ProvisioningFailed", true, message.to_owned());
            }
            (Some(class), _) => self.provision(&class),
            (None, "") => {
                let message = "no persistent volumes available for this claim and no storage class is set";
                self.wait("FailedBinding", false, message.to_owned());
            }
            (None, name) => {
                let message = format!("storageclass.storage.k8s.io \"{name}\" not found");
                self.wait("ProvisioningFailed", true, message);
            }
        }
    }

    fn wait(&mut self, reason: &'static str, warning: bool, message: String) {
        let object = tree::reference(KIND, self.claim);
        self.plan.then(Action::Event { object, warning, reason, message });
        self.set_phase("Pending", None);
    }

    fn sync_named(&mut self, name: &str) {
        let Some(volume) = self.world.get(kind::VOLUMES, "", name) else {
            return self.set_phase("Pending", None);
        };
        if volume.pointer("/spec/claimRef").is_none() {
            if let Some(problem) = mismatch(self.claim, &volume) {
                let message = format!("Cannot bind to requested volume \"{name}\": {problem}");
                return self.wait("VolumeMismatch", true, message);
            }
            return self.bind(&volume);
        }
        if is_for(&volume, self.claim) {
            return self.bind(&volume);
        }
        self.wait("FailedBinding", true, format!("volume \"{name}\" already bound to a different claim."));
    }

    fn sync_bound(&mut self) {
        let name = tree::text(self.claim, "/spec/volumeName");
        let volume = if name.is_empty() { None } else { self.world.get(kind::VOLUMES, "", name) };
        match volume {
            Some(volume) if volume.pointer("/spec/claimRef").is_none() || is_for(&volume, self.claim) => {
                self.bind(&volume);
            }
            Some(_) => {
                let message = "Two claims are bound to the same volume, this one is bound incorrectly";
                self.lose("ClaimMisbound", message);
            }
            None if name.is_empty() => {
                let message =
                    "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!";
                self.lose("ClaimLost", message);
            }
            None => {
                self.lose(
                    "ClaimLost",
                    "Bound claim has lost its PersistentVolume. Data on the volume is lost!",
                );
            }
        }
    }

    fn lose(&mut self, reason: &'static str, message: &str) {
        if tree::text(self.claim, "/status/phase") != "Lost" {
            self.plan.warn(KIND, self.claim, reason, message);
            self.set_phase("Lost", None);
        }
    }

    fn set_phase(&mut self, phase: &str, volume: Option<&Value>) {
        let mut status = self.claim.get("status").cloned().unwrap_or_else(|| json!({}));
        status["phase"] = phase.into();
        for field in ["accessModes", "capacity"] {
            let value = volume.and_then(|volume| volume.pointer("/spec")).and_then(|spec| spec.get(field));
            status[field] = value.cloned().unwrap_or_default();
        }
        let before = self.claim.get("status").unwrap_or(&Value::Null);
        if tree::same(before, &status) {
            return;
        }
        self.plan.then(Action::PatchStatus {
            kind: KIND,
            namespace: tree::namespace(self.claim).to_owned(),
            name: tree::name(self.claim).to_owned(),
            patch: json!({ "metadata": { "uid": tree::uid(self.claim) }, "status": status }),
        });
    }

    /// A claim from before there was a default class gets it when there is one.
    fn take_default_class(&mut self) -> bool {
        let has_class = self.claim.pointer("/spec/storageClassName").is_some_and(Value::is_string)
            || !tree::annotation(self.claim, "volume.beta.kubernetes.io/storage-class").is_empty();
        if has_class {
            return false;
        }
        let mut classes = self.world.list(kind::STORAGE_CLASSES, None);
        classes.retain(|class| tree::annotation(class, DEFAULT_CLASS) == "true");
        // The youngest, if there are several.
        classes.sort_by_key(|class| std::cmp::Reverse(tree::time(class, "/metadata/creationTimestamp")));
        let Some(class) = classes.first() else { return false };
        let patch = json!({ "spec": { "storageClassName": tree::name(class) } });
        self.plan.then(Action::patch(KIND, self.claim, patch));
        true
    }

    /// The smallest volume that will do; one that names this claim before all others.
    fn best_match(&self, waits: bool, node: Option<&Value>) -> Option<Value> {
        let mut volumes = self.world.list(kind::VOLUMES, None);
        volumes.retain(|volume| !tree::is_deleting(volume) && mismatch_of_kind(self.claim, volume).is_none());
        if let Some(at) = volumes.iter().position(|volume| is_for(volume, self.claim)) {
            return Some(volumes.swap_remove(at));
        }
        if waits && node.is_none() {
            return None;
        }
        let selector = match self.claim.pointer("/spec/selector") {
            Some(selector) => LabelSelector::from_object(selector).ok()?,
            None => LabelSelector::everything(),
        };
        let reaches = |volume: &Value| match (node, volume.pointer("/spec/nodeAffinity/required")) {
            (Some(node), Some(required)) => placement::matches_any(required, node),
            _ => true,
        };
        volumes.retain(|volume| {
            volume.pointer("/spec/claimRef").is_none()
                && tree::text(volume, "/status/phase") == "Available"
                && selector.matches(&tree::labels(volume, "/metadata/labels"))
                && class(volume) == class(self.claim)
                && reaches(volume)
        });
        let modes = |volume: &Value| tree::items(volume, "/spec/accessModes").len();
        volumes.into_iter().min_by(|a, b| modes(a).cmp(&modes(b)).then_with(|| capacity(a).cmp(&capacity(b))))
    }

    /// Both know each other before either is called bound.
    fn bind(&mut self, volume: &Value) {
        let mut patch = json!({});
        let reference = volume.pointer("/spec/claimRef");
        if reference.is_none_or(|reference| tree::text(reference, "/uid").is_empty()) {
            patch["spec"]["claimRef"] = tree::reference(KIND, self.claim);
            if reference.is_none() {
                patch["metadata"]["annotations"][BOUND_BY_CONTROLLER] = "yes".into();
            }
            self.plan.then(Action::patch(kind::VOLUMES, volume, patch));
        }
        if tree::text(volume, "/status/phase") != "Bound" {
            self.plan.then(Action::PatchStatus {
                kind: kind::VOLUMES,
                namespace: String::new(),
                name: tree::name(volume).to_owned(),
                patch: json!({ "metadata": { "uid": tree::uid(volume) }, "status": { "phase": "Bound" } }),
            });
        }
        let mut annotations = json!({});
        let is_named = tree::text(self.claim, "/spec/volumeName") == tree::name(volume);
        if tree::annotation(self.claim, BIND_COMPLETED).is_empty() {
            annotations[BIND_COMPLETED] = "yes".into();
            if !is_named {
                annotations[BOUND_BY_CONTROLLER] = "yes".into();
            }
        }
        if !is_named || annotations != json!({}) {
            let patch = json!({
                "metadata": { "annotations": annotations }, "spec": { "volumeName": tree::name(volume) },
            });
            self.plan.then(Action::patch(KIND, self.claim, patch));
        }
        self.set_phase("Bound", Some(volume));
    }

    /// Whoever the class names, it has a volume at once.
    fn provision(&mut self, class: &Value) {
        let provisioner = tree::text(class, "/provisioner");
        let name = format!("pvc-{}", tree::uid(self.claim));
        if self.world.get(kind::VOLUMES, "", &name).is_some() {
            return;
        }
        let spec = |at: &str| self.claim.pointer(at).cloned();
        let capacity = spec("/spec/resources/requests/storage").unwrap_or_else(|| "0".into());
        let mut volume = json!({
            "apiVersion": "v1", "kind": "PersistentVolume",
            "metadata": { "name": name, "annotations": { PROVISIONED_BY: provisioner } },
            "spec": {
                "accessModes": spec("/spec/accessModes").unwrap_or_else(|| json!(["ReadWriteOnce"])),
                "capacity": { "storage": capacity },
                "claimRef": tree::reference(KIND, self.claim),
                "csi": { "driver": provisioner, "volumeHandle": name },
                "persistentVolumeReclaimPolicy": class.get("reclaimPolicy").cloned().unwrap_or_else(|| "Delete".into()),
                "storageClassName": tree::name(class),
                "volumeMode": spec("/spec/volumeMode").unwrap_or_else(|| "Filesystem".into()),
            },
        });
        if let Some(options) = class.get("mountOptions") {
            volume["spec"]["mountOptions"] = options.clone();
        }
        let external = "volume.kubernetes.io/storage-provisioner";
        if tree::annotation(self.claim, external) != provisioner {
            let beta = "volume.beta.kubernetes.io/storage-provisioner";
            let patch =
                json!({ "metadata": { "annotations": { external: provisioner, beta: provisioner } } });
            self.plan.then(Action::patch(KIND, self.claim, patch));
            let message = format!(
                "Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by \
                 the system administrator. If volume creation is delayed, please verify that the provisioner is \
                 running and correctly registered."
            );
            self.plan.note(KIND, self.claim, "ExternalProvisioning", message);
        }
        self.plan.then(Action::create(kind::VOLUMES, volume));
        let message = format!("Successfully provisioned volume {name}");
        self.plan.note(KIND, self.claim, "ProvisioningSucceeded", message);
    }
}

fn capacity(volume: &Value) -> Quantity {
    tree::text(volume, "/spec/capacity/storage").parse().unwrap_or(Quantity::ZERO)
}

/// Why a claim that names a volume cannot have it.
fn mismatch(claim: &Value, volume: &Value) -> Option<&'static str> {
    if let Some(problem) = mismatch_of_kind(claim, volume) {
        return Some(problem);
    }
    (class(claim) != class(volume)).then_some("storageClassName does not match")
}

/// Size, mode and access, whatever the class.
fn mismatch_of_kind(claim: &Value, volume: &Value) -> Option<&'static str> {
    let asked = tree::text(claim, "/spec/resources/requests/storage").parse().unwrap_or(Quantity::ZERO);
    if capacity(volume) < asked {
        return Some("requested PV is too small");
    }
    let mode = |object: &Value| match tree::text(object, "/spec/volumeMode") {
        "" => "Filesystem".to_owned(),
        mode => mode.to_owned(),
    };
    if mode(claim) != mode(volume) {
        return Some("incompatible volumeMode");
    }
    let offers = |mode: &Value| tree::items(volume, "/spec/accessModes").any(|offered| offered == mode);
    (!tree::items(claim, "/spec/accessModes").all(offers)).then_some("incompatible accessMode")
}
