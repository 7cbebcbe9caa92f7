//! Tokens that are not good, in every way we could think of, and each refused with 401.

use anyhow::{Result, anyhow};
use aws_lc_rs::{
    encoding::AsDer,
    hmac,
    rand::SystemRandom,
    rsa::{KeyPair, KeySize},
    signature::{KeyPair as _, RSA_PKCS1_SHA256},
};
use base64::{
    Engine,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD as BASE64URL},
};
use http::Method;
use serde_json::{Value, json};
use store::{Key, WorkspaceId};

use crate::{CORE, Place, claims, header};

/// The key with which the workspace `default` signs, as only the store has it.
fn key_of(place: &Place) -> Result<KeyPair> {
    let key = Key::new("hanse.io", "_issuers", "", "self");
    let object = place.hub.peer.hub.store.get(&WorkspaceId("default".into()), &key);
    let tree = object.ok_or_else(|| anyhow!("no keys yet"))?.tree()?;
    let pkcs8 = tree["keys"][0]["pkcs8"].as_str().unwrap_or_default();
    KeyPair::from_pkcs8(&STANDARD.decode(pkcs8)?).map_err(|_| anyhow!("not a key"))
}

fn sign(key: &KeyPair, header: &Value, claims: &Value) -> String {
    let unsigned =
        format!("{}.{}", BASE64URL.encode(header.to_string()), BASE64URL.encode(claims.to_string()));
    let mut signature = vec![0; key.public_modulus_len()];
    key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), unsigned.as_bytes(), &mut signature).unwrap();
    format!("{unsigned}.{}", BASE64URL.encode(signature))
}

/// What is otherwise in a token's claims, by pointer.
type Changes = Vec<(&'static str, Value)>;

fn with(claims: &Value, changes: &[(&str, Value)]) -> Value {
    let mut changed = claims.clone();
    for (pointer, value) in changes {
        *changed.pointer_mut(pointer).unwrap_or_else(|| panic!("{pointer}")) = value.clone();
    }
    changed
}

#[tokio::test]
async fn what_the_server_did_not_sign_is_nobody() -> Result<()> {
    let place = Place::with_robot().await?;
    let token = place.token("", "robot", json!({})).await?;
    let (header, claims) = (header(&token), claims(&token));
    let parts: Vec<&str> = token.split('.').collect();
    let foreign = KeyPair::generate(KeySize::Rsa2048).map_err(|_| anyhow!("no key"))?;
    let encode = |value: &Value| BASE64URL.encode(value.to_string());
    // The public key is public: it must not do as a shared secret.
    let public =
        key_of(&place)?.public_key().as_der().map_err(|_| anyhow!("no public key"))?.as_ref().to_vec();
    let symmetric = |header: &Value| {
        let unsigned = format!("{}.{}", encode(header), encode(&claims));
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &public), unsigned.as_bytes());
        format!("{unsigned}.{}", BASE64URL.encode(tag))
    };
    let masters = with(&claims, &[("/sub", json!("system:serviceaccount:kube-system:default"))]);
    let mut broken = parts[2].as_bytes().to_vec();
    broken[10] = if broken[10] == b'A' { b'B' } else { b'A' };
    let broken = String::from_utf8(broken)?;
    let rows: Vec<(&str, String)> = vec![
        ("another key, its id", sign(&foreign, &header, &claims)),
        ("another key, no id", sign(&foreign, &json!({"alg": "RS256"}), &claims)),
        ("no algorithm", format!("{}.{}.", encode(&json!({"alg": "none"})), parts[1])),
        (
            "no algorithm, the id",
            format!("{}.{}.", encode(&json!({"alg": "none", "kid": header["kid"]})), parts[1]),
        ),
        (
            "no algorithm, old signature",
            format!("{}.{}.{}", encode(&json!({"alg": "none"})), parts[1], parts[2]),
        ),
        ("symmetric", symmetric(&json!({"alg": "HS256", "kid": header["kid"]}))),
        ("symmetric, no id", symmetric(&json!({"alg": "HS256"}))),
        ("symmetric, says RS256", symmetric(&header)),
        ("other claims", format!("{}.{}.{}", parts[0], encode(&masters), parts[2])),
        ("other header", format!("{}.{}.{}", encode(&json!({"alg": "RS256"})), parts[1], parts[2])),
        ("other signature", format!("{}.{}.{broken}", parts[0], parts[1])),
        ("half a signature", format!("{}.{}.{}", parts[0], parts[1], &parts[2][..40])),
        ("no signature", format!("{}.{}.", parts[0], parts[1])),
        ("no header", format!(".{}.{}", parts[1], parts[2])),
        ("two parts", format!("{}.{}", parts[0], parts[1])),
        ("four parts", format!("{token}.{}", parts[2])),
        ("padding", format!("{token}=")),
        ("a key of its own", {
            let header = json!({"alg": "RS256", "jwk": {"kty": "RSA", "n": "AQAB", "e": "AQAB"}});
            sign(&foreign, &header, &claims)
        }),
        (
            "a header to understand",
            sign(&key_of(&place)?, &json!({"alg": "RS256", "crit": ["x"], "x": 1}), &claims),
        ),
        (
            "another algorithm",
            sign(&key_of(&place)?, &json!({"alg": "RS512", "kid": header["kid"]}), &claims),
        ),
        ("nonsense", "nonsense".into()),
        ("huge", format!("{}.{}.{}", parts[0], parts[1], "A".repeat(30_000))),
        ("deep", format!("{}.{}.{}", parts[0], BASE64URL.encode("[".repeat(5000)), parts[2])),
    ];
    for (what, bad) in rows {
        let answer = place.who("", &bad).await?;
        assert_eq!(answer.code, 401, "{what}: {}", answer.text());
        assert_eq!(answer.json()["reason"], "Unauthorized", "{what}");
        // Not even what anybody may see.
        assert_eq!(place.get_as(&bad, "/healthz").await?.code, 401, "{what}");
        let review = place.review("", &bad, &[]).await?;
        assert_eq!(review["authenticated"], Value::Null, "{what}: {review}");
        assert!(review["error"].as_str().is_some_and(|it| !it.is_empty()), "{what}: {review}");
    }
    assert_eq!(place.who("", &token).await?.code, 201, "the good one is still good");
    assert!(place.metric("authentication_attempts{result=\"failure\"}").await? > 20);
    Ok(())
}

#[tokio::test]
async fn a_good_signature_is_not_enough() -> Result<()> {
    let place = Place::with_robot().await?;
    let token = place.token("", "robot", json!({})).await?;
    let (header, claims) = (header(&token), claims(&token));
    let key = key_of(&place)?;
    let now = claims["iat"].as_i64().unwrap_or_default();
    let account = "/kubernetes.io/serviceaccount";
    let rows: Vec<(&str, Changes, Option<&str>)> = vec![
        ("as it was", vec![], None),
        ("a minute late", vec![("/exp", json!(now - 30))], None),
        ("expired", vec![("/exp", json!(now - 100))], Some("service account token has expired")),
        ("long expired", vec![("/exp", json!(0))], Some("service account token has expired")),
        ("not yet", vec![("/nbf", json!(now + 1000))], Some("service account token is not valid yet")),
        (
            "issued later",
            vec![("/iat", json!(now + 1000))],
            Some("service account token is issued in the future"),
        ),
        (
            "for somebody else",
            vec![("/aud", json!(["vault"]))],
            Some("token audiences [\"vault\"] is invalid for the target audiences"),
        ),
        (
            "another issuer",
            vec![("/iss", json!("https://elsewhere/clusters/default"))],
            Some("invalid bearer token"),
        ),
        (
            "no such account",
            vec![("/kubernetes.io/serviceaccount/name", json!("none"))],
            Some("serviceaccounts \"none\" not found"),
        ),
        (
            "an account of before",
            vec![("/kubernetes.io/serviceaccount/uid", json!("1-2"))],
            Some("does not match claim (1-2)"),
        ),
        ("no account", vec![(account, json!(null))], Some("not found")),
    ];
    for (what, changes, refusal) in rows {
        let token = sign(&key, &header, &with(&claims, &changes));
        let answer = place.who("", &token).await?;
        assert_eq!(answer.code, if refusal.is_some() { 401 } else { 201 }, "{what}: {}", answer.text());
        let review = place.review("", &token, &[]).await?;
        match refusal {
            Some(why) => {
                assert!(review["error"].as_str().unwrap_or_default().contains(why), "{what}: {review}")
            }
            None => assert_eq!(review["authenticated"], true, "{what}: {review}"),
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_workspaces_token_is_for_that_workspace() -> Result<()> {
    // Given two workspaces with an account of the same name
    let place = Place::with_robot().await?;
    let (one, other) = (place.mk_workspace("one").await?, place.mk_workspace("other").await?);
    for prefix in [&one, &other] {
        place
            .create(prefix, &format!("{CORE}/serviceaccounts"), json!({"metadata": {"name": "robot"}}))
            .await?;
    }
    let token = place.token(&one, "robot", json!({})).await?;
    assert_eq!(claims(&token)["iss"], place.issuer("one"));
    // Then the token of one is good there, with and without its name in the path
    assert_eq!(place.who(&one, &token).await?.code, 201);
    assert_eq!(place.who("", &token).await?.code, 201);
    // The path without a name is about the token's workspace
    place.create(&one, &format!("{CORE}/configmaps"), json!({"metadata": {"name": "mine"}})).await?;
    let binding = json!({
        "metadata": {"name": "robots"},
        "subjects": [{"kind": "ServiceAccount", "namespace": "default", "name": "robot"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
    });
    place.create(&one, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding).await?;
    let seen = place.get_as(&token, &format!("{CORE}/configmaps/mine")).await?;
    assert_eq!(seen.code, 200, "{}", seen.text());
    // And nowhere else, whatever there is
    for prefix in [other.as_str(), "/clusters/default", "/clusters/root", "/clusters/none"] {
        assert_eq!(place.who(prefix, &token).await?.code, 401, "{prefix}");
        if prefix != "/clusters/none" {
            assert_eq!(place.review(prefix, &token, &[]).await?["authenticated"], Value::Null, "{prefix}");
        }
    }
    // Not even with the other's name in it, signed with the first one's key
    let moved = with(&claims(&token), &[("/iss", json!(place.issuer("other")))]);
    let parts: Vec<&str> = token.split('.').collect();
    let moved = format!("{}.{}.{}", parts[0], BASE64URL.encode(moved.to_string()), parts[2]);
    assert_eq!(place.who(&other, &moved).await?.code, 401);
    assert_eq!(place.who("", &moved).await?.code, 401);
    // A workspace that is gone has no tokens
    let path = "/clusters/root/apis/hanse.io/v1alpha1/workspaces/one";
    assert_eq!(place.admin.delete(path).await?.code, 200);
    assert_eq!(place.who(&one, &token).await?.code, 401);
    assert_eq!(place.who("", &token).await?.code, 401);
    Ok(())
}

#[tokio::test]
async fn a_token_dies_with_what_it_is_bound_to() -> Result<()> {
    let place = Place::with_robot().await?;
    let pod = json!({
        "metadata": {"name": "p"},
        "spec": {"serviceAccountName": "robot", "containers": [{"name": "c", "image": "i"}]},
    });
    place.create("", &format!("{CORE}/pods"), pod.clone()).await?;
    place.create("", &format!("{CORE}/secrets"), json!({"metadata": {"name": "s"}})).await?;
    place.create("", "/api/v1/nodes", json!({"metadata": {"name": "n"}})).await?;
    let bound =
        |kind: &str, name: &str| json!({"boundObjectRef": {"kind": kind, "apiVersion": "v1", "name": name}});
    for (kind, name, path) in [
        ("Pod", "p", format!("{CORE}/pods/p?gracePeriodSeconds=0")),
        ("Secret", "s", format!("{CORE}/secrets/s")),
        ("Node", "n", "/api/v1/nodes/n".to_owned()),
    ] {
        let token = place.token("", "robot", bound(kind, name)).await?;
        assert_eq!(place.who("", &token).await?.code, 201, "{kind}");
        assert_eq!(place.admin.delete(&path).await?.code, 200, "{kind}");
        assert_eq!(place.who("", &token).await?.code, 401, "{kind}");
        let review = place.review("", &token, &[]).await?;
        let why = "[invalid bearer token, service account token has been invalidated]";
        assert_eq!(review["error"], why, "{kind}");
    }
    // A pod of the same name is another one
    place.create("", &format!("{CORE}/pods"), pod.clone()).await?;
    let token = place.token("", "robot", bound("Pod", "p")).await?;
    place.admin.delete(&format!("{CORE}/pods/p?gracePeriodSeconds=0")).await?;
    place.create("", &format!("{CORE}/pods"), pod).await?;
    assert_eq!(place.who("", &token).await?.code, 401);
    // So is an account
    let token = place.token("", "robot", json!({})).await?;
    assert_eq!(place.admin.delete(&format!("{CORE}/serviceaccounts/robot")).await?.code, 200);
    assert_eq!(place.who("", &token).await?.code, 401, "deleted");
    place.create("", &format!("{CORE}/serviceaccounts"), json!({"metadata": {"name": "robot"}})).await?;
    assert_eq!(place.who("", &token).await?.code, 401, "made again");
    let review = place.review("", &token, &[]).await?;
    assert!(review["error"].as_str().unwrap_or_default().contains("does not match claim"), "{review}");
    Ok(())
}

#[tokio::test]
async fn what_is_in_front_of_a_token_decides_whether_it_is_one() -> Result<()> {
    let place = Place::with_robot().await?;
    let token = place.token("", "robot", json!({})).await?;
    for (header, code, warns) in [
        (format!("Bearer {token}"), 200, false),
        (format!("bearer {token}"), 200, false),
        (format!("Bearer {token} more"), 200, false),
        (format!("Bearer  {token}"), 200, true),
        (format!("Basic {token}"), 200, false),
        ("Bearer".to_owned(), 200, false),
        (format!("Bearer x{token}"), 401, false),
    ] {
        let answer = place.nobody.call(Method::GET, "/healthz", &[("authorization", &header)], "").await?;
        assert_eq!(answer.code, code, "{header}");
        assert_eq!(answer.headers.contains_key("warning"), warns, "{header}");
    }
    Ok(())
}

/// Nothing that a client can ask for shows the keys.
#[tokio::test]
async fn keys_are_out_of_reach() -> Result<()> {
    let place = Place::with_robot().await?;
    place.token("", "robot", json!({})).await?;
    for path in [
        "/apis/hanse.io/v1alpha1/_issuers",
        "/apis/hanse.io/v1alpha1/_issuers/self",
        "/apis/hanse.io/v1alpha1/namespaces/-/_issuers/self",
        "/api/v1/_issuers",
    ] {
        assert_eq!(place.admin.get(path).await?.code, 404, "{path}");
    }
    // A definition cannot be called so
    let definition = json!({
        "metadata": {"name": "_issuers.hanse.io"},
        "spec": {
            "group": "hanse.io", "scope": "Cluster", "names": {"plural": "_issuers", "kind": "Issuer"},
            "versions": [{
                "name": "v1alpha1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    });
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(place.admin.post(path, &definition).await?.code, 422);
    Ok(())
}

#[tokio::test]
async fn long_tokens_are_not_remembered_and_longer_ones_not_read() -> Result<()> {
    let place = Place::with_robot().await?;
    let token = place.token("", "robot", json!({})).await?;
    let key = key_of(&place)?;
    let padded = |bytes: usize| {
        let mut claims = claims(&token);
        claims["padding"] = json!("x".repeat(bytes));
        sign(&key, &header(&token), &claims)
    };
    let hits = async || place.metric("authentication_token_cache_request_total{status=\"hit\"}").await;
    for (bytes, authenticated, remembered) in [(1000, true, 1), (10_000, true, 0), (60_000, false, 0)] {
        let (token, before) = (padded(bytes), hits().await?);
        for _ in 0..2 {
            let status = place.review("", &token, &[]).await?;
            assert_eq!(status["authenticated"] == true, authenticated, "{bytes}: {status}");
        }
        assert_eq!(hits().await? - before, remembered, "{bytes}");
    }
    Ok(())
}
