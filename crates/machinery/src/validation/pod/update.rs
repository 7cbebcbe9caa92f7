//! A pod that is there: little of it can change.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{
    super::parts::{Path, items, list, number, object, text, tolerations},
    NOWHERE,
    annotations::{self, MIRROR},
    containers, create,
    equality::same,
    options::Options,
    shape,
};
use crate::{field_error::Cause, names, resource::Tree};

const SPEC: Path<'_> = Path::new("spec");
const ANNOTATIONS: Path<'_> = Path::new("metadata.annotations");
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const CHANGEABLE: &str = "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// The leniency that an update of a pod gets.
pub fn options(old: &Tree) -> Options {
    let empty = Tree::new();
    Options::of_update(true, object(old, "spec").unwrap_or(&empty), object(old, "metadata"))
}

/// The annotations of a changed pod: some stay, and all are checked.
pub fn changed_annotations(new: &Tree, old: &Tree, options: &Options) -> Vec<Cause> {
    let empty = Tree::new();
    let (metadata, own_spec) = (object(new, "metadata"), object(new, "spec").unwrap_or(&empty));
    let mut causes = annotations::fixed_annotations(metadata, object(old, "metadata"), &ANNOTATIONS);
    let any_cost = options.any_deletion_cost;
    causes.extend(annotations::annotations(metadata, own_spec, any_cost, &ANNOTATIONS));
    causes
}

pub fn changed_pod(new: &Tree, old: &Tree) -> Vec<Cause> {
    let options = options(old);
    let mut causes = create::every_pod(new, &options);
    causes.extend(changed_annotations(new, old, &options));
    let empty = Tree::new();
    let (new, old) = (object(new, "spec").unwrap_or(&empty), object(old, "spec").unwrap_or(&empty));
    for key in ["containers", "initContainers"] {
        let path = SPEC.child(key);
        if list(new, key).len() != list(old, key).len() {
            causes.push(Cause::forbidden(&path, "pod updates may not add or remove containers"));
            return causes;
        }
        for (at, container) in items(new, key) {
            let container_path = path.index(at);
            if text(container, "image").is_empty() {
                causes.push(Cause::required(&container_path.child("image"), ""));
            }
            causes.extend(containers::padded_image(container, &container_path));
        }
    }
    match deadline(new, old) {
        Ok(cause) => causes.extend(cause),
        Err(cause) => {
            causes.push(cause);
            return causes;
        }
    }
    causes.extend(only_added_tolerations(new, old));
    causes.extend(only_removed_gates(new, old));
    if !same(new, old) {
        causes.extend(fixed_spec(new, old));
    }
    causes
}

/// A deadline only comes nearer. On `Err` nothing else counts.
fn deadline(new: &Tree, old: &Tree) -> Result<Option<Cause>, Cause> {
    const KEY: &str = "activeDeadlineSeconds";
    let path = SPEC.child(KEY);
    let was = number(old, KEY);
    let Some(seconds) = number(new, KEY) else {
        let detail = "must not update from a positive integer to nil value";
        return Ok(was.map(|_| Cause::invalid(&path, &Value::Null, detail)));
    };
    let wrong = |detail: &str| Cause::invalid(&path, &json!(seconds), detail);
    if let Some(reason) = names::is_in_range(seconds, 0, i64::from(i32::MAX)).first() {
        return Err(wrong(reason));
    }
    match was {
        Some(was) if was < seconds => Err(wrong("must be less than or equal to previous value")),
        _ => Ok(None),
    }
}

fn only_added_tolerations(new: &Tree, old: &Tree) -> Vec<Cause> {
    const KEY: &str = "tolerations";
    let identity = |toleration: &Tree| {
        ["key", "operator", "value", "effect"].map(|key| text(toleration, key).to_owned())
    };
    let now: BTreeSet<[String; 4]> = items(new, KEY).map(|(_, toleration)| identity(toleration)).collect();
    if !items(old, KEY).all(|(_, toleration)| now.contains(&identity(toleration))) {
        let detail = "existing toleration can not be modified except its tolerationSeconds";
        return vec![Cause::forbidden(&SPEC.child(KEY), detail)];
    }
    tolerations(new, KEY, &SPEC)
}

fn only_removed_gates(new: &Tree, old: &Tree) -> Vec<Cause> {
    const KEY: &str = "schedulingGates";
    let was: BTreeSet<&str> = items(old, KEY).map(|(_, gate)| text(gate, "name")).collect();
    let added = items(new, KEY).filter(|(_, gate)| !was.contains(text(gate, "name")));
    let mut causes: Vec<Cause> = added
        .map(|(at, gate)| {
            let name = text(gate, "name");
            let detail = format!("only deletion is allowed, but found new scheduling gate '{name}'");
            Cause::forbidden(format!("spec.{KEY}[{at}].name"), &detail)
        })
        .collect();
    causes.dedup_by(|one, other| one.message == other.message);
    causes
}

/// What is left when all is set back that may change must be as it was.
fn fixed_spec(new: &Tree, old: &Tree) -> Vec<Cause> {
    let mut rest = new.clone();
    for key in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        set_back(&mut rest, old, key);
    }
    for key in ["containers", "initContainers"] {
        let was = list(old, key).to_vec();
        for (container, was) in rest.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten().zip(was)
        {
            if let (Some(container), Some(was)) = (container.as_object_mut(), was.as_object()) {
                set_back(container, was, "image");
            }
        }
    }
    const GRACE: &str = "terminationGracePeriodSeconds";
    if number(old, GRACE).is_some_and(|was| was < 0) && number(&rest, GRACE) == Some(1) {
        set_back(&mut rest, old, GRACE);
    }
    let mut causes = Vec::new();
    if !list(old, "schedulingGates").is_empty() {
        causes.extend(node_of_gated_pod(&mut rest, old));
    }
    if !same(&rest, old) {
        let changes = shape::spec_changes(old, &rest);
        let detail = format!("pod updates may not change fields other than {CHANGEABLE}\n{changes}");
        causes.push(Cause::forbidden(&SPEC, &detail));
    }
    causes
}

fn set_back(new: &mut Tree, old: &Tree, key: &str) {
    match old.get(key) {
        Some(was) => new.insert(key.to_owned(), was.clone()),
        None => new.remove(key),
    };
}

/// As long as a pod is held back from the scheduler, where it can go can be narrowed.
fn node_of_gated_pod(rest: &mut Tree, old: &Tree) -> Vec<Cause> {
    let mut causes = Vec::new();
    if rest.get("nodeSelector") != old.get("nodeSelector") {
        let selector = object(rest, "nodeSelector");
        let was = object(old, "nodeSelector").into_iter().flatten();
        let mut kept = was.map(|(key, value)| selector.is_some_and(|it| it.get(key) == Some(value)));
        if !kept.all(|kept| kept) {
            let shown = json!(rest.get("nodeSelector"));
            let detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
            causes.push(Cause::invalid(&SPEC.child("nodeSelector"), &shown, detail));
        }
        set_back(rest, old, "nodeSelector");
    }
    let of_nodes =
        |spec: &Tree| object(spec, "affinity").and_then(|affinity| affinity.get("nodeAffinity")).cloned();
    let (now, was) = (of_nodes(rest), of_nodes(old));
    if now == was {
        return causes;
    }
    causes.extend(narrowed_affinity(now.as_ref(), was.as_ref()));
    let mut affinity = object(rest, "affinity").cloned().unwrap_or_default();
    match was {
        Some(was) => affinity.insert("nodeAffinity".to_owned(), was),
        None => affinity.remove("nodeAffinity"),
    };
    if affinity.is_empty() && !old.contains_key("affinity") {
        rest.remove("affinity");
    } else {
        rest.insert("affinity".to_owned(), Value::Object(affinity));
    }
    causes
}

fn narrowed_affinity(now: Option<&Value>, was: Option<&Value>) -> Vec<Cause> {
    let terms = |affinity: Option<&Value>| {
        let required = affinity.and_then(|affinity| affinity.get(REQUIRED));
        let terms = required.and_then(|it| it.get("nodeSelectorTerms")).and_then(Value::as_array);
        terms.cloned().unwrap_or_default()
    };
    let (now, was) = (terms(now), terms(was));
    let field = format!("spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms");
    if !was.is_empty() && was.len() != now.len() {
        let shown = shape::shown_list("NodeSelectorTerm", &now);
        let detail = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        return vec![Cause::invalid_text(field, &shown, detail)];
    }
    let pairs = now.iter().zip(&was).enumerate();
    let terms = pairs.filter_map(|(at, (now, was))| Some((at, now.as_object()?, was.as_object()?)));
    let widened = terms.filter(|(_, now, was)| !has_only_additions(now, was));
    let detail = "only additions are allowed (no mutations or deletions)";
    widened
        .map(|(at, now, _)| {
            Cause::invalid_text(format!("{field}[{at}]"), &shape::shown("NodeSelectorTerm", now), detail)
        })
        .collect()
}

fn has_only_additions(now: &Tree, was: &Tree) -> bool {
    const KEYS: [&str; 2] = ["matchExpressions", "matchFields"];
    // A term without requirements matches no node; it cannot get any.
    if KEYS.iter().all(|key| list(was, key).is_empty()) {
        return KEYS.iter().all(|key| list(now, key).is_empty());
    }
    KEYS.iter().all(|key| list(now, key).starts_with(list(was, key)))
}

/// What a path of its own for a part of the spec does not change.
pub fn keep_metadata(new: &mut Tree, old: &Tree) {
    let empty = Tree::new();
    let was = object(old, "metadata").unwrap_or(&empty);
    let Some(metadata) = new.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    for key in ["labels", "annotations", "finalizers", "ownerReferences"] {
        set_back(metadata, was, key);
    }
}

/// Of the new pod only the containers for debugging count.
pub fn only_ephemeral_containers(new: &mut Tree, old: &Tree) {
    const KEY: &str = "ephemeralContainers";
    let sent = object(new, "spec").cloned().unwrap_or_default();
    let mut spec = object(old, "spec").cloned().unwrap_or_default();
    set_back(&mut spec, &sent, KEY);
    new.insert("spec".to_owned(), Value::Object(spec));
    set_back(new, old, "status");
    keep_metadata(new, old);
}

/// Containers for debugging are added; they do not change, and they do not go.
pub fn added_ephemeral_containers(new: &Tree, old: &Tree) -> Vec<Cause> {
    const KEY: &str = "ephemeralContainers";
    if annotations::annotation(object(old, "metadata"), MIRROR).is_some() {
        return vec![Cause::forbidden(NOWHERE, "static pods do not support ephemeral containers")];
    }
    let options = options(old);
    let mut causes = create::every_pod(new, &options);
    causes.extend(changed_annotations(new, old, &options));
    let empty = Tree::new();
    let (new, old) = (object(new, "spec").unwrap_or(&empty), object(old, "spec").unwrap_or(&empty));
    for (_, was) in items(old, KEY) {
        let name = text(was, "name");
        let quoted = crate::gotext::quote(name);
        let detail = match items(new, KEY).filter(|(_, it)| text(it, "name") == name).last() {
            None => format!("existing ephemeral containers {quoted} may not be removed\n"),
            Some((_, now)) if same(now, was) => continue,
            Some((_, now)) => {
                let changes = shape::changes("EphemeralContainer", was, now);
                format!("existing ephemeral containers {quoted} may not be changed\n{changes}")
            }
        };
        causes.push(Cause::forbidden(&SPEC.child(KEY), &detail));
    }
    causes
}
