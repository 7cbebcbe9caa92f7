//! Reading a whole namespace: lists, pages, and the ways an informer starts.
//!
//! The clock runs while the server works and the answer arrives, not while an answer is checked.

use std::time::{Duration, Instant};

use anyhow::Result;
use bytes::Bytes;
use http::Uri;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use memchr::memmem;
use serde::{Deserialize, de::IgnoredAny};

use crate::{
    client::{self, Connection, Endpoint, Failure},
    figures::{Errors, Latencies, ListKind, Sample},
    machine::Reading,
    objects::Kind,
};

const PAGE: usize = 500;
const LEAST_REPETITIONS: usize = 3;
const MOST_REPETITIONS: usize = 100;

/// One namespace, to be read again and again over one connection.
pub struct Lister<'a> {
    pub endpoint: &'a Endpoint,
    pub connection: Connection,
    pub namespace: &'a str,
    /// How many objects there must be.
    pub expected: usize,
}

/// What one reading took.
#[derive(Default)]
struct Reached {
    timed: Duration,
    received: u64,
    items: usize,
}

#[derive(Deserialize)]
struct List {
    metadata: ListMeta,
    items: Vec<IgnoredAny>,
}

#[derive(Deserialize)]
struct ListMeta {
    #[serde(default, rename = "resourceVersion")]
    resource_version: String,
    #[serde(default, rename = "continue")]
    next: String,
}

impl Lister<'_> {
    /// Reads the namespace for about `duration`, after one reading that does not count.
    pub async fn measure(&mut self, kind: ListKind, duration: Duration, server: &[u32]) -> Result<Sample> {
        let mut errors = Errors::default();
        let mut latencies = Latencies::default();
        let (mut timed, mut received) = (Duration::ZERO, 0);
        if let Err(failure) = self.read(kind).await {
            errors.add(&failure);
        }
        let before = Reading::take(server)?;
        let started = Instant::now();
        for done in 0..MOST_REPETITIONS {
            if errors.count > 0 || (done >= LEAST_REPETITIONS && started.elapsed() >= duration) {
                break;
            }
            match self.read(kind).await {
                Ok(reached) => {
                    latencies.record(reached.timed);
                    timed += reached.timed;
                    received += reached.received;
                }
                Err(failure) => errors.add(&failure),
            }
        }
        let usage = before.until(Reading::take(server)?);
        Ok(Sample { operations: latencies.len(), timed, latencies, received, errors, usage })
    }

    async fn read(&mut self, kind: ListKind) -> Result<Reached, Failure> {
        let mut reached = Reached::default();
        match kind {
            ListKind::Consistent => drop(self.list("", &mut reached).await?),
            ListKind::Cached => drop(self.list("?resourceVersion=0", &mut reached).await?),
            ListKind::Paged => self.pages(&mut reached).await?,
            ListKind::ListThenWatch => {
                let list = self.list("?resourceVersion=0", &mut reached).await?;
                let query =
                    format!("?watch=1&allowWatchBookmarks=true&resourceVersion={}", list.resource_version);
                let uri = self.uri(&query)?;
                let asked = Instant::now();
                self.connection.open(client::get(uri)).await?;
                reached.timed += asked.elapsed();
            }
            ListKind::InitialEvents => self.initial_events(&mut reached).await?,
        }
        // Where controllers run, a namespace has one more: the config map with the server's authority.
        if !(self.expected..=self.expected + 1).contains(&reached.items) {
            return Err(Failure::Unexpected(format!(
                "{} objects instead of {}",
                reached.items, self.expected
            )));
        }
        Ok(reached)
    }

    async fn list(&mut self, query: &str, reached: &mut Reached) -> Result<ListMeta, Failure> {
        let uri = self.uri(query)?;
        let asked = Instant::now();
        let mut body = self.connection.open(client::get(uri)).await?.into_body();
        let mut chunks = Vec::new();
        while let Some(chunk) = next_chunk(&mut body).await? {
            chunks.push(chunk);
        }
        reached.timed += asked.elapsed();
        let json = chunks.concat();
        reached.received += json.len() as u64;
        let list: List = serde_json::from_slice(&json)
            .map_err(|error| Failure::Unexpected(format!("not a list: {error}")))?;
        reached.items += list.items.len();
        Ok(list.metadata)
    }

    async fn pages(&mut self, reached: &mut Reached) -> Result<(), Failure> {
        let mut query = format!("?limit={PAGE}");
        loop {
            let meta = self.list(&query, reached).await?;
            if meta.next.is_empty() {
                return Ok(());
            }
            query = format!("?limit={PAGE}&continue={}", percent_encoded(&meta.next));
        }
    }

    async fn initial_events(&mut self, reached: &mut Reached) -> Result<(), Failure> {
        let uri = self.uri(
            "?watch=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
        )?;
        let end = memmem::Finder::new(b"k8s.io/initial-events-end");
        let asked = Instant::now();
        let mut body = self.connection.open(client::get(uri)).await?.into_body();
        let mut lines = Lines::default();
        let mut ended = false;
        while !ended {
            let Some(chunk) = next_chunk(&mut body).await? else {
                return Err(Failure::Unexpected("the watch ended before its initial events did".to_owned()));
            };
            reached.received += chunk.len() as u64;
            lines.feed(&chunk, |line| {
                if end.find(line).is_some() {
                    ended = true;
                } else {
                    reached.items += 1;
                }
            });
        }
        reached.timed += asked.elapsed();
        Ok(())
    }

    fn uri(&self, query: &str) -> Result<Uri, Failure> {
        self.endpoint
            .uri(&format!("{}{query}", Kind::ConfigMap.collection(self.namespace)))
            .map_err(|error| Failure::Unexpected(error.to_string()))
    }
}

pub async fn next_chunk(body: &mut Incoming) -> Result<Option<Bytes>, Failure> {
    while let Some(frame) = body.frame().await {
        if let Ok(chunk) = frame?.into_data() {
            return Ok(Some(chunk));
        }
    }
    Ok(None)
}

/// Cuts a stream into lines; copies only a line that spans two chunks.
#[derive(Default)]
pub struct Lines {
    begun: Vec<u8>,
}

impl Lines {
    pub fn feed(&mut self, mut chunk: &[u8], mut each: impl FnMut(&[u8])) {
        while let Some(end) = memchr::memchr(b'\n', chunk) {
            let (line, rest) = (&chunk[..end], &chunk[end + 1..]);
            if self.begun.is_empty() {
                each(line);
            } else {
                self.begun.extend_from_slice(line);
                each(&self.begun);
                self.begun.clear();
            }
            chunk = rest;
        }
        self.begun.extend_from_slice(chunk);
    }
}

fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => encoded.push(byte.into()),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_may_span_chunks() {
        let mut lines = Lines::default();
        let mut seen = Vec::new();
        for chunk in ["one\ntw", "", "o\n", "three\nfo"] {
            lines.feed(chunk.as_bytes(), |line| seen.push(String::from_utf8_lossy(line).into_owned()));
        }
        assert_eq!(seen, ["one", "two", "three"]);
    }

    #[test]
    fn a_continue_token_survives_the_query() {
        assert_eq!(percent_encoded("aZ09-_.~+/="), "aZ09-_.~%2B%2F%3D");
    }
}
