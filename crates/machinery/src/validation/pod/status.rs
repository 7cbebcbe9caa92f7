//! What a pod's node, the scheduler and controllers say about it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::{Value, json};

use super::{
    super::parts::{
        IMMUTABLE, Path, dns_label, invalid_each, ip_warnings, items, items_mut, legacy_ip, list, number,
        object, object_mut, parse_ip_sloppy, qualified_name, text,
    },
    security::identity_reasons,
    shape, update,
};
use crate::{
    field_error::Cause,
    names,
    resource::{Tree, only},
};

const STATUS: Path<'_> = Path::new("status");
const STATUSES: [&str; 3] = ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"];
const MAX_HEALTH_MESSAGE: usize = 1024;

/// Only the status changes; what it leaves out about generations stays.
pub fn only_status(new: &mut Tree, old: &Tree) {
    only(new, old, "status");
    let owners = object(old, "metadata").and_then(|metadata| metadata.get("ownerReferences")).cloned();
    if let Some(metadata) = object_mut(new, "metadata") {
        match owners {
            Some(owners) => metadata.insert("ownerReferences".to_owned(), owners),
            None => metadata.remove("ownerReferences"),
        };
    }
    let empty = Tree::new();
    let was = object(old, "status").unwrap_or(&empty);
    let status = new.entry("status").or_insert_with(|| json!({}));
    let Some(status) = status.as_object_mut() else { return };
    if text(status, "qosClass").is_empty()
        && let Some(class) = was.get("qosClass")
    {
        status.insert("qosClass".to_owned(), class.clone());
    }
    keep_observed_generations(status, was);
    drop_disabled(status);
}

fn keep_observed_generations(status: &mut Tree, was: &Tree) {
    const KEY: &str = "observedGeneration";
    let keep = |new: &mut Tree, old: i64| {
        if number(new, KEY).unwrap_or(0) == 0 && old != 0 {
            new.insert(KEY.to_owned(), json!(old));
        }
    };
    keep(status, number(was, KEY).unwrap_or(0));
    let mut old: BTreeMap<&str, VecDeque<i64>> = BTreeMap::new();
    for (_, condition) in items(was, "conditions") {
        old.entry(text(condition, "type")).or_default().push_back(number(condition, KEY).unwrap_or(0));
    }
    for condition in items_mut(status, "conditions") {
        let generation = old.get_mut(text(condition, "type")).and_then(VecDeque::pop_front);
        keep(condition, generation.unwrap_or(0));
    }
}

/// Fields of features that are off by default go.
fn drop_disabled(status: &mut Tree) {
    status.remove("nodeAllocatableResourceClaimStatuses");
    for key in STATUSES {
        for container in items_mut(status, key) {
            for mount in items_mut(container, "volumeMounts") {
                mount.remove("volumeStatus");
            }
        }
    }
}

pub fn changed_status(new: &Tree, old: &Tree) -> Vec<Cause> {
    let empty = Tree::new();
    let (status, was) = (object(new, "status").unwrap_or(&empty), object(old, "status").unwrap_or(&empty));
    let spec = object(old, "spec").unwrap_or(&empty);
    let mut causes = update::changed_annotations(new, old, &update::options(old));
    causes.extend(conditions(status));
    causes.extend(nomination(status, was, spec));
    let generation = number(status, "observedGeneration").unwrap_or(0);
    causes.extend(observed(generation, &STATUS));
    if status.get("qosClass") != was.get("qosClass") {
        let class = json!(text(status, "qosClass"));
        causes.push(Cause::invalid(&STATUS.child("qosClass"), &class, IMMUTABLE));
    }
    for key in STATUSES {
        causes.extend(transitions(status, was, spec, key));
    }
    causes.extend(claims(status, spec));
    causes.extend(extended_claim(status, spec));
    causes.extend(addresses(status, was, "podIPs"));
    causes.extend(host_addresses(status, was));
    for key in STATUSES {
        causes.extend(users(status, spec, key));
    }
    for (key, containers) in
        [("containerStatuses", "containers"), ("initContainerStatuses", "initContainers")]
    {
        causes.extend(allocated(status, spec, key, containers));
    }
    for (at, container) in items(status, "ephemeralContainerStatuses") {
        if !list(container, "allocatedResourcesStatus").is_empty() {
            let field = format!("status.ephemeralContainerStatuses[{at}].allocatedResourcesStatus");
            causes.push(Cause::forbidden(field, "must not be specified in container status"));
        }
    }
    causes
}

/// For addresses that are accepted though they could be written better.
pub fn warnings(pod: &Tree) -> Vec<String> {
    let mut warnings = Vec::new();
    let Some(status) = object(pod, "status") else { return warnings };
    for key in ["podIPs", "hostIPs"] {
        for (at, ip) in items(status, key) {
            let field = format!("status.{key}[{at}].ip");
            warnings.extend(ip_warnings(text(ip, "ip"), &Path::new(&field)));
        }
    }
    warnings
}

fn observed(generation: i64, path: &Path<'_>) -> Option<Cause> {
    let detail = "must be a non-negative integer";
    (generation < 0).then(|| Cause::invalid(&path.child("observedGeneration"), &json!(generation), detail))
}

fn conditions(status: &Tree) -> Vec<Cause> {
    let mut causes = Vec::new();
    let list = STATUS.child("conditions");
    for (at, condition) in items(status, "conditions") {
        let condition_path = list.index(at);
        causes.extend(observed(number(condition, "observedGeneration").unwrap_or(0), &condition_path));
        let kind = text(condition, "type");
        if !matches!(kind, "PodScheduled" | "Ready" | "Initialized") {
            // By the name of Go.
            causes.extend(qualified_name(kind, &condition_path.child("Type")));
        }
    }
    causes
}

fn nomination(status: &Tree, was: &Tree, spec: &Tree) -> Vec<Cause> {
    const KEY: &str = "nominatedNodeName";
    let (node, old) = (text(status, KEY), text(was, KEY));
    let path = STATUS.child(KEY);
    if node == old || node.is_empty() {
        return Vec::new();
    }
    let mut causes: Vec<Cause> = invalid_each(&path, node, names::subdomain_name(node, false)).collect();
    if !text(spec, "nodeName").is_empty() {
        causes.push(Cause::forbidden(&path, "may not be set on pods that are already bound to a node"));
    }
    causes
}

fn by_name<'a>(items: impl Iterator<Item = (usize, &'a Tree)>) -> BTreeMap<&'a str, &'a Tree> {
    items.map(|(_, item)| (text(item, "name"), item)).collect()
}

/// A container that came to its end stays there, unless it is to be started again.
fn transitions(status: &Tree, was: &Tree, spec: &Tree, key: &str) -> Vec<Cause> {
    let containers = match key {
        "containerStatuses" => "containers",
        "initContainerStatuses" => "initContainers",
        _ => "",
    };
    let mut rules = ["containers", "initContainers"]
        .into_iter()
        .flat_map(|key| items(spec, key))
        .flat_map(|(_, container)| items(container, "restartPolicyRules"));
    if !containers.is_empty() && rules.any(|(_, rule)| text(rule, "action") == "RestartAllContainers") {
        return Vec::new();
    }
    let terminated = |status: &Tree| {
        let state = object(status, "state").and_then(|state| object(state, "terminated"));
        state.map(|state| number(state, "exitCode").unwrap_or(0))
    };
    let mut causes = Vec::new();
    let living = items(status, key).filter(|(_, new)| terminated(new).is_none());
    let living: BTreeSet<&str> = living.map(|(_, new)| text(new, "name")).collect();
    let containers = by_name(items(spec, containers));
    for (at, old) in items(was, key) {
        let Some(exit_code) = terminated(old) else { continue };
        let name = text(old, "name");
        let may = containers.get(name).is_some_and(|container| is_to_restart(container, spec, exit_code));
        if living.contains(name) && !may {
            let field = format!("status.{key}[{at}].state");
            causes.push(Cause::forbidden(field, "may not be transitioned to non-terminated state"));
        }
    }
    causes
}

fn is_to_restart(container: &Tree, spec: &Tree, exit_code: i64) -> bool {
    let by_policy = |policy: &str| match policy {
        "Never" => Some(false),
        "OnFailure" => Some(exit_code != 0),
        "Always" => Some(true),
        _ => None,
    };
    let Some(policy) = container.get("restartPolicy").and_then(Value::as_str) else {
        return by_policy(text(spec, "restartPolicy")).unwrap_or(true);
    };
    let matches_rule = items(container, "restartPolicyRules").any(|(_, rule)| {
        object(rule, "exitCodes").is_some_and(|codes| {
            let is_listed = list(codes, "values").contains(&json!(exit_code));
            match text(codes, "operator") {
                "In" => is_listed,
                "NotIn" => !is_listed,
                _ => false,
            }
        })
    });
    matches_rule || by_policy(policy).or(by_policy(text(spec, "restartPolicy"))).unwrap_or(true)
}

fn claims(status: &Tree, spec: &Tree) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut taken = BTreeSet::new();
    let list = STATUS.child("resourceClaimStatuses");
    let of_pod = by_name(items(spec, "resourceClaims"));
    for (at, claim) in items(status, "resourceClaimStatuses") {
        let claim_path = list.index(at);
        let (name, name_path) = (text(claim, "name"), claim_path.child("name"));
        if !of_pod.contains_key(name) {
            let detail = "must match the name of an entry in `spec.resourceClaims`";
            causes.push(Cause::invalid(&name_path, &json!(name), detail));
        }
        if !taken.insert(name) {
            causes.push(Cause::duplicate(&name_path, &json!(name)));
        }
        if let Some(name) = claim.get("resourceClaimName").and_then(Value::as_str) {
            let reasons = names::subdomain_name(name, false);
            causes.extend(invalid_each(&claim_path.child("resourceClaimName"), name, reasons));
        }
    }
    causes
}

fn extended_claim(status: &Tree, spec: &Tree) -> Vec<Cause> {
    let Some(claim) = object(status, "extendedResourceClaimStatus") else { return Vec::new() };
    let path = STATUS.child("extendedResourceClaimStatus");
    let mappings = path.child("requestMappings");
    let mut causes = Vec::new();
    if list(claim, "requestMappings").is_empty() {
        causes.push(Cause::required(&mappings, "at least one request mapping is required"));
    }
    let mut taken = BTreeSet::new();
    let containers = by_name(items(spec, "initContainers").chain(items(spec, "containers")));
    for (at, mapping) in items(claim, "requestMappings") {
        let mapping_path = mappings.index(at);
        let keys = ["containerName", "resourceName", "requestName"];
        let [container, resource, request] = keys.map(|key| text(mapping, key));
        causes.extend(mapped_request(containers.get(container).copied(), container, resource, &mapping_path));
        causes.extend(dns_label(request, &path.child("requestName")));
        if !taken.insert((container, resource, request)) {
            causes.extend(
                keys.map(|key| Cause::duplicate(&mapping_path.child(key), &json!(text(mapping, key)))),
            );
        }
    }
    let (name, name_path) = (text(claim, "resourceClaimName"), path.child("resourceClaimName"));
    match name {
        "" => causes.push(Cause::required(&name_path, "")),
        _ => causes.extend(invalid_each(&name_path, name, names::subdomain_name(name, false))),
    }
    causes
}

fn mapped_request(found: Option<&Tree>, container: &str, resource: &str, path: &Path<'_>) -> Option<Cause> {
    let Some(found) = found else {
        let detail = "must match the name of an entry in spec.initContainers.name or spec.containers.name";
        return Some(Cause::invalid(&path.child("containerName"), &json!(container), detail));
    };
    let requests = object(found, "resources").and_then(|resources| object(resources, "requests"));
    let detail = "must match the extended resource name of an entry in spec.initContainers.resources.requests or spec.containers.resources.requests";
    let asks = requests.is_some_and(|requests| requests.contains_key(resource));
    (!asks).then(|| Cause::invalid(&path.child("resourceName"), &json!(resource), detail))
}

/// At most one address of each family.
fn addresses(status: &Tree, was: &Tree, key: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    let path = STATUS.child(key);
    let old: Vec<&str> = items(was, key).map(|(_, it)| text(it, "ip")).collect();
    let own: Vec<&str> = items(status, key).map(|(_, it)| text(it, "ip")).collect();
    for (at, ip) in own.iter().enumerate() {
        causes.extend(legacy_ip(ip, &path.index(at), &old));
    }
    if own.len() < 2 {
        return causes;
    }
    let mut families = Vec::new();
    for (at, ip) in own.iter().enumerate() {
        let Some(parsed) = parse_ip_sloppy(ip) else {
            let detail = format!("failed to check for dual stack with error:ip {at} is invalid: {ip}");
            causes.push(Cause::internal(&path, &detail));
            families.clear();
            break;
        };
        families.push(parsed.is_ipv4());
    }
    let is_dual = families.contains(&true) && families.contains(&false);
    if !is_dual || own.len() > 2 {
        let shown = shape::shown_list(if key == "podIPs" { "PodIP" } else { "HostIP" }, list(status, key));
        let detail = "may specify no more than one IP for each IP family";
        causes.push(Cause::invalid_text(&path, &shown, detail));
    }
    causes
}

fn host_addresses(status: &Tree, was: &Tree) -> Vec<Cause> {
    let mut causes = Vec::new();
    let Some((_, first)) = items(status, "hostIPs").next() else { return causes };
    let first = text(first, "ip");
    if first != text(status, "hostIP") {
        causes.push(Cause::invalid("status.hostIPs[0].ip", &json!(first), "must be equal to `hostIP`"));
    }
    causes.extend(addresses(status, was, "hostIPs"));
    causes
}

fn users(status: &Tree, spec: &Tree, key: &str) -> Vec<Cause> {
    let os = object(spec, "os").map_or("linux", |os| text(os, "name"));
    let mut causes = Vec::new();
    for (at, container) in items(status, key) {
        let user = object(container, "user").and_then(|user| object(user, "linux"));
        let Some(user) = user else { continue };
        let field = format!("status.{key}[{at}].user.linux");
        if os == "windows" {
            causes.push(Cause::forbidden(field.as_str(), "cannot be set for a windows pod"));
        }
        if os != "linux" {
            continue;
        }
        for key in ["uid", "gid"] {
            let id = number(user, key).unwrap_or(0);
            let reasons = identity_reasons(id);
            causes.extend(reasons.iter().map(|it| Cause::invalid(format!("{field}.{key}"), &json!(id), it)));
        }
        for (at, group) in list(user, "supplementalGroups").iter().enumerate() {
            let reasons = identity_reasons(group.as_i64().unwrap_or(0));
            let field = format!("{field}.supplementalGroups[{at}]");
            causes.extend(reasons.iter().map(|it| Cause::invalid(field.as_str(), group, it)));
        }
    }
    causes
}

/// Devices that a container got, and how they are.
fn allocated(status: &Tree, spec: &Tree, key: &str, containers: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    let containers = by_name(items(spec, containers));
    for (at, own) in items(status, key) {
        let container = containers.get(text(own, "name"));
        for (index, resource) in items(own, "allocatedResourcesStatus") {
            let field = format!("status.{key}[{at}].allocatedResourcesStatus[{index}]");
            let name = text(resource, "name");
            if let Some(container) = container
                && let Some(detail) = unknown_allocation(name, container)
            {
                causes.push(Cause::invalid(format!("{field}.name"), &json!(name), detail));
            }
            causes.extend(healths(resource, &field));
        }
    }
    causes
}

fn unknown_allocation(name: &str, container: &Tree) -> Option<&'static str> {
    let empty = Tree::new();
    let resources = object(container, "resources").unwrap_or(&empty);
    let Some(claim) = name.strip_prefix("claim:") else {
        let is_asked = object(resources, "requests").is_some_and(|requests| requests.contains_key(name));
        return (!is_asked).then_some("must match one of the container's resource requests");
    };
    let is_claimed = items(resources, "claims").any(|(_, it)| match text(it, "request") {
        "" => text(it, "name") == claim,
        request => format!("{}/{request}", text(it, "name")) == claim,
    });
    let detail = "must match one of the container's resource claims in a format 'claim:<claimName>/<request>' or 'claim:<claimName>' if request is empty";
    (!is_claimed).then_some(detail)
}

fn healths(resource: &Tree, field: &str) -> Vec<Cause> {
    const HEALTHS: [&str; 3] = ["Healthy", "Unhealthy", "Unknown"];
    let mut causes = Vec::new();
    let mut taken = BTreeSet::new();
    for (at, device) in items(resource, "resources") {
        let field = format!("{field}.resources[{at}]");
        let health = text(device, "health");
        if !HEALTHS.contains(&health) {
            causes.push(Cause::not_supported(format!("{field}.health"), &json!(health), &HEALTHS));
        }
        match device.get("message").and_then(Value::as_str) {
            Some("") => {
                causes.push(Cause::required(format!("{field}.message"), "must be non-empty if specified"));
            }
            Some(message) if message.len() > MAX_HEALTH_MESSAGE => {
                causes.push(Cause::too_long(format!("{field}.message"), MAX_HEALTH_MESSAGE));
            }
            _ => {}
        }
        let id = text(device, "resourceID");
        if !taken.insert(id) {
            causes.push(Cause::duplicate(format!("{field}.resourceID"), &json!(id)));
        }
    }
    causes
}
