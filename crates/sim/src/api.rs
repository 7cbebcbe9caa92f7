//! Requests to the API server of this process, without a socket between.

use std::{collections::HashMap, sync::Arc};

use bytes::Bytes;
use http::{Method, Request, header};
use http_body_util::{BodyExt, Full};
use parking_lot::Mutex;
use serde_json::{Value, json};
use server::{
    Hub,
    login::caller::Caller,
    service::{self, Connection},
    user::{AUTHENTICATED, MASTERS, User},
};

use crate::{Action, Kind, tree};

/// An answer that is no success.
#[derive(Debug, thiserror::Error)]
#[error("{code}: {message}")]
pub struct Refused {
    pub code: u16,
    pub message: String,
    /// Because its namespace is on its way out.
    pub namespace_ends: bool,
}

/// Speaks for the controllers of all clusters.
pub struct Api {
    hub: Arc<Hub>,
    /// By whom requests are made.
    speakers: Mutex<HashMap<&'static str, Arc<Connection>>>,
}

const JSON: &str = "application/json";
const MERGE_PATCH: &str = "application/merge-patch+json";

/// Beyond so many notes in a cluster no more are written until some have expired.
pub const MOST_EVENTS: usize = 2000;

impl Api {
    pub fn new(hub: Arc<Hub>) -> Api {
        Api { hub, speakers: Mutex::default() }
    }

    /// What `speaker` asks is allowed, and noted under its name.
    fn connection(&self, speaker: &'static str) -> Arc<Connection> {
        let mut speakers = self.speakers.lock();
        let made = speakers.entry(speaker).or_insert_with(|| {
            let name = format!("system:serviceaccount:kube-system:{speaker}");
            let groups = vec![MASTERS.into(), AUTHENTICATED.into()];
            let user = Arc::new(User { name, groups, ..User::default() });
            Arc::new(Connection { caller: Some(Arc::new(Caller::Known(user))), ..Connection::default() })
        });
        made.clone()
    }

    pub async fn send(
        &self,
        cluster: &str,
        speaker: &'static str,
        method: Method,
        path: &str,
        content_type: &str,
        body: Option<&Value>,
    ) -> Result<Value, Refused> {
        let bytes = body.map_or_else(Bytes::new, |body| Bytes::from(body.to_string()));
        let separator = if path.contains('?') { '&' } else { '?' };
        let request = Request::builder()
            .method(method)
            .uri(format!("/clusters/{cluster}{path}{separator}fieldManager={speaker}"))
            .header(header::CONTENT_TYPE, content_type)
            .body(Full::new(bytes))
            .map_err(|error| Refused { code: 400, message: error.to_string(), namespace_ends: false })?;
        // Boxed, because it is large.
        let response = Box::pin(service::handle(self.hub.clone(), self.connection(speaker), request)).await;
        let (parts, body) = response.into_parts();
        // Bodies of this process do not fail.
        let bytes = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        let answer: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        match parts.status.is_success() {
            true => Ok(answer),
            false => Err(Refused {
                code: parts.status.as_u16(),
                message: tree::text(&answer, "/message").to_owned(),
                namespace_ends: tree::items(&answer, "/details/causes")
                    .any(|cause| tree::text(cause, "/reason") == "NamespaceTerminating"),
            }),
        }
    }

    pub async fn create(
        &self,
        cluster: &str,
        speaker: &'static str,
        kind: Kind,
        object: &Value,
    ) -> Result<Value, Refused> {
        let path = kind.path(tree::namespace(object), "");
        let mut object = object.clone();
        describe(&mut object, kind);
        self.send(cluster, speaker, Method::POST, &path, JSON, Some(&object)).await
    }

    /// Carries out one action, and says how what it created is called; `created`: what was before.
    pub async fn perform(
        &self,
        cluster: &str,
        speaker: &'static str,
        action: &Action,
        created: &str,
    ) -> Result<Option<String>, Refused> {
        match action {
            Action::Create { kind, object } => {
                let made = self.create(cluster, speaker, *kind, object).await?;
                return Ok(Some(tree::name(&made).to_owned()));
            }
            Action::Replace { kind, object } => self.put(cluster, speaker, *kind, object, "").await?,
            Action::Status { kind, object } => self.put(cluster, speaker, *kind, object, "/status").await?,
            Action::Patch { kind, namespace, name, patch } => {
                let path = kind.path(namespace, name);
                self.send(cluster, speaker, Method::PATCH, &path, MERGE_PATCH, Some(patch)).await?;
            }
            Action::PatchStatus { kind, namespace, name, patch } => {
                let path = kind.path(namespace, name) + "/status";
                self.send(cluster, speaker, Method::PATCH, &path, MERGE_PATCH, Some(patch)).await?;
            }
            Action::Delete { kind, namespace, name, uid, grace, propagation } => {
                let mut options =
                    json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": uid}});
                if let Some(policy) = propagation.policy() {
                    options["propagationPolicy"] = json!(policy);
                }
                if let Some(grace) = grace {
                    options["gracePeriodSeconds"] = json!(grace);
                }
                let path = kind.path(namespace, name);
                let done = self.send(cluster, speaker, Method::DELETE, &path, JSON, Some(&options)).await;
                // Gone, or another one by now: either way there is nothing left to delete.
                match done {
                    Err(refused) if !matches!(refused.code, 404 | 409) => return Err(refused),
                    _ => {}
                }
            }
            Action::Scale { kind, namespace, name, replicas } => {
                let path = kind.path(namespace, name) + "/scale";
                let patch = json!({"spec": {"replicas": replicas}});
                self.send(cluster, speaker, Method::PATCH, &path, MERGE_PATCH, Some(&patch)).await?;
            }
            Action::Bind { namespace, name, uid, node } => {
                let binding = json!({
                    "kind": "Binding", "apiVersion": "v1",
                    "metadata": {"namespace": namespace, "name": name, "uid": uid},
                    "target": {"kind": "Node", "name": node},
                });
                let path = crate::kind::PODS.path(namespace, name) + "/binding";
                self.send(cluster, speaker, Method::POST, &path, JSON, Some(&binding)).await?;
            }
            Action::Event { object, warning, reason, message } => {
                self.note(cluster, speaker, object, *warning, reason, message).await?;
            }
            Action::Announce { object, reason, message } => {
                self.note(cluster, speaker, object, false, reason, &format!("{message}{created}")).await?;
            }
        }
        Ok(None)
    }

    async fn put(
        &self,
        cluster: &str,
        speaker: &'static str,
        kind: Kind,
        object: &Value,
        below: &str,
    ) -> Result<(), Refused> {
        let path = kind.path(tree::namespace(object), tree::name(object)) + below;
        let mut object = object.clone();
        describe(&mut object, kind);
        self.send(cluster, speaker, Method::PUT, &path, JSON, Some(&object)).await.map(drop)
    }

    async fn note(
        &self,
        cluster: &str,
        speaker: &'static str,
        about: &Value,
        warning: bool,
        reason: &str,
        message: &str,
    ) -> Result<(), Refused> {
        let Ok(space) = self.hub.space(cluster) else { return Ok(()) };
        if space.latest(&crate::kind::EVENTS.collection()).len() >= MOST_EVENTS {
            return Ok(());
        }
        let now = self.hub.now();
        let reference = reference(about);
        let namespace = match tree::text(&reference, "/namespace") {
            "" => "default",
            namespace => namespace,
        };
        let mut mark = [0; 4];
        self.hub.env.random.fill(&mut mark);
        let unique = format!("{:x}{:08x}", now.as_nanosecond(), u32::from_le_bytes(mark));
        let time = tree::time_text(now);
        let event = json!({
            "metadata": {"namespace": namespace, "name": format!("{}.{unique}", tree::text(&reference, "/name"))},
            "involvedObject": reference, "reason": reason, "message": message,
            "type": if warning { "Warning" } else { "Normal" },
            "source": {"component": speaker}, "reportingComponent": speaker,
            "firstTimestamp": time, "lastTimestamp": time, "count": 1,
        });
        match self.create(cluster, speaker, crate::kind::EVENTS, &event).await {
            // Nobody reads notes in a namespace that goes.
            Err(refused) if !matches!(refused.code, 403 | 404 | 409) => Err(refused),
            _ => Ok(()),
        }
    }
}

/// What the API server wants to read in every object.
fn describe(object: &mut Value, kind: Kind) {
    object["apiVersion"] = json!(kind.api_version());
    object["kind"] = json!(kind.kind);
}

/// To a whole object, or what is one already.
fn reference(about: &Value) -> Value {
    if about.get("metadata").is_none() {
        return about.clone();
    }
    let mut reference = json!({});
    for (key, pointer) in [
        ("kind", "/kind"),
        ("apiVersion", "/apiVersion"),
        ("namespace", "/metadata/namespace"),
        ("name", "/metadata/name"),
        ("uid", "/metadata/uid"),
        ("resourceVersion", "/metadata/resourceVersion"),
    ] {
        match tree::text(about, pointer) {
            "" => {}
            text => reference[key] = json!(text),
        }
    }
    reference
}
