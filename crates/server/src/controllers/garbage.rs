//! Garbage collection: what becomes of objects when those they belong to go.
//!
//! An owner counts as gone only on evidence: its place in the store is empty, or holds an object with another UID.
//! An owner of a kind that this workspace does not serve is unknown, and unknown is not gone. Nor is one gone that a
//! member may have which is not seen now.

use std::collections::{HashMap, HashSet};

use compact_str::CompactString;
use machinery::{
    Object, Owner,
    status::{Reason, Status},
};
use serde_json::Value;
use store::{Key, WorkspaceId};

use super::{
    Controllers,
    queue::{Queue, Work},
};
use crate::{
    admission::Notes,
    delete::{self, FOREGROUND, ORPHAN, Options, Propagation},
    registry::Registry,
    replace,
    space::Space,
    views::Presence,
};

type Uid = CompactString;

/// Who belongs to whom, by the UID of the owner. Only objects with owners are in it.
#[derive(Default)]
pub struct Owners {
    dependents: HashMap<WorkspaceId, HashMap<Uid, HashSet<Key>>>,
}

impl Owners {
    /// Notes a change. Returns the owners the object no longer belongs to, or no longer holds up: they may wait for
    /// that.
    pub fn observe(
        &mut self,
        workspace: &WorkspaceId,
        key: &Key,
        old: Option<&Object>,
        new: Option<&Object>,
        queue: &Queue,
    ) -> Vec<Owner> {
        let owners = |object: Option<&Object>| object.map_or(&[][..], |object| &object.head.owners).to_vec();
        let (before, after) = (owners(old), owners(new));
        // Some have thousands of owners.
        let holds_up: HashMap<&Uid, bool> =
            after.iter().map(|owner| (&owner.uid, owner.block_owner_deletion)).collect();
        let mut woken = Vec::new();
        for owner in before {
            match holds_up.get(&owner.uid) {
                None => {
                    self.remove(workspace, &owner.uid, key);
                    woken.push(owner);
                }
                // An owner that this object no longer holds up may go as well.
                Some(false) if owner.block_owner_deletion => woken.push(owner),
                Some(_) => {}
            }
        }
        for owner in &after {
            let owners = self.dependents.entry(workspace.clone()).or_default();
            owners.entry(owner.uid.clone()).or_default().insert(key.clone());
        }
        if !after.is_empty() {
            queue.add(Work::Dependent(workspace.clone(), key.clone()));
        }
        match new {
            Some(object) if object.head.deleting && waits_for_dependents(object) => {
                queue.add(Work::Owner(workspace.clone(), key.clone()));
            }
            Some(_) => {}
            None => {
                if let Some(object) = old {
                    self.gone(workspace, &object.head.uid, queue);
                }
            }
        }
        woken
    }

    /// The object with `uid` is gone: whatever belongs to it is looked at.
    pub fn gone(&self, workspace: &WorkspaceId, uid: &Uid, queue: &Queue) {
        for dependent in self.of(workspace, uid) {
            queue.add(Work::Dependent(workspace.clone(), dependent));
        }
    }

    fn remove(&mut self, workspace: &WorkspaceId, owner: &Uid, key: &Key) {
        let Some(owners) = self.dependents.get_mut(workspace) else { return };
        if let Some(keys) = owners.get_mut(owner) {
            keys.remove(key);
            if keys.is_empty() {
                owners.remove(owner);
            }
        }
        if owners.is_empty() {
            self.dependents.remove(workspace);
        }
    }

    pub fn of(&self, workspace: &WorkspaceId, owner: &Uid) -> Vec<Key> {
        let keys = self.dependents.get(workspace).and_then(|owners| owners.get(owner));
        keys.into_iter().flatten().cloned().collect()
    }

    pub fn forget(&mut self, workspace: &WorkspaceId) {
        self.dependents.remove(workspace);
    }
}

/// An owner that an object let go of may have waited for that.
pub fn wake(controllers: &Controllers, space: &Space, dependent: &Key, owner: &Owner) {
    if let Some(key) = key_of(&controllers.hub.served(space).registry, owner, dependent) {
        controllers.queue.add(Work::Owner(space.id().clone(), key));
    }
}

fn waits_for_dependents(object: &Object) -> bool {
    object.head.finalizers.iter().any(|it| it == ORPHAN || it == FOREGROUND)
}

fn has_finalizer(object: &Object, name: &str) -> bool {
    object.head.finalizers.iter().any(|it| it == name)
}

/// What is known of an owner.
enum OwnerState {
    /// There, or of a kind not known here.
    Solid,
    /// There, and waits for its dependents to go first.
    Waiting,
    /// Its place is empty, or another object is there.
    Gone,
    /// A member may have it that cannot be asked now.
    OutOfSight,
}

/// Where an owner is. `None`: of a kind not served here, or a cluster-scoped object that claims to belong to a
/// namespaced one; either way there is no evidence that it is gone.
pub fn key_of(registry: &Registry, owner: &Owner, dependent: &Key) -> Option<Key> {
    let resource = registry.find_kind(&owner.api_version, &owner.kind)?;
    let namespace = if resource.namespaced { dependent.item.namespace() } else { "" };
    if resource.namespaced && namespace.is_empty() {
        return None;
    }
    Some(Key::new(&resource.stored_group, &resource.plural, namespace, &owner.name))
}

fn state_of(controllers: &Controllers, space: &Space, owner: &Owner, dependent: &Key) -> OwnerState {
    let Some(key) = key_of(&controllers.hub.served(space).registry, owner, dependent) else {
        return OwnerState::Solid;
    };
    match space.get(&key) {
        Some(object) if object.head.uid == owner.uid => {
            if object.head.deleting && has_finalizer(&object, FOREGROUND) {
                OwnerState::Waiting
            } else {
                OwnerState::Solid
            }
        }
        _ => match controllers.hub.views.presence(space, &key, &owner.uid) {
            None | Some(Presence::Gone) => OwnerState::Gone,
            Some(Presence::Here) => OwnerState::Solid,
            Some(Presence::Unknown) => OwnerState::OutOfSight,
        },
    }
}

/// Looks whether an object still belongs to anybody, and deletes it if not.
pub async fn check_dependent(controllers: &Controllers, space: &Space, key: &Key) -> Result<(), Status> {
    let Some(object) = space.get(key) else {
        return Ok(());
    };
    let Some(context) = controllers.context_for(space, key) else { return Ok(()) };
    if object.head.owners.is_empty() {
        return Ok(());
    }
    let mut lost: Vec<Uid> = Vec::new();
    let mut waiting: Vec<(Uid, bool)> = Vec::new();
    let mut solid = false;
    for owner in &object.head.owners {
        match state_of(controllers, space, owner, key) {
            OwnerState::Solid => solid = true,
            OwnerState::Gone => lost.push(owner.uid.clone()),
            OwnerState::Waiting => waiting.push((owner.uid.clone(), owner.block_owner_deletion)),
            OwnerState::OutOfSight => {
                let message = format!("the owner {:?} may be in a cluster that is not seen now", owner.name);
                return Err(Status::new(Reason::ServiceUnavailable, message));
            }
        }
    }
    if lost.is_empty() && waiting.is_empty() {
        return Ok(());
    }
    if solid {
        // It still belongs to somebody: only the references to the others go.
        let dropped: Vec<Uid> = lost.into_iter().chain(waiting.iter().map(|(uid, _)| uid.clone())).collect();
        replace::edit(&context, key, &object.head.uid, |tree| drop_owners(tree, &dropped)).await?;
    } else if waiting.iter().any(|(_, blocks)| *blocks) && is_in_circle(controllers, space, key, &object) {
        // Everybody in it waits for everybody else. Whoever notices lets go, and is looked at again.
        replace::edit(&context, key, &object.head.uid, release_owners).await?;
    } else if !object.head.deleting {
        let has_dependents = !controllers.owners.lock().of(space.id(), &object.head.uid).is_empty();
        let blocking = waiting.iter().any(|(_, blocks)| *blocks);
        let propagation = match (has_finalizer(&object, ORPHAN), has_finalizer(&object, FOREGROUND)) {
            (true, _) => Propagation::Orphan,
            (_, true) => Propagation::Foreground,
            // Its owner waits until all below it is gone, so it waits for its own dependents in turn.
            _ if blocking && has_dependents => Propagation::Foreground,
            _ => Propagation::Background,
        };
        let options = Options {
            propagation: Some(propagation),
            uid: Some(object.head.uid.to_string()),
            revision: Some(object.revision.to_string()),
            ..Options::default()
        };
        match delete::delete_one(&context, key, &options, &mut Notes::default()).await {
            Ok(_) => {
                controllers.hub.metrics.collected.inc();
            }
            Err(status) if status.code() == 404 => {}
            Err(status) => return Err(status),
        }
    }
    // An owner that waits is woken when this object goes or lets go of it; asking it here would go round in circles.
    Ok(())
}

/// How far up a circle is looked for.
const LONGEST_CIRCLE: usize = 1000;

/// Whether the object belongs, by way of its owners that wait for it, to itself.
fn is_in_circle(controllers: &Controllers, space: &Space, key: &Key, object: &Object) -> bool {
    let served = controllers.hub.served(space);
    let mut seen: HashSet<Key> = HashSet::new();
    let mut above = vec![(key.clone(), object.head.owners.to_vec())];
    while let Some((dependent, owners)) = above.pop() {
        for owner in owners.iter().filter(|owner| owner.block_owner_deletion) {
            if owner.uid == object.head.uid {
                return true;
            }
            let Some(owner_key) = key_of(&served.registry, owner, &dependent) else { continue };
            let known = space.get(&owner_key).filter(|it| it.head.uid == owner.uid);
            let Some(found) = known else { continue };
            if seen.len() < LONGEST_CIRCLE && seen.insert(owner_key.clone()) {
                above.push((owner_key, found.head.owners.to_vec()));
            }
        }
    }
    false
}

/// The object goes on belonging to its owners, but they need not wait for it.
fn release_owners(tree: &mut serde_json::Map<String, Value>) {
    let owners = tree.get_mut("metadata").and_then(|metadata| metadata.get_mut("ownerReferences"));
    for owner in owners.and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(owner) = owner.as_object_mut() {
            owner.insert("blockOwnerDeletion".into(), Value::Bool(false));
        }
    }
}

fn drop_owners(tree: &mut serde_json::Map<String, Value>, uids: &[Uid]) {
    let Some(metadata) = tree.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    if let Some(owners) = metadata.get_mut("ownerReferences").and_then(Value::as_array_mut) {
        owners.retain(|owner| owner["uid"].as_str().is_none_or(|uid| !uids.iter().any(|it| it == uid)));
        if owners.is_empty() {
            metadata.remove("ownerReferences");
        }
    }
}

pub fn drop_finalizer(tree: &mut serde_json::Map<String, Value>, name: &str) {
    let Some(metadata) = tree.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    if let Some(finalizers) = metadata.get_mut("finalizers").and_then(Value::as_array_mut) {
        finalizers.retain(|finalizer| finalizer != name);
        if finalizers.is_empty() {
            metadata.remove("finalizers");
        }
    }
}

/// Brings an object that is being deleted nearer to its end: orphans its dependents, or waits until they are gone.
pub async fn finish_owner(controllers: &Controllers, space: &Space, key: &Key) -> Result<(), Status> {
    let Some(object) = space.get(key).filter(|object| object.head.deleting) else { return Ok(()) };
    let Some(context) = controllers.context_for(space, key) else { return Ok(()) };
    let dependents = controllers.owners.lock().of(space.id(), &object.head.uid);
    if has_finalizer(&object, ORPHAN) {
        for dependent in dependents {
            let Some(child) = space.get(&dependent) else { continue };
            let Some(child_context) = controllers.context_for(space, &dependent) else { continue };
            let uids = [object.head.uid.clone()];
            replace::edit(&child_context, &dependent, &child.head.uid, |tree| drop_owners(tree, &uids))
                .await?;
        }
        return replace::edit(&context, key, &object.head.uid, |tree| drop_finalizer(tree, ORPHAN)).await;
    }
    if has_finalizer(&object, FOREGROUND) {
        let mut blocked = false;
        for dependent in dependents {
            let Some(child) = space.get(&dependent) else { continue };
            let owner = child.head.owners.iter().find(|owner| owner.uid == object.head.uid);
            blocked |= owner.is_some_and(|owner| owner.block_owner_deletion);
            controllers.queue.add(Work::Dependent(space.id().clone(), dependent));
        }
        if !blocked {
            return replace::edit(&context, key, &object.head.uid, |tree| drop_finalizer(tree, FOREGROUND))
                .await;
        }
    }
    Ok(())
}
