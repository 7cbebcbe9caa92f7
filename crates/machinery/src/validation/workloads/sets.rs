//! Stateful sets, daemon sets and their revisions.

use serde_json::{Map, Value, json};

use super::{
    apps::no_more_than,
    defaults::template_generation,
    shared::{
        NOT_SELECTED, counters, decremented, immutable_selector, int_or_percent, is_zero_int_or_percent,
        label_selector, not_more_than_whole, or_null, runs_for_ever, selects, template_labels,
    },
};
use crate::{
    field_error::Cause,
    metadata,
    resource::Tree,
    schema::{Spelling, written},
    selector::{self, LabelSelector},
    validation::{
        members::{count, made, name_prefix, set},
        parts::{
            ClaimOptions, IMMUTABLE, Path, claim_spec, dns_label, items, not_negative, number, object, text,
        },
        pod,
    },
};

const SPEC: Path<'static> = Path::new("spec");
const STATUS: Path<'static> = Path::new("status");

pub fn daemon_set(new: &Tree, old: Option<&Tree>) -> Vec<Cause> {
    let empty = Tree::new();
    let spec = object(new, "spec").unwrap_or(&empty);
    let mut causes: Vec<Cause> = immutable_selector(new, old).into_iter().collect();
    let value = or_null(spec, "selector");
    let selector_path = SPEC.child("selector");
    causes.extend(selector::validate_object(value, &selector_path.to_string()));
    let template = object(spec, "template").unwrap_or(&empty);
    let path = SPEC.child("template");
    let labels = template_labels(template);
    if LabelSelector::from_object(value).is_ok_and(|selector| !selects(&selector, labels)) {
        causes.push(Cause::invalid(&path.child("metadata").child("labels"), labels, NOT_SELECTED));
    }
    if value.as_object().is_some_and(Map::is_empty) {
        causes.push(Cause::invalid(&selector_path, value, "empty selector is invalid for daemonset"));
    }
    let old_template = old.and_then(|old| object(old, "spec")).and_then(|spec| object(spec, "template"));
    causes.extend(pod::template(template, old_template, &path.to_string()));
    causes.extend(runs_for_ever(template, &path, "DaemonSet"));
    causes.extend(not_negative(count(spec, "minReadySeconds"), &SPEC.child("minReadySeconds")));
    causes.extend(not_negative(template_generation(new), &SPEC.child("templateGeneration")));
    causes.extend(daemon_set_strategy(spec, &SPEC.child("updateStrategy")));
    causes.extend(counters(spec, &SPEC, &["revisionHistoryLimit"]));
    causes
}

fn daemon_set_strategy(spec: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let empty = Tree::new();
    let strategy = object(spec, "updateStrategy").unwrap_or(&empty);
    match (text(strategy, "type"), object(strategy, "rollingUpdate")) {
        ("OnDelete", _) => Vec::new(),
        ("RollingUpdate", None) => vec![Cause::required(&path.child("rollingUpdate"), "")],
        ("RollingUpdate", Some(rolling)) => daemon_set_rolling_update(rolling, &path.child("rollingUpdate")),
        _ => {
            let shown =
                written("apps/v1.DaemonSetUpdateStrategy", spec.get("updateStrategy"), Spelling::Internal);
            vec![Cause::not_supported_text(path, &shown, &["RollingUpdate", "OnDelete"])]
        }
    }
}

fn daemon_set_rolling_update(rolling: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let (unavailable, surge) = (or_null(rolling, "maxUnavailable"), or_null(rolling, "maxSurge"));
    let (unavailable_path, surge_path) = (path.child("maxUnavailable"), path.child("maxSurge"));
    let mut causes = int_or_percent(unavailable, &unavailable_path);
    causes.extend(int_or_percent(surge, &surge_path));
    causes.extend(not_more_than_whole(unavailable, &unavailable_path));
    causes.extend(not_more_than_whole(surge, &surge_path));
    match (is_zero_int_or_percent(unavailable), is_zero_int_or_percent(surge)) {
        (false, false) => {
            let detail = "may not be set when maxUnavailable is non-zero";
            causes.push(Cause::invalid(&surge_path, surge, detail));
        }
        (true, true) => causes.push(Cause::required(&unavailable_path, "cannot be 0 when maxSurge is 0")),
        _ => {}
    }
    causes
}

pub fn daemon_set_status(new: &Tree, old: &Tree) -> Vec<Cause> {
    let empty = Tree::new();
    let status = object(new, "status").unwrap_or(&empty);
    let mut causes = counters(
        status,
        &STATUS,
        &[
            "currentNumberScheduled",
            "numberMisscheduled",
            "desiredNumberScheduled",
            "numberReady",
            "observedGeneration",
            "updatedNumberScheduled",
            "numberAvailable",
            "numberUnavailable",
            "collisionCount",
        ],
    );
    causes.extend(decremented(status, old, "collisionCount"));
    causes
}

pub fn stateful_set(new: &Tree, old: Option<&Tree>) -> Vec<Cause> {
    let empty = Tree::new();
    let spec = object(new, "spec").unwrap_or(&empty);
    let mut causes = stateful_set_spec(spec, old);
    if let Some(old_spec) = old.map(|old| object(old, "spec").unwrap_or(&empty))
        && fixed(spec) != fixed(old_spec)
    {
        let detail = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";
        causes.push(Cause::forbidden(&SPEC, detail));
    }
    causes
}

/// What of a stateful set's spec stays as it was created.
fn fixed(spec: &Tree) -> Vec<(&String, &Value)> {
    const CHANGING: [&str; 7] = [
        "replicas",
        "ordinals",
        "template",
        "updateStrategy",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
        "minReadySeconds",
    ];
    spec.iter().filter(|(key, value)| !value.is_null() && !CHANGING.contains(&key.as_str())).collect()
}

fn stateful_set_spec(spec: &Tree, old: Option<&Tree>) -> Vec<Cause> {
    let mut causes = Vec::new();
    match text(spec, "podManagementPolicy") {
        "" => causes.push(Cause::required(&SPEC.child("podManagementPolicy"), "")),
        "OrderedReady" | "Parallel" => {}
        policy => {
            let detail = "must be 'OrderedReady' or 'Parallel'";
            causes.push(Cause::invalid(&SPEC.child("podManagementPolicy"), &json!(policy), detail));
        }
    }
    causes.extend(stateful_set_strategy(spec, &SPEC.child("updateStrategy")));
    causes.extend(retention(spec, &SPEC.child("persistentVolumeClaimRetentionPolicy")));
    if old.is_none() {
        let path = SPEC.child("volumeClaimTemplates");
        for (at, claim) in items(spec, "volumeClaimTemplates") {
            let empty = Tree::new();
            let claim = object(claim, "spec").unwrap_or(&empty);
            causes.extend(claim_spec(claim, ClaimOptions::default(), &path.index(at).child("spec")));
        }
    }
    causes.extend(not_negative(count(spec, "replicas"), &SPEC.child("replicas")));
    causes.extend(not_negative(count(spec, "minReadySeconds"), &SPEC.child("minReadySeconds")));
    if let Some(ordinals) = object(spec, "ordinals") {
        causes.extend(not_negative(count(ordinals, "start"), &SPEC.child("ordinals.start")));
    }
    let service = text(spec, "serviceName");
    if old.is_none() && !service.is_empty() {
        causes.extend(dns_label(service, &SPEC.child("serviceName")));
    }
    causes.extend(stateful_set_pods(spec, old));
    causes
}

fn stateful_set_pods(spec: &Tree, old: Option<&Tree>) -> Vec<Cause> {
    let empty = Tree::new();
    let selector_path = SPEC.child("selector");
    let value = or_null(spec, "selector");
    let mut causes = label_selector(value, &selector_path, "empty selector is invalid for statefulset");
    let template = object(spec, "template").unwrap_or(&empty);
    let path = SPEC.child("template");
    match LabelSelector::from_object(value) {
        Err(_) => {
            let shown = written("meta/v1.LabelSelector", Some(value), Spelling::Versioned);
            causes.push(Cause::invalid_text(&selector_path, &shown, ""));
        }
        Ok(selector) => {
            let labels = template_labels(template);
            if !selector.is_empty() && !selects(&selector, labels) {
                causes.push(Cause::invalid(&path.child("metadata").child("labels"), labels, NOT_SELECTED));
            }
            let old_spec = old.and_then(|old| object(old, "spec"));
            let old_template = old_spec.and_then(|spec| object(spec, "template"));
            let complete = complete_template(spec, template);
            causes.extend(pod::template(&complete, old_template, &path.to_string()));
            let metadata_of = |key: &str| object(template, "metadata").and_then(|metadata| metadata.get(key));
            causes.extend(metadata::labels(metadata_of("labels"), &path.child("labels").to_string()));
            let annotations = path.child("annotations").to_string();
            causes.extend(metadata::annotations(metadata_of("annotations"), &annotations));
        }
    }
    causes.extend(runs_for_ever(template, &path, "StatefulSet"));
    causes
}

/// The template as pods are made of it: named by the set, with a volume for each claim.
fn complete_template(spec: &Tree, template: &Tree) -> Tree {
    let mut complete = template.clone();
    let pod = made(&mut complete, "spec");
    pod.remove("subdomain");
    pod.remove("hostname");
    let mut claims: Vec<&str> = items(spec, "volumeClaimTemplates")
        .map(|(_, claim)| object(claim, "metadata").map_or("", |metadata| text(metadata, "name")))
        .collect();
    claims.sort_unstable();
    claims.dedup();
    if claims.is_empty() {
        return complete;
    }
    let own = items(pod, "volumes")
        .map(|(_, volume)| volume)
        .filter(|volume| !claims.contains(&text(volume, "name")));
    let own: Vec<Value> = own.cloned().map(Value::Object).collect();
    let added = claims.iter().map(|name| json!({"name": name, "persistentVolumeClaim": {"claimName": name}}));
    let volumes = added.chain(own).collect();
    pod.insert("volumes".into(), Value::Array(volumes));
    complete
}

fn stateful_set_strategy(spec: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let empty = Tree::new();
    let strategy = object(spec, "updateStrategy").unwrap_or(&empty);
    let rolling = object(strategy, "rollingUpdate");
    match (text(strategy, "type"), rolling) {
        ("", _) => vec![Cause::required(path, "")],
        ("OnDelete", Some(_)) => {
            let shown = written(
                "apps/v1.RollingUpdateStatefulSetStrategy",
                strategy.get("rollingUpdate"),
                Spelling::Internal,
            );
            let detail = "only allowed for updateStrategy 'RollingUpdate'";
            vec![Cause::invalid_text(&path.child("rollingUpdate"), &shown, detail)]
        }
        ("OnDelete" | "RollingUpdate", None) => Vec::new(),
        ("RollingUpdate", Some(rolling)) => {
            stateful_set_rolling_update(rolling, &path.child("rollingUpdate"))
        }
        _ => {
            let shown =
                written("apps/v1.StatefulSetUpdateStrategy", spec.get("updateStrategy"), Spelling::Internal);
            vec![Cause::invalid_text(path, &shown, "must be 'RollingUpdate' or 'OnDelete'")]
        }
    }
}

fn stateful_set_rolling_update(rolling: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let mut causes: Vec<Cause> =
        not_negative(count(rolling, "partition"), &path.child("partition")).into_iter().collect();
    if let Some(unavailable) = set(rolling, "maxUnavailable") {
        let path = path.child("maxUnavailable");
        causes.extend(int_or_percent(unavailable, &path));
        if is_zero_int_or_percent(unavailable) {
            causes.push(Cause::invalid(&path, unavailable, "cannot be 0"));
        }
        causes.extend(not_more_than_whole(unavailable, &path));
    }
    causes
}

fn retention(spec: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let Some(policy) = object(spec, "persistentVolumeClaimRetentionPolicy") else { return Vec::new() };
    let known = ["Retain", "Delete"];
    let odd = ["whenDeleted", "whenScaled"].into_iter().filter(|key| !known.contains(&text(policy, key)));
    odd.map(|key| Cause::not_supported(&path.child(key), &json!(text(policy, key)), &known)).collect()
}

pub fn stateful_set_status(new: &Tree, old: &Tree) -> Vec<Cause> {
    const MORE_THAN_REPLICAS: &str = "cannot be greater than status.replicas";
    let empty = Tree::new();
    let status = object(new, "status").unwrap_or(&empty);
    let mut causes = counters(
        status,
        &STATUS,
        &[
            "replicas",
            "readyReplicas",
            "currentReplicas",
            "updatedReplicas",
            "availableReplicas",
            "observedGeneration",
            "collisionCount",
        ],
    );
    causes.extend(no_more_than(
        status,
        &[
            ("readyReplicas", "replicas", MORE_THAN_REPLICAS),
            ("currentReplicas", "replicas", MORE_THAN_REPLICAS),
            ("updatedReplicas", "replicas", MORE_THAN_REPLICAS),
            ("availableReplicas", "replicas", MORE_THAN_REPLICAS),
            ("availableReplicas", "readyReplicas", "cannot be greater than status.readyReplicas"),
        ],
    ));
    causes.extend(decremented(status, old, "collisionCount"));
    causes
}

pub fn controller_revision(new: &Tree, old: Option<&Tree>) -> Vec<Cause> {
    let mut causes = name_prefix(new, old);
    if let Some(revision) = number(new, "revision") {
        causes.extend(not_negative(revision, &Path::new("revision")));
    }
    let data = new.get("data").unwrap_or(&Value::Null);
    match old {
        Some(old) if or_null(old, "data") != data => causes.push(Cause::invalid("data", data, IMMUTABLE)),
        Some(_) => {}
        None if data.is_null() => causes.push(Cause::required("data", "data is mandatory")),
        None if !data.is_object() => {
            causes.push(Cause::required("data", "data must be a valid JSON object"));
        }
        None => {}
    }
    causes
}
