//! A store as one file: from any engine, at one commit end per workspace, whole or not at all; and history that goes
//! when it is told to.

mod support;

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use env::{
    Env, Files,
    files::sim::{Fault, Operation, SimDisk},
};
use jiff::Timestamp;
use machinery::Revision;
use store::{
    Change, Commit, Error, Expect, Key, Store, WorkspaceId, Write,
    backup::{Backup, BackupFile, Entry, Export, compare, export, import},
    embedded::{EmbeddedStore, OpenError, check, restore},
    live::{Expiry, Snapshot},
    memory::MemoryStore,
    suite::{draft, value_of},
};
use support::*;

const PLACE: &str = "/backups";
const BACKUP: &str = "/backups/one";

fn mk_place() -> (SimDisk, Env) {
    let disk = SimDisk::new(1);
    disk.create_dir_all(Path::new(PLACE)).expect("makes a directory");
    let env = mk_env(&disk);
    (disk, env)
}

fn workspace(number: usize) -> WorkspaceId {
    WorkspaceId(format!("workspace-{number:03}").into())
}

async fn write(store: &dyn Store, workspace: &WorkspaceId, writes: &[(&str, &str)]) -> Revision {
    let put = |(name, value): &(&str, &str)| {
        let change = Change::Put { draft: draft(name, value), expires: None };
        Write { key: thing(name), expect: Expect::Anything, change }
    };
    let commit = Commit { guards: Vec::new(), writes: writes.iter().map(put).collect() };
    store.commit(workspace, commit).await.expect("commits").last().expect("a record").revision
}

fn values(store: &dyn Store, workspace: &WorkspaceId) -> Vec<String> {
    let listing = store.list(workspace, &things(), None).expect("lists");
    listing.iter(None, None).map(|(key, object)| format!("{}={}", key.0, value_of(object))).collect()
}

/// Writes all of `export` to a file.
fn save(env: &Env, export: Export, path: &Path) -> Result<store::embedded::Totals, OpenError> {
    let mut file = BackupFile::create(env.files.clone(), path)?;
    for piece in export {
        file.append(&piece)?;
    }
    file.finish()
}

#[tokio::test(start_paused = true)]
async fn what_any_engine_exports_is_restored_with_its_revisions() {
    let (_, env) = mk_place();
    let memory = MemoryStore::new();
    // More than one piece, in several workspaces, one of them without objects, and something that expires.
    let large = "x".repeat(100_000);
    for number in 0..20 {
        write(&memory, &workspace(number), &[("a", "1"), ("b", &large)]).await;
        write(&memory, &workspace(number), &[("a", "2")]).await;
    }
    memory.begin_epoch(&workspace(20), 7).await.expect("begins an epoch");
    let expires = Timestamp::from_second(2_000_000_000).ok();
    let change = Change::Put { draft: draft("short", "lived"), expires };
    let write = Write { key: thing("short"), expect: Expect::Absent, change };
    memory.commit(&home(), Commit { guards: vec![], writes: vec![write] }).await.expect("commits");

    let export = Export::of(&env, &memory);
    let totals = save(&env, export, Path::new(BACKUP)).expect("saves");

    assert_eq!((totals.workspaces, totals.objects), (22, 41));
    let restored = restore(&env, Path::new(BACKUP), Path::new("/restored")).expect("restores");
    assert_eq!(restored, totals);
    let store = EmbeddedStore::open(&env, Path::new("/restored"), mk_options()).expect("opens");
    for number in 0..20 {
        let id = workspace(number);
        assert_eq!(values(&store, &id), values(&memory, &id));
        let (was, is) = (memory.get(&id, &thing("a")), store.get(&id, &thing("a")));
        assert_eq!(is.expect("is there").revision, was.expect("was there").revision);
        assert!(store.head(&id).epoch() > 7, "every epoch is above all that were");
    }
    assert_eq!(
        store.expire(Timestamp::from_second(2_000_000_001).expect("a time")).await.expect("expires"),
        1
    );
    assert!(store.get(&home(), &thing("short")).is_none());
    assert!(check(&env, Path::new("/restored")).is_err(), "it is in use");
    store.close().await.expect("closes");
    assert!(check(&env, Path::new("/restored")).expect("checks").damage.is_empty());
}

#[tokio::test(start_paused = true)]
async fn entries_can_be_given_to_anybody() {
    let (_, env) = mk_place();
    let memory = MemoryStore::new();
    write(&memory, &home(), &[("a", "1"), ("b", "2")]).await;
    let mut file = BackupFile::create(env.files.clone(), Path::new(BACKUP)).expect("creates");
    export(&env, &memory, |piece| file.append(piece)).expect("exports");
    file.finish().expect("finishes");

    let backup = Backup::open(&*env.files, Path::new(BACKUP)).expect("opens");
    let epoch = backup.next_epoch(env.clock.now()).expect("has an epoch");
    let mut seen = Vec::new();
    import(&backup, epoch, |entry| {
        seen.push(match entry {
            Entry::Workspace(it) => format!("{} from {:?}", it.id, it.head),
            Entry::Object(it) => {
                assert_eq!(it.expires, Expiry::NEVER);
                format!("{} {} {} {}", it.workspace, it.collection, it.item, it.body.len() > 50)
            }
        });
        Ok(())
    })
    .expect("imports");

    assert_eq!(backup.created(), Timestamp::from_second(env.clock.now().as_second()).ok());
    let start = Revision::start_of_epoch(epoch);
    let expected = [
        format!("home from {start:?}"),
        "home core/things ns/a true".into(),
        "home core/things ns/b true".into(),
    ];
    assert_eq!(seen, expected);
    let stopped = import(&backup, epoch, |_| Err("not this one"));
    assert!(matches!(stopped, Err(OpenError::Damaged { what, .. }) if what == "not this one"));
}

/// Each commit changes two objects of a workspace to the same value: a backup with half of one would show.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_backup_under_load_has_whole_commits_only() {
    let (_, env) = mk_place();
    let memory = Arc::new(MemoryStore::new());
    let workspaces: Vec<_> = (0..4).map(workspace).collect();
    for id in &workspaces {
        write(&*memory, id, &[("first", "0"), ("second", "0")]).await;
    }
    let writers: Vec<_> = workspaces
        .iter()
        .cloned()
        .map(|id| {
            let memory = memory.clone();
            tokio::spawn(async move {
                for value in 1.. {
                    let value = value.to_string();
                    write(&*memory, &id, &[("first", &value), ("second", &value)]).await;
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    for round in 0..30 {
        let path = PathBuf::from(format!("{PLACE}/{round}"));
        save(&env, Export::of(&env, &*memory), &path).expect("saves");
        let backup = Backup::open(&*env.files, &path).expect("opens");
        let mut heads = Vec::new();
        let mut found: Vec<Vec<machinery::Object>> = Vec::new();
        import(&backup, 9, |entry| {
            match entry {
                Entry::Workspace(it) => {
                    heads.push(it.epochs.past().last().expect("an epoch ended").end);
                    found.push(Vec::new());
                }
                Entry::Object(it) => {
                    let object = machinery::Object::from_body(it.body, machinery::EventType::Added);
                    found.last_mut().expect("a workspace came first").push(object.expect("an object"));
                }
            }
            Ok(())
        })
        .expect("reads");
        for (head, objects) in heads.iter().zip(&found) {
            assert_eq!(value_of(&objects[0]), value_of(&objects[1]), "round {round}");
            assert_eq!(objects[1].revision, *head, "the head is the end of that commit");
        }
    }
    writers.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test(start_paused = true)]
async fn nothing_has_a_backups_name_but_a_whole_backup() {
    let (disk, env) = mk_place();
    let memory = MemoryStore::new();
    for number in 0..50 {
        write(&memory, &workspace(number), &[("a", &"x".repeat(20_000))]).await;
    }
    let names = || disk.list(Path::new(PLACE)).expect("lists");

    // Given up in the middle.
    let mut file = BackupFile::create(env.files.clone(), Path::new(BACKUP)).expect("creates");
    file.append(&Export::of(&env, &memory).next().expect("a piece")).expect("writes");
    drop(file);
    assert_eq!(names(), [] as [PathBuf; 0]);

    // Cut off: the other end went away and nobody said so.
    let mut file = BackupFile::create(env.files.clone(), Path::new(BACKUP)).expect("creates");
    let pieces: Vec<_> = Export::of(&env, &memory).collect();
    pieces[..pieces.len() - 1].iter().for_each(|piece| file.append(piece).expect("writes"));
    assert!(matches!(file.finish(), Err(OpenError::Damaged { .. })));
    assert_eq!(names(), [] as [PathBuf; 0]);

    // A disk that fails at any of its calls.
    let mut failures = 0;
    for operation in [Operation::Write, Operation::Read, Operation::Sync] {
        for skip in 0.. {
            let copy = disk.copy(skip);
            let env = mk_env(&copy);
            copy.inject(Fault { operation, skip, kind: io::ErrorKind::StorageFull, sticky: true });
            if save(&env, Export::of(&env, &memory), Path::new(BACKUP)).is_ok() {
                break;
            }
            failures += 1;
            copy.clear_faults();
            // Once it has its name it is whole, even if the name might not survive a crash.
            if copy.list(Path::new(PLACE)).expect("lists").contains(&PathBuf::from(BACKUP)) {
                Backup::open(&*env.files, Path::new(BACKUP)).expect("is whole");
            }
        }
    }
    assert!(failures > 3, "{failures}");
    save(&env, Export::of(&env, &memory), Path::new(BACKUP)).expect("saves");
    assert!(BackupFile::create(env.files.clone(), Path::new(BACKUP)).is_err(), "it does not overwrite");
}

#[tokio::test(start_paused = true)]
async fn forgotten_history_gives_its_room_back() {
    let disk = SimDisk::new(1);
    let store = open(&disk);
    let first = put(&store, "a", "0").await;
    for round in 0..40 {
        put(&store, "a", &format!("{round}{}", "x".repeat(3000))).await;
        let change = Change::Put { draft: draft("b", &round.to_string()), expires: None };
        let key = Key::new("", "things", "ns", "b");
        let write = Write { key, expect: Expect::Anything, change };
        store.commit(&workspace(1), Commit { guards: vec![], writes: vec![write] }).await.expect("commits");
    }
    let segments = || disk.list(Path::new(DATA)).expect("lists").iter().filter(|it| is_log(it)).count();
    let before = segments();
    assert!(before > 8, "{before}");

    // One workspace alone: what the other needs stays.
    let freed = store.forget_history(vec![home()]).await.expect("forgets");
    assert_eq!(freed, 0);
    assert!(matches!(told(&store, first), Err(Error::Expired { .. })));
    let mut other = store.watch(&workspace(1), span(), Revision::ZERO).expect("watches");
    assert_eq!(other.take(100).expect("takes").events.len(), 40);

    // Both.
    let freed = store.forget_history(store.workspaces()).await.expect("forgets");
    assert!(freed > 0);
    assert!(segments() <= 2, "{} left of {before}", segments());
    let head = store.head(&home());
    assert_eq!(told(&store, head).expect("a watch from now on").len(), 0);
    let objects = listed(&store, None).expect("lists");
    let again = store.forget_history(store.workspaces()).await.expect("forgets again");
    assert!(
        again < 16 << 10,
        "there is nothing left but the last checkpoint, which gave way to the next: {again}"
    );

    // And it is so after a restart.
    store.close().await.expect("closes");
    assert!(check(&mk_env(&disk), Path::new(DATA)).expect("checks").damage.is_empty());
    let store = open(&disk);
    assert_eq!((store.head(&home()), listed(&store, None).expect("lists")), (head, objects));
    assert!(matches!(told(&store, first), Err(Error::Expired { .. })));
    let next = put(&store, "a", "next").await;
    assert_eq!(told(&store, head).expect("is told").len(), 1);
    assert_eq!(next.as_u64(), head.as_u64() + 1);
}

fn is_log(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("log-"))
}

/// Ten thousand histories are forgotten with a few writes, not with one each.
#[tokio::test(start_paused = true)]
async fn many_histories_are_forgotten_at_once() {
    let disk = SimDisk::new(1);
    let env = mk_env(&disk);
    let store = EmbeddedStore::open(&env, Path::new(DATA), Default::default()).expect("opens");
    let commits: Vec<_> =
        (0..3000).map(|number| store.commit(&workspace(number), put_commit("a", "1"))).collect();
    for commit in commits {
        commit.await.expect("commits");
    }
    let before = disk.changes();
    store.forget_history(store.workspaces()).await.expect("forgets");
    assert!(disk.changes() - before < 100, "{}", disk.changes() - before);
    for number in [0, 1500, 2999] {
        let position = Revision::start_of_epoch(1);
        assert!(matches!(store.watch(&workspace(number), span(), position), Err(Error::Expired { .. })));
    }
    mk_env(&disk).clock.sleep(Duration::from_secs(1)).await;
}

/// Two workspaces, the second of which began these epochs, and has an object that expires.
async fn mk_pair(value: &str, expires: i64, epochs: &[u32]) -> MemoryStore {
    let store = MemoryStore::new();
    for number in 0..2 {
        write(&store, &workspace(number), &[("a", "1")]).await;
    }
    for epoch in epochs {
        store.begin_epoch(&workspace(1), *epoch).await.expect("begins");
    }
    let expires = Timestamp::from_second(expires).ok();
    let change = Change::Put { draft: draft("b", value), expires };
    let put = Write { key: thing("b"), expect: Expect::Anything, change };
    store.commit(&workspace(1), Commit { guards: Vec::new(), writes: vec![put] }).await.expect("commits");
    store
}

fn snapshots(store: &dyn Store) -> Vec<Snapshot> {
    store.workspaces().iter().filter_map(|id| store.snapshot(id)).collect()
}

#[tokio::test]
async fn whatever_differs_between_two_stores_is_found() {
    const LATER: i64 = 4_000_000_000;
    let one = snapshots(&mk_pair("1", LATER, &[7]).await);
    let same = compare(&one, &snapshots(&mk_pair("1", LATER, &[7]).await)).expect("they are the same");
    assert_eq!((same.workspaces, same.objects), (2, 3));
    for (what, other, said) in [
        ("a value", mk_pair("2", LATER, &[7]).await, "has other objects of"),
        ("an expiry", mk_pair("1", LATER + 1, &[7]).await, "has other objects of"),
        ("an epoch", mk_pair("1", LATER, &[8]).await, "stands at"),
        ("a past epoch", mk_pair("1", LATER, &[5, 7]).await, "had other epochs"),
    ] {
        let other = snapshots(&other);
        for (left, right) in [(&one, &other), (&other, &one)] {
            let why = compare(left, right).expect_err(what);
            assert!(
                why.contains(&format!("workspace {}", workspace(1))) && why.contains(said),
                "{what}: {why}"
            );
        }
    }
    // A workspace that is missing, also where there is another one in its place.
    let few = mk_pair("1", LATER, &[7]).await;
    few.remove_workspace(&workspace(1)).await.expect("removes");
    assert_eq!(compare(&one, &snapshots(&few)).expect_err("one is missing"), "2 workspaces are not 1");
    assert_eq!(compare(&snapshots(&few), &one).expect_err("one is too much"), "1 workspaces are not 2");
    write(&few, &workspace(2), &[("b", "1")]).await;
    let why = compare(&one, &snapshots(&few)).expect_err("another one in its place");
    assert_eq!(why, format!("workspace {} is missing", workspace(1)));
    // An object more.
    let more = mk_pair("1", LATER, &[7]).await;
    write(&more, &workspace(0), &[("b", "1")]).await;
    assert!(compare(&one, &snapshots(&more)).is_err());
}
