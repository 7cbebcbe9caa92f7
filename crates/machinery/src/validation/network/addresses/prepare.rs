//! A service made ready before anything is given to it.

use serde_json::{Value, json};

use super::NONE;
use crate::{
    field_error::Cause,
    resource::Tree,
    validation::{
        members::made,
        network::service::{self, Spec},
        parts::{Path, items, items_mut, list, number, parse_ip_sloppy, text, texts},
    },
};

/// The one family of addresses that the cluster has.
const FAMILY: &str = "IPv4";
const SINGLE: &str = "SingleStack";
const SPEC: Path<'_> = Path::new("spec");

/// What creation fills in.
pub fn prepare_create(new: &mut Tree) {
    service::default(new);
    new.insert("status".into(), json!({"loadBalancer": {}}));
    mirror_cluster_ip(made(new, "spec"));
    // Why families cannot be settled, validation says.
    let _ = settle_families(new, None);
    hide_unused_policy(made(new, "spec"));
}

/// What an update keeps of the old service, and what a change of type gives up.
pub fn prepare_update(new: &mut Tree, old: &Tree) {
    service::default(new);
    let was = Spec::of(old);
    let spec = made(new, "spec");
    keep_allocated(spec, was);
    follow_cluster_ip(spec, was);
    let _ = settle_families(new, Some(old));
    let spec = made(new, "spec");
    give_up_by_type(spec, was);
    hide_unused_policy(spec);
    if !Spec::of(new).is_balancer() {
        made(new, "status").insert("loadBalancer".into(), json!({}));
    }
}

/// `clusterIPs` follows `clusterIP` where only that is given.
fn mirror_cluster_ip(spec: &mut Tree) {
    let ip = text(spec, "clusterIP");
    if !ip.is_empty() && list(spec, "clusterIPs").is_empty() {
        let ips = json!([ip]);
        spec.insert("clusterIPs".into(), ips);
    }
}

/// Services of type `ExternalName` have no use for it; upstream does not show it.
fn hide_unused_policy(spec: &mut Tree) {
    if Spec(spec).is_external_name() && matches!(text(spec, "internalTrafficPolicy"), "Cluster" | "Local") {
        spec.remove("internalTrafficPolicy");
    }
}

fn gives_ports(spec: Spec<'_>) -> bool {
    let allocates = spec.0.get("allocateLoadBalancerNodePorts").and_then(Value::as_bool).unwrap_or(true);
    spec.kind() == "NodePort" || spec.is_balancer() && allocates
}

/// Whoever does not know what the old service was given need not send it back.
fn keep_allocated(spec: &mut Tree, was: Spec<'_>) {
    if !was.is_external_name() && !Spec(spec).is_external_name() {
        if text(spec, "clusterIP").is_empty() {
            put(spec, was, "clusterIP");
        }
        if list(spec, "clusterIPs").is_empty() {
            put(spec, was, "clusterIPs");
        }
    }
    if gives_ports(was) && gives_ports(Spec(spec)) {
        keep_node_ports(spec, was);
    }
    if was.needs_health_check() && Spec(spec).needs_health_check() && !has_health_port(spec) {
        put(spec, was, "healthCheckNodePort");
    }
}

fn put(spec: &mut Tree, was: Spec<'_>, key: &str) {
    if let Some(value) = was.0.get(key) {
        spec.insert(key.to_owned(), value.clone());
    }
}

fn has_health_port(spec: &Tree) -> bool {
    number(spec, "healthCheckNodePort").is_some_and(|port| port != 0)
}

fn node_port(port: &Tree) -> i64 {
    number(port, "nodePort").unwrap_or(0)
}

/// By the names of ports. A port that another one asks for now is not kept.
fn keep_node_ports(spec: &mut Tree, was: Spec<'_>) {
    let of = |spec: &Tree| -> Vec<i64> { items(spec, "ports").map(|(_, port)| node_port(port)).collect() };
    let (asked, had) = (of(spec), of(was.0));
    for port in items_mut(spec, "ports").filter(|port| node_port(port) == 0) {
        let same_name = items(was.0, "ports").filter(|(_, old)| text(old, "name") == text(port, "name"));
        let kept = same_name.last().map_or(0, |(_, old)| node_port(old));
        let is_used = asked.contains(&kept) && had.contains(&kept);
        if kept != 0 && !is_used {
            port.insert("nodePort".into(), json!(kept));
        }
    }
}

fn follow_cluster_ip(spec: &mut Tree, was: Spec<'_>) {
    let (ip, old_ip) = (text(spec, "clusterIP").to_owned(), text(was.0, "clusterIP"));
    if list(spec, "clusterIPs").is_empty() && ip == old_ip {
        put(spec, was, "clusterIPs");
    }
    if ip != old_ip && Spec(spec).cluster_ips() == was.cluster_ips() {
        match ip.is_empty() {
            true => drop(spec.remove("clusterIPs")),
            false => drop(spec.insert("clusterIPs".into(), json!([ip]))),
        }
    }
}

/// What belongs to the old type and was not changed goes with it, so that a client need change the type only.
fn give_up_by_type(spec: &mut Tree, was: Spec<'_>) {
    let same = |spec: &Tree, key: &str| spec.get(key) == was.0.get(key);
    let gone = |keys: &[&str], spec: &mut Tree| keys.iter().for_each(|key| drop(spec.remove(*key)));
    if !was.is_external_name() && Spec(spec).is_external_name() {
        if same(spec, "clusterIP") && same(spec, "clusterIPs") {
            gone(&["clusterIP", "clusterIPs"], spec);
        }
        for key in ["ipFamilies", "ipFamilyPolicy"] {
            if same(spec, key) {
                gone(&[key], spec);
            }
        }
    }
    let has_ports = |spec: Spec<'_>| matches!(spec.kind(), "NodePort" | "LoadBalancer");
    if has_ports(was) && !has_ports(Spec(spec)) {
        let had: Vec<i64> = items(was.0, "ports").map(|(_, port)| node_port(port)).collect();
        let is_subset =
            items(spec, "ports").all(|(_, port)| node_port(port) == 0 || had.contains(&node_port(port)));
        for port in items_mut(spec, "ports").filter(|_| is_subset) {
            port.remove("nodePort");
        }
    }
    if was.needs_health_check() && !Spec(spec).needs_health_check() && same(spec, "healthCheckNodePort") {
        gone(&["healthCheckNodePort"], spec);
    }
    if was.is_balancer() && !Spec(spec).is_balancer() {
        for key in ["allocateLoadBalancerNodePorts", "loadBalancerClass"] {
            if same(spec, key) {
                gone(&[key], spec);
            }
        }
    }
    let accessible = was.is_externally_accessible() && !Spec(spec).is_externally_accessible();
    if accessible && same(spec, "externalTrafficPolicy") {
        gone(&["externalTrafficPolicy"], spec);
    }
}

/// Whether both are dual-stack if possible, and nothing about addresses changed.
fn is_unchanged_preference(now: Spec<'_>, was: Spec<'_>) -> bool {
    now.family_policy() == "PreferDualStack"
        && was.kind() == now.kind()
        && matches!(now.kind(), "ClusterIP" | "NodePort" | "LoadBalancer")
        && matches!(was.family_policy(), "" | "PreferDualStack")
        && was.cluster_ips() == now.cluster_ips()
        && was.families() == now.families()
}

/// Fills in `ipFamilyPolicy` and `ipFamilies`, or says why they cannot be.
pub fn settle_families(new: &mut Tree, old: Option<&Tree>) -> Result<(), Vec<Cause>> {
    let was = old.map(Spec::of);
    let now = Spec::of(new);
    if now.is_external_name() || was.is_some_and(|was| is_unchanged_preference(now, was)) {
        return Ok(());
    }
    let spec = made(new, "spec");
    let without_selector = text(spec, "clusterIP") == NONE
        && spec.get("selector").and_then(Value::as_object).is_none_or(Tree::is_empty);
    if spec.get("ipFamilyPolicy").is_none_or(Value::is_null) {
        let policy = match was.map(|was| was.family_policy()).filter(|policy| !policy.is_empty()) {
            Some(policy) => policy,
            None if without_selector => "RequireDualStack",
            None => SINGLE,
        };
        let policy = json!(policy);
        spec.insert("ipFamilyPolicy".into(), policy);
    }
    let causes = service::cluster_ips(Spec(spec), was);
    if !causes.is_empty() {
        return Err(causes);
    }
    let mut causes = was.map(|was| release_second(spec, was)).unwrap_or_default();
    causes.extend(single_stack(Spec(spec)));
    causes.extend(families_of_addresses(spec));
    if !causes.is_empty() {
        return Err(causes);
    }
    match without_selector {
        true => families_without_selector(spec),
        false => configured_families(spec)?,
    }
    Ok(())
}

fn policy_refusal(spec: Spec<'_>, detail: &str) -> Cause {
    Cause::invalid(&SPEC.child("ipFamilyPolicy"), &spec.shown("ipFamilyPolicy"), detail)
}

/// The second address and family go when the policy says so, and not otherwise.
fn release_second(spec: &mut Tree, was: Spec<'_>) -> Vec<Cause> {
    let is_single = Spec(spec).family_policy() == SINGLE;
    let mut causes = Vec::new();
    for (key, what) in [("clusterIPs", "cluster IP"), ("ipFamilies", "IP family")] {
        let (now, had) = (list(spec, key).len(), list(was.0, key).len());
        if is_single {
            let is_same = list(spec, key) == list(was.0, key);
            if let Some(Value::Array(values)) = spec.get_mut(key).filter(|_| is_same) {
                values.truncate(1);
            }
        } else if now != 0 && now < had {
            let detail = format!("must be 'SingleStack' to release the secondary {what}");
            causes.push(policy_refusal(Spec(spec), &detail));
        }
    }
    causes
}

fn single_stack(spec: Spec<'_>) -> Vec<Cause> {
    let both = [(spec.cluster_ips().len(), "cluster IPs"), (spec.families().len(), "IP families")];
    let too_many = both.into_iter().filter(|(count, _)| *count == 2 && spec.family_policy() == SINGLE);
    too_many
        .map(|(_, what)| {
            let detail =
                format!("must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified");
            policy_refusal(spec, &detail)
        })
        .collect()
}

/// Addresses say their family where no families are given.
fn families_of_addresses(spec: &mut Tree) -> Vec<Cause> {
    let ips: Vec<String> = texts(spec, "clusterIPs").map(str::to_owned).collect();
    let mut families = list(spec, "ipFamilies").to_vec();
    let mut causes = Vec::new();
    for (at, ip) in ips.iter().enumerate().take_while(|(_, ip)| *ip != NONE) {
        if at < families.len() {
            continue;
        }
        match parse_ip_sloppy(ip).map(|ip| ip.is_ipv6()) {
            Some(false) => families.push(json!(FAMILY)),
            other => {
                let family = if other.is_some() { "IPv6" } else { "unknown" };
                let detail = format!("{family} is not configured on this cluster");
                let path = SPEC.child("clusterIPs");
                causes.push(Cause::invalid(&path.index(at), &json!(ips), &detail));
            }
        }
    }
    if !families.is_empty() {
        spec.insert("ipFamilies".into(), Value::Array(families));
    }
    causes
}

/// Such services have whatever addresses somebody writes into their endpoints, of any family.
fn families_without_selector(spec: &mut Tree) {
    let is_single = Spec(spec).family_policy() == SINGLE;
    let mut families = list(spec, "ipFamilies").to_vec();
    if families.is_empty() {
        families.push(json!(FAMILY));
    }
    if families.len() < 2 && !is_single {
        let other = if families[0] == "IPv4" { "IPv6" } else { "IPv4" };
        families.push(json!(other));
    }
    spec.insert("ipFamilies".into(), Value::Array(families));
}

fn configured_families(spec: &mut Tree) -> Result<(), Vec<Cause>> {
    let mut causes = Vec::new();
    if Spec(spec).family_policy() == "RequireDualStack" {
        let detail = "this cluster is not configured for dual-stack services";
        causes.push(policy_refusal(Spec(spec), detail));
    }
    let path = SPEC.child("ipFamilies");
    for (at, family) in list(spec, "ipFamilies").iter().enumerate().filter(|(_, family)| *family != FAMILY) {
        causes.push(Cause::invalid(&path.index(at), family, "not configured on this cluster"));
    }
    if !causes.is_empty() {
        return Err(causes);
    }
    if list(spec, "ipFamilies").is_empty() {
        spec.insert("ipFamilies".into(), json!([FAMILY]));
    }
    Ok(())
}
