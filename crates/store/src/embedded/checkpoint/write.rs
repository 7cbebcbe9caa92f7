//! Writing a checkpoint: under another name, block by block, synced, then renamed.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use env::{File, Files, files::Mode};

use super::{
    super::segment::{UNFINISHED, remove_if_there},
    CheckpointHeader, Encoder, ObjectEntry, WorkspaceEntry,
};
use crate::{backup::Export, live::Snapshot};

/// Written bytes are synced in portions, so that the last sync does not hold up the log for long.
const SYNC_EVERY: u64 = 8 << 20;

/// A file that does not exist under its name before it is whole. Dropped before, it leaves nothing behind.
pub(crate) struct Unfinished {
    files: Arc<dyn Files>,
    path: PathBuf,
    unfinished: PathBuf,
    file: Arc<dyn File>,
    length: u64,
    synced: u64,
    named: bool,
}

impl Unfinished {
    pub(crate) fn create(files: Arc<dyn Files>, path: PathBuf) -> io::Result<Self> {
        let mut name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
        name.push(format!(".{UNFINISHED}"));
        let unfinished = path.with_file_name(name);
        remove_if_there(&*files, &unfinished)?;
        let file = files.open(&unfinished, Mode::Create)?;
        Ok(Self { files, path, unfinished, file, length: 0, synced: 0, named: false })
    }

    pub(crate) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, self.length)?;
        self.length += bytes.len() as u64;
        if self.length - self.synced > SYNC_EVERY {
            self.file.sync()?;
            self.synced = self.length;
        }
        Ok(())
    }

    /// All of it is on disk; it can be read at the path that is returned, which is not its name yet.
    pub(crate) fn complete(&mut self) -> io::Result<&Path> {
        self.file.sync()?;
        Ok(&self.unfinished)
    }

    /// Gives it its name, and returns its size. It survives a crash from then on.
    pub(crate) fn name(mut self) -> io::Result<u64> {
        self.files.rename(&self.unfinished, &self.path)?;
        self.named = true;
        let directory = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        self.files.sync_dir(directory.unwrap_or(Path::new(".")))?;
        Ok(self.length)
    }
}

impl Drop for Unfinished {
    /// So that a full disk gets its room back.
    fn drop(&mut self) {
        if !self.named {
            let _ = self.files.remove(&self.unfinished);
        }
    }
}

/// A checkpoint in the making; without [`CheckpointWriter::finish`] it does not exist.
pub(in super::super) struct CheckpointWriter {
    file: Unfinished,
    encoder: Encoder,
}

impl CheckpointWriter {
    pub(in super::super) fn create(
        files: Arc<dyn Files>,
        path: PathBuf,
        header: CheckpointHeader,
    ) -> io::Result<Self> {
        let mut writer = Self { file: Unfinished::create(files, path)?, encoder: Encoder::new(&header) };
        writer.write_ready()?;
        Ok(writer)
    }

    fn write_ready(&mut self) -> io::Result<()> {
        let ready = self.encoder.ready();
        if !ready.is_empty() {
            self.file.append(ready)?;
            ready.clear();
        }
        Ok(())
    }

    pub(in super::super) fn workspace(&mut self, entry: &WorkspaceEntry) -> io::Result<()> {
        self.encoder.workspace(entry);
        self.write_ready()
    }

    pub(in super::super) fn object(&mut self, entry: &ObjectEntry<'_>) -> io::Result<()> {
        self.encoder.object(entry);
        self.write_ready()
    }

    /// Completes the file, gives it its name, and returns its size.
    pub(in super::super) fn finish(mut self) -> io::Result<u64> {
        self.encoder.finish();
        self.write_ready()?;
        self.file.complete()?;
        self.file.name()
    }
}

/// Dumps `snapshots`, which must be in the order of their ids. Lets others run between blocks, and gives up when
/// `stop` is set.
pub(in super::super) async fn write_snapshots(
    files: Arc<dyn Files>,
    path: PathBuf,
    header: CheckpointHeader,
    snapshots: Vec<Snapshot>,
    stop: &AtomicBool,
) -> io::Result<u64> {
    let mut file = Unfinished::create(files, path)?;
    for bytes in Export::with_places(header, snapshots) {
        if stop.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        file.append(&bytes)?;
        tokio::task::yield_now().await;
    }
    file.complete()?;
    file.name()
}
