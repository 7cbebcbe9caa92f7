//! Equal-named replica sets of a divided Deployment, as one.

use machinery::resource::Tree;
use serde_json::{Value, json};

use super::render::{CLUSTER, REPLICAS, STALE, set};

/// Counts that add up.
const COUNTS: [(&str, &str); 6] = [
    ("spec", "replicas"),
    ("status", "replicas"),
    ("status", "fullyLabeledReplicas"),
    ("status", "readyReplicas"),
    ("status", "availableReplicas"),
    ("status", "terminatingReplicas"),
];

/// Annotations of the Deployment's controller that are counts.
const COUNTED: [&str; 2] =
    ["deployment.kubernetes.io/desired-replicas", "deployment.kubernetes.io/max-replicas"];

/// The replica sets of several clusters as one: the first, with the counts of all. `None`: there is none.
pub fn sum(parts: &[(&str, Tree)]) -> Option<Tree> {
    let (_, first) = parts.first()?;
    let mut all = first.clone();
    if parts.len() == 1 {
        return Some(all);
    }
    for (outer, inner) in COUNTS {
        let counts: Vec<i64> = parts.iter().filter_map(|(_, tree)| number(tree, outer, inner)).collect();
        if !counts.is_empty() {
            let total = counts.iter().fold(0i64, |sum, count| sum.saturating_add(*count));
            put(&mut all, outer, inner, json!(total));
        }
    }
    if let Some(observed) = observed(parts) {
        put(&mut all, "status", "observedGeneration", json!(observed));
    }
    if let Some(conditions) = conditions(parts) {
        put(&mut all, "status", "conditions", conditions);
    }
    sum_metadata(parts, all.get_mut("metadata")?.as_object_mut()?);
    Some(all)
}

fn number(tree: &Tree, outer: &str, inner: &str) -> Option<i64> {
    tree.get(outer)?.get(inner)?.as_i64()
}

fn put(tree: &mut Tree, outer: &str, inner: &str, value: Value) {
    let outer = tree.entry(outer).or_insert_with(|| json!({}));
    if outer.is_object() {
        outer[inner] = value;
    }
}

/// Generations are counted by each cluster for itself: the one that shows is the first's, and it is observed when all
/// have observed theirs.
fn observed(parts: &[(&str, Tree)]) -> Option<i64> {
    let shown = number(&parts.first()?.1, "metadata", "generation")?;
    let is_behind = |tree: &Tree| {
        let wanted = number(tree, "metadata", "generation").unwrap_or(0);
        number(tree, "status", "observedGeneration").unwrap_or(0) < wanted
    };
    let behind = parts.iter().any(|(_, tree)| is_behind(tree));
    Some(if behind { shown.saturating_sub(1).max(0) } else { shown })
}

/// One of each type: the first that is true, or else the first.
fn conditions(parts: &[(&str, Tree)]) -> Option<Value> {
    let mut found: Vec<Value> = Vec::new();
    for (_, tree) in parts {
        let some = tree.get("status").and_then(|status| status.get("conditions")).and_then(Value::as_array);
        for condition in some.into_iter().flatten() {
            match found.iter_mut().find(|it| it["type"] == condition["type"]) {
                Some(known) if known["status"] != "True" && condition["status"] == "True" => {
                    *known = condition.clone();
                }
                Some(_) => {}
                None => found.push(condition.clone()),
            }
        }
    }
    (!found.is_empty()).then_some(Value::Array(found))
}

fn sum_metadata(parts: &[(&str, Tree)], metadata: &mut Tree) {
    let of = |tree: &Tree, key: &str| tree.get("metadata").and_then(|it| it.get(key)).cloned();
    let annotation = |tree: &Tree, key: &str| {
        let annotations = of(tree, "annotations")?;
        annotations.get(key)?.as_str().map(str::to_owned)
    };
    for key in COUNTED {
        let counts = parts.iter().filter_map(|(_, tree)| annotation(tree, key)?.parse::<i64>().ok());
        if let Some(total) = counts.reduce(i64::saturating_add) {
            set(metadata, "annotations", key, Some(json!(total.to_string())));
        }
    }
    let times =
        parts.iter().filter_map(|(_, tree)| of(tree, "creationTimestamp")?.as_str().map(str::to_owned));
    if let Some(earliest) = times.min() {
        metadata.insert("creationTimestamp".into(), json!(earliest));
    }
    // It goes when all of them go.
    if parts.iter().any(|(_, tree)| of(tree, "deletionTimestamp").is_none()) {
        metadata.remove("deletionTimestamp");
        metadata.remove("deletionGracePeriodSeconds");
    }
    let stale = parts.iter().filter_map(|(_, tree)| annotation(tree, STALE)).min();
    set(metadata, "annotations", STALE, stale.map(|since| json!(since)));
    let shares: Vec<String> = parts
        .iter()
        .map(|(cluster, tree)| format!("{cluster}={}", number(tree, "spec", "replicas").unwrap_or(0)))
        .collect();
    set(metadata, "annotations", REPLICAS, Some(json!(shares.join(","))));
    set(metadata, "labels", CLUSTER, None);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tree(value: Value) -> Tree {
        let Value::Object(tree) = value else { panic!("an object") };
        tree
    }

    fn set_of(replicas: i64, ready: i64, generation: i64, observed: i64) -> Tree {
        tree(json!({
            "kind": "ReplicaSet",
            "metadata": {
                "name": "web-1", "generation": generation, "creationTimestamp": format!("2026-01-0{replicas}T00:00:00Z"),
                "labels": {"app": "web", "hanse.io/cluster": "x"},
                "annotations": {
                    "deployment.kubernetes.io/desired-replicas": replicas.to_string(),
                    "deployment.kubernetes.io/revision": "1",
                },
            },
            "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}},
            "status": {"replicas": replicas, "readyReplicas": ready, "observedGeneration": observed},
        }))
    }

    #[test]
    fn two_clusters_show_as_one_with_the_counts_of_both() {
        let all = sum(&[("eu-1", set_of(3, 2, 4, 4)), ("us-1", set_of(2, 2, 7, 7))]).unwrap();
        assert_eq!(all["spec"]["replicas"], 5);
        assert_eq!(all["status"], json!({"replicas": 5, "readyReplicas": 4, "observedGeneration": 4}));
        let metadata = &all["metadata"];
        assert_eq!(metadata["labels"], json!({"app": "web"}));
        assert_eq!(metadata["creationTimestamp"], "2026-01-02T00:00:00Z");
        assert_eq!(
            metadata["annotations"],
            json!({
                "deployment.kubernetes.io/desired-replicas": "5", "deployment.kubernetes.io/revision": "1",
                "hanse.io/replicas": "eu-1=3,us-1=2",
            })
        );
    }

    #[test]
    fn it_is_observed_when_all_have_observed() {
        let all = sum(&[("eu-1", set_of(3, 2, 4, 4)), ("us-1", set_of(2, 2, 7, 6))]).unwrap();
        assert_eq!(all["status"]["observedGeneration"], 3);
    }

    #[test]
    fn a_failure_anywhere_is_a_failure() {
        let mut failing = set_of(1, 0, 1, 1);
        let condition = json!({"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate"});
        failing["status"]["conditions"] = json!([condition]);
        let all = sum(&[("eu-1", set_of(3, 2, 1, 1)), ("us-1", failing)]).unwrap();
        assert_eq!(all["status"]["conditions"], json!([condition]));
    }

    #[test]
    fn it_is_on_its_way_out_when_all_are() {
        let mut going = set_of(1, 0, 1, 1);
        going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        let both = sum(&[("eu-1", going.clone()), ("us-1", going.clone())]).unwrap();
        assert!(!both["metadata"]["deletionTimestamp"].is_null());
        let one = sum(&[("eu-1", going), ("us-1", set_of(1, 1, 1, 1))]).unwrap();
        assert!(one["metadata"]["deletionTimestamp"].is_null());
    }

    #[test]
    fn one_alone_is_itself() {
        let one = set_of(3, 2, 4, 4);
        assert_eq!(sum(&[("eu-1", one.clone())]), Some(one));
        assert_eq!(sum(&[]), None);
    }

    proptest! {
        #[test]
        fn sums_are_exact_in_any_order(counts in prop::collection::vec((0i64..1000, 0i64..1000), 1..8), seed in 0usize..8) {
            let mut parts: Vec<(&str, Tree)> =
                counts.iter().map(|(replicas, ready)| ("c", tree(json!({
                    "metadata": {"name": "x"}, "spec": {"replicas": replicas}, "status": {"readyReplicas": ready},
                })))).collect();
            let rotate = seed % parts.len();
            parts.rotate_left(rotate);
            let all = sum(&parts).unwrap();
            prop_assert_eq!(&all["spec"]["replicas"], &json!(counts.iter().map(|it| it.0).sum::<i64>()));
            prop_assert_eq!(&all["status"]["readyReplicas"], &json!(counts.iter().map(|it| it.1).sum::<i64>()));
        }

        #[test]
        fn any_tree_can_be_summed(text in "\\PC*", number in any::<i64>()) {
            let odd = tree(json!({"metadata": {"annotations": text, "generation": number}, "spec": text, "status": number}));
            let _ = sum(&[("a", odd.clone()), ("b", odd)]);
        }
    }
}
