//! The simulated clusters of `hanse dev`.

use std::{
    collections::{BTreeMap, HashMap},
    net::SocketAddr,
    path::Path,
    sync::{Arc, OnceLock},
    time::Duration,
};

use anyhow::Context;
use clap::Subcommand;
use env::{BoxFuture, Env};
use futures_util::{StreamExt, stream};
use http::Method;
use machinery::status::{About, Status};
use serde_json::{Value, json};
use server::operate::clusters::{Fault, SimulatedClusters};
use sim::{ClusterOptions, NodeShape, Pace, SimError, Simulation};
use sync::join;

use crate::{
    args::ApiArgs,
    client,
    kubeconfig::Kubeconfig,
    storage::{Storage, StoreArgs},
};

/// What claims of volumes get that name no class.
const STORAGE_CLASS: &str = "standard";
/// Nodes take this long to start a pod, so that people see it happen.
const PACE: Pace = Pace {
    start_after: Duration::from_secs(1),
    ready_after: Duration::from_secs(1),
    job_takes: Duration::from_secs(3),
    stop_after: Duration::from_secs(1),
};

/// What to do with simulated clusters.
#[derive(Subcommand)]
pub enum DevVerb {
    /// Play faults on the simulated clusters of a `hanse dev` that runs.
    #[command(subcommand)]
    Cluster(ClusterVerb),
}

#[derive(Subcommand)]
pub enum ClusterVerb {
    /// Show them.
    List {
        #[command(flatten)]
        api: ApiArgs,
    },
    /// Take one down: its API, its nodes and its pods answer no more. Nothing in it is lost.
    Stop {
        name: String,
        #[command(flatten)]
        api: ApiArgs,
    },
    /// Bring one back that was stopped, as it was; one that was killed begins anew, as another cluster.
    Start {
        name: String,
        #[command(flatten)]
        api: ApiArgs,
    },
    /// Destroy one, with all that is in it.
    Kill {
        name: String,
        #[command(flatten)]
        api: ApiArgs,
    },
    /// Let everything that is sent to one arrive later: by 200ms, 2s; 0s ends it.
    Slow {
        name: String,
        #[arg(value_name = "BY", default_value = "1s")]
        by: String,
        #[command(flatten)]
        api: ApiArgs,
    },
}

/// Where a simulated cluster is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    pub name: String,
    pub region: String,
    pub zone: String,
}

/// `eu-1`, `eu-2`, `us-1`, and so on around the world.
pub fn sites(count: usize) -> Vec<Site> {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    let regions = ["eu", "eu", "us", "us", "ap", "ap"];
    let site = |region: &'static str, number: usize| Site {
        name: format!("{region}-{number}"),
        region: region.to_owned(),
        zone: format!("{region}-{}", char::from(b'a' + u8::try_from((number - 1) % 3).unwrap_or(0))),
    };
    regions
        .into_iter()
        .cycle()
        .take(count)
        .map(|region| {
            let number = counts.entry(region).or_insert(0);
            *number += 1;
            site(region, *number)
        })
        .collect()
}

/// The clusters, once they have been started; the API server is there before.
#[derive(Default)]
pub struct Clusters {
    simulation: OnceLock<Arc<Simulation>>,
}

impl Clusters {
    pub fn set(&self, simulation: Arc<Simulation>) {
        // It is set once, by whoever starts everything.
        let _ = self.simulation.set(simulation);
    }
}

impl SimulatedClusters for Clusters {
    fn list(&self) -> Vec<Value> {
        let clusters = self.simulation.get().map(|it| it.clusters()).unwrap_or_default();
        let show = |it: &Arc<sim::SimCluster>| json!({"name": it.name, "server": it.url(), "up": it.is_up()});
        clusters.iter().map(show).collect()
    }

    fn play(&self, cluster: String, fault: Fault) -> BoxFuture<'static, Result<(), Status>> {
        let simulation = self.simulation.get().cloned();
        Box::pin(async move {
            let Some(simulation) = simulation else {
                return Err(Status::internal("the clusters are still being started"));
            };
            let done = match fault {
                Fault::Stop => simulation.stop(&cluster).await,
                Fault::Start => simulation.resume(&cluster).await,
                Fault::Kill => simulation.kill(&cluster).await,
                Fault::Slow(by) => simulation.slow(&cluster, by),
            };
            done.map_err(|error| match error {
                SimError::NoSuch(name) => {
                    Status::not_found(About { group: "", resource: "simulated clusters", name: &name })
                }
                other => Status::internal(other),
            })
        })
    }
}

/// The member clusters of `hanse dev`, and where they keep what they hold.
pub struct Members {
    pub simulation: Arc<Simulation>,
    storage: Storage,
}

impl Members {
    /// One cluster per site, in `dir`, on the ports after `listen`'s where those are free.
    pub async fn start(
        env: &Env,
        dir: &Path,
        listen: SocketAddr,
        sites: &[Site],
        nodes: usize,
    ) -> anyhow::Result<Members> {
        let dir = dir.join("clusters");
        let storage = Storage::open(env, &dir, &StoreArgs::default(), &server::Options::default()).await?;
        let simulation = Simulation::start(env, dir.join("pki"), storage.store(), PACE).await?;
        for (offset, site) in (1u16..).zip(sites) {
            let labels = BTreeMap::from([
                (api::REGION_LABEL.to_owned(), site.region.clone()),
                (api::ZONE_LABEL.to_owned(), site.zone.clone()),
            ]);
            let nodes = NodeShape { labels, count: nodes, ..NodeShape::default() };
            let wanted = listen.port().checked_add(offset).filter(|_| listen.port() != 0);
            let wanted = wanted.map(|port| SocketAddr::new(listen.ip(), port));
            let options = |listen| ClusterOptions {
                nodes: nodes.clone(),
                listen,
                storage_class: Some(STORAGE_CLASS.to_owned()),
            };
            let made = match simulation.add(&site.name, options(wanted)).await {
                Err(SimError::Listen { .. }) => simulation.add(&site.name, options(None)).await,
                made => made,
            };
            made.with_context(|| format!("cannot start the simulated cluster {}", site.name))?;
        }
        Ok(Members { simulation: Arc::new(simulation), storage })
    }

    /// Of their admins.
    pub fn kubeconfigs(&self, sites: &[Site]) -> anyhow::Result<Vec<String>> {
        sites.iter().map(|site| Ok(self.simulation.kubeconfig(&site.name)?)).collect()
    }

    pub async fn stop(self) -> anyhow::Result<()> {
        self.simulation.shut_down().await;
        self.storage.close().await
    }
}

/// Joins the clusters by their contexts in the kubeconfig at `path`, many at once. What is joined already is brought up
/// to date.
pub async fn join_all(env: &Env, path: &Path, sites: &[Site]) -> anyhow::Result<()> {
    const AT_ONCE: usize = 8;
    let kubeconfig = Kubeconfig::open(env, Some(path.to_owned()))?;
    let hub = kubeconfig.workspace(env, Some("hanse"), Some(api::DEFAULT))?;
    let hub = client::client(env, &hub)?;
    let join = async |site: &Site| -> anyhow::Result<()> {
        let access = kubeconfig.workspace(env, Some(&site.name), None)?;
        let member = client::client(env, &access)?;
        let request = join::Request {
            name: &site.name,
            labels: labels(site),
            hub: &hub,
            member: &member,
            access: &access,
        };
        match join::join(&request).await {
            // One that was killed and made anew: its Cluster says so, and whoever killed it decides.
            Err(join::Refusal::No(why)) => {
                eprintln!("{} is not joined: {why}", site.name);
                Ok(())
            }
            other => other.map(drop).with_context(|| format!("{} is not joined", site.name)),
        }
    };
    let mut joining = stream::iter(sites.iter().map(join)).buffer_unordered(AT_ONCE);
    while let Some(joined) = joining.next().await {
        joined?;
    }
    Ok(())
}

/// The labels that a cluster is joined with.
fn labels(site: &Site) -> serde_json::Map<String, Value> {
    let label = |key: &str, value: &str| (key.to_owned(), json!(value));
    [label(api::REGION_LABEL, &site.region), label(api::ZONE_LABEL, &site.zone)].into_iter().collect()
}

pub async fn run(env: &Env, verb: DevVerb) -> anyhow::Result<()> {
    let DevVerb::Cluster(verb) = verb;
    let (name, verb, query, api) = match verb {
        ClusterVerb::List { api } => return list(env, api).await,
        ClusterVerb::Stop { name, api } => (name, "stop", String::new(), api),
        ClusterVerb::Start { name, api } => (name, "start", String::new(), api),
        ClusterVerb::Kill { name, api } => (name, "kill", String::new(), api),
        ClusterVerb::Slow { name, by, api } => (name, "slow", format!("?by={by}"), api),
    };
    let access = api.access(env)?;
    let path = format!("/clusters/root/operate/v1/clusters/{name}/{verb}{query}");
    client::call(env, &access, Method::POST, &path, None).await?;
    match verb {
        "stop" => println!("{name} is down; `hanse dev cluster start {name}` brings it back"),
        "start" => println!("{name} is up"),
        "kill" => println!("{name} is gone; `hanse dev cluster start {name}` makes another one in its place"),
        _ => println!("{name} is slow now; `hanse dev cluster slow {name} 0s` ends it"),
    }
    Ok(())
}

async fn list(env: &Env, api: ApiArgs) -> anyhow::Result<()> {
    let access = api.access(env)?;
    let found = client::call(env, &access, Method::GET, "/clusters/root/operate/v1/clusters", None).await?;
    for cluster in found["clusters"].as_array().into_iter().flatten() {
        let state = if cluster["up"] == true { "up" } else { "down" };
        let text = |key: &str| cluster[key].as_str().unwrap_or_default().to_owned();
        println!("{:<12} {state:<6} {}", text("name"), text("server"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_three_are_two_in_europe_and_one_in_america() {
        let names = |count| sites(count).into_iter().map(|site| site.name).collect::<Vec<_>>();
        assert_eq!(names(3), ["eu-1", "eu-2", "us-1"]);
        assert_eq!(names(0), Vec::<String>::new());
        assert_eq!(names(8), ["eu-1", "eu-2", "us-1", "us-2", "ap-1", "ap-2", "eu-3", "eu-4"]);
        let all = names(300);
        assert_eq!(all.iter().collect::<std::collections::HashSet<_>>().len(), 300);
        assert_eq!(sites(3)[2].region, "us");
    }
}
