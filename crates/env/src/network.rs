//! Listening and dialling.

use std::{io, net::SocketAddr};

use listenfd::ListenFd;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::BoxFuture;

pub mod sim;

/// Where something listens: an IP address and a port.
pub type Address = SocketAddr;

/// A connected byte stream.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Stream for T {}

/// Accepts connections until dropped.
pub trait Listener: Send + Sync + 'static {
    fn local_address(&self) -> io::Result<Address>;
    fn accept(&self) -> BoxFuture<'_, io::Result<(Box<dyn Stream>, Address)>>;
}

/// Makes listeners and connections.
pub trait Network: Send + Sync + 'static {
    /// Listens on `address`; port 0 picks a free one.
    fn listen(&self, address: Address) -> BoxFuture<'_, io::Result<Box<dyn Listener>>>;
    /// A listener that was open before this process began and was handed to it, each only once. Connections that were
    /// made while nobody accepted wait in it.
    fn inherited(&self) -> io::Result<Option<Box<dyn Listener>>> {
        Ok(None)
    }
    fn dial(&self, address: Address) -> BoxFuture<'_, io::Result<Box<dyn Stream>>>;
    /// Where a host, by name or address, can be reached; at least one place, or an error.
    fn resolve(&self, host: String, port: u16) -> BoxFuture<'_, io::Result<Vec<Address>>>;
}

/// TCP on this machine.
#[derive(Default)]
pub struct RealNetwork {
    /// Sockets by systemd's convention: `LISTEN_FDS` of them, if `LISTEN_PID` is this process.
    handed_over: Mutex<Option<ListenFd>>,
}

impl RealNetwork {
    /// With the listeners that were handed to this process. For `main` alone, and once: they are owned from then on.
    pub fn inheriting() -> Self {
        Self { handed_over: Mutex::new(Some(ListenFd::from_env())) }
    }
}

struct RealListener(tokio::net::TcpListener);

impl Listener for RealListener {
    fn local_address(&self) -> io::Result<Address> {
        self.0.local_addr()
    }

    fn accept(&self) -> BoxFuture<'_, io::Result<(Box<dyn Stream>, Address)>> {
        Box::pin(async move {
            let (stream, peer) = self.0.accept().await?;
            // Answers are written whole; waiting to fill a packet only adds latency.
            stream.set_nodelay(true)?;
            Ok((Box::new(stream) as Box<dyn Stream>, peer))
        })
    }
}

impl Network for RealNetwork {
    fn listen(&self, address: Address) -> BoxFuture<'_, io::Result<Box<dyn Listener>>> {
        Box::pin(async move {
            let listener = tokio::net::TcpListener::bind(address).await?;
            Ok(Box::new(RealListener(listener)) as Box<dyn Listener>)
        })
    }

    fn inherited(&self) -> io::Result<Option<Box<dyn Listener>>> {
        let mut handed_over = self.handed_over.lock();
        let Some(sockets) = handed_over.as_mut() else { return Ok(None) };
        for index in 0..sockets.len() {
            if let Some(listener) = sockets.take_tcp_listener(index)? {
                listener.set_nonblocking(true)?;
                let listener = tokio::net::TcpListener::from_std(listener)?;
                return Ok(Some(Box::new(RealListener(listener))));
            }
        }
        Ok(None)
    }

    fn dial(&self, address: Address) -> BoxFuture<'_, io::Result<Box<dyn Stream>>> {
        Box::pin(async move {
            let stream = tokio::net::TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as Box<dyn Stream>)
        })
    }

    fn resolve(&self, host: String, port: u16) -> BoxFuture<'_, io::Result<Vec<Address>>> {
        Box::pin(async move {
            let found: Vec<Address> = tokio::net::lookup_host((host.as_str(), port)).await?.collect();
            match found.is_empty() {
                true => Err(io::Error::new(io::ErrorKind::NotFound, format!("no address of {host}"))),
                false => Ok(found),
            }
        })
    }
}
