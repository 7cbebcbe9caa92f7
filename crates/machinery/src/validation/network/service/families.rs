//! The addresses of a service, their families, and the policy that says how many of them there are.

use serde_json::{Value, json};

use super::{SPEC, Spec};
use crate::{
    field_error::Cause,
    validation::parts::{self, text, texts},
};

/// The addresses, their families and the policy that says how many, beside each other.
pub fn cluster_ips(spec: Spec<'_>, old: Option<Spec<'_>>) -> Vec<Cause> {
    if spec.is_external_name() {
        return Vec::new();
    }
    let path = SPEC.child("clusterIPs");
    let ips = spec.cluster_ips();
    let shown = spec.shown("clusterIPs");
    let mut causes = Vec::new();
    match (text(spec.0, "clusterIP"), ips.first()) {
        ("", None) => {}
        ("", Some(_)) => {
            let detail = "must be empty when `clusterIP` is not specified";
            causes.push(Cause::invalid(&path, &shown, detail));
        }
        (_, None) => causes.push(Cause::required(&path, "")),
        (first, Some(ip)) if ip != first => {
            causes.push(Cause::invalid(&path, &shown, "first value must match `clusterIP`"));
        }
        _ => {}
    }
    causes.extend(families(spec));
    let existing: Vec<&str> = old.iter().flat_map(|old| texts(old.0, "clusterIPs")).collect();
    let (bad, has_bad_ips) = each_cluster_ip(spec, &existing);
    causes.extend(bad);
    if ips.len() > 2 {
        causes.push(Cause::invalid(&path, &shown, "may only hold up to 2 values"));
    }
    if !has_bad_ips {
        causes.extend(ips_of_families(spec));
    }
    causes
}

fn families(spec: Spec<'_>) -> Vec<Cause> {
    let path = SPEC.child("ipFamilies");
    let mut causes = Vec::new();
    for (at, family) in spec.families().iter().enumerate() {
        if family != "IPv4" && family != "IPv6" {
            causes.push(Cause::not_supported(&path.index(at), family, &["IPv4", "IPv6"]));
        }
        if spec.families()[..at].contains(family) {
            causes.push(Cause::duplicate(&path.index(at), family));
        }
    }
    let policies = ["PreferDualStack", "RequireDualStack", "SingleStack"];
    if let Some(Value::String(policy)) = spec.0.get("ipFamilyPolicy")
        && !policies.contains(&policy.as_str())
    {
        causes.push(Cause::not_supported(&SPEC.child("ipFamilyPolicy"), &json!(policy), &policies));
    }
    causes
}

fn each_cluster_ip(spec: Spec<'_>, existing: &[&str]) -> (Vec<Cause>, bool) {
    let path = SPEC.child("clusterIPs");
    let mut causes = Vec::new();
    for (at, ip) in texts(spec.0, "clusterIPs").enumerate() {
        if at > 0 || ip != "None" {
            causes.extend(parts::legacy_ip(ip, &path.index(at), existing));
        } else if spec.cluster_ips().len() > 1 {
            let detail = "'None' must be the first and only value";
            causes.push(Cause::invalid(&path, &spec.shown("clusterIPs"), detail));
        }
    }
    let is_bad = !causes.is_empty();
    (causes, is_bad)
}

/// Whether a text is an address of IPv6.
pub fn is_ipv6(ip: &str) -> bool {
    parts::parse_ip_sloppy(ip).is_some_and(|ip| ip.is_ipv6())
}

fn ips_of_families(spec: Spec<'_>) -> Vec<Cause> {
    let path = SPEC.child("clusterIPs");
    let ips: Vec<&str> = texts(spec.0, "clusterIPs").collect();
    let mut causes = Vec::new();
    if ips.len() > 1 {
        let sixes = ips.iter().filter(|ip| is_ipv6(ip)).count();
        if sixes == 0 || sixes == ips.len() {
            let detail = "may specify no more than one IP for each IP family";
            causes.push(Cause::invalid(&path, &spec.shown("clusterIPs"), detail));
        }
    }
    if spec.is_headless() {
        return causes;
    }
    for (at, (ip, family)) in ips.iter().zip(texts(spec.0, "ipFamilies")).enumerate() {
        let fits = match family {
            "IPv4" => !is_ipv6(ip),
            "IPv6" => is_ipv6(ip),
            _ => true,
        };
        if !fits {
            let detail = format!("expected an {family} value as indicated by `ipFamilies[{at}]`");
            causes.push(Cause::invalid(&path.index(at), &json!(ip), &detail));
        }
    }
    causes
}

const UNCHANGED: &str = "may not change once set";

/// What an update may not do to addresses.
pub fn cluster_ip_changes(new: Spec<'_>, old: Spec<'_>) -> Vec<Cause> {
    if new.is_headless() && old.is_headless() {
        return Vec::new();
    }
    let path = SPEC.child("clusterIPs");
    let shown = new.shown("clusterIPs");
    let (now, was) = (new.cluster_ips(), old.cluster_ips());
    let mut causes = Vec::new();
    if now.len() == was.len() {
        let changed = (0..now.len()).filter(|at| now[*at] != was[*at]);
        return changed.map(|at| Cause::invalid(&path.index(at), &shown, UNCHANGED)).collect();
    }
    match (was.first(), now.first()) {
        (Some(_), None) => {
            causes.push(Cause::invalid(&path.index(0), &shown, "primary clusterIP can not be unset"));
        }
        (Some(was), Some(now)) if was != now => {
            causes.push(Cause::invalid(&path.index(0), &shown, UNCHANGED));
        }
        _ => {}
    }
    if was.len() > now.len() && now.len() == 1 && new.family_policy() != "SingleStack" {
        causes.push(releases_second(new, "clusterIP"));
    }
    causes
}

fn releases_second(new: Spec<'_>, what: &str) -> Cause {
    let detail = format!("must be set to 'SingleStack' when releasing the secondary {what}");
    Cause::invalid(&SPEC.child("ipFamilyPolicy"), &new.shown("ipFamilyPolicy"), &detail)
}

/// What an update may not do to families.
pub fn family_changes(new: Spec<'_>, old: Spec<'_>) -> Vec<Cause> {
    if new.is_headless() || old.is_headless() {
        return Vec::new();
    }
    let families = SPEC.child("ipFamilies");
    let path = families.index(0);
    let (now, was) = (new.families(), old.families());
    if now.len() == was.len() {
        let changed = (0..now.len()).filter(|at| now[*at] != was[*at]);
        return changed.map(|_| Cause::invalid(&path, &new.shown("ipFamilies"), UNCHANGED)).collect();
    }
    let mut causes = Vec::new();
    if was.len() > now.len() && new.cluster_ips().is_empty() {
        let detail = "primary ipFamily can not be unset";
        causes.push(Cause::invalid(&path, &new.shown("ipFamilies"), detail));
    }
    if let (Some(was), Some(now)) = (was.first(), now.first())
        && was != now
    {
        // Upstream shows the addresses.
        causes.push(Cause::invalid(&path, &new.shown("clusterIPs"), UNCHANGED));
    }
    if was.len() > now.len() && now.len() == 1 && new.family_policy() != "SingleStack" {
        causes.push(releases_second(new, "ipFamily"));
    }
    causes
}
