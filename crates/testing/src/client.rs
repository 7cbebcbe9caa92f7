//! An HTTP/2 client for tests: requests with their whole answers, and watches line by line.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use anyhow::{Context, Result, anyhow};
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, client::conn::http2::SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
    time_provider::{DefaultTimeProvider, TimeProvider},
};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::patience::STANDSTILL;

/// One connection to a server, as one user.
#[derive(Clone)]
pub struct Client {
    sender: SendRequest<Full<Bytes>>,
    authority: String,
}

/// An answer, read to its end.
#[derive(Clone, Debug)]
pub struct Answer {
    pub code: StatusCode,
    pub headers: HeaderMap,
    pub bytes: Bytes,
}

impl Answer {
    /// The body as JSON; null if it is not.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.bytes).unwrap_or_default()
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }
}

/// TLS as a client with a certificate, or as nobody.
pub fn tls(ca_pem: &str, identity: Option<(&str, &str)>, alpn: &[&str]) -> Result<ClientConfig> {
    tls_at(Arc::new(DefaultTimeProvider), ca_pem, identity, alpn)
}

/// The same, by another clock than this machine's.
pub fn tls_at(
    time: Arc<dyn TimeProvider>,
    ca_pem: &str,
    identity: Option<(&str, &str)>,
    alpn: &[&str],
) -> Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(ca_pem.as_bytes()) {
        roots.add(certificate?)?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_details(provider, time)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots);
    let mut config = match identity {
        Some((certificate, key)) => {
            let chain =
                CertificateDer::pem_slice_iter(certificate.as_bytes()).collect::<Result<Vec<_>, _>>()?;
            builder.with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(key.as_bytes())?)?
        }
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = alpn.iter().map(|it| it.as_bytes().to_vec()).collect();
    Ok(config)
}

fn authority(url: &str) -> Result<&str> {
    url.strip_prefix("https://").ok_or_else(|| anyhow!("{url} is not https"))
}

/// A TLS connection that says nothing yet, for those who speak HTTP by hand.
pub async fn dial(
    url: &str,
    ca_pem: &str,
    identity: Option<(&str, &str)>,
    alpn: &str,
) -> Result<TlsStream<TcpStream>> {
    let authority = authority(url)?;
    let stream = TcpStream::connect(authority).await.with_context(|| format!("connecting to {url}"))?;
    stream.set_nodelay(true)?;
    let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
    let config = Arc::new(tls(ca_pem, identity, &[alpn])?);
    Ok(TlsConnector::from(config).connect(ServerName::try_from(host.to_owned())?, stream).await?)
}

impl Client {
    /// `url` is `https://host:port`; `identity` a certificate and its key.
    pub async fn connect(url: &str, ca_pem: &str, identity: Option<(&str, &str)>) -> Result<Client> {
        Self::connect_with_window(url, ca_pem, identity, 1 << 20).await
    }

    /// `window`: how many bytes of one answer the server may send ahead of its reader.
    pub async fn connect_with_window(
        url: &str,
        ca_pem: &str,
        identity: Option<(&str, &str)>,
        window: u32,
    ) -> Result<Client> {
        let stream = dial(url, ca_pem, identity, "h2").await?;
        Self::speak(stream, authority(url)?, window).await
    }

    /// Over a stream that is connected already, such as one of a simulated network.
    pub async fn over(stream: impl env::Stream, authority: &str, config: ClientConfig) -> Result<Client> {
        let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
        let name = ServerName::try_from(host.to_owned())?;
        let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
        Self::speak(stream, authority, 1 << 20).await
    }

    async fn speak(stream: impl env::Stream, authority: &str, window: u32) -> Result<Client> {
        let (sender, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(window)
            .initial_connection_window_size(1 << 24)
            .handshake(TokioIo::new(stream))
            .await?;
        tokio::spawn(connection);
        Ok(Client { sender, authority: authority.to_owned() })
    }

    /// The server has hung up.
    pub fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    pub async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Result<Response<Incoming>> {
        let mut request = Request::builder().method(method).uri(format!("https://{}{path}", self.authority));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut sender = self.sender.clone();
        sender.ready().await?;
        Ok(sender.send_request(request.body(Full::new(body.into()))?).await?)
    }

    pub async fn call(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Result<Answer> {
        let response = self.send(method, path, headers, body).await?;
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await?.to_bytes();
        Ok(Answer { code: parts.status, headers: parts.headers, bytes })
    }

    pub async fn get(&self, path: &str) -> Result<Answer> {
        self.call(Method::GET, path, &[], Bytes::new()).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Result<Answer> {
        self.call(Method::POST, path, &[("content-type", "application/json")], body.to_string()).await
    }

    pub async fn put(&self, path: &str, body: &Value) -> Result<Answer> {
        self.call(Method::PUT, path, &[("content-type", "application/json")], body.to_string()).await
    }

    pub async fn merge_patch(&self, path: &str, body: &Value) -> Result<Answer> {
        let content_type = ("content-type", "application/merge-patch+json");
        self.call(Method::PATCH, path, &[content_type], body.to_string()).await
    }

    pub async fn delete(&self, path: &str) -> Result<Answer> {
        self.call(Method::DELETE, path, &[], Bytes::new()).await
    }

    /// Opens a watch; `path` has its query. A refusal is an error with the answer's text.
    pub async fn watch(&self, path: &str) -> Result<Lines> {
        self.watch_as(path, &[]).await
    }

    pub async fn watch_as(&self, path: &str, headers: &[(&str, &str)]) -> Result<Lines> {
        let response = self.send(Method::GET, path, headers, Bytes::new()).await?;
        if response.status() != StatusCode::OK {
            let code = response.status();
            let bytes = response.into_body().collect().await?.to_bytes();
            return Err(anyhow!("{code}: {}", String::from_utf8_lossy(&bytes)));
        }
        Ok(Lines { body: response.into_body(), rest: BytesMut::new() })
    }
}

/// An event small enough to keep very many of: its revision, and a hash of its line.
pub type Fingerprint = (u64, u64);

pub fn fingerprint(line: &[u8]) -> Fingerprint {
    const MEMBER: &[u8] = br#""resourceVersion":""#;
    let start =
        line.windows(MEMBER.len()).position(|window| window == MEMBER).map_or(0, |at| at + MEMBER.len());
    let digits = line[start..].iter().take_while(|byte| byte.is_ascii_digit());
    let revision = digits.fold(0, |number, digit| number * 10 + u64::from(digit - b'0'));
    let mut hasher = DefaultHasher::new();
    line.hash(&mut hasher);
    (revision, hasher.finish())
}

/// The lines of a watch.
pub struct Lines {
    body: Incoming,
    rest: BytesMut,
}

impl Lines {
    /// The next event; `None` at the end of the stream.
    pub async fn next(&mut self) -> Result<Option<Value>> {
        let line = self.next_line().await?;
        line.map(|line| serde_json::from_slice(&line).context("a line that is not JSON")).transpose()
    }

    /// The next event as it came, for those who compare many.
    pub async fn next_line(&mut self) -> Result<Option<Bytes>> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                return Ok(Some(self.rest.split_to(end + 1).freeze()));
            }
            match self.body.frame().await {
                Some(frame) => {
                    if let Ok(data) = frame?.into_data() {
                        self.rest.extend_from_slice(&data);
                    }
                }
                None => return Ok(None),
            }
        }
    }

    /// The next event, however long that takes on a virtual clock.
    pub async fn expect_virtual(&mut self) -> Result<Value> {
        self.next().await?.ok_or_else(|| anyhow!("the watch ended"))
    }

    /// The next event, which must come.
    pub async fn expect(&mut self) -> Result<Value> {
        let next = tokio::time::timeout(STANDSTILL, self.next());
        next.await.context("no event came")??.ok_or_else(|| anyhow!("the watch ended"))
    }
}
