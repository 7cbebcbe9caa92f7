//! Copies of objects in a member: what Assignments ask for, made so and kept so.
//!
//! ```text
//!   store's feed ──> dispatch ──> work ──> errand: read · render · plan · apply or delete ═══> member
//!                                  ^          │                                               │
//!                                  │          v                                               │
//!                                  │       reporter ──> status of the Assignment              │
//!                                  └───────────────── seen, namespaces <── lists and watches ─┘
//! ```
//!
//! Only an Assignment makes anything happen. What is not told, or cannot be read, is no reason to delete anything.

mod claims;
mod compare;
pub mod confirmed;
mod deed;
pub mod dispatch;
mod errand;
mod federated;
mod fits;
mod judge;
pub mod leftovers;
mod namespaces;
mod once;
pub mod overrides;
mod plan;
mod recent;
mod render;
pub mod reporter;
mod run;
mod seen;
mod shared;
mod sink;
mod tell;
mod work;

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    time::Duration,
};

use compact_str::CompactString;
use parking_lot::Mutex;
use server::Hub;
use store::{ItemKey, WorkspaceId};

use claims::Claims;
use namespaces::Namespaces;
pub use seen::Type;
use seen::{Known, OfType, Seen};
use tell::Told;
pub use work::Errand;
use work::{Haste, Work};

/// A session's side of it.
#[derive(Default)]
pub struct Copies {
    claims: Claims,
    work: Work,
    state: Mutex<State>,
    told: Told,
}

#[derive(Default)]
struct State {
    types: HashMap<Type, OfType>,
    /// Those that nobody watches yet.
    unfollowed: Vec<Type>,
    records: HashMap<Errand, Record>,
    by_namespace: HashMap<(WorkspaceId, CompactString), HashSet<Errand>>,
    namespaces: Namespaces,
}

/// What is known of an errand of this session.
#[derive(Default)]
struct Record {
    /// Where the copy is.
    place: Option<(Type, ItemKey)>,
    applied: Option<Applied>,
    /// What views were told: the UID of the copy, and whether it is one of several.
    placed: Option<(CompactString, bool)>,
    /// Nothing of it is left in the member.
    gone: bool,
    /// The hashes of what was said of the copy since there is this way to the member, with its status and without.
    said: Option<[u64; 2]>,
}

/// A copy as it was left.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Applied {
    uid: CompactString,
    /// The hashes of what was sent, and of what that was made from.
    sent: u64,
    inputs: u64,
    /// What the member made of it.
    left: u64,
    /// How many replicas were sent, if an override says so and not the share.
    replicas: Option<u64>,
}

impl Copies {
    /// The Assignment, or what it is about, has changed, and names this cluster or did.
    pub fn want(&self, errand: &Errand, since: Option<Duration>, haste: Haste) {
        let mut state = self.state.lock();
        if !state.records.contains_key(errand) {
            state.records.insert(errand.clone(), Record::default());
            let namespace = (errand.workspace.clone(), errand.item.namespace().into());
            state.by_namespace.entry(namespace).or_default().insert(errand.clone());
        }
        drop(state);
        self.work.renew(errand, since, haste);
    }

    /// The Assignment does not name this cluster any more. Answers what views were told.
    fn release(&self, errand: &Errand) -> Option<CompactString> {
        let mut state = self.state.lock();
        let record = state.records.remove(errand)?;
        let namespace = (errand.workspace.clone(), errand.item.namespace().into());
        if let Some(errands) = state.by_namespace.get_mut(&namespace) {
            errands.remove(errand);
            if errands.is_empty() {
                state.by_namespace.remove(&namespace);
            }
        }
        if let Some((ty, item)) = &record.place
            && let Some(of_type) = state.types.get_mut(ty)
        {
            of_type.release(item, errand);
        }
        drop(state);
        self.look_at_namespace(errand);
        record.placed.map(|(uid, _)| uid)
    }

    /// A namespace waits until nothing is left in it.
    fn look_at_namespace(&self, errand: &Errand) {
        let of_namespace = errand.of_namespace();
        if of_namespace != *errand && self.state.lock().records.contains_key(&of_namespace) {
            self.work.look(&of_namespace);
        }
    }

    /// A way to the member was made: nothing is watched on it yet, and nothing found.
    fn begin(&self) {
        let mut state = self.state.lock();
        state.records.values_mut().for_each(|record| record.said = None);
        state.types.values_mut().for_each(|of_type| of_type.known = Known::Not);
        state.unfollowed = state.types.keys().cloned().collect();
    }

    /// The member can be used again: all is looked at.
    fn resume(&self) {
        self.state.lock().records.values_mut().for_each(|record| record.placed = None);
        self.work.resume();
        self.look_again(None);
    }

    /// Something was missed: all that is known is looked at; `only`: in this workspace.
    pub fn look_again(&self, only: Option<&WorkspaceId>) {
        let is_meant = |errand: &&Errand| only.is_none_or(|only| errand.workspace == *only);
        let errands: Vec<Errand> = self.state.lock().records.keys().filter(is_meant).cloned().collect();
        self.renew_all(&errands);
    }

    /// The kinds of all that is assigned to this cluster.
    pub fn types_assigned(&self, hub: &Hub) -> BTreeSet<Type> {
        let errands: Vec<Errand> = self.state.lock().records.keys().cloned().collect();
        let type_of =
            |errand: &Errand| dispatch::type_of(&*hub.store.get(&errand.workspace, &reporter::key(errand))?);
        errands.iter().filter_map(type_of).collect()
    }

    pub fn renew_all(&self, errands: &[Errand]) {
        errands.iter().for_each(|errand| self.work.renew(errand, None, Haste::InTurn));
    }

    /// Says where the copy of an errand is; answers how far its kind is known there, and what is seen. `wanted`: there
    /// is to be one.
    fn track(&self, errand: &Errand, ty: &Type, item: &ItemKey, wanted: bool) -> (Known, Option<Seen>) {
        let mut state = self.state.lock();
        let state = &mut *state;
        let record = state.records.entry(errand.clone()).or_default();
        record.gone &= !wanted;
        let place = Some((ty.clone(), item.clone()));
        if record.place != place {
            if let Some((ty, item)) = &record.place
                && let Some(of_type) = state.types.get_mut(ty)
            {
                of_type.release(item, errand);
            }
            record.place = place;
            record.applied = None;
        }
        if !state.types.contains_key(ty) {
            state.unfollowed.push(ty.clone());
        }
        let of_type = state.types.entry(ty.clone()).or_default();
        of_type.track(item, errand);
        (of_type.known, of_type.get(item).cloned())
    }

    /// Whether a copy that was seen on its way out may be gone without anybody having told: its end is told once, and a watch
    /// may be broken or late. `overdue`: nothing was told of it for a while. That a namespace is gone the stream of all namespaces
    /// may know before that of copies does.
    fn is_doubtful(&self, seen: &Seen, is_namespace: bool, item: &ItemKey, overdue: bool) -> bool {
        seen.deleting && (overdue || is_namespace && !self.state.lock().namespaces.is_there(item.name()))
    }

    /// Where in the member the copy of an errand is.
    fn namespace_of(&self, errand: &Errand) -> Option<String> {
        let state = self.state.lock();
        let (_, item) = state.records.get(errand)?.place.as_ref()?;
        Some(item.namespace().to_owned())
    }

    /// Something has become of pods in a namespace of the member: what has copies there is looked at.
    pub fn look_in(&self, namespace: &str) {
        let is_there =
            |record: &Record| record.place.as_ref().is_some_and(|it| it.1.namespace() == namespace);
        let state = self.state.lock();
        let here = state.records.iter().filter(|(_, record)| is_there(record));
        let errands: Vec<Errand> = here.map(|(errand, _)| errand.clone()).collect();
        drop(state);
        errands.iter().for_each(|errand| self.work.look(errand));
    }

    fn unfollowed(&self) -> Vec<Type> {
        std::mem::take(&mut self.state.lock().unfollowed)
    }

    fn applied(&self, errand: &Errand) -> Option<Applied> {
        self.state.lock().records.get(errand)?.applied.clone()
    }

    /// The copy is what it is to be, as it is seen now.
    fn settle(&self, errand: &Errand, applied: Applied) {
        let mut state = self.state.lock();
        let state = &mut *state;
        let Some(record) = state.records.get_mut(errand) else { return };
        record.gone = false;
        if let Some((ty, item)) = &record.place
            && let Some(of_type) = state.types.get_mut(ty)
        {
            of_type.drop_body(item);
        }
        record.applied = Some(applied);
    }

    /// The member has answered with an object at the place of an errand.
    fn saw(&self, ty: &Type, item: &ItemKey, seen: &Seen) {
        if let Some(of_type) = self.state.lock().types.get_mut(ty)
            && !seen.workspace.is_empty()
        {
            of_type.answered(item, seen);
        }
    }

    /// The member has answered that there is none.
    fn saw_none(&self, ty: &Type, item: &ItemKey) {
        if let Some(of_type) = self.state.lock().types.get_mut(ty) {
            of_type.remove(item, "");
        }
    }

    /// Nothing of it is left.
    fn note_gone(&self, errand: &Errand) {
        if let Some(record) = self.state.lock().records.get_mut(errand) {
            (record.gone, record.applied) = (true, None);
        }
        self.look_at_namespace(errand);
    }

    fn is_gone(&self, errand: &Errand) -> bool {
        self.state.lock().records.get(errand).is_some_and(|record| record.gone)
    }

    /// How many other errands of its namespace may have something in the member.
    fn others_in_namespace(&self, errand: &Errand) -> usize {
        let state = self.state.lock();
        let namespace = (errand.workspace.clone(), errand.item.namespace().into());
        let errands = state.by_namespace.get(&namespace).into_iter().flatten();
        let is_there = |it: &&Errand| state.records.get(*it).is_some_and(|record| !record.gone);
        errands.filter(|it| *it != errand).filter(is_there).count()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_gone_stays_gone_whatever_comes_late() {
        let copies = Copies::default();
        let errand = Errand::new(&WorkspaceId("w".into()), "shop", "namespaces.shop");
        let ty = Type { api_version: "v1".into(), plural: "namespaces".into() };
        let item = ItemKey::new("", "shop");
        let told = |version: &str| {
            let metadata = json!({
                "name": "shop", "uid": "u", "resourceVersion": version, "deletionTimestamp": "2026-01-01T00:00:00Z",
                "labels": {api::WORKSPACE_LABEL: "w"}, "annotations": {api::SOURCE_ANNOTATION: "s"},
            });
            Seen::read(json!({"metadata": metadata}).to_string().as_bytes()).unwrap().1
        };
        copies.want(&errand, None, Haste::Now);
        copies.track(&errand, &ty, &item, true);
        copies.saw(&ty, &item, &told("1"));
        // The member answers that there is none, and only then its watch tells that it was on its way out.
        copies.saw_none(&ty, &item);
        copies.note_gone(&errand);
        copies.state.lock().types.get_mut(&ty).unwrap().put(item.clone(), told("2"));
        copies.track(&errand, &ty, &item, false);
        assert!(copies.is_gone(&errand), "there is nothing to wait for");
        copies.track(&errand, &ty, &item, true);
        assert!(!copies.is_gone(&errand), "another one is to be made");
    }

    #[test]
    fn what_is_on_its_way_out_is_asked_for_where_its_end_may_have_been_missed() {
        let copies = Copies::default();
        let item = ItemKey::new("", "shop");
        let namespace =
            json!({"metadata": {"name": "shop", "labels": {api::WORKSPACE_LABEL: "w"}}}).to_string();
        let leaves = Seen { deleting: true, ..Seen::default() };
        let is_doubtful = |seen, overdue| copies.is_doubtful(seen, true, &item, overdue);
        // Given a namespace that is being deleted, and is there by what both streams told,
        copies.state.lock().namespaces.put(namespace.as_bytes());
        assert!(!is_doubtful(&leaves, false), "it is told when it is gone");
        // when nothing is told for a while, or when one of the streams tells of its end, then the member is asked.
        assert!(is_doubtful(&leaves, true));
        copies.state.lock().namespaces.remove(namespace.as_bytes());
        assert!(is_doubtful(&leaves, false));
        assert!(!is_doubtful(&Seen::default(), true), "what is to stay tells of itself");
        assert!(!copies.is_doubtful(&leaves, false, &item, false), "others are told of by one stream");
    }
}
