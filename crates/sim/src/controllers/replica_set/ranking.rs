//! Which pods go first when there are too many.

use std::{cmp::Reverse, collections::HashMap, sync::Arc};

use jiff::Timestamp;

use crate::{Pod, pod::Phase};

/// `count` of `pods`: those without a node, that do not run, that are not ready, that cost least, that share a node
/// with most of their `related` pods, that are younger (by powers of two), that restarted more often.
///
/// Upstream compares UIDs as soon as two ages are about the same; here restarts come before, so that the order is one.
pub fn first_to_go(pods: &[Arc<Pod>], related: &[Arc<Pod>], count: usize, now: Timestamp) -> Vec<Arc<Pod>> {
    let mut ranked = pods.to_vec();
    if count < ranked.len() {
        let mut on_node: HashMap<&str, usize> = HashMap::new();
        for pod in related.iter().filter(|pod| pod.is_active()) {
            *on_node.entry(pod.node.as_str()).or_default() += 1;
        }
        ranked.sort_by_cached_key(|pod| {
            let age = |since: Option<Timestamp>| since.map_or(-2, |since| magnitude(since, now));
            (
                !pod.node.is_empty(),
                pod.phase == Phase::Running,
                pod.ready,
                pod.deletion_cost,
                Reverse(on_node.get(pod.node.as_str()).copied().unwrap_or(0)),
                if pod.ready { age(pod.ready_changed) } else { 0 },
                (Reverse(pod.most_restarts.0), Reverse(pod.most_restarts.1)),
                age(pod.created),
                pod.uid.clone(),
            )
        });
    }
    ranked.truncate(count);
    ranked
}

fn magnitude(since: Timestamp, now: Timestamp) -> i64 {
    let age = now.duration_since(since).as_nanos();
    if age > 0 { i64::from(age.ilog2()) } else { -1 }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(name: &str, change: Value) -> Arc<Pod> {
        let mut tree = json!({
            "metadata": { "name": name, "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z" },
            "spec": { "nodeName": "a" },
            "status": {
                "phase": "Running",
                "conditions": [{ "type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z" }],
            },
        });
        for (pointer, value) in change.as_object().expect("changes") {
            let (parent, key) = pointer.rsplit_once('/').expect("a pointer");
            tree.pointer_mut(parent).expect("a parent")[key] = value.clone();
        }
        Arc::new(Pod::of(&tree))
    }

    #[test]
    fn the_least_useful_pod_goes_first() {
        let keep = pod("keep", json!({}));
        let table = [
            ("unbound", json!({ "/spec/nodeName": "" })),
            ("pending", json!({ "/status/phase": "Pending" })),
            ("unready", json!({ "/status/conditions": [] })),
            (
                "cheap",
                json!({ "/metadata/annotations": { "controller.kubernetes.io/pod-deletion-cost": "-1" } }),
            ),
            (
                "young",
                json!({ "/status/conditions": [
                    { "type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T01:00:00Z" }] }),
            ),
            ("restarting", json!({ "/status/containerStatuses": [{ "restartCount": 3 }] })),
            ("new", json!({ "/metadata/creationTimestamp": "2026-01-01T01:00:00Z" })),
        ];
        let now = "2026-01-01T01:00:10Z".parse().expect("a time");
        for (name, change) in table {
            let other = pod(name, change);
            let first = first_to_go(&[keep.clone(), other.clone()], &[], 1, now);
            assert_eq!(first[0].name, name);
        }
    }

    #[test]
    fn of_equal_pods_the_one_on_the_fuller_node_goes_first() {
        let (one, two) = (pod("one", json!({})), pod("two", json!({ "/spec/nodeName": "b" })));
        let related = [one.clone(), two.clone(), pod("three", json!({ "/spec/nodeName": "b" }))];
        let now = "2026-01-01T01:00:00Z".parse().expect("a time");
        assert_eq!(first_to_go(&[one, two], &related, 1, now)[0].name, "two");
    }
}
