//! Measures Hanse beside kube-apiserver + etcd, in one run on one machine, and prints the ratios.
//!
//! ```text
//!   api ──┬── servers    start, restart and stop a server; its process ids
//!         ├── setting    what is switched on in all of them: roles, policies, quota, audit
//!         ├── machine    CPU time, memory and bytes written of those processes
//!         ├── client     HTTP/2 over TLS with a client certificate
//!         ├── session    the rows of one server that runs
//!         ├── load       N workers, each waiting for its answer: create, update, patch, get, delete
//!         ├── definitions from a custom resource definition to its first object
//!         ├── lists      whole lists, pages, informer starts
//!         ├── stages     where a write spends its time inside of Hanse
//!         ├── watches    many watchers on one stream of writes
//!         ├── watchers   very many that wait
//!         └── report     figures of all repetitions → one Markdown page
//!
//!   workspaces ─┬─ noise  a quiet workspace beside a noisy one
//!               └─ page   what was found → one Markdown page
//!
//!   sim                   many simulated clusters, and the hub's view of their pods
//!   placement             decisions in a second; no server is measured
//!   propagation           from the hub to its members and back
//! ```
//!
//! Absolute figures are those of the machine; ratios and CPU per operation are what to compare. Nothing here
//! asserts a timing.

// A benchmark measures real time on real files, processes and sockets.
#![allow(clippy::disallowed_methods)]

mod aims;
mod api;
mod client;
mod definitions;
mod figures;
mod lists;
mod load;
mod machine;
mod objects;
mod placement;
mod propagation;
mod report;
mod servers;
mod session;
mod setting;
mod sim;
mod stages;
mod watchers;
mod watches;
mod workspaces;

use anyhow::{Result, bail};
use clap::{CommandFactory, Parser, Subcommand};

#[derive(Parser)]
#[command(about = "Benchmarks of Hanse beside kube-apiserver + etcd", arg_required_else_help = true)]
struct Arguments {
    /// Say which benchmarks there are
    #[arg(long)]
    list: bool,
    #[command(subcommand)]
    benchmark: Option<Benchmark>,
}

#[derive(Subcommand)]
enum Benchmark {
    /// API requests, lists, watches, start and memory of one server
    Api(api::Options),
    /// Ten thousand workspaces in one server, and a quiet one beside a noisy one
    Workspaces(workspaces::Options),
    /// Simulated clusters in one process, and how soon their pods are seen in the hub
    Sim(sim::Options),
    /// Decisions of placement in a second, over many clusters
    Placement(placement::Options),
    /// How soon what is made in the hub is in its members, and its status back
    Propagation(propagation::Options),
    /// Simulated clusters for `propagation`, until standard input ends
    #[command(hide = true)]
    Members(propagation::members::Options),
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    if arguments.list {
        for benchmark in Arguments::command().get_subcommands().filter(|it| !it.is_hide_set()) {
            println!("{:<12} {}", benchmark.get_name(), benchmark.get_about().unwrap_or_default());
        }
        return Ok(());
    }
    let Some(benchmark) = arguments.benchmark else { bail!("name a benchmark, see --list") };
    if let Benchmark::Members(options) = benchmark {
        return propagation::members::run(&options);
    }
    // One client thread: it shares the machine with the server it measures.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let run = async {
            match benchmark {
                Benchmark::Api(options) => api::run(options).await,
                Benchmark::Workspaces(options) => workspaces::run(options).await,
                Benchmark::Sim(options) => sim::run(options).await,
                Benchmark::Placement(options) => placement::run(&options),
                Benchmark::Propagation(options) => propagation::run(options).await,
                Benchmark::Members(options) => propagation::members::run(&options),
            }
        };
        tokio::select! {
            result = run => result,
            _ = tokio::signal::ctrl_c() => bail!("interrupted"),
        }
    })
}
