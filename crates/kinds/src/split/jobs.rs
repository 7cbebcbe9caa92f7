//! The numbers of a Job: parallelism is divided like replicas, and completions only over clusters that may run
//! anything, so that the parts are always the whole.
//!
//! Completions cannot be changed once a Job is there, so whoever divides them keeps the parts.

use std::collections::BTreeMap;

use super::in_proportion;
use crate::types::{Problem, Share};

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
    let running: Vec<(&String, u64)> =
        parallelism.iter().filter(|(_, count)| **count > 0).map(|(cluster, count)| (cluster, *count)).collect();
    let weights: Vec<u64> = running.iter().map(|(_, count)| *count).collect();
    let parts = in_proportion(total, &weights);
    running.into_iter().map(|(cluster, _)| cluster.clone()).zip(parts).collect()
}

/// A Job whose parallelism is divided already. `divide` divides the completions over the clusters that run anything.
pub fn job(
    parallelism: &BTreeMap<String, u64>,
    total: Option<u64>,
    divide: impl FnOnce(u64, &BTreeMap<String, u64>) -> BTreeMap<String, u64>,
) -> BTreeMap<String, JobShare> {
    let running: BTreeMap<String, u64> = parallelism
        .iter()
        .filter(|(_, count)| **count > 0)
        .map(|(cluster, count)| (cluster.clone(), *count))
        .collect();
    let parts = total.map(|total| divide(total, &running));
    let share = |(cluster, parallelism): (String, u64)| {
        let completions = parts.as_ref().map(|parts| parts.get(&cluster).copied().unwrap_or(0));
        (cluster, JobShare { parallelism, completions })
    };
    running.into_iter().map(share).collect()
}

/// The completions of each share. Those that say nothing have what the others leave, in proportion.
pub(crate) fn completions_of_shares(
    total: Option<u64>,
    shares: &BTreeMap<String, Share>,
) -> Result<BTreeMap<String, u64>, Problem> {
    let Some(total) = total else { return Ok(BTreeMap::new()) };
    let mut parts: BTreeMap<String, u64> = shares
        .iter()
        .filter_map(|(cluster, share)| Some((cluster.clone(), share.completions?)))
        .collect();
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
        let divided = completions_of_shares(Some(9), &shares(share(1, Some(4)), share(2, None)));
        assert_eq!(divided, Ok(mk(&[("a", 4), ("b", 5)])));
        let none = completions_of_shares(None, &shares(share(1, None), share(2, None)));
        assert_eq!(none, Ok(mk(&[])));
        let much = completions_of_shares(Some(3), &shares(share(1, Some(4)), share(2, None)));
        assert_eq!(
            much,
            Err(Problem::Indivisible("the clusters have 4 completions already, of 3".to_owned()))
        );
    }
}
