//! Tokens of service accounts: issued, used, refused, rotated; each workspace is its own issuer.

#![allow(clippy::disallowed_methods)] // Tests run on the real machine.

mod accounts;
mod attacks;
mod bootstrap;
mod keys;
mod pods;
mod proxy;
mod requests;

use anyhow::{Result, anyhow};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL};
use http::{Method, StatusCode};
use serde_json::{Value, json};
use testing::{
    client::{Answer, Client},
    hub::TestHub,
};

pub const CORE: &str = "/api/v1/namespaces/default";
pub const WHO: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
pub const REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";

/// A hub, its admin, and somebody who has nothing but the tokens they are given.
pub struct Place {
    pub hub: TestHub,
    pub admin: Client,
    pub nobody: Client,
}

impl Place {
    pub async fn mk() -> Result<Place> {
        let hub = TestHub::start().await?;
        let (admin, nobody) = (hub.admin().await?, hub.nobody().await?);
        Ok(Place { hub, admin, nobody })
    }

    /// With an account `robot` in the namespace `default`.
    pub async fn with_robot() -> Result<Place> {
        let place = Place::mk().await?;
        place.create("", &format!("{CORE}/serviceaccounts"), json!({"metadata": {"name": "robot"}})).await?;
        Ok(place)
    }

    /// `prefix`: `/clusters/NAME` or nothing.
    pub async fn create(&self, prefix: &str, path: &str, object: Value) -> Result<Value> {
        let made = self.admin.post(&format!("{prefix}{path}"), &object).await?;
        assert_eq!(made.code, StatusCode::CREATED, "{prefix}{path}: {}", made.text());
        Ok(made.json())
    }

    pub async fn mk_workspace(&self, name: &str) -> Result<String> {
        let path = "/clusters/root/apis/hanse.io/v1alpha1/workspaces";
        self.create("", path, json!({"metadata": {"name": name}})).await?;
        Ok(format!("/clusters/{name}"))
    }

    /// Asks for a token of `account`; `spec` as a TokenRequest has it.
    pub async fn request(&self, prefix: &str, account: &str, spec: Value) -> Result<Answer> {
        let path = format!("{prefix}{CORE}/serviceaccounts/{account}/token");
        self.admin.post(&path, &json!({"spec": spec})).await
    }

    pub async fn token(&self, prefix: &str, account: &str, spec: Value) -> Result<String> {
        let answer = self.request(prefix, account, spec).await?;
        assert_eq!(answer.code, StatusCode::CREATED, "{}", answer.text());
        let token = answer.json()["status"]["token"].as_str().map(str::to_owned);
        token.ok_or_else(|| anyhow!("no token in {}", answer.text()))
    }

    /// Who the bearer of `token` is at `prefix`, as the server says it.
    pub async fn who(&self, prefix: &str, token: &str) -> Result<Answer> {
        let authorization = format!("Bearer {token}");
        let headers = [("authorization", authorization.as_str()), ("content-type", "application/json")];
        self.nobody.call(Method::POST, &format!("{prefix}{WHO}"), &headers, "{}").await
    }

    pub async fn get_as(&self, token: &str, path: &str) -> Result<Answer> {
        let authorization = format!("Bearer {token}");
        self.nobody.call(Method::GET, path, &[("authorization", &authorization)], "").await
    }

    /// A review's status.
    pub async fn review(&self, prefix: &str, token: &str, audiences: &[&str]) -> Result<Value> {
        let spec = json!({"token": token, "audiences": audiences});
        let answer = self.admin.post(&format!("{prefix}{REVIEWS}"), &json!({"spec": spec})).await?;
        assert_eq!(answer.code, StatusCode::CREATED, "{}", answer.text());
        Ok(answer.json()["status"].clone())
    }

    pub fn issuer(&self, workspace: &str) -> String {
        format!("{}/clusters/{workspace}", self.hub.peer.url())
    }

    pub async fn metric(&self, line: &str) -> Result<u64> {
        let text = self.admin.get("/metrics").await?.text();
        let value = text.lines().find_map(|it| it.strip_prefix(line)).unwrap_or_default();
        Ok(value.trim().parse().unwrap_or_default())
    }
}

/// What a token claims, unverified.
pub fn claims(token: &str) -> Value {
    let payload = token.split('.').nth(1).unwrap_or_default();
    let bytes = BASE64URL.decode(payload).unwrap_or_default();
    serde_json::from_slice(&bytes).unwrap_or_default()
}

pub fn header(token: &str) -> Value {
    let bytes = BASE64URL.decode(token.split('.').next().unwrap_or_default()).unwrap_or_default();
    serde_json::from_slice(&bytes).unwrap_or_default()
}
