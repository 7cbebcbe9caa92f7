//! Removing a workspace: its objects and history go as one, then the object that named it.

use machinery::{Draft, status::Status};
use serde_json::{Value, json};
use store::{Change, Collection, Commit, Error, Expect, Key, WorkspaceId, Write};

use super::Controllers;
use crate::{
    hub::{Hub, root_id, store_refusal, workspace_id},
    replace,
};

/// Has all Assignments deleted: what is in clusters goes before what says so. Answers how many are left.
async fn let_go_of_copies(hub: &Hub, id: &WorkspaceId) -> Result<usize, Status> {
    let collection = Collection::new(api::GROUP, api::assignment::PLURAL);
    let listing = hub.store.list(id, &collection, None).map_err(store_refusal)?;
    let assignments: Vec<_> = listing.iter(None, None).map(|(item, it)| (item.clone(), it.clone())).collect();
    for (item, object) in assignments.iter().filter(|(_, object)| !object.head.deleting) {
        let mut tree = object.tree().map_err(Status::internal)?;
        if let Some(metadata) = tree.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("deletionTimestamp".into(), json!(hub.now_text()));
            metadata.insert("deletionGracePeriodSeconds".into(), json!(0));
        }
        let draft = Draft::encode(&tree).map_err(Status::internal)?;
        let key = Key { collection: collection.clone(), item: item.clone() };
        let write =
            Write { key, expect: Expect::At(object.revision), change: Change::Put { draft, expires: None } };
        match hub.store.commit(id, Commit { guards: Vec::new(), writes: vec![write] }).await {
            // Whoever was faster is seen next time.
            Ok(_) | Err(Error::Conflict { .. }) => {}
            Err(error) => return Err(store_refusal(error)),
        }
    }
    Ok(assignments.len())
}

pub async fn remove(controllers: &Controllers, name: &str) -> Result<(), Status> {
    let hub = &controllers.hub;
    let key = Key::new(api::GROUP, "workspaces", "", name);
    let Some(object) = hub.store.get(&root_id(), &key).filter(|object| object.head.deleting) else {
        return Ok(());
    };
    let others = object.head.finalizers.iter().any(|finalizer| finalizer != api::WORKSPACE_FINALIZER);
    if others {
        // Somebody else is not finished with what is in it.
        return Ok(());
    }
    let id = workspace_id(&object.head.uid);
    let left = let_go_of_copies(hub, &id).await?;
    if left > 0 {
        return Err(Status::internal(format!("{left} objects of it are still in clusters")));
    }
    hub.store.remove_workspace(&id).await.map_err(store_refusal)?;
    hub.forget_space(&id);
    let root = hub.space(api::ROOT)?;
    let Some(context) = controllers.context_for(&root, &key) else { return Ok(()) };
    replace::edit(&context, &key, &object.head.uid, |tree| {
        let finalizers =
            tree.get_mut("metadata").and_then(|it| it.get_mut("finalizers")).and_then(Value::as_array_mut);
        if let Some(finalizers) = finalizers {
            finalizers.retain(|finalizer| finalizer != api::WORKSPACE_FINALIZER);
        }
    })
    .await
}
