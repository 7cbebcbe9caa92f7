//! A kind that a definition makes.

use std::sync::{Arc, OnceLock};

use serde_json::{Value, json};

use super::{
    Cell, Resource, Row, Schema as ResourceSchema, Selectable, Subresource, TableCell, TableColumn, Tree,
};
use crate::{
    apply::{Schema, SchemaBuilder, TypeId, TypeRef},
    definition::{self, CustomVersion, SelectablePath},
    names,
    revision::Revision,
    structural::{Findings, Malformed},
};

/// What a definition says about objects of one version.
#[derive(Debug)]
pub struct Custom {
    pub version: CustomVersion,
    /// The name of the definition.
    pub definition: String,
    /// The revision of the definition. What was written after it, in this version, needs no second look.
    pub since: Revision,
    /// The definition is being deleted, and its objects with it.
    pub terminating: bool,
    /// `openAPIV3Schema`, as it is written.
    pub source: Value,
    merge: OnceLock<(Schema, TypeId)>,
}

/// The rules that all custom kinds share. In metrics they are one.
const ROW: Row = Row {
    group: "(custom)",
    version: "",
    plural: "(custom)",
    // In the order in which upstream lists them.
    verbs: &["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"],
    name_rule: names::subdomain_name,
    generation: true,
    unconditional_update: false,
    qualified_finalizers: false,
    returns_deleted: false,
    ..Row::PLAIN
};

/// `status` of a custom kind resets all metadata.
const STATUS: Subresource =
    Subresource { resets: &["metadata", "spec"], prepare: only_status, ..Subresource::status("", "", "") };

fn only_status(new: &mut Tree, old: &Tree) {
    super::only(new, old, "status");
    // Upstream keeps everything but the resource version, and who set what.
    let (Some(metadata), Some(kept)) = (
        new.get_mut("metadata").and_then(Value::as_object_mut),
        old.get("metadata").and_then(Value::as_object),
    ) else {
        return;
    };
    let mut kept = kept.clone();
    for key in ["resourceVersion", "managedFields", "uid"] {
        match metadata.remove(key) {
            Some(value) => kept.insert(key.into(), value),
            None => kept.remove(key),
        };
    }
    *metadata = kept;
}

/// What a definition of a kind that is there without one would say.
pub fn own_definition(row: &Row, schema: &Value) -> Tree {
    let subresources = row.subresources.iter().map(|it| (it.name.to_owned(), json!({}))).collect::<Tree>();
    let definition = json!({
        "metadata": {"name": format!("{}.{}", row.plural, row.group)},
        "spec": {
            "group": row.group,
            "scope": if row.namespaced { "Namespaced" } else { "Cluster" },
            "names": {
                "plural": row.plural, "singular": row.singular, "kind": row.kind,
                "listKind": format!("{}List", row.kind),
                "shortNames": row.short_names, "categories": row.categories,
            },
            "versions": [{
                "name": row.version, "served": true, "storage": true, "subresources": subresources,
                "schema": {"openAPIV3Schema": schema},
            }],
        },
        "status": {"storedVersions": [row.version]},
    });
    match definition {
        Value::Object(tree) => tree,
        _ => Tree::new(),
    }
}

impl Custom {
    /// Of a kind that is there without a definition.
    pub(super) fn own(row: &Row, schema: Value) -> Custom {
        let definition = own_definition(row, &schema);
        Custom {
            version: definition::own(&definition),
            definition: String::new(),
            since: Revision::ZERO,
            terminating: false,
            source: schema,
            merge: OnceLock::new(),
        }
    }

    /// Makes of an object that was stored under an earlier definition, or converted, what this one makes of it.
    pub fn renew(&self, tree: &mut Tree) {
        // With `Drop` nothing is refused.
        drop(self.version.accept(tree, Malformed::Drop));
        self.version.fill_defaults(tree);
    }

    /// How its objects merge.
    pub fn merge_type(&self) -> TypeRef<'_> {
        let (schema, id) = self.merge.get_or_init(|| {
            let mut builder = SchemaBuilder::new();
            // Without a schema that can be used objects are merged by what they look like, as upstream does.
            let made = builder.custom_resource(&self.source, !self.version.prunes);
            let id = made.unwrap_or(builder.deduced());
            (builder.build(), id)
        });
        schema.get(*id)
    }

    /// What is wrong with an object.
    pub fn check(&self, new: &mut Tree, old: Option<&Tree>, subresource: &str) -> Findings {
        // The schema looks at values; the tree is lent to it as one.
        let value = Value::Object(std::mem::take(new));
        let old = old.map(|old| Value::Object(old.clone()));
        let findings = match (&old, subresource) {
            (None, _) => self.version.check_create(&value),
            (Some(old), "status") => self.version.check_status(&value, old),
            (Some(old), _) => self.version.check_update(&value, old),
        };
        if let Value::Object(tree) = value {
            *new = tree;
        }
        findings
    }

    /// What the author of an object should know.
    pub fn warnings(&self, new: &Tree, old: Option<&Tree>) -> Vec<String> {
        definition::finalizer_warnings(new, old)
    }
}

/// What a definition adds to its workspace, the preferred version first. `since` is its revision.
pub fn custom_resources(definition: &Tree, since: Revision) -> Vec<Resource> {
    if !definition::is_served(definition) {
        return Vec::new();
    }
    let metadata = |key: &str| definition.get("metadata").and_then(|metadata| metadata.get(key));
    let name = metadata("name").and_then(Value::as_str).unwrap_or_default().to_owned();
    let terminating = definition::is_true(definition, "Terminating");
    let versions = definition::served(definition);
    let stored = versions.iter().find(|version| version.storage).map(CustomVersion::api_version);
    let stored = stored.unwrap_or_default();
    let served = versions.into_iter().filter(|version| version.served);
    let make = |version: CustomVersion| {
        let source = schema_source(definition, &version.version);
        let custom =
            Custom { version, definition: name.clone(), since, terminating, source, merge: OnceLock::new() };
        resource(custom, &stored)
    };
    served.map(make).collect()
}

fn schema_source(definition: &Tree, version: &str) -> Value {
    let versions = definition.get("spec").and_then(|spec| spec.get("versions")).and_then(Value::as_array);
    let found = versions.into_iter().flatten().find(|it| it["name"] == version);
    found.and_then(|it| it.pointer("/schema/openAPIV3Schema")).cloned().unwrap_or(Value::Null)
}

fn resource(custom: Custom, stored_api_version: &str) -> Resource {
    let version = &custom.version;
    let names = version.names.clone();
    let mut subresources = Vec::new();
    subresources.extend(version.has_status.then_some(STATUS));
    subresources.extend(version.scale.is_some().then_some(Subresource::SCALE));
    let name = TableColumn {
        name: "Name".into(),
        kind: "string".into(),
        format: "name".into(),
        description: "Name must be unique within a namespace. Is required when creating resources.".into(),
        priority: 0,
        cell: TableCell::Builtin(Cell::Name),
    };
    let columns = version.columns.iter().map(|column| TableColumn {
        name: column.name.clone(),
        kind: column.type_name.clone(),
        format: column.format.clone(),
        description: column.description.clone(),
        priority: column.priority,
        cell: TableCell::Custom(column.path.clone()),
    });
    let columns = [name].into_iter().chain(columns).collect();
    let selectable = |path: &SelectablePath| Selectable {
        name: path.name.clone(),
        paths: vec![path.name.clone()],
        absent: String::new(),
    };
    Resource {
        group: version.group.clone(),
        version: version.version.clone(),
        kind: names.kind.clone(),
        list_kind: names.list_kind.clone(),
        plural: names.plural.clone(),
        singular: names.singular.clone(),
        api_version: version.api_version(),
        namespaced: version.namespaced,
        short_names: names.short_names.clone(),
        categories: names.categories.clone(),
        subresources,
        columns,
        fields: version.selectable.iter().map(selectable).collect(),
        scale: version.scale.clone(),
        row: ROW,
        stored_api_version: stored_api_version.to_owned(),
        stored_group: version.group.clone(),
        served_as_stored: true,
        type_prefix: format!("{{\"kind\":\"{}\",\"apiVersion\":\"{}\",", names.kind, version.api_version()),
        empty: OnceLock::new(),
        schema: ResourceSchema::Custom(Arc::new(custom)),
    }
}
