//! Reading objects as JSON trees. Paths are JSON pointers.

use std::collections::BTreeMap;

use compact_str::CompactString;
use jiff::Timestamp;
use machinery::quantity::Quantity;
use serde_json::{Value, json};

use crate::{Kind, pod::HostPort};

/// Empty if it is not there.
pub fn text<'a>(tree: &'a Value, pointer: &str) -> &'a str {
    tree.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

pub fn number(tree: &Value, pointer: &str) -> Option<i64> {
    tree.pointer(pointer).and_then(Value::as_i64)
}

pub fn flag(tree: &Value, pointer: &str) -> bool {
    tree.pointer(pointer).and_then(Value::as_bool).unwrap_or(false)
}

pub fn time(tree: &Value, pointer: &str) -> Option<Timestamp> {
    text(tree, pointer).parse().ok()
}

/// Of a list; nothing if there is none.
pub fn items<'a>(tree: &'a Value, pointer: &str) -> std::slice::Iter<'a, Value> {
    tree.pointer(pointer).and_then(Value::as_array).map_or(&[][..], Vec::as_slice).iter()
}

/// Of an object; nothing if there is none.
pub fn members<'a>(tree: &'a Value, pointer: &str) -> impl Iterator<Item = (&'a str, &'a Value)> {
    let object = tree.pointer(pointer).and_then(Value::as_object);
    object.into_iter().flatten().map(|(key, value)| (key.as_str(), value))
}

pub fn namespace(tree: &Value) -> &str {
    text(tree, "/metadata/namespace")
}

pub fn name(tree: &Value) -> &str {
    text(tree, "/metadata/name")
}

pub fn uid(tree: &Value) -> &str {
    text(tree, "/metadata/uid")
}

pub fn is_deleting(tree: &Value) -> bool {
    tree.pointer("/metadata/deletionTimestamp").is_some()
}

/// Empty if it is not there.
pub fn annotation<'a>(tree: &'a Value, key: &str) -> &'a str {
    let annotations = tree.pointer("/metadata/annotations");
    annotations.and_then(|all| all.get(key)).and_then(Value::as_str).unwrap_or_default()
}

/// Empty if it is not there.
pub fn label<'a>(tree: &'a Value, key: &str) -> &'a str {
    let labels = tree.pointer("/metadata/labels");
    labels.and_then(|all| all.get(key)).and_then(Value::as_str).unwrap_or_default()
}

/// As selectors want them.
pub fn labels(tree: &Value, pointer: &str) -> Vec<(CompactString, CompactString)> {
    let label = |(key, value): (&str, &Value)| (key.into(), value.as_str().unwrap_or_default().into());
    members(tree, pointer).map(label).collect()
}

/// How events and others refer to an object.
pub fn reference(kind: Kind, object: &Value) -> Value {
    json!({
        "apiVersion": kind.api_version(), "kind": kind.kind, "namespace": namespace(object), "name": name(object),
        "uid": uid(object), "resourceVersion": text(object, "/metadata/resourceVersion"),
    })
}

/// Nothing, as members that upstream leaves out when they have no value.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.values().all(is_empty),
    }
}

/// Whether two trees say the same: a member that has no value is as good as none.
pub fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Object(a), Value::Object(b)) => {
            a.iter().all(|(key, value)| same(value, b.get(key).unwrap_or(&Value::Null)))
                && b.iter().all(|(key, value)| a.contains_key(key) || is_empty(value))
        }
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (a, b) => a == b || (is_empty(a) && is_empty(b)),
    }
}

/// `object` without members that have no value, except those `kept`.
pub fn compact(mut object: Value, kept: &[&str]) -> Value {
    if let Value::Object(members) = &mut object {
        members.retain(|key, value| kept.contains(&key.as_str()) || !is_empty(value));
    }
    object
}

/// The status condition of this type.
pub fn condition<'a>(tree: &'a Value, kind: &str) -> Option<&'a Value> {
    items(tree, "/status/conditions").find(|condition| text(condition, "/type") == kind)
}

/// The owner reference that says it controls.
pub fn controller(tree: &Value) -> Option<&Value> {
    items(tree, "/metadata/ownerReferences").find(|owner| flag(owner, "/controller"))
}

/// A reference by which `owner` controls what it makes.
pub fn controller_reference(kind: Kind, owner: &Value) -> Value {
    json!({
        "apiVersion": kind.api_version(), "kind": kind.kind, "name": name(owner), "uid": uid(owner),
        "controller": true, "blockOwnerDeletion": true,
    })
}

/// As `metadata.creationTimestamp` has it: whole seconds.
pub fn time_text(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second()).unwrap_or(time).to_string()
}

/// An amount in thousandths for cpu, whole for everything else, rounded up.
pub fn amount(resource: &str, quantity: &str) -> u64 {
    let Ok(quantity) = quantity.parse::<Quantity>() else { return 0 };
    let amount = if resource == "cpu" { quantity.milli_value() } else { quantity.value() };
    u64::try_from(amount).unwrap_or(0)
}

/// What a pod asks of a node: its containers together, or its largest init container if that is more, and its overhead.
pub fn requests(pod: &Value) -> Box<[(CompactString, u64)]> {
    let mut sum: BTreeMap<CompactString, u64> = BTreeMap::new();
    let mut running: BTreeMap<CompactString, u64> = BTreeMap::new();
    let mut most: BTreeMap<CompactString, u64> = BTreeMap::new();
    let of = |container: &Value| -> Vec<(CompactString, u64)> {
        let asked = members(container, "/resources/requests");
        asked.map(|(key, value)| (key.into(), amount(key, value.as_str().unwrap_or_default()))).collect()
    };
    for container in items(pod, "/spec/containers") {
        for (resource, asked) in of(container) {
            *sum.entry(resource).or_default() += asked;
        }
    }
    for container in items(pod, "/spec/initContainers") {
        // One that stays runs beside all that follow it.
        let stays = text(container, "/restartPolicy") == "Always";
        for (resource, asked) in of(container) {
            let beside = running.get(&resource).copied().unwrap_or(0);
            let peak = most.entry(resource.clone()).or_default();
            *peak = (*peak).max(beside + asked);
            if stays {
                *running.entry(resource).or_default() += asked;
            }
        }
    }
    for (resource, asked) in running {
        *sum.entry(resource).or_default() += asked;
    }
    for (resource, peak) in most {
        let asked = sum.entry(resource).or_default();
        *asked = (*asked).max(peak);
    }
    for (resource, value) in members(pod, "/spec/overhead") {
        *sum.entry(resource.into()).or_default() += amount(resource, value.as_str().unwrap_or_default());
    }
    sum.into_iter().collect()
}

/// Ports that the containers of a pod take on their node.
pub fn host_ports(pod: &Value) -> Box<[HostPort]> {
    let ports = items(pod, "/spec/containers").flat_map(|container| items(container, "/ports"));
    let on_host = ports.filter_map(|port| {
        let number = number(port, "/hostPort").filter(|number| *number > 0)?;
        let (address, protocol) = (text(port, "/hostIP").into(), text(port, "/protocol").into());
        Some(HostPort { address, protocol, number })
    });
    on_host.collect()
}
