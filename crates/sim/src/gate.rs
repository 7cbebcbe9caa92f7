//! The network before a cluster: it can be slow, and it can be cut.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use env::{Address, BoxFuture, Clock, Listener, Stream};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::watch,
};

/// How connections to a cluster behave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Conditions {
    /// Everything that comes in comes so much later.
    pub delay: Duration,
    /// All connections are broken, at once and without a word.
    pub cut: bool,
}

/// A listener whose connections are subject to conditions that may change.
pub struct Gate {
    pub inner: Box<dyn Listener>,
    pub conditions: watch::Receiver<Conditions>,
    pub clock: Arc<dyn Clock>,
}

impl Listener for Gate {
    fn local_address(&self) -> io::Result<Address> {
        self.inner.local_address()
    }

    fn accept(&self) -> BoxFuture<'_, io::Result<(Box<dyn Stream>, Address)>> {
        Box::pin(async move {
            let (stream, peer) = self.inner.accept().await?;
            let gated = Gated {
                inner: stream,
                cut: cut(self.conditions.clone()),
                conditions: self.conditions.clone(),
                clock: self.clock.clone(),
                wait: None,
            };
            Ok((Box::new(gated) as Box<dyn Stream>, peer))
        })
    }
}

/// Resolves when the connection is to be broken.
fn cut(mut conditions: watch::Receiver<Conditions>) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        // Whoever could say so is gone: so is the cluster.
        let _ = conditions.wait_for(|it| it.cut).await;
    })
}

struct Gated {
    inner: Box<dyn Stream>,
    cut: BoxFuture<'static, ()>,
    conditions: watch::Receiver<Conditions>,
    clock: Arc<dyn Clock>,
    /// Something has come and is held back.
    wait: Option<BoxFuture<'static, ()>>,
}

impl Gated {
    fn check(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        match self.cut.as_mut().poll(context) {
            Poll::Ready(()) => {
                // It is asked once only.
                self.cut = Box::pin(std::future::ready(()));
                Err(io::ErrorKind::ConnectionReset.into())
            }
            Poll::Pending => Ok(()),
        }
    }
}

impl AsyncRead for Gated {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(context)?;
        if let Some(wait) = &mut self.wait {
            match wait.as_mut().poll(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(()) => self.wait = None,
            }
        }
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(context, buffer);
        let delay = self.conditions.borrow().delay;
        if polled.is_ready() && buffer.filled().len() > before && !delay.is_zero() {
            // What has been read is given out now; the next waits. A request is several reads, an answer one delay.
            self.wait = Some(self.clock.sleep(delay));
        }
        polled
    }
}

impl AsyncWrite for Gated {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check(context)?;
        Pin::new(&mut self.inner).poll_write(context, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}
