//! The programs that follow: others' clients, each a process that tells on stdout what reaches it.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use testing::patience::Patience;

/// A running client. Killed when dropped.
pub struct Follower {
    pub name: String,
    process: Child,
    stdin: ChildStdin,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Follower {
    pub fn start(program: &Path, kubeconfig: &Path, namespace: &str) -> Result<Follower> {
        let mut process = Command::new(program)
            .arg(namespace)
            .env("KUBECONFIG", kubeconfig)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("starting {}", program.display()))?;
        let stdin = process.stdin.take().context("no stdin")?;
        let stdout = BufReader::new(process.stdout.take().context("no stdout")?);
        let lines = Arc::new(Mutex::new(Vec::new()));
        let kept = lines.clone();
        // It ends with the process.
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                kept.lock().push(line);
            }
        });
        let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Follower { name, process, stdin, lines })
    }

    /// Waits until it has all that was there when it came.
    pub async fn initialized(&mut self) -> Result<()> {
        self.until("a first list", |lines| {
            lines.iter().any(|line| line.starts_with("initialized")).then_some(())
        })
        .await
    }

    /// It hangs: nothing reaches it, and it asks for nothing.
    pub fn pause(&self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    pub fn go_on(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill_process(Pid::from_child(&self.process), signal)?)
    }

    /// What its cache holds, by name.
    pub async fn cache(&mut self) -> Result<BTreeMap<String, u64>> {
        let before = self.lines.lock().len();
        writeln!(self.stdin, "cache")?;
        self.stdin.flush()?;
        let ended = |lines: &[String]| lines[before..].iter().any(|line| line == "end").then_some(());
        self.until("what it holds", ended).await?;
        let lines = self.lines.lock();
        let held = lines[before..].iter().filter_map(|line| line.strip_prefix("cache ")?.split_once(' '));
        held.map(|(name, version)| Ok((name.to_owned(), version.parse()?))).collect()
    }

    /// What it told of events, without what it was asked.
    pub fn told(&self) -> Vec<String> {
        let lines = self.lines.lock();
        let told = lines.iter().filter(|line| !line.starts_with("cache ") && *line != "end");
        told.cloned().collect()
    }

    async fn until<T>(&mut self, what: &str, found: impl Fn(&[String]) -> Option<T>) -> Result<T> {
        let mut patience = Patience::default();
        loop {
            let told = {
                let lines = self.lines.lock();
                if let Some(found) = found(&lines) {
                    return Ok(found);
                }
                lines.len()
            };
            let ended = self.process.try_wait()?;
            ensure!(ended.is_none(), "{} ended: {ended:?}", self.name);
            ensure!(patience.lasts(told), "{} does not tell {what}", self.name);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
