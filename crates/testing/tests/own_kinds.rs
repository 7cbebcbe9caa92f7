//! Hanse's own kinds are served like any other: typed, defaulted, checked, applied, explained; and what Hanse alone
//! writes nobody else does.

#![allow(clippy::disallowed_methods)] // Tests run on the real machine.

use anyhow::Result;
use http::Method;
use serde_json::{Value, json};
use testing::hub::TestHub;

const PLACEMENTS: &str = "/apis/hanse.io/v1alpha1/placements";
const ASSIGNMENTS: &str = "/apis/hanse.io/v1alpha1/namespaces/default/assignments";
const APPLY: &str = "application/apply-patch+yaml";

fn placement(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "hanse.io/v1alpha1", "kind": "Placement", "metadata": {"name": name}, "spec": spec})
}

#[tokio::test]
async fn what_is_left_open_is_filled_in_and_what_cannot_work_is_refused() -> Result<()> {
    let hub = TestHub::start().await?;
    let admin = hub.admin().await?;
    let made = admin.post(PLACEMENTS, &placement("web", json!({"divide": {}}))).await?;
    assert_eq!(made.code, 201, "{}", made.text());
    let spec = &made.json()["spec"];
    assert_eq!(*spec, json!({"priority": 0, "divide": {"by": "Even", "algorithm": "Fair"}}));

    let wrong = placement("wrong", json!({"strategy": "Single", "divide": {}}));
    let refused = admin.post(PLACEMENTS, &wrong).await?;
    assert_eq!(refused.code, 422, "{}", refused.text());
    assert!(refused.text().contains("only strategy Divide divides"), "{}", refused.text());
    let changed =
        admin.merge_patch(&format!("{PLACEMENTS}/web"), &json!({"spec": {"strategy": "Single"}})).await?;
    assert_eq!(changed.code, 422, "{}", changed.text());
    let list = admin.get(PLACEMENTS).await?.json();
    assert_eq!(list["items"].as_array().map(Vec::len), Some(1));
    assert_eq!(list["items"][0]["spec"].get("strategy"), None);
    Ok(())
}

#[tokio::test]
async fn fields_that_are_not_known_are_refused_or_dropped_as_asked() -> Result<()> {
    let hub = TestHub::start().await?;
    let admin = hub.admin().await?;
    let odd = placement("odd", json!({"cluster": ["eu-1"]}));
    let strict = admin.post(&format!("{PLACEMENTS}?fieldValidation=Strict"), &odd).await?;
    assert_eq!(strict.code, 400);
    assert!(strict.text().contains(r#"unknown field \"spec.cluster\""#), "{}", strict.text());
    let dropped = admin.post(&format!("{PLACEMENTS}?fieldValidation=Ignore"), &odd).await?;
    assert_eq!(dropped.code, 201);
    assert_eq!(dropped.json()["spec"].get("cluster"), None);
    Ok(())
}

#[tokio::test]
async fn two_appliers_share_an_object_by_its_schema() -> Result<()> {
    let hub = TestHub::start().await?;
    let admin = hub.admin().await?;
    let apply = async |manager: &str, spec: Value| {
        let path = format!("{PLACEMENTS}/shared?fieldManager={manager}");
        let body = placement("shared", spec).to_string();
        admin.call(Method::PATCH, &path, &[("content-type", APPLY)], body).await
    };
    // Names are a set, so each owns the one that it added.
    apply("one", json!({"clusters": {"names": ["eu-1"]}})).await?;
    apply("two", json!({"clusters": {"names": ["us-1"]}})).await?;
    let both = apply("one", json!({"clusters": {"names": ["eu-1"]}})).await?;
    assert_eq!(both.json()["spec"]["clusters"]["names"], json!(["eu-1", "us-1"]));
    let left = apply("one", json!({"priority": 1})).await?;
    assert_eq!(left.json()["spec"]["clusters"]["names"], json!(["us-1"]));
    Ok(())
}

#[tokio::test]
async fn the_api_describes_them() -> Result<()> {
    let hub = TestHub::start().await?;
    let admin = hub.admin().await?;
    let document = admin.get("/openapi/v3/apis/hanse.io/v1alpha1").await?.json();
    let schemas = &document["components"]["schemas"];
    for (kind, field) in [
        ("Placement", "strategy"),
        ("Override", "patches"),
        ("Assignment", "clusters"),
        ("Cluster", "endpoint"),
    ] {
        let described = &schemas[format!("io.hanse.v1alpha1.{kind}")];
        assert!(described["description"].is_string(), "{kind}: {described}");
        let field = &described["properties"]["spec"]["properties"][field];
        assert!(field["description"].is_string(), "{kind}: {field}");
    }
    Ok(())
}

#[tokio::test]
async fn only_hanse_writes_assignments() -> Result<()> {
    let hub = TestHub::start().await?;
    let admin = hub.admin().await?;
    let object = json!({
        "apiVersion": "hanse.io/v1alpha1", "kind": "Assignment", "metadata": {"name": "deployments.apps.web"},
        "spec": {"object": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "1"}},
    });
    let one = format!("{ASSIGNMENTS}/deployments.apps.web");
    let answers = [
        admin.post(ASSIGNMENTS, &object).await?,
        admin.put(&one, &object).await?,
        admin.merge_patch(&one, &json!({"spec": {}})).await?,
        admin.merge_patch(&format!("{one}/status"), &json!({"status": {}})).await?,
        admin.delete(&one).await?,
        admin.delete(ASSIGNMENTS).await?,
    ];
    for answer in answers {
        assert_eq!(answer.code, 403, "{}", answer.text());
        assert!(answer.text().contains("only Hanse writes it"), "{}", answer.text());
    }
    // Somebody of the same name is somebody else.
    let named = hub.user("system:hanse", &["system:masters"]).await?;
    assert_eq!(named.post(ASSIGNMENTS, &object).await?.code, 403);
    assert_eq!(admin.get(ASSIGNMENTS).await?.json()["items"], json!([]));
    Ok(())
}
