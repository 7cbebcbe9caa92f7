//! Puts pods on nodes: filters by what they need and tolerate, prefers by what they like and where there is room. Where
//! there is none, less important pods have to go.

mod affinity;
mod preemption;
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
            (PODS, Some(old), None) => {
                !tree::text(old, "/spec/nodeName").is_empty() || !nominated(old).is_empty()
            }
            (PODS, Some(old), Some(new)) => {
                let finished =
                    |pod: &Value| matches!(tree::text(pod, "/status/phase"), "Succeeded" | "Failed");
                let labels = |pod: &Value| pod.pointer("/metadata/labels").cloned();
                // One that was bound may be what others want to be near to.
                let bound = tree::text(old, "/spec/nodeName") != tree::text(new, "/spec/nodeName");
                let hopes_no_more = !nominated(old).is_empty() && nominated(new) != nominated(old);
                bound || hopes_no_more || (finished(new) && !finished(old)) || labels(old) != labels(new)
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
        // Those that were not tried yet will be, whatever happens.
        let waiting = world.pods_on("").into_iter().filter(|pod| pod.is_active() && pod.was_refused);
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
        let mut candidates = candidates(world, pod);
        if let Some(why) = volumes::pending(world, pod) {
            let why = format!("0/{} nodes are available: {why}.", candidates.len());
            unschedulable(&mut plan, world, pod, why, None);
            return plan;
        }
        let look = Look::new(world, pod, &candidates);
        match look.choose(&candidates) {
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
            Err(refusal) => look.make_room(refusal, &mut candidates, &mut plan),
        }
        plan
    }
}

/// Says so on the pod, with the node that it is to get if there is one.
fn unschedulable(plan: &mut Plan, world: &dyn World, pod: &Value, why: String, nominated: Option<&str>) {
    let known = tree::condition(pod, "PodScheduled");
    let said =
        known.is_some_and(|it| tree::text(it, "/status") == "False" && tree::text(it, "/message") == why);
    let is_nominated = nominated.is_none_or(|node| self::nominated(pod) == node);
    if said && is_nominated {
        return;
    }
    let mut conditions: Vec<Value> = tree::items(pod, "/status/conditions")
        .filter(|it| tree::text(it, "/type") != "PodScheduled")
        .cloned()
        .collect();
    let since =
        known.filter(|it| tree::text(it, "/status") == "False").and_then(|it| it.get("lastTransitionTime"));
    let condition = json!({
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why, "lastProbeTime": null,
        "lastTransitionTime": since.cloned().unwrap_or_else(|| tree::time_text(world.now()).into()),
    });
    conditions.push(condition);
    let mut status = json!({"conditions": conditions});
    if let Some(node) = nominated {
        status["nominatedNodeName"] = node.into();
    }
    plan.then(Action::PatchStatus {
        kind: PODS,
        namespace: tree::namespace(pod).into(),
        name: tree::name(pod).into(),
        patch: json!({"metadata": {"uid": tree::uid(pod)}, "status": status}),
    });
    plan.then(Action::Event { object: pod.clone(), warning: true, reason: "FailedScheduling", message: why });
}

/// Nodes with what is on them, and what is to come there and is not less important than `pod`.
fn candidates(world: &dyn World, pod: &Value) -> Vec<Candidate> {
    let (own, priority) = (tree::uid(pod), priority(pod));
    let mut expected = world.nominated();
    expected.retain(|it| it.uid != own && i64::from(it.priority) >= priority && it.is_active());
    let candidate = |node: Value| {
        let name = tree::name(&node).to_owned();
        let here = world.pods_on(&name).into_iter().filter(|pod| !pod.is_finished());
        let to_come = expected.iter().filter(|it| it.nominated.as_deref() == Some(name.as_str())).cloned();
        let pods = here.chain(to_come).collect();
        Candidate { node, name, pods }
    };
    world.list(NODES, None).into_iter().map(candidate).collect()
}

fn nominated(pod: &Value) -> &str {
    tree::text(pod, "/status/nominatedNodeName")
}

fn priority(pod: &Value) -> i64 {
    tree::number(pod, "/spec/priority").unwrap_or(0)
}

/// A pod that looks for a node.
struct Look<'a> {
    world: &'a dyn World,
    pod: &'a Value,
    priority: i32,
    asked: room::Asked,
    near: affinity::Terms,
    even: spread::Constraints,
    tolerations: Vec<Value>,
}

/// Why there is no node for a pod.
struct Refusal {
    reasons: BTreeMap<String, usize>,
    /// Where other pods are all that is in the way.
    helpful: Vec<usize>,
}

impl<'a> Look<'a> {
    fn new(world: &'a dyn World, pod: &'a Value, candidates: &[Candidate]) -> Look<'a> {
        Look {
            world,
            pod,
            priority: i32::try_from(priority(pod)).unwrap_or(0),
            asked: room::Asked::of(pod),
            near: affinity::Terms::of(world, pod, candidates),
            even: spread::Constraints::of(pod),
            tolerations: tolerations(pod),
        }
    }

    /// What is wrong with a node.
    fn problem(&self, candidates: &[Candidate], at: usize) -> Option<Unfit> {
        let candidate = candidates.get(at)?;
        taint_problem(candidate, &self.tolerations)
            .or_else(|| {
                (!is_wanted(self.pod, candidate)).then_some(Unfit {
                    why: "node(s) didn't match Pod's node affinity/selector".into(),
                    hopeless: true,
                })
            })
            .or_else(|| self.asked.problem(candidate))
            .or_else(|| volumes::problem(self.world, self.pod, candidate))
            .or_else(|| self.even.problem(self.pod, candidate, candidates))
            .or_else(|| self.near.problem(candidate, candidates))
    }

    /// The best node, or why there is none.
    fn choose<'b>(&self, candidates: &'b [Candidate]) -> Result<&'b str, Refusal> {
        let mut refusal = Refusal { reasons: BTreeMap::new(), helpful: Vec::new() };
        let mut fitting = Vec::new();
        for (at, candidate) in candidates.iter().enumerate() {
            match self.problem(candidates, at) {
                Some(unfit) => {
                    for why in unfit.why.split('\n') {
                        *refusal.reasons.entry(why.to_owned()).or_default() += 1;
                    }
                    refusal.helpful.extend((!unfit.hopeless).then_some(at));
                }
                None => fitting.push(candidate),
            }
        }
        let best = fitting
            .into_iter()
            .map(|it| (self.score(it, candidates), std::cmp::Reverse(it.name.as_str())))
            .max();
        best.map(|(_, std::cmp::Reverse(name))| name).ok_or(refusal)
    }

    fn score(&self, candidate: &Candidate, candidates: &[Candidate]) -> i64 {
        let avoided = untolerated(candidate, &self.tolerations, &["PreferNoSchedule"]);
        preference(self.pod, candidate) * WISH + self.near.preference(candidate, candidates) * WISH
            - i64::from(avoided.is_some()) * 150 * WISH
            + self.even.preference(self.pod, candidate, candidates) * WISH
            + self.asked.room_left(candidate)
    }

    /// Lets less important pods go, if that helps, and says why the pod waits.
    fn make_room(&self, refusal: Refusal, candidates: &mut [Candidate], plan: &mut Plan) {
        let all = candidates.len();
        let why = explain(all, refusal.reasons);
        if all == 0 {
            return unschedulable(plan, self.world, self.pod, why, None);
        }
        match preemption::find(self, candidates, &refusal.helpful) {
            Ok(preemption) => {
                unschedulable(plan, self.world, self.pod, why, Some(&preemption.node));
                preemption.carry_out(self, plan);
            }
            Err(preemption::No::NotEligible(reason)) => {
                unschedulable(plan, self.world, self.pod, format!("{why} preemption: {reason}"), None);
            }
            Err(preemption::No::NoVictims) => {
                let (helpful, hopeless) = (refusal.helpful.len(), all - refusal.helpful.len());
                let victims = [
                    ("Preemption is not helpful for scheduling", hopeless),
                    ("No preemption victims found for incoming pod", helpful),
                ];
                let victims = victims.into_iter().filter(|(_, count)| *count > 0);
                let victims = explain(all, victims.map(|(why, count)| (why.to_owned(), count)).collect());
                unschedulable(plan, self.world, self.pod, format!("{why} preemption: {victims}"), None);
            }
        }
    }
}

/// What a pod wishes counts more than all room there could be.
const WISH: i64 = 20_000;

fn taint_problem(candidate: &Candidate, tolerations: &[Value]) -> Option<Unfit> {
    let taint = untolerated(candidate, tolerations, HARD_TAINTS)?;
    let (key, value) = (tree::text(&taint, "/key"), tree::text(&taint, "/value"));
    match key {
        "node.kubernetes.io/unschedulable" => hopeless("node(s) were unschedulable"),
        _ => hopeless(format!("node(s) had untolerated taint {{{key}: {value}}}")),
    }
}

/// As upstream puts it, so that people find it where they look for it.
fn explain(all: usize, reasons: BTreeMap<String, usize>) -> String {
    if all == 0 {
        return "no nodes available to schedule pods".into();
    }
    let mut parts: Vec<String> = reasons.into_iter().map(|(why, count)| format!("{count} {why}")).collect();
    parts.sort();
    format!("0/{all} nodes are available: {}.", parts.join(", "))
}

#[cfg(test)]
mod tests;
