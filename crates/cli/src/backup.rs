//! `hanse backup`, `restore` and `check`: a peer's store as files.

use std::path::Path;

use anyhow::{Context, bail};
use env::Env;
use store::embedded::{self, EmbeddedStore};

pub async fn backup(env: &Env, data: &Path, file: &Path) -> anyhow::Result<()> {
    let store = EmbeddedStore::open(env, &data.join("store"), Default::default())
        .with_context(|| format!("cannot open the store in {}", data.display()))?;
    let written = store.backup(file).await;
    store.close().await;
    written.with_context(|| format!("cannot write {}", file.display()))?;
    eprintln!("wrote {}", file.display());
    Ok(())
}

pub fn restore(env: &Env, data: &Path, file: &Path) -> anyhow::Result<()> {
    let directory = data.join("store");
    if env.files.list(&directory).is_ok_and(|names| !names.is_empty()) {
        bail!("{} holds a store already; name a new directory", data.display());
    }
    embedded::restore(env, file, &directory)
        .with_context(|| format!("cannot restore {} into {}", file.display(), data.display()))?;
    eprintln!("restored into {}; start it with: hanse serve --data {}", data.display(), data.display());
    Ok(())
}

pub fn check(env: &Env, data: &Path) -> anyhow::Result<()> {
    let report = embedded::check(env, &data.join("store"))
        .with_context(|| format!("the store in {} is damaged", data.display()))?;
    println!("{report}");
    Ok(())
}
