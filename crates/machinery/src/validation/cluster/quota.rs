//! Resource quotas.

use serde_json::json;

use super::{
    super::pod::{round_up, shape},
    quantity,
};
use crate::{
    field_error::Cause,
    resource::Tree,
    validation::parts::{
        self, Path, entries, items, list, object, object_mut, resource_name, resource_quantity, text, texts,
    },
};

const SPEC: Path<'_> = Path::new("spec");
const SCOPES: [&str; 7] = [
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "VolumeAttributesClass",
    "CrossNamespacePodAffinity",
];

pub fn prepare_create(tree: &mut Tree) {
    tree.insert("status".into(), json!({}));
}

pub fn default(tree: &mut Tree) {
    if let Some(spec) = object_mut(tree, "spec") {
        round_up(spec, "hard");
    }
    if let Some(status) = object_mut(tree, "status") {
        round_up(status, "hard");
        round_up(status, "used");
    }
}

pub fn validate(new: &Tree, old: Option<&Tree>) -> Vec<Cause> {
    let empty = Tree::new();
    let spec = object(new, "spec").unwrap_or(&empty);
    let mut causes = amounts(spec, "hard", &SPEC);
    causes.extend(scopes(spec));
    causes.extend(scope_selector(spec));
    if let Some(old) = old {
        let was = object(old, "spec").unwrap_or(&empty);
        let set = |spec| texts(spec, "scopes").collect::<std::collections::BTreeSet<_>>();
        if set(spec) != set(was) {
            let shown = spec.get("scopes").cloned().unwrap_or_default();
            causes.push(Cause::invalid(&SPEC.child("scopes"), &shown, parts::IMMUTABLE));
        }
    }
    causes
}

/// What is wrong with a new status.
pub fn status(new: &Tree, _: &Tree) -> Vec<Cause> {
    let empty = Tree::new();
    let status = object(new, "status").unwrap_or(&empty);
    let path = Path::new("status");
    ["hard", "used"].iter().flat_map(|key| amounts(status, key, &path)).collect()
}

fn amounts(tree: &Tree, key: &str, path: &Path<'_>) -> Vec<Cause> {
    let path = path.child(key);
    let mut causes = Vec::new();
    for (name, value) in entries(tree, key) {
        let place = path.key(name);
        causes.extend(resource_name(name, &place));
        if !name.contains('/') && !parts::is_standard_quota_resource(name) {
            causes.push(Cause::invalid(&place, &json!(name), "must be a standard resource for quota"));
        }
        causes.extend(resource_quantity(name, value, &place));
    }
    causes
}

/// Whether something of a scope uses a resource at all.
fn scope_has(scope: &str, resource: &str) -> bool {
    const COMPUTE: [&str; 6] =
        ["cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory"];
    match scope {
        "BestEffort" => resource == "pods",
        "VolumeAttributesClass" => matches!(resource, "persistentvolumeclaims" | "requests.storage"),
        scope if SCOPES.contains(&scope) => resource == "pods" || COMPUTE.contains(&resource),
        _ => true,
    }
}

/// How many of the resources a scope does not have.
fn misfits(spec: &Tree, scope: &str) -> usize {
    let names = entries(spec, "hard").map(|(name, _)| name);
    names.filter(|name| parts::is_standard_quota_resource(name) && !scope_has(scope, name)).count()
}

fn conflicts(scopes: &[&str]) -> usize {
    let pairs = [["BestEffort", "NotBestEffort"], ["Terminating", "NotTerminating"]];
    pairs.iter().filter(|pair| pair.iter().all(|scope| scopes.contains(scope))).count()
}

fn scopes(spec: &Tree) -> Vec<Cause> {
    let path = SPEC.child("scopes");
    let shown = spec.get("scopes").cloned().unwrap_or_default();
    let refuse = |detail: &str| Cause::invalid(&path, &shown, detail);
    let scopes: Vec<&str> = texts(spec, "scopes").collect();
    let mut causes = Vec::new();
    for scope in &scopes {
        if !SCOPES.contains(scope) {
            causes.push(refuse("unsupported scope"));
        }
        let misfits = misfits(spec, scope);
        causes.extend((0..misfits).map(|_| refuse("unsupported scope applied to resource")));
    }
    causes.extend((0..conflicts(&scopes)).map(|_| refuse("conflicting scopes")));
    causes
}

fn scope_selector(spec: &Tree) -> Vec<Cause> {
    let Some(selector) = object(spec, "scopeSelector") else { return Vec::new() };
    let path = SPEC.child("scopeSelector");
    let path = path.child("matchExpressions");
    let mut causes = Vec::new();
    let mut scopes = Vec::new();
    for (_, requirement) in items(selector, "matchExpressions") {
        let scope = text(requirement, "scopeName");
        if !SCOPES.contains(&scope) {
            causes.push(Cause::invalid(&path.child("scopeName"), &json!(scope), "unsupported scope"));
        }
        let misfits = misfits(spec, scope);
        let detail = "unsupported scope applied to resource";
        causes.extend(
            (0..misfits)
                .map(|_| Cause::invalid_text(&path, &shape::shown("ScopeSelector", selector), detail)),
        );
        causes.extend(scope_requirement(requirement, &path));
        scopes.push(scope);
    }
    let shown = spec.get("scopes").cloned().unwrap_or_default();
    let conflicts = conflicts(&scopes);
    causes.extend((0..conflicts).map(|_| Cause::invalid(&path, &shown, "conflicting scopes")));
    causes
}

fn scope_requirement(requirement: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let (scope, operator) = (text(requirement, "scopeName"), text(requirement, "operator"));
    let values = list(requirement, "values");
    let mut causes = Vec::new();
    let only_exists = SCOPES.contains(&scope) && !matches!(scope, "PriorityClass" | "VolumeAttributesClass");
    if only_exists && operator != "Exists" {
        let detail = "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity";
        causes.push(Cause::invalid(&path.child("operator"), &json!(operator), detail));
    }
    match operator {
        "In" | "NotIn" if values.is_empty() => {
            let detail = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector";
            causes.push(Cause::required(&path.child("values"), detail));
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            let detail = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector";
            causes.push(Cause::invalid(&path.child("values"), &json!(values), detail));
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        _ => {
            let detail = "not a valid selector operator";
            causes.push(Cause::invalid(&path.child("operator"), &json!(operator), detail));
        }
    }
    causes
}

pub fn warn(new: &Tree, old: Option<&Tree>) -> Vec<String> {
    let hard = object(new, "spec").and_then(|spec| object(spec, "hard"));
    let (Some(hard), None) = (hard, old) else { return Vec::new() };
    let mut warnings = Vec::new();
    for name in ["cpu", "memory", "storage", "ephemeral-storage"] {
        let mut request = format!("requests.{name}");
        if !hard.contains_key(&request) && matches!(name, "cpu" | "memory") {
            request = name.to_owned();
        }
        let limit = format!("limits.{name}");
        let amount = |name: &str| hard.get(name).map(quantity);
        if let (Some(requested), Some(limited)) = (amount(&request), amount(&limit))
            && requested > limited
        {
            warnings.push(format!(
                "ResourceQuota {request} ({requested}) should be less than {limit} ({limited})"
            ));
        }
    }
    warnings
}
