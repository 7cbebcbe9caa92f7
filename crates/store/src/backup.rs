//! A whole store as one file, whatever engine it is of: written while the store goes on, and read back.
//!
//! ```text
//!   Store ── snapshots ──> Export ── bytes ──> BackupFile ──> a file that was read back before it got its name
//!                                     └──────> a network, and a BackupFile at its other end
//!   file ──> Backup ── entries ──> restore into a directory, or whatever else makes a store
//! ```
//!
//! Each workspace is as it was at one commit end: head, epochs, and all objects with the time they expire. The
//! histories before that are not part of it. The format is that of a checkpoint ([`crate::embedded`]).

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    ops::Bound,
    path::{Path, PathBuf},
    sync::Arc,
};

use env::{Env, Files, files::Mode};
use jiff::Timestamp;
use machinery::Revision;

use crate::{
    Collection, ItemKey, Store, WorkspaceId,
    embedded::{
        EPOCHS, OpenError,
        checkpoint::{Checkpoint, CheckpointHeader, Encoder, Unfinished, io_at},
        new_header,
    },
    live::{Item, Items, Place, Snapshot},
};

pub use crate::embedded::checkpoint::{Entry, ObjectEntry, Totals, WorkspaceEntry};

/// Bytes are handed out in pieces of at least this size, but for the last.
const PIECE: usize = 64 << 10;

/// The bytes of a backup, made as they are asked for.
///
/// The snapshots are all taken at the beginning, one after the other, in the order of the workspaces' ids, and each is
/// let go of when it has been written. What is written meanwhile is not in the backup.
pub struct Export {
    encoder: Encoder,
    snapshots: VecDeque<Snapshot>,
    current: Option<Cursor>,
    keep_places: bool,
    forget_past: bool,
    over: bool,
}

/// How far a workspace has been encoded.
struct Cursor {
    workspace: WorkspaceId,
    collections: VecDeque<(Collection, Items)>,
    after: Option<ItemKey>,
}

impl Export {
    /// Everything that `store` holds now.
    pub fn of(env: &Env, store: &dyn Store) -> Export {
        // One that no store has heard of stands where all histories begin.
        let first_epoch = store.head(&WorkspaceId("".into())).epoch();
        let mut workspaces = store.workspaces();
        workspaces.sort();
        let snapshots = workspaces.iter().filter_map(|id| store.snapshot(id)).collect();
        Export::new(new_header(env, first_epoch), snapshots, false)
    }

    /// As [`Export::of`], of snapshots whose past does not come along.
    pub(crate) fn without_history(header: CheckpointHeader, snapshots: Vec<Snapshot>) -> Export {
        let mut export = Export::new(header, snapshots.into(), false);
        export.forget_past = true;
        export
    }

    /// As [`Export::of`], with where the objects are in the log that `header` names: for that log's own checkpoints.
    pub(crate) fn with_places(header: CheckpointHeader, snapshots: Vec<Snapshot>) -> Export {
        Export::new(header, snapshots.into(), true)
    }

    fn new(header: CheckpointHeader, snapshots: VecDeque<Snapshot>, keep_places: bool) -> Export {
        Export {
            encoder: Encoder::new(&header),
            snapshots,
            current: None,
            keep_places,
            forget_past: false,
            over: false,
        }
    }

    /// Encodes some more.
    fn fill(&mut self) {
        if let Some(cursor) = &mut self.current {
            if !cursor.encode_some(&mut self.encoder, self.keep_places) {
                self.current = None;
            }
            return;
        }
        let Some(snapshot) = self.snapshots.pop_front() else {
            self.encoder.finish();
            self.over = true;
            return;
        };
        let (state, collections) = (snapshot.state(), snapshot.collections());
        self.encoder.workspace(&WorkspaceEntry {
            id: snapshot.id().clone(),
            head: state.head,
            forgotten: if self.forget_past { state.head } else { state.forgotten },
            epochs: state.epochs.clone(),
            collections: collections.iter().map(|(collection, _)| collection.clone()).collect(),
        });
        let workspace = snapshot.id().clone();
        self.current = Some(Cursor { workspace, collections: collections.into(), after: None });
    }
}

impl Cursor {
    /// Encodes until there is a piece to hand out or the collection ends; false when there are no more collections.
    fn encode_some(&mut self, encoder: &mut Encoder, keep_places: bool) -> bool {
        let Some((collection, items)) = self.collections.front() else { return false };
        let from = self.after.take().map_or(Bound::Unbounded, Bound::Excluded);
        for (key, item) in items.range((from, Bound::Unbounded)) {
            encoder.object(&ObjectEntry {
                workspace: &self.workspace.0,
                collection: &collection.0,
                item: &key.0,
                expires: item.expires,
                place: if keep_places { item.place } else { Place::default() },
                body: item.object.body_slice(),
            });
            if encoder.ready().len() >= PIECE {
                self.after = Some(key.clone());
                return true;
            }
        }
        self.collections.pop_front();
        true
    }
}

impl Iterator for Export {
    type Item = Vec<u8>;

    /// The next bytes of the file.
    fn next(&mut self) -> Option<Vec<u8>> {
        while !self.over && self.encoder.ready().len() < PIECE {
            self.fill();
        }
        let piece = std::mem::take(self.encoder.ready());
        (!piece.is_empty()).then_some(piece)
    }
}

/// Gives all bytes of a backup of `store` to `sink`, in order. An error of the sink ends it.
pub fn export<E>(
    env: &Env,
    store: &dyn Store,
    mut sink: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    Export::of(env, store).try_for_each(|piece| sink(&piece))
}

/// A backup in the making: under another name until all of it has been written, synced and read back. Dropped before
/// that, it leaves nothing behind.
pub struct BackupFile {
    files: Arc<dyn Files>,
    path: PathBuf,
    file: Unfinished,
}

impl BackupFile {
    /// Nothing must be at `path`.
    pub fn create(files: Arc<dyn Files>, path: &Path) -> Result<BackupFile, OpenError> {
        if files.open(path, Mode::Read).is_ok() {
            return Err(io_at(path)(io::ErrorKind::AlreadyExists.into()));
        }
        let file = Unfinished::create(files.clone(), path.to_owned()).map_err(io_at(path))?;
        Ok(BackupFile { files, path: path.to_owned(), file })
    }

    pub fn append(&mut self, bytes: &[u8]) -> Result<(), OpenError> {
        self.file.append(bytes).map_err(io_at(&self.path))
    }

    /// Checks every byte as it is on disk, and gives the file its name.
    pub fn finish(mut self) -> Result<Totals, OpenError> {
        let written = self.file.complete().map_err(io_at(&self.path))?;
        let totals = Backup::open(&*self.files, written)?.totals;
        self.file.name().map_err(io_at(&self.path))?;
        Ok(totals)
    }
}

/// A backup of which every byte has been checked.
pub struct Backup {
    checkpoint: Checkpoint,
    pub totals: Totals,
}

impl Backup {
    /// Reads and checks all of it.
    pub fn open(files: &dyn Files, path: &Path) -> Result<Backup, OpenError> {
        let checkpoint = Checkpoint::open(files, path)?;
        let totals = checkpoint.read(|_| Ok(()))?;
        Ok(Backup { checkpoint, totals })
    }

    /// When it was begun.
    pub fn created(&self) -> Option<Timestamp> {
        Timestamp::from_second(self.checkpoint.header.created).ok()
    }

    /// The epoch that all histories begin with in a store made from this backup now, if there is one left.
    ///
    /// It lies above every epoch in the backup, and further above the older the backup is, by a minute in its first
    /// hour and by an hour after that. So two restores of one backup do not share an epoch, as long as there is a
    /// minute, or an hour, between them.
    pub fn next_epoch(&self, now: Timestamp) -> Result<u32, OpenError> {
        let header = &self.checkpoint.header;
        let heads = self.checkpoint.heads()?;
        let newest = heads.values().map(|head| head.epoch()).fold(header.first_epoch, u32::max);
        let minutes = (now.as_second() - header.created).max(0) / 60;
        let since = u32::try_from(1 + minutes.min(60) + minutes / 60).unwrap_or(u32::MAX);
        let epoch = newest.saturating_add(since);
        match EPOCHS.contains(&epoch) {
            true => Ok(epoch),
            false => Err(OpenError::NoEpoch { path: self.checkpoint.path.clone() }),
        }
    }
}

/// Gives everything in a backup to `sink`, in the order of workspace, collection and item, each workspace before its
/// objects. Every workspace stands at the start of `epoch`: whoever saw what happened after the backup must begin again.
/// An error of the sink ends it, and is returned with the place in the file.
pub fn import(
    backup: &Backup,
    epoch: u32,
    mut sink: impl FnMut(Entry<'_>) -> Result<(), &'static str>,
) -> Result<(), OpenError> {
    let start = Revision::start_of_epoch(epoch);
    let read = backup.checkpoint.read(|entry| match entry {
        Entry::Workspace(workspace) => sink(Entry::Workspace(WorkspaceEntry {
            epochs: workspace.epochs.followed_by(workspace.head, start),
            head: start,
            ..workspace
        })),
        Entry::Object(object) => sink(Entry::Object(ObjectEntry { place: Place::default(), ..object })),
    });
    read.map(drop)
}

/// Whether two stores hold the same: every workspace at the same head in the same epochs, with the same objects that
/// expire at the same time. `Err` says what differs first.
pub fn compare(one: &[Snapshot], other: &[Snapshot]) -> Result<Totals, String> {
    if one.len() != other.len() {
        return Err(format!("{} workspaces are not {}", one.len(), other.len()));
    }
    let by_id = |snapshots: &'_ [Snapshot]| -> BTreeMap<WorkspaceId, usize> {
        snapshots.iter().enumerate().map(|(at, snapshot)| (snapshot.id().clone(), at)).collect()
    };
    let (here, there) = (by_id(one), by_id(other));
    let mut totals = Totals::default();
    for (id, at) in here {
        let (left, right) = match there.get(&id) {
            Some(there) => (&one[at], &other[*there]),
            None => return Err(format!("workspace {id} is missing")),
        };
        if left.state().head != right.state().head {
            return Err(format!("workspace {id} stands at {} and {}", left.state().head, right.state().head));
        }
        if left.state().epochs != right.state().epochs {
            return Err(format!("workspace {id} had other epochs"));
        }
        let full = |snapshot: &Snapshot| {
            let mut collections = snapshot.collections();
            collections.retain(|(_, items)| !items.is_empty());
            collections
        };
        let (left, right) = (full(left), full(right));
        if left.len() != right.len() {
            return Err(format!("workspace {id} has other collections"));
        }
        for ((name, items), (other_name, other_items)) in left.iter().zip(&right) {
            let same = |((key, item), (other_key, other)): ((&ItemKey, &Item), (&ItemKey, &Item))| {
                key == other_key
                    && item.expires == other.expires
                    && item.object.body_slice() == other.object.body_slice()
            };
            let mut all = items.iter().zip(other_items.iter());
            if name != other_name || items.len() != other_items.len() || !all.all(same) {
                return Err(format!("workspace {id} has other objects of {name:?}"));
            }
            totals.objects += items.len() as u64;
        }
        totals.workspaces += 1;
    }
    Ok(totals)
}
