//! Autoscalers: each cluster has its own, within its part of the bounds.

use std::collections::BTreeMap;

use machinery::quantity::{Format, Quantity};
use serde_json::{Value, json};

use super::{
    Member, Whole,
    conditions::{self, condition, decided, of, status_of},
    latest, set, total,
};
use crate::fields::{at, list, put, text};

const OWN: [&str; 3] = ["AbleToScale", "ScalingActive", "ScalingLimited"];

pub(crate) fn autoscaler(whole: &Whole<'_>) -> Value {
    let mut status = whole.base();
    put(&mut status, "observedGeneration", whole.observed());
    let sum = |field: &str| total(whole.staying().map(|member| member.count(field)));
    set(&mut status, "currentReplicas", sum("currentReplicas"));
    put(&mut status, "desiredReplicas", sum("desiredReplicas"));
    let scaled = whole.staying().map(|member| text(member.status(), "lastScaleTime"));
    if let Some(time) = latest(scaled.chain([text(whole.old, "lastScaleTime")])) {
        put(&mut status, "lastScaleTime", time.to_owned());
    }
    if whole.sole().is_none() {
        put(&mut status, "currentMetrics", metrics(whole));
    }
    let reported = |kind: &&str| whole.staying().any(|member| of(member.status(), kind).is_some());
    let mut all: Vec<Value> = OWN.into_iter().filter(reported).map(|kind| own(whole, kind)).collect();
    all.extend(conditions::merged(whole, &OWN));
    if !all.is_empty() {
        put(&mut status, "conditions", all);
    }
    status
}

/// Able and active where all are, limited only where all are: there is room while one has some. Of several reasons,
/// the one that says least of success.
fn own(whole: &Whole<'_>, kind: &str) -> Value {
    let all: Vec<&Member<'_>> = whole.staying().collect();
    let having = |status: &str| -> Vec<&Member<'_>> {
        all.iter().copied().filter(|member| status_of(member.status(), kind) == status).collect()
    };
    let silent: Vec<&Member<'_>> = having("");
    if kind != "ScalingLimited" {
        for status in ["False", "Unknown"] {
            let who = having(status);
            if !who.is_empty() {
                return decided(whole, kind, status, &who);
            }
        }
    }
    if !silent.is_empty() {
        let names = super::name_some(silent.iter().map(|member| member.name));
        return condition(whole, kind, "Unknown", "NotReported", &format!("not known of {names}"));
    }
    let unlimited = having("False");
    if kind == "ScalingLimited" && !unlimited.is_empty() {
        return decided(whole, kind, "False", &unlimited);
    }
    let mut who = having("True");
    who.sort_by_key(|it| of(it.status(), kind).is_some_and(|it| text(it, "reason") == "SucceededRescale"));
    decided(whole, kind, "True", &who)
}

/// What one metric is in the clusters, weighed by how many replicas they have.
#[derive(Default)]
struct Metric {
    shape: Value,
    replicas: u64,
    utilization: Option<u128>,
    average_milli: Option<i128>,
    most: Option<Quantity>,
}

/// Where the current value of a kind of metric stands.
fn source(metric: &Value) -> Option<&'static str> {
    match text(metric, "type") {
        "Resource" => Some("resource"),
        "ContainerResource" => Some("containerResource"),
        "Pods" => Some("pods"),
        "Object" => Some("object"),
        "External" => Some("external"),
        _ => None,
    }
}

/// The metrics of all clusters: per pod, the average over all pods; of other things, the highest.
fn metrics(whole: &Whole<'_>) -> Vec<Value> {
    let mut metrics: BTreeMap<String, Metric> = BTreeMap::new();
    for member in whole.staying() {
        let replicas = member.count("currentReplicas");
        for metric in list(member.status(), "currentMetrics") {
            let Some(source) = source(metric) else { continue };
            let mut shape = metric.clone();
            let current = crate::fields::remove(&mut shape, &format!("{source}.current"));
            let sum = metrics.entry(shape.to_string()).or_default();
            sum.shape = shape;
            sum.add(&current.unwrap_or_default(), replicas);
        }
    }
    metrics.into_values().map(Metric::into_value).collect()
}

impl Metric {
    fn add(&mut self, current: &Value, replicas: u64) {
        self.replicas = self.replicas.saturating_add(replicas);
        let weight = u128::from(replicas);
        if let Some(percent) = at(current, "averageUtilization").and_then(Value::as_u64) {
            let sum = self.utilization.get_or_insert(0);
            *sum = sum.saturating_add(u128::from(percent).saturating_mul(weight));
        }
        let quantity = |path| Quantity::parse(text(current, path)).ok();
        if let Some(average) = quantity("averageValue") {
            let sum = self.average_milli.get_or_insert(0);
            let weighed = i128::from(average.milli_value()).saturating_mul(i128::from(replicas));
            *sum = sum.saturating_add(weighed);
        }
        if let Some(value) = quantity("value") {
            self.most = self.most.take().filter(|most| *most >= value).or(Some(value));
        }
    }

    fn into_value(self) -> Value {
        let mut current = json!({});
        if let Some(percent) = self.utilization.filter(|_| self.replicas > 0) {
            let average = percent / u128::from(self.replicas);
            put(&mut current, "averageUtilization", u64::try_from(average).unwrap_or(u64::MAX));
        }
        if let Some(milli) = self.average_milli.filter(|_| self.replicas > 0) {
            let average = i64::try_from(milli / i128::from(self.replicas)).unwrap_or(i64::MAX);
            let average = Quantity::from_milli(average, Format::DecimalSi);
            put(&mut current, "averageValue", average.to_string());
        }
        if let Some(most) = self.most {
            put(&mut current, "value", most.to_string());
        }
        let mut metric = self.shape;
        if let Some(source) = source(&metric) {
            put(&mut metric, &format!("{source}.current"), current);
        }
        metric
    }
}
