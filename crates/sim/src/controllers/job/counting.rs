//! Counting pods that ended, and letting go of them.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{KIND, Work, release_pod};
use crate::{Pod, controllers::conditions::Condition, pod::Phase, tree};

/// No more pods wait to be counted at once.
const MOST_UNCOUNTED: usize = 500;

/// The numbers in a Job's status.
pub struct Counts {
    pub active: i64,
    pub ready: i64,
    pub terminating: i64,
    pub succeeded: i64,
    pub failed: i64,
    /// UIDs of pods that ended and still carry the finalizer.
    pub uncounted_succeeded: Vec<String>,
    pub uncounted_failed: Vec<String>,
}

impl Counts {
    /// Pods that were noted and have been let go since are counted now.
    pub fn of(job: &Value, pods: &[Arc<Pod>]) -> Counts {
        let is_held = |uid: &&str| pods.iter().any(|pod| pod.is_tracked && pod.uid == *uid);
        let split = |at: &str| {
            let uids = tree::items(job, at).filter_map(Value::as_str);
            let (held, gone): (Vec<&str>, Vec<&str>) = uids.partition(is_held);
            (held.into_iter().map(str::to_owned).collect::<Vec<_>>(), gone.len() as i64)
        };
        let (uncounted_succeeded, succeeded) = split("/status/uncountedTerminatedPods/succeeded");
        let (uncounted_failed, failed) = split("/status/uncountedTerminatedPods/failed");
        let number = |at: &str| tree::number(job, at).unwrap_or(0);
        let count = |holds: fn(&Pod) -> bool| pods.iter().filter(|pod| holds(pod)).count() as i64;
        Counts {
            active: count(Pod::is_active),
            ready: count(|pod| pod.is_active() && pod.ready),
            terminating: count(|pod| pod.terminating.is_some() && !pod.is_finished()),
            succeeded: number("/status/succeeded") + succeeded,
            failed: number("/status/failed") + failed,
            uncounted_succeeded,
            uncounted_failed,
        }
    }

    fn uncounted(&self) -> usize {
        self.uncounted_succeeded.len() + self.uncounted_failed.len()
    }
}

impl Work<'_> {
    /// Writes down what ended, and then lets go of it.
    pub(super) fn count_and_release(&mut self) {
        let before = self.job.get("status").cloned().unwrap_or_default();
        let (released, all) = self.note_ended();
        if self.is_indexed() {
            self.counts.succeeded = self.succeeded.total();
        }
        self.report_verdict(all);
        let status = self.status();
        let has_finished = self.plan_finish(&before, &status);
        self.plan.set_status(KIND, self.job, status);
        for pod in released {
            release_pod(self.world, &mut self.plan, &pod);
        }
        if let Some((warning, reason, message)) = has_finished {
            let object = tree::reference(KIND, self.job);
            self.plan.then(crate::Action::Event { object, warning, reason, message });
        }
    }

    /// The pods that may be let go once the status says so, and whether those are all there are.
    fn note_ended(&mut self) -> (Vec<Arc<Pod>>, bool) {
        let replaced = self.replaced();
        let mut released = Vec::new();
        let mut pods = self.pods.clone();
        pods.sort_by_key(|pod| pod.completion_index);
        // What this plan deletes is counted when it is seen to go.
        for pod in pods.into_iter().filter(|pod| pod.is_tracked && !pod.is_active()) {
            let has_failed = self.has_failed(&pod);
            let waits = self
                .index(&pod)
                .and_then(|index| replaced.get(&index))
                .is_some_and(|it| it.pod.uid == pod.uid);
            let is_over =
                tree::is_deleting(self.job) || self.verdict.is_some() || pod.phase == Phase::Succeeded;
            if !is_over && (!has_failed || waits) {
                continue;
            }
            self.note(&pod, has_failed);
            released.push(pod);
            if self.counts.uncounted() >= MOST_UNCOUNTED {
                return (released, false);
            }
        }
        (released, true)
    }

    fn note(&mut self, pod: &Pod, has_failed: bool) {
        let uid = pod.uid.to_string();
        let is_noted_failed = self.counts.uncounted_failed.contains(&uid);
        if pod.phase == Phase::Succeeded && !is_noted_failed {
            if !self.is_indexed() && !self.counts.uncounted_succeeded.contains(&uid) {
                self.counts.uncounted_succeeded.push(uid);
            }
            return;
        }
        let is_lost = self.verdict.as_ref().is_some_and(|verdict| !verdict.success);
        let is_ours = !self.is_indexed() || self.index(pod).is_some();
        if (has_failed || is_lost) && !is_noted_failed && is_ours && self.failure_counts(pod) {
            self.counts.uncounted_failed.push(uid);
        }
    }

    /// First that it will end, and how; then, when nothing of it runs or waits to be counted, that it has.
    fn report_verdict(&mut self, all_noted: bool) {
        let Some(verdict) = self.verdict.clone() else { return };
        let (first, last) =
            if verdict.success { ("SuccessCriteriaMet", "Complete") } else { ("FailureTarget", "Failed") };
        if !self.conditions.iter().any(|it| tree::text(it, "/type") == first) {
            self.set_condition(Condition::new(first, "True", &verdict.reason, verdict.message.as_str()));
        }
        if all_noted && self.counts.uncounted() == 0 && self.counts.terminating == 0 {
            self.set_condition(Condition::new(last, "True", &verdict.reason, verdict.message.as_str()));
        }
    }

    fn status(&self) -> Value {
        let mut uncounted = json!({});
        for (key, uids) in
            [("succeeded", &self.counts.uncounted_succeeded), ("failed", &self.counts.uncounted_failed)]
        {
            if !uids.is_empty() {
                uncounted[key] = json!(uids);
            }
        }
        let mut status = json!({
            "active": self.counts.active,
            "ready": self.counts.ready,
            "terminating": self.counts.terminating,
            "succeeded": self.counts.succeeded,
            "failed": self.counts.failed,
            "uncountedTerminatedPods": uncounted,
            "conditions": self.conditions,
        });
        if let Some(started) = self.started {
            status["startTime"] = tree::time_text(started).into();
        }
        if self.is_indexed() {
            status["completedIndexes"] = self.succeeded.to_string().into();
        }
        if let Some(failed) = &self.failed_indexes {
            status["failedIndexes"] = failed.to_string().into();
        }
        if let Some(complete) = self.conditions.iter().find(|it| tree::text(it, "/type") == "Complete") {
            status["completionTime"] = complete["lastTransitionTime"].clone();
        }
        let mut kept = vec!["ready", "terminating", "uncountedTerminatedPods"];
        if self.failed_indexes.is_some() {
            kept.push("failedIndexes");
        }
        tree::compact(status, &kept)
    }

    /// What to tell people when the Job has just ended.
    fn plan_finish(&mut self, before: &Value, status: &Value) -> Option<(bool, &'static str, String)> {
        let finished = |status: &Value| super::finished(&json!({ "status": status })).is_some();
        if finished(before) || !finished(status) {
            return None;
        }
        let verdict = self.verdict.as_ref()?;
        if verdict.success {
            return Some((false, "Completed", "Job completed".to_owned()));
        }
        let known = [
            "BackoffLimitExceeded",
            "DeadlineExceeded",
            "PodFailurePolicy",
            "FailedIndexes",
            "MaxFailedIndexesExceeded",
        ];
        let reason = known.into_iter().find(|reason| *reason == verdict.reason).unwrap_or("Failed");
        Some((true, reason, verdict.message.clone()))
    }
}
