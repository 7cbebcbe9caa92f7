//! Starting: what is on disk becomes the state, or the reason why it cannot.
//!
//! # What may be wrong on disk, and what must not
//!
//! The writer appends one frame with one durable write and acknowledges its commits only when that write has
//! returned; only then it writes the next frame. So when the machine stops, at most *one* frame is incomplete: the
//! last one. Any subset of its sectors may be there. It begins at a block of its own, so nothing before it is
//! touched. None of its commits was acknowledged, so it may be cut off; if all of it happens to be there, its
//! commits, whole and in order, are kept.
//!
//! It follows that a frame which cannot be read, while a *later* frame is there, was complete once and has been
//! damaged since. Then acknowledged commits are lost, and the store refuses to start and names the place. A later
//! frame shows itself by its header: a block of 4096 bytes with a checksum that begins with the log's identity, the
//! segment and the offset, which no object's content can know. Numbers of frames have no gaps, so a lost segment is
//! noticed too. A frame in the next segment that has the number expected next proves that nothing is missing before
//! it, whatever stands in the unused rest of the segment before.
//!
//! The one case that cannot be told apart is damage to the very last frame, when nothing was written after it: it
//! looks like a torn write. The writer therefore follows up with an empty frame, a *mark*, as soon as it is idle or
//! closed. From then on damage to the last commits is noticed; damage to the mark itself costs nothing.
//!
//! # Why a cut tail stays cut
//!
//! Everything after the last whole frame is overwritten with zeros and synced before the first new frame is written.
//! Zeroing can be interrupted and repeated at will: no part of it makes an incomplete frame complete. The last whole
//! frame may never have been acknowledged, and may be in the system's cache only; it is written again, durably,
//! before anybody is shown its commits.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use env::{Env, Files, files::Mode};

use super::{
    OpenError, Options,
    checkpoint::{self, Checkpoint, CheckpointHeader, Position, io_at},
    frame::{BLOCK, Frame, Indexed, Kind, LogId, Record},
    history::{Base, History},
    replay::Replay,
    segment::{self, FirstState, Segment, SegmentHeader, UNFINISHED},
};
use crate::{
    Collection, WorkspaceId,
    live::{self, Live},
};

/// A directory's files, by what their names say.
pub(super) struct Listed {
    pub segments: BTreeMap<u32, PathBuf>,
    pub checkpoints: BTreeMap<u64, PathBuf>,
    unfinished: Vec<PathBuf>,
}

pub(super) fn list(files: &dyn Files, directory: &Path) -> Result<Listed, OpenError> {
    let mut listed =
        Listed { segments: BTreeMap::new(), checkpoints: BTreeMap::new(), unfinished: Vec::new() };
    for path in files.list(directory).map_err(io_at(directory))? {
        if let Some(number) = segment::number_of(&path) {
            listed.segments.insert(number, path);
        } else if let Some(sequence) = checkpoint::sequence_of(&path) {
            listed.checkpoints.insert(sequence, path);
        } else if is_unfinished(&path) {
            listed.unfinished.push(path);
        }
    }
    Ok(listed)
}

fn is_unfinished(path: &Path) -> bool {
    let finished = path.with_extension("");
    let ours = segment::number_of(&finished).is_some() || checkpoint::sequence_of(&finished).is_some();
    ours && path.extension().is_some_and(|extension| extension == UNFINISHED)
}

/// What reading a directory gave, before anything on disk was changed.
pub(super) struct Scanned {
    pub id: LogId,
    pub first: FirstState,
    /// The whole log is there, and nothing was before it.
    pub from_the_beginning: bool,
    pub replay: Replay,
    pub history: History,
    /// Oldest first.
    pub checkpoints: Vec<Base>,
    /// Where the next frame goes.
    pub tail: Position,
    /// The last whole frame: segment, offset and size.
    last_frame: Option<(u32, u64, usize)>,
    /// Blocks after the tail that are not zero.
    garbage: Vec<(u32, u64)>,
    /// Files that nothing needs any more.
    obsolete: Vec<PathBuf>,
    /// Checkpoints that cannot be used.
    damaged: Vec<PathBuf>,
    /// Segments after the tail, ready to be used.
    pub prepared: Vec<u32>,
    pub sizes: BTreeMap<u32, u64>,
    pub frames: u64,
    pub records: u64,
}

/// The first of the segments that follow one another without a gap up to the last. What is before a gap was left
/// behind when old segments were removed: names may go in any order until the directory is synced.
fn first_of_run(listed: &Listed) -> u32 {
    let mut run = listed.segments.keys().rev().copied();
    let last = run.next().unwrap_or(0);
    run.enumerate()
        .take_while(|(index, number)| number + *index as u32 + 1 == last)
        .last()
        .map_or(last, |(_, it)| it)
}

/// Opens the segments from `first` on and makes sure that they are of one log.
fn open_segments(
    files: &dyn Files,
    listed: &Listed,
    first: u32,
) -> Result<Vec<(PathBuf, Segment)>, OpenError> {
    let mut segments: Vec<(PathBuf, Segment)> = Vec::new();
    for path in listed.segments.range(first..).map(|(_, path)| path) {
        let segment = Segment::open(files, path)?;
        let first = segments.first().map_or(segment.header, |(_, first)| first.header);
        if (segment.header.id, segment.header.first) != (first.id, first.first) {
            return Err(OpenError::damaged(path, 0, "segment is of another log"));
        }
        segments.push((path.clone(), segment));
    }
    Ok(segments)
}

/// The checkpoints that can be used: the newest fully read, older ones as far as their segments are still there.
struct Checkpoints {
    replay: Replay,
    newest: Option<CheckpointHeader>,
    kept: Vec<Base>,
    obsolete: Vec<PathBuf>,
    damaged: Vec<PathBuf>,
}

fn open_checkpoints(
    files: &dyn Files,
    listed: &Listed,
    first: &SegmentHeader,
) -> Result<Checkpoints, OpenError> {
    let mut found = Checkpoints {
        replay: Replay::new(first.first.epoch),
        newest: None,
        kept: Vec::new(),
        obsolete: Vec::new(),
        damaged: Vec::new(),
    };
    let mut refused = None;
    for path in listed.checkpoints.values().rev() {
        match open_checkpoint(files, path, first, &mut found) {
            Ok(()) => {}
            Err(error @ OpenError::Damaged { .. }) => {
                tracing::error!(%error, "a checkpoint cannot be used; trying an older one and the log since");
                refused.get_or_insert(error);
                found.damaged.push(path.clone());
            }
            Err(other) => return Err(other),
        }
    }
    match refused {
        // The log cannot stand in for a damaged checkpoint when its own beginning is gone.
        Some(error) if found.newest.is_none() && !from_the_beginning(first) => Err(error),
        _ => Ok(found),
    }
}

/// Whether a log whose oldest segment is this one can be read without a checkpoint.
fn from_the_beginning(oldest: &SegmentHeader) -> bool {
    oldest.first.empty && oldest.number == 1
}

fn open_checkpoint(
    files: &dyn Files,
    path: &Path,
    oldest: &SegmentHeader,
    found: &mut Checkpoints,
) -> Result<(), OpenError> {
    let checkpoint = Checkpoint::open(files, path)?;
    if checkpoint.header.id != oldest.id {
        return Err(OpenError::damaged(path, 0, "checkpoint is of another log"));
    }
    let reaches = checkpoint.header.position.segment >= oldest.number;
    let heads = match found.newest {
        None if !reaches => {
            return Err(OpenError::damaged(path, 0, "the log since this checkpoint is missing"));
        }
        Some(_) if !reaches => {
            found.obsolete.push(path.to_owned());
            return Ok(());
        }
        Some(_) => checkpoint.heads()?,
        None => {
            let mut replay = Replay::new(checkpoint.header.first_epoch);
            checkpoint.read(|entry| replay.entry(entry))?;
            found.replay = replay;
            found.newest = Some(checkpoint.header);
            found.replay.heads()
        }
    };
    found.kept.insert(0, Base { checkpoint: Arc::new(checkpoint), heads: Arc::new(heads) });
    Ok(())
}

/// Reads frames in order and notices what is missing.
struct Scan {
    replay: Replay,
    history: History,
    /// Frames up to here are in the newest checkpoint.
    replayed: u64,
    /// Frames up to here are before the base checkpoint.
    indexed: u64,
    /// The number of the next frame; `None` before the first.
    expected: Option<u64>,
    tail: Position,
    last_frame: Option<(u32, u64, usize)>,
    /// Where reading stopped in the segment before, if it was not the end of its data for certain.
    stopped: Option<(PathBuf, u64, &'static str)>,
    frames: u64,
    records: u64,
}

impl Scan {
    fn segment(&mut self, path: &Path, segment: &Segment, bytes: &[u8]) -> Result<(), OpenError> {
        let (id, number) = (segment.header.id, segment.header.number);
        let mut offset = BLOCK as u64;
        let header_at = |offset| Frame::sequence_at(bytes, id, number, offset);
        let flaw = loop {
            if offset >= bytes.len() as u64 {
                break None;
            }
            match Frame::read(bytes, id, number, offset) {
                Ok(frame) => {
                    self.frame(path, offset, &frame)?;
                    self.last_frame = Some((number, offset, frame.size));
                    offset += frame.size as u64;
                    self.tail = Position { sequence: frame.sequence, segment: number, offset: offset as u32 };
                }
                Err(flaw) => break Some(flaw),
            }
        };
        let mut later = (offset..bytes.len() as u64).step_by(BLOCK).skip(1);
        match flaw {
            // The headers of frames that came later prove that this one was whole.
            Some(flaw) if later.any(|block| header_at(block).is_some()) => {
                Err(OpenError::damaged(path, flaw.offset, flaw.what))
            }
            Some(flaw) => {
                self.stopped.get_or_insert_with(|| (path.to_owned(), flaw.offset, flaw.what));
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn frame(&mut self, path: &Path, offset: u64, frame: &Frame<'_>) -> Result<(), OpenError> {
        let expected = match self.expected {
            Some(expected) => expected,
            // The oldest segment begins at or before the base checkpoint.
            None if frame.sequence <= self.indexed + 1 => frame.sequence,
            None => self.indexed + 1,
        };
        if frame.sequence != expected {
            let what = format!("frame {} where frame {expected} should be", frame.sequence);
            return Err(match self.stopped.take() {
                Some((path, offset, _)) => {
                    OpenError::damaged(&path, offset, format!("frame {expected} is missing"))
                }
                None => OpenError::damaged(path, offset, what),
            });
        }
        self.stopped = None;
        self.expected = Some(expected + 1);
        self.frames += 1;
        self.records += frame.records.len() as u64;
        if frame.sequence > self.indexed {
            self.index(frame);
        }
        if frame.sequence > self.replayed {
            for record in &frame.records {
                let offset = u64::from(record.place.offset());
                self.replay.record(record).map_err(|what| OpenError::damaged(path, offset, what))?;
            }
            if !self.replay.is_whole(&frame.records) {
                return Err(OpenError::damaged(path, offset, "a commit is not whole"));
            }
        }
        Ok(())
    }

    fn index(&mut self, frame: &Frame<'_>) {
        for record in &frame.records {
            let workspace = WorkspaceId(record.workspace.into());
            match record.kind {
                Kind::Put | Kind::Remove => {
                    self.history.add_records(std::iter::once(indexed(workspace, record)))
                }
                Kind::RemoveWorkspace => self.history.remove_workspace(&workspace, frame.sequence),
                Kind::Compact | Kind::BeginEpoch => {}
            }
        }
    }
}

fn indexed(workspace: WorkspaceId, record: &Record<'_>) -> Indexed {
    let collection = Collection(record.collection.into());
    Indexed { workspace, collection, revision: record.revision, place: record.place }
}

/// The blocks from `offset` on that are not zero.
fn non_zero_blocks(bytes: &[u8], offset: usize) -> impl Iterator<Item = u64> + '_ {
    let blocks = bytes.get(offset..).unwrap_or_default().chunks(BLOCK).enumerate();
    let dirty = blocks.filter(|(_, block)| block.iter().any(|byte| *byte != 0));
    dirty.map(move |(index, _)| (offset + index * BLOCK) as u64)
}

/// Reads everything and changes nothing.
pub(super) fn scan(files: &dyn Files, directory: &Path) -> Result<Option<Scanned>, OpenError> {
    let listed = list(files, directory)?;
    let first_of_run = first_of_run(&listed);
    let segments = open_segments(files, &listed, first_of_run)?;
    let Some((_, first)) = segments.first() else {
        return match listed.checkpoints.values().next_back() {
            Some(path) => Err(OpenError::damaged(
                path,
                0,
                "its log is missing; a restore that did not finish leaves that behind",
            )),
            None => Ok(None),
        };
    };
    let oldest = first.header;
    let Checkpoints { replay, newest, kept, mut obsolete, damaged } =
        open_checkpoints(files, &listed, &oldest)?;
    let from_the_beginning = from_the_beginning(&oldest);
    if newest.is_none() && !from_the_beginning {
        let missing = segment::path_of(directory, oldest.number.saturating_sub(1).max(1));
        return Err(OpenError::damaged(
            &missing,
            0,
            "the beginning of the log, or a checkpoint after it, is missing",
        ));
    }
    obsolete.extend(listed.segments.range(..first_of_run).map(|(_, path)| path.clone()));
    let base = if from_the_beginning { None } else { kept.first().cloned() };
    let start = Position { sequence: 0, segment: oldest.number, offset: BLOCK as u32 };
    let base_position = base.as_ref().map_or(start, |base| base.checkpoint.header.position);
    let mut scan = Scan {
        replay,
        history: History::new(oldest.id, base),
        replayed: newest.map_or(0, |newest| newest.position.sequence),
        indexed: base_position.sequence,
        expected: None,
        tail: Position { sequence: 0, segment: base_position.segment, offset: BLOCK as u32 },
        last_frame: None,
        stopped: None,
        frames: 0,
        records: 0,
    };
    let mut dirty: Vec<(Position, u32, u64)> = Vec::new();
    let mut sizes = BTreeMap::new();
    for (path, segment) in segments {
        let number = segment.header.number;
        if number < base_position.segment {
            obsolete.push(path);
            continue;
        }
        let bytes = segment.read().map_err(io_at(&path))?;
        scan.segment(&path, &segment, &bytes)?;
        let unused = if scan.tail.segment == number { scan.tail.offset as usize } else { BLOCK };
        dirty.extend(non_zero_blocks(&bytes, unused).map(|block| (scan.tail, number, block)));
        sizes.insert(number, segment.header.size);
        scan.history.add_segment(segment);
    }
    // A checkpoint may stand at the beginning of a segment that has no frames yet.
    if scan.expected.is_none() && base_position.offset == BLOCK as u32 {
        scan.tail = base_position;
    }
    if scan.tail.sequence < scan.replayed {
        let path = segment::path_of(directory, scan.tail.segment);
        let what = format!("log ends at frame {}, a checkpoint at {}", scan.tail.sequence, scan.replayed);
        return Err(OpenError::damaged(&path, u64::from(scan.tail.offset), what));
    }
    let prepared = sizes.keys().copied().filter(|number| *number > scan.tail.segment).collect();
    Ok(Some(Scanned {
        id: oldest.id,
        first: oldest.first,
        from_the_beginning,
        replay: scan.replay,
        history: scan.history,
        checkpoints: kept,
        tail: scan.tail,
        last_frame: scan.last_frame,
        garbage: dirty
            .into_iter()
            .filter(|(at, ..)| at.offset == scan.tail.offset && at.segment == scan.tail.segment)
            .map(|(_, n, block)| (n, block))
            .collect(),
        obsolete,
        damaged,
        prepared,
        sizes,
        frames: scan.frames,
        records: scan.records,
    }))
}

impl Scanned {
    /// Whether something after the last whole frame had to be cut off.
    pub(super) fn torn_tail(&self) -> Option<(u32, u64)> {
        self.garbage.first().copied()
    }

    /// Makes the disk what was read from it: nothing after the tail, no files that are not needed.
    fn repair(&mut self, files: &dyn Files, directory: &Path) -> Result<(), OpenError> {
        let garbage = std::mem::take(&mut self.garbage);
        for blocks in garbage.chunk_by(|left, right| left.0 == right.0) {
            let (number, offset) = blocks[0];
            let path = segment::path_of(directory, number);
            tracing::info!(file = %path.display(), offset, "cutting off an incomplete write");
            let file = files.open(&path, Mode::Write).map_err(io_at(&path))?;
            for (_, offset) in blocks {
                file.write_all_at(&[0; BLOCK], *offset).map_err(io_at(&path))?;
            }
            file.sync().map_err(io_at(&path))?;
        }
        if let Some((number, offset, size)) = self.last_frame.take() {
            let path = segment::path_of(directory, number);
            let file = files.open(&path, Mode::WriteDurable).map_err(io_at(&path))?;
            let mut bytes = vec![0; size];
            file.read_exact_at(&mut bytes, offset).map_err(io_at(&path))?;
            file.write_all_at(&bytes, offset).map_err(io_at(&path))?;
        }
        // Kept for whoever wants to know what happened; nothing reads them.
        for path in std::mem::take(&mut self.damaged) {
            files.rename(&path, &path.with_extension("damaged")).map_err(io_at(&path))?;
        }
        for path in std::mem::take(&mut self.obsolete) {
            segment::remove_if_there(files, &path).map_err(io_at(&path))?;
        }
        files.sync_dir(directory).map_err(io_at(directory))
    }
}

/// A store ready to run.
pub(super) struct Recovered {
    pub live: Live,
    pub history: Arc<History>,
    pub id: LogId,
    pub first: FirstState,
    pub from_the_beginning: bool,
    pub tail: Position,
    pub tail_size: u64,
    pub prepared: Option<(u32, u64)>,
    pub checkpoints: Vec<Base>,
}

/// Makes the first segment of a new log.
pub(super) fn initialise(
    env: &Env,
    directory: &Path,
    id: LogId,
    first: FirstState,
    size: u64,
) -> Result<(), OpenError> {
    let header = SegmentHeader { id, number: 1, first, size };
    let made = segment::create(&*env.files, directory, &header).map_err(|unmade| unmade.error);
    made.map_err(io_at(&segment::path_of(directory, 1)))
}

pub(super) fn new_id(env: &Env) -> LogId {
    let mut id = [0; 16];
    env.random.fill(&mut id);
    LogId(id)
}

/// Brings the store in `directory` back, or makes a new one.
pub(super) fn recover(env: &Env, directory: &Path, options: &Options) -> Result<Recovered, OpenError> {
    let files = &*env.files;
    for path in list(files, directory)?.unfinished {
        segment::remove_if_there(files, &path).map_err(io_at(&path))?;
    }
    let scanned = match scan(files, directory)? {
        Some(scanned) => Some(scanned),
        None => {
            let first = FirstState { epoch: 1, empty: true };
            initialise(env, directory, new_id(env), first, options.first_segment_bytes)?;
            scan(files, directory)?
        }
    };
    let mut scanned = scanned.ok_or_else(|| OpenError::damaged(directory, 0, "files come and go"))?;
    scanned.repair(files, directory)?;
    let history = Arc::new(scanned.history);
    let live = Live::new(live::Options {
        first_epoch: scanned.first.epoch,
        ring_bytes: options.ring_bytes,
        archive: Some(history.clone()),
        bounds: options.bounds,
        unbounded: options.unbounded.clone(),
    });
    scanned.replay.load_into(&live);
    let prepared = scanned.prepared.first().and_then(|number| Some((*number, *scanned.sizes.get(number)?)));
    Ok(Recovered {
        live,
        history,
        id: scanned.id,
        first: scanned.first,
        from_the_beginning: scanned.from_the_beginning,
        tail: scanned.tail,
        tail_size: scanned.sizes.get(&scanned.tail.segment).copied().unwrap_or(0),
        prepared,
        checkpoints: scanned.checkpoints,
    })
}
