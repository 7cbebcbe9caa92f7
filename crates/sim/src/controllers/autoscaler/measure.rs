//! What pods use, and how many of them it asks for.

use std::{collections::BTreeMap, sync::Arc};

use machinery::quantity::{Format, Quantity};
use serde_json::{Value, json};

use super::{Target, Work, age};
use crate::{Pod, kind, pod::Phase, tree};

const TOLERANCE: f64 = 0.1;
/// A pod's first use of cpu says little while it starts.
const CPU_START: i64 = 300;
const READINESS_DELAY: i64 = 30;

pub struct Measured {
    pub replicas: i64,
    pub name: String,
    pub status: Value,
}

pub struct Failure {
    pub reason: &'static str,
    pub message: String,
    /// What was being done.
    pub context: String,
}

/// By pod, in thousandths.
type Amounts = BTreeMap<String, i64>;

/// Pods by what is known of them.
struct Groups {
    used: Amounts,
    ready: usize,
    unready: Vec<String>,
    missing: Vec<String>,
}

/// Use in relation to the target, as upstream computes it from whole numbers.
struct Ratio {
    ratio: f64,
    percent: i64,
    average: i64,
}

impl Work<'_> {
    pub(super) fn measure(&self, spec: &Value, target: &Target) -> Result<Measured, Failure> {
        match tree::text(spec, "/type") {
            "Resource" => self.resource(spec, target).map_err(|message| {
                let name = tree::text(spec, "/resource/name");
                let context = format!("failed to get {name} resource metric value");
                Failure { reason: "FailedGetResourceMetric", message, context }
            }),
            other => {
                let reason = match other {
                    "Object" => "FailedGetObjectMetric",
                    "Pods" => "FailedGetPodsMetric",
                    "ContainerResource" => "FailedGetContainerResourceMetric",
                    "External" => "FailedGetExternalMetric",
                    _ => "InvalidMetricSourceType",
                };
                // What nobody serves cannot be had, as on a cluster without an adapter for such metrics.
                let message = format!("no metrics of type {other} are served in this cluster");
                let context = format!("failed to get {} metric value", other.to_lowercase());
                Err(Failure { reason, message, context })
            }
        }
    }

    fn resource(&self, spec: &Value, target: &Target) -> Result<Measured, String> {
        let resource = tree::text(spec, "/resource/name");
        let pods = self.pods(target);
        let wanted = spec.pointer("/resource/target").unwrap_or(&Value::Null);
        let average = wanted.get("averageValue").and_then(Value::as_str);
        let utilization = tree::number(wanted, "/averageUtilization");
        let goal = match (average.and_then(|text| text.parse::<Quantity>().ok()), utilization) {
            (Some(average), _) => Goal::Average(average.milli_value()),
            (None, Some(percent)) => Goal::Percent(percent, self.requests(&pods, resource)),
            (None, None) => {
                return Err("invalid resource metric source: neither an average utilization target nor an \
                            average value (usage) target was set"
                    .to_owned());
            }
        };
        let failed = match goal {
            Goal::Average(_) => format!("failed to get {resource} usage"),
            Goal::Percent(..) => format!("failed to get {resource} utilization"),
        };
        let (replicas, ratio) = self
            .replicas(&pods, resource, &goal, target.replicas)
            .map_err(|error| format!("{failed}: {error}"))?;
        let format = if resource == "memory" { Format::BinarySi } else { Format::DecimalSi };
        let mut current = json!({ "averageValue": Quantity::from_milli(ratio.average, format).to_string() });
        let name = match goal {
            Goal::Average(_) => format!("{resource} resource"),
            Goal::Percent(..) => {
                current["averageUtilization"] = ratio.percent.into();
                format!("{resource} resource utilization (percentage of request)")
            }
        };
        let status = json!({ "type": "Resource", "resource": { "name": resource, "current": current } });
        Ok(Measured { replicas, name, status })
    }

    fn pods(&self, target: &Target) -> Vec<Arc<Pod>> {
        let mut pods = self.world.pods(tree::namespace(self.autoscaler));
        pods.retain(|pod| target.selector.matches(&pod.labels));
        pods
    }

    fn replicas(
        &self,
        pods: &[Arc<Pod>],
        resource: &str,
        goal: &Goal,
        current: i64,
    ) -> Result<(i64, Ratio), String> {
        let any = pods.iter().any(|pod| self.world.usage(pod, resource).is_some());
        if !any {
            return Err(format!(
                "unable to get metrics for resource {resource}: no metrics returned from resource metrics API"
            ));
        }
        let mut groups = self.group(pods, resource);
        if groups.used.is_empty() {
            return Err("did not receive metrics for targeted pods (pods might be unready)".to_owned());
        }
        if let Goal::Percent(_, Err(error)) = goal {
            return Err(error.clone());
        }
        let before = goal.ratio(&groups.used)?;
        let counts_unready = !groups.unready.is_empty() && before.ratio > 1.0;
        if !counts_unready && groups.missing.is_empty() {
            let replicas =
                if self.is_tolerable(before.ratio) { current } else { ceil(before.ratio, groups.ready) };
            return Ok((replicas, before));
        }
        for name in &groups.missing {
            // What is not known is assumed to be such that less is done.
            if before.ratio < 1.0 {
                groups.used.insert(name.clone(), goal.assumed(name));
            } else if before.ratio > 1.0 {
                groups.used.insert(name.clone(), 0);
            }
        }
        if counts_unready {
            groups.used.extend(groups.unready.iter().map(|name| (name.clone(), 0)));
        }
        let after = goal.ratio(&groups.used)?.ratio;
        let turned = (before.ratio < 1.0 && after > 1.0) || (before.ratio > 1.0 && after < 1.0);
        if self.is_tolerable(after) || turned {
            return Ok((current, before));
        }
        let replicas = ceil(after, groups.used.len());
        let wrong_way = (after < 1.0 && replicas > current) || (after > 1.0 && replicas < current);
        Ok((if wrong_way { current } else { replicas }, before))
    }

    fn group(&self, pods: &[Arc<Pod>], resource: &str) -> Groups {
        let mut groups = Groups { used: Amounts::new(), ready: 0, unready: Vec::new(), missing: Vec::new() };
        for pod in pods {
            if pod.terminating.is_some() || pod.phase == Phase::Failed {
                continue;
            }
            let name = pod.name.to_string();
            if pod.phase == Phase::Pending || (resource == "cpu" && self.is_starting(pod)) {
                groups.unready.push(name);
                continue;
            }
            match self.world.usage(pod, resource) {
                Some(used) => {
                    groups.used.insert(name, (used * 1000.0).round() as i64);
                    groups.ready += 1;
                }
                None => groups.missing.push(name),
            }
        }
        groups
    }

    fn is_starting(&self, pod: &Pod) -> bool {
        let (Some(started), Some(changed)) = (pod.started, pod.ready_changed) else { return true };
        if age(started, self.world.now()) < CPU_START {
            return !pod.ready;
        }
        !pod.ready && age(started, changed) < READINESS_DELAY
    }

    /// What pods ask for, in thousandths, if all their containers say.
    fn requests(&self, pods: &[Arc<Pod>], resource: &str) -> Result<Amounts, String> {
        let mut requests = Amounts::new();
        for pod in pods {
            let tree = self.world.get(kind::PODS, &pod.namespace, &pod.name).unwrap_or_default();
            let mut sum = 0_i64;
            let stays = |it: &&Value| tree::text(it, "/restartPolicy") == "Always";
            let beside = tree::items(&tree, "/spec/initContainers").filter(stays);
            for container in tree::items(&tree, "/spec/containers").chain(beside) {
                let requests = container.pointer("/resources/requests");
                let request = requests.and_then(|all| all.get(resource)).and_then(Value::as_str);
                let request = request.and_then(|text| text.parse::<Quantity>().ok()).ok_or_else(|| {
                    let container = tree::text(container, "/name");
                    format!("missing request for {resource} in container {container} of Pod {}", pod.name)
                })?;
                sum = sum.saturating_add(request.milli_value());
            }
            requests.insert(pod.name.to_string(), sum);
        }
        Ok(requests)
    }

    fn is_tolerable(&self, ratio: f64) -> bool {
        let tolerance = |way: &str| {
            let rules = self.autoscaler.pointer("/spec/behavior").and_then(|behavior| behavior.get(way));
            let text = rules.and_then(|rules| rules.get("tolerance")).and_then(Value::as_str);
            text.and_then(|text| text.parse::<Quantity>().ok()).map_or(TOLERANCE, |it| it.approximately())
        };
        (1.0 - tolerance("scaleDown")) <= ratio && ratio <= (1.0 + tolerance("scaleUp"))
    }
}

/// What a metric should be.
enum Goal {
    /// For every pod, in thousandths.
    Average(i64),
    /// Of what pods ask for.
    Percent(i64, Result<Amounts, String>),
}

impl Goal {
    fn ratio(&self, used: &Amounts) -> Result<Ratio, String> {
        let total: i64 = used.values().sum();
        match self {
            Goal::Average(goal) => {
                let average = total / (used.len() as i64).max(1);
                Ok(Ratio { ratio: average as f64 / *goal as f64, percent: 0, average })
            }
            Goal::Percent(goal, requests) => {
                let requests = requests.as_ref().map_err(String::clone)?;
                let known: Vec<(&i64, &i64)> =
                    used.iter().filter_map(|(name, used)| Some((used, requests.get(name)?))).collect();
                let used: i64 = known.iter().map(|(used, _)| **used).sum();
                let asked: i64 = known.iter().map(|(_, asked)| **asked).sum();
                if asked == 0 {
                    return Err("no metrics returned matched known pods".to_owned());
                }
                let percent = used.saturating_mul(100) / asked;
                Ok(Ratio {
                    ratio: percent as f64 / *goal as f64,
                    percent,
                    average: used / known.len() as i64,
                })
            }
        }
    }

    /// What a pod is taken to use when that makes the number of replicas smaller.
    fn assumed(&self, pod: &str) -> i64 {
        match self {
            Goal::Average(goal) => *goal,
            Goal::Percent(goal, requests) => {
                let asked =
                    requests.as_ref().ok().and_then(|requests| requests.get(pod)).copied().unwrap_or(0);
                asked.saturating_mul((*goal).max(100)) / 100
            }
        }
    }
}

fn ceil(ratio: f64, pods: usize) -> i64 {
    (ratio * pods as f64).ceil() as i64
}
