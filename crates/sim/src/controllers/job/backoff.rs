//! How long to wait after failures before the next pod is made.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::Work;
use crate::{Pod, pod::Phase, tree};

const FIRST: SignedDuration = SignedDuration::from_secs(10);
const LONGEST: SignedDuration = SignedDuration::from_secs(600);
const FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";
const IGNORED: &str = "batch.kubernetes.io/job-index-ignored-failure-count";

/// The last failed pod of an index, kept until it is replaced.
pub struct Replaced {
    pub pod: Arc<Pod>,
    tree: Value,
}

impl Work<'_> {
    /// Since the last success, as far as pods are still there to tell.
    pub(super) fn rest(&self) -> Option<Duration> {
        let ended = |pod: &Pod| finished(&self.tree(pod));
        let failed = self.pods.iter().filter(|pod| self.has_failed(pod) && self.failure_counts(pod));
        let failures: Vec<Timestamp> = failed.filter_map(|pod| ended(pod)).collect();
        let last = failures.iter().max().copied()?;
        let succeeded = self.pods.iter().filter(|pod| pod.phase == Phase::Succeeded);
        let success = succeeded.filter_map(|pod| pod.ready_changed.or(pod.created)).max();
        let since =
            failures.iter().filter(|failure| success.is_none_or(|success| **failure > success)).count();
        left(since as i64, last, self.world.now())
    }

    /// The failed pods whose indexes are to be tried again.
    pub(super) fn replaced(&self) -> BTreeMap<i64, Replaced> {
        let mut replaced: BTreeMap<i64, Replaced> = BTreeMap::new();
        if self.per_index_limit().is_none() {
            return replaced;
        }
        let gave_up = |index: i64| self.failed_indexes.as_ref().is_some_and(|failed| failed.contains(index));
        for pod in self.pods.iter().filter(|pod| pod.is_tracked && self.has_failed(pod)) {
            let Some(index) = self.index(pod) else { continue };
            let is_active = self.active.iter().any(|active| self.index(active) == Some(index));
            if self.succeeded.contains(index) || gave_up(index) || is_active {
                continue;
            }
            let candidate = Replaced { pod: pod.clone(), tree: self.tree(pod) };
            let is_later = |before: &Replaced| {
                (before.failures(), before.ended()) <= (candidate.failures(), candidate.ended())
            };
            if replaced.get(&index).is_none_or(is_later) {
                replaced.insert(index, candidate);
            }
        }
        replaced
    }

    /// What the pod after this one is annotated with: failures of its index that counted, and others.
    pub(super) fn failures_after(&self, replaced: Option<&Replaced>) -> (i64, i64) {
        let Some(replaced) = replaced else { return (0, 0) };
        let (counted, ignored) = (replaced.count(FAILURES), replaced.count(IGNORED));
        if self.failure_counts(&replaced.pod) { (counted + 1, ignored) } else { (counted, ignored + 1) }
    }
}

impl Replaced {
    fn count(&self, annotation: &str) -> i64 {
        tree::annotation(&self.tree, annotation).parse::<u32>().map_or(0, i64::from)
    }

    fn failures(&self) -> i64 {
        self.count(FAILURES) + self.count(IGNORED)
    }

    fn ended(&self) -> Option<Timestamp> {
        finished(&self.tree)
    }

    pub fn rest(&self, now: Timestamp) -> Option<Duration> {
        left(self.failures() + 1, self.ended()?, now)
    }
}

fn left(failures: i64, last: Timestamp, now: Timestamp) -> Option<Duration> {
    if failures == 0 {
        return None;
    }
    let doublings = u32::try_from(failures - 1).unwrap_or(u32::MAX).min(16);
    let wait = FIRST.saturating_mul(1 << doublings).min(LONGEST);
    let left = wait.saturating_sub(now.duration_since(last));
    Duration::try_from(left).ok().filter(|left| !left.is_zero())
}

/// When its last container ended; else when it stopped being ready, was told to end, or was made.
fn finished(pod: &Value) -> Option<Timestamp> {
    let stays = |name: &str| {
        tree::items(pod, "/spec/initContainers")
            .any(|it| tree::text(it, "/name") == name && tree::text(it, "/restartPolicy") == "Always")
    };
    let beside =
        tree::items(pod, "/status/initContainerStatuses").filter(|it| stays(tree::text(it, "/name")));
    let statuses: Vec<&Value> = tree::items(pod, "/status/containerStatuses").chain(beside).collect();
    let ends: Option<Vec<Timestamp>> =
        statuses.iter().map(|status| tree::time(status, "/state/terminated/finishedAt")).collect();
    if let Some(last) = ends.and_then(|ends| ends.into_iter().max()) {
        return Some(last);
    }
    let unready = tree::condition(pod, "Ready").filter(|it| tree::text(it, "/status") == "False");
    if let Some(since) = unready.and_then(|it| tree::time(it, "/lastTransitionTime")) {
        return Some(since);
    }
    let grace = tree::number(pod, "/metadata/deletionGracePeriodSeconds").unwrap_or(0);
    let deleted = tree::time(pod, "/metadata/deletionTimestamp");
    let asked = deleted.and_then(|at| at.checked_sub(SignedDuration::from_secs(grace)).ok());
    asked.or_else(|| tree::time(pod, "/metadata/creationTimestamp"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_ten_minutes() {
        let last: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
        let table =
            [(0, None), (1, Some(10)), (2, Some(20)), (4, Some(80)), (7, Some(600)), (500, Some(600))];
        for (failures, expected) in table {
            assert_eq!(left(failures, last, last), expected.map(Duration::from_secs), "{failures}");
        }
        let later = last + SignedDuration::from_secs(10);
        assert_eq!(left(1, last, later), None);
    }
}
