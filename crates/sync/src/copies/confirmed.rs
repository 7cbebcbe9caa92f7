//! Whether what is stored of a copy is what this process has found of it. A process that is no more may have said it, or an
//! older backup: what runs elsewhere must not go because of that.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use api::assignment::{Report, State, Target};
use compact_str::CompactString;
use machinery::fnv::hash;
use parking_lot::Mutex;

use super::{
    Copies,
    errand::Case,
    reporter::without_status,
    work::{Errand, Haste},
};
use crate::session::Session;

/// The sessions of this process by the UID of their `Cluster`: of several servers, the one on duty has all of them.
#[derive(Default)]
pub struct Sessions(Mutex<HashMap<CompactString, Weak<Session>>>);

impl Sessions {
    pub fn add(&self, uid: &str, session: &Arc<Session>) {
        self.0.lock().insert(uid.into(), Arc::downgrade(session));
    }

    pub fn remove(&self, uid: &str) {
        self.0.lock().remove(uid);
    }

    fn get(&self, uid: &str) -> Option<Arc<Session>> {
        self.0.lock().get(uid)?.upgrade()
    }
}

/// The revision aside: which one is told of depends on what was stored before.
fn hash_of(report: &Report) -> u64 {
    let report = Report { revision: String::new(), ..report.clone() };
    hash(&serde_json::to_vec(&report).unwrap_or_default())
}

impl Copies {
    /// Notes what is said of a copy; whether that is another than was said last.
    fn say(&self, errand: &Errand, report: &Report) -> bool {
        let said = [report.clone(), without_status(report)].map(|report| hash_of(&report));
        let mut state = self.state.lock();
        let Some(record) = state.records.get_mut(errand) else { return false };
        record.said.replace(said) != Some(said)
    }

    /// Whether a stored report is what was said last here.
    fn has_said(&self, errand: &Errand, stored: &Report) -> bool {
        let said = self.state.lock().records.get(errand).and_then(|record| record.said);
        said.is_some_and(|said| said.contains(&hash_of(stored)))
    }
}

impl Session {
    /// Whether the session with that cluster has found its copy to be as it is stored.
    pub(super) fn is_confirmed(&self, case: &Case, target: &Target) -> bool {
        let Some(stored) = case.assignment.report(&target.uid) else { return false };
        let session = self.shared.sessions.get(&target.uid);
        session.is_some_and(|session| session.copies.has_said(&case.errand, stored))
    }

    /// Notes what is said of the copy here. Clusters that are to lose theirs wait for that, and nobody else tells them if it
    /// is what is stored already.
    pub(super) fn say(&self, case: &Case, report: &Report) {
        if !self.copies.say(&case.errand, report) || case.own.state == State::Draining {
            return;
        }
        let draining = case.assignment.spec.clusters.iter().filter(|it| it.state == State::Draining);
        for session in draining.filter_map(|it| self.shared.sessions.get(&it.uid)) {
            session.copies.want(&case.errand, None, Haste::Now);
        }
    }
}

#[cfg(test)]
mod tests {
    use store::WorkspaceId;

    use super::*;

    #[test]
    fn what_is_stored_counts_once_it_was_found_on_this_way_to_the_member() {
        let copies = Copies::default();
        let errand = Errand::new(&WorkspaceId("w".into()), "shop", "deployments.apps.web");
        let stored =
            Report { uid: "m2".into(), applied: true, generation: 1, ready: true, ..Report::default() };
        copies.want(&errand, None, Haste::Now);
        assert!(!copies.has_said(&errand, &stored), "nobody has looked yet");
        // When the copy is found to be another than is stored, then that does not count,
        let made_anew = Report { ready: false, ..stored.clone() };
        assert!(copies.say(&errand, &made_anew));
        assert!(!copies.has_said(&errand, &stored));
        // until it is found to be so, or was stored.
        assert!(copies.has_said(&errand, &made_anew));
        assert!(copies.say(&errand, &stored) && !copies.say(&errand, &stored), "the first time is news");
        let by_another_revision = Report { revision: "7".into(), ..stored.clone() };
        assert!(copies.has_said(&errand, &by_another_revision));
        assert!(copies.has_said(&errand, &without_status(&stored)), "there was no room for all of it");
        copies.begin();
        assert!(!copies.has_said(&errand, &stored), "another way to it was made");
    }
}
