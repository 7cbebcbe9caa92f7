//! The bounds of an autoscaler, divided: each cluster's own autoscaler works within a part of them.
//!
//! Between passes the autoscalers scale by themselves; a pass moves room from clusters that do not use theirs to
//! clusters that need it, one unit of each offer at a time, and none for a while after a cluster has scaled. Always
//!
//! * in each cluster 1 ≤ min ≤ max, or it has no autoscaler,
//! * the sum of max is the whole's max,
//! * the sum of min is the whole's min, or 1 of each cluster if that is more.

use std::collections::BTreeMap;

use serde_json::Value;

use super::in_proportion;
use crate::{
    divide::{Preference, Preferences},
    fields::{count, text},
};

/// What federation v1 waits after a cluster has scaled, in seconds.
pub const WINDOW: u64 = 120;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    pub min: u64,
    pub max: u64,
}

/// An autoscaler as it is in a cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Local {
    pub bounds: Bounds,
    pub current: u64,
    pub desired: u64,
    /// How many seconds ago it scaled; `None`: never.
    pub scaled: Option<u64>,
}

impl Local {
    /// Reads an autoscaler of a cluster; `now` is in seconds since 1970.
    pub fn read(object: &Value, now: i64) -> Self {
        let min = count(object, "spec.minReplicas").unwrap_or(1);
        let scaled = machinery::schema::parse_time(text(object, "status.lastScaleTime")).ok();
        Self {
            bounds: Bounds { min, max: count(object, "spec.maxReplicas").unwrap_or(min).max(min) },
            current: count(object, "status.currentReplicas").unwrap_or(0),
            desired: count(object, "status.desiredReplicas").unwrap_or(0),
            // A clock that is ahead of ours says that it was just now.
            scaled: scaled.map(|(second, _)| u64::try_from(now.saturating_sub(second)).unwrap_or(0)),
        }
    }

    /// It has not done anything yet.
    fn is_pristine(&self) -> bool {
        self.scaled.is_none() && self.desired == 0
    }

    /// It has settled since it scaled, or never had to. (In federation v1 one that never had to gave nothing.)
    fn is_settled(&self, window: u64) -> bool {
        self.desired > 0 && self.scaled.is_none_or(|ago| ago >= window)
    }

    /// In how many seconds it will have settled; `None`: it has.
    pub fn settles_in(&self, window: u64) -> Option<u64> {
        self.scaled.filter(|ago| *ago < window).map(|ago| window - ago)
    }

    fn offers_max(&self, window: u64) -> bool {
        let Bounds { min, max } = self.bounds;
        let unused = self.desired < self.current || (self.desired == self.current && self.desired < max);
        max > min.max(1) && (self.is_pristine() || (self.is_settled(window) && unused))
    }

    fn offers_min(&self, window: u64) -> bool {
        let min = self.bounds.min;
        let at_least = self.desired == min && self.current == min;
        min > 1 && (self.is_pristine() || (self.is_settled(window) && at_least))
    }

    fn needs_max(&self, window: u64) -> bool {
        let max = self.bounds.max;
        self.is_settled(window) && self.desired == max && self.current == max
    }

    /// One more than it runs would make it the next to offer, and nothing would come to rest.
    fn can_raise_min(&self, window: u64) -> bool {
        let Bounds { min, max } = self.bounds;
        self.is_settled(window) && min < max && self.desired > min + 1
    }
}

/// The bounds of each cluster that gets an autoscaler, all clusters alike. See [`preferred`].
pub fn bounds(
    whole: Bounds,
    clusters: &BTreeMap<String, Option<Local>>,
    window: u64,
) -> BTreeMap<String, Bounds> {
    preferred(whole, clusters, window, &Preferences::even())
}

/// The bounds of each cluster that gets an autoscaler. `clusters` are those it may be in, with what they have now;
/// `window` is how long a cluster that has scaled neither gives nor takes, in seconds.
///
/// Of the preferences, `max` is the most that a cluster's maximum may be, `min` what its minimum does not fall below,
/// and what is to be shared out is so by `weight`. If all that clusters may have is less than the whole, they have that.
pub fn preferred(
    whole: Bounds,
    clusters: &BTreeMap<String, Option<Local>>,
    window: u64,
    preferences: &Preferences,
) -> BTreeMap<String, Bounds> {
    let asked = clusters.keys().map(|cluster| preferences.of(cluster).copied());
    let pass = Pass {
        clusters: clusters.values().copied().collect(),
        asked: asked.map(|asked| asked.unwrap_or(NOTHING)).collect(),
        window,
    };
    let most = whole.max.max(1).min(total(&pass.ceilings()));
    let max = pass.max(most);
    let placed = max.iter().filter(|max| **max > 0).count() as u64;
    let min = pass.min(whole.min.max(placed).min(most), &max);
    let bounds = max.into_iter().zip(min).map(|(max, min)| Bounds { min, max });
    clusters.keys().cloned().zip(bounds).filter(|(_, bounds)| bounds.max > 0).collect()
}

/// Asked for clusters that no preference is about.
const NOTHING: Preference = Preference { min: 0, max: Some(0), weight: 0 };

/// One pass over the clusters, by their place in the order of their names.
struct Pass {
    clusters: Vec<Option<Local>>,
    asked: Vec<Preference>,
    window: u64,
}

impl Pass {
    /// The places of those for which something holds.
    fn who(&self, holds: fn(&Local, u64) -> bool) -> Vec<usize> {
        let all = self.clusters.iter().enumerate();
        all.filter(|(_, local)| local.as_ref().is_some_and(|local| holds(local, self.window)))
            .map(|(at, _)| at)
            .collect()
    }

    fn ceilings(&self) -> Vec<u64> {
        self.asked.iter().map(|asked| asked.max.unwrap_or(u64::MAX)).collect()
    }

    /// Who is asked for without any weight still has the least.
    fn weights(&self) -> Vec<u64> {
        self.asked.iter().map(|asked| asked.weight.max(1)).collect()
    }

    fn max(&self, most: u64) -> Vec<u64> {
        let ceilings = self.ceilings();
        let there = self.clusters.iter().zip(&ceilings);
        let mut max: Vec<u64> =
            there.map(|(local, most)| local.map_or(0, |local| local.bounds.max.max(1)).min(*most)).collect();
        self.drop_beyond(most, &mut max);
        // The ceilings may have cut it down to the last.
        let has_more = |at: &usize| max.get(*at).is_some_and(|max| *max > 1);
        let mut offers: Vec<usize> = self.who(Local::offers_max).into_iter().filter(has_more).collect();
        let sum = total(&max);
        if sum > most {
            take_one_each(&mut max, &offers, sum - most);
            // Only those that are there have a floor: nobody is given any here.
            let floors: Vec<u64> = max.iter().map(|max| (*max).min(1)).collect();
            lower(&mut max, &floors, &self.weights(), most);
            return max;
        }
        // Those with most to spare give first.
        offers.sort_by_key(|at| std::cmp::Reverse(self.spare(*at)));
        let has_room = |max: &[u64], at: usize| max.get(at) < ceilings.get(at);
        let needs: Vec<usize> =
            self.who(Local::needs_max).into_iter().filter(|at| has_room(&max, *at)).collect();
        // Whoever would be left with what it runs would be the next to need more, and nothing would come to rest.
        let (givers, scarce): (Vec<usize>, Vec<usize>) =
            offers.into_iter().partition(|at| self.spare(*at) > 1);
        let mut givers = givers.into_iter();
        for (to, from) in needs.into_iter().zip(givers.by_ref()) {
            move_one(&mut max, from, to);
        }
        let offers = givers.chain(scarce);
        if sum < most {
            raise(&mut max, &ceilings, &self.weights(), most);
            return max;
        }
        let new: Vec<usize> = (0..max.len()).filter(|at| max.get(*at) == Some(&0)).collect();
        for (to, from) in new.iter().cycle().copied().zip(offers) {
            if has_room(&max, to) {
                move_one(&mut max, from, to);
            }
        }
        max
    }

    /// Where there are more clusters than replicas, those that run least have no autoscaler.
    fn drop_beyond(&self, most: u64, max: &mut [u64]) {
        let mut order: Vec<usize> =
            (0..max.len()).filter(|at| max.get(*at).is_some_and(|it| *it > 0)).collect();
        let used = |at: &usize| self.clusters.get(*at).copied().flatten().map_or(0, |local| local.current);
        order.sort_by_key(|at| (std::cmp::Reverse(used(at)), *at));
        let kept = usize::try_from(most).unwrap_or(usize::MAX);
        for at in order.into_iter().skip(kept) {
            if let Some(max) = max.get_mut(at) {
                *max = 0;
            }
        }
    }

    fn spare(&self, at: usize) -> u64 {
        let local = self.clusters.get(at).copied().flatten().unwrap_or_default();
        local.bounds.max.saturating_sub(local.desired.max(local.bounds.min))
    }

    fn min(&self, least: u64, max: &[u64]) -> Vec<u64> {
        let floors = self.floors(least, max);
        let there = self.clusters.iter().zip(max).zip(&floors);
        let mut min: Vec<u64> = there
            .map(|((local, max), floor)| local.map_or(1, |local| local.bounds.min).max(*floor).min(*max))
            .collect();
        let is_placed = |at: &usize| max.get(*at).is_some_and(|max| *max > 0);
        let offers: Vec<usize> = self.who(Local::offers_min).into_iter().filter(is_placed).collect();
        let sum = total(&min);
        if sum > least {
            let spare = |at: &&usize| min.get(**at) > floors.get(**at);
            let offers: Vec<usize> = offers.iter().filter(spare).copied().collect();
            take_one_each(&mut min, &offers, sum - least);
            lower(&mut min, &floors, &self.weights(), least);
        } else if sum < least {
            raise(&mut min, max, &self.weights(), least);
        } else {
            let takers: Vec<usize> = self.who(Local::can_raise_min).into_iter().filter(is_placed).collect();
            for (to, from) in takers.into_iter().zip(offers) {
                let room = min.get(to).zip(max.get(to)).is_some_and(|(min, max)| min < max);
                if room && min.get(from) > floors.get(from) {
                    move_one(&mut min, from, to);
                }
            }
        }
        min
    }

    /// What minima do not fall below: 1, and what is asked for as far as the whole reaches.
    fn floors(&self, least: u64, max: &[u64]) -> Vec<u64> {
        let mut floors: Vec<u64> = max.iter().map(|max| (*max).min(1)).collect();
        let mut left = least.saturating_sub(total(&floors));
        for ((floor, asked), max) in floors.iter_mut().zip(&self.asked).zip(max) {
            let more = asked.min.min(*max).saturating_sub(*floor).min(left);
            *floor += more;
            left -= more;
        }
        floors
    }
}

fn total(values: &[u64]) -> u64 {
    values.iter().fold(0, |sum, value| sum.saturating_add(*value))
}

fn move_one(values: &mut [u64], from: usize, to: usize) {
    let gave = values.get_mut(from).is_some_and(|from| {
        let can = *from > 0;
        *from -= u64::from(can);
        can
    });
    if let Some(to) = values.get_mut(to).filter(|_| gave) {
        *to += 1;
    }
}

/// Nobody gives the last one.
fn take_one_each(values: &mut [u64], from: &[usize], most: u64) {
    let mut left = most;
    for at in from {
        if let Some(value) = values.get_mut(*at).filter(|value| **value > 1 && left > 0) {
            *value -= 1;
            left -= 1;
        }
    }
}

/// Takes from the largest until the sum is `wanted`; nobody falls below the floor.
fn lower(values: &mut [u64], floors: &[u64], weights: &[u64], wanted: u64) {
    let cut = |level: u64, value: u64, floor: u64| value.min(level.max(floor));
    settle(values, floors, weights, wanted, cut);
}

/// Gives to the smallest until the sum is `wanted`; nobody rises above the ceiling.
fn raise(values: &mut [u64], ceilings: &[u64], weights: &[u64], wanted: u64) {
    let lift = |level: u64, value: u64, ceiling: u64| value.max(level.min(ceiling));
    settle(values, ceilings, weights, wanted, lift);
}

/// Brings all values to one level of their weights as far as `bring` lets it: the highest at which the sum is not above
/// `wanted`. What is missing then goes to those that the next level would raise, in proportion to how far it would.
fn settle(
    values: &mut [u64],
    limits: &[u64],
    weights: &[u64],
    wanted: u64,
    bring: impl Fn(u64, u64, u64) -> u64,
) {
    let at_level = |level: u64| -> Vec<u64> {
        let all = values.iter().zip(limits).zip(weights);
        all.map(|((value, limit), weight)| bring(level.saturating_mul(*weight), *value, *limit)).collect()
    };
    let (mut low, mut high) = (0, wanted);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        match total(&at_level(middle)) <= wanted {
            true => low = middle,
            false => high = middle - 1,
        }
    }
    let (settled, next) = (at_level(low), at_level(low.saturating_add(1)));
    let steps: Vec<u64> = settled.iter().zip(next).map(|(settled, next)| next - settled).collect();
    let missing = wanted.saturating_sub(total(&settled)).min(total(&steps));
    for ((value, settled), more) in values.iter_mut().zip(settled).zip(in_proportion(missing, &steps)) {
        *value = settled + more;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_local() -> impl Strategy<Value = Option<Local>> {
        let local = (0u64..12, 0u64..12, 0u64..12, 0u64..12, prop::option::of(0u64..300));
        prop::option::of(local.prop_map(|(min, more, current, desired, scaled)| Local {
            bounds: Bounds { min, max: min + more },
            current,
            desired,
            scaled,
        }))
    }

    proptest! {
        #[test]
        fn bounds_are_always_valid_and_add_up(
            min in 0u64..20, more in 0u64..20, locals in prop::collection::vec(any_local(), 1..7)
        ) {
            let whole = Bounds { min, max: (min + more).max(1) };
            let clusters: BTreeMap<String, Option<Local>> =
                locals.into_iter().enumerate().map(|(at, local)| (format!("c{at}"), local)).collect();
            let divided = bounds(whole, &clusters, WINDOW);
            for (cluster, Bounds { min, max }) in &divided {
                prop_assert!(1 <= *min && min <= max, "{cluster}: {min}..{max}");
            }
            prop_assert_eq!(divided.values().map(|it| it.max).sum::<u64>(), whole.max);
            let least = whole.min.max(divided.len() as u64);
            prop_assert_eq!(divided.values().map(|it| it.min).sum::<u64>(), least);
        }

        #[test]
        fn preferences_are_kept(
            min in 0u64..20, more in 0u64..20, locals in prop::collection::vec(any_local(), 5),
            asked in prop::collection::vec((0u64..5, prop::option::of(0u64..8), 0u64..4), 5),
        ) {
            let whole = Bounds { min, max: (min + more).max(1) };
            let name = |at: usize| format!("c{at}");
            let clusters: BTreeMap<String, Option<Local>> =
                locals.into_iter().enumerate().map(|(at, local)| (name(at), local)).collect();
            let asked: BTreeMap<String, Preference> = asked.into_iter().enumerate()
                .map(|(at, (min, max, weight))| (name(at), Preference { min, max, weight })).collect();
            let preferences = Preferences { rebalance: false, clusters: asked.clone() };
            let divided = preferred(whole, &clusters, WINDOW, &preferences);
            for (cluster, Bounds { min, max }) in &divided {
                prop_assert!(1 <= *min && min <= max, "{cluster}: {min}..{max}");
                prop_assert!(asked[cluster].max.is_none_or(|most| *max <= most), "{cluster}: {max}");
            }
            let most = asked.values().fold(0u64, |sum, it| sum.saturating_add(it.max.unwrap_or(u64::MAX)));
            let max = divided.values().map(|it| it.max).sum::<u64>();
            prop_assert_eq!(max, whole.max.min(most));
            let least = whole.min.max(divided.len() as u64).min(max);
            prop_assert_eq!(divided.values().map(|it| it.min).sum::<u64>(), least);
        }

        /// Each cluster runs what its load wants within its bounds, at once or not for as long as passes are made.
        #[test]
        fn passes_come_to_rest(
            min in 0u64..8, more in 0u64..12, loads in prop::collection::vec(1u64..6, 2..5), at_once: bool,
        ) {
            let whole = Bounds { min, max: (min + more).max(1) };
            let name = |at: usize| format!("c{at}");
            let scaled = |load: u64, bounds: Bounds| {
                let replicas = load.clamp(bounds.min, bounds.max);
                Local { bounds, current: replicas, desired: replicas, scaled: None }
            };
            let mut clusters: BTreeMap<String, Option<Local>> = (0..loads.len()).map(|at| (name(at), None)).collect();
            let mut passes = 0;
            loop {
                let divided = bounds(whole, &clusters, WINDOW);
                let before = clusters.clone();
                for (load, (cluster, local)) in loads.iter().zip(&mut clusters) {
                    *local = divided.get(cluster).map(|new| match local {
                        Some(known) if !at_once => Local { bounds: *new, ..*known },
                        _ => scaled(*load, *new),
                    });
                }
                if clusters == before {
                    break;
                }
                passes += 1;
                prop_assert!(passes <= 2 * (min + more) + 4, "{clusters:?}");
            }
        }

        #[test]
        fn a_pass_moves_at_most_one_unit_of_each_offer(
            locals in prop::collection::vec(any_local().prop_map(|it| it.unwrap_or_default()), 1..7)
        ) {
            // Valid bounds that are those of the whole already: only offers move.
            let locals: Vec<Local> = locals.into_iter().map(|mut local| {
                local.bounds.min = local.bounds.min.max(1);
                local.bounds.max = local.bounds.max.max(local.bounds.min);
                local
            }).collect();
            let whole = Bounds {
                min: locals.iter().map(|it| it.bounds.min).sum(), max: locals.iter().map(|it| it.bounds.max).sum(),
            };
            let clusters: BTreeMap<String, Option<Local>> =
                locals.iter().enumerate().map(|(at, local)| (format!("c{at}"), Some(*local))).collect();
            for ((_, new), old) in bounds(whole, &clusters, WINDOW).iter().zip(&locals) {
                prop_assert!(new.max.abs_diff(old.bounds.max) <= 1);
                prop_assert!(new.min.abs_diff(old.bounds.min) <= 1);
                if old.scaled.is_some_and(|ago| ago < WINDOW) {
                    prop_assert_eq!(*new, old.bounds, "it has scaled just now");
                }
            }
        }
    }

    #[test]
    fn preferences_bound_and_weigh_what_clusters_get() {
        let asked = |min, max, weight| Preference { min, max, weight };
        let divide = |whole, asked: &[(&str, Preference)]| -> Vec<(String, u64, u64)> {
            let clusters = ["a", "b", "c"].map(|cluster| (cluster.to_owned(), None)).into();
            let asked = asked.iter().map(|(cluster, asked)| ((*cluster).to_owned(), *asked)).collect();
            let preferences = Preferences { rebalance: false, clusters: asked };
            let divided = preferred(whole, &clusters, WINDOW, &preferences);
            divided.into_iter().map(|(cluster, it)| (cluster, it.min, it.max)).collect()
        };
        let expect = |list: &[(&str, u64, u64)]| -> Vec<(String, u64, u64)> {
            list.iter().map(|(cluster, min, max)| ((*cluster).to_owned(), *min, *max)).collect()
        };
        let whole = Bounds { min: 4, max: 12 };
        assert_eq!(
            divide(whole, &[("a", asked(0, None, 2)), ("b", asked(0, None, 1))]),
            expect(&[("a", 3, 8), ("b", 1, 4)]),
            "by weight, and nothing where nothing is asked"
        );
        assert_eq!(
            divide(whole, &[("a", asked(0, Some(2), 1)), ("*", asked(0, None, 1))]),
            expect(&[("a", 2, 2), ("b", 1, 5), ("c", 1, 5)]),
            "no more than the most"
        );
        assert_eq!(
            divide(whole, &[("c", asked(2, None, 1)), ("*", asked(0, None, 1))]),
            expect(&[("a", 1, 4), ("b", 1, 4), ("c", 2, 4)]),
            "no less than the least"
        );
        assert_eq!(
            divide(whole, &[("*", asked(0, Some(3), 1))]),
            expect(&[("a", 2, 3), ("b", 1, 3), ("c", 1, 3)]),
            "if they may not have all of it, what they may"
        );
    }

    #[test]
    fn equal_weights_are_equal_however_large() {
        let asked = |weight| Preference { weight, ..Preference::default() };
        for (weights, wanted) in
            [([100, 100], [5, 5]), ([3, 3], [5, 5]), ([300, 100], [8, 2]), ([1, 4], [2, 8])]
        {
            let [a, b] = weights.map(asked);
            let clusters = BTreeMap::from([("a".to_owned(), a), ("b".to_owned(), b)]);
            let nothing = clusters.keys().map(|name| (name.clone(), None)).collect();
            let preferences = Preferences { rebalance: false, clusters };
            let divided = preferred(Bounds { min: 1, max: 10 }, &nothing, WINDOW, &preferences);
            assert_eq!(divided.values().map(|it| it.max).collect::<Vec<_>>(), wanted, "{weights:?}");
        }
    }

    #[test]
    fn nobody_gives_the_last_unit_of_what_is_cut() {
        let asked = BTreeMap::from([
            ("a".to_owned(), Preference { max: Some(1), weight: 1, min: 0 }),
            ("b".to_owned(), Preference { max: Some(4), weight: 1, min: 0 }),
            ("c".to_owned(), Preference { weight: 1, ..Preference::default() }),
        ]);
        let preferences = Preferences { rebalance: false, clusters: asked };
        let of = |max| Some(Local { bounds: Bounds { min: 1, max }, ..Local::default() });
        let clusters =
            [("a", of(4)), ("b", of(4)), ("c", None)].map(|(name, it)| (name.to_owned(), it)).into();
        let divided = preferred(Bounds { min: 1, max: 5 }, &clusters, WINDOW, &preferences);
        assert_eq!(divided.values().map(|it| it.max).collect::<Vec<_>>(), [1, 3, 1]);
    }

    #[test]
    fn an_autoscaler_is_read_as_its_cluster_shows_it() {
        let object = serde_json::json!({
            "spec": {"maxReplicas": 7},
            "status": {"currentReplicas": 2, "desiredReplicas": 3, "lastScaleTime": "1970-01-01T00:01:00Z"},
        });
        let read = |now| Local::read(&object, now);
        let expected = Local { bounds: Bounds { min: 1, max: 7 }, current: 2, desired: 3, scaled: Some(40) };
        assert_eq!(read(100), expected);
        assert_eq!(read(10).scaled, Some(0), "its clock is ahead of ours");
        assert_eq!(
            Local::read(&Value::Null, 0),
            Local { bounds: Bounds { min: 1, max: 1 }, ..Local::default() }
        );
    }

    #[test]
    fn huge_bounds_take_no_longer() {
        let clusters = (0..1000).map(|at| (format!("c{at}"), None)).collect();
        let divided = bounds(Bounds { min: 1 << 30, max: 1 << 31 }, &clusters, WINDOW);
        assert_eq!(divided.values().map(|it| it.max).sum::<u64>(), 1 << 31);
        assert_eq!(divided.values().map(|it| it.min).sum::<u64>(), 1 << 30);
    }
}
