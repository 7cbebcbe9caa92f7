//! A server under mixed load for an hour, killed and restarted every few minutes: nothing acknowledged is lost, nothing
//! fails but with 429 and 410 (and with 503 around a restart), caches equal what is listed, and memory, threads, files and disk stay what they were.
//!
//! `HANSE_SOAK_SECONDS`: how long. `HANSE_SOAK_STORE=etcd`: on etcd instead of its own engine.

#![allow(clippy::disallowed_methods)] // Tests run on the real machine.

mod guests;
mod informers;
mod owners;
mod vitals;
mod world;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use guests::{Guest, Kind};
use informers::Informer;
use owners::Owner;
use serde_json::json;
use testing::lasting::{LastingHub, Way};
use tokio::{task::JoinSet, time::sleep};
use vitals::Vitals;
use world::{Phase, STAYING, Session, UNAVAILABLE, WORKSPACES, World, staying};

const OWNERS: usize = 2 * STAYING;
/// Of one owner: 200 a second by all.
const OWNER_PERIOD: Duration = Duration::from_millis(200);
const GUEST_PERIOD: Duration = Duration::from_millis(500);
const ROUNDS: usize = 4;
/// Short, so that what is kept of the past is not what is measured.
const HISTORY: Duration = Duration::from_secs(4);
/// Until history is forgotten, idle threads have ended and freed memory is given back.
const SETTLE: Duration = Duration::from_secs(12);

/// With requests in flight.
fn restart(server: &mut LastingHub, world: &World, way: Way) -> Result<()> {
    world.ledger.goes_away();
    server.go(way)?;
    server.come_back()?;
    world.ledger.is_back();
    Ok(())
}

/// How long a round is in each life.
struct Plan {
    /// Of short lives, which can be compared with each other.
    short: Vec<Duration>,
    /// Of one that is as long as all of those, if there is time for it: what is lost a little at a time shows there.
    long: Option<Duration>,
}

impl Plan {
    fn new(total: Duration) -> Plan {
        let round =
            |life: Duration| (life / ROUNDS as u32).saturating_sub(SETTLE).max(Duration::from_secs(5));
        let long = (total >= Duration::from_secs(1200)).then_some(total / 2);
        let rest = total - long.unwrap_or_default();
        // Five minutes each, or at least two of them.
        let life = Duration::from_secs(300).min(rest / 2);
        let lives = ((rest.as_secs_f64() / life.as_secs_f64()).round() as usize).max(2);
        Plan { short: vec![round(life); lives], long: long.map(round) }
    }

    fn rounds(&self) -> impl Iterator<Item = Duration> {
        self.short.iter().copied().chain(self.long)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn it_lives_long_under_load_and_restarts() -> Result<()> {
    let seconds = std::env::var("HANSE_SOAK_SECONDS").unwrap_or_default();
    let seconds: u64 = if seconds.is_empty() { 3600 } else { seconds.parse()? };
    let plan = Plan::new(Duration::from_secs(seconds));
    let flags = vec![format!("--history={}s", HISTORY.as_secs())];
    let mut server = LastingHub::start("HANSE_SOAK_STORE", flags)?;
    let world = World::new(server.hub()?.admin()?);
    let mut session = Session::open(&world).await;
    for number in 0..STAYING {
        let made = session.post(WORKSPACES, &json!({"metadata": {"name": staying(number)}})).await;
        ensure!(made.is_ok(), "a workspace cannot be made");
    }
    drop(session);
    let webhook = guests::review(&world, [5]).await?;
    let mut working = start_load(&world).await;

    let started = Instant::now();
    let mut lives = Vec::new();
    for (life, length) in plan.rounds().enumerate() {
        let mut rounds = Vec::new();
        for round in 0..ROUNDS {
            world.begin(Phase::Load).await?;
            sleep(length / 3).await;
            if life > 0 && round == 0 {
                let way = if life % 2 == 1 { Way::Told } else { Way::Killed };
                tokio::task::block_in_place(|| restart(&mut server, &world, way))?;
            }
            sleep(length * 2 / 3).await;
            world.begin(Phase::Rest).await?;
            webhook.take();
            sleep(SETTLE).await;
            let vitals = Vitals::of(&server)?;
            println!("{:>5} s, life {life}, round {round}: {vitals:?}", started.elapsed().as_secs());
            rounds.push(vitals);
        }
        lives.push(rounds);
    }
    world.begin(Phase::Over).await?;
    while let Some(worker) = working.join_next().await {
        worker?;
    }
    let counts = world.ledger.counts();
    println!("{counts:?}");
    let of = |what| counts.get(what).copied().unwrap_or(0);
    println!("429: {}; 503: {}, all around restarts if there is no problem", of("429"), of(UNAVAILABLE));
    let mut problems = world.ledger.problems();
    // Where rounds are short, caches are still being filled in the second.
    if seconds >= 600 {
        let (short, long) = lives.split_at(plan.short.len());
        problems.extend(vitals::complaints(short));
        problems.extend(vitals::complaints(long).into_iter().map(|it| format!("in the long life: {it}")));
    }
    ensure!(problems.is_empty(), "{}", problems.join("\n"));
    // Of the owners' turns more than half write.
    let load = plan.rounds().sum::<Duration>() * ROUNDS as u32;
    let turns = (OWNERS as u128 * load.as_millis() / OWNER_PERIOD.as_millis()) as u64;
    ensure!(
        of("writes") >= turns / 4,
        "{} writes in {turns} turns are not the load that was meant",
        of("writes")
    );
    Ok(())
}

async fn start_load(world: &Arc<World>) -> JoinSet<()> {
    let mut working = JoinSet::new();
    for number in 0..OWNERS {
        let owner = Owner::new(world, number).await;
        working.spawn(owner.run(OWNER_PERIOD));
    }
    for (number, kind) in Kind::ALL.into_iter().enumerate() {
        let guest = Guest::new(world, kind, number).await;
        working.spawn(guest.run(GUEST_PERIOD));
    }
    for number in (0..STAYING).step_by(2) {
        let informer = Informer::new(world, &staying(number)).await;
        working.spawn(informer.run());
    }
    working
}
