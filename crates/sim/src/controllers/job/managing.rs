//! Making pods, and deleting them when they are too many.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{KIND, Work, backoff::Replaced, release_pod};
use crate::{
    Action, Pod,
    controllers::{replica_set::first_to_go, template},
    kind,
    pod::{COMPLETION_INDEX, JOB_TRACKING},
    tree,
};

/// No more pods are made or deleted at once.
const BURST: usize = 500;
/// Longest beginning of a name that the API server completes.
const PREFIX_LIMIT: usize = 58;
const ENVIRONMENT: &str = "JOB_COMPLETION_INDEX";

impl Work<'_> {
    /// The Job is decided: what still runs goes, and is counted when it has gone.
    pub(super) fn delete_active(&mut self) {
        for pod in self.active.clone() {
            self.delete(&pod);
        }
    }

    fn delete(&mut self, pod: &Pod) {
        self.plan.then(Action::delete_pod(pod));
        self.plan.note(KIND, self.job, "SuccessfulDelete", format!("Deleted pod: {}", pod.name));
        self.counts.active -= 1;
        self.counts.ready -= i64::from(pod.ready);
        self.counts.terminating += 1;
    }

    /// Pods that are not needed any more are neither successes nor failures.
    fn drop_pods(&mut self, pods: &[Arc<Pod>]) {
        for pod in pods.iter().take(BURST) {
            release_pod(self.world, &mut self.plan, pod);
            self.delete(pod);
        }
    }

    pub(super) fn manage(&mut self, succeeded: i64) {
        if self.is_suspended() {
            return self.drop_pods(&self.active.clone());
        }
        let (active, parallelism) =
            (self.active.len() as i64, tree::number(self.job, "/spec/parallelism").unwrap_or(1));
        let wanted = match self.completions() {
            None if succeeded > 0 => active,
            None => parallelism,
            Some(completions) => (completions - succeeded).clamp(0, parallelism.max(0)),
        };
        let surplus = usize::try_from(active - wanted).unwrap_or(0);
        let unneeded = self.unneeded(surplus);
        if !unneeded.is_empty() {
            return self.drop_pods(&unneeded);
        }
        let terminating = if self.waits_for_end() { self.counts.terminating } else { 0 };
        let missing = usize::try_from(wanted - terminating - active).unwrap_or(0).min(BURST);
        if missing > 0 && !self.is_refused() {
            self.make(missing);
        }
    }

    /// Pods of indexes that have another one or that the Job no longer has, then those that are least worth.
    fn unneeded(&self, at_least: usize) -> Vec<Arc<Pod>> {
        let mut gone = Vec::new();
        let mut left = self.active.clone();
        if self.is_indexed() {
            left.clear();
            let mut pods = self.active.clone();
            pods.sort_by_key(|pod| self.index(pod));
            for same in pods.chunk_by(|one, other| self.index(one) == self.index(other)) {
                let keeps = usize::from(same.first().is_some_and(|pod| self.index(pod).is_some()));
                let surplus = first_to_go(same, &[], same.len() - keeps, self.world.now());
                left.extend(same.iter().filter(|pod| !surplus.contains(pod)).cloned());
                gone.extend(surplus);
            }
        }
        if gone.len() < at_least {
            gone.extend(first_to_go(&left, &[], at_least - gone.len(), self.world.now()));
        }
        gone
    }

    /// The API server did not take the last pod, and it is too early to try again.
    fn is_refused(&mut self) -> bool {
        let refusal = self.world.refusal(KIND, tree::namespace(self.job), tree::name(self.job));
        let Some(refusal) = refusal else { return false };
        if refusal.fresh && !refusal.namespace_ends {
            self.plan.warn(KIND, self.job, "FailedCreate", format!("Error creating: {}", refusal.message));
        }
        let Some(rest) = refusal.rest(self.world.now()) else { return false };
        self.plan.look_again(rest);
        true
    }

    fn make(&mut self, count: usize) {
        if !self.is_indexed() {
            if let Some(rest) = self.rest() {
                return self.plan.look_again(rest);
            }
            for _ in 0..count {
                self.create(self.pod());
            }
            return;
        }
        if self.per_index_limit().is_none()
            && let Some(rest) = self.rest()
        {
            return self.plan.look_again(rest);
        }
        let replaced = self.replaced();
        let mut taken = self.succeeded.clone();
        let has_pod = |pod: &&Arc<Pod>| {
            pod.is_active() || (self.waits_for_end() && pod.terminating.is_some() && !pod.is_finished())
        };
        taken.extend(self.pods.iter().filter(has_pod).filter_map(|pod| self.index(pod)).collect());
        if let Some(failed) = &self.failed_indexes {
            taken.merge(failed);
        }
        for index in taken.first_missing(count, self.completions().unwrap_or(0)) {
            let before = replaced.get(&index);
            match before.and_then(|before| before.rest(self.world.now())) {
                Some(rest) => self.plan.look_again(rest),
                None => self.create(self.indexed_pod(index, before)),
            }
        }
    }

    fn create(&mut self, pod: Value) {
        self.plan.then(Action::create(kind::PODS, pod));
        self.plan.then(Action::Announce {
            object: tree::reference(KIND, self.job),
            reason: "SuccessfulCreate",
            message: "Created pod: ",
        });
        self.counts.active += 1;
    }

    fn pod(&self) -> Value {
        let template = self.job.pointer("/spec/template").unwrap_or(&Value::Null);
        let mut pod = template::pod(template, KIND, self.job);
        let mut finalizers: Vec<Value> = tree::items(&pod, "/metadata/finalizers").cloned().collect();
        if !finalizers.iter().any(|name| name == JOB_TRACKING) {
            finalizers.push(JOB_TRACKING.into());
        }
        pod["metadata"]["finalizers"] = finalizers.into();
        pod
    }

    fn indexed_pod(&self, index: i64, replaced: Option<&Replaced>) -> Value {
        let mut pod = self.pod();
        let name = tree::name(self.job);
        let metadata = &mut pod["metadata"];
        metadata["annotations"][COMPLETION_INDEX] = index.to_string().into();
        metadata["labels"][COMPLETION_INDEX] = index.to_string().into();
        metadata["generateName"] = prefix(name, index).into();
        if self.per_index_limit().is_some() {
            let (counted, ignored) = self.failures_after(replaced);
            let annotations = &mut metadata["annotations"];
            annotations["batch.kubernetes.io/job-index-failure-count"] = counted.to_string().into();
            if ignored > 0 {
                annotations["batch.kubernetes.io/job-index-ignored-failure-count"] =
                    ignored.to_string().into();
            }
        }
        pod["spec"]["hostname"] = format!("{name}-{index}").into();
        for containers in ["containers", "initContainers"] {
            let list = pod["spec"].get_mut(containers).and_then(Value::as_array_mut);
            list.into_iter().flatten().for_each(add_environment);
        }
        pod
    }
}

fn prefix(name: &str, index: i64) -> String {
    let end = format!("-{index}-");
    let room = PREFIX_LIMIT.saturating_sub(end.len());
    format!("{}{end}", name.get(..room.min(name.len())).unwrap_or(name))
}

/// Containers learn their index from the label.
fn add_environment(container: &mut Value) {
    if tree::items(container, "/env").any(|variable| tree::text(variable, "/name") == ENVIRONMENT) {
        return;
    }
    let mut variables: Vec<Value> = tree::items(container, "/env").cloned().collect();
    let path = format!("metadata.labels['{COMPLETION_INDEX}']");
    variables.push(json!({ "name": ENVIRONMENT, "valueFrom": { "fieldRef": { "fieldPath": path } } }));
    container["env"] = variables.into();
}
