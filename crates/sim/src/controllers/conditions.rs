//! Conditions in a status.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::tree;

/// A condition as it should be, without its times.
#[derive(Clone, Debug)]
pub struct Condition {
    pub kind: &'static str,
    pub status: &'static str,
    pub reason: String,
    pub message: String,
}

impl Condition {
    pub fn new(
        kind: &'static str,
        status: &'static str,
        reason: &str,
        message: impl Into<String>,
    ) -> Condition {
        Condition { kind, status, reason: reason.to_owned(), message: message.into() }
    }

    /// With the time of its last transition alone.
    pub fn at(&self, now: Timestamp) -> Value {
        let mut value = json!({
            "type": self.kind, "status": self.status, "lastTransitionTime": tree::time_text(now),
        });
        if !self.reason.is_empty() {
            value["reason"] = self.reason.as_str().into();
        }
        if !self.message.is_empty() {
            value["message"] = self.message.as_str().into();
        }
        value
    }
}

/// Of a status, to be changed and put back.
pub fn of(object: &Value) -> Vec<Value> {
    tree::items(object, "/status/conditions").cloned().collect()
}

pub fn find<'a>(conditions: &'a [Value], kind: &str) -> Option<&'a Value> {
    conditions.iter().find(|condition| tree::text(condition, "/type") == kind)
}

pub fn is_true(conditions: &[Value], kind: &str) -> bool {
    find(conditions, kind).is_some_and(|condition| tree::text(condition, "/status") == "True")
}

pub fn remove(conditions: &mut Vec<Value>, kind: &str) {
    conditions.retain(|condition| tree::text(condition, "/type") != kind);
}

/// Puts a condition at the end, in place of the one of its type, unless that has the same status and reason. The time
/// of the last transition stays if the status does.
pub fn set(conditions: &mut Vec<Value>, mut condition: Value) {
    if let Some(current) = find(conditions, tree::text(&condition, "/type")) {
        let same = |pointer: &str| tree::text(current, pointer) == tree::text(&condition, pointer);
        if same("/status") && same("/reason") {
            return;
        }
        if same("/status") {
            condition["lastTransitionTime"] = current["lastTransitionTime"].clone();
        }
    }
    let kind = tree::text(&condition, "/type").to_owned();
    remove(conditions, &kind);
    conditions.push(condition);
}

/// As [`set`], but where the condition stands, and with every change of reason or message.
pub fn set_in_place(conditions: &mut Vec<Value>, mut condition: Value) {
    let kind = tree::text(&condition, "/type").to_owned();
    let Some(current) = conditions.iter_mut().find(|it| tree::text(it, "/type") == kind) else {
        conditions.push(condition);
        return;
    };
    if tree::text(current, "/status") == tree::text(&condition, "/status") {
        condition["lastTransitionTime"] = current["lastTransitionTime"].clone();
    }
    *current = condition;
}
