//! A hub as a process of its own, to be killed.

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, anyhow, bail};
use base64::{Engine, engine::general_purpose::STANDARD};

use crate::{client::Client, patience::Patience};

/// `hanse serve` on a data directory. Killed when dropped.
pub struct HubProcess {
    child: Child,
    data: PathBuf,
    pub url: String,
}

/// What an admin's kubeconfig holds.
#[derive(Clone)]
pub struct Admin {
    pub url: String,
    pub ca_pem: String,
    pub certificate_pem: String,
    pub key_pem: String,
}

/// The built binary: `HANSE`, or the one beside the running test.
pub fn binary() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("HANSE") {
        return Ok(path.into());
    }
    let test = std::env::current_exe()?;
    let profile = test.parent().and_then(Path::parent).context("tests run from a target directory")?;
    let path = profile.join("hanse");
    if !path.exists() {
        bail!("{} is not built; run `cargo build -p cli` or set HANSE", path.display());
    }
    Ok(path)
}

impl HubProcess {
    /// Starts on a free port and waits until it is ready.
    pub fn start(data: &Path) -> Result<HubProcess> {
        Self::start_on(data, free_port()?)
    }

    pub fn start_on(data: &Path, port: u16) -> Result<HubProcess> {
        Self::start_with(data, port, &[])
    }

    /// With further flags of `hanse serve`.
    pub fn start_with(data: &Path, port: u16, flags: &[String]) -> Result<HubProcess> {
        Self::start_command(Command::new(binary()?), data, port, flags)
    }

    /// With a program and an environment of the caller's.
    pub fn start_as(command: Command, data: &Path) -> Result<HubProcess> {
        Self::start_command(command, data, free_port()?, &[])
    }

    /// `command` runs `hanse` with the arguments that are added to it.
    pub fn start_command(
        mut command: Command,
        data: &Path,
        port: u16,
        flags: &[String],
    ) -> Result<HubProcess> {
        let kubeconfig = data.join("admin.kubeconfig");
        let _ = std::fs::remove_file(&kubeconfig);
        let log = data.with_extension("log");
        let log_file = std::fs::File::options().create(true).append(true).open(&log)?;
        let child = command
            .args(["serve", "--data"])
            .arg(data)
            .args(["--listen", &format!("127.0.0.1:{port}")])
            .args(flags)
            .stdin(Stdio::null())
            .stdout(log_file.try_clone()?)
            .stderr(log_file)
            .spawn()
            .context("starting hanse")?;
        let mut hub = HubProcess { child, data: data.to_owned(), url: format!("https://127.0.0.1:{port}") };
        let mut patience = Patience::default();
        while !kubeconfig.exists() {
            if let Some(status) = hub.child.try_wait()? {
                bail!("hanse ended with {status}: {}", std::fs::read_to_string(&log).unwrap_or_default());
            }
            let told = std::fs::metadata(&log).map_or(0, |log| log.len());
            if !patience.lasts(told) {
                bail!("hanse is not ready: {}", std::fs::read_to_string(&log).unwrap_or_default());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(hub)
    }

    /// Starts one and kills it at once, wherever it is by then.
    pub fn start_and_kill(data: &Path) -> Result<()> {
        let mut child = Command::new(binary()?)
            .args(["serve", "--listen", "127.0.0.1:0", "--data"])
            .arg(data)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("starting hanse")?;
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// `kill -9`, and waits until it is gone.
    pub fn kill(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// SIGTERM, and waits until it has stopped by itself.
    pub fn stop(mut self) -> Result<()> {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        let status = self.child.wait()?;
        if !status.success() {
            bail!("hanse stopped with {status}");
        }
        Ok(())
    }

    pub fn admin(&self) -> Result<Admin> {
        Admin::read(&self.data.join("admin.kubeconfig"))
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.data.join("admin.kubeconfig")
    }

    pub async fn client(&self) -> Result<Client> {
        let admin = self.admin()?;
        Client::connect(&self.url, &admin.ca_pem, Some((&admin.certificate_pem, &admin.key_pem))).await
    }
}

impl Drop for HubProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Admin {
    /// Reads the first cluster and user of a kubeconfig that Hanse wrote.
    pub fn read(path: &Path) -> Result<Admin> {
        let text = std::fs::read_to_string(path)?;
        let field = |name: &str| -> Result<String> {
            let line = text.lines().map(|line| line.trim_start().trim_start_matches("- "));
            let value = line.filter_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).next();
            value
                .map(|value| value.trim_matches('"').to_owned())
                .ok_or_else(|| anyhow!("no {name} in {}", path.display()))
        };
        let pem = |name: &str| -> Result<String> { Ok(String::from_utf8(STANDARD.decode(field(name)?)?)?) };
        let server = field("server")?;
        Ok(Admin {
            url: server.split("/clusters/").next().unwrap_or_default().to_owned(),
            ca_pem: pem("certificate-authority-data")?,
            certificate_pem: pem("client-certificate-data")?,
            key_pem: pem("client-key-data")?,
        })
    }
}

/// A port that was free a moment ago.
pub fn free_port() -> Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
