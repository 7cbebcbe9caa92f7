//! What others conclude from an object, each by its own rules, written down apart from the crate's: `kubectl rollout
//! status`, `kubectl wait --for=condition`, kstatus, and the health of Argo CD.

use serde_json::Value;

/// A number at a path, or what it is when it is not there.
fn int(object: &Value, pointer: &str, absent: i64) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or(absent)
}

fn string<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or("")
}

fn conditions(object: &Value) -> &[Value] {
    object.pointer("/status/conditions").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    conditions(object).iter().find(|it| it["type"] == kind)
}

/// `kubectl wait --for=condition=KIND`: also the generation must have been observed, where the object says so.
pub fn wait(object: &Value, kind: &str) -> bool {
    let generation = int(object, "/metadata/generation", 0);
    let observed = object.pointer("/status/observedGeneration").and_then(Value::as_i64);
    if observed.is_some_and(|observed| observed < generation) {
        return false;
    }
    condition(object, kind).is_some_and(|it| it["status"] == "True")
}

/// `kubectl rollout status`: whether it ends with success.
pub fn rollout(object: &Value) -> bool {
    let generation = int(object, "/metadata/generation", 0);
    let observed = int(object, "/status/observedGeneration", 0);
    let status = |field: &str| int(object, &format!("/status/{field}"), 0);
    let wanted = int(object, "/spec/replicas", 0);
    match object["kind"].as_str().unwrap_or_default() {
        "Deployment" => {
            let stuck =
                condition(object, "Progressing").is_some_and(|it| it["reason"] == "ProgressDeadlineExceeded");
            generation <= observed
                && !stuck
                && status("updatedReplicas") >= wanted
                && status("replicas") <= status("updatedReplicas")
                && status("availableReplicas") >= status("updatedReplicas")
        }
        "DaemonSet" => {
            generation <= observed
                && status("updatedNumberScheduled") >= status("desiredNumberScheduled")
                && status("numberAvailable") >= status("desiredNumberScheduled")
        }
        "StatefulSet" => {
            if observed == 0 || generation > observed || status("readyReplicas") < wanted {
                return false;
            }
            match object.pointer("/spec/updateStrategy/rollingUpdate") {
                Some(rolling) => match rolling.get("partition").and_then(Value::as_i64) {
                    Some(partition) => status("updatedReplicas") >= wanted - partition,
                    None => true,
                },
                None => string(object, "/status/updateRevision") == string(object, "/status/currentRevision"),
            }
        }
        kind => panic!("kubectl knows no rollout of a {kind}"),
    }
}

/// kstatus: whether it is `Current`.
pub fn kstatus(object: &Value) -> bool {
    if object.pointer("/metadata/deletionTimestamp").is_some() {
        return false;
    }
    let generation = object.pointer("/metadata/generation").and_then(Value::as_i64);
    let observed = object.pointer("/status/observedGeneration").and_then(Value::as_i64);
    if let (Some(generation), Some(observed)) = (generation, observed)
        && generation != observed
    {
        return false;
    }
    if conditions(object)
        .iter()
        .any(|it| (it["type"] == "Reconciling" || it["type"] == "Stalled") && it["status"] == "True")
    {
        return false;
    }
    let status = |field: &str| int(object, &format!("/status/{field}"), 0);
    let wanted = int(object, "/spec/replicas", 1);
    match object["kind"].as_str().unwrap_or_default() {
        "Deployment" => {
            let progressing = condition(object, "Progressing");
            let unwatched =
                int(object, "/spec/progressDeadlineSeconds", i64::from(i32::MAX)) == i64::from(i32::MAX);
            let reason = |wanted: &str| progressing.is_some_and(|it| it["reason"] == wanted);
            let progressed = unwatched
                || (reason("NewReplicaSetAvailable") && progressing.is_some_and(|it| it["status"] == "True"));
            let is_available = condition(object, "Available").is_some_and(|it| it["status"] == "True");
            !reason("ProgressDeadlineExceeded")
                && status("replicas") == wanted
                && status("updatedReplicas") >= wanted
                && status("availableReplicas") >= status("updatedReplicas")
                && status("readyReplicas") >= wanted
                && progressed
                && is_available
        }
        "ReplicaSet" => {
            let failing = condition(object, "ReplicaFailure").is_some_and(|it| it["status"] == "True");
            !failing
                && status("fullyLabeledReplicas") >= wanted
                && status("availableReplicas") >= wanted
                && status("readyReplicas") >= wanted
                && status("replicas") <= wanted
        }
        "StatefulSet" => {
            let partition = int(object, "/spec/updateStrategy/rollingUpdate/partition", -1);
            if status("replicas") != wanted || status("readyReplicas") < wanted {
                return false;
            }
            match partition {
                -1 => {
                    status("currentReplicas") >= wanted
                        && string(object, "/status/currentRevision")
                            == string(object, "/status/updateRevision")
                }
                partition => status("updatedReplicas") >= wanted - partition,
            }
        }
        "DaemonSet" => {
            let wanted = int(object, "/status/desiredNumberScheduled", -1);
            generation.is_some()
                && observed.is_some()
                && wanted >= 0
                && ["currentNumberScheduled", "updatedNumberScheduled", "numberAvailable", "numberReady"]
                    .iter()
                    .all(|field| status(field) >= wanted)
        }
        "PersistentVolumeClaim" => string(object, "/status/phase") == "Bound",
        "Job" => {
            let is = |kind: &str| condition(object, kind).is_some_and(|it| it["status"] == "True");
            is("Complete")
                || is("Suspended")
                || (!is("Failed") && !string(object, "/status/startTime").is_empty())
        }
        "PodDisruptionBudget" => true,
        _ => condition(object, "Ready").is_none_or(|it| it["status"] == "True"),
    }
}

/// Argo CD: whether it is `Healthy`.
pub fn argo(object: &Value) -> bool {
    let generation = int(object, "/metadata/generation", 0);
    let observed = int(object, "/status/observedGeneration", 0);
    let status = |field: &str| int(object, &format!("/status/{field}"), 0);
    match object["kind"].as_str().unwrap_or_default() {
        "Deployment" => object.pointer("/spec/paused") != Some(&Value::Bool(true)) && rollout(object),
        "DaemonSet" => {
            let by_hand = string(object, "/spec/updateStrategy/type") == "OnDelete";
            (by_hand && generation <= observed) || rollout(object)
        }
        "StatefulSet" => {
            let by_hand = string(object, "/spec/updateStrategy/type") == "OnDelete";
            let ready = status("readyReplicas") >= int(object, "/spec/replicas", 0);
            match by_hand {
                true => observed > 0 && generation <= observed && ready,
                false => rollout(object),
            }
        }
        "ReplicaSet" => {
            let failing = condition(object, "ReplicaFailure").is_some_and(|it| it["status"] == "True");
            generation <= observed
                && !failing
                && status("availableReplicas") >= int(object, "/spec/replicas", 0)
        }
        "Job" => condition(object, "Complete").is_some() && condition(object, "Failed").is_none(),
        "PersistentVolumeClaim" => string(object, "/status/phase") == "Bound",
        "HorizontalPodAutoscaler" => autoscaler(object),
        kind => panic!("Argo CD has no rule for a {kind}"),
    }
}

/// The first condition that says anything decides.
fn autoscaler(object: &Value) -> bool {
    for it in conditions(object) {
        match (it["type"].as_str().unwrap_or_default(), it["reason"].as_str().unwrap_or_default()) {
            ("AbleToScale", "FailedGetScale" | "FailedUpdateScale") => return false,
            ("ScalingActive", "FailedGetResourceMetric" | "InvalidSelector") => return false,
            ("AbleToScale", "SucceededRescale") => return true,
            ("ScalingLimited", "DesiredWithinRange" | "TooFewReplicas" | "TooManyReplicas") => return true,
            _ => {}
        }
    }
    false
}
