//! Which nodes something may be on: node selectors, taints and tolerations.

use std::collections::BTreeSet;

use serde_json::json;

use super::{Path, dns_subdomain, items, list, number, object, qualified_name, text, texts};
use crate::{field_error::Cause, names, resource::Tree};

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// A requirement of a node's labels. Values that no label can have are refused unless `any_value`.
pub fn node_selector_requirement(requirement: &Tree, any_value: bool, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let values = list(requirement, "values");
    let operator = text(requirement, "operator");
    let values_path = path.child("values");
    match operator {
        "In" | "NotIn" if values.is_empty() => {
            let detail = "must be specified when `operator` is 'In' or 'NotIn'";
            causes.push(Cause::required(&values_path, detail));
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            causes.push(Cause::forbidden(&values_path, detail));
        }
        "Gt" | "Lt" if values.len() != 1 => {
            let detail = "must be specified single value when `operator` is 'Lt' or 'Gt'";
            causes.push(Cause::required(&values_path, detail));
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
        _ => causes.push(unknown_operator(operator, path)),
    }
    causes.extend(qualified_name(text(requirement, "key"), &path.child("key")));
    if !any_value {
        for (at, value) in texts(requirement, "values").enumerate() {
            causes.extend(super::invalid_each(&values_path.index(at), value, names::is_label_value(value)));
        }
    }
    causes
}

fn unknown_operator(operator: &str, path: &Path<'_>) -> Cause {
    Cause::invalid(&path.child("operator"), &json!(operator), "not a valid selector operator")
}

/// A requirement of a node's fields: of its name, there is no other.
fn node_field_requirement(requirement: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let values_path = path.child("values");
    match text(requirement, "operator") {
        "In" | "NotIn" if list(requirement, "values").len() != 1 => {
            let detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
            causes.push(Cause::required(&values_path, detail));
        }
        "In" | "NotIn" => {}
        operator => causes.push(unknown_operator(operator, path)),
    }
    let key = text(requirement, "key");
    if key != "metadata.name" {
        causes.push(Cause::invalid(&path.child("key"), &json!(key), "not a valid field selector key"));
        return causes;
    }
    for (at, name) in texts(requirement, "values").enumerate() {
        causes.extend(dns_subdomain(name, &values_path.index(at)));
    }
    causes
}

pub fn node_selector_term(term: &Tree, any_value: bool, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let expressions = path.child("matchExpressions");
    for (at, requirement) in items(term, "matchExpressions") {
        causes.extend(node_selector_requirement(requirement, any_value, &expressions.index(at)));
    }
    let fields = path.child("matchFields");
    for (at, requirement) in items(term, "matchFields") {
        causes.extend(node_field_requirement(requirement, &fields.index(at)));
    }
    causes
}

pub fn node_selector(selector: &Tree, any_value: bool, path: &Path<'_>) -> Vec<Cause> {
    let terms = path.child("nodeSelectorTerms");
    if list(selector, "nodeSelectorTerms").is_empty() {
        return vec![Cause::required(&terms, "must have at least one node selector term")];
    }
    items(selector, "nodeSelectorTerms")
        .flat_map(|(at, term)| node_selector_term(term, any_value, &terms.index(at)))
        .collect()
}

/// The preferred terms under `key` of a node affinity.
pub fn preferred_scheduling_terms(affinity: &Tree, key: &str, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let terms = path.child(key);
    let empty = Tree::new();
    for (at, term) in items(affinity, key) {
        let term_path = terms.index(at);
        causes.extend(weight(term, &term_path));
        let preference = object(term, "preference").unwrap_or(&empty);
        causes.extend(node_selector_term(preference, true, &term_path.child("preference")));
    }
    causes
}

/// How much a preference counts.
pub fn weight(term: &Tree, path: &Path<'_>) -> Option<Cause> {
    let weight = number(term, "weight").unwrap_or(0);
    let is_in_range = (1..=100).contains(&weight);
    (!is_in_range)
        .then(|| Cause::invalid(&path.child("weight"), &json!(weight), "must be in the range 1-100"))
}

/// Where a storage class allows its volumes.
pub fn topology_selector_term(term: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let expressions = path.child("matchLabelExpressions");
    let mut keys = BTreeSet::new();
    for (at, requirement) in items(term, "matchLabelExpressions") {
        let requirement_path = expressions.index(at);
        causes.extend(topology_requirement(requirement, &requirement_path));
        let key = text(requirement, "key");
        if !keys.insert(key) {
            causes.push(Cause::duplicate(&requirement_path.child("key"), &json!(key)));
        }
    }
    causes
}

fn topology_requirement(requirement: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let values = path.child("values");
    let mut seen = BTreeSet::new();
    if list(requirement, "values").is_empty() {
        causes.push(Cause::required(&values, ""));
    }
    for (at, value) in texts(requirement, "values").enumerate() {
        if !seen.insert(value) {
            causes.push(Cause::duplicate(&values.index(at), &json!(value)));
        }
    }
    causes.extend(qualified_name(text(requirement, "key"), &path.child("key")));
    causes
}

fn taint_effect(effect: &str, path: &Path<'_>) -> Option<Cause> {
    (!EFFECTS.contains(&effect)).then(|| Cause::not_supported(path, &json!(effect), &EFFECTS))
}

/// The taints under `key`, unique by key and effect.
pub fn taints(spec: &Tree, key: &str, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let taints = path.child(key);
    let mut seen = BTreeSet::new();
    for (at, taint) in items(spec, key) {
        let taint_path = taints.index(at);
        let (key, value, effect) = (text(taint, "key"), text(taint, "value"), text(taint, "effect"));
        causes.extend(qualified_name(key, &taint_path.child("key")));
        let reasons = names::is_label_value(value);
        if !reasons.is_empty() {
            causes.push(Cause::invalid(&taint_path.child("value"), &json!(value), &reasons.join(";")));
        }
        let effect_path = taint_path.child("effect");
        match effect {
            "" => causes.push(Cause::required(&effect_path, "")),
            _ => causes.extend(taint_effect(effect, &effect_path)),
        }
        if !seen.insert((key, effect)) {
            causes.push(duplicate_taint(taint, &taint_path));
        }
    }
    causes
}

/// Upstream shows the taint as its server holds it.
fn duplicate_taint(taint: &Tree, path: &Path<'_>) -> Cause {
    let shown = json!({
        "Key": text(taint, "key"),
        "Value": text(taint, "value"),
        "Effect": text(taint, "effect"),
        "TimeAdded": taint.get("timeAdded"),
    });
    let order = ["Key", "Value", "Effect", "TimeAdded"];
    let members = order.map(|key| format!("\"{key}\":{}", crate::gotext::json(&shown[key])));
    Cause::duplicate_text(
        path,
        &format!("{{{}}}", members.join(",")),
        "taints must be unique by key and effect pair",
    )
}

/// The tolerations under `key`.
pub fn tolerations(spec: &Tree, key: &str, path: &Path<'_>) -> Vec<Cause> {
    let list = path.child(key);
    items(spec, key).flat_map(|(at, toleration)| one_toleration(toleration, &list.index(at))).collect()
}

fn one_toleration(toleration: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let (key, operator) = (text(toleration, "key"), text(toleration, "operator"));
    let (value, effect) = (text(toleration, "value"), text(toleration, "effect"));
    let operator_path = path.child("operator");
    if !key.is_empty() {
        causes.extend(qualified_name(key, &path.child("key")));
    } else if operator != "Exists" {
        let detail =
            "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
        causes.push(Cause::invalid(&operator_path, &json!(operator), detail));
    }
    if toleration.contains_key("tolerationSeconds") && effect != "NoExecute" {
        let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
        causes.push(Cause::invalid(&path.child("effect"), &json!(effect), detail));
    }
    match operator {
        "Equal" | "" => {
            let reasons = names::is_label_value(value);
            if !reasons.is_empty() {
                causes.push(Cause::invalid(&operator_path, &json!(value), &reasons.join(";")));
            }
        }
        "Exists" if !value.is_empty() => {
            let detail = "value must be empty when `operator` is 'Exists'";
            causes.push(Cause::invalid(&operator_path, &json!(value), detail));
        }
        "Exists" => {}
        // Comparisons belong to a feature that is off; they are named all the same.
        "Lt" | "Gt" => {
            let valid = ["Equal", "Exists", "Lt", "Gt"];
            causes.push(Cause::not_supported(&operator_path, &json!(operator), &valid));
        }
        _ => causes.push(Cause::not_supported(&operator_path, &json!(operator), &["Equal", "Exists"])),
    }
    if !effect.is_empty() {
        causes.extend(taint_effect(effect, &path.child("effect")));
    }
    causes
}
