//! A hub in this process.

use std::{net::SocketAddr, sync::Arc};

use anyhow::Result;
use env::Env;
use server::{
    Options,
    login::LoginOptions,
    peer::{Peer, PeerOptions},
};
use store::{Store, memory::MemoryStore};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::client::{Client, dial};
pub use crate::patience::eventually;

/// A peer on a free port. Dropped, it stops.
pub struct TestHub {
    pub peer: Peer,
    _directory: TempDir,
}

impl TestHub {
    /// On a store in memory.
    pub async fn start() -> Result<TestHub> {
        Self::start_on(Arc::new(MemoryStore::new()), Options::default()).await
    }

    pub async fn start_on(store: Arc<dyn Store>, server: Options) -> Result<TestHub> {
        Self::start_with(store, server, LoginOptions::default()).await
    }

    /// With other ways to log in.
    pub async fn start_with(store: Arc<dyn Store>, server: Options, login: LoginOptions) -> Result<TestHub> {
        Self::start_in(&Env::real(), store, server, login).await
    }

    /// In a world of its own, such as one whose network can be cut.
    pub async fn start_in(
        env: &Env,
        store: Arc<dyn Store>,
        server: Options,
        login: LoginOptions,
    ) -> Result<TestHub> {
        let directory = tempfile::tempdir()?;
        let options = PeerOptions {
            pki: directory.path().join("pki"),
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            advertise: None,
            server,
            login,
            sharing: None,
        };
        let peer = Peer::start(env, store, options).await?;
        Ok(TestHub { peer, _directory: directory })
    }

    /// A client as a platform admin.
    pub async fn admin(&self) -> Result<Client> {
        self.user("admin", &["system:masters"]).await
    }

    pub async fn user(&self, name: &str, groups: &[&str]) -> Result<Client> {
        let credential = self.peer.authority.client(name, groups)?;
        let identity = (credential.certificate_pem.as_str(), credential.key_pem.as_str());
        Client::connect(&self.peer.url(), self.peer.authority.certificate_pem(), Some(identity)).await
    }

    /// A platform admin whose answers may run only `window` bytes ahead of their reader.
    pub async fn admin_with_window(&self, window: u32) -> Result<Client> {
        let credential = self.peer.authority.client("admin", &["system:masters"])?;
        let identity = (credential.certificate_pem.as_str(), credential.key_pem.as_str());
        let ca_pem = self.peer.authority.certificate_pem();
        Client::connect_with_window(&self.peer.url(), ca_pem, Some(identity), window).await
    }

    /// A platform admin's connection without an HTTP client on it.
    pub async fn dial(&self, alpn: &str) -> Result<TlsStream<TcpStream>> {
        let credential = self.peer.authority.client("admin", &["system:masters"])?;
        let identity = (credential.certificate_pem.as_str(), credential.key_pem.as_str());
        dial(&self.peer.url(), self.peer.authority.certificate_pem(), Some(identity), alpn).await
    }

    /// Stops as a process does that is told to: watches end, requests in flight are answered.
    pub async fn stop(self) {
        self.peer.stop().await;
    }

    /// A client without a certificate.
    pub async fn nobody(&self) -> Result<Client> {
        Client::connect(&self.peer.url(), self.peer.authority.certificate_pem(), None).await
    }
}

/// Waits until a new namespace has what every namespace has: after that nothing is written to it but by its users.
/// `namespace` is its path.
pub async fn outfitted(client: &Client, namespace: &str) -> Result<()> {
    for part in ["serviceaccounts/default", "configmaps/kube-root-ca.crt"] {
        let path = format!("{namespace}/{part}");
        eventually(&path, || async { Ok((client.get(&path).await?.code == 200).then_some(())) }).await?;
    }
    Ok(())
}
