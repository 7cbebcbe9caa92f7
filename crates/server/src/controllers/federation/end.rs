//! The end of a federated object: its copies go first, or stay if that is asked for.

use api::assignment::Propagation as Kept;
use dialects::{
    DELETE_OPTION_ANNOTATION, FINALIZER, FederatedType, Owned,
    report::{CHECK_CLUSTERS, status},
    translate::{self, KEEP},
};
use jiff::Timestamp;
use kinds::propagation::Pass;
use machinery::{Object, resource::Tree, status::Status};
use serde_json::{Value, json};
use store::Key;

use super::{After, Controllers, assignment, assignment_key, is_ours_alone, members, objects, tree};
use crate::{
    admission::Notes,
    controllers::garbage::drop_finalizer,
    delete::{self, ORPHAN, Options, Propagation},
    replace,
    space::Space,
    write,
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
    let is_its = |it: &Object| it.head.owners.iter().any(|owner| owner.uid == object.head.uid);
    // Earlier versions let a kind be made of itself: there is nothing else to wait for then.
    let plain = space.get(&plain_key).filter(|it| plain_key != *key && is_its(it));
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

/// The end of one whose kind is federated no more. How its copies are to be deleted nobody knows then: they stay, and so does
/// the plain object, which is nobody's.
pub async fn let_go(
    controllers: &Controllers,
    space: &Space,
    key: &Key,
    object: &Object,
) -> Result<After, Status> {
    if !super::waits_for_its_end(object) {
        return Ok(After::Done);
    }
    let Some(context) = controllers.context_for(space, key) else { return Ok(After::Done) };
    replace::edit(&context, key, &object.head.uid, |tree| {
        let metadata = write::metadata_of(tree);
        let Some(finalizers) = metadata.get_mut("finalizers").and_then(Value::as_array_mut) else { return };
        // At once: in between what belongs to it would be deleted.
        finalizers.retain(|it| it != FINALIZER && it != ORPHAN);
        finalizers.push(json!(ORPHAN));
    })
    .await?;
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
    let (Some(context), Some(there)) = (controllers.context_for(space, &plain_key), tree(plain)) else {
        return Ok(After::Done);
    };
    let keeps = translate::keeps(federated, &there, owns_what_becomes_of_copies(&there));
    let is_known = |it: api::assignment::Assignment| keeps == (it.spec.propagation == Some(Kept::Keep));
    if assignment(space, ty, key).is_some_and(|it| !is_known(it)) {
        // Copies stay, or go, only if that is known before the object goes; then this is looked at again.
        replace::edit(&context, &plain_key, &plain.head.uid, |tree| say_whether_copies_stay(tree, keeps))
            .await?;
        return Ok(After::Done);
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

fn say_whether_copies_stay(tree: &mut Tree, keeps: bool) {
    let annotations = write::metadata_of(tree).entry("annotations").or_insert_with(|| json!({}));
    if annotations.is_null() {
        *annotations = json!({});
    }
    let Some(annotations) = annotations.as_object_mut() else { return };
    match keeps {
        true => drop(annotations.insert(api::ON_DELETE_ANNOTATION.to_owned(), json!(KEEP))),
        false => drop(annotations.remove(api::ON_DELETE_ANNOTATION)),
    }
}

/// Whether what a plain object says of that was written here, of what its federated object said then. Its kind may be switched
/// off since, or there was no time yet to take it away again. What somebody else says, too, counts.
fn owns_what_becomes_of_copies(plain: &Value) -> bool {
    is_ours_alone(plain, "f:annotations", api::ON_DELETE_ANNOTATION)
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
    objects::write_status(controllers, space, key, object, &pass, message.as_str()).await
}
