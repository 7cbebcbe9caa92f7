//! Turns: one at a time charges the quotas of a namespace.

use std::{collections::HashMap, sync::Arc, time::Duration};

use compact_str::CompactString;
use machinery::status::Status;
use parking_lot::Mutex;
use store::WorkspaceId;
use tokio::sync::{Mutex as Lane, OwnedMutexGuard};

use crate::{context::Context, hub::Hub, space::Space};

/// As long as upstream waits.
const PATIENCE: Duration = Duration::from_secs(10);

type Place = (WorkspaceId, CompactString);

/// Who is charging, and who waits. Only namespaces where somebody does are in it.
#[derive(Default)]
pub struct Turns {
    lanes: Arc<Mutex<HashMap<Place, Arc<Lane<()>>>>>,
}

/// The right to charge the quotas of a namespace, until it is dropped.
pub struct Turn {
    guard: Option<OwnedMutexGuard<()>>,
    place: Place,
    lanes: Arc<Mutex<HashMap<Place, Arc<Lane<()>>>>>,
}

impl Turns {
    /// The turn of a request, in the namespace it is about.
    pub async fn take(&self, context: &Context) -> Result<Turn, Status> {
        self.take_in(&context.hub, &context.space, &context.target.namespace).await
    }

    pub async fn take_in(&self, hub: &Hub, space: &Space, namespace: &str) -> Result<Turn, Status> {
        let place: Place = (space.id().clone(), namespace.into());
        let lane = self.lanes.lock().entry(place.clone()).or_default().clone();
        // Made before the wait: who gives up leaves nothing behind either.
        let mut turn = Turn { guard: None, place, lanes: self.lanes.clone() };
        turn.guard = tokio::select! {
            guard = lane.lock_owned() => Some(guard),
            () = hub.env.clock.sleep(PATIENCE) => None,
        };
        match turn.guard {
            Some(_) => Ok(turn),
            None => Err(Status::internal("resource quota evaluation timed out")),
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.guard = None;
        let mut lanes = self.lanes.lock();
        // Everybody who waits or holds it has a share of their own.
        if lanes.get(&self.place).is_some_and(|lane| Arc::strong_count(lane) == 1) {
            lanes.remove(&self.place);
        }
    }
}
