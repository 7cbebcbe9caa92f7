//! Measures the embedded store on this machine: `cargo run --release -p store --example measure [directory]`.

#![allow(clippy::disallowed_methods)]

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use env::Env;
use machinery::Draft;
use serde_json::json;
use store::{
    Change, Commit, Expect, Key, Span, Store, WorkspaceId, Write,
    embedded::{EmbeddedStore, Options},
};

/// As the binary has.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn mk_commit(key: &Key, filler: &str) -> Commit {
    let tree = json!({
        "kind": "ConfigMap", "apiVersion": "v1",
        "metadata": {"name": key.item.name(), "namespace": "default", "uid": "0b6f7a4e-0000-4000-8000-000000000000",
            "labels": {"app": "measure", "tier": "store"}, "creationTimestamp": "2030-01-01T00:00:00Z"},
        "data": {"filler": filler},
    });
    let draft = tree.as_object().map(Draft::encode).expect("an object").expect("a valid object");
    let write =
        Write { key: key.clone(), expect: Expect::Anything, change: Change::Put { draft, expires: None } };
    Commit { guards: Vec::new(), writes: vec![write] }
}

fn key_of(number: usize) -> Key {
    Key::new("", "configmaps", "default", &format!("measure-object-{number:07}"))
}

fn print_latencies(what: &str, mut latencies: Vec<Duration>, took: Duration) {
    latencies.sort_unstable();
    let at = |part: f64| latencies[((latencies.len() - 1) as f64 * part) as usize];
    let rate = latencies.len() as f64 / took.as_secs_f64();
    println!("{what}: {rate:.0}/s, p50 {:?}, p99 {:?}, max {:?}", at(0.5), at(0.99), at(1.0));
}

async fn alone(store: &EmbeddedStore, home: &WorkspaceId, filler: &str) {
    let mut latencies = Vec::new();
    let started = Instant::now();
    for number in 0..5000 {
        let commit = mk_commit(&key_of(number), filler);
        let before = Instant::now();
        store.commit(home, commit).await.expect("commits");
        latencies.push(before.elapsed());
    }
    print_latencies("1 writer", latencies, started.elapsed());
}

async fn together(store: &EmbeddedStore, home: &WorkspaceId, filler: &str, writers: usize, each: usize) {
    let filler: Arc<str> = filler.into();
    let commits: Vec<Vec<Commit>> = (0..writers)
        .map(|writer| (0..each).map(|index| mk_commit(&key_of(writer * each + index), &filler)).collect())
        .collect();
    let started = Instant::now();
    let tasks: Vec<_> = commits
        .into_iter()
        .map(|commits| {
            let (store, home) = (store.clone(), home.clone());
            tokio::spawn(async move {
                let mut latencies = Vec::with_capacity(commits.len());
                for commit in commits {
                    let before = Instant::now();
                    store.commit(&home, commit).await.expect("commits");
                    latencies.push(before.elapsed());
                }
                latencies
            })
        })
        .collect();
    let mut latencies = Vec::new();
    for task in tasks {
        latencies.extend(task.await.expect("the writer ends well"));
    }
    print_latencies(&format!("{writers} writers"), latencies, started.elapsed());
}

fn reads(store: &EmbeddedStore, home: &WorkspaceId) {
    let listing = store.list(home, &key_of(0).collection, None).expect("lists");
    let count = 200_000;
    let started = Instant::now();
    let found = (0..count).filter(|number| store.get(home, &key_of(number % 100_000)).is_some()).count();
    println!("get: {:?} each ({found} found)", started.elapsed() / count as u32);
    let started = Instant::now();
    let bytes: usize = listing.iter(None, None).map(|(_, object)| object.body_slice().len()).sum();
    println!("list of {} objects, {} MB: {:?}", listing.len(), bytes >> 20, started.elapsed());
    let span = Span { collection: key_of(0).collection, namespace: None };
    let started = Instant::now();
    let mut watch = store.watch(home, span, machinery::Revision::ZERO).expect("watches");
    let mut events = 0;
    loop {
        let batch = watch.take(500).expect("takes");
        if batch.events.is_empty() {
            break;
        }
        events += batch.events.len();
    }
    println!("watch from the beginning, from disk: {events} events in {:?}", started.elapsed());
}

#[tokio::main]
async fn main() {
    let directory = std::env::args().nth(1).map_or_else(|| PathBuf::from("measure-store"), PathBuf::from);
    let env = Env::real();
    let home = WorkspaceId("home".into());
    let started = Instant::now();
    let store = EmbeddedStore::open(&env, &directory, Options::default()).expect("opens");
    println!("open: {:?}", started.elapsed());
    let filler = "x".repeat(760);
    alone(&store, &home, &filler).await;
    for (writers, each) in [(16, 2000), (64, 1000), (256, 500), (1024, 300)] {
        together(&store, &home, &filler, writers, each).await;
    }
    reads(&store, &home);
    let started = Instant::now();
    store
        .checkpoint()
        .await
        .map_or_else(|error| println!("{error}"), |()| println!("checkpoint: {:?}", started.elapsed()));
    let started = Instant::now();
    store.close().await.expect("closes");
    println!("close: {:?}", started.elapsed());
    drop(store);
    let started = Instant::now();
    let store = EmbeddedStore::open(&env, &directory, Options::default()).expect("opens");
    println!("open again: {:?}, head {}", started.elapsed(), store.head(&home));
    store.close().await.expect("closes");
}
