//! Members refuse things, and users ask for what cannot be: both are said on the object, with what to do.

use anyhow::Result;
use serde_json::{Value, json};
use testing::webhook::{Reply, Webhook};

use crate::{
    app::{self, NS},
    world::{CLUSTERS, World, assignment_path, condition, deployment_path, path, text},
};

const NAMESPACE: &str = "/api/v1/namespaces/shop";

async fn until_synced_is(world: &World, path: &str, reason: &str, says: &[&str]) -> Result<Value> {
    let is_told = |it: &Value| {
        let synced = condition(it, "Synced");
        synced["status"] == "False"
            && synced["reason"] == reason
            && says.iter().all(|part| text(&synced, "/message").contains(part))
    };
    world.until(path, &format!("Synced is False, {reason}, and says {says:?}"), is_told).await
}

/// Events about an object, of a reason.
async fn until_event(world: &World, name: &str, reason: &str, says: &str) -> Result<usize> {
    let of = |list: &Value| {
        let events = list["items"].as_array().into_iter().flatten();
        let is_it = |it: &&Value| {
            it["involvedObject"]["name"] == name
                && it["reason"] == reason
                && text(it, "/message").contains(says)
        };
        events.filter(is_it).count()
    };
    let path = format!("{NAMESPACE}/events");
    let list =
        world.until(&path, &format!("an event {reason} about {name} says {says}"), |it| of(it) > 0).await?;
    Ok(of(&list))
}

async fn until_clear(world: &World, path: &str) -> Result<()> {
    world.until(path, "it is over", |it| condition(it, "Synced").is_null()).await.map(drop)
}

/// A member that has a namespace `shop` of its own.
async fn with_namespace() -> Result<World> {
    let world = World::start(&["m1"]).await?;
    world.member("m1").await?.create(&app::namespace(NS)).await?;
    world.namespace(NS).await?;
    Ok(world)
}

fn quota(deployments: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "strict", "namespace": NS},
        "spec": {"hard": {"count/deployments.apps": deployments}},
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn u1_7_bad_input_a_quota_of_the_member_is_told_and_cleared() -> Result<()> {
    let world = with_namespace().await?;
    let member = world.member("m1").await?;
    member.create(&quota("0")).await?;
    let is_counted = |it: &Value| it["status"]["hard"]["count/deployments.apps"] == "0";
    member.until(&path(&quota("0")), "it is in force", is_counted).await?;
    world.apply(&app::deployment("web", 3)).await?;

    until_synced_is(&world, &deployment_path("web"), "Refused", &["m1", "exceeded quota", "raise the"])
        .await?;
    until_event(&world, "web", "Refused", "exceeded quota").await?;
    until_event(&world, "web", "Refused", "raise the ResourceQuota in the cluster").await?;

    member
        .client
        .merge_patch(&path(&quota("0")), &json!({"spec": {"hard": {"count/deployments.apps": "5"}}}))
        .await?;
    until_clear(&world, &deployment_path("web")).await?;
    world.until_rolled_out("web", 3).await?;
    Ok(())
}

/// What the policy says is changed on the object.
#[tokio::test(flavor = "multi_thread")]
async fn u1_7_bad_input_a_policy_of_the_member_is_told_and_fixing_the_object_clears_it() -> Result<()> {
    let world = with_namespace().await?;
    let member = world.member("m1").await?;
    let rule = json!({"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["deployments"]});
    member
        .create(&json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": "few"},
            "spec": {
                "matchConstraints": {"resourceRules": [rule]},
                "validations": [{"expression": "object.spec.replicas <= 2", "message": "at most two replicas here"}],
            },
        }))
        .await?;
    member
        .create(&json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": "few"}, "spec": {"policyName": "few", "validationActions": ["Deny"]},
        }))
        .await?;
    // Until it is in force.
    let probe = |number: u32| {
        let mut it = app::deployment(&format!("probe-{number}"), 3);
        it["metadata"]["namespace"] = json!("default");
        it
    };
    let mut number = 0;
    while member.create(&probe(number)).await.is_ok() {
        number += 1;
    }
    world.apply(&app::deployment("web", 3)).await?;

    until_synced_is(&world, &deployment_path("web"), "Refused", &["m1", "at most two replicas here"]).await?;
    until_event(&world, "web", "Refused", "at most two replicas here").await?;

    world.apply(&app::deployment("web", 2)).await?;
    until_clear(&world, &deployment_path("web")).await?;
    world.until_rolled_out("web", 2).await?;
    // A change that is refused leaves what runs.
    let pods = member.pods(NS).await?;
    world.apply(&app::deployment("web", 4)).await?;
    let web = until_synced_is(&world, &deployment_path("web"), "Refused", &["at most two"]).await?;
    assert_eq!(web["status"]["readyReplicas"], 2);
    assert_eq!(member.pods(NS).await?, pods);
    Ok(())
}

/// Not an event for each try (pauses between them double, which is tested where they are made); X4: one command shows it.
#[tokio::test(flavor = "multi_thread")]
async fn d09_x4_bad_input_a_webhook_that_refuses_is_told_once_however_often_it_is_asked() -> Result<()> {
    let world = with_namespace().await?;
    let member = world.member("m1").await?;
    let webhook = Webhook::start(|asked| {
        let uid = &asked.body["request"]["uid"];
        let status = json!({"message": "not on a Monday"});
        Reply::Json(json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "response": {"uid": uid, "allowed": false, "status": status},
        }))
    })
    .await?;
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]});
    member
        .create(&json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "mondays"},
            "webhooks": [{
                "name": "mondays.example.com", "rules": [rule], "sideEffects": "None",
                "admissionReviewVersions": ["v1"], "failurePolicy": "Fail",
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": NS}},
                "clientConfig": {"url": format!("{}/review", webhook.url), "caBundle": webhook.ca_bundle},
            }],
        }))
        .await?;
    while member.create(&app::config_map("probe", "x")).await.is_ok() {
        member.client.delete(&path(&app::config_map("probe", "x"))).await?;
    }
    webhook.take();
    world.apply(&app::deployment("web", 1)).await?;
    world.until_rolled_out("web", 1).await?;
    let settings = app::config_map("settings", "one");
    world.apply(&settings).await?;

    until_event(&world, "settings", "Refused", "not on a Monday").await?;
    until_event(&world, "settings", "Refused", "change the object as the webhook of the cluster asks")
        .await?;
    // A ConfigMap has no conditions; its Assignment says it: `kubectl get assignment configmaps.settings -o yaml`.
    let is_told = |it: &Value| {
        let report = &it["status"]["clusters"][0];
        report["reason"] == "Refused" && text(report, "/message").contains("not on a Monday")
    };
    world.until(&assignment_path(&settings), "it is in the Assignment", is_told).await?;
    let mut tries = 0;
    testing::hub::eventually("it is tried again", || {
        tries += webhook.take().len();
        let enough = tries >= 4;
        async move { Ok(enough.then_some(())) }
    })
    .await?;
    assert_eq!(until_event(&world, "settings", "Refused", "not on a Monday").await?, 1, "it is said once");
    webhook.stop().await;
    Ok(())
}

/// Somebody makes an object of that name after the session has looked and before its own arrives: the webhook sees to
/// that.
#[tokio::test(flavor = "multi_thread")]
async fn x2_an_object_that_is_made_at_the_same_moment_is_left_as_it_was() -> Result<()> {
    let world = with_namespace().await?;
    let member = world.member("m1").await?;
    let theirs = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings", "namespace": NS},
        "data": {"theirs": "yes"},
    });
    let (rival, made, runtime) = (member.client.clone(), theirs.clone(), tokio::runtime::Handle::current());
    let webhook = Webhook::start(move |asked| {
        let request = &asked.body["request"];
        let by_session = text(request, "/userInfo/username").ends_with(":hanse-session");
        if by_session && request["name"] == "settings" {
            let place = format!("{NAMESPACE}/configmaps");
            let _ = tokio::task::block_in_place(|| runtime.block_on(rival.post(&place, &made)));
        }
        Reply::Json(json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "response": {"uid": request["uid"], "allowed": true},
        }))
    })
    .await?;
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]});
    member
        .create(&json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "rival"},
            "webhooks": [{
                "name": "rival.example.com", "rules": [rule], "sideEffects": "None",
                "admissionReviewVersions": ["v1"], "failurePolicy": "Fail",
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": NS}},
                "clientConfig": {"url": format!("{}/review", webhook.url), "caBundle": webhook.ca_bundle},
            }],
        }))
        .await?;
    let mut probe = 0;
    while webhook.take().is_empty() {
        member.create(&app::config_map(&format!("probe-{probe}"), "x")).await?;
        probe += 1;
    }
    world.apply(&app::deployment("web", 1)).await?;
    world.until_rolled_out("web", 1).await?;
    let settings = app::config_map("settings", "ours");
    world.apply(&settings).await?;

    until_event(&world, "settings", "Conflict", api::ADOPT_ANNOTATION).await?;
    let now = member.get(&path(&settings)).await?;
    assert_eq!(now["data"], theirs["data"], "{now}");
    assert!(now["metadata"]["annotations"].is_null() && now["metadata"]["labels"].is_null(), "{now}");
    // Nor does it go with ours.
    world.client.delete(&path(&settings)).await?;
    world.until_gone(&assignment_path(&settings)).await?;
    assert_eq!(member.get(&path(&settings)).await?["metadata"]["uid"], now["metadata"]["uid"]);
    webhook.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_input_unknown_clusters() -> Result<()> {
    let world = World::start(&["m1"]).await?;
    world.namespace(NS).await?;
    let mut web = app::deployment("web", 3);
    web["metadata"]["annotations"] = json!({"hanse.io/clusters": "nowhere"});
    world.apply(&web).await?;
    until_synced_is(&world, &deployment_path("web"), "Unplaced", &["nowhere", "joining it"]).await?;
    // Of two names one is good: that one has it, and the other is named.
    world.annotate(&deployment_path("web"), json!({"hanse.io/clusters": "m1,nowhere"})).await?;
    world
        .until(&deployment_path("web"), "it runs where it can", |it| it["status"]["readyReplicas"] == 3)
        .await?;
    // What runs stays where it is while there is no other place for it.
    let m1 = world.member("m1").await?;
    let pods = m1.pods(NS).await?;
    world.annotate(&deployment_path("web"), json!({"hanse.io/clusters": "nowhere"})).await?;
    until_synced_is(&world, &deployment_path("web"), "Pending", &["nowhere", "joining it"]).await?;
    world.barrier(NS, 1, &["m1"]).await?;
    assert_eq!(m1.pods(NS).await?, pods);
    Ok(())
}

/// What waits for a label is placed when a cluster has it.
#[tokio::test(flavor = "multi_thread")]
async fn a2_2_a_label_of_a_cluster_wakes_who_waits_for_it() -> Result<()> {
    let world = World::start(&["m1"]).await?;
    world.namespace(NS).await?;
    let mut web = app::deployment("web", 2);
    web["spec"]["template"]["spec"]["nodeSelector"] = json!({"disk": "fast"});
    world.apply(&web).await?;
    until_synced_is(&world, &deployment_path("web"), "Unplaced", &["m1"]).await?;
    let cluster = "/apis/hanse.io/v1alpha1/clusters/m1";
    world.patch(cluster, json!({"metadata": {"labels": {"disk": "fast"}}})).await?;
    let is_assigned = |it: &Value| !crate::world::shares(it).is_empty();
    world.until(&assignment_path(&web), "it has a place", is_assigned).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_input_policies_that_cannot_be_kept() -> Result<()> {
    let world = World::start(&["m1"]).await?;
    world.namespace(NS).await?;
    let placement = |name: &str, clusters: Value| {
        json!({
            "apiVersion": "hanse.io/v1alpha1", "kind": "Placement", "metadata": {"name": name},
            "spec": {"select": [{"kinds": ["Deployment"], "namespaces": [NS]}], "clusters": clusters},
        })
    };
    // Nobody has that label.
    let on_the_moon = json!({"selector": {"matchLabels": {"planet": "moon"}}});
    world.apply(&placement("moon", on_the_moon)).await?;
    world.apply(&app::deployment("web", 3)).await?;
    until_synced_is(
        &world,
        &deployment_path("web"),
        "Unplaced",
        &["m1: the policy does not select it", "its labels", "decided by a Placement of the workspace, moon"],
    )
    .await?;
    // One of root is named as such.
    let mut of_root = placement("sun", json!({"names": ["sun"]}));
    of_root["spec"]["select"] = json!([{"kinds": ["StatefulSet"]}]);
    let answer = crate::world::apply(&world.client, "/clusters/root", &of_root).await?;
    assert!(answer.code.is_success(), "{}", answer.text());
    let set = app::stateful_set("db", 1);
    world.apply(&set).await?;
    until_synced_is(&world, &path(&set), "Unplaced", &["decided by a Placement of root, sun"]).await?;
    // One that makes no sense is refused where it is written.
    let nonsense = placement(
        "nonsense",
        json!({"selector": {"matchExpressions": [{"key": "a", "operator": "Almost"}]}}),
    );
    let refused = crate::world::apply(&world.client, "", &nonsense).await?;
    assert_eq!(refused.code, 422, "{}", refused.text());
    // When the label is there the object is placed.
    world.patch(&format!("{CLUSTERS}/m1"), json!({"metadata": {"labels": {"planet": "moon"}}})).await?;
    world.until_rolled_out("web", 3).await?;
    until_clear(&world, &deployment_path("web")).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_input_a_name_too_long_for_a_mapped_namespace() -> Result<()> {
    let world = World::start(&["m1"]).await?;
    world.patch(&format!("{CLUSTERS}/m1"), json!({"spec": {"namespaces": "Prefixed"}})).await?;
    let long = "n".repeat(60);
    world.namespace(&long).await?;
    let mut web = app::deployment("web", 1);
    web["metadata"]["namespace"] = json!(long);
    world.apply(&web).await?;
    until_synced_is(&world, &path(&web), "Invalid", &["longer than 63 characters", "shorter name"]).await?;
    let told = |list: &Value| {
        let mut events = list["items"].as_array().into_iter().flatten();
        events.any(|it| it["reason"] == "Invalid" && it["involvedObject"]["name"] == "web")
    };
    world.until(&format!("/api/v1/namespaces/{long}/events"), "as an event too", told).await?;
    // A shorter one works there, under its mapped name.
    let short = "n".repeat(20);
    world.namespace(&short).await?;
    web["metadata"]["namespace"] = json!(short);
    world.apply(&web).await?;
    world.until(&path(&web), "it runs", |it| it["status"]["readyReplicas"] == 1).await?;
    web["metadata"]["namespace"] = json!(format!("default-{short}"));
    assert!(world.member("m1").await?.has(&path(&web)).await?);
    Ok(())
}

/// More than there is room for: the rest waits, and says what each cluster lacks.
#[tokio::test(flavor = "multi_thread")]
async fn bad_input_what_fits_nowhere_says_why() -> Result<()> {
    let world = World::start(&["m1", "m2"]).await?;
    world.namespace(NS).await?;
    let mut web = app::deployment("web", 1);
    web["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "10000"}});
    world.apply(&web).await?;
    until_synced_is(&world, &deployment_path("web"), "Unplaced", &["m1", "m2", "cpu"]).await?;
    Ok(())
}
