//! The servers: how each is started, asked whether it is ready, restarted on its data, and stopped.

use std::{
    fs,
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use base64::{Engine, prelude::BASE64_STANDARD};
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use tempfile::TempDir;
use testing::real::{self, Authority, Issued, RealCluster};
use tokio::{net::TcpStream, time::sleep};

use crate::{
    client::{self, Connection, Endpoint},
    machine,
    setting::{Audit, USER},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Subject {
    /// kube-apiserver and etcd.
    Kube,
    /// Hanse on its own engine.
    Hanse,
    /// Hanse and etcd.
    HanseEtcd,
}

impl Subject {
    pub fn name(self) -> &'static str {
        match self {
            Self::Kube => "kube",
            Self::Hanse => "hanse",
            Self::HanseEtcd => "hanse-etcd",
        }
    }
}

/// A server with data of its own, running or not. Dropping it ends its processes and removes its data.
pub struct Server {
    pub subject: Subject,
    pub audit: Audit,
    /// In the order in which they start.
    parts: Vec<Part>,
    credentials: Credentials,
    /// Of the user who makes the load.
    loader: Issued,
    log: PathBuf,
    data: Data,
}

/// One process of a server.
struct Part {
    binary: PathBuf,
    arguments: Vec<String>,
    directory: PathBuf,
    /// Where it listens before the next part can be of use.
    listens: Option<SocketAddr>,
    child: Option<Child>,
}

enum Credentials {
    Known(Endpoint),
    /// The server writes it before it is ready.
    Kubeconfig(PathBuf),
}

/// Held for as long as the server needs its files.
struct Data {
    _cluster: Option<Box<RealCluster>>,
    directory: TempDir,
}

/// A server that answers.
pub struct Ready {
    pub admin: Endpoint,
    pub loader: Endpoint,
    /// From starting the first process to 200 from `/readyz`.
    pub after: Duration,
}

const START_TIMEOUT: Duration = Duration::from_secs(120);
const STOP_TIMEOUT: Duration = Duration::from_secs(60);
/// Between two attempts to connect: an attempt before the server listens costs it nothing.
const CONNECT_INTERVAL: Duration = Duration::from_millis(2);
/// Between two questions to a server that answers, but is not ready.
const READY_INTERVAL: Duration = Duration::from_millis(20);

impl Server {
    /// Stopped, and without data. `hanse` is the binary, where it is needed.
    pub async fn new(subject: Subject, hanse: &Path) -> Result<Self> {
        // All in one place, so that all write to the same disk.
        let directory = TempDir::with_prefix("hanse-bench-")?;
        match subject {
            Subject::Kube => Self::kube(directory).await,
            Subject::Hanse => Self::on_its_own(hanse, directory),
            Subject::HanseEtcd => Self::on_etcd(hanse, directory),
        }
    }

    /// Hanse on its own engine with nothing switched on that is not by default. Stopped, and without data.
    pub fn plain(hanse: &Path) -> Result<Self> {
        Self::plain_on(Subject::Hanse, hanse)
    }

    /// The same on an engine of one's choice.
    pub fn plain_on(subject: Subject, hanse: &Path) -> Result<Self> {
        let directory = TempDir::with_prefix("hanse-bench-")?;
        let mut server = match subject {
            Subject::Kube => bail!("{} is not Hanse", subject.name()),
            Subject::Hanse => Self::on_its_own(hanse, directory)?,
            Subject::HanseEtcd => Self::on_etcd(hanse, directory)?,
        };
        for part in &mut server.parts {
            part.arguments.retain(|argument| !argument.starts_with("--audit-"));
        }
        Ok(server)
    }

    /// kube-apiserver and etcd with fsync.
    ///
    /// `RealCluster` makes the certificates and knows the flags. Its processes are ended and their command
    /// lines used again, so that both servers are started, timed and restarted in the same way.
    async fn kube(directory: TempDir) -> Result<Self> {
        let audit = Audit::in_directory(directory.path())?;
        let options =
            real::Options { fsync: true, apiserver_args: audit.flags.clone(), ..real::Options::default() };
        let cluster = RealCluster::start(options)?;
        let endpoint =
            Endpoint::new(&cluster.url, &cluster.ca_pem, &cluster.admin_cert_pem, &cluster.admin_key_pem)?;
        let (cert_pem, key_pem) = cluster.issue(USER, &[])?;
        let pids = cluster.pids();
        let parts = pids.iter().map(|(_, pid)| Part::like(*pid)).collect::<Result<Vec<_>>>()?;
        for (name, pid) in pids.iter().rev() {
            end(*pid, || machine::has_ended(*pid)).await.with_context(|| format!("cannot end {name}"))?;
        }
        let database = parts
            .iter()
            .flat_map(|part| &part.arguments)
            .find_map(|argument| argument.strip_prefix("--data-dir="))
            .context("etcd was started without --data-dir")?;
        fs::remove_dir_all(database)?;
        Ok(Self {
            subject: Subject::Kube,
            audit,
            parts,
            credentials: Credentials::Known(endpoint),
            loader: Issued { cert_pem, key_pem },
            log: directory.path().join("log"),
            data: Data { _cluster: Some(Box::new(cluster)), directory },
        })
    }

    fn on_its_own(binary: &Path, directory: TempDir) -> Result<Self> {
        Self::hanse(Subject::Hanse, binary, directory, &[], Vec::new())
    }

    fn on_etcd(binary: &Path, directory: TempDir) -> Result<Self> {
        let (etcd, store) = etcd(directory.path())?;
        Self::hanse(Subject::HanseEtcd, binary, directory, &[format!("--store={store}")], vec![etcd])
    }

    /// Hanse, after the parts that it stands on.
    fn hanse(
        subject: Subject,
        binary: &Path,
        directory: TempDir,
        store: &[String],
        mut parts: Vec<Part>,
    ) -> Result<Self> {
        let audit = Audit::in_directory(directory.path())?;
        let authority = Authority::new()?;
        let clients = directory.path().join("clients.pem");
        fs::write(&clients, authority.pem())?;
        let data = directory.path().join("data");
        let mut arguments = vec![
            "serve".to_owned(),
            format!("--data={}", data.display()),
            format!("--listen=127.0.0.1:{}", free_port()?),
            format!("--client-ca-file={}", clients.display()),
        ];
        arguments.extend_from_slice(store);
        arguments.extend_from_slice(&audit.flags);
        parts.push(Part {
            binary: binary.to_owned(),
            arguments,
            directory: directory.path().to_owned(),
            listens: None,
            child: None,
        });
        Ok(Self {
            subject,
            audit,
            parts,
            credentials: Credentials::Kubeconfig(data.join("admin.kubeconfig")),
            loader: authority.client(USER, &[])?,
            log: directory.path().join("log"),
            data: Data { _cluster: None, directory },
        })
    }

    /// Starts the processes and returns when the server is ready.
    pub async fn start(&mut self) -> Result<Ready> {
        let started = Instant::now();
        for part in &mut self.parts {
            part.start(&self.log)?;
            part.until_it_listens(started + START_TIMEOUT).await?;
        }
        let mut connection = None;
        loop {
            let interval = match self.ask(&mut connection).await {
                Ok(admin) => {
                    let after = started.elapsed();
                    let loader = admin.with_identity(&self.loader.cert_pem, &self.loader.key_pem)?;
                    return Ok(Ready { admin, loader, after });
                }
                Err(_) if connection.is_some() => READY_INTERVAL,
                Err(_) => CONNECT_INTERVAL,
            };
            if let Some(part) = self.parts.iter_mut().find_map(Part::ended) {
                bail!("{part} ended before it was ready:\n{}", self.log_tail());
            }
            ensure!(started.elapsed() < START_TIMEOUT, "not ready in time:\n{}", self.log_tail());
            sleep(interval).await;
        }
    }

    /// One question to `/readyz`, over the connection of the last one if there is any.
    async fn ask(&self, kept: &mut Option<Connection>) -> Result<Endpoint> {
        let endpoint = self.endpoint()?;
        let mut connection = match kept.take() {
            Some(connection) => connection,
            None => endpoint.connect().await?,
        };
        match connection.call(client::get(endpoint.server_uri("/readyz")?)).await {
            Ok(_) => Ok(endpoint),
            Err(failure) => {
                // Kept unless it is gone.
                if matches!(failure, client::Failure::Refused { .. }) {
                    *kept = Some(connection);
                }
                Err(failure.into())
            }
        }
    }

    fn endpoint(&self) -> Result<Endpoint> {
        match &self.credentials {
            Credentials::Known(endpoint) => Ok(endpoint.clone()),
            Credentials::Kubeconfig(path) => read_kubeconfig(&fs::read_to_string(path)?),
        }
    }

    /// Ends the processes as a service manager would; the data stays.
    pub async fn stop(&mut self) -> Result<()> {
        for part in self.parts.iter_mut().rev() {
            part.stop().await?;
        }
        Ok(())
    }

    /// The one that the server writes, if it does.
    pub fn kubeconfig(&self) -> Option<&Path> {
        match &self.credentials {
            Credentials::Known(_) => None,
            Credentials::Kubeconfig(path) => Some(path),
        }
    }

    /// Everything that it keeps is below.
    pub fn directory(&self) -> &Path {
        self.data.directory.path()
    }

    pub fn pids(&self) -> Vec<u32> {
        self.parts.iter().filter_map(|part| Some(part.child.as_ref()?.id())).collect()
    }

    /// What the server says of itself, with the first line of `--version` of each part.
    pub async fn version(&self, endpoint: &Endpoint) -> Result<String> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Version {
            git_version: String,
        }
        let answer = endpoint.connect().await?.call(client::get(endpoint.server_uri("/version")?)).await?;
        let served: Version = serde_json::from_slice(&answer)?;
        let own = self.parts.iter().map(|part| {
            let output = Command::new(&part.binary).arg("--version").stderr(Stdio::null()).output();
            let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
            text.unwrap_or_default().lines().next().unwrap_or_default().to_owned()
        });
        let own: Vec<String> = own.filter(|line| !line.is_empty()).collect();
        Ok(format!("{} (API {})", own.join(", "), served.git_version))
    }

    fn log_tail(&self) -> String {
        const LINES: usize = 25;
        let log = fs::read(&self.log).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LINES)..].join("\n")
    }
}

impl Part {
    /// The command of a process that runs, to be run again.
    fn like(pid: u32) -> Result<Self> {
        let command = fs::read(format!("/proc/{pid}/cmdline"))?;
        let words = command.split(|byte| *byte == 0).map(String::from_utf8_lossy);
        let mut words: Vec<String> = words.map(|word| word.into_owned()).collect();
        // The list ends with a NUL, and so in an empty word.
        words.pop();
        let listens = words.iter().find_map(|word| word.strip_prefix("--listen-client-urls=http://"));
        Ok(Self {
            listens: listens.map(str::parse).transpose()?,
            binary: fs::read_link(format!("/proc/{pid}/exe"))?,
            arguments: words.split_off(1),
            directory: fs::read_link(format!("/proc/{pid}/cwd"))?,
            child: None,
        })
    }

    async fn until_it_listens(&mut self, deadline: Instant) -> Result<()> {
        let Some(address) = self.listens else { return Ok(()) };
        while TcpStream::connect(address).await.is_err() {
            if let Some(part) = self.ended() {
                bail!("{part} ended before it listened");
            }
            ensure!(Instant::now() < deadline, "{} does not listen", self.binary.display());
            sleep(CONNECT_INTERVAL).await;
        }
        Ok(())
    }

    fn start(&mut self, log: &Path) -> Result<()> {
        let log = fs::OpenOptions::new().create(true).append(true).open(log)?;
        let child = Command::new(&self.binary)
            .args(&self.arguments)
            .current_dir(&self.directory)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {}", self.binary.display()))?;
        self.child = Some(child);
        Ok(())
    }

    /// Its name, if it was started and has ended.
    fn ended(&mut self) -> Option<String> {
        let status = self.child.as_mut()?.try_wait().ok()??;
        let name = self.binary.file_name().unwrap_or_default().to_string_lossy();
        Some(format!("{name} ({status})"))
    }

    async fn stop(&mut self) -> Result<()> {
        let Some(child) = &mut self.child else { return Ok(()) };
        end(child.id(), || child.try_wait().is_ok_and(|status| status.is_some())).await?;
        self.child = None;
        Ok(())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Asks a process to end and waits until it has.
async fn end(pid: u32, mut has_ended: impl FnMut() -> bool) -> Result<()> {
    let pid = Pid::from_raw(pid.cast_signed()).context("not a process id")?;
    kill_process(pid, Signal::TERM)?;
    let deadline = Instant::now() + STOP_TIMEOUT;
    while !has_ended() {
        if Instant::now() > deadline {
            kill_process(pid, Signal::KILL)?;
        }
        sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

/// A member of its own, with fsync, and what a store on it is called.
fn etcd(directory: &Path) -> Result<(Part, String)> {
    let (client, peer) = (SocketAddr::from(([127, 0, 0, 1], free_port()?)), free_port()?);
    let peer = format!("http://127.0.0.1:{peer}");
    let part = Part {
        binary: real::build(&["etcd"])?.join("etcd"),
        arguments: vec![
            format!("--data-dir={}", directory.join("etcd").display()),
            format!("--listen-client-urls=http://{client}"),
            format!("--advertise-client-urls=http://{client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster=default={peer}"),
            "--log-level=warn".to_owned(),
        ],
        directory: directory.to_owned(),
        listens: Some(client),
        child: None,
    };
    Ok((part, format!("etcd://{client}/bench")))
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// The binary of `HANSE_BIN`, or this workspace's, built as it is shipped.
pub fn hanse_binary() -> Result<PathBuf> {
    if let Some(binary) = std::env::var_os("HANSE_BIN") {
        return Ok(binary.into());
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["build", "--profile", "dist", "-p", "cli", "--message-format", "json-render-diagnostics"])
        .current_dir(workspace())
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()?;
    ensure!(output.status.success(), "cannot build hanse");
    #[derive(Deserialize)]
    struct Message {
        executable: Option<PathBuf>,
    }
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<Message>(line).ok()?.executable)
        .find(|path| path.file_name().is_some_and(|name| name == "hanse"))
        .context("cargo built no hanse")
}

pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The current context of a kubeconfig that has all data inline.
pub fn read_kubeconfig(yaml: &str) -> Result<Endpoint> {
    #[derive(Deserialize)]
    #[serde(rename_all = "kebab-case")]
    struct Kubeconfig {
        current_context: String,
        contexts: Vec<NamedContext>,
        clusters: Vec<NamedCluster>,
        users: Vec<NamedUser>,
    }
    #[derive(Deserialize)]
    struct NamedContext {
        name: String,
        context: Choice,
    }
    #[derive(Deserialize)]
    struct Choice {
        cluster: String,
        user: String,
    }
    #[derive(Deserialize)]
    struct NamedCluster {
        name: String,
        cluster: Cluster,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "kebab-case")]
    struct Cluster {
        server: String,
        certificate_authority_data: String,
    }
    #[derive(Deserialize)]
    struct NamedUser {
        name: String,
        user: User,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "kebab-case")]
    struct User {
        client_certificate_data: String,
        client_key_data: String,
    }
    let Kubeconfig { current_context, contexts, clusters, users } = serde_saphyr::from_str(yaml)?;
    let named = contexts.into_iter().find(|named| named.name == current_context);
    let context = named.context("a kubeconfig without its current context")?.context;
    let named = clusters.into_iter().find(|named| named.name == context.cluster);
    let cluster = named.context("a kubeconfig without the cluster of its context")?.cluster;
    let named = users.into_iter().find(|named| named.name == context.user);
    let user = named.context("a kubeconfig without the user of its context")?.user;
    let pem = |data: &str| anyhow::Ok(String::from_utf8(BASE64_STANDARD.decode(data.trim())?)?);
    Endpoint::new(
        &cluster.server,
        &pem(&cluster.certificate_authority_data)?,
        &pem(&user.client_certificate_data)?,
        &pem(&user.client_key_data)?,
    )
}
