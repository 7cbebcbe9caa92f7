//! Pods that want to be spread evenly over places.

use std::collections::BTreeMap;

use machinery::selector::LabelSelector;
use serde_json::Value;

use super::{Candidate, HARD_TAINTS, Unfit, hopeless, is_wanted, tolerations, unfit, untolerated};
use crate::tree;

struct Constraint {
    topology: String,
    max_skew: i64,
    min_domains: i64,
    hard: bool,
    selector: LabelSelector,
    /// Whether nodes count that the pod does not want, or that do not want it.
    honors_affinity: bool,
    honors_taints: bool,
}

pub struct Constraints(Vec<Constraint>);

impl Constraints {
    pub fn of(pod: &Value) -> Constraints {
        let labels = tree::labels(pod, "/metadata/labels");
        let read = |constraint: &Value| {
            let mut object = constraint.get("labelSelector").cloned().unwrap_or_default();
            for key in tree::items(constraint, "/matchLabelKeys").filter_map(Value::as_str) {
                let Some((_, value)) = labels.iter().find(|(name, _)| name == key) else { continue };
                object["matchLabels"][key] = Value::from(value.as_str());
            }
            Constraint {
                topology: tree::text(constraint, "/topologyKey").to_owned(),
                max_skew: tree::number(constraint, "/maxSkew").unwrap_or(1),
                min_domains: tree::number(constraint, "/minDomains").unwrap_or(1),
                hard: tree::text(constraint, "/whenUnsatisfiable") != "ScheduleAnyway",
                selector: LabelSelector::from_object(&object).unwrap_or_else(|_| LabelSelector::nothing()),
                honors_affinity: tree::text(constraint, "/nodeAffinityPolicy") != "Ignore",
                honors_taints: tree::text(constraint, "/nodeTaintsPolicy") == "Honor",
            }
        };
        Constraints(tree::items(pod, "/spec/topologySpreadConstraints").map(read).collect())
    }

    pub fn problem(&self, pod: &Value, candidate: &Candidate, candidates: &[Candidate]) -> Option<Unfit> {
        for constraint in self.0.iter().filter(|it| it.hard) {
            let Some(place) = constraint.place(candidate) else {
                return hopeless(
                    "node(s) didn't match pod topology spread constraints (missing required label)",
                );
            };
            let counts = constraint.counts(pod, candidates);
            let few = (counts.len() as i64) < constraint.min_domains;
            let least = if few { 0 } else { counts.values().copied().min().unwrap_or(0) };
            let here = counts.get(place).copied().unwrap_or(0) + constraint.own(pod);
            if here - least > constraint.max_skew {
                return unfit("node(s) didn't match pod topology spread constraints");
            }
        }
        None
    }

    /// Fewer of the same are better.
    pub fn preference(&self, pod: &Value, candidate: &Candidate, candidates: &[Candidate]) -> i64 {
        let count = |constraint: &Constraint| match constraint.place(candidate) {
            Some(place) => constraint.counts(pod, candidates).get(place).copied().unwrap_or(0),
            None => 1000,
        };
        -self.0.iter().filter(|it| !it.hard).map(count).sum::<i64>()
    }
}

impl Constraint {
    fn place<'a>(&self, candidate: &'a Candidate) -> Option<&'a str> {
        candidate.node.pointer("/metadata/labels")?.get(&self.topology)?.as_str()
    }

    fn own(&self, pod: &Value) -> i64 {
        i64::from(self.selector.matches(&tree::labels(pod, "/metadata/labels")))
    }

    /// How many of the same are in each place.
    fn counts<'a>(&self, pod: &Value, candidates: &'a [Candidate]) -> BTreeMap<&'a str, i64> {
        let tolerations = tolerations(pod);
        let mut counts = BTreeMap::new();
        for candidate in candidates {
            let Some(place) = self.place(candidate) else { continue };
            let taint = || untolerated(candidate, &tolerations, HARD_TAINTS);
            if (self.honors_affinity && !is_wanted(pod, candidate))
                || (self.honors_taints && taint().is_some())
            {
                continue;
            }
            let same = candidate.pods.iter().filter(|other| {
                other.namespace == tree::namespace(pod)
                    && other.terminating.is_none()
                    && self.selector.matches(&other.labels)
            });
            *counts.entry(place).or_insert(0) += same.count() as i64;
        }
        counts
    }
}
