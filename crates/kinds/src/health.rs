//! How an object does, judged by its own status: by the rules that `kubectl rollout status`, kstatus and Argo CD have
//! in common, and where they differ by the more careful one.

use serde_json::Value;

use crate::{
    fields::{at, count, flag, group_version, list, number, put, text},
    kind::{Kind, of},
    types::{Health, MemberStatus, Split},
};

/// How an object does, judged by its own status.
pub fn health(object: &Value) -> Health {
    let (group, _) = group_version(text(object, "apiVersion"));
    of(group, text(object, "kind")).health(object)
}

impl Kind {
    /// How the copy in a member does, by what was seen of it last.
    pub fn member_health(&self, object: &Value, member: &MemberStatus) -> Health {
        if !member.reachable {
            return Health::Unknown("the cluster does not answer".to_owned());
        }
        if member.source_generation == 0 || member.status.is_null() && self.observes {
            return Health::Progressing("there is no copy yet".to_owned());
        }
        let mut copy = object.clone();
        put(&mut copy, "metadata.generation", member.generation);
        put(&mut copy, "status", member.status.clone());
        if let Some(path) = self.replicas().filter(|_| self.split != Split::Whole) {
            put(&mut copy, path, member.assigned.replicas);
        }
        (self.health)(&copy)
    }
}

pub(crate) fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    list(object, "status.conditions").iter().find(|it| text(it, "type") == kind)
}

fn has(object: &Value, kind: &str, status: &str) -> bool {
    condition(object, kind).is_some_and(|it| text(it, "status") == status)
}

fn said(condition: &Value) -> String {
    match (text(condition, "message"), text(condition, "reason")) {
        ("", reason) => reason.to_owned(),
        (message, _) => message.to_owned(),
    }
}

/// Why the status is not about the object as it is now.
fn unobserved(object: &Value) -> Option<Health> {
    let behind = number(object, "metadata.generation") > number(object, "status.observedGeneration");
    behind.then(|| Health::Progressing("the change has not been observed yet".to_owned()))
}

/// The first of these that is short of what is wanted.
fn short(rows: &[(u64, u64, &str)]) -> Option<Health> {
    rows.iter()
        .find(|(there, wanted, _)| there < wanted)
        .map(|(there, wanted, what)| Health::Progressing(format!("{there} of {wanted} {what}")))
}

fn surplus(there: u64, wanted: u64) -> Option<Health> {
    (there > wanted)
        .then(|| Health::Progressing(format!("{} surplus replicas have yet to end", there - wanted)))
}

fn replicas(object: &Value, field: &str) -> u64 {
    count(object, &format!("status.{field}")).unwrap_or(0)
}

pub(crate) fn always(_: &Value) -> Health {
    Health::Healthy
}

pub(crate) fn deployment(object: &Value) -> Health {
    if flag(object, "spec.paused") {
        return Health::Suspended;
    }
    if let Some(waiting) = unobserved(object) {
        return waiting;
    }
    let stuck =
        condition(object, "Progressing").filter(|it| text(it, "reason") == "ProgressDeadlineExceeded");
    if let Some(stuck) = stuck {
        return Health::Degraded(said(stuck));
    }
    let wanted = count(object, "spec.replicas").unwrap_or(1);
    let updated = replicas(object, "updatedReplicas");
    short(&[(updated, wanted, "replicas are updated")])
        .or_else(|| surplus(replicas(object, "replicas"), updated.min(wanted)))
        .or_else(|| short(&[(replicas(object, "availableReplicas"), wanted, "replicas are available")]))
        .unwrap_or(Health::Healthy)
}

pub(crate) fn replica_set(object: &Value) -> Health {
    if let Some(waiting) = unobserved(object) {
        return waiting;
    }
    if let Some(failure) = condition(object, "ReplicaFailure").filter(|it| text(it, "status") == "True") {
        return Health::Degraded(said(failure));
    }
    let wanted = count(object, "spec.replicas").unwrap_or(1);
    short(&[(replicas(object, "availableReplicas"), wanted, "replicas are available")])
        .or_else(|| surplus(replicas(object, "replicas"), wanted))
        .unwrap_or(Health::Healthy)
}

pub(crate) fn stateful_set(object: &Value) -> Health {
    if number(object, "status.observedGeneration") == 0 {
        return Health::Progressing("nothing has been observed yet".to_owned());
    }
    if let Some(waiting) = unobserved(object) {
        return waiting;
    }
    let wanted = count(object, "spec.replicas").unwrap_or(1);
    if let Some(waiting) = short(&[(replicas(object, "readyReplicas"), wanted, "replicas are ready")])
        .or_else(|| surplus(replicas(object, "replicas"), wanted))
    {
        return waiting;
    }
    if text(object, "spec.updateStrategy.type") == "OnDelete" {
        return Health::Healthy;
    }
    let partition = count(object, "spec.updateStrategy.rollingUpdate.partition");
    let updated = replicas(object, "updatedReplicas");
    let to_update = wanted.saturating_sub(partition.unwrap_or(0));
    if let Some(waiting) = short(&[(updated, to_update, "replicas are updated")]) {
        return waiting;
    }
    let same = text(object, "status.currentRevision") == text(object, "status.updateRevision");
    match same || partition.is_some_and(|partition| partition > 0) {
        true => Health::Healthy,
        false => Health::Progressing("the new revision is not everywhere yet".to_owned()),
    }
}

pub(crate) fn daemon_set(object: &Value) -> Health {
    if let Some(waiting) = unobserved(object) {
        return waiting;
    }
    let Some(wanted) = count(object, "status.desiredNumberScheduled") else {
        return Health::Progressing("it is not known yet on how many nodes it runs".to_owned());
    };
    let available = (replicas(object, "numberAvailable"), wanted, "pods are available");
    if text(object, "spec.updateStrategy.type") == "OnDelete" {
        return short(&[available]).unwrap_or(Health::Healthy);
    }
    let updated = (replicas(object, "updatedNumberScheduled"), wanted, "pods are updated");
    short(&[updated, available]).unwrap_or(Health::Healthy)
}

pub(crate) fn job(object: &Value) -> Health {
    if let Some(failed) = condition(object, "Failed").filter(|it| text(it, "status") == "True") {
        return Health::Degraded(said(failed));
    }
    if has(object, "Complete", "True") {
        return Health::Healthy;
    }
    match has(object, "Suspended", "True") {
        true => Health::Suspended,
        false => Health::Progressing(format!("{} pods have succeeded", replicas(object, "succeeded"))),
    }
}

pub(crate) fn cron_job(object: &Value) -> Health {
    match flag(object, "spec.suspend") {
        true => Health::Suspended,
        false => Health::Healthy,
    }
}

pub(crate) fn pod(object: &Value) -> Health {
    match text(object, "status.phase") {
        "Succeeded" => return Health::Healthy,
        "Failed" => return Health::Degraded(text(object, "status.message").to_owned()),
        "Running" if has(object, "Ready", "True") => return Health::Healthy,
        _ => {}
    }
    let statuses = ["status.initContainerStatuses", "status.containerStatuses"];
    let waiting = statuses
        .into_iter()
        .flat_map(|path| list(object, path))
        .filter_map(|it| at(it, "state.waiting"))
        .find(|it| {
            let reason = text(it, "reason");
            reason.starts_with("Err") || reason.ends_with("Error") || reason.ends_with("BackOff")
        });
    if let Some(waiting) = waiting {
        return Health::Degraded(said(waiting));
    }
    let unscheduled = condition(object, "PodScheduled").filter(|it| text(it, "status") == "False");
    match (unscheduled, text(object, "status.phase")) {
        (Some(unscheduled), _) => Health::Progressing(said(unscheduled)),
        (None, "") => Health::Progressing("it has not been seen yet".to_owned()),
        (None, phase) => Health::Progressing(format!("its phase is {phase}")),
    }
}

pub(crate) fn autoscaler(object: &Value) -> Health {
    const BROKEN: [(&str, &str); 4] = [
        ("AbleToScale", "FailedGetScale"),
        ("AbleToScale", "FailedUpdateScale"),
        ("ScalingActive", "FailedGetResourceMetric"),
        ("ScalingActive", "InvalidSelector"),
    ];
    let conditions = list(object, "status.conditions");
    let broken = conditions
        .iter()
        .find(|it| text(it, "status") == "False" && BROKEN.contains(&(text(it, "type"), text(it, "reason"))));
    if let Some(broken) = broken {
        return Health::Degraded(said(broken));
    }
    match has(object, "AbleToScale", "True") && condition(object, "ScalingActive").is_some() {
        true => Health::Healthy,
        false => Health::Progressing("it does not scale yet".to_owned()),
    }
}

pub(crate) fn budget(object: &Value) -> Health {
    unobserved(object)
        .or_else(|| {
            let healthy = replicas(object, "currentHealthy");
            short(&[(healthy, replicas(object, "desiredHealthy"), "pods are healthy")])
        })
        .unwrap_or(Health::Healthy)
}

pub(crate) fn claim(object: &Value) -> Health {
    match text(object, "status.phase") {
        "Bound" => Health::Healthy,
        "Lost" => Health::Degraded("its volume is lost".to_owned()),
        _ => Health::Progressing("it is not bound yet".to_owned()),
    }
}

pub(crate) fn volume(object: &Value) -> Health {
    match text(object, "status.phase") {
        "Available" | "Bound" | "Released" => Health::Healthy,
        "Failed" => Health::Degraded(text(object, "status.message").to_owned()),
        _ => Health::Progressing("it is not available yet".to_owned()),
    }
}

pub(crate) fn service(object: &Value) -> Health {
    match text(object, "spec.type") {
        "LoadBalancer" => ingress(object),
        _ => Health::Healthy,
    }
}

pub(crate) fn ingress(object: &Value) -> Health {
    match list(object, "status.loadBalancer.ingress").is_empty() {
        true => Health::Progressing("it has no address yet".to_owned()),
        false => Health::Healthy,
    }
}

pub(crate) fn namespace(object: &Value) -> Health {
    match text(object, "status.phase") {
        "Terminating" => Health::Progressing("it is being deleted".to_owned()),
        _ => Health::Healthy,
    }
}

/// By the conditions that many definitions have in common.
pub(crate) fn generic(object: &Value) -> Health {
    if at(object, "status.observedGeneration").is_some()
        && let Some(waiting) = unobserved(object)
    {
        return waiting;
    }
    let is_true = |kind: &&str| has(object, kind, "True");
    if let Some(broken) = ["Stalled", "Degraded", "Failed"].into_iter().find(is_true) {
        return Health::Degraded(condition(object, broken).map(said).unwrap_or_default());
    }
    if has(object, "Reconciling", "True") {
        return Health::Progressing(condition(object, "Reconciling").map(said).unwrap_or_default());
    }
    for kind in ["Ready", "Available", "Healthy", "Complete", "Succeeded"] {
        match condition(object, kind) {
            Some(it) if text(it, "status") == "True" => return Health::Healthy,
            Some(it) => return Health::Progressing(said(it)),
            None => {}
        }
    }
    Health::Unknown("nothing in its status says how it does".to_owned())
}
