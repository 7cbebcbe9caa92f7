//! Crashes: whatever happens to the disk, what was acknowledged is there and nothing else is.
//!
//! Each seed is a machine with a simulated disk. Writers, a janitor and watchers run on it until the power goes, the
//! process is killed, the disk fails, or the store is closed; then the store is opened again, now and then with
//! another crash in the middle of that, and compared with a [`model`]. A failing seed prints its number; run it alone
//! with `HANSE_SEED=<number>`. `HANSE_SEEDS` says how many to try.

#[path = "crash/model.rs"]
mod model;
#[path = "crash/world.rs"]
mod world;

use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    path::Path,
    time::Duration,
};

use env::{
    Env,
    files::sim::{Fault, Operation, SimDisk},
    network::sim::SimNet,
    random::SeededRandom,
};
use store::embedded::{EmbeddedStore, OpenError, Options, check, restore};

use model::{Model, Tally};

const DATA: &str = "/data";

fn seeds() -> Vec<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    if let Some(seed) = number("HANSE_SEED") {
        return vec![seed];
    }
    let default = if cfg!(debug_assertions) { 150 } else { 2000 };
    (0..number("HANSE_SEEDS").unwrap_or(default)).collect()
}

/// Everything small, so that segments roll and checkpoints are taken all the time; for some seeds less so, because
/// then most changes to the disk are commits.
fn options(random: &SeededRandom, short_history: bool) -> Options {
    let roomy = 1 + 20 * random.below(2);
    Options {
        first_segment_bytes: 4096 * (2 + random.below(8)) * roomy,
        segment_bytes: 4096 * (3 + random.below(12)) * roomy,
        ring_bytes: 1 << random.below(16),
        checkpoint_bytes: 4096 * (2 + random.below(30)) * roomy,
        history_time: if short_history { Duration::ZERO } else { Duration::from_secs(300) },
        history_bytes: if short_history { 4096 * (4 + random.below(40)) } else { 1 << 30 },
        batch_bytes: 4096 * (1 + random.below(10) as usize),
        batch_commits: 1 + random.below(6) as usize,
        queue: 1 + random.below(8) as usize,
        idle_before_mark: Duration::from_millis(20),
        ..Options::default()
    }
}

/// How a round of work ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The power goes in the middle of a change to the disk.
    Power,
    /// The process goes; the system's cache survives.
    Kill,
    /// A write or sync fails, then the process is killed.
    Fault,
    Close,
}

struct Machine {
    seed: u64,
    random: SeededRandom,
    disk: SimDisk,
    options: Options,
    model: Model,
}

/// Every process gets a runtime of its own, so that nothing of it outlives it.
fn process<T>(work: impl AsyncFnOnce() -> T) -> T {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).build().expect("a runtime");
    runtime.block_on(work())
}

impl Machine {
    fn new(seed: u64) -> Self {
        let random = SeededRandom::new(seed);
        let short_history = random.below(3) == 0;
        let options = options(&random, short_history);
        Self { seed, disk: SimDisk::new(seed), options, model: Model::new(short_history), random }
    }

    fn env(&self) -> Env {
        Env::simulated(self.seed, self.disk.clone(), SimNet::default())
    }

    /// Opens the store; the power may go while it does, any number of times.
    fn open(&mut self) -> EmbeddedStore {
        loop {
            let opened = EmbeddedStore::open(&self.env(), Path::new(DATA), self.options.clone());
            match opened {
                Ok(store) => return store,
                Err(OpenError::Io { .. }) if !self.disk.has_power() => {
                    self.model.tally.crashes_while_starting += 1;
                    self.disk.crash();
                    if self.random.below(2) == 0 {
                        self.disk.crash_after(self.random.below(12));
                    }
                }
                Err(other) => panic!("the store does not start: {other}"),
            }
        }
    }

    fn run(mut self) -> Tally {
        let rounds = 2 + self.random.below(5);
        for round in 0..rounds {
            let end = [End::Power, End::Power, End::Power, End::Kill, End::Fault, End::Close]
                [self.random.below(6) as usize];
            self.round(round, end);
            if self.random.below(3) == 0 {
                self.check();
            }
        }
        process(async || {
            let store = self.open();
            self.model.compare(&store);
            store.close().await.expect("closes");
        });
        self.check();
        self.back_up_and_restore();
        Tally { disk_changes: self.disk.changes(), ..self.model.tally }
    }

    fn round(&mut self, round: u64, end: End) {
        if end == End::Power && self.random.below(4) == 0 {
            self.disk.crash_after(self.random.below(12));
        }
        process(async || {
            let store = self.open();
            self.model.compare(&store);
            if end == End::Power {
                self.disk.crash_after(self.random.below(100));
            }
            if end == End::Fault || (end == End::Power && self.random.below(3) == 0) {
                self.disk.inject(Fault {
                    operation: [Operation::Sync, Operation::Write][self.random.below(2) as usize],
                    skip: self.random.below(60),
                    kind: io::ErrorKind::Other,
                    sticky: self.random.below(3) == 0,
                });
            }
            let work = world::work(store.clone(), self.model.shared(), self.seed * 1000 + round);
            if end == End::Kill {
                let steps = self.random.below(400);
                world::run_for(work, steps).await;
            } else {
                work.await;
            }
            if end == End::Close {
                store.close().await.expect("closes");
            }
        });
        self.disk.clear_faults();
        // Without a crash the system's cache is still there for the next process.
        if end == End::Power || !self.disk.has_power() {
            self.disk.crash();
        }
    }

    /// Whatever the crash left, none of it counts as damage.
    fn check(&mut self) {
        process(async || {
            let report = check(&self.env(), Path::new(DATA)).expect("can be checked");
            assert!(report.damage.is_empty(), "{report:?}");
            self.model.tally.incomplete_writes += u64::from(report.incomplete.is_some());
        });
    }

    fn back_up_and_restore(&mut self) {
        let (backup, elsewhere) = (Path::new("/backup/file"), Path::new("/restored"));
        process(async || {
            let store = self.open();
            self.env().files.create_dir_all(Path::new("/backup")).expect("a directory");
            store.backup(backup).await.expect("backs up");
            restore(&self.env(), backup, elsewhere).expect("restores");
            let restored = EmbeddedStore::open(&self.env(), elsewhere, self.options.clone()).expect("opens");
            self.model.compare_restored(&store, &restored);
        });
    }
}

#[test]
fn nothing_acknowledged_is_lost_and_nothing_else_appears() {
    let mut total = Tally::default();
    let seeds = seeds();
    for seed in &seeds {
        match catch_unwind(AssertUnwindSafe(|| Machine::new(*seed).run())) {
            Ok(tally) => total += tally,
            Err(panic) => {
                eprintln!("failed with HANSE_SEED={seed}");
                resume_unwind(panic);
            }
        }
    }
    println!("{} seeds: {total:?}", seeds.len());
    if seeds.len() > 100 {
        assert!(total.crashes_while_starting > 20 && total.incomplete_writes > 5, "{total:?}");
        assert!(total.unanswered_kept > 20 && total.unanswered_lost > 20, "{total:?}");
        assert!(total.without_history > 20, "{total:?}");
    }
}

#[test]
fn a_seed_replays() {
    for seed in 0..20 {
        assert_eq!(Machine::new(seed).run(), Machine::new(seed).run(), "seed {seed}");
    }
}
