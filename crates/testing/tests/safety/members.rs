//! Member clusters, each on a host of its own.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use base64::{Engine, prelude::BASE64_STANDARD};
use env::{Env, files::sim::SimDisk, network::sim::SimNet};
use http::Method;
use serde_json::{Map, Value};
use sim::{ClusterOptions, NodeShape, Pace, Simulation};
use store::{Store, WorkspaceId, memory::MemoryStore};
use sync::{
    client::{Access, Client, Identity},
    join,
};

use crate::{
    history::{History, Recorder, Side},
    machine::{Running, ask},
};

pub const NAMES: [&str; 3] = ["a", "b", "c"];

const PACE: Pace = Pace {
    start_after: Duration::from_secs(1),
    ready_after: Duration::from_secs(1),
    job_takes: Duration::from_secs(20),
    stop_after: Duration::from_secs(1),
};

pub struct Member {
    pub name: &'static str,
    pub simulation: Simulation,
    pub store: Arc<MemoryStore>,
    pub workspace: WorkspaceId,
    pub recorder: Recorder,
}

impl Member {
    pub async fn start(
        name: &'static str,
        seed: u64,
        net: &SimNet,
        env: &Env,
        history: &Arc<History>,
    ) -> Result<Member> {
        let simulated = Env::simulated(seed, SimDisk::new(seed), net.host(name));
        let env = Env { clock: env.clock.clone(), ..simulated };
        let store = Arc::new(MemoryStore::new());
        let recorder = history.follow(store.feed(), Side::Member(name));
        let simulation = Simulation::start(&env, "/pki".into(), store.clone(), PACE).await?;
        let nodes = NodeShape { count: 1, cpu: "64".into(), ..NodeShape::default() };
        simulation.add(name, ClusterOptions { nodes, ..ClusterOptions::default() }).await?;
        let workspace =
            simulation.hub().space(name).map_err(|it| anyhow::anyhow!("{}", it.message()))?.id().clone();
        Ok(Member { name, simulation, store, workspace, recorder })
    }

    pub async fn ask(&self, method: Method, path: &str, body: Option<Value>) -> Result<(u16, Value)> {
        let kind = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
        let path = format!("/clusters/{}{path}", self.name);
        ask(self.simulation.hub().clone(), method, path, kind.to_owned(), body).await
    }

    pub fn access(&self) -> Result<Access> {
        let config: Value = serde_saphyr::from_str(&self.simulation.kubeconfig(self.name)?)?;
        let data = |pointer: &str| -> Result<Vec<u8>> {
            let text = config.pointer(pointer).and_then(Value::as_str).context("no kubeconfig of ours")?;
            Ok(BASE64_STANDARD.decode(text)?)
        };
        let server = config.pointer("/clusters/0/cluster/server").and_then(Value::as_str);
        Ok(Access {
            server: server.context("no server")?.to_owned(),
            authority: data("/clusters/0/cluster/certificate-authority-data")?,
            server_name: None,
            identity: Identity::Certificate {
                certificate: data("/users/0/user/client-certificate-data")?,
                key: data("/users/0/user/client-key-data")?,
            },
        })
    }

    /// From a third host, as people do.
    pub async fn join(&self, hub: &Running, env: &Env) -> Result<()> {
        let credential = hub.peer.authority.client("admin", &["system:masters"])?;
        let access = Access {
            server: format!("{}/clusters/default", hub.peer.url()),
            authority: hub.peer.authority.certificate_pem().as_bytes().to_vec(),
            server_name: None,
            identity: Identity::Certificate {
                certificate: credential.certificate_pem.into_bytes(),
                key: credential.key_pem.into_bytes(),
            },
        };
        let member = self.access()?;
        let client = |access: &Access| Client::new(env.clone(), access, Duration::from_secs(20));
        let (hub, admin) = (client(&access)?, client(&member)?);
        let request =
            join::Request { name: self.name, labels: Map::new(), hub: &hub, member: &admin, access: &member };
        let joined = join::join(&request).await;
        ensure!(
            joined.is_ok(),
            "{} cannot be joined: {:?}",
            self.name,
            joined.err().map(|it| it.to_string())
        );
        Ok(())
    }
}
