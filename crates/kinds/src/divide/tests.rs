use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::Value;

use super::*;

fn numbers(value: &Value) -> BTreeMap<String, u64> {
    let entries = value.as_object().into_iter().flatten();
    entries.map(|(name, value)| (name.clone(), value.as_u64().unwrap())).collect()
}

fn run(case: &Value, algorithm: Algorithm) -> Plan {
    let mut preferences = Preferences::parse(&format!("{{\"clusters\": {}}}", case["preferences"])).unwrap();
    preferences.rebalance = case["rebalance"] == true;
    let clusters: Vec<&str> = case["clusters"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let division = Division {
        total: case["total"].as_u64().unwrap(),
        clusters: &clusters,
        preferences: &preferences,
        current: &numbers(&case["current"]),
        capacity: &numbers(&case["capacity"]),
        key: case["key"].as_str().unwrap(),
    };
    divide(&division, algorithm)
}

#[test]
fn federation_divides_as_federation_did() {
    let cases: Vec<Value> = serde_json::from_str(include_str!("../../tests/data/federation.json")).unwrap();
    for case in &cases {
        let plan = run(case, Algorithm::Federation);
        assert_eq!(plan.replicas, numbers(&case["plan"]), "{case}");
        assert_eq!(plan.overflow, numbers(&case["overflow"]), "{case}");
    }
    assert_eq!(cases.len(), 32);
}

#[test]
fn clusters_of_one_weight_are_ordered_by_hash() {
    let known = [("A", "", 84696414), ("E", "", 84696410), ("k8s-1", "default/job1", 159320697)];
    for (name, key, hash) in known {
        assert_eq!(rank(name, key), hash, "{name} {key}");
    }
}

#[test]
fn fair_divides_as_people_expect() {
    type Case =
        (&'static str, u64, bool, &'static [(&'static str, u64, Option<u64>, u64, u64)], &'static [u64]);
    // name, weight, max, min, current
    let cases: &[Case] = &[
        ("evenly", 7, true, &[("a", 1, None, 0, 0), ("b", 1, None, 0, 3), ("c", 1, None, 0, 0)], &[2, 3, 2]),
        (
            "minimums count towards the weight's worth",
            10,
            true,
            &[("a", 2, None, 2, 0), ("b", 3, None, 4, 0)],
            &[4, 6],
        ),
        ("shrinks where most is", 50, false, &[("a", 1, None, 0, 10), ("b", 1, None, 0, 70)], &[10, 40]),
        ("grows where least is", 15, false, &[("a", 1, None, 0, 1), ("b", 1, None, 0, 8)], &[7, 8]),
        (
            "a newcomer gets what is new",
            33,
            false,
            &[("a", 1, None, 0, 15), ("b", 1, None, 0, 15), ("c", 1, None, 0, 0)],
            &[15, 15, 3],
        ),
        (
            "rebalances",
            30,
            true,
            &[("a", 1, None, 0, 15), ("b", 1, None, 0, 15), ("c", 1, None, 0, 0)],
            &[10, 10, 10],
        ),
        ("places what fits", 50, false, &[("a", 1, Some(2), 0, 0), ("b", 1, Some(3), 0, 0)], &[2, 3]),
        ("too many minimums", 10, false, &[("a", 1, None, 20, 0), ("b", 1, None, 5, 5)], &[5, 5]),
        (
            "no weight, no more than the minimum",
            9,
            false,
            &[("a", 0, None, 2, 0), ("b", 1, Some(4), 0, 0)],
            &[2, 4],
        ),
        (
            "no weight keeps what runs if nobody else can",
            9,
            false,
            &[("a", 0, None, 0, 5), ("b", 1, Some(6), 0, 0)],
            &[5, 4],
        ),
        ("zero is a number", 0, false, &[("a", 1, None, 2, 5), ("b", 1, None, 0, 0)], &[0, 0]),
        ("weights", 60, true, &[("a", 1, None, 0, 0), ("b", 2, None, 0, 0)], &[20, 40]),
        (
            "a heavy weight with a bound",
            71,
            true,
            &[("a", 10_000, Some(10), 0, 0), ("b", 1, None, 0, 0), ("c", 1, Some(21), 0, 0)],
            &[10, 40, 21],
        ),
    ];
    for (what, total, rebalance, slots, wanted) in cases {
        let slots: Vec<Slot<'_>> = slots
            .iter()
            .map(|&(name, weight, max, min, current)| Slot {
                weight,
                max,
                min,
                current,
                ..Slot::open(name, "")
            })
            .collect();
        assert_eq!(fair(*total, &slots, *rebalance), *wanted, "{what}");
    }
}

#[test]
fn unhealthy_clusters_keep_and_gain_nothing() {
    let slot = |name, current, frozen| Slot { current, frozen, ..Slot::open(name, "") };
    for rebalance in [false, true] {
        let slots = [slot("a", 4, true), slot("b", 1, false), slot("c", 0, true)];
        assert_eq!(fair(9, &slots, rebalance), [4, 5, 0], "rebalance {rebalance}");
    }
}

#[test]
fn numbers_made_to_hurt_end_soon() {
    let huge = Slot { weight: u64::MAX, current: u64::MAX - 1, ..Slot::open("a", "") };
    let tiny = Slot { weight: 1, ..Slot::open("b", "") };
    let none = Slot { weight: 0, ..Slot::open("c", "") };
    for rebalance in [false, true] {
        for slots in [&[huge, none][..], &[huge, tiny, none], &[tiny, huge, huge]] {
            let divided: u128 = fair(u64::MAX, slots, rebalance).into_iter().map(u128::from).sum();
            assert_eq!(divided, u128::from(u64::MAX));
            let divided: u128 =
                federation(u64::MAX, slots, rebalance).replicas.into_iter().map(u128::from).sum();
            assert_eq!(divided, u128::from(u64::MAX));
        }
    }
}

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

prop_compose! {
    fn any_slot(most: u64)(
        weight in prop_oneof![3 => Just(1), 2 => 0..4_u64],
        min in prop_oneof![2 => Just(0), 1 => 0..=most / 2],
        max in prop_oneof![Just(None), (0..=most).prop_map(Some)],
        capacity in prop_oneof![2 => Just(None), 1 => (0..=most).prop_map(Some)],
        current in 0..=most,
        frozen in prop::bool::weighted(0.2),
    ) -> Slot<'static> {
        Slot { weight, min, max, capacity, current, frozen, ..Slot::open("", "") }
    }
}

fn any_slots(most: u64) -> impl Strategy<Value = Vec<Slot<'static>>> {
    prop::collection::vec(any_slot(most), 0..=4).prop_map(|mut slots| {
        for (slot, name) in slots.iter_mut().zip(NAMES) {
            (slot.name, slot.rank) = (name, rank(name, "key"));
        }
        slots
    })
}

/// What nobody may have more of.
fn bound(slot: &Slot<'_>, total: u64, rebalance: bool) -> u64 {
    let mut most = slot.max.unwrap_or(u64::MAX).min(slot.capacity.unwrap_or(u64::MAX)).min(total);
    if slot.frozen {
        most = most.min(slot.current);
    } else if slot.weight == 0 {
        most = most.min(if rebalance { slot.min } else { slot.min.max(slot.current) });
    }
    most
}

/// What everybody must have, if there is enough.
fn floor(slot: &Slot<'_>, total: u64, rebalance: bool) -> u64 {
    let bound = bound(slot, total, rebalance);
    if slot.frozen && rebalance { bound } else { slot.min.min(bound) }
}

/// All ways to place `total` within the bounds.
fn every_way(total: u64, bounds: &[(u64, u64)]) -> Vec<Vec<u64>> {
    let Some((&(low, high), rest)) = bounds.split_first() else {
        return if total == 0 { vec![Vec::new()] } else { Vec::new() };
    };
    let mut ways = Vec::new();
    for first in low..=high.min(total) {
        for mut way in every_way(total - first, rest) {
            way.insert(0, first);
            ways.push(way);
        }
    }
    ways
}

fn kept(slots: &[Slot<'_>], way: &[u64]) -> u64 {
    slots.iter().zip(way).map(|(slot, it)| slot.current.min(*it)).sum()
}

/// The bounds within which a best way is looked for, and the total that fits.
fn frame(total: u64, slots: &[Slot<'_>], rebalance: bool) -> (u64, Vec<(u64, u64)>) {
    let bounds: Vec<(u64, u64)> =
        slots.iter().map(|it| (floor(it, total, rebalance), bound(it, total, rebalance))).collect();
    let fits = total.min(bounds.iter().map(|it| it.1).sum());
    if bounds.iter().map(|it| it.0).sum::<u64>() <= total {
        return (fits, bounds);
    }
    // What an unhealthy cluster has comes before what others ask for.
    let keeps = |slot: &Slot<'_>| slot.frozen && rebalance;
    let both = || slots.iter().zip(&bounds);
    let kept: u64 = both().filter(|(slot, _)| keeps(slot)).map(|(_, it)| it.0).sum();
    let narrowed = both().map(|(slot, it)| match (keeps(slot), kept > total) {
        (true, false) => *it,
        (false, true) => (0, 0),
        _ => (0, it.0),
    });
    (total, narrowed.collect())
}

/// How unfair a way is: by moving a single replica from one to another it would become fairer by this many steps. Zero
/// for what a perfectly patient person could not improve.
fn improvable(slots: &[Slot<'_>], bounds: &[(u64, u64)], way: &[u64]) -> bool {
    let weight = |at: usize| u128::from(slots[at].weight);
    (0..way.len()).any(|from| {
        (0..way.len()).any(|to| {
            let moves = way[from] > bounds[from].0 && way[to] < bounds[to].1;
            // Even after the move, the receiver has less of its worth than the giver.
            moves
                && weight(to) > 0
                && u128::from(way[to] + 1) * weight(from) < u128::from(way[from] - 1) * weight(to)
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn fair_is_exact_bounded_and_a_fixed_point(slots in any_slots(9), total in 0..20_u64, rebalance: bool) {
        let plan = fair(total, &slots, rebalance);
        let (fits, bounds) = frame(total, &slots, rebalance);
        prop_assert_eq!(plan.iter().sum::<u64>(), fits);
        for (it, (low, high)) in plan.iter().zip(&bounds) {
            prop_assert!(low <= it && it <= high, "{:?} in {:?}", plan, bounds);
        }
        for (slot, it) in slots.iter().zip(&plan) {
            prop_assert!(!slot.frozen || *it <= slot.current, "an unhealthy cluster gained");
        }
        let mut after = slots.clone();
        after.iter_mut().zip(&plan).for_each(|(slot, it)| slot.current = *it);
        prop_assert_eq!(fair(total, &after, rebalance), plan);
    }

    #[test]
    fn fair_moves_as_few_as_possible(slots in any_slots(6), total in 0..14_u64) {
        let plan = fair(total, &slots, false);
        let (fits, bounds) = frame(total, &slots, false);
        let best = every_way(fits, &bounds).iter().map(|way| kept(&slots, way)).max();
        prop_assert_eq!(Some(kept(&slots, &plan)), best, "{:?}", plan);
    }

    #[test]
    fn rebalanced_is_fair_and_then_moves_as_few_as_possible(slots in any_slots(6), total in 0..14_u64) {
        let mut slots = slots;
        slots.iter_mut().for_each(|slot| slot.weight = 1);
        let plan = fair(total, &slots, true);
        let (fits, bounds) = frame(total, &slots, true);
        prop_assert!(!improvable(&slots, &bounds, &plan), "{:?}", plan);
        let fairest = every_way(fits, &bounds).into_iter().filter(|way| !improvable(&slots, &bounds, way));
        // Of one weight, the fairest ways differ in who has one more: they have the same squares.
        let squares = |way: &[u64]| way.iter().map(|it| it * it).sum::<u64>();
        let best = fairest.filter(|way| squares(way) == squares(&plan)).map(|way| kept(&slots, &way)).max();
        prop_assert_eq!(Some(kept(&slots, &plan)), best, "{:?}", plan);
    }

    #[test]
    fn the_order_of_clusters_does_not_matter(slots in any_slots(9), total in 0..20_u64, rebalance: bool) {
        let mut turned = slots.clone();
        turned.reverse();
        let mut fair_turned = fair(total, &turned, rebalance);
        fair_turned.reverse();
        prop_assert_eq!(fair(total, &slots, rebalance), fair_turned);
        let (there, mut back) = (federation(total, &slots, rebalance), federation(total, &turned, rebalance));
        back.replicas.reverse();
        back.overflow.reverse();
        prop_assert_eq!(there, back);
    }

    #[test]
    fn no_numbers_make_it_fail(
        numbers in prop::collection::vec((any::<u64>(), any::<u64>(), any::<Option<u64>>(), any::<Option<u64>>(), any::<u64>(), any::<bool>()), 0..5),
        total: u64,
        rebalance: bool,
    ) {
        let slots: Vec<Slot<'_>> = numbers.iter().zip(NAMES).map(|((weight, min, max, capacity, current, frozen), name)| {
            let (weight, min, max, capacity, current, frozen) = (*weight, *min, *max, *capacity, *current, *frozen);
            Slot { weight, min, max, capacity, current, frozen, ..Slot::open(name, "") }
        }).collect();
        let sum = |plan: &[u64]| plan.iter().map(|it| u128::from(*it)).sum::<u128>();
        prop_assert!(sum(&fair(total, &slots, rebalance)) <= u128::from(total));
        prop_assert!(sum(&federation(total, &slots, rebalance).replicas) <= u128::from(total));
    }

    #[test]
    fn preferences_are_read_or_refused(text in "\\PC{0,40}") {
        let _ = Preferences::parse(&text);
    }
}
