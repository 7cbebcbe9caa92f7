//! The division of our own: exact, and with as few replicas moved as the bounds allow.
//!
//! Wanted is the level at which every cluster has its weight's worth, cut to its bounds, and all have the total: water
//! poured into vessels. What is left by rounding goes to the largest remainders.
//!
//! Without `rebalance`, what runs is one more bound: a total that grows is poured on top of it, one that shrinks is taken
//! from those that stand out most.

use std::cmp::Reverse;

use super::Slot;

/// Larger weights count as this, so that products fit.
const MOST_WEIGHT: u64 = 1 << 40;

/// A cluster while it is filled.
struct Vessel<'s, 'a> {
    slot: &'s Slot<'a>,
    weight: u64,
    low: u64,
    high: u64,
    /// Its low is what it has, not what it asks for.
    keeps: bool,
    /// What it gets.
    level: u64,
}

/// Divides `total`, by the place of the slot. The sum is the total, or what the bounds can hold if that is less.
pub fn fair(total: u64, slots: &[Slot<'_>], rebalance: bool) -> Vec<u64> {
    let mut vessels: Vec<Vessel<'_, '_>> =
        slots.iter().map(|slot| Vessel::of(slot, total, rebalance)).collect();
    let lows: u128 = vessels.iter().map(|it| u128::from(it.low)).sum();
    if lows > u128::from(total) {
        share_minimums(&mut vessels, total);
    }
    if !rebalance {
        keep_what_runs(&mut vessels, total);
    }
    pour(&mut vessels, total);
    vessels.into_iter().map(|vessel| vessel.level).collect()
}

impl<'s, 'a> Vessel<'s, 'a> {
    fn of(slot: &'s Slot<'a>, total: u64, rebalance: bool) -> Self {
        let bound = slot.max.unwrap_or(u64::MAX).min(slot.capacity.unwrap_or(u64::MAX));
        let weight = slot.weight.min(MOST_WEIGHT);
        let mut high = bound.min(total);
        if slot.frozen {
            high = high.min(slot.current);
        }
        let mut low = slot.min.min(high);
        match (rebalance, slot.frozen) {
            (true, true) => low = high,
            // Who has no weight wants its minimum alone, beside what it has.
            (true, false) if weight == 0 => high = low,
            (false, _) if weight == 0 => high = high.min(slot.current.max(low)),
            _ => {}
        }
        Self { slot, weight, low, high, keeps: rebalance && slot.frozen, level: 0 }
    }

    fn running(&self) -> u64 {
        self.slot.current.clamp(self.low, self.high)
    }
}

/// The minimums are more than there is: they become the most that anybody gets. What is kept comes first, and if that
/// is more than there is already, it is all.
fn share_minimums(vessels: &mut [Vessel<'_, '_>], total: u64) {
    let kept: u128 = vessels.iter().filter(|it| it.keeps).map(|it| u128::from(it.low)).sum();
    let is_too_much = kept > u128::from(total);
    for vessel in vessels {
        (vessel.high, vessel.low) = match (vessel.keeps, is_too_much) {
            (true, false) => continue,
            (false, true) => (0, 0),
            _ => (vessel.low, 0),
        };
        vessel.weight = vessel.weight.max(1);
    }
}

/// More than runs is poured on top of it; less is what is left of it.
fn keep_what_runs(vessels: &mut [Vessel<'_, '_>], total: u64) {
    let running: u128 = vessels.iter().map(|it| u128::from(it.running())).sum();
    let grows = running <= u128::from(total);
    for vessel in vessels {
        let running = vessel.running();
        if grows {
            vessel.low = running;
        } else {
            vessel.high = running;
        }
    }
}

/// Sets all levels. Those without weight get more than their low only if the others are full.
fn pour(vessels: &mut [Vessel<'_, '_>], total: u64) {
    let most: u128 = vessels.iter().map(|it| u128::from(it.high)).sum();
    let total = u128::from(total).min(most);
    let weighty: u128 =
        vessels.iter().map(|it| u128::from(if it.weight > 0 { it.high } else { it.low })).sum();
    let others_are_full = total > weighty;
    let mut left = total;
    for vessel in vessels.iter_mut() {
        vessel.level = match (vessel.weight > 0, others_are_full) {
            (true, true) => vessel.high,
            (false, false) => vessel.low,
            _ => continue,
        };
        left -= u128::from(vessel.level);
    }
    let mut open: Vec<&mut Vessel<'_, '_>> =
        vessels.iter_mut().filter(|it| (it.weight > 0) != others_are_full).collect();
    if others_are_full {
        open.iter_mut().for_each(|it| it.weight = 1);
    }
    fill(&mut open, left);
}

/// `left` lies between the sum of lows and the sum of highs.
fn fill(open: &mut Vec<&mut Vessel<'_, '_>>, left: u128) {
    let (water, weight) = match flat(open, left) {
        Some(found) => found,
        None => find_level(open, left),
    };
    if weight == 0 {
        return;
    }
    let share = |vessel: &Vessel<'_, '_>| u128::from(vessel.weight) * water;
    open.retain_mut(|vessel| {
        let exact = share(vessel);
        // Where the level is below its low or above its high, that is what it gets.
        let is_low = exact <= u128::from(vessel.low) * weight;
        let is_high = exact >= u128::from(vessel.high) * weight;
        vessel.level = match (is_low, is_high) {
            (true, _) => vessel.low,
            (_, true) => vessel.high,
            _ => (exact / weight) as u64,
        };
        !is_low && !is_high
    });
    let given: u128 = open.iter().map(|it| share(it) / weight).sum();
    let missing = open.iter().map(|it| share(it) % weight).sum::<u128>() / weight;
    debug_assert!(given + missing <= left);
    let missing = usize::try_from(missing).unwrap_or(usize::MAX);
    if missing > 0 {
        // The largest remainders first; of equal ones those that run one there already.
        open.sort_by_cached_key(|it| {
            (Reverse(share(it) % weight), it.slot.current <= it.level, it.slot.rank, it.slot.name)
        });
        open.iter_mut().take(missing).for_each(|it| it.level += 1);
    }
}

/// The level `water / weight` if nobody's bound is in its way.
fn flat(open: &[&mut Vessel<'_, '_>], left: u128) -> Option<(u128, u128)> {
    let weight: u128 = open.iter().map(|it| u128::from(it.weight)).sum();
    let is_free = |it: &&mut Vessel<'_, '_>| {
        let exact = u128::from(it.weight) * left;
        exact >= u128::from(it.low) * weight && exact <= u128::from(it.high) * weight
    };
    open.iter().all(is_free).then_some((left, weight))
}

/// A vessel begins to fill, or is full, when the level is `amount / weight`.
struct Turn {
    amount: u64,
    weight: u64,
    fills: bool,
}

/// The level `water / weight` by going up from one turn to the next.
fn find_level(open: &[&mut Vessel<'_, '_>], left: u128) -> (u128, u128) {
    let mut turns: Vec<Turn> = Vec::with_capacity(open.len() * 2);
    for vessel in open.iter().filter(|it| it.low < it.high) {
        turns.push(Turn { amount: vessel.low, weight: vessel.weight, fills: true });
        turns.push(Turn { amount: vessel.high, weight: vessel.weight, fills: false });
    }
    let height = |a: &Turn, b: &Turn| {
        let (a, b) =
            (u128::from(a.amount) * u128::from(b.weight), u128::from(b.amount) * u128::from(a.weight));
        a.cmp(&b)
    };
    turns.sort_unstable_by(|a, b| height(a, b).then(b.fills.cmp(&a.fills)));
    let mut settled: u128 = open.iter().map(|it| u128::from(it.low)).sum();
    let mut weight: u128 = 0;
    for turn in &turns {
        let water = left.saturating_sub(settled);
        if weight > 0 && weight * u128::from(turn.amount) >= water * u128::from(turn.weight) {
            return (water, weight);
        }
        if turn.fills {
            settled -= u128::from(turn.amount);
            weight += u128::from(turn.weight);
        } else {
            settled += u128::from(turn.amount);
            weight -= u128::from(turn.weight);
        }
    }
    // All bounds are one number each: any level does.
    (0, 1)
}
