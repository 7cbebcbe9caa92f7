//! Servers under faults: everything that clients and watchers were told has one explanation, nothing acknowledged is
//! lost, and watches have no gaps. See `docs/faults.md`.
//!
//! `HANSE_SEED` repeats one schedule, `HANSE_FAULTS` (names of kinds, by commas) chooses among faults, `HANSE_STEPS`
//! says how many.

#![allow(clippy::disallowed_methods)] // Tests run on the real machine.

mod cluster;
mod informer;
mod nemesis;
mod run;
mod sides;
mod workload;

use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result, bail};
use cluster::Subject;
use nemesis::{ALL_KINDS, Kind};
use testing::{linear::Violation, world::Disk};

/// Two clusters at once are too much for a small machine.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn take_turn() -> Result<MutexGuard<'static, ()>> {
    let turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(obstacle) = cluster::obstacle() {
        bail!("this machine cannot run the suite: {obstacle}");
    }
    Ok(turn)
}

/// What is chosen for a run, where the environment does not choose otherwise.
struct Plan<'a> {
    subject: Subject,
    seeds: &'a [u64],
    kinds: &'a [Kind],
    steps: usize,
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn chosen_kinds(otherwise: &[Kind]) -> Result<Vec<Kind>> {
    let Ok(names) = std::env::var("HANSE_FAULTS") else { return Ok(otherwise.to_vec()) };
    let kind = |name: &str| ALL_KINDS.into_iter().find(|kind| format!("{kind:?}") == name);
    names.split(',').map(|name| kind(name).with_context(|| format!("no fault {name}"))).collect()
}

/// Leaves out what this machine cannot do, and says so: all else is worth a run.
fn possible(mut kinds: Vec<Kind>) -> Result<Vec<Kind>> {
    if kinds.contains(&Kind::SlowDisk) && !Disk::can_be_slow() {
        println!(
            "SKIPPED {:?}: this machine has no block cgroup (version 1) that limits writes",
            Kind::SlowDisk
        );
        kinds.retain(|kind| *kind != Kind::SlowDisk);
    }
    anyhow::ensure!(!kinds.is_empty(), "no fault is left to try");
    Ok(kinds)
}

/// Runs every seed, says a line about each, and fails if any failed.
fn try_all(plan: &Plan) -> Result<()> {
    let _turn = take_turn()?;
    let seeds = number("HANSE_SEED").map_or(plan.seeds.to_vec(), |seed| vec![seed]);
    let steps = number("HANSE_STEPS").map_or(plan.steps, |steps| steps as usize);
    let kinds = possible(chosen_kinds(plan.kinds)?)?;
    let mut table = Vec::new();
    let mut failures = 0;
    for seed in seeds {
        let subject = plan.subject;
        println!("{subject:?}, HANSE_SEED={seed} HANSE_STEPS={steps}");
        let schedule = nemesis::schedule(seed, subject, &kinds, steps);
        // On a thread of its own, for it leaves this machine's network for good.
        let run = std::thread::spawn(move || run::run(subject, seed, &schedule));
        let verdict = match run.join() {
            Ok(Ok(summary)) => format!("passed {subject:?} seed {seed}: {summary}"),
            Ok(Err(error)) => {
                println!("{error:#}");
                failures += 1;
                format!("FAILED {subject:?} seed {seed}: {}", error.root_cause())
            }
            Err(_) => {
                failures += 1;
                format!("FAILED {subject:?} seed {seed}: panicked")
            }
        };
        println!("{verdict}");
        table.push(verdict);
    }
    println!("\n{}", table.join("\n"));
    anyhow::ensure!(failures == 0, "{failures} of {} runs failed", table.len());
    Ok(())
}

#[test]
fn one_server_on_its_own_files() -> Result<()> {
    // Each of those that concern it.
    let steps = ALL_KINDS.into_iter().filter(|kind| kind.concerns(Subject::Embedded)).count();
    try_all(&Plan { subject: Subject::Embedded, seeds: &[1], kinds: &ALL_KINDS, steps })
}

/// What happens most, in a few minutes.
const USUAL_KINDS: [Kind; 8] = [
    Kind::KillServer,
    Kind::StopServer,
    Kind::PauseServer,
    Kind::CutServerFromEtcd,
    Kind::CutServers,
    Kind::KillMember,
    Kind::KillLeader,
    Kind::Compact,
];

#[test]
fn two_servers_on_etcd() -> Result<()> {
    try_all(&Plan { subject: Subject::Etcd, seeds: &[1], kinds: &USUAL_KINDS, steps: USUAL_KINDS.len() })
}

/// Without this, a judge that sees nothing would please everybody.
#[test]
fn servers_that_share_nothing_are_found_out() -> Result<()> {
    let _turn = take_turn()?;
    let quiet = nemesis::schedule(1, Subject::Apart, &[Kind::StepClock], 1);
    let run = std::thread::spawn(move || run::judge(Subject::Apart, 1, &quiet));
    match run.join() {
        Ok(Err(error)) if error.downcast_ref::<Violation>().is_some() => {
            println!("found, as it should be: {error:#}");
            Ok(())
        }
        Ok(Err(error)) => Err(error.context("it ended without a verdict")),
        Ok(Ok(summary)) => bail!("nothing was found: {summary}"),
        Err(_) => bail!("it panicked"),
    }
}

#[test]
fn each_side_of_a_partition() -> Result<()> {
    let _turn = take_turn()?;
    std::thread::spawn(sides::run).join().unwrap_or_else(|_| bail!("it panicked"))
}

#[test]
#[ignore = "long"]
fn two_servers_on_etcd_for_long() -> Result<()> {
    let seeds: Vec<u64> = (1..=number("HANSE_SEEDS").unwrap_or(8)).collect();
    try_all(&Plan { subject: Subject::Etcd, seeds: &seeds, kinds: &ALL_KINDS, steps: ALL_KINDS.len() })
}

#[test]
#[ignore = "long"]
fn one_server_on_its_own_files_for_long() -> Result<()> {
    try_all(&Plan { subject: Subject::Embedded, seeds: &[1, 2, 3, 4], kinds: &ALL_KINDS, steps: 10 })
}

#[test]
#[ignore = "long; a calibration of the judge, not a test of Hanse"]
fn kubernetes() -> Result<()> {
    try_all(&Plan { subject: Subject::Kubernetes, seeds: &[1, 2], kinds: &ALL_KINDS, steps: 10 })
}
