//! What etcd keeps, and by which rules it changes.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use bytes::Bytes;

use crate::{
    Change, Compare, Error, KeyValue, Keys, LeaseId, Op, Range, Ranged, Revision, Txn, TxnAnswer, limits,
};

/// The store of a new cluster is at this revision; its first write makes the next.
const FIRST: Revision = 1;

/// Holds every key with its history since the last compaction, the leases, and what each revision did.
#[derive(Clone)]
pub(super) struct Mvcc {
    revision: Revision,
    compacted: Revision,
    keys: BTreeMap<Bytes, Vec<Version>>,
    log: BTreeMap<Revision, Vec<Change>>,
    leases: BTreeMap<LeaseId, Lease>,
    /// The next revision that each watch tells. What they have yet to be told is kept for them, whatever is compacted.
    readers: BTreeMap<Reader, Revision>,
    next_reader: u64,
    /// The quota is used up: nothing may be added.
    pub(super) full: bool,
    /// The next transaction that puts something uses it up.
    pub(super) fills_next: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Reader(u64);

fn no_space() -> Error {
    Error::NoSpace("mvcc: database space exceeded".into())
}

/// What a key was from a revision on.
#[derive(Clone)]
struct Version {
    revision: Revision,
    /// `None`: it was deleted.
    kv: Option<KeyValue>,
}

#[derive(Clone)]
struct Lease {
    ttl: Duration,
    expires: Duration,
    keys: BTreeSet<Bytes>,
}

impl Mvcc {
    pub(super) fn new() -> Self {
        Self {
            revision: FIRST,
            compacted: 0,
            keys: BTreeMap::new(),
            log: BTreeMap::new(),
            leases: BTreeMap::new(),
            readers: BTreeMap::new(),
            next_reader: 0,
            full: false,
            fills_next: false,
        }
    }

    pub(super) fn revision(&self) -> Revision {
        self.revision
    }

    pub(super) fn compacted(&self) -> Revision {
        self.compacted
    }

    pub(super) fn range(&self, range: &Range) -> Result<Ranged, Error> {
        limits::check_key(&range.keys.start)?;
        let at = range.at.filter(|at| *at > 0).unwrap_or(self.revision);
        if at > self.revision {
            return Err(Error::Refused(format!("revision {at} is in the future")));
        }
        if at < self.compacted {
            return Err(Error::Compacted(self.compacted));
        }
        let mut kvs: Vec<_> = self.alive(&range.keys, at).cloned().collect();
        let more = range.limit > 0 && kvs.len() > range.limit;
        if more {
            kvs.truncate(range.limit);
        }
        if range.keys_only {
            kvs.iter_mut().for_each(|kv| kv.value = Bytes::new());
        }
        Ok(Ranged { revision: self.revision, kvs, more })
    }

    pub(super) fn txn(&mut self, txn: &Txn) -> Result<TxnAnswer, Error> {
        limits::check(txn)?;
        if self.full && txn.then.iter().chain(&txn.otherwise).any(|op| matches!(op, Op::Put { .. })) {
            return Err(no_space());
        }
        let held = txn.when.iter().all(|compare| self.holds(compare));
        let ops = if held { &txn.then } else { &txn.otherwise };
        let lost = |op: &Op| matches!(op, Op::Put { lease: Some(id), .. } if !self.leases.contains_key(id));
        if ops.iter().any(lost) {
            return Err(Error::LeaseGone);
        }
        let (mut changes, mut ranges) = (Vec::new(), Vec::new());
        for op in ops {
            match op {
                Op::Put { key, value, lease } => changes.push(self.put(key, value, *lease)),
                Op::Delete(keys) => self.delete(keys, &mut changes),
                Op::Range(keys) => ranges.push(self.alive(keys, Revision::MAX).cloned().collect()),
            }
        }
        let puts = changes.iter().any(|change| matches!(change, Change::Put(_)));
        self.finish(changes);
        if puts && std::mem::take(&mut self.fills_next) {
            // etcd looks at its quota when it carries something out, and does so all the same.
            self.full = true;
            return Err(no_space());
        }
        Ok(TxnAnswer { held, revision: self.revision, ranges })
    }

    /// If `act` puts something, the quota is used up by it, and somebody makes room right after.
    pub(super) fn filled_by<T>(&mut self, act: impl FnOnce(&mut Self) -> T) -> T {
        let before = (self.full, self.fills_next);
        self.fills_next = true;
        let done = act(self);
        (self.full, self.fills_next) = before;
        done
    }

    /// Begins to read what the revisions from `from` on did; or says up to where that is forgotten.
    pub(super) fn read_from(&mut self, from: Revision) -> Result<Reader, Error> {
        if from < self.compacted {
            return Err(Error::Compacted(self.compacted));
        }
        self.next_reader += 1;
        self.readers.insert(Reader(self.next_reader), from);
        Ok(Reader(self.next_reader))
    }

    pub(super) fn stop_reading(&mut self, reader: Reader) {
        self.readers.remove(&reader);
        self.prune();
    }

    /// In how many revisions that this one has not read something happened to `keys`. If in none, it has read all.
    pub(super) fn unread(&mut self, reader: Reader, keys: &Keys) -> usize {
        let concerns = |change: &Change| keys.contains(change.key());
        let next = self.readers.entry(reader).or_insert(self.revision + 1);
        let count = self.log.range(*next..).filter(|(_, changes)| changes.iter().any(concerns)).count();
        if count == 0 {
            *next = (*next).max(self.revision + 1);
        }
        count
    }

    /// Reads on, at most `most` revisions that did something to `keys`.
    pub(super) fn read(&mut self, reader: Reader, keys: &Keys, most: usize) -> Vec<Change> {
        let concerns = |change: &&Change| keys.contains(change.key());
        let next = self.readers.entry(reader).or_insert(self.revision + 1);
        let told = self.log.range(*next..).map(|(_, changes)| changes.iter().filter(concerns).cloned());
        let told = told.map(Iterator::collect::<Vec<_>>).filter(|changes| !changes.is_empty());
        let told: Vec<_> = told.take(most).flatten().collect();
        if let Some(last) = told.last() {
            *next = last.revision() + 1;
        }
        told
    }

    pub(super) fn compact(&mut self, revision: Revision) -> Result<(), Error> {
        if revision <= self.compacted {
            return Err(Error::Compacted(self.compacted));
        }
        if revision > self.revision {
            return Err(Error::Refused(format!("revision {revision} is in the future")));
        }
        self.compacted = revision;
        self.prune();
        self.keys.retain(|_, versions| {
            let kept = versions.iter().rposition(|version| version.revision <= revision).unwrap_or(0);
            versions.drain(..kept);
            let gone = versions.first().is_some_and(|first| first.revision <= revision && first.kv.is_none());
            if gone {
                versions.remove(0);
            }
            !versions.is_empty()
        });
        Ok(())
    }

    pub(super) fn grant(&mut self, lease: LeaseId, ttl: Duration, now: Duration) -> Result<(), Error> {
        if self.full {
            return Err(no_space());
        }
        let ttl = limits::granted(ttl)?;
        self.leases.insert(lease, Lease { ttl, expires: now + ttl, keys: BTreeSet::new() });
        Ok(())
    }

    pub(super) fn keep_alive(&mut self, lease: LeaseId, now: Duration) -> Result<Duration, Error> {
        let lease = self.leases.get_mut(&lease).ok_or(Error::LeaseGone)?;
        lease.expires = now + lease.ttl;
        Ok(lease.ttl)
    }

    pub(super) fn revoke(&mut self, lease: LeaseId) -> Result<(), Error> {
        let lease = self.leases.remove(&lease).ok_or(Error::LeaseGone)?;
        let mut changes = Vec::new();
        for key in lease.keys {
            self.delete(&Keys::one(key), &mut changes);
        }
        self.finish(changes);
        Ok(())
    }

    /// When the next lease goes.
    pub(super) fn next_expiry(&self) -> Option<Duration> {
        self.leases.values().map(|lease| lease.expires).min()
    }

    /// Lets go of the leases that have run out, in the order in which they did. Whether one did.
    pub(super) fn expire(&mut self, now: Duration) -> bool {
        let mut due: Vec<_> = self.leases.iter().map(|(id, lease)| (lease.expires, *id)).collect();
        due.retain(|(expires, _)| *expires <= now);
        due.sort_unstable();
        for (_, id) in &due {
            let _ = self.revoke(*id);
        }
        !due.is_empty()
    }

    /// As a new leader does, which does not know when they were last kept alive.
    pub(super) fn extend_leases(&mut self, now: Duration) {
        self.leases.values_mut().for_each(|lease| lease.expires = now + lease.ttl);
    }

    fn prune(&mut self) {
        let needed = self.readers.values().min().map_or(self.compacted, |next| self.compacted.min(*next));
        self.log = self.log.split_off(&needed);
    }

    fn alive(&self, keys: &Keys, at: Revision) -> impl Iterator<Item = &KeyValue> {
        let found = keys.bounds().map(|bounds| self.keys.range::<[u8], _>(bounds));
        found.into_iter().flatten().filter_map(move |(_, versions)| {
            versions.iter().rev().find(|version| version.revision <= at)?.kv.as_ref()
        })
    }

    fn current(&self, key: &Bytes) -> Option<&KeyValue> {
        self.keys.get(key)?.last()?.kv.as_ref()
    }

    fn holds(&self, compare: &Compare) -> bool {
        match compare {
            Compare::Created(key, revision) => self.current(key).map_or(0, |kv| kv.created) == *revision,
            Compare::Modified(key, revision) => self.current(key).map_or(0, |kv| kv.modified) == *revision,
            Compare::Exists(key) => self.current(key).is_some(),
        }
    }

    fn put(&mut self, key: &Bytes, value: &Bytes, lease: Option<LeaseId>) -> Change {
        let modified = self.revision + 1;
        let created = self.current(key).map_or(modified, |kv| kv.created);
        self.detach(key);
        if let Some(lease) = lease.and_then(|id| self.leases.get_mut(&id)) {
            lease.keys.insert(key.clone());
        }
        let kv = KeyValue { key: key.clone(), value: value.clone(), created, modified, lease };
        let version = Version { revision: modified, kv: Some(kv.clone()) };
        self.keys.entry(key.clone()).or_default().push(version);
        Change::Put(kv)
    }

    fn delete(&mut self, keys: &Keys, changes: &mut Vec<Change>) {
        let revision = self.revision + 1;
        let gone: Vec<Bytes> = self.alive(keys, Revision::MAX).map(|kv| kv.key.clone()).collect();
        for key in gone {
            self.detach(&key);
            self.keys.entry(key.clone()).or_default().push(Version { revision, kv: None });
            changes.push(Change::Deleted(key, revision));
        }
    }

    fn detach(&mut self, key: &Bytes) {
        let lease = self.current(key).and_then(|kv| kv.lease);
        if let Some(lease) = lease.and_then(|id| self.leases.get_mut(&id)) {
            lease.keys.remove(key);
        }
    }

    /// What changed makes the next revision; nothing makes none.
    fn finish(&mut self, changes: Vec<Change>) {
        if !changes.is_empty() {
            self.revision += 1;
            self.log.insert(self.revision, changes);
        }
    }
}
