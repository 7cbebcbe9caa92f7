//! The benchmark `api`: the same requests to kube-apiserver + etcd and to Hanse, one after the other, on fresh
//! data.
//!
//! One repetition with one server:
//!
//! ```text
//!   start ─ settle ─ create all ─ settle ─ restart ─ get ─ lists ─ update ─ patch ─ apply ─ watches ─ delete ─ stop
//!     │        │                     │        │
//!   ready    idle memory       loaded memory  ready with data
//! ```

use std::{collections::BTreeMap, fs, path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use clap::Args;
use tokio::time::sleep;

use crate::{
    client::{Connection, Endpoint},
    definitions,
    figures::{Figure, ListKind, Operation, Repetition, Row},
    lists::Lister,
    load::{self, Limit},
    machine::{self, Reading},
    objects::{Population, Verb},
    report,
    servers::{self, Server, Subject},
    stages::Totals,
    watches::{self, Load},
};

#[derive(Args)]
pub struct Options {
    /// ConfigMaps in the namespace that is filled, listed and emptied
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(100..=999_999))]
    objects: u32,
    /// Concurrent requests, one set of rows for each; the namespace is filled with the highest
    #[arg(long, value_delimiter = ',', default_value = "1,32", value_parser = clap::value_parser!(u16).range(1..=1000))]
    workers: Vec<u16>,
    /// Seconds per row; creating and deleting all objects takes as long as it takes
    #[arg(long, default_value_t = 5.0)]
    duration: f64,
    /// Repetitions per server, each with fresh data; the servers take turns in going first
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    repeat: u16,
    /// Measure one server alone
    #[arg(long)]
    only: Option<Subject>,
    /// Where the page is written, besides stdout; a complete run writes crates/bench/results/api.md
    #[arg(long)]
    out: Option<PathBuf>,
    /// One short repetition with 1000 objects, to see that everything works
    #[arg(long)]
    quick: bool,
}

/// What is done in one repetition.
pub struct Plan {
    pub objects: usize,
    /// Ascending.
    pub workers: Vec<usize>,
    pub duration: Duration,
    pub repetitions: usize,
    pub subjects: Vec<Subject>,
    settle: Duration,
    watch: Load,
}

/// As many as in the figures this is compared with.
pub const CONNECTIONS: usize = 4;
/// Bytes of `data`.
pub const PAYLOAD: usize = 1024;
pub const WATCH_PAYLOAD: usize = 256;
/// No row is meant to end by this.
const NO_LIMIT: Duration = Duration::from_secs(600);

impl From<&Options> for Plan {
    fn from(options: &Options) -> Self {
        let mut workers: Vec<usize> = options.workers.iter().map(|workers| usize::from(*workers)).collect();
        workers.sort_unstable();
        workers.dedup();
        let seconds =
            |full: f64, quick: f64| Duration::from_secs_f64(if options.quick { quick } else { full });
        Self {
            objects: if options.quick { 1000 } else { options.objects as usize },
            workers,
            duration: seconds(options.duration.clamp(0.1, 300.0), 1.0),
            repetitions: if options.quick { 1 } else { options.repeat.into() },
            subjects: options.only.map_or(Subject::ALL.to_vec(), |only| vec![only]),
            settle: seconds(5.0, 2.0),
            watch: Load { watchers: 200, rate: 500, duration: seconds(10.0, 2.0) },
        }
    }
}

pub async fn run(options: Options) -> Result<()> {
    let plan = Plan::from(&options);
    ensure!(!plan.workers.is_empty(), "--workers names no number");
    let data = std::env::temp_dir();
    if machine::file_system(&data)? == "tmpfs" {
        eprintln!("warning: {} is in memory, where writes cost nothing: set TMPDIR", data.display());
    }
    let hanse = if plan.subjects.contains(&Subject::Hanse) { Some(servers::hanse_binary()?) } else { None };

    let mut results: BTreeMap<Subject, Vec<Repetition>> = BTreeMap::new();
    for number in 0..plan.repetitions {
        let mut order = plan.subjects.clone();
        if number % 2 == 1 {
            order.reverse();
        }
        for subject in order {
            eprintln!("{}, repetition {} of {}", subject.name(), number + 1, plan.repetitions);
            let server = match (subject, &hanse) {
                (Subject::Hanse, Some(binary)) => Server::hanse(binary)?,
                _ => Server::kube().await?,
            };
            let repetition =
                repeat(&plan, server).await.with_context(|| format!("measuring {}", subject.name()))?;
            results.entry(subject).or_default().push(repetition);
        }
    }

    let page = report::page(&plan, &machine::describe(&data)?, &results);
    print!("{page}");
    let partial = options.quick || options.only.is_some();
    let default = servers::workspace().join("crates/bench/results/api.md");
    if let Some(path) = options.out.or((!partial).then_some(default)) {
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)?;
        }
        fs::write(&path, page).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// One server, from its first start to its end.
async fn repeat(plan: &Plan, mut server: Server) -> Result<Repetition> {
    let mut found = Repetition::default();
    let ready = server.start().await?;
    found.figure(Figure::ReadyEmpty, ready.after.as_secs_f64() * 1e3);
    found.version = server.version(&ready.endpoint).await?;
    let before = Reading::take(&server.pids())?;
    sleep(plan.settle).await;
    let idle = before.until(Reading::take(&server.pids())?);
    found.figure(Figure::IdleCpu, 100.0 * idle.server.as_secs_f64() / idle.elapsed.as_secs_f64());
    let empty = machine::resident(&server.pids())?;
    found.figure(Figure::IdleMemory, mebibytes(empty));

    let mut session = Session::open(plan, &server, ready.endpoint, found).await?;
    let population = session.population("bench", plan.objects, PAYLOAD).await?;
    let most = plan.workers.last().copied().unwrap_or(1);
    session.one(&population, Verb::Create, most, plan.all()).await?;
    let mut found = session.close();
    sleep(plan.settle).await;
    let loaded = machine::resident(&server.pids())?;
    found.figure(Figure::LoadedMemory, mebibytes(loaded));
    let growth = (loaded as f64 - empty as f64) / 1024.0 / 1024.0;
    found.figure(Figure::GrowthPerTenThousand, growth * 10_000.0 / plan.objects as f64);

    server.stop().await?;
    let ready = server.start().await?;
    found.figure(Figure::ReadyLoaded, ready.after.as_secs_f64() * 1e3);
    let mut session = Session::open(plan, &server, ready.endpoint, found).await?;
    session.requests(&population).await?;
    let found = session.close();
    server.stop().await?;
    Ok(found)
}

/// A running server, connected to, and what was found out about it.
struct Session<'a> {
    plan: &'a Plan,
    endpoint: Endpoint,
    connections: Vec<Connection>,
    server: Vec<u32>,
    found: Repetition,
}

impl<'a> Session<'a> {
    async fn open(plan: &'a Plan, server: &Server, endpoint: Endpoint, found: Repetition) -> Result<Self> {
        let connections = endpoint.connect_many(CONNECTIONS).await?;
        Ok(Self { plan, endpoint, connections, server: server.pids(), found })
    }

    /// Hangs up: a server waits for its clients before it stops.
    fn close(self) -> Repetition {
        self.found
    }

    /// All rows but the one that filled `population`.
    async fn requests(&mut self, population: &Arc<Population>) -> Result<()> {
        let plan = self.plan;
        let for_a_while = Limit { requests: usize::MAX, duration: plan.duration };
        for workers in &plan.workers {
            self.one(population, Verb::Get, *workers, for_a_while).await?;
        }
        for kind in ListKind::ALL {
            self.many(population, kind).await?;
        }
        for verb in [Verb::Update, Verb::MergePatch, Verb::StrategicPatch] {
            for workers in &plan.workers {
                self.one(population, verb, *workers, for_a_while).await?;
            }
        }
        for workers in &plan.workers {
            self.apply(*workers).await?;
        }
        match definitions::until_first_object(&self.endpoint, &mut self.connections[0]).await {
            Ok(took) => self.found.figure(Figure::DefinitionToFirstObject, took.as_secs_f64() * 1e3),
            Err(error) => self.found.problems.push(format!("custom resource definition: {error:#}")),
        }
        if let Err(error) = self.watch().await {
            self.found.problems.push(format!("watch: {error:#}"));
        }
        let Some((most, fewer)) = plan.workers.split_last() else { return Ok(()) };
        for workers in fewer {
            self.create_and_delete(*workers).await?;
        }
        self.one(population, Verb::Delete, *most, plan.all()).await
    }

    /// In a namespace of its own, so that the full one stays as it is.
    async fn create_and_delete(&mut self, workers: usize) -> Result<()> {
        let population = self.population(&format!("bench-{workers}"), self.plan.objects, PAYLOAD).await?;
        let create = Limit { requests: population.count(), duration: self.plan.duration };
        self.one(&population, Verb::Create, workers, create).await?;
        let row = Row { operation: Operation::One(Verb::Create), workers };
        let requests = self.found.samples.get(&row).map_or(0, |sample| sample.operations as usize);
        self.one(&population, Verb::Delete, workers, Limit { requests, duration: NO_LIMIT }).await
    }

    /// New objects first, then the same again.
    async fn apply(&mut self, workers: usize) -> Result<()> {
        let name = format!("bench-apply-{workers}");
        let population = self.population(&name, self.plan.objects, PAYLOAD).await?;
        let limit = Limit { requests: population.count(), duration: self.plan.duration };
        self.one(&population, Verb::Apply, workers, limit).await?;
        let row = Row { operation: Operation::One(Verb::Apply), workers };
        let made = self.found.samples.get(&row).map_or(0, |sample| sample.operations as usize);
        // Only those that are there; workers were still making some when the time was up.
        let again = Limit { requests: made.saturating_sub(workers), duration: self.plan.duration };
        self.one(&population, Verb::ApplyUnchanged, workers, again).await
    }

    async fn population(&mut self, namespace: &str, count: usize, payload: usize) -> Result<Arc<Population>> {
        Population::new(&self.endpoint, &mut self.connections[0], namespace, count, payload).await
    }

    async fn one(
        &mut self,
        population: &Arc<Population>,
        verb: Verb,
        workers: usize,
        limit: Limit,
    ) -> Result<()> {
        let row = Row { operation: Operation::One(verb), workers };
        let before = self.stages(verb).await?;
        let sample =
            load::closed_loop(population, verb, &self.connections, workers, limit, &self.server).await?;
        self.found.sample(row, sample);
        if let (Some(before), Some(after)) = (before, self.stages(verb).await?) {
            self.found.stages.extend(after.since(&before).map(|spent| (row, spent)));
        }
        Ok(())
    }

    /// What Hanse has spent on writes so far. The other server is not asked: its metrics are long.
    async fn stages(&mut self, verb: Verb) -> Result<Option<Totals>> {
        if matches!(verb, Verb::Get | Verb::Delete) || !self.found.version.contains("hanse") {
            return Ok(None);
        }
        Totals::read(&self.endpoint, &mut self.connections[0]).await
    }

    async fn many(&mut self, population: &Population, kind: ListKind) -> Result<()> {
        let mut lister = Lister {
            endpoint: &self.endpoint,
            connection: self.connections[0].clone(),
            namespace: &population.namespace,
            expected: population.count(),
        };
        let sample = lister.measure(kind, self.plan.duration, &self.server).await?;
        self.found.sample(Row { operation: Operation::Many(kind), workers: 1 }, sample);
        Ok(())
    }

    async fn watch(&mut self) -> Result<()> {
        let load = self.plan.watch;
        let population = self.population("bench-watch", load.writes(), WATCH_PAYLOAD).await?;
        let sample =
            watches::measure(load, &self.endpoint, &self.connections, &population, &self.server).await?;
        eprintln!(
            "  watch: {:.0} writes/s, p99 {:.2} ms",
            sample.achieved,
            sample.after_answer.quantile(0.99)
        );
        self.found.watch = Some(sample);
        Ok(())
    }
}

impl Plan {
    fn all(&self) -> Limit {
        Limit { requests: self.objects, duration: NO_LIMIT }
    }
}

impl Repetition {
    fn figure(&mut self, figure: Figure, value: f64) {
        eprintln!("  {figure:?}: {value:.1}");
        self.figures.insert(figure, value);
    }

    fn sample(&mut self, row: Row, sample: crate::figures::Sample) {
        eprintln!(
            "  {row}: {:.1}/s, p50 {:.2} ms, p99 {:.2} ms{}",
            sample.rate(),
            sample.latencies.quantile(0.5),
            sample.latencies.quantile(0.99),
            if sample.errors.count > 0 { format!(", {} errors", sample.errors.count) } else { String::new() }
        );
        self.samples.insert(row, sample);
    }
}

fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / 1024.0 / 1024.0
}
