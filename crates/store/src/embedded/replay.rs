//! Replaying: what checkpoint and log add up to.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use machinery::{EventType, Object, Revision};

use super::{
    checkpoint::{Entry, ObjectEntry},
    frame::{Kind, Record},
};
use crate::{
    Collection, ItemKey, WorkspaceId,
    live::{Epochs, Item, Items, Live, Loaded},
};

/// All workspaces while they are put together.
pub(super) struct Replay {
    origin: Revision,
    workspaces: HashMap<WorkspaceId, Replayed>,
}

struct Replayed {
    head: Revision,
    /// The last record of a commit that is not complete yet; otherwise the head.
    reached: Revision,
    forgotten: Revision,
    epochs: Epochs,
    collections: BTreeMap<Collection, Items>,
}

impl Replayed {
    fn starting_at(origin: Revision) -> Self {
        Self {
            head: origin,
            reached: origin,
            forgotten: origin,
            epochs: Epochs::starting_at(origin),
            collections: BTreeMap::new(),
        }
    }

    /// Checks that a record continues the history, and moves on to it.
    fn advance(&mut self, record: &Record<'_>) -> Result<(), &'static str> {
        if record.revision == record.commit_start {
            if self.reached != self.head {
                return Err("a commit begins inside another");
            }
            let continues = record.revision.as_u64() == self.head.as_u64() + 1;
            let begins_epoch = record.revision.epoch() > self.head.epoch() && record.revision.seq() == 1;
            if begins_epoch {
                let start = Revision::start_of_epoch(record.revision.epoch());
                self.epochs = self.epochs.followed_by(self.head, start);
            } else if !continues {
                return Err("a record does not continue its history");
            }
        } else if record.revision.as_u64() != self.reached.as_u64() + 1 || self.reached == self.head {
            return Err("a record does not continue its commit");
        }
        self.reached = record.revision;
        if record.revision == record.commit_end {
            self.head = record.revision;
        }
        Ok(())
    }
}

fn read_object(body: &[u8]) -> Result<Arc<Object>, &'static str> {
    // After a restart an object is most likely sent as the first event of a watch.
    Object::from_body(body, EventType::Added).map(Arc::new).map_err(|_| "not an object")
}

impl Replay {
    pub(super) fn new(first_epoch: u32) -> Self {
        Self { origin: Revision::start_of_epoch(first_epoch), workspaces: HashMap::new() }
    }

    pub(super) fn entry(&mut self, entry: Entry<'_>) -> Result<(), &'static str> {
        match entry {
            Entry::Workspace(entry) => {
                let collections = entry.collections.into_iter().map(|name| (name, Items::new())).collect();
                let replayed = Replayed {
                    head: entry.head,
                    reached: entry.head,
                    forgotten: entry.forgotten,
                    epochs: entry.epochs,
                    collections,
                };
                self.workspaces.insert(entry.id, replayed);
                Ok(())
            }
            Entry::Object(entry) => self.object(&entry),
        }
    }

    fn object(&mut self, entry: &ObjectEntry<'_>) -> Result<(), &'static str> {
        let workspace = self.workspaces.get_mut(&WorkspaceId(entry.workspace.into()));
        let workspace = workspace.ok_or("object of an unknown workspace")?;
        let items = workspace.collections.entry(Collection(entry.collection.into())).or_default();
        let object = read_object(entry.body)?;
        if object.revision > workspace.head {
            return Err("object from the future");
        }
        let item = Item { object, place: entry.place, expires: entry.expires };
        items.insert(ItemKey(entry.item.into()), item);
        Ok(())
    }

    pub(super) fn record(&mut self, record: &Record<'_>) -> Result<(), &'static str> {
        let id = WorkspaceId(record.workspace.into());
        if record.kind == Kind::RemoveWorkspace {
            self.workspaces.remove(&id);
            return Ok(());
        }
        let origin = self.origin;
        let workspace = self.workspaces.entry(id).or_insert_with(|| Replayed::starting_at(origin));
        match record.kind {
            Kind::Put | Kind::Remove => {
                workspace.advance(record)?;
                apply(workspace, record)
            }
            Kind::Compact if record.revision > workspace.head => Err("compaction of the future"),
            Kind::Compact => {
                workspace.forgotten = workspace.forgotten.max(record.revision);
                Ok(())
            }
            Kind::BeginEpoch if record.revision <= workspace.head => Err("an epoch begins in the past"),
            Kind::BeginEpoch => {
                workspace.epochs = workspace.epochs.followed_by(workspace.head, record.revision);
                (workspace.head, workspace.reached) = (record.revision, record.revision);
                Ok(())
            }
            Kind::RemoveWorkspace => Ok(()),
        }
    }

    /// Whether every commit is whole; frames hold nothing less.
    pub(super) fn is_whole(&self, frame: &[Record<'_>]) -> bool {
        let last_of = |record: &Record<'_>| self.workspaces.get(&WorkspaceId(record.workspace.into()));
        frame.iter().filter_map(last_of).all(|workspace| workspace.reached == workspace.head)
    }

    pub(super) fn load_into(self, live: &Live) {
        for (id, workspace) in self.workspaces {
            let loaded = Loaded {
                head: workspace.head,
                forgotten: workspace.forgotten,
                epochs: workspace.epochs,
                collections: workspace.collections.into_iter().collect(),
            };
            live.load(&id, loaded);
        }
    }

    /// Where every workspace stands.
    pub(super) fn heads(&self) -> HashMap<WorkspaceId, Revision> {
        self.workspaces.iter().map(|(id, workspace)| (id.clone(), workspace.head)).collect()
    }
}

fn apply(workspace: &mut Replayed, record: &Record<'_>) -> Result<(), &'static str> {
    let items = workspace.collections.entry(Collection(record.collection.into())).or_default();
    let key = ItemKey(record.item.into());
    let before = items.get(&key).map(|item| item.object.revision);
    if before != record.previous.map(|previous| previous.revision) {
        return Err("a record replaces another version than there was");
    }
    match record.kind {
        Kind::Put => {
            let object = read_object(record.body)?;
            if object.revision != record.revision {
                return Err("an object has another revision than its record");
            }
            items.insert(key, Item { object, place: record.place, expires: record.expires });
        }
        _ => {
            items.remove(&key).ok_or("a removal of nothing")?;
        }
    }
    Ok(())
}
