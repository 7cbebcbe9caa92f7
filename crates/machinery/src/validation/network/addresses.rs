//! What a service is given by the cluster: addresses, their families, and ports on nodes.
//!
//! ```text
//!   as sent ──> prepare ──> demand ──> (the server picks what is free) ──> grant ──> validate
//!               fills in what the old       what must be taken,
//!               object has, and families    kept and given back
//! ```
//!
//! The cluster has one family of addresses, IPv4. A taken address is an object of kind `IPAddress` with that name.

mod prepare;

use std::{fmt, net::Ipv4Addr};

use serde_json::{Value, json};

use super::service::Spec;
use crate::{
    field_error::Cause,
    resource::Tree,
    validation::{
        members::made,
        parts::{Path, items, items_mut, number, object_mut, text, texts},
    },
};

pub use prepare::{prepare_create, prepare_update, settle_families};

const NONE: &str = "None";

/// Where addresses and ports on nodes come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ranges {
    network: Ipv4Addr,
    prefix: u32,
    first_port: u16,
    last_port: u16,
}

impl fmt::Display for Ranges {
    /// As `10.96.0.0/12`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network, self.prefix)
    }
}

impl Ranges {
    pub const DEFAULT: Ranges = Ranges::new(Ipv4Addr::new(10, 96, 0, 0), 12, (30_000, 32_767));

    /// A network by its first address and the length of its prefix, and the first and the last port.
    pub const fn new(network: Ipv4Addr, prefix: u32, (first_port, last_port): (u16, u16)) -> Self {
        Ranges { network, prefix, first_port, last_port }
    }

    /// The first and the last address that can be given: not the network's own and not its broadcast address.
    fn bounds(&self) -> (u32, u32) {
        let size = 1u32.checked_shl(32u32.saturating_sub(self.prefix)).unwrap_or(u32::MAX);
        let network = u32::from(self.network);
        (network.saturating_add(1), network.saturating_add(size.saturating_sub(2)))
    }

    pub fn first_address(&self) -> Ipv4Addr {
        Ipv4Addr::from(self.bounds().0)
    }

    pub fn has_address(&self, address: Ipv4Addr) -> bool {
        let (first, last) = self.bounds();
        (first..=last).contains(&u32::from(address))
    }

    pub fn has_port(&self, port: i64) -> bool {
        (i64::from(self.first_port)..=i64::from(self.last_port)).contains(&port)
    }

    /// Every address once, in the order to try them: the upper part from `start` on, then the part at the beginning
    /// that is left to those who ask for a certain one.
    pub fn addresses(&self, start: u32) -> impl Iterator<Item = Ipv4Addr> {
        let (first, last) = self.bounds();
        let size = last.saturating_add(1).saturating_sub(first);
        let reserved = band(size.saturating_add(2), 16, 256);
        in_bands(size, reserved, start).map(move |at| Ipv4Addr::from(first.saturating_add(at)))
    }

    /// As [`Ranges::addresses`], for ports on nodes.
    pub fn ports(&self, start: u32) -> impl Iterator<Item = u16> {
        let size = (u32::from(self.last_port) + 1).saturating_sub(u32::from(self.first_port));
        let first = u32::from(self.first_port);
        in_bands(size, band(size, 32, 128), start).filter_map(move |at| u16::try_from(first + at).ok())
    }
}

/// How many at the beginning are left to those who ask for a certain one.
fn band(size: u32, step: u32, most: u32) -> u32 {
    const LEAST: u32 = 16;
    if size <= LEAST { 0 } else { (size / step).clamp(LEAST, most) }
}

fn in_bands(size: u32, reserved: u32, start: u32) -> impl Iterator<Item = u32> {
    let reserved = reserved.min(size);
    let upper = size - reserved;
    let from = if upper == 0 { 0 } else { start % upper };
    (from..upper).chain(0..from).map(move |at| reserved + at).chain(0..reserved)
}

/// An address that a service needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressDemand {
    /// Its place in `clusterIPs`.
    pub index: usize,
    pub family: String,
    /// The one it asks for; any other if none.
    pub wanted: Option<String>,
}

/// A port on nodes that a service needs, for one or several of its ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortDemand {
    /// Places in `ports`.
    pub indices: Vec<usize>,
    /// The one it asks for; any other if none.
    pub wanted: Option<i64>,
}

/// What must be taken for a service, and what can be given back when it is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    pub addresses: Vec<AddressDemand>,
    pub node_ports: Vec<PortDemand>,
    /// The port for health checks: the one it asks for, or any other.
    pub health_check_port: Option<Option<i64>>,
    pub released_addresses: Vec<String>,
    pub released_ports: Vec<i64>,
}

impl Demand {
    pub fn is_empty(&self) -> bool {
        *self == Demand::default()
    }

    /// What asks for something outside of the ranges. Upstream does not look at ports in a dry run.
    pub fn out_of_range(&self, service: &Tree, ranges: &Ranges, dry_run: bool) -> Vec<Cause> {
        let asked = self.addresses.iter().filter_map(|demand| demand.wanted.as_deref());
        let strange = asked.filter(|ip| !ip.parse().is_ok_and(|ip| ranges.has_address(ip))).map(|ip| {
            let why = match dry_run {
                true => format!(
                    "the provided IP ({ip}) is not in the valid range. The range of valid IPs is {}/{}",
                    ranges.network, ranges.prefix
                ),
                false => "the provided network does not match the current range".to_owned(),
            };
            address_refusal(service, ip, &why)
        });
        let mut causes: Vec<Cause> = strange.collect();
        if dry_run {
            return causes;
        }
        let Ranges { first_port, last_port, .. } = ranges;
        let why = format!(
            "provided port is not in the valid range. The range of valid ports is {first_port}-{last_port}"
        );
        let asked =
            self.node_ports.iter().filter(|demand| demand.wanted.is_some_and(|it| !ranges.has_port(it)));
        causes.extend(asked.map(|demand| port_refusal(demand, &why)));
        causes
    }
}

/// Why an address cannot be had: `provided IP is already allocated`.
pub fn address_refusal(service: &Tree, ip: &str, why: &str) -> Cause {
    let shown = Spec::of(service).shown("clusterIPs");
    Cause::invalid("spec.clusterIPs", &shown, &format!("failed to allocate IP {ip}: {why}"))
}

/// Why a port cannot be had: `provided port is already allocated`.
pub fn port_refusal(demand: &PortDemand, why: &str) -> Cause {
    let ports = Path::new("spec.ports");
    let port = ports.index(demand.indices.first().copied().unwrap_or(0));
    Cause::invalid(&port.child("nodePort"), &json!(demand.wanted), why)
}

/// What the server found for a [`Demand`], in its order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Granted {
    pub addresses: Vec<String>,
    pub node_ports: Vec<i64>,
    pub health_check_port: Option<i64>,
}

/// What a service as prepared needs beyond what the old one has, or why it cannot have it. Upstream says nothing else
/// about such a service then.
pub fn demand(new: &Tree, old: Option<&Tree>) -> Result<Demand, Vec<Cause>> {
    settle_families(&mut new.clone(), old)?;
    let (now, was) = (Spec::of(new), old.map(Spec::of));
    let mut demand = Demand::default();
    match was {
        None => {
            demand.addresses = all_addresses(now);
            demand.node_ports = new_node_ports(now);
        }
        Some(was) => {
            (demand.addresses, demand.released_addresses) = changed_addresses(now, was);
            demand.node_ports = further_node_ports(now, was);
            let kept: Vec<i64> = if needs_ports(now) { node_ports(now).collect() } else { Vec::new() };
            if needs_ports(now) || needs_ports(was) {
                demand.released_ports = node_ports(was).filter(|port| !kept.contains(port)).collect();
            }
        }
    }
    let checked = was.is_some_and(|was| was.needs_health_check());
    let health_port = |spec: Spec<'_>| number(spec.0, "healthCheckNodePort").filter(|port| *port != 0);
    match (checked, now.needs_health_check()) {
        (false, true) => demand.health_check_port = Some(health_port(now)),
        (true, false) => demand.released_ports.extend(was.and_then(health_port)),
        _ => {}
    }
    Ok(demand)
}

/// All that a service has, to be given back when it is gone.
pub fn held(service: &Tree) -> Demand {
    let spec = Spec::of(service);
    let mut ports: Vec<i64> = node_ports(spec).collect();
    if spec.needs_health_check() {
        ports.extend(number(spec.0, "healthCheckNodePort").filter(|port| *port > 0));
    }
    Demand { released_addresses: own_addresses(spec), released_ports: ports, ..Demand::default() }
}

fn own_addresses(spec: Spec<'_>) -> Vec<String> {
    if spec.is_external_name() || spec.is_headless() {
        return Vec::new();
    }
    texts(spec.0, "clusterIPs").map(str::to_owned).collect()
}

fn all_addresses(spec: Spec<'_>) -> Vec<AddressDemand> {
    let is_headless = texts(spec.0, "clusterIPs").next() == Some(NONE);
    if spec.is_external_name() || is_headless {
        return Vec::new();
    }
    texts(spec.0, "ipFamilies")
        .enumerate()
        .map(|(index, family)| address_demand(spec, index, family))
        .collect()
}

fn address_demand(spec: Spec<'_>, index: usize, family: &str) -> AddressDemand {
    let wanted = texts(spec.0, "clusterIPs").nth(index).filter(|ip| !ip.is_empty()).map(str::to_owned);
    AddressDemand { index, family: family.to_owned(), wanted }
}

fn changed_addresses(now: Spec<'_>, was: Spec<'_>) -> (Vec<AddressDemand>, Vec<String>) {
    if was.is_external_name() && !now.is_external_name() {
        return (all_addresses(now), Vec::new());
    }
    if texts(was.0, "clusterIPs").next() == Some(NONE) {
        return Default::default();
    }
    if !was.is_external_name() && now.is_external_name() {
        return (Vec::new(), own_addresses(was));
    }
    match (was.families().len(), now.families().len()) {
        (1, 2) => {
            let second = texts(now.0, "ipFamilies").nth(1).unwrap_or_default();
            (vec![address_demand(now, 1, second)], Vec::new())
        }
        (2, 1) => (Vec::new(), texts(was.0, "clusterIPs").skip(1).map(str::to_owned).collect()),
        _ => Default::default(),
    }
}

fn needs_ports(spec: Spec<'_>) -> bool {
    matches!(spec.kind(), "NodePort" | "LoadBalancer")
}

/// Whether ports get one on nodes without asking for it.
fn gives_ports(spec: Spec<'_>) -> bool {
    match spec.kind() {
        "NodePort" => true,
        "LoadBalancer" => {
            spec.0.get("allocateLoadBalancerNodePorts").and_then(Value::as_bool).unwrap_or(true)
        }
        _ => false,
    }
}

fn node_port(port: &Tree) -> Option<i64> {
    number(port, "nodePort").filter(|port| *port != 0)
}

fn node_ports(spec: Spec<'_>) -> impl Iterator<Item = i64> {
    items(spec.0, "ports").filter_map(|(_, port)| node_port(port))
}

/// Ports of a new service. Those of one number, for several protocols, share one on nodes.
fn new_node_ports(spec: Spec<'_>) -> Vec<PortDemand> {
    let mut demands: Vec<PortDemand> = Vec::new();
    let mut numbers: Vec<i64> = Vec::new();
    if !needs_ports(spec) {
        return demands;
    }
    for (index, port) in items(spec.0, "ports") {
        let own = node_port(port);
        if own.is_none() && !gives_ports(spec) {
            continue;
        }
        let of_port = number(port, "port").unwrap_or(0);
        let shared = numbers.iter().position(|number| *number == of_port);
        match shared.and_then(|at| demands.get_mut(at)) {
            Some(first) if own.is_none() || own == first.wanted => first.indices.push(index),
            found => {
                let asked_by = |(_, it): (usize, &Tree)| {
                    (number(it, "port").unwrap_or(0) == of_port).then(|| node_port(it)).flatten()
                };
                let wanted = match found {
                    Some(_) => own,
                    None => items(spec.0, "ports").find_map(asked_by),
                };
                // A second one of the same number has no part in sharing.
                numbers.push(if shared.is_some() { -1 } else { of_port });
                demands.push(PortDemand { indices: vec![index], wanted });
            }
        }
    }
    demands
}

/// Ports of a changed service that are not its already.
fn further_node_ports(now: Spec<'_>, was: Spec<'_>) -> Vec<PortDemand> {
    if !needs_ports(now) {
        return Vec::new();
    }
    let mut taken: Vec<i64> = node_ports(was).collect();
    let mut demands = Vec::new();
    for (index, port) in items(now.0, "ports") {
        match node_port(port) {
            None if gives_ports(now) => demands.push(PortDemand { indices: vec![index], wanted: None }),
            Some(wanted) if !taken.contains(&wanted) => {
                taken.push(wanted);
                demands.push(PortDemand { indices: vec![index], wanted: Some(wanted) });
            }
            _ => {}
        }
    }
    demands
}

/// Writes what the server found into the service.
pub fn grant(service: &mut Tree, demand: &Demand, granted: &Granted) {
    let Some(spec) = object_mut(service, "spec") else { return };
    for (wanted, address) in demand.addresses.iter().zip(&granted.addresses) {
        let ips = spec.entry("clusterIPs").or_insert_with(|| json!([]));
        if let Value::Array(ips) = ips {
            while ips.len() <= wanted.index && wanted.index < 2 {
                ips.push(json!(""));
            }
            if let Some(ip) = ips.get_mut(wanted.index) {
                *ip = json!(address);
            }
        }
        if wanted.index == 0 {
            spec.insert("clusterIP".into(), json!(address));
        }
    }
    for (wanted, number) in demand.node_ports.iter().zip(&granted.node_ports) {
        for (index, port) in items_mut(spec, "ports").enumerate() {
            if wanted.indices.contains(&index) {
                port.insert("nodePort".into(), json!(number));
            }
        }
    }
    if let (Some(_), Some(port)) = (demand.health_check_port, granted.health_check_port) {
        spec.insert("healthCheckNodePort".into(), json!(port));
    }
}

/// The object that says an address is taken, and by which service.
pub fn ip_address_object(address: &str, namespace: &str, name: &str) -> Tree {
    let family = if super::service::is_ipv6(address) { "IPv6" } else { "IPv4" };
    let mut tree = Tree::new();
    tree.insert("kind".into(), json!("IPAddress"));
    tree.insert("apiVersion".into(), json!("networking.k8s.io/v1"));
    let labels = json!({
        "ipaddress.kubernetes.io/ip-family": family,
        "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
    });
    made(&mut tree, "metadata").extend([("name".into(), json!(address)), ("labels".into(), labels)]);
    let parent = json!({"resource": "services", "namespace": namespace, "name": name});
    made(&mut tree, "spec").insert("parentRef".into(), parent);
    tree
}

/// Whether an `IPAddress` is held for the service of this name.
pub fn is_held_by(address: &Tree, namespace: &str, name: &str) -> bool {
    let parent = address.get("spec").and_then(|spec| spec.get("parentRef")).and_then(Value::as_object);
    parent.is_some_and(|parent| {
        text(parent, "resource") == "services"
            && text(parent, "group").is_empty()
            && text(parent, "namespace") == namespace
            && text(parent, "name") == name
    })
}

#[cfg(test)]
mod tests;
