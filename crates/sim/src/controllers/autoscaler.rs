//! HorizontalPodAutoscalers: as many replicas as their use of resources asks for.
//!
//! What was recommended and done within the last hour decides as well; as upstream does, the controller remembers that
//! itself, so a restart forgets it.

mod behavior;
mod measure;

use std::{collections::HashMap, time::Duration};

use jiff::{SignedDuration, Timestamp};
use machinery::selector::LabelSelector;
use parking_lot::Mutex;
use serde_json::{Value, json};

use self::behavior::{Bounds, Memory};
use super::{Controller, conditions, conditions::Condition};
use crate::{Action, Kind, Plan, World, kind, tree};

const KIND: Kind = kind::AUTOSCALERS;
/// How often usage is looked at.
const PERIOD: SignedDuration = SignedDuration::from_secs(15);
const TARGETS: [Kind; 4] =
    [kind::DEPLOYMENTS, kind::REPLICA_SETS, kind::STATEFUL_SETS, kind::REPLICATION_CONTROLLERS];

#[derive(Default)]
pub struct Autoscalers {
    /// By the autoscaler's UID.
    memory: Mutex<HashMap<String, Memory>>,
}

impl Controller for Autoscalers {
    fn kind(&self) -> Kind {
        KIND
    }

    fn name(&self) -> &'static str {
        "horizontal-pod-autoscaler"
    }

    fn reconcile(&self, world: &dyn World, autoscaler: &Value) -> Plan {
        let now = world.now();
        let mut all = self.memory.lock();
        all.retain(|_, memory| memory.is_needed(now));
        let memory = all.entry(tree::uid(autoscaler).to_owned()).or_default();
        let generation = tree::number(autoscaler, "/metadata/generation").unwrap_or(0);
        // Its own status is no news.
        if let Some(rest) = memory.rest(now, generation) {
            return Plan { actions: Vec::new(), again: Some(rest) };
        }
        memory.look(now, generation);
        let mut work = Work {
            world,
            autoscaler,
            memory,
            conditions: conditions::of(autoscaler),
            metrics: Vec::new(),
            plan: Plan::nothing(),
        };
        work.reconcile();
        work.plan.look_again(Duration::try_from(PERIOD).unwrap_or_default());
        work.plan
    }
}

/// One look at an autoscaler.
struct Work<'a> {
    world: &'a dyn World,
    autoscaler: &'a Value,
    memory: &'a mut Memory,
    conditions: Vec<Value>,
    metrics: Vec<Value>,
    plan: Plan,
}

/// What is scaled.
struct Target {
    kind: Kind,
    name: String,
    replicas: i64,
    selector: LabelSelector,
}

/// How many replicas, and why.
struct Wish {
    replicas: i64,
    reason: String,
}

impl Work<'_> {
    fn reconcile(&mut self) {
        let target = match self.target() {
            Ok(target) => target,
            Err(message) => return self.report_no_target(&message),
        };
        let message = "the HPA controller was able to get the target's current scale";
        self.set("AbleToScale", "True", "SucceededGetScale", message);
        let bounds = Bounds::of(self.autoscaler);
        let current = target.replicas;
        self.memory.begin(current, self.world.now());
        let wish = if current == 0 {
            let message = "scaling is disabled since the replica count of the target is zero";
            self.set("ScalingActive", "False", "ScalingDisabled", message);
            None
        } else if current > bounds.most {
            Some(Wish {
                replicas: bounds.most,
                reason: "Current number of replicas above Spec.MaxReplicas".into(),
            })
        } else if current < bounds.least {
            Some(Wish {
                replicas: bounds.least,
                reason: "Current number of replicas below Spec.MinReplicas".into(),
            })
        } else {
            match self.wish_by_metrics(&target, bounds) {
                Some(wish) => Some(wish),
                None => {
                    return self.report(
                        current,
                        tree::number(self.autoscaler, "/status/desiredReplicas"),
                        false,
                    );
                }
            }
        };
        match wish.filter(|wish| wish.replicas != current) {
            Some(wish) => self.scale(&target, &wish),
            None => self.report(current, Some(current), false),
        }
    }

    fn target(&self) -> Result<Target, String> {
        let reference = self.autoscaler.pointer("/spec/scaleTargetRef").unwrap_or(&Value::Null);
        let (api, kind, name) = (
            tree::text(reference, "/apiVersion"),
            tree::text(reference, "/kind"),
            tree::text(reference, "/name"),
        );
        let group = api.split_once('/').map_or("", |(group, _)| group);
        let kind = TARGETS
            .into_iter()
            .find(|it| it.group == group && it.kind == kind)
            .ok_or_else(|| format!("no matches for kind \"{kind}\" in group \"{group}\""))?;
        let namespace = tree::namespace(self.autoscaler);
        let resource = if kind.group.is_empty() {
            kind.plural.to_owned()
        } else {
            format!("{}.{}", kind.plural, kind.group)
        };
        let object = self
            .world
            .get(kind, namespace, name)
            .ok_or_else(|| format!("{resource} \"{name}\" not found"))?;
        let selector = if kind == kind::REPLICATION_CONTROLLERS {
            let labels = tree::members(&object, "/spec/selector");
            LabelSelector::from_labels(labels.map(|(key, value)| (key, value.as_str().unwrap_or_default())))
        } else {
            super::claim::selector(&object)
        };
        Ok(Target { kind, name: name.to_owned(), replicas: super::replica_set::replicas(&object), selector })
    }

    fn report_no_target(&mut self, message: &str) {
        let text = format!("the HPA controller was unable to get the target's current scale: {message}");
        self.set("AbleToScale", "False", "FailedGetScale", text);
        self.plan.warn(KIND, self.autoscaler, "FailedGetScale", message);
        let mut status = self.autoscaler.get("status").cloned().unwrap_or_else(|| json!({}));
        if status.get("desiredReplicas").is_none() {
            status["desiredReplicas"] = 0.into();
        }
        status["conditions"] = std::mem::take(&mut self.conditions).into();
        self.plan.set_status(KIND, self.autoscaler, status);
    }

    /// The most that one of the metrics asks for, within what stability and policies allow. `None`: no metric can be
    /// had, or one cannot and the others would make it smaller.
    fn wish_by_metrics(&mut self, target: &Target, bounds: Bounds) -> Option<Wish> {
        let specs: Vec<Value> = tree::items(self.autoscaler, "/spec/metrics").cloned().collect();
        let mut invalid = 0;
        let (mut best, mut failure): (Option<(i64, String)>, Option<measure::Failure>) = (None, None);
        for spec in &specs {
            match self.measure(spec, target) {
                Ok(found) => {
                    self.metrics.push(found.status);
                    if best.as_ref().is_none_or(|(replicas, _)| found.replicas > *replicas) {
                        best = Some((found.replicas, found.name));
                    }
                }
                Err(error) => {
                    // As upstream has it: a place for every metric, empty for those that could not be had.
                    self.metrics.push(json!({ "type": "" }));
                    invalid += 1;
                    self.plan.warn(KIND, self.autoscaler, error.reason, error.message.as_str());
                    failure.get_or_insert(error);
                }
            }
        }
        let shrinks = best.as_ref().is_none_or(|(replicas, _)| *replicas < target.replicas);
        if let Some(failure) = failure.filter(|_| shrinks) {
            let text = format!("the HPA was unable to compute the replica count: {}", failure.message);
            self.set("ScalingActive", "False", failure.reason, text);
            let all = specs.len();
            let error = format!(
                "invalid metrics ({invalid} invalid out of {all}), first error is: {}: {}",
                failure.context, failure.message
            );
            self.plan.warn(KIND, self.autoscaler, "FailedComputeMetricsReplicas", error);
            return None;
        }
        let (wanted, name) = best?;
        let text = format!("the HPA was able to successfully calculate a replica count from {name}");
        self.set("ScalingActive", "True", "ValidMetricFound", text);
        let reason = if wanted > target.replicas {
            format!("{name} above target")
        } else {
            "All metrics below target".to_owned()
        };
        Some(Wish { replicas: self.normalize(target.replicas, wanted, bounds), reason })
    }

    fn normalize(&mut self, current: i64, wanted: i64, bounds: Bounds) -> i64 {
        let now = self.world.now();
        let behavior = self.autoscaler.pointer("/spec/behavior").cloned();
        let stable = self.memory.stabilize(current, wanted, behavior.as_ref(), now);
        match stable.reason {
            Some((reason, message)) => self.set("AbleToScale", "True", reason, message),
            None => {
                self.set("AbleToScale", "True", "ReadyForNewScale", "recommended size matches current size")
            }
        }
        let limited = self.memory.limit(current, stable.replicas, bounds, behavior.as_ref(), now);
        let status = if limited.replicas == stable.replicas { "False" } else { "True" };
        self.set("ScalingLimited", status, limited.reason, limited.message);
        limited.replicas
    }

    fn scale(&mut self, target: &Target, wish: &Wish) {
        let (namespace, size) = (tree::namespace(self.autoscaler).to_owned(), wish.replicas);
        self.plan.then(Action::Scale {
            kind: target.kind,
            namespace,
            name: target.name.clone(),
            replicas: size,
        });
        let text = format!("the HPA controller was able to update the target scale to {size}");
        self.set("AbleToScale", "True", "SucceededRescale", text);
        let message = format!("New size: {size}; reason: {}", wish.reason);
        self.plan.note(KIND, self.autoscaler, "SuccessfulRescale", message);
        self.memory.scaled(target.replicas, size, self.world.now());
        self.report(target.replicas, Some(size), true);
    }

    fn report(&mut self, current: i64, desired: Option<i64>, scaled: bool) {
        let mut status = json!({
            "currentReplicas": current,
            "desiredReplicas": desired.unwrap_or(0),
            "currentMetrics": std::mem::take(&mut self.metrics),
            "conditions": std::mem::take(&mut self.conditions),
        });
        let last = self.autoscaler.pointer("/status/lastScaleTime").cloned();
        if let Some(last) = if scaled { Some(tree::time_text(self.world.now()).into()) } else { last } {
            status["lastScaleTime"] = last;
        }
        self.plan.set_status(KIND, self.autoscaler, tree::compact(status, &["desiredReplicas"]));
    }

    fn set(&mut self, kind: &'static str, status: &'static str, reason: &str, message: impl Into<String>) {
        let condition = Condition::new(kind, status, reason, message);
        conditions::set_in_place(&mut self.conditions, condition.at(self.world.now()));
    }
}

/// How long ago, in seconds.
fn age(then: Timestamp, now: Timestamp) -> i64 {
    now.duration_since(then).as_secs()
}
