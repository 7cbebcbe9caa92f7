//! What one workspace may hold of what all of them share, beside seats: open watches, connections, and the memory of
//! requests on their way in.
//!
//! Seats are divided by `fairness`, what is stored is bounded by the store. Nothing here costs a workspace anything that
//! holds nothing.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, OnceLock},
};

use machinery::status::{Reason, Status};
use parking_lot::Mutex;
use store::WorkspaceId;
use tokio::sync::Notify;

use crate::{
    hub::Hub,
    metrics::Limit,
    room::{Hold, Room},
    space::Space,
    user::{MASTERS, UNAUTHENTICATED, User},
};

/// Whoever holds connections may hold this many times those that are free; as with seats.
const FAIRNESS: usize = 8;
/// Of the memory for requests on their way in, a workspace gets this part.
const BODY_SHARES: usize = 4;
/// Smaller bodies are not counted: there are no more of them than seats.
const SMALL_BODY: usize = 64 * 1024;

/// Counts what is held, by holder.
pub struct Tally<K> {
    held: Mutex<HashMap<K, usize>>,
}

impl<K> Default for Tally<K> {
    fn default() -> Self {
        Self { held: Mutex::default() }
    }
}

/// Something held until this is dropped.
pub struct Share<K: Eq + Hash> {
    tally: Arc<Tally<K>>,
    whose: K,
}

impl<K: Eq + Hash + Clone> Tally<K> {
    /// One more, if `fits` says of what is held already that there may be.
    fn try_take(self: &Arc<Self>, whose: &K, fits: impl FnOnce(usize) -> bool) -> Option<Share<K>> {
        let mut held = self.held.lock();
        if !fits(held.get(whose).copied().unwrap_or(0)) {
            return None;
        }
        *held.entry(whose.clone()).or_insert(0) += 1;
        Some(Share { tally: self.clone(), whose: whose.clone() })
    }

    pub fn of(&self, whose: &K) -> usize {
        self.held.lock().get(whose).copied().unwrap_or(0)
    }

    /// Who holds most, first.
    pub fn highest(&self, count: usize) -> Vec<(K, usize)> {
        let mut all: Vec<(K, usize)> =
            self.held.lock().iter().map(|(whose, held)| (whose.clone(), *held)).collect();
        all.sort_by_key(|(_, held)| std::cmp::Reverse(*held));
        all.truncate(count);
        all
    }
}

impl<K: Eq + Hash> Drop for Share<K> {
    fn drop(&mut self) {
        let mut held = self.tally.held.lock();
        match held.get_mut(&self.whose) {
            Some(1) | None => drop(held.remove(&self.whose)),
            Some(more) => *more -= 1,
        }
    }
}

/// Who is answerable for a connection: the workspace whose service account it is, or somebody known by a certificate or
/// an issuer. Strangers share one account, so that nobody can use up that of somebody else.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Holder {
    Workspace(WorkspaceId),
    User(String),
    Strangers,
}

impl Holder {
    /// `space`: where the user was verified.
    pub fn of(user: &User, space: Option<&Space>) -> Holder {
        match space {
            Some(space) if User::service_account(&user.name).is_some() => {
                Holder::Workspace(space.id().clone())
            }
            _ if user.in_group(UNAUTHENTICATED) => Holder::Strangers,
            _ => Holder::User(user.name.clone()),
        }
    }
}

/// What is held now.
pub struct Shares {
    pub watches: Arc<Tally<WorkspaceId>>,
    connections: Arc<Tally<Holder>>,
    bodies: Arc<Room>,
}

impl Shares {
    pub fn new(max_request_bytes_inflight: usize) -> Shares {
        let bodies = Room::new(max_request_bytes_inflight, max_request_bytes_inflight / BODY_SHARES);
        Shares { watches: Arc::default(), connections: Arc::default(), bodies }
    }
}

/// A watch is about to begin.
pub fn hold_watch(hub: &Hub, space: &Space) -> Result<Share<WorkspaceId>, Status> {
    let most = hub.options.max_workspace_watches;
    let share = hub.shares.watches.try_take(space.id(), |held| most == 0 || held < most);
    share.ok_or_else(|| {
        hub.metrics.limit_reached(Limit::Watches);
        let message = format!("the workspace has {most} watches open, as many as it may; close some first");
        Status::new(Reason::TooManyRequests, message).retry_after(5)
    })
}

/// What became of a connection's first request.
enum Standing {
    /// It is a platform admin's, or there is no limit.
    Free,
    Held {
        _share: Share<Holder>,
    },
    Refused,
}

/// Whose a connection is, from its first request on.
#[derive(Default)]
pub struct Claim {
    standing: OnceLock<Standing>,
    /// The connection is to be closed.
    pub refused: Notify,
}

impl Claim {
    /// Counts the connection for whoever sent its first request. Platform admins are not counted.
    pub fn settle(&self, hub: &Hub, user: &User, space: Option<&Space>) -> Result<(), Status> {
        let standing = self.standing.get_or_init(|| {
            if user.in_group(MASTERS) || hub.options.max_connections == 0 {
                return Standing::Free;
            }
            let share = hold_connection(hub, &Holder::of(user, space));
            share.map_or(Standing::Refused, |_share| Standing::Held { _share })
        });
        if matches!(standing, Standing::Free | Standing::Held { .. }) {
            return Ok(());
        }
        hub.metrics.limit_reached(Limit::Connections);
        self.refused.notify_one();
        let message =
            "there are too many connections of this user or workspace; use fewer, or try again later";
        Err(Status::new(Reason::TooManyRequests, message).retry_after(5))
    }
}

fn hold_connection(hub: &Hub, holder: &Holder) -> Option<Share<Holder>> {
    let most = hub.options.max_connections;
    let open = usize::try_from(hub.metrics.connections.get()).unwrap_or(0);
    let free = most.saturating_sub(open);
    hub.shares.connections.try_take(holder, |held| held == 0 || held < FAIRNESS.saturating_mul(free))
}

/// The memory of one request's body, as it grows. To be kept until the request is answered.
#[derive(Default)]
pub struct BodyRoom(Option<Hold>);

impl BodyRoom {
    /// The body is so large now. Whoever finds no room is told to come back: if it waited with what it has, all could
    /// wait for each other.
    pub fn hold(&mut self, hub: &Hub, space: &Space, bytes: usize) -> Result<(), Status> {
        let held = self.0.as_ref().map_or(0, Hold::bytes);
        if bytes <= SMALL_BODY || bytes <= held || hub.options.max_request_bytes_inflight == 0 {
            return Ok(());
        }
        // In steps, so that a body that trickles in asks rarely.
        let wanted = bytes.next_multiple_of(SMALL_BODY);
        let fits = match &mut self.0 {
            Some(hold) => hold.try_grow(wanted - held),
            None => {
                self.0 = hub.shares.bodies.try_hold(&space.id().0, wanted);
                self.0.is_some()
            }
        };
        if fits {
            return Ok(());
        }
        hub.metrics.limit_reached(Limit::RequestBytes);
        let message = "too many large requests of this workspace are being received; try again later";
        Err(Status::new(Reason::TooManyRequests, message).retry_after(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_is_counted_until_it_is_let_go() {
        let tally = Arc::new(Tally::default());
        let mut shares = Vec::new();
        for (whose, fits) in [("a", true), ("a", true), ("a", false), ("b", true)] {
            let share = tally.try_take(&whose, |held| held < 2);
            assert_eq!(share.is_some(), fits, "{whose}");
            shares.extend(share);
        }
        assert_eq!(tally.highest(1), [("a", 2)]);
        shares.remove(0);
        assert_eq!(tally.of(&"a"), 1);
        shares.clear();
        assert!(tally.held.lock().is_empty(), "nothing is remembered of those who hold nothing");
    }
}
