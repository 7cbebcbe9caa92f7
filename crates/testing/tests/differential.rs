//! The same requests, to a real kube-apiserver and to Hanse; the answers must be the same.
//!
//! ```text
//!   rows/*.txt ──> scenario ──> servers: both at once ──> compare ──> same · accepted · DIFFERENT
//!   (requests)     (parsed)     (fresh namespace each)    (relations   (accepted.txt, with reasons)
//!                                                          of uids …)
//! ```
//!
//! A row is a request; the rows of a scenario run in order. Nothing is written down about what the answers should
//! be: the real server says. What Hanse deliberately does otherwise is in `accepted.txt`, and a line there that no
//! longer applies is a failure too.
//!
//! `DIFFERENTIAL=text` runs only the scenarios and files whose name contains the text, and shows every answer.

#![allow(clippy::disallowed_methods)] // Tests run on the real machine.

#[path = "differential/protobuf.rs"]
mod protobuf;
#[path = "differential/report.rs"]
mod report;
#[path = "differential/scenario.rs"]
mod scenario;
#[path = "differential/servers.rs"]
mod servers;

use std::{path::PathBuf, sync::Arc};

use anyhow::{Context, Result};
use testing::accepted::Accepted;
use tokio::sync::Semaphore;

use report::Report;
use scenario::Scenario;
use servers::{Memory, Servers};

/// Scenarios that run at the same time: most of them wait for watches to end.
const AT_ONCE: usize = 6;

/// The scenarios for servers with a short memory.
const FORGETFUL: &str = "forgetful";

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/differential")
}

fn read_scenarios(only: Option<&str>) -> Result<Vec<Scenario>> {
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder().join("rows"))?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    paths.sort();
    let mut scenarios = Vec::new();
    for path in paths {
        let file = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path)?;
        scenarios.extend(scenario::parse(&file, &text).with_context(|| format!("in {}", path.display()))?);
    }
    scenarios.retain(|it| only.is_none_or(|text| it.file.contains(text) || it.title.contains(text)));
    Ok(scenarios)
}

/// Runs the scenarios on fresh servers.
async fn run(memory: Memory, scenarios: Vec<Scenario>, report: &mut Report) -> Result<()> {
    if scenarios.is_empty() {
        return Ok(());
    }
    let servers = Arc::new(Servers::start(memory).await?);
    let places = Arc::new(Semaphore::new(AT_ONCE));
    let running: Vec<_> = scenarios
        .into_iter()
        .enumerate()
        .map(|(number, scenario)| {
            let (servers, places) = (servers.clone(), places.clone());
            tokio::spawn(async move {
                let _place = places.acquire_owned().await?;
                let title = scenario.title.clone();
                servers
                    .run(scenario, &format!("d{number}"))
                    .await
                    .with_context(|| format!("scenario {title:?}"))
            })
        })
        .collect();
    for task in running {
        report.add(task.await??);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn hanse_answers_as_kubernetes_does() -> Result<()> {
    let only = std::env::var("DIFFERENTIAL").ok().filter(|text| !text.is_empty());
    let scenarios = read_scenarios(only.as_deref())?;
    let mut report = Report::new(Accepted::read(&folder().join("accepted.txt"))?, only.is_some());
    let (forgetful, ordinary) = scenarios.into_iter().partition(|scenario| scenario.file == FORGETFUL);
    run(Memory::Long, ordinary, &mut report).await?;
    run(Memory::Short, forgetful, &mut report).await?;
    report.finish()
}
