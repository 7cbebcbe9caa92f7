//! A hub with members, real or simulated, and those who watch them.

use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use env::Env;
use futures_util::{StreamExt, TryStreamExt, stream};
use http::Method;
use serde_json::{Map, Value, json};
use sync::{client::Client, join, kubeconfig::Kubeconfig};
use testing::real::{self, RealCluster};
use tokio::{
    sync::Mutex,
    task::JoinSet,
    time::{sleep, timeout},
};

use super::{
    members::Simulated,
    traces::{Kind, Traces, Watch, Wish, Witness, watch},
};
use crate::{
    client::{self, Connection, Endpoint},
    machine::{self, Reading},
    servers::{self, Server},
};

/// The longest that anything may take.
pub const PATIENCE: Duration = Duration::from_secs(900);
/// The longest that an answer may take.
const ANSWER: Duration = Duration::from_secs(60);
/// Namespace of what is made unless it says otherwise.
pub const NAMESPACE: &str = "bench";
/// As many as the peers' figures were measured with.
pub const WORKERS: usize = 32;
const CONNECTIONS: usize = 4;
const JOINS_AT_ONCE: usize = 8;

/// Where the members are.
pub enum Clusters {
    Real(Vec<RealCluster>),
    Simulated(Simulated),
}

impl Clusters {
    /// Control planes with so many nodes that kwok pretends to be; their own components are not held back.
    pub fn real(count: usize, nodes: usize) -> Result<Clusters> {
        let start = |number: usize| {
            RealCluster::start(real::Options {
                controller_manager: true,
                nodes: (0..nodes).map(|node| format!("node-{number}-{node}")).collect(),
                client_limits: Some((500, 1000)),
                ..real::Options::default()
            })
        };
        std::thread::scope(|scope| {
            let starting: Vec<_> = (0..count).map(|number| scope.spawn(move || start(number))).collect();
            let started = starting.into_iter().map(|it| it.join().expect("it does not panic"));
            Ok(Clusters::Real(started.collect::<Result<_>>()?))
        })
    }

    pub async fn simulated(count: usize, nodes: usize) -> Result<Clusters> {
        Ok(Clusters::Simulated(Simulated::start(count, nodes).await?))
    }

    fn kubeconfigs(&self) -> Vec<(String, PathBuf)> {
        match self {
            Self::Simulated(simulated) => simulated.kubeconfigs(),
            Self::Real(real) => real
                .iter()
                .enumerate()
                .map(|(number, cluster)| (format!("real-{number}"), cluster.kubeconfig.clone()))
                .collect(),
        }
    }
}

pub struct Member {
    pub name: String,
    kubeconfig: PathBuf,
    pub endpoint: Endpoint,
}

pub struct Fleet {
    server: Server,
    pub hub: Endpoint,
    pub members: Vec<Member>,
    pub traces: Arc<Traces>,
    connections: Vec<Mutex<Connection>>,
    _watches: Vec<Watch>,
    _clusters: Clusters,
}

/// What a user makes, and what is to come of it.
pub struct Item {
    pub kind: Kind,
    pub namespace: String,
    pub name: String,
    pub body: Value,
    pub wish: Wish,
}

impl Fleet {
    /// Nothing is joined yet.
    pub async fn start(hanse: &Path, clusters: Clusters) -> Result<Fleet> {
        let mut server = Server::plain(hanse)?;
        let hub = server.start().await?.admin;
        let members = clusters.kubeconfigs().into_iter().map(|(name, kubeconfig)| {
            let endpoint = servers::read_kubeconfig(&std::fs::read_to_string(&kubeconfig)?)?;
            Ok(Member { name, kubeconfig, endpoint })
        });
        let members: Vec<Member> = members.collect::<Result<_>>()?;
        let traces = Arc::new(Traces::default());
        let mut watches = vec![watch(&traces, &hub, Witness::Hub, Kind::Deployment)];
        for (number, member) in members.iter().enumerate() {
            for kind in [Kind::Deployment, Kind::ConfigMap] {
                watches.push(watch(&traces, &member.endpoint, Witness::Member(number), kind));
            }
        }
        let connections = connections(&hub).await?;
        let fleet =
            Fleet { server, hub, members, traces, connections, _watches: watches, _clusters: clusters };
        fleet.namespace(NAMESPACE).await?;
        Ok(fleet)
    }

    /// Joins all members, and waits until all can be used.
    pub async fn join(&mut self, labels: impl Fn(usize) -> Map<String, Value>) -> Result<Duration> {
        let began = Instant::now();
        let env = Env::real();
        let kubeconfig = self.server.kubeconfig().context("the hub has no kubeconfig")?;
        let hub = client_of(&env, kubeconfig)?.0;
        let joins = self.members.iter().enumerate().map(|(number, member)| {
            let (env, hub, labels) = (&env, &hub, labels(number));
            async move {
                let (client, access) = client_of(env, &member.kubeconfig)?;
                let request =
                    join::Request { name: &member.name, labels, hub, member: &client, access: &access };
                join::join(&request).await.with_context(|| format!("{} is not joined", member.name))
            }
        });
        stream::iter(joins).buffer_unordered(JOINS_AT_ONCE).try_collect::<Vec<_>>().await?;
        self.until_ready().await?;
        let joined = began.elapsed();
        Ok(joined)
    }

    async fn until_ready(&self) -> Result<()> {
        let began = Instant::now();
        loop {
            let list = self.get(join::CLUSTERS).await?;
            let is_ready = |cluster: &&Value| {
                let mut conditions = cluster["status"]["conditions"].as_array().into_iter().flatten();
                conditions.any(|it| it["type"] == "Ready" && it["status"] == "True")
            };
            let ready = list["items"].as_array().into_iter().flatten().filter(is_ready).count();
            if ready == self.members.len() {
                return Ok(());
            }
            ensure!(began.elapsed() < PATIENCE, "{ready} of {} members are ready", self.members.len());
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// One that nobody used for a while may have been closed by the hub, which is then asked for another.
    async fn connection(&self, number: usize) -> Result<Connection> {
        let mut connection = self.connections[number % self.connections.len()].lock().await;
        if connection.is_closed() {
            *connection = self.hub.connect().await?;
        }
        Ok(connection.clone())
    }

    pub async fn get(&self, path: &str) -> Result<Value> {
        let answer = answered(self.connection(0).await?, client::get(self.hub.uri(path)?)).await?;
        Ok(serde_json::from_slice(&answer)?)
    }

    async fn send(&self, number: usize, path: &str, body: &Value) -> Result<()> {
        let body = Bytes::from(body.to_string());
        let request = client::with_body(Method::POST, self.hub.uri(path)?, "application/json", body);
        answered(self.connection(number).await?, request).await.with_context(|| format!("POST {path}"))?;
        Ok(())
    }

    pub async fn namespace(&self, name: &str) -> Result<()> {
        let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        self.send(0, "/api/v1/namespaces", &body).await
    }

    pub async fn placement(&self, name: &str, spec: &Value) -> Result<()> {
        self.send(name.len(), "/apis/hanse.io/v1alpha1/placements", &placement(name, spec)).await
    }

    pub async fn create(&self, number: usize, item: &Item) -> Result<()> {
        self.traces.expect(item.kind, &item.name, item.wish.clone());
        self.send(number, &item.kind.collection(&item.namespace), &item.body).await
    }

    /// By many workers, each waiting for its answer. How long it took.
    pub async fn each<F: Future<Output = Result<()>>>(
        &self,
        count: usize,
        work: impl Fn(usize) -> F,
    ) -> Result<Duration> {
        let (began, next) = (Instant::now(), AtomicUsize::new(0));
        let worker = async || -> Result<()> {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    return Ok(());
                }
                work(number).await?;
            }
        };
        futures_util::future::try_join_all((0..WORKERS).map(|_| worker())).await?;
        Ok(began.elapsed())
    }

    pub async fn create_all(&self, items: &[Item]) -> Result<Duration> {
        self.each(items.len(), |number| self.create(number, &items[number])).await
    }

    /// So many in a second, whether or not the earlier ones were answered. How long it took until all were.
    pub async fn create_at(&self, items: Vec<Item>, per_second: f64) -> Result<Duration> {
        let began = Instant::now();
        let mut answers = JoinSet::new();
        for (number, item) in items.into_iter().enumerate() {
            let due = began + Duration::from_secs_f64(number as f64 / per_second);
            tokio::time::sleep_until(due.into()).await;
            self.traces.expect(item.kind, &item.name, item.wish.clone());
            let uri = self.hub.uri(&item.kind.collection(&item.namespace))?;
            let body = Bytes::from(item.body.to_string());
            let request = client::with_body(Method::POST, uri, "application/json", body);
            answers.spawn(answered(self.connection(number).await?, request));
        }
        while let Some(answer) = answers.join_next().await {
            answer??;
        }
        Ok(began.elapsed())
    }

    /// Changes what a ConfigMap says, here or in a member.
    pub async fn mark(&self, at: &Endpoint, namespace: &str, name: &str, mark: &str) -> Result<()> {
        let uri = at.uri(&format!("{}/{name}", Kind::ConfigMap.collection(namespace)))?;
        let patch = json!({"data": {"mark": mark}}).to_string().into();
        let request = client::with_body(Method::PATCH, uri, "application/merge-patch+json", patch);
        answered(at.connect().await?, request).await?;
        Ok(())
    }

    pub fn reading(&self) -> Result<Reading> {
        Reading::take(&self.server.pids())
    }

    /// Of the hub, MiB.
    pub fn resident(&self) -> Result<f64> {
        Ok(machine::resident(&self.server.pids())? as f64 / 1024.0 / 1024.0)
    }

    /// What the hub keeps, MiB.
    pub fn on_disk(&self) -> Result<f64> {
        Ok(machine::bytes_below(self.server.directory())? as f64 / 1024.0 / 1024.0)
    }

    pub async fn stop(&mut self) -> Result<()> {
        self.server.stop().await
    }

    /// Starts it on its data again; how long until it answered.
    pub async fn start_again(&mut self) -> Result<Duration> {
        let after = self.server.start().await?.after;
        self.connections = connections(&self.hub).await?;
        Ok(after)
    }

    pub async fn metrics(&self) -> Result<Metrics> {
        let answer =
            answered(self.connection(0).await?, client::get(self.hub.server_uri("/metrics")?)).await?;
        Ok(Metrics::parse(&String::from_utf8_lossy(&answer)))
    }

    /// Until nothing waits to be decided or looked at in members, and all copies are known.
    pub async fn at_rest(&self, copies: usize) -> Result<()> {
        let began = Instant::now();
        loop {
            let metrics = self.metrics().await?;
            let waiting = metrics.of("hanse_placement_queue") + metrics.of("hanse_copy_queue");
            if waiting == 0.0 && metrics.of("hanse_copies") as usize >= copies {
                return Ok(());
            }
            ensure!(began.elapsed() < PATIENCE, "the hub does not come to rest: {waiting} wait");
            sleep(Duration::from_millis(20)).await;
        }
    }
}

async fn connections(hub: &Endpoint) -> Result<Vec<Mutex<Connection>>> {
    Ok(hub.connect_many(CONNECTIONS).await?.into_iter().map(Mutex::new).collect())
}

/// A server that says nothing for so long is not waited for.
async fn answered(mut connection: Connection, request: client::Request) -> Result<Bytes> {
    Ok(timeout(ANSWER, connection.call(request)).await.context("no answer")??)
}

/// What a server counts.
pub struct Metrics(HashMap<String, f64>);

impl Metrics {
    /// Those with labels are summed up under the name without.
    fn parse(text: &str) -> Metrics {
        let mut found: HashMap<String, f64> = HashMap::new();
        for line in text.lines().filter(|line| line.starts_with("hanse_")) {
            let Some((name, value)) = line.rsplit_once(' ') else { continue };
            let name = name.split('{').next().unwrap_or(name);
            *found.entry(name.to_owned()).or_default() += value.parse().unwrap_or(0.0);
        }
        Metrics(found)
    }

    pub fn of(&self, name: &str) -> f64 {
        self.0.get(name).copied().unwrap_or(0.0)
    }

    /// What it took between two moments: decisions, writes to members, writes of what is assigned and what came of it.
    pub fn since(&self, before: &Metrics) -> BTreeMap<&'static str, f64> {
        const COUNTED: [&str; 4] = [
            "hanse_placement_decisions_total",
            "hanse_placement_writes_total",
            "hanse_copy_writes_total",
            "hanse_copy_reports_total",
        ];
        COUNTED.into_iter().map(|name| (name, self.of(name) - before.of(name))).collect()
    }
}

fn client_of(env: &Env, path: &Path) -> Result<(Client, sync::client::Access)> {
    let config = Kubeconfig::read(env, path)?.with_context(|| format!("no {}", path.display()))?;
    let access = config.access(env, config.current_context())?;
    Ok((Client::new(env.clone(), &access, PATIENCE)?, access))
}

fn placement(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "hanse.io/v1alpha1", "kind": "Placement", "metadata": {"name": name}, "spec": spec})
}

/// A Deployment that is to be in so many members, and how many pods are ready in each, and shown in the hub.
pub fn deployment(name: &str, replicas: usize, members: usize, ready: (usize, usize)) -> Item {
    let body = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{
                    "name": "web", "image": "registry.example/web:1.0",
                    "resources": {"requests": {"cpu": "1m", "memory": "1Mi"}},
                }]},
            },
        },
    });
    let ready = Some((ready.0 as u64, ready.1 as u64));
    let wish = Wish { members, ready, mark: None };
    Item { kind: Kind::Deployment, namespace: NAMESPACE.to_owned(), name: name.to_owned(), body, wish }
}

/// A ConfigMap of 1 KiB.
pub fn config_map(name: &str, members: usize) -> Item {
    let body = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"app": name}},
        "data": {"mark": "0", "payload": "x".repeat(1024)},
    });
    let wish = Wish { members, ready: None, mark: Some("0".to_owned()) };
    Item { kind: Kind::ConfigMap, namespace: NAMESPACE.to_owned(), name: name.to_owned(), body, wish }
}

impl Item {
    pub fn within(mut self, namespace: &str) -> Item {
        self.namespace = namespace.to_owned();
        self
    }
}
