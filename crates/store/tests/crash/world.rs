//! Those who work on the store: writers, a janitor, watchers.

use std::{future::Future, pin::pin, sync::Arc, task::Poll, time::Duration};

use env::{Clock, clock::SimClock, random::SeededRandom};
use jiff::{SignedDuration, Timestamp};
use machinery::Revision;
use parking_lot::Mutex;
use store::{
    Change, Commit, Error, Expect, Key, Span, Store, WorkspaceId, Write, embedded::EmbeddedStore,
    suite::draft,
};

use super::model::{Doom, Effect, Mirror, Shared, collections, workspaces};

/// Polls `work` at most `steps` times, and then forgets it.
pub async fn run_for(work: impl Future<Output = ()>, steps: u64) {
    let mut work = pin!(work);
    let mut left = steps;
    std::future::poll_fn(move |context| {
        if left == 0 {
            return Poll::Ready(());
        }
        left -= 1;
        context.waker().wake_by_ref();
        work.as_mut().poll(context)
    })
    .await;
}

/// Lets everybody work until they are done or the store fails them.
pub async fn work(store: EmbeddedStore, shared: Arc<Mutex<Shared>>, seed: u64) {
    let random = SeededRandom::new(seed);
    let mut tasks = Vec::new();
    for writer in 0..1 + random.below(4) {
        let worker = Worker::new(&store, &shared, seed * 31 + writer);
        tasks.push(tokio::spawn(worker.write(random.below(40))));
    }
    tasks.push(tokio::spawn(Worker::new(&store, &shared, seed * 31 + 17).keep_order()));
    let watchers: Vec<_> = (0..2)
        .map(|watcher| tokio::spawn(Worker::new(&store, &shared, seed * 31 + 20 + watcher).watch()))
        .collect();
    for task in tasks {
        task.await.expect("a worker panicked");
    }
    for watcher in watchers {
        watcher.abort();
        if let Err(error) = watcher.await {
            assert!(error.is_cancelled(), "a watcher panicked: {error}");
        }
    }
}

struct Worker {
    store: EmbeddedStore,
    shared: Arc<Mutex<Shared>>,
    random: SeededRandom,
    clock: SimClock,
    seed: u64,
}

fn time(seconds: u64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds as i64)
}

fn pick<T: Clone>(random: &SeededRandom, among: &[T]) -> T {
    among[random.below(among.len() as u64) as usize].clone()
}

/// Whether the store is beyond use, and the process would end.
fn is_over(error: &Error) -> bool {
    matches!(error, Error::Unknown(_) | Error::Unavailable(_))
}

impl Worker {
    fn new(store: &EmbeddedStore, shared: &Arc<Mutex<Shared>>, seed: u64) -> Self {
        Self {
            store: store.clone(),
            shared: shared.clone(),
            random: SeededRandom::new(seed),
            clock: SimClock::new(),
            seed,
        }
    }

    fn key(&self) -> Key {
        let collection = pick(&self.random, &collections());
        let namespace = ["", "ns", "ns2"][self.random.below(3) as usize];
        let item = store::ItemKey::new(namespace, &format!("n{}", self.random.below(4)));
        Key { collection, item }
    }

    /// Most values are small; some fill a block, some do not fit a segment.
    fn value(&self, number: u64) -> String {
        let filler = match self.random.below(20) {
            0 => 4096 * 20,
            1..4 => 4000,
            _ => self.random.below(1500) as usize,
        };
        format!("{}-{number}-{}", self.seed, "x".repeat(filler))
    }

    async fn write(self, rounds: u64) {
        for number in 0..rounds {
            let workspace = pick(&self.random, &workspaces());
            if self.commit(&workspace, number).await.is_err_and(|error| is_over(&error)) {
                return;
            }
            self.pause().await;
        }
    }

    /// Mostly nothing; now and then long enough for the store to be idle, in virtual time.
    async fn pause(&self) {
        match self.random.below(8) {
            0 => self.clock.sleep(Duration::from_millis(self.random.below(60))).await,
            1..4 => tokio::task::yield_now().await,
            _ => {}
        }
    }

    async fn commit(&self, workspace: &WorkspaceId, number: u64) -> Result<(), Error> {
        let mut commit = Commit::default();
        let mut effects = Vec::new();
        for part in 0..1 + self.random.below(3) {
            let key = self.key();
            if effects.iter().any(|effect: &Effect| effect.key == key) {
                continue;
            }
            let current = self.store.get(workspace, &key).map(|object| object.revision);
            let expect = match (self.random.below(3), current) {
                (0, _) => Expect::Anything,
                (_, Some(revision)) => Expect::At(revision),
                (_, None) => Expect::Absent,
            };
            let remove = self.random.below(4) == 0;
            let expires = (self.random.below(5) == 0).then(|| time(self.random.below(100)));
            let value = self.value(number * 10 + part);
            let change = match remove {
                true => Change::Remove,
                false => Change::Put { draft: draft(key.item.name(), &value), expires },
            };
            effects.push(Effect { key: key.clone(), value: (!remove).then_some(value), expires });
            commit.writes.push(Write { key, expect, change });
        }
        if self.random.below(4) == 0 {
            let key = self.key();
            let expect = self.store.get(workspace, &key).map_or(Expect::Absent, |it| Expect::At(it.revision));
            commit.guards.push((key, expect));
        }
        let attempt = self.shared.lock().attempt(workspace, effects);
        let result = self.store.commit(workspace, commit).await;
        self.shared.lock().answered(attempt, &result);
        result.map(drop)
    }

    /// Expiry, compaction, epochs, checkpoints, and workspaces that come and go.
    async fn keep_order(self) {
        for _ in 0..self.random.below(8) {
            let done = match self.random.below(6) {
                0 | 1 => self.expire().await,
                2 => self.compact().await,
                3 => self.begin_epoch().await,
                4 => self.store.checkpoint().await,
                _ => self.doom().await,
            };
            if done.is_err_and(|error| matches!(error, Error::Unknown(_))) {
                return;
            }
            for _ in 0..self.random.below(20) {
                tokio::task::yield_now().await;
            }
        }
    }

    async fn expire(&self) -> Result<(), Error> {
        let until = time(self.random.below(100));
        let heads = workspaces().into_iter().map(|id| (id.clone(), self.store.head(&id))).collect();
        {
            let mut shared = self.shared.lock();
            shared.expiry_attempted = shared.expiry_attempted.max(Some(until));
        }
        self.store.expire(until).await?;
        self.shared.lock().expiry_done.push((until, heads));
        Ok(())
    }

    /// Only what has been compared and what watchers have seen.
    async fn compact(&self) -> Result<(), Error> {
        let workspace = pick(&self.random, &workspaces());
        let upto = {
            let shared = self.shared.lock();
            let mirrors = shared.mirrors.iter().filter(|((id, _), _)| *id == workspace);
            let seen = mirrors.filter_map(|(_, mirror)| mirror.position);
            seen.chain(shared.compared.get(&workspace).copied()).min()
        };
        let Some(upto) = upto else { return Ok(()) };
        self.store.compact(&workspace, upto).await?;
        if upto.seq() > 0 {
            let mut shared = self.shared.lock();
            let compacted = shared.compacted.entry(workspace).or_insert(upto);
            *compacted = upto.max(*compacted);
        }
        Ok(())
    }

    async fn begin_epoch(&self) -> Result<(), Error> {
        let workspace = pick(&self.random, &workspaces());
        let skipped = Revision::start_of_epoch(self.store.head(&workspace).epoch() + 1);
        self.store.begin_epoch(&workspace, skipped.epoch() + 1).await?;
        self.shared.lock().never.push((workspace, skipped));
        Ok(())
    }

    async fn doom(&self) -> Result<(), Error> {
        let workspace = self.shared.lock().new_doomed();
        let key = self.key();
        let change = Change::Put { draft: draft(key.item.name(), "doomed"), expires: None };
        let writes = vec![Write { key, expect: Expect::Absent, change }];
        self.store.commit(&workspace, Commit { guards: Vec::new(), writes }).await?;
        self.shared.lock().doomed.insert(workspace.clone(), Doom::Filled);
        if self.random.below(3) == 0 {
            return Ok(());
        }
        self.shared.lock().doomed.insert(workspace.clone(), Doom::Asked);
        self.store.remove_workspace(&workspace).await?;
        self.shared.lock().doomed.insert(workspace, Doom::Gone);
        Ok(())
    }

    /// Follows collections, in fits and starts, for as long as it lives.
    async fn watch(self) {
        loop {
            let workspace = pick(&self.random, &workspaces());
            let collection = pick(&self.random, &collections());
            let place = (workspace.clone(), collection.clone());
            let mut mirror = self.shared.lock().mirrors.get(&place).cloned().unwrap_or_default();
            if mirror.position.is_none() {
                let listing = self.store.list(&workspace, &collection, None).expect("lists");
                let items = listing.iter(None, None).map(|(key, object)| (key.clone(), object.revision));
                mirror = Mirror { position: Some(listing.revision), items: items.collect() };
            }
            let after = mirror.position.unwrap_or(Revision::ZERO);
            let followed = self.follow(&workspace, &collection, after, &mut mirror);
            if matches!(followed, Err(Error::Expired { .. })) {
                mirror = Mirror::default();
            }
            // Another watcher may have gone further by now; both are right.
            self.shared.lock().mirrors.insert(place, mirror);
            self.clock.sleep(Duration::from_millis(self.random.below(20))).await;
        }
    }

    fn follow(
        &self,
        workspace: &WorkspaceId,
        collection: &store::Collection,
        after: Revision,
        mirror: &mut Mirror,
    ) -> Result<(), Error> {
        let namespace = None;
        let mut watch =
            self.store.watch(workspace, Span { collection: collection.clone(), namespace }, after)?;
        for _ in 0..self.random.below(4) {
            let batch = watch.take(1 + self.random.below(5) as usize)?;
            batch.events.iter().for_each(|event| mirror.apply(event));
            mirror.position = Some(batch.complete_to);
        }
        Ok(())
    }
}
