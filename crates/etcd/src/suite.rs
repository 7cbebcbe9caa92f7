//! What [`Etcd`] promises, as tests that the simulation and real clusters run.
//!
//! Each case gets keys of its own under a prefix and panics with the promise that was broken. Revisions belong to the
//! whole cluster: nobody else may write to it meanwhile.

mod keys;
mod leases;
mod watches;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use env::{BoxFuture, Clock};

use crate::{Change, Changes, Error, Etcd, Keys, LeaseId, Op, Range, Revision, Txn, WatchFrom, Watcher};

/// What a case plays with.
#[derive(Clone)]
pub struct World {
    pub etcd: Arc<dyn Etcd>,
    pub clock: Arc<dyn Clock>,
    /// What all keys of the case begin with.
    prefix: String,
}

/// One test: its name and what it does.
pub type Case = (&'static str, fn(World) -> BoxFuture<'static, ()>);

/// All cases.
pub fn cases() -> Vec<Case> {
    [keys::CASES, watches::CASES, leases::CASES].concat()
}

/// Runs every case, one after the other. All keys begin with `prefix`.
pub async fn run(etcd: Arc<dyn Etcd>, clock: Arc<dyn Clock>, prefix: &str) {
    for (name, case) in cases() {
        println!("case {name}");
        case(World { etcd: etcd.clone(), clock: clock.clone(), prefix: format!("{prefix}{name}/") }).await;
    }
}

/// Longer than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

impl World {
    fn key(&self, name: &str) -> Bytes {
        format!("{}{name}", self.prefix).into()
    }

    fn all(&self) -> Keys {
        Keys::with_prefix(self.prefix.as_bytes())
    }

    fn put_op(&self, name: &str, value: &str) -> Op {
        Op::Put { key: self.key(name), value: value.to_owned().into(), lease: None }
    }

    fn leased(&self, name: &str, lease: LeaseId) -> Op {
        Op::Put { key: self.key(name), value: Bytes::new(), lease: Some(lease) }
    }

    fn delete_op(&self, name: &str) -> Op {
        Op::Delete(Keys::one(self.key(name)))
    }

    async fn try_all(&self, then: Vec<Op>) -> Result<Revision, Error> {
        let txn = Txn { then, ..Txn::default() };
        self.etcd.txn(txn).await.map(|answer| answer.revision)
    }

    async fn do_all(&self, then: Vec<Op>) -> Revision {
        self.try_all(then).await.expect("the transaction is taken")
    }

    async fn put(&self, name: &str, value: &str) -> Revision {
        self.do_all(vec![self.put_op(name, value)]).await
    }

    async fn delete(&self, name: &str) -> Revision {
        self.do_all(vec![self.delete_op(name)]).await
    }

    /// `name=value` of all keys of the case, as they were at a revision or are now.
    async fn found(&self, at: Option<Revision>) -> Vec<String> {
        let range = Range { at, ..Range::now(self.all()) };
        let found = self.etcd.range(range).await.expect("the range is read");
        let show = |kv: &crate::KeyValue| format!("{}={}", self.name(&kv.key), text(&kv.value));
        found.kvs.iter().map(show).collect()
    }

    async fn revision(&self) -> Revision {
        self.etcd.range(Range::now(self.all())).await.expect("the range is read").revision
    }

    fn name(&self, key: &Bytes) -> String {
        text(key).strip_prefix(&self.prefix).expect("a key of the case").to_owned()
    }

    async fn watch(&self, keys: Keys, from: Revision) -> Box<dyn Watcher> {
        self.etcd.watch(WatchFrom { keys, from }).await.expect("the watch is accepted")
    }

    /// What the watch says next, events or not.
    async fn next(&self, watch: &mut Box<dyn Watcher>) -> Result<Changes, Error> {
        tokio::select! {
            changes = watch.next() => changes,
            () = self.clock.sleep(PATIENCE) => panic!("the watch says nothing for {PATIENCE:?}"),
        }
    }

    /// What happens next, up to and with `revision`: `put name=value @n` or `deleted name @n`, counted from `base`.
    async fn told_up_to(
        &self,
        watch: &mut Box<dyn Watcher>,
        base: Revision,
        revision: Revision,
    ) -> Vec<String> {
        let mut told = Vec::new();
        loop {
            let changes = self.next(watch).await.expect("the watch goes on");
            assert_whole(&changes);
            told.extend(changes.events.iter().map(|change| self.show(change, base)));
            if changes.revision >= revision {
                return told;
            }
        }
    }

    fn show(&self, change: &Change, base: Revision) -> String {
        match change {
            Change::Put(kv) => {
                format!("put {}={} @{}", self.name(&kv.key), text(&kv.value), kv.modified - base)
            }
            Change::Deleted(key, revision) => format!("deleted {} @{}", self.name(key), revision - base),
        }
    }

    /// Waits until no key of the case is left.
    async fn gone(&self) {
        let deadline = self.clock.elapsed() + PATIENCE;
        while !self.found(None).await.is_empty() {
            assert!(self.clock.elapsed() < deadline, "keys are still there after {PATIENCE:?}");
            self.clock.sleep(Duration::from_millis(100)).await;
        }
    }
}

fn text(bytes: &Bytes) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What is told is in order, and no further than is said.
fn assert_whole(changes: &Changes) {
    let revisions: Vec<_> = changes.events.iter().map(Change::revision).collect();
    assert!(revisions.is_sorted(), "told out of order: {revisions:?}");
    assert!(revisions.last().is_none_or(|last| *last <= changes.revision), "{changes:?}");
}

/// Boxes the cases' futures so that a table can hold them.
macro_rules! table {
    ($($name:ident),+ $(,)?) => {
        pub(super) const CASES: &[crate::suite::Case] =
            &[$((stringify!($name), |world| Box::pin($name(world)))),+];
    };
}
use table;
