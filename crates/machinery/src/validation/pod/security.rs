//! Security contexts of pods and containers, and the profiles they name.

mod windows;

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{
    super::parts::{Path, flag, items, list, number, object, text, texts},
    options::Options,
    shape,
    volumes::descending_path,
};
use crate::{field_error::Cause, names, resource::Tree};

pub use windows::{host_process, operating_system};

const PROFILE_TYPES: [&str; 3] = ["Localhost", "RuntimeDefault", "Unconfined"];
const MAX_PROFILE: usize = 4095;
const MAX_SYSCTL: usize = 253;
const SYSCTL: &str = "^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";

/// Ids of users and groups are 31 bits.
fn identity(context: &Tree, key: &str, path: &Path<'_>) -> Vec<Cause> {
    let Some(id) = number(context, key) else { return Vec::new() };
    identity_reasons(id).iter().map(|it| Cause::invalid(&path.child(key), &json!(id), it)).collect()
}

pub fn identity_reasons(id: i64) -> Vec<String> {
    names::is_in_range(id, 0, i64::from(i32::MAX))
}

fn supported(context: &Tree, key: &str, valid: &[&str], path: &Path<'_>) -> Option<Cause> {
    let value = context.get(key).and_then(Value::as_str).filter(|value| !valid.contains(value))?;
    Some(Cause::not_supported(&path.child(key), &json!(value), valid))
}

/// The security context of a pod.
pub fn of_pod(spec: &Tree, path: &Path<'_>, options: &Options) -> Vec<Cause> {
    let Some(context) = object(spec, "securityContext") else { return Vec::new() };
    let mut causes = Vec::new();
    for key in ["fsGroup", "runAsUser", "runAsGroup"] {
        causes.extend(identity(context, key, path));
    }
    let groups = path.child("supplementalGroups");
    for (at, group) in list(context, "supplementalGroups").iter().enumerate() {
        let reasons = identity_reasons(group.as_i64().unwrap_or(0));
        causes.extend(reasons.iter().map(|it| Cause::invalid(&groups.index(at), group, it)));
    }
    if flag(spec, "shareProcessNamespace") && flag(spec, "hostPID") {
        let detail = "ShareProcessNamespace and HostPID cannot both be enabled";
        causes.push(Cause::invalid(&path.child("shareProcessNamespace"), &json!(true), detail));
    }
    causes.extend(sysctls(spec, context, &path.child("sysctls"), options));
    causes.extend(supported(context, "fsGroupChangePolicy", &["Always", "OnRootMismatch"], path));
    causes.extend(seccomp(context, path));
    causes.extend(windows::options(context, path));
    causes.extend(app_armor(context, path));
    causes.extend(supported(context, "supplementalGroupsPolicy", &["Merge", "Strict"], path));
    // The other one belongs to a feature that is off.
    let policies: &[&str] =
        if options.any_se_linux_change_policy { &["MountOption", "Recursive"] } else { &["Recursive"] };
    causes.extend(supported(context, "seLinuxChangePolicy", policies, path));
    causes
}

/// The security context of a container.
pub fn of_container(context: &Tree, host_users: bool, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    for key in ["runAsUser", "runAsGroup"] {
        causes.extend(identity(context, key, path));
    }
    causes.extend(supported(context, "procMount", &["Default", "Unmasked"], path));
    if host_users && text(context, "procMount") == "Unmasked" {
        let detail = "`hostUsers` must be false to use `Unmasked`";
        causes.push(Cause::invalid(&path.child("procMount"), &json!("Unmasked"), detail));
    }
    causes.extend(seccomp(context, path));
    if context.get("allowPrivilegeEscalation") == Some(&Value::Bool(false)) {
        let refuse = |what: &str| {
            let detail = format!("cannot set `allowPrivilegeEscalation` to false and {what}");
            Cause::invalid_text(path, &shape::shown("SecurityContext", context), &detail)
        };
        if flag(context, "privileged") {
            causes.push(refuse("`privileged` to true"));
        }
        let added = object(context, "capabilities").into_iter().flat_map(|it| texts(it, "add"));
        let admin = added.filter(|capability| *capability == "CAP_SYS_ADMIN");
        causes.extend(admin.map(|_| refuse("`capabilities.Add` CAP_SYS_ADMIN")));
    }
    causes.extend(windows::options(context, path));
    causes.extend(app_armor(context, path));
    causes
}

fn seccomp(context: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let Some(profile) = object(context, "seccompProfile") else { return Vec::new() };
    let path = path.child("seccompProfile");
    let local_path = path.child("localhostProfile");
    let mut causes = Vec::new();
    let kind = text(profile, "type");
    match kind {
        "" => {
            let detail = "type is required when seccompProfile is set";
            causes.push(Cause::required(&path.child("type"), detail));
        }
        _ if !PROFILE_TYPES.contains(&kind) => {
            causes.push(Cause::not_supported(&path.child("type"), &json!(kind), &PROFILE_TYPES));
        }
        _ => {}
    }
    match (kind, profile.get("localhostProfile").and_then(Value::as_str)) {
        ("Localhost", None) => {
            causes.push(Cause::required(&local_path, "must be set when seccomp type is Localhost"));
        }
        ("Localhost", Some(local)) => causes.extend(descending_path(local, &local_path)),
        (_, None) => {}
        (_, Some(_)) => {
            let shown = shape::shown("SeccompProfile", profile);
            let detail = "can only be set when seccomp type is Localhost";
            causes.push(Cause::invalid_text(&local_path, &shown, detail));
        }
    }
    causes
}

/// Also for profiles that an annotation names.
pub fn app_armor(context: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let Some(profile) = object(context, "appArmorProfile") else { return Vec::new() };
    let path = path.child("appArmorProfile");
    let local_path = path.child("localhostProfile");
    let local = profile.get("localhostProfile").and_then(Value::as_str);
    let mut causes = Vec::new();
    match (text(profile, "type"), local) {
        ("Localhost", None) => {
            causes.push(Cause::required(&local_path, "must be set when AppArmor type is Localhost"));
        }
        ("Localhost", Some(local)) => {
            if local.trim() != local {
                let detail = "must not be padded with whitespace";
                causes.push(Cause::invalid(&local_path, &json!(local), detail));
            } else if local.is_empty() {
                causes.push(Cause::required(&local_path, "must be set when AppArmor type is Localhost"));
            }
            if local.len() > MAX_PROFILE {
                causes.push(Cause::too_long(&local_path, MAX_PROFILE));
            }
        }
        ("RuntimeDefault" | "Unconfined", local) => {
            let detail = "can only be set when AppArmor type is Localhost";
            causes.extend(local.map(|it| Cause::invalid(&local_path, &json!(it), detail)));
        }
        ("", _) => {
            let detail = "type is required when appArmorProfile is set";
            causes.push(Cause::required(&path.child("type"), detail));
        }
        (other, _) => {
            causes.push(Cause::not_supported(&path.child("type"), &json!(other), &PROFILE_TYPES));
        }
    }
    causes
}

fn sysctls(spec: &Tree, context: &Tree, path: &Path<'_>, options: &Options) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut taken = BTreeSet::new();
    for (at, sysctl) in items(context, "sysctls") {
        let sysctl_path = path.index(at);
        let (name, name_path) = (text(sysctl, "name"), sysctl_path.child("name"));
        if name.is_empty() {
            causes.push(Cause::required(&name_path, ""));
        } else if !is_sysctl(name) {
            let detail = format!("must have at most {MAX_SYSCTL} characters and match regex {SYSCTL}");
            causes.push(Cause::invalid(&name_path, &json!(name), &detail));
        } else if taken.contains(name) {
            causes.push(Cause::duplicate(&name_path, &json!(name)));
        }
        if !options.host_sysctls {
            causes.extend(host_sysctl(name, spec, &name_path));
        }
        taken.insert(name);
    }
    causes
}

/// Words joined by dots or slashes.
fn is_sysctl(name: &str) -> bool {
    let is_edge = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_word = |word: &str| {
        let bytes = word.as_bytes();
        bytes.first().is_some_and(is_edge)
            && bytes.last().is_some_and(is_edge)
            && bytes.iter().all(|byte| is_edge(byte) || matches!(byte, b'-' | b'_'))
    };
    name.len() <= MAX_SYSCTL && name.split(['.', '/']).all(is_word)
}

/// A setting of a namespace that the pod shares with its node is the node's.
fn host_sysctl(name: &str, spec: &Tree, path: &Path<'_>) -> Option<Cause> {
    // Which of the two separates is decided by the one that comes first.
    let dotted = match name.find(['.', '/']).map(|at| &name[at..=at]) {
        Some("/") => name
            .chars()
            .map(|c| {
                if c == '/' {
                    '.'
                } else if c == '.' {
                    '/'
                } else {
                    c
                }
            })
            .collect(),
        _ => name.to_owned(),
    };
    let is_of_ipc = matches!(dotted.as_str(), "kernel.sem")
        || ["kernel.shm", "kernel.msg", "fs.mqueue."].iter().any(|prefix| dotted.starts_with(prefix));
    let shared = match () {
        () if flag(spec, "hostNetwork") && dotted.starts_with("net.") => "hostNetwork",
        () if flag(spec, "hostIPC") && is_of_ipc => "hostIPC",
        () => return None,
    };
    let detail = format!("may not be specified when '{shared}' is true");
    Some(Cause::invalid(path, &json!(name), &detail))
}

/// Whether a stored spec sets what would be refused now.
pub fn has_host_sysctl(spec: &Tree) -> bool {
    let context = object(spec, "securityContext");
    let mut names =
        context.into_iter().flat_map(|it| items(it, "sysctls")).map(|(_, sysctl)| text(sysctl, "name"));
    names.any(|name| host_sysctl(name, spec, &Path::new("")).is_some())
}
