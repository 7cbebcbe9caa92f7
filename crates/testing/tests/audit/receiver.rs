//! Somebody who takes audit events, over https on this machine, and may misbehave.

use std::{
    convert::Infallible,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use anyhow::Result;
use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use rustls::pki_types::{PrivateKeyDer, pem::PemObject};
use serde_json::{Value, json};
use tokio::{
    net::TcpListener,
    sync::mpsc,
    task::{JoinHandle, JoinSet},
};
use tokio_rustls::TlsAcceptor;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    Well,
    /// Says 500 this many times first.
    FailsFirst(usize),
    /// Never answers.
    Hangs,
    /// Answers with a page of nonsense, and a success.
    Rambles,
    AlwaysFails,
}

pub struct Receiver {
    pub url: String,
    authority: String,
    /// Every list that came in whole, with its Authorization.
    pub lists: mpsc::UnboundedReceiver<(String, Value)>,
    serving: JoinHandle<()>,
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Receiver {
    pub async fn start(manner: Manner) -> Result<Receiver> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("https://127.0.0.1:{}/events?who=hanse", listener.local_addr()?.port());
        let certified = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
        let key = PrivateKeyDer::from_pem_slice(certified.signing_key.serialize_pem().as_bytes())?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certified.cert.der().clone()], key)?;
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let (sender, lists) = mpsc::unbounded_channel();
        let calls = Arc::new(AtomicUsize::new(0));
        let serving = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, sender, calls) = (acceptor.clone(), sender.clone(), calls.clone());
                connections.spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let answer =
                        service_fn(move |request| answer(request, manner, calls.clone(), sender.clone()));
                    // A client that hangs up ends it.
                    drop(http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await);
                });
            }
        });
        let authority = BASE64_STANDARD.encode(certified.cert.pem());
        Ok(Receiver { url, authority, lists, serving })
    }

    pub fn write_config(&self, file: &Path) -> Result<()> {
        let cluster = json!({"server": self.url, "certificate-authority-data": self.authority});
        let config = json!({
            "kind": "Config", "apiVersion": "v1", "current-context": "it",
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": {"token": "the-token"}}],
            "contexts": [{"name": "it", "context": {"cluster": "c", "user": "u"}}],
        });
        Ok(std::fs::write(file, config.to_string())?)
    }
}

async fn answer(
    request: Request<Incoming>,
    manner: Manner,
    calls: Arc<AtomicUsize>,
    lists: mpsc::UnboundedSender<(String, Value)>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let authorization = request.headers().get("authorization").and_then(|value| value.to_str().ok());
    let authorization = authorization.unwrap_or_default().to_owned();
    let body = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let code = |code, text: &'static str| {
        let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
        *response.status_mut() = code;
        Ok(response)
    };
    let call = calls.fetch_add(1, Ordering::Relaxed);
    match manner {
        Manner::Hangs => std::future::pending().await,
        Manner::AlwaysFails => return code(StatusCode::INTERNAL_SERVER_ERROR, "no"),
        Manner::FailsFirst(times) if call < times => {
            return code(StatusCode::INTERNAL_SERVER_ERROR, "later");
        }
        _ => {}
    }
    // The test may be over.
    let _ = lists.send((authorization, serde_json::from_slice(&body).unwrap_or_default()));
    match manner {
        Manner::Rambles => code(StatusCode::OK, "<html>thank you, dear client</html>"),
        _ => code(StatusCode::OK, ""),
    }
}
