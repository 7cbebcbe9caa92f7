//! The default engine: one directory, no other process.
//!
//! ```text
//!   commit ─> queue ─> writer: validate, frame, one durable write ─> live state ─> answers
//!                        |  log-00000007 | log-00000008 | (next, prepared)
//!                        └> keeper: checkpoint-…, then old segments go
//! ```
//!
//! An append-only log holds every commit; all live objects are in memory. A checkpoint holds the state at a position
//! of the log, so that starting reads that and the log since. [`frame`] describes the log's bytes, [`recover`] what
//! can be wrong with them, [`history`] how they are read back for watchers that memory has forgotten.

mod backup;
pub(crate) mod checkpoint;
mod forget;
mod frame;
mod history;
mod keeper;
mod recover;
mod replay;
mod segment;
mod writer;

use std::{
    collections::{HashMap, VecDeque},
    io,
    path::{Path, PathBuf},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use env::{BoxFuture, Env, files::Mode};
use jiff::Timestamp;
use machinery::{Object, Revision};
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use self::{
    checkpoint::{CheckpointHeader, Position, io_at},
    frame::FrameBuilder,
    keeper::{Keeper, Point},
    recover::Recovered,
    writer::{Job, Progress, Reply, Request, Writer},
};
use crate::{
    Bounds, Collection, Commit, Committed, Error, Feed, Key, Listing, Snapshot, Span, Store, Usage, Watch,
    WorkspaceId, Write,
    live::Live,
    memory::{expire_due, expiry_commit},
};

pub(crate) use segment::EPOCHS;

pub use backup::{Report, check, fill, restore};
pub use checkpoint::Totals;

/// Sizes and times. The defaults suit a control plane; tests make everything small.
#[derive(Clone, Debug)]
pub struct Options {
    /// Size of the first segment of a new directory: small, so that it is made quickly.
    pub first_segment_bytes: u64,
    pub segment_bytes: u64,
    /// History held in memory.
    pub ring_bytes: usize,
    /// A checkpoint is taken when the log since the last one exceeds this and the size of the last one.
    pub checkpoint_bytes: u64,
    /// History is kept this long, within `history_bytes`.
    pub history_time: Duration,
    pub history_bytes: u64,
    /// Bounds of one write.
    pub batch_bytes: usize,
    pub batch_commits: usize,
    /// Requests that may wait for the writer.
    pub queue: usize,
    /// How long nothing must happen before the end of the log is marked.
    pub idle_before_mark: Duration,
    /// What each workspace may hold, but for those that are not bounded.
    pub bounds: Bounds,
    pub unbounded: Vec<WorkspaceId>,
}

impl Options {
    /// Sizes that segments can have.
    fn within_bounds(mut self) -> Self {
        let block = frame::BLOCK as u64;
        for size in [&mut self.first_segment_bytes, &mut self.segment_bytes] {
            *size = (*size).clamp(2 * block, 1 << 31).next_multiple_of(block);
        }
        self.queue = self.queue.max(1);
        self
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            first_segment_bytes: 4 << 20,
            segment_bytes: 64 << 20,
            ring_bytes: 64 << 20,
            checkpoint_bytes: 64 << 20,
            history_time: Duration::from_secs(5 * 60),
            history_bytes: 1 << 30,
            batch_bytes: 1 << 20,
            batch_commits: 1024,
            queue: 1024,
            idle_before_mark: Duration::from_millis(20),
            bounds: Bounds::NONE,
            unbounded: Vec::new(),
        }
    }
}

/// Why a store, a backup or a directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process runs on it. Stop that one first.
    #[error("{} is in use by another process", directory.display())]
    Locked { directory: PathBuf },
    /// Bytes that were written are not there any more. Restore a backup, or take the disk's word elsewhere.
    #[error("{} is damaged at byte {offset}: {what}", path.display())]
    Damaged { path: PathBuf, offset: u64, what: String },
    /// Written by another version of this program.
    #[error("{} has format {found}, this program knows format {known}", path.display())]
    Version { path: PathBuf, found: u32, known: u32 },
    /// A restore never mixes with what is there.
    #[error("{} is not empty", directory.display())]
    NotEmpty { directory: PathBuf },
    /// A restore would need an epoch beyond the last one.
    #[error("{} leaves no epoch to begin", path.display())]
    NoEpoch { path: PathBuf },
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
}

impl OpenError {
    fn damaged(path: &Path, offset: u64, what: impl Into<String>) -> Self {
        OpenError::Damaged { path: path.to_owned(), offset, what: what.into() }
    }
}

/// A store in one directory. Cheap to clone; clones share. Dropping the last one stops it as [`EmbeddedStore::close`]
/// does, without waiting.
#[derive(Clone)]
pub struct EmbeddedStore {
    env: Env,
    live: Live,
    requests: mpsc::Sender<Request>,
    progress: Arc<Progress>,
    /// Resolve when writer and keeper have stopped and let go of the directory.
    ended: Arc<Mutex<Vec<oneshot::Receiver<()>>>>,
}

/// Holds the directory's lock for as long as somebody writes there.
type Lock = Arc<dyn Send + Sync>;

/// Makes `directory` so that it survives a crash: the names of what is new above it are synced too.
fn make_directory(env: &Env, directory: &Path) -> Result<(), OpenError> {
    let is_missing = |path: &&Path| {
        let listed = env.files.list(path);
        listed.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    };
    let missing: Vec<&Path> = directory.ancestors().take_while(is_missing).collect();
    env.files.create_dir_all(directory).map_err(io_at(directory))?;
    for parent in missing.iter().filter_map(|path| path.parent()) {
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        env.files.sync_dir(parent).map_err(io_at(parent))?;
    }
    Ok(())
}

fn lock(env: &Env, directory: &Path) -> Result<Lock, OpenError> {
    let path = directory.join("LOCK");
    match env.files.lock(&path) {
        Ok(guard) => Ok(Arc::from(guard)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            Err(OpenError::Locked { directory: directory.to_owned() })
        }
        Err(source) => Err(OpenError::Io { path, source }),
    }
}

/// Runs `work` where it may block; the receiver resolves when it has ended and `lock` is free of it.
fn start(
    env: &Env,
    name: &str,
    lock: Lock,
    work: impl Future<Output = ()> + Send + 'static,
) -> oneshot::Receiver<()> {
    let (ended, receiver) = oneshot::channel();
    let work = async move {
        work.await;
        drop(lock);
        let _ = ended.send(());
    };
    env.tasks.spawn_blocking_loop(name, Box::pin(work));
    receiver
}

impl EmbeddedStore {
    /// Opens the store in `directory`, or makes one there. Reads everything before it returns.
    pub fn open(env: &Env, directory: &Path, options: Options) -> Result<Self, OpenError> {
        let options = options.within_bounds();
        make_directory(env, directory)?;
        let lock = lock(env, directory)?;
        let recovered = recover::recover(env, directory, &options)?;
        let progress = Arc::new(Progress::default());
        let (jobs, job_queue) = mpsc::channel(1);
        let (requests, request_queue) = mpsc::channel(options.queue);
        let live = recovered.live.clone();
        let (writer, keeper) = assemble(env, directory, options, recovered, jobs, progress.clone())?;
        let ended = vec![
            start(env, "store-writer", lock.clone(), writer.run(request_queue)),
            start(env, "store-keeper", lock, keeper.run(job_queue)),
        ];
        let ended = Arc::new(Mutex::new(ended));
        Ok(Self { env: env.clone(), live, requests, progress, ended })
    }

    /// Takes no more writes, finishes those under way, and lets go of the directory. Reads go on.
    pub async fn close(&self) -> Result<(), Error> {
        self.progress.closing.store(true, Ordering::Relaxed);
        let closed = self.ask(|reply| Request::Close { reply }).await;
        let ended = std::mem::take(&mut *self.ended.lock());
        for end in ended {
            let _ = end.await;
        }
        closed
    }

    /// Takes a checkpoint now.
    pub async fn checkpoint(&self) -> Result<(), Error> {
        self.ask(|reply| Request::Checkpoint { reply }).await
    }

    /// Writes everything, as it is at one moment, to one new file, and checks it, while the store goes on.
    pub async fn backup(&self, path: &Path) -> Result<Totals, Error> {
        let dump = self.ask(|reply| Request::Snapshot { reply }).await?;
        backup::write(&self.env, dump, path.to_owned()).await
    }

    fn ask<T: Send + 'static>(
        &self,
        request: impl FnOnce(Reply<T>) -> Request,
    ) -> BoxFuture<'static, Result<T, Error>> {
        let (reply, answer) = oneshot::channel();
        // At once, so that requests made together are written together.
        let sent = self.requests.try_send(request(reply));
        let requests = self.requests.clone();
        let tasks = self.env.tasks.clone();
        Box::pin(async move {
            match sent {
                Ok(()) => {}
                // In a task of its own, so that a caller who gives up waiting does not take the request back.
                Err(mpsc::error::TrySendError::Full(request)) => tasks.spawn(Box::pin(async move {
                    let _ = requests.send(request).await;
                })),
                Err(mpsc::error::TrySendError::Closed(_)) => {
                    return Err(Error::Unavailable("the store is closed".to_owned()));
                }
            }
            answer.await.unwrap_or_else(|_| Err(Error::Unknown("the writer stopped".to_owned())))
        })
    }
}

/// What a file in this format begins with that belongs to no log.
pub(crate) fn new_header(env: &Env, first_epoch: u32) -> CheckpointHeader {
    let position = Position { sequence: 0, segment: 1, offset: frame::BLOCK as u32 };
    let created = env.clock.now().as_second();
    CheckpointHeader { id: recover::new_id(env), position, first_epoch, created }
}

fn assemble(
    env: &Env,
    directory: &Path,
    options: Options,
    recovered: Recovered,
    jobs: mpsc::Sender<Job>,
    progress: Arc<Progress>,
) -> Result<(Writer, Keeper), OpenError> {
    let newest = recovered.checkpoints.last().map(|base| base.checkpoint.clone());
    progress.checkpoint_size.store(newest.as_ref().map_or(0, |newest| newest.size), Ordering::Relaxed);
    let covered = newest.map_or(0, |newest| newest.header.position.segment);
    let later = recovered.history.segments().into_iter().filter(|(number, _)| *number > covered);
    let logged_since_checkpoint = later.map(|(_, size)| size).sum::<u64>();
    let mut points: VecDeque<Point> = VecDeque::new();
    let now = env.clock.elapsed();
    if recovered.from_the_beginning {
        points.push_back(Point { base: None, taken: now });
    }
    points.extend(recovered.checkpoints.into_iter().map(|base| Point { base: Some(base), taken: now }));
    let keeper = Keeper {
        env: env.clone(),
        directory: directory.to_owned(),
        options: options.clone(),
        history: recovered.history.clone(),
        points,
        progress: progress.clone(),
    };
    let path = segment::path_of(directory, recovered.tail.segment);
    let tail_file = env.files.open(&path, Mode::WriteDurable).map_err(io_at(&path))?;
    let writer = Writer {
        env: env.clone(),
        directory: directory.to_owned(),
        options,
        id: recovered.id,
        first: recovered.first,
        live: recovered.live,
        history: recovered.history,
        tail: recovered.tail,
        tail_size: recovered.tail_size,
        tail_file,
        frame: FrameBuilder::new(recovered.id),
        prepared: recovered.prepared,
        preparing: None,
        failed: None,
        unmarked: false,
        logged_since_checkpoint,
        jobs,
        progress,
    };
    Ok((writer, keeper))
}

impl Store for EmbeddedStore {
    fn head(&self, workspace: &WorkspaceId) -> Revision {
        self.live.head(workspace)
    }

    fn get(&self, workspace: &WorkspaceId, key: &Key) -> Option<Arc<Object>> {
        self.live.get(workspace, key)
    }

    fn list(
        &self,
        workspace: &WorkspaceId,
        collection: &Collection,
        at: Option<Revision>,
    ) -> Result<Listing, Error> {
        self.live.list(workspace, collection, at)
    }

    fn last_change(&self, workspace: &WorkspaceId, collection: &Collection) -> Revision {
        self.live.last_change(workspace, collection)
    }

    fn collections(&self, workspace: &WorkspaceId) -> Vec<Collection> {
        self.live.collections(workspace)
    }

    fn workspaces(&self) -> Vec<WorkspaceId> {
        self.live.workspaces()
    }

    fn snapshot(&self, workspace: &WorkspaceId) -> Option<Snapshot> {
        self.live.snapshot(workspace)
    }

    fn usage(&self, workspace: &WorkspaceId) -> Usage {
        self.live.usage(workspace)
    }

    fn totals(&self) -> HashMap<Collection, u64> {
        self.live.totals()
    }

    fn commit(
        &self,
        workspace: &WorkspaceId,
        commit: Commit,
    ) -> BoxFuture<'static, Result<Vec<Committed>, Error>> {
        self.ask(|reply| Request::Commit { workspace: workspace.clone(), commit, reply })
    }

    fn commit_at(
        &self,
        workspace: &WorkspaceId,
        after: Revision,
        records: Vec<(Revision, Write)>,
    ) -> BoxFuture<'static, Result<(), Error>> {
        self.ask(|reply| Request::CommitAt { workspace: workspace.clone(), after, records, reply })
    }

    fn watch(&self, workspace: &WorkspaceId, span: Span, after: Revision) -> Result<Watch, Error> {
        self.live.watch(workspace, span, after)
    }

    fn feed(&self) -> Feed {
        self.live.feed()
    }

    fn begin_epoch(
        &self,
        workspace: &WorkspaceId,
        epoch: u32,
    ) -> BoxFuture<'static, Result<Revision, Error>> {
        self.ask(|reply| Request::BeginEpoch { workspace: workspace.clone(), epoch, reply })
    }

    fn compact(&self, workspace: &WorkspaceId, upto: Revision) -> BoxFuture<'static, Result<(), Error>> {
        self.ask(|reply| Request::Compact { workspace: workspace.clone(), upto, reply })
    }

    fn forget_history(&self, workspaces: Vec<WorkspaceId>) -> BoxFuture<'static, Result<u64, Error>> {
        let store = self.clone();
        Box::pin(async move {
            // First: what happens while it is taken is not forgotten, and would keep everything before it.
            store.checkpoint().await?;
            store.ask(|reply| Request::CompactAll { workspaces, reply }).await?;
            store.ask(|reply| Request::Forget { reply }).await
        })
    }

    fn remove_workspace(&self, workspace: &WorkspaceId) -> BoxFuture<'static, Result<(), Error>> {
        self.ask(|reply| Request::RemoveWorkspace { workspace: workspace.clone(), reply })
    }

    fn expire(&self, now: Timestamp) -> BoxFuture<'static, Result<usize, Error>> {
        let store = self.clone();
        Box::pin(async move {
            let expire = |(workspace, key, revision)| store.commit(&workspace, expiry_commit(key, revision));
            expire_due(&store.live, now, expire).await
        })
    }
}

#[cfg(test)]
mod tests;
