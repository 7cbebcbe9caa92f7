//! Virtual nodes stand for clusters. They are written by the hub alone, whatever roles allow; but whoever may change nodes
//! may cordon one.

use machinery::{resource::Tree, status::Status};
use serde_json::Value;

use super::{Admission, Operation};

/// What changes with every write, and says nothing.
const UNSAID: [&str; 3] = ["managedFields", "resourceVersion", "generation"];

/// The cluster that a node stands for.
fn cluster_of(node: &Tree) -> Option<&str> {
    node.get("metadata")?.get("labels")?.get(api::CLUSTER_LABEL)?.as_str()
}

/// A node but for what everybody may change.
fn fixed(node: &Tree) -> Tree {
    let mut node = node.clone();
    if let Some(metadata) = node.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|key, _| !UNSAID.contains(&key.as_str()));
    }
    if let Some(spec) = node.get_mut("spec").and_then(Value::as_object_mut) {
        spec.remove("unschedulable");
    }
    // What is empty may be left out.
    node.retain(|_, value| value.as_object().is_none_or(|part| !part.is_empty()));
    node
}

pub fn check(admission: &Admission<'_>, object: Option<&Tree>) -> Result<(), Status> {
    let kind = &admission.context.resource;
    if kind.plural != "nodes" || !kind.stored_group.is_empty() || admission.context.user.is_hub {
        return Ok(());
    }
    let before = admission.old.and_then(cluster_of);
    let why = match (before, object.and_then(cluster_of)) {
        (None, None) => return Ok(()),
        (None, Some(_)) => format!("the label {} is for nodes that stand for clusters", api::CLUSTER_LABEL),
        (Some(cluster), _) if admission.operation == Operation::Delete => {
            format!("it stands for cluster {cluster}, and goes when that is unjoined: hanse unjoin {cluster}")
        }
        (Some(_), _) if admission.old.map(fixed) == object.map(fixed) => return Ok(()),
        (Some(cluster), _) => format!(
            "it stands for cluster {cluster} and is written by Hanse: it can be cordoned and uncordoned, and labels and \
             taints are those of the cluster (kubectl edit cluster {cluster})"
        ),
    };
    Err(admission.forbidden(object.or(admission.old), &why))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tree(value: Value) -> Tree {
        value.as_object().cloned().unwrap_or_default()
    }

    #[test]
    fn whether_it_is_cordoned_is_not_fixed() {
        let plain = tree(json!({"metadata": {"name": "eu-1", "resourceVersion": "1"}}));
        let cordoned =
            json!({"metadata": {"name": "eu-1", "managedFields": []}, "spec": {"unschedulable": true}});
        assert_eq!(fixed(&plain), fixed(&tree(cordoned)));
        for other in [
            json!({"metadata": {"name": "eu-1", "labels": {"a": "b"}}}),
            json!({"metadata": {"name": "eu-1"}, "spec": {"taints": []}}),
            json!({"metadata": {"name": "eu-1"}, "status": {"phase": "Running"}}),
        ] {
            assert_ne!(fixed(&plain), fixed(&tree(other.clone())), "{other}");
        }
    }
}
