//! One federated object: the plain one is made of it, and what comes of that is told.

use std::collections::BTreeMap;

use api::assignment::{State, Target};
use dialects::{
    FINALIZER, Federated, FederatedType, Form, SYSTEM_NAMESPACE, TYPES_GROUP,
    federated::{self, Beside, Problem},
    report::{self, Facts, status},
    translate::{self, Namespace, World},
};
use kinds::propagation::{self, Pass};
use machinery::{Object, resource::Tree, status::Status};
use placement::{Choice, Rule, Strategy, dialect};
use serde_json::{Value, json};
use store::Key;

use super::{After, Controllers, MANAGER, assignment, collects, end, find, members, tree};
use crate::{context::Context, replace, space::Space, write};

/// What counts for an object beside itself.
struct Surroundings {
    placement: Option<Value>,
    overrides: Option<Value>,
    preference: Option<Value>,
    namespace: Option<Value>,
    /// One namespace is all that federation is for.
    limited: bool,
    adopts: bool,
}

impl Surroundings {
    fn look(space: &Space, ty: &FederatedType, key: &Key) -> Surroundings {
        let (namespace, name) = (key.item.namespace(), key.item.name());
        let beside = |what: &str| match ty.form {
            Form::Unified => None,
            _ => find(space, &Key::new(&ty.group, &ty.beside(what), namespace, name)),
        };
        let config =
            find(space, &Key::new(dialects::CORE_GROUP, "kubefedconfigs", SYSTEM_NAMESPACE, "kubefed"));
        let config = config.unwrap_or_default();
        let federated = find(space, &Key::new(TYPES_GROUP, "federatednamespaces", namespace, namespace));
        Surroundings {
            placement: beside("placements"),
            overrides: beside("overrides"),
            preference: preference(space, ty, key),
            // One that is on its way out allows nothing any more.
            namespace: federated.filter(|it| it["metadata"]["deletionTimestamp"].is_null()),
            limited: config["spec"]["scope"] == "Namespaced",
            adopts: config["spec"]["syncController"]["adoptResources"] != "Disabled",
        }
    }

    fn beside(&self) -> Beside<'_> {
        Beside { placement: self.placement.as_ref(), overrides: self.overrides.as_ref() }
    }

    fn allowed(&self, ty: &FederatedType) -> Namespace<'_> {
        match &self.namespace {
            Some(namespace) => Namespace::Within(&namespace["spec"]["placement"]),
            None if translate::needs_namespace(ty.form) && !self.limited => Namespace::NotFederated,
            None => Namespace::Anywhere,
        }
    }
}

fn preference(space: &Space, ty: &FederatedType, key: &Key) -> Option<Value> {
    let collection = "replicaschedulingpreferences";
    let key = Key::new(dialects::SCHEDULING_GROUP, collection, key.item.namespace(), key.item.name());
    let is_for_it = |it: &Value| it["spec"]["targetKind"] == format!("Federated{}", ty.target_kind);
    find(space, &key).filter(|it| ty.form == Form::Unified && is_for_it(it))
}

pub async fn settle(
    controllers: &Controllers,
    space: &Space,
    ty: &FederatedType,
    key: &Key,
    object: &Object,
) -> Result<After, Status> {
    if object.head.deleting {
        return end::settle(controllers, space, ty, key, object).await;
    }
    if ty.disabled {
        return Ok(After::Done);
    }
    hold(controllers, space, key, object).await?;
    let Some(tree) = tree(object) else { return Ok(After::Done) };
    let around = Surroundings::look(space, ty, key);
    let made = match federated::read(ty, &tree, around.beside()) {
        Ok(federated) => make(controllers, space, ty, key, &tree, &federated, &around).await?,
        Err(problem) => Made { problem: Some(problem), ..Made::default() },
    };
    tell(controllers, space, ty, key, object, &tree, &made, &around).await?;
    Ok(After::Done)
}

/// Its copies are to go before it does.
pub async fn hold(
    controllers: &Controllers,
    space: &Space,
    key: &Key,
    object: &Object,
) -> Result<(), Status> {
    if object.head.finalizers.iter().any(|it| it == FINALIZER) {
        return Ok(());
    }
    let Some(context) = controllers.context_for(space, key) else { return Ok(()) };
    replace::edit(&context, key, &object.head.uid, |tree| {
        let is_deleting = tree.get("metadata").is_some_and(|it| it.get("deletionTimestamp").is_some());
        if is_deleting {
            return;
        }
        let finalizers = write::metadata_of(tree).entry("finalizers").or_insert_with(|| json!([]));
        if let Some(list) = finalizers.as_array_mut().filter(|list| !list.iter().any(|it| it == FINALIZER)) {
            list.push(json!(FINALIZER));
        }
    })
    .await
}

/// What came of making the plain object.
#[derive(Default)]
struct Made {
    problem: Option<Problem>,
    /// Why the hub itself does not take it.
    refused: Option<String>,
    /// As it is in the hub.
    plain: Option<Value>,
}

pub fn plain_key(ty: &FederatedType, key: &Key) -> Key {
    Key::new(&ty.target_group, &ty.target_plural, key.item.namespace(), key.item.name())
}

async fn make(
    controllers: &Controllers,
    space: &Space,
    ty: &FederatedType,
    key: &Key,
    object: &Value,
    federated: &Federated,
    around: &Surroundings,
) -> Result<Made, Status> {
    let world = World {
        namespace: around.allowed(ty),
        preference: around.preference.as_ref(),
        adopts: around.adopts,
    };
    let wanted = match translate::translate(ty, object, federated, &world) {
        Ok(wanted) => wanted,
        Err(problem) => return Ok(Made { problem: Some(problem), ..Made::default() }),
    };
    let plain_key = plain_key(ty, key);
    if let Some(there) = space.get(&plain_key) {
        let own = object["metadata"]["uid"].as_str().unwrap_or_default();
        let other = there.head.owners.iter().find(|owner| owner.controller && owner.uid.as_str() != own);
        if let Some(other) = other {
            let why = format!(
                "there is a {} of that name which belongs to {} {}",
                ty.target_kind, other.kind, other.name
            );
            return Ok(Made { refused: Some(why), ..Made::default() });
        }
        if !there.head.owners.iter().any(|owner| owner.uid.as_str() == own) && !around.adopts {
            let why = format!("there is a {} of that name already, and it is not taken over", ty.target_kind);
            return Ok(Made { refused: Some(why), ..Made::default() });
        }
        if there.head.deleting {
            // It is looked at again when that is gone.
            return Ok(Made {
                refused: Some("the one before is being deleted".to_owned()),
                ..Made::default()
            });
        }
    }
    match apply(controllers, space, &plain_key, &wanted).await {
        Ok(()) => Ok(Made { plain: find(space, &plain_key), ..Made::default() }),
        Err(status) if is_refusal(&status) => {
            Ok(Made { refused: Some(status.to_string()), ..Made::default() })
        }
        Err(status) => Err(status),
    }
}

/// Whether it would be refused again.
pub fn is_refusal(status: &Status) -> bool {
    matches!(status.code(), 400 | 403 | 404 | 413 | 422)
}

/// Applies what is wanted, whoever owned its fields before.
pub async fn apply(
    controllers: &Controllers,
    space: &Space,
    key: &Key,
    wanted: &Value,
) -> Result<(), Status> {
    let text = |key: &str| wanted[key].as_str().unwrap_or_default();
    let served = controllers.hub.served(space);
    let resource = served.registry.find_kind(text("apiVersion"), text("kind")).cloned();
    let context: Option<Context> = controllers.context_for(space, key);
    let (Some(resource), Some(mut context)) = (resource, context) else {
        let message = format!("{} {} is not served here", text("apiVersion"), text("kind"));
        return Err(Status::bad_request(message));
    };
    context.target.version = resource.version.clone();
    context.shown = resource.clone();
    context.resource = resource;
    context.manage_as(MANAGER);
    context.apply_by_force();
    write::patch(&context, wanted.to_string().into()).await.map(drop)
}

/// Writes what came of it into the status of the federated object.
#[allow(clippy::too_many_arguments)]
async fn tell(
    controllers: &Controllers,
    space: &Space,
    ty: &FederatedType,
    key: &Key,
    object: &Object,
    tree: &Value,
    made: &Made,
    around: &Surroundings,
) -> Result<(), Status> {
    let members = members(controllers, space);
    let assignment = assignment(space, ty, key);
    let said = made.plain.as_ref().and_then(said);
    let rule = said.as_deref().and_then(|said| dialect::federated(said).ok());
    let choice = match (&said, &rule) {
        (Some(_), rule) => rule.as_ref().map_or_else(Choice::nowhere, |it| it.clusters.clone()),
        (None, _) => {
            let placement = federated::placement_of(ty, tree, around.beside());
            dialect::kubefed_choice(&placement).unwrap_or_else(|_| Choice::nowhere())
        }
    };
    let is_divided = |it: &&Rule| it.strategy == Some(Strategy::Divide);
    let facts = Facts {
        generation: object.head.generation,
        plain_generation: made
            .plain
            .as_ref()
            .and_then(|it| it["metadata"]["generation"].as_i64())
            .unwrap_or(0),
        edition: said.as_deref().map(edition).unwrap_or_default(),
        choice: &choice,
        shares: rule.as_ref().filter(is_divided).map(|it| &it.shares),
        overridden: said.as_deref().map(overridden).unwrap_or_default(),
        assignment: assignment.as_ref(),
        members: &members,
        collects: collects(controllers, space, ty),
        before: &tree["status"],
        namespace_not_federated: matches!(around.allowed(ty), Namespace::NotFederated),
    };
    let (pass, message) = match (&made.problem, &made.refused) {
        (Some(Problem::Placement(why)), _) => {
            let reason = report::COMPUTE_PLACEMENT_FAILED.to_owned();
            (Pass { generation: facts.generation, reason, ..Pass::default() }, why.clone())
        }
        (Some(Problem::Overrides(why)), _) => (report::failed(&facts, status::OVERRIDES_FAILED), why.clone()),
        (Some(Problem::Template(why)), _) | (None, Some(why)) => {
            (report::failed(&facts, status::COMPUTE_FAILED), why.clone())
        }
        (None, None) => {
            let pass = report::pass(&facts);
            let message = problems(assignment.as_ref());
            (pass, message)
        }
    };
    write_status(controllers, space, key, object, &pass, message.as_str()).await?;
    match &around.preference {
        Some(preference) => tell_preference(controllers, space, key, preference, assignment.as_ref()).await,
        None => Ok(()),
    }
}

fn said(plain: &Value) -> Option<String> {
    plain["metadata"]["annotations"][api::FEDERATED_ANNOTATION].as_str().map(str::to_owned)
}

fn edition(said: &str) -> String {
    let said: Value = serde_json::from_str(said).unwrap_or_default();
    said["edition"].as_str().unwrap_or_default().to_owned()
}

fn overridden(said: &str) -> Vec<String> {
    let said: Value = serde_json::from_str(said).unwrap_or_default();
    let entries = said["overrides"].as_array().into_iter().flatten();
    entries.filter_map(|it| it["clusterName"].as_str().map(str::to_owned)).collect()
}

/// What clusters say that is not well, in their words.
fn problems(assignment: Option<&api::assignment::Assignment>) -> String {
    let Some(assignment) = assignment else { return String::new() };
    let reports = assignment.status.clusters.iter().filter(|it| !it.applied && !it.message.is_empty());
    let mut said: Vec<String> = reports.map(|it| format!("{}: {}", it.name, it.message)).collect();
    if !assignment.spec.decision.message.is_empty() {
        said.push(assignment.spec.decision.message.clone());
    }
    let mut text = said.join("; ");
    text.truncate(text.floor_char_boundary(4096));
    text
}

/// What the condition says beside its reason.
#[derive(Clone, Copy, Default)]
pub struct Words<'a> {
    /// Why all is not well, if it is not.
    pub problem: &'a str,
    /// What somebody should know though all is well.
    pub note: &'a str,
}

impl<'a> From<&'a str> for Words<'a> {
    fn from(problem: &'a str) -> Words<'a> {
        Words { problem, note: "" }
    }
}

pub async fn write_status<'a>(
    controllers: &Controllers,
    space: &Space,
    key: &Key,
    object: &Object,
    pass: &Pass,
    words: impl Into<Words<'a>>,
) -> Result<(), Status> {
    let words = words.into();
    let Some(context) = controllers.context_for(space, key) else { return Ok(()) };
    let now = controllers.hub.now_text();
    replace::edit(&context, key, &object.head.uid, |tree: &mut Tree| {
        let mut status = tree.get("status").cloned().filter(Value::is_object).unwrap_or_else(|| json!({}));
        propagation::update(&mut status, pass, &now);
        if let Some(condition) = status.pointer_mut("/conditions/0").and_then(Value::as_object_mut) {
            let is_well = condition.get("status").is_none_or(|it| it != "False");
            let message = if is_well || words.problem.is_empty() { words.note } else { words.problem };
            match message.is_empty() {
                false => drop(condition.insert("message".into(), json!(message))),
                true => drop(condition.remove("message")),
            }
        }
        tree.insert("status".into(), status);
    })
    .await
}

/// A scheduling preference shows what was decided by it, and why not all of it has a place.
async fn tell_preference(
    controllers: &Controllers,
    space: &Space,
    key: &Key,
    preference: &Value,
    assignment: Option<&api::assignment::Assignment>,
) -> Result<(), Status> {
    let collection = "replicaschedulingpreferences";
    let key = Key::new(dialects::SCHEDULING_GROUP, collection, key.item.namespace(), key.item.name());
    let (Some(object), Some(context)) = (space.get(&key), controllers.context_for(space, &key)) else {
        return Ok(());
    };
    let Some(spec) = assignment.map(|it| &it.spec) else { return Ok(()) };
    let mut status = planned(preference, &spec.clusters);
    status["observedGeneration"] = json!(object.head.generation);
    if !spec.decision.message.is_empty() {
        status["message"] = json!(spec.decision.message);
    }
    replace::edit(&context, &key, &object.head.uid, |tree| {
        tree.insert("status".into(), status.clone());
    })
    .await
}

/// What each cluster has of a plan, and what none has: also where none is chosen.
fn planned(preference: &Value, targets: &[Target]) -> Value {
    let has_it = targets.iter().filter(|it| it.state != State::Draining);
    let shares: BTreeMap<&str, u64> = has_it.map(|it| (it.name.as_str(), it.replicas.unwrap_or(0))).collect();
    let placed = shares.values().fold(0, |sum: u64, share| sum.saturating_add(*share));
    let total = preference["spec"]["totalReplicas"].as_u64().unwrap_or(0);
    json!({"clusters": shares, "unplaced": total.saturating_sub(placed)})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_no_cluster_has_no_place() {
        let target = |name: &str, state: State, replicas: u64| Target {
            name: name.into(),
            state,
            replicas: Some(replicas),
            ..Target::default()
        };
        let preference = json!({"spec": {"totalReplicas": 6}});
        let of = |targets: &[Target]| planned(&preference, targets);
        assert_eq!(of(&[]), json!({"clusters": {}, "unplaced": 6}));
        let some = [target("a", State::Assigned, 2), target("b", State::Draining, 3)];
        assert_eq!(of(&some), json!({"clusters": {"a": 2}, "unplaced": 4}));
        let more = [target("a", State::Assigned, 4), target("b", State::Assigned, 5)];
        assert_eq!(of(&more), json!({"clusters": {"a": 4, "b": 5}, "unplaced": 0}));
    }
}
