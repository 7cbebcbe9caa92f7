//! Where a pod goes beside other pods: affinity and spreading.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{
    super::parts::{
        Path, invalid_each, items, items_mut, list, node_selector, number, object, object_mut, positive,
        preferred_scheduling_terms, qualified_name, text, texts, weight,
    },
    options::Options,
};
use crate::{field_error::Cause, names, resource::Tree, selector};

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
const KINDS: [&str; 2] = ["podAffinity", "podAntiAffinity"];
const IN_BOTH: &str = "exists in both matchLabelKeys and labelSelector";
const NO_SELECTOR: &str = "must not be specified when labelSelector is not set";

pub fn affinity(spec: &Tree, path: &Path<'_>, options: &Options) -> Vec<Cause> {
    let Some(affinity) = object(spec, "affinity") else { return Vec::new() };
    let mut causes = Vec::new();
    if let Some(of_nodes) = object(affinity, "nodeAffinity") {
        let nodes_path = path.child("nodeAffinity");
        if let Some(required) = object(of_nodes, REQUIRED) {
            let any_value = options.any_node_affinity_value;
            causes.extend(node_selector(required, any_value, &nodes_path.child(REQUIRED)));
        }
        causes.extend(preferred_scheduling_terms(of_nodes, PREFERRED, &nodes_path));
    }
    for kind in KINDS {
        if let Some(of_pods) = object(affinity, kind) {
            causes.extend(pod_affinity(of_pods, &path.child(kind), options));
        }
    }
    causes
}

fn pod_affinity(affinity: &Tree, path: &Path<'_>, options: &Options) -> Vec<Cause> {
    let mut causes = Vec::new();
    let required = path.child(REQUIRED);
    for (at, term) in items(affinity, REQUIRED) {
        causes.extend(affinity_term(term, &required.index(at), options));
    }
    let preferred = path.child(PREFERRED);
    let empty = Tree::new();
    for (at, weighted) in items(affinity, PREFERRED) {
        let weighted_path = preferred.index(at);
        causes.extend(weight(weighted, &weighted_path));
        let term = object(weighted, "podAffinityTerm").unwrap_or(&empty);
        causes.extend(affinity_term(term, &weighted_path.child("podAffinityTerm"), options));
    }
    causes
}

fn affinity_term(term: &Tree, path: &Path<'_>, options: &Options) -> Vec<Cause> {
    let mut causes = term_selectors(term, options.any_affinity_value, path);
    for name in texts(term, "namespaces") {
        // Upstream leaves out the place in the list.
        causes.extend(invalid_each(&path.child("namespace"), name, names::label_name(name, false)));
    }
    causes.extend(label_keys(term, path));
    let topology = text(term, "topologyKey");
    let topology_path = path.child("topologyKey");
    if topology.is_empty() {
        causes.push(Cause::required(&topology_path, "can not be empty"));
    }
    causes.extend(qualified_name(topology, &topology_path));
    causes
}

fn term_selectors(term: &Tree, any_value: bool, path: &Path<'_>) -> Vec<Cause> {
    let check = |key: &str| {
        let field = path.child(key).to_string();
        term.get(key).map(|it| selector::validate_object_with(it, &field, any_value)).unwrap_or_default()
    };
    let mut causes = check("labelSelector");
    causes.extend(check("namespaceSelector"));
    causes
}

/// Whether the affinity of a stored spec selects by values that no label can have.
pub fn has_invalid_selector(spec: &Tree) -> bool {
    let affinities =
        KINDS.into_iter().filter_map(|kind| object(spec, "affinity").and_then(|it| object(it, kind)));
    let mut terms = affinities.flat_map(|affinity| {
        let preferred = items(affinity, PREFERRED).filter_map(|(_, it)| object(it, "podAffinityTerm"));
        items(affinity, REQUIRED).map(|(_, term)| term).chain(preferred)
    });
    terms.any(|term| !term_selectors(term, false, &Path::new("")).is_empty())
}

/// Keys of labels whose values are taken from the pod itself.
fn label_keys(holder: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let selector = object(holder, "labelSelector");
    for key in ["matchLabelKeys", "mismatchLabelKeys"] {
        let keys_path = path.child(key);
        if selector.is_none() && !list(holder, key).is_empty() {
            causes.push(Cause::forbidden(&keys_path, NO_SELECTOR));
            continue;
        }
        for (at, name) in texts(holder, key).enumerate() {
            causes.extend(qualified_name(name, &keys_path.index(at)));
        }
    }
    if let Some(selector) = selector {
        // What the keys stand for is merged into the selector when a pod is made: once is right, twice is not.
        let positions: BTreeMap<&str, usize> =
            texts(holder, "matchLabelKeys").enumerate().map(|(at, key)| (key, at)).collect();
        let mut seen: BTreeSet<&str> =
            object(selector, "matchLabels").into_iter().flatten().map(|(key, _)| key.as_str()).collect();
        for (_, expression) in items(selector, "matchExpressions") {
            let key = text(expression, "key");
            if !seen.insert(key)
                && let Some(at) = positions.get(key).copied()
            {
                causes.push(Cause::invalid(&path.index(at), &json!(key), IN_BOTH));
            }
        }
    }
    let matched = path.child("matchLabelKeys");
    let avoided: BTreeSet<&str> = texts(holder, "mismatchLabelKeys").collect();
    for (at, name) in texts(holder, "matchLabelKeys").enumerate() {
        if avoided.contains(name) {
            let detail = "exists in both matchLabelKeys and mismatchLabelKeys";
            causes.push(Cause::invalid(&matched.index(at), &json!(name), detail));
        }
    }
    causes
}

/// The rule of before the keys were merged, for pods that are from then.
fn old_label_keys(constraint: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    if list(constraint, "matchLabelKeys").is_empty() {
        return causes;
    }
    let selector = object(constraint, "labelSelector");
    if selector.is_none() {
        causes.push(Cause::forbidden(path, NO_SELECTOR));
    }
    let expressions = selector.into_iter().flat_map(|it| items(it, "matchExpressions"));
    let labels = selector.and_then(|selector| object(selector, "matchLabels")).into_iter().flatten();
    let selected: BTreeSet<&str> =
        expressions.map(|(_, it)| text(it, "key")).chain(labels.map(|(key, _)| key.as_str())).collect();
    for (at, name) in texts(constraint, "matchLabelKeys").enumerate() {
        let name_path = path.index(at);
        causes.extend(qualified_name(name, &name_path));
        if selected.contains(name) {
            causes.push(Cause::invalid(&name_path, &json!(name), IN_BOTH));
        }
    }
    causes
}

/// Whether the constraints of a stored spec break the rule for merged keys.
pub fn has_invalid_spread_keys(spec: &Tree) -> bool {
    items(spec, "topologySpreadConstraints").any(|(_, it)| !label_keys(it, &Path::new("")).is_empty())
}

pub fn spread_constraints(spec: &Tree, path: &Path<'_>, options: &Options) -> Vec<Cause> {
    let constraints = || items(spec, "topologySpreadConstraints");
    let last: BTreeMap<(&str, &str), usize> = constraints().map(|(at, it)| (topology(it), at)).collect();
    constraints()
        .flat_map(|(at, constraint)| {
            let comes_again = last.get(&topology(constraint)).is_some_and(|last| *last > at);
            spread_constraint(constraint, comes_again, &path.index(at), options)
        })
        .collect()
}

/// What a constraint is known by.
fn topology(constraint: &Tree) -> (&str, &str) {
    (text(constraint, "topologyKey"), text(constraint, "whenUnsatisfiable"))
}

fn spread_constraint(constraint: &Tree, comes_again: bool, path: &Path<'_>, options: &Options) -> Vec<Cause> {
    let mut causes = Vec::new();
    let (key, action) = topology(constraint);
    causes.extend(positive(number(constraint, "maxSkew").unwrap_or(0), &path.child("maxSkew")));
    if key.is_empty() {
        causes.push(Cause::required(&path.child("topologyKey"), "can not be empty"));
    }
    let actions = ["DoNotSchedule", "ScheduleAnyway"];
    if !actions.contains(&action) {
        causes.push(Cause::not_supported(&path.child("whenUnsatisfiable"), &json!(action), &actions));
    }
    if comes_again {
        let field = path.child("{topologyKey, whenUnsatisfiable}");
        causes.push(Cause::duplicate(&field, &json!(format!("{{{key}, {action}}}"))));
    }
    if let Some(domains) = number(constraint, "minDomains") {
        let domains_path = path.child("minDomains");
        causes.extend(positive(domains, &domains_path));
        if action != "DoNotSchedule" {
            let detail = format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}");
            causes.push(Cause::invalid(&domains_path, &json!(domains), &detail));
        }
    }
    for key in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
        let policies = ["Honor", "Ignore"];
        let policy = constraint.get(key).and_then(Value::as_str).filter(|it| !policies.contains(it));
        causes.extend(policy.map(|it| Cause::not_supported(&path.child(key), &json!(it), &policies)));
    }
    causes.extend(match options.old_spread_keys {
        true => old_label_keys(constraint, &path.child("matchLabelKeys")),
        false => label_keys(constraint, path),
    });
    if let Some(selector) = constraint.get("labelSelector").filter(|_| !options.any_spread_selector) {
        causes.extend(selector::validate_object(selector, &path.child("labelSelector").to_string()));
    }
    causes
}

/// What is made of a new pod's keys of labels: expressions about the pod's own labels.
pub fn merge_label_keys(spec: &mut Tree, labels: &Tree) {
    for kind in KINDS {
        let Some(affinity) = object_mut(spec, "affinity").and_then(|it| object_mut(it, kind)) else {
            continue;
        };
        for weighted in items_mut(affinity, PREFERRED) {
            if let Some(term) = object_mut(weighted, "podAffinityTerm") {
                merge(term, labels);
            }
        }
        items_mut(affinity, REQUIRED).for_each(|term| merge(term, labels));
    }
    items_mut(spec, "topologySpreadConstraints").for_each(|constraint| merge(constraint, labels));
}

fn merge(holder: &mut Tree, labels: &Tree) {
    let mut expressions = Vec::new();
    for (list, operator) in [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")] {
        for key in texts(holder, list) {
            if let Some(value) = labels.get(key) {
                expressions.push(json!({"key": key, "operator": operator, "values": [value]}));
            }
        }
    }
    let Some(selector) = holder.get_mut("labelSelector").and_then(Value::as_object_mut) else { return };
    if expressions.is_empty() {
        return;
    }
    if let Some(list) = selector.entry("matchExpressions").or_insert_with(|| json!([])).as_array_mut() {
        list.extend(expressions);
    }
}
