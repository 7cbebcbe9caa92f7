//! Other amounts of resources for a pod that runs.

use serde_json::{Map, Value, json};

use super::{
    super::parts::{Path, items, list, object, text},
    NOWHERE,
    amounts::{is_sidecar, quality_of_service},
    annotations::{self, MIRROR},
    create,
    equality::same,
    update,
};
use crate::{field_error::Cause, resource::Tree};

const SPEC: Path<'_> = Path::new("spec");
const LISTS: [&str; 2] = ["limits", "requests"];
const CONTAINERS: [&str; 2] = ["containers", "initContainers"];

/// Of the new pod only the resources count, of containers that are the same ones.
pub fn only_resources(new: &mut Tree, old: &Tree) {
    let empty = Tree::new();
    let (sent, was) =
        (object(new, "spec").cloned().unwrap_or_default(), object(old, "spec").unwrap_or(&empty));
    if CONTAINERS.iter().any(|key| list(&sent, key).len() != list(was, key).len()) {
        return;
    }
    let mut spec = was.clone();
    set(&mut spec, "resources", sent.get("resources"));
    for key in CONTAINERS {
        let merged = with_resources(list(&sent, key), list(was, key));
        set(&mut spec, key, Some(&Value::Array(merged)).filter(|_| !list(&sent, key).is_empty()));
    }
    new.insert("spec".to_owned(), Value::Object(spec));
    set(new, "status", old.get("status"));
    update::keep_metadata(new, old);
}

fn set(tree: &mut Tree, key: &str, value: Option<&Value>) {
    match value {
        Some(value) => tree.insert(key.to_owned(), value.clone()),
        None => tree.remove(key),
    };
}

/// If a container is another one, all are taken as they were sent, to be refused.
fn with_resources(new: &[Value], old: &[Value]) -> Vec<Value> {
    if new.iter().zip(old).any(|(new, old)| new.get("name") != old.get("name")) {
        return new.to_vec();
    }
    let mut merged = old.to_vec();
    for (merged, new) in merged.iter_mut().zip(new) {
        if let Some(merged) = merged.as_object_mut() {
            set(merged, "resources", new.get("resources"));
            set(merged, "resizePolicy", new.get("resizePolicy"));
        }
    }
    merged
}

pub fn resized_pod(new: &Tree, old: &Tree) -> Vec<Cause> {
    let empty = Tree::new();
    let (spec, was) = (object(new, "spec").unwrap_or(&empty), object(old, "spec").unwrap_or(&empty));
    if annotations::annotation(object(old, "metadata"), MIRROR).is_some() {
        return vec![Cause::forbidden(NOWHERE, "static pods cannot be resized")];
    }
    if object(was, "os").is_some_and(|os| text(os, "name") == "windows") {
        return vec![Cause::forbidden(NOWHERE, "windows pods cannot be resized")];
    }
    let mut causes = create::every_pod(new, &update::options(old));
    causes.extend(state_of_pod(new, old, spec));
    causes.extend(pod_level(spec, was));
    let moved = container_order(spec, was);
    if !moved.is_empty() {
        causes.extend(moved);
        return causes;
    }
    for key in ["initContainers", "containers"] {
        causes.extend(removed_resources(spec, was, key));
    }
    causes.extend(changed_containers(spec, was));
    if causes.is_empty() && !same(&with_old_amounts(spec, was), was) {
        causes.push(Cause::forbidden(&SPEC, "only cpu and memory resources are mutable"));
    }
    causes
}

/// What the pod's own state says against it.
fn state_of_pod(new: &Tree, old: &Tree, spec: &Tree) -> Vec<Cause> {
    let mut causes = Vec::new();
    let empty = Tree::new();
    let status = object(old, "status").unwrap_or(&empty);
    let class = match text(status, "qosClass") {
        "" => quality_of_service(object(old, "spec").unwrap_or(&empty)),
        class => class,
    };
    if class != quality_of_service(spec) {
        let shown = object(new, "status").map_or("", |status| text(status, "qosClass"));
        let detail = "Pod QOS Class may not change as a result of resizing";
        causes.push(Cause::invalid(&SPEC, &json!(shown), detail));
    }
    let running = items(status, "containerStatuses")
        .find(|(_, it)| object(it, "state").is_some_and(|state| state.contains_key("running")));
    if running.is_some_and(|(_, status)| !status.contains_key("resources")) {
        causes.push(Cause::forbidden(&SPEC, "Pod running on node without support for resize"));
    }
    causes
}

fn pod_level(spec: &Tree, was: &Tree) -> Vec<Cause> {
    let mut causes = Vec::new();
    let (own, old) = (object(spec, "resources"), object(was, "resources"));
    let is_set = |resources: Option<&Tree>| {
        resources.is_some_and(|it| LISTS.iter().any(|list| object(it, list).is_some()))
    };
    if !is_set(own) && !is_set(old) {
        return causes;
    }
    let path = SPEC.child("resources");
    if let Some(old) = old {
        let Some(own) = own else {
            return vec![Cause::forbidden(&path, "pod-level resources cannot be removed")];
        };
        for list in ["requests", "limits"] {
            if is_removed(own, old, list) {
                let detail = format!("pod-level resource {list} cannot be removed");
                causes.push(Cause::forbidden(&path.child(list), &detail));
            }
        }
    }
    let rest = own.map(|own| old_amounts(own, old));
    let rest = rest.filter(|rest| old.is_some() || !rest.is_empty());
    let is_same = match (&rest, old) {
        (Some(rest), Some(old)) => same(rest, old),
        (rest, old) => rest.is_none() && old.is_none(),
    };
    if !is_same {
        causes.push(Cause::forbidden(&SPEC, "only cpu and memory resources are mutable at pod-level"));
    }
    causes
}

fn container_order(spec: &Tree, was: &Tree) -> Vec<Cause> {
    let mut causes = Vec::new();
    for key in CONTAINERS {
        let path = SPEC.child(key);
        if list(spec, key).len() != list(was, key).len() {
            causes.push(Cause::forbidden(&path, &format!("{key} may not be added or removed on resize")));
            continue;
        }
        for ((at, new), (_, old)) in items(spec, key).zip(items(was, key)) {
            if text(new, "name") != text(old, "name") {
                let container_path = path.index(at);
                let detail = format!("{key} may not be renamed or reordered on resize");
                causes.push(Cause::forbidden(&container_path.child("name"), &detail));
            }
        }
    }
    causes
}

fn is_removed(own: &Tree, old: &Tree, list: &str) -> bool {
    let own = object(own, list);
    object(old, list).into_iter().flatten().any(|(name, _)| !own.is_some_and(|own| own.contains_key(name)))
}

fn removed_resources(spec: &Tree, was: &Tree, key: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    let empty = Tree::new();
    for ((at, new), (_, old)) in items(spec, key).zip(items(was, key)) {
        let own = object(new, "resources").unwrap_or(&empty);
        let old = object(old, "resources").unwrap_or(&empty);
        for list in ["requests", "limits"] {
            if is_removed(own, old, list) {
                let field = format!("spec.{key}[{at}].resources.{list}");
                causes.push(Cause::forbidden(field, &format!("resource {list} cannot be removed")));
            }
        }
    }
    causes
}

/// Resources with the old amounts of what can change.
fn old_amounts(own: &Tree, old: Option<&Tree>) -> Tree {
    let mut resources = own.clone();
    for list in LISTS {
        let mut amounts = object(own, list).cloned().unwrap_or_default();
        amounts.retain(|name, _| !matches!(name.as_str(), "cpu" | "memory"));
        let was = old.and_then(|old| object(old, list)).into_iter().flatten();
        let was = was.filter(|(name, _)| matches!(name.as_str(), "cpu" | "memory"));
        amounts.extend(was.map(|(name, value)| (name.clone(), value.clone())));
        match amounts.is_empty() {
            true => resources.remove(list),
            false => resources.insert(list.to_owned(), Value::Object(amounts)),
        };
    }
    resources
}

/// A container with the old amounts of what can change, and nothing else of resources.
fn container_with_old_amounts(container: &Tree, old: &Tree) -> Tree {
    let empty = Map::new();
    let mut own = object(container, "resources").cloned().unwrap_or_default();
    own.retain(|key, _| LISTS.contains(&key.as_str()));
    let resources = old_amounts(&own, Some(object(old, "resources").unwrap_or(&empty)));
    let mut container = container.clone();
    container.insert("resources".to_owned(), Value::Object(resources));
    container
}

fn is_same_container(container: &Tree, old: &Tree) -> bool {
    let mut old = old.clone();
    old.entry("resources").or_insert_with(|| json!({}));
    same(container, &old)
}

fn changed_containers(spec: &Tree, was: &Tree) -> Vec<Cause> {
    let mut causes = Vec::new();
    for ((_, new), (_, old)) in items(spec, "containers").zip(items(was, "containers")) {
        if !is_same_container(&container_with_old_amounts(new, old), old) {
            causes.push(Cause::forbidden(&SPEC, "only cpu and memory resources are mutable"));
        }
    }
    for ((at, new), (_, old)) in items(spec, "initContainers").zip(items(was, "initContainers")) {
        let field = format!("spec.initContainers[{at}]");
        if !is_same_container(&container_with_old_amounts(new, old), old) {
            let detail = "only cpu and memory resources for init or sidecar containers are mutable";
            causes.push(Cause::forbidden(field.as_str(), detail));
        }
        if is_sidecar(new) || same(new, old) {
            continue;
        }
        let restarting =
            items(new, "resizePolicy").filter(|(_, it)| text(it, "restartPolicy") == "RestartContainer");
        let detail = "non-sidecar init containers with a resize policy of RestartContainer cannot be resized";
        causes.extend(restarting.map(|_| Cause::forbidden(field.as_str(), detail)));
    }
    causes
}

/// The spec with all old amounts of what can change.
fn with_old_amounts(spec: &Tree, was: &Tree) -> Tree {
    let mut spec = spec.clone();
    for key in CONTAINERS {
        let old = list(was, key).to_vec();
        for (container, old) in spec.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten().zip(old)
        {
            if let (Some(new), Some(old)) = (container.as_object(), old.as_object()) {
                let mut set_back = container_with_old_amounts(new, old);
                if !old.contains_key("resources") {
                    set_back.remove("resources");
                }
                *container = Value::Object(set_back);
            }
        }
    }
    let old = object(was, "resources");
    let resources = object(&spec, "resources").map(|own| old_amounts(own, old));
    let resources = resources.filter(|resources| old.is_some() || !resources.is_empty()).map(Value::Object);
    set(&mut spec, "resources", resources.as_ref());
    spec
}
