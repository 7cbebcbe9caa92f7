//! What lies where in etcd.
//!
//! ```text
//!   PREFIX/meta                                    what this is, and its first epoch
//!   PREFIX/o/<workspace>/<group>/<resource>/<ns>/<name>   an object
//!   PREFIX/h/<workspace>                           the head of a history: written by every transaction on it
//!   PREFIX/l/<workspace>                           who leads it; goes with the leader's lease
//!   PREFIX/s/<server>                              a server that is alive, and how it is reached; goes with its lease
//!   PREFIX/b/<blob>/<part>                         an object that is larger than a transaction may be, in parts
//!   PREFIX/k/<name>                                what all servers share: keys and certificates, and how far history goes
//! ```
//!
//! An object is its JSON, as clients get it, unless it expires or is large. The head says what the transaction that
//! wrote it did, as far as the objects do not say that themselves: where its commits end, and what it removed.

use bytes::{BufMut, Bytes, BytesMut};
use compact_str::CompactString;
use machinery::Revision;
use serde::{Deserialize, Serialize};

use crate::{
    Collection, Error, ItemKey, Key, WorkspaceId,
    live::{Epochs, Expiry, PastEpoch},
};

/// The format of all this; another program than one that knows it must not touch it.
pub const FORMAT: u32 = 1;

/// Names of keys below one prefix.
#[derive(Clone, Debug)]
pub struct Layout {
    prefix: String,
}

/// What a key is about.
#[derive(Debug, PartialEq, Eq)]
pub enum Named {
    Object(WorkspaceId, Key),
    Head(WorkspaceId),
    Leader(WorkspaceId),
    Server(CompactString),
    /// Part of a large object, or shared by all; followers do not look at them.
    Other,
}

impl Layout {
    pub fn new(prefix: &str) -> Self {
        Self { prefix: prefix.trim_matches('/').to_owned() }
    }

    fn key(&self, kind: &str, rest: &str) -> Bytes {
        format!("/{}/{kind}/{rest}", self.prefix).into()
    }

    /// Before all keys.
    pub fn all(&self) -> Bytes {
        format!("/{}/", self.prefix).into()
    }

    pub fn meta(&self) -> Bytes {
        format!("/{}/meta", self.prefix).into()
    }

    pub fn object(&self, workspace: &WorkspaceId, key: &Key) -> Bytes {
        self.key("o", &format!("{workspace}/{}/{}", key.collection.0, key.item.0))
    }

    /// Before all objects of a workspace.
    pub fn objects_of(&self, workspace: &WorkspaceId) -> Bytes {
        self.key("o", &format!("{workspace}/"))
    }

    pub fn head(&self, workspace: &WorkspaceId) -> Bytes {
        self.key("h", &workspace.0)
    }

    pub fn heads(&self) -> Bytes {
        self.key("h", "")
    }

    /// Before all objects.
    pub fn objects(&self) -> Bytes {
        self.key("o", "")
    }

    /// Before all servers.
    pub fn servers(&self) -> Bytes {
        self.key("s", "")
    }

    /// Before all leaders.
    pub fn leaders(&self) -> Bytes {
        self.key("l", "")
    }

    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Whether a key is of something that all servers share.
    pub fn is_shared(&self, key: &[u8]) -> bool {
        key.starts_with(&self.key("k", ""))
    }

    pub fn leader(&self, workspace: &WorkspaceId) -> Bytes {
        self.key("l", &workspace.0)
    }

    pub fn server(&self, server: &str) -> Bytes {
        self.key("s", server)
    }

    pub fn blob_part(&self, blob: &str, part: usize) -> Bytes {
        self.key("b", &format!("{blob}/{part:04}"))
    }

    /// Before all parts of a blob.
    pub fn blob(&self, blob: &str) -> Bytes {
        self.key("b", &format!("{blob}/"))
    }

    pub fn blobs(&self) -> Bytes {
        self.key("b", "")
    }

    /// The blob that a key is a part of.
    pub fn blob_of<'k>(&self, key: &'k [u8]) -> Option<&'k str> {
        let rest = std::str::from_utf8(key).ok()?.strip_prefix(&format!("/{}/b/", self.prefix))?;
        Some(rest.rsplit_once('/')?.0)
    }

    /// A revision of etcd as old as the history that is kept, for those who start.
    pub fn history(&self) -> Bytes {
        self.shared("history")
    }

    pub fn shared(&self, name: &str) -> Bytes {
        self.key("k", name)
    }

    /// `Err`: nothing that this program wrote.
    pub fn read(&self, key: &[u8]) -> Result<Named, ()> {
        let text = std::str::from_utf8(key).map_err(|_| ())?;
        let rest = text.strip_prefix('/').and_then(|rest| rest.strip_prefix(&self.prefix));
        let rest = rest.and_then(|rest| rest.strip_prefix('/')).ok_or(())?;
        match rest.split_once('/') {
            Some(("o", rest)) => {
                let (workspace, rest) = rest.split_once('/').ok_or(())?;
                let (group, rest) = rest.split_once('/').ok_or(())?;
                let (resource, item) = rest.split_once('/').ok_or(())?;
                if !item.contains('/') {
                    return Err(());
                }
                let collection = Collection(compact_str::format_compact!("{group}/{resource}"));
                Ok(Named::Object(
                    WorkspaceId(workspace.into()),
                    Key { collection, item: ItemKey(item.into()) },
                ))
            }
            Some(("h", workspace)) => Ok(Named::Head(WorkspaceId(workspace.into()))),
            Some(("l", workspace)) => Ok(Named::Leader(WorkspaceId(workspace.into()))),
            Some(("s", server)) => Ok(Named::Server(server.into())),
            Some(("b" | "k", _)) => Ok(Named::Other),
            None if rest == "meta" => Ok(Named::Other),
            _ => Err(()),
        }
    }
}

/// What the whole is.
#[derive(Debug, Serialize, Deserialize)]
pub struct Meta {
    pub format: u32,
    #[serde(rename = "firstEpoch")]
    pub first_epoch: u32,
    /// Why it must not be opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed: Option<String>,
}

/// How a server is reached by the others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registration {
    /// `https://host:port`.
    pub url: String,
    /// The authorities that its certificate is verified by, PEM.
    pub authorities: String,
    /// What others show to prove that they can read this: that they are servers.
    pub secret: String,
}

/// The head of a history, and what the transaction that wrote it did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    pub revision: u64,
    pub forgotten: u64,
    /// Start and end of each epoch that is over.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub past: Vec<(u64, u64)>,
    /// Start of the current epoch.
    pub epoch: u64,
    /// Where the history stood before.
    pub after: u64,
    /// The last revision of each commit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ends: Vec<u64>,
    /// What was removed at which revision.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removed: Vec<(u64, String)>,
    /// The transaction: its server, and its number there.
    pub by: String,
}

fn revision(value: u64) -> Result<Revision, Error> {
    Revision::from_u64(value).ok_or_else(|| unreadable("a revision that cannot be"))
}

/// Somebody else wrote here, or a newer program did.
pub fn unreadable(what: &str) -> Error {
    Error::Unavailable(format!("etcd holds something that this program did not write: {what}"))
}

impl Head {
    pub fn encode(&self) -> Bytes {
        // A struct of numbers and strings always encodes.
        serde_json::to_vec(self).unwrap_or_default().into()
    }

    pub fn decode(value: &[u8]) -> Result<Self, Error> {
        serde_json::from_slice(value).map_err(|error| unreadable(&format!("a head: {error}")))
    }

    pub fn head(&self) -> Result<Revision, Error> {
        revision(self.revision)
    }

    pub fn position_before(&self) -> Result<Revision, Error> {
        revision(self.after)
    }

    pub fn forgotten(&self) -> Result<Revision, Error> {
        revision(self.forgotten)
    }

    pub fn ends(&self) -> Result<Vec<Revision>, Error> {
        self.ends.iter().map(|end| revision(*end)).collect()
    }

    pub fn epochs(&self) -> Result<Epochs, Error> {
        let past =
            |(start, end): &(u64, u64)| Ok(PastEpoch { start: revision(*start)?, end: revision(*end)? });
        let past: Result<Vec<_>, Error> = self.past.iter().map(past).collect();
        Ok(Epochs::from_parts(past?, revision(self.epoch)?))
    }

    pub fn removed(&self) -> Result<Vec<(Revision, Key)>, Error> {
        let read = |(at, key): &(u64, String)| {
            let mut parts = key.splitn(3, '/');
            let (Some(group), Some(resource), Some(item)) = (parts.next(), parts.next(), parts.next()) else {
                return Err(unreadable("a removal of nothing"));
            };
            let collection = Collection(compact_str::format_compact!("{group}/{resource}"));
            Ok((revision(*at)?, Key { collection, item: ItemKey(item.into()) }))
        };
        self.removed.iter().map(read).collect()
    }

    pub fn with_epochs(mut self, epochs: &Epochs) -> Self {
        self.past = epochs.past().iter().map(|past| (past.start.as_u64(), past.end.as_u64())).collect();
        self.epoch = epochs.start().as_u64();
        self
    }
}

/// What is kept at the key of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stored {
    Whole {
        expires: Expiry,
        body: Bytes,
    },
    /// In parts, elsewhere.
    Blob {
        expires: Expiry,
        blob: BlobRef,
    },
}

/// Where a large object is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlobRef {
    pub id: CompactString,
    pub parts: usize,
    pub length: usize,
    pub crc32c: u32,
}

const EXPIRING: u8 = b'E';
const BLOB: u8 = b'B';

impl Stored {
    pub fn encode(&self) -> Bytes {
        match self {
            Stored::Whole { expires, body } if *expires == Expiry::NEVER => body.clone(),
            Stored::Whole { expires, body } => {
                let mut value = BytesMut::with_capacity(9 + body.len());
                value.put_u8(EXPIRING);
                value.put_i64(expires.0);
                value.put_slice(body);
                value.freeze()
            }
            Stored::Blob { expires, blob } => {
                let reference = serde_json::to_vec(blob).unwrap_or_default();
                let mut value = BytesMut::with_capacity(9 + reference.len());
                value.put_u8(BLOB);
                value.put_i64(expires.0);
                value.put_slice(&reference);
                value.freeze()
            }
        }
    }

    pub fn decode(value: &Bytes) -> Result<Self, Error> {
        let expires = || {
            let bytes = value.get(1..9).and_then(|bytes| bytes.try_into().ok());
            bytes.map(|bytes| Expiry(i64::from_be_bytes(bytes))).ok_or_else(|| unreadable("half an object"))
        };
        match value.first() {
            Some(b'{') => Ok(Stored::Whole { expires: Expiry::NEVER, body: value.clone() }),
            Some(&EXPIRING) => Ok(Stored::Whole { expires: expires()?, body: value.slice(9..) }),
            Some(&BLOB) => {
                let expires = expires()?;
                let blob = serde_json::from_slice(&value[9..])
                    .map_err(|error| unreadable(&format!("a large object: {error}")))?;
                Ok(Stored::Blob { expires, blob })
            }
            _ => Err(unreadable("an object that is none")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_back() {
        let layout = Layout::new("/registry/hanse/");
        let workspace = WorkspaceId("0a1b".into());
        let key = Key::new("", "configmaps", "ns", "name");
        let text = layout.object(&workspace, &key);
        assert_eq!(text, "/registry/hanse/o/0a1b/core/configmaps/ns/name");
        assert_eq!(layout.read(&text), Ok(Named::Object(workspace.clone(), key)));
        let cluster_wide = Key::new("apps", "things", "", "system:a:b");
        let text = layout.object(&workspace, &cluster_wide);
        assert_eq!(layout.read(&text), Ok(Named::Object(workspace.clone(), cluster_wide)));
        assert_eq!(layout.read(&layout.head(&workspace)), Ok(Named::Head(workspace.clone())));
        assert_eq!(layout.read(&layout.leader(&workspace)), Ok(Named::Leader(workspace)));
        assert_eq!(layout.read(&layout.server("a")), Ok(Named::Server("a".into())));
        let part = layout.blob_part("s-1", 3);
        assert_eq!(layout.read(&part), Ok(Named::Other));
        assert_eq!(layout.blob_of(&part), Some("s-1"));
        for foreign in ["/registry/pods/a", "/registry/hanse/o/0a1b/core", "/registry/hanse/x/y", "\u{ff}"] {
            assert_eq!(layout.read(foreign.as_bytes()), Err(()), "{foreign}");
        }
    }

    #[test]
    fn values_are_read_back() {
        let body = Bytes::from_static(b"{\"kind\":\"Thing\"}");
        let blob = BlobRef { id: "s-1".into(), parts: 2, length: 9, crc32c: 7 };
        for stored in [
            Stored::Whole { expires: Expiry::NEVER, body: body.clone() },
            Stored::Whole { expires: Expiry(-5), body },
            Stored::Blob { expires: Expiry(12), blob: blob.clone() },
            Stored::Blob { expires: Expiry::NEVER, blob },
        ] {
            assert_eq!(Stored::decode(&stored.encode()).unwrap(), stored);
        }
        for damaged in [&b""[..], b"E123", b"B", b"B12345678nonsense", b"x"] {
            assert!(Stored::decode(&Bytes::from_static(damaged)).is_err(), "{damaged:?}");
        }
    }

    #[test]
    fn heads_are_read_back() {
        let at =
            |epoch, seq: u64| Revision::from_u64(Revision::start_of_epoch(epoch).as_u64() + seq).unwrap();
        let epochs = Epochs::starting_at(at(1, 0)).followed_by(at(1, 5), at(3, 0));
        let head = Head {
            revision: at(3, 4).as_u64(),
            forgotten: at(1, 2).as_u64(),
            past: vec![],
            epoch: 0,
            after: at(3, 1).as_u64(),
            ends: vec![at(3, 2).as_u64(), at(3, 4).as_u64()],
            removed: vec![(at(3, 4).as_u64(), "apps/things/-/a".to_owned())],
            by: "s/4".to_owned(),
        };
        let head = Head::decode(&head.with_epochs(&epochs).encode()).unwrap();
        assert_eq!(head.epochs().unwrap(), epochs);
        assert_eq!(head.removed().unwrap(), [(at(3, 4), Key::new("apps", "things", "", "a"))]);
        assert_eq!(head.ends().unwrap(), [at(3, 2), at(3, 4)]);
        assert!(Head::decode(b"{}").is_err());
        assert!(Head { revision: u64::MAX, ..head }.head().is_err());
    }
}
