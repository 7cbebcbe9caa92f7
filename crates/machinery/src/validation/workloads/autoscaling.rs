//! Autoscalers, in the stored spelling of `autoscaling/v2`.

use serde_json::{Value, json};

use super::autoscaling_v1::{cpu_metric, drop_autoscaler_annotations};
use crate::{
    field_error::Cause,
    resource::{Tree, only},
    validation::{
        members::{default_to, made, set},
        parts::{list, object_mut},
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

pub fn autoscaler(_new: &Tree, _old: Option<&Tree>) -> Vec<Cause> {
    Vec::new()
}

pub fn autoscaler_status(_new: &Tree, _old: &Tree) -> Vec<Cause> {
    Vec::new()
}
