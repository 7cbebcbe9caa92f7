//! Conditions of a `Cluster`: what is so, since when, and why.

use serde_json::{Value, json};

/// The conditions of one `Cluster`, in the order they were first set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conditions(Vec<Condition>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Condition {
    kind: String,
    status: String,
    reason: String,
    message: String,
    since: String,
}

impl Conditions {
    /// Those that a status has.
    pub fn read(status: &Value) -> Conditions {
        let read = |it: &Value| {
            let text = |key: &str| it[key].as_str().map(str::to_owned);
            Some(Condition {
                kind: text("type")?,
                status: text("status")?,
                reason: text("reason").unwrap_or_default(),
                message: text("message").unwrap_or_default(),
                since: text("lastTransitionTime").unwrap_or_default(),
            })
        };
        Conditions(status["conditions"].as_array().into_iter().flatten().filter_map(read).collect())
    }

    /// Sets one; true if its status is another one now. Only then its time changes.
    pub fn set(&mut self, kind: &str, holds: bool, reason: &str, message: &str, now: &str) -> bool {
        let status = if holds { "True" } else { "False" };
        let new = |since: &str| Condition {
            kind: kind.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: message.to_owned(),
            since: since.to_owned(),
        };
        match self.0.iter_mut().find(|it| it.kind == kind) {
            Some(it) if it.status == status => {
                *it = new(&it.since.clone());
                false
            }
            Some(it) => {
                *it = new(now);
                true
            }
            None => {
                self.0.push(new(now));
                true
            }
        }
    }

    /// The status and the reason of one.
    pub fn says(&self, kind: &str) -> Option<(&str, &str)> {
        let found = self.0.iter().find(|it| it.kind == kind)?;
        Some((&found.status, &found.reason))
    }

    /// Since when it is as it is; empty if there is none.
    pub fn since(&self, kind: &str) -> &str {
        self.0.iter().find(|it| it.kind == kind).map_or("", |it| &it.since)
    }

    /// What matters of them at once: not the words.
    pub fn outline(&self) -> Vec<(String, String, String)> {
        self.0.iter().map(|it| (it.kind.clone(), it.status.clone(), it.reason.clone())).collect()
    }

    pub fn remove(&mut self, kind: &str) {
        self.0.retain(|it| it.kind != kind);
    }

    pub fn to_json(&self) -> Value {
        let shown = |it: &Condition| {
            json!({
                "type": it.kind, "status": it.status, "reason": it.reason, "message": it.message,
                "lastTransitionTime": it.since,
            })
        };
        self.0.iter().map(shown).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_that_of_the_last_transition() {
        let mut conditions = Conditions::default();
        assert!(conditions.set("Ready", true, "Ready", "", "t1"));
        assert!(!conditions.set("Ready", true, "Other", "more", "t2"));
        assert!(conditions.set("Ready", false, "Unreachable", "", "t3"));
        let shown = conditions.to_json();
        assert_eq!(
            (&shown[0]["lastTransitionTime"], &shown[0]["reason"]),
            (&json!("t3"), &json!("Unreachable"))
        );
        assert_eq!(
            Conditions::read(&json!({"conditions": shown})),
            conditions,
            "what was written reads back"
        );
    }
}
