//! What a person has who looks after clusters: a hub of their own, `hanse`, and kubectl.

use std::{
    io::Read,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::mpsc,
    time::Duration,
};

use anyhow::{Context, Result};
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    patience::Patience,
    process::{HubProcess, binary},
};

/// How often something that is waited for is asked after: each time starts a program.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// A hub as a process, and the programs that people use with it.
pub struct Operator {
    pub data: PathBuf,
    kubectl: PathBuf,
    hub: Option<HubProcess>,
    /// Where it listens, now or when it is started again.
    port: u16,
    _directory: TempDir,
}

/// What a program said, and whether it was content.
#[derive(Debug)]
pub struct Said {
    pub done: bool,
    /// What it printed, then what it complained of.
    pub text: String,
}

impl Operator {
    /// # Errors
    /// The hub did not start.
    pub fn start(kubectl: PathBuf) -> Result<Operator> {
        let directory = tempfile::tempdir()?;
        let data = directory.path().join("hub");
        std::fs::create_dir(&data)?;
        let hub = HubProcess::start(&data)?;
        let port = hub.url.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).context("a port")?;
        Ok(Operator { data, kubectl, hub: Some(hub), port, _directory: directory })
    }

    /// Kills the hub.
    ///
    /// # Errors
    /// There is none.
    pub fn stop_hub(&mut self) -> Result<()> {
        self.hub.take().context("there is a hub")?.kill()
    }

    /// Kills the hub if it runs, and starts it where it was.
    ///
    /// # Errors
    /// It did not start again.
    pub fn restart_hub(&mut self) -> Result<()> {
        if let Some(hub) = self.hub.take() {
            hub.kill()?;
        }
        self.hub = Some(HubProcess::start_on(&self.data, self.port)?);
        Ok(())
    }

    /// The program of this repository, with this hub.
    pub fn hanse(&self, args: &[&str]) -> Said {
        let mut command = Command::new(binary().expect("hanse is built"));
        command.args(args).arg("--hub-kubeconfig").arg(self.kubeconfig());
        Said::by(command.output().expect("hanse starts"))
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.data.join("admin.kubeconfig")
    }

    /// kubectl with this hub.
    pub fn hub(&self, args: &[&str]) -> Said {
        self.kubectl(&self.kubeconfig(), args)
    }

    pub fn kubectl(&self, kubeconfig: &Path, args: &[&str]) -> Said {
        Said::by(self.command(kubeconfig, args).output().expect("kubectl starts"))
    }

    /// kubectl with this hub, which goes on until it is dropped.
    pub fn hub_stream(&self, args: &[&str]) -> Stream {
        Stream::start(self.command(&self.kubeconfig(), args))
    }

    fn command(&self, kubeconfig: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(&self.kubectl);
        command.arg("--kubeconfig").arg(kubeconfig).args(args).stdin(Stdio::null());
        command
    }

    /// Creates objects by kubectl.
    pub fn create(&self, kubeconfig: &Path, object: &Value) {
        let file = self.data.with_file_name("object.json");
        std::fs::write(&file, object.to_string()).expect("a file");
        self.kubectl(kubeconfig, &["create", "-f", &file.display().to_string()]).ok();
    }

    /// An object of the hub, or nothing.
    pub fn object(&self, kind: &str, name: &str) -> Value {
        let said = self.hub(&["get", kind, name, "-o", "json"]);
        serde_json::from_str(&said.text).unwrap_or_default()
    }
}

impl Said {
    fn by(output: Output) -> Said {
        let text = [output.stdout, output.stderr].concat();
        Said { done: output.status.success(), text: String::from_utf8_lossy(&text).into_owned() }
    }

    /// What it said, which must have been no complaint.
    #[track_caller]
    pub fn ok(self) -> String {
        assert!(self.done, "{}", self.text);
        self.text
    }

    /// That it refused, and why.
    #[track_caller]
    pub fn refused(self, why: &str) {
        assert!(!self.done && self.text.contains(why), "{why:?} is not what it said: {}", self.text);
    }
}

/// A program that goes on saying things.
pub struct Stream {
    child: Child,
    said: mpsc::Receiver<Vec<u8>>,
    text: String,
}

impl Stream {
    fn start(mut command: Command) -> Stream {
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().expect("kubectl starts");
        let mut output = child.stdout.take().expect("it was asked for");
        let (sender, said) = mpsc::channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(read @ 1..) = output.read(&mut buffer) {
                if sender.send(buffer[..read].to_vec()).is_err() {
                    return;
                }
            }
        });
        Stream { child, said, text: String::new() }
    }

    /// All that it said so far, when `enough` of it has been said.
    #[track_caller]
    pub fn until(&mut self, what: &str, enough: impl Fn(&str) -> bool) -> &str {
        while !enough(&self.text) {
            match self.said.recv_timeout(crate::patience::STANDSTILL) {
                Ok(more) => self.text.push_str(&String::from_utf8_lossy(&more)),
                Err(_) => panic!("{what}: it said only {:?}", self.text),
            }
        }
        &self.text
    }

    /// Waits until it has ended by itself; whether it was content.
    pub fn ended(&mut self) -> bool {
        let mut patience = Patience::default();
        loop {
            if let Some(status) = self.child.try_wait().expect("it is a child") {
                return status.success();
            }
            assert!(patience.lasts(()), "it goes on");
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Asks until the answer is yes; an answer that is not says what there is instead.
#[track_caller]
pub fn eventually<T>(what: &str, mut ask: impl FnMut() -> Result<T, String>) -> T {
    let mut patience = Patience::default();
    loop {
        match ask() {
            Ok(found) => return found,
            Err(instead) if !patience.lasts(()) => panic!("{what}: {instead}"),
            Err(_) => std::thread::sleep(LOOK_EVERY),
        }
    }
}
