//! Who may go on, who waits and who is turned away: a state machine without clock or tasks.
//!
//! ```text
//!   seats of the process ──> tenants: each as many as the others,     ──> levels: by their shares,  ──> flows: by what
//!                            and some always free for a newcomer          lending what is idle          they have had
//! ```
//!
//! A *tenant* is a workspace. What it may hold follows from what is free: `FAIRNESS` times as many seats as are free,
//! counting its own as free. A tenant alone gets almost all; every further one gets as much as any other; and because
//! the last seats are never given to those who hold many, one who comes late does not wait for others to finish.
//!
//! Inside, a *level* is sure of its share of what the tenant may hold now, may take what others lend and do not use,
//! and keeps its waiting requests in queues. A *flow* always gets the same few of these queues, and goes into the
//! shortest of them, so that a flow that sends too much fills its own queues and hardly anybody else's. The queue
//! that has been served least is served next.

use std::{
    cell::LazyCell,
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    ops::Deref,
    sync::Arc,
    time::Duration,
};

mod level;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

use level::Level;
pub use level::{LevelConfig, Queuing, Shares};

/// A tenant may hold this many times the seats that are free.
const FAIRNESS: u32 = 8;
/// For every seat so many requests may wait, in all.
const WAITING_PER_SEAT: usize = 20;
/// With those that are gone while somebody still waits in them, a tenant has so many levels at most. What goes beyond
/// shares the last one.
const MAX_LEVELS: usize = 256;
/// No request takes more of its level's share than this part, in percent.
const WIDEST_PERCENT: u32 = 15;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantId(usize);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LevelId(usize);

/// The right to go on; must be given back with [`Scheduler::finish`].
#[derive(Debug, PartialEq, Eq)]
pub struct Seat {
    tenant: TenantId,
    level: LevelId,
    /// Whose account it is on, if it waited.
    queue: Option<u32>,
    width: u32,
    since: Duration,
}

impl Seat {
    /// How many it counts as.
    pub fn width(&self) -> u32 {
        self.width
    }
}

/// A place in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    tenant: TenantId,
    level: LevelId,
    queue: u32,
    number: u64,
}

/// Why a request is turned away, in the words of the metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The level does not let requests wait.
    ConcurrencyLimit,
    QueueFull,
    TimeOut,
}

impl Refusal {
    pub fn as_str(self) -> &'static str {
        match self {
            Refusal::ConcurrencyLimit => "concurrency-limit",
            Refusal::QueueFull => "queue-full",
            Refusal::TimeOut => "time-out",
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub enum Decision {
    Admit(Seat),
    Wait(Ticket),
    Reject(Refusal),
}

/// Those who waited and may go on now.
pub type Woken<W> = Vec<(W, Seat)>;

/// What a request is counted as.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    pub tenant: TenantId,
    pub level: LevelId,
    /// The same for requests that are to share alike.
    pub flow: u64,
    /// How many seats its work is worth.
    pub width: u32,
}

/// `W` is how a request that waits is told.
pub struct Scheduler<W> {
    total: u32,
    free: u32,
    waiting: usize,
    tickets: u64,
    tenants: Vec<Option<Tenant<W>>>,
    vacant: Vec<usize>,
    /// Tenants with a request that only waits for seats: fewest held first, then who was served longest ago.
    hungry: BTreeSet<(u32, u64, TenantId)>,
}

struct Tenant<W> {
    held: u32,
    waiting: usize,
    levels: Vec<Level<W>>,
    /// Of all levels together.
    shares: u32,
    /// When it was served last, counted in services.
    served: u64,
    /// Its entry in `hungry`.
    entry: Option<(u32, u64, TenantId)>,
    /// To be removed when its last request ends.
    is_leaving: bool,
}

impl<W> Scheduler<W> {
    pub fn new(total: u32) -> Self {
        let total = total.max(1);
        Self {
            total,
            free: total,
            waiting: 0,
            tickets: 0,
            tenants: Vec::new(),
            vacant: Vec::new(),
            hungry: BTreeSet::new(),
        }
    }

    /// Takes in a tenant, or changes the levels of one: those of the same name keep what they hold and who waits.
    /// Returns it with its levels, in the order given. [`Scheduler::catch_up`] must follow.
    pub fn configure(
        &mut self,
        tenant: Option<TenantId>,
        configs: &[LevelConfig],
    ) -> (TenantId, Vec<LevelId>) {
        let id = match tenant {
            Some(id) if self.tenants.get(id.0).is_some_and(Option::is_some) => id,
            _ => self.admit_tenant(),
        };
        let Some(tenant) = self.tenants.get_mut(id.0).and_then(Option::as_mut) else {
            return (id, Vec::new());
        };
        tenant.is_leaving = false;
        let levels = tenant.set_levels(configs);
        self.list_if_hungry(id);
        (id, levels)
    }

    fn admit_tenant(&mut self) -> TenantId {
        let tenant = Tenant {
            held: 0,
            waiting: 0,
            levels: Vec::new(),
            shares: 0,
            served: 0,
            entry: None,
            is_leaving: false,
        };
        match self.vacant.pop() {
            Some(at) => {
                if let Some(place) = self.tenants.get_mut(at) {
                    *place = Some(tenant);
                }
                TenantId(at)
            }
            None => {
                self.tenants.push(Some(tenant));
                TenantId(self.tenants.len() - 1)
            }
        }
    }

    /// A tenant that is gone; its place is free when its last request has ended.
    pub fn forget(&mut self, id: TenantId) {
        if let Some(tenant) = self.tenant(id) {
            tenant.is_leaving = true;
            self.clear_away(id);
        }
    }

    /// Whether nobody of it is let in or waits.
    pub fn is_idle(&self, id: TenantId) -> bool {
        let tenant = self.tenants.get(id.0).and_then(Option::as_ref);
        tenant.is_none_or(|tenant| tenant.held == 0 && tenant.waiting == 0)
    }

    fn clear_away(&mut self, id: TenantId) {
        let idle = self.tenant(id).is_some_and(|it| it.is_leaving && it.held == 0 && it.waiting == 0);
        if idle && let Some(place) = self.tenants.get_mut(id.0) {
            *place = None;
            self.vacant.push(id.0);
        }
    }

    fn tenant(&mut self, id: TenantId) -> Option<&mut Tenant<W>> {
        self.tenants.get_mut(id.0).and_then(Option::as_mut)
    }

    /// A request has come. `waiter` is made only if it has to wait; then [`Scheduler::catch_up`] must follow.
    pub fn arrive(&mut self, request: &Request, now: Duration, waiter: impl FnOnce() -> W) -> Decision {
        let (free, room) = (self.free, self.room());
        let Some(tenant) = self.tenants.get_mut(request.tenant.0).and_then(Option::as_mut) else {
            return Decision::Reject(Refusal::ConcurrencyLimit);
        };
        let entitled = entitled(free, tenant.held);
        let Some(level) = tenant.levels.get(request.level.0) else {
            return Decision::Reject(Refusal::ConcurrencyLimit);
        };
        let shares = tenant.shares;
        let width = level.width(request.width, entitled, shares).min(free.max(1));
        let kept = LazyCell::new(|| tenant.kept(entitled));
        let has_room = tenant.level_has_room(request.level, width, entitled, &kept);
        if level.waiting == 0 && has_room && fits(free, tenant.held, width) {
            self.free -= width;
            tenant.hold(request.level, width);
            if tenant.entry.is_some() {
                self.list_if_hungry(request.tenant);
            }
            let Request { tenant, level, .. } = *request;
            return Decision::Admit(Seat { tenant, level, queue: None, width, since: now });
        }
        let Some(queue) = level.queue_for(request.flow) else {
            return Decision::Reject(Refusal::ConcurrencyLimit);
        };
        // Waiting is shared as seats are: nobody may fill the room of all.
        let crowded = tenant.waiting >= (FAIRNESS as usize).saturating_mul(room);
        if room == 0 || crowded || level.is_full(queue) {
            return Decision::Reject(Refusal::QueueFull);
        }
        let number = self.tickets;
        self.tickets += 1;
        self.waiting += 1;
        tenant.waiting += 1;
        if let Some(level) = tenant.levels.get_mut(request.level.0) {
            level.push(queue, number, request.width, waiter());
        }
        self.list_if_hungry(request.tenant);
        Decision::Wait(Ticket { tenant: request.tenant, level: request.level, queue, number })
    }

    /// Lets in whoever can be now, for all that has changed: levels, and what others hold.
    pub fn catch_up(&mut self, now: Duration) -> Woken<W> {
        self.settle(now)
    }

    /// A request has ended: its seats go to who is next.
    pub fn finish(&mut self, seat: Seat, now: Duration) -> Woken<W> {
        self.free += seat.width;
        if let Some(tenant) = self.tenant(seat.tenant) {
            tenant.held -= seat.width;
            if let Some(level) = tenant.levels.get_mut(seat.level.0) {
                level.held -= seat.width;
                if let Some(queue) = seat.queue {
                    level.charge(queue, seat.width, now.saturating_sub(seat.since));
                }
            }
        }
        self.list_if_hungry(seat.tenant);
        let woken = self.settle(now);
        self.clear_away(seat.tenant);
        woken
    }

    /// A request waits no longer. `None`: it has been let in already.
    pub fn give_up(&mut self, ticket: Ticket) -> Option<W> {
        let tenant = self.tenant(ticket.tenant)?;
        let waiter = tenant.levels.get_mut(ticket.level.0)?.remove(ticket.queue, ticket.number)?;
        tenant.waiting -= 1;
        self.waiting -= 1;
        self.list_if_hungry(ticket.tenant);
        self.clear_away(ticket.tenant);
        Some(waiter)
    }

    /// Lets in whoever can be, fewest seats first.
    fn settle(&mut self, now: Duration) -> Woken<W> {
        let mut woken = Vec::new();
        while let Some(&(_, _, id)) = self.hungry.first() {
            let free = self.free;
            let Some(tenant) = self.tenants.get_mut(id.0).and_then(Option::as_mut) else {
                self.hungry.pop_first();
                continue;
            };
            let entitled = entitled(free, tenant.held);
            let shares = tenant.shares;
            let Some((level, queue, wanted)) = tenant.next(entitled) else {
                // Only an end of its own can help it now, and that looks at it again.
                tenant.entry = None;
                self.hungry.pop_first();
                continue;
            };
            let width = tenant.levels.get(level.0).map_or(1, |it| it.width(wanted, entitled, shares));
            let width = width.min(free.max(1));
            if !fits(free, tenant.held, width) {
                break;
            }
            let waiter = tenant.levels.get_mut(level.0).and_then(|it| it.pop(queue, width));
            let Some(waiter) = waiter else { break };
            self.free -= width;
            self.waiting -= 1;
            self.tickets += 1;
            tenant.waiting -= 1;
            tenant.served = self.tickets;
            tenant.hold(level, width);
            woken.push((waiter, Seat { tenant: id, level, queue: Some(queue), width, since: now }));
            self.list_if_hungry(id);
        }
        woken
    }

    /// Keeps the tenant's place among those who wait for seats.
    fn list_if_hungry(&mut self, id: TenantId) {
        let free = self.free;
        let Some(tenant) = self.tenants.get_mut(id.0).and_then(Option::as_mut) else { return };
        if tenant.waiting == 0 && tenant.entry.is_none() {
            return;
        }
        let hungry = tenant.waiting > 0 && tenant.next(entitled(free, tenant.held)).is_some();
        let entry = hungry.then_some((tenant.held, tenant.served, id));
        if entry == tenant.entry {
            return;
        }
        if let Some(old) = std::mem::replace(&mut tenant.entry, entry) {
            self.hungry.remove(&old);
        }
        self.hungry.extend(entry);
    }

    /// Requests that may still begin to wait.
    fn room(&self) -> usize {
        (self.total as usize).saturating_mul(WAITING_PER_SEAT).saturating_sub(self.waiting)
    }

    /// What a level of the given shares is sure of in a tenant that is alone.
    pub fn nominal(total: u32, shares: u32, of: u32) -> u32 {
        level::part(entitled(total.max(1), 0), shares, of).div_ceil(level::SCALE) as u32
    }
}

impl<W> Tenant<W> {
    fn hold(&mut self, level: LevelId, width: u32) {
        self.held += width;
        if let Some(level) = self.levels.get_mut(level.0) {
            level.held += width;
        }
    }

    /// What levels hold, and what they do not lend to others.
    fn kept(&self, entitled: u32) -> u64 {
        self.levels.iter().map(|level| level.kept(entitled, self.shares)).sum()
    }

    /// Whether a level may hold `width` more, if the tenant may. `kept` is that of all its levels.
    fn level_has_room(
        &self,
        id: LevelId,
        width: u32,
        entitled: u32,
        kept: &impl Deref<Target = u64>,
    ) -> bool {
        let Some(level) = self.levels.get(id.0) else { return false };
        let shares = self.shares;
        if level.is_sure_of(width, entitled, shares) {
            return true;
        }
        if !level.may_borrow(width, entitled, shares) {
            return false;
        }
        // What the others do not lend stays for them.
        let others = **kept - level.kept(entitled, shares);
        others + u64::from(level.held) + u64::from(width) <= u64::from(entitled)
    }

    /// The level, queue and width of the request that is next, as far as levels go.
    fn next(&self, entitled: u32) -> Option<(LevelId, u32, u32)> {
        let shares = self.shares;
        let kept = LazyCell::new(|| self.kept(entitled));
        let mut best: Option<(u64, LevelId, u32, u32)> = None;
        for (at, level) in self.levels.iter().enumerate().filter(|(_, level)| level.waiting > 0) {
            let id = LevelId(at);
            let Some((queue, wanted)) = level.next() else { continue };
            let width = level.width(wanted, entitled, shares);
            if !self.level_has_room(id, width, entitled, &kept) {
                continue;
            }
            let load = level.load();
            if best.is_none_or(|(least, ..)| load < least) {
                best = Some((load, id, queue, wanted));
            }
        }
        best.map(|(_, level, queue, wanted)| (level, queue, wanted))
    }

    /// Those of the same name stay as they are; places of levels that are gone and empty are used again.
    fn set_levels(&mut self, configs: &[LevelConfig]) -> Vec<LevelId> {
        let mut known: HashMap<Arc<str>, usize> = HashMap::new();
        for (at, level) in self.levels.iter_mut().enumerate() {
            known.extend(level.config.take().map(|config| (config.name, at)));
        }
        let mut ids: Vec<Option<LevelId>> = Vec::with_capacity(configs.len());
        for config in configs {
            let at = known.remove(&config.name);
            if let Some(level) = at.and_then(|at| self.levels.get_mut(at)) {
                level.config = Some(config.clone());
            }
            ids.push(at.map(LevelId));
        }
        let mut empty: Vec<usize> =
            (0..self.levels.len()).filter(|at| self.levels[*at].is_empty()).rev().collect();
        let last = configs.len().saturating_sub(1);
        for (at, (config, id)) in configs.iter().zip(&mut ids).enumerate().filter(|(_, (_, id))| id.is_none())
        {
            // There is always one for all that find no place.
            if at == last || !empty.is_empty() || self.levels.len() < MAX_LEVELS {
                *id = Some(self.place(config, empty.pop()));
            }
        }
        self.shares = self.levels.iter().map(Level::shares).fold(0, u32::saturating_add);
        let last = ids.last().copied().flatten().unwrap_or(LevelId(0));
        ids.into_iter().map(|id| id.unwrap_or(last)).collect()
    }

    fn place(&mut self, config: &LevelConfig, empty: Option<usize>) -> LevelId {
        let level = Level::new(config.clone());
        match empty.and_then(|at| Some((at, self.levels.get_mut(at)?))) {
            Some((at, place)) => {
                *place = level;
                LevelId(at)
            }
            None => {
                self.levels.push(level);
                LevelId(self.levels.len() - 1)
            }
        }
    }
}

/// What a tenant may hold in all, when so much is free.
fn entitled(free: u32, held: u32) -> u32 {
    let within_reach = u64::from(free) + u64::from(held);
    (within_reach * u64::from(FAIRNESS) / u64::from(FAIRNESS + 1)) as u32
}

/// Whether a tenant may take `width` more. Who holds nothing may take what there is.
fn fits(free: u32, held: u32, width: u32) -> bool {
    width <= free && (held == 0 || held + width <= entitled(free, held))
}

/// A queue of a level.
struct Queue<W> {
    waiting: VecDeque<Waiting<W>>,
    /// Virtual: how much it has been served, in seat-nanoseconds.
    served: u64,
    /// Requests that waited in it and have not ended.
    running: u32,
}

impl<W> Queue<W> {
    fn new(served: u64) -> Self {
        Queue { waiting: VecDeque::new(), served, running: 0 }
    }
}

struct Waiting<W> {
    number: u64,
    width: u32,
    waiter: W,
}

type Queues<W> = BTreeMap<u32, Queue<W>>;
