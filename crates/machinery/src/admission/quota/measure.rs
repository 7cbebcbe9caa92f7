//! What objects of a kind use.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::{
    Change, one,
    scopes::{Scope, is_terminating},
};
use crate::{
    admission::{
        amounts::{self, Amounts, PodLevel, PodOptions, amounts_in, amounts_of},
        classes::{attribute_classes, storage_class},
    },
    quantity::{Format, Quantity},
    resource::Tree,
    validation::parts::{
        is_extended_resource, is_huge_pages, is_native_resource, items, list, number, object, text,
    },
};

const POD_RESOURCES: [&str; 11] = [
    "count/pods",
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
];
const SERVICE_RESOURCES: [&str; 4] =
    ["count/services", "services", "services.nodeports", "services.loadbalancers"];
const CLAIM_RESOURCES: [&str; 2] = ["persistentvolumeclaims", "requests.storage"];
/// What containers must say themselves where a quota limits it.
const TO_BE_SAID: [&str; 6] =
    ["cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"];
/// Kinds of the core group that were counted before all could be.
const ALIASES: [&str; 4] = ["configmaps", "resourcequotas", "replicationcontrollers", "secrets"];
const BY_CLASS: &str = ".storageclass.storage.k8s.io/";
const DEVICE_CLASS: &str = "deviceclass.resource.kubernetes.io/";

/// How the objects of a kind are measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Measure {
    Pods,
    Services,
    Claims,
    /// Every other kind: by their number, under these names.
    Count(Vec<String>),
}

/// Nobody's quota is about these: they come and go by themselves, or are not stored.
pub fn is_ignored(group: &str, resource: &str) -> bool {
    match group {
        "" => matches!(resource, "bindings" | "componentstatuses" | "events"),
        "events.k8s.io" => resource == "events",
        "authentication.k8s.io" => matches!(resource, "tokenreviews" | "selfsubjectreviews"),
        "authorization.k8s.io" => matches!(
            resource,
            "subjectaccessreviews"
                | "selfsubjectaccessreviews"
                | "localsubjectaccessreviews"
                | "selfsubjectrulesreviews"
        ),
        _ => false,
    }
}

impl Measure {
    pub fn of(group: &str, resource: &str) -> Option<Measure> {
        if is_ignored(group, resource) {
            return None;
        }
        Some(match (group, resource) {
            ("", "pods") => Measure::Pods,
            ("", "services") => Measure::Services,
            ("", "persistentvolumeclaims") => Measure::Claims,
            ("", resource) => {
                let alias = ALIASES.contains(&resource).then(|| resource.to_owned());
                Measure::Count([format!("count/{resource}")].into_iter().chain(alias).collect())
            }
            (group, resource) => Measure::Count(vec![format!("count/{resource}.{group}")]),
        })
    }

    /// Whether such objects use the resource called `name` in a quota.
    pub fn has(&self, name: &str) -> bool {
        match self {
            Measure::Pods => {
                POD_RESOURCES.contains(&name)
                    || is_huge_pages(name)
                    || name.strip_prefix("requests.").is_some_and(|asked| {
                        is_huge_pages(asked) || asked.starts_with(DEVICE_CLASS) || !is_native_resource(name)
                    })
            }
            Measure::Services => SERVICE_RESOURCES.contains(&name),
            Measure::Claims => {
                name == "count/persistentvolumeclaims"
                    || CLAIM_RESOURCES.contains(&name)
                    || CLAIM_RESOURCES
                        .iter()
                        .any(|it| name.strip_suffix(it).is_some_and(|class| class.ends_with(BY_CLASS)))
            }
            Measure::Count(names) => names.iter().any(|it| it == name),
        }
    }

    /// Whether a change can use more at all.
    pub fn minds(&self, change: &Change<'_>) -> bool {
        let Change { new, old, subresource, .. } = *change;
        match (self, subresource, old) {
            (_, "", None) => true,
            (Measure::Pods, "", Some(old)) => {
                let ends = |pod| object(pod, "spec").is_some_and(is_terminating);
                ends(new) != ends(old)
            }
            (Measure::Pods, "resize", Some(_)) => true,
            (Measure::Services | Measure::Claims, "", Some(_)) => true,
            (Measure::Claims, "status", Some(old)) => {
                let allocated = |claim: &Tree| {
                    let status = object(claim, "status");
                    status
                        .map(|it| amounts_in(it, "allocatedResources"))
                        .and_then(|it| it.get("storage").cloned())
                };
                allocated(new) != allocated(old) || attribute_classes(new) != attribute_classes(old)
            }
            _ => false,
        }
    }

    pub fn is_in(&self, scope: &Scope, object: &Tree) -> bool {
        match self {
            Measure::Pods => scope.has_pod(object),
            Measure::Claims => scope.has_claim(object),
            Measure::Services | Measure::Count(_) => false,
        }
    }

    pub fn usage(&self, object: &Tree, now: i64) -> Amounts {
        match self {
            Measure::Pods => of_pod(object, now),
            Measure::Services => of_service(object),
            Measure::Claims => of_claim(object),
            Measure::Count(names) => names.iter().map(|name| (name.clone(), one())).collect(),
        }
    }

    /// What of `limited` an object should say how much of it it needs, and does not.
    pub fn missing(&self, limited: &BTreeSet<&str>, object_: &Tree) -> Option<String> {
        let spec = object(object_, "spec").filter(|_| *self == Measure::Pods)?;
        if amounts::has_pod_level(spec) {
            return None;
        }
        let mut missing: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (_, container) in ["containers", "initContainers"].into_iter().flat_map(|key| items(spec, key)) {
            let said = compute(&amounts_of(container, "requests"), &amounts_of(container, "limits"));
            for name in
                TO_BE_SAID.into_iter().filter(|name| limited.contains(name) && !said.contains_key(*name))
            {
                missing.entry(name).or_default().insert(text(container, "name"));
            }
        }
        if missing.is_empty() {
            return None;
        }
        let each = missing.into_iter().map(|(name, containers)| {
            format!("{name} for: {}", containers.into_iter().collect::<Vec<_>>().join(","))
        });
        Some(format!("must specify {}", each.collect::<Vec<_>>().join("; ")))
    }
}

fn of_pod(pod: &Tree, now: i64) -> Amounts {
    let mut usage = Amounts::from([("count/pods".to_owned(), one())]);
    if has_ended(pod, now) {
        return usage;
    }
    let options = PodOptions { with_status: true, with_overhead: true, level: PodLevel::Full };
    let needed = |list| amounts::of_pod(pod, list, options);
    usage.extend(compute(&needed("requests"), &needed("limits")));
    usage
}

/// A pod that runs no more, or has had its time to end, needs nothing but its place in the list.
fn has_ended(pod: &Tree, now: i64) -> bool {
    let phase = object(pod, "status").map(|status| text(status, "phase")).unwrap_or_default();
    if matches!(phase, "Failed" | "Succeeded") {
        return true;
    }
    let Some(metadata) = object(pod, "metadata") else { return false };
    let deleted: Option<Timestamp> = text(metadata, "deletionTimestamp").parse().ok();
    match (deleted, number(metadata, "deletionGracePeriodSeconds")) {
        (Some(deleted), Some(grace)) => now > deleted.as_second().saturating_add(grace),
        _ => false,
    }
}

/// The names under which quotas know what is asked for and limited.
fn compute(requests: &Amounts, limits: &Amounts) -> Amounts {
    let mut usage = Amounts::from([("pods".to_owned(), one())]);
    for name in ["cpu", "memory", "ephemeral-storage"] {
        if let Some(request) = requests.get(name) {
            usage.insert(name.to_owned(), request.clone());
            usage.insert(format!("requests.{name}"), request.clone());
        }
        if let Some(limit) = limits.get(name) {
            usage.insert(format!("limits.{name}"), limit.clone());
        }
    }
    for (name, request) in requests {
        if is_huge_pages(name) {
            usage.insert(name.clone(), request.clone());
        }
        if is_huge_pages(name) || is_extended_resource(name) || name.starts_with(DEVICE_CLASS) {
            usage.insert(format!("requests.{name}"), request.clone());
        }
    }
    usage
}

fn of_service(service: &Tree) -> Amounts {
    let empty = Tree::new();
    let spec = object(service, "spec").unwrap_or(&empty);
    let number_of = |count: usize| Quantity::new(i64::try_from(count).unwrap_or(i64::MAX), Format::DecimalSi);
    let ports = list(spec, "ports").len();
    let balanced = text(spec, "type") == "LoadBalancer";
    let node_ports = match text(spec, "type") {
        "NodePort" => ports,
        "LoadBalancer"
            if spec.get("allocateLoadBalancerNodePorts").and_then(|it| it.as_bool()) == Some(false) =>
        {
            items(spec, "ports").filter(|(_, port)| number(port, "nodePort").unwrap_or(0) != 0).count()
        }
        "LoadBalancer" => ports,
        _ => 0,
    };
    Amounts::from([
        ("count/services".to_owned(), one()),
        ("services".to_owned(), one()),
        ("services.loadbalancers".to_owned(), number_of(usize::from(balanced))),
        ("services.nodeports".to_owned(), number_of(node_ports)),
    ])
}

fn of_claim(claim: &Tree) -> Amounts {
    let mut usage = Amounts::new();
    let mut count = |name: &str, amount: Quantity| {
        if let Some(class) = storage_class(claim).filter(|class| !class.is_empty()) {
            usage.insert(format!("{class}{BY_CLASS}{name}"), amount.clone());
        }
        usage.insert(name.to_owned(), amount);
    };
    count("persistentvolumeclaims", one());
    let requested = object(claim, "spec").map(|spec| amounts_of(spec, "requests")).unwrap_or_default();
    if let Some(requested) = requested.get("storage") {
        let allocated =
            object(claim, "status").map(|it| amounts_in(it, "allocatedResources")).unwrap_or_default();
        let most = allocated.get("storage").filter(|it| *it > requested).unwrap_or(requested);
        count("requests.storage", whole(most));
    }
    usage.insert("count/persistentvolumeclaims".to_owned(), one());
    usage
}

/// Bytes are counted whole.
fn whole(amount: &Quantity) -> Quantity {
    let rounded = Quantity::new(amount.value(), amount.format());
    if rounded == *amount { amount.clone() } else { rounded }
}
