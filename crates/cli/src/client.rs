//! A small client of the API, for the CLI's own verbs.

use std::{net::ToSocketAddrs, sync::Arc};

use anyhow::{Context, anyhow, bail};
use bytes::Bytes;
use env::Env;
use http::{Method, Request, Response, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};
use serde_json::Value;
use tokio_rustls::TlsConnector;

use crate::kubeconfig::{Access, Identity};

/// More than any answer that is read whole.
const MAX_ANSWER: usize = 64 << 20;

/// Sends one request and reads the answer; a refusal becomes an error with the server's own message.
pub async fn call(
    env: &Env,
    access: &Access,
    method: Method,
    path: &str,
    body: Option<&Value>,
) -> anyhow::Result<Value> {
    let bytes = body.map(Value::to_string).unwrap_or_default();
    let response = send(env, access, method, path, "application/json", bytes.into()).await?;
    serde_json::from_slice(&whole(response).await?).context("the answer is not JSON")
}

/// As [`call`], for texts.
pub async fn call_text(
    env: &Env,
    access: &Access,
    method: Method,
    path: &str,
    body: String,
) -> anyhow::Result<String> {
    let response = send(env, access, method, path, "text/plain", body.into()).await?;
    Ok(String::from_utf8_lossy(&whole(response).await?).into_owned())
}

async fn whole(response: Response<Incoming>) -> anyhow::Result<Bytes> {
    let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await;
    Ok(body.map_err(|error| anyhow!(error)).context("answer cut off")?.to_bytes())
}

/// Sends one request; the answer is a success, and still to be read.
pub async fn send(
    env: &Env,
    access: &Access,
    method: Method,
    path: &str,
    content_type: &str,
    body: Bytes,
) -> anyhow::Result<Response<Incoming>> {
    let authority =
        access.server.strip_prefix("https://").ok_or_else(|| anyhow!("{} is not https", access.server))?;
    let address = with_port(authority)
        .to_socket_addrs()
        .with_context(|| format!("cannot find {authority}"))?
        .next()
        .ok_or_else(|| anyhow!("cannot find {authority}"))?;
    let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host).trim_matches(['[', ']']);
    let stream = env
        .network
        .dial(address)
        .await
        .with_context(|| format!("cannot reach {}; is it running?", access.server))?;
    let name = ServerName::try_from(host.to_owned()).context("bad server name")?;
    let tls =
        TlsConnector::from(Arc::new(config(access)?)).connect(name, stream).await.context("TLS failed")?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(tls)).await.context("HTTP failed")?;
    tokio::spawn(connection);
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, authority)
        .header(header::USER_AGENT, concat!("hanse/", env!("CARGO_PKG_VERSION")))
        .header(header::CONTENT_TYPE, content_type);
    if let Identity::Token(token) = &access.identity {
        request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
    }
    let response = sender.send_request(request.body(Full::new(body))?).await.context("request failed")?;
    if response.status().is_success() {
        return Ok(response);
    }
    let code = response.status();
    let refusal: Value = serde_json::from_slice(&whole(response).await?).unwrap_or_default();
    match refusal["message"].as_str() {
        Some(message) => bail!("{message}"),
        None => bail!("the server refused without a message: {code}"),
    }
}

fn with_port(authority: &str) -> String {
    let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    if has_port { authority.to_owned() } else { format!("{authority}:443") }
}

fn config(access: &Access) -> anyhow::Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&access.authority) {
        roots.add(certificate.context("bad authority certificate")?)?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots);
    match &access.identity {
        Identity::Token(_) => Ok(builder.with_no_client_auth()),
        Identity::Certificate { certificate, key } => {
            let chain = CertificateDer::pem_slice_iter(certificate)
                .collect::<Result<Vec<_>, _>>()
                .context("bad client certificate")?;
            let key = PrivateKeyDer::from_pem_slice(key).context("bad client key")?;
            Ok(builder.with_client_auth_cert(chain, key)?)
        }
    }
}
