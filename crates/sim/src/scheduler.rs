//! Puts pods on nodes: filters by what they need and tolerate, prefers by what they like and where there is room.

mod affinity;
mod room;
mod spread;
mod volumes;

use std::{collections::BTreeMap, sync::Arc};

use machinery::selector::LabelSelector;
use serde_json::{Value, json};

use crate::{
    Action, Kind, Plan, Pod, World,
    controllers::{Changed, Controller, Name, placement},
    kind::{CLAIMS, NODES, PODS, VOLUMES},
    tree,
};

pub struct Scheduler;

/// A node with the pods on it that are not finished.
struct Candidate {
    node: Value,
    name: String,
    pods: Vec<Arc<Pod>>,
}

/// Why a node does not do, as the scheduler says it; and whether removing other pods could help.
struct Unfit {
    why: String,
    hopeless: bool,
}

fn unfit(why: impl Into<String>) -> Option<Unfit> {
    Some(Unfit { why: why.into(), hopeless: false })
}

fn hopeless(why: impl Into<String>) -> Option<Unfit> {
    Some(Unfit { why: why.into(), hopeless: true })
}

/// Those that keep pods away.
const HARD_TAINTS: &[&str] = &["NoSchedule", "NoExecute"];

fn tolerations(pod: &Value) -> Vec<Value> {
    tree::items(pod, "/spec/tolerations").cloned().collect()
}

/// The first taint of these effects that the pod does not bear.
fn untolerated(candidate: &Candidate, tolerations: &[Value], effects: &[&str]) -> Option<Value> {
    placement::untolerated(&placement::taints(&candidate.node), tolerations, effects).cloned()
}

fn is_wanted(pod: &Value, candidate: &Candidate) -> bool {
    pod.get("spec").is_some_and(|spec| placement::selects(spec, &candidate.node))
}

/// By preferred node affinity: the sum of the weights of what holds.
fn preference(pod: &Value, candidate: &Candidate) -> i64 {
    let preferred = "/spec/affinity/nodeAffinity/preferredDuringSchedulingIgnoredDuringExecution";
    let holds = |term: &&Value| {
        let selector = json!({"nodeSelectorTerms": [term.get("preference")]});
        placement::matches_any(&selector, &candidate.node)
    };
    tree::items(pod, preferred).filter(holds).map(|term| tree::number(term, "/weight").unwrap_or(0)).sum()
}

/// A selector in an object; one that is not there selects nothing, an empty one everything.
fn selector(object: Option<&Value>) -> LabelSelector {
    let found = object.filter(|it| !it.is_null());
    found.and_then(|it| LabelSelector::from_object(it).ok()).unwrap_or_else(LabelSelector::nothing)
}

impl Controller for Scheduler {
    fn kind(&self) -> Kind {
        PODS
    }

    fn name(&self) -> &'static str {
        "default-scheduler"
    }

    fn listens_to(&self) -> &'static [Kind] {
        &[PODS, NODES, CLAIMS, VOLUMES]
    }

    /// What may make room for those that wait.
    fn wakes(&self, world: &dyn World, changed: &Changed<'_>) -> Vec<Name> {
        let frees = match (changed.kind, changed.old, changed.new) {
            (PODS, Some(old), None) => !tree::text(old, "/spec/nodeName").is_empty(),
            (PODS, Some(old), Some(new)) => {
                let finished =
                    |pod: &Value| matches!(tree::text(pod, "/status/phase"), "Succeeded" | "Failed");
                let labels = |pod: &Value| pod.pointer("/metadata/labels").cloned();
                // One that was bound may be what others want to be near to.
                let bound = tree::text(old, "/spec/nodeName") != tree::text(new, "/spec/nodeName");
                bound || (finished(new) && !finished(old)) || labels(old) != labels(new)
            }
            (PODS, ..) => false,
            (NODES, Some(old), Some(new)) => ["/spec", "/metadata/labels", "/status/allocatable"]
                .iter()
                .any(|it| old.pointer(it) != new.pointer(it)),
            _ => true,
        };
        if !frees {
            return Vec::new();
        }
        let waiting = world.pods_on("").into_iter().filter(|pod| pod.is_active());
        waiting.map(|pod| (pod.namespace.to_string(), pod.name.to_string())).collect()
    }

    fn reconcile(&self, world: &dyn World, pod: &Value) -> Plan {
        let mut plan = Plan::nothing();
        let is_ours = matches!(tree::text(pod, "/spec/schedulerName"), "" | "default-scheduler");
        let finished = matches!(tree::text(pod, "/status/phase"), "Succeeded" | "Failed");
        if !tree::text(pod, "/spec/nodeName").is_empty() || tree::is_deleting(pod) || finished || !is_ours {
            return plan;
        }
        // The server has said on the pod that it waits behind gates.
        if tree::items(pod, "/spec/schedulingGates").len() > 0 {
            return plan;
        }
        let candidates = candidates(world);
        match choose(world, pod, &candidates) {
            Ok(node) => {
                plan.actions.extend(volumes::select_node(world, pod, node));
                plan.then(Action::Bind {
                    namespace: tree::namespace(pod).into(),
                    name: tree::name(pod).into(),
                    uid: tree::uid(pod).into(),
                    node: node.into(),
                });
                let message =
                    format!("Successfully assigned {}/{} to {node}", tree::namespace(pod), tree::name(pod));
                plan.then(Action::Event {
                    object: pod.clone(),
                    warning: false,
                    reason: "Scheduled",
                    message,
                });
            }
            Err(why) => unschedulable(&mut plan, pod, why),
        }
        plan
    }
}

fn unschedulable(plan: &mut Plan, pod: &Value, why: String) {
    let known = tree::condition(pod, "PodScheduled");
    let said =
        known.is_some_and(|it| tree::text(it, "/status") == "False" && tree::text(it, "/message") == why);
    if said {
        return;
    }
    let mut conditions: Vec<Value> = tree::items(pod, "/status/conditions")
        .filter(|it| tree::text(it, "/type") != "PodScheduled")
        .cloned()
        .collect();
    let since =
        known.filter(|it| tree::text(it, "/status") == "False").and_then(|it| it.get("lastTransitionTime"));
    let mut condition = json!({
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why, "lastProbeTime": null,
    });
    if let Some(since) = since {
        condition["lastTransitionTime"] = since.clone();
    }
    conditions.push(condition);
    plan.then(Action::PatchStatus {
        kind: PODS,
        namespace: tree::namespace(pod).into(),
        name: tree::name(pod).into(),
        patch: json!({"metadata": {"uid": tree::uid(pod)}, "status": {"conditions": conditions}}),
    });
    plan.then(Action::Event { object: pod.clone(), warning: true, reason: "FailedScheduling", message: why });
}

fn candidates(world: &dyn World) -> Vec<Candidate> {
    let candidate = |node: Value| {
        let name = tree::name(&node).to_owned();
        let pods = world.pods_on(&name).into_iter().filter(|pod| !pod.is_finished()).collect();
        Candidate { node, name, pods }
    };
    world.list(NODES, None).into_iter().map(candidate).collect()
}

/// The best node, or why there is none.
fn choose<'a>(world: &dyn World, pod: &Value, candidates: &'a [Candidate]) -> Result<&'a str, String> {
    let asked = room::Asked::of(pod);
    let near = affinity::Terms::of(world, pod, candidates);
    let even = spread::Constraints::of(pod);
    let tolerations = tolerations(pod);
    if let Some(why) = volumes::pending(world, pod) {
        return Err(format!("0/{} nodes are available: {why}.", candidates.len()));
    }
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    let mut hopeless_nodes = 0;
    let mut fitting = Vec::new();
    for candidate in candidates {
        let problem = taint_problem(candidate, &tolerations)
            .or_else(|| {
                (!is_wanted(pod, candidate)).then_some(Unfit {
                    why: "node(s) didn't match Pod's node affinity/selector".into(),
                    hopeless: true,
                })
            })
            .or_else(|| asked.problem(candidate))
            .or_else(|| volumes::problem(world, pod, candidate))
            .or_else(|| even.problem(pod, candidate, candidates))
            .or_else(|| near.problem(candidate, candidates));
        match problem {
            Some(unfit) => {
                for why in unfit.why.split('\n') {
                    *reasons.entry(why.to_owned()).or_default() += 1;
                }
                hopeless_nodes += usize::from(unfit.hopeless);
            }
            None => fitting.push(candidate),
        }
    }
    let best = fitting.iter().max_by(|a, b| {
        let score = |it: &Candidate| score(pod, it, candidates, &asked, &near, &even, &tolerations);
        score(a).cmp(&score(b)).then_with(|| b.name.cmp(&a.name))
    });
    best.map(|candidate| candidate.name.as_str())
        .ok_or_else(|| explain(candidates.len(), reasons, hopeless_nodes))
}

fn taint_problem(candidate: &Candidate, tolerations: &[Value]) -> Option<Unfit> {
    let taint = untolerated(candidate, tolerations, HARD_TAINTS)?;
    let (key, value) = (tree::text(&taint, "/key"), tree::text(&taint, "/value"));
    match key {
        "node.kubernetes.io/unschedulable" => hopeless("node(s) were unschedulable"),
        _ => hopeless(format!("node(s) had untolerated taint {{{key}: {value}}}")),
    }
}

/// What a pod wishes counts more than all room there could be.
const WISH: i64 = 20_000;

fn score(
    pod: &Value,
    candidate: &Candidate,
    candidates: &[Candidate],
    asked: &room::Asked,
    near: &affinity::Terms,
    even: &spread::Constraints,
    tolerations: &[Value],
) -> i64 {
    let avoided = i64::from(untolerated(candidate, tolerations, &["PreferNoSchedule"]).is_some());
    preference(pod, candidate) * WISH + near.preference(candidate, candidates) * WISH - avoided * 150 * WISH
        + even.preference(pod, candidate, candidates) * WISH
        + asked.room_left(candidate)
}

/// As upstream puts it, so that people find it where they look for it.
fn explain(all: usize, reasons: BTreeMap<String, usize>, hopeless: usize) -> String {
    if all == 0 {
        return "no nodes available to schedule pods".into();
    }
    let told = |reasons: BTreeMap<String, usize>| {
        let mut parts: Vec<String> =
            reasons.into_iter().map(|(why, count)| format!("{count} {why}")).collect();
        parts.sort();
        format!("0/{all} nodes are available: {}.", parts.join(", "))
    };
    let mut victims = BTreeMap::new();
    if hopeless > 0 {
        victims.insert("Preemption is not helpful for scheduling".to_owned(), hopeless);
    }
    if all > hopeless {
        victims.insert("No preemption victims found for incoming pod".to_owned(), all - hopeless);
    }
    format!("{} preemption: {}", told(reasons), told(victims))
}

#[cfg(test)]
mod tests;
