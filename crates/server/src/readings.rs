//! Assignments that were read lately.
//!
//! Placement, every session that one names, whoever reports and whoever sums up read it each time that it changes, and one
//! with a hundred clusters is long. Whoever comes first takes it apart; the others share that.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use api::assignment::Assignment;
use compact_str::CompactString;
use machinery::{Object, Revision, object::ObjectError};
use parking_lot::Mutex;

/// As they are stored, all together. What was read longest ago is forgotten first.
const MOST_BYTES: usize = 16 << 20;

pub struct Readings {
    most_bytes: usize,
    kept: Mutex<Kept>,
}

impl Default for Readings {
    fn default() -> Self {
        Self { most_bytes: MOST_BYTES, kept: Mutex::default() }
    }
}

#[derive(Default)]
struct Kept {
    /// By UID, each at the latest revision that was asked for.
    by_uid: HashMap<CompactString, Reading>,
    /// As they were read; what is not at that revision any more is passed over.
    order: VecDeque<(CompactString, Revision)>,
    bytes: usize,
}

struct Reading {
    revision: Revision,
    bytes: usize,
    assignment: Arc<Assignment>,
}

impl Readings {
    pub fn read(&self, object: &Object) -> Result<Arc<Assignment>, ObjectError> {
        let uid = &object.head.uid;
        let known = self.kept.lock().by_uid.get(uid).map(|it| (it.revision, it.assignment.clone()));
        if let Some((revision, assignment)) = &known
            && *revision == object.revision
        {
            return Ok(assignment.clone());
        }
        let assignment = Arc::new(Assignment::read(object)?);
        let is_older = known.is_some_and(|(revision, _)| revision > object.revision);
        if !is_older {
            let bytes = object.body_slice().len();
            let reading = Reading { revision: object.revision, bytes, assignment: assignment.clone() };
            self.kept.lock().put(uid.clone(), reading, self.most_bytes);
        }
        Ok(assignment)
    }
}

impl Kept {
    fn put(&mut self, uid: CompactString, reading: Reading, most_bytes: usize) {
        self.bytes += reading.bytes;
        self.order.push_back((uid.clone(), reading.revision));
        if let Some(old) = self.by_uid.insert(uid, reading) {
            self.bytes -= old.bytes;
        }
        while self.bytes > most_bytes {
            let Some((uid, revision)) = self.order.pop_front() else { break };
            if self.is_at(&uid, revision)
                && let Some(old) = self.by_uid.remove(&uid)
            {
                self.bytes -= old.bytes;
            }
        }
        if self.order.len() > 2 * self.by_uid.len() + 64 {
            let order = std::mem::take(&mut self.order);
            self.order = order.into_iter().filter(|(uid, revision)| self.is_at(uid, *revision)).collect();
        }
    }

    fn is_at(&self, uid: &CompactString, revision: Revision) -> bool {
        self.by_uid.get(uid).is_some_and(|it| it.revision == revision)
    }
}

#[cfg(test)]
mod tests {
    use machinery::{Draft, EventType};
    use serde_json::json;

    use super::*;

    fn stored(uid: &str, revision: u64, clusters: usize) -> Object {
        let clusters: Vec<_> =
            (0..clusters).map(|it| json!({"name": format!("c-{it}"), "uid": "u"})).collect();
        let tree = json!({
            "apiVersion": api::API_VERSION, "kind": api::assignment::KIND,
            "metadata": {"name": uid, "namespace": "n", "uid": uid}, "spec": {"clusters": clusters},
        });
        let tree = tree.as_object().cloned().unwrap_or_default();
        Draft::encode(&tree).unwrap().seal(Revision::from_u64(revision).unwrap(), EventType::Modified)
    }

    #[test]
    fn each_is_taken_apart_once_and_says_what_it_is_now() {
        let readings = Readings::default();
        let (first, second) = (stored("a", 1, 1), stored("a", 2, 2));
        let read = readings.read(&first).unwrap();
        assert!(Arc::ptr_eq(&read, &readings.read(&first).unwrap()));
        assert_eq!(readings.read(&second).unwrap().spec.clusters.len(), 2);
        assert_eq!(
            readings.read(&first).unwrap().spec.clusters.len(),
            1,
            "somebody still has the former one"
        );
        let kept = readings.read(&second).unwrap();
        assert!(Arc::ptr_eq(&kept, &readings.read(&second).unwrap()), "which is not kept for that");
    }

    #[test]
    fn no_more_is_kept_than_there_is_room_for() {
        // Four of them, and revisions that grow.
        let most_bytes = 9 * stored("a-100", 1, 10).body_slice().len() / 2;
        let readings = Readings { most_bytes, ..Readings::default() };
        let kept = || readings.kept.lock().by_uid.len();
        for number in 100..200 {
            readings.read(&stored(&format!("a-{number}"), 1, 10)).unwrap();
        }
        assert_eq!(kept(), 4);
        for revision in 2..10_000 {
            readings.read(&stored("a-199", revision, 10)).unwrap();
        }
        assert_eq!(kept(), 4, "one that changes takes no more room than others");
        assert!(readings.kept.lock().order.len() <= 2 * 4 + 65);
        readings.read(&stored("large", 1, 1000)).unwrap();
        assert_eq!((kept(), readings.kept.lock().bytes), (0, 0));
    }
}
