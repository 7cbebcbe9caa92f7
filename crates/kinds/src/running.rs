//! How much of a workload a cluster can hold, by its pods; and its status without what has no room.

use serde_json::{Value, json};

use crate::{
    fields::{count, list, put, text},
    types::Share,
};

/// A pod that cannot be scheduled counts as such after this many seconds: until then room may be made.
pub const UNSCHEDULABLE_AFTER: i64 = 60;

/// Since when no node was found for a pod, in seconds since 1970; `None`: one was, or nobody has looked.
pub fn unschedulable_since(pod: &Value) -> Option<i64> {
    let condition = list(pod, "status.conditions").iter().find(|it| {
        text(it, "type") == "PodScheduled"
            && text(it, "status") == "False"
            && text(it, "reason") == "Unschedulable"
    })?;
    let time = machinery::schema::parse_time(text(condition, "lastTransitionTime"));
    Some(time.map_or(0, |(second, _)| second))
}

/// How much of a workload a cluster can hold that wants so many pods of it, of which so many have had no place for longer
/// than [`UNSCHEDULABLE_AFTER`]; `None`: not known, since each has one. Pods of before that are still there may be among them.
pub fn capacity(wanted: u64, unschedulable: u64) -> Option<u64> {
    (unschedulable > 0).then(|| wanted.saturating_sub(unschedulable))
}

/// What is held to fit, where `before` was, of a workload with so many pods of which so many are ready. Pods that were just
/// made have not waited for long, and are no room all the same: only what is ready shows that there is more.
pub fn capacity_after(before: Option<u64>, found: Option<u64>, all: u64, ready: u64) -> Option<u64> {
    match (before, found) {
        (Some(before), Some(found)) => Some(found.min(before.max(ready))),
        (Some(before), None) if ready < all => Some(before.max(ready)),
        (None, found) | (_, found @ None) => found,
    }
}

const COUNTS: [&str; 6] = [
    "replicas",
    "updatedReplicas",
    "readyReplicas",
    "availableReplicas",
    "currentReplicas",
    "fullyLabeledReplicas",
];

/// The status of a copy that has `pinned` replicas whatever its share, as it would be with its share: it lacks what it lacks,
/// and what it has on top of those that it should have is on top. Else whoever waits for the object's own number waits for ever.
pub fn unpinned(status: &Value, pinned: Option<u64>, share: &Share) -> Value {
    let mut status = status.clone();
    let Some(pinned) = pinned.filter(|pinned| *pinned != share.replicas) else { return status };
    for field in COUNTS {
        if let Some(counted) = count(&status, field) {
            put(&mut status, field, counted.saturating_add(share.replicas).saturating_sub(pinned));
        }
    }
    status
}

/// The status of a copy as it would be without what was asked for beyond its share and has no room: nobody waits for that.
pub fn within_share(status: &Value, share: &Share) -> Value {
    let counted = |field: &str| count(status, field).unwrap_or(0);
    let mut status = status.clone();
    let all = counted("replicas");
    let asked = all.saturating_sub(counted("readyReplicas")).min(share.overflow);
    if asked == 0 {
        return status;
    }
    put(&mut status, "replicas", all - asked);
    for field in ["updatedReplicas", "fullyLabeledReplicas"] {
        if let Some(more) = count(&status, field).filter(|it| *it > all - asked) {
            put(&mut status, field, more.min(all - asked));
        }
    }
    if let Some(missing) = count(&status, "unavailableReplicas") {
        put(&mut status, "unavailableReplicas", missing.saturating_sub(asked));
    }
    if count(&status, "availableReplicas").unwrap_or(0) < share.replicas {
        return status;
    }
    let conditions = status.get_mut("conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten().filter_map(Value::as_object_mut) {
        let reason = match condition.get("type").and_then(Value::as_str) {
            Some("Available") => "MinimumReplicasAvailable",
            Some("Progressing") => "NewReplicaSetAvailable",
            _ => continue,
        };
        condition.insert("status".into(), json!("True"));
        condition.insert("reason".into(), json!(reason));
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_copy_counts_as_one_with_its_share() {
        let share = Share { replicas: 5, ..Share::default() };
        let rows = [
            // All of ten are there; three lack, and one of the old is left; two instead of five, and one of those lacks.
            (10, json!({"replicas": 10, "readyReplicas": 10}), json!({"replicas": 5, "readyReplicas": 5})),
            (10, json!({"replicas": 11, "readyReplicas": 7}), json!({"replicas": 6, "readyReplicas": 2})),
            (2, json!({"replicas": 2, "readyReplicas": 1}), json!({"replicas": 5, "readyReplicas": 4})),
            (10, json!({"replicas": 3}), json!({"replicas": 0})),
        ];
        for (pinned, said, counts) in rows {
            assert_eq!(unpinned(&said, Some(pinned), &share), counts, "{said}");
            assert_eq!(unpinned(&said, None, &share), said);
        }
    }

    #[test]
    fn room_is_what_was_found_until_more_is_ready() {
        assert_eq!(capacity_after(None, Some(10), 17, 10), Some(10));
        assert_eq!(capacity_after(Some(10), Some(11), 17, 10), Some(10), "nobody has looked at the eleventh");
        assert_eq!(capacity_after(Some(10), Some(12), 17, 11), Some(11));
        assert_eq!(capacity_after(Some(10), Some(8), 17, 8), Some(8));
        assert_eq!(capacity_after(Some(10), None, 17, 6), Some(10), "those that waited are made anew");
        assert_eq!(capacity_after(Some(10), None, 17, 12), Some(12));
        assert_eq!(capacity_after(Some(10), None, 12, 12), None, "nothing waits any more");
    }

    #[test]
    fn what_is_asked_for_beyond_a_share_is_not_waited_for() {
        let status = |ready: u64| {
            let conditions = json!([
                {"type": "Available", "status": "False", "reason": "MinimumReplicasUnavailable"},
                {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"},
            ]);
            json!({
                "replicas": 16, "updatedReplicas": 16, "readyReplicas": ready, "availableReplicas": ready,
                "unavailableReplicas": 16 - ready, "conditions": conditions,
            })
        };
        let share = Share { replicas: 10, overflow: 6, ..Share::default() };
        let full = within_share(&status(10), &share);
        assert_eq!(
            (&full["replicas"], &full["updatedReplicas"], &full["unavailableReplicas"]),
            (&json!(10), &json!(10), &json!(0))
        );
        assert_eq!(full["conditions"][0]["status"], "True");
        assert_eq!(full["conditions"][1]["reason"], "NewReplicaSetAvailable");
        let short = within_share(&status(8), &share);
        assert_eq!((&short["replicas"], &short["unavailableReplicas"]), (&json!(10), &json!(2)));
        assert_eq!(short["conditions"][0]["status"], "False", "its share is not there");
        assert_eq!(within_share(&status(8), &Share { replicas: 16, ..Share::default() }), status(8));
        let room = within_share(&status(16), &share);
        assert_eq!(room["replicas"], 16, "they have found room");
    }
}
