//! Classes of pods: how important they are, and what runs them.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::{
    super::{go_struct, members::default_to},
    deprecated_label, immutable,
};
use crate::{
    field_error::Cause,
    gotext, metadata, names,
    resource::Tree,
    validation::parts::{
        self, Path, container_resource_name, entries, invalid_each, items, number, object, text,
    },
};

const ROOT: Path<'_> = Path::new("");
const HIGHEST_OF_USERS: i64 = 1_000_000_000;
const SYSTEM: &str = "system-";
/// The classes of the system itself, and their priorities.
const SYSTEM_CLASSES: [(&str, i64); 2] = [
    ("system-node-critical", 2 * HIGHEST_OF_USERS + 1000),
    ("system-cluster-critical", 2 * HIGHEST_OF_USERS),
];

/// Why a class cannot be deleted.
pub fn system_priority(name: &str) -> Option<&'static str> {
    let is_system = SYSTEM_CLASSES.iter().any(|(system, _)| *system == name);
    is_system.then_some("this is a system priority class and cannot be deleted")
}

pub fn default_priority(tree: &mut Tree) {
    default_to(tree, "preemptionPolicy", "PreemptLowerPriority");
}

pub fn validate_priority(new: &Tree, old: Option<&Tree>) -> Vec<Cause> {
    let value = number(new, "value").unwrap_or(0);
    let Some(old) = old else { return new_priority(new, value) };
    let mut causes = Vec::new();
    if value != number(old, "value").unwrap_or(0) {
        causes.push(Cause::forbidden("value", "may not be changed in an update."));
    }
    causes.extend(immutable(new, old, "preemptionPolicy", &ROOT.child("preemptionPolicy")));
    causes
}

fn new_priority(new: &Tree, value: i64) -> Vec<Cause> {
    let mut causes = Vec::new();
    let name = object(new, "metadata").map_or("", |metadata| text(metadata, "name"));
    if name.starts_with(SYSTEM) {
        if let Some(why) = not_of_system(name, value, parts::flag(new, "globalDefault")) {
            let detail = format!(
                "priority class names with '{SYSTEM}' prefix are reserved for system use only. error: {why}"
            );
            causes.push(Cause::forbidden("metadata.name", &detail));
        }
    } else if value > HIGHEST_OF_USERS {
        let detail = format!("maximum allowed value of a user defined priority is {HIGHEST_OF_USERS}");
        causes.push(Cause::forbidden("value", &detail));
    }
    let policy_path = ROOT.child("preemptionPolicy");
    let policies = ["PreemptLowerPriority", "Never"];
    match new.get("preemptionPolicy").and_then(Value::as_str) {
        Some("") => causes.push(Cause::required(&policy_path, "")),
        Some(policy) if !policies.contains(&policy) => {
            causes.push(Cause::not_supported(&policy_path, &json!(policy), &policies));
        }
        _ => {}
    }
    causes
}

/// Why a class is none of the system's.
fn not_of_system(name: &str, value: i64, is_default: bool) -> Option<String> {
    let Some((_, wanted)) = SYSTEM_CLASSES.iter().find(|(system, _)| *system == name) else {
        return Some(format!("{name} is not a known system priority class"));
    };
    if value != *wanted {
        return Some(format!("value of {name} PriorityClass must be {wanted}"));
    }
    is_default.then(|| format!("globalDefault of {name} PriorityClass must be false"))
}

pub fn validate_runtime(new: &Tree, old: Option<&Tree>) -> Vec<Cause> {
    let (handler, path) = (text(new, "handler"), ROOT.child("handler"));
    let mut causes: Vec<Cause> = match handler {
        "" => vec![Cause::required(&path, "")],
        handler => invalid_each(&path, handler, names::is_dns1123_label(handler)).collect(),
    };
    if let Some(overhead) = object(new, "overhead") {
        causes.extend(pod_overhead(overhead, &ROOT.child("overhead")));
    }
    if let Some(scheduling) = object(new, "scheduling") {
        causes.extend(self::scheduling(scheduling, &ROOT.child("scheduling")));
    }
    causes.extend(old.and_then(|old| immutable(new, old, "handler", &path)));
    causes
}

/// Upstream reads it as the limits of a container.
fn pod_overhead(overhead: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let limits = path.child("limits");
    let mut causes = Vec::new();
    let (mut has_basics, mut has_huge_pages) = (false, false);
    for (name, value) in entries(overhead, "podFixed") {
        let place = limits.key(name);
        causes.extend(container_resource_name(name, &place));
        causes.extend(parts::resource_quantity(name, value, &place));
        has_basics |= matches!(name, "cpu" | "memory");
        if parts::is_huge_pages(name) {
            has_huge_pages = true;
            let quantity = super::quantity(value);
            if !parts::divides_into_huge_pages(name, &quantity) {
                let detail = format!("{quantity} is not positive integer multiple of {name}");
                causes.push(Cause::invalid(&place, value, &detail));
            }
        }
    }
    if has_huge_pages && !has_basics {
        causes.push(Cause::forbidden(path, "HugePages require cpu or memory"));
    }
    causes
}

fn scheduling(scheduling: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let selector = path.child("nodeSelector").to_string();
    let mut causes = metadata::labels(scheduling.get("nodeSelector"), &selector);
    causes.extend(parts::tolerations(scheduling, "tolerations", path));
    let list = path.child("tolerations");
    let mut seen = HashSet::new();
    for (at, toleration) in items(scheduling, "tolerations") {
        let key = ["key", "operator", "value", "effect"].map(|key| text(toleration, key));
        if !seen.insert(key) {
            let [key, operator, value, effect] = key.map(gotext::json);
            let seconds = gotext::json(toleration.get("tolerationSeconds").unwrap_or(&Value::Null));
            let shown = go_struct([
                ("Key", key),
                ("Operator", operator),
                ("Value", value),
                ("Effect", effect),
                ("TolerationSeconds", seconds),
            ]);
            causes.push(Cause::duplicate_text(&list.index(at), &shown, ""));
        }
    }
    causes
}

pub fn warn_runtime(new: &Tree, _: Option<&Tree>) -> Vec<String> {
    let Some(scheduling) = object(new, "scheduling") else { return Vec::new() };
    let deprecated = entries(scheduling, "nodeSelector").filter_map(|(key, _)| deprecated_label(key));
    deprecated.map(|message| format!("scheduling.nodeSelector: {message}")).collect()
}
