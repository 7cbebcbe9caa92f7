//! Webhooks that fail, lie or attack: the request is refused or goes on unharmed, as `failurePolicy` says, and the
//! server lives.

use anyhow::Result;
use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};
use testing::{
    client::Client,
    hub::TestHub,
    webhook::{Asked, Reply, Webhook},
};

use crate::{
    MAPS, MUTATING, VALIDATING, allowed, configuration, hook, made, map, message, patched, reviewed,
};

fn raw_patch(asked: &Asked, patch: &[u8]) -> Reply {
    let patch = BASE64_STANDARD.encode(patch);
    reviewed(asked, json!({"allowed": true, "patchType": "JSONPatch", "patch": patch}))
}

fn attack(asked: &Asked) -> Reply {
    let path = asked.path.split('?').next().unwrap_or_default().trim_matches('/').to_owned();
    let json = |text: Vec<u8>| Reply::Raw(StatusCode::OK, "application/json", Bytes::from(text));
    let nested = |depth: usize| [vec![b'['; depth], vec![b']'; depth]].concat();
    match path.as_str() {
        "hangs" => Reply::Nothing,
        "hangs-midway" => Reply::Beginning(Bytes::from_static(b"{\"kind\": \"AdmissionReview\",")),
        "closes" => Reply::Close,
        "lies" => Reply::Json(json!({
            "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
            "response": {"uid": "somebody-elses", "allowed": true},
        })),
        "other-kind" => Reply::Json(json!({"kind": "ConfigMap", "apiVersion": "v1"})),
        "no-json" => json(b"<html>hello</html>".to_vec()),
        "no-text" => json((0..=255).collect()),
        "nested" => json(nested(100_000)),
        "endless" => json(vec![b' '; 100 << 20]),
        "redirects" => Reply::Redirect("/allowed".to_owned()),
        "patch-nested" => raw_patch(asked, &[b"[".to_vec(), nested(100_000), b"]".to_vec()].concat()),
        "patch-no-base64" => {
            reviewed(asked, json!({"allowed": true, "patchType": "JSONPatch", "patch": "%%%"}))
        }
        _ => allowed(asked),
    }
}

/// Those of them that may be passed over.
const FAILURES: [&str; 12] = [
    "hangs",
    "hangs-midway",
    "closes",
    "lies",
    "other-kind",
    "no-json",
    "no-text",
    "nested",
    "endless",
    "redirects",
    "patch-nested",
    "patch-no-base64",
];

async fn survives(client: &Client, collection: &str) -> Result<()> {
    let webhook = Webhook::start(attack).await?;
    for row in FAILURES {
        for policy in ["Fail", "Ignore"] {
            let mut hook = hook(&webhook, &format!("/{row}"));
            hook["failurePolicy"] = json!(policy);
            hook["timeoutSeconds"] = json!(if row.starts_with("hangs") { 1 } else { 20 });
            made(client, collection, &configuration("c", &[hook])).await?;
            webhook.take();
            let answer = client.post(MAPS, &map(row)).await?;
            let asked = webhook.take();
            assert!(
                asked.iter().all(|it| it.path.starts_with(&format!("/{row}?timeout="))),
                "{row}: {asked:?}"
            );
            assert!(!asked.is_empty(), "{row}");
            if policy == "Fail" {
                assert_eq!(answer.code, StatusCode::INTERNAL_SERVER_ERROR, "{row}: {}", answer.text());
                let begins =
                    format!("Internal error occurred: failed calling webhook \"{row}.webhooks.io\": ");
                assert!(message(&answer).starts_with(&begins), "{}", message(&answer));
                assert!(message(&answer).len() < 4000, "{row} says too much");
            } else {
                assert_eq!(answer.code, StatusCode::CREATED, "{row}: {}", answer.text());
                assert_eq!(answer.json()["data"], json!({"a": "1"}), "{row}");
            }
            client.delete(&format!("{collection}/c")).await?;
        }
        client.delete(&format!("{MAPS}/{row}")).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_mutating_webhook_that_fails_harms_nobody() -> Result<()> {
    let hub = TestHub::start().await?;
    survives(&hub.admin().await?, MUTATING).await
}

#[tokio::test]
async fn a_validating_webhook_that_fails_harms_nobody() -> Result<()> {
    let hub = TestHub::start().await?;
    survives(&hub.admin().await?, VALIDATING).await
}

#[tokio::test]
async fn only_whom_the_bundle_names_is_believed() -> Result<()> {
    let (webhook, stranger) = (Webhook::start(allowed).await?, Webhook::start(allowed).await?);
    let hub = TestHub::start().await?;
    let client = hub.admin().await?;
    for bundle in [Value::String(stranger.ca_bundle.clone()), Value::Null] {
        let mut hook = hook(&webhook, "/v");
        hook["clientConfig"]["caBundle"] = bundle;
        made(&client, VALIDATING, &configuration("c", &[hook])).await?;
        let refused = client.post(MAPS, &map("m")).await?;
        assert_eq!(refused.code, StatusCode::INTERNAL_SERVER_ERROR);
        assert!(message(&refused).contains("tls: failed to verify certificate"), "{}", message(&refused));
        assert!(webhook.take().is_empty(), "nothing is told to a stranger");
        client.delete(&format!("{VALIDATING}/c")).await?;
    }
    Ok(())
}

/// What a patch wants, what comes of it (a code, and a part of the message), whatever the policy.
fn patches() -> Vec<(&'static str, Vec<u8>, u16, &'static str)> {
    let set = |path: &str, value: Value| {
        json!([{"op": "add", "path": path, "value": value}]).to_string().into_bytes()
    };
    let many: Vec<Value> =
        (0..10_001).map(|_| json!({"op": "test", "path": "/kind", "value": "ConfigMap"})).collect();
    let grow = |times: usize| {
        let first = json!({"op": "add", "path": "/data/x", "value": "y".repeat(1000)});
        let copies =
            (0..times).map(|at| json!({"op": "copy", "from": "/data", "path": format!("/data/{at}")}));
        json!([first].into_iter().chain(copies).collect::<Vec<_>>()).to_string().into_bytes()
    };
    vec![
        ("many", json!(many).to_string().into_bytes(), 500, "maximum operations"),
        ("large", set("/data/x", json!("y".repeat(3 << 20))), 422, "Too long"),
        ("grows", grow(40), 500, "copy"),
        ("scalar", set("", json!(1)), 500, "Internal error occurred"),
        ("kind", set("/kind", json!("Secret")), 500, "Internal error occurred"),
        ("types", set("/data", json!(7)), 500, "cannot unmarshal number"),
        ("name", set("/metadata/name", json!("../../x")), 422, "metadata.name"),
        ("namespace", set("/metadata/namespace", json!("kube-system")), 400, "does not match the namespace"),
        ("managers", set("/metadata/managedFields", json!([{"operation": "Nonsense"}])), 201, ""),
        ("uid", set("/metadata/uid", json!("mine")), 201, ""),
        ("revision", set("/metadata/resourceVersion", json!("1")), 201, ""),
        ("deleted", set("/metadata/deletionTimestamp", json!("2020-01-01T00:00:00Z")), 201, ""),
        ("unknown", set("/nobody", json!({"knows": "this"})), 201, ""),
    ]
}

#[tokio::test]
async fn patches_do_what_they_may_and_no_more() -> Result<()> {
    let webhook = Webhook::start(|asked| {
        let wanted = asked.path.split('?').next().unwrap_or_default().trim_matches('/').to_owned();
        let found = patches().into_iter().find(|(name, ..)| *name == wanted);
        found.map_or_else(|| allowed(asked), |(_, patch, ..)| raw_patch(asked, &patch))
    })
    .await?;
    let hub = TestHub::start().await?;
    let client = hub.admin().await?;
    for (name, _, code, part) in patches() {
        let mut hook = hook(&webhook, &format!("/{name}"));
        hook["failurePolicy"] = json!("Ignore");
        hook["rules"][0]["operations"] = json!(["CREATE"]);
        made(&client, MUTATING, &configuration("c", &[hook])).await?;
        let answer = client.post(MAPS, &map(name)).await?;
        assert_eq!(answer.code.as_u16(), code, "{name}: {}", answer.text());
        if code == 201 {
            let object = answer.json();
            let metadata = object["metadata"].as_object().expect("metadata");
            assert_ne!(metadata["uid"], "mine");
            assert_eq!(metadata["name"], name);
            assert!(!metadata.contains_key("deletionTimestamp") && object["nobody"].is_null(), "{object}");
            assert!(metadata["managedFields"].to_string().contains("f:data"), "{object}");
            client.delete(&format!("{MAPS}/{name}")).await?;
        } else {
            assert!(message(&answer).contains(part), "{name}: {}", message(&answer));
            assert_eq!(client.get(&format!("{MAPS}/{name}")).await?.code, StatusCode::NOT_FOUND);
        }
        client.delete(&format!("{MUTATING}/c")).await?;
    }
    Ok(())
}

#[tokio::test]
async fn what_goes_cannot_be_changed() -> Result<()> {
    let webhook =
        Webhook::start(|asked| patched(asked, &json!([{"op": "add", "path": "/data", "value": {}}]))).await?;
    let hub = TestHub::start().await?;
    let client = hub.admin().await?;
    made(&client, MAPS, &map("m")).await?;
    made(&client, MUTATING, &configuration("c", &[hook(&webhook, "/m")])).await?;
    let refused = client.delete(&format!("{MAPS}/m")).await?;
    assert_eq!(refused.code, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(message(&refused).ends_with(
        "admission webhook \"m.webhooks.io\" attempted to modify the object, which is not supported for this operation"
    ));
    assert_eq!(client.get(&format!("{MAPS}/m")).await?.code, StatusCode::OK);
    Ok(())
}

#[tokio::test]
async fn denials_with_strange_statuses_are_answers_all_the_same() -> Result<()> {
    let hub = TestHub::start().await?;
    let client = hub.admin().await?;
    for (status, code) in [
        (json!({"code": 999, "reason": "Odd\u{0}"}), 999),
        (json!({"code": 100_000}), 500),
        (json!({"code": -5}), 400),
        (json!({"code": 204, "status": "Success", "message": "thanks"}), 400),
        (json!({"message": "x".repeat(100_000)}), 400),
        (json!({"details": {"retryAfterSeconds": -1, "causes": [{}, {}]}}), 400),
    ] {
        let said = status.clone();
        let webhook =
            Webhook::start(move |asked| reviewed(asked, json!({"allowed": false, "status": said}))).await?;
        made(&client, VALIDATING, &configuration("c", &[hook(&webhook, "/v")])).await?;
        let answer = client.post(MAPS, &map("m")).await?;
        assert_eq!(answer.code.as_u16(), code, "{status}: {}", answer.text());
        assert!(message(&answer).starts_with("admission webhook \"v.webhooks.io\" denied the request"));
        assert_eq!(answer.json()["kind"], "Status");
        client.delete(&format!("{VALIDATING}/c")).await?;
    }
    Ok(())
}

#[tokio::test]
async fn many_validating_webhooks_are_heard_in_order_and_too_many_not_at_all() -> Result<()> {
    let hub = TestHub::start().await?;
    let webhook = Webhook::start(|asked| {
        let path = asked.path.split('?').next().unwrap_or_default().replace('/', "");
        reviewed(asked, json!({"allowed": true, "warnings": [path]}))
    })
    .await?;
    let client = hub.admin().await?;
    let hooks: Vec<Value> = (0..50).map(|number| hook(&webhook, &format!("/v{number}"))).collect();
    made(&client, VALIDATING, &configuration("c", &hooks)).await?;
    let answer = client.post(MAPS, &map("m")).await?;
    assert_eq!(answer.code, StatusCode::CREATED, "{}", answer.text());
    let warnings: Vec<String> = answer
        .headers
        .get_all("warning")
        .iter()
        .filter_map(|value| value.to_str().ok()?.strip_prefix("299 - ").map(str::to_owned))
        .collect();
    let expected: Vec<String> = (0..50).map(|number| format!("\"v{number}\"")).collect();
    assert_eq!(warnings, expected);
    assert_eq!(webhook.take().len(), 50);
    // No request is worth so many questions, whatever becomes of them if they fail
    let many: Vec<Value> = (0..960)
        .map(|number| {
            let mut hook = hook(&webhook, &format!("/w{number}"));
            hook["failurePolicy"] = json!("Ignore");
            hook["clientConfig"] = json!({"url": "https://127.0.0.1:1/"});
            hook
        })
        .collect();
    made(&client, VALIDATING, &configuration("d", &many)).await?;
    let refused = client.post(MAPS, &map("n")).await?;
    assert_eq!(refused.code, StatusCode::FORBIDDEN, "{}", refused.text());
    assert!(message(&refused).contains("concerns 1010 validating webhooks"), "{}", message(&refused));
    assert!(webhook.take().is_empty());
    // It can be mended
    assert_eq!(client.delete(&format!("{VALIDATING}/d")).await?.code, StatusCode::OK);
    made(&client, MAPS, &map("n")).await?;
    Ok(())
}
