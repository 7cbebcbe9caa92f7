//! Whole afternoons of traffic in a moment: arrivals and ends in the order of a virtual clock, from a seed.

use std::{cmp::Reverse, collections::BinaryHeap};

use env::random::SeededRandom;

use super::*;

/// Somebody who sends requests.
#[derive(Clone, Copy, Debug)]
struct Sender {
    tenant: usize,
    flow: u64,
    /// So many at a time are always on their way: each that ends is followed by another.
    at_once: u32,
    /// How long the server works on one, about.
    work: Duration,
}

#[derive(Clone, Debug, Default)]
struct Outcome {
    done: u64,
    refused: u64,
    longest_wait: Duration,
    seat_time: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    End(usize),
    Send(usize),
}

/// A request that waits, with what must be known when it is let in.
#[derive(Clone, Copy, Debug)]
struct Waiter {
    sender: usize,
    since: Duration,
}

struct Simulation {
    random: SeededRandom,
    scheduler: Scheduler<Waiter>,
    senders: Vec<Sender>,
    places: Vec<(TenantId, Vec<LevelId>)>,
    outcomes: Vec<Outcome>,
    running: Vec<Option<(usize, Seat, Duration)>>,
    agenda: BinaryHeap<Reverse<(Duration, u64, Happening)>>,
    entries: u64,
}

/// After a refusal a client waits, as `Retry-After` tells it to.
const RETRY: Duration = Duration::from_secs(1);

impl Simulation {
    fn run(seed: u64, total: u32, length: u32, senders: &[Sender], lasts: Duration) -> Vec<Outcome> {
        let mut scheduler = Scheduler::new(total);
        let tenants = senders.iter().map(|it| it.tenant).max().unwrap_or(0) + 1;
        let queuing = Some(Queuing { queues: 64, hand: 6, length });
        let limits = Shares { shares: 1, lendable_percent: 0, borrowing_percent: None, queuing };
        let level = LevelConfig { name: "all".into(), limits: Some(limits) };
        let places = (0..tenants).map(|_| scheduler.configure(None, std::slice::from_ref(&level))).collect();
        let mut simulation = Simulation {
            random: SeededRandom::new(seed),
            scheduler,
            senders: senders.to_vec(),
            places,
            outcomes: vec![Outcome::default(); senders.len()],
            running: Vec::new(),
            agenda: BinaryHeap::new(),
            entries: 0,
        };
        for (at, sender) in senders.iter().enumerate() {
            for _ in 0..sender.at_once {
                let start = Duration::from_micros(simulation.random.below(1000));
                simulation.plan(start, Happening::Send(at));
            }
        }
        simulation.play(lasts);
        simulation.outcomes
    }

    fn plan(&mut self, at: Duration, what: Happening) {
        self.entries += 1;
        self.agenda.push(Reverse((at, self.entries, what)));
    }

    fn play(&mut self, lasts: Duration) {
        while let Some(Reverse((now, _, what))) = self.agenda.pop() {
            if now > lasts {
                return;
            }
            match what {
                Happening::Send(sender) => self.send(sender, now),
                Happening::End(at) => self.end(at, now),
            }
            if self.entries.is_multiple_of(64) {
                self.scheduler.check();
            }
        }
    }

    fn send(&mut self, at: usize, now: Duration) {
        let sender = self.senders[at];
        let (tenant, levels) = &self.places[sender.tenant];
        // A hash, as in the server.
        let flow = sender.flow.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let request = Request { tenant: *tenant, level: levels[0], flow, width: 1 };
        match self.scheduler.arrive(&request, now, || Waiter { sender: at, since: now }) {
            Decision::Admit(seat) => self.start(at, seat, now),
            Decision::Wait(_) => {
                for (waiter, seat) in self.scheduler.catch_up(now) {
                    self.let_in(waiter, seat, now);
                }
            }
            Decision::Reject(_) => {
                self.outcomes[at].refused += 1;
                self.plan(now + RETRY, Happening::Send(at));
            }
        }
    }

    fn let_in(&mut self, waiter: Waiter, seat: Seat, now: Duration) {
        let outcome = &mut self.outcomes[waiter.sender];
        outcome.longest_wait = outcome.longest_wait.max(now - waiter.since);
        self.start(waiter.sender, seat, now);
    }

    fn start(&mut self, sender: usize, seat: Seat, now: Duration) {
        let work = self.senders[sender].work;
        let took = work.mul_f64(0.5 + self.random.below(1000) as f64 / 1000.0);
        self.running.push(Some((sender, seat, took)));
        self.plan(now + took, Happening::End(self.running.len() - 1));
    }

    fn end(&mut self, at: usize, now: Duration) {
        let Some((sender, seat, took)) = self.running[at].take() else { return };
        self.outcomes[sender].done += 1;
        self.outcomes[sender].seat_time += took;
        for (waiter, seat) in self.scheduler.finish(seat, now) {
            self.let_in(waiter, seat, now);
        }
        self.plan(now, Happening::Send(sender));
    }
}

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

fn sender(tenant: usize, flow: u64, at_once: u32, work: Duration) -> Sender {
    Sender { tenant, flow, at_once, work }
}

#[test]
fn a_hog_costs_a_small_tenant_nothing() {
    for seed in 0..3 {
        let small = sender(0, 1, 2, ms(10));
        let alone = Simulation::run(seed, 60, 50, &[small], Duration::from_secs(5));
        // Hundreds at once, each a hundred times as long.
        let hog = sender(1, 1, 500, ms(1000));
        let beside = Simulation::run(seed, 60, 50, &[small, hog], Duration::from_secs(5));
        assert_eq!(beside[0].refused, 0, "seed {seed}");
        assert_eq!(beside[0].longest_wait, Duration::ZERO, "seed {seed}");
        assert!(beside[0].done * 100 >= alone[0].done * 95, "seed {seed}: {alone:?} {beside:?}");
        assert!(beside[1].done > 150, "the hog has what is left: {beside:?}");
    }
}

#[test]
fn tenants_that_all_want_too_much_get_the_same() {
    for seed in 0..3 {
        let senders: Vec<Sender> = (0..8).map(|at| sender(at, 1, 20 + 40 * at as u32, ms(20))).collect();
        let outcomes = Simulation::run(seed, 64, 50, &senders, Duration::from_secs(5));
        let times: Vec<f64> = outcomes.iter().map(|it| it.seat_time.as_secs_f64()).collect();
        let (least, most) =
            (times.iter().copied().fold(f64::MAX, f64::min), times.iter().copied().fold(0.0, f64::max));
        assert!(least * 1.25 >= most, "seed {seed}: {times:?}");
        assert!(times.iter().sum::<f64>() > 5.0 * 64.0 * 0.8, "seats are used: {times:?}");
    }
}

#[test]
fn flows_that_wait_in_one_level_get_the_same_seat_time_though_one_sends_more_and_longer_requests() {
    for seed in 0..3 {
        // Of eight seats; the first has long requests and very many of them.
        let mut senders = vec![sender(0, 0, 80, ms(100))];
        senders.extend((1..5).map(|flow| sender(0, flow, 10, ms(10))));
        let outcomes = Simulation::run(seed, 9, 200, &senders, Duration::from_secs(20));
        let polite: Vec<f64> = outcomes[1..].iter().map(|it| it.seat_time.as_secs_f64()).collect();
        let hog = outcomes[0].seat_time.as_secs_f64();
        // It has six queues of its own, so at worst six parts where the others have one or more.
        let fair = 20.0 * 8.0 / 10.0;
        assert!(polite.iter().all(|it| *it > fair * 0.8), "seed {seed}: {hog} {polite:?}");
        assert!(outcomes.iter().all(|it| it.refused == 0), "seed {seed}");
    }
}

#[test]
fn nobody_waits_for_ever() {
    for seed in 0..3 {
        let senders: Vec<Sender> =
            (0..40).map(|at| sender(at % 20, at as u64, 30, ms(5 + at as u64))).collect();
        let outcomes = Simulation::run(seed, 16, 50, &senders, Duration::from_secs(30));
        for (at, outcome) in outcomes.iter().enumerate() {
            assert!(outcome.done > 20, "seed {seed}, sender {at}: {outcome:?}");
            assert!(outcome.longest_wait < Duration::from_secs(15), "seed {seed}, sender {at}: {outcome:?}");
        }
    }
}
