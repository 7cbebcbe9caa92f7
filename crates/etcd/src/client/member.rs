//! A member and the connection to it.

use std::{io, pin::Pin, sync::Arc, task, time::Duration};

use bytes::Bytes;
use env::Env;
use http_body::{Body, Frame, SizeHint};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::{mpsc, oneshot, watch},
};

use super::{
    options::{Endpoint, Misconfigured, Tls, server_name},
    status::Failure,
};

/// How long a member may take to let us in.
const DIAL_TIMEOUT: Duration = Duration::from_secs(2);
/// A connection on which nothing came for so long is asked whether it is alive. etcd closes those that ask more often
/// than every five seconds (`--grpc-keepalive-min-time`).
const PING_AFTER: Duration = Duration::from_millis(5500);
const PING_TIMEOUT: Duration = Duration::from_secs(3);
/// What may be under way to us: room for the largest answer of a page, and for watches that nobody reads just now.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 64 << 20;

/// A member that failed is not asked first for so long; twice as long after every further failure.
const SHORTEST_REST: Duration = Duration::from_millis(500);
const LONGEST_REST: Duration = Duration::from_secs(15);

pub(crate) type Connection = SendRequest<Sent>;

/// The body of a request: one message, or some that follow one another.
pub(crate) enum Sent {
    Once(Option<Bytes>),
    Stream(mpsc::Receiver<Bytes>),
}

impl Body for Sent {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut task::Context<'_>,
    ) -> task::Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let next = match &mut *self {
            Sent::Once(message) => task::Poll::Ready(message.take()),
            Sent::Stream(messages) => messages.poll_recv(context),
        };
        next.map(|message| message.map(|message| Ok(Frame::data(message))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Sent::Once(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Sent::Once(message) => {
                SizeHint::with_exact(message.as_ref().map_or(0, |message| message.len() as u64))
            }
            Sent::Stream(_) => SizeHint::default(),
        }
    }
}

/// One member of the cluster.
pub(crate) struct Member {
    pub(crate) endpoint: Endpoint,
    tls: Option<Tls>,
    link: Mutex<Link>,
    health: Mutex<Health>,
}

#[derive(Default)]
enum Link {
    #[default]
    Down,
    Dialling(watch::Receiver<Option<Dialled>>),
    Up(Connection),
}

type Dialled = Result<Connection, Failure>;

#[derive(Default)]
struct Health {
    failures: u32,
    rests_until: Duration,
}

impl Member {
    pub(crate) fn new(endpoint: Endpoint, tls: Option<Tls>) -> Self {
        Self { endpoint, tls, link: Mutex::default(), health: Mutex::default() }
    }

    /// Until when others are asked first, on the monotonic clock.
    pub(crate) fn rests_until(&self) -> Duration {
        self.health.lock().rests_until
    }

    pub(crate) fn is_well(&self) {
        let mut health = self.health.lock();
        if health.failures > 0 {
            *health = Health::default();
        }
    }

    pub(crate) fn has_failed(&self, now: Duration) {
        let mut health = self.health.lock();
        let rest = SHORTEST_REST.saturating_mul(1 << health.failures.min(10)).min(LONGEST_REST);
        health.failures = health.failures.saturating_add(1);
        health.rests_until = now + rest;
    }

    /// Uses the connection no longer. What goes over it just now may go on.
    pub(crate) fn leave(&self, connection_of: &Failure) {
        // Whoever did not answer in time may never again, and nothing but calls would show it.
        if matches!(connection_of, Failure::Unanswered(_) | Failure::Distrusted(_)) {
            let mut link = self.link.lock();
            if matches!(*link, Link::Up(_)) {
                *link = Link::Down;
            }
        }
    }

    /// The connection, or a new one. Dialling goes on if the caller stops waiting; others wait for the same.
    pub(crate) async fn connection(self: &Arc<Self>, env: &Env) -> Result<Connection, Failure> {
        let mut dialled = match self.connection_or_dial(env) {
            Ok(connection) => return Ok(connection),
            Err(dialled) => dialled,
        };
        let outcome = dialled.wait_for(Option::is_some).await.ok().and_then(|outcome| outcome.clone());
        outcome.unwrap_or_else(|| Err(Failure::Unsent("dialling was given up".into())))
    }

    fn connection_or_dial(
        self: &Arc<Self>,
        env: &Env,
    ) -> Result<Connection, watch::Receiver<Option<Dialled>>> {
        let mut link = self.link.lock();
        match &*link {
            Link::Up(connection) if !connection.is_closed() => return Ok(connection.clone()),
            // A dial whose task is gone, with its runtime, has no outcome.
            Link::Dialling(dialled) if dialled.has_changed().is_ok() => return Err(dialled.clone()),
            _ => {}
        }
        let (sender, dialled) = watch::channel(None);
        *link = Link::Dialling(dialled.clone());
        let (member, clock, dialling) = (self.clone(), env.clock.clone(), self.clone().dial(env.clone()));
        env.tasks.spawn(Box::pin(async move {
            let outcome = tokio::select! {
                outcome = dialling => outcome,
                () = clock.sleep(DIAL_TIMEOUT) => Err(Failure::Unsent("dialling took too long".into())),
            };
            *member.link.lock() = match &outcome {
                Ok(connection) => Link::Up(connection.clone()),
                Err(_) => Link::Down,
            };
            sender.send_replace(Some(outcome));
        }));
        Err(dialled)
    }

    async fn dial(self: Arc<Self>, env: Env) -> Dialled {
        let stream = self.reach(&env).await.map_err(|error| Failure::before_sending(&error))?;
        let Some(tls) = &self.tls else { return handshake(&env, stream).await };
        let unusable = |error: Misconfigured| Failure::Unsent(error.to_string());
        let config = tls.load(&*env.files).map_err(unusable)?;
        let name = server_name(&self.endpoint).map_err(unusable)?;
        let stream = tokio_rustls::TlsConnector::from(config).connect(name, stream).await;
        handshake(&env, stream.map_err(|error| Failure::before_sending(&error))?).await
    }

    /// At the first of its addresses that takes us.
    async fn reach(&self, env: &Env) -> io::Result<Box<dyn env::Stream>> {
        let Endpoint { host, port } = self.endpoint.clone();
        let mut failed = io::Error::from(io::ErrorKind::NotFound);
        for address in env.network.resolve(host, port).await? {
            match env.network.dial(address).await {
                Ok(stream) => return Ok(stream),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }
}

/// Begins HTTP/2, and waits until the member does: until then it may take connections without looking at them, or
/// refuse the certificate that it was shown; and nothing has been asked yet.
async fn handshake(env: &Env, stream: impl env::Stream) -> Dialled {
    let (greeted, greeting) = oneshot::channel();
    let stream = Greeted { stream, greeted: Some(greeted) };
    let made = http2::Builder::new(Tasks(env.clone()))
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_AFTER)
        .keep_alive_timeout(PING_TIMEOUT)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .handshake(TokioIo::new(stream))
        .await;
    let (connection, driver) = made.map_err(|error| Failure::before_sending(&error))?;
    env.tasks.spawn(Box::pin(async move {
        // Whoever uses the connection is told of its end.
        let _ = driver.await;
    }));
    let closed = |_| Err(Failure::Unsent("the connection was closed".into()));
    greeting.await.unwrap_or_else(closed).map(|()| connection)
}

/// Tells when the first bytes come, or why none do.
struct Greeted<S> {
    stream: S,
    greeted: Option<oneshot::Sender<Result<(), Failure>>>,
}

impl<S: env::Stream> Greeted<S> {
    fn tell(&mut self, greeting: Result<(), Failure>) {
        if let Some(greeted) = self.greeted.take() {
            let _ = greeted.send(greeting);
        }
    }

    /// Who refuses our certificate says why and closes. What we write may fail before we have read that: then a failed
    /// write waits for the reason, which is there or is that nobody is.
    fn poll_written<T>(
        &mut self,
        context: &mut task::Context<'_>,
        written: task::Poll<io::Result<T>>,
    ) -> task::Poll<io::Result<T>> {
        let task::Poll::Ready(Err(error)) = written else { return written };
        if self.greeted.is_some() {
            let mut scratch = [0; 1024];
            let read = Pin::new(&mut self.stream).poll_read(context, &mut ReadBuf::new(&mut scratch));
            let why = task::ready!(read).err();
            self.tell(Err(Failure::before_sending(why.as_ref().unwrap_or(&error))));
        }
        task::Poll::Ready(Err(error))
    }
}

impl<S: env::Stream> AsyncRead for Greeted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut task::Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> task::Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = task::ready!(Pin::new(&mut self.stream).poll_read(context, buffer));
        if self.greeted.is_some() {
            self.tell(match &read {
                Ok(()) if buffer.filled().len() > before => Ok(()),
                Ok(()) => Err(Failure::Unsent("it closed the connection".into())),
                Err(error) => Err(Failure::before_sending(error)),
            });
        }
        task::Poll::Ready(read)
    }
}

impl<S: env::Stream> AsyncWrite for Greeted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut task::Context<'_>,
        bytes: &[u8],
    ) -> task::Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.poll_written(context, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut task::Context<'_>) -> task::Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.poll_written(context, flushed)
    }

    fn poll_shutdown(
        mut self: Pin<&mut Self>,
        context: &mut task::Context<'_>,
    ) -> task::Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Where hyper's own tasks run.
#[derive(Clone)]
struct Tasks(Env);

impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for Tasks {
    fn execute(&self, work: F) {
        self.0.tasks.spawn(Box::pin(work));
    }
}
