//! Counts and times what is asked of a cluster, for whoever runs it.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use env::{BoxFuture, Clock};

use crate::{Changes, Error, Etcd, LeaseId, Range, Ranged, Revision, Txn, TxnAnswer, WatchFrom, Watcher};

/// Is told how every call went.
pub trait Observer: Send + Sync + 'static {
    /// `result` is `ok` or [`Error::kind`]. A watch is told of when it was accepted (`watch`) and when it broke off
    /// (`watch_ended`), which took as long as it lasted.
    fn called(&self, operation: &'static str, result: &'static str, took: Duration);
}

/// A cluster and who is told about it. Clones are the same.
#[derive(Clone)]
pub struct Observed {
    etcd: Arc<dyn Etcd>,
    seen: Seen,
}

#[derive(Clone)]
struct Seen {
    clock: Arc<dyn Clock>,
    observer: Arc<OnceLock<Arc<dyn Observer>>>,
}

impl Observed {
    /// Nobody is told until [`Observed::tell`].
    pub fn new(etcd: Arc<dyn Etcd>, clock: Arc<dyn Clock>) -> Self {
        Self { etcd, seen: Seen { clock, observer: Arc::default() } }
    }

    /// Tells this one from now on; the first who asks for it.
    pub fn tell(&self, observer: Arc<dyn Observer>) {
        let _ = self.seen.observer.set(observer);
    }

    fn timed<T: Send + 'static>(
        &self,
        operation: &'static str,
        call: BoxFuture<'static, Result<T, Error>>,
    ) -> BoxFuture<'static, Result<T, Error>> {
        let seen = self.seen.clone();
        Box::pin(async move {
            let start = seen.clock.elapsed();
            let outcome = call.await;
            seen.note(operation, &outcome, start);
            outcome
        })
    }
}

impl Seen {
    fn note<T>(&self, operation: &'static str, outcome: &Result<T, Error>, start: Duration) {
        if let Some(observer) = self.observer.get() {
            let result = outcome.as_ref().err().map_or("ok", Error::kind);
            observer.called(operation, result, self.clock.elapsed().saturating_sub(start));
        }
    }
}

impl Etcd for Observed {
    fn range(&self, range: Range) -> BoxFuture<'static, Result<Ranged, Error>> {
        self.timed("range", self.etcd.range(range))
    }

    fn txn(&self, txn: Txn) -> BoxFuture<'static, Result<TxnAnswer, Error>> {
        self.timed("txn", self.etcd.txn(txn))
    }

    fn watch(&self, watch: WatchFrom) -> BoxFuture<'static, Result<Box<dyn Watcher>, Error>> {
        let accepted = self.timed("watch", self.etcd.watch(watch));
        let seen = self.seen.clone();
        Box::pin(async move {
            let watch = accepted.await?;
            let start = seen.clock.elapsed();
            Ok(Box::new(ObservedWatch { watch, seen, start, over: false }) as Box<dyn Watcher>)
        })
    }

    fn grant(&self, ttl: Duration) -> BoxFuture<'static, Result<LeaseId, Error>> {
        self.timed("grant", self.etcd.grant(ttl))
    }

    fn keep_alive(&self, lease: LeaseId) -> BoxFuture<'static, Result<Duration, Error>> {
        self.timed("keep_alive", self.etcd.keep_alive(lease))
    }

    fn revoke(&self, lease: LeaseId) -> BoxFuture<'static, Result<(), Error>> {
        self.timed("revoke", self.etcd.revoke(lease))
    }

    fn compact(&self, revision: Revision) -> BoxFuture<'static, Result<(), Error>> {
        self.timed("compact", self.etcd.compact(revision))
    }
}

struct ObservedWatch {
    watch: Box<dyn Watcher>,
    seen: Seen,
    start: Duration,
    over: bool,
}

impl Watcher for ObservedWatch {
    fn next(&mut self) -> BoxFuture<'_, Result<Changes, Error>> {
        Box::pin(async move {
            let told = self.watch.next().await;
            if told.is_err() && !self.over {
                self.over = true;
                self.seen.note("watch_ended", &told, self.start);
            }
            told
        })
    }

    fn ask_progress(&mut self) {
        self.watch.ask_progress();
    }
}

#[cfg(test)]
mod tests {
    use env::{Env, files::sim::SimDisk, network::sim::SimNet};
    use parking_lot::Mutex;

    use super::*;
    use crate::{Keys, SimEtcd};

    #[derive(Default)]
    struct Noted(Mutex<Vec<(&'static str, &'static str, Duration)>>);

    impl Observer for Noted {
        fn called(&self, operation: &'static str, result: &'static str, took: Duration) {
            self.0.lock().push((operation, result, took));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn every_call_is_told_with_its_result_and_time() {
        let env = Env::simulated(1, SimDisk::new(1), SimNet::default());
        let sim = SimEtcd::new(&env, 1);
        let observed = Observed::new(sim.client("a"), env.clock.clone());
        observed.range(Range::now(Keys::one("k"))).await.expect("nobody is told yet");
        let noted = Arc::new(Noted::default());
        observed.tell(noted.clone());
        observed.txn(Txn::default()).await.expect("taken");
        let mut watch = observed.watch(WatchFrom { keys: Keys::one("k"), from: 1 }).await.expect("accepted");
        let _ = observed.keep_alive(LeaseId(7)).await;
        sim.cut("a");
        assert!(watch.next().await.is_err() && watch.next().await.is_err());
        let _ = observed.txn(Txn::default()).await;
        let timeout = Duration::from_secs(2);
        assert_eq!(
            *noted.0.lock(),
            [
                ("txn", "ok", Duration::ZERO),
                ("watch", "ok", Duration::ZERO),
                ("keep_alive", "lease_gone", Duration::ZERO),
                ("watch_ended", "unreachable", timeout),
                ("txn", "unreachable", timeout),
            ]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn it_keeps_what_etcd_promises() {
        let env = Env::simulated(1, SimDisk::new(1), SimNet::default());
        let observed = Observed::new(SimEtcd::new(&env, 1).client("a"), env.clock.clone());
        crate::suite::run(Arc::new(observed), env.clock.clone(), "/suite/").await;
    }
}
