//! A kind made ready to serve.

use std::sync::{Arc, OnceLock};

use serde_json::Value;

use super::{Cell, Column, Custom, Row, Subresource, Tree, group_version};
use crate::{
    apply,
    jsonpath::JsonPath,
    schema::{Message, Types},
    structural::Findings,
};

/// Everything the server needs to know of one kind in one version.
#[derive(Debug)]
pub struct Resource {
    /// Empty for the core group.
    pub group: String,
    pub version: String,
    pub kind: String,
    pub list_kind: String,
    pub plural: String,
    pub singular: String,
    /// `v1` or `rbac.authorization.k8s.io/v1`.
    pub api_version: String,
    pub namespaced: bool,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    pub subresources: Vec<Subresource>,
    pub columns: Vec<TableColumn>,
    pub fields: Vec<Selectable>,
    pub scale: Option<ScalePaths>,
    pub schema: Schema,
    /// Its rules. The names in it are those of a built-in kind only.
    pub row: Row,
    /// The `apiVersion` that stored objects carry.
    pub stored_api_version: String,
    /// Group of the collection that holds the objects.
    pub stored_group: String,
    /// Whether stored bytes can be served as they are. Those of custom kinds are brought to the version that is asked
    /// for before they are shown.
    pub served_as_stored: bool,
    /// How an object of this version begins: `{"kind":…,"apiVersion":…,`.
    pub type_prefix: String,
    pub(super) empty: OnceLock<Tree>,
}

/// What objects of a kind look like.
#[derive(Clone, Debug)]
pub enum Schema {
    /// A type of Kubernetes itself.
    Typed(&'static Message),
    /// What a definition says.
    Custom(Arc<Custom>),
    /// What the schema in its row says: a kind of Hanse's own. It is there without a definition.
    Own(Arc<Custom>),
    /// Nothing is known but that it has metadata.
    Untyped,
}

/// A [`Column`], of whatever kind.
#[derive(Clone, Debug)]
pub struct TableColumn {
    pub name: String,
    pub kind: String,
    pub format: String,
    pub description: String,
    pub priority: i32,
    pub cell: TableCell,
}

/// How a cell is computed.
#[derive(Clone, Debug)]
pub enum TableCell {
    Builtin(Cell),
    /// As a definition says: the value at a path, in the type of the column.
    Custom(JsonPath),
}

/// A field that `fieldSelector` knows, and where its value is: the first of the paths that is set and not empty.
#[derive(Clone, Debug)]
pub struct Selectable {
    pub name: String,
    pub paths: Vec<String>,
    /// Its value where none of them is.
    pub absent: String,
}

/// Where the replicas of a kind are: paths in dots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScalePaths {
    pub spec_replicas: String,
    pub status_replicas: String,
    /// Empty: there is none.
    pub selector: String,
}

fn schema_of(row: &Row) -> Schema {
    match row.schema {
        Some(schema) => Schema::Own(Arc::new(Custom::own(row, schema()))),
        None => Types::builtin().get(row.type_name).map_or(Schema::Untyped, Schema::Typed),
    }
}

fn owned(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

impl From<&Column> for TableColumn {
    fn from(column: &Column) -> Self {
        TableColumn {
            name: column.name.into(),
            kind: column.kind.into(),
            format: column.format.into(),
            description: column.description.into(),
            priority: column.priority,
            cell: TableCell::Builtin(column.cell),
        }
    }
}

impl Resource {
    /// Of a built-in kind.
    pub fn new(row: Row) -> Self {
        let api_version = group_version(row.group, row.version);
        let (stored_group, stored_version) = row.stored_as.unwrap_or((row.group, row.version));
        let stored_api_version = group_version(stored_group, stored_version);
        Self {
            group: row.group.into(),
            version: row.version.into(),
            kind: row.kind.into(),
            list_kind: format!("{}List", row.kind),
            plural: row.plural.into(),
            singular: row.singular.into(),
            namespaced: row.namespaced,
            short_names: owned(row.short_names),
            categories: owned(row.categories),
            subresources: row.subresources.to_vec(),
            columns: row.columns.iter().map(TableColumn::from).collect(),
            fields: row
                .fields
                .iter()
                .map(|field| Selectable {
                    name: field.name.into(),
                    paths: owned(field.paths),
                    absent: field.absent.into(),
                })
                .collect(),
            scale: row.scale.as_ref().map(|scale| ScalePaths {
                spec_replicas: scale.spec_replicas.into(),
                status_replicas: scale.status_replicas.into(),
                selector: scale.selector.into(),
            }),
            schema: schema_of(&row),
            served_as_stored: api_version == stored_api_version
                && row.renames.is_empty()
                && row.convert.is_none(),
            empty: OnceLock::new(),
            type_prefix: format!("{{\"kind\":\"{}\",\"apiVersion\":\"{api_version}\",", row.kind),
            api_version,
            stored_api_version,
            stored_group: stored_group.into(),
            row,
        }
    }

    /// Of what is sent and answered at a path below another kind's objects, such as a scale.
    pub fn at_path(subresource: &Subresource) -> Option<Self> {
        let (group, version, kind) = (subresource.group, subresource.version, subresource.kind);
        let message = Types::builtin().get_kind(group, version, kind)?;
        let row = Row { group, version, kind, type_name: message.name, ..Row::PLAIN };
        Some(Self::new(row))
    }

    /// Its type, if it is one of Kubernetes' own.
    pub fn message(&self) -> Option<&'static Message> {
        match &self.schema {
            Schema::Typed(message) => Some(message),
            Schema::Custom(_) | Schema::Own(_) | Schema::Untyped => None,
        }
    }

    /// An object of the kind that nothing was said about.
    pub fn empty(&self) -> &Tree {
        self.empty.get_or_init(|| match self.message() {
            Some(message) => apply::empty_object(message, &self.api_version, &self.kind),
            None => Tree::from_iter([
                ("apiVersion".to_owned(), Value::from(self.api_version.as_str())),
                ("kind".to_owned(), Value::from(self.kind.as_str())),
            ]),
        })
    }

    /// What its definition says, if it has one.
    pub fn custom(&self) -> Option<&Arc<Custom>> {
        match &self.schema {
            Schema::Custom(custom) => Some(custom),
            Schema::Typed(_) | Schema::Own(_) | Schema::Untyped => None,
        }
    }

    /// Its schema in the form that definitions have, wherever it comes from.
    pub fn structural(&self) -> Option<&Arc<Custom>> {
        match &self.schema {
            Schema::Custom(custom) | Schema::Own(custom) => Some(custom),
            Schema::Typed(_) | Schema::Untyped => None,
        }
    }

    /// Fills in what the author of an object (in the stored spelling) left open.
    pub fn fill_defaults(&self, tree: &mut Tree) {
        if let Some(custom) = self.structural() {
            custom.version.fill_defaults(tree);
        }
        (self.row.default)(tree);
    }

    /// What the author of an object should know though it is accepted.
    pub fn warnings(&self, new: &Tree, old: Option<&Tree>) -> Vec<String> {
        let mut warnings = self.custom().map_or_else(Vec::new, |custom| custom.warnings(new, old));
        warnings.extend((self.row.warn)(new, old));
        warnings
    }

    /// What is wrong with an object beyond its metadata, given the one it replaces and the path below it that is
    /// written to.
    pub fn check(&self, new: &mut Tree, old: Option<&Tree>, subresource: &str) -> Findings {
        let custom = self.structural();
        let mut findings = custom.map(|custom| custom.check(new, old, subresource)).unwrap_or_default();
        // The rules of a row may rely on the shape.
        if findings.causes.is_empty() {
            findings.causes = match (self.subresource(subresource), old) {
                (Some(below), Some(old)) => (below.validate)(new, old),
                _ => (self.row.validate)(new, old),
            };
        }
        findings
    }

    pub fn verb_allowed(&self, verb: &str) -> bool {
        self.row.verbs.contains(&verb)
    }

    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|subresource| subresource.name == name)
    }

    /// (group, version, kind) of what is sent and answered at a path below an object.
    pub fn kind_at<'a>(&'a self, subresource: &'a Subresource) -> (&'a str, &'a str, &'a str) {
        match subresource.kind {
            "" => (&self.group, &self.version, &self.kind),
            kind => (subresource.group, subresource.version, kind),
        }
    }

    pub fn has_status(&self) -> bool {
        self.subresource("status").is_some()
    }

    /// Whether the object is held by finalizers in its `spec`, as namespaces are, besides those of its metadata.
    pub fn held_by_spec(&self, tree: &Tree) -> bool {
        let finalizers = tree.get("spec").and_then(|spec| spec.get("finalizers")).and_then(Value::as_array);
        self.subresource("finalize").is_some() && finalizers.is_some_and(|list| !list.is_empty())
    }

    /// Whether objects are kept, rather than answered at once as access reviews are.
    pub fn is_stored(&self) -> bool {
        self.verb_allowed("get")
    }

    /// From the spelling of this version to the stored one. Objects of custom kinds are worked on in the version of the
    /// request; see `served_as_stored`.
    pub fn to_storage(&self, tree: &mut Tree) {
        if self.custom().is_some() {
            return;
        }
        self.rename(tree, |(stored, here)| (here, stored));
        if let Some(convert) = &self.row.convert {
            (convert.to_storage)(tree);
        }
        tree.insert("apiVersion".into(), Value::from(self.stored_api_version.as_str()));
    }

    /// From the stored spelling to that of this version.
    pub fn from_storage(&self, tree: &mut Tree) {
        if self.custom().is_some() {
            return;
        }
        // What was stored before the schema had its present form.
        if let Schema::Own(custom) = &self.schema {
            custom.renew(tree);
        }
        if let Some(convert) = &self.row.convert {
            (convert.from_storage)(tree);
        }
        self.rename(tree, |(stored, here)| (stored, here));
        for key in self.row.omit_empty {
            if tree.get(*key).and_then(Value::as_str) == Some("") {
                tree.remove(*key);
            }
        }
        tree.insert("apiVersion".into(), Value::from(self.api_version.as_str()));
    }

    fn rename(
        &self,
        tree: &mut Tree,
        direction: fn((&'static str, &'static str)) -> (&'static str, &'static str),
    ) {
        for pair in self.row.renames {
            let (from, to) = direction(*pair);
            if let Some(value) = tree.remove(from) {
                tree.insert(to.to_owned(), value);
            }
        }
    }
}
