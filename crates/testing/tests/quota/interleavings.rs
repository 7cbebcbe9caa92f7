//! Whatever happens at the same time or fails in between, on however many servers: no quota is exceeded, none ever says
//! less than is used, and at rest all are exact.
//!
//! `HANSE_SEED` draws the same again, though tasks are never twice as fast; `HANSE_SEEDS` tries more.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use anyhow::{Context, Result, ensure};
use env::{BoxFuture, random::SeededRandom};
use http::StatusCode;
use machinery::quantity::Quantity;
use serde_json::{Value, json};
use store::{
    Bounds, Collection, Commit, Committed, Error, Event, Expect, Feed, FeedItem, Store, Usage, WorkspaceId,
    memory::MemoryStore,
};
use testing::{
    client::Client,
    hub::{TestHub, outfitted},
    interposed::{Between, Interposed},
};
use tokio::task::JoinHandle;

use crate::{NAMESPACE, eventually_used, mk, mk_pod, mk_quota};

const SEEDS: u64 = 4;
const WORKERS: usize = 8;
/// Of each worker, before the restart and after it.
const DEEDS: usize = 25;
const POD: i64 = 100;
const MOST_PODS: i64 = 14;
const MOST_MILLIS: i64 = 2400;
/// Of two quotas, this one leaves less.
const NARROW_MILLIS: i64 = 2000;

/// Made or deleted, refused, gone, there already, and whatever the store made of it.
const EXPECTED: [u16; 8] = [200, 201, 403, 404, 409, 500, 503, 504];

/// A store that lets writes wait for each other, and fails some of them in every way it can.
struct Trouble {
    random: Arc<SeededRandom>,
    is_on: Arc<AtomicBool>,
    /// It does not compare what is charged with what it was charged on: what must not be, to see that it is noticed.
    is_careless: bool,
}

impl Trouble {
    /// What a commit comes to, and whether it takes effect all the same.
    fn failure(&self, commit: &Commit) -> Option<(Error, bool)> {
        let key = commit.writes[self.random.below(commit.writes.len() as u64) as usize].key.clone();
        match self.random.below(16) {
            0 => Some((Error::Conflict { key, current: None }, false)),
            1 => Some((Error::Unavailable("trouble".into()), false)),
            2 => Some((Error::Unknown("trouble".into()), false)),
            3 => Some((Error::Unknown("trouble".into()), true)),
            4 if commit.writes.len() > 2 => {
                Some((Error::Full { usage: Usage::default(), bounds: Bounds::NONE }, false))
            }
            _ => None,
        }
    }
}

fn quotas() -> Collection {
    Collection::new("", "resourcequotas")
}

fn is_about_pods(commit: &Commit) -> bool {
    let ours = [Collection::new("", "pods"), quotas()];
    commit.writes.iter().any(|write| ours.contains(&write.key.collection))
}

impl Between for Trouble {
    fn commit(
        &self,
        store: &MemoryStore,
        workspace: &WorkspaceId,
        mut commit: Commit,
    ) -> BoxFuture<'static, Result<Vec<Committed>, Error>> {
        if !self.is_on.load(Ordering::Relaxed) || !is_about_pods(&commit) {
            return store.commit(workspace, commit);
        }
        if self.is_careless {
            let charged = commit.writes.iter_mut().filter(|write| write.key.collection == quotas());
            charged.for_each(|write| write.expect = Expect::Anything);
        }
        let (failure, pauses) = (self.failure(&commit), self.random.below(30));
        let passed = store.commit(workspace, commit);
        Box::pin(async move {
            for _ in 0..pauses {
                tokio::task::yield_now().await;
            }
            match failure {
                None => passed.await,
                Some((error, false)) => Err(error),
                Some((error, true)) => passed.await.and(Err(error)),
            }
        })
    }
}

/// The namespace as the store has it, commit by commit.
#[derive(Default)]
struct Judge {
    /// Milliseconds of processors, by the names of pods.
    pods: HashMap<String, i64>,
    /// What is used and allowed, by the names of quotas: pods, and milliseconds.
    quotas: BTreeMap<String, [Option<(i64, i64)>; 2]>,
}

fn millis(value: &Value) -> Option<i64> {
    Some(Quantity::parse(value.as_str()?).ok()?.milli_value())
}

impl Judge {
    fn sees(&mut self, event: &Event) -> Result<()> {
        if event.key.item.namespace() != "shop" {
            return Ok(());
        }
        let name = event.key.item.name().to_owned();
        let tree = event.after().map(|object| object.tree()).transpose()?.map(Value::Object);
        match (event.key.collection.parts(), tree) {
            (("", "pods"), Some(pod)) => {
                let cpu = millis(&pod["spec"]["containers"][0]["resources"]["requests"]["cpu"]);
                self.pods.insert(name, cpu.context("a pod without an amount")?);
            }
            (("", "pods"), None) => drop(self.pods.remove(&name)),
            (("", "resourcequotas"), Some(quota)) => {
                let status = |resource: &str| {
                    let part = |key: &str| millis(&quota["status"][key][resource]);
                    Some((part("used")?, part("hard")?))
                };
                self.quotas.insert(name, [status("pods"), status("requests.cpu")]);
            }
            _ => return Ok(()),
        }
        if event.revision == event.commit_end { self.judge() } else { Ok(()) }
    }

    fn there(&self) -> [i64; 2] {
        [self.pods.len() as i64 * 1000, self.pods.values().sum()]
    }

    fn judge(&self) -> Result<()> {
        for (name, amounts) in &self.quotas {
            for (there, amount) in self.there().into_iter().zip(amounts) {
                let Some((used, hard)) = amount else { continue };
                ensure!(there <= *used, "{name} says {used}, and {there} is used: {:?}", self.pods);
                ensure!(used <= hard, "{name} says {used} of {hard}");
            }
        }
        Ok(())
    }

    fn sees_all(&mut self, feed: &mut Feed) -> Result<()> {
        loop {
            match feed.try_next() {
                Some(FeedItem::Event(event)) => self.sees(&event)?,
                Some(FeedItem::WorkspaceRemoved(_)) => {}
                Some(FeedItem::Lagged) => anyhow::bail!("too much happened to be judged"),
                None => return Ok(()),
            }
        }
    }
}

/// How often each answer was given.
type Answers = BTreeMap<u16, usize>;

/// Makes and deletes pods, under names that others use too.
async fn worker(client: Client, random: Arc<SeededRandom>) -> Result<Answers> {
    let pods = format!("{NAMESPACE}/pods");
    let mut answers = Answers::new();
    for _ in 0..DEEDS {
        let name = format!("p-{}", random.below(40));
        let answer = match random.below(10) {
            0..6 => {
                let cpu = format!("{}m", POD * (1 + random.below(4) as i64));
                client.post(&pods, &mk_pod(&name, &cpu)).await?
            }
            6 => client.post(&format!("{pods}?dryRun=All"), &mk_pod(&name, "100m")).await?,
            _ => client.delete(&format!("{pods}/{name}?gracePeriodSeconds=0")).await?,
        };
        *answers.entry(answer.code.as_u16()).or_default() += 1;
    }
    Ok(answers)
}

fn work(clients: &[&Client], random: &Arc<SeededRandom>) -> Vec<JoinHandle<Result<Answers>>> {
    let of_worker = |at: usize| tokio::spawn(worker(clients[at % clients.len()].clone(), random.clone()));
    (0..WORKERS).map(of_worker).collect()
}

async fn play(seed: u64, is_careless: bool) -> Result<Answers> {
    // Given two servers on a store that makes trouble, and two quotas
    let (random, is_on) = (Arc::new(SeededRandom::new(seed)), Arc::new(AtomicBool::new(false)));
    let store = Interposed::new(Trouble { random: random.clone(), is_on: is_on.clone(), is_careless });
    let mut feed = store.feed();
    let first = TestHub::start_on(store.clone(), Default::default()).await?;
    let client = first.admin().await?;
    mk(&client, "/api/v1/namespaces", json!({"metadata": {"name": "shop"}})).await?;
    outfitted(&client, NAMESPACE).await?;
    let cpu = |millis: i64| format!("{millis}m");
    let wide = json!({"hard": {"pods": MOST_PODS.to_string(), "requests.cpu": cpu(MOST_MILLIS)}});
    mk_quota(&client, "wide", wide).await?;
    mk_quota(&client, "narrow", json!({"hard": {"requests.cpu": cpu(NARROW_MILLIS)}})).await?;
    let second = TestHub::start_on(store.clone(), Default::default()).await?;
    // When many make and delete pods at both, one of which dies in the middle and comes again
    is_on.store(true, Ordering::Relaxed);
    let kept = work(&[&client], &random);
    let lost = work(&[&second.admin().await?], &random);
    let mut answers = Answers::new();
    for worker in kept {
        answers.extend(worker.await??);
    }
    lost.iter().for_each(|worker| worker.abort());
    drop(second);
    let third = TestHub::start_on(store.clone(), Default::default()).await?;
    for worker in work(&[&client, &third.admin().await?], &random) {
        answers.extend(worker.await??);
    }
    is_on.store(false, Ordering::Relaxed);
    // Then no quota was exceeded, and none said less than was used
    let mut judge = Judge::default();
    judge.sees_all(&mut feed)?;
    // And at rest they are exact
    at_rest(&client, &mut judge, &mut feed).await?;
    // And what they leave can be used, and no more
    loop {
        let name = format!("more-{}", judge.pods.len());
        let answer = client.post(&format!("{NAMESPACE}/pods"), &mk_pod(&name, &cpu(POD))).await?;
        judge.sees_all(&mut feed)?;
        if answer.code != StatusCode::CREATED {
            ensure!(answer.code == StatusCode::FORBIDDEN, "{}", answer.text());
            break;
        }
    }
    let [pods, used] = judge.there();
    ensure!(pods == MOST_PODS * 1000 || used == NARROW_MILLIS, "{pods} pods with {used} leave room");
    at_rest(&client, &mut judge, &mut feed).await?;
    Ok(answers)
}

async fn at_rest(client: &Client, judge: &mut Judge, feed: &mut Feed) -> Result<()> {
    let (pods, [_, millis]) = (judge.pods.len(), judge.there());
    let cpu = Quantity::from_milli(millis, machinery::quantity::Format::DecimalSi).to_string();
    eventually_used(client, "wide", json!({"pods": pods.to_string(), "requests.cpu": cpu})).await?;
    eventually_used(client, "narrow", json!({"requests.cpu": cpu})).await?;
    judge.sees_all(feed)?;
    ensure!(judge.pods.len() == pods, "pods came and went");
    Ok(())
}

fn number(name: &str) -> Result<Option<u64>> {
    std::env::var(name).ok().map(|text| text.parse().with_context(|| name.to_owned())).transpose()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_interleaving_exceeds_a_quota_or_forgets_what_is_used() -> Result<()> {
    let seeds = match number("HANSE_SEED")? {
        Some(seed) => vec![seed],
        None => (1..=number("HANSE_SEEDS")?.unwrap_or(SEEDS)).collect(),
    };
    let mut answers = Answers::new();
    for seed in seeds {
        answers.extend(play(seed, false).await.with_context(|| format!("HANSE_SEED={seed}"))?);
    }
    // Made, refused by a quota, there already, and failed in both ways; and what is meant is told of nothing else
    for code in [201, 403, 409, 503, 504] {
        ensure!(answers.contains_key(&code), "{code} never came: {answers:?}");
    }
    let odd: Vec<u16> = answers.into_keys().filter(|code| !EXPECTED.contains(code)).collect();
    ensure!(odd.is_empty(), "{odd:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_store_that_does_not_compare_is_found_out() -> Result<()> {
    for seed in 1..=10 {
        if let Err(error) = play(seed, true).await {
            let why = format!("{error:#}");
            ensure!(why.contains(" says ") || why.contains(" has used "), "{why}");
            return Ok(());
        }
    }
    anyhow::bail!("nobody noticed")
}
