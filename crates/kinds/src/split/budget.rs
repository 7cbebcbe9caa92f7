//! Budgets of disruptions: the sum over the clusters promises no more disruption than the user allowed.
//!
//! | the user says | a cluster gets |
//! | --- | --- |
//! | `minAvailable: 4` | its part of 4, so that the parts are 4 |
//! | `minAvailable: 50%` | `50%`: rounded up in each cluster, that is never less; but where this would forbid every disruption although the user allows some, its part of the number |
//! | `maxUnavailable: 2` | its part of 2 |
//! | `maxUnavailable: 10%` | its part of 10% of all pods: Kubernetes rounds up, which in each cluster anew would allow more than the user did |

use std::collections::BTreeMap;

use serde_json::Value;

use super::in_proportion;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    Number(u64),
    Percent(u64),
}

impl Amount {
    pub fn read(value: &Value) -> Option<Amount> {
        match value {
            Value::String(text) => {
                text.strip_suffix('%').and_then(|percent| percent.parse().ok()).map(Amount::Percent)
            }
            value => value.as_u64().map(Amount::Number),
        }
    }

    /// As Kubernetes counts for budgets, always rounded up.
    pub fn of(self, pods: u64) -> u64 {
        match self {
            Amount::Number(number) => number,
            Amount::Percent(percent) => {
                let exact = u128::from(pods) * u128::from(percent);
                u64::try_from(exact.div_ceil(100)).unwrap_or(u64::MAX)
            }
        }
    }
}

/// What must stay available in each cluster, of its `pods`.
pub fn min_available(amount: Amount, pods: &BTreeMap<String, u64>) -> BTreeMap<String, Amount> {
    let total: u64 = sum(pods);
    if let Amount::Percent(_) = amount {
        let is_some_allowed = pods.values().any(|pods| *pods > amount.of(*pods));
        if is_some_allowed || total <= amount.of(total) {
            return pods.keys().map(|cluster| (cluster.clone(), amount)).collect();
        }
    }
    let least = amount.of(total);
    // What is asked beyond all pods there are is asked of everyone: nothing may be disrupted.
    let within = parts(least.min(total), pods);
    let beyond = parts(least.saturating_sub(total), pods);
    within
        .into_iter()
        .zip(beyond)
        .map(|((cluster, a), (_, b))| (cluster, Amount::Number(a.saturating_add(b))))
        .collect()
}

/// What may be unavailable in each cluster, of its `pods`.
pub fn max_unavailable(amount: Amount, pods: &BTreeMap<String, u64>) -> BTreeMap<String, Amount> {
    let total = sum(pods);
    let most = amount.of(total).min(total);
    parts(most, pods).into_iter().map(|(cluster, part)| (cluster, Amount::Number(part))).collect()
}

fn sum(pods: &BTreeMap<String, u64>) -> u64 {
    pods.values().fold(0, |sum, pods| sum.saturating_add(*pods))
}

/// In proportion to the pods; if there are none, to the clusters.
fn parts(total: u64, pods: &BTreeMap<String, u64>) -> Vec<(String, u64)> {
    let weights: Vec<u64> = match sum(pods) {
        0 => vec![1; pods.len()],
        _ => pods.values().copied().collect(),
    };
    pods.keys().cloned().zip(in_proportion(total, &weights)).collect()
}

#[cfg(test)]
mod tests {
    use super::{Amount::*, *};

    fn mk(pods: &[u64]) -> BTreeMap<String, u64> {
        pods.iter().enumerate().map(|(at, pods)| (format!("c{at}"), *pods)).collect()
    }

    #[test]
    fn the_parts_promise_what_the_whole_does() {
        type Divide = fn(Amount, &BTreeMap<String, u64>) -> BTreeMap<String, Amount>;
        let (min, max): (Divide, Divide) = (min_available, max_unavailable);
        let rows: &[(Divide, Amount, &[u64], &[Amount])] = &[
            (min, Number(4), &[3, 3], &[Number(2), Number(2)]),
            (min, Number(5), &[6, 2], &[Number(4), Number(1)]),
            (min, Number(9), &[2, 1], &[Number(6), Number(3)]),
            (min, Number(2), &[0, 4], &[Number(0), Number(2)]),
            (min, Percent(50), &[10, 5], &[Percent(50), Percent(50)]),
            (min, Percent(50), &[1, 1], &[Number(1), Number(0)]),
            (min, Percent(100), &[1, 1], &[Percent(100), Percent(100)]),
            (max, Number(1), &[2, 3], &[Number(0), Number(1)]),
            (max, Number(9), &[2, 3], &[Number(2), Number(3)]),
            (max, Percent(10), &[1, 1, 1], &[Number(1), Number(0), Number(0)]),
            (max, Percent(25), &[10, 5], &[Number(3), Number(1)]),
            (max, Number(0), &[10, 5], &[Number(0), Number(0)]),
            (max, Number(2), &[0, 0], &[Number(0), Number(0)]),
        ];
        for (divide, amount, pods, expected) in rows {
            let parts: Vec<Amount> = divide(*amount, &mk(pods)).into_values().collect();
            assert_eq!(&parts, expected, "{amount:?} of {pods:?}");
        }
    }

    #[test]
    fn no_numbers_are_too_large() {
        let many = mk(&[u64::MAX, u64::MAX]);
        for amount in [Number(u64::MAX), Percent(0), Percent(50), Percent(u64::MAX)] {
            assert_eq!(min_available(amount, &many).len(), 2);
            assert_eq!(max_unavailable(amount, &many).len(), 2);
        }
    }

    #[test]
    fn amounts_are_read_as_the_api_spells_them() {
        let read = |value: Value| Amount::read(&value);
        assert_eq!(read(Value::from(3)), Some(Number(3)));
        assert_eq!(read(Value::from("25%")), Some(Percent(25)));
        assert_eq!(read(Value::from("25")), None);
        assert_eq!(read(Value::from(-1)), None);
    }
}
