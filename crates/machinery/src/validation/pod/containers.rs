//! Containers of a pod: those that run, those before them and those to debug them.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{
    super::parts::{
        Path, dns_label, flag, invalid_each, is_empty, items, list, number, object, one_of, port_number, text,
    },
    amounts::is_sidecar,
    environment, mounts,
    options::Options,
    probes, resources, security,
    volumes::Volumes,
};
use crate::{field_error::Cause, names, resource::Tree};

pub const PULL_POLICIES: [&str; 3] = ["Always", "IfNotPresent", "Never"];
const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
const RESIZED: [&str; 2] = ["cpu", "memory"];
const RESIZE_POLICIES: [&str; 2] = ["NotRequired", "RestartContainer"];
const RESTART_POLICIES: [&str; 3] = ["Always", "Never", "OnFailure"];
const RESTART_ACTIONS: [&str; 2] = ["Restart", "RestartAllContainers"];
const MAX_RESTART_RULES: usize = 20;
const MAX_EXIT_CODES: usize = 255;
/// What a container for debugging may have.
const EPHEMERAL_FIELDS: [&str; 17] = [
    "name",
    "image",
    "command",
    "args",
    "workingDir",
    "envFrom",
    "env",
    "volumeMounts",
    "volumeDevices",
    "terminationMessagePath",
    "terminationMessagePolicy",
    "imagePullPolicy",
    "securityContext",
    "stdin",
    "stdinOnce",
    "tty",
    // Not of the container but beside it.
    "targetContainerName",
];

/// What containers are checked against.
pub struct Surroundings<'a> {
    pub spec: &'a Tree,
    /// Those volumes that are right, by name.
    pub volumes: Volumes<'a>,
    /// Names of the pod's claims of devices.
    pub claims: BTreeSet<&'a str>,
    pub options: &'a Options,
}

impl Surroundings<'_> {
    fn grace_period(&self) -> Option<i64> {
        number(self.spec, "terminationGracePeriodSeconds")
    }

    /// Whether the users of the containers are those of the node.
    fn host_users(&self) -> bool {
        self.spec.get("hostUsers") != Some(&Value::Bool(false))
    }
}

pub fn containers(around: &Surroundings<'_>, path: &Path<'_>) -> Vec<Cause> {
    if list(around.spec, "containers").is_empty() {
        return vec![Cause::required(path, "")];
    }
    let mut causes = Vec::new();
    let mut taken = BTreeSet::new();
    for (at, container) in items(around.spec, "containers") {
        let container_path = path.index(at);
        causes.extend(every_container(container, around, &container_path));
        let name = text(container, "name");
        if !taken.insert(name) {
            causes.push(Cause::duplicate(&container_path.child("name"), &json!(name)));
        }
        causes.extend(probes::probes(container, around.grace_period(), &container_path));
        causes.extend(restart_policy(container, false, &container_path));
    }
    causes.extend(host_ports(items(around.spec, "containers"), path));
    causes
}

pub fn init_containers(around: &Surroundings<'_>, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut taken: BTreeSet<&str> =
        items(around.spec, "containers").map(|(_, container)| text(container, "name")).collect();
    for (at, container) in items(around.spec, "initContainers") {
        let container_path = path.index(at);
        causes.extend(every_container(container, around, &container_path));
        causes.extend(restart_policy(container, true, &container_path));
        let name = text(container, "name");
        if taken.contains(name) {
            causes.push(Cause::duplicate(&container_path.child("name"), &json!(name)));
        } else if !name.is_empty() {
            taken.insert(name);
        }
        // They run one after the other, so their ports meet nobody's; upstream counts from the first.
        causes.extend(host_ports(std::iter::once((0, container)), path));
        if is_sidecar(container) {
            causes.extend(probes::probes(container, around.grace_period(), &container_path));
            continue;
        }
        for key in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
            if container.contains_key(key) {
                let detail = "may not be set for init containers without restartPolicy=Always";
                causes.push(Cause::forbidden(&container_path.child(key), detail));
            }
        }
        if !around.options.restart_for_resize_of_init_containers {
            causes.extend(restart_for_resize(container, &container_path));
        }
    }
    causes
}

fn restart_for_resize(container: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let policies = path.child("resizePolicy");
    let restarting =
        items(container, "resizePolicy").filter(|(_, it)| text(it, "restartPolicy") == "RestartContainer");
    let detail = "must not be set to 'RestartContainer' for non-sidecar initContainers";
    restarting
        .map(|(at, _)| {
            let policy = policies.index(at);
            Cause::invalid(&policy.child("restartPolicy"), &json!("RestartContainer"), detail)
        })
        .collect()
}

pub fn ephemeral_containers(around: &Surroundings<'_>, path: &Path<'_>) -> Vec<Cause> {
    const NOT_HERE: &str = "cannot be set for an Ephemeral Container";
    let mut causes = Vec::new();
    let others = || items(around.spec, "containers").chain(items(around.spec, "initContainers"));
    let others: BTreeSet<&str> = others().map(|(_, container)| text(container, "name")).collect();
    let mut taken = others.clone();
    for (at, container) in items(around.spec, "ephemeralContainers") {
        let container_path = path.index(at);
        causes.extend(every_container(container, around, &container_path));
        causes.extend(padded_image(container, &container_path));
        let name = text(container, "name");
        if !taken.insert(name) {
            causes.push(Cause::duplicate(&container_path.child("name"), &json!(name)));
        }
        let target = text(container, "targetContainerName");
        if !target.is_empty() && !others.contains(target) {
            causes.push(Cause::not_found(&container_path.child("targetContainerName"), &json!(target)));
        }
        let unwanted = container
            .iter()
            .filter(|(key, value)| !EPHEMERAL_FIELDS.contains(&key.as_str()) && !is_empty(value));
        causes.extend(unwanted.map(|(key, _)| Cause::forbidden(&container_path.child(key), NOT_HERE)));
        let mounts = container_path.child("volumeMounts");
        for (at, mount) in items(container, "volumeMounts") {
            let mount_path = mounts.index(at);
            let set = ["subPath", "subPathExpr"].into_iter().filter(|key| !text(mount, key).is_empty());
            causes.extend(set.map(|key| Cause::forbidden(&mount_path.child(key), NOT_HERE)));
        }
    }
    causes
}

/// A pod is about to run: its images must be exact.
pub fn padded_images(spec: &Tree, key: &str, path: &Path<'_>) -> Vec<Cause> {
    items(spec, key).filter_map(|(at, container)| padded_image(container, &path.index(at))).collect()
}

pub fn padded_image(container: &Tree, path: &Path<'_>) -> Option<Cause> {
    let image = text(container, "image");
    (image.trim().len() != image.len()).then(|| {
        let detail = "must not have leading or trailing whitespace";
        Cause::invalid(&path.child("image"), &json!(image), detail)
    })
}

/// The rules that all three kinds share.
fn every_container(container: &Tree, around: &Surroundings<'_>, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let (name, name_path) = (text(container, "name"), path.child("name"));
    match name {
        "" => causes.push(Cause::required(&name_path, "")),
        _ => causes.extend(dns_label(name, &name_path)),
    }
    if text(container, "image").is_empty() {
        causes.push(Cause::required(&path.child("image"), ""));
    }
    let policy = text(container, "terminationMessagePolicy");
    let policy_path = path.child("terminationMessagePolicy");
    causes.extend(one_of(policy, &policy_path, &["File", "FallbackToLogsOnError"]));
    causes.extend(ports(container, &path.child("ports")));
    causes.extend(environment::environment(container, path));
    causes.extend(mounts::mounts(container, &around.volumes, &path.child("volumeMounts")));
    causes.extend(mounts::devices(container, &around.volumes, &path.child("volumeDevices")));
    causes.extend(one_of(text(container, "imagePullPolicy"), &path.child("imagePullPolicy"), &PULL_POLICIES));
    if let Some(own) = object(container, "resources") {
        let resources_path = path.child("resources");
        causes.extend(resources::of_container(own, &around.claims, &resources_path, around.options));
    }
    causes.extend(resize_policies(
        container,
        text(around.spec, "restartPolicy"),
        &path.child("resizePolicy"),
    ));
    if let Some(context) = object(container, "securityContext") {
        causes.extend(security::of_container(context, around.host_users(), &path.child("securityContext")));
    }
    causes
}

fn ports(container: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut taken = BTreeSet::new();
    for (at, port) in items(container, "ports") {
        let port_path = path.index(at);
        let (name, name_path) = (text(port, "name"), port_path.child("name"));
        if !name.is_empty() {
            let reasons = names::is_port_name(name);
            if reasons.is_empty() && !taken.insert(name) {
                causes.push(Cause::duplicate(&name_path, &json!(name)));
            }
            causes.extend(invalid_each(&name_path, name, reasons));
        }
        let number_path = port_path.child("containerPort");
        match number(port, "containerPort").unwrap_or(0) {
            0 => causes.push(Cause::required(&number_path, "")),
            number => causes.extend(port_number(number, &number_path)),
        }
        if let Some(number) = number(port, "hostPort").filter(|number| *number != 0) {
            causes.extend(port_number(number, &port_path.child("hostPort")));
        }
        causes.extend(one_of(text(port, "protocol"), &port_path.child("protocol"), &PROTOCOLS));
    }
    causes
}

/// A port of the node is one container's.
fn host_ports<'a>(containers: impl Iterator<Item = (usize, &'a Tree)>, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut taken = BTreeSet::new();
    for (index, container) in containers {
        for (at, port) in items(container, "ports") {
            let Some(number) = number(port, "hostPort").filter(|number| *number != 0) else { continue };
            let key = format!("{}/{}/{number}", text(port, "protocol"), text(port, "hostIP"));
            if taken.contains(&key) {
                let field = format!("{path}[{index}].ports[{at}].hostPort");
                causes.push(Cause::duplicate(field, &json!(key)));
            } else {
                taken.insert(key);
            }
        }
    }
    causes
}

/// On the node's network a container's port is the node's.
pub fn host_network_ports(spec: &Tree, path: &Path<'_>, options: &Options) -> Vec<Cause> {
    let mut causes = Vec::new();
    if !flag(spec, "hostNetwork") {
        return causes;
    }
    for (index, container) in items(spec, "containers") {
        for (at, port) in items(container, "ports") {
            let host = number(port, "hostPort").unwrap_or(0);
            let own = number(port, "containerPort").unwrap_or(0);
            if (options.is_pod || host != 0) && host != own {
                let field = format!("{path}.containers[{index}].ports[{at}].hostPort");
                let detail = "must match `containerPort` when `hostNetwork` is true";
                causes.push(Cause::invalid(field, &json!(host), detail));
            }
        }
    }
    causes
}

/// Upstream names the list for all but what is there twice.
fn resize_policies(container: &Tree, pod_restart_policy: &str, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut taken = BTreeSet::new();
    for (at, policy) in items(container, "resizePolicy") {
        let (resource, restart) = (text(policy, "resourceName"), text(policy, "restartPolicy"));
        if !taken.insert(resource) {
            causes.push(Cause::duplicate(&path.index(at), &json!(resource)));
        }
        causes.extend(one_of(resource, path, &RESIZED));
        causes.extend(one_of(restart, path, &RESIZE_POLICIES));
        if pod_restart_policy == "Never" && restart != "NotRequired" {
            let detail = "must be 'NotRequired' when pod `restartPolicy` is 'Never'";
            causes.push(Cause::invalid(path, &json!(restart), detail));
        }
    }
    causes
}

/// When a container of its own is started again. Upstream says less about init containers.
fn restart_policy(container: &Tree, is_init: bool, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let rules = list(container, "restartPolicyRules");
    let policy_path = path.child("restartPolicy");
    match container.get("restartPolicy").and_then(Value::as_str) {
        None if rules.is_empty() => return causes,
        None => {
            let detail = "must specify restartPolicy when restart rules are used";
            causes.push(Cause::required(&policy_path, detail));
            if is_init {
                return causes;
            }
        }
        Some(policy) if !RESTART_POLICIES.contains(&policy) => {
            causes.push(Cause::not_supported(&policy_path, &json!(policy), &RESTART_POLICIES));
        }
        Some(_) => {}
    }
    let rules_path = path.child("restartPolicyRules");
    if rules.len() > MAX_RESTART_RULES {
        causes.push(Cause::too_many(&rules_path, rules.len(), MAX_RESTART_RULES));
    }
    for (at, rule) in items(container, "restartPolicyRules") {
        causes.extend(restart_rule(rule, &rules_path.index(at)));
    }
    causes
}

fn restart_rule(rule: &Tree, path: &Path<'_>) -> Vec<Cause> {
    const OPERATORS: [&str; 2] = ["In", "NotIn"];
    let mut causes = Vec::new();
    let action = text(rule, "action");
    if !RESTART_ACTIONS.contains(&action) {
        causes.push(Cause::not_supported(&path.child("action"), &json!(action), &RESTART_ACTIONS));
    }
    let codes_path = path.child("exitCodes");
    let Some(codes) = object(rule, "exitCodes") else {
        causes.push(Cause::required(&codes_path, "must be specified"));
        return causes;
    };
    let operator = text(codes, "operator");
    if !OPERATORS.contains(&operator) {
        causes.push(Cause::not_supported(&codes_path.child("operator"), &json!(operator), &OPERATORS));
    }
    let values = list(codes, "values");
    if values.len() > MAX_EXIT_CODES {
        causes.push(Cause::too_many(&codes_path.child("values"), values.len(), MAX_EXIT_CODES));
    }
    causes
}
