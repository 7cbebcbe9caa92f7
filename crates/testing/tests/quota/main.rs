//! Quotas, limits, priorities and pod security, on a whole hub.

#![allow(clippy::disallowed_methods)] // Tests run on the real machine.

mod interleavings;
mod limits;
mod overtaken;
mod pod_security;
mod quotas;
mod races;
mod storage;
mod together;

use anyhow::Result;
use http::StatusCode;
use serde_json::{Value, json};
use testing::{
    client::{Answer, Client},
    hub::{TestHub, eventually, outfitted},
};

const NAMESPACE: &str = "/api/v1/namespaces/shop";

/// A hub with an empty namespace.
pub async fn mk_hub() -> Result<(TestHub, Client)> {
    let hub = TestHub::start().await?;
    let client = hub.admin().await?;
    mk(&client, "/api/v1/namespaces", json!({"metadata": {"name": "shop"}})).await?;
    outfitted(&client, NAMESPACE).await?;
    Ok((hub, client))
}

/// Creates something that must be accepted.
pub async fn mk(client: &Client, path: &str, object: Value) -> Result<Value> {
    let answer = client.post(path, &object).await?;
    anyhow::ensure!(answer.code == StatusCode::CREATED, "{path}: {}", answer.text());
    Ok(answer.json())
}

pub fn mk_pod(name: &str, cpu: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]},
    })
}

/// A quota, once it has been counted.
pub async fn mk_quota(client: &Client, name: &str, spec: Value) -> Result<()> {
    let path = format!("{NAMESPACE}/resourcequotas");
    mk(client, &path, json!({"metadata": {"name": name}, "spec": spec})).await?;
    eventually("the quota is counted", async || {
        let quota = client.get(&format!("{path}/{name}")).await?.json();
        Ok((quota["status"]["hard"] == quota["spec"]["hard"] && quota["status"]["used"].is_object())
            .then_some(()))
    })
    .await
}

pub async fn used(client: &Client, name: &str) -> Result<Value> {
    Ok(client.get(&format!("{NAMESPACE}/resourcequotas/{name}")).await?.json()["status"]["used"].clone())
}

pub async fn eventually_used(client: &Client, name: &str, wanted: Value) -> Result<()> {
    let what = format!("{name} has used {wanted}");
    let found = eventually(&what, async || Ok((used(client, name).await? == wanted).then_some(())));
    match found.await {
        Ok(()) => Ok(()),
        Err(error) => Err(error.context(format!("it is {}", used(client, name).await?))),
    }
}

/// What a refused request was told.
pub fn refusal(answer: &Answer) -> String {
    assert_eq!(answer.code, StatusCode::FORBIDDEN, "{}", answer.text());
    answer.json()["message"].as_str().unwrap_or_default().to_owned()
}
