//! A crowd of watchers that wait: what each costs while nothing happens, and how long an event takes to reach all.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use hyper::body::Incoming;
use memchr::memmem;
use parking_lot::Mutex;
use tokio::{sync::Notify, task::JoinSet, time::timeout};

use crate::{
    client::{self, Connection, Endpoint},
    figures::{Crowd, CrowdFigure, Errors, Spread},
    lists::{Lines, next_chunk},
    machine::{self, Reading},
    objects::{self, Kind, Population, Verb},
};

/// Streams on one connection: as many as kube-apiserver allows.
const STREAMS: usize = 100;
/// Connections on which watches are being opened at once.
const OPENING: usize = 32;
/// How long an event may take before it counts as lost.
const GRACE: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy)]
pub struct Load {
    pub crowd: Crowd,
    pub watchers: usize,
    /// Before memory is looked at.
    pub settle: Duration,
    /// Long enough for bookmarks to come, which are sent every minute or so.
    pub idle: Duration,
    /// Each is awaited by everybody before the next.
    pub writes: usize,
}

impl Load {
    fn connections(&self) -> usize {
        match self.crowd {
            Crowd::Shared => self.watchers.div_ceil(STREAMS),
            Crowd::Own => self.watchers,
        }
    }
}

/// One figure of a crowd for each of what there is to know.
pub type Figures = Vec<(CrowdFigure, f64)>;

/// How far one write has come.
struct Round {
    write: AtomicUsize,
    arrived: AtomicUsize,
    half_at: Mutex<Option<Instant>>,
    last_at: Mutex<Option<Instant>>,
    watchers: usize,
    complete: Notify,
    wrong: AtomicU64,
}

impl Round {
    fn saw(&self, write: usize) {
        if write != self.write.load(Ordering::Relaxed) {
            self.wrong.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let arrived = self.arrived.fetch_add(1, Ordering::Relaxed) + 1;
        if arrived == self.watchers.div_ceil(2) {
            *self.half_at.lock() = Some(Instant::now());
        }
        if arrived == self.watchers {
            *self.last_at.lock() = Some(Instant::now());
            self.complete.notify_one();
        }
    }

    fn begin(&self, write: usize) {
        self.arrived.store(0, Ordering::Relaxed);
        *self.half_at.lock() = None;
        *self.last_at.lock() = None;
        self.write.store(write, Ordering::Relaxed);
    }
}

/// `server` is the processes of a server that has settled. `population` is in a namespace that is empty.
pub async fn measure(
    load: Load,
    endpoint: &Endpoint,
    population: &Population,
    server: &[u32],
) -> Result<Figures> {
    let mut writer = endpoint.connect().await?;
    let path = Kind::ConfigMap.collection(&population.namespace);
    let list = writer.call(client::get(endpoint.uri(&path)?)).await?;
    let version = objects::resource_version(&list).context("a list without a resourceVersion")?;
    let empty = machine::resident(server)?;

    let before = Reading::take(server)?;
    let started = Instant::now();
    let streams = open(load, endpoint, &path, version).await?;
    let (opened_in, opening) = (started.elapsed(), before.until(Reading::take(server)?));
    ensure!(streams.len() == load.watchers, "{} watches opened of {}", streams.len(), load.watchers);

    let round = Arc::new(Round {
        write: AtomicUsize::new(usize::MAX),
        arrived: AtomicUsize::new(0),
        half_at: Mutex::new(None),
        last_at: Mutex::new(None),
        watchers: load.watchers,
        complete: Notify::new(),
        wrong: AtomicU64::new(0),
    });
    let mut watching = JoinSet::new();
    // A stream ends when nobody holds its connection.
    let mut connections = Vec::new();
    for (connection, stream) in streams {
        watching.spawn(follow(stream, Arc::clone(&round)));
        connections.push(connection);
    }
    tokio::time::sleep(load.settle).await;
    let crowded = machine::resident(server)?;
    let before = Reading::take(server)?;
    tokio::time::sleep(load.idle).await;
    let idle = before.until(Reading::take(server)?);

    let watchers = load.watchers as f64;
    let mut found = vec![
        (CrowdFigure::Watchers, watchers),
        (CrowdFigure::OpenedPerSecond, watchers / opened_in.as_secs_f64()),
        (CrowdFigure::OpenCpu, opening.server.as_secs_f64() * 1e6 / watchers),
        (CrowdFigure::Memory, crowded.saturating_sub(empty) as f64 / 1024.0 / watchers),
        (CrowdFigure::IdleCpu, 100.0 * idle.server.as_secs_f64() / idle.elapsed.as_secs_f64()),
    ];
    found.extend(write(load, &mut writer, population, &round, server).await?);
    watching.shutdown().await;
    Ok(found)
}

/// Writes one object after the other, each when everybody has the one before.
async fn write(
    load: Load,
    writer: &mut Connection,
    population: &Population,
    round: &Round,
    server: &[u32],
) -> Result<Figures> {
    let (mut half, mut all, mut errors) = (Vec::new(), Vec::new(), Errors::default());
    let before = Reading::take(server)?;
    for write in 0..load.writes {
        round.begin(write);
        let sent = Instant::now();
        if let Err(failure) = writer.call(population.request(Verb::Create, write)).await {
            errors.add(&failure);
            continue;
        }
        if timeout(GRACE, round.complete.notified()).await.is_err() {
            let missed = load.watchers - round.arrived.load(Ordering::Relaxed).min(load.watchers);
            round.wrong.fetch_add(missed as u64, Ordering::Relaxed);
            continue;
        }
        let after = |at: &Mutex<Option<Instant>>| {
            at.lock().map_or(f64::NAN, |at| at.saturating_duration_since(sent).as_secs_f64() * 1e3)
        };
        half.push(after(&round.half_at));
        all.push(after(&round.last_at));
    }
    ensure!(errors.count == 0, "{} writes failed, first: {}", errors.count, errors.first.unwrap_or_default());
    let usage = before.until(Reading::take(server)?);
    let events = (load.writes * load.watchers) as f64;
    let (half, all) = (Spread::of(half).context("no event came")?, Spread::of(all).context("no event came")?);
    Ok(vec![
        (CrowdFigure::HalfHaveIt, half.median),
        (CrowdFigure::AllHaveIt, all.median),
        (CrowdFigure::AllHaveItWorst, all.high),
        (CrowdFigure::EventCpu, usage.server.as_secs_f64() * 1e6 / events),
        (CrowdFigure::Wrong, round.wrong.load(Ordering::Relaxed) as f64),
    ])
}

async fn follow(mut stream: Incoming, round: Arc<Round>) {
    let mut lines = Lines::default();
    while let Ok(Some(chunk)) = next_chunk(&mut stream).await {
        lines.feed(&chunk, |event| {
            if memmem::find(event, br#""type":"BOOKMARK""#).is_some() {
                return;
            }
            if let Some(write) = objects::index(event) {
                round.saw(write);
            }
        });
    }
}

/// Opens the watches, one after the other on each connection, on several connections at once.
async fn open(
    load: Load,
    endpoint: &Endpoint,
    path: &str,
    version: u64,
) -> Result<Vec<(Connection, Incoming)>> {
    let query =
        format!("{path}?watch=1&allowWatchBookmarks=true&timeoutSeconds=3600&resourceVersion={version}");
    let uri = endpoint.uri(&query)?;
    let next = Arc::new(AtomicUsize::new(0));
    let (connections, watchers) = (load.connections(), load.watchers);
    let mut opening = JoinSet::new();
    for _ in 0..OPENING.min(connections) {
        let (endpoint, uri, next) = (endpoint.clone(), uri.clone(), Arc::clone(&next));
        opening.spawn(async move {
            let mut streams = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= connections {
                    return anyhow::Ok(streams);
                }
                let mut connection = endpoint.connect().await?;
                // As evenly as can be.
                let share = watchers * (number + 1) / connections - watchers * number / connections;
                for _ in 0..share {
                    let stream = connection.open(client::get(uri.clone())).await?.into_body();
                    streams.push((connection.clone(), stream));
                }
            }
        });
    }
    let mut all = Vec::with_capacity(watchers);
    while let Some(opened) = opening.join_next().await {
        all.extend(opened??);
    }
    Ok(all)
}
