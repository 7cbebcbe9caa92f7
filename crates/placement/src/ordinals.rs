//! Ranges of ordinals: pods with names of their own, each in one cluster.

/// What clusters keep of `kept`, in the order of their ranges, when there are to be `total`; and what is left for
/// others. The last range grows, and shrinks first, so that no pod changes its cluster.
pub fn keep(total: u64, kept: &[u64], most_of_last: u64) -> (Vec<u64>, u64) {
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

/// A cluster's part of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    pub replicas: u64,
    /// Where its range begins now.
    pub start: Option<u64>,
}

/// Where each range begins: one after the other from `first` on. Those that have one stay in their order, and newcomers
/// go into the gaps that fit them, so that few pods change their cluster.
pub fn starts(first: u64, parts: &[Part]) -> Vec<u64> {
    let mut known: Vec<usize> = (0..parts.len()).filter(|at| parts[*at].start.is_some()).collect();
    known.sort_by_key(|at| parts[*at].start);
    let mut new: Vec<usize> = (0..parts.len()).filter(|at| parts[*at].start.is_none()).collect();
    let mut starts = vec![first; parts.len()];
    let mut next = first;
    let mut put = |at: usize, next: &mut u64| {
        starts[at] = *next;
        *next = next.saturating_add(parts[at].replicas);
    };
    for at in known {
        let begins = parts[at].start.unwrap_or(first);
        new.retain(|newcomer| {
            let fits = next.saturating_add(parts[*newcomer].replicas) <= begins;
            if fits {
                put(*newcomer, &mut next);
            }
            !fits
        });
        put(at, &mut next);
    }
    new.into_iter().for_each(|at| put(at, &mut next));
    starts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_range_grows_and_shrinks() {
        assert_eq!(keep(8, &[3, 3], 10), (vec![3, 5], 0));
        assert_eq!(keep(8, &[3, 3], 4), (vec![3, 4], 1));
        assert_eq!(keep(4, &[3, 3], 10), (vec![3, 1], 0));
        assert_eq!(keep(2, &[3, 3], 10), (vec![2, 0], 0));
        assert_eq!(keep(5, &[], 0), (vec![], 5));
    }

    #[test]
    fn newcomers_go_into_gaps() {
        let part = |replicas, start| Part { replicas, start };
        let table: [(&[Part], &[u64]); 4] = [
            (&[part(3, None), part(2, None)], &[0, 3]),
            (&[part(3, Some(0)), part(3, Some(6)), part(3, None)], &[0, 6, 3]),
            (&[part(3, Some(3)), part(5, Some(0))], &[5, 0]),
            (&[part(3, Some(0)), part(6, Some(6))], &[0, 3]),
        ];
        for (parts, wanted) in table {
            assert_eq!(starts(0, parts), wanted, "{parts:?}");
        }
        assert_eq!(starts(u64::MAX, &[part(3, None), part(1, None)]), [u64::MAX, u64::MAX]);
    }
}
