//! A place that events go to: a bounded queue, and a loop behind it that writes or sends.

use std::sync::Arc;

use bytes::Bytes;
use prometheus_client::metrics::counter::Counter;
use tokio::sync::{mpsc, oneshot};

use crate::room::{Hold, Room};

/// Events that wait for an outlet hold at most this many bytes, however many they are.
const MAX_HELD_BYTES: usize = 64 << 20;
/// So much of that is for the events of one workspace: none of them makes those of others be dropped.
const MAX_SHARE_BYTES: usize = MAX_HELD_BYTES / 4;

/// Whether a request waits for its events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// No: they are collected; what finds no room is dropped, and counted.
    Batch,
    /// Yes.
    Blocking,
    /// Yes, and it is refused if that it came cannot be recorded.
    BlockingStrict,
}

/// An event on its way, or somebody who wants all before it to be out.
pub enum Item {
    Event(Waiting),
    Flush(oneshot::Sender<()>),
}

/// An event that is not out yet.
pub struct Waiting {
    pub event: Bytes,
    /// Who waits for it.
    done: Option<oneshot::Sender<bool>>,
    _hold: Hold,
}

/// A way past the queue, for an outlet that is quick more often than not.
pub trait Shortcut: Send + Sync {
    /// Whether the event is out; `None`: it cannot be put out at once, and has to be handed over.
    fn put(&self, event: &Bytes) -> Option<bool>;
}

/// The near end, for requests.
pub struct Outlet {
    mode: Mode,
    queue: mpsc::Sender<Item>,
    shortcut: Option<Box<dyn Shortcut>>,
    room: Arc<Room>,
    errors: Counter,
}

/// The far end, for the loop that empties it.
pub struct Intake {
    pub queue: mpsc::Receiver<Item>,
    errors: Counter,
}

/// `errors` counts events that are lost.
pub fn outlet(mode: Mode, room: usize, errors: Counter) -> (Outlet, Intake) {
    let (sender, queue) = mpsc::channel(room.max(1));
    let room = Room::new(MAX_HELD_BYTES, MAX_SHARE_BYTES);
    let near = Outlet { mode, queue: sender, shortcut: None, room, errors: errors.clone() };
    (near, Intake { queue, errors })
}

impl Outlet {
    /// Events that are waited for go this way when they can.
    pub fn with_shortcut(self, shortcut: Box<dyn Shortcut>) -> Outlet {
        Outlet { shortcut: Some(shortcut), ..self }
    }

    /// Hands an event of a workspace over, and waits for it to be out if the mode says so. False: the request must be
    /// refused if it has only just come.
    pub async fn tell(&self, workspace: &str, event: Bytes) -> bool {
        if self.mode == Mode::Batch {
            self.tell_now(workspace, event);
            return true;
        }
        if let Some(is_out) = self.shortcut.as_ref().and_then(|shortcut| shortcut.put(&event)) {
            if !is_out {
                self.errors.inc();
            }
            return is_out || self.mode != Mode::BlockingStrict;
        }
        let (done, outcome) = oneshot::channel();
        let hold = self.room.hold_anyway(workspace, event.len());
        let waiting = Waiting { event, done: Some(done), _hold: hold };
        if self.queue.send(Item::Event(waiting)).await.is_err() {
            self.errors.inc();
            return self.mode != Mode::BlockingStrict;
        }
        // An error means that the loop ended with the event in its hands.
        outcome.await.unwrap_or(false) || self.mode != Mode::BlockingStrict
    }

    /// Hands an event over without waiting, for those who cannot.
    pub fn tell_now(&self, workspace: &str, event: Bytes) {
        let hold = self.room.try_hold(workspace, event.len());
        let item = hold.map(|hold| Item::Event(Waiting { event, done: None, _hold: hold }));
        if item.is_none_or(|item| self.queue.try_send(item).is_err()) {
            self.errors.inc();
        }
    }

    /// Waits until everything handed over before is out, or given up.
    pub async fn flush(&self) {
        let (done, outcome) = oneshot::channel();
        if self.queue.send(Item::Flush(done)).await.is_ok() {
            // An error means that the loop ended, after which nothing is left.
            let _ = outcome.await;
        }
    }
}

impl Intake {
    pub fn account(&self) -> Account {
        Account { errors: self.errors.clone() }
    }
}

/// What is to be said when an event is out, or lost.
#[derive(Clone)]
pub struct Account {
    errors: Counter,
}

impl Account {
    pub fn settle(&self, waiting: Waiting, is_out: bool) {
        if !is_out {
            self.errors.inc();
        }
        if let Some(done) = waiting.done {
            // Its request may have been given up.
            let _ = done.send(is_out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_full_queue_drops_and_counts_in_batch_mode() {
        let errors = Counter::default();
        let (near, mut far) = outlet(Mode::Batch, 2, errors.clone());
        for _ in 0..5 {
            assert!(near.tell("w", Bytes::from_static(b"{}")).await);
        }
        assert_eq!(errors.get(), 3);
        far.queue.recv().await.unwrap();
        assert!(near.tell("w", Bytes::from_static(b"{}")).await);
        assert_eq!(errors.get(), 3);
    }

    #[tokio::test]
    async fn waiting_events_of_a_workspace_hold_no_more_than_its_share() {
        let errors = Counter::default();
        let (near, mut far) = outlet(Mode::Batch, 1000, errors.clone());
        let large = Bytes::from(vec![b' '; MAX_SHARE_BYTES / 2]);
        for _ in 0..6 {
            near.tell_now("loud", large.clone());
        }
        assert_eq!(errors.get(), 4);
        // The others have room, up to what there is for all
        for workspace in ["a", "b", "c", "d"] {
            near.tell_now(workspace, large.clone());
            near.tell_now(workspace, large.clone());
        }
        assert_eq!(errors.get(), 6);
        let account = far.account();
        let Some(Item::Event(waiting)) = far.queue.recv().await else { panic!("no event") };
        account.settle(waiting, true);
        near.tell_now("d", large);
        assert_eq!(errors.get(), 6);
    }

    #[tokio::test]
    async fn only_the_strict_mode_refuses_when_an_event_is_lost() {
        for (mode, expected) in [(Mode::Batch, true), (Mode::Blocking, true), (Mode::BlockingStrict, false)] {
            let (near, far) = outlet(mode, 1, Counter::default());
            drop(far);
            assert_eq!(near.tell("w", Bytes::from_static(b"{}")).await, expected, "{mode:?}");
        }
    }
}
