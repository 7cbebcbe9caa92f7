use proptest::prelude::*;

use super::*;

/// Waiting requests are known by a number.
type Sim = Scheduler<u32>;

fn mk_level(name: &str, shares: u32, lendable_percent: u32, queuing: Option<Queuing>) -> LevelConfig {
    let shares = Shares { shares, lendable_percent, borrowing_percent: None, queuing };
    LevelConfig { name: name.into(), limits: Some(shares) }
}

fn queues(queues: u32, hand: u32, length: u32) -> Option<Queuing> {
    Some(Queuing { queues, hand, length })
}

fn exempt() -> LevelConfig {
    LevelConfig { name: "exempt".into(), limits: None }
}

impl<W> Scheduler<W> {
    /// What must hold at all times.
    pub(super) fn check(&self) {
        let tenants = || self.tenants.iter().flatten();
        assert_eq!(self.free + tenants().map(|it| it.held).sum::<u32>(), self.total, "seats are kept");
        assert_eq!(tenants().map(|it| it.waiting).sum::<usize>(), self.waiting);
        assert!(self.waiting <= self.total as usize * WAITING_PER_SEAT, "waiting is bounded");
        let listed: BTreeSet<_> = tenants().filter_map(|it| it.entry).collect();
        assert_eq!(listed, self.hungry);
        for tenant in tenants() {
            assert_eq!(tenant.levels.iter().map(|it| it.held).sum::<u32>(), tenant.held);
            assert_eq!(tenant.levels.iter().map(|it| it.waiting).sum::<usize>(), tenant.waiting);
            if let Some((held, ..)) = tenant.entry {
                assert_eq!(held, tenant.held, "a place by what is held");
            }
        }
    }

    pub(super) fn held(&self, id: TenantId) -> u32 {
        self.tenants[id.0].as_ref().map_or(0, |it| it.held)
    }
}

const NOW: Duration = Duration::ZERO;

fn ask(sim: &mut Sim, tenant: TenantId, level: LevelId, flow: u64, number: u32) -> Decision {
    let request = Request { tenant, level, flow, width: 1 };
    let decision = sim.arrive(&request, NOW, || number);
    sim.check();
    decision
}

/// Asks until there is no more; returns the seats.
fn take_all(sim: &mut Sim, tenant: TenantId, level: LevelId) -> Vec<Seat> {
    let mut seats = Vec::new();
    while let Decision::Admit(seat) = ask(sim, tenant, level, 1, 0) {
        seats.push(seat);
    }
    seats
}

#[test]
fn one_tenant_gets_almost_all_and_each_further_one_as_much_as_any_other() {
    // With so many tenants that ask for all they can get, each ends up with so much, and some stay free.
    for (tenants, each, free) in [(1, 80, 10), (2, 42, 5), (3, 28, 3), (10, 8, 1), (30, 2, 1)] {
        let mut sim = Sim::new(90);
        let ids: Vec<_> = (0..tenants).map(|_| sim.configure(None, &[mk_level("a", 1, 0, None)])).collect();
        // Everybody asks in turn, so that none is first.
        let mut seats = Vec::new();
        let mut asking = true;
        while asking {
            asking = false;
            for (id, levels) in &ids {
                if let Decision::Admit(seat) = ask(&mut sim, *id, levels[0], 1, 0) {
                    seats.push(seat);
                    asking = true;
                }
            }
        }
        let held: Vec<u32> = ids.iter().map(|(id, _)| sim.held(*id)).collect();
        let (least, most) = (*held.iter().min().unwrap(), *held.iter().max().unwrap());
        assert!(most - least <= 1 && most >= each && least <= each, "{tenants}: {held:?}, expected {each}");
        assert!(sim.free >= free, "{tenants}: {} free, expected {free}", sim.free);
    }
}

#[test]
fn who_comes_late_finds_a_seat_though_others_took_all_they_could() {
    let mut sim = Sim::new(600);
    let level = [mk_level("a", 1, 0, queues(8, 2, 50))];
    for _ in 0..3 {
        let (hog, levels) = sim.configure(None, &level);
        take_all(&mut sim, hog, levels[0]);
    }
    let (late, levels) = sim.configure(None, &level);
    assert!(matches!(ask(&mut sim, late, levels[0], 1, 0), Decision::Admit(_)));
}

#[test]
fn a_level_is_sure_of_its_part_and_lends_the_rest() {
    let mut sim = Sim::new(90);
    // Of the 80 that the tenant may hold: 20, half of it lent; and 60, none of it.
    let configs = [mk_level("small", 1, 50, None), mk_level("large", 3, 0, None)];
    let (tenant, levels) = sim.configure(None, &configs);
    assert_eq!(take_all(&mut sim, tenant, levels[0]).len(), 20, "what large does not lend stays free");
    let (mut sim, mut seats) = (Sim::new(90), Vec::new());
    let (tenant, levels) = sim.configure(None, &configs);
    seats.extend(take_all(&mut sim, tenant, levels[1]));
    assert_eq!(seats.len(), 70, "its own 60, and the 10 that small lends");
    assert_eq!(take_all(&mut sim, tenant, levels[0]).len(), 10, "what small does not lend is still there");
}

#[test]
fn borrowing_has_a_limit_if_the_level_says_so() {
    let mut sim = Sim::new(90);
    let mut borrower = mk_level("borrower", 1, 0, None);
    borrower.limits.as_mut().unwrap().borrowing_percent = Some(25);
    let (tenant, levels) = sim.configure(None, &[borrower, mk_level("lender", 3, 100, None)]);
    assert_eq!(take_all(&mut sim, tenant, levels[0]).len(), 25, "20 and a quarter");
}

#[test]
fn a_level_without_shares_lives_on_loans() {
    let mut sim = Sim::new(9);
    let (tenant, levels) = sim.configure(None, &[mk_level("jail", 0, 0, None), mk_level("a", 1, 0, None)]);
    assert_eq!(ask(&mut sim, tenant, levels[0], 1, 0), Decision::Reject(Refusal::ConcurrencyLimit));
    sim.configure(Some(tenant), &[mk_level("jail", 0, 0, None), mk_level("a", 1, 50, None)]);
    assert_eq!(take_all(&mut sim, tenant, levels[0]).len(), 4);
}

#[test]
fn an_exempt_level_has_no_limit_but_its_tenants() {
    let mut sim = Sim::new(90);
    let (tenant, levels) = sim.configure(None, &[exempt(), mk_level("a", 1, 0, queues(1, 1, 5))]);
    assert_eq!(take_all(&mut sim, tenant, levels[0]).len(), 80);
    assert!(matches!(ask(&mut sim, tenant, levels[0], 1, 7), Decision::Wait(_)), "it waits, as all do");
}

#[test]
fn a_queue_has_an_end_and_a_level_without_queues_lets_nobody_wait() {
    let mut sim = Sim::new(1);
    let (tenant, levels) =
        sim.configure(None, &[mk_level("a", 1, 0, queues(4, 1, 3)), mk_level("b", 1, 0, None)]);
    let Decision::Admit(seat) = ask(&mut sim, tenant, levels[0], 1, 0) else { panic!("no seat") };
    for number in 1..=3 {
        assert!(matches!(ask(&mut sim, tenant, levels[0], 1, number), Decision::Wait(_)));
    }
    assert_eq!(ask(&mut sim, tenant, levels[0], 1, 4), Decision::Reject(Refusal::QueueFull));
    assert_eq!(ask(&mut sim, tenant, levels[1], 1, 5), Decision::Reject(Refusal::ConcurrencyLimit));
    let woken = sim.finish(seat, NOW);
    assert_eq!(woken.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [1], "first come, first served");
    sim.check();
}

#[test]
fn one_tenant_cannot_fill_the_room_in_which_all_wait() {
    let mut sim = Sim::new(1);
    let long = [mk_level("a", 1, 0, queues(1, 1, 1000))];
    let (hog, hog_levels) = sim.configure(None, &long);
    let (late, late_levels) = sim.configure(None, &long);
    let Decision::Admit(_) = ask(&mut sim, hog, hog_levels[0], 1, 0) else { panic!("no seat") };
    while let Decision::Wait(_) = ask(&mut sim, hog, hog_levels[0], 1, 1) {}
    assert!(matches!(ask(&mut sim, late, late_levels[0], 1, 2), Decision::Wait(_)));
}

#[test]
fn who_gives_up_leaves_no_trace() {
    let mut sim = Sim::new(1);
    let (tenant, levels) = sim.configure(None, &[mk_level("a", 1, 0, queues(1, 1, 5))]);
    let Decision::Admit(seat) = ask(&mut sim, tenant, levels[0], 1, 0) else { panic!("no seat") };
    let Decision::Wait(first) = ask(&mut sim, tenant, levels[0], 1, 1) else { panic!("no ticket") };
    let Decision::Wait(second) = ask(&mut sim, tenant, levels[0], 1, 2) else { panic!("no ticket") };
    assert_eq!(sim.give_up(first), Some(1));
    assert_eq!(sim.give_up(first), None);
    let woken = sim.finish(seat, NOW);
    assert_eq!(woken.len(), 1);
    assert_eq!(sim.give_up(second), None, "it has been let in");
    for (_, seat) in woken {
        assert_eq!(sim.finish(seat, NOW), []);
    }
    sim.check();
    assert_eq!(sim.free, 1);
}

#[test]
fn levels_come_and_go_while_requests_run() {
    let mut sim = Sim::new(9);
    let (tenant, old) = sim.configure(None, &[mk_level("a", 1, 0, None), mk_level("b", 1, 0, None)]);
    let Decision::Admit(seat) = ask(&mut sim, tenant, old[0], 1, 0) else { panic!("no seat") };
    let (same, new) = sim.configure(Some(tenant), &[mk_level("b", 1, 0, None), mk_level("c", 1, 0, None)]);
    assert_eq!((same, new[0]), (tenant, old[1]), "a level keeps its place");
    assert_ne!(new[1], old[0], "a place is not used again while a request holds on to it");
    sim.finish(seat, NOW);
    sim.check();
    let (_, newer) = sim.configure(Some(tenant), &[mk_level("b", 1, 0, None), mk_level("d", 1, 0, None)]);
    assert_eq!(newer[1], old[0]);
    sim.forget(tenant);
    let (next, _) = sim.configure(None, &[exempt()]);
    assert_eq!(next, tenant, "so are places of tenants");
    sim.check();
}

#[test]
fn a_tenant_that_is_forgotten_goes_when_its_last_request_ends() {
    let mut sim = Sim::new(9);
    let (tenant, levels) = sim.configure(None, &[mk_level("a", 1, 0, None)]);
    let Decision::Admit(seat) = ask(&mut sim, tenant, levels[0], 1, 0) else { panic!("no seat") };
    sim.forget(tenant);
    assert_ne!(sim.configure(None, &[exempt()]).0, tenant);
    sim.finish(seat, NOW);
    sim.check();
    assert_eq!(sim.configure(None, &[exempt()]).0, tenant);
}

#[test]
fn wide_requests_take_more_but_never_a_whole_level() {
    let mut sim = Sim::new(90);
    let (tenant, levels) = sim.configure(None, &[mk_level("a", 1, 0, None)]);
    for (wanted, expected) in [(0, 1), (1, 1), (5, 5), (10, 10), (1000, 12)] {
        let request = Request { tenant, level: levels[0], flow: 1, width: wanted };
        let Decision::Admit(seat) = sim.arrive(&request, NOW, || 0) else { panic!("no seat") };
        assert_eq!(sim.held(tenant), expected, "{wanted}");
        sim.finish(seat, NOW);
        sim.check();
    }
}

#[derive(Clone, Debug)]
enum Step {
    Arrive { tenant: usize, level: usize, flow: u64, width: u32 },
    Finish(usize),
    GiveUp(usize),
    Configure { tenant: usize, levels: Vec<(u32, u32, bool)> },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..4usize, 0..3usize, 0..5u64, 0..20u32)
            .prop_map(|(tenant, level, flow, width)| Step::Arrive { tenant, level, flow, width }),
        4 => any::<usize>().prop_map(Step::Finish),
        1 => any::<usize>().prop_map(Step::GiveUp),
        1 => (0..4usize, prop::collection::vec((0..5u32, 0..=100u32, any::<bool>()), 1..4))
            .prop_map(|(tenant, levels)| Step::Configure { tenant, levels }),
    ];
    prop::collection::vec(step, 1..200)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Whatever happens in whatever order: seats are neither lost nor made, bounds hold, and when all requests have
    /// ended nobody is left waiting.
    #[test]
    fn seats_are_kept_and_nobody_is_forgotten(total in 1..30u32, steps in steps()) {
        let mut sim = Sim::new(total);
        let names = ["a", "b", "c"];
        let mut tenants: Vec<(TenantId, Vec<LevelId>)> = (0..4)
            .map(|_| sim.configure(None, &names.map(|name| mk_level(name, 1, 50, queues(4, 2, 5)))))
            .collect();
        let mut seats = Vec::new();
        let mut tickets = Vec::new();
        for (number, step) in steps.into_iter().enumerate() {
            let now = Duration::from_millis(number as u64);
            match step {
                Step::Arrive { tenant, level, flow, width } => {
                    let (tenant, levels) = &tenants[tenant];
                    let level = levels[level % levels.len()];
                    let request = Request { tenant: *tenant, level, flow, width };
                    match sim.arrive(&request, now, || number as u32) {
                        Decision::Admit(seat) => seats.push(seat),
                        Decision::Wait(ticket) => {
                            tickets.push(ticket);
                            seats.extend(sim.catch_up(now).into_iter().map(|(_, seat)| seat));
                        }
                        Decision::Reject(_) => {}
                    }
                }
                Step::Finish(at) if !seats.is_empty() => {
                    let seat = seats.swap_remove(at % seats.len());
                    seats.extend(sim.finish(seat, now).into_iter().map(|(_, seat)| seat));
                }
                Step::GiveUp(at) if !tickets.is_empty() => {
                    let ticket = tickets.swap_remove(at % tickets.len());
                    sim.give_up(ticket);
                }
                Step::Configure { tenant, levels } => {
                    let configs: Vec<LevelConfig> = levels
                        .iter()
                        .zip(names)
                        .map(|((shares, lent, queued), name)| {
                            mk_level(name, *shares, *lent, queued.then_some(Queuing { queues: 4, hand: 2, length: 5 }))
                        })
                        .collect();
                    tenants[tenant] = sim.configure(Some(tenants[tenant].0), &configs);
                    seats.extend(sim.catch_up(now).into_iter().map(|(_, seat)| seat));
                }
                _ => {}
            }
            sim.check();
        }
        let now = Duration::from_secs(1000);
        while let Some(seat) = seats.pop() {
            seats.extend(sim.finish(seat, now).into_iter().map(|(_, seat)| seat));
            sim.check();
        }
        prop_assert_eq!(sim.free, total);
        // Only a level that has no share of its own, and nobody to borrow from, may keep requests until they give up.
        for tenant in sim.tenants.iter().flatten() {
            for level in &tenant.levels {
                prop_assert!(level.waiting == 0 || level.shares() == 0, "{} are left waiting", level.waiting);
            }
        }
    }
}

#[test]
fn levels_that_are_gone_and_not_empty_are_bounded_too() {
    let mut sim = Sim::new(600);
    let catch_all = mk_level("catch-all", 1, 0, queues(8, 2, 50));
    let mut known = None;
    let mut seats = Vec::new();
    // Somebody sits in each level when it goes.
    for round in 0..20 {
        let mut configs: Vec<_> =
            (0..64).map(|at| mk_level(&format!("{round}-{at}"), 1, 0, queues(8, 2, 50))).collect();
        configs.push(catch_all.clone());
        let (tenant, levels) = sim.configure(known, &configs);
        known = Some(tenant);
        for level in &levels {
            if let Decision::Admit(seat) = ask(&mut sim, tenant, *level, 1, 0) {
                seats.push(seat);
            }
        }
        let count = sim.tenants[tenant.0].as_ref().unwrap().levels.len();
        assert!(count <= MAX_LEVELS, "{count}");
        let shares: u32 = sim.tenants[tenant.0].as_ref().unwrap().levels.iter().map(Level::shares).sum();
        assert_eq!(sim.tenants[tenant.0].as_ref().unwrap().shares, shares);
    }
    for seat in seats {
        sim.finish(seat, NOW);
        sim.check();
    }
    let (tenant, levels) = sim.configure(known, &[mk_level("new", 1, 0, None), catch_all]);
    assert_ne!(levels[0], levels[1], "there is room again");
    assert!(matches!(ask(&mut sim, tenant, levels[0], 1, 0), Decision::Admit(_)));
}
