//! Lanes: those who wait to be charged in a namespace, and who serves them.
//!
//! Whoever comes first starts a task that serves the lane until nobody waits in it. It is no request's own, so that a
//! client who goes away takes nothing with it: if its write waits still, it leaves the lane and is not made; if it is
//! being committed, that goes on, as every commit does.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
};

use machinery::status::Status;
use parking_lot::Mutex;
use prometheus_client::metrics::gauge::Gauge;
use store::{Change, Commit, Key, Write};
use tokio::sync::oneshot;

use super::{
    Charge,
    batch::{self, Outcome, Waiting},
    turns::{PATIENCE, Place, timed_out},
};
use crate::{context::Context, hub::Hub, space::Space};

/// Every store takes so many writes in one commit, and so many bytes.
const MOST_WRITES: usize = 48;
const MOST_BYTES: usize = 512 << 10;

/// Lanes in which somebody waits or is being served; no others.
#[derive(Clone, Default)]
pub struct Lanes(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    lanes: HashMap<Place, VecDeque<(u64, Waiting)>>,
    /// The number of whoever comes next.
    next: u64,
}

/// A place in a lane, left when it is dropped.
struct Ticket {
    lanes: Lanes,
    place: Place,
    number: u64,
    waiting: Gauge,
}

/// Commits a write and what it is charged with, together with others who wait in the namespace.
pub async fn commit(context: &Context, charge: Charge, commit: Commit) -> Outcome {
    let hub = &context.hub;
    let place: Place = (context.space.id().clone(), context.target.namespace.as_str().into());
    let (reply, mut answer) = oneshot::channel();
    let waiting = Waiting { charge, commit, reply };
    let (ticket, serving) = hub.quotas.lanes.enter(hub, place, waiting);
    if let Some(serving) = serving {
        hub.env.tasks.spawn(Box::pin(serve(hub.clone(), context.space.clone(), serving)));
    }
    let answered = tokio::select! {
        biased;
        answered = &mut answer => answered,
        () = hub.env.clock.sleep(PATIENCE) => match ticket.leave() {
            true => return Outcome::Refused(timed_out()),
            // It is being committed.
            false => answer.await,
        },
    };
    answered.unwrap_or_else(|_| Outcome::Refused(Status::internal("charging the quotas came to no end")))
}

impl Lanes {
    /// Waits in the lane of `place`; whoever is the first serves it.
    fn enter(&self, hub: &Hub, place: Place, waiting: Waiting) -> (Ticket, Option<Serving>) {
        let mut inner = self.0.lock();
        let number = inner.next;
        inner.next += 1;
        let serving = !inner.lanes.contains_key(&place);
        inner.lanes.entry(place.clone()).or_default().push_back((number, waiting));
        let gauge = hub.metrics.quota.waiting.clone();
        gauge.inc();
        let ticket = Ticket { lanes: self.clone(), place: place.clone(), number, waiting: gauge.clone() };
        let serving = serving.then(|| Serving { lanes: self.clone(), place, waiting: gauge, is_over: false });
        (ticket, serving)
    }
}

impl Ticket {
    /// False: it is not in the lane any more, because it is being served.
    fn leave(&self) -> bool {
        let mut inner = self.lanes.0.lock();
        let Some(lane) = inner.lanes.get_mut(&self.place) else { return false };
        let Some(at) = lane.iter().position(|(number, _)| *number == self.number) else { return false };
        let left = lane.remove(at);
        drop(inner);
        self.waiting.dec();
        left.is_some()
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.leave();
    }
}

/// The duty to serve a lane. If it is dropped before nobody waits any more, those who do are told.
struct Serving {
    lanes: Lanes,
    place: Place,
    waiting: Gauge,
    is_over: bool,
}

async fn serve(hub: Arc<Hub>, space: Space, mut serving: Serving) {
    loop {
        let _turn = hub.quotas.turns.take(serving.place.clone()).await;
        let batch = serving.next();
        if batch.is_empty() {
            return;
        }
        batch::write(&hub, &space, &serving.place.1, batch).await;
    }
}

impl Serving {
    /// Those who are served next, at least one if anybody waits. If nobody does, whoever comes next serves.
    fn next(&mut self) -> Vec<Waiting> {
        let mut inner = self.lanes.0.lock();
        let batch = inner.lanes.get_mut(&self.place).map(take_some).unwrap_or_default();
        if batch.is_empty() {
            inner.lanes.remove(&self.place);
            self.is_over = true;
        }
        self.waiting.dec_by(batch.len() as i64);
        batch
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        if !self.is_over {
            let left = self.lanes.0.lock().lanes.remove(&self.place);
            self.waiting.dec_by(left.map_or(0, |lane| lane.len()) as i64);
        }
    }
}

/// As many from the front as fit into one commit, in which no key may be twice.
fn take_some(lane: &mut VecDeque<(u64, Waiting)>) -> Vec<Waiting> {
    let mut batch = Vec::new();
    let mut keys: HashSet<Key> = HashSet::new();
    let mut bytes = 0;
    while let Some((_, next)) = lane.front() {
        let writes = &next.commit.writes;
        bytes += writes.iter().map(size_of).sum::<usize>();
        let fits = keys.len() + writes.len() + next.charge.seen.len() <= MOST_WRITES && bytes <= MOST_BYTES;
        let is_twice = writes.iter().any(|write| keys.contains(&write.key));
        if !batch.is_empty() && (!fits || is_twice) {
            break;
        }
        keys.extend(writes.iter().map(|write| write.key.clone()));
        batch.extend(lane.pop_front().map(|(_, waiting)| waiting));
    }
    batch
}

fn size_of(write: &Write) -> usize {
    match &write.change {
        Change::Put { draft, .. } => draft.body().len(),
        Change::Remove => 0,
    }
}
