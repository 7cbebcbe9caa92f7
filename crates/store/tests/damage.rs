//! Damage: bits that turn over, files that go, disks that fill or fail.

mod support;

use std::{
    io,
    path::{Path, PathBuf},
};

use env::{
    files::{
        Files, Mode,
        sim::{Fault, Operation, SimDisk},
    },
    random::SeededRandom,
};
use machinery::Revision;
use store::{
    Error, Store,
    embedded::{EmbeddedStore, OpenError, check, restore},
};
use support::*;

/// What a healthy store answers, to compare a damaged one with.
#[derive(Debug, PartialEq, Eq)]
struct Answers {
    head: Revision,
    objects: String,
    history: Vec<String>,
}

fn answers(store: &EmbeddedStore) -> Answers {
    Answers {
        head: store.head(&home()),
        objects: listed(store, None).expect("lists"),
        history: told(store, Revision::ZERO).unwrap_or_default(),
    }
}

/// Two segments with a checkpoint in the first, all of it acknowledged and marked.
async fn mk_disk() -> (SimDisk, Answers) {
    let disk = SimDisk::new(1);
    let store = open(&disk);
    put(&store, "a", "1").await;
    put(&store, "b", "1").await;
    store.checkpoint().await.expect("takes a checkpoint");
    put(&store, "a", "2").await;
    remove(&store, "b").await;
    store.close().await.expect("closes");
    let store = open(&disk);
    let healthy = answers(&store);
    store.close().await.expect("closes");
    assert_eq!(healthy.history.len(), 4);
    assert_eq!(disk.sizes().len(), 4, "{:?}", disk.sizes());
    (disk, healthy)
}

fn files_of(disk: &SimDisk, prefix: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let paths = disk.list(Path::new(DATA)).expect("lists").into_iter();
    let named =
        paths.filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix)));
    named.map(|path| (path.clone(), disk.read(&path).expect("reads"))).collect()
}

/// Opens a copy of the disk with one bit turned over.
fn open_flipped(disk: &SimDisk, path: &Path, offset: usize) -> Result<Answers, OpenError> {
    let copy = disk.copy(1);
    assert!(copy.flip_bit(path, offset as u64, (offset % 8) as u8));
    try_open(&copy).map(|store| answers(&store))
}

#[tokio::test(start_paused = true)]
async fn a_flipped_bit_in_the_log_is_named_or_does_not_matter() {
    let (disk, healthy) = mk_disk().await;
    let mut refused = 0;
    for (path, bytes) in files_of(&disk, "log-") {
        let last_used = bytes.iter().rposition(|byte| *byte != 0).unwrap_or(0);
        for (offset, byte) in bytes.iter().enumerate().take(last_used + 5000) {
            let in_mark = offset / 4096 == last_used / 4096;
            match open_flipped(&disk, &path, offset) {
                Ok(found) => {
                    assert_eq!(found, healthy, "{path:?} byte {offset}");
                    assert!(*byte == 0 || in_mark, "{path:?} byte {offset} is in use");
                }
                Err(OpenError::Damaged { path: named, offset: at, .. }) => {
                    assert_eq!(named, path);
                    assert!(
                        at as usize <= offset && offset < at as usize + 4096,
                        "byte {offset}, named {at}"
                    );
                    refused += 1;
                }
                // The bytes that say what kind of file it is.
                Err(OpenError::Version { path: named, .. }) => assert!(named == path && offset < 12),
                Err(other) => panic!("{path:?} byte {offset}: {other}"),
            }
        }
    }
    assert!(refused > 1000, "{refused}");
}

/// Overwrites, moves or cuts off a random part of a random file.
fn ruin(disk: &SimDisk, random: &SeededRandom) {
    let files = [files_of(disk, "log-"), files_of(disk, "checkpoint-")].concat();
    let (path, bytes) = &files[random.below(files.len() as u64) as usize];
    let file = disk.open(path, Mode::Write).expect("opens");
    let used = bytes.iter().rposition(|byte| *byte != 0).unwrap_or(0) as u64 + 1;
    let (from, to) = (random.below(used), random.below(used));
    let len = 1 + random.below(6000).min(bytes.len() as u64 - from.max(to) - 1);
    let part = match random.below(4) {
        0 => (0..len).map(|_| random.below(256) as u8).collect(),
        1 => vec![0; len as usize],
        2 => bytes[from as usize..(from + len) as usize].to_vec(),
        _ => return file.set_len(to).expect("cuts off"),
    };
    file.write_all_at(&part, to).expect("overwrites");
}

#[tokio::test(start_paused = true)]
async fn ruins_are_refused_or_a_beginning_of_the_truth() {
    let (disk, healthy) = mk_disk().await;
    let (mut refused, mut whole, mut cut) = (0, 0, 0);
    for seed in 0..1500 {
        let copy = disk.copy(seed);
        ruin(&copy, &SeededRandom::new(seed));
        match try_open(&copy) {
            Err(OpenError::Damaged { .. } | OpenError::Version { .. }) => refused += 1,
            Err(other) => panic!("seed {seed}: {other}"),
            Ok(store) => {
                let found = answers(&store);
                assert!(healthy.history.starts_with(&found.history), "seed {seed}: {found:?}");
                assert_eq!(found.history.len() as u64, found.head.seq(), "seed {seed}");
                if found == healthy { whole += 1 } else { cut += 1 }
            }
        }
    }
    // Only what destroys the last commit and the mark behind it looks like a write that was never completed.
    assert!(refused > 500 && whole > 100 && cut < 60, "{refused} refused, {whole} whole, {cut} cut off");
}

#[tokio::test(start_paused = true)]
async fn a_flipped_bit_in_a_checkpoint_is_made_good_by_the_log() {
    let (disk, healthy) = mk_disk().await;
    for (path, bytes) in files_of(&disk, "checkpoint-") {
        for offset in 0..bytes.len() {
            match open_flipped(&disk, &path, offset) {
                Ok(found) => assert_eq!(found, healthy, "{path:?} byte {offset}"),
                Err(OpenError::Version { path: named, .. }) => assert!(named == path && offset < 12),
                Err(other) => panic!("{path:?} byte {offset}: {other}"),
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_flipped_bit_in_a_checkpoint_that_the_log_needs_is_named() {
    let disk = SimDisk::new(1);
    let mut options = mk_options();
    (options.history_time, options.history_bytes) = (std::time::Duration::ZERO, 0);
    let open = |disk: &SimDisk| EmbeddedStore::open(&mk_env(disk), Path::new(DATA), options.clone());
    let store = open(&disk).expect("opens");
    for round in 0..12 {
        put(&store, "a", &round.to_string()).await;
    }
    store.checkpoint().await.expect("takes a checkpoint");
    put(&store, "b", "1").await;
    store.close().await.expect("closes");
    disk.sync_dir(Path::new(DATA)).expect("syncs");
    let (path, bytes) = files_of(&disk, "checkpoint-").remove(0);
    assert!(files_of(&disk, "log-")[0].0.ends_with("log-00000003"), "the beginning of the log is gone");
    for offset in 0..bytes.len() {
        let copy = disk.copy(1);
        copy.flip_bit(&path, offset as u64, (offset % 8) as u8);
        match open(&copy) {
            Err(OpenError::Damaged { path: named, offset: at, .. }) => {
                assert!(named == path && at as usize <= offset + 64, "byte {offset}, named {at}");
            }
            Err(OpenError::Version { .. }) => assert!(offset < 12),
            Err(other) => panic!("byte {offset}: {other}"),
            Ok(_) => panic!("byte {offset} went unnoticed"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_last_commit_is_protected_as_soon_as_the_store_is_idle() {
    for is_idle in [false, true] {
        let disk = SimDisk::new(1);
        let store = open(&disk);
        put(&store, "a", "1").await;
        put(&store, "a", "2").await;
        if is_idle {
            idle(&disk).await;
        }
        let (path, _) = files_of(&disk, "log-").remove(0);
        let copy = disk.copy(1);
        copy.flip_bit(&path, 2 * 4096 + 100, 1);
        match (is_idle, try_open(&copy)) {
            (true, Err(OpenError::Damaged { offset, .. })) => assert_eq!(offset, 2 * 4096 + 64),
            // Nothing follows the frame, so it could be a write that was never completed.
            (false, Ok(store)) => assert_eq!(listed(&store, None).expect("lists"), "ns/a=1"),
            (_, other) => panic!("idle {is_idle}: {:?}", other.err()),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn lost_and_foreign_files_are_noticed() {
    let disk = SimDisk::new(1);
    let store = open(&disk);
    for round in 0..20 {
        put(&store, "a", &round.to_string()).await;
    }
    store.close().await.expect("closes");
    let segments = files_of(&disk, "log-");
    assert!(segments.len() > 3);
    let refused = |copy: &SimDisk| match try_open(copy) {
        Err(OpenError::Damaged { path, what, .. }) => (path, what),
        other => panic!("{:?}", other.err()),
    };
    let copy = disk.copy(1);
    copy.remove(&segments[1].0).expect("removes");
    assert!(refused(&copy).1.contains("is missing"), "{:?}", refused(&copy));
    let copy = disk.copy(1);
    copy.remove(&segments[0].0).expect("removes");
    assert_eq!(refused(&copy).0, segments[0].0);
    let copy = disk.copy(1);
    copy.open(&segments[1].0, Mode::Write).expect("opens").set_len(8192).expect("cuts off");
    assert_eq!(refused(&copy).0, segments[1].0);
    let copy = disk.copy(1);
    copy.rename(&segments[2].0, &segments[1].0).expect("renames");
    copy.open(&segments[2].0, Mode::Create)
        .expect("creates")
        .write_all_at(&segments[2].1, 0)
        .expect("writes");
    assert!(refused(&copy).1.contains("name of another"));
    let other = mk_other_disk().await;
    let copy = disk.copy(1);
    let foreign = copy.open(&segments[1].0, Mode::Write).expect("opens");
    foreign.write_all_at(&files_of(&other, "log-")[1].1[..8192], 0).expect("writes");
    assert!(refused(&copy).1.contains("another log"));
}

/// The same, with another identity.
async fn mk_other_disk() -> SimDisk {
    let disk = SimDisk::new(2);
    let env = env::Env::simulated(2, disk.clone(), env::network::sim::SimNet::default());
    let store = EmbeddedStore::open(&env, Path::new(DATA), mk_options()).expect("opens");
    for round in 0..20 {
        put(&store, "a", &round.to_string()).await;
    }
    store.close().await.expect("closes");
    disk
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_refuses_writes_and_recovers() {
    let disk = SimDisk::new(1);
    let store = open(&disk);
    disk.set_capacity(disk.used());
    let mut head = store.head(&home());
    let refused = loop {
        match try_put(&store, "a", "x").await {
            Ok(revision) => head = revision,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, Error::NoSpace(_)), "{refused}");
    assert!(matches!(try_put(&store, "a", "y").await, Err(Error::NoSpace(_))));
    assert!(matches!(store.compact(&home(), head).await, Err(Error::NoSpace(_))));
    assert!(matches!(store.checkpoint().await, Err(Error::NoSpace(_))), "nothing is left behind");
    assert_eq!((store.head(&home()), listed(&store, None).expect("reads")), (head, "ns/a=x".to_owned()));
    disk.set_capacity(u64::MAX);
    assert_eq!(put(&store, "a", "z").await, head.next());
    store.checkpoint().await.expect("takes a checkpoint");
    store.close().await.expect("closes");
    assert_eq!(listed(&open(&disk), None).expect("reads"), "ns/a=z");
}

#[tokio::test(start_paused = true)]
async fn a_commit_too_large_for_a_full_disk_does_not_stop_smaller_ones() {
    let disk = SimDisk::new(1);
    let store = open(&disk);
    // More than half of the first segment, so that the next one is prepared.
    put(&store, "a", "1").await;
    put(&store, "a", "2").await;
    idle(&disk).await;
    disk.set_capacity(disk.used());
    assert!(matches!(try_put(&store, "large", &"x".repeat(100 << 10)).await, Err(Error::NoSpace(_))));
    put(&store, "a", "3").await;
    store.close().await.expect("closes");
    assert_eq!(listed(&open(&disk), None).expect("reads"), "ns/a=3");
}

/// A larger segment takes the place of the one that was prepared, and the disk fails before that is certain.
#[tokio::test(start_paused = true)]
async fn a_segment_whose_name_is_in_doubt_is_not_written_to() {
    for seed in 0..100 {
        let disk = SimDisk::new(seed);
        let store = open(&disk);
        put(&store, "a", "1").await;
        put(&store, "a", "2").await;
        idle(&disk).await;
        disk.inject(Fault { operation: Operation::Sync, skip: 2, kind: io::ErrorKind::Other, sticky: false });
        assert!(matches!(try_put(&store, "large", &"x".repeat(100 << 10)).await, Err(Error::Unavailable(_))));
        disk.clear_faults();
        put(&store, "a", "3").await;
        disk.crash();
        assert_eq!(listed(&open(&disk), None).expect("reads"), "ns/a=3", "seed {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_failed_write_the_store_only_reads() {
    for seed in 0..20 {
        let disk = SimDisk::new(seed);
        let store = open(&disk);
        let head = put(&store, "a", "1").await;
        disk.inject(Fault {
            operation: Operation::Write,
            skip: 0,
            kind: io::ErrorKind::Other,
            sticky: false,
        });
        assert!(matches!(try_put(&store, "a", "2").await, Err(Error::Unknown(_))));
        for _ in 0..2 {
            assert!(matches!(try_put(&store, "a", "3").await, Err(Error::Unavailable(_))));
            assert!(matches!(store.begin_epoch(&home(), 9).await, Err(Error::Unavailable(_))));
        }
        assert_eq!((store.head(&home()), listed(&store, None).expect("reads")), (head, "ns/a=1".to_owned()));
        assert!(store.close().await.is_err(), "says that it had failed");
        let store = open(&disk);
        let found = listed(&store, None).expect("reads");
        assert!(found == "ns/a=1" || found == "ns/a=2", "{found}");
        // What a restart has shown is there to stay.
        disk.crash();
        assert_eq!(listed(&open(&disk), None).expect("reads"), found);
    }
}

#[tokio::test(start_paused = true)]
async fn a_directory_has_one_user() {
    let disk = SimDisk::new(1);
    let store = open(&disk);
    assert!(matches!(try_open(&disk), Err(OpenError::Locked { .. })));
    assert!(matches!(check(&mk_env(&disk), Path::new(DATA)), Err(OpenError::Locked { .. })));
    put(&store, "a", "1").await;
    store.close().await.expect("closes");
    assert!(matches!(try_put(&store, "a", "2").await, Err(Error::Unavailable(_))));
    assert_eq!(listed(&store, None).expect("reads go on"), "ns/a=1");
    assert_eq!(listed(&open(&disk), None).expect("reads"), "ns/a=1");
}

#[tokio::test(start_paused = true)]
async fn check_names_every_damaged_place() {
    let (disk, _) = mk_disk().await;
    let env = mk_env(&disk);
    let report = check(&env, Path::new(DATA)).expect("checks");
    assert!(report.damage.is_empty() && report.incomplete.is_none(), "{report:?}");
    assert_eq!((report.segments, report.checkpoints, report.records, report.objects), (2, 1, 4, 2));
    let log = files_of(&disk, "log-").remove(0).0;
    let checkpoint = files_of(&disk, "checkpoint-").remove(0).0;
    disk.flip_bit(&log, 4096 + 70, 0);
    disk.flip_bit(&log, 2 * 4096 + 70, 0);
    disk.flip_bit(&checkpoint, 70, 0);
    let report = check(&env, Path::new(DATA)).expect("checks");
    let places: Vec<_> = report.damage.iter().map(ToString::to_string).collect();
    assert_eq!(places.len(), 3, "{places:?}");
    assert!(places[0].contains("checkpoint-") && places[0].contains("at byte 64"), "{places:?}");
    assert!(places[1].contains("log-00000001 is damaged at byte 4160"), "{places:?}");
    assert!(places[2].contains("log-00000001 is damaged at byte 8256"), "{places:?}");
}

#[tokio::test(start_paused = true)]
async fn a_damaged_backup_is_refused_whole() {
    let (disk, healthy) = mk_disk().await;
    let store = open(&disk);
    let env = mk_env(&disk);
    let backup = Path::new("/data/backup");
    let totals = store.backup(backup).await.expect("backs up");
    assert_eq!((totals.workspaces, totals.objects), (1, 1));
    assert!(store.backup(backup).await.is_err(), "a backup does not overwrite");
    put(&store, "later", "1").await;
    let size = disk.read(backup).expect("reads").len();
    for offset in 0..size {
        disk.flip_bit(backup, offset as u64, (offset % 8) as u8);
        let directory = PathBuf::from(format!("/restored-{offset}"));
        match restore(&env, backup, &directory) {
            Err(OpenError::Damaged { path, .. } | OpenError::Version { path, .. }) => {
                assert_eq!(path, backup)
            }
            other => panic!("byte {offset}: {:?}", other.err()),
        }
        assert!(disk.list(&directory).is_err(), "nothing was made");
        disk.flip_bit(backup, offset as u64, (offset % 8) as u8);
    }
    let whole = Path::new("/restored");
    restore(&env, backup, whole).expect("restores");
    assert!(matches!(restore(&env, backup, whole), Err(OpenError::NotEmpty { .. })));
    let restored = EmbeddedStore::open(&env, whole, mk_options()).expect("opens");
    assert_eq!(listed(&restored, None).expect("reads"), healthy.objects);
    assert!(restored.head(&home()).epoch() > healthy.head.epoch());
}
