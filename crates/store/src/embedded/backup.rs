//! Backup, restore and check.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use env::{Env, Files};
use tokio::sync::oneshot;

use super::{
    OpenError, Options,
    checkpoint::{self, Checkpoint, CheckpointHeader, CheckpointWriter, Entry, Totals, io_at},
    frame::{BLOCK, Frame},
    recover,
    segment::{self, FirstState, Segment},
    writer::Dump,
};
use crate::{
    Error,
    backup::{Backup, BackupFile, Export, import},
    live::Snapshot,
};

/// Writes a dump to `path`, where nothing must be, and reads it back.
pub(super) async fn write(env: &Env, dump: Dump, path: PathBuf) -> Result<Totals, Error> {
    let (done, written) = oneshot::channel();
    let files = env.files.clone();
    let work = async move {
        let result = write_and_check(files, dump, &path).await;
        let _ = done.send(result.map_err(|error| match error {
            OpenError::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                Error::NoSpace(source.to_string())
            }
            other => Error::Unavailable(format!("no backup was made: {other}")),
        }));
    };
    env.tasks.spawn_blocking_loop("store-backup", Box::pin(work));
    written.await.unwrap_or_else(|_| Err(Error::Unavailable("the backup ended early".to_owned())))
}

async fn write_and_check(files: Arc<dyn Files>, dump: Dump, path: &Path) -> Result<Totals, OpenError> {
    let mut file = BackupFile::create(files, path)?;
    for piece in Export::with_places(dump.header, dump.snapshots) {
        file.append(&piece)?;
        tokio::task::yield_now().await;
    }
    file.finish()
}

/// Makes a data directory from a backup. Every workspace, also one that the backup does not know, begins a new epoch
/// there ([`Backup::next_epoch`]): whoever saw what happened after the backup must start again.
pub fn restore(env: &Env, backup: &Path, directory: &Path) -> Result<Totals, OpenError> {
    let backup = Backup::open(&*env.files, backup)?;
    let epoch = backup.next_epoch(env.clock.now())?;
    make(env, directory, epoch, |header| copy(env, &backup, header, directory))?;
    Ok(backup.totals)
}

/// Makes a data directory with all workspaces as they are in another store, which is not used any more.
pub fn fill(
    env: &Env,
    directory: &Path,
    first_epoch: u32,
    snapshots: Vec<Snapshot>,
) -> Result<Totals, OpenError> {
    let mut totals = Totals::default();
    make(env, directory, first_epoch, |header| {
        let path = checkpoint::path_of(directory, header.position.sequence);
        let mut file = BackupFile::create(env.files.clone(), &path)?;
        for piece in Export::without_history(header, snapshots) {
            file.append(&piece)?;
        }
        totals = file.finish()?;
        Ok(())
    })?;
    Ok(totals)
}

/// Makes a data directory whose first checkpoint `begin` writes.
fn make(
    env: &Env,
    directory: &Path,
    epoch: u32,
    begin: impl FnOnce(CheckpointHeader) -> Result<(), OpenError>,
) -> Result<(), OpenError> {
    super::make_directory(env, directory)?;
    if !env.files.list(directory).map_err(io_at(directory))?.is_empty() {
        return Err(OpenError::NotEmpty { directory: directory.to_owned() });
    }
    let _lock = super::lock(env, directory)?;
    let header = super::new_header(env, epoch);
    begin(header)?;
    // Last: without a log the directory is not a store, so an unfinished one cannot be taken for one.
    let first = FirstState { epoch, empty: false };
    recover::initialise(env, directory, header.id, first, Options::default().first_segment_bytes)
}

fn copy(env: &Env, backup: &Backup, header: CheckpointHeader, directory: &Path) -> Result<(), OpenError> {
    let path = checkpoint::path_of(directory, header.position.sequence);
    let writer = CheckpointWriter::create(env.files.clone(), path.clone(), header);
    let mut writer = writer.map_err(io_at(&path))?;
    let mut failed = None;
    let read = import(backup, header.first_epoch, |entry| {
        let written = match &entry {
            Entry::Workspace(workspace) => writer.workspace(workspace),
            Entry::Object(object) => writer.object(object),
        };
        written.map_err(|error| {
            failed = Some(error);
            "cannot be copied"
        })
    });
    if let Some(error) = failed {
        return Err(OpenError::Io { path, source: error });
    }
    read?;
    writer.finish().map_err(io_at(&path))?;
    Ok(())
}

/// What [`check`] found.
#[derive(Debug, Default)]
pub struct Report {
    pub segments: usize,
    pub frames: u64,
    pub records: u64,
    pub checkpoints: usize,
    pub objects: u64,
    /// Where the last write was incomplete: what a start cuts off. No acknowledged commit is in it.
    pub incomplete: Option<(PathBuf, u64)>,
    /// Everything that is not as it was written. A store with any of this in its log does not start.
    pub damage: Vec<OpenError>,
}

/// Reads every byte of a data directory and changes nothing. The store must not be running.
pub fn check(env: &Env, directory: &Path) -> Result<Report, OpenError> {
    let files = &*env.files;
    let _lock = super::lock(env, directory)?;
    let listed = recover::list(files, directory)?;
    let mut report = Report::default();
    for path in listed.checkpoints.values() {
        let read = Checkpoint::open(files, path).and_then(|checkpoint| checkpoint.read(|_| Ok(())));
        match read {
            Ok(totals) => report.objects = totals.objects,
            Err(error) => report.damage.push(error),
        }
        report.checkpoints += 1;
    }
    let mut flaws = Vec::new();
    for path in listed.segments.values() {
        report.segments += 1;
        match check_segment(files, path, &mut flaws) {
            Ok(frames) if frames > 0 => report.damage.append(&mut flaws),
            Ok(_) => {}
            Err(error) => report.damage.push(error),
        }
    }
    match recover::scan(files, directory) {
        Ok(Some(scanned)) => {
            (report.frames, report.records) = (scanned.frames, scanned.records);
            let place = |(number, offset)| (segment::path_of(directory, number), offset);
            report.incomplete = scanned.torn_tail().map(place);
        }
        Ok(None) => {}
        Err(error) => report.add(error),
    }
    Ok(report)
}

impl Report {
    /// What a start says first may have been found already.
    fn add(&mut self, error: OpenError) {
        let known = self.damage.iter().any(|known| known.to_string() == error.to_string());
        if !known {
            self.damage.push(error);
        }
    }
}

/// Looks at every frame of a segment, also behind one that cannot be read. Flaws before the last frame go to
/// `flaws`; what comes after it is the business of a start.
fn check_segment(files: &dyn Files, path: &Path, flaws: &mut Vec<OpenError>) -> Result<u64, OpenError> {
    let segment = Segment::open(files, path)?;
    let bytes = segment.read().map_err(io_at(path))?;
    let (id, number) = (segment.header.id, segment.header.number);
    let mut offset = BLOCK as u64;
    let mut frames = 0;
    let mut behind = Vec::new();
    while offset < bytes.len() as u64 {
        match Frame::read(&bytes, id, number, offset) {
            Ok(frame) => {
                frames += 1;
                flaws.append(&mut behind);
                offset += frame.size as u64;
            }
            Err(flaw) => {
                let block = &bytes[offset as usize..(offset as usize + BLOCK).min(bytes.len())];
                let begins_frame = Frame::sequence_at(&bytes, id, number, offset).is_some();
                if begins_frame || (behind.is_empty() && block.iter().any(|byte| *byte != 0)) {
                    behind.push(OpenError::damaged(path, flaw.offset, flaw.what));
                }
                offset += BLOCK as u64;
            }
        }
    }
    Ok(frames)
}
