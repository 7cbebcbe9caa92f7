//! Objects of custom kinds in the version that a request is about.
//!
//! They are stored in one version and served in several, and their definition may have changed since they were
//! stored. Built-in kinds are converted by their rows when they are shown; custom kinds may need somebody else for it,
//! so they are brought to the wanted version before anything is done with them.
//!
//! ```text
//!   stored object ── of this version, and no older than the definition? ──yes──> as it is, bytes shared
//!                                          └──no──> convert ──> prune, default ──> a new object
//! ```

use std::{borrow::Cow, fmt::Display, sync::Arc, time::Duration};

use machinery::{
    Draft, EventType, Object, Revision,
    definition::conversion::{self, Subject},
    resource::{Custom, Resource, Tree},
    status::Status,
};
use serde_json::Value;
use store::{Expect, Key, Listing, WorkspaceId};

use crate::{
    context::Context,
    hub::Hub,
    webhook::{self, Question, Target},
};

/// As long as upstream waits.
const TIMEOUT: Duration = Duration::from_secs(30);
/// An answer larger than this is refused.
const MAX_ANSWER_BYTES: usize = 16 * 1024 * 1024;
/// So many objects are sent to a webhook at once.
const BATCH: usize = 500;

fn is_current(custom: &Custom, resource: &Resource, object: &Object) -> bool {
    object.revision > custom.since && object.type_slice() == resource.type_prefix.as_bytes()
}

/// What must hold for what was made of a custom object to be right: its definition did not change meanwhile.
pub fn guard(resource: &Resource) -> Option<(Key, Expect)> {
    let custom = resource.custom()?;
    let collection = crate::served::definitions().clone();
    let item = store::ItemKey::new("", &custom.definition);
    Some((Key { collection, item }, Expect::At(custom.since)))
}

/// One object in the version of the request.
pub async fn bring(
    hub: &Hub,
    workspace: &WorkspaceId,
    resource: &Resource,
    object: Arc<Object>,
) -> Result<Arc<Object>, Status> {
    match bring_all(hub, workspace, resource, vec![object]).await?.pop() {
        Some(object) => Ok(object),
        None => Err(Status::internal("a conversion lost its object")),
    }
}

/// Objects in the version of the request, in their order.
pub async fn bring_all(
    hub: &Hub,
    workspace: &WorkspaceId,
    resource: &Resource,
    mut objects: Vec<Arc<Object>>,
) -> Result<Vec<Arc<Object>>, Status> {
    let Some(custom) = resource.custom() else { return Ok(objects) };
    let stale: Vec<usize> =
        (0..objects.len()).filter(|at| !is_current(custom, resource, &objects[*at])).collect();
    for batch in stale.chunks(BATCH) {
        let trees: Result<Vec<Tree>, Status> =
            batch.iter().map(|at| objects[*at].tree().map_err(Status::internal)).collect();
        let converted = convert(hub, workspace, custom, trees?, &resource.api_version).await?;
        for (at, mut tree) in batch.iter().zip(converted) {
            custom.renew(&mut tree);
            let draft = Draft::encode(&tree).map_err(Status::internal)?;
            // What was only tried has no revision, and must not get one.
            objects[*at] = Arc::new(match objects[*at].revision {
                Revision::ZERO => draft.preview(),
                revision => draft.seal(revision, EventType::Modified),
            });
        }
    }
    Ok(objects)
}

/// Brings those objects of a list that a reader will see to the version of the request. `most`: no more are looked at.
pub async fn bring_listing(
    context: &Context,
    listing: &mut Listing,
    namespace: Option<&str>,
    after: Option<&store::ItemKey>,
    most: Option<usize>,
) -> Result<(), Status> {
    let resource = &context.resource;
    let Some(custom) = resource.custom() else { return Ok(()) };
    let stale: Vec<(store::ItemKey, Arc<Object>)> = listing
        .iter(namespace, after)
        .take(most.unwrap_or(usize::MAX))
        .filter(|(_, object)| !is_current(custom, resource, object))
        .map(|(item, object)| (item.clone(), object.clone()))
        .collect();
    let (items, objects): (Vec<_>, Vec<_>) = stale.into_iter().unzip();
    let objects = bring_all(&context.hub, context.space.id(), resource, objects).await?;
    for (item, object) in items.into_iter().zip(objects) {
        listing.insert(item, object);
    }
    Ok(())
}

/// An object of the request's version as it is stored.
pub async fn to_stored<'a>(context: &Context, tree: &'a Tree) -> Result<Cow<'a, Tree>, Status> {
    let resource = &context.resource;
    let Some(custom) = resource.custom().filter(|_| resource.api_version != resource.stored_api_version)
    else {
        return Ok(Cow::Borrowed(tree));
    };
    let (hub, workspace, to) = (&context.hub, context.space.id(), &resource.stored_api_version);
    let converted = convert(hub, workspace, custom, vec![tree.clone()], to).await?;
    let stored = converted.into_iter().next().map(Cow::Owned);
    stored.ok_or_else(|| Status::internal("a conversion lost its object"))
}

/// An object of a custom kind in another of its versions.
pub async fn in_version(
    context: &Context,
    custom: &Custom,
    tree: Tree,
    api_version: &str,
) -> Result<Tree, Status> {
    let converted = convert(&context.hub, context.space.id(), custom, vec![tree], api_version).await?;
    converted.into_iter().next().ok_or_else(|| Status::internal("a conversion lost its object"))
}

async fn convert(
    hub: &Hub,
    workspace: &WorkspaceId,
    custom: &Custom,
    mut trees: Vec<Tree>,
    api_version: &str,
) -> Result<Vec<Tree>, Status> {
    let same = |tree: &Tree| tree.get("apiVersion").and_then(Value::as_str) == Some(api_version);
    if custom.version.conversion.strategy == "Webhook" && !trees.iter().all(same) {
        return ask(hub, workspace, custom, trees, api_version).await;
    }
    trees.iter_mut().for_each(|tree| conversion::rename(tree, api_version));
    Ok(trees)
}

/// Has a webhook convert the objects that are not of the wanted version yet.
async fn ask(
    hub: &Hub,
    workspace: &WorkspaceId,
    custom: &Custom,
    mut trees: Vec<Tree>,
    api_version: &str,
) -> Result<Vec<Tree>, Status> {
    let same = |tree: &Tree| tree.get("apiVersion").and_then(Value::as_str) == Some(api_version);
    let places: Vec<usize> = (0..trees.len()).filter(|at| !same(&trees[*at])).collect();
    let objects: Vec<&Tree> = places.iter().map(|at| &trees[*at]).collect();
    let text = |key: &str| objects[0].get(key).and_then(Value::as_str).unwrap_or_default();
    let kind = format!("{}, Kind={}", text("apiVersion"), text("kind"));
    let failed = |why: &dyn Display| Status::internal(format!("conversion webhook for {kind} failed: {why}"));
    let rules = &custom.version.conversion;
    let version = conversion::review_version(&rules.review_versions).map_err(|why| failed(&why))?;
    let client = rules.client.as_ref().ok_or_else(|| failed(&"it has no clientConfig"))?;
    let target = Target::of(client).map_err(|error| failed(&error))?;
    let uid = hub.new_uid();
    let question = Question {
        workspace,
        target: &target,
        document: &|| conversion::review(version, &uid, api_version, &objects),
        bytes: webhook::weight(objects.iter().copied()),
        limit: TIMEOUT,
        tells_limit: false,
        max_answer: MAX_ANSWER_BYTES,
    };
    let answer = hub.webhooks.call(&hub.env, question).await.map_err(|error| failed(&error))?;
    let answer: Value = serde_json::from_slice(&answer).map_err(|error| failed(&error))?;
    let subject = Subject { kind: &kind, is_list: objects.len() > 1 };
    let converted = conversion::converted(version, &uid, api_version, &objects, &answer, subject);
    for (at, tree) in places.into_iter().zip(converted.map_err(Status::internal)?) {
        trees[at] = tree;
    }
    Ok(trees)
}
