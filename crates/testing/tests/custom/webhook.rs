//! A conversion webhook on this machine.

use std::{convert::Infallible, sync::Arc};

use anyhow::Result;
use base64::{Engine, prelude::BASE64_STANDARD};
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use rustls::pki_types::{PrivateKeyDer, pem::PemObject};
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_rustls::TlsAcceptor;

/// Given an object and the version it is wanted in.
pub type Convert = fn(&mut Value, &str);

pub struct Webhook {
    pub url: String,
    /// In base 64.
    pub ca_bundle: String,
    serving: JoinHandle<()>,
}

/// What is `size` in `v1` is `width` in `v2`.
pub fn rename_size(object: &mut Value, wanted: &str) {
    let (from, to) = if wanted.ends_with("v2") { ("size", "width") } else { ("width", "size") };
    if let Some(value) = object["spec"].as_object_mut().and_then(|spec| spec.remove(from)) {
        object["spec"][to] = value;
    }
}

/// No webhook may do this.
pub fn rename_the_object(object: &mut Value, _: &str) {
    object["metadata"]["name"] = json!("another");
}

impl Webhook {
    pub async fn start(convert: Convert) -> Result<Webhook> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("https://127.0.0.1:{}/convert", listener.local_addr()?.port());
        let certified = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
        let key = PrivateKeyDer::from_pem_slice(certified.signing_key.serialize_pem().as_bytes())?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certified.cert.der().clone()], key)?;
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let serving = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                connections.spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let answer = service_fn(move |request| answer(request, convert));
                    // A client that hangs up ends it.
                    drop(http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await);
                });
            }
        });
        Ok(Webhook { url, ca_bundle: BASE64_STANDARD.encode(certified.cert.pem()), serving })
    }

    pub async fn stop(self) {
        self.serving.abort();
        drop(self.serving.await);
    }
}

async fn answer(
    request: Request<Incoming>,
    convert: Convert,
) -> Result<Response<Full<bytes::Bytes>>, Infallible> {
    let body = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let mut review: Value = serde_json::from_slice(&body).unwrap_or_default();
    let wanted = review["request"]["desiredAPIVersion"].as_str().unwrap_or_default().to_owned();
    let mut objects = review["request"]["objects"].take();
    for object in objects.as_array_mut().into_iter().flatten() {
        convert(object, &wanted);
        object["apiVersion"] = json!(wanted);
    }
    let answer = json!({
        "kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1",
        "response": {
            "uid": review["request"]["uid"], "convertedObjects": objects, "result": {"status": "Success"},
        },
    });
    Ok(Response::new(Full::new(answer.to_string().into())))
}
