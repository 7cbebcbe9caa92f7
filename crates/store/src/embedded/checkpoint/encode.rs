//! The bytes of a checkpoint, front to back: whoever writes them needs no seeking, so they can be sent as well.

use super::{
    BLOCK_HEADER, CheckpointHeader, FOOTER, INDEX, IndexEntry, LogId, OBJECTS, ObjectEntry, TRAILER_MAGIC,
    Totals, WORKSPACE, WorkspaceEntry, block_checksum,
};
use crate::{Collection, WorkspaceId};

/// A block is full when it holds this much; a larger object has one of its own.
const BLOCK_SIZE: usize = 64 << 10;

/// Turns entries, given in order, into bytes.
pub(crate) struct Encoder {
    id: LogId,
    /// Of the next block.
    offset: u64,
    digest: u32,
    totals: Totals,
    index: Vec<IndexEntry>,
    /// The content of the block being filled; empty between blocks.
    block: Vec<u8>,
    block_of: Option<(WorkspaceId, Collection)>,
    first_item: String,
    /// Finished bytes that nobody has taken yet.
    ready: Vec<u8>,
}

fn put_text(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend_from_slice(&(text.len() as u16).to_le_bytes());
    bytes.extend_from_slice(text.as_bytes());
}

impl Encoder {
    pub(crate) fn new(header: &CheckpointHeader) -> Self {
        let ready = header.write();
        Self {
            id: header.id,
            offset: ready.len() as u64,
            digest: 0,
            totals: Totals::default(),
            index: Vec::new(),
            block: Vec::with_capacity(BLOCK_SIZE * 2),
            block_of: None,
            first_item: String::new(),
            ready,
        }
    }

    /// What comes next in the file. Empty it before the next call if memory counts.
    pub(crate) fn ready(&mut self) -> &mut Vec<u8> {
        &mut self.ready
    }

    /// Objects of the workspace follow, in order.
    pub(crate) fn workspace(&mut self, entry: &WorkspaceEntry) {
        self.flush();
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
        self.flush();
    }

    pub(crate) fn object(&mut self, entry: &ObjectEntry<'_>) {
        let same = self.block_of.as_ref().is_some_and(|(workspace, collection)| {
            workspace.0 == entry.workspace && collection.0 == entry.collection
        });
        let full = self.block.len() + entry.body.len() > BLOCK_SIZE;
        if !same || (full && !self.block.is_empty()) {
            self.flush();
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
    }

    fn flush(&mut self) {
        if self.block.is_empty() {
            return;
        }
        let offset = self.offset;
        if let Some((workspace, collection)) = self.block_of.take() {
            let item = std::mem::take(&mut self.first_item);
            self.index.push(IndexEntry { workspace, collection, item, offset });
        }
        let checksum = block_checksum(self.id, offset, &self.block);
        self.ready.extend_from_slice(&(self.block.len() as u32).to_le_bytes());
        self.ready.extend_from_slice(&checksum.to_le_bytes());
        self.ready.extend_from_slice(&self.block);
        self.digest = crc32c::crc32c_append(self.digest, &checksum.to_le_bytes());
        self.offset += (BLOCK_HEADER + self.block.len()) as u64;
        self.block.clear();
    }

    /// Index, footer and trailer: nothing may follow.
    pub(crate) fn finish(&mut self) {
        self.flush();
        let index_offset = self.offset;
        self.block.push(INDEX);
        for entry in &self.index {
            self.block.extend_from_slice(&entry.offset.to_le_bytes());
            put_text(&mut self.block, &entry.workspace.0);
            put_text(&mut self.block, &entry.collection.0);
            put_text(&mut self.block, &entry.item);
        }
        self.flush();
        let footer_offset = self.offset;
        self.block.push(FOOTER);
        for number in [index_offset, self.totals.workspaces, self.totals.objects] {
            self.block.extend_from_slice(&number.to_le_bytes());
        }
        self.block.extend_from_slice(&self.digest.to_le_bytes());
        self.flush();
        let footer_offset = footer_offset.to_le_bytes();
        let checksum = block_checksum(self.id, self.offset, &footer_offset);
        self.ready.extend_from_slice(&footer_offset);
        self.ready.extend_from_slice(&checksum.to_le_bytes());
        self.ready.extend_from_slice(&TRAILER_MAGIC.to_le_bytes());
    }
}
