//! The ordinals of a StatefulSet: each cluster runs one range of them. Ranges never overlap, together they are the
//! ordinals of the whole, and they move as little as the wanted numbers allow.

use std::collections::BTreeMap;

use crate::types::{Problem, Share};

/// Up to so many clusters every place of a new range is tried; beyond that it goes to the end.
const MOST_TRIED: usize = 64;

/// The ordinals from `start` to before `end`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ordinals {
    pub start: u64,
    pub end: u64,
}

impl Ordinals {
    pub fn len(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn common(&self, other: &Ordinals) -> u64 {
        self.end.min(other.end).saturating_sub(self.start.max(other.start))
    }
}

/// Lays the wanted numbers out from `first` on: clusters that have a range stay in their order, and a new one goes
/// where the fewest ordinals change their cluster, at the end if that is as good.
///
/// So the whole grows and shrinks at its end, as a StatefulSet does.
pub fn ordinals(
    first: u64,
    wanted: &BTreeMap<String, u64>,
    current: &BTreeMap<String, Ordinals>,
) -> BTreeMap<String, Ordinals> {
    let running = |cluster: &str| current.get(cluster).filter(|range| !range.is_empty());
    // Who has none of them has no place among them either.
    let some = || wanted.iter().filter(|(_, count)| **count > 0).map(|(cluster, _)| cluster.as_str());
    let mut order: Vec<&str> = some().filter(|cluster| running(cluster).is_some()).collect();
    order.sort_by_key(|cluster| running(cluster).map(|range| (range.start, *cluster)));
    for cluster in some().filter(|cluster| running(cluster).is_none()) {
        let at = match order.len() < MOST_TRIED {
            true => best_place(first, cluster, &order, wanted, current),
            false => order.len(),
        };
        order.insert(at, cluster);
    }
    let mut ranges: BTreeMap<String, Ordinals> =
        wanted.keys().map(|cluster| (cluster.clone(), Ordinals { start: first, end: first })).collect();
    ranges.extend(lay_out(first, &order, wanted).map(|(cluster, range)| (cluster.to_owned(), range)));
    ranges
}

fn lay_out<'a>(
    first: u64,
    order: &[&'a str],
    wanted: &BTreeMap<String, u64>,
) -> impl Iterator<Item = (&'a str, Ordinals)> {
    let mut next = first;
    order.iter().map(move |cluster| {
        let start = next;
        next = start.saturating_add(wanted.get(*cluster).copied().unwrap_or(0));
        (*cluster, Ordinals { start, end: next })
    })
}

/// Where in the order a new cluster lets most ordinals stay where they are.
fn best_place(
    first: u64,
    cluster: &str,
    order: &[&str],
    wanted: &BTreeMap<String, u64>,
    current: &BTreeMap<String, Ordinals>,
) -> usize {
    let staying = |at: usize| {
        let mut tried = order.to_vec();
        tried.insert(at, cluster);
        let ranges = lay_out(first, &tried, wanted);
        ranges.map(|(cluster, range)| current.get(cluster).map_or(0, |old| range.common(old))).sum::<u64>()
    };
    (0..=order.len()).max_by_key(|at| (staying(*at), *at)).unwrap_or(order.len())
}

/// What each cluster may be told now on the way to `wanted`, while the clusters still run what they hold: nobody gets an
/// ordinal that another holds, so that no two pods have one name. Done again once they hold what they were told, it
/// comes to `wanted`; a cluster that does not answer holds what it was seen with last.
pub fn next(
    held: &BTreeMap<String, Ordinals>,
    wanted: &BTreeMap<String, Ordinals>,
) -> BTreeMap<String, Ordinals> {
    let told = |(cluster, want): (&String, &Ordinals)| {
        let others = || held.iter().filter(move |(other, it)| *other != cluster && !it.is_empty());
        let own = held.get(cluster).copied().unwrap_or_default();
        let kept = Ordinals { start: own.start.max(want.start), end: own.end.min(want.end) };
        let mut from = want.start;
        if !kept.is_empty() {
            let below = others().filter(|(_, it)| it.end <= kept.start).map(|(_, it)| it.end).max();
            from = from.max(below.unwrap_or(from));
        } else {
            // The ranges that others hold are passed in their order.
            let mut blocking: Vec<&Ordinals> = others().map(|(_, it)| it).collect();
            blocking.sort_unstable();
            for it in blocking {
                from = if it.start <= from { from.max(it.end) } else { from };
            }
        }
        let first = kept.start.max(from);
        let above = others().filter(|(_, it)| it.start >= first).map(|(_, it)| it.start).min();
        let free = Ordinals { start: from, end: want.end.min(above.unwrap_or(want.end)) };
        let nothing = Ordinals { start: want.start, end: want.start };
        (cluster.clone(), if free.is_empty() { nothing } else { free })
    };
    wanted.iter().map(told).collect()
}

/// The ranges that shares ask for. Those that name none get one, beside those that do.
pub(crate) fn of_shares(
    first: u64,
    total: u64,
    shares: &BTreeMap<String, Share>,
) -> Result<BTreeMap<String, Ordinals>, Problem> {
    let range = |start: u64, share: &Share| Ordinals { start, end: start.saturating_add(share.replicas) };
    if shares.values().all(|share| share.replicas == total && share.ordinals.is_none_or(|it| it == first)) {
        // Each cluster has all of it.
        return Ok(shares.iter().map(|(cluster, share)| (cluster.clone(), range(first, share))).collect());
    }
    if shares.values().any(|share| share.ordinals.is_none()) {
        let wanted = shares.iter().map(|(cluster, share)| (cluster.clone(), share.replicas)).collect();
        let named = shares
            .iter()
            .filter_map(|(cluster, share)| Some((cluster.clone(), range(share.ordinals?, share))));
        return Ok(ordinals(first, &wanted, &named.collect()));
    }
    let ranges: BTreeMap<String, Ordinals> = shares
        .iter()
        .map(|(cluster, share)| (cluster.clone(), range(share.ordinals.unwrap_or(first), share)))
        .collect();
    disjoint(&ranges)?;
    Ok(ranges)
}

fn disjoint(ranges: &BTreeMap<String, Ordinals>) -> Result<(), Problem> {
    let mut sorted: Vec<(&String, &Ordinals)> = ranges.iter().filter(|(_, it)| !it.is_empty()).collect();
    sorted.sort_by_key(|(_, range)| **range);
    let overlap = sorted.windows(2).find_map(|pair| match pair {
        [(one, a), (other, b)] if b.start < a.end => Some((*one, *other, b.start)),
        _ => None,
    });
    match overlap {
        None => Ok(()),
        Some((one, other, ordinal)) => {
            Err(Problem::Indivisible(format!("{one} and {other} would both run ordinal {ordinal}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk(counts: &[(&str, u64)]) -> BTreeMap<String, u64> {
        counts.iter().map(|(cluster, count)| ((*cluster).to_owned(), *count)).collect()
    }

    fn mk_ranges(ranges: &[(&str, u64, u64)]) -> BTreeMap<String, Ordinals> {
        let range = |(cluster, start, end): &(&str, u64, u64)| {
            ((*cluster).to_owned(), Ordinals { start: *start, end: *end })
        };
        ranges.iter().map(range).collect()
    }

    #[test]
    fn ranges_follow_each_other_and_change_as_little_as_the_numbers_allow() {
        type Row<'a> =
            (&'a str, u64, &'a [(&'a str, u64)], &'a [(&'a str, u64, u64)], &'a [(&'a str, u64, u64)]);
        let rows: [Row<'_>; 8] = [
            ("new", 0, &[("a", 2), ("b", 3)], &[], &[("a", 0, 2), ("b", 2, 5)]),
            ("from the first ordinal on", 5, &[("a", 2), ("b", 1)], &[], &[("a", 5, 7), ("b", 7, 8)]),
            (
                "growth at the end moves nothing",
                0,
                &[("a", 2), ("b", 5)],
                &[("a", 0, 2), ("b", 2, 5)],
                &[("a", 0, 2), ("b", 2, 7)],
            ),
            (
                "the order is that of the ranges, not of the names",
                0,
                &[("a", 3), ("b", 2)],
                &[("b", 0, 2), ("a", 2, 4)],
                &[("b", 0, 2), ("a", 2, 5)],
            ),
            (
                "a new cluster takes the end",
                0,
                &[("a", 2), ("b", 2), ("aa", 1)],
                &[("a", 0, 2), ("b", 2, 4)],
                &[("a", 0, 2), ("b", 2, 4), ("aa", 4, 5)],
            ),
            (
                "or the middle where more stay",
                0,
                &[("a", 2), ("b", 2), ("c", 2)],
                &[("a", 0, 3), ("b", 3, 6)],
                &[("a", 0, 2), ("c", 2, 4), ("b", 4, 6)],
            ),
            (
                "a cluster without any keeps none",
                0,
                &[("a", 0), ("b", 4)],
                &[("a", 0, 2), ("b", 2, 4)],
                &[("a", 0, 0), ("b", 0, 4)],
            ),
            (
                "shrinking takes from the end",
                0,
                &[("a", 2), ("b", 1)],
                &[("a", 0, 2), ("b", 2, 5)],
                &[("a", 0, 2), ("b", 2, 3)],
            ),
        ];
        for (name, first, wanted, current, expected) in rows {
            assert_eq!(ordinals(first, &mk(wanted), &mk_ranges(current)), mk_ranges(expected), "{name}");
        }
    }

    #[test]
    fn a_range_that_moves_is_given_up_before_another_cluster_gets_it() {
        let held = mk_ranges(&[("a", 0, 3), ("b", 3, 6)]);
        let wanted = mk_ranges(&[("a", 0, 2), ("c", 2, 4), ("b", 4, 6)]);
        let first = next(&held, &wanted);
        assert_eq!(first, mk_ranges(&[("a", 0, 2), ("b", 4, 6), ("c", 2, 2)]), "c waits for both");
        assert_eq!(next(&first, &wanted), wanted);
        let silent = mk_ranges(&[("a", 0, 2), ("b", 3, 6)]);
        assert_eq!(next(&silent, &wanted)["c"], Ordinals { start: 2, end: 3 }, "b does not answer");
    }

    #[test]
    fn shares_that_overlap_are_refused_unless_each_is_the_whole() {
        let share = |replicas, start| Share { replicas, ordinals: Some(start), ..Share::default() };
        let shares = |a, b| BTreeMap::from([("a".to_owned(), a), ("b".to_owned(), b)]);
        let overlapping = of_shares(0, 4, &shares(share(3, 0), share(2, 2)));
        assert_eq!(overlapping, Err(Problem::Indivisible("a and b would both run ordinal 2".into())));
        let whole = of_shares(0, 4, &shares(share(4, 0), share(4, 0)));
        assert_eq!(whole, Ok(mk_ranges(&[("a", 0, 4), ("b", 0, 4)])));
        let unnamed = of_shares(0, 4, &shares(share(1, 3), Share { replicas: 3, ..Share::default() }));
        assert_eq!(unnamed, Ok(mk_ranges(&[("b", 0, 3), ("a", 3, 4)])), "beside the one that has a place");
    }
}
