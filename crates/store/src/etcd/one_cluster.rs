//! The cluster that was opened, and no other in its place.
//!
//! Members that are stopped and started again on a backup, under servers that run, are another cluster: it has another
//! id, which the client looks at, and its revisions go back, which is seen here. Nothing that etcd answers is older than
//! what it answered before. What this server holds in memory is then of a history that no longer is, so it asks no
//! more, and neither writes nor answers for the latest.
//!
//! It is also known here when it was last heard of.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

use ::etcd::{Changes, Error, Etcd, LeaseId, Range, Ranged, Revision, Txn, TxnAnswer, WatchFrom, Watcher};
use env::{BoxFuture, Clock};

/// A cluster for as long as it is the same.
pub(super) struct OneCluster {
    etcd: Arc<dyn Etcd>,
    seen: Arc<Seen>,
}

struct Seen {
    clock: Arc<dyn Clock>,
    /// When it last answered anything, in nanoseconds of the monotonic clock.
    heard: AtomicU64,
    /// The latest revision that it has told of.
    latest: AtomicI64,
    /// Why it is not the same any more.
    replaced: OnceLock<String>,
}

impl Seen {
    fn is_heard(&self) {
        let now = u64::try_from(self.clock.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.heard.fetch_max(now, Ordering::Relaxed);
    }

    fn is_at(&self, revision: Revision) {
        self.latest.fetch_max(revision, Ordering::Relaxed);
    }

    /// An answer of this revision (0: it does not say) came to what was asked when it was at least at `before`.
    fn check(&self, before: Revision, revision: Revision) -> Result<(), Error> {
        if revision != 0 && revision < before {
            return Err(self.is_replaced(format!("it was at revision {before}, and is at {revision}")));
        }
        self.is_at(revision);
        Ok(())
    }

    fn is_replaced(&self, why: String) -> Error {
        let why = self.replaced.get_or_init(|| {
            tracing::error!(
                why,
                "etcd was replaced, or restored from a backup, while this server ran: it serves no more. Stop all \
                 servers on this etcd, and start them again when it is as it is to be"
            );
            why
        });
        Error::Replaced(why.clone())
    }
}

impl OneCluster {
    pub fn new(etcd: Arc<dyn Etcd>, clock: Arc<dyn Clock>) -> Self {
        let seen =
            Seen { clock, heard: AtomicU64::new(0), latest: AtomicI64::new(0), replaced: OnceLock::new() };
        Self { etcd, seen: Arc::new(seen) }
    }

    /// When it last answered anything, on the monotonic clock.
    pub fn heard(&self) -> Duration {
        Duration::from_nanos(self.seen.heard.load(Ordering::Relaxed))
    }

    /// Why it is not the same any more.
    pub fn replaced(&self) -> Option<&str> {
        self.seen.replaced.get().map(String::as_str)
    }

    fn ask<T: Send + 'static>(
        &self,
        call: impl FnOnce(&dyn Etcd) -> BoxFuture<'static, Result<T, Error>>,
        revision: fn(&T) -> Revision,
    ) -> BoxFuture<'static, Result<T, Error>> {
        if let Some(why) = self.replaced() {
            let why = why.to_owned();
            return Box::pin(async move { Err(Error::Replaced(why)) });
        }
        let (seen, call) = (self.seen.clone(), call(&*self.etcd));
        let before = seen.latest.load(Ordering::Relaxed);
        Box::pin(async move {
            let answer = call.await;
            match &answer {
                Ok(answer) => seen.check(before, revision(answer))?,
                Err(Error::Replaced(why)) => return Err(seen.is_replaced(why.clone())),
                Err(Error::Unreachable(_) | Error::Uncertain(_)) => return answer,
                Err(_) => {}
            }
            seen.is_heard();
            answer
        })
    }
}

impl Etcd for OneCluster {
    fn range(&self, range: Range) -> BoxFuture<'static, Result<Ranged, Error>> {
        self.ask(|etcd| etcd.range(range), |ranged| ranged.revision)
    }

    fn txn(&self, txn: Txn) -> BoxFuture<'static, Result<TxnAnswer, Error>> {
        self.ask(|etcd| etcd.txn(txn), |answer| answer.revision)
    }

    fn watch(&self, watch: WatchFrom) -> BoxFuture<'static, Result<Box<dyn Watcher>, Error>> {
        let accepted = self.ask(|etcd| etcd.watch(watch), |_| 0);
        let seen = self.seen.clone();
        Box::pin(async move {
            let watch = accepted.await?;
            Ok(Box::new(Watched { watch, seen }) as Box<dyn Watcher>)
        })
    }

    fn grant(&self, ttl: Duration) -> BoxFuture<'static, Result<LeaseId, Error>> {
        self.ask(|etcd| etcd.grant(ttl), |_| 0)
    }

    fn keep_alive(&self, lease: LeaseId) -> BoxFuture<'static, Result<Duration, Error>> {
        self.ask(|etcd| etcd.keep_alive(lease), |_| 0)
    }

    fn revoke(&self, lease: LeaseId) -> BoxFuture<'static, Result<(), Error>> {
        self.ask(|etcd| etcd.revoke(lease), |()| 0)
    }

    fn compact(&self, revision: Revision) -> BoxFuture<'static, Result<(), Error>> {
        self.ask(|etcd| etcd.compact(revision), |()| 0)
    }
}

struct Watched {
    watch: Box<dyn Watcher>,
    seen: Arc<Seen>,
}

impl Watcher for Watched {
    fn next(&mut self) -> BoxFuture<'_, Result<Changes, Error>> {
        Box::pin(async move {
            let changes = self.watch.next().await?;
            self.seen.is_at(changes.revision);
            Ok(changes)
        })
    }

    fn ask_progress(&mut self) {
        self.watch.ask_progress();
    }
}
