//! `hanse backup`, `restore`, `check` and `compact`: a peer's store, running or as files.

use std::path::Path;

use anyhow::{Context, bail};
use bytes::Bytes;
use env::{Env, files::Mode};
use http::Method;
use http_body_util::BodyExt;
use store::{
    Store,
    backup::{Backup, BackupFile, Totals},
    embedded::{self, EmbeddedStore},
};

use crate::{args::ApiArgs, client};

fn open(env: &Env, data: &Path) -> anyhow::Result<EmbeddedStore> {
    let directory = data.join("store");
    // Opening makes what is not there, which nobody wants who mistyped a name.
    if env.files.list(&directory).map_or(true, |names| names.is_empty()) {
        bail!("{} holds no store", data.display());
    }
    EmbeddedStore::open(env, &directory, Default::default())
        .with_context(|| format!("cannot open the store in {}", data.display()))
}

pub async fn backup(env: &Env, data: Option<&Path>, api: ApiArgs, file: &Path) -> anyhow::Result<()> {
    if env.files.open(file, Mode::Read).is_ok() {
        bail!("{} exists already; name another file", file.display());
    }
    let totals = match data {
        Some(data) => backup_stopped(env, data, file).await?,
        None => backup_running(env, api, file).await?,
    };
    eprintln!("wrote {}: {}", file.display(), counted(&totals));
    Ok(())
}

fn counted(totals: &Totals) -> String {
    format!("{} objects of {} workspaces", totals.objects, totals.workspaces)
}

async fn backup_stopped(env: &Env, data: &Path, file: &Path) -> anyhow::Result<Totals> {
    let store = open(env, data)?;
    let written = store.backup(file).await;
    store.close().await?;
    written.with_context(|| format!("cannot write {}", file.display()))
}

async fn backup_running(env: &Env, api: ApiArgs, path: &Path) -> anyhow::Result<Totals> {
    let access = api.access(env)?;
    // First, so that a name that is taken does not cost a download.
    let mut file = BackupFile::create(env.files.clone(), path)?;
    let path = "/clusters/root/operate/v1/backup";
    let answer = client::send(env, &access, Method::GET, path, "application/json", Bytes::new()).await?;
    let mut body = answer.into_body();
    while let Some(frame) = body.frame().await {
        let frame = frame.context("the backup was cut off; nothing was kept of it")?;
        if let Ok(bytes) = frame.into_data() {
            file.append(&bytes)?;
        }
    }
    file.finish().context("the backup did not arrive whole; nothing was kept of it")
}

pub fn restore(env: &Env, data: &Path, file: &Path) -> anyhow::Result<()> {
    let directory = data.join("store");
    if env.files.list(&directory).is_ok_and(|names| !names.is_empty()) {
        bail!("{} holds a store already; name a new directory", data.display());
    }
    let totals = embedded::restore(env, file, &directory)
        .with_context(|| format!("cannot restore {} into {}", file.display(), data.display()))?;
    eprintln!("restored {}", counted(&totals));
    eprintln!("start it with: hanse serve --data {}", data.display());
    Ok(())
}

pub fn check(env: &Env, data: Option<&Path>, file: Option<&Path>) -> anyhow::Result<()> {
    match (data, file) {
        (Some(data), _) => check_directory(env, data),
        (None, Some(file)) => check_backup(env, file),
        (None, None) => bail!("name what to check: --data DIR, or the file of a backup"),
    }
}

fn check_backup(env: &Env, file: &Path) -> anyhow::Result<()> {
    let backup = Backup::open(&*env.files, file).context("this backup cannot be restored")?;
    let created = backup.created().map(|time| format!(", of {time}")).unwrap_or_default();
    println!("{} is whole: {}{created}", file.display(), counted(&backup.totals));
    Ok(())
}

fn check_directory(env: &Env, data: &Path) -> anyhow::Result<()> {
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

pub async fn compact(
    env: &Env,
    data: Option<&Path>,
    api: ApiArgs,
    workspace: Option<&str>,
) -> anyhow::Result<()> {
    let Some(data) = data else { return compact_running(env, api, workspace).await };
    if workspace.is_some() {
        bail!("--workspace is for a running peer; of a stopped one all history is forgotten");
    }
    let store = open(env, data)?;
    let before = bytes_in(env, data)?;
    let forgotten = store.forget_history(store.workspaces()).await;
    store.close().await?;
    forgotten.with_context(|| format!("cannot compact the store in {}", data.display()))?;
    let after = bytes_in(env, data)?;
    eprintln!("{}: {} before, {} now", data.display(), size(before), size(after));
    Ok(())
}

fn bytes_in(env: &Env, data: &Path) -> anyhow::Result<u64> {
    let mut bytes = 0;
    for path in env.files.list(&data.join("store"))? {
        bytes += env.files.open(&path, Mode::Read)?.len()?;
    }
    Ok(bytes)
}

async fn compact_running(env: &Env, api: ApiArgs, workspace: Option<&str>) -> anyhow::Result<()> {
    let access = api.access(env)?;
    let query = workspace.map(|name| format!("?workspace={name}")).unwrap_or_default();
    let path = format!("/clusters/root/operate/v1/compact{query}");
    let outcome = client::call(env, &access, Method::POST, &path, None).await?;
    let number = |key: &str| outcome[key].as_u64().unwrap_or_default();
    eprintln!(
        "forgot the history of {} workspaces: {} freed",
        number("workspaces"),
        size(number("freedBytes"))
    );
    Ok(())
}

fn size(bytes: u64) -> String {
    match bytes {
        0..1_048_576 => format!("{} KiB", bytes.div_ceil(1024)),
        _ => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
    }
}
