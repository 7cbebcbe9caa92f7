//! A collection of a member, kept level: listed once, then watched; listed again only where the member has forgotten
//! what the watch would go on from.

use std::{borrow::Cow, sync::Arc, time::Duration};

use server::metrics::MemberMetrics;

use crate::{
    client::{Client, Error, Told, Watching, list_pages, read_event},
    objects::{self, Head},
    room::Room,
    sessions::Options,
};

/// Which objects, and how much of them.
#[derive(Clone, Debug)]
pub struct Source {
    /// May end with a query that selects.
    pub path: Cow<'static, str>,
    pub accept: &'static str,
}

impl Source {
    pub fn new(path: impl Into<Cow<'static, str>>, accept: &'static str) -> Source {
        Source { path: path.into(), accept }
    }
}

pub const WHOLE: &str = "application/json";
/// Only what every object says of itself.
pub const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
pub const METADATA_LIST: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// Who is told.
pub trait Sink: Send {
    /// A list begins: what was listed in one that did not come to its end does not count.
    fn begin(&mut self);
    fn listed_one(&mut self, object: &[u8]);
    /// The list is complete: what was not in it is not there.
    fn end(&mut self);
    fn put(&mut self, object: &[u8], head: &Head<'_>);
    fn removed(&mut self, object: &[u8], head: &Head<'_>);
    /// There is more of it than there is room for: what was told before is not kept up with.
    fn given_up(&mut self) {}
}

/// How far a collection is known.
enum State {
    /// Nothing can be gone on from.
    Unlisted,
    /// All up to this revision.
    Listed(String),
}

/// Keeps one collection level.
pub struct Reflector<S> {
    source: Source,
    sink: S,
    state: State,
    room: Arc<Room>,
}

impl<S: Sink> Reflector<S> {
    pub fn new(source: Source, sink: S, room: Arc<Room>) -> Self {
        Self { source, sink, state: State::Unlisted, room }
    }

    /// Everything is listed again.
    pub fn begin_anew(&mut self) {
        self.state = State::Unlisted;
    }

    /// Goes on until something is wrong. What is known stays known: it can be called again.
    pub async fn run(&mut self, client: &Client, options: &Options, metrics: &MemberMetrics) -> Error {
        loop {
            match self.step(client, options, metrics).await {
                Ok(()) => {}
                Err(error) if error.is_gone() => {
                    self.state = State::Unlisted;
                    // A member that has forgotten everything at once is not to be asked at once.
                    client.env().clock.sleep(options.retry_after).await;
                }
                Err(error) => {
                    if makes_no_sense(&error) {
                        self.state = State::Unlisted;
                    }
                    return error;
                }
            }
        }
    }

    /// A list, or a watch to its end.
    async fn step(
        &mut self,
        client: &Client,
        options: &Options,
        metrics: &MemberMetrics,
    ) -> Result<(), Error> {
        match &self.state {
            State::Unlisted => {
                let after = self.list(client, metrics).await?;
                self.state = State::Listed(after);
                Ok(())
            }
            State::Listed(after) => {
                let began = client.env().clock.elapsed();
                let after = after.clone();
                self.watch(client, after, options, metrics).await?;
                let lasted = client.env().clock.elapsed().saturating_sub(began);
                // One that ends at once is not opened again at once.
                client.env().clock.sleep(options.retry_after.saturating_sub(lasted)).await;
                Ok(())
            }
        }
    }

    async fn list(&mut self, client: &Client, metrics: &MemberMetrics) -> Result<String, Error> {
        metrics.lists.inc();
        self.sink.begin();
        let accept = if self.source.accept == METADATA { METADATA_LIST } else { self.source.accept };
        let (sink, room, path) = (&mut self.sink, &self.room, &*self.source.path);
        let mut bytes = 0;
        let listed = list_pages(client, path, accept, |page| {
            metrics.bytes.inc_by(page.bytes() as u64);
            bytes += page.bytes();
            room.fits(path, bytes)?;
            page.items().for_each(|item| sink.listed_one(item));
            Ok(())
        });
        let after = match listed.await {
            Ok(after) => after,
            Err(error) => {
                self.sink.begin();
                if is_too_much(&error) {
                    metrics.overfull.inc();
                    self.room.refuse(path);
                    self.sink.given_up();
                }
                return Err(error);
            }
        };
        self.room.take(path, bytes);
        self.sink.end();
        Ok(after)
    }

    async fn watch(
        &mut self,
        client: &Client,
        after: String,
        options: &Options,
        metrics: &MemberMetrics,
    ) -> Result<(), Error> {
        metrics.watches.inc();
        let Source { path, accept } = self.source.clone();
        let lasts = jittered(client, options.watch_lasts);
        let mut watching = Watching::open(client, &path, accept, &after, lasts, options.watch_idle).await?;
        while let Some(line) = watching.next().await? {
            metrics.bytes.inc_by(line.len() as u64);
            let told = read_event(&line)?;
            let (Told::Put(object) | Told::Removed(object) | Told::Bookmark(object)) = told;
            let head =
                objects::head(object).ok_or_else(|| Error::Garbage("an event without object".into()))?;
            match &told {
                Told::Put(object) => self.sink.put(object, &head),
                Told::Removed(object) => self.sink.removed(object, &head),
                Told::Bookmark(_) => {}
            }
            if !matches!(told, Told::Bookmark(_)) {
                client.hear();
            }
            metrics.events.inc();
            if !head.metadata.resource_version.is_empty() {
                self.state = State::Listed(head.metadata.resource_version.into_owned());
            }
            if matches!(told, Told::Put(_)) && self.room.put(&path, line.len()) {
                self.state = State::Unlisted;
                return Ok(());
            }
        }
        Ok(())
    }
}

/// Whether it cannot be listed because of how much there is, all together or in one page.
pub fn is_too_much(error: &Error) -> bool {
    matches!(error, Error::Overfull(_) | Error::TooLarge(_))
}

/// Whether going on from where it was would fail for ever; a member that is busy, or away, forgets nothing by that.
fn makes_no_sense(error: &Error) -> bool {
    match error {
        Error::Garbage(_) | Error::TooLarge(_) | Error::Overfull(_) => true,
        Error::Refused { code, .. } => !matches!(code, 401 | 403 | 429 | 500..),
        _ => false,
    }
}

/// Between the half and the whole, so that watches of many sessions do not all end at once.
fn jittered(client: &Client, most: Duration) -> Duration {
    let mut byte = [0];
    client.env().random.fill(&mut byte);
    most / 2 + (most / 2) * u32::from(byte[0]) / 256
}
