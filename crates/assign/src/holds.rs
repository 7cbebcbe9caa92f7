//! Room that was promised and does not show yet in what clusters report.

use std::collections::{BTreeMap, HashMap};

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
    known: Known,
}

#[derive(Debug, Default)]
pub struct Holds {
    /// By the UID of the cluster.
    clusters: HashMap<CompactString, HashMap<Id, Hold>>,
    /// Of decisions that are not written down yet: what was added for them, in the order of that.
    tried: HashMap<Id, Vec<Tried>>,
}

/// What a decision added to what was held before it.
#[derive(Debug)]
struct Tried {
    uid: CompactString,
    amounts: Resources,
    /// What was known of what was held before, if anything was.
    before: Option<Known>,
}

/// How far a copy has come for which room is held.
#[derive(Clone, Copy, Debug)]
struct Known {
    /// Its copy is there, and so will its pods be.
    applied: bool,
    /// All of them are.
    ready: bool,
    reports_left: u8,
}

impl Known {
    /// Nothing is there of what was promised just now.
    const NOTHING: Known = Known { applied: false, ready: false, reports_left: MOST_REPORTS };
}

/// What is given back: in which cluster, by its UID and name, and how much.
pub type Returned = (CompactString, String, Resources);

impl Holds {
    pub fn add(&mut self, id: &Id, uid: &CompactString, cluster: &str, more: &Resources) {
        let here = self.clusters.entry(uid.clone()).or_default();
        let hold = here.entry(id.clone()).or_insert_with(|| Hold {
            cluster: cluster.to_owned(),
            amounts: Resources::new(),
            known: Known::NOTHING,
        });
        amounts::add(&mut hold.amounts, more);
        hold.known = Known::NOTHING;
    }

    /// Adds what is held for a decision that is about to be written down: until it is [kept](Self::keep), it can be
    /// [undone](Self::undo).
    pub fn try_add(&mut self, id: &Id, uid: &CompactString, cluster: &str, more: &Resources) {
        let before = self.clusters.get(uid).and_then(|here| here.get(id)).map(|hold| hold.known);
        let tried = Tried { uid: uid.clone(), amounts: more.clone(), before };
        self.tried.entry(id.clone()).or_default().push(tried);
        self.add(id, uid, cluster, more);
    }

    /// The decision is written down.
    pub fn keep(&mut self, id: &Id) {
        self.tried.remove(id);
    }

    /// The decision is not written down: what was held before it still is. Answers what need not be held any more.
    pub fn undo(&mut self, id: &Id) -> Vec<Returned> {
        let mut returned = Vec::new();
        for Tried { uid, amounts, before } in self.tried.remove(id).into_iter().flatten().rev() {
            let Some(here) = self.clusters.get_mut(&uid) else { continue };
            // It may have been let go of meanwhile, all of it.
            let Some(hold) = here.get_mut(id) else { continue };
            returned.push((uid.clone(), hold.cluster.clone(), amounts.clone()));
            match before {
                Some(known) => {
                    hold.amounts = amounts::growth(&hold.amounts, &amounts);
                    // What was told meanwhile is newer.
                    if !hold.known.applied {
                        hold.known = known;
                    }
                }
                None => drop(here.remove(id)),
            }
            if here.is_empty() {
                self.clusters.remove(&uid);
            }
        }
        returned
    }

    /// What is held for one: in which cluster, and how much.
    pub fn for_one(&self, id: &Id) -> BTreeMap<String, Resources> {
        let holds = self.clusters.values().filter_map(|here| here.get(id));
        holds.map(|hold| (hold.cluster.clone(), hold.amounts.clone())).collect()
    }

    /// What decisions added that are not written down yet: for which objects, in which cluster, and how much.
    pub fn tried(mut self) -> Vec<(Id, String, Resources)> {
        let mut all = Vec::new();
        for (id, tried) in std::mem::take(&mut self.tried) {
            for Tried { uid, amounts, .. } in tried {
                let Some(hold) = self.clusters.get(&uid).and_then(|here| here.get(&id)) else { continue };
                all.push((id.clone(), hold.cluster.clone(), amounts));
            }
        }
        all
    }

    /// The copy is in the cluster; `ready`: with all its pods.
    pub fn applied(&mut self, id: &Id, uid: &str, ready: bool) {
        if let Some(hold) = self.clusters.get_mut(uid).and_then(|here| here.get_mut(id)) {
            hold.known.applied = true;
            if ready && !std::mem::replace(&mut hold.known.ready, true) {
                hold.known.reports_left = REPORTS;
            }
        }
    }

    /// The cluster has counted. Answers what need not be held any more.
    pub fn reported(&mut self, uid: &str) -> Vec<(String, Resources)> {
        let Some(here) = self.clusters.get_mut(uid) else { return Vec::new() };
        let mut returned = Vec::new();
        here.retain(|_, hold| {
            if !hold.known.applied {
                return true;
            }
            hold.known.reports_left = hold.known.reports_left.saturating_sub(1);
            if hold.known.reports_left == 0 {
                returned.push((hold.cluster.clone(), std::mem::take(&mut hold.amounts)));
            }
            hold.known.reports_left > 0
        });
        if here.is_empty() {
            self.clusters.remove(uid);
        }
        returned
    }

    /// The object is not in these clusters any more. Answers what need not be held any more.
    pub fn dropped(&mut self, id: &Id, stays: impl Fn(&str) -> bool) -> Vec<Returned> {
        let mut returned = Vec::new();
        self.clusters.retain(|uid, here| {
            if !stays(uid)
                && let Some(hold) = here.remove(id)
            {
                returned.push((uid.clone(), hold.cluster, hold.amounts));
            }
            !here.is_empty()
        });
        returned
    }

    /// Those of a workspace that is gone. Answers what need not be held any more.
    pub fn forget(&mut self, workspace: &WorkspaceId) -> Vec<Returned> {
        let mut returned = Vec::new();
        for (uid, here) in &mut self.clusters {
            let gone: Vec<Id> = here.keys().filter(|id| id.workspace == *workspace).cloned().collect();
            let holds = gone.iter().filter_map(|id| here.remove(id));
            returned.extend(holds.map(|hold| (uid.clone(), hold.cluster, hold.amounts)));
        }
        self.clusters.retain(|_, here| !here.is_empty());
        self.tried.retain(|id, _| id.workspace != *workspace);
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

    #[test]
    fn a_decision_that_is_not_written_gives_back_what_it_added_and_nothing_else() {
        let id = Id::new(&WorkspaceId("w".into()), &Key::new("apps", "deployments", "shop", "web"));
        let cpu = |amount: &str| Resources::from([("cpu".to_owned(), Quantity::parse(amount).unwrap())]);
        let returned = |amount: &str| ("uid".into(), "eu-1".to_owned(), cpu(amount));
        let mut holds = Holds::default();
        holds.try_add(&id, &"uid".into(), "eu-1", &cpu("10"));
        holds.keep(&id);
        holds.applied(&id, "uid", true);
        holds.try_add(&id, &"uid".into(), "eu-1", &cpu("1"));
        holds.try_add(&id, &"uid".into(), "eu-1", &cpu("2"));
        assert_eq!(holds.undo(&id), [returned("2"), returned("1")]);
        assert!(holds.undo(&id).is_empty());
        assert!(holds.reported("uid").is_empty(), "it may have counted just before");
        assert_eq!(holds.reported("uid"), [("eu-1".to_owned(), cpu("10"))], "as if nothing had been tried");

        holds.try_add(&id, &"uid".into(), "eu-1", &cpu("3"));
        assert_eq!(holds.undo(&id), [returned("3")]);
        assert!(holds.dropped(&id, |_| false).is_empty(), "nothing is left of it");

        holds.try_add(&id, &"uid".into(), "eu-1", &cpu("3"));
        assert_eq!(holds.dropped(&id, |_| false).len(), 1);
        assert!(holds.undo(&id).is_empty(), "it was given back already");
    }

    #[test]
    fn what_is_being_written_down_is_held_on_top_of_what_is() {
        let id = Id::new(&WorkspaceId("w".into()), &Key::new("apps", "deployments", "shop", "web"));
        let cpu = |amount: &str| Resources::from([("cpu".to_owned(), Quantity::parse(amount).unwrap())]);
        let mut holds = Holds::default();
        holds.add(&id, &"uid".into(), "eu-1", &cpu("10"));
        holds.try_add(&id, &"uid".into(), "eu-1", &cpu("2"));
        assert_eq!(holds.tried(), [(id, "eu-1".to_owned(), cpu("2"))]);
    }
}
