//! Lists of resources with amounts, and what a pod needs of them.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{
    quantity::Quantity,
    resource::Tree,
    validation::parts::{entries, is_huge_pages, items, object, text},
};

/// Amounts by the name of the resource.
pub type Amounts = BTreeMap<String, Quantity>;

/// The amounts in the list `key` of `holder`. What is no quantity is left out: validation has its say elsewhere.
pub fn amounts_in(holder: &Tree, key: &str) -> Amounts {
    entries(holder, key)
        .filter_map(|(name, value)| Some((name.to_owned(), Quantity::parse(value.as_str()?).ok()?)))
        .collect()
}

/// `resources.requests` or `resources.limits` of a container or a pod.
pub fn amounts_of(holder: &Tree, list: &str) -> Amounts {
    object(holder, "resources").map(|resources| amounts_in(resources, list)).unwrap_or_default()
}

/// As the API spells them.
pub fn to_tree(amounts: &Amounts) -> Tree {
    amounts.iter().map(|(name, amount)| (name.clone(), Value::String(amount.to_string()))).collect()
}

/// `cpu=1,memory=1Gi`
pub fn text_of(amounts: &Amounts) -> String {
    amounts.iter().map(|(name, amount)| format!("{name}={amount}")).collect::<Vec<_>>().join(",")
}

pub fn add(sum: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        let total = sum.get(name).map_or_else(|| amount.clone(), |sum| sum.add(amount));
        sum.insert(name.clone(), total);
    }
}

/// The larger of each.
pub fn raise(most: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        if most.get(name).is_none_or(|most| amount > most) {
            most.insert(name.clone(), amount.clone());
        }
    }
}

/// What of `now` was not there `before`; nothing is negative.
pub fn growth(now: &Amounts, before: &Amounts) -> Amounts {
    let grown = now.iter().map(|(name, amount)| {
        let more = before.get(name).map_or_else(|| amount.clone(), |before| amount.sub(before));
        (name.clone(), more)
    });
    grown.filter(|(_, more)| *more > Quantity::ZERO).collect()
}

/// Which resources of a pod's own count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodLevel {
    /// As limit ranges have it: processor and memory.
    Basic,
    /// Huge pages too.
    Full,
}

impl PodLevel {
    fn has(self, name: &str) -> bool {
        matches!(name, "cpu" | "memory") || (self == PodLevel::Full && is_huge_pages(name))
    }
}

/// How to find what a pod needs.
#[derive(Clone, Copy, Debug)]
pub struct PodOptions {
    /// What kubelets report to have granted counts while a resize is under way.
    pub with_status: bool,
    /// What running it costs beside its containers.
    pub with_overhead: bool,
    pub level: PodLevel,
}

/// What a pod asks for, or is limited to: `list` is `requests` or `limits`.
pub fn of_pod(pod: &Tree, list: &str, options: PodOptions) -> Amounts {
    let empty = Tree::new();
    let spec = object(pod, "spec").unwrap_or(&empty);
    let mut total = aggregate(pod, spec, list, options);
    of_whole_pod(spec, list, options.level, &mut total);
    if options.with_overhead {
        let mut overhead = amounts_in(spec, "overhead");
        // Of what is not limited, overhead makes no limit.
        overhead
            .retain(|name, _| list == "requests" || total.get(name).is_some_and(|limit| !limit.is_zero()));
        add(&mut total, &overhead);
    }
    total
}

/// What is asked for the pod as a whole takes the place of what its containers ask for.
fn of_whole_pod(spec: &Tree, list: &str, level: PodLevel, total: &mut Amounts) {
    total.extend(amounts_of(spec, list).into_iter().filter(|(name, _)| level.has(name)));
}

/// Whether an init container keeps running beside the containers.
fn is_sidecar(container: &Tree) -> bool {
    text(container, "restartPolicy") == "Always"
}

fn aggregate(pod: &Tree, spec: &Tree, list: &str, options: PodOptions) -> Amounts {
    let mut total = Amounts::new();
    for (_, container) in items(spec, "containers") {
        add(&mut total, &of_container(pod, container, list, options.with_status));
    }
    let mut sidecars = Amounts::new();
    let mut at_start = Amounts::new();
    for (_, container) in items(spec, "initContainers") {
        let sidecar = is_sidecar(container);
        let mut needed = of_container(pod, container, list, options.with_status && sidecar);
        if sidecar {
            add(&mut total, &needed);
            add(&mut sidecars, &needed);
            needed = sidecars.clone();
        } else {
            add(&mut needed, &sidecars);
        }
        raise(&mut at_start, &needed);
    }
    raise(&mut total, &at_start);
    total
}

fn of_container(pod: &Tree, container: &Tree, list: &str, with_status: bool) -> Amounts {
    let wanted = amounts_of(container, list);
    let Some(status) = object(pod, "status").filter(|_| with_status) else { return wanted };
    let name = text(container, "name");
    // Upstream keeps the later of two of a name.
    let reported = ["containerStatuses", "initContainerStatuses"]
        .into_iter()
        .flat_map(|key| items(status, key))
        .filter(|(_, it)| text(it, "name") == name)
        .last();
    match reported.and_then(|(_, it)| Some((it, object(it, "resources")?))) {
        Some((it, granted)) => {
            let allocated = amounts_in(it, "allocatedResources");
            effective(pod, list, wanted, amounts_in(granted, list), allocated)
        }
        None => wanted,
    }
}

/// What counts while a resize is under way: the most of what is wanted, allocated and granted; what is wanted does not
/// count once it is known to be impossible.
fn effective(pod: &Tree, list: &str, wanted: Amounts, granted: Amounts, allocated: Amounts) -> Amounts {
    let mut most = if is_resize_impossible(pod) { Amounts::new() } else { wanted };
    raise(&mut most, &granted);
    if list == "requests" {
        raise(&mut most, &allocated);
    }
    most
}

fn is_resize_impossible(pod: &Tree) -> bool {
    let Some(status) = object(pod, "status") else { return false };
    let pending = items(status, "conditions").find(|(_, it)| text(it, "type") == "PodResizePending");
    pending.is_some_and(|(_, it)| text(it, "reason") == "Infeasible")
}

/// Whether anything is asked for the pod as a whole.
pub fn has_pod_level(spec: &Tree) -> bool {
    let has = |list| amounts_of(spec, list).keys().any(|name| PodLevel::Full.has(name));
    has("requests") || has("limits")
}
