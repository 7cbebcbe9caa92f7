//! What a server does with a request to write, without the server: no access control, no storage, no clock.

use machinery::{
    field_error::Cause,
    metadata, names,
    resource::{Resource, Subresource, Tree},
    schema::{self, Types},
    status::Status,
    validation::network::addresses::{self, Granted},
};
use serde_json::{Value, json};

use crate::Line;

/// What time it is, where the real server does not say.
const NOW: &str = "2020-01-01T00:00:00Z";

/// What the rules lead to.
pub struct Ours {
    pub code: u16,
    pub warnings: Vec<String>,
    pub body: Value,
}

/// An object that would be written, and what its author should know.
type Written = (Value, Vec<String>);

pub fn answer(resource: &Resource, line: &Line) -> Ours {
    let (code, written) = match (line.verb.as_str(), &line.old) {
        ("update", Some(old)) => (200, update(resource, None, &line.object, old)),
        ("status", Some(old)) => (200, update_status(resource, &line.object, old)),
        _ => (201, create(resource, &line.object, &line.answer)),
    };
    match written {
        Ok((body, warnings)) => Ours { code, warnings, body },
        Err(status) => Ours { code: status.code(), warnings: Vec::new(), body: status.to_json() },
    }
}

fn create(resource: &Resource, sent: &Value, answer: &Value) -> Result<Written, Status> {
    let mut tree = decode(resource, sent)?;
    if !matches!(text(metadata_of(&mut tree), "resourceVersion"), "" | "0") {
        return Err(Status::bad_request("resourceVersion should not be set on objects to be created"));
    }
    set_namespace(resource, &mut tree, sent)?;
    let generate = text(metadata_of(&mut tree), "generateName").to_owned();
    if resource.has_status() && !resource.row.status_on_create {
        tree.remove("status");
    }
    resource.to_storage(&mut tree);
    prepare_new(resource, &mut tree, answer);
    if text(metadata_of(&mut tree), "name").is_empty() && !generate.is_empty() {
        // What the real server drew, so that the results can be equal.
        let drawn = answer.pointer("/metadata/name").and_then(Value::as_str).map(str::to_owned);
        let name = drawn.unwrap_or_else(|| names::generate_name(&generate, [0; 8]));
        metadata_of(&mut tree).insert("name".into(), json!(name));
    }
    resource.fill_defaults(&mut tree);
    (resource.row.prepare_create)(&mut tree);
    resource.fill_defaults(&mut tree);
    (resource.row.stamp)(&mut tree, None, NOW);
    allocate(resource, &mut tree, None);
    let name = text(metadata_of(&mut tree), "name").to_owned();
    let mut causes =
        metadata::validate_create(metadata_of(&mut tree), resource.namespaced, resource.row.name_rule);
    causes.extend(check_finalizers(resource, metadata_of(&mut tree)));
    causes.extend(resource.check(&mut tree, None, "").causes);
    refuse_if_any(resource, &name, causes)?;
    let warnings = (resource.row.warn)(&tree, None);
    Ok((present(resource, tree), warnings))
}

fn update_status(resource: &Resource, sent: &Value, old: &Value) -> Result<Written, Status> {
    let status = resource.subresource("status").ok_or_else(Status::no_such_path)?;
    update(resource, Some(status), sent, old)
}

/// `by`: the subresource that is written to, if any.
fn update(
    resource: &Resource,
    by: Option<&Subresource>,
    sent: &Value,
    old: &Value,
) -> Result<Written, Status> {
    let mut new = decode(resource, sent)?;
    set_namespace(resource, &mut new, old)?;
    let Value::Object(mut old) = old.clone() else { return Err(Status::internal("no old object")) };
    let name = text(metadata_of(&mut old), "name").to_owned();
    let given = text(metadata_of(&mut new), "name").to_owned();
    if given.is_empty() {
        return Err(Status::bad_request(format!(
            "the name of the object ({name} based on URL) was undeterminable: name must be provided"
        )));
    }
    if given != name {
        return Err(Status::bad_request(format!(
            "the name of the object ({given}) does not match the name on the URL ({name})"
        )));
    }
    metadata_of(&mut old).remove("managedFields");
    resource.to_storage(&mut old);
    resource.to_storage(&mut new);
    resource.fill_defaults(&mut new);
    prepare_replacement(resource, by, &mut new, &old);
    if by.is_none() {
        allocate(resource, &mut new, Some(&old));
    }
    let empty = Tree::new();
    let old_metadata = old.get("metadata").and_then(Value::as_object).unwrap_or(&empty);
    let mut causes = metadata::validate_update(metadata_of(&mut new), old_metadata);
    causes.extend(check_finalizers(resource, metadata_of(&mut new)));
    causes.extend(resource.check(&mut new, Some(&old), by.map_or("", |subresource| subresource.name)).causes);
    refuse_if_any(resource, &name, causes)?;
    count_generation(resource, &mut new, &old);
    let warnings = (resource.row.warn)(&new, Some(&old));
    Ok((present(resource, new), warnings))
}

fn decode(resource: &Resource, sent: &Value) -> Result<Tree, Status> {
    let mut value = sent.clone();
    let types = Types::builtin();
    if let Some(message) = types.get(resource.row.type_name) {
        schema::conform(types, message, &mut value, schema::Options::default()).map_err(|error| {
            let (kind, version) = (&resource.kind, &resource.version);
            Status::bad_request(format!(
                "{kind} in version {version:?} cannot be handled as a {kind}: {error}"
            ))
        })?;
    }
    let Value::Object(tree) = value else { return Err(Status::bad_request("the body is not an object")) };
    (resource.row.readable)(&tree).map_err(|error| {
        let (kind, version) = (&resource.kind, &resource.version);
        Status::bad_request(format!("{kind} in version {version:?} cannot be handled as a {kind}: {error}"))
    })?;
    Ok(tree)
}

/// From storage and through the type, as objects go out.
fn present(resource: &Resource, mut tree: Tree) -> Value {
    resource.from_storage(&mut tree);
    let mut value = Value::Object(tree);
    let types = Types::builtin();
    if let Some(message) = types.get(resource.row.type_name) {
        // What the rules wrote is of the right type, or the comparison tells.
        let _ = schema::conform(types, message, &mut value, schema::Options::default());
    }
    value
}

/// The namespace that all recorded requests are in.
const NAMESPACE: &str = "kinds";

fn set_namespace(resource: &Resource, tree: &mut Tree, about: &Value) -> Result<(), Status> {
    let metadata = metadata_of(tree);
    if !resource.namespaced {
        metadata.remove("namespace");
        return Ok(());
    }
    let wanted = about.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or(NAMESPACE);
    let given = text(metadata, "namespace");
    if !given.is_empty() && given != wanted {
        return Err(Status::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    metadata.insert("namespace".into(), json!(wanted));
    Ok(())
}

/// What only the server decides about a new object; the values are those of the real server, where it took it.
fn prepare_new(resource: &Resource, tree: &mut Tree, answer: &Value) {
    let chosen = |key: &str, otherwise: &str| {
        let found = answer.pointer(&format!("/metadata/{key}")).and_then(Value::as_str);
        json!(found.unwrap_or(otherwise))
    };
    let metadata = metadata_of(tree);
    for key in
        ["resourceVersion", "selfLink", "deletionTimestamp", "deletionGracePeriodSeconds", "managedFields"]
    {
        metadata.remove(key);
    }
    metadata.insert("uid".into(), chosen("uid", "00000000-0000-0000-0000-000000000000"));
    metadata.insert("creationTimestamp".into(), chosen("creationTimestamp", NOW));
    if resource.row.generation && resource.row.first_generation != 0 {
        metadata.insert("generation".into(), json!(resource.row.first_generation));
    }
}

/// Services get addresses and ports; the comparison does not look at which.
fn allocate(resource: &Resource, tree: &mut Tree, old: Option<&Tree>) {
    if resource.kind != "Service" {
        return;
    }
    // Why there is none, validation says too.
    let Ok(demand) = addresses::demand(tree, old) else { return };
    let any_address = |at: usize| format!("10.0.{at}.1");
    let granted = Granted {
        addresses: demand
            .addresses
            .iter()
            .map(|it| it.wanted.clone().unwrap_or_else(|| any_address(it.index)))
            .collect(),
        node_ports: (30_000..).zip(&demand.node_ports).map(|(any, it)| it.wanted.unwrap_or(any)).collect(),
        health_check_port: demand.health_check_port.map(|wanted| wanted.unwrap_or(32_000)),
    };
    addresses::grant(tree, &demand, &granted);
}

fn prepare_replacement(resource: &Resource, by: Option<&Subresource>, new: &mut Tree, old: &Tree) {
    match by {
        Some(subresource) => (subresource.prepare)(new, old),
        None => {
            if resource.has_status() {
                set(new, "status", old.get("status").cloned());
            }
            (resource.row.prepare_update)(new, old);
        }
    }
    resource.fill_defaults(new);
    (resource.row.stamp)(new, Some(old), NOW);
    let old_metadata = old.get("metadata").and_then(Value::as_object);
    let metadata = metadata_of(new);
    metadata.remove("selfLink");
    metadata.remove("managedFields");
    for key in [
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "generateName",
        "resourceVersion",
    ] {
        let given = metadata.get(key).is_some_and(|value| !value.is_null());
        let ours = matches!(key, "generation" | "creationTimestamp");
        if !given || ours {
            set(metadata, key, old_metadata.and_then(|old| old.get(key)).cloned());
        }
    }
}

fn count_generation(resource: &Resource, new: &mut Tree, old: &Tree) {
    let was = old.get("metadata").and_then(|it| it.get("generation")).and_then(Value::as_i64);
    let first = Some(0).filter(|_| resource.row.first_generation == 0);
    let Some(generation) = was.or(first).filter(|_| resource.row.generation) else { return };
    let meaningful = |tree: &Tree| -> Tree {
        let spec = tree.iter().filter(|(key, _)| !matches!(key.as_str(), "metadata" | "status"));
        let mut kept: Tree = spec.map(|(key, value)| (key.clone(), value.clone())).collect();
        kept.remove("apiVersion");
        kept.remove("kind");
        let annotations = tree.get("metadata").and_then(|metadata| metadata.get("annotations"));
        if let Some(annotations) = annotations.filter(|_| resource.row.generation_counts_annotations) {
            kept.insert("annotations".into(), annotations.clone());
        }
        kept
    };
    let counts = match resource.row.counts_generation {
        Some(counts) => counts(new, old),
        None => meaningful(new) != meaningful(old),
    };
    if counts {
        metadata_of(new).insert("generation".into(), json!(generation + 1));
    }
}

/// A finalizer is somebody's: its name has a domain, unless it is the API's own.
fn check_finalizers(resource: &Resource, metadata: &Tree) -> Vec<Cause> {
    let finalizers = metadata.get("finalizers").and_then(Value::as_array).into_iter().flatten();
    let named = finalizers.enumerate().filter_map(|(at, name)| Some((at, name.as_str()?)));
    let unqualified = named.filter(|(_, name)| {
        resource.row.qualified_finalizers
            && !name.contains('/')
            && !matches!(*name, "kubernetes" | "orphan" | "foregroundDeletion")
    });
    let detail = "name is neither a standard finalizer name nor is it fully qualified";
    unqualified
        .map(|(at, name)| Cause::invalid(format!("metadata.finalizers[{at}]"), &json!(name), detail))
        .collect()
}

fn refuse_if_any(resource: &Resource, name: &str, causes: Vec<Cause>) -> Result<(), Status> {
    if causes.is_empty() {
        return Ok(());
    }
    Err(Status::invalid(&resource.stored_group, &resource.kind, name, causes))
}

fn text<'a>(tree: &'a Tree, key: &str) -> &'a str {
    tree.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn set(tree: &mut Tree, key: &str, value: Option<Value>) {
    match value {
        Some(value) => tree.insert(key.into(), value),
        None => tree.remove(key),
    };
}

/// `metadata`, made if it is not there.
fn metadata_of(tree: &mut Tree) -> &mut Tree {
    let value = tree.entry("metadata").or_insert_with(|| json!({}));
    if !value.is_object() {
        *value = json!({});
    }
    match value {
        Value::Object(metadata) => metadata,
        _ => unreachable!("just made an object"),
    }
}
