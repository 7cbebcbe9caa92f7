//! Ends a seed on which no virtual time passes any more, and tells what was going on.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use crate::history::History;

/// So long of real time may pass without any virtual.
const LONGEST: Duration = Duration::from_secs(if cfg!(debug_assertions) { 90 } else { 45 });
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
        let mut last = u64::MAX;
        loop {
            let now = ticks.load(Ordering::Relaxed);
            if now == last {
                println!("{}", report(seed, &history));
                std::process::exit(1);
            }
            last = now;
            std::thread::sleep(LONGEST);
        }
    });
}

fn report(seed: u64, history: &History) -> String {
    let said = history.said().join("\n  ");
    let (count, last) = history.read(|notes| {
        let last = notes.iter().rev().take(SHOWN).rev();
        let lines: Vec<String> = last.map(|(time, note)| format!("{time:?} {}", note.line())).collect();
        (notes.len(), lines.join("\n  "))
    });
    format!(
        "seed {seed}: no virtual time has passed for {LONGEST:?}. What happened:\n  {said}\n{count} changes, the last:\n  {last}"
    )
}
