//! Asking somebody else: a JSON document is posted to a webhook, and its answer is another.
//!
//! Connections are kept and used again; what is kept is found by whose it is, where it leads and whom it trusts: no
//! workspace waits for the calls of another. A place that nobody has asked for a while is forgotten with its connections.
//! No place is asked more than so much at once, however many requests wait for it; what is sent and answered takes no more
//! memory than there is room for, and is made when its turn has come; no answer is longer than it may be; no redirect is
//! followed.

mod trust;

use std::{
    collections::HashMap,
    hash::{Hash, Hasher},
    io,
    sync::{Arc, OnceLock, Weak},
    time::Duration,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::{Bytes, BytesMut};
use env::Env;
use http::{Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full};
use hyper::{
    body::{Body, Incoming},
    client::conn::http1::{self, SendRequest},
};
use hyper_util::rt::TokioIo;
use machinery::{definition::WebhookClient, gojson, gotext, resource::Tree};
use parking_lot::Mutex;
use rustls::{ClientConfig, pki_types::ServerName};
use serde_json::Value;
use sha2::{Digest, Sha256};
use store::WorkspaceId;
use tokio::sync::Semaphore;
use tokio_rustls::TlsConnector;

use crate::{
    room::{Hold, Room},
    trace::{self, Traces},
};

/// Idle connections kept to one place.
const IDLE: usize = 8;
/// How long a connection is kept that nobody uses.
const IDLE_TIME: Duration = Duration::from_secs(90);
/// So many calls to one place are under way at once; the others wait, within their time.
const AT_ONCE: usize = 64;
/// What is being sent holds at most this many bytes, and as much again what is being answered.
const MOST_BYTES: usize = 256 << 20;
/// So much of that is for one workspace.
const SHARE_BYTES: usize = MOST_BYTES / 8;
/// An answer of more bytes than this needs room.
const SMALL_ANSWER: usize = 64 << 10;

/// Where a webhook is, as `clientConfig` says.
#[derive(Clone, Debug)]
pub struct Target {
    url: Arc<str>,
    /// PEM; empty: whom this machine trusts.
    ca_bundle: Arc<[u8]>,
    /// Of both. They are found by it, as a bundle may be long.
    digest: [u8; 32],
    /// What was made of the bundle, so that a webhook that fails again and again costs it once.
    trust: Arc<OnceLock<Arc<ClientConfig>>>,
}

impl PartialEq for Target {
    fn eq(&self, other: &Target) -> bool {
        self.digest == other.digest
    }
}

impl Eq for Target {}

impl Hash for Target {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.digest.hash(state);
    }
}

impl Target {
    pub fn new(url: &str, ca_bundle: &[u8]) -> Target {
        let digest = Sha256::new().chain_update(url).chain_update([0]).chain_update(ca_bundle).finalize();
        Target { url: url.into(), ca_bundle: ca_bundle.into(), digest: digest.into(), trust: Arc::default() }
    }

    pub fn of(client: &WebhookClient) -> Result<Target, Error> {
        let ca_bundle = STANDARD.decode(&client.ca_bundle);
        let ca_bundle = ca_bundle.map_err(|error| Error::Target(format!("caBundle: {error}")))?;
        match (&client.url, &client.service) {
            (Some(url), _) => Ok(Target::new(url, &ca_bundle)),
            (None, Some(service)) => Err(Error::Target(format!(
                "the service {}/{} runs on no cluster that this server can reach; use `url`",
                service.namespace, service.name
            ))),
            (None, None) => {
                Err(Error::Target("webhook configuration must have either service or URL".into()))
            }
        }
    }
}

/// What is asked, and what is waited for.
#[derive(Clone, Copy)]
pub struct Question<'a> {
    /// Who asks.
    pub workspace: &'a WorkspaceId,
    pub target: &'a Target,
    /// Makes what is sent, when its turn has come.
    pub document: &'a (dyn Fn() -> Value + Sync),
    /// About as many bytes as that has.
    pub bytes: usize,
    pub limit: Duration,
    /// The webhook is told how long it has, in the query of its URL.
    pub tells_limit: bool,
    /// An answer of more bytes is refused.
    pub max_answer: usize,
}

/// Why there is no answer, in the words of upstream's client where it has some.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration leads nowhere; trying again does not help.
    #[error("{0}")]
    Target(String),
    /// It cannot be reached, or broke off. Try again.
    #[error("{0}")]
    Unreachable(String),
    #[error("Post {url}: context deadline exceeded")]
    TimedOut { url: String },
    /// It answered with a code that is no success.
    #[error("{message}")]
    Refused { code: u16, message: String },
    /// It answered, but not what was asked.
    #[error("{0}")]
    Answer(String),
}

type Connection = SendRequest<Full<Bytes>>;

/// Calls webhooks.
pub struct Webhooks {
    places: Arc<Places>,
    sending: Arc<Room>,
    answering: Arc<Room>,
    /// Trusts whom this machine trusts: its store is read once.
    system: OnceLock<Arc<ClientConfig>>,
    traces: Option<Arc<dyn Traces>>,
}

impl Default for Webhooks {
    fn default() -> Self {
        let room = || Room::new(MOST_BYTES, SHARE_BYTES);
        let system = OnceLock::new();
        Webhooks { places: Arc::default(), sending: room(), answering: room(), system, traces: None }
    }
}

#[derive(Default)]
struct Places(Mutex<HashMap<Address, Arc<Place>>>);

/// Whose target, and which.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Address {
    workspace: WorkspaceId,
    target: Target,
}

/// What is kept for one address.
struct Place {
    idle: Mutex<Vec<Idle>>,
    turns: Semaphore,
}

struct Idle {
    connection: Connection,
    since: Duration,
}

/// Somebody uses a place; when the last one leaves and nothing is kept there, it is forgotten.
struct Visit<'a> {
    places: &'a Places,
    address: Address,
    place: Arc<Place>,
}

impl Places {
    fn visit(&self, address: Address) -> Visit<'_> {
        let mut places = self.0.lock();
        let place = places
            .entry(address.clone())
            .or_insert_with(|| Arc::new(Place { idle: Mutex::default(), turns: Semaphore::new(AT_ONCE) }));
        Visit { places: self, address, place: place.clone() }
    }

    /// Drops connections that have ended or that nobody has used for a while.
    fn tidy(&self, address: Address, now: Duration) {
        let visit = self.visit(address);
        visit
            .place
            .idle
            .lock()
            .retain(|idle| !idle.connection.is_closed() && now.saturating_sub(idle.since) < IDLE_TIME);
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        let mut places = self.places.0.lock();
        // The map's and this one; new ones are only made under the lock.
        if Arc::strong_count(&self.place) == 2 && self.place.idle.lock().is_empty() {
            places.remove(&self.address);
        }
    }
}

impl Webhooks {
    /// With `traces`, those who are asked are told which trace it is for.
    pub fn new(traces: Option<Arc<dyn Traces>>) -> Webhooks {
        Webhooks { traces, ..Webhooks::default() }
    }

    /// How many targets something is kept for.
    pub fn known(&self) -> usize {
        self.places.0.lock().len()
    }

    /// The body of a successful answer.
    pub async fn call(&self, env: &Env, question: Question<'_>) -> Result<Bytes, Error> {
        let timer = env.clock.sleep(question.limit);
        tokio::select! {
            answer = self.post(env, question) => answer,
            () = timer => Err(Error::TimedOut { url: gotext::quote(&shown(&question)) }),
        }
    }

    /// The document at a target, for a workspace.
    pub async fn fetch(
        &self,
        env: &Env,
        workspace: WorkspaceId,
        target: &Target,
        limit: Duration,
        max_answer: usize,
    ) -> Result<Bytes, Error> {
        let timer = env.clock.sleep(limit);
        tokio::select! {
            answer = self.get(env, workspace, target, max_answer) => answer,
            () = timer => {
                Err(Error::Unreachable(format!("Get {}: context deadline exceeded", gotext::quote(&target.url))))
            }
        }
    }

    async fn get(
        &self,
        env: &Env,
        workspace: WorkspaceId,
        target: &Target,
        max_answer: usize,
    ) -> Result<Bytes, Error> {
        let uri: Uri =
            target.url.parse().map_err(|error| Error::Target(format!("{}: {error}", target.url)))?;
        let visit = self.places.visit(Address { workspace, target: target.clone() });
        let broken = |why: &dyn std::fmt::Display| {
            Error::Unreachable(format!("Get {}: {why}", gotext::quote(&target.url)))
        };
        let _turn = visit.place.turns.acquire().await.map_err(|error| broken(&error))?;
        let mut connection = self.connect(env, &visit, &uri).await.map_err(|error| match error {
            Failure::Target(why) => Error::Target(why),
            Failure::Io(why) => broken(&why),
        })?;
        let request = Request::get(uri.path_and_query().map_or("/", |path| path.as_str()))
            .header(header::HOST, uri.authority().map(ToString::to_string).unwrap_or_default())
            .header(header::ACCEPT, "application/json")
            .header(header::USER_AGENT, "hanse")
            .body(Full::new(Bytes::new()))
            .map_err(|error| Error::Target(error.to_string()))?;
        let response = connection.send_request(request).await.map_err(|error| broken(&ended(&error)))?;
        self.finish(env, &visit, connection, response, max_answer).await
    }

    async fn post(&self, env: &Env, question: Question<'_>) -> Result<Bytes, Error> {
        let url = shown(&question);
        let uri: Uri = url.parse().map_err(|error| Error::Target(format!("{url}: {error}")))?;
        let host = uri.authority().map(ToString::to_string).unwrap_or_default();
        let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        let broken =
            |why: &dyn std::fmt::Display| Error::Unreachable(format!("Post {}: {why}", gotext::quote(&url)));
        let (workspace, target) = (question.workspace.clone(), question.target.clone());
        let visit = self.places.visit(Address { workspace, target });
        let _turn = visit.place.turns.acquire().await.map_err(|error| broken(&error))?;
        let _hold = self.sending.hold(&question.workspace.0, question.bytes).await;
        let body = Bytes::from((question.document)().to_string());
        let traceparent = trace::outgoing(self.traces.as_ref());
        let request = || {
            let mut request = Request::post(path.as_str())
                .header(header::HOST, &host)
                .header(header::CONTENT_TYPE, "application/json")
                .header(header::ACCEPT, "application/json, */*")
                .header(header::USER_AGENT, "hanse-admission");
            if let Some(traceparent) = &traceparent {
                request = request.header("traceparent", traceparent);
            }
            request.body(Full::new(body.clone())).map_err(|error| Error::Target(error.to_string()))
        };
        // A kept connection may have ended at the other side; a new one is tried then.
        let kept = visit.place.idle.lock().pop().map(|idle| idle.connection);
        if let Some(mut connection) = kept.filter(SendRequest::is_ready)
            && let Ok(response) = connection.send_request(request()?).await
        {
            return self.finish(env, &visit, connection, response, question.max_answer).await;
        }
        let mut connection = self.connect(env, &visit, &uri).await.map_err(|error| match error {
            Failure::Target(why) => Error::Target(why),
            Failure::Io(why) => broken(&why),
        })?;
        let response = connection.send_request(request()?).await;
        let response = response.map_err(|error| broken(&ended(&error)))?;
        self.finish(env, &visit, connection, response, question.max_answer).await
    }

    async fn finish(
        &self,
        env: &Env,
        visit: &Visit<'_>,
        connection: Connection,
        response: Response<Incoming>,
        limit: usize,
    ) -> Result<Bytes, Error> {
        let code = response.status();
        let kind = response.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let kind = kind.unwrap_or_default().to_owned();
        let bytes = self.read(&visit.address.workspace, response.into_body(), limit).await?;
        let mut idle = visit.place.idle.lock();
        if idle.len() < IDLE {
            idle.push(Idle { connection, since: env.clock.elapsed() });
        }
        drop(idle);
        match code.as_u16() {
            200..=206 if bytes.is_empty() => {
                let code = code.as_u16();
                Err(Error::Answer(format!(
                    "0-length response with status code: {code} and content type: {kind}"
                )))
            }
            200..=206 => Ok(bytes),
            _ => Err(refused(code, &kind, &bytes)),
        }
    }

    /// An answer, as far as it may go. A long one waits until there is room for all that it may become: whoever has
    /// room needs no more, so nobody waits for those who wait.
    async fn read(&self, workspace: &WorkspaceId, mut body: Incoming, limit: usize) -> Result<Bytes, Error> {
        let mut read = BytesMut::new();
        let mut hold: Option<Hold> = None;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| Error::Unreachable(error.to_string()))?;
            let Ok(data) = frame.into_data() else { continue };
            let len = read.len().saturating_add(data.len());
            if len > limit {
                return Err(Error::Answer(format!("the answer is longer than {limit} bytes")));
            }
            if len > SMALL_ANSWER && hold.is_none() {
                let announced = body.size_hint().upper().and_then(|rest| usize::try_from(rest).ok());
                let bytes = announced.map_or(limit, |rest| rest.saturating_add(len).min(limit));
                hold = Some(self.answering.hold(&workspace.0, bytes).await);
            }
            read.extend_from_slice(&data);
        }
        Ok(read.freeze())
    }

    async fn connect(&self, env: &Env, visit: &Visit<'_>, uri: &Uri) -> Result<Connection, Failure> {
        let target = &visit.address.target;
        if uri.scheme_str() != Some("https") {
            return Err(Failure::Target(format!("{}: only https is called", target.url)));
        }
        let host = uri.host().unwrap_or_default().to_owned();
        let port = uri.port_u16().unwrap_or(443);
        let failed = |error: io::Error| Failure::Io(error.to_string());
        let addresses = env.network.resolve(host.clone(), port).await.map_err(failed)?;
        let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned())
            .map_err(|error| Failure::Target(format!("{host}: {error}")))?;
        let trust = self.trust(target).map_err(Failure::Target)?;
        let mut last = Failure::Io(format!("lookup {host}: no such host"));
        for address in addresses {
            let stream = match env.network.dial(address).await {
                Ok(stream) => stream,
                Err(error) => {
                    last = Failure::Io(format!("dial tcp {address}: {}", dialled(&error)));
                    continue;
                }
            };
            let stream = TlsConnector::from(trust.clone()).connect(name.clone(), stream).await;
            let stream = stream.map_err(|error| Failure::Io(distrusted(&error)))?;
            let (connection, driver) = http1::handshake(TokioIo::new(stream))
                .await
                .map_err(|error| Failure::Io(error.to_string()))?;
            drive(env, visit.address.clone(), Arc::downgrade(&self.places), driver);
            return Ok(connection);
        }
        Err(last)
    }

    /// Trusts the bundle, or whom this machine trusts if there is none.
    fn trust(&self, target: &Target) -> Result<Arc<ClientConfig>, String> {
        let kept = if target.ca_bundle.is_empty() { &self.system } else { &target.trust };
        if let Some(trust) = kept.get() {
            return Ok(trust.clone());
        }
        let made = Arc::new(trust::trust(&target.ca_bundle)?);
        Ok(kept.get_or_init(|| made).clone())
    }
}

/// The URL that is called: with the time the webhook has, in whole seconds, if it is told.
fn shown(question: &Question<'_>) -> String {
    let url = &question.target.url;
    if !question.tells_limit {
        return url.to_string();
    }
    let seconds = question.limit.as_secs() + u64::from(question.limit.subsec_nanos() > 0);
    let is_bare = url.split_once("://").is_some_and(|(_, place)| !place.contains(['/', '?']));
    let between = match url.contains('?') {
        true => "&",
        false if is_bare => "/?",
        false => "?",
    };
    format!("{url}{between}timeout={seconds}s")
}

/// A connection that ended without an answer, as upstream calls that.
fn ended(error: &hyper::Error) -> String {
    let cause = std::error::Error::source(error).and_then(|source| source.downcast_ref::<io::Error>());
    match cause {
        Some(cause) if cause.kind() != io::ErrorKind::UnexpectedEof => dialled(cause),
        None if !error.is_incomplete_message() && !error.is_closed() => error.to_string(),
        _ => "EOF".to_owned(),
    }
}

/// An answer that is no success, in the words of upstream's client.
fn refused(code: StatusCode, kind: &str, bytes: &[u8]) -> Error {
    let said = match gojson::parse(bytes) {
        Ok(status) if status["kind"] == "Status" && status["status"] != "Success" => {
            status["message"].as_str().map(str::to_owned)
        }
        _ => None,
    };
    let text = if kind.starts_with("text/") { String::from_utf8_lossy(bytes) } else { "unknown".into() };
    let text: String = text.trim().chars().take(1000).collect();
    let message = said.unwrap_or_else(|| match code.as_u16() {
        400 => "the server rejected our request for an unknown reason".to_owned(),
        401 => "the server has asked for the client to provide credentials".to_owned(),
        403 | 415 => text,
        404 => "the server could not find the requested resource".to_owned(),
        405 => "the server does not allow this method on the requested resource".to_owned(),
        406 if matches!(text.as_str(), "" | "unknown") => {
            "the server was unable to respond with a content type that the client supports".to_owned()
        }
        406 => text,
        409 => "the server reported a conflict".to_owned(),
        422 => "the server rejected our request due to an error in our request".to_owned(),
        429 => "the server has received too many requests and has asked us to try again later".to_owned(),
        503 => "the server is currently unable to handle the request".to_owned(),
        504 => {
            "the server was unable to return a response in the time allotted, but may still be processing \
                the request"
                .to_owned()
        }
        500.. => {
            let text = gotext::quote(&text);
            format!("an error on the server ({text}) has prevented the request from succeeding")
        }
        code => {
            format!("the server responded with the status code {code} but did not return more information")
        }
    });
    Error::Refused { code: code.as_u16(), message }
}

enum Failure {
    Target(String),
    Io(String),
}

/// Moves bytes until the connection ends, which it does when nobody has used it for a while.
fn drive(
    env: &Env,
    address: Address,
    places: Weak<Places>,
    driver: impl Future<Output = Result<(), hyper::Error>> + Send + 'static,
) {
    let clock = env.clock.clone();
    env.tasks.spawn(Box::pin(async move {
        let mut driver = std::pin::pin!(driver);
        loop {
            let ended = tokio::select! {
                // Whoever uses the connection is told of its end.
                _ = &mut driver => true,
                () = clock.sleep(IDLE_TIME) => false,
            };
            if let Some(places) = places.upgrade() {
                places.tidy(address.clone(), clock.elapsed());
            }
            if ended {
                return;
            }
        }
    }));
}

/// Why nobody was there, in the words of upstream's client.
fn dialled(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connect: connection refused".to_owned(),
        io::ErrorKind::ConnectionReset => "read: connection reset by peer".to_owned(),
        _ => error.to_string(),
    }
}

/// Why somebody is not trusted, in the words of upstream's client where it says the same.
fn distrusted(error: &io::Error) -> String {
    use rustls::{CertificateError, Error};
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    match inner {
        Some(Error::InvalidCertificate(CertificateError::UnknownIssuer)) => {
            "tls: failed to verify certificate: x509: certificate signed by unknown authority".to_owned()
        }
        Some(Error::InvalidCertificate(CertificateError::Expired)) => {
            "tls: failed to verify certificate: x509: certificate has expired or is not yet valid".to_owned()
        }
        Some(Error::InvalidCertificate(other)) => {
            format!("tls: failed to verify certificate: x509: {other}")
        }
        Some(other) => format!("tls: {other}"),
        None if error.kind() == io::ErrorKind::UnexpectedEof => "EOF".to_owned(),
        None => dialled(error),
    }
}

/// About as many bytes as objects have when they are written out.
pub fn weight<'a>(trees: impl IntoIterator<Item = &'a Tree>) -> usize {
    fn of(value: &Value) -> usize {
        match value {
            Value::String(text) => text.len() + 3,
            Value::Array(items) => items.iter().map(of).sum::<usize>() + 3,
            Value::Object(members) => of_tree(members),
            _ => 8,
        }
    }
    fn of_tree(tree: &Tree) -> usize {
        tree.iter().map(|(key, value)| key.len() + 4 + of(value)).sum::<usize>() + 3
    }
    trees.into_iter().map(of_tree).sum()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn trust_is_made_once() {
        let webhooks = Webhooks::default();
        let target = |bundle: &[u8]| Target::new("https://a", bundle);
        let (one, other) = (target(b""), target(b""));
        let first = webhooks.trust(&one).unwrap();
        assert!(Arc::ptr_eq(&first, &webhooks.trust(&other).unwrap()), "the machine's store is read once");
        let named = target(b"no certificate, and none is needed here");
        let first = webhooks.trust(&named).unwrap();
        assert!(Arc::ptr_eq(&first, &webhooks.trust(&named.clone()).unwrap()), "a bundle is read once");
    }

    #[test]
    fn a_webhook_is_told_its_limit_wherever_it_is() {
        for (url, called) in [
            ("https://a", "https://a/?timeout=10s"),
            ("https://a:8443", "https://a:8443/?timeout=10s"),
            ("https://a/", "https://a/?timeout=10s"),
            ("https://a/path", "https://a/path?timeout=10s"),
            ("https://a/path?b=c", "https://a/path?b=c&timeout=10s"),
        ] {
            let (target, workspace) = (Target::new(url, b""), WorkspaceId("one".into()));
            let question = Question {
                workspace: &workspace,
                target: &target,
                document: &|| Value::Null,
                bytes: 0,
                limit: Duration::from_secs(10),
                tells_limit: true,
                max_answer: 0,
            };
            assert_eq!(shown(&question), called);
        }
    }

    #[test]
    fn workspaces_do_not_wait_for_each_other() {
        let places = Places::default();
        let address = |workspace: &str| Address {
            workspace: WorkspaceId(workspace.into()),
            target: Target::new("https://same", b""),
        };
        let (one, again, other) =
            (places.visit(address("one")), places.visit(address("one")), places.visit(address("other")));
        assert!(Arc::ptr_eq(&one.place, &again.place));
        assert!(!Arc::ptr_eq(&one.place, &other.place));
        drop((one, again, other));
        assert!(places.0.lock().is_empty());
    }

    #[test]
    fn the_weight_of_objects_is_near_their_length() {
        let object = json!({"metadata": {"name": "a", "n": 1}, "data": {"text": "x".repeat(10_000), "list": ["a", null]}});
        let (weight, length) = (weight(object.as_object()), object.to_string().len());
        assert!(weight.abs_diff(length) < 100, "{weight} {length}");
    }
}
