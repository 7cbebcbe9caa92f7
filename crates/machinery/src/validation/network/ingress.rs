//! Ingresses and their classes.

use serde_json::{Value, json};

use super::{
    super::{annotation, members::default_to},
    balancer_host, balancer_ips, required_segment,
};
use crate::{
    field_error::Cause,
    names,
    resource::Tree,
    validation::parts::{
        self, IMMUTABLE, Path, dns_label, dns_subdomain, invalid_each, items, list, number, object,
        object_mut, port_number, text, texts,
    },
};

const SPEC: Path<'_> = Path::new("spec");
const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";
const MAX_CONTROLLER: usize = 250;

/// What stored ingresses had before rules became stricter.
#[derive(Clone, Copy, Default)]
struct Leniency {
    any_secret_name: bool,
    any_wildcard_rule: bool,
}

impl Leniency {
    fn of(old: &Tree) -> Self {
        let Some(spec) = object(old, "spec") else { return Self::default() };
        let bad_secret = |tls: &Tree| {
            !text(tls, "secretName").is_empty()
                && !names::is_dns1123_subdomain(text(tls, "secretName")).is_empty()
        };
        let bad_rule = |rule: &Tree| text(rule, "host").contains('*') && !rule_value(rule, &SPEC).is_empty();
        Self {
            any_secret_name: items(spec, "tls").any(|(_, tls)| bad_secret(tls)),
            any_wildcard_rule: items(spec, "rules").any(|(_, rule)| bad_rule(rule)),
        }
    }
}

pub fn validate(new: &Tree, old: Option<&Tree>) -> Vec<Cause> {
    let Some(spec) = object(new, "spec") else { return Vec::new() };
    let leniency = old.map(Leniency::of).unwrap_or_default();
    let mut causes = Vec::new();
    let backend = object(spec, "defaultBackend");
    if list(spec, "rules").is_empty() && backend.is_none() {
        let detail = "either `defaultBackend` or `rules` must be specified";
        causes.push(Cause::invalid(&SPEC, &Value::Null, detail));
    }
    if let Some(it) = backend {
        causes.extend(self::backend(it, &SPEC.child("defaultBackend")));
    }
    causes.extend(rules(spec, leniency));
    causes.extend(tls(spec, leniency));
    if let Some(class) = spec.get("ingressClassName").and_then(Value::as_str) {
        causes.extend(dns_subdomain(class, &SPEC.child("ingressClassName")));
    }
    if old.is_none() {
        causes.extend(class_annotation(new, spec));
    }
    causes
}

fn class_annotation(new: &Tree, spec: &Tree) -> Option<Cause> {
    let by_annotation = annotation(new, CLASS_ANNOTATION)?;
    let by_field = spec.get("ingressClassName").and_then(Value::as_str)?;
    let detail = "must match `ingressClassName` when both are specified";
    let path = format!("annotations.{CLASS_ANNOTATION}");
    (by_annotation != by_field).then(|| Cause::invalid(path, &json!(by_annotation), detail))
}

fn host_reasons(host: &str) -> Vec<String> {
    if host.contains('*') {
        names::is_wildcard_dns1123_subdomain(host)
    } else {
        names::is_dns1123_subdomain(host)
    }
}

fn tls(spec: &Tree, leniency: Leniency) -> Vec<Cause> {
    let mut causes = Vec::new();
    let root = SPEC.child("tls");
    for (at, tls) in items(spec, "tls") {
        let path = root.index(at);
        let hosts = path.child("hosts");
        for (at, host) in texts(tls, "hosts").enumerate() {
            causes.extend(invalid_each(&hosts.index(at), host, host_reasons(host)));
        }
        let secret = text(tls, "secretName");
        if !secret.is_empty() && !leniency.any_secret_name {
            causes.extend(dns_subdomain(secret, &path.child("secretName")));
        }
    }
    causes
}

fn rules(spec: &Tree, leniency: Leniency) -> Vec<Cause> {
    let mut causes = Vec::new();
    let root = SPEC.child("rules");
    for (at, rule) in items(spec, "rules") {
        let path = root.index(at);
        let host = text(rule, "host");
        let host_path = path.child("host");
        if !host.is_empty() {
            if parts::parse_ip_sloppy(host).is_some() {
                let detail = "must be a DNS name, not an IP address";
                causes.push(Cause::invalid(&host_path, &json!(host), detail));
            }
            causes.extend(invalid_each(&host_path, host, host_reasons(host)));
        }
        if !host.contains('*') || !leniency.any_wildcard_rule {
            causes.extend(rule_value(rule, &path));
        }
    }
    causes
}

fn rule_value(rule: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let Some(http) = object(rule, "http") else { return Vec::new() };
    let path = path.child("http");
    let paths = path.child("paths");
    if list(http, "paths").is_empty() {
        return vec![Cause::required(&paths, "")];
    }
    items(http, "paths").flat_map(|(at, it)| http_path(it, &paths.index(at))).collect()
}

fn http_path(it: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let (url, url_path) = (text(it, "path"), path.child("path"));
    let mut refuse = |detail: &str| causes.push(Cause::invalid(&url_path, &json!(url), detail));
    match it.get("pathType").and_then(Value::as_str) {
        None => return vec![Cause::required(&path.child("pathType"), "pathType must be specified")],
        Some("Exact" | "Prefix") => {
            if !url.starts_with('/') {
                refuse("must be an absolute path");
            }
            for part in ["//", "/./", "/../", "%2f", "%2F"].into_iter().filter(|part| url.contains(part)) {
                refuse(&format!("must not contain '{part}'"));
            }
            for end in ["/..", "/."].into_iter().filter(|end| url.ends_with(end)) {
                refuse(&format!("cannot end with '{end}'"));
            }
        }
        Some("ImplementationSpecific") => {
            if !url.is_empty() && !url.starts_with('/') {
                refuse("must be an absolute path");
            }
        }
        Some(other) => {
            let valid = ["Exact", "ImplementationSpecific", "Prefix"];
            causes.push(Cause::not_supported(&path.child("pathType"), &json!(other), &valid));
        }
    }
    if let Some(it) = object(it, "backend") {
        causes.extend(backend(it, &path.child("backend")));
    }
    causes
}

fn backend(backend: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let refuse = |detail: &str| vec![Cause::invalid(path, &json!(""), detail)];
    match (object(backend, "resource"), object(backend, "service")) {
        (Some(_), Some(_)) => refuse("cannot set both resource and service backends"),
        (Some(resource), None) => typed_reference(resource, &path.child("resource")),
        (None, Some(it)) => service_backend(it, path),
        (None, None) => refuse("resource or service backend is required"),
    }
}

fn service_backend(service: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let service_path = path.child("service");
    let name_path = service_path.child("name");
    match text(service, "name") {
        "" => causes.push(Cause::required(&name_path, "")),
        name => causes.extend(dns_label(name, &name_path)),
    }
    let port = object(service, "port");
    let name = port.map_or("", |port| text(port, "name"));
    let number = port.and_then(|port| number(port, "number")).unwrap_or(0);
    let port_path = service_path.child("port");
    match (name, number) {
        ("", 0) => causes.push(Cause::required(path, "port name or number is required")),
        ("", number) => causes.extend(port_number(number, &port_path.child("number"))),
        (name, 0) => causes.extend(invalid_each(&port_path.child("name"), name, names::is_port_name(name))),
        _ => causes.push(Cause::invalid(path, &json!(""), "cannot set both port name & port number")),
    }
    causes
}

fn typed_reference(reference: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    if let Some(group) = reference.get("apiGroup").and_then(Value::as_str) {
        causes.extend(dns_subdomain(group, &path.child("apiGroup")));
    }
    causes.extend(required_segment(reference, "kind", path));
    causes.extend(required_segment(reference, "name", path));
    causes
}

pub fn status(new: &Tree, old: &Tree) -> Vec<Cause> {
    let existing = balancer_ips(old);
    let root = Path::new("status.loadBalancer.ingress");
    let mut causes = Vec::new();
    for (at, ingress) in super::balancers(new).iter().filter_map(Value::as_object).enumerate() {
        let path = root.index(at);
        let ip = text(ingress, "ip");
        if !ip.is_empty() {
            causes.extend(parts::legacy_ip(ip, &path.child("ip"), &existing));
        }
        causes.extend(balancer_host(ingress, &path));
    }
    causes
}

pub fn warn(new: &Tree, old: Option<&Tree>) -> Vec<String> {
    let class = object(new, "spec").and_then(|spec| spec.get("ingressClassName")).and_then(Value::as_str);
    if old.is_some() || class.is_some() || annotation(new, CLASS_ANNOTATION).is_none() {
        return Vec::new();
    }
    vec![format!(
        "annotation \"{CLASS_ANNOTATION}\" is deprecated, please use 'spec.ingressClassName' instead"
    )]
}

/// A new ingress has no status.
pub fn prepare_create(tree: &mut Tree) {
    tree.insert("status".into(), json!({"loadBalancer": {}}));
}

pub fn default_class(tree: &mut Tree) {
    if let Some(parameters) = object_mut(tree, "spec").and_then(|spec| object_mut(spec, "parameters")) {
        default_to(parameters, "scope", "Cluster");
    }
}

pub fn validate_class(new: &Tree, old: Option<&Tree>) -> Vec<Cause> {
    let Some(spec) = object(new, "spec") else { return Vec::new() };
    let path = SPEC.child("controller");
    let controller = text(spec, "controller");
    let was = old.and_then(|old| object(old, "spec")).map(|spec| text(spec, "controller"));
    let mut causes = Vec::new();
    if was.is_some_and(|was| was != controller) {
        causes.push(Cause::invalid(&path, &json!(controller), IMMUTABLE));
    }
    if controller.len() > MAX_CONTROLLER {
        causes.push(Cause::too_long(&path, MAX_CONTROLLER));
    }
    causes.extend(domain_prefixed_path(controller, &path));
    if let Some(parameters) = object(spec, "parameters") {
        causes.extend(class_parameters(parameters, &SPEC.child("parameters")));
    }
    causes
}

/// `acme.io/foo`
fn domain_prefixed_path(value: &str, path: &Path<'_>) -> Vec<Cause> {
    if value.is_empty() {
        return vec![Cause::required(path, "")];
    }
    let Some((host, rest)) =
        value.split_once('/').filter(|(host, rest)| !host.is_empty() && !rest.is_empty())
    else {
        let detail = "must be a domain-prefixed path (such as \"acme.io/foo\")";
        return vec![Cause::invalid(path, &json!(value), detail)];
    };
    let mut causes: Vec<Cause> = dns_subdomain(host, path).collect();
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&byte);
    if !rest.bytes().all(fits) {
        let detail = "Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')";
        causes.push(Cause::invalid(path, &json!(rest), detail));
    }
    causes
}

fn class_parameters(parameters: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = typed_reference(parameters, path);
    let namespace = parameters.get("namespace").and_then(Value::as_str);
    let namespace_path = path.child("namespace");
    match (parameters.get("scope").and_then(Value::as_str), namespace) {
        (None, _) => causes.push(Cause::required(&path.child("scope"), "")),
        (Some("Namespace"), None) => {
            causes.push(Cause::required(&namespace_path, "`parameters.scope` is set to 'Namespace'"));
        }
        (Some("Namespace"), Some(namespace)) => causes.extend(dns_label(namespace, &namespace_path)),
        (Some("Cluster"), Some(_)) => {
            causes.push(Cause::forbidden(&namespace_path, "`parameters.scope` is set to 'Cluster'"));
        }
        (Some("Cluster"), None) => {}
        (Some(other), _) => {
            let valid = ["Cluster", "Namespace"];
            causes.push(Cause::not_supported(&path.child("scope"), &json!(other), &valid));
        }
    }
    causes
}
