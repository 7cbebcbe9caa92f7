//! Environment variables and what they are taken from.

use std::collections::BTreeMap;

use serde_json::json;

use super::super::parts::{Path, dns_label, invalid_each, items, object, qualified_name, quantity_in, text};
use super::volumes::no_backsteps;
use crate::{field_error::Cause, names, resource::Tree};

const ENV_FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
const VOLUME_FIELDS: [&str; 5] =
    ["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];
/// What a pod can be asked for, at one place or another.
const KNOWN_FIELDS: [&str; 15] = [
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.serviceAccountName",
    "spec.schedulerName",
    "status.phase",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
    "spec.host",
];
const RESOURCES: [&str; 6] = [
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];
const UNITS: [&str; 13] = ["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];

/// Who asks a pod about itself.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Asker {
    Environment,
    Volume,
}

pub fn environment(container: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let env = path.child("env");
    for (at, variable) in items(container, "env") {
        let variable_path = env.index(at);
        let (name, name_path) = (text(variable, "name"), variable_path.child("name"));
        match name {
            "" => causes.push(Cause::required(&name_path, "")),
            _ => causes.extend(invalid_each(&name_path, name, names::is_relaxed_env_var_name(name))),
        }
        causes.extend(value_from(variable, &variable_path.child("valueFrom")));
    }
    let env_from = path.child("envFrom");
    for (at, source) in items(container, "envFrom") {
        causes.extend(env_from_source(source, &env_from, at));
    }
    causes
}

fn value_from(variable: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let Some(source) = object(variable, "valueFrom") else { return Vec::new() };
    let mut causes = Vec::new();
    let mut sources = 0;
    let mut take = |key: &str, check: &dyn Fn(&Tree, &Path<'_>) -> Vec<Cause>| {
        if let Some(reference) = object(source, key) {
            sources += 1;
            causes.extend(check(reference, &path.child(key)));
        }
    };
    take("fieldRef", &|reference, path| field_reference(reference, Asker::Environment, path));
    take("resourceFieldRef", &|reference, path| resource_reference(reference, Asker::Environment, path));
    take("configMapKeyRef", &key_reference);
    take("secretKeyRef", &key_reference);
    take("fileKeyRef", &file_reference);
    let detail = match sources {
        0 => {
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        }
        _ if !text(variable, "value").is_empty() => "may not be specified when `value` is not empty",
        1 => return causes,
        _ => "may not have more than one field specified at a time",
    };
    causes.push(Cause::invalid(path, &json!(""), detail));
    causes
}

/// A field of the pod: its name must be known, and allowed for who asks.
pub fn field_reference(reference: &Tree, asker: Asker, path: &Path<'_>) -> Vec<Cause> {
    let (version, field) = (text(reference, "apiVersion"), text(reference, "fieldPath"));
    if version.is_empty() {
        return vec![Cause::required(&path.child("apiVersion"), "")];
    }
    let field_path = path.child("fieldPath");
    if field.is_empty() {
        return vec![Cause::required(&field_path, "")];
    }
    let not_converted = |why: String| {
        vec![Cause::invalid(&field_path, &json!(field), &format!("error converting fieldPath: {why}"))]
    };
    if version != "v1" {
        return not_converted(format!("unsupported pod version: {version}"));
    }
    if let Some((map, key)) = subscript(field) {
        return match map {
            "metadata.annotations" => qualified_name(&key.to_lowercase(), path).collect(),
            "metadata.labels" => qualified_name(key, path).collect(),
            _ => not_converted(format!("field label does not support subscript: {field}")),
        };
    }
    if !KNOWN_FIELDS.contains(&field) {
        return not_converted(format!("field label not supported: {field}"));
    }
    // The name of old clients.
    let field = if field == "spec.host" { "spec.nodeName" } else { field };
    let allowed: &[&str] = if asker == Asker::Environment { &ENV_FIELDS } else { &VOLUME_FIELDS };
    if allowed.contains(&field) {
        return Vec::new();
    }
    vec![Cause::not_supported(&field_path, &json!(field), allowed)]
}

/// `metadata.labels['key']`
fn subscript(field: &str) -> Option<(&str, &str)> {
    let (map, key) = field.strip_suffix("']")?.split_once("['")?;
    (!map.is_empty()).then_some((map, key))
}

/// An amount of a container.
pub fn resource_reference(reference: &Tree, asker: Asker, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let resource = text(reference, "resource");
    let is_huge_pages =
        resource.starts_with("requests.hugepages-") || resource.starts_with("limits.hugepages-");
    if asker == Asker::Volume && text(reference, "containerName").is_empty() {
        causes.push(Cause::required(&path.child("containerName"), ""));
    } else if resource.is_empty() {
        causes.push(Cause::required(&path.child("resource"), ""));
    } else if !RESOURCES.contains(&resource) && !is_huge_pages {
        causes.push(Cause::not_supported(&path.child("resource"), &json!(resource), &RESOURCES));
    }
    let divisor = quantity_in(reference, "divisor").filter(|divisor| !divisor.is_zero());
    let Some(divisor) = divisor.map(|divisor| divisor.to_string()) else { return causes };
    let bytes = "1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei";
    let (units, listed, what): (&[&str], _, _) = match resource {
        "limits.cpu" | "requests.cpu" => (&["1m", "1"], "1m and 1", "cpu"),
        "limits.memory" | "requests.memory" => (&UNITS, bytes, "memory"),
        "limits.ephemeral-storage" | "requests.ephemeral-storage" => {
            (&UNITS, bytes, "local ephemeral storage")
        }
        _ if is_huge_pages => (&UNITS, bytes, "hugepages"),
        _ => return causes,
    };
    if !units.contains(&divisor.as_str()) {
        let detail = format!("only divisor's values {listed} are supported with the {what} resource");
        causes.push(Cause::invalid(&path.child("divisor"), &json!(resource), &detail));
    }
    causes
}

/// A key of a config map or a secret.
fn key_reference(reference: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let (name, key) = (text(reference, "name"), text(reference, "key"));
    let mut causes: Vec<Cause> =
        invalid_each(&path.child("name"), name, names::subdomain_name(name, false)).collect();
    let key_path = path.child("key");
    match key {
        "" => causes.push(Cause::required(&key_path, "")),
        _ => causes.extend(invalid_each(&key_path, key, names::is_config_map_key(key))),
    }
    causes
}

/// A variable in a file on a volume.
fn file_reference(reference: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut require = |key: &str, check: &dyn Fn(&str, &Path<'_>) -> Vec<Cause>| {
        let (value, path) = (text(reference, key), path.child(key));
        match value {
            "" => causes.push(Cause::required(&path, "")),
            _ => causes.extend(check(value, &path)),
        }
    };
    require("key", &|value, path| invalid_each(path, value, names::is_relaxed_env_var_name(value)).collect());
    require("volumeName", &|value, path| dns_label(value, path).collect());
    require("path", &|value, path| no_backsteps(value, path).into_iter().collect());
    causes
}

/// Upstream names the list where the number of sources is wrong.
fn env_from_source(source: &Tree, list: &Path<'_>, at: usize) -> Vec<Cause> {
    let mut causes = Vec::new();
    let path = list.index(at);
    let prefix = text(source, "prefix");
    if !prefix.is_empty() {
        causes.extend(invalid_each(&path.child("prefix"), prefix, names::is_relaxed_env_var_name(prefix)));
    }
    let mut sources = 0;
    for key in ["configMapRef", "secretRef"] {
        let Some(reference) = object(source, key) else { continue };
        sources += 1;
        let reference_path = path.child(key);
        let (name, name_path) = (text(reference, "name"), reference_path.child("name"));
        match name {
            "" => causes.push(Cause::required(&name_path, "")),
            _ => causes.extend(invalid_each(&name_path, name, names::subdomain_name(name, true))),
        }
    }
    let detail = match sources {
        0 => "must specify one of: `configMapRef` or `secretRef`",
        1 => return causes,
        _ => "may not have more than one field specified at a time",
    };
    causes.push(Cause::invalid(list, &json!(""), detail));
    causes
}

/// Variables from files need a volume that the pod has and that is empty when it starts.
pub fn file_volumes(spec: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    // The last one of a name counts.
    let volumes: BTreeMap<&str, &Tree> =
        items(spec, "volumes").map(|(_, volume)| (text(volume, "name"), volume)).collect();
    for (container, kind, index) in super::each_container(spec) {
        for (at, variable) in items(container, "env") {
            let source = object(variable, "valueFrom").and_then(|source| object(source, "fileKeyRef"));
            let Some(reference) = source else { continue };
            let name = text(reference, "volumeName");
            let fits = volumes.get(name).map(|volume| volume.contains_key("emptyDir"));
            if fits == Some(true) {
                continue;
            }
            let field = format!("{path}.{kind}[{index}].env[{at}].valueFrom.fileKeyRef.volumeName");
            causes.push(match fits {
                None => Cause::not_found(field, &json!(name)),
                Some(_) => Cause::invalid(field, &json!(name), "referenced volume must be of type emptyDir"),
            });
        }
    }
    causes
}
