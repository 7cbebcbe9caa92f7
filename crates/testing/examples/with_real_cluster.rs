//! Runs a command with a real control plane of its own, whose KUBECONFIG it finds in its environment.
//!
//! ```text
//! cargo run -p testing --example with_real_cluster -- COMMAND [ARGUMENT...]
//! ```
//!
//! Of the controllers only those run whose work a hub does as well: a namespace goes with all that is in it, and
//! dependents go with their owner.

#![allow(clippy::disallowed_methods)] // Tests run on the real machine.

use std::process::{Command, ExitCode};

use anyhow::{Context, Result};
use testing::real::{Options, RealCluster};

const CONTROLLERS: [&str; 2] = ["namespace-controller", "garbage-collector-controller"];

fn main() -> Result<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    let command = arguments.next().context("usage: with_real_cluster COMMAND [ARGUMENT...]")?;
    let cluster = RealCluster::start(Options {
        controller_manager: true,
        controllers: CONTROLLERS.map(str::to_owned).to_vec(),
        fsync: false,
        ..Options::default()
    })?;
    let status = Command::new(&command)
        .args(arguments)
        .env("KUBECONFIG", &cluster.kubeconfig)
        .status()
        .with_context(|| format!("cannot run {}", command.display()))?;
    Ok(status.code().map_or(ExitCode::FAILURE, |code| ExitCode::from(code.to_le_bytes()[0])))
}
