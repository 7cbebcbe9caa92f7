//! What came of errands, written into the Assignments: for all sessions together, so that clusters that report at the
//! same time are one write.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    convert::Infallible,
    sync::Arc,
    time::Duration,
};

use api::assignment::{Assignment, Report, State};
use futures_util::{StreamExt, stream};
use machinery::Draft;
use parking_lot::Mutex;
use serde_json::Value;
use server::Hub;
use store::{Change, Collection, Commit, Error, Expect, Key, Write};
use tokio::sync::Notify;

use super::work::Errand;

/// What comes within this is written together.
const PAUSE: Duration = Duration::from_millis(20);
/// An Assignment that was written is left alone for so long: while pods come up, each of its clusters has news every
/// few milliseconds, and nobody needs all of them.
const REST: Duration = Duration::from_millis(150);
/// So long what is on its way may go on before it is said how far it is. That it has got there is said at once.
const PATIENCE: Duration = Duration::from_secs(1);
/// After a failure of the store.
const RETRY: Duration = Duration::from_secs(1);
const AT_ONCE: usize = 64;
/// Against others who write the same Assignment.
const ATTEMPTS: usize = 8;

pub struct Reporter {
    hub: Arc<Hub>,
    pending: Mutex<HashMap<Errand, Pending>>,
    /// Those of whom something is being written.
    writing: Mutex<HashSet<Errand>>,
    /// Those that were written, until they may be again.
    resting: Mutex<HashMap<Errand, Duration>>,
    wake: Notify,
}

/// What is to be written of an errand.
struct Pending {
    /// By the UID of the Cluster.
    reports: BTreeMap<String, Report>,
    due: Duration,
}

/// How soon something is to be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// It is as it should be, or is not any more, or cannot be.
    Turn,
    /// It has come further, and has to go on.
    Progress,
}

pub fn collection() -> Collection {
    Collection::new(api::GROUP, api::assignment::PLURAL)
}

pub fn key(errand: &Errand) -> Key {
    Key { collection: collection(), item: errand.item.clone() }
}

impl Reporter {
    pub fn new(hub: Arc<Hub>) -> Reporter {
        Reporter {
            hub,
            pending: Mutex::default(),
            writing: Mutex::default(),
            resting: Mutex::default(),
            wake: Notify::new(),
        }
    }

    /// `known`: what the Assignment says already.
    pub fn report(&self, errand: &Errand, known: Option<&Report>, report: Report, news: News) {
        let now = self.hub.env.clock.elapsed();
        let mut pending = self.pending.lock();
        let waits = pending.get(errand).is_some_and(|it| it.reports.contains_key(&report.uid))
            || self.writing.lock().contains(errand);
        if !waits && known == Some(&report) {
            return;
        }
        let due = if news == News::Turn { now } else { now + PATIENCE };
        let entry =
            pending.entry(errand.clone()).or_insert_with(|| Pending { reports: BTreeMap::new(), due });
        entry.reports.insert(report.uid.clone(), report);
        entry.due = entry.due.min(due);
        drop(pending);
        self.wake.notify_one();
    }

    pub async fn run(&self) -> Infallible {
        loop {
            if self.pending.lock().is_empty() {
                self.wake.notified().await;
            }
            self.hub.env.clock.sleep(PAUSE).await;
            let batch = self.take();
            let mut writes = stream::iter(batch.into_iter().map(|(errand, reports)| async move {
                let written = self.write(&errand, &reports).await;
                (errand, reports, written)
            }))
            .buffer_unordered(AT_ONCE);
            let mut failed = None;
            while let Some((errand, reports, written)) = writes.next().await {
                self.writing.lock().remove(&errand);
                match written {
                    Ok(true) => {
                        self.resting.lock().insert(errand, self.hub.env.clock.elapsed() + REST);
                    }
                    Ok(false) => {}
                    Err(error) => {
                        failed = Some(error);
                        self.put_back(errand, reports);
                    }
                }
            }
            drop(writes);
            if let Some(error) = failed {
                tracing::warn!(%error, "cannot write what became of copies");
                self.hub.env.clock.sleep(RETRY).await;
            }
        }
    }

    /// What may be written now.
    fn take(&self) -> Vec<(Errand, BTreeMap<String, Report>)> {
        let now = self.hub.env.clock.elapsed();
        let mut resting = self.resting.lock();
        resting.retain(|_, until| *until > now);
        let mut pending = self.pending.lock();
        let due = pending.extract_if(|errand, it| it.due <= now && !resting.contains_key(errand));
        let batch: Vec<_> = due.map(|(errand, it)| (errand, it.reports)).collect();
        // What is said meanwhile is compared with what is there then.
        self.writing.lock().extend(batch.iter().map(|(errand, _)| errand.clone()));
        batch
    }

    /// Unless there is something newer.
    fn put_back(&self, errand: Errand, reports: BTreeMap<String, Report>) {
        let due = self.hub.env.clock.elapsed();
        let mut pending = self.pending.lock();
        let newer = pending.entry(errand).or_insert_with(|| Pending { reports: BTreeMap::new(), due });
        newer.due = due;
        for (uid, report) in reports {
            newer.reports.entry(uid).or_insert(report);
        }
    }

    /// Whether there was anything to write.
    async fn write(&self, errand: &Errand, reports: &BTreeMap<String, Report>) -> Result<bool, String> {
        let store = &self.hub.store;
        for _ in 0..ATTEMPTS {
            let Some(object) = store.get(&errand.workspace, &key(errand)) else { return Ok(false) };
            let mut tree = object.tree().map_err(|error| error.to_string())?;
            let mut assignment = Assignment::read(&object).map_err(|error| error.to_string())?;
            if !merge(&mut assignment, reports, object.head.deleting) {
                return Ok(false);
            }
            let status = serde_json::to_value(&assignment.status).map_err(|error| error.to_string())?;
            tree.insert("status".into(), status);
            let draft = Draft::encode(&tree).map_err(|error| error.to_string())?;
            let write = Write {
                key: key(errand),
                expect: Expect::At(object.revision),
                change: Change::Put { draft, expires: None },
            };
            let commit = Commit { guards: Vec::new(), writes: vec![write] };
            match store.commit(&errand.workspace, commit).await {
                Ok(_) => {
                    self.hub.metrics.copies.reports.inc();
                    return Ok(true);
                }
                Err(Error::Conflict { .. }) => {}
                Err(error) => return Err(error.to_string()),
            }
        }
        Err("the Assignment keeps changing".to_owned())
    }
}

/// Whether anything is another than it was; `leaves`: the Assignment is being deleted. What is said of clusters that it is not assigned to any more goes.
fn merge(assignment: &mut Assignment, reports: &BTreeMap<String, Report>, leaves: bool) -> bool {
    let Assignment { spec, status } = assignment;
    let mut changed = false;
    for (uid, report) in reports {
        let target = spec.clusters.iter().find(|target| target.uid == *uid);
        // That an earlier copy is gone says nothing of one that is to be made.
        let counts = target.is_some_and(|it| leaves || it.state == State::Draining || !report.is_gone());
        if !counts {
            continue;
        }
        match status.clusters.iter_mut().find(|known| known.uid == *uid) {
            Some(known) if known == report => {}
            Some(known) => (*known, changed) = (report.clone(), true),
            None => {
                status.clusters.push(report.clone());
                changed = true;
            }
        }
    }
    if changed {
        status.clusters.retain(|report| spec.clusters.iter().any(|target| target.uid == report.uid));
    }
    changed
}

/// The status of a copy, unless it is longer than an Assignment has room for: then why not.
pub fn bounded_status(status: &[u8]) -> Result<Value, String> {
    const MOST: usize = 256 << 10;
    if status.len() > MOST {
        return Err(format!(
            "the status of the copy is {} bytes long, and more than {MOST} are not kept",
            status.len()
        ));
    }
    Ok(serde_json::from_slice(status).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use api::assignment::{Spec, Status, Target};

    use super::*;

    fn report(uid: &str, generation: i64) -> Report {
        Report { name: uid.into(), uid: uid.into(), generation, ..Report::default() }
    }

    #[test]
    fn only_what_changes_something_is_written() {
        let target = |uid: &str| Target { name: uid.into(), uid: uid.into(), ..Target::default() };
        let mut assignment = Assignment {
            spec: Spec { clusters: vec![target("a"), target("b")], ..Spec::default() },
            status: Status { clusters: vec![report("a", 1), report("old", 1)] },
        };
        let said = |reports: Vec<Report>| reports.into_iter().map(|it| (it.uid.clone(), it)).collect();
        assert!(!merge(&mut assignment, &said(vec![report("a", 1), report("gone", 1)]), false));
        assert_eq!(assignment.status.clusters.len(), 2, "nothing is tidied without need");
        assert!(merge(&mut assignment, &said(vec![report("a", 2), report("b", 1)]), false));
        assert_eq!(assignment.status.clusters, [report("a", 2), report("b", 1)]);
    }
}
