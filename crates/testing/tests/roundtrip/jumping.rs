//! A hub with members on a clock that jumps to the next moment at which anything is to happen, with the settings that hubs
//! are run with: what takes minutes, what counts probes, and how long things take at most.

use std::{net::SocketAddr, path::Path, sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use env::{Env, files::sim::SimDisk, network::sim::SimNet};
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use serde_json::{Map, Value};
use server::{
    Hub, Options,
    login::caller::Caller,
    peer::{Peer, PeerOptions},
    service::{self, Connection},
    user::{AUTHENTICATED, MASTERS, User},
};
use sim::{ClusterOptions, Pace, Simulation};
use store::memory::MemoryStore;
use sync::{
    client::{Access, Client, Identity},
    join,
};

use crate::world::{collection, condition};

/// The host that the hub is on; each member is on one of its own name, unless they are together.
pub const HUB: &str = "hub";
const PORT: u16 = 6443;
/// Of the clock that jumps: as long as anything may take.
const LOOKS: usize = 120;

pub async fn ask(hub: &Arc<Hub>, method: Method, path: &str, body: Option<&Value>) -> Result<Value> {
    Ok(serde_json::from_slice(&answer(hub, method, path, body).await?)?)
}

/// To a request of an admin's, of an API server of this process.
async fn answer(hub: &Arc<Hub>, method: Method, path: &str, body: Option<&Value>) -> Result<Bytes> {
    let groups = vec![MASTERS.into(), AUTHENTICATED.into()];
    let user = Arc::new(User { name: "admin".to_owned(), groups, ..User::default() });
    let connection =
        Arc::new(Connection { caller: Some(Arc::new(Caller::Known(user))), ..Connection::default() });
    let bytes = body.map_or_else(Bytes::new, |body| Bytes::from(body.to_string()));
    let kind = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
    let request =
        Request::builder().method(method).uri(path).header("content-type", kind).body(Full::new(bytes))?;
    let response = Box::pin(service::handle(hub.clone(), connection, request)).await;
    Ok(response.into_body().collect().await.ok().context("no whole answer")?.to_bytes())
}

pub async fn until(hub: &Arc<Hub>, path: &str, holds: impl Fn(&Value) -> bool) -> Result<Value> {
    let mut found = Value::Null;
    for _ in 0..LOOKS {
        found = ask(hub, Method::GET, path, None).await?;
        if holds(&found) {
            return Ok(found);
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    anyhow::bail!("{path} stays {found}")
}

/// A host with clusters.
async fn host(name: &str, number: u64, net: &SimNet, clock: &Env) -> Result<Arc<Simulation>> {
    let simulated = Env::simulated(number, SimDisk::new(number), net.host(name));
    let env = Env { clock: clock.clock.clone(), ..simulated };
    let store = Arc::new(MemoryStore::new());
    Ok(Arc::new(Simulation::start(&env, "/pki".into(), store, Pace::default()).await?))
}

fn access(kubeconfig: &str) -> Result<Access> {
    let config: Value = serde_saphyr::from_str(kubeconfig)?;
    let text =
        |pointer: &str| config.pointer(pointer).and_then(Value::as_str).context("no kubeconfig of ours");
    let data = |pointer: &str| -> Result<Vec<u8>> { Ok(BASE64_STANDARD.decode(text(pointer)?)?) };
    Ok(Access {
        server: text("/clusters/0/cluster/server")?.to_owned(),
        authority: data("/clusters/0/cluster/certificate-authority-data")?,
        server_name: None,
        identity: Identity::Certificate {
            certificate: data("/users/0/user/client-certificate-data")?,
            key: data("/users/0/user/client-key-data")?,
        },
    })
}

async fn join(name: &str, member: &Simulation, hub: &Peer, laptop: &Env) -> Result<()> {
    let credential = hub.authority.client("admin", &["system:masters"])?;
    let of_hub = Access {
        server: format!("{}/clusters/default", hub.url()),
        authority: hub.authority.certificate_pem().as_bytes().to_vec(),
        server_name: None,
        identity: Identity::Certificate {
            certificate: credential.certificate_pem.into_bytes(),
            key: credential.key_pem.into_bytes(),
        },
    };
    let of_member = access(&member.kubeconfig(name)?)?;
    let client = |access: &Access| Client::new(laptop.clone(), access, Duration::from_secs(20));
    let (to_hub, to_member) = (client(&of_hub)?, client(&of_member)?);
    let request =
        join::Request { name, labels: Map::new(), hub: &to_hub, member: &to_member, access: &of_member };
    join::join(&request).await?;
    let ready = |it: &Value| condition(it, "Ready")["status"] == "True";
    until(&hub.hub, &format!("{}/{name}", crate::world::CLUSTERS), ready).await.map(drop)
}

async fn start_hub(env: &Env, net: &SimNet, store: Arc<MemoryStore>, starts: usize) -> Result<Peer> {
    let views = Path::new("/data").join(format!("views-{starts}"));
    let options = PeerOptions {
        pki: "/data/pki".into(),
        listen: SocketAddr::new(net.ip(), PORT),
        advertise: None,
        server: Options { views: Some(views), ..Options::default() },
        login: Default::default(),
        sharing: None,
    };
    let peer = Peer::start(env, store, options).await?;
    assign::start(&peer.hub);
    sync::start(&peer.hub, sync::Options::default());
    Ok(peer)
}

/// They end with it.
pub struct Jumping {
    pub net: SimNet,
    pub peer: Peer,
    pub members: Vec<(&'static str, Arc<Simulation>)>,
    store: Arc<MemoryStore>,
    env: Env,
    laptop: Env,
    starts: usize,
}

impl Jumping {
    /// With members, each on a host of its own.
    pub async fn start(members: &[&'static str]) -> Result<Jumping> {
        let mut world = Self::alone().await?;
        world.join(members).await?;
        Ok(world)
    }

    /// Members join, each on a host of its own.
    pub async fn join(&mut self, members: &[&'static str]) -> Result<()> {
        for (number, name) in (3..).zip(members.iter().copied()) {
            let simulation = host(name, number, &self.net, &self.laptop).await?;
            self.add(name, simulation, ClusterOptions::default()).await?;
        }
        Ok(())
    }

    /// With members on one host, so that there is one record of all that happens in them.
    pub async fn start_together(members: Vec<(&'static str, ClusterOptions)>) -> Result<Jumping> {
        let mut world = Self::alone().await?;
        let simulation = host("members", 3, &world.net, &world.laptop).await?;
        for (name, options) in members {
            world.add(name, simulation.clone(), options).await?;
        }
        Ok(world)
    }

    /// Without members yet.
    pub async fn alone() -> Result<Jumping> {
        let net = SimNet::new(HUB);
        let laptop = Env::simulated(1, SimDisk::new(1), net.host("laptop"));
        let env = Env { clock: laptop.clock.clone(), ..Env::simulated(2, SimDisk::new(2), net.clone()) };
        let store = Arc::new(MemoryStore::new());
        let peer = start_hub(&env, &net, store.clone(), 0).await?;
        Ok(Jumping { net, peer, members: Vec::new(), store, env, laptop, starts: 1 })
    }

    async fn add(
        &mut self,
        name: &'static str,
        simulation: Arc<Simulation>,
        options: ClusterOptions,
    ) -> Result<()> {
        simulation.add(name, options).await?;
        join(name, &simulation, &self.peer, &self.laptop).await?;
        self.members.push((name, simulation));
        Ok(())
    }

    /// The hub goes and comes back with what it stored and nothing that it had seen, and finds its members.
    pub async fn restarted(self) -> Result<Jumping> {
        let names: Vec<&str> = self.members.iter().map(|(name, _)| *name).collect();
        self.restarted_with(&names).await
    }

    /// The same, and only these can be found.
    pub async fn restarted_with(self, found: &[&str]) -> Result<Jumping> {
        let world = self.restarted_after(Duration::ZERO).await?;
        for name in found {
            world.until_ready(name).await?;
        }
        Ok(world)
    }

    /// The same, after it has been away for so long; whom it finds is another question.
    pub async fn restarted_after(self, away: Duration) -> Result<Jumping> {
        let Jumping { net, peer, members, store, env, laptop, starts } = self;
        peer.stop().await;
        tokio::time::sleep(away).await;
        let peer = start_hub(&env, &net, store.clone(), starts).await?;
        Ok(Jumping { net, peer, members, store, env, laptop, starts: starts + 1 })
    }

    pub async fn until_ready(&self, cluster: &str) -> Result<()> {
        let ready = |it: &Value| condition(it, "Ready")["status"] == "True";
        self.until(&format!("{}/{cluster}", crate::world::CLUSTERS), ready).await.map(drop)
    }

    /// A request to a member, of an admin's there.
    pub async fn ask_member(
        &self,
        name: &str,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value> {
        ask(self.member(name)?.hub(), method, &format!("/clusters/{name}{path}"), body).await
    }

    pub async fn until_there(&self, name: &str, path: &str, holds: impl Fn(&Value) -> bool) -> Result<Value> {
        until(self.member(name)?.hub(), &format!("/clusters/{name}{path}"), holds).await
    }

    pub fn member(&self, name: &str) -> Result<&Simulation> {
        let found = self.members.iter().find(|(of, _)| *of == name);
        found.map(|(_, simulation)| &**simulation).context("no such member")
    }

    pub async fn patch(&self, path: &str, patch: &Value) -> Result<()> {
        let done = ask(&self.peer.hub, Method::PATCH, path, Some(patch)).await?;
        ensure!(done["metadata"]["uid"].is_string(), "{done}");
        Ok(())
    }

    pub async fn create(&self, object: &Value) -> Result<()> {
        let made = ask(&self.peer.hub, Method::POST, &collection(object), Some(object)).await?;
        ensure!(made["metadata"]["uid"].is_string(), "{made}");
        Ok(())
    }

    pub async fn until(&self, path: &str, holds: impl Fn(&Value) -> bool) -> Result<Value> {
        until(&self.peer.hub, path, holds).await
    }

    /// How many probes of members there were that failed, and how many did not.
    pub async fn probes(&self) -> Result<(u64, u64)> {
        let text = answer(&self.peer.hub, Method::GET, "/metrics", None).await?;
        let text = String::from_utf8(text.to_vec())?;
        let (mut failed, mut good) = (0, 0);
        for line in text.lines().filter(|it| it.starts_with("hanse_member_probes_total{")) {
            let count: u64 = line.rsplit(' ').next().context("a count")?.parse()?;
            if line.contains("reason=\"Ready\"") { good += count } else { failed += count }
        }
        Ok((failed, good))
    }

    /// Waits until there are so many that failed, or that did not.
    pub async fn until_probed(&self, holds: impl Fn(u64, u64) -> bool) -> Result<(u64, u64)> {
        let mut probes = (0, 0);
        for _ in 0..10 * LOOKS {
            probes = self.probes().await?;
            if holds(probes.0, probes.1) {
                return Ok(probes);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        anyhow::bail!("it stays at {probes:?}")
    }
}
