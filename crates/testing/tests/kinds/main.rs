//! Every built-in kind, at a real kube-apiserver and at Hanse: what is valid, what is filled in, what is refused.
//!
//! ```text
//!   objects/*.yaml ──> mutate ──> plan ──> run: both servers, dry ──> verdict ──> report
//!   (valid ones)       (one       (create,                            (same?)     (ratios; accepted.txt,
//!                      change)    update)                                          with reasons)
//! ```
//!
//! Nothing that the real server accepts may be refused here; of what it refuses nearly everything must be refused
//! here, and nearly everything that is filled in must be the same. What is left stands in `accepted.txt`, with the
//! reason; a line there that no longer applies is a failure too. Tables of the valid objects must have the same
//! columns and cells. Equal causes, messages and warnings are counted and not demanded.
//!
//! `KINDS=text` runs only the kinds whose name contains the text, and shows everything. `KINDS_RECORD=folder` asks
//! the real server alone and writes down what it says (see [`record`]).

#![allow(clippy::disallowed_methods)] // Tests run on the real machine.

mod mutate;
mod objects;
mod plan;
mod record;
mod report;
mod run;
mod scope;
mod server;
mod table;
mod translate;
mod verdict;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use testing::accepted::Accepted;

use report::Report;
use run::Servers;
use scope::{KINDS, Kind};
use server::Server;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/kinds")
}

fn chosen(only: Option<&str>) -> impl Iterator<Item = &'static Kind> {
    KINDS.iter().filter(move |kind| only.is_none_or(|text| kind.to_string().contains(text)))
}

#[tokio::test(flavor = "multi_thread")]
async fn hanse_treats_every_kind_as_kubernetes_does() -> Result<()> {
    let only = std::env::var("KINDS").ok().filter(|text| !text.is_empty());
    if let Some(folder) = std::env::var_os("KINDS_RECORD") {
        return record(Path::new(&folder), only.as_deref()).await;
    }
    let (valid, upstream) = (objects::valid(&folder().join("objects"))?, objects::upstream()?);
    let (kube, hanse) = tokio::try_join!(Server::kube(), Server::hanse())?;
    let mut report = Report::new(Accepted::read(&folder().join("accepted.txt"))?, only.is_some());
    for kind in chosen(only.as_deref()) {
        if !hanse.serves(kind).await? {
            report.missing(kind);
            continue;
        }
        let servers = Servers { kube: kube.clone(), hanse: Some(hanse.clone()) };
        let run = servers.run(kind, &valid, &upstream).await.with_context(|| kind.to_string())?;
        let tables = table::differences(&kube, &hanse, &run.created).await?;
        report.add(kind, &run, &tables);
        for (base, _) in run.created.iter().filter(|_| kind.rules_others()) {
            tokio::try_join!(kube.delete(base), hanse.delete(base))?;
        }
    }
    report.finish()
}

async fn record(folder: &Path, only: Option<&str>) -> Result<()> {
    let (valid, upstream) = (objects::valid(&self::folder().join("objects"))?, objects::upstream()?);
    let servers = Servers { kube: Server::kube().await?, hanse: None };
    for kind in chosen(only) {
        let run = servers.run(kind, &valid, &upstream).await.with_context(|| kind.to_string())?;
        record::write(folder, kind, &run)?;
        for (base, _) in run.created.iter().filter(|_| kind.rules_others()) {
            servers.kube.delete(base).await?;
        }
        let accepted = run.answered.iter().filter(|it| it.kube.is_accepted()).count();
        println!("{kind}: {} requests, {accepted} accepted", run.answered.len());
    }
    Ok(())
}
