//! A network in memory: named hosts, latency, partitions, refused connections.
//!
//! ```text
//!   host eu ── path (latency, open or cut) ── host us
//! ```
//!
//! Bytes arrive in order and after the latency of their path. A partition holds them back, in both directions, until
//! it is healed; a new connection across it times out. Runs on tokio's clock, which a test pauses.

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream},
    sync::{mpsc, watch},
    time::Instant,
};

use super::{Address, Listener, Network, Stream};
use crate::BoxFuture;

/// How long a dial waits for an answer from behind a partition.
const DIAL_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes under way in one direction before the sender has to wait.
const WINDOW: usize = 64 << 10;
const FIRST_FREE_PORT: u16 = 40_000;

/// One host's access to a simulated network. Clones are the same host.
#[derive(Clone)]
pub struct SimNet {
    world: Arc<Mutex<World>>,
    host: Ipv4Addr,
}

type Connection = (Box<dyn Stream>, Address);

#[derive(Default)]
struct World {
    hosts: HashMap<String, Ipv4Addr>,
    listeners: HashMap<(Ipv4Addr, u16), mpsc::Sender<Connection>>,
    paths: HashMap<(Ipv4Addr, Ipv4Addr), watch::Sender<Path>>,
    next_port: u16,
}

/// The way between two hosts, the same in both directions.
#[derive(Clone, Copy, Default)]
struct Path {
    latency: Duration,
    cut: bool,
    /// Counts resets; connections made before the last one are dead.
    resets: u64,
}

impl World {
    fn host(&mut self, name: &str) -> Ipv4Addr {
        let next = Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 0, 0, 1)) + self.hosts.len() as u32);
        *self.hosts.entry(name.to_owned()).or_insert(next)
    }

    fn path(&mut self, one: Ipv4Addr, other: Ipv4Addr) -> &watch::Sender<Path> {
        self.paths
            .entry((one.min(other), one.max(other)))
            .or_insert_with(|| watch::Sender::new(Path::default()))
    }

    fn free_port(&mut self) -> u16 {
        self.next_port = self.next_port.checked_add(1).unwrap_or(0).max(FIRST_FREE_PORT);
        self.next_port
    }
}

impl Default for SimNet {
    fn default() -> Self {
        Self::new("localhost")
    }
}

impl SimNet {
    /// A new network with one host.
    pub fn new(name: &str) -> Self {
        let world = Arc::new(Mutex::new(World::default()));
        let host = world.lock().host(name);
        Self { world, host }
    }

    /// Another host on the same network; the same name is the same host.
    pub fn host(&self, name: &str) -> Self {
        let host = self.world.lock().host(name);
        Self { world: self.world.clone(), host }
    }

    pub fn ip(&self) -> IpAddr {
        IpAddr::V4(self.host)
    }

    fn change_path(&self, one: &str, other: &str, change: impl FnOnce(&mut Path)) {
        let mut world = self.world.lock();
        let (one, other) = (world.host(one), world.host(other));
        world.path(one, other).send_modify(change);
    }

    pub fn set_latency(&self, one: &str, other: &str, latency: Duration) {
        self.change_path(one, other, |path| path.latency = latency);
    }

    /// Nothing passes between the two hosts until [`SimNet::heal`].
    pub fn partition(&self, one: &str, other: &str) {
        self.change_path(one, other, |path| path.cut = true);
    }

    pub fn heal(&self, one: &str, other: &str) {
        self.change_path(one, other, |path| path.cut = false);
    }

    /// Closes every connection between the two hosts; what was under way is lost.
    pub fn reset(&self, one: &str, other: &str) {
        self.change_path(one, other, |path| path.resets += 1);
    }

    /// The host that `address` means to this one.
    fn resolve(&self, address: Address) -> io::Result<Ipv4Addr> {
        match address.ip() {
            IpAddr::V4(ip) if ip.is_loopback() || ip.is_unspecified() => Ok(self.host),
            IpAddr::V6(ip) if ip.is_loopback() || ip.is_unspecified() => Ok(self.host),
            IpAddr::V4(ip) if self.world.lock().hosts.values().any(|host| *host == ip) => Ok(ip),
            _ => Err(io::ErrorKind::HostUnreachable.into()),
        }
    }

    async fn connect(self, address: Address) -> io::Result<Box<dyn Stream>> {
        let target = self.resolve(address)?;
        let mut path = self.world.lock().path(self.host, target).subscribe();
        let open = tokio::time::timeout(DIAL_TIMEOUT, path.wait_for(|path| !path.cut)).await;
        open.map_err(|_| io::ErrorKind::TimedOut)?.map_err(io::Error::other)?;
        let Path { latency, resets, .. } = *path.borrow();
        tokio::time::sleep(latency * 2).await;
        let (listener, port) = {
            let mut world = self.world.lock();
            (world.listeners.get(&(target, address.port())).cloned(), world.free_port())
        };
        let listener = listener.ok_or(io::ErrorKind::ConnectionRefused)?;
        let (here, here_far) = tokio::io::duplex(WINDOW);
        let (there, there_far) = tokio::io::duplex(WINDOW);
        let from = SocketAddr::new(self.ip(), port);
        listener.send((Box::new(there), from)).await.map_err(|_| io::ErrorKind::ConnectionRefused)?;
        tokio::spawn(carry(here_far, there_far, path, resets));
        Ok(Box::new(here))
    }
}

/// Carries bytes between the far ends of two pipes until both sides have closed or the path is reset.
async fn carry(one: DuplexStream, other: DuplexStream, mut path: watch::Receiver<Path>, resets: u64) {
    let (one_read, one_write) = tokio::io::split(one);
    let (other_read, other_write) = tokio::io::split(other);
    let there = carry_one_way(one_read, other_write, path.clone());
    let back = carry_one_way(other_read, one_write, path.clone());
    tokio::select! {
        _ = async { tokio::join!(there, back) } => {}
        _ = path.wait_for(|path| path.resets != resets) => {}
    }
}

async fn carry_one_way(
    mut from: impl AsyncReadExt + Unpin,
    mut to: impl AsyncWriteExt + Unpin,
    mut path: watch::Receiver<Path>,
) {
    let (sender, mut under_way) = mpsc::channel::<(Instant, Vec<u8>)>(64);
    let latency = path.clone();
    let send = async move {
        let mut buffer = vec![0; 16 << 10];
        while let Ok(count @ 1..) = from.read(&mut buffer).await {
            let due = Instant::now() + latency.borrow().latency;
            if sender.send((due, buffer[..count].to_vec())).await.is_err() {
                break;
            }
        }
    };
    let deliver = async move {
        while let Some((due, bytes)) = under_way.recv().await {
            tokio::time::sleep_until(due).await;
            if path.wait_for(|path| !path.cut).await.is_err() || to.write_all(&bytes).await.is_err() {
                return;
            }
        }
        let _ = to.shutdown().await;
    };
    tokio::join!(send, deliver);
}

struct SimListener {
    net: SimNet,
    address: Address,
    incoming: tokio::sync::Mutex<mpsc::Receiver<Connection>>,
}

impl Listener for SimListener {
    fn local_address(&self) -> io::Result<Address> {
        Ok(self.address)
    }

    fn accept(&self) -> BoxFuture<'_, io::Result<Connection>> {
        Box::pin(async move {
            let connection = self.incoming.lock().await.recv().await;
            connection.ok_or_else(|| io::ErrorKind::NotConnected.into())
        })
    }
}

impl Drop for SimListener {
    fn drop(&mut self) {
        self.net.world.lock().listeners.remove(&(self.net.host, self.address.port()));
    }
}

impl Network for SimNet {
    fn listen(&self, address: Address) -> BoxFuture<'_, io::Result<Box<dyn Listener>>> {
        Box::pin(async move {
            if self.resolve(address)? != self.host {
                return Err(io::ErrorKind::AddrNotAvailable.into());
            }
            let mut world = self.world.lock();
            let port = if address.port() == 0 { world.free_port() } else { address.port() };
            if world.listeners.contains_key(&(self.host, port)) {
                return Err(io::ErrorKind::AddrInUse.into());
            }
            let (sender, incoming) = mpsc::channel(16);
            world.listeners.insert((self.host, port), sender);
            let address = SocketAddr::new(self.ip(), port);
            let incoming = tokio::sync::Mutex::new(incoming);
            Ok(Box::new(SimListener { net: self.clone(), address, incoming }) as Box<dyn Listener>)
        })
    }

    fn dial(&self, address: Address) -> BoxFuture<'_, io::Result<Box<dyn Stream>>> {
        Box::pin(self.clone().connect(address))
    }

    /// Names mean nothing here; addresses mean themselves.
    fn resolve(&self, host: String, port: u16) -> BoxFuture<'_, io::Result<Vec<Address>>> {
        let address = host.trim_matches(['[', ']']).parse().map(|ip| vec![Address::new(ip, port)]);
        let unknown = |_| io::Error::new(io::ErrorKind::NotFound, format!("no address of {host}"));
        let found = address.map_err(unknown);
        Box::pin(async move { found })
    }
}

#[cfg(test)]
mod tests;
