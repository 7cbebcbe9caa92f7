//! Who changes the objects: each writer has names of its own, and writes down what it was told.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use env::random::SeededRandom;
use http::StatusCode;
use serde_json::{Value, json};
use testing::{
    client::{Answer, Client},
    patience::STANDSTILL,
    process::Admin,
};
use tokio::{
    sync::watch,
    time::{Instant, MissedTickBehavior, interval, sleep},
};

use crate::history::{Entry, Histories};

/// How the server is reached, whichever process it is.
#[derive(Clone)]
pub struct Address {
    admin: Arc<Admin>,
    pub collection: String,
}

impl Address {
    pub fn new(admin: Admin, collection: &str) -> Address {
        Address { admin: Arc::new(admin), collection: collection.to_owned() }
    }

    /// Waits until somebody listens.
    pub async fn connect(&self) -> Result<Client> {
        let deadline = Instant::now() + STANDSTILL;
        let identity = (self.admin.certificate_pem.as_str(), self.admin.key_pem.as_str());
        loop {
            match Client::connect(&self.admin.url, &self.admin.ca_pem, Some(identity)).await {
                Ok(client) => return Ok(client),
                Err(error) if Instant::now() > deadline => return Err(error).context("nobody listens"),
                Err(_) => sleep(Duration::from_millis(50)).await,
            }
        }
    }
}

pub struct Writer {
    address: Address,
    client: Client,
    random: SeededRandom,
    names: Vec<String>,
    /// In the order of `names`.
    entries: Vec<Vec<Entry>>,
    count: usize,
    pub doubts: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Act {
    Create,
    Replace,
    Patch,
    Delete,
}

impl Writer {
    pub async fn new(address: &Address, number: usize, names: usize) -> Result<Writer> {
        Ok(Writer {
            client: address.connect().await?,
            address: address.clone(),
            random: SeededRandom::new(number as u64),
            names: (0..names).map(|name| format!("churn-{number}-{name:05}")).collect(),
            entries: vec![Vec::new(); names],
            count: 0,
            doubts: 0,
        })
    }

    /// Makes all its objects.
    pub async fn fill(mut self) -> Result<Self> {
        for name in 0..self.names.len() {
            self.act(name, Act::Create).await?;
        }
        Ok(self)
    }

    /// Writes at a steady rate until it is told to stop.
    pub async fn run(mut self, every: Duration, mut stop: watch::Receiver<bool>) -> Result<Self> {
        let mut ticks = interval(every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                _ = stop.wait_for(|stop| *stop) => return Ok(self),
            }
            let name = self.random.below(self.names.len() as u64) as usize;
            let act = match (self.version(name), self.random.below(10)) {
                (None, _) => Act::Create,
                (Some(_), 0) => Act::Delete,
                (Some(_), 1..=4) => Act::Patch,
                (Some(_), _) => Act::Replace,
            };
            self.act(name, act).await?;
        }
    }

    pub fn writes(&self) -> usize {
        self.entries.iter().map(Vec::len).sum()
    }

    pub fn hand_over(self, histories: &mut Histories) {
        histories.extend(self.names.into_iter().zip(self.entries));
    }

    fn version(&self, name: usize) -> Option<u64> {
        match self.entries[name].last() {
            Some(Entry::Put(version)) => Some(*version),
            Some(Entry::Deleted) | None => None,
        }
    }

    async fn act(&mut self, name: usize, act: Act) -> Result<()> {
        self.count += 1;
        let value = self.count.to_string();
        loop {
            match self.send(name, act, &value).await {
                // It is for the client to come back later.
                Ok(answer)
                    if answer.code == StatusCode::TOO_MANY_REQUESTS
                        || (answer.code == StatusCode::SERVICE_UNAVAILABLE
                            && answer.headers.contains_key("retry-after")) =>
                {
                    sleep(Duration::from_millis(200)).await;
                }
                Ok(answer)
                    if answer.code.is_success() && serde_json::from_slice::<Value>(&answer.bytes).is_ok() =>
                {
                    let entry = if act == Act::Delete { Entry::Deleted } else { put(&answer.json())? };
                    self.entries[name].push(entry);
                    return Ok(());
                }
                Ok(answer) if !answer.code.is_success() => {
                    bail!("{}: {} {}", self.names[name], answer.code, answer.text())
                }
                // No answer, or half of one: the server is being restarted.
                Ok(_) | Err(_) => return self.resolve(name, act, &value).await,
            }
        }
    }

    async fn send(&self, name: usize, act: Act, value: &str) -> Result<Answer> {
        let (collection, name_text) = (&self.address.collection, &self.names[name]);
        let path = format!("{collection}/{name_text}");
        let data = json!({"value": value, "padding": "x".repeat(256)});
        let mut object = json!({"metadata": {"name": name_text}, "data": data});
        match act {
            Act::Create => self.client.post(collection, &object).await,
            Act::Replace => {
                object["metadata"]["resourceVersion"] = self.version(name).unwrap_or(0).to_string().into();
                self.client.put(&path, &object).await
            }
            Act::Patch => self.client.merge_patch(&path, &json!({"data": {"value": value}})).await,
            Act::Delete => self.client.delete(&path).await,
        }
    }

    /// Finds out what became of a write without an answer: the process that might have done it is gone.
    async fn resolve(&mut self, name: usize, act: Act, value: &str) -> Result<()> {
        self.doubts += 1;
        let path = format!("{}/{}", self.address.collection, self.names[name]);
        let found = loop {
            self.client = self.address.connect().await?;
            match self.client.get(&path).await {
                Ok(answer) if matches!(answer.code.as_u16(), 200 | 404) => break answer,
                _ => sleep(Duration::from_millis(50)).await,
            }
        };
        let is_there = found.code == StatusCode::OK;
        match (self.version(name), is_there) {
            (Some(_), false) => {
                ensure!(act == Act::Delete, "{} is gone", self.names[name]);
                self.entries[name].push(Entry::Deleted);
            }
            (before, true) => {
                let object = found.json();
                let entry = put(&object)?;
                if before.map(Entry::Put) == Some(entry) {
                    return Ok(());
                }
                ensure!(
                    object["data"]["value"] == value,
                    "{} is not what was written: {object}",
                    self.names[name]
                );
                self.entries[name].push(entry);
            }
            (None, false) => {}
        }
        Ok(())
    }
}

fn put(object: &Value) -> Result<Entry> {
    let version = object.pointer("/metadata/resourceVersion").and_then(Value::as_str);
    Ok(Entry::Put(version.context("no resourceVersion")?.parse()?))
}
