//! Checkpoints: all live objects at one position of the log, in one sorted file.
//!
//! ```text
//!   | header | block | block | ... | index block | footer block | trailer |
//!   block    | length | checksum | kind, content |
//! ```
//!
//! Blocks come in the order of workspace, collection and item, so that one object can be found by its key: that is
//! how the history gets the state before a record whose predecessor has left the log. A backup is the same file.

use std::{
    collections::HashMap,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use env::{File, Files, files::Mode};
use machinery::Revision;

use super::{
    OpenError,
    frame::{LogId, Reader},
    segment::{EPOCHS, FORMAT},
};
use crate::{
    Collection, WorkspaceId,
    live::{Epochs, Expiry, PastEpoch, Place},
};

mod encode;
mod write;

pub(crate) use encode::Encoder;
pub(crate) use write::Unfinished;
pub(super) use write::{CheckpointWriter, write_snapshots};

const MAGIC: &[u8; 8] = b"HANSECKP";
const TRAILER_MAGIC: u32 = u32::from_le_bytes(*b"HEND");
const PREFIX: &str = "checkpoint-";
const HEADER: usize = 64;
const BLOCK_HEADER: usize = 8;
const TRAILER: usize = 16;
/// Checksums of checkpoints begin as in this segment, which no log has.
const NO_SEGMENT: u32 = u32::MAX;

const WORKSPACE: u8 = 1;
const OBJECTS: u8 = 2;
const INDEX: u8 = 3;
const FOOTER: u8 = 4;

/// A position between two frames of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    /// The number of the last frame before it.
    pub sequence: u64,
    pub segment: u32,
    pub offset: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CheckpointHeader {
    pub id: LogId,
    /// The state is that of all frames up to here.
    pub position: Position,
    pub first_epoch: u32,
    /// Seconds since 1970, for people and for restores.
    pub created: i64,
}

impl CheckpointHeader {
    fn write(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&FORMAT.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&self.id.0);
        bytes.extend_from_slice(&self.position.sequence.to_le_bytes());
        bytes.extend_from_slice(&self.position.segment.to_le_bytes());
        bytes.extend_from_slice(&self.position.offset.to_le_bytes());
        bytes.extend_from_slice(&self.first_epoch.to_le_bytes());
        bytes.extend_from_slice(&self.created.to_le_bytes());
        bytes.resize(HEADER, 0);
        let checksum = crc32c::crc32c_append(crc32c::crc32c(&bytes[..12]), &bytes[16..]);
        bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    fn read(bytes: &[u8; HEADER], path: &Path) -> Result<Self, OpenError> {
        let damaged = |what| OpenError::damaged(path, 0, what);
        let mut reader = Reader::new(bytes);
        let parsed = (|| {
            let (magic, format, checksum) = (reader.take(8)?, reader.u32()?, reader.u32()?);
            let id = reader.log_id()?;
            let position =
                Position { sequence: reader.u64()?, segment: reader.u32()?, offset: reader.u32()? };
            let (first_epoch, created) = (reader.u32()?, reader.i64()?);
            Some((magic, format, checksum, Self { id, position, first_epoch, created }))
        })();
        let (magic, format, checksum, header) = parsed.ok_or(damaged("header is cut off"))?;
        if magic != MAGIC {
            return Err(damaged("not a checkpoint or backup"));
        }
        if format != FORMAT {
            return Err(OpenError::Version { path: path.to_owned(), found: format, known: FORMAT });
        }
        if crc32c::crc32c_append(crc32c::crc32c(&bytes[..12]), &bytes[16..]) != checksum {
            return Err(damaged("checksum of the header"));
        }
        if !EPOCHS.contains(&header.first_epoch) {
            return Err(damaged("no such epoch"));
        }
        Ok(header)
    }
}

pub(super) fn path_of(directory: &Path, sequence: u64) -> PathBuf {
    directory.join(format!("{PREFIX}{sequence:020}"))
}

pub(super) fn sequence_of(path: &Path) -> Option<u64> {
    let number = path.file_name()?.to_str()?.strip_prefix(PREFIX)?;
    (number.len() == 20).then(|| number.parse().ok())?
}

/// A workspace as a checkpoint holds it, without its objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkspaceEntry {
    pub id: WorkspaceId,
    pub head: Revision,
    pub forgotten: Revision,
    pub epochs: Epochs,
    pub collections: Vec<Collection>,
}

impl WorkspaceEntry {
    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let id = WorkspaceId(text(reader)?.into());
        let (head, forgotten) = (reader.revision()?, reader.revision()?);
        let mut past = Vec::new();
        for _ in 0..reader.u32()? {
            past.push(PastEpoch { start: reader.revision()?, end: reader.revision()? });
        }
        let epochs = Epochs::from_parts(past, reader.revision()?);
        let mut collections = Vec::new();
        for _ in 0..reader.u32()? {
            collections.push(Collection(text(reader)?.into()));
        }
        Some(Self { id, head, forgotten, epochs, collections })
    }
}

/// An object as a checkpoint holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectEntry<'a> {
    pub workspace: &'a str,
    pub collection: &'a str,
    pub item: &'a str,
    pub expires: Expiry,
    /// Where it is in the log of the store that wrote this; means nothing to another.
    pub place: Place,
    pub body: &'a [u8],
}

/// What a checkpoint consists of, for whoever reads all of it.
pub enum Entry<'a> {
    Workspace(WorkspaceEntry),
    Object(ObjectEntry<'a>),
}

fn text<'a>(reader: &mut Reader<'a>) -> Option<&'a str> {
    let len = usize::from(reader.u16()?);
    reader.str(len)
}

/// The key of the first object of a block, and where the block is.
#[derive(Clone, Debug)]
struct IndexEntry {
    workspace: WorkspaceId,
    collection: Collection,
    item: String,
    offset: u64,
}

impl IndexEntry {
    fn key(&self) -> (&str, &str, &str) {
        (&self.workspace.0, &self.collection.0, &self.item)
    }
}

/// A checkpoint that can be read.
pub(crate) struct Checkpoint {
    pub path: PathBuf,
    pub header: CheckpointHeader,
    pub size: u64,
    file: Arc<dyn File>,
    footer_offset: u64,
    totals: Totals,
    index: Vec<IndexEntry>,
}

impl Checkpoint {
    /// Opens a checkpoint and reads its index; the objects are checked when they are read.
    pub(crate) fn open(files: &dyn Files, path: &Path) -> Result<Self, OpenError> {
        let at_path = |source| OpenError::Io { path: path.to_owned(), source };
        let file = files.open(path, Mode::Read).map_err(at_path)?;
        let size = file.len().map_err(at_path)?;
        if size < (HEADER + TRAILER) as u64 {
            return Err(OpenError::damaged(path, size, "file is cut off"));
        }
        let mut header = [0; HEADER];
        file.read_exact_at(&mut header, 0).map_err(at_path)?;
        let header = CheckpointHeader::read(&header, path)?;
        let trailer_offset = size - TRAILER as u64;
        let mut trailer = [0; TRAILER];
        file.read_exact_at(&mut trailer, trailer_offset).map_err(at_path)?;
        let footer_offset = read_trailer(&trailer, header.id, trailer_offset).ok_or(OpenError::damaged(
            path,
            trailer_offset,
            "file does not end as a checkpoint does",
        ))?;
        let path = path.to_owned();
        let mut checkpoint =
            Self { path, header, size, file, footer_offset, totals: Totals::default(), index: Vec::new() };
        checkpoint.read_index()?;
        Ok(checkpoint)
    }

    fn damaged(&self, offset: u64, what: &'static str) -> OpenError {
        OpenError::damaged(&self.path, offset, what)
    }

    fn read_index(&mut self) -> Result<(), OpenError> {
        let footer = self.block(self.footer_offset)?;
        let footer = Footer::read(&footer.content)
            .ok_or_else(|| self.damaged(self.footer_offset, "not the footer of a checkpoint"))?;
        let index = self.block(footer.index_offset)?;
        let index = read_index(&index.content);
        self.index =
            index.ok_or_else(|| self.damaged(footer.index_offset, "not the index of a checkpoint"))?;
        self.totals = footer.totals;
        Ok(())
    }

    /// Reads the block at `offset` and checks it.
    fn block(&self, offset: u64) -> Result<Block, OpenError> {
        let at_path = |source| OpenError::Io { path: self.path.clone(), source };
        let cut_off = || self.damaged(offset, "block is cut off");
        let end = self.size - TRAILER as u64;
        let room = end.checked_sub(offset).filter(|room| *room >= BLOCK_HEADER as u64).ok_or_else(cut_off)?;
        let mut head = [0; BLOCK_HEADER];
        self.file.read_exact_at(&mut head, offset).map_err(at_path)?;
        let mut reader = Reader::new(&head);
        let (length, checksum) = reader.u32().zip(reader.u32()).ok_or_else(cut_off)?;
        if u64::from(length) > room - BLOCK_HEADER as u64 {
            return Err(cut_off());
        }
        let mut content = vec![0; length as usize];
        self.file.read_exact_at(&mut content, offset + BLOCK_HEADER as u64).map_err(at_path)?;
        if block_checksum(self.header.id, offset, &content) != checksum {
            return Err(self.damaged(offset, "checksum of a block"));
        }
        let next = offset + (BLOCK_HEADER + content.len()) as u64;
        Ok(Block { content, checksum, next })
    }

    /// Reads and checks everything, in order.
    pub(crate) fn read(
        &self,
        mut sink: impl FnMut(Entry<'_>) -> Result<(), &'static str>,
    ) -> Result<Totals, OpenError> {
        let mut offset = HEADER as u64;
        let mut totals = Totals::default();
        let mut digest = 0;
        loop {
            let block = self.block(offset)?;
            let flaw = match block.content.first() {
                Some(&WORKSPACE) => {
                    totals.workspaces += 1;
                    read_workspace(&block.content, &mut sink)
                }
                Some(&OBJECTS) => read_objects(&block.content, &mut |entry| {
                    totals.objects += 1;
                    sink(Entry::Object(entry))
                }),
                Some(&INDEX) => Ok(()),
                Some(&FOOTER) => {
                    let footer = Footer::read(&block.content);
                    let right =
                        footer.is_some_and(|footer| footer.totals == totals && footer.digest == digest);
                    let last = offset == self.footer_offset && block.next == self.size - TRAILER as u64;
                    if !right || !last {
                        return Err(self.damaged(offset, "footer does not fit the blocks before it"));
                    }
                    return Ok(totals);
                }
                _ => Err("unknown kind of block"),
            };
            flaw.map_err(|what| self.damaged(offset, what))?;
            digest = crc32c::crc32c_append(digest, &block.checksum.to_le_bytes());
            offset = block.next;
        }
    }

    /// Where every workspace stands, without reading the objects.
    pub(crate) fn heads(&self) -> Result<HashMap<WorkspaceId, Revision>, OpenError> {
        let mut heads = HashMap::new();
        let mut offset = HEADER as u64;
        while offset < self.footer_offset {
            let mut head = [0; BLOCK_HEADER + 1];
            self.file.read_exact_at(&mut head, offset).map_err(io_at(&self.path))?;
            if head[BLOCK_HEADER] == WORKSPACE {
                let block = self.block(offset)?;
                let mut reader = Reader::new(block.content.get(1..).unwrap_or_default());
                let entry = WorkspaceEntry::read(&mut reader);
                let entry = entry.ok_or_else(|| self.damaged(offset, "workspace is cut off"))?;
                heads.insert(entry.id, entry.head);
            }
            let length = Reader::new(&head).u32().unwrap_or(0);
            offset += BLOCK_HEADER as u64 + u64::from(length);
        }
        // Lengths were believed without a checksum; if one was wrong, a workspace is missing.
        if heads.len() as u64 != self.totals.workspaces {
            return Err(self.damaged(HEADER as u64, "workspaces are missing"));
        }
        Ok(heads)
    }

    /// The body of one object.
    pub(super) fn find(
        &self,
        workspace: &str,
        collection: &str,
        item: &str,
    ) -> Result<Option<Vec<u8>>, OpenError> {
        let after = self.index.partition_point(|entry| entry.key() <= (workspace, collection, item));
        let Some(entry) = after.checked_sub(1).and_then(|index| self.index.get(index)) else {
            return Ok(None);
        };
        let block = self.block(entry.offset)?;
        let mut found = None;
        let read = read_objects(&block.content, &mut |object| {
            if (object.workspace, object.collection, object.item) == (workspace, collection, item) {
                found = Some(object.body.to_vec());
            }
            Ok(())
        });
        read.map_err(|what| self.damaged(entry.offset, what))?;
        Ok(found)
    }
}

struct Block {
    content: Vec<u8>,
    checksum: u32,
    next: u64,
}

/// How much is in a checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub workspaces: u64,
    pub objects: u64,
}

struct Footer {
    index_offset: u64,
    totals: Totals,
    /// Over the checksums of all blocks before, so that none can be missing.
    digest: u32,
}

impl Footer {
    fn read(content: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(content);
        if reader.u8()? != FOOTER {
            return None;
        }
        let index_offset = reader.u64()?;
        let totals = Totals { workspaces: reader.u64()?, objects: reader.u64()? };
        let digest = reader.u32()?;
        Some(Self { index_offset, totals, digest })
    }
}

fn block_checksum(id: LogId, offset: u64, content: &[u8]) -> u32 {
    crc32c::crc32c_append(id.seed(NO_SEGMENT, offset), content)
}

fn read_trailer(trailer: &[u8; TRAILER], id: LogId, offset: u64) -> Option<u64> {
    let mut reader = Reader::new(trailer);
    let (footer_offset, checksum, magic) = (reader.u64()?, reader.u32()?, reader.u32()?);
    let right = magic == TRAILER_MAGIC && checksum == block_checksum(id, offset, &trailer[..8]);
    right.then_some(footer_offset)
}

fn read_index(content: &[u8]) -> Option<Vec<IndexEntry>> {
    let mut reader = Reader::new(content);
    if reader.u8()? != INDEX {
        return None;
    }
    let mut index = Vec::new();
    while !reader.is_empty() {
        let offset = reader.u64()?;
        let workspace = WorkspaceId(text(&mut reader)?.into());
        let collection = Collection(text(&mut reader)?.into());
        let item = text(&mut reader)?.to_owned();
        index.push(IndexEntry { workspace, collection, item, offset });
    }
    Some(index)
}

fn read_workspace(
    content: &[u8],
    sink: &mut impl FnMut(Entry<'_>) -> Result<(), &'static str>,
) -> Result<(), &'static str> {
    let mut reader = Reader::new(content.get(1..).unwrap_or_default());
    let entry = WorkspaceEntry::read(&mut reader).filter(|_| reader.is_empty());
    sink(Entry::Workspace(entry.ok_or("workspace is cut off")?))
}

fn read_objects(
    content: &[u8],
    sink: &mut impl FnMut(ObjectEntry<'_>) -> Result<(), &'static str>,
) -> Result<(), &'static str> {
    const CUT_OFF: &str = "object is cut off";
    let mut reader = Reader::new(content.get(1..).unwrap_or_default());
    let workspace = text(&mut reader).ok_or(CUT_OFF)?;
    let collection = text(&mut reader).ok_or(CUT_OFF)?;
    while !reader.is_empty() {
        let entry = (|| {
            let item_len = usize::from(reader.u16()?);
            let (expires, place) = (Expiry(reader.i64()?), Place(reader.u64()?));
            let body_len = reader.u32()? as usize;
            let (item, body) = (reader.str(item_len)?, reader.take(body_len)?);
            Some(ObjectEntry { workspace, collection, item, expires, place, body })
        })();
        sink(entry.ok_or(CUT_OFF)?)?;
    }
    Ok(())
}

/// Says where an I/O error happened.
pub(crate) fn io_at(path: &Path) -> impl Fn(io::Error) -> OpenError + '_ {
    |source| OpenError::Io { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use env::files::sim::SimDisk;
    use machinery::{Draft, EventType};
    use serde_json::json;

    use super::*;

    fn mk_body(name: &str, value: &str) -> Vec<u8> {
        let tree = json!({"kind": "K", "apiVersion": "v1", "metadata": {"name": name}, "value": value});
        let draft = Draft::encode(tree.as_object().unwrap()).unwrap();
        draft.seal(Revision::start_of_epoch(1).next(), EventType::Added).body_slice().to_vec()
    }

    /// Two workspaces, each with objects enough for several blocks.
    fn mk_checkpoint(disk: &SimDisk, name: &str, value: &str) -> Checkpoint {
        let directory = Path::new("/data");
        disk.create_dir_all(directory).unwrap();
        let position = Position { sequence: 1, segment: 1, offset: 4096 };
        let header = CheckpointHeader { id: LogId([1; 16]), position, first_epoch: 1, created: 0 };
        let path = directory.join(name);
        let mut writer = CheckpointWriter::create(Arc::new(disk.clone()), path.clone(), header).unwrap();
        let head = Revision::start_of_epoch(1).next();
        for id in ["one", "two"] {
            writer
                .workspace(&WorkspaceEntry {
                    id: WorkspaceId(id.into()),
                    head,
                    forgotten: Revision::start_of_epoch(1),
                    epochs: Epochs::starting_at(Revision::start_of_epoch(1)),
                    collections: vec![Collection::new("", "things")],
                })
                .unwrap();
            for number in 0..200 {
                let item = format!("ns/{number:03}");
                let (workspace, collection, item) = (id, "core/things", item.as_str());
                let body = mk_body(item, &format!("{value}{}", "x".repeat(1000)));
                let (expires, place) = (Expiry::NEVER, Place::default());
                writer
                    .object(&ObjectEntry { workspace, collection, item, expires, place, body: &body })
                    .unwrap();
            }
        }
        writer.finish().unwrap();
        Checkpoint::open(disk, &path).unwrap()
    }

    #[test]
    fn objects_are_found_by_key_and_all_are_read() {
        let disk = SimDisk::new(1);
        let checkpoint = mk_checkpoint(&disk, "c", "a");
        assert!(checkpoint.index.len() > 6, "several blocks");
        for id in ["one", "two"] {
            for number in 0..200 {
                let found = checkpoint.find(id, "core/things", &format!("ns/{number:03}")).unwrap();
                let body = mk_body(&format!("ns/{number:03}"), &format!("a{}", "x".repeat(1000)));
                assert_eq!(found, Some(body));
            }
        }
        for (id, collection, item) in
            [("one", "core/things", "ns/200"), ("a", "core/things", "ns/000"), ("two", "core/z", "ns/000")]
        {
            assert_eq!(checkpoint.find(id, collection, item).unwrap(), None);
        }
        assert_eq!(checkpoint.read(|_| Ok(())).unwrap(), Totals { workspaces: 2, objects: 400 });
        assert_eq!(checkpoint.heads().unwrap().len(), 2);
    }

    /// Blocks of another checkpoint of the same log at the same offset, as a lost write would leave them behind.
    #[test]
    fn a_block_of_another_checkpoint_does_not_pass() {
        let disk = SimDisk::new(1);
        let (one, other) = (mk_checkpoint(&disk, "one", "a"), mk_checkpoint(&disk, "other", "b"));
        assert_eq!(one.size, other.size);
        let offset = one.index[1].offset;
        let mut block = vec![0; (one.index[2].offset - offset) as usize];
        other.file.read_exact_at(&mut block, offset).unwrap();
        disk.open(&one.path, Mode::Write).unwrap().write_all_at(&block, offset).unwrap();
        assert!(one.block(offset).is_ok(), "the block itself is whole");
        assert!(matches!(one.read(|_| Ok(())), Err(OpenError::Damaged { .. })));
    }
}
