//! Watchers that stop reading, resume anywhere and cross restarts: no event lost, doubled or reordered.
//!
//! A seed decides what is written, when the store is restarted, and when each watcher reads how much. The model is
//! simply the list of everything that was written.

mod support;

use std::{path::Path, sync::Arc, time::Duration};

use compact_str::CompactString;
use env::{files::sim::SimDisk, random::SeededRandom};
use machinery::Revision;
use store::{
    Change, Collection, Commit, Error, Event, Expect, Key, Span, Store, Watch, Write,
    embedded::{EmbeddedStore, Options},
    suite::{draft, value_of},
};
use support::{DATA, home, mk_env, mk_options};

/// A record as it was written: what a watcher must be told.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Told {
    key: Key,
    revision: Revision,
    old: Option<String>,
    new: Option<String>,
}

impl Told {
    fn by(event: &Event) -> Self {
        let value = |object: Option<&Arc<machinery::Object>>| object.map(|object| value_of(object));
        let (old, new) = (value(event.old.as_ref()), value(event.after()));
        Self { key: event.key.clone(), revision: event.revision, old, new }
    }
}

struct Watcher {
    span: Span,
    /// Everything up to here has been told.
    position: Revision,
    watch: Option<Watch>,
}

struct Run {
    random: SeededRandom,
    disk: SimDisk,
    options: Options,
    may_expire: bool,
    history: Vec<Told>,
    watchers: Vec<Watcher>,
    expired: usize,
}

fn key(random: &SeededRandom) -> Key {
    let resource = ["things", "others"][random.below(2) as usize];
    let namespace = ["ns", "ns2", ""][random.below(3) as usize];
    Key::new("", resource, namespace, &format!("n{}", random.below(3)))
}

impl Run {
    fn new(seed: u64) -> Self {
        let random = SeededRandom::new(seed);
        let may_expire = random.below(3) == 0;
        let mut options = mk_options();
        options.ring_bytes = 1 << random.below(18);
        options.checkpoint_bytes = 4096 * (4 + random.below(40));
        if may_expire {
            (options.history_time, options.history_bytes) = (Duration::ZERO, 4096 * (10 + random.below(60)));
        }
        let (disk, history, watchers) = (SimDisk::new(seed), Vec::new(), Vec::new());
        Self { random, disk, options, may_expire, history, watchers, expired: 0 }
    }

    fn open(&self) -> EmbeddedStore {
        EmbeddedStore::open(&mk_env(&self.disk), Path::new(DATA), self.options.clone()).expect("opens")
    }

    async fn run(&mut self) {
        let mut store = self.open();
        for _ in 0..self.random.below(150) {
            match self.random.below(20) {
                0 => self.add_watcher(&store),
                1..8 => self.read(&store),
                8 if self.random.below(4) == 0 => {
                    self.watchers.iter_mut().for_each(|watcher| watcher.watch = None);
                    store.close().await.expect("closes");
                    store = self.open();
                }
                _ => self.write(&store).await,
            }
        }
        // Whoever is behind can still catch up.
        for index in 0..self.watchers.len() {
            while self.watchers[index].position < store.head(&home()) {
                self.read_one(&store, index);
            }
        }
    }

    async fn write(&mut self, store: &EmbeddedStore) {
        let mut commit = Commit::default();
        for _ in 0..1 + self.random.below(3) {
            let key = key(&self.random);
            if commit.writes.iter().any(|write| write.key == key) {
                continue;
            }
            let exists = store.get(&home(), &key).is_some();
            let change = match exists && self.random.below(3) == 0 {
                true => Change::Remove,
                false => {
                    let value = format!("{}", self.random.below(1_000_000));
                    Change::Put { draft: draft(key.item.name(), &value), expires: None }
                }
            };
            commit.writes.push(Write { key, expect: Expect::Anything, change });
        }
        let before: Vec<_> = commit.writes.iter().map(|write| store.get(&home(), &write.key)).collect();
        let writes = commit.writes.clone();
        let committed = store.commit(&home(), commit).await.expect("commits");
        for ((write, before), committed) in writes.into_iter().zip(before).zip(committed) {
            let new = match write.change {
                Change::Put { .. } => Some(value_of(&committed.object)),
                Change::Remove => None,
            };
            let old = before.map(|object| value_of(&object));
            self.history.push(Told { key: write.key, revision: committed.revision, old, new });
        }
    }

    /// Anywhere: at the beginning, inside a commit, at the head.
    fn add_watcher(&mut self, store: &EmbeddedStore) {
        let namespace = match self.random.below(3) {
            0 => Some(CompactString::from("ns")),
            1 => Some(CompactString::from("")),
            _ => None,
        };
        let span = Span { collection: Collection::new("", "things"), namespace };
        let start = Revision::start_of_epoch(1);
        let seqs = store.head(&home()).seq() + 1;
        let position = Revision::from_u64(start.as_u64() + self.random.below(seqs)).expect("a revision");
        self.watchers.push(Watcher { span, position, watch: None });
    }

    fn read(&mut self, store: &EmbeddedStore) {
        if !self.watchers.is_empty() {
            let index = self.random.below(self.watchers.len() as u64) as usize;
            self.read_one(store, index);
        }
    }

    fn read_one(&mut self, store: &EmbeddedStore, index: usize) {
        let max = 1 + self.random.below(6) as usize;
        let watcher = &mut self.watchers[index];
        let taken = match watcher.watch.take() {
            Some(watch) => Ok(watch),
            None => store.watch(&home(), watcher.span.clone(), watcher.position),
        };
        let taken = taken.and_then(|mut watch| watch.take(max).map(|batch| (watch, batch)));
        let (watch, batch) = match taken {
            Ok(taken) => taken,
            Err(Error::Expired { .. }) if self.may_expire => {
                self.expired += 1;
                watcher.position = store.head(&home());
                return;
            }
            Err(other) => panic!("after {:?}: {other}", watcher.position),
        };
        let expected: Vec<Told> = self
            .history
            .iter()
            .filter(|told| watcher.position < told.revision && told.revision <= batch.complete_to)
            .filter(|told| told.key.collection == watcher.span.collection)
            .filter(|told| watcher.span.contains(&told.key.item))
            .cloned()
            .collect();
        let told: Vec<Told> = batch.events.iter().map(|event| Told::by(event)).collect();
        assert_eq!(told, expected, "after {:?} to {:?}", watcher.position, batch.complete_to);
        assert!(told.len() <= max && batch.complete_to >= watcher.position);
        watcher.position = batch.complete_to;
        // Some keep their watch, some come back with a new one.
        watcher.watch = (self.random.below(3) > 0).then_some(watch);
    }
}

#[test]
fn watches_are_exact_whatever_their_readers_do() {
    let seeds = if cfg!(debug_assertions) { 0..300 } else { 0..3000 };
    let mut expired = 0;
    for seed in seeds {
        println!("seed {seed}");
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_time().start_paused(true).build().expect("a runtime");
        let mut run = Run::new(seed);
        runtime.block_on(run.run());
        expired += run.expired;
    }
    assert!(expired > 0, "some histories were too short");
}
