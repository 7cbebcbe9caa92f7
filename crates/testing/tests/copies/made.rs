//! Copies are made, changed with their object, and refused.

use anyhow::Result;
use api::assignment::reason;
use serde_json::json;
use testing::hub::eventually;

use crate::hand::{CONFIG_MAP, Hand, NAMESPACE, SECRET, Spot, copy, is_there, one_cluster, share, target};

#[tokio::test(flavor = "multi_thread")]
async fn an_assigned_object_is_in_its_cluster_and_says_whose_it_is() -> Result<()> {
    let (world, members) = one_cluster().await?;
    let hand = Hand::new(&world);
    // In any order: a namespace is there before anything in it.
    hand.make(&NAMESPACE, "", json!({"metadata": {"name": "shop", "labels": {"team": "blue"}}})).await?;
    hand.config_map("shop", "settings", json!({"a": "1"}), &["eu-1"]).await?;
    hand.namespace("shop", &["eu-1"]).await?;
    let path = CONFIG_MAP.path("shop", "settings");
    let made = copy(&members, "one", &path, |_| true).await?;
    let source = hand.get(&path).await?;
    assert_eq!(made["data"], json!({"a": "1"}));
    assert_eq!(
        made["metadata"]["labels"],
        json!({"hanse.io/workspace": "default", "hanse.io/workspace-id": "default"})
    );
    assert_eq!(made["metadata"]["annotations"]["hanse.io/source-uid"], source["metadata"]["uid"]);
    let namespace = copy(&members, "one", "/api/v1/namespaces/shop", |_| true).await?;
    assert_eq!(namespace["metadata"]["labels"]["team"], "blue");
    assert_eq!(namespace["metadata"]["labels"]["hanse.io/workspace"], "default");
    let report = hand.until_applied(&CONFIG_MAP, "shop", "settings", "eu-1").await?;
    assert_eq!((report.reason.as_str(), report.generation), ("", 1));
    let report = hand.until_applied(&NAMESPACE, "shop", "shop", "eu-1").await?;
    assert_eq!(report.status["phase"], "Active", "what the member says of it");
    // What changes here changes there; what goes here goes there.
    hand.patch(&CONFIG_MAP, "shop", "settings", json!({"data": {"a": null, "b": "2"}})).await?;
    copy(&members, "one", &path, |it| it["data"] == json!({"b": "2"})).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_names_no_cluster_or_another_one_does_nothing() -> Result<()> {
    let (world, members) = one_cluster().await?;
    let hand = Hand::new(&world);
    hand.namespace("shop", &["eu-1"]).await?;
    hand.make(&CONFIG_MAP, "shop", json!({"metadata": {"name": "nowhere"}})).await?;
    hand.assign(&CONFIG_MAP, "shop", "nowhere", &[]).await?;
    hand.make(&CONFIG_MAP, "shop", json!({"metadata": {"name": "earlier"}})).await?;
    let mut earlier = target("eu-1");
    earlier.uid = "of-a-cluster-of-that-name-that-is-gone".into();
    hand.assign(&CONFIG_MAP, "shop", "earlier", &[earlier]).await?;
    hand.config_map("shop", "last", json!({}), &["eu-1"]).await?;
    hand.until_applied(&CONFIG_MAP, "shop", "last", "eu-1").await?;
    for name in ["nowhere", "earlier"] {
        assert!(!is_there(&members, "one", &CONFIG_MAP.path("shop", name)).await?, "{name}");
        assert!(hand.reports(&CONFIG_MAP, "shop", name)?.is_empty());
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_is_told_where_the_user_looks_and_tried_again() -> Result<()> {
    let (world, members) = one_cluster().await?;
    let hand = Hand::new(&world);
    hand.namespace("shop", &["eu-1"]).await?;
    hand.until_applied(&NAMESPACE, "shop", "shop", "eu-1").await?;
    let quota = json!({"metadata": {"name": "few"}, "spec": {"hard": {"count/secrets": "0"}}});
    members.post("one", "/api/v1/namespaces/shop/resourcequotas", quota).await?;
    copy(&members, "one", "/api/v1/namespaces/shop/resourcequotas/few", |it| {
        it["status"]["hard"]["count/secrets"] == "0"
    })
    .await?;
    hand.make(&SECRET, "shop", json!({"metadata": {"name": "key"}})).await?;
    hand.assign(&SECRET, "shop", "key", &[target("eu-1")]).await?;
    let report = hand.until(&SECRET, "shop", "key", "eu-1", |it| it.reason == reason::REFUSED).await?;
    assert!(report.message.contains("exceeded quota: few"), "{}", report.message);
    assert!(!report.applied);
    let warnings = eventually("an event", || async {
        let warnings = hand.warnings("shop", "key").await?;
        Ok((!warnings.is_empty()).then_some(warnings))
    })
    .await?;
    assert!(
        warnings[0].starts_with("cluster eu-1: ") && warnings[0].contains("exceeded quota"),
        "{warnings:?}"
    );
    let path = "/clusters/one/api/v1/namespaces/shop/resourcequotas/few";
    members.admin.merge_patch(path, &json!({"spec": {"hard": {"count/secrets": "5"}}})).await?;
    hand.until_applied(&SECRET, "shop", "key", "eu-1").await?;
    assert_eq!(hand.warnings("shop", "key").await?.len(), 1, "the same is not said twice");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_policy_of_the_member_says_is_told_and_a_change_of_the_object_mends_it() -> Result<()> {
    let (world, members) = one_cluster().await?;
    let hand = Hand::new(&world);
    hand.namespace("shop", &["eu-1"]).await?;
    let base = "/apis/admissionregistration.k8s.io/v1";
    let rules = json!([{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]);
    let validation =
        json!({"expression": "!has(object.data) || !('bad' in object.data)", "message": "no bad things"});
    let policy = json!({"metadata": {"name": "good"}, "spec": {
        "matchConstraints": {"resourceRules": rules}, "validations": [validation],
    }});
    members.post("one", &format!("{base}/validatingadmissionpolicies"), policy).await?;
    let binding =
        json!({"metadata": {"name": "good"}, "spec": {"policyName": "good", "validationActions": ["Deny"]}});
    members.post("one", &format!("{base}/validatingadmissionpolicybindings"), binding).await?;
    eventually("the policy is in force", || async {
        let bad = json!({"metadata": {"name": "probe"}, "data": {"bad": "1"}});
        let path = "/clusters/one/api/v1/namespaces/default/configmaps?dryRun=All";
        Ok((members.admin.post(path, &bad).await?.code == 422).then_some(()))
    })
    .await?;
    hand.config_map("shop", "settings", json!({"bad": "1"}), &["eu-1"]).await?;
    let report =
        hand.until(&CONFIG_MAP, "shop", "settings", "eu-1", |it| it.reason == reason::REFUSED).await?;
    assert!(report.message.contains("no bad things"), "{}", report.message);
    hand.patch(&CONFIG_MAP, "shop", "settings", json!({"data": {"bad": null, "good": "1"}})).await?;
    hand.until_applied(&CONFIG_MAP, "shop", "settings", "eu-1").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_of_a_custom_kind_are_where_its_definition_says() -> Result<()> {
    let (world, members) = one_cluster().await?;
    let hand = Hand::new(&world);
    hand.namespace("shop", &["eu-1"]).await?;
    let version = json!({
        "name": "v1", "served": true, "storage": true,
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
        "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}},
    });
    let names =
        json!({"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"});
    let definition = json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]},
    });
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    world.admin.post(path, &definition).await?;
    // What joining does not allow by itself, the member's operator may.
    let rules = json!([{"apiGroups": ["example.com"], "resources": ["*"], "verbs": ["*"]}]);
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    members
        .post(
            "one",
            &format!("{rbac}/clusterroles"),
            json!({"metadata": {"name": "widgets"}, "rules": rules}),
        )
        .await?;
    let binding = json!({
        "metadata": {"name": "widgets"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "widgets"},
        "subjects": [{"kind": "Group", "name": "system:serviceaccounts:hanse-system", "apiGroup": "rbac.authorization.k8s.io"}],
    });
    members.post("one", &format!("{rbac}/clusterrolebindings"), binding).await?;
    let widget = Spot { group: "example.com", version: "v1", plural: "widgets", kind: "Widget" };
    let object = json!({
        "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"size": 5, "color": "red"},
    });
    eventually("the kind is served", || async {
        Ok((world.admin.get(&widget.path("shop", "")).await?.code == 200).then_some(()))
    })
    .await?;
    hand.make(&widget, "shop", object).await?;
    hand.assign(&widget, "shop", "w", &[share("eu-1", 3)]).await?;
    let report = hand.until(&widget, "shop", "w", "eu-1", |it| it.reason == reason::REFUSED).await?;
    assert!(report.message.contains("could not find the requested resource"), "{}", report.message);
    members.post("one", path, definition).await?;
    let path = widget.path("shop", "w");
    let made = copy(&members, "one", &path, |_| true).await?;
    assert_eq!(made["spec"], json!({"size": 3, "color": "red"}));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_rendered_is_invalid_until_the_override_is_mended() -> Result<()> {
    let (world, members) = one_cluster().await?;
    let hand = Hand::new(&world);
    hand.namespace("shop", &["eu-1"]).await?;
    let path = "/apis/hanse.io/v1alpha1/overrides";
    let patches = |name: &str| json!([{"op": "replace", "path": format!("/data/{name}"), "value": "over"}]);
    let object = json!({
        "apiVersion": api::API_VERSION, "kind": "Override", "metadata": {"name": "change"},
        "spec": {"select": [{"kinds": ["ConfigMap"], "names": ["settings"]}], "patches": patches("none")},
    });
    assert_eq!(world.admin.post(path, &object).await?.code, 201);
    hand.config_map("shop", "settings", json!({"a": "1"}), &["eu-1"]).await?;
    let report =
        hand.until(&CONFIG_MAP, "shop", "settings", "eu-1", |it| it.reason == reason::INVALID).await?;
    assert!(report.message.contains("/data/none"), "{}", report.message);
    let mended = json!({"spec": {"patches": patches("a")}});
    assert_eq!(world.admin.merge_patch(&format!("{path}/change"), &mended).await?.code, 200);
    copy(&members, "one", &CONFIG_MAP.path("shop", "settings"), |it| it["data"]["a"] == "over").await?;
    world.admin.delete(&format!("{path}/change")).await?;
    copy(&members, "one", &CONFIG_MAP.path("shop", "settings"), |it| it["data"]["a"] == "1").await?;
    Ok(())
}
