//! A federated namespace: in which clusters the namespace is, and all that is federated in it may be. The namespace
//! itself is neither made nor deleted by it.

use std::collections::BTreeSet;

use api::assignment::Assignment;
use dialects::{
    FINALIZER, FederatedType,
    report::{self, Facts, status},
    translate::{self, KEEP},
};
use kinds::propagation::Pass;
use machinery::{Object, status::Status};
use placement::{Choice, dialect};
use serde_json::{Value, json};
use store::{Collection, Key};

use super::{
    After, Controllers, assignment, collects, is_ours_alone, members, objects, objects::Words, tree,
};
use crate::{controllers::garbage::drop_finalizer, replace, space::Space};

/// Clusters have these themselves.
fn is_every_clusters(namespace: &str) -> bool {
    namespace == "default" || namespace.starts_with("kube-")
}

pub async fn settle(
    controllers: &Controllers,
    space: &Space,
    ty: &FederatedType,
    key: &Key,
    object: &Object,
) -> Result<After, Status> {
    let namespace = key.item.namespace();
    let Some(federated) = tree(object) else { return Ok(After::Done) };
    if key.item.name() != namespace {
        let reason = "InvalidName".to_owned();
        let pass = Pass { generation: object.head.generation, reason, ..Pass::default() };
        let message =
            format!("the name of a federated namespace must be that of its namespace, {namespace:?}");
        objects::write_status(controllers, space, key, object, &pass, message.as_str()).await?;
        return Ok(After::Done);
    }
    if object.head.deleting {
        return end(controllers, space, ty, key, object).await;
    }
    if ty.disabled {
        return Ok(After::Done);
    }
    objects::hold(controllers, space, key, object).await?;
    let members = members(controllers, space);
    let choice = match dialect::kubefed_choice(&federated["spec"]["placement"]) {
        Ok(choice) => choice,
        Err(problem) => {
            let reason = report::COMPUTE_PLACEMENT_FAILED.to_owned();
            let pass = Pass { generation: object.head.generation, reason, ..Pass::default() };
            objects::write_status(controllers, space, key, object, &pass, problem.to_string().as_str())
                .await?;
            return Ok(After::Done);
        }
    };
    if is_every_clusters(namespace) {
        let pass = Pass { generation: object.head.generation, ..Pass::default() };
        objects::write_status(controllers, space, key, object, &pass, "").await?;
        return Ok(After::Done);
    }
    let meant = members.iter().filter(|it| choice.holds(&it.name, &it.labels));
    let names: Vec<String> = meant.map(|it| it.name.clone()).collect();
    let refused = match mark(controllers, space, namespace, &federated, Some(&names)).await {
        Ok(()) => None,
        Err(status) if objects::is_refusal(&status) => Some(status.to_string()),
        Err(status) => return Err(status),
    };
    let assignment = assignment(space, ty, key);
    let choice = Choice::names(names);
    let facts = Facts {
        generation: object.head.generation,
        plain_generation: 0,
        edition: String::new(),
        choice: &choice,
        shares: None,
        overridden: Vec::new(),
        assignment: assignment.as_ref(),
        members: &members,
        collects: collects(controllers, space, ty),
        before: &federated["status"],
        namespace_not_federated: false,
    };
    let pass = match refused {
        Some(_) => report::failed(&facts, status::COMPUTE_FAILED),
        None => report::pass(&facts),
    };
    let there = space.get(&Key::new("", "namespaces", "", namespace)).as_deref().and_then(tree);
    let note = there.map(|it| translate::left_out(&federated, &it)).unwrap_or_default();
    let words = Words { note: &note, ..refused.as_deref().unwrap_or_default().into() };
    objects::write_status(controllers, space, key, object, &pass, words).await?;
    Ok(After::Done)
}

/// Says on the namespace where it is to be, and whether it stays there when it is deleted; `None`: where is not said any more.
async fn mark(
    controllers: &Controllers,
    space: &Space,
    namespace: &str,
    federated: &Value,
    clusters: Option<&[String]>,
) -> Result<(), Status> {
    let key = Key::new("", "namespaces", "", namespace);
    let Some(there) = space.get(&key).filter(|it| !it.head.deleting) else { return Ok(()) };
    let namespace_now = tree(&there).unwrap_or_default();
    let mut labels =
        translate::kept_pod_security(&namespace_now, |key| is_ours_alone(&namespace_now, "f:labels", key));
    let mut wanted = json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "uid": there.head.uid},
    });
    if !labels.is_empty() {
        // What is said of pod security by somebody else meanwhile must not be undone.
        wanted["metadata"]["resourceVersion"] = json!(there.revision.to_string());
    }
    if translate::orphans(federated) {
        wanted["metadata"]["annotations"][api::ON_DELETE_ANNOTATION] = json!(KEEP);
    }
    if let Some(clusters) = clusters {
        let named: Value = clusters.iter().map(|name| json!({"name": name})).collect();
        let said = json!({"placement": {"clusters": named}}).to_string();
        wanted["metadata"]["annotations"][api::FEDERATED_ANNOTATION] = json!(said);
        // They are for clusters. Where there are none, those that cannot be must not stand in the way.
        if !clusters.is_empty() {
            labels.append(&mut translate::namespace_labels(federated));
        }
    }
    if !labels.is_empty() {
        wanted["metadata"]["labels"] = labels.into();
    }
    objects::apply(controllers, space, &key, &wanted).await
}

/// It goes from all clusters but those where something else of it is, and then nothing is said of it any more; or else it is
/// left where it is, with all that is in it.
async fn end(
    controllers: &Controllers,
    space: &Space,
    ty: &FederatedType,
    key: &Key,
    object: &Object,
) -> Result<After, Status> {
    if !object.head.finalizers.iter().any(|it| it == FINALIZER) {
        return Ok(After::Done);
    }
    let namespace = key.item.namespace();
    let federated = tree(object).unwrap_or_default();
    let is_going = space.get(&Key::new("", "namespaces", "", namespace)).is_none_or(|it| it.head.deleting);
    if !is_going && !is_every_clusters(namespace) {
        if !translate::orphans(&federated) {
            mark(controllers, space, namespace, &federated, Some(&[])).await?;
            if is_left(controllers, space, ty, key) {
                // It is looked at again when an Assignment in the namespace changes.
                return Ok(After::Done);
            }
        }
        mark(controllers, space, namespace, &federated, None).await?;
    }
    let Some(context) = controllers.context_for(space, key) else { return Ok(After::Done) };
    replace::edit(&context, key, &object.head.uid, |tree| drop_finalizer(tree, FINALIZER)).await?;
    Ok(After::Done)
}

/// Whether it is still somewhere for nothing but that it was federated. Clusters that cannot be used are not waited for.
fn is_left(controllers: &Controllers, space: &Space, ty: &FederatedType, key: &Key) -> bool {
    let members = members(controllers, space);
    let is_ready = |name: &str| members.iter().any(|it| it.name == name && it.ready);
    let left = assignment(space, ty, key).map(|it| it.spec.clusters).unwrap_or_default();
    let occupied = occupied(space, key.item.namespace());
    left.iter().any(|it| is_ready(&it.name) && !occupied.contains(&it.name))
}

/// The clusters where something is in the namespace that is not federated.
fn occupied(space: &Space, namespace: &str) -> BTreeSet<String> {
    let own = api::assignment::name_of("", "namespaces", namespace);
    let listing = space.latest(&Collection::new(api::GROUP, api::assignment::PLURAL));
    let others = listing.iter(Some(namespace), None).filter(|(item, _)| item.name() != own);
    let read = others.filter_map(|(_, stored)| Assignment::read(stored).ok());
    let not_federated = read.filter(|it| it.spec.decision.policy != placement::dialect::SOURCE);
    not_federated.flat_map(|it| it.spec.clusters).map(|target| target.name).collect()
}
