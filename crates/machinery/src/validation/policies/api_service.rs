//! Other servers' APIs that this server passes requests on to.

use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use serde_json::{Value, json};

use crate::{
    field_error::Cause,
    names,
    resource::Tree,
    validation::{
        members::{count, metadata},
        parts::{Path, dns_subdomain, flag, invalid_each, items, object, text},
    },
};

const SPEC: Path<'static> = Path::new("spec");

pub fn api_service(new: &Tree, _: Option<&Tree>) -> Vec<Cause> {
    let empty = Tree::new();
    let spec = object(new, "spec").unwrap_or(&empty);
    let (group, version) = (text(spec, "group"), text(spec, "version"));
    let mut causes: Vec<Cause> = named(metadata(new, "name"), group, version).into_iter().collect();
    if group.is_empty() && version != "v1" {
        let detail = "only v1 may have an empty group and it better be legacy kube";
        causes.push(Cause::required(&SPEC.child("group"), detail));
    }
    if !group.is_empty() {
        causes.extend(dns_subdomain(group, &SPEC.child("group")));
    }
    causes.extend(invalid_each(&SPEC.child("version"), version, names::is_dns1035_label(version)));
    for (key, most) in [("groupPriorityMinimum", 20_000), ("versionPriority", 1000)] {
        let priority = count(spec, key);
        if !(1..=most).contains(&priority) {
            let detail = format!("must be positive and less than {most}");
            causes.push(Cause::invalid(&SPEC.child(key), &json!(priority), &detail));
        }
    }
    match object(spec, "service") {
        Some(service) => causes.extend(served_elsewhere(spec, service)),
        None => causes.extend(served_here(spec)),
    }
    causes
}

fn named(name: &str, group: &str, version: &str) -> Option<Cause> {
    let wanted = format!("{version}.{group}");
    let shape = names::is_path_segment_name(name);
    (!name.is_empty() && shape.is_empty() && name != wanted).then(|| {
        let detail = format!("must be `spec.version+\".\"+spec.group`: {}", crate::gotext::quote(&wanted));
        Cause::invalid("metadata.name", &json!(name), &detail)
    })
}

fn bundle_length(spec: &Tree) -> usize {
    BASE64.decode(text(spec, "caBundle")).map_or(0, |bytes| bytes.len())
}

fn served_here(spec: &Tree) -> Vec<Cause> {
    let mut causes = Vec::new();
    let length = bundle_length(spec);
    if length > 0 {
        let detail = "local APIServices may not have a caBundle";
        causes.push(Cause::invalid(&SPEC.child("caBundle"), &json!(format!("{length} bytes")), detail));
    }
    if flag(spec, "insecureSkipTLSVerify") {
        let detail = "local APIServices may not have insecureSkipTLSVerify";
        causes.push(Cause::invalid(&SPEC.child("insecureSkipTLSVerify"), &Value::Bool(true), detail));
    }
    causes
}

fn served_elsewhere(spec: &Tree, service: &Tree) -> Vec<Cause> {
    let path = SPEC.child("service");
    let mut causes = Vec::new();
    for key in ["namespace", "name"] {
        if text(service, key).is_empty() {
            causes.push(Cause::required(&path.child(key), ""));
        }
    }
    let port = count(service, "port");
    let reasons = names::is_port_number(port);
    if !reasons.is_empty() {
        let detail = format!("port is not valid: {}", reasons.join(", "));
        causes.push(Cause::invalid(&path.child("port"), &json!(port), &detail));
    }
    if flag(spec, "insecureSkipTLSVerify") && bundle_length(spec) > 0 {
        let detail = "may not be true if caBundle is present";
        causes.push(Cause::invalid(&SPEC.child("insecureSkipTLSVerify"), &Value::Bool(true), detail));
    }
    causes
}

pub fn api_service_status(new: &Tree, _: &Tree) -> Vec<Cause> {
    const STATUSES: [&str; 3] = ["True", "False", "Unknown"];
    let empty = Tree::new();
    let status = object(new, "status").unwrap_or(&empty);
    let path = Path::new("status");
    let path = path.child("conditions");
    let conditions = items(status, "conditions").map(|(at, condition)| (at, text(condition, "status")));
    let odd = conditions.filter(|(_, status)| !STATUSES.contains(status));
    odd.map(|(at, status)| Cause::not_supported(&path.index(at).child("status"), &json!(status), &STATUSES))
        .collect()
}
