//! `kill -9` under load, again and again: what was acknowledged is there as it was acknowledged, what was never sent
//! is not, and what was on its way is there whole or not at all.

#![allow(clippy::disallowed_methods)] // Tests run on the real machine.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use anyhow::{Context, Result, bail, ensure};
use env::random::SeededRandom;
use http::Method;
use serde_json::{Value, json};
use testing::{
    client::{Client, Fingerprint, fingerprint},
    process::HubProcess,
};
use tokio::sync::mpsc;

const KILLS: usize = 12;
const WRITERS: usize = 8;
const SLOTS: usize = 12;
const WORKSPACES: [&str; 2] = ["default", "team"];

fn path_in(workspace: &str) -> String {
    format!("/clusters/{workspace}/api/v1/namespaces/default/configmaps")
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn revision_of(object: &Value) -> u64 {
    text(object, "/metadata/resourceVersion").parse().expect("a resourceVersion is a number")
}

/// A write whose answer has not come.
#[derive(Clone, Debug)]
enum Attempt {
    /// The value that the object was to have.
    Put(String),
    Delete,
}

/// What a writer knows of one object.
#[derive(Debug)]
struct Slot {
    name: String,
    acknowledged: Option<Value>,
    attempt: Option<Attempt>,
}

struct Writer {
    number: usize,
    workspace: &'static str,
    random: SeededRandom,
    count: usize,
    slots: Vec<Slot>,
}

impl Writer {
    fn new(number: usize, seed: u64) -> Writer {
        let slot = |slot| Slot { name: format!("w{number}-{slot}"), acknowledged: None, attempt: None };
        Writer {
            number,
            workspace: WORKSPACES[number % WORKSPACES.len()],
            random: SeededRandom::new(seed.wrapping_mul(1000) + number as u64),
            count: 0,
            slots: (0..SLOTS).map(slot).collect(),
        }
    }

    /// The same value in three places and a length that follows from it: half of it would show.
    fn object(&mut self, name: &str) -> (String, Value) {
        self.count += 1;
        let size = if self.random.below(16) == 0 { 250_000 } else { self.random.below(2000) };
        let value = format!("{}.{}.{size}", self.number, self.count);
        let padding = "x".repeat(size as usize);
        let data = json!({"value": value, "padding": padding, "zz": value});
        (value.clone(), json!({"metadata": {"name": name, "labels": {"value": value}}, "data": data}))
    }

    /// Writes until the server is gone. Every acknowledged write is told to `progress`.
    async fn run(
        mut self,
        client: Client,
        progress: mpsc::UnboundedSender<(&'static str, u64)>,
    ) -> Result<Self> {
        loop {
            let slot = self.random.below(SLOTS as u64) as usize;
            let Ok(revision) = self.write(&client, slot).await? else { return Ok(self) };
            let _ = progress.send((self.workspace, revision));
        }
    }

    /// `Ok(Err(()))`: no answer came. The revision is 0 where the answer has none.
    async fn write(&mut self, client: &Client, slot: usize) -> Result<Result<u64, ()>> {
        let collection = path_in(self.workspace);
        let name = self.slots[slot].name.clone();
        let path = format!("{collection}/{name}");
        let (value, mut object) = self.object(&name);
        let headers = [("content-type", "application/json")];
        let current = self.slots[slot].acknowledged.clone();
        let (attempt, answer) = match current {
            Some(current) if self.random.below(5) == 0 => {
                self.slots[slot].attempt = Some(Attempt::Delete);
                let body = json!({"preconditions": {"uid": current["metadata"]["uid"]}}).to_string();
                (Attempt::Delete, client.call(Method::DELETE, &path, &headers, body).await)
            }
            Some(current) => {
                object["metadata"]["resourceVersion"] = current["metadata"]["resourceVersion"].clone();
                self.slots[slot].attempt = Some(Attempt::Put(value.clone()));
                (Attempt::Put(value), client.put(&path, &object).await)
            }
            None => {
                self.slots[slot].attempt = Some(Attempt::Put(value.clone()));
                (Attempt::Put(value), client.post(&collection, &object).await)
            }
        };
        let Ok(answer) = answer else { return Ok(Err(())) };
        // The answer's head may have come and its end not.
        let Ok(answered) = serde_json::from_slice::<Value>(&answer.bytes) else { return Ok(Err(())) };
        ensure!(answer.code.is_success(), "{name}: {}", answer.text());
        self.slots[slot].attempt = None;
        match attempt {
            Attempt::Delete => {
                self.slots[slot].acknowledged = None;
                Ok(Ok(0))
            }
            Attempt::Put(_) => {
                let revision = revision_of(&answered);
                self.slots[slot].acknowledged = Some(answered);
                Ok(Ok(revision))
            }
        }
    }
}

/// The object is what the attempt meant, in all its parts.
fn is_whole(object: &Value, value: &str) -> bool {
    let size: usize = value.rsplit('.').next().and_then(|size| size.parse().ok()).unwrap_or(usize::MAX);
    text(object, "/metadata/labels/value") == value
        && text(object, "/data/value") == value
        && text(object, "/data/zz") == value
        && text(object, "/data/padding").len() == size
}

/// What the server lists, by name.
async fn list(client: &Client, workspace: &str) -> Result<(u64, BTreeMap<String, Value>)> {
    let list = client.get(&path_in(workspace)).await?.json();
    let items = list["items"].as_array().context("a list has items")?.iter().map(|item| {
        let mut item = item.clone();
        item["kind"] = json!("ConfigMap");
        item["apiVersion"] = json!("v1");
        (text(&item, "/metadata/name").to_owned(), item)
    });
    Ok((revision_of(&list), items.collect()))
}

/// Holds what is there against what the writers know, and tells them which of their attempts came through.
async fn check(client: &Client, writers: &mut [Writer], revisions: &mut Revisions) -> Result<()> {
    for workspace in WORKSPACES {
        let (head, mut items) = list(client, workspace).await?;
        let highest = revisions.highest(workspace);
        ensure!(head >= highest, "{workspace} stands at {head}, but {highest} was acknowledged");
        items.retain(|name, _| !name.starts_with("round-") && name != "kube-root-ca.crt");
        for slot in writers.iter_mut().filter(|it| it.workspace == workspace).flat_map(|it| &mut it.slots) {
            let found = items.remove(&slot.name);
            let attempt = slot.attempt.take();
            if found == slot.acknowledged {
                continue;
            }
            match (&found, &attempt) {
                (None, Some(Attempt::Delete)) => {}
                (Some(object), Some(Attempt::Put(value))) if is_whole(object, value) => {
                    revisions.note(workspace, revision_of(object))?;
                }
                _ => {
                    let shown = |it: &Option<Value>| it.as_ref().map(|it| it["metadata"].to_string());
                    bail!(
                        "{}: found {:?}, acknowledged {:?}, attempted {attempt:?}",
                        slot.name,
                        shown(&found),
                        shown(&slot.acknowledged)
                    );
                }
            }
            slot.acknowledged = found;
        }
        ensure!(items.is_empty(), "never sent: {:?}", items.keys());
    }
    Ok(())
}

/// Every revision that anybody was told, by workspace.
#[derive(Default)]
struct Revisions(BTreeMap<&'static str, BTreeSet<u64>>);

impl Revisions {
    fn note(&mut self, workspace: &'static str, revision: u64) -> Result<()> {
        let is_new = revision == 0 || self.0.entry(workspace).or_default().insert(revision);
        ensure!(is_new, "revision {revision} of {workspace} was given twice");
        Ok(())
    }

    fn highest(&self, workspace: &str) -> u64 {
        self.0.get(workspace).and_then(|all| all.last()).copied().unwrap_or(0)
    }
}

/// Reads every event after `start` until the server is gone.
async fn watch(client: Client, workspace: &'static str, start: u64) -> Result<Vec<Fingerprint>> {
    let mut lines =
        client.watch(&format!("{}?watch=true&resourceVersion={start}", path_in(workspace))).await?;
    let mut seen = Vec::new();
    while let Ok(Some(line)) = lines.next_line().await {
        seen.push(fingerprint(&line));
    }
    Ok(seen)
}

/// Reads every event after `start` up to the one at `end`.
async fn replay(client: &Client, workspace: &str, start: u64, end: u64) -> Result<Vec<Fingerprint>> {
    let path = format!("{}?watch=true&resourceVersion={start}", path_in(workspace));
    let mut lines = client.watch(&path).await?;
    let mut seen: Vec<Fingerprint> = Vec::new();
    while seen.last().is_none_or(|(revision, _)| *revision < end) {
        let line = lines.next_line().await?.context("the watch ended early")?;
        seen.push(fingerprint(&line));
    }
    Ok(seen)
}

/// What has happened in a workspace, as watchers were told.
struct History {
    workspace: &'static str,
    start: u64,
    events: Vec<Fingerprint>,
}

async fn mk_marker(
    client: &Client,
    workspace: &'static str,
    name: &str,
    revisions: &mut Revisions,
) -> Result<u64> {
    let made = client.post(&path_in(workspace), &json!({"metadata": {"name": name}})).await?;
    ensure!(made.code == 201, "{}", made.text());
    revisions.note(workspace, revision_of(&made.json()))?;
    Ok(revision_of(&made.json()))
}

async fn run(data: &Path, seed: u64, kills: usize) -> Result<()> {
    let random = SeededRandom::new(seed);
    let mut revisions = Revisions::default();
    let mut writers: Vec<Writer> = (0..WRITERS).map(|number| Writer::new(number, seed)).collect();
    let mut hub = HubProcess::start(data)?;
    let client = hub.client().await?;
    let team = json!({"metadata": {"name": "team"}});
    client.post("/clusters/root/apis/hanse.io/v1alpha1/workspaces", &team).await?;
    let mut histories = Vec::new();
    for workspace in WORKSPACES {
        let start = mk_marker(&client, workspace, "round-0", &mut revisions).await?;
        histories.push(History { workspace, start, events: Vec::new() });
    }
    for kill in 1..=kills {
        // Given watchers and writers at work.
        let client = hub.client().await?;
        let mut watches = Vec::new();
        for history in &histories {
            let after = history.events.last().map_or(history.start, |(revision, _)| *revision);
            watches.push(tokio::spawn(watch(client.clone(), history.workspace, after)));
        }
        let (progress, mut acknowledged) = mpsc::unbounded_channel();
        let mut running = Vec::new();
        for writer in writers.drain(..) {
            running.push(tokio::spawn(writer.run(hub.client().await?, progress.clone())));
        }
        drop(progress);

        // When the process is killed after so many answers.
        for _ in 0..random.below(700) {
            let (workspace, revision) = acknowledged.recv().await.context("every writer stopped")?;
            revisions.note(workspace, revision)?;
        }
        hub.kill()?;
        for writer in running {
            writers.push(writer.await??);
        }
        while let Some((workspace, revision)) = acknowledged.recv().await {
            revisions.note(workspace, revision)?;
        }
        if random.below(3) == 0 {
            HubProcess::start_and_kill(data)?;
        }

        // Then a new one has everything, and watches go on where they were.
        hub = HubProcess::start(data)?;
        let client = hub.client().await?;
        check(&client, &mut writers, &mut revisions).await.with_context(|| format!("after kill {kill}"))?;
        for (history, watch) in histories.iter_mut().zip(watches) {
            let workspace = history.workspace;
            history.events.extend(watch.await??);
            let end = mk_marker(&client, workspace, &format!("round-{kill}"), &mut revisions).await?;
            let after = history.events.last().map_or(history.start, |(revision, _)| *revision);
            let rest = replay(&client, workspace, after, end).await?;
            history.events.extend(rest);
            ensure!(history.events.is_sorted_by(|a, b| a.0 < b.0), "{workspace}: doubled or out of order");
            if kill % 4 == 0 || kill == kills {
                let whole = replay(&client, workspace, history.start, end).await?;
                ensure!(whole == history.events, "{workspace}: what had been seen is not what is there");
            }
        }
        let written: usize = writers.iter().map(|writer| writer.count).sum();
        println!("kill {kill}: {written} writes so far");
    }
    hub.stop()?;
    // A clean stop loses nothing either.
    let hub = HubProcess::start(data)?;
    check(&hub.client().await?, &mut writers, &mut revisions).await
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_acknowledged_is_lost_and_nothing_is_invented() -> Result<()> {
    let number = |name: &str, otherwise: u64| -> u64 {
        std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
    };
    let (seed, kills) = (number("HANSE_SEED", 1), number("HANSE_KILLS", KILLS as u64));
    println!("HANSE_SEED={seed} HANSE_KILLS={kills}");
    let directory = tempfile::tempdir()?;
    let data = directory.path().join("data");
    std::fs::create_dir(&data)?;
    let outcome = run(&data, seed, kills as usize).await;
    let log = std::fs::read_to_string(data.with_extension("log")).unwrap_or_default();
    outcome.with_context(|| format!("replay with HANSE_SEED={seed}; its log: {log}"))
}
