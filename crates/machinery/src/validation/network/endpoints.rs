//! Addresses behind services: `Endpoints`, and the slices that took their place.

use serde_json::{Value, json};

use super::{super::members::default_to, endpoint_ip};
use crate::{
    field_error::Cause,
    metadata, names,
    resource::Tree,
    validation::parts::{
        self, Path, dns_label, invalid_each, items, items_mut, list, number, object, one_of, port_number,
        qualified_name, set_default, text, texts,
    },
};

const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
const HOSTNAME: &str = "kubernetes.io/hostname";

pub fn default(tree: &mut Tree) {
    for subset in items_mut(tree, "subsets") {
        for port in items_mut(subset, "ports") {
            set_default(port, "protocol", "TCP");
        }
    }
}

pub fn validate(new: &Tree, old: Option<&Tree>) -> Vec<Cause> {
    // What is stored was valid once.
    if old.is_some_and(|old| list(old, "subsets") == list(new, "subsets")) {
        return Vec::new();
    }
    let path = Path::new("subsets");
    items(new, "subsets").flat_map(|(at, it)| subset(it, &path.index(at))).collect()
}

fn subset(subset: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    if list(subset, "addresses").is_empty() && list(subset, "notReadyAddresses").is_empty() {
        causes.push(Cause::required(path, "must specify `addresses` or `notReadyAddresses`"));
    }
    for key in ["addresses", "notReadyAddresses"] {
        let addresses = path.child(key);
        for (at, it) in items(subset, key) {
            causes.extend(address(it, &addresses.index(at)));
        }
    }
    let ports = path.child("ports");
    let need_name = list(subset, "ports").len() > 1;
    for (at, it) in items(subset, "ports") {
        causes.extend(port(it, need_name, &ports.index(at)));
    }
    causes
}

fn address(address: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let (ip, ip_path) = (text(address, "ip"), path.child("ip"));
    let mut causes: Vec<Cause> = parts::legacy_ip(ip, &ip_path, &[]).into_iter().collect();
    let hostname = text(address, "hostname");
    if !hostname.is_empty() {
        causes.extend(dns_label(hostname, &path.child("hostname")));
    }
    causes.extend(node_name(address, path));
    causes.extend(endpoint_ip(ip, &ip_path));
    causes
}

fn node_name(tree: &Tree, path: &Path<'_>) -> Vec<Cause> {
    match tree.get("nodeName").and_then(Value::as_str) {
        Some(name) => {
            invalid_each(&path.child("nodeName"), name, names::is_dns1123_subdomain(name)).collect()
        }
        None => Vec::new(),
    }
}

fn port(port: &Tree, need_name: bool, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    match text(port, "name") {
        "" if need_name => causes.push(Cause::required(&path.child("name"), "")),
        "" => {}
        name => causes.extend(dns_label(name, &path.child("name"))),
    }
    causes.extend(port_number(number(port, "port").unwrap_or(0), &path.child("port")));
    causes.extend(one_of(text(port, "protocol"), &path.child("protocol"), &PROTOCOLS));
    causes.extend(app_protocol(port, path));
    causes
}

fn app_protocol(port: &Tree, path: &Path<'_>) -> Vec<Cause> {
    match port.get("appProtocol").and_then(Value::as_str) {
        Some(protocol) => qualified_name(protocol, &path.child("appProtocol")).collect(),
        None => Vec::new(),
    }
}

fn label<'a>(tree: &'a Tree, key: &str) -> &'a str {
    let labels = object(tree, "metadata").and_then(|metadata| object(metadata, "labels"));
    labels.map_or("", |labels| text(labels, key))
}

pub fn warn(new: &Tree, _: Option<&Tree>) -> Vec<String> {
    let mut warnings = Vec::new();
    if label(new, "endpoints.kubernetes.io/managed-by") == "endpoint-controller" {
        return warnings;
    }
    let root = Path::new("subsets");
    for (at, subset) in items(new, "subsets") {
        let path = root.index(at);
        for key in ["addresses", "notReadyAddresses"] {
            let addresses = path.child(key);
            for (at, address) in items(subset, key) {
                let place = addresses.index(at);
                warnings.extend(parts::ip_warnings(text(address, "ip"), &place.child("ip")));
            }
        }
    }
    warnings
}

pub fn default_slice(tree: &mut Tree) {
    for port in items_mut(tree, "ports") {
        default_to(port, "name", "");
        default_to(port, "protocol", "TCP");
    }
}

/// The field of an older version: a new object cannot have it.
pub fn drop_topology(tree: &mut Tree) {
    for endpoint in items_mut(tree, "endpoints") {
        endpoint.remove("deprecatedTopology");
    }
}

/// A node that the old field named is not forgotten when it goes.
pub fn keep_topology(new: &mut Tree, old: &Tree) {
    if list(new, "endpoints") == list(old, "endpoints") {
        return;
    }
    let hostname = |endpoint: &Tree| -> Option<String> {
        let host = endpoint.get("deprecatedTopology")?.get(HOSTNAME)?.as_str()?;
        Some(host.to_owned()).filter(|host| !host.is_empty())
    };
    let had: Vec<String> = items(old, "endpoints").filter_map(|(_, endpoint)| hostname(endpoint)).collect();
    for endpoint in items_mut(new, "endpoints") {
        let host = hostname(endpoint).filter(|host| had.contains(host));
        if let Some(host) = host.filter(|host| names::is_dns1123_subdomain(host).is_empty()) {
            default_to(endpoint, "nodeName", host);
        }
        endpoint.remove("deprecatedTopology");
    }
}

/// Labels say which service a slice is of, so that they count too.
pub fn slice_counts(new: &Tree, old: &Tree) -> bool {
    let labels = |tree: &Tree| object(tree, "metadata").and_then(|metadata| metadata.get("labels").cloned());
    let keys = ["addressType", "endpoints", "ports"];
    keys.iter().any(|key| new.get(*key) != old.get(*key)) || labels(new) != labels(old)
}

const ADDRESS_TYPES: [&str; 3] = ["FQDN", "IPv4", "IPv6"];
const MAX_ENDPOINTS: usize = 1000;
const MAX_ADDRESSES: usize = 100;
const MAX_PORTS: usize = 20_000;
const MAX_TOPOLOGY: usize = 16;
const MAX_HINTS: usize = 8;

pub fn validate_slice(new: &Tree, old: Option<&Tree>) -> Vec<Cause> {
    let kind = text(new, "addressType");
    let path = Path::new("addressType");
    let mut causes: Vec<Cause> = one_of(kind, &path, &ADDRESS_TYPES).into_iter().collect();
    causes.extend(slice_ports(new));
    if old.is_none_or(|old| list(old, "endpoints") != list(new, "endpoints")) {
        causes.extend(slice_endpoints(new, kind));
    }
    if old.is_some_and(|old| text(old, "addressType") != kind) {
        causes.push(Cause::invalid(&path, &json!(kind), parts::IMMUTABLE));
    }
    causes
}

fn slice_ports(new: &Tree) -> Vec<Cause> {
    let root = Path::new("ports");
    let count = list(new, "ports").len();
    if count > MAX_PORTS {
        return vec![Cause::too_many(&root, count, MAX_PORTS)];
    }
    let mut causes = Vec::new();
    let mut seen = std::collections::HashSet::new();
    for (at, port) in items(new, "ports") {
        let path = root.index(at);
        let name = text(port, "name");
        if !name.is_empty() {
            causes.extend(dns_label(name, &path.child("name")));
        }
        if !seen.insert(name) {
            causes.push(Cause::duplicate(&path.child("name"), &json!(name)));
        }
        let protocol = text(port, "protocol");
        if !PROTOCOLS.contains(&protocol) {
            causes.push(Cause::not_supported(&path.child("protocol"), &json!(protocol), &PROTOCOLS));
        }
        causes.extend(app_protocol(port, &path));
    }
    causes
}

fn slice_endpoints(new: &Tree, kind: &str) -> Vec<Cause> {
    let root = Path::new("endpoints");
    let count = list(new, "endpoints").len();
    if count > MAX_ENDPOINTS {
        return vec![Cause::too_many(&root, count, MAX_ENDPOINTS)];
    }
    items(new, "endpoints").flat_map(|(at, it)| endpoint(it, kind, &root.index(at))).collect()
}

fn endpoint(endpoint: &Tree, kind: &str, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let addresses = path.child("addresses");
    match list(endpoint, "addresses").len() {
        0 => causes.push(Cause::required(&addresses, "must contain at least 1 address")),
        count if count > MAX_ADDRESSES => {
            causes.push(Cause::too_many(&addresses, count, MAX_ADDRESSES));
        }
        _ => {}
    }
    for (at, address) in texts(endpoint, "addresses").enumerate() {
        causes.extend(slice_address(address, kind, &addresses, at));
    }
    causes.extend(node_name(endpoint, path));
    let topology = path.child("deprecatedTopology");
    let labels = object(endpoint, "deprecatedTopology").map_or(0, Tree::len);
    if labels > MAX_TOPOLOGY {
        causes.push(Cause::too_many(&topology, labels, MAX_TOPOLOGY));
    }
    causes.extend(metadata::labels(endpoint.get("deprecatedTopology"), &topology.to_string()));
    if let Some(hostname) = endpoint.get("hostname").and_then(Value::as_str) {
        causes.extend(dns_label(hostname, &path.child("hostname")));
    }
    if let Some(hints) = object(endpoint, "hints") {
        causes.extend(slice_hints(hints, &path.child("hints")));
    }
    causes
}

fn slice_address(address: &str, kind: &str, list: &Path<'_>, at: usize) -> Vec<Cause> {
    let path = list.index(at);
    let strict = match kind {
        "IPv4" => parts::legacy_ip(address, &path, &[]),
        "IPv6" => parts::ip(address, &path),
        "FQDN" => return full_domain_name(address, &path).into_iter().collect(),
        _ => return Vec::new(),
    };
    if let Some(cause) = strict {
        return vec![cause];
    }
    let mut causes = Vec::new();
    let is_ipv6 = parts::parse_ip_sloppy(address).is_some_and(|ip| ip.is_ipv6());
    if is_ipv6 != (kind == "IPv6") {
        let detail = format!("must be an {kind} address");
        causes.push(Cause::invalid(list, &json!(address), &detail));
    }
    causes.extend(endpoint_ip(address, &path));
    causes
}

/// A name of two labels at least; a dot at the end is not its part.
fn full_domain_name(name: &str, path: &Path<'_>) -> Option<Cause> {
    if name.is_empty() {
        return Some(Cause::required(path, ""));
    }
    let name = name.strip_suffix('.').unwrap_or(name);
    let reasons = names::is_dns1123_subdomain(name);
    if !reasons.is_empty() {
        return Some(Cause::invalid(path, &json!(name), &reasons.join(",")));
    }
    if !name.contains('.') {
        let detail = "should be a domain with at least two segments separated by dots";
        return Some(Cause::invalid(path, &json!(name), detail));
    }
    name.split('.').find_map(|label| {
        let reasons = names::is_dns1123_label(label);
        (!reasons.is_empty()).then(|| Cause::invalid(path, &json!(label), &reasons.join(",")))
    })
}

fn slice_hints(hints: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    for key in ["forZones", "forNodes"] {
        let hint_path = path.child(key);
        let count = list(hints, key).len();
        if count > MAX_HINTS {
            causes.push(Cause::too_many(&hint_path, count, MAX_HINTS));
            return causes;
        }
        let mut seen = Vec::new();
        for (at, hint) in items(hints, key) {
            let place = hint_path.index(at);
            let name = text(hint, "name");
            if seen.contains(&name) {
                causes.push(Cause::duplicate(&place.child("name"), &json!(name)));
            }
            seen.push(name);
            let reasons = match key {
                "forZones" => names::is_label_value(name),
                _ => names::is_dns1123_subdomain(name),
            };
            causes.extend(invalid_each(&place.child("name"), name, reasons));
        }
    }
    causes
}

pub fn warn_slice(new: &Tree, old: Option<&Tree>) -> Vec<String> {
    let mut warnings = Vec::new();
    if old.is_none() && text(new, "addressType") == "FQDN" {
        warnings.push("spec.addressType: FQDN endpoints are deprecated".to_owned());
    }
    let manager = label(new, "endpointslice.kubernetes.io/managed-by");
    if matches!(manager, "endpointslice-controller.k8s.io" | "endpointslicemirroring-controller.k8s.io") {
        return warnings;
    }
    let root = Path::new("endpoints");
    for (at, endpoint) in items(new, "endpoints") {
        let path = root.index(at);
        let addresses = path.child("addresses");
        let found = texts(endpoint, "addresses").enumerate();
        warnings.extend(found.filter_map(|(at, ip)| parts::ip_warnings(ip, &addresses.index(at))));
    }
    warnings
}
