//! Services: which pods are behind them, as EndpointSlices and as Endpoints.

mod endpoints;
mod mirror;
mod slices;

use std::sync::Arc;

use jiff::Timestamp;
use machinery::selector::LabelSelector;
use serde_json::Value;

use super::{Changed, Name, claim};
use crate::{Kind, Pod, World, kind, tree};

pub use endpoints::{Endpoints, Leftovers};
pub use mirror::Mirrors;
pub use slices::Slices;

const KIND: Kind = kind::SERVICES;
const HEADLESS: &str = "service.kubernetes.io/headless";
const TRIGGER: &str = "endpoints.kubernetes.io/last-change-trigger-time";
/// On slices: of which Service they are, and who writes them.
const SERVICE: &str = "kubernetes.io/service-name";
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";

/// `None`: somebody else says what is behind it.
fn selector(service: &Value) -> Option<LabelSelector> {
    if tree::text(service, "/spec/type") == "ExternalName" {
        return None;
    }
    let labels = service.pointer("/spec/selector")?.as_object()?;
    let labels = labels.iter().map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()));
    Some(LabelSelector::from_labels(labels))
}

fn is_headless(service: &Value) -> bool {
    matches!(tree::text(service, "/spec/clusterIP"), "" | "None")
}

fn publishes_unready(service: &Value) -> bool {
    tree::flag(service, "/spec/publishNotReadyAddresses")
}

/// Services that a change of a pod is news to.
fn wakes(world: &dyn World, changed: &Changed<'_>) -> Vec<Name> {
    let (old, new) = (changed.old.map(Pod::of), changed.new.map(Pod::of));
    let facts = |pod: &Pod| {
        (
            pod.ip.clone(),
            pod.ready,
            pod.terminating.is_some(),
            pod.phase,
            pod.node.clone(),
            pod.labels.clone(),
        )
    };
    if old.as_ref().map(facts) == new.as_ref().map(facts) {
        return Vec::new();
    }
    let pods: Vec<Pod> = old.into_iter().chain(new).collect();
    let services = world.list(KIND, Some(tree::namespace(changed.object())));
    let selects = |service: &&Value| {
        selector(service).is_some_and(|selector| pods.iter().any(|pod| selector.matches(&pod.labels)))
    };
    services.iter().filter(selects).map(claim::name_of).collect()
}

/// Pods that have an address and have not ended.
fn pods(world: &dyn World, service: &Value, selector: &LabelSelector) -> Vec<Arc<Pod>> {
    let mut pods = world.pods(tree::namespace(service));
    pods.retain(|pod| !pod.ip.is_empty() && !pod.is_finished() && selector.matches(&pod.labels));
    pods
}

/// Only pods that are known by this service's name have a name of their own there.
fn hostname<'a>(pod: &'a Pod, service: &Value) -> Option<&'a str> {
    let is_named = !pod.hostname.is_empty() && pod.subdomain == tree::name(service);
    is_named.then_some(pod.hostname.as_str())
}

/// The number behind a service's port at this pod.
fn port_number(pod: &Pod, port: &Value) -> Option<i64> {
    match port.get("targetPort") {
        Some(Value::String(name)) => {
            let protocol = tree::text(port, "/protocol");
            let found = pod.ports.iter().find(|it| it.name == name.as_str() && it.protocol == protocol);
            found.map(|it| i64::from(it.number))
        }
        Some(Value::Number(number)) => number.as_i64(),
        _ => tree::number(port, "/port"),
    }
}

/// What of `pods` made the endpoints change, for who measures how long that took: the first to become ready, or not, of
/// those that are new or different. Pods that go are no such moment.
fn trigger<'a>(pods: impl Iterator<Item = &'a Arc<Pod>>) -> Option<Timestamp> {
    pods.filter(|pod| pod.terminating.is_none()).filter_map(|pod| pod.ready_changed).min()
}

/// Sets or removes the annotation.
fn set_trigger(object: &mut Value, time: Option<Timestamp>) {
    if let Some(time) = time {
        object["metadata"]["annotations"][TRIGGER] = tree::time_text(time).into();
    } else if let Some(annotations) =
        object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut)
    {
        annotations.remove(TRIGGER);
    }
}

fn target(pod: &Pod) -> Value {
    serde_json::json!({
        "kind": "Pod", "namespace": pod.namespace.as_str(), "name": pod.name.as_str(), "uid": pod.uid.as_str(),
    })
}

/// Ports as slices have them, whatever order their members are stored in.
fn ports_of<'a>(ports: impl Iterator<Item = &'a Value>) -> Value {
    let ports = ports.map(|port| {
        let mut found = serde_json::json!({
            "name": tree::text(port, "/name"), "port": tree::number(port, "/port"),
            "protocol": tree::text(port, "/protocol"),
        });
        if let Some(app) = port.get("appProtocol") {
            found["appProtocol"] = app.clone();
        }
        found
    });
    ports.collect()
}
