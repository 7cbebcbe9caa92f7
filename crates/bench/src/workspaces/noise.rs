//! A quiet workspace beside a noisy one: what its requests take while the neighbour does its worst.
//!
//! Both are asked as users of their workspaces, not as platform admins, whom nothing limits. The noise comes from a
//! thread of its own with connections of its own, so that it does not delay the quiet one's requests before they leave.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Instant,
};

use anyhow::{Context, Result};
use http::{HeaderValue, Method};
use http_body_util::BodyExt;
use tokio::{task::JoinSet, time::sleep};

use super::{Found, Plan, Work, config_map, is_refused, perform, post};
use crate::{
    client::{self, Connection, Endpoint, Request},
    figures::{Errors, Latencies},
    machine::{Reading, Usage},
    servers::Server,
};

/// What the neighbour does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noise {
    None,
    /// Small objects are made and deleted, as many as go through.
    Writes,
    /// Objects of half a megabyte are made and deleted.
    LargeWrites,
    /// All of two thousand objects are listed.
    Lists,
    /// Watches of a collection that changes all the time.
    Watches,
}

impl Noise {
    const ALL: [Noise; 5] = [Noise::None, Noise::Writes, Noise::LargeWrites, Noise::Lists, Noise::Watches];

    pub fn describe(self) -> &'static str {
        match self {
            Noise::None => "nothing",
            Noise::Writes => "64 workers make and delete config maps",
            Noise::LargeWrites => "16 workers make and delete config maps of 512 KiB",
            Noise::Lists => "16 workers list 2 000 config maps",
            Noise::Watches => "500 watches, 8 workers write what they watch",
        }
    }
}

/// What a quiet workspace saw.
pub struct Quiet {
    pub noise: Noise,
    pub reads: Latencies,
    pub writes: Latencies,
    pub errors: Errors,
    /// Requests of the neighbour that were answered, and those that were refused.
    pub answered: u64,
    pub refused: u64,
    pub usage: Usage,
}

/// Answers that the neighbour got.
#[derive(Default)]
struct Heard {
    answered: AtomicU64,
    refused: AtomicU64,
    stop: AtomicBool,
}

pub async fn all(plan: &Plan, mut server: Server, found: &mut Found) -> Result<()> {
    let endpoint = server.start().await?.admin;
    let mut connection = endpoint.connect().await?;
    for name in ["quiet", "noisy"] {
        for work in [Work::Create, Work::Bind] {
            perform(&endpoint, &mut connection, name, work).await?;
        }
    }
    for number in 0..2000 {
        let body = config_map(&format!("listed-{number}"), &"x".repeat(1024));
        connection.call(post(&endpoint, &maps("noisy", "kube-public"), body)?).await?;
    }
    drop(connection);
    for noise in Noise::ALL {
        found.quiet.push(measure(plan, &server, &endpoint, noise).await?);
    }
    server.stop().await
}

fn maps(workspace: &str, namespace: &str) -> String {
    format!("/clusters/{workspace}/api/v1/namespaces/{namespace}/configmaps")
}

fn as_user(mut request: Request) -> Request {
    request.headers_mut().insert("impersonate-user", HeaderValue::from_static(super::USER));
    request
}

async fn measure(plan: &Plan, server: &Server, endpoint: &Endpoint, noise: Noise) -> Result<Quiet> {
    let heard = Arc::new(Heard::default());
    let (told, neighbour) = (heard.clone(), endpoint.clone());
    let thread = thread::spawn(move || -> Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(disturb(noise, neighbour, told))
    });
    // The neighbour is at it before anything is measured.
    sleep(plan.noise / 5).await;
    let before = Reading::take(&server.pids())?;
    let mut quiet = Quiet {
        noise,
        reads: Latencies::default(),
        writes: Latencies::default(),
        errors: Errors::default(),
        answered: 0,
        refused: 0,
        usage: Usage::default(),
    };
    let mut connection = endpoint.connect().await?;
    let began = Instant::now();
    while began.elapsed() < plan.noise {
        quiet.round(endpoint, &mut connection).await?;
    }
    quiet.usage = before.until(Reading::take(&server.pids())?);
    heard.stop.store(true, Ordering::Relaxed);
    let ended = tokio::task::spawn_blocking(move || thread.join()).await?;
    ended.map_err(|_| anyhow::anyhow!("the neighbour panicked"))??;
    quiet.answered = heard.answered.load(Ordering::Relaxed);
    quiet.refused = heard.refused.load(Ordering::Relaxed);
    eprintln!(
        "  beside {}: write p50 {:.2} p99 {:.2} ms, read p50 {:.2} p99 {:.2} ms, {} errors {}; neighbour: {} answered, {} refused",
        noise.describe(),
        quiet.writes.quantile(0.5),
        quiet.writes.quantile(0.99),
        quiet.reads.quantile(0.5),
        quiet.reads.quantile(0.99),
        quiet.errors.count,
        quiet.errors.first.as_deref().unwrap_or_default(),
        quiet.answered,
        quiet.refused,
    );
    Ok(quiet)
}

impl Quiet {
    /// One object made, read and deleted.
    async fn round(&mut self, endpoint: &Endpoint, connection: &mut Connection) -> Result<()> {
        let path = maps("quiet", "default");
        let one = endpoint.server_uri(&format!("{path}/one"))?;
        let requests = [
            (true, post(endpoint, &path, config_map("one", "x"))?),
            (false, client::get(one.clone())),
            (true, client::bare(Method::DELETE, one)),
        ];
        for (is_write, request) in requests {
            let sent = Instant::now();
            let answer = connection.call(as_user(request)).await;
            let took = sent.elapsed();
            match answer {
                Ok(_) if is_write => self.writes.record(took),
                Ok(_) => self.reads.record(took),
                Err(failure @ client::Failure::Refused { .. }) => self.errors.add(&failure),
                Err(failure) => return Err(failure.into()),
            }
        }
        Ok(())
    }
}

/// Makes noise until told to stop.
async fn disturb(noise: Noise, endpoint: Endpoint, heard: Arc<Heard>) -> Result<()> {
    let (writers, listers, watches, payload) = match noise {
        Noise::None => return Ok(()),
        Noise::Writes => (64, 0, 0, 16),
        Noise::LargeWrites => (16, 0, 0, 512 * 1024),
        Noise::Lists => (0, 16, 0, 0),
        Noise::Watches => (8, 0, 500, 16),
    };
    let connections = endpoint.connect_many(4).await?;
    let connection = |number: usize| connections.get(number % 4).cloned().context("no connection");
    let payload: Arc<str> = "x".repeat(payload).into();
    let mut tasks = JoinSet::new();
    for number in 0..watches {
        tasks.spawn(watch(endpoint.clone(), connection(number)?, heard.clone()));
    }
    for number in 0..writers {
        let name = format!("noise-{number}");
        tasks.spawn(write(endpoint.clone(), connection(number)?, heard.clone(), name, payload.clone()));
    }
    for number in 0..listers {
        tasks.spawn(list(endpoint.clone(), connection(number)?, heard.clone()));
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(())
}

impl Heard {
    async fn ask(&self, connection: &mut Connection, request: Request) -> Result<()> {
        match connection.call(as_user(request)).await {
            Ok(_) => self.answered.fetch_add(1, Ordering::Relaxed),
            Err(failure) if is_refused(&failure) => self.refused.fetch_add(1, Ordering::Relaxed),
            // A delete of what could not be made.
            Err(client::Failure::Refused { .. }) => 0,
            Err(failure) => return Err(failure.into()),
        };
        Ok(())
    }

    fn go_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }
}

async fn write(
    endpoint: Endpoint,
    mut connection: Connection,
    heard: Arc<Heard>,
    name: String,
    payload: Arc<str>,
) -> Result<()> {
    let path = maps("noisy", "default");
    while heard.go_on() {
        heard.ask(&mut connection, post(&endpoint, &path, config_map(&name, &payload))?).await?;
        let uri = endpoint.server_uri(&format!("{path}/{name}"))?;
        heard.ask(&mut connection, client::bare(Method::DELETE, uri)).await?;
    }
    Ok(())
}

async fn list(endpoint: Endpoint, mut connection: Connection, heard: Arc<Heard>) -> Result<()> {
    while heard.go_on() {
        let uri = endpoint.server_uri(&maps("noisy", "kube-public"))?;
        heard.ask(&mut connection, client::get(uri)).await?;
    }
    Ok(())
}

async fn watch(endpoint: Endpoint, mut connection: Connection, heard: Arc<Heard>) -> Result<()> {
    let uri = endpoint.server_uri(&format!("{}?watch=true", maps("noisy", "default")))?;
    let mut body = match connection.open(as_user(client::get(uri))).await {
        Ok(answer) => answer.into_body(),
        Err(failure) if is_refused(&failure) => {
            heard.refused.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        Err(failure) => return Err(failure.into()),
    };
    while heard.go_on() {
        let pause = sleep(std::time::Duration::from_millis(200));
        tokio::select! {
            frame = body.frame() => match frame {
                Some(Ok(_)) => {}
                _ => return Ok(()),
            },
            () = pause => {}
        }
    }
    Ok(())
}
