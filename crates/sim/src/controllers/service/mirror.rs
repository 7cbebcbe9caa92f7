//! Endpoints that somebody wrote for a Service without a selector, mirrored as EndpointSlices: those are all that proxies
//! read.

use std::{
    collections::{BTreeMap, VecDeque},
    net::IpAddr,
};

use serde_json::{Map, Value, json};

use super::{MANAGED_BY, SERVICE, TRIGGER, ports_of};
use crate::{
    Action, Kind, Plan, World,
    controllers::{Changed, Controller, Name, claim},
    kind, tree,
};

const KIND: Kind = kind::ENDPOINTS;
const MANAGER: &str = "endpointslicemirroring-controller.k8s.io";
const SKIP: &str = "endpointslice.kubernetes.io/skip-mirror";
const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";
const APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Addresses of one subset; more are not mirrored.
const MOST: usize = 1000;

pub struct Mirrors;

impl Controller for Mirrors {
    fn kind(&self) -> Kind {
        KIND
    }

    fn name(&self) -> &'static str {
        "endpointslicemirroring-controller"
    }

    fn listens_to(&self) -> &'static [Kind] {
        &[kind::SERVICES]
    }

    fn wakes(&self, _world: &dyn World, changed: &Changed<'_>) -> Vec<Name> {
        let selects = |service: &Value| has_selector(service);
        if changed.old.map(selects) == changed.new.map(selects) {
            return Vec::new();
        }
        vec![claim::name_of(changed.object())]
    }

    fn reconcile(&self, world: &dyn World, endpoints: &Value) -> Plan {
        let mut plan = Plan::nothing();
        // That a Service is gone is for whoever clears its Endpoints away; the slices go with them.
        let Some(service) = world.get(kind::SERVICES, tree::namespace(endpoints), tree::name(endpoints))
        else {
            return plan;
        };
        let stored = stored(world, endpoints);
        if has_selector(&service) || is_left_alone(endpoints) {
            for slice in &stored {
                plan.then(Action::delete(kind::SLICES, slice));
            }
            return plan;
        }
        let wanted = wanted(endpoints, &mut plan);
        settle(endpoints, wanted, stored, &mut plan);
        plan
    }
}

fn has_selector(service: &Value) -> bool {
    service.pointer("/spec/selector").is_some_and(|selector| !selector.is_null())
}

fn is_left_alone(endpoints: &Value) -> bool {
    tree::label(endpoints, SKIP) == "true"
        || endpoints.pointer("/metadata/annotations").is_some_and(|it| it.get(LEADER).is_some())
}

/// The slices that mirror these Endpoints. There are some only if there was a Service.
pub fn stored(world: &dyn World, endpoints: &Value) -> Vec<Value> {
    let mut slices = world.owned(kind::SLICES, tree::namespace(endpoints), tree::uid(endpoints));
    slices.retain(|slice| tree::label(slice, MANAGED_BY) == MANAGER);
    slices
}

/// By family and ports: what a slice is to hold.
type Wanted = BTreeMap<(&'static str, String), (Value, Vec<Value>)>;

/// Of an address: what is known of it, and whether it is ready.
type Addresses<'a> = BTreeMap<(&'a str, &'a str), (&'a Value, bool)>;

/// Subsets as they would be if each address were in one of them only, with all its ports.
fn subsets(endpoints: &Value) -> Vec<(Vec<&Value>, Addresses<'_>)> {
    let mut by_port: BTreeMap<String, (Option<&Value>, Addresses<'_>)> = BTreeMap::new();
    for subset in tree::items(endpoints, "/subsets") {
        let ports = tree::items(subset, "/ports").map(Some).collect::<Vec<_>>();
        for port in if ports.is_empty() { vec![None] } else { ports } {
            let key = port.map(Value::to_string).unwrap_or_default();
            let (_, addresses) = by_port.entry(key).or_insert_with(|| (port, Addresses::new()));
            for (place, ready) in [("/addresses", true), ("/notReadyAddresses", false)] {
                for address in tree::items(subset, place) {
                    let key = (tree::text(address, "/ip"), tree::text(address, "/targetRef/uid"));
                    let (_, known) = addresses.entry(key).or_insert((address, ready));
                    *known &= ready;
                }
            }
        }
    }
    let mut by_addresses: BTreeMap<String, (Vec<&Value>, Addresses<'_>)> = BTreeMap::new();
    for (port, addresses) in by_port.into_values() {
        let key = format!("{addresses:?}");
        let (ports, _) = by_addresses.entry(key).or_insert_with(|| (Vec::new(), addresses));
        ports.extend(port);
    }
    by_addresses.into_values().collect()
}

fn wanted(endpoints: &Value, plan: &mut Plan) -> Wanted {
    let mut wanted = Wanted::new();
    let (mut invalid, mut skipped) = (0, 0);
    for (ports, addresses) in subsets(endpoints) {
        let ports = ports_of(ports.into_iter());
        // Those that are not ready are left out first.
        let mut addresses: Vec<_> = addresses.into_values().collect();
        addresses.sort_by_key(|(_, ready)| !ready);
        let mut added = 0;
        for (address, ready) in addresses {
            if added >= MOST {
                skipped += 1;
                continue;
            }
            let Ok(ip) = tree::text(address, "/ip").parse::<IpAddr>() else {
                invalid += 1;
                continue;
            };
            let family = if ip.is_ipv4() { "IPv4" } else { "IPv6" };
            let (_, mirrored) =
                wanted.entry((family, ports.to_string())).or_insert_with(|| (ports.clone(), Vec::new()));
            mirrored.push(endpoint(address, ip, ready));
            added += 1;
        }
    }
    if invalid > 0 {
        let message = format!("Skipped {invalid} invalid IP addresses when mirroring to EndpointSlices");
        plan.warn(KIND, endpoints, "InvalidIPAddress", message);
    }
    if skipped > 0 {
        let skipped = skipped + invalid;
        let message = format!(
            "A max of {MOST} addresses can be mirrored to EndpointSlices per Endpoints subset. {skipped} addresses were \
             skipped"
        );
        plan.warn(KIND, endpoints, "TooManyAddressesToMirror", message);
    }
    wanted
}

fn endpoint(address: &Value, ip: IpAddr, ready: bool) -> Value {
    let mut endpoint = json!({ "addresses": [ip.to_string()], "conditions": { "ready": ready } });
    for field in ["targetRef", "nodeName", "hostname"] {
        if let Some(value) = address.get(field) {
            endpoint[field] = value.clone();
        }
    }
    endpoint
}

/// One slice for each family and set of ports; one that is of no use any more becomes another of its family.
fn settle(endpoints: &Value, wanted: Wanted, stored: Vec<Value>, plan: &mut Plan) {
    let mut by_ports: BTreeMap<(String, String), VecDeque<Value>> = BTreeMap::new();
    for slice in stored {
        let key = (
            tree::text(&slice, "/addressType").to_owned(),
            ports_of(tree::items(&slice, "/ports")).to_string(),
        );
        by_ports.entry(key).or_default().push_back(slice);
    }
    let mut fresh = Vec::new();
    for ((family, ports), (port_list, mirrored)) in wanted {
        let slice = slice(endpoints, family, port_list, mirrored);
        match by_ports.get_mut(&(family.to_owned(), ports)).and_then(VecDeque::pop_front) {
            Some(old) => replace(old, slice, plan),
            None => fresh.push(slice),
        }
    }
    let mut spare: Vec<Value> = by_ports.into_values().flatten().collect();
    for slice in fresh {
        let family = tree::text(&slice, "/addressType");
        match spare.iter().position(|old| tree::text(old, "/addressType") == family) {
            Some(at) => replace(spare.remove(at), slice, plan),
            None if tree::is_deleting(endpoints) => {}
            None => plan.then(Action::create(kind::SLICES, slice)),
        }
    }
    for slice in &spare {
        plan.then(Action::delete(kind::SLICES, slice));
    }
}

/// Makes `old` say what `new` says, unless it does.
fn replace(mut old: Value, new: Value, plan: &mut Plan) {
    const METADATA: [&str; 2] = ["labels", "annotations"];
    let is_same = ["endpoints", "ports"].iter().all(|field| tree::same(&old[*field], &new[*field]))
        && METADATA.iter().all(|field| tree::same(&old["metadata"][*field], &new["metadata"][*field]));
    if is_same {
        return;
    }
    for field in ["endpoints", "ports"] {
        old[field] = new[field].clone();
    }
    for field in METADATA {
        old["metadata"][field] = new["metadata"][field].clone();
    }
    plan.then(Action::Replace { kind: kind::SLICES, object: old });
}

fn slice(endpoints: &Value, family: &str, ports: Value, mirrored: Vec<Value>) -> Value {
    let copied = |pointer: &str| -> Map<String, Value> {
        tree::members(endpoints, pointer).map(|(key, value)| (key.to_owned(), value.clone())).collect()
    };
    let mut labels = copied("/metadata/labels");
    labels.insert(SERVICE.to_owned(), tree::name(endpoints).into());
    labels.insert(MANAGED_BY.to_owned(), MANAGER.into());
    let mut annotations = copied("/metadata/annotations");
    annotations.retain(|key, _| key != TRIGGER && key != APPLIED);
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "generateName": format!("{}-", tree::name(endpoints)),
            "namespace": tree::namespace(endpoints),
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [tree::controller_reference(KIND, endpoints)],
        },
        "addressType": family, "ports": ports, "endpoints": mirrored,
    })
}
