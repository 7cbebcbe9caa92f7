//! Services. What they are given by the cluster is in [`super::addresses`].

mod families;

use serde_json::{Value, json};

use super::{
    super::{annotation, go_struct, members::default_to},
    addresses, balancer_host, balancer_ips, endpoint_ip, spec_texts,
};
use crate::{
    field_error::Cause,
    gotext, metadata,
    resource::Tree,
    validation::parts::{
        self, Path, dns_label, dns_subdomain, items, items_mut, list, number, object, object_mut, one_of,
        port_number, port_number_or_name, qualified_name, set_default, text, texts,
    },
};

pub use families::{cluster_ips, is_ipv6};

const SPEC: Path<'_> = Path::new("spec");
const AFFINITY_SECONDS: i64 = 10_800;
const MAX_AFFINITY_SECONDS: i64 = 86_400;
const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
const TYPES: [&str; 4] = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
const TOPOLOGY_HINTS: &str = "service.kubernetes.io/topology-aware-hints";
const TOPOLOGY_MODE: &str = "service.kubernetes.io/topology-mode";
const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";
const ONLY_BALANCER: &str = "may only be used when `type` is 'LoadBalancer'";

/// A service's spec, read.
#[derive(Clone, Copy)]
pub struct Spec<'a>(pub &'a Tree);

static NO_SPEC: std::sync::LazyLock<Tree> = std::sync::LazyLock::new(Tree::new);

impl<'a> Spec<'a> {
    pub fn of(service: &'a Tree) -> Self {
        Spec(object(service, "spec").unwrap_or(&NO_SPEC))
    }

    pub fn kind(&self) -> &'a str {
        text(self.0, "type")
    }

    pub fn is_external_name(&self) -> bool {
        self.kind() == "ExternalName"
    }

    pub fn is_balancer(&self) -> bool {
        self.kind() == "LoadBalancer"
    }

    pub fn cluster_ips(&self) -> &'a [Value] {
        list(self.0, "clusterIPs")
    }

    pub fn families(&self) -> &'a [Value] {
        list(self.0, "ipFamilies")
    }

    pub fn family_policy(&self) -> &'a str {
        text(self.0, "ipFamilyPolicy")
    }

    pub fn is_headless(&self) -> bool {
        self.cluster_ips() == ["None"]
    }

    pub fn is_externally_accessible(&self) -> bool {
        match self.kind() {
            "LoadBalancer" | "NodePort" => true,
            "ClusterIP" => !list(self.0, "externalIPs").is_empty(),
            _ => false,
        }
    }

    pub fn needs_health_check(&self) -> bool {
        self.is_balancer() && text(self.0, "externalTrafficPolicy") == "Local"
    }

    /// As Go shows it: a list that is not there is `null`.
    pub fn shown(&self, key: &str) -> Value {
        self.0.get(key).cloned().unwrap_or_default()
    }
}

pub fn default(tree: &mut Tree) {
    let is_balancer = match object_mut(tree, "spec") {
        Some(spec) => {
            default_spec(spec);
            text(spec, "type") == "LoadBalancer"
        }
        None => false,
    };
    let balancer = object_mut(tree, "status").and_then(|status| object_mut(status, "loadBalancer"));
    if let Some(balancer) = balancer.filter(|_| is_balancer) {
        for ingress in items_mut(balancer, "ingress").filter(|ingress| !text(ingress, "ip").is_empty()) {
            default_to(ingress, "ipMode", "VIP");
        }
    }
}

fn default_spec(spec: &mut Tree) {
    set_default(spec, "sessionAffinity", "None");
    match text(spec, "sessionAffinity") {
        "None" => drop(spec.remove("sessionAffinityConfig")),
        "ClientIP" => {
            let config = spec.get("sessionAffinityConfig").and_then(|config| config.get("clientIP"));
            if config.and_then(|config| config.get("timeoutSeconds")).is_none_or(Value::is_null) {
                let config = json!({"clientIP": {"timeoutSeconds": AFFINITY_SECONDS}});
                spec.insert("sessionAffinityConfig".into(), config);
            }
        }
        _ => {}
    }
    set_default(spec, "type", "ClusterIP");
    for port in items_mut(spec, "ports") {
        set_default(port, "protocol", "TCP");
        let is_open = port.get("targetPort").is_none_or(parts::is_empty);
        if is_open {
            let number = port.get("port").cloned().unwrap_or_default();
            port.insert("targetPort".into(), number);
        }
    }
    if Spec(spec).is_externally_accessible() {
        set_default(spec, "externalTrafficPolicy", "Cluster");
    }
    if matches!(text(spec, "type"), "NodePort" | "LoadBalancer" | "ClusterIP") {
        default_to(spec, "internalTrafficPolicy", "Cluster");
    }
    if text(spec, "type") == "LoadBalancer" {
        default_to(spec, "allocateLoadBalancerNodePorts", true);
    }
}

pub fn validate(new: &Tree, old: Option<&Tree>) -> Vec<Cause> {
    // Upstream hands out addresses before it looks at the rest, and stops there if it cannot.
    if let Err(causes) = addresses::settle_families(&mut new.clone(), old) {
        return causes;
    }
    let mut causes = match old {
        Some(old) => changes(Spec::of(new), Spec::of(old)),
        None => Vec::new(),
    };
    causes.extend(topology_annotations(new));
    let spec = Spec::of(new);
    causes.extend(kind_of_service(spec));
    causes.extend(ports(spec));
    causes.extend(metadata::labels(spec.0.get("selector"), "spec.selector"));
    causes.extend(session_affinity(spec));
    causes.extend(cluster_ips(spec, old.map(Spec::of)));
    causes.extend(external_ips(new, old));
    causes.extend(one_of(spec.kind(), &SPEC.child("type"), &TYPES));
    causes.extend(port_duplicates(spec));
    causes.extend(source_ranges(new, old));
    causes.extend(balancer_fields(spec));
    causes.extend(traffic_policies(spec));
    causes
}

fn topology_annotations(new: &Tree) -> Option<Cause> {
    let (mode, hints) = (annotation(new, TOPOLOGY_MODE)?, annotation(new, TOPOLOGY_HINTS)?);
    let path = format!("metadata.annotations[{TOPOLOGY_MODE}]");
    let detail = format!("must match annotations[{TOPOLOGY_HINTS}] when both are specified");
    (mode != hints).then(|| Cause::invalid(path, &json!(mode), &detail))
}

/// What the type of a service demands.
fn kind_of_service(spec: Spec<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    if list(spec.0, "ports").is_empty() && !spec.is_headless() && !spec.is_external_name() {
        causes.push(Cause::required(&SPEC.child("ports"), ""));
    }
    match spec.kind() {
        kind @ ("LoadBalancer" | "NodePort") if spec.is_headless() => {
            let detail = format!("may not be set to 'None' for {kind} services");
            causes.push(Cause::invalid(&SPEC.child("clusterIPs").index(0), &json!("None"), &detail));
        }
        "ExternalName" => causes.extend(external_name(spec)),
        _ => {}
    }
    causes
}

fn external_name(spec: Spec<'_>) -> Vec<Cause> {
    let is_set = |key: &str| spec.0.get(key).is_some_and(|value| !value.is_null() && *value != json!([]));
    let unwanted = ["clusterIPs", "ipFamilies", "ipFamilyPolicy"].into_iter().filter(|key| is_set(key));
    let detail = "may not be set for ExternalName services";
    let mut causes: Vec<Cause> = unwanted.map(|key| Cause::forbidden(&SPEC.child(key), detail)).collect();
    let name = text(spec.0, "externalName");
    let path = SPEC.child("externalName");
    match name.strip_suffix('.').unwrap_or(name) {
        "" => causes.push(Cause::required(&path, "")),
        name => causes.extend(dns_subdomain(name, &path)),
    }
    causes
}

fn ports(spec: Spec<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut names = Vec::new();
    let ports = SPEC.child("ports");
    let need_name = list(spec.0, "ports").len() > 1;
    for (at, port) in items(spec.0, "ports") {
        let path = ports.index(at);
        let (name, name_path) = (text(port, "name"), path.child("name"));
        if !name.is_empty() {
            causes.extend(dns_label(name, &name_path));
            if names.contains(&name) {
                causes.push(Cause::duplicate(&name_path, &json!(name)));
            }
            names.push(name);
        } else if need_name {
            causes.push(Cause::required(&name_path, ""));
        }
        causes.extend(port_number(number(port, "port").unwrap_or(0), &path.child("port")));
        causes.extend(one_of(text(port, "protocol"), &path.child("protocol"), &PROTOCOLS));
        causes.extend(port_number_or_name(port.get("targetPort"), &path.child("targetPort")));
        if let Some(protocol) = port.get("appProtocol").and_then(Value::as_str) {
            causes.extend(qualified_name(protocol, &path.child("appProtocol")));
        }
    }
    causes
}

fn session_affinity(spec: Spec<'_>) -> Vec<Cause> {
    let affinity = text(spec.0, "sessionAffinity");
    let mut causes: Vec<Cause> =
        one_of(affinity, &SPEC.child("sessionAffinity"), &["ClientIP", "None"]).into_iter().collect();
    let config = object(spec.0, "sessionAffinityConfig");
    let path = SPEC.child("sessionAffinityConfig");
    match affinity {
        "ClientIP" => {
            let timeout = config.and_then(|config| config.get("clientIP")?.get("timeoutSeconds"));
            let seconds = timeout.and_then(Value::as_i64).unwrap_or(0);
            if !(1..=MAX_AFFINITY_SECONDS).contains(&seconds) {
                let detail = format!("must be greater than 0 and less than {MAX_AFFINITY_SECONDS}");
                let path = path.child("clientIP");
                causes.push(Cause::invalid(&path.child("timeoutSeconds"), &json!(seconds), &detail));
            }
        }
        "None" if config.is_some() => {
            causes.push(Cause::forbidden(&path, "must not be set when session affinity is None"));
        }
        _ => {}
    }
    causes
}

fn external_ips(new: &Tree, old: Option<&Tree>) -> Vec<Cause> {
    let existing = old.map(|old| spec_texts(old, "externalIPs")).unwrap_or_default();
    let path = SPEC.child("externalIPs");
    let mut causes = Vec::new();
    for (at, ip) in spec_texts(new, "externalIPs").into_iter().enumerate() {
        match parts::legacy_ip(ip, &path.index(at), &existing) {
            Some(cause) => causes.push(cause),
            None => causes.extend(endpoint_ip(ip, &path.index(at))),
        }
    }
    causes
}

fn port_duplicates(spec: Spec<'_>) -> Vec<Cause> {
    let path = SPEC.child("ports");
    let mut causes = Vec::new();
    let mut node_ports = Vec::new();
    for (at, port) in items(spec.0, "ports") {
        let node_port = number(port, "nodePort").filter(|port| *port != 0);
        if spec.kind() == "ClusterIP" && node_port.is_some() {
            let detail = "may not be used when `type` is 'ClusterIP'";
            causes.push(Cause::forbidden(&path.index(at).child("nodePort"), detail));
        }
    }
    for (at, port) in items(spec.0, "ports") {
        let Some(node_port) = number(port, "nodePort").filter(|port| *port != 0) else { continue };
        let key = (text(port, "protocol"), node_port);
        if node_ports.contains(&key) {
            causes.push(Cause::duplicate(&path.index(at).child("nodePort"), &json!(node_port)));
        }
        node_ports.push(key);
    }
    let mut seen = Vec::new();
    for (at, port) in items(spec.0, "ports") {
        let key = (text(port, "protocol"), number(port, "port").unwrap_or(0));
        if seen.contains(&key) {
            causes.push(Cause::duplicate_text(&path.index(at), &port_key(key.0, key.1), ""));
        }
        seen.push(key);
    }
    causes
}

/// Upstream shows a port that has nothing but what makes it the same as another.
fn port_key(protocol: &str, port: i64) -> String {
    go_struct([
        ("Name", "\"\"".to_owned()),
        ("Protocol", gotext::json(protocol)),
        ("AppProtocol", "null".to_owned()),
        ("Port", port.to_string()),
        ("TargetPort", "0".to_owned()),
        ("NodePort", "0".to_owned()),
    ])
}

/// Who may use a load balancer: a field, or the annotation that was before it.
fn source_ranges(new: &Tree, old: Option<&Tree>) -> Vec<Cause> {
    let spec = Spec::of(new);
    let mut causes = Vec::new();
    let ranges = spec_texts(new, "loadBalancerSourceRanges");
    if !ranges.is_empty() {
        // The capital letter is upstream's.
        let path = SPEC.child("LoadBalancerSourceRanges");
        if !spec.is_balancer() {
            causes.push(Cause::forbidden(&path, ONLY_BALANCER));
        }
        let existing = old.map(|old| spec_texts(old, "loadBalancerSourceRanges")).unwrap_or_default();
        let existing: Vec<&str> = existing.into_iter().map(str::trim).collect();
        let ranges = ranges.into_iter().enumerate();
        causes.extend(
            ranges.filter_map(|(at, range)| parts::legacy_cidr(range.trim(), &path.index(at), &existing)),
        );
        return causes;
    }
    let Some(value) = annotation(new, SOURCE_RANGES) else { return causes };
    let annotations = Path::new("metadata.annotations");
    let path = annotations.key(SOURCE_RANGES);
    if !spec.is_balancer() {
        causes.push(Cause::forbidden(&path, ONLY_BALANCER));
    }
    let is_new = old.is_none_or(|old| annotation(old, SOURCE_RANGES).unwrap_or_default() != value);
    if is_new && !value.trim().is_empty() {
        let ranges = value.trim().split(',').map(str::trim);
        causes.extend(ranges.filter_map(|range| parts::legacy_cidr(range, &path, &[])));
    }
    causes
}

fn balancer_fields(spec: Spec<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let allocates = spec.0.get("allocateLoadBalancerNodePorts").is_some_and(|it| !it.is_null());
    match (allocates, spec.is_balancer()) {
        (true, false) => {
            causes.push(Cause::forbidden(&SPEC.child("allocateLoadBalancerNodePorts"), ONLY_BALANCER));
        }
        // Upstream names no `spec` here.
        (false, true) => causes.push(Cause::required("allocateLoadBalancerNodePorts", "")),
        _ => {}
    }
    causes.extend(balancer_class(spec));
    causes
}

fn balancer_class(spec: Spec<'_>) -> Vec<Cause> {
    let path = SPEC.child("loadBalancerClass");
    match spec.0.get("loadBalancerClass").and_then(Value::as_str) {
        Some(class) if spec.is_balancer() => qualified_name(class, &path).collect(),
        Some(_) => vec![Cause::forbidden(&path, ONLY_BALANCER)],
        None => Vec::new(),
    }
}

fn traffic_policies(spec: Spec<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let external = text(spec.0, "externalTrafficPolicy");
    let path = SPEC.child("externalTrafficPolicy");
    if spec.is_externally_accessible() {
        causes.extend(one_of(external, &path, &["Cluster", "Local"]));
    } else if !external.is_empty() {
        let detail = "may only be set for externally-accessible services";
        causes.push(Cause::invalid(&path, &json!(external), detail));
    }
    causes.extend(health_check(spec));
    let path = SPEC.child("internalTrafficPolicy");
    match spec.0.get("internalTrafficPolicy").and_then(Value::as_str) {
        Some("Cluster" | "Local") => {}
        Some(other) => causes.push(Cause::not_supported(&path, &json!(other), &["Cluster", "Local"])),
        None if matches!(spec.kind(), "NodePort" | "LoadBalancer" | "ClusterIP") => {
            causes.push(Cause::required(&path, ""));
        }
        None => {}
    }
    let distributions = ["PreferClose", "PreferSameZone", "PreferSameNode"];
    if let Some(Value::String(distribution)) = spec.0.get("trafficDistribution")
        && !distributions.contains(&distribution.as_str())
    {
        let path = SPEC.child("trafficDistribution");
        causes.push(Cause::not_supported(&path, &json!(distribution), &distributions));
    }
    causes
}

fn health_check(spec: Spec<'_>) -> Vec<Cause> {
    let path = SPEC.child("healthCheckNodePort");
    match (spec.needs_health_check(), number(spec.0, "healthCheckNodePort").unwrap_or(0)) {
        (true, 0) => vec![Cause::required(&path, "")],
        (true, port) => port_number(port, &path).collect(),
        (false, 0) => Vec::new(),
        (false, port) => {
            let detail =
                "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
            vec![Cause::invalid(&path, &json!(port), detail)]
        }
    }
}

/// What an update may not change.
fn changes(new: Spec<'_>, old: Spec<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    if !new.is_external_name() && !old.is_external_name() {
        causes.extend(families::cluster_ip_changes(new, old));
        causes.extend(families::family_changes(new, old));
    }
    if new.is_balancer() && old.is_balancer() {
        let class = |spec: Spec<'_>| spec.shown("loadBalancerClass");
        if class(new) != class(old) {
            let path = SPEC.child("loadBalancerClass");
            causes.push(Cause::invalid(&path, &class(new), "may not change once set"));
        }
    }
    causes.extend(balancer_class(new));
    let health = |spec: Spec<'_>| number(spec.0, "healthCheckNodePort").unwrap_or(0);
    if new.needs_health_check() && old.needs_health_check() && health(new) != health(old) {
        causes.push(Cause::forbidden(&SPEC.child("healthCheckNodePort"), "field is immutable"));
    }
    causes
}

/// What is wrong with a new status.
pub fn status(new: &Tree, old: &Tree) -> Vec<Cause> {
    let ingress = super::balancers(new);
    let path = Path::new("status.loadBalancer.ingress");
    if !Spec::of(new).is_balancer() && !ingress.is_empty() {
        return vec![Cause::forbidden(&path, "may only be used when `spec.type` is 'LoadBalancer'")];
    }
    let existing = balancer_ips(old);
    let ingress = ingress.iter().filter_map(Value::as_object).enumerate();
    ingress.flat_map(|(at, ingress)| balancer(ingress, &existing, &path.index(at))).collect()
}

fn balancer(ingress: &Tree, existing: &[&str], path: &Path<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let ip = text(ingress, "ip");
    if !ip.is_empty() {
        causes.extend(parts::legacy_ip(ip, &path.child("ip"), existing));
    }
    let mode_path = path.child("ipMode");
    match ingress.get("ipMode").and_then(Value::as_str) {
        None if !ip.is_empty() => {
            causes.push(Cause::required(&mode_path, "must be specified when `ip` is set"));
        }
        None => {}
        Some(_) if ip.is_empty() => {
            causes.push(Cause::forbidden(&mode_path, "may not be specified when `ip` is not set"));
        }
        Some("VIP" | "Proxy") => {}
        Some(mode) => causes.push(Cause::not_supported(&mode_path, &json!(mode), &["Proxy", "VIP"])),
    }
    causes.extend(balancer_host(ingress, path));
    causes
}

pub fn warn(new: &Tree, _: Option<&Tree>) -> Vec<String> {
    let spec = Spec::of(new);
    let mut warnings = Vec::new();
    if annotation(new, TOPOLOGY_HINTS).is_some() {
        warnings
            .push(format!("annotation {TOPOLOGY_HINTS} is deprecated, please use {TOPOLOGY_MODE} instead"));
    }
    if !matches!(text(spec.0, "clusterIP"), "" | "None") {
        warnings.extend(ip_warnings(spec, "clusterIPs"));
    }
    let external_ips = !list(spec.0, "externalIPs").is_empty();
    let is_headless = spec.kind() == "ClusterIP" && text(spec.0, "clusterIP") == "None";
    let ignored = [
        (!text(spec.0, "loadBalancerIP").is_empty(), "spec.loadBalancerIP"),
        (external_ips, "spec.externalIPs"),
        (text(spec.0, "sessionAffinity") != "None", "spec.SessionAffinity"),
    ];
    let ignored = ignored.into_iter().filter(|(is_set, _)| *is_set && is_headless);
    warnings.extend(ignored.map(|(_, field)| format!("{field} is ignored for headless services")));
    warnings.extend(ip_warnings(spec, "externalIPs"));
    if external_ips && !is_headless && !spec.is_external_name() {
        let warning = "spec.externalIPs is deprecated and may no longer be implemented in some clusters";
        warnings.push(warning.to_owned());
    }
    let balancer_ip = text(spec.0, "loadBalancerIP");
    warnings.extend(parts::ip_warnings(balancer_ip, &SPEC.child("loadBalancerIP")));
    let ranges = SPEC.child("loadBalancerSourceRanges");
    for (at, range) in texts(spec.0, "loadBalancerSourceRanges").enumerate() {
        warnings.extend(parts::cidr_warnings(range, &ranges.index(at)));
    }
    if spec.is_external_name() && external_ips {
        warnings.push("spec.externalIPs is ignored when spec.type is \"ExternalName\"".to_owned());
    }
    if !spec.is_external_name() && !text(spec.0, "externalName").is_empty() {
        warnings.push("spec.externalName is ignored when spec.type is not \"ExternalName\"".to_owned());
    }
    if text(spec.0, "trafficDistribution") == "PreferClose" {
        warnings.push(
            "spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"".to_owned(),
        );
    }
    warnings
}

fn ip_warnings(spec: Spec<'_>, key: &str) -> Vec<String> {
    let path = SPEC.child(key);
    texts(spec.0, key).enumerate().filter_map(|(at, ip)| parts::ip_warnings(ip, &path.index(at))).collect()
}
