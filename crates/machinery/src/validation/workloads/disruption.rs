//! Disruption budgets.

use super::shared::{counters, int_or_percent, not_more_than_whole, or_null};
use crate::{
    field_error::Cause,
    resource::Tree,
    schema::{Spelling, written},
    selector,
    validation::{
        conditions,
        members::set,
        parts::{Path, object},
    },
};

const SPEC: Path<'static> = Path::new("spec");
const STATUS: Path<'static> = Path::new("status");

pub fn disruption_budget(new: &Tree, _: Option<&Tree>) -> Vec<Cause> {
    let empty = Tree::new();
    let spec = object(new, "spec").unwrap_or(&empty);
    let mut causes = Vec::new();
    if set(spec, "minAvailable").is_some() && set(spec, "maxUnavailable").is_some() {
        let shown = written("policy/v1.PodDisruptionBudgetSpec", new.get("spec"), Spelling::Internal);
        let detail = "minAvailable and maxUnavailable cannot be both set";
        causes.push(Cause::invalid_text(&SPEC, &shown, detail));
    }
    for key in ["minAvailable", "maxUnavailable"] {
        if let Some(value) = set(spec, key) {
            causes.extend(int_or_percent(value, &SPEC.child(key)));
            causes.extend(not_more_than_whole(value, &SPEC.child(key)));
        }
    }
    let selector_path = SPEC.child("selector").to_string();
    causes.extend(selector::validate_object(or_null(spec, "selector"), &selector_path));
    let known = ["AlwaysAllow", "IfHealthyBudget"];
    if let Some(policy) = set(spec, "unhealthyPodEvictionPolicy")
        && !policy.as_str().is_some_and(|policy| known.contains(&policy))
    {
        causes.push(Cause::not_supported(&SPEC.child("unhealthyPodEvictionPolicy"), policy, &known));
    }
    causes
}

pub fn disruption_budget_status(new: &Tree, _: &Tree) -> Vec<Cause> {
    let empty = Tree::new();
    let status = object(new, "status").unwrap_or(&empty);
    let mut causes = conditions::check(status, &STATUS.child("conditions"));
    let numbers = ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"];
    causes.extend(counters(status, &STATUS, &numbers));
    causes
}
