//! The checks as a table, and which of them a level in a version has.

use super::{Demand, Level, Version, baseline, restricted};
use crate::{
    resource::Tree,
    validation::parts::{items, object, text},
};

/// Why a pod is not what is demanded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub reason: &'static str,
    pub detail: String,
}

/// The pod that is judged: what it is, or what a template would make.
#[derive(Clone, Copy)]
pub struct Pod<'a> {
    pub metadata: &'a Tree,
    pub spec: &'a Tree,
    /// Looked for once: almost every check goes through them. Init containers first.
    containers: &'a [&'a Tree],
}

type CheckPod = fn(&Pod<'_>) -> Option<Violation>;

struct Check {
    id: &'static str,
    /// By the minor version since which it is so; oldest first.
    versions: &'static [(u64, CheckPod)],
    /// The check of the level below that it takes the place of.
    instead_of: &'static str,
}

const fn check(id: &'static str, versions: &'static [(u64, CheckPod)]) -> Check {
    Check { id, versions, instead_of: "" }
}

const fn stricter(id: &'static str, instead_of: &'static str, versions: &'static [(u64, CheckPod)]) -> Check {
    Check { id, versions, instead_of }
}

/// In the order in which violations are told: by their ids, bytewise.
const BASELINE: [Check; 12] = [
    check("appArmorProfile", &[(0, baseline::app_armor)]),
    check("capabilities_baseline", &[(0, baseline::capabilities)]),
    check("hostNamespaces", &[(0, baseline::host_namespaces)]),
    check("hostPathVolumes", &[(0, baseline::host_paths)]),
    check("hostPorts", &[(0, baseline::host_ports)]),
    check("hostProbesAndHostLifecycle", &[(34, baseline::hosts_asked)]),
    check("privileged", &[(0, baseline::privileged)]),
    check("procMount", &[(0, baseline::proc_mount), (35, baseline::proc_mount_35)]),
    check("seLinuxOptions", &[(0, baseline::selinux), (31, baseline::selinux_31)]),
    check("seccompProfile_baseline", &[(0, baseline::seccomp), (19, baseline::seccomp_19)]),
    check(
        "sysctls",
        &[
            (0, baseline::sysctls),
            (27, baseline::sysctls_27),
            (29, baseline::sysctls_29),
            (32, baseline::sysctls_32),
        ],
    ),
    check("windowsHostProcess", &[(0, baseline::windows_host_process)]),
];

const RESTRICTED: [Check; 7] = [
    check("allowPrivilegeEscalation", &[(8, restricted::escalation), (25, restricted::escalation_25)]),
    stricter(
        "capabilities_restricted",
        "capabilities_baseline",
        &[(22, restricted::capabilities), (25, restricted::capabilities_25)],
    ),
    stricter("procMount_restricted", "procMount", &[(35, baseline::proc_mount)]),
    stricter("restrictedVolumes", "hostPathVolumes", &[(0, restricted::volumes)]),
    check("runAsNonRoot", &[(0, restricted::non_root), (35, restricted::non_root_35)]),
    check("runAsUser", &[(23, restricted::user), (35, restricted::user_35)]),
    stricter(
        "seccompProfile_restricted",
        "seccompProfile_baseline",
        &[(19, restricted::seccomp), (25, restricted::seccomp_25)],
    ),
];

impl Check {
    fn at(&self, version: Version) -> Option<CheckPod> {
        let known = |since: u64| match version {
            Version::Latest => true,
            Version::Minor(minor) => since <= minor,
        };
        self.versions.iter().rev().find(|(since, _)| known(*since)).map(|(_, check)| *check)
    }
}

/// What is wrong where this is demanded with a pod, or with those of a template.
pub fn evaluate(demand: Demand, pod: &Tree) -> Vec<Violation> {
    if demand.level == Level::Privileged {
        return Vec::new();
    }
    let empty = Tree::new();
    let part = |key| object(pod, key).unwrap_or(&empty);
    let spec = part("spec");
    let kinds = ["initContainers", "containers", "ephemeralContainers"].into_iter();
    let containers: Vec<&Tree> = kinds.flat_map(|kind| items(spec, kind)).map(|(_, it)| it).collect();
    let pod = Pod { metadata: part("metadata"), spec, containers: &containers };
    let stricter: Vec<(&str, CheckPod)> = match demand.level {
        Level::Privileged | Level::Baseline => Vec::new(),
        Level::Restricted => {
            RESTRICTED.iter().filter_map(|it| Some((it.instead_of, it.at(demand.version)?))).collect()
        }
    };
    let kept = BASELINE.iter().filter(|it| stricter.iter().all(|(instead_of, _)| *instead_of != it.id));
    let kept = kept.filter_map(|it| it.at(demand.version));
    kept.chain(stricter.iter().map(|(_, check)| *check)).filter_map(|check| check(&pod)).collect()
}

impl<'a> Pod<'a> {
    /// Init containers first.
    pub fn containers(&self) -> impl Iterator<Item = &'a Tree> + use<'a> {
        self.containers.iter().copied()
    }

    /// The names of those for which `is_bad` holds.
    pub fn bad(&self, is_bad: impl FnMut(&&'a Tree) -> bool) -> Vec<&'a str> {
        self.containers().filter(is_bad).map(|container| text(container, "name")).collect()
    }

    pub fn annotations(&self) -> Option<&'a Tree> {
        object(self.metadata, "annotations")
    }

    pub fn is_windows(&self) -> bool {
        object(self.spec, "os").is_some_and(|os| text(os, "name") == "windows")
    }

    /// In a namespace of users of its own, root is nobody outside.
    pub fn has_own_users(&self) -> bool {
        self.spec.get("hostUsers").and_then(|it| it.as_bool()) == Some(false)
    }
}

/// `securityContext` of a pod's spec or of a container.
pub fn security(holder: &Tree) -> Option<&Tree> {
    object(holder, "securityContext")
}

pub fn security_flag(holder: &Tree, key: &str) -> Option<bool> {
    security(holder)?.get(key)?.as_bool()
}

/// `"a", "b"`
pub fn quoted<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> String {
    let quoted: Vec<String> = texts.into_iter().map(|text| format!("\"{}\"", text.as_ref())).collect();
    quoted.join(", ")
}

pub fn plural<'a>(count: usize, one: &'a str, many: &'a str) -> &'a str {
    if count == 1 { one } else { many }
}

/// `container "a"`, `containers "a", "b"`
pub fn named(containers: &[&str]) -> String {
    format!("{} {}", plural(containers.len(), "container", "containers"), quoted(containers))
}

/// `pod and containers "a", "b"`; `None` if nobody.
pub fn setters(pod: bool, containers: &[&str]) -> Option<String> {
    let of_pod = pod.then(|| "pod".to_owned());
    let of_containers = (!containers.is_empty()).then(|| named(containers));
    let all: Vec<String> = of_pod.into_iter().chain(of_containers).collect();
    (!all.is_empty()).then(|| all.join(" and "))
}

pub fn violation(reason: &'static str, detail: impl Into<String>) -> Option<Violation> {
    Some(Violation { reason, detail: detail.into() })
}
