//! API servers as processes somewhere in the world, to be killed, stopped and started again.

use std::{
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use rcgen::KeyPair;
use rustix::process::{Pid, Signal, kill_process};

use crate::{
    patience::STANDSTILL,
    process::{Admin, binary},
    real::{Authority, Process, build},
};

/// One server. Killed when dropped.
pub struct Server {
    pub url: String,
    name: &'static str,
    line: Vec<String>,
    directory: PathBuf,
    credential: Credential,
    process: Option<Process>,
    /// When it was started.
    pub launches: Vec<Instant>,
}

enum Credential {
    /// Written by the server when it is ready.
    Kubeconfig(PathBuf),
    Given(Admin),
}

const KUBERNETES: &str = "kube-apiserver";
const PORT: u16 = 6443;
/// A kube-apiserver waits a minute for watches to end. Nobody waits for that.
const KUBERNETES_PATIENCE: Duration = Duration::from_secs(20);

impl Server {
    /// `hanse serve` with these arguments as well; `enter` is the command that runs the rest of its line there.
    pub fn hanse(
        directory: &Path,
        address: Ipv4Addr,
        enter: &[String],
        further: &[String],
    ) -> Result<Server> {
        let data = directory.join("data");
        fs::create_dir_all(&data)?;
        let mut line = enter.to_vec();
        line.push(binary()?.display().to_string());
        line.extend(["serve", "--data"].map(str::to_owned));
        line.push(data.display().to_string());
        line.extend(["--listen".to_owned(), format!("{address}:{PORT}")]);
        line.extend(further.iter().cloned());
        let credential = Credential::Kubeconfig(data.join("admin.kubeconfig"));
        Self::start("hanse", directory, address, line, credential)
    }

    fn start(
        name: &'static str,
        directory: &Path,
        address: Ipv4Addr,
        line: Vec<String>,
        credential: Credential,
    ) -> Result<Server> {
        let url = format!("https://{address}:{PORT}");
        let directory = directory.to_owned();
        let mut server =
            Server { url, name, line, directory, credential, process: None, launches: Vec::new() };
        server.launch()?;
        Ok(server)
    }

    /// Starts it, again or anew, and does not wait.
    pub fn launch(&mut self) -> Result<()> {
        self.kill();
        self.launches.push(Instant::now());
        let log = self.directory.join(format!("{}.log", self.name));
        if log.exists() {
            fs::rename(&log, log.with_extension(format!("{}.log", self.launches.len() - 1)))?;
        }
        let (program, args) = self.line.split_first().context("an empty command")?;
        self.process = Some(Process::spawn(self.name, Path::new(program), args, &self.directory)?);
        Ok(())
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// It runs, or ought to: nobody here has ended it.
    pub fn is_launched(&self) -> bool {
        self.process.is_some()
    }

    /// How it ended, if by itself.
    pub fn ended(&mut self) -> Option<String> {
        let process = self.process.as_mut()?;
        let status = process.child.try_wait().ok().flatten()?;
        Some(format!("{} ended with {status}: {}", self.name, process.log_tail()))
    }

    /// Whatever it, or an earlier start of it, said when it panicked.
    pub fn panics(&self) -> Result<Vec<String>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            let path = entry?.path();
            if path.extension().is_some_and(|it| it == "log") {
                let log = String::from_utf8_lossy(&fs::read(&path)?).into_owned();
                found.extend(log.lines().filter(|line| line.contains("panicked at")).map(str::to_owned));
            }
        }
        Ok(found)
    }

    /// SIGTERM, and waits until it is gone.
    ///
    /// # Errors
    /// It did not stop by itself, or complained.
    pub fn terminate(&mut self) -> Result<()> {
        self.signal(Signal::TERM)?;
        let mut process = self.process.take().context("the server does not run")?;
        let is_hanse = self.name != KUBERNETES;
        let deadline = Instant::now() + if is_hanse { STANDSTILL } else { KUBERNETES_PATIENCE };
        while Instant::now() < deadline {
            if let Some(status) = process.child.try_wait()? {
                ensure!(status.success(), "{} stopped with {status}: {}", self.name, process.log_tail());
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        ensure!(!is_hanse, "{} does not stop when told to: {}", self.name, process.log_tail());
        Ok(())
    }

    /// It hangs: connections stay open and nothing answers.
    pub fn stop(&self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    pub fn go_on(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let process = self.process.as_ref().context("the server does not run")?;
        let pid = Pid::from_raw(process.child.id().cast_signed()).context("no process id")?;
        Ok(kill_process(pid, signal)?)
    }

    /// # Errors
    /// It has not been ready yet.
    pub fn admin(&self) -> Result<Admin> {
        match &self.credential {
            Credential::Given(admin) => Ok(admin.clone()),
            Credential::Kubeconfig(path) => Admin::read(path),
        }
    }

    pub fn log_tail(&self) -> String {
        self.process.as_ref().map(Process::log_tail).unwrap_or_default()
    }
}

/// What several kube-apiservers on one etcd have in common.
pub struct Kubernetes {
    binary: PathBuf,
    authority: Authority,
    directory: PathBuf,
}

impl Kubernetes {
    pub fn new(directory: &Path) -> Result<Kubernetes> {
        let authority = Authority::new()?;
        let tokens = KeyPair::generate()?;
        let write = |name: &str, content: String| fs::write(directory.join(name), content);
        write("ca.crt", authority.pem())?;
        write("service-account.key", tokens.serialize_pem())?;
        write("service-account.pub", tokens.public_key_pem())?;
        let binary = build(&[KUBERNETES])?.join(KUBERNETES);
        Ok(Kubernetes { binary, authority, directory: directory.to_owned() })
    }

    pub fn server(
        &self,
        directory: &Path,
        address: Ipv4Addr,
        enter: &[String],
        etcd: &[String],
    ) -> Result<Server> {
        fs::create_dir_all(directory)?;
        let serving = self.authority.serving_for(&[&address.to_string()])?;
        fs::write(directory.join("serving.crt"), &serving.cert_pem)?;
        fs::write(directory.join("serving.key"), &serving.key_pem)?;
        let own = |name: &str| directory.join(name).display().to_string();
        let shared = |name: &str| self.directory.join(name).display().to_string();
        let etcd: Vec<String> = etcd.iter().map(|endpoint| format!("http://{endpoint}")).collect();
        let mut line = enter.to_vec();
        line.push(self.binary.display().to_string());
        line.extend([
            format!("--etcd-servers={}", etcd.join(",")),
            format!("--bind-address={address}"),
            format!("--secure-port={PORT}"),
            format!("--advertise-address={address}"),
            format!("--cert-dir={}", own("certificates")),
            format!("--tls-cert-file={}", own("serving.crt")),
            format!("--tls-private-key-file={}", own("serving.key")),
            format!("--client-ca-file={}", shared("ca.crt")),
            "--authorization-mode=RBAC".to_owned(),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            format!("--service-account-key-file={}", shared("service-account.pub")),
            format!("--service-account-signing-key-file={}", shared("service-account.key")),
            "--service-cluster-ip-range=10.96.0.0/12".to_owned(),
        ]);
        let admin = self.authority.client("admin", &["system:masters"])?;
        let admin = Admin {
            url: format!("https://{address}:{PORT}"),
            ca_pem: self.authority.pem(),
            certificate_pem: admin.cert_pem,
            key_pem: admin.key_pem,
        };
        Server::start(KUBERNETES, directory, address, line, Credential::Given(admin))
    }
}
