//! EndpointSlices: up to a hundred endpoints each, changed as little as possible.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    HEADLESS, KIND, MANAGED_BY, SERVICE, TRIGGER, hostname, is_headless, port_number, ports_of,
    publishes_unready, selector, target,
};
use crate::{
    Action, Kind, Plan, Pod, World,
    controllers::{Changed, Controller, Name},
    kind, tree,
};

const MOST: usize = 100;
const MANAGER: &str = "endpointslice-controller.k8s.io";

pub struct Slices;

impl Controller for Slices {
    fn kind(&self) -> Kind {
        KIND
    }

    fn name(&self) -> &'static str {
        "endpointslice-controller"
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
        let pods = super::pods(world, service, &selector);
        let mut stored = world.owned(kind::SLICES, tree::namespace(service), tree::uid(service));
        stored.retain(|slice| tree::label(slice, MANAGED_BY) == MANAGER);
        let families = families(service);
        let time = super::trigger(pods.iter().filter(|pod| is_news(&stored, pod)));
        let is_new = stored.is_empty();
        let time = time.or_else(|| tree::time(service, "/metadata/creationTimestamp").filter(|_| is_new));
        let mut work = Work { world, service, trigger: time, plan: Plan::nothing() };
        for family in &families {
            let of_family = |slice: &&Value| tree::text(slice, "/addressType") == *family;
            let stored: Vec<Value> = stored.iter().filter(of_family).cloned().collect();
            let wanted = work.wanted(&pods, family);
            work.settle(family, wanted, stored);
        }
        for slice in stored.iter().filter(|slice| !families.contains(&tree::text(slice, "/addressType"))) {
            work.plan.then(Action::delete(kind::SLICES, slice));
        }
        plan = work.plan;
        plan
    }
}

fn families(service: &Value) -> Vec<&str> {
    let families: Vec<&str> = tree::items(service, "/spec/ipFamilies").filter_map(Value::as_str).collect();
    if families.is_empty() { vec!["IPv4"] } else { families }
}

/// It was not there, or not as it is now.
fn is_news(stored: &[Value], pod: &Pod) -> bool {
    let mut endpoints = stored.iter().flat_map(|slice| tree::items(slice, "/endpoints"));
    !endpoints.any(|endpoint| {
        tree::text(endpoint, "/targetRef/uid") == pod.uid
            && tree::flag(endpoint, "/conditions/serving") == pod.ready
    })
}

fn is_of_family(address: &str, family: &str) -> bool {
    address.contains(':') == (family == "IPv6")
}

/// By ports as text: the ports, and endpoints by the pod they are of.
type Wanted = BTreeMap<String, (Value, BTreeMap<String, Value>)>;

struct Work<'a> {
    world: &'a dyn World,
    service: &'a Value,
    /// What made them change, if it was a pod that became ready or not.
    trigger: Option<Timestamp>,
    plan: Plan,
}

impl Work<'_> {
    fn wanted(&self, pods: &[Arc<Pod>], family: &str) -> Wanted {
        let mut wanted = Wanted::new();
        let mut zones: BTreeMap<&str, Option<String>> = BTreeMap::new();
        for pod in pods.iter().filter(|pod| is_of_family(&pod.ip, family)) {
            let zone = zones.entry(pod.node.as_str()).or_insert_with(|| {
                let node = self.world.get(kind::NODES, "", &pod.node)?;
                Some(tree::label(&node, "topology.kubernetes.io/zone").to_owned())
            });
            if zone.is_none() && !publishes_unready(self.service) {
                continue;
            }
            let ports = self.ports(pod);
            let (_, endpoints) = wanted.entry(ports.to_string()).or_insert_with(|| (ports, BTreeMap::new()));
            endpoints.insert(pod.uid.to_string(), self.endpoint(pod, zone.as_deref().unwrap_or_default()));
        }
        wanted
    }

    fn ports(&self, pod: &Pod) -> Value {
        let ports = tree::items(self.service, "/spec/ports").filter_map(|port| {
            let mut found = json!({
                "name": tree::text(port, "/name"), "port": port_number(pod, port)?,
                "protocol": tree::text(port, "/protocol"),
            });
            if let Some(app) = port.get("appProtocol") {
                found["appProtocol"] = app.clone();
            }
            Some(found)
        });
        ports.collect()
    }

    fn endpoint(&self, pod: &Pod, zone: &str) -> Value {
        let (serving, terminating) = (pod.ready, pod.terminating.is_some());
        let ready = publishes_unready(self.service) || (serving && !terminating);
        let mut endpoint = json!({
            "addresses": [pod.ip.as_str()],
            "conditions": { "ready": ready, "serving": serving, "terminating": terminating },
            "targetRef": target(pod),
        });
        if !pod.node.is_empty() {
            endpoint["nodeName"] = pod.node.as_str().into();
        }
        if !zone.is_empty() {
            endpoint["zone"] = zone.into();
        }
        if let Some(hostname) = hostname(pod, self.service) {
            endpoint["hostname"] = hostname.into();
        }
        endpoint
    }

    /// What is in a slice already stays there; what is new fills slices that change anyway, then others, then new ones.
    fn settle(&mut self, family: &str, wanted: Wanted, stored: Vec<Value>) {
        let mut spare: Vec<Value> = Vec::new();
        let mut by_ports: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        for slice in stored {
            let ports = ports_of(tree::items(&slice, "/ports")).to_string();
            match wanted.contains_key(&ports) {
                true => by_ports.entry(ports).or_default().push(slice),
                false => spare.push(slice),
            }
        }
        let mut fresh: Vec<Value> = Vec::new();
        let mut kept = false;
        for (key, (ports, endpoints)) in wanted {
            let slices = by_ports.remove(&key).unwrap_or_default();
            kept |= self.settle_ports(family, (ports, endpoints), slices, &mut spare, &mut fresh);
        }
        if !kept && fresh.is_empty() {
            fresh.push(self.slice(family, json!([]), Vec::new()));
        }
        self.write(fresh, spare);
    }

    /// Says whether a stored slice stays.
    fn settle_ports(
        &mut self,
        family: &str,
        (ports, mut endpoints): (Value, BTreeMap<String, Value>),
        slices: Vec<Value>,
        spare: &mut Vec<Value>,
        fresh: &mut Vec<Value>,
    ) -> bool {
        let mut kept: Vec<(Value, Vec<Value>, bool)> = Vec::new();
        for slice in slices {
            let stays = |endpoint: &Value| endpoints.remove(tree::text(endpoint, "/targetRef/uid"));
            let stored: Vec<Value> = tree::items(&slice, "/endpoints").cloned().collect();
            let staying: Vec<Value> = stored.iter().filter_map(stays).collect();
            let changed = staying.len() != stored.len()
                || !staying.iter().zip(&stored).all(|(new, old)| tree::same(new, old))
                || !tree::same(&slice["metadata"]["labels"], &self.labels());
            if staying.is_empty() {
                spare.push(slice);
            } else {
                kept.push((slice, staying, changed));
            }
        }
        let mut added: VecDeque<Value> = endpoints.into_values().collect();
        kept.sort_by_key(|(_, endpoints, changed)| (!changed, std::cmp::Reverse(endpoints.len())));
        for (_, endpoints, changed) in &mut kept {
            let room = MOST - endpoints.len().min(MOST);
            let fits = *changed || added.len() <= room;
            if !added.is_empty() && fits && room > 0 {
                let count = room.min(added.len());
                endpoints.extend(added.drain(..count));
                *changed = true;
            }
        }
        while !added.is_empty() {
            let count = MOST.min(added.len());
            fresh.push(self.slice(family, ports.clone(), added.drain(..count).collect()));
        }
        let any = !kept.is_empty();
        for (mut slice, endpoints, changed) in kept {
            if changed {
                slice["endpoints"] = endpoints.into();
                slice["metadata"]["labels"] = self.labels();
                super::set_trigger(&mut slice, self.trigger);
                self.plan.then(Action::Replace { kind: kind::SLICES, object: slice });
            }
        }
        any
    }

    /// New slices take the place of spare ones; the rest of those go.
    fn write(&mut self, fresh: Vec<Value>, spare: Vec<Value>) {
        let mut spare: VecDeque<Value> = spare.into();
        for slice in fresh {
            let Some(mut old) = spare.pop_front() else {
                self.plan.then(Action::create(kind::SLICES, slice));
                continue;
            };
            let same = |field: &str| tree::same(&old[field], &slice[field]);
            if same("endpoints")
                && same("ports")
                && tree::same(&old["metadata"]["labels"], &slice["metadata"]["labels"])
            {
                continue;
            }
            for field in ["endpoints", "ports"] {
                old[field] = slice[field].clone();
            }
            old["metadata"]["labels"] = slice["metadata"]["labels"].clone();
            old["metadata"]["annotations"] = slice["metadata"]["annotations"].clone();
            self.plan.then(Action::Replace { kind: kind::SLICES, object: old });
        }
        for slice in spare {
            self.plan.then(Action::delete(kind::SLICES, &slice));
        }
    }

    fn slice(&self, family: &str, ports: Value, endpoints: Vec<Value>) -> Value {
        let annotations = match self.trigger {
            Some(time) => json!({ TRIGGER: tree::time_text(time) }),
            None => json!({}),
        };
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {
                "generateName": format!("{}-", tree::name(self.service)),
                "namespace": tree::namespace(self.service),
                "labels": self.labels(),
                "annotations": annotations,
                "ownerReferences": [tree::controller_reference(KIND, self.service)],
            },
            "addressType": family, "ports": ports, "endpoints": endpoints,
        })
    }

    fn labels(&self) -> Value {
        let mut labels = self.service.pointer("/metadata/labels").cloned().unwrap_or_else(|| json!({}));
        if let Some(labels) = labels.as_object_mut() {
            labels.remove(HEADLESS);
        }
        if is_headless(self.service) {
            labels[HEADLESS] = "".into();
        }
        labels[SERVICE] = tree::name(self.service).into();
        labels[MANAGED_BY] = MANAGER.into();
        labels
    }
}
