//! Budgets of disruptions, and what has addresses: Services and Ingresses.

use serde_json::{Map, Value, json};

use super::{
    Member, Whole,
    conditions::{self, condition, of},
    total,
};
use crate::fields::{list, map, put, remove, text};

pub(crate) fn budget(whole: &Whole<'_>) -> Value {
    const ALLOWED: &str = "DisruptionAllowed";
    let mut status = whole.base();
    put(&mut status, "observedGeneration", whole.observed());
    let sum = |field: &str| total(whole.staying().map(|member| member.count(field)));
    for field in ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"] {
        put(&mut status, field, sum(field));
    }
    let disrupted: Map<String, Value> = whole
        .staying()
        .filter_map(|member| map(member.status(), "disruptedPods"))
        .flatten()
        .map(|(pod, time)| (pod.clone(), time.clone()))
        .collect();
    match disrupted.is_empty() {
        true => drop(remove(&mut status, "disruptedPods")),
        false => put(&mut status, "disruptedPods", disrupted),
    }
    let failing: Vec<&Member<'_>> = whole
        .staying()
        .filter(|member| of(member.status(), ALLOWED).is_some_and(|it| text(it, "reason") == "SyncFailed"))
        .collect();
    let mut all = Vec::new();
    if !failing.is_empty() {
        all.push(conditions::decided(whole, ALLOWED, "False", &failing));
    } else if whole.staying().any(|member| of(member.status(), ALLOWED).is_some()) {
        let (state, reason) = match sum("disruptionsAllowed") {
            0 => ("False", "InsufficientPods"),
            _ => ("True", "SufficientPods"),
        };
        all.push(condition(whole, ALLOWED, state, reason, ""));
    }
    for condition in &mut all {
        // The API requires these of conditions of this kind.
        if condition.get("message").is_none() {
            put(condition, "message", "");
        }
    }
    all.extend(conditions::merged(whole, &[ALLOWED]));
    match all.is_empty() {
        true => drop(remove(&mut status, "conditions")),
        false => put(&mut status, "conditions", all),
    }
    status
}

/// The addresses of all copies: whoever has one can be reached, whatever the others do.
pub(crate) fn balanced(whole: &Whole<'_>) -> Value {
    let mut status = whole.base();
    let mut addresses: Vec<&Value> =
        whole.staying().flat_map(|member| list(member.status(), "loadBalancer.ingress")).collect();
    let key = |address: &Value| (text(address, "ip").to_owned(), text(address, "hostname").to_owned());
    addresses.sort_by_key(|address| key(address));
    addresses.dedup_by_key(|address| key(address));
    match addresses.is_empty() {
        true => put(&mut status, "loadBalancer", json!({})),
        false => put(&mut status, "loadBalancer.ingress", json!(addresses)),
    }
    let all = conditions::merged(whole, &[]);
    if !all.is_empty() {
        put(&mut status, "conditions", all);
    }
    status
}
