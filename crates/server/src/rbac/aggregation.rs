//! Cluster roles that collect others.
//!
//! One that collects has no rules of its own: it has those of all it selects, and of all that these select in turn
//! (admin < edit < view). Whatever rules it shows are left out of account, so that roles that select each other in a
//! circle agree on what they have, at once and for good.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, LazyLock},
};

use machinery::{Object, selector::LabelSelector};
use serde_json::{Map, Value};
use store::ItemKey;

use super::{Rule, collections, rules_of};
use crate::{base, space::Space};

/// All cluster roles of a workspace, in the order of their names.
pub struct ClusterRoles {
    roles: Vec<ClusterRole>,
    by_name: HashMap<String, usize>,
}

pub struct ClusterRole {
    role: Arc<Role>,
    collects: Option<Collects>,
}

/// One cluster role by itself. Those of the base are the same for every workspace, and shared.
struct Role {
    object: Arc<Object>,
    /// As the object has them; of one that collects, what it shows.
    rules: Arc<Vec<Rule>>,
    /// What it collects by, and whether part of that cannot be read.
    selectors: Option<(Vec<LabelSelector>, bool)>,
}

impl Role {
    fn read(object: &Arc<Object>) -> Option<Role> {
        let tree = object.tree().ok()?;
        Some(Role { object: object.clone(), rules: Arc::new(rules_of(&tree)), selectors: selectors(&tree) })
    }
}

impl ClusterRole {
    pub fn name(&self) -> &str {
        &self.role.object.head.name
    }

    pub fn rules(&self) -> &[Rule] {
        &self.role.rules
    }
}

/// Of a workspace that is none: only what is the same in all is used of them.
static BASE: LazyLock<BTreeMap<ItemKey, Arc<Role>>> = LazyLock::new(|| {
    let [collection, ..] = collections();
    let place = base::Place::default();
    let read = |(item, template): (&ItemKey, _)| {
        let role = Role::read(&base::seal(template, &place, item)?)?;
        Some((item.clone(), Arc::new(role)))
    };
    base::of(&collection).into_iter().flatten().filter_map(read).collect()
});

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
        let stored = space.stored(&collection);
        if stored.is_empty() {
            return ClusterRoles::of(BASE.values().cloned());
        }
        let mut roles = BASE.clone();
        for (item, object) in stored.iter(None, None) {
            match Role::read(object).filter(|_| !base::is_whiteout(object)) {
                Some(role) => drop(roles.insert(item.clone(), Arc::new(role))),
                None => drop(roles.remove(item)),
            }
        }
        ClusterRoles::of(roles.into_values())
    }

    fn of(all: impl Iterator<Item = Arc<Role>>) -> ClusterRoles {
        let mut roles: Vec<ClusterRole> = all.map(|role| ClusterRole { role, collects: None }).collect();
        for index in 0..roles.len() {
            let role = roles[index].role.clone();
            let Some((selectors, partly)) = &role.selectors else { continue };
            let selected = select(&roles, index, selectors);
            roles[index].collects = Some(Collects { selected, partly: *partly });
        }
        let by_name = roles.iter().enumerate().map(|(at, it)| (it.name().to_owned(), at));
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
                None => sources.push(&self.roles[index].role.rules),
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
            if index != own && !taken[index] && selector.matches(&role.role.object.head.labels) {
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
    fn mk_role(name: &str, circle: &str, selects: &[&str]) -> Arc<Role> {
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
        Arc::new(Role::read(&Arc::new(object)).unwrap())
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
