//! Objects as each cluster gets them, and the numbers in them as they are divided.
//!
//! ```text
//! object + shares → numbers of each cluster (jobs, ordinals, bounds, budget) → copy of each cluster
//! ```

pub mod bounds;
pub mod budget;
pub mod jobs;
pub mod ordinals;
pub(crate) mod strip;

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::{
    fields::{at, count, group_version, put, remove, text},
    kind::{Kind, of},
    types::{Problem, Share, Split},
};

/// The object as each cluster gets it. A cluster whose share is nothing at all of a Job, a CronJob or an autoscaler
/// gets none, unless it has begun, or nothing of it runs anywhere for now; of other kinds it gets a copy without
/// replicas.
pub fn split(object: &Value, shares: &BTreeMap<String, Share>) -> Result<BTreeMap<String, Value>, Problem> {
    let (group, _) = group_version(text(object, "apiVersion"));
    of(group, text(object, "kind")).split(object, shares)
}

/// `only`: for this cluster alone; the shares of the others still count.
pub(crate) fn render(
    kind: &Kind,
    object: &Value,
    shares: &BTreeMap<String, Share>,
    only: Option<&str>,
) -> Result<BTreeMap<String, Value>, Problem> {
    if !object.is_object() {
        return Err(Problem::Missing("fields"));
    }
    let mut whole = object.clone();
    strip::metadata(&mut whole);
    (kind.strip)(&mut whole);
    let is_meant = |cluster: &&String| only.is_none_or(|only| only == *cluster);
    let copies = || shares.keys().filter(is_meant).map(|cluster| (cluster.clone(), whole.clone()));
    match kind.split_of(object) {
        Split::Replicas => Ok(replicas(kind, copies(), shares)),
        Split::Ordinals => stateful(object, copies().collect(), shares),
        Split::JobCounts => job(kind, object, copies().collect(), shares),
        Split::MinMax => Ok(autoscalers(copies().collect(), shares)),
        Split::Budget => Ok(budgets(copies().collect(), shares)),
        Split::Whole if kind.split == Split::JobCounts => indexed(kind, object, copies().collect(), shares),
        Split::Whole => Ok(copies().collect()),
    }
}

fn replicas(
    kind: &Kind,
    copies: impl Iterator<Item = (String, Value)>,
    shares: &BTreeMap<String, Share>,
) -> BTreeMap<String, Value> {
    let Some(path) = kind.replicas() else { return copies.collect() };
    let divided = copies.map(|(cluster, mut copy)| {
        let asked = shares.get(&cluster).map_or(0, |share| share.replicas.saturating_add(share.overflow));
        put(&mut copy, path, asked);
        (cluster, copy)
    });
    divided.collect()
}

fn stateful(
    object: &Value,
    mut copies: BTreeMap<String, Value>,
    shares: &BTreeMap<String, Share>,
) -> Result<BTreeMap<String, Value>, Problem> {
    let first = count(object, "spec.ordinals.start").unwrap_or(0);
    let total = count(object, "spec.replicas").unwrap_or(1);
    let ranges = ordinals::of_shares(first, total, shares)?;
    let partition = count(object, "spec.updateStrategy.rollingUpdate.partition");
    for (cluster, range) in ranges {
        let Some(copy) = copies.get_mut(&cluster) else { continue };
        put(copy, "spec.replicas", range.len());
        if range.start > 0 || at(copy, "spec.ordinals").is_some() {
            put(copy, "spec.ordinals.start", range.start);
        }
        if let Some(partition) = partition {
            // Kubernetes counts a partition from the first ordinal of the set.
            let kept = first.saturating_add(partition).saturating_sub(range.start).min(range.len());
            put(copy, "spec.updateStrategy.rollingUpdate.partition", kept);
        }
    }
    Ok(copies)
}

fn job(
    kind: &Kind,
    object: &Value,
    mut copies: BTreeMap<String, Value>,
    shares: &BTreeMap<String, Share>,
) -> Result<BTreeMap<String, Value>, Problem> {
    let total = at(object, kind.job).and_then(|job| count(job, "completions"));
    let completions = jobs::completions_of_shares(kind.wanted(object).unwrap_or(1), total, shares)?;
    let is_paused = shares.values().all(|share| share.replicas == 0);
    copies.retain(|cluster, copy| {
        let parallelism = shares.get(cluster).map_or(0, |share| share.replicas);
        let own = completions.get(cluster).copied();
        put(copy, &format!("{}.parallelism", kind.job), parallelism);
        if let Some(own) = own {
            put(copy, &format!("{}.completions", kind.job), own);
        }
        let stays = match total {
            // A Job that has begun keeps its completions, which cannot be changed, even where nothing may run any more.
            Some(_) => own.is_some_and(|own| own > 0) && (kind.is_job() || is_paused),
            None => is_paused,
        };
        parallelism > 0 || stays
    });
    Ok(copies)
}

/// Every cluster would begin with index 0, so each gets all of it or none.
fn indexed(
    kind: &Kind,
    object: &Value,
    mut copies: BTreeMap<String, Value>,
    shares: &BTreeMap<String, Share>,
) -> Result<BTreeMap<String, Value>, Problem> {
    let total = at(object, kind.job).and_then(|job| count(job, "completions"));
    let parallelism = kind.wanted(object).unwrap_or(1);
    let nothing = |share: &Share| share.replicas == 0 && share.completions.unwrap_or(0) == 0;
    let partial = |share: &&Share| {
        share.replicas < parallelism || (share.completions.is_some() && share.completions != total)
    };
    if shares.values().filter(|share| !nothing(share)).any(|share| partial(&share)) {
        return Err(Problem::Indivisible(
            "the pods of an Indexed Job are numbered from 0 in every cluster, so that parts of it would do the same work twice"
                .to_owned(),
        ));
    }
    // Where none of its pods may run for now, that is all of it.
    copies.retain(|cluster, _| shares.get(cluster).is_some_and(|share| parallelism == 0 || !nothing(share)));
    Ok(copies)
}

/// Shares without bounds get the autoscaler as it is: there is one cluster, or each gets all of it.
fn autoscalers(
    mut copies: BTreeMap<String, Value>,
    shares: &BTreeMap<String, Share>,
) -> BTreeMap<String, Value> {
    copies.retain(|cluster, copy| {
        let Some(share) = shares.get(cluster) else { return false };
        let Some(max) = share.max else { return true };
        put(copy, "spec.maxReplicas", max);
        put(copy, "spec.minReplicas", share.min.unwrap_or(1).min(max));
        max > 0
    });
    copies
}

fn budgets(mut copies: BTreeMap<String, Value>, shares: &BTreeMap<String, Share>) -> BTreeMap<String, Value> {
    let pods: BTreeMap<String, u64> =
        shares.iter().map(|(cluster, share)| (cluster.clone(), share.replicas)).collect();
    for field in ["minAvailable", "maxUnavailable"] {
        let path = format!("spec.{field}");
        let amounts: Vec<budget::Amount> =
            copies.values().filter_map(|copy| budget::Amount::read(at(copy, &path)?)).collect();
        let Some(amount) = amounts.first().copied() else { continue };
        let divided = match field {
            "minAvailable" => budget::min_available(amount, &pods),
            _ => budget::max_unavailable(amount, &pods),
        };
        for (cluster, amount) in divided {
            let Some(copy) = copies.get_mut(&cluster) else { continue };
            remove(copy, &path);
            put(
                copy,
                &path,
                match amount {
                    budget::Amount::Number(number) => json!(number),
                    budget::Amount::Percent(percent) => json!(format!("{percent}%")),
                },
            );
        }
    }
    copies
}

/// Parts of `total` in proportion to `weights`, which add up to it: by largest remainder, and among equals in the
/// order given. Nothing has a part if all weights are 0.
pub(crate) fn in_proportion(total: u64, weights: &[u64]) -> Vec<u64> {
    let sum: u128 = weights.iter().map(|weight| u128::from(*weight)).sum();
    if sum == 0 {
        return vec![0; weights.len()];
    }
    let exact = |weight: &u64| u128::from(total) * u128::from(*weight);
    let mut parts: Vec<u64> =
        weights.iter().map(|weight| u64::try_from(exact(weight) / sum).unwrap_or(u64::MAX)).collect();
    let mut rest = total - parts.iter().sum::<u64>();
    let mut order: Vec<(u128, usize)> =
        weights.iter().map(|weight| exact(weight) % sum).zip(0..).filter(|(left, _)| *left > 0).collect();
    order.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
    for (_, at) in order {
        if rest == 0 {
            break;
        }
        if let Some(part) = parts.get_mut(at) {
            *part += 1;
            rest -= 1;
        }
    }
    parts
}
