//! What the cluster knows about a pod that its author need not: tolerations, its runtime, its node.

use machinery::{Object, admission::pods, resource::Tree, status::Status};
use serde_json::Value;
use std::sync::Arc;
use store::Key;

use super::{Admission, Operation};

pub fn tolerate_for_a_while(admission: &Admission<'_>, object: &mut Tree) {
    if admission.is("", "pods") {
        pods::tolerate_for_a_while(object);
    }
}

/// The runtime class that a new pod names.
fn runtime_class(admission: &Admission<'_>, pod: &Tree) -> Result<Option<Tree>, Status> {
    let name = pod.get("spec").and_then(|spec| spec.get("runtimeClassName")).and_then(Value::as_str);
    let Some(name) = name else { return Ok(None) };
    let class = admission.context.space.get(&Key::new("node.k8s.io", "runtimeclasses", "", name));
    match class.and_then(|class| class.tree().ok()) {
        Some(class) => Ok(Some(class)),
        None => {
            let why = format!("pod rejected: RuntimeClass {name:?} not found");
            Err(admission.forbidden(Some(pod), &why))
        }
    }
}

fn is_new_pod(admission: &Admission<'_>) -> bool {
    admission.operation == Operation::Create && admission.is("", "pods")
}

pub fn set_runtime(admission: &Admission<'_>, object: &mut Tree) -> Result<(), Status> {
    if !is_new_pod(admission) {
        return Ok(());
    }
    match runtime_class(admission, object)? {
        Some(class) => {
            pods::set_runtime(object, &class).map_err(|why| admission.forbidden(Some(object), &why))
        }
        None => Ok(()),
    }
}

pub fn check_runtime(admission: &Admission<'_>, object: &Tree) -> Result<(), Status> {
    if !is_new_pod(admission) {
        return Ok(());
    }
    let class = runtime_class(admission, object)?;
    pods::check_overhead(object, class.as_ref()).map_err(|why| admission.forbidden(Some(object), &why))
}

fn node(admission: &Admission<'_>, name: &str) -> Option<Arc<Object>> {
    admission.context.space.get(&Key::new("", "nodes", "", name))
}

/// Says on a pod where its node is.
pub fn set_topology(admission: &Admission<'_>, object: &mut Tree) {
    let is_binding = admission.is_below("", "pods", "binding");
    if admission.operation != Operation::Create || !(is_binding || admission.is("", "pods")) {
        return;
    }
    let name = pods::node_of(object, is_binding);
    if name.is_empty() {
        return;
    }
    if let Some(node) = node(admission, name) {
        let labels = node.head.labels.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        pods::set_topology(object, labels);
    }
}

/// A pod that runs grows only as far as its node can give.
pub fn check_resize(admission: &Admission<'_>, object: &Tree) -> Result<(), Status> {
    let Some(old) = admission.old.filter(|_| admission.is_below("", "pods", "resize")) else {
        return Ok(());
    };
    let name = pods::node_of(object, false);
    let generation = |pod: &Tree| pod.get("metadata").and_then(|it| it.get("generation")).cloned();
    if name.is_empty() || generation(object) == generation(old) {
        return Ok(());
    }
    let Some(node) = node(admission, name).and_then(|node| node.tree().ok()) else {
        return Err(admission.forbidden(Some(object), &format!("node {name:?} not found")));
    };
    pods::check_resize(object, &node)
        .map_err(|(reason, why)| admission.forbidden(Some(object), &why).cause(reason, "", ""))
}
