//! `hanse`: one Kubernetes API over every cluster, in every region.

mod args;
mod assigned;
mod backup;
mod client;
mod clusters;
mod dev;
mod explain;
mod kubeconfig;
mod leftovers;
mod log;
mod migrate;
#[cfg(feature = "otlp")]
mod otlp;
#[cfg(feature = "profiling")]
mod profiles;
mod run;
mod serving;
mod storage;
mod stuck;
mod workspace;

use std::sync::Arc;

use anyhow::Context;
use clap::Parser;
use env::{Env, network::ActivatedNetwork};
use server::operate::Tools;
use tokio::runtime::Runtime;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> std::process::ExitCode {
    match run(args::Args::parse()) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("hanse: {error:#}");
            std::process::ExitCode::FAILURE
        }
    }
}

fn run(args: args::Args) -> anyhow::Result<()> {
    let env = Env { network: Arc::new(ActivatedNetwork::from_environment()), ..Env::real() };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("hanse")
        .build()
        .context("cannot start")?;
    run_on(&runtime, args, env)
}

#[cfg(not(feature = "otlp"))]
fn run_on(runtime: &Runtime, args: args::Args, env: Env) -> anyhow::Result<()> {
    let log = log::start(&args.log, None::<tracing_subscriber::layer::Identity>)?;
    if std::env::var_os("OTEL_EXPORTER_OTLP_ENDPOINT").is_some() {
        tracing::warn!("no spans are exported: this program was built without the feature otlp");
    }
    let tools = Tools { log: Some(log), ..tools(&env) };
    runtime.block_on(args::dispatch(args.command, env, tools))
}

#[cfg(feature = "otlp")]
fn run_on(runtime: &Runtime, args: args::Args, env: Env) -> anyhow::Result<()> {
    let exporting = match args.command.serves() {
        true => otlp::start(&env, runtime.handle())?,
        false => None,
    };
    let log = log::start(&args.log, exporting.as_ref().map(otlp::Exporting::layer))?;
    let traces = exporting.is_some().then(|| Arc::new(otlp::Continued) as Arc<dyn server::trace::Traces>);
    let tools = Tools { log: Some(log), traces, ..tools(&env) };
    let outcome = runtime.block_on(args::dispatch(args.command, env, tools));
    if let Some(exporting) = exporting {
        exporting.finish();
    }
    outcome
}

#[cfg(feature = "profiling")]
fn tools(env: &Env) -> Tools {
    let (cpu, heap) = profiles::tools(env);
    Tools { cpu: Some(cpu), heap: Some(heap), ..Tools::default() }
}

#[cfg(not(feature = "profiling"))]
fn tools(_env: &Env) -> Tools {
    Tools::default()
}
