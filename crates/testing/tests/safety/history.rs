//! All that was committed, in the hub and in members, in its order and with its time.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
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
    /// The hub that is started next has what it had long ago.
    Restored,
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
            Note::Restored => "an older backup is restored".to_owned(),
            Note::ByHand(uid) => format!("{uid} is deleted by hand"),
        }
    }
}

pub struct History {
    began: Instant,
    notes: Mutex<Vec<(Duration, Note)>>,
    /// What users and faults did, for people.
    said: Mutex<Vec<String>>,
    /// What is not among the notes, and should be: whoever judges by them judges wrongly.
    missed: Mutex<Vec<String>>,
}

/// Follows one store until it is ended.
pub struct Recorder {
    end: watch::Sender<bool>,
    following: JoinHandle<()>,
}

impl History {
    pub fn new() -> Arc<History> {
        Arc::new(History {
            began: Instant::now(),
            notes: Mutex::default(),
            said: Mutex::default(),
            missed: Mutex::default(),
        })
    }

    /// Fails if there is anything that was committed and is not among the notes.
    pub fn is_whole(&self) -> Result<()> {
        let missed = self.missed.lock();
        ensure!(missed.is_empty(), "not all was recorded, which proves nothing:\n  {}", missed.join("\n  "));
        Ok(())
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
        let following = Following { history: self.clone(), side, is_done: false };
        let following = tokio::spawn(async move {
            loop {
                tokio::select! {
                    item = feed.next() => following.take(item),
                    _ = ended.wait_for(|ended| *ended) => break,
                }
            }
            while let Some(item) = feed.try_next() {
                following.take(item);
            }
            following.done();
        });
        Recorder { end, following }
    }
}

/// Of a recorder at its work.
struct Following {
    history: Arc<History>,
    side: Side,
    is_done: bool,
}

impl Following {
    fn take(&self, item: FeedItem) {
        match item {
            FeedItem::Event(event) => self.history.note(Note::Changed(self.side, event)),
            FeedItem::WorkspaceRemoved(_) => {}
            FeedItem::Lagged => self.miss("was too slow"),
        }
    }

    fn done(mut self) {
        self.is_done = true;
    }

    fn miss(&self, why: &str) {
        let line = format!("{:?} the recorder of {:?} {why}", self.history.now(), self.side);
        self.history.missed.lock().push(line);
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        // It panicked, or nobody waited for it.
        if !self.is_done {
            self.miss("ended before it was told to");
        }
    }
}

impl Recorder {
    /// With all that was committed until now.
    pub async fn end(self) -> Result<()> {
        self.end.send_replace(true);
        self.following.await.context("a recorder")
    }
}

#[cfg(test)]
mod tests {
    use store::{
        Change, Commit, Expect, Store, WorkspaceId, Write, live::Options, memory::MemoryStore, suite::draft,
    };

    use super::*;

    fn write(store: &MemoryStore, name: &str) {
        let change = Change::Put { draft: draft(name, "1"), expires: None };
        let key = Key::new("", "things", "", name);
        let commit =
            Commit { guards: Vec::new(), writes: vec![Write { key, expect: Expect::Anything, change }] };
        store.commit_now(&WorkspaceId("it".into()), &commit).expect("it is written");
    }

    #[tokio::test]
    async fn what_was_written_is_noted_until_the_end() {
        let (history, store) = (History::new(), MemoryStore::new());
        let recorder = history.follow(store.feed(), Side::Hub);
        write(&store, "one");
        recorder.end().await.expect("it ends");
        assert_eq!(history.len(), 1);
        history.is_whole().expect("nothing is missing");
    }

    #[tokio::test]
    async fn a_gap_is_not_taken_for_silence() {
        let history = History::new();
        let store = MemoryStore::with_options(Options { ring_bytes: 1 << 10, ..Options::default() });
        let recorder = history.follow(store.feed(), Side::Hub);
        // Nobody reads meanwhile: there is one thread.
        (0..100).for_each(|number| write(&store, &format!("n{number}")));
        recorder.end().await.expect("it ends");
        assert!(history.len() < 100);
        history.is_whole().expect_err("something is missing");
    }

    #[tokio::test]
    async fn a_recorder_that_dies_is_not_taken_for_silence() {
        let history = History::new();
        let recorder = history.follow(MemoryStore::new().feed(), Side::Member("a"));
        tokio::task::yield_now().await;
        recorder.following.abort();
        recorder.end().await.expect_err("it is dead");
        history.is_whole().expect_err("what came after is missing");
    }
}
