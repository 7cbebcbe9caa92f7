//! Pods that have to go so that a more important one finds room, in the order and by the rules of upstream's scheduler.

use std::{cmp::Reverse, sync::Arc};

use serde_json::{Value, json};

use super::{Candidate, Look, selector};
use crate::{
    Action, Plan, Pod,
    kind::{BUDGETS, PODS},
    tree,
};

/// Who has to go, and from where.
pub struct Preemption {
    pub node: String,
    /// The most important first.
    pub victims: Vec<Arc<Pod>>,
}

/// Why nobody goes.
pub enum No {
    /// It may not ask for that, or not yet.
    NotEligible(&'static str),
    /// There is nobody whose going would help.
    NoVictims,
}

/// `helpful`: where other pods are all that is in the way.
pub fn find(look: &Look<'_>, candidates: &mut [Candidate], helpful: &[usize]) -> Result<Preemption, No> {
    if tree::text(look.pod, "/spec/preemptionPolicy") == "Never" {
        return Err(No::NotEligible("not eligible due to preemptionPolicy=Never."));
    }
    if waits_for_victims(look, candidates, helpful) {
        return Err(No::NotEligible("not eligible due to a terminating pod on the nominated node."));
    }
    let budgets = Budgets::of(look);
    let mut choices = Vec::new();
    for at in helpful {
        if let Some(victims) = victims(look, candidates, *at, &budgets) {
            choices.push((*at, victims));
        }
    }
    let (at, chosen) = choices.into_iter().min_by_key(|(_, it)| it.cost()).ok_or(No::NoVictims)?;
    let node = candidates.get(at).map(|candidate| candidate.name.clone()).unwrap_or_default();
    Ok(Preemption { node, victims: chosen.pods })
}

/// On the node it is to get, somebody is still on the way out for it.
fn waits_for_victims(look: &Look<'_>, candidates: &[Candidate], helpful: &[usize]) -> bool {
    let nominated = super::nominated(look.pod);
    let mut nodes = helpful.iter().filter_map(|at| candidates.get(*at));
    let Some(candidate) = nodes.find(|candidate| candidate.name == nominated) else { return false };
    let goes_for_it = |pod: &&Arc<Pod>| {
        let object = look.world.get(PODS, &pod.namespace, &pod.name).unwrap_or_default();
        let condition = tree::condition(&object, "DisruptionTarget");
        condition.is_some_and(|it| {
            tree::text(it, "/status") == "True" && tree::text(it, "/reason") == "PreemptionByScheduler"
        })
    };
    let is_lower = |pod: &&Arc<Pod>| pod.terminating.is_some() && pod.priority < look.priority;
    candidate.pods.iter().filter(is_lower).any(|pod| goes_for_it(&pod))
}

struct Victims {
    pods: Vec<Arc<Pod>>,
    /// How many of them a budget would keep.
    violations: usize,
}

impl Victims {
    /// The less, the better.
    fn cost(&self) -> impl Ord + use<> {
        let highest = self.pods.iter().map(|pod| pod.priority).max();
        let sum: i64 = self.pods.iter().map(|pod| i64::from(pod.priority) + i64::from(i32::MAX) + 1).sum();
        let of_highest = self.pods.iter().filter(|pod| Some(pod.priority) == highest);
        let earliest = of_highest.filter_map(|pod| pod.started).min();
        (self.violations, highest, sum, self.pods.len(), Reverse(earliest))
    }
}

fn importance(pod: &Arc<Pod>) -> impl Ord + use<> {
    (Reverse(pod.priority), pod.started.is_none(), pod.started)
}

/// The least important pods of a node whose going makes room. All that may go is taken away first; then those that
/// leave room are put back, the most important first, and before them those that a budget would keep.
fn victims(look: &Look<'_>, candidates: &mut [Candidate], at: usize, budgets: &Budgets) -> Option<Victims> {
    let all = std::mem::take(&mut candidates.get_mut(at)?.pods);
    let found = least(look, candidates, at, budgets, &all);
    candidates.get_mut(at)?.pods = all;
    found
}

fn least(
    look: &Look<'_>,
    candidates: &mut [Candidate],
    at: usize,
    budgets: &Budgets,
    all: &[Arc<Pod>],
) -> Option<Victims> {
    let (mut lower, kept): (Vec<_>, Vec<_>) =
        all.iter().cloned().partition(|pod| pod.priority < look.priority);
    candidates.get_mut(at)?.pods = kept;
    if lower.is_empty() || look.problem(candidates, at).is_some() {
        return None;
    }
    lower.sort_by_key(importance);
    let mut victims = Victims { pods: Vec::new(), violations: 0 };
    for (pod, violates) in budgets.first(lower) {
        candidates.get_mut(at)?.pods.push(pod.clone());
        if look.problem(candidates, at).is_some() {
            candidates.get_mut(at)?.pods.pop();
            victims.violations += usize::from(violates);
            victims.pods.push(pod);
        }
    }
    victims.pods.sort_by_key(importance);
    (!victims.pods.is_empty()).then_some(victims)
}

/// Budgets of disruption: those who are to be spared if that is possible.
struct Budgets(Vec<Value>);

impl Budgets {
    fn of(look: &Look<'_>) -> Budgets {
        Budgets(look.world.list(BUDGETS, None))
    }

    /// Pods with whether their going would be one too many for a budget; those first.
    fn first(&self, pods: Vec<Arc<Pod>>) -> Vec<(Arc<Pod>, bool)> {
        let allowed = |budget: &Value| tree::number(budget, "/status/disruptionsAllowed").unwrap_or(0);
        let mut left: Vec<i64> = self.0.iter().map(allowed).collect();
        let mut marked: Vec<(Arc<Pod>, bool)> = Vec::new();
        for pod in pods {
            let mut violates = false;
            for (budget, left) in self.0.iter().zip(&mut left) {
                let disrupted = budget.pointer("/status/disruptedPods");
                let counted = disrupted.is_some_and(|it| it.get(pod.name.as_str()).is_some());
                let covers = tree::namespace(budget) == pod.namespace
                    && !pod.labels.is_empty()
                    && selector(budget.pointer("/spec/selector")).matches(&pod.labels);
                if covers && !counted {
                    *left -= 1;
                    violates |= *left < 0;
                }
            }
            marked.push((pod, violates));
        }
        marked.sort_by_key(|(_, violates)| !violates);
        marked
    }
}

impl Preemption {
    /// Tells the victims why, and lets them go. Pods that hoped for their place, and are less important, hope no more.
    pub fn carry_out(&self, look: &Look<'_>, plan: &mut Plan) {
        for victim in self.victims.iter().filter(|victim| victim.terminating.is_none()) {
            let Some(object) = look.world.get(PODS, &victim.namespace, &victim.name) else { continue };
            plan.then(Action::PatchStatus {
                kind: PODS,
                namespace: victim.namespace.to_string(),
                name: victim.name.to_string(),
                patch: json!({"metadata": {"uid": victim.uid.as_str()}, "status": {"conditions": doomed(look, &object)}}),
            });
            plan.then(Action::delete_pod(victim));
            let message = format!("Preempted by pod {} on node {}", tree::uid(look.pod), self.node);
            plan.then(Action::Event { object, warning: false, reason: "Preempted", message });
        }
        let hopes = |pod: &&Arc<Pod>| {
            pod.nominated.as_deref() == Some(self.node.as_str())
                && pod.priority < look.priority
                && pod.uid != tree::uid(look.pod)
        };
        for pod in look.world.nominated().iter().filter(hopes) {
            plan.then(Action::PatchStatus {
                kind: PODS,
                namespace: pod.namespace.to_string(),
                name: pod.name.to_string(),
                patch: json!({"metadata": {"uid": pod.uid.as_str()}, "status": {"nominatedNodeName": null}}),
            });
        }
    }
}

/// The conditions of a pod that has to go for another.
fn doomed(look: &Look<'_>, pod: &Value) -> Vec<Value> {
    let others =
        tree::items(pod, "/status/conditions").filter(|it| tree::text(it, "/type") != "DisruptionTarget");
    let mut condition = json!({
        "type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler",
        "message": "default-scheduler: preempting to accommodate a higher priority pod",
        "lastProbeTime": null, "lastTransitionTime": tree::time_text(look.world.now()),
    });
    if let Some(generation) = tree::number(pod, "/metadata/generation") {
        condition["observedGeneration"] = json!(generation);
    }
    others.cloned().chain([condition]).collect()
}
