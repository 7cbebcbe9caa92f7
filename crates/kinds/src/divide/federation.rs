//! The division of federation v1 and KubeFed, which are the same: minimums, then what runs, then rounds of shares that
//! are rounded up.

use std::cmp::Reverse;

use super::Slot;

/// Rounds times clusters. Rounds that only write off what was kept are taken at once, so that nothing but numbers made
/// for it comes near; then the rest of what was kept is written off.
const MOST_STEPS: usize = 4_000_000;

/// By the place of the slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Federated {
    pub replicas: Vec<u64>,
    /// To be asked for beyond what the cluster can hold.
    pub overflow: Vec<u64>,
}

struct Planner<'s, 'a> {
    slots: &'s [Slot<'a>],
    plan: Vec<u64>,
    overflow: Vec<u64>,
    /// What a cluster got because it runs there already, and has not been set against its shares yet.
    kept: Vec<u64>,
    /// Not given out yet. It grows when a maximum below the minimum takes back what the minimum gave.
    remaining: u64,
}

/// What one round did.
#[derive(Default)]
struct Round {
    grew: bool,
    /// The shares that were set against what was kept.
    used: Vec<(usize, u64)>,
}

/// Divides `total`; with `rebalance`, as if nothing ran anywhere.
pub fn federation(total: u64, slots: &[Slot<'_>], rebalance: bool) -> Federated {
    let mut order: Vec<usize> = (0..slots.len()).collect();
    let place = |slot: &Slot<'_>| (Reverse(slot.weight), slot.rank);
    order.sort_by(|a, b| {
        let (a, b) = (&slots[*a], &slots[*b]);
        place(a).cmp(&place(b)).then_with(|| a.name.cmp(b.name))
    });
    let zeros = vec![0; slots.len()];
    let mut planner =
        Planner { slots, plan: zeros.clone(), overflow: zeros.clone(), kept: zeros, remaining: total };
    planner.give_minimums(&order);
    if !rebalance {
        planner.keep_what_runs(&order);
    }
    planner.share_out(order);
    if !rebalance {
        planner.overflow.iter_mut().for_each(|over| *over = (*over).min(planner.remaining));
    }
    Federated { replicas: planner.plan, overflow: planner.overflow }
}

impl Planner<'_, '_> {
    /// Whatever the maximum is.
    fn give_minimums(&mut self, order: &[usize]) {
        for &at in order {
            let slot = &self.slots[at];
            let min = slot.min.min(self.remaining).min(slot.capacity.unwrap_or(u64::MAX));
            self.plan[at] = min;
            self.remaining -= min;
        }
    }

    fn keep_what_runs(&mut self, order: &[usize]) {
        for &at in order {
            let slot = &self.slots[at];
            let most = slot.max.unwrap_or(u64::MAX).min(slot.capacity.unwrap_or(u64::MAX));
            let extra = slot.current.min(most).saturating_sub(self.plan[at]).min(self.remaining);
            self.plan[at] += extra;
            self.kept[at] = extra;
            self.remaining -= extra;
        }
    }

    fn share_out(&mut self, mut order: Vec<usize>) {
        let mut steps = 0;
        while self.remaining > 0 {
            let (before, clusters) = (self.remaining, order.len());
            let round = self.round(&mut order);
            if !round.grew && round.used.is_empty() {
                return;
            }
            if (before, clusters) == (self.remaining, order.len()) {
                self.skip_rounds(&round.used);
            }
            steps += order.len() + 1;
            if steps > MOST_STEPS {
                self.kept.fill(0);
            }
        }
    }

    fn round(&mut self, order: &mut Vec<usize>) -> Round {
        let mut round = Round::default();
        let sum: u128 = order.iter().map(|at| u128::from(self.slots[*at].weight)).sum();
        if sum == 0 {
            return round;
        }
        let to_share = u128::from(self.remaining);
        order.retain(|&at| {
            let slot = &self.slots[at];
            let share = (to_share * u128::from(slot.weight)).div_ceil(sum);
            let share = u64::try_from(share).unwrap_or(u64::MAX).min(self.remaining);
            let used = share.min(self.kept[at]);
            if used > 0 {
                self.kept[at] -= used;
                round.used.push((at, used));
            }
            self.add(at, share - used, &mut round)
        });
        round
    }

    /// Whether the cluster takes part in the next round.
    fn add(&mut self, at: usize, share: u64, round: &mut Round) -> bool {
        let (slot, before) = (&self.slots[at], self.plan[at]);
        let mut total = before.saturating_add(share);
        let mut full = false;
        if let Some(max) = slot.max.filter(|max| total > *max) {
            (total, full) = (max, true);
        }
        if let Some(capacity) = slot.capacity.filter(|capacity| total > *capacity) {
            self.overflow[at] = total - capacity;
            (total, full) = (capacity, true);
        }
        self.remaining = (self.remaining.saturating_add(before)).saturating_sub(total);
        self.plan[at] = total;
        round.grew |= total > before;
        !full
    }

    /// While nothing else changes, the next rounds use the same: takes as many of them as what was kept allows.
    fn skip_rounds(&mut self, used: &[(usize, u64)]) {
        let rounds = used.iter().map(|(at, used)| self.kept[*at] / used).min().unwrap_or(0);
        for (at, used) in used {
            self.kept[*at] -= used * rounds;
        }
    }
}
