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
    BLOCK_HEADER, CheckpointHeader, FOOTER, HEADER, INDEX, IndexEntry, OBJECTS, ObjectEntry, TRAILER_MAGIC,
    Totals, WORKSPACE, WorkspaceEntry, block_checksum,
};
use crate::{Collection, WorkspaceId, live::Snapshot};

/// A block is full when it holds this much; a larger object has one of its own.
const BLOCK_SIZE: usize = 64 << 10;
/// Written bytes are synced in portions, so that the last sync does not hold up the log for long.
const SYNC_EVERY: u64 = 8 << 20;

/// A checkpoint in the making; without [`CheckpointWriter::finish`] it does not exist.
pub(in super::super) struct CheckpointWriter {
    files: Arc<dyn Files>,
    path: PathBuf,
    unfinished: PathBuf,
    header: CheckpointHeader,
    file: Arc<dyn File>,
    offset: u64,
    synced: u64,
    digest: u32,
    totals: Totals,
    index: Vec<IndexEntry>,
    /// The content of the block being filled; empty between blocks.
    block: Vec<u8>,
    block_of: Option<(WorkspaceId, Collection)>,
    first_item: String,
}

fn put_text(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend_from_slice(&(text.len() as u16).to_le_bytes());
    bytes.extend_from_slice(text.as_bytes());
}

impl CheckpointWriter {
    pub(in super::super) fn create(
        files: Arc<dyn Files>,
        path: PathBuf,
        header: CheckpointHeader,
    ) -> io::Result<Self> {
        let mut name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
        name.push(format!(".{UNFINISHED}"));
        let unfinished = path.with_file_name(name);
        remove_if_there(&*files, &unfinished)?;
        let file = files.open(&unfinished, Mode::Create)?;
        let mut writer = Self {
            files,
            path,
            unfinished,
            header,
            file,
            offset: HEADER as u64,
            synced: 0,
            digest: 0,
            totals: Totals::default(),
            index: Vec::new(),
            block: Vec::with_capacity(BLOCK_SIZE * 2),
            block_of: None,
            first_item: String::new(),
        };
        let written = writer.file.write_all_at(&header.write(), 0);
        writer.clean_up_after(written)?;
        Ok(writer)
    }

    /// Removes the unfinished file after an error, so that a full disk gets its room back.
    fn clean_up_after<T>(&mut self, result: io::Result<T>) -> io::Result<T> {
        if result.is_err() {
            let _ = self.files.remove(&self.unfinished);
        }
        result
    }

    /// Objects of the workspace follow, in order.
    pub(in super::super) fn workspace(&mut self, entry: &WorkspaceEntry) -> io::Result<()> {
        self.flush()?;
        self.block.push(WORKSPACE);
        put_text(&mut self.block, &entry.id.0);
        for revision in [entry.head, entry.forgotten] {
            self.block.extend_from_slice(&revision.as_u64().to_le_bytes());
        }
        self.block.extend_from_slice(&(entry.epochs.past().len() as u32).to_le_bytes());
        for epoch in entry.epochs.past() {
            self.block.extend_from_slice(&epoch.start.as_u64().to_le_bytes());
            self.block.extend_from_slice(&epoch.end.as_u64().to_le_bytes());
        }
        self.block.extend_from_slice(&entry.epochs.start().as_u64().to_le_bytes());
        self.block.extend_from_slice(&(entry.collections.len() as u32).to_le_bytes());
        for collection in &entry.collections {
            put_text(&mut self.block, &collection.0);
        }
        self.totals.workspaces += 1;
        self.flush()
    }

    /// Answers whether a block was written, so that a long dump can let others run.
    pub(in super::super) fn object(&mut self, entry: &ObjectEntry<'_>) -> io::Result<bool> {
        let same = self.block_of.as_ref().is_some_and(|(workspace, collection)| {
            workspace.0 == entry.workspace && collection.0 == entry.collection
        });
        let full = self.block.len() + entry.body.len() > BLOCK_SIZE;
        let flush = !same || (full && !self.block.is_empty());
        if flush {
            self.flush()?;
            self.block.push(OBJECTS);
            put_text(&mut self.block, entry.workspace);
            put_text(&mut self.block, entry.collection);
            self.block_of = Some((WorkspaceId(entry.workspace.into()), Collection(entry.collection.into())));
            entry.item.clone_into(&mut self.first_item);
        }
        self.block.extend_from_slice(&(entry.item.len() as u16).to_le_bytes());
        self.block.extend_from_slice(&entry.expires.0.to_le_bytes());
        self.block.extend_from_slice(&entry.place.0.to_le_bytes());
        self.block.extend_from_slice(&(entry.body.len() as u32).to_le_bytes());
        self.block.extend_from_slice(entry.item.as_bytes());
        self.block.extend_from_slice(entry.body);
        self.totals.objects += 1;
        Ok(flush)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.block.is_empty() {
            return Ok(());
        }
        let offset = self.offset;
        if let Some((workspace, collection)) = self.block_of.take() {
            let item = std::mem::take(&mut self.first_item);
            self.index.push(IndexEntry { workspace, collection, item, offset });
        }
        let checksum = block_checksum(self.header.id, offset, &self.block);
        let mut head = [0; BLOCK_HEADER];
        head[..4].copy_from_slice(&(self.block.len() as u32).to_le_bytes());
        head[4..].copy_from_slice(&checksum.to_le_bytes());
        let written = self.write_block(head, offset);
        self.clean_up_after(written)?;
        self.digest = crc32c::crc32c_append(self.digest, &checksum.to_le_bytes());
        self.offset += (BLOCK_HEADER + self.block.len()) as u64;
        self.block.clear();
        Ok(())
    }

    fn write_block(&mut self, head: [u8; BLOCK_HEADER], offset: u64) -> io::Result<()> {
        self.file.write_all_at(&head, offset)?;
        self.file.write_all_at(&self.block, offset + BLOCK_HEADER as u64)?;
        if offset - self.synced > SYNC_EVERY {
            self.file.sync()?;
            self.synced = offset;
        }
        Ok(())
    }

    /// Completes the file, gives it its name, and returns its size. It survives a crash from then on.
    pub(in super::super) fn finish(mut self) -> io::Result<u64> {
        self.flush()?;
        let index_offset = self.offset;
        self.block.push(INDEX);
        for entry in &self.index {
            self.block.extend_from_slice(&entry.offset.to_le_bytes());
            put_text(&mut self.block, &entry.workspace.0);
            put_text(&mut self.block, &entry.collection.0);
            put_text(&mut self.block, &entry.item);
        }
        self.flush()?;
        let footer_offset = self.offset;
        self.block.push(FOOTER);
        for number in [index_offset, self.totals.workspaces, self.totals.objects] {
            self.block.extend_from_slice(&number.to_le_bytes());
        }
        self.block.extend_from_slice(&self.digest.to_le_bytes());
        self.flush()?;
        let mut trailer = footer_offset.to_le_bytes().to_vec();
        let checksum = block_checksum(self.header.id, self.offset, &trailer);
        trailer.extend_from_slice(&checksum.to_le_bytes());
        trailer.extend_from_slice(&TRAILER_MAGIC.to_le_bytes());
        let named = self.write_trailer(&trailer);
        self.clean_up_after(named)?;
        Ok(self.offset + trailer.len() as u64)
    }

    fn write_trailer(&self, trailer: &[u8]) -> io::Result<()> {
        self.file.write_all_at(trailer, self.offset)?;
        self.file.sync()?;
        self.files.rename(&self.unfinished, &self.path)?;
        let directory = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        self.files.sync_dir(directory.unwrap_or(Path::new(".")))
    }
}

/// Dumps `snapshots`, which must be in the order of their ids. Lets others run between blocks, and gives up when
/// `stop` is set.
pub(in super::super) async fn write_snapshots(
    mut writer: CheckpointWriter,
    snapshots: &[Snapshot],
    stop: &AtomicBool,
) -> io::Result<u64> {
    for snapshot in snapshots {
        let state = snapshot.state();
        let collections = snapshot.collections();
        writer.workspace(&WorkspaceEntry {
            id: snapshot.id().clone(),
            head: state.head,
            forgotten: state.forgotten,
            epochs: state.epochs.clone(),
            collections: collections.iter().map(|(collection, _)| collection.clone()).collect(),
        })?;
        for (collection, items) in &collections {
            for (key, item) in items {
                let wrote = writer.object(&ObjectEntry {
                    workspace: &snapshot.id().0,
                    collection: &collection.0,
                    item: &key.0,
                    expires: item.expires,
                    place: item.place,
                    body: item.object.body_slice(),
                })?;
                if wrote {
                    if stop.load(Ordering::Relaxed) {
                        return writer.clean_up_after(Err(io::ErrorKind::Interrupted.into()));
                    }
                    tokio::task::yield_now().await;
                }
            }
        }
    }
    writer.finish()
}
