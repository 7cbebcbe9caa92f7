//! A disk in memory.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{File, Files, Mode};

/// An in-memory file tree that can lose what was not synced.
#[derive(Clone, Default)]
pub struct SimDisk;

impl Files for SimDisk {
    fn open(&self, _path: &Path, _mode: Mode) -> io::Result<Arc<dyn File>> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn create_dir_all(&self, _path: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn list(&self, _directory: &Path) -> io::Result<Vec<PathBuf>> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn rename(&self, _from: &Path, _to: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn remove(&self, _path: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn sync_dir(&self, _directory: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn lock(&self, _path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn write_atomic(&self, _path: &Path, _bytes: &[u8], _private: bool) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
