//! What authors of policies left open, and what only creation or an update sets.

use serde_json::{Value, json};

use crate::{
    resource::{Author, Tree, only},
    validation::{
        members::{assign, default_to, made, metadata, set},
        parts::{items_mut, number, object, object_mut},
    },
};

const HTTPS: i64 = 443;

pub fn no_status_yet(tree: &mut Tree) {
    tree.insert("status".into(), json!({}));
}

fn default_rule(rule: &mut Tree) {
    default_to(rule, "scope", "*");
}

fn default_matching(matching: &mut Tree) {
    default_to(matching, "matchPolicy", "Equivalent");
    default_to(matching, "namespaceSelector", json!({}));
    default_to(matching, "objectSelector", json!({}));
}

fn default_webhook(webhook: &mut Tree) {
    default_to(webhook, "failurePolicy", "Fail");
    default_matching(webhook);
    default_to(webhook, "timeoutSeconds", 10);
    let client = object_mut(webhook, "clientConfig");
    if let Some(service) = client.and_then(|client| object_mut(client, "service")) {
        default_to(service, "port", HTTPS);
    }
    items_mut(webhook, "rules").for_each(default_rule);
}

pub fn default_validating_webhooks(tree: &mut Tree) {
    items_mut(tree, "webhooks").for_each(default_webhook);
}

pub fn default_mutating_webhooks(tree: &mut Tree) {
    for webhook in items_mut(tree, "webhooks") {
        default_webhook(webhook);
        default_to(webhook, "reinvocationPolicy", "Never");
    }
}

fn default_match_resources(spec: &mut Tree, key: &str) {
    let Some(matching) = object_mut(spec, key) else { return };
    default_matching(matching);
    items_mut(matching, "resourceRules").for_each(default_rule);
    items_mut(matching, "excludeResourceRules").for_each(default_rule);
}

pub fn default_policy(tree: &mut Tree) {
    let spec = made(tree, "spec");
    default_to(spec, "failurePolicy", "Fail");
    default_match_resources(spec, "matchConstraints");
}

pub fn default_policy_binding(tree: &mut Tree) {
    default_match_resources(made(tree, "spec"), "matchResources");
}

/// Those who write a status change none of the object's labels, annotations, owners and finalizers.
fn keep_metadata(new: &mut Tree, old: &Tree, keys: &[&str]) {
    for key in keys {
        let kept = object(old, "metadata").and_then(|metadata| metadata.get(*key)).cloned();
        assign(made(new, "metadata"), key, kept);
    }
}

pub fn only_policy_status(new: &mut Tree, old: &Tree) {
    only(new, old, "status");
    keep_metadata(
        new,
        old,
        &[
            "deletionGracePeriodSeconds",
            "deletionTimestamp",
            "finalizers",
            "labels",
            "annotations",
            "ownerReferences",
            "selfLink",
        ],
    );
}

pub fn only_api_service_status(new: &mut Tree, old: &Tree) {
    only(new, old, "status");
    keep_metadata(new, old, &["labels", "annotations", "finalizers", "ownerReferences"]);
}

/// All of the metadata stays.
pub fn only_flow_status(new: &mut Tree, old: &Tree) {
    only(new, old, "status");
    let kept = old.get("metadata").cloned();
    assign(new, "metadata", kept);
}

/// An API that this server serves itself is available at once.
pub fn prepare_api_service(tree: &mut Tree) {
    no_status_yet(tree);
    let created = metadata(tree, "creationTimestamp").to_owned();
    if object(tree, "spec").is_none_or(|spec| set(spec, "service").is_none()) {
        let condition = json!({
            "type": "Available",
            "status": "True",
            "lastTransitionTime": created,
            "reason": "Local",
            "message": "Local APIServices are always available",
        });
        made(tree, "status").insert("conditions".into(), json!([condition]));
    }
}

pub fn default_api_service(tree: &mut Tree) {
    if let Some(service) = object_mut(made(tree, "spec"), "service") {
        default_to(service, "port", HTTPS);
    }
}

/// Sets a number that is zero.
fn default_number(tree: &mut Tree, key: &str, value: i64) {
    if number(tree, key).unwrap_or(0) == 0 {
        tree.insert(key.to_owned(), json!(value));
    }
}

pub fn default_flow_schema(tree: &mut Tree) {
    default_number(made(tree, "spec"), "matchingPrecedence", 1000);
}

pub fn default_priority_level(tree: &mut Tree) {
    let spec = made(tree, "spec");
    if let Some(limited) = object_mut(spec, "limited") {
        default_to(limited, "nominalConcurrencyShares", 30);
        default_to(limited, "lendablePercent", 0);
        let response = object_mut(limited, "limitResponse");
        if let Some(queuing) = response.and_then(|response| object_mut(response, "queuing")) {
            default_number(queuing, "handSize", 8);
            default_number(queuing, "queues", 64);
            default_number(queuing, "queueLengthLimit", 50);
        }
    }
    if let Some(exempt) = object_mut(spec, "exempt") {
        default_to(exempt, "nominalConcurrencyShares", 0);
        default_to(exempt, "lendablePercent", 0);
    }
}

/// Nobody asks for a certificate in another's name.
pub fn sign_request(tree: &mut Tree, author: &Author<'_>) {
    let spec = made(tree, "spec");
    for (key, value) in [
        ("username", json!(author.name)),
        ("uid", json!(author.uid)),
        ("groups", json!(author.groups)),
        ("extra", json!(author.extra)),
    ] {
        let is_empty = match &value {
            Value::String(text) => text.is_empty(),
            Value::Array(items) => items.is_empty(),
            Value::Object(members) => members.is_empty(),
            _ => true,
        };
        if is_empty {
            spec.remove(key);
        } else {
            spec.insert(key.to_owned(), value);
        }
    }
}

/// The main resource of a signing request changes neither what is asked nor what became of it.
pub fn keep_signing_request(new: &mut Tree, old: &Tree) {
    for key in ["spec", "status"] {
        assign(new, key, old.get(key).cloned());
    }
}

/// Members of a signing request's conditions that, left open, are the time of the request.
pub const STAMPED: &[&str] = &["lastUpdateTime", "lastTransitionTime"];

/// Where a condition only says again what is known, its transition is the one that is known.
fn keep_transitions(new: &mut Tree, old: &Tree) {
    let known: Vec<&Tree> = conditions(old).collect();
    for condition in object_mut(new, "status").into_iter().flat_map(|status| items_mut(status, "conditions"))
    {
        if set(condition, "lastTransitionTime").is_some() {
            continue;
        }
        let same = |it: &&&Tree| ["type", "status"].iter().all(|key| it.get(*key) == condition.get(*key));
        let transition = known.iter().filter(same).find_map(|it| set(it, "lastTransitionTime")).cloned();
        assign(condition, "lastTransitionTime", transition);
    }
}

pub fn conditions(tree: &Tree) -> impl Iterator<Item = &Tree> {
    let status = object(tree, "status");
    status
        .into_iter()
        .flat_map(|status| crate::validation::parts::items(status, "conditions"))
        .map(|(_, it)| it)
}

/// `/status` neither approves nor denies: as many of those conditions as there were stay as they were.
pub fn only_signing_status(new: &mut Tree, old: &Tree) {
    only(new, old, "status");
    for kind in ["Approved", "Denied"] {
        let is_kind = |it: &Tree| it.get("type").and_then(Value::as_str) == Some(kind);
        let known: Vec<Tree> = conditions(old).filter(|it| is_kind(it)).cloned().collect();
        let status = made(new, "status");
        if items_mut(status, "conditions").filter(|it| is_kind(it)).count() == known.len() {
            let places = items_mut(status, "conditions").filter(|it| is_kind(it));
            places.zip(known).for_each(|(place, known)| *place = known);
        }
    }
    keep_transitions(new, old);
}

/// `/approval` changes conditions and nothing else.
pub fn only_approval(new: &mut Tree, old: &Tree) {
    let wanted = object(new, "status").and_then(|status| set(status, "conditions")).cloned();
    only(new, old, "metadata");
    assign(made(new, "status"), "conditions", wanted);
    keep_transitions(new, old);
}
