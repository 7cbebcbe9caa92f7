//! A client of Kubernetes APIs: bytes in, bytes out, over HTTP/2 where the server offers it.
//!
//! ```text
//!   kubeconfig ──> Access ──> Client ──> whole answers · pages of lists · lines of watches
//! ```
//!
//! Everything has a limit: the time until an answer begins, the time until it has ended, and how long it may become.
//! Only a stream may take for ever, and it says when it was silent for too long.

mod connect;
mod error;
mod lines;
mod list;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use env::Env;
use http::{HeaderValue, Method, Request, Response, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use parking_lot::Mutex;
use rustls::ClientConfig;
use serde_json::Value;

pub use connect::{Access, Identity};
use connect::{Connection, Place};
pub use error::Error;
pub use lines::Lines;
pub use list::{MAX_PAGE, Page, Told, Watching, list_pages, query_escaped, read_event};

/// More than any answer that is read whole.
pub const MAX_ANSWER: usize = 64 << 20;
/// Refusals are short.
const MAX_REFUSAL: usize = 64 << 10;
const AGENT: HeaderValue = HeaderValue::from_static(concat!("hanse/", env!("CARGO_PKG_VERSION")));
pub const JSON: &str = "application/json";
pub const MERGE: &str = "application/merge-patch+json";
pub const APPLY: &str = "application/apply-patch+yaml";

/// Connections without a request in them that are kept, where a connection has one request at a time.
const IDLE: usize = 4;

/// One server, as one user. Cheap to clone; clones share their connections.
#[derive(Clone)]
pub struct Client(Arc<Inner>);

struct Inner {
    env: Env,
    place: Place,
    tls: Arc<ClientConfig>,
    bearer: Option<HeaderValue>,
    /// How long a request may take, unless it says otherwise.
    limit: Duration,
    kept: Mutex<Kept>,
    /// Held by whoever connects: the others wait for that connection, which they may share.
    connecting: tokio::sync::Mutex<()>,
    /// How many answers were read to their end, and how many events of watches.
    heard: AtomicU64,
}

/// Connections that may be used again.
#[derive(Default)]
struct Kept {
    /// Of HTTP/2: all requests share it.
    shared: Option<hyper::client::conn::http2::SendRequest<Full<Bytes>>>,
    /// Of HTTP/1: each has one request at a time.
    idle: Vec<hyper::client::conn::http1::SendRequest<Full<Bytes>>>,
}

/// An answer whose body is still to be read.
pub struct Answer {
    pub response: Response<Incoming>,
    connection: Option<hyper::client::conn::http1::SendRequest<Full<Bytes>>>,
}

/// An answer, read to its end.
#[derive(Debug)]
pub struct Whole {
    pub code: http::StatusCode,
    pub headers: http::HeaderMap,
    pub bytes: Bytes,
}

impl Client {
    pub fn new(env: Env, access: &Access, limit: Duration) -> Result<Client, Error> {
        let place = Place::of(access)?;
        let tls = Arc::new(connect::trust(&env, access)?);
        let bearer = match &access.identity {
            Identity::Token(token) => {
                let mut value = HeaderValue::from_str(&format!("Bearer {token}"))
                    .map_err(|_| Error::Access("the token has characters that no token has".into()))?;
                value.set_sensitive(true);
                Some(value)
            }
            Identity::Certificate { .. } => None,
        };
        let (kept, connecting, heard) = Default::default();
        Ok(Client(Arc::new(Inner { env, place, tls, bearer, limit, kept, connecting, heard })))
    }

    /// How many answers were read to their end, and how many events of watches: if it grows, somebody is there.
    /// Bookmarks do not count, which are sent by a clock.
    pub fn heard(&self) -> u64 {
        self.0.heard.load(Ordering::Relaxed)
    }

    pub fn hear(&self) {
        self.0.heard.fetch_add(1, Ordering::Relaxed);
    }

    pub fn env(&self) -> &Env {
        &self.0.env
    }

    /// Sends one request, whose URI is a path and a query, and waits until its answer begins. Whatever the server
    /// answers is `Ok`.
    pub async fn send(&self, request: Request<Bytes>, limit: Duration) -> Result<Answer, Error> {
        let (sleep, heard) = (self.0.env.clock.sleep(limit), self.heard());
        tokio::select! {
            // What connecting takes is much, and seldom needed.
            answer = Box::pin(self.send_now(request)) => answer,
            () = sleep => Err(self.timed_out(limit, heard)),
        }
    }

    /// Whatever is wrong with the connection, the next request is not to wait for it; but where others were answered
    /// meanwhile, the server is busy, and would be more so if everybody connected anew.
    fn timed_out(&self, limit: Duration, heard: u64) -> Error {
        if self.heard() == heard {
            self.forget();
        }
        Error::Timeout(limit)
    }

    async fn send_now(&self, request: Request<Bytes>) -> Result<Answer, Error> {
        let (parts, body) = self.complete(request)?.into_parts();
        let again = || Request::from_parts(parts.clone(), Full::new(body.clone()));
        if parts.headers.contains_key(header::UPGRADE) {
            // What leaves HTTP behind has a connection to itself. The answer's extensions hold the way on.
            let connection = connect::connect_alone(&self.0.env, &self.0.place, &self.0.tls).await?;
            return connection.send(again()).await.map_err(|error| Error::broken(&error));
        }
        if let Some(connection) = self.kept() {
            match connection.send(again()).await {
                Ok(answer) => return Ok(answer),
                // It ended before anybody read the request, or the request may be sent twice.
                Err(error) if error.is_canceled() || parts.method == Method::GET => self.forget(),
                Err(error) => return Err(Error::broken(&error)),
            }
        }
        let connection = self.connect().await?;
        connection.send(again()).await.map_err(|error| Error::broken(&error))
    }

    async fn connect(&self) -> Result<Connection, Error> {
        let _turn = self.0.connecting.lock().await;
        // Somebody else may have connected meanwhile.
        if let Some(kept) = self.kept() {
            return Ok(kept);
        }
        let connection = connect::connect(&self.0.env, &self.0.place, &self.0.tls).await?;
        if let Connection::Http2(shared) = &connection {
            self.0.kept.lock().shared = Some(shared.clone());
        }
        Ok(connection)
    }

    fn kept(&self) -> Option<Connection> {
        let mut kept = self.0.kept.lock();
        if let Some(shared) = kept.shared.as_ref().filter(|shared| !shared.is_closed()) {
            return Some(Connection::Http2(shared.clone()));
        }
        kept.shared = None;
        while let Some(idle) = kept.idle.pop() {
            if !idle.is_closed() {
                return Some(Connection::Http1(idle));
            }
        }
        None
    }

    /// Connects anew for the next request. Requests and streams under way are not disturbed.
    pub fn forget(&self) {
        *self.0.kept.lock() = Kept::default();
    }

    /// With all that every request has.
    fn complete(&self, request: Request<Bytes>) -> Result<Request<Bytes>, Error> {
        let (mut parts, body) = request.into_parts();
        let path = parts.uri.path_and_query().map_or("/", |it| it.as_str());
        let uri = format!("https://{}{}{path}", self.0.place.authority, self.0.place.prefix);
        parts.uri = uri.parse().map_err(|_| Error::Access(format!("{path} is no path")))?;
        parts.headers.remove(header::HOST);
        parts.headers.remove(header::AUTHORIZATION);
        parts.headers.entry(header::USER_AGENT).or_insert(AGENT);
        if let Some(bearer) = &self.0.bearer {
            parts.headers.insert(header::AUTHORIZATION, bearer.clone());
        }
        Ok(Request::from_parts(parts, body))
    }

    /// Sends one request and reads its answer to the end, refusals too.
    pub async fn ask(&self, request: Request<Bytes>, most: usize) -> Result<Whole, Error> {
        let answer = self.send(request, self.0.limit).await?;
        self.whole(answer, most).await
    }

    async fn whole(&self, answer: Answer, most: usize) -> Result<Whole, Error> {
        let Answer { response, connection } = answer;
        let (parts, body) = response.into_parts();
        let (sleep, heard) = (self.0.env.clock.sleep(self.0.limit), self.heard());
        let bytes = tokio::select! {
            bytes = read(body, most) => bytes?,
            () = sleep => return Err(self.timed_out(self.0.limit, heard)),
        };
        self.hear();
        if let Some(connection) = connection.filter(|it| !it.is_closed()) {
            let mut kept = self.0.kept.lock();
            if kept.idle.len() < IDLE {
                kept.idle.push(connection);
            }
        }
        Ok(Whole { code: parts.status, headers: parts.headers, bytes })
    }

    /// As [`Client::ask`]; a refusal is an error with the server's own message.
    pub async fn demand(&self, request: Request<Bytes>, most: usize) -> Result<Whole, Error> {
        let whole = self.ask(request, most).await?;
        match whole.code.is_success() {
            true => Ok(whole),
            false => Err(Error::refused(whole.code, &whole.headers, &whole.bytes)),
        }
    }

    /// One request with a JSON body, or none, and a JSON answer.
    pub async fn call(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        body: Option<&Value>,
    ) -> Result<Value, Error> {
        let bytes = Bytes::from(body.map(Value::to_string).unwrap_or_default());
        let request = request(method, path, &[(header::CONTENT_TYPE, content_type)], bytes)?;
        let whole = self.demand(request, MAX_ANSWER).await?;
        serde_json::from_slice(&whole.bytes).map_err(|error| Error::Garbage(error.to_string()))
    }

    pub async fn get(&self, path: &str) -> Result<Value, Error> {
        self.call(Method::GET, path, JSON, None).await
    }

    /// As [`Client::get`]; `None` if there is no such thing.
    pub async fn find(&self, path: &str) -> Result<Option<Value>, Error> {
        match self.get(path).await {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.code() == Some(404) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// As [`Client::demand`], with the body of a success still to be read.
    pub async fn open(&self, request: Request<Bytes>) -> Result<Answer, Error> {
        let answer = self.send(request, self.0.limit).await?;
        if answer.response.status().is_success() {
            return Ok(answer);
        }
        let whole = self.whole(answer, MAX_REFUSAL).await?;
        Err(Error::refused(whole.code, &whole.headers, &whole.bytes))
    }

    /// A stream of lines; silence for longer than `idle` ends it.
    pub async fn lines(&self, request: Request<Bytes>, idle: Duration) -> Result<Lines, Error> {
        let answer = self.open(request).await?;
        Ok(Lines::new(self.0.env.clock.clone(), answer, idle))
    }
}

/// `path` with its query.
pub fn request(
    method: Method,
    path: &str,
    headers: &[(header::HeaderName, &str)],
    body: Bytes,
) -> Result<Request<Bytes>, Error> {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(name, *value);
    }
    request.body(body).map_err(|error| Error::Access(error.to_string()))
}

pub fn get(path: &str, accept: &str) -> Result<Request<Bytes>, Error> {
    request(Method::GET, path, &[(header::ACCEPT, accept)], Bytes::new())
}

async fn read(mut body: Incoming, most: usize) -> Result<Bytes, Error> {
    let mut read = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Error::broken(&error))?;
        let Ok(data) = frame.into_data() else { continue };
        if read.len().saturating_add(data.len()) > most {
            return Err(Error::TooLarge(most));
        }
        read.extend_from_slice(&data);
    }
    Ok(read.freeze())
}
