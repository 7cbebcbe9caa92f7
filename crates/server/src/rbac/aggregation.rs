//! Cluster roles that collect others.
//!
//! One that collects has no rules of its own: it has those of all it selects, and of all that these select in turn
//! (admin < edit < view). Whatever rules it shows are left out of account, so that roles that select each other in a
//! circle agree on what they have, at once and for good.

use std::{collections::HashMap, sync::Arc};

use machinery::{Object, selector::LabelSelector};
use serde_json::{Map, Value};

use super::{Rule, collections, rules_of, trees};
use crate::space::Space;

/// All cluster roles of a workspace, in the order of their names.
pub struct ClusterRoles {
    roles: Vec<ClusterRole>,
    by_name: HashMap<String, usize>,
}

pub struct ClusterRole {
    pub object: Arc<Object>,
    /// As the object has them; of one that collects, what it shows.
    pub rules: Arc<Vec<Rule>>,
    collects: Option<Collects>,
}

struct Collects {
    /// What is selected, in the order of the selectors.
    selected: Vec<usize>,
    /// A selector cannot be read, so that not all of it is known.
    partly: bool,
}

/// The selectors of a role that collects, and whether one of them cannot be read.
fn selectors(tree: &Map<String, Value>) -> Option<(Vec<LabelSelector>, bool)> {
    let rule = tree.get("aggregationRule").filter(|rule| !rule.is_null())?;
    let list = rule.get("clusterRoleSelectors").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let read: Vec<LabelSelector> =
        list.iter().filter_map(|selector| LabelSelector::from_object(selector).ok()).collect();
    let partly = read.len() < list.len();
    Some((read, partly))
}

impl ClusterRoles {
    pub fn read(space: &Space) -> ClusterRoles {
        let [collection, ..] = collections();
        ClusterRoles::of(trees(space, &collection))
    }

    fn of(all: impl Iterator<Item = (Arc<Object>, Map<String, Value>)>) -> ClusterRoles {
        let (mut roles, mut collecting) = (Vec::new(), Vec::new());
        for (object, tree) in all {
            collecting.extend(selectors(&tree).map(|found| (roles.len(), found)));
            roles.push(ClusterRole { object, rules: Arc::new(rules_of(&tree)), collects: None });
        }
        for (index, (selectors, partly)) in collecting {
            let selected = select(&roles, index, &selectors);
            roles[index].collects = Some(Collects { selected, partly });
        }
        let by_name = roles.iter().enumerate().map(|(at, it)| (it.object.head.name.to_string(), at));
        let by_name = by_name.collect();
        ClusterRoles { roles, by_name }
    }

    /// Those that collect others, as far as their selectors can be read.
    pub fn collecting(&self) -> impl Iterator<Item = &ClusterRole> {
        self.roles.iter().filter(|role| role.collects.as_ref().is_some_and(|collects| !collects.partly))
    }

    /// The rules of every role that the rules of `name` come from; `None` if there is no such role. Each role is
    /// looked at once, in the order in which upstream's controller would come to show them.
    pub fn sources(&self, name: &str) -> Option<Vec<&Arc<Vec<Rule>>>> {
        let mut sources = Vec::new();
        let mut seen = vec![false; self.roles.len()];
        let mut open = vec![*self.by_name.get(name)?];
        while let Some(index) = open.pop() {
            if std::mem::replace(&mut seen[index], true) {
                continue;
            }
            match &self.roles[index].collects {
                None => sources.push(&self.roles[index].rules),
                Some(collects) => {
                    open.extend(collects.selected.iter().rev().copied().filter(|index| !seen[*index]));
                }
            }
        }
        Some(sources)
    }
}

fn select(roles: &[ClusterRole], own: usize, selectors: &[LabelSelector]) -> Vec<usize> {
    let mut selected = Vec::new();
    let mut taken = vec![false; roles.len()];
    for selector in selectors {
        for (index, role) in roles.iter().enumerate() {
            if index != own && !taken[index] && selector.matches(&role.object.head.labels) {
                taken[index] = true;
                selected.push(index);
            }
        }
    }
    selected
}

#[cfg(test)]
mod tests {
    use machinery::{Draft, EventType, Revision};
    use serde_json::json;

    use super::*;

    /// A role with the label `in: <circle>`, which collects those labelled `in: <selects>`, or has a rule about
    /// itself.
    fn mk_role(name: &str, circle: &str, selects: &[&str]) -> (Arc<Object>, Map<String, Value>) {
        let mut tree = json!({
            "kind": "ClusterRole", "apiVersion": "rbac.authorization.k8s.io/v1",
            "metadata": {"name": name, "uid": name, "labels": {"in": circle}},
            "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": [name]}],
        });
        if !selects.is_empty() {
            let selectors: Vec<Value> = selects.iter().map(|it| json!({"matchLabels": {"in": it}})).collect();
            tree["aggregationRule"] = json!({"clusterRoleSelectors": selectors});
        }
        let tree = tree.as_object().cloned().unwrap_or_default();
        let object = Draft::encode(&tree).unwrap().seal(Revision::default(), EventType::Added);
        (Arc::new(object), tree)
    }

    fn sources(roles: &ClusterRoles, name: &str) -> Vec<String> {
        let rules = roles.sources(name).unwrap().into_iter().flat_map(|some| some.iter());
        rules.map(|rule| rule.resources.join(",")).collect()
    }

    #[test]
    fn rules_come_from_those_that_collect_nothing_each_once_in_order() {
        let roles = ClusterRoles::of(
            [
                mk_role("admin", "-", &["admin"]),
                mk_role("edit", "admin", &["edit"]),
                mk_role("to-admin", "admin", &[]),
                mk_role("to-edit", "edit", &[]),
                mk_role("to-view", "view", &[]),
                mk_role("view", "edit", &["view", "edit"]),
            ]
            .into_iter(),
        );
        for (name, expected) in [
            ("to-view", &["to-view"][..]),
            ("view", &["to-view", "to-edit"]),
            ("edit", &["to-edit", "to-view"]),
            ("admin", &["to-edit", "to-view", "to-admin"]),
        ] {
            assert_eq!(sources(&roles, name), expected, "{name}");
        }
        assert!(roles.sources("other").is_none());
    }

    #[test]
    fn a_circle_agrees_on_what_it_has() {
        let roles = ClusterRoles::of(
            [
                mk_role("a", "a", &["b"]),
                mk_role("b", "b", &["c"]),
                mk_role("c", "c", &["a", "leaf"]),
                mk_role("leaf", "leaf", &[]),
            ]
            .into_iter(),
        );
        for name in ["a", "b", "c"] {
            assert_eq!(sources(&roles, name), ["leaf"], "{name}: what it shows itself does not count");
        }
    }
}
