//! Runs seeds, each in a process of its own, so that one is the same alone and among others.
//!
//! A process has chances that are not [`env::Env`]'s: hash tables, and which of several that are ready comes first. They
//! come from a small library instead that is preloaded.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::atomic::{AtomicUsize, Ordering},
};

use anyhow::{Context, Result, ensure};
use parking_lot::Mutex;

/// Names the seed that this process is for.
pub const INSIDE: &str = "HANSE_SAFETY_INSIDE";
/// Before what tells two runs apart.
const DIGEST: &str = "digest ";

pub struct Seeds {
    library: PathBuf,
    _directory: tempfile::TempDir,
}

impl Seeds {
    pub fn new() -> Result<Seeds> {
        let directory = tempfile::tempdir()?;
        let library = directory.path().join("chances.so");
        build(&directory.path().join("chances.c"), &library)?;
        Ok(Seeds { library, _directory: directory })
    }

    /// Runs the test of this name inside; it finds its seed in [`INSIDE`].
    pub fn run(&self, test: &str, seed: u64) -> Result<Output> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args([test, "--exact", "--nocapture", "--test-threads=1"]);
        command.env("LD_PRELOAD", &self.library).env(INSIDE, seed.to_string());
        Ok(command.output()?)
    }

    /// As many at once as there are processors. Answers what went wrong, by seed.
    pub fn run_all(&self, test: &str, seeds: &[u64]) -> BTreeMap<u64, String> {
        let next = AtomicUsize::new(0);
        let failed = Mutex::new(BTreeMap::new());
        let threads = std::thread::available_parallelism().map_or(1, |it| it.get());
        let work = || {
            loop {
                let Some(seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed)) else { return };
                let why = match self.run(test, *seed) {
                    Ok(output) if output.status.success() => continue,
                    Ok(output) => text(&output),
                    Err(error) => format!("{error:#}"),
                };
                println!("seed {seed} failed:\n{why}");
                failed.lock().insert(*seed, why);
            }
        };
        std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
        failed.into_inner()
    }
}

fn build(source: &Path, library: &Path) -> Result<()> {
    std::fs::write(source, include_str!("chances.c"))?;
    let mut compiler = Command::new("cc");
    let output = compiler.args(["-shared", "-fPIC", "-O2", "-o"]).arg(library).arg(source).output();
    let output = output.context("there is no C compiler")?;
    ensure!(output.status.success(), "cc: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

pub fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

pub fn print_digest(digest: u64) {
    println!("{DIGEST}{digest:016x}");
}

/// What a run has printed with [`print_digest`].
pub fn digest(output: &Output) -> Option<String> {
    let text = text(output);
    text.lines().find_map(|line| line.split_once(DIGEST)).map(|(_, digest)| digest.to_owned())
}
