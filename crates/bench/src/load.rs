//! Closed loops: N workers, each sending its next request when the last one is answered.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::Result;
use parking_lot::Mutex;
use tokio::task::JoinSet;

use crate::{
    client::{Connection, Failure},
    figures::{Errors, Latencies, Sample},
    machine::Reading,
    objects::{Population, Verb},
};

/// A row ends with whichever comes first.
#[derive(Debug, Clone, Copy)]
pub struct Limit {
    pub requests: usize,
    pub duration: Duration,
}

/// No row is meant to end by this.
const NO_LIMIT: Duration = Duration::from_secs(1200);

impl Limit {
    pub fn all_of(requests: usize) -> Self {
        Self { requests, duration: NO_LIMIT }
    }

    pub fn for_a(duration: Duration) -> Self {
        Self { requests: usize::MAX, duration }
    }
}

/// What the workers of one row share. They run on one thread: the lock is never contended.
struct Row {
    population: Arc<Population>,
    verb: Verb,
    limit: Limit,
    started: Instant,
    next: AtomicUsize,
    tally: Mutex<Tally>,
}

#[derive(Default)]
struct Tally {
    latencies: Latencies,
    received: u64,
    errors: Errors,
}

/// Runs one row: `verb` on the objects of `population`, in order.
pub async fn closed_loop(
    population: &Arc<Population>,
    verb: Verb,
    connections: &[Connection],
    workers: usize,
    limit: Limit,
    server: &[u32],
) -> Result<Sample> {
    let before = Reading::take(server)?;
    let row = Arc::new(Row {
        population: Arc::clone(population),
        verb,
        limit,
        started: Instant::now(),
        next: AtomicUsize::new(0),
        tally: Mutex::default(),
    });
    let mut tasks = JoinSet::new();
    for connection in connections.iter().cycle().take(workers) {
        tasks.spawn(Arc::clone(&row).work(connection.clone()));
    }
    tasks.join_all().await;
    let elapsed = row.started.elapsed();
    let usage = before.until(Reading::take(server)?);
    let tally = std::mem::take(&mut *row.tally.lock());
    Ok(Sample {
        operations: tally.latencies.len(),
        timed: elapsed,
        latencies: tally.latencies,
        received: tally.received,
        errors: tally.errors,
        usage,
    })
}

impl Row {
    async fn work(self: Arc<Self>, mut connection: Connection) {
        loop {
            let sequence = self.next.fetch_add(1, Ordering::Relaxed);
            if sequence >= self.limit.requests || self.started.elapsed() >= self.limit.duration {
                return;
            }
            let request = self.population.request(self.verb, sequence);
            let sent = Instant::now();
            let answer = connection.call(request).await;
            let latency = sent.elapsed();
            let mut tally = self.tally.lock();
            match answer {
                Ok(body) => {
                    tally.latencies.record(latency);
                    tally.received += body.len() as u64;
                    self.population.answered(sequence, &body);
                }
                Err(failure) => {
                    tally.errors.add(&failure);
                    if matches!(failure, Failure::Broken(_)) {
                        return;
                    }
                }
            }
        }
    }
}
