//! All that was committed, in the hub and in members, in its order and with its time.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::Duration,
};

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

impl Note {
    /// For people, and to tell two runs apart.
    pub fn line(&self) -> String {
        match self {
            Note::Changed(side, event) => {
                let (space, key, revision) = (&event.workspace.0, &event.key, event.object().revision);
                format!("{side:?} {space} {key:?} {:?} {revision:?}", event.event_type())
            }
            Note::Begins(objects) => format!("the hub begins with {} objects", objects.len()),
            Note::ByHand(uid) => format!("{uid} is deleted by hand"),
        }
    }
}

pub struct History {
    began: Instant,
    notes: Mutex<Vec<(Duration, Note)>>,
    /// What users and faults did, for people.
    said: Mutex<Vec<String>>,
}

/// Follows one store until it is ended.
pub struct Recorder {
    end: watch::Sender<bool>,
    following: JoinHandle<()>,
}

impl History {
    pub fn new() -> Arc<History> {
        Arc::new(History { began: Instant::now(), notes: Mutex::default(), said: Mutex::default() })
    }

    pub fn now(&self) -> Duration {
        self.began.elapsed()
    }

    pub fn say(&self, what: impl std::fmt::Display) {
        self.said.lock().push(format!("{:?} {what}", self.now()));
    }

    pub fn said(&self) -> Vec<String> {
        self.said.lock().clone()
    }

    /// The same for what went the same way.
    pub fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.said().hash(&mut hasher);
        self.read(|notes| notes.iter().for_each(|(time, note)| (time, note.line()).hash(&mut hasher)));
        hasher.finish()
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
