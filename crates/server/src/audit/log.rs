//! The log file: a line of JSON for each event, in a new file when one is full.
//!
//! A request that waits for its line writes it by itself if nobody else is writing: the file is in the cache of the system,
//! and waking a thread twice costs several times as much. What that thread is for is a disk that is slow: then, and
//! when several come at once, it writes the lines of all who wait.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use env::{Env, File, Files, files::Mode as OpenMode};
use jiff::{SignedDuration, Timestamp, civil};
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;

use super::{
    AuditError,
    outlet::{self, Account, Intake, Item, Mode, Outlet, Shortcut, Waiting},
};

const LINE_START: &[u8] = br#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","#;
/// Lines are taken from the queue in portions of this many.
const PORTION: usize = 256;
/// Lines are written together, up to about so many bytes.
const MOST_AT_ONCE: usize = 1 << 20;
/// A request that had to wait so long for its write was one too many: a thread that serves requests does not wait for a disk.
const SLOW: Duration = Duration::from_millis(5);
/// So long requests do not write by themselves after that.
const CAUTION: Duration = Duration::from_secs(10);
/// In the name of a file that is full.
const STAMP: &str = "%Y-%m-%dT%H-%M-%S%.3f";

/// Where lines go, and how many are kept.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// `-` is the standard output.
    pub path: PathBuf,
    /// A file does not grow larger; 0 is as upstream's: 100 MB.
    pub max_size_bytes: u64,
    /// Full files older than this are removed; 0: none.
    pub max_age_days: u32,
    /// Of full files, this many are kept; 0: all.
    pub max_backups: usize,
    pub mode: Mode,
    /// Events that may wait.
    pub buffer: usize,
}

impl LogOptions {
    pub fn at(path: impl Into<PathBuf>) -> LogOptions {
        LogOptions {
            path: path.into(),
            max_size_bytes: 100 << 20,
            max_age_days: 366,
            max_backups: 100,
            mode: Mode::Blocking,
            buffer: 10_000,
        }
    }
}

/// Opens the log, and starts the thread that writes it.
pub fn start(env: &Env, options: &LogOptions, errors: Counter) -> Result<Outlet, AuditError> {
    let failed = |source| AuditError::Log { file: options.path.clone(), source };
    let is_stdout = options.path.as_os_str() == "-";
    let target = match is_stdout {
        true => Target::Stdout,
        false => Target::File(LogFile::open(env, options).map_err(failed)?),
    };
    let target = Arc::new(Mutex::new(target));
    let (outlet, intake) = outlet::outlet(options.mode, options.buffer, errors);
    env.tasks.spawn_blocking_loop("audit-log", Box::pin(write_lines(env.clone(), intake, target.clone())));
    // Whoever reads the standard output may stop reading.
    Ok(match is_stdout {
        true => outlet,
        false => outlet.with_shortcut(Box::new(Direct::new(env, target))),
    })
}

/// Writes by the thread that has the event.
struct Direct {
    env: Env,
    target: Arc<Mutex<Target>>,
    /// In ms of the clock: the disk was slow.
    not_before: AtomicU64,
}

impl Direct {
    fn new(env: &Env, target: Arc<Mutex<Target>>) -> Direct {
        Direct { env: env.clone(), target, not_before: AtomicU64::new(0) }
    }

    /// After a write.
    fn note(&self, began: Duration, ended: Duration) {
        if ended.saturating_sub(began) > SLOW {
            let later = u64::try_from((ended + CAUTION).as_millis()).unwrap_or(u64::MAX);
            self.not_before.store(later, Ordering::Relaxed);
        }
    }
}

impl Shortcut for Direct {
    fn put(&self, event: &Bytes) -> Option<bool> {
        let began = self.env.clock.elapsed();
        if began.as_millis() < u128::from(self.not_before.load(Ordering::Relaxed)) {
            return None;
        }
        // Somebody who writes now may wait for a disk.
        let mut target = self.target.try_lock()?;
        let mut line = Vec::with_capacity(LINE_START.len() + event.len());
        add_line(&mut line, event);
        if !target.has_room_for(line.len()) {
            return None;
        }
        let written = target.put(&line, self.env.clock.now());
        drop(target);
        self.note(began, self.env.clock.elapsed());
        Some(written)
    }
}

fn add_line(text: &mut Vec<u8>, event: &[u8]) {
    text.extend_from_slice(LINE_START);
    text.extend_from_slice(event.get(1..).unwrap_or_default());
    text.push(b'\n');
}

enum Target {
    Stdout,
    File(LogFile),
}

impl Target {
    fn write(&mut self, lines: &[u8], now: Timestamp) -> io::Result<()> {
        match self {
            Target::Stdout => io::stdout().lock().write_all(lines),
            Target::File(file) => file.write(lines, now),
        }
    }

    /// As [`Self::write`]; whether it could.
    fn put(&mut self, lines: &[u8], now: Timestamp) -> bool {
        let written = self.write(lines, now);
        if let Err(error) = &written {
            tracing::error!(%error, "cannot write the audit log");
        }
        written.is_ok()
    }

    /// Whether so many bytes go where the next line goes.
    fn has_room_for(&self, bytes: usize) -> bool {
        match self {
            Target::Stdout => true,
            Target::File(file) => file.has_room_for(bytes),
        }
    }
}

/// Lines that go to the log in one write, and who waits for them.
#[derive(Default)]
struct Lines {
    text: Vec<u8>,
    waiting: Vec<Waiting>,
}

impl Lines {
    fn add(&mut self, waiting: Waiting) {
        add_line(&mut self.text, &waiting.event);
        self.waiting.push(waiting);
    }

    /// Writes them down, and tells those who wait.
    fn put(&mut self, target: &mut Target, account: &Account, now: Timestamp) {
        if self.waiting.is_empty() {
            return;
        }
        let written = target.put(&self.text, now);
        self.text.clear();
        for waiting in self.waiting.drain(..) {
            account.settle(waiting, written);
        }
    }
}

async fn write_lines(env: Env, mut intake: Intake, target: Arc<Mutex<Target>>) {
    let account = intake.account();
    let mut items = Vec::new();
    let mut lines = Lines::default();
    while intake.queue.recv_many(&mut items, PORTION).await > 0 {
        let mut held = target.lock();
        for item in items.drain(..) {
            match item {
                Item::Event(waiting) => {
                    let size = lines.text.len() + LINE_START.len() + waiting.event.len();
                    if size > MOST_AT_ONCE || !held.has_room_for(size) {
                        lines.put(&mut held, &account, env.clock.now());
                    }
                    lines.add(waiting);
                }
                Item::Flush(done) => {
                    lines.put(&mut held, &account, env.clock.now());
                    // Whoever asked may have stopped waiting.
                    let _ = done.send(());
                }
            }
        }
        lines.put(&mut held, &account, env.clock.now());
    }
}

struct LogFile {
    files: Arc<dyn Files>,
    options: LogOptions,
    file: Arc<dyn File>,
    size: u64,
}

impl LogFile {
    fn open(env: &Env, options: &LogOptions) -> io::Result<LogFile> {
        if let Some(directory) = options.path.parent().filter(|it| !it.as_os_str().is_empty()) {
            env.files.create_dir_all(directory)?;
        }
        let file = open_or_create(&*env.files, &options.path)?;
        let size = file.len()?;
        let mut options = options.clone();
        if options.max_size_bytes == 0 {
            options.max_size_bytes = 100 << 20;
        }
        Ok(LogFile { files: env.files.clone(), options, file, size })
    }

    fn has_room_for(&self, bytes: usize) -> bool {
        self.size + bytes as u64 <= self.options.max_size_bytes
    }

    fn write(&mut self, lines: &[u8], now: Timestamp) -> io::Result<()> {
        if self.size > 0 && !self.has_room_for(lines.len()) {
            self.rotate(now)?;
        }
        self.file.write_all_at(lines, self.size)?;
        self.size += lines.len() as u64;
        Ok(())
    }

    /// Sets the full file aside under a name with its time, and begins a new one.
    fn rotate(&mut self, now: Timestamp) -> io::Result<()> {
        let mut stamp = now;
        let mut aside = self.aside(stamp);
        // Two in the same millisecond must not become one.
        while self.files.open(&aside, OpenMode::Read).is_ok() {
            stamp = stamp.checked_add(SignedDuration::from_millis(1)).map_err(io::Error::other)?;
            aside = self.aside(stamp);
        }
        self.files.rename(&self.options.path, &aside)?;
        self.file = open_or_create(&*self.files, &self.options.path)?;
        self.size = self.file.len()?;
        if let Err(error) = self.remove_old(now) {
            tracing::warn!(%error, "cannot remove old audit logs");
        }
        Ok(())
    }

    /// `audit.log` becomes `audit-2006-01-02T15-04-05.000.log`.
    fn aside(&self, stamp: Timestamp) -> PathBuf {
        let (stem, extension) = name_parts(&self.options.path);
        self.options.path.with_file_name(format!("{stem}{}{extension}", stamp.strftime(STAMP)))
    }

    fn remove_old(&self, now: Timestamp) -> io::Result<()> {
        let (stem, extension) = name_parts(&self.options.path);
        let directory = self.options.path.parent().filter(|it| !it.as_os_str().is_empty());
        let mut full: Vec<(Timestamp, PathBuf)> = self
            .files
            .list(directory.unwrap_or(Path::new(".")))?
            .into_iter()
            .filter_map(|path| Some((stamp_of(&path, &stem, &extension)?, path)))
            .collect();
        full.sort();
        let age = SignedDuration::from_hours(24 * i64::from(self.options.max_age_days));
        let oldest = now.checked_sub(age).unwrap_or(Timestamp::MIN);
        let too_many = match self.options.max_backups {
            0 => 0,
            kept => full.len().saturating_sub(kept),
        };
        for (at, (stamp, path)) in full.iter().enumerate() {
            if at < too_many || (self.options.max_age_days > 0 && *stamp < oldest) {
                self.files.remove(path)?;
            }
        }
        Ok(())
    }
}

/// What stands before and after the time in the name of a full file.
fn name_parts(path: &Path) -> (String, String) {
    let text = |part: Option<&std::ffi::OsStr>| part.unwrap_or_default().to_string_lossy().into_owned();
    let extension = path.extension().map(|it| format!(".{}", it.to_string_lossy())).unwrap_or_default();
    (format!("{}-", text(path.file_stem())), extension)
}

fn stamp_of(path: &Path, stem: &str, extension: &str) -> Option<Timestamp> {
    let name = path.file_name()?.to_str()?;
    let text = name.strip_prefix(stem)?.strip_suffix(extension)?;
    let time = civil::DateTime::strptime("%Y-%m-%dT%H-%M-%S%.f", text).ok()?;
    time.to_zoned(jiff::tz::TimeZone::UTC).ok().map(|it| it.timestamp())
}

fn open_or_create(files: &dyn Files, path: &Path) -> io::Result<Arc<dyn File>> {
    match files.open(path, OpenMode::Write) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => files.open(path, OpenMode::Create),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk_log(directory: &Path, max_size_bytes: u64, max_backups: usize) -> LogFile {
        let options = LogOptions {
            max_size_bytes,
            max_backups,
            max_age_days: 1,
            ..LogOptions::at(directory.join("audit.log"))
        };
        LogFile::open(&Env::real(), &options).unwrap()
    }

    fn names(directory: &Path) -> Vec<String> {
        let files = Env::real().files.list(directory).unwrap();
        files.iter().map(|path| path.file_name().unwrap().to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn a_full_file_is_set_aside_and_the_oldest_go() {
        let directory = tempfile::tempdir().unwrap();
        let mut log = mk_log(directory.path(), 10, 2);
        let at = |seconds: i64| Timestamp::from_second(1_893_456_000 + seconds).unwrap();
        for (line, seconds) in [("one....\n", 0), ("two....\n", 1), ("three..\n", 1), ("four...\n", 2)] {
            log.write(line.as_bytes(), at(seconds)).unwrap();
        }
        let expected =
            ["audit-2030-01-01T00-00-01.001.log", "audit-2030-01-01T00-00-02.000.log", "audit.log"];
        assert_eq!(names(directory.path()), expected, "of three full files two are kept");
        let text = |name: &str| Env::real().files.read(&directory.path().join(name)).unwrap();
        assert_eq!((text(expected[0]), text(expected[2])), (b"two....\n".to_vec(), b"four...\n".to_vec()));
    }

    #[test]
    fn files_that_are_too_old_go_and_files_of_others_stay() {
        let directory = tempfile::tempdir().unwrap();
        for other in
            ["audit-mine.log", "other-2020-01-01T00-00-00.000.log", "audit-2020-01-01T00-00-00.000.log"]
        {
            Env::real().files.write_atomic(&directory.path().join(other), b"x", false).unwrap();
        }
        let mut log = mk_log(directory.path(), 4, 0);
        let now = Timestamp::from_second(1_893_456_000).unwrap();
        log.write(b"one\n", now).unwrap();
        log.write(b"two\n", now).unwrap();
        let expected = [
            "audit-2030-01-01T00-00-00.000.log",
            "audit-mine.log",
            "audit.log",
            "other-2020-01-01T00-00-00.000.log",
        ];
        assert_eq!(names(directory.path()), expected);
    }

    #[tokio::test]
    async fn lines_that_wait_together_are_all_written_and_no_file_grows_too_large() {
        // Given many events that wait, for files that hold three lines each
        let directory = tempfile::tempdir().unwrap();
        let mk_event = |number: usize| Bytes::from(format!(r#"{{"number":1{number:03}}}"#));
        let line = LINE_START.len() + mk_event(0).len();
        let log = mk_log(directory.path(), 3 * line as u64 + 1, 0);
        let (near, intake) = outlet::outlet(Mode::Batch, 1000, Counter::default());
        for number in 0..100 {
            near.tell_now("w", mk_event(number));
        }
        // When they are written
        let written = write_lines(Env::real(), intake, Arc::new(Mutex::new(Target::File(log))));
        let ((), ()) = tokio::join!(written, async move {
            near.flush().await;
            drop(near);
        });
        // Then each is there once, in order
        let mut files = names(directory.path());
        files.sort_by_key(|name| (name == "audit.log", name.clone()));
        let (mut numbers, mut sizes) = (Vec::new(), Vec::new());
        for name in files {
            let text =
                String::from_utf8(Env::real().files.read(&directory.path().join(name)).unwrap()).unwrap();
            sizes.push(text.lines().count());
            let events = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
            numbers.extend(events.map(|event| event["number"].as_u64().unwrap()));
        }
        assert_eq!(numbers, (1000..1100).collect::<Vec<u64>>());
        assert!(sizes.iter().all(|lines| *lines <= 3), "{sizes:?}");
        assert_eq!(sizes.len(), 34);
    }

    #[test]
    fn a_request_writes_its_own_line_unless_somebody_writes_or_the_disk_is_slow() {
        // Given a log that nobody writes to
        let directory = tempfile::tempdir().unwrap();
        let target = Arc::new(Mutex::new(Target::File(mk_log(directory.path(), 1000, 0))));
        let direct = Direct::new(&Env::real(), target.clone());
        let event = Bytes::from_static(br#"{"number":1}"#);
        let lines = || names(directory.path()).len() + count_lines(&directory.path().join("audit.log"));
        // When a request has an event, then it is out at once
        assert_eq!((direct.put(&event), lines()), (Some(true), 2));
        // While somebody else writes, it is not
        let writing = target.lock();
        assert_eq!(direct.put(&event), None);
        drop(writing);
        // A write that was slow is the last for a while
        let now = direct.env.clock.elapsed();
        direct.note(now, now + SLOW);
        assert_eq!((direct.put(&event), lines()), (Some(true), 3));
        direct.note(now, now + SLOW * 2);
        assert_eq!((direct.put(&event), lines()), (None, 3));
        direct.note(now, now);
        assert_eq!(direct.put(&event), None, "a quick one does not end it");
    }

    fn count_lines(path: &Path) -> usize {
        Env::real().files.read(path).unwrap().iter().filter(|byte| **byte == b'\n').count()
    }

    #[test]
    fn a_log_is_continued() {
        let directory = tempfile::tempdir().unwrap();
        let now = Timestamp::from_second(1_893_456_000).unwrap();
        mk_log(directory.path(), 1000, 0).write(b"one\n", now).unwrap();
        mk_log(directory.path(), 1000, 0).write(b"two\n", now).unwrap();
        assert_eq!(Env::real().files.read(&directory.path().join("audit.log")).unwrap(), b"one\ntwo\n");
    }
}
