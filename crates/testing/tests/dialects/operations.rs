//! What is done in clusters, and the words for what cannot be: federation v1's own cases of its synchronization, and
//! KubeFed's statuses that can come to pass here.

use std::sync::{Arc, Mutex};

use anyhow::Result;
use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};
use testing::webhook::{Asked, Reply, Webhook};

use crate::{
    app::{self, NS},
    words::{A, B, begin, federated, named, plain, restart, start, until_told},
    world::{CLUSTERS, Member, condition, path, text},
};

fn settings(value: &str, clusters: &[&str]) -> Value {
    federated(
        "ConfigMap",
        "settings",
        json!({"template": {"data": {"key": value}}, "placement": named(clusters)}),
    )
}

fn copy() -> String {
    path(&plain(&settings("", &[])))
}

/// Whoever runs the cluster does not want this.
async fn refuse(member: &Member, operation: &str) -> Result<()> {
    let name = format!("no-{}", operation.to_lowercase());
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {"resourceRules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "operations": [operation], "resources": ["configmaps"],
            }]},
            "matchConditions": [{
                "name": "settings",
                "expression": "(object == null ? oldObject : object).metadata.name == 'settings'",
            }],
            "validations": [{"expression": "false", "message": "it is not wanted"}],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]},
    });
    member.create(&policy).await?;
    member.create(&binding).await.map(drop)
}

async fn allow(member: &Member, operation: &str) -> Result<()> {
    let group = "/apis/admissionregistration.k8s.io/v1";
    let name = format!("no-{}", operation.to_lowercase());
    for collection in ["validatingadmissionpolicybindings", "validatingadmissionpolicies"] {
        member.client.delete(&format!("{group}/{collection}/{name}")).await?;
    }
    Ok(())
}

/// Waits until what was asked for is refused there.
async fn until_refused(ask: impl AsyncFn() -> Result<testing::client::Answer>) -> Result<()> {
    testing::hub::eventually("it is refused", || async { Ok((ask().await?.code == 422).then_some(())) }).await
}

fn message(told: &Value) -> String {
    condition(told, "Propagation")["message"].as_str().unwrap_or_default().to_owned()
}

/// What was refused is tried again, without anybody doing anything in the hub, also by one that is started anew.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_cluster_refuses_is_told_and_done_when_it_no_longer_does() -> Result<()> {
    let mut world = start(&[A, B]).await?;
    let (a, b) = (world.member(A).await?, world.member(B).await?);
    world.barrier(NS, 0, &[A, B]).await?;

    // It is missing and cannot be made: the other cluster has it.
    refuse(&b, "CREATE").await?;
    let mut trial = app::config_map("settings", "trial");
    trial["metadata"]["namespace"] = json!(NS);
    let collection = format!("/api/v1/namespaces/{NS}/configmaps?dryRun=All");
    until_refused(async || b.client.post(&collection, &trial).await).await?;
    world.apply(&settings("one", &[A, B])).await?;
    let failed =
        until_told(&world, &settings("", &[]), &[(A, ""), (B, "CreationFailed")], "FalseCheckClusters")
            .await?;
    assert!(message(&failed).contains("it is not wanted"), "{failed}");
    assert_eq!(a.get(&copy()).await?["data"]["key"], "one");
    allow(&b, "CREATE").await?;
    b.until(&copy(), "it is made", |it| it["data"]["key"] == "one").await?;
    let well = until_told(&world, &settings("", &[]), &[(A, ""), (B, "")], "True").await?;
    assert_eq!(message(&well), "");

    // It differs and cannot be changed.
    refuse(&b, "UPDATE").await?;
    let trial = json!({"metadata": {"annotations": {"trial": "true"}}});
    until_refused(async || b.client.merge_patch(&format!("{}?dryRun=All", copy()), &trial).await).await?;
    world.apply(&settings("two", &[A, B])).await?;
    let failed =
        until_told(&world, &settings("", &[]), &[(A, ""), (B, "UpdateFailed")], "FalseCheckClusters").await?;
    assert!(message(&failed).contains("it is not wanted"), "{failed}");
    a.until(&copy(), "it is changed", |it| it["data"]["key"] == "two").await?;
    assert_eq!(b.get(&copy()).await?["data"]["key"], "one");
    restart(&mut world, &[A, B]).await?;
    until_told(&world, &settings("", &[]), &[(A, ""), (B, "UpdateFailed")], "FalseCheckClusters").await?;
    allow(&b, "UPDATE").await?;
    b.until(&copy(), "it is changed", |it| it["data"]["key"] == "two").await?;
    until_told(&world, &settings("", &[]), &[(A, ""), (B, "")], "True").await?;

    // It is not meant for the cluster any more and cannot be deleted.
    refuse(&b, "DELETE").await?;
    until_refused(async || b.client.delete(&format!("{}?dryRun=All", copy())).await).await?;
    world.apply(&settings("two", &[A])).await?;
    let failed =
        until_told(&world, &settings("", &[]), &[(A, ""), (B, "DeletionFailed")], "FalseCheckClusters")
            .await?;
    assert!(message(&failed).contains("it is not wanted"), "{failed}");
    assert!(b.has(&copy()).await?);
    allow(&b, "DELETE").await?;
    b.until_gone(&copy()).await?;
    until_told(&world, &settings("", &[]), &[(A, "")], "True").await.map(drop)
}

/// How somebody answers who is asked before anything changes in a cluster.
#[derive(Clone, Copy)]
enum Mood {
    Silent,
    Broken,
    Willing,
}

fn reply(mood: Mood, asked: &Asked) -> Reply {
    match mood {
        Mood::Silent => Reply::Nothing,
        Mood::Broken => Reply::Raw(StatusCode::INTERNAL_SERVER_ERROR, "text/plain", Bytes::new()),
        Mood::Willing => Reply::Json(json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "response": {"uid": asked.body["request"]["uid"], "allowed": true},
        })),
    }
}

/// A cluster that is well and does not answer in time is one thing; that it answers that something broke is another.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_is_too_slow_or_broken_has_words_of_its_own() -> Result<()> {
    let mut world = start(&[A, B]).await?;
    let (a, b) = (world.member(A).await?, world.member(B).await?);
    world.barrier(NS, 0, &[A, B]).await?;
    let mood = Arc::new(Mutex::new(Mood::Silent));
    let turn = |it| *mood.lock().expect("nobody panics") = it;
    let of_webhook = mood.clone();
    let webhook = Webhook::start(move |asked| {
        let mood = *of_webhook.lock().expect("nobody panics");
        reply(mood, asked)
    })
    .await?;
    let rule = json!({
        "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["configmaps"],
    });
    b.create(&json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "moody"},
        "webhooks": [{
            "name": "moody.example.com", "rules": [rule], "sideEffects": "None", "timeoutSeconds": 30,
            "admissionReviewVersions": ["v1"], "failurePolicy": "Fail",
            "matchConditions": [{"name": "settings", "expression": "object.metadata.name == 'settings'"}],
            "clientConfig": {"url": format!("{}/review", webhook.url), "caBundle": webhook.ca_bundle},
        }],
    }))
    .await?;
    turn(Mood::Broken);
    let mut trial = app::config_map("settings", "trial");
    trial["metadata"]["namespace"] = json!(NS);
    let collection = format!("/api/v1/namespaces/{NS}/configmaps?dryRun=All");
    let ask = || async { Ok((b.client.post(&collection, &trial).await?.code == 500).then_some(())) };
    testing::hub::eventually("the webhook is asked", ask).await?;

    let words = [("CreationTimedOut", "CreationFailed"), ("UpdateTimedOut", "UpdateFailed")];
    for (value, (slow, broken)) in ["one", "two"].into_iter().zip(words) {
        turn(Mood::Silent);
        world.apply(&settings(value, &[A, B])).await?;
        until_told(&world, &settings("", &[]), &[(A, ""), (B, slow)], "FalseCheckClusters").await?;
        a.until(&copy(), "the other one has it", |it| it["data"]["key"] == value).await?;
        assert_ne!(b.get(&copy()).await?["data"]["key"], value);
        // The cluster is well all the time.
        world.until_ready(B).await?;

        turn(Mood::Broken);
        let failed =
            until_told(&world, &settings("", &[]), &[(A, ""), (B, broken)], "FalseCheckClusters").await?;
        assert!(message(&failed).contains("moody.example.com"), "{failed}");
        restart(&mut world, &[A, B]).await?;
        until_told(&world, &settings("", &[]), &[(A, ""), (B, broken)], "FalseCheckClusters").await?;

        turn(Mood::Willing);
        b.until(&copy(), "it has it as well", |it| it["data"]["key"] == value).await?;
        until_told(&world, &settings("", &[]), &[(A, ""), (B, "")], "True").await?;
    }
    webhook.stop().await;
    Ok(())
}

/// The rows of federation v1's `syncToClusters`: what its worker answers there shows here in the status of the object.
#[tokio::test(flavor = "multi_thread")]
async fn what_federation_v1_answers_of_a_pass_is_told() -> Result<()> {
    let mut world = start(&[A, B]).await?;
    let (a, b) = (world.member(A).await?, world.member(B).await?);
    let lost = |it: &Value| condition(it, "Ready")["status"] != "True";

    // Nothing is known of a cluster: not synced, and nothing is done there.
    world.apply(&settings("one", &[A, B])).await?;
    until_told(&world, &settings("", &[]), &[(A, ""), (B, "")], "True").await?;
    world.cut(B)?;
    world.until(&format!("{CLUSTERS}/{B}"), "it is lost", lost).await?;
    world.apply(&settings("two", &[A, B])).await?;
    a.until(&copy(), "it is changed", |it| it["data"]["key"] == "two").await?;
    until_told(&world, &settings("", &[]), &[(A, ""), (B, "ClusterNotReady")], "FalseCheckClusters").await?;
    assert_eq!(b.get(&copy()).await?["data"]["key"], "one");

    // A successful update: it is looked at again, and told when the cluster has it.
    world.heal(B)?;
    b.until(&copy(), "it is changed", |it| it["data"]["key"] == "two").await?;
    until_told(&world, &settings("", &[]), &[(A, ""), (B, "")], "True").await?;

    // No operations: all is well, and nothing is written, by a hub that is started anew either.
    restart(&mut world, &[A, B]).await?;
    let mark = world.there.mark();
    world.barrier(NS, 1, &[A, B]).await?;
    until_told(&world, &settings("", &[]), &[(A, ""), (B, "")], "True").await?;
    let written: Vec<_> = world
        .writes_to_copies(mark)
        .into_iter()
        .filter(|deed| format!("{deed:?}").contains("settings"))
        .collect();
    assert!(written.is_empty(), "{written:?}");

    // What is to be done cannot be told: an error, and what is there stays.
    let mut broken = settings("three", &[A, B]);
    broken["spec"]["overrides"] =
        json!([{"clusterName": B, "clusterOverrides": [{"path": "/data/missing", "value": "x"}]}]);
    world.apply(&broken).await?;
    until_told(&world, &broken, &[(A, ""), (B, "ApplyOverridesFailed")], "FalseCheckClusters").await?;
    assert_eq!(b.get(&copy()).await?["data"]["key"], "two");
    // And what cannot be done: see above.
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_makes_no_sense_is_refused_or_told() -> Result<()> {
    let world = start(&[A]).await?;
    // A selector that cannot be read is not accepted; where it was, by an older hub, the condition says so.
    let selector = json!({"matchExpressions": [{"key": "size", "operator": "Gt", "values": ["3"]}]});
    let mut wrong = settings("one", &[]);
    wrong["spec"]["placement"] = json!({"clusterSelector": selector});
    let refused = crate::world::apply(&world.client, "", &wrong).await?;
    assert_eq!(refused.code, 422, "{}", refused.text());

    // Of the forms with three objects, the object that selects is checked as well.
    let placement = json!({
        "apiVersion": "primitives.federation.k8s.io/v1alpha1", "kind": "FederatedConfigMapPlacement",
        "metadata": {"name": "settings", "namespace": NS}, "spec": {"clusterSelector": selector},
    });
    let refused = crate::world::apply(&world.client, "", &placement).await?;
    assert_eq!(refused.code, 422, "{}", refused.text());

    let other = federated("Namespace", "other", json!({"placement": named(&[A])}));
    world.apply(&other).await?;
    let told = until_told(&world, &other, &[], "FalseInvalidName").await?;
    assert!(message(&told).contains(NS), "{told}");
    assert_eq!(text(&told, "/metadata/namespace"), NS);
    world.client.delete(&path(&other)).await?;
    world.until_gone(&path(&other)).await?;

    // There is no place for replicas in it.
    let preference = json!({
        "apiVersion": "scheduling.kubefed.io/v1alpha1", "kind": "ReplicaSchedulingPreference",
        "metadata": {"name": "web", "namespace": NS},
        "spec": {"targetKind": "FederatedDeployment", "totalReplicas": 3},
    });
    world.apply(&preference).await?;
    for spec in [json!("none"), json!(["none"]), json!(3), json!(true)] {
        let web =
            federated("Deployment", "web", json!({"template": {"spec": spec}, "placement": named(&[A])}));
        world.apply(&web).await?;
        let told = until_told(&world, &web, &[(A, "ComputeResourceFailed")], "FalseCheckClusters").await?;
        assert!(message(&told).contains("the spec of the template"), "{told}");
    }
    Ok(())
}

/// Labels are checked when they are put on the namespace. Those that cannot be are told of, and keep nothing from going.
#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_whose_labels_cannot_be_says_so_and_can_be_deleted() -> Result<()> {
    let world = begin(&[A, B]).await?;
    world.namespace(NS).await?;
    let home = |placement: Value| {
        let template = json!({"metadata": {"labels": {"team": "no such value!"}}});
        federated("Namespace", NS, json!({"placement": placement, "template": template}))
    };
    let everywhere = home(json!({"clusterSelector": {}}));
    world.apply(&everywhere).await?;
    let failed = [(A, "ComputeResourceFailed"), (B, "ComputeResourceFailed")];
    let told = until_told(&world, &everywhere, &failed, "FalseCheckClusters").await?;
    assert!(message(&told).contains("no such value!"), "{told}");

    // Where it is nowhere, they are not looked at.
    let nowhere = home(json!({"clusters": []}));
    world.apply(&nowhere).await?;
    until_told(&world, &nowhere, &[], "True").await?;

    world.apply(&everywhere).await?;
    until_told(&world, &everywhere, &failed, "FalseCheckClusters").await?;
    world.client.delete(&path(&everywhere)).await?;
    world.until_gone(&path(&everywhere)).await
}
