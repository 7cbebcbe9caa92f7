//! The property: random writes, and watchers that do whatever clients do, held line by line against a model.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use env::{
    Env,
    random::{Random, SeededRandom},
};
use http::StatusCode;
use serde_json::{Value, json};
use server::Options;
use store::{
    Store,
    embedded::{self, EmbeddedStore},
    memory::MemoryStore,
};
use testing::{
    client::{Client, Lines},
    hub::{TestHub, outfitted},
};

use crate::{revision_of, text};

const SEEDS: u64 = 48;
const STEPS: usize = 160;
const BURST: usize = 120;
const WATCHERS: usize = 6;
const NAMESPACES: [&str; 2] = ["one", "two"];
const NAMES: [&str; 4] = ["s0", "s1", "s2", "s3"];
const TYPES: [&str; 2] = ["Opaque", "example.com/x"];
/// Room for a few events: a watcher that stops reading stalls the server's side of its stream.
const NARROW: u32 = 3000;

/// Objects by `namespace/name`.
type State = BTreeMap<String, Value>;

fn key_of(object: &Value) -> String {
    format!("{}/{}", text(object, "/metadata/namespace"), text(object, "/metadata/name"))
}

/// A selector in the API's words and in ours.
type Selector = (&'static str, fn(&Value) -> bool);

fn tier(object: &Value) -> &str {
    text(object, "/metadata/labels/tier")
}

const LABELS: [Selector; 6] = [
    ("", |_| true),
    ("tier=a", |it| tier(it) == "a"),
    ("tier!=a", |it| tier(it) != "a"),
    ("tier%20in%20(a,b)", |it| matches!(tier(it), "a" | "b")),
    ("!tier", |it| tier(it).is_empty()),
    ("tier,size=big", |it| !tier(it).is_empty() && text(it, "/metadata/labels/size") == "big"),
];
const FIELDS: [Selector; 5] = [
    ("", |_| true),
    ("metadata.name=s1", |it| text(it, "/metadata/name") == "s1"),
    ("metadata.name!=s1", |it| text(it, "/metadata/name") != "s1"),
    ("type=example.com/x", |it| it["type"] == "example.com/x"),
    ("metadata.namespace=two", |it| text(it, "/metadata/namespace") == "two"),
];

/// What one watcher wants to see.
#[derive(Clone, Copy)]
struct Selection {
    namespace: Option<&'static str>,
    labels: Selector,
    fields: Selector,
}

impl Selection {
    fn matches(&self, object: &Value) -> bool {
        self.namespace.is_none_or(|it| text(object, "/metadata/namespace") == it)
            && self.labels.1(object)
            && self.fields.1(object)
    }

    fn path(&self, workspace: &str) -> String {
        let namespace = self.namespace.map(|it| format!("namespaces/{it}/")).unwrap_or_default();
        format!(
            "/clusters/{workspace}/api/v1/{namespace}secrets?labelSelector={}&fieldSelector={}",
            self.labels.0, self.fields.0
        )
    }
}

/// One change, as the server acknowledged it.
struct Record {
    revision: u64,
    old: Option<Value>,
    new: Option<Value>,
}

impl Record {
    /// What a watcher with this selection must be told of it.
    fn event(&self, selection: &Selection) -> Option<Value> {
        let was = self.old.as_ref().filter(|it| selection.matches(it));
        let is = self.new.as_ref().filter(|it| selection.matches(it));
        let (event, mut object) = match (was, is) {
            (None, None) => return None,
            (None, Some(new)) => ("ADDED", new.clone()),
            (Some(_), Some(new)) => ("MODIFIED", new.clone()),
            // Gone, or out of the selection: the state the watcher knew, at the revision of the change.
            (Some(old), None) => ("DELETED", old.clone()),
        };
        object["metadata"]["resourceVersion"] = json!(self.revision.to_string());
        Some(json!({"type": event, "object": object}))
    }
}

/// What has happened in a workspace, by the answers to its one writer.
#[derive(Default)]
struct Model {
    records: Vec<Record>,
    live: State,
    head: u64,
}

impl Model {
    fn state_at(&self, revision: u64, selection: &Selection) -> State {
        let mut state = State::new();
        for record in self.records.iter().take_while(|record| record.revision <= revision) {
            if let Some(object) = record.new.as_ref().or(record.old.as_ref()) {
                match &record.new {
                    Some(new) => state.insert(key_of(object), new.clone()),
                    None => state.remove(&key_of(object)),
                };
            }
        }
        state.retain(|_, object| selection.matches(object));
        state
    }

    fn next_event(&self, after: u64, selection: &Selection) -> Option<(u64, Value)> {
        let later = self.records.iter().skip_while(|record| record.revision <= after);
        later.filter_map(|record| Some((record.revision, record.event(selection)?))).next()
    }

    fn note(&mut self, revision: u64, key: &str, new: Option<Value>) {
        assert!(revision > self.head, "revision {revision} comes after {}", self.head);
        let old = self.live.remove(key);
        if let Some(new) = &new {
            self.live.insert(key.to_owned(), new.clone());
        }
        self.records.push(Record { revision, old, new });
        self.head = revision;
    }
}

/// Everything one seed decides.
struct Play {
    random: SeededRandom,
    workspace: String,
    client: Client,
    model: Model,
}

impl Play {
    fn below(&self, bound: usize) -> usize {
        self.random.below(bound as u64) as usize
    }

    fn pick<T: Copy>(&self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    fn labels(&self) -> Value {
        let size = self.pick(&["big", "small"]);
        match self.pick(&["a", "b", "c", ""]) {
            "" => json!({"size": size}),
            tier => json!({"size": size, "tier": tier}),
        }
    }

    fn secret(&self, name: &str) -> Value {
        let finalizers: &[&str] = if self.below(5) == 0 { &["example.com/hold"] } else { &[] };
        json!({
            "metadata": {"name": name, "labels": self.labels(), "finalizers": finalizers},
            "type": self.pick(&TYPES), "stringData": {"value": self.random.next_u64().to_string()},
        })
    }

    async fn head(&self) -> Result<u64> {
        let path = format!("/clusters/{}/api/v1/secrets?limit=1", self.workspace);
        Ok(revision_of(&self.client.get(&path).await?.json()))
    }

    /// The answer to a deletion has no revision; the next list has it.
    async fn note_deletion(&mut self, key: &str) -> Result<()> {
        let revision = self.head().await?;
        self.model.note(revision, key, None);
        Ok(())
    }

    /// One write, noted in the model as it was answered.
    async fn write(&mut self) -> Result<()> {
        let (namespace, name) = (self.pick(&NAMESPACES), self.pick(&NAMES));
        let base = format!("/clusters/{}/api/v1/namespaces/{namespace}", self.workspace);
        let path = format!("{base}/secrets/{name}");
        let key = format!("{namespace}/{name}");
        let Some(current) = self.model.live.get(&key).cloned() else {
            if self.below(4) == 0 {
                // Other kinds share the workspace's revisions, and are none of these watchers' business.
                let noise = json!({"metadata": {"generateName": "noise-"}});
                let made = self.client.post(&format!("{base}/configmaps"), &noise).await?;
                self.model.head = revision_of(&made.json());
                return Ok(());
            }
            let made = self.client.post(&format!("{base}/secrets"), &self.secret(name)).await?;
            ensure!(made.code == StatusCode::CREATED, "{}", made.text());
            self.model.note(revision_of(&made.json()), &key, Some(made.json()));
            return Ok(());
        };
        let deleting = current.pointer("/metadata/deletionTimestamp").is_some();
        let answer = match self.below(if deleting { 4 } else { 6 }) {
            0 => {
                let labels = json!({"tier": null, "size": null});
                let patch = json!({"metadata": {"labels": labels}});
                self.client.merge_patch(&path, &patch).await?
            }
            1 | 2 => {
                let patch = match deleting {
                    true => json!({"metadata": {"finalizers": null}}),
                    false => json!({"metadata": {"labels": self.labels()}}),
                };
                let answer = self.client.merge_patch(&path, &patch).await?;
                if deleting {
                    ensure!(answer.code == StatusCode::OK, "{}", answer.text());
                    return self.note_deletion(&key).await;
                }
                answer
            }
            // Refused, or nothing new: neither is an event.
            3 => {
                let mut stale = current.clone();
                stale["metadata"]["resourceVersion"] = json!("1");
                ensure!(self.client.put(&path, &stale).await?.code == StatusCode::CONFLICT);
                self.client.put(&path, &current).await?
            }
            4 => {
                let mut changed = current.clone();
                changed["stringData"] = json!({"value": self.random.next_u64().to_string()});
                self.client.put(&path, &changed).await?
            }
            _ => {
                let answer = self.client.delete(&path).await?;
                ensure!(answer.code == StatusCode::OK, "{}", answer.text());
                if answer.json()["kind"] == "Status" {
                    return self.note_deletion(&key).await;
                }
                answer
            }
        };
        ensure!(answer.code == StatusCode::OK, "{}", answer.text());
        let new = answer.json();
        if revision_of(&new) == revision_of(&current) {
            ensure!(new == current, "a write without a revision changed something: {current} to {new}");
        } else {
            self.model.note(revision_of(&new), &key, Some(new));
        }
        Ok(())
    }

    fn watcher(&self, client: &Client) -> Watcher {
        let namespaces = [None, None, Some(NAMESPACES[0]), Some(NAMESPACES[1])];
        let selection = Selection {
            namespace: self.pick(&namespaces),
            labels: self.pick(&LABELS),
            fields: self.pick(&FIELDS),
        };
        Watcher {
            client: client.clone(),
            path: selection.path(&self.workspace),
            selection,
            bookmarks: self.below(2) == 0,
            stream: None,
            initial: VecDeque::new(),
            position: 0,
            state: State::new(),
            seen: BTreeMap::new(),
        }
    }
}

/// A client that rebuilds the state from what it is told, and holds every line against the model.
struct Watcher {
    client: Client,
    path: String,
    selection: Selection,
    bookmarks: bool,
    stream: Option<Lines>,
    /// What it must be told first, before anything that happens now.
    initial: VecDeque<Value>,
    /// Everything up to here has been seen.
    position: u64,
    state: State,
    /// Where it may resume, and what it knew there.
    seen: BTreeMap<u64, State>,
}

impl Watcher {
    /// Does one thing that a client may do.
    async fn step(&mut self, play: &Play) -> Result<()> {
        match (play.below(8), self.seen.is_empty()) {
            (0, _) => self.list(play).await,
            (1, _) => self.start_with_all(play).await,
            (_, true) if self.stream.is_none() => Ok(()),
            (2, _) => {
                // Mid-stream, with lines on their way.
                self.stream = None;
                self.initial.clear();
                Ok(())
            }
            (3, _) => self.resume(play).await,
            (4, _) if self.bookmarks && self.stream.is_some() => self.read_to_bookmark(play).await,
            (5, _) => self.read(play, usize::MAX).await,
            _ => self.read(play, 1 + play.below(4)).await,
        }
    }

    fn remember(&mut self) {
        self.seen.insert(self.position, self.state.clone());
    }

    async fn list(&mut self, play: &Play) -> Result<()> {
        let mut state = State::new();
        let limit = if play.below(2) == 0 { "&limit=2" } else { "" };
        let mut next = String::new();
        loop {
            let page = self.client.get(&format!("{}{limit}{next}", self.path)).await?.json();
            self.position = revision_of(&page);
            for item in page["items"].as_array().context("a list has items")? {
                let mut item = item.clone();
                // Items of a list leave out what the list says.
                item["kind"] = json!("Secret");
                item["apiVersion"] = json!("v1");
                ensure!(state.insert(key_of(&item), item).is_none(), "listed twice");
            }
            match text(&page, "/metadata/continue") {
                "" => break,
                token => next = format!("&continue={token}"),
            }
        }
        ensure!(self.position == play.model.head, "a list stands at the latest revision");
        ensure!(state == play.model.state_at(self.position, &self.selection), "a list is exact");
        (self.state, self.stream) = (state, None);
        self.initial.clear();
        self.remember();
        Ok(())
    }

    /// Without a list: the server sends what is there, then what happens.
    async fn start_with_all(&mut self, play: &Play) -> Result<()> {
        let announced = play.below(2) == 0;
        let start = match (announced, play.below(2)) {
            (true, _) => "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
            (false, 0) => "",
            (false, _) => "&resourceVersion=0",
        };
        let marked = announced && self.bookmarks;
        self.stream = Some(self.client.watch(&format!("{}{start}{}", self.query(), self.path_end())).await?);
        self.position = play.model.head;
        self.state = play.model.state_at(self.position, &self.selection);
        let objects = self.state.values().cloned();
        self.initial = objects.map(|object| json!({"type": "ADDED", "object": object})).collect();
        if marked {
            let metadata = json!({
                "resourceVersion": self.position.to_string(),
                "annotations": {"k8s.io/initial-events-end": "true"},
            });
            let end = json!({"kind": "Secret", "apiVersion": "v1", "metadata": metadata});
            self.initial.push_back(json!({"type": "BOOKMARK", "object": end}));
        }
        Ok(())
    }

    fn query(&self) -> String {
        format!("{}&watch=true", self.path)
    }

    fn path_end(&self) -> &'static str {
        if self.bookmarks { "&allowWatchBookmarks=true" } else { "" }
    }

    async fn resume(&mut self, play: &Play) -> Result<()> {
        let Some((revision, state)) = self.seen.iter().nth(play.below(self.seen.len())) else {
            return Ok(());
        };
        (self.position, self.state) = (*revision, state.clone());
        self.open().await
    }

    async fn open(&mut self) -> Result<()> {
        let path = format!("{}&resourceVersion={}{}", self.query(), self.position, self.path_end());
        self.initial.clear();
        self.stream = Some(self.client.watch(&path).await?);
        Ok(())
    }

    /// Reads up to `max` of the events that must be there; more would be one too many.
    async fn read(&mut self, play: &Play, max: usize) -> Result<()> {
        for _ in 0..max {
            let Some(stream) = &mut self.stream else { return Ok(()) };
            if let Some(expected) = self.initial.pop_front() {
                let line = stream.expect().await?;
                ensure!(line == expected, "first {expected}, but it was {line}");
                if expected["type"] == "BOOKMARK" {
                    self.remember();
                }
                continue;
            }
            let Some((revision, expected)) = play.model.next_event(self.position, &self.selection) else {
                return Ok(());
            };
            let line = stream.expect().await?;
            if line["type"] == "BOOKMARK" {
                self.check_bookmark(play, &line)?;
                continue;
            }
            ensure!(line == expected, "next {expected}, but it was {line}");
            match text(&line, "/type") {
                "DELETED" => self.state.remove(&key_of(&line["object"])),
                _ => self.state.insert(key_of(&line["object"]), line["object"].clone()),
            };
            self.position = revision;
            self.remember();
        }
        Ok(())
    }

    fn check_bookmark(&mut self, play: &Play, line: &Value) -> Result<()> {
        let revision = revision_of(&line["object"]);
        ensure!(self.bookmarks, "nobody asked for {line}");
        ensure!(revision >= self.position && revision <= play.model.head, "{line} at {}", self.position);
        let next = play.model.next_event(self.position, &self.selection);
        ensure!(next.is_none_or(|(next, _)| next > revision), "{line} skips an event");
        self.position = revision;
        self.remember();
        Ok(())
    }

    /// Reads until a bookmark says that nothing is left: more events than expected would come before it.
    async fn read_to_bookmark(&mut self, play: &Play) -> Result<()> {
        self.read(play, usize::MAX).await?;
        while let Some(stream) = &mut self.stream {
            let line = stream.expect().await?;
            ensure!(line["type"] == "BOOKMARK", "only a bookmark is left, but it was {line}");
            self.check_bookmark(play, &line)?;
            if self.position == play.model.head {
                break;
            }
        }
        Ok(())
    }

    fn check_state(&self, play: &Play) -> Result<()> {
        let expected = play.model.state_at(self.position, &self.selection);
        ensure!(self.state == expected, "rebuilt {:?}, but it is {expected:?}", self.state);
        Ok(())
    }
}

async fn play(hub: Arc<TestHub>, seed: u64) -> Result<()> {
    let client = hub.admin().await?;
    let workspace = format!("seed-{seed}");
    let object = json!({"metadata": {"name": workspace}});
    client.post("/clusters/root/apis/hanse.io/v1alpha1/workspaces", &object).await?;
    let mut play = Play { random: SeededRandom::new(seed), workspace, client, model: Model::default() };
    for name in NAMESPACES {
        let path = format!("/clusters/{}/api/v1/namespaces", play.workspace);
        let made = play.client.post(&path, &json!({"metadata": {"name": name}})).await?;
        ensure!(made.code == StatusCode::CREATED, "{}", made.text());
        outfitted(&play.client, &format!("{path}/{name}")).await?;
    }
    play.model.head = play.head().await?;
    let narrow = hub.admin_with_window(NARROW).await?;
    let mut watchers: Vec<Watcher> = (0..WATCHERS).map(|_| play.watcher(&narrow)).collect();
    let burst = play.below(STEPS);
    for step in 0..STEPS {
        if step == burst {
            // More than the server prepares at a time.
            for _ in 0..BURST {
                play.write().await?;
            }
        }
        match play.below(5) {
            0..3 => play.write().await,
            _ => {
                let watcher = play.below(WATCHERS);
                watchers[watcher].step(&play).await.with_context(|| format!("watcher {watcher}"))
            }
        }
        .with_context(|| format!("step {step}"))?;
    }
    for watcher in &mut watchers {
        if watcher.stream.is_none() {
            watcher.list(&play).await?;
            watcher.open().await?;
        }
        watcher.read(&play, usize::MAX).await?;
        watcher.check_state(&play)?;
    }
    // Whatever comes too often comes before what happens from now on.
    for _ in 0..40 {
        play.write().await?;
    }
    for watcher in &mut watchers {
        match watcher.bookmarks {
            true => watcher.read_to_bookmark(&play).await?,
            false => watcher.read(&play, usize::MAX).await?,
        }
        watcher.check_state(&play)?;
    }
    Ok(())
}

async fn play_all(store: Arc<dyn Store>, count: u64) -> Result<()> {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>()).transpose();
    let seeds: Vec<u64> = match number("HANSE_SEED")? {
        Some(seed) => vec![seed],
        None => (1..=number("HANSE_SEEDS")?.unwrap_or(count)).collect(),
    };
    println!("{} seeds; HANSE_SEED replays one, HANSE_SEEDS tries more", seeds.len());
    let options = Options { bookmark_every: Duration::from_millis(3), ..Options::default() };
    let hub = Arc::new(TestHub::start_on(store, options).await?);
    // A few at a time, so that workspaces disturb one another if they can.
    for some in seeds.chunks(4) {
        let plays: Vec<_> = some.iter().map(|seed| (*seed, tokio::spawn(play(hub.clone(), *seed)))).collect();
        for (seed, play) in plays {
            play.await?.with_context(|| format!("replay with HANSE_SEED={seed}"))?;
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_watcher_sees_exactly_what_the_model_says() -> Result<()> {
    play_all(Arc::new(MemoryStore::new()), SEEDS).await
}

#[tokio::test(flavor = "multi_thread")]
async fn also_when_most_of_the_history_is_on_disk() -> Result<()> {
    // Memory for a few dozen events, and files small enough to have many of, with checkpoints between.
    let options = embedded::Options {
        ring_bytes: 30_000,
        first_segment_bytes: 64 << 10,
        segment_bytes: 256 << 10,
        checkpoint_bytes: 512 << 10,
        ..embedded::Options::default()
    };
    let directory = tempfile::tempdir()?;
    let store = Arc::new(EmbeddedStore::open(&Env::real(), directory.path(), options)?);
    play_all(store.clone(), SEEDS / 2).await?;
    store.close().await?;
    Ok(())
}
