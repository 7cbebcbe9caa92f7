//! What every namespace has, and secrets that hold tokens.

use anyhow::Result;
use base64::{Engine, engine::general_purpose::STANDARD};
use http::StatusCode;
use serde_json::{Value, json};
use testing::hub::eventually;

use crate::{CORE, Place};

async fn there(place: &Place, path: &str, is: impl Fn(&Value) -> bool) -> Result<Value> {
    eventually(path, || async {
        let answer = place.admin.get(path).await?;
        Ok((answer.code == StatusCode::OK).then(|| answer.json()).filter(|it| is(it)))
    })
    .await
}

#[tokio::test]
async fn every_namespace_has_an_account_and_the_authority() -> Result<()> {
    let place = Place::mk().await?;
    let prefix = place.mk_workspace("one").await?;
    let authority = place.hub.peer.authority.certificate_pem();
    for prefix in ["", "/clusters/root", &prefix] {
        place.create(prefix, "/api/v1/namespaces", json!({"metadata": {"name": "new"}})).await?;
        for namespace in ["default", "kube-system", "kube-public", "kube-node-lease", "new"] {
            let core = format!("{prefix}/api/v1/namespaces/{namespace}");
            let account = there(&place, &format!("{core}/serviceaccounts/default"), |_| true).await?;
            assert!(account["metadata"]["uid"].is_string(), "{core}");
            let map = there(&place, &format!("{core}/configmaps/kube-root-ca.crt"), |_| true).await?;
            assert_eq!(map["data"], json!({"ca.crt": authority}), "{core}");
            let text =
                map["metadata"]["annotations"]["kubernetes.io/description"].as_str().unwrap_or_default();
            assert!(
                text.starts_with("Contains a CA bundle that can be used to verify the kube-apiserver"),
                "{text}"
            );
        }
        let listed = place.admin.get(&format!("{prefix}/api/v1/serviceaccounts")).await?.json();
        assert_eq!(listed["items"].as_array().map(Vec::len), Some(5));
    }
    Ok(())
}

#[tokio::test]
async fn what_is_taken_from_a_namespace_comes_back() -> Result<()> {
    let place = Place::mk().await?;
    place.create("", "/api/v1/namespaces", json!({"metadata": {"name": "new"}})).await?;
    for namespace in ["default", "new"] {
        let core = format!("/api/v1/namespaces/{namespace}");
        let account = format!("{core}/serviceaccounts/default");
        let before = there(&place, &account, |_| true).await?;
        assert_eq!(place.admin.delete(&account).await?.code, 200);
        there(&place, &account, |it| it["metadata"]["uid"] != before["metadata"]["uid"]).await?;
        let map = format!("{core}/configmaps/kube-root-ca.crt");
        let good = there(&place, &map, |_| true).await?;
        assert_eq!(place.admin.delete(&map).await?.code, 200);
        there(&place, &map, |it| it["data"] == good["data"]).await?;
        let spoilt = json!({"data": {"ca.crt": "mine", "more": "x"}, "metadata": {"annotations": null}});
        assert_eq!(place.admin.merge_patch(&map, &spoilt).await?.code, 200);
        there(&place, &map, |it| {
            it["data"] == good["data"] && it["metadata"]["annotations"] == good["metadata"]["annotations"]
        })
        .await?;
    }
    // A namespace that goes takes them along, also one that every workspace has
    for namespace in ["new", "kube-node-lease"] {
        let path = format!("/api/v1/namespaces/{namespace}");
        assert_eq!(place.admin.delete(&path).await?.code, 200);
        eventually("it is gone", || async {
            Ok((place.admin.get(&path).await?.code == StatusCode::NOT_FOUND).then_some(()))
        })
        .await?;
        for path in [format!("{path}/serviceaccounts"), format!("{path}/configmaps")] {
            assert_eq!(place.admin.get(&path).await?.json()["items"], json!([]), "{path}");
        }
        // And a new one of the name has its own
        place.create("", "/api/v1/namespaces", json!({"metadata": {"name": namespace}})).await?;
        there(&place, &format!("{path}/serviceaccounts/default"), |_| true).await?;
    }
    Ok(())
}

fn mk_secret(name: &str, account: &str) -> Value {
    json!({
        "metadata": {"name": name, "annotations": {"kubernetes.io/service-account.name": account}},
        "type": "kubernetes.io/service-account-token",
    })
}

fn data(secret: &Value, key: &str) -> String {
    let bytes = STANDARD.decode(secret["data"][key].as_str().unwrap_or_default()).unwrap_or_default();
    String::from_utf8(bytes).unwrap_or_default()
}

#[tokio::test]
async fn a_secret_for_a_token_is_filled_and_its_token_is_good() -> Result<()> {
    let place = Place::with_robot().await?;
    let path = format!("{CORE}/secrets/robot-token");
    place.create("", &format!("{CORE}/secrets"), mk_secret("robot-token", "robot")).await?;
    let secret = there(&place, &path, |it| it["data"]["token"].is_string()).await?;
    let account = place.admin.get(&format!("{CORE}/serviceaccounts/robot")).await?.json();
    assert_eq!(data(&secret, "ca.crt"), place.hub.peer.authority.certificate_pem());
    assert_eq!(data(&secret, "namespace"), "default");
    let annotations = &secret["metadata"]["annotations"];
    assert_eq!(annotations["kubernetes.io/service-account.uid"], account["metadata"]["uid"]);
    // The token is the account, for as long as the secret has it
    let token = data(&secret, "token");
    let who = place.who("", &token).await?;
    assert_eq!(who.json()["status"]["userInfo"]["username"], "system:serviceaccount:default:robot");
    assert!(who.json()["status"]["userInfo"].get("extra").is_none());
    let used = place.admin.get(&path).await?.json();
    assert!(used["metadata"]["labels"]["kubernetes.io/legacy-token-last-used"].is_string(), "{used}");
    let other = place.mk_workspace("one").await?;
    assert_eq!(place.who(&other, &token).await?.code, 401, "it is no other workspace's");
    // Marked as invalid it is not good
    let label = "kubernetes.io/legacy-token-invalid-since";
    let mark = |value: Value| json!({"metadata": {"labels": {label: value}}});
    place.admin.merge_patch(&path, &mark(json!("2030-01-01"))).await?;
    assert_eq!(place.who("", &token).await?.code, 401);
    place.admin.merge_patch(&path, &mark(Value::Null)).await?;
    assert_eq!(place.who("", &token).await?.code, 201);
    // A token that is taken out is replaced, and the old one is worth nothing
    place.admin.merge_patch(&path, &json!({"data": {"token": null}})).await?;
    let secret = there(&place, &path, |it| it["data"]["token"].is_string()).await?;
    assert_eq!(place.who("", &data(&secret, "token")).await?.code, 201);
    // The secret goes with its account
    assert_eq!(place.admin.delete(&format!("{CORE}/serviceaccounts/robot")).await?.code, 200);
    eventually("the secret is gone", || async {
        Ok((place.admin.get(&path).await?.code == StatusCode::NOT_FOUND).then_some(()))
    })
    .await?;
    assert_eq!(place.who("", &token).await?.code, 401);
    Ok(())
}

#[tokio::test]
async fn a_secret_without_an_account_goes() -> Result<()> {
    let place = Place::with_robot().await?;
    place.create("", &format!("{CORE}/secrets"), mk_secret("nobodys", "none")).await?;
    let path = format!("{CORE}/secrets/nobodys");
    eventually("the secret is gone", || async {
        Ok((place.admin.get(&path).await?.code == StatusCode::NOT_FOUND).then_some(()))
    })
    .await?;
    // An account that named a secret names it no more once that is gone
    let account = format!("{CORE}/serviceaccounts/robot");
    place.admin.merge_patch(&account, &json!({"secrets": [{"name": "mine"}, {"name": "kept"}]})).await?;
    place.create("", &format!("{CORE}/secrets"), mk_secret("mine", "robot")).await?;
    let secret = there(&place, &format!("{CORE}/secrets/mine"), |it| it["data"]["token"].is_string()).await?;
    let who = place.who("", &data(&secret, "token")).await?;
    let warning = who.headers.get("warning").and_then(|it| it.to_str().ok()).unwrap_or_default();
    assert!(warning.contains("Use tokens from the TokenRequest API"), "{warning}");
    place.admin.delete(&format!("{CORE}/secrets/mine")).await?;
    there(&place, &account, |it| it["secrets"] == json!([{"name": "kept"}])).await?;
    Ok(())
}
