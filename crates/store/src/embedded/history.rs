//! History on disk: which records the retained log holds, and how to read them back.
//!
//! ```text
//!   base checkpoint      newest checkpoint
//!        |                      |
//!   -----+======= log ==========+======= log =======> end
//!        |<----------- history that can be read --->|
//! ```
//!
//! A record says where the version before it was written. If that part of the log is gone, the version was alive at
//! the base checkpoint and is found there by its key.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
};

use machinery::{EventType, Object, Revision};
use parking_lot::RwLock;

use super::{
    checkpoint::Checkpoint,
    frame::{Indexed, Kind, LogId, RECORD_HEADER, Reader, Record},
    segment::Segment,
};
use crate::{
    Collection, Error, Event, EventChange, ItemKey, Key, WorkspaceId,
    live::{Archive, Place},
};

/// What of the log can be read: shared by the writer, who adds, the keeper, who removes, and slow watchers.
pub(super) struct History {
    id: LogId,
    retained: RwLock<Retained>,
}

#[derive(Default)]
struct Retained {
    segments: BTreeMap<u32, Segment>,
    index: HashMap<WorkspaceId, HashMap<Collection, VecDeque<(Revision, Place)>>>,
    base: Option<Base>,
    /// Workspaces that were removed, by the frame that did it: what the base says of them is no longer true.
    removed: HashMap<WorkspaceId, u64>,
}

/// The checkpoint at the beginning of the retained log.
#[derive(Clone)]
pub(super) struct Base {
    pub checkpoint: Arc<Checkpoint>,
    /// Where the workspaces stood there.
    pub heads: Arc<HashMap<WorkspaceId, Revision>>,
}

impl Retained {
    fn floor(&self, workspace: &WorkspaceId) -> Option<Revision> {
        let base = self.base.as_ref()?;
        match self.removed.get(workspace) {
            Some(sequence) if *sequence > base.checkpoint.header.position.sequence => None,
            _ => base.heads.get(workspace).copied(),
        }
    }
}

/// Why a record cannot be read back. Whoever asked must list again.
#[derive(Debug, thiserror::Error)]
enum Lost {
    #[error("segment {0} is gone")]
    Segment(u32),
    #[error("segment {} at byte {}: {what}", place.segment(), place.offset())]
    Damaged { place: Place, what: &'static str },
    #[error("cannot read segment {segment}: {source}")]
    Io { segment: u32, source: std::io::Error },
    #[error(transparent)]
    Checkpoint(#[from] super::OpenError),
    #[error("the base checkpoint does not hold {item}")]
    Missing { item: String },
}

impl History {
    pub(super) fn new(id: LogId, base: Option<Base>) -> Self {
        Self { id, retained: RwLock::new(Retained { base, ..Retained::default() }) }
    }

    pub(super) fn add_segment(&self, segment: Segment) {
        self.retained.write().segments.insert(segment.header.number, segment);
    }

    pub(super) fn add_records(&self, records: impl Iterator<Item = Indexed>) {
        let mut retained = self.retained.write();
        for record in records {
            let topics = retained.index.entry(record.workspace).or_default();
            topics.entry(record.collection).or_default().push_back((record.revision, record.place));
        }
    }

    /// The frame `sequence` removed a workspace.
    pub(super) fn remove_workspace(&self, workspace: &WorkspaceId, sequence: u64) {
        let mut retained = self.retained.write();
        retained.index.remove(workspace);
        retained.removed.insert(workspace.clone(), sequence);
    }

    /// The numbers and sizes of the retained segments.
    pub(super) fn segments(&self) -> Vec<(u32, u64)> {
        let retained = self.retained.read();
        retained.segments.iter().map(|(number, segment)| (*number, segment.header.size)).collect()
    }

    /// Forgets everything before `base`; the files can go afterwards.
    pub(super) fn advance(&self, base: Base) {
        let mut retained = self.retained.write();
        let position = base.checkpoint.header.position;
        retained.segments = retained.segments.split_off(&position.segment);
        retained.removed.retain(|_, sequence| *sequence > position.sequence);
        retained.base = Some(base);
        let floors: HashMap<WorkspaceId, Revision> =
            retained.index.keys().filter_map(|id| Some((id.clone(), retained.floor(id)?))).collect();
        for (id, floor) in floors {
            let Some(topics) = retained.index.get_mut(&id) else { continue };
            topics.retain(|_, records| {
                let gone = records.partition_point(|(revision, _)| *revision <= floor);
                records.drain(..gone);
                !records.is_empty()
            });
        }
        retained.index.retain(|_, topics| !topics.is_empty());
    }

    /// The places of up to `max` records of a collection, in order.
    fn places(
        &self,
        workspace: &WorkspaceId,
        collection: &Collection,
        after: Revision,
        upto: Revision,
        max: usize,
    ) -> Result<Vec<Place>, Error> {
        let retained = self.retained.read();
        if let Some(floor) = retained.floor(workspace).filter(|floor| after < *floor) {
            return Err(Error::Expired { oldest: floor });
        }
        let records = retained.index.get(workspace).and_then(|topics| topics.get(collection));
        let Some(records) = records else { return Ok(Vec::new()) };
        let first = records.partition_point(|(revision, _)| *revision <= after);
        let wanted = records.range(first..).take_while(|(revision, _)| *revision <= upto).take(max);
        Ok(wanted.map(|(_, place)| *place).collect())
    }

    /// The bytes of the record at `place`.
    fn bytes_at(&self, place: Place) -> Result<Vec<u8>, Lost> {
        /// Most records are smaller, so that one read is enough.
        const GUESS: usize = 4096;
        let segment = self.retained.read().segments.get(&place.segment()).cloned();
        let segment = segment.ok_or(Lost::Segment(place.segment()))?;
        let offset = u64::from(place.offset());
        let room = segment.header.size.saturating_sub(offset) as usize;
        let damaged = || Lost::Damaged { place, what: "no record" };
        let io = |source| Lost::Io { segment: place.segment(), source };
        let mut bytes = vec![0; room.min(GUESS)];
        segment.file.read_exact_at(&mut bytes, offset).map_err(io)?;
        let length = Reader::new(bytes.get(4..).unwrap_or_default()).u32().ok_or_else(damaged)? as usize;
        if !(RECORD_HEADER..=room).contains(&length) {
            return Err(damaged());
        }
        let already = bytes.len();
        bytes.resize(length, 0);
        if length > already {
            segment.file.read_exact_at(&mut bytes[already..], offset + already as u64).map_err(io)?;
        }
        Ok(bytes)
    }

    fn event_at(&self, place: Place) -> Result<Event, Lost> {
        let bytes = self.bytes_at(place)?;
        let (record, ..) = Record::read(&bytes, self.id, place)
            .ok_or(Lost::Damaged { place, what: "checksum of a record" })?;
        let old = self.old_of(&record)?;
        let not_an_object = Lost::Damaged { place, what: "not an object" };
        let change = match (record.kind, &old) {
            (Kind::Put, _) => {
                let event = if old.is_some() { EventType::Modified } else { EventType::Added };
                let object = Object::from_body(record.body, event).map_err(|_| not_an_object)?;
                EventChange::Put(Arc::new(object))
            }
            (Kind::Remove, Some(old)) => {
                EventChange::Removed(Arc::new(old.with_revision(record.revision, EventType::Deleted)))
            }
            _ => return Err(Lost::Damaged { place, what: "not the record of an object" }),
        };
        let key = Key { collection: Collection(record.collection.into()), item: ItemKey(record.item.into()) };
        Ok(Event {
            workspace: WorkspaceId(record.workspace.into()),
            key,
            revision: record.revision,
            commit_start: record.commit_start,
            commit_end: record.commit_end,
            old,
            change,
        })
    }

    /// The version that `record` replaced: from the log, or from the base checkpoint if it was alive there.
    fn old_of(&self, record: &Record<'_>) -> Result<Option<Arc<Object>>, Lost> {
        let Some(previous) = record.previous else { return Ok(None) };
        let missing = || Lost::Missing { item: record.item.to_owned() };
        let body = match self.bytes_at(previous.place) {
            Ok(bytes) => {
                let damaged = Lost::Damaged { place: previous.place, what: "checksum of a record" };
                let (old, ..) = Record::read(&bytes, self.id, previous.place).ok_or(damaged)?;
                old.body.to_vec()
            }
            Err(Lost::Segment(_)) => {
                let base = self.retained.read().base.clone().ok_or_else(missing)?;
                let found = base.checkpoint.find(record.workspace, record.collection, record.item)?;
                found.ok_or_else(missing)?
            }
            Err(other) => return Err(other),
        };
        let old = Object::from_body(&body, EventType::Modified).ok();
        let right = old.filter(|old| old.revision == previous.revision);
        right.map(|old| Some(Arc::new(old))).ok_or_else(missing)
    }
}

impl Archive for History {
    fn floor(&self, workspace: &WorkspaceId) -> Option<Revision> {
        self.retained.read().floor(workspace)
    }

    fn read(
        &self,
        workspace: &WorkspaceId,
        collection: &Collection,
        after: Revision,
        upto: Revision,
        max: usize,
    ) -> Result<Vec<Arc<Event>>, Error> {
        let places = self.places(workspace, collection, after, upto, max)?;
        let mut events = Vec::with_capacity(places.len());
        for place in places {
            match self.event_at(place) {
                Ok(event) => events.push(Arc::new(event)),
                // Retention has moved on while this was being read.
                Err(Lost::Segment(_)) => return Err(Error::Expired { oldest: upto }),
                Err(error) => {
                    tracing::error!(%error, %workspace, ?collection, "history on disk cannot be read");
                    return Err(Error::Expired { oldest: upto });
                }
            }
        }
        Ok(events)
    }
}
