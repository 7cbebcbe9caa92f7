//! What the level `baseline` demands: no known way from a pod to its host.

use std::collections::BTreeSet;

use serde_json::Value;

use super::checks::{Pod, Violation, named, plural, quoted, security, security_flag, setters, violation};
use crate::{
    gotext,
    resource::Tree,
    validation::parts::{flag, items, number, object, text, texts},
};

const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";
const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
const CAPABILITIES: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];
/// Settings of the kernel that a pod has for itself, each with the minor version since which it may be set.
const SYSCTLS: [(&str, u64); 12] = [
    ("kernel.shm_rmid_forced", 0),
    ("net.ipv4.ip_local_port_range", 0),
    ("net.ipv4.tcp_syncookies", 0),
    ("net.ipv4.ping_group_range", 0),
    ("net.ipv4.ip_unprivileged_port_start", 0),
    ("net.ipv4.ip_local_reserved_ports", 27),
    ("net.ipv4.tcp_keepalive_time", 29),
    ("net.ipv4.tcp_fin_timeout", 29),
    ("net.ipv4.tcp_keepalive_intvl", 29),
    ("net.ipv4.tcp_keepalive_probes", 29),
    ("net.ipv4.tcp_rmem", 32),
    ("net.ipv4.tcp_wmem", 32),
];

/// The type of a profile that a pod or a container sets.
pub fn profile<'a>(holder: &'a Tree, key: &str) -> Option<&'a str> {
    Some(text(object(security(holder)?, key)?, "type"))
}

pub fn app_armor(pod: &Pod<'_>) -> Option<Violation> {
    let bad = |holder| {
        profile(holder, "appArmorProfile").filter(|it| !matches!(*it, "RuntimeDefault" | "Localhost"))
    };
    let mut values: BTreeSet<&str> = BTreeSet::new();
    values.extend(bad(pod.spec));
    values.extend(pod.containers().filter_map(bad));
    let containers = pod.bad(|container| bad(container).is_some());
    let mut annotations: Vec<String> = pod
        .annotations()
        .into_iter()
        .flatten()
        .filter(|(key, _)| key.starts_with(APP_ARMOR))
        .map(|(key, value)| (key, value.as_str().unwrap_or_default()))
        .filter(|(_, it)| !(it.is_empty() || *it == "runtime/default" || it.starts_with("localhost/")))
        .map(|(key, value)| format!("{key}={}", gotext::quote(value)))
        .collect();
    annotations.sort();
    let mut who: Vec<String> = setters(bad(pod.spec).is_some(), &containers).into_iter().collect();
    if !annotations.is_empty() {
        who.push(plural(annotations.len(), "annotation", "annotations").to_owned());
    }
    if who.is_empty() {
        return None;
    }
    let shown: Vec<&str> = values.into_iter().chain(annotations.iter().map(String::as_str)).collect();
    let reason = plural(shown.len(), "forbidden AppArmor profile", "forbidden AppArmor profiles");
    violation(
        reason,
        format!("{} must not set AppArmor profile type to {}", who.join(" and "), quoted(shown)),
    )
}

/// Those that a container adds.
pub fn added(container: &Tree) -> impl Iterator<Item = &str> {
    let capabilities = security(container).and_then(|it| object(it, "capabilities"));
    capabilities.into_iter().flat_map(|it| texts(it, "add"))
}

pub fn capabilities(pod: &Pod<'_>) -> Option<Violation> {
    let bad = |name: &&str| !CAPABILITIES.contains(name);
    let containers = pod.bad(|container| added(container).any(|name| bad(&name)));
    let names: BTreeSet<&str> = pod.containers().flat_map(added).filter(bad).collect();
    if containers.is_empty() {
        return None;
    }
    let (who, names) = (named(&containers), quoted(names));
    violation(
        "non-default capabilities",
        format!("{who} must not include {names} in securityContext.capabilities.add"),
    )
}

pub fn host_namespaces(pod: &Pod<'_>) -> Option<Violation> {
    let shared: Vec<String> = ["hostNetwork", "hostPID", "hostIPC"]
        .into_iter()
        .filter(|key| flag(pod.spec, key))
        .map(|key| format!("{key}=true"))
        .collect();
    if shared.is_empty() { None } else { violation("host namespaces", shared.join(", ")) }
}

pub fn host_paths(pod: &Pod<'_>) -> Option<Violation> {
    let volumes = items(pod.spec, "volumes").filter(|(_, volume)| object(volume, "hostPath").is_some());
    let names: Vec<&str> = volumes.map(|(_, volume)| text(volume, "name")).collect();
    if names.is_empty() {
        return None;
    }
    violation("hostPath volumes", format!("{} {}", plural(names.len(), "volume", "volumes"), quoted(names)))
}

pub fn host_ports(pod: &Pod<'_>) -> Option<Violation> {
    let ports = |container| {
        items(container, "ports").filter_map(|(_, port)| number(port, "hostPort").filter(|it| *it != 0))
    };
    let containers = pod.bad(|container| ports(container).next().is_some());
    if containers.is_empty() {
        return None;
    }
    // As texts: upstream orders them so.
    let used: BTreeSet<String> = pod.containers().flat_map(ports).map(|port| port.to_string()).collect();
    let uses = plural(containers.len(), "uses", "use");
    let what = plural(used.len(), "hostPort", "hostPorts");
    let used: Vec<String> = used.into_iter().collect();
    violation("hostPort", format!("{} {uses} {what} {}", named(&containers), used.join(", ")))
}

/// Probes and hooks that ask another host than the pod.
pub fn hosts_asked(pod: &Pod<'_>) -> Option<Violation> {
    let of_handler = |handler: &Tree| -> Vec<String> {
        let hosts = ["httpGet", "tcpSocket"].into_iter().filter_map(|key| object(handler, key));
        hosts.map(|it| text(it, "host").to_owned()).filter(|host| !host.is_empty()).collect()
    };
    let of_container = |container: &Tree| -> Vec<String> {
        let probes = ["livenessProbe", "readinessProbe", "startupProbe"].map(|key| object(container, key));
        let lifecycle = object(container, "lifecycle");
        let hooks = ["postStart", "preStop"].map(|key| object(lifecycle?, key));
        probes.into_iter().chain(hooks).flatten().flat_map(of_handler).collect()
    };
    let containers: BTreeSet<&str> =
        pod.bad(|container| !of_container(container).is_empty()).into_iter().collect();
    let containers: Vec<&str> = containers.into_iter().collect();
    if containers.is_empty() {
        return None;
    }
    let hosts: BTreeSet<String> = pod.containers().flat_map(of_container).collect();
    let uses = plural(containers.len(), "uses", "use");
    let what = plural(hosts.len(), "probe or lifecycle host", "probe or lifecycle hosts");
    violation("probe or lifecycle host", format!("{} {uses} {what} {}", named(&containers), quoted(hosts)))
}

pub fn privileged(pod: &Pod<'_>) -> Option<Violation> {
    let containers = pod.bad(|container| security_flag(container, "privileged") == Some(true));
    if containers.is_empty() {
        return None;
    }
    violation("privileged", format!("{} must not set securityContext.privileged=true", named(&containers)))
}

pub fn proc_mount(pod: &Pod<'_>) -> Option<Violation> {
    let bad = |container| {
        let mount = security(container)?.get("procMount")?.as_str()?;
        (mount != "Default").then_some(mount)
    };
    let containers = pod.bad(|container| bad(container).is_some());
    if containers.is_empty() {
        return None;
    }
    let mounts: BTreeSet<&str> = pod.containers().filter_map(bad).collect();
    violation(
        "procMount",
        format!("{} must not set securityContext.procMount to {}", named(&containers), quoted(mounts)),
    )
}

pub fn proc_mount_35(pod: &Pod<'_>) -> Option<Violation> {
    if pod.has_own_users() { None } else { proc_mount(pod) }
}

pub fn selinux(pod: &Pod<'_>) -> Option<Violation> {
    selinux_of(pod, &["", "container_t", "container_init_t", "container_kvm_t"])
}

pub fn selinux_31(pod: &Pod<'_>) -> Option<Violation> {
    selinux_of(pod, &["", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"])
}

fn selinux_of(pod: &Pod<'_>, allowed: &[&str]) -> Option<Violation> {
    let options = |holder| object(security(holder)?, "seLinuxOptions");
    let is_bad = |holder| {
        options(holder).is_some_and(|it| {
            !allowed.contains(&text(it, "type"))
                || !text(it, "user").is_empty()
                || !text(it, "role").is_empty()
        })
    };
    let who = setters(is_bad(pod.spec), &pod.bad(|container| is_bad(container)))?;
    let all: Vec<&Tree> = [pod.spec].into_iter().chain(pod.containers()).filter_map(options).collect();
    let types: BTreeSet<&str> =
        all.iter().map(|it| text(it, "type")).filter(|it| !allowed.contains(it)).collect();
    let mut wrong = Vec::new();
    if !types.is_empty() {
        wrong.push(format!("{} {}", plural(types.len(), "type", "types"), quoted(types)));
    }
    for key in ["user", "role"] {
        if all.iter().any(|it| !text(it, key).is_empty()) {
            wrong.push(format!("{key} may not be set"));
        }
    }
    let wrong = wrong.join("; ");
    violation("seLinuxOptions", format!("{who} set forbidden securityContext.seLinuxOptions: {wrong}"))
}

/// As annotations, which is how profiles were said before they had fields.
pub fn seccomp(pod: &Pod<'_>) -> Option<Violation> {
    let keys = pod.containers().map(|container| format!("{SECCOMP_CONTAINER}{}", text(container, "name")));
    let keys = [SECCOMP_POD.to_owned()].into_iter().chain(keys);
    let annotations = pod.annotations()?;
    let is_good = |value: &str| {
        matches!(value, "runtime/default" | "docker/default") || value.starts_with("localhost/")
    };
    let bad: BTreeSet<String> = keys
        .filter_map(|key| {
            let value = annotations.get(&key).and_then(Value::as_str)?;
            (!is_good(value)).then(|| format!("{key}={}", gotext::quote(value)))
        })
        .collect();
    if bad.is_empty() {
        return None;
    }
    let what = plural(bad.len(), "annotation", "annotations");
    let bad: Vec<String> = bad.into_iter().collect();
    violation("seccompProfile", format!("forbidden {what} {}", bad.join(", ")))
}

/// The type of a seccomp profile that confines too little.
pub fn bad_seccomp(holder: &Tree) -> Option<&str> {
    profile(holder, "seccompProfile").filter(|it| !matches!(*it, "RuntimeDefault" | "Localhost"))
}

pub fn seccomp_19(pod: &Pod<'_>) -> Option<Violation> {
    let who =
        setters(bad_seccomp(pod.spec).is_some(), &pod.bad(|container| bad_seccomp(container).is_some()))?;
    let values: BTreeSet<&str> =
        [pod.spec].into_iter().chain(pod.containers()).filter_map(bad_seccomp).collect();
    let values = quoted(values);
    violation("seccompProfile", format!("{who} must not set securityContext.seccompProfile.type to {values}"))
}

fn sysctls_at(pod: &Pod<'_>, minor: u64) -> Option<Violation> {
    let is_allowed = |name: &str| SYSCTLS.iter().any(|(known, since)| *known == name && *since <= minor);
    let set = security(pod.spec).into_iter().flat_map(|it| items(it, "sysctls"));
    let bad: Vec<&str> = set.map(|(_, it)| text(it, "name")).filter(|name| !is_allowed(name)).collect();
    if bad.is_empty() { None } else { violation("forbidden sysctls", bad.join(", ")) }
}

pub fn sysctls(pod: &Pod<'_>) -> Option<Violation> {
    sysctls_at(pod, 0)
}

pub fn sysctls_27(pod: &Pod<'_>) -> Option<Violation> {
    sysctls_at(pod, 27)
}

pub fn sysctls_29(pod: &Pod<'_>) -> Option<Violation> {
    sysctls_at(pod, 29)
}

pub fn sysctls_32(pod: &Pod<'_>) -> Option<Violation> {
    sysctls_at(pod, 32)
}

pub fn windows_host_process(pod: &Pod<'_>) -> Option<Violation> {
    let bad = |holder| {
        let options = security(holder).and_then(|it| object(it, "windowsOptions"));
        options.is_some_and(|options| flag(options, "hostProcess"))
    };
    let who = setters(bad(pod.spec), &pod.bad(|container| bad(container)))?;
    violation("hostProcess", format!("{who} must not set securityContext.windowsOptions.hostProcess=true"))
}
