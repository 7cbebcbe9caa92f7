//! The keys of an issuer: made once, shown to those who verify, rotated, forgotten, kept over restarts.

use std::sync::Arc;

use anyhow::{Result, anyhow};
use aws_lc_rs::signature::{RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL};
use env::Env;
use serde_json::{Value, json};
use server::Options;
use store::{Store, embedded::EmbeddedStore};
use testing::hub::TestHub;

use crate::{CORE, Place, claims, header};

const KEYS: &str = "/openid/v1/jwks";

/// As somebody does who has only the issuer's address: finds the keys from there, and verifies with them.
async fn verifies(place: &Place, prefix: &str, token: &str) -> Result<bool> {
    let configuration = place.admin.get(&format!("{prefix}/.well-known/openid-configuration")).await?;
    assert_eq!(configuration.code, 200, "{}", configuration.text());
    let configuration = configuration.json();
    let issuer = claims(token)["iss"].as_str().unwrap_or_default().to_owned();
    assert_eq!(configuration["issuer"], json!(issuer));
    let keys = configuration["jwks_uri"].as_str().unwrap_or_default();
    // What is advertised can be asked for.
    let path = keys.strip_prefix(&place.hub.peer.url()).ok_or_else(|| anyhow!("{keys}"))?;
    let keys = place.admin.get(path).await?.json();
    let key = keys["keys"].as_array().into_iter().flatten().find(|key| key["kid"] == header(token)["kid"]);
    let Some(key) = key else { return Ok(false) };
    let part = |name: &str| BASE64URL.decode(key[name].as_str().unwrap_or_default());
    let (signed, signature) = token.rsplit_once('.').ok_or_else(|| anyhow!("{token}"))?;
    let public = RsaPublicKeyComponents { n: part("n")?, e: part("e")? };
    let good = public.verify(&RSA_PKCS1_2048_8192_SHA256, signed.as_bytes(), &BASE64URL.decode(signature)?);
    Ok(good.is_ok())
}

#[tokio::test]
async fn others_verify_a_token_by_the_issuers_documents() -> Result<()> {
    let place = Place::with_robot().await?;
    let prefix = place.mk_workspace("one").await?;
    for prefix in ["", "/clusters/default", &prefix] {
        let token = place.token(prefix, "default", json!({"audiences": ["vault"]})).await?;
        assert!(verifies(&place, prefix, &token).await?, "{prefix}");
    }
    let answer = place.admin.get("/.well-known/openid-configuration").await?;
    assert_eq!(
        answer.json(),
        json!({
            "issuer": place.issuer("default"),
            "jwks_uri": format!("{}{KEYS}", place.issuer("default")),
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["RS256"],
        })
    );
    assert_eq!(answer.headers["cache-control"], "public, max-age=3600");
    let keys = place.admin.get(KEYS).await?;
    assert_eq!(keys.headers["content-type"], "application/jwk-set+json");
    let key = &keys.json()["keys"][0];
    assert_eq!((&key["use"], &key["kty"], &key["alg"]), (&json!("sig"), &json!("RSA"), &json!("RS256")));
    assert_eq!(key["e"], "AQAB");
    assert!(key.get("d").is_none(), "the private part is not shown");
    // Workspaces share no key.
    assert_ne!(place.admin.get(&format!("{prefix}{KEYS}")).await?.json()["keys"], keys.json()["keys"]);
    // Service accounts may read them, as upstream's default roles say; strangers may not.
    let token = place.token("", "robot", json!({})).await?;
    assert_eq!(place.get_as(&token, KEYS).await?.code, 200);
    assert_eq!(place.nobody.get(KEYS).await?.code, 403);
    Ok(())
}

#[tokio::test]
async fn a_key_is_made_once_however_many_need_it() -> Result<()> {
    let place = Arc::new(Place::with_robot().await?);
    let mut asking = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let place = place.clone();
        asking.spawn(async move { place.token("", "robot", json!({})).await });
    }
    let tokens = asking.join_all().await.into_iter().collect::<Result<Vec<_>>>()?;
    for token in &tokens {
        assert_eq!(header(token)["kid"], header(&tokens[0])["kid"]);
        assert_eq!(place.who("", token).await?.code, 201);
    }
    let keys = place.admin.get(KEYS).await?.json();
    assert_eq!(keys["keys"].as_array().map(Vec::len), Some(1));
    Ok(())
}

async fn rotate(place: &Place, prefix: &str, keys: &str) -> Result<Value> {
    let answer = place.admin.post(&format!("{prefix}/openid/v1/rotation?keys={keys}"), &json!({})).await?;
    assert_eq!(answer.code, 200, "{}", answer.text());
    Ok(answer.json())
}

#[tokio::test]
async fn old_tokens_are_good_until_their_key_is_forgotten() -> Result<()> {
    let place = Place::with_robot().await?;
    let before = place.token("", "robot", json!({})).await?;
    let elsewhere = place.mk_workspace("one").await?;
    let untouched = place.token(&elsewhere, "default", json!({})).await?;
    // When a new key is made
    let outcome = rotate(&place, "", "new").await?;
    let after = place.token("", "robot", json!({})).await?;
    // Then it signs, and both verify, here and elsewhere
    assert_eq!(header(&after)["kid"], outcome["signs"]);
    assert_eq!(outcome["verify"], json!([header(&before)["kid"]]));
    for token in [&before, &after] {
        assert_eq!(place.who("", token).await?.code, 201);
        assert!(verifies(&place, "", token).await?);
    }
    // When the old one is forgotten, its tokens are refused at once, though they were accepted a moment ago
    rotate(&place, "", "forget-old").await?;
    assert_eq!(place.who("", &before).await?.code, 401);
    assert_eq!(place.who("", &after).await?.code, 201);
    assert!(!verifies(&place, "", &before).await?);
    // Both at once
    rotate(&place, "", "only-new").await?;
    assert_eq!(place.who("", &after).await?.code, 401);
    assert_eq!(place.admin.get(KEYS).await?.json()["keys"].as_array().map(Vec::len), Some(1));
    assert_eq!(place.who("", &untouched).await?.code, 201, "other workspaces have keys of their own");
    // There is an end to it
    for _ in 0..7 {
        rotate(&place, "", "new").await?;
    }
    let answer = place.admin.post("/openid/v1/rotation", &json!({})).await?;
    assert_eq!(answer.code, 409, "{}", answer.text());
    // And it is for those who may
    let token = place.token("", "robot", json!({})).await?;
    let headers = [("authorization", format!("Bearer {token}"))];
    let headers: Vec<(&str, &str)> = headers.iter().map(|(key, value)| (*key, value.as_str())).collect();
    let answer = place.nobody.call(http::Method::POST, "/openid/v1/rotation", &headers, "").await?;
    assert_eq!(answer.code, 403);
    assert_eq!(place.admin.get("/openid/v1/rotation").await?.code, 404);
    Ok(())
}

#[tokio::test]
async fn rotations_at_once_are_done_one_by_one_or_told_to_wait() -> Result<()> {
    let place = Place::with_robot().await?;
    let asked = (0..20).map(|_| {
        let admin = place.admin.clone();
        tokio::spawn(async move { admin.post("/openid/v1/rotation?keys=only-new", &json!({})).await })
    });
    let mut done = 0;
    for answer in asked.collect::<Vec<_>>() {
        let answer = answer.await??;
        match answer.code.as_u16() {
            200 => done += 1,
            code => {
                assert_eq!(code, 429, "{}", answer.text());
                assert_eq!(answer.headers.get("retry-after").map(|it| it.as_bytes()), Some(&b"1"[..]));
            }
        }
    }
    assert!(done > 0);
    Ok(())
}

#[tokio::test]
async fn a_signature_is_verified_once() -> Result<()> {
    let place = Place::with_robot().await?;
    let token = place.token("", "robot", json!({})).await?;
    for _ in 0..10 {
        assert_eq!(place.who("", &token).await?.code, 201);
    }
    let count = async |status: &str| {
        place.metric(&format!("authentication_token_cache_request_total{{status=\"{status}\"}}")).await
    };
    assert_eq!((count("miss").await?, count("hit").await?), (1, 9));
    Ok(())
}

async fn start(directory: &std::path::Path, issuer: &str) -> Result<(Place, Arc<EmbeddedStore>)> {
    let store = Arc::new(EmbeddedStore::open(&Env::real(), directory, Default::default())?);
    let options = Options { issuer: issuer.into(), ..Options::default() };
    let hub = TestHub::start_on(store.clone() as Arc<dyn Store>, options).await?;
    let (admin, nobody) = (hub.admin().await?, hub.nobody().await?);
    Ok((Place { hub, admin, nobody }, store))
}

#[tokio::test]
async fn keys_and_tokens_outlive_a_restart_and_a_move() -> Result<()> {
    let directory = tempfile::tempdir()?;
    // Given a token of a server that calls itself one thing
    let (place, store) = start(directory.path(), "https://here").await?;
    place.create("", &format!("{CORE}/serviceaccounts"), json!({"metadata": {"name": "robot"}})).await?;
    let token = place.token("", "robot", json!({})).await?;
    let keys = place.admin.get(KEYS).await?.json();
    assert_eq!(claims(&token)["iss"], "https://here/clusters/default");
    place.hub.stop().await;
    store.close().await?;
    // When it is started again, under another name
    let (place, store) = start(directory.path(), "https://there").await?;
    // Then the key is the same, the old token is good, and new ones are of the new name
    assert_eq!(place.admin.get(KEYS).await?.json(), keys);
    assert_eq!(place.who("", &token).await?.code, 201);
    let new = place.token("", "robot", json!({})).await?;
    assert_eq!(claims(&new)["iss"], "https://there/clusters/default");
    assert_eq!(place.who("", &new).await?.code, 201);
    place.hub.stop().await;
    store.close().await?;
    Ok(())
}
