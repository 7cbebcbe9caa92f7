//! Watching: every change of a span, exactly once, in order, from any revision the history still has.
//!
//! ```text
//!   Initial ──> Marked ──> Live ──> Over
//!   what is there   the bookmark      changes,      at the time limit, at shutdown,
//!   already         that ends it      bookmarks     or with ERROR 410
//! ```
//!
//! A watcher has no queue: it holds a place in the store's shared history and is pulled by its socket. One that
//! reads too slowly falls behind until that history is compacted, and is then told to list again.

use std::{collections::VecDeque, time::Duration};

use bytes::{Bytes, BytesMut};
use futures_util::stream;
use http::{Response, StatusCode};
use machinery::{EventType, Object, Revision, status::Status};
use serde_json::{Value, json};
use store::{ItemKey, Listing, Watch, WorkspaceId};

use crate::{
    body::{self, Body},
    context::Context,
    hub::{self, store_refusal},
    metrics::WatchMeasures,
    negotiate::Shape,
    options::{At, ListOptions},
    present::Presenter,
    read,
    selection::Selection,
    shares::{self, Share},
    space::{Change, Space},
    versions,
};

/// Encoded ahead of the socket at most this many lines.
const LINES_AHEAD: usize = 64;
/// What was there already is sent in pieces of about this size.
const INITIAL_CHUNK_BYTES: usize = 64 * 1024;
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(1800);

pub async fn watch(context: &Context) -> Result<Response<Body>, Status> {
    let presenter = context.presenter()?;
    let share = shares::hold_watch(&context.hub, &context.space)?;
    let options = ListOptions::read(&context.query, true)?;
    let mut selection = Selection::new(options.labels.clone(), options.fields.clone(), &context.resource)?;
    if !context.target.name.is_empty() {
        // The old path form `/watch/…/<name>`.
        selection = selection.named(&context.target.name);
    }
    if let At::NotOlderThan(revision) | At::Exact(revision) = options.at
        && context.is_foreign(revision)
    {
        return Ok(expired(store::Error::Expired { oldest: context.head() }));
    }
    let begins_with_all = options.send_initial_events == Some(true)
        || (options.send_initial_events.is_none() && matches!(options.at, At::MostRecent | At::Any));
    let warnings = if begins_with_all { context.sight()? } else { Vec::new() };
    let (initial, after) = match (options.send_initial_events, options.at) {
        (Some(true), At::NotOlderThan(revision)) | (Some(true), At::Exact(revision)) => {
            read::wait_for(context, revision).await?;
            start_with_all(context).await?
        }
        (Some(true), _) => start_with_all(context).await?,
        (Some(false), At::MostRecent | At::Any) => (None, context.head()),
        (None, At::MostRecent | At::Any) => start_with_all(context).await?,
        (_, At::NotOlderThan(revision) | At::Exact(revision)) => {
            read::wait_for(context, revision).await?;
            (None, revision)
        }
    };
    let feed = match context.watch(after) {
        Ok(feed) => feed,
        Err(error @ store::Error::Expired { .. }) => return Ok(expired(error)),
        Err(error) => return Err(store_refusal(error)),
    };
    let mut random = [0; 8];
    context.hub.env.random.fill(&mut random);
    // Spread over a minute and a half or so, so that clients that came together do not come back together.
    let spread = Duration::from_millis(u64::from_le_bytes(random) % 1_800_000);
    let clock = context.hub.env.clock.elapsed();
    let watcher = Watcher {
        space: context.space.clone(),
        feed,
        selection,
        presenter,
        initial: initial.map(|listing| Initial { listing, after: None }),
        namespace: Some(context.target.namespace.clone()).filter(|namespace| !namespace.is_empty()),
        mark_initial_end: options.send_initial_events == Some(true) && options.bookmarks,
        bookmarks: options.bookmarks,
        sent_to: after,
        lines: VecDeque::new(),
        columns_sent: false,
        over: false,
        deadline: clock + options.timeout.unwrap_or(DEFAULT_TIMEOUT + spread),
        next_bookmark: clock + context.hub.options.bookmark_every,
        hub: context.hub.clone(),
        duty: context.view.as_ref().and_then(|_| context.hub.store.duty()),
        _share: share,
        measures: context.hub.metrics.requests.watch(&context.about),
    };
    let lines = stream::unfold(watcher, |mut watcher| async move {
        let line = watcher.next().await?;
        Some((line, watcher))
    });
    let mut response = body::encoded(StatusCode::OK, Body::stream(lines));
    response.extensions_mut().insert(body::Endless);
    // Some proxies hold small answers back unless told that this one does not end.
    response.headers_mut().insert("x-accel-buffering", http::HeaderValue::from_static("no"));
    body::warn_once(&mut response, &warnings);
    Ok(response)
}

/// Told as an event, not as a refusal: clients list again at once instead of backing off.
fn expired(error: store::Error) -> Response<Body> {
    body::encoded(StatusCode::OK, error_line(&store_refusal(error)))
}

async fn start_with_all(context: &Context) -> Result<(Option<Listing>, Revision), Status> {
    let mut listing = context.list(None).map_err(store_refusal)?;
    let namespace = Some(context.target.namespace.as_str()).filter(|namespace| !namespace.is_empty());
    versions::bring_listing(context, &mut listing, namespace, None, None).await?;
    let revision = listing.revision;
    Ok((Some(listing), revision))
}

struct Initial {
    listing: Listing,
    after: Option<ItemKey>,
}

struct Watcher {
    _share: Share<WorkspaceId>,
    measures: WatchMeasures,
    hub: std::sync::Arc<crate::hub::Hub>,
    /// Of a watch of what members have: whether this server is still the one that sees it.
    duty: Option<tokio::sync::watch::Receiver<bool>>,
    space: Space,
    feed: Watch,
    selection: Selection,
    presenter: Presenter,
    initial: Option<Initial>,
    namespace: Option<String>,
    mark_initial_end: bool,
    bookmarks: bool,
    /// Everything up to here has been sent.
    sent_to: Revision,
    lines: VecDeque<Bytes>,
    columns_sent: bool,
    over: bool,
    deadline: Duration,
    next_bookmark: Duration,
}

impl Watcher {
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(line) = self.lines.pop_front() {
                return Some(line);
            }
            if self.over {
                return None;
            }
            if self.initial.is_some() {
                self.fill_initial();
                continue;
            }
            if self.hub.is_stopping() || self.duty.as_ref().is_some_and(|on_duty| !*on_duty.borrow()) {
                self.over = true;
                continue;
            }
            if self.fill_live().await {
                continue;
            }
            self.wait().await;
        }
    }

    /// Lines for what was there when the watch began, some at a time.
    fn fill_initial(&mut self) {
        let Some(mut initial) = self.initial.take() else { return };
        let mut last = None;
        // Many small lines cost more than one large piece of them.
        let mut chunk = BytesMut::new();
        let objects = initial.listing.iter(self.namespace.as_deref(), initial.after.as_ref());
        for (item, object) in objects {
            last = Some(item.clone());
            if self.selection.matches(object) {
                let with_columns = !std::mem::replace(&mut self.columns_sent, true);
                chunk.extend_from_slice(&self.presenter.event(EventType::Added, object, with_columns));
            }
            if chunk.len() >= INITIAL_CHUNK_BYTES {
                break;
            }
        }
        if !chunk.is_empty() {
            self.lines.push_back(chunk.freeze());
        }
        match last {
            Some(last) => {
                initial.after = Some(last);
                self.initial = Some(initial);
            }
            None if self.mark_initial_end => {
                let annotations = json!({"k8s.io/initial-events-end": "true"});
                self.push_bookmark(initial.listing.revision, Some(annotations));
            }
            None => {}
        }
    }

    /// Lines for what has happened since; false if there is nothing new.
    async fn fill_live(&mut self) -> bool {
        let batch = match self.feed.take(LINES_AHEAD) {
            Ok(batch) => batch,
            Err(error) => {
                self.push_error(&store_refusal(error));
                return true;
            }
        };
        for event in &batch.events {
            let mut change = self.space.change(event);
            if self.presenter.resource.custom().is_some() {
                // Boxed, so that no watcher keeps room for it while it waits.
                match Box::pin(self.bring(change)).await {
                    Ok(brought) => change = brought,
                    Err(status) => {
                        self.push_error(&status);
                        return true;
                    }
                }
            }
            let was = change.old.as_deref().is_some_and(|object| self.selection.matches(object));
            let is = change.new.as_deref().is_some_and(|object| self.selection.matches(object));
            match (was, is, &change.new, &change.old) {
                (false, true, Some(object), _) => self.push(EventType::Added, object),
                (true, true, Some(object), _) => self.push(EventType::Modified, object),
                (true, false, None, _) => self.push(EventType::Deleted, &change.last),
                // It left the selection: the watcher is told of the state it knew, at the revision of the change.
                (true, false, Some(_), Some(old)) => {
                    let left = old.with_revision(event.revision, EventType::Deleted);
                    self.push(EventType::Deleted, &left);
                }
                _ => {}
            }
        }
        self.sent_to = self.sent_to.max(batch.complete_to);
        self.measures.sent(self.lines.iter().map(Bytes::len));
        !self.lines.is_empty() || !batch.events.is_empty()
    }

    /// A change of custom objects, in the version that is watched.
    async fn bring(&self, change: Change) -> Result<Change, Status> {
        let resource = &self.presenter.resource;
        let given = [change.old, change.new, Some(change.last)];
        let there = given.map(|object| (object.is_some(), object));
        let objects = there.iter().filter_map(|(_, object)| object.clone()).collect();
        let mut brought =
            versions::bring_all(&self.hub, self.space.id(), resource, objects).await?.into_iter();
        let mut next = |is_there: bool| is_there.then(|| brought.next()).flatten();
        let [old, new, last] = there.map(|(is_there, _)| next(is_there));
        let last = last.ok_or_else(|| Status::internal("a conversion lost its object"))?;
        Ok(Change { old, new, last })
    }

    async fn wait(&mut self) {
        let clock = &self.hub.env.clock;
        let now = clock.elapsed();
        if now >= self.deadline {
            if self.bookmarks {
                self.push_bookmark(self.sent_to, None);
            }
            self.over = true;
            return;
        }
        if self.bookmarks && now >= self.next_bookmark {
            self.next_bookmark = now + self.hub.options.bookmark_every;
            self.push_bookmark(self.sent_to, None);
            return;
        }
        let until = if self.bookmarks { self.deadline.min(self.next_bookmark) } else { self.deadline };
        let timer = clock.sleep(until.saturating_sub(now));
        let mut stopping = self.hub.stopping.clone();
        let mut duty = self.duty.clone();
        let off_duty = async {
            match &mut duty {
                Some(duty) => drop(duty.wait_for(|on_duty| !*on_duty).await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.feed.changed() => {}
            () = timer => {}
            () = hub::stopped(&mut stopping) => {}
            () = off_duty => {}
        }
    }

    fn push(&mut self, event: EventType, object: &Object) {
        let with_columns = !std::mem::replace(&mut self.columns_sent, true);
        self.lines.push_back(self.presenter.event(event, object, with_columns));
    }

    fn push_bookmark(&mut self, revision: Revision, annotations: Option<Value>) {
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if let Some(annotations) = annotations {
            metadata["annotations"] = annotations;
        }
        let object = match self.presenter.shape {
            Shape::Object => {
                let resource = &self.presenter.resource;
                json!({"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata})
            }
            Shape::Partial => {
                json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})
            }
            Shape::Table => json!({
                "kind": "Table", "apiVersion": "meta.k8s.io/v1",
                "metadata": {"resourceVersion": revision.to_string()},
                "columnDefinitions": null,
                "rows": [{"cells": [], "object": {
                    "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
                }}],
            }),
        };
        let line = format!("{{\"type\":\"BOOKMARK\",\"object\":{object}}}\n");
        self.lines.push_back(line.into());
    }

    fn push_error(&mut self, status: &Status) {
        self.lines.push_back(error_line(status));
        self.over = true;
    }
}

fn error_line(status: &Status) -> Bytes {
    format!("{{\"type\":\"ERROR\",\"object\":{}}}\n", status.to_json()).into()
}
