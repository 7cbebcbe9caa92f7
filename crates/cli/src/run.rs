//! `hanse serve` and `hanse dev`: a peer in the foreground.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context, bail};
use env::Env;
use sd_notify::NotifyState;
use server::{
    Options,
    login::LoginOptions,
    peer::{Peer, PeerOptions, StartError},
};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::{
    dev,
    kubeconfig::Kubeconfig,
    storage::{Storage, StoreArgs},
};

/// A store and the server on it.
struct Running {
    peer: Peer,
    storage: Storage,
}

#[allow(clippy::too_many_arguments)]
async fn start(
    env: &Env,
    data: &Path,
    listen: SocketAddr,
    advertise: Option<String>,
    issuer: Option<String>,
    store: &StoreArgs,
    login: LoginOptions,
    server: Options,
) -> anyhow::Result<Running> {
    if let Some((before, after)) = env.process.raise_open_files() {
        tracing::debug!(before, after, "raised how many files may be open");
    }
    let issuer = checked_issuer(issuer)?;
    let storage = Storage::open(env, data, store, &server).await?;
    let server = Options { issuer, views: Some(data.join("views")), ..server };
    let sharing = storage.sharing();
    let options = PeerOptions { pki: data.join("pki"), listen, advertise, server, login, sharing };
    match Peer::start(env, storage.store(), options).await {
        Ok(peer) => {
            storage.measure(&peer.hub.metrics.etcd);
            assign::start(&peer.hub);
            sync::start(&peer.hub, sync::Options::default());
            Ok(Running { peer, storage })
        }
        Err(StartError::Listen { address, source }) if source.kind() == std::io::ErrorKind::AddrInUse => {
            bail!("{address} is taken: is another hanse running there? Choose another address with --listen")
        }
        Err(error) => Err(error.into()),
    }
}

/// The rules of OpenID Connect, by which others look for keys.
fn checked_issuer(issuer: Option<String>) -> anyhow::Result<String> {
    let Some(issuer) = issuer else { return Ok(String::new()) };
    if !issuer.starts_with("https://") || issuer.contains(['?', '#']) || issuer.ends_with('/') {
        bail!(
            "--issuer {issuer} is not good: it begins with https:// and has no query, fragment or final slash"
        );
    }
    Ok(issuer)
}

/// Ctrl-C and SIGTERM.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// Before anybody is told that it is ready: who stops it at once must find it listening.
    fn listen() -> anyhow::Result<Signals> {
        let listen = |kind| signal(kind).context("cannot listen for signals");
        Ok(Signals {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
        })
    }
}

/// Waits until it is told to stop, then stops in order: requests first, then the store.
async fn until_told(mut signals: Signals, running: Running) -> anyhow::Result<()> {
    tokio::select! {
        _ = signals.interrupt.recv() => {}
        _ = signals.terminate.recv() => {}
    }
    eprintln!("stopping");
    tell_supervisor(NotifyState::Stopping);
    running.peer.stop().await;
    running.storage.close().await
}

/// systemd, or whatever else gave this process a `NOTIFY_SOCKET`; nobody else hears it.
fn tell_supervisor(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::warn!(%error, "whoever supervises this process cannot be told how it is");
    }
}

fn write_private(env: &Env, path: &Path, text: &str) -> anyhow::Result<()> {
    env.files
        .write_atomic(path, text.as_bytes(), true)
        .with_context(|| format!("cannot write {}", path.display()))
}

#[allow(clippy::too_many_arguments)]
pub async fn serve(
    env: Env,
    data: &Path,
    listen: SocketAddr,
    advertise: Option<String>,
    issuer: Option<String>,
    store: &StoreArgs,
    login: LoginOptions,
    server: Options,
) -> anyhow::Result<()> {
    let running = start(&env, data, listen, advertise, issuer, store, login, server).await?;
    let signals = Signals::listen()?;
    let contexts = [("hanse", api::DEFAULT), ("root", api::ROOT)];
    let kubeconfig = running.peer.admin_kubeconfig(&contexts)?;
    let path = data.join("admin.kubeconfig");
    write_private(&env, &path, &kubeconfig)?;
    eprintln!("serving on {} (admin: {})", running.peer.url(), path.display());
    tell_supervisor(NotifyState::Ready);
    until_told(signals, running).await
}

/// What `hanse dev` runs beside the peer.
pub struct DevOptions {
    pub clusters: usize,
    /// In each cluster.
    pub nodes: usize,
}

pub async fn dev(
    env: Env,
    dir: &Path,
    listen: SocketAddr,
    login: LoginOptions,
    mut server: Options,
    options: DevOptions,
) -> anyhow::Result<()> {
    let clusters = Arc::new(dev::Clusters::default());
    server.tools.clusters = Some(clusters.clone());
    let running = start(&env, dir, listen, None, None, &StoreArgs::default(), login, server).await?;
    let signals = Signals::listen()?;
    let contexts = [("hanse", api::DEFAULT), ("root", api::ROOT)];
    let sites = dev::sites(options.clusters);
    let members = dev::Members::start(&env, dir, listen, &sites, options.nodes).await?;
    clusters.set(members.simulation.clone());
    let kubeconfig = running.peer.admin_kubeconfig(&contexts)?;
    let kubeconfig = Kubeconfig::combined(&kubeconfig, &members.kubeconfigs(&sites)?)?;
    let path: PathBuf = dir.join("kubeconfig");
    let kubeconfig = Kubeconfig::continued(&env, &path, &kubeconfig)?;
    write_private(&env, &path, &kubeconfig)?;
    dev::join_all(&env, &path, &sites).await?;
    println!("Hanse is ready on {}. Ctrl-C stops it; starting it again continues.", running.peer.url());
    println!();
    println!("In another terminal:");
    println!();
    println!("  export KUBECONFIG={}", shown(&path));
    match sites.first() {
        Some(_) => {
            println!("  kubectl get clusters");
            println!("  kubectl create deployment hello --image=hello:1 --replicas=3 --port=8080");
            println!("  kubectl get pods -o wide -w");
        }
        None => {
            println!("  kubectl create configmap hello --from-literal=who=world");
            println!("  kubectl get configmaps -A");
        }
    }
    println!();
    until_told(signals, running).await?;
    members.stop().await
}

/// A path that works from any directory of the other terminal.
fn shown(path: &Path) -> String {
    match std::path::absolute(path) {
        Ok(path) => path.display().to_string(),
        Err(_) => path.display().to_string(),
    }
}
