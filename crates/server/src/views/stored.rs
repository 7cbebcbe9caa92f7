//! Writes to stored pods that run as copies in members, where the copy is what they are about: it is evicted, debugged or
//! resized first, and when its member has agreed that is written down here.

use bytes::Bytes;
use http::{Method, Response};
use machinery::{
    resource::Tree,
    status::{Reason, Status},
};
use serde_json::{Value, json};
use store::Key;

use super::{
    forward::{Forwarded, is_apply, map_changes, path, request},
    view::View,
};
use crate::{
    body::Body,
    context::Context,
    replace::{Replacement, replace},
    request::Verb,
    space::Current,
    write::{Managers, check_preconditions, text},
};

const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";
const DEBUG: &str = "ephemeralcontainers";
const RESIZE: &str = "resize";

/// The answer to a write to a stored pod that is its copy's to take; `None`: it is written here, its copy being asked or
/// not concerned.
pub(super) async fn write(
    context: &Context,
    view: &View,
    key: &Key,
    verb: Verb,
    bytes: &Bytes,
) -> Option<Result<Response<Body>, Status>> {
    let below = context.target.subresource.as_str();
    let concerns_copies = match verb {
        Verb::Create => below == "eviction",
        Verb::Patch | Verb::Update => matches!(below, DEBUG | RESIZE),
        _ => false,
    };
    if !concerns_copies || view.get(key).is_none() {
        return None;
    }
    let targets = view.copies(key);
    if targets.is_empty() {
        return without_copies(context).map(Err);
    }
    let forwarded = Forwarded { context, view, targets };
    match verb {
        Verb::Create => Some(forwarded.evict_stored(bytes).await),
        _ => forwarded.change_copies(verb, bytes).await.err().map(Err),
    }
}

/// Why it is not done though no copy is known.
fn without_copies(context: &Context) -> Option<Status> {
    // It may run here.
    if context.hub.pods.get().is_some() {
        return None;
    }
    // Who was never seen may have the copy: its budgets would not be asked, and it would not hear of anything.
    if let Err(refusal) = context.sight() {
        return Some(refusal);
    }
    if context.target.subresource != DEBUG {
        return None;
    }
    // A copy is made without them, so that it would never have it.
    let about = context.about(&context.target.name);
    Some(Status::conflict(about, "it runs in no cluster now"))
}

impl Forwarded<'_> {
    /// Ephemeral containers and resources of a stored pod, given to its copies.
    async fn change_copies(&self, verb: Verb, bytes: &Bytes) -> Result<(), Status> {
        let context = self.context;
        if is_apply(context, verb) {
            let message = "a pod that runs in a cluster is patched or updated, not applied, below itself";
            return Err(Status::new(Reason::MethodNotAllowed, message.to_owned()));
        }
        let dry_run = context.dry_run()?;
        let (old, new) = self.as_it_would_be(verb, bytes).await?;
        let spec = match context.target.subresource.as_str() {
            DEBUG => new_containers(&old, &new),
            _ => new_resources(&old, &new),
        };
        if spec.is_empty() {
            return Ok(());
        }
        for target in &self.targets {
            let path = path(target, &format!("/{}", context.target.subresource)) + &self.query(dry_run);
            let patch = json!({"metadata": {"uid": target.uid}, "spec": spec});
            self.send(target, request(Method::PATCH, &path, STRATEGIC_PATCH, &patch)?).await?;
        }
        Ok(())
    }

    /// The stored object, and what it would be. What is not admitted here, nobody else is asked for.
    async fn as_it_would_be(&self, verb: Verb, bytes: &Bytes) -> Result<(Tree, Tree), Status> {
        let context = self.context;
        let key = context.key(self.name());
        let Current { object, expect } = context.current(&key);
        let old = object.ok_or_else(|| Status::not_found(context.about(self.name())))?;
        let (new, _) = self.asked(verb, bytes, &old)?;
        check_preconditions(context, &new, &old, verb == Verb::Update)?;
        let replacement = Replacement { old: old.clone(), expect, new, managers: Managers::Track };
        let tried = replace(context, &key, replacement, true, &mut context.stopwatch()).await?;
        let tried = tried.map_or_else(|| old.clone(), |tried| tried.object);
        Ok((old.tree().map_err(Status::internal)?, tried.tree().map_err(Status::internal)?))
    }
}

fn containers<'t>(tree: &'t Tree, list: &str) -> impl Iterator<Item = &'t Tree> {
    let spec = tree.get("spec").and_then(|spec| spec.get(list)).and_then(Value::as_array);
    spec.into_iter().flatten().filter_map(Value::as_object)
}

fn named<'t>(tree: &'t Tree, list: &str, name: &str) -> Option<&'t Tree> {
    containers(tree, list).find(|it| text(it, "name") == name)
}

/// The ephemeral containers that are new: those that are there can neither change nor go.
fn new_containers(old: &Tree, new: &Tree) -> Tree {
    let list = "ephemeralContainers";
    let is_new = |it: &&Tree| named(old, list, text(it, "name")).is_none();
    let added: Vec<Value> = containers(new, list).filter(is_new).cloned().map(Value::Object).collect();
    let added = (!added.is_empty()).then(|| (list.to_owned(), json!(added)));
    added.into_iter().collect()
}

/// What makes the resources of `old` those of `new`, of the pod and of each container.
fn new_resources(old: &Tree, new: &Tree) -> Tree {
    let mut spec = Tree::new();
    let of_pod = |tree: &Tree| tree.get("spec").and_then(Value::as_object).cloned().unwrap_or_default();
    if let Some(changed) = changed_resources(&of_pod(old), &of_pod(new)) {
        spec.insert("resources".into(), changed);
    }
    for list in ["containers", "initContainers"] {
        let changed = |it: &Tree| {
            let name = text(it, "name");
            let resources = changed_resources(named(old, list, name)?, it)?;
            Some(json!({"name": name, "resources": resources}))
        };
        let changed: Vec<Value> = containers(new, list).filter_map(changed).collect();
        if !changed.is_empty() {
            spec.insert(list.into(), json!(changed));
        }
    }
    spec
}

fn changed_resources(old: &Tree, new: &Tree) -> Option<Value> {
    let of = |tree: &Tree, list: &str| tree.get("resources")?.get(list)?.as_object().cloned();
    let mut resources = Tree::new();
    for list in ["limits", "requests"] {
        let changed = map_changes(of(old, list).as_ref(), of(new, list).as_ref());
        if !changed.is_empty() {
            resources.insert(list.into(), Value::Object(changed));
        }
    }
    (!resources.is_empty()).then_some(Value::Object(resources))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(spec: Value) -> Tree {
        Tree::from_iter([("spec".to_owned(), spec)])
    }

    #[test]
    fn a_copy_is_told_of_new_containers_only() {
        let debug = |name: &str| json!({"name": name, "image": "example.com/debug"});
        let rows = [
            (json!({}), json!({}), json!({})),
            (
                json!({}),
                json!({"ephemeralContainers": [debug("a")]}),
                json!({"ephemeralContainers": [debug("a")]}),
            ),
            (
                json!({"ephemeralContainers": [debug("a")]}),
                json!({"ephemeralContainers": [debug("a"), debug("b")]}),
                json!({"ephemeralContainers": [debug("b")]}),
            ),
        ];
        for (old, new, sent) in rows {
            assert_eq!(
                Value::Object(new_containers(&pod(old.clone()), &pod(new.clone()))),
                sent,
                "{old} {new}"
            );
        }
    }

    #[test]
    fn a_copy_is_told_of_changed_resources_only() {
        let main = |resources: Value| json!({"containers": [{"name": "main", "image": "i", "resources": resources}]});
        let rows = [
            (main(json!({})), main(json!({})), json!({})),
            (
                main(json!({"requests": {"cpu": "1", "memory": "1Gi"}})),
                main(json!({"requests": {"cpu": "2", "memory": "1Gi"}})),
                json!({"containers": [{"name": "main", "resources": {"requests": {"cpu": "2"}}}]}),
            ),
            (
                main(json!({"limits": {"cpu": "1"}})),
                main(json!({})),
                json!({"containers": [{"name": "main", "resources": {"limits": {"cpu": null}}}]}),
            ),
            (
                json!({"resources": {"limits": {"cpu": "1"}}}),
                json!({"resources": {"limits": {"cpu": "2"}}}),
                json!({"resources": {"limits": {"cpu": "2"}}}),
            ),
            (
                main(json!({})),
                json!({"containers": [{"name": "other", "resources": {"limits": {"cpu": "1"}}}]}),
                json!({}),
            ),
        ];
        for (old, new, sent) in rows {
            assert_eq!(
                Value::Object(new_resources(&pod(old.clone()), &pod(new.clone()))),
                sent,
                "{old} {new}"
            );
        }
    }
}
