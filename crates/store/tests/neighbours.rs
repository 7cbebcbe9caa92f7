//! A workspace that does its worst, and its neighbours: turns at the writer, memory of recent history, and bounds.

mod support;

use std::{path::Path, sync::Arc};

use env::files::sim::SimDisk;
use machinery::{Draft, Revision};
use serde_json::json;
use store::{
    Bounds, Change, Commit, Error, Expect, FeedItem, Span, Store, Usage, WorkspaceId, Write,
    embedded::{EmbeddedStore, Options},
    live,
    memory::MemoryStore,
    suite::draft,
};
use support::{DATA, mk_env, mk_options, put_commit, span, thing, things};

fn workspace(name: &str) -> WorkspaceId {
    WorkspaceId(name.into())
}

fn remove_commit(name: &str) -> Commit {
    let write = Write { key: thing(name), expect: Expect::Anything, change: Change::Remove };
    Commit { guards: Vec::new(), writes: vec![write] }
}

async fn put(store: &impl Store, whose: &str, name: &str, value: &str) -> Result<Revision, Error> {
    store.commit(&workspace(whose), put_commit(name, value)).await.map(|committed| committed[0].revision)
}

/// How many events of `whose` can be read after `after`.
fn readable(store: &impl Store, whose: &str, after: Revision) -> Result<usize, Error> {
    let everything = Span { collection: things(), namespace: None };
    let mut watch = store.watch(&workspace(whose), everything, after)?;
    let mut count = 0;
    loop {
        let batch = watch.take(1000)?;
        match batch.events.len() {
            0 => return Ok(count),
            more => count += more,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn one_commit_waits_for_one_of_each_neighbour_however_many_they_have_sent() {
    let disk = SimDisk::new(1);
    let options = Options { ring_bytes: 64 << 20, ..mk_options() };
    let store = EmbeddedStore::open(&mk_env(&disk), Path::new(DATA), options).unwrap();
    let mut feed = store.feed();
    let large = "x".repeat(4000);
    let mut sent = Vec::new();
    for number in 0..200 {
        sent.push(store.commit(&workspace("noisy"), put_commit(&format!("n{number}"), &large)));
    }
    for whose in ["quiet", "other"] {
        sent.push(store.commit(&workspace(whose), put_commit("one", "1")));
    }
    for commit in sent {
        commit.await.unwrap();
    }
    let mut order = Vec::new();
    while let Some(FeedItem::Event(event)) = feed.try_next() {
        order.push(event.workspace.0.to_string());
    }
    assert_eq!(order.len(), 202);
    for whose in ["quiet", "other"] {
        let at = order.iter().position(|it| it == whose).unwrap();
        assert!(at <= 3, "{whose} was written after {at} others");
    }
    let noisy = store.list(&workspace("noisy"), &things(), None).unwrap();
    assert_eq!(noisy.len(), 200, "each of the noisy one's was written as well");
    store.close().await.unwrap();
}

#[tokio::test]
async fn who_churns_does_not_take_the_recent_history_of_others_from_memory() {
    let options = live::Options { ring_bytes: 2 << 20, ..live::Options::default() };
    let store = MemoryStore::with_options(options);
    put(&store, "quiet", "a", "1").await.unwrap();
    put(&store, "quiet", "a", "2").await.unwrap();
    let mut first = None;
    for round in 0..10_000 {
        let revision = put(&store, "noisy", "a", &round.to_string()).await.unwrap();
        first.get_or_insert(revision);
    }
    assert_eq!(readable(&store, "quiet", Revision::ZERO).unwrap(), 2, "though none of it is on disk");
    let old = readable(&store, "noisy", first.unwrap());
    assert!(matches!(old, Err(Error::Expired { .. })), "the noisy one pays with its own history: {old:?}");
    // What is spared is bounded: a share for each, and half of the budget for all.
    for number in 0..6000 {
        put(&store, &format!("w{number}"), "a", "1").await.unwrap();
    }
    for round in 0..10_000 {
        put(&store, "noisy", "a", &round.to_string()).await.unwrap();
    }
    let spared = (0..6000).filter(|number| readable(&store, &format!("w{number}"), Revision::ZERO).is_ok());
    let spared = spared.count();
    assert!((1..6000).contains(&spared), "{spared} of 6000 events of 256 bytes in a megabyte");
}

#[tokio::test]
async fn what_is_forgotten_is_let_go_of_and_feeds_miss_nothing() {
    let store = MemoryStore::new();
    let mut feed = store.feed();
    for number in 0..100 {
        let name = format!("w{number}");
        put(&store, &name, "a", "1").await.unwrap();
        store.remove_workspace(&workspace(&name)).await.unwrap();
    }
    let (mut events, mut removals) = (0, 0);
    while let Some(item) = feed.try_next() {
        match item {
            FeedItem::Event(_) => events += 1,
            FeedItem::WorkspaceRemoved(_) => removals += 1,
            FeedItem::Lagged => panic!("entries went before the feed had them"),
        }
    }
    assert_eq!((events, removals), (100, 100));
    let object = Arc::downgrade(&{
        put(&store, "last", "a", "1").await.unwrap();
        store.get(&workspace("last"), &thing("a")).unwrap()
    });
    while feed.try_next().is_some() {}
    assert!(object.upgrade().is_some());
    store.remove_workspace(&workspace("last")).await.unwrap();
    while feed.try_next().is_some() {}
    assert!(object.upgrade().is_none(), "nothing holds the objects of a workspace that is gone");
}

fn bounded(objects: u64, bytes: u64) -> Options {
    let unbounded = vec![workspace("root")];
    Options { bounds: Bounds { objects, bytes }, unbounded, ..mk_options() }
}

fn is_full<T>(result: &Result<T, Error>) -> bool {
    matches!(result, Err(Error::Full { .. }))
}

#[tokio::test(start_paused = true)]
async fn a_full_workspace_takes_nothing_more_until_something_is_gone() {
    let disk = SimDisk::new(1);
    let open = || EmbeddedStore::open(&mk_env(&disk), Path::new(DATA), bounded(3, 1000)).unwrap();
    let store = open();
    for name in ["a", "b", "c"] {
        put(&store, "tenant", name, "1").await.unwrap();
    }
    let head = store.head(&workspace("tenant"));
    assert!(is_full(&put(&store, "tenant", "d", "1").await));
    assert_eq!(store.head(&workspace("tenant")), head, "a refusal changes nothing");
    put(&store, "tenant", "a", "2").await.expect("what is there may change");
    assert!(is_full(&put(&store, "tenant", "a", &"x".repeat(1000)).await), "within the bytes");
    put(&store, "other", "d", "1").await.expect("each workspace has its own");
    for number in 0..9 {
        put(&store, "root", &number.to_string(), &"x".repeat(1000)).await.expect("root has no bounds");
    }
    store.close().await.unwrap();
    let store = open();
    assert!(is_full(&put(&store, "tenant", "d", "1").await), "also for a later process");
    store.commit(&workspace("tenant"), remove_commit("b")).await.unwrap();
    put(&store, "tenant", "d", "1").await.expect("there is room again");
    store.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn commits_that_wait_together_stay_within_bounds_together() {
    let disk = SimDisk::new(1);
    let store = EmbeddedStore::open(&mk_env(&disk), Path::new(DATA), bounded(10, u64::MAX)).unwrap();
    let commits: Vec<_> = (0..50)
        .map(|number| store.commit(&workspace("tenant"), put_commit(&format!("n{number}"), "1")))
        .collect();
    let mut taken = 0;
    for commit in commits {
        taken += usize::from(commit.await.is_ok());
    }
    assert_eq!((taken, store.usage(&workspace("tenant")).objects), (10, 10));
    store.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_is_too_much_already_may_become_less_and_be_marked_as_deleted() {
    let disk = SimDisk::new(1);
    let store = EmbeddedStore::open(&mk_env(&disk), Path::new(DATA), mk_options()).unwrap();
    for name in ["a", "b", "c"] {
        put(&store, "tenant", name, &"x".repeat(500)).await.unwrap();
    }
    store.close().await.unwrap();
    let store = EmbeddedStore::open(&mk_env(&disk), Path::new(DATA), bounded(2, 700)).unwrap();
    put(&store, "tenant", "a", "less").await.unwrap();
    assert!(is_full(&put(&store, "tenant", "a", &"x".repeat(100)).await));
    let tree = json!({
        "kind": "Thing", "apiVersion": "v1",
        "metadata": {"name": "b", "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["example.com/f"]},
        "data": {"v": "x".repeat(500)},
    });
    let draft = Draft::encode(tree.as_object().unwrap()).unwrap();
    let write =
        Write { key: thing("b"), expect: Expect::Anything, change: Change::Put { draft, expires: None } };
    let marked = Commit { guards: Vec::new(), writes: vec![write] };
    store.commit(&workspace("tenant"), marked).await.expect("how else would it ever go");
    for name in ["a", "b", "c"] {
        store.commit(&workspace("tenant"), remove_commit(name)).await.unwrap();
    }
    assert_eq!(store.usage(&workspace("tenant")), Usage::default());
    store.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn many_workspaces_are_compacted_and_removed_with_few_writes() {
    let disk = SimDisk::new(1);
    let options = || Options { batch_commits: 1024, ..mk_options() };
    let open = || EmbeddedStore::open(&mk_env(&disk), Path::new(DATA), options()).unwrap();
    let store = open();
    let names: Vec<String> = (0..300).map(|number| format!("w{number}")).collect();
    for name in &names {
        put(&store, name, "a", "1").await.unwrap();
        put(&store, name, "a", "2").await.unwrap();
    }
    let head = store.head(&workspace("w0"));
    let asked: Vec<_> = names.iter().map(|name| store.compact(&workspace(name), head)).collect();
    for compacted in asked {
        compacted.await.unwrap();
    }
    let asked: Vec<_> = names.iter().skip(1).map(|name| store.remove_workspace(&workspace(name))).collect();
    // Twice the same, and something that comes after it in the same workspace.
    let again = store.remove_workspace(&workspace("w7"));
    let born_again = store.commit(&workspace("w7"), put_commit("b", "new"));
    for removed in asked {
        removed.await.unwrap();
    }
    again.await.unwrap();
    born_again.await.unwrap();
    store.close().await.unwrap();
    let store = open();
    assert_eq!(store.workspaces(), [workspace("w0"), workspace("w7")]);
    let old = store.watch(&workspace("w0"), span(), Revision::from_u64(head.as_u64() - 1).unwrap());
    assert!(matches!(old.err(), Some(Error::Expired { .. })));
    let born_again = store.list(&workspace("w7"), &things(), None).unwrap();
    assert_eq!(born_again.iter(None, None).map(|(key, _)| key.name()).collect::<Vec<_>>(), ["b"]);
    store.close().await.unwrap();
}

#[tokio::test]
async fn usage_is_what_the_objects_add_up_to() {
    let store = MemoryStore::new();
    let id = workspace("w");
    assert_eq!(store.usage(&id), Usage::default());
    let expected = |store: &MemoryStore| {
        let listing = store.list(&id, &things(), None).unwrap();
        let bytes = listing.iter(None, None).map(|(_, object)| object.body_slice().len() as u64).sum();
        Usage { objects: listing.len() as u64, bytes }
    };
    for (name, value) in [("a", "1"), ("b", "22"), ("a", "a longer one"), ("a", "")] {
        put(&store, "w", name, value).await.unwrap();
        assert_eq!(store.usage(&id), expected(&store), "after {name}={value}");
    }
    let change = |name: &str| Change::Put { draft: draft(name, "x"), expires: None };
    let several = Commit {
        guards: Vec::new(),
        writes: vec![
            Write { key: thing("a"), expect: Expect::Anything, change: Change::Remove },
            Write { key: thing("c"), expect: Expect::Absent, change: change("c") },
            Write { key: thing("b"), expect: Expect::Anything, change: change("b") },
        ],
    };
    store.commit(&id, several).await.unwrap();
    assert_eq!(store.usage(&id), expected(&store));
}
