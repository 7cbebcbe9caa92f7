//! Definitions of kinds: their names are accepted, they are established, and when they go their objects go first.

use machinery::{
    Object,
    definition::{self, CLEANUP_FINALIZER, Condition},
    resource::Tree,
    status::Status,
};
use serde_json::Value;
use store::{Collection, ItemKey, Key, WorkspaceId};

use super::{Controllers, garbage::drop_finalizer, queue::Work};
use crate::{
    admission::Notes,
    context::Context,
    delete::{self, Options},
    replace, served,
    space::Space,
};

pub fn key_of(name: &str) -> Key {
    Key { collection: served::definitions().clone(), item: ItemKey::new("", name) }
}

/// What a change of an object asks for: a definition is settled, and one that waits for its objects to go is looked
/// at again when one is gone.
pub fn observe(
    controllers: &Controllers,
    workspace: &WorkspaceId,
    key: &Key,
    old: Option<&Object>,
    new: Option<&Object>,
) {
    let queue = |name: &str| controllers.queue.add(Work::Definition(workspace.clone(), name.into()));
    if key.collection == *served::definitions() {
        if new.is_some() {
            queue(key.item.name());
        }
        if frees_names(old, new) {
            let store = &controllers.hub.store;
            let Ok(listing) = store.list(workspace, served::definitions(), None) else { return };
            listing.iter(None, None).for_each(|(item, _)| queue(item.name()));
        }
        return;
    }
    let (group, resource) = key.collection.parts();
    if new.is_none() && !group.is_empty() {
        let name = format!("{resource}.{group}");
        let definition = controllers.hub.store.get(workspace, &key_of(&name));
        if definition.is_some_and(|definition| definition.head.deleting) {
            queue(&name);
        }
    }
}

/// Whether names that others may wait for are free now.
fn frees_names(old: Option<&Object>, new: Option<&Object>) -> bool {
    let Some(old) = old else { return false };
    let names = |object: &Object| {
        let tree = object.tree().unwrap_or_default();
        tree.get("status").and_then(|status| status.get("acceptedNames")).cloned().unwrap_or_default()
    };
    let had_some = |names: &Value| names["kind"].as_str().is_some_and(|kind| !kind.is_empty());
    match new {
        None => true,
        Some(new) => {
            let before = names(old);
            had_some(&before) && before != names(new)
        }
    }
}

/// Brings the status of a definition to what it and the others lead to.
pub async fn settle(controllers: &Controllers, space: &Space, name: &str) -> Result<(), Status> {
    let key = key_of(name);
    let Some(object) = space.get(&key) else { return Ok(()) };
    let Some(context) = controllers.context_for(space, &key) else { return Ok(()) };
    if object.head.deleting {
        return terminate(controllers, space, &context, &key, &object).await;
    }
    let others = same_group(space, name)?;
    let now = controllers.hub.now_text();
    replace::edit(&context, &key, &object.head.uid, |tree| {
        if let Some(next) = definition::next_status(tree, others.iter(), &now) {
            *tree = next;
        }
    })
    .await
}

/// The other definitions of the group that `name` ends in.
fn same_group(space: &Space, name: &str) -> Result<Vec<Tree>, Status> {
    let group = name.split_once('.').map_or("", |(_, group)| group);
    let all = space.latest(served::definitions());
    let others = all.iter(None, None).filter(|(item, _)| {
        item.name() != name && item.name().split_once('.').is_some_and(|(_, other)| other == group)
    });
    others.map(|(_, object)| object.tree().map_err(Status::internal)).collect()
}

/// Deletes the objects of a definition, and lets the definition go when there are none left.
async fn terminate(
    controllers: &Controllers,
    space: &Space,
    context: &Context,
    key: &Key,
    object: &Object,
) -> Result<(), Status> {
    if !object.head.finalizers.iter().any(|finalizer| finalizer == CLEANUP_FINALIZER) {
        return Ok(());
    }
    let tree = object.tree().map_err(Status::internal)?;
    let now = controllers.hub.now_text();
    let established = definition::is_true(&tree, "Established");
    if established && !delete_all(controllers, space, &tree).await? {
        return replace::edit(context, key, &object.head.uid, |tree| {
            if !conditions_say(tree, "InstanceDeletionInProgress") {
                definition::set_condition(tree, &Condition::deleting_instances(), &now);
            }
        })
        .await;
    }
    let condition = match established {
        true => Condition::instances_deleted(),
        false => Condition::never_established(),
    };
    replace::edit(context, key, &object.head.uid, |tree| {
        definition::set_condition(tree, &condition, &now);
        drop_finalizer(tree, CLEANUP_FINALIZER);
    })
    .await
}

fn conditions_say(tree: &Tree, reason: &str) -> bool {
    definition::conditions_of(tree).any(|condition| condition.get("reason").is_some_and(|it| it == reason))
}

/// True when none is left.
async fn delete_all(controllers: &Controllers, space: &Space, definition: &Tree) -> Result<bool, Status> {
    let text = |path: &str| {
        let value = Value::Object(definition.clone());
        value.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let collection = Collection::new(&text("/spec/group"), &text("/status/acceptedNames/plural"));
    let mut left = false;
    for (item, _) in space.latest(&collection).iter(None, None) {
        let key = Key { collection: collection.clone(), item: item.clone() };
        let Some(context) = controllers.context_for(space, &key) else {
            // Not served in any version: nobody can look after them, but they must not stay behind either.
            return Err(Status::internal(format!("{collection:?} has objects and is not served")));
        };
        match delete::delete_one(&context, &key, &Options::default(), &mut Notes::default()).await {
            Ok(delete::Outcome::Gone(_)) => {}
            Ok(delete::Outcome::Held(_)) => left = true,
            Err(status) if status.code() == 404 => {}
            Err(status) => return Err(status),
        }
    }
    Ok(!left)
}
