//! A place that events go to: a bounded queue, and a loop behind it that writes or sends.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use bytes::Bytes;
use prometheus_client::metrics::counter::Counter;
use tokio::sync::{mpsc, oneshot};

/// Events that wait for an outlet hold at most this many bytes, however many they are.
const MAX_HELD_BYTES: usize = 64 << 20;

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
    Event { event: Bytes, done: Option<oneshot::Sender<bool>> },
    Flush(oneshot::Sender<()>),
}

/// The near end, for requests.
pub struct Outlet {
    mode: Mode,
    queue: mpsc::Sender<Item>,
    held: Arc<AtomicUsize>,
    errors: Counter,
}

/// The far end, for the loop that empties it.
pub struct Intake {
    pub queue: mpsc::Receiver<Item>,
    held: Arc<AtomicUsize>,
    errors: Counter,
}

/// `errors` counts events that are lost.
pub fn outlet(mode: Mode, room: usize, errors: Counter) -> (Outlet, Intake) {
    let (sender, queue) = mpsc::channel(room.max(1));
    let held = Arc::new(AtomicUsize::new(0));
    let near = Outlet { mode, queue: sender, held: held.clone(), errors: errors.clone() };
    (near, Intake { queue, held, errors })
}

impl Outlet {
    /// Hands an event over, and waits for it to be out if the mode says so. False: the request must be refused if it
    /// has only just come.
    pub async fn tell(&self, event: Bytes) -> bool {
        if self.mode == Mode::Batch {
            self.tell_now(event);
            return true;
        }
        let (done, outcome) = oneshot::channel();
        self.held.fetch_add(event.len(), Ordering::Relaxed);
        if self.queue.send(Item::Event { event, done: Some(done) }).await.is_err() {
            self.errors.inc();
            return self.mode != Mode::BlockingStrict;
        }
        // An error means that the loop ended with the event in its hands.
        outcome.await.unwrap_or(false) || self.mode != Mode::BlockingStrict
    }

    /// Hands an event over without waiting, for those who cannot.
    pub fn tell_now(&self, event: Bytes) {
        let len = event.len();
        if self.held.fetch_add(len, Ordering::Relaxed) + len > MAX_HELD_BYTES
            || self.queue.try_send(Item::Event { event, done: None }).is_err()
        {
            self.held.fetch_sub(len, Ordering::Relaxed);
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
        Account { held: self.held.clone(), errors: self.errors.clone() }
    }
}

/// What is to be said when an event is out, or lost.
#[derive(Clone)]
pub struct Account {
    held: Arc<AtomicUsize>,
    errors: Counter,
}

impl Account {
    pub fn settle(&self, event: &Bytes, done: Option<oneshot::Sender<bool>>, is_out: bool) {
        self.held.fetch_sub(event.len(), Ordering::Relaxed);
        if !is_out {
            self.errors.inc();
        }
        if let Some(done) = done {
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
            assert!(near.tell(Bytes::from_static(b"{}")).await);
        }
        assert_eq!(errors.get(), 3);
        far.queue.recv().await.unwrap();
        assert!(near.tell(Bytes::from_static(b"{}")).await);
        assert_eq!(errors.get(), 3);
    }

    #[tokio::test]
    async fn waiting_events_hold_a_bounded_number_of_bytes() {
        let errors = Counter::default();
        let (near, mut far) = outlet(Mode::Batch, 1000, errors.clone());
        let large = Bytes::from(vec![b' '; MAX_HELD_BYTES / 4]);
        for _ in 0..6 {
            near.tell_now(large.clone());
        }
        assert_eq!(errors.get(), 2);
        let account = far.account();
        let Some(Item::Event { event, done }) = far.queue.recv().await else { panic!("no event") };
        account.settle(&event, done, true);
        near.tell_now(large);
        assert_eq!(errors.get(), 2);
    }

    #[tokio::test]
    async fn only_the_strict_mode_refuses_when_an_event_is_lost() {
        for (mode, expected) in [(Mode::Batch, true), (Mode::Blocking, true), (Mode::BlockingStrict, false)] {
            let (near, far) = outlet(mode, 1, Counter::default());
            drop(far);
            assert_eq!(near.tell(Bytes::from_static(b"{}")).await, expected, "{mode:?}");
        }
    }
}
