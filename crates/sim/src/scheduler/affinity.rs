//! Pods that want to be near other pods, or away from them.

use std::{collections::HashMap, sync::Arc};

use machinery::selector::LabelSelector;
use serde_json::Value;

use super::{Candidate, Unfit, selector, unfit};
use crate::{
    Pod, World,
    kind::{NAMESPACES, PODS},
    tree,
};

/// One wish: which pods, counted together where nodes share the value of which label.
struct Term {
    selector: LabelSelector,
    namespaces: Vec<String>,
    topology: String,
    weight: i64,
}

pub struct Terms {
    near: Vec<Term>,
    away: Vec<Term>,
    liked: Vec<Term>,
    /// Whether the pod itself is what it wants to be near to: the first of a group finds nobody.
    is_first_of: Vec<bool>,
    /// What pods that are there already want to be away from, and where they are, by their node.
    repelling: HashMap<String, Vec<Term>>,
    own: Arc<Pod>,
}

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

impl Term {
    fn of(world: &dyn World, pod: &Value, term: &Value, weight: i64) -> Term {
        let mut chosen = selector(term.get("labelSelector"));
        // Labels of the pod itself by which the others must be like it, or must not.
        let labels = tree::labels(pod, "/metadata/labels");
        let mut object = term.get("labelSelector").cloned().unwrap_or_default();
        for (keys, operator) in [("/matchLabelKeys", "In"), ("/mismatchLabelKeys", "NotIn")] {
            for key in tree::items(term, keys).filter_map(Value::as_str) {
                let Some((_, value)) = labels.iter().find(|(name, _)| name == key) else { continue };
                let expression =
                    serde_json::json!({"key": key, "operator": operator, "values": [value.as_str()]});
                match object.get_mut("matchExpressions").and_then(Value::as_array_mut) {
                    Some(list) => list.push(expression),
                    None => object["matchExpressions"] = serde_json::json!([expression]),
                }
                chosen = LabelSelector::from_object(&object).unwrap_or_else(|_| LabelSelector::nothing());
            }
        }
        let mut namespaces: Vec<String> =
            tree::items(term, "/namespaces").filter_map(Value::as_str).map(str::to_owned).collect();
        if term.get("namespaceSelector").is_some_and(|it| !it.is_null()) {
            let wanted = selector(term.get("namespaceSelector"));
            let all = world.list(NAMESPACES, None);
            let chosen =
                all.iter().filter(|namespace| wanted.matches(&tree::labels(namespace, "/metadata/labels")));
            namespaces.extend(chosen.map(|namespace| tree::name(namespace).to_owned()));
        } else if namespaces.is_empty() {
            namespaces.push(tree::namespace(pod).to_owned());
        }
        Term { selector: chosen, namespaces, topology: tree::text(term, "/topologyKey").to_owned(), weight }
    }

    fn means(&self, pod: &Pod) -> bool {
        self.namespaces.iter().any(|it| *it == pod.namespace) && self.selector.matches(&pod.labels)
    }

    fn place<'a>(&self, candidate: &'a Candidate) -> Option<&'a str> {
        let labels = candidate.node.pointer("/metadata/labels")?;
        labels.get(&self.topology)?.as_str()
    }

    /// How many of those it means are where the candidate is.
    fn count(&self, candidate: &Candidate, candidates: &[Candidate]) -> usize {
        let Some(place) = self.place(candidate) else { return 0 };
        let same = candidates.iter().filter(|it| self.place(it) == Some(place));
        same.flat_map(|it| &it.pods).filter(|pod| self.means(pod)).count()
    }
}

fn terms(world: &dyn World, pod: &Value, which: &str, how: &str) -> Vec<Term> {
    let pointer = format!("/spec/affinity/{which}/{how}");
    let read = |term: &Value| match how {
        REQUIRED => Term::of(world, pod, term, 0),
        _ => {
            let inner = term.get("podAffinityTerm").cloned().unwrap_or_default();
            Term::of(world, pod, &inner, tree::number(term, "/weight").unwrap_or(0))
        }
    };
    tree::items(pod, &pointer).map(read).collect()
}

impl Terms {
    pub fn of(world: &dyn World, pod: &Value, candidates: &[Candidate]) -> Terms {
        let own = Arc::new(Pod::of(pod));
        let near = terms(world, pod, "podAffinity", REQUIRED);
        let mut liked = terms(world, pod, "podAffinity", PREFERRED);
        let away_if_possible = terms(world, pod, "podAntiAffinity", PREFERRED);
        liked.extend(away_if_possible.into_iter().map(|term| Term { weight: -term.weight, ..term }));
        let is_first_of = near.iter().map(|term| term.means(&own)).collect();
        let away = terms(world, pod, "podAntiAffinity", REQUIRED);
        Terms { near, away, liked, is_first_of, repelling: repelling(world, candidates), own }
    }

    pub fn problem(&self, candidate: &Candidate, candidates: &[Candidate]) -> Option<Unfit> {
        let missing = self.near.iter().zip(&self.is_first_of).any(|(term, is_own)| {
            let nobody_anywhere = || !candidates.iter().flat_map(|it| &it.pods).any(|pod| term.means(pod));
            term.place(candidate).is_none()
                || (term.count(candidate, candidates) == 0 && !(*is_own && nobody_anywhere()))
        });
        if missing {
            return unfit("node(s) didn't match pod affinity rules");
        }
        if self.away.iter().any(|term| term.count(candidate, candidates) > 0) {
            return unfit("node(s) didn't match pod anti-affinity rules");
        }
        let repelled = candidates.iter().any(|other| {
            let terms = self.repelling.get(&other.name).map_or(&[][..], Vec::as_slice);
            terms.iter().any(|term| {
                term.means(&self.own)
                    && term.place(candidate).is_some()
                    && term.place(candidate) == term.place(other)
            })
        });
        if repelled {
            return unfit("node(s) didn't satisfy existing pods anti-affinity rules");
        }
        None
    }

    pub fn preference(&self, candidate: &Candidate, candidates: &[Candidate]) -> i64 {
        self.liked.iter().map(|term| term.weight * term.count(candidate, candidates).min(100) as i64).sum()
    }
}

/// Few pods repel others, so only those are read whole.
fn repelling(world: &dyn World, candidates: &[Candidate]) -> HashMap<String, Vec<Term>> {
    let mut found: HashMap<String, Vec<Term>> = HashMap::new();
    for pod in candidates.iter().flat_map(|it| &it.pods).filter(|pod| pod.repels) {
        let Some(tree) = world.get(PODS, &pod.namespace, &pod.name) else { continue };
        found.entry(pod.node.to_string()).or_default().extend(terms(
            world,
            &tree,
            "podAntiAffinity",
            REQUIRED,
        ));
    }
    found
}
