//! Autoscalers, in the stored spelling of `autoscaling/v2`.

use serde_json::{Value, json};

use super::{
    autoscaling_v1::{cpu_metric, drop_autoscaler_annotations},
    shared::counters,
};
use crate::{
    field_error::Cause,
    names,
    quantity::Quantity,
    resource::{Tree, only},
    validation::{
        members::{count, default_to, made, set},
        parts::{
            NOT_NEGATIVE, NOT_POSITIVE, Path, container_resource_name, dns_label, invalid_each, items, list,
            number, object, object_mut, text,
        },
    },
};

const DEFAULT_CPU_UTILIZATION: i64 = 80;

pub fn prepare_autoscaler(tree: &mut Tree) {
    tree.insert("status".into(), json!({"desiredReplicas": 0, "currentMetrics": null}));
    drop_autoscaler_annotations(tree);
}

pub fn only_autoscaler_status(new: &mut Tree, old: &Tree) {
    only(new, old, "status");
    drop_autoscaler_annotations(new);
}

pub fn default_autoscaler(tree: &mut Tree) {
    let spec = made(tree, "spec");
    default_to(spec, "minReplicas", 1);
    if list(spec, "metrics").is_empty() {
        spec.insert("metrics".into(), json!([cpu_metric(DEFAULT_CPU_UTILIZATION)]));
    }
    if let Some(behavior) = object_mut(spec, "behavior") {
        default_up(made(behavior, "scaleUp"));
        default_down(made(behavior, "scaleDown"));
    }
}

fn default_up(rules: &mut Tree) {
    default_to(rules, "stabilizationWindowSeconds", 0);
    default_to(rules, "selectPolicy", "Max");
    default_to(
        rules,
        "policies",
        json!([
            {"type": "Pods", "value": 4, "periodSeconds": 15},
            {"type": "Percent", "value": 100, "periodSeconds": 15},
        ]),
    );
}

/// How long to wait before scaling down is left to the controller.
fn default_down(rules: &mut Tree) {
    default_to(rules, "selectPolicy", "Max");
    default_to(rules, "policies", json!([{"type": "Percent", "value": 100, "periodSeconds": 15}]));
}

const SPEC: Path<'static> = Path::new("spec");
const MAX_PERIOD: i64 = 1800;
const MAX_WINDOW: i64 = 3600;

/// How strictly a reference's API version is read.
#[derive(Clone, Copy)]
struct Reading {
    core_group: bool,
    anything: bool,
}

pub fn autoscaler(new: &Tree, old: Option<&Tree>) -> Vec<Cause> {
    let empty = Tree::new();
    let spec = object(new, "spec").unwrap_or(&empty);
    let old_spec = old.map(|old| object(old, "spec").unwrap_or(&empty));
    let mut causes = replicas(spec, old_spec);
    let target = object(spec, "scaleTargetRef").unwrap_or(&empty);
    causes.extend(reference(target, &SPEC.child("scaleTargetRef"), target_reading(target, old_spec)));
    causes.extend(metrics(spec, object_reading(old_spec)));
    if let Some(behavior) = object(spec, "behavior") {
        let path = SPEC.child("behavior");
        for key in ["scaleUp", "scaleDown"] {
            if let Some(rules) = object(behavior, key) {
                causes.extend(scaling_rules(rules, &path.child(key)));
            }
        }
    }
    causes
}

fn replicas(spec: &Tree, old: Option<&Tree>) -> Vec<Cause> {
    let was_zero = old.is_some_and(|old| number(old, "minReplicas") == Some(0));
    let (min, least) = (number(spec, "minReplicas"), if was_zero { 0 } else { 1 });
    let max = count(spec, "maxReplicas");
    let mut causes = Vec::new();
    if let Some(min) = min.filter(|min| *min < least) {
        let detail = format!("must be greater than or equal to {least}");
        causes.push(Cause::invalid(&SPEC.child("minReplicas"), &json!(min), &detail));
    }
    let path = SPEC.child("maxReplicas");
    match max {
        0 => causes.push(Cause::required(&path, "must be set and greater than 0")),
        ..0 => causes.push(Cause::invalid(&path, &json!(max), "must be greater than or equal to 1")),
        _ => {}
    }
    if min.is_some_and(|min| max < min) {
        let detail = "must be greater than or equal to `minReplicas`";
        causes.push(Cause::invalid(&path, &json!(max), detail));
    }
    causes
}

/// What is scaled is in a group, but for replication controllers; what was stored before that was asked stays.
fn target_reading(target: &Tree, old: Option<&Tree>) -> Reading {
    let old = old.and_then(|old| object(old, "scaleTargetRef"));
    let same =
        old.is_some_and(|old| ["apiVersion", "kind"].iter().all(|key| text(old, key) == text(target, key)));
    let core_group = !same && text(target, "kind") == "ReplicationController";
    Reading { core_group, anything: same }
}

fn object_reading(old: Option<&Tree>) -> Reading {
    let strict = Reading { core_group: true, anything: false };
    let odd = |metric: &Tree| {
        let described = object(metric, "object").filter(|_| text(metric, "type") == "Object");
        let described = described.and_then(|source| object(source, "describedObject"));
        described.is_some_and(|described| api_version(text(described, "apiVersion"), strict).is_err())
    };
    let anything = old.is_some_and(|old| items(old, "metrics").any(|(_, metric)| odd(metric)));
    Reading { anything, ..strict }
}

fn api_version(text: &str, reading: Reading) -> Result<(), String> {
    if reading.anything {
        return Ok(());
    }
    match text.matches('/').count() {
        0 if !reading.core_group => Err("apiVersion must specify API group".to_owned()),
        1 if !reading.core_group && text.starts_with('/') && text.len() > 1 => {
            Err("apiVersion must specify API group".to_owned())
        }
        0 | 1 => Ok(()),
        _ => Err(format!("unexpected GroupVersion string: {text}")),
    }
}

fn reference(reference: &Tree, path: &Path<'_>, reading: Reading) -> Vec<Cause> {
    let mut causes = Vec::new();
    for key in ["kind", "name"] {
        causes.extend(path_segment(text(reference, key), &path.child(key), ""));
    }
    let version = text(reference, "apiVersion");
    if let Err(detail) = api_version(version, reading) {
        causes.push(Cause::invalid(&path.child("apiVersion"), &json!(version), &detail));
    }
    causes
}

fn path_segment(value: &str, path: &Path<'_>, missing: &str) -> Vec<Cause> {
    match value {
        "" => vec![Cause::required(path, missing)],
        value => invalid_each(path, value, names::is_path_segment_name(value)).collect(),
    }
}

fn metrics(spec: &Tree, reading: Reading) -> Vec<Cause> {
    let path = SPEC.child("metrics");
    let mut causes: Vec<Cause> = items(spec, "metrics")
        .flat_map(|(at, metric)| metric_spec(metric, &path.index(at), reading))
        .collect();
    let outside = |metric: &Tree| matches!(text(metric, "type"), "Object" | "External");
    if number(spec, "minReplicas") == Some(0) && !items(spec, "metrics").any(|(_, metric)| outside(metric)) {
        let detail =
            "must specify at least one Object or External metric to support scaling to zero replicas";
        causes.push(Cause::forbidden(&path, detail));
    }
    causes
}

/// Types and members, in the order in which upstream looks at them.
const SOURCES: [(&str, &str); 5] = [
    ("Object", "object"),
    ("External", "external"),
    ("Pods", "pods"),
    ("Resource", "resource"),
    ("ContainerResource", "containerResource"),
];

fn metric_spec(metric: &Tree, path: &Path<'_>, reading: Reading) -> Vec<Cause> {
    const KNOWN: [&str; 5] = ["ContainerResource", "External", "Object", "Pods", "Resource"];
    let kind = text(metric, "type");
    let unknown = || Cause::not_supported(&path.child("type"), &json!(kind), &KNOWN);
    let mut causes = Vec::new();
    if kind.is_empty() {
        causes.push(Cause::required(&path.child("type"), "must specify a metric source type"));
    }
    if !KNOWN.contains(&kind) {
        causes.push(unknown());
    }
    let present: Vec<&str> =
        SOURCES.iter().map(|(_, member)| *member).filter(|member| set(metric, member).is_some()).collect();
    if let Some(member) = present.first()
        && let Some(source) = object(metric, member)
    {
        causes.extend(metric_source(member, source, &path.child(member), reading));
    }
    let expected = SOURCES.iter().find(|(name, _)| *name == kind).map(|(_, member)| *member);
    match expected {
        Some(member) if set(metric, member).is_none() => {
            let detail = "must populate information for the given metric source";
            causes.push(Cause::required(&path.child(member), detail));
        }
        Some(_) => {}
        None => causes.push(unknown()),
    }
    if present.len() != 1 {
        let others = present.iter().filter(|member| Some(**member) != expected);
        let detail = "must populate the given metric source only";
        causes.extend(others.map(|member| Cause::forbidden(&path.child(member), detail)));
    }
    causes
}

fn metric_source(member: &str, source: &Tree, path: &Path<'_>, reading: Reading) -> Vec<Cause> {
    let empty = Tree::new();
    let target = object(source, "target").unwrap_or(&empty);
    let has = |key: &str| set(target, key).is_some();
    let mut causes = Vec::new();
    if member == "object" {
        let described = object(source, "describedObject").unwrap_or(&empty);
        causes.extend(reference(described, &path.child("describedObject"), reading));
    }
    match member {
        "resource" | "containerResource" => causes.extend(resource_source(member, source, path)),
        _ => {
            let metric = object(source, "metric").unwrap_or(&empty);
            let path = path.child("metric");
            causes.extend(path_segment(
                text(metric, "name"),
                &path.child("name"),
                "must specify a metric name",
            ));
        }
    }
    let path = path.child("target");
    causes.extend(metric_target(target, &path));
    let (average, value) = (path.child("averageValue"), path.child("value"));
    match member {
        "object" if !has("value") && !has("averageValue") => {
            causes.push(Cause::required(&average, "must set either a target value or averageValue"));
        }
        "external" if !has("value") && !has("averageValue") => {
            let detail = "must set either a target value for metric or a per-pod target";
            causes.push(Cause::required(&average, detail));
        }
        "external" if has("value") && has("averageValue") => {
            let detail = "may not set both a target value for metric and a per-pod target";
            causes.push(Cause::forbidden(&value, detail));
        }
        "pods" if !has("averageValue") => {
            causes.push(Cause::required(&average, "must specify a positive target averageValue"));
        }
        "resource" | "containerResource" if !has("averageUtilization") && !has("averageValue") => {
            let detail = "must set either a target raw value or a target utilization";
            causes.push(Cause::required(&path.child("averageUtilization"), detail));
        }
        "resource" | "containerResource" if has("averageUtilization") && has("averageValue") => {
            let detail = "may not set both a target raw value and a target utilization";
            causes.push(Cause::forbidden(&average, detail));
        }
        _ => {}
    }
    causes
}

fn resource_source(member: &str, source: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let name = text(source, "name");
    if name.is_empty() {
        causes.push(Cause::required(&path.child("name"), "must specify a resource name"));
    } else if member == "containerResource" {
        causes.extend(container_resource_name(name, &path.child("name")));
    }
    if member == "containerResource" {
        match text(source, "container") {
            "" => causes.push(Cause::required(&path.child("container"), "must specify a container")),
            container => causes.extend(dns_label(container, &path.child("container"))),
        }
    }
    causes
}

fn metric_target(target: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let kind = text(target, "type");
    if kind.is_empty() {
        causes.push(Cause::required(&path.child("type"), "must specify a metric target type"));
    }
    if !matches!(kind, "Utilization" | "Value" | "AverageValue") {
        let detail = "must be either Utilization, Value, or AverageValue";
        causes.push(Cause::invalid(&path.child("type"), &json!(kind), detail));
    }
    for key in ["value", "averageValue"] {
        if let Some(value) = set(target, key)
            && quantity(value).is_some_and(|quantity| quantity.is_zero() || quantity.is_negative())
        {
            causes.push(Cause::invalid(&path.child(key), value, "must be positive"));
        }
    }
    if let Some(utilization) = number(target, "averageUtilization").filter(|utilization| *utilization < 1) {
        let path = path.child("averageUtilization");
        causes.push(Cause::invalid(&path, &json!(utilization), "must be greater than 0"));
    }
    causes
}

fn quantity(value: &Value) -> Option<Quantity> {
    value.as_str().and_then(|text| Quantity::parse(text).ok())
}

fn scaling_rules(rules: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    if let Some(window) = number(rules, "stabilizationWindowSeconds") {
        let path = path.child("stabilizationWindowSeconds");
        if window < 0 {
            causes.push(Cause::invalid(&path, &json!(window), "must be greater than or equal to zero"));
        }
        if window > MAX_WINDOW {
            let detail = format!("must be less than or equal to {MAX_WINDOW}");
            causes.push(Cause::invalid(&path, &json!(window), &detail));
        }
    }
    let known = ["Disabled", "Max", "Min"];
    if let Some(policy) = set(rules, "selectPolicy")
        && !policy.as_str().is_some_and(|policy| known.contains(&policy))
    {
        causes.push(Cause::not_supported(&path.child("selectPolicy"), policy, &known));
    }
    let policies = path.child("policies");
    if list(rules, "policies").is_empty() {
        causes.push(Cause::required(&policies, "must specify at least one Policy"));
    }
    for (at, policy) in items(rules, "policies") {
        causes.extend(scaling_policy(policy, &policies.index(at)));
    }
    if let Some(tolerance) = set(rules, "tolerance")
        && quantity(tolerance).is_some_and(|quantity| quantity.is_negative())
    {
        causes.push(Cause::invalid(&path.child("tolerance"), tolerance, NOT_NEGATIVE));
    }
    causes
}

fn scaling_policy(policy: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let known = ["Percent", "Pods"];
    let kind = text(policy, "type");
    if !known.contains(&kind) {
        causes.push(Cause::not_supported(&path.child("type"), &json!(kind), &known));
    }
    for key in ["value", "periodSeconds"] {
        let number = count(policy, key);
        if number <= 0 {
            causes.push(Cause::invalid(&path.child(key), &json!(number), NOT_POSITIVE));
        }
    }
    let period = count(policy, "periodSeconds");
    if period > MAX_PERIOD {
        let detail = format!("must be less than or equal to {MAX_PERIOD}");
        causes.push(Cause::invalid(&path.child("periodSeconds"), &json!(period), &detail));
    }
    causes
}

pub fn autoscaler_status(new: &Tree, _: &Tree) -> Vec<Cause> {
    let empty = Tree::new();
    let status = object(new, "status").unwrap_or(&empty);
    counters(status, &Path::new("status"), &["currentReplicas", "desiredReplicas"])
}
