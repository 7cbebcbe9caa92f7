//! What a workspace may hold, whoever is asked: the server that leads it, or another one, which passes it on.

use machinery::{Draft, Revision};
use serde_json::json;
use store::{
    Bounds, Change, Commit, Error, Expect, Store, Usage, WorkspaceId, Write,
    etcd::{EtcdStore, Options},
};

use super::world::{World, put, run, thing};

fn bounded(objects: u64, bytes: u64) -> Options {
    let unbounded = vec![workspace("root")];
    Options { bounds: Bounds { objects, bytes }, unbounded, ..Options::default() }
}

fn workspace(name: &str) -> WorkspaceId {
    WorkspaceId(name.into())
}

fn commit(write: Write) -> Commit {
    Commit { guards: Vec::new(), writes: vec![write] }
}

async fn set(store: &EtcdStore, whose: &str, name: &str, value: &str) -> Result<Revision, Error> {
    let committed = store.commit(&workspace(whose), commit(put(name, value, Expect::Anything))).await?;
    Ok(committed[0].revision)
}

async fn remove(store: &EtcdStore, whose: &str, name: &str) -> Result<(), Error> {
    let write = Write { key: thing(name), expect: Expect::Anything, change: Change::Remove };
    store.commit(&workspace(whose), commit(write)).await.map(drop)
}

fn is_full<T>(result: &Result<T, Error>) -> bool {
    matches!(result, Err(Error::Full { .. }))
}

/// Two servers, the first of which leads all.
async fn open(world: &World, options: &Options) -> [EtcdStore; 2] {
    let leader = world.server_with("leader", "leader", options.clone()).await;
    for whose in ["tenant", "other", "root"] {
        // To lead it without leaving a trace.
        let head = leader.head(&workspace(whose));
        leader.compact(&workspace(whose), head).await.expect("nothing to forget");
    }
    let led = leader.standing().led;
    assert!(led >= 3, "it leads {led}");
    let other = world.server_with("other", "other", options.clone()).await;
    assert_eq!(other.standing().led, 0, "it leads nothing");
    [leader, other]
}

/// Which of the two is asked.
const ASKED: [usize; 2] = [0, 1];

#[test]
fn a_full_workspace_takes_nothing_more_until_something_is_gone() {
    for asked in ASKED {
        run(async || {
            let world = World::new(41);
            let servers = open(&world, &bounded(3, 1000)).await;
            let store = &servers[asked];
            for name in ["a", "b", "c"] {
                set(store, "tenant", name, "1").await.expect("there is room");
            }
            let head = store.head(&workspace("tenant"));
            match set(store, "tenant", "d", "1").await {
                Err(Error::Full { usage, bounds }) => {
                    assert_eq!((usage.objects, bounds.objects, bounds.bytes), (3, 3, 1000));
                }
                other => panic!("{other:?}"),
            }
            assert_eq!(store.head(&workspace("tenant")), head, "a refusal changes nothing");
            set(store, "tenant", "a", "2").await.expect("what is there may change");
            assert!(is_full(&set(store, "tenant", "a", &"x".repeat(1000)).await), "within the bytes");
            set(store, "other", "d", "1").await.expect("each workspace has its own");
            for number in 0..9 {
                let large = "x".repeat(1000);
                set(store, "root", &number.to_string(), &large).await.expect("root has no bounds");
            }
            for server in &servers {
                server.close().await;
            }
            let servers = open(&world, &bounded(3, 1000)).await;
            let store = &servers[asked];
            assert!(is_full(&set(store, "tenant", "d", "1").await), "also for later processes");
            remove(store, "tenant", "b").await.expect("removes");
            set(store, "tenant", "d", "1").await.expect("there is room again");
        });
    }
}

#[test]
fn commits_that_wait_together_stay_within_bounds_together() {
    run(async || {
        let world = World::new(42);
        let servers = open(&world, &bounded(10, u64::MAX)).await;
        // At both servers at once.
        let commits: Vec<_> = (0..50)
            .map(|number| {
                let write = put(&format!("n{number}"), "1", Expect::Anything);
                servers[number % 2].commit(&workspace("tenant"), commit(write))
            })
            .collect();
        let mut taken = 0;
        for commit in commits {
            match commit.await {
                Ok(_) => taken += 1,
                refused => assert!(is_full(&refused), "{refused:?}"),
            }
        }
        assert_eq!((taken, servers[0].usage(&workspace("tenant")).objects), (10, 10));
        set(&servers[1], "other", "a", "1").await.expect("others have room");
    });
}

#[test]
fn what_is_too_much_already_may_become_less_and_be_marked_as_deleted() {
    for asked in ASKED {
        run(async || {
            // Given more than there may be
            let world = World::new(43);
            let before = open(&world, &Options::default()).await;
            for name in ["a", "b", "c"] {
                set(&before[0], "tenant", name, &"x".repeat(500)).await.expect("there are no bounds");
            }
            for server in &before {
                server.close().await;
            }
            let servers = open(&world, &bounded(2, 700)).await;
            let store = &servers[asked];
            // When it becomes less, then it is taken; and nothing that makes it more
            set(store, "tenant", "a", "less").await.expect("it is less");
            assert!(is_full(&set(store, "tenant", "a", &"x".repeat(100)).await));
            let tree = json!({
                "kind": "Thing", "apiVersion": "v1",
                "metadata": {"name": "b", "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["example.com/f"]},
                "data": {"v": "x".repeat(500)},
            });
            let draft = Draft::encode(tree.as_object().expect("an object")).expect("it encodes");
            let change = Change::Put { draft, expires: None };
            let marked = Write { key: thing("b"), expect: Expect::Anything, change };
            let marked = store.commit(&workspace("tenant"), commit(marked)).await;
            marked.expect("how else would it ever go");
            for name in ["a", "b", "c"] {
                remove(store, "tenant", name).await.expect("removes");
            }
            assert_eq!(store.usage(&workspace("tenant")), Usage::default());
        });
    }
}
