//! The content of one simulated file: what programs see, what survives, and what may.

use std::{collections::BTreeMap, io, ops::Range};

use crate::random::SeededRandom;

const SECTOR: usize = 512;

/// Holds a file's bytes and, per sector written since the last sync, every version it has had.
#[derive(Default)]
pub(super) struct Node {
    now: Vec<u8>,
    durable: Vec<u8>,
    unsynced: BTreeMap<usize, Vec<Vec<u8>>>,
    /// Every length since the last sync.
    lengths: Vec<usize>,
}

fn sectors(offset: usize, len: usize) -> Range<usize> {
    offset / SECTOR..(offset + len).div_ceil(SECTOR)
}

fn put(bytes: &mut Vec<u8>, offset: usize, part: &[u8]) {
    if bytes.len() < offset + part.len() {
        bytes.resize(offset + part.len(), 0);
    }
    bytes[offset..offset + part.len()].copy_from_slice(part);
}

impl Node {
    pub(super) fn len(&self) -> usize {
        self.now.len()
    }

    fn sector(&self, sector: usize) -> Vec<u8> {
        let start = (sector * SECTOR).min(self.now.len());
        let end = ((sector + 1) * SECTOR).min(self.now.len());
        self.now[start..end].to_vec()
    }

    pub(super) fn read(&self, buffer: &mut [u8], offset: usize) -> io::Result<()> {
        let part = self.now.get(offset..offset + buffer.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        buffer.copy_from_slice(part);
        Ok(())
    }

    pub(super) fn write(&mut self, buffer: &[u8], offset: usize) {
        let len_before = self.now.len();
        put(&mut self.now, offset, buffer);
        if self.now.len() != len_before {
            self.lengths.push(self.now.len());
        }
        for sector in sectors(offset, buffer.len()) {
            let version = self.sector(sector);
            self.unsynced.entry(sector).or_default().push(version);
        }
    }

    pub(super) fn set_len(&mut self, len: usize) {
        self.now.resize(len, 0);
        self.lengths.push(len);
        // What was cut off reads as zeros if the file grows again, and so it may after a crash.
        if !len.is_multiple_of(SECTOR) {
            let version = self.sector(len / SECTOR);
            self.unsynced.entry(len / SECTOR).or_default().push(version);
        }
    }

    pub(super) fn sync(&mut self) {
        self.durable.resize(self.now.len(), 0);
        for sector in std::mem::take(&mut self.unsynced).into_keys() {
            let part = self.sector(sector);
            if !part.is_empty() {
                put(&mut self.durable, sector * SECTOR, &part);
            }
        }
        self.lengths.clear();
        self.durable.truncate(self.now.len());
    }

    /// Makes what was just written survive, and no more.
    pub(super) fn sync_range(&mut self, offset: usize, len: usize) {
        for sector in sectors(offset, len) {
            let part = self.sector(sector);
            self.unsynced.remove(&sector);
            put(&mut self.durable, sector * SECTOR, &part);
        }
    }

    /// Keeps, of every sector, what was synced or any version since.
    pub(super) fn crash(&mut self, random: &SeededRandom) {
        let mut survived = std::mem::take(&mut self.durable);
        let versions = self.lengths.len() as u64 + 1;
        let len = match random.below(versions) {
            0 => survived.len(),
            version => self.lengths[version as usize - 1],
        };
        // Some crashes keep nearly everything, some nearly nothing: both ends find bugs that the middle does not.
        let keep_percent = [0, 10, 50, 90, 100][random.below(5) as usize];
        for (sector, mut versions) in std::mem::take(&mut self.unsynced) {
            if random.below(100) < keep_percent {
                let newest_first = random.below(4) > 0;
                let chosen = if newest_first {
                    versions.len() - 1
                } else {
                    random.below(versions.len() as u64) as usize
                };
                put(&mut survived, sector * SECTOR, &versions.swap_remove(chosen));
            }
        }
        survived.resize(len, 0);
        self.lengths.clear();
        self.now.clone_from(&survived);
        self.durable = survived;
    }

    pub(super) fn at_rest(&self) -> Node {
        Node { now: self.durable.clone(), durable: self.durable.clone(), ..Node::default() }
    }

    pub(super) fn flip(&mut self, offset: usize, bit: u8) -> bool {
        let mask = 1 << (bit % 8);
        let flip = |bytes: &mut Vec<u8>| bytes.get_mut(offset).map(|byte| *byte ^= mask).is_some();
        let flipped = flip(&mut self.now);
        flip(&mut self.durable);
        flipped
    }
}
