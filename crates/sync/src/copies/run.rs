//! Runs the errands of a session while its member can be used.

use std::{convert::Infallible, sync::Arc, time::Duration};

use env::BoxFuture;
use futures_util::{StreamExt, stream::FuturesUnordered};

use super::{
    seen::Type,
    sink::CopySink,
    work::{Errand, Outcome},
};
use crate::{
    client::Client,
    reflect::{Reflector, Source, WHOLE},
    session::{Session, closed, opened},
};

/// Requests to one member at the same time.
const AT_ONCE: usize = 16;
/// Before a kind is listed again that the member does not let be listed, or does not have.
const REFUSED_PAUSE: Duration = Duration::from_secs(30);

impl Session {
    pub async fn run_copies(self: &Arc<Self>, client: &Client) -> Infallible {
        let mut begun = self.shared.begun.subscribe();
        // Until every Assignment was looked at, nobody knows what is still in a namespace.
        if begun.wait_for(|begun| *begun).await.is_err() {
            return std::future::pending().await;
        }
        self.copies.begin();
        let clock = self.shared.hub.env.clock.clone();
        let mut gate = self.gate.subscribe();
        let mut is_open = false;
        let mut streams: FuturesUnordered<BoxFuture<'_, Infallible>> = FuturesUnordered::new();
        let mut under_way: FuturesUnordered<BoxFuture<'_, (Errand, Outcome)>> = FuturesUnordered::new();
        let mut shown = Shown::new(self);
        loop {
            for ty in self.copies.unfollowed() {
                streams.push(Box::pin(self.follow_copies(client, ty)));
            }
            let was_open = std::mem::replace(&mut is_open, *gate.borrow_and_update());
            match (was_open, is_open) {
                (false, true) => self.copies.resume(),
                // What was sent may have arrived; it is looked at when the member is back.
                (true, false) => under_way.clear(),
                _ => {}
            }
            while is_open && under_way.len() < AT_ONCE {
                let Some(taken) = self.copies.work.take(clock.elapsed()) else { break };
                under_way.push(Box::pin(self.run_errand(client, taken)));
            }
            shown.update();
            let due = self.copies.work.next_due().filter(|_| is_open);
            let sleep = clock.sleep(due.map_or(REFUSED_PAUSE, |due| due.saturating_sub(clock.elapsed())));
            tokio::select! {
                Some((errand, outcome)) = under_way.next(), if !under_way.is_empty() => {
                    self.copies.work.finish(&errand, outcome, clock.elapsed());
                }
                Some(never) = streams.next(), if !streams.is_empty() => match never {},
                changed = gate.changed() => {
                    if changed.is_err() {
                        return std::future::pending().await;
                    }
                }
                () = self.copies.work.wake.notified() => {}
                () = sleep, if due.is_some() && under_way.len() < AT_ONCE => {}
            }
        }
    }

    /// Keeps what is seen of one kind level.
    async fn follow_copies(self: &Arc<Self>, client: &Client, ty: Type) -> Infallible {
        let source = Source::new(ty.selected(), WHOLE);
        let sink = CopySink { session: self.clone(), ty: ty.clone() };
        let mut reflector = Reflector::new(source, sink, self.room.clone());
        let mut gate = self.gate.subscribe();
        loop {
            opened(&mut gate).await;
            let metrics = &self.shared.hub.metrics.members;
            let error = tokio::select! {
                error = reflector.run(client, &self.shared.options, metrics) => error,
                () = closed(&mut gate) => continue,
            };
            CopySink::failed(&self.copies, &ty);
            match error.code() {
                Some(403..=405) => {
                    tracing::info!(cluster = %self.name(), kind = %ty.plural, %error, "copies cannot be watched");
                    client.env().clock.sleep(REFUSED_PAUSE).await;
                }
                _ => self.recover(client, &error).await,
            }
        }
    }
}

/// This session's part of what metrics show of all.
struct Shown<'a> {
    session: &'a Session,
    queue: i64,
    copies: i64,
}

impl<'a> Shown<'a> {
    fn new(session: &'a Session) -> Shown<'a> {
        Shown { session, queue: 0, copies: 0 }
    }

    fn update(&mut self) {
        let copies = &self.session.copies;
        let metrics = &self.session.shared.hub.metrics.copies;
        let (queue, there) = (copies.work.len() as i64, copies.state.lock().records.len() as i64);
        metrics.queue.inc_by(queue - std::mem::replace(&mut self.queue, queue));
        metrics.copies.inc_by(there - std::mem::replace(&mut self.copies, there));
    }
}

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        let metrics = &self.session.shared.hub.metrics.copies;
        metrics.queue.dec_by(self.queue);
        metrics.copies.dec_by(self.copies);
    }
}
