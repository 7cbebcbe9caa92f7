//! Keeps the log short: takes checkpoints beside the writer, and removes what nobody needs any more.

use std::{
    collections::VecDeque,
    io,
    path::PathBuf,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use env::Env;
use tokio::sync::mpsc;

use super::{
    OpenError, Options,
    checkpoint::{self, Checkpoint, CheckpointWriter, io_at, write_snapshots},
    history::{Base, History},
    segment,
    writer::{Dump, Job, Progress},
};
use crate::Error;

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
            let taken = self.take_checkpoint(job.dump).await;
            self.progress.checkpointing.store(false, Ordering::Release);
            let closing = self.progress.closing.load(Ordering::Relaxed);
            if let (Err(error), false) = (&taken, closing) {
                tracing::warn!(%error, "no checkpoint was taken; the log keeps growing until one is");
            }
            if let Some(reply) = job.reply {
                let _ = reply.send(taken.map_err(|error| match error {
                    OpenError::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                        Error::NoSpace(source.to_string())
                    }
                    other => Error::Unavailable(other.to_string()),
                }));
            }
        }
    }

    async fn take_checkpoint(&mut self, dump: Dump) -> Result<(), OpenError> {
        let path = checkpoint::path_of(&self.directory, dump.header.position.sequence);
        let newest = self.points.back().and_then(|point| point.base.as_ref());
        if newest
            .is_some_and(|base| base.checkpoint.header.position.sequence == dump.header.position.sequence)
        {
            return Ok(());
        }
        let writer = CheckpointWriter::create(self.env.files.clone(), path.clone(), dump.header);
        let written = match writer {
            Ok(writer) => write_snapshots(writer, &dump.snapshots, &self.progress.closing).await,
            Err(error) => Err(error),
        };
        let size = written.map_err(io_at(&path))?;
        let heads = dump.snapshots.iter().map(|snapshot| (snapshot.id().clone(), snapshot.state().head));
        let heads = Arc::new(heads.collect());
        drop(dump.snapshots);
        let checkpoint = Arc::new(Checkpoint::open(&*self.env.files, &path)?);
        tracing::debug!(file = %path.display(), size, "checkpoint taken");
        self.progress.checkpoint_size.store(size, Ordering::Relaxed);
        let base = Some(Base { checkpoint, heads });
        self.points.push_back(Point { base, taken: self.env.clock.elapsed() });
        self.forget()
    }

    /// Which point history should begin at: the newest that is old enough, or as new as the bound on bytes asks.
    fn new_beginning(&self) -> usize {
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
        beginning
    }

    /// Removes history that is old enough. Checkpoints go first and for certain: one without its log is useless, a
    /// log without the checkpoint before it is not.
    fn forget(&mut self) -> Result<(), OpenError> {
        let beginning = self.new_beginning();
        let forgotten: Vec<Point> = self.points.drain(..beginning).collect();
        let Some(base) = self.points.front().and_then(|point| point.base.clone()) else { return Ok(()) };
        if forgotten.is_empty() {
            return Ok(());
        }
        let first_segment = base.checkpoint.header.position.segment;
        let segments = self.history.segments();
        self.history.advance(base);
        let files = &*self.env.files;
        for base in forgotten.into_iter().filter_map(|point| point.base) {
            let path = &base.checkpoint.path;
            segment::remove_if_there(files, path).map_err(io_at(path))?;
        }
        files.sync_dir(&self.directory).map_err(io_at(&self.directory))?;
        for (number, _) in segments.into_iter().filter(|(number, _)| *number < first_segment) {
            let path = segment::path_of(&self.directory, number);
            segment::remove_if_there(files, &path).map_err(io_at(&path))?;
        }
        Ok(())
    }
}
