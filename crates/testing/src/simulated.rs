//! Simulated clusters in this process.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use base64::{Engine, engine::general_purpose::STANDARD};
use env::Env;
use serde_json::Value;
use sim::{ClusterOptions, Pace, Simulation};
use store::memory::MemoryStore;
use tempfile::TempDir;

use crate::{client::Client, hub::eventually};

/// Clusters that are gone when this is dropped.
pub struct TestClusters {
    pub simulation: Arc<Simulation>,
    _directory: TempDir,
}

impl TestClusters {
    /// Pods start at once unless they say otherwise.
    pub async fn start(names: &[&str]) -> Result<TestClusters> {
        Self::start_with(names, Pace::default(), ClusterOptions::default()).await
    }

    pub async fn start_with(names: &[&str], pace: Pace, options: ClusterOptions) -> Result<TestClusters> {
        let directory = tempfile::tempdir()?;
        let store = Arc::new(MemoryStore::new());
        let simulation = Simulation::start(&Env::real(), directory.path().join("pki"), store, pace).await?;
        for name in names {
            simulation.add(name, options.clone()).await?;
        }
        Ok(TestClusters { simulation: Arc::new(simulation), _directory: directory })
    }

    /// An admin of the cluster, as its kubeconfig says.
    pub async fn admin(&self, name: &str) -> Result<Client> {
        connect(&self.simulation.kubeconfig(name)?).await
    }

    /// Somebody who says nothing of who they are.
    pub async fn nobody(&self, name: &str) -> Result<Client> {
        let access = Access::read(&self.simulation.kubeconfig(name)?)?;
        Client::connect(&access.url, &access.authority, None).await
    }

    /// Waits until nothing happens any more by itself, but for what waits for a time to come.
    pub async fn settled(&self) -> Result<()> {
        let mut calm = 0;
        eventually("the clusters come to rest", || {
            calm = if self.simulation.is_idle() { calm + 1 } else { 0 };
            let rests = calm >= 5;
            async move { Ok(rests.then_some(())) }
        })
        .await
    }
}

/// What the only context of a kubeconfig says.
struct Access {
    url: String,
    authority: String,
    certificate: String,
    key: String,
}

impl Access {
    fn read(kubeconfig: &str) -> Result<Access> {
        let config: Value = serde_saphyr::from_str(kubeconfig).context("no kubeconfig")?;
        let data = |entry: &Value, key: &str| -> Result<String> {
            let text = entry[key].as_str().with_context(|| format!("no {key}"))?;
            Ok(String::from_utf8(STANDARD.decode(text)?)?)
        };
        let cluster = &config["clusters"][0]["cluster"];
        let user = &config["users"][0]["user"];
        let url = cluster["server"].as_str().context("no server")?.to_owned();
        ensure!(url.starts_with("https://"), "{url}");
        Ok(Access {
            url,
            authority: data(cluster, "certificate-authority-data")?,
            certificate: data(user, "client-certificate-data")?,
            key: data(user, "client-key-data")?,
        })
    }
}

/// By the only context of a kubeconfig.
pub async fn connect(kubeconfig: &str) -> Result<Client> {
    let Access { url, authority, certificate, key } = Access::read(kubeconfig)?;
    Client::connect(&url, &authority, Some((&certificate, &key))).await
}
