//! Rules that several kinds of workloads share.

use compact_str::CompactString;
use serde_json::{Value, json};

use crate::{
    field_error::Cause,
    names,
    resource::Tree,
    schema::{Spelling, written},
    selector::{self, LabelSelector},
    validation::{
        members::{count, set},
        parts::{IMMUTABLE, Path, dns_subdomain, not_negative, number, object, text},
        pod,
    },
};

const SPEC: Path<'static> = Path::new("spec");

/// The value of a member; null if there is none.
pub fn or_null<'a>(tree: &'a Tree, key: &str) -> &'a Value {
    tree.get(key).unwrap_or(&Value::Null)
}

/// Numbers that are not negative, where they are set.
pub fn counters(tree: &Tree, path: &Path<'_>, keys: &[&str]) -> Vec<Cause> {
    keys.iter().filter_map(|key| not_negative(number(tree, key)?, &path.child(key))).collect()
}

/// A counter of the status that only grows.
pub fn decremented(status: &Tree, old: &Tree, key: &str) -> Option<Cause> {
    let old = object(old, "status").and_then(|status| number(status, key))?;
    let new = count(status, key);
    let shrinks = set(status, key).is_none() || new < old;
    shrinks.then(|| Cause::invalid(&Path::new("status").child(key), &json!(new), "cannot be decremented"))
}

/// A selector that is set, in order, and selects something in particular.
pub fn label_selector(value: &Value, path: &Path<'_>, empty: &str) -> Vec<Cause> {
    let Some(object) = value.as_object() else { return vec![Cause::required(path, "")] };
    let mut causes = selector::validate_object(value, &path.to_string());
    if object.is_empty() {
        causes.push(Cause::invalid(path, &json!({}), empty));
    }
    causes
}

/// `spec.selector` stays.
pub fn immutable_selector(new: &Tree, old: Option<&Tree>) -> Option<Cause> {
    let selector = |tree: &Tree| object(tree, "spec").and_then(|spec| set(spec, "selector")).cloned();
    let (new, old) = (selector(new), selector(old?));
    (new != old).then(|| {
        let shown = written("meta/v1.LabelSelector", new.as_ref(), Spelling::Versioned);
        Cause::invalid_text(&SPEC.child("selector"), &shown, IMMUTABLE)
    })
}

/// The labels of a template.
pub fn template_labels(template: &Tree) -> &Value {
    object(template, "metadata").map_or(&Value::Null, |metadata| or_null(metadata, "labels"))
}

pub fn selects(selector: &LabelSelector, labels: &Value) -> bool {
    let labels = labels.as_object().into_iter().flatten();
    let labels: Vec<(CompactString, CompactString)> =
        labels.map(|(key, value)| (key.into(), value.as_str().unwrap_or_default().into())).collect();
    selector.matches(&labels)
}

pub const NOT_SELECTED: &str = "`selector` does not match template `labels`";

/// The template of pods that are to run for ever, and that `selector` selects.
pub fn selected_template(
    spec: &Tree,
    old: Option<&Tree>,
    selector: &LabelSelector,
    kind: &str,
) -> Vec<Cause> {
    let empty = Tree::new();
    let template = object(spec, "template").unwrap_or(&empty);
    let path = SPEC.child("template");
    let mut causes = Vec::new();
    let labels = template_labels(template);
    if !selector.is_empty() && !selects(selector, labels) {
        let path = path.child("metadata");
        causes.push(Cause::invalid(&path.child("labels"), labels, NOT_SELECTED));
    }
    causes.extend(pod::template(template, old, &path.to_string()));
    causes.extend(runs_for_ever(template, &path, kind));
    causes
}

/// Pods of sets are restarted always and have no deadline.
pub fn runs_for_ever(template: &Tree, path: &Path<'_>, kind: &str) -> Vec<Cause> {
    let empty = Tree::new();
    let pod = object(template, "spec").unwrap_or(&empty);
    let path = path.child("spec");
    let mut causes = Vec::new();
    let policy = text(pod, "restartPolicy");
    if policy != "Always" {
        causes.push(Cause::not_supported(&path.child("restartPolicy"), &json!(policy), &["Always"]));
    }
    if set(pod, "activeDeadlineSeconds").is_some() {
        let detail = format!("activeDeadlineSeconds in {kind} is not Supported");
        causes.push(Cause::forbidden(&path.child("activeDeadlineSeconds"), &detail));
    }
    causes
}

/// A number that is not negative, or a percentage.
pub fn int_or_percent(value: &Value, path: &Path<'_>) -> Vec<Cause> {
    match value {
        Value::String(text) => {
            names::is_percent(text).iter().map(|reason| Cause::invalid(path, value, reason)).collect()
        }
        _ => not_negative(value.as_i64().unwrap_or(0), path).into_iter().collect(),
    }
}

/// The number before the percent sign; none for what is no percentage. Upstream reads one that is too large as the
/// largest number.
fn percent(value: &Value) -> Option<i64> {
    let text = value.as_str().filter(|text| names::is_percent(text).is_empty())?;
    Some(text.trim_end_matches('%').parse().unwrap_or(i64::MAX))
}

pub fn is_zero_int_or_percent(value: &Value) -> bool {
    let number = match value {
        // A text that is no percentage may still be a number.
        Value::String(text) => percent(value).unwrap_or_else(|| text.parse().unwrap_or(0)),
        value => value.as_i64().unwrap_or(0),
    };
    number == 0
}

pub fn not_more_than_whole(value: &Value, path: &Path<'_>) -> Option<Cause> {
    percent(value)
        .is_some_and(|percent| percent > 100)
        .then(|| Cause::invalid(path, value, "must not be greater than 100%"))
}

/// `acme.io/foo`: who looks after something.
pub fn domain_prefixed_path(value: &str, path: &Path<'_>) -> Vec<Cause> {
    const PATH: &str = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+";
    if value.is_empty() {
        return vec![Cause::required(path, "")];
    }
    let (domain, rest) = match value.split_once('/') {
        Some((domain, rest)) if !domain.is_empty() && !rest.is_empty() => (domain, rest),
        _ => {
            let detail = "must be a domain-prefixed path (such as \"acme.io/foo\")";
            return vec![Cause::invalid(path, &json!(value), detail)];
        }
    };
    let mut causes: Vec<Cause> = dns_subdomain(domain, path).collect();
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&byte);
    if !rest.bytes().all(fits) {
        let detail = format!("Invalid path (regex used for validation is '{PATH}')");
        causes.push(Cause::invalid(path, &json!(rest), &detail));
    }
    causes
}
