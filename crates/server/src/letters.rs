//! What servers on one store pass to one another: commits for workspaces that another one leads.
//!
//! A letter is posted to [`PATH`] of the other server, with the secret that it has put where only servers of the same
//! store can read it, over TLS verified by the authorities that it has put there too. No user comes here: what a letter
//! asks for was authorized and admitted where it was written.

use std::{collections::HashMap, sync::Arc, time::Duration};

use bytes::Bytes;
use env::{BoxFuture, Env};
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use machinery::status::{Reason, Status};
use parking_lot::Mutex;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use store::etcd::{Courier, EtcdStore, OnDuty, Registration, Undelivered};
use tokio_rustls::TlsConnector;

use crate::{
    body::{self, Body},
    hub::Hub,
    service,
};

pub const PATH: &str = "/hanse/letters";

/// A commit is a few objects; letters and answers are not larger.
pub const MAX_BYTES: usize = 64 << 20;
const DIAL_LIMIT: Duration = Duration::from_secs(2);
/// The other server gives up before that.
const ANSWER_LIMIT: Duration = Duration::from_secs(20);
const PING_EVERY: Duration = Duration::from_secs(2);
const PING_LIMIT: Duration = Duration::from_secs(3);

/// The store's side of it.
pub trait Letters: Send + Sync + 'static {
    /// Tells the other servers where this one is reached, and by which authorities it is verified.
    fn announce(&self, url: String, authorities: String) -> BoxFuture<'static, Result<(), String>>;

    /// Whether it was shown the secret that goes with the announcement.
    fn is_secret(&self, shown: &[u8]) -> bool;

    fn receive(&self, letter: Bytes) -> BoxFuture<'static, Bytes>;

    /// Who is on duty, as far as is known here.
    fn who_is_on_duty(&self) -> OnDuty;
}

/// Letters of a store in etcd.
pub struct EtcdLetters {
    pub env: Env,
    pub store: EtcdStore,
}

impl Letters for EtcdLetters {
    fn announce(&self, url: String, authorities: String) -> BoxFuture<'static, Result<(), String>> {
        let mut secret = [0; 32];
        self.env.random.fill(&mut secret);
        let secret = secret.iter().map(|byte| format!("{byte:02x}")).collect();
        let store = self.store.clone();
        Box::pin(async move {
            let registration = Registration { url, authorities, secret };
            store.announce(registration).await.map_err(|error| error.to_string())
        })
    }

    fn is_secret(&self, shown: &[u8]) -> bool {
        self.store.is_secret(shown)
    }

    fn receive(&self, letter: Bytes) -> BoxFuture<'static, Bytes> {
        self.store.receive(letter)
    }

    fn who_is_on_duty(&self) -> OnDuty {
        self.store.who_is_on_duty()
    }
}

/// Whether a request shows the secret that only servers of the same store can know.
pub fn is_from_a_server(letters: &dyn Letters, headers: &HeaderMap) -> bool {
    let shown = headers.get(header::AUTHORIZATION).map(|value| value.as_bytes());
    letters.is_secret(shown.and_then(|value| value.strip_prefix(b"Bearer ")).unwrap_or_default())
}

/// Answers a letter; `None` if there is nobody to send any.
pub async fn answer<B>(hub: &Hub, method: &Method, headers: &HeaderMap, body: B) -> Option<Response<Body>>
where
    B: http_body::Body<Data = Bytes> + Send + Unpin,
{
    let letters = hub.letters.as_ref()?;
    if *method != Method::POST || !is_from_a_server(&**letters, headers) {
        return Some(body::refusal(&Status::new(Reason::Unauthorized, "Unauthorized".to_owned())));
    }
    let letter = match service::read_body(body, MAX_BYTES, |_| Ok(())).await {
        Ok(letter) => letter,
        Err(status) => return Some(body::refusal(&status)),
    };
    let answer = letters.receive(letter).await;
    Some(body::encoded(StatusCode::OK, answer))
}

pub type Connection = SendRequest<Full<Bytes>>;

/// Takes letters to other servers, over one connection to each.
pub struct HttpCourier(Connections);

impl HttpCourier {
    pub fn new(env: Env) -> Self {
        Self(Connections::new(env))
    }
}

/// Connections with other servers, one to each.
#[derive(Clone)]
pub struct Connections {
    env: Env,
    /// By where they lead and whom they trust.
    open: Arc<Mutex<HashMap<(String, String), Connection>>>,
}

impl Connections {
    pub fn new(env: Env) -> Self {
        Self { env, open: Arc::default() }
    }

    pub async fn to(&self, to: &Registration) -> Result<Connection, String> {
        let key = (to.url.clone(), to.authorities.clone());
        let known = self.open.lock().get(&key).filter(|it| !it.is_closed()).cloned();
        if let Some(connection) = known {
            return Ok(connection);
        }
        let dialled = async { shake_hands(&self.env, connect(&self.env, to, b"h2").await?).await };
        let connection = tokio::select! {
            dialled = dialled => dialled?,
            () = self.env.clock.sleep(DIAL_LIMIT) => return Err("dialling took too long".to_owned()),
        };
        self.open.lock().insert(key, connection.clone());
        Ok(connection)
    }

    /// The next who asks gets another one.
    pub fn forget(&self, to: &Registration) {
        self.open.lock().remove(&(to.url.clone(), to.authorities.clone()));
    }
}

impl Courier for HttpCourier {
    fn deliver(&self, to: &Registration, letter: Bytes) -> BoxFuture<'static, Result<Bytes, Undelivered>> {
        let (connections, to) = (self.0.clone(), to.clone());
        Box::pin(async move {
            let connection = connections.to(&to).await.map_err(Undelivered::NotSent)?;
            let sent = tokio::select! {
                sent = post(connection, &to, letter) => sent,
                () = connections.env.clock.sleep(ANSWER_LIMIT) => {
                    Err(Undelivered::NoAnswer("it took too long".to_owned()))
                }
            };
            if sent.is_err() {
                connections.forget(&to);
            }
            sent
        })
    }
}

async fn post(mut connection: Connection, to: &Registration, letter: Bytes) -> Result<Bytes, Undelivered> {
    let not_sent = |error: &dyn std::fmt::Display| Undelivered::NotSent(error.to_string());
    let no_answer = |error: &dyn std::fmt::Display| Undelivered::NoAnswer(error.to_string());
    connection.ready().await.map_err(|error| not_sent(&error))?;
    let request = Request::post(format!("{}{PATH}", to.url))
        .header(header::AUTHORIZATION, format!("Bearer {}", to.secret))
        .body(Full::new(letter))
        .map_err(|error| not_sent(&error))?;
    let response = match connection.try_send_request(request).await {
        Ok(response) => response,
        // Given back, it was not sent.
        Err(mut error) => match error.take_message() {
            Some(_) => return Err(not_sent(error.error())),
            None => return Err(no_answer(error.error())),
        },
    };
    match response.status() {
        StatusCode::OK => {}
        // Whoever is there now is not who was meant.
        StatusCode::UNAUTHORIZED => return Err(not_sent(&"it refuses the secret")),
        other => return Err(no_answer(&other)),
    }
    let answer = Limited::new(response.into_body(), MAX_BYTES).collect().await;
    answer.map(|answer| answer.to_bytes()).map_err(|error| no_answer(&error))
}

/// A connection on which `protocol` is spoken, with nobody but the server that is meant.
pub async fn connect(env: &Env, to: &Registration, protocol: &[u8]) -> Result<impl env::Stream, String> {
    let uri: Uri = to.url.parse().map_err(|error| format!("{}: {error}", to.url))?;
    let host = uri.host().ok_or_else(|| format!("{} names no host", to.url))?.trim_matches(['[', ']']);
    let name = ServerName::try_from(host.to_owned()).map_err(|error| error.to_string())?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(to.authorities.as_bytes()) {
        let certificate = certificate.map_err(|error| format!("its authorities: {error:?}"))?;
        roots.add(certificate).map_err(|error| error.to_string())?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    let mut last = format!("{host} has no address");
    let addresses = env.network.resolve(host.to_owned(), uri.port_u16().unwrap_or(443)).await;
    for address in addresses.map_err(|error| error.to_string())? {
        match env.network.dial(address).await {
            Ok(stream) => {
                let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
                return stream.map_err(|error| error.to_string());
            }
            Err(error) => last = error.to_string(),
        }
    }
    Err(last)
}

async fn shake_hands(env: &Env, stream: impl env::Stream) -> Result<Connection, String> {
    let made = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_LIMIT)
        .handshake(TokioIo::new(stream))
        .await;
    let (connection, driver) = made.map_err(|error| error.to_string())?;
    env.tasks.spawn(Box::pin(async move {
        // Whoever uses the connection is told of its end.
        let _ = driver.await;
    }));
    Ok(connection)
}
