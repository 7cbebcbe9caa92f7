//! Server-side apply: the object becomes what a configuration says, where its author may say so.

use bytes::Bytes;
use http::Response;
use machinery::{
    Object,
    resource::Tree,
    status::{About, Reason, Status},
};
use serde_json::{Value, json};
use store::Expect;

use crate::{
    admission,
    body::Body,
    context::Context,
    decode::{self, Decoded},
    managers,
    metrics::{Stage, Stopwatch},
    replace::{self, Replacement},
    versions,
    write::{self, ATTEMPTS, Managers, Written, metadata_of, text},
};

pub async fn apply(context: &Context, bytes: Bytes) -> Result<Response<Body>, Status> {
    let dry_run = write::check_options(context, "PatchOptions", true)?;
    let force = context.query.flag("force");
    let mut watch = context.stopwatch();
    let Decoded { tree: config, warnings, .. } = decode::configuration(context, &bytes)?;
    check_identity(context, &config)?;
    watch.lap(Stage::Decode);
    let name = context.target.name.as_str();
    let key = context.key(name);
    for _ in 0..ATTEMPTS {
        let current = context.current(&key);
        let written = match current.object {
            None => create(context, &config, force, dry_run, &mut watch).await?,
            Some(old) => {
                let old = versions::bring(&context.hub, context.space.id(), &context.resource, old).await?;
                let replacement = replacement(context, &config, force, &old, current.expect).await?;
                watch.lap(Stage::Track);
                replace::replace(context, &key, replacement, dry_run, &mut watch).await?
            }
        };
        if let Some(written) = written {
            return write::respond(context, &written, &warnings).await;
        }
    }
    Err(Status::modified(context.about(name)))
}

/// A configuration is about the object that the path names, if it says which.
fn check_identity(context: &Context, config: &Tree) -> Result<(), Status> {
    let name = &context.target.name;
    let Some(metadata) = config.get("metadata").and_then(Value::as_object) else { return Ok(()) };
    let given = text(metadata, "name");
    if !given.is_empty() && given != name {
        return Err(Status::bad_request(format!(
            "the name of the object ({given}) does not match the name on the URL ({name})"
        )));
    }
    write::set_namespace(context, &mut Tree::from_iter([("metadata".to_owned(), json!(metadata))]))
}

/// `Ok(None)`: somebody made it meanwhile.
async fn create(
    context: &Context,
    config: &Tree,
    force: bool,
    dry_run: bool,
    watch: &mut Stopwatch<'_>,
) -> Result<Option<Written>, Status> {
    let name = context.target.name.as_str();
    if !context.target.subresource.is_empty() {
        return Err(Status::not_found(context.about(name)));
    }
    admission::may_create(context)?;
    let uid = config.get("metadata").and_then(|metadata| metadata.get("uid")).and_then(|uid| uid.as_str());
    if let Some(uid) = uid.filter(|uid| !uid.is_empty()) {
        let why = format!(
            "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
        );
        return Err(Status::conflict(context.about(name), &why));
    }
    let applied = managers::apply(context, None, config, force).await?;
    let mut tree = decode::applied(context, applied)?;
    let metadata = metadata_of(&mut tree);
    metadata.insert("name".into(), json!(name));
    // There is nothing that it could be the version of.
    metadata.remove("resourceVersion");
    watch.lap(Stage::Track);
    match write::create_tree(context, tree, Managers::Tracked, dry_run, watch).await {
        Ok(written) => Ok(Some(written)),
        Err(status) if status.reason() == Reason::AlreadyExists => Ok(None),
        Err(status) => Err(status),
    }
}

async fn replacement(
    context: &Context,
    config: &Tree,
    force: bool,
    old: &std::sync::Arc<Object>,
    expect: Expect,
) -> Result<Replacement, Status> {
    let live = old.tree().map_err(Status::internal)?;
    check_uid(context, config, old)?;
    let applied = match context.scale() {
        Some(paths) => managers::apply_scale(context, paths, &live, config, force)?,
        None => managers::apply(context, Some(&live), config, force).await?,
    };
    let seen = decode::applied(context, applied)?;
    let new = context.absorb(seen, old, true)?;
    write::check_preconditions(context, &new, old, false)?;
    Ok(Replacement { old: old.clone(), expect, new, managers: Managers::Tracked })
}

fn check_uid(context: &Context, config: &Tree, old: &Object) -> Result<(), Status> {
    let uid = config.get("metadata").and_then(|metadata| metadata.get("uid")).and_then(|uid| uid.as_str());
    match uid.filter(|uid| !uid.is_empty() && *uid != old.head.uid) {
        None => Ok(()),
        Some(uid) => {
            let about: About<'_> = context.about(&old.head.name);
            let why = format!(
                "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
                old.head.uid
            );
            Err(Status::conflict(about, &why))
        }
    }
}
