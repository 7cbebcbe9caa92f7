//! Endpoints: the same in one object, as it was before there were slices.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};

use super::{
    HEADLESS, KIND, hostname, is_headless, mirror, port_number, publishes_unready, selector, target, trigger,
};
use crate::{
    Action, Kind, Plan, Pod, World,
    controllers::{Changed, Controller, Name, claim},
    kind, tree,
};

const MOST: usize = 1000;
const MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
const MANAGER: &str = "endpoint-controller";
const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";

pub struct Endpoints;

impl Controller for Endpoints {
    fn kind(&self) -> Kind {
        KIND
    }

    fn name(&self) -> &'static str {
        "endpoint-controller"
    }

    fn listens_to(&self) -> &'static [Kind] {
        &[kind::PODS]
    }

    fn wakes(&self, world: &dyn World, changed: &Changed<'_>) -> Vec<Name> {
        super::wakes(world, changed)
    }

    fn reconcile(&self, world: &dyn World, service: &Value) -> Plan {
        let mut plan = Plan::nothing();
        let Some(selector) = selector(service) else { return plan };
        if tree::is_deleting(service) {
            return plan;
        }
        let mut pods = super::pods(world, service, &selector);
        pods.retain(|pod| pod.terminating.is_none() || publishes_unready(service));
        let (subsets, is_cut) = subsets(service, &mut pods);
        let (namespace, name) = (tree::namespace(service), tree::name(service));
        let stored = world.get(kind::ENDPOINTS, namespace, name);
        let is_new = stored.is_none();
        let mut object = stored.unwrap_or_else(|| {
            json!({
                "apiVersion": "v1", "kind": "Endpoints",
                "metadata": { "name": name, "namespace": namespace },
            })
        });
        let labels = labels(service);
        let was_cut = !tree::annotation(&object, OVER_CAPACITY).is_empty();
        let same = tree::same(&object["subsets"], &subsets)
            && tree::same(&object["metadata"]["labels"], &labels)
            && was_cut == is_cut;
        if same && !is_new {
            return plan;
        }
        let news = pods.iter().filter(|pod| is_news(&object, service, pod));
        let time =
            trigger(news).or_else(|| tree::time(service, "/metadata/creationTimestamp").filter(|_| is_new));
        object["subsets"] = subsets;
        object["metadata"]["labels"] = labels;
        super::set_trigger(&mut object, time);
        if is_cut {
            object["metadata"]["annotations"][OVER_CAPACITY] = "truncated".into();
        } else if let Some(annotations) =
            object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut)
        {
            annotations.remove(OVER_CAPACITY);
        }
        plan.then(match is_new {
            true => Action::create(kind::ENDPOINTS, object),
            false => Action::Replace { kind: kind::ENDPOINTS, object },
        });
        plan
    }
}

/// It was not there, or not as it is now.
fn is_news(stored: &Value, service: &Value, pod: &Pod) -> bool {
    let place = if pod.ready || publishes_unready(service) { "/addresses" } else { "/notReadyAddresses" };
    let mut addresses = tree::items(stored, "/subsets").flat_map(|subset| tree::items(subset, place));
    !addresses.any(|address| tree::text(address, "/targetRef/uid") == pod.uid)
}

fn labels(service: &Value) -> Value {
    let mut labels = service.pointer("/metadata/labels").cloned().unwrap_or_else(|| json!({}));
    if let Some(labels) = labels.as_object_mut() {
        labels.remove(HEADLESS);
    }
    if is_headless(service) {
        labels[HEADLESS] = "".into();
    }
    labels[MANAGED_BY] = MANAGER.into();
    labels
}

/// One subset for every combination of ports; and whether there are more addresses than an object may hold. Those that
/// are not ready are left out first.
fn subsets(service: &Value, pods: &mut [Arc<Pod>]) -> (Value, bool) {
    let is_ready = |pod: &Pod| pod.ready || publishes_unready(service);
    pods.sort_by_cached_key(|pod| (!is_ready(pod), pod.ip.clone(), pod.uid.clone()));
    let mut by_ports: BTreeMap<String, (Value, Vec<Value>, Vec<Value>)> = BTreeMap::new();
    for pod in pods.iter().take(MOST) {
        let ports = ports(service, pod);
        let is_bare = tree::items(service, "/spec/ports").len() == 0 && is_headless(service);
        if ports.as_array().is_none_or(Vec::is_empty) && !is_bare {
            continue;
        }
        let (_, ready, unready) =
            by_ports.entry(ports.to_string()).or_insert_with(|| (ports, Vec::new(), Vec::new()));
        if is_ready(pod) { ready.push(address(service, pod)) } else { unready.push(address(service, pod)) }
    }
    let subset = |(ports, ready, unready): (Value, Vec<Value>, Vec<Value>)| {
        tree::compact(json!({ "addresses": ready, "notReadyAddresses": unready, "ports": ports }), &[])
    };
    (by_ports.into_values().map(subset).collect(), pods.len() > MOST)
}

fn ports(service: &Value, pod: &Pod) -> Value {
    let mut ports: Vec<Value> = tree::items(service, "/spec/ports")
        .filter_map(|port| {
            let mut found =
                json!({ "port": port_number(pod, port)?, "protocol": tree::text(port, "/protocol") });
            for field in ["name", "appProtocol"] {
                if let Some(value) = port.get(field) {
                    found[field] = value.clone();
                }
            }
            Some(found)
        })
        .collect();
    ports.sort_by_cached_key(|port| (tree::text(port, "/name").to_owned(), tree::number(port, "/port")));
    ports.into()
}

fn address(service: &Value, pod: &Pod) -> Value {
    let mut address = json!({ "ip": pod.ip.as_str(), "targetRef": target(pod) });
    if !pod.node.is_empty() {
        address["nodeName"] = pod.node.as_str().into();
    }
    if let Some(hostname) = hostname(pod, service) {
        address["hostname"] = hostname.into();
    }
    address
}

/// Deletes Endpoints of Services that are gone. Those that others wrote show by their mirror that there was a Service.
pub struct Leftovers;

impl Controller for Leftovers {
    fn kind(&self) -> Kind {
        kind::ENDPOINTS
    }

    fn name(&self) -> &'static str {
        "endpoint-controller"
    }

    fn listens_to(&self) -> &'static [Kind] {
        &[KIND]
    }

    fn wakes(&self, _world: &dyn World, changed: &Changed<'_>) -> Vec<Name> {
        if changed.new.is_some() { Vec::new() } else { vec![claim::name_of(changed.object())] }
    }

    fn reconcile(&self, world: &dyn World, endpoints: &Value) -> Plan {
        let mut plan = Plan::nothing();
        if world.get(KIND, tree::namespace(endpoints), tree::name(endpoints)).is_some() {
            return plan;
        }
        let is_ours = tree::label(endpoints, MANAGED_BY) == MANAGER;
        if is_ours || !mirror::stored(world, endpoints).is_empty() {
            plan.then(Action::delete(kind::ENDPOINTS, endpoints));
        }
        plan
    }
}
