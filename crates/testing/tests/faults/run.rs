//! One run: a cluster, clients and watchers, a schedule of faults, and the verdict.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use testing::{
    linear::{
        Action, Explained, History, Outcome,
        watched::{self, Stream},
    },
    patience::Patience,
};
use tokio::task::JoinHandle;

use crate::{
    cluster::{CLIENT, Cluster, Subject},
    informer::{End, Informer, Loss, Progress},
    nemesis::{self, Kind, Step},
    workload::{Record, Servers, Worker},
};

const WORKERS: usize = 3;
/// Of all collections together. What hardly took a write was hardly put to the test: busy machines make five times this.
const LEAST_WRITES_PER_STEP: usize = 30;
/// The least that a clock is off by while it is, seen by somebody who does not know exactly when that was.
const STEPPED_SECONDS: u64 = 30;

/// What was done in a run that found nothing wrong.
#[derive(Debug, Default)]
pub struct Summary {
    operations: usize,
    acknowledged: usize,
    refused: usize,
    unknown: usize,
    events: usize,
    streams: usize,
    /// Watches that had to begin anew.
    gone: usize,
    /// Collections whose objects had too many orders together, though each had one by itself.
    undecided: usize,
    answers: BTreeMap<String, usize>,
}

impl fmt::Display for Summary {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Summary { operations, acknowledged, refused, unknown, events, streams, gone, undecided, answers } =
            self;
        write!(
            formatter,
            "{operations} operations: {acknowledged} writes acknowledged, {refused} refused, "
        )?;
        write!(formatter, "{unknown} unknown; {events} events in {streams} streams, {gone} gone; ")?;
        write!(formatter, "{undecided} collections undecided as a whole; answers")?;
        answers.iter().try_for_each(|(said, count)| write!(formatter, " {said}: {count}"))
    }
}

/// Everything that happens in one collection.
struct Scene {
    record: Arc<Record>,
    end: End,
    workers: Vec<JoinHandle<()>>,
    informers: Vec<Following>,
}

struct Following {
    name: String,
    progress: Progress,
    informer: JoinHandle<(Stream, Vec<Loss>)>,
}

impl Following {
    /// What it was told, when that is everything.
    async fn until_told_all(mut self) -> Result<(Stream, Vec<Loss>)> {
        let mut patience = Patience::default();
        loop {
            if let Ok(told) = tokio::time::timeout(Duration::from_secs(1), &mut self.informer).await {
                return Ok(told?);
            }
            let is_moving = patience.lasts(self.progress.load(Ordering::Relaxed));
            ensure!(is_moving, "stream {} was never told of the last write", self.name);
        }
    }
}

/// Blocks until the run is over, and keeps its files if it failed.
///
/// # Errors
/// The violation that was found, or why there is no verdict.
pub fn run(subject: Subject, seed: u64, steps: &[Step]) -> Result<Summary> {
    let mut cluster = Cluster::start(subject)?;
    on_the_client(&mut cluster, seed, steps).map_err(|error| {
        let kept = cluster.keep();
        error.context(format!("logs are in {}", kept.display()))
    })
}

/// The same, of a run that is expected to fail.
///
/// # Errors
/// The violation that was found, or why there is no verdict.
pub fn judge(subject: Subject, seed: u64, steps: &[Step]) -> Result<Summary> {
    on_the_client(&mut Cluster::start(subject)?, seed, steps)
}

fn on_the_client(cluster: &mut Cluster, seed: u64, steps: &[Step]) -> Result<Summary> {
    let net = cluster.net.clone();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        // Clients are on a node of their own.
        .on_thread_start(move || net.move_here(CLIENT).expect("the namespace is there"))
        .build()?;
    let outcome = runtime.block_on(drive(cluster, seed, steps));
    runtime.shutdown_timeout(Duration::from_secs(5));
    outcome
}

async fn drive(cluster: &mut Cluster, seed: u64, steps: &[Step]) -> Result<Summary> {
    cluster.prepare().await?;
    let servers = cluster.servers.iter().map(|server| Ok((server.url.clone(), server.admin()?)));
    let servers: Servers = Arc::new(servers.collect::<Result<_>>()?);
    let stop = Arc::new(AtomicBool::new(false));
    let (start, ids) = (Instant::now(), Arc::new(AtomicU64::new(1)));
    let mut scenes = Vec::new();
    for collection in cluster.subject.collections() {
        let record = Arc::new(Record::new(&collection, start, ids.clone()));
        scenes.push(Scene::begin(record, &servers, seed, &stop).await?);
    }

    // Blocking, beside the clients: they run on other threads.
    let broken = tokio::task::block_in_place(|| nemesis::run(cluster, steps).and_then(|()| cluster.heal()));
    tokio::time::sleep(Duration::from_secs(2)).await;
    stop.store(true, Ordering::Relaxed);
    broken?;

    let mut summary = Summary::default();
    cluster.supervise()?;
    let kept = Kept::of(cluster);
    let furthest = scenes.iter().map(|scene| scene.record.furthest_clock()).max().unwrap_or(0);
    for scene in scenes {
        let collection = scene.record.collection.clone();
        scene.judge(&servers, &kept, &mut summary).await.with_context(|| collection)?;
    }
    cluster.check_panics()?;
    let least = LEAST_WRITES_PER_STEP * steps.len();
    let acknowledged = summary.acknowledged;
    ensure!(
        acknowledged >= least,
        "only {acknowledged} writes were acknowledged, less than {least}: {summary}"
    );
    let is_stepped = steps.iter().any(|step| step.kind == Kind::StepClock);
    ensure!(
        !is_stepped || furthest >= STEPPED_SECONDS,
        "no server's clock was off by more than {furthest} s"
    );
    Ok(summary)
}

impl Scene {
    async fn begin(
        record: Arc<Record>,
        servers: &Servers,
        seed: u64,
        stop: &Arc<AtomicBool>,
    ) -> Result<Scene> {
        let end: End = Arc::default();
        let mut informers = Vec::new();
        for server in 0..servers.len() {
            for number in 0..2 {
                let name = format!("{number} from server {server}");
                let (servers, end) = (servers.clone(), end.clone());
                let mut informer = Informer::new(name.clone(), servers, &record.collection, server, end);
                informer.begin().await?;
                let progress = informer.progress.clone();
                informers.push(Following { name, progress, informer: tokio::spawn(informer.run()) });
            }
        }
        let worker = |number| {
            let worker = Worker::new(number, seed, servers.clone(), record.clone());
            tokio::spawn(worker.run(stop.clone()))
        };
        let workers = (0..WORKERS).map(worker).collect();
        Ok(Scene { record, end, workers, informers })
    }

    async fn judge(self, servers: &Servers, kept: &Kept, summary: &mut Summary) -> Result<()> {
        for worker in self.workers {
            worker.await?;
        }
        let mut reader = Worker::new(WORKERS, 0, servers.clone(), self.record.clone());
        // What is listed lies between two writes that every watcher is told of.
        reader.write_last("before").await?;
        reader.read_all().await?;
        let end = reader.write_last("after").await?;
        self.end.store(end, Ordering::Relaxed);
        self.record.history().check_rules()?;
        let (mut streams, mut may_be_gone) = (Vec::new(), true);
        for informer in self.informers {
            let (stream, losses) = informer.until_told_all().await?;
            may_be_gone &= losses.iter().all(|loss| kept.allows(loss));
            streams.push(stream);
        }
        let history = self.record.history();
        summary.add(&history, &streams, &self.record.answers());
        let explained = check(&history, &streams, may_be_gone)?;
        summary.undecided += usize::from(explained == Explained::EachObject);
        Ok(())
    }
}

/// How much of the past servers can know.
struct Kept {
    /// A kube-apiserver's watches begin with its cache.
    is_short: bool,
    /// When somebody compacted etcd to its last revision.
    compactions: Vec<Instant>,
    /// When each server was started.
    launches: Vec<Vec<Instant>>,
}

impl Kept {
    fn of(cluster: &Cluster) -> Kept {
        Kept {
            is_short: cluster.subject == Subject::Kubernetes,
            compactions: cluster.compactions.clone(),
            launches: cluster.servers.iter().map(|server| server.launches.clone()).collect(),
        }
    }

    /// A run is shorter than Hanse keeps history. But a server that starts after somebody has compacted etcd by hand has
    /// nothing from before that, and a watcher may have been told nothing since.
    fn allows(&self, loss: &Loss) -> bool {
        let is_after = |compaction: &Instant| {
            let mut launches = self.launches[loss.server].iter();
            *compaction > loss.told && launches.any(|launch| launch > compaction && *launch < loss.at)
        };
        self.is_short || self.compactions.iter().any(is_after)
    }
}

#[test]
fn a_watch_may_end_where_somebody_has_compacted_and_a_server_was_started_since() {
    let begin = Instant::now();
    let at = |second: u64| begin + Duration::from_secs(second);
    let kept = Kept {
        is_short: false,
        compactions: vec![at(10)],
        launches: vec![vec![at(0), at(20)], vec![at(0), at(5)]],
    };
    let allows = |server, told, lost| kept.allows(&Loss { server, told: at(told), at: at(lost) });
    assert!(allows(0, 9, 21));
    assert!(!allows(0, 11, 21), "it was told something from after that");
    assert!(!allows(0, 9, 19), "this server has run all the time");
    assert!(!allows(1, 9, 21), "and so has the other one");
}

fn check(history: &History, streams: &[Stream], may_be_gone: bool) -> Result<Explained> {
    let log = watched::check(streams, may_be_gone)?;
    for op in history.ops.iter().filter(|op| op.action == Action::List) {
        if let Outcome::Listed { revision, items } = &op.outcome {
            for stream in streams {
                watched::check_cache(stream, op.server, *revision, items)?;
            }
        }
    }
    Ok(history.check(log.is_complete.then_some(&log.commits))?)
}

impl Summary {
    fn add(&mut self, history: &History, streams: &[Stream], answers: &BTreeMap<String, usize>) {
        let count = |is: &dyn Fn(&Outcome) -> bool| {
            history.ops.iter().filter(|op| op.action.is_write() && is(&op.outcome)).count()
        };
        self.operations += history.ops.len();
        self.acknowledged += count(&|it| matches!(it, Outcome::Written(_) | Outcome::Deleted));
        self.refused += count(&|it| matches!(it, Outcome::Refused(_)));
        self.unknown += count(&|it| *it == Outcome::Unknown);
        self.streams += streams.len();
        let is_event = |told: &&watched::Told| matches!(told, watched::Told::Event(_));
        let told = || streams.iter().flat_map(|stream| &stream.told);
        self.events += told().filter(is_event).count();
        self.gone += told().filter(|told| **told == watched::Told::Gone).count();
        for (said, times) in answers {
            *self.answers.entry(said.clone()).or_default() += times;
        }
    }
}
