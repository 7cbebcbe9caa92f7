//! CertificateSigningRequests: made, approved, signed, used.

use anyhow::Result;
use base64::{Engine, prelude::BASE64_STANDARD};
use http::StatusCode;
use serde_json::{Value, json};
use testing::{
    client::Client,
    hub::{TestHub, eventually},
};
use x509_parser::prelude::*;

use crate::{REQUESTS, authority::request, base64, create, metric, rule, who};

pub const CLIENT: &str = "kubernetes.io/kube-apiserver-client";

pub fn mk_request(name: &str, signer: &str, pem: &str, usages: &[&str]) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {"request": base64(pem), "signerName": signer, "usages": usages},
    })
}

/// As `kubectl certificate approve` does.
pub async fn approve(client: &Client, prefix: &str, name: &str) -> Result<testing::client::Answer> {
    let path = format!("{prefix}{REQUESTS}/{name}");
    let mut object = client.get(&path).await?.json();
    object["status"]["conditions"] =
        json!([{"type": "Approved", "status": "True", "reason": "Tested", "message": "by hand"}]);
    client.put(&format!("{path}/approval"), &object).await
}

/// The certificate, once there is one.
pub async fn signed(client: &Client, prefix: &str, name: &str) -> Result<String> {
    let encoded = eventually("a certificate", || async {
        let object = client.get(&format!("{prefix}{REQUESTS}/{name}")).await?.json();
        Ok(object["status"]["certificate"].as_str().map(str::to_owned))
    })
    .await?;
    Ok(String::from_utf8(BASE64_STANDARD.decode(encoded)?)?)
}

#[tokio::test]
async fn a_user_asks_is_approved_and_logs_in() -> Result<()> {
    let hub = TestHub::start().await?;
    let admin = hub.admin().await?;
    crate::grant(
        &admin,
        "asker",
        &[rule("certificates.k8s.io", &["certificatesigningrequests"], &["create", "get"])],
    )
    .await?;
    let asker = hub.user("asker", &[]).await?;
    let (pem, key) = request("ann", &["team-a", "team-b"], &["ann.example.com", "10.0.0.1"])?;
    let made =
        create(&asker, REQUESTS, mk_request("ann", CLIENT, &pem, &["client auth", "digital signature"]))
            .await?;
    assert_eq!(made["spec"]["username"], "asker");
    assert_eq!(approve(&asker, "", "ann").await?.code, StatusCode::FORBIDDEN);
    assert_eq!(approve(&admin, "", "ann").await?.code, StatusCode::OK);
    let certificate = signed(&admin, "", "ann").await?;

    let ca = hub.peer.authority.certificate_pem();
    let ann = Client::connect(&hub.peer.url(), ca, Some((&certificate, &key))).await?;
    let answer = who(&ann, "", &[]).await?.json();
    assert_eq!(answer["status"]["userInfo"]["username"], "ann", "{answer}");
    assert_eq!(answer["status"]["userInfo"]["groups"], json!(["team-a", "team-b", "system:authenticated"]));

    let (_, pem) = parse_x509_pem(certificate.as_bytes())?;
    let parsed = pem.parse_x509()?;
    let life = parsed.validity().not_after.timestamp() - parsed.validity().not_before.timestamp();
    assert_eq!(life, 365 * 24 * 3600, "backdated by five minutes, which are taken off the end");
    assert!(!parsed.is_ca());
    let usage = parsed.extended_key_usage()?.map(|it| (it.value.client_auth, it.value.server_auth));
    assert_eq!(usage, Some((true, false)));
    let names = parsed.subject_alternative_name()?.map(|it| it.value.general_names.len());
    assert_eq!(names, Some(2));

    // It was signed in the workspace `default`, and is good there alone.
    create(
        &admin,
        "/clusters/root/apis/hanse.io/v1alpha1/workspaces",
        json!({"metadata": {"name": "other"}}),
    )
    .await?;
    assert_eq!(who(&ann, "/clusters/default", &[]).await?.code, StatusCode::CREATED);
    assert_eq!(who(&ann, "/clusters/other", &[]).await?.code, StatusCode::UNAUTHORIZED);
    assert_eq!(who(&ann, "/clusters/root", &[]).await?.code, StatusCode::UNAUTHORIZED);
    assert_eq!(who(&ann, "/clusters/none", &[]).await?.code, StatusCode::UNAUTHORIZED);
    let label = "hanse_certificate_signings_total{signer=\"kube-apiserver-client\",outcome=\"signed\"}";
    assert_eq!(metric(&admin, label).await?, 1.0);
    Ok(())
}

#[tokio::test]
async fn what_is_signed_in_root_is_good_everywhere_and_the_path_is_not_needed() -> Result<()> {
    let hub = TestHub::start().await?;
    let admin = hub.admin().await?;
    let (pem, key) = request("operator", &[], &[])?;
    create(&admin, &format!("/clusters/root{REQUESTS}"), mk_request("op", CLIENT, &pem, &["client auth"]))
        .await?;
    approve(&admin, "/clusters/root", "op").await?;
    let certificate = signed(&admin, "/clusters/root", "op").await?;
    let ca = hub.peer.authority.certificate_pem();
    let operator = Client::connect(&hub.peer.url(), ca, Some((&certificate, &key))).await?;
    for place in ["", "/clusters/root", "/clusters/default"] {
        assert_eq!(who(&operator, place, &[]).await?.code, StatusCode::CREATED, "{place}");
    }

    // Without a path, a certificate of a workspace leads there.
    let workspace = json!({"metadata": {"name": "shop"}});
    create(&admin, "/clusters/root/apis/hanse.io/v1alpha1/workspaces", workspace).await?;
    let (pem, key) = request("clerk", &[], &[])?;
    create(&admin, &format!("/clusters/shop{REQUESTS}"), mk_request("clerk", CLIENT, &pem, &["client auth"]))
        .await?;
    approve(&admin, "/clusters/shop", "clerk").await?;
    let certificate = signed(&admin, "/clusters/shop", "clerk").await?;
    let read = [rule("", &["configmaps"], &["list"])];
    crate::grant_at(&admin, "/clusters/shop", "clerk", &read).await?;
    let clerk = Client::connect(&hub.peer.url(), ca, Some((&certificate, &key))).await?;
    assert_eq!(clerk.get("/api/v1/namespaces/default/configmaps").await?.code, StatusCode::OK);
    assert_eq!(clerk.get("/clusters/shop/api/v1/namespaces/default/configmaps").await?.code, StatusCode::OK);
    let elsewhere = clerk.get("/clusters/default/api/v1/namespaces/default/configmaps").await?;
    assert_eq!(elsewhere.code, StatusCode::UNAUTHORIZED);

    // Nor is it good in one that is on its way out, whoever holds that up.
    let path = "/clusters/root/apis/hanse.io/v1alpha1/workspaces/shop";
    let old =
        server::hub::workspace_id(admin.get(path).await?.json()["metadata"]["uid"].as_str().unwrap_or(""));
    assert_eq!(hub.peer.hub.space_by_id(&old).map(|it| it.name().to_owned()).as_deref(), Some("shop"));
    let held = json!({"metadata": {"finalizers": ["hanse.io/workspace", "example.com/hold"]}});
    assert_eq!(admin.merge_patch(path, &held).await?.code, StatusCode::OK);
    admin.delete(path).await?;
    assert_eq!(who(&clerk, "/clusters/shop", &[]).await?.code, StatusCode::UNAUTHORIZED);
    assert_eq!(who(&clerk, "", &[]).await?.code, StatusCode::UNAUTHORIZED);
    let released = json!({"metadata": {"finalizers": ["hanse.io/workspace"]}});
    admin.merge_patch(path, &released).await?;

    // A workspace of the same name is another one.
    let again = || async {
        let path = "/clusters/root/apis/hanse.io/v1alpha1/workspaces";
        let made = admin.post(path, &json!({"metadata": {"name": "shop"}})).await?;
        Ok((made.code == StatusCode::CREATED).then_some(()))
    };
    eventually("the workspace is made again", again).await?;
    assert_eq!(who(&clerk, "/clusters/shop", &[]).await?.code, StatusCode::UNAUTHORIZED);
    assert_eq!(who(&clerk, "", &[]).await?.code, StatusCode::UNAUTHORIZED);
    assert!(hub.peer.hub.space_by_id(&old).is_none(), "what is gone is forgotten");
    let new = hub.peer.hub.space("shop").map_err(|status| anyhow::anyhow!("{status}"))?;
    assert_eq!(hub.peer.hub.space_by_id(new.id()).as_ref().map(|it| it.name()), Some("shop"));
    Ok(())
}

#[tokio::test]
async fn each_signer_signs_what_upstream_lets_it() -> Result<()> {
    let hub = TestHub::start().await?;
    let admin = hub.admin().await?;
    let kubelet = "kubernetes.io/kube-apiserver-client-kubelet";
    let serving = "kubernetes.io/kubelet-serving";
    let (client, server) = (["digital signature", "client auth"], ["digital signature", "server auth"]);
    let node = ("system:node:a", &["system:nodes"][..]);
    // Signer, name, groups, hosts, usages, and why it is refused.
    type Row<'a> = (&'a str, &'a str, &'a [&'a str], &'a [&'a str], &'a [&'a str], &'a str);
    let rows: [Row<'_>; 14] = [
        (CLIENT, "ann", &[], &[], &client, ""),
        (
            CLIENT,
            "ann",
            &[],
            &[],
            &["digital signature"],
            "missing required usage for client certificate: client auth",
        ),
        (CLIENT, "ann", &[], &[], &server, "invalid usage for client certificate: server auth"),
        (kubelet, node.0, node.1, &[], &client, ""),
        (kubelet, node.0, node.1, &[], &["digital signature", "key encipherment", "client auth"], ""),
        (kubelet, "ann", node.1, &[], &client, "subject common name does not begin with system:node:"),
        (kubelet, node.0, &[], &[], &client, "subject organization is not system:nodes"),
        (kubelet, node.0, &["system:nodes", "x"], &[], &client, "subject organization is not system:nodes"),
        (kubelet, node.0, node.1, &["a.b"], &client, "DNS subjectAltNames are not allowed"),
        (kubelet, node.0, node.1, &["10.0.0.1"], &client, "IP subjectAltNames are not allowed"),
        (
            kubelet,
            node.0,
            node.1,
            &[],
            &server,
            "usages did not match [client auth digital signature key encipherment]",
        ),
        (serving, node.0, node.1, &["a.b"], &server, ""),
        (serving, node.0, node.1, &[], &server, "DNS or IP subjectAltName is required"),
        (
            serving,
            node.0,
            node.1,
            &["a.b"],
            &client,
            "usages did not match [digital signature key encipherment server auth]",
        ),
    ];
    for (number, (signer, name, groups, hosts, usages, refusal)) in rows.into_iter().enumerate() {
        let (pem, _) = request(name, groups, hosts)?;
        let object = format!("row-{number}");
        create(&admin, REQUESTS, mk_request(&object, signer, &pem, usages)).await?;
        approve(&admin, "", &object).await?;
        if refusal.is_empty() {
            signed(&admin, "", &object).await?;
            continue;
        }
        let failed = eventually("a verdict", || async {
            let status = admin.get(&format!("{REQUESTS}/{object}")).await?.json()["status"].clone();
            Ok(status["conditions"].as_array().and_then(|all| all.get(1)).cloned())
        })
        .await?;
        assert_eq!(failed["type"], "Failed");
        assert_eq!(failed["reason"], "SignerValidationFailure");
        assert_eq!(failed["message"], refusal);
        assert!(failed["lastUpdateTime"].is_string());
    }
    Ok(())
}

#[tokio::test]
async fn the_wanted_duration_holds_within_bounds() -> Result<()> {
    let hub = TestHub::start().await?;
    let admin = hub.admin().await?;
    for (number, (wanted, life)) in
        [(600, 900), (3600, 3900), (86400, 86400), (2_000_000_000, 31_536_000)].into_iter().enumerate()
    {
        let name = format!("life-{number}");
        let (pem, _) = request("ann", &[], &[])?;
        let mut object = mk_request(&name, CLIENT, &pem, &["client auth"]);
        object["spec"]["expirationSeconds"] = json!(wanted);
        create(&admin, REQUESTS, object).await?;
        approve(&admin, "", &name).await?;
        let certificate = signed(&admin, "", &name).await?;
        let (_, pem) = parse_x509_pem(certificate.as_bytes())?;
        let validity = pem.parse_x509()?.validity().clone();
        assert_eq!(validity.not_after.timestamp() - validity.not_before.timestamp(), life, "{wanted}");
    }
    Ok(())
}

#[tokio::test]
async fn what_is_denied_or_of_another_signer_is_not_signed() -> Result<()> {
    let hub = TestHub::start().await?;
    let admin = hub.admin().await?;
    let (pem, _) = request("ann", &[], &[])?;
    create(&admin, REQUESTS, mk_request("denied", CLIENT, &pem, &["client auth"])).await?;
    let mut object = admin.get(&format!("{REQUESTS}/denied")).await?.json();
    object["status"]["conditions"] = json!([{"type": "Denied", "status": "True", "reason": "Tested"}]);
    assert_eq!(admin.put(&format!("{REQUESTS}/denied/approval"), &object).await?.code, StatusCode::OK);
    create(&admin, REQUESTS, mk_request("foreign", "example.com/signer", &pem, &["client auth"])).await?;
    approve(&admin, "", "foreign").await?;
    // One that is signed after them shows that they were looked at.
    create(&admin, REQUESTS, mk_request("last", CLIENT, &pem, &["client auth"])).await?;
    approve(&admin, "", "last").await?;
    signed(&admin, "", "last").await?;
    for name in ["denied", "foreign"] {
        let status = admin.get(&format!("{REQUESTS}/{name}")).await?.json()["status"].clone();
        assert_eq!(status["certificate"], Value::Null, "{name}");
        assert_eq!(status["conditions"].as_array().map(Vec::len), Some(1), "{name}");
    }
    Ok(())
}
