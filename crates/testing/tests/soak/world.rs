//! What all who make the load share: how the server is reached, when to work and when to rest, and what went wrong.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::Result;
use http::{HeaderMap, Method, StatusCode};
use parking_lot::Mutex;
use serde_json::Value;
use testing::{
    client::{Answer, Client},
    patience::{Patience, STANDSTILL},
    process::Admin,
};
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

pub const WORKSPACES: &str = "/clusters/root/apis/hanse.io/v1alpha1/workspaces";
/// Workspaces that stay.
pub const STAYING: usize = 20;

const MOST_PROBLEMS: usize = 50;
/// How answers are counted that say the server is not available now.
pub const UNAVAILABLE: &str = "503";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Load,
    Rest,
    Over,
}

pub fn staying(number: usize) -> String {
    format!("soak-{}", number % STAYING)
}

pub struct World {
    admin: Admin,
    pub ledger: Ledger,
    phase: watch::Sender<Phase>,
    /// Who is in the middle of something.
    busy: AtomicUsize,
}

/// In the middle of something, until dropped.
pub struct Busy<'a>(&'a AtomicUsize);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl World {
    pub fn new(admin: Admin) -> Arc<World> {
        let (phase, _) = watch::channel(Phase::Rest);
        Arc::new(World { admin, ledger: Ledger::default(), phase, busy: AtomicUsize::new(0) })
    }

    /// Waits while there is rest; `None` when all is over.
    pub async fn turn(&self) -> Option<Busy<'_>> {
        let mut phase = self.phase.subscribe();
        loop {
            self.busy.fetch_add(1, Ordering::AcqRel);
            let busy = Busy(&self.busy);
            let now = *phase.borrow_and_update();
            match now {
                Phase::Load => return Some(busy),
                Phase::Over => return None,
                Phase::Rest => drop(busy),
            }
            phase.changed().await.ok()?;
        }
    }

    /// Returns when nobody is in the middle of anything.
    pub async fn begin(&self, phase: Phase) -> Result<()> {
        self.phase.send_replace(phase);
        let mut patience = Patience::default();
        while phase != Phase::Load && self.busy.load(Ordering::Acquire) > 0 {
            anyhow::ensure!(patience.lasts(self.ledger.counts()), "somebody does not come to rest");
            sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    pub fn is_over(&self) -> bool {
        *self.phase.borrow() == Phase::Over
    }

    async fn connect(&self, as_admin: bool) -> Connection {
        let identity = (self.admin.certificate_pem.as_str(), self.admin.key_pem.as_str());
        let mut failing = None;
        loop {
            let since = Instant::now();
            match Client::connect(&self.admin.url, &self.admin.ca_pem, as_admin.then_some(identity)).await {
                Ok(client) => return Connection { client, since },
                Err(error) => {
                    let failing_since = *failing.get_or_insert_with(Instant::now);
                    self.ledger.lost(since, &format!("connecting: {error:#}"));
                    if failing_since.elapsed() > STANDSTILL {
                        self.ledger.problem(format!("nobody listens: {error:#}"));
                    }
                    sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }
}

/// What was counted, and what should not have been.
#[derive(Default)]
pub struct Ledger {
    counts: Mutex<BTreeMap<&'static str, u64>>,
    problems: Mutex<Vec<String>>,
    /// From when to when the server was away; the last may still be.
    absences: Mutex<Vec<(Instant, Option<Instant>)>>,
}

impl Ledger {
    pub fn count(&self, what: &'static str) {
        *self.counts.lock().entry(what).or_default() += 1;
    }

    pub fn problem(&self, text: String) {
        let mut problems = self.problems.lock();
        if problems.len() < MOST_PROBLEMS && !problems.contains(&text) {
            eprintln!("problem: {text}");
            problems.push(text);
        }
    }

    /// A connection broke that there has been, or was to be, since then: what a restart does, and nothing else may.
    pub fn lost(&self, since: Instant, why: &str) {
        self.count("lost connections");
        if !self.is_around_a_restart(since) {
            self.problem(format!("a connection broke without a restart: {why}"));
        }
    }

    /// Somebody who asked then was told that the server is not available: as with what is lost.
    pub fn unavailable(&self, asked: Instant, what: &str) {
        self.count(UNAVAILABLE);
        if !self.is_around_a_restart(asked) {
            self.problem(format!("not available without a restart: {what}"));
        }
    }

    /// Whether what began then may have met a server that goes away or has not come back.
    fn is_around_a_restart(&self, began: Instant) -> bool {
        let last = self.absences.lock().last().copied();
        last.is_some_and(|(_, back)| back.is_none_or(|back| began < back))
    }

    pub fn goes_away(&self) {
        self.absences.lock().push((Instant::now(), None));
    }

    pub fn is_back(&self) {
        if let Some(last) = self.absences.lock().last_mut() {
            last.1 = Some(Instant::now());
        }
    }

    pub fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.counts.lock().clone()
    }

    pub fn problems(&self) -> Vec<String> {
        self.problems.lock().clone()
    }
}

/// Why there is no answer to work with.
#[derive(Debug)]
pub enum Gone {
    /// The connection broke: it may have been done.
    Lost,
    /// Not what was expected, which is in the ledger.
    Wrong,
}

struct Connection {
    client: Client,
    /// When somebody began to make it.
    since: Instant,
}

/// One worker's connection; made again when it breaks.
pub struct Session {
    pub world: Arc<World>,
    connection: Connection,
    as_admin: bool,
}

pub const JSON: &str = "application/json";

impl Session {
    pub async fn open(world: &Arc<World>) -> Session {
        Session { connection: world.connect(true).await, world: world.clone(), as_admin: true }
    }

    /// Without a certificate.
    pub async fn open_as_nobody(world: &Arc<World>) -> Session {
        Session { connection: world.connect(false).await, world: world.clone(), as_admin: false }
    }

    pub fn client(&self) -> Client {
        self.connection.client.clone()
    }

    pub async fn reconnect(&mut self, why: &str) {
        self.world.ledger.lost(self.connection.since, why);
        self.connection = self.world.connect(self.as_admin).await;
    }

    pub async fn get(&mut self, path: &str, wanted: &[u16]) -> Result<Answer, Gone> {
        self.ask(Method::GET, path, &[], &Value::Null, wanted).await
    }

    pub async fn post(&mut self, path: &str, body: &Value) -> Result<Answer, Gone> {
        self.ask(Method::POST, path, &[("content-type", JSON)], body, &[201]).await
    }

    /// What is gone already is good as well.
    pub async fn delete(&mut self, path: &str) -> Result<Answer, Gone> {
        self.ask(Method::DELETE, path, &[], &Value::Null, &[200, 202, 404, 409]).await
    }

    /// Asks until the answer is one of `wanted`, or it is a problem.
    pub async fn ask(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &Value,
        wanted: &[u16],
    ) -> Result<Answer, Gone> {
        let text = if body.is_null() { String::new() } else { body.to_string() };
        loop {
            let asked = Instant::now();
            let call = self.connection.client.call(method.clone(), path, headers, text.clone());
            let answer = match timeout(STANDSTILL, call).await {
                Ok(Ok(answer)) => answer,
                Ok(Err(error)) => {
                    self.reconnect(&format!("{method} {path}: {error:#}")).await;
                    return Err(Gone::Lost);
                }
                Err(_) => {
                    let problem = format!("{method} {path}: no answer in {:?}", asked.elapsed());
                    self.world.ledger.problem(problem);
                    return Err(Gone::Wrong);
                }
            };
            self.world.ledger.count("requests");
            // Nothing was done, and the client is told to come back.
            let told_when = answer.headers.contains_key("retry-after");
            let for_later = match answer.code {
                StatusCode::TOO_MANY_REQUESTS => {
                    self.world.ledger.count("429");
                    true
                }
                StatusCode::SERVICE_UNAVAILABLE if told_when => {
                    self.world.ledger.unavailable(asked, &format!("{method} {path}: {}", answer.text()));
                    true
                }
                _ => false,
            };
            if for_later {
                sleep(retry_after(&answer.headers)).await;
                continue;
            }
            if !wanted.contains(&answer.code.as_u16()) {
                let text: String = answer.text().chars().take(400).collect();
                self.world.ledger.problem(format!("{method} {path}: {} {text}", answer.code));
                return Err(Gone::Wrong);
            }
            // The head of an answer may have come, and its end not.
            if serde_json::from_slice::<Value>(&answer.bytes).is_err() {
                self.reconnect(&format!("{method} {path}: half an answer")).await;
                return Err(Gone::Lost);
            }
            return Ok(answer);
        }
    }

    /// Waits until `path` answers `wanted`, through restarts.
    pub async fn until(&mut self, path: &str, wanted: u16) -> Result<Answer, Gone> {
        let started = Instant::now();
        loop {
            match self.get(path, &[200, 403, 404]).await {
                Ok(answer) if answer.code == wanted => return Ok(answer),
                Err(Gone::Wrong) => return Err(Gone::Wrong),
                Ok(_) | Err(Gone::Lost) if started.elapsed() < STANDSTILL => {
                    sleep(Duration::from_millis(50)).await;
                }
                Ok(_) | Err(Gone::Lost) => {
                    self.world.ledger.problem(format!("{path} does not answer {wanted}"));
                    return Err(Gone::Wrong);
                }
            }
        }
    }
}

fn retry_after(headers: &HeaderMap) -> Duration {
    let seconds = headers.get("retry-after").and_then(|value| value.to_str().ok()?.parse().ok());
    Duration::from_secs(seconds.unwrap_or(1).min(10))
}
