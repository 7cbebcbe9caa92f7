//! What a copy keeps of what is the member's to choose, when it is written anew.
//!
//! Written with server-side apply, fields that the hub does not send stay the member's anyway; this is for those that
//! would be sent, and for writers that replace.

use serde_json::{Map, Value};

use crate::{
    fields::{at, at_mut, list, map, put, remove, text},
    kind::Kind,
    types::Problem,
};

/// Keeps in `desired` what is the member's to choose, for an object of `kind`.
pub fn retain(kind: &Kind, desired: &mut Value, member: &Value) -> Result<(), Problem> {
    kind.retain(desired, member)
}

/// The replicas that the member has, for an object whose replicas somebody in the member decides, an autoscaler for
/// example.
pub fn replicas(kind: &Kind, desired: &mut Value, member: &Value) {
    if let Some(path) = kind.replicas()
        && let Some(replicas) = at(member, path)
    {
        put(desired, path, replicas.clone());
    }
}

/// Of every kind. Labels and annotations that others have set stay; which of them were ours and are to go is known
/// from who owns the fields, and the API server's to decide.
pub(crate) fn metadata(desired: &mut Value, member: &Value) {
    for path in ["metadata.resourceVersion", "metadata.finalizers", "metadata.ownerReferences"] {
        if let Some(value) = at(member, path) {
            put(desired, path, value.clone());
        }
    }
    for path in ["metadata.labels", "metadata.annotations"] {
        let Some(there) = map(member, path) else { continue };
        let mut merged: Map<String, Value> = there.clone();
        merged.extend(map(desired, path).cloned().unwrap_or_default());
        put(desired, path, merged);
    }
}

pub(crate) fn nothing_more(_: &mut Value, _: &Value) -> Result<(), Problem> {
    Ok(())
}

/// Keeps what `desired` does not say.
fn absent(desired: &mut Value, member: &Value, path: &str) {
    if at(desired, path).is_none()
        && let Some(value) = at(member, path)
    {
        put(desired, path, value.clone());
    }
}

fn invalid(field: &str, reason: &str) -> Problem {
    Problem::Invalid { field: field.to_owned(), reason: reason.to_owned() }
}

pub(crate) fn service(desired: &mut Value, member: &Value) -> Result<(), Problem> {
    check_service(member)?;
    if text(desired, "spec.type") == "ExternalName" {
        return Ok(());
    }
    if at(member, "spec.healthCheckNodePort").and_then(Value::as_i64).is_some_and(|port| port > 0) {
        absent(desired, member, "spec.healthCheckNodePort");
    }
    if !text(member, "spec.clusterIP").is_empty() {
        absent(desired, member, "spec.clusterIP");
    }
    if !list(member, "spec.clusterIPs").is_empty() {
        absent(desired, member, "spec.clusterIPs");
    }
    if text(desired, "spec.type") != "ClusterIP" {
        node_ports(desired, member);
    }
    Ok(())
}

fn check_service(member: &Value) -> Result<(), Problem> {
    if at(member, "spec.healthCheckNodePort").is_some_and(|port| !port.is_i64()) {
        return Err(invalid("spec.healthCheckNodePort", "must be an integer"));
    }
    if at(member, "spec.clusterIP").is_some_and(|address| !address.is_string()) {
        return Err(invalid("spec.clusterIP", "must be a string"));
    }
    if at(member, "spec.clusterIPs").is_some_and(|addresses| !addresses.is_array()) {
        return Err(invalid("spec.clusterIPs", "must be a list"));
    }
    Ok(())
}

/// Ports are the same by name, protocol and number; a protocol that is not said is TCP.
fn node_ports(desired: &mut Value, member: &Value) {
    let key = |port: &Value| {
        let protocol = match text(port, "protocol") {
            "" => "TCP".to_owned(),
            protocol => protocol.to_owned(),
        };
        (text(port, "name").to_owned(), protocol, at(port, "port").and_then(Value::as_i64))
    };
    for port in at_mut(desired, "spec.ports").and_then(Value::as_array_mut).into_iter().flatten() {
        let same = list(member, "spec.ports").iter().find(|there| key(there) == key(port));
        if let Some(same) = same.filter(|same| at(same, "nodePort").is_some_and(|it| it.as_i64() > Some(0))) {
            absent(port, same, "nodePort");
        }
    }
}

pub(crate) fn service_account(desired: &mut Value, member: &Value) -> Result<(), Problem> {
    absent(desired, member, "secrets");
    absent(desired, member, "imagePullSecrets");
    Ok(())
}

/// Nearly nothing of a pod can be changed, so what the member has added stays.
pub(crate) fn pod(desired: &mut Value, member: &Value) -> Result<(), Problem> {
    for path in
        ["nodeName", "serviceAccountName", "serviceAccount", "priority", "preemptionPolicy", "overhead"]
    {
        absent(desired, member, &format!("spec.{path}"));
    }
    for path in ["spec.volumes", "spec.tolerations"] {
        if let Some(value) = at(member, path) {
            put(desired, path, value.clone());
        }
    }
    for path in ["spec.containers", "spec.initContainers"] {
        for container in at_mut(desired, path).and_then(Value::as_array_mut).into_iter().flatten() {
            let name = text(container, "name").to_owned();
            let same = list(member, path).iter().find(|there| text(there, "name") == name);
            if let Some(mounts) = same.and_then(|same| at(same, "volumeMounts")) {
                put(container, "volumeMounts", mounts.clone());
            }
        }
    }
    Ok(())
}

pub(crate) fn claim(desired: &mut Value, member: &Value) -> Result<(), Problem> {
    for path in ["spec.volumeName", "spec.storageClassName", "spec.volumeMode"] {
        absent(desired, member, path);
    }
    Ok(())
}

pub(crate) fn volume(desired: &mut Value, member: &Value) -> Result<(), Problem> {
    if let Some(claim) = at(member, "spec.claimRef") {
        put(desired, "spec.claimRef", claim.clone());
    }
    Ok(())
}

/// The selector that the member generated, and the labels it selects by.
pub(crate) fn job(desired: &mut Value, member: &Value) -> Result<(), Problem> {
    absent(desired, member, "spec.selector");
    if let Some(there) = map(member, "spec.template.metadata.labels") {
        let mut labels = there.clone();
        labels.extend(map(desired, "spec.template.metadata.labels").cloned().unwrap_or_default());
        put(desired, "spec.template.metadata.labels", labels);
    }
    Ok(())
}

pub(crate) fn secret(desired: &mut Value, member: &Value) -> Result<(), Problem> {
    if text(desired, "type") == "kubernetes.io/service-account-token" {
        remove(desired, "data");
        absent(desired, member, "data");
    }
    Ok(())
}

pub(crate) fn namespace(desired: &mut Value, member: &Value) -> Result<(), Problem> {
    absent(desired, member, "spec.finalizers");
    Ok(())
}
