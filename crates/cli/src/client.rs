//! A small client of the API, for the CLI's own verbs.

use std::{net::ToSocketAddrs, sync::Arc};

use anyhow::{Context, anyhow, bail};
use bytes::Bytes;
use env::Env;
use http::{Method, Request, header};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};
use serde_json::Value;
use tokio_rustls::TlsConnector;

use crate::kubeconfig::Access;

/// Sends one request and reads the answer; a refusal becomes an error with the server's own message.
pub async fn call(
    env: &Env,
    access: &Access,
    method: Method,
    path: &str,
    body: Option<&Value>,
) -> anyhow::Result<Value> {
    let authority =
        access.server.strip_prefix("https://").ok_or_else(|| anyhow!("{} is not https", access.server))?;
    let address = authority
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
    let bytes = body.map(Value::to_string).unwrap_or_default();
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, authority)
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::from(bytes)))?;
    let response = sender.send_request(request).await.context("request failed")?;
    let succeeded = response.status().is_success();
    let bytes = response.into_body().collect().await.context("answer cut off")?.to_bytes();
    let value: Value = serde_json::from_slice(&bytes).context("the answer is not JSON")?;
    if !succeeded {
        bail!("{}", value["message"].as_str().unwrap_or("the server refused without a message"));
    }
    Ok(value)
}

fn config(access: &Access) -> anyhow::Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&access.authority) {
        roots.add(certificate.context("bad authority certificate")?)?;
    }
    let chain = CertificateDer::pem_slice_iter(&access.certificate)
        .collect::<Result<Vec<_>, _>>()
        .context("bad client certificate")?;
    let key = PrivateKeyDer::from_pem_slice(&access.key).context("bad client key")?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    Ok(ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, key)?)
}
