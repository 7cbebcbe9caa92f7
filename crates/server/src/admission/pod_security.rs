//! What the namespace demands of pods: they are refused, or their authors are told.

use std::{collections::HashSet, sync::Arc, time::Duration};

use machinery::{
    Object,
    admission::pod_security::{self, Demand, Level, Policy, Survey},
    field_error::Cause,
    resource::Tree,
    status::Status,
};
use parking_lot::Mutex;
use serde_json::Value;
use store::{Collection, Key, WorkspaceId};

use super::{Admission, Notes, Operation};
use crate::context::Context;

const AUDIT: &str = "pod-security.kubernetes.io/";
/// At most so many pods are looked at when a namespace demands more, and for so long; as upstream.
const MOST_PODS: usize = 3000;
const PATIENCE: Duration = Duration::from_secs(1);
/// Others of the thread have their turn after so many.
const PODS_AT_ONCE: usize = 4;
/// What is done through these changes nothing that is judged.
const UNJUDGED: [&str; 8] =
    ["exec", "attach", "binding", "eviction", "log", "portforward", "proxy", "status"];

pub async fn check(admission: &Admission<'_>, object: &Tree, notes: &mut Notes) -> Result<(), Status> {
    let context = admission.context;
    let resource = &context.resource;
    if admission.operation == Operation::Delete {
        return Ok(());
    }
    match (resource.stored_group.as_str(), resource.plural.as_str()) {
        ("", "namespaces") if context.target.subresource.is_empty() => {
            check_namespace(admission, object, notes).await
        }
        ("", "pods") if !UNJUDGED.contains(&context.target.subresource.as_str()) => {
            check_pod(admission, object, notes)
        }
        (group, plural) if context.target.subresource.is_empty() => {
            if let Some(template) = pod_security::template_of(group, plural, object) {
                check_template(admission, template, notes);
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// What the namespace of the request demands.
fn policy(context: &Context) -> Option<(Policy, Vec<Cause>)> {
    let namespace = context.space.get(&Key::new("", "namespaces", "", &context.target.namespace))?;
    Some(Policy::of_labels(|label| namespace.head.label(label)))
}

fn annotate(admission: &Admission<'_>, key: &str, value: impl FnOnce() -> String) {
    admission.context.audit.annotate_with(|| (format!("{AUDIT}{key}"), value()));
}

fn check_pod(admission: &Admission<'_>, pod: &Tree, notes: &mut Notes) -> Result<(), Status> {
    let Some((policy, causes)) = policy(admission.context) else { return Ok(()) };
    if causes.is_empty() && policy.is_open() {
        annotate(admission, "enforce-policy", || policy.enforce.to_string());
        return Ok(());
    }
    if admission.old.is_some_and(|old| !pod_security::is_significant(pod, old)) {
        return Ok(());
    }
    tell_of_labels(admission, &causes);
    annotate(admission, "enforce-policy", || policy.enforce.to_string());
    let enforced = pod_security::evaluate(policy.enforce, pod);
    audit(admission, &policy, pod);
    if enforced.is_empty() {
        warn(&policy, pod, notes);
        return Ok(());
    }
    admission.context.hub.metrics.pod_security_refused.inc();
    let details = pod_security::details(&enforced);
    let why = format!("violates PodSecurity \"{}\": {details}", policy.enforce);
    Err(Status::forbidden(admission.context.about(admission.name), &why))
}

/// Whatever makes pods is let in; it is the pods that are refused.
fn check_template(admission: &Admission<'_>, template: &Tree, notes: &mut Notes) {
    let Some((policy, causes)) = policy(admission.context) else { return };
    tell_of_labels(admission, &causes);
    audit(admission, &policy, template);
    warn(&policy, template, notes);
}

fn tell_of_labels(admission: &Admission<'_>, causes: &[Cause]) {
    if causes.is_empty() {
        return;
    }
    annotate(admission, "error", || {
        let told: Vec<String> = causes.iter().map(|it| format!("{}: {}", it.field, it.message)).collect();
        match &told[..] {
            [one] => format!("Failed to parse policy: {one}"),
            many => format!("Failed to parse policy: [{}]", many.join(", ")),
        }
    });
}

fn would_violate(demand: Demand, pod: &Tree) -> Option<String> {
    let violations = pod_security::evaluate(demand, pod);
    let details = || pod_security::details(&violations);
    (!violations.is_empty()).then(|| format!("would violate PodSecurity \"{demand}\": {}", details()))
}

fn audit(admission: &Admission<'_>, policy: &Policy, pod: &Tree) {
    if admission.context.audit.is_on()
        && let Some(violations) = would_violate(policy.audit, pod)
    {
        annotate(admission, "audit-violations", || violations);
    }
}

fn warn(policy: &Policy, pod: &Tree, notes: &mut Notes) {
    notes.warnings.extend(would_violate(policy.warn, pod));
}

async fn check_namespace(admission: &Admission<'_>, new: &Tree, notes: &mut Notes) -> Result<(), Status> {
    let read = |namespace: &Tree| {
        let labels = namespace.get("metadata").and_then(|it| it.get("labels")).cloned();
        let labels = labels.unwrap_or_default();
        Policy::of_labels(|label| labels.get(label).and_then(Value::as_str))
    };
    let (policy, causes) = read(new);
    let old = admission.old.map(read);
    let known = old.as_ref().is_some_and(|(_, known)| *known == causes);
    if !causes.is_empty() && !known {
        return Err(Status::invalid("", "Namespace", admission.name, causes));
    }
    let Some((before, _)) = old else { return Ok(()) };
    let is_no_stricter = policy.enforce.level == Level::Privileged
        || (policy.enforce.version == before.enforce.version && policy.enforce.level <= before.enforce.level);
    if !is_no_stricter {
        notes.warnings.extend(survey(admission.context, admission.name, policy.enforce).await);
    }
    Ok(())
}

/// The workspaces in which pods are looked at because a namespace demands more: one such survey at a time.
#[derive(Default)]
pub struct Surveys(Arc<Mutex<HashSet<WorkspaceId>>>);

struct Surveying {
    workspace: WorkspaceId,
    all: Arc<Mutex<HashSet<WorkspaceId>>>,
}

impl Surveys {
    /// `None`: there is one already.
    fn begin(&self, workspace: &WorkspaceId) -> Option<Surveying> {
        let is_first = self.0.lock().insert(workspace.clone());
        is_first.then(|| Surveying { workspace: workspace.clone(), all: self.0.clone() })
    }
}

impl Drop for Surveying {
    fn drop(&mut self) {
        self.all.lock().remove(&self.workspace);
    }
}

/// What the pods that are there violate. One pod of each owner is looked at first. While the workspace is busy with
/// another namespace, none is looked at, and the warning says so.
async fn survey(context: &Context, namespace: &str, demand: Demand) -> Vec<String> {
    let mut survey = Survey::default();
    let listing = context.space.latest(&Collection::new("", "pods"));
    let Some(_surveying) = context.hub.surveys.begin(context.space.id()) else {
        let total = listing.iter(Some(namespace), None).count();
        return survey.warnings(namespace, demand, 0, total);
    };
    let pods = in_order(listing.iter(Some(namespace), None).map(|(_, pod)| pod.as_ref()));
    let total = pods.len();
    let deadline = context.hub.env.clock.elapsed() + PATIENCE;
    let mut checked = 0;
    for pod in pods.into_iter().take(MOST_PODS) {
        if let Ok(tree) = pod.tree() {
            survey.add(&pod.head.name, &pod_security::evaluate(demand, &tree));
        }
        checked += 1;
        if context.hub.env.clock.elapsed() > deadline {
            break;
        }
        if checked % PODS_AT_ONCE == 0 {
            tokio::task::yield_now().await;
        }
    }
    survey.warnings(namespace, demand, checked, total)
}

/// One pod of each owner first.
fn in_order<'a>(pods: impl Iterator<Item = &'a Object>) -> Vec<&'a Object> {
    let mut seen = HashSet::new();
    let is_first = |pod: &&Object| {
        let controller = pod.head.owners.iter().find(|owner| owner.controller);
        controller.is_none_or(|owner| seen.insert(owner.uid.clone()))
    };
    let (mut pods, others): (Vec<&Object>, Vec<&Object>) = pods.partition(is_first);
    pods.extend(others);
    pods
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workspace_has_one_survey_at_a_time() {
        let (surveys, [a, b]) = (Surveys::default(), ["a", "b"].map(|name| WorkspaceId(name.into())));
        let first = surveys.begin(&a);
        assert!(first.is_some());
        assert!(surveys.begin(&a).is_none(), "while the first is not done");
        assert!(surveys.begin(&b).is_some(), "others have their own");
        drop(first);
        assert!(surveys.begin(&a).is_some());
        assert!(surveys.0.lock().is_empty(), "nothing stays");
    }
}
