//! What containers and pods ask for, and the claims of devices they use.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{
    super::parts::{
        Path, container_resource_name, divides_into_huge_pages, dns_label, entries, invalid_each,
        is_huge_pages, is_overcommit_allowed, items, list, object, resource_name, resource_quantity, text,
    },
    NOWHERE,
    amounts::{aggregate, amounts, is_pod_level},
    options::Options,
    shape,
};
use crate::{field_error::Cause, names, quantity::Quantity, resource::Tree};

type NameCheck = fn(&str, &Path<'_>) -> Vec<Cause>;

/// The resources of a container.
pub fn of_container(
    resources: &Tree,
    claims: &BTreeSet<&str>,
    path: &Path<'_>,
    options: &Options,
) -> Vec<Cause> {
    requirements(resources, container_resource_name, claims, path, options)
}

/// What running a pod costs beside its containers; upstream checks it as limits.
pub fn overhead(spec: &Tree, path: &Path<'_>, options: &Options) -> Vec<Cause> {
    let Some(overhead) = spec.get("overhead") else { return Vec::new() };
    let mut resources = Tree::new();
    resources.insert("limits".to_owned(), overhead.clone());
    requirements(&resources, container_resource_name, &BTreeSet::new(), path, options)
}

/// The resources of a pod as a whole.
pub fn of_pod(spec: &Tree, claims: &BTreeSet<&str>, path: &Path<'_>, options: &Options) -> Vec<Cause> {
    let Some(resources) = object(spec, "resources") else { return Vec::new() };
    if object(spec, "os").is_some_and(|os| text(os, "name") == "windows") {
        return vec![Cause::forbidden(path, "may not be set for a windows pod")];
    }
    let mut causes = Vec::new();
    if !list(resources, "claims").is_empty() {
        causes.push(Cause::forbidden(
            &path.child("claims"),
            "claims may not be set for Resources at pod-level",
        ));
    }
    causes.extend(requirements(resources, pod_resource_name, claims, path, options));
    causes.extend(consistency(spec, path));
    causes
}

fn pod_resource_name(name: &str, path: &Path<'_>) -> Vec<Cause> {
    let causes = resource_name(name, path);
    if !causes.is_empty() || is_pod_level(name) {
        return causes;
    }
    vec![Cause::not_supported(path, &json!(name), &["cpu", "hugepages-", "memory"])]
}

/// A pod gets at least what its containers ask for together, and a container no more than its pod.
fn consistency(spec: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let (requests, limits) = (amounts(spec, "requests"), amounts(spec, "limits"));
    let lists = [("requests", &requests, false), ("limits", &limits, true)];
    for (list, of_pod, only_huge_pages) in lists {
        let list_path = path.child(list);
        for (name, sum) in aggregate(spec, list) {
            if only_huge_pages && !is_huge_pages(&name) {
                continue;
            }
            let Some(own) = of_pod.get(&name).filter(|own| sum > **own) else { continue };
            let detail = format!("must be greater than or equal to aggregate container {list} of {sum}");
            causes.push(Cause::invalid(&list_path.key(&name), &json!(own.to_string()), &detail));
        }
    }
    for (at, container) in items(spec, "containers") {
        for (name, limit) in amounts(container, "limits") {
            let Some(most) = limits.get(&name).filter(|most| limit > **most) else { continue };
            let detail = format!("must be less than or equal to pod limits of {most}");
            let field = format!("{path}.containers[{at}][{name}].limits");
            causes.push(Cause::invalid(field, &json!(limit.to_string()), &detail));
        }
    }
    causes
}

fn quantity(value: &Value) -> Quantity {
    value.as_str().and_then(|text| Quantity::parse(text).ok()).unwrap_or(Quantity::ZERO)
}

fn requirements(
    resources: &Tree,
    name_check: NameCheck,
    claims: &BTreeSet<&str>,
    path: &Path<'_>,
    options: &Options,
) -> Vec<Cause> {
    let mut causes = Vec::new();
    let limits_path = path.child("limits");
    let requests_path = path.child("requests");
    for (name, value) in entries(resources, "limits") {
        causes.extend(amount(name, value, name_check, &limits_path.key(name)));
        causes.extend(huge_pages(name, value, &limits_path.key(name), options));
    }
    let limits = object(resources, "limits");
    for (name, value) in entries(resources, "requests") {
        causes.extend(amount(name, value, name_check, &requests_path.key(name)));
        let limit = limits.and_then(|limits| limits.get(name));
        causes.extend(request_and_limit(name, value, limit, &requests_path, &limits_path));
        causes.extend(huge_pages(name, value, &requests_path.key(name), options));
    }
    let names = || entries(resources, "limits").chain(entries(resources, "requests")).map(|(name, _)| name);
    if names().any(is_huge_pages) && !names().any(|name| matches!(name, "cpu" | "memory")) {
        causes.push(Cause::forbidden(path, "HugePages require cpu or memory"));
    }
    causes.extend(claims_of_container(resources, claims, &path.child("claims")));
    causes
}

fn amount(name: &str, value: &Value, name_check: NameCheck, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = name_check(name, path);
    causes.extend(resource_quantity(name, value, path));
    causes
}

fn huge_pages(name: &str, value: &Value, path: &Path<'_>, options: &Options) -> Option<Cause> {
    let amount = quantity(value);
    let fits =
        !is_huge_pages(name) || options.indivisible_huge_pages || divides_into_huge_pages(name, &amount);
    (!fits).then(|| {
        let detail = format!("{amount} is not positive integer multiple of {name}");
        Cause::invalid(path, value, &detail)
    })
}

/// A request is at most the limit; of what cannot be shared, exactly the limit.
fn request_and_limit(
    name: &str,
    request: &Value,
    limit: Option<&Value>,
    requests: &Path<'_>,
    limits: &Path<'_>,
) -> Option<Cause> {
    let shared = is_overcommit_allowed(name);
    let Some(limit) = limit else {
        let detail = "Limit must be set for non overcommitable resources";
        return (!shared).then(|| Cause::required(limits, detail));
    };
    let (asked, most) = (quantity(request), quantity(limit));
    let relation = match shared {
        false if asked != most => "must be equal to",
        true if asked > most => "must be less than or equal to",
        _ => return None,
    };
    Some(Cause::invalid(requests, request, &format!("{relation} {name} limit of {most}")))
}

/// Claims of a container are some of the pod's, each once: as a whole or by its requests.
fn claims_of_container(resources: &Tree, of_pod: &BTreeSet<&str>, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut taken: BTreeSet<String> = BTreeSet::new();
    for (at, claim) in items(resources, "claims") {
        let claim_path = path.index(at);
        let (name, request) = (text(claim, "name"), text(claim, "request"));
        if name.is_empty() {
            causes.push(Cause::required(&claim_path, ""));
            continue;
        }
        if taken.contains(name) {
            causes.push(Cause::duplicate(&claim_path, &json!(name)));
        } else {
            let key = if request.is_empty() { name.to_owned() } else { format!("{name}/{request}") };
            if !request.is_empty() {
                causes.extend(dns_label(request, &claim_path.child("request")));
            }
            if taken.contains(&key) {
                causes.push(Cause::duplicate(&claim_path, &json!(key)));
            } else if request.is_empty() {
                let prefix = format!("{name}/");
                let parts = taken.range(prefix.clone()..).take_while(|it| it.starts_with(&prefix));
                causes.extend(parts.map(|_| Cause::duplicate(&claim_path, &json!(name))));
            }
            taken.insert(key);
        }
        if !of_pod.contains(name) {
            let known: Vec<&str> = of_pod.iter().copied().collect();
            let known = if known.is_empty() {
                " which is empty".to_owned()
            } else {
                format!(": {}", known.join(", "))
            };
            let detail = format!("must be one of the names in pod.spec.resourceClaims{known}");
            causes.push(Cause::not_found_in(&claim_path, &json!(name), &detail));
        }
    }
    causes
}

/// The claims of a pod. A mirror of a static pod cannot have any.
pub fn claims(spec: &Tree, is_mirror: bool, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut taken = BTreeSet::new();
    for (at, claim) in items(spec, "resourceClaims") {
        if is_mirror {
            causes.push(Cause::forbidden(NOWHERE, "static pods do not support resource claims"));
            continue;
        }
        let claim_path = path.index(at);
        let (name, name_path) = (text(claim, "name"), claim_path.child("name"));
        if name.is_empty() {
            causes.push(Cause::required(&name_path, ""));
        } else if !taken.insert(name) {
            causes.push(Cause::duplicate(&name_path, &json!(name)));
        } else {
            causes.extend(dns_label(name, &name_path));
        }
        causes.extend(claim_source(claim, &claim_path));
    }
    causes
}

fn claim_source(claim: &Tree, path: &Path<'_>) -> Vec<Cause> {
    const KEYS: [&str; 2] = ["resourceClaimName", "resourceClaimTemplateName"];
    let mut causes = Vec::new();
    let detail = match KEYS.iter().filter(|key| claim.contains_key(**key)).count() {
        0 => Some("must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"),
        1 => None,
        _ => Some("at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"),
    };
    if let Some(detail) = detail {
        let shown = shape::shown("PodResourceClaim", claim);
        causes.push(Cause::invalid_text(path, &shown, detail));
    }
    for key in KEYS {
        if let Some(name) = claim.get(key).and_then(Value::as_str) {
            causes.extend(invalid_each(&path.child(key), name, names::subdomain_name(name, false)));
        }
    }
    causes
}
