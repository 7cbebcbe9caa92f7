//! Tokens with which something introduces itself.

use anyhow::Result;
use http::StatusCode;
use serde_json::{Value, json};
use testing::hub::eventually;

use crate::Place;

const SECRETS: &str = "/api/v1/namespaces/kube-system/secrets";
const TOKEN: &str = "abcdef.0123456789abcdef";

fn mk_secret(id: &str, changes: Value) -> Value {
    let mut data = json!({
        "token-id": id, "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true",
    });
    for (key, value) in changes.as_object().into_iter().flatten() {
        data[key] = value.clone();
    }
    let metadata = json!({"name": format!("bootstrap-token-{id}")});
    json!({"metadata": metadata, "type": "bootstrap.kubernetes.io/token", "stringData": data})
}

#[tokio::test]
async fn a_bootstrap_token_is_a_bootstrapper() -> Result<()> {
    let place = Place::mk().await?;
    assert_eq!(place.who("", TOKEN).await?.code, 401);
    let groups = json!({"auth-extra-groups": "system:bootstrappers:nodes"});
    place.create("", SECRETS, mk_secret("abcdef", groups)).await?;
    let who = place.who("", TOKEN).await?;
    assert_eq!(who.code, 201, "{}", who.text());
    let expected = json!({
        "username": "system:bootstrap:abcdef",
        "groups": ["system:bootstrappers", "system:bootstrappers:nodes", "system:authenticated"],
    });
    assert_eq!(who.json()["status"]["userInfo"], expected);
    assert_eq!(place.review("", TOKEN, &[]).await?["authenticated"], true);
    assert_eq!(place.review("", TOKEN, &["vault"]).await?["authenticated"], Value::Null);
    // It is this workspace's, and not another's
    let other = place.mk_workspace("one").await?;
    assert_eq!(place.who(&other, TOKEN).await?.code, 401);
    assert_eq!(place.admin.delete(&format!("{SECRETS}/bootstrap-token-abcdef")).await?.code, 200);
    assert_eq!(place.who("", TOKEN).await?.code, 401);
    Ok(())
}

#[tokio::test]
async fn a_bootstrap_token_goes_when_it_ends() -> Result<()> {
    let place = Place::mk().await?;
    let secrets = [
        ("aaaaaa", json!({"expiration": "2020-01-01T00:00:00Z"})),
        ("bbbbbb", json!({"expiration": "soon"})),
        ("cccccc", json!({"expiration": "2999-01-01T00:00:00Z"})),
        ("dddddd", json!({})),
    ];
    for (id, changes) in secrets {
        place.create("", SECRETS, mk_secret(id, changes)).await?;
    }
    assert_eq!(place.who("", "aaaaaa.0123456789abcdef").await?.code, 401, "at once");
    for id in ["aaaaaa", "bbbbbb"] {
        let path = format!("{SECRETS}/bootstrap-token-{id}");
        eventually("it is removed", || async {
            Ok((place.admin.get(&path).await?.code == StatusCode::NOT_FOUND).then_some(()))
        })
        .await?;
    }
    for id in ["cccccc", "dddddd"] {
        assert_eq!(place.who("", &format!("{id}.0123456789abcdef")).await?.code, 201, "{id}");
    }
    Ok(())
}
