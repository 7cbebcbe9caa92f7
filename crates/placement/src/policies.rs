//! The `Placement`s of one layer: by name, and found by what they select.
//!
//! There may be one for each workload. So an object is not tried with all of them, but with those that name it or a
//! label of it, and with those that name neither.

use std::collections::{BTreeMap, BTreeSet};

use compact_str::CompactString;
use kinds::Subject;

use crate::policy::{Criterion, Policy};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policies {
    all: BTreeMap<String, Policy>,
    by_name: Index,
    /// By key, then by value.
    by_label: BTreeMap<CompactString, Index>,
    broad: BTreeSet<String>,
}

/// The names of policies by what they ask for.
type Index = BTreeMap<CompactString, BTreeSet<String>>;

impl Policies {
    pub const fn new() -> Policies {
        Policies {
            all: BTreeMap::new(),
            by_name: BTreeMap::new(),
            by_label: BTreeMap::new(),
            broad: BTreeSet::new(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub fn get(&self, name: &str) -> Option<&Policy> {
        self.all.get(name)
    }

    /// In the place of the one that has its name.
    pub fn put(&mut self, policy: Policy) {
        self.remove(&policy.name);
        for criterion in policy.criteria() {
            self.place(criterion).insert(policy.name.clone());
        }
        self.all.insert(policy.name.clone(), policy);
    }

    pub fn remove(&mut self, name: &str) {
        let Some(policy) = self.all.remove(name) else { return };
        for criterion in policy.criteria() {
            self.place(criterion).remove(name);
            match criterion {
                Criterion::Name(name) => tidy(&mut self.by_name, name),
                Criterion::Label(key, value) => {
                    if let Some(values) = self.by_label.get_mut(key) {
                        tidy(values, value);
                        if values.is_empty() {
                            self.by_label.remove(key);
                        }
                    }
                }
                Criterion::Any => {}
            }
        }
    }

    fn place(&mut self, criterion: Criterion<'_>) -> &mut BTreeSet<String> {
        match criterion {
            Criterion::Name(name) => self.by_name.entry(name.into()).or_default(),
            Criterion::Label(key, value) => {
                self.by_label.entry(key.into()).or_default().entry(value.into()).or_default()
            }
            Criterion::Any => &mut self.broad,
        }
    }

    /// Those that may select an object: all that do, some more than once, and a few others.
    pub fn candidates<'a>(&'a self, subject: &'a Subject) -> impl Iterator<Item = &'a Policy> {
        let of_labels = subject
            .labels
            .iter()
            .filter_map(|(key, value)| self.by_label.get(key.as_str())?.get(value.as_str()));
        let named = self.by_name.get(subject.name.as_str()).into_iter();
        let names = named.chain(of_labels).chain([&self.broad]).flatten();
        names.filter_map(|name| self.all.get(name))
    }
}

fn tidy(index: &mut Index, key: &str) {
    if index.get(key).is_some_and(BTreeSet::is_empty) {
        index.remove(key);
    }
}

impl FromIterator<Policy> for Policies {
    fn from_iter<T: IntoIterator<Item = Policy>>(policies: T) -> Policies {
        let mut all = Policies::new();
        policies.into_iter().for_each(|policy| all.put(policy));
        all
    }
}

impl<const N: usize> From<[Policy; N]> for Policies {
    fn from(policies: [Policy; N]) -> Policies {
        policies.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn policy(name: &str, select: &Value) -> Policy {
        Policy::read(&json!({"metadata": {"name": name}, "spec": {"select": select}})).unwrap()
    }

    fn subject(name: &str, labels: &Value) -> Subject {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": "shop", "labels": labels},
        });
        kinds::subject(&object).unwrap()
    }

    fn found(policies: &Policies, subject: &Subject) -> BTreeSet<String> {
        policies.candidates(subject).map(|it| it.name.clone()).collect()
    }

    #[test]
    fn whatever_selects_an_object_is_among_its_candidates_and_little_else_is() {
        let selections = [
            json!([{"names": ["a", "b"]}]),
            json!([{"names": ["*"]}]),
            json!([{"labelSelector": {"matchLabels": {"app": "a"}}}]),
            json!([{"labelSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["a", "b"]}]}}]),
            json!([{"labelSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]}}]),
            json!([{"labelSelector": {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["a"]}]}}]),
            json!([{"names": ["a"]}, {"labelSelector": {"matchLabels": {"app": "b", "tier": "x"}}}]),
            json!([{"kinds": ["ConfigMap"]}]),
            json!([{"kinds": ["Secret"], "names": ["b"]}]),
            json!([{}]),
            json!([]),
        ];
        let all: Vec<Policy> =
            selections.iter().enumerate().map(|(at, select)| policy(&format!("p{at}"), select)).collect();
        let mut policies: Policies = all.iter().cloned().collect();
        for (name, labels) in [
            ("a", json!({"app": "a"})),
            ("a", json!({"app": "b", "tier": "x"})),
            ("b", json!({})),
            ("c", json!({"app": "b"})),
        ] {
            let subject = subject(name, &labels);
            let selecting = all.iter().filter(|it| it.selects(&subject, &Vec::new()).is_some());
            let candidates = found(&policies, &subject);
            assert!(selecting.into_iter().all(|it| candidates.contains(&it.name)), "{name} {labels}");
        }
        assert_eq!(
            found(&policies, &subject("z", &json!({}))),
            ["p1", "p4", "p5", "p7", "p9"].map(String::from).into()
        );
        for at in 0..selections.len() {
            policies.remove(&format!("p{at}"));
        }
        assert_eq!(policies, Policies::new(), "nothing is left behind");
    }

    #[test]
    fn one_of_the_same_name_is_replaced() {
        let mut policies = Policies::from([policy("p", &json!([{"names": ["a"]}]))]);
        policies.put(policy("p", &json!([{"names": ["b"]}])));
        assert!(found(&policies, &subject("a", &json!({}))).is_empty());
        assert_eq!(found(&policies, &subject("b", &json!({}))).len(), 1);
    }
}
