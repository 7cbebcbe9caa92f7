//! Creating, replacing and patching objects.
//!
//! ```text
//!   decode ──> mutate ──> prepare ──> default ──> validate ──> admit ──> commit
//!                         what only the server sets                      compare-and-set, tried again when somebody
//!                                                                        was faster
//! ```

use std::sync::Arc;

use bytes::Bytes;
use http::{Response, StatusCode};
use jiff::{SignedDuration, Timestamp};
use machinery::{
    Draft, Object, Revision,
    field_error::Cause,
    metadata, names,
    resource::Tree,
    status::{Reason, Status},
};
use serde_json::{Value, json};
use store::{Change, Commit, Committed, Error, Expect, Key, Write};

use crate::{
    addresses,
    admission::{
        self, Admission, Notes, Operation,
        quota::{self, Charge},
    },
    apply,
    body::{self, Body},
    context::Context,
    decode::{self, Decoded},
    delete,
    hub::{Hub, store_refusal},
    managers,
    metrics::{Limit, Stage, Stopwatch},
    negotiate::{self, PatchKind},
    patch,
    replace::{Replacement, replace},
    space::Current,
    versions,
};

/// How often a write is tried against a newer object before the client is told.
pub const ATTEMPTS: usize = 8;

/// What a write came to.
pub struct Written {
    pub object: Arc<Object>,
    pub created: bool,
    /// What its author should know though it was accepted.
    pub warnings: Vec<String>,
}

pub async fn respond(
    context: &Context,
    written: &Written,
    warnings: &[String],
) -> Result<Response<Body>, Status> {
    let code = if written.created { StatusCode::CREATED } else { StatusCode::OK };
    let object =
        versions::bring(&context.hub, context.space.id(), &context.resource, written.object.clone()).await?;
    let mut response = body::encoded(code, context.present(&object)?);
    body::warn_once(&mut response, warnings.iter().chain(&written.warnings));
    Ok(response)
}

pub async fn create(context: &Context, bytes: Bytes) -> Result<Response<Body>, Status> {
    context.presenter()?;
    let dry_run = check_options(context, "CreateOptions", false)?;
    let mut watch = context.stopwatch();
    let Decoded { tree, warnings, .. } = decode::object(context, &bytes)?;
    watch.lap(Stage::Decode);
    let written = create_tree(context, tree, Managers::Track, dry_run, &mut watch).await?;
    respond(context, &written, &warnings).await
}

/// What is known of who set which field of an object that is about to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Managers {
    /// The object says it already.
    Tracked,
    /// To be found out by comparing it with what is there.
    Track,
    /// The same, and everything that is known so far is forgotten.
    Reset,
}

impl Managers {
    fn of(resets: bool) -> Self {
        if resets { Managers::Reset } else { Managers::Track }
    }
}

/// What may be asked of every write; true if it is only to be tried.
pub fn check_options(context: &Context, kind: &str, applies: bool) -> Result<bool, Status> {
    let manager = context.query.get("fieldManager").unwrap_or_default();
    let mut causes = metadata::field_manager(manager, "fieldManager");
    if applies && manager.is_empty() {
        causes.push(Cause::required("fieldManager", "is required for apply patch"));
    }
    if kind == "PatchOptions" && !applies && context.query.get("force").is_some() {
        causes.push(Cause::forbidden("force", "may not be specified for non-apply patch"));
    }
    if !causes.is_empty() {
        return Err(Status::invalid("meta.k8s.io", kind, "", causes));
    }
    context.dry_run()
}

/// Makes a new object of `tree`, in the spelling of the request's version.
pub async fn create_tree(
    context: &Context,
    mut tree: Tree,
    managers: Managers,
    dry_run: bool,
    watch: &mut Stopwatch<'_>,
) -> Result<Written, Status> {
    let resource = &context.resource;
    if resource.custom().is_some_and(|custom| custom.terminating) {
        let message = "create not allowed while custom resource definition is terminating";
        return Err(Status::new(Reason::MethodNotAllowed, message).about(context.about("")));
    }
    if !matches!(text(metadata_of(&mut tree), "resourceVersion"), "" | "0") {
        return Err(Status::bad_request("resourceVersion should not be set on objects to be created"));
    }
    set_namespace(context, &mut tree)?;
    resource.to_storage(&mut tree);
    forget_what_only_the_server_sets(&mut tree);
    let mut doubled = metadata::drop_doubled_owners(metadata_of(&mut tree));
    if managers != Managers::Tracked {
        resource.fill_defaults(&mut tree);
        watch.lap(Stage::Prepare);
        managers::track(context, None, &mut tree, managers == Managers::Reset).await;
        watch.lap(Stage::Track);
    }
    let mut notes = Notes::default();
    let asked = text(metadata_of(&mut tree), "name").to_owned();
    let admission = Admission::new(context, Operation::Create, &asked, None, dry_run);
    admission::mutate(&admission, Some(&mut tree), &mut notes).await?;
    watch.lap(Stage::Admit);
    // Whoever changed the object may not have changed where it is, nor what only the server says.
    set_namespace(context, &mut tree)?;
    forget_what_only_the_server_sets(&mut tree);
    doubled = doubled.or(metadata::drop_doubled_owners_after_admission(metadata_of(&mut tree)));
    if resource.has_status() && !resource.row.status_on_create {
        tree.remove("status");
    }
    let generate = generate_prefix(&tree);
    prepare_new(context, &mut tree);
    // Names and addresses that were not free are chosen anew.
    let as_asked = (generate.is_some() || resource.row.takes_addresses).then(|| tree.clone());
    for attempt in 1..=ATTEMPTS {
        if let Some(as_asked) = as_asked.as_ref().filter(|_| attempt > 1) {
            tree.clone_from(as_asked);
        }
        if let Some(prefix) = &generate {
            let mut random = [0; 8];
            context.hub.env.random.fill(&mut random);
            metadata_of(&mut tree).insert("name".into(), json!(names::generate_name(prefix, random)));
        }
        (resource.row.prepare_create)(&mut tree);
        if let Some(sign) = resource.row.sign {
            sign(&mut tree, &context.user.as_author());
        }
        resource.fill_defaults(&mut tree);
        (resource.row.stamp)(&mut tree, None, &context.hub.now_text());
        let name = text(metadata_of(&mut tree), "name").to_owned();
        let allocated = addresses::allocate(context, &name, &mut tree, None, dry_run);
        watch.lap(Stage::Prepare);
        let mut causes =
            metadata::validate_create(metadata_of(&mut tree), resource.namespaced, resource.row.name_rule);
        causes.extend(check_finalizers(context, metadata_of(&mut tree)));
        let findings = resource.check(&mut tree, None, "");
        causes.extend(findings.causes);
        admission::check_grants(context, &name, &tree, None)?;
        refuse_if_any(context, &name, causes)?;
        let mut along = allocated.map_err(|causes| refusal(context, &name, causes))?;
        watch.lap(Stage::Check);
        // Upstream goes on with the name that was asked for, if one was.
        let admission = Admission { name: if asked.is_empty() { &name } else { &asked }, ..admission };
        admission::validate(&admission, Some(&tree), &mut along, &mut notes).await?;
        watch.lap(Stage::Admit);
        along.guards.extend(versions::guard(resource));
        let key = context.key(&name);
        let Current { object, expect } = context.current(&key);
        if let Some(object) = object {
            if generate.is_some() && attempt < ATTEMPTS {
                continue;
            }
            return Err(exists(context, &name, generate.is_some(), object.head.deleting));
        }
        let mut warnings = resource.warnings(&tree, None);
        warnings.extend(findings.warnings.into_iter().chain(doubled.clone()));
        warnings.append(&mut notes.warnings);
        watch.lap(Stage::Check);
        let stored = versions::to_stored(context, &tree).await?;
        let draft = encode(context, &stored)?;
        watch.lap(Stage::Encode);
        if dry_run {
            return Ok(Written { object: Arc::new(draft.preview()), created: true, warnings });
        }
        let change = Change::Put { draft, expires: expiry(context, &tree) };
        // `None`: somebody made it, or the namespace changed; look again.
        let committed = commit_one(context, along, Write { key, expect, change }).await?;
        watch.lap(Stage::Commit);
        if let Some(committed) = committed {
            return Ok(Written { object: committed.object, created: true, warnings });
        }
    }
    let message = format!("the namespace {:?} keeps changing; try again", context.target.namespace);
    Err(Status::new(Reason::ServiceUnavailable, message).retry_after(1))
}

fn exists(context: &Context, name: &str, generated: bool, deleting: bool) -> Status {
    if generated {
        let message = format!("unable to find a free name like {name:?}; try again");
        return Status::new(Reason::AlreadyExists, message).about(context.about(name)).retry_after(1);
    }
    if deleting {
        let about = context.about(name);
        let message = format!("object is being deleted: {} \"{name}\" already exists", about.qualified());
        return Status::new(Reason::AlreadyExists, message).about(about);
    }
    Status::already_exists(context.about(name))
}

/// A finalizer is somebody's: its name has a domain, unless it is the API's own.
pub fn check_finalizers(context: &Context, metadata: &Tree) -> Vec<Cause> {
    let finalizers = metadata.get("finalizers").and_then(Value::as_array).into_iter().flatten();
    let named = finalizers.enumerate().filter_map(|(at, name)| Some((at, name.as_str()?)));
    let unqualified = named.filter(|(_, name)| {
        context.resource.row.qualified_finalizers
            && !name.contains('/')
            && !matches!(*name, "kubernetes" | delete::ORPHAN | delete::FOREGROUND)
    });
    let detail = "name is neither a standard finalizer name nor is it fully qualified";
    unqualified
        .map(|(at, name)| Cause::invalid(format!("metadata.finalizers[{at}]"), &json!(name), detail))
        .collect()
}

pub fn text<'a>(tree: &'a Tree, key: &str) -> &'a str {
    tree.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// `metadata`, made if it is not there.
pub fn metadata_of(tree: &mut Tree) -> &mut Tree {
    let value = tree.entry("metadata").or_insert_with(|| json!({}));
    if !value.is_object() {
        *value = json!({});
    }
    match value {
        Value::Object(metadata) => metadata,
        _ => unreachable!("just made an object"),
    }
}

fn generate_prefix(tree: &Tree) -> Option<String> {
    let metadata = tree.get("metadata")?.as_object()?;
    let prefix = text(metadata, "generateName");
    (text(metadata, "name").is_empty() && !prefix.is_empty()).then(|| prefix.to_owned())
}

/// The namespace of the URL is the object's, and the object may not say otherwise.
pub fn set_namespace(context: &Context, tree: &mut Tree) -> Result<(), Status> {
    let wanted = &context.target.namespace;
    let metadata = metadata_of(tree);
    let given = text(metadata, "namespace");
    if !context.resource.namespaced {
        metadata.remove("namespace");
        return Ok(());
    }
    if !given.is_empty() && given != wanted {
        return Err(Status::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    metadata.insert("namespace".into(), json!(wanted));
    Ok(())
}

fn forget_what_only_the_server_sets(tree: &mut Tree) {
    let metadata = metadata_of(tree);
    for key in ["resourceVersion", "selfLink", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        metadata.remove(key);
    }
}

/// What only the server decides about a new object.
fn prepare_new(context: &Context, tree: &mut Tree) {
    let generation = context.resource.row.generation;
    let metadata = metadata_of(tree);
    metadata.insert("uid".into(), json!(context.hub.new_uid()));
    metadata.insert("creationTimestamp".into(), json!(context.hub.now_text()));
    if generation && context.resource.row.first_generation != 0 {
        metadata.insert("generation".into(), json!(context.resource.row.first_generation));
    }
}

pub fn refuse_if_any(context: &Context, name: &str, causes: Vec<Cause>) -> Result<(), Status> {
    if causes.is_empty() { Ok(()) } else { Err(refusal(context, name, causes)) }
}

pub fn refusal(context: &Context, name: &str, causes: Vec<Cause>) -> Status {
    Status::invalid(&context.resource.stored_group, &context.resource.kind, name, causes)
}

pub fn encode(context: &Context, tree: &Tree) -> Result<Draft, Status> {
    let draft = Draft::encode(tree).map_err(|error| Status::bad_request(error.to_string()))?;
    let limit = context.hub.options.max_object_bytes;
    if draft.body().len() > limit {
        let message = format!("the object has {} bytes, more than the limit of {limit}", draft.body().len());
        return Err(Status::new(Reason::RequestEntityTooLarge, message));
    }
    Ok(draft)
}

/// When an object goes by itself.
pub fn expiry(context: &Context, tree: &Tree) -> Option<Timestamp> {
    if let Some(end) = (context.resource.row.expires)(tree) {
        return Some(end);
    }
    let seconds = context.resource.row.ttl_seconds?;
    context.hub.now().checked_add(SignedDuration::from_secs(i64::from(seconds))).ok()
}

/// What must hold, or is written, together with an object.
#[derive(Default)]
pub struct Along {
    pub guards: Vec<(Key, Expect)>,
    pub writes: Vec<Write>,
    /// What it uses of its quotas, which is written down with it.
    pub charge: Option<Charge>,
}

impl Along {
    pub fn add(&mut self, other: Along) {
        self.guards.extend(other.guards);
        self.writes.extend(other.writes);
        self.charge = self.charge.take().or(other.charge);
    }
}

/// `Ok(None)`: something was not as expected; read again.
pub async fn commit_one(context: &Context, along: Along, write: Write) -> Result<Option<Committed>, Status> {
    let Along { guards, writes, charge } = along;
    let key = context.view.as_ref().map(|_| write.key.clone());
    let writes = [write].into_iter().chain(writes).collect();
    let commit = Commit { guards, writes };
    let first = match charge {
        Some(charge) => quota::commit(context, charge, commit).await?,
        None => commit_alone(context, commit).await?,
    };
    Ok(match (&context.view, key) {
        (Some(view), Some(key)) => first.map(|committed| view.settled(&key, committed)),
        _ => first,
    })
}

async fn commit_alone(context: &Context, commit: Commit) -> Result<Option<Committed>, Status> {
    match context.space.store().commit(context.space.id(), commit).await {
        Ok(committed) => Ok(committed.into_iter().next()),
        Err(Error::Conflict { .. }) => Ok(None),
        Err(error) => Err(refused_by_store(&context.hub, error)),
    }
}

/// The answer to a write that the store did not take.
pub fn refused_by_store(hub: &Hub, error: Error) -> Status {
    if matches!(error, Error::Full { .. }) {
        hub.metrics.limit_reached(Limit::Stored);
    }
    store_refusal(error)
}

pub async fn update(context: &Context, bytes: Bytes) -> Result<Response<Body>, Status> {
    context.presenter()?;
    let dry_run = check_options(context, "UpdateOptions", false)?;
    let mut watch = context.stopwatch();
    let Decoded { mut tree, warnings, resets_managers } = decode::object(context, &bytes)?;
    watch.lap(Stage::Decode);
    set_namespace(context, &mut tree)?;
    let name = context.target.name.clone();
    let given = text(metadata_of(&mut tree), "name").to_owned();
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
    let key = context.key(&name);
    for _ in 0..ATTEMPTS {
        let current = context.current(&key);
        let Some(old) = current.object else {
            return create_by_update(context, tree, dry_run, &warnings, &mut watch).await;
        };
        let old = versions::bring(&context.hub, context.space.id(), &context.resource, old).await?;
        let new = context.absorb(tree.clone(), &old, false)?;
        check_preconditions(context, &new, &old, true)?;
        let managers = Managers::of(resets_managers);
        let replacement = Replacement { old, expect: current.expect, new, managers };
        let Some(written) = replace(context, &key, replacement, dry_run, &mut watch).await? else {
            continue;
        };
        return respond(context, &written, &warnings).await;
    }
    Err(Status::modified(context.about(&name)))
}

async fn create_by_update(
    context: &Context,
    mut tree: Tree,
    dry_run: bool,
    warnings: &[String],
    watch: &mut Stopwatch<'_>,
) -> Result<Response<Body>, Status> {
    let name = &context.target.name;
    if !context.resource.row.create_on_update || !context.target.subresource.is_empty() {
        return Err(Status::not_found(context.about(name)));
    }
    admission::may_create(context)?;
    metadata_of(&mut tree).remove("resourceVersion");
    if !text(metadata_of(&mut tree), "uid").is_empty() {
        let why = format!(
            "Precondition failed: UID in precondition: {}, UID in object meta: ",
            text(metadata_of(&mut tree), "uid")
        );
        return Err(Status::conflict(context.about(name), &why));
    }
    let written = create_tree(context, tree, Managers::Track, dry_run, watch).await?;
    respond(context, &written, warnings).await
}

/// What the client says it saw must be what is there.
pub fn check_preconditions(context: &Context, new: &Tree, old: &Object, whole: bool) -> Result<(), Status> {
    let empty = Tree::new();
    let metadata = new.get("metadata").and_then(Value::as_object).unwrap_or(&empty);
    let name = old.head.name.as_str();
    let uid = text(metadata, "uid");
    if whole && !uid.is_empty() && uid != old.head.uid {
        let why =
            format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {}", old.head.uid);
        return Err(Status::conflict(context.about(name), &why));
    }
    match text(metadata, "resourceVersion") {
        "" | "0" if whole && !context.resource.row.unconditional_update => {
            let cause =
                Cause::invalid("metadata.resourceVersion", &json!(0), "must be specified for an update");
            refuse_if_any(context, name, vec![cause])
        }
        "" | "0" => Ok(()),
        given => match Revision::parse(given) {
            Some(revision) if revision == old.revision => Ok(()),
            Some(_) => Err(Status::modified(context.about(name))),
            None => {
                let cause = Cause::invalid("metadata.resourceVersion", &json!(given), "must be an integer");
                refuse_if_any(context, name, vec![cause])
            }
        },
    }
}

pub async fn patch(context: &Context, bytes: Bytes) -> Result<Response<Body>, Status> {
    context.presenter()?;
    let kind = negotiate::patch(&context.headers, context.shown.message().is_some())?;
    if kind == PatchKind::Apply {
        return apply::apply(context, bytes).await;
    }
    let dry_run = check_options(context, "PatchOptions", false)?;
    let name = context.target.name.clone();
    let key = context.key(&name);
    let mut watch = context.stopwatch();
    let body = patch::Body::read(kind, bytes)?;
    for _ in 0..ATTEMPTS {
        let current = context.current(&key);
        let old = current.object.ok_or_else(|| Status::not_found(context.about(&name)))?;
        let old = versions::bring(&context.hub, context.space.id(), &context.resource, old).await?;
        let patched = patch::apply(context, &body, &old)?;
        watch.lap(Stage::Decode);
        let mut new = patched.tree;
        let given = text(metadata_of(&mut new), "name").to_owned();
        if given != name {
            return Err(Status::bad_request(format!(
                "the name of the object ({given}) does not match the name on the URL ({name})"
            )));
        }
        set_namespace(context, &mut new)?;
        let new = context.absorb(new, &old, false)?;
        check_preconditions(context, &new, &old, false)?;
        let managers = Managers::of(patched.resets_managers);
        let replacement = Replacement { old, expect: current.expect, new, managers };
        let Some(written) = replace(context, &key, replacement, dry_run, &mut watch).await? else {
            continue;
        };
        return respond(context, &written, &patched.warnings).await;
    }
    Err(Status::modified(context.about(&name)))
}
