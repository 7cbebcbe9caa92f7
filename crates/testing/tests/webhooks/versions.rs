//! A webhook for one version of a custom kind sees all of its objects in that version.

use anyhow::Result;
use http::StatusCode;
use serde_json::{Value, json};
use testing::{
    client::Client,
    hub::{TestHub, eventually},
    webhook::{Asked, Reply, Webhook},
};

use crate::{MUTATING, VALIDATING, allowed, configuration, hook, made, patched};

const V1: &str = "/apis/example.com/v1/namespaces/default/widgets";
const V2: &str = "/apis/example.com/v2/namespaces/default/widgets";

/// What is `size` in `v1` is `width` in `v2`.
fn answer(asked: &Asked) -> Reply {
    if asked.body["kind"] != "ConversionReview" {
        return match asked.path.starts_with("/grow") {
            true => patched(asked, &json!([{"op": "replace", "path": "/spec/size", "value": 7}])),
            false => allowed(asked),
        };
    }
    let mut review = asked.body.clone();
    let wanted = review["request"]["desiredAPIVersion"].clone();
    let mut objects = review["request"]["objects"].take();
    let (from, to) = if wanted == "example.com/v2" { ("size", "width") } else { ("width", "size") };
    for object in objects.as_array_mut().into_iter().flatten() {
        if let Some(value) = object["spec"].as_object_mut().and_then(|spec| spec.remove(from)) {
            object["spec"][to] = value;
        }
        object["apiVersion"] = wanted.clone();
    }
    Reply::Json(json!({
        "kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1",
        "response": {
            "uid": review["request"]["uid"], "convertedObjects": objects, "result": {"status": "Success"},
        },
    }))
}

async fn define(client: &Client, webhook: &Webhook) -> Result<()> {
    let version = |name: &str, storage: bool, member: &str| {
        json!({
            "name": name, "served": true, "storage": storage,
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "spec": {"type": "object", "properties": {member: {"type": "integer"}}},
            }}},
        })
    };
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
            "versions": [version("v1", true, "size"), version("v2", false, "width")],
            "conversion": {"strategy": "Webhook", "webhook": {
                "conversionReviewVersions": ["v1"],
                "clientConfig": {"url": format!("{}/convert", webhook.url), "caBundle": webhook.ca_bundle},
            }},
        },
    });
    made(client, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await?;
    eventually("it is served", || async { Ok((client.get(V2).await?.code == StatusCode::OK).then_some(())) })
        .await
}

fn widget(version: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": format!("example.com/{version}"), "kind": "Widget", "metadata": {"name": name}, "spec": spec})
}

fn at(webhook: &Webhook, path: &str, version: &str, policy: &str) -> Value {
    let mut hook = hook(webhook, path);
    hook["matchPolicy"] = json!(policy);
    hook["rules"][0]["apiGroups"] = json!(["example.com"]);
    hook["rules"][0]["apiVersions"] = json!([version]);
    hook["rules"][0]["resources"] = json!(["widgets"]);
    hook
}

#[tokio::test]
async fn objects_are_converted_for_webhooks_and_back() -> Result<()> {
    let (hub, webhook) = (TestHub::start().await?, Webhook::start(answer).await?);
    let client = hub.admin().await?;
    define(&client, &webhook).await?;
    made(&client, MUTATING, &configuration("c", &[at(&webhook, "/grow", "v1", "Equivalent")])).await?;
    let hooks = [at(&webhook, "/see", "v1", "Equivalent"), at(&webhook, "/exact", "v1", "Exact")];
    made(&client, VALIDATING, &configuration("c", &hooks)).await?;

    let object = made(&client, V2, &widget("v2", "a", json!({"width": 1}))).await?;
    assert_eq!(object["spec"], json!({"width": 7}), "what was patched in v1 is there in v2");
    let asked = webhook.take();
    let asked: Vec<&Asked> = asked.iter().filter(|it| it.body["kind"] == "AdmissionReview").collect();
    assert_eq!(asked.len(), 2, "who is exact is not asked: {asked:?}");
    let sizes = [json!({"size": 1}), json!({"size": 7})];
    for (asked, spec) in asked.iter().zip(sizes) {
        let request = &asked.body["request"];
        assert_eq!(request["object"]["apiVersion"], "example.com/v1");
        assert_eq!(request["object"]["spec"], spec);
        assert_eq!(
            (&request["kind"]["version"], &request["requestKind"]["version"]),
            (&json!("v1"), &json!("v2"))
        );
    }
    assert_eq!(client.get(&format!("{V1}/a")).await?.json()["spec"], json!({"size": 7}));

    let patched = client.merge_patch(&format!("{V1}/a"), &json!({"spec": {"size": 2}})).await?;
    assert_eq!(patched.json()["spec"], json!({"size": 7}));
    let asked = webhook.take();
    let exact = asked.iter().find(|it| it.path.starts_with("/exact")).expect("it is asked about its version");
    assert_eq!(exact.body["request"]["oldObject"]["spec"], json!({"size": 7}));
    Ok(())
}
