//! Turns: one at a time charges the quotas of a namespace, or counts them.

use std::{collections::HashMap, sync::Arc, time::Duration};

use compact_str::CompactString;
use machinery::status::Status;
use parking_lot::Mutex;
use store::WorkspaceId;
use tokio::sync::{Mutex as Lane, OwnedMutexGuard};

use crate::{hub::Hub, space::Space};

/// As long as upstream waits.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// A namespace of a workspace.
pub type Place = (WorkspaceId, CompactString);

/// Whose turn it is, and who waits. Only namespaces where somebody does are in it.
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
    /// However long it takes.
    pub async fn take(&self, place: Place) -> Turn {
        let lane = self.lanes.lock().entry(place.clone()).or_default().clone();
        // Made before the wait: who gives up leaves nothing behind either.
        let mut turn = Turn { guard: None, place, lanes: self.lanes.clone() };
        turn.guard = Some(lane.lock_owned().await);
        turn
    }

    pub async fn take_in(&self, hub: &Hub, space: &Space, namespace: &str) -> Result<Turn, Status> {
        tokio::select! {
            turn = self.take((space.id().clone(), namespace.into())) => Ok(turn),
            () = hub.env.clock.sleep(PATIENCE) => Err(timed_out()),
        }
    }
}

/// As upstream says it.
pub fn timed_out() -> Status {
    Status::internal("resource quota evaluation timed out")
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
