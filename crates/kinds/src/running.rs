//! What of a workload runs in a cluster, and how much of it the cluster can hold, by its pods.

use serde_json::Value;

use crate::{
    fields::{list, text},
    health::condition,
};

/// A pod that cannot be scheduled counts as such after this many seconds: until then room may be made.
pub const UNSCHEDULABLE_AFTER: i64 = 60;

/// Pods by what they do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PodCounts {
    pub total: u64,
    pub running_and_ready: u64,
    pub unschedulable: u64,
    /// Those that cannot be scheduled, but not for long: look again soon.
    pub perhaps_unschedulable: u64,
}

/// Counts pods; `now` is in seconds since 1970.
///
/// A pod that runs and is not ready does not count as ready, other than in federation v1.
pub fn count_pods(pods: &[Value], now: i64) -> PodCounts {
    let mut counts = PodCounts { total: pods.len() as u64, ..PodCounts::default() };
    for pod in pods {
        if text(pod, "status.phase") == "Running" {
            let ready = condition(pod, "Ready").is_some_and(|it| text(it, "status") == "True");
            counts.running_and_ready += u64::from(ready);
            continue;
        }
        match unschedulable_since(pod) {
            Some(since) if now.saturating_sub(since) > UNSCHEDULABLE_AFTER => counts.unschedulable += 1,
            Some(_) => counts.perhaps_unschedulable += 1,
            None => {}
        }
    }
    counts
}

fn unschedulable_since(pod: &Value) -> Option<i64> {
    let condition = list(pod, "status.conditions").iter().find(|it| {
        text(it, "type") == "PodScheduled"
            && text(it, "status") == "False"
            && text(it, "reason") == "Unschedulable"
    })?;
    let time = machinery::schema::parse_time(text(condition, "lastTransitionTime"));
    Some(time.map_or(0, |(second, _)| second))
}

/// What a cluster runs and can hold of a workload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Running {
    pub current: u64,
    /// `None`: not known, since nothing has failed to be scheduled.
    pub capacity: Option<u64>,
}

/// If all that is wanted is ready nobody has to look at pods; otherwise they say how many run, and how many had no
/// place.
pub fn running(wanted: u64, ready: u64, pods: impl FnOnce() -> PodCounts) -> Running {
    if wanted == ready {
        return Running { current: ready, capacity: None };
    }
    let PodCounts { running_and_ready, unschedulable, .. } = pods();
    let capacity = (unschedulable > 0).then(|| wanted.saturating_sub(unschedulable));
    Running { current: running_and_ready, capacity }
}
