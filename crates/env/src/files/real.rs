//! Files of this machine.

use std::{
    fs,
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{File, Files, Mode};

/// The operating system's files. What it makes is for the owner's eyes only, because stored objects hold secrets.
pub struct RealFiles;

struct RealFile(fs::File);

/// Zeros are written in pieces of this size. Larger pieces are cached as larger units, and every small durable write
/// into one would pay for its size.
const ZEROS: &[u8] = &[0; 16 << 10];

impl File for RealFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read_exact_at(buffer, offset)
    }

    fn write_all_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_all_at(buffer, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_all()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn allocate_zeroed(&self, len: u64) -> io::Result<()> {
        let filled = reserve(&self.0, len).and_then(|()| fill_with_zeros(&self.0, len));
        if filled.is_err() {
            // Give back what was taken; the first error is the one to report.
            let _ = self.0.set_len(0);
        }
        filled
    }
}

/// Asks for the room before a byte is written, so that a full disk is noticed at once and cheaply.
fn reserve(file: &fs::File, len: u64) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    match rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, len) {
        // Not every file system can; writing the zeros will tell.
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {}
        other => other?,
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (file, len);
    Ok(())
}

/// Reserved room is not enough: its first write would still change the extent tree, and a durable write would
/// wait for that journal entry too.
fn fill_with_zeros(file: &fs::File, len: u64) -> io::Result<()> {
    let mut offset = 0;
    while offset < len {
        let piece = ZEROS.len().min((len - offset) as usize);
        file.write_all_at(&ZEROS[..piece], offset)?;
        offset += piece as u64;
        // In portions: one large flush would hold up the durable writes of others.
        if offset.is_multiple_of(8 << 20) {
            file.sync_data()?;
        }
    }
    file.sync_all()
}

impl Files for RealFiles {
    fn open(&self, path: &Path, mode: Mode) -> io::Result<Arc<dyn File>> {
        let mut options = fs::OpenOptions::new();
        options.read(true);
        match mode {
            Mode::Read => &mut options,
            Mode::Write => options.write(true),
            Mode::Create => options.write(true).create_new(true).mode(0o600),
            Mode::WriteDurable => options.write(true).custom_flags(rustix::fs::OFlags::DSYNC.bits() as i32),
        };
        Ok(Arc::new(RealFile(options.open(path)?)))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<PathBuf>> {
        let mut paths = Vec::new();
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                paths.push(entry.path());
            }
        }
        paths.sort();
        Ok(paths)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn sync_dir(&self, directory: &Path) -> io::Result<()> {
        fs::File::open(directory)?.sync_all()
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        let file = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)?;
        file.try_lock()?;
        Ok(Box::new(file))
    }

    fn write_atomic(&self, path: &Path, bytes: &[u8], private: bool) -> io::Result<()> {
        let mut name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
        name.push(".new");
        let temporary = path.with_file_name(name);
        // What a crash left there may have other permissions.
        match fs::remove_file(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mode = if private { 0o600 } else { 0o644 };
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, path)?;
        match path.parent() {
            Some(directory) if !directory.as_os_str().is_empty() => self.sync_dir(directory),
            _ => self.sync_dir(Path::new(".")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allocated_file_is_zeros_and_takes_writes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        RealFiles.open(&path, Mode::Create).unwrap().allocate_zeroed(3 << 20).unwrap();
        let file = RealFiles.open(&path, Mode::WriteDurable).unwrap();
        file.write_all_at(b"here", 4096).unwrap();
        let bytes = RealFiles.read(&path).unwrap();
        assert_eq!(bytes.len(), 3 << 20);
        assert_eq!(&bytes[4096..4100], b"here");
        assert!(bytes[..4096].iter().chain(&bytes[4100..]).all(|byte| *byte == 0));
    }

    #[test]
    fn a_lock_is_held_until_dropped() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let held = RealFiles.lock(&path).unwrap();
        assert_eq!(RealFiles.lock(&path).err().map(|error| error.kind()), Some(io::ErrorKind::WouldBlock));
        drop(held);
        assert!(RealFiles.lock(&path).is_ok());
    }

    #[test]
    fn an_atomic_write_replaces_and_sets_permissions() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        RealFiles.write_atomic(&path, b"one", false).unwrap();
        RealFiles.write_atomic(&path, b"two", true).unwrap();
        assert_eq!(RealFiles.read(&path).unwrap(), b"two");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(RealFiles.list(directory.path()).unwrap(), [path]);
    }

    #[test]
    fn create_refuses_what_exists_and_the_others_what_does_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        for mode in [Mode::Read, Mode::Write, Mode::WriteDurable] {
            assert_eq!(RealFiles.open(&path, mode).err().map(|e| e.kind()), Some(io::ErrorKind::NotFound));
        }
        RealFiles.open(&path, Mode::Create).unwrap();
        let again = RealFiles.open(&path, Mode::Create).err().map(|error| error.kind());
        assert_eq!(again, Some(io::ErrorKind::AlreadyExists));
    }
}
