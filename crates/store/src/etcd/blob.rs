//! Objects that are larger than a transaction may be: kept in parts, which are written before the transaction that
//! refers to them and deleted by the one that replaces them.

use bytes::{Bytes, BytesMut};
use compact_str::{CompactString, format_compact};
use env::Env;
use futures_util::future::try_join_all;

use ::etcd::{Etcd, Keys, Op, Range, Txn};

use super::{
    layout::{BlobRef, Layout, Stored, unreadable},
    shared::Shared,
    writer::store_error,
};
use crate::{
    Error,
    live::{Expiry, Place},
};

/// What is larger is kept in parts.
pub(super) const WHOLE: usize = 512 << 10;
const PART: usize = 512 << 10;

/// The large objects of one transaction.
#[derive(Default)]
pub(super) struct Blobs(Vec<(BlobRef, Bytes)>);

fn named(number: u64) -> CompactString {
    format_compact!("{number:016x}")
}

/// The blob of an object that has one: its place is the blob's number.
pub(super) fn id_of(place: Place) -> Option<CompactString> {
    (place != Place::default()).then(|| named(place.0))
}

/// The reverse of [`id_of`].
pub(super) fn place_of(blob: &BlobRef) -> Result<Place, Error> {
    u64::from_str_radix(&blob.id, 16).map(Place).map_err(|_| unreadable("a large object without a number"))
}

impl Blobs {
    /// How an object is kept at its key.
    pub fn place(&mut self, env: &Env, body: Bytes, expires: Expiry) -> (Stored, Place) {
        if body.len() <= WHOLE {
            return (Stored::Whole { expires, body }, Place::default());
        }
        let mut number = [0; 8];
        env.random.fill(&mut number);
        let number = u64::from_le_bytes(number).max(1);
        let blob = BlobRef {
            id: named(number),
            parts: body.len().div_ceil(PART),
            length: body.len(),
            crc32c: crc32c::crc32c(&body),
        };
        self.0.push((blob.clone(), body));
        (Stored::Blob { expires, blob }, Place(number))
    }

    /// The first part of each.
    pub fn first_parts(&self, layout: &Layout) -> Vec<Bytes> {
        self.0.iter().map(|(blob, _)| layout.blob_part(&blob.id, 0)).collect()
    }

    /// What writes the parts, each in a transaction of its own.
    pub fn puts(&self, layout: &Layout) -> impl Iterator<Item = Op> {
        self.0.iter().flat_map(|(blob, body)| {
            (0..blob.parts).map(|part| {
                let bytes = body.slice(part * PART..body.len().min((part + 1) * PART));
                Op::Put { key: layout.blob_part(&blob.id, part), value: bytes, lease: None }
            })
        })
    }

    /// Writes the parts, which nobody looks at before something refers to them.
    pub async fn write(&self, etcd: &dyn Etcd, layout: &Layout) -> Result<(), Error> {
        for put in self.puts(layout) {
            let txn = Txn { then: vec![put], ..Txn::default() };
            etcd.txn(txn).await.map_err(|error| match store_error(error) {
                // Nothing refers to it.
                Error::Unknown(why) => Error::Unavailable(why),
                other => other,
            })?;
        }
        Ok(())
    }

    /// Removes parts that nothing will refer to. What is left here is found later.
    pub async fn discard(&self, shared: &Shared) {
        for (blob, _) in &self.0 {
            let parts = Keys::with_prefix(&shared.layout.blob(&blob.id));
            let txn = Txn { then: vec![Op::Delete(parts)], ..Txn::default() };
            if let Err(error) = shared.etcd.txn(txn).await {
                tracing::debug!(%error, blob = %blob.id, "cannot remove the parts of an object that was not stored");
            }
        }
    }
}

/// An object's body, expiry and place, as it was at an etcd revision.
pub(super) async fn read(
    etcd: &dyn ::etcd::Etcd,
    layout: &Layout,
    value: &Bytes,
    at: ::etcd::Revision,
) -> Result<(Bytes, Expiry, Place), ReadError> {
    let (expires, blob) = match Stored::decode(value)? {
        Stored::Whole { expires, body } => return Ok((body, expires, Place::default())),
        Stored::Blob { expires, blob } => (expires, blob),
    };
    let place = place_of(&blob)?;
    let parts = (0..blob.parts).map(|part| {
        let keys = Keys::one(layout.blob_part(&blob.id, part));
        etcd.range(Range { keys, at: Some(at), limit: 0, keys_only: false })
    });
    let mut body = BytesMut::with_capacity(blob.length.min(64 << 20));
    for ranged in try_join_all(parts).await? {
        for part in ranged.kvs {
            body.extend_from_slice(&part.value);
        }
    }
    if body.len() != blob.length || crc32c::crc32c(&body) != blob.crc32c {
        return Err(ReadError::Store(unreadable("a large object whose parts do not make it up")));
    }
    Ok((body.freeze(), expires, place))
}

/// Why an object could not be read.
pub(super) enum ReadError {
    Etcd(::etcd::Error),
    Store(Error),
}

impl From<::etcd::Error> for ReadError {
    fn from(error: ::etcd::Error) -> Self {
        ReadError::Etcd(error)
    }
}

impl From<Error> for ReadError {
    fn from(error: Error) -> Self {
        ReadError::Store(error)
    }
}
