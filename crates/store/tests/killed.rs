//! `kill -9` of a real process on a real disk: what it was told is durable is there.

#![allow(clippy::disallowed_methods)]

mod support;

use std::{
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use env::Env;
use store::{
    Store,
    embedded::{EmbeddedStore, OpenError, Options, check},
    suite::value_of,
};
use support::{home, put_commit, thing};

/// Set for the process that writes: the directory to write in.
const DIRECTORY: &str = "HANSE_TEST_KILL_DIRECTORY";
const WRITERS: usize = 8;

fn options() -> Options {
    Options {
        first_segment_bytes: 256 << 10,
        segment_bytes: 512 << 10,
        checkpoint_bytes: 1 << 20,
        ..Options::default()
    }
}

fn open(directory: &Path) -> Result<EmbeddedStore, OpenError> {
    EmbeddedStore::open(&Env::real(), directory, options())
}

/// The process to be killed: counts up, and prints every number that was acknowledged.
#[test]
fn write_until_killed() {
    let Some(directory) = std::env::var_os(DIRECTORY).map(PathBuf::from) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let store = open(&directory).expect("opens");
        let mut writers = Vec::new();
        for writer in 0..WRITERS {
            writers.push(tokio::spawn(count_up(store.clone(), format!("writer-{writer}"))));
        }
        for writer in writers {
            writer.await.expect("the writer ends well");
        }
    });
}

async fn count_up(store: EmbeddedStore, name: String) {
    let from =
        store.get(&home(), &thing(&name)).map_or(0, |object| value_of(&object).parse().expect("a number"));
    for number in from + 1..u64::MAX {
        store.commit(&home(), put_commit(&name, &number.to_string())).await.expect("commits");
        let line = format!("\nack {name} {number}\n");
        std::io::stdout().write_all(line.as_bytes()).expect("prints");
    }
}

fn start(directory: &Path) -> Child {
    let program = std::env::current_exe().expect("this program");
    let mut command = Command::new(program);
    command.args(["write_until_killed", "--exact", "--nocapture"]).env(DIRECTORY, directory);
    command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("starts")
}

/// Reads acknowledgements until there are `count`, kills the process, and reads the rest.
fn acknowledged_until_killed(mut child: Child, count: usize) -> Vec<(String, u64)> {
    let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
    let mut acknowledged = Vec::new();
    let mut next = || {
        let line = lines.next()?.ok()?;
        let mut words = line.strip_prefix("ack ").unwrap_or_default().split(' ').map(str::to_owned);
        Some(words.next().zip(words.next().and_then(|number| number.parse().ok())))
    };
    while acknowledged.len() < count {
        acknowledged.extend(next().expect("the process runs"));
    }
    child.kill().expect("kills");
    while let Some(line) = next() {
        acknowledged.extend(line);
    }
    child.wait().expect("ends");
    acknowledged
}

#[tokio::test]
async fn a_killed_process_loses_nothing_it_acknowledged() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path().join("data");
    for round in 0..4 {
        let child = start(&data);
        let acknowledged = acknowledged_until_killed(child, 300 + round * 150);
        let report = check(&Env::real(), &data).expect("checks");
        assert!(report.damage.is_empty(), "{report:?}");
        let store = open(&data).expect("the lock went with the process");
        for writer in 0..WRITERS {
            let name = format!("writer-{writer}");
            let last = acknowledged.iter().filter(|(who, _)| *who == name).map(|(_, number)| *number).max();
            let found = store
                .get(&home(), &thing(&name))
                .map_or(0, |object| value_of(&object).parse().expect("a number"));
            let last = last.unwrap_or(0);
            // One more may have been written and not answered, or answered and not printed whole.
            assert!(
                found >= last && (last == 0 || found <= last + 2),
                "{name}: {found}, acknowledged {last}"
            );
        }
        store.close().await.expect("closes");
    }
}
