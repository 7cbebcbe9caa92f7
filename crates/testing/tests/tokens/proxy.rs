//! A program in front of something else, such as kube-rbac-proxy: it is given a bearer token, asks whose it is, and
//! asks whether they may.

use anyhow::Result;
use serde_json::{Value, json};

use crate::{CORE, Place, REVIEWS};

/// What such a program would do with a request that brings `token`.
async fn admits(
    place: &Place,
    prefix: &str,
    token: &str,
    audience: &str,
    path: &str,
) -> Result<Result<String, String>> {
    let review = place.review(prefix, token, &[audience]).await?;
    if review["authenticated"] != true {
        return Ok(Err(format!("401 {}", review["error"].as_str().unwrap_or_default())));
    }
    assert_eq!(review["audiences"], json!([audience]), "it is for whom it was asked for");
    let user = &review["user"];
    let spec = json!({
        "user": user["username"], "uid": user["uid"], "groups": user["groups"], "extra": user["extra"],
        "nonResourceAttributes": {"verb": "get", "path": path},
    });
    let reviews = format!("{prefix}/apis/authorization.k8s.io/v1/subjectaccessreviews");
    let answer = place.create("", &reviews, json!({"spec": spec})).await?;
    Ok(match answer["status"]["allowed"] == true {
        true => Ok(user["username"].as_str().unwrap_or_default().to_owned()),
        false => Err("403".into()),
    })
}

#[tokio::test]
async fn a_proxy_admits_by_review() -> Result<()> {
    let place = Place::with_robot().await?;
    let prefix = place.mk_workspace("one").await?;
    for prefix in ["", &prefix] {
        let role = json!({
            "metadata": {"name": "metrics"},
            "rules": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}],
        });
        let rbac = "/apis/rbac.authorization.k8s.io/v1";
        place.create(prefix, &format!("{rbac}/clusterroles"), role).await?;
        let binding = json!({
            "metadata": {"name": "metrics"},
            "subjects": [{"kind": "ServiceAccount", "namespace": "default", "name": "default"}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "metrics"},
        });
        place.create(prefix, &format!("{rbac}/clusterrolebindings"), binding).await?;
    }
    let token = place.token("", "default", json!({"audiences": ["proxy", "vault"]})).await?;
    let name = "system:serviceaccount:default:default";
    let ask = async |prefix: &str, token: &str, audience: &str, path: &str| {
        admits(&place, prefix, token, audience, path).await
    };
    assert_eq!(ask("", &token, "proxy", "/metrics").await?, Ok(name.into()));
    assert_eq!(ask("", &token, "proxy", "/secrets").await?, Err("403".into()));
    let foreign = ask("", &token, "other", "/metrics").await?.unwrap_err();
    assert!(foreign.contains("is invalid for the target audiences [\"other\"]"), "{foreign}");
    assert!(ask(&prefix, &token, "proxy", "/metrics").await?.is_err(), "another workspace's token");
    // A token for the proxy is none for the API, and the other way round
    assert_eq!(place.who("", &token).await?.code, 401);
    let own = place.token("", "default", json!({})).await?;
    assert!(ask("", &own, "proxy", "/metrics").await?.is_err());
    assert_eq!(ask("", &own, &place.issuer("default"), "/metrics").await?, Ok(name.into()));
    // The account goes, and the proxy is told at the next question
    let deleted =
        place.create("", &format!("{CORE}/serviceaccounts"), json!({"metadata": {"name": "gone"}})).await;
    deleted?;
    let token = place.token("", "gone", json!({"audiences": ["proxy"]})).await?;
    assert_eq!(ask("", &token, "proxy", "/metrics").await?, Err("403".into()));
    place.admin.delete(&format!("{CORE}/serviceaccounts/gone")).await?;
    let refused = ask("", &token, "proxy", "/metrics").await?.unwrap_err();
    assert!(refused.starts_with("401 "), "{refused}");
    Ok(())
}

#[tokio::test]
async fn reviews_are_checked_as_upstream_does() -> Result<()> {
    let place = Place::with_robot().await?;
    let token = place.token("", "robot", json!({"audiences": ["a", "b", "c"]})).await?;
    // The order is that of the question
    let review = place.review("", &token, &["c", "x", "a"]).await?;
    assert_eq!(review["audiences"], json!(["c", "a"]));
    assert_eq!(
        place.review("", "nonsense", &[]).await?,
        json!({"user": {}, "error": "invalid bearer token"})
    );
    let empty = place.admin.post(REVIEWS, &json!({"spec": {"token": ""}})).await?;
    assert_eq!(empty.code, 400);
    assert!(empty.text().contains("token is required for TokenReview in authentication"), "{}", empty.text());
    // Asking is a right
    let jane = place.hub.user("jane", &[]).await?;
    assert_eq!(jane.post(REVIEWS, &json!({"spec": {"token": token}})).await?.code, 403);
    // The token itself comes back only to whoever had it
    let answer = place.admin.post(REVIEWS, &json!({"spec": {"token": token}})).await?.json();
    assert_eq!(answer["spec"]["token"], Value::from(token));
    Ok(())
}
