//! Emptying a namespace that is being deleted, and letting it go when nothing is left.

use std::{collections::BTreeSet, sync::Arc};

use api::assignment::{Assignment, FINALIZER};
use machinery::{Object, resource::Tree, status::Status};
use serde_json::{Value, json};
use store::{Collection, Key};

use super::Controllers;
use crate::{
    admission::Notes,
    base,
    delete::{self, Options, Outcome, Propagation},
    replace,
    space::Space,
};

/// So many clusters are named.
const NAMED: usize = 8;

/// What is still in a namespace.
#[derive(Default)]
struct Remaining {
    /// (resource, how many).
    resources: Vec<(String, usize)>,
    /// (finalizer, how many objects it holds).
    finalizers: Vec<(String, usize)>,
    /// The clusters in which there are copies.
    clusters: BTreeSet<String>,
    /// Why some of it cannot be deleted: somebody refuses.
    refusals: Vec<Status>,
}

pub async fn empty(controllers: &Controllers, space: &Space, name: &str) -> Result<(), Status> {
    let key = Key::new("", "namespaces", "", name);
    let Some(namespace) = space.get(&key).filter(|object| object.head.deleting) else { return Ok(()) };
    let remaining = delete_content(controllers, space, name).await?;
    let Some(context) = controllers.context_for(space, &key) else { return Ok(()) };
    let now = controllers.hub.now_text();
    let uid = namespace.head.uid.clone();
    if remaining.resources.is_empty() {
        return replace::edit(&context, &key, &uid, |tree| {
            let finalizers = tree.get_mut("spec").and_then(|spec| spec.get_mut("finalizers"));
            if let Some(finalizers) = finalizers.and_then(Value::as_array_mut) {
                finalizers.retain(|finalizer| finalizer != "kubernetes");
            }
            set_conditions(tree, &remaining, &now);
        })
        .await;
    }
    // The removal of the last object brings the namespace up again; nothing needs to poll.
    replace::edit(&context, &key, &uid, |tree| set_conditions(tree, &remaining, &now)).await?;
    // Who refused may change their mind, which nothing tells.
    remaining.refusals.into_iter().next().map_or(Ok(()), Err)
}

async fn delete_content(controllers: &Controllers, space: &Space, name: &str) -> Result<Remaining, Status> {
    let mut remaining = Remaining::default();
    let mut collections = space.store().collections(space.id());
    collections.extend(base::collections().cloned());
    collections.sort();
    collections.dedup();
    // What pods use stays until they are gone, such as policies that guard them.
    let pods = Collection::new("", "pods");
    collections.sort_by_key(|collection| *collection != pods);
    for collection in collections {
        let Some(context) = controllers.context(space, &collection, name, "") else { continue };
        if !context.resource.namespaced {
            continue;
        }
        let listing = space.latest(&collection);
        let mut held = 0;
        for (item, object) in listing.iter(Some(name), None) {
            let key = Key { collection: collection.clone(), item: item.clone() };
            let options = Options {
                // What was decided for an object that is going already stays decided.
                propagation: (!object.head.deleting).then_some(Propagation::Background),
                uid: Some(object.head.uid.to_string()),
                ..Options::default()
            };
            match delete::delete_one(&context, &key, &options, &mut Notes::default()).await {
                Ok(Outcome::Gone(_)) => {}
                Ok(Outcome::Held(object)) => {
                    held += 1;
                    if let Some(assignment) = assigned(controllers, space, &key, &object) {
                        let targets = assignment.spec.clusters.iter();
                        remaining.clusters.extend(targets.map(|target| target.name.clone()));
                    }
                    for finalizer in &object.head.finalizers {
                        match remaining.finalizers.iter_mut().find(|(name, _)| name == finalizer) {
                            Some((_, count)) => *count += 1,
                            None => remaining.finalizers.push((finalizer.to_string(), 1)),
                        }
                    }
                }
                Err(status) if status.code() == 404 => {}
                Err(status) => {
                    held += 1;
                    remaining.refusals.push(status);
                    break;
                }
            }
        }
        if held > 0 {
            remaining
                .resources
                .push((format!("{}.{}", context.resource.plural, context.resource.group), held));
            if collection == pods {
                break;
            }
        }
    }
    Ok(remaining)
}

/// Where there are copies: as the object says, if it is an Assignment, or the one of a pod, which goes after it.
fn assigned(controllers: &Controllers, space: &Space, key: &Key, object: &Object) -> Option<Arc<Assignment>> {
    let read = |object: &Object| controllers.hub.assignments.read(object).ok();
    match key.collection.parts() {
        (api::GROUP, api::assignment::PLURAL) => read(object),
        ("", "pods") => {
            let name = api::assignment::name_of("", "pods", key.item.name());
            let key = Key::new(api::GROUP, api::assignment::PLURAL, key.item.namespace(), &name);
            read(&*space.get(&key)?)
        }
        _ => None,
    }
}

fn listed(clusters: &BTreeSet<String>) -> String {
    let mut text = clusters.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    if clusters.len() > NAMED {
        text.push_str(&format!(" and {} more clusters", clusters.len() - NAMED));
    }
    text
}

/// Whether an Assignment that is on its way out is so in other clusters than before: its namespace tells in which.
pub fn is_told_by(key: &Key, old: Option<&Object>, new: Option<&Object>) -> bool {
    let (Some(old), Some(new)) = (old, new) else { return false };
    key.collection.parts() == (api::GROUP, api::assignment::PLURAL)
        && new.head.deleting
        && old.head.generation != new.head.generation
}

/// The five conditions by which `kubectl describe namespace` tells why a namespace does not go.
fn set_conditions(tree: &mut Tree, remaining: &Remaining, now: &str) {
    let resources: Vec<String> = remaining
        .resources
        .iter()
        .map(|(name, count)| format!("{name} has {count} resource instances"))
        .collect();
    let copies = match remaining.clusters.is_empty() {
        true => String::new(),
        false => format!(", with copies in {}", listed(&remaining.clusters)),
    };
    let finalizers: Vec<String> = remaining
        .finalizers
        .iter()
        .map(|(name, count)| {
            let copies = if name == FINALIZER { copies.as_str() } else { "" };
            format!("{name} in {count} resource instances{copies}")
        })
        .collect();
    let mut refusals: Vec<&str> = remaining.refusals.iter().map(Status::message).collect();
    refusals.sort_unstable();
    let rows = [
        (
            "NamespaceDeletionDiscoveryFailure",
            false,
            "ResourcesDiscovered",
            "All resources successfully discovered".into(),
        ),
        (
            "NamespaceDeletionGroupVersionParsingFailure",
            false,
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed".into(),
        ),
        match refusals.is_empty() {
            true => (
                "NamespaceDeletionContentFailure",
                false,
                "ContentDeleted",
                "All content successfully deleted, may be waiting on finalization".into(),
            ),
            false => (
                "NamespaceDeletionContentFailure",
                true,
                "ContentDeletionFailed",
                format!(
                    "Failed to delete all resource types, {} remaining: {}",
                    refusals.len(),
                    refusals.join(", ")
                ),
            ),
        },
        match resources.is_empty() {
            true => (
                "NamespaceContentRemaining",
                false,
                "ContentRemoved",
                "All content successfully removed".into(),
            ),
            false => (
                "NamespaceContentRemaining",
                true,
                "SomeResourcesRemain",
                format!("Some resources are remaining: {}{copies}", resources.join(", ")),
            ),
        },
        match finalizers.is_empty() {
            true => (
                "NamespaceFinalizersRemaining",
                false,
                "ContentHasNoFinalizers",
                "All content-preserving finalizers finished".into(),
            ),
            false => (
                "NamespaceFinalizersRemaining",
                true,
                "SomeFinalizersRemain",
                format!("Some content in the namespace has finalizers remaining: {}", finalizers.join(", ")),
            ),
        },
    ];
    let status = tree.entry("status").or_insert_with(|| json!({}));
    let old: Vec<Value> = status["conditions"].as_array().cloned().unwrap_or_default();
    let conditions: Vec<Value> = rows
        .into_iter()
        .map(|(kind, holds, reason, message): (&str, bool, &str, String)| {
            let text = if holds { "True" } else { "False" };
            let since = old.iter().find(|it| it["type"] == kind && it["status"] == text);
            let since = since.and_then(|it| it["lastTransitionTime"].as_str()).unwrap_or(now);
            json!({"type": kind, "status": text, "lastTransitionTime": since, "reason": reason, "message": message})
        })
        .collect();
    status["conditions"] = json!(conditions);
}
