//! Persistent volumes.

mod sources;

use serde_json::{Value, json};

use super::{
    super::{
        annotation,
        members::{default_to, made},
        pod::{round_up, shape},
    },
    CLASS_ANNOTATION, access_modes, basic_quantity, deprecated_label, immutable, volume_mode,
};
use crate::{
    field_error::Cause,
    names,
    resource::Tree,
    validation::parts::{
        self, Path, dns_subdomain, entries, items, items_mut, object, object_mut, positive_quantity,
        set_default, text, texts,
    },
};

const SPEC: Path<'_> = Path::new("spec");
const MOUNT_OPTIONS: &str = "volume.beta.kubernetes.io/mount-options";
const RECLAIM_POLICIES: [&str; 3] = ["Delete", "Recycle", "Retain"];

pub fn prepare_create(tree: &mut Tree) {
    tree.insert("status".into(), json!({"phase": "Pending"}));
}

pub fn default(tree: &mut Tree) {
    set_default(made(tree, "status"), "phase", "Pending");
    let Some(spec) = object_mut(tree, "spec") else { return };
    set_default(spec, "persistentVolumeReclaimPolicy", "Retain");
    default_to(spec, "volumeMode", "Filesystem");
    default_sources(spec);
}

/// What the author of a volume's spec left open about what it is made of.
pub fn default_sources(spec: &mut Tree) {
    round_up(spec, "capacity");
    if let Some(path) = object_mut(spec, "hostPath") {
        default_to(path, "type", "");
    }
    if let Some(rbd) = object_mut(spec, "rbd") {
        set_default(rbd, "pool", "rbd");
        set_default(rbd, "user", "admin");
        set_default(rbd, "keyring", "/etc/ceph/keyring");
    }
    if let Some(iscsi) = object_mut(spec, "iscsi") {
        set_default(iscsi, "iscsiInterface", "default");
    }
    if let Some(disk) = object_mut(spec, "azureDisk") {
        default_to(disk, "cachingMode", "ReadWrite");
        default_to(disk, "fsType", "ext4");
        default_to(disk, "readOnly", false);
        default_to(disk, "kind", "Shared");
    }
    if let Some(scale_io) = object_mut(spec, "scaleIO") {
        set_default(scale_io, "storageMode", "ThinProvisioned");
        set_default(scale_io, "fsType", "xfs");
    }
}

/// When the phase last changed.
pub fn stamp(new: &mut Tree, old: Option<&Tree>, now: &str) {
    const TIME: &str = "lastPhaseTransitionTime";
    let Some(status) = object_mut(new, "status") else { return };
    let was = old.and_then(|old| object(old, "status"));
    let Some(was) = was.filter(|_| old.is_some()) else {
        default_to(status, TIME, now);
        return;
    };
    let given = status.get(TIME).filter(|time| !time.is_null());
    let same_phase = text(status, "phase") == text(was, "phase");
    match (same_phase, given) {
        (true, None) => {
            if let Some(time) = was.get(TIME) {
                status.insert(TIME.into(), time.clone());
            }
        }
        (false, given) if given.is_none() || given == was.get(TIME) => {
            status.insert(TIME.into(), json!(now));
        }
        _ => {}
    }
}

pub fn validate(new: &Tree, old: Option<&Tree>) -> Vec<Cause> {
    let empty = Tree::new();
    let spec = object(new, "spec").unwrap_or(&empty);
    let name = object(new, "metadata").map_or("", |metadata| text(metadata, "name"));
    let was = old.and_then(|old| object(old, "spec"));
    let any_value = was.is_some_and(has_odd_affinity);
    let mut once = volume_spec(spec, name, any_value, &SPEC);
    let mut causes = once.clone();
    causes.extend(mount_options(new, spec));
    if let Some(was) = was {
        // Upstream checks everything once more.
        causes.append(&mut once);
        causes.extend(changes(spec, was));
    }
    causes
}

fn has_odd_affinity(spec: &Tree) -> bool {
    let required = object(spec, "nodeAffinity").and_then(|affinity| object(affinity, "required"));
    let terms = required.into_iter().flat_map(|required| items(required, "nodeSelectorTerms"));
    let mut requirements = terms.flat_map(|(_, term)| items(term, "matchExpressions"));
    requirements.any(|(_, it)| texts(it, "values").any(|value| !names::is_label_value(value).is_empty()))
}

/// The spec of a volume that exists by itself.
fn volume_spec(spec: &Tree, name: &str, any_value: bool, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let (missing, modes) = access_modes(spec, path, "");
    causes.extend(missing);
    causes.extend(modes);
    causes.extend(capacity(spec, path));
    let policy = text(spec, "persistentVolumeReclaimPolicy");
    let policy_path = path.child("persistentVolumeReclaimPolicy");
    if !policy.is_empty() && !RECLAIM_POLICIES.contains(&policy) {
        causes.push(Cause::not_supported(&policy_path, &json!(policy), &RECLAIM_POLICIES));
    }
    if let Some(affinity) = object(spec, "nodeAffinity") {
        causes.extend(node_affinity(affinity, any_value, &path.child("nodeAffinity")));
    }
    causes.extend(sources::validate(spec, name, path));
    if recycles_root(spec) {
        causes.push(Cause::forbidden(&policy_path, "may not be 'recycle' for a hostPath mount of '/'"));
    }
    let class = text(spec, "storageClassName");
    if !class.is_empty() {
        causes.extend(dns_subdomain(class, &path.child("storageClassName")));
    }
    causes.extend(volume_mode(spec, path));
    causes.extend(attributes_class(spec, path));
    causes
}

/// The spec of a volume that is part of something else.
pub fn inline_spec(spec: &Tree, path: &Path<'_>) -> Vec<Cause> {
    const INLINE: &str = "may not be specified in the context of inline volumes";
    let is_set = |key: &str| spec.get(key).is_some_and(|value| !parts::is_empty(value));
    let mut causes = Vec::new();
    if object(spec, "claimRef").is_some() {
        causes.push(Cause::forbidden(&path.child("claimRef"), INLINE));
    }
    if is_set("capacity") {
        causes.push(Cause::forbidden(&path.child("capacity"), INLINE));
    }
    if object(spec, "csi").is_none() {
        let detail = "has to be specified in the context of inline volumes";
        causes.push(Cause::required(&path.child("csi"), detail));
    }
    let (missing, modes) = access_modes(spec, path, "");
    causes.extend(missing);
    causes.extend(modes);
    if !matches!(text(spec, "persistentVolumeReclaimPolicy"), "" | "Retain") {
        let detail = "may only be Retain in the context of inline volumes";
        causes.push(Cause::forbidden(&path.child("persistentVolumeReclaimPolicy"), detail));
    }
    if object(spec, "nodeAffinity").is_some() {
        causes.push(Cause::forbidden(&path.child("nodeAffinity"), INLINE));
    }
    causes.extend(sources::validate(spec, "", path));
    if recycles_root(spec) {
        let policy_path = path.child("persistentVolumeReclaimPolicy");
        causes.push(Cause::forbidden(&policy_path, "may not be 'recycle' for a hostPath mount of '/'"));
    }
    if is_set("storageClassName") {
        causes.push(Cause::forbidden(&path.child("storageClassName"), INLINE));
    }
    if spec.get("volumeMode").and_then(Value::as_str).is_some_and(|mode| mode != "Filesystem") {
        let detail = "may not specify volumeMode other than Filesystem in the context of inline volumes";
        causes.push(Cause::forbidden(&path.child("volumeMode"), detail));
    }
    causes
}

fn capacity(spec: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let path = path.child("capacity");
    let amounts = object(spec, "capacity").filter(|amounts| !amounts.is_empty());
    let mut causes = Vec::new();
    if amounts.is_none() {
        causes.push(Cause::required(&path, ""));
    }
    if !amounts.is_some_and(|it| it.contains_key("storage") && it.len() == 1) {
        let shown = amounts.map_or(Value::Null, |amounts| json!(amounts));
        causes.push(Cause::not_supported(&path, &shown, &["storage"]));
    }
    for (name, value) in entries(spec, "capacity") {
        causes.extend(basic_quantity(value, &path.key(name)));
        causes.extend(positive_quantity(value, &path.key(name)));
    }
    causes
}

fn node_affinity(affinity: &Tree, any_value: bool, path: &Path<'_>) -> Vec<Cause> {
    let path = path.child("required");
    match object(affinity, "required") {
        Some(required) => parts::node_selector(required, any_value, &path),
        None => vec![Cause::required(&path, "must specify required node constraints")],
    }
}

fn recycles_root(spec: &Tree) -> bool {
    let path = object(spec, "hostPath").map(|path| text(path, "path"));
    path.is_some_and(is_root) && text(spec, "persistentVolumeReclaimPolicy") == "Recycle"
}

/// Whether a path cleans up to the root.
fn is_root(path: &str) -> bool {
    let mut depth = 0usize;
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => depth = depth.saturating_sub(1),
            _ => depth += 1,
        }
    }
    path.starts_with('/') && depth == 0
}

fn attributes_class(spec: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let Some(class) = spec.get("volumeAttributesClassName").and_then(Value::as_str) else {
        return Vec::new();
    };
    let class_path = path.child("volumeAttributesClassName");
    let mut causes: Vec<Cause> = match class {
        "" => vec![Cause::required(&class_path, "an empty string is disallowed")],
        class => dns_subdomain(class, &class_path).collect(),
    };
    if object(spec, "csi").is_none() {
        let detail = "has to be specified when using volumeAttributesClassName";
        causes.push(Cause::required(&path.child("csi"), detail));
    }
    causes
}

/// Only file systems that are mounted in the old way take options by annotation.
fn mount_options(new: &Tree, spec: &Tree) -> Option<Cause> {
    const MOUNTED: [&str; 13] = [
        "gcePersistentDisk",
        "awsElasticBlockStore",
        "glusterfs",
        "nfs",
        "rbd",
        "quobyte",
        "iscsi",
        "cinder",
        "cephfs",
        "azureFile",
        "vsphereVolume",
        "azureDisk",
        "photonPersistentDisk",
    ];
    annotation(new, MOUNT_OPTIONS)?;
    let is_mounted = MOUNTED.iter().any(|key| object(spec, key).is_some());
    let path = format!("metadata.annotations.{MOUNT_OPTIONS}");
    (!is_mounted).then(|| Cause::forbidden(path, "may not specify mount options for this volume type"))
}

fn changes(now: &Tree, was: &Tree) -> Vec<Cause> {
    let mut causes = Vec::new();
    if sources::of(now, was) != sources::of(was, was) {
        let diff = shape::changes("PersistentVolumeSource", &sources::of(was, was), &sources::of(now, was));
        let detail = format!("spec.persistentvolumesource is immutable after creation\n{diff}");
        causes.push(Cause::forbidden(&SPEC.child("persistentvolumesource"), &detail));
    }
    causes.extend(immutable(now, was, "volumeMode", &Path::new("volumeMode")));
    if let Some(affinity) = object(was, "nodeAffinity") {
        let same = object(now, "nodeAffinity").is_some_and(|now| same_affinity(now, affinity));
        if !same {
            let detail = "field is immutable, except for updating from beta label to GA";
            let affinity = object(now, "nodeAffinity");
            let shown = affinity.map_or("null".to_owned(), |it| shape::shown("VolumeNodeAffinity", it));
            causes.push(Cause::invalid_text("nodeAffinity", &shown, detail));
        }
    }
    let class = |spec: &Tree| spec.get("volumeAttributesClassName").is_some_and(|class| !class.is_null());
    if class(was) && !class(now) {
        let detail = "update from non-nil value to nil is forbidden";
        causes.push(Cause::forbidden(&SPEC.child("volumeAttributesClassName"), detail));
    }
    causes
}

/// Whether requirements are the same, but for labels that have been renamed.
fn same_affinity(now: &Tree, was: &Tree) -> bool {
    let mut masked = was.clone();
    let renamed = |key: &str| match key {
        "beta.kubernetes.io/arch" => Some("kubernetes.io/arch"),
        "beta.kubernetes.io/os" => Some("kubernetes.io/os"),
        "failure-domain.beta.kubernetes.io/region" => Some("topology.kubernetes.io/region"),
        "failure-domain.beta.kubernetes.io/zone" => Some("topology.kubernetes.io/zone"),
        "beta.kubernetes.io/instance-type" => Some("node.kubernetes.io/instance-type"),
        _ => None,
    };
    let new_terms =
        object(now, "required").and_then(|it| it.get("nodeSelectorTerms")).cloned().unwrap_or_default();
    let Some(required) = object_mut(&mut masked, "required") else { return now == was };
    for (term_at, term) in items_mut(required, "nodeSelectorTerms").enumerate() {
        for (at, requirement) in items_mut(term, "matchExpressions").enumerate() {
            let place = format!("/{term_at}/matchExpressions/{at}/key");
            let new_key = new_terms.pointer(&place).and_then(Value::as_str);
            // Upstream has no key for a label that was not renamed, and takes that for its new name.
            let renamed = renamed(text(requirement, "key")).unwrap_or_default();
            if new_key.unwrap_or_default() == renamed {
                requirement.insert("key".into(), json!(renamed));
            }
        }
    }
    *now == masked
}

pub fn warn(new: &Tree, _: Option<&Tree>) -> Vec<String> {
    let mut warnings = Vec::new();
    for (key, message) in [
        (CLASS_ANNOTATION, "deprecated since v1.8; use \"storageClassName\" attribute instead"),
        (MOUNT_OPTIONS, "deprecated since v1.31; use \"mountOptions\" attribute instead"),
    ] {
        if annotation(new, key).is_some() {
            warnings.push(format!("metadata.annotations[{key}]: {message}"));
        }
    }
    let Some(spec) = object(new, "spec") else { return warnings };
    if text(spec, "persistentVolumeReclaimPolicy") == "Recycle" {
        warnings.push(
            "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning."
                .to_owned(),
        );
    }
    warnings.extend(affinity_warnings(spec));
    for (key, shown, since, gone) in [
        ("cephfs", "cephfs", "1.28", "1.31"),
        ("photonPersistentDisk", "photonPersistentDisk", "1.11", "1.16"),
        ("scaleIO", "scaleIO", "1.16", "1.22"),
        ("storageos", "storageOS", "1.22", "1.25"),
        ("glusterfs", "glusterfs", "1.25", "1.26"),
        ("rbd", "rbd", "1.28", "1.31"),
    ] {
        if object(spec, key).is_some() {
            warnings.push(format!("spec.{shown}: deprecated in v{since}, non-functional in v{gone}+"));
        }
    }
    warnings
}

fn affinity_warnings(spec: &Tree) -> Vec<String> {
    let required = object(spec, "nodeAffinity").and_then(|affinity| object(affinity, "required"));
    let mut warnings = Vec::new();
    for (term_at, term) in required.into_iter().flat_map(|required| items(required, "nodeSelectorTerms")) {
        for (at, requirement) in items(term, "matchExpressions") {
            let key = text(requirement, "key");
            if let Some(message) = deprecated_label(key) {
                let path = "spec.nodeAffinity.required.nodeSelectorTerms";
                warnings.push(format!("{path}[{term_at}].matchExpressions[{at}].key: {key} is {message}"));
            }
        }
    }
    warnings
}
