//! What came of errands, written into the Assignments: for all sessions together, so that clusters that report at the
//! same time are one write.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    convert::Infallible,
    sync::Arc,
    time::Duration,
};

use api::assignment::{Assignment, Report, State, Target};
use futures_util::{StreamExt, stream};
use machinery::Revision;
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
/// The more are on their way, the less often each says so: for every so many of them it waits as long again, up to the
/// most.
const CROWD: usize = 25;
const MOST_PATIENCE: Duration = Duration::from_secs(10);
/// What the store did not take is tried again after so long; others do not wait for it.
const RETRY: Duration = Duration::from_secs(1);
const AT_ONCE: usize = 64;
/// Against others who write the same Assignment.
const ATTEMPTS: usize = 8;

/// So long the status of one copy may be, and so long those of one Assignment together: what is stored on etcd is no longer than
/// 1.5 MiB, and the rest of it needs room, too.
const MOST_OF_ONE: usize = 256 << 10;
const MOST_OF_ALL: usize = 768 << 10;
const NO_ROOM: &str = "the status of the copy is not kept: those of all clusters are longer together than there is room for, and it is among the longest";

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

    /// What was said last of a cluster counts.
    pub fn report(&self, errand: &Errand, mut report: Report, news: News) {
        let now = self.hub.env.clock.elapsed();
        let mut pending = self.pending.lock();
        let waits = pending.get(errand).is_some_and(|it| it.reports.contains_key(&report.uid))
            || self.writing.lock().contains(errand);
        // What the Assignment said when the errand began may have been written over since.
        if !waits && self.is_said(errand, &mut report) {
            return;
        }
        let due = if news == News::Turn { now } else { now + patience(pending.len()) };
        let entry =
            pending.entry(errand.clone()).or_insert_with(|| Pending { reports: BTreeMap::new(), due });
        entry.reports.insert(report.uid.clone(), report);
        entry.due = entry.due.min(due);
        drop(pending);
        self.wake.notify_one();
    }

    /// The report is as it was afterwards: what it is compared with may be another when it is written.
    fn is_said(&self, errand: &Errand, report: &mut Report) -> bool {
        let stored = self.hub.store.get(&errand.workspace, &key(errand));
        let assignment = stored.and_then(|stored| self.hub.assignments.read(&stored).ok());
        let Some(known) = assignment.as_ref().and_then(|it| it.report(&report.uid)) else { return false };
        let own = report.revision.clone();
        tell_of_the_first(known, report);
        let is_said = known == report;
        report.revision = own;
        is_said
    }

    pub async fn run(&self) -> Infallible {
        loop {
            if self.pending.lock().is_empty() {
                self.wake.notified().await;
            }
            self.hub.env.clock.sleep(PAUSE).await;
            let batch = self.take();
            if let Err(error) = self.write_all(batch).await {
                tracing::warn!(%error, "cannot write what became of copies");
            }
        }
    }

    /// What cannot be written waits; the last reason why.
    async fn write_all(&self, batch: Vec<(Errand, BTreeMap<String, Report>)>) -> Result<(), String> {
        let mut writes = stream::iter(batch.into_iter().map(|(errand, reports)| async move {
            let written = self.write(&errand, &reports).await;
            (errand, reports, written)
        }))
        .buffer_unordered(AT_ONCE);
        let mut failed = Ok(());
        while let Some((errand, reports, written)) = writes.next().await {
            if let Err(error) = written {
                // Before it counts as written: what is said in between is newer.
                self.put_back(errand.clone(), reports);
                self.writing.lock().remove(&errand);
                failed = Err(error);
                continue;
            }
            self.writing.lock().remove(&errand);
            if written == Ok(true) {
                self.resting.lock().insert(errand, self.hub.env.clock.elapsed() + REST);
            }
        }
        failed
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
        let due = self.hub.env.clock.elapsed() + RETRY;
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
            let mut assignment = self.hub.assignments.read(&object).map_err(|error| error.to_string())?;
            let newest = self.revision(errand, &assignment);
            let told = reports.values().filter(|report| !is_behind(&assignment, report, newest));
            let told: Vec<Report> = told.cloned().collect();
            let before = assignment.clone();
            if !merge(Arc::make_mut(&mut assignment), told, object.head.deleting) {
                return Ok(false);
            }
            make_room(&mut Arc::make_mut(&mut assignment).status.clusters, MOST_OF_ALL);
            if assignment.status == before.status {
                // What was said is without room again.
                return Ok(false);
            }
            let draft =
                object.unsealed().with_status(&assignment.status).map_err(|error| error.to_string())?;
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

impl Reporter {
    /// Of the object that is assigned; `None`: it is not there, or nobody has changed what is there from the beginning.
    fn revision(&self, errand: &Errand, assignment: &Assignment) -> Option<Revision> {
        let reference = &assignment.spec.object;
        let namespace = if reference.is_in_namespace() { errand.item.namespace() } else { "" };
        let key = Key::new(reference.group(), &reference.resource, namespace, &reference.name);
        let object = self.hub.store.get(&errand.workspace, &key)?;
        (object.head.uid == reference.uid.as_str()).then_some(object.revision)
    }
}

/// A report tells by the first revision that had what was sent of what the copy is made, so that nothing is said anew when
/// only the status of the object has changed. Which that is shows when it is written, not when the errand began: what was
/// sent in between may have been told since.
fn tell_of_the_first(known: &Report, report: &mut Report) {
    let is_known = !known.revision.is_empty() && !known.rendered.is_empty();
    if is_known && known.run == report.run && known.rendered == report.rendered {
        report.revision.clone_from(&known.revision);
    }
}

/// Whether a report is about an earlier state of the object than was told of before, or about one that is not in this
/// history: whoever says it is behind, or was told by somebody who is no more.
fn is_behind(assignment: &Assignment, report: &Report, newest: Option<Revision>) -> bool {
    let Some(told) = Revision::parse(&report.revision) else { return false };
    let known = assignment.report(&report.uid).filter(|known| known.run == report.run);
    let before = known.and_then(|known| Revision::parse(&known.revision));
    let is_behind = before.is_some_and(|before| told < before) || newest.is_some_and(|newest| told > newest);
    if is_behind {
        let (object, cluster) = (&assignment.spec.object, &report.name);
        tracing::warn!(
            ?object,
            cluster,
            ?told,
            ?before,
            ?newest,
            "a report is not of this history, and does not count"
        );
    }
    is_behind
}

/// How long one of so many may go on before it is said how far it is.
fn patience(under_way: usize) -> Duration {
    let times = u32::try_from(1 + under_way / CROWD).unwrap_or(u32::MAX);
    PATIENCE.saturating_mul(times).min(MOST_PATIENCE)
}

/// Whether anything is another than it was; `leaves`: the Assignment is being deleted. What is said of clusters that it is not assigned to any more goes.
fn merge(assignment: &mut Assignment, reports: Vec<Report>, leaves: bool) -> bool {
    let Assignment { spec, status } = assignment;
    let mut changed = false;
    for mut report in reports {
        let target = spec.clusters.iter().find(|target| target.uid == report.uid);
        // That an earlier copy is gone, or what it did, says nothing of one that is to be made.
        let is_about_it = |it: &&Target| it.run == report.run;
        let counts = target
            .filter(is_about_it)
            .is_some_and(|it| leaves || it.state == State::Draining || !report.is_gone());
        if !counts {
            continue;
        }
        let Some(known) = status.clusters.iter_mut().find(|known| known.uid == report.uid) else {
            status.clusters.push(report);
            changed = true;
            continue;
        };
        tell_of_the_first(known, &mut report);
        if *known != report {
            (*known, changed) = (report, true);
        }
    }
    if changed {
        status.clusters.retain(|report| spec.clusters.iter().any(|target| target.uid == report.uid));
    }
    changed
}

/// Leaves out the longest statuses until the others are no longer than `most` together.
fn make_room(reports: &mut [Report], most: usize) {
    if reports.len() * MOST_OF_ONE <= most {
        return;
    }
    let length = |report: &Report| serde_json::to_vec(&report.status).map_or(0, |bytes| bytes.len());
    let mut lengths: Vec<(usize, usize)> = reports.iter().map(length).zip(0..).collect();
    lengths.sort_unstable();
    let mut all: usize = lengths.iter().map(|(length, _)| length).sum();
    while all > most
        && let Some((length, at)) = lengths.pop()
    {
        reports[at] = without_status(&reports[at]);
        all -= length;
    }
}

/// A report as it is where there is no room for its status.
pub fn without_status(report: &Report) -> Report {
    let message = match report.message.as_str() {
        "" => NO_ROOM.to_owned(),
        said => format!("{said}; {NO_ROOM}"),
    };
    Report { status: Value::Null, message, ..report.clone() }
}

/// Whether there was no room for its status.
pub fn is_without_status(report: &Report) -> bool {
    report.status.is_null() && report.message.ends_with(NO_ROOM)
}

/// The status of a copy, unless it is longer than an Assignment has room for: then why not.
pub fn bounded_status(status: &[u8]) -> Result<Value, String> {
    if status.len() > MOST_OF_ONE {
        return Err(format!(
            "the status of the copy is {} bytes long, and more than {MOST_OF_ONE} are not kept",
            status.len()
        ));
    }
    Ok(serde_json::from_slice(status).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use api::assignment::{Spec, Status, Target, reason};
    use env::Env;
    use machinery::Draft;
    use serde_json::json;
    use server::{
        login::LoginOptions,
        peer::{Peer, PeerOptions},
    };
    use store::memory::MemoryStore;

    use super::*;

    fn report(uid: &str, generation: i64) -> Report {
        Report { name: uid.into(), uid: uid.into(), generation, ..Report::default() }
    }

    /// A hub with an Assignment to these clusters that is being deleted.
    async fn hub_with_assignment(directory: &std::path::Path, clusters: &[&str]) -> (Peer, Errand) {
        let options = PeerOptions {
            pki: directory.to_owned(),
            listen: ([127, 0, 0, 1], 0).into(),
            advertise: None,
            server: server::Options::default(),
            login: LoginOptions::default(),
            sharing: None,
        };
        let peer = Peer::start(&Env::real(), Arc::new(MemoryStore::new()), options).await.unwrap();
        let errand = Errand::new(&server::hub::default_id(), "shop", "namespaces.shop");
        let target = |uid: &&str| Target { uid: (*uid).into(), ..Target::default() };
        let spec = Spec { clusters: clusters.iter().map(target).collect(), ..Spec::default() };
        let assignment = json!({
            "apiVersion": api::API_VERSION, "kind": api::assignment::KIND, "spec": spec,
            "metadata": {
                "name": "namespaces.shop", "namespace": "shop", "uid": "u", "deletionTimestamp": "2026-01-01T00:00:00Z",
                "finalizers": [api::assignment::FINALIZER],
            },
        });
        let draft = Draft::encode(assignment.as_object().unwrap()).unwrap();
        let change = Change::Put { draft, expires: None };
        let writes = vec![Write { key: key(&errand), expect: Expect::Absent, change }];
        peer.hub.store.commit(&errand.workspace, Commit { guards: Vec::new(), writes }).await.unwrap();
        (peer, errand)
    }

    #[test]
    fn the_longest_statuses_are_left_out_where_there_is_no_room_for_all() {
        let with = |uid: &str, length: usize| Report { status: json!("x".repeat(length)), ..report(uid, 1) };
        // Given statuses of which all but two fit,
        let mut reports: Vec<Report> = (0..16).map(|at| with(&format!("small-{at}"), 10 << 10)).collect();
        reports.extend([with("long", 250 << 10), with("longer", 255 << 10)]);
        let mut roomy = reports.clone();
        make_room(&mut roomy, 700 << 10);
        assert_eq!(roomy, reports);
        // when there is less room, then the longest goes first, and says so,
        make_room(&mut reports, 500 << 10);
        let left_out = |reports: &[Report]| {
            let out = reports.iter().filter(|it| is_without_status(it));
            out.map(|it| it.uid.clone()).collect::<Vec<_>>()
        };
        assert_eq!(left_out(&reports), ["longer"]);
        assert_eq!(reports[17].status, Value::Null);
        make_room(&mut reports, 200 << 10);
        assert_eq!(left_out(&reports), ["long", "longer"]);
        // and once.
        let before = reports.clone();
        make_room(&mut reports, 200 << 10);
        assert_eq!(reports, before);
    }

    #[tokio::test]
    async fn what_is_stored_has_room_for_what_all_clusters_say() {
        let directory = tempfile::tempdir().unwrap();
        let uids = ["a", "b", "c", "d", "e"];
        let (peer, errand) = hub_with_assignment(directory.path(), &uids).await;
        let reporter = Reporter::new(peer.hub.clone());
        let said =
            |uid: &str| Report { status: json!("x".repeat(250 << 10)), applied: true, ..report(uid, 1) };
        // When each says as much as one may,
        for uid in uids {
            reporter.write(&errand, &BTreeMap::from([(uid.to_owned(), said(uid))])).await.unwrap();
        }
        // then it is written, and what is left out says why,
        let stored = || peer.hub.store.get(&errand.workspace, &key(&errand)).unwrap();
        let reports = Assignment::read(&stored()).unwrap().status.clusters;
        assert_eq!(reports.iter().filter(|it| it.status.is_string()).count(), 3);
        assert_eq!(reports.iter().filter(|it| is_without_status(it) && it.applied).count(), 2);
        assert!(stored().body_slice().len() < 1 << 20);
        // and nothing is written when the same is said again.
        for uid in uids {
            let again = reporter.write(&errand, &BTreeMap::from([(uid.to_owned(), said(uid))])).await;
            assert_eq!(again, Ok(false), "{uid}");
        }
    }

    #[tokio::test]
    async fn what_was_said_last_is_what_stays() {
        let directory = tempfile::tempdir().unwrap();
        let (peer, errand) = hub_with_assignment(directory.path(), &["a"]).await;
        let reporter = Reporter::new(peer.hub.clone());
        let waits = Report { message: "it is being deleted in the cluster".into(), ..report("a", 1) };
        let gone = Report { reason: reason::GONE.into(), ..report("a", 1) };
        let said = || {
            let stored = peer.hub.store.get(&errand.workspace, &key(&errand)).unwrap();
            Assignment::read(&stored).unwrap().report("a").cloned()
        };
        let rests = || reporter.resting.lock().clear();

        // While it is written that it is gone, an earlier event comes late. Then its end is told, and it is said again.
        reporter.report(&errand, gone.clone(), News::Turn);
        let batch = reporter.take();
        reporter.report(&errand, waits.clone(), News::Turn);
        reporter.write_all(batch).await.unwrap();
        assert_eq!(said(), Some(gone.clone()));
        reporter.report(&errand, gone.clone(), News::Turn);
        rests();
        reporter.write_all(reporter.take()).await.unwrap();
        assert_eq!(said(), Some(gone.clone()), "and not what was to be written in between");

        // The same if what came in between was written already, whatever the Assignment said when the errand began.
        reporter.report(&errand, waits.clone(), News::Turn);
        rests();
        reporter.write_all(reporter.take()).await.unwrap();
        assert_eq!(said(), Some(waits));
        reporter.report(&errand, gone.clone(), News::Turn);
        rests();
        reporter.write_all(reporter.take()).await.unwrap();
        assert_eq!(said(), Some(gone.clone()));

        // What is said already is not written again.
        reporter.report(&errand, gone, News::Turn);
        assert!(reporter.pending.lock().is_empty());
        peer.stop().await;
    }

    #[tokio::test]
    async fn what_cannot_be_written_keeps_nobody_waiting() {
        let directory = tempfile::tempdir().unwrap();
        let (peer, errand) = hub_with_assignment(directory.path(), &["a"]).await;
        let other = Errand::new(&server::hub::default_id(), "shop", "configmaps.settings");
        let reporter = Reporter::new(peer.hub.clone());
        reporter.report(&errand, report("a", 1), News::Turn);
        for (errand, reports) in reporter.take() {
            reporter.put_back(errand.clone(), reports);
            reporter.writing.lock().remove(&errand);
        }
        reporter.report(&other, report("a", 1), News::Turn);
        let taken: Vec<Errand> = reporter.take().into_iter().map(|(errand, _)| errand).collect();
        assert_eq!(taken, [other], "the one that failed waits by itself");
        assert_eq!(reporter.pending.lock().len(), 1, "and is not forgotten");
        peer.stop().await;
    }

    #[test]
    fn many_on_their_way_say_less_of_it() {
        let seconds = [0, 49, 50, 199, 100_000, usize::MAX].map(|count| patience(count).as_secs());
        assert_eq!(seconds, [1, 2, 3, 8, 10, 10]);
    }

    #[test]
    fn only_what_changes_something_is_written() {
        let target = |uid: &str| Target { name: uid.into(), uid: uid.into(), ..Target::default() };
        let mut assignment = Assignment {
            spec: Spec { clusters: vec![target("a"), target("b")], ..Spec::default() },
            status: Status { clusters: vec![report("a", 1), report("old", 1)] },
        };
        let said =
            |assignment: &mut Assignment, reports: &[Report]| merge(assignment, reports.to_vec(), false);
        assert!(!said(&mut assignment, &[report("a", 1), report("gone", 1)]));
        assert_eq!(assignment.status.clusters.len(), 2, "nothing is tidied without need");
        assert!(said(&mut assignment, &[report("a", 2), report("b", 1)]));
        assert_eq!(assignment.status.clusters, [report("a", 2), report("b", 1)]);
    }

    /// Something else was sent and taken back before anybody wrote down the first.
    #[test]
    fn what_was_sent_between_does_not_make_the_last_word_an_old_one() {
        let said = |rendered: &str, seq: u64| {
            let revision =
                Revision::from_u64(Revision::start_of_epoch(1).as_u64() + seq).expect("a revision");
            let revision = revision.to_string();
            Report { revision, rendered: rendered.into(), ..report("a", 1) }
        };
        let newest = Revision::parse(&said("", 30).revision);
        let told = |known: Report, report: &Report| {
            let target = Target { uid: "a".into(), run: report.run, ..Target::default() };
            let mut assignment = Assignment {
                spec: Spec { clusters: vec![target], ..Spec::default() },
                status: Status { clusters: vec![known] },
            };
            if is_behind(&assignment, report, newest) {
                return None;
            }
            merge(&mut assignment, vec![report.clone()], false);
            assignment.status.clusters.pop()
        };
        // Known, told, and what counts.
        let cases = [
            (said("first", 10), said("first", 30), Some(said("first", 10)), "nothing is said anew"),
            (said("other", 20), said("first", 30), Some(said("first", 30)), "it is the first again"),
            (said("other", 20), said("first", 10), None, "who is behind"),
            (report("a", 1), said("first", 30), Some(said("first", 30)), "nothing was told of it"),
            (
                Report { run: 1, ..said("first", 10) },
                said("first", 30),
                Some(said("first", 30)),
                "another copy",
            ),
        ];
        for (known, report, expected, why) in cases {
            assert_eq!(told(known, &report), expected, "{why}");
        }
    }

    #[test]
    fn what_is_not_of_this_history_does_not_count() {
        let at = |epoch: u32, seq: u64| {
            let start = Revision::start_of_epoch(epoch);
            Revision::from_u64(start.as_u64() + seq).expect("a revision")
        };
        let said = |revision: Revision| Report { revision: revision.to_string(), ..report("a", 1) };
        let assignment = Assignment {
            spec: Spec::default(),
            status: Status { clusters: vec![said(at(1, 20)), report("b", 1)] },
        };
        // told of, newest, behind
        let cases = [
            (at(1, 20), Some(at(1, 30)), false, "the same again"),
            (at(1, 25), Some(at(1, 30)), false, "a later one"),
            (at(2, 1), Some(at(2, 1)), false, "after the history began anew"),
            (at(1, 19), Some(at(1, 30)), true, "older than what was told"),
            (at(1, 31), Some(at(1, 30)), true, "nobody has written that"),
            (at(1, 40), Some(at(2, 1)), false, "of the epoch before, as the object may be"),
            (at(2, 1), Some(at(1, 30)), true, "of an epoch that is not there"),
            (at(1, 31), None, false, "the object is gone, and its copies are on their way out"),
        ];
        for (told, newest, behind, why) in cases {
            assert_eq!(is_behind(&assignment, &said(told), newest), behind, "{why}");
        }
        assert!(!is_behind(&assignment, &report("a", 1), Some(at(1, 1))), "who made none says nothing of it");
        let other = Report { run: 1, ..said(at(1, 1)) };
        assert!(!is_behind(&assignment, &other, Some(at(1, 30))), "another copy");
    }
}
