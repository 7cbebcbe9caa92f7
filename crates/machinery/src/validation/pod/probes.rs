//! How a container is asked whether it is well, and what it does when it starts and stops.

use serde_json::json;

use super::super::parts::{
    Path, invalid_each, items, list, not_negative, number, object, port_number, port_number_or_name, text,
};
use crate::{field_error::Cause, names, resource::Tree};

const SCHEMES: [&str; 2] = ["HTTP", "HTTPS"];
const ONLY_ONE: &str = "may not specify more than 1 handler type";

/// Hooks and probes of a container that runs as long as its pod.
pub fn probes(container: &Tree, grace_period: Option<i64>, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    if let Some(lifecycle) = object(container, "lifecycle") {
        let lifecycle_path = path.child("lifecycle");
        for key in ["postStart", "preStop"] {
            if let Some(hook) = object(lifecycle, key) {
                let kinds = ["exec", "httpGet", "tcpSocket", "sleep"];
                causes.extend(handler(hook, &kinds, grace_period, &lifecycle_path.child(key)));
            }
        }
    }
    for key in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = object(container, key) {
            causes.extend(one_probe(probe, key, &path.child(key)));
        }
    }
    causes
}

fn one_probe(probe: &Tree, kind: &str, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = handler(probe, &["exec", "httpGet", "tcpSocket", "grpc"], None, path);
    for key in
        ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"]
    {
        causes.extend(not_negative(number(probe, key).unwrap_or(0), &path.child(key)));
    }
    let grace_path = path.child("terminationGracePeriodSeconds");
    let grace = number(probe, "terminationGracePeriodSeconds");
    if let Some(seconds) = grace.filter(|seconds| *seconds <= 0) {
        causes.push(Cause::invalid(&grace_path, &json!(seconds), "must be greater than 0"));
    }
    if kind == "readinessProbe" {
        let detail = "must not be set for readinessProbes";
        causes.extend(grace.map(|seconds| Cause::invalid(&grace_path, &json!(seconds), detail)));
        return causes;
    }
    let successes = number(probe, "successThreshold").unwrap_or(0);
    if successes != 1 {
        causes.push(Cause::invalid(&path.child("successThreshold"), &json!(successes), "must be 1"));
    }
    causes
}

/// Exactly one of `kinds`.
fn handler(holder: &Tree, kinds: &[&str], grace_period: Option<i64>, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut found = false;
    for key in kinds {
        let Some(action) = object(holder, key) else { continue };
        let action_path = path.child(key);
        if found {
            causes.push(Cause::forbidden(&action_path, ONLY_ONE));
            continue;
        }
        found = true;
        match *key {
            "exec" if list(action, "command").is_empty() => {
                causes.push(Cause::required(&action_path.child("command"), ""));
            }
            "httpGet" => causes.extend(http_get(action, &action_path)),
            "tcpSocket" => {
                causes.extend(port_number_or_name(action.get("port"), &action_path.child("port")));
            }
            "grpc" => {
                causes.extend(port_number(number(action, "port").unwrap_or(0), &action_path.child("port")));
            }
            "sleep" => causes.extend(sleep(action, grace_period, &action_path)),
            _ => {}
        }
    }
    if !found {
        causes.push(Cause::required(path, "must specify a handler type"));
    }
    causes
}

fn http_get(action: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    if text(action, "path").is_empty() {
        causes.push(Cause::required(&path.child("path"), ""));
    }
    causes.extend(port_number_or_name(action.get("port"), &path.child("port")));
    let scheme = text(action, "scheme");
    if !SCHEMES.contains(&scheme) {
        causes.push(Cause::not_supported(&path.child("scheme"), &json!(scheme), &SCHEMES));
    }
    for (_, header) in items(action, "httpHeaders") {
        let name = text(header, "name");
        causes.extend(invalid_each(&path.child("httpHeaders"), name, names::is_http_header_name(name)));
    }
    causes
}

fn sleep(action: &Tree, grace_period: Option<i64>, path: &Path<'_>) -> Option<Cause> {
    let seconds = number(action, "seconds").unwrap_or(0);
    let most = grace_period.filter(|most| !(0..=*most).contains(&seconds))?;
    let detail = format!("must be non-negative and less than terminationGracePeriodSeconds ({most})");
    Some(Cause::invalid(path, &json!(seconds), &detail))
}
