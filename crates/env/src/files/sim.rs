//! A disk in memory that can lose power, run full, fail and rot, all from a seed.
//!
//! ```text
//!   program ── write ──> what programs see ── sync ──> what survives
//!                          |  unsynced sectors: each of their versions, or none, may survive a crash
//!                          └  unsynced names:   each change may survive or not
//! ```
//!
//! The model is that of [`File`](super::File)'s promises: sectors of 512 bytes are written whole or not at all, and
//! nothing else holds between two syncs. A handle from before a crash fails for ever after it.

mod node;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use parking_lot::Mutex;

use super::{File, Files, Mode};
use crate::random::SeededRandom;
use node::Node;

/// A kind of file operation, to let one fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Read,
    Write,
    Sync,
}

/// Lets an operation fail: the one after `skip` others of its kind, and with `sticky` all later ones too.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    pub operation: Operation,
    pub skip: u64,
    pub kind: io::ErrorKind,
    pub sticky: bool,
}

/// An in-memory file tree. Clones are handles of the same disk.
#[derive(Clone)]
pub struct SimDisk {
    disk: Arc<Mutex<Disk>>,
}

type FileId = u64;

struct Disk {
    random: SeededRandom,
    /// What programs see.
    names: BTreeMap<PathBuf, FileId>,
    /// What survives for certain, and what happened to it since, in order.
    durable_names: BTreeMap<PathBuf, FileId>,
    pending_names: Vec<NameChange>,
    directories: BTreeSet<PathBuf>,
    nodes: HashMap<FileId, Node>,
    next_id: FileId,
    locks: BTreeSet<PathBuf>,
    capacity: u64,
    faults: Vec<Fault>,
    /// Changes until the power goes; `None`: it stays on.
    changes_left: Option<u64>,
    /// Changes made so far, for tests that choose where to cut.
    changes: u64,
    power: Power,
    /// Counts restarts; a handle of an earlier one is dead.
    generation: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Power {
    On,
    Off,
}

#[derive(Clone)]
enum NameChange {
    Added(PathBuf, FileId),
    Moved { from: PathBuf, to: PathBuf, id: FileId },
    Removed(PathBuf),
}

impl NameChange {
    fn is_in(&self, directory: &Path) -> bool {
        match self {
            NameChange::Added(path, _) | NameChange::Removed(path) => path.parent() == Some(directory),
            NameChange::Moved { to, .. } => to.parent() == Some(directory),
        }
    }

    fn apply(&self, names: &mut BTreeMap<PathBuf, FileId>) {
        match self {
            NameChange::Added(path, id) => {
                names.insert(path.clone(), *id);
            }
            NameChange::Moved { from, to, id } => {
                if names.get(from) == Some(id) {
                    names.remove(from);
                }
                names.insert(to.clone(), *id);
            }
            NameChange::Removed(path) => {
                names.remove(path);
            }
        }
    }
}

/// What a change that the power cut interrupted may still do.
enum Turn {
    Whole,
    /// The power goes in the middle of it.
    Last,
}

fn power_is_off() -> io::Error {
    io::Error::other("the simulated machine has no power")
}

impl Disk {
    fn alive(&self, generation: u64) -> io::Result<()> {
        if self.power == Power::Off || self.generation != generation { Err(power_is_off()) } else { Ok(()) }
    }

    /// Counts a change and says whether it is the one that the power cut hits.
    fn change(&mut self) -> Turn {
        self.changes += 1;
        match &mut self.changes_left {
            Some(0) => {
                self.power = Power::Off;
                Turn::Last
            }
            Some(left) => {
                *left -= 1;
                Turn::Whole
            }
            None => Turn::Whole,
        }
    }

    fn fault(&mut self, operation: Operation) -> io::Result<()> {
        let mut failed = None;
        self.faults.retain_mut(|fault| {
            if fault.operation != operation || failed.is_some() {
                return true;
            }
            if fault.skip > 0 {
                fault.skip -= 1;
                return true;
            }
            failed = Some(fault.kind);
            fault.sticky
        });
        failed.map_or(Ok(()), |kind| Err(io::Error::new(kind, "injected fault")))
    }

    fn used(&self) -> u64 {
        self.names.values().filter_map(|id| self.nodes.get(id)).map(|node| node.len() as u64).sum()
    }

    fn room_for(&self, id: FileId, len: u64) -> io::Result<()> {
        let now = self.nodes.get(&id).map_or(0, |node| node.len() as u64);
        if len > now && self.used() + (len - now) > self.capacity {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }

    fn node(&mut self, id: FileId) -> io::Result<&mut Node> {
        self.nodes.get_mut(&id).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn rename(&mut self, change: NameChange) -> io::Result<()> {
        if let Turn::Last = self.change() {
            // Whether the change was in time is decided with the other unsynced ones.
            self.pending_names.push(change);
            return Err(power_is_off());
        }
        change.apply(&mut self.names);
        self.pending_names.push(change);
        Ok(())
    }

    fn create(&mut self, path: &Path) -> io::Result<FileId> {
        let directory = path.parent().unwrap_or(Path::new(""));
        if !directory.as_os_str().is_empty() && !self.directories.contains(directory) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let id = self.next_id;
        self.next_id += 1;
        self.nodes.insert(id, Node::default());
        self.rename(NameChange::Added(path.to_owned(), id))?;
        Ok(id)
    }

    /// Decides what survives, and starts again with that.
    fn restart(&mut self) {
        let pending = std::mem::take(&mut self.pending_names);
        // A journal keeps the order of changes and loses the last ones; without one anything may happen.
        let journal = self.random.below(2) == 0;
        let kept_by_journal = self.random.below(pending.len() as u64 + 1) as usize;
        for (index, change) in pending.iter().enumerate() {
            let kept = if journal { index < kept_by_journal } else { self.random.below(2) == 0 };
            if kept {
                change.apply(&mut self.durable_names);
            }
        }
        self.names = self.durable_names.clone();
        let named: BTreeSet<FileId> = self.names.values().copied().collect();
        self.nodes.retain(|id, _| named.contains(id));
        let mut ids: Vec<FileId> = self.nodes.keys().copied().collect();
        ids.sort_unstable();
        for id in ids {
            if let Some(node) = self.nodes.get_mut(&id) {
                node.crash(&self.random);
            }
        }
        self.locks.clear();
        self.faults.clear();
        self.changes_left = None;
        self.power = Power::On;
        self.generation += 1;
    }
}

impl SimDisk {
    /// An empty disk of unbounded size, whose losses follow from `seed`.
    pub fn new(seed: u64) -> Self {
        let disk = Disk {
            random: SeededRandom::new(seed),
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            pending_names: Vec::new(),
            directories: BTreeSet::new(),
            nodes: HashMap::new(),
            next_id: 0,
            locks: BTreeSet::new(),
            capacity: u64::MAX,
            faults: Vec::new(),
            changes_left: None,
            changes: 0,
            power: Power::On,
            generation: 0,
        };
        Self { disk: Arc::new(Mutex::new(disk)) }
    }

    /// Another disk with what is on this one for certain: as if the machine had been switched off at rest.
    pub fn copy(&self, seed: u64) -> Self {
        let copy = Self::new(seed);
        let disk = self.disk.lock();
        let mut other = copy.disk.lock();
        other.names.clone_from(&disk.durable_names);
        other.durable_names.clone_from(&disk.durable_names);
        other.directories.clone_from(&disk.directories);
        other.nodes = disk.nodes.iter().map(|(id, node)| (*id, node.at_rest())).collect();
        other.next_id = disk.next_id;
        drop(other);
        copy
    }

    /// The power goes now and comes back: what was not synced is lost, in part or whole. Open files are dead.
    pub fn crash(&self) {
        self.disk.lock().restart();
    }

    /// The power goes in the middle of the change after `changes` more; every call fails from then on, until
    /// [`SimDisk::crash`] brings the machine back.
    pub fn crash_after(&self, changes: u64) {
        self.disk.lock().changes_left = Some(changes);
    }

    pub fn has_power(&self) -> bool {
        self.disk.lock().power == Power::On
    }

    /// How many changes were made: writes, syncs and names.
    pub fn changes(&self) -> u64 {
        self.disk.lock().changes
    }

    /// Bytes the disk can hold; what is there stays.
    pub fn set_capacity(&self, bytes: u64) {
        self.disk.lock().capacity = bytes;
    }

    pub fn used(&self) -> u64 {
        self.disk.lock().used()
    }

    pub fn inject(&self, fault: Fault) {
        self.disk.lock().faults.push(fault);
    }

    pub fn clear_faults(&self) {
        self.disk.lock().faults.clear();
    }

    /// Turns one bit over, as rot does. Answers whether there is such a byte.
    pub fn flip_bit(&self, path: &Path, offset: u64, bit: u8) -> bool {
        let mut disk = self.disk.lock();
        let Some(id) = disk.names.get(path).copied() else { return false };
        disk.node(id).is_ok_and(|node| node.flip(offset as usize, bit))
    }

    /// The files and their sizes.
    pub fn sizes(&self) -> Vec<(PathBuf, u64)> {
        let disk = self.disk.lock();
        let size = |id: &FileId| disk.nodes.get(id).map_or(0, |node| node.len() as u64);
        disk.names.iter().map(|(path, id)| (path.clone(), size(id))).collect()
    }

    fn opened(&self, disk: &Disk, id: FileId, durable: bool) -> Arc<dyn File> {
        Arc::new(SimFile { disk: self.disk.clone(), generation: disk.generation, id, durable })
    }
}

impl Files for SimDisk {
    fn open(&self, path: &Path, mode: Mode) -> io::Result<Arc<dyn File>> {
        let mut disk = self.disk.lock();
        disk.alive(disk.generation)?;
        let existing = disk.names.get(path).copied();
        let id = match (mode, existing) {
            (Mode::Create, Some(_)) => return Err(io::ErrorKind::AlreadyExists.into()),
            (Mode::Create, None) => disk.create(path)?,
            (_, Some(id)) => id,
            (_, None) => return Err(io::ErrorKind::NotFound.into()),
        };
        Ok(self.opened(&disk, id, mode == Mode::WriteDurable))
    }

    /// Directories survive at once: nothing is learnt from losing an empty one.
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        let mut disk = self.disk.lock();
        disk.alive(disk.generation)?;
        let ancestors = path.ancestors().map(Path::to_owned);
        disk.directories.extend(ancestors);
        Ok(())
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<PathBuf>> {
        let disk = self.disk.lock();
        disk.alive(disk.generation)?;
        if !disk.directories.contains(directory) {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(disk.names.keys().filter(|path| path.parent() == Some(directory)).cloned().collect())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut disk = self.disk.lock();
        disk.alive(disk.generation)?;
        let id = disk.names.get(from).copied().ok_or(io::ErrorKind::NotFound)?;
        disk.rename(NameChange::Moved { from: from.to_owned(), to: to.to_owned(), id })
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut disk = self.disk.lock();
        disk.alive(disk.generation)?;
        if !disk.names.contains_key(path) {
            return Err(io::ErrorKind::NotFound.into());
        }
        disk.rename(NameChange::Removed(path.to_owned()))
    }

    fn sync_dir(&self, directory: &Path) -> io::Result<()> {
        let mut disk = self.disk.lock();
        disk.alive(disk.generation)?;
        if let Turn::Last = disk.change() {
            return Err(power_is_off());
        }
        disk.fault(Operation::Sync)?;
        let (synced, pending) =
            std::mem::take(&mut disk.pending_names).into_iter().partition(|change| change.is_in(directory));
        disk.pending_names = pending;
        let synced: Vec<NameChange> = synced;
        synced.iter().for_each(|change| change.apply(&mut disk.durable_names));
        Ok(())
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        let mut disk = self.disk.lock();
        disk.alive(disk.generation)?;
        if !disk.names.contains_key(path) {
            disk.create(path)?;
        }
        if !disk.locks.insert(path.to_owned()) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(Box::new(SimLock { disk: self.disk.clone(), generation: disk.generation, path: path.to_owned() }))
    }

    fn write_atomic(&self, path: &Path, bytes: &[u8], _private: bool) -> io::Result<()> {
        let mut name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
        name.push(".new");
        let temporary = path.with_file_name(name);
        match self.remove(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = self.open(&temporary, Mode::Create)?;
        file.write_all_at(bytes, 0)?;
        file.sync()?;
        self.rename(&temporary, path)?;
        self.sync_dir(path.parent().unwrap_or(Path::new("")))
    }
}

struct SimLock {
    disk: Arc<Mutex<Disk>>,
    generation: u64,
    path: PathBuf,
}

impl Drop for SimLock {
    fn drop(&mut self) {
        let mut disk = self.disk.lock();
        if disk.generation == self.generation {
            disk.locks.remove(&self.path);
        }
    }
}

struct SimFile {
    disk: Arc<Mutex<Disk>>,
    generation: u64,
    id: FileId,
    durable: bool,
}

impl File for SimFile {
    fn len(&self) -> io::Result<u64> {
        let mut disk = self.disk.lock();
        disk.alive(self.generation)?;
        Ok(disk.node(self.id)?.len() as u64)
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let mut disk = self.disk.lock();
        disk.alive(self.generation)?;
        disk.fault(Operation::Read)?;
        disk.node(self.id)?.read(buffer, offset as usize)
    }

    fn write_all_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        let disk = &mut *self.disk.lock();
        disk.alive(self.generation)?;
        disk.room_for(self.id, offset + buffer.len() as u64)?;
        let interrupted = match disk.change() {
            Turn::Last => Err(power_is_off()),
            Turn::Whole => disk.fault(Operation::Write),
        };
        let node = disk.nodes.get_mut(&self.id).ok_or(io::ErrorKind::NotFound)?;
        node.write(buffer, offset as usize);
        interrupted?;
        if self.durable {
            node.sync_range(offset as usize, buffer.len());
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let disk = &mut *self.disk.lock();
        disk.alive(self.generation)?;
        if let Turn::Last = disk.change() {
            return Err(power_is_off());
        }
        disk.fault(Operation::Sync)?;
        disk.node(self.id)?.sync();
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let disk = &mut *self.disk.lock();
        disk.alive(self.generation)?;
        disk.room_for(self.id, len)?;
        let turn = disk.change();
        disk.node(self.id)?.set_len(len as usize);
        if let Turn::Last = turn { Err(power_is_off()) } else { Ok(()) }
    }

    fn allocate_zeroed(&self, len: u64) -> io::Result<()> {
        {
            let disk = &mut *self.disk.lock();
            disk.alive(self.generation)?;
            disk.room_for(self.id, len)?;
            disk.fault(Operation::Write)?;
            let turn = disk.change();
            let node = disk.node(self.id)?;
            node.write(&vec![0; len as usize], 0);
            if let Turn::Last = turn {
                return Err(power_is_off());
            }
        }
        self.sync()
    }
}

#[cfg(test)]
mod tests;
