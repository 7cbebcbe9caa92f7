//! What is created below a pod and not kept: a binding to a node, an eviction.

use bytes::Bytes;
use http::{Response, StatusCode};
use machinery::{
    Object, Revision,
    field_error::Cause,
    resource::Tree,
    selector::LabelSelector,
    status::{About, Reason, Status},
};
use serde_json::{Value, json};
use store::{Collection, Key};

use crate::{
    admission::{self, Admission, Notes, Operation},
    body::{self, Body},
    context::Context,
    decode,
    delete::{self, Options},
    managers, replace,
    write::{Along, set_namespace},
};

/// More evictions than this must not be waiting to be confirmed; as upstream.
const MOST_DISRUPTED: usize = 2000;
const VIOLATES: &str = "Cannot evict pod as it would violate the pod's disruption budget.";

/// `POST` to a path below a pod.
pub async fn create_below(context: &Context, bytes: &Bytes) -> Result<Response<Body>, Status> {
    let decoded = decode::object(context, bytes)?;
    let mut tree = decoded.tree;
    let name = context.target.name.as_str();
    let given = text(&tree, &["metadata", "name"]);
    if !given.is_empty() && given != name {
        let kind = &context.shown.kind;
        return Err(Status::bad_request(format!("name in URL does not match name in {kind} object")));
    }
    set_namespace(context, &mut tree)?;
    managers::track_shown(context, &mut tree);
    let mut notes = Notes::default();
    let admission = Admission::new(context, Operation::Create, name, None, context.dry_run()?);
    admission::mutate(&admission, Some(&mut tree), &mut notes).await?;
    admission::validate(&admission, Some(&tree), &mut Along::default(), &mut notes).await?;
    match context.target.subresource.as_str() {
        "binding" => bind(context, name, &tree).await?,
        "eviction" => evict(context, name, &tree).await?,
        _ => return Err(Status::method_not_allowed()),
    }
    let done =
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    let mut response = body::json(StatusCode::CREATED, &done);
    notes.tell(&mut response);
    Ok(response)
}

fn at<'a>(tree: &'a Tree, path: &[&str]) -> Option<&'a Value> {
    let (first, rest) = path.split_first()?;
    rest.iter().try_fold(tree.get(*first)?, |value, key| value.get(key))
}

fn text<'a>(tree: &'a Tree, path: &[&str]) -> &'a str {
    at(tree, path).and_then(Value::as_str).unwrap_or_default()
}

fn number(tree: &Tree, path: &[&str]) -> i64 {
    at(tree, path).and_then(Value::as_i64).unwrap_or(0)
}

/// `tree[outer][inner]`, made if it is not there.
fn member<'a>(tree: &'a mut Tree, outer: &str, inner: &str, empty: Value) -> &'a mut Value {
    let outer = tree.entry(outer).or_insert_with(|| json!({}));
    if !outer.is_object() {
        *outer = json!({});
    }
    let value = &mut outer[inner];
    if value.is_null() {
        *value = empty;
    }
    value
}

/// Sets the condition of a type, with a new time if its status is new.
fn set_condition(tree: &mut Tree, condition: Value, now: &str) {
    let conditions = member(tree, "status", "conditions", json!([]));
    let Some(list) = conditions.as_array_mut() else { return };
    let mut condition = condition;
    let known = list.iter_mut().find(|it| it["type"] == condition["type"]);
    let since = known.as_ref().filter(|it| it["status"] == condition["status"]);
    condition["lastTransitionTime"] = since.map_or(json!(now), |it| it["lastTransitionTime"].clone());
    match known {
        Some(it) => *it = condition,
        None => list.push(condition),
    }
}

/// Puts a pod on a node.
pub async fn bind(context: &Context, name: &str, binding: &Tree) -> Result<(), Status> {
    let causes = validate_binding(binding);
    if let Some(cause) = causes.first() {
        return Err(Status::internal(format!("{}: {}", cause.field, cause.message)));
    }
    let key = Key::new("", "pods", &context.target.namespace, name);
    let about = || About { group: "", resource: "pods", name };
    let pod = context.space.get(&key).ok_or_else(|| Status::not_found(about()))?;
    let dry_run = context.dry_run()?;
    let now = context.hub.now_text();
    let refuse =
        |why: String| Err(Status::conflict(About { group: "", resource: "pods/binding", name }, &why));
    let assign = |old: &Object, tree: &mut Tree| -> Result<(), Status> {
        same_object(binding, old, about())?;
        if old.head.deleting {
            return refuse(format!("pod {name} is being deleted, cannot be assigned to a host"));
        }
        let node = text(tree, &["spec", "nodeName"]);
        if !node.is_empty() {
            return refuse(format!("pod {name} is already assigned to node {node:?}"));
        }
        if at(tree, &["spec", "schedulingGates"]).and_then(Value::as_array).is_some_and(|it| !it.is_empty()) {
            return refuse(format!("pod {name} has non-empty .spec.schedulingGates"));
        }
        *member(tree, "spec", "nodeName", Value::Null) = json!(text(binding, &["target", "name"]));
        if let Some(status) = tree.get_mut("status").and_then(Value::as_object_mut) {
            status.remove("nominatedNodeName");
        }
        for key in ["annotations", "labels"] {
            let given =
                at(binding, &["metadata", key]).and_then(Value::as_object).filter(|it| !it.is_empty());
            for (name, value) in given.into_iter().flatten() {
                member(tree, "metadata", key, json!({}))[name] = value.clone();
            }
        }
        set_condition(tree, json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null}), &now);
        Ok(())
    };
    if dry_run {
        return assign(&pod, &mut pod.tree().map_err(Status::internal)?);
    }
    let context = own(context, "", "pods", name)?;
    replace::try_edit(&context, &key, &pod.head.uid, assign).await
}

/// The UID and the resource version in a body, if it has them, are those of `object`.
fn same_object(body: &Tree, object: &Object, about: About<'_>) -> Result<(), Status> {
    let uid = text(body, &["metadata", "uid"]);
    if !uid.is_empty() && uid != object.head.uid {
        let why = format!(
            "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
            object.head.uid
        );
        return Err(Status::conflict(about, &why));
    }
    let revision = text(body, &["metadata", "resourceVersion"]);
    if !revision.is_empty() && Revision::parse(revision) != Some(object.revision) {
        let why = format!(
            "Precondition failed: ResourceVersion in precondition: {revision}, ResourceVersion in object meta: {}",
            object.revision
        );
        return Err(Status::conflict(about, &why));
    }
    Ok(())
}

fn validate_binding(binding: &Tree) -> Vec<Cause> {
    let mut causes = Vec::new();
    let kind = text(binding, &["target", "kind"]);
    if !matches!(kind, "" | "Node") {
        causes.push(Cause::not_supported("target.kind", &json!(kind), &["Node", "<empty>"]));
    }
    if text(binding, &["target", "name"]).is_empty() {
        causes.push(Cause::required("target.name", ""));
    }
    causes
}

fn own(context: &Context, group: &str, resource: &str, name: &str) -> Result<Context, Status> {
    let collection = Collection::new(group, resource);
    let own = Context::own(&context.hub, &context.space, &collection, &context.target.namespace, name);
    own.ok_or_else(|| Status::internal(format!("{resource} are not served")))
}

/// Deletes a pod if its disruption budget allows.
async fn evict(context: &Context, name: &str, eviction: &Tree) -> Result<(), Status> {
    let empty = Tree::new();
    let given = eviction.get("deleteOptions").and_then(Value::as_object).unwrap_or(&empty);
    let mut options = Options::check(context, given)?;
    let key = context.key(name);
    let pod = context.space.get(&key).ok_or_else(|| Status::not_found(context.about(name)))?;
    // What the client has seen is the view's revision; the store's is what is compared below.
    let seen = context.view.as_ref().and_then(|view| view.get(&key));
    if let (Some(seen), Some(given)) = (seen, &options.revision)
        && Revision::parse(given) == Some(seen.revision)
    {
        options.revision = Some(pod.revision.to_string());
    }
    let tree = pod.tree().map_err(Status::internal)?;
    let phase = text(&tree, &["status", "phase"]);
    let ended = matches!(phase, "Succeeded" | "Failed") || pod.head.deleting;
    if !ended && phase != "Pending" {
        match budget_of(context, &pod)? {
            Some(budget) if is_spare(&tree, &budget) => options.revision = Some(pod.revision.to_string()),
            Some(budget) => take_one(context, name, &budget, options.dry_run).await?,
            None => {}
        }
    } else if !ended && options.revision.is_none() {
        options.revision = Some(pod.revision.to_string());
    }
    let pods = own(context, "", "pods", name)?;
    if !options.dry_run {
        mark_disrupted(&pods, &key, &pod, &mut options).await?;
    }
    options.admitted = true;
    delete::delete_one(&pods, &key, &options, &mut Notes::default()).await.map(|_| ())
}

/// Says on the pod why it goes; the revision that the deletion expects moves along.
async fn mark_disrupted(
    pods: &Context,
    key: &Key,
    pod: &Object,
    options: &mut Options,
) -> Result<(), Status> {
    let now = pods.hub.now_text();
    let expected = options.revision.clone();
    replace::try_edit(pods, key, &pod.head.uid, |old, tree| {
        if expected.as_ref().is_some_and(|revision| Revision::parse(revision) != Some(old.revision)) {
            return Err(Status::modified(pods.about(&old.head.name)));
        }
        let condition = json!({
            "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting", "lastProbeTime": null,
        });
        set_condition(tree, condition, &now);
        Ok(())
    })
    .await?;
    if options.revision.is_some() {
        options.revision = pods.space.get(key).map(|object| object.revision.to_string());
    }
    Ok(())
}

/// The budget that covers a pod.
fn budget_of(context: &Context, pod: &Object) -> Result<Option<Tree>, Status> {
    let budgets = context.space.latest(&Collection::new("policy", "poddisruptionbudgets"));
    let mut found = None;
    for (_, budget) in budgets.iter(Some(&pod.head.namespace), None) {
        let tree = budget.tree().map_err(Status::internal)?;
        let Some(selector) = at(&tree, &["spec", "selector"]) else { continue };
        if !LabelSelector::from_object(selector).is_ok_and(|selector| selector.matches(&pod.head.labels)) {
            continue;
        }
        if found.replace(tree).is_some() {
            return Err(Status::internal(
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
            ));
        }
    }
    Ok(found)
}

/// A pod that does no work can go without disrupting anything.
fn is_spare(pod: &Tree, budget: &Tree) -> bool {
    let conditions = at(pod, &["status", "conditions"]).and_then(Value::as_array).into_iter().flatten();
    let ready = conditions.into_iter().any(|it| it["type"] == "Ready" && it["status"] == "True");
    if ready {
        return false;
    }
    let always = text(budget, &["spec", "unhealthyPodEvictionPolicy"]) == "AlwaysAllow";
    let desired = number(budget, &["status", "desiredHealthy"]);
    always || (desired > 0 && number(budget, &["status", "currentHealthy"]) >= desired)
}

/// Takes one disruption from the budget, or says why there is none.
async fn take_one(context: &Context, pod: &str, budget: &Tree, dry_run: bool) -> Result<(), Status> {
    let name = text(budget, &["metadata", "name"]);
    if dry_run {
        return check_budget(budget);
    }
    let budgets = own(context, "policy", "poddisruptionbudgets", name)?;
    let now = context.hub.now_text();
    let key = budgets.key(name);
    replace::try_edit(&budgets, &key, text(budget, &["metadata", "uid"]), |_, tree| {
        check_budget(tree)?;
        let allowed = number(tree, &["status", "disruptionsAllowed"]) - 1;
        *member(tree, "status", "disruptionsAllowed", Value::Null) = json!(allowed);
        member(tree, "status", "disruptedPods", json!({}))[pod] = json!(now);
        if allowed == 0 {
            let generation = number(tree, &["status", "observedGeneration"]);
            let condition = json!({
                "type": "DisruptionAllowed", "status": "False", "reason": "InsufficientPods", "message": "",
                "observedGeneration": generation,
            });
            set_condition(tree, condition, &now);
        }
        Ok(())
    })
    .await
}

fn check_budget(budget: &Tree) -> Result<(), Status> {
    let name = text(budget, &["metadata", "name"]);
    let too_many = |message: String, retry: Option<u32>| {
        let status = Status::new(Reason::TooManyRequests, VIOLATES).cause("DisruptionBudget", message, "");
        Err(match retry {
            Some(seconds) => status.retry_after(seconds),
            None => status,
        })
    };
    if number(budget, &["status", "observedGeneration"]) < number(budget, &["metadata", "generation"]) {
        return too_many(
            format!("The disruption budget {name} is still being processed by the server."),
            Some(10),
        );
    }
    let about = About { group: "policy", resource: "poddisruptionbudget", name };
    let allowed = number(budget, &["status", "disruptionsAllowed"]);
    if allowed < 0 {
        return Err(Status::forbidden(about, "pdb disruptions allowed is negative"));
    }
    let disrupted =
        at(budget, &["status", "disruptedPods"]).and_then(Value::as_object).map_or(0, |it| it.len());
    if disrupted > MOST_DISRUPTED {
        let why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller";
        return Err(Status::forbidden(about, why));
    }
    match allowed {
        0 => too_many(why_not(budget, name), None),
        _ => Ok(()),
    }
}

fn why_not(budget: &Tree, name: &str) -> String {
    let conditions = at(budget, &["status", "conditions"]).and_then(Value::as_array).into_iter().flatten();
    let refused = conditions.into_iter().find(|it| {
        it["type"] == "DisruptionAllowed"
            && it["status"] == "False"
            && it["message"].as_str().is_some_and(|it| !it.is_empty())
    });
    let said = |key: &str| refused.and_then(|it| it[key].as_str()).unwrap_or_default();
    let (desired, current) =
        (number(budget, &["status", "desiredHealthy"]), number(budget, &["status", "currentHealthy"]));
    match refused {
        Some(_) if said("reason") == "SyncFailed" => format!(
            "The disruption budget {name} does not allow evicting pods currently because it failed sync: {}",
            said("message")
        ),
        _ if current <= desired => {
            format!("The disruption budget {name} needs {desired} healthy pods and has {current} currently")
        }
        Some(_) => format!(
            "The disruption budget {name} does not allow evicting pods currently ({}): {}",
            said("reason"),
            said("message")
        ),
        None => format!("The disruption budget {name} does not allow evicting pods currently"),
    }
}
