//! Resource descriptors: everything the server needs to know of a kind, as data.
//!
//! A [`Row`] is how a kind is written down, one place per kind. Handlers, discovery, tables and patches are
//! generic over the [`Resource`] made from it; what is special about a kind is a column of its row.

mod custom;
mod served;

pub use custom::{Custom, custom_resources, own_definition};
pub use served::{Resource, ScalePaths, Schema, Selectable, TableCell, TableColumn};

use std::collections::BTreeMap;

use jiff::Timestamp;
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
    /// Its value where none of them is: `0` for a number that is left out when it is zero.
    pub absent: &'static str,
}

/// A path below an object. Where `kind` is empty, what is sent and answered there is of the object's own kind.
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
    /// Members of each of `status.conditions` that are set to the time of the request where `prepare` leaves them
    /// open.
    pub stamped: &'static [&'static str],
    /// What a write to this path sets back to what it was, so that its author does not own it: paths in dots.
    pub resets: &'static [&'static str],
    /// What it alone may own, if not everything else: paths in dots, `*` for any item.
    pub owns: &'static [&'static str],
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
            stamped: &[],
            resets: &["spec"],
            owns: &[],
        }
    }

    /// The number of replicas, in the form that every kind shares. The row's `scale` says where they are.
    pub const SCALE: Subresource = Subresource {
        name: "scale",
        prepare: |_, _| {},
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

/// Who makes an object.
#[derive(Clone, Copy, Debug)]
pub struct Author<'a> {
    pub name: &'a str,
    pub uid: &'a str,
    pub groups: &'a [String],
    pub extra: &'a BTreeMap<String, Vec<String>>,
}

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
    /// What a kind that is not of Kubernetes itself looks like, as a definition says it: an `openAPIV3Schema`.
    pub schema: Option<fn() -> Value>,
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
    /// Given an object: when it goes by itself, if it says so itself.
    pub expires: fn(&Tree) -> Option<Timestamp>,
    /// Before a new object is checked, beside `default`: what only creation sets.
    pub prepare_create: fn(&mut Tree),
    /// Writes into a new object who made it, as signing requests have it.
    pub sign: Option<fn(&mut Tree, &Author<'_>)>,
    /// Given the new object and the old one: keeps what an update of the main resource may not change.
    pub prepare_update: fn(&mut Tree, &Tree),
    /// Fills in what the user left open; before every check.
    pub default: fn(&mut Tree),
    /// Given the object as prepared, on update the old one, and the time in text: writes the times that a change
    /// leaves in an object.
    pub stamp: fn(&mut Tree, Option<&Tree>, &str),
    /// Given the object and the time in text: what a deletion changes in it first, such as what holds it.
    pub mark_deleted: Option<fn(&mut Tree, &str)>,
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
    /// What a write to the object itself sets back, so that its author does not own it: paths in dots.
    pub resets: &'static [&'static str],
    /// Given the object and the grace period asked for: how many seconds it has to end by itself before it is removed.
    pub grace: Option<fn(&Tree, Option<i64>) -> i64>,
    /// The server gives its objects addresses and ports, as it does to services.
    pub takes_addresses: bool,
    /// Dependents stay when a deletion does not say what becomes of them.
    pub orphans_by_default: bool,
    /// What whoever still uses the kind is told.
    pub deprecation: Option<&'static str>,
    /// Given an object as it was sent: why it cannot be read, though its types are right.
    pub readable: fn(&Tree) -> Result<(), String>,
    /// Given the new object and, on update, the old one: what its author should know though it is accepted.
    pub warn: fn(&Tree, Option<&Tree>) -> Vec<String>,
    /// Served only in the workspace of platform admins.
    pub only_in_root: bool,
    /// Hanse alone writes it, whatever roles say.
    pub system_written: bool,
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
        schema: None,
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
        expires: |_| None,
        prepare_create: no_default,
        sign: None,
        prepare_update: keep_nothing,
        default: no_default,
        stamp: |_, _, _| {},
        mark_deleted: None,
        undeletable: |_| None,
        validate: no_validation,
        stored_as: None,
        renames: &[],
        convert: None,
        scale: None,
        resets: &["status"],
        grace: None,
        takes_addresses: false,
        orphans_by_default: false,
        deprecation: None,
        readable: |_| Ok(()),
        warn: |_, _| Vec::new(),
        only_in_root: false,
        system_written: false,
    };
}

pub fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}
