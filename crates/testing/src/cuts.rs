//! The network of this machine, with links that can be cut without anybody being told.
//!
//! A link is all connections to one address. While it is cut nothing passes, in neither direction, and who dials waits;
//! what is under way arrives when it is healed, as it does where packets are lost and sent again.

use std::{
    collections::{HashMap, HashSet},
    io,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use env::{Address, BoxFuture, Listener, Network, Stream, network::RealNetwork};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Clones are the same network.
#[derive(Clone, Default)]
pub struct Cuts {
    real: Arc<RealNetwork>,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    cut: HashSet<Address>,
    waiting: HashMap<Address, Vec<Waker>>,
    dials: HashMap<Address, usize>,
}

impl Cuts {
    pub fn cut(&self, address: Address) {
        self.state().cut.insert(address);
    }

    pub fn heal(&self, address: Address) {
        let mut state = self.state();
        state.cut.remove(&address);
        state.waiting.remove(&address).into_iter().flatten().for_each(Waker::wake);
    }

    /// How often somebody dialled this address.
    pub fn dials(&self, address: Address) -> usize {
        self.state().dials.get(&address).copied().unwrap_or(0)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Pending while the link is cut.
    fn poll_open(&self, address: Address, context: &Context<'_>) -> Poll<()> {
        let mut state = self.state();
        if !state.cut.contains(&address) {
            return Poll::Ready(());
        }
        state.waiting.entry(address).or_default().push(context.waker().clone());
        Poll::Pending
    }
}

impl Network for Cuts {
    fn listen(&self, address: Address) -> BoxFuture<'_, io::Result<Box<dyn Listener>>> {
        self.real.listen(address)
    }

    fn dial(&self, address: Address) -> BoxFuture<'_, io::Result<Box<dyn Stream>>> {
        Box::pin(async move {
            *self.state().dials.entry(address).or_default() += 1;
            std::future::poll_fn(|context| self.poll_open(address, context)).await;
            let stream = self.real.dial(address).await?;
            Ok(Box::new(Cuttable { cuts: self.clone(), address, stream }) as Box<dyn Stream>)
        })
    }

    fn resolve(&self, host: String, port: u16) -> BoxFuture<'_, io::Result<Vec<Address>>> {
        self.real.resolve(host, port)
    }
}

struct Cuttable {
    cuts: Cuts,
    address: Address,
    stream: Box<dyn Stream>,
}

impl Cuttable {
    fn poll_stream(&mut self, context: &Context<'_>) -> Poll<Pin<&mut Box<dyn Stream>>> {
        self.cuts.poll_open(self.address, context).map(|()| Pin::new(&mut self.stream))
    }
}

impl AsyncRead for Cuttable {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        std::task::ready!(self.poll_stream(context)).poll_read(context, buffer)
    }
}

impl AsyncWrite for Cuttable {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        std::task::ready!(self.poll_stream(context)).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        std::task::ready!(self.poll_stream(context)).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        std::task::ready!(self.poll_stream(context)).poll_shutdown(context)
    }
}
