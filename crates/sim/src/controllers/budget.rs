//! PodDisruptionBudgets: how many pods may be evicted now.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::SignedDuration;
use machinery::selector::LabelSelector;
use serde_json::{Value, json};

use super::{Changed, Controller, Name, claim, conditions, replica_set::replicas, share::share};
use crate::{Kind, Plan, Pod, World, kind, tree};

pub struct Budgets;

const KIND: Kind = kind::BUDGETS;
/// An evicted pod that is still there after so long was not evicted.
const EVICTION: SignedDuration = SignedDuration::from_mins(2);
/// What pods are counted by, if the budget is a part of all.
const SCALED: [Kind; 5] =
    [kind::REPLICATION_CONTROLLERS, kind::DEPLOYMENTS, kind::REPLICA_SETS, kind::STATEFUL_SETS, kind::PODS];

impl Controller for Budgets {
    fn kind(&self) -> Kind {
        KIND
    }

    fn name(&self) -> &'static str {
        "disruption-controller"
    }

    fn listens_to(&self) -> &'static [Kind] {
        &SCALED
    }

    fn wakes(&self, world: &dyn World, changed: &Changed<'_>) -> Vec<Name> {
        let is_pod = changed.kind == kind::PODS;
        if !is_pod && changed.old.map(replicas) == changed.new.map(replicas) {
            return Vec::new();
        }
        let budgets = world.list(KIND, Some(tree::namespace(changed.object())));
        if !is_pod {
            return budgets.iter().map(claim::name_of).collect();
        }
        let labels = |pod: &Value| tree::labels(pod, "/metadata/labels");
        let both: Vec<_> = changed.old.into_iter().chain(changed.new).map(labels).collect();
        let selects = |budget: &&Value| {
            let selector = claim::selector(budget);
            both.iter().any(|labels| selector.matches(labels))
        };
        budgets.iter().filter(selects).map(claim::name_of).collect()
    }

    fn reconcile(&self, world: &dyn World, budget: &Value) -> Plan {
        let mut plan = Plan::nothing();
        let selector = claim::selector(budget);
        let pods = selected(world, budget, &selector);
        let expected = match expected(world, budget, &pods) {
            Ok(expected) => expected,
            Err(message) => {
                fail(world, &mut plan, budget, message);
                return plan;
            }
        };
        let disrupted = disrupted(world, &mut plan, budget, &pods);
        let is_healthy = |pod: &&Arc<Pod>| {
            pod.terminating.is_none() && pod.ready && !disrupted.contains_key(pod.name.as_str())
        };
        let healthy = pods.iter().filter(is_healthy).count() as i64;
        let allowed = if expected.pods > 0 { (healthy - expected.healthy).max(0) } else { 0 };
        let generation = tree::number(budget, "/metadata/generation").unwrap_or(0);
        let (verdict, reason) =
            if allowed > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
        let mut all = conditions::of(budget);
        set_condition(&mut all, world, (verdict, reason, ""), generation);
        let status = json!({
            "observedGeneration": generation,
            "disruptedPods": disrupted,
            "disruptionsAllowed": allowed,
            "currentHealthy": healthy,
            "desiredHealthy": expected.healthy,
            "expectedPods": expected.pods,
            "conditions": all,
        });
        let kept = ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"];
        let had_status = budget.pointer("/status/observedGeneration").is_some();
        if pods.is_empty() && !had_status {
            plan.note(KIND, budget, "NoPods", "No matching pods found");
        }
        plan.set_status(KIND, budget, tree::compact(status, &kept));
        plan
    }
}

fn set_condition(
    all: &mut Vec<Value>,
    world: &dyn World,
    (status, reason, message): (&'static str, &str, &str),
    generation: i64,
) {
    let condition = json!({
        "type": "DisruptionAllowed", "status": status, "reason": reason, "message": message,
        "observedGeneration": generation, "lastTransitionTime": tree::time_text(world.now()),
    });
    conditions::set_in_place(all, condition);
}

/// Nothing may be disrupted as long as it is not known how many pods there should be.
fn fail(world: &dyn World, plan: &mut Plan, budget: &Value, message: String) {
    let mut status = budget.get("status").cloned().unwrap_or_else(|| json!({}));
    let generation = tree::number(budget, "/status/observedGeneration").unwrap_or(0);
    let mut all = conditions::of(budget);
    set_condition(&mut all, world, ("False", "SyncFailed", &message), generation);
    for count in ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"] {
        if status.get(count).is_none() || count == "disruptionsAllowed" {
            status[count] = 0.into();
        }
    }
    status["conditions"] = all.into();
    if !tree::same(budget.get("status").unwrap_or(&Value::Null), &status) {
        let event = format!("Failed to calculate the number of expected pods: {message}");
        plan.warn(KIND, budget, "CalculateExpectedPodCountFailed", event);
        plan.set_status(KIND, budget, status);
    }
}

fn selected(world: &dyn World, budget: &Value, selector: &LabelSelector) -> Vec<Arc<Pod>> {
    let mut pods = world.pods(tree::namespace(budget));
    pods.retain(|pod| selector.matches(&pod.labels));
    pods
}

struct Expected {
    pods: i64,
    healthy: i64,
}

fn expected(world: &dyn World, budget: &Value, pods: &[Arc<Pod>]) -> Result<Expected, String> {
    if let Some(most) = budget.pointer("/spec/maxUnavailable") {
        let pods = scale(world, pods)?;
        let most = share(Some(most), pods, true).ok_or("invalid value for maxUnavailable")?;
        return Ok(Expected { pods, healthy: (pods - most).max(0) });
    }
    match budget.pointer("/spec/minAvailable") {
        Some(Value::Number(least)) => {
            Ok(Expected { pods: pods.len() as i64, healthy: least.as_i64().unwrap_or(0) })
        }
        Some(least) => {
            let pods = scale(world, pods)?;
            let healthy = share(Some(least), pods, true).ok_or("invalid value for minAvailable")?;
            Ok(Expected { pods, healthy })
        }
        None => Ok(Expected { pods: pods.len() as i64, healthy: 0 }),
    }
}

/// How many pods the controllers of these pods want in all. Pods without one count for nothing.
fn scale(world: &dyn World, pods: &[Arc<Pod>]) -> Result<i64, String> {
    let mut sizes: BTreeMap<String, i64> = BTreeMap::new();
    for pod in pods {
        let Some(controller) = &pod.controller else { continue };
        if sizes.contains_key(controller.uid.as_str()) {
            continue;
        }
        let (uid, size) = size(world, &pod.namespace, &controller.kind, &controller.name, &controller.uid)
            .ok_or_else(|| format!("found no controllers for pod \"{}\"", pod.name))?;
        sizes.insert(uid, size);
    }
    Ok(sizes.values().sum())
}

/// Of a controller, or of the Deployment that controls it.
fn size(world: &dyn World, namespace: &str, kind: &str, name: &str, uid: &str) -> Option<(String, i64)> {
    let kind = SCALED.iter().copied().find(|it| it.kind == kind && *it != kind::PODS)?;
    let controller = world.get(kind, namespace, name).filter(|it| tree::uid(it) == uid)?;
    if kind == kind::REPLICA_SETS
        && let Some(owner) = tree::controller(&controller)
        && tree::text(owner, "/kind") == "Deployment"
    {
        let deployment = world.get(kind::DEPLOYMENTS, namespace, tree::text(owner, "/name"))?;
        return Some((tree::uid(&deployment).to_owned(), replicas(&deployment)));
    }
    Some((uid.to_owned(), replicas(&controller)))
}

/// Pods whose eviction was granted and that are still to go.
fn disrupted(
    world: &dyn World,
    plan: &mut Plan,
    budget: &Value,
    pods: &[Arc<Pod>],
) -> BTreeMap<String, Value> {
    let mut disrupted = BTreeMap::new();
    let now = world.now();
    for pod in pods.iter().filter(|pod| pod.terminating.is_none()) {
        let evictions = budget.pointer("/status/disruptedPods");
        let Some(eviction) = evictions.and_then(|all| all.get(pod.name.as_str())) else { continue };
        let Some(since) = eviction.as_str().and_then(|at| at.parse().ok()) else { continue };
        let left = EVICTION.saturating_sub(now.duration_since(since));
        if left.is_negative() {
            let namespace = tree::namespace(budget);
            let message =
                format!("Pod was expected by PDB {namespace}/{namespace} to be deleted but it wasn't");
            if let Some(pod) = world.get(kind::PODS, &pod.namespace, &pod.name) {
                plan.warn(kind::PODS, &pod, "NotDeleted", message);
            }
            continue;
        }
        plan.look_again(Duration::try_from(left).unwrap_or_default() + Duration::from_secs(1));
        disrupted.insert(pod.name.to_string(), eviction.clone());
    }
    disrupted
}
