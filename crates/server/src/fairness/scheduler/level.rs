//! One priority level of one tenant: its share, its queues, and which of them is next.

use std::{sync::Arc, time::Duration};

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
    /// Only while somebody waits.
    queues: Queues<W>,
    /// Virtual: how much the queue that was served last had had by then.
    clock: u64,
}

/// The part of `entitled` seats that so many of all shares are worth, in 65536ths of a seat.
pub(super) fn part(entitled: u32, shares: u32, of: u32) -> u64 {
    u64::from(entitled) * u64::from(shares) * SCALE / u64::from(of.max(1))
}

impl<W> Level<W> {
    pub(super) fn new(config: LevelConfig) -> Self {
        Self { config: Some(config), held: 0, waiting: 0, queues: Queues::new(), clock: 0 }
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
    pub(super) fn least(&self, entitled: u32, of: u32) -> u32 {
        let Some(limits) = self.limits() else { return 0 };
        let kept = u64::from(100u32.saturating_sub(limits.lendable_percent));
        (part(entitled, limits.shares, of) * kept / (100 * SCALE)) as u32
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
        let queue =
            self.queues.entry(queue).or_insert_with(|| Queue { waiting: Default::default(), served: clock });
        if queue.waiting.is_empty() {
            // Who was not here before has no claim from then.
            queue.served = queue.served.max(clock);
        }
        queue.waiting.push_back(Waiting { number, width, waiter });
        self.waiting += 1;
    }

    /// The queue that has been served least, and how wide its first request is.
    pub(super) fn next(&self) -> Option<(u32, u32)> {
        let waiting = self.queues.iter().filter_map(|(at, queue)| Some((at, queue, queue.waiting.front()?)));
        let (at, _, first) = waiting.min_by_key(|(_, queue, first)| (queue.served, first.number))?;
        Some((*at, first.width))
    }

    pub(super) fn pop(&mut self, queue: u32, width: u32) -> Option<W> {
        let queue = self.queues.get_mut(&queue)?;
        let first = queue.waiting.pop_front()?;
        self.clock = self.clock.max(queue.served);
        queue.served = queue.served.saturating_add(cost(width, GUESS));
        self.waiting -= 1;
        self.clear_when_idle();
        Some(first.waiter)
    }

    pub(super) fn remove(&mut self, queue: u32, number: u64) -> Option<W> {
        let waiting = &mut self.queues.get_mut(&queue)?.waiting;
        let at = waiting.iter().position(|it| it.number == number)?;
        let gone = waiting.remove(at)?;
        self.waiting -= 1;
        self.clear_when_idle();
        Some(gone.waiter)
    }

    /// A request took so long, not as long as was guessed.
    pub(super) fn charge(&mut self, queue: u32, width: u32, took: Duration) {
        if let Some(queue) = self.queues.get_mut(&queue) {
            let known = queue.served.saturating_sub(cost(width, GUESS));
            queue.served = known.saturating_add(cost(width, took));
        }
    }

    fn clear_when_idle(&mut self) {
        if self.waiting == 0 {
            self.queues.clear();
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
