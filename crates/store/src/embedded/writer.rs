//! The one writer: takes requests off a queue, makes a batch durable with one write, then shows and answers it.
//!
//! Whatever arrives while a write is under way becomes the next batch, workspaces in turn; a lone request never waits
//! for company.

use std::{
    collections::HashMap,
    io,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use env::{Env, File, files::Mode};
use machinery::Revision;
use tokio::sync::{mpsc, oneshot};

use super::{
    Options,
    checkpoint::{CheckpointHeader, Position},
    frame::{BLOCK, FRAME_HEADER, FrameBuilder, Kind, LogId, RECORD_HEADER, Record},
    history::History,
    segment::{self, FirstState, Segment, SegmentHeader, Unmade},
};
use crate::{
    Change, Commit, Committed, Error, WorkspaceId, Write,
    live::{Live, Snapshot, Stage},
    turns::{Turns, Waits},
};

pub(super) type Reply<T> = oneshot::Sender<Result<T, Error>>;

/// What the writer can be asked.
pub(super) enum Request {
    Commit {
        workspace: WorkspaceId,
        commit: Commit,
        reply: Reply<Vec<Committed>>,
    },
    CommitAt {
        workspace: WorkspaceId,
        after: Revision,
        records: Vec<(Revision, Write)>,
        reply: Reply<()>,
    },
    BeginEpoch {
        workspace: WorkspaceId,
        epoch: u32,
        reply: Reply<Revision>,
    },
    Compact {
        workspace: WorkspaceId,
        upto: Revision,
        reply: Reply<()>,
    },
    /// Forgets the histories of these workspaces up to now.
    CompactAll {
        workspaces: Vec<WorkspaceId>,
        reply: Reply<()>,
    },
    /// Removes files that hold forgotten history alone; answers how many bytes those were.
    Forget {
        reply: Reply<u64>,
    },
    RemoveWorkspace {
        workspace: WorkspaceId,
        reply: Reply<()>,
    },
    /// Everything at one position of the log, for a backup.
    Snapshot {
        reply: Reply<Dump>,
    },
    /// A checkpoint now.
    Checkpoint {
        reply: Reply<()>,
    },
    Close {
        reply: Reply<()>,
    },
}

impl Waits for Request {
    fn workspace(&self) -> Option<&WorkspaceId> {
        match self {
            Request::Commit { workspace, .. }
            | Request::CommitAt { workspace, .. }
            | Request::BeginEpoch { workspace, .. }
            | Request::Compact { workspace, .. }
            | Request::RemoveWorkspace { workspace, .. } => Some(workspace),
            Request::Snapshot { .. }
            | Request::CompactAll { .. }
            | Request::Checkpoint { .. }
            | Request::Forget { .. }
            | Request::Close { .. } => None,
        }
    }
}

/// All live objects at one position of the log.
pub(super) struct Dump {
    pub header: CheckpointHeader,
    pub snapshots: Vec<Snapshot>,
}

/// What the writer hands to the keeper.
pub(super) enum Job {
    Checkpoint { dump: Dump, reply: Option<Reply<()>> },
    Forget { forgotten: HashMap<WorkspaceId, Revision>, reply: Reply<u64> },
}

/// What writer and keeper tell one another.
#[derive(Default)]
pub(super) struct Progress {
    pub checkpointing: AtomicBool,
    /// Size of the newest checkpoint.
    pub checkpoint_size: AtomicU64,
    pub closing: AtomicBool,
}

/// A commit is refused when its frame would be larger than this.
const MAX_FRAME: usize = 1 << 30;
/// The longest name that a record can hold.
const MAX_TEXT: usize = u16::MAX as usize;
/// At most what the revision adds to a draft.
const REVISION_ROOM: usize = 48;

/// A commit that was looked at and waits for the write that its answer depends on.
enum Pending {
    Commit(Reply<Vec<Committed>>, Result<Vec<Committed>, Error>),
    CommitAt(Reply<()>, Result<(), Error>),
}

impl Pending {
    fn answer(self) {
        match self {
            Pending::Commit(reply, result) => drop(reply.send(result)),
            Pending::CommitAt(reply, result) => drop(reply.send(result)),
        }
    }

    /// The write failed. A refusal may rest on a commit of the same batch, so it does not stand either.
    fn fail(self, reason: &str) {
        match self {
            Pending::Commit(reply, result) => drop(reply.send(Err(failure(result.is_ok(), reason)))),
            Pending::CommitAt(reply, result) => drop(reply.send(Err(failure(result.is_ok(), reason)))),
        }
    }
}

fn failure(accepted: bool, reason: &str) -> Error {
    if accepted { Error::Unknown(reason.to_owned()) } else { Error::Unavailable(reason.to_owned()) }
}

/// A segment that is being made beside the writer.
pub(super) struct Preparing {
    number: u32,
    size: u64,
    done: oneshot::Receiver<Result<(), Unmade>>,
}

pub(super) struct Writer {
    pub env: Env,
    pub directory: PathBuf,
    pub options: Options,
    pub id: LogId,
    pub first: FirstState,
    pub live: Live,
    pub history: Arc<History>,
    /// Where the next frame goes, and the number of the last one.
    pub tail: Position,
    pub tail_size: u64,
    pub tail_file: Arc<dyn File>,
    pub frame: FrameBuilder,
    /// The next segment, if there is one.
    pub prepared: Option<(u32, u64)>,
    pub preparing: Option<Preparing>,
    /// Why no more writes are taken.
    pub failed: Option<String>,
    /// The last frame holds records, and no mark follows it yet.
    pub unmarked: bool,
    pub logged_since_checkpoint: u64,
    pub jobs: mpsc::Sender<Job>,
    pub progress: Arc<Progress>,
}

impl Writer {
    pub(super) async fn run(mut self, mut requests: mpsc::Receiver<Request>) {
        let mut turns = Turns::default();
        let mut closed = Vec::new();
        while let Some(request) = self.next(&mut turns, &mut requests).await {
            match request {
                Request::Commit { .. } | Request::CommitAt { .. } => {
                    self.batch(request, &mut turns, &mut requests).await;
                }
                Request::Compact { .. } | Request::RemoveWorkspace { .. } => {
                    self.forget(request, &mut turns, &mut requests).await;
                }
                // What came before it is still done.
                Request::Close { reply } => {
                    turns.close();
                    closed.push(reply);
                }
                other => self.control(other).await,
            }
        }
        self.mark().await;
        // Whoever opens the directory next must not find a file appear under its hands.
        if let Some(preparing) = self.preparing.take() {
            let _ = preparing.done.await;
        }
        requests.close();
        while let Some(request) = requests.recv().await {
            refuse(request, &Error::Unavailable("the store is closed".to_owned()));
        }
        for reply in closed {
            let _ = reply.send(self.check_running());
        }
    }

    /// Waits for a request; if none comes for a moment, protects the last frame with a mark. `None`: there will be none.
    async fn next(
        &mut self,
        turns: &mut Turns<Request>,
        requests: &mut mpsc::Receiver<Request>,
    ) -> Option<Request> {
        turns.let_in(requests);
        if let Some(request) = turns.pop() {
            return Some(request);
        }
        if turns.is_closed() {
            return None;
        }
        if self.unmarked && self.failed.is_none() {
            let idle = self.env.clock.sleep(self.options.idle_before_mark);
            tokio::select! {
                biased;
                request = requests.recv() => return request,
                () = idle => self.mark().await,
            }
        }
        requests.recv().await
    }

    /// Takes in `first` and what else waits, as long as it fits.
    async fn batch(
        &mut self,
        first: Request,
        turns: &mut Turns<Request>,
        requests: &mut mpsc::Receiver<Request>,
    ) {
        let needed = match self.ready_for(&first).await {
            Ok(needed) => needed,
            Err(error) => return refuse(first, &error),
        };
        let room_in_segment = (self.tail_size - u64::from(self.tail.offset)) as usize;
        let room = room_in_segment.min(self.options.batch_bytes.max(FRAME_HEADER + needed));
        self.frame.begin(self.tail.sequence + 1, self.tail.segment, self.tail.offset);
        let mut stage = Stage::new(&self.live);
        let mut pending = Vec::new();
        let mut request = first;
        loop {
            pending.push(self.take_in(request, &mut stage));
            if pending.len() >= self.options.batch_commits {
                break;
            }
            turns.let_in(requests);
            let Some(next) = turns.pop() else { break };
            match size_of(&next) {
                Ok(size) if self.frame.len() + size <= room => request = next,
                _ => {
                    turns.put_back(next);
                    break;
                }
            }
        }
        if stage.is_empty() {
            return pending.into_iter().for_each(Pending::answer);
        }
        match self.write_frame() {
            Ok(()) => {
                self.history.add_records(self.frame.indexed.drain(..));
                self.live.publish(stage);
                pending.into_iter().for_each(Pending::answer);
                self.look_after_log();
            }
            Err(reason) => pending.into_iter().for_each(|pending| pending.fail(&reason)),
        }
    }

    fn take_in(&mut self, request: Request, stage: &mut Stage) -> Pending {
        match request {
            Request::Commit { workspace, commit, reply } => {
                Pending::Commit(reply, stage.commit(&workspace, &commit, &mut self.frame))
            }
            Request::CommitAt { workspace, after, records, reply } => {
                Pending::CommitAt(reply, stage.commit_at(&workspace, after, &records, &mut self.frame))
            }
            _ => unreachable!("only commits have a size"),
        }
    }

    /// Makes sure that a frame with `request` can be written; gives its size.
    async fn ready_for(&mut self, request: &Request) -> Result<usize, Error> {
        self.check_running()?;
        let needed = size_of(request)?;
        self.make_room(needed).await?;
        Ok(needed)
    }

    pub(super) fn check_running(&self) -> Result<(), Error> {
        self.failed.as_ref().map_or(Ok(()), |reason| Err(Error::Unavailable(reason.clone())))
    }

    /// Writes the frame that was built to the tail. After an error nothing more is written: what is on disk there is
    /// unknown until somebody reads it, which is what a restart does.
    pub(super) fn write_frame(&mut self) -> Result<(), String> {
        let offset = u64::from(self.tail.offset);
        let bytes = self.frame.finish();
        if let Err(error) = self.tail_file.write_all_at(bytes, offset) {
            let path = segment::path_of(&self.directory, self.tail.segment);
            let reason = format!("writing to {} failed: {error}", path.display());
            tracing::error!(reason, "the store takes no more writes; restart it when the disk is well");
            self.failed = Some(reason.clone());
            return Err(reason);
        }
        self.tail.offset += bytes.len() as u32;
        self.tail.sequence += 1;
        self.logged_since_checkpoint += bytes.len() as u64;
        self.unmarked = true;
        Ok(())
    }

    /// Follows the last frame with an empty one, so that damage to the last can be told from an incomplete write.
    async fn mark(&mut self) {
        if !self.unmarked || self.failed.is_some() {
            return;
        }
        if let Err(error) = self.make_room(0).await {
            tracing::debug!(%error, "no room to mark the end of the log");
            return;
        }
        self.frame.begin(self.tail.sequence + 1, self.tail.segment, self.tail.offset);
        if self.write_frame().is_ok() {
            self.unmarked = false;
        }
    }

    /// Rolls to the next segment if a frame with `needed` bytes of records does not fit the current one.
    pub(super) async fn make_room(&mut self, needed: usize) -> Result<(), Error> {
        let size = (FRAME_HEADER + needed).next_multiple_of(BLOCK) as u64;
        if u64::from(self.tail.offset) + size <= self.tail_size {
            return Ok(());
        }
        let number = self.tail.segment + 1;
        let size = self.options.segment_bytes.max(BLOCK as u64 + size).next_multiple_of(BLOCK as u64);
        if let Some(Preparing { number, size, done }) = self.preparing.take() {
            match done.await {
                Ok(Ok(())) => self.prepared = Some((number, size)),
                // There may be room again by now; if not, the next attempt says so.
                Ok(Err(Unmade { error, .. })) => tracing::warn!(%error, "cannot prepare a segment"),
                Err(_) => tracing::warn!("preparing a segment ended early"),
            }
        }
        let size = match self.prepared.take() {
            Some((prepared, prepared_size)) if prepared == number && prepared_size >= size => prepared_size,
            too_small => {
                let header = SegmentHeader { id: self.id, number, first: self.first, size };
                let made = segment::create(&*self.env.files, &self.directory, &header);
                made.map_err(|unmade| {
                    self.prepared = too_small.filter(|_| !unmade.name_in_doubt);
                    no_segment(unmade.error)
                })?;
                size
            }
        };
        let used = self.use_segment(number, size);
        used.map_err(|error| Error::Unavailable(error.to_string()))
    }

    fn use_segment(&mut self, number: u32, size: u64) -> Result<(), super::OpenError> {
        let path = segment::path_of(&self.directory, number);
        let segment = Segment::open(&*self.env.files, &path)?;
        let durable = self.env.files.open(&path, Mode::WriteDurable);
        self.tail_file = durable.map_err(|source| super::OpenError::Io { path, source })?;
        self.history.add_segment(segment);
        (self.tail.segment, self.tail.offset, self.tail_size) = (number, BLOCK as u32, size);
        Ok(())
    }

    /// After a write: prepares the next segment in time, and asks for a checkpoint when the log has grown.
    pub(super) fn look_after_log(&mut self) {
        let half_full = u64::from(self.tail.offset) > self.tail_size / 2;
        if half_full && self.prepared.is_none() && self.preparing.is_none() {
            self.prepare_segment();
        }
        let last = self.progress.checkpoint_size.load(Ordering::Relaxed);
        if self.logged_since_checkpoint > self.options.checkpoint_bytes.max(last) {
            self.request_checkpoint();
        }
    }

    fn prepare_segment(&mut self) {
        let number = self.tail.segment + 1;
        let size = self.options.segment_bytes.next_multiple_of(BLOCK as u64);
        let header = SegmentHeader { id: self.id, number, first: self.first, size };
        let (files, directory) = (self.env.files.clone(), self.directory.clone());
        let (sender, done) = oneshot::channel();
        let work = async move {
            let _ = sender.send(segment::create(&*files, &directory, &header));
        };
        self.env.tasks.spawn_blocking_loop("store-segment", Box::pin(work));
        self.preparing = Some(Preparing { number, size, done });
    }

    fn dump(&self) -> Dump {
        let header = CheckpointHeader {
            id: self.id,
            position: self.tail,
            first_epoch: self.first.epoch,
            created: self.env.clock.now().as_second(),
        };
        Dump { header, snapshots: self.live.snapshots() }
    }

    /// Because the log has grown; if one is being taken, or waits to be, that is enough.
    fn request_checkpoint(&mut self) {
        if self.progress.checkpointing.swap(true, Ordering::AcqRel) {
            return;
        }
        match self.jobs.try_send(Job::Checkpoint { dump: self.dump(), reply: None }) {
            Ok(()) => self.logged_since_checkpoint = 0,
            Err(_) => self.progress.checkpointing.store(false, Ordering::Release),
        }
    }

    /// Because somebody wants it: it waits its turn, and the writer does not.
    fn hand_over(&mut self, job: Job) {
        let jobs = self.jobs.clone();
        self.env.tasks.spawn(Box::pin(async move {
            // Without a keeper the reply is dropped, which is an answer.
            let _ = jobs.send(job).await;
        }));
    }

    fn forgotten(&self) -> HashMap<WorkspaceId, Revision> {
        let snapshots = self.live.snapshots();
        snapshots.iter().map(|snapshot| (snapshot.id().clone(), snapshot.state().forgotten)).collect()
    }

    /// Requests that are rare: each is a frame of its own.
    async fn control(&mut self, request: Request) {
        match request {
            Request::BeginEpoch { workspace, epoch, reply } => {
                let _ = reply.send(self.begin_epoch(&workspace, epoch).await);
            }
            Request::Snapshot { reply } => {
                let _ = reply.send(Ok(self.dump()));
            }
            Request::CompactAll { workspaces, reply } => {
                let _ = reply.send(self.compact_all(&workspaces).await);
            }
            Request::Checkpoint { reply } => match self.check_running() {
                Ok(()) => {
                    self.logged_since_checkpoint = 0;
                    self.hand_over(Job::Checkpoint { dump: self.dump(), reply: Some(reply) });
                }
                Err(error) => drop(reply.send(Err(error))),
            },
            Request::Forget { reply } => match self.check_running() {
                Ok(()) => self.hand_over(Job::Forget { forgotten: self.forgotten(), reply }),
                Err(error) => drop(reply.send(Err(error))),
            },
            Request::Commit { .. }
            | Request::CommitAt { .. }
            | Request::Compact { .. }
            | Request::RemoveWorkspace { .. }
            | Request::Close { .. } => unreachable!("handled by the loop"),
        }
        self.look_after_log();
    }

    async fn write_alone(&mut self, records: &[(&WorkspaceId, Kind, Revision)]) -> Result<(), Error> {
        self.check_running()?;
        let mut size = 0;
        for (workspace, ..) in records {
            check_text(&workspace.0)?;
            size += RECORD_HEADER + workspace.0.len();
        }
        self.make_room(size).await?;
        self.frame.begin(self.tail.sequence + 1, self.tail.segment, self.tail.offset);
        for (workspace, kind, revision) in records {
            self.frame.add(Record::about(workspace, *kind, *revision));
        }
        self.write_frame().map_err(Error::Unknown)
    }

    async fn begin_epoch(&mut self, workspace: &WorkspaceId, epoch: u32) -> Result<Revision, Error> {
        let start = self.live.epoch_start(workspace, epoch)?;
        self.write_alone(&[(workspace, Kind::BeginEpoch, start)]).await?;
        self.live.begin_epoch(workspace, start);
        Ok(start)
    }

    /// Many to a frame: one write for each of ten thousand workspaces would hold up everybody else.
    async fn compact_all(&mut self, workspaces: &[WorkspaceId]) -> Result<(), Error> {
        const AT_ONCE: usize = 1024;
        for some in workspaces.chunks(AT_ONCE) {
            let mut records = Vec::with_capacity(some.len());
            for workspace in some {
                let upto = self.live.compaction(workspace, self.live.head(workspace))?;
                records.extend(upto.map(|upto| (workspace, Kind::Compact, upto)));
            }
            if records.is_empty() {
                continue;
            }
            self.write_alone(&records).await?;
            for (workspace, _, upto) in records {
                self.live.compact(workspace, upto);
            }
        }
        Ok(())
    }
}

fn no_segment(error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Error::NoSpace(error.to_string()),
        _ => Error::Unavailable(format!("cannot make a segment: {error}")),
    }
}

/// Answers a request that is not carried out.
pub(super) fn refuse(request: Request, error: &Error) {
    let again = || again(error);
    match request {
        Request::Commit { reply, .. } => drop(reply.send(Err(again()))),
        Request::BeginEpoch { reply, .. } => drop(reply.send(Err(again()))),
        Request::Snapshot { reply } => drop(reply.send(Err(again()))),
        Request::Forget { reply } => drop(reply.send(Err(again()))),
        Request::CommitAt { reply, .. }
        | Request::Compact { reply, .. }
        | Request::CompactAll { reply, .. }
        | Request::RemoveWorkspace { reply, .. }
        | Request::Checkpoint { reply }
        | Request::Close { reply } => drop(reply.send(Err(again()))),
    }
}

/// The same refusal for somebody else.
pub(super) fn again(error: &Error) -> Error {
    match error {
        Error::NoSpace(reason) => Error::NoSpace(reason.clone()),
        Error::Invalid(reason) => Error::Invalid(reason),
        Error::Unavailable(reason) => Error::Unavailable(reason.clone()),
        other => Error::Unavailable(other.to_string()),
    }
}

pub(super) fn check_text(text: &str) -> Result<(), Error> {
    if text.len() > MAX_TEXT { Err(Error::Invalid("a name is too long")) } else { Ok(()) }
}

/// At most what the records of a commit take in the log. Other requests have no size and end a batch.
fn size_of(request: &Request) -> Result<usize, Error> {
    let (workspace, size) = match request {
        Request::Commit { workspace, commit, .. } => (workspace, sum(workspace, commit.writes.iter())?),
        Request::CommitAt { workspace, records, .. } => {
            (workspace, sum(workspace, records.iter().map(|(_, write)| write))?)
        }
        _ => return Err(Error::Invalid("not a commit")),
    };
    check_text(&workspace.0)?;
    if size > MAX_FRAME { Err(Error::Invalid("the commit is too large")) } else { Ok(size) }
}

fn sum<'w>(workspace: &WorkspaceId, writes: impl Iterator<Item = &'w Write>) -> Result<usize, Error> {
    let mut total = 0;
    for write in writes {
        check_text(&write.key.collection.0)?;
        check_text(&write.key.item.0)?;
        let body = match &write.change {
            Change::Put { draft, .. } => draft.body().len() + REVISION_ROOM,
            Change::Remove => 0,
        };
        let text = workspace.0.len() + write.key.collection.0.len() + write.key.item.0.len();
        total += RECORD_HEADER + text + body;
    }
    Ok(total)
}
