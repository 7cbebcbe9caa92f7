//! `hanse`: one Kubernetes API over every cluster, in every region.

mod args;
mod backup;
mod client;
mod kubeconfig;
mod run;
mod serving;
mod workspace;

use clap::Parser;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> std::process::ExitCode {
    let args = args::Args::parse();
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::new(&args.log))
        .with_writer(std::io::stderr)
        .init();
    match args::dispatch(args.command, env::Env::real()) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("hanse: {error:#}");
            std::process::ExitCode::FAILURE
        }
    }
}
