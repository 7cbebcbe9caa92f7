//! A webhook on this machine, over https: it answers as it is told, also badly, and remembers what it was asked.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use anyhow::Result;
use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::{
    body::{Frame, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::{PrivateKeyDer, pem::PemObject};
use serde_json::Value;
use std::sync::Mutex;
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_rustls::TlsAcceptor;

/// What a webhook is asked.
#[derive(Clone, Debug)]
pub struct Asked {
    /// With the query.
    pub path: String,
    pub body: Value,
}

/// What comes back.
#[derive(Clone, Debug)]
pub enum Reply {
    Json(Value),
    /// A code, a content type, and whatever body.
    Raw(StatusCode, &'static str, Bytes),
    /// The same for somebody who is to come back after so many seconds.
    Later(StatusCode, u32),
    /// Whoever follows it is led astray.
    Redirect(String),
    /// Nothing, ever.
    Nothing,
    /// The beginning of an answer, and then nothing.
    Beginning(Bytes),
    /// The connection ends instead.
    Close,
}

type Answer = dyn Fn(&Asked) -> Reply + Send + Sync;

pub struct Webhook {
    /// `https://127.0.0.1:port`
    pub url: String,
    /// In base 64.
    pub ca_bundle: String,
    asked: Arc<Mutex<Vec<Asked>>>,
    serving: JoinHandle<()>,
}

impl Webhook {
    pub async fn start(answer: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> Result<Webhook> {
        Self::start_as(CertificateParams::new(["127.0.0.1".to_owned()])?, answer).await
    }

    /// With another certificate, such as one that has expired.
    pub async fn start_as(
        certificate: CertificateParams,
        answer: impl Fn(&Asked) -> Reply + Send + Sync + 'static,
    ) -> Result<Webhook> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("https://127.0.0.1:{}", listener.local_addr()?.port());
        let signing_key = KeyPair::generate()?;
        let certificate = certificate.self_signed(&signing_key)?;
        let key = PrivateKeyDer::from_pem_slice(signing_key.serialize_pem().as_bytes())?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)?;
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let asked: Arc<Mutex<Vec<Asked>>> = Arc::default();
        let (answer, seen): (Arc<Answer>, _) = (Arc::new(answer), asked.clone());
        let serving = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, answer, seen) = (acceptor.clone(), answer.clone(), seen.clone());
                connections.spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let serve = service_fn(move |request| serve(request, answer.clone(), seen.clone()));
                    // A client that hangs up ends it.
                    drop(http1::Builder::new().serve_connection(TokioIo::new(stream), serve).await);
                });
            }
        });
        Ok(Webhook { url, ca_bundle: BASE64_STANDARD.encode(certificate.pem()), asked, serving })
    }

    /// What it was asked since it was last looked at.
    pub fn take(&self) -> Vec<Asked> {
        std::mem::take(&mut *self.asked.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
    }

    pub async fn stop(self) {
        self.serving.abort();
        drop(self.serving.await);
    }
}

async fn serve(
    request: Request<Incoming>,
    answer: Arc<Answer>,
    seen: Arc<Mutex<Vec<Asked>>>,
) -> std::io::Result<Response<Sent>> {
    let path = request.uri().to_string();
    let bytes = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let asked = Asked { path, body: serde_json::from_slice(&bytes).unwrap_or_default() };
    seen.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(asked.clone());
    let response = |code: StatusCode, content_type: &str, body: Sent| {
        let built = Response::builder().status(code).header("content-type", content_type).body(body);
        built.map_err(std::io::Error::other)
    };
    match answer(&asked) {
        Reply::Json(value) => {
            response(StatusCode::OK, "application/json", Sent::Whole(Some(value.to_string().into())))
        }
        Reply::Raw(code, content_type, bytes) => response(code, content_type, Sent::Whole(Some(bytes))),
        Reply::Later(code, seconds) => {
            let later = Response::builder().status(code).header("retry-after", seconds);
            later.body(Sent::Whole(None)).map_err(std::io::Error::other)
        }
        Reply::Redirect(to) => {
            let redirect = Response::builder().status(StatusCode::TEMPORARY_REDIRECT).header("location", to);
            redirect.body(Sent::Whole(None)).map_err(std::io::Error::other)
        }
        Reply::Nothing => std::future::pending().await,
        Reply::Beginning(bytes) => response(StatusCode::OK, "application/json", Sent::Begun(Some(bytes))),
        Reply::Close => Err(std::io::Error::other("closed as told")),
    }
}

/// The body of an answer: whole, or begun and never finished.
enum Sent {
    Whole(Option<Bytes>),
    Begun(Option<Bytes>),
}

impl hyper::body::Body for Sent {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut *self {
            Sent::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Sent::Begun(bytes) => match bytes.take() {
                Some(bytes) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
                None => Poll::Pending,
            },
        }
    }
}
