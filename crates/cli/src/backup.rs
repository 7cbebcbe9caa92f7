//! `hanse backup`, `restore` and `check`: a peer's store as files.

use std::path::Path;

use anyhow::{Context, bail};
use env::Env;
use store::embedded::{self, EmbeddedStore};

pub async fn backup(env: &Env, data: &Path, file: &Path) -> anyhow::Result<()> {
    let store = EmbeddedStore::open(env, &data.join("store"), Default::default())
        .with_context(|| format!("cannot open the store in {}", data.display()))?;
    let written = store.backup(file).await;
    store.close().await?;
    let totals = written.with_context(|| format!("cannot write {}", file.display()))?;
    eprintln!("wrote {}: {} objects of {} workspaces", file.display(), totals.objects, totals.workspaces);
    Ok(())
}

pub fn restore(env: &Env, data: &Path, file: &Path) -> anyhow::Result<()> {
    let directory = data.join("store");
    if env.files.list(&directory).is_ok_and(|names| !names.is_empty()) {
        bail!("{} holds a store already; name a new directory", data.display());
    }
    let totals = embedded::restore(env, file, &directory)
        .with_context(|| format!("cannot restore {} into {}", file.display(), data.display()))?;
    eprintln!("restored {} objects of {} workspaces", totals.objects, totals.workspaces);
    eprintln!("start it with: hanse serve --data {}", data.display());
    Ok(())
}

pub fn check(env: &Env, data: &Path) -> anyhow::Result<()> {
    let report = embedded::check(env, &data.join("store"))
        .with_context(|| format!("cannot check the store in {}", data.display()))?;
    println!(
        "{} segments with {} frames and {} records; {} checkpoints with {} objects",
        report.segments, report.frames, report.records, report.checkpoints, report.objects
    );
    if let Some((file, offset)) = &report.incomplete {
        println!(
            "the last write at {}:{offset} is incomplete; a start cuts it off, and nothing acknowledged is in it",
            file.display()
        );
    }
    for damage in &report.damage {
        println!("DAMAGED: {damage}");
    }
    if !report.damage.is_empty() {
        bail!(
            "the store in {} is damaged in {} places; restore it from a backup",
            data.display(),
            report.damage.len()
        );
    }
    Ok(())
}
