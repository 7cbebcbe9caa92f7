//! The benchmark `workspaces`: what ten thousand of them cost one server, and what a noisy one costs its neighbours.
//!
//! ```text
//!   start ─ one after the other ─ many at once ─ touch each ─ give each a user ─ idle ─ restart ─ idle ─ delete all
//!     │                                │             │               │                   │                   │
//!   memory                           memory        memory          memory          ready, memory           memory
//! ```
//!
//! All of it on Hanse's own engine, and again on etcd.
//!
//! A workspace is usable when a client has read its default namespace. Memory is the resident memory of the process
//! above that of the idle one, divided by the number of workspaces; on etcd, of both processes, which are told apart.

mod noise;
mod page;

use std::{
    fs,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use clap::Args;
use http::{HeaderValue, Method};
use parking_lot::Mutex;
use serde_json::json;
use tokio::{task::JoinSet, time::sleep};

use self::noise::Quiet;
use crate::{
    client::{self, Connection, Endpoint, Failure},
    figures::{Errors, Latencies},
    machine::{self, Reading, Usage},
    servers::{self, Server, Subject},
};

#[derive(Args)]
pub struct Options {
    /// On which engines: `hanse` is its own
    #[arg(long, value_delimiter = ',', default_value = "hanse,hanse-etcd")]
    engines: Vec<Subject>,
    /// Workspaces that are made
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(10..=1_000_000))]
    workspaces: u32,
    /// Of these, how many are made one after the other
    #[arg(long, default_value_t = 200)]
    alone: u32,
    /// Requests at once while the others are made, used and deleted
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=1000))]
    workers: u16,
    /// Seconds that nothing is asked for, to see what an idle server does
    #[arg(long, default_value_t = 30)]
    idle: u64,
    /// Seconds of each measurement of a quiet workspace beside a noisy one
    #[arg(long, default_value_t = 5.0)]
    noise: f64,
    /// Where the page is written, besides stdout
    #[arg(long)]
    out: Option<PathBuf>,
    /// 500 workspaces and short pauses, to see that everything works
    #[arg(long)]
    quick: bool,
}

/// What is done.
pub struct Plan {
    count: usize,
    alone: usize,
    workers: usize,
    idle: Duration,
    noise: Duration,
    settle: Duration,
}

impl From<&Options> for Plan {
    fn from(options: &Options) -> Self {
        let count = if options.quick { 500 } else { options.workspaces as usize };
        let seconds = |full: f64, quick: f64| {
            Duration::from_secs_f64(if options.quick { quick } else { full.clamp(0.1, 600.0) })
        };
        Self {
            count,
            alone: (options.alone as usize).min(count / 2),
            workers: options.workers.into(),
            idle: seconds(options.idle as f64, 2.0),
            noise: seconds(options.noise, 1.0),
            settle: seconds(12.0, 2.0),
        }
    }
}

/// A step over all workspaces.
pub struct Step {
    pub name: &'static str,
    pub operations: usize,
    pub latencies: Latencies,
    pub errors: Errors,
    pub usage: Usage,
}

/// Resident memory at one moment, in bytes.
pub struct Weighed {
    pub when: &'static str,
    pub hanse: u64,
    /// Of the process that it stands on.
    pub etcd: u64,
    /// How much of what was to be there, or done, by then failed.
    pub errors: u64,
}

impl Weighed {
    pub fn resident(&self) -> u64 {
        self.hanse + self.etcd
    }
}

/// What a server does when nothing is asked of it.
pub struct Idle {
    pub when: &'static str,
    pub usage: Usage,
}

/// Of one engine.
pub struct Found {
    pub subject: Subject,
    pub version: String,
    pub steps: Vec<Step>,
    pub weights: Vec<Weighed>,
    pub idle: Vec<Idle>,
    pub ready_empty: Duration,
    pub ready_full: Duration,
    /// Lines of `/metrics` that are not comments, with few and with all workspaces.
    pub series: (usize, usize),
    pub quiet: Vec<Quiet>,
}

impl Found {
    fn new(subject: Subject) -> Self {
        Self {
            subject,
            version: String::new(),
            steps: Vec::new(),
            weights: Vec::new(),
            idle: Vec::new(),
            ready_empty: Duration::ZERO,
            ready_full: Duration::ZERO,
            series: (0, 0),
            quiet: Vec::new(),
        }
    }
}

pub async fn run(options: Options) -> Result<()> {
    let plan = Plan::from(&options);
    let data = std::env::temp_dir();
    if machine::file_system(&data)? == "tmpfs" {
        eprintln!("warning: {} is in memory, where writes cost nothing: set TMPDIR", data.display());
    }
    let binary = servers::hanse_binary()?;
    let mut found = Vec::new();
    for subject in options.engines {
        eprintln!("{}", subject.name());
        let mut of_engine = Found::new(subject);
        all(&plan, Server::plain_on(subject, &binary)?, &mut of_engine).await?;
        noise::all(&plan, Server::plain_on(subject, &binary)?, &mut of_engine).await?;
        found.push(of_engine);
    }
    let page = page::page(&plan, &machine::describe(&data)?, &found);
    print!("{page}");
    if let Some(path) = options.out {
        fs::write(&path, page).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

async fn all(plan: &Plan, mut server: Server, found: &mut Found) -> Result<()> {
    let ready = server.start().await?;
    found.ready_empty = ready.after;
    found.version = server.version(&ready.admin).await?;
    let bench = Bench::new(&server, ready.admin);
    // Whatever is made with the first workspace is not of each.
    bench.make_first().await?;
    sleep(plan.settle).await;
    bench.weigh(found, "idle")?;
    found.series.0 = bench.series().await?;
    found
        .steps
        .push(bench.each("create until usable, one after the other", 1, 0..plan.alone, Work::Create).await?);
    let rest = plan.alone..plan.count;
    found
        .steps
        .push(bench.each("create until usable, many at once", plan.workers, rest, Work::Create).await?);
    sleep(plan.settle).await;
    bench.weigh(found, "created, each read once")?;
    let everyone = 0..plan.count;
    found.steps.push(
        bench
            .each("list, create and delete a config map", plan.workers, everyone.clone(), Work::Touch)
            .await?,
    );
    sleep(plan.settle).await;
    bench.weigh(found, "a config map made and deleted in each")?;
    found.steps.push(
        bench.each("bind a user, and list as that user", plan.workers, everyone.clone(), Work::Bind).await?,
    );
    sleep(plan.settle).await;
    bench.weigh(found, "a user with a role in each")?;
    found.series.1 = bench.series().await?;
    found.idle.push(Idle { when: "all there", usage: bench.idle(plan.idle).await? });

    drop(bench);
    server.stop().await?;
    let ready = server.start().await?;
    found.ready_full = ready.after;
    let bench = Bench::new(&server, ready.admin);
    sleep(plan.settle).await;
    bench.weigh(found, "started again")?;
    found.idle.push(Idle { when: "started again", usage: bench.idle(plan.idle).await? });
    found.steps.push(
        bench
            .each("list as the user, after the start", plan.workers, everyone.clone(), Work::ListAsUser)
            .await?,
    );
    bench.weigh(found, "started again, a list in each")?;
    let mut deletion = bench.each("delete, until all are gone", plan.workers, everyone, Work::Delete).await?;
    let before = Reading::take(&bench.pids)?;
    bench.until_gone().await?;
    deletion.add(before.until(Reading::take(&bench.pids)?));
    found.steps.push(deletion);
    sleep(plan.settle).await;
    bench.weigh(found, "all deleted")?;
    drop(bench);
    server.stop().await
}

/// What is done to one workspace.
#[derive(Clone, Copy)]
enum Work {
    Create,
    Touch,
    Bind,
    ListAsUser,
    Delete,
}

/// A running server. Every step makes its own connections: a server hangs up on those that say nothing.
struct Bench {
    endpoint: Endpoint,
    pids: Vec<u32>,
}

const CONNECTIONS: usize = 4;

pub const WORKSPACES: &str = "/clusters/root/apis/hanse.io/v1alpha1/workspaces";
const USER: &str = "tenant";

pub fn name_of(number: usize) -> String {
    format!("w{number:06}")
}

pub fn workspace(name: &str) -> Bytes {
    json!({"apiVersion": "hanse.io/v1alpha1", "kind": "Workspace", "metadata": {"name": name}})
        .to_string()
        .into()
}

pub fn config_map(name: &str, payload: &str) -> Bytes {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"key": payload}})
        .to_string()
        .into()
}

pub fn post(endpoint: &Endpoint, path: &str, body: Bytes) -> Result<client::Request> {
    Ok(client::with_body(Method::POST, endpoint.server_uri(path)?, "application/json", body))
}

impl Bench {
    fn new(server: &Server, endpoint: Endpoint) -> Self {
        Self { endpoint, pids: server.pids() }
    }

    /// One workspace that everything is done to, and that is gone again.
    async fn make_first(&self) -> Result<()> {
        let mut connection = self.endpoint.connect().await?;
        for work in [Work::Create, Work::Touch, Work::Bind, Work::ListAsUser, Work::Delete] {
            perform(&self.endpoint, &mut connection, "first", work).await?;
        }
        self.until_gone().await
    }

    fn weigh(&self, found: &mut Found, when: &'static str) -> Result<()> {
        // Hanse starts after what it stands on.
        let (hanse, below) = self.pids.split_last().context("no process runs")?;
        let errors = found.steps.iter().map(|step| step.errors.count).sum();
        let (hanse, etcd) = (machine::resident(&[*hanse])?, machine::resident(below)?);
        let weighed = Weighed { when, hanse, etcd, errors };
        eprintln!("  memory, {when}: {:.1} MiB", weighed.resident() as f64 / 1024.0 / 1024.0);
        found.weights.push(weighed);
        Ok(())
    }

    async fn idle(&self, time: Duration) -> Result<Usage> {
        let before = Reading::take(&self.pids)?;
        sleep(time).await;
        let usage = before.until(Reading::take(&self.pids)?);
        eprintln!(
            "  idle: {:.3} s of CPU in {:.0} s",
            usage.server.as_secs_f64(),
            usage.elapsed.as_secs_f64()
        );
        Ok(usage)
    }

    async fn series(&self) -> Result<usize> {
        let mut connection = self.endpoint.connect().await?;
        let text = connection.call(client::get(self.endpoint.server_uri("/clusters/root/metrics")?)).await?;
        let text = String::from_utf8_lossy(&text);
        Ok(text.lines().filter(|line| !line.starts_with('#')).count())
    }

    async fn each(
        &self,
        name: &'static str,
        workers: usize,
        range: std::ops::Range<usize>,
        work: Work,
    ) -> Result<Step> {
        let connections = self.endpoint.connect_many(CONNECTIONS.min(workers)).await?;
        let before = Reading::take(&self.pids)?;
        let operations = range.len();
        let next = Arc::new(AtomicUsize::new(range.start));
        let tally = Arc::new(Mutex::new((Latencies::default(), Errors::default())));
        let mut tasks = JoinSet::new();
        for connection in connections.iter().cycle().take(workers) {
            let (mut connection, endpoint) = (connection.clone(), self.endpoint.clone());
            let (next, tally, end) = (next.clone(), tally.clone(), range.end);
            tasks.spawn(async move {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= end {
                        return;
                    }
                    let began = Instant::now();
                    let done = perform(&endpoint, &mut connection, &name_of(number), work).await;
                    let took = began.elapsed();
                    let (latencies, errors) = &mut *tally.lock();
                    match done {
                        Ok(()) => latencies.record(took),
                        Err(error) => errors.add(&error),
                    }
                }
            });
        }
        tasks.join_all().await;
        let usage = before.until(Reading::take(&self.pids)?);
        let (latencies, errors) = std::mem::take(&mut *tally.lock());
        eprintln!(
            "  {name}: {operations} in {:.1} s, CPU {:.1} s, p50 {:.2} ms, p99 {:.2} ms, {} errors {}",
            usage.elapsed.as_secs_f64(),
            usage.server.as_secs_f64(),
            latencies.quantile(0.5),
            latencies.quantile(0.99),
            errors.count,
            errors.first.as_deref().unwrap_or_default(),
        );
        Ok(Step { name, operations, latencies, errors, usage })
    }

    /// Waits until root lists no workspace.
    async fn until_gone(&self) -> Result<()> {
        let mut connection = self.endpoint.connect().await?;
        let deadline = Instant::now() + Duration::from_secs(300);
        loop {
            let path = format!("{WORKSPACES}?limit=1");
            let answer = connection.call(client::get(self.endpoint.server_uri(&path)?)).await?;
            let list: serde_json::Value = serde_json::from_slice(&answer)?;
            if list["items"].as_array().is_some_and(Vec::is_empty) {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "workspaces are not gone after five minutes");
            sleep(Duration::from_millis(50)).await;
        }
    }
}

impl Step {
    fn add(&mut self, more: Usage) {
        let usage = &mut self.usage;
        usage.elapsed += more.elapsed;
        usage.server += more.server;
        usage.client += more.client;
        usage.other += more.other;
        usage.steal += more.steal;
        usage.written = usage.written.zip(more.written).map(|(before, more)| before + more);
    }
}

async fn perform(endpoint: &Endpoint, connection: &mut Connection, name: &str, work: Work) -> Result<()> {
    let maps = format!("/clusters/{name}/api/v1/namespaces/default/configmaps");
    match work {
        Work::Create => {
            connection.call(post(endpoint, WORKSPACES, workspace(name))?).await?;
            let namespace = format!("/clusters/{name}/api/v1/namespaces/default");
            connection.call(client::get(endpoint.server_uri(&namespace)?)).await?;
        }
        Work::Touch => {
            connection.call(client::get(endpoint.server_uri(&maps)?)).await?;
            connection.call(post(endpoint, &maps, config_map("touch", "x"))?).await?;
            let uri = endpoint.server_uri(&format!("{maps}/touch"))?;
            connection.call(client::bare(Method::DELETE, uri)).await?;
        }
        Work::Bind => {
            let bindings = format!("/clusters/{name}/apis/rbac.authorization.k8s.io/v1/clusterrolebindings");
            connection.call(post(endpoint, &bindings, binding())?).await?;
            list_as_user(endpoint, connection, &maps).await?;
        }
        Work::ListAsUser => list_as_user(endpoint, connection, &maps).await?,
        Work::Delete => {
            let uri = endpoint.server_uri(&format!("{WORKSPACES}/{name}"))?;
            connection.call(client::bare(Method::DELETE, uri)).await?;
        }
    }
    Ok(())
}

fn binding() -> Bytes {
    let group = "rbac.authorization.k8s.io";
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": USER},
        "subjects": [{"kind": "User", "name": USER, "apiGroup": group}],
        "roleRef": {"kind": "ClusterRole", "name": "cluster-admin", "apiGroup": group},
    })
    .to_string()
    .into()
}

async fn list_as_user(
    endpoint: &Endpoint,
    connection: &mut Connection,
    path: &str,
) -> Result<(), anyhow::Error> {
    let mut request = client::get(endpoint.server_uri(path)?);
    request.headers_mut().insert("impersonate-user", HeaderValue::from_static(USER));
    connection.call(request).await?;
    Ok(())
}

/// Whether a request was refused because there are too many of its workspace.
pub fn is_refused(failure: &Failure) -> bool {
    matches!(failure, Failure::Refused { status, .. } if *status == http::StatusCode::TOO_MANY_REQUESTS)
}
