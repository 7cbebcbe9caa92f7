//! `hanse`: one Kubernetes API over every cluster, in every region.

mod args;
mod backup;
mod client;
mod kubeconfig;
mod log;
mod run;
mod serving;
mod storage;
mod workspace;

use clap::Parser;
use server::operate::Tools;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> std::process::ExitCode {
    let args = args::Args::parse();
    let outcome = log::start(&args.log).and_then(|log| {
        let tools = Tools { log: Some(log), ..Tools::default() };
        args::dispatch(args.command, env::Env::real(), tools)
    });
    match outcome {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("hanse: {error:#}");
            std::process::ExitCode::FAILURE
        }
    }
}
