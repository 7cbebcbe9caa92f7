//! The end of a federated object: its copies go first, or stay if that is asked for.

use api::assignment::Propagation as Kept;
use dialects::{
    DELETE_OPTION_ANNOTATION, FINALIZER, FederatedType, ORPHAN_ANNOTATION, Owned,
    report::{CHECK_CLUSTERS, status},
};
use jiff::Timestamp;
use kinds::propagation::Pass;
use machinery::{Object, status::Status};
use serde_json::{Value, json};
use store::Key;

use super::{After, Controllers, assignment, assignment_key, members, objects, tree};
use crate::{
    admission::Notes,
    controllers::garbage::drop_finalizer,
    delete::{self, Options, Propagation},
    replace,
    space::Space,
};

pub async fn settle(
    controllers: &Controllers,
    space: &Space,
    ty: &FederatedType,
    key: &Key,
    object: &Object,
) -> Result<After, Status> {
    if !object.head.finalizers.iter().any(|it| it == FINALIZER) {
        return Ok(After::Done);
    }
    let Some(federated) = tree(object) else { return Ok(After::Done) };
    let plain_key = objects::plain_key(ty, key);
    let plain =
        space.get(&plain_key).filter(|it| it.head.owners.iter().any(|owner| owner.uid == object.head.uid));
    if let Some(plain) = plain {
        if !plain.head.deleting {
            return remove(controllers, space, ty, key, object, &federated, &plain).await;
        }
        // It is looked at again when that is gone.
        return Ok(After::Done);
    }
    if let Some(stored) = space.get(&assignment_key(ty, key.item.namespace(), key.item.name()))
        && stored.head.deleting
        && let Some(assignment) = assignment(space, ty, key)
    {
        let members = members(controllers, space);
        let is_silent = |name: &str| members.iter().any(|it| it.name == name && !it.ready);
        let all_silent = assignment.spec.clusters.iter().all(|it| is_silent(&it.name));
        if !all_silent {
            return Ok(After::Done);
        }
        let grace = i64::try_from(controllers.hub.options.federated_grace.as_secs()).unwrap_or(i64::MAX);
        if controllers.hub.now().as_second() < asked_at(&federated).saturating_add(grace) {
            return Ok(After::Rest);
        }
    }
    let Some(context) = controllers.context_for(space, key) else { return Ok(After::Done) };
    replace::edit(&context, key, &object.head.uid, |tree| drop_finalizer(tree, FINALIZER)).await?;
    Ok(After::Done)
}

fn asked_at(federated: &Value) -> i64 {
    let text = federated["metadata"]["deletionTimestamp"].as_str().unwrap_or_default();
    text.parse::<Timestamp>().map_or(0, |it| it.as_second())
}

/// Has the plain object deleted, as the federated one says.
async fn remove(
    controllers: &Controllers,
    space: &Space,
    ty: &FederatedType,
    key: &Key,
    object: &Object,
    federated: &Value,
    plain: &Object,
) -> Result<After, Status> {
    let annotations = &federated["metadata"]["annotations"];
    let plain_key = objects::plain_key(ty, key);
    let Some(context) = controllers.context_for(space, &plain_key) else { return Ok(After::Done) };
    if annotations[ORPHAN_ANNOTATION] == "true" {
        let is_kept = |it: api::assignment::Assignment| it.spec.propagation == Some(Kept::Keep);
        let assignment = assignment(space, ty, key);
        if assignment.is_some_and(|it| !is_kept(it)) {
            // Copies stay only if that is known before the object goes; then this is looked at again.
            replace::edit(&context, &plain_key, &plain.head.uid, |tree| {
                let metadata = crate::write::metadata_of(tree);
                let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
                annotations[api::ON_DELETE_ANNOTATION] = json!("Keep");
            })
            .await?;
            return Ok(After::Done);
        }
    }
    // Nothing goes before it is known what is to become of what it owns.
    let asked = match dialects::delete_option(annotations) {
        Ok(asked) => asked,
        Err(why) => {
            tell_why_not(controllers, space, key, object, federated, &why).await?;
            // It is looked at again when that is changed.
            return Ok(After::Done);
        }
    };
    let propagation = match asked.owned {
        Owned::Orphan => Propagation::Orphan,
        Owned::Foreground => Propagation::Foreground,
        Owned::Background => Propagation::Background,
    };
    let options = Options {
        propagation: Some(propagation),
        uid: Some(plain.head.uid.to_string()),
        grace_seconds: asked.grace_seconds,
        ..Options::default()
    };
    match delete::delete_one(&context, &plain_key, &options, &mut Notes::default()).await {
        Ok(_) => Ok(After::Rest),
        Err(status) if status.code() == 404 => Ok(After::Rest),
        Err(status) => Err(status),
    }
}

/// Nothing goes while it is not understood how: the object says so.
async fn tell_why_not(
    controllers: &Controllers,
    space: &Space,
    key: &Key,
    object: &Object,
    federated: &Value,
    why: &str,
) -> Result<(), Status> {
    let shown = federated["status"]["clusters"].as_array().into_iter().flatten();
    let names = shown.filter_map(|it| it["name"].as_str());
    let pass = Pass {
        generation: object.head.generation,
        reason: CHECK_CLUSTERS.to_owned(),
        clusters: names.map(|it| (it.to_owned(), status::DELETION_FAILED.to_owned())).collect(),
        ..Pass::default()
    };
    let message =
        format!("it cannot be deleted: the annotation {DELETE_OPTION_ANNOTATION} cannot be read: {why}");
    objects::write_status(controllers, space, key, object, &pass, &message).await
}
