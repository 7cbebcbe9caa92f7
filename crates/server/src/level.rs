//! Waits until this server shows what any server on the same store has acknowledged.
//!
//! Such a wait is part of a request and has its limit. Before it is known who asks there is no seat to wait on, so only
//! so many wait at once; the others get the answer that can be given without.

use std::time::Duration;

use machinery::status::Status;
use store::WorkspaceId;
use tokio::sync::Semaphore;

use crate::{
    hub::{Hub, root_id, store_refusal},
    options::Query,
    request::{ResourceTarget, Verb},
    service,
    space::{self, Space},
};

/// Who wait at once before they are known.
pub const STRANGERS: usize = 64;

/// Room for those who wait before they are known.
pub struct Strangers(Semaphore);

impl Default for Strangers {
    fn default() -> Strangers {
        Strangers(Semaphore::new(STRANGERS))
    }
}

/// Whether this server may show more of `workspace` after this wait than it did before.
pub async fn for_stranger(hub: &Hub, workspace: &WorkspaceId) -> Result<bool, Status> {
    let Some(level) = hub.store.level(workspace) else { return Ok(false) };
    let Ok(_turn) = hub.strangers.0.try_acquire() else { return Ok(false) };
    let wait = async { level.await.map_err(store_refusal) };
    within(hub, hub.options.request_timeout, wait).await.map(|()| true)
}

/// The workspace that is called as `space` is, when this server shows what `target` of it must rest on: that one, another
/// that was made in its place, or none. `waited`: so much of the request's time is gone.
pub async fn found_again(
    hub: &Hub,
    space: &Space,
    target: &ResourceTarget,
    query: &Query,
    waited: Duration,
) -> Result<Result<Space, Status>, Status> {
    let level = must_be_recent(target, query).then(|| hub.store.level(space.id())).flatten();
    let Some(level) = level else { return Ok(Ok(space.clone())) };
    let most = hub.options.request_timeout;
    let asked = match target.verb {
        Verb::Watch => None,
        // One that cannot be understood is refused where the request is carried out.
        _ => query.timeout(most).ok().flatten(),
    };
    let wait = async {
        level.await.map_err(store_refusal)?;
        if *space.id() == space::nowhere() {
            return Ok(Ok(space.clone()));
        }
        // It may be gone, and root, which says so, be behind.
        let is_empty = hub.store.head(space.id()) == hub.store.head(&space::nowhere());
        if let Some(level) = is_empty.then(|| hub.store.level(&root_id())).flatten() {
            level.await.map_err(store_refusal)?;
        }
        Ok(hub.find_space(space.name()).await)
    };
    within(hub, asked.unwrap_or(most).saturating_sub(waited), wait).await
}

async fn within<T>(
    hub: &Hub,
    limit: Duration,
    work: impl Future<Output = Result<T, Status>>,
) -> Result<T, Status> {
    tokio::select! {
        biased;
        done = work => done,
        () = hub.env.clock.sleep(limit) => Err(service::timed_out()),
    }
}

/// Whether an answer must rest on everything that was acknowledged before, by whichever server: that of a write, and of a
/// read that names no revision.
fn must_be_recent(target: &ResourceTarget, query: &Query) -> bool {
    let names_revision = query.get("resourceVersion").is_some_and(|revision| !revision.is_empty());
    let goes_on = query.get("continue").is_some_and(|token| !token.is_empty());
    target.verb.is_write() || !(names_revision || goes_on)
}
