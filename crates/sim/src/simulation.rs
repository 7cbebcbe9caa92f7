//! Clusters that are started, stopped and disturbed by name.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use env::{BoxFuture, Env};
use http::Response;
use machinery::status::Status;
use parking_lot::Mutex;
use serde_json::{Value, json};
use server::{
    Hub, Options,
    body::Body,
    hub::workspace_id,
    kubeconfig, listen,
    login::LoginOptions,
    peer::{Peer, PeerOptions, StartError},
    pki::{Authority, PkiError},
    streams::{Ask, Pods},
    user::MASTERS,
};
use store::Store;
use tokio::sync::watch;

use crate::{
    Refused,
    addresses::Addresses,
    controllers,
    engine::{Cluster, Engine},
    gate::{Conditions, Gate},
    kind::{NODES, STORAGE_CLASSES},
    kubelet::{Kubelet, Pace},
    node::{self, Heartbeat},
    runtime::{Runtime, exec, logs},
    scheduler::Scheduler,
    tree,
};

/// Who sets up clusters.
const INSTALLER: &str = "cluster-installer";

/// Who makes volumes.
const PROVISIONER: &str = "volumes.sim.hanse.io";

/// How long it may take until nothing is left of a cluster.
const LONGEST_END: Duration = Duration::from_secs(60);

/// The Kubernetes release that simulated nodes say they are of.
const VERSION: &str = "v1.36.4";

/// Why a cluster could not be had.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    #[error(transparent)]
    Start(#[from] StartError),
    #[error(transparent)]
    Pki(#[from] PkiError),
    #[error("the API server refused: {0}")]
    Refused(#[from] Refused),
    #[error("cannot listen for cluster {name}: {source}")]
    Listen { name: String, source: std::io::Error },
    #[error("{0} does not come to its end")]
    Lingers(String),
    #[error("there is no cluster {0}")]
    NoSuch(String),
}

/// One kind of node.
#[derive(Clone, Debug)]
pub struct NodeShape {
    pub count: usize,
    pub cpu: String,
    pub memory: String,
    pub pods: u32,
    pub labels: BTreeMap<String, String>,
    pub taints: Vec<Value>,
}

impl Default for NodeShape {
    fn default() -> Self {
        Self {
            count: 2,
            cpu: "8".into(),
            memory: "32Gi".into(),
            pods: 110,
            labels: BTreeMap::new(),
            taints: Vec::new(),
        }
    }
}

/// How a cluster is set up.
#[derive(Clone, Debug, Default)]
pub struct ClusterOptions {
    pub nodes: NodeShape,
    /// Where it listens; on a free port of 127.0.0.1 if it does not say.
    pub listen: Option<SocketAddr>,
    /// The name of its default storage class, from which volumes are made on demand; none unless given.
    pub storage_class: Option<String>,
}

/// All simulated clusters of a process. Dropped, they stop.
pub struct Simulation {
    env: Env,
    hub: Arc<Hub>,
    authority: Arc<Authority>,
    /// Until it is shut down.
    peer: Mutex<Option<Peer>>,
    engine: Arc<Engine>,
    runtime: Arc<Runtime>,
    clusters: Mutex<BTreeMap<String, Arc<SimCluster>>>,
}

/// One of them.
pub struct SimCluster {
    pub name: String,
    pub address: SocketAddr,
    options: ClusterOptions,
    known: Mutex<Arc<Cluster>>,
    conditions: watch::Sender<Conditions>,
    /// Stops its listener; `None` while it is down.
    serving: Mutex<Option<watch::Sender<bool>>>,
}

/// Opens streams to simulated pods.
struct Streams {
    runtime: Arc<Runtime>,
    engine: Arc<Engine>,
}

impl Pods for Streams {
    fn open(&self, ask: Ask) -> BoxFuture<'static, Result<Response<Body>, Status>> {
        let runtime = self.runtime.clone();
        let is_known = self.engine.cluster(ask.space.id()).is_some();
        Box::pin(async move {
            match ask.what.as_str() {
                _ if !is_known => Err(Status::internal("this workspace is no cluster")),
                "log" => logs::open(runtime, ask).await,
                "exec" => exec::open(runtime, ask).await,
                _ => Err(Status::method_not_allowed()),
            }
        })
    }
}

impl Simulation {
    /// `pki`: where certificates are kept. `store`: where objects are; in memory they go with the process.
    pub async fn start(
        env: &Env,
        pki: PathBuf,
        store: Arc<dyn Store>,
        pace: Pace,
    ) -> Result<Simulation, SimError> {
        let server = Options {
            // Every cluster has as much of it as it wants.
            max_requests_inflight: 0,
            max_mutating_requests_inflight: 0,
            loopback_endpoints: true,
            ..Options::default()
        };
        let options = PeerOptions {
            pki,
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            advertise: None,
            server,
            login: LoginOptions::default(),
            sharing: None,
        };
        let peer = Peer::start(env, store, options).await?;
        let mut chance = [0; 4];
        env.random.fill(&mut chance);
        let addresses = Arc::new(Addresses::new(u32::from_le_bytes(chance)));
        let runtime = Arc::new(Runtime::new(env.clone(), addresses.clone()));
        let mut all = controllers::all();
        all.push(Box::new(Scheduler));
        all.push(Box::new(Kubelet { pace, addresses }));
        all.push(Box::new(Heartbeat));
        let engine = Engine::new(peer.hub.clone(), all, runtime.clone());
        let streams = Streams { runtime: runtime.clone(), engine: engine.clone() };
        // Nobody else sets it.
        let _ = peer.hub.pods.set(Arc::new(streams));
        engine.start();
        Ok(Simulation {
            env: env.clone(),
            hub: peer.hub.clone(),
            authority: peer.authority.clone(),
            peer: Mutex::new(Some(peer)),
            engine,
            runtime,
            clusters: Mutex::default(),
        })
    }

    /// A cluster that answers; if there is one of this name in the store, that one.
    pub async fn add(&self, name: &str, options: ClusterOptions) -> Result<Arc<SimCluster>, SimError> {
        let known = self.install(name, &options).await?;
        let listen = options.listen.unwrap_or(SocketAddr::from(([127, 0, 0, 1], 0)));
        let (conditions, _) = watch::channel(Conditions::default());
        let failed = |source| SimError::Listen { name: name.to_owned(), source };
        let listener = self.env.network.listen(listen).await.map_err(failed)?;
        let address = listener.local_address().map_err(failed)?;
        let cluster = Arc::new(SimCluster {
            name: name.to_owned(),
            address,
            options,
            known: Mutex::new(known),
            conditions,
            serving: Mutex::new(None),
        });
        self.serve(&cluster, listener);
        self.clusters.lock().insert(name.to_owned(), cluster.clone());
        Ok(cluster)
    }

    /// Makes the workspace and its nodes where they are not there.
    async fn install(&self, name: &str, options: &ClusterOptions) -> Result<Arc<Cluster>, SimError> {
        let api = &self.engine.api;
        let workspace =
            json!({"apiVersion": api::API_VERSION, "kind": "Workspace", "metadata": {"name": name}});
        let path = format!("/apis/{}/{}/workspaces", api::GROUP, api::VERSION);
        let made = api
            .send(api::ROOT, INSTALLER, http::Method::POST, &path, "application/json", Some(&workspace))
            .await;
        let workspace = match made {
            Err(refused) if refused.code == 409 => {
                let path = format!("{path}/{name}");
                api.send(api::ROOT, INSTALLER, http::Method::GET, &path, "application/json", None).await?
            }
            made => made?,
        };
        let cluster = Arc::new(Cluster {
            name: name.to_owned(),
            id: workspace_id(tree::uid(&workspace)),
            pods: Mutex::default(),
            controlled: Mutex::default(),
            paused: AtomicBool::new(false),
        });
        self.engine.adopt(cluster.clone());
        for number in 1..=options.nodes.count {
            let node = node::object(name, number, &options.nodes, VERSION);
            match api.create(name, INSTALLER, NODES, &node).await {
                Err(refused) if refused.code != 409 => return Err(refused.into()),
                Err(_) => {}
                Ok(made) => {
                    let patch = json!({"status": node["status"]});
                    let path = NODES.path("", tree::name(&made)) + "/status";
                    let merge = "application/merge-patch+json";
                    api.send(name, INSTALLER, http::Method::PATCH, &path, merge, Some(&patch)).await?;
                }
            }
        }
        if let Some(class) = &options.storage_class {
            let class = json!({
                "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
                "metadata": {"name": class, "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
                "provisioner": PROVISIONER,
            });
            match api.create(name, INSTALLER, STORAGE_CLASSES, &class).await {
                Err(refused) if refused.code != 409 => return Err(refused.into()),
                _ => {}
            }
        }
        Ok(cluster)
    }

    fn serve(&self, cluster: &SimCluster, listener: Box<dyn env::Listener>) {
        let (stop, stopping) = watch::channel(false);
        let gate = Gate {
            inner: listener,
            conditions: cluster.conditions.subscribe(),
            clock: self.env.clock.clone(),
        };
        let prefix: Arc<str> = format!("/clusters/{}", cluster.name).into();
        let serving = listen::serve_below(self.hub.clone(), Box::new(gate), stopping, Some(prefix));
        self.env.tasks.spawn(Box::pin(serving));
        *cluster.serving.lock() = Some(stop);
    }

    pub fn get(&self, name: &str) -> Result<Arc<SimCluster>, SimError> {
        self.clusters.lock().get(name).cloned().ok_or_else(|| SimError::NoSuch(name.to_owned()))
    }

    pub fn clusters(&self) -> Vec<Arc<SimCluster>> {
        self.clusters.lock().values().cloned().collect()
    }

    /// A kubeconfig for the cluster's admin, with one context of the cluster's name.
    pub fn kubeconfig(&self, name: &str) -> Result<String, SimError> {
        let cluster = self.get(name)?;
        let credential = self.authority.client("admin", &[MASTERS])?;
        let authority = self.hub.login.serving_authorities_pem();
        Ok(kubeconfig::render_at(&format!("https://{}", cluster.address), &authority, name, &credential))
    }

    /// Everything in it stands still and nobody answers: control plane, nodes and pods are down. Nothing is lost.
    pub async fn stop(&self, name: &str) -> Result<(), SimError> {
        let cluster = self.get(name)?;
        cluster.known.lock().paused.store(true, Ordering::Relaxed);
        let id = cluster.known.lock().id.clone();
        if let Some(stop) = cluster.serving.lock().take() {
            // Its listener may have ended by itself.
            let _ = stop.send(true);
        }
        cluster.conditions.send_modify(|it| it.cut = true);
        self.runtime.stop_all(&id);
        Ok(())
    }

    /// As it was before it was stopped; one that was killed begins anew.
    pub async fn resume(&self, name: &str) -> Result<(), SimError> {
        let cluster = self.get(name)?;
        if cluster.serving.lock().is_some() {
            return Ok(());
        }
        let known = self.install(name, &cluster.options).await?;
        *cluster.known.lock() = known;
        cluster.conditions.send_replace(Conditions::default());
        let failed = |source| SimError::Listen { name: name.to_owned(), source };
        let listener = self.listen_again(cluster.address).await.map_err(failed)?;
        self.serve(&cluster, listener);
        Ok(())
    }

    /// The port is free as soon as the old listener has gone, which happens on a task of its own.
    async fn listen_again(&self, address: SocketAddr) -> std::io::Result<Box<dyn env::Listener>> {
        for _ in 0..100 {
            match self.env.network.listen(address).await {
                Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
                    self.env.clock.sleep(Duration::from_millis(20)).await;
                }
                done => return done,
            }
        }
        self.env.network.listen(address).await
    }

    /// It is gone with all that was in it. Started again it is another cluster, of the same name and address.
    pub async fn kill(&self, name: &str) -> Result<(), SimError> {
        self.stop(name).await?;
        let path = format!("/apis/{}/{}/workspaces/{name}", api::GROUP, api::VERSION);
        let api = &self.engine.api;
        match api.send(api::ROOT, INSTALLER, http::Method::DELETE, &path, "application/json", None).await {
            Err(refused) if refused.code != 404 => return Err(refused.into()),
            _ => {}
        }
        // Its content goes in the background; the name is free when that is done.
        let began = self.env.clock.elapsed();
        loop {
            match api.send(api::ROOT, INSTALLER, http::Method::GET, &path, "application/json", None).await {
                Err(refused) if refused.code == 404 => break,
                Err(refused) => return Err(refused.into()),
                Ok(_) if self.env.clock.elapsed().saturating_sub(began) > LONGEST_END => {
                    return Err(SimError::Lingers(name.to_owned()));
                }
                Ok(_) => self.env.clock.sleep(Duration::from_millis(10)).await,
            }
        }
        let id = self.get(name)?.known.lock().id.clone();
        self.engine.forget(&id);
        Ok(())
    }

    /// Everything that is sent to it arrives so much later; nothing later again if zero.
    pub fn slow(&self, name: &str, delay: Duration) -> Result<(), SimError> {
        self.get(name)?.conditions.send_modify(|it| it.delay = delay);
        Ok(())
    }

    /// Whether all clusters have come to rest, but for what waits for a time to come.
    pub fn is_idle(&self) -> bool {
        self.engine.is_idle()
    }

    pub fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    pub async fn shut_down(&self) {
        for cluster in self.clusters() {
            if let Some(stop) = cluster.serving.lock().take() {
                let _ = stop.send(true);
            }
        }
        let peer = self.peer.lock().take();
        if let Some(peer) = peer {
            peer.stop().await;
        }
    }
}

impl SimCluster {
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    pub fn is_up(&self) -> bool {
        self.serving.lock().is_some()
    }
}
