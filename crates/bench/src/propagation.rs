//! The benchmark `propagation`: how soon what is made in the hub is in its members, and its status back.
//!
//! ```text
//!   fleet ──┬── servers    the hub, a process of its own
//!           ├── members    simulated clusters, another process; or real ones
//!           └── traces     who saw what, and when: a watch at every member and at the hub
//!
//!   real       200 Deployments, 1 000 ConfigMaps and one at a time → three real members
//!   simulated  W1, W2 (a hundred members), W5 (a thousand)
//!   cold       W3, W4, W7: everything at once, an edit in between
//!   restart    until a hub that starts on its data has looked at everything
//!   peers      what others were measured at
//!   page       what was found → one Markdown page
//! ```

mod cold;
mod fleet;
pub mod members;
mod page;
mod peers;
mod real;
mod restart;
mod simulated;
mod traces;

use std::{fs, path::PathBuf};

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};

use crate::{machine, servers};

/// What can be run by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// Many Deployments, then many ConfigMaps, to three real members
    Real,
    /// One Deployment at a time, to three real members
    Unloaded,
    /// One Deployment per second, to a hundred members
    W1,
    /// A hundred Deployments per second
    W2,
    /// 5 000 of each that are there before the clusters
    W3,
    /// 30 000 of each, and a restart
    W4,
    /// A thousand members
    W5,
    /// An edit while W4 is under way
    W7,
}

#[derive(Args)]
pub struct Options {
    /// Parts to run; all if none is named
    #[arg(long, value_delimiter = ',')]
    parts: Vec<Part>,
    /// Deployments of `real`
    #[arg(long, default_value_t = 200)]
    deployments: usize,
    /// ConfigMaps of `real`
    #[arg(long, default_value_t = 1000)]
    config_maps: usize,
    /// Deployments of `unloaded`
    #[arg(long, default_value_t = 100)]
    unloaded: usize,
    /// Nodes of each real member
    #[arg(long, default_value_t = 20)]
    nodes: usize,
    /// Simulated members of W1 and W2
    #[arg(long, default_value_t = 100)]
    clusters: usize,
    /// Deployments of W1
    #[arg(long, default_value_t = 200)]
    w1: usize,
    /// Deployments in a second of W2
    #[arg(long, default_value_t = 100)]
    w2_rate: usize,
    #[arg(long, default_value_t = 20)]
    w2_seconds: usize,
    /// Members that each of them goes to
    #[arg(long, default_value_t = 3)]
    w2_targets: usize,
    /// Workloads of W3
    #[arg(long, default_value_t = 5000)]
    w3: usize,
    /// Workloads of W4
    #[arg(long, default_value_t = 30_000)]
    w4: usize,
    /// Pods of each in each member
    #[arg(long, default_value_t = 0)]
    w4_replicas: usize,
    /// Simulated members of W5
    #[arg(long, default_value_t = 1000)]
    w5_clusters: usize,
    /// Placements of W5, each to a tenth of the members
    #[arg(long, default_value_t = 100)]
    w5: usize,
    /// A little of everything, to see that it works
    #[arg(long)]
    quick: bool,
    /// Where the page is written, besides stdout
    #[arg(long)]
    out: Option<PathBuf>,
}

impl Options {
    fn has(&self, part: Part) -> bool {
        self.parts.is_empty() || self.parts.contains(&part)
    }

    fn any(&self, parts: &[Part]) -> bool {
        parts.iter().any(|part| self.has(*part))
    }

    fn quick(self) -> Options {
        match self.quick {
            false => self,
            true => Options {
                deployments: 10,
                config_maps: 20,
                unloaded: 3,
                nodes: 2,
                clusters: 10,
                w1: 3,
                w2_rate: 10,
                w2_seconds: 2,
                w3: 50,
                w4: 100,
                w5_clusters: 20,
                w5: 5,
                ..self
            },
        }
    }
}

pub async fn run(options: Options) -> Result<()> {
    machine::allow_many_files()?;
    let options = options.quick();
    let hanse = servers::hanse_binary()?;
    let version = std::process::Command::new(&hanse).arg("--version").output()?.stdout;
    let version = String::from_utf8_lossy(&version).lines().next().unwrap_or_default().to_owned();
    let mut found = Found { version, out: options.out.clone(), ..Found::default() };
    if options.any(&[Part::Real, Part::Unloaded]) {
        let over = real::run(&hanse, &options, &mut found.sections).await;
        found.add("real, unloaded", over)?;
    }
    if options.any(&[Part::W1, Part::W2]) {
        let over = simulated::streams(&hanse, &options, &mut found.sections).await;
        found.add("w1, w2", over)?;
    }
    for load in cold::loads(&options) {
        let over = cold::cold(&hanse, &load, &mut found.sections).await;
        found.add(load.name(), over)?;
    }
    if options.has(Part::W5) {
        let over = simulated::crowd(&hanse, &options, &mut found.sections).await;
        found.add("w5", over)?;
    }
    print!("{}", found.page()?);
    ensure!(found.failed.is_empty(), "not measured: {}", found.failed.join("; "));
    Ok(())
}

/// What the parts that are over have found.
#[derive(Default)]
struct Found {
    sections: Vec<page::Section>,
    reopened: u64,
    /// Parts that came to no end, each with the reason.
    failed: Vec<String>,
    version: String,
    out: Option<PathBuf>,
}

impl Found {
    /// When a part is over, which says how often watches of the client had to be opened again. The page is written each
    /// time: what was found is not lost with what fails later.
    fn add(&mut self, part: &str, over: Result<u64>) -> Result<()> {
        match over {
            Ok(reopened) => self.reopened += reopened,
            Err(error) => {
                eprintln!("{part}: {error:#}");
                self.failed.push(format!("{part}: {error:#}"));
            }
        }
        let Some(path) = &self.out else { return Ok(()) };
        fs::write(path, self.page()?).with_context(|| format!("cannot write {}", path.display()))
    }

    fn page(&self) -> Result<String> {
        let machine = machine::describe(&std::env::temp_dir())?;
        Ok(page::page(&machine, &self.version, &self.sections, &self.failed, self.reopened))
    }
}
