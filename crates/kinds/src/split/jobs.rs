//! The numbers of a Job: parallelism is divided like replicas, and completions only over clusters that may run
//! anything, so that the parts are always the whole.
//!
//! Completions cannot be changed once a Job is there, so whoever divides them keeps the parts.

use std::collections::BTreeMap;

use super::in_proportion;
use crate::{
    divide::{self, Algorithm, Division, Preference, Preferences},
    types::{Problem, Share},
};

/// What one cluster runs of a Job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobShare {
    pub parallelism: u64,
    /// `None`: the Job does not say, its pods do.
    pub completions: Option<u64>,
}

/// Completions in proportion to the parallelism of each cluster, so that all of them end at about the same time.
/// Clusters that run nothing get none.
pub fn completions(total: u64, parallelism: &BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let running: Vec<(&String, u64)> = parallelism
        .iter()
        .filter(|(_, count)| **count > 0)
        .map(|(cluster, count)| (cluster, *count))
        .collect();
    let weights: Vec<u64> = running.iter().map(|(_, count)| *count).collect();
    let parts = in_proportion(total, &weights);
    running.into_iter().map(|(cluster, _)| cluster.clone()).zip(parts).collect()
}

/// Divides a Job over `clusters`; those that get no parallelism get no Job. `key` is its `namespace/name`.
///
/// `Federation` divides completions by the weights alone, as federation v1 meant to; `Fair` in proportion to the
/// parallelism.
pub fn divide(
    key: &str,
    parallelism: u64,
    total: Option<u64>,
    clusters: &[&str],
    preferences: &Preferences,
    algorithm: Algorithm,
) -> BTreeMap<String, JobShare> {
    let nothing = BTreeMap::new();
    let division =
        Division { total: parallelism, clusters, preferences, current: &nothing, capacity: &nothing, key };
    let mut parallelism = divide::divide(&division, algorithm).replicas;
    parallelism.retain(|_, count| *count > 0);
    let parts = total.map(|total| match algorithm {
        Algorithm::Fair => completions(total, &parallelism),
        Algorithm::Federation => by_weight(total, &parallelism, &division),
    });
    let share = |(cluster, parallelism): (String, u64)| {
        let completions = parts.as_ref().map(|parts| parts.get(&cluster).copied().unwrap_or(0));
        (cluster, JobShare { parallelism, completions })
    };
    parallelism.into_iter().map(share).collect()
}

/// By the weights of the clusters that run anything, without their bounds. If none of them has any weight, in
/// proportion to what they run.
fn by_weight(total: u64, running: &BTreeMap<String, u64>, division: &Division<'_>) -> BTreeMap<String, u64> {
    let clusters: Vec<&str> = running.keys().map(String::as_str).collect();
    let weight = |cluster: &&str| division.preferences.of(cluster).map_or(0, |preference| preference.weight);
    let weights = clusters.iter().map(|cluster| {
        let unbounded = Preference { weight: weight(cluster), ..Preference::default() };
        ((*cluster).to_owned(), unbounded)
    });
    let preferences = Preferences { rebalance: division.preferences.rebalance, clusters: weights.collect() };
    let division = Division { total, clusters: &clusters, preferences: &preferences, ..*division };
    let plan = divide::divide(&division, Algorithm::Federation);
    match plan.pending {
        0 => plan.replicas,
        _ => completions(total, running),
    }
}

/// The completions of each share. Those that say nothing have what the others leave, in proportion; or all, if each has
/// all of the `parallelism`.
pub(crate) fn completions_of_shares(
    parallelism: u64,
    total: Option<u64>,
    shares: &BTreeMap<String, Share>,
) -> Result<BTreeMap<String, u64>, Problem> {
    let Some(total) = total else { return Ok(BTreeMap::new()) };
    if parallelism > 0 && shares.values().all(|it| it.replicas == parallelism && it.completions.is_none()) {
        return Ok(shares.keys().map(|cluster| (cluster.clone(), total)).collect());
    }
    let mut parts: BTreeMap<String, u64> =
        shares.iter().filter_map(|(cluster, share)| Some((cluster.clone(), share.completions?))).collect();
    let open: BTreeMap<String, u64> = shares
        .iter()
        .filter(|(_, share)| share.completions.is_none())
        .map(|(cluster, share)| (cluster.clone(), share.replicas))
        .collect();
    let given = parts.values().fold(0u64, |sum, part| sum.saturating_add(*part));
    if !open.is_empty() && given > total {
        let reason = format!("the clusters have {given} completions already, of {total}");
        return Err(Problem::Indivisible(reason));
    }
    parts.extend(completions(total.saturating_sub(given), &open));
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk(counts: &[(&str, u64)]) -> BTreeMap<String, u64> {
        counts.iter().map(|(cluster, count)| ((*cluster).to_owned(), *count)).collect()
    }

    #[test]
    fn completions_go_where_something_runs_and_add_up() {
        let rows: [(u64, &[(&str, u64)], &[(&str, u64)]); 5] = [
            (7, &[("a", 1), ("b", 1)], &[("a", 4), ("b", 3)]),
            (7, &[("a", 1), ("b", 0)], &[("a", 7)]),
            (10, &[("a", 3), ("b", 1)], &[("a", 8), ("b", 2)]),
            (1, &[("a", 4), ("b", 3)], &[("a", 1), ("b", 0)]),
            (3, &[("a", 0)], &[]),
        ];
        for (total, parallelism, expected) in rows {
            assert_eq!(completions(total, &mk(parallelism)), mk(expected), "{total} over {parallelism:?}");
        }
    }

    #[test]
    fn shares_that_say_nothing_have_what_the_others_leave() {
        let share = |replicas, completions| Share { replicas, completions, ..Share::default() };
        let shares = |a, b| BTreeMap::from([("a".to_owned(), a), ("b".to_owned(), b)]);
        let divided = completions_of_shares(3, Some(9), &shares(share(1, Some(4)), share(2, None)));
        assert_eq!(divided, Ok(mk(&[("a", 4), ("b", 5)])));
        let none = completions_of_shares(3, None, &shares(share(1, None), share(2, None)));
        assert_eq!(none, Ok(mk(&[])));
        let each = completions_of_shares(2, Some(9), &shares(share(2, None), share(2, None)));
        assert_eq!(each, Ok(mk(&[("a", 9), ("b", 9)])), "each has all of it");
        let much = completions_of_shares(3, Some(3), &shares(share(1, Some(4)), share(2, None)));
        assert_eq!(
            much,
            Err(Problem::Indivisible("the clusters have 4 completions already, of 3".to_owned()))
        );
    }
}
