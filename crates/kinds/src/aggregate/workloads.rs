//! Deployments, ReplicaSets, StatefulSets and DaemonSets.

use serde_json::{Value, json};

use super::{
    Member, Whole,
    conditions::{self, condition, of, quote, status_of},
    set, total,
};
use crate::fields::{at, count, flag, put, text};

const PARTS: [&str; 3] = ["updatedReplicas", "readyReplicas", "availableReplicas"];

pub(crate) fn deployment(whole: &Whole<'_>) -> Value {
    let mut status = whole.base();
    let rollout = Rollout::of(whole);
    put(&mut status, "observedGeneration", whole.observed());
    set(&mut status, "replicas", rollout.replicas);
    set(&mut status, "updatedReplicas", rollout.updated);
    set(&mut status, "readyReplicas", whole.together("readyReplicas"));
    set(&mut status, "availableReplicas", rollout.available);
    set(&mut status, "unavailableReplicas", whole.together_at_most("unavailableReplicas"));
    terminating(whole, &mut status);
    let mut all = vec![available(whole, rollout.available)];
    all.extend(progressing(whole, &rollout));
    all.extend(replica_failure(whole));
    all.extend(conditions::merged(whole, &["Available", "Progressing", "ReplicaFailure"]));
    put(&mut status, "conditions", all);
    status
}

/// How far a rollout is.
struct Rollout {
    replicas: u64,
    updated: u64,
    available: u64,
}

impl Rollout {
    fn of(whole: &Whole<'_>) -> Self {
        Self {
            replicas: whole.present(&PARTS),
            updated: whole.within_shares("updatedReplicas"),
            available: whole.together("availableReplicas"),
        }
    }

    fn is_complete(&self, whole: &Whole<'_>) -> bool {
        whole.observed() == whole.generation
            && self.updated >= whole.wanted()
            && self.replicas <= self.updated
            && self.available >= self.updated
    }
}

/// `terminatingReplicas`, where members count them.
fn terminating(whole: &Whole<'_>, status: &mut Value) {
    if whole.all().any(|member| at(member.status(), "terminatingReplicas").is_some()) {
        put(status, "terminatingReplicas", whole.together_at_most("terminatingReplicas"));
    }
}

/// Every cluster has the least number of replicas it should; or, while a cluster leaves, all are still there.
fn available(whole: &Whole<'_>, available: u64) -> Value {
    let say = |status: &str, message: &str| {
        let reason = if status == "True" { "MinimumReplicasAvailable" } else { "MinimumReplicasUnavailable" };
        condition(whole, "Available", status, reason, message)
    };
    let wanted = whole.wanted();
    let left = total(whole.leaving().map(|member| member.count("availableReplicas")));
    let serving = left > 0 && available >= wanted;
    let short: Vec<&Member<'_>> = whole
        .staying()
        .filter(|member| member.share() > 0 && status_of(member.status(), "Available") != "True")
        .collect();
    if wanted == 0 || serving || (short.is_empty() && whole.shared() >= wanted) {
        return say("True", "Deployment has minimum availability.");
    }
    if whole.staying().next().is_none() {
        return say("False", NOWHERE);
    }
    match short.is_empty() {
        true => say("False", &unassigned(whole)),
        false => say("False", &format!("not in {}", super::name_some(short.iter().map(|it| it.name)))),
    }
}

const NOWHERE: &str = "no cluster is assigned";

fn unassigned(whole: &Whole<'_>) -> String {
    format!("{} of {} replicas are assigned to no cluster", whole.wanted() - whole.shared(), whole.wanted())
}

/// Of Deployments that give up after a while; others have no such condition.
fn progressing(whole: &Whole<'_>, rollout: &Rollout) -> Option<Value> {
    const KIND: &str = "Progressing";
    let deadline = count(whole.object, "spec.progressDeadlineSeconds");
    let watched = deadline.is_some_and(|seconds| seconds < i32::MAX as u64);
    let reported = whole.staying().any(|member| of(member.status(), KIND).is_some());
    if !watched && !reported {
        return None;
    }
    let reason = |member: &Member<'_>| {
        of(member.status(), KIND).map(|it| text(it, "reason").to_owned()).unwrap_or_default()
    };
    // What an older generation came to says nothing about this one.
    let stuck: Vec<&Member<'_>> = whole
        .staying()
        .filter(|it| it.known.source_generation == whole.generation)
        .filter(|it| reason(it) == "ProgressDeadlineExceeded")
        .collect();
    let all_in = |wanted: &str| {
        whole.staying().all(|it| reason(it) == wanted || (!watched && of(it.status(), KIND).is_none()))
    };
    let (status, reason, message) = if !stuck.is_empty() {
        ("False", "ProgressDeadlineExceeded", quote(whole, KIND, &stuck))
    } else if whole.staying().next().is_none() && whole.wanted() > 0 {
        ("False", "NotAssigned", NOWHERE.to_owned())
    } else if flag(whole.object, "spec.paused") && all_in("DeploymentPaused") {
        ("Unknown", "DeploymentPaused", "Deployment is paused".to_owned())
    } else if rollout.is_complete(whole) && all_in("NewReplicaSetAvailable") {
        ("True", "NewReplicaSetAvailable", "Deployment has successfully progressed.".to_owned())
    } else if whole.shared() < whole.wanted() {
        ("True", "ReplicaSetUpdated", unassigned(whole))
    } else {
        ("True", "ReplicaSetUpdated", waiting(whole))
    };
    Some(condition(whole, KIND, status, reason, &message))
}

/// Which clusters keep the whole from being done.
fn waiting(whole: &Whole<'_>) -> String {
    let mut parts = Vec::new();
    let silent = whole.names(|member| !member.known.reachable);
    if !silent.is_empty() {
        parts.push(format!("as seen last in {silent}, which do not answer"));
    }
    let behind = whole.names(|it| !it.known.leaving && it.known.source_generation != whole.generation);
    if !behind.is_empty() {
        parts.push(format!("not yet written to {behind}"));
    }
    let leaving = whole.names(|member| member.known.leaving);
    if !leaving.is_empty() {
        parts.push(format!("leaving {leaving}"));
    }
    // Where others are done, it is these that are waited for.
    let is_done = |it: &Member<'_>| {
        of(it.status(), "Progressing").is_some_and(|it| text(it, "reason") == "NewReplicaSetAvailable")
    };
    let is_current = |it: &Member<'_>| {
        !it.known.leaving && it.known.reachable && it.known.source_generation == whole.generation
    };
    let unfinished = whole.names(|it| is_current(it) && !is_done(it));
    if !unfinished.is_empty() && whole.staying().any(|it| is_current(it) && is_done(it)) {
        parts.push(format!("not done in {unfinished}"));
    }
    match parts.is_empty() {
        true => "Deployment is progressing.".to_owned(),
        false => format!("Deployment is progressing: {}.", parts.join("; ")),
    }
}

/// Any replica that cannot be made.
fn replica_failure(whole: &Whole<'_>) -> Option<Value> {
    const KIND: &str = "ReplicaFailure";
    let failing: Vec<&Member<'_>> =
        whole.staying().filter(|member| status_of(member.status(), KIND) == "True").collect();
    (!failing.is_empty()).then(|| conditions::decided(whole, KIND, "True", &failing))
}

pub(crate) fn replica_set(whole: &Whole<'_>) -> Value {
    let mut status = whole.base();
    put(&mut status, "observedGeneration", whole.observed());
    put(
        &mut status,
        "replicas",
        whole.present(&["fullyLabeledReplicas", "readyReplicas", "availableReplicas"]),
    );
    for field in ["fullyLabeledReplicas", "readyReplicas", "availableReplicas"] {
        set(&mut status, field, whole.within_shares(field));
    }
    terminating(whole, &mut status);
    let mut all: Vec<Value> = replica_failure(whole).into_iter().collect();
    all.extend(conditions::merged(whole, &["ReplicaFailure"]));
    set_conditions(&mut status, all);
    status
}

fn set_conditions(status: &mut Value, conditions: Vec<Value>) {
    match conditions.is_empty() {
        true => {
            crate::fields::remove(status, "conditions");
        }
        false => put(status, "conditions", conditions),
    }
}

pub(crate) fn stateful_set(whole: &Whole<'_>) -> Value {
    let mut status = whole.base();
    put(&mut status, "observedGeneration", whole.observed());
    put(&mut status, "replicas", whole.present(&PARTS));
    set(&mut status, "readyReplicas", whole.within_shares("readyReplicas"));
    put(&mut status, "availableReplicas", whole.within_shares("availableReplicas"));
    set(&mut status, "currentReplicas", whole.within_shares("currentReplicas"));
    set(&mut status, "updatedReplicas", updated_in_partitions(whole));
    revisions(whole, &mut status);
    set_conditions(&mut status, conditions::merged(whole, &[]));
    status
}

/// A cluster has only those ordinals to update that are not below the partition. What one of them lacks must show in
/// the sum, even where another has updated more than it had to.
fn updated_in_partitions(whole: &Whole<'_>) -> u64 {
    const FIELD: &str = "updatedReplicas";
    let updated = whole.within_shares(FIELD);
    let partition = count(whole.object, "spec.updateStrategy.rollingUpdate.partition").unwrap_or(0);
    if partition == 0 || whole.sole().is_some() || whole.is_duplicated() {
        return updated;
    }
    let first = count(whole.object, "spec.ordinals.start").unwrap_or(0);
    let lacking = whole.staying().map(|member| {
        let start = member.known.assigned.ordinals.unwrap_or(first);
        let kept = first.saturating_add(partition).saturating_sub(start).min(member.share());
        (member.share() - kept).saturating_sub(member.count(FIELD))
    });
    match total(lacking) {
        0 => updated,
        lacking => updated.min(whole.wanted().saturating_sub(partition).saturating_sub(lacking)),
    }
}

/// The names of revisions are made of the pods' template, so copies have the same ones unless their clusters changed
/// something. Two different ones say that an update is under way, so they are those of a cluster where it is.
fn revisions(whole: &Whole<'_>, status: &mut Value) {
    const FIELDS: [&str; 2] = ["currentRevision", "updateRevision"];
    let of = |member: &Member<'_>| FIELDS.map(|field| text(member.status(), field).to_owned());
    let all = || whole.staying().filter(|member| member.status().is_object());
    let updating = all().find(|member| of(member)[0] != of(member)[1]);
    let Some(shown) = updating.or_else(|| all().next()) else { return };
    for (field, revision) in FIELDS.into_iter().zip(of(shown)) {
        if !revision.is_empty() {
            put(status, field, revision);
        }
    }
}

/// Each cluster has its own number of nodes, so the sums are of what each wants.
pub(crate) fn daemon_set(whole: &Whole<'_>) -> Value {
    const WANTED: &str = "desiredNumberScheduled";
    let mut status = whole.base();
    put(&mut status, "observedGeneration", whole.observed());
    let sum = |field: &str| {
        total(whole.staying().map(|member| match whole.sole() {
            Some(_) => member.count(field),
            None => member.count(field).min(member.count(WANTED)),
        }))
    };
    for field in [WANTED, "currentNumberScheduled", "numberReady"] {
        put(&mut status, field, sum(field));
    }
    for field in ["updatedNumberScheduled", "numberAvailable"] {
        set(&mut status, field, sum(field));
    }
    let unavailable = total(whole.staying().map(|member| member.count("numberUnavailable")));
    set(&mut status, "numberUnavailable", unavailable);
    let misplaced = total(whole.staying().map(|member| member.count("numberMisscheduled")));
    let leaving = total(whole.leaving().map(|member| member.count("currentNumberScheduled")));
    put(&mut status, "numberMisscheduled", json!(misplaced.saturating_add(leaving)));
    set_conditions(&mut status, conditions::merged(whole, &[]));
    status
}
