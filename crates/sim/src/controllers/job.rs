//! Jobs: pods that run to their end, so many times.
//!
//! ```text
//!   pods ─> how did they end (policies) ─> is the Job decided? ─> make or delete pods ─> count, then let go of pods
//! ```
//!
//! A pod carries a finalizer until it is counted: it goes into `uncountedTerminatedPods` first, then the finalizer goes,
//! then it moves into `succeeded` or `failed`. So none is lost and none counts twice, whenever this is interrupted.

mod backoff;
mod counting;
mod indexes;
mod managing;
mod policies;

use std::{sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use self::{counting::Counts, indexes::Indexes};
use super::{Changed, Controller, Name, claim, conditions, conditions::Condition};
use crate::{
    Action, Kind, Plan, Pod, World, kind,
    pod::{JOB_TRACKING, Phase},
    tree,
};

pub struct Jobs;

const KIND: Kind = kind::JOBS;
const OWN_NAME: &str = "kubernetes.io/job-controller";

impl Controller for Jobs {
    fn kind(&self) -> Kind {
        KIND
    }

    fn name(&self) -> &'static str {
        "job-controller"
    }

    fn listens_to(&self) -> &'static [Kind] {
        &[kind::PODS]
    }

    fn wakes(&self, world: &dyn World, changed: &Changed<'_>) -> Vec<Name> {
        match changed.new {
            Some(pod) => claim::selecting(world, KIND, pod, claim::selector),
            None => Vec::new(),
        }
    }

    fn reconcile(&self, world: &dyn World, job: &Value) -> Plan {
        let mut plan = Plan::nothing();
        if ![OWN_NAME, ""].contains(&tree::text(job, "/spec/managedBy")) {
            return plan;
        }
        if finished(job).is_some() {
            release_pods(world, &mut plan, job);
            return plan;
        }
        let selector = claim::selector(job);
        let pods = claim::pods(world, &mut plan, (KIND, job), &selector, |_| true);
        if !plan.actions.is_empty() {
            return plan;
        }
        let mut work = Work::new(world, job, pods);
        work.reconcile();
        work.plan
    }
}

/// The condition by which it has ended.
pub fn finished(job: &Value) -> Option<&Value> {
    let is_last = |it: &&Value| ["Complete", "Failed"].contains(&tree::text(it, "/type"));
    tree::items(job, "/status/conditions").find(|it| is_last(it) && tree::text(it, "/status") == "True")
}

/// Lets go of pods that came too late to be counted.
fn release_pods(world: &dyn World, plan: &mut Plan, job: &Value) {
    for pod in world.pods_of(tree::namespace(job), tree::uid(job)) {
        release_pod(world, plan, &pod);
    }
}

pub fn release_pod(world: &dyn World, plan: &mut Plan, pod: &Pod) {
    if !pod.is_tracked {
        return;
    }
    let Some(tree) = world.get(kind::PODS, &pod.namespace, &pod.name) else { return };
    let rest: Vec<&Value> =
        tree::items(&tree, "/metadata/finalizers").filter(|it| *it != JOB_TRACKING).collect();
    let version = tree::text(&tree, "/metadata/resourceVersion");
    let patch = json!({ "metadata": { "finalizers": rest, "resourceVersion": version } });
    plan.then(Action::patch(kind::PODS, &tree, patch));
}

/// One look at a Job.
struct Work<'a> {
    world: &'a dyn World,
    job: &'a Value,
    pods: Vec<Arc<Pod>>,
    active: Vec<Arc<Pod>>,
    plan: Plan,
    /// What it will say of itself.
    counts: Counts,
    conditions: Vec<Value>,
    started: Option<Timestamp>,
    succeeded: Indexes,
    failed_indexes: Option<Indexes>,
    /// How it ends, once that is decided.
    verdict: Option<Verdict>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Verdict {
    success: bool,
    reason: String,
    message: String,
}

impl Verdict {
    fn failure(reason: &str, message: impl Into<String>) -> Verdict {
        Verdict { success: false, reason: reason.to_owned(), message: message.into() }
    }

    fn success(reason: &str, message: impl Into<String>) -> Verdict {
        Verdict { success: true, reason: reason.to_owned(), message: message.into() }
    }
}

impl<'a> Work<'a> {
    fn new(world: &'a dyn World, job: &'a Value, pods: Vec<Arc<Pod>>) -> Work<'a> {
        let completions = tree::number(job, "/spec/completions").unwrap_or(0);
        Work {
            world,
            job,
            active: pods.iter().filter(|pod| pod.is_active()).cloned().collect(),
            counts: Counts::of(job, &pods),
            conditions: conditions::of(job),
            started: tree::time(job, "/status/startTime"),
            succeeded: Indexes::parse(tree::text(job, "/status/completedIndexes"), completions),
            failed_indexes: None,
            verdict: None,
            plan: Plan::nothing(),
            pods,
        }
    }

    fn reconcile(&mut self) {
        if self.started.is_none() && !self.is_suspended() {
            self.started = Some(self.world.now());
        }
        let (succeeded_before, new_failures) = self.judge_pods();
        self.verdict = self.standing_verdict().or_else(|| self.new_failure(new_failures));
        if self.is_indexed() {
            self.judge_indexes();
        }
        if self.verdict.is_some() {
            self.delete_active();
        } else {
            self.manage_or_complete(succeeded_before);
        }
        self.count_and_release();
    }

    fn is_indexed(&self) -> bool {
        tree::text(self.job, "/spec/completionMode") == "Indexed"
    }

    fn completions(&self) -> Option<i64> {
        tree::number(self.job, "/spec/completions")
    }

    fn per_index_limit(&self) -> Option<i64> {
        tree::number(self.job, "/spec/backoffLimitPerIndex").filter(|_| self.is_indexed())
    }

    fn is_suspended(&self) -> bool {
        tree::flag(self.job, "/spec/suspend")
    }

    /// Pods that are on their way out have not failed yet.
    fn waits_for_end(&self) -> bool {
        tree::text(self.job, "/spec/podReplacementPolicy") == "Failed"
            || self.job.pointer("/spec/podFailurePolicy").is_some()
    }

    fn has_failed(&self, pod: &Pod) -> bool {
        let gives_up = pod.terminating.is_some() && pod.phase != Phase::Succeeded && !self.waits_for_end();
        pod.phase == Phase::Failed || gives_up
    }

    /// Its index, if the Job still has it.
    fn index(&self, pod: &Pod) -> Option<i64> {
        let index = i64::from(pod.completion_index?);
        (index < self.completions().unwrap_or(0)).then_some(index)
    }

    /// Pods that ended and are not even on the list of those to be counted.
    fn is_new(&self, pod: &Pod) -> bool {
        pod.is_tracked && (!self.is_indexed() || self.index(pod).is_some())
    }

    fn tree(&self, pod: &Pod) -> Value {
        self.world.get(kind::PODS, &pod.namespace, &pod.name).unwrap_or_default()
    }

    /// How many succeeded, counted or not, and how many failures count.
    fn judge_pods(&self) -> (i64, i64) {
        let uncounted = &self.counts;
        let fresh =
            |pod: &&Arc<Pod>, list: &[String]| self.is_new(pod) && !list.iter().any(|uid| *uid == pod.uid);
        let succeeded = self.pods.iter().filter(|pod| fresh(pod, &uncounted.uncounted_succeeded));
        let succeeded = succeeded.filter(|pod| pod.phase == Phase::Succeeded).count() as i64;
        let failed = self.pods.iter().filter(|pod| fresh(pod, &uncounted.uncounted_failed));
        let failed = failed.filter(|pod| self.has_failed(pod) && self.failure_counts(pod)).count() as i64;
        (
            uncounted.succeeded + succeeded + uncounted.uncounted_succeeded.len() as i64,
            uncounted.failed + failed + uncounted.uncounted_failed.len() as i64,
        )
    }

    /// What was decided before.
    fn standing_verdict(&self) -> Option<Verdict> {
        let standing = |kind: &str| {
            conditions::find(&self.conditions, kind).filter(|it| tree::text(it, "/status") == "True")
        };
        let of = |condition: &Value, success: bool| Verdict {
            success,
            reason: tree::text(condition, "/reason").to_owned(),
            message: tree::text(condition, "/message").to_owned(),
        };
        let met = standing("SuccessCriteriaMet").map(|it| of(it, true));
        met.or_else(|| standing("FailureTarget").map(|it| of(it, false)))
    }

    fn new_failure(&mut self, failures: i64) -> Option<Verdict> {
        if let Some(message) = self.failure_by_policy() {
            return Some(Verdict::failure("PodFailurePolicy", message));
        }
        let limit = tree::number(self.job, "/spec/backoffLimit").unwrap_or(6);
        if failures > limit || self.restarts_exceed(limit) {
            let message = "Job has reached the specified backoff limit";
            return Some(Verdict::failure("BackoffLimitExceeded", message));
        }
        let deadline =
            tree::number(self.job, "/spec/activeDeadlineSeconds").filter(|_| !self.is_suspended())?;
        let passed = self.world.now().duration_since(self.started?);
        let left = SignedDuration::from_secs(deadline).saturating_sub(passed);
        if !left.is_positive() {
            let message = "Job was active longer than specified deadline";
            return Some(Verdict::failure("DeadlineExceeded", message));
        }
        self.plan.look_again(Duration::try_from(left).unwrap_or_default());
        None
    }

    /// Containers that are restarted in their pod count as well.
    fn restarts_exceed(&self, limit: i64) -> bool {
        if tree::text(self.job, "/spec/template/spec/restartPolicy") != "OnFailure" {
            return false;
        }
        let running = self.pods.iter().filter(|pod| !pod.is_finished() && pod.restarts > 0);
        let restarts = |pod: &Arc<Pod>| {
            let tree = self.tree(pod);
            let statuses = |at: &str| {
                tree::items(&tree, at).map(|it| tree::number(it, "/restartCount").unwrap_or(0)).sum::<i64>()
            };
            statuses("/status/containerStatuses") + statuses("/status/initContainerStatuses")
        };
        let restarts: i64 = running.map(restarts).sum();
        if limit == 0 { restarts > 0 } else { restarts >= limit }
    }

    fn judge_indexes(&mut self) {
        let completions = self.completions().unwrap_or(0);
        let done = self.pods.iter().filter(|pod| pod.phase == Phase::Succeeded && pod.is_tracked);
        self.succeeded.extend(done.filter_map(|pod| self.index(pod)).collect::<Vec<_>>());
        if let Some(limit) = self.per_index_limit() {
            let mut failed = Indexes::parse(tree::text(self.job, "/status/failedIndexes"), completions);
            let given_up = self.pods.iter().filter(|pod| pod.is_tracked && self.index_fails(pod, limit));
            failed.extend(given_up.filter_map(|pod| self.index(pod)).collect::<Vec<_>>());
            if self.verdict.is_none() {
                self.verdict = self.too_many_failed(&failed, completions);
            }
            self.failed_indexes = Some(failed);
        }
        if self.verdict.is_none() {
            self.verdict = self.success_by_policy(completions);
        }
    }

    fn too_many_failed(&self, failed: &Indexes, completions: i64) -> Option<Verdict> {
        let most = tree::number(self.job, "/spec/maxFailedIndexes");
        if most.is_some_and(|most| failed.total() > most) {
            let message = "Job has exceeded the specified maximal number of failed indexes";
            return Some(Verdict::failure("MaxFailedIndexesExceeded", message));
        }
        let all_ended = failed.total() > 0 && failed.total() + self.succeeded.total() >= completions;
        all_ended.then(|| Verdict::failure("FailedIndexes", "Job has failed indexes"))
    }

    fn manage_or_complete(&mut self, succeeded: i64) {
        let succeeded = if self.is_indexed() { self.succeeded.total() } else { succeeded };
        let manages = !tree::is_deleting(self.job);
        if manages {
            self.manage(succeeded);
        }
        let complete = match self.completions() {
            Some(completions) => succeeded >= completions,
            None => succeeded > 0,
        };
        if complete && self.counts.active == 0 {
            let message = "Reached expected number of succeeded pods";
            self.verdict = Some(Verdict::success("CompletionsReached", message));
        } else if manages {
            self.report_suspension();
        }
    }

    fn report_suspension(&mut self) {
        let now = self.world.now();
        let is_suspended = conditions::is_true(&self.conditions, "Suspended");
        match (self.is_suspended(), is_suspended) {
            (true, false) => {
                self.set_condition(Condition::new("Suspended", "True", "JobSuspended", "Job suspended"));
                self.plan.note(KIND, self.job, "Suspended", "Job suspended");
                self.started = None;
            }
            (false, true) => {
                self.set_condition(Condition::new("Suspended", "False", "JobResumed", "Job resumed"));
                self.plan.note(KIND, self.job, "Resumed", "Job resumed");
                self.started = Some(now);
            }
            _ => {}
        }
    }

    fn set_condition(&mut self, condition: Condition) {
        let mut value = condition.at(self.world.now());
        value["lastProbeTime"] = value["lastTransitionTime"].clone();
        let found = self.conditions.iter_mut().find(|it| tree::text(it, "/type") == condition.kind);
        match found {
            Some(found) => {
                let same = |at: &str| tree::text(found, at) == tree::text(&value, at);
                if !(same("/status") && same("/reason") && same("/message")) {
                    *found = value;
                }
            }
            None => self.conditions.push(value),
        }
    }
}
