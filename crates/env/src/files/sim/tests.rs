use super::*;

fn path(name: &str) -> PathBuf {
    Path::new("/data").join(name)
}

fn mk_disk(seed: u64) -> SimDisk {
    let disk = SimDisk::new(seed);
    disk.create_dir_all(Path::new("/data")).unwrap();
    disk
}

fn mk_file(disk: &SimDisk, name: &str, len: u64) -> Arc<dyn File> {
    let file = disk.open(&path(name), Mode::Create).unwrap();
    file.allocate_zeroed(len).unwrap();
    disk.sync_dir(Path::new("/data")).unwrap();
    file
}

/// Runs `run` on many seeds and counts the different results.
fn outcomes<T: Ord>(run: impl Fn(u64) -> T) -> BTreeSet<T> {
    (0..200).map(run).collect()
}

#[test]
fn synced_data_survives_and_the_rest_is_torn_by_sector() {
    let seen = outcomes(|seed| {
        let disk = mk_disk(seed);
        let file = mk_file(&disk, "f", 2048);
        file.write_all_at(&[1; 1024], 0).unwrap();
        file.sync().unwrap();
        file.write_all_at(&[2; 1024], 512).unwrap();
        disk.crash();
        let bytes = disk.read(&path("f")).unwrap();
        for sector in bytes.chunks(512) {
            assert!(sector.iter().all(|byte| *byte == sector[0]), "a sector is whole");
        }
        [bytes[0], bytes[512], bytes[1024], bytes[1536]]
    });
    let expected: BTreeSet<_> = [[1, 1, 0, 0], [1, 2, 0, 0], [1, 1, 2, 0], [1, 2, 2, 0]].into();
    assert_eq!(seen, expected);
}

#[test]
fn a_durable_write_survives_and_only_the_one_in_flight_is_torn() {
    let seen = outcomes(|seed| {
        let disk = mk_disk(seed);
        mk_file(&disk, "f", 1024);
        let file = disk.open(&path("f"), Mode::WriteDurable).unwrap();
        file.write_all_at(&[1; 1024], 0).unwrap();
        disk.crash_after(0);
        assert!(file.write_all_at(&[2; 1024], 0).is_err());
        assert!(file.read_exact_at(&mut [0], 0).is_err(), "no power");
        assert!(disk.open(&path("f"), Mode::Read).is_err());
        disk.crash();
        assert!(file.len().is_err(), "the handle is from before the crash");
        let bytes = disk.read(&path("f")).unwrap();
        [bytes[0], bytes[512]]
    });
    assert_eq!(seen, [[1, 1], [1, 2], [2, 1], [2, 2]].into());
}

#[test]
fn names_are_lost_until_their_directory_is_synced() {
    let seen = outcomes(|seed| {
        let disk = mk_disk(seed);
        let file = mk_file(&disk, "old", 10);
        file.write_all_at(b"0123456789", 0).unwrap();
        file.sync().unwrap();
        disk.rename(&path("old"), &path("new")).unwrap();
        disk.open(&path("more"), Mode::Create).unwrap();
        disk.crash();
        let names: Vec<_> = disk.list(Path::new("/data")).unwrap();
        let whole = names.iter().filter(|name| disk.read(name).unwrap() == b"0123456789").count();
        assert_eq!(whole, 1, "either name, never none or both");
        names
    });
    assert_eq!(seen.len(), 4);
    let disk = mk_disk(1);
    mk_file(&disk, "old", 10);
    disk.rename(&path("old"), &path("new")).unwrap();
    disk.sync_dir(Path::new("/data")).unwrap();
    disk.crash();
    assert_eq!(disk.list(Path::new("/data")).unwrap(), [path("new")]);
}

#[test]
fn an_atomic_write_leaves_the_old_or_the_new() {
    let seen = outcomes(|seed| {
        let disk = mk_disk(seed);
        disk.write_atomic(&path("f"), b"old", true).unwrap();
        disk.crash_after(seed % 7);
        let written = disk.write_atomic(&path("f"), b"newer", true);
        disk.crash();
        let bytes = disk.read(&path("f")).unwrap();
        assert!(bytes == b"old" || bytes == b"newer");
        assert!(written.is_err() || bytes == b"newer");
        bytes
    });
    assert_eq!(seen.len(), 2);
}

#[test]
fn a_full_disk_refuses_and_changes_nothing() {
    let disk = mk_disk(1);
    let file = mk_file(&disk, "f", 1000);
    disk.set_capacity(1500);
    let kind = |result: io::Result<()>| result.unwrap_err().kind();
    let other = disk.open(&path("g"), Mode::Create).unwrap();
    assert_eq!(kind(other.allocate_zeroed(501)), io::ErrorKind::StorageFull);
    assert_eq!(other.len().unwrap(), 0);
    assert_eq!(kind(file.write_all_at(&[1; 600], 1000)), io::ErrorKind::StorageFull);
    other.allocate_zeroed(500).unwrap();
    disk.remove(&path("g")).unwrap();
    file.write_all_at(&[1; 500], 1000).unwrap();
}

#[test]
fn faults_strike_where_they_were_put() {
    let disk = mk_disk(1);
    let file = mk_file(&disk, "f", 1000);
    let fault = |operation, skip, sticky| Fault { operation, skip, kind: io::ErrorKind::Other, sticky };
    disk.inject(fault(Operation::Write, 1, false));
    disk.inject(fault(Operation::Sync, 0, true));
    file.write_all_at(b"a", 0).unwrap();
    assert!(file.write_all_at(b"b", 0).is_err());
    file.write_all_at(b"c", 0).unwrap();
    assert!(file.sync().is_err());
    assert!(file.sync().is_err());
    disk.clear_faults();
    file.sync().unwrap();
    assert!(disk.flip_bit(&path("f"), 0, 1));
    assert!(!disk.flip_bit(&path("f"), 1000, 1));
    assert_eq!(disk.read(&path("f")).unwrap()[0], b'c' ^ 2);
    assert_eq!(disk.copy(9).read(&path("f")).unwrap()[0], b'c' ^ 2);
}

#[test]
fn a_lock_ends_with_its_guard_or_the_machine() {
    let disk = mk_disk(1);
    let guard = disk.lock(&path("lock")).unwrap();
    assert!(disk.lock(&path("lock")).is_err());
    drop(guard);
    let _dead = disk.lock(&path("lock")).unwrap();
    disk.crash();
    assert!(disk.lock(&path("lock")).is_ok());
}
