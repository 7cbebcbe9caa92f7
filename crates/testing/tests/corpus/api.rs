//! An API server, used as kubectl does: what it serves is asked of it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use http::Method;
use serde_json::{Value, json};
use testing::client::Client;
use tokio::time::Instant;

/// How long a server may need until it takes an object: definitions and service accounts are made in the background.
const TAKES: Duration = Duration::from_secs(60);
const AGAIN: Duration = Duration::from_millis(250);

/// A kind, as discovery has it.
#[derive(Clone, Debug)]
pub struct Served {
    /// `/api/v1`, `/apis/apps/v1`
    pub root: String,
    pub plural: String,
    pub kind: String,
    pub namespaced: bool,
    verbs: Vec<String>,
}

#[derive(Clone)]
pub struct Api {
    client: Client,
    /// By `apiVersion`.
    known: Arc<Mutex<BTreeMap<String, Vec<Served>>>>,
}

impl Api {
    pub fn new(client: Client) -> Api {
        Api { client, known: Arc::default() }
    }

    /// Creates or changes an object, as `kubectl apply --server-side` does; in `namespace`, if it names none.
    pub async fn apply(&self, object: &Value, namespace: &str) -> Result<()> {
        let began = Instant::now();
        loop {
            let refusal = match self.path(object, namespace).await {
                Ok(path) => {
                    let path = format!("{path}?fieldManager=corpus&force=true&fieldValidation=Strict");
                    let headers = [("content-type", "application/apply-patch+yaml")];
                    let answer = self.client.call(Method::PATCH, &path, &headers, object.to_string()).await?;
                    if answer.code.is_success() {
                        return Ok(());
                    }
                    format!("{path}: {}", answer.text())
                }
                Err(error) => format!("{error:#}"),
            };
            ensure!(began.elapsed() < TAKES, "{refusal}");
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// Deletes it as `kubectl delete` does: what it owns goes after it. It may be gone already.
    pub async fn delete(&self, object: &Value, namespace: &str) -> Result<()> {
        // A definition takes its objects with it.
        let Ok(path) = self.path(object, namespace).await else { return Ok(()) };
        let options = json!({"propagationPolicy": "Background"}).to_string();
        let headers = [("content-type", "application/json")];
        let answer = self.client.call(Method::DELETE, &path, &headers, options).await?;
        ensure!(answer.code.is_success() || answer.code == 404, "{path}: {}", answer.text());
        Ok(())
    }

    /// The object as it is there; nothing if it is not.
    pub async fn get(&self, object: &Value, namespace: &str) -> Result<Option<Value>> {
        let Ok(path) = self.path(object, namespace).await else { return Ok(None) };
        let answer = self.client.get(&path).await?;
        match answer.code.as_u16() {
            200 => Ok(Some(answer.json())),
            404 => Ok(None),
            _ => bail!("{path}: {}", answer.text()),
        }
    }

    /// All objects of a kind in a namespace, or in all of them.
    pub async fn list(&self, kind: &Served, namespace: Option<&str>) -> Result<Vec<Value>> {
        let path = match namespace {
            Some(namespace) => format!("{}/namespaces/{namespace}/{}", kind.root, kind.plural),
            None => format!("{}/{}", kind.root, kind.plural),
        };
        let began = Instant::now();
        loop {
            let answer = self.client.get(&path).await?;
            match answer.code.as_u16() {
                200 => return Ok(answer.json()["items"].as_array().cloned().unwrap_or_default()),
                // Its definition is gone.
                404 => return Ok(Vec::new()),
                // Its definition is new.
                429 if began.elapsed() < TAKES => tokio::time::sleep(AGAIN).await,
                _ => bail!("{path}: {}", answer.text()),
            }
        }
    }

    /// Whether objects of the kind can be listed already.
    pub async fn is_listed(&self, kind: &Served) -> Result<bool> {
        Ok(self.client.get(&format!("{}/{}?limit=1", kind.root, kind.plural)).await?.code == 200)
    }

    pub async fn merge(&self, path: &str, patch: &Value) -> Result<()> {
        let answer = self.client.merge_patch(path, patch).await?;
        // Somebody may have deleted it.
        ensure!(answer.code.is_success() || answer.code == 404, "{path}: {}", answer.text());
        Ok(())
    }

    /// A token by which programs are known as a service account.
    pub async fn token(&self, namespace: &str, account: &str) -> Result<String> {
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token");
        let wanted = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
        let headers = [("content-type", "application/json")];
        let answer = self.client.call(Method::POST, &path, &headers, wanted.to_string()).await?;
        ensure!(answer.code.is_success(), "{path}: {}", answer.text());
        Ok(text(&answer.json(), "/status/token").to_owned())
    }

    /// The kind of an object.
    pub async fn served(&self, object: &Value) -> Result<Served> {
        let (version, kind) = (text(object, "/apiVersion"), text(object, "/kind"));
        let all = self.version(version).await?;
        let found = all.into_iter().find(|it| it.kind == kind);
        if found.is_none() {
            self.forget(version);
        }
        found.with_context(|| format!("{version} {kind} is not served"))
    }

    /// All kinds whose objects can be listed, each in the version that the server prefers.
    pub async fn everything(&self) -> Result<Vec<Served>> {
        let mut all = self.version("v1").await?;
        let groups = self.client.get("/apis").await?.json();
        for group in groups["groups"].as_array().into_iter().flatten() {
            let version = text(group, "/preferredVersion/groupVersion");
            // The API of a cluster may be another program, which need not be up.
            all.extend(self.version(version).await.unwrap_or_default());
        }
        all.retain(|it| ["list", "delete"].iter().all(|verb| it.verbs.iter().any(|has| has == verb)));
        Ok(all)
    }

    async fn path(&self, object: &Value, namespace: &str) -> Result<String> {
        let Served { root, plural, namespaced, .. } = self.served(object).await?;
        let name = text(object, "/metadata/name");
        let own = text(object, "/metadata/namespace");
        let namespace = if own.is_empty() { namespace } else { own };
        Ok(match namespaced {
            true => format!("{root}/namespaces/{namespace}/{plural}/{name}"),
            false => format!("{root}/{plural}/{name}"),
        })
    }

    async fn version(&self, version: &str) -> Result<Vec<Served>> {
        let known = self.known.lock().expect("nobody panics").get(version).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let root = if version.contains('/') { format!("/apis/{version}") } else { format!("/api/{version}") };
        let answer = self.client.get(&root).await?;
        ensure!(answer.code == 200, "{version} is not served: {}", answer.text());
        let list = answer.json();
        let resources = list["resources"].as_array().into_iter().flatten();
        let served = |it: &Value| Served {
            root: root.clone(),
            plural: text(it, "/name").to_owned(),
            kind: text(it, "/kind").to_owned(),
            namespaced: it["namespaced"] == true,
            verbs: it["verbs"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect(),
        };
        let all: Vec<Served> = resources.filter(|it| !text(it, "/name").contains('/')).map(served).collect();
        self.known.lock().expect("nobody panics").insert(version.to_owned(), all.clone());
        Ok(all)
    }

    /// A definition may be there a moment later.
    fn forget(&self, version: &str) {
        self.known.lock().expect("nobody panics").remove(version);
    }
}

pub fn text<'a>(value: &'a Value, at: &str) -> &'a str {
    value.pointer(at).and_then(Value::as_str).unwrap_or_default()
}
