//! `hanse migrate`: a whole store from a data directory to etcd, or back.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, bail, ensure};
use env::Env;
use store::{
    Store, WorkspaceId, backup,
    embedded::{self, EmbeddedStore},
    etcd::{self, Mover, OpenError},
    live::Snapshot,
};

use crate::storage::{EtcdArgs, MOVED, Place, share_authorities};

/// Longer than any lease.
const WAIT_FOR_LEADERS: Duration = Duration::from_secs(30);

/// One end of the way.
enum End {
    Directory(PathBuf),
    Etcd(Place),
}

impl End {
    fn of(env: &Env, text: &str, access: &EtcdArgs) -> anyhow::Result<End> {
        match text.starts_with("etcd://") {
            true => Ok(End::Etcd(access.place(env, text)?)),
            false => Ok(End::Directory(PathBuf::from(text))),
        }
    }
}

pub async fn run(env: &Env, from: &str, to: &str, access: &EtcdArgs) -> anyhow::Result<()> {
    match (End::of(env, from, access)?, End::of(env, to, access)?) {
        (End::Directory(data), End::Etcd(place)) => to_etcd(env, &data, &place).await,
        (End::Etcd(place), End::Directory(data)) => to_directory(env, &place, &data).await,
        _ => bail!("one of --from and --to is a data directory, and the other is etcd://…"),
    }
}

fn snapshots(store: &dyn Store) -> (u32, Vec<Snapshot>) {
    // One that no store has heard of stands where all histories begin.
    let first_epoch = store.head(&WorkspaceId("".into())).epoch();
    let snapshots = store.workspaces().iter().filter_map(|id| store.snapshot(id)).collect();
    (first_epoch, snapshots)
}

async fn to_etcd(env: &Env, data: &Path, place: &Place) -> anyhow::Result<()> {
    let directory = data.join("store");
    if env.files.list(&directory).map_or(true, |names| names.is_empty()) {
        bail!("{} holds no store", data.display());
    }
    let source = EmbeddedStore::open(env, &directory, Default::default())
        .with_context(|| format!("cannot open the store in {}", data.display()))?;
    let (first_epoch, all) = snapshots(&source);
    if is_moved(env, data, place).await? {
        is_no_newer(&all, place).await.with_context(|| {
            format!(
                "{} was moved to {} before, and is not what was moved: set {} aside, or name another prefix",
                data.display(),
                place.url,
                directory.display()
            )
        })?;
        source.close().await?;
        eprintln!("all of it was moved before; what was left to do is to set it aside");
        return set_aside(env, &directory, data, place);
    }
    let mover = etcd::fill(env, &*place.etcd, &place.prefix, first_epoch, all)
        .await
        .with_context(|| format!("cannot write to {}", place.url))?;
    share_authorities(env, place, &data.join("pki")).await?;
    let (_, written) = etcd::read(&*place.etcd, &place.prefix).await?;
    let compared = backup::compare(&snapshots(&source).1, &written);
    let totals = compared.map_err(|why| differs(&place.url, &why))?;
    open_up(env, data, place, &mover).await?;
    source.close().await?;
    eprintln!(
        "moved {} objects of {} workspaces, and compared all of them",
        totals.objects, totals.workspaces
    );
    set_aside(env, &directory, data, place)
}

/// From here on nobody starts on the directory by mistake, and then others may start on etcd.
async fn open_up(env: &Env, data: &Path, place: &Place, mover: &Mover) -> anyhow::Result<()> {
    mark_moved(env, data, place)?;
    let opened = mover.open_up(&*place.etcd).await;
    if let Err(OpenError::Superseded { .. }) = opened {
        // What is in etcd is somebody else's: what is in the directory is nowhere else.
        unmark(env, data)?;
    }
    opened.with_context(|| format!("cannot open {}", place.url))
}

/// Whether a move there was cut off when only the directory was left to be set aside: nobody has started on it since, and
/// servers may have gone on in etcd.
async fn is_moved(env: &Env, data: &Path, place: &Place) -> anyhow::Result<bool> {
    let marker = env.files.read(&data.join(MOVED)).unwrap_or_default();
    Ok(marker == place.url.as_bytes() && etcd::is_open(&*place.etcd, &place.prefix).await?)
}

/// Whether all of it is in etcd, or was: a store that was restored or written to since is ahead of what is there.
async fn is_no_newer(all: &[Snapshot], place: &Place) -> anyhow::Result<()> {
    let (_, there) = etcd::read(&*place.etcd, &place.prefix).await?;
    for snapshot in all {
        let head = snapshot.state().head;
        let there = there.iter().find(|it| it.id() == snapshot.id()).map(|it| it.state().head);
        ensure!(
            there.is_some_and(|there| head <= there),
            "workspace {} is ahead of what is in etcd",
            snapshot.id()
        );
    }
    Ok(())
}

fn set_aside(env: &Env, directory: &Path, data: &Path, place: &Place) -> anyhow::Result<()> {
    let moved = aside(env, directory)?;
    eprintln!(
        "what was in {} is in {} now; delete it when you are sure",
        directory.display(),
        moved.display()
    );
    eprintln!("start it with: hanse serve --data {} --store {}", data.display(), place.url);
    Ok(())
}

async fn to_directory(env: &Env, place: &Place, data: &Path) -> anyhow::Result<()> {
    let (directory, target) = (data.join("store"), data.display().to_string());
    let is_there = env.files.list(&directory).is_ok_and(|names| !names.is_empty());
    let was_begun = etcd::is_leaving(&*place.etcd, &place.prefix, &target)
        .await
        .with_context(|| format!("cannot read {}", place.url))?;
    if is_there && !was_begun {
        bail!("{} holds a store already; name a new directory", data.display());
    }
    let (alive, _) = etcd::servers(&*place.etcd, &place.prefix).await?;
    if !alive.is_empty() {
        bail!(
            "servers run on {}: stop them first, or wait a moment if they were killed: {}",
            place.url,
            alive.join(" ")
        );
    }
    let totals = match is_there {
        true => compare_with(env, place, &directory).await.with_context(|| {
            format!(
                "the move that was begun left a store in {} that is not what is in {}: if a server has run on it since, it \
                 is the newer one, and what is in etcd stays closed; if none has, set it aside and begin again",
                directory.display(),
                place.url
            )
        })?,
        false => copy_to_directory(env, place, data, &directory).await?,
    };
    // Nobody starts on the directory before nobody can start on what is in etcd.
    etcd::retire(&*place.etcd, &place.prefix, &target).await?;
    unmark(env, data)?;
    eprintln!(
        "moved {} objects of {} workspaces, and compared all of them",
        totals.objects, totals.workspaces
    );
    eprintln!("what is in {} stays there, closed; delete it when you are sure", place.url);
    eprintln!("start it with: hanse serve --data {}", data.display());
    Ok(())
}

/// Closes what is in etcd, and opens it again if it cannot be copied.
async fn copy_to_directory(
    env: &Env,
    place: &Place,
    data: &Path,
    directory: &Path,
) -> anyhow::Result<backup::Totals> {
    etcd::can_leave(&*place.etcd, &place.prefix).await?;
    env.files.create_dir_all(data).with_context(|| format!("cannot make {}", data.display()))?;
    // Until all of it is there, nobody begins with nothing in its place.
    mark_moved(env, data, place)?;
    // First of all, so that no server begins to lead meanwhile, not even one that was paused and wakes up.
    let target = data.display().to_string();
    etcd::leave(&*place.etcd, &place.prefix, &target).await?;
    let copied = async {
        nobody_leads(env, place).await?;
        share_authorities(env, place, &data.join("pki")).await?;
        let part = data.join("store.unfinished");
        let totals = copy(env, place, &part).await?;
        // It has its name when all of it is there, so that what was begun is not taken for it.
        let named = env.files.rename(&part, directory).and_then(|()| env.files.sync_dir(data));
        named.with_context(|| format!("cannot give {} its name", part.display()))?;
        Ok(totals)
    };
    match copied.await {
        Ok(totals) => Ok(totals),
        Err(error) => match etcd::stay(&*place.etcd, &place.prefix, &target).await {
            Ok(()) => Err(error),
            Err(closed) => {
                Err(error.context(format!("{} stays closed until it is begun again ({closed})", place.url)))
            }
        },
    }
}

async fn nobody_leads(env: &Env, place: &Place) -> anyhow::Result<()> {
    let until = env.clock.elapsed() + WAIT_FOR_LEADERS;
    while etcd::servers(&*place.etcd, &place.prefix).await?.1 > 0 {
        if env.clock.elapsed() > until {
            bail!("somebody still leads on {}; find out who, and begin again", place.url);
        }
        env.clock.sleep(Duration::from_millis(500)).await;
    }
    Ok(())
}

/// What an unfinished move left there goes.
async fn copy(env: &Env, place: &Place, part: &Path) -> anyhow::Result<backup::Totals> {
    for file in env.files.list(part).unwrap_or_default() {
        env.files.remove(&file).with_context(|| format!("cannot remove {}", file.display()))?;
    }
    let (first_epoch, all) = etcd::read(&*place.etcd, &place.prefix).await?;
    embedded::fill(env, part, first_epoch, all)
        .with_context(|| format!("cannot write to {}", part.display()))?;
    compare_with(env, place, part).await
}

async fn compare_with(env: &Env, place: &Place, directory: &Path) -> anyhow::Result<backup::Totals> {
    let target = EmbeddedStore::open(env, directory, Default::default())
        .with_context(|| format!("cannot open what was written to {}", directory.display()))?;
    let (_, read) = etcd::read(&*place.etcd, &place.prefix).await?;
    let compared = backup::compare(&read, &snapshots(&target).1);
    target.close().await?;
    compared.map_err(|why| differs(&directory.display().to_string(), &why))
}

/// Whoever starts on the directory is told that its objects are in etcd.
fn mark_moved(env: &Env, data: &Path, place: &Place) -> anyhow::Result<()> {
    let marker = data.join(MOVED);
    env.files
        .write_atomic(&marker, place.url.as_bytes(), false)
        .with_context(|| format!("cannot write {}", marker.display()))
}

fn unmark(env: &Env, data: &Path) -> anyhow::Result<()> {
    let marker = data.join(MOVED);
    if env.files.read(&marker).is_ok() {
        env.files.remove(&marker).with_context(|| format!("cannot remove {}", marker.display()))?;
    }
    Ok(())
}

fn differs(target: &str, why: &str) -> anyhow::Error {
    anyhow::anyhow!(
        "what was written to {target} is not what was read: {why}. Nothing was changed at the source"
    )
}

/// Gives a directory a name that is not used.
fn aside(env: &Env, directory: &Path) -> anyhow::Result<PathBuf> {
    let name = format!("store.moved-{}", env.clock.now().as_second());
    let moved = directory.with_file_name(name);
    env.files.rename(directory, &moved).with_context(|| {
        format!("all was moved, but {} cannot be set aside: do not start a server on it", directory.display())
    })?;
    Ok(moved)
}
