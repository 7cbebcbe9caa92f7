//! The benchmark `placement`: how many decisions a core makes, over how many clusters, for how many targets.
//!
//! Every cluster is a candidate and is judged in full: labels, affinity, taints, served APIs, classes, room, score. What
//! is measured is `placement::decide` alone, over clusters that were indexed before. There is no server to compare with:
//! absolute rates, and what more clusters cost.

use std::{
    collections::BTreeMap,
    fmt::Write,
    fs,
    hint::black_box,
    path::PathBuf,
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use clap::Args;
use kinds::{Share, Subject};
use placement::{Cluster, Directory, Fields, Input, Policies, Policy, decide};
use serde_json::{Value, json};

use crate::{
    machine,
    report::{grouped, number},
};

const CLUSTERS: [usize; 3] = [10, 100, 1000];
const TARGETS: [usize; 3] = [1, 3, 100];
/// In a second, on one core, over a thousand clusters.
const AIM: f64 = 2000.0;
/// Decisions whose instructions are counted.
const COUNTED: u64 = 50;
/// Objects that take turns, since equals are told apart by their names.
const OBJECTS: usize = 16;

#[derive(Args)]
pub struct Options {
    /// Milliseconds that each figure is measured for
    #[arg(long, default_value_t = 1500)]
    time: u64,
    /// Make so many decisions over --clusters for --targets, and print nothing: what instructions are counted of
    #[arg(long, requires_all = ["clusters", "targets"])]
    decisions: Option<u64>,
    #[arg(long)]
    clusters: Option<usize>,
    #[arg(long)]
    targets: Option<usize>,
    /// A short run, to see that everything works
    #[arg(long)]
    quick: bool,
    /// Where the page is written, besides stdout
    #[arg(long)]
    out: Option<PathBuf>,
}

/// What decisions are made from.
struct World {
    directory: Directory,
    policies: Policies,
    objects: Vec<(Subject, Fields)>,
}

/// What was measured for one number of clusters and targets.
struct Cell {
    clusters: usize,
    targets: usize,
    /// Decisions in a second on objects that run nowhere yet.
    new: f64,
    /// And on those that run where they were decided to.
    again: f64,
    instructions: Option<u64>,
}

impl World {
    fn new(clusters: usize, targets: usize) -> Result<Self> {
        let read = |at| Cluster::read(&cluster(at)).context("a cluster cannot be read");
        let directory = Directory::new((0..clusters).map(read).collect::<Result<Vec<_>>>()?);
        let policies = Policies::from([Policy::read(&policy(targets))?]);
        let object = |at| {
            let object = deployment(at, targets);
            Ok((kinds::subject(&object)?, Fields::used(&object)))
        };
        Ok(Self { directory, policies, objects: (0..OBJECTS).map(object).collect::<Result<_>>()? })
    }

    fn input(&self, at: usize) -> Input<'_> {
        let (subject, fields) = &self.objects[at % self.objects.len()];
        Input {
            fields,
            workspace: &self.policies,
            account: Some("team-a"),
            ..Input::new(subject, &self.directory)
        }
    }

    fn shares(&self, at: usize) -> BTreeMap<String, Share> {
        decide(&self.input(at)).shares
    }
}

fn cluster(at: usize) -> Value {
    let taints = if at % 10 == 9 { json!([{"key": "old", "effect": "PreferNoSchedule"}]) } else { json!([]) };
    let resources = ["deployments", "statefulsets", "daemonsets", "replicasets"];
    json!({
        "metadata": {"name": format!("cluster-{at:04}"), "labels": {
            "topology.kubernetes.io/region": format!("region-{}", at % 10),
            "topology.kubernetes.io/zone": format!("zone-{}", at % 30),
            "tier": "standard", "generation": (at % 3).to_string(),
        }},
        "spec": {"network": "Flat", "taints": taints, "accounts": ["team-a", "team-b"]},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "allocatable": {"cpu": "400", "memory": "1600Gi", "pods": "11000", "ephemeral-storage": "10Ti"},
            "requested": {"cpu": (at % 350).to_string(), "memory": format!("{}Gi", at % 1300), "pods": "400"},
            "apis": [{"groupVersion": "v1", "resources": ["pods"]}, {"groupVersion": "apps/v1", "resources": resources}],
            "skew": {"missingFields": {"core/v1.PodSpec": ["unknownToItsRelease"]}},
            "classes": {"PriorityClass": ["high"], "StorageClass": ["fast"]},
        },
    })
}

fn policy(targets: usize) -> Value {
    let mut spec = json!({
        "select": [{"kinds": ["Deployment"]}],
        "clusters": {"selector": {"matchLabels": {"tier": "standard"}}},
        "strategy": if targets == 1 { "Single" } else { "Divide" },
    });
    if targets > 1 {
        spec["spread"] = json!([
            {"topologyKey": "hanse.io/cluster", "maxDomains": targets, "whenUnsatisfiable": "ScheduleAnyway"}]);
    }
    json!({"metadata": {"name": "bench"}, "spec": spec})
}

fn deployment(at: usize, targets: usize) -> Value {
    let requests = json!({"cpu": "100m", "memory": "128Mi"});
    let affinity = json!({"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [
            {"key": "generation", "operator": "In", "values": ["0", "1", "2"]}]}]},
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 10, "preference": {"matchExpressions": [
            {"key": "generation", "operator": "Gt", "values": ["1"]}]}}],
    }});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"namespace": "shop", "name": format!("web-{at}")},
        "spec": {
            "replicas": targets * 5, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {
                "priorityClassName": "high", "affinity": affinity,
                "containers": [{"name": "main", "image": "registry.example/web:1", "resources": {"requests": requests}}],
            }},
        },
    })
}

/// Decisions in a second of a core: of this thread's time, since others may use the machine.
fn rate(time: Duration, decision: impl Fn(usize)) -> f64 {
    // Caches are warm in a server that decides.
    (0..OBJECTS).for_each(&decision);
    let (began, mut made) = (used(), 0);
    while used() - began < time {
        (0..OBJECTS).for_each(&decision);
        made += OBJECTS;
    }
    made as f64 / (used() - began).as_secs_f64()
}

fn used() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

fn measure(clusters: usize, targets: usize, time: Duration, counter: Option<Counter>) -> Result<Cell> {
    let world = World::new(clusters, targets)?;
    let shares: Vec<BTreeMap<String, Share>> = (0..OBJECTS).map(|at| world.shares(at)).collect();
    // One in ten is only for what the others have no room for.
    let wanted = targets.min(clusters - clusters / 10);
    ensure!(shares.iter().all(|it| it.len() == wanted), "not {wanted} targets but {}", shares[0].len());
    let new = rate(time, |at| {
        black_box(decide(&world.input(at)));
    });
    let again = rate(time, |at| {
        black_box(decide(&Input { current: &shares[at], ..world.input(at) }));
    });
    let instructions = match counter {
        Some(counter) => Some(counter.per_decision(clusters, targets)?),
        None => None,
    };
    Ok(Cell { clusters, targets, new, again, instructions })
}

/// What counts instructions on this machine.
#[derive(Clone, Copy)]
enum Counter {
    /// The processor, by `perf stat`.
    Perf,
    /// A simulated processor, by `valgrind`: where the machine's own cannot be asked.
    Valgrind,
}

impl Counter {
    fn find() -> Option<Counter> {
        [Counter::Perf, Counter::Valgrind]
            .into_iter()
            .find(|counter| counter.count(&["true"]).is_ok_and(|count| count > 0))
    }

    fn name(self) -> &'static str {
        match self {
            Counter::Perf => "perf stat",
            Counter::Valgrind => "valgrind",
        }
    }

    /// The instructions that a command takes.
    fn count(self, command: &[&str]) -> Result<u64> {
        let mut counted = match self {
            Counter::Perf => Command::new("perf"),
            Counter::Valgrind => Command::new("valgrind"),
        };
        match self {
            Counter::Perf => counted.args(["stat", "-x", ",", "-e", "instructions:u"]),
            Counter::Valgrind => {
                counted.args(["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"])
            }
        };
        let output = counted.args(command).stdin(Stdio::null()).output()?;
        let told = String::from_utf8_lossy(&output.stderr);
        let number = match self {
            Counter::Perf => told.lines().find_map(|line| line.split(',').next()?.parse().ok()),
            Counter::Valgrind => told.lines().find_map(|line| {
                let (_, count) = line.split_once("I refs:").or_else(|| line.split_once("I   refs:"))?;
                count.trim().replace(',', "").parse().ok()
            }),
        };
        number.with_context(|| format!("{} counts nothing: {told}", self.name()))
    }

    /// Without what it takes to begin.
    fn per_decision(self, clusters: usize, targets: usize) -> Result<u64> {
        let program = std::env::current_exe()?;
        let program = program.to_str().context("this program has no name")?;
        let (clusters, targets) = (clusters.to_string(), targets.to_string());
        let count = |decisions: u64| {
            let decisions = decisions.to_string();
            self.count(&[
                program,
                "placement",
                "--clusters",
                &clusters,
                "--targets",
                &targets,
                "--decisions",
                &decisions,
            ])
        };
        Ok(count(COUNTED)?.saturating_sub(count(0)?) / COUNTED)
    }
}

pub fn run(options: &Options) -> Result<()> {
    if let (Some(decisions), Some(clusters), Some(targets)) =
        (options.decisions, options.clusters, options.targets)
    {
        let world = World::new(clusters, targets)?;
        for at in 0..decisions {
            black_box(decide(&world.input(at as usize)));
        }
        return Ok(());
    }
    let time = Duration::from_millis(if options.quick { 100 } else { options.time });
    let counter = Counter::find().filter(|_| !options.quick);
    let mut cells = Vec::new();
    for clusters in options.clusters.map_or(CLUSTERS.to_vec(), |it| vec![it]) {
        for targets in options.targets.map_or(TARGETS.to_vec(), |it| vec![it]) {
            let cell = measure(clusters, targets, time, counter)?;
            eprintln!("{clusters} clusters, {targets} targets: {} decisions/s", number(cell.new));
            cells.push(cell);
        }
    }
    let page = page(&machine::describe(&std::env::temp_dir())?, &cells, counter)?;
    print!("{page}");
    if let Some(path) = &options.out {
        fs::write(path, page).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

fn page(machine: &str, cells: &[Cell], counter: Option<Counter>) -> Result<String> {
    let mut page = String::new();
    let date = jiff::Zoned::now().date();
    writeln!(page, "# Decisions of placement\n\n{date}; {machine}. One core.\n\n## Aims\n")?;
    let largest = cells.iter().filter(|cell| cell.clusters == 1000);
    for cell in largest {
        let verdict = if cell.new.min(cell.again) >= AIM { "met" } else { "**missed**" };
        writeln!(
            page,
            "- ≥ {} decisions/s at 1 000 clusters, {} targets: {}, {verdict}",
            grouped("2000"),
            cell.targets,
            grouped(&format!("{:.0}", cell.new.min(cell.again))),
        )?;
    }
    let counted = counter.map_or("not counted here", Counter::name);
    writeln!(
        page,
        "\n## Rates\n\nNew: objects that run nowhere yet. Again: objects that run where they were decided to. \
         Instructions of a new one, by {counted}. Ratios are to the fewest clusters of as many targets.\n\n\
         | clusters | targets | new/s | again/s | µs, new | ns for each cluster | ratio | instructions |\n\
         |--:|--:|--:|--:|--:|--:|--:|--:|"
    )?;
    for cell in cells {
        let least = cells.iter().find(|it| it.targets == cell.targets).map_or(cell.new, |it| it.new);
        writeln!(
            page,
            "| {} | {} | {} | {} | {} | {} | {} | {} |",
            grouped(&cell.clusters.to_string()),
            cell.targets.min(cell.clusters),
            grouped(&format!("{:.0}", cell.new)),
            grouped(&format!("{:.0}", cell.again)),
            number(1e6 / cell.new),
            number(1e9 / cell.new / cell.clusters as f64),
            number(least / cell.new),
            cell.instructions.map_or_else(|| "–".to_owned(), |it| grouped(&it.to_string())),
        )?;
    }
    Ok(page)
}
