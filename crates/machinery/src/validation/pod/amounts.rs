//! Sums of what containers ask for, and the class of service that follows.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::super::parts::{entries, is_huge_pages, is_overcommit_allowed, items, object, text};
use crate::{quantity::Quantity, resource::Tree};

pub type Amounts = BTreeMap<String, Quantity>;

/// `resources.requests` or `resources.limits` of a container, or of a pod.
pub fn amounts(holder: &Tree, list: &str) -> Amounts {
    let resources = object(holder, "resources");
    resources.map(|resources| amounts_in(resources, list)).unwrap_or_default()
}

pub fn amounts_in(resources: &Tree, list: &str) -> Amounts {
    entries(resources, list)
        .filter_map(|(name, value)| Some((name.to_owned(), Quantity::parse(value.as_str()?).ok()?)))
        .collect()
}

fn add(sum: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        let total = sum.get(name).map_or_else(|| amount.clone(), |sum| sum.add(amount));
        sum.insert(name.clone(), total);
    }
}

fn raise(most: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        if most.get(name).is_none_or(|most| amount > most) {
            most.insert(name.clone(), amount.clone());
        }
    }
}

/// Whether an init container keeps running beside the containers.
pub fn is_sidecar(container: &Tree) -> bool {
    text(container, "restartPolicy") == "Always"
}

/// What a pod's containers need together at any time: all containers with the sidecars, or what an init container
/// needs beside the sidecars that started before it, whichever is more.
pub fn aggregate(spec: &Tree, list: &str) -> Amounts {
    let mut total = Amounts::new();
    for (_, container) in items(spec, "containers") {
        add(&mut total, &amounts(container, list));
    }
    let mut sidecars = Amounts::new();
    let mut at_start = Amounts::new();
    for (_, container) in items(spec, "initContainers") {
        let own = amounts(container, list);
        if is_sidecar(container) {
            add(&mut total, &own);
            add(&mut sidecars, &own);
        }
        // What the container does not ask for is as it was.
        let beside = own.into_iter().map(|(name, amount)| match sidecars.get(&name) {
            Some(sum) if is_sidecar(container) => (name, sum.clone()),
            Some(sum) => (name, amount.add(sum)),
            None => (name, amount),
        });
        raise(&mut at_start, &beside.collect());
    }
    raise(&mut total, &at_start);
    total
}

/// What can be asked for a pod as a whole.
pub fn is_pod_level(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || is_huge_pages(name)
}

/// What the containers ask for also holds for the pod, where it has resources of its own.
pub fn default_pod_level(spec: &mut Tree) {
    let (has_limits, has_requests) = match object(spec, "resources") {
        Some(resources) => (object(resources, "limits").is_some(), object(resources, "requests").is_some()),
        None => return,
    };
    if !has_limits && !has_requests {
        return;
    }
    let mut limits = amounts(spec, "limits");
    let mut requests = amounts(spec, "requests");
    for (name, amount) in aggregate(spec, "limits") {
        if is_huge_pages(&name) && !requests.contains_key(&name) {
            limits.entry(name).or_insert(amount);
        }
    }
    if !limits.is_empty() {
        for (name, amount) in aggregate(spec, "requests") {
            if is_pod_level(&name) && is_overcommit_allowed(&name) {
                requests.entry(name).or_insert(amount);
            }
        }
        for (name, amount) in &limits {
            if is_pod_level(name) {
                requests.entry(name.clone()).or_insert_with(|| amount.clone());
            }
        }
    }
    let Some(resources) = spec.get_mut("resources").and_then(Value::as_object_mut) else { return };
    for (list, amounts) in [("limits", limits), ("requests", requests)] {
        add_missing(resources, list, &amounts);
    }
}

/// Adds to a list what it does not have, and leaves the texts of the rest alone.
fn add_missing(resources: &mut Tree, list: &str, amounts: &Amounts) {
    if amounts.is_empty() {
        return;
    }
    let members = resources.entry(list).or_insert_with(|| json!({}));
    let Some(members) = members.as_object_mut() else { return };
    for (name, amount) in amounts {
        members.entry(name.as_str()).or_insert_with(|| json!(amount.to_string()));
    }
}

/// A limit that comes without a request is the request.
pub fn default_requests(container: &mut Tree) {
    let limits = amounts(container, "limits");
    if let Some(resources) = container.get_mut("resources").and_then(Value::as_object_mut) {
        add_missing(resources, "requests", &limits);
    }
}

/// Nothing is counted finer than thousandths.
pub fn round_up(holder: &mut Tree, list: &str) {
    for value in holder.get_mut(list).and_then(Value::as_object_mut).into_iter().flat_map(Tree::values_mut) {
        let Some(quantity) = value.as_str().and_then(|text| Quantity::parse(text).ok()) else { continue };
        let milli = quantity.milli_value();
        let rounded = Quantity::from_milli(milli, quantity.format());
        if rounded != quantity && milli != i64::MAX && milli != i64::MIN {
            *value = json!(rounded.to_string());
        }
    }
}

/// `BestEffort`, `Burstable` or `Guaranteed`.
pub fn quality_of_service(spec: &Tree) -> &'static str {
    let mut requests = Amounts::new();
    let mut limits = Amounts::new();
    let mut all_limited = true;
    let mut count = |holder: &Tree, without_limits_too: bool| {
        let own = counted(amounts(holder, "limits"));
        if without_limits_too || !amounts(holder, "limits").is_empty() {
            all_limited &= own.contains_key("cpu") && own.contains_key("memory");
        }
        add(&mut limits, &own);
        add(&mut requests, &counted(amounts(holder, "requests")));
    };
    if object(spec, "resources").is_some() {
        count(spec, false);
    } else {
        items(spec, "containers").for_each(|(_, container)| count(container, true));
        items(spec, "initContainers").for_each(|(_, container)| count(container, true));
    }
    if requests.is_empty() && limits.is_empty() {
        return "BestEffort";
    }
    if all_limited && requests == limits { "Guaranteed" } else { "Burstable" }
}

/// Only these make a class of service, and only more than none of them.
fn counted(mut amounts: Amounts) -> Amounts {
    amounts.retain(|name, amount| matches!(name.as_str(), "cpu" | "memory") && *amount > Quantity::ZERO);
    amounts
}
