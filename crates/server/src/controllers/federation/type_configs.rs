//! A `FederatedTypeConfig` says whether anything is brought about by it, and is there until nothing is.

use dialects::types::{CONFIG_FINALIZER, config_status};
use machinery::status::Status;
use serde_json::{Value, json};
use store::Key;

use super::{After, Controllers};
use crate::{controllers::garbage::drop_finalizer, replace, space::Space, write};

/// Federated kinds are read anew after every change of these: who hears that it does not run any more finds it so.
pub async fn settle(controllers: &Controllers, space: &Space, key: &Key) -> Result<After, Status> {
    let (Some(object), Some(context)) = (space.get(key), controllers.context_for(space, key)) else {
        return Ok(After::Done);
    };
    replace::edit(&context, key, &object.head.uid, |tree| {
        let status = config_status(&Value::Object(tree.clone()));
        tree.insert("status".into(), status);
        if tree.get("metadata").is_some_and(|it| it.get("deletionTimestamp").is_some()) {
            drop_finalizer(tree, CONFIG_FINALIZER);
            return;
        }
        let finalizers = write::metadata_of(tree).entry("finalizers").or_insert_with(|| json!([]));
        if let Some(list) =
            finalizers.as_array_mut().filter(|list| !list.iter().any(|it| it == CONFIG_FINALIZER))
        {
            list.push(json!(CONFIG_FINALIZER));
        }
    })
    .await?;
    Ok(After::Done)
}
