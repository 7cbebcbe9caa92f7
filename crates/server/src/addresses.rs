//! Addresses and node ports of services: what is free is taken in the same commit that writes the service.
//!
//! A taken address is an `IPAddress` object of that name, a taken port an object that no client sees. Whoever is
//! second to take one finds it there, and the whole commit fails and is tried again.

use std::collections::HashSet;

use machinery::{
    Draft, Object,
    field_error::Cause,
    resource::Tree,
    status::Status,
    validation::network::addresses::{
        self, Demand, Granted, PortDemand, Ranges, address_refusal, ip_address_object, is_held_by,
        port_refusal,
    },
};
use serde_json::{Value, json};
use store::{Change, Expect, Key, Write};

use crate::{context::Context, replace, space::Current, write::Along};

const RANGES: Ranges = Ranges::DEFAULT;

fn address_key(address: &str) -> Key {
    Key::new("networking.k8s.io", "ipaddresses", "", address)
}

/// Not a served resource, so no client can reach it.
fn port_key(port: i64) -> Key {
    Key::new(api::GROUP, "nodeports", "", &port.to_string())
}

/// Gives a service what it needs beyond what the old one has; what is taken and given back is written along with it.
/// A service that is only tried takes nothing; upstream looks then neither whether its address is free nor whether its
/// ports are in range.
pub fn allocate(
    context: &Context,
    name: &str,
    service: &mut Tree,
    old: Option<&Tree>,
    dry_run: bool,
) -> Result<Along, Vec<Cause>> {
    let mut along = Along::default();
    if !context.resource.row.takes_addresses {
        return Ok(along);
    }
    let demand = addresses::demand(service, old)?;
    if demand.is_empty() {
        return Ok(along);
    }
    let causes = demand.out_of_range(service, &RANGES, dry_run);
    if !causes.is_empty() {
        return Err(causes);
    }
    let granted = Granted {
        addresses: take_addresses(context, service, &demand, dry_run)?,
        node_ports: Vec::new(),
        health_check_port: None,
    };
    let (node_ports, health_check_port) = take_ports(context, &demand)?;
    let granted = Granted { node_ports, health_check_port, ..granted };
    addresses::grant(service, &demand, &granted);
    let namespace = context.target.namespace.as_str();
    let held = granted.addresses.iter().map(|address| {
        let mut object = ip_address_object(address, namespace, name);
        (address_key(address), sign(context, &mut object))
    });
    let ports = granted.node_ports.iter().chain(&granted.health_check_port).collect::<HashSet<_>>();
    let ports = ports.into_iter().map(|port| {
        let mut object = port_object(*port, namespace, name);
        (port_key(*port), sign(context, &mut object))
    });
    for (key, draft) in held.chain(ports) {
        let draft = draft.map_err(|status| vec![Cause::internal("", &status.to_string())])?;
        let change = Change::Put { draft, expires: None };
        let expect = match context.space.current(&key) {
            // Somebody was faster; the commit will find out.
            Current { object: Some(_), .. } => Expect::Absent,
            // One of the shared base that was given back leaves something behind.
            Current { object: None, expect } => expect,
        };
        along.writes.push(Write { key, expect, change });
    }
    give_back(context, name, &demand, &mut along);
    Ok(along)
}

/// Gives back all that a service had.
pub fn release(context: &Context, service: &Object) -> Result<Along, Status> {
    let mut along = Along::default();
    if context.resource.row.takes_addresses {
        let tree = service.tree().map_err(Status::internal)?;
        give_back(context, &service.head.name, &addresses::held(&tree), &mut along);
    }
    Ok(along)
}

fn port_object(port: i64, namespace: &str, name: &str) -> Tree {
    let value = json!({
        "kind": "NodePort", "apiVersion": api::API_VERSION, "metadata": {"name": port.to_string()},
        "spec": {"parentRef": {"resource": "services", "namespace": namespace, "name": name}},
    });
    match value {
        Value::Object(tree) => tree,
        _ => Tree::new(),
    }
}

fn sign(context: &Context, object: &mut Tree) -> Result<Draft, Status> {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("uid".into(), json!(context.hub.new_uid()));
        metadata.insert("creationTimestamp".into(), json!(context.hub.now_text()));
    }
    Draft::encode(object).map_err(Status::internal)
}

fn start(context: &Context) -> u32 {
    let mut random = [0; 4];
    context.hub.env.random.fill(&mut random);
    u32::from_le_bytes(random)
}

fn take_addresses(
    context: &Context,
    service: &Tree,
    demand: &Demand,
    dry_run: bool,
) -> Result<Vec<String>, Vec<Cause>> {
    let is_free = |address: &str| dry_run || context.space.get(&address_key(address)).is_none();
    let mut taken: Vec<String> = Vec::new();
    for one in &demand.addresses {
        let address = match &one.wanted {
            Some(wanted) if is_free(wanted) && !taken.contains(wanted) => wanted.clone(),
            Some(wanted) => {
                return Err(vec![address_refusal(service, wanted, "provided IP is already allocated")]);
            }
            None => {
                let mut all = RANGES.addresses(start(context)).map(|address| address.to_string());
                let found = all.find(|address| is_free(address) && !taken.contains(address));
                found.ok_or_else(|| vec![address_refusal(service, "", "range is full")])?
            }
        };
        taken.push(address);
    }
    Ok(taken)
}

fn take_ports(context: &Context, demand: &Demand) -> Result<(Vec<i64>, Option<i64>), Vec<Cause>> {
    let is_free = |port: i64| context.space.get(&port_key(port)).is_none();
    let mut taken: Vec<i64> = Vec::new();
    let mut take = |one: &PortDemand| -> Result<i64, Vec<Cause>> {
        let port = match one.wanted {
            Some(wanted) if is_free(wanted) && !taken.contains(&wanted) => wanted,
            Some(_) => return Err(vec![port_refusal(one, "provided port is already allocated")]),
            None => {
                let mut all = RANGES.ports(start(context)).map(i64::from);
                let found = all.find(|port| is_free(*port) && !taken.contains(port));
                found.ok_or_else(|| vec![port_refusal(one, "range is full")])?
            }
        };
        taken.push(port);
        Ok(port)
    };
    let node_ports = demand.node_ports.iter().map(&mut take).collect::<Result<Vec<i64>, _>>()?;
    let health_check_port = match demand.health_check_port {
        Some(wanted) => Some(take(&PortDemand { indices: Vec::new(), wanted })?),
        None => None,
    };
    Ok((node_ports, health_check_port))
}

/// Only what is held for this very service.
fn give_back(context: &Context, name: &str, demand: &Demand, along: &mut Along) {
    let addresses = demand.released_addresses.iter().map(|address| address_key(address));
    let ports = demand.released_ports.iter().map(|port| port_key(*port));
    let mut seen = HashSet::new();
    for key in addresses.chain(ports).filter(|key| seen.insert(key.clone())) {
        let Current { object: Some(object), expect } = context.space.current(&key) else { continue };
        let held = object.tree().is_ok_and(|tree| is_held_by(&tree, &context.target.namespace, name));
        if held {
            let change = replace::removal(context, &key, &object);
            along.writes.push(Write { key, expect, change });
        }
    }
}
