//! What the level `restricted` demands beyond `baseline`: what hardened pods do.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{
    baseline::{added, bad_seccomp, profile, seccomp_19},
    checks::{Pod, Violation, named, plural, quoted, security, security_flag, setters, violation},
};
use crate::{
    resource::Tree,
    validation::parts::{items, number, object, text, texts},
};

const ALLOWED_VOLUMES: [&str; 9] = [
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
];
const OTHER_VOLUMES: [&str; 21] = [
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "gitRepo",
    "nfs",
    "iscsi",
    "glusterfs",
    "rbd",
    "flexVolume",
    "cinder",
    "cephfs",
    "flocker",
    "fc",
    "azureFile",
    "vsphereVolume",
    "quobyte",
    "azureDisk",
    "photonPersistentDisk",
    "portworxVolume",
    "scaleIO",
    "storageos",
];

pub fn escalation(pod: &Pod<'_>) -> Option<Violation> {
    let containers = pod.bad(|container| security_flag(container, "allowPrivilegeEscalation") != Some(false));
    if containers.is_empty() {
        return None;
    }
    let who = named(&containers);
    violation(
        "allowPrivilegeEscalation != false",
        format!("{who} must set securityContext.allowPrivilegeEscalation=false"),
    )
}

pub fn escalation_25(pod: &Pod<'_>) -> Option<Violation> {
    if pod.is_windows() { None } else { escalation(pod) }
}

pub fn capabilities(pod: &Pod<'_>) -> Option<Violation> {
    let drops_all = |container: &Tree| {
        let capabilities = security(container).and_then(|it| object(it, "capabilities"));
        capabilities.is_some_and(|it| texts(it, "drop").any(|name| name == "ALL"))
    };
    let is_bad = |name: &&str| *name != "NET_BIND_SERVICE";
    let keeping = pod.bad(|container| !drops_all(container));
    let adding = pod.bad(|container| added(container).any(|name| is_bad(&name)));
    let mut details = Vec::new();
    if !keeping.is_empty() {
        details.push(format!("{} must set securityContext.capabilities.drop=[\"ALL\"]", named(&keeping)));
    }
    if !adding.is_empty() {
        let names: BTreeSet<&str> = pod.containers().flat_map(added).filter(is_bad).collect();
        let (who, names) = (named(&adding), quoted(names));
        details.push(format!("{who} must not include {names} in securityContext.capabilities.add"));
    }
    if details.is_empty() { None } else { violation("unrestricted capabilities", details.join("; ")) }
}

pub fn capabilities_25(pod: &Pod<'_>) -> Option<Violation> {
    if pod.is_windows() { None } else { capabilities(pod) }
}

pub fn volumes(pod: &Pod<'_>) -> Option<Violation> {
    let has = |volume: &Tree, kinds: &[&'static str]| {
        kinds.iter().copied().find(|kind| volume.get(*kind).is_some_and(Value::is_object))
    };
    let bad: Vec<&Tree> = items(pod.spec, "volumes")
        .map(|(_, volume)| volume)
        .filter(|volume| has(volume, &ALLOWED_VOLUMES).is_none())
        .collect();
    if bad.is_empty() {
        return None;
    }
    let kinds: BTreeSet<&str> =
        bad.iter().map(|volume| has(volume, &OTHER_VOLUMES).unwrap_or("unknown")).collect();
    let names = quoted(bad.iter().map(|volume| text(volume, "name")));
    let (volumes, uses) = (plural(bad.len(), "volume", "volumes"), plural(bad.len(), "uses", "use"));
    let what = plural(kinds.len(), "restricted volume type", "restricted volume types");
    violation("restricted volume types", format!("{volumes} {names} {uses} {what} {}", quoted(kinds)))
}

pub fn non_root(pod: &Pod<'_>) -> Option<Violation> {
    const REASON: &str = "runAsNonRoot != true";
    let said = |holder| security_flag(holder, "runAsNonRoot");
    let of_pod = said(pod.spec);
    let wrong = pod.bad(|container| said(container) == Some(false));
    if let Some(who) = setters(of_pod == Some(false), &wrong) {
        return violation(REASON, format!("{who} must not set securityContext.runAsNonRoot=false"));
    }
    let silent = pod.bad(|container| said(container).is_none() && of_pod != Some(true));
    if silent.is_empty() {
        return None;
    }
    violation(REASON, format!("pod or {} must set securityContext.runAsNonRoot=true", named(&silent)))
}

pub fn non_root_35(pod: &Pod<'_>) -> Option<Violation> {
    if pod.has_own_users() { None } else { non_root(pod) }
}

pub fn user(pod: &Pod<'_>) -> Option<Violation> {
    let is_root = |holder| security(holder).is_some_and(|it| number(it, "runAsUser") == Some(0));
    let who = setters(is_root(pod.spec), &pod.bad(|container| is_root(container)))?;
    violation("runAsUser=0", format!("{who} must not set runAsUser=0"))
}

pub fn user_35(pod: &Pod<'_>) -> Option<Violation> {
    if pod.has_own_users() { None } else { user(pod) }
}

pub fn seccomp(pod: &Pod<'_>) -> Option<Violation> {
    if let Some(violation) = seccomp_19(pod) {
        return Some(violation);
    }
    let says = |holder| profile(holder, "seccompProfile").is_some();
    let by_pod = says(pod.spec) && bad_seccomp(pod.spec).is_none();
    let silent = pod.bad(|container| !says(container) && !by_pod);
    if silent.is_empty() {
        return None;
    }
    let who = named(&silent);
    violation(
        "seccompProfile",
        format!(
            "pod or {who} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\""
        ),
    )
}

pub fn seccomp_25(pod: &Pod<'_>) -> Option<Violation> {
    if pod.is_windows() { None } else { seccomp(pod) }
}
