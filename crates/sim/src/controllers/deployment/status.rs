//! What a Deployment says of itself.

use std::time::Duration;

use jiff::SignedDuration;
use serde_json::{Value, json};

use super::{KIND, Work, sets::Sets};
use crate::{
    controllers::{conditions, conditions::Condition},
    tree,
};

const NO_DEADLINE: i64 = i32::MAX as i64;
const AVAILABLE: &str = "NewReplicaSetAvailable";
const TIMED_OUT: &str = "ProgressDeadlineExceeded";

/// A condition of type Progressing.
pub struct Progress(Condition);

impl Progress {
    pub fn new(status: &'static str, reason: &str, message: impl Into<String>) -> Progress {
        Progress(Condition::new("Progressing", status, reason, message))
    }
}

impl Work<'_> {
    pub(super) fn deadline(&self) -> Option<i64> {
        tree::number(self.deployment, "/spec/progressDeadlineSeconds")
            .filter(|seconds| *seconds != NO_DEADLINE)
    }

    pub(super) fn has_deadline(&self) -> bool {
        self.deadline().is_some()
    }

    /// Sets one condition and leaves the rest of the status.
    pub(super) fn report_progress(&mut self, progress: &Progress) {
        let mut status = self.deployment.get("status").cloned().unwrap_or_else(|| json!({}));
        let mut all = conditions::of(self.deployment);
        conditions::set(&mut all, self.with_times(&progress.0));
        status["conditions"] = all.into();
        self.plan.set_status(KIND, self.deployment, status);
    }

    fn with_times(&self, condition: &Condition) -> Value {
        let mut value = condition.at(self.world.now());
        value["lastUpdateTime"] = value["lastTransitionTime"].clone();
        value
    }

    /// A pause stops the clock of the deadline. Says whether the status changes because of it.
    pub(super) fn report_pause(&mut self) -> bool {
        let reason =
            tree::condition(self.deployment, "Progressing").map_or("", |it| tree::text(it, "/reason"));
        if !self.has_deadline() || reason == TIMED_OUT {
            return false;
        }
        let progress = match (tree::flag(self.deployment, "/spec/paused"), reason == "DeploymentPaused") {
            (true, false) => Progress::new("Unknown", "DeploymentPaused", "Deployment is paused"),
            (false, true) => Progress::new("Unknown", "DeploymentResumed", "Deployment is resumed"),
            _ => return false,
        };
        self.report_progress(&progress);
        true
    }

    pub(super) fn report_counts(&mut self) {
        let status = self.status(conditions::of(self.deployment));
        self.plan.set_status(KIND, self.deployment, status);
    }

    fn status(&self, mut all: Vec<Value>) -> Value {
        let sets = &self.sets;
        let available = sets.total("/status/availableReplicas");
        let condition = if available >= self.fence.least_available() {
            Condition::new(
                "Available",
                "True",
                "MinimumReplicasAvailable",
                "Deployment has minimum availability.",
            )
        } else {
            let message = "Deployment does not have minimum availability.";
            Condition::new("Available", "False", "MinimumReplicasUnavailable", message)
        };
        conditions::set(&mut all, self.with_times(&condition));
        let updated = sets.new.as_ref().and_then(|new| tree::number(new, "/status/replicas")).unwrap_or(0);
        let mut status = json!({
            "observedGeneration": tree::number(self.deployment, "/metadata/generation").unwrap_or(0),
            "replicas": sets.total("/status/replicas"),
            "updatedReplicas": updated,
            "readyReplicas": sets.total("/status/readyReplicas"),
            "availableReplicas": available,
            "unavailableReplicas": (sets.total("/spec/replicas") - available).max(0),
            "conditions": all,
        });
        if let Some(count) = self.deployment.pointer("/status/collisionCount") {
            status["collisionCount"] = count.clone();
        }
        if let Some(terminating) = terminating(sets) {
            status["terminatingReplicas"] = terminating.into();
        }
        tree::compact(status, &["terminatingReplicas", "collisionCount"])
    }

    /// As [`Work::report_counts`], and how far the rollout has come.
    pub(super) fn report_rollout(&mut self) {
        let mut status = self.status(conditions::of(self.deployment));
        let mut all = status
            .get_mut("conditions")
            .and_then(Value::as_array_mut)
            .map(std::mem::take)
            .unwrap_or_default();
        if !self.has_deadline() {
            conditions::remove(&mut all, "Progressing");
        }
        let current = tree::condition(self.deployment, "Progressing");
        let reason = current.map_or("", |it| tree::text(it, "/reason"));
        let was_complete =
            number(&status, "replicas") == number(&status, "updatedReplicas") && reason == AVAILABLE;
        if self.has_deadline() && !was_complete {
            self.judge(&status, &mut all);
        }
        match self.failure() {
            Some(failure) => conditions::set(&mut all, failure),
            None => conditions::remove(&mut all, "ReplicaFailure"),
        }
        status["conditions"] = all.into();
        self.plan.set_status(KIND, self.deployment, status.clone());
        self.look_again_at_deadline(&status);
    }

    fn judge(&self, status: &Value, all: &mut Vec<Value>) {
        let subject = match &self.sets.new {
            Some(new) => format!("ReplicaSet \"{}\"", tree::name(new)),
            None => format!("Deployment \"{}\"", self.name()),
        };
        if self.is_complete(status) {
            let message = format!("{subject} has successfully progressed.");
            conditions::set(all, self.with_times(&Condition::new("Progressing", "True", AVAILABLE, message)));
        } else if self.has_progressed(status) {
            let message = format!("{subject} is progressing.");
            let mut value =
                self.with_times(&Condition::new("Progressing", "True", "ReplicaSetUpdated", message));
            if let Some(current) = conditions::find(all, "Progressing")
                && tree::text(current, "/status") == "True"
            {
                value["lastTransitionTime"] = current["lastTransitionTime"].clone();
            }
            // With every progress the time of the last update moves, whatever the reason was before.
            conditions::remove(all, "Progressing");
            all.push(value);
        } else if self.has_timed_out(all) {
            let message = format!("{subject} has timed out progressing.");
            conditions::set(
                all,
                self.with_times(&Condition::new("Progressing", "False", TIMED_OUT, message)),
            );
        }
    }

    pub(super) fn is_complete(&self, status: &Value) -> bool {
        let wanted = self.fence.replicas;
        ["updatedReplicas", "replicas", "availableReplicas"]
            .iter()
            .all(|field| number(status, field) == wanted)
            && number(status, "observedGeneration")
                >= tree::number(self.deployment, "/metadata/generation").unwrap_or(0)
    }

    fn has_progressed(&self, new: &Value) -> bool {
        let old = &self.deployment["status"];
        let outdated = |status: &Value| number(status, "replicas") - number(status, "updatedReplicas");
        let more = |field: &str| number(new, field) > number(old, field);
        more("updatedReplicas")
            || outdated(new) < outdated(old)
            || more("readyReplicas")
            || more("availableReplicas")
    }

    fn has_timed_out(&self, all: &[Value]) -> bool {
        let (Some(seconds), Some(condition)) = (self.deadline(), conditions::find(all, "Progressing")) else {
            return false;
        };
        match tree::text(condition, "/reason") {
            AVAILABLE => false,
            TIMED_OUT => true,
            _ => tree::time(condition, "/lastUpdateTime").is_some_and(|since| {
                self.world.now().duration_since(since) > SignedDuration::from_secs(seconds)
            }),
        }
    }

    fn look_again_at_deadline(&mut self, status: &Value) {
        let current = tree::items(status, "/conditions").find(|it| tree::text(it, "/type") == "Progressing");
        let (Some(seconds), Some(current)) = (self.deadline(), current) else { return };
        if self.is_complete(status) || [TIMED_OUT, AVAILABLE].contains(&tree::text(current, "/reason")) {
            return;
        }
        let Some(since) = tree::time(current, "/lastUpdateTime") else { return };
        let passed = self.world.now().duration_since(since);
        let left = SignedDuration::from_secs(seconds).saturating_sub(passed);
        let left = Duration::try_from(left).unwrap_or_default();
        // Times are whole seconds: a little later is surely after the deadline.
        self.plan.look_again(left + Duration::from_secs(1));
    }

    /// Of the new set, or else of any other.
    fn failure(&self) -> Option<Value> {
        let sets = self.sets.new.iter().chain(&self.sets.old);
        let condition = sets.filter_map(|set| tree::condition(set, "ReplicaFailure")).next()?;
        let mut condition = condition.clone();
        condition["lastUpdateTime"] = condition["lastTransitionTime"].clone();
        Some(condition)
    }
}

fn number(status: &Value, field: &str) -> i64 {
    status.get(field).and_then(Value::as_i64).unwrap_or(0)
}

/// Not known as long as one of the sets, written by an older controller, does not say.
fn terminating(sets: &Sets) -> Option<i64> {
    let mut sum = 0;
    for set in sets.all() {
        match tree::number(set, "/status/terminatingReplicas") {
            Some(number) => sum += number,
            None if tree::number(set, "/status/observedGeneration").unwrap_or(0) == 0 => {}
            None => return None,
        }
    }
    Some(sum)
}
