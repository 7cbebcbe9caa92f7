//! A kind made ready to serve.

use serde_json::Value;

use super::{Cell, Column, Row, Subresource, Tree, group_version};
use crate::schema::{Message, Types};

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
    /// Whether stored bytes can be served as they are.
    pub served_as_stored: bool,
}

/// What objects of a kind look like.
#[derive(Clone, Debug)]
pub enum Schema {
    /// A type of Kubernetes itself.
    Typed(&'static Message),
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
            schema: Types::builtin().get(row.type_name).map_or(Schema::Untyped, Schema::Typed),
            served_as_stored: api_version == stored_api_version
                && row.renames.is_empty()
                && row.convert.is_none(),
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
            Schema::Untyped => None,
        }
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

    /// From the spelling of this version to the stored one.
    pub fn to_storage(&self, tree: &mut Tree) {
        self.rename(tree, |(stored, here)| (here, stored));
        if let Some(convert) = &self.row.convert {
            (convert.to_storage)(tree);
        }
        tree.insert("apiVersion".into(), Value::from(self.stored_api_version.as_str()));
    }

    /// From the stored spelling to that of this version.
    pub fn from_storage(&self, tree: &mut Tree) {
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
