//! Which requests an admission webhook or policy is about.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::{
    admission::compile::{Compiler, Role},
    field_error::Cause,
    names,
    resource::Tree,
    selector,
    validation::{
        members::set,
        parts::{Path, invalid_each, items, list, object, qualified_name, text, texts},
    },
};

use super::expressions::expression;

const OPERATIONS: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
const MUTATING_OPERATIONS: [&str; 4] = ["*", "CONNECT", "CREATE", "UPDATE"];
const SCOPES: [&str; 3] = ["*", "Cluster", "Namespaced"];
const MATCH_POLICIES: [&str; 2] = ["Equivalent", "Exact"];
const MAX_CONDITIONS: usize = 64;

/// A text that, if it is set, is one of `known`.
pub fn optional(tree: &Tree, key: &str, path: &Path<'_>, known: &[&str]) -> Option<Cause> {
    let value = set(tree, key)?;
    let fits = value.as_str().is_some_and(|value| known.contains(&value));
    (!fits).then(|| Cause::not_supported(&path.child(key), value, known))
}

pub fn match_policy(tree: &Tree, path: &Path<'_>) -> Option<Cause> {
    optional(tree, "matchPolicy", path, &MATCH_POLICIES)
}

pub fn selectors(tree: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let keys = ["namespaceSelector", "objectSelector"];
    let found = keys.iter().filter_map(|key| Some((key, set(tree, key)?)));
    found.flat_map(|(key, value)| selector::validate_object(value, &path.child(key).to_string())).collect()
}

/// A list that has either a wildcard or other items; `what` they are.
fn alone(rule: &Tree, key: &str, path: &Path<'_>, what: &str) -> Option<Cause> {
    let values = list(rule, key);
    let mixed = values.len() > 1 && texts(rule, key).any(|value| value == "*");
    let detail = format!("if '*' is present, must not specify other {what}");
    mixed.then(|| Cause::invalid(&path.child(key), &json!(values), &detail))
}

fn missing(rule: &Tree, key: &str, path: &Path<'_>) -> Option<Cause> {
    list(rule, key).is_empty().then(|| Cause::required(&path.child(key), ""))
}

/// A rule of a webhook, or of a policy.
pub fn rule(rule: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let mut causes: Vec<Cause> = missing(rule, "operations", path).into_iter().collect();
    causes.extend(alone(rule, "operations", path, "operations"));
    let operations = path.child("operations");
    for (at, operation) in texts(rule, "operations").enumerate() {
        if !OPERATIONS.contains(&operation) {
            causes.push(Cause::not_supported(&operations.index(at), &json!(operation), &OPERATIONS));
        }
    }
    causes.extend(missing(rule, "apiGroups", path));
    causes.extend(alone(rule, "apiGroups", path, "API groups"));
    causes.extend(missing(rule, "apiVersions", path));
    causes.extend(alone(rule, "apiVersions", path, "API versions"));
    let versions = path.child("apiVersions");
    let empty = texts(rule, "apiVersions").enumerate().filter(|(_, version)| version.is_empty());
    causes.extend(empty.map(|(at, _)| Cause::required(&versions.index(at), "")));
    causes.extend(resources(rule, &path.child("resources")));
    causes.extend(optional(rule, "scope", path, &SCOPES));
    causes
}

fn resources(rule: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let all = list(rule, "resources");
    let mut causes = Vec::new();
    if all.is_empty() {
        causes.push(Cause::required(path, ""));
    }
    let (mut whole, mut everywhere) = (BTreeSet::new(), BTreeSet::new());
    let mut plain = false;
    for (at, resource) in texts(rule, "resources").enumerate() {
        if resource.is_empty() {
            causes.push(Cause::required(&path.index(at), ""));
            continue;
        }
        let Some((main, sub)) = resource.split_once('/') else {
            // Only the last one counts, upstream.
            plain = resource != "*";
            continue;
        };
        let mut covered = |by: String| {
            let detail = format!("if '{by}' is present, must not specify {resource}");
            causes.push(Cause::invalid(&path.index(at), &json!(resource), &detail));
        };
        if whole.contains(main) {
            covered(format!("{main}/*"));
        }
        if everywhere.contains(sub) {
            covered(format!("*/{sub}"));
        }
        if sub == "*" {
            whole.insert(main);
        }
        if main == "*" {
            everywhere.insert(sub);
        }
    }
    let has = |wanted: &str| texts(rule, "resources").any(|resource| resource == wanted);
    if all.len() > 1 && has("*/*") {
        let detail = "if '*/*' is present, must not specify other resources";
        causes.push(Cause::invalid(path, &json!(all), detail));
    }
    if has("*") && plain {
        let detail = "if '*' is present, must not specify other resources without subresources";
        causes.push(Cause::invalid(path, &json!(all), detail));
    }
    causes
}

/// `matchConstraints` of a policy, `matchResources` of a binding.
pub fn match_resources(matching: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    if set(matching, "matchPolicy").is_none() {
        causes.push(Cause::required(&path.child("matchPolicy"), ""));
    }
    causes.extend(match_policy(matching, path));
    for key in ["namespaceSelector", "objectSelector"] {
        match set(matching, key) {
            None => causes.push(Cause::required(&path.child(key), "")),
            Some(value) => causes.extend(selector::validate_object(value, &path.child(key).to_string())),
        }
    }
    for key in ["resourceRules", "excludeResourceRules"] {
        let path = path.child(key);
        for (at, rule) in items(matching, key) {
            causes.extend(named_rule(rule, &path.index(at)));
        }
    }
    causes
}

fn named_rule(named: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let mut seen = BTreeSet::new();
    let mut causes = Vec::new();
    let names_path = path.child("resourceNames");
    for (at, name) in texts(named, "resourceNames").enumerate() {
        let path = names_path.index(at);
        causes.extend(invalid_each(&path, name, names::is_path_segment_name(name)));
        if !seen.insert(name) {
            causes.push(Cause::duplicate(&path, &json!(name)));
        }
    }
    causes.extend(rule(named, path));
    causes
}

/// Nothing is left to change of what is deleted.
pub fn mutating_operations(spec: &Tree, key: &str, path: &Path<'_>) -> Vec<Cause> {
    let Some(matching) = object(spec, key) else { return Vec::new() };
    let path = path.child(key);
    let path = path.child("resourceRules");
    let operations = items(matching, "resourceRules").flat_map(|(_, rule)| texts(rule, "operations"));
    let odd = operations.filter(|operation| !MUTATING_OPERATIONS.contains(operation));
    odd.map(|it| Cause::not_supported(&path.child("operations"), &json!(it), &MUTATING_OPERATIONS)).collect()
}

/// Conditions know no variables; `params` says whether they know parameters.
pub fn match_conditions(holder: &Tree, params: bool, path: &Path<'_>) -> Vec<Cause> {
    let conditions = list(holder, "matchConditions").len();
    if conditions == 0 {
        return Vec::new();
    }
    let mut causes = Vec::new();
    let compiler = Compiler::new(params);
    if conditions > MAX_CONDITIONS {
        causes.push(Cause::too_many(path, conditions, MAX_CONDITIONS));
    }
    let mut seen = BTreeSet::new();
    for (at, condition) in items(holder, "matchConditions") {
        let path = path.index(at);
        causes.extend(expression(
            &compiler,
            text(condition, "expression"),
            Role::MatchCondition,
            &path.child("expression"),
        ));
        let (name, name_path) = (text(condition, "name"), path.child("name"));
        if name.is_empty() {
            causes.push(Cause::required(&name_path, ""));
            continue;
        }
        causes.extend(qualified_name(name, &name_path));
        if !seen.insert(name) {
            causes.push(Cause::duplicate(&name_path, &json!(name)));
        }
    }
    causes
}

/// The match conditions of a stored object, which are not judged again while they stay.
pub fn same_conditions(new: &Tree, old: &Tree) -> bool {
    let conditions = |tree: &Tree| -> Vec<Value> { list(tree, "matchConditions").to_vec() };
    conditions(new) == conditions(old)
}
