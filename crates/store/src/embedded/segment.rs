//! Segment files: made whole before they are used, never changed but by appending frames.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use env::{File, Files, files::Mode};

use super::{
    OpenError,
    frame::{BLOCK, LogId, Reader},
};

/// The version of the log's and the checkpoints' format that this program reads and writes.
pub(super) const FORMAT: u32 = 1;

/// The epochs there are: 17 bits of a revision, without zero.
pub(crate) const EPOCHS: std::ops::Range<u32> = 1..1 << 17;

const MAGIC: &[u8; 8] = b"HANSELOG";
const PREFIX: &str = "log-";
pub(super) const UNFINISHED: &str = "tmp";

/// What was there before the first frame of the log; the same in all its segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FirstState {
    /// Histories that are not in the log begin in this epoch.
    pub epoch: u32,
    /// Nothing was there. Otherwise the log cannot be read without the checkpoint it began with, or a later one.
    pub empty: bool,
}

/// What every segment says about itself in its first block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentHeader {
    pub id: LogId,
    pub number: u32,
    pub first: FirstState,
    pub size: u64,
}

impl SegmentHeader {
    fn write(&self) -> Vec<u8> {
        let mut block = Vec::with_capacity(BLOCK);
        block.extend_from_slice(MAGIC);
        block.extend_from_slice(&FORMAT.to_le_bytes());
        block.extend_from_slice(&[0; 4]);
        block.extend_from_slice(&self.id.0);
        block.extend_from_slice(&self.number.to_le_bytes());
        block.extend_from_slice(&self.first.epoch.to_le_bytes());
        block.extend_from_slice(&self.size.to_le_bytes());
        block.push(u8::from(self.first.empty));
        block.resize(BLOCK, 0);
        let checksum = header_checksum(&block);
        block[12..16].copy_from_slice(&checksum.to_le_bytes());
        block
    }

    /// Reads the first block of the segment at `path`.
    pub(super) fn read(block: &[u8], path: &Path) -> Result<Self, OpenError> {
        let damaged = |what| OpenError::damaged(path, 0, what);
        let mut reader = Reader::new(block);
        let header = (|| {
            let magic = reader.take(8)?;
            let format = reader.u32()?;
            let checksum = reader.u32()?;
            let id = reader.log_id()?;
            let (number, epoch, size, empty) = (reader.u32()?, reader.u32()?, reader.u64()?, reader.u8()?);
            let first = FirstState { epoch, empty: empty == 1 };
            Some((magic, format, checksum, Self { id, number, first, size }))
        })();
        let (magic, format, checksum, header) = header.ok_or(damaged("segment header is cut off"))?;
        if magic != MAGIC {
            return Err(damaged("not a segment of a log"));
        }
        if format != FORMAT {
            return Err(OpenError::Version { path: path.to_owned(), found: format, known: FORMAT });
        }
        if block.len() < BLOCK || header_checksum(&block[..BLOCK]) != checksum {
            return Err(damaged("checksum of the segment header"));
        }
        if !EPOCHS.contains(&header.first.epoch) {
            return Err(damaged("no such epoch"));
        }
        Ok(header)
    }
}

/// Over the whole block but the checksum itself.
fn header_checksum(block: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&block[..12]), &block[16..])
}

pub(super) fn path_of(directory: &Path, number: u32) -> PathBuf {
    directory.join(format!("{PREFIX}{number:08}"))
}

/// The number in a segment's name; `None` if it is not the name of a segment.
pub(super) fn number_of(path: &Path) -> Option<u32> {
    let number = path.file_name()?.to_str()?.strip_prefix(PREFIX)?;
    (number.len() == 8).then(|| number.parse().ok())?
}

/// Why a segment was not made.
#[derive(Debug)]
pub(super) struct Unmade {
    pub error: io::Error,
    /// Until the directory is synced, the name may stand for the new file or for what it stood for before. Neither
    /// may be written to.
    pub name_in_doubt: bool,
}

/// Makes a segment: zeros on disk, header, name. When it returns, all of it survives a crash. Replaces a segment of
/// the same number, which must hold nothing.
pub(super) fn create(files: &dyn Files, directory: &Path, header: &SegmentHeader) -> Result<(), Unmade> {
    let path = path_of(directory, header.number);
    let unfinished = path.with_extension(UNFINISHED);
    let filled = remove_if_there(files, &unfinished).and_then(|()| {
        let file = files.open(&unfinished, Mode::Create)?;
        file.allocate_zeroed(header.size)?;
        file.write_all_at(&header.write(), 0)?;
        file.sync()
    });
    if let Err(error) = filled {
        // Give the room back if there is any; the first error is the one to report.
        let _ = files.remove(&unfinished);
        return Err(Unmade { error, name_in_doubt: false });
    }
    let named = files.rename(&unfinished, &path).and_then(|()| files.sync_dir(directory));
    named.map_err(|error| Unmade { error, name_in_doubt: true })
}

pub(super) fn remove_if_there(files: &dyn Files, path: &Path) -> io::Result<()> {
    match files.remove(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// A segment that can be read.
#[derive(Clone)]
pub(super) struct Segment {
    pub header: SegmentHeader,
    pub file: Arc<dyn File>,
}

impl Segment {
    pub(super) fn open(files: &dyn Files, path: &Path) -> Result<Self, OpenError> {
        let at_path = |source| OpenError::Io { path: path.to_owned(), source };
        let file = files.open(path, Mode::Read).map_err(at_path)?;
        let len = file.len().map_err(at_path)?;
        let mut block = vec![0; BLOCK.min(len as usize)];
        file.read_exact_at(&mut block, 0).map_err(at_path)?;
        let header = SegmentHeader::read(&block, path)?;
        if number_of(path) != Some(header.number) {
            return Err(OpenError::damaged(path, 0, "segment has the name of another"));
        }
        if len < header.size {
            return Err(OpenError::damaged(path, len, "segment is cut off"));
        }
        Ok(Self { header, file })
    }

    /// All its bytes.
    pub(super) fn read(&self) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; self.header.size as usize];
        self.file.read_exact_at(&mut bytes, 0)?;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use env::files::sim::SimDisk;

    use super::*;

    #[test]
    fn a_segment_is_there_whole_or_not_at_all() {
        let directory = Path::new("/data");
        let header = SegmentHeader {
            id: LogId([3; 16]),
            number: 7,
            first: FirstState { epoch: 2, empty: true },
            size: 4 * BLOCK as u64,
        };
        for seed in 0..200 {
            let disk = SimDisk::new(seed);
            disk.create_dir_all(directory).unwrap();
            disk.crash_after(seed % 8);
            let made = create(&disk, directory, &header);
            disk.crash();
            let path = path_of(directory, 7);
            match Segment::open(&disk, &path) {
                Ok(segment) => {
                    assert_eq!(segment.header, header);
                    assert!(segment.read().unwrap()[BLOCK..].iter().all(|byte| *byte == 0));
                }
                Err(OpenError::Io { source, .. }) => {
                    assert!(made.is_err() && source.kind() == io::ErrorKind::NotFound);
                }
                Err(other) => panic!("seed {seed}: {other}"),
            }
        }
    }

    #[test]
    fn names_are_exact() {
        assert_eq!(number_of(Path::new("/d/log-00000012")), Some(12));
        for other in ["/d/log-12", "/d/log-00000012.tmp", "/d/checkpoint-1", "/d/log-0000001x"] {
            assert_eq!(number_of(Path::new(other)), None, "{other}");
        }
    }
}
