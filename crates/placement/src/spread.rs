//! Division over places: regions, zones, whatever clusters are labelled with.
//!
//! Constraints nest in the order they are written: the first divides the total over its places, the next what each of
//! them got, and inside of the last the clusters share. Each step takes time about in proportion to the clusters.
//!
//! ```text
//!   12 ─┬─ eu 6 ─┬─ eu-a 3 ── cluster 3
//!       │        └─ eu-b 3 ── cluster 2, cluster 1
//!       └─ us 6 ─── us-a 6 ── cluster 6
//! ```

use std::ops::Range;

use kinds::divide::{Algorithm, Slot, fair, federation, rank};

use crate::policy::Spread;

/// A constraint, and the place of each slot by it.
pub struct Level<'a> {
    pub spread: &'a Spread,
    pub places: Vec<Option<&'a str>>,
}

/// Divides a total over slots.
pub struct Divider<'s, 'a> {
    pub slots: &'s [Slot<'a>],
    pub levels: Vec<Level<'a>>,
    /// Which slots can gain nothing, whoever else may.
    pub held: Vec<bool>,
    pub rebalance: bool,
    pub algorithm: Algorithm,
    pub key: &'s str,
}

/// The slots of one place.
struct Place<'a> {
    slot: Slot<'a>,
    /// From where to where in the sorted members.
    members: Range<usize>,
    /// What it can hold.
    room: u64,
    /// No constraint is on it: it cannot gain, or has no label that would say where it is.
    exempt: bool,
}

impl<'a> Divider<'_, 'a> {
    /// By the place of the slot.
    pub fn divide(&self, total: u64) -> Vec<u64> {
        let mut shares = vec![0; self.slots.len()];
        if self.levels.is_empty() {
            return self.leaf(total, self.slots);
        }
        let mut members: Vec<usize> = (0..self.slots.len()).collect();
        self.place(0, &mut members, total, &mut shares);
        shares
    }

    fn leaf(&self, total: u64, slots: &[Slot<'a>]) -> Vec<u64> {
        match self.algorithm {
            Algorithm::Fair => fair(total, slots, self.rebalance),
            Algorithm::Federation => {
                let held: Vec<Slot<'a>> = slots.iter().map(|slot| held(*slot)).collect();
                federation(total, &held, self.rebalance).replicas
            }
        }
    }

    fn place(&self, at: usize, members: &mut [usize], total: u64, shares: &mut [u64]) {
        let Some(level) = self.levels.get(at) else { return self.share(members, total, shares) };
        let mut places = self.places(at, members, total);
        if level.spread.required {
            level_minimums(level.spread, &mut places, total);
        }
        let slots: Vec<Slot<'a>> = places.iter().map(|place| place.slot).collect();
        let mut divided = fair(total, &slots, self.rebalance);
        if level.spread.required {
            divided = level_out(level.spread, &places, divided, total);
        }
        for (place, total) in places.into_iter().zip(divided) {
            if let Some(members) = members.get_mut(place.members) {
                self.place(at + 1, members, total, shares);
            }
        }
    }

    /// Inside of the last place.
    fn share(&self, members: &[usize], total: u64, shares: &mut [u64]) {
        if let [one] = members {
            shares[*one] = total.min(self.bound(&self.slots[*one]));
            return;
        }
        let slots: Vec<Slot<'a>> = members.iter().map(|it| self.slots[*it]).collect();
        let divided = self.leaf(total, &slots);
        members.iter().zip(divided).for_each(|(member, share)| shares[*member] = share);
    }

    /// The places that are used, by name. Sorts the members by them.
    fn places(&self, at: usize, members: &mut [usize], total: u64) -> Vec<Place<'a>> {
        let Some(level) = self.levels.get(at) else { return Vec::new() };
        members.sort_by_key(|member| level.places[*member]);
        let mut places = Vec::new();
        let mut from = 0;
        for of_one in members.chunk_by_mut(|a, b| level.places[*a] == level.places[*b]) {
            let to = from + of_one.len();
            let name = of_one.first().and_then(|member| level.places[*member]);
            places.push(Place { members: from..to, ..self.of_members(at, name, of_one) });
            from = to;
        }
        if let Some(most) = level.spread.max_domains {
            keep_best(&mut places, usize::try_from(most).unwrap_or(usize::MAX), total);
        }
        places
    }

    fn of_members(&self, at: usize, name: Option<&'a str>, members: &mut [usize]) -> Place<'a> {
        let room = self.room(at + 1, members);
        let slots = || members.iter().map(|it| &self.slots[*it]);
        let sum = |of: &dyn Fn(&Slot<'a>) -> u64| slots().map(of).fold(0, u64::saturating_add);
        let frozen = slots().all(|slot| slot.frozen);
        let held = members.iter().all(|it| self.held[*it]);
        let wish = self.levels.get(at).is_some_and(|level| !level.spread.required);
        let slot = Slot {
            name: name.unwrap_or_default(),
            rank: rank(name.unwrap_or_default(), self.key),
            // A wish is that places are alike; a demand is kept after the clusters' own weights.
            weight: if wish { 1 } else { sum(&|slot| slot.weight) },
            min: sum(&|slot| slot.min.min(self.bound(slot))),
            max: Some(room),
            capacity: None,
            current: sum(&|slot| slot.current.min(self.bound(slot))),
            frozen,
        };
        Place { slot, members: 0..members.len(), room, exempt: held || name.is_none() }
    }

    /// What it may have: without weight its minimum, and what it has.
    fn bound(&self, slot: &Slot<'a>) -> u64 {
        match (slot.weight, self.rebalance) {
            (0, true) if !slot.frozen => bound(slot).min(slot.min),
            (0, false) => bound(slot).min(slot.min.max(slot.current)),
            _ => bound(slot),
        }
    }

    /// What the members can hold under the constraints from `at` on.
    fn room(&self, at: usize, members: &mut [usize]) -> u64 {
        let of = |it: &usize| self.bound(&self.slots[*it]);
        let Some(level) = self.levels.get(at) else {
            return members.iter().map(of).fold(0, u64::saturating_add);
        };
        let places = self.places(at, members, u64::MAX);
        let most = if level.spread.required { ceiling(level.spread, &places) } else { u64::MAX };
        let held = |it: &Place<'a>| if it.exempt { it.room } else { it.room.min(most) };
        places.iter().map(held).fold(0, u64::saturating_add)
    }
}

/// What it may have, whatever its weight.
fn bound(slot: &Slot<'_>) -> u64 {
    let most = slot.max.unwrap_or(u64::MAX).min(slot.capacity.unwrap_or(u64::MAX));
    if slot.frozen { most.min(slot.current) } else { most }
}

/// Federation knows no clusters that keep: such a one has a minimum and room of what it has.
fn held(slot: Slot<'_>) -> Slot<'_> {
    if !slot.frozen {
        return slot;
    }
    let keeps = bound(&slot);
    Slot { min: keeps, max: Some(keeps), capacity: None, ..slot }
}

/// Of too many places, those that have some already, then those with most room.
fn keep_best(places: &mut Vec<Place<'_>>, most: usize, total: u64) {
    if places.len() <= most {
        return;
    }
    let order = |it: &Place<'_>| (it.slot.current.min(total), it.room.min(total));
    let better = |a: &Place<'_>, b: &Place<'_>| {
        order(b).cmp(&order(a)).then(a.slot.rank.cmp(&b.slot.rank)).then(a.slot.name.cmp(b.slot.name))
    };
    if most > 0 {
        places.select_nth_unstable_by(most - 1, better);
    }
    places.truncate(most);
    places.sort_by(|a, b| a.slot.name.cmp(b.slot.name));
}

/// The least that a place may come to have: what the smallest can hold. As for nodes, too few places count as if there
/// were an empty one.
fn highest_floor(spread: &Spread, places: &[Place<'_>]) -> u64 {
    let open = || places.iter().filter(|it| !it.exempt);
    if (open().count() as u64) < spread.min_domains {
        return 0;
    }
    open().map(|it| it.room).min().unwrap_or(0)
}

fn ceiling(spread: &Spread, places: &[Place<'_>]) -> u64 {
    highest_floor(spread, places).saturating_add(spread.max_skew)
}

/// No place can have more of `total` than leaves enough for the others to keep within the skew; and what one must have,
/// less the skew, all must. Otherwise minimums would push out what is then not given to them.
fn level_minimums(spread: &Spread, places: &mut [Place<'_>], total: u64) {
    let open = || places.iter().filter(|it| !it.exempt);
    let count = open().count() as u128;
    if count == 0 {
        return;
    }
    let (whole, skew) = (u128::from(total), u128::from(spread.max_skew));
    let shared = (whole + (count - 1) * skew) / count;
    let reachable = u64::try_from(shared.max(skew.min(whole))).unwrap_or(u64::MAX);
    let most = reachable.min(ceiling(spread, places)).min(total);
    let highest = open().map(|it| it.slot.min.min(most)).max().unwrap_or(0);
    let least = highest.saturating_sub(spread.max_skew);
    for place in places.iter_mut().filter(|it| !it.exempt) {
        place.slot.min = place.slot.min.clamp(least, most.max(least));
    }
}

/// Moves as few as are needed for no two places to differ by more than the skew; what then fits nowhere is left over.
fn level_out(spread: &Spread, places: &[Place<'_>], mut divided: Vec<u64>, total: u64) -> Vec<u64> {
    let open: Vec<usize> = (0..places.len()).filter(|at| !places[*at].exempt).collect();
    let highest = highest_floor(spread, places);
    let skew = spread.max_skew;
    let most = |at: usize, floor: u64| places[at].room.min(floor.saturating_add(skew));
    let sum = |of: &dyn Fn(usize) -> u64| open.iter().map(|at| u128::from(of(*at))).sum::<u128>();
    let wanted = sum(&|at| divided[at]).min(sum(&|at| most(at, highest)));
    let cut = |at: usize, floor: u64| divided[at].max(floor).min(most(at, floor));
    // The highest floor at which what is raised to it is no more than what is cut above it.
    let (mut floor, mut above) = (0, u128::from(highest) + 1);
    while u128::from(floor) + 1 < above {
        let middle = floor + ((above - u128::from(floor)) / 2) as u64;
        if sum(&|at| cut(at, middle)) <= wanted { floor = middle } else { above = u128::from(middle) }
    }
    // Between two floors: either what lies at the lower one is raised, or what lies above the higher one is cut more.
    let range = |at: usize| match sum(&|at| most(at, floor)) >= wanted {
        true => (cut(at, floor), most(at, floor)),
        false => ((floor + 1).min(places[at].room), cut(at, floor + 1)),
    };
    let slot = |at: &usize| {
        let (min, max) = range(*at);
        Slot { min, max: Some(max), weight: 1, ..places[*at].slot }
    };
    let slots: Vec<Slot<'_>> = open.iter().map(slot).collect();
    let levelled = fair(u64::try_from(wanted).unwrap_or(u64::MAX), &slots, true);
    open.iter().zip(levelled).for_each(|(at, share)| divided[*at] = share);
    fill_exempt(places, &mut divided, total);
    divided
}

/// What the others may not have goes to those that no constraint is on.
fn fill_exempt(places: &[Place<'_>], divided: &mut [u64], total: u64) {
    let exempt: Vec<usize> = (0..places.len()).filter(|at| places[*at].exempt).collect();
    let open = (0..places.len()).filter(|at| !places[*at].exempt).map(|at| divided[at]);
    let left = open.fold(total, u64::saturating_sub);
    let slots: Vec<Slot<'_>> =
        exempt.iter().map(|at| Slot { min: divided[*at], ..places[*at].slot }).collect();
    let filled = fair(left, &slots, true);
    exempt.into_iter().zip(filled).for_each(|(at, share)| divided[at] = share);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn spread(max_skew: u64, min_domains: u64, max_domains: Option<u64>, required: bool) -> Spread {
        Spread { key: "region".into(), max_skew, min_domains, max_domains, required, of_pods: false }
    }

    fn slots(numbers: &[(u64, Option<u64>)]) -> Vec<Slot<'static>> {
        const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
        let slot = |(name, (current, max)): (&&'static str, &(u64, Option<u64>))| Slot {
            current: *current,
            max: *max,
            ..Slot::open(name, "")
        };
        NAMES.iter().zip(numbers).map(slot).collect()
    }

    fn divide(
        total: u64,
        slots: &[Slot<'static>],
        levels: &[(&Spread, &[&'static str])],
        rebalance: bool,
    ) -> Vec<u64> {
        let levels = levels.iter().map(|(spread, places)| Level {
            spread,
            places: places.iter().map(|it| (!it.is_empty()).then_some(*it)).collect(),
        });
        let levels = levels.collect();
        let held = slots.iter().map(|slot| slot.frozen).collect();
        Divider { slots, levels, held, rebalance, algorithm: Algorithm::Fair, key: "" }.divide(total)
    }

    #[test]
    fn regions_differ_by_no_more_than_the_skew() {
        let free = [(0, None); 4];
        let regions: &[&str] = &["eu", "eu", "eu", "us"];
        type Case<'a> = (Spread, u64, &'a [(u64, Option<u64>)], &'a [u64]);
        let cases: &[Case<'_>] = &[
            (spread(1, 1, None, true), 12, &free, &[2, 2, 2, 6]),
            (spread(4, 1, None, true), 12, &free, &[3, 3, 2, 4]),
            (spread(1, 1, None, false), 12, &free, &[2, 2, 2, 6]),
            // The small region holds the other back.
            (spread(1, 1, None, true), 12, &[(0, None), (0, None), (0, None), (0, Some(2))], &[1, 1, 1, 2]),
            (spread(1, 1, None, false), 12, &[(0, None), (0, None), (0, None), (0, Some(2))], &[4, 3, 3, 2]),
            // Too few regions.
            (spread(2, 3, None, true), 12, &free, &[1, 1, 0, 2]),
            (spread(1, 1, Some(1), true), 12, &[(0, None), (0, None), (0, None), (3, None)], &[0, 0, 0, 12]),
        ];
        for (spread, total, numbers, wanted) in cases {
            let mut divided = divide(*total, &slots(numbers), &[(spread, regions)], true);
            // Which of equal ones has one more is the hash's business.
            divided[..3].sort_by(|a, b| b.cmp(a));
            assert_eq!(divided, *wanted, "{spread:?}");
        }
    }

    #[test]
    fn constraints_nest() {
        let (regions, zones) = (spread(1, 1, None, true), spread(1, 1, None, true));
        let levels: &[(&Spread, &[&str])] =
            &[(&regions, &["eu", "eu", "eu", "us"]), (&zones, &["a", "b", "b", "c"])];
        let divided = divide(12, &slots(&[(0, None); 4]), levels, true);
        assert_eq!((divided[0], divided[1] + divided[2], divided[3]), (3, 3, 6));
    }

    #[test]
    fn an_unhealthy_region_holds_nobody_back() {
        let mut slots = slots(&[(3, None), (3, None), (3, None)]);
        slots[0].frozen = true;
        let spread = spread(1, 1, None, true);
        assert_eq!(divide(30, &slots, &[(&spread, &["eu", "us", "ap"])], false)[0], 3);
        assert_eq!(divide(30, &slots, &[(&spread, &["eu", "us", "ap"])], false).iter().sum::<u64>(), 30);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_skew_is_kept_and_all_is_placed_that_can_be(
            numbers in prop::collection::vec((0..6_u64, prop::option::of(0..8_u64)), 1..=4),
            places in prop::collection::vec(prop::sample::select(vec!["x", "y", "z"]), 4),
            skew in 1..4_u64,
            total in 0..20_u64,
            rebalance: bool,
        ) {
            let slots = slots(&numbers);
            let spread = spread(skew, 1, None, true);
            let places = &places[..slots.len()];
            let divided = divide(total, &slots, &[(&spread, places)], rebalance);
            let mut held: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
            for ((share, place), slot) in divided.iter().zip(places).zip(&slots) {
                let bound = bound(slot);
                prop_assert!(*share <= bound);
                let entry = held.entry(place).or_default();
                *entry = (entry.0 + share, entry.1.saturating_add(bound));
            }
            let most = held.values().map(|it| it.0).max().unwrap_or(0);
            let least = held.values().map(|it| it.0).min().unwrap_or(0);
            prop_assert!(most - least <= skew, "{:?}", held);
            // The best there is: every place as full as the smallest allows.
            let smallest = held.values().map(|it| it.1).min().unwrap_or(0);
            let best: u64 = held.values().map(|it| it.1.min(smallest.saturating_add(skew)).min(total)).sum();
            prop_assert_eq!(divided.iter().sum::<u64>(), total.min(best), "{:?}", held);
            let mut after = slots.clone();
            after.iter_mut().zip(&divided).for_each(|(slot, it)| slot.current = *it);
            prop_assert_eq!(divide(total, &after, &[(&spread, places)], rebalance), divided);
        }
    }
}
