//! What servers say to one another: a deed for a workspace that the other leads, and what came of it.

use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use machinery::{Draft, EventType, Object, Revision};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::writer::{Deed, Done, Failure};
use crate::{
    Bounds, Change, Collection, Commit, Committed, Error, Expect, ItemKey, Key, Usage, WorkspaceId, Write,
};

#[derive(Serialize, Deserialize)]
pub(super) struct Letter {
    pub workspace: String,
    deed: WireDeed,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum WireDeed {
    Commit { guards: Vec<(WireKey, WireExpect)>, writes: Vec<WireWrite> },
    CommitAt { after: u64, records: Vec<(u64, WireWrite)> },
    BeginEpoch(u32),
    Compact(u64),
    Remove,
}

#[derive(Serialize, Deserialize)]
struct WireKey(String, String);

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum WireExpect {
    Anything,
    Absent,
    At(u64),
}

#[derive(Serialize, Deserialize)]
struct WireWrite {
    key: WireKey,
    expect: WireExpect,
    /// The body of what is put; none: it is removed.
    put: Option<Box<RawValue>>,
    /// In microseconds.
    expires: Option<i64>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Reply {
    Committed {
        objects: Vec<WireCommitted>,
        head: u64,
    },
    Nothing {
        head: u64,
    },
    Epoch(u64),
    Conflict {
        key: (String, String),
        current: Option<Box<RawValue>>,
        head: u64,
    },
    Expired(u64),
    Ahead(u64),
    Discontinuous(u64),
    Invalid(String),
    /// What it holds, and what it may: objects and bytes of each.
    Full([u64; 4]),
    NoSpace(String),
    Unavailable(String),
    Unknown(String),
    NotLeader,
}

/// An object as it was committed.
#[derive(Serialize, Deserialize)]
pub(super) struct WireCommitted(Box<RawValue>);

fn raw(bytes: &[u8]) -> Result<Box<RawValue>, Error> {
    let text = std::str::from_utf8(bytes).map_err(|_| Error::Invalid("an object that is no text"))?;
    RawValue::from_string(text.to_owned()).map_err(|_| Error::Invalid("an object that is not JSON"))
}

fn revision(value: u64) -> Result<Revision, Error> {
    Revision::from_u64(value).ok_or(Error::Invalid("a revision that cannot be"))
}

impl From<&Key> for WireKey {
    fn from(key: &Key) -> Self {
        Self(key.collection.0.to_string(), key.item.0.to_string())
    }
}

impl From<WireKey> for Key {
    fn from(WireKey(collection, item): WireKey) -> Self {
        Self { collection: Collection(collection.into()), item: ItemKey(item.into()) }
    }
}

impl From<Expect> for WireExpect {
    fn from(expect: Expect) -> Self {
        match expect {
            Expect::Anything => Self::Anything,
            Expect::Absent => Self::Absent,
            Expect::At(revision) => Self::At(revision.as_u64()),
        }
    }
}

impl TryFrom<WireExpect> for Expect {
    type Error = Error;

    fn try_from(expect: WireExpect) -> Result<Self, Error> {
        Ok(match expect {
            WireExpect::Anything => Self::Anything,
            WireExpect::Absent => Self::Absent,
            WireExpect::At(at) => Self::At(revision(at)?),
        })
    }
}

impl TryFrom<&Write> for WireWrite {
    type Error = Error;

    fn try_from(write: &Write) -> Result<Self, Error> {
        let (put, expires) = match &write.change {
            Change::Put { draft, expires } => {
                (Some(raw(draft.body())?), expires.map(|time| time.as_microsecond()))
            }
            Change::Remove => (None, None),
        };
        Ok(Self { key: (&write.key).into(), expect: write.expect.into(), put, expires })
    }
}

impl TryFrom<WireWrite> for Write {
    type Error = Error;

    fn try_from(wire: WireWrite) -> Result<Self, Error> {
        let change = match wire.put {
            None => Change::Remove,
            Some(body) => {
                let body = Bytes::from(Box::<str>::from(body).into_string());
                let draft = Draft::from_body(body).map_err(|_| Error::Invalid("not an object"))?;
                let expires = wire.expires.map(Timestamp::from_microsecond).transpose();
                let expires = expires.map_err(|_| Error::Invalid("a time that cannot be"))?;
                Change::Put { draft, expires }
            }
        };
        Ok(Write { key: wire.key.into(), expect: wire.expect.try_into()?, change })
    }
}

impl Letter {
    pub fn encode(workspace: &WorkspaceId, deed: &Deed) -> Result<Bytes, Error> {
        let deed = match deed {
            Deed::Commit(commit) => WireDeed::Commit {
                guards: commit.guards.iter().map(|(key, expect)| (key.into(), (*expect).into())).collect(),
                writes: commit.writes.iter().map(WireWrite::try_from).collect::<Result<_, _>>()?,
            },
            Deed::CommitAt(after, records) => WireDeed::CommitAt {
                after: after.as_u64(),
                records: records
                    .iter()
                    .map(|(at, write)| Ok((at.as_u64(), write.try_into()?)))
                    .collect::<Result<_, Error>>()?,
            },
            Deed::BeginEpoch(epoch) => WireDeed::BeginEpoch(*epoch),
            Deed::Compact(upto) => WireDeed::Compact(upto.as_u64()),
            Deed::Remove => WireDeed::Remove,
        };
        let letter = Letter { workspace: workspace.0.to_string(), deed };
        serde_json::to_vec(&letter).map(Bytes::from).map_err(|_| Error::Invalid("cannot be sent"))
    }

    pub fn decode(bytes: &[u8]) -> Result<(WorkspaceId, Deed), Error> {
        let letter: Letter =
            serde_json::from_slice(bytes).map_err(|_| Error::Invalid("a letter that cannot be read"))?;
        let deed = match letter.deed {
            WireDeed::Commit { guards, writes } => {
                let guard =
                    |(key, expect): (WireKey, WireExpect)| Ok::<_, Error>((key.into(), expect.try_into()?));
                let guards = guards.into_iter().map(guard).collect::<Result<_, _>>()?;
                let writes = writes.into_iter().map(Write::try_from).collect::<Result<_, _>>()?;
                Deed::Commit(Commit { guards, writes })
            }
            WireDeed::CommitAt { after, records } => {
                let record =
                    |(at, write): (u64, WireWrite)| Ok::<_, Error>((revision(at)?, write.try_into()?));
                Deed::CommitAt(revision(after)?, records.into_iter().map(record).collect::<Result<_, _>>()?)
            }
            WireDeed::BeginEpoch(epoch) => Deed::BeginEpoch(epoch),
            WireDeed::Compact(upto) => Deed::Compact(revision(upto)?),
            WireDeed::Remove => Deed::Remove,
        };
        Ok((WorkspaceId(letter.workspace.into()), deed))
    }
}

impl Reply {
    /// `head` is where the workspace stands now: whoever asked must have followed so far to understand the answer.
    pub fn of(result: Result<Done, Failure>, head: Revision) -> Self {
        let head = head.as_u64();
        match result {
            Ok(Done::Committed(committed)) => {
                let object = |committed: &Committed| raw(committed.object.body_slice()).map(WireCommitted);
                match committed.iter().map(object).collect() {
                    Ok(objects) => Reply::Committed { objects, head },
                    Err(error) => Reply::Unknown(error.to_string()),
                }
            }
            Ok(Done::Nothing) => Reply::Nothing { head },
            Ok(Done::Epoch(start)) => Reply::Epoch(start.as_u64()),
            Err(Failure::NotLeader) => Reply::NotLeader,
            Err(Failure::Error(error)) => match error {
                Error::Conflict { key, current } => {
                    let current = current.and_then(|object| raw(object.body_slice()).ok());
                    let key = (key.collection.0.to_string(), key.item.0.to_string());
                    Reply::Conflict { key, current, head }
                }
                Error::Expired { oldest } => Reply::Expired(oldest.as_u64()),
                Error::Ahead { current } => Reply::Ahead(current.as_u64()),
                Error::Discontinuous { head } => Reply::Discontinuous(head.as_u64()),
                Error::Invalid(why) => Reply::Invalid(why.to_owned()),
                Error::Full { usage, bounds } => {
                    Reply::Full([usage.objects, usage.bytes, bounds.objects, bounds.bytes])
                }
                Error::NoSpace(why) => Reply::NoSpace(why),
                Error::Unavailable(why) => Reply::Unavailable(why),
                Error::Unknown(why) => Reply::Unknown(why),
            },
        }
    }

    pub fn encode(&self) -> Bytes {
        serde_json::to_vec(self).unwrap_or_default().into()
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        serde_json::from_slice(bytes)
            .map_err(|error| Error::Unknown(format!("an answer in riddles: {error}")))
    }

    /// How far to follow before the answer is passed on.
    pub fn head(&self) -> Option<Revision> {
        match self {
            Reply::Committed { head, .. } | Reply::Nothing { head } | Reply::Conflict { head, .. } => {
                Revision::from_u64(*head)
            }
            Reply::Epoch(start) => Revision::from_u64(*start),
            _ => None,
        }
    }

    pub fn into_result(self) -> Result<Done, Failure> {
        let object = |body: Box<RawValue>| {
            let object = Object::from_body(body.get().as_bytes(), EventType::Modified);
            object.map(Arc::new).map_err(|_| Error::Unknown("an answer that is no object".to_owned()))
        };
        let error = match self {
            Reply::Committed { objects, .. } => {
                let committed = objects.into_iter().map(|WireCommitted(body)| {
                    object(body).map(|object| Committed { revision: object.revision, object })
                });
                return committed.collect::<Result<_, _>>().map(Done::Committed).map_err(Failure::Error);
            }
            Reply::Nothing { .. } => return Ok(Done::Nothing),
            Reply::Epoch(start) => return Ok(Done::Epoch(revision(start)?)),
            Reply::NotLeader => return Err(Failure::NotLeader),
            Reply::Conflict { key: (collection, item), current, .. } => {
                let key = WireKey(collection, item).into();
                Error::Conflict { key, current: current.map(object).transpose()? }
            }
            Reply::Expired(oldest) => Error::Expired { oldest: revision(oldest)? },
            Reply::Ahead(current) => Error::Ahead { current: revision(current)? },
            Reply::Discontinuous(head) => Error::Discontinuous { head: revision(head)? },
            Reply::Invalid(why) => {
                tracing::debug!(why, "the leader refuses");
                Error::Invalid("the leader of the workspace finds it senseless")
            }
            Reply::Full([objects, bytes, most_objects, most_bytes]) => Error::Full {
                usage: Usage { objects, bytes },
                bounds: Bounds { objects: most_objects, bytes: most_bytes },
            },
            Reply::NoSpace(why) => Error::NoSpace(why),
            Reply::Unavailable(why) => Error::Unavailable(why),
            Reply::Unknown(why) => Error::Unknown(why),
        };
        Err(Failure::Error(error))
    }
}
