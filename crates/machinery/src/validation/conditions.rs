//! Conditions of the form that newer kinds share.

use std::collections::BTreeSet;

use serde_json::json;

use super::parts::{Path, invalid_each, items, number, qualified_name, text};
use crate::{field_error::Cause, names, resource::Tree};

const STATUSES: [&str; 3] = ["False", "True", "Unknown"];
const MAX_REASON: usize = 1024;
const MAX_MESSAGE: usize = 32 * 1024;

/// Checks the list `conditions` of a status.
pub fn check(status: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let mut seen = BTreeSet::new();
    let mut causes = Vec::new();
    for (at, condition) in items(status, "conditions") {
        let path = path.index(at);
        let kind = text(condition, "type");
        if !seen.insert(kind) {
            causes.push(Cause::duplicate(&path.child("type"), &json!(kind)));
        }
        causes.extend(qualified_name(kind, &path.child("type")));
        causes.extend(members(condition, &path));
    }
    causes
}

fn members(condition: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let status = text(condition, "status");
    if !STATUSES.contains(&status) {
        causes.push(Cause::not_supported(&path.child("status"), &json!(status), &STATUSES));
    }
    if let Some(generation) = number(condition, "observedGeneration").filter(|generation| *generation < 0) {
        let detail = "must be greater than or equal to zero";
        causes.push(Cause::invalid(&path.child("observedGeneration"), &json!(generation), detail));
    }
    if text(condition, "lastTransitionTime").is_empty() {
        causes.push(Cause::required(&path.child("lastTransitionTime"), ""));
    }
    let (reason, reason_path) = (text(condition, "reason"), path.child("reason"));
    if reason.is_empty() {
        causes.push(Cause::required(&reason_path, ""));
    } else {
        causes.extend(invalid_each(&reason_path, reason, names::is_condition_reason(reason)));
        if reason.len() > MAX_REASON {
            causes.push(Cause::too_long(&reason_path, MAX_REASON));
        }
    }
    if text(condition, "message").len() > MAX_MESSAGE {
        causes.push(Cause::too_long(&path.child("message"), MAX_MESSAGE));
    }
    causes
}
