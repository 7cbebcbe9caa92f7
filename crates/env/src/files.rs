//! Files: the few calls a durable store needs, with their promises in writing.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

mod real;
pub mod sim;

pub use real::RealFiles;

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Must exist; only read.
    Read,
    /// Must exist; read and written.
    Write,
    /// Must not exist; for the owner's eyes only.
    Create,
    /// Must exist; every `write_at` returns only when its bytes are on stable storage (O_DSYNC).
    WriteDurable,
}

/// An open file. Offsets are absolute; there is no cursor.
///
/// A crash MAY lose, tear (per 512-byte sector) or reorder any write since the last `sync`, unless the file was
/// opened `WriteDurable`, where that holds only for the `write_at` in flight. A name (create, rename, remove) MAY
/// be lost until `sync_dir` of its directory returned. After `sync` or a durable write returned an error, what is
/// on disk is unknown: the caller MUST NOT assume that trying again repairs it.
#[allow(clippy::len_without_is_empty, reason = "a file is not a collection")]
pub trait File: Send + Sync {
    fn len(&self) -> io::Result<u64>;
    /// Fills `buffer` from `offset`; fails with `UnexpectedEof` if the file ends before.
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;
    fn write_all_at(&self, buffer: &[u8], offset: u64) -> io::Result<()>;
    fn sync(&self) -> io::Result<()>;
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Makes the first `len` bytes exist on disk as zeros, so that later writes inside change no metadata.
    /// Fails with `StorageFull` when there is no room, leaving nothing behind that later writes depend on.
    fn allocate_zeroed(&self, len: u64) -> io::Result<()>;
}

/// A directory tree.
pub trait Files: Send + Sync + 'static {
    fn open(&self, path: &Path, mode: Mode) -> io::Result<Arc<dyn File>>;
    fn create_dir_all(&self, path: &Path) -> io::Result<()>;
    /// The paths of the files directly in `directory`, sorted.
    fn list(&self, directory: &Path) -> io::Result<Vec<PathBuf>>;
    /// Atomic: after a crash `to` is either the old or the new file, whole.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    fn remove(&self, path: &Path) -> io::Result<()>;
    fn sync_dir(&self, directory: &Path) -> io::Result<()>;
    /// Takes an exclusive lock on the file at `path` (made if absent) until the guard is dropped; fails with
    /// `WouldBlock` when another holds it.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>>;

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let file = self.open(path, Mode::Read)?;
        let mut bytes = vec![0; file.len()? as usize];
        file.read_exact_at(&mut bytes, 0)?;
        Ok(bytes)
    }

    /// Writes a file so that a crash leaves the old or the new one, never a mixture. `private`: owner-only.
    fn write_atomic(&self, path: &Path, bytes: &[u8], private: bool) -> io::Result<()>;
}
