//! A wall clock of one's own for a process: the machine's, off by some seconds.
//!
//! The machine's own clock is everybody's, so it is not touched. A small library is preloaded instead, which works for
//! programs that ask the C library for the time, as Hanse does and etcd does not.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use super::run;

pub struct Clock {
    library: PathBuf,
    offset: PathBuf,
}

impl Clock {
    /// Builds the library in `directory`.
    ///
    /// # Errors
    /// There is no C compiler.
    pub fn new(directory: &Path) -> Result<Clock> {
        let (source, library) = (directory.join("clock.c"), directory.join("clock.so"));
        fs::write(&source, include_str!("clock.c"))?;
        let (from, to) = (source.display().to_string(), library.display().to_string());
        run(&["cc", "-shared", "-fPIC", "-O2", "-o", &to, &from])?;
        let clock = Clock { library, offset: directory.join("clock-offset") };
        clock.set(0)?;
        Ok(clock)
    }

    /// The command that runs the rest of its line by this clock.
    pub fn enter(&self) -> Vec<String> {
        let preload = format!("LD_PRELOAD={}", self.library.display());
        vec!["env".to_owned(), preload, format!("HANSE_CLOCK_OFFSET={}", self.offset.display())]
    }

    /// By so many seconds it is ahead of the machine's, from now on.
    pub fn set(&self, seconds: i64) -> Result<()> {
        // Whole or not at all: it is read all the time.
        let new = self.offset.with_extension("new");
        fs::write(&new, seconds.to_string())?;
        fs::rename(&new, &self.offset).with_context(|| format!("cannot write {}", self.offset.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_goes_by_its_own_clock() {
        let directory = tempfile::tempdir().expect("a directory");
        let Ok(clock) = Clock::new(directory.path()) else {
            eprintln!("not tested: there is no C compiler");
            return;
        };
        clock.set(-1_000_000_000).expect("set");
        let mut line = clock.enter();
        line.extend(["date".to_owned(), "+%s".to_owned()]);
        let line: Vec<&str> = line.iter().map(String::as_str).collect();
        let there: i64 = run(&line).expect("date runs").parse().expect("a number");
        let here = run(&["date", "+%s"]).expect("date runs").parse::<i64>().expect("a number");
        assert!((here - there - 1_000_000_000).abs() < 60, "{here} here, {there} there");
    }
}
