//! Every built-in kind, at a real kube-apiserver and at Hanse.
#![allow(clippy::disallowed_methods)] // Tests run on the real machine.

mod compare;
mod mutate;
mod objects;
mod plan;
mod record;
mod run;
mod scope;
mod server;
mod table;
mod translate;
mod verdict;

use std::path::{Path, PathBuf};

use anyhow::Result;

use run::Servers;
use scope::KINDS;
use server::Server;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/kinds")
}

/// Asks the real server alone and writes down what it says.
async fn record(folder: &Path) -> Result<()> {
    let bases = objects::read(&super_folder().join("objects"))?;
    let servers = Servers { kube: Server::kube().await?, hanse: None };
    for kind in KINDS {
        let started = std::time::Instant::now();
        let run = match servers.run(kind, &bases).await {
            Ok(run) => run,
            Err(error) => {
                println!("ERROR {error:#}");
                continue;
            }
        };
        record::write(folder, kind, &run)?;
        let accepted = run.answered.iter().filter(|it| it.kube.is_accepted()).count();
        println!("{kind}: {} requests, {accepted} accepted, {:?}", run.answered.len(), started.elapsed());
    }
    Ok(())
}

fn super_folder() -> PathBuf {
    folder()
}

#[tokio::test(flavor = "multi_thread")]
async fn hanse_treats_every_kind_as_kubernetes_does() -> Result<()> {
    if let Some(folder) = std::env::var_os("KINDS_RECORD") {
        return record(Path::new(&folder)).await;
    }
    Ok(())
}
