//! Removing a workspace: its objects and history go as one, then the object that named it.

use machinery::status::Status;
use serde_json::Value;
use store::Key;

use super::Controllers;
use crate::{
    hub::{root_id, store_refusal, workspace_id},
    replace,
};

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
