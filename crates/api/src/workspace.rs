//! `Workspace`: a complete, isolated Kubernetes API.

use machinery::{
    field_error::Cause,
    names,
    resource::{Cell, Column, Row, Subresource, Tree},
};
use serde_json::{Value, json};

use crate::{
    AGE, GROUP, VERSION,
    schema::{self, object_of, word},
};

/// The workspace of platform admins.
pub const ROOT: &str = "root";
/// The workspace that exists without a `Workspace` object.
pub const DEFAULT: &str = "default";
/// Holds a `Workspace` until its content is gone.
pub const WORKSPACE_FINALIZER: &str = "hanse.io/workspace";

const NAME: Column = Column {
    name: "Name",
    kind: "string",
    format: "name",
    description: "The name in `/clusters/<name>`.",
    priority: 0,
    cell: Cell::Name,
};
const PHASE: Column = Column {
    name: "Phase",
    kind: "string",
    format: "",
    description: "Ready, or Terminating while its content is removed.",
    priority: 0,
    cell: Cell::Path(".status.phase"),
};

pub const ROW: Row = Row {
    group: GROUP,
    version: VERSION,
    kind: "Workspace",
    plural: "workspaces",
    singular: "workspace",
    namespaced: false,
    short_names: &["ws"],
    categories: &["hanse"],
    subresources: &[Subresource::status("Workspace", GROUP, VERSION)],
    columns: &[NAME, PHASE, AGE],
    name_rule: names::label_name,
    generation: true,
    schema: Some(shape),
    prepare_create,
    default,
    validate,
    only_in_root: true,
    ..Row::PLAIN
};

fn shape() -> Value {
    let phase = word("Ready, or Terminating while its content is removed.");
    let mut shape = schema::kind(
        "A Workspace is a complete, isolated Kubernetes API, served at /clusters/<name>.",
        json!({
            "spec": object_of("Nothing has to be said.", json!({})),
            "status": object_of("What is known of it.", json!({"phase": phase})),
        }),
    );
    shape["required"] = json!([]);
    shape
}

/// A workspace is held until its content is gone.
fn prepare_create(tree: &mut Tree) {
    let Some(metadata) = tree.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    let finalizers = metadata.entry("finalizers").or_insert_with(|| json!([]));
    if let Some(list) = finalizers.as_array_mut()
        && !list.iter().any(|name| name == WORKSPACE_FINALIZER)
    {
        list.push(json!(WORKSPACE_FINALIZER));
    }
}

/// It needs nothing else prepared: it is ready when it exists.
fn default(tree: &mut Tree) {
    let deleting = tree.get("metadata").is_some_and(|metadata| metadata.get("deletionTimestamp").is_some());
    tree.insert("status".into(), json!({"phase": if deleting { "Terminating" } else { "Ready" }}));
}

fn validate(new: &Tree, _: Option<&Tree>) -> Vec<Cause> {
    let name = new.get("metadata").and_then(|metadata| metadata.get("name")).and_then(Value::as_str);
    let reserved = name.filter(|name| matches!(*name, ROOT | DEFAULT));
    reserved
        .map(|name| {
            Cause::invalid(
                "metadata.name",
                &json!(name),
                "the name is reserved: this workspace always exists",
            )
        })
        .into_iter()
        .collect()
}
