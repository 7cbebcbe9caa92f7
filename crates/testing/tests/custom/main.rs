//! Kinds that definitions add: served at once, seen through the definition that holds now, gone with it.

#![allow(clippy::disallowed_methods)] // Tests run on the real machine.

mod webhook;

use std::collections::BTreeMap;

use anyhow::Result;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use testing::{
    client::{Answer, Client},
    hub::{TestHub, eventually},
};

use webhook::Webhook;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";
const WIDGETS_V2: &str = "/apis/example.com/v2/namespaces/default/widgets";

fn version(name: &str, storage: bool, spec: Value) -> Value {
    json!({
        "name": name, "served": true, "storage": storage,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {
            "spec": {"type": "object", "properties": spec},
        }}},
    })
}

fn definition(versions: Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "shortNames": ["wd"]},
            "versions": versions,
        },
    })
}

fn widget(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec})
}

async fn made(client: &Client, path: &str, object: &Value) -> Result<Value> {
    let answer = client.post(path, object).await?;
    assert_eq!(answer.code, StatusCode::CREATED, "{}", answer.text());
    Ok(answer.json())
}

async fn define(client: &Client, definition: &Value) -> Result<()> {
    made(client, DEFINITIONS, definition).await?;
    eventually("the definition is established", || async {
        let now = client.get(&format!("{DEFINITIONS}/widgets.example.com")).await?.json();
        let conditions = now["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let established = conditions.iter().any(|it| it["type"] == "Established" && it["status"] == "True");
        Ok(established.then_some(()))
    })
    .await
}

/// Changes the definition as a person would: read, change, write.
async fn redefine(client: &Client, change: impl Fn(&mut Value)) -> Result<()> {
    let path = format!("{DEFINITIONS}/widgets.example.com");
    loop {
        let mut now = client.get(&path).await?.json();
        change(&mut now);
        let answer = client.put(&path, &now).await?;
        if answer.code != StatusCode::CONFLICT {
            assert_eq!(answer.code, StatusCode::OK, "{}", answer.text());
            return Ok(());
        }
    }
}

fn message(answer: &Answer) -> String {
    answer.json()["message"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn a_kind_is_served_as_soon_as_it_is_established_and_in_its_workspace_only() -> Result<()> {
    let hub = TestHub::start().await?;
    let client = hub.admin().await?;
    assert_eq!(client.get(WIDGETS).await?.code, StatusCode::NOT_FOUND);
    define(&client, &definition(json!([version("v1", true, json!({"size": {"type": "integer"}}))]))).await?;
    made(&client, WIDGETS, &widget("a", json!({"size": 1}))).await?;

    let groups = client.get("/apis").await?.json();
    assert!(groups["groups"].as_array().unwrap().iter().any(|it| it["name"] == "example.com"), "{groups}");
    let index = client.get("/openapi/v3").await?.json();
    assert!(index["paths"]["apis/example.com/v1"].is_object(), "{index}");
    let document = client.get("/openapi/v3/apis/example.com/v1").await?.json();
    let size = "/components/schemas/com.example.v1.Widget/properties/spec/properties/size/type";
    assert_eq!(document.pointer(size), Some(&json!("integer")));
    let swagger = client.get("/openapi/v2").await?.json();
    assert!(swagger["definitions"]["com.example.v1.Widget"].is_object());
    assert!(swagger["definitions"]["io.k8s.api.core.v1.Pod"].is_object());

    assert_eq!(client.get("/clusters/root/apis/example.com/v1/widgets").await?.code, StatusCode::NOT_FOUND);
    let elsewhere = client.get("/clusters/root/openapi/v3").await?.json();
    assert!(elsewhere["paths"]["apis/example.com/v1"].is_null());
    Ok(())
}

#[tokio::test]
async fn objects_go_before_their_definition_and_no_new_ones_come() -> Result<()> {
    let hub = TestHub::start().await?;
    let client = hub.admin().await?;
    define(&client, &definition(json!([version("v1", true, json!({}))]))).await?;
    made(&client, WIDGETS, &widget("free", json!({}))).await?;
    let mut held = widget("held", json!({}));
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    made(&client, WIDGETS, &held).await?;

    let path = format!("{DEFINITIONS}/widgets.example.com");
    client.delete(&path).await?;
    eventually("the free one is gone", || async {
        let gone = client.get(&format!("{WIDGETS}/free")).await?.code == StatusCode::NOT_FOUND;
        Ok(gone.then_some(()))
    })
    .await?;
    assert_eq!(client.get(&path).await?.code, StatusCode::OK, "it waits for the one that is held");
    let refused = client.post(WIDGETS, &widget("late", json!({}))).await?;
    assert_eq!(refused.code, StatusCode::METHOD_NOT_ALLOWED, "{}", refused.text());

    client.merge_patch(&format!("{WIDGETS}/held"), &json!({"metadata": {"finalizers": null}})).await?;
    eventually("the definition is gone", || async {
        Ok((client.get(&path).await?.code == StatusCode::NOT_FOUND).then_some(()))
    })
    .await?;
    assert_eq!(client.get(WIDGETS).await?.code, StatusCode::NOT_FOUND);

    define(&client, &definition(json!([version("v1", true, json!({}))]))).await?;
    let list = client.get(WIDGETS).await?.json();
    assert_eq!(list["items"], json!([]), "nothing of the old kind comes back");
    Ok(())
}

#[tokio::test]
async fn stored_objects_are_seen_through_the_definition_that_holds_now() -> Result<()> {
    let hub = TestHub::start().await?;
    let client = hub.admin().await?;
    let spec = json!({"size": {"type": "integer"}, "old": {"type": "string"}});
    define(&client, &definition(json!([version("v1", true, spec)]))).await?;
    let before =
        made(&client, WIDGETS, &widget("a", json!({"size": 1, "old": "x", "unknown": true}))).await?;
    assert_eq!(before["spec"], json!({"size": 1, "old": "x"}), "unknown fields are dropped");

    redefine(&client, |definition| {
        definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"] =
            json!({"size": {"type": "integer"}, "color": {"type": "string", "default": "red"}});
    })
    .await?;
    let expected = json!({"size": 1, "color": "red"});
    let now = client.get(&format!("{WIDGETS}/a")).await?.json();
    assert_eq!(now["spec"], expected);
    assert_eq!(now["metadata"]["resourceVersion"], before["metadata"]["resourceVersion"], "nobody wrote it");
    assert_eq!(client.get(WIDGETS).await?.json()["items"][0]["spec"], expected);
    let mut watch = client.watch(&format!("{WIDGETS}?watch=1&timeoutSeconds=5")).await?;
    assert_eq!(watch.expect().await?["object"]["spec"], expected);
    Ok(())
}

#[tokio::test]
async fn every_version_shows_the_same_objects() -> Result<()> {
    let hub = TestHub::start().await?;
    let client = hub.admin().await?;
    let spec = json!({"size": {"type": "integer"}});
    let versions = json!([version("v1", true, spec.clone()), version("v2", false, spec)]);
    define(&client, &definition(versions)).await?;
    made(&client, WIDGETS, &widget("a", json!({"size": 1}))).await?;
    let mut other = widget("b", json!({"size": 2}));
    other["apiVersion"] = json!("example.com/v2");
    made(&client, WIDGETS_V2, &other).await?;
    for (path, api_version) in [(WIDGETS, "example.com/v1"), (WIDGETS_V2, "example.com/v2")] {
        let list = client.get(path).await?.json();
        let shown: Vec<&Value> =
            list["items"].as_array().unwrap().iter().map(|it| &it["apiVersion"]).collect();
        assert_eq!(shown, [api_version, api_version]);
    }
    // The other version becomes the stored one; what was stored before is still there.
    redefine(&client, |definition| {
        definition["spec"]["versions"][0]["storage"] = json!(false);
        definition["spec"]["versions"][1]["storage"] = json!(true);
    })
    .await?;
    let path = format!("{WIDGETS}/a");
    let patched = client.merge_patch(&path, &json!({"spec": {"size": 5}})).await?;
    assert_eq!(patched.json()["apiVersion"], "example.com/v1");
    assert_eq!(client.get(&format!("{WIDGETS_V2}/a")).await?.json()["spec"]["size"], 5);
    let status = client.get(&format!("{DEFINITIONS}/widgets.example.com")).await?.json();
    assert_eq!(status["status"]["storedVersions"], json!(["v1", "v2"]));
    Ok(())
}

fn converted_definition(webhook: &Webhook) -> Value {
    let v1 = version("v1", true, json!({"size": {"type": "integer"}}));
    let v2 = version("v2", false, json!({"width": {"type": "integer"}}));
    let mut definition = definition(json!([v1, v2]));
    definition["spec"]["conversion"] = json!({
        "strategy": "Webhook",
        "webhook": {
            "conversionReviewVersions": ["v1"],
            "clientConfig": {"url": webhook.url, "caBundle": webhook.ca_bundle},
        },
    });
    definition
}

#[tokio::test]
async fn a_webhook_converts_what_is_read_listed_watched_and_written() -> Result<()> {
    let hub = TestHub::start().await?;
    let client = hub.admin().await?;
    let webhook = Webhook::start(webhook::rename_size).await?;
    define(&client, &converted_definition(&webhook)).await?;
    made(&client, WIDGETS, &widget("a", json!({"size": 3}))).await?;

    let path = format!("{WIDGETS_V2}/a");
    let shown = client.get(&path).await?.json();
    assert_eq!((&shown["apiVersion"], &shown["spec"]), (&json!("example.com/v2"), &json!({"width": 3})));
    let list = client.get(WIDGETS_V2).await?.json();
    assert_eq!(list["items"][0]["spec"], json!({"width": 3}));
    let mut watch = client.watch(&format!("{WIDGETS_V2}?watch=1&timeoutSeconds=10")).await?;
    assert_eq!(watch.expect().await?["object"]["spec"], json!({"width": 3}));

    let patched = client.merge_patch(&path, &json!({"spec": {"width": 4}})).await?;
    assert_eq!(patched.json()["spec"], json!({"width": 4}), "{}", patched.text());
    assert_eq!(watch.expect().await?["object"]["spec"], json!({"width": 4}));
    assert_eq!(
        client.get(&format!("{WIDGETS}/a")).await?.json()["spec"],
        json!({"size": 4}),
        "as it is stored"
    );
    Ok(())
}

async fn applied(client: &Client, version: &str, manager: &str, spec: Value, force: bool) -> Result<Answer> {
    let path = format!(
        "/apis/example.com/{version}/namespaces/default/widgets/a?fieldManager={manager}&force={force}"
    );
    let mut config =
        json!({"apiVersion": format!("example.com/{version}"), "kind": "Widget", "metadata": {"name": "a"}});
    if spec.is_object() {
        config["spec"] = spec;
    }
    let headers = [("content-type", "application/apply-patch+yaml")];
    client.call(Method::PATCH, &path, &headers, config.to_string()).await
}

/// By manager: how, in which version, and which fields of the spec.
fn owners(object: &Value) -> BTreeMap<String, String> {
    let entries = object["metadata"]["managedFields"].as_array().into_iter().flatten();
    let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
    entries
        .map(|it| {
            let fields = it["fieldsV1"]["f:spec"].as_object().into_iter().flatten();
            let fields: Vec<&str> = fields.map(|(field, _)| field.as_str()).collect();
            let said = format!("{} {} {}", text(&it["operation"]), text(&it["apiVersion"]), fields.join(" "));
            (text(&it["manager"]), said)
        })
        .collect()
}

#[tokio::test]
async fn what_managers_own_is_converted_with_the_object() -> Result<()> {
    let hub = TestHub::start().await?;
    let client = hub.admin().await?;
    let webhook = Webhook::start(webhook::rename_size).await?;
    define(&client, &converted_definition(&webhook)).await?;
    let own = |rows: &[(&str, &str)]| -> BTreeMap<String, String> {
        rows.iter().map(|(who, what)| ((*who).to_owned(), (*what).to_owned())).collect()
    };

    // One manager goes over to another version.
    let first = applied(&client, "v1", "mover", json!({"size": 3}), false).await?;
    assert_eq!(owners(&first.json()), own(&[("mover", "Apply example.com/v1 f:size")]), "{}", first.text());
    let second = applied(&client, "v2", "mover", json!({"width": 4}), false).await?;
    assert_eq!(second.code, StatusCode::OK, "{}", second.text());
    assert_eq!(second.json()["spec"], json!({"width": 4}));
    assert_eq!(owners(&second.json()), own(&[("mover", "Apply example.com/v2 f:width")]));
    assert_eq!(
        client.get(&format!("{WIDGETS}/a")).await?.json()["spec"],
        json!({"size": 4}),
        "as it is stored"
    );

    // Another has the same field in the other version: it is in the way, and shares it if it says the same.
    let refused = applied(&client, "v1", "other", json!({"size": 5}), false).await?;
    assert_eq!(refused.code, StatusCode::CONFLICT, "{}", refused.text());
    assert_eq!(refused.json()["details"]["causes"][0]["field"], ".spec.width", "{}", refused.text());
    let shared = applied(&client, "v1", "other", json!({"size": 4}), false).await?.json();
    let both = [("mover", "Apply example.com/v2 f:width"), ("other", "Apply example.com/v1 f:size")];
    assert_eq!(owners(&shared), own(&both));
    let left = applied(&client, "v2", "mover", Value::Null, false).await?;
    assert_eq!(left.json()["spec"], json!({"width": 4}), "the other still wants it: {}", left.text());
    assert_eq!(owners(&left.json()), own(&[("other", "Apply example.com/v1 f:size")]));

    // A write other than apply takes it over, in its own version.
    let path = format!("{WIDGETS_V2}/a?fieldManager=editor");
    let edited = client.merge_patch(&path, &json!({"spec": {"width": 6}})).await?.json();
    assert_eq!(owners(&edited), own(&[("editor", "Update example.com/v2 f:width")]));
    let taken = applied(&client, "v1", "other", json!({"size": 7}), true).await?.json();
    assert_eq!(owners(&taken), own(&[("other", "Apply example.com/v1 f:size")]));
    let nothing = applied(&client, "v2", "other", Value::Null, false).await?;
    assert_eq!(nothing.json().get("spec"), None, "nobody wants it any more: {}", nothing.text());

    // Without the webhook nothing can be said of what is owned in the other version.
    applied(&client, "v1", "other", json!({"size": 8}), false).await?;
    let stored = client.get(&format!("{WIDGETS}/a")).await?.json();
    webhook.stop().await;
    let failed = applied(&client, "v2", "other", json!({"width": 9}), false).await?;
    assert_eq!(failed.code, StatusCode::INTERNAL_SERVER_ERROR, "{}", failed.text());
    assert_eq!(client.get(&format!("{WIDGETS}/a")).await?.json(), stored);
    Ok(())
}

#[tokio::test]
async fn a_webhook_that_lies_or_is_gone_fails_the_request_and_changes_nothing() -> Result<()> {
    let hub = TestHub::start().await?;
    let client = hub.admin().await?;
    let webhook = Webhook::start(webhook::rename_the_object).await?;
    define(&client, &converted_definition(&webhook)).await?;
    made(&client, WIDGETS, &widget("a", json!({"size": 3}))).await?;
    let path = format!("{WIDGETS_V2}/a");
    let refused = client.get(&path).await?;
    assert_eq!(refused.code, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(
        message(&refused).contains("conversion webhook for example.com/v1, Kind=Widget"),
        "{}",
        refused.text()
    );
    webhook.stop().await;
    let refused = client.merge_patch(&path, &json!({"spec": {"width": 4}})).await?;
    assert_eq!(refused.code, StatusCode::INTERNAL_SERVER_ERROR, "{}", refused.text());
    assert_eq!(client.get(&format!("{WIDGETS}/a")).await?.json()["spec"], json!({"size": 3}));
    // What needs no conversion goes on as before.
    client.merge_patch(&format!("{WIDGETS}/a"), &json!({"spec": {"size": 4}})).await?;
    assert_eq!(client.get(&format!("{WIDGETS}/a")).await?.json()["spec"], json!({"size": 4}));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_stored_that_the_definition_of_that_moment_refuses() -> Result<()> {
    let hub = TestHub::start().await?;
    let client = hub.admin().await?;
    let spec = |maximum: u64| json!({"size": {"type": "integer", "maximum": maximum}});
    define(&client, &definition(json!([version("v1", true, spec(1000))]))).await?;
    let writer = hub.admin().await?;
    let writes = tokio::spawn(async move {
        for at in 0..300 {
            let answer = writer.post(WIDGETS, &widget(&format!("w{at}"), json!({"size": 900}))).await?;
            assert!(matches!(answer.code.as_u16(), 201 | 422), "{}", answer.text());
        }
        Ok::<(), anyhow::Error>(())
    });
    for round in 0..10 {
        let maximum = if round % 2 == 0 { 10 } else { 1000 };
        redefine(&client, |definition| {
            definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"] =
                spec(maximum);
        })
        .await?;
    }
    writes.await??;
    // The last definition allows them all; under the strict ones none was stored.
    let mut allowed = true;
    let mut watch =
        client.watch(&format!("{DEFINITIONS}?watch=1&timeoutSeconds=1&resourceVersion=1")).await?;
    let mut spans = Vec::new();
    while let Some(event) = watch.next().await? {
        let object = &event["object"];
        let path = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/size/maximum";
        let maximum = object.pointer(path).and_then(Value::as_f64).unwrap_or(1000.0);
        let revision: u64 = object["metadata"]["resourceVersion"].as_str().unwrap_or("0").parse()?;
        spans.push((revision, maximum));
    }
    for item in client.get(WIDGETS).await?.json()["items"].as_array().unwrap() {
        let revision: u64 = item["metadata"]["resourceVersion"].as_str().unwrap_or("0").parse()?;
        let holding = spans.iter().rev().find(|(since, _)| *since < revision);
        allowed &= holding.is_none_or(|(_, maximum)| *maximum >= 900.0);
    }
    assert!(allowed, "an object was stored after a definition that refuses it");
    Ok(())
}

#[tokio::test]
async fn a_bad_definition_is_refused_and_changes_nothing() -> Result<()> {
    let hub = TestHub::start().await?;
    let client = hub.admin().await?;
    let cases = [
        (json!({"size": {"type": "strange"}}), "Unsupported value"),
        (json!({"size": {"type": "integer", "default": "x"}}), "default"),
        (
            json!({"size": {"type": "integer", "x-kubernetes-validations": [{"rule": "self > missing"}]}}),
            "undeclared reference",
        ),
        (
            json!({"size": {"type": "integer", "x-kubernetes-validations": [{"rule": "self +"}]}}),
            "compilation failed",
        ),
    ];
    for (spec, words) in cases {
        let refused = client.post(DEFINITIONS, &definition(json!([version("v1", true, spec)]))).await?;
        assert_eq!(refused.code, StatusCode::UNPROCESSABLE_ENTITY, "{}", refused.text());
        assert!(message(&refused).contains(words), "{}", message(&refused));
    }
    assert_eq!(client.get(DEFINITIONS).await?.json()["items"], json!([]));
    Ok(())
}

#[tokio::test]
async fn protobuf_is_for_kinds_with_numbers() -> Result<()> {
    let hub = TestHub::start().await?;
    let client = hub.admin().await?;
    define(&client, &definition(json!([version("v1", true, json!({}))]))).await?;
    let headers = [("content-type", "application/vnd.kubernetes.protobuf")];
    let refused = client.call(Method::POST, WIDGETS, &headers, &b"k8s\0"[..]).await?;
    assert_eq!(refused.code, StatusCode::UNSUPPORTED_MEDIA_TYPE, "{}", refused.text());
    let headers = [("content-type", "application/strategic-merge-patch+json")];
    let refused = client.call(Method::PATCH, &format!("{WIDGETS}/a"), &headers, "{}").await?;
    assert_eq!(refused.code, StatusCode::UNSUPPORTED_MEDIA_TYPE, "{}", refused.text());
    Ok(())
}
