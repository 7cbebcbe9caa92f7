//! What one request writes into its record, from when it comes until its answer has been sent.

use std::{
    borrow::Cow,
    net::IpAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context as TaskContext, Poll},
};

use bytes::{Bytes, BytesMut};
use compact_str::CompactString;
use futures_util::{Stream, StreamExt, stream};
use http::{HeaderMap, HeaderName, Response, header, request::Parts};
use machinery::{
    audit::{self, Identity, ObjectReference, Record, ResourceAttributes, Stage},
    status::Status,
};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value;

use super::Auditor;
use crate::{
    body::Body,
    context::Context,
    decode,
    negotiate::{self, Content},
    rbac::Attributes,
    request::{RequestInfo, Target, Verb},
    user::User,
};

static FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
static REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");

/// Longer answers are not recorded, so that a list of everything is not held in memory twice.
const MAX_ANSWER_BYTES: usize = 16 << 20;

/// What annotations of one request hold together; those beyond it are left out.
const MAX_ANNOTATIONS_BYTES: usize = 1 << 20;

/// What is written down about one request: nothing, and at no cost, if it is not audited. Cheap to clone.
#[derive(Clone, Default)]
pub struct Recorder(Option<Arc<Entry>>);

/// A request that is audited.
struct Entry {
    auditor: Arc<Auditor>,
    record: Mutex<Record>,
    /// Whose share of what waits to be written its events take.
    charged: CompactString,
    annotation_bytes: AtomicUsize,
}

impl Recorder {
    /// For a request that is not audited.
    pub fn off() -> Recorder {
        Recorder(None)
    }

    /// Whether anything is written down: ask before computing what is only for the record.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Adds an annotation to the request's audit events, such as `pod-security.kubernetes.io/audit-violations`. What is
    /// said first about a key stays, as upstream.
    pub fn annotate(&self, key: impl Into<Cow<'static, str>>, value: impl Into<CompactString>) {
        self.annotate_with(|| (key, value));
    }

    /// The same; `annotation` makes key and value, and is only called if somebody will read them.
    pub fn annotate_with<K: Into<Cow<'static, str>>, V: Into<CompactString>>(
        &self,
        annotation: impl FnOnce() -> (K, V),
    ) {
        let Some(entry) = &self.0 else { return };
        let (key, value) = annotation();
        let (key, value) = (key.into(), value.into());
        let len = key.len() + value.len();
        if entry.annotation_bytes.fetch_add(len, Ordering::Relaxed) + len > MAX_ANNOTATIONS_BYTES {
            entry.annotation_bytes.fetch_sub(len, Ordering::Relaxed);
            tracing::warn!(%key, "an audit annotation is left out: the event has too many");
            return;
        }
        entry.record.lock().annotations.add(key, value);
    }

    /// The same, where the bodies of requests are recorded as well: for what repeats something of them.
    pub fn annotate_beside_bodies_with(&self, annotation: impl FnOnce() -> (String, String)) {
        let has_bodies =
            self.0.as_ref().is_some_and(|entry| entry.record.lock().demand.level >= audit::Level::Request);
        if has_bodies {
            self.annotate_with(annotation);
        }
    }

    /// The request is done in the name of somebody else.
    pub fn impersonates(&self, other: &User) {
        let Some(entry) = &self.0 else { return };
        entry.record.lock().impersonated = Some(identity(other));
    }

    /// The body that a write came with.
    pub fn request(&self, context: &Context, bytes: &Bytes) {
        let Some(entry) = &self.0 else { return };
        if !entry.record.lock().wants_request() {
            return;
        }
        let wants_all = entry.record.lock().demand.level >= audit::Level::Request;
        match context.target.verb {
            Verb::Create | Verb::Update => {
                let content = negotiate::content(&context.headers, context.shown.message().is_some());
                let object = match content {
                    // Its name is all that is wanted, which need not be checked for that.
                    Ok(Content::Json) if !wants_all => head_of(bytes),
                    Ok(_) => decode::object(context, bytes).ok().map(|decoded| Value::Object(decoded.tree)),
                    Err(_) => None,
                };
                if let Some(object) = object {
                    entry.record.lock().set_request_object(object);
                }
            }
            _ if wants_all && !bytes.is_empty() => {
                let json = serde_json::from_slice(bytes).ok();
                let body = json.or_else(|| serde_saphyr::from_str(std::str::from_utf8(bytes).ok()?).ok());
                if let Some(body) = body {
                    entry.record.lock().set_request_body(body);
                }
            }
            _ => {}
        }
    }

    async fn tell(&self, stage: Stage) -> bool {
        let Some(entry) = &self.0 else { return true };
        match entry.event(stage) {
            Some(event) => entry.auditor.tell(&entry.charged, event).await,
            None => true,
        }
    }
}

impl Entry {
    fn event(&self, stage: Stage) -> Option<Bytes> {
        let record = self.record.lock();
        record.tells(stage).then(|| record.encode(stage, self.auditor.env.clock.now()).into())
    }
}

/// The part of a body that tells what it is about.
fn head_of(bytes: &[u8]) -> Option<Value> {
    #[derive(Deserialize)]
    struct Head {
        metadata: Value,
    }
    let head: Head = serde_json::from_slice(bytes).ok()?;
    Some(serde_json::json!({"metadata": head.metadata}))
}

fn identity(user: &User) -> Identity {
    Identity {
        username: user.name.clone(),
        uid: user.uid.clone(),
        groups: user.groups.clone(),
        extra: user.extra.clone(),
    }
}

/// What is known of a request when it comes.
pub struct Arrival<'a> {
    pub auditor: &'a Arc<Auditor>,
    pub audit_id: &'a str,
    pub parts: &'a Parts,
    pub headers: &'a HeaderMap,
    pub peer: Option<IpAddr>,
    pub info: &'a RequestInfo,
    pub attributes: &'a Attributes<'a>,
    /// `None`: who it is could not be made out.
    pub user: Option<&'a User>,
    pub workspace: &'a str,
    /// The same, or nothing if there is no such workspace: anybody can make up names.
    pub charged: &'a str,
}

impl Arrival<'_> {
    fn recorder(&self) -> Recorder {
        let resource = match *self.attributes {
            Attributes::NonResource { .. } => None,
            Attributes::Resource { group, resource, subresource, namespace, name, .. } => {
                Some(ResourceAttributes { group, resource, subresource, namespace, name })
            }
        };
        let verb = match *self.attributes {
            Attributes::Resource { verb, .. } | Attributes::NonResource { verb, .. } => verb,
        };
        let demand = self.auditor.demand(&audit::Attributes {
            user: self.user.map(|user| (user.name.as_str(), user.groups.as_slice())),
            verb,
            path: &self.info.path,
            resource,
        });
        if demand.level == audit::Level::None {
            return Recorder::off();
        }
        let mut record = Record::new(demand, self.audit_id.to_owned(), self.auditor.env.clock.now());
        record.request_uri = self.parts.uri.path_and_query().map(ToString::to_string).unwrap_or_default();
        record.verb = verb.into();
        record.user = self.user.map(identity).unwrap_or_default();
        record.source_addresses =
            audit::source_addresses(self.text(&FORWARDED_FOR), self.text(&REAL_IP), self.peer);
        record.set_user_agent(self.text(&header::USER_AGENT));
        record.object = self.object(resource);
        record.annotations.add("hanse.io/workspace", self.workspace);
        Recorder(Some(Arc::new(Entry {
            auditor: self.auditor.clone(),
            record: Mutex::new(record),
            charged: self.charged.into(),
            annotation_bytes: AtomicUsize::new(0),
        })))
    }

    fn text(&self, name: &HeaderName) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    fn object(&self, attributes: Option<ResourceAttributes<'_>>) -> Option<ObjectReference> {
        let (Target::Resource(target), Some(attributes)) = (&self.info.target, attributes) else {
            return None;
        };
        Some(ObjectReference {
            resource: attributes.resource.into(),
            namespace: attributes.namespace.into(),
            name: attributes.name.into(),
            api_group: attributes.group.into(),
            api_version: target.version.as_str().into(),
            subresource: attributes.subresource.into(),
            ..ObjectReference::default()
        })
    }

    /// By what it wanted to say who it is.
    fn tried(&self) -> String {
        let authorization = self.text(&header::AUTHORIZATION).trim_start().to_ascii_lowercase();
        let mut tried = Vec::new();
        if authorization.starts_with("basic ") {
            tried.push("basic");
        }
        if authorization.starts_with("bearer ") {
            tried.push("bearer");
        }
        match tried.is_empty() {
            true => "Authentication failed, no credentials provided".into(),
            false => format!("Authentication failed, attempted: {}", tried.join(", ")),
        }
    }
}

/// Sees to it that what begins to be recorded ends, however the request does: when it is dropped, it has ended.
#[derive(Default)]
pub struct Trail {
    recorder: Recorder,
    stays_open: bool,
    is_about_objects: bool,
    is_over: bool,
}

impl Trail {
    /// A request has come, and it is known from whom.
    pub async fn begin(&mut self, arrival: Arrival<'_>) -> Result<Recorder, Status> {
        self.recorder = arrival.recorder();
        if let Target::Resource(target) = &arrival.info.target {
            self.is_about_objects = true;
            self.stays_open = target.verb == Verb::Watch;
        }
        if !self.recorder.tell(Stage::RequestReceived).await {
            arrival.auditor.metrics.rejected.inc();
            self.is_over = true;
            return Err(Status::internal("failed to store audit event"));
        }
        Ok(self.recorder.clone())
    }

    /// A request has come from nobody knows whom, and will be refused.
    pub async fn turn_away(&mut self, arrival: Arrival<'_>, code: u16) {
        self.is_over = true;
        let recorder = arrival.recorder();
        if let Recorder(Some(entry)) = &recorder {
            entry.record.lock().set_end(code, "", "", &arrival.tried());
        }
        recorder.tell(Stage::ResponseStarted).await;
    }

    /// The answer is ready to be sent. `self` goes with it if it goes on.
    pub async fn answer(mut self, mut response: Response<Body>) -> Response<Body> {
        let recorder = self.recorder.clone();
        let Recorder(Some(entry)) = &recorder else {
            self.is_over = true;
            return response;
        };
        let code = response.status().as_u16();
        let answer = match self.stays_open && response.status().is_success() {
            true => None,
            false => self.readable(entry, &mut response).await,
        };
        entry.record.lock().set_response(code, answer);
        if self.stays_open {
            recorder.tell(Stage::ResponseStarted).await;
        }
        if let Body::Stream(stream) = response.body_mut()
            && self.stays_open
        {
            let stream = std::mem::replace(stream, Box::pin(stream::empty()));
            *response.body_mut() = Body::stream(Followed { stream, _trail: self });
            return response;
        }
        self.is_over = true;
        recorder.tell(Stage::ResponseComplete).await;
        response
    }

    /// The answer as JSON, as far as it will be read: whole, or if it says how the request ended.
    async fn readable(&self, entry: &Entry, response: &mut Response<Body>) -> Option<Value> {
        let wanted = entry.record.lock().wants_response();
        let deletes = entry.record.lock().verb.starts_with("delete");
        let is_status = !response.status().is_success() || deletes;
        let wanted = wanted && self.is_about_objects;
        if !wanted && !is_status {
            return None;
        }
        if wanted {
            collect(response).await;
        }
        match response.body() {
            Body::Whole(Some(bytes)) if bytes.len() <= MAX_ANSWER_BYTES => serde_json::from_slice(bytes).ok(),
            _ => None,
        }
    }

    /// The server failed in the middle of it.
    pub async fn panicked(mut self, why: &str) {
        self.is_over = true;
        if let Recorder(Some(entry)) = &self.recorder {
            let message = format!("APIServer panic'd: {why}");
            entry.record.lock().set_end(500, "Failure", "InternalError", &message);
        }
        self.recorder.tell(Stage::Panic).await;
    }
}

impl Drop for Trail {
    fn drop(&mut self) {
        let Recorder(Some(entry)) = &self.recorder else { return };
        if std::mem::replace(&mut self.is_over, true) {
            return;
        }
        // Without an answer: the client went away before there was one.
        let unanswered = entry.record.lock().response_code().is_none();
        if unanswered {
            entry.record.lock().set_end(200, "Success", "", "Connection closed early");
        }
        if let Some(event) = entry.event(Stage::ResponseComplete) {
            entry.auditor.tell_now(&entry.charged, &event);
        }
    }
}

/// A stream whose end is recorded.
struct Followed {
    stream: Pin<Box<dyn Stream<Item = Bytes> + Send>>,
    _trail: Trail,
}

impl Stream for Followed {
    type Item = Bytes;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<Option<Bytes>> {
        self.stream.as_mut().poll_next(context)
    }
}

/// Makes a streamed answer whole, if it is not too long.
async fn collect(response: &mut Response<Body>) {
    let Body::Stream(stream) = response.body_mut() else { return };
    let mut stream = std::mem::replace(stream, Box::pin(stream::empty()));
    let mut whole = BytesMut::new();
    while let Some(chunk) = stream.next().await {
        whole.extend_from_slice(&chunk);
        if whole.len() > MAX_ANSWER_BYTES {
            let start = stream::once(std::future::ready(whole.freeze()));
            *response.body_mut() = Body::stream(start.chain(stream));
            return;
        }
    }
    *response.body_mut() = Body::Whole(Some(whole.freeze()));
}

#[cfg(test)]
mod tests {
    use env::Env;
    use http::{Method, Request, StatusCode};
    use serde_json::json;
    use tokio::sync::watch;

    use super::*;
    use crate::{
        audit::{AuditOptions, LogOptions},
        metrics::AuditMetrics,
    };

    /// What is in the log after a create has come and `end` has happened to it.
    async fn recorded(end: impl AsyncFnOnce(Trail)) -> Vec<Value> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.log");
        let options = AuditOptions { log: Some(LogOptions::at(&path)), ..AuditOptions::default() };
        let (_stop, stopping) = watch::channel(false);
        let env = Env::real();
        let auditor = Auditor::open(&env, &options, AuditMetrics::default(), stopping).unwrap().unwrap();
        let request =
            Request::builder().method(Method::POST).uri("/api/v1/namespaces/n/pods").body(()).unwrap();
        let (parts, ()) = request.into_parts();
        let info = RequestInfo::parse(&parts.method, parts.uri.path(), false).unwrap();
        let mut trail = Trail::default();
        let arrival = Arrival {
            auditor: &auditor,
            audit_id: "id",
            parts: &parts,
            headers: &parts.headers,
            peer: None,
            info: &info,
            attributes: &Attributes::of(&info, "post", ""),
            user: Some(&User::anonymous()),
            workspace: "default",
            charged: "default",
        };
        trail.begin(arrival).await.unwrap();
        end(trail).await;
        auditor.close().await;
        let text = String::from_utf8(env.files.read(&path).unwrap()).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[tokio::test]
    async fn a_panic_is_a_stage_of_its_own() {
        let events = recorded(async |trail| trail.panicked("index out of bounds").await).await;
        assert_eq!(events.len(), 1);
        assert_eq!(events[0]["stage"], "Panic");
        let message = "APIServer panic'd: index out of bounds";
        assert_eq!(
            events[0]["responseStatus"],
            json!({"metadata": {}, "status": "Failure", "reason": "InternalError", "message": message, "code": 500})
        );
    }

    #[tokio::test]
    async fn a_client_that_goes_away_leaves_a_record() {
        let events = recorded(async |trail| drop(trail)).await;
        assert_eq!(events.len(), 1);
        assert_eq!(events[0]["stage"], "ResponseComplete");
        assert_eq!(events[0]["responseStatus"]["message"], "Connection closed early");
    }

    #[tokio::test]
    async fn annotations_hold_a_bounded_number_of_bytes() {
        let events = recorded(async |trail| {
            for number in 0..200 {
                trail.recorder.annotate(format!("webhooks.io/{number}"), "x".repeat(10 * 1024));
            }
            drop(trail);
        })
        .await;
        let bytes = events[0]["annotations"].to_string().len();
        assert!((MAX_ANNOTATIONS_BYTES / 2..MAX_ANNOTATIONS_BYTES * 2).contains(&bytes), "{bytes}");
    }

    #[tokio::test]
    async fn an_answer_is_recorded_once() {
        let events = recorded(async |trail| {
            let answer = crate::body::json(StatusCode::CREATED, &json!({"kind": "Pod"}));
            trail.answer(answer).await;
        })
        .await;
        let stages: Vec<&Value> = events.iter().map(|it| &it["stage"]).collect();
        assert_eq!(stages, ["ResponseComplete"]);
    }
}
