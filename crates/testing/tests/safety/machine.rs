//! The hub on a machine that loses power, and as a process that is killed.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use env::{BoxFuture, Clock, Env, Tasks, files::sim::SimDisk, network::sim::SimNet};
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use serde_json::Value;
use server::{
    Hub, Options,
    login::caller::Caller,
    peer::{Peer, PeerOptions},
    service::{self, Connection},
    user::{AUTHENTICATED, MASTERS, User},
};
use store::embedded::EmbeddedStore;
use tokio::sync::watch;

use crate::history::Recorder;

pub const HOST: &str = "hub";
const PORT: u16 = 6443;
/// How long a user waits for an answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Work that ends in the middle, all at once.
#[derive(Clone)]
struct Mortal {
    dead: watch::Receiver<bool>,
    /// As many as there are tasks, and one.
    alive: Arc<()>,
}

impl Tasks for Mortal {
    fn spawn(&self, work: BoxFuture<'static, ()>) {
        let Mortal { mut dead, alive } = self.clone();
        tokio::spawn(async move {
            tokio::select! {
                biased;
                _ = dead.wait_for(|dead| *dead) => {}
                () = work => {}
            }
            drop(alive);
        });
    }

    fn spawn_blocking_loop(&self, _name: &str, work: BoxFuture<'static, ()>) {
        self.spawn(work);
    }
}

/// What outlives the process.
pub struct Machine {
    pub net: SimNet,
    pub disk: SimDisk,
    clock: Arc<dyn Clock>,
    seed: u64,
    boots: u64,
    /// How often its data was made from a backup.
    restores: u64,
}

const BACKUP: &str = "/backup";

/// A hub that runs.
pub struct Running {
    pub peer: Peer,
    pub store: Arc<EmbeddedStore>,
    pub recorder: Recorder,
    tasks: Mortal,
    kill: watch::Sender<bool>,
}

impl Machine {
    pub fn new(seed: u64, net: SimNet, clock: Arc<dyn Clock>) -> Machine {
        Machine { net, disk: SimDisk::new(seed), clock, seed, boots: 0, restores: 0 }
    }

    fn boot(&mut self) -> Env {
        self.boots += 1;
        // Another random sequence each time, as UIDs are made of it.
        let simulated = Env::simulated(self.seed ^ (self.boots << 40), self.disk.clone(), self.net.clone());
        Env { clock: self.clock.clone(), ..simulated }
    }

    /// Where a hub has what it knows; who trusts whom is elsewhere.
    fn data(&self) -> PathBuf {
        match self.restores {
            0 => "/data".into(),
            number => format!("/restored-{number}").into(),
        }
    }

    /// The next hub that is started has what the backup of [`Running::back_up`] has.
    pub fn restore(&mut self) -> Result<()> {
        let env = self.boot();
        self.restores += 1;
        store::embedded::restore(&env, Path::new(BACKUP), &self.data().join("store"))?;
        Ok(())
    }

    /// `recorder`: follows what the store has from the beginning.
    pub async fn start(&mut self, recorder: impl Fn(Arc<EmbeddedStore>) -> Recorder) -> Result<Running> {
        let (kill, dead) = watch::channel(false);
        let tasks = Mortal { dead, alive: Arc::default() };
        let env = Env { tasks: Arc::new(tasks.clone()), ..self.boot() };
        let store = Arc::new(EmbeddedStore::open(&env, &self.data().join("store"), Default::default())?);
        let recorder = recorder(store.clone());
        let options = PeerOptions {
            pki: "/data/pki".into(),
            listen: SocketAddr::new(self.net.ip(), PORT),
            advertise: None,
            server: Options { views: Some(self.data().join("views")), ..Options::default() },
            login: Default::default(),
            sharing: None,
        };
        let peer = Peer::start(&env, store.clone(), options).await?;
        assign::start(&peer.hub);
        sync::start(&peer.hub, sync::Options::default());
        Ok(Running { peer, store, recorder, tasks, kill })
    }
}

impl Running {
    pub async fn back_up(&self) -> Result<()> {
        Ok(self.store.backup(Path::new(BACKUP)).await.map(drop)?)
    }

    /// It ends here and now: nothing is finished, nobody is told.
    pub async fn kill(self) -> Result<()> {
        self.kill.send_replace(true);
        let Running { peer, store, recorder, tasks, .. } = self;
        recorder.end().await?;
        drop((peer, store));
        for _ in 0..10_000 {
            if Arc::strong_count(&tasks.alive) <= 2 {
                return Ok(());
            }
            tokio::task::yield_now().await;
        }
        ensure!(false, "{} tasks of a hub that was killed live on", Arc::strong_count(&tasks.alive));
        Ok(())
    }

    /// A request that dies with the hub.
    pub fn begin(&self, method: Method, path: &str, kind: &str, body: Option<&Value>) -> Asked {
        let (answer, asked) = tokio::sync::oneshot::channel();
        let asking = ask(self.peer.hub.clone(), method, path.to_owned(), kind.to_owned(), body.cloned());
        self.tasks.spawn(Box::pin(async move {
            let _ = answer.send(asking.await);
        }));
        asked
    }
}

pub type Asked = tokio::sync::oneshot::Receiver<Result<(u16, Value)>>;

/// `None`: nobody knows whether it came to pass.
pub async fn answer(asked: Asked) -> Option<(u16, Value)> {
    tokio::time::timeout(PATIENCE, asked).await.ok()?.ok()?.ok()
}

/// A request of an admin's to an API server of this process.
pub async fn ask(
    hub: Arc<Hub>,
    method: Method,
    path: String,
    content_type: String,
    body: Option<Value>,
) -> Result<(u16, Value)> {
    let groups = vec![MASTERS.into(), AUTHENTICATED.into()];
    let user = Arc::new(User { name: "admin".to_owned(), groups, ..User::default() });
    let connection =
        Arc::new(Connection { caller: Some(Arc::new(Caller::Known(user))), ..Connection::default() });
    let bytes = body.map_or_else(Bytes::new, |body| Bytes::from(body.to_string()));
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", content_type)
        .body(Full::new(bytes))?;
    let response = Box::pin(service::handle(hub, connection, request)).await;
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.ok().context("no whole answer")?.to_bytes();
    Ok((parts.status.as_u16(), serde_json::from_slice(&bytes).unwrap_or_default()))
}
