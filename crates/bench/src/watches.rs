//! Many watchers on one stream of writes: how late events arrive, and whether each arrives once and in order.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use hyper::body::Incoming;
use parking_lot::Mutex;
use tokio::{
    sync::Semaphore,
    task::JoinSet,
    time::{Instant as TokioInstant, sleep, sleep_until},
};

use crate::{
    client::{self, Connection, Endpoint, Failure},
    figures::{Errors, Latencies, WatchSample},
    lists::{Lines, next_chunk},
    machine::Reading,
    objects::{self, Kind, Population, Verb},
};

#[derive(Debug, Clone, Copy)]
pub struct Load {
    pub watchers: usize,
    /// Writes per second.
    pub rate: u32,
    pub duration: Duration,
}

impl Load {
    pub fn writes(&self) -> usize {
        (f64::from(self.rate) * self.duration.as_secs_f64()).round() as usize
    }
}

/// Writes in flight at most; a server that falls behind by more gets a lower rate.
const IN_FLIGHT: usize = 64;
/// How long after the last write an event may arrive before it counts as lost.
const GRACE: Duration = Duration::from_secs(10);
const MOST_REOPENINGS: usize = 100;
const REOPEN_PAUSE: Duration = Duration::from_millis(10);

/// When each write was sent and answered, in nanoseconds since the start; 0: not yet.
struct Timeline {
    origin: Instant,
    sent: Vec<AtomicU64>,
    answered: Vec<AtomicU64>,
}

impl Timeline {
    fn new(writes: usize) -> Self {
        let blank = || (0..writes).map(|_| AtomicU64::new(0)).collect();
        Self { origin: Instant::now(), sent: blank(), answered: blank() }
    }

    fn mark(&self, moments: &[AtomicU64], write: usize) {
        moments[write].store(self.now(), Ordering::Relaxed);
    }

    fn now(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn was_written(&self, write: usize) -> bool {
        self.answered[write].load(Ordering::Relaxed) != 0
    }
}

/// What all watchers saw.
#[derive(Default)]
struct Arrivals {
    events: u64,
    after_answer: Latencies,
    after_request: Latencies,
    duplicate: u64,
    reordered: u64,
    closed: u64,
}

/// What one watcher saw.
struct Watcher {
    seen: Vec<bool>,
    last_version: u64,
}

impl Watcher {
    fn new(writes: usize) -> Self {
        Self { seen: vec![false; writes], last_version: 0 }
    }

    fn observe(&mut self, event: &[u8], now: u64, timeline: &Timeline, arrivals: &mut Arrivals) {
        let (Some(write), Some(version)) = (objects::index(event), objects::resource_version(event)) else {
            return;
        };
        let Some(seen) = self.seen.get_mut(write) else { return };
        if std::mem::replace(seen, true) {
            arrivals.duplicate += 1;
            return;
        }
        if version <= self.last_version {
            arrivals.reordered += 1;
        }
        self.last_version = version;
        arrivals.events += 1;
        let sent = timeline.sent[write].load(Ordering::Relaxed);
        arrivals.after_request.record(Duration::from_nanos(now.saturating_sub(sent)));
        let answered = match timeline.answered[write].load(Ordering::Relaxed) {
            0 => now,
            answered => answered,
        };
        arrivals.after_answer.record(Duration::from_nanos(now.saturating_sub(answered)));
    }
}

struct Shared {
    timeline: Timeline,
    arrivals: Mutex<Arrivals>,
    errors: Mutex<Errors>,
    /// A connection is gone: what is left would fail alike.
    broken: AtomicBool,
}

/// Creates the objects of `population` at a steady rate while `load.watchers` watch its namespace.
pub async fn measure(
    load: Load,
    endpoint: &Endpoint,
    connections: &[Connection],
    population: &Arc<Population>,
    server: &[u32],
) -> Result<WatchSample> {
    let writes = population.count();
    let shared = Arc::new(Shared {
        timeline: Timeline::new(writes),
        arrivals: Mutex::default(),
        errors: Mutex::default(),
        broken: AtomicBool::new(false),
    });
    let mut watching = JoinSet::new();
    let watchers: Vec<_> = (0..load.watchers).map(|_| Arc::new(Mutex::new(Watcher::new(writes)))).collect();
    let streams = open(load.watchers, endpoint, connections, &population.namespace).await?;
    for (watcher, (feed, stream)) in watchers.iter().zip(streams) {
        watching.spawn(feed.follow(stream, Arc::clone(watcher), Arc::clone(&shared)));
    }

    let before = Reading::take(server)?;
    let started = Instant::now();
    write(load, connections, population, &shared).await;
    let elapsed = started.elapsed();
    let usage = before.until(Reading::take(server)?);
    let written = (0..writes).filter(|write| shared.timeline.was_written(*write)).count();
    wait_for_events((written * load.watchers) as u64, &shared).await;
    watching.shutdown().await;

    let missed = |watcher: &Mutex<Watcher>| {
        let watcher = watcher.lock();
        (0..writes).filter(|write| shared.timeline.was_written(*write) && !watcher.seen[*write]).count()
            as u64
    };
    let lost = watchers.iter().map(|watcher| missed(watcher)).sum();
    let arrivals = std::mem::take(&mut *shared.arrivals.lock());
    let errors = shared.errors.lock().clone();
    Ok(WatchSample {
        watchers: load.watchers,
        wanted: load.rate.into(),
        achieved: written as f64 / elapsed.as_secs_f64(),
        events: arrivals.events,
        after_answer: arrivals.after_answer,
        after_request: arrivals.after_request,
        lost,
        duplicate: arrivals.duplicate,
        reordered: arrivals.reordered,
        closed: arrivals.closed,
        errors,
        usage,
    })
}

/// A watch that is opened again where it ended: a server may close one that is too slow for it.
struct Feed {
    connection: Connection,
    endpoint: Endpoint,
    path: String,
    version: u64,
}

impl Feed {
    async fn open(&mut self) -> Result<Incoming> {
        let query = format!("{}?watch=1&resourceVersion={}", self.path, self.version);
        Ok(self.connection.open(client::get(self.endpoint.uri(&query)?)).await?.into_body())
    }

    /// Reads until it is given up.
    async fn follow(mut self, mut stream: Incoming, watcher: Arc<Mutex<Watcher>>, shared: Arc<Shared>) {
        for _ in 0..MOST_REOPENINGS {
            let mut lines = Lines::default();
            while let Ok(Some(chunk)) = next_chunk(&mut stream).await {
                let now = shared.timeline.now();
                let (mut watcher, mut arrivals) = (watcher.lock(), shared.arrivals.lock());
                lines.feed(&chunk, |event| watcher.observe(event, now, &shared.timeline, &mut arrivals));
            }
            shared.arrivals.lock().closed += 1;
            self.version = self.version.max(watcher.lock().last_version);
            sleep(REOPEN_PAUSE).await;
            match self.open().await {
                Ok(reopened) => stream = reopened,
                Err(_) => return,
            }
        }
    }
}

/// Opens the watches, all from the namespace's present version, spread over the connections.
async fn open(
    watchers: usize,
    endpoint: &Endpoint,
    connections: &[Connection],
    namespace: &str,
) -> Result<Vec<(Feed, Incoming)>> {
    let path = Kind::ConfigMap.collection(namespace);
    let list = connections[0].clone().call(client::get(endpoint.uri(&path)?)).await?;
    let version = objects::resource_version(&list).context("a list without a resourceVersion")?;
    let mut streams = Vec::with_capacity(watchers);
    for connection in connections.iter().cycle().take(watchers) {
        let (connection, endpoint, path) = (connection.clone(), endpoint.clone(), path.clone());
        let mut feed = Feed { connection, endpoint, path, version };
        let stream = feed.open().await?;
        streams.push((feed, stream));
    }
    Ok(streams)
}

/// An open loop: each write has its moment, whatever became of the ones before.
async fn write(load: Load, connections: &[Connection], population: &Arc<Population>, shared: &Arc<Shared>) {
    let permits = Arc::new(Semaphore::new(IN_FLIGHT));
    let started = TokioInstant::now();
    let mut writing = JoinSet::new();
    for (index, connection) in (0..population.count()).zip(connections.iter().cycle()) {
        sleep_until(started + Duration::from_secs_f64(index as f64 / f64::from(load.rate))).await;
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
        if shared.broken.load(Ordering::Relaxed) {
            break;
        }
        let one = write_one(index, connection.clone(), Arc::clone(population), Arc::clone(shared));
        writing.spawn(async move {
            one.await;
            drop(permit);
        });
        while writing.try_join_next().is_some() {}
    }
    writing.join_all().await;
}

async fn write_one(
    index: usize,
    mut connection: Connection,
    population: Arc<Population>,
    shared: Arc<Shared>,
) {
    let request = population.request(Verb::Create, index);
    shared.timeline.mark(&shared.timeline.sent, index);
    match connection.call(request).await {
        Ok(_) => shared.timeline.mark(&shared.timeline.answered, index),
        Err(failure) => {
            shared.broken.fetch_or(matches!(failure, Failure::Broken(_)), Ordering::Relaxed);
            shared.errors.lock().add(&failure);
        }
    }
}

async fn wait_for_events(expected: u64, shared: &Shared) {
    let deadline = Instant::now() + GRACE;
    while shared.arrivals.lock().events < expected && Instant::now() < deadline {
        sleep(Duration::from_millis(20)).await;
    }
}
