//! Groups of the Kubernetes community need an annotation that says where their API was approved.

use serde_json::Value;

use super::status::Condition;
use crate::{field_error::Cause, gotext, gourl::Url, resource::Tree};

const ANNOTATION: &str = "api-approved.kubernetes.io";
const SEE: &str = "see https://github.com/kubernetes/enhancements/pull/1111";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Approval {
    Invalid,
    Approved,
    Bypassed,
    Missing,
}

fn is_protected(group: &str) -> bool {
    ["k8s.io", "kubernetes.io"]
        .iter()
        .any(|domain| group.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.')))
}

fn annotation(definition: &Tree) -> &str {
    let annotations = definition.get("metadata").and_then(|metadata| metadata.get("annotations"));
    annotations
        .and_then(|annotations| annotations.get(ANNOTATION))
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// What the annotation says, and why.
fn approval(definition: &Tree) -> (Approval, String) {
    let needed = format!("protected groups must have approval annotation {}", gotext::quote(ANNOTATION));
    match annotation(definition) {
        "" => (Approval::Missing, format!("{needed}, {SEE}")),
        text if text.starts_with("unapproved") => {
            (Approval::Bypassed, format!("not approved: {}", gotext::quote(text)))
        }
        text if Url::parse_request(text).is_ok_and(|url| !url.host.is_empty() && !url.scheme.is_empty()) => {
            (Approval::Approved, format!("approved in {text}"))
        }
        _ => (
            Approval::Invalid,
            format!("{needed} with either a URL or a reason starting with \"unapproved\", {SEE}"),
        ),
    }
}

/// What is wrong with the annotation; not asked of definitions that had the same trouble before.
pub fn mistake(new: &Tree, old: Option<&Tree>, group: &str) -> Option<Cause> {
    let (state, reason) = approval(new);
    if !is_protected(group) || old.is_some_and(|old| approval(old).0 == state) {
        return None;
    }
    let field = format!("metadata.annotations[{ANNOTATION}]");
    match state {
        Approval::Approved | Approval::Bypassed => None,
        Approval::Missing => Some(Cause::required(field, &reason)),
        Approval::Invalid => Some(Cause::invalid(field, &annotation(new).into(), &reason)),
    }
}

pub fn condition(definition: &Tree, group: &str) -> Option<Condition> {
    if !is_protected(group) {
        return None;
    }
    let (state, message) = approval(definition);
    let (status, reason) = match state {
        Approval::Invalid => ("False", "InvalidAnnotation"),
        Approval::Missing => ("False", "MissingAnnotation"),
        Approval::Approved => ("True", "ApprovedAnnotation"),
        Approval::Bypassed => ("False", "UnapprovedAnnotation"),
    };
    Some(Condition::new("KubernetesAPIApprovalPolicyConformant", status, reason, message))
}
