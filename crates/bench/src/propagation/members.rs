//! Simulated clusters in a process of their own: what they cost is not the hub's.

use std::{
    fs,
    io::Read,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use clap::Args;
use env::Env;
use sim::{ClusterOptions, NodeShape, Pace, Simulation};
use store::memory::MemoryStore;
use tempfile::TempDir;
use tokio::time::sleep;

use super::fleet::PATIENCE;

#[derive(Args)]
pub struct Options {
    /// Where a kubeconfig of each is written
    #[arg(long)]
    dir: PathBuf,
    #[arg(long)]
    clusters: usize,
    /// In each
    #[arg(long, default_value_t = 2)]
    nodes: usize,
}

/// Written when all of them answer.
const READY: &str = "ready";

pub fn name(number: usize) -> String {
    format!("member-{number}")
}

fn kubeconfig(directory: &Path, number: usize) -> PathBuf {
    directory.join(format!("{}.kubeconfig", name(number)))
}

/// Until whoever started it closes its standard input, or is gone.
pub fn run(options: &Options) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let store = Arc::new(MemoryStore::new());
        let pki = options.dir.join("pki");
        let simulation = Simulation::start(&Env::real(), pki, store, Pace::default()).await?;
        for number in 0..options.clusters {
            let nodes = NodeShape { count: options.nodes, ..NodeShape::default() };
            let cluster = ClusterOptions { nodes, ..ClusterOptions::default() };
            simulation.add(&name(number), cluster).await?;
            fs::write(kubeconfig(&options.dir, number), simulation.kubeconfig(&name(number))?)?;
        }
        fs::write(options.dir.join(READY), "")?;
        let end = || std::io::stdin().read_to_end(&mut Vec::new());
        tokio::task::spawn_blocking(end).await??;
        simulation.shut_down().await;
        Ok(())
    })
}

/// Such a process; it ends when this is dropped.
pub struct Simulated {
    process: Child,
    directory: TempDir,
    clusters: usize,
}

impl Simulated {
    pub async fn start(clusters: usize, nodes: usize) -> Result<Simulated> {
        let directory = TempDir::with_prefix("hanse-bench-members-")?;
        let log = fs::File::create(directory.path().join("log"))?;
        let process = Command::new(std::env::current_exe()?)
            .arg("members")
            .arg("--dir")
            .arg(directory.path())
            .args(["--clusters", &clusters.to_string(), "--nodes", &nodes.to_string()])
            .stdin(Stdio::piped())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("cannot start simulated clusters")?;
        let mut members = Simulated { process, directory, clusters };
        let began = Instant::now();
        while !members.directory.path().join(READY).exists() {
            ensure!(began.elapsed() < PATIENCE, "the simulated clusters do not answer");
            let log = fs::read_to_string(members.directory.path().join("log")).unwrap_or_default();
            ensure!(members.process.try_wait()?.is_none(), "the simulated clusters ended:\n{log}");
            sleep(Duration::from_millis(20)).await;
        }
        Ok(members)
    }

    /// By name.
    pub fn kubeconfigs(&self) -> Vec<(String, PathBuf)> {
        (0..self.clusters).map(|number| (name(number), kubeconfig(self.directory.path(), number))).collect()
    }
}

impl Drop for Simulated {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
