//! The other side of the audit webhook: found by a kubeconfig file, called over HTTP.

use std::{path::Path, sync::Arc, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use env::{Env, Stream};
use http::{HeaderValue, Request, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};
use serde_json::Value;
use tokio_rustls::TlsConnector;

/// An answer says nothing; more of it than this is not read.
const MAX_ANSWER_BYTES: usize = 64 * 1024;
/// One attempt takes no longer.
const LIMIT: Duration = Duration::from_secs(30);

/// Somebody who takes lists of events.
pub struct Receiver {
    env: Env,
    uri: Uri,
    tls: Option<Arc<ClientConfig>>,
    /// The name its certificate must be good for.
    name: String,
    authorization: Option<HeaderValue>,
    idle: Mutex<Option<SendRequest<Full<Bytes>>>>,
}

impl Receiver {
    /// By the current context of the kubeconfig in `file`.
    pub fn open(env: &Env, file: &Path) -> Result<Receiver, String> {
        let bytes = env.files.read(file).map_err(|error| error.to_string())?;
        let text = String::from_utf8(bytes).map_err(|error| error.to_string())?;
        let config: Value = serde_saphyr::from_str(&text).map_err(|error| error.to_string())?;
        let entries = Entries { env, directory: file.parent().unwrap_or(Path::new("")), config: &config };
        let (cluster, user) = entries.current()?;
        let server = cluster.get("server").and_then(Value::as_str).unwrap_or_default();
        let uri: Uri = server.parse().map_err(|error| format!("server {server:?}: {error}"))?;
        let tls = match uri.scheme_str() {
            Some("https") => Some(Arc::new(entries.tls(cluster, user)?)),
            Some("http") => None,
            _ => return Err(format!("server {server:?}: want https://… or http://…")),
        };
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
        let name = cluster.get("tls-server-name").and_then(Value::as_str).unwrap_or(host).to_owned();
        let authorization = entries.authorization(user)?;
        Ok(Receiver { env: env.clone(), uri, tls, name, authorization, idle: Mutex::new(None) })
    }

    /// Posts a document; any answer of success will do.
    pub async fn send(&self, document: Bytes) -> Result<(), String> {
        tokio::select! {
            sent = self.post(document) => sent,
            () = self.env.clock.sleep(LIMIT) => Err(format!("no answer within {} seconds", LIMIT.as_secs())),
        }
    }

    async fn post(&self, document: Bytes) -> Result<(), String> {
        let kept = self.idle.lock().take().filter(SendRequest::is_ready);
        // A kept connection may have ended at the other side; a new one is tried then.
        if let Some(mut connection) = kept
            && let Ok(response) = connection.send_request(self.request(document.clone())?).await
        {
            return self.finish(connection, response).await;
        }
        let mut connection = self.connect().await?;
        let response = connection.send_request(self.request(document)?).await;
        self.finish(connection, response.map_err(|error| error.to_string())?).await
    }

    fn request(&self, document: Bytes) -> Result<Request<Full<Bytes>>, String> {
        let path = self.uri.path_and_query().map_or("/", |path| path.as_str());
        let host = self.uri.authority().map(ToString::to_string).unwrap_or_default();
        let mut request = Request::post(path)
            .header(header::HOST, host)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::USER_AGENT, concat!("hanse/", env!("CARGO_PKG_VERSION")));
        if let Some(authorization) = &self.authorization {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        request.body(Full::new(document)).map_err(|error| error.to_string())
    }

    async fn finish(
        &self,
        connection: SendRequest<Full<Bytes>>,
        response: http::Response<hyper::body::Incoming>,
    ) -> Result<(), String> {
        let code = response.status();
        let read = Limited::new(response.into_body(), MAX_ANSWER_BYTES).collect().await;
        if !code.is_success() {
            return Err(format!("answered {code}"));
        }
        if read.is_ok() {
            *self.idle.lock() = Some(connection);
        }
        Ok(())
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, String> {
        let host = self.uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let port = self.uri.port_u16().unwrap_or(if self.tls.is_some() { 443 } else { 80 });
        let network = &self.env.network;
        let addresses = network.resolve(host, port).await.map_err(|error| error.to_string())?;
        let mut last = "no address".to_owned();
        for address in addresses {
            match network.dial(address).await {
                Ok(stream) => return self.speak(stream).await,
                Err(error) => last = error.to_string(),
            }
        }
        Err(last)
    }

    async fn speak(&self, stream: Box<dyn Stream>) -> Result<SendRequest<Full<Bytes>>, String> {
        let stream: Box<dyn Stream> = match &self.tls {
            None => stream,
            Some(config) => {
                let name = ServerName::try_from(self.name.clone()).map_err(|error| error.to_string())?;
                let connected = TlsConnector::from(config.clone()).connect(name, stream).await;
                Box::new(connected.map_err(|error| error.to_string())?)
            }
        };
        let (connection, driver) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
        self.env.tasks.spawn(Box::pin(async move {
            // Whoever uses the connection is told of its end.
            let _ = driver.await;
        }));
        Ok(connection)
    }
}

/// A kubeconfig, and where the files that it names are found.
struct Entries<'a> {
    env: &'a Env,
    directory: &'a Path,
    config: &'a Value,
}

impl<'a> Entries<'a> {
    /// The cluster and the user of the current context; without one, the only ones there are.
    fn current(&self) -> Result<(&'a Value, &'a Value), String> {
        let current = self.config.get("current-context").and_then(Value::as_str).unwrap_or_default();
        let context = match current {
            "" => None,
            name => Some(self.named("contexts", "context", name)?),
        };
        let part = |key: &str| context.and_then(|it| it.get(key)).and_then(Value::as_str);
        let cluster = match part("cluster") {
            Some(name) => self.named("clusters", "cluster", name)?,
            None => self.only("clusters", "cluster").ok_or("no current-context, and not just one cluster")?,
        };
        let user = match part("user") {
            Some("") | None => self.only("users", "user").unwrap_or(&Value::Null),
            Some(name) => self.named("users", "user", name)?,
        };
        Ok((cluster, user))
    }

    fn named(&self, list: &str, key: &str, name: &str) -> Result<&'a Value, String> {
        let entries = self.config.get(list).and_then(Value::as_array).into_iter().flatten();
        let mut entries = entries.filter(|entry| entry.get("name").and_then(Value::as_str) == Some(name));
        entries.next().and_then(|entry| entry.get(key)).ok_or_else(|| format!("no {key} {name:?}"))
    }

    fn only(&self, list: &str, key: &str) -> Option<&'a Value> {
        match self.config.get(list)?.as_array()?.as_slice() {
            [one] => one.get(key),
            _ => None,
        }
    }

    /// What `<key>-data` holds in base64, or the file named by `key`.
    fn content(&self, entry: &Value, key: &str) -> Result<Option<Vec<u8>>, String> {
        let text = |key: &str| entry.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
        if let Some(data) = text(&format!("{key}-data")) {
            return STANDARD.decode(data).map(Some).map_err(|error| format!("{key}-data: {error}"));
        }
        let Some(file) = text(key) else { return Ok(None) };
        let bytes = self.env.files.read(&self.directory.join(file));
        bytes.map(Some).map_err(|error| format!("{key} {file}: {error}"))
    }

    fn tls(&self, cluster: &Value, user: &Value) -> Result<ClientConfig, String> {
        if cluster.get("insecure-skip-tls-verify").and_then(Value::as_bool) == Some(true) {
            return Err("insecure-skip-tls-verify is not supported: name a certificate-authority".into());
        }
        let mut roots = RootCertStore::empty();
        match self.content(cluster, "certificate-authority")? {
            Some(pem) => {
                for certificate in CertificateDer::pem_slice_iter(&pem) {
                    let certificate =
                        certificate.map_err(|error| format!("certificate-authority: {error}"))?;
                    roots.add(certificate).map_err(|error| format!("certificate-authority: {error}"))?;
                }
            }
            None => {
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots);
        let identity = (self.content(user, "client-certificate")?, self.content(user, "client-key")?);
        let (Some(certificate), Some(key)) = identity else { return Ok(builder.with_no_client_auth()) };
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&certificate).collect();
        let chain = chain.map_err(|error| format!("client-certificate: {error}"))?;
        let key = PrivateKeyDer::from_pem_slice(&key).map_err(|error| format!("client-key: {error}"))?;
        builder.with_client_auth_cert(chain, key).map_err(|error| format!("client-certificate: {error}"))
    }

    fn authorization(&self, user: &Value) -> Result<Option<HeaderValue>, String> {
        let text = |key: &str| user.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
        let token = match (text("token"), text("tokenFile")) {
            (Some(token), _) => Some(token.to_owned()),
            (None, Some(file)) => {
                let bytes = self.env.files.read(&self.directory.join(file));
                let bytes = bytes.map_err(|error| format!("tokenFile {file}: {error}"))?;
                Some(String::from_utf8_lossy(&bytes).trim().to_owned())
            }
            (None, None) => None,
        };
        let value = match (token, text("username")) {
            (Some(token), _) => format!("Bearer {token}"),
            (None, Some(name)) => {
                let pair = format!("{name}:{}", text("password").unwrap_or_default());
                format!("Basic {}", STANDARD.encode(pair))
            }
            (None, None) => return Ok(None),
        };
        let mut value = HeaderValue::from_str(&value).map_err(|_| "the token is no header value")?;
        value.set_sensitive(true);
        Ok(Some(value))
    }
}
