//! Nodes.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::super::{
    annotation,
    members::made,
    network::is_ipv6_range,
    pod::{round_up, shape},
};
use crate::{
    field_error::Cause,
    gojson, gotext, names,
    resource::{Tree, only},
    validation::parts::{
        self, Path, dns_label, dns_subdomain, entries, invalid_each, items, list, object, object_mut, text,
        texts,
    },
};

const SPEC: Path<'_> = Path::new("spec");
const TAINTS: &str = "scheduler.alpha.kubernetes.io/taints";
const AVOIDED_PODS: &str = "scheduler.alpha.kubernetes.io/preferAvoidPods";

/// The configuration of kubelets by the API is no more.
pub fn prepare_create(tree: &mut Tree) {
    made(tree, "spec").remove("configSource");
    made(tree, "status").remove("config");
}

pub fn prepare_update(new: &mut Tree, old: &Tree) {
    if object(old, "spec").is_none_or(|spec| !spec.contains_key("configSource")) {
        made(new, "spec").remove("configSource");
    }
}

pub fn only_status(new: &mut Tree, old: &Tree) {
    only(new, old, "status");
    if object(old, "status").is_none_or(|status| !status.contains_key("config")) {
        made(new, "status").remove("config");
    }
}

pub fn default(tree: &mut Tree) {
    mirror_range(made(tree, "spec"));
    let Some(status) = object_mut(tree, "status") else { return };
    round_up(status, "capacity");
    if status.get("allocatable").is_none_or(Value::is_null)
        && let Some(capacity) = status.get("capacity").cloned()
    {
        status.insert("allocatable".into(), capacity);
    }
    round_up(status, "allocatable");
}

/// `podCIDR` is the first of `podCIDRs`; where they differ the former counts, as old clients know no other.
fn mirror_range(spec: &mut Tree) {
    let (one, all) = (text(spec, "podCIDR").to_owned(), list(spec, "podCIDRs").to_vec());
    match (one.as_str(), all.as_slice()) {
        ("", []) => {}
        ("", [first, ..]) => drop(spec.insert("podCIDR".into(), first.clone())),
        (one, [first, ..]) if first == one => {}
        (one, _) => drop(spec.insert("podCIDRs".into(), json!([one]))),
    }
}

pub fn validate(new: &Tree, old: Option<&Tree>) -> Vec<Cause> {
    let mut causes = annotations(new);
    causes.extend(taints(new));
    causes.extend(resources(new));
    causes.extend(swap(new));
    causes.extend(declared_features(new));
    causes.extend(ranges(new));
    if let Some(old) = old {
        causes.extend(changes(new, old));
    }
    causes
}

/// What is wrong with a new status.
pub fn status(new: &Tree, old: &Tree) -> Vec<Cause> {
    changes(new, old)
}

fn annotations(new: &Tree) -> Vec<Cause> {
    let mut causes = taints_in_annotation(new);
    if let Some(value) = annotation(new, AVOIDED_PODS).filter(|value| !value.is_empty()) {
        causes.extend(avoided_pods(value));
    }
    causes
}

/// Taints were an annotation once.
fn taints_in_annotation(new: &Tree) -> Vec<Cause> {
    let Some(value) = annotation(new, TAINTS).filter(|value| !value.is_empty()) else { return Vec::new() };
    match gojson::parse(value.as_bytes()) {
        Ok(taints) => {
            let mut holder = Tree::new();
            holder.insert(TAINTS.to_owned(), taints);
            parts::taints(&holder, TAINTS, &Path::new("metadata.annotations"))
        }
        Err(error) => {
            let path = "metadata.annotations";
            vec![Cause::invalid(path, &json!(TAINTS), &error.to_string())]
        }
    }
}

fn avoided_pods(value: &str) -> Vec<Cause> {
    let root = Path::new("metadata.annotations");
    let avoids = match gojson::parse(value.as_bytes()) {
        Ok(avoids) => avoids,
        Err(error) => {
            return vec![Cause::invalid(&root.child("AvoidPods"), &json!(AVOIDED_PODS), &error.to_string())];
        }
    };
    let entries = avoids.get("preferAvoidPods").and_then(Value::as_array).into_iter().flatten();
    let list = root.child(AVOIDED_PODS);
    let mut causes = Vec::new();
    for (at, entry) in entries.enumerate() {
        let path = list.index(at);
        let signature = path.child("PodSignature");
        match entry.pointer("/podSignature/podController") {
            Some(owner) if owner["controller"] == false => {
                let owner = signature.child("PodController");
                let detail = "must point to a controller";
                causes.push(Cause::invalid(&owner.child("Controller"), &json!(false), detail));
            }
            Some(owner) if owner.is_object() => {}
            _ => causes.push(Cause::required(&signature, "")),
        }
    }
    causes
}

/// Upstream says `metadata`.
fn taints(new: &Tree) -> Vec<Cause> {
    object(new, "spec").map(|spec| parts::taints(spec, "taints", &Path::new("metadata"))).unwrap_or_default()
}

fn resources(new: &Tree) -> Vec<Cause> {
    let Some(status) = object(new, "status") else { return Vec::new() };
    let root = Path::new("status");
    let mut causes = Vec::new();
    for key in ["capacity", "allocatable"] {
        let path = root.child(key);
        for (name, value) in entries(status, key) {
            causes.extend(parts::resource_quantity(name, value, &path.child(name)));
        }
    }
    causes
}

fn swap(new: &Tree) -> Option<Cause> {
    let capacity = new.get("status")?.get("nodeInfo")?.get("swap")?.get("capacity")?.as_i64()?;
    let path = Path::new("metadata.nodeSwapStatus");
    parts::positive(capacity, &path.child("capacity"))
}

fn declared_features(new: &Tree) -> Vec<Cause> {
    let Some(status) = object(new, "status") else { return Vec::new() };
    let path = Path::new("status.declaredFeatures");
    let features: Vec<&str> = texts(status, "declaredFeatures").collect();
    let mut causes = Vec::new();
    for (at, feature) in features.iter().enumerate() {
        if let Some(why) = feature_name(feature) {
            causes.push(Cause::invalid(&path.index(at), &json!(feature), &why));
        }
        match features.get(at + 1) {
            Some(next) if next == feature => {
                causes.push(Cause::duplicate(&path.index(at + 1), &json!(next)));
            }
            Some(next) if next < feature => {
                let detail = "list must be sorted alphabetically";
                causes.push(Cause::invalid(&path.index(at + 1), &json!(next), detail));
            }
            _ => {}
        }
    }
    causes
}

fn feature_name(name: &str) -> Option<String> {
    let quoted = gotext::quote(name);
    if name.len() > names::SUBDOMAIN_MAX {
        let max = names::SUBDOMAIN_MAX;
        return Some(format!("invalid feature name {quoted}: must be no more than {max} characters"));
    }
    let is_word = |part: &str, first: fn(&u8) -> bool| {
        part.as_bytes().first().is_some_and(first) && part.bytes().all(|it| it.is_ascii_alphanumeric())
    };
    let mut parts = name.split('/');
    let fits = parts.next().is_some_and(|part| is_word(part, u8::is_ascii_uppercase))
        && parts.all(|part| is_word(part, u8::is_ascii_alphabetic));
    (!fits).then(|| {
        format!(
            "invalid feature name {quoted}: must start with an UpperCamelCase segment, with subsequent segments separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric characters and slashes"
        )
    })
}

fn ranges(new: &Tree) -> Vec<Cause> {
    let Some(spec) = object(new, "spec") else { return Vec::new() };
    let path = SPEC.child("podCIDRs");
    let ranges: Vec<&str> = texts(spec, "podCIDRs").collect();
    let places = ranges.iter().enumerate();
    let mut causes: Vec<Cause> =
        places.filter_map(|(at, range)| parts::legacy_cidr(range, &path.index(at), &[])).collect();
    if ranges.len() < 2 {
        return causes;
    }
    let families: Vec<Option<bool>> = ranges.iter().map(|range| is_ipv6_range(range)).collect();
    if let Some(bad) = families.iter().position(Option::is_none) {
        let detail = format!(
            "invalid PodCIDRs. failed to check with dual stack with error:invalid CIDR[{bad}]: <nil> (invalid CIDR address: {})",
            ranges.get(bad).copied().unwrap_or_default()
        );
        causes.push(Cause::internal(&path, &detail));
    }
    let is_dual =
        families.contains(&Some(true)) && families.contains(&Some(false)) && !families.contains(&None);
    if !is_dual || ranges.len() > 2 {
        let detail = "may specify no more than one CIDR for each IP family";
        causes.push(Cause::invalid(&path, &json!(ranges), detail));
    }
    causes
}

fn changes(new: &Tree, old: &Tree) -> Vec<Cause> {
    let empty = Tree::new();
    let (now, was) = (object(new, "spec").unwrap_or(&empty), object(old, "spec").unwrap_or(&empty));
    let mut causes = annotations(new);
    causes.extend(resources(new));
    causes.extend(declared_features(new));
    causes.extend(addresses(new));
    let (ranges, had) = (list(now, "podCIDRs"), list(was, "podCIDRs"));
    let changed = match ranges.len() == had.len() {
        true => ranges.iter().zip(had).filter(|(now, was)| now != was).count(),
        false => usize::from(!had.is_empty()),
    };
    let detail = "node updates may not change podCIDR except from \"\" to valid";
    causes.extend((0..changed).map(|_| Cause::forbidden(&SPEC.child("podCIDRs"), detail)));
    let provider = text(was, "providerID");
    if !provider.is_empty() && provider != text(now, "providerID") {
        let detail = "node updates may not change providerID except from \"\" to valid";
        causes.push(Cause::forbidden(&SPEC.child("providerID"), detail));
    }
    if let Some(source) = object(now, "configSource") {
        causes.extend(config_source(source, false, &SPEC.child("configSource")));
    }
    causes.extend(config_status(new));
    causes.extend(taints(new));
    if text(now, "externalID") != text(was, "externalID") {
        causes.push(Cause::forbidden(&SPEC.child("externalID"), "may not be updated"));
    }
    causes
}

fn addresses(new: &Tree) -> Vec<Cause> {
    let Some(status) = object(new, "status") else { return Vec::new() };
    let path = Path::new("status.addresses");
    let mut seen = HashSet::new();
    let mut causes = Vec::new();
    for (at, address) in items(status, "addresses") {
        let key = (text(address, "type"), text(address, "address"));
        if !seen.insert(key) {
            let shown = shape::shown("NodeAddress", address);
            causes.push(Cause::duplicate_text(&path.index(at), &shown, ""));
        }
    }
    causes
}

fn config_status(new: &Tree) -> Vec<Cause> {
    let config = object(new, "status").and_then(|status| object(status, "config"));
    let path = Path::new("status.config");
    let mut causes = Vec::new();
    for key in ["assigned", "active", "lastKnownGood"] {
        if let Some(source) = config.and_then(|config| object(config, key)) {
            causes.extend(config_source(source, true, &path.child(key)));
        }
    }
    causes
}

/// Where a kubelet had its configuration from: a field of a feature that is gone, kept where it is stored.
fn config_source(source: &Tree, in_status: bool, path: &Path<'_>) -> Vec<Cause> {
    let Some(map) = object(source, "configMap") else {
        let detail = "exactly one reference subfield must be non-nil";
        return vec![Cause::invalid_text(path, "{\"ConfigMap\":null}", detail)];
    };
    let path = path.child("configMap");
    let mut causes = Vec::new();
    for key in ["uid", "resourceVersion"] {
        match (in_status, text(map, key).is_empty()) {
            (true, true) => causes.push(Cause::required(&path.child(key), "")),
            (false, false) => {
                let detail = format!("{key} must not be set in spec");
                causes.push(Cause::forbidden(&path.child(key), &detail));
            }
            _ => {}
        }
    }
    for key in ["namespace", "name", "kubeletConfigKey"] {
        let (value, path) = (text(map, key), path.child(key));
        match (key, value) {
            (_, "") => causes.push(Cause::required(&path, "")),
            ("namespace", value) => causes.extend(dns_label(value, &path)),
            ("name", value) => causes.extend(dns_subdomain(value, &path)),
            (_, value) => causes.extend(invalid_each(&path, value, names::is_config_map_key(value))),
        }
    }
    causes
}

pub fn warn(new: &Tree, _: Option<&Tree>) -> Vec<String> {
    let Some(spec) = object(new, "spec") else { return Vec::new() };
    let mut warnings = Vec::new();
    if spec.get("configSource").is_some_and(Value::is_object) {
        warnings.push("spec.configSource: the feature is removed".to_owned());
    }
    if !text(spec, "externalID").is_empty() {
        let warning = "spec.externalID: this field is deprecated, and is unused by Kubernetes";
        warnings.push(warning.to_owned());
    }
    let path = SPEC.child("podCIDRs");
    for (at, range) in texts(spec, "podCIDRs").enumerate() {
        warnings.extend(parts::cidr_warnings(range, &path.index(at)));
    }
    warnings
}
