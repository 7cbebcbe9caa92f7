//! Watchers that never give up: they list once, follow, and go on at another server when one is lost.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use serde_json::Value;
use testing::{
    client::{Client, Lines},
    linear::watched::{Change, Event, Stream, Told},
    patience::Patience,
};

use crate::{
    cluster::connect,
    workload::{Servers, listed, seen},
};

/// A server that says nothing for so long may be gone: it is left for the next.
const SILENCE: Duration = Duration::from_secs(8);
const PAUSE: Duration = Duration::from_millis(250);

/// Where all watchers may stop: the revision of the last write, once there is one.
pub type End = Arc<AtomicU64>;

/// How much a watcher has been told.
pub type Progress = Arc<AtomicU64>;

/// A watch that could not go on from where it was.
pub struct Loss {
    /// Who said so.
    pub server: usize,
    /// When it was told something for the last time before.
    pub told: Instant,
    pub at: Instant,
}

pub struct Informer {
    servers: Servers,
    collection: String,
    /// The server it is at.
    server: usize,
    stream: Stream,
    pub progress: Progress,
    end: End,
    told: Instant,
    losses: Vec<Loss>,
}

impl Informer {
    pub fn new(name: String, servers: Servers, collection: &str, server: usize, end: End) -> Informer {
        let stream = Stream { name, told: Vec::new() };
        let progress = Progress::default();
        let (collection, told) = (collection.to_owned(), Instant::now());
        Informer { servers, collection, server, stream, progress, end, told, losses: Vec::new() }
    }

    /// Lists, so that it knows where it begins.
    pub async fn begin(&mut self) -> Result<()> {
        let mut patience = Patience::default();
        loop {
            let listed = match self.connect().await {
                Ok(client) => self.list(&client).await,
                Err(error) => Err(error),
            };
            match listed {
                Err(_) if patience.lasts(()) => tokio::time::sleep(PAUSE).await,
                other => return other,
            }
        }
    }

    fn take_down(&mut self, told: Told) {
        match &told {
            Told::Gone => {
                self.losses.push(Loss { server: self.server, told: self.told, at: Instant::now() });
            }
            Told::Resumed { .. } => {}
            Told::Listed { .. } | Told::Event(_) | Told::Bookmark(_) => self.told = Instant::now(),
        }
        self.stream.told.push(told);
        self.progress.fetch_add(1, Ordering::Relaxed);
    }

    /// Follows until it has been told everything.
    pub async fn run(mut self) -> (Stream, Vec<Loss>) {
        while !self.has_all() {
            // Whatever ended it, the next server knows as much.
            if self.follow().await.is_err() {
                tokio::time::sleep(PAUSE).await;
            }
            self.server = (self.server + 1) % self.servers.len();
        }
        (self.stream, self.losses)
    }

    fn has_all(&self) -> bool {
        let end = self.end.load(Ordering::Relaxed);
        end > 0 && self.stream.position() >= end
    }

    async fn connect(&self) -> Result<Client> {
        let (url, admin) = &self.servers[self.server];
        connect(url, admin).await
    }

    async fn list(&mut self, client: &Client) -> Result<()> {
        let answer = tokio::time::timeout(SILENCE, client.get(&self.collection)).await??;
        anyhow::ensure!(answer.code == 200, "{}", answer.text());
        let (revision, items) = listed(&answer.json()).context("a list")?;
        self.take_down(Told::Listed { revision, items });
        Ok(())
    }

    async fn follow(&mut self) -> Result<()> {
        let client = self.connect().await?;
        let after = self.stream.position();
        if matches!(self.stream.told.last(), Some(Told::Gone)) {
            self.list(&client).await?;
            return Ok(());
        }
        let path = format!("{}?watch=true&allowWatchBookmarks=true&resourceVersion={after}", self.collection);
        let opened = tokio::time::timeout(SILENCE, client.watch(&path)).await?;
        let mut lines = match opened {
            Ok(lines) => lines,
            Err(error) if error.to_string().starts_with("410") => {
                self.take_down(Told::Gone);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        self.take_down(Told::Resumed { server: self.server, after });
        while !self.has_all() && self.take(&mut lines).await? {}
        Ok(())
    }

    /// Takes one line; `false` if it was the last.
    async fn take(&mut self, lines: &mut Lines) -> Result<bool> {
        let Some(line) = tokio::time::timeout(SILENCE, lines.next()).await?? else { return Ok(false) };
        let object = &line["object"];
        let change: fn(testing::linear::Content) -> Change = match line["type"].as_str() {
            Some("ADDED") => Change::Added,
            Some("MODIFIED") => Change::Modified,
            Some("DELETED") => |_| Change::Deleted,
            Some("BOOKMARK") => {
                self.take_down(Told::Bookmark(revision_of(object)?));
                return Ok(true);
            }
            _ => {
                if object["code"] == 410 {
                    self.take_down(Told::Gone);
                }
                return Ok(false);
            }
        };
        // Others than us write there too; what they do says how far we are, but not to whom.
        let Some((key, seen)) = seen(object) else { return Ok(true) };
        let uid = object["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        let event = Event { revision: seen.revision, key, uid, change: change(seen.content) };
        self.take_down(Told::Event(event));
        Ok(true)
    }
}

fn revision_of(object: &Value) -> Result<u64> {
    Ok(object["metadata"]["resourceVersion"].as_str().context("a resourceVersion")?.parse()?)
}
