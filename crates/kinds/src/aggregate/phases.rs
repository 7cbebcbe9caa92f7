//! Kinds that say in a phase how they do: pods, claims, volumes.

use serde_json::Value;

use super::{Member, Whole, conditions};
use crate::fields::{at, at_mut, put, remove, text};

/// The phase that comes first in `order` of those of all copies, and the copy that has it. One that has not been seen
/// is as `unseen` says.
fn first<'a, 'b>(whole: &'b Whole<'a>, order: &[&str], unseen: &'b str) -> Option<(&'b str, &'b Member<'a>)> {
    let phase = |member: &'b Member<'a>| match text(member.status(), "phase") {
        "" => unseen,
        phase => phase,
    };
    let rank = |phase: &str| order.iter().position(|it| *it == phase).unwrap_or(order.len());
    whole.staying().map(|member| (phase(member), member)).min_by_key(|(phase, _)| rank(phase))
}

/// The status of the copy that decides, with the conditions of all.
fn decided(whole: &Whole<'_>, order: &[&str], unseen: &str) -> Value {
    let Some((phase, member)) = first(whole, order, unseen) else {
        let mut status = Value::Object(serde_json::Map::new());
        put(&mut status, "phase", unseen);
        return status;
    };
    let mut status = match member.status().is_object() {
        true => member.status().clone(),
        false => Value::Object(serde_json::Map::new()),
    };
    put(&mut status, "phase", phase);
    observe(whole, &mut status);
    if whole.sole().is_none() {
        let conditions = conditions::merged(whole, &[]);
        if !conditions.is_empty() {
            put(&mut status, "conditions", conditions);
        }
    }
    status
}

/// Generations of the copy mean nothing to the whole.
fn observe(whole: &Whole<'_>, status: &mut Value) {
    if at(status, "observedGeneration").is_some() {
        put(status, "observedGeneration", whole.observed());
    }
    for condition in at_mut(status, "conditions").and_then(Value::as_array_mut).into_iter().flatten() {
        remove(condition, "observedGeneration");
    }
}

pub(crate) fn pod(whole: &Whole<'_>) -> Value {
    decided(whole, &["Failed", "Unknown", "Pending", "Running", "Succeeded"], "Pending")
}

pub(crate) fn claim(whole: &Whole<'_>) -> Value {
    decided(whole, &["Lost", "Pending", "Bound"], "Pending")
}

pub(crate) fn volume(whole: &Whole<'_>) -> Value {
    decided(whole, &["Failed", "Pending", "Available", "Bound", "Released"], "Pending")
}
