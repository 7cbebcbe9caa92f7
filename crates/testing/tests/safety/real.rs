//! The program as a process that is killed again and again, links that break and members that stand still meanwhile.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::Path,
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use env::random::SeededRandom;
use http::StatusCode;
use parking_lot::Mutex;
use serde_json::Value;
use store::{FeedItem, WorkspaceId};
use testing::{
    client::Client,
    hub::eventually,
    link::Link,
    process::{HubProcess, binary, free_port},
    simulated::TestClusters,
};

use crate::{
    acts::{self, Act, Chance},
    members::NAMES,
    number,
    rest::{Copy, compare},
    wanted::{Hub, KINDS, source},
};

/// What nobody touches after it was made.
const KEPT: &str = "kept";
const SECONDS: u64 = 20;

/// What may happen beside the hub's end.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// Nothing passes, and nobody is told.
    Cut,
    /// All connections of the session break.
    Snap,
    /// The member stands still, and does not answer.
    Stop,
}

struct World {
    chance: Chance,
    clusters: TestClusters,
    /// What the hub reaches members by.
    links: BTreeMap<&'static str, Link>,
    workspaces: Vec<(WorkspaceId, &'static str)>,
    /// Copies of what is kept that are gone or on their way out.
    lost: Arc<Mutex<Vec<String>>>,
}

impl World {
    async fn start(seed: u64) -> Result<World> {
        let clusters = TestClusters::start(&NAMES).await?;
        let (mut workspaces, mut links) = (Vec::new(), BTreeMap::new());
        for name in NAMES {
            links.insert(name, Link::to(address(&clusters.simulation.kubeconfig(name)?)?));
            let space = clusters.simulation.hub().space(name);
            let space = space.map_err(|it| anyhow::anyhow!("{}", it.message()))?;
            workspaces.push((space.id().clone(), name));
        }
        let lost = Arc::new(Mutex::new(Vec::new()));
        let (mut feed, found) = (clusters.simulation.hub().store.feed(), lost.clone());
        tokio::spawn(async move {
            loop {
                let FeedItem::Event(event) = feed.next().await else { continue };
                let is_kept = event.key.item.namespace() == KEPT || event.key.item.name() == KEPT;
                let goes = event.after().is_none_or(|after| after.head.deleting);
                if is_kept && goes && source(event.object()).is_some() {
                    found.lock().push(format!("{:?}", event.key));
                }
            }
        });
        Ok(World { chance: Chance(SeededRandom::new(seed)), clusters, links, workspaces, lost })
    }

    /// How a member is reached through its link.
    fn kubeconfig(&self, name: &str) -> Result<String> {
        let config = self.clusters.simulation.kubeconfig(name)?;
        let link = self.links.get(name).context("no such member")?;
        Ok(config.replace(&address(&config)?.to_string(), &link.address.to_string()))
    }

    async fn begin(&self, fault: Fault, name: &'static str) -> Result<()> {
        match fault {
            Fault::Cut => self.links[name].cut(),
            Fault::Snap => self.links[name].snap(),
            Fault::Stop => self.clusters.simulation.stop(name).await?,
        }
        Ok(())
    }

    async fn mend(&self, name: &'static str) -> Result<()> {
        self.links[name].heal();
        Ok(self.clusters.simulation.resume(name).await?)
    }

    fn copies(&self) -> Result<Vec<Copy>> {
        let store = &self.clusters.simulation.hub().store;
        let mut copies = Vec::new();
        for (workspace, cluster) in &self.workspaces {
            for collection in store.collections(workspace) {
                for (_, object) in store.list(workspace, &collection, None)?.iter(None, None) {
                    let Some(source) = source(object) else { continue };
                    let (plural, object) = (collection.parts().1.to_owned(), Value::Object(object.tree()?));
                    copies.push(Copy { cluster, plural, source, object });
                }
            }
        }
        Ok(copies)
    }
}

/// Where a kubeconfig says that the server is.
fn address(kubeconfig: &str) -> Result<SocketAddr> {
    let server = kubeconfig.split_once("https://").map(|(_, rest)| rest).context("no server")?;
    let end = server.find(|it: char| it.is_whitespace() || "/\"'".contains(it)).unwrap_or(server.len());
    Ok(server[..end].parse()?)
}

/// What the hub has, as its users see it; `None`: some cluster was not seen since it was started.
async fn objects(client: &Client) -> Result<Option<Hub>> {
    let mut hub = Hub::default();
    let own = KINDS.iter().map(|(group, plural)| match group.is_empty() {
        true => format!("/api/v1/{plural}"),
        false => format!("/apis/{group}/v1/{plural}"),
    });
    let others = ["/api/v1/namespaces".to_owned(), acts::POLICIES.to_owned()];
    for path in own.chain(others) {
        let list = client.get(&path).await?;
        if list.code == StatusCode::SERVICE_UNAVAILABLE {
            return Ok(None);
        }
        ensure!(list.code == StatusCode::OK, "{path}: {}", list.text());
        let plural = path.rsplit('/').next().unwrap_or_default();
        for object in list.json()["items"].as_array().into_iter().flatten() {
            let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default().to_owned();
            // Pods that members have show here, too, and say so.
            let is_shown = object["metadata"]["labels"][api::CLUSTER_LABEL].is_string();
            if !is_shown && !matches!(&*text("namespace"), "kube-system" | "default" | "hanse-system") {
                hub.objects.insert((plural.to_owned(), text("namespace"), text("name")), object.clone());
            }
        }
    }
    let system = |name: &str| name.starts_with("kube-") || name == "default" || name == "hanse-system";
    hub.objects.retain(|place, _| place.0 != "namespaces" || !system(&place.2));
    Ok(Some(hub))
}

fn join(hub: &HubProcess, directory: &Path, world: &World) -> Result<()> {
    for name in NAMES {
        let config = directory.join(name);
        std::fs::write(&config, world.kubeconfig(name)?)?;
        let mut command = Command::new(binary()?);
        command
            .args(["join", name, "--kubeconfig"])
            .arg(&config)
            .arg("--hub-kubeconfig")
            .arg(hub.kubeconfig());
        let output = command.env_remove("KUBECONFIG").output().context("hanse runs")?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

/// Whatever it answers, and whether it does.
async fn send(client: &Client, act: &Act) {
    let body = act.body.as_ref().map(Value::to_string).unwrap_or_default();
    let headers = [("content-type", act.content_type)];
    let asked = client.call(act.method.clone(), &act.path, &headers, body);
    let _ = tokio::time::timeout(Duration::from_secs(2), asked).await;
}

async fn settled(client: &Client, world: &World) -> Result<()> {
    let settled = eventually("hub and members agree", || async {
        let Some(hub) = objects(client).await? else { return Ok(None) };
        Ok(compare(&hub, &world.copies()?).is_empty().then_some(()))
    });
    match settled.await {
        Ok(()) => Ok(()),
        Err(error) => {
            let wrong = match objects(client).await? {
                Some(hub) => compare(&hub, &world.copies()?),
                None => vec!["a cluster was not seen yet".to_owned()],
            };
            Err(error.context(wrong.join("\n  ")))
        }
    }
}

/// What a user has of the kept: UIDs of copies, by cluster and name.
fn kept(world: &World) -> Result<Vec<(String, Value)>> {
    let of = |copy: Copy| {
        let metadata = &copy.object["metadata"];
        let is_kept = metadata["namespace"] == KEPT || metadata["name"] == KEPT;
        is_kept.then(|| {
            (format!("{} {} {}", copy.cluster, copy.plural, metadata["name"]), metadata["uid"].clone())
        })
    };
    Ok(world.copies()?.into_iter().filter_map(of).collect())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hub_links_and_members_that_break_again_and_again_delete_nothing_that_is_wanted() -> Result<()> {
    let seed = number("HANSE_SEED").unwrap_or(1);
    println!("HANSE_SEED={seed}");
    let world = World::start(seed).await?;
    let directory = tempfile::tempdir()?;
    let (data, port) = (directory.path().join("data"), free_port()?);
    std::fs::create_dir(&data)?;
    let mut hub = HubProcess::start_on(&data, port)?;
    join(&hub, directory.path(), &world)?;
    // Given some that stay, and some that come and go
    let client = hub.client().await?;
    for act in acts::kept(KEPT).into_iter().chain(acts::population(&world.chance)) {
        send(&client, &act).await;
    }
    settled(&client, &world).await?;
    let before = kept(&world)?;
    ensure!(before.len() >= 10, "{before:?}");

    // When the hub is killed while users work, links break, and members stand still for a while
    let until = Instant::now() + Duration::from_secs(number("HANSE_SAFETY_SECONDS").unwrap_or(SECONDS));
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut broken: BTreeMap<&'static str, Instant> = BTreeMap::new();
    while Instant::now() < until {
        let killed_at = Instant::now() + Duration::from_millis(world.chance.below(2500));
        let client = hub.client().await?;
        while Instant::now() < killed_at && !client.is_closed() {
            send(&client, &acts::act(&world.chance)).await;
            tokio::time::sleep(Duration::from_millis(world.chance.below(60))).await;
            let due: Vec<&'static str> =
                broken.extract_if(.., |_, mended| *mended <= Instant::now()).map(|(name, _)| name).collect();
            for name in due {
                world.mend(name).await?;
            }
            let name = NAMES[world.chance.below(NAMES.len() as u64) as usize];
            if world.chance.below(8) == 0 && !broken.contains_key(name) {
                let fault = [Fault::Cut, Fault::Snap, Fault::Stop][world.chance.below(3) as usize];
                world.begin(fault, name).await?;
                *counts.entry(format!("{fault:?}")).or_default() += 1;
                broken.insert(name, Instant::now() + Duration::from_millis(world.chance.below(6000)));
            }
        }
        hub.kill()?;
        *counts.entry("Kill".to_owned()).or_default() += 1;
        hub = HubProcess::start_on(&data, port)?;
    }
    println!("{counts:?}");
    for name in NAMES {
        world.mend(name).await?;
    }

    // Then all is as the hub says, and those that stay are the very same
    let client = hub.client().await?;
    settled(&client, &world).await?;
    assert_eq!(*world.lost.lock(), Vec::<String>::new());
    assert_eq!(kept(&world)?, before);
    hub.stop()
}
