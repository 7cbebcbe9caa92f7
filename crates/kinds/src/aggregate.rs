//! The status of the whole, of what is known of the copies in the members.
//!
//! The rules by which this is judged, so that what people and tools conclude from it is never too early:
//!
//! * `observedGeneration` is the one that every copy was made from and has observed. A cluster that does not answer
//!   does not move it forward.
//! * What was seen last of a cluster that does not answer still counts.
//! * What a cluster has beyond its share does not make up for what another lacks.
//! * Where each cluster has all of it, the numbers are those of the cluster that is furthest behind.
//! * Pods in a cluster that is to lose its copy count as old ones.

pub(crate) mod autoscaler;
pub(crate) mod conditions;
pub(crate) mod jobs;
pub(crate) mod others;
pub(crate) mod phases;
pub(crate) mod workloads;

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::{
    fields::{at, count, group_version, number, put, text},
    kind::{Kind, of},
    types::{MemberStatus, Split},
};

/// The status of an object, of what is known of its copies; `Null` if its kind has none.
///
/// Conditions have the time of their last transition where it is known. [`stamp`] gives the others the present.
pub fn aggregate(object: &Value, members: &BTreeMap<String, MemberStatus>) -> Value {
    let (group, _) = group_version(text(object, "apiVersion"));
    of(group, text(object, "kind")).aggregate(object, members)
}

/// Gives conditions that have no time yet `now`, as the API spells it.
pub fn stamp(status: &mut Value, now: &str) {
    let conditions = status.get_mut("conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten().filter_map(Value::as_object_mut) {
        condition.entry("lastTransitionTime").or_insert_with(|| json!(now));
    }
}

/// An object and what is known of its copies.
pub(crate) struct Whole<'a> {
    pub kind: &'a Kind,
    pub object: &'a Value,
    /// Its status as it is.
    pub old: &'a Value,
    pub generation: i64,
    members: Vec<Member<'a>>,
}

#[derive(Clone, Copy)]
pub(crate) struct Member<'a> {
    pub name: &'a str,
    pub known: &'a MemberStatus,
}

impl<'a> Member<'a> {
    pub fn status(&self) -> &'a Value {
        &self.known.status
    }

    pub fn share(&self) -> u64 {
        self.known.assigned.replicas
    }

    pub fn count(&self, field: &str) -> u64 {
        count(self.status(), field).unwrap_or(0)
    }

    /// Whether the status is about the copy as it is.
    fn has_observed(&self, kind: &Kind) -> bool {
        if !self.status().is_object() {
            return false;
        }
        let observed = at(self.status(), "observedGeneration");
        match observed.and_then(Value::as_i64) {
            Some(observed) => observed >= self.known.generation,
            // What a definition does not say cannot be waited for.
            None => !kind.observes || kind.kind.is_empty(),
        }
    }

    /// The generation of the whole that this copy has observed.
    fn observed(&self, kind: &Kind, old: i64) -> i64 {
        let source = self.known.source_generation;
        let observed = if self.has_observed(kind) { source } else { source - 1 };
        if self.known.reachable { observed } else { observed.min(old) }
    }
}

impl<'a> Whole<'a> {
    pub fn new(kind: &'a Kind, object: &'a Value, members: &'a BTreeMap<String, MemberStatus>) -> Self {
        let members = members.iter().map(|(name, known)| Member { name, known }).collect();
        let old = object.get("status").unwrap_or(&Value::Null);
        Self { kind, object, old, generation: number(object, "metadata.generation"), members }
    }

    pub fn all(&self) -> impl Iterator<Item = &Member<'a>> {
        self.members.iter()
    }

    /// Those that are to have a copy.
    pub fn staying(&self) -> impl Iterator<Item = &Member<'a>> {
        self.members.iter().filter(|member| !member.known.leaving)
    }

    pub fn leaving(&self) -> impl Iterator<Item = &Member<'a>> {
        self.members.iter().filter(|member| member.known.leaving)
    }

    pub fn wanted(&self) -> u64 {
        self.kind.wanted(self.object).unwrap_or(0)
    }

    /// How many replicas the clusters are to have together.
    pub fn shared(&self) -> u64 {
        self.staying().fold(0, |sum, member| sum.saturating_add(member.share()))
    }

    /// Whether there is one cluster, and it has all of it.
    pub fn sole(&self) -> Option<&Member<'a>> {
        match self.members.as_slice() {
            [one] if !one.known.leaving => {
                Some(one).filter(|one| self.kind.replicas().is_none() || one.share() == self.wanted())
            }
            _ => None,
        }
    }

    /// Whether each of several clusters has all of it.
    pub fn is_duplicated(&self) -> bool {
        let wanted = self.wanted();
        let first = self.staying().next().and_then(|member| member.known.assigned.ordinals);
        let is_whole =
            |member: &Member<'_>| member.share() == wanted && member.known.assigned.ordinals == first;
        self.staying().count() > 1 && wanted > 0 && self.staying().all(is_whole)
    }

    /// Whether the clusters are to have more than is wanted.
    fn is_over_assigned(&self) -> bool {
        let divided = matches!(self.kind.split, Split::Replicas | Split::Ordinals);
        divided && !self.is_duplicated() && self.shared() > self.wanted()
    }

    /// The generation that every copy was made from and has observed. Of what is to be nowhere but should be
    /// somewhere, none.
    pub fn observed(&self) -> i64 {
        let old = number(self.old, "observedGeneration");
        let behind = (self.generation - 1).max(0);
        let all = self.staying().map(|member| member.observed(self.kind, old)).min();
        match all {
            // The shares are not yet those of what is wanted now.
            Some(observed) if self.is_over_assigned() => observed.clamp(0, behind),
            Some(observed) => observed.clamp(0, self.generation.max(0)),
            None if self.kind.wanted(self.object) == Some(0) => self.generation,
            None => old.min(behind).max(0),
        }
    }

    /// What the clusters count together, each no more than its share, and less by what any of them lacks if there are
    /// more shares than replicas.
    pub fn within_shares(&self, field: &str) -> u64 {
        if let Some(sole) = self.sole() {
            return sole.count(field);
        }
        if self.is_duplicated() {
            return self.staying().map(|it| it.count(field).min(it.share())).min().unwrap_or(0);
        }
        let within = |member: &Member<'_>| member.count(field).min(member.share());
        let there = total(self.staying().map(within));
        let lacking = total(self.staying().map(|member| member.share() - within(member)));
        there.min(self.wanted().saturating_sub(lacking))
    }

    /// What all clusters count together; of the one furthest behind if each has all of it.
    pub fn together(&self, field: &str) -> u64 {
        match self.is_duplicated() {
            true => self.staying().map(|member| member.count(field)).min().unwrap_or(0),
            false => total(self.all().map(|member| member.count(field))),
        }
    }

    /// As [`Self::together`], of what there should be none of.
    pub fn together_at_most(&self, field: &str) -> u64 {
        let of = |member: &Member<'_>| member.count(field);
        match self.is_duplicated() {
            true => {
                let most = self.staying().map(of).max().unwrap_or(0);
                most.saturating_add(total(self.leaving().map(of)))
            }
            false => total(self.all().map(of)),
        }
    }

    /// All pods there are. A status that counts more of some kind of them than of all is out of order.
    pub fn present(&self, parts: &[&str]) -> u64 {
        let of = |member: &Member<'_>| {
            let part = parts.iter().map(|part| member.count(part)).max().unwrap_or(0);
            member.count("replicas").max(part)
        };
        match self.is_duplicated() {
            true => {
                let most = self.staying().map(of).max().unwrap_or(0);
                most.saturating_add(total(self.leaving().map(of)))
            }
            false => total(self.all().map(of)),
        }
    }

    /// The status to begin with: all that the only copy says, or nothing.
    pub fn base(&self) -> Value {
        match self.sole() {
            Some(sole) if sole.status().is_object() => sole.status().clone(),
            _ => Value::Object(Map::new()),
        }
    }

    /// Names of clusters, for people.
    pub fn names(&self, which: impl Fn(&Member<'a>) -> bool) -> String {
        name_some(self.all().filter(|member| which(member)).map(|member| member.name))
    }
}

/// At most so many are named.
const NAMED: usize = 5;

pub(crate) fn name_some<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.collect();
    let (first, others) = names.split_at(names.len().min(NAMED));
    match others.len() {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

pub(crate) fn total(counts: impl Iterator<Item = u64>) -> u64 {
    counts.fold(0, u64::saturating_add)
}

/// Sets a number; one that is 0 is left out, as the API does.
pub(crate) fn set(status: &mut Value, field: &str, number: u64) {
    match number {
        0 => {
            crate::fields::remove(status, field);
        }
        number => put(status, field, number),
    }
}

/// The latest of times as the API spells them, which sort as text.
pub(crate) fn latest<'a>(times: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    times.filter(|time| !time.is_empty()).max()
}

pub(crate) fn earliest<'a>(times: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    times.filter(|time| !time.is_empty()).min()
}

/// The kind has no status.
pub(crate) fn none(_: &Whole<'_>) -> Value {
    Value::Null
}

/// The hub's own.
pub(crate) fn as_it_was(whole: &Whole<'_>) -> Value {
    whole.old.clone()
}

/// Of any definition: its conditions, the numbers that are known to add up, and what all copies agree on.
pub(crate) fn generic(whole: &Whole<'_>) -> Value {
    let mut status = match whole.sole() {
        Some(_) => whole.base(),
        None => agreed(whole),
    };
    if !status.is_object() {
        status = Value::Object(Map::new());
    }
    for field in ["readyReplicas", "availableReplicas", "updatedReplicas"] {
        if whole.all().any(|member| at(member.status(), field).is_some()) {
            put(&mut status, field, whole.within_shares(field));
        }
    }
    if let Some(path) = whole.kind.status_replicas() {
        let field = path.trim_start_matches('.').trim_start_matches("status.");
        put(&mut status, field, whole.together_at_most(field));
    }
    if whole.all().any(|member| at(member.status(), "observedGeneration").is_some()) {
        put(&mut status, "observedGeneration", whole.observed());
    }
    let conditions = conditions::merged(whole, &[]);
    if !conditions.is_empty() {
        put(&mut status, "conditions", conditions);
    }
    status
}

/// The fields that are the same in all copies.
fn agreed(whole: &Whole<'_>) -> Value {
    let mut statuses = whole.staying().map(Member::status);
    let Some(first) = statuses.next().and_then(Value::as_object) else { return json!({}) };
    let others: Vec<&Value> = statuses.collect();
    let same = first.iter().filter(|(key, value)| others.iter().all(|other| other.get(key) == Some(*value)));
    same.map(|(key, value)| (key.clone(), value.clone())).collect::<Map<_, _>>().into()
}
