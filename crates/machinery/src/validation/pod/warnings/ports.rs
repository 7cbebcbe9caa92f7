//! Ports of containers that get in each other's way.

use std::collections::BTreeMap;

use super::super::{
    super::parts::{Path, items, number, text},
    each_container,
};
use crate::{gotext, resource::Tree};

/// With how many others a port is compared, and how much is said at most; of more nobody would want to know.
const MOST: usize = 100;

/// A port of a container, by where it is written.
struct Port<'a> {
    field: String,
    tree: &'a Tree,
}

impl Port<'_> {
    fn host_port(&self) -> i64 {
        number(self.tree, "hostPort").unwrap_or(0)
    }

    fn host_ip(&self) -> &str {
        text(self.tree, "hostIP")
    }

    fn container_port(&self) -> i64 {
        number(self.tree, "containerPort").unwrap_or(0)
    }

    /// What there is to say of two ports of one number and protocol.
    fn against(&self, other: &Port<'_>) -> Option<&'static str> {
        let (port, others) = (self.host_port(), other.host_port());
        if self.host_ip() == other.host_ip() && port == others {
            return Some("duplicate port definition");
        }
        if port == 0 || others == 0 {
            return Some("overlapping port definition");
        }
        let one_has_no_address = self.host_ip().is_empty() != other.host_ip().is_empty();
        (port == others && one_has_no_address).then_some("dangerously ambiguous port definition")
    }
}

pub fn ports(spec: &Tree, path: &Path<'_>) -> Vec<String> {
    let all: Vec<Port<'_>> = each_container(spec)
        .flat_map(|(container, kind, at)| {
            items(container, "ports")
                .map(move |(index, tree)| (format!("{path}.{kind}[{at}].ports[{index}]"), tree))
        })
        .map(|(field, tree)| Port { field, tree })
        .collect();
    let mut warnings = Vec::new();
    let mut before: BTreeMap<(i64, &str), Vec<&Port<'_>>> = BTreeMap::new();
    for port in &all {
        if !port.host_ip().is_empty() && port.host_port() == 0 {
            warnings.push(format!("{}: hostIP set without hostPort: {}", port.field, shown(port)));
        }
        let same = before.entry((port.container_port(), text(port.tree, "protocol"))).or_default();
        let others = if warnings.len() < MOST { MOST } else { 0 };
        for other in same.iter().take(others) {
            if let Some(what) = port.against(other) {
                warnings.push(format!("{}: {what} with {}", port.field, other.field));
            }
        }
        same.push(port);
    }
    warnings.extend(names(&all));
    warnings
}

/// As Go prints it.
fn shown(port: &Port<'_>) -> String {
    let (name, protocol) = (text(port.tree, "name"), text(port.tree, "protocol"));
    format!(
        "{{Name:{name} HostPort:{} ContainerPort:{} Protocol:{protocol} HostIP:{}}}",
        port.host_port(),
        port.container_port(),
        port.host_ip()
    )
}

fn names(all: &[Port<'_>]) -> Vec<String> {
    let mut warnings = Vec::new();
    let mut first: BTreeMap<&str, &str> = BTreeMap::new();
    for port in all {
        let name = text(port.tree, "name");
        match first.get(name) {
            _ if name.is_empty() => {}
            None => drop(first.insert(name, &port.field)),
            Some(other) => {
                let shown = gotext::quote(name);
                warnings.push(format!(
                    "{}: duplicate port name {shown} with {other}, services and probes that select ports by name will use {other}",
                    port.field
                ));
            }
        }
    }
    warnings
}
