//! Asking somebody else: a JSON document is posted to a webhook, and its answer is another.
//!
//! Connections are kept and used again; what is kept is found by where it leads and whom it trusts.

use std::{collections::HashMap, sync::Arc, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use env::Env;
use http::{Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use machinery::definition::WebhookClient;
use parking_lot::Mutex;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use serde_json::Value;
use tokio_rustls::TlsConnector;

/// An answer larger than this is refused.
const MAX_ANSWER_BYTES: usize = 16 * 1024 * 1024;
/// Idle connections kept to one place.
const IDLE: usize = 8;

/// Where a webhook is, as `clientConfig` says.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    pub url: String,
    /// PEM; empty: whom this machine trusts.
    pub ca_bundle: Vec<u8>,
}

impl Target {
    pub fn of(client: &WebhookClient) -> Result<Target, Error> {
        let ca_bundle = STANDARD.decode(&client.ca_bundle);
        let ca_bundle = ca_bundle.map_err(|error| Error::Target(format!("caBundle: {error}")))?;
        match (&client.url, &client.service) {
            (Some(url), _) => Ok(Target { url: url.clone(), ca_bundle }),
            (None, Some(service)) => Err(Error::Target(format!(
                "the service {}/{} runs on no cluster that this server can reach; use `url`",
                service.namespace, service.name
            ))),
            (None, None) => Err(Error::Target("neither `url` nor `service` is given".into())),
        }
    }
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration leads nowhere; trying again does not help.
    #[error("{0}")]
    Target(String),
    /// It cannot be reached, or broke off. Try again.
    #[error("{0}")]
    Unreachable(String),
    #[error("no answer within {} seconds", .0.as_secs())]
    TimedOut(Duration),
    /// It answered, but not what was asked.
    #[error("{0}")]
    Answer(String),
}

type Connection = SendRequest<Full<Bytes>>;

/// Calls webhooks.
#[derive(Default)]
pub struct Webhooks {
    idle: Mutex<HashMap<Target, Vec<Connection>>>,
}

impl Webhooks {
    pub async fn call(
        &self,
        env: &Env,
        target: &Target,
        document: &Value,
        limit: Duration,
    ) -> Result<Value, Error> {
        let timer = env.clock.sleep(limit);
        tokio::select! {
            answer = self.post(env, target, Bytes::from(document.to_string())) => answer,
            () = timer => Err(Error::TimedOut(limit)),
        }
    }

    async fn post(&self, env: &Env, target: &Target, body: Bytes) -> Result<Value, Error> {
        let uri: Uri =
            target.url.parse().map_err(|error| Error::Target(format!("{}: {error}", target.url)))?;
        let host = uri.authority().map(ToString::to_string).unwrap_or_default();
        let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        let request = || {
            Request::post(path.as_str())
                .header(header::HOST, &host)
                .header(header::CONTENT_TYPE, "application/json")
                .header(header::ACCEPT, "application/json")
                .body(Full::new(body.clone()))
                .map_err(|error| Error::Target(error.to_string()))
        };
        // A kept connection may have ended at the other side; a new one is tried then.
        let kept = self.idle.lock().get_mut(target).and_then(Vec::pop);
        if let Some(mut connection) = kept.filter(SendRequest::is_ready)
            && let Ok(response) = connection.send_request(request()?).await
        {
            return self.finish(target, connection, response).await;
        }
        let mut connection = connect(env, target, &uri).await?;
        let response = connection.send_request(request()?).await;
        let response = response.map_err(|error| Error::Unreachable(error.to_string()))?;
        self.finish(target, connection, response).await
    }

    async fn finish(
        &self,
        target: &Target,
        connection: Connection,
        response: http::Response<hyper::body::Incoming>,
    ) -> Result<Value, Error> {
        let code = response.status();
        let body = Limited::new(response.into_body(), MAX_ANSWER_BYTES).collect().await;
        let bytes = body.map_err(|error| Error::Unreachable(error.to_string()))?.to_bytes();
        if code != StatusCode::OK {
            let text: String = String::from_utf8_lossy(&bytes).chars().take(200).collect();
            return Err(Error::Answer(format!("answered {code}: {}", text.trim())));
        }
        let mut idle = self.idle.lock();
        let kept = idle.entry(target.clone()).or_default();
        if kept.len() < IDLE {
            kept.push(connection);
        }
        drop(idle);
        serde_json::from_slice(&bytes).map_err(|error| Error::Answer(error.to_string()))
    }
}

async fn connect(env: &Env, target: &Target, uri: &Uri) -> Result<Connection, Error> {
    if uri.scheme_str() != Some("https") {
        return Err(Error::Target(format!("{}: only https is called", target.url)));
    }
    let unreachable = |error: std::io::Error| Error::Unreachable(format!("{}: {error}", target.url));
    let host = uri.host().unwrap_or_default().to_owned();
    let port = uri.port_u16().unwrap_or(443);
    let addresses = env.network.resolve(host.clone(), port).await.map_err(unreachable)?;
    let mut last = None;
    for address in addresses {
        match env.network.dial(address).await {
            Ok(stream) => {
                let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned())
                    .map_err(|error| Error::Target(format!("{host}: {error}")))?;
                let tls = TlsConnector::from(Arc::new(trust(target)?));
                let stream = tls.connect(name, stream).await.map_err(unreachable)?;
                let (connection, driver) = http1::handshake(TokioIo::new(stream))
                    .await
                    .map_err(|error| Error::Unreachable(error.to_string()))?;
                env.tasks.spawn(Box::pin(async move {
                    // Whoever uses the connection is told of its end.
                    let _ = driver.await;
                }));
                return Ok(connection);
            }
            Err(error) => last = Some(error),
        }
    }
    Err(unreachable(last.unwrap_or_else(|| std::io::ErrorKind::NotFound.into())))
}

/// Trusts the bundle, or whom this machine trusts if there is none.
fn trust(target: &Target) -> Result<ClientConfig, Error> {
    let mut roots = RootCertStore::empty();
    if target.ca_bundle.is_empty() {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    } else {
        for certificate in CertificateDer::pem_slice_iter(&target.ca_bundle) {
            let certificate = certificate.map_err(|error| Error::Target(format!("caBundle: {error}")))?;
            roots.add(certificate).map_err(|error| Error::Target(format!("caBundle: {error}")))?;
        }
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::Target(error.to_string()))?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}
