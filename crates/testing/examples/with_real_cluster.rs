//! Runs a command with a real control plane of its own, whose KUBECONFIG it finds in its environment.
//!
//! ```text
//! cargo run -p testing --example with_real_cluster -- [--nodes N] COMMAND [ARGUMENT...]
//! ```
//!
//! Of the controllers only those run whose work a hub does as well: a namespace goes with all that is in it, and
//! dependents go with their owner. With nodes, which kwok pretends to be, it is a whole cluster with all controllers and
//! a scheduler, as simulated clusters are.

#![allow(clippy::disallowed_methods)] // Tests run on the real machine.

use std::process::{Command, ExitCode};

use anyhow::{Context, Result};
use testing::real::{Options, RealCluster};

const USAGE: &str = "usage: with_real_cluster [--nodes N] COMMAND [ARGUMENT...]";
const CONTROLLERS: [&str; 2] = ["namespace-controller", "garbage-collector-controller"];

fn main() -> Result<ExitCode> {
    let mut arguments = std::env::args_os().skip(1).peekable();
    let mut nodes = 0_u32;
    if arguments.next_if(|argument| argument == "--nodes").is_some() {
        let number = arguments.next().context(USAGE)?;
        nodes = number.to_str().and_then(|number| number.parse().ok()).context(USAGE)?;
    }
    let command = arguments.next().context(USAGE)?;
    let controllers = if nodes == 0 { CONTROLLERS.map(str::to_owned).to_vec() } else { Vec::new() };
    let cluster = RealCluster::start(Options {
        controller_manager: true,
        controllers,
        nodes: (1..=nodes).map(|number| format!("node-{number}")).collect(),
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
