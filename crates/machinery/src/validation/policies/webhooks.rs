//! Webhooks that admit requests.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::rules::{match_conditions, match_policy, optional, rule, same_conditions, selectors};
use crate::{
    field_error::Cause,
    names,
    resource::Tree,
    validation::{
        members::{name_prefix, set},
        parts::{Path, items, list, number, object, text, texts},
        webhook,
    },
};

const REVIEW_VERSIONS: [&str; 2] = ["v1", "v1beta1"];
const NO_SIDE_EFFECTS: [&str; 2] = ["None", "NoneOnDryRun"];
const SIDE_EFFECTS: [&str; 4] = ["None", "NoneOnDryRun", "Some", "Unknown"];
pub const FAILURE_POLICIES: [&str; 2] = ["Fail", "Ignore"];
pub const REINVOCATION: [&str; 2] = ["IfNeeded", "Never"];

/// What stored webhooks may keep though new ones could not have it.
struct Leniency {
    side_effects: bool,
    review_versions: bool,
    names: bool,
    conditions: bool,
}

impl Leniency {
    fn of(new: &Tree, old: Option<&Tree>) -> Self {
        let Some(old) = old else {
            return Leniency { side_effects: false, review_versions: false, names: false, conditions: false };
        };
        let hooks: Vec<&Tree> = items(old, "webhooks").map(|(_, hook)| hook).collect();
        let names: BTreeSet<&str> = hooks.iter().map(|hook| text(hook, "name")).collect();
        let new_hooks: Vec<&Tree> = items(new, "webhooks").map(|(_, hook)| hook).collect();
        let unknown = |hook: &&Tree| {
            let versions = list(hook, "admissionReviewVersions");
            !versions.is_empty()
                && !texts(hook, "admissionReviewVersions").any(|it| REVIEW_VERSIONS.contains(&it))
        };
        Leniency {
            side_effects: hooks.iter().any(|hook| !NO_SIDE_EFFECTS.contains(&text(hook, "sideEffects"))),
            review_versions: hooks.iter().any(unknown),
            names: names.len() != hooks.len(),
            conditions: new_hooks.len() == hooks.len()
                && new_hooks.iter().zip(&hooks).all(|(new, old)| same_conditions(new, old)),
        }
    }
}

pub fn validating_webhooks(new: &Tree, old: Option<&Tree>) -> Vec<Cause> {
    webhooks(new, old, false)
}

pub fn mutating_webhooks(new: &Tree, old: Option<&Tree>) -> Vec<Cause> {
    webhooks(new, old, true)
}

fn webhooks(new: &Tree, old: Option<&Tree>, mutating: bool) -> Vec<Cause> {
    let leniency = Leniency::of(new, old);
    let path = Path::new("webhooks");
    let mut seen = BTreeSet::new();
    let mut causes = name_prefix(new, old);
    for (at, hook) in items(new, "webhooks") {
        let path = path.index(at);
        causes.extend(admission(hook, &leniency, mutating, &path));
        causes.extend(review_versions(hook, &leniency, &path.child("admissionReviewVersions")));
        let name = text(hook, "name");
        if !leniency.names && !name.is_empty() && !seen.insert(name) {
            causes.push(Cause::duplicate(&path.child("name"), &json!(name)));
        }
    }
    causes
}

fn admission(hook: &Tree, leniency: &Leniency, mutating: bool, path: &Path<'_>) -> Vec<Cause> {
    let mut causes: Vec<Cause> = qualified(text(hook, "name"), &path.child("name")).into_iter().collect();
    let rules = path.child("rules");
    for (at, it) in items(hook, "rules") {
        causes.extend(rule(it, &rules.index(at)));
    }
    causes.extend(optional(hook, "failurePolicy", path, &FAILURE_POLICIES));
    causes.extend(match_policy(hook, path));
    let allowed: &[&str] = if leniency.side_effects { &SIDE_EFFECTS } else { &NO_SIDE_EFFECTS };
    if set(hook, "sideEffects").is_none() {
        let detail = format!("must specify one of {}", allowed.join(", "));
        causes.push(Cause::required(&path.child("sideEffects"), &detail));
    }
    causes.extend(optional(hook, "sideEffects", path, allowed));
    if let Some(seconds) = number(hook, "timeoutSeconds").filter(|seconds| !(1..=30).contains(seconds)) {
        let detail = "the timeout value must be between 1 and 30 seconds";
        causes.push(Cause::invalid(&path.child("timeoutSeconds"), &json!(seconds), detail));
    }
    causes.extend(selectors(hook, path));
    if mutating {
        causes.extend(optional(hook, "reinvocationPolicy", path, &REINVOCATION));
    }
    let empty = Tree::new();
    let config = object(hook, "clientConfig").unwrap_or(&empty);
    causes.extend(webhook::client(config, &path.child("clientConfig")));
    if !leniency.conditions {
        causes.extend(match_conditions(hook, false, &path.child("matchConditions")));
    }
    causes
}

/// A name of three parts or more: somebody's.
fn qualified(name: &str, path: &Path<'_>) -> Option<Cause> {
    let reasons = names::is_dns1123_subdomain(name);
    match () {
        _ if name.is_empty() => Some(Cause::required(path, "")),
        _ if !reasons.is_empty() => Some(Cause::invalid(path, &json!(name), &reasons.join(","))),
        _ if name.split('.').count() < 3 => Some(Cause::invalid(
            path,
            &json!(name),
            "should be a domain with at least three segments separated by dots",
        )),
        _ => None,
    }
}

fn review_versions(hook: &Tree, leniency: &Leniency, path: &Path<'_>) -> Vec<Cause> {
    let versions: &[Value] = list(hook, "admissionReviewVersions");
    if versions.is_empty() {
        return vec![Cause::required(path, "must specify one of v1, v1beta1")];
    }
    let mut causes = Vec::new();
    let mut seen = BTreeSet::new();
    for (at, version) in texts(hook, "admissionReviewVersions").enumerate() {
        if !seen.insert(version) {
            causes.push(Cause::invalid(&path.index(at), &json!(version), "duplicate version"));
            continue;
        }
        let reasons = names::is_dns1035_label(version);
        causes.extend(reasons.iter().map(|it| Cause::invalid(&path.index(at), &json!(version), it)));
    }
    if !leniency.review_versions && !REVIEW_VERSIONS.iter().any(|version| seen.contains(version)) {
        let detail = "must include at least one of v1, v1beta1";
        causes.push(Cause::invalid(path, &json!(versions), detail));
    }
    causes
}
