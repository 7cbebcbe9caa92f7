//! What is added to pods on their way in: priorities, tolerations, what their runtime costs, where their node is.

use serde_json::{Value, json};

use super::amounts::{self, PodLevel, PodOptions, amounts_in};
use crate::{
    quantity::Quantity,
    resource::Tree,
    validation::parts::{entries, items, number, object, object_mut, text},
};

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
/// How long a pod stays on a node that cannot be reached.
const TOLERATION_SECONDS: i64 = 300;
const ZONE: &str = "topology.kubernetes.io/zone";
const REGION: &str = "topology.kubernetes.io/region";

/// Of the classes that want to be the default, the one with the lowest value is.
pub fn default_priority_class<'a>(classes: impl IntoIterator<Item = &'a Tree>) -> Option<&'a Tree> {
    let defaults = classes.into_iter().filter(|class| class.get("globalDefault") == Some(&json!(true)));
    defaults.min_by_key(|class| number(class, "value").unwrap_or(0))
}

/// Sets the priority of a new pod. `class` is the one it names, or else the default.
pub fn set_priority(pod: &mut Tree, class: Option<&Tree>) -> Result<(), String> {
    let Some(spec) = object_mut(pod, "spec") else { return Ok(()) };
    let priority = class.and_then(|class| number(class, "value")).unwrap_or(0);
    let policy = match class {
        Some(class) => Some(text(class, "preemptionPolicy")).filter(|policy| !policy.is_empty()),
        None => Some("PreemptLowerPriority"),
    };
    if let Some(given) = number(spec, "priority").filter(|given| *given != priority) {
        return Err(format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller computed {priority} from the given PriorityClass name"
        ));
    }
    if let Some(class) = class {
        let name = object(class, "metadata").map(|metadata| text(metadata, "name")).unwrap_or_default();
        spec.insert("priorityClassName".into(), json!(name));
    }
    spec.insert("priority".into(), json!(priority));
    let Some(policy) = policy else { return Ok(()) };
    if let Some(given) = spec.get("preemptionPolicy").and_then(Value::as_str).filter(|given| *given != policy)
    {
        return Err(format!(
            "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission controller computed {policy} from the given PriorityClass name"
        ));
    }
    spec.insert("preemptionPolicy".into(), json!(policy));
    Ok(())
}

/// What an update leaves out of a pod's priority is as it was.
pub fn keep_priority(pod: &mut Tree, old: &Tree) {
    let (Some(spec), Some(was)) = (object_mut(pod, "spec"), object(old, "spec")) else { return };
    for key in ["priority", "preemptionPolicy"] {
        if spec.get(key).is_none_or(Value::is_null)
            && let Some(value) = was.get(key)
        {
            spec.insert(key.into(), value.clone());
        }
    }
}

/// A pod leaves a node that is gone after a while, unless it says otherwise.
pub fn tolerate_for_a_while(pod: &mut Tree) {
    let Some(spec) = object_mut(pod, "spec") else { return };
    for taint in [NOT_READY, UNREACHABLE] {
        let tolerated = items(spec, "tolerations").any(|(_, it)| {
            matches!(text(it, "effect"), "" | "NoExecute")
                && (text(it, "key") == taint || text(it, "key").is_empty())
        });
        if !tolerated {
            let toleration = json!({
                "key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": TOLERATION_SECONDS,
            });
            push(spec, "tolerations", toleration);
        }
    }
}

fn push(tree: &mut Tree, key: &str, item: Value) {
    let items = tree.entry(key).or_insert_with(|| json!([]));
    if !items.is_array() {
        *items = json!([]);
    }
    if let Some(items) = items.as_array_mut() {
        items.push(item);
    }
}

const OTHER_OVERHEAD: &str = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";

/// What a runtime costs a pod, and where it runs.
pub fn set_runtime(pod: &mut Tree, class: &Tree) -> Result<(), String> {
    let Some(spec) = object_mut(pod, "spec") else { return Ok(()) };
    if let Some(overhead) = object(class, "overhead") {
        let given = amounts_in(spec, "overhead");
        if !given.is_empty() && given != amounts_in(overhead, "podFixed") {
            return Err(OTHER_OVERHEAD.into());
        }
        match object(overhead, "podFixed") {
            Some(fixed) => spec.insert("overhead".into(), json!(fixed)),
            None => spec.remove("overhead"),
        };
    }
    let Some(scheduling) = object(class, "scheduling") else { return Ok(()) };
    select_nodes(spec, scheduling)?;
    merge_tolerations(spec, scheduling);
    Ok(())
}

fn select_nodes(spec: &mut Tree, scheduling: &Tree) -> Result<(), String> {
    for (key, value) in entries(scheduling, "nodeSelector") {
        let wanted = value.as_str().unwrap_or_default();
        let selector = spec.entry("nodeSelector").or_insert_with(|| json!({}));
        if let Some(given) = selector.get(key).and_then(Value::as_str).filter(|given| *given != wanted) {
            return Err(format!(
                "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {wanted}; pod.spec.nodeSelector[{key}] = {given}"
            ));
        }
        if let Some(selector) = selector.as_object_mut() {
            selector.insert(key.to_owned(), json!(wanted));
        }
    }
    Ok(())
}

/// Of tolerations of which one covers the other, the wider stays.
fn merge_tolerations(spec: &mut Tree, scheduling: &Tree) {
    let given = items(spec, "tolerations").chain(items(scheduling, "tolerations"));
    let all: Vec<Tree> = given.map(|(_, it)| it.clone()).collect();
    let mut merged: Vec<&Tree> = Vec::new();
    for (at, one) in all.iter().enumerate() {
        let covered_before = merged.iter().any(|other| covers(other, one));
        let covered_later = all.iter().skip(at + 1).any(|other| *one != *other && covers(other, one));
        if !covered_before && !covered_later {
            merged.push(one);
        }
    }
    if !merged.is_empty() {
        spec.insert("tolerations".into(), json!(merged));
    }
}

/// Whether whatever `narrow` tolerates is tolerated by `wide`, as far as upstream sees that.
fn covers(wide: &Tree, narrow: &Tree) -> bool {
    let same = |key| text(wide, key) == text(narrow, key);
    if wide == narrow {
        return true;
    }
    let any_key = text(wide, "key").is_empty() && text(wide, "operator") == "Exists";
    let any_effect = text(wide, "effect").is_empty();
    if !(same("key") || any_key) || !(same("effect") || any_effect) {
        return false;
    }
    let seconds = |toleration| number(toleration, "tolerationSeconds");
    if text(wide, "effect") == "NoExecute"
        && let Some(most) = seconds(wide)
        && seconds(narrow).is_none_or(|seconds| seconds > most)
    {
        return false;
    }
    match text(wide, "operator") {
        "" | "Equal" => text(narrow, "operator") == "Equal" && same("value"),
        operator => operator == "Exists",
    }
}

/// Why what a pod says that its runtime costs is wrong.
pub fn check_overhead(pod: &Tree, class: Option<&Tree>) -> Result<(), String> {
    let empty = Tree::new();
    let spec = object(pod, "spec").unwrap_or(&empty);
    match class.and_then(|class| object(class, "overhead")) {
        Some(overhead) if amounts_in(overhead, "podFixed") != amounts_in(spec, "overhead") => {
            Err(OTHER_OVERHEAD.into())
        }
        Some(_) => Ok(()),
        None if object(spec, "overhead").is_some() => {
            Err("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead".into())
        }
        None => Ok(()),
    }
}

/// The labels of a node that say where it is go to the pods that run on it, or to the binding that puts them there.
pub fn set_topology<'a>(object: &mut Tree, labels: impl Iterator<Item = (&'a str, &'a str)>) {
    for (key, value) in labels.filter(|(key, _)| matches!(*key, ZONE | REGION)) {
        let metadata = object.entry("metadata").or_insert_with(|| json!({}));
        metadata["labels"][key] = json!(value);
    }
}

/// The node that a pod is on, or that a binding puts it on.
pub fn node_of(object_: &Tree, is_binding: bool) -> &str {
    let place = |key: &str, member: &str| object(object_, key).map(|it| text(it, member)).unwrap_or_default();
    match is_binding {
        true if place("target", "kind") != "Node" => "",
        true => place("target", "name"),
        false => place("spec", "nodeName"),
    }
}

/// Why a node cannot give a pod what its new size needs: the reason for machines, and in words.
pub fn check_resize(pod: &Tree, node: &Tree) -> Result<(), (&'static str, String)> {
    let metadata = object(node, "metadata");
    let name = metadata.map(|metadata| text(metadata, "name")).unwrap_or_default();
    let system = metadata.and_then(|it| object(it, "labels")).and_then(|it| it.get("kubernetes.io/os"));
    if let Some(system) = system.and_then(Value::as_str).filter(|system| *system != "linux") {
        let why = format!("pod resize is only supported on linux nodes, node {name:?} is {system:?}");
        return Err(("UnsupportedPlatform", why));
    }
    let options = PodOptions { with_status: false, with_overhead: true, level: PodLevel::Full };
    let requests = amounts::of_pod(pod, "requests", options);
    let allocatable = object(node, "status").map(|it| amounts_in(it, "allocatable")).unwrap_or_default();
    let mut too_much = Vec::new();
    for (name, value) in [("cpu", Quantity::milli_value as fn(&Quantity) -> i64), ("memory", Quantity::value)]
    {
        let requested = requests.get(name).unwrap_or(&Quantity::ZERO);
        let there = allocatable.get(name).unwrap_or(&Quantity::ZERO);
        if requested > there {
            let (requested, there) = (value(requested), value(there));
            too_much.push(format!("{name}, requested: {requested}, allocatable: {there}"));
        }
    }
    match too_much.is_empty() {
        true => Ok(()),
        false => Err((
            "NodeCapacity",
            format!("node didn't have enough allocatable resources: {}", too_much.join("; ")),
        )),
    }
}

/// A new node takes no pods until it is known to be ready.
pub fn taint_new_node(node: &mut Tree) {
    let spec = node.entry("spec").or_insert_with(|| json!({}));
    let Some(spec) = spec.as_object_mut() else { return };
    let tainted = items(spec, "taints")
        .any(|(_, it)| text(it, "key") == NOT_READY && text(it, "effect") == "NoSchedule");
    if !tainted {
        push(spec, "taints", json!({"key": NOT_READY, "effect": "NoSchedule"}));
    }
}

#[cfg(test)]
mod tests;
