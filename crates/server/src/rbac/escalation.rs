//! Whether rules cover other rules, so that nobody gives away what they do not have.

use std::collections::{BTreeMap, BTreeSet};

use super::{Rule, holds, path_matches};

/// The smallest thing a rule grants: one verb on one resource (of one name), or on one path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Right {
    Resource { group: String, resource: String, name: Option<String>, verb: String },
    Path { url: String, verb: String },
}

/// What of `wanted` the rules in `held` do not cover, a line each as upstream words it; `None` if nothing.
pub fn missing(held: &[Rule], wanted: &[Rule]) -> Option<String> {
    let rights = wanted.iter().flat_map(rights);
    let missing: Vec<Right> = rights.filter(|right| !held.iter().any(|rule| covers(rule, right))).collect();
    if missing.is_empty() {
        return None;
    }
    let mut verbs: BTreeMap<(String, String, Option<String>), Vec<String>> = BTreeMap::new();
    let mut lines: BTreeSet<String> = BTreeSet::new();
    for right in missing {
        match right {
            Right::Path { url, verb } => {
                lines.insert(format!("{{NonResourceURLs:[{url:?}], Verbs:[{verb:?}]}}"));
            }
            Right::Resource { group, resource, name, verb } => {
                verbs.entry((group, resource, name)).or_default().push(verb);
            }
        }
    }
    lines.extend(verbs.into_iter().map(|((group, resource, name), verbs)| {
        let name = name.map(|name| format!(", ResourceNames:[{name:?}]")).unwrap_or_default();
        let verbs: Vec<String> = verbs.iter().map(|verb| format!("{verb:?}")).collect();
        format!("{{APIGroups:[{group:?}], Resources:[{resource:?}]{name}, Verbs:[{}]}}", verbs.join(" "))
    }));
    Some(lines.into_iter().collect::<Vec<_>>().join("\n"))
}

fn rights(rule: &Rule) -> Vec<Right> {
    let names: Vec<Option<String>> = match rule.resource_names.is_empty() {
        true => vec![None],
        false => rule.resource_names.iter().cloned().map(Some).collect(),
    };
    let mut rights = Vec::new();
    for group in &rule.api_groups {
        for resource in &rule.resources {
            for verb in &rule.verbs {
                rights.extend(names.iter().map(|name| Right::Resource {
                    group: group.clone(),
                    resource: resource.clone(),
                    name: name.clone(),
                    verb: verb.clone(),
                }));
            }
        }
    }
    for url in &rule.non_resource_urls {
        rights.extend(rule.verbs.iter().map(|verb| Right::Path { url: url.clone(), verb: verb.clone() }));
    }
    rights
}

fn covers(rule: &Rule, right: &Right) -> bool {
    match right {
        Right::Path { url, verb } => {
            holds(&rule.verbs, verb)
                && rule.resource_names.is_empty()
                && rule.non_resource_urls.iter().any(|pattern| pattern == url || path_matches(pattern, url))
        }
        Right::Resource { group, resource, name, verb } => {
            // `*/scale` covers `deployments/scale`.
            let any = resource.split_once('/').map(|(_, sub)| format!("*/{sub}"));
            holds(&rule.verbs, verb)
                && holds(&rule.api_groups, group)
                && (holds(&rule.resources, resource) || any.is_some_and(|any| rule.resources.contains(&any)))
                && (rule.resource_names.is_empty()
                    || name.as_ref().is_some_and(|it| rule.resource_names.contains(it)))
        }
    }
}
