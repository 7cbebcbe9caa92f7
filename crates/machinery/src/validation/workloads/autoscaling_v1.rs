//! Autoscalers of `autoscaling/v1` in the stored spelling of `v2`, and back.
//!
//! The older version knows one metric, the use of the processor. What it cannot express it carries in annotations,
//! which stored objects never have.

use serde_json::{Value, json};

use crate::{
    gojson,
    quantity::Quantity,
    resource::Tree,
    schema::{self, Options, Spelling, Types, written},
    validation::{
        members::{annotation, assign, default_to, made, set},
        parts::{number, object, object_mut, text},
    },
};

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
const ANNOTATIONS: [&str; 6] = [
    METRICS,
    CURRENT_METRICS,
    CONDITIONS,
    BEHAVIOR,
    "autoscaling.alpha.kubernetes.io/scale-down-tolerance",
    "autoscaling.alpha.kubernetes.io/scale-up-tolerance",
];

const DEFAULT_CPU_UTILIZATION: i64 = 80;

/// Neither stored objects nor those of `v2` have the annotations that `v1` needs.
pub fn drop_autoscaler_annotations(tree: &mut Tree) {
    let Some(metadata) = object_mut(tree, "metadata") else { return };
    let Some(annotations) = object_mut(metadata, "annotations") else { return };
    annotations.retain(|key, _| !ANNOTATIONS.contains(&key.as_str()));
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
}

/// The metric that an autoscaler has if it names none.
pub fn cpu_metric(utilization: i64) -> Value {
    json!({
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": utilization}},
    })
}

/// Towards storage.
pub fn autoscaler_from_v1(tree: &mut Tree) {
    let spec = made(tree, "spec");
    let utilization = spec.remove("targetCPUUtilizationPercentage").and_then(|value| value.as_i64());
    let mut metrics = match list_in(tree, METRICS, "autoscaling/v1.MetricSpec") {
        Some(others) => others.iter().filter_map(Value::as_object).map(spec_from_v1).collect(),
        None => Vec::new(),
    };
    metrics.extend(utilization.map(cpu_metric));
    if metrics.is_empty() {
        metrics.push(cpu_metric(DEFAULT_CPU_UTILIZATION));
    }
    let behavior = behavior_in(tree);
    let spec = made(tree, "spec");
    spec.insert("metrics".into(), Value::Array(metrics));
    if let Some(behavior) = behavior {
        spec.insert("behavior".into(), behavior);
    }
    if set(tree, "status").is_some() {
        status_from_v1(tree);
    }
    drop_autoscaler_annotations(tree);
}

fn status_from_v1(tree: &mut Tree) {
    let metrics = list_in(tree, CURRENT_METRICS, "autoscaling/v1.MetricStatus");
    let metrics = metrics.map(|list| list.iter().filter_map(Value::as_object).map(status_of_v1).collect());
    let conditions = list_in(tree, CONDITIONS, "autoscaling/v1.HorizontalPodAutoscalerCondition");
    let status = made(tree, "status");
    let utilization = status.remove("currentCPUUtilizationPercentage").filter(|value| !value.is_null());
    let alone = utilization.map(|utilization| {
        json!([{"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": utilization}}}])
    });
    status.insert("currentMetrics".into(), metrics.or(alone).unwrap_or_default());
    if number(status, "currentReplicas") == Some(0) {
        status.remove("currentReplicas");
    }
    if let Some(conditions) = conditions.filter(|list| !list.is_empty()) {
        status.insert("conditions".into(), Value::Array(conditions));
    }
}

/// Back from storage.
pub fn autoscaler_to_v1(tree: &mut Tree) {
    drop_autoscaler_annotations(tree);
    let spec = made(tree, "spec");
    let metrics = spec.remove("metrics").unwrap_or_default();
    let behavior = spec.remove("behavior").filter(|value| !value.is_null());
    let metrics: Vec<&Tree> = metrics.as_array().into_iter().flatten().filter_map(Value::as_object).collect();
    let utilization = metrics.iter().find_map(|metric| cpu_utilization(metric));
    assign(spec, "targetCPUUtilizationPercentage", utilization.map(Value::from));
    let others: Vec<String> = metrics
        .iter()
        .filter(|metric| cpu_utilization(metric).is_none())
        .map(|metric| written("autoscaling/v1.MetricSpec", Some(&spec_to_v1(metric)), Spelling::Versioned))
        .collect();
    annotate(tree, METRICS, &others);
    status_to_v1(made(tree, "status")).into_iter().for_each(|(key, items)| annotate(tree, key, &items));
    if let Some(behavior) = behavior {
        let text =
            written("autoscaling/v2.HorizontalPodAutoscalerBehavior", Some(&behavior), Spelling::Internal);
        made(made(tree, "metadata"), "annotations").insert(BEHAVIOR.into(), json!(text));
    }
}

/// Rewrites the status and returns what goes into annotations.
fn status_to_v1(status: &mut Tree) -> [(&'static str, Vec<String>); 2] {
    let metrics = status.remove("currentMetrics").unwrap_or_default();
    let conditions = status.remove("conditions").unwrap_or_default();
    let metrics: Vec<&Tree> = metrics.as_array().into_iter().flatten().filter_map(Value::as_object).collect();
    // The last one counts.
    let utilization = metrics.iter().rev().find_map(|metric| {
        let resource = object(metric, "resource").filter(|_| text(metric, "type") == "Resource")?;
        let current = object(resource, "current").filter(|_| text(resource, "name") == "cpu")?;
        number(current, "averageUtilization")
    });
    assign(status, "currentCPUUtilizationPercentage", utilization.map(Value::from));
    default_to(status, "currentReplicas", 0);
    default_to(status, "desiredReplicas", 0);
    let texts = metrics
        .iter()
        .map(|metric| {
            written("autoscaling/v1.MetricStatus", Some(&status_to_v1_metric(metric)), Spelling::Versioned)
        })
        .collect();
    let conditions = conditions.as_array().into_iter().flatten().map(|condition| {
        written("autoscaling/v1.HorizontalPodAutoscalerCondition", Some(condition), Spelling::Versioned)
    });
    [(CURRENT_METRICS, texts), (CONDITIONS, conditions.collect())]
}

fn annotate(tree: &mut Tree, key: &str, items: &[String]) {
    if !items.is_empty() {
        let text = format!("[{}]", items.join(","));
        made(made(tree, "metadata"), "annotations").insert(key.into(), json!(text));
    }
}

/// The wanted use of the processor, if that is what a metric is about.
fn cpu_utilization(metric: &Tree) -> Option<i64> {
    let resource = object(metric, "resource").filter(|_| text(metric, "type") == "Resource")?;
    let target = object(resource, "target").filter(|_| text(resource, "name") == "cpu")?;
    number(target, "averageUtilization")
}

/// The list in an annotation, each item brought into form; what is no such list counts as absent.
fn list_in(tree: &Tree, key: &str, type_name: &str) -> Option<Vec<Value>> {
    let annotations = object(tree, "metadata").and_then(|metadata| object(metadata, "annotations"))?;
    let text = annotations.get(key)?.as_str()?;
    let Ok(Value::Array(mut items)) = gojson::parse(text.as_bytes()) else { return None };
    let types = Types::builtin();
    let message = types.get(type_name)?;
    let mut conform = |item: &mut Value| schema::conform(types, message, item, Options::default()).is_ok();
    items.iter_mut().all(&mut conform).then_some(items)
}

/// The annotation holds upstream's internal form, with the names of Go's fields, in whatever case.
fn behavior_in(tree: &Tree) -> Option<Value> {
    const MEMBERS: [&str; 9] = [
        "scaleUp",
        "scaleDown",
        "stabilizationWindowSeconds",
        "selectPolicy",
        "policies",
        "tolerance",
        "type",
        "value",
        "periodSeconds",
    ];
    fn respell(value: Value) -> Value {
        match value {
            Value::Object(members) => {
                let respelt = members.into_iter().filter_map(|(key, value)| {
                    let name = MEMBERS.iter().find(|name| name.eq_ignore_ascii_case(&key))?;
                    Some(((*name).to_owned(), respell(value)))
                });
                Value::Object(respelt.collect())
            }
            Value::Array(items) => Value::Array(items.into_iter().map(respell).collect()),
            other => other,
        }
    }
    let mut behavior = respell(gojson::parse(annotation(tree, BEHAVIOR).as_bytes()).ok()?);
    let types = Types::builtin();
    let message = types.get("autoscaling/v2.HorizontalPodAutoscalerBehavior")?;
    schema::conform(types, message, &mut behavior, Options::default()).ok()?;
    behavior.as_object().is_some_and(|members| !members.is_empty()).then_some(behavior)
}

/// A member that is set.
fn taken(tree: &Tree, key: &str) -> Option<Value> {
    set(tree, key).cloned()
}

/// A metric, or its status, with what its type names.
fn metric(kind: &str, name: &str, source: Value) -> Value {
    members([("type", Some(json!(kind))), (name, Some(source))])
}

/// Builds an object of those members that are set.
fn members<const N: usize>(members: [(&str, Option<Value>); N]) -> Value {
    let set = members.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
    Value::Object(set.collect())
}

fn metric_of(source: &Tree, selector: &str) -> Option<Value> {
    Some(members([("name", Some(json!(text(source, "metricName")))), ("selector", taken(source, selector))]))
}

/// The member that a metric's type names.
fn source_of(metric: &Tree) -> Option<(&'static str, &Tree)> {
    const SOURCES: [&str; 5] = ["object", "pods", "resource", "containerResource", "external"];
    SOURCES.into_iter().find_map(|name| Some((name, object(metric, name)?)))
}

fn spec_from_v1(spec: &Tree) -> Value {
    let kind = text(spec, "type");
    match source_of(spec) {
        Some((name, source)) => metric(kind, name, source_from_v1(name, source)),
        None => json!({"type": kind}),
    }
}

fn source_from_v1(name: &str, source: &Tree) -> Value {
    let target = |kind: &str, value, average| {
        Some(members([("type", Some(json!(kind))), ("value", value), ("averageValue", average)]))
    };
    match name {
        "external" => {
            let value = taken(source, "targetValue");
            let kind = if value.is_some() { "Value" } else { "AverageValue" };
            members([
                ("metric", metric_of(source, "metricSelector")),
                ("target", target(kind, value, taken(source, "targetAverageValue"))),
            ])
        }
        "object" => {
            let average = taken(source, "averageValue");
            let value = taken(source, "targetValue");
            let value = value.filter(|value| average.is_none() || !is_zero(value));
            let kind = if average.is_some() { "AverageValue" } else { "Value" };
            members([
                ("describedObject", taken(source, "target")),
                ("metric", metric_of(source, "selector")),
                ("target", target(kind, value, average)),
            ])
        }
        "pods" => members([
            ("metric", metric_of(source, "selector")),
            ("target", target("AverageValue", None, taken(source, "targetAverageValue"))),
        ]),
        _ => {
            let utilization = taken(source, "targetAverageUtilization");
            let kind = if utilization.is_some() { "Utilization" } else { "AverageValue" };
            let target = members([
                ("type", Some(json!(kind))),
                ("averageValue", taken(source, "targetAverageValue")),
                ("averageUtilization", utilization),
            ]);
            members([
                ("name", taken(source, "name")),
                ("container", taken(source, "container")),
                ("target", Some(target)),
            ])
        }
    }
}

fn is_zero(value: &Value) -> bool {
    value.as_str().and_then(|text| Quantity::parse(text).ok()).is_some_and(|quantity| quantity.is_zero())
}

fn zero_quantity(value: Option<Value>) -> Option<Value> {
    Some(value.unwrap_or_else(|| json!("0")))
}

fn spec_to_v1(spec: &Tree) -> Value {
    let kind = text(spec, "type");
    let Some((name, source)) = source_of(spec) else { return json!({"type": kind}) };
    let empty = Tree::new();
    let target = object(source, "target").unwrap_or(&empty);
    let identifier = object(source, "metric").unwrap_or(&empty);
    let metric_name = Some(json!(text(identifier, "name")));
    let selector = taken(identifier, "selector");
    let converted = match name {
        "external" => members([
            ("metricName", metric_name),
            ("metricSelector", selector),
            ("targetValue", taken(target, "value")),
            ("targetAverageValue", taken(target, "averageValue")),
        ]),
        "object" => members([
            ("target", taken(source, "describedObject")),
            ("metricName", metric_name),
            ("targetValue", zero_quantity(taken(target, "value"))),
            ("selector", selector),
            ("averageValue", taken(target, "averageValue")),
        ]),
        "pods" => members([
            ("metricName", metric_name),
            ("targetAverageValue", zero_quantity(taken(target, "averageValue"))),
            ("selector", selector),
        ]),
        _ => members([
            ("name", taken(source, "name")),
            ("targetAverageUtilization", taken(target, "averageUtilization")),
            ("targetAverageValue", taken(target, "averageValue")),
            ("container", taken(source, "container")),
        ]),
    };
    metric(kind, name, converted)
}

fn status_of_v1(status: &Tree) -> Value {
    let kind = text(status, "type");
    let Some((name, source)) = source_of(status) else { return json!({"type": kind}) };
    let current = |value: &str, average: &str, utilization: &str| {
        Some(members([
            ("value", taken(source, value)),
            ("averageValue", taken(source, average)),
            ("averageUtilization", taken(source, utilization)),
        ]))
    };
    let converted = match name {
        "external" => members([
            ("metric", metric_of(source, "metricSelector")),
            ("current", current("currentValue", "currentAverageValue", "")),
        ]),
        "object" => members([
            ("describedObject", taken(source, "target")),
            ("metric", metric_of(source, "selector")),
            ("current", current("currentValue", "averageValue", "")),
        ]),
        "pods" => members([
            ("metric", metric_of(source, "selector")),
            ("current", current("", "currentAverageValue", "")),
        ]),
        _ => members([
            ("name", taken(source, "name")),
            ("container", taken(source, "container")),
            ("current", current("", "currentAverageValue", "currentAverageUtilization")),
        ]),
    };
    metric(kind, name, converted)
}

fn status_to_v1_metric(status: &Tree) -> Value {
    let kind = text(status, "type");
    let Some((name, source)) = source_of(status) else { return json!({"type": kind}) };
    let empty = Tree::new();
    let current = object(source, "current").unwrap_or(&empty);
    let identifier = object(source, "metric").unwrap_or(&empty);
    let metric_name = Some(json!(text(identifier, "name")));
    let selector = taken(identifier, "selector");
    let converted = match name {
        "external" => members([
            ("metricName", metric_name),
            ("metricSelector", selector),
            ("currentValue", zero_quantity(taken(current, "value"))),
            ("currentAverageValue", taken(current, "averageValue")),
        ]),
        "object" => members([
            ("target", taken(source, "describedObject")),
            ("metricName", metric_name),
            ("currentValue", zero_quantity(taken(current, "value"))),
            ("selector", selector),
            ("averageValue", taken(current, "averageValue")),
        ]),
        "pods" => members([
            ("metricName", metric_name),
            ("currentAverageValue", zero_quantity(taken(current, "averageValue"))),
            ("selector", selector),
        ]),
        _ => members([
            ("name", taken(source, "name")),
            ("currentAverageUtilization", taken(current, "averageUtilization")),
            ("currentAverageValue", zero_quantity(taken(current, "averageValue"))),
            ("container", taken(source, "container")),
        ]),
    };
    metric(kind, name, converted)
}

#[cfg(test)]
mod tests;
