//! Names of resources and amounts of them.

use serde_json::{Value, json};

use super::{NOT_INTEGER, NOT_NEGATIVE, NOT_POSITIVE, Path, invalid_each};
use crate::{field_error::Cause, names, quantity::Quantity, resource::Tree};

const HUGE_PAGES: &str = "hugepages-";
const REQUESTS: &str = "requests.";
const NATIVE_DOMAIN: &str = "kubernetes.io/";

const COUNTED: [&str; 9] = [
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];
const MEASURED: [&str; 10] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "requests.storage",
];

/// The amount of a resource in a list of them.
pub fn quantity_in(tree: &Tree, key: &str) -> Option<Quantity> {
    quantity_of(tree.get(key)?)
}

fn quantity_of(value: &Value) -> Option<Quantity> {
    Quantity::parse(value.as_str()?).ok()
}

pub fn is_huge_pages(name: &str) -> bool {
    name.starts_with(HUGE_PAGES)
}

/// Whether a name is in the namespace of Kubernetes itself, where names without a domain are too.
pub fn is_native_resource(name: &str) -> bool {
    !name.contains('/') || name.contains(NATIVE_DOMAIN)
}

/// Whether a name can be that of a device plugin's resource, also when a quota puts `requests.` before it.
pub fn is_extended_resource(name: &str) -> bool {
    !is_native_resource(name)
        && !name.starts_with(REQUESTS)
        && names::is_qualified_name(&format!("{REQUESTS}{name}")).is_empty()
}

pub fn is_overcommit_allowed(name: &str) -> bool {
    is_native_resource(name) && !is_huge_pages(name)
}

pub fn is_integer_resource(name: &str) -> bool {
    COUNTED.contains(&name) || is_extended_resource(name)
}

fn is_quota_huge_pages(name: &str) -> bool {
    is_huge_pages(name) || name.strip_prefix(REQUESTS).is_some_and(is_huge_pages)
}

pub fn is_standard_quota_resource(name: &str) -> bool {
    COUNTED.contains(&name) || MEASURED.contains(&name) || is_quota_huge_pages(name)
}

pub fn is_standard_resource(name: &str) -> bool {
    is_standard_quota_resource(name) || name == "storage"
}

/// The name of any resource.
pub fn resource_name(name: &str, path: &Path<'_>) -> Vec<Cause> {
    let reasons = names::is_qualified_name(name);
    if !reasons.is_empty() {
        return invalid_each(path, name, reasons).collect();
    }
    if name.contains('/') || is_standard_resource(name) {
        return Vec::new();
    }
    vec![Cause::invalid(path, &json!(name), "must be a standard resource type or fully qualified")]
}

/// The name of a resource that a container can ask for.
pub fn container_resource_name(name: &str, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = resource_name(name, path);
    let detail = if !name.contains('/') {
        let fits = matches!(name, "cpu" | "memory" | "ephemeral-storage") || is_huge_pages(name);
        (!fits).then_some("must be a standard resource for containers")
    } else {
        let fits = is_native_resource(name) || is_extended_resource(name);
        (!fits).then_some("doesn't follow extended resource name standard")
    };
    causes.extend(detail.map(|detail| Cause::invalid(path, &json!(name), detail)));
    causes
}

/// The amount of a resource.
pub fn resource_quantity(name: &str, value: &Value, path: &Path<'_>) -> Vec<Cause> {
    let quantity = quantity_of(value).unwrap_or(Quantity::ZERO);
    let mut causes = Vec::new();
    if quantity.is_negative() {
        causes.push(Cause::invalid(path, value, NOT_NEGATIVE));
    }
    if is_integer_resource(name) && quantity.milli_value() % 1000 != 0 {
        causes.push(Cause::invalid(path, value, NOT_INTEGER));
    }
    causes
}

/// An amount of something that there must be some of.
pub fn positive_quantity(value: &Value, path: &Path<'_>) -> Option<Cause> {
    let quantity = quantity_of(value).unwrap_or(Quantity::ZERO);
    (quantity <= Quantity::ZERO).then(|| Cause::invalid(path, value, NOT_POSITIVE))
}

/// Whether an amount of huge pages is a whole number of pages.
pub fn divides_into_huge_pages(name: &str, quantity: &Quantity) -> bool {
    let size = name.strip_prefix(HUGE_PAGES).and_then(|size| Quantity::parse(size).ok());
    let Some(size) = size.filter(|size| *size > Quantity::ZERO && size.milli_value() % 1000 == 0) else {
        return false;
    };
    quantity.value().checked_rem(size.value()) == Some(0)
}
