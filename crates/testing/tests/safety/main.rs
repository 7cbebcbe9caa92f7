//! Hub, sessions, links and members break at random while users work: no copy that is still wanted is ever deleted, all
//! is as it should be in the end, and nothing is written once it is.
//!
//! Once for real, with the program as a process that is killed; and on simulated machines, from seeds.
//! There each seed is a hub with members on a virtual clock, disk and network. A failing seed prints its number; run it alone
//! with `HANSE_SEED=<number>`. `HANSE_SEEDS` says how many to try.

#![allow(clippy::disallowed_methods)] // Tests run on the real machine.

mod acts;
mod history;
mod machine;
mod members;
mod play;
mod real;
mod rest;
mod wanted;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    time::Duration,
};

use parking_lot::Mutex;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// As many as take about a minute.
const SEEDS: u64 = if cfg!(debug_assertions) { 6 } else { 11 };
/// A seed on which no virtual time passes any more would never end.
const STANDSTILL: Duration = Duration::from_secs(600);

#[test]
fn what_is_wanted_is_never_deleted_and_all_comes_to_rest() {
    let (first, count) = match number("HANSE_SEED") {
        Some(seed) => (seed, 1),
        None => (0, number("HANSE_SEEDS").unwrap_or(SEEDS)),
    };
    let next = AtomicU64::new(first);
    let failed = Mutex::new(Vec::new());
    let threads = std::thread::available_parallelism().map_or(1, |it| it.get());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + count {
                        return;
                    }
                    if let Err(why) = run(seed) {
                        println!("seed {seed}: {why}");
                        failed.lock().push(seed);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner();
    assert!(failed.is_empty(), "{} of {count} failed; replay with HANSE_SEED=: {failed:?}", failed.len());
}

/// On a clock that jumps to the next moment at which anything is to happen.
fn run(seed: u64) -> Result<(), String> {
    let (done, watched) = mpsc::channel::<()>();
    std::thread::spawn(move || {
        if watched.recv_timeout(STANDSTILL) == Err(mpsc::RecvTimeoutError::Timeout) {
            eprintln!("seed {seed} has run for {STANDSTILL:?}: nothing ends there any more");
            std::process::exit(1);
        }
    });
    let played = catch_unwind(AssertUnwindSafe(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.map_err(anyhow::Error::from).and_then(|runtime| runtime.block_on(play::play(seed)))
    }));
    drop(done);
    match played {
        Ok(done) => done.map_err(|error| format!("{error:#}")),
        Err(_) => Err("it panicked, as said above".to_owned()),
    }
}
