//! Clusters that are written down in KubeFed's words or the registry's: each becomes a `Cluster`, and hears how it is.

use dialects::{
    SYSTEM_NAMESPACE,
    members::{
        self, FINALIZER, KUBEFED_PLURAL, MADE_FROM_ANNOTATION, NotFollowed, REGISTERS, Register,
        SHOWS_ANNOTATION,
    },
};
use machinery::{Object, status::Status};
use serde_json::{Value, json};
use store::{Collection, Key, WorkspaceId};

use super::{After, Controllers, find, objects, tree};
use crate::{
    admission::Notes,
    controllers::{garbage::drop_finalizer, queue::Work},
    delete::{self, Options},
    replace,
    space::Space,
    write,
};

fn cluster_key(name: &str) -> Key {
    Key::new(api::GROUP, api::cluster::PLURAL, "", name)
}

fn add(controllers: &Controllers, workspace: &WorkspaceId, key: Key) {
    controllers.queue.add(Work::Registered(workspace.clone(), key));
}

/// Whatever is registered under the name, and what would show a cluster of that name.
pub fn add_named(controllers: &Controllers, workspace: &WorkspaceId, name: &str) {
    for register in REGISTERS {
        let (group, plural) = register.collection();
        let Ok(listing) = controllers.hub.store.list(workspace, &Collection::new(group, plural), None) else {
            continue;
        };
        for (item, _) in listing.iter(None, None).filter(|(item, _)| item.name() == name) {
            add(
                controllers,
                workspace,
                Key { collection: Collection::new(group, plural), item: item.clone() },
            );
        }
    }
    add(controllers, workspace, Key::new(dialects::CORE_GROUP, KUBEFED_PLURAL, SYSTEM_NAMESPACE, name));
}

/// Every cluster of the workspace.
pub fn add_all(controllers: &Controllers, workspace: &WorkspaceId) {
    let collection = Collection::new(api::GROUP, api::cluster::PLURAL);
    let Ok(listing) = controllers.hub.store.list(workspace, &collection, None) else { return };
    listing.iter(None, None).for_each(|(item, _)| add_named(controllers, workspace, item.name()));
}

/// Looks at one registered cluster.
pub async fn settle(controllers: &Controllers, space: &Space, key: &Key) -> Result<After, Status> {
    let (group, plural) = key.collection.parts();
    let Some(register) = Register::of(group, plural) else { return Ok(After::Done) };
    let Some(object) = space.get(key) else {
        show(controllers, space, key).await?;
        return Ok(After::Done);
    };
    let Some(registered) = tree(&object) else { return Ok(After::Done) };
    let cluster = find(space, &cluster_key(key.item.name()));
    let is_shown = register == Register::KubeFed && key.item.namespace() == register.namespace();
    if is_shown && registered["metadata"]["annotations"][SHOWS_ANNOTATION].is_string() {
        return mirror(controllers, space, key, &object, cluster.as_ref()).await;
    }
    if object.head.deleting {
        return end(controllers, space, key, &object).await;
    }
    let is_anothers =
        |it: &Value| !is_made_of(it, &object) && !was_made_elsewhere(space, register, key.item.name(), it);
    let made = match (&cluster, members::cluster(register, &registered)) {
        (_, Err(why)) => Err(why),
        (Some(cluster), _) if is_anothers(cluster) => Ok(()),
        (_, Ok(wanted)) => {
            hold(controllers, space, key, &object).await?;
            objects::apply(controllers, space, &cluster_key(key.item.name()), &wanted)
                .await
                .map_err(|status| status.to_string())
        }
    };
    let cluster = find(space, &cluster_key(key.item.name()));
    let is_joined = cluster.as_ref().is_some_and(|it| is_made_of(it, &object));
    let known = match (made, &cluster) {
        (Err(why), _) => Err(NotFollowed { why, is_joined }),
        (Ok(()), Some(cluster)) => Ok(cluster),
        (Ok(()), None) => Err(NotFollowed { why: "it is about to be joined".to_owned(), is_joined }),
    };
    tell(controllers, space, register, key, &object, known.as_ref().copied()).await?;
    Ok(After::Done)
}

fn is_made_of(cluster: &Value, entry: &Object) -> bool {
    cluster["metadata"]["annotations"][MADE_FROM_ANNOTATION] == *entry.head.uid.as_str()
}

/// Whether a cluster was made of an entry of its name in a namespace that does not count, as all did in earlier versions: then the
/// one that counts takes it over, as it is. Of one that goes already it is made anew.
fn was_made_elsewhere(space: &Space, register: Register, name: &str, cluster: &Value) -> bool {
    if !cluster["metadata"]["deletionTimestamp"].is_null() {
        return false;
    }
    let (group, plural) = register.collection();
    let entries = space.latest(&Collection::new(group, plural));
    let mut elsewhere = entries
        .iter(None, None)
        .filter(|(item, _)| item.name() == name && item.namespace() != register.namespace());
    elsewhere.any(|(_, entry)| is_made_of(cluster, entry))
}

async fn hold(controllers: &Controllers, space: &Space, key: &Key, object: &Object) -> Result<(), Status> {
    if object.head.finalizers.iter().any(|it| it == FINALIZER) {
        return Ok(());
    }
    let Some(context) = controllers.context_for(space, key) else { return Ok(()) };
    replace::edit(&context, key, &object.head.uid, |tree| {
        let finalizers = write::metadata_of(tree).entry("finalizers").or_insert_with(|| json!([]));
        if let Some(list) = finalizers.as_array_mut().filter(|list| !list.iter().any(|it| it == FINALIZER)) {
            list.push(json!(FINALIZER));
        }
    })
    .await
}

async fn tell(
    controllers: &Controllers,
    space: &Space,
    register: Register,
    key: &Key,
    object: &Object,
    known: Result<&Value, &NotFollowed>,
) -> Result<(), Status> {
    let Some(context) = controllers.context_for(space, key) else { return Ok(()) };
    let now = controllers.hub.now_text();
    replace::edit(&context, key, &object.head.uid, |tree| {
        let before = tree.get("status").cloned().unwrap_or_default();
        tree.insert("status".into(), members::status(register, &before, known, &now));
    })
    .await
}

/// The cluster is let go of; what runs there goes on.
async fn end(controllers: &Controllers, space: &Space, key: &Key, object: &Object) -> Result<After, Status> {
    let place = cluster_key(key.item.name());
    let made = space.get(&place).filter(|it| tree(it).is_some_and(|it| is_made_of(&it, object)));
    if let (Some(cluster), Some(context)) = (made, controllers.context_for(space, &place)) {
        // Another entry may take it over meanwhile.
        let options = Options {
            uid: Some(cluster.head.uid.to_string()),
            revision: Some(cluster.revision.to_string()),
            ..Options::default()
        };
        match delete::delete_one(&context, &place, &options, &mut Notes::default()).await {
            Ok(_) => {}
            Err(status) if status.code() == 404 => {}
            Err(status) => return Err(status),
        }
    }
    let Some(context) = controllers.context_for(space, key) else { return Ok(After::Done) };
    replace::edit(&context, key, &object.head.uid, |tree| drop_finalizer(tree, FINALIZER)).await?;
    Ok(After::Done)
}

/// A cluster that was joined otherwise shows beside the others where KubeFed's namespace is.
async fn show(controllers: &Controllers, space: &Space, key: &Key) -> Result<(), Status> {
    let (group, plural) = key.collection.parts();
    let is_place =
        (group, plural, key.item.namespace()) == (dialects::CORE_GROUP, KUBEFED_PLURAL, SYSTEM_NAMESPACE);
    let namespace = space.get(&Key::new("", "namespaces", "", SYSTEM_NAMESPACE));
    if !is_place || namespace.is_none_or(|it| it.head.deleting) {
        return Ok(());
    }
    let Some(cluster) = find(space, &cluster_key(key.item.name())) else { return Ok(()) };
    let is_joined_otherwise = !cluster["metadata"]["annotations"][MADE_FROM_ANNOTATION].is_string();
    match is_joined_otherwise && cluster["metadata"]["deletionTimestamp"].is_null() {
        true => objects::apply(controllers, space, key, &members::shown(&cluster)).await,
        false => Ok(()),
    }
}

/// It is as the cluster that it shows, and goes with it.
async fn mirror(
    controllers: &Controllers,
    space: &Space,
    key: &Key,
    object: &Object,
    cluster: Option<&Value>,
) -> Result<After, Status> {
    let Some(cluster) = cluster else {
        let Some(context) = controllers.context_for(space, key) else { return Ok(After::Done) };
        let options = Options { uid: Some(object.head.uid.to_string()), ..Options::default() };
        return match delete::delete_one(&context, key, &options, &mut Notes::default()).await {
            Ok(_) => Ok(After::Done),
            Err(status) if status.code() == 404 => Ok(After::Done),
            Err(status) => Err(status),
        };
    };
    objects::apply(controllers, space, key, &members::shown(cluster)).await?;
    tell(controllers, space, Register::KubeFed, key, object, Ok(cluster)).await?;
    Ok(After::Done)
}
