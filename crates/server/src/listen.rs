//! The socket side: TLS, HTTP/1.1 and HTTP/2, and stopping without cutting anybody off.

use std::{
    convert::Infallible,
    net::IpAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use env::{Listener, Stream};
use http::{Response, Uri, uri::PathAndQuery};
use http_body::{Frame, SizeHint};
use hyper::{Request, body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use tokio::sync::{mpsc, watch};
use tokio_rustls::TlsAcceptor;

use crate::{
    body::{Body, Endless},
    hub::{self, Hub},
    login::caller::{Caller, Presented},
    service::{self, Connection},
    shares::Claim,
};

/// A client that has not finished its handshake by then is not serious.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);
/// Nor is one that has not sent its first request; as upstream. Some open connections before they need them.
const FIRST_REQUEST_LIMIT: Duration = Duration::from_secs(32);
/// How long an HTTP/1.1 connection may idle, or take for its headers; as long as upstream lets it idle.
const IDLE_LIMIT: Duration = Duration::from_secs(90);
/// After this, connections that are still busy at shutdown are closed.
const DRAIN_LIMIT: Duration = Duration::from_secs(10);
/// How long a connection has at shutdown to say goodbye when all its answers have been given.
const FAREWELL: Duration = Duration::from_millis(500);
/// Streams at once on one HTTP/2 connection: an operator with many informers opens hundreds.
const MAX_STREAMS: u32 = 2000;

/// All headers of a request together, with its path.
const MAX_HEAD_BYTES: usize = 64 * 1024;
/// On HTTP/1.1; HTTP/2 counts bytes alone.
const MAX_HEADERS: usize = 100;

/// Accepts connections until `stopping` turns true, then waits for those that are open to finish.
pub async fn serve(hub: Arc<Hub>, listener: Box<dyn Listener>, stopping: watch::Receiver<bool>) {
    serve_below(hub, listener, stopping, None).await;
}

/// As [`serve`]; all paths are below `prefix`, `/clusters/<name>`: to its clients that workspace is all there is.
pub async fn serve_below(
    hub: Arc<Hub>,
    listener: Box<dyn Listener>,
    mut stopping: watch::Receiver<bool>,
    prefix: Option<Arc<str>>,
) {
    // Every connection holds a sender; when the last is dropped, all are done.
    let (open, mut all_closed) = mpsc::channel::<Infallible>(1);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = hub::stopped(&mut stopping) => break,
        };
        match accepted {
            // One that is told at once goes elsewhere or tries again; one that waits unseen does neither.
            Ok(_) if is_full(&hub, &open) => {
                hub.metrics.connections_refused.inc();
            }
            Ok((stream, peer)) => {
                let acceptor = TlsAcceptor::from(hub.login.tls());
                let work = connection(
                    hub.clone(),
                    acceptor,
                    stream,
                    peer.ip(),
                    stopping.clone(),
                    open.clone(),
                    prefix.clone(),
                );
                hub.env.tasks.spawn(Box::pin(work));
            }
            Err(error) => {
                // Out of file descriptors, most likely: others will finish and free some.
                tracing::warn!(%error, "cannot accept a connection");
                hub.env.clock.sleep(Duration::from_millis(50)).await;
            }
        }
    }
    drop(listener);
    drop(open);
    tokio::select! {
        _ = all_closed.recv() => {}
        () = hub.env.clock.sleep(DRAIN_LIMIT) => tracing::warn!("closing connections that are still busy"),
    }
}

/// Every connection holds a sender, and so does `serve` itself.
fn is_full(hub: &Hub, open: &mpsc::Sender<Infallible>) -> bool {
    let limit = hub.options.max_connections;
    limit > 0 && open.strong_count() > limit
}

/// Held by every answer that a connection has yet to give to the end.
type Debt = Arc<()>;

/// The service of a connection and the connection itself hold one each.
fn is_paid(owed: &Debt) -> bool {
    Arc::strong_count(owed) <= 2
}

/// An answer, with what is owed until it has been sent.
struct Owed {
    body: Body,
    _debt: Option<Debt>,
}

/// A watch is owed to nobody: it has ended, and goes on elsewhere from where it was.
fn owe(response: Response<Body>, debt: Debt) -> Response<Owed> {
    let endless = response.extensions().get::<Endless>().is_some();
    response.map(|body| Owed { body, _debt: (!endless).then_some(debt) })
}

impl http_body::Body for Owed {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

async fn connection(
    hub: Arc<Hub>,
    acceptor: TlsAcceptor,
    stream: Box<dyn Stream>,
    peer: IpAddr,
    mut stopping: watch::Receiver<bool>,
    _open: mpsc::Sender<Infallible>,
    prefix: Option<Arc<str>>,
) {
    let handshake = acceptor.accept(stream);
    let stream = tokio::select! {
        done = handshake => match done {
            Ok(stream) => stream,
            Err(error) => {
                hub.metrics.handshake_errors.inc();
                tracing::debug!(%error, "TLS handshake failed");
                return;
            }
        },
        () = hub.env.clock.sleep(HANDSHAKE_LIMIT) => return,
        () = hub::stopped(&mut stopping) => return,
    };
    let chain = stream.get_ref().1.peer_certificates().filter(|chain| !chain.is_empty());
    let caller = chain.map(|chain| Arc::new(Caller::Certificate(Presented::new(chain.to_vec()))));
    let claim = Arc::new(Claim::default());
    let from = Arc::new(Connection { caller, peer: Some(peer), claim: Some(claim.clone()), relayed: None });
    hub.metrics.connections.inc();
    let spoke = Arc::new(AtomicBool::new(false));
    let owed: Debt = Arc::new(());
    let service = service_fn({
        let (hub, spoke, owed) = (hub.clone(), spoke.clone(), owed.clone());
        move |mut request: Request<Incoming>| {
            spoke.store(true, Ordering::Relaxed);
            if let Some(prefix) = &prefix {
                put_below(&mut request, prefix);
            }
            let owed = owed.clone();
            // Boxed, because it is large and a stream's task keeps room for it: a watch would, for as long as it lasts.
            let answer = Box::pin(service::handle(hub.clone(), from.clone(), request));
            async move { Ok::<_, Infallible>(owe(answer.await, owed)) }
        }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE_LIMIT)
        .max_headers(MAX_HEADERS)
        .max_buf_size(MAX_HEAD_BYTES);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(MAX_HEAD_BYTES as u32)
        .keep_alive_interval(Some(Duration::from_secs(30)))
        .keep_alive_timeout(Duration::from_secs(20));
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let mut first_request = Some(hub.env.clock.sleep(FIRST_REQUEST_LIMIT));
    loop {
        let silent = async {
            match &mut first_request {
                Some(timer) => timer.await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            outcome = connection.as_mut() => {
                if let Err(error) = outcome {
                    tracing::debug!(%error, "connection ended");
                }
                break;
            }
            () = silent => {
                first_request = None;
                if !spoke.load(Ordering::Relaxed) {
                    tracing::debug!("no request came");
                    break;
                }
            }
            // Its answer says so; what else is under way on it is still answered.
            () = claim.refused.notified() => connection.as_mut().graceful_shutdown(),
            () = hub::stopped(&mut stopping) => {
                connection.as_mut().graceful_shutdown();
                // On HTTP/2 the client is asked whether it has understood. One that does not answer, and has what it
                // asked for, is not waited for.
                loop {
                    tokio::select! {
                        _ = connection.as_mut() => break,
                        () = hub.env.clock.sleep(FAREWELL) => if is_paid(&owed) { break },
                    }
                }
                break;
            }
        }
    }
    hub.metrics.connections.dec();
}

fn put_below(request: &mut Request<Incoming>, prefix: &str) {
    let rest = request.uri().path_and_query().map_or("/", PathAndQuery::as_str);
    // A prefix before a path is a path.
    if let Ok(uri) = Uri::try_from(format!("{prefix}{rest}")) {
        *request.uri_mut() = uri;
    }
}
