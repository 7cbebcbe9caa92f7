//! Network policies.

use serde_json::{Value, json};

use super::super::{label_selector, members::default_to};
use crate::{
    field_error::Cause,
    names,
    resource::Tree,
    selector,
    validation::parts::{
        self, Path, invalid_each, items, items_mut, list, number, object, object_mut, port_number, text,
        texts,
    },
};

const SPEC: Path<'_> = Path::new("spec");
const TYPES: [&str; 2] = ["Ingress", "Egress"];
/// Rules by direction, and what their other ends are called.
const DIRECTIONS: [(&str, &str); 2] = [("ingress", "from"), ("egress", "to")];

pub fn default(tree: &mut Tree) {
    let Some(spec) = object_mut(tree, "spec") else { return };
    if list(spec, "policyTypes").is_empty() {
        let types = if list(spec, "egress").is_empty() { &TYPES[..1] } else { &TYPES[..] };
        spec.insert("policyTypes".into(), json!(types));
    }
    for (direction, _) in DIRECTIONS {
        for rule in items_mut(spec, direction) {
            items_mut(rule, "ports").for_each(|port| default_to(port, "protocol", "TCP"));
        }
    }
}

/// What the stored policy has that a new one may not.
#[derive(Default)]
struct Leniency<'a> {
    any_label_value: bool,
    ranges: Vec<&'a str>,
}

impl<'a> Leniency<'a> {
    fn of(old: &'a Tree) -> Self {
        let Some(spec) = object(old, "spec") else { return Self::default() };
        let bad = spec.get("podSelector").is_some_and(|it| !selector::validate_object(it, "").is_empty());
        Self { any_label_value: bad, ranges: blocks(spec).flat_map(|(_, block)| ranges(block)).collect() }
    }
}

/// Every `ipBlock`, with its path.
fn blocks(spec: &Tree) -> impl Iterator<Item = (String, &Tree)> {
    DIRECTIONS.into_iter().flat_map(move |(direction, ends)| {
        items(spec, direction).flat_map(move |(rule_at, rule)| {
            items(rule, ends).filter_map(move |(at, peer)| {
                let path = format!("spec.{direction}[{rule_at}].{ends}[{at}].ipBlock");
                Some((path, object(peer, "ipBlock")?))
            })
        })
    })
}

fn ranges(block: &Tree) -> impl Iterator<Item = &str> {
    std::iter::once(text(block, "cidr")).chain(texts(block, "except"))
}

pub fn validate(new: &Tree, old: Option<&Tree>) -> Vec<Cause> {
    let Some(spec) = object(new, "spec") else { return Vec::new() };
    let leniency = old.map(Leniency::of).unwrap_or_default();
    let mut causes = selector_in(spec, "podSelector", &SPEC, &leniency);
    for (direction, ends) in DIRECTIONS {
        let rules = SPEC.child(direction);
        for (at, rule) in items(spec, direction) {
            let path = rules.index(at);
            let ports = path.child("ports");
            for (at, it) in items(rule, "ports") {
                causes.extend(port(it, &ports.index(at)));
            }
            let peers = path.child(ends);
            for (at, it) in items(rule, ends) {
                causes.extend(peer(it, &peers.index(at), &leniency));
            }
        }
    }
    causes.extend(types(spec));
    causes
}

fn types(spec: &Tree) -> Vec<Cause> {
    let path = SPEC.child("policyTypes");
    let types = list(spec, "policyTypes");
    if types.len() > TYPES.len() {
        return vec![Cause::invalid(&path, &json!(types), "may not specify more than two policyTypes")];
    }
    let unknown = types.iter().enumerate().filter(|(_, it)| TYPES.iter().all(|known| *it != known));
    unknown.map(|(at, it)| Cause::not_supported(&path.index(at), it, &TYPES)).collect()
}

fn selector_in(tree: &Tree, key: &str, path: &Path<'_>, leniency: &Leniency<'_>) -> Vec<Cause> {
    label_selector(tree.get(key), &path.child(key), leniency.any_label_value)
}

fn port(it: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    if let Some(protocol) = it.get("protocol").and_then(Value::as_str)
        && !matches!(protocol, "TCP" | "UDP" | "SCTP")
    {
        let valid = ["TCP", "UDP", "SCTP"];
        causes.push(Cause::not_supported(&path.child("protocol"), &json!(protocol), &valid));
    }
    let end = number(it, "endPort");
    let end_path = path.child("endPort");
    let port_path = path.child("port");
    match it.get("port").filter(|port| !port.is_null()) {
        Some(Value::String(name)) => {
            if let Some(end) = end {
                let detail = "may not be specified when `port` is non-numeric";
                causes.push(Cause::invalid(&end_path, &json!(end), detail));
            }
            causes.extend(invalid_each(&port_path, name, names::is_port_name(name)));
        }
        Some(port) => {
            let port = port.as_i64().unwrap_or(0);
            causes.extend(port_number(port, &port_path));
            if end.is_some_and(|end| end < port) {
                // Upstream shows the port.
                let detail = "must be greater than or equal to `port`";
                causes.push(Cause::invalid(&end_path, &json!(port), detail));
            }
            if let Some(end) = end {
                causes.extend(port_number(end, &end_path));
            }
        }
        None => {
            if let Some(end) = end {
                let detail = "may not be specified when `port` is not specified";
                causes.push(Cause::invalid(&end_path, &json!(end), detail));
            }
        }
    }
    causes
}

fn peer(it: &Tree, path: &Path<'_>, leniency: &Leniency<'_>) -> Vec<Cause> {
    let mut causes = selector_in(it, "podSelector", path, leniency);
    causes.extend(selector_in(it, "namespaceSelector", path, leniency));
    let block = object(it, "ipBlock");
    if let Some(block) = block {
        causes.extend(ip_block(block, &path.child("ipBlock"), &leniency.ranges));
    }
    let selectors = ["podSelector", "namespaceSelector"].into_iter().filter(|key| object(it, key).is_some());
    match (selectors.count(), block) {
        (0, None) => causes.push(Cause::required(path, "must specify a peer")),
        (1.., Some(_)) => {
            causes.push(Cause::forbidden(path, "may not specify both ipBlock and another peer"));
        }
        _ => {}
    }
    causes
}

fn ip_block(block: &Tree, path: &Path<'_>, stored: &[&str]) -> Vec<Cause> {
    let range = text(block, "cidr");
    let range_path = path.child("cidr");
    if range.is_empty() {
        return vec![Cause::required(&range_path, "")];
    }
    let mut causes: Vec<Cause> = parts::legacy_cidr(range, &range_path, stored).into_iter().collect();
    let Some((_, network, bits)) = parts::parse_cidr_sloppy(range) else { return causes };
    let excepts = path.child("except");
    for (at, except) in texts(block, "except").enumerate() {
        let path = excepts.index(at);
        causes.extend(parts::legacy_cidr(except, &path, stored));
        let Some((_, inner, inner_bits)) = parts::parse_cidr_sloppy(except) else { continue };
        let around = parts::parse_cidr_sloppy(&format!("{inner}/{bits}")).map(|(_, around, _)| around);
        if around != Some(network) || bits >= inner_bits {
            let detail = "must be a strict subset of `cidr`";
            causes.push(Cause::invalid(&path, &json!(except), detail));
        }
    }
    causes
}

pub fn warn(new: &Tree, _: Option<&Tree>) -> Vec<String> {
    let Some(spec) = object(new, "spec") else { return Vec::new() };
    let mut warnings = Vec::new();
    for (path, block) in blocks(spec) {
        let path = Path::new(&path);
        warnings.extend(parts::cidr_warnings(text(block, "cidr"), &path.child("cidr")));
        let excepts = path.child("except");
        for (at, except) in texts(block, "except").enumerate() {
            warnings.extend(parts::cidr_warnings(except, &excepts.index(at)));
        }
    }
    warnings
}
