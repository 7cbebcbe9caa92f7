//! A member cluster, and a session with it that does what the test says.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use anyhow::Result;
use bytes::Bytes;
use env::BoxFuture;
use futures_util::{Stream, StreamExt, stream};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use machinery::status::{Reason, Status};
use parking_lot::Mutex;
use serde_json::{Value, json};
use server::{
    body::Body,
    views::{Member, Sighting},
};
use store::{Collection, ItemKey, WorkspaceId};
use testing::{
    client::Client,
    hub::{TestHub, outfitted},
};
use tokio::sync::{mpsc, watch};

use crate::{World, create};

/// A member: a hub of its own.
pub struct Cluster {
    pub hub: Arc<TestHub>,
    pub client: Client,
    pub session: Arc<Session>,
    identity: Mutex<String>,
}

/// What the hub under test sends requests by.
pub struct Session {
    name: String,
    /// Where it is joined.
    pub home: WorkspaceId,
    hub: Arc<TestHub>,
    client: Client,
    /// Method, path with query, and body of all that was sent.
    pub asked: Mutex<Vec<(String, String, Value)>>,
    /// What the next log is made of.
    log: Mutex<Option<mpsc::Receiver<Bytes>>>,
    /// Turns true when the reader of a log is gone.
    pub log_dropped: watch::Sender<bool>,
}

impl Member for Session {
    fn cluster(&self) -> &str {
        &self.name
    }

    fn home(&self) -> &WorkspaceId {
        &self.home
    }

    fn over(&self) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }

    fn send(&self, request: Request<Bytes>) -> BoxFuture<'static, Result<Response<Body>, Status>> {
        let path = request.uri().to_string();
        let sent = serde_json::from_slice(request.body()).unwrap_or_default();
        self.asked.lock().push((request.method().to_string(), path.clone(), sent));
        if path.contains("/log") {
            let answer = self.read_log();
            return Box::pin(async move { Ok(answer) });
        }
        if request.headers().contains_key("upgrade") {
            let hub = self.hub.clone();
            return Box::pin(async move { connect(&hub, request).await.map_err(unreached) });
        }
        let client = self.client.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let headers: Vec<(&str, &str)> = parts
                .headers
                .iter()
                .map(|(name, value)| (name.as_str(), value.to_str().unwrap_or("")))
                .collect();
            let sent = client.send(parts.method, &path, &headers, body).await;
            let (head, body) = sent.map_err(unreached)?.into_parts();
            let data = body.into_data_stream().filter_map(async |chunk| chunk.ok());
            Ok(Response::from_parts(head, Body::stream(Box::pin(data))))
        })
    }
}

fn unreached(error: anyhow::Error) -> Status {
    Status::new(Reason::ServiceUnavailable, error.to_string())
}

/// Leaves HTTP behind, on a connection of its own.
pub async fn upgraded(hub: &TestHub, request: Request<Bytes>) -> Result<Response<Incoming>> {
    let stream = hub.dial("http/1.1").await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection.with_upgrades());
    let (mut parts, body) = request.into_parts();
    parts.headers.insert("host", http::HeaderValue::from_static("member"));
    Ok(sender.send_request(Request::from_parts(parts, Full::new(body))).await?)
}

async fn connect(hub: &TestHub, request: Request<Bytes>) -> Result<Response<Body>> {
    let mut answer = upgraded(hub, request).await?;
    let upgrade = hyper::upgrade::on(&mut answer);
    let (mut head, body) = answer.into_parts();
    if head.status == StatusCode::SWITCHING_PROTOCOLS {
        head.extensions.insert(upgrade);
        return Ok(Response::from_parts(head, Body::Whole(None)));
    }
    Ok(Response::from_parts(head, body.collect().await?.to_bytes().into()))
}

impl Session {
    /// The same, as if its `Cluster` were in another workspace.
    pub fn as_another(&self, home: &WorkspaceId) -> Session {
        Session {
            name: self.name.clone(),
            home: home.clone(),
            hub: self.hub.clone(),
            client: self.client.clone(),
            asked: Mutex::default(),
            log: Mutex::default(),
            log_dropped: watch::Sender::new(false),
        }
    }

    /// The next log is what is sent here.
    pub fn next_log(&self) -> mpsc::Sender<Bytes> {
        let (sender, receiver) = mpsc::channel(1);
        *self.log.lock() = Some(receiver);
        sender
    }

    fn read_log(&self) -> Response<Body> {
        let Some(lines) = self.log.lock().take() else {
            let mut refused = Response::new(Bytes::from_static(b"no such container").into());
            *refused.status_mut() = StatusCode::BAD_REQUEST;
            return refused;
        };
        let lines = stream::unfold(lines, async |mut lines| Some((lines.recv().await?, lines)));
        let watched = Watched { lines: Box::pin(lines), dropped: self.log_dropped.clone() };
        let mut response = Response::new(Body::stream(watched));
        response.headers_mut().insert("content-type", http::HeaderValue::from_static("text/plain"));
        response
    }
}

/// A stream that tells when it is dropped.
struct Watched {
    lines: Pin<Box<dyn Stream<Item = Bytes> + Send>>,
    dropped: watch::Sender<bool>,
}

impl Stream for Watched {
    type Item = Bytes;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        self.lines.as_mut().poll_next(context)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.dropped.send_replace(true);
    }
}

/// Where the namespaces of these members show: `acme-shop` as `shop`.
fn shown_as(namespace: &str) -> Option<String> {
    namespace.strip_prefix("acme-").map(str::to_owned)
}

impl Cluster {
    pub async fn start(name: &str) -> Result<Cluster> {
        let hub = Arc::new(TestHub::start().await?);
        let client = hub.admin().await?;
        create(&client, "/api/v1/namespaces", &json!({"metadata": {"name": "shop"}})).await?;
        outfitted(&client, "/api/v1/namespaces/shop").await?;
        let session = Session {
            name: name.to_owned(),
            home: server::hub::default_id(),
            hub: hub.clone(),
            client: client.clone(),
            asked: Mutex::default(),
            log: Mutex::default(),
            log_dropped: watch::Sender::new(false),
        };
        let identity = Mutex::new(format!("identity of {name}"));
        Ok(Cluster { hub, client, session: Arc::new(session), identity })
    }

    /// A member that shows all it has.
    pub async fn joined(world: &World, name: &str, pods: &[&str]) -> Result<Cluster> {
        let cluster = Cluster::start(name).await?;
        for pod in pods {
            create(&cluster.client, crate::PODS, &crate::mk_pod(pod)).await?;
        }
        cluster.join(world);
        cluster.report_all(world).await?;
        Ok(cluster)
    }

    pub fn name(&self) -> &str {
        &self.session.name
    }

    pub fn join(&self, world: &World) {
        assert!(world.views().join(&world.workspace(), self.session.clone(), &self.identity.lock()));
    }

    /// Another cluster answers by that name.
    pub fn become_another(&self) {
        *self.identity.lock() = "another identity".into();
    }

    pub async fn report_all(&self, world: &World) -> Result<()> {
        for collection in server::views::collections() {
            self.report(world, &collection).await?;
        }
        Ok(())
    }

    /// What the member has of one kind, as a list has it.
    pub async fn report(&self, world: &World, collection: &Collection) -> Result<()> {
        let (group, plural) = collection.parts();
        let root = if group.is_empty() { "/api/v1".to_owned() } else { format!("/apis/{group}/v1") };
        let list = self.client.get(&format!("{root}/namespaces/shop/{plural}")).await?.json();
        let items = list["items"].as_array().cloned().unwrap_or_default();
        let objects = items.iter().map(|item| Bytes::from(item.to_string()).into()).collect();
        world.views().replace(&world.workspace(), self.name(), collection, objects);
        Ok(())
    }

    /// All its pods of one namespace, which show in `shop`.
    pub async fn report_pods_of(&self, world: &World, namespaces: &[&str]) -> Result<()> {
        let mut objects = Vec::new();
        for namespace in namespaces {
            let list = self.client.get(&format!("/api/v1/namespaces/{namespace}/pods")).await?.json();
            for item in list["items"].as_array().into_iter().flatten() {
                objects.push(Sighting { namespace: shown_as(namespace).map(Into::into), ..sighting(item) });
            }
        }
        world.views().replace(&world.workspace(), self.name(), &crate::pods(), objects);
        Ok(())
    }

    pub fn put(&self, world: &World, collection: &Collection, object: &Value) {
        let namespace = object["metadata"]["namespace"].as_str().and_then(shown_as);
        let object = Sighting { namespace: namespace.map(Into::into), ..sighting(object) };
        world.views().put(&world.workspace(), self.name(), collection, object);
    }

    pub fn remove(&self, world: &World, collection: &Collection, object: &Value) {
        world.views().remove(&world.workspace(), self.name(), collection, sighting(object));
    }

    pub fn lose(&self, world: &World) {
        world.views().lost(&world.workspace(), self.name());
    }

    pub async fn pod(&self, name: &str) -> Result<Value> {
        Ok(self.client.get(&format!("{}/{name}", crate::PODS)).await?.json())
    }

    /// What was sent to it last.
    pub fn last_asked(&self) -> (String, String, Value) {
        self.session.asked.lock().last().cloned().unwrap_or_default()
    }

    pub fn was_asked(&self) -> usize {
        self.session.asked.lock().len()
    }
}

fn sighting(object: &Value) -> Sighting {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    let own = Some(ItemKey::new(text("namespace"), text("name")));
    Sighting { object: object.to_string().into(), own, namespace: None }
}
