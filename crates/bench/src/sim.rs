//! The benchmark `sim`: what simulated clusters cost, and how soon their pods are seen in the hub.
//!
//! ```text
//!   hanse dev --clusters N ─ a Deployment in each ─ all pods ready ─ idle
//!   hanse dev --clusters M ─ many pods in each ─ seen in the hub's view ─ change one here and there, see it there
//! ```

use std::{
    collections::BTreeMap,
    fs,
    net::{Ipv4Addr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use clap::Args;
use http::Method;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{sleep, timeout};

use crate::{
    client::{self, Connection, Endpoint},
    figures::Latencies,
    machine::{self, Reading, Usage},
    report::number,
    servers,
};

#[derive(Args)]
pub struct Options {
    /// Clusters of the first part
    #[arg(long, default_value_t = 1000)]
    clusters: usize,
    /// Pods in each of them
    #[arg(long, default_value_t = 20)]
    pods: usize,
    /// Clusters of the second part
    #[arg(long, default_value_t = 100)]
    viewed_clusters: usize,
    /// Pods in each of them
    #[arg(long, default_value_t = 1000)]
    viewed_pods: usize,
    /// Changes whose way into the view is measured
    #[arg(long, default_value_t = 500)]
    changes: usize,
    /// Seconds that nothing is asked for
    #[arg(long, default_value_t = 20)]
    idle: u64,
    /// Few clusters, to see that everything works
    #[arg(long)]
    quick: bool,
    /// Where the page is written, besides stdout
    #[arg(long)]
    out: Option<PathBuf>,
}

/// One `hanse dev` with its clusters.
struct Dev {
    process: Process,
    _directory: TempDir,
    ready: Duration,
    hub: Endpoint,
    clusters: BTreeMap<String, Endpoint>,
}

/// Ends with this program.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The longest that anything may take.
const PATIENCE: Duration = Duration::from_secs(900);
const MIB: f64 = 1024.0 * 1024.0;

impl Dev {
    async fn start(binary: &Path, clusters: usize, nodes: usize) -> Result<Dev> {
        let directory = tempfile::tempdir()?;
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let log = fs::File::create(directory.path().join("log"))?;
        let started = Instant::now();
        let process = Command::new(binary)
            .args(["dev", "--dir"])
            .arg(directory.path().join("dev"))
            .args(["--listen", &format!("127.0.0.1:{port}")])
            .args(["--clusters", &clusters.to_string(), "--nodes", &nodes.to_string()])
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        let mut process = Process(process);
        loop {
            let log = fs::read_to_string(directory.path().join("log")).unwrap_or_default();
            if log.contains("is ready") {
                break;
            }
            ensure!(process.0.try_wait()?.is_none(), "hanse dev ended:\n{log}");
            ensure!(started.elapsed() < PATIENCE, "hanse dev is not ready in time:\n{log}");
            sleep(Duration::from_millis(5)).await;
        }
        let ready = started.elapsed();
        let mut endpoints = endpoints(&directory.path().join("dev/kubeconfig"))?;
        endpoints.remove("root");
        let hub = endpoints.remove("hanse").context("no context hanse")?;
        ensure!(endpoints.len() == clusters, "{} contexts for {clusters} clusters", endpoints.len());
        Ok(Dev { process, _directory: directory, ready, hub, clusters: endpoints })
    }

    fn pids(&self) -> Vec<u32> {
        vec![self.process.0.id()]
    }

    fn resident(&self) -> Result<f64> {
        Ok(machine::resident(&self.pids())? as f64)
    }

    async fn idle(&self, time: Duration) -> Result<Usage> {
        let before = Reading::take(&self.pids())?;
        sleep(time).await;
        Ok(before.until(Reading::take(&self.pids())?))
    }

    /// A Deployment in every cluster, until all its pods are ready.
    async fn deploy(&self, pods: usize) -> Result<Duration> {
        let began = Instant::now();
        for endpoint in self.clusters.values() {
            let uri = endpoint.uri("/apis/apps/v1/namespaces/default/deployments")?;
            let request = client::with_body(Method::POST, uri, "application/json", deployment(pods));
            endpoint.connect().await?.call(request).await?;
        }
        for (name, endpoint) in &self.clusters {
            loop {
                let uri = endpoint.uri("/apis/apps/v1/namespaces/default/deployments/web")?;
                let answer = endpoint.connect().await?.call(client::get(uri)).await?;
                let answer: Value = serde_json::from_slice(&answer)?;
                if answer["status"]["readyReplicas"].as_u64() == Some(pods as u64) {
                    break;
                }
                ensure!(began.elapsed() < PATIENCE, "pods of {name} are not ready: {}", answer["status"]);
                sleep(Duration::from_millis(200)).await;
            }
        }
        Ok(began.elapsed())
    }
}

/// By context.
fn endpoints(kubeconfig: &Path) -> Result<BTreeMap<String, Endpoint>> {
    let text = fs::read_to_string(kubeconfig)?;
    let mut found = BTreeMap::new();
    let config: Value = serde_saphyr::from_str(&text)?;
    let entry = |list: &str, name: &Value| -> Result<Value> {
        let entries = config[list].as_array().into_iter().flatten();
        let found = entries.into_iter().find(|it| it["name"] == *name);
        found.cloned().with_context(|| format!("no {name} in {list}"))
    };
    let data = |entry: &Value, key: &str| -> Result<String> {
        Ok(String::from_utf8(STANDARD.decode(entry[key].as_str().context("no data")?)?)?)
    };
    for context in config["contexts"].as_array().into_iter().flatten() {
        let cluster = entry("clusters", &context["context"]["cluster"])?["cluster"].clone();
        let user = entry("users", &context["context"]["user"])?["user"].clone();
        let endpoint = Endpoint::new(
            cluster["server"].as_str().context("no server")?,
            &data(&cluster, "certificate-authority-data")?,
            &data(&user, "client-certificate-data")?,
            &data(&user, "client-key-data")?,
        )?;
        found.insert(context["name"].as_str().unwrap_or_default().to_owned(), endpoint);
    }
    Ok(found)
}

fn deployment(pods: usize) -> Bytes {
    let object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {
            "replicas": pods, "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{
                    "name": "web", "image": "registry.example/web:1.0",
                    "resources": {"requests": {"cpu": "1m", "memory": "1Mi"}},
                }]},
            },
        },
    });
    object.to_string().into()
}

struct First {
    clusters: usize,
    pods: usize,
    ready: Duration,
    empty: f64,
    deployed: Duration,
    full: f64,
    idle_empty: Usage,
    idle_full: Usage,
}

struct Second {
    clusters: usize,
    pods: usize,
    deployed: Duration,
    seen: Duration,
    empty: f64,
    full: f64,
    latencies: Latencies,
    list: Duration,
}

async fn first(binary: &Path, options: &Options, clusters: usize, pods: usize) -> Result<First> {
    let dev = Dev::start(binary, clusters, 2).await?;
    sleep(Duration::from_secs(5)).await;
    let empty = dev.resident()?;
    let idle_empty = dev.idle(Duration::from_secs(options.idle)).await?;
    eprintln!("{clusters} clusters: {:.1} MiB", empty / MIB);
    let deployed = dev.deploy(pods).await?;
    sleep(Duration::from_secs(5)).await;
    let full = dev.resident()?;
    let idle_full = dev.idle(Duration::from_secs(options.idle)).await?;
    eprintln!("{clusters} clusters with {pods} pods each: {:.1} MiB", full / MIB);
    Ok(First { clusters, pods, ready: dev.ready, empty, deployed, full, idle_empty, idle_full })
}

/// How many pods the hub sees.
async fn seen(connection: &mut Connection, hub: &Endpoint) -> Result<usize> {
    let uri = hub.uri("/api/v1/pods?limit=1&resourceVersion=0")?;
    let answer: Value = serde_json::from_slice(&connection.call(client::get(uri)).await?)?;
    let left = answer["metadata"]["remainingItemCount"].as_u64().unwrap_or(0) as usize;
    Ok(left + answer["items"].as_array().map_or(0, Vec::len))
}

async fn second(binary: &Path, clusters: usize, pods: usize, changes: usize) -> Result<Second> {
    let nodes = pods.div_ceil(100) + 1;
    let dev = Dev::start(binary, clusters, nodes).await?;
    sleep(Duration::from_secs(5)).await;
    let empty = dev.resident()?;
    let began = Instant::now();
    let deployed = dev.deploy(pods).await?;
    eprintln!("{clusters} clusters with {pods} pods each: ready after {:.1} s", deployed.as_secs_f64());
    let mut connection = dev.hub.connect().await?;
    while seen(&mut connection, &dev.hub).await? < clusters * pods {
        ensure!(began.elapsed() < PATIENCE, "the hub does not see all pods");
        sleep(Duration::from_millis(100)).await;
    }
    let all_seen = began.elapsed();
    sleep(Duration::from_secs(5)).await;
    let full = dev.resident()?;
    let asked = Instant::now();
    connection.call(client::get(dev.hub.uri("/api/v1/pods?resourceVersion=0")?)).await?;
    let list = asked.elapsed();
    let latencies = changes_seen(&dev, changes).await?;
    Ok(Second { clusters, pods, deployed, seen: all_seen, empty, full, latencies, list })
}

/// Changes a label of a pod in a member, and waits until a watch in the hub has it.
async fn changes_seen(dev: &Dev, changes: usize) -> Result<Latencies> {
    let mut latencies = Latencies::default();
    let uri = dev.hub.uri("/api/v1/namespaces/default/pods?watch=true&labelSelector=bench")?;
    let mut watching = dev.hub.connect().await?;
    let mut stream = Lines { body: watching.open(client::get(uri)).await?.into_body(), rest: Vec::new() };
    let endpoints: Vec<&Endpoint> = dev.clusters.values().collect();
    for number in 0..changes {
        let endpoint = endpoints[number * 7 % endpoints.len()];
        let mut connection = endpoint.connect().await?;
        let uri = endpoint.uri("/api/v1/namespaces/default/pods?limit=1&resourceVersion=0")?;
        let list: Value = serde_json::from_slice(&connection.call(client::get(uri)).await?)?;
        let name = list["items"][0]["metadata"]["name"].as_str().context("no pod")?.to_owned();
        let mark = format!("b{number}");
        let patch = json!({"metadata": {"labels": {"bench": mark}}}).to_string();
        let uri = endpoint.uri(&format!("/api/v1/namespaces/default/pods/{name}"))?;
        let request = client::with_body(Method::PATCH, uri, "application/merge-patch+json", patch.into());
        connection.call(request).await?;
        let began = Instant::now();
        let wanted = format!("\"bench\":\"{mark}\"");
        let arrived = async {
            loop {
                let line = stream.next().await?;
                if String::from_utf8_lossy(&line).contains(&wanted) {
                    return Ok::<_, anyhow::Error>(());
                }
            }
        };
        timeout(PATIENCE, arrived).await.context("a change was never seen in the hub")??;
        latencies.record(began.elapsed());
    }
    Ok(latencies)
}

struct Lines {
    body: Incoming,
    rest: Vec<u8>,
}

impl Lines {
    async fn next(&mut self) -> Result<Vec<u8>> {
        loop {
            if let Some(end) = memchr::memchr(b'\n', &self.rest) {
                let rest = self.rest.split_off(end + 1);
                return Ok(std::mem::replace(&mut self.rest, rest));
            }
            match self.body.frame().await {
                Some(frame) => {
                    if let Ok(data) = frame?.into_data() {
                        self.rest.extend_from_slice(&data);
                    }
                }
                None => bail!("the watch ended"),
            }
        }
    }
}

pub async fn run(options: Options) -> Result<()> {
    machine::allow_many_files()?;
    let binary = servers::hanse_binary()?;
    let (clusters, pods, viewed_clusters, viewed_pods, changes) = match options.quick {
        true => (20, 5, 5, 20, 20),
        false => {
            (options.clusters, options.pods, options.viewed_clusters, options.viewed_pods, options.changes)
        }
    };
    let one = first(&binary, &options, clusters, pods).await?;
    let two = second(&binary, viewed_clusters, viewed_pods, changes).await?;
    let page = page(&machine::describe(&std::env::temp_dir())?, &one, &two);
    print!("{page}");
    if let Some(path) = options.out {
        fs::write(&path, page).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

fn page(machine: &str, one: &First, two: &Second) -> String {
    let date = jiff::Zoned::now().date();
    let seconds = |time: Duration| number(time.as_secs_f64());
    let mib = |bytes: f64| number(bytes / MIB);
    let cores = |usage: &Usage| number(usage.server.as_secs_f64() / usage.elapsed.as_secs_f64());
    let each = one.empty / MIB / one.clusters as f64;
    let all_pods = (one.clusters * one.pods) as f64;
    let viewed = (two.clusters * two.pods) as f64;
    let p95 = two.latencies.quantile(0.95);
    let verdict = |met: bool| if met { "met" } else { "**missed**" };
    let rows = [
        format!("{} simulated clusters in one process, joined to its hub", number(one.clusters as f64)),
        String::new(),
        "| | |\n|---|--:|".to_owned(),
        format!("| start until all are joined, s | {} |", seconds(one.ready)),
        format!("| memory, MiB | {} |", mib(one.empty)),
        format!("| memory for each cluster, MiB | {} |", number(each)),
        format!("| CPU when idle, cores | {} |", cores(&one.idle_empty)),
        format!("| {} pods in each: all ready after, s | {} |", one.pods, seconds(one.deployed)),
        format!("| memory then, MiB | {} |", mib(one.full)),
        format!("| memory for each pod, KiB | {} |", number((one.full - one.empty) / 1024.0 / all_pods)),
        format!("| CPU when idle, cores | {} |", cores(&one.idle_full)),
    ];
    let view = [
        format!(
            "| {} pods in each of {}: all ready after, s | {} |",
            number(two.pods as f64),
            two.clusters,
            seconds(two.deployed)
        ),
        format!("| all seen in the hub after, s | {} |", seconds(two.seen)),
        format!(
            "| memory for each pod, in its cluster and in the view, KiB | {} |",
            number((two.full - two.empty) / 1024.0 / viewed)
        ),
        format!("| list of all pods in the hub, s | {} |", seconds(two.list)),
        format!(
            "| from the answer in the member to the watch in the hub, p50, ms | {} |",
            number(two.latencies.quantile(0.5))
        ),
        format!("| p95, ms | {} |", number(p95)),
        format!("| longest, ms | {} |", number(two.latencies.max())),
    ];
    format!(
        "# Simulated clusters and the view of them\n\n{date}; {machine}. Client and server share the machine.\n\n## \
         Aims\n\n- at most 3 MiB for each idle cluster: {} MiB, {}\n- view latency p95 at most 1 s: {} ms, {}\n\n## \
         {}\n\n## Views\n\n| | |\n|---|--:|\n{}\n",
        number(each),
        verdict(each <= 3.0),
        number(p95),
        verdict(p95 <= 1000.0),
        rows.join("\n"),
        view.join("\n"),
    )
}
