//! Keeps the log short: takes checkpoints beside the writer, and removes what nobody needs any more.

use std::{
    collections::{HashMap, VecDeque},
    io,
    path::PathBuf,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use env::Env;
use machinery::Revision;
use tokio::sync::mpsc;

use super::{
    OpenError, Options,
    checkpoint::{self, Checkpoint, io_at, write_snapshots},
    history::{Base, History},
    segment,
    writer::{Dump, Job, Progress},
};
use crate::{Error, WorkspaceId};

/// A point from which history can be kept: a checkpoint, or the very beginning of the log.
pub(super) struct Point {
    pub base: Option<Base>,
    /// On the monotonic clock; what an earlier process made counts as new.
    pub taken: Duration,
}

impl Point {
    fn first_segment(&self) -> u32 {
        self.base.as_ref().map_or(0, |base| base.checkpoint.header.position.segment)
    }
}

pub(super) struct Keeper {
    pub env: Env,
    pub directory: PathBuf,
    pub options: Options,
    pub history: Arc<History>,
    /// Oldest first; the first is where history begins now.
    pub points: VecDeque<Point>,
    pub progress: Arc<Progress>,
}

impl Keeper {
    pub(super) async fn run(mut self, mut jobs: mpsc::Receiver<Job>) {
        while let Some(job) = jobs.recv().await {
            match job {
                Job::Checkpoint { dump, reply } => {
                    let taken = self.take_checkpoint(dump).await;
                    self.progress.checkpointing.store(false, Ordering::Release);
                    let closing = self.progress.closing.load(Ordering::Relaxed);
                    if let (Err(error), false) = (&taken, closing) {
                        tracing::warn!(%error, "no checkpoint was taken; the log keeps growing until one is");
                    }
                    if let Some(reply) = reply {
                        let _ = reply.send(taken.map(drop).map_err(refusal));
                    }
                }
                Job::Forget { forgotten, reply } => {
                    let _ = reply.send(self.forget(&forgotten).map_err(refusal));
                }
            }
        }
    }

    async fn take_checkpoint(&mut self, dump: Dump) -> Result<(), OpenError> {
        let path = checkpoint::path_of(&self.directory, dump.header.position.sequence);
        let newest = self.points.back().and_then(|point| point.base.as_ref());
        // One that was wanted earlier may have been overtaken.
        let is_there =
            |base: &Base| base.checkpoint.header.position.sequence >= dump.header.position.sequence;
        if newest.is_some_and(is_there) {
            return Ok(());
        }
        let heads = dump.snapshots.iter().map(|snapshot| (snapshot.id().clone(), snapshot.state().head));
        let heads = Arc::new(heads.collect());
        let (files, stop) = (self.env.files.clone(), &self.progress.closing);
        let written = write_snapshots(files, path.clone(), dump.header, dump.snapshots, stop).await;
        let size = written.map_err(io_at(&path))?;
        let checkpoint = Arc::new(Checkpoint::open(&*self.env.files, &path)?);
        tracing::debug!(file = %path.display(), size, "checkpoint taken");
        self.progress.checkpoint_size.store(size, Ordering::Relaxed);
        let base = Some(Base { checkpoint, heads });
        self.points.push_back(Point { base, taken: self.env.clock.elapsed() });
        self.forget(&HashMap::new()).map(drop)
    }

    /// Which point history should begin at: the newest that is old enough, or as new as the bound on bytes asks, or
    /// that nobody can ask for what is before it.
    fn new_beginning(&self, forgotten: &HashMap<WorkspaceId, Revision>) -> usize {
        let now = self.env.clock.elapsed();
        let old_enough = |point: &Point| now.saturating_sub(point.taken) >= self.options.history_time;
        let mut beginning = self.points.iter().skip(1).take_while(|point| old_enough(point)).count();
        let segments = self.history.segments();
        let bytes_since = |point: &Point| {
            let first = point.first_segment();
            segments.iter().filter(|(number, _)| *number >= first).map(|(_, size)| size).sum::<u64>()
        };
        while beginning + 1 < self.points.len()
            && bytes_since(&self.points[beginning]) > self.options.history_bytes
        {
            beginning += 1;
        }
        let unreachable = self.points.iter().rposition(|point| is_forgotten_before(point, forgotten));
        beginning.max(unreachable.unwrap_or(0))
    }

    /// Removes history that is old enough, or forgotten; answers the bytes that were freed. Checkpoints go first and for certain: one without its log is useless, a
    /// log without the checkpoint before it is not.
    fn forget(&mut self, forgotten: &HashMap<WorkspaceId, Revision>) -> Result<u64, OpenError> {
        let beginning = self.new_beginning(forgotten);
        let forgotten: Vec<Point> = self.points.drain(..beginning).collect();
        let Some(base) = self.points.front().and_then(|point| point.base.clone()) else { return Ok(0) };
        if forgotten.is_empty() {
            return Ok(0);
        }
        let first_segment = base.checkpoint.header.position.segment;
        let segments = self.history.segments();
        self.history.advance(base);
        let files = &*self.env.files;
        let mut freed = 0;
        for base in forgotten.into_iter().filter_map(|point| point.base) {
            freed += base.checkpoint.size;
            let path = &base.checkpoint.path;
            segment::remove_if_there(files, path).map_err(io_at(path))?;
        }
        files.sync_dir(&self.directory).map_err(io_at(&self.directory))?;
        for (number, size) in segments.into_iter().filter(|(number, _)| *number < first_segment) {
            freed += size;
            let path = segment::path_of(&self.directory, number);
            segment::remove_if_there(files, &path).map_err(io_at(&path))?;
        }
        Ok(freed)
    }
}

/// Whether every workspace that was there at `point` has forgotten its history up to it, or is gone.
fn is_forgotten_before(point: &Point, forgotten: &HashMap<WorkspaceId, Revision>) -> bool {
    let Some(base) = &point.base else { return false };
    let reaches = |(id, head): (&WorkspaceId, &Revision)| forgotten.get(id).is_none_or(|upto| upto >= head);
    !forgotten.is_empty() && base.heads.iter().all(reaches)
}

fn refusal(error: OpenError) -> Error {
    match error {
        OpenError::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
            Error::NoSpace(source.to_string())
        }
        other => Error::Unavailable(other.to_string()),
    }
}
