//! What an event must be, by the API it is written through.

use crate::{field_error::Cause, gotext, names, resource::Tree, validation::pod::shape};
use serde_json::{Value, json};

fn text<'a>(tree: &'a Tree, key: &str) -> &'a str {
    tree.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn inner<'a>(tree: &'a Tree, key: &str, field: &str) -> &'a str {
    tree.get(key).and_then(|value| value.get(field)).and_then(Value::as_str).unwrap_or_default()
}

const MAX_NAME: usize = 128;
const MAX_MESSAGE: usize = 1024;

/// Events written through the core group: the old rules, and no more.
pub fn event(new: &Tree, _: Option<&Tree>) -> Vec<Cause> {
    every_event(new, "reportingComponent")
}

/// Events written through `events.k8s.io`, checked in the stored spelling: stricter.
pub fn event_v1(new: &Tree, old: Option<&Tree>) -> Vec<Cause> {
    let mut causes = every_event(new, "reportingController");
    match old {
        None => causes.extend(new_event(new)),
        Some(old) => causes.extend(same_event(new, old)),
    }
    causes
}

/// The rules of both groups; one with an `eventTime` is of the new kind, whoever sends it.
fn every_event(new: &Tree, controller_field: &str) -> Vec<Cause> {
    let namespace = inner(new, "metadata", "namespace");
    let involved = inner(new, "involvedObject", "namespace");
    let is_new = !text(new, "eventTime").is_empty();
    let matches = match (is_new, involved) {
        (false, "") => matches!(namespace, "" | "default"),
        (false, involved) => namespace == involved,
        (true, "") => matches!(namespace, "default" | "kube-system"),
        (true, _) => true,
    };
    let mut causes = Vec::new();
    if !matches {
        let detail = "does not match event.namespace";
        causes.push(Cause::invalid("involvedObject.namespace", &json!(involved), detail));
    }
    if is_new {
        let controller = text(new, "reportingComponent");
        if controller.is_empty() {
            causes.push(Cause::required(controller_field, ""));
        }
        let problems = names::is_qualified_name(controller);
        causes.extend(problems.iter().map(|it| Cause::invalid(controller_field, &json!(controller), it)));
        for field in ["reportingInstance", "action", "reason"] {
            if text(new, field).is_empty() {
                causes.push(Cause::required(field, ""));
            }
            causes.extend(too_long(new, field, MAX_NAME));
        }
        causes.extend(too_long(new, "message", MAX_MESSAGE));
    }
    let problems = names::is_dns1123_subdomain(namespace);
    causes.extend(problems.iter().map(|it| Cause::invalid("namespace", &json!(namespace), it)));
    causes
}

/// Upstream leaves the value out.
fn too_long(new: &Tree, field: &str, limit: usize) -> Option<Cause> {
    let detail = format!("can have at most {limit} characters");
    (text(new, field).len() > limit).then(|| Cause::invalid(field, &json!(""), &detail))
}

fn new_event(new: &Tree) -> Vec<Cause> {
    let mut causes = series(new);
    if text(new, "eventTime").is_empty() {
        causes.push(Cause::required("eventTime", ""));
    }
    let kind = text(new, "type");
    if !matches!(kind, "Normal" | "Warning") {
        causes.push(Cause::invalid("type", &json!(""), &format!("has invalid value: {kind}")));
    }
    let has_source =
        !inner(new, "source", "component").is_empty() || !inner(new, "source", "host").is_empty();
    let unwanted = [
        ("firstTimestamp", !text(new, "firstTimestamp").is_empty()),
        ("lastTimestamp", !text(new, "lastTimestamp").is_empty()),
        ("count", new.get("count").and_then(Value::as_i64).is_some_and(|count| count != 0)),
        ("source", has_source),
    ];
    let unwanted = unwanted.into_iter().filter(|(_, is_set)| *is_set);
    causes.extend(unwanted.map(|(field, _)| Cause::invalid(field, &json!(""), "needs to be unset")));
    causes
}

fn series(new: &Tree) -> Vec<Cause> {
    let Some(series) = new.get("series").and_then(Value::as_object) else { return Vec::new() };
    let mut causes = Vec::new();
    if series.get("count").and_then(Value::as_i64).unwrap_or(0) < 2 {
        causes.push(Cause::invalid("series.count", &json!(""), "should be at least 2"));
    }
    if text(series, "lastObservedTime").is_empty() {
        causes.push(Cause::required("series.lastObservedTime", ""));
    }
    causes
}

/// All but the series stays as it was.
fn same_event(new: &Tree, old: &Tree) -> Vec<Cause> {
    const FIXED: [&str; 13] = [
        "involvedObject",
        "reason",
        "message",
        "source",
        "firstTimestamp",
        "lastTimestamp",
        "count",
        "type",
        "eventTime",
        "action",
        "related",
        "reportingComponent",
        "reportingInstance",
    ];
    let mut causes = if new.get("series") == old.get("series") { Vec::new() } else { series(new) };
    let changed = FIXED.iter().filter(|field| new.get(**field) != old.get(**field));
    causes.extend(changed.map(|field| {
        let shown = if *field == "reportingComponent" { "reportingController" } else { field };
        Cause::invalid_text(shown, &shown_value(new, field), "field is immutable")
    }));
    causes
}

/// As upstream's server holds it.
fn shown_value(new: &Tree, field: &str) -> String {
    let part = new.get(field).and_then(Value::as_object);
    match field {
        "involvedObject" => shape::shown("ObjectReference", part.unwrap_or(&Tree::new())),
        "source" => shape::shown("EventSource", part.unwrap_or(&Tree::new())),
        "related" => part.map_or("null".to_owned(), |part| shape::shown("ObjectReference", part)),
        "count" => gotext::bad_value(new.get(field).unwrap_or(&json!(0))),
        "firstTimestamp" | "lastTimestamp" | "eventTime" => {
            gotext::bad_value(new.get(field).unwrap_or(&Value::Null))
        }
        field => gotext::quote(text(new, field)),
    }
}
