//! Logging in: certificates that come, go and are renewed; requests for them; issuers of tokens; and who tries to get
//! more than was given.

#![allow(clippy::disallowed_methods)] // Tests run on the real machine.

mod attacks;
mod authority;
mod issuer;
mod kubectl;
mod reload;
mod requests;
mod roles;
mod tokens;

use std::{sync::Arc, time::Duration};

use anyhow::Result;
use base64::{Engine, prelude::BASE64_STANDARD};
use http::StatusCode;
use serde_json::{Value, json};
use server::{Options, login::LoginOptions};
use store::memory::MemoryStore;
use testing::{
    client::{Answer, Client},
    hub::TestHub,
};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const WHO: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

async fn hub_with(login: LoginOptions) -> Result<TestHub> {
    // Files are looked at often enough for a test to wait for it.
    let login = LoginOptions { reload_every: Duration::from_millis(50), ..login };
    TestHub::start_with(Arc::new(MemoryStore::new()), Options::default(), login).await
}

async fn create(client: &Client, path: &str, object: Value) -> Result<Value> {
    let made = client.post(path, &object).await?;
    assert_eq!(made.code, StatusCode::CREATED, "{path}: {}", made.text());
    Ok(made.json())
}

fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": resources, "verbs": verbs})
}

/// A cluster role of that name with those rules, bound to a user of that name, in the workspace at `prefix`.
async fn grant_at(admin: &Client, prefix: &str, user: &str, rules: &[Value]) -> Result<()> {
    create(
        admin,
        &format!("{prefix}{RBAC}/clusterroles"),
        json!({"metadata": {"name": user}, "rules": rules}),
    )
    .await?;
    let binding = json!({
        "metadata": {"name": user},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": user}],
    });
    create(admin, &format!("{prefix}{RBAC}/clusterrolebindings"), binding).await?;
    Ok(())
}

async fn grant(admin: &Client, user: &str, rules: &[Value]) -> Result<()> {
    grant_at(admin, "", user, rules).await
}

/// Who the server takes the sender of a request to be.
async fn who(client: &Client, prefix: &str, headers: &[(&str, &str)]) -> Result<Answer> {
    let mut all = vec![("content-type", "application/json")];
    all.extend_from_slice(headers);
    client.call(http::Method::POST, &format!("{prefix}{WHO}"), &all, "{}").await
}

async fn name_of(client: &Client) -> Result<Value> {
    Ok(who(client, "", &[]).await?.json()["status"]["userInfo"]["username"].clone())
}

fn base64(text: impl AsRef<[u8]>) -> String {
    BASE64_STANDARD.encode(text)
}

/// One number of `/metrics`; 0 if it is not there.
async fn metric(admin: &Client, start: &str) -> Result<f64> {
    let text = admin.get("/metrics").await?.text();
    let line = text.lines().find(|line| line.starts_with(start));
    Ok(line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or(0.0))
}
