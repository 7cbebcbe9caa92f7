//! `Override`: changes to objects, in some clusters.

use std::collections::BTreeSet;

use machinery::{
    field_error::Cause,
    resource::{Cell, Column, Row, Tree},
    validation::parts::{Path, items, object, text},
};
use serde_json::{Value, json};

use crate::{
    AGE, GROUP, VERSION,
    schema::{self, anything, choice, list_of, object_of},
};

pub const KIND: &str = "Override";
pub const PLURAL: &str = "overrides";

/// What says which object it is, or is not its author's to say.
const FORBIDDEN: &[&str] = &[
    "/apiVersion",
    "/kind",
    "/metadata/creationTimestamp",
    "/metadata/deletionTimestamp",
    "/metadata/finalizers",
    "/metadata/generateName",
    "/metadata/generation",
    "/metadata/managedFields",
    "/metadata/name",
    "/metadata/namespace",
    "/metadata/ownerReferences",
    "/metadata/resourceVersion",
    "/metadata/uid",
    "/status",
];

const COLUMNS: &[Column] = &[
    Column {
        name: "Name",
        kind: "string",
        format: "name",
        description: "The name.",
        priority: 0,
        cell: Cell::Name,
    },
    Column {
        name: "Priority",
        kind: "integer",
        format: "",
        description: "Those with a higher priority are applied later.",
        priority: 0,
        cell: Cell::Path(".spec.priority"),
    },
    AGE,
];

pub const ROW: Row = Row {
    group: GROUP,
    version: VERSION,
    kind: KIND,
    plural: PLURAL,
    singular: "override",
    namespaced: false,
    short_names: &["ov"],
    categories: &["hanse"],
    columns: COLUMNS,
    schema: Some(shape),
    generation: true,
    validate,
    ..Row::PLAIN
};

fn shape() -> Value {
    let mut patch = object_of(
        "One change, as in a JSON patch.",
        json!({
            "op": choice("What is done.", &["add", "remove", "replace"], Some("replace")),
            "path": {
                "type": "string", "maxLength": 1024,
                "description": "Where, as a JSON pointer: /spec/template/spec/containers/0/image.",
            },
            "value": anything("What is put there; not for remove."),
        }),
    );
    patch["required"] = json!(["path"]);
    let mut spec = object_of(
        "What is changed where.",
        json!({
            "priority": {
                "type": "integer", "format": "int32", "default": 0,
                "description": "Overrides are applied in the order of their priority, then of their names; the last wins.",
            },
            "select": schema::selections(),
            "clusters": schema::clusters("In which clusters; every cluster if it is left out."),
            "patches": list_of("The changes, one after the other.", 256, patch),
        }),
    );
    spec["required"] = json!(["select", "patches"]);
    schema::kind("An Override changes objects on their way to some clusters.", json!({"spec": spec}))
}

fn validate(new: &Tree, _: Option<&Tree>) -> Vec<Cause> {
    let path = Path::new("spec");
    let Some(spec) = object(new, "spec") else { return Vec::new() };
    let mut causes = schema::check_selections(spec, &path);
    if let Some(clusters) = object(spec, "clusters") {
        causes.extend(schema::check_clusters(clusters, &path.child("clusters")));
    }
    let patches = path.child("patches");
    let mut replaced = BTreeSet::new();
    for (at, patch) in items(spec, "patches") {
        let path = patches.index(at);
        causes.extend(check_pointer(text(patch, "path"), &path.child("path")));
        match (text(patch, "op"), patch.contains_key("value")) {
            ("remove", true) => causes.push(Cause::forbidden(&path.child("value"), "remove takes no value")),
            ("add" | "replace", false) => causes.push(Cause::required(&path.child("value"), "")),
            _ => {}
        }
        if text(patch, "op") == "replace" && !replaced.insert(text(patch, "path")) {
            causes.push(Cause::duplicate(&path.child("path"), &json!(text(patch, "path"))));
        }
    }
    causes
}

fn check_pointer(pointer: &str, path: &Path<'_>) -> Option<Cause> {
    let invalid = |why: &str| Some(Cause::invalid(path, &json!(pointer), why));
    if !pointer.starts_with('/') {
        return invalid("must be a JSON pointer, which begins with /");
    }
    let mut rest = pointer;
    while let Some(at) = rest.find('~') {
        if !matches!(rest.as_bytes().get(at + 1), Some(b'0' | b'1')) {
            return invalid("~ must be written ~0, and / within a name ~1");
        }
        rest = &rest[at + 2..];
    }
    if matches!(pointer, "/" | "/metadata" | "/spec") {
        return invalid("must name a field, not all of them");
    }
    let below = |forbidden: &&str| {
        pointer.strip_prefix(*forbidden).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let forbidden = FORBIDDEN.iter().find(|it| below(it))?;
    Some(Cause::forbidden(path, &format!("{forbidden} cannot differ between clusters")))
}
