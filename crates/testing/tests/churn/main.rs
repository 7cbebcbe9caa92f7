//! An informer of client-go and a watcher of kube-rs follow 10 000 objects through 200 writes a second, through the
//! history being compacted all the time and the server being restarted three times: every change reaches each of them
//! once and in order, what they hold is what the server lists, and what has expired is 410.
//!
//! `HANSE_CHURN_CLIENTS` is the directory that `tests/clients/churn` made. `HANSE_CHURN_SECONDS`: how long it is written;
//! `HANSE_CHURN_COMPACTION`: seconds between two compactions; `HANSE_CHURN_STORE=etcd`: on etcd.

#![allow(clippy::disallowed_methods)] // Tests run on the real machine.

mod clients;
mod history;
mod writers;

use std::{collections::BTreeMap, ops::ControlFlow, path::Path, sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use clients::Follower;
use history::{Check, Histories, outcome};
use serde_json::{Value, json};
use testing::{
    client::Client,
    hub::eventually,
    lasting::{LastingHub, Way},
    patience::while_it_moves,
};
use tokio::{sync::watch, task::JoinSet, time::sleep};
use writers::{Address, Writer};

const OBJECTS: usize = 10_000;
const WRITES_PER_SECOND: u32 = 200;
const WRITERS: usize = 8;
const NAMESPACE: &str = "churn";
const COLLECTION: &str = "/api/v1/namespaces/churn/configmaps";
/// How the server goes, and what becomes of those who follow it.
const RESTARTS: [(Way, Followers); 3] =
    [(Way::Told, Followers::Resume), (Way::Killed, Followers::Resume), (Way::Killed, Followers::BeginAgain)];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Followers {
    /// They come back at once, and go on where they were.
    Resume,
    /// They hang until the history that comes next for them is forgotten.
    BeginAgain,
}

fn seconds(name: &str, otherwise: u64) -> Result<Duration> {
    let text = std::env::var(name).unwrap_or_default();
    let seconds = if text.is_empty() { otherwise } else { text.parse().with_context(|| name.to_owned())? };
    Ok(Duration::from_secs(seconds))
}

#[tokio::test(flavor = "multi_thread")]
async fn caches_of_others_equal_the_server_after_churn_compaction_and_restarts() -> Result<()> {
    let programs =
        std::env::var_os("HANSE_CHURN_CLIENTS").context("set it to what tests/clients/churn prints")?;
    let load = seconds("HANSE_CHURN_SECONDS", 60)?;
    let compaction = seconds("HANSE_CHURN_COMPACTION", 3)?;
    let mut server = LastingHub::start("HANSE_CHURN_STORE", Vec::new())?;
    let address = Address::new(server.hub()?.admin()?, COLLECTION);
    let admin = address.connect().await?;
    admin.post("/api/v1/namespaces", &json!({"metadata": {"name": NAMESPACE}})).await?;
    let writers = fill(&address).await?;
    let old = Old::note(&admin).await?;

    let mut followers = start_followers(Path::new(&programs), &server)?;
    for follower in &mut followers {
        follower.initialized().await?;
    }
    let (stop, stopping) = watch::channel(false);
    let mut writing = JoinSet::new();
    let every = Duration::from_secs(WRITERS as u64) / WRITES_PER_SECOND;
    for writer in writers {
        writing.spawn(writer.run(every, stopping.clone()));
    }
    let compacting = tokio::spawn(compact(address.clone(), compaction, stopping));
    for (way, then) in RESTARTS {
        sleep(load / (RESTARTS.len() as u32 + 1)).await;
        if then == Followers::BeginAgain {
            followers.iter().try_for_each(Follower::pause)?;
        }
        tokio::task::block_in_place(|| server.go(way))?;
        tokio::task::block_in_place(|| server.come_back())?;
        if then == Followers::BeginAgain {
            forget_what_was(&address).await?;
            followers.iter().try_for_each(Follower::go_on)?;
        }
    }
    sleep(load / (RESTARTS.len() as u32 + 1)).await;
    old.has_expired(&address.connect().await?).await?;
    stop.send_replace(true);

    let (mut histories, mut writes, mut doubts) = (Histories::new(), 0, 0);
    while let Some(writer) = writing.join_next().await {
        let writer = writer??;
        (writes, doubts) = (writes + writer.writes(), doubts + writer.doubts);
        writer.hand_over(&mut histories);
    }
    let listed = list(&address.connect().await?).await?;
    ensure!(ours(&listed) == outcome(&histories), "what was acknowledged is not what is there");
    let compactions = compacting.await??;
    let changes = writes - OBJECTS;
    println!(
        "{writes} writes, {doubts} of them without an answer, {compactions} compactions; {} objects are left",
        listed.len()
    );
    let nominal = WRITES_PER_SECOND as usize * load.as_secs() as usize;
    ensure!(changes >= nominal / 2, "{changes} changes are not the load that was meant, {nominal}");
    // Some come to nothing while the server is away.
    let due = load.as_secs() / compaction.as_secs().max(1);
    ensure!(
        compactions > 0 && 3 * compactions as u64 >= 2 * due,
        "{compactions} compactions are not those that were meant, {due}"
    );
    for follower in &mut followers {
        catches_up(follower, &listed).await?;
        let told = follower.told();
        let tally = Check::new(&histories).all(told.iter().map(String::as_str));
        let tally = tally.with_context(|| follower.name.clone())?;
        println!("{}: {tally:?}", follower.name);
        ensure!(tally.initialized > 0 && tally.changed > 0, "{} saw nothing", follower.name);
        ensure!(tally.lists == 0, "{} fell back to lists", follower.name);
        ensure!(tally.expired > 0, "{} was never told that what it asked for has expired", follower.name);
    }
    Ok(())
}

async fn fill(address: &Address) -> Result<Vec<Writer>> {
    let mut filling = JoinSet::new();
    for number in 0..WRITERS {
        let writer = Writer::new(address, number, OBJECTS / WRITERS).await?;
        filling.spawn(writer.fill());
    }
    filling.join_all().await.into_iter().collect()
}

/// Forgets all history again and again; how often.
async fn compact(address: Address, every: Duration, mut stop: watch::Receiver<bool>) -> Result<usize> {
    let mut done = 0;
    loop {
        tokio::select! {
            () = sleep(every) => {}
            _ = stop.wait_for(|stop| *stop) => return Ok(done),
        }
        done += usize::from(compact_once(&address.connect().await?).await?);
    }
}

/// Whether it was done: it is not where there is no answer because the server is being restarted, or too much to do.
async fn compact_once(client: &Client) -> Result<bool> {
    let compact = client.post("/clusters/root/operate/v1/compact?workspace=default", &Value::Null);
    let Ok(answer) = compact.await else { return Ok(false) };
    ensure!(answer.code == 200 || answer.code == 429, "compacting: {}", answer.text());
    Ok(answer.code == 200)
}

/// Forgets all history, some of which is new to whoever has seen nothing since before the restart.
async fn forget_what_was(address: &Address) -> Result<()> {
    let client = address.connect().await?;
    let sign = json!({"metadata": {"name": "back-again"}});
    eventually("somebody writes after the restart", || async {
        let made = client.post("/api/v1/namespaces/default/configmaps", &sign).await?;
        Ok((made.code == 201 || made.code == 409).then_some(()))
    })
    .await?;
    eventually("the history is forgotten", || async { Ok(compact_once(&client).await?.then_some(())) }).await
}

fn start_followers(programs: &Path, server: &LastingHub) -> Result<Vec<Follower>> {
    // The server writes its own anew at each start.
    let kubeconfig = server.data.with_extension("kubeconfig");
    std::fs::copy(server.hub()?.kubeconfig(), &kubeconfig)?;
    let programs = ["client-go", "kube-rs"].map(|name| programs.join(name));
    programs.iter().map(|program| Follower::start(program, &kubeconfig, NAMESPACE)).collect()
}

/// Everything in the namespace, by name.
async fn list(client: &Client) -> Result<BTreeMap<String, u64>> {
    let list = client.get(COLLECTION).await?.json();
    let items = list["items"].as_array().context("not a list")?.iter();
    items
        .map(|item| {
            let text = |pointer: &str| item.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
            Ok((text("/metadata/name").to_owned(), text("/metadata/resourceVersion").parse()?))
        })
        .collect()
}

/// Without what every namespace has.
fn ours(listed: &BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let ours = listed.iter().filter(|(name, _)| name.starts_with("churn-"));
    ours.map(|(name, version)| (name.clone(), *version)).collect()
}

async fn catches_up(follower: &mut Follower, listed: &BTreeMap<String, u64>) -> Result<()> {
    let name = follower.name.clone();
    let follower = Arc::new(tokio::sync::Mutex::new(follower));
    while_it_moves(&format!("the cache of {name} equals the list"), || {
        let follower = follower.clone();
        async move {
            let mut follower = follower.lock().await;
            let equal = follower.cache().await? == *listed;
            Ok(if equal { ControlFlow::Break(()) } else { ControlFlow::Continue(follower.told().len()) })
        }
    })
    .await
}

/// Places in the history that are to expire.
struct Old {
    version: String,
    next: String,
}

impl Old {
    async fn note(client: &Client) -> Result<Old> {
        let page = client.get(&format!("{COLLECTION}?limit=10")).await?.json();
        let text = |pointer: &str| page.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        let version = text("/metadata/resourceVersion").context("no version")?;
        Ok(Old { version, next: text("/metadata/continue").context("no second page")? })
    }

    /// A list of the past, the next page of a list, and a watch from there.
    async fn has_expired(&self, client: &Client) -> Result<()> {
        let past = format!("{COLLECTION}?resourceVersion={}&resourceVersionMatch=Exact", self.version);
        eventually("a list of the past has expired", || async {
            Ok((client.get(&past).await?.code == 410).then_some(()))
        })
        .await?;
        for path in [past, format!("{COLLECTION}?limit=10&continue={}", self.next)] {
            let answer = client.get(&path).await?;
            ensure!(answer.code == 410 && answer.json()["reason"] == "Expired", "{path}: {}", answer.text());
        }
        let mut events =
            client.watch(&format!("{COLLECTION}?watch=1&resourceVersion={}", self.version)).await?;
        let event = events.expect().await?;
        ensure!(
            event["type"] == "ERROR"
                && event["object"]["code"] == 410
                && event["object"]["reason"] == "Expired",
            "a watch from the past: {event}"
        );
        Ok(())
    }
}
