//! The two kinds of clusters, seen through their APIs.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use base64::{Engine, prelude::BASE64_STANDARD};
use env::Env;
use serde_json::{Value, json};
use sim::{ClusterOptions, Pace, Simulation};
use store::memory::MemoryStore;
use tempfile::TempDir;
use testing::{
    client::{Answer, Client},
    real::{Options, RealCluster},
};
use tokio::time::Instant;

use super::{
    snapshot::{Snapshot, bare_pod, text},
    table::{Case, Step},
};

/// What controllers write: path of the API, plural, kind.
const KINDS: [(&str, &str, &str); 18] = [
    ("/api/v1", "pods", "Pod"),
    ("/api/v1", "services", "Service"),
    ("/api/v1", "endpoints", "Endpoints"),
    ("/api/v1", "persistentvolumeclaims", "PersistentVolumeClaim"),
    ("/api/v1", "persistentvolumes", "PersistentVolume"),
    ("/api/v1", "replicationcontrollers", "ReplicationController"),
    ("/api/v1", "resourcequotas", "ResourceQuota"),
    ("/apis/apps/v1", "deployments", "Deployment"),
    ("/apis/apps/v1", "replicasets", "ReplicaSet"),
    ("/apis/apps/v1", "statefulsets", "StatefulSet"),
    ("/apis/apps/v1", "daemonsets", "DaemonSet"),
    ("/apis/apps/v1", "controllerrevisions", "ControllerRevision"),
    ("/apis/batch/v1", "jobs", "Job"),
    ("/apis/batch/v1", "cronjobs", "CronJob"),
    ("/apis/autoscaling/v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler"),
    ("/apis/policy/v1", "poddisruptionbudgets", "PodDisruptionBudget"),
    ("/apis/discovery.k8s.io/v1", "endpointslices", "EndpointSlice"),
    ("/api/v1", "events", "Event"),
];
const PATIENCE: Duration = Duration::from_secs(180);
/// Nothing changes for so long: it is at rest.
const REST: Duration = Duration::from_secs(3);
/// As the simulated ones are called.
const NODES: [&str; 2] = ["lifecycle-node-1", "lifecycle-node-2"];

pub struct Cluster {
    name: &'static str,
    client: Client,
    /// Kept alive with it.
    _server: Server,
}

enum Server {
    Real(#[expect(dead_code, reason = "runs until it is dropped")] Box<RealCluster>),
    Simulated(
        #[expect(dead_code, reason = "runs until it is dropped")] Box<Simulation>,
        #[expect(dead_code, reason = "is removed when it is dropped")] TempDir,
    ),
}

impl Cluster {
    pub async fn real() -> Result<Cluster> {
        let options = Options {
            controller_manager: true,
            nodes: NODES.map(str::to_owned).to_vec(),
            fsync: false,
            ..Options::default()
        };
        let real = tokio::task::spawn_blocking(|| RealCluster::start(options)).await??;
        let identity = (real.admin_cert_pem.as_str(), real.admin_key_pem.as_str());
        let client = Client::connect(&real.url, &real.ca_pem, Some(identity)).await?;
        Ok(Cluster { name: "real", client, _server: Server::Real(Box::new(real)) })
    }

    pub async fn simulated() -> Result<Cluster> {
        let directory = tempfile::tempdir()?;
        let pki = directory.path().join("pki");
        let store = Arc::new(MemoryStore::new());
        let simulation = Simulation::start(&Env::real(), pki, store, Pace::default()).await?;
        simulation.add("lifecycle", ClusterOptions::default()).await?;
        let config: Value = serde_saphyr::from_str(&simulation.kubeconfig("lifecycle")?)?;
        let pem = |at: &str| -> Result<String> {
            Ok(String::from_utf8(BASE64_STANDARD.decode(text(&config, at))?)?)
        };
        let authority = pem("/clusters/0/cluster/certificate-authority-data")?;
        let certificate = pem("/users/0/user/client-certificate-data")?;
        let key = pem("/users/0/user/client-key-data")?;
        let url = text(&config, "/clusters/0/cluster/server");
        let client = Client::connect(url, &authority, Some((&certificate, &key))).await?;
        let server = Server::Simulated(Box::new(simulation), directory);
        Ok(Cluster { name: "simulated", client, _server: server })
    }

    /// All steps in a namespace of their own, and then rest.
    pub async fn run(&self, case: &Case) -> Result<Snapshot> {
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": case.name } });
        self.check(self.client.post("/api/v1/namespaces", &namespace).await?)?;
        testing::hub::outfitted(&self.client, &format!("/api/v1/namespaces/{}", case.name)).await?;
        for step in case.steps {
            self.step(case, step).await?;
        }
        let deadline = Instant::now() + PATIENCE;
        let mut last = self.snapshot(case.name).await?;
        let mut since = Instant::now();
        while since.elapsed() < REST {
            tokio::time::sleep(Duration::from_millis(250)).await;
            let next = self.snapshot(case.name).await?;
            if next != last {
                (last, since) = (next, Instant::now());
            }
            ensure!(
                Instant::now() < deadline,
                "{} does not come to rest on the {} cluster",
                case.name,
                self.name
            );
        }
        Ok(last)
    }

    async fn step(&self, case: &Case, step: &Step) -> Result<()> {
        let content = format!("{} on the {} cluster", case.name, self.name);
        self.take(case, step).await.context(content)
    }

    async fn take(&self, case: &Case, step: &Step) -> Result<()> {
        match step {
            Step::Create(yaml) => {
                for document in yaml.split("\n---\n") {
                    let object: Value = serde_saphyr::from_str(document)?;
                    let (api, plural, _) = KINDS
                        .iter()
                        .find(|(_, _, kind)| *kind == text(&object, "/kind"))
                        .with_context(|| format!("no such kind: {object}"))?;
                    let path = collection(api, plural, case.name);
                    self.check(self.client.post(&path, &object).await?)?;
                }
            }
            Step::Patch(object, patch) => {
                let patch: Value = serde_json::from_str(patch)?;
                self.check(self.client.merge_patch(&path(object, case.name)?, &patch).await?)?;
            }
            Step::Delete(object) => {
                self.check(self.client.delete(&path(object, case.name)?).await?)?;
            }
            Step::Until(object, at, wanted) => {
                let wanted: Value = serde_json::from_str(wanted)?;
                self.wait(&path(object, case.name)?, at, |found| *found == wanted).await?;
            }
            Step::Has(object, at) => self.wait(&path(object, case.name)?, at, |_| true).await?,
        }
        Ok(())
    }

    async fn wait(&self, path: &str, at: &str, is_right: impl Fn(&Value) -> bool) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let object = self.client.get(path).await?.json();
            if object.pointer(at).is_some_and(&is_right) {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "{path} is not as it should be at {at}: {object}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    pub async fn snapshot(&self, namespace: &str) -> Result<Snapshot> {
        let mut objects: BTreeMap<&'static str, Vec<Value>> = BTreeMap::new();
        let mut events = Vec::new();
        for (api, plural, _) in KINDS {
            let answer = self.client.get(&collection(api, plural, namespace)).await?;
            let list = self.check(answer)?;
            let mut items: Vec<Value> = list["items"].as_array().cloned().unwrap_or_default();
            match plural {
                "events" => events = items,
                "pods" => drop(objects.insert(plural, items.iter().map(bare_pod).collect())),
                // They belong to no namespace, but each to one case.
                "persistentvolumes" => {
                    let of_case = |item: &Value| text(item, "/spec/claimRef/namespace") == namespace;
                    items.retain(of_case);
                    objects.insert(plural, items);
                }
                _ => drop(objects.insert(plural, items)),
            }
        }
        Ok(Snapshot::of(&objects, &events))
    }

    fn check(&self, answer: Answer) -> Result<Value> {
        if !answer.code.is_success() {
            bail!("the {} cluster says {}: {}", self.name, answer.code, answer.text());
        }
        Ok(answer.json())
    }
}

fn collection(api: &str, plural: &str, namespace: &str) -> String {
    match plural {
        "persistentvolumes" => format!("{api}/{plural}"),
        _ => format!("{api}/namespaces/{namespace}/{plural}"),
    }
}

/// Of `deployments.apps/web`.
fn path(object: &str, namespace: &str) -> Result<String> {
    let (resource, name) = object.split_once('/').context("an object is plural/name")?;
    let plural = resource.split('.').next().unwrap_or_default();
    let (api, plural, _) = KINDS.iter().find(|(_, it, _)| *it == plural).context("no such kind")?;
    Ok(format!("{}/{name}", collection(api, plural, namespace)))
}
