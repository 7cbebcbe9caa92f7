//! The benchmark `api`: the same requests to kube-apiserver + etcd, to Hanse and to Hanse on etcd, one after the
//! other, each on fresh data and with the same things switched on ([`setting`]).
//!
//! One repetition with one server, as far as its parts are asked for:
//!
//! ```text
//!   start ─ settle ─ create all ─ settle ─ restart ─ get ─ lists ─ update ─ patch ─ apply ─ watch ─ delete ─ stop
//!     │        │                     │        │
//!   ready    idle memory       loaded memory  ready with data
//! ```
//!
//! and once per server: a series with more objects ([`series`]), and a crowd of watchers ([`crowds`]).

use std::{collections::BTreeMap, fs, path::PathBuf, time::Duration};

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use tokio::time::sleep;

use crate::{
    figures::{Crowd, Figure, ListKind, Repetition},
    load::Limit,
    machine::{self, Reading},
    objects::{Kind, Verb},
    report,
    servers::{self, Ready, Server, Subject},
    session::Session,
    watchers, watches,
};

#[derive(Args)]
pub struct Options {
    /// ConfigMaps in the namespace that is filled and read. The first number is for all parts but `series`; of the
    /// others, each is a series of its own
    #[arg(long, value_delimiter = ',', default_value = "10000,50000,200000",
          value_parser = clap::value_parser!(u32).range(100..=999_999))]
    objects: Vec<u32>,
    /// What is measured
    #[arg(long, value_delimiter = ',', default_value = "writes,lists,watch,watchers,series,memory")]
    parts: Vec<Part>,
    /// Which servers
    #[arg(long, value_delimiter = ',', default_value = "kube,hanse,hanse-etcd")]
    engines: Vec<Subject>,
    /// Concurrent requests, one set of rows for each; namespaces are filled with the highest
    #[arg(long, value_delimiter = ',', default_value = "1,32", value_parser = clap::value_parser!(u16).range(1..=1000))]
    workers: Vec<u16>,
    /// Watchers of `watchers`; a tenth of them on connections of their own
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(10..=100_000))]
    watchers: u32,
    /// Seconds per row; creating and deleting all objects takes as long as it takes
    #[arg(long, default_value_t = 3.0)]
    duration: f64,
    /// Repetitions per server, each with fresh data; the servers take turns in going first. A series and a crowd of
    /// watchers are measured once
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    repeat: u16,
    /// Where the page is written, besides stdout
    #[arg(long)]
    out: Option<PathBuf>,
    /// One short repetition with few objects and watchers, to see that everything works
    #[arg(long)]
    quick: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Part {
    /// Requests for one object
    Writes,
    /// Lists, and how informers start
    Lists,
    /// 200 watchers on 500 writes per second
    Watch,
    /// Very many watchers that wait
    Watchers,
    /// More objects: requests, lists, memory
    Series,
    /// How soon it is ready, and how much memory it takes
    Memory,
}

/// What is done.
pub struct Plan {
    pub parts: Vec<Part>,
    pub objects: usize,
    /// Of the series.
    pub larger: Vec<usize>,
    /// Ascending.
    pub workers: Vec<usize>,
    pub duration: Duration,
    pub repetitions: usize,
    pub subjects: Vec<Subject>,
    pub crowds: [watchers::Load; 2],
    pub watch: watches::Load,
    settle: Duration,
}

/// As many as in the figures this is compared with.
pub const CONNECTIONS: usize = 4;
/// Bytes of payload.
pub const PAYLOAD: usize = 1024;
pub const WATCH_PAYLOAD: usize = 256;
/// In a series one object in so many is updated.
pub const UPDATED_SHARE: usize = 10;

impl From<&Options> for Plan {
    fn from(options: &Options) -> Self {
        let mut workers: Vec<usize> = options.workers.iter().map(|workers| usize::from(*workers)).collect();
        workers.sort_unstable();
        workers.dedup();
        let mut subjects = options.engines.clone();
        subjects.sort_unstable();
        subjects.dedup();
        let quick = options.quick;
        let seconds = |full: f64, short: f64| Duration::from_secs_f64(if quick { short } else { full });
        let objects = options.objects.iter().map(|objects| *objects as usize);
        let mut objects: Vec<usize> = if quick { vec![1000, 3000] } else { objects.collect() };
        let settle = seconds(5.0, 1.0);
        let crowd = |crowd, watchers: usize, idle| watchers::Load {
            crowd,
            watchers: if quick { watchers / 10 } else { watchers },
            settle,
            idle,
            writes: if quick { 3 } else { 20 },
        };
        let watchers = options.watchers as usize;
        Self {
            parts: options.parts.clone(),
            larger: objects.split_off(1.min(objects.len())),
            objects: objects.first().copied().unwrap_or(1000),
            workers,
            duration: seconds(options.duration.clamp(0.1, 300.0), 1.0),
            repetitions: if quick { 1 } else { options.repeat.into() },
            subjects,
            crowds: [
                crowd(Crowd::Shared, watchers, seconds(65.0, 2.0)),
                crowd(Crowd::Own, watchers / 10, seconds(5.0, 1.0)),
            ],
            watch: watches::Load { watchers: 200, rate: 500, duration: seconds(10.0, 2.0) },
            settle,
        }
    }
}

impl Plan {
    pub fn has(&self, part: Part) -> bool {
        self.parts.contains(&part)
    }

    /// Whether there is something to measure in every repetition.
    fn repeats(&self) -> bool {
        [Part::Writes, Part::Lists, Part::Watch, Part::Memory].into_iter().any(|part| self.has(part))
    }

    pub fn most_workers(&self) -> usize {
        self.workers.last().copied().unwrap_or(1)
    }
}

pub async fn run(options: Options) -> Result<()> {
    let plan = Plan::from(&options);
    ensure!(!plan.workers.is_empty(), "--workers names no number");
    ensure!(!plan.subjects.is_empty(), "--engines names no server");
    let data = std::env::temp_dir();
    if machine::file_system(&data)? == "tmpfs" {
        eprintln!("warning: {} is in memory, where writes cost nothing: set TMPDIR", data.display());
    }
    machine::allow_many_files()?;
    let hanse = match plan.subjects[..] {
        [Subject::Kube] => PathBuf::new(),
        _ => servers::hanse_binary()?,
    };

    let mut results: BTreeMap<Subject, Vec<Repetition>> = BTreeMap::new();
    // What is measured once needs no more than that.
    let repetitions = if plan.repeats() { plan.repetitions } else { 1 };
    for number in 0..repetitions {
        let mut order = plan.subjects.clone();
        if number % 2 == 1 {
            order.reverse();
        }
        for subject in order {
            eprintln!("{}, repetition {} of {}", subject.name(), number + 1, repetitions);
            let mut found = Repetition::default();
            let work = async {
                if plan.repeats() {
                    repeat(&plan, Server::new(subject, &hanse).await?, &mut found).await?;
                }
                if number == 0 {
                    for objects in plan.larger.iter().filter(|_| plan.has(Part::Series)) {
                        series(&plan, Server::new(subject, &hanse).await?, *objects, &mut found).await?;
                    }
                    if plan.has(Part::Watchers) {
                        crowds(&plan, Server::new(subject, &hanse).await?, &mut found).await?;
                    }
                }
                anyhow::Ok(())
            };
            work.await.with_context(|| format!("measuring {}", subject.name()))?;
            results.entry(subject).or_default().push(found);
        }
    }

    let page = report::page(&plan, &machine::describe(&data)?, &results);
    print!("{page}");
    if let Some(path) = &options.out {
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)?;
        }
        fs::write(path, page).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// One server, from its first start to its end.
async fn repeat(plan: &Plan, mut server: Server, found: &mut Repetition) -> Result<()> {
    let mut ready = begin(plan, &mut server, found).await?;
    let empty = machine::resident(&server.pids())?;
    let mut session = Session::open(plan, &server, &ready, plan.objects, found).await?;
    session.furnish().await?;
    if plan.has(Part::Watch) && plan.parts.len() == 1 {
        session.watch().await?;
        drop(session);
        return finish(server, found).await;
    }
    let population = session.population(Kind::ConfigMap, "bench", plan.objects, PAYLOAD).await?;
    session.one(&population, Verb::Create, plan.most_workers(), Limit::all_of(plan.objects)).await?;
    drop(session);
    if plan.has(Part::Memory) {
        ready = load_and_restart(plan, &mut server, plan.objects, empty, found).await?;
    }
    let mut session = Session::open(plan, &server, &ready, plan.objects, found).await?;
    if plan.has(Part::Lists) {
        for kind in ListKind::ALL {
            session.many(&population, kind).await?;
        }
    }
    if plan.has(Part::Writes) {
        session.requests(&population).await?;
    }
    if plan.has(Part::Watch)
        && let Err(error) = session.watch().await
    {
        session.found.problems.push(format!("watch: {error:#}"));
    }
    if plan.has(Part::Writes) {
        session.one(&population, Verb::Delete, plan.most_workers(), Limit::all_of(plan.objects)).await?;
    }
    drop(session);
    finish(server, found).await
}

/// Starts a server, and looks at it before it has anything to do.
async fn begin(plan: &Plan, server: &mut Server, found: &mut Repetition) -> Result<Ready> {
    let ready = server.start().await?;
    found.version = server.version(&ready.admin).await?;
    if plan.has(Part::Memory) {
        found.figure(Figure::ReadyEmpty, ready.after.as_secs_f64() * 1e3);
        let before = Reading::take(&server.pids())?;
        sleep(plan.settle).await;
        let idle = before.until(Reading::take(&server.pids())?);
        found.figure(Figure::IdleCpu, 100.0 * idle.server.as_secs_f64() / idle.elapsed.as_secs_f64());
        found.figure(Figure::IdleMemory, mebibytes(machine::resident(&server.pids())?));
    }
    Ok(ready)
}

async fn finish(mut server: Server, found: &mut Repetition) -> Result<()> {
    server.stop().await?;
    if let Err(error) = server.audit.check() {
        found.problems.push(format!("{error:#}"));
    }
    Ok(())
}

/// What `objects` objects take when the server has settled, and how long it takes to start with them.
async fn load_and_restart(
    plan: &Plan,
    server: &mut Server,
    objects: usize,
    empty: u64,
    found: &mut Repetition,
) -> Result<Ready> {
    sleep(plan.settle).await;
    let loaded = machine::resident(&server.pids())?;
    found.figure(Figure::LoadedMemory(objects), mebibytes(loaded));
    found.figure(Figure::BytesPerObject(objects), (loaded as f64 - empty as f64) / objects as f64);
    server.stop().await?;
    let ready = server.start().await?;
    found.figure(Figure::ReadyLoaded(objects), ready.after.as_secs_f64() * 1e3);
    Ok(ready)
}

/// More objects than fit any cache of recent things: made, counted in bytes, read, and some of them updated.
async fn series(plan: &Plan, mut server: Server, objects: usize, found: &mut Repetition) -> Result<()> {
    eprintln!("{}, {objects} objects", server.subject.name());
    let workers = plan.most_workers();
    let ready = server.start().await?;
    found.version = server.version(&ready.admin).await?;
    sleep(plan.settle).await;
    let empty = machine::resident(&server.pids())?;
    let mut session = Session::open(plan, &server, &ready, objects, found).await?;
    session.furnish().await?;
    let population = session.population(Kind::ConfigMap, "bench", objects, PAYLOAD).await?;
    session.one(&population, Verb::Create, workers, Limit::all_of(objects)).await?;
    drop(session);
    let ready = load_and_restart(plan, &mut server, objects, empty, found).await?;
    let mut session = Session::open(plan, &server, &ready, objects, found).await?;
    session.one(&population, Verb::Get, workers, Limit::for_a(plan.duration)).await?;
    for kind in ListKind::ALL {
        session.many(&population, kind).await?;
    }
    session.one(&population, Verb::Update, workers, Limit::all_of(objects / UPDATED_SHARE)).await?;
    drop(session);
    finish(server, found).await
}

/// Watchers that share connections, then others that do not, on a server that was started again.
async fn crowds(plan: &Plan, mut server: Server, found: &mut Repetition) -> Result<()> {
    for load in plan.crowds {
        eprintln!("{}, {} watchers, {:?}", server.subject.name(), load.watchers, load.crowd);
        let ready = server.start().await?;
        found.version = server.version(&ready.admin).await?;
        let mut session = Session::open(plan, &server, &ready, 0, found).await?;
        session.furnish().await?;
        let namespace = format!("bench-{:?}", load.crowd).to_lowercase();
        let population =
            session.population(Kind::ConfigMap, &namespace, load.writes.max(1), WATCH_PAYLOAD).await?;
        drop(session);
        sleep(plan.settle).await;
        match watchers::measure(load, &ready.loader, &population, &server.pids()).await {
            Ok(figures) => {
                for (figure, value) in figures {
                    found.figure(Figure::Crowd(load.crowd, figure), value);
                }
            }
            Err(error) => found.problems.push(format!("{} watchers: {error:#}", load.watchers)),
        }
        server.stop().await?;
    }
    Ok(())
}

fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / 1024.0 / 1024.0
}
