//! A small store on a simulated disk, and short ways to use it.

#![allow(dead_code)]

use std::{path::Path, time::Duration};

use env::{Env, files::sim::SimDisk, network::sim::SimNet};
use machinery::Revision;
use store::{
    Change, Collection, Commit, Error, Expect, Key, Span, Store, WorkspaceId, Write,
    embedded::{EmbeddedStore, OpenError, Options},
    suite::{draft, value_of},
};

pub const DATA: &str = "/data";

pub fn mk_env(disk: &SimDisk) -> Env {
    Env::simulated(1, disk.clone(), SimNet::default())
}

/// Small segments, no checkpoint unless asked for, history without end.
pub fn mk_options() -> Options {
    Options {
        first_segment_bytes: 16 << 10,
        segment_bytes: 24 << 10,
        ring_bytes: 512,
        checkpoint_bytes: 1 << 30,
        history_time: Duration::from_secs(300),
        history_bytes: 1 << 30,
        ..Options::default()
    }
}

pub fn try_open(disk: &SimDisk) -> Result<EmbeddedStore, OpenError> {
    EmbeddedStore::open(&mk_env(disk), Path::new(DATA), mk_options())
}

pub fn open(disk: &SimDisk) -> EmbeddedStore {
    try_open(disk).expect("opens")
}

pub fn home() -> WorkspaceId {
    WorkspaceId("home".into())
}

pub fn things() -> Collection {
    Collection::new("", "things")
}

pub fn thing(name: &str) -> Key {
    Key::new("", "things", "ns", name)
}

pub fn span() -> Span {
    Span { collection: things(), namespace: None }
}

pub fn put_commit(name: &str, value: &str) -> Commit {
    let change = Change::Put { draft: draft(name, value), expires: None };
    Commit { guards: Vec::new(), writes: vec![Write { key: thing(name), expect: Expect::Anything, change }] }
}

pub async fn try_put(store: &EmbeddedStore, name: &str, value: &str) -> Result<Revision, Error> {
    store.commit(&home(), put_commit(name, value)).await.map(|committed| committed[0].revision)
}

pub async fn put(store: &EmbeddedStore, name: &str, value: &str) -> Revision {
    try_put(store, name, value).await.expect("puts")
}

pub async fn remove(store: &EmbeddedStore, name: &str) -> Revision {
    let write = Write { key: thing(name), expect: Expect::Anything, change: Change::Remove };
    let commit = Commit { guards: Vec::new(), writes: vec![write] };
    store.commit(&home(), commit).await.expect("removes")[0].revision
}

/// `ns/a=1 ns/b=2`.
pub fn listed(store: &impl Store, at: Option<Revision>) -> Result<String, Error> {
    let listing = store.list(&home(), &things(), at)?;
    let lines = listing.iter(None, None).map(|(key, object)| format!("{}={}", key.0, value_of(object)));
    Ok(lines.collect::<Vec<_>>().join(" "))
}

/// Every event after `after`, as `revision: old -> new`.
pub fn told(store: &impl Store, after: Revision) -> Result<Vec<String>, Error> {
    let mut watch = store.watch(&home(), span(), after)?;
    let mut lines = Vec::new();
    loop {
        let batch = watch.take(3)?;
        for event in &batch.events {
            let state = |object: Option<&std::sync::Arc<machinery::Object>>| {
                object.map_or("-".to_owned(), |object| format!("{}@{:?}", value_of(object), object.revision))
            };
            let (old, new) = (state(event.old.as_ref()), state(event.after()));
            lines.push(format!("{:?} {}: {old} -> {new}", event.revision, event.key.item.0));
        }
        if batch.complete_to == store.head(&home()) {
            return Ok(lines);
        }
    }
}

/// Lets virtual time pass, so that the store finds itself idle.
pub async fn idle(disk: &SimDisk) {
    mk_env(disk).clock.sleep(Duration::from_secs(1)).await;
}
