//! What goes with the replicas of a share: ordinals, completions, the bounds of an autoscaler, the pods of a budget.

use std::collections::BTreeMap;

use kinds::{
    Extent, Share, Split,
    divide::{Preference, Preferences, Slot, fair},
    split::{
        bounds::{Bounds, Local, preferred},
        ordinals::{Ordinals, ordinals},
    },
};

use crate::{input::Input, policy::Rule};

/// What clusters keep of `kept`, in the order of their ranges, when there are to be `total`; and what is left for
/// others. The last range grows, and shrinks first, so that no pod changes its cluster.
pub fn keep_ordinals(total: u64, kept: &[u64], most_of_last: u64) -> (Vec<u64>, u64) {
    let mut left = total;
    let mut shares = Vec::with_capacity(kept.len());
    for it in kept {
        let share = (*it).min(left);
        shares.push(share);
        left -= share;
    }
    if let Some(last) = shares.last_mut() {
        let more = most_of_last.saturating_sub(*last).min(left);
        *last += more;
        left -= more;
    }
    (shares, left)
}

/// Gives every share what belongs to its replicas. `divided`: each cluster has a part of them, not all.
pub fn complete(input: &Input<'_>, rule: &Rule, shares: &mut BTreeMap<String, Share>, divided: bool) {
    match (input.subject.splits, input.subject.extent) {
        (Split::Ordinals, Extent::Ordinals { start }) => lay_out(input, start, shares, divided),
        (Split::Ordinals, _) => lay_out(input, 0, shares, divided),
        (Split::JobCounts, Extent::Job { completions: Some(total), .. }) if divided => {
            complete_jobs(input, total, shares);
        }
        (Split::JobCounts, Extent::Job { completions, .. }) => {
            for (name, share) in shares {
                (share.completions, share.run) = (completions, run_of(input, name));
            }
        }
        (Split::MinMax, Extent::Bounds { min, max }) if divided => {
            bound(input, rule, Bounds { min, max }, shares);
        }
        (Split::MinMax, Extent::Bounds { min, max }) => {
            shares.values_mut().for_each(|share| (share.min, share.max) = (Some(min), Some(max)));
        }
        (Split::Budget, _) => {
            let pods = |name: &String| input.referrers.get(name).copied().unwrap_or(0);
            shares.iter_mut().for_each(|(name, share)| share.replicas = pods(name));
        }
        _ => {}
    }
}

fn lay_out(input: &Input<'_>, first: u64, shares: &mut BTreeMap<String, Share>, divided: bool) {
    if !divided {
        shares.values_mut().for_each(|share| share.ordinals = Some(first));
        return;
    }
    let is_known =
        |(name, share): &(&String, &Share)| share.replicas > 0 && input.directory.position(name).is_some();
    if shares.iter().any(|it| !is_known(&it) && it.1.replicas > 0) {
        // What runs where nothing is known stays as it is, and so do all others.
        for (name, share) in shares {
            share.ordinals = input.current.get(name).and_then(|it| it.ordinals).or(share.ordinals);
        }
        return;
    }
    let wanted = shares.iter().filter(is_known).map(|(name, share)| (name.clone(), share.replicas)).collect();
    let current = input.current.iter().filter_map(|(name, share)| {
        let start = share.ordinals?;
        Some((name.clone(), Ordinals { start, end: start.saturating_add(share.replicas) }))
    });
    for (name, range) in ordinals(first, &wanted, &current.collect()) {
        if let Some(share) = shares.get_mut(&name) {
            share.ordinals = Some(range.start);
        }
    }
}

/// The copy that is there; or, where one was that may still be there, the next.
fn run_of(input: &Input<'_>, name: &str) -> u64 {
    let current = input.current.get(name).map(|share| share.run);
    current.or_else(|| input.runs.get(name).copied()).unwrap_or(0)
}

/// Completions cannot be changed once a Job is there: those that have begun keep them, even if nothing of it may run
/// there any more, and the rest is for newcomers. They also do what was left by those that may not go on. Where nobody
/// is new, who has done its part begins another one.
fn complete_jobs(input: &Input<'_>, total: u64, shares: &mut BTreeMap<String, Share>) {
    let had = |name: &String| input.current.get(name).and_then(|share| share.completions).unwrap_or(0);
    let has_begun = |name: &String| {
        let runs = input.current.get(name).is_some_and(|it| it.replicas > 0 && it.completions.is_some());
        (runs || had(name) > 0) && kinds::of(&input.subject.group, &input.subject.kind).is_job()
    };
    let mut newcomers: Vec<(String, u64)> = shares
        .iter()
        .filter(|(name, share)| share.replicas > 0 && !has_begun(name))
        .map(|(name, share)| (name.clone(), share.replicas))
        .collect();
    if newcomers.is_empty() {
        let is_known = |name: &&String| input.directory.position(name).is_some();
        let stopped = input.current.keys().filter(|name| has_begun(name) && had(name) > 0).filter(is_known);
        stopped.for_each(|name| {
            shares.entry(name.clone()).or_default();
        });
    }
    for (name, share) in shares.iter_mut() {
        share.completions = Some(had(name));
        share.run = run_of(input, name);
    }
    let begun = shares.iter().filter(|(name, _)| has_begun(name)).map(|(name, _)| had(name));
    let rest = begun.fold(total.saturating_sub(input.finished), u64::saturating_sub);
    let begins_again = newcomers.is_empty() && rest > 0;
    if begins_again {
        let idle = shares.iter().filter(|(name, share)| share.replicas > 0 && input.idle.contains(*name));
        newcomers.extend(idle.map(|(name, share)| (name.clone(), share.replicas)));
    }
    let key = input.key();
    let slots: Vec<Slot<'_>> = newcomers
        .iter()
        .map(|(name, parallelism)| Slot {
            weight: *parallelism,
            current: if begins_again { 0 } else { had(name) },
            ..Slot::open(name, &key)
        })
        .collect();
    for (slot, completions) in slots.iter().zip(fair(rest, &slots, false)) {
        let Some(share) = shares.get_mut(slot.name) else { continue };
        if begins_again && completions == 0 {
            continue;
        }
        share.completions = Some(completions);
        share.run += u64::from(begins_again);
    }
}

/// As long as bounds are those of the whole, and what the rule allows, they move only between clusters whose autoscalers
/// need them and such as do not. Newcomers get the least, and the largest give it.
fn bound(input: &Input<'_>, rule: &Rule, whole: Bounds, shares: &mut BTreeMap<String, Share>) {
    let bounds_of = |share: &Share| Some(Bounds { min: share.min?, max: share.max? });
    let is_known = |name: &&String| input.directory.position(name).is_some();
    let known: Vec<&String> = shares.keys().filter(is_known).collect();
    let of_known = |name: &&String| input.current.get(*name).and_then(bounds_of);
    let is_new = known.iter().all(|name| of_known(name).is_none());
    let local = |name: &&String| match (of_known(name), input.autoscalers.get(*name)) {
        (Some(bounds), Some(there)) => Local { bounds, ..*there },
        // As one that has scaled just now, which neither gives nor takes.
        (bounds, _) => Local {
            bounds: bounds.unwrap_or(Bounds { min: 1, max: 1 }),
            current: bounds.map_or(0, |it| it.max),
            desired: 0,
            scaled: Some(0),
        },
    };
    let clusters: BTreeMap<String, Option<Local>> =
        known.iter().map(|name| ((*name).clone(), (!is_new).then(|| local(name)))).collect();
    // What is where nothing is known stays there.
    let rest = shares.iter().filter(|(name, _)| !is_known(name)).filter_map(|(_, it)| bounds_of(it)).fold(
        whole,
        |rest, it| Bounds { min: rest.min.saturating_sub(it.min), max: rest.max.saturating_sub(it.max) },
    );
    let asked = known.iter().map(|name| ((*name).clone(), asked_of(input, rule, name))).collect();
    let preferences = Preferences { rebalance: rule.rebalance, clusters: asked };
    let wanted = match rest.max {
        0 => BTreeMap::new(),
        _ => preferred(rest, &clusters, input.window, &preferences),
    };
    shares.retain(|name, share| {
        let bounds = wanted.get(name);
        if is_known(&name) {
            (share.min, share.max) = (bounds.map(|it| it.min), bounds.map(|it| it.max));
        }
        bounds.is_some() || !is_known(&name)
    });
}

/// Of a cluster of which nothing is known, nothing is asked.
fn asked_of(input: &Input<'_>, rule: &Rule, name: &str) -> Preference {
    let entry = input.directory.position(name).and_then(|at| input.directory.entries().get(at));
    let anything = Preference { weight: 1, ..Preference::default() };
    entry.map_or(anything, |it| rule.asked_of(&it.cluster.name, &it.cluster.labels))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_range_grows_and_shrinks() {
        assert_eq!(keep_ordinals(8, &[3, 3], 10), (vec![3, 5], 0));
        assert_eq!(keep_ordinals(8, &[3, 3], 4), (vec![3, 4], 1));
        assert_eq!(keep_ordinals(4, &[3, 3], 10), (vec![3, 1], 0));
        assert_eq!(keep_ordinals(2, &[3, 3], 10), (vec![2, 0], 0));
        assert_eq!(keep_ordinals(5, &[], 0), (vec![], 5));
    }
}
