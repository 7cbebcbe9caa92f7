//! What real members do not take, and what cannot be meant: on the object, with what to do.

use serde_json::{Value, json};
use testing::{
    operator::eventually,
    webhook::{Reply, Webhook},
};

use crate::{
    app, in_namespace,
    world::{World, condition},
};

/// A Deployment of this namespace says so, in its condition and by an Event.
fn until_told(world: &World, namespace: &str, name: &str, reason: &str, words: &[&str]) {
    world.until_in(namespace, "deploy", name, &format!("{reason} is told"), |it| {
        let synced = condition(it, "Synced");
        let message = synced["message"].as_str().unwrap_or_default();
        synced["status"] == "False"
            && synced["reason"] == reason
            && words.iter().all(|word| message.contains(word))
    });
    eventually("as an Event, too", || {
        let said = world.k(&["describe", "deploy", name, "-n", namespace]).ok();
        let events = said.split_once("Events:").map_or("", |(_, events)| events);
        if events.contains(reason) { Ok(()) } else { Err(said) }
    });
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
    until_told(world, "strict", "web", "Refused", &["m1: ", "exceeded quota"]);
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
    until_told(world, "strict", "pet", "Refused", &["m1: ", "no pets here"]);
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
    until_told(world, "strict", "guarded", "Refused", &["m1: ", "guild.example.com", "ask the guild first"]);
    world.m("m1", &["delete", "validatingwebhookconfiguration", "guild"]).ok();
    until_good(world, "strict", "guarded");
    world.k(&["delete", "ns", "strict"]).ok();
}

pub fn bad_input_unknown_clusters_and_names_too_long(world: &World) {
    world.k(&["create", "ns", "bad"]).ok();
    let mut lost = app::deployment("lost", 1);
    lost["metadata"]["annotations"] = json!({"hanse.io/clusters": "atlantis"});
    world.apply("lost.json", &in_namespace("bad", vec![lost]));
    until_told(world, "bad", "lost", "Unplaced", &["atlantis", "joining it"]);
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
    until_told(world, &long, "web", "Invalid", &["longer than 63 characters", "shorter name"]);
    world.k(&["delete", "ns", &long]).ok();
    map(Value::Null);
}
