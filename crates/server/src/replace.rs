//! Putting one object in the place of another: what the request may not change is kept, what it changed is checked,
//! and the last finalizer's end is the object's.

use std::sync::Arc;

use machinery::{
    Draft, EventType, Object, apply::keep_times_if_unchanged, metadata, resource::Tree, status::Status,
};
use serde_json::{Value, json};
use store::{Change, Expect, Key, Write};

use crate::{
    addresses,
    admission::{self, Admission, Notes, Operation},
    context::Context,
    managers,
    metrics::{Stage, Stopwatch},
    space::Current,
    versions,
    write::{
        ATTEMPTS, Along, Managers, Written, check_finalizers, commit_one, encode, expiry, metadata_of,
        refusal, refuse_if_any, set_namespace, text,
    },
};

/// An object, and what is to take its place.
pub struct Replacement {
    pub old: Arc<Object>,
    /// What must hold in the store for `old` to be what is there.
    pub expect: Expect,
    /// Built-in kinds in the stored spelling, custom ones in the version of the request.
    pub new: Tree,
    pub managers: Managers,
}

/// Puts the new object in the place of the old one. `Ok(None)`: somebody was faster.
pub async fn replace(
    context: &Context,
    key: &Key,
    replacement: Replacement,
    dry_run: bool,
    watch: &mut Stopwatch<'_>,
) -> Result<Option<Written>, Status> {
    let Replacement { old, expect, mut new, managers } = replacement;
    let old_tree = old.tree().map_err(Status::internal)?;
    let mut doubled = metadata::drop_doubled_owners(metadata_of(&mut new));
    // Whoever writes to a scale is known already: it is not the object itself that was sent.
    if managers != Managers::Tracked && context.scale().is_none() {
        context.resource.fill_defaults(&mut new);
        watch.lap(Stage::Prepare);
        managers::track(context, Some(&old_tree), &mut new, managers == Managers::Reset).await;
        watch.lap(Stage::Track);
    }
    let name = old.head.name.as_str();
    let mut notes = Notes::default();
    let admission = Admission::new(context, Operation::Update, name, Some(&old_tree), dry_run);
    admission::mutate(&admission, Some(&mut new), &mut notes).await?;
    watch.lap(Stage::Admit);
    set_namespace(context, &mut new)?;
    doubled = doubled.or(metadata::drop_doubled_owners_after_admission(metadata_of(&mut new)));
    prepare_replacement(context, &mut new, &old_tree)?;
    let allocated = addresses::allocate(context, name, &mut new, Some(&old_tree), dry_run);
    let mut along = allocated.map_err(|causes| refusal(context, name, causes))?;
    watch.lap(Stage::Prepare);
    let revision = json!(old.revision.to_string());
    metadata_of(&mut new).insert("resourceVersion".into(), revision);
    let empty = Tree::new();
    let old_metadata = old_tree.get("metadata").and_then(Value::as_object).unwrap_or(&empty);
    let mut causes = metadata::validate_update(metadata_of(&mut new), old_metadata);
    causes.extend(check_finalizers(context, metadata_of(&mut new)));
    let findings = context.resource.check(&mut new, Some(&old_tree), &context.target.subresource);
    causes.extend(findings.causes);
    admission::check_grants(context, name, &new, Some(&old_tree))?;
    refuse_if_any(context, text(metadata_of(&mut new), "name"), causes)?;
    count_generation(context, &mut new, &old_tree);
    keep_times_if_unchanged(&mut new, &old_tree);
    let mut warnings = context.resource.warnings(&new, Some(&old_tree));
    warnings.extend(findings.warnings.into_iter().chain(doubled));
    watch.lap(Stage::Check);
    let mut admitted = Along::default();
    admission::validate(&admission, Some(&new), &mut admitted, &mut notes).await?;
    warnings.append(&mut notes.warnings);
    watch.lap(Stage::Admit);
    if new == old_tree {
        // Nothing changed: no new revision, no event.
        return Ok(Some(Written { object: old, created: false, warnings }));
    }
    let stored = versions::to_stored(context, &new).await?;
    let draft = encode(context, &stored)?;
    watch.lap(Stage::Encode);
    if dry_run {
        let object = Arc::new(draft.seal(old.revision, EventType::Modified));
        return Ok(Some(Written { object, created: false, warnings }));
    }
    let finished = is_finished(context, &draft, &new);
    let change = match finished {
        true => removal(context, key, &old),
        false => Change::Put { draft: draft.clone(), expires: expiry(context, &new) },
    };
    let write = Write { key: key.clone(), expect, change };
    if finished {
        along = addresses::release(context, &old)?;
    }
    along.add(admitted);
    along.guards.extend(versions::guard(&context.resource));
    let committed = commit_one(context, along, write).await?;
    watch.lap(Stage::Commit);
    Ok(committed.map(|committed| {
        // The last finalizer went: the client sees the object as it was at the end.
        let object = match finished {
            true => Arc::new(draft.seal(old.revision, EventType::Deleted)),
            false => committed.object,
        };
        Written { object, created: false, warnings }
    }))
}

/// Nothing holds an object that is being deleted any more.
fn is_finished(context: &Context, draft: &Draft, tree: &Tree) -> bool {
    let held_by_spec = context.resource.held_by_spec(tree);
    let grace = tree.get("metadata").and_then(|metadata| metadata.get("deletionGracePeriodSeconds"));
    let in_grace = grace.and_then(Value::as_i64).is_some_and(|seconds| seconds > 0);
    draft.head().deleting && draft.head().finalizers.is_empty() && !held_by_spec && !in_grace
}

/// What removing `old` means in the store: an object of the shared base leaves a whiteout.
pub fn removal(context: &Context, key: &Key, old: &Object) -> Change {
    match crate::base::whiteout(old).filter(|_| context.space.in_base(key)) {
        Some(draft) => Change::Put { draft, expires: None },
        None => Change::Remove,
    }
}

/// Keeps what this request may not change.
fn prepare_replacement(context: &Context, new: &mut Tree, old: &Tree) -> Result<(), Status> {
    let resource = &context.resource;
    match context.target.subresource.as_str() {
        "" => {
            if resource.has_status() {
                keep(new, old, "status");
            }
            (resource.row.prepare_update)(new, old);
        }
        name => match resource.subresource(name) {
            Some(subresource) => {
                (subresource.prepare)(new, old);
                stamp(context, new, subresource.stamped);
            }
            None => return Err(Status::internal(format!("no such subresource: {name}"))),
        },
    }
    resource.fill_defaults(new);
    (resource.row.stamp)(new, Some(old), &context.hub.now_text());
    let old_metadata = old.get("metadata").and_then(Value::as_object);
    let metadata = metadata_of(new);
    metadata.remove("selfLink");
    for key in ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation"] {
        let given = metadata.get(key).is_some_and(|value| !value.is_null());
        let was = old_metadata.is_some_and(|old| old.contains_key(key));
        // Left out means "as it was". What the server alone sets is set back; other changes validation refuses.
        let ours = matches!(key, "generation" | "creationTimestamp") || (key.starts_with("deletion") && was);
        if !given || ours {
            set(metadata, key, old_metadata.and_then(|old| old.get(key)).cloned());
        }
    }
    Ok(())
}

/// Gives the time of the request to the conditions that lack one.
fn stamp(context: &Context, tree: &mut Tree, members: &[&str]) {
    let conditions = tree.get_mut("status").and_then(|status| status.get_mut("conditions"));
    for condition in conditions.and_then(Value::as_array_mut).into_iter().flatten() {
        let Some(condition) = condition.as_object_mut() else { continue };
        for member in members {
            if condition.get(*member).is_none_or(Value::is_null) {
                condition.insert((*member).to_owned(), json!(context.hub.now_text()));
            }
        }
    }
}

fn set(tree: &mut Tree, key: &str, value: Option<Value>) {
    match value {
        Some(value) => tree.insert(key.into(), value),
        None => tree.remove(key),
    };
}

fn keep(new: &mut Tree, old: &Tree, key: &str) {
    set(new, key, old.get(key).cloned());
}

/// `generation` counts the changes of everything but metadata and status.
fn count_generation(context: &Context, new: &mut Tree, old: &Tree) {
    let metadata = |tree: &Tree, key: &str| tree.get("metadata").and_then(|it| it.get(key)).cloned();
    let row = &context.resource.row;
    let first = Some(0).filter(|_| row.first_generation == 0);
    let was = metadata(old, "generation").and_then(|it| it.as_i64()).or(first);
    let Some(generation) = was.filter(|_| row.generation) else { return };
    let counted = |key: &&String| !matches!(key.as_str(), "metadata" | "status" | "apiVersion" | "kind");
    let changed = || new.keys().chain(old.keys()).filter(counted).any(|key| new.get(key) != old.get(key));
    let annotated =
        row.generation_counts_annotations && metadata(new, "annotations") != metadata(old, "annotations");
    let counts = match row.counts_generation {
        Some(counts) => counts(new, old),
        None => annotated || changed(),
    };
    if counts {
        metadata_of(new).insert("generation".into(), json!(generation + 1));
    }
}

/// A change by the hub itself to the object at `key` that has `uid`; nothing if that one is gone. What the change
/// leaves of an object that is being deleted may be nothing at all.
pub async fn edit(context: &Context, key: &Key, uid: &str, change: impl Fn(&mut Tree)) -> Result<(), Status> {
    let changed = try_edit(context, key, uid, |_, tree| {
        change(tree);
        Ok(())
    });
    changed.await
}

/// The same, by a change that may refuse; it sees the object as it is now.
pub async fn try_edit(
    context: &Context,
    key: &Key,
    uid: &str,
    change: impl Fn(&Object, &mut Tree) -> Result<(), Status>,
) -> Result<(), Status> {
    for _ in 0..ATTEMPTS {
        let Current { object, expect } = context.space.current(key);
        let Some(old) = object.filter(|object| object.head.uid == uid) else { return Ok(()) };
        let before = old.tree().map_err(Status::internal)?;
        let mut tree = before.clone();
        change(&old, &mut tree)?;
        let draft = encode(context, &tree)?;
        let finished = is_finished(context, &draft, &tree);
        if tree == before && !finished {
            return Ok(());
        }
        let change = match finished {
            true => removal(context, key, &old),
            false => Change::Put { draft, expires: expiry(context, &tree) },
        };
        let write = Write { key: key.clone(), expect, change };
        let along = match finished {
            true => addresses::release(context, &old)?,
            false => Along::default(),
        };
        if commit_one(context, along, write).await?.is_some() {
            return Ok(());
        }
    }
    Err(Status::modified(context.about(key.item.name())))
}
