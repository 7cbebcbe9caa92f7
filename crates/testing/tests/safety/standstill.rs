//! Ends a seed on which no virtual time passes any more, and tells what was going on.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use rustix::time::{ClockId, clock_gettime};

use crate::history::History;

/// So long it may work without that any virtual time passes. The time of the processor counts, not that of the machine, which
/// may have others to work for.
const LONGEST: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Of virtual time; a seed takes hours of it.
const TICK: Duration = Duration::from_secs(5);
/// So much of what was written last is shown.
const SHOWN: usize = 60;

/// Call it on the clock that is to be watched.
pub fn watch(seed: u64, history: Arc<History>) {
    let ticks = Arc::new(AtomicU64::new(0));
    let counted = ticks.clone();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(TICK).await;
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    std::thread::spawn(move || {
        let (mut last, mut since) = (u64::MAX, spent());
        loop {
            let now = ticks.load(Ordering::Relaxed);
            if now != last {
                (last, since) = (now, spent());
            } else if spent().saturating_sub(since) > LONGEST {
                println!("{}", report(seed, &history));
                std::process::exit(1);
            }
            std::thread::sleep(LOOK_EVERY);
        }
    });
}

/// What this process has had of the processor.
fn spent() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default()
}

fn report(seed: u64, history: &History) -> String {
    let said = history.said().join("\n  ");
    let (count, last) = history.read(|notes| {
        let last = notes.iter().rev().take(SHOWN).rev();
        let lines: Vec<String> = last.map(|(time, note)| format!("{time:?} {}", note.line())).collect();
        (notes.len(), lines.join("\n  "))
    });
    format!(
        "seed {seed}: no virtual time has passed in {LONGEST:?} of work. What happened:\n  {said}\n{count} changes, the last:\n  {last}"
    )
}
