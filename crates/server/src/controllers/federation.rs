//! Federated objects and registered clusters: what they become here, and what comes of that. What is to become of them
//! `dialects` says; here it is brought about.

mod end;
mod namespaces;
mod objects;
mod registers;
mod type_configs;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use api::assignment::Assignment;
use dialects::{
    CORE_GROUP, DOTTED_GROUP, FINALIZER, FederatedType, SCHEDULING_GROUP, SYSTEM_NAMESPACE, TYPED_GROUP,
    TYPES_GROUP, members::Register, report::Member,
};
use machinery::{Object, Revision, status::Status};
use serde_json::Value;
use store::{Collection, Key, Store, WorkspaceId};

use super::{After, Controllers, queue::Work};
use crate::{
    hub::{default_id, root_id},
    space::Space,
};

pub use registers::settle as settle_registered;

/// What is written here is noted under this name.
const MANAGER: &str = "federation";

/// Workspaces that use a dialect; all others cost nothing.
#[derive(Default)]
pub struct Federation {
    used: HashSet<WorkspaceId>,
    types: HashMap<WorkspaceId, (Revision, Arc<Vec<FederatedType>>)>,
}

impl Federation {
    pub fn forget(&mut self, workspace: &WorkspaceId) {
        self.used.remove(workspace);
        self.types.remove(workspace);
    }

    /// The federated kinds of a workspace, read anew when its configuration has changed.
    fn types(&mut self, store: &dyn Store, workspace: &WorkspaceId) -> Arc<Vec<FederatedType>> {
        let collection = type_configs();
        let at = store.last_change(workspace, &collection);
        if let Some((_, known)) = self.types.get(workspace).filter(|(known, _)| *known == at) {
            return known.clone();
        }
        let listed = store.list(workspace, &collection, None);
        let configs: Vec<Value> = listed
            .map(|it| it.iter(None, None).filter_map(|(_, object)| tree(object)).collect())
            .unwrap_or_default();
        let types = Arc::new(dialects::types::configured(configs.iter()));
        self.types.insert(workspace.clone(), (at, types.clone()));
        types
    }
}

fn type_configs() -> Collection {
    Collection::new(CORE_GROUP, "federatedtypeconfigs")
}

fn tree(object: &Object) -> Option<Value> {
    object.tree().ok().map(Value::Object)
}

fn find(space: &Space, key: &Key) -> Option<Value> {
    space.get(key).as_deref().and_then(tree)
}

/// Whether a label or an annotation is there because it was applied here, and nobody else has said it. `map`: which of the two, as
/// managed fields name it.
fn is_ours_alone(object: &Value, map: &str, key: &str) -> bool {
    let field = format!("f:{key}");
    let entries = object["metadata"]["managedFields"].as_array().into_iter().flatten();
    let mut owners = entries.filter(|it| it["fieldsV1"]["f:metadata"][map].get(&field).is_some()).peekable();
    owners.peek().is_some() && owners.all(|it| it["manager"] == MANAGER && it["operation"] == "Apply")
}

fn collection_of(ty: &FederatedType) -> Collection {
    Collection::new(&ty.group, &ty.plural)
}

/// What a change asks for.
pub fn observe(
    controllers: &Controllers,
    workspace: &WorkspaceId,
    key: &Key,
    old: Option<&Object>,
    new: Option<&Object>,
) {
    let (group, resource) = key.collection.parts();
    let is_cluster = (group, resource) == (api::GROUP, api::cluster::PLURAL);
    if is_cluster && (*workspace == default_id() || *workspace == root_id()) {
        let used: Vec<WorkspaceId> = controllers.federation.lock().used.iter().cloned().collect();
        used.iter().for_each(|used| observe_cluster(controllers, used, key, old, new));
        return;
    }
    let types = {
        let mut federation = controllers.federation.lock();
        let is_its_namespace = (group, resource, key.item.name()) == ("", "namespaces", SYSTEM_NAMESPACE);
        if dialects::is_dialect(group) || is_its_namespace || new.is_some_and(waits_for_its_end) {
            federation.used.insert(workspace.clone());
        }
        if !federation.used.contains(workspace) {
            return;
        }
        federation.types(&*controllers.hub.store, workspace)
    };
    match (group, resource) {
        _ if is_cluster => observe_cluster(controllers, workspace, key, old, new),
        (api::GROUP, api::assignment::PLURAL) => {
            let assigned = new.or(old).and_then(|it| controllers.hub.assignments.read(it).ok());
            let namespace = key.item.namespace();
            let federated = Key::new(TYPES_GROUP, "federatednamespaces", namespace, namespace);
            let stored = controllers.hub.store.get(workspace, &federated);
            if stored.is_some_and(|it| it.head.deleting) {
                // It may have waited for this.
                controllers.queue.add(Work::Federated(workspace.clone(), federated));
            }
            if let Some(assigned) = assigned.as_ref().map(|it| &it.spec.object) {
                let of_it = types.iter().filter(|ty| ty.is_for(assigned.group(), &assigned.resource));
                of_it.for_each(|ty| add(controllers, workspace, ty, namespace, &assigned.name));
            }
        }
        (CORE_GROUP, "kubefedconfigs") => add_all(controllers, workspace, &types, None),
        (CORE_GROUP, "federatedtypeconfigs") => {
            controllers.queue.add(Work::Federated(workspace.clone(), key.clone()));
            // What it says of itself is no news.
            let says = |it: Option<&Object>| it.map(|it| (it.head.generation, it.head.deleting));
            if says(old) != says(new) {
                // Elsewhere it is at most about what is left of a kind.
                let counts = key.item.namespace() == SYSTEM_NAMESPACE;
                let about: Vec<_> = types.iter().filter(|ty| counts || ty.disabled).cloned().collect();
                add_all(controllers, workspace, &about, None);
            }
            if let Some(gone) = old.filter(|_| new.is_none()).and_then(tree) {
                add_ending(controllers, workspace, &gone);
            }
        }
        ("", "namespaces") if key.item.name() == SYSTEM_NAMESPACE => {
            registers::add_all(controllers, workspace)
        }
        _ => {
            observe_object(controllers, workspace, &types, key);
            if new.is_some_and(waits_for_its_end) {
                // Its kind may be federated no more.
                controllers.queue.add(Work::Federated(workspace.clone(), key.clone()));
            }
        }
    }
}

fn observe_object(controllers: &Controllers, workspace: &WorkspaceId, types: &[FederatedType], key: &Key) {
    let (group, resource) = key.collection.parts();
    let (namespace, name) = (key.item.namespace(), key.item.name());
    if Register::of(group, resource).is_some() {
        controllers.queue.add(Work::Registered(workspace.clone(), key.clone()));
        return;
    }
    for ty in types {
        if ty.is_at(group, resource) {
            add(controllers, workspace, ty, namespace, name);
            if ty.is_namespace() {
                add_all(controllers, workspace, types, Some(namespace));
            }
        } else if ty.is_for(group, resource) {
            let namespace = if ty.is_namespace() { name } else { namespace };
            add(controllers, workspace, ty, namespace, name);
        } else if is_beside(ty, group, resource) {
            add(controllers, workspace, ty, namespace, name);
        }
    }
}

/// Whether it says a part of what an object of the type says.
fn is_beside(ty: &FederatedType, group: &str, resource: &str) -> bool {
    match group {
        TYPED_GROUP | DOTTED_GROUP => {
            ty.group == group && (ty.beside("placements") == resource || ty.beside("overrides") == resource)
        }
        SCHEDULING_GROUP => {
            ty.group == TYPES_GROUP && matches!(ty.target_plural.as_str(), "deployments" | "replicasets")
        }
        _ => false,
    }
}

fn add(controllers: &Controllers, workspace: &WorkspaceId, ty: &FederatedType, namespace: &str, name: &str) {
    let key = Key::new(&ty.group, &ty.plural, namespace, name);
    controllers.queue.add(Work::Federated(workspace.clone(), key));
}

fn waits_for_its_end(object: &Object) -> bool {
    object.head.deleting && object.head.finalizers.iter().any(|it| it == FINALIZER)
}

/// Those that were being deleted when the config of their kind went.
fn add_ending(controllers: &Controllers, workspace: &WorkspaceId, config: &Value) {
    let (group, plural) = dialects::types::federated_kind(config);
    let collection = Collection::new(&group, &plural);
    let Ok(listing) = controllers.hub.store.list(workspace, &collection, None) else { return };
    for (item, _) in listing.iter(None, None).filter(|(_, object)| waits_for_its_end(object)) {
        let key = Key::new(&group, &plural, item.namespace(), item.name());
        controllers.queue.add(Work::Federated(workspace.clone(), key));
    }
}

/// Those of a namespace, or of all.
fn add_all(
    controllers: &Controllers,
    workspace: &WorkspaceId,
    types: &[FederatedType],
    namespace: Option<&str>,
) {
    for ty in types {
        let Ok(listing) = controllers.hub.store.list(workspace, &collection_of(ty), None) else { continue };
        for (item, _) in listing.iter(namespace, None) {
            add(controllers, workspace, ty, item.namespace(), item.name());
        }
    }
}

/// That it answered again is no news; that it can be used, or is another by its labels, is.
fn observe_cluster(
    controllers: &Controllers,
    workspace: &WorkspaceId,
    key: &Key,
    old: Option<&Object>,
    new: Option<&Object>,
) {
    registers::add_named(controllers, workspace, key.item.name());
    let usable = |object: Option<&Object>| {
        let tree = object.and_then(tree).unwrap_or_default();
        let ready = api::cluster::condition(&tree, api::cluster::condition::READY);
        (ready.map(|it| it["status"].clone()), tree["metadata"]["labels"].clone())
    };
    if usable(old) != usable(new) {
        let types = controllers.federation.lock().types(&*controllers.hub.store, workspace);
        add_all(controllers, workspace, &types, None);
    }
}

/// Looks at one federated object, or at what says that there are some of a kind.
pub async fn settle(controllers: &Controllers, space: &Space, key: &Key) -> Result<After, Status> {
    if key.collection == type_configs() {
        return type_configs::settle(controllers, space, key).await;
    }
    let types = controllers.federation.lock().types(&*controllers.hub.store, space.id());
    let (group, plural) = key.collection.parts();
    let Some(object) = space.get(key) else { return Ok(After::Done) };
    let Some(ty) = types.iter().find(|ty| ty.is_at(group, plural)) else {
        // What could never be a federated kind has its finalizer from somebody else.
        return match dialects::types::refusal(group, plural) {
            None => end::let_go(controllers, space, key, &object).await,
            Some(_) => Ok(After::Done),
        };
    };
    match ty.is_namespace() {
        true => namespaces::settle(controllers, space, ty, key, &object).await,
        false => objects::settle(controllers, space, ty, key, &object).await,
    }
}

/// Whether the status of each copy is shown. A kind without any has nothing to wait for.
fn collects(controllers: &Controllers, space: &Space, ty: &FederatedType) -> bool {
    let served = controllers.hub.served(space);
    let resource = served.registry.find_kind(&ty.target_api_version, &ty.target_kind);
    ty.collects_status && resource.is_some_and(|it| it.has_status())
}

/// The clusters that a workspace can use.
fn members(controllers: &Controllers, space: &Space) -> Vec<Member> {
    let collection = Collection::new(api::GROUP, api::cluster::PLURAL);
    let mut members: Vec<Member> = Vec::new();
    let mut places = vec![space.id().clone(), default_id(), root_id()];
    places.dedup();
    for place in places {
        let is_own = place == *space.id();
        let Ok(listing) = controllers.hub.store.list(&place, &collection, None) else { continue };
        for (item, object) in listing.iter(None, None) {
            let Some(cluster) = tree(object).filter(|_| !members.iter().any(|it| it.name == item.name()))
            else {
                continue;
            };
            let accounts = cluster["spec"]["accounts"].as_array().map(Vec::as_slice).unwrap_or_default();
            if !is_own && !accounts.is_empty() && !accounts.iter().any(|it| *it == space.name()) {
                continue;
            }
            let ready = api::cluster::condition(&cluster, api::cluster::condition::READY);
            members.push(Member {
                name: item.name().to_owned(),
                labels: object.head.labels.to_vec(),
                ready: ready.is_some_and(|it| it["status"] == "True"),
            });
        }
    }
    members
}

fn assignment_key(ty: &FederatedType, namespace: &str, name: &str) -> Key {
    let name = api::assignment::name_of(&ty.target_group, &ty.target_plural, name);
    Key::new(api::GROUP, api::assignment::PLURAL, namespace, &name)
}

fn assignment(space: &Space, ty: &FederatedType, key: &Key) -> Option<Assignment> {
    let stored = space.get(&assignment_key(ty, key.item.namespace(), key.item.name()))?;
    Assignment::read(&stored).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// What somebody wants as it is stays so though it was applied here as well.
    #[test]
    fn what_others_have_said_too_is_not_ours_alone() {
        let entry = |manager: &str, operation: &str, key: &str| {
            let fields = json!({"f:metadata": {"f:annotations": {".": {}, format!("f:{key}"): {}}}});
            json!({"manager": manager, "operation": operation, "fieldsV1": fields})
        };
        let on_delete = api::ON_DELETE_ANNOTATION;
        let ours = || entry(MANAGER, "Apply", on_delete);
        let rows = [
            (json!([ours()]), true),
            (json!([entry("kubectl", "Apply", "other"), ours()]), true),
            (json!([ours(), entry("kubectl", "Apply", on_delete)]), false),
            (json!([entry("kubectl-annotate", "Update", on_delete), ours()]), false),
            (json!([entry("kubectl", "Apply", on_delete)]), false),
            (json!([entry(MANAGER, "Update", on_delete)]), false),
            (json!([]), false),
            (Value::Null, false),
            (json!(["odd"]), false),
        ];
        for (entries, is_ours) in rows {
            let object = json!({"metadata": {"managedFields": entries}});
            assert_eq!(is_ours_alone(&object, "f:annotations", on_delete), is_ours, "{object}");
            assert!(!is_ours_alone(&object, "f:labels", on_delete));
        }
    }
}
