//! Room that was promised and does not show yet in what clusters report.

use std::collections::HashMap;

use compact_str::CompactString;
use kinds::Resources;
use machinery::admission::amounts;
use store::WorkspaceId;

use crate::queue::Id;

/// A cluster counts its pods now and then: what was applied just after a count is in the one after the next at the
/// latest.
pub const REPORTS: u8 = 2;
/// Pods of a copy that is not ready may not be there yet, however busy the cluster is; but they may also be counted and
/// never be ready, so that nothing is held for longer than this.
pub const MOST_REPORTS: u8 = 24;

#[derive(Debug)]
struct Hold {
    cluster: String,
    amounts: Resources,
    /// Its copy is there, and so will its pods be.
    applied: bool,
    /// All of them are.
    ready: bool,
    reports_left: u8,
}

/// By the UID of the cluster.
#[derive(Debug, Default)]
pub struct Holds(HashMap<CompactString, HashMap<Id, Hold>>);

/// What is given back: in which cluster, by its UID and name, and how much.
pub type Returned = (CompactString, String, Resources);

impl Holds {
    pub fn add(&mut self, id: &Id, uid: &CompactString, cluster: &str, more: &Resources) {
        let here = self.0.entry(uid.clone()).or_default();
        let hold = here.entry(id.clone()).or_insert_with(|| Hold {
            cluster: cluster.to_owned(),
            amounts: Resources::new(),
            applied: false,
            ready: false,
            reports_left: MOST_REPORTS,
        });
        amounts::add(&mut hold.amounts, more);
        (hold.applied, hold.ready, hold.reports_left) = (false, false, MOST_REPORTS);
    }

    /// What is held for some: in which cluster, and how much.
    pub fn of(self, is_one: impl Fn(&Id) -> bool) -> Vec<(Id, String, Resources)> {
        let all = self.0.into_values().flatten();
        all.filter(|(id, _)| is_one(id)).map(|(id, hold)| (id, hold.cluster, hold.amounts)).collect()
    }

    /// The copy is in the cluster; `ready`: with all its pods.
    pub fn applied(&mut self, id: &Id, uid: &str, ready: bool) {
        if let Some(hold) = self.0.get_mut(uid).and_then(|here| here.get_mut(id)) {
            hold.applied = true;
            if ready && !std::mem::replace(&mut hold.ready, true) {
                hold.reports_left = REPORTS;
            }
        }
    }

    /// The cluster has counted. Answers what need not be held any more.
    pub fn reported(&mut self, uid: &str) -> Vec<(String, Resources)> {
        let Some(here) = self.0.get_mut(uid) else { return Vec::new() };
        let mut returned = Vec::new();
        here.retain(|_, hold| {
            if !hold.applied {
                return true;
            }
            hold.reports_left = hold.reports_left.saturating_sub(1);
            if hold.reports_left == 0 {
                returned.push((hold.cluster.clone(), std::mem::take(&mut hold.amounts)));
            }
            hold.reports_left > 0
        });
        if here.is_empty() {
            self.0.remove(uid);
        }
        returned
    }

    /// The object is not in these clusters any more. Answers what need not be held any more.
    pub fn dropped(&mut self, id: &Id, stays: impl Fn(&str) -> bool) -> Vec<Returned> {
        let mut returned = Vec::new();
        self.0.retain(|uid, here| {
            if !stays(uid)
                && let Some(hold) = here.remove(id)
            {
                returned.push((uid.clone(), hold.cluster, hold.amounts));
            }
            !here.is_empty()
        });
        returned
    }
}

impl Holds {
    /// Those of a workspace that is gone. Answers what need not be held any more.
    pub fn forget(&mut self, workspace: &WorkspaceId) -> Vec<Returned> {
        let mut returned = Vec::new();
        for (uid, here) in &mut self.0 {
            let gone: Vec<Id> = here.keys().filter(|id| id.workspace == *workspace).cloned().collect();
            let holds = gone.iter().filter_map(|id| here.remove(id));
            returned.extend(holds.map(|hold| (uid.clone(), hold.cluster, hold.amounts)));
        }
        self.0.retain(|_, here| !here.is_empty());
        returned
    }
}

#[cfg(test)]
mod tests {
    use machinery::quantity::Quantity;
    use store::Key;

    use super::*;

    #[test]
    fn what_is_promised_is_held_until_it_is_counted() {
        let id = Id::new(&WorkspaceId("w".into()), &Key::new("apps", "deployments", "shop", "web"));
        let cpu = |amount: &str| Resources::from([("cpu".to_owned(), Quantity::parse(amount).unwrap())]);
        let mut holds = Holds::default();
        holds.add(&id, &"uid".into(), "eu-1", &cpu("2"));
        holds.add(&id, &"uid".into(), "eu-1", &cpu("1"));
        assert!(holds.reported("uid").is_empty() && holds.reported("uid").is_empty(), "nothing was applied");
        holds.applied(&id, "uid", false);
        assert!((0..5).all(|_| holds.reported("uid").is_empty()), "its pods may not be there yet");
        holds.applied(&id, "uid", true);
        assert!(holds.reported("uid").is_empty(), "it may have counted just before");
        holds.applied(&id, "uid", true);
        assert_eq!(holds.reported("uid"), [("eu-1".to_owned(), cpu("3"))]);
        assert!(holds.reported("uid").is_empty());
        holds.add(&id, &"uid".into(), "eu-1", &cpu("2"));
        holds.applied(&id, "uid", false);
        let given_back = (0..MOST_REPORTS).map(|_| holds.reported("uid").len()).sum::<usize>();
        assert_eq!(given_back, 1, "what is never ready is held for a while only");
        holds.add(&id, &"uid".into(), "eu-1", &cpu("2"));
        assert!(holds.dropped(&id, |_| true).is_empty());
        assert_eq!(holds.dropped(&id, |_| false).len(), 1);
    }
}
