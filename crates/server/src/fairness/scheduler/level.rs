//! One priority level of one tenant: its share, its queues, and which of them is next.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use smallvec::SmallVec;

use super::{Queue, Queues, WIDEST_PERCENT, Waiting};

/// Parts of seats are counted in this many.
pub(super) const SCALE: u64 = 1 << 16;
/// A request is taken to run this long until it is known better; upstream's guess.
const GUESS: Duration = Duration::from_millis(3);
/// Requests of an exempt level that find no seat for their tenant wait in one queue of this length.
const EXEMPT_QUEUE: u32 = 128;
/// More queues than this per flow make no difference.
const MAX_HAND: u32 = 16;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LevelConfig {
    pub name: Arc<str>,
    /// `None`: exempt. It has no limit but its tenant's.
    pub limits: Option<Shares>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares {
    pub shares: u32,
    /// How much of its part it lends when that is idle.
    pub lendable_percent: u32,
    /// How much more than its part it may borrow; `None`: whatever is lent.
    pub borrowing_percent: Option<u32>,
    /// `None`: requests do not wait.
    pub queuing: Option<Queuing>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queuing {
    pub queues: u32,
    /// Queues that a flow may use.
    pub hand: u32,
    /// Requests in one queue.
    pub length: u32,
}

pub(super) struct Level<W> {
    /// `None`: it is gone, and its last requests end.
    pub(super) config: Option<LevelConfig>,
    pub(super) held: u32,
    pub(super) waiting: usize,
    /// Only while somebody waits, and then only those that others would have to be fair to.
    queues: Queues<W>,
    /// Queues with somebody in them, by who is next: what they have had, and the number of their first request.
    order: BTreeSet<(u64, u64, u32)>,
    /// Queues with nobody in them, by what they have had.
    emptied: BTreeSet<(u64, u32)>,
    /// Virtual: how much the queue that was served last had had by then.
    clock: u64,
}

/// The part of `entitled` seats that so many of all shares are worth, in 65536ths of a seat.
pub(super) fn part(entitled: u32, shares: u32, of: u32) -> u64 {
    u64::from(entitled) * u64::from(shares) * SCALE / u64::from(of.max(1))
}

impl<W> Level<W> {
    pub(super) fn new(config: LevelConfig) -> Self {
        Self {
            config: Some(config),
            held: 0,
            waiting: 0,
            queues: Queues::new(),
            order: BTreeSet::new(),
            emptied: BTreeSet::new(),
            clock: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.config.is_none() && self.held == 0 && self.waiting == 0
    }

    fn limits(&self) -> Option<Shares> {
        self.config.as_ref().and_then(|config| config.limits)
    }

    /// What is gone has its last requests end like those of an exempt level: soon.
    fn is_exempt(&self) -> bool {
        self.limits().is_none()
    }

    pub(super) fn shares(&self) -> u32 {
        self.limits().map_or(0, |limits| limits.shares)
    }

    /// Its part of what the tenant may hold, in whole seats.
    fn nominal(&self, entitled: u32, of: u32) -> u32 {
        part(entitled, self.shares(), of).div_ceil(SCALE) as u32
    }

    /// What stays its own when it lends.
    fn least(&self, entitled: u32, of: u32) -> u32 {
        let Some(limits) = self.limits() else { return 0 };
        let kept = u64::from(100u32.saturating_sub(limits.lendable_percent));
        (part(entitled, limits.shares, of) * kept / (100 * SCALE)) as u32
    }

    /// What it holds, or does not lend to others.
    pub(super) fn kept(&self, entitled: u32, of: u32) -> u64 {
        u64::from(self.held.max(self.least(entitled, of)))
    }

    /// How many seats a request takes that is worth so many: wide ones must not take the whole level.
    pub(super) fn width(&self, wanted: u32, entitled: u32, of: u32) -> u32 {
        let widest = match self.is_exempt() {
            true => entitled,
            false => self.nominal(entitled, of),
        };
        wanted.clamp(1, (u64::from(widest) * u64::from(WIDEST_PERCENT) / 100).max(1) as u32)
    }

    /// Whether `width` more is within its own part. A level with a share is sure of one request.
    pub(super) fn is_sure_of(&self, width: u32, entitled: u32, of: u32) -> bool {
        self.is_exempt()
            || (self.held == 0 && self.shares() > 0)
            || self.held + width <= self.nominal(entitled, of)
    }

    pub(super) fn may_borrow(&self, width: u32, entitled: u32, of: u32) -> bool {
        let Some(limits) = self.limits() else { return true };
        let Some(percent) = limits.borrowing_percent else { return true };
        let nominal = u64::from(self.nominal(entitled, of));
        u64::from(self.held) + u64::from(width) <= nominal + nominal * u64::from(percent) / 100
    }

    /// How much it holds for its shares; the least goes first, and exempt before all.
    pub(super) fn load(&self) -> u64 {
        match self.limits() {
            None => 0,
            Some(limits) => 1 + u64::from(self.held) * SCALE / u64::from(limits.shares.max(1)),
        }
    }

    /// The queue in which a request of `flow` would wait: of those dealt to it, the shortest. `None`: it may not wait.
    pub(super) fn queue_for(&self, flow: u64) -> Option<u32> {
        let Some(limits) = self.limits() else { return Some(0) };
        let queuing = limits.queuing?;
        let length = |queue: &u32| self.queues.get(queue).map_or(0, |it| it.waiting.len());
        deal(flow, queuing.queues, queuing.hand).into_iter().min_by_key(length)
    }

    pub(super) fn is_full(&self, queue: u32) -> bool {
        let length = self.limits().and_then(|it| it.queuing).map_or(EXEMPT_QUEUE, |it| it.length);
        self.queues.get(&queue).is_some_and(|it| it.waiting.len() >= length as usize)
    }

    pub(super) fn push(&mut self, queue: u32, number: u64, width: u32, waiter: W) {
        let clock = self.clock;
        self.change(queue, |queue| {
            if queue.waiting.is_empty() {
                // Who was not here before has no claim from then.
                queue.served = queue.served.max(clock);
            }
            queue.waiting.push_back(Waiting { number, width, waiter });
        });
        self.waiting += 1;
    }

    /// The queue that has been served least, and how wide its first request is.
    pub(super) fn next(&self) -> Option<(u32, u32)> {
        let (_, _, at) = self.order.first()?;
        Some((*at, self.queues.get(at)?.waiting.front()?.width))
    }

    pub(super) fn pop(&mut self, queue: u32, width: u32) -> Option<W> {
        self.clock = self.clock.max(self.queues.get(&queue)?.served);
        let first = self.change(queue, |queue| {
            let first = queue.waiting.pop_front()?;
            queue.served = queue.served.saturating_add(cost(width, GUESS));
            queue.running += 1;
            Some(first)
        })?;
        self.waiting -= 1;
        self.clear_away();
        Some(first.waiter)
    }

    pub(super) fn remove(&mut self, queue: u32, number: u64) -> Option<W> {
        self.queues.get(&queue)?;
        let gone = self.change(queue, |queue| {
            let at = queue.waiting.iter().position(|it| it.number == number)?;
            queue.waiting.remove(at)
        })?;
        self.waiting -= 1;
        self.clear_away();
        Some(gone.waiter)
    }

    /// A request took so long, not as long as was guessed.
    pub(super) fn charge(&mut self, queue: u32, width: u32, took: Duration) {
        if self.queues.contains_key(&queue) {
            self.change(queue, |queue| {
                let known = queue.served.saturating_sub(cost(width, GUESS));
                queue.served = known.saturating_add(cost(width, took));
                queue.running = queue.running.saturating_sub(1);
            });
            self.clear_away();
        }
    }

    /// Changes a queue, which is made if there is none, and keeps its place among the others.
    fn change<T>(&mut self, at: u32, change: impl FnOnce(&mut Queue<W>) -> T) -> T {
        let clock = self.clock;
        let queue = self.queues.entry(at).or_insert_with(|| Queue::new(clock));
        match queue.waiting.front() {
            Some(first) => self.order.remove(&(queue.served, first.number, at)),
            None => self.emptied.remove(&(queue.served, at)),
        };
        let changed = change(queue);
        match queue.waiting.front() {
            Some(first) => self.order.insert((queue.served, first.number, at)),
            // While its requests run, it is not known yet what it has had.
            None if queue.running > 0 => false,
            None => self.emptied.insert((queue.served, at)),
        };
        changed
    }

    /// Forgets queues that nobody waits in, and that had no more than they would be counted as having had if they came
    /// again.
    fn clear_away(&mut self) {
        if self.waiting == 0 {
            self.queues.clear();
            self.order.clear();
            self.emptied.clear();
        }
        while let Some((served, at)) =
            self.emptied.first().copied().filter(|(served, _)| *served <= self.clock)
        {
            self.emptied.remove(&(served, at));
            self.queues.remove(&at);
        }
    }
}

fn cost(width: u32, took: Duration) -> u64 {
    u64::from(width).saturating_mul(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX))
}

/// Deals `hand` different of `queues` cards, always the same ones for the same flow.
fn deal(flow: u64, queues: u32, hand: u32) -> SmallVec<[u32; MAX_HAND as usize]> {
    let queues = queues.max(1);
    let mut rest = flow;
    let mut dealt: SmallVec<[u32; MAX_HAND as usize]> = SmallVec::new();
    for round in 0..hand.clamp(1, queues.min(MAX_HAND)) {
        let left = u64::from(queues - round);
        let mut card = (rest % left) as u32;
        rest /= left;
        // The card's number is among those left: count over those that are gone, lowest first.
        let mut gone = dealt.clone();
        gone.sort_unstable();
        for taken in gone {
            if taken <= card {
                card += 1;
            }
        }
        dealt.push(card);
    }
    dealt
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_go_when_they_are_empty_though_others_are_not() {
        let queuing = Queuing { queues: 1000, hand: 1, length: 100_000 };
        let shares =
            Shares { shares: 1, lendable_percent: 0, borrowing_percent: None, queuing: Some(queuing) };
        let mut level = Level::new(LevelConfig { name: "a".into(), limits: Some(shares) });
        // Somebody always waits in queue 0, so that the level is never idle.
        for number in 0..10_000 {
            level.push(0, number, 1, ());
        }
        for number in 10_000..12_000 {
            let queue = 1 + number as u32 % 999;
            level.push(queue, number, 1, ());
            while let Some((next, width)) = level.next() {
                level.pop(next, width);
                level.charge(next, width, GUESS);
                if next == queue {
                    break;
                }
            }
        }
        assert!(level.waiting > 0);
        assert!(level.queues.len() <= 3, "{}", level.queues.len());
        assert_eq!(level.order.len() + level.emptied.len(), level.queues.len());
    }

    #[test]
    fn who_comes_again_and_again_is_counted_as_who_waits_all_the_time() {
        let queuing = Queuing { queues: 2, hand: 1, length: 1000 };
        let shares =
            Shares { shares: 1, lendable_percent: 0, borrowing_percent: None, queuing: Some(queuing) };
        let mut level = Level::new(LevelConfig { name: "a".into(), limits: Some(shares) });
        for number in 0..200 {
            level.push(0, number, 1, ());
        }
        // Queue 1 never has more than one request, and each takes nine times as long as those of queue 0.
        let (mut served, mut number) = ([0, 0], 1000);
        for _ in 0..100 {
            if level.queues.get(&1).is_none_or(|it| it.waiting.is_empty()) {
                level.push(1, number, 1, ());
                number += 1;
            }
            let (queue, width) = level.next().unwrap();
            level.pop(queue, width);
            level.charge(queue, width, GUESS * if queue == 1 { 9 } else { 1 });
            served[queue as usize] += 1;
        }
        assert!((85..=92).contains(&served[0]), "{served:?}");
    }

    #[test]
    fn hands_are_of_different_queues_and_spread_over_all() {
        let mut uses = [0; 64];
        for flow in 0..10_000u64 {
            let flow = flow.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let mut hand = deal(flow, 64, 6);
            assert_eq!(hand, deal(flow, 64, 6));
            for queue in &hand {
                uses[*queue as usize] += 1;
            }
            hand.sort_unstable();
            hand.dedup();
            assert_eq!(hand.len(), 6);
        }
        let (least, most) = (uses.iter().min().unwrap(), uses.iter().max().unwrap());
        assert!(*least > 800 && *most < 1100, "{least} {most}");
    }

    #[test]
    fn odd_decks_deal_too() {
        for (queues, hand, expected) in [(0, 0, 1), (1, 5, 1), (4, 9, 4), (1000, 1000, 16)] {
            assert_eq!(deal(7, queues, hand).len(), expected, "{queues} {hand}");
        }
    }
}
