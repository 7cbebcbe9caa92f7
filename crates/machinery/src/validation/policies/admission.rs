//! Policies in CEL that admit or change requests, and what puts them in force.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{
    expressions::{self, expression},
    rules::{match_conditions, match_resources, mutating_operations, optional, same_conditions},
    webhooks::{FAILURE_POLICIES, REINVOCATION},
};
use crate::{
    admission::compile::{Compiler, Role},
    field_error::Cause,
    jsonpath::JsonPath,
    names,
    resource::Tree,
    schema::{Spelling, written},
    selector,
    validation::{
        conditions,
        members::{metadata, name_prefix, set},
        parts::{
            Path, dns_subdomain, invalid_each, items, list, object, one_of, qualified_name, text, texts,
        },
    },
};

const SPEC: Path<'static> = Path::new("spec");
const MAX_AUDIT_ANNOTATIONS: usize = 20;
const MAX_VALUE_EXPRESSION: usize = 5 * 1024;

/// What both sorts of policies have, before what they do.
fn policy(new: &Tree, old: Option<&Tree>, compiler: &mut Compiler, mutating: bool) -> Vec<Cause> {
    let empty = Tree::new();
    let spec = object(new, "spec").unwrap_or(&empty);
    let mut causes = name_prefix(new, old);
    if set(spec, "failurePolicy").is_none() {
        causes.push(Cause::required(&SPEC.child("failurePolicy"), ""));
    }
    causes.extend(optional(spec, "failurePolicy", &SPEC, &FAILURE_POLICIES));
    if let Some(kind) = object(spec, "paramKind") {
        causes.extend(param_kind(kind, &SPEC.child("paramKind")));
    }
    let path = SPEC.child("matchConstraints");
    match object(spec, "matchConstraints") {
        None => causes.push(Cause::required(&path, "")),
        Some(matching) => {
            causes.extend(match_resources(matching, &path));
            if list(matching, "resourceRules").is_empty() {
                causes.push(Cause::required(&path.child("resourceRules"), ""));
            }
            if mutating {
                causes.extend(mutating_operations(spec, "matchConstraints", &SPEC));
            }
        }
    }
    let unchanged = old.is_some_and(|old| {
        let old = object(old, "spec").unwrap_or(&empty);
        set(old, "paramKind") == set(spec, "paramKind") && same_conditions(spec, old)
    });
    if !unchanged {
        let params = set(spec, "paramKind").is_some();
        causes.extend(match_conditions(spec, params, &SPEC.child("matchConditions")));
    }
    let path = SPEC.child("variables");
    for (at, it) in items(spec, "variables") {
        causes.extend(variable(compiler, it, &path.index(at)));
    }
    causes
}

pub fn validating_policy(new: &Tree, old: Option<&Tree>) -> Vec<Cause> {
    let empty = Tree::new();
    let spec = object(new, "spec").unwrap_or(&empty);
    let mut compiler = Compiler::new(set(spec, "paramKind").is_some());
    if !list(spec, "variables").is_empty() {
        compiler = compiler.with_variables();
    }
    let mut causes = policy(new, old, &mut compiler, false);
    let (validations, annotations) = (SPEC.child("validations"), SPEC.child("auditAnnotations"));
    if list(spec, "validations").is_empty() && list(spec, "auditAnnotations").is_empty() {
        let detail = "validations or auditAnnotations must contain at least one item";
        causes.extend([&validations, &annotations].map(|path| Cause::required(path, detail)));
        return causes;
    }
    for (at, it) in items(spec, "validations") {
        causes.extend(validation(&compiler, it, &validations.index(at)));
    }
    let number = list(spec, "auditAnnotations").len();
    if number > MAX_AUDIT_ANNOTATIONS {
        let shown = list(spec, "auditAnnotations").iter();
        let shown =
            shown.map(|it| written("admissionregistration/v1.AuditAnnotation", Some(it), Spelling::Internal));
        let shown = format!("[{}]", shown.collect::<Vec<_>>().join(","));
        let detail = format!("must not have more than {MAX_AUDIT_ANNOTATIONS} auditAnnotations");
        causes.push(Cause::invalid_text(&annotations, &shown, &detail));
    }
    let mut keys = BTreeSet::new();
    for (at, it) in items(spec, "auditAnnotations") {
        let path = annotations.index(at);
        causes.extend(audit_annotation(&compiler, it, metadata(new, "name"), &path));
        if !keys.insert(text(it, "key")) {
            causes.push(Cause::duplicate(&path.child("key"), &json!(text(it, "key"))));
        }
    }
    causes
}

pub fn mutating_policy(new: &Tree, old: Option<&Tree>) -> Vec<Cause> {
    let empty = Tree::new();
    let spec = object(new, "spec").unwrap_or(&empty);
    let mut compiler = Compiler::new(set(spec, "paramKind").is_some()).with_variables();
    let mut causes = policy(new, old, &mut compiler, true);
    let path = SPEC.child("mutations");
    if list(spec, "mutations").is_empty() {
        causes.push(Cause::required(&path, "mutations must contain at least one item"));
    }
    for (at, it) in items(spec, "mutations") {
        causes.extend(mutation(&compiler, it, &path.index(at)));
    }
    let reinvocation = text(spec, "reinvocationPolicy");
    causes.extend(one_of(reinvocation, &SPEC.child("reinvocationPolicy"), &REINVOCATION));
    causes
}

fn param_kind(kind: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let version_path = path.child("apiVersion");
    let written = text(kind, "apiVersion");
    let wrong = |value: &str, detail: &str| Cause::invalid(&version_path, &json!(value), detail);
    match written.matches('/').count() {
        _ if written.is_empty() => causes.push(Cause::required(&version_path, "")),
        2.. => causes.push(wrong(written, &format!("unexpected GroupVersion string: {written}"))),
        _ => {
            let (group, version) = written.split_once('/').unwrap_or(("", written));
            let reasons = names::is_dns1123_subdomain(group);
            if !group.is_empty() && !reasons.is_empty() {
                causes.push(wrong(group, &reasons.join(",")));
            }
            let reasons = names::is_dns1035_label(version);
            if version.is_empty() {
                causes.push(wrong(written, "version must be specified"));
            } else if !reasons.is_empty() {
                causes.push(wrong(version, &reasons.join(",")));
            }
        }
    }
    let (name, name_path) = (text(kind, "kind"), path.child("kind"));
    let reasons = names::is_dns1035_label(&name.to_lowercase());
    if name.is_empty() {
        causes.push(Cause::required(&name_path, ""));
    } else if !reasons.is_empty() {
        let detail = format!("may have mixed case, but should otherwise match: {}", reasons.join(","));
        causes.push(Cause::invalid(&name_path, &json!(name), &detail));
    }
    causes
}

fn variable(compiler: &mut Compiler, variable: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let name = text(variable, "name");
    if name.trim().is_empty() {
        causes.push(Cause::required(&path.child("name"), "name is not specified"));
    } else if !is_identifier(name) {
        causes.push(Cause::invalid(&path.child("name"), &json!(name), "must be a valid CEL identifier"));
    }
    let path = path.child("expression");
    causes.extend(expressions::variable(compiler, name, text(variable, "expression"), &path));
    causes
}

fn is_identifier(name: &str) -> bool {
    names::is_c_identifier(name).is_empty() && !cel::is_reserved(name)
}

fn validation(compiler: &Compiler, validation: &Tree, path: &Path<'_>) -> Vec<Cause> {
    const REASONS: [&str; 3] = ["Forbidden", "Invalid", "RequestEntityTooLarge"];
    let text_path = path.child("expression");
    let mut causes = expression(compiler, text(validation, "expression"), Role::Validation, &text_path);
    for key in ["messageExpression", "message"] {
        let value = text(validation, key);
        if !value.is_empty() && value.trim().is_empty() {
            causes.push(Cause::invalid(&path.child(key), &json!(value), "must be non-empty if specified"));
        } else if key == "messageExpression" && !value.is_empty() {
            causes.extend(expression(compiler, value, Role::Message, &path.child(key)));
        } else if key == "message" && value.trim().contains(['\n', '\r']) {
            causes.push(Cause::invalid(&path.child(key), &json!(value), "must not contain line breaks"));
        }
    }
    causes.extend(optional(validation, "reason", path, &REASONS));
    causes
}

fn audit_annotation(compiler: &Compiler, annotation: &Tree, policy: &str, path: &Path<'_>) -> Vec<Cause> {
    let key = text(annotation, "key");
    let mut causes: Vec<Cause> = match policy {
        "" => vec![Cause::invalid(&path.child("key"), &json!(key), "requires metadata.name be non-empty")],
        policy => qualified_name(&format!("{policy}/{key}"), &path.child("key")).collect(),
    };
    let (value, path) = (text(annotation, "valueExpression"), path.child("valueExpression"));
    if value.trim().len() > MAX_VALUE_EXPRESSION {
        let detail = format!("must not exceed {MAX_VALUE_EXPRESSION} bytes in length");
        causes.push(Cause::required(&path, &detail));
    } else {
        causes.extend(expression(compiler, value, Role::AuditAnnotation, &path));
    }
    causes
}

fn mutation(compiler: &Compiler, mutation: &Tree, path: &Path<'_>) -> Vec<Cause> {
    const TYPES: [&str; 2] = ["ApplyConfiguration", "JSONPatch"];
    let kind = text(mutation, "patchType");
    let (wanted, other, role) = match kind {
        "JSONPatch" => ("jsonPatch", "applyConfiguration", Role::JsonPatch),
        "ApplyConfiguration" => ("applyConfiguration", "jsonPatch", Role::ApplyConfiguration),
        kind => return one_of(kind, &path.child("patchType"), &TYPES).into_iter().collect(),
    };
    let mut causes = Vec::new();
    match object(mutation, wanted) {
        Some(patch) => {
            let path = path.child(wanted);
            causes.extend(expression(compiler, text(patch, "expression"), role, &path.child("expression")));
        }
        None => {
            let detail = format!("must be specified when patchType is {kind}");
            causes.push(Cause::required(&path.child(wanted), &detail));
        }
    }
    if set(mutation, other).is_some() {
        let detail = format!("must not be specified when patchType is {kind}");
        causes.push(Cause::invalid(&path.child(other), &json!(format!("{{{other}}}")), &detail));
    }
    causes
}

/// What both sorts of bindings have.
fn binding(spec: &Tree) -> Vec<Cause> {
    let mut causes = Vec::new();
    match text(spec, "policyName") {
        "" => causes.push(Cause::required(&SPEC.child("policyName"), "")),
        name => causes.extend(dns_subdomain(name, &SPEC.child("policyName"))),
    }
    if let Some(reference) = object(spec, "paramRef") {
        causes.extend(param_ref(reference, &SPEC.child("paramRef")));
    }
    if let Some(matching) = object(spec, "matchResources") {
        causes.extend(match_resources(matching, &SPEC.child("matchResources")));
    }
    causes
}

pub fn validating_policy_binding(new: &Tree, old: Option<&Tree>) -> Vec<Cause> {
    let empty = Tree::new();
    let spec = object(new, "spec").unwrap_or(&empty);
    let mut causes = name_prefix(new, old);
    causes.extend(binding(spec));
    causes.extend(validation_actions(spec, &SPEC.child("validationActions")));
    causes
}

pub fn mutating_policy_binding(new: &Tree, old: Option<&Tree>) -> Vec<Cause> {
    let empty = Tree::new();
    let spec = object(new, "spec").unwrap_or(&empty);
    let mut causes = name_prefix(new, old);
    causes.extend(binding(spec));
    causes.extend(mutating_operations(spec, "matchResources", &SPEC));
    causes
}

fn param_ref(reference: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let (name, chosen) = (text(reference, "name"), set(reference, "selector"));
    let exclusive =
        |key: &str| Cause::forbidden(&path.child(key), "name and selector are mutually exclusive");
    let mut causes = Vec::new();
    if !name.is_empty() {
        causes.extend(invalid_each(&path.child("name"), name, names::is_path_segment_name(name)));
        causes.extend(chosen.map(|_| exclusive("name")));
    }
    if let Some(chosen) = chosen {
        causes.extend(selector::validate_object(chosen, &path.child("selector").to_string()));
        if !name.is_empty() {
            causes.push(exclusive("selector"));
        }
    }
    if name.is_empty() && chosen.is_none() {
        causes.push(Cause::required(path, "one of name or selector must be specified"));
    }
    let action = text(reference, "parameterNotFoundAction");
    causes.extend(one_of(action, &path.child("parameterNotFoundAction"), &["Deny", "Allow"]));
    causes
}

fn validation_actions(spec: &Tree, path: &Path<'_>) -> Vec<Cause> {
    const ACTIONS: [&str; 3] = ["Audit", "Deny", "Warn"];
    let mut seen = BTreeSet::new();
    let mut causes = Vec::new();
    for (at, action) in texts(spec, "validationActions").enumerate() {
        if !ACTIONS.contains(&action) {
            causes.push(Cause::not_supported(&path.index(at), &json!(action), &ACTIONS));
        }
        if !seen.insert(action) {
            causes.push(Cause::duplicate(&path.index(at), &json!(action)));
        }
    }
    if seen.contains("Deny") && seen.contains("Warn") {
        let detail = "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)";
        causes.push(Cause::invalid(path, &Value::from(list(spec, "validationActions")), detail));
    }
    if seen.is_empty() {
        causes.push(Cause::required(path, "at least one validation action is required"));
    }
    causes
}

pub fn validating_policy_status(new: &Tree, _: &Tree) -> Vec<Cause> {
    let empty = Tree::new();
    let status = object(new, "status").unwrap_or(&empty);
    let path = Path::new("status");
    let mut causes = Vec::new();
    if let Some(checking) = object(status, "typeChecking") {
        let path = path.child("typeChecking");
        let path = path.child("expressionWarnings");
        for (at, warning) in items(checking, "expressionWarnings") {
            causes.extend(expression_warning(warning, &path.index(at)));
        }
    }
    causes.extend(conditions::check(status, &path.child("conditions")));
    causes
}

fn expression_warning(warning: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    if text(warning, "warning").is_empty() {
        causes.push(Cause::required(&path.child("warning"), ""));
    }
    let path = path.child("fieldRef");
    match text(warning, "fieldRef").trim() {
        "" => causes.push(Cause::required(&path, "")),
        reference => {
            if let Err(error) = JsonPath::parse(reference) {
                causes.push(Cause::invalid(&path, &json!(reference), &format!("invalid JSONPath: {error}")));
            }
        }
    }
    causes
}

/// Some names are for policies that come with the server.
pub fn warn_static_name(new: &Tree, _: Option<&Tree>) -> Vec<String> {
    const SUFFIX: &str = ".static.k8s.io";
    let text = format!(
        "metadata.name: names ending with {SUFFIX:?} are reserved for static manifest-based configurations and cannot be managed via the API"
    );
    metadata(new, "name").ends_with(SUFFIX).then_some(text).into_iter().collect()
}
