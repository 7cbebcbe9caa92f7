//! Members' objects shown in a workspace, on a whole hub. A member is another hub; the session with it is led by the
//! test, step by step, so that it can be late, lost or wrong.

#![allow(clippy::disallowed_methods)] // Tests run on the real machine.

mod absence;
mod assigned;
mod commands;
mod copies;
mod garbage;
mod homes;
mod kubectl;
mod logs;
mod member;
mod quotas;
mod restart;
mod scale;
mod shown;
mod stored;
mod writes;

use std::path::Path;

use anyhow::Result;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use server::{Options, hub::default_id, views::Views};
use store::{Collection, Store, WorkspaceId, memory::MemoryStore};
use testing::{
    client::{Answer, Client},
    hub::{TestHub, outfitted},
};

pub use member::Cluster;

pub const PODS: &str = "/api/v1/namespaces/shop/pods";
pub const SETS: &str = "/apis/apps/v1/namespaces/shop/replicasets";

/// A hub with the namespace `shop`.
pub struct World {
    pub hub: TestHub,
    pub client: Client,
}

impl World {
    pub async fn start() -> Result<World> {
        World::start_on(std::sync::Arc::new(MemoryStore::new()), None).await
    }

    /// `views`: where what was seen is kept.
    pub async fn start_on(store: std::sync::Arc<dyn Store>, views: Option<&Path>) -> Result<World> {
        let options = Options { views: views.map(Path::to_owned), ..Options::default() };
        let hub = TestHub::start_on(store, options).await?;
        let client = hub.admin().await?;
        // It may be there already.
        client.post("/api/v1/namespaces", &json!({"metadata": {"name": "shop"}})).await?;
        outfitted(&client, "/api/v1/namespaces/shop").await?;
        Ok(World { hub, client })
    }

    pub fn views(&self) -> &Views {
        &self.hub.peer.hub.views
    }

    pub fn workspace(&self) -> WorkspaceId {
        default_id()
    }

    /// The names in a list.
    pub async fn names(&self, path: &str) -> Result<Vec<String>> {
        let answer = self.client.get(path).await?;
        assert_eq!(answer.code, StatusCode::OK, "{path}: {}", answer.text());
        Ok(names(&answer.json()))
    }

    pub async fn get(&self, path: &str) -> Result<Value> {
        let answer = self.client.get(path).await?;
        assert_eq!(answer.code, StatusCode::OK, "{path}: {}", answer.text());
        Ok(answer.json())
    }
}

pub fn pods() -> Collection {
    Collection::new("", "pods")
}

pub fn names(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().cloned().unwrap_or_default();
    items.iter().filter_map(|item| item["metadata"]["name"].as_str().map(str::to_owned)).collect()
}

pub fn mk_pod(name: &str) -> Value {
    json!({
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"containers": [{"name": "main", "image": "example.com/main"}]},
    })
}

pub async fn create(client: &Client, path: &str, object: &Value) -> Result<Value> {
    let made = client.post(path, object).await?;
    assert_eq!(made.code, StatusCode::CREATED, "{path}: {}", made.text());
    Ok(made.json())
}

pub async fn delete_with(client: &Client, path: &str, options: Value) -> Result<Answer> {
    client.call(Method::DELETE, path, &[("content-type", "application/json")], options.to_string()).await
}

pub fn warnings(answer: &Answer) -> Vec<String> {
    let values = answer.headers.get_all("warning").iter();
    values.filter_map(|value| value.to_str().ok().map(str::to_owned)).collect()
}
