//! The program as a process that is killed again and again, links that break and members that stand still or are killed
//! meanwhile.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use env::random::SeededRandom;
use http::StatusCode;
use serde_json::Value;
use testing::{
    client::Client,
    hub::eventually,
    link::Link,
    process::{HubProcess, binary, free_port},
};

use crate::{
    acts::{self, Act, Chance},
    members::NAMES,
    number,
    planes::Planes,
    rest::{Copy, compare},
    simulated::Simulated,
    wanted::{Hub, KINDS},
};

/// What nobody touches after it was made.
pub const KEPT: &str = "kept";
const SECONDS: u64 = 20;
/// Nothing is written for so long at the end; and for longer if it is to take longer anyway: each cluster is looked at once
/// a minute.
const QUIET: Duration = Duration::from_secs(20);
const QUIET_LONG: Duration = Duration::from_secs(75);
/// What is written by then is written for ever.
const RESTLESS: Duration = Duration::from_secs(600);

/// What may happen beside the hub's end.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// Nothing passes, and nobody is told.
    Cut,
    /// All connections of the session break.
    Snap,
    /// The member does not answer.
    Stop,
}

/// The clusters that are joined, and what became of them.
pub trait Members {
    /// How one is reached without its link.
    fn kubeconfig(&self, name: &str) -> Result<String>;

    async fn stop(&mut self, name: &'static str) -> Result<()>;

    /// If it was stopped.
    async fn resume(&mut self, name: &'static str) -> Result<()>;

    /// When all are mended.
    async fn until_ready(&mut self) -> Result<()>;

    async fn copies(&self) -> Result<Vec<Copy>>;

    /// Whatever was deleted of what is kept, in words.
    fn lost(&self) -> Result<Vec<String>>;

    /// What sessions have written so far, but for what they write at rest, too: how much, and the last of it in words.
    fn written(&self) -> Result<(usize, Vec<String>)>;
}

/// How long the hub lives, and how long something is broken, at most.
struct Lives {
    hub: u64,
    fault: u64,
}

struct World<M> {
    chance: Chance,
    members: M,
    /// What the hub reaches members by.
    links: BTreeMap<&'static str, Link>,
}

impl<M: Members> World<M> {
    fn new(seed: u64, members: M) -> Result<World<M>> {
        let mut links = BTreeMap::new();
        for name in NAMES {
            links.insert(name, Link::to(address(&members.kubeconfig(name)?)?));
        }
        Ok(World { chance: Chance(SeededRandom::new(seed)), members, links })
    }

    /// How a member is reached through its link.
    fn kubeconfig(&self, name: &str) -> Result<String> {
        let config = self.members.kubeconfig(name)?;
        let link = self.links.get(name).context("no such member")?;
        Ok(config.replace(&address(&config)?.to_string(), &link.address.to_string()))
    }

    async fn begin(&mut self, fault: Fault, name: &'static str) -> Result<()> {
        match fault {
            Fault::Cut => self.links[name].cut(),
            Fault::Snap => self.links[name].snap(),
            Fault::Stop => self.members.stop(name).await?,
        }
        Ok(())
    }

    async fn mend(&mut self, name: &'static str) -> Result<()> {
        self.links[name].heal();
        self.members.resume(name).await
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

/// In which version each object of the hub is, by its path; but clusters, which have a heartbeat.
async fn versions(client: &Client) -> Result<BTreeMap<String, Value>> {
    let own = KINDS.iter().map(|(group, plural)| match group.is_empty() {
        true => format!("/api/v1/{plural}"),
        false => format!("/apis/{group}/v1/{plural}"),
    });
    let assignments = format!("/apis/{}/v1alpha1/{}", api::GROUP, api::assignment::PLURAL);
    let mut versions = BTreeMap::new();
    for path in own.chain(["/api/v1/namespaces".to_owned(), acts::POLICIES.to_owned(), assignments]) {
        let list = client.get(&path).await?;
        ensure!(list.code == StatusCode::OK, "{path}: {}", list.text());
        for object in list.json()["items"].as_array().into_iter().flatten() {
            let metadata = &object["metadata"];
            let name = format!("{path} {} {}", metadata["namespace"], metadata["name"]);
            versions.insert(name, metadata["resourceVersion"].clone());
        }
    }
    Ok(versions)
}

fn join<M: Members>(hub: &HubProcess, directory: &Path, world: &World<M>) -> Result<()> {
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

async fn settled(client: &Client, members: &impl Members) -> Result<()> {
    let settled = eventually("hub and members agree", || async {
        let Some(hub) = objects(client).await? else { return Ok(None) };
        Ok(compare(&hub, &members.copies().await?).is_empty().then_some(()))
    });
    match settled.await {
        Ok(()) => Ok(()),
        Err(error) => {
            let wrong = match objects(client).await? {
                Some(hub) => compare(&hub, &members.copies().await?),
                None => vec!["a cluster was not seen yet".to_owned()],
            };
            Err(error.context(wrong.join("\n  ")))
        }
    }
}

/// Waits until nothing was written for so long, in the hub and by its sessions.
async fn at_rest(client: &Client, members: &impl Members, quiet: Duration) -> Result<()> {
    let began = Instant::now();
    let (mut here, mut there, mut since) = (versions(client).await?, members.written()?, Instant::now());
    while since.elapsed() < quiet {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let now = (versions(client).await?, members.written()?);
        if now.0 == here && now.1.0 == there.0 {
            continue;
        }
        let differ: BTreeSet<&String> =
            now.0.keys().chain(here.keys()).filter(|it| now.0.get(*it) != here.get(*it)).collect();
        ensure!(began.elapsed() < RESTLESS, "it does not come to rest: {differ:?}, {:?}", now.1.1);
        ((here, there), since) = (now, Instant::now());
    }
    Ok(())
}

/// What a user has of the kept: UIDs of copies, by cluster and name.
async fn kept(members: &impl Members) -> Result<Vec<(String, Value)>> {
    let of = |copy: Copy| {
        let metadata = &copy.object["metadata"];
        let is_kept = metadata["namespace"] == KEPT || metadata["name"] == KEPT;
        is_kept.then(|| {
            (format!("{} {} {}", copy.cluster, copy.plural, metadata["name"]), metadata["uid"].clone())
        })
    };
    let mut kept: Vec<_> = members.copies().await?.into_iter().filter_map(of).collect();
    kept.sort_by(|one, other| one.0.cmp(&other.0));
    Ok(kept)
}

/// Breaks hub, links and members again and again.
async fn survive(mut world: World<impl Members>, lives: Lives) -> Result<()> {
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
    settled(&client, &world.members).await?;
    let before = kept(&world.members).await?;
    ensure!(before.len() >= 10, "{before:?}");

    // When the hub is killed while users work, links break, and members are away for a while
    let seconds = number("HANSE_SAFETY_SECONDS").unwrap_or(SECONDS);
    let until = Instant::now() + Duration::from_secs(seconds);
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut broken: BTreeMap<&'static str, Instant> = BTreeMap::new();
    while Instant::now() < until {
        let killed_at = Instant::now() + Duration::from_millis(world.chance.below(lives.hub));
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
                broken.insert(name, Instant::now() + Duration::from_millis(world.chance.below(lives.fault)));
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
    world.members.until_ready().await?;

    // Then all is as the hub says, and those that stay are the very same
    let client = hub.client().await?;
    settled(&client, &world.members).await?;
    // And nothing is written any more
    at_rest(&client, &world.members, if seconds > SECONDS { QUIET_LONG } else { QUIET }).await?;
    settled(&client, &world.members).await?;
    assert_eq!(world.members.lost()?, Vec::<String>::new());
    assert_eq!(kept(&world.members).await?, before);
    hub.stop()
}

fn seed() -> u64 {
    let seed = number("HANSE_SEED").unwrap_or(1);
    println!("HANSE_SEED={seed}");
    seed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hub_links_and_members_that_break_again_and_again_delete_nothing_that_is_wanted() -> Result<()> {
    let world = World::new(seed(), Simulated::start().await?)?;
    survive(world, Lives { hub: 2_500, fault: 6_000 }).await
}

/// The same with control planes of Kubernetes, the API server or the store of which is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "starts three control planes; see the lane safety-long"]
async fn real_control_planes_that_are_killed_again_and_again_keep_all_that_is_wanted() -> Result<()> {
    let world = World::new(seed(), Planes::start()?)?;
    survive(world, Lives { hub: 15_000, fault: 20_000 }).await
}
