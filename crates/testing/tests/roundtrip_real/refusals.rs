//! What real members do not take, and what cannot be meant: on the object, with what to do.

use std::time::Duration;

use serde_json::{Value, json};
use testing::{
    operator::eventually,
    webhook::{Reply, Webhook},
};

use crate::{
    app, in_namespace,
    world::{Promise, World, condition},
};

/// How soon a refusal shows after it was given (U1.7).
const REFUSAL_SHOWS: Duration = Duration::from_secs(5);
/// How soon one command shows what does not go on (X4).
const STUCK_SHOWS: Duration = Duration::from_secs(10);

/// A Deployment of this namespace says so as soon as it is promised, in its condition and by an Event.
fn until_told(world: &World, promise: &Promise, namespace: &str, name: &str, reason: &str, words: &[&str]) {
    promise.kept(&format!("{reason} is told of {name}"), || {
        world.look(namespace, "deploy", name, |it| {
            let synced = condition(it, "Synced");
            let message = synced["message"].as_str().unwrap_or_default();
            synced["status"] == "False"
                && synced["reason"] == reason
                && words.iter().all(|word| message.contains(word))
        })
    });
    promise.kept("as an Event, too", || {
        let said = world.k(&["describe", "deploy", name, "-n", namespace]).ok();
        let events = said.split_once("Events:").map_or("", |(_, events)| events);
        let is_told = events.contains(reason) && words.iter().all(|word| events.contains(word));
        if is_told { Ok(()) } else { Err(said) }
    });
}

/// m1 refuses it, which is told in time, with the words.
fn until_refused(world: &World, name: &str, words: &[&str]) {
    eventually(&format!("m1 refuses {name}"), || match world.member("m1").has_refused("strict", name) {
        true => Ok(()),
        false => Err("it was not asked".to_owned()),
    });
    until_told(world, &Promise::within(REFUSAL_SHOWS), "strict", name, "Refused", words);
}

fn until_good(world: &World, namespace: &str, name: &str) {
    world.rolled_out(namespace, name);
    world
        .until_in(namespace, "deploy", name, "nothing is in the way", |it| condition(it, "Synced").is_null());
}

/// A quota, a policy and a webhook of m1 refuse; what is put right, here or there, clears it.
pub fn u1_7_d09_x4_what_a_member_refuses_is_told_until_it_is_put_right(world: &World) {
    world.m("m1", &["create", "ns", "strict"]).ok();
    world.m("m1", &["create", "quota", "none", "-n", "strict", "--hard=count/deployments.apps=0"]).ok();
    eventually("the quota counts", || match world.there("m1", "strict", "quota", "none") {
        quota if quota["status"]["hard"].is_object() => Ok(()),
        quota => Err(quota.to_string()),
    });
    world.k(&["create", "ns", "strict"]).ok();
    world.k(&["annotate", "ns", "strict", "hanse.io/clusters=m1"]).ok();
    world.apply("quota.json", &in_namespace("strict", vec![app::deployment("web", 1)]));
    until_refused(world, "web", &["m1: ", "exceeded quota", "raise the ResourceQuota in the cluster"]);
    world.m("m1", &["delete", "quota", "none", "-n", "strict"]).ok();
    until_good(world, "strict", "web");

    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "no-pets"},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [{
                "apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"],
                "resources": ["deployments"],
            }]},
            "validations": [{
                "expression": "!('pet' in object.metadata.?labels.orValue({}))", "message": "no pets here",
            }],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "no-pets"}, "spec": {"policyName": "no-pets", "validationActions": ["Deny"]},
    });
    world.m("m1", &["apply", "-f", &world.file("policy.json", &[policy, binding])]).ok();
    let mut pet = app::deployment("pet", 1);
    pet["metadata"]["labels"] = json!({"pet": "cat"});
    pet["metadata"]["namespace"] = json!("strict");
    // It takes a moment to be in force.
    let file = world.file("pet.json", &[pet]);
    eventually("the policy is in force", || {
        let said = world.m("m1", &["create", "--dry-run=server", "-f", &file]);
        if said.text.contains("no pets here") { Ok(()) } else { Err(said.text) }
    });
    world.k(&["apply", "-f", &file]).ok();
    until_refused(
        world,
        "pet",
        &["m1: ", "no pets here", "change the object as the policy of the cluster asks"],
    );
    world.k(&["label", "deploy", "pet", "-n", "strict", "pet-"]).ok();
    until_good(world, "strict", "pet");
    world.m("m1", &["delete", "validatingadmissionpolicybinding,validatingadmissionpolicy", "no-pets"]).ok();

    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let webhook = runtime
        .block_on(Webhook::start(|asked| {
            Reply::Json(json!({
                "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
                "response": {
                    "uid": asked.body["request"]["uid"], "allowed": false,
                    "status": {"code": 403, "message": "ask the guild first"},
                },
            }))
        }))
        .expect("a webhook");
    let configuration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "guild"},
        "webhooks": [{
            "name": "guild.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "clientConfig": {"url": format!("{}/", webhook.url), "caBundle": webhook.ca_bundle},
            "rules": [{
                "apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE"],
                "resources": ["deployments"],
            }],
        }],
    });
    world.m("m1", &["apply", "-f", &world.file("webhook.json", &[configuration])]).ok();
    let file = world.file("guarded.json", &in_namespace("strict", vec![app::deployment("guarded", 1)]));
    eventually("the webhook is asked", || {
        let said = world.m("m1", &["create", "--dry-run=server", "-f", &file]);
        if said.text.contains("ask the guild first") { Ok(()) } else { Err(said.text) }
    });
    world.k(&["apply", "-f", &file]).ok();
    let advice = "change the object as the webhook of the cluster asks";
    until_refused(world, "guarded", &["m1: ", "guild.example.com", "ask the guild first", advice]);
    world.m("m1", &["delete", "validatingwebhookconfiguration", "guild"]).ok();
    until_good(world, "strict", "guarded");
    world.k(&["delete", "ns", "strict"]).ok();
}

pub fn bad_input_unknown_clusters_and_names_too_long(world: &World) {
    world.k(&["create", "ns", "bad"]).ok();
    let mut lost = app::deployment("lost", 1);
    lost["metadata"]["annotations"] = json!({"hanse.io/clusters": "atlantis"});
    world.apply("lost.json", &in_namespace("bad", vec![lost]));
    let promise = Promise::within(STUCK_SHOWS);
    until_told(world, &promise, "bad", "lost", "Unplaced", &["atlantis", "joining it"]);
    let said = world.operator.hanse(&["explain", "deployment/lost", "-n", "bad"]).ok();
    assert!(said.contains("atlantis"), "{said}");
    world.k(&["delete", "ns", "bad"]).ok();

    let map = |to: Value| {
        let patch = json!({"spec": {"namespaces": to}}).to_string();
        world.k(&["patch", "cluster", "m3", "--type=merge", "-p", &patch]).ok();
    };
    let long = "n".repeat(60);
    map(json!("Prefixed"));
    world.k(&["create", "ns", &long]).ok();
    world.k(&["annotate", "ns", &long, "hanse.io/clusters=m3"]).ok();
    world.apply("long.json", &in_namespace(&long, vec![app::deployment("web", 1)]));
    let promise = Promise::within(STUCK_SHOWS);
    until_told(world, &promise, &long, "web", "Invalid", &["longer than 63 characters", "shorter name"]);
    world.k(&["delete", "ns", &long]).ok();
    map(Value::Null);
}

/// Nobody has that label. When somebody has it the object is placed.
pub fn bad_input_a_policy_that_no_cluster_satisfies(world: &World) {
    world.k(&["create", "ns", "moonlit"]).ok();
    let moon = json!({
        "apiVersion": "hanse.io/v1alpha1", "kind": "Placement", "metadata": {"name": "moon"},
        "spec": {
            "select": [{"kinds": ["Deployment"], "namespaces": ["moonlit"]}],
            "clusters": {"selector": {"matchLabels": {"planet": "moon"}}},
        },
    });
    world.apply("moon.json", &[moon]);
    world.apply("moonlit.json", &in_namespace("moonlit", vec![app::deployment("web", 1)]));
    let promise = Promise::within(STUCK_SHOWS);
    let words =
        ["the policy does not select it", "its labels", "decided by a Placement of the workspace, moon"];
    until_told(world, &promise, "moonlit", "web", "Unplaced", &words);
    world.k(&["label", "cluster", "m3", "planet=moon"]).ok();
    until_good(world, "moonlit", "web");
    world.until_in("moonlit", "assignment", "deployments.apps.web", "it is in m3", |it| {
        it["spec"]["clusters"][0]["name"] == "m3"
    });
    world.k(&["delete", "ns", "moonlit", "--wait=false"]).ok();
    world.k(&["delete", "placement", "moon"]).ok();
    world.k(&["label", "cluster", "m3", "planet-"]).ok();
}
