//! What holds of any object: nothing panics, and the parts are the whole.

use std::collections::BTreeMap;

use kinds::{
    Kind, MemberStatus, Share, known, of, split,
    split::ordinals::{Ordinals, next, ordinals},
};
use proptest::prelude::*;
use serde_json::{Value, json};

fn mk(api_version: &str, kind: &str, spec: Value) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "web", "namespace": "shop"}, "spec": spec})
}

fn some(replicas: u64) -> Share {
    Share { replicas, ..Share::default() }
}

fn shares(list: &[(&str, Share)]) -> BTreeMap<String, Share> {
    list.iter().map(|(cluster, share)| ((*cluster).to_owned(), *share)).collect()
}

/// JSON of any shape, with the words that kinds look for.
fn any_json() -> impl Strategy<Value = Value> {
    const WORDS: [&str; 22] = [
        "spec",
        "status",
        "metadata",
        "replicas",
        "template",
        "conditions",
        "type",
        "containers",
        "volumes",
        "name",
        "selector",
        "ports",
        "updateStrategy",
        "rollingUpdate",
        "partition",
        "observedGeneration",
        "completions",
        "minAvailable",
        "maxReplicas",
        "currentMetrics",
        "readyReplicas",
        "generation",
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-zA-Z%0-9]{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 60, 6, |inner| {
        let key = (0..WORDS.len()).prop_map(|at| WORDS[at].to_owned());
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(key, inner, 0..7).prop_map(|it| it.into_iter().collect()),
        ]
    })
}

fn any_kind() -> impl Strategy<Value = Kind> {
    (0..known().len() + 1).prop_map(|at| known().get(at).map_or(of("", "?"), |row| of(row.group, row.kind)))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_panics_whatever_it_is_given(
        kind in any_kind(), object in any_json(), other in any_json(), numbers in any::<[u64; 7]>(),
    ) {
        let share = Share {
            replicas: numbers[0], completions: Some(numbers[1]), ordinals: Some(numbers[2]), min: Some(numbers[3]),
            max: Some(numbers[4]), overflow: numbers[5], run: numbers[6],
        };
        let both = shares(&[("a", share), ("b", some(numbers[1])), ("c", some(1))]);
        let known = MemberStatus {
            assigned: share, generation: numbers[3] as i64, source_generation: numbers[4] as i64,
            status: other.clone(), reachable: true, leaving: numbers[0].is_multiple_of(2),
        };
        let members = BTreeMap::from([
            ("a".to_owned(), known.clone()),
            ("b".to_owned(), MemberStatus { status: object.clone(), ..known.clone() }),
        ]);
        let _ = (kind.subject(&object), kind.health(&object));
        let copies = kind.split(&object, &both);
        for cluster in both.keys() {
            let alone = kind.split_for(&object, &both, cluster).ok();
            prop_assert_eq!(alone, copies.as_ref().ok().map(|copies| copies.get(cluster).cloned()));
        }
        let _ = (kind.aggregate(&object, &members), kind.member_health(&object, &known));
    }

    #[test]
    fn copies_add_up_to_the_whole(parts in prop::collection::vec(0u64..50, 1..6), start in 0u64..9, completions in 0u64..99) {
        let total: u64 = parts.iter().sum();
        let list: BTreeMap<String, Share> =
            parts.iter().enumerate().map(|(at, part)| (format!("c{at}"), some(*part))).collect();
        let sum = |copies: &BTreeMap<String, Value>, pointer: &str| {
            copies.values().filter_map(|copy| copy.pointer(pointer)?.as_u64()).sum::<u64>()
        };
        let deployment = mk("apps/v1", "Deployment", json!({"replicas": total}));
        prop_assert_eq!(sum(&split(&deployment, &list).expect("copies"), "/spec/replicas"), total);

        let set = mk("apps/v1", "StatefulSet", json!({"replicas": total, "ordinals": {"start": start}}));
        let copies = split(&set, &list).expect("copies");
        let mut ordinals: Vec<u64> = copies.values().flat_map(|copy| {
            let first = copy["spec"]["ordinals"]["start"].as_u64().unwrap_or(0);
            first..first + copy["spec"]["replicas"].as_u64().unwrap_or(0)
        }).collect();
        ordinals.sort_unstable();
        prop_assert_eq!(ordinals, (start..start + total).collect::<Vec<_>>(), "each ordinal once");

        let job = mk("batch/v1", "Job", json!({"parallelism": total, "completions": completions}));
        let copies = split(&job, &list).expect("copies");
        prop_assert_eq!(sum(&copies, "/spec/parallelism"), total);
        if total > 0 {
            prop_assert_eq!(sum(&copies, "/spec/completions"), completions);
        }
    }

    #[test]
    fn budgets_promise_no_more_than_the_user_allowed(
        pods in prop::collection::vec(0u64..12, 1..6), number in 0u64..30, percent in 0u64..101, min in any::<bool>(), is_percent in any::<bool>()
    ) {
        let field = if min { "minAvailable" } else { "maxUnavailable" };
        let amount = if is_percent { json!(format!("{percent}%")) } else { json!(number) };
        let budget = mk("policy/v1", "PodDisruptionBudget", json!({field: amount}));
        let list: BTreeMap<String, Share> =
            pods.iter().enumerate().map(|(at, pods)| (format!("c{at}"), some(*pods))).collect();
        // As the disruption controller counts.
        let allowed = |budget: &Value, pods: u64| {
            let amount = &budget["spec"][field];
            let amount = match amount.as_str().and_then(|text| text.strip_suffix('%')) {
                Some(percent) => (pods * percent.parse::<u64>().expect("a number")).div_ceil(100),
                None => amount.as_u64().expect("a number"),
            };
            if min { pods.saturating_sub(amount) } else { amount.min(pods) }
        };
        let copies = split(&budget, &list).expect("copies");
        let together: u64 = copies.iter().map(|(cluster, copy)| allowed(copy, list[cluster].replicas)).sum();
        let whole = allowed(&budget, pods.iter().sum());
        prop_assert!(together <= whole, "{} allows {together}, not {whole}: {:?}", &budget["spec"], &pods);
        prop_assert_eq!(together == 0, whole == 0, "nor is everything forbidden");
    }

    #[test]
    fn ranges_of_ordinals_move_no_more_than_the_numbers_ask(
        parts in prop::collection::vec(0u64..9, 1..6), changed in prop::collection::vec(0u64..9, 1..6),
        first in 0u64..5, more in 0u64..9,
    ) {
        let counts = |parts: &[u64]| -> BTreeMap<String, u64> {
            parts.iter().enumerate().map(|(at, part)| (format!("c{at}"), *part)).collect()
        };
        let none = BTreeMap::new();
        let current = ordinals(first, &counts(&parts), &none);
        prop_assert_eq!(&ordinals(first, &counts(&parts), &current), &current, "the same again moves nothing");

        let moved = ordinals(first, &counts(&changed), &current);
        let mut all: Vec<u64> = moved.values().flat_map(|range| range.start..range.end).collect();
        all.sort_unstable();
        let total: u64 = changed.iter().sum();
        prop_assert_eq!(all, (first..first + total).collect::<Vec<_>>(), "each ordinal once");
        for (cluster, range) in &moved {
            prop_assert_eq!(range.len(), counts(&changed)[cluster]);
        }

        // Growing and shrinking at the end leaves all others alone.
        let last = current.iter().filter(|(_, range)| !range.is_empty()).max_by_key(|(_, range)| range.start);
        if let Some((last, range)) = last {
            for count in [range.len() + more, range.len().saturating_sub(more)] {
                let mut wanted = counts(&parts);
                wanted.insert(last.clone(), count);
                let resized = ordinals(first, &wanted, &current);
                for (cluster, range) in current.iter().filter(|(cluster, it)| *cluster != last && !it.is_empty()) {
                    prop_assert_eq!(&resized[cluster], range);
                }
                prop_assert!(count == 0 || resized[last].start == range.start);
            }
        }
    }

    #[test]
    fn no_ordinal_is_ever_in_two_clusters_on_its_way(
        before in prop::collection::vec(0u64..6, 1..6), after in prop::collection::vec(0u64..6, 1..6),
        silent in prop::collection::vec(prop::bool::weighted(0.2), 6),
    ) {
        let none = BTreeMap::new();
        let lay = |parts: &[u64], current: &BTreeMap<String, Ordinals>| {
            let wanted = parts.iter().enumerate().map(|(at, part)| (format!("c{at}"), *part)).collect();
            ordinals(0, &wanted, current)
        };
        let mut held = lay(&before, &none);
        let wanted = lay(&after, &held);
        for _ in 0..3 {
            let told = next(&held, &wanted);
            // Whoever does not answer goes on with what it holds.
            let hears = |cluster: &str| !cluster[1..].parse::<usize>().is_ok_and(|at| silent[at]);
            for (cluster, range) in told.iter().filter(|(cluster, _)| hears(cluster)) {
                let others = held.iter().filter(|(other, _)| *other != cluster);
                for (other, it) in others {
                    let common = it.end.min(range.end).saturating_sub(it.start.max(range.start));
                    prop_assert_eq!(common, 0, "{} and {}: {:?} {:?}", cluster, other, &held, &told);
                }
            }
            let gone: Vec<String> =
                held.keys().filter(|it| !wanted.contains_key(*it) && hears(it)).cloned().collect();
            held.retain(|cluster, _| !gone.contains(cluster));
            held.extend(told.into_iter().filter(|(cluster, _)| hears(cluster)));
        }
        if !silent.iter().any(|it| *it) {
            let running = |of: &BTreeMap<String, Ordinals>| -> BTreeMap<String, Ordinals> {
                of.iter().filter(|(_, it)| !it.is_empty()).map(|(cluster, it)| (cluster.clone(), *it)).collect()
            };
            prop_assert_eq!(running(&held), running(&wanted));
        }
    }
}
