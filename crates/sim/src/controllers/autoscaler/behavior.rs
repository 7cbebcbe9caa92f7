//! How fast, and how steadily, the number of replicas may change.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use super::{PERIOD, age};
use crate::tree;

/// How long higher recommendations keep a target from shrinking, unless its behaviour says otherwise.
const DOWN_WINDOW: i64 = 300;
/// Nothing older is asked for: the longest window and the longest period of a policy.
const LONGEST: i64 = 3600;

#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub least: i64,
    pub most: i64,
}

impl Bounds {
    pub fn of(autoscaler: &Value) -> Bounds {
        Bounds {
            least: tree::number(autoscaler, "/spec/minReplicas").unwrap_or(1),
            most: tree::number(autoscaler, "/spec/maxReplicas").unwrap_or(1),
        }
    }
}

/// What was recommended for one target, and done, lately.
#[derive(Default)]
pub struct Memory {
    recommended: Vec<(Timestamp, i64)>,
    /// By how much it changed.
    scaled: Vec<(Timestamp, i64)>,
    looked: Option<(Timestamp, i64)>,
}

pub struct Stable {
    pub replicas: i64,
    /// If it is not what was wanted.
    pub reason: Option<(&'static str, &'static str)>,
}

pub struct Limited {
    pub replicas: i64,
    pub reason: &'static str,
    pub message: &'static str,
}

impl Memory {
    pub fn is_needed(&self, now: Timestamp) -> bool {
        self.looked.is_none_or(|(looked, _)| age(looked, now) <= LONGEST)
    }

    /// How long until the next look is due, if the spec is what it was.
    pub fn rest(&self, now: Timestamp, generation: i64) -> Option<Duration> {
        let (looked, seen) = self.looked?;
        if seen != generation {
            return None;
        }
        let left = PERIOD.saturating_sub(now.duration_since(looked));
        Duration::try_from(left).ok().filter(|left| !left.is_zero())
    }

    pub fn look(&mut self, now: Timestamp, generation: i64) {
        self.looked = Some((now, generation));
        self.recommended.retain(|(then, _)| age(*then, now) <= LONGEST);
        self.scaled.retain(|(then, _)| age(*then, now) <= LONGEST);
    }

    pub fn begin(&mut self, current: i64, now: Timestamp) {
        if self.recommended.is_empty() {
            self.recommended.push((now, current));
        }
    }

    pub fn scaled(&mut self, from: i64, to: i64, now: Timestamp) {
        self.scaled.push((now, to - from));
    }

    /// Of the recommendations within a window the one that changes least.
    pub fn stabilize(
        &mut self,
        current: i64,
        wanted: i64,
        behavior: Option<&Value>,
        now: Timestamp,
    ) -> Stable {
        let window = |way: &str, default: i64| {
            let rules = behavior.and_then(|behavior| behavior.get(way));
            rules.and_then(|rules| tree::number(rules, "/stabilizationWindowSeconds")).unwrap_or(default)
        };
        let within = |window: i64| {
            self.recommended.iter().filter(move |(then, _)| age(*then, now) < window).map(|(_, size)| *size)
        };
        let highest = within(window("scaleDown", DOWN_WINDOW)).fold(wanted, i64::max);
        let replicas = match behavior {
            None => highest,
            Some(_) => {
                let lowest = within(window("scaleUp", 0)).fold(wanted, i64::min);
                current.max(lowest).min(highest)
            }
        };
        self.recommended.push((now, wanted));
        let reason = match () {
            _ if replicas == wanted => None,
            _ if wanted >= current && behavior.is_some() => Some((
                "ScaleUpStabilized",
                "recent recommendations were lower than current one, applying the lowest recent recommendation",
            )),
            _ => Some((
                "ScaleDownStabilized",
                "recent recommendations were higher than current one, applying the highest recent recommendation",
            )),
        };
        Stable { replicas, reason }
    }

    /// Within the bounds, and not faster than policies say.
    pub fn limit(
        &self,
        current: i64,
        wanted: i64,
        bounds: Bounds,
        behavior: Option<&Value>,
        now: Timestamp,
    ) -> Limited {
        let (fastest, slowest) = match behavior {
            None => ((2 * current).max(4), i64::MIN),
            Some(behavior) => (
                self.by_policies(current, &behavior["scaleUp"], 1, now).max(current),
                self.by_policies(current, &behavior["scaleDown"], -1, now).min(current),
            ),
        };
        let limited = |replicas, reason, message| Limited { replicas, reason, message };
        let (most, least) = (bounds.most.min(fastest), bounds.least.max(slowest));
        if wanted > most && (behavior.is_none() || wanted > current) {
            return if bounds.most > fastest {
                let message = "the desired replica count is increasing faster than the maximum scale rate";
                limited(most, "ScaleUpLimit", message)
            } else {
                let message = "the desired replica count is more than the maximum replica count";
                limited(most, "TooManyReplicas", message)
            };
        }
        if wanted < least && (behavior.is_none() || wanted < current) {
            return if bounds.least < slowest {
                let message = "the desired replica count is decreasing faster than the maximum scale rate";
                limited(least, "ScaleDownLimit", message)
            } else {
                let message = "the desired replica count is less than the minimum replica count";
                limited(least, "TooFewReplicas", message)
            };
        }
        limited(wanted, "DesiredWithinRange", "the desired count is within the acceptable range")
    }

    /// Up (`way` 1) or down (-1) from what there was when each policy's period began.
    fn by_policies(&self, current: i64, rules: &Value, way: i64, now: Timestamp) -> i64 {
        let select = tree::text(rules, "/selectPolicy");
        if select == "Disabled" {
            return current;
        }
        let proposals = tree::items(rules, "/policies").map(|policy| {
            let period = tree::number(policy, "/periodSeconds").unwrap_or(0);
            let changed: i64 = self
                .scaled
                .iter()
                .filter(|(then, _)| age(*then, now) < period)
                .map(|(_, change)| change)
                .sum();
            let start = current - changed;
            let value = tree::number(policy, "/value").unwrap_or(0);
            if tree::text(policy, "/type") == "Pods" {
                return start.saturating_add(way * value);
            }
            let part = start as f64 * (1.0 + (way * value) as f64 / 100.0);
            if way > 0 { part.ceil() as i64 } else { part as i64 }
        });
        // The largest change is the highest number on the way up and the lowest on the way down.
        let chosen = if (way > 0) == (select != "Min") { proposals.max() } else { proposals.min() };
        chosen.unwrap_or(current)
    }
}
