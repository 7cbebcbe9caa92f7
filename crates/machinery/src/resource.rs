//! Resource descriptors: everything the server needs to know of a kind, as data.
//!
//! A [`Row`] is how a kind is written down, one place per kind. Handlers, discovery, tables and patches are
//! generic over the [`Resource`] made from it; what is special about a kind is a column of its row.

use serde_json::{Map, Value};

use crate::{
    field_error::Cause,
    names::{self, NameRule},
};

/// The tree of one object, inside one request.
pub type Tree = Map<String, Value>;

/// A column of `kubectl get`, beside NAME.
#[derive(Clone, Debug)]
pub struct Column {
    pub name: &'static str,
    /// `string`, `integer`, `date` …
    pub kind: &'static str,
    pub format: &'static str,
    pub description: &'static str,
    /// 0 is always shown, more only by `-o wide`.
    pub priority: i32,
    pub cell: Cell,
}

/// How a cell is computed.
#[derive(Clone, Copy, Debug)]
pub enum Cell {
    Name,
    /// How long ago the object was created, for people.
    Age,
    /// The value at a path, as JSON.
    Path(&'static str),
    /// Given the object and the seconds since 1970.
    Compute(fn(&Value, i64) -> Value),
}

/// A field that `fieldSelector` knows, beside `metadata.name` and `metadata.namespace`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SelectableField {
    pub name: &'static str,
    /// Where its value is, in dots; the first of several that is set and not empty.
    pub paths: &'static [&'static str],
    /// Its value where none is set: `false` of a flag.
    pub otherwise: &'static str,
}

/// A path below an object.
#[derive(Clone, Copy, Debug)]
pub struct Subresource {
    pub name: &'static str,
    pub kind: &'static str,
    pub group: &'static str,
    pub version: &'static str,
    pub verbs: &'static [&'static str],
    /// Given the whole object as the client sent it here and as it is: makes of the former the object to be stored,
    /// changed only in what this path may change. Metadata is looked after elsewhere.
    pub prepare: fn(&mut Tree, &Tree),
    /// Given the new object and the old one: what is wrong with a change by this path. The row's `validate` is not
    /// asked then.
    pub validate: fn(&Tree, &Tree) -> Vec<Cause>,
}

impl Subresource {
    /// `status` of a kind: it changes `status`, and nothing else changes it.
    pub const fn status(kind: &'static str, group: &'static str, version: &'static str) -> Self {
        Subresource {
            name: "status",
            kind,
            group,
            version,
            verbs: &["get", "patch", "update"],
            prepare: only_status,
            validate: |_, _| Vec::new(),
        }
    }

    /// The number of replicas, in the form that every kind shares. The row's `scale` says where they are.
    pub const SCALE: Subresource = Subresource {
        name: "scale",
        kind: "Scale",
        group: "autoscaling",
        ..Subresource::status("Scale", "autoscaling", "v1")
    };
}

/// Everything but `status` (and metadata) stays.
fn only_status(new: &mut Tree, old: &Tree) {
    only(new, old, "status");
}

/// Everything but the member `key` (and metadata) stays.
pub fn only(new: &mut Tree, old: &Tree, key: &str) {
    let kept = [new.remove(key).map(|it| (key, it)), new.remove("metadata").map(|it| ("metadata", it))];
    *new = old.clone();
    new.remove(key);
    for (key, value) in kept.into_iter().flatten() {
        new.insert(key.into(), value);
    }
}

/// Where a kind keeps its replicas, for the subresource `scale`; paths in dots, as CRDs write them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scale {
    /// `.spec.replicas`
    pub spec_replicas: &'static str,
    pub status_replicas: &'static str,
    /// A label selector, as an object or in text; empty: there is none.
    pub selector: &'static str,
}

/// Functions between the spelling of a version and the stored one, where renaming fields is not enough.
#[derive(Clone, Copy, Debug)]
pub struct Conversion {
    pub to_storage: fn(&mut Tree),
    pub from_storage: fn(&mut Tree),
}

/// How another version of a kind spells the fields of the stored one: (stored, here), top level.
pub type Renames = &'static [(&'static str, &'static str)];

/// A kind, written down.
#[derive(Clone, Debug)]
pub struct Row {
    /// Empty for the core group.
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
    pub singular: &'static str,
    pub namespaced: bool,
    pub short_names: &'static [&'static str],
    pub categories: &'static [&'static str],
    pub verbs: &'static [&'static str],
    pub subresources: &'static [Subresource],
    pub columns: &'static [Column],
    pub fields: &'static [SelectableField],
    /// The name of its type in the table of types; empty: not typed.
    pub type_name: &'static str,
    pub name_rule: NameRule,
    /// A change of anything but metadata and `status` counts `metadata.generation` up.
    pub generation: bool,
    /// A change of annotations does so too.
    pub generation_counts_annotations: bool,
    /// What `generation` begins with; 0: objects have none before their first change.
    pub first_generation: i64,
    /// Given the new object and the old one: whether `generation` counts the change, where that is not decided by the
    /// two rules above.
    pub counts_generation: Option<fn(&Tree, &Tree) -> bool>,
    /// A new object may bring its `status`, as nodes do.
    pub status_on_create: bool,
    /// PUT of an object that is not there creates it.
    pub create_on_update: bool,
    /// PUT without `resourceVersion` overwrites.
    pub unconditional_update: bool,
    /// DELETE answers with the object it removed.
    pub returns_deleted: bool,
    /// Names of finalizers need a domain, unless they are the API's own.
    pub qualified_finalizers: bool,
    /// Texts that this version leaves out when they are empty, though the stored one has them.
    pub omit_empty: &'static [&'static str],
    /// Seconds after which an object goes by itself.
    pub ttl_seconds: Option<u32>,
    /// Before a new object is checked, beside `default`: what only creation sets.
    pub prepare_create: fn(&mut Tree),
    /// Given the new object and the old one: keeps what an update of the main resource may not change.
    pub prepare_update: fn(&mut Tree, &Tree),
    /// Fills in what the user left open; before every check.
    pub default: fn(&mut Tree),
    /// Given the object as prepared, on update the old one, and the time in text: writes the times that a change
    /// leaves in an object.
    pub stamp: fn(&mut Tree, Option<&Tree>, &str),
    /// Given a name: why the object of that name cannot be deleted.
    pub undeletable: fn(&str) -> Option<&'static str>,
    /// Given the new object and, on update, the old one.
    pub validate: fn(&Tree, Option<&Tree>) -> Vec<Cause>,
    /// The version in which objects are stored, if it is another group's.
    pub stored_as: Option<(&'static str, &'static str)>,
    pub renames: Renames,
    /// After `renames` towards storage, before them on the way back.
    pub convert: Option<Conversion>,
    pub scale: Option<Scale>,
    /// Given the new object and, on update, the old one: what its author should know though it is accepted.
    pub warn: fn(&Tree, Option<&Tree>) -> Vec<String>,
    /// Served only in the workspace of platform admins.
    pub only_in_root: bool,
}

pub const ALL_VERBS: &[&str] =
    &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

fn no_default(_: &mut Tree) {}

fn keep_nothing(_: &mut Tree, _: &Tree) {}

fn no_validation(_: &Tree, _: Option<&Tree>) -> Vec<Cause> {
    Vec::new()
}

impl Row {
    /// A namespaced kind of the core group with nothing special about it; rows are written as differences to it.
    pub const PLAIN: Row = Row {
        group: "",
        version: "v1",
        kind: "",
        plural: "",
        singular: "",
        namespaced: true,
        short_names: &[],
        categories: &[],
        verbs: ALL_VERBS,
        subresources: &[],
        columns: &[],
        fields: &[],
        type_name: "",
        name_rule: names::subdomain_name,
        generation: false,
        generation_counts_annotations: false,
        first_generation: 1,
        counts_generation: None,
        status_on_create: false,
        create_on_update: false,
        unconditional_update: true,
        returns_deleted: false,
        qualified_finalizers: true,
        omit_empty: &[],
        ttl_seconds: None,
        prepare_create: no_default,
        prepare_update: keep_nothing,
        default: no_default,
        stamp: |_, _, _| {},
        undeletable: |_| None,
        validate: no_validation,
        stored_as: None,
        renames: &[],
        convert: None,
        scale: None,
        warn: |_, _| Vec::new(),
        only_in_root: false,
    };

    pub fn list_kind(&self) -> String {
        format!("{}List", self.kind)
    }

    /// `v1` or `rbac.authorization.k8s.io/v1`.
    pub fn api_version(&self) -> String {
        group_version(self.group, self.version)
    }

    pub fn verb_allowed(&self, verb: &str) -> bool {
        self.verbs.contains(&verb)
    }

    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|subresource| subresource.name == name)
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
}

pub fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// A row made ready to serve.
#[derive(Debug)]
pub struct Resource {
    pub row: Row,
    pub api_version: String,
    pub list_kind: String,
    /// The `apiVersion` that stored objects carry.
    pub stored_api_version: String,
    /// Group of the collection that holds the objects.
    pub stored_group: &'static str,
    /// `{"kind":…,"apiVersion":…,` of an object served in this version.
    pub type_prefix: String,
    /// Whether stored bytes can be served as they are.
    pub served_as_stored: bool,
}

impl Resource {
    pub fn new(row: Row) -> Self {
        let api_version = row.api_version();
        let (stored_group, stored_version) = row.stored_as.unwrap_or((row.group, row.version));
        let stored_api_version = group_version(stored_group, stored_version);
        Self {
            list_kind: row.list_kind(),
            type_prefix: format!("{{\"kind\":\"{}\",\"apiVersion\":\"{api_version}\",", row.kind),
            served_as_stored: api_version == stored_api_version
                && row.renames.is_empty()
                && row.convert.is_none(),
            api_version,
            stored_api_version,
            stored_group,
            row,
        }
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

impl std::ops::Deref for Resource {
    type Target = Row;

    fn deref(&self) -> &Row {
        &self.row
    }
}
