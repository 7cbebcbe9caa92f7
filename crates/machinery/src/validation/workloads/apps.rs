//! Deployments, replica sets and replication controllers.

use serde_json::json;

use super::shared::{
    counters, decremented, immutable_selector, int_or_percent, is_zero_int_or_percent, label_selector,
    not_more_than_whole, or_null, selected_template,
};
use crate::{
    field_error::Cause,
    resource::Tree,
    schema::{Spelling, written},
    selector::LabelSelector,
    validation::{
        members::{count, set},
        parts::{Path, entries, not_negative, number, object, text},
    },
};

const SPEC: Path<'static> = Path::new("spec");
const STATUS: Path<'static> = Path::new("status");
const MORE_THAN_REPLICAS: &str = "cannot be greater than status.replicas";

pub fn deployment(new: &Tree, old: Option<&Tree>) -> Vec<Cause> {
    let empty = Tree::new();
    let spec = object(new, "spec").unwrap_or(&empty);
    let mut causes = replicated(spec, old, &["replicas"], "invalid label selector");
    causes.extend(strategy(spec, &SPEC.child("strategy")));
    let ready = count(spec, "minReadySeconds");
    causes.extend(not_negative(ready, &SPEC.child("minReadySeconds")));
    if let Some(limit) = number(spec, "revisionHistoryLimit") {
        causes.extend(not_negative(limit, &SPEC.child("revisionHistoryLimit")));
    }
    if let Some(deadline) = number(spec, "progressDeadlineSeconds") {
        let path = SPEC.child("progressDeadlineSeconds");
        causes.extend(not_negative(deadline, &path));
        if deadline <= ready {
            causes.push(Cause::invalid(&path, &json!(deadline), "must be greater than minReadySeconds"));
        }
    }
    causes.extend(immutable_selector(new, old));
    causes
}

pub fn replica_set(new: &Tree, old: Option<&Tree>) -> Vec<Cause> {
    let empty = Tree::new();
    let spec = object(new, "spec").unwrap_or(&empty);
    let mut causes = replicated(spec, old, &["replicas", "minReadySeconds"], "invalid label selector");
    causes.extend(immutable_selector(new, old));
    causes
}

/// What deployments and replica sets have in common: numbers, a selector and the template that it selects.
fn replicated(spec: &Tree, old: Option<&Tree>, numbers: &[&str], unreadable: &str) -> Vec<Cause> {
    let mut causes: Vec<Cause> =
        numbers.iter().filter_map(|key| not_negative(count(spec, key), &SPEC.child(key))).collect();
    let path = SPEC.child("selector");
    let value = or_null(spec, "selector");
    causes.extend(label_selector(value, &path, "empty selector is invalid for deployment"));
    match LabelSelector::from_object(value) {
        Ok(selector) => {
            let old_template =
                old.and_then(|old| object(old, "spec")).and_then(|spec| object(spec, "template"));
            causes.extend(selected_template(spec, old_template, &selector, "ReplicaSet"));
        }
        Err(_) => {
            let shown = written("meta/v1.LabelSelector", Some(value), Spelling::Versioned);
            causes.push(Cause::invalid_text(&path, &shown, unreadable));
        }
    }
    causes
}

fn strategy(spec: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let empty = Tree::new();
    let strategy = object(spec, "strategy").unwrap_or(&empty);
    let rolling = object(strategy, "rollingUpdate");
    match (text(strategy, "type"), rolling) {
        ("Recreate", Some(_)) => {
            let detail = "may not be specified when strategy `type` is 'Recreate'";
            vec![Cause::forbidden(&path.child("rollingUpdate"), detail)]
        }
        ("Recreate", None) => Vec::new(),
        ("RollingUpdate", Some(rolling)) => rolling_update(rolling, &path.child("rollingUpdate")),
        ("RollingUpdate", None) => {
            vec![Cause::required(&path.child("rollingUpdate"), "this should be defaulted and never be nil")]
        }
        _ => {
            let shown = written("apps/v1.DeploymentStrategy", spec.get("strategy"), Spelling::Internal);
            vec![Cause::not_supported_text(path, &shown, &["Recreate", "RollingUpdate"])]
        }
    }
}

fn rolling_update(rolling: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let (unavailable, surge) = (or_null(rolling, "maxUnavailable"), or_null(rolling, "maxSurge"));
    let unavailable_path = path.child("maxUnavailable");
    let mut causes = int_or_percent(unavailable, &unavailable_path);
    causes.extend(int_or_percent(surge, &path.child("maxSurge")));
    if is_zero_int_or_percent(unavailable) && is_zero_int_or_percent(surge) {
        causes.push(Cause::invalid(&unavailable_path, unavailable, "may not be 0 when `maxSurge` is 0"));
    }
    causes.extend(not_more_than_whole(unavailable, &unavailable_path));
    causes
}

pub fn deployment_status(new: &Tree, old: &Tree) -> Vec<Cause> {
    let empty = Tree::new();
    let status = object(new, "status").unwrap_or(&empty);
    let mut causes = counters(
        status,
        &STATUS,
        &[
            "observedGeneration",
            "replicas",
            "updatedReplicas",
            "readyReplicas",
            "availableReplicas",
            "unavailableReplicas",
            "terminatingReplicas",
            "collisionCount",
        ],
    );
    causes.extend(no_more_than(
        status,
        &[
            ("updatedReplicas", "replicas", MORE_THAN_REPLICAS),
            ("readyReplicas", "replicas", MORE_THAN_REPLICAS),
            ("availableReplicas", "replicas", MORE_THAN_REPLICAS),
            ("availableReplicas", "readyReplicas", "cannot be greater than readyReplicas"),
        ],
    ));
    causes.extend(decremented(status, old, "collisionCount"));
    causes
}

/// The first of two counters may not exceed the second.
pub fn no_more_than(status: &Tree, pairs: &[(&str, &str, &str)]) -> Vec<Cause> {
    let exceeding = pairs.iter().filter(|(less, more, _)| count(status, less) > count(status, more));
    exceeding
        .map(|(less, _, why)| Cause::invalid(&STATUS.child(less), &json!(count(status, less)), why))
        .collect()
}

fn replicas_status(new: &Tree, numbers: &[&str]) -> Vec<Cause> {
    let empty = Tree::new();
    let status = object(new, "status").unwrap_or(&empty);
    let mut causes = counters(status, &STATUS, numbers);
    causes.extend(no_more_than(
        status,
        &[
            ("fullyLabeledReplicas", "replicas", MORE_THAN_REPLICAS),
            ("readyReplicas", "replicas", MORE_THAN_REPLICAS),
            ("availableReplicas", "replicas", MORE_THAN_REPLICAS),
            ("availableReplicas", "readyReplicas", "cannot be greater than readyReplicas"),
        ],
    ));
    causes
}

pub fn replica_set_status(new: &Tree, _: &Tree) -> Vec<Cause> {
    let numbers = [
        "replicas",
        "fullyLabeledReplicas",
        "readyReplicas",
        "availableReplicas",
        "observedGeneration",
        "terminatingReplicas",
    ];
    replicas_status(new, &numbers)
}

pub fn replication_controller_status(new: &Tree, _: &Tree) -> Vec<Cause> {
    let numbers =
        ["replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "observedGeneration"];
    replicas_status(new, &numbers)
}

pub fn replication_controller(new: &Tree, old: Option<&Tree>) -> Vec<Cause> {
    let empty = Tree::new();
    let spec = object(new, "spec").unwrap_or(&empty);
    let mut causes: Vec<Cause> = Vec::new();
    causes.extend(not_negative(count(spec, "minReadySeconds"), &SPEC.child("minReadySeconds")));
    if object(spec, "selector").is_none_or(Tree::is_empty) {
        causes.push(Cause::required(&SPEC.child("selector"), ""));
    }
    match number(spec, "replicas") {
        Some(replicas) => causes.extend(not_negative(replicas, &SPEC.child("replicas"))),
        None => causes.push(Cause::required(&SPEC.child("replicas"), "")),
    }
    if set(spec, "template").is_none() {
        causes.push(Cause::required(&SPEC.child("template"), ""));
        return causes;
    }
    let labels = entries(spec, "selector").map(|(key, value)| (key, value.as_str().unwrap_or_default()));
    let selector = LabelSelector::from_labels(labels);
    let old_template = old.and_then(|old| object(old, "spec")).and_then(|spec| object(spec, "template"));
    causes.extend(selected_template(spec, old_template, &selector, "ReplicationController"));
    causes
}
