//! Server-side apply: who owns which field of an object, and what an applied configuration makes of it.
//!
//! ```text
//!                    metadata.managedFields                               metadata.managedFields
//!                              │ Managed::decode                                  ▲ Managed::encode
//!                              ▼                                                  │
//!   create, update, patch ──> track_update ─┐                        ┌─ times, ancient-changes, no metadata
//!                                           ├─> Updater ──> Managers ┤
//!   apply ──────────────────> apply ────────┘      │                 └─ Conflict ──> Status 409
//!     kubectl's last-applied annotation            │
//!                                                  ▼
//!      typed (does it fit?)  combine (lay over)  compare (what changed?)  remove (prune)   — all by a Schema
//! ```
//!
//! A [`FieldSet`] is a set of paths; a [`Schema`] says which lists have keys and which objects are one field as a
//! whole. An object of several versions is compared in each version that somebody owns fields in: [`Versions`].
//!
//! Objects must be as they are stored, but in the version of the request: conformed and with their defaults.
//! [`apply()`] returns an object that has still to be conformed, defaulted and validated.

mod combine;
mod compare;
mod element;
mod fields;
mod last_applied;
mod managers;
mod merge;
mod reconcile;
mod remove;
mod scale;
mod schema;
mod typed;

use std::sync::LazyLock;

use serde_json::{Value, json};

pub use combine::{merge as merge_values, merge_trees};
pub use compare::{Comparison, compare, compare_trees};
pub use element::{ElementError, PathElement, compare_values, show_path};
pub use fields::{FieldSet, FieldsError, Filter, Matcher};
pub use managers::{Identifier, Managed, ManagedFieldsError, Operation, asks_for_reset};
pub use merge::{Conflict, Managers, MergeError, Object, Owned, Updater, Versions};
pub use reconcile::{reconcile, with_named_fields};
pub use remove::{extract_fields, extract_from_value, remove_fields, remove_from_value};
pub use scale::{ReplicasPaths, scale_from_parent, scale_to_parent};
pub use schema::{
    Atom, ListAtom, ListMerge, MapAtom, MapField, Scalar, Schema, SchemaBuilder, StructuralError, TypeId,
    TypeRef,
};
pub use typed::{Duplicates, Mistakes, field_set, tree_field_set, validate, validate_tree};

use crate::{
    gotext,
    resource::Tree,
    schema::{Message, Options, Types, conform},
    status::{Reason, Status},
};

/// Owns what was there before the first apply.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";
/// Stands for the manager while its write is merged, so that what it changed can be told from what it had.
const CURRENT_OPERATION: &str = "current-operation";

/// A write, as far as managers are concerned.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// The versions of the kind. [`BuiltinVersion`] for kinds of one version.
    pub versions: &'a dyn Versions,
    /// `apps/v1`, the version of the request and of all objects in it.
    pub api_version: &'a str,
    pub kind: &'a str,
    /// An object of the kind that nothing was said about yet: what creation is compared with.
    pub empty: &'a Tree,
    /// As the client calls itself: `fieldManager`, or what its user agent begins with.
    pub manager: &'a str,
    /// Empty for the object itself.
    pub subresource: &'a str,
    /// For each version, what the write may own: not what the server resets, as `status` on a write to the object
    /// itself. Nothing here: everything.
    pub filters: &'a [(&'a str, Filter)],
    /// RFC 3339, in seconds.
    pub now: &'a str,
}

/// Managers have names no longer than this.
const MAX_MANAGER_BYTES: usize = 128;

/// What a client is called as a manager: what it calls itself, or else what its user agent says before the first `/`.
pub fn manager_name(field_manager: &str, user_agent: &str) -> String {
    if !field_manager.is_empty() {
        return field_manager.to_owned();
    }
    let name = user_agent.split('/').next().unwrap_or_default();
    let mut out = String::new();
    for c in name.chars().filter(|c| gotext::is_print(*c)) {
        if out.len() + c.len_utf8() > MAX_MANAGER_BYTES {
            break;
        }
        out.push(c);
    }
    out
}

/// Why an apply was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApplyError {
    /// Others own fields that would change: 409. With `force` they would be taken.
    Conflicts(Vec<Conflict>),
    /// Not an object of the kind: 400.
    BadRequest(String),
    /// The configuration does not fit the schema, or something is wrong with the live object: 500, as upstream has
    /// it.
    Failed(String),
}

impl From<MergeError> for ApplyError {
    fn from(error: MergeError) -> Self {
        match error {
            MergeError::Conflicts(conflicts) => Self::Conflicts(conflicts),
            MergeError::Failed(why) => Self::Failed(why),
        }
    }
}

impl ApplyError {
    pub fn status(&self) -> Status {
        match self {
            Self::BadRequest(why) => Status::bad_request(why),
            Self::Failed(why) => Status::new(Reason::Unknown, why),
            Self::Conflicts(conflicts) => {
                let status = Status::new(Reason::Conflict, conflict_message(conflicts));
                conflicts.iter().fold(status, |status, conflict| {
                    let message = format!("conflict with {}", show_manager(&conflict.manager));
                    status.cause("FieldManagerConflict", message, &show_path(&conflict.path))
                })
            }
        }
    }
}

fn conflict_message(conflicts: &[Conflict]) -> String {
    if let [only] = conflicts {
        let (manager, path) = (show_manager(&only.manager), show_path(&only.path));
        return format!("Apply failed with 1 conflict: conflict with {manager}: {path}");
    }
    let mut by_manager: std::collections::BTreeMap<&str, Vec<String>> = Default::default();
    for conflict in conflicts {
        by_manager.entry(&conflict.manager).or_default().push(format!("- {}", show_path(&conflict.path)));
    }
    let lines = by_manager
        .into_iter()
        .map(|(manager, paths)| format!("conflicts with {}:\n{}", show_manager(manager), paths.join("\n")));
    let lines: Vec<String> = lines.collect();
    format!("Apply failed with {} conflicts: {}", conflicts.len(), lines.join("\n"))
}

/// `"kubectl" with subresource "scale" using apps/v1`.
fn show_manager(identifier: &str) -> String {
    let Some(entry) = Identifier::parse(identifier) else { return gotext::quote(identifier) };
    let mut text = gotext::quote(&entry.manager);
    if !entry.subresource.is_empty() {
        text += &format!(" with subresource {}", gotext::quote(&entry.subresource));
    }
    if entry.operation == Operation::Update.as_str() {
        text += &format!(" using {}", entry.api_version);
        text += &entry.time.map(|time| format!(" at {time}")).unwrap_or_default();
    }
    text
}

/// Writes who owns what into `new`, which is about to take the place of `live`; `None` on creation.
///
/// `resets`: the request asked to forget all managers ([`asks_for_reset`], to be looked at before the object is
/// conformed, which drops an empty list). A write to a subresource cannot.
pub fn track_update(request: &Request<'_>, live: Option<&Tree>, new: &mut Tree, resets: bool) {
    let live = live.unwrap_or(request.empty);
    let is_stored =
        live.get("metadata").and_then(|metadata| metadata.get("uid")).is_some_and(|uid| uid != "");
    let managed = managed_before(request, live, new, resets);
    managers::remove_managed_fields(new);
    // An object whose managers are not tracked stays so, until it is applied to.
    if managed.fields.is_empty() && is_stored {
        return;
    }
    // Without a schema that fits nothing can be said about owners; the write itself goes on.
    if let Ok(managed) = request.update(live, new, managed, request.manager) {
        managed.encode(new);
    }
}

/// The managers that the object has so far. Clients may change them; those that know nothing about them keep them.
fn managed_before(request: &Request<'_>, live: &Tree, new: &Tree, resets: bool) -> Managed {
    if request.subresource.is_empty() {
        if resets || asks_for_reset(new) {
            return Managed::default();
        }
        if let Some(managed) = Managed::decode(new).ok().filter(|managed| !managed.fields.is_empty()) {
            return managed;
        }
    }
    Managed::decode(live).unwrap_or_default()
}

/// The live object with a configuration applied to it, and who owns what then. `live` is [`Request::empty`] if there
/// is none yet.
pub fn apply(request: &Request<'_>, live: &Tree, config: &Tree, force: bool) -> Result<Tree, ApplyError> {
    let managed = Managed::decode(live)
        .map_err(|error| ApplyError::Failed(format!("failed to decode managed fields: {error}")))?;
    let text = |key: &str| config.get(key).and_then(Value::as_str).unwrap_or_default();
    if text("apiVersion") != request.api_version || text("kind") != request.kind {
        let kind = show_kind(text("apiVersion"), text("kind"));
        return Err(ApplyError::BadRequest(format!("invalid object type: {kind}")));
    }
    let managed = request.managed_by_somebody(live, managed)?;
    let (mut object, managed) = match request.apply_once(live, config, managed.clone(), force) {
        Err(ApplyError::Conflicts(conflicts)) if request.manager == last_applied::KUBECTL => {
            let conflicts = last_applied::remaining_conflicts(request, live, conflicts);
            if !conflicts.is_empty() {
                return Err(ApplyError::Conflicts(conflicts));
            }
            request.apply_once(live, config, managed, true)?
        }
        other => other?,
    };
    if request.manager == last_applied::KUBECTL {
        last_applied::refresh(&mut object, config);
    }
    managed.encode(&mut object);
    Ok(object)
}

/// Leaves the managers' times as they were if nothing else changed, so that nothing has to be written.
pub fn keep_times_if_unchanged(new: &mut Tree, old: &Tree) {
    fn entries(tree: &Tree) -> &[Value] {
        let entries = tree.get("metadata").and_then(|metadata| metadata.get("managedFields"));
        entries.and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }
    let (before, after) = (entries(old), entries(new));
    let same_entry = |(before, after): (&Value, &Value)| match (before, after) {
        (Value::Object(before), Value::Object(after)) => same_without("time", before, after),
        _ => before == after,
    };
    let same_entries = before.len() == after.len() && before.iter().zip(after).all(same_entry);
    if !same_entries || before == after {
        return;
    }
    let same_metadata = match (new.get("metadata"), old.get("metadata")) {
        (Some(Value::Object(new)), Some(Value::Object(old))) => same_without("managedFields", new, old),
        _ => false,
    };
    if same_metadata && same_without("metadata", new, old) {
        *new = old.clone();
    }
}

/// Whether two objects have the same members, one apart.
fn same_without(but: &str, a: &Tree, b: &Tree) -> bool {
    let rest = |tree: &Tree, other: &Tree| {
        tree.iter().all(|(key, value)| key == but || other.get(key) == Some(value))
    };
    rest(a, b) && rest(b, a)
}

impl<'a> Request<'a> {
    fn type_of_request(&self) -> Result<TypeRef<'a>, String> {
        let missing = || format!("no corresponding type for {}", show_kind(self.api_version, self.kind));
        self.versions.type_at(self.api_version).ok_or_else(missing)
    }

    /// An object with its type, if it fits it.
    fn typed<'o>(&self, tree: &'o Tree, duplicates: Duplicates) -> Result<Object<'o>, String>
    where
        'a: 'o,
    {
        let ty = self.type_of_request()?;
        validate_tree(ty, tree, duplicates).map_err(|mistakes| mistakes.to_string())?;
        Ok(Object::new(tree, ty, self.api_version))
    }

    fn updater(&self) -> Updater<'a> {
        Updater { versions: self.versions, filters: self.filters }
    }

    /// Who owns what after a write other than apply.
    fn update(&self, live: &Tree, new: &Tree, managed: Managed, manager: &str) -> Result<Managed, String> {
        let what = |which: &str, tree: &Tree, why: String| {
            format!("failed to convert {which} object ({}) to smd typed: {why}", describe(tree))
        };
        let typed_new = self.typed(new, Duplicates::Allowed).map_err(|why| what("new", new, why))?;
        let typed_live = self.typed(live, Duplicates::Allowed).map_err(|why| what("live", live, why))?;
        let fields = self
            .updater()
            .update(&typed_live, &typed_new, managed.fields, CURRENT_OPERATION)
            .map_err(|why| format!("failed to update ManagedFields ({}): {why}", describe(new)))?;
        let mut managed = Managed { fields, times: managed.times };
        strip_metadata(&mut managed.fields, CURRENT_OPERATION);
        // Only a write that changed something is remembered.
        if let Some(mut owned) = managed.fields.remove(CURRENT_OPERATION) {
            let identifier = self.identifier(manager, Operation::Update);
            if let Some(before) = managed.fields.remove(&identifier) {
                owned.set = owned.set.union(before.set);
            }
            managed.fields.insert(identifier.clone(), owned);
            managed.times.insert(identifier, Some(self.now.to_owned()));
        }
        managed.join_oldest(managers::MAX_UPDATERS);
        Ok(managed)
    }

    fn identifier(&self, manager: &str, operation: Operation) -> String {
        let manager = if manager.is_empty() { "unknown" } else { manager };
        Identifier::new(manager, operation, self.api_version, self.subresource).text()
    }

    /// What nobody owns yet is owned by whoever was there before the first apply.
    fn managed_by_somebody(&self, live: &Tree, managed: Managed) -> Result<Managed, ApplyError> {
        if !managed.fields.is_empty() {
            return Ok(managed);
        }
        self.update(self.empty, live, managed, BEFORE_FIRST_APPLY)
            .map_err(|why| ApplyError::Failed(format!("failed to create manager for existing fields: {why}")))
    }

    fn apply_once(
        &self,
        live: &Tree,
        config: &Tree,
        managed: Managed,
        force: bool,
    ) -> Result<(Tree, Managed), ApplyError> {
        if config
            .get("metadata")
            .and_then(|metadata| metadata.get("managedFields"))
            .is_some_and(Value::is_array)
        {
            return Err(ApplyError::BadRequest("metadata.managedFields must be nil".to_owned()));
        }
        let failed = |which: &str, tree: &Tree, why: String| {
            ApplyError::Failed(format!("failed to create typed {which} object ({}): {why}", describe(tree)))
        };
        let typed_config =
            self.typed(config, Duplicates::Refused).map_err(|why| failed("patch", config, why))?;
        let typed_live = self.typed(live, Duplicates::Allowed).map_err(|why| failed("live", live, why))?;
        let identifier = self.identifier(self.manager, Operation::Apply);
        let (object, fields) =
            self.updater().apply(&typed_live, &typed_config, managed.fields, &identifier, force)?;
        let mut managed = Managed { fields, times: managed.times };
        strip_metadata(&mut managed.fields, &identifier);
        let object = match object {
            Some(object) => {
                managed.times.insert(identifier, Some(self.now.to_owned()));
                object
            }
            None => live.clone(),
        };
        Ok((object, managed))
    }
}

/// Nobody owns what the server says about an object.
fn strip_metadata(managers: &mut Managers, manager: &str) {
    static NOBODYS: LazyLock<FieldSet> = LazyLock::new(nobodys);
    let Some(owned) = managers.remove(manager) else { return };
    let set = owned.set.difference(&NOBODYS);
    if !set.is_empty() {
        managers.insert(manager.to_owned(), Owned { set, ..owned });
    }
}

fn nobodys() -> FieldSet {
    const METADATA: [&str; 9] = [
        "name",
        "namespace",
        "creationTimestamp",
        "selfLink",
        "uid",
        "clusterName",
        "generation",
        "managedFields",
        "resourceVersion",
    ];
    let metadata = METADATA.map(|name| ["metadata", name]);
    let mut paths: Vec<&[&str]> = vec![&["apiVersion"], &["kind"], &["metadata"]];
    paths.extend(metadata.iter().map(|path| path.as_slice()));
    FieldSet::of_fields(&paths)
}

/// `default/web; apps/v1, Kind=Deployment`.
fn describe(tree: &Tree) -> String {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
    let metadata = |key: &str| text(tree.get("metadata").and_then(|metadata| metadata.get(key)));
    let kind = show_kind(&text(tree.get("apiVersion")), &text(tree.get("kind")));
    format!("{}/{}; {kind}", metadata("namespace"), metadata("name"))
}

/// `apps/v1, Kind=Deployment`, and `/v1, Kind=Pod`.
fn show_kind(api_version: &str, kind: &str) -> String {
    let slash = if api_version.contains('/') || api_version.is_empty() { "" } else { "/" };
    match api_version {
        "" => format!("/, Kind={kind}"),
        _ => format!("{slash}{api_version}, Kind={kind}"),
    }
}

/// A built-in kind that has one version.
#[derive(Clone, Copy, Debug)]
pub struct BuiltinVersion<'a> {
    pub api_version: &'a str,
    pub ty: TypeRef<'a>,
}

impl Versions for BuiltinVersion<'_> {
    fn type_at(&self, api_version: &str) -> Option<TypeRef<'_>> {
        (api_version == self.api_version).then_some(self.ty)
    }

    fn convert(&self, _: &Tree, api_version: &str) -> Result<Tree, String> {
        Err(format!("no conversion to {api_version}"))
    }
}

/// An object of a built-in type that nothing was said about: [`Request::empty`].
pub fn empty_object(message: &Message, api_version: &str, kind: &str) -> Tree {
    let mut value = json!({"apiVersion": api_version, "kind": kind});
    // An object without members fits every type.
    drop(conform(Types::builtin(), message, &mut value, Options::default()));
    match value {
        Value::Object(tree) => tree,
        _ => Tree::new(),
    }
}

#[cfg(test)]
mod tests;
