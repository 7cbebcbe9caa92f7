//! In which workspace the objects of a member's namespaces show.
//!
//! Those of a namespace without the label `hanse.io/workspace` show where the `Cluster` is; those of a labelled one in
//! the workspace of that name, and nowhere while there is none. The label is a claim of whoever holds the member, so it
//! counts only for clusters of the platform's own workspaces: nobody else may put objects into a workspace of others.
//! What Hanse made for a workspace says also which it was, by its id: one that is made later under the same name sees
//! nothing of what is left of the former.
//!
//! A namespace that is labelled for a workspace may have another name there, by the label `hanse.io/namespace`. Several
//! may have the same name there: all of them show, in one namespace, and views make the names of objects unique.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
};

use compact_str::CompactString;
use parking_lot::Mutex;
use server::Hub;
use store::WorkspaceId;
use tokio::sync::watch;

use crate::labels::Claim;

/// Where a namespace's objects show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Home {
    /// In a workspace; and in which of its namespaces, if that has another name.
    Shown(WorkspaceId, Option<CompactString>),
    /// Nobody sees them.
    Hidden,
    /// Nothing is known of the namespace yet.
    Unknown,
}

/// The id of the workspace of a name, if there is one.
type Find = Box<dyn Fn(&str) -> Option<WorkspaceId> + Send + Sync>;

/// The namespaces of one member.
pub struct Homes {
    find: Find,
    own: WorkspaceId,
    state: Mutex<State>,
    /// Counts up when objects that were reported, or were not, belong elsewhere now: all must be listed again.
    generation: watch::Sender<u64>,
}

/// Once objects were seen in more namespaces than this of which nothing is known, any that comes is one of them.
const MOST_AWAITED: usize = 10_000;
/// Of so many that went last it is still known where they showed: what was in them may be told to be gone later, by
/// another stream.
const MOST_GONE: usize = 1_000;

#[derive(Default)]
struct State {
    /// False until the namespaces were listed once.
    complete: bool,
    claims: HashMap<CompactString, Claim>,
    /// Of these, the ones that went, the latest last.
    gone: VecDeque<CompactString>,
    /// Had objects before anything was known of them.
    awaited: HashSet<CompactString>,
    /// What labels led to when they were last looked at; few have one.
    resolved: HashMap<CompactString, Option<WorkspaceId>>,
    /// Of a list under way.
    listing: HashMap<CompactString, Claim>,
}

impl State {
    /// There are more that are waited for than are known by name.
    fn is_any_awaited(&self) -> bool {
        self.awaited.len() >= MOST_AWAITED
    }

    /// Whether objects were seen before this namespace was.
    fn take_awaited(&mut self, name: &CompactString) -> bool {
        if self.is_any_awaited() && !self.claims.contains_key(name) {
            // All is listed again, so that those that are still missing are known then.
            self.awaited.clear();
            return true;
        }
        self.awaited.remove(name)
    }
}

fn read(object: &[u8]) -> Option<(CompactString, Claim)> {
    let (name, claim) = Claim::read(object)?;
    // One that is on its way out shows until it is gone.
    Some((name, Claim { deleting: false, ..claim }))
}

/// Whether clusters of a workspace may show in those of others.
pub fn may_choose(own: &WorkspaceId) -> bool {
    matches!(own.0.as_str(), api::ROOT | api::DEFAULT)
}

impl Homes {
    pub fn new(hub: Arc<Hub>, own: WorkspaceId) -> Homes {
        Homes::with(Box::new(move |name| Some(hub.space(name).ok()?.id().clone())), own)
    }

    fn with(find: Find, own: WorkspaceId) -> Homes {
        Homes { find, own, state: Mutex::default(), generation: watch::channel(0).0 }
    }

    pub fn generation(&self) -> watch::Receiver<u64> {
        self.generation.subscribe()
    }

    /// Objects that are listed from now on are placed by what is known of namespaces at this generation, or a later one.
    pub fn current(&self) -> u64 {
        *self.generation.borrow()
    }

    pub fn is_complete(&self) -> bool {
        self.state.lock().complete
    }

    pub fn of(&self, namespace: &str) -> Home {
        let mut state = self.state.lock();
        let Some(claim) = state.claims.get(namespace).cloned() else {
            if state.awaited.len() < MOST_AWAITED {
                state.awaited.insert(namespace.into());
            }
            return Home::Unknown;
        };
        let Some(name) = claim.workspace else { return Home::Shown(self.own.clone(), None) };
        let found = state.resolved.entry(name).or_insert_with_key(|name| self.resolve(name)).clone();
        let found = found.filter(|found| claim.id.is_none_or(|id| id == found.0));
        found.map_or(Home::Hidden, |workspace| Home::Shown(workspace, claim.namespace))
    }

    /// Whether a namespace may be of this workspace, by its id; `None`: nothing is known of the namespace yet.
    pub fn is_for(&self, namespace: &str, workspace: &WorkspaceId) -> Option<bool> {
        let state = self.state.lock();
        Some(state.claims.get(namespace)?.id.as_ref().is_none_or(|id| *id == workspace.0))
    }

    fn resolve(&self, name: &str) -> Option<WorkspaceId> {
        let found = (self.find)(name)?;
        (found == self.own || may_choose(&self.own)).then_some(found)
    }

    /// Workspaces came or went: labels may lead elsewhere.
    pub fn look_again(&self) {
        let mut state = self.state.lock();
        let old = std::mem::take(&mut state.resolved);
        let changed = old.into_iter().any(|(name, was)| {
            let is = self.resolve(&name);
            let changed = is != was;
            state.resolved.insert(name, is);
            changed
        });
        drop(state);
        if changed {
            self.list_again();
        }
    }

    pub fn begin_list(&self) {
        self.state.lock().listing.clear();
    }

    pub fn listed_one(&self, object: &[u8]) {
        if let Some((name, claim)) = read(object) {
            self.state.lock().listing.insert(name, claim);
        }
    }

    /// True if one of them is known as another than it was.
    #[must_use]
    pub fn end_list(&self) -> bool {
        let mut state = self.state.lock();
        let new = std::mem::take(&mut state.listing);
        let another = new.iter().any(|(name, claim)| state.claims.get(name).is_some_and(|old| old != claim));
        // Of those that went unseen, objects may still be shown.
        let moved = another || state.claims.keys().any(|name| !new.contains_key(name));
        let awaited = state.is_any_awaited() || state.awaited.iter().any(|name| new.contains_key(name));
        let first = !std::mem::replace(&mut state.complete, true);
        // Others may come after this list, and their objects came before it.
        match state.is_any_awaited() {
            true => state.awaited.clear(),
            false => state.awaited.retain(|name| !new.contains_key(name)),
        }
        state.claims = new;
        state.gone.clear();
        drop(state);
        if moved || awaited || first {
            self.list_again();
        }
        another
    }

    /// As [`Homes::end_list`], of one.
    #[must_use]
    pub fn put(&self, object: &[u8]) -> bool {
        let Some((name, claim)) = read(object) else { return false };
        let mut state = self.state.lock();
        let was_awaited = state.take_awaited(&name);
        state.gone.retain(|gone| *gone != name);
        let old = state.claims.insert(name, claim.clone());
        drop(state);
        let another = old.is_some_and(|old| old != claim);
        if was_awaited || another {
            self.list_again();
        }
        another
    }

    pub fn removed(&self, object: &[u8]) {
        let Some((name, _)) = read(object) else { return };
        let mut state = self.state.lock();
        if !state.claims.contains_key(&name) || state.gone.contains(&name) {
            return;
        }
        state.gone.push_back(name);
        if state.gone.len() > MOST_GONE
            && let Some(oldest) = state.gone.pop_front()
        {
            state.claims.remove(&oldest);
        }
    }

    /// All objects must be listed again.
    pub fn list_again(&self) {
        self.generation.send_modify(|generation| *generation += 1);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Of a cluster of the platform, where there is the workspace `team`.
    fn homes() -> Homes {
        let find = |name: &str| (name == "team").then(|| WorkspaceId("0123".into()));
        Homes::with(Box::new(find), WorkspaceId(api::DEFAULT.into()))
    }

    fn namespace(name: &str, labels: Value) -> Vec<u8> {
        json!({"metadata": {"name": name, "labels": labels}}).to_string().into_bytes()
    }

    fn list(homes: &Homes, names: &[&str]) {
        homes.begin_list();
        names.iter().for_each(|name| homes.listed_one(&namespace(name, json!({}))));
        assert!(!homes.end_list());
    }

    fn own() -> Home {
        Home::Shown(WorkspaceId(api::DEFAULT.into()), None)
    }

    #[test]
    fn what_was_made_for_a_workspace_shows_in_that_one_and_in_none_of_its_name() {
        let rows = [
            (json!({api::WORKSPACE_LABEL: "team"}), Home::Shown(WorkspaceId("0123".into()), None), true),
            (
                json!({api::WORKSPACE_LABEL: "team", api::WORKSPACE_ID_LABEL: "0123"}),
                Home::Shown(WorkspaceId("0123".into()), None),
                true,
            ),
            (json!({api::WORKSPACE_LABEL: "team", api::WORKSPACE_ID_LABEL: "former"}), Home::Hidden, false),
            (json!({api::WORKSPACE_ID_LABEL: "former"}), own(), true),
        ];
        for (labels, home, is_for_it) in rows {
            let homes = homes();
            assert_eq!(homes.is_for("shop", &WorkspaceId("0123".into())), None);
            assert!(!homes.put(&namespace("shop", labels.clone())));
            assert_eq!(homes.of("shop"), home, "{labels}");
            assert_eq!(homes.is_for("shop", &WorkspaceId("0123".into())), Some(is_for_it), "{labels}");
        }
    }

    #[test]
    fn objects_that_come_before_their_namespace_are_listed_again_when_it_comes() {
        let homes = homes();
        list(&homes, &["old"]);
        assert_eq!(homes.of("new"), Home::Unknown);
        // A list that began before the namespace was made says nothing against it.
        let before = homes.current();
        list(&homes, &["old"]);
        assert_eq!(homes.current(), before);
        assert!(!homes.put(&namespace("new", json!({}))));
        assert_eq!((homes.current(), homes.of("new")), (before + 1, own()));
        // So it is when a list brings it.
        assert_eq!(homes.of("newer"), Home::Unknown);
        list(&homes, &["old", "new", "newer"]);
        assert_eq!(homes.current(), before + 2);
    }

    #[test]
    fn objects_in_more_namespaces_than_are_remembered_are_not_forgotten() {
        let homes = homes();
        list(&homes, &[]);
        for at in 0..=MOST_AWAITED {
            assert_eq!(homes.of(&format!("n{at}")), Home::Unknown);
        }
        let before = homes.current();
        assert!(!homes.put(&namespace(&format!("n{MOST_AWAITED}"), json!({}))));
        assert_eq!(homes.current(), before + 1);
    }

    #[test]
    fn namespaces_that_went_are_known_a_while() {
        let homes = homes();
        list(&homes, &[]);
        let removed = |name: &str| {
            let it = namespace(name, json!({}));
            assert!(!homes.put(&it));
            homes.removed(&it);
        };
        removed("first");
        removed("again");
        assert!(!homes.put(&namespace("again", json!({}))));
        assert_eq!(homes.of("first"), own(), "what is in it may still be told to be gone");
        (0..MOST_GONE).for_each(|at| removed(&format!("n{at}")));
        assert_eq!(homes.of("first"), Home::Unknown);
        assert_eq!(homes.of("again"), own());
        assert_eq!(homes.state.lock().claims.len(), MOST_GONE + 1);
    }
}
