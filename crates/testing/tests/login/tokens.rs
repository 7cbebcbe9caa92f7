//! Tokens of issuers that the configuration names.

use std::path::{Path, PathBuf};

use anyhow::Result;
use http::StatusCode;
use serde_json::{Value, json};
use server::login::LoginOptions;
use tempfile::TempDir;
use testing::{
    client::{Answer, Client},
    hub::{TestHub, eventually},
};

use crate::{
    create, grant_at, hub_with,
    issuer::{Issuer, Manner, SigningKey, unsigned},
    metric, rule, who,
};

fn mk_jwt(issuer: &Issuer) -> Value {
    json!({
        "issuer": {"url": issuer.url, "audiences": ["hanse"], "certificateAuthority": issuer.ca_pem},
        "claimMappings": {
            "username": {"claim": "sub", "prefix": "oidc:"},
            "groups": {"claim": "groups", "prefix": "oidc:"},
        },
    })
}

fn mk_config(jwt: &[Value]) -> Value {
    json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration", "jwt": jwt})
}

fn write(directory: &Path, config: &str) -> Result<PathBuf> {
    let path = directory.join("authentication.yaml");
    std::fs::write(directory.join("new"), config)?;
    std::fs::rename(directory.join("new"), &path)?;
    Ok(path)
}

struct Scene {
    hub: TestHub,
    nobody: Client,
    directory: TempDir,
}

impl Scene {
    async fn with(config: &Value) -> Result<Scene> {
        let directory = tempfile::tempdir()?;
        let path = write(directory.path(), &config.to_string())?;
        let hub = hub_with(LoginOptions { authentication_config: Some(path), ..Default::default() }).await?;
        let nobody = hub.nobody().await?;
        Ok(Scene { hub, nobody, directory })
    }

    async fn ask(&self, prefix: &str, token: &str) -> Result<Answer> {
        who(&self.nobody, prefix, &[("authorization", &format!("Bearer {token}"))]).await
    }

    async fn user(&self, token: &str) -> Result<Value> {
        Ok(self.ask("", token).await?.json()["status"]["userInfo"].clone())
    }

    /// Until the issuer has been asked where its keys are.
    async fn accepted(&self, token: &str) -> Result<()> {
        eventually("the token is accepted", || async {
            Ok((self.ask("", token).await?.code == StatusCode::CREATED).then_some(()))
        })
        .await
    }

    async fn refused(&self, what: &str, token: &str) -> Result<()> {
        let answer = self.ask("", token).await?;
        assert_eq!(answer.code, StatusCode::UNAUTHORIZED, "{what}: {}", answer.text());
        Ok(())
    }
}

#[tokio::test]
async fn a_user_of_an_issuer_is_known_in_every_workspace_and_each_decides_what_they_may() -> Result<()> {
    let key = SigningKey::rsa("one")?;
    let issuer = Issuer::start(Manner::Honest, &[&key]).await?;
    let scene = Scene::with(&mk_config(&[mk_jwt(&issuer)])).await?;
    let mut claims = issuer.claims("ann");
    claims["groups"] = json!(["team"]);
    claims["jti"] = json!("t-1");
    let token = key.token(&claims)?;
    scene.accepted(&token).await?;
    let user = scene.user(&token).await?;
    assert_eq!(user["username"], "oidc:ann");
    assert_eq!(user["groups"], json!(["oidc:team", "system:authenticated"]));
    assert_eq!(user["extra"], json!({"authentication.kubernetes.io/credential-id": ["JTI=t-1"]}));

    let admin = scene.hub.admin().await?;
    create(&admin, "/clusters/root/apis/hanse.io/v1alpha1/workspaces", json!({"metadata": {"name": "shop"}}))
        .await?;
    grant_at(&admin, "/clusters/shop", "oidc:ann", &[rule("", &["configmaps"], &["list"])]).await?;
    let bearer = format!("Bearer {token}");
    let list = |place: &'static str| {
        let (client, bearer) = (scene.nobody.clone(), bearer.clone());
        async move {
            let path = format!("{place}/api/v1/namespaces/default/configmaps");
            Ok::<_, anyhow::Error>(
                client.call(http::Method::GET, &path, &[("authorization", &bearer)], "").await?.code,
            )
        }
    };
    assert_eq!(list("/clusters/shop").await?, StatusCode::OK);
    assert_eq!(list("").await?, StatusCode::FORBIDDEN);
    assert_eq!(list("/clusters/root").await?, StatusCode::FORBIDDEN);
    assert!(metric(&admin, "hanse_login_attempts_total{way=\"oidc\",result=\"success\"}").await? > 0.0);
    Ok(())
}

#[tokio::test]
async fn every_algorithm_of_the_list_is_verified() -> Result<()> {
    let rsa = SigningKey::rsa("rsa")?;
    let elliptic = ["ES256", "ES384", "ES512"].map(|name| SigningKey::elliptic(name, name));
    let elliptic = elliptic.into_iter().collect::<Result<Vec<_>>>()?;
    let all: Vec<&SigningKey> = std::iter::once(&rsa).chain(&elliptic).collect();
    let issuer = Issuer::start(Manner::Honest, &all).await?;
    let scene = Scene::with(&mk_config(&[mk_jwt(&issuer)])).await?;
    scene.accepted(&rsa.token(&issuer.claims("ann"))?).await?;
    for algorithm in ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"] {
        let answer = scene.ask("", &rsa.token_as(algorithm, &issuer.claims("ann"))?).await?;
        assert_eq!(answer.code, StatusCode::CREATED, "{algorithm}: {}", answer.text());
    }
    for key in &elliptic {
        assert_eq!(scene.ask("", &key.token(&issuer.claims("ann"))?).await?.code, StatusCode::CREATED);
        // An algorithm for keys of another size.
        let other = if key.jwk()["crv"] == "P-256" { "ES384" } else { "ES256" };
        scene.refused("another curve", &key.token_as(other, &issuer.claims("ann"))?).await?;
    }
    Ok(())
}

#[tokio::test]
async fn keys_rotate_without_anybody_noticing() -> Result<()> {
    let (old, new) = (SigningKey::rsa("old")?, SigningKey::rsa("new")?);
    let issuer = Issuer::start(Manner::Honest, &[&old]).await?;
    let scene = Scene::with(&mk_config(&[mk_jwt(&issuer)])).await?;
    scene.accepted(&old.token(&issuer.claims("ann"))?).await?;
    issuer.rotate(&[&old, &new]);
    scene.accepted(&new.token(&issuer.claims("ann"))?).await?;
    scene.accepted(&old.token(&issuer.claims("ann"))?).await?;
    // The old key goes; it is forgotten when somebody brings one that is not known.
    issuer.rotate(&[&new]);
    let third = SigningKey::rsa("third")?;
    eventually("the old key is forgotten", || async {
        scene.refused("of a key that is not published", &third.token(&issuer.claims("ann"))?).await?;
        let code = scene.ask("", &old.token(&issuer.claims("ann"))?).await?.code;
        Ok((code == StatusCode::UNAUTHORIZED).then_some(()))
    })
    .await?;
    Ok(())
}

#[tokio::test]
async fn tokens_that_prove_nothing_are_refused() -> Result<()> {
    let (key, other) = (SigningKey::rsa("one")?, SigningKey::rsa("one")?);
    let issuer = Issuer::start(Manner::Honest, &[&key]).await?;
    let mut jwt = mk_jwt(&issuer);
    jwt["claimValidationRules"] = json!([{"claim": "tier", "requiredValue": "gold"}]);
    let scene = Scene::with(&mk_config(&[jwt])).await?;
    let mut good = issuer.claims("ann");
    good["tier"] = json!("gold");
    scene.accepted(&key.token(&good)?).await?;
    let with = |name: &str, value: Value| {
        let mut claims = good.clone();
        claims[name] = value;
        claims
    };
    let now = good["iat"].as_i64().unwrap_or_default();
    for (what, claims) in [
        ("another audience", with("aud", json!("somebody else"))),
        ("no audience", with("aud", json!([]))),
        ("another issuer", with("iss", json!("https://accounts.example.com"))),
        ("an issuer with a slash more", with("iss", json!(format!("{}/", issuer.url)))),
        ("expired", with("exp", json!(now - 1))),
        ("without an end", with("exp", Value::Null)),
        ("not good yet", with("nbf", json!(now + 3600))),
        ("a claim with another value", with("tier", json!("tin"))),
        ("a claim of another type", with("tier", json!(["gold"]))),
        ("a name of another type", with("sub", json!({"a": 1}))),
        ("groups of another type", with("groups", json!([1]))),
    ] {
        scene.refused(what, &key.token(&claims)?).await?;
    }
    let token = key.token(&good)?;
    let (signed, signature) = token.rsplit_once('.').unwrap_or_default();
    let nothing = unsigned(&json!({"alg": "none", "kid": "one"}), &good);
    let other_payload = token
        .split('.')
        .nth(1)
        .map(|_| unsigned(&json!({"alg": "RS256", "kid": "one"}), &with("sub", json!("root"))));
    for (what, token) in [
        ("alg none", format!("{nothing}.")),
        ("alg none with a signature", format!("{nothing}.{signature}")),
        ("HS256 with the public key", key.hmac_token(&good)?),
        ("of a key with the same id", other.token(&good)?),
        ("of an unknown key", SigningKey::rsa("two")?.token(&good)?),
        ("without a signature", format!("{signed}.")),
        ("another payload", format!("{}.{signature}", other_payload.unwrap_or_default())),
        ("four parts", format!("{token}.e30")),
        ("huge", "a.".repeat(20_000)),
        ("nonsense", "nonsense".to_owned()),
    ] {
        scene.refused(what, &token).await?;
    }
    scene.accepted(&token).await?;
    assert!(issuer.asked_for_keys() < 30, "unknown keys make nobody ask without end");
    Ok(())
}

#[tokio::test]
async fn an_issuer_that_misbehaves_hurts_nobody_else() -> Result<()> {
    let key = SigningKey::rsa("one")?;
    let good = Issuer::start(Manner::Honest, &[&key]).await?;
    let mut bad = Vec::new();
    for manner in [Manner::Lies, Manner::NeverAnswers, Manner::Huge, Manner::Nonsense] {
        bad.push((manner, Issuer::start(manner, &[&key]).await?));
    }
    let all: Vec<Value> =
        std::iter::once(&good).chain(bad.iter().map(|(_, issuer)| issuer)).map(mk_jwt).collect();
    let scene = Scene::with(&mk_config(&all)).await?;
    scene.accepted(&key.token(&good.claims("ann"))?).await?;
    for (manner, issuer) in &bad {
        scene.refused(&format!("{manner:?}"), &key.token(&issuer.claims("ann"))?).await?;
    }
    // One that turns bad later: what is known of it stays, and nobody waits for ever for what is not.
    for manner in [Manner::Huge, Manner::Nonsense] {
        good.behave(manner);
        tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
        scene.refused("an unknown key", &SigningKey::rsa("two")?.token(&good.claims("ann"))?).await?;
        scene.accepted(&key.token(&good.claims("ann"))?).await?;
    }
    Ok(())
}

#[tokio::test]
async fn expressions_map_and_check_claims() -> Result<()> {
    let key = SigningKey::elliptic("one", "ES256")?;
    let issuer = Issuer::start(Manner::Honest, &[&key]).await?;
    let mut jwt = mk_jwt(&issuer);
    jwt["issuer"]["audiences"] = json!(["one", "two"]);
    jwt["issuer"]["audienceMatchPolicy"] = json!("MatchAny");
    jwt["claimMappings"] = json!({
        "username": {"expression": "claims.email_verified ? claims.email + ':' + claims.sub : ''"},
        "groups": {"expression": "claims.roles.split(',')"},
        "uid": {"expression": "claims.uid"},
        "extra": [
            {"key": "example.com/tenant", "valueExpression": "claims.tenant"},
            {"key": "example.com/dotted", "valueExpression": "claims.a__dot__b"},
            {"key": "example.com/none", "valueExpression": "claims.?none.orValue('')"},
        ],
    });
    jwt["claimValidationRules"] =
        json!([{"expression": "claims.exp - claims.iat <= 3600", "message": "lives too long"}]);
    jwt["userValidationRules"] = json!([{"expression": "!user.username.startsWith('system:')", "message": "reserved"},
               {"expression": "user.groups.all(group, !group.startsWith('system:'))"}]);
    let scene = Scene::with(&mk_config(&[jwt])).await?;
    let mut claims = issuer.claims("ann");
    let more = json!({"aud": "two", "email": "ann@example.com", "email_verified": true, "roles": "a,b,", "uid": "u-1",
                      "tenant": ["x", "", "y"], "a.b": "c"});
    if let (Some(claims), Some(more)) = (claims.as_object_mut(), more.as_object()) {
        claims.extend(more.clone());
    }
    let token = key.token(&claims)?;
    scene.accepted(&token).await?;
    let user = scene.user(&token).await?;
    assert_eq!(user["username"], "ann@example.com:ann");
    assert_eq!((&user["uid"], &user["groups"]), (&json!("u-1"), &json!(["a", "b", "system:authenticated"])));
    assert_eq!(user["extra"], json!({"example.com/tenant": ["x", "y"], "example.com/dotted": ["c"]}));
    let with = |name: &str, value: Value| {
        let mut claims = claims.clone();
        claims[name] = value;
        claims
    };
    for (what, claims) in [
        ("an email that is not verified", with("email_verified", json!(false))),
        ("a claim that is missing", with("uid", Value::Null)),
        ("a name of the system's", with("email", json!("system:admin"))),
        ("a group of the system's", with("roles", json!("a,system:masters"))),
        ("one that lives too long", with("exp", json!(claims["iat"].as_i64().unwrap_or_default() + 7200))),
        ("an expression that fails", with("roles", json!(1))),
    ] {
        scene.refused(what, &key.token(&claims)?).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_configuration_changes_without_a_restart() -> Result<()> {
    let key = SigningKey::rsa("one")?;
    let (first, second) =
        (Issuer::start(Manner::Honest, &[&key]).await?, Issuer::start(Manner::Honest, &[&key]).await?);
    let scene = Scene::with(&mk_config(&[mk_jwt(&first)])).await?;
    let (of_first, of_second) = (key.token(&first.claims("ann"))?, key.token(&second.claims("ann"))?);
    scene.accepted(&of_first).await?;
    scene.refused("of an issuer that is not configured", &of_second).await?;

    // A broken file changes nothing, and is told of.
    let admin = scene.hub.admin().await?;
    let failures = "hanse_login_reloads_total{what=\"authentication_config\",status=\"failure\"}";
    for (count, broken) in ["{", "apiVersion: v1\nkind: ConfigMap\n", &mk_config(&[json!({})]).to_string()]
        .into_iter()
        .enumerate()
    {
        write(scene.directory.path(), broken)?;
        eventually("it is told of", || async {
            Ok((metric(&admin, failures).await? > count as f64).then_some(()))
        })
        .await?;
        scene.accepted(&of_first).await?;
    }
    write(scene.directory.path(), &mk_config(&[mk_jwt(&second)]).to_string())?;
    scene.accepted(&of_second).await?;
    scene.refused("of an issuer that is gone", &of_first).await?;
    Ok(())
}

#[tokio::test]
async fn who_comes_without_credentials_is_answered_where_the_configuration_says() -> Result<()> {
    let config = |anonymous: Value| {
        let mut config = mk_config(&[]);
        config["anonymous"] = anonymous;
        config
    };
    let code = |client: Client, path: &'static str| async move {
        Ok::<_, anyhow::Error>(client.get(path).await?.code.as_u16())
    };
    let scene = Scene::with(&config(json!({"enabled": true, "conditions": [{"path": "/livez"}]}))).await?;
    for (path, expected) in [
        ("/livez", 200),
        ("/clusters/default/livez", 200),
        ("/readyz", 401),
        ("/livez/ping", 401),
        ("/version", 401),
    ] {
        assert_eq!(code(scene.nobody.clone(), path).await?, expected, "{path}");
    }
    assert_eq!(scene.hub.admin().await?.get("/version").await?.code, StatusCode::OK);
    let scene = Scene::with(&config(json!({"enabled": false}))).await?;
    assert_eq!(code(scene.nobody.clone(), "/livez").await?, 401);
    let scene = Scene::with(&config(json!({"enabled": true}))).await?;
    assert_eq!(code(scene.nobody.clone(), "/livez").await?, 200);
    assert_eq!(code(scene.nobody.clone(), "/api").await?, 403);
    Ok(())
}
