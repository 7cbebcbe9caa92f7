//! The load client: HTTP/2 over TLS with a client certificate, set up as Go's client sets up its own.

use std::{net::SocketAddr, sync::Arc};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http::{Method, StatusCode, Uri, header, uri::Scheme};
use http_body_util::{BodyExt, Full};
use hyper::{
    Response,
    body::Incoming,
    client::conn::http2::{self, SendRequest},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::{CertificateDer, IpAddr, PrivateKeyDer, ServerName, pem::PemObject};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

pub type Request = http::Request<Full<Bytes>>;

/// Flow control as Go's HTTP/2 client advertises it, so that a server is not helped or hindered by ours.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 1 << 30;

/// Why a request did not do what it should.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Answered, but not with 2xx. The server is still there.
    #[error("{status}: {message}")]
    Refused { status: StatusCode, message: String },
    /// No answer: the connection is gone, and with it every later request.
    #[error("connection: {0}")]
    Broken(#[from] hyper::Error),
    /// 2xx, but not the answer that was asked for.
    #[error("{0}")]
    Unexpected(String),
}

/// A server and somebody's credentials for it.
#[derive(Clone)]
pub struct Endpoint {
    /// `https://ADDRESS:PORT`
    server: String,
    /// Of the API within the server: empty, or `/clusters/NAME`.
    prefix: String,
    address: SocketAddr,
    roots: Arc<rustls::RootCertStore>,
    tls: TlsConnector,
}

impl Endpoint {
    /// `url` is `https://ADDRESS:PORT`, perhaps with a path; the rest is PEM.
    pub fn new(url: &str, ca: &str, certificate: &str, key: &str) -> Result<Self> {
        let uri: Uri = url.parse().with_context(|| format!("not a URL: {url}"))?;
        ensure!(uri.scheme() == Some(&Scheme::HTTPS), "a server's URL starts with https://, not {url}");
        let address = uri.authority().context("a URL without a server")?.as_str();
        let address: SocketAddr = address.parse().with_context(|| format!("not an address: {address}"))?;
        let prefix = uri.path().trim_end_matches('/').to_owned();
        let mut roots = rustls::RootCertStore::empty();
        for ca in CertificateDer::pem_slice_iter(ca.as_bytes()) {
            roots.add(ca?)?;
        }
        let roots = Arc::new(roots);
        let tls = connector(&roots, certificate, key)?;
        Ok(Self { server: format!("https://{address}"), prefix, address, roots, tls })
    }

    /// The same server as somebody else.
    pub fn with_identity(&self, certificate: &str, key: &str) -> Result<Self> {
        Ok(Self { tls: connector(&self.roots, certificate, key)?, ..self.clone() })
    }

    /// Of the API.
    pub fn uri(&self, path_and_query: &str) -> Result<Uri> {
        Ok(format!("{}{}{path_and_query}", self.server, self.prefix).parse()?)
    }

    /// Of the server itself.
    pub fn server_uri(&self, path: &str) -> Result<Uri> {
        Ok(format!("{}{path}", self.server).parse()?)
    }

    pub async fn connect(&self) -> Result<Connection> {
        let socket = TcpStream::connect(self.address).await?;
        socket.set_nodelay(true)?;
        let name = ServerName::IpAddress(IpAddr::from(self.address.ip()));
        let stream = self.tls.connect(name, socket).await?;
        ensure!(stream.get_ref().1.alpn_protocol() == Some(b"h2"), "the server does not speak HTTP/2");
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .handshake(TokioIo::new(stream))
            .await?;
        // It ends with an error when the server goes; its requests then fail with the same one.
        tokio::spawn(async move { drop(connection.await) });
        Ok(Connection { sender })
    }

    pub async fn connect_many(&self, count: usize) -> Result<Vec<Connection>> {
        let mut connections = Vec::with_capacity(count);
        for _ in 0..count {
            connections.push(self.connect().await?);
        }
        Ok(connections)
    }
}

fn connector(roots: &Arc<rustls::RootCertStore>, certificate: &str, key: &str) -> Result<TlsConnector> {
    let chain = CertificateDer::pem_slice_iter(certificate.as_bytes()).collect::<Result<Vec<_>, _>>()?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(Arc::clone(roots))
        .with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(key.as_bytes())?)?;
    tls.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Arc::new(tls).into())
}

/// Clones share the connection.
#[derive(Clone)]
pub struct Connection {
    sender: SendRequest<Full<Bytes>>,
}

impl Connection {
    /// Whether nothing can be asked here any more.
    pub fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Sends the request and returns when the answer begins.
    pub async fn open(&mut self, request: Request) -> Result<Response<Incoming>, Failure> {
        let response = self.sender.send_request(request).await?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let body = response.into_body().collect().await?.to_bytes();
        let message = String::from_utf8_lossy(&body).chars().take(300).collect();
        Err(Failure::Refused { status, message })
    }

    /// Sends the request and returns the whole answer.
    pub async fn call(&mut self, request: Request) -> Result<Bytes, Failure> {
        Ok(self.open(request).await?.into_body().collect().await?.to_bytes())
    }
}

/// A request without a body.
pub fn get(uri: Uri) -> Request {
    bare(Method::GET, uri)
}

/// A request without a body.
pub fn bare(method: Method, uri: Uri) -> Request {
    let mut request = Request::new(Full::default());
    *request.method_mut() = method;
    *request.uri_mut() = uri;
    request.headers_mut().insert(header::ACCEPT, header::HeaderValue::from_static("application/json"));
    request
}

pub fn with_body(method: Method, uri: Uri, content_type: &'static str, body: Bytes) -> Request {
    let mut request = bare(method, uri);
    request.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(content_type));
    *request.body_mut() = Full::new(body);
    request
}
