//! Deleting one object or many: finalizers, preconditions, and what becomes of dependents.

use std::sync::Arc;

use bytes::Bytes;
use http::{Response, StatusCode};
use jiff::{SignedDuration, Timestamp};
use machinery::{
    Draft, EventType, Object, Revision,
    field_error::Cause,
    resource::Tree,
    status::{self, About, Status},
};
use serde_json::{Value, json};
use store::{Change, Key, Write};

use crate::{
    addresses,
    admission::{self, Admission, Notes, Operation},
    body::{self, Body},
    context::Context,
    decode,
    hub::{seconds_text, store_refusal},
    options::ListOptions,
    read,
    replace::removal,
    selection::Selection,
    space::Current,
    views,
    write::{Along, commit_one, expiry},
};

pub const ORPHAN: &str = "orphan";
pub const FOREGROUND: &str = "foregroundDeletion";
const ATTEMPTS: usize = 8;

/// What becomes of the objects that belong to a deleted one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// They go afterwards.
    Background,
    /// They go first.
    Foreground,
    /// They stay, and belong to nobody.
    Orphan,
}

/// `DeleteOptions`, from the body or the query.
#[derive(Clone, Debug, Default)]
pub struct Options {
    pub propagation: Option<Propagation>,
    pub orphan_dependents: Option<bool>,
    pub uid: Option<String>,
    pub revision: Option<String>,
    pub grace_seconds: Option<i64>,
    pub dry_run: bool,
    /// Nobody is asked: the deletion is part of something that was admitted.
    pub admitted: bool,
    /// All of it, as it was sent.
    pub sent: Tree,
}

impl Options {
    pub fn read(context: &Context, bytes: &Bytes) -> Result<Options, Status> {
        let mut tree = match bytes.is_empty() {
            true => Tree::new(),
            false => decode::options(context, bytes, "DeleteOptions")?,
        };
        for key in ["propagationPolicy", "orphanDependents", "gracePeriodSeconds"] {
            if let Some(text) = context.query.get(key).filter(|_| bytes.is_empty()) {
                let value = match key {
                    "orphanDependents" => json!(!matches!(text, "false" | "0")),
                    "gracePeriodSeconds" => match text.parse::<i64>() {
                        Ok(seconds) => json!(seconds),
                        Err(_) => {
                            return Err(Status::bad_request(format!("invalid gracePeriodSeconds: {text:?}")));
                        }
                    },
                    _ => json!(text),
                };
                tree.insert(key.into(), value);
            }
        }
        Options::check(context, &tree)
    }

    pub fn check(context: &Context, tree: &Tree) -> Result<Options, Status> {
        let mut causes = Vec::new();
        let orphan_dependents = tree.get("orphanDependents").and_then(Value::as_bool);
        let policy = tree.get("propagationPolicy").and_then(Value::as_str).filter(|text| !text.is_empty());
        let propagation = match policy {
            None => None,
            Some("Background") => Some(Propagation::Background),
            Some("Foreground") => Some(Propagation::Foreground),
            Some("Orphan") => Some(Propagation::Orphan),
            Some(other) => {
                let valid = ["Foreground", "Background", "Orphan", "nil"];
                causes.push(Cause::not_supported("propagationPolicy", &json!(other), &valid));
                None
            }
        };
        if policy.is_some() && orphan_dependents.is_some() {
            causes.push(Cause::invalid(
                "propagationPolicy",
                &json!(policy),
                "orphanDependents and deletionPropagation cannot be both set",
            ));
        }
        let mut dry_run = context.dry_run()?;
        for value in tree.get("dryRun").and_then(Value::as_array).into_iter().flatten() {
            match value.as_str() {
                Some("All") => dry_run = true,
                _ => causes.push(Cause::not_supported("dryRun", value, &["All"])),
            }
        }
        if !causes.is_empty() {
            return Err(Status::invalid("meta.k8s.io", "DeleteOptions", "", causes));
        }
        let precondition = |key: &str| {
            let value = tree.get("preconditions")?.get(key)?.as_str()?;
            Some(value.to_owned())
        };
        Ok(Options {
            propagation,
            orphan_dependents,
            uid: precondition("uid"),
            revision: precondition("resourceVersion"),
            // Negative is as short as can be, as upstream has it.
            grace_seconds: tree
                .get("gracePeriodSeconds")
                .and_then(Value::as_i64)
                .map(|seconds| if seconds < 0 { 1 } else { seconds }),
            dry_run,
            admitted: false,
            sent: tree.clone(),
        })
    }

    pub fn check_preconditions(&self, context: &Context, object: &Object) -> Result<(), Status> {
        // Upstream names the kind here, not the resource.
        let about = About { resource: &context.resource.kind, ..context.about(&object.head.name) };
        if let Some(uid) = self.uid.as_ref().filter(|uid| **uid != object.head.uid) {
            let why = format!(
                "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have \
                 been deleted and then recreated",
                object.head.uid
            );
            return Err(Status::conflict(about, &why));
        }
        if let Some(revision) =
            self.revision.as_ref().filter(|it| Revision::parse(it) != Some(object.revision))
        {
            let why = format!(
                "the ResourceVersion in the precondition ({revision}) does not match the ResourceVersion in record \
                 ({}). The object might have been modified",
                object.revision
            );
            return Err(Status::conflict(about, &why));
        }
        Ok(())
    }

    /// The finalizers an object has once these options are applied to it.
    fn finalizers(&self, now: &[String], orphans_by_default: impl FnOnce() -> bool) -> Vec<String> {
        let has = |name: &str| now.iter().any(|it| it == name);
        let (orphan, foreground) = match (self.propagation, self.orphan_dependents) {
            (Some(Propagation::Orphan), _) | (None, Some(true)) => (true, false),
            (Some(Propagation::Foreground), _) => (false, true),
            (Some(Propagation::Background), _) | (None, Some(false)) => (false, false),
            // Nothing said: what was decided before stays.
            (None, None) if has(ORPHAN) || has(FOREGROUND) => (has(ORPHAN), has(FOREGROUND)),
            (None, None) => (orphans_by_default(), false),
        };
        let others = now.iter().filter(|it| *it != ORPHAN && *it != FOREGROUND);
        let mut finalizers: Vec<String> = others.cloned().collect();
        finalizers.extend(orphan.then(|| ORPHAN.to_owned()));
        finalizers.extend(foreground.then(|| FOREGROUND.to_owned()));
        finalizers
    }

    fn wants_accepted(&self) -> bool {
        self.orphan_dependents == Some(false)
    }
}

/// What a deletion came to.
pub enum Outcome {
    /// Nothing is left; the last state, at the revision of the removal.
    Gone(Arc<Object>),
    /// Something still holds it.
    Held(Arc<Object>),
}

pub async fn delete(context: &Context, bytes: Bytes) -> Result<Response<Body>, Status> {
    let options = Options::read(context, &bytes)?;
    let name = &context.target.name;
    let presenter = context.presenter()?;
    if let Some(why) = (context.resource.row.undeletable)(name) {
        return Err(Status::forbidden(context.about(name), why));
    }
    let mut notes = Notes::default();
    let outcome = delete_one(context, &context.key(name), &options, &mut notes).await?;
    let mut response = match outcome {
        Outcome::Gone(object) if context.resource.row.returns_deleted => {
            body::encoded(StatusCode::OK, presenter.one(&object))
        }
        Outcome::Gone(object) => {
            let success = status::success(context.about(name), &object.head.uid);
            body::json(StatusCode::OK, &success)
        }
        Outcome::Held(object) => {
            let code = if options.wants_accepted() { StatusCode::ACCEPTED } else { StatusCode::OK };
            body::encoded(code, presenter.one(&object))
        }
    };
    notes.tell(&mut response);
    Ok(response)
}

pub async fn delete_one(
    context: &Context,
    key: &Key,
    options: &Options,
    notes: &mut Notes,
) -> Result<Outcome, Status> {
    let name = key.item.name();
    for _ in 0..ATTEMPTS {
        let Current { object, expect } = context.current(key);
        let object = object.ok_or_else(|| Status::not_found(context.about(name)))?;
        options.check_preconditions(context, &object)?;
        refuse_protected(context, key)?;
        let tree = object.tree().map_err(Status::internal)?;
        let mut along = admit(context, &object, &tree, options, notes).await?;
        let (change, held) = match marked(context, &object, tree, options)? {
            Marked::Free => (removal(context, key, &object), None),
            Marked::AlreadySo => return Ok(Outcome::Held(object)),
            Marked::Changed(draft) => {
                (Change::Put { draft: draft.clone(), expires: expiry(context, &Tree::new()) }, Some(draft))
            }
        };
        if options.dry_run {
            return Ok(match held {
                Some(draft) => Outcome::Held(Arc::new(draft.seal(object.revision, EventType::Modified))),
                None => Outcome::Gone(object),
            });
        }
        let write = Write { key: key.clone(), expect, change };
        if held.is_none() {
            along.add(addresses::release(context, &object)?);
        }
        if let Some(committed) = commit_one(context, along, write).await? {
            let last = Arc::new(object.with_revision(committed.revision, EventType::Deleted));
            return Ok(match held {
                Some(_) => Outcome::Held(committed.object),
                None => Outcome::Gone(last),
            });
        }
    }
    Err(Status::modified(context.about(name)))
}

async fn admit(
    context: &Context,
    object: &Object,
    tree: &Tree,
    options: &Options,
    notes: &mut Notes,
) -> Result<Along, Status> {
    let mut along = Along::default();
    if !options.admitted {
        let name = &object.head.name;
        let mut admission = Admission::new(context, Operation::Delete, name, Some(tree), options.dry_run);
        admission.delete_options = Some(&options.sent);
        admission::mutate(&admission, None, notes).await?;
        admission::validate(&admission, None, &mut along, notes).await?;
    }
    Ok(along)
}

/// What every workspace has cannot go.
fn refuse_protected(context: &Context, key: &Key) -> Result<(), Status> {
    let name = key.item.name();
    match (context.resource.row.undeletable)(name) {
        Some(why) => Err(Status::forbidden(context.about(name), why)),
        None => Ok(()),
    }
}

enum Marked {
    /// Nothing holds it.
    Free,
    /// It is marked already, and the options change nothing.
    AlreadySo,
    Changed(Draft),
}

/// Whether it is placed as by federation v1, by its annotations or by a Placement that divides so: as there, its copies
/// stay unless it is said otherwise.
fn is_of_federation(context: &Context, object: &Object, tree: &Tree) -> bool {
    let kind = tree.get("kind").and_then(Value::as_str).unwrap_or_default();
    let annotations = tree.get("metadata").and_then(|it| it.get("annotations")).and_then(Value::as_object);
    let is_annotated = annotations
        .is_some_and(|it| placement::dialect::decides(kind, |name| it.get(name).and_then(Value::as_str)));
    is_annotated || is_placed_so(context, object)
}

fn is_placed_so(context: &Context, object: &Object) -> bool {
    let collection = context.collection();
    let (group, plural) = collection.parts();
    // Federation had no pods: one that is deleted here must not run on there.
    if (group, plural) == ("", "pods") {
        return false;
    }
    let name = api::assignment::name_of(group, plural, &object.head.name);
    let key = Key::new(api::GROUP, api::assignment::PLURAL, &object.head.namespace, &name);
    let Some(stored) = context.space.get(&key) else { return false };
    context.hub.assignments.read(&stored).is_ok_and(|assignment| {
        let decision = &assignment.spec.decision;
        let divides_so = decision.algorithm == Some(api::assignment::Algorithm::Federation);
        placement::dialect::is_of_the_first(&decision.policy, divides_so)
    })
}

/// The object marked for deletion, if something holds it.
fn marked(context: &Context, object: &Object, before: Tree, options: &Options) -> Result<Marked, Status> {
    let mut tree = before.clone();
    let row = &context.resource.row;
    if let Some(mark) = row.mark_deleted.filter(|_| !object.head.deleting) {
        mark(&mut tree, &context.hub.now_text());
    }
    let held = tree.get("metadata").and_then(|it| it.get("finalizers")).and_then(Value::as_array);
    let held: Vec<String> =
        held.into_iter().flatten().filter_map(|it| it.as_str().map(str::to_owned)).collect();
    let finalizers =
        options.finalizers(&held, || row.orphans_by_default || is_of_federation(context, object, &tree));
    let held_by_spec = context.resource.held_by_spec(&tree);
    let grace = grace_left(context, &tree, object, options);
    if finalizers.is_empty() && !held_by_spec && grace == 0 {
        return Ok(Marked::Free);
    }
    if let Some(metadata) = tree.get_mut("metadata").and_then(Value::as_object_mut) {
        if finalizers.is_empty() {
            metadata.remove("finalizers");
        } else {
            metadata.insert("finalizers".into(), json!(finalizers));
        }
        let granted = metadata.get("deletionGracePeriodSeconds").and_then(Value::as_i64);
        if let Some(granted) = granted.filter(|granted| object.head.deleting && *granted > grace) {
            // Only ever sooner than it was.
            let end = text_time(metadata.get("deletionTimestamp"));
            let end = end.map_or(context.hub.now(), |end| later(end, grace - granted));
            metadata.insert("deletionTimestamp".into(), json!(seconds_text(end)));
            metadata.insert("deletionGracePeriodSeconds".into(), json!(grace));
        }
        if !object.head.deleting {
            let end = later(context.hub.now(), grace);
            metadata.insert("deletionTimestamp".into(), json!(seconds_text(end)));
            if !held_by_spec {
                metadata.insert("deletionGracePeriodSeconds".into(), json!(grace));
            }
            if object.head.generation > 0 {
                metadata.insert("generation".into(), json!(object.head.generation + 1));
            }
        }
    }
    if held_by_spec {
        // A namespace says in words that it is on its way out.
        let status = tree.entry("status").or_insert_with(|| json!({}));
        status["phase"] = json!("Terminating");
    } else {
        context.resource.fill_defaults(&mut tree);
    }
    if tree == before {
        return Ok(Marked::AlreadySo);
    }
    Draft::encode(&tree).map(Marked::Changed).map_err(Status::internal)
}

/// The seconds that an object still has to end by itself: those it is given now, or what is left when a second
/// deletion gives it fewer.
fn grace_left(context: &Context, tree: &Tree, object: &Object, options: &Options) -> i64 {
    let Some(grace) = context.resource.row.grace else { return 0 };
    if !object.head.deleting {
        return grace(tree, options.grace_seconds).max(0);
    }
    let granted = tree.get("metadata").and_then(|metadata| metadata.get("deletionGracePeriodSeconds"));
    let granted = granted.and_then(Value::as_i64).unwrap_or(0);
    options.grace_seconds.map_or(granted, |asked| asked.min(granted))
}

fn text_time(value: Option<&Value>) -> Option<Timestamp> {
    value.and_then(Value::as_str)?.parse().ok()
}

fn later(time: Timestamp, seconds: i64) -> Timestamp {
    time.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(time)
}

/// Deletes every selected object; those that went, or are on their way, come back as a list.
pub async fn delete_collection(context: &Context, bytes: Bytes) -> Result<Response<Body>, Status> {
    let options = Options::read(context, &bytes)?;
    let list_options = ListOptions::read(&context.query, false)?;
    let selection = Selection::new(list_options.labels, list_options.fields, &context.resource)?;
    let presenter = context.presenter()?;
    let mut notes = Notes { warnings: context.sight()? };
    let listing = context.list(None).map_err(store_refusal)?;
    let namespace = Some(context.target.namespace.as_str()).filter(|namespace| !namespace.is_empty());
    let selected: Vec<Arc<Object>> = listing
        .iter(namespace, None)
        .filter(|(_, object)| selection.matches(object))
        .map(|(_, object)| object.clone())
        .collect();
    let mut deleted = Vec::with_capacity(selected.len());
    for object in selected {
        let key = Key {
            collection: context.collection(),
            item: store::ItemKey::new(&object.head.namespace, &object.head.name),
        };
        let outcome = match Box::pin(views::deleted(context, &key, &options, &mut notes)).await {
            Some(outcome) => outcome,
            None => delete_one(context, &key, &options, &mut notes).await.map(|_| ()),
        };
        match outcome {
            Ok(()) => deleted.push(object),
            // Somebody else was faster: it is gone, which is what was asked for.
            Err(status) if status.code() == 404 => {}
            Err(status) => return Err(status),
        }
    }
    let meta = json!({"resourceVersion": listing.revision.to_string()});
    let mut response = body::encoded(StatusCode::OK, read::whole_list(&presenter, &meta, &deleted));
    notes.tell(&mut response);
    Ok(response)
}
