//! All that was committed, in the hub and in members, in its order and with its time.

use std::{sync::Arc, time::Duration};

use machinery::Object;
use parking_lot::Mutex;
use store::{Event, Feed, FeedItem, Key};
use tokio::{sync::watch, task::JoinHandle, time::Instant};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Hub,
    Member(&'static str),
}

pub enum Note {
    Changed(Side, Arc<Event>),
    /// A hub was started, and finds this.
    Begins(Vec<(Key, Arc<Object>)>),
    /// Somebody deletes the object with this UID in a member.
    ByHand(String),
}

pub struct History {
    began: Instant,
    notes: Mutex<Vec<(Duration, Note)>>,
}

/// Follows one store until it is ended.
pub struct Recorder {
    end: watch::Sender<bool>,
    following: JoinHandle<()>,
}

impl History {
    pub fn new() -> Arc<History> {
        Arc::new(History { began: Instant::now(), notes: Mutex::default() })
    }

    pub fn now(&self) -> Duration {
        self.began.elapsed()
    }

    pub fn note(&self, note: Note) {
        self.notes.lock().push((self.began.elapsed(), note));
    }

    pub fn len(&self) -> usize {
        self.notes.lock().len()
    }

    pub fn read<T>(&self, read: impl FnOnce(&[(Duration, Note)]) -> T) -> T {
        read(&self.notes.lock())
    }

    pub fn follow(self: &Arc<Self>, mut feed: Feed, side: Side) -> Recorder {
        let (end, mut ended) = watch::channel(false);
        let history = self.clone();
        let following = tokio::spawn(async move {
            loop {
                tokio::select! {
                    item = feed.next() => history.take(side, item),
                    _ = ended.wait_for(|ended| *ended) => break,
                }
            }
            while let Some(item) = feed.try_next() {
                history.take(side, item);
            }
        });
        Recorder { end, following }
    }

    fn take(&self, side: Side, item: FeedItem) {
        match item {
            FeedItem::Event(event) => self.note(Note::Changed(side, event)),
            FeedItem::WorkspaceRemoved(_) => {}
            FeedItem::Lagged => panic!("the recorder of {side:?} has missed something"),
        }
    }
}

impl Recorder {
    /// With all that was committed until now.
    pub async fn end(self) {
        self.end.send_replace(true);
        // It panics only if it has said so.
        let _ = self.following.await;
    }
}
