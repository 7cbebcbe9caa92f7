//! Clients that write and read without pause, and write down what they were told.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use bytes::Bytes;
use env::random::SeededRandom;
use http::Method;
use parking_lot::Mutex;
use serde_json::{Value, json};
use testing::{
    client::{Answer, Client},
    linear::{Action, Content, History, Op, Outcome, Refusal, Seen},
    patience::Patience,
    process::Admin,
};

use crate::cluster::connect;

/// Where servers are and how to log in to them.
pub type Servers = Arc<Vec<(String, Admin)>>;

/// How long a client waits for an answer.
const TIMEOUT: Duration = Duration::from_secs(6);
const PAUSE: Duration = Duration::from_millis(25);
const KEYS: u64 = 5;

/// What is known of one collection, shared by its clients.
pub struct Record {
    pub collection: String,
    start: Instant,
    ids: Arc<AtomicU64>,
    history: Mutex<History>,
    /// The last that anybody was told of each object.
    known: Mutex<BTreeMap<String, Seen>>,
    /// By how many seconds the times that servers gave to new objects were off at most.
    furthest: AtomicU64,
    /// How often which answer was given, by action.
    answers: Mutex<BTreeMap<String, usize>>,
}

impl Record {
    pub fn new(collection: &str, start: Instant, ids: Arc<AtomicU64>) -> Record {
        Record {
            collection: collection.to_owned(),
            start,
            ids,
            history: Mutex::default(),
            known: Mutex::default(),
            furthest: AtomicU64::new(0),
            answers: Mutex::default(),
        }
    }

    pub fn history(&self) -> History {
        self.history.lock().clone()
    }

    pub fn answers(&self) -> BTreeMap<String, usize> {
        self.answers.lock().clone()
    }

    pub fn furthest_clock(&self) -> u64 {
        self.furthest.load(Ordering::Relaxed)
    }

    /// Looks at when a server says that it made an object, just now.
    fn look_at_clock(&self, object: &Value) {
        let made = object["metadata"]["creationTimestamp"].as_str().and_then(|it| it.parse().ok());
        if let Some(made) = made.map(jiff::Timestamp::as_second) {
            let off = jiff::Timestamp::now().as_second().abs_diff(made);
            self.furthest.fetch_max(off, Ordering::Relaxed);
        }
    }

    fn now(&self) -> u64 {
        self.start.elapsed().as_micros() as u64
    }

    fn finish(&self, op: Op) {
        let mut known = self.known.lock();
        match &op.outcome {
            Outcome::Written(seen) | Outcome::Read(Some(seen)) => {
                known.insert(op.key.clone(), *seen);
            }
            Outcome::Listed { items, .. } => known.extend(items.clone()),
            Outcome::Deleted | Outcome::Read(None) | Outcome::Refused(Refusal::Missing) => {
                known.remove(&op.key);
            }
            _ => {}
        }
        drop(known);
        self.history.lock().ops.push(op);
    }
}

pub fn key_name(number: u64) -> String {
    format!("object-{number}")
}

/// What our writes left in an object; `None` if it is not one of ours.
pub fn seen(object: &Value) -> Option<(String, Seen)> {
    let name = object["metadata"]["name"].as_str()?.to_owned();
    let number = |text: &Value| text.as_str()?.parse::<u64>().ok();
    let revision = number(&object["metadata"]["resourceVersion"])?;
    let content = Content { put: number(&object["data"]["put"])?, patch: number(&object["data"]["patch"]) };
    Some((name, Seen { content, revision }))
}

/// A list of ours, and its revision.
pub fn listed(list: &Value) -> Option<(u64, BTreeMap<String, Seen>)> {
    let revision = list["metadata"]["resourceVersion"].as_str()?.parse().ok()?;
    Some((revision, list["items"].as_array()?.iter().filter_map(seen).collect()))
}

/// One client, with connections to all servers.
pub struct Worker {
    number: usize,
    servers: Servers,
    connections: Vec<Option<Client>>,
    random: SeededRandom,
    record: Arc<Record>,
}

impl Worker {
    pub fn new(number: usize, seed: u64, servers: Servers, record: Arc<Record>) -> Worker {
        let random = SeededRandom::new(seed.wrapping_mul(7919).wrapping_add(number as u64));
        Worker { number, connections: vec![None; servers.len()], servers, random, record }
    }

    pub async fn run(mut self, stop: Arc<AtomicBool>) {
        while !stop.load(Ordering::Relaxed) {
            let server = self.random.below(self.servers.len() as u64) as usize;
            let key = key_name(self.random.below(KEYS));
            let action = self.choose(&key);
            let outcome = self.perform(server, &key, action).await;
            // Who is refused at once would otherwise fill the record with it.
            let pause = if outcome == Outcome::Unknown { 8 * PAUSE } else { PAUSE };
            tokio::time::sleep(pause).await;
        }
    }

    /// Reads everything at every server, and asks until it is answered or patience ends.
    pub async fn read_all(&mut self) -> Result<()> {
        for server in 0..self.servers.len() {
            let keys = (0..KEYS).map(|number| (key_name(number), Action::Get));
            for (key, action) in keys.chain([(String::new(), Action::List)]) {
                let mut patience = Patience::default();
                while self.perform(server, &key, action.clone()).await == Outcome::Unknown {
                    anyhow::ensure!(patience.lasts(()), "server {server} does not answer reads");
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
            }
        }
        Ok(())
    }

    /// Writes until one is acknowledged; its revision.
    pub async fn write_last(&mut self, name: &str) -> Result<u64> {
        let mut patience = Patience::default();
        for attempt in 0.. {
            let server = attempt % self.servers.len();
            // A name that was used already may belong to a write that is under way.
            if let Outcome::Written(seen) =
                self.perform(server, &format!("{name}-{attempt}"), Action::Create).await
            {
                return Ok(seen.revision);
            }
            anyhow::ensure!(patience.lasts(()), "no server takes a write");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        unreachable!("attempts have no end")
    }

    fn choose(&self, key: &str) -> Action {
        let known = self.record.known.lock().get(key).map(|seen| seen.revision);
        match (self.random.below(20), known) {
            (0..=3, _) => Action::Get,
            (4, _) => Action::List,
            (5, _) => Action::ListAny,
            (6, _) => Action::Patch,
            (7, _) => Action::Delete { expected: None },
            (8, _) | (_, None) => Action::Create,
            (9, Some(expected)) => Action::Delete { expected: Some(expected) },
            (10..=12, _) => Action::Patch,
            (_, Some(expected)) => Action::Update { expected },
        }
    }

    async fn perform(&mut self, server: usize, key: &str, action: Action) -> Outcome {
        let id = self.record.ids.fetch_add(1, Ordering::Relaxed);
        let key = if matches!(action, Action::List | Action::ListAny) { "" } else { key };
        let called = self.record.now();
        let asked = tokio::time::timeout(TIMEOUT, self.ask(server, key, &action, id)).await;
        let answered = self.record.now();
        if let (Action::Create, Ok(Ok(answer))) = (&action, &asked)
            && answer.code == 201
        {
            self.record.look_at_clock(&answer.json());
        }
        let (outcome, said) = match asked {
            Ok(Ok(answer)) => (outcome(&action, key, &answer), said(&answer)),
            Ok(Err(_)) => (Outcome::Unknown, "connection lost".to_owned()),
            Err(_) => (Outcome::Unknown, "timed out".to_owned()),
        };
        if outcome == Outcome::Unknown {
            self.connections[server] = None;
        }
        *self.record.answers.lock().entry(said).or_default() += 1;
        let op = Op {
            id,
            client: self.number,
            server,
            key: key.to_owned(),
            called,
            answered,
            action,
            outcome: outcome.clone(),
        };
        self.record.finish(op);
        outcome
    }

    async fn ask(&mut self, server: usize, key: &str, action: &Action, id: u64) -> Result<Answer> {
        if self.connections[server].is_none() {
            let (url, admin) = &self.servers[server];
            self.connections[server] = Some(connect(url, admin).await?);
        }
        let client = self.connections[server].as_ref().context("connected")?;
        let collection = &self.record.collection;
        let path = format!("{collection}/{key}");
        let data = json!({"put": id.to_string()});
        match action {
            Action::Create => {
                client.post(collection, &json!({"metadata": {"name": key}, "data": data})).await
            }
            Action::Update { expected } => {
                let metadata = json!({"name": key, "resourceVersion": expected.to_string()});
                client.put(&path, &json!({"metadata": metadata, "data": data})).await
            }
            Action::Patch => client.merge_patch(&path, &json!({"data": {"patch": id.to_string()}})).await,
            Action::Delete { expected: None } => client.delete(&path).await,
            Action::Delete { expected: Some(expected) } => {
                let body = json!({"preconditions": {"resourceVersion": expected.to_string()}});
                let headers = [("content-type", "application/json")];
                client.call(Method::DELETE, &path, &headers, body.to_string()).await
            }
            Action::Get => client.get(&path).await,
            Action::List => client.get(collection).await,
            Action::ListAny => {
                let path = format!("{collection}?resourceVersion=0");
                client.call(Method::GET, &path, &[], Bytes::new()).await
            }
        }
    }
}

/// The answer in short. Of failures the operator wants to know more.
fn said(answer: &Answer) -> String {
    let code = answer.code.as_u16();
    match code {
        500.. => {
            let body = answer.json();
            let message = body["message"].as_str().unwrap_or_default().chars().take(100);
            // Without ports and the like, so that the same is counted as the same.
            format!("{code} ({})", message.filter(|it| !it.is_ascii_digit()).collect::<String>())
        }
        _ => code.to_string(),
    }
}

/// What an answer says about what happened. Whatever it does not say is unknown.
fn outcome(action: &Action, key: &str, answer: &Answer) -> Outcome {
    let Ok(body) = serde_json::from_slice::<Value>(&answer.bytes) else { return Outcome::Unknown };
    let reason = body["reason"].as_str().unwrap_or_default();
    match (answer.code.as_u16(), action) {
        (200 | 201, Action::Create | Action::Update { .. } | Action::Patch) => {
            seen(&body).map_or(Outcome::Unknown, |(_, seen)| Outcome::Written(seen))
        }
        (200, Action::Delete { .. }) => Outcome::Deleted,
        (200, Action::Get) => seen(&body).map_or(Outcome::Unknown, |(_, seen)| Outcome::Read(Some(seen))),
        (200, _) => {
            listed(&body).map_or(Outcome::Unknown, |(revision, items)| Outcome::Listed { revision, items })
        }
        (404, _) if reason == "NotFound" && body["details"]["name"] == key => match action {
            Action::Get => Outcome::Read(None),
            _ => Outcome::Refused(Refusal::Missing),
        },
        (409, _) if reason == "AlreadyExists" => Outcome::Refused(Refusal::Exists),
        (409, _) if reason == "Conflict" => Outcome::Refused(Refusal::Conflict),
        (429, _) => Outcome::Refused(Refusal::Unrelated),
        _ => Outcome::Unknown,
    }
}
