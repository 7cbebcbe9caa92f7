//! Calls of apimachinery's managedfields, repeated.

use std::collections::BTreeSet;

use machinery::{
    apply::{
        self, ApplyError, Conflict, Managed, PathElement, Request, TypeRef, Versions, scale_from_parent,
        scale_to_parent,
    },
    resource::Tree,
};
use serde_json::{Value, json};

use crate::{
    Call,
    merge::{self, Outcome, expect, same_value},
    schemas::Schemas,
};

pub fn check(schemas: &Schemas, call: &Call<'_>) -> Outcome {
    let fields = call.fields;
    match call.text("call") {
        "trackUpdate" | "serverSideApply" => write(schemas, call),
        "decodeManagedFields" => match Managed::decode(&holder(&fields["entries"])) {
            Ok(managed) => same_entries(&managed, &fields["result"]),
            Err(error) => expect("refused", true, !fields["error"].is_null()).map_err(|_| error.to_string()),
        },
        "sortManagedFields" => sorting(fields),
        "capManagers" => {
            let mut managed = decode(&fields["entries"])?;
            managed.join_oldest(fields["max"].as_u64().unwrap_or_default() as usize);
            same_entries(&managed, &fields["result"])
        }
        "conflictError" => {
            let conflicts = fields["conflicts"].as_array().into_iter().flatten().map(|conflict| {
                let manager = conflict["manager"].as_str().unwrap_or_default().to_owned();
                Ok(Conflict { manager, path: path(&conflict["path"])? })
            });
            let error = ApplyError::Conflicts(conflicts.collect::<Result<_, String>>()?);
            same_status(&error, &fields["result"])
        }
        "scaleFromParent" | "scaleToParent" => scale(call),
        _ => merge::check(schemas, call),
    }
}

/// An object that has these managers.
fn holder(entries: &Value) -> Tree {
    Tree::from_iter([("metadata".to_owned(), json!({"managedFields": entries}))])
}

fn decode(entries: &Value) -> Result<Managed, String> {
    Managed::decode(&holder(entries)).map_err(|error| error.to_string())
}

fn entries_of(tree: &Tree) -> Value {
    tree.get("metadata").and_then(|metadata| metadata.get("managedFields")).cloned().unwrap_or_default()
}

fn same_entries(managed: &Managed, theirs: &Value) -> Outcome {
    let mut tree = Tree::new();
    managed.encode(&mut tree);
    same_value("entries", &entries_of(&tree), theirs)
}

fn sorting(fields: &Value) -> Outcome {
    if fields["entries"] == json!([]) {
        return Ok(());
    }
    // They say nothing about fields, which ours must.
    let mut entries = fields["entries"].clone();
    let mut sorted = fields["result"].clone();
    for entry in [&mut entries, &mut sorted].into_iter().filter_map(Value::as_array_mut).flatten() {
        entry["fieldsType"] = json!("FieldsV1");
        entry["fieldsV1"] = json!({});
        if entry.get("operation").is_none() || entry.get("apiVersion").is_none() {
            return Ok(());
        }
    }
    same_entries(&decode(&entries)?, &sorted)
}

fn path(elements: &Value) -> Result<Vec<PathElement>, String> {
    let elements = elements.as_array().into_iter().flatten();
    let parse = |text: &Value| {
        PathElement::parse(text.as_str().unwrap_or_default()).map_err(|error| error.to_string())
    };
    elements.map(parse).collect()
}

/// Upstream lists conflicts in no particular order.
fn same_status(error: &ApplyError, theirs: &Value) -> Outcome {
    let status = error.status().to_json();
    let key = |status: &Value| {
        let lines: BTreeSet<String> =
            status["message"].as_str().unwrap_or_default().lines().map(str::to_owned).collect();
        let causes: BTreeSet<String> =
            status["details"]["causes"].as_array().into_iter().flatten().map(Value::to_string).collect();
        (lines, causes, status["reason"].clone(), status["code"].clone())
    };
    expect("status", key(&status), key(theirs))
}

/// Upstream's tests do not convert: an object is the same in every version.
struct SameInAll<'s>(TypeRef<'s>);

impl Versions for SameInAll<'_> {
    fn type_at(&self, _: &str) -> Option<TypeRef<'_>> {
        Some(self.0)
    }

    fn convert(&self, object: &Tree, _: &str) -> Result<Tree, String> {
        Ok(object.clone())
    }
}

fn tree(value: &Value) -> Tree {
    value.as_object().cloned().unwrap_or_default()
}

fn write(schemas: &Schemas, call: &Call<'_>) -> Outcome {
    let fields = call.fields;
    let versions = SameInAll(schemas.get(fields).ok_or("no type")?);
    let filters = merge::filters(&fields["filters"])?;
    let (api_version, kind) = (call.text("apiVersion"), call.text("kind"));
    let empty = tree(&json!({"apiVersion": api_version, "kind": kind}));
    let request = Request {
        versions: &versions,
        api_version,
        kind,
        empty: &empty,
        manager: call.text("manager"),
        subresource: call.text("subresource"),
        filters: &filters,
        now: call.text("now"),
    };
    let (live, other) = (tree(&fields["live"]), tree(&fields["other"]));
    if call.text("call") == "trackUpdate" {
        let mut new = other;
        apply::track_update(&request, Some(&live), &mut new, false);
        return match fields["error"].as_str() {
            Some(_) => expect("managers after an error", entries_of(&new), Value::Null),
            None => same_value("object", &Value::Object(new), &fields["result"]),
        };
    }
    match (apply::apply(&request, &live, &other, call.is("force")), &fields["error"]) {
        (Ok(object), Value::Null) => same_value("object", &Value::Object(object), &fields["result"]),
        (Ok(_), error) => Err(format!("upstream refuses it: {error}")),
        (Err(error), _) if fields.get("status").is_some() => same_status(&error, &fields["status"]),
        (Err(error), theirs) => expect("error", json!(error.status().message()), theirs.clone()),
    }
}

fn scale(call: &Call<'_>) -> Outcome {
    let fields = call.fields;
    let mut owned = Vec::new();
    for (version, elements) in fields["mappings"].as_object().into_iter().flatten() {
        owned.push((version.as_str(), if elements.is_null() { None } else { Some(path(elements)?) }));
    }
    let paths: Vec<_> = owned.iter().map(|(version, path)| (*version, path.as_deref())).collect();
    let parent = holder(&fields["parent"]);
    let mut result = Tree::new();
    let outcome = if call.text("call") == "scaleFromParent" {
        scale_from_parent(&paths, &parent, &mut result)
    } else {
        scale_to_parent(&paths, call.text("apiVersion"), &parent, &holder(&fields["scale"]), &mut result)
    };
    match (outcome, &fields["error"]) {
        (Ok(()), Value::Null) => same_value("entries", &entries_of(&result), &fields["result"]),
        (Err(_), Value::String(_)) => Ok(()),
        (ours, theirs) => Err(format!("ours: {ours:?}, theirs: {theirs}")),
    }
}
