//! The spec of a pod, in a template or not.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{
    super::parts::{
        Path, dns_label, dns_subdomain, flag, invalid_each, items, legacy_ip, list, number, object, one_of,
        qualified_name, text, texts, tolerations,
    },
    affinity, annotations,
    containers::{self, Surroundings},
    each_container, environment,
    options::Options,
    resources, security, volumes,
};
use crate::{field_error::Cause, metadata, names, resource::Tree};

const MAX_HOSTNAME: usize = 64;
const MAX_NAMESERVERS: usize = 3;
const MAX_SEARCHES: usize = 32;
const MAX_SEARCH_BYTES: usize = 2048;

/// `metadata` is the pod's; templates have none that counts here.
pub fn spec(spec: &Tree, metadata: Option<&Tree>, path: &Path<'_>, options: &Options) -> Vec<Cause> {
    let mut causes = Vec::new();
    if !spec.contains_key("terminationGracePeriodSeconds") {
        causes.push(Cause::required(&path.child("terminationGracePeriodSeconds"), ""));
    }
    causes.extend(volumes_and_containers(spec, metadata, path, options));
    causes.extend(containers::host_network_ports(spec, path, options));
    let policies = ["Always", "OnFailure", "Never"];
    causes.extend(one_of(text(spec, "restartPolicy"), &path.child("restartPolicy"), &policies));
    let policies = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    causes.extend(one_of(text(spec, "dnsPolicy"), &path.child("dnsPolicy"), &policies));
    causes.extend(metadata::labels(spec.get("nodeSelector"), &path.child("nodeSelector").to_string()));
    causes.extend(security::of_pod(spec, &path.child("securityContext"), options));
    causes.extend(affinity::affinity(spec, &path.child("affinity"), options));
    causes.extend(dns_config(spec, &path.child("dnsConfig")));
    causes.extend(gates(spec, path));
    causes.extend(affinity::spread_constraints(spec, &path.child("topologySpreadConstraints"), options));
    causes.extend(security::host_process(spec, path));
    causes.extend(user_namespace(spec, path, options));
    causes.extend(hostname_override(spec, path));
    causes.extend(names_and_numbers(spec, path));
    causes.extend(tolerations(spec, "tolerations", path));
    causes.extend(host_aliases(spec, &path.child("hostAliases")));
    causes.extend(classes(spec, path));
    causes.extend(resources::overhead(spec, &path.child("overhead"), options));
    causes.extend(security::operating_system(spec, path));
    causes.extend(environment::file_volumes(spec, path));
    causes
}

fn volumes_and_containers(
    spec: &Tree,
    metadata: Option<&Tree>,
    path: &Path<'_>,
    options: &Options,
) -> Vec<Cause> {
    let pod_name = metadata.map_or("", |metadata| text(metadata, "name"));
    let (volumes, mut causes) = volumes::volumes(spec, pod_name, &path.child("volumes"), options);
    let is_mirror = annotations::is_mirror(metadata);
    causes.extend(resources::claims(spec, is_mirror, &path.child("resourceClaims")));
    let claims = items(spec, "resourceClaims").map(|(_, claim)| text(claim, "name"));
    let claims = claims.filter(|name| !name.is_empty()).collect();
    let around = Surroundings { spec, volumes, claims, options };
    causes.extend(containers::containers(&around, &path.child("containers")));
    causes.extend(containers::init_containers(&around, &path.child("initContainers")));
    causes.extend(containers::ephemeral_containers(&around, &path.child("ephemeralContainers")));
    causes.extend(resources::of_pod(spec, &around.claims, &path.child("resources"), options));
    causes
}

fn dns_config(spec: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let config = object(spec, "dnsConfig");
    if text(spec, "dnsPolicy") == "None" {
        let Some(config) = config else {
            return vec![Cause::required(path, "must provide `dnsConfig` when `dnsPolicy` is None")];
        };
        if list(config, "nameservers").is_empty() {
            let detail = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            return vec![Cause::required(&path.child("nameservers"), detail)];
        }
    }
    let Some(config) = config else { return Vec::new() };
    let mut causes = Vec::new();
    let servers = path.child("nameservers");
    if list(config, "nameservers").len() > MAX_NAMESERVERS {
        let detail = format!("must not have more than {MAX_NAMESERVERS} nameservers");
        causes.push(Cause::invalid(&servers, &json!(list(config, "nameservers")), &detail));
    }
    for (at, server) in texts(config, "nameservers").enumerate() {
        causes.extend(legacy_ip(server, &servers.index(at), &[]));
    }
    causes.extend(dns_searches(config, &path.child("searches")));
    let options = path.child("options");
    for (at, option) in items(config, "options") {
        if text(option, "name").is_empty() {
            causes.push(Cause::required(&options.index(at), "must not be empty"));
        }
    }
    causes
}

fn dns_searches(config: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let searches = list(config, "searches");
    if searches.len() > MAX_SEARCHES {
        let detail = format!("must not have more than {MAX_SEARCHES} search paths");
        causes.push(Cause::invalid(path, &json!(searches), &detail));
    }
    let bytes = texts(config, "searches").map(|search| search.len() + 1).sum::<usize>();
    if bytes > MAX_SEARCH_BYTES + 1 {
        let detail = format!(
            "must not have more than {MAX_SEARCH_BYTES} characters (including spaces) in the search list"
        );
        causes.push(Cause::invalid(path, &json!(searches), &detail));
    }
    for (at, search) in texts(config, "searches").enumerate().filter(|(_, search)| *search != ".") {
        let search = search.strip_suffix('.').unwrap_or(search);
        let reasons = names::is_dns1123_subdomain_with_underscore(search);
        causes.extend(invalid_each(&path.index(at), search, reasons));
    }
    causes
}

/// What must come before a pod is ready, and before it is scheduled.
fn gates(spec: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let readiness = path.child("readinessGates");
    for (at, gate) in items(spec, "readinessGates") {
        let gate_path = readiness.index(at);
        causes.extend(qualified_name(text(gate, "conditionType"), &gate_path.child("conditionType")));
    }
    let scheduling = path.child("schedulingGates");
    let mut taken = BTreeSet::new();
    for (at, gate) in items(spec, "schedulingGates") {
        let name = text(gate, "name");
        causes.extend(qualified_name(name, &scheduling.index(at)));
        if !taken.insert(name) {
            causes.push(Cause::duplicate(&scheduling.index(at), &json!(name)));
        }
    }
    causes
}

/// A pod with users of its own shares nothing that belongs to the node's users.
fn user_namespace(spec: &Tree, path: &Path<'_>, options: &Options) -> Vec<Cause> {
    const DETAIL: &str = "when `hostUsers` is false";
    let mut causes = Vec::new();
    if spec.get("hostUsers") != Some(&Value::Bool(false)) {
        return causes;
    }
    // The last two by the names of upstream's server.
    for (key, shown) in [("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")] {
        let kept = key == "hostNetwork" && options.host_network_with_user_namespace;
        if flag(spec, key) && !kept {
            causes.push(Cause::forbidden(&path.child(shown), DETAIL));
        }
    }
    if !options.devices_with_user_namespace {
        let with_devices =
            each_container(spec).filter(|(container, ..)| !list(container, "volumeDevices").is_empty());
        causes.extend(
            with_devices
                .map(|(_, kind, at)| Cause::forbidden(format!("{path}.{kind}[{at}].volumeDevices"), DETAIL)),
        );
    }
    causes
}

fn hostname_override(spec: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let Some(name) = spec.get("hostnameOverride").and_then(Value::as_str) else { return Vec::new() };
    let path = path.child("hostnameOverride");
    let mut causes = Vec::new();
    for key in ["setHostnameAsFQDN", "hostNetwork"] {
        if flag(spec, key) {
            causes.push(Cause::forbidden(&path, &format!("may not be specified when {key} is true")));
        }
    }
    if name.len() > MAX_HOSTNAME {
        causes.push(Cause::too_long(&path, MAX_HOSTNAME));
    }
    causes.extend(dns_subdomain(name, &path));
    causes
}

fn names_and_numbers(spec: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    for key in ["serviceAccountName", "nodeName"] {
        causes.extend(object_name(spec, key, path));
    }
    if let Some(seconds) = number(spec, "activeDeadlineSeconds") {
        let reasons = names::is_in_range(seconds, 1, i64::from(i32::MAX));
        let seconds_path = path.child("activeDeadlineSeconds");
        causes.extend(reasons.iter().map(|it| Cause::invalid(&seconds_path, &json!(seconds), it)));
    }
    for key in ["hostname", "subdomain"] {
        let label = text(spec, key);
        if !label.is_empty() {
            causes.extend(dns_label(label, &path.child(key)));
        }
    }
    causes
}

fn object_name(spec: &Tree, key: &str, path: &Path<'_>) -> Vec<Cause> {
    match text(spec, key) {
        "" => Vec::new(),
        name => invalid_each(&path.child(key), name, names::subdomain_name(name, false)).collect(),
    }
}

fn host_aliases(spec: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    for (at, alias) in items(spec, "hostAliases") {
        let alias_path = path.index(at);
        causes.extend(legacy_ip(text(alias, "ip"), &alias_path.child("ip"), &[]));
        let hostnames = alias_path.child("hostnames");
        for (at, hostname) in texts(alias, "hostnames").enumerate() {
            causes.extend(dns_subdomain(hostname, &hostnames.index(at)));
        }
    }
    causes
}

fn classes(spec: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = object_name(spec, "priorityClassName", path);
    if let Some(name) = spec.get("runtimeClassName").and_then(Value::as_str) {
        let reasons = names::subdomain_name(name, false);
        causes.extend(invalid_each(&path.child("runtimeClassName"), name, reasons));
    }
    if let Some(policy) = spec.get("preemptionPolicy").and_then(Value::as_str) {
        let policies = ["PreemptLowerPriority", "Never"];
        causes.extend(one_of(policy, &path.child("preemptionPolicy"), &policies));
    }
    causes
}
