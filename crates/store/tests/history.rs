//! History past memory: read back from the log and the base checkpoint, also by a later process.

mod support;

use std::{path::Path, time::Duration};

use env::files::{Files, sim::SimDisk};
use jiff::{SignedDuration, Timestamp};
use machinery::Revision;
use store::{
    Change, Commit, Error, Expect, Store, WorkspaceId, Write,
    embedded::{EmbeddedStore, Options},
    suite::draft,
};
use support::*;

/// Writes a little of everything and notes what it should look like.
async fn write_rounds(store: &EmbeddedStore, rounds: std::ops::Range<u32>) -> Vec<(Revision, String)> {
    let mut past = Vec::new();
    for round in rounds {
        let revision = match round % 5 {
            4 => remove(store, "a").await,
            3 => put(store, &format!("n{round}"), "1").await,
            2 => put(store, "b", &format!("{round}-{}", "x".repeat(3000))).await,
            _ => put(store, "a", &round.to_string()).await,
        };
        past.push((revision, listed(store, None).expect("lists")));
    }
    past
}

#[tokio::test(start_paused = true)]
async fn a_later_process_reads_the_whole_history() {
    let disk = SimDisk::new(1);
    let store = open(&disk);
    let mut past = write_rounds(&store, 0..12).await;
    store.checkpoint().await.expect("takes a checkpoint");
    past.extend(write_rounds(&store, 12..25).await);
    let before = told(&store, Revision::ZERO).expect("watches");
    assert_eq!(before.len(), 25);
    for restart in 0..3 {
        match restart {
            0 => store.close().await.expect("closes"),
            _ => disk.crash(),
        }
        let store = open(&disk);
        assert_eq!(told(&store, Revision::ZERO).expect("watches"), before);
        for (index, (revision, objects)) in past.iter().enumerate() {
            assert_eq!(listed(&store, Some(*revision)).expect("lists"), *objects);
            assert_eq!(told(&store, *revision).expect("watches"), before[index + 1..]);
        }
        store.close().await.expect("closes");
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_replaced_is_found_in_the_base_checkpoint() {
    let disk = SimDisk::new(1);
    let options = Options { history_time: Duration::ZERO, history_bytes: 0, ..mk_options() };
    let open = || EmbeddedStore::open(&mk_env(&disk), Path::new(DATA), options.clone()).expect("opens");
    let store = open();
    for name in ["a", "b", "c"] {
        put(&store, name, "old").await;
    }
    let base = write_rounds(&store, 0..20).await.last().expect("rounds").0;
    store.checkpoint().await.expect("takes a checkpoint");
    let segments = disk.sizes().iter().filter(|(path, _)| path.to_string_lossy().contains("log-")).count();
    assert_eq!(segments, 2, "the tail and the one prepared: {:?}", disk.sizes());
    put(&store, "c", "new").await;
    remove(&store, "b").await;
    put(&store, "d", "new").await;
    for _ in 0..40 {
        put(&store, "e", &"x".repeat(3000)).await;
    }
    let check = |store: &EmbeddedStore| {
        let lines = told(store, base).expect("watches");
        assert!(lines[0].contains("ns/c: old@1:3 -> new"), "{}", lines[0]);
        assert!(lines[1].contains("ns/b: 17-xxx") && lines[1].ends_with("-> -"), "{}", lines[1]);
        assert!(lines[2].contains("ns/d: - -> new"), "{}", lines[2]);
        let gone = told(store, Revision::from_u64(base.as_u64() - 1).expect("a revision"));
        assert!(matches!(gone, Err(Error::Expired { .. })));
        assert!(listed(store, Some(base)).expect("lists").starts_with("ns/b=17-x"));
    };
    check(&store);
    store.close().await.expect("closes");
    check(&open());
}

#[tokio::test(start_paused = true)]
async fn history_is_bounded_in_bytes_and_kept_for_its_time() {
    let disk = SimDisk::new(1);
    let options = Options {
        history_time: Duration::from_secs(300),
        history_bytes: 400 << 10,
        checkpoint_bytes: 40 << 10,
        ..mk_options()
    };
    let store = EmbeddedStore::open(&mk_env(&disk), Path::new(DATA), options).expect("opens");
    let clock = mk_env(&disk).clock;
    let (mut checked, mut recent) = (0, Vec::new());
    for round in 0..600 {
        recent.push((clock.elapsed(), put(&store, "a", &round.to_string()).await));
        clock.sleep(Duration::from_secs(2)).await;
        assert!(disk.used() < 600 << 10, "round {round}: {}", disk.used());
        // 150 commits of a block each, and as many marks, are five minutes and fit the bound of bytes only in part.
        let young = recent.iter().rev().take(30);
        for (_, revision) in young {
            assert!(store.watch(&home(), span(), *revision).is_ok(), "{revision:?} is young");
            checked += 1;
        }
    }
    assert!(checked > 10_000);
    assert!(matches!(store.watch(&home(), span(), recent[0].1), Err(Error::Expired { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_slow_watch_fails_when_history_passes_it() {
    let disk = SimDisk::new(1);
    let options = Options {
        history_time: Duration::ZERO,
        history_bytes: 100 << 10,
        checkpoint_bytes: 40 << 10,
        ..mk_options()
    };
    let store = EmbeddedStore::open(&mk_env(&disk), Path::new(DATA), options).expect("opens");
    let mut watch = store.watch(&home(), span(), store.head(&home())).expect("watches");
    let mut seen = 0;
    for round in 0..5 {
        put(&store, "a", &round.to_string()).await;
    }
    seen += watch.take(3).expect("is still there").events.len();
    for round in 0..200 {
        put(&store, "a", &round.to_string()).await;
        tokio::task::yield_now().await;
    }
    assert_eq!(seen, 3);
    watch.changed().await;
    assert!(matches!(watch.take(10), Err(Error::Expired { .. })));
}

#[tokio::test(start_paused = true)]
async fn epochs_compaction_and_expiry_outlive_log_and_checkpoint() {
    let disk = SimDisk::new(1);
    let store = open(&disk);
    let first = put(&store, "a", "1").await;
    let second = put(&store, "a", "2").await;
    store.begin_epoch(&home(), 7).await.expect("begins");
    let third = put(&store, "a", "3").await;
    assert_eq!(third, Revision::start_of_epoch(7).next());
    store.compact(&home(), second).await.expect("compacts");
    let soon = Timestamp::UNIX_EPOCH + SignedDuration::from_secs(10);
    let change = Change::Put { draft: draft("brief", "1"), expires: Some(soon) };
    let writes = vec![Write { key: thing("brief"), expect: Expect::Absent, change }];
    store.commit(&home(), Commit { guards: Vec::new(), writes }).await.expect("commits");
    store.close().await.expect("closes");
    for with_checkpoint in [false, true] {
        let store = open(&disk);
        if with_checkpoint {
            store.checkpoint().await.expect("takes a checkpoint");
            store.close().await.expect("closes");
        }
        let store = if with_checkpoint { open(&disk) } else { store };
        let expired = |after| matches!(store.watch(&home(), span(), after), Err(Error::Expired { .. }));
        assert!(expired(first) && expired(Revision::ZERO), "compacted");
        assert!(expired(second.next()) && expired(Revision::start_of_epoch(3)), "never existed");
        assert_eq!(told(&store, second).expect("watches").len(), 2);
        assert_eq!(store.collections(&home()), [things()]);
        assert!(store.last_change(&home(), &things()) >= third);
        assert_eq!(store.expire(soon - SignedDuration::from_secs(1)).await.expect("expires"), 0);
        if with_checkpoint {
            assert_eq!(store.expire(soon).await.expect("expires"), 1);
            assert_eq!(listed(&store, None).expect("lists"), "ns/a=3");
        }
        store.close().await.expect("closes");
    }
}

#[tokio::test(start_paused = true)]
async fn a_replica_outlives_log_and_checkpoint() {
    let disk = SimDisk::new(1);
    let store = open(&disk);
    let record = |revision, name: &str| {
        let change = Change::Put { draft: draft(name, "1"), expires: None };
        (revision, Write { key: thing(name), expect: Expect::Anything, change })
    };
    let start = store.head(&home());
    let (one, two) = (start.next(), start.next().next());
    let later = Revision::start_of_epoch(5).next();
    store.commit_at(&home(), start, vec![record(one, "a"), record(two, "b")]).await.expect("continues");
    store.commit_at(&home(), two, vec![record(later, "c")]).await.expect("begins an epoch");
    store.close().await.expect("closes");
    for _ in 0..2 {
        let store = open(&disk);
        assert_eq!(store.head(&home()), later);
        assert_eq!(listed(&store, Some(one)).expect("lists"), "ns/a=1 ns/b=1", "at the end of the commit");
        assert_eq!(told(&store, one).expect("watches"), ["1:2 ns/b: - -> 1@1:2", "5:1 ns/c: - -> 1@5:1"]);
        for lost in [two.next(), Revision::start_of_epoch(4)] {
            assert!(matches!(store.watch(&home(), span(), lost), Err(Error::Expired { .. })), "{lost:?}");
        }
        store.checkpoint().await.expect("takes a checkpoint");
        store.close().await.expect("closes");
    }
    let store = open(&disk);
    store.commit_at(&home(), later, vec![record(later.next(), "d")]).await.expect("continues");
}

#[tokio::test(start_paused = true)]
async fn a_workspace_made_again_does_not_remember() {
    let disk = SimDisk::new(1);
    let store = open(&disk);
    let other = WorkspaceId("other".into());
    put(&store, "a", "1").await;
    store.commit(&other, put_commit("x", "1")).await.expect("commits");
    store.checkpoint().await.expect("takes a checkpoint");
    put(&store, "b", "1").await;
    store.remove_workspace(&home()).await.expect("removes");
    assert_eq!(store.head(&home()), Revision::start_of_epoch(1));
    put(&store, "c", "1").await;
    for _ in 0..2 {
        let store = open_after(&disk, &store).await;
        assert_eq!(told(&store, Revision::ZERO).expect("watches"), ["1:1 ns/c: - -> 1@1:1"]);
        assert_eq!(listed(&store, None).expect("lists"), "ns/c=1");
        assert_eq!(store.workspaces(), [home(), other.clone()]);
        store.checkpoint().await.expect("takes a checkpoint");
        store.close().await.expect("closes");
    }
}

#[tokio::test(start_paused = true)]
async fn a_workspace_made_again_is_not_held_to_its_old_checkpoint() {
    let disk = SimDisk::new(1);
    let options = Options { history_time: Duration::ZERO, history_bytes: 0, ..mk_options() };
    let open = || EmbeddedStore::open(&mk_env(&disk), Path::new(DATA), options.clone()).expect("opens");
    let store = open();
    write_rounds(&store, 0..20).await;
    store.checkpoint().await.expect("takes a checkpoint");
    store.remove_workspace(&home()).await.expect("removes");
    put(&store, "c", "1").await;
    put(&store, "c", &"x".repeat(2000)).await;
    put(&store, "c", "3").await;
    assert_eq!(told(&store, Revision::ZERO).expect("watches").len(), 3);
    store.close().await.expect("closes");
    disk.sync_dir(Path::new(DATA)).expect("syncs");
    assert_eq!(told(&open(), Revision::ZERO).expect("watches").len(), 3);
}

async fn open_after(disk: &SimDisk, store: &EmbeddedStore) -> EmbeddedStore {
    let _ = store.close().await;
    open(disk)
}

#[tokio::test(start_paused = true)]
async fn an_object_larger_than_a_segment_has_one_of_its_own() {
    let disk = SimDisk::new(1);
    let store = open(&disk);
    put(&store, "small", "1").await;
    let large = "x".repeat(200 << 10);
    put(&store, "large", &large).await;
    put(&store, "small", "2").await;
    store.close().await.expect("closes");
    let store = open(&disk);
    assert_eq!(listed(&store, None).expect("lists"), format!("ns/large={large} ns/small=2"));
    assert_eq!(told(&store, Revision::ZERO).expect("watches").len(), 3);
    assert!(disk.list(Path::new(DATA)).expect("lists").len() < 8);
}

#[allow(clippy::disallowed_methods, reason = "permissions are not part of Env")]
fn metadata(path: &Path) -> std::fs::Metadata {
    std::fs::metadata(path).expect("metadata")
}

#[tokio::test]
async fn a_new_directory_is_ready_at_once_and_private() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path().join("data");
    let store = EmbeddedStore::open(&env::Env::real(), &data, Options::default()).expect("opens");
    put(&store, "a", "1").await;
    store.close().await.expect("closes");
    for path in env::Env::real().files.list(&data).expect("lists") {
        let mode = metadata(&path).permissions().mode();
        assert_eq!(mode & 0o077, 0, "objects hold secrets");
    }
    let store = EmbeddedStore::open(&env::Env::real(), &data, Options::default()).expect("opens");
    assert_eq!(listed(&store, None).expect("lists"), "ns/a=1");
}
