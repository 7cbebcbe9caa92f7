//! What a log consists of: frames, and the records in them.
//!
//! ```text
//!   segment file   | header block | frame | frame | frame ...          | zeros to the end |
//!   frame          | header 64 B | record | record ... | zeros to the next block of 4096 B |
//!   record         | header 72 B | workspace | collection | item | body |
//! ```
//!
//! One frame is one durable write and holds whole commits. It begins at a block of its own, so that no write ever
//! touches a block that holds acknowledged bytes. A checksum begins with the log's identity, the segment and the
//! offset: bytes that belong elsewhere, or were left behind by another log, never pass.
//!
//! All numbers are little endian.

use machinery::Revision;

use crate::{
    Collection, Event, EventChange, WorkspaceId,
    live::{Expiry, Item, Journal, Place},
};

/// Frames begin at multiples of this.
pub(super) const BLOCK: usize = 4096;
pub(super) const FRAME_HEADER: usize = 64;
pub(super) const RECORD_HEADER: usize = 72;

const FRAME_MAGIC: u32 = u32::from_le_bytes(*b"HFRM");

/// The identity of one log, drawn at random when its directory is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogId(pub [u8; 16]);

impl LogId {
    /// What a checksum of bytes at this place begins with.
    pub(super) fn seed(self, segment: u32, offset: u64) -> u32 {
        let mut bytes = [0; 28];
        bytes[..16].copy_from_slice(&self.0);
        bytes[16..20].copy_from_slice(&segment.to_le_bytes());
        bytes[20..].copy_from_slice(&offset.to_le_bytes());
        crc32c::crc32c(&bytes)
    }
}

impl Place {
    pub(super) fn at(segment: u32, offset: u32) -> Self {
        Self(u64::from(segment) << 32 | u64::from(offset))
    }

    pub(super) fn segment(self) -> u32 {
        (self.0 >> 32) as u32
    }

    pub(super) fn offset(self) -> u32 {
        self.0 as u32
    }
}

/// Why bytes are not what should be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Flaw {
    pub offset: u64,
    pub what: &'static str,
}

/// Takes numbers and slices off bytes that may be anything.
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    pub(super) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(count)?;
        self.bytes = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn i64(&mut self) -> Option<i64> {
        self.array().map(i64::from_le_bytes)
    }

    pub(super) fn log_id(&mut self) -> Option<LogId> {
        self.array().map(LogId)
    }

    pub(super) fn revision(&mut self) -> Option<Revision> {
        Revision::from_u64(self.u64()?)
    }

    pub(super) fn str(&mut self, len: usize) -> Option<&'a str> {
        std::str::from_utf8(self.take(len)?).ok()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Put = 1,
    Remove = 2,
    /// History up to `revision` is forgotten.
    Compact = 3,
    RemoveWorkspace = 4,
    /// Revisions go on after `revision`, the start of an epoch.
    BeginEpoch = 5,
}

impl Kind {
    fn of(byte: u8) -> Option<Self> {
        [Kind::Put, Kind::Remove, Kind::Compact, Kind::RemoveWorkspace, Kind::BeginEpoch]
            .into_iter()
            .find(|kind| *kind as u8 == byte)
    }
}

/// The version of an object that a record replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Previous {
    pub revision: Revision,
    /// Where it was written; that part of the log may be gone.
    pub place: Place,
}

/// One record as it lies in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record<'a> {
    pub place: Place,
    pub kind: Kind,
    pub workspace: &'a str,
    pub collection: &'a str,
    pub item: &'a str,
    pub revision: Revision,
    pub commit_start: Revision,
    pub commit_end: Revision,
    pub expires: Expiry,
    pub previous: Option<Previous>,
    /// The object put, with its revision.
    pub body: &'a [u8],
}

impl<'a> Record<'a> {
    /// A record that is about a workspace and not about an object.
    pub(super) fn about(workspace: &'a WorkspaceId, kind: Kind, revision: Revision) -> Self {
        Record {
            place: Place::default(),
            kind,
            workspace: &workspace.0,
            collection: "",
            item: "",
            revision,
            commit_start: revision,
            commit_end: revision,
            expires: Expiry::NEVER,
            previous: None,
            body: &[],
        }
    }

    /// Reads the record that begins at `place` and at the start of `bytes`. Also gives its length and checksum.
    pub(super) fn read(bytes: &'a [u8], id: LogId, place: Place) -> Option<(Self, usize, u32)> {
        let mut reader = Reader::new(bytes);
        let checksum = reader.u32()?;
        let length = reader.u32()? as usize;
        if length < RECORD_HEADER {
            return None;
        }
        let checked = bytes.get(4..length)?;
        let seed = id.seed(place.segment(), u64::from(place.offset()));
        if crc32c::crc32c_append(seed, checked) != checksum {
            return None;
        }
        let mut reader = Reader::new(bytes.get(8..length)?);
        let kind = Kind::of(reader.u8()?)?;
        reader.u8()?;
        let workspace_len = usize::from(reader.u16()?);
        let collection_len = usize::from(reader.u16()?);
        let item_len = usize::from(reader.u16()?);
        let revision = reader.revision()?;
        let commit_start = reader.revision()?;
        let commit_end = reader.revision()?;
        let expires = Expiry(reader.i64()?);
        let previous = Previous { revision: reader.revision()?, place: Place(reader.u64()?) };
        let body_len = reader.u32()? as usize;
        reader.u32()?;
        let workspace = reader.str(workspace_len)?;
        let collection = reader.str(collection_len)?;
        let item = reader.str(item_len)?;
        let body = reader.take(body_len)?;
        let previous = (previous.revision != Revision::ZERO).then_some(previous);
        let record = Record {
            place,
            kind,
            workspace,
            collection,
            item,
            revision,
            commit_start,
            commit_end,
            expires,
            previous,
            body,
        };
        reader.is_empty().then_some((record, length, checksum))
    }

    fn write(&self, buffer: &mut Vec<u8>, id: LogId) -> u32 {
        let start = buffer.len();
        let text_len = self.workspace.len() + self.collection.len() + self.item.len();
        let length = RECORD_HEADER + text_len + self.body.len();
        buffer.reserve(length);
        buffer.extend_from_slice(&[0; 4]);
        buffer.extend_from_slice(&(length as u32).to_le_bytes());
        buffer.extend_from_slice(&[self.kind as u8, 0]);
        for text in [self.workspace, self.collection, self.item] {
            buffer.extend_from_slice(&(text.len() as u16).to_le_bytes());
        }
        for revision in [self.revision, self.commit_start, self.commit_end] {
            buffer.extend_from_slice(&revision.as_u64().to_le_bytes());
        }
        buffer.extend_from_slice(&self.expires.0.to_le_bytes());
        let none = Previous { revision: Revision::ZERO, place: Place::default() };
        let previous = self.previous.unwrap_or(none);
        buffer.extend_from_slice(&previous.revision.as_u64().to_le_bytes());
        buffer.extend_from_slice(&previous.place.0.to_le_bytes());
        buffer.extend_from_slice(&(self.body.len() as u32).to_le_bytes());
        buffer.extend_from_slice(&[0; 4]);
        for text in [self.workspace, self.collection, self.item] {
            buffer.extend_from_slice(text.as_bytes());
        }
        buffer.extend_from_slice(self.body);
        let seed = id.seed(self.place.segment(), u64::from(self.place.offset()));
        let checksum = crc32c::crc32c_append(seed, &buffer[start + 4..]);
        buffer[start..start + 4].copy_from_slice(&checksum.to_le_bytes());
        checksum
    }
}

/// Where one record of a collection lies, for the index of the history.
#[derive(Clone, Debug)]
pub(super) struct Indexed {
    pub workspace: WorkspaceId,
    pub collection: Collection,
    pub revision: Revision,
    pub place: Place,
}

/// A frame in the making. Reused, so that a busy writer allocates nothing.
pub(super) struct FrameBuilder {
    id: LogId,
    segment: u32,
    offset: u32,
    sequence: u64,
    buffer: Vec<u8>,
    count: u32,
    digest: u32,
    pub(super) indexed: Vec<Indexed>,
}

impl FrameBuilder {
    pub(super) fn new(id: LogId) -> Self {
        Self {
            id,
            segment: 0,
            offset: 0,
            sequence: 0,
            buffer: Vec::new(),
            count: 0,
            digest: 0,
            indexed: Vec::new(),
        }
    }

    /// Begins the frame with this number, to be written at this place.
    pub(super) fn begin(&mut self, sequence: u64, segment: u32, offset: u32) {
        (self.sequence, self.segment, self.offset) = (sequence, segment, offset);
        (self.count, self.digest) = (0, 0);
        self.indexed.clear();
        // One huge frame must not hold its memory for ever.
        if self.buffer.capacity() > 16 << 20 {
            self.buffer = Vec::new();
        }
        self.buffer.clear();
        self.buffer.resize(FRAME_HEADER, 0);
    }

    pub(super) fn len(&self) -> usize {
        self.buffer.len()
    }

    pub(super) fn add(&mut self, mut record: Record<'_>) -> Place {
        record.place = Place::at(self.segment, self.offset + self.buffer.len() as u32);
        let checksum = record.write(&mut self.buffer, self.id);
        self.digest = crc32c::crc32c_append(self.digest, &checksum.to_le_bytes());
        self.count += 1;
        record.place
    }

    /// The whole frame, to be written at the place it was begun for.
    pub(super) fn finish(&mut self) -> &[u8] {
        let length = (self.buffer.len() - FRAME_HEADER) as u32;
        let header = &mut self.buffer[..FRAME_HEADER];
        header[..4].copy_from_slice(&FRAME_MAGIC.to_le_bytes());
        header[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        header[16..20].copy_from_slice(&length.to_le_bytes());
        header[20..24].copy_from_slice(&self.count.to_le_bytes());
        header[24..28].copy_from_slice(&self.digest.to_le_bytes());
        let seed = self.id.seed(self.segment, u64::from(self.offset));
        let checksum = crc32c::crc32c_append(seed, &header[8..]);
        header[4..8].copy_from_slice(&checksum.to_le_bytes());
        let padded = self.buffer.len().next_multiple_of(BLOCK);
        self.buffer.resize(padded, 0);
        &self.buffer
    }
}

impl Journal for FrameBuilder {
    fn record(&mut self, event: &Event, expires: Expiry, previous: Option<&Item>) -> Place {
        let (kind, body): (Kind, &[u8]) = match &event.change {
            EventChange::Put(object) => (Kind::Put, object.body_slice()),
            EventChange::Removed(_) => (Kind::Remove, &[]),
        };
        let place = self.add(Record {
            place: Place::default(),
            kind,
            workspace: &event.workspace.0,
            collection: &event.key.collection.0,
            item: &event.key.item.0,
            revision: event.revision,
            commit_start: event.commit_start,
            commit_end: event.commit_end,
            expires,
            previous: previous.map(|item| Previous { revision: item.object.revision, place: item.place }),
            body,
        });
        self.indexed.push(Indexed {
            workspace: event.workspace.clone(),
            collection: event.key.collection.clone(),
            revision: event.revision,
            place,
        });
        place
    }
}

/// A frame as it lies in the log.
pub(super) struct Frame<'a> {
    pub sequence: u64,
    pub records: Vec<Record<'a>>,
    /// Bytes it takes, with what fills its last block.
    pub size: usize,
}

/// The header of a frame, when its own checksum holds.
struct FrameHeader {
    sequence: u64,
    length: usize,
    count: usize,
    digest: u32,
}

impl FrameHeader {
    fn read(bytes: &[u8], id: LogId, segment: u32, offset: u64) -> Option<Self> {
        let header = bytes.get(..FRAME_HEADER)?;
        let mut reader = Reader::new(header);
        if reader.u32()? != FRAME_MAGIC {
            return None;
        }
        let checksum = reader.u32()?;
        if crc32c::crc32c_append(id.seed(segment, offset), &header[8..]) != checksum {
            return None;
        }
        let sequence = reader.u64()?;
        let length = reader.u32()? as usize;
        let count = reader.u32()? as usize;
        let digest = reader.u32()?;
        Some(Self { sequence, length, count, digest })
    }
}

impl<'a> Frame<'a> {
    /// Reads the frame at `offset` of a segment.
    pub(super) fn read(bytes: &'a [u8], id: LogId, segment: u32, offset: u64) -> Result<Self, Flaw> {
        let flaw = |at: usize, what| Flaw { offset: offset + at as u64, what };
        let block = bytes.get(offset as usize..).unwrap_or_default();
        let header = FrameHeader::read(block, id, segment, offset).ok_or(flaw(0, "no valid frame"))?;
        let payload = block.get(FRAME_HEADER..FRAME_HEADER + header.length);
        let payload = payload.ok_or(flaw(0, "frame reaches past the end of its file"))?;
        let mut records = Vec::with_capacity(header.count.min(payload.len() / RECORD_HEADER));
        let (mut at, mut digest) = (0, 0);
        while at < payload.len() {
            let place = Place::at(segment, (offset as usize + FRAME_HEADER + at) as u32);
            let read = Record::read(&payload[at..], id, place);
            let (record, length, checksum) = read.ok_or(flaw(FRAME_HEADER + at, "checksum of a record"))?;
            digest = crc32c::crc32c_append(digest, &checksum.to_le_bytes());
            records.push(record);
            at += length;
        }
        if records.len() != header.count || digest != header.digest {
            return Err(flaw(0, "records do not belong to their frame"));
        }
        let size = (FRAME_HEADER + header.length).next_multiple_of(BLOCK);
        Ok(Self { sequence: header.sequence, records, size })
    }

    /// The number of the frame whose header, at least, is whole at `offset`.
    pub(super) fn sequence_at(bytes: &[u8], id: LogId, segment: u32, offset: u64) -> Option<u64> {
        let block = bytes.get(offset as usize..)?;
        FrameHeader::read(block, id, segment, offset).map(|header| header.sequence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: LogId = LogId([7; 16]);

    fn mk_record<'a>(name: &'a str, body: &'a [u8]) -> Record<'a> {
        let revision = Revision::start_of_epoch(1).next();
        let workspace = "home";
        let previous = Some(Previous { revision, place: Place::at(3, 4096) });
        Record {
            place: Place::default(),
            kind: Kind::Put,
            workspace,
            collection: "core/things",
            item: name,
            revision: revision.next(),
            commit_start: revision.next(),
            commit_end: revision.next().next(),
            expires: Expiry(5),
            previous,
            body,
        }
    }

    fn mk_segment() -> Vec<u8> {
        let mut builder = FrameBuilder::new(ID);
        builder.begin(9, 2, BLOCK as u32);
        builder.add(mk_record("ns/a", b"body"));
        builder.add(mk_record("ns/b", &[b'x'; 5000]));
        let mut bytes = vec![0; BLOCK];
        bytes.extend_from_slice(builder.finish());
        bytes
    }

    #[test]
    fn a_frame_reads_back() {
        let bytes = mk_segment();
        let frame = Frame::read(&bytes, ID, 2, BLOCK as u64).unwrap();
        assert_eq!((frame.sequence, frame.size, frame.records.len()), (9, 2 * BLOCK, 2));
        let place = Place::at(2, (BLOCK + FRAME_HEADER) as u32);
        assert_eq!(frame.records[0], Record { place, ..mk_record("ns/a", b"body") });
        let alone = Record::read(&bytes[place.offset() as usize..], ID, place).unwrap();
        assert_eq!(alone.0, frame.records[0]);
    }

    #[test]
    fn every_flipped_bit_is_noticed_but_in_the_padding() {
        let bytes = mk_segment();
        let used = BLOCK + FRAME_HEADER + 2 * (RECORD_HEADER + 4 + 11 + 4) + 4 + 5000;
        for at in BLOCK..bytes.len() {
            for bit in 0..8 {
                let mut flipped = bytes.clone();
                flipped[at] ^= 1 << bit;
                let read = Frame::read(&flipped, ID, 2, BLOCK as u64);
                assert_eq!(read.is_ok(), at >= used, "byte {at} bit {bit}");
            }
        }
    }

    #[test]
    fn a_frame_belongs_to_its_place_and_log() {
        let bytes = mk_segment();
        assert!(Frame::read(&bytes, LogId([8; 16]), 2, BLOCK as u64).is_err());
        assert!(Frame::read(&bytes, ID, 3, BLOCK as u64).is_err());
        let mut moved = vec![0; BLOCK];
        moved.extend_from_slice(&bytes);
        assert!(Frame::read(&moved, ID, 2, 2 * BLOCK as u64).is_err());
        assert!(Frame::read(&bytes[..BLOCK + 200], ID, 2, BLOCK as u64).is_err());
        assert!(Frame::read(&bytes, ID, 2, 1 << 40).is_err());
    }
}
