//! Who somebody is, and acting as another.

use anyhow::Result;
use http::Method;
use serde_json::{Value, json};
use testing::client::{Answer, Client};

use crate::{
    CONFIG_MAPS, CORE, account, bind, bind_everywhere, group, hub_with_jane, mk_cluster_role, mk_role, named,
    rule, user,
};

type Headers<'a> = &'a [(&'a str, &'a str)];

async fn get_as(client: &Client, path: &str, headers: Headers<'_>) -> Result<Answer> {
    client.call(Method::GET, path, headers, "").await
}

#[tokio::test]
async fn whoever_may_impersonate_acts_as_the_other() -> Result<()> {
    let (hub, admin, _) = hub_with_jane().await?;
    mk_role(&admin, "reader", &[rule("", &["configmaps"], &["list"])]).await?;
    bind(&admin, "Role", "reader", &user("reader")).await?;
    let rules = [
        named(rule("", &["users"], &["impersonate"]), &["reader", "jösé"]),
        named(rule("", &["groups"], &["impersonate"]), &["team"]),
        named(rule("", &["serviceaccounts"], &["impersonate"]), &["robot"]),
        named(rule("authentication.k8s.io", &["userextras/scopes"], &["impersonate"]), &["few"]),
        named(rule("authentication.k8s.io", &["uids"], &["impersonate"]), &["1234"]),
    ];
    mk_cluster_role(&admin, "deputy", &rules).await?;
    bind_everywhere(&admin, "deputy", &user("deputy")).await?;
    let deputy = hub.user("deputy", &[]).await?;
    let ask = async |headers: Headers<'_>| get_as(&deputy, CONFIG_MAPS, headers).await;

    assert_eq!(ask(&[]).await?.code, 403, "alone it may not");
    assert_eq!(ask(&[("impersonate-user", "reader")]).await?.code, 200);
    // What the other may not, the deputy may not either, and the refusal is the other's.
    let refused = get_as(&deputy, &format!("{CORE}/secrets"), &[("impersonate-user", "reader")]).await?;
    assert!(refused.text().contains("User \\\"reader\\\" cannot list"), "{}", refused.text());
    // Every part of the identity must be allowed.
    let as_reader = ("impersonate-user", "reader");
    let allowed: [Headers; 5] = [
        &[as_reader, ("impersonate-group", "team")],
        &[as_reader, ("impersonate-uid", "1234")],
        &[as_reader, ("impersonate-extra-scopes", "few")],
        &[("impersonate-user", "system:serviceaccount:default:robot")],
        &[
            as_reader,
            ("impersonate-group", "team"),
            ("impersonate-uid", "1234"),
            ("impersonate-extra-scopes", "few"),
        ],
    ];
    for headers in allowed {
        let answer = ask_who(&deputy, headers).await?;
        assert_eq!(answer.code, 201, "{headers:?}: {}", answer.text());
    }
    let refused: [Headers; 8] = [
        &[("impersonate-user", "admin")],
        &[as_reader, ("impersonate-group", "system:masters")],
        &[as_reader, ("impersonate-group", "team"), ("impersonate-group", "other")],
        &[as_reader, ("impersonate-uid", "12345")],
        &[as_reader, ("impersonate-extra-scopes", "many")],
        &[as_reader, ("impersonate-extra-scopes", "few"), ("impersonate-extra-scopes", "many")],
        &[as_reader, ("impersonate-extra-other", "few")],
        &[("impersonate-user", "system:serviceaccount:default:other")],
    ];
    for headers in refused {
        let answer = ask_who(&deputy, headers).await?;
        assert_eq!(answer.code, 403, "{headers:?}");
        assert!(answer.text().contains("cannot impersonate resource"), "{}", answer.text());
    }
    let without_user = ask(&[("impersonate-group", "team")]).await?;
    assert!(without_user.code.is_server_error() || without_user.code.is_client_error());
    Ok(())
}

async fn ask_who(client: &Client, headers: Headers<'_>) -> Result<Answer> {
    let headers = [headers, &[("content-type", "application/json")]].concat();
    client.call(Method::POST, "/apis/authentication.k8s.io/v1/selfsubjectreviews", &headers, "{}").await
}

/// Who the server takes the request for.
async fn whoami(client: &Client, headers: Headers<'_>) -> Result<Value> {
    Ok(ask_who(client, headers).await?.json()["status"]["userInfo"].clone())
}

#[tokio::test]
async fn identities_are_told_as_they_are() -> Result<()> {
    let (_hub, admin, jane) = hub_with_jane().await?;
    let told = whoami(&jane, &[]).await?;
    assert_eq!(
        (&told["username"], &told["groups"]),
        (&json!("jane"), &json!(["team", "system:authenticated"]))
    );
    let credential =
        told["extra"]["authentication.kubernetes.io/credential-id"][0].as_str().unwrap_or_default();
    assert!(credential.starts_with("X509SHA256="), "{told}");
    let other = whoami(
        &admin,
        &[
            ("impersonate-user", "june"),
            ("impersonate-uid", "1234"),
            ("impersonate-group", "one"),
            ("impersonate-group", "two"),
            ("impersonate-extra-example.com%2fscopes", "few"),
            ("impersonate-extra-example.com%2fscopes", "more"),
        ],
    )
    .await?;
    let expected = json!({
        "username": "june", "uid": "1234", "groups": ["one", "two", "system:authenticated"],
        "extra": {"example.com/scopes": ["few", "more"]},
    });
    assert_eq!(other, expected);
    let robot = whoami(&admin, &[("impersonate-user", "system:serviceaccount:default:robot")]).await?;
    let groups = ["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"];
    assert_eq!(robot["groups"], json!(groups));
    let anonymous = whoami(&admin, &[("impersonate-user", "system:anonymous")]).await?;
    assert_eq!(anonymous, Value::Null, "the anonymous may not even ask");
    // A name in another script is a name; at the very least it is never the caller's own.
    let name = "jösé";
    let told = whoami(&admin, &[("impersonate-user", name)]).await?;
    assert_eq!(told["username"], name);
    let group = whoami(&admin, &[("impersonate-user", "june"), ("impersonate-group", "größe")]).await?;
    assert_eq!(group["groups"], json!(["größe", "system:authenticated"]));
    Ok(())
}

#[tokio::test]
async fn service_accounts_are_subjects() -> Result<()> {
    let (_hub, admin, _) = hub_with_jane().await?;
    mk_role(&admin, "by-account", &[rule("", &["configmaps"], &["list"])]).await?;
    bind(&admin, "Role", "by-account", &account("kube-system", "robot")).await?;
    mk_role(&admin, "by-group", &[rule("", &["secrets"], &["list"])]).await?;
    bind(&admin, "Role", "by-group", &group("system:serviceaccounts:default")).await?;
    let rows = [
        ("system:serviceaccount:kube-system:robot", 200, 403),
        ("system:serviceaccount:default:robot", 403, 200),
        ("system:serviceaccount:kube-system:other", 403, 403),
        ("robot", 403, 403),
    ];
    for (name, config_maps, secrets) in rows {
        let headers = [("impersonate-user", name)];
        assert_eq!(get_as(&admin, CONFIG_MAPS, &headers).await?.code, config_maps, "{name}");
        assert_eq!(get_as(&admin, &format!("{CORE}/secrets"), &headers).await?.code, secrets, "{name}");
    }
    Ok(())
}
