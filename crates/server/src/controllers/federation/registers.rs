//! Clusters that are written down in KubeFed's words or the registry's: each becomes a `Cluster`, and hears how it is.

use dialects::{
    SYSTEM_NAMESPACE,
    members::{self, FINALIZER, KUBEFED_PLURAL, MADE_FROM_ANNOTATION, REGISTERS, Register, SHOWS_ANNOTATION},
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
    let is_ours =
        |it: &Value| it["metadata"]["annotations"][MADE_FROM_ANNOTATION] == *object.head.uid.as_str();
    if object.head.deleting {
        return end(controllers, space, key, &object, cluster.filter(is_ours).as_ref()).await;
    }
    let made = match (&cluster, members::cluster(register, &registered)) {
        (_, Err(why)) => Err(why),
        (Some(cluster), _) if !is_ours(cluster) => Ok(()),
        (_, Ok(wanted)) => {
            hold(controllers, space, key, &object).await?;
            objects::apply(controllers, space, &cluster_key(key.item.name()), &wanted)
                .await
                .map_err(|status| status.to_string())
        }
    };
    let cluster = find(space, &cluster_key(key.item.name()));
    let known = match (&made, &cluster) {
        (Err(why), _) => Err(why.as_str()),
        (Ok(()), Some(cluster)) => Ok(cluster),
        (Ok(()), None) => Err("it is about to be joined"),
    };
    tell(controllers, space, register, key, &object, known).await?;
    Ok(After::Done)
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
    known: Result<&Value, &str>,
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
async fn end(
    controllers: &Controllers,
    space: &Space,
    key: &Key,
    object: &Object,
    cluster: Option<&Value>,
) -> Result<After, Status> {
    let place = cluster_key(key.item.name());
    if let (Some(cluster), Some(context)) = (cluster, controllers.context_for(space, &place)) {
        let uid = cluster["metadata"]["uid"].as_str().map(str::to_owned);
        let options = Options { uid, ..Options::default() };
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
