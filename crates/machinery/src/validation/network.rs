//! Kinds about reaching workloads: their defaults and rules.

pub mod addresses;
pub mod endpoints;
pub mod ingress;
pub mod policy;
pub mod service;

use serde_json::{Value, json};

use super::{
    go_struct, keep_metadata,
    parts::{self, IMMUTABLE, Path, invalid_each, list, object, text, texts},
    pod::shape,
};
use crate::{field_error::Cause, gotext, names, resource::Tree, resource::only};

/// The rule for names of `IPAddress`: the name is the address.
pub fn address_name(name: &str, _: bool) -> Vec<String> {
    let prefix = format!("Invalid value: {}: ", gotext::quote(name));
    let cause = parts::ip(name, &Path::new(""));
    cause
        .map(|cause| cause.message.strip_prefix(&prefix).unwrap_or_default().to_owned())
        .into_iter()
        .collect()
}

pub fn validate_address(new: &Tree, old: Option<&Tree>) -> Vec<Cause> {
    let parent_of = |tree: &Tree| object(tree, "spec").and_then(|spec| spec.get("parentRef").cloned());
    let path = Path::new("spec.parentRef");
    let parent = parent_of(new).filter(Value::is_object);
    let mut causes = match parent.as_ref().and_then(Value::as_object) {
        Some(parent) => parent_reference(parent, &path),
        None => vec![Cause::required(&path, "")],
    };
    if old.is_some_and(|old| parent_of(old) != parent_of(new)) {
        let shown = match parent.as_ref().and_then(Value::as_object) {
            Some(parent) => shape::shown("ParentReference", parent),
            None => "null".to_owned(),
        };
        causes.push(Cause::invalid_text(&path, &shown, IMMUTABLE));
    }
    if old.is_some() {
        causes.extend(generate_name(new));
    }
    causes
}

/// Names of addresses are never made; upstream checks what they would be made of all the same, on update too.
fn generate_name(new: &Tree) -> Vec<Cause> {
    let base = object(new, "metadata").map_or("", |metadata| text(metadata, "generateName"));
    let reasons = if base.is_empty() { Vec::new() } else { address_name(base, true) };
    invalid_each(&Path::new("metadata.generateName"), base, reasons).collect()
}

fn parent_reference(parent: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let group = text(parent, "group");
    if !group.is_empty() {
        causes.extend(parts::dns_subdomain(group, &path.child("group")));
    }
    for key in ["resource", "name"] {
        causes.extend(required_segment(parent, key, path));
    }
    let namespace = text(parent, "namespace");
    causes.extend(invalid_each(&path.child("namespace"), namespace, names::is_path_segment_name(namespace)));
    causes
}

/// A text that must be there and can stand between two slashes of a URL.
fn required_segment(tree: &Tree, key: &str, path: &Path<'_>) -> Vec<Cause> {
    match text(tree, key) {
        "" => vec![Cause::required(&path.child(key), "")],
        value => invalid_each(&path.child(key), value, names::is_path_segment_name(value)).collect(),
    }
}

const RANGES: Path<'_> = Path::new("spec.cidrs");

fn ranges(tree: &Tree) -> &[Value] {
    object(tree, "spec").map_or(&[], |spec| list(spec, "cidrs"))
}

pub fn validate_range(new: &Tree, old: Option<&Tree>) -> Vec<Cause> {
    let now = ranges(new);
    let Some(was) = old.map(ranges) else { return new_ranges(now) };
    match (was, now) {
        (was, now) if was.len() == now.len() => {
            let pairs = was.iter().zip(now).enumerate().filter(|(_, (was, now))| was != now);
            pairs.map(|(at, (_, now))| Cause::invalid(&RANGES.index(at), now, IMMUTABLE)).collect()
        }
        // One more makes it dual-stack.
        ([was], [first, _]) => {
            let changed = (was != first).then(|| Cause::invalid(&RANGES.index(0), first, IMMUTABLE));
            changed.into_iter().chain(new_ranges(now)).collect()
        }
        (_, []) => vec![Cause::invalid(&RANGES, &Value::Null, IMMUTABLE)],
        (_, now) => vec![Cause::invalid(&RANGES, &json!(now), IMMUTABLE)],
    }
}

fn new_ranges(ranges: &[Value]) -> Vec<Cause> {
    if ranges.is_empty() {
        return vec![Cause::required(&RANGES, "at least one CIDR required")];
    }
    if ranges.len() > 2 {
        let shown = go_struct([("CIDRs", gotext::json(ranges))]);
        return vec![Cause::invalid_text(&RANGES, &shown, "may only hold up to 2 values")];
    }
    let texts = ranges.iter().map(|range| range.as_str().unwrap_or_default());
    let mut causes: Vec<Cause> =
        texts.clone().enumerate().filter_map(|(at, range)| parts::cidr(range, &RANGES.index(at))).collect();
    let families: Vec<Option<bool>> = texts.map(is_ipv6_range).collect();
    if let [Some(first), Some(second)] = families[..]
        && first == second
    {
        let detail =
            "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64";
        causes.push(Cause::invalid(&RANGES, &json!(ranges), detail));
    }
    causes
}

/// Whether a range is one of IPv6; `None` if it is none at all.
pub(super) fn is_ipv6_range(range: &str) -> Option<bool> {
    parts::parse_cidr_sloppy(range).map(|(ip, _, _)| ip.is_ipv6())
}

/// A new range has no status.
pub fn prepare_range(tree: &mut Tree) {
    tree.insert("status".into(), json!({}));
}

/// `/status` of a `ServiceCIDR` does not touch metadata.
pub fn only_status_of_range(new: &mut Tree, old: &Tree) {
    only(new, old, "status");
    keep_metadata(new, old);
}

/// Where a load balancer is, for services and ingresses: the texts under `ip`, unless the old status has them.
fn balancer_host(ingress: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let host = text(ingress, "hostname");
    if host.is_empty() {
        return Vec::new();
    }
    let path = path.child("hostname");
    let mut causes: Vec<Cause> = parts::dns_subdomain(host, &path).collect();
    if parts::parse_ip_sloppy(host).is_some() {
        causes.push(Cause::invalid(&path, &json!(host), "must be a DNS name, not an IP address"));
    }
    causes
}

/// The load balancers in a status.
fn balancers(tree: &Tree) -> &[Value] {
    let status = object(tree, "status").and_then(|status| object(status, "loadBalancer"));
    status.map_or(&[], |status| list(status, "ingress"))
}

fn balancer_ips(tree: &Tree) -> Vec<&str> {
    let ingress = balancers(tree).iter().filter_map(Value::as_object);
    ingress.map(|ingress| text(ingress, "ip")).filter(|ip| !ip.is_empty()).collect()
}

const ON_LOOPBACK: &str = "may not be in the loopback range (127.0.0.0/8, ::1/128)";

/// What else is wrong with endpoints.
pub fn but_loopback(mut causes: Vec<Cause>) -> Vec<Cause> {
    causes.retain(|cause| !cause.message.ends_with(ON_LOOPBACK));
    causes
}

/// An address behind a service, and for historical reasons an external address: not everything that is an address.
pub(super) fn endpoint_ip(value: &str, path: &Path<'_>) -> Vec<Cause> {
    let invalid = |detail: &str| Cause::invalid(path, &json!(value), detail);
    let Some(ip) = parts::parse_ip_sloppy(value) else { return vec![invalid("must be a valid IP address")] };
    let (link_local, link_local_multicast) = match ip {
        std::net::IpAddr::V4(ip) => (ip.is_link_local(), ip.octets()[..3] == [224, 0, 0]),
        std::net::IpAddr::V6(ip) => {
            let first = ip.segments()[0];
            (first & 0xffc0 == 0xfe80, first & 0xff0f == 0xff02)
        }
    };
    let rules = [
        (ip.is_unspecified(), format!("may not be unspecified ({value})")),
        (ip.is_loopback(), ON_LOOPBACK.to_owned()),
        (link_local, "may not be in the link-local range (169.254.0.0/16, fe80::/10)".to_owned()),
        (
            link_local_multicast,
            "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)".to_owned(),
        ),
    ];
    rules.into_iter().filter(|(broken, _)| *broken).map(|(_, detail)| invalid(&detail)).collect()
}

/// The texts of `spec`'s list.
fn spec_texts<'a>(tree: &'a Tree, key: &str) -> Vec<&'a str> {
    object(tree, "spec").map(|spec| texts(spec, key).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
