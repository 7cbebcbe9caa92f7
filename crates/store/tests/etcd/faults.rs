//! Servers under faults that follow from a seed: what clients saw must be explained by one history.
//!
//! Every client writes values that nobody else writes and notes when it asked and when it was answered. At the end an
//! observer whose link never failed tells the whole history. Then: what was acknowledged is in it, once, where the
//! answer said; what was refused is not; what is unknown is in it at most once. A most-recent read shows at least
//! everything that was acknowledged, or shown by another such read, before it began. Watches told the history without
//! gap, doubling or disorder.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use env::{Random, random::SeededRandom};
use etcd::Faults;
use machinery::Revision;
use parking_lot::Mutex;
use store::{
    Change, Collection, Commit, Error, EventChange, Expect, Span, Store, Write, etcd::EtcdStore,
    suite::value_of,
};

use super::world::{World, home, put, run, thing};

const SERVERS: [&str; 3] = ["a", "b", "c"];
const KEYS: [&str; 3] = ["x", "y", "z"];
const CLIENTS: usize = 6;

#[derive(Debug, Clone)]
enum Seen {
    Acknowledged(Revision),
    Refused,
    Unknown,
}

#[derive(Debug, Clone)]
struct Written {
    value: String,
    asked: u64,
    answered: u64,
    seen: Seen,
}

/// A most-recent read: what the head was.
#[derive(Debug)]
struct Looked {
    asked: u64,
    answered: u64,
    head: Revision,
}

#[derive(Default)]
struct Notes {
    /// Orders what clients do: time stands still for much of it.
    tick: AtomicU64,
    written: Mutex<Vec<Written>>,
    looked: Mutex<Vec<Looked>>,
    done: AtomicBool,
}

impl Notes {
    fn now(&self) -> u64 {
        self.tick.fetch_add(1, Ordering::SeqCst)
    }
}

fn pick(random: &SeededRandom, count: usize) -> usize {
    let mut bytes = [0; 4];
    random.fill(&mut bytes);
    u32::from_le_bytes(bytes) as usize % count
}

type Stores = Arc<Mutex<HashMap<&'static str, EtcdStore>>>;

fn store_of(stores: &Stores, name: &str) -> EtcdStore {
    stores.lock()[name].clone()
}

async fn client(number: usize, stores: Stores, notes: Arc<Notes>, random: SeededRandom, world: Arc<World>) {
    let mut count = 0;
    while !notes.done.load(Ordering::SeqCst) {
        let store = store_of(&stores, SERVERS[pick(&random, SERVERS.len())]);
        world.env.clock.sleep(Duration::from_millis(pick(&random, 400) as u64)).await;
        if pick(&random, 3) == 0 {
            look(&store, &notes).await;
            continue;
        }
        count += 1;
        let name = KEYS[pick(&random, KEYS.len())];
        let value = format!("{number}-{count}");
        let current = store.get(&home(), &thing(name));
        let expect = current.as_ref().map_or(Expect::Absent, |object| Expect::At(object.revision));
        let mut writes = vec![put(name, &value, expect)];
        if current.is_some() && pick(&random, 8) == 0 {
            // A removal says nothing, so something else says it in the same commit.
            let remove = Write { key: thing(name), expect, change: Change::Remove };
            writes = vec![put("said", &value, Expect::Anything), remove];
        }
        let asked = notes.now();
        let seen = match store.commit(&home(), Commit { guards: vec![], writes }).await {
            Ok(committed) => Seen::Acknowledged(committed[0].revision),
            Err(Error::Unknown(_)) => Seen::Unknown,
            Err(Error::Conflict { .. } | Error::Unavailable(_) | Error::NoSpace(_)) => Seen::Refused,
            Err(other) => panic!("{other}"),
        };
        let answered = notes.now();
        notes.written.lock().push(Written { value, asked, answered, seen });
    }
}

async fn look(store: &EtcdStore, notes: &Notes) {
    let asked = notes.now();
    let level = match store.level(&home()) {
        Some(level) => level.await,
        None => Ok(()),
    };
    let head = store.head(&home());
    let answered = notes.now();
    if level.is_ok() {
        notes.looked.lock().push(Looked { asked, answered, head });
    }
}

fn everything() -> Span {
    Span { collection: Collection::new("", "things"), namespace: None }
}

type Told = (Revision, String);

fn told(event: &store::Event) -> Told {
    let sign = match event.change {
        EventChange::Put(_) => "",
        EventChange::Removed(_) => "-",
    };
    (event.revision, format!("{sign}{}={}", event.key.item.name(), value_of(event.object())))
}

/// Stretches of history as one watcher was told them: from where it began, and what followed.
async fn watcher(
    name: &'static str,
    stores: Stores,
    notes: Arc<Notes>,
    world: Arc<World>,
) -> Vec<(Revision, Vec<Told>)> {
    let mut stretches = Vec::new();
    while !notes.done.load(Ordering::SeqCst) {
        let store = store_of(&stores, name);
        let from = store.head(&home());
        let Ok(mut watch) = store.watch(&home(), everything(), from) else { continue };
        let mut events = Vec::new();
        loop {
            tokio::select! {
                biased;
                () = watch.changed() => {}
                () = world.env.clock.sleep(Duration::from_secs(1)) => {}
            }
            match watch.take(7) {
                Ok(batch) => events.extend(batch.events.iter().map(|event| told(event))),
                Err(_) => break,
            }
            if notes.done.load(Ordering::SeqCst) {
                break;
            }
        }
        stretches.push((from, events));
    }
    stretches
}

async fn nemesis(world: Arc<World>, stores: Stores, random: SeededRandom, notes: Arc<Notes>) {
    let mut links: HashMap<&str, String> = SERVERS.map(|name| (name, name.to_owned())).into();
    for step in 0..12 {
        world.env.clock.sleep(Duration::from_millis(500 + pick(&random, 3000) as u64)).await;
        let name = SERVERS[pick(&random, SERVERS.len())];
        match pick(&random, 7) {
            0 => world.etcd.cut(&links[name]),
            1 | 2 => {
                let some = |most: usize| pick(&random, most) as u32;
                let faults = Faults {
                    delay: Duration::from_millis(pick(&random, 300) as u64),
                    unreachable: some(100),
                    lost: some(100),
                    unanswered: some(150),
                    late: some(100),
                    late_by: Duration::from_secs(pick(&random, 8) as u64),
                    filling: some(100),
                    beats_lost: some(300),
                    watches_ended: some(100),
                };
                world.etcd.set_faults(&links[name], faults);
            }
            3 => world.post.close(name),
            4 => world.etcd.change_leader(),
            5 => {
                let revision = world.etcd.revision();
                let _ = world.etcd.client("operator").compact(revision).await;
            }
            _ => {
                for name in SERVERS {
                    world.etcd.heal(&links[name]);
                    world.etcd.set_faults(&links[name], Faults::NONE);
                    world.post.open(name, &store_of(&stores, name));
                }
                // One dies without a goodbye, and another starts in its place.
                world.etcd.cut(&links[name]);
                world.post.close(name);
                world.env.clock.sleep(Duration::from_secs(3)).await;
                let link = format!("{name}{step}");
                let again = world.server_on(name, &link).await;
                stores.lock().insert(name, again);
                links.insert(name, link);
            }
        }
    }
    for name in SERVERS {
        world.etcd.heal(&links[name]);
        world.etcd.set_faults(&links[name], Faults::NONE);
        world.post.open(name, &store_of(&stores, name));
    }
    world.env.clock.sleep(Duration::from_secs(40)).await;
    notes.done.store(true, Ordering::SeqCst);
}

async fn play(seed: u64) {
    let world = Arc::new(World::new(seed));
    let observer = world.server("observer").await;
    let origin = observer.head(&home());
    let mut history = observer.watch(&home(), everything(), origin).expect("watches");
    let mut stores = HashMap::new();
    for name in SERVERS {
        stores.insert(name, world.server(name).await);
    }
    let stores: Stores = Arc::new(Mutex::new(stores));
    let notes = Arc::new(Notes::default());
    let random = |salt: u64| SeededRandom::new(seed.wrapping_mul(1000).wrapping_add(salt));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let random = random(number as u64);
            tokio::spawn(client(number, stores.clone(), notes.clone(), random, world.clone()))
        })
        .collect();
    let watchers: Vec<_> = SERVERS
        .map(|name| tokio::spawn(watcher(name, stores.clone(), notes.clone(), world.clone())))
        .into_iter()
        .collect();
    nemesis(world.clone(), stores.clone(), random(99), notes.clone()).await;
    for client in clients {
        client.await.expect("the client ends well");
    }
    let mut stretches = Vec::new();
    for watcher in watchers {
        stretches.extend(watcher.await.expect("the watcher ends well"));
    }
    let standings =
        || format!("{:?} {:?}", observer.standing(), SERVERS.map(|name| store_of(&stores, name).standing()));
    observer
        .level(&home())
        .expect("somebody else leads")
        .await
        .unwrap_or_else(|error| panic!("{error}: {}", standings()));
    let log: Vec<Told> =
        history.take(usize::MAX).expect("all of it").events.iter().map(|event| told(event)).collect();
    check_writes(&notes, &log);
    check_order(&notes);
    for (from, events) in &stretches {
        let start = log.partition_point(|(revision, _)| revision <= from);
        let expected: Vec<&Told> = log[start..].iter().take(events.len()).collect();
        assert_eq!(events.iter().collect::<Vec<_>>(), expected, "a watch from {from:?}");
    }
    for name in SERVERS {
        let store = store_of(&stores, name);
        if let Some(level) = store.level(&home()) {
            level.await.unwrap_or_else(|error| {
                panic!("{name}: {error}: {} at {}", standings(), world.etcd.revision())
            });
        }
        let list = |store: &EtcdStore| -> Vec<Told> {
            let listing = store.list(&home(), &everything().collection, None).expect("lists");
            listing
                .iter(None, None)
                .map(|(key, object)| (object.revision, format!("{}={}", key.name(), value_of(object))))
                .collect()
        };
        assert_eq!(list(&store), list(&observer), "{name} shows what the observer shows");
    }
    let acknowledged =
        notes.written.lock().iter().filter(|it| matches!(it.seen, Seen::Acknowledged(_))).count();
    assert!(acknowledged > 20, "only {acknowledged} writes succeeded: {}", standings());
}

fn check_writes(notes: &Notes, log: &[Told]) {
    let mut places: HashMap<String, Vec<Revision>> = HashMap::new();
    for (revision, text) in log {
        if let Some((_, value)) = text.split_once('=')
            && !text.starts_with('-')
        {
            places.entry(value.to_owned()).or_default().push(*revision);
        }
    }
    for written in notes.written.lock().iter() {
        let found = places.remove(&written.value).unwrap_or_default();
        match &written.seen {
            Seen::Acknowledged(revision) => assert_eq!(found, [*revision], "{written:?}"),
            Seen::Refused => assert_eq!(found, [], "{written:?}"),
            Seen::Unknown => assert!(found.len() <= 1, "{written:?}: {found:?}"),
        }
    }
    assert!(places.is_empty(), "nobody wrote {places:?}");
}

/// What was answered before something else was asked is before it in the history.
fn check_order(notes: &Notes) {
    let mut known: Vec<(u64, Revision)> = Vec::new();
    for written in notes.written.lock().iter() {
        if let Seen::Acknowledged(revision) = written.seen {
            known.push((written.answered, revision));
        }
    }
    known.extend(notes.looked.lock().iter().map(|looked| (looked.answered, looked.head)));
    known.sort();
    let newest_before = |asked: u64| {
        known.iter().take_while(|(answered, _)| *answered < asked).map(|(_, revision)| *revision).max()
    };
    for looked in notes.looked.lock().iter() {
        let before = newest_before(looked.asked).unwrap_or(Revision::ZERO);
        assert!(looked.head >= before, "a read was older than {before:?}: {looked:?}");
    }
    for written in notes.written.lock().iter() {
        if let Seen::Acknowledged(revision) = written.seen {
            let before = newest_before(written.asked).unwrap_or(Revision::ZERO);
            assert!(
                revision > before,
                "a write before {before:?}, which was known when it began: {written:?}"
            );
        }
    }
}

#[test]
fn what_clients_saw_is_one_history() {
    let seeds = std::env::var("HANSE_SEEDS").ok().and_then(|count| count.parse().ok()).unwrap_or(30u64);
    let first = std::env::var("HANSE_SEED").ok().and_then(|seed| seed.parse().ok());
    let seeds = first.map_or(0..seeds, |seed| seed..seed + 1);
    for seed in seeds {
        println!("seed {seed}");
        run(async || play(seed).await);
    }
}
