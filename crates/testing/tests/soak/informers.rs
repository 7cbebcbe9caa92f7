//! Informers: each holds what one workspace's config maps are, from a watch that begins with a list and goes on where
//! it was.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::Value;
use testing::patience::Patience;
use tokio::time::sleep;

use crate::world::{Gone, Session, World};

pub struct Informer {
    session: Session,
    collection: String,
    /// Versions by name.
    cache: BTreeMap<String, u64>,
    /// Everything up to here has been seen; `None`: begin with a list.
    version: Option<u64>,
}

/// Nothing comes for so long when nothing is written.
const QUIET: Duration = Duration::from_millis(500);

impl Informer {
    pub async fn new(world: &Arc<World>, workspace: &str) -> Informer {
        Informer {
            session: Session::open(world).await,
            collection: format!("/clusters/{workspace}/api/v1/namespaces/default/configmaps"),
            cache: BTreeMap::new(),
            version: None,
        }
    }

    /// Follows until all is over; then its cache must be what the server lists.
    pub async fn run(mut self) {
        let world = self.session.world.clone();
        let mut patience = Patience::default();
        loop {
            self.follow().await;
            if !world.is_over() {
                continue;
            }
            match self.equals_the_list().await {
                Ok(true) => return,
                Ok(false) if !patience.lasts(self.version) => break,
                _ => {}
            }
        }
        world.ledger.problem(format!("an informer's cache of {} is not what is listed", self.collection));
    }

    /// One watch, until it ends; a quiet one is left now and then to see whether all is over.
    async fn follow(&mut self) {
        let query = match self.version {
            Some(version) => format!("resourceVersion={version}"),
            None => "sendInitialEvents=true&resourceVersionMatch=NotOlderThan".to_owned(),
        };
        let path = format!("{}?watch=1&allowWatchBookmarks=true&timeoutSeconds=20&{query}", self.collection);
        let world = self.session.world.clone();
        let mut initial = self.version.is_none().then(BTreeMap::new);
        let asked = Instant::now();
        let mut events = match self.session.client().watch(&path).await {
            Ok(events) => events,
            Err(error) if error.to_string().starts_with("429") => {
                world.ledger.count("429");
                return sleep(Duration::from_secs(1)).await;
            }
            Err(error) if error.to_string().starts_with("503") => {
                world.ledger.unavailable(asked, &format!("GET {path}: {error:#}"));
                return sleep(Duration::from_secs(1)).await;
            }
            Err(error) => return self.session.reconnect(&format!("GET {path}: {error:#}")).await,
        };
        world.ledger.count("watches");
        loop {
            match tokio::time::timeout(QUIET, events.next()).await {
                Err(_) if world.is_over() => return,
                Err(_) => {}
                Ok(Ok(Some(event))) => {
                    if !self.take(&event, &mut initial) {
                        return;
                    }
                }
                Ok(Ok(None)) => return,
                Ok(Err(error)) => {
                    return self.session.reconnect(&format!("GET {path}: {error:#}")).await;
                }
            }
        }
    }

    /// False if the watch is over.
    fn take(&mut self, event: &Value, initial: &mut Option<BTreeMap<String, u64>>) -> bool {
        let ledger = &self.session.world.ledger;
        let object = &event["object"];
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let kind = event["type"].as_str().unwrap_or_default();
        if kind == "ERROR" {
            if object["code"] == 410 {
                ledger.count("410");
            } else {
                ledger.problem(format!("a watch of {}: {object}", self.collection));
            }
            self.version = None;
            return false;
        }
        let version: u64 = text("/metadata/resourceVersion").parse().unwrap_or(0);
        if let Some(listed) = initial {
            if kind == "ADDED" {
                listed.insert(text("/metadata/name").to_owned(), version);
            } else if text("/metadata/annotations/k8s.io~1initial-events-end") == "true" {
                self.cache = std::mem::take(listed);
                self.version = Some(version);
                *initial = None;
            } else {
                ledger.problem(format!("{kind} in the middle of initial events of {}", self.collection));
            }
            return true;
        }
        let last = self.version.unwrap_or(0);
        if version < last || (version == last && kind != "BOOKMARK") {
            ledger.problem(format!("{kind} at {version} after {last} in {}", self.collection));
        }
        self.version = Some(version);
        match kind {
            "ADDED" | "MODIFIED" => drop(self.cache.insert(text("/metadata/name").to_owned(), version)),
            "DELETED" => drop(self.cache.remove(text("/metadata/name"))),
            _ => {}
        }
        ledger.count("events");
        true
    }

    async fn equals_the_list(&mut self) -> Result<bool, Gone> {
        let path = self.collection.clone();
        let list = self.session.get(&path, &[200]).await?.json();
        let items = list["items"].as_array().into_iter().flatten();
        let listed: BTreeMap<String, u64> = items
            .map(|item| {
                let text = |pointer: &str| item.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
                let version = text("/metadata/resourceVersion").parse().unwrap_or(0);
                (text("/metadata/name").to_owned(), version)
            })
            .collect();
        Ok(listed == self.cache)
    }
}
