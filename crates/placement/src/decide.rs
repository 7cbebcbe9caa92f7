//! The decision: which clusters, with what shares.

use std::{borrow::Cow, collections::BTreeMap};

use kinds::{
    Extent, Resources, Share, Split, Subject, Travel,
    divide::{Algorithm, Preference, Preferences},
};
use machinery::quantity::{Format, Quantity};

use crate::{
    Problem,
    follow::{self, is_claim},
    home,
    input::Input,
    parts,
    place::{Placed, Placer, is_indivisible, strategy},
    policy::{By, Rule, Shares, Strategy},
    resolve::{Layer, Means, Resolved, resolve},
    select::{Objection, Verdict, Verdicts, needs_of, select, select_for_follower},
};

/// What became of the question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was decided, though not all may have found a place.
    Placed,
    /// The object stays in the hub; why.
    Above(&'static str),
    /// What was written cannot be followed: all stays as it is.
    Broken(Problem),
}

/// Why replicas do not go to other clusters under the default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Confined {
    /// The cluster whose pods reach no others.
    Network(String),
    Stateful,
    Volumes,
}

/// Where an object runs, with all that led to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    pub outcome: Outcome,
    /// Where the policy that counts was written.
    pub layer: Layer,
    /// The annotation, or the name of the `Placement`; empty for the default.
    pub source: String,
    pub strategy: Option<Strategy>,
    /// Of the policy, also where it leaves nothing to divide.
    pub algorithm: Algorithm,
    pub shares: BTreeMap<String, Share>,
    /// Replicas that no cluster can have; they are placed when there is room.
    pub pending: u64,
    /// It ought to be somewhere, and is nowhere.
    pub is_unplaced: bool,
    /// What is to be held in each cluster until it reports what it was newly given.
    pub reservations: BTreeMap<String, Resources>,
    /// Assigned clusters of which nothing is known. What they have stays theirs.
    pub unknown: Vec<String>,
    /// Named clusters that there are none of.
    pub missing: Vec<String>,
    /// Clusters that bear a taint for so many seconds more.
    pub leaving: BTreeMap<String, i64>,
    pub confined: Option<Confined>,
    pub verdicts: Verdicts,
}

/// Decides where an object runs.
pub fn decide(input: &Input<'_>) -> Decision {
    let Resolved { layer, source, means } = resolve(input);
    let decision = match means {
        Means::Above(why) => Decision { outcome: Outcome::Above(why), ..Decision::empty() },
        Means::Broken(problem) => Decision {
            outcome: Outcome::Broken(problem),
            shares: input.current.clone(),
            is_unplaced: input.current.is_empty(),
            ..Decision::empty()
        },
        Means::Rule(rule) => by_rule(input, &rule),
        Means::Home => at_home(input),
        Means::Follow => by_reference(input),
    };
    Decision { layer, source: source.into_owned(), ..decision }
}

impl Decision {
    /// What is reserved for so many replicas of it.
    pub fn reservation(subject: &Subject, replicas: u64) -> Resources {
        amounts(&needs_of(subject), replicas)
    }

    fn empty() -> Self {
        Self {
            outcome: Outcome::Placed,
            layer: Layer::Default,
            source: String::new(),
            strategy: None,
            algorithm: Algorithm::default(),
            shares: BTreeMap::new(),
            pending: 0,
            is_unplaced: false,
            reservations: BTreeMap::new(),
            unknown: Vec::new(),
            missing: Vec::new(),
            leaving: BTreeMap::new(),
            confined: None,
            verdicts: Verdicts::default(),
        }
    }
}

/// Replicas, or what else is divided.
fn total(input: &Input<'_>) -> u64 {
    match (input.subject.replicas, input.subject.extent) {
        (Some(replicas), _) => replicas,
        (None, Extent::Bounds { max, .. }) => max,
        (None, _) => 0,
    }
}

/// Assigned clusters that are not in the directory, unless names are given and theirs is not among them.
fn unknown(input: &Input<'_>, may_hold: impl Fn(&str) -> bool) -> BTreeMap<String, Share> {
    let current = input.current.iter();
    let lost = current.filter(|(name, _)| input.directory.position(name).is_none() && may_hold(name));
    lost.map(|(name, share)| (name.clone(), *share)).collect()
}

/// Ordinals are in one cluster each: while it is not known which of them run, no range moves.
fn must_stand_still(input: &Input<'_>, unknown: &BTreeMap<String, Share>) -> bool {
    input.subject.splits == Split::Ordinals && !unknown.is_empty()
}

/// A Job runs once and ends: where it has begun it goes on, however evenly what lasts is to be divided.
fn settled<'a>(input: &Input<'_>, rule: &'a Rule) -> Cow<'a, Rule> {
    let is_job = kinds::of(&input.subject.group, &input.subject.kind).is_job();
    let has_begun = || input.current.values().any(|share| share.completions.is_some());
    if rule.rebalance && is_job && has_begun() {
        return Cow::Owned(Rule { rebalance: false, ..rule.clone() });
    }
    Cow::Borrowed(rule)
}

fn by_rule(input: &Input<'_>, rule: &Rule) -> Decision {
    let rule = &*settled(input, rule);
    let verdicts = select(input, rule);
    let strategy = strategy(rule, input.subject, input.shared_volumes);
    let unknown = unknown(input, |name| rule.clusters.may_hold(name));
    let lost: u64 = unknown.values().map(|it| it.replicas).fold(0, u64::saturating_add);
    let whole = total(input);
    let key = input.key();
    let total = if strategy == Strategy::Divide { whole.saturating_sub(lost) } else { whole };
    let placer = Placer { input, rule, verdicts: &verdicts, total, key: &key };
    let placed = match strategy {
        // It is in one cluster, and that is one of which nothing is known.
        Strategy::Single if !unknown.is_empty() => Placed::nothing(verdicts.all.len()),
        Strategy::Divide if must_stand_still(input, &unknown) => placer.as_it_is(),
        _ => placer.place(strategy),
    };
    let names = rule.clusters.names.iter().flatten();
    let is_missing =
        |name: &&String| input.directory.position(name).is_none() && !unknown.contains_key(*name);
    let missing = names.filter(is_missing).cloned().collect();
    let is_meant = |it: &Verdict| it.objection != Some(Objection::NotChosen);
    let is_nowhere = rule.exact && unknown.is_empty() && !verdicts.all.iter().any(is_meant);
    let mut decision = finish(input, rule, verdicts, placed, unknown, strategy);
    decision.missing = missing;
    decision.algorithm = rule.algorithm;
    if is_nowhere {
        (decision.is_unplaced, decision.pending) = (false, 0);
    }
    decision
}

fn at_home(input: &Input<'_>) -> Decision {
    let rule = Rule::default();
    let verdicts = select(input, &rule);
    let unknown = unknown(input, |_| true);
    let lost: u64 = unknown.values().map(|it| it.replicas).fold(0, u64::saturating_add);
    let key = input.key();
    let total = total(input).saturating_sub(lost);
    let placer = Placer { input, rule: &rule, verdicts: &verdicts, total, key: &key };
    let is_whole = is_indivisible(input.subject);
    let (placed, confined) = if is_whole && !unknown.is_empty() {
        (Placed::nothing(verdicts.all.len()), None)
    } else if must_stand_still(input, &unknown) {
        (placer.as_it_is(), None)
    } else {
        home::place(&placer)
    };
    let strategy = if is_whole { Strategy::Single } else { Strategy::Divide };
    let mut decision = finish(input, &rule, verdicts, placed, unknown, strategy);
    let is_short = decision.pending > 0 || decision.is_unplaced;
    decision.confined = confined.filter(|_| is_short);
    decision
}

/// Where those are that need it, else where its namespace's workloads are, else at home.
fn by_reference(input: &Input<'_>) -> Decision {
    let travel = follow::travel(input.subject);
    let with_namespace = travel == Travel::WithNamespace;
    let mut wanted: BTreeMap<&str, u64> = BTreeMap::new();
    if !with_namespace {
        wanted.extend(input.referrers.iter().map(|(name, replicas)| (name.as_str(), *replicas)));
    }
    // What is in no namespace has no neighbours.
    let waits = (input.awaited && is_claim(input.subject)) || travel == Travel::Named;
    if wanted.is_empty() && !waits {
        wanted.extend(input.neighbours.iter().map(|name| (name.as_str(), 0)));
    }
    if wanted.is_empty() && follow::stays_unneeded(input.subject) {
        // Nothing needs it any more, which is no reason to take it away.
        wanted.extend(input.current.keys().map(|name| (name.as_str(), 0)));
    }
    if wanted.is_empty() && !waits {
        wanted.extend(input.home.map(|name| (name, 0)));
    }
    if is_claim(input.subject) && !input.shared_volumes {
        if !input.current.is_empty() {
            // What is in it does not move with those that need it.
            wanted = input.current.keys().map(|name| (name.as_str(), 0)).collect();
        }
        keep_one(input, &mut wanted);
    }
    let verdicts = select_for_follower(input, |name| wanted.contains_key(name));
    let mut placed = Placed::nothing(verdicts.all.len());
    let feasible = verdicts.all.iter().filter(|it| it.is_feasible());
    feasible.for_each(|it| placed.give(it.cluster, 0));
    // What is wanted where nothing is known stays there, as those it follows do.
    let unknown = unknown(input, |name| wanted.contains_key(name));
    let is_divided = input.subject.splits == Split::MinMax;
    let strategy = if is_divided { Strategy::Divide } else { Strategy::Duplicate };
    let rule = if is_divided { like_the_followed(&wanted) } else { Rule::default() };
    let mut decision = finish(input, &rule, verdicts, placed, unknown, strategy);
    // What nothing needs yet waits for nobody.
    decision.is_unplaced &= !wanted.is_empty();
    decision.pending = 0;
    decision
}

/// What an autoscaler may do is divided as that is which it scales: a minimum of all there are changes nothing.
fn like_the_followed(wanted: &BTreeMap<&str, u64>) -> Rule {
    if wanted.values().all(|replicas| *replicas == 0) {
        return Rule::default();
    }
    let preference = |replicas: &u64| Preference { weight: (*replicas).max(1), ..Preference::default() };
    let clusters = wanted.iter().map(|(name, replicas)| ((*name).to_owned(), preference(replicas))).collect();
    Rule {
        by: By::Weight,
        shares: Shares::from(&Preferences { rebalance: false, clusters }),
        ..Rule::default()
    }
}

/// A volume is in one cluster: where it is, else where most of those are that mount it.
fn keep_one(input: &Input<'_>, wanted: &mut BTreeMap<&str, u64>) {
    let order = |name: &str, replicas: u64| (input.current.contains_key(name), replicas);
    let best = wanted.iter().rev().max_by_key(|(name, replicas)| order(name, **replicas));
    let Some(best) = best.map(|(name, _)| *name) else { return };
    wanted.retain(|name, _| *name == best);
}

fn finish(
    input: &Input<'_>,
    rule: &Rule,
    verdicts: Verdicts,
    placed: Placed,
    unknown: BTreeMap<String, Share>,
    strategy: Strategy,
) -> Decision {
    let mut decision = Decision { strategy: Some(strategy), ..Decision::empty() };
    let wanted = total(input);
    let has_replicas = input.subject.replicas.is_some();
    let entries = input.directory.entries();
    for verdict in verdicts.all.iter().filter(|it| placed.chosen[it.cluster]) {
        let name = &entries[verdict.cluster].cluster.name;
        let replicas = placed.replicas[verdict.cluster];
        let share = Share {
            replicas: if has_replicas { replicas } else { 0 },
            overflow: placed.overflow[verdict.cluster],
            ..Share::default()
        };
        decision.shares.insert(name.to_string(), share);
        if let Some(seconds) = verdict.leaves_after {
            decision.leaving.insert(name.to_string(), seconds);
        }
        let gained = replicas.saturating_sub(verdict.current);
        if gained > 0 && !verdicts.needs.is_empty() {
            decision.reservations.insert(name.to_string(), amounts(&verdicts.needs, gained));
        }
    }
    decision.is_unplaced = decision.shares.is_empty() && unknown.is_empty();
    decision.pending = match (has_replicas, strategy) {
        (false, _) => 0,
        (true, Strategy::Duplicate) => {
            let short = decision.shares.values().map(|it| wanted.saturating_sub(it.replicas));
            short.fold(0, u64::saturating_add)
        }
        (true, _) => {
            let lost = unknown.values().map(|it| it.replicas).fold(0, u64::saturating_add);
            wanted.saturating_sub(lost).saturating_sub(placed.sum())
        }
    };
    decision.unknown = unknown.keys().cloned().collect();
    decision.shares.extend(unknown);
    parts::complete(input, rule, &mut decision.shares, strategy == Strategy::Divide);
    decision.verdicts = verdicts;
    decision
}

fn amounts(needs: &[(String, i64)], replicas: u64) -> Resources {
    let replicas = i64::try_from(replicas).unwrap_or(i64::MAX);
    let amount = |(name, need): &(String, i64)| {
        let sum = need.saturating_mul(replicas);
        let quantity = match name.as_str() {
            "cpu" => Quantity::from_milli(sum, Format::DecimalSi),
            "memory" => Quantity::new(sum, Format::BinarySi),
            _ => Quantity::new(sum, Format::DecimalSi),
        };
        (name.clone(), quantity)
    };
    needs.iter().map(amount).collect()
}
