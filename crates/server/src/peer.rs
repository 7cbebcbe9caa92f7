//! A running API server: store, certificates, listener and controllers, started and stopped as one.

use std::{
    io,
    net::{Ipv6Addr, SocketAddr},
    path::PathBuf,
    sync::Arc,
};

use env::Env;
use store::Store;
use tokio::sync::{oneshot, watch};

use crate::{
    base::kubernetes,
    controllers,
    hub::{Hub, OpenError, Options},
    kubeconfig,
    letters::Letters,
    listen,
    login::{self, Login, LoginError, LoginOptions},
    pki::{Authority, PkiError},
    user::MASTERS,
};

/// How a peer is set up.
#[derive(Clone)]
pub struct PeerOptions {
    /// Where certificates are kept.
    pub pki: PathBuf,
    /// Unless a socket was handed to this process.
    pub listen: SocketAddr,
    /// The name or address clients are told to use; the listening address if none is given.
    pub advertise: Option<String>,
    pub server: Options,
    pub login: LoginOptions,
    /// For a store that other servers share.
    pub sharing: Option<Sharing>,
}

/// Why a peer did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("cannot listen on {address}: {source}")]
    Listen { address: SocketAddr, source: io::Error },
    #[error("the socket that was handed over cannot be used: {0}")]
    Inherited(io::Error),
    #[error(transparent)]
    Pki(#[from] PkiError),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Login(#[from] LoginError),
    #[error(
        "servers that share a store must reach each other, and {0} leads nowhere: say by --internal-address where the \
         others reach this one"
    )]
    NoAddress(String),
    #[error("cannot tell the other servers of this one: {0}")]
    Announce(String),
}

/// What is needed where several servers share a store.
#[derive(Clone)]
pub struct Sharing {
    /// Where the others reach this server, by name or address, with or without a port; the listening address if none is
    /// given, which must be a certain one then.
    pub address: Option<String>,
    pub letters: Arc<dyn Letters>,
}

/// A server that answers. Stops when [`Peer::stop`] is called; dropped without, it stops in the background.
pub struct Peer {
    pub hub: Arc<Hub>,
    pub authority: Arc<Authority>,
    pub address: SocketAddr,
    advertise: String,
    stop: watch::Sender<bool>,
    stopped: oneshot::Receiver<()>,
}

impl Peer {
    pub async fn start(env: &Env, store: Arc<dyn Store>, options: PeerOptions) -> Result<Peer, StartError> {
        let failed = |source| StartError::Listen { address: options.listen, source };
        let listener = match env.network.inherited().map_err(StartError::Inherited)? {
            Some(listener) => listener,
            None => env.network.listen(options.listen).await.map_err(failed)?,
        };
        let address = listener.local_address().map_err(failed)?;
        let announced = match &options.sharing {
            Some(sharing) => Some(announced(&address, sharing.address.as_deref())?),
            None => None,
        };
        let authority = Arc::new(Authority::open(env, &options.pki)?);
        let own_address = options.sharing.as_ref().and_then(|sharing| sharing.address.as_deref());
        let hosts = hosts(&address, [options.advertise.as_deref(), own_address]);
        let kubelet_authority = Authority::open(env, &options.pki.join("kubelet-serving"))?;
        let host = match address.ip() {
            ip if ip.is_unspecified() => "127.0.0.1".to_owned(),
            ip if ip.is_ipv6() => format!("[{ip}]"),
            ip => ip.to_string(),
        };
        let advertise = match options.advertise.clone() {
            Some(name) if name.contains(':') => name,
            Some(name) => format!("{name}:{}", address.port()),
            None => format!("{host}:{}", address.port()),
        };
        let (stop, stopping) = watch::channel(false);
        let mut server = options.server;
        server.endpoint = server.endpoint.or(kubernetes::endpoint(address, options.advertise.as_deref()));
        if server.issuer.is_empty() {
            server.issuer = format!("https://{advertise}");
        }
        server.advertised.clone_from(&advertise);
        let issuer = server.issuer.clone();
        let login = Login::open(env, authority.clone(), kubelet_authority, hosts, issuer, options.login)?;
        server.authority_pem = login.serving_authorities_pem().into();
        let letters = options.sharing.as_ref().map(|sharing| sharing.letters.clone());
        let hub = Hub::open(env.clone(), store, server, login, letters, stopping.clone()).await?;
        controllers::start(&hub);
        login::follow(&hub);
        let (done, stopped) = oneshot::channel();
        let serving = listen::serve(hub.clone(), listener, stopping);
        let (auditor, views) = (hub.auditor.clone(), hub.views.clone());
        env.tasks.spawn(Box::pin(async move {
            serving.await;
            views.close().await;
            if let Some(auditor) = auditor {
                auditor.close().await;
            }
            // Nobody may be waiting for it.
            let _ = done.send(());
        }));
        if let Some((sharing, url)) = options.sharing.zip(announced) {
            let authorities = hub.login.serving_authorities_pem();
            sharing.letters.announce(url, authorities).await.map_err(StartError::Announce)?;
        }
        Ok(Peer { hub, authority, address, advertise, stop, stopped })
    }

    /// `https://host:port`, as clients reach it.
    pub fn url(&self) -> String {
        format!("https://{}", self.advertise)
    }

    /// A kubeconfig for a platform admin, with a context per (context, workspace).
    pub fn admin_kubeconfig(&self, contexts: &[(&str, &str)]) -> Result<String, PkiError> {
        let credential = self.authority.client("admin", &[MASTERS])?;
        let current = contexts.first().map_or("", |(context, _)| context);
        Ok(kubeconfig::render(
            &self.url(),
            &self.hub.login.serving_authorities_pem(),
            "hanse-admin",
            &credential,
            contexts,
            current,
        ))
    }

    /// Stops accepting, ends watches, and waits until requests in flight are answered.
    pub async fn stop(self) {
        let _ = self.stop.send(true);
        let _ = self.stopped.await;
    }
}

/// Where other servers are told to reach one that listens on `address` and is called `name` by them.
fn announced(address: &SocketAddr, name: Option<&str>) -> Result<String, StartError> {
    let own = match name {
        Some(name) if has_port(name) => name.to_owned(),
        // An IPv6 address, as it is given to pods.
        Some(name) if name.parse::<Ipv6Addr>().is_ok() => format!("[{name}]:{}", address.port()),
        Some(name) => format!("{name}:{}", address.port()),
        None => address.to_string(),
    };
    // It would lead each of the others to itself.
    match own.parse::<SocketAddr>() {
        Ok(parsed) if parsed.ip().is_unspecified() => Err(StartError::NoAddress(own)),
        _ => Ok(format!("https://{own}")),
    }
}

fn has_port(name: &str) -> bool {
    name.parse::<SocketAddr>().is_ok() || (name.matches(':').count() == 1 && !name.starts_with('['))
}

/// Every name and address the serving certificate must be good for.
fn hosts(address: &SocketAddr, others: [Option<&str>; 2]) -> Vec<String> {
    let mut hosts: Vec<String> =
        ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "127.0.0.1", "::1"]
            .map(str::to_owned)
            .to_vec();
    if !address.ip().is_unspecified() {
        hosts.push(address.ip().to_string());
    }
    for name in others.into_iter().flatten() {
        let host = match name.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((inside, _)) => inside,
            None if name.parse::<Ipv6Addr>().is_ok() => name,
            None => name.rsplit_once(':').map_or(name, |(host, _)| host),
        };
        hosts.push(host.to_owned());
    }
    hosts.sort();
    hosts.dedup();
    hosts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_servers_are_told_an_address_that_leads_here() {
        let cases = [
            ("10.0.0.1:6443", None, Some("https://10.0.0.1:6443")),
            ("[fd00::1]:6443", None, Some("https://[fd00::1]:6443")),
            ("0.0.0.0:6443", None, None),
            ("[::]:6443", None, None),
            ("0.0.0.0:6443", Some("10.0.0.1"), Some("https://10.0.0.1:6443")),
            ("0.0.0.0:6443", Some("10.0.0.1:7443"), Some("https://10.0.0.1:7443")),
            ("[::]:6443", Some("fd00::1"), Some("https://[fd00::1]:6443")),
            ("[::]:6443", Some("[fd00::1]"), Some("https://[fd00::1]:6443")),
            ("[::]:6443", Some("[fd00::1]:7443"), Some("https://[fd00::1]:7443")),
            ("0.0.0.0:6443", Some("hanse-0.hanse"), Some("https://hanse-0.hanse:6443")),
            ("0.0.0.0:6443", Some("0.0.0.0"), None),
            ("0.0.0.0:6443", Some("::"), None),
        ];
        for (listens, name, expected) in cases {
            let address: SocketAddr = listens.parse().expect("a good address");
            let told = announced(&address, name);
            assert_eq!(told.as_ref().ok().map(String::as_str), expected, "{listens} {name:?}");
            if let Err(refused) = told {
                assert!(refused.to_string().contains("--internal-address"), "{refused}");
            }
        }
    }
}
