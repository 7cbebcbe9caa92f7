//! Limit ranges: what containers get that do not say what they need, and how much anybody may ask for.

use serde_json::{Value, json};

use super::amounts::{self, Amounts, PodLevel, PodOptions, amounts_in, amounts_of};
use crate::{
    quantity::Quantity,
    resource::Tree,
    validation::parts::{items, items_mut, object, object_mut, text},
};

const ANNOTATION: &str = "kubernetes.io/limit-ranger";
/// Up to here amounts are compared in thousandths; above, a thousandth makes no difference.
const MAX_IN_MILLI: i64 = i64::MAX / 1000;

/// The limits of a range that are about `kind`.
fn limits_of<'a>(range: &'a Tree, kind: &'a str) -> impl Iterator<Item = &'a Tree> {
    let limits = object(range, "spec").into_iter().flat_map(|spec| items(spec, "limits"));
    limits.map(|(_, limit)| limit).filter(move |limit| text(limit, "type") == kind)
}

/// Gives the containers of a pod what they do not ask for, and says so in an annotation.
pub fn set_defaults(range: &Tree, pod: &mut Tree) {
    let mut requests = Tree::new();
    let mut defaults = Tree::new();
    for limit in limits_of(range, "Container") {
        requests.extend(object(limit, "defaultRequest").cloned().unwrap_or_default());
        defaults.extend(object(limit, "default").cloned().unwrap_or_default());
    }
    let mut notes = Vec::new();
    if let Some(spec) = object_mut(pod, "spec") {
        for (key, called) in [("containers", "container"), ("initContainers", "init container")] {
            for container in items_mut(spec, key) {
                let limited = add_missing(container, "limits", &defaults);
                let requested = add_missing(container, "requests", &requests);
                let name = text(container, "name");
                notes.extend(requested.map(|names| format!("{names} request for {called} {name}")));
                notes.extend(limited.map(|names| format!("{names} limit for {called} {name}")));
            }
        }
    }
    if notes.is_empty() {
        return;
    }
    let metadata = pod.entry("metadata").or_insert_with(|| json!({}));
    metadata["annotations"][ANNOTATION] = json!(format!("LimitRanger plugin set: {}", notes.join("; ")));
}

/// The names of what was added.
fn add_missing(container: &mut Tree, list: &str, defaults: &Tree) -> Option<String> {
    let given = object(container, "resources").and_then(|resources| object(resources, list));
    let mut missing: Vec<(String, Value)> = defaults
        .iter()
        .filter(|(name, _)| given.is_none_or(|given| !given.contains_key(*name)))
        .map(|(name, amount)| (name.clone(), amount.clone()))
        .collect();
    if missing.is_empty() {
        return None;
    }
    missing.sort_by(|a, b| a.0.cmp(&b.0));
    let names: Vec<String> = missing.iter().map(|(name, _)| name.clone()).collect();
    let resources = container.entry("resources").or_insert_with(|| json!({}));
    for (name, amount) in missing {
        resources[list][name] = amount;
    }
    Some(names.join(", "))
}

/// Why a pod is outside of a range.
pub fn check_pod(range: &Tree, pod: &Tree) -> Result<(), String> {
    let empty = Tree::new();
    let spec = object(pod, "spec").unwrap_or(&empty);
    let mut errors = Vec::new();
    let limits = object(range, "spec").into_iter().flat_map(|spec| items(spec, "limits"));
    for (_, limit) in limits {
        match text(limit, "type") {
            "Container" => {
                for (_, container) in
                    ["containers", "initContainers"].into_iter().flat_map(|key| items(spec, key))
                {
                    let given = Given {
                        requests: amounts_of(container, "requests"),
                        limits: amounts_of(container, "limits"),
                    };
                    errors.extend(check(limit, "Container", &given));
                }
            }
            "Pod" => {
                let options = PodOptions { with_status: false, with_overhead: false, level: PodLevel::Basic };
                let given = Given {
                    requests: amounts::of_pod(pod, "requests", options),
                    limits: amounts::of_pod(pod, "limits", options),
                };
                errors.extend(check(limit, "Pod", &given));
            }
            _ => {}
        }
    }
    aggregate(errors)
}

/// Why a claim is outside of a range.
pub fn check_claim(range: &Tree, claim: &Tree) -> Result<(), String> {
    const KIND: &str = "PersistentVolumeClaim";
    let requests = object(claim, "spec").map(|spec| amounts_of(spec, "requests")).unwrap_or_default();
    let mut errors = Vec::new();
    let given = Given { requests, limits: Amounts::new() };
    for limit in limits_of(range, KIND) {
        let least = amounts_in(limit, "min");
        errors.extend(least.iter().filter_map(|(name, amount)| given.below(KIND, name, amount)));
        let most = amounts_in(limit, "max");
        errors.extend(most.iter().filter_map(|(name, amount)| given.request_above(KIND, name, amount)));
    }
    aggregate(errors)
}

/// All that is wrong, each once, as upstream joins it.
fn aggregate(errors: Vec<String>) -> Result<(), String> {
    let mut said: Vec<String> = Vec::new();
    for error in errors {
        if !said.contains(&error) {
            said.push(error);
        }
    }
    match said.len() {
        0 => Ok(()),
        1 => Err(said.remove(0)),
        _ => Err(format!("[{}]", said.join(", "))),
    }
}

fn check(limit: &Tree, kind: &str, given: &Given) -> Vec<String> {
    let mut errors = Vec::new();
    let amounts = |key| amounts_in(limit, key);
    errors.extend(amounts("min").iter().filter_map(|(name, amount)| given.below(kind, name, amount)));
    errors.extend(amounts("max").iter().filter_map(|(name, amount)| given.above(kind, name, amount)));
    let ratios = amounts("maxLimitRequestRatio");
    errors.extend(ratios.iter().filter_map(|(name, ratio)| given.too_far_apart(kind, name, ratio)));
    errors
}

/// What somebody asks for.
struct Given {
    requests: Amounts,
    limits: Amounts,
}

/// The values to compare: in thousandths if all of them are small enough for that.
fn comparable<const N: usize>(amounts: [Option<&Quantity>; N]) -> [i64; N] {
    let whole = amounts.map(|amount| amount.map_or(0, Quantity::value));
    match whole.iter().all(|value| *value <= MAX_IN_MILLI) {
        true => amounts.map(|amount| amount.map_or(0, Quantity::milli_value)),
        false => whole,
    }
}

impl Given {
    fn below(&self, kind: &str, name: &str, least: &Quantity) -> Option<String> {
        let (request, limit) = (self.requests.get(name), self.limits.get(name));
        let [requested, limited, enforced] = comparable([request, limit, Some(least)]);
        let start = format!("minimum {name} usage per {kind} is {least}");
        match (request, limit) {
            (None, _) => Some(format!("{start}.  No request is specified")),
            (Some(request), _) if requested < enforced => Some(format!("{start}, but request is {request}")),
            (_, Some(limit)) if limited < enforced => Some(format!("{start}, but limit is {limit}")),
            _ => None,
        }
    }

    fn above(&self, kind: &str, name: &str, most: &Quantity) -> Option<String> {
        let (request, limit) = (self.requests.get(name), self.limits.get(name));
        let [requested, limited, enforced] = comparable([request, limit, Some(most)]);
        let start = format!("maximum {name} usage per {kind} is {most}");
        match (limit, request) {
            (None, _) => Some(format!("{start}.  No limit is specified")),
            (Some(limit), _) if limited > enforced => Some(format!("{start}, but limit is {limit}")),
            (_, Some(request)) if requested > enforced => Some(format!("{start}, but request is {request}")),
            _ => None,
        }
    }

    fn request_above(&self, kind: &str, name: &str, most: &Quantity) -> Option<String> {
        let start = format!("maximum {name} usage per {kind} is {most}");
        let Some(request) = self.requests.get(name) else {
            return Some(format!("{start}.  No request is specified"));
        };
        let [requested, enforced] = comparable([Some(request), Some(most)]);
        (requested > enforced).then(|| format!("{start}, but request is {request}"))
    }

    fn too_far_apart(&self, kind: &str, name: &str, most: &Quantity) -> Option<String> {
        let (request, limit) = (self.requests.get(name), self.limits.get(name));
        let [requested, limited, _] = comparable([request, limit, Some(most)]);
        let start = format!("{name} max limit to request ratio per {kind} is {most}");
        if requested == 0 {
            return Some(format!("{start}, but no request is specified or request is 0"));
        }
        if limited == 0 {
            return Some(format!("{start}, but no limit is specified or limit is 0"));
        }
        let ratio = limited as f64 / requested as f64;
        let exceeds = match most.value() <= MAX_IN_MILLI {
            true => ratio * 1000.0 > most.milli_value() as f64,
            false => ratio > most.value() as f64,
        };
        exceeds.then(|| format!("{start}, but provided ratio is {ratio:.6}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk(value: Value) -> Tree {
        value.as_object().cloned().unwrap_or_default()
    }

    fn mk_range(limit: Value) -> Tree {
        mk(json!({"spec": {"limits": [limit]}}))
    }

    fn mk_pod(resources: Value) -> Tree {
        mk(
            json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "resources": resources}]}}),
        )
    }

    #[test]
    fn containers_get_what_they_do_not_ask_for_and_the_pod_says_so() {
        let range = mk_range(json!({
            "type": "Container",
            "default": {"memory": "2Gi", "cpu": "2"}, "defaultRequest": {"cpu": "1", "memory": "1Gi"},
        }));
        let mut pod = mk_pod(json!({"requests": {"cpu": "500m"}}));
        set_defaults(&range, &mut pod);
        let container = &pod["spec"]["containers"][0];
        assert_eq!(
            container["resources"],
            json!({"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "2Gi"}})
        );
        assert_eq!(
            pod["metadata"]["annotations"][ANNOTATION],
            "LimitRanger plugin set: memory request for container c; cpu, memory limit for container c"
        );
    }

    #[test]
    fn a_pod_outside_of_its_range_is_told_all_that_is_wrong() {
        let rows = [
            (
                json!({"type": "Container", "min": {"cpu": "1"}}),
                json!({}),
                "minimum cpu usage per Container is 1.  No request is specified",
            ),
            (
                json!({"type": "Container", "min": {"cpu": "1"}}),
                json!({"requests": {"cpu": "500m"}}),
                "minimum cpu usage per Container is 1, but request is 500m",
            ),
            (
                json!({"type": "Container", "max": {"memory": "1Gi"}}),
                json!({"requests": {"memory": "2Gi"}}),
                "maximum memory usage per Container is 1Gi.  No limit is specified",
            ),
            (
                json!({"type": "Pod", "max": {"memory": "1Gi", "cpu": "1"}}),
                json!({"limits": {"memory": "2Gi", "cpu": "2"}}),
                "[maximum cpu usage per Pod is 1, but limit is 2, maximum memory usage per Pod is 1Gi, but limit is 2Gi]",
            ),
            (
                json!({"type": "Container", "maxLimitRequestRatio": {"cpu": "1500m"}}),
                json!({"requests": {"cpu": "100m"}, "limits": {"cpu": "250m"}}),
                "cpu max limit to request ratio per Container is 1500m, but provided ratio is 2.500000",
            ),
        ];
        for (limit, resources, wanted) in rows {
            assert_eq!(check_pod(&mk_range(limit), &mk_pod(resources)), Err(wanted.to_owned()));
        }
    }

    #[test]
    fn a_claim_has_a_least_and_a_most_size() {
        let range = mk_range(json!({
            "type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}, "max": {"storage": "5Gi"},
        }));
        let claim = |size: &str| mk(json!({"spec": {"resources": {"requests": {"storage": size}}}}));
        assert_eq!(check_claim(&range, &claim("1Gi")), Ok(()));
        assert_eq!(
            check_claim(&range, &claim("6Gi")),
            Err("maximum storage usage per PersistentVolumeClaim is 5Gi, but request is 6Gi".to_owned())
        );
    }
}
