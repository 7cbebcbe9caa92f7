//! Objects as the server holds them: encoded once, with a small parsed head.
//!
//! ```text
//!   {"type":"ADDED","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"7",…},"data":…}}\n
//!   |<------ event frame: what a watcher is sent ----------------------------------------------------------->|
//!                            |<------ body: what GET returns and the log holds ---------------------------->|
//!                            |<- type prefix --------------------->|<- metadata -------------------->|
//! ```
//!
//! A [`Draft`] is an encoded object that has no revision yet; the store seals it into an [`Object`] when the
//! revision is known. The log, the map of live objects, every list and every watcher share that one allocation.

use std::{collections::BTreeMap, fmt, ops::Range, sync::OnceLock};

use bytes::{BufMut, Bytes, BytesMut};
use compact_str::CompactString;
use serde::{Deserialize, Serialize};
use serde_json::{
    Map, Value,
    value::{RawValue, to_raw_value},
};

use crate::revision::Revision;

/// A reference to the object that this one belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Owner {
    pub api_version: CompactString,
    pub kind: CompactString,
    pub name: CompactString,
    pub uid: CompactString,
    #[serde(default)]
    pub controller: bool,
    #[serde(default)]
    pub block_owner_deletion: bool,
}

/// What lists, watches, garbage collection and preconditions need of an object without decoding it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    pub name: CompactString,
    /// Empty for cluster-scoped objects.
    pub namespace: CompactString,
    pub uid: CompactString,
    pub generation: i64,
    pub labels: Box<[(CompactString, CompactString)]>,
    pub owners: Box<[Owner]>,
    pub finalizers: Box<[CompactString]>,
    /// Set once deletion was asked for.
    pub deleting: bool,
}

impl Head {
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }
}

/// What a watch event says happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    Added,
    Modified,
    Deleted,
}

impl EventType {
    pub fn as_str(self) -> &'static str {
        match self {
            EventType::Added => "ADDED",
            EventType::Modified => "MODIFIED",
            EventType::Deleted => "DELETED",
        }
    }

    fn frame_start(self) -> &'static [u8] {
        match self {
            EventType::Added => br#"{"type":"ADDED","object":"#,
            EventType::Modified => br#"{"type":"MODIFIED","object":"#,
            EventType::Deleted => br#"{"type":"DELETED","object":"#,
        }
    }
}

const FRAME_END: &[u8] = b"}\n";
const METADATA_START: &[u8] = br#""metadata":{"#;
const REVISION_START: &[u8] = br#""resourceVersion":""#;
const REVISION_END: &[u8] = br#"","#;

/// An encoded object that has no revision yet. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Draft {
    /// The body without `resourceVersion`.
    body: Bytes,
    type_len: u32,
    meta_end: u32,
    head: Head,
}

/// Says why bytes or a tree are not an object.
#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    #[error("not JSON: {0}")]
    Json(#[from] serde_json::Error),
    #[error("no {0}")]
    Missing(&'static str),
    #[error("larger than 4 GiB")]
    TooLarge,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MetaHead {
    #[serde(default)]
    name: CompactString,
    #[serde(default)]
    namespace: CompactString,
    #[serde(default)]
    uid: CompactString,
    #[serde(default)]
    generation: i64,
    #[serde(default)]
    labels: Option<std::collections::BTreeMap<CompactString, CompactString>>,
    #[serde(default)]
    owner_references: Option<Vec<Owner>>,
    #[serde(default)]
    finalizers: Option<Vec<CompactString>>,
    #[serde(default)]
    deletion_timestamp: Option<CompactString>,
}

impl From<MetaHead> for Head {
    fn from(meta: MetaHead) -> Self {
        Head {
            name: meta.name,
            namespace: meta.namespace,
            uid: meta.uid,
            generation: meta.generation,
            labels: meta.labels.unwrap_or_default().into_iter().collect(),
            owners: meta.owner_references.unwrap_or_default().into(),
            finalizers: meta.finalizers.unwrap_or_default().into(),
            deleting: meta.deletion_timestamp.is_some(),
        }
    }
}

impl Draft {
    /// Encodes a tree. `apiVersion`, `kind` and `metadata` come first whatever their place in the tree;
    /// `metadata.resourceVersion` is left out: the store decides it.
    pub fn encode(tree: &Map<String, Value>) -> Result<Draft, ObjectError> {
        let kind = tree.get("kind").and_then(Value::as_str).ok_or(ObjectError::Missing("kind"))?;
        let version =
            tree.get("apiVersion").and_then(Value::as_str).ok_or(ObjectError::Missing("apiVersion"))?;
        let metadata =
            tree.get("metadata").and_then(Value::as_object).ok_or(ObjectError::Missing("metadata"))?;
        let mut body = Vec::with_capacity(512);
        body.extend_from_slice(br#"{"kind":"#);
        serde_json::to_writer(&mut body, kind)?;
        body.extend_from_slice(br#","apiVersion":"#);
        serde_json::to_writer(&mut body, version)?;
        body.push(b',');
        let type_len = body.len();
        body.extend_from_slice(METADATA_START);
        let mut first = true;
        for (key, value) in metadata.iter().filter(|(key, _)| *key != "resourceVersion") {
            write_member(&mut body, key, value, &mut first)?;
        }
        if first {
            return Err(ObjectError::Missing("metadata.name"));
        }
        body.push(b'}');
        let meta_end = body.len();
        let mut first = false;
        for (key, value) in tree.iter().filter(|(key, _)| !is_prefix(key)) {
            write_member(&mut body, key, value, &mut first)?;
        }
        body.push(b'}');
        if body.len() > u32::MAX as usize / 2 {
            return Err(ObjectError::TooLarge);
        }
        let head = head_of(&body[type_len..meta_end])?;
        Ok(Draft { body: body.into(), type_len: type_len as u32, meta_end: meta_end as u32, head })
    }

    /// Reads back a body that [`Draft::body`] gave.
    pub fn from_body(body: Bytes) -> Result<Draft, ObjectError> {
        let (type_len, meta_len) = measure(&body)?;
        let member = &body[type_len..type_len + meta_len];
        if member[METADATA_START.len()..].starts_with(REVISION_START) {
            return Err(ObjectError::Missing("room for a revision"));
        }
        let head = head_of(member)?;
        if body.len() > u32::MAX as usize / 2 {
            return Err(ObjectError::TooLarge);
        }
        let (type_len, meta_end) = (type_len as u32, (type_len + meta_len) as u32);
        Ok(Draft { body, type_len, meta_end, head })
    }

    /// The same with another status. Nothing else of it is taken apart.
    pub fn with_status(&self, status: &impl Serialize) -> Result<Draft, ObjectError> {
        let status = to_raw_value(status)?;
        let mut members: BTreeMap<CompactString, &RawValue> = serde_json::from_slice(&self.body)?;
        members.insert("status".into(), &status);
        let mut body = Vec::with_capacity(self.body.len() + status.get().len() + 16);
        body.extend_from_slice(&self.body[..self.meta_end as usize]);
        for (key, value) in members.iter().filter(|(key, _)| !is_prefix(key)) {
            write_member(&mut body, key, value, &mut false)?;
        }
        body.push(b'}');
        if body.len() > u32::MAX as usize / 2 {
            return Err(ObjectError::TooLarge);
        }
        Ok(Draft { body: body.into(), head: self.head.clone(), ..*self })
    }

    pub fn head(&self) -> &Head {
        &self.head
    }

    /// The encoded object, without `resourceVersion`.
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// The object as it would be stored, without a revision: what a dry run shows.
    pub fn preview(&self) -> Object {
        let frame = frame_around(EventType::Added, &[&self.body]);
        let start = EventType::Added.frame_start().len() as u32;
        Object {
            body: start..start + self.body.len() as u32,
            frame,
            event: EventType::Added,
            type_len: self.type_len,
            meta_end: self.meta_end,
            revision: Revision::ZERO,
            head: self.head.clone(),
            fields: OnceLock::new(),
        }
    }

    /// How many bytes the body has with this revision in it.
    pub fn sealed_len(&self, revision: Revision) -> usize {
        let digits = revision.as_u64().checked_ilog10().unwrap_or(0) as usize + 1;
        self.body.len() + REVISION_START.len() + digits + REVISION_END.len()
    }

    /// Gives the object its revision. `event` is what watchers will mostly be sent for it.
    pub fn seal(&self, revision: Revision, event: EventType) -> Object {
        let (before, after) = self.body.split_at(self.type_len as usize + METADATA_START.len());
        sealed(before, after, revision, event, self.type_len, self.meta_end, self.head.clone())
    }
}

/// An object from its body in two parts, between which the revision goes. `meta_end` is counted without it.
fn sealed(
    before: &[u8],
    after: &[u8],
    revision: Revision,
    event: EventType,
    type_len: u32,
    meta_end: u32,
    head: Head,
) -> Object {
    let start = event.frame_start();
    let mut buffer = BytesMut::with_capacity(start.len() + before.len() + after.len() + 48);
    buffer.put_slice(start);
    buffer.put_slice(before);
    put_revision(&mut buffer, revision);
    let grown = buffer.len() - start.len() - before.len();
    buffer.put_slice(after);
    let end = buffer.len();
    buffer.put_slice(FRAME_END);
    Object {
        frame: buffer.freeze(),
        event,
        body: start.len() as u32..end as u32,
        type_len,
        meta_end: meta_end + grown as u32,
        revision,
        head,
        fields: OnceLock::new(),
    }
}

/// Whether it comes before all others.
fn is_prefix(key: &str) -> bool {
    matches!(key, "kind" | "apiVersion" | "metadata")
}

fn write_member(
    body: &mut Vec<u8>,
    key: &str,
    value: &impl Serialize,
    first: &mut bool,
) -> Result<(), serde_json::Error> {
    if !std::mem::take(first) {
        body.push(b',');
    }
    serde_json::to_writer(&mut *body, key)?;
    body.push(b':');
    serde_json::to_writer(&mut *body, value)
}

fn put_revision(buffer: &mut BytesMut, revision: Revision) {
    buffer.put_slice(REVISION_START);
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    let mut rest = revision.as_u64();
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    buffer.put_slice(&digits[at..]);
    buffer.put_slice(REVISION_END);
}

/// `member` is `"metadata":{…}`.
fn head_of(member: &[u8]) -> Result<Head, serde_json::Error> {
    let meta: MetaHead = serde_json::from_slice(&member[METADATA_START.len() - 1..])?;
    Ok(meta.into())
}

/// An object at a revision. Immutable; shared by `Arc`.
pub struct Object {
    frame: Bytes,
    event: EventType,
    body: Range<u32>,
    /// Length of `{"kind":…,"apiVersion":…,` from the start of the body.
    type_len: u32,
    /// End of the `metadata` member, from the start of the body.
    meta_end: u32,
    pub revision: Revision,
    pub head: Head,
    fields: OnceLock<Box<[CompactString]>>,
}

impl Object {
    /// Reads back a body that [`Object::body`] gave, as a log does when it starts.
    pub fn from_body(body: &[u8], event: EventType) -> Result<Object, ObjectError> {
        let (type_len, meta_len) = measure(body)?;
        let member = &body[type_len..type_len + meta_len];
        let digits_start = METADATA_START.len() + REVISION_START.len();
        let digits = member
            .get(digits_start..)
            .filter(|_| member[METADATA_START.len()..].starts_with(REVISION_START))
            .and_then(|rest| rest.split(|byte| *byte == b'"').next())
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(Revision::parse)
            .ok_or(ObjectError::Missing("metadata.resourceVersion"))?;
        let head = head_of(member)?;
        let start = event.frame_start();
        let mut buffer = BytesMut::with_capacity(start.len() + body.len() + FRAME_END.len());
        buffer.put_slice(start);
        buffer.put_slice(body);
        buffer.put_slice(FRAME_END);
        Ok(Object {
            frame: buffer.freeze(),
            event,
            body: start.len() as u32..(start.len() + body.len()) as u32,
            type_len: type_len as u32,
            meta_end: (type_len + meta_len) as u32,
            revision: digits,
            head,
            fields: OnceLock::new(),
        })
    }

    /// The encoded object.
    pub fn body(&self) -> Bytes {
        self.frame.slice(self.body.start as usize..self.body.end as usize)
    }

    pub fn body_slice(&self) -> &[u8] {
        &self.frame[self.body.start as usize..self.body.end as usize]
    }

    /// `{"kind":…,"apiVersion":…,`: the type, as it stands in the body.
    pub fn type_slice(&self) -> &[u8] {
        &self.body_slice()[..self.type_len as usize]
    }

    /// The body without `{"kind":…,"apiVersion":…,`: what follows the opening brace of an item in a typed list.
    pub fn after_type(&self) -> &[u8] {
        &self.body_slice()[self.type_len as usize..]
    }

    /// The member `"metadata":{…}`.
    pub fn metadata_member(&self) -> &[u8] {
        &self.body_slice()[self.type_len as usize..self.meta_end as usize]
    }

    /// Whether both say the same in their metadata, whatever their revisions.
    pub fn has_metadata_of(&self, other: &Object) -> bool {
        self.metadata_after_revision() == other.metadata_after_revision()
    }

    /// What it says in its metadata, whatever its revision.
    pub fn metadata_after_revision(&self) -> &[u8] {
        let revision = REVISION_START.len() + self.revision.to_string().len() + REVISION_END.len();
        &self.metadata_member()[METADATA_START.len() + revision..]
    }

    /// The line a watcher is sent: the shared one if `event` is what the object was sealed for, else a new one.
    pub fn frame(&self, event: EventType) -> Bytes {
        if event == self.event {
            return self.frame.clone();
        }
        frame_around(event, &[self.body_slice()])
    }

    /// The same object at another revision: what a DELETED event carries.
    pub fn with_revision(&self, revision: Revision, event: EventType) -> Object {
        let (before, rest) = self.body_slice().split_at(self.type_len as usize + METADATA_START.len());
        let old_len = REVISION_START.len() + self.revision.to_string().len() + REVISION_END.len();
        let meta_end = self.meta_end - old_len as u32;
        sealed(before, &rest[old_len..], revision, event, self.type_len, meta_end, self.head.clone())
    }

    /// The same object without a revision, to be put somewhere else.
    pub fn unsealed(&self) -> Draft {
        let (before, rest) = self.body_slice().split_at(self.type_len as usize + METADATA_START.len());
        let old_len = REVISION_START.len() + self.revision.to_string().len() + REVISION_END.len();
        let mut body = BytesMut::with_capacity(self.body_slice().len() - old_len);
        body.put_slice(before);
        body.put_slice(&rest[old_len..]);
        let meta_end = self.meta_end - old_len as u32;
        Draft { body: body.freeze(), type_len: self.type_len, meta_end, head: self.head.clone() }
    }

    /// Decodes the whole object.
    pub fn tree(&self) -> Result<Map<String, Value>, ObjectError> {
        Ok(serde_json::from_slice(self.body_slice())?)
    }

    /// The values of the kind's selectable fields, computed by `read` the first time somebody selects by them.
    pub fn fields(&self, read: impl FnOnce(&Object) -> Box<[CompactString]>) -> &[CompactString] {
        self.fields.get_or_init(|| read(self))
    }

    /// Bytes held in memory for this object, about.
    pub fn weight(&self) -> usize {
        self.frame.len() + std::mem::size_of::<Object>() + 64
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}@{:?}", self.head.namespace, self.head.name, self.revision)
    }
}

/// A watch line around an object given in parts.
pub fn frame_around(event: EventType, parts: &[&[u8]]) -> Bytes {
    let start = event.frame_start();
    let len: usize = parts.iter().map(|part| part.len()).sum();
    let mut buffer = BytesMut::with_capacity(start.len() + len + FRAME_END.len());
    buffer.put_slice(start);
    for part in parts {
        buffer.put_slice(part);
    }
    buffer.put_slice(FRAME_END);
    buffer.freeze()
}

/// Finds the type prefix and the metadata member of a body that [`Draft`] laid out.
fn measure(body: &[u8]) -> Result<(usize, usize), ObjectError> {
    let text = std::str::from_utf8(body).map_err(|_| ObjectError::Missing("UTF-8"))?;
    // Neither a kind nor an API version can contain a quote, so the first match is the member itself.
    let type_len = text.find(r#""metadata":{"#).ok_or(ObjectError::Missing("metadata"))?;
    let after_key = type_len + METADATA_START.len() - 1;
    let mut stream =
        serde_json::Deserializer::from_str(&text[after_key..]).into_iter::<serde::de::IgnoredAny>();
    match stream.next() {
        Some(Ok(_)) => Ok((type_len, METADATA_START.len() - 1 + stream.byte_offset())),
        Some(Err(error)) => Err(error.into()),
        None => Err(ObjectError::Missing("metadata")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk_draft() -> Draft {
        let tree: Value = serde_json::json!({
            "data": {"a": "1"}, "metadata": {"name": "n", "namespace": "ns", "uid": "u", "labels": {"x": "y"}},
            "kind": "ConfigMap", "apiVersion": "v1",
        });
        Draft::encode(tree.as_object().unwrap()).unwrap()
    }

    #[test]
    fn sealing_splices_the_revision_in() {
        let object = mk_draft().seal(Revision::BASE, EventType::Added);
        assert_eq!(
            std::str::from_utf8(object.body_slice()).unwrap(),
            r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"1","labels":{"x":"y"},"name":"n","namespace":"ns","uid":"u"},"data":{"a":"1"}}"#
        );
        assert_eq!(object.head.label("x"), Some("y"));
        assert!(object.metadata_member().starts_with(br#""metadata":{"resourceVersion":"1""#));
        assert!(object.metadata_member().ends_with(br#""uid":"u"}"#));
        assert!(object.frame(EventType::Added).starts_with(br#"{"type":"ADDED","object":{"kind""#));
        assert!(object.frame(EventType::Deleted).ends_with(b"}}}\n"));
    }

    #[test]
    fn another_status_is_put_in_its_place() {
        for members in [
            serde_json::json!({}),
            serde_json::json!({"status": {"old": 1}}),
            serde_json::json!({"spec": {"a": [1, {"status": 2}]}, "status": null, "z\"\n": "é"}),
        ] {
            let mut tree = mk_draft().preview().tree().unwrap();
            tree.extend(members.as_object().cloned().unwrap());
            let draft = Draft::encode(&tree).unwrap();
            let status = serde_json::json!({"new": "x"});
            tree.insert("status".into(), status.clone());
            let expected = Draft::encode(&tree).unwrap();
            let changed = draft.with_status(&status).unwrap();
            assert_eq!(changed.body(), expected.body());
            assert_eq!(changed.head(), expected.head());
            let sealed = |draft: &Draft| draft.seal(Revision::BASE, EventType::Added);
            assert_eq!(sealed(&changed).metadata_member(), sealed(&expected).metadata_member());
        }
    }

    #[test]
    fn a_body_reads_back_and_changes_revision() {
        let object = mk_draft().seal(Revision::start_of_epoch(1).next(), EventType::Modified);
        let again = Object::from_body(object.body_slice(), EventType::Added).unwrap();
        assert_eq!(again.body(), object.body());
        assert_eq!((again.revision, &again.head), (object.revision, &object.head));
        let moved = again.with_revision(Revision::BASE, EventType::Deleted);
        assert_eq!(moved.body(), mk_draft().seal(Revision::BASE, EventType::Added).body());
        assert_eq!(moved.metadata_member().last(), Some(&b'}'));
        assert!(moved.has_metadata_of(&object));
        let mut tree = object.tree().unwrap();
        tree["metadata"]["uid"] = "v".into();
        assert!(
            !Draft::encode(&tree).unwrap().seal(object.revision, EventType::Added).has_metadata_of(&object)
        );
        assert_eq!(object.unsealed().body(), mk_draft().body());
        assert_eq!(object.unsealed().seal(object.revision, EventType::Added).body(), object.body());
    }
}
