//! Admission webhooks: whom a configuration names is asked at once, in order, and obeyed within bounds. That they are
//! asked and obeyed as by kube-apiserver is compared in `reviews`; here is what needs no other server.

#![allow(clippy::disallowed_methods)] // Tests run on the real machine.

mod attacks;
mod audit;
mod versions;

use anyhow::Result;
use base64::{Engine, prelude::BASE64_STANDARD};
use http::StatusCode;
use serde_json::{Value, json};
use testing::{
    client::{Answer, Client},
    hub::{TestHub, eventually},
    webhook::{Asked, Reply, Webhook},
};

pub const MUTATING: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
pub const VALIDATING: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
pub const MAPS: &str = "/api/v1/namespaces/default/configmaps";

pub fn reviewed(asked: &Asked, mut response: Value) -> Reply {
    response["uid"] = asked.body["request"]["uid"].clone();
    Reply::Json(
        json!({"kind": "AdmissionReview", "apiVersion": asked.body["apiVersion"], "response": response}),
    )
}

pub fn allowed(asked: &Asked) -> Reply {
    reviewed(asked, json!({"allowed": true}))
}

pub fn patched(asked: &Asked, patch: &Value) -> Reply {
    let patch = BASE64_STANDARD.encode(patch.to_string());
    reviewed(asked, json!({"allowed": true, "patchType": "JSONPatch", "patch": patch}))
}

/// A webhook at `path` of the server, for all that is done to config maps.
pub fn hook(server: &Webhook, path: &str) -> Value {
    json!({
        "name": format!("{}.webhooks.io", path.trim_matches('/').replace('/', "-")),
        "clientConfig": {"url": format!("{}{path}", server.url), "caBundle": server.ca_bundle},
        "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "rules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}],
    })
}

pub fn configuration(name: &str, hooks: &[Value]) -> Value {
    json!({"metadata": {"name": name}, "webhooks": hooks})
}

pub fn map(name: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"a": "1"}})
}

pub async fn made(client: &Client, path: &str, object: &Value) -> Result<Value> {
    let answer = client.post(path, object).await?;
    assert_eq!(answer.code, StatusCode::CREATED, "{}", answer.text());
    Ok(answer.json())
}

pub fn message(answer: &Answer) -> String {
    answer.json()["message"].as_str().unwrap_or_default().to_owned()
}

fn paths(asked: &[Asked]) -> Vec<String> {
    asked.iter().map(|it| it.path.split('?').next().unwrap_or_default().to_owned()).collect()
}

/// Writes its path behind what others wrote.
fn sign(asked: &Asked) -> Reply {
    let here = asked.path.split('?').next().unwrap_or_default().replace('/', "");
    let before = asked.body["request"]["object"]["data"]["signed"].as_str().unwrap_or_default();
    patched(asked, &json!([{"op": "add", "path": "/data/signed", "value": format!("{before}{here}")}]))
}

#[tokio::test]
async fn a_configuration_counts_from_when_it_is_written_until_it_is_gone() -> Result<()> {
    let (hub, webhook) = (TestHub::start().await?, Webhook::start(allowed).await?);
    let client = hub.admin().await?;
    for round in 0..5 {
        let name = format!("m{round}");
        made(&client, MAPS, &map(&name)).await?;
        assert!(webhook.take().is_empty(), "nobody is to be asked yet");
        made(&client, VALIDATING, &configuration("c", &[hook(&webhook, "/v")])).await?;
        client.merge_patch(&format!("{MAPS}/{name}"), &json!({"data": {"b": "2"}})).await?;
        assert_eq!(paths(&webhook.take()), ["/v"]);
        let narrow = json!({"webhooks": [{"name": "v.webhooks.io", "rules": []}]});
        let changed = client.merge_patch(&format!("{VALIDATING}/c"), &narrow).await?;
        assert_eq!(changed.code, StatusCode::UNPROCESSABLE_ENTITY, "it would lead nowhere");
        client.delete(&format!("{VALIDATING}/c")).await?;
        client.delete(&format!("{MAPS}/{name}")).await?;
        assert!(webhook.take().is_empty(), "nobody is to be asked any more");
    }
    Ok(())
}

#[tokio::test]
async fn reviews_are_asked_about_and_can_be_changed_and_refused() -> Result<()> {
    let hub = TestHub::start().await?;
    let webhook = Webhook::start(|asked| {
        let verb = &asked.body["request"]["object"]["spec"]["resourceAttributes"]["verb"];
        match (&asked.path[..2], verb.as_str()) {
            ("/m", Some("change")) => patched(
                asked,
                &json!([{"op": "replace", "path": "/spec/resourceAttributes/verb", "value": "changed"}]),
            ),
            ("/v", Some("refuse")) => {
                reviewed(asked, json!({"allowed": false, "status": {"message": "not to be asked"}}))
            }
            _ => allowed(asked),
        }
    })
    .await?;
    let client = hub.admin().await?;
    let rules = json!([{
        "operations": ["CREATE"], "apiGroups": ["authorization.k8s.io"], "apiVersions": ["v1"],
        "resources": ["localsubjectaccessreviews"],
    }]);
    for (path, at) in [("/m", MUTATING), ("/v", VALIDATING)] {
        let mut hook = hook(&webhook, path);
        hook["rules"] = rules.clone();
        made(&client, at, &configuration("c", &[hook])).await?;
    }
    // There is no such namespace, and none is needed.
    let path = "/apis/authorization.k8s.io/v1/namespaces/nowhere/localsubjectaccessreviews";
    let review = |verb: &str| {
        let asked = json!({"namespace": "nowhere", "verb": verb, "resource": "pods"});
        json!({
            "kind": "LocalSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1",
            "metadata": {"namespace": "nowhere"}, "spec": {"user": "jane", "resourceAttributes": asked},
        })
    };
    let changed = made(&client, path, &review("change")).await?;
    assert_eq!(paths(&webhook.take()), ["/m", "/v"]);
    assert_eq!(changed["spec"]["resourceAttributes"]["verb"], "changed");
    assert_eq!(changed["status"]["allowed"], false);
    let refused = client.post(path, &review("refuse")).await?;
    assert_eq!(refused.code, StatusCode::BAD_REQUEST, "{}", refused.text());
    assert!(message(&refused).contains("not to be asked"), "{}", refused.text());
    Ok(())
}

#[tokio::test]
async fn mutating_webhooks_are_asked_in_order_and_each_sees_what_was_made_before() -> Result<()> {
    let (hub, webhook) = (TestHub::start().await?, Webhook::start(sign).await?);
    let client = hub.admin().await?;
    // By the names of configurations, whenever they were made.
    made(&client, MUTATING, &configuration("late", &[hook(&webhook, "/d")])).await?;
    made(&client, MUTATING, &configuration("early", &[hook(&webhook, "/c"), hook(&webhook, "/a")])).await?;
    let object = made(&client, MAPS, &map("m")).await?;
    assert_eq!(object["data"]["signed"], "cad");
    assert_eq!(paths(&webhook.take()), ["/c", "/a", "/d"]);
    let managers = object["metadata"]["managedFields"].to_string();
    assert!(!managers.contains("signed"), "what webhooks set nobody owns: {managers}");
    Ok(())
}

#[tokio::test]
async fn workspaces_have_their_own_webhooks() -> Result<()> {
    let (hub, webhook) = (TestHub::start().await?, Webhook::start(allowed).await?);
    let client = hub.admin().await?;
    let workspaces = "/clusters/root/apis/hanse.io/v1alpha1/workspaces";
    made(&client, workspaces, &json!({"metadata": {"name": "other"}})).await?;
    made(&client, &format!("/clusters/other{VALIDATING}"), &configuration("c", &[hook(&webhook, "/v")]))
        .await?;
    made(&client, MAPS, &map("m")).await?;
    assert!(webhook.take().is_empty());
    made(&client, &format!("/clusters/other{MAPS}"), &map("m")).await?;
    assert_eq!(paths(&webhook.take()), ["/v"]);
    Ok(())
}

#[tokio::test]
async fn a_service_is_not_reached_yet_and_the_policy_decides() -> Result<()> {
    let (hub, webhook) = (TestHub::start().await?, Webhook::start(allowed).await?);
    let client = hub.admin().await?;
    let mut served = hook(&webhook, "/v");
    served["clientConfig"] = json!({"service": {"namespace": "shop", "name": "guard", "path": "/v"}});
    made(&client, VALIDATING, &configuration("c", &[served])).await?;
    let refused = client.post(MAPS, &map("m")).await?;
    assert_eq!(refused.code, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(
        message(&refused),
        "Internal error occurred: failed calling webhook \"v.webhooks.io\": could not get REST client: the service \
         shop/guard runs on no cluster that this server can reach; use `url`"
    );
    let open = json!([{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Ignore"}]);
    let headers = [("content-type", "application/json-patch+json")];
    let path = format!("{VALIDATING}/c");
    let changed = client.call(http::Method::PATCH, &path, &headers, open.to_string()).await?;
    assert_eq!(changed.code, StatusCode::OK, "{}", changed.text());
    made(&client, MAPS, &map("m")).await?;
    Ok(())
}

#[tokio::test]
async fn what_the_hub_deletes_by_itself_is_asked_about_and_tried_until_it_may() -> Result<()> {
    let hub = TestHub::start().await?;
    let open = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let may = open.clone();
    let webhook = Webhook::start(move |asked| {
        let may =
            may.load(std::sync::atomic::Ordering::SeqCst) || asked.body["request"]["operation"] != "DELETE";
        reviewed(asked, json!({"allowed": may}))
    })
    .await?;
    let client = hub.admin().await?;
    made(&client, "/api/v1/namespaces", &json!({"metadata": {"name": "held"}})).await?;
    made(&client, "/api/v1/namespaces/held/configmaps", &map("m")).await?;
    made(&client, VALIDATING, &configuration("c", &[hook(&webhook, "/v")])).await?;
    client.delete("/api/v1/namespaces/held").await?;
    let asked = eventually("it is asked", || async {
        let deletes = |it: &Asked| it.body["request"]["operation"] == "DELETE";
        Ok(webhook.take().into_iter().find(deletes))
    })
    .await?;
    assert_eq!(asked.body["request"]["userInfo"]["username"], "system:hanse");
    eventually("the namespace says why it waits", || async {
        let conditions = client.get("/api/v1/namespaces/held").await?.json()["status"]["conditions"].clone();
        let conditions = conditions.as_array().cloned().unwrap_or_default();
        let failed = conditions.into_iter().find(|it| it["type"] == "NamespaceDeletionContentFailure");
        let message = failed.filter(|it| it["status"] == "True").map(|it| it["message"].to_string());
        Ok(message.filter(|it| it.contains("admission webhook \\\"v.webhooks.io\\\" denied the request")))
    })
    .await?;
    open.store(true, std::sync::atomic::Ordering::SeqCst);
    eventually("the namespace goes", || async {
        let answer = client.get("/api/v1/namespaces/held").await?;
        Ok((answer.code == StatusCode::NOT_FOUND).then_some(()))
    })
    .await
}

#[tokio::test]
async fn a_webhook_that_hangs_holds_up_its_own_workspace_alone() -> Result<()> {
    let (hub, webhook) = (TestHub::start().await?, Webhook::start(|_| Reply::Nothing).await?);
    let client = hub.admin().await?;
    made(&client, "/clusters/root/apis/hanse.io/v1alpha1/workspaces", &json!({"metadata": {"name": "slow"}}))
        .await?;
    for number in 0..4 {
        let name = format!("held{number}");
        made(&client, "/clusters/slow/api/v1/namespaces", &json!({"metadata": {"name": name}})).await?;
        for map in ["a", "b", "c"].map(map) {
            made(&client, &format!("/clusters/slow/api/v1/namespaces/{name}/configmaps"), &map).await?;
        }
    }
    let mut hook = hook(&webhook, "/v");
    (hook["timeoutSeconds"], hook["rules"][0]["operations"]) = (json!(30), json!(["DELETE"]));
    made(&client, &format!("/clusters/slow{VALIDATING}"), &configuration("c", &[hook])).await?;
    for number in 0..4 {
        client.delete(&format!("/clusters/slow/api/v1/namespaces/held{number}")).await?;
    }
    eventually("the hub is asked to wait", || async { Ok((webhook.take().len() > 1).then_some(())) }).await?;
    made(&client, "/api/v1/namespaces", &json!({"metadata": {"name": "quick"}})).await?;
    client.delete("/api/v1/namespaces/quick").await?;
    eventually("others do not wait with it", || async {
        let answer = client.get("/api/v1/namespaces/quick").await?;
        Ok((answer.code == StatusCode::NOT_FOUND).then_some(()))
    })
    .await
}

#[tokio::test]
async fn warnings_reach_the_author_also_when_the_request_is_refused() -> Result<()> {
    let hub = TestHub::start().await?;
    let webhook = Webhook::start(|asked| {
        let allowed = asked.body["request"]["name"] == "fine";
        reviewed(asked, json!({"allowed": allowed, "warnings": ["mind the gap"]}))
    })
    .await?;
    let client = hub.admin().await?;
    made(&client, VALIDATING, &configuration("c", &[hook(&webhook, "/v")])).await?;
    for (name, code) in [("fine", StatusCode::CREATED), ("bad", StatusCode::BAD_REQUEST)] {
        let answer = client.post(MAPS, &map(name)).await?;
        assert_eq!(answer.code, code, "{}", answer.text());
        let warning = answer.headers.get("warning").and_then(|value| value.to_str().ok());
        assert_eq!(warning, Some("299 - \"mind the gap\""));
    }
    Ok(())
}

#[tokio::test]
async fn metrics_have_kube_apiservers_names() -> Result<()> {
    let hub = TestHub::start().await?;
    let webhook = Webhook::start(|asked| match asked.path.starts_with("/deny") {
        true => reviewed(asked, json!({"allowed": false, "status": {"code": 418}})),
        false => Reply::Close,
    })
    .await?;
    let client = hub.admin().await?;
    let mut open = hook(&webhook, "/open");
    open["failurePolicy"] = json!("Ignore");
    made(&client, MUTATING, &configuration("c", &[open])).await?;
    made(&client, VALIDATING, &configuration("c", &[hook(&webhook, "/deny")])).await?;
    assert_eq!(client.post(MAPS, &map("m")).await?.code.as_u16(), 418);
    let metrics = client.get("/metrics").await?.text();
    for line in [
        "apiserver_admission_webhook_fail_open_count{name=\"other\",type=\"admit\"} 1",
        "apiserver_admission_webhook_rejection_count{name=\"other\",type=\"validating\",\
         operation=\"CREATE\",error_type=\"no_error\",rejection_code=\"418\"} 1",
        "apiserver_admission_webhook_request_total{name=\"other\",type=\"validating\",\
         operation=\"CREATE\",code=\"418\",rejected=\"true\"} 1",
        "apiserver_admission_webhook_admission_duration_seconds_count{name=\"other\",type=\"admit\",\
         operation=\"CREATE\",rejected=\"false\"} 1",
    ] {
        assert!(metrics.contains(line), "{line} is not in {metrics}");
    }
    assert!(!metrics.contains("webhooks.io"), "what workspaces call their webhooks is theirs");
    Ok(())
}

#[tokio::test]
async fn many_requests_at_once_are_all_asked_about() -> Result<()> {
    let (hub, webhook) = (TestHub::start().await?, Webhook::start(sign).await?);
    let client = hub.admin().await?;
    made(&client, MUTATING, &configuration("c", &[hook(&webhook, "/a")])).await?;
    let requests = (0..300).map(|number| {
        let client = client.clone();
        tokio::spawn(async move { client.post(MAPS, &map(&format!("m{number}"))).await })
    });
    for request in requests.collect::<Vec<_>>() {
        let answer = request.await??;
        assert_eq!(answer.json()["data"]["signed"], "a", "{}", answer.text());
    }
    assert_eq!(webhook.take().len(), 300);
    Ok(())
}
