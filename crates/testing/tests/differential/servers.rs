//! The two servers, and how a scenario runs on them: row by row, both at once.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result, anyhow, bail};
use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use server::base;
use store::{Store, WorkspaceId, memory::MemoryStore};
use testing::{
    client::{Client, Lines},
    compare::{self, Body, Relation, Reply, shorten},
    hub::{TestHub, eventually, outfitted},
    real::{Options, RealCluster},
};
use tokio::sync::Mutex;

use super::{
    protobuf,
    report::Outcome,
    scenario::{Action, Only, Request, Row, Scenario},
};

/// Nothing that is compared takes longer.
const PATIENCE: Duration = Duration::from_secs(60);

pub struct Servers {
    kube: Server,
    hanse: Server,
}

/// What the servers remember.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// Minutes, as servers do.
    Long,
    /// Only what is, when told to `FORGET`. The real server cannot be told and forgets every few seconds; it also
    /// has no cache then, which would know longer.
    Short,
}

enum Kind {
    Kube(Box<RealCluster>),
    Hanse(TestHub, Arc<MemoryStore>),
}

struct Server {
    kind: Kind,
    /// What both say to be their authority.
    authority_pem: String,
    /// By user and groups; connections are shared by all scenarios.
    clients: Mutex<HashMap<Option<Vec<String>>, Client>>,
}

/// One scenario on one server.
struct Stage<'a> {
    server: &'a Server,
    /// What rows kept, and `ns`.
    values: HashMap<String, String>,
    streams: HashMap<String, Lines>,
}

impl Servers {
    pub async fn start(memory: Memory) -> Result<Servers> {
        let mut apiserver_args = vec!["--allow-privileged=true".to_owned()];
        if memory == Memory::Short {
            apiserver_args
                .extend(["--watch-cache=false", "--etcd-compaction-interval=3s"].map(str::to_owned));
        }
        // Hanse counts what quotas limit by itself.
        let controllers = vec!["resourcequota-controller".to_owned()];
        let options = Options {
            fsync: false,
            apiserver_args,
            controller_manager: true,
            controllers,
            ..Options::default()
        };
        let kube = tokio::task::spawn_blocking(|| RealCluster::start(options)).await??;
        let store = Arc::new(MemoryStore::new());
        let hanse = TestHub::start_on(store.clone(), server::Options::default()).await?;
        let authority = hanse.peer.authority.certificate_pem().to_owned();
        let (kube, hanse) = (Kind::Kube(Box::new(kube)), Kind::Hanse(hanse, store));
        let servers = Servers { kube: Server::new(kube, &authority), hanse: Server::new(hanse, &authority) };
        let admin = servers.kube.client(&Some(vec!["admin".into(), "system:masters".into()])).await?;
        for namespace in base::NAMESPACES {
            eventually("the namespace is there", async || {
                let found = admin.get(&format!("/api/v1/namespaces/{namespace}")).await?;
                Ok((found.code == StatusCode::OK).then_some(()))
            })
            .await?;
            servers.kube.outfit(&admin, namespace).await?;
        }
        Ok(servers)
    }

    pub async fn run(&self, scenario: Scenario, namespace: &str) -> Result<Vec<Outcome>> {
        let (kube, hanse) = tokio::join!(self.kube.stage(namespace), self.hanse.stage(namespace));
        let (mut kube, mut hanse) = (kube.context("kube")?, hanse.context("hanse")?);
        let mut relation = Relation::default();
        let mut outcomes = Vec::new();
        for row in &scenario.rows {
            let (on_kube, on_hanse) = tokio::join!(kube.perform(row), hanse.perform(row));
            let on_kube = on_kube.with_context(|| format!("row {:?} on kube", row.id))?;
            let on_hanse = on_hanse.with_context(|| format!("row {:?} on hanse", row.id))?;
            let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs() as i64;
            outcomes.push(Outcome {
                row: row.id.clone(),
                request: describe(row),
                kube: show(&on_kube),
                hanse: show(&on_hanse),
                differences: compare::compare(&mut relation, now, &on_kube, &on_hanse),
            });
        }
        Ok(outcomes)
    }
}

impl Server {
    fn new(kind: Kind, authority_pem: &str) -> Server {
        Server { kind, authority_pem: authority_pem.to_owned(), clients: Mutex::default() }
    }

    async fn client(&self, user: &Option<Vec<String>>) -> Result<Client> {
        if user.is_none() {
            // The real server ends the connection of a client it does not know after one answer.
            return self.connect(None).await;
        }
        let mut clients = self.clients.lock().await;
        // The real server hangs up on clients that are quiet for long.
        if let Some(client) = clients.get(user).filter(|client| !client.is_closed()) {
            return Ok(client.clone());
        }
        let client = self.connect(user.as_deref()).await?;
        clients.insert(user.clone(), client.clone());
        Ok(client)
    }

    async fn connect(&self, user: Option<&[String]>) -> Result<Client> {
        let Some((name, groups)) = user.and_then(<[String]>::split_first) else {
            return match &self.kind {
                Kind::Kube(cluster) => Client::connect(&cluster.url, &cluster.ca_pem, None).await,
                Kind::Hanse(hub, _) => hub.nobody().await,
            };
        };
        let groups: Vec<&str> = groups.iter().map(String::as_str).collect();
        match &self.kind {
            Kind::Kube(cluster) => {
                let (certificate, key) = cluster.issue(name, &groups)?;
                Client::connect(&cluster.url, &cluster.ca_pem, Some((&certificate, &key))).await
            }
            Kind::Hanse(hub, _) => hub.user(name, &groups).await,
        }
    }

    /// Waits until Hanse has given a namespace what every namespace has. The real server's controllers do not run; it
    /// gets the same by hand.
    async fn outfit(&self, admin: &Client, namespace: &str) -> Result<()> {
        let path = format!("/api/v1/namespaces/{namespace}");
        let Kind::Kube(_) = &self.kind else { return outfitted(admin, &path).await };
        for (collection, object) in [
            ("serviceaccounts", base::default_account(namespace)),
            ("configmaps", base::root_ca(namespace, &self.authority_pem)),
        ] {
            let made = admin.post(&format!("{path}/{collection}?fieldManager=hanse"), &object).await?;
            if made.code != StatusCode::CREATED {
                bail!("cannot outfit a namespace: {}", made.text());
            }
        }
        Ok(())
    }

    /// A fresh namespace.
    async fn stage(&self, namespace: &str) -> Result<Stage<'_>> {
        let admin = self.client(&Some(vec!["admin".into(), "system:masters".into()])).await?;
        let made = admin.post("/api/v1/namespaces", &json!({"metadata": {"name": namespace}})).await?;
        if made.code != StatusCode::CREATED {
            bail!("cannot make a namespace: {}", made.text());
        }
        self.outfit(&admin, namespace).await?;
        let values = HashMap::from([("ns".to_owned(), namespace.to_owned())]);
        Ok(Stage { server: self, values, streams: HashMap::new() })
    }
}

impl Stage<'_> {
    async fn perform(&mut self, row: &Row) -> Result<Reply> {
        let mut reply = match &row.action {
            Action::Events { stream, count } => self.events(stream, *count).await?,
            Action::Forget => self.forget().await?,
            Action::Request(request) => self.request(row, request).await?,
        };
        for (name, pointer) in &row.keep {
            self.keep(name, pointer, &reply.body)?;
        }
        if let Body::Json(value) = &mut reply.body {
            for only in &row.only {
                retain(value, &only.pointer, only);
            }
            for pointer in &row.sort {
                let array = value.pointer_mut(pointer).and_then(Value::as_array_mut);
                array.into_iter().for_each(|array| array.sort_by_key(Value::to_string));
            }
        }
        Ok(reply)
    }

    /// A row that keeps nothing on the real server is wrong; on Hanse it is a difference, which the comparison tells.
    fn keep(&mut self, name: &str, pointer: &str, body: &Body) -> Result<()> {
        let found = match body {
            Body::Json(value) => value.pointer(pointer),
            Body::Text(_) => None,
        };
        let text = match (found, &self.server.kind) {
            (Some(Value::String(text)), _) => text.clone(),
            (Some(other), _) => other.to_string(),
            (None, Kind::Hanse(..)) => "nothing".to_owned(),
            (None, Kind::Kube(_)) => bail!("nothing at {pointer} in {}", shorten(body.to_string())),
        };
        self.values.insert(name.to_owned(), text);
        Ok(())
    }

    async fn events(&mut self, stream: &str, count: Option<usize>) -> Result<Reply> {
        let mut events = Vec::new();
        let Some(lines) = self.streams.get_mut(stream) else {
            return Ok(Reply {
                code: 200,
                headers: HeaderMap::new(),
                body: Body::Text("no such watch".into()),
            });
        };
        let read = async {
            while count.is_none_or(|count| events.len() < count) {
                let Some(event) = lines.next().await? else { break };
                if !is_periodic(&event) {
                    events.push(event);
                }
            }
            anyhow::Ok(())
        };
        let in_time = tokio::time::timeout(PATIENCE, read).await;
        match in_time {
            Ok(read) => read?,
            // Too few events are a difference to be shown, not a broken test.
            Err(_) => events.push(json!("(no further event came)")),
        }
        Ok(Reply { code: 200, headers: HeaderMap::new(), body: Body::Json(events.into()) })
    }

    async fn forget(&self) -> Result<Reply> {
        if let Kind::Hanse(_, store) = &self.server.kind {
            let workspace = WorkspaceId(api::DEFAULT.into());
            store.compact(&workspace, store.head(&workspace)).await?;
        }
        Ok(Reply { code: 200, headers: HeaderMap::new(), body: Body::Text(String::new()) })
    }

    async fn request(&mut self, row: &Row, request: &Request) -> Result<Reply> {
        let client = self.server.client(&row.user).await?;
        let path = encode_path(&self.fill(&request.path)?);
        let body = self.fill(&request.body)?;
        let body = match body.starts_with("protobuf ") {
            true => Bytes::from(protobuf::encode(&body)?),
            false => Bytes::from(body),
        };
        let mut headers = Vec::new();
        for (name, value) in &request.headers {
            headers.push((name.clone(), self.fill(value)?));
        }
        let headers: Vec<(&str, &str)> = headers.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        if let Some(stream) = &row.open {
            return self.open(stream, &client, &path, &headers).await;
        }
        let ask = async || send(&client, &request.method, &path, &headers, &body).await;
        let Some(code) = row.until else { return ask().await };
        match eventually("the code", async || Ok(Some(ask().await?).filter(|it| it.code == code))).await {
            Ok(reply) => Ok(reply),
            // It does not come to pass, and the answer tells the difference.
            Err(_) => ask().await,
        }
    }

    async fn open(
        &mut self,
        stream: &str,
        client: &Client,
        path: &str,
        headers: &[(&str, &str)],
    ) -> Result<Reply> {
        let (code, body) = match client.watch_as(path, headers).await {
            Ok(lines) => {
                self.streams.insert(stream.to_owned(), lines);
                (200, String::new())
            }
            Err(refusal) => (0, refusal.to_string()),
        };
        Ok(Reply { code, headers: HeaderMap::new(), body: Body::Text(body) })
    }

    /// Puts kept values in their places.
    fn fill(&self, text: &str) -> Result<String> {
        let mut filled = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('<') {
            let (name, after) = after.split_once('>').with_context(|| format!("`<` without `>`: {after}"))?;
            filled.push_str(before);
            match name.split(':').collect::<Vec<_>>()[..] {
                ["repeat", unit, times] => filled.push_str(&unit.repeat(times.parse()?)),
                _ => {
                    filled.push_str(self.values.get(name).ok_or_else(|| anyhow!("nothing kept as {name:?}"))?)
                }
            }
            rest = after;
        }
        filled.push_str(rest);
        Ok(filled)
    }
}

async fn send(
    client: &Client,
    method: &Method,
    path: &str,
    headers: &[(&str, &str)],
    body: &Bytes,
) -> Result<Reply> {
    let whole = async {
        let response = client.send(method.clone(), path, headers, body.clone()).await?;
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await?.to_bytes();
        anyhow::Ok((parts, bytes))
    };
    let (parts, bytes) = tokio::time::timeout(PATIENCE, whole).await.context("no answer came")??;
    Ok(Reply { code: parts.status.as_u16(), headers: parts.headers, body: read(&bytes) })
}

/// A bookmark that does not end the initial events: when it comes is up to the server.
fn is_periodic(event: &Value) -> bool {
    event["type"] == "BOOKMARK" && !event.to_string().contains("k8s.io/initial-events-end")
}

/// One JSON document; or a line each, as a watch has them; or text.
fn read(bytes: &[u8]) -> Body {
    if let Ok(value) = serde_json::from_slice(bytes) {
        return Body::Json(value);
    }
    let text = String::from_utf8_lossy(bytes).into_owned();
    let lines: Result<Vec<Value>, _> = text.lines().map(serde_json::from_str).collect();
    match lines {
        Ok(events) if !events.is_empty() => Body::Json(events.into()),
        _ => Body::Text(text),
    }
}

/// Drops elements of the arrays at `pointer` that are not of interest.
fn retain(value: &mut Value, pointer: &str, only: &Only) {
    if let Some((array, rest)) = pointer.split_once("/*") {
        for element in value.pointer_mut(array).and_then(Value::as_array_mut).into_iter().flatten() {
            retain(element, rest, only);
        }
        return;
    }
    if let Some(array) = value.pointer_mut(pointer).and_then(Value::as_array_mut) {
        array.retain(|element| {
            let found = element.pointer(&only.key).and_then(Value::as_str).unwrap_or_default();
            only.values.iter().any(|value| value == found)
        });
    }
}

/// Escapes what a URL may not have, so that rows can be written plainly.
fn encode_path(path: &str) -> String {
    path.bytes()
        .map(|byte| match byte {
            b'!'..=b'~' if !matches!(byte, b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}') => {
                char::from(byte).to_string()
            }
            _ => format!("%{byte:02X}"),
        })
        .collect()
}

fn describe(row: &Row) -> String {
    match &row.action {
        Action::Events { stream, .. } => format!("events of {stream}"),
        Action::Forget => "forget".to_owned(),
        Action::Request(request) => {
            shorten(format!("{} {} {:?} {}", request.method, request.path, request.headers, request.body))
        }
    }
}

fn show(reply: &Reply) -> String {
    format!("{} {:?} {}", reply.code, reply.headers.get_all("warning").iter().collect::<Vec<_>>(), reply.body)
}
