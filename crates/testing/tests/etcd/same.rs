//! The simulation answers what etcd answers, whatever it is asked.

use std::collections::BTreeMap;

use env::random::SeededRandom;
use etcd::{Change, Changes, Compare, KeyValue, LeaseId, Ranged, Revision, SimEtcd, TxnAnswer};

use super::*;

const SEEDS: u64 = 15;
const STEPS: usize = 60;

/// Something that can be asked.
#[derive(Clone, Debug)]
enum Step {
    Txn(Txn),
    Range(Range),
    Compact(Revision),
    Grant,
    /// The lease by its number among those granted.
    Revoke(usize),
    KeepAlive(usize),
    Watch(WatchFrom),
}

/// Draws steps over few keys, so that they meet.
struct Draw {
    random: SeededRandom,
    /// About how far the store is.
    revision: Revision,
    compacted: Revision,
    leases: usize,
}

impl Draw {
    fn one_in(&self, odds: u64) -> bool {
        self.random.below(odds) == 0
    }

    fn key(&self) -> Bytes {
        let names: [&'static [u8]; 7] = [b"a", b"aa", b"ab", b"b", b"b\0", b"c", b"\xff"];
        // An empty key is refused, and must be by both.
        if self.one_in(60) { Bytes::new() } else { Bytes::from_static(names[self.random.below(7) as usize]) }
    }

    fn keys(&self) -> Keys {
        let end = match self.random.below(5) {
            0 => Some(self.key()),
            1 => Some(Bytes::from_static(b"\0")),
            2 => Some(Bytes::from_static(b"c")),
            _ => None,
        };
        Keys { start: self.key(), end }
    }

    fn some_revision(&self) -> Revision {
        self.random.below(self.revision as u64 + 3) as Revision
    }

    fn compare(&self) -> Compare {
        let revision = if self.one_in(2) { 0 } else { self.some_revision() };
        match self.one_in(2) {
            true => Compare::Created(self.key(), revision),
            false => Compare::Modified(self.key(), revision),
        }
    }

    /// A lease stands for its number until there is one.
    fn op(&self) -> Op {
        match self.random.below(6) {
            0 => Op::Delete(self.keys()),
            1 => Op::Range(self.keys()),
            _ => {
                let lease = (self.leases > 0 && self.one_in(4))
                    .then(|| LeaseId(self.random.below(self.leases as u64) as i64));
                Op::Put { key: self.key(), value: self.random.below(100).to_string().into(), lease }
            }
        }
    }

    fn ops(&self) -> Vec<Op> {
        (0..self.random.below(4)).map(|_| self.op()).collect()
    }

    fn step(&mut self) -> Step {
        match self.random.below(20) {
            0 => Step::Compact(self.some_revision()),
            1 => {
                self.leases += 1;
                Step::Grant
            }
            2 if self.leases > 0 => Step::Revoke(self.random.below(self.leases as u64) as usize),
            3 if self.leases > 0 => Step::KeepAlive(self.random.below(self.leases as u64) as usize),
            4..8 => {
                let at = self.one_in(2).then(|| self.some_revision());
                let limit = self.random.below(3) as usize;
                Step::Range(Range { keys: self.keys(), at, limit, keys_only: self.one_in(3) })
            }
            8 | 9 => {
                // The first key of a watch may be empty for etcd; for us there is no such key.
                let keys = Some(self.keys()).filter(|keys| !keys.start.is_empty());
                let keys = keys.unwrap_or_else(|| Keys::one("a"));
                // What was deleted at the revision of a compaction is told until etcd has cleared it away.
                let from = self.some_revision().max(1);
                Step::Watch(WatchFrom { keys, from: from + Revision::from(from == self.compacted) })
            }
            _ => {
                let when = (0..self.random.below(3)).map(|_| self.compare()).collect();
                Step::Txn(Txn { when, then: self.ops(), otherwise: self.ops() })
            }
        }
    }
}

/// One of the two, and the leases it gave.
struct Side {
    etcd: Arc<dyn Etcd>,
    leases: Vec<LeaseId>,
    /// What the revisions of the store are counted from.
    base: Revision,
    prefix: Bytes,
}

/// How an error is called; its words are each one's own.
fn called(error: Error) -> String {
    let told = format!("{error:?}");
    told.split(['(', ' ']).next().unwrap_or_default().to_owned()
}

impl Side {
    /// On a cluster that others have used before.
    async fn new(etcd: Arc<dyn Etcd>, prefix: &str) -> Side {
        let base = etcd.range(Range::now(Keys::one("any"))).await.expect("read").revision;
        Side { etcd, leases: Vec::new(), base, prefix: prefix.to_owned().into() }
    }

    fn real_key(&self, key: &Bytes) -> Bytes {
        if key.is_empty() { Bytes::new() } else { [&self.prefix[..], key].concat().into() }
    }

    fn real_keys(&self, keys: &Keys) -> Keys {
        let end = keys.end.as_ref().map(|end| match &end[..] {
            [0] => etcd::after_prefix(&self.prefix),
            [] => Bytes::new(),
            end => [&self.prefix[..], end].concat().into(),
        });
        Keys { start: self.real_key(&keys.start), end }
    }

    fn real_revision(&self, revision: Revision) -> Revision {
        if revision == 0 { 0 } else { revision + self.base }
    }

    fn real_ops(&self, ops: &[Op]) -> Vec<Op> {
        let lease = |lease: &LeaseId| self.leases[lease.0 as usize];
        let real = |op: &Op| match op {
            Op::Put { key, value, lease: of } => {
                Op::Put { key: self.real_key(key), value: value.clone(), lease: of.as_ref().map(lease) }
            }
            Op::Delete(keys) => Op::Delete(self.real_keys(keys)),
            Op::Range(keys) => Op::Range(self.real_keys(keys)),
        };
        ops.iter().map(real).collect()
    }

    fn real_txn(&self, txn: &Txn) -> Txn {
        let compare = |compare: &Compare| match compare {
            Compare::Created(key, at) => Compare::Created(self.real_key(key), self.real_revision(*at)),
            Compare::Modified(key, at) => Compare::Modified(self.real_key(key), self.real_revision(*at)),
            Compare::Exists(key) => Compare::Exists(self.real_key(key)),
        };
        Txn {
            when: txn.when.iter().map(compare).collect(),
            then: self.real_ops(&txn.then),
            otherwise: self.real_ops(&txn.otherwise),
        }
    }

    fn shown(&self, kv: &KeyValue) -> String {
        let lease = kv.lease.and_then(|lease| self.leases.iter().position(|known| *known == lease));
        let key = Bytes::copy_from_slice(&kv.key[self.prefix.len()..]);
        let (created, modified) = (kv.created - self.base, kv.modified - self.base);
        format!("{key:?}={:?} {created} {modified} {lease:?}", kv.value)
    }

    fn shown_all(&self, kvs: &[KeyValue]) -> Vec<String> {
        kvs.iter().map(|kv| self.shown(kv)).collect()
    }

    async fn take(&mut self, step: &Step) -> Result<String, Error> {
        Ok(match step {
            Step::Txn(txn) => {
                let TxnAnswer { held, revision, ranges } = self.etcd.txn(self.real_txn(txn)).await?;
                let ranges: Vec<_> = ranges.iter().map(|kvs| self.shown_all(kvs)).collect();
                format!("{held} {} {ranges:?}", revision - self.base)
            }
            Step::Range(range) => {
                let at = range.at.map(|at| self.real_revision(at));
                let range = Range { keys: self.real_keys(&range.keys), at, ..range.clone() };
                let Ranged { revision, kvs, more } = self.etcd.range(range).await?;
                format!("{} {:?} {more}", revision - self.base, self.shown_all(&kvs))
            }
            Step::Compact(revision) => format!("{:?}", self.etcd.compact(revision + self.base).await?),
            Step::Grant => {
                self.leases.push(self.etcd.grant(Duration::from_secs(3600)).await?);
                "granted".into()
            }
            Step::Revoke(lease) => format!("{:?}", self.etcd.revoke(self.leases[*lease]).await?),
            Step::KeepAlive(lease) => format!("{:?}", self.etcd.keep_alive(self.leases[*lease]).await?),
            Step::Watch(watch) => self.watch(watch).await?,
        })
    }

    /// All that a watch from a revision on tells of what has happened so far, revision by revision.
    async fn watch(&self, watch: &WatchFrom) -> Result<String, Error> {
        let keys = self.real_keys(&watch.keys);
        let now = self.etcd.range(Range::now(Keys::one("any"))).await?.revision;
        let mut watch = self.etcd.watch(WatchFrom { keys, from: self.real_revision(watch.from) }).await?;
        let mut told: BTreeMap<Revision, Vec<String>> = BTreeMap::new();
        watch.ask_progress();
        let read = async {
            loop {
                let Changes { revision, events } = watch.next().await?;
                if events.is_empty() && revision >= now {
                    return Ok(());
                }
                if events.is_empty() {
                    watch.ask_progress();
                }
                for change in events {
                    let shown = match &change {
                        Change::Put(kv) => self.shown(kv),
                        Change::Deleted(key, _) => format!("{:?} deleted", key.slice(self.prefix.len()..)),
                    };
                    told.entry(change.revision() - self.base).or_default().push(shown);
                }
            }
        };
        tokio::time::timeout(PATIENCE, read).await.expect("told in time")?;
        Ok(format!("{told:?}"))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_simulation_answers_what_etcd_answers() {
    let cluster = EtcdCluster::start(EtcdOptions::default()).expect("starts");
    let real = client(options(&cluster));
    for seed in 0..SEEDS {
        let sim = SimEtcd::new(&Env::real(), seed).client("a");
        let mut sides = [Side::new(real.clone(), &format!("/{seed}/")).await, Side::new(sim, "/sim/").await];
        let mut draw = Draw { random: SeededRandom::new(seed), revision: 0, compacted: 0, leases: 0 };
        for at in 0..STEPS {
            let step = draw.step();
            let [one, other] = &mut sides;
            let answers = [one.take(&step).await, other.take(&step).await].map(|it| it.map_err(called));
            assert_eq!(answers[0], answers[1], "seed {seed}, step {at}: {step:?}");
            match (&step, &answers[0]) {
                (Step::Txn(_), Ok(answer)) => {
                    let revision = answer.split(' ').nth(1).and_then(|text| text.parse().ok());
                    draw.revision = revision.expect("a revision");
                }
                (Step::Compact(revision), Ok(_)) => draw.compacted = *revision,
                _ => {}
            }
        }
    }
}
