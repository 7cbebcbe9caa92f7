//! Priority and fairness: which requests wait for which.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::{
    field_error::Cause,
    names,
    resource::Tree,
    schema::{Spelling, written},
    validation::{
        members::{count, metadata, name_prefix, set},
        parts::{Path, dns_subdomain, flag, invalid_each, items, list, number, object, text, texts},
    },
};

const SPEC: Path<'static> = Path::new("spec");
const MAX_PRECEDENCE: i64 = 10_000;
const MAX_QUEUES: i64 = 10_000_000;
/// Bits of a request's hash that choose its queues.
const HASH_BITS: f64 = 60.0;
const VERBS: [&str; 9] =
    ["create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"];

pub fn flow_schema(new: &Tree, old: Option<&Tree>) -> Vec<Cause> {
    let empty = Tree::new();
    let spec = object(new, "spec").unwrap_or(&empty);
    let name = metadata(new, "name");
    let mut causes = name_prefix(new, old);
    causes.extend(precedence(spec, name));
    if let Some(method) = object(spec, "distinguisherMethod") {
        let known = ["ByNamespace", "ByUser"];
        if !known.contains(&text(method, "type")) {
            let shown = written(
                "flowcontrol/v1.FlowDistinguisherMethod",
                spec.get("distinguisherMethod"),
                Spelling::Internal,
            );
            let path = SPEC.child("distinguisherMethod");
            causes.push(Cause::not_supported_text(&path.child("type"), &shown, &known));
        }
    }
    let path = SPEC.child("priorityLevelConfiguration");
    let path = path.child("name");
    match object(spec, "priorityLevelConfiguration").map_or("", |level| text(level, "name")) {
        "" => causes.push(Cause::required(&path, "must reference a priority level")),
        level => causes.extend(dns_subdomain(level, &path)),
    }
    let path = SPEC.child("rules");
    for (at, rule) in items(spec, "rules") {
        causes.extend(policy_rule(rule, &path.index(at)));
    }
    if fixed_schema(name).is_some_and(|fixed| fixed.as_object() != Some(spec)) {
        let shown = written("flowcontrol/v1.FlowSchemaSpec", new.get("spec"), Spelling::Internal);
        let detail = format!("spec of '{name}' must equal the fixed value");
        causes.push(Cause::invalid_text(&SPEC, &shown, &detail));
    }
    causes.extend(conditions(new));
    causes
}

/// Schemas without which the server could not go on.
fn fixed_schema(name: &str) -> Option<Value> {
    let group = |name: &str| json!({"kind": "Group", "group": {"name": name}});
    let (level, precedence, subjects) = match name {
        "exempt" => ("exempt", 1, vec![group("system:masters")]),
        "catch-all" => {
            ("catch-all", 10_000, vec![group("system:unauthenticated"), group("system:authenticated")])
        }
        _ => return None,
    };
    let mut spec = json!({
        "priorityLevelConfiguration": {"name": level},
        "matchingPrecedence": precedence,
        "rules": [{
            "subjects": subjects,
            "resourceRules": [{
                "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": true, "namespaces": ["*"],
            }],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
        }],
    });
    if let Some(spec) = spec.as_object_mut().filter(|_| name == "catch-all") {
        spec.insert("distinguisherMethod".into(), json!({"type": "ByUser"}));
    }
    Some(spec)
}

fn precedence(spec: &Tree, name: &str) -> Vec<Cause> {
    let precedence = count(spec, "matchingPrecedence");
    let path = SPEC.child("matchingPrecedence");
    let wrong = |detail: &str| Cause::invalid(&path, &json!(precedence), detail);
    match precedence {
        ..=0 => vec![wrong("must be a positive value")],
        1 if name != "exempt" => vec![wrong("only the schema named 'exempt' may have matchingPrecedence 1")],
        over if over > MAX_PRECEDENCE => vec![wrong(&format!("must not be greater than {MAX_PRECEDENCE}"))],
        _ => Vec::new(),
    }
}

fn policy_rule(rule: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let subjects = path.child("subjects");
    if list(rule, "subjects").is_empty() {
        causes.push(Cause::required(&subjects, "subjects must contain at least one value"));
    }
    for (at, it) in items(rule, "subjects") {
        causes.extend(subject(it, &subjects.index(at)));
    }
    if list(rule, "resourceRules").is_empty() && list(rule, "nonResourceRules").is_empty() {
        let detail = "at least one of resourceRules and nonResourceRules has to be non-empty";
        causes.push(Cause::required(path, detail));
    }
    let resources = path.child("resourceRules");
    for (at, it) in items(rule, "resourceRules") {
        causes.extend(resource_rule(it, &resources.index(at)));
    }
    let urls = path.child("nonResourceRules");
    for (at, it) in items(rule, "nonResourceRules") {
        causes.extend(url_rule(it, &urls.index(at)));
    }
    causes
}

fn subject(subject: &Tree, path: &Path<'_>) -> Vec<Cause> {
    const KINDS: [(&str, &str); 3] =
        [("ServiceAccount", "serviceAccount"), ("User", "user"), ("Group", "group")];
    let kind = text(subject, "kind");
    let Some((_, member)) = KINDS.iter().find(|(known, _)| *known == kind) else {
        let known = ["Group", "ServiceAccount", "User"];
        return vec![Cause::not_supported(&path.child("kind"), &json!(kind), &known)];
    };
    let mut causes = Vec::new();
    let own = path.child(member);
    match object(subject, member) {
        None => {
            let detail = format!("{member} is required when subject kind is '{kind}'");
            causes.push(Cause::required(&own, &detail));
        }
        Some(account) if kind == "ServiceAccount" => causes.extend(service_account(account, &own)),
        Some(named) if text(named, "name").is_empty() => causes.push(Cause::required(&own.child("name"), "")),
        Some(_) => {}
    }
    for (other_kind, other) in KINDS.iter().filter(|(_, other)| other != member) {
        if set(subject, other).is_some() {
            let detail = format!("{other} is forbidden when subject kind is not '{other_kind}'");
            causes.push(Cause::forbidden(&path.child(other), &detail));
        }
    }
    causes
}

fn service_account(account: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    match text(account, "name") {
        "" => causes.push(Cause::required(&path.child("name"), "")),
        "*" => {}
        name => causes.extend(dns_subdomain(name, &path.child("name"))),
    }
    let path = path.child("namespace");
    match text(account, "namespace") {
        "" => causes.push(Cause::required(&path, "must specify namespace for service account")),
        namespace => causes.extend(invalid_each(&path, namespace, names::label_name(namespace, false))),
    }
    causes
}

/// A list that is not empty and has either a wildcard or other items. True if its items remain to be looked at.
fn wildcard(rule: &Tree, key: &str, path: &Path<'_>, missing: &str, what: &str) -> (Option<Cause>, bool) {
    let values = list(rule, key);
    let has_wildcard = texts(rule, key).any(|value| value == "*");
    if values.is_empty() {
        return (Some(Cause::required(&path.child(key), missing)), false);
    }
    if has_wildcard && values.len() > 1 {
        let detail = format!("if '*' is present, must not specify other {what}");
        return (Some(Cause::invalid(&path.child(key), &json!(values), &detail)), false);
    }
    (None, !has_wildcard)
}

fn verbs(rule: &Tree, path: &Path<'_>) -> Option<Cause> {
    let (cause, open) = wildcard(rule, "verbs", path, "verbs must contain at least one value", "verbs");
    let unknown = open && texts(rule, "verbs").any(|verb| !VERBS.contains(&verb));
    match unknown {
        true => Some(Cause::not_supported(&path.child("verbs"), &json!(list(rule, "verbs")), &VERBS)),
        false => cause,
    }
}

fn resource_rule(rule: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let mut causes: Vec<Cause> = verbs(rule, path).into_iter().collect();
    let missing = "resource rules must supply at least one api group";
    causes.extend(wildcard(rule, "apiGroups", path, missing, "api groups").0);
    let missing = "resource rules must supply at least one resource";
    causes.extend(wildcard(rule, "resources", path, missing, "resources").0);
    if list(rule, "namespaces").is_empty() && flag(rule, "clusterScope") {
        return causes;
    }
    let missing = "resource rules that are not cluster scoped must supply at least one namespace";
    let (cause, open) = wildcard(rule, "namespaces", path, missing, "namespaces");
    causes.extend(cause);
    let path = path.child("namespaces");
    for (at, namespace) in texts(rule, "namespaces").enumerate().filter(|_| open) {
        for reason in names::label_name(namespace, false) {
            let detail = format!("each member of this list must be '*' or a DNS-1123 label; {reason}");
            causes.push(Cause::invalid(&path.index(at), &json!(namespace), &detail));
        }
    }
    causes
}

fn url_rule(rule: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let mut causes: Vec<Cause> = verbs(rule, path).into_iter().collect();
    let missing = "nonResourceURLs must contain at least one value";
    let (cause, open) = wildcard(rule, "nonResourceURLs", path, missing, "non-resource URLs");
    causes.extend(cause);
    let path = path.child("nonResourceURLs");
    for (at, url) in texts(rule, "nonResourceURLs").enumerate().filter(|_| open) {
        if let Some(detail) = url_problem(url) {
            causes.push(Cause::invalid(&path.index(at), &json!(url), detail));
        }
    }
    causes
}

fn url_problem(url: &str) -> Option<&'static str> {
    let wildcards = url.matches('*').count();
    match () {
        _ if url.is_empty() => Some("must not be empty"),
        _ if url == "/" => None,
        _ if !url.starts_with('/') => Some("must start with slash"),
        _ if url.contains(' ') => Some("must not contain white-space"),
        _ if url.contains("//") => Some("must not contain double slash"),
        _ if wildcards > 1 || wildcards == 1 && !url.ends_with("/*") => {
            Some("wildcard can only do suffix matching")
        }
        _ => None,
    }
}

/// Conditions of both kinds have a type each.
fn conditions(new: &Tree) -> Vec<Cause> {
    let empty = Tree::new();
    let status = object(new, "status").unwrap_or(&empty);
    let path = Path::new("status");
    let path = path.child("conditions");
    let mut seen = BTreeSet::new();
    let mut causes = Vec::new();
    for (at, condition) in items(status, "conditions") {
        let (kind, path) = (text(condition, "type"), path.index(at));
        if !seen.insert(kind) {
            causes.push(Cause::duplicate(&path.child("type"), &json!(kind)));
        }
        if kind.is_empty() {
            causes.push(Cause::required(&path.child("type"), ""));
        }
    }
    causes
}

pub fn flow_schema_status(new: &Tree, _: &Tree) -> Vec<Cause> {
    conditions(new)
}

pub fn priority_level_status(new: &Tree, _: &Tree) -> Vec<Cause> {
    conditions(new)
}

pub fn priority_level(new: &Tree, old: Option<&Tree>) -> Vec<Cause> {
    const PRESERVE_ZERO: &str = "flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares";
    let empty = Tree::new();
    let spec = object(new, "spec").unwrap_or(&empty);
    let name = metadata(new, "name");
    let mut causes = name_prefix(new, old);
    let annotations = object(new, "metadata").and_then(|metadata| object(metadata, "annotations"));
    if annotations.is_some_and(|annotations| annotations.contains_key(PRESERVE_ZERO)) {
        let detail = format!("annotation '{PRESERVE_ZERO}' is forbidden");
        causes.push(Cause::forbidden("metadata.annotations", &detail));
    }
    let kind = text(spec, "type");
    if (name == "exempt") != (kind == "Exempt") {
        let detail = "must be 'Exempt' if and only if `name` is 'exempt'";
        causes.push(Cause::invalid(&SPEC.child("type"), &json!(kind), detail));
    }
    causes.extend(level_of_kind(spec, kind));
    causes.extend(fixed_level(new, spec, name));
    causes.extend(conditions(new));
    causes
}

fn level_of_kind(spec: &Tree, kind: &str) -> Vec<Cause> {
    let (limited, exempt) = (SPEC.child("limited"), SPEC.child("exempt"));
    let mut causes = Vec::new();
    match kind {
        "Exempt" => {
            if set(spec, "limited").is_some() {
                causes.push(Cause::forbidden(&limited, "must be nil if the type is not Limited"));
            }
            if let Some(level) = object(spec, "exempt") {
                causes.extend(shares(level, &exempt));
                causes.extend(lendable(level, &exempt));
            }
        }
        "Limited" => {
            if set(spec, "exempt").is_some() {
                causes.push(Cause::forbidden(&exempt, "must be nil if the type is Limited"));
            }
            match object(spec, "limited") {
                None => causes.push(Cause::required(&limited, "must not be empty when type is Limited")),
                Some(level) => causes.extend(limited_level(level, &limited)),
            }
        }
        "" => causes.push(Cause::required(&SPEC.child("type"), "")),
        kind => {
            causes.push(Cause::not_supported(&SPEC.child("type"), &json!(kind), &["Exempt", "Limited"]));
        }
    }
    causes
}

fn shares(level: &Tree, path: &Path<'_>) -> Option<Cause> {
    let shares = number(level, "nominalConcurrencyShares").filter(|shares| *shares < 0)?;
    let path = path.child("nominalConcurrencyShares");
    Some(Cause::invalid(&path, &json!(shares), "must be a non-negative integer"))
}

fn lendable(level: &Tree, path: &Path<'_>) -> Option<Cause> {
    let percent = number(level, "lendablePercent").filter(|percent| !(0..=100).contains(percent))?;
    let detail = "must be between 0 and 100, inclusive";
    Some(Cause::invalid(&path.child("lendablePercent"), &json!(percent), detail))
}

fn limited_level(level: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let empty = Tree::new();
    let mut causes: Vec<Cause> = shares(level, path).into_iter().collect();
    let response = object(level, "limitResponse").unwrap_or(&empty);
    causes.extend(limit_response(response, &path.child("limitResponse")));
    causes.extend(lendable(level, path));
    if let Some(percent) = number(level, "borrowingLimitPercent").filter(|percent| *percent < 0) {
        let detail = "if specified, must be a non-negative integer";
        causes.push(Cause::invalid(&path.child("borrowingLimitPercent"), &json!(percent), detail));
    }
    causes
}

fn limit_response(response: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let queuing_path = path.child("queuing");
    match (text(response, "type"), object(response, "queuing")) {
        ("Reject", Some(_)) => {
            let detail = "must be nil if limited.limitResponse.type is not Limited";
            vec![Cause::forbidden(&queuing_path, detail)]
        }
        ("Reject", None) => Vec::new(),
        ("Queue", Some(queues)) => queuing(queues, &queuing_path),
        ("Queue", None) => {
            let detail = "must not be empty if limited.limitResponse.type is Limited";
            vec![Cause::required(&queuing_path, detail)]
        }
        ("", _) => vec![Cause::required(&path.child("type"), "")],
        (kind, _) => vec![Cause::not_supported(&path.child("type"), &json!(kind), &["Queue", "Reject"])],
    }
}

fn queuing(configuration: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let [length, queues, hand] =
        ["queueLengthLimit", "queues", "handSize"].map(|key| count(configuration, key));
    let mut causes = Vec::new();
    let mut wrong = |key: &str, value: i64, detail: &str| {
        causes.push(Cause::invalid(&path.child(key), &json!(value), detail));
    };
    if length <= 0 {
        wrong("queueLengthLimit", length, "must be positive");
    }
    if queues <= 0 {
        wrong("queues", queues, "must be positive");
    } else if queues > MAX_QUEUES {
        wrong("queues", queues, &format!("must not be greater than {MAX_QUEUES}"));
    }
    if hand <= 0 {
        wrong("handSize", hand, "must be positive");
    } else if hand > queues {
        wrong("handSize", hand, &format!("should not be greater than queues ({queues})"));
    } else if ((queues as f64).log2() * hand as f64).ceil() > HASH_BITS {
        let detail = format!(
            "required entropy bits of deckSize {queues} and handSize {hand} should not be greater than {HASH_BITS}"
        );
        wrong("handSize", hand, &detail);
    }
    causes
}

/// Levels without which the server could not go on.
fn fixed_level(new: &Tree, spec: &Tree, name: &str) -> Option<Cause> {
    let (differs, detail) = match name {
        "exempt" => {
            let rest = spec.iter().filter(|(key, _)| *key != "exempt").collect::<Vec<_>>();
            let differs = !matches!(rest.as_slice(), [(key, value)] if *key == "type" && **value == "Exempt");
            (differs, "spec of 'exempt' except the 'spec.exempt' field must equal the fixed value")
        }
        "catch-all" => {
            let fixed = json!({
                "type": "Limited",
                "limited": {"nominalConcurrencyShares": 5, "lendablePercent": 0, "limitResponse": {"type": "Reject"}},
            });
            (fixed.as_object() != Some(spec), "spec of 'catch-all' must equal the fixed value")
        }
        _ => return None,
    };
    let shown =
        || written("flowcontrol/v1.PriorityLevelConfigurationSpec", new.get("spec"), Spelling::Internal);
    differs.then(|| Cause::invalid_text(&SPEC, &shown(), detail))
}
