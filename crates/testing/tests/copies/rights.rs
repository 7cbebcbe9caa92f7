//! Rights to kinds that others defined: as much as is assigned, and no more.

use anyhow::{Context, Result};
use base64::{Engine, prelude::BASE64_STANDARD};
use http::Method;
use serde_json::{Value, json};

use crate::hand::{CONFIG_MAP, CREW, Hand, copy, define_crews, is_there, one_cluster, target};

const ROLE: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles/hanse:session:placed";

#[tokio::test(flavor = "multi_thread")]
async fn an_object_of_a_kind_of_ones_own_is_copied_without_rights_being_given_by_hand() -> Result<()> {
    let (world, members) = one_cluster().await?;
    let hand = Hand::new(&world);
    let role = copy(&members, "one", ROLE, |_| true).await?;
    assert!(role["rules"].as_array().is_none_or(Vec::is_empty), "it may nothing before: {role}");
    define_crews(&members.admin, "/clusters/one").await?;
    define_crews(&world.admin, "").await?;
    hand.namespace("shop", &["eu-1"]).await?;
    hand.make(&CREW, "shop", json!({"apiVersion": "example.com/v1", "kind": "Crew", "metadata": {"name": "hulk"}, "spec": {"sailors": 2}}))
        .await?;
    hand.assign(&CREW, "shop", "hulk", &[target("eu-1")]).await?;
    let report = hand.until_applied(&CREW, "shop", "hulk", "eu-1").await?;
    assert_eq!(report.reason, "");
    let there = copy(&members, "one", &CREW.path("shop", "hulk"), |_| true).await?;
    assert_eq!(there["spec"]["sailors"], 2);
    assert_eq!(hand.warnings("shop", "hulk").await?, [""; 0], "it was not refused first");
    let role = copy(&members, "one", ROLE, |_| true).await?;
    assert_eq!(role["rules"].as_array().map(Vec::len), Some(1), "{role}");
    assert_eq!(
        (&role["rules"][0]["apiGroups"], &role["rules"][0]["resources"]),
        (&json!(["example.com"]), &json!(["crews"]))
    );
    // What becomes of it there comes back.
    let status = json!({"status": {"ready": true}});
    let path = format!("/clusters/one{}/status", CREW.path("shop", "hulk"));
    members.admin.merge_patch(&path, &status).await?;
    hand.until(&CREW, "shop", "hulk", "eu-1", |it| it.status["ready"] == true).await?;
    hand.unassign(&CREW, "shop", "hulk").await?;
    hand.until(&CREW, "shop", "hulk", "eu-1", api::assignment::Report::is_gone).await?;
    assert!(!is_there(&members, "one", &CREW.path("shop", "hulk")).await?);
    Ok(())
}

/// Whoever holds the session's token cannot make more of it than kinds that others defined.
#[tokio::test(flavor = "multi_thread")]
async fn the_role_is_never_about_anything_else() -> Result<()> {
    let (world, members) = one_cluster().await?;
    let hand = Hand::new(&world);
    hand.namespace("shop", &["eu-1"]).await?;
    hand.config_map("shop", "settings", json!({}), &["eu-1"]).await?;
    hand.until_applied(&CONFIG_MAP, "shop", "settings", "eu-1").await?;
    let secret = world.admin.get("/api/v1/namespaces/hanse-system/secrets/cluster-eu-1").await?.json();
    let token = BASE64_STANDARD.decode(secret["data"]["token"].as_str().context("a token")?)?;
    let bearer = format!("Bearer {}", String::from_utf8(token)?);
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/merge-patch+json")];
    let nobody = members.hub.nobody().await?;
    let patch = async |path: &str, change: Value| -> Result<u16> {
        let path = format!("/clusters/one{path}");
        Ok(nobody.call(Method::PATCH, &path, &headers, change.to_string()).await?.code.as_u16())
    };
    let rule = |group: &str, resource: &str, verb: &str| json!({"rules": [{"apiGroups": [group], "resources": [resource], "verbs": [verb]}]});
    for bad in [
        rule("rbac.authorization.k8s.io", "clusterroles", "update"),
        rule("", "nodes", "delete"),
        rule("*", "crews", "get"),
        rule("example.com", "*", "get"),
        rule("example.com", "crews", "*"),
        json!({"rules": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]}),
        json!({"aggregationRule": {"clusterRoleSelectors": [{}]}}),
    ] {
        let code = patch(ROLE, bad.clone()).await?;
        assert!([403, 422].contains(&code), "{bad}: {code}");
    }
    assert_eq!(patch(ROLE, rule("example.com", "crews", "get")).await?, 200);
    // Nor can it have the policy out of the way, or another role.
    let policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/hanse-rights";
    assert_eq!(patch(policies, json!({"spec": {"failurePolicy": "Ignore"}})).await?, 403);
    let own = "/apis/rbac.authorization.k8s.io/v1/clusterroles/hanse:session";
    assert_eq!(patch(own, rule("example.com", "crews", "get")).await?, 403);
    Ok(())
}
