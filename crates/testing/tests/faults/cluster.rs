//! The servers under test in their world.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use serde_json::json;
use tempfile::TempDir;
use testing::{
    client::Client,
    etcd::{EtcdCluster, EtcdOptions, Place},
    world::{Clock, Disk, Kubernetes, Net, Server, Undo},
};

/// What is put to the test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// One `hanse serve` on its own files.
    Embedded,
    /// Two on an etcd of three members.
    Etcd,
    /// Two that share nothing, and so cannot agree: the judge must find them out.
    Apart,
    /// Two kube-apiservers on an etcd of three members, to see that the judge is fair.
    Kubernetes,
}

impl Subject {
    pub fn servers(self) -> usize {
        if self == Subject::Embedded { 1 } else { 2 }
    }

    pub fn members(self) -> usize {
        if matches!(self, Subject::Embedded | Subject::Apart) { 0 } else { 3 }
    }

    /// Paths of collections; where there are workspaces, each is in one of its own.
    pub fn collections(self) -> Vec<String> {
        let path =
            |cluster: &str, namespace: &str| format!("{cluster}/api/v1/namespaces/{namespace}/configmaps");
        match self {
            Subject::Kubernetes => vec![path("", "faults-a"), path("", "faults-b")],
            _ => vec![path("/clusters/default", "faults"), path("/clusters/team", "faults")],
        }
    }
}

pub const CLIENT: usize = 0;

/// Nodes: the client, the servers, the members.
pub struct Cluster {
    pub subject: Subject,
    // Dropped in this order: processes before the disks and the network they are on.
    pub servers: Vec<Server>,
    pub etcd: Option<EtcdCluster>,
    pub disks: Vec<Disk>,
    pub clocks: Vec<Clock>,
    /// When somebody compacted etcd to its last revision.
    pub compactions: Vec<Instant>,
    pub net: std::sync::Arc<Net>,
    directory: TempDir,
    // Should we be killed.
    _undo: Undo,
}

/// etcd keeps two segments of 64 MB of its log at least.
const DISK_MEGABYTES: u64 = 400;
/// Small enough to be filled in a moment.
pub const QUOTA_BYTES: u64 = 24 << 20;
const START_PATIENCE: Duration = Duration::from_secs(180);

impl Cluster {
    /// Starts everything. The calling thread is moved into the client's namespace.
    pub fn start(subject: Subject) -> Result<Cluster> {
        let directory = tempfile::Builder::new().prefix("hanse-faults-").tempdir()?;
        let mut undo = Undo::new()?;
        undo.later(&format!("rm -rf --one-file-system '{}'", directory.path().display()))?;
        let names = ["client", "server0", "server1", "etcd0", "etcd1", "etcd2"];
        let net = std::sync::Arc::new(Net::new(&names)?);
        net.move_here(CLIENT)?;
        let (servers, disks, clocks) = (Vec::new(), Vec::new(), Vec::new());
        let mut cluster = Cluster {
            subject,
            servers,
            etcd: None,
            disks,
            clocks,
            compactions: Vec::new(),
            net,
            directory,
            _undo: undo,
        };
        if subject.members() > 0 {
            cluster.start_etcd()?;
        }
        cluster.start_servers()?;
        Ok(cluster)
    }

    pub fn server_node(&self, server: usize) -> usize {
        1 + server
    }

    pub fn member_node(&self, member: usize) -> usize {
        3 + member
    }

    fn start_etcd(&mut self) -> Result<()> {
        let mut places = Vec::new();
        for member in 0..self.subject.members() {
            let disk = Disk::new(&self.directory.path().join(format!("disk{member}")), DISK_MEGABYTES)?;
            let node = self.member_node(member);
            places.push(Place {
                address: self.net.address(node),
                enter: self.net.enter(node),
                directory: disk.path.join("etcd"),
            });
            self.disks.push(disk);
        }
        let options = EtcdOptions {
            members: self.subject.members(),
            fsync: true,
            args: vec![format!("--quota-backend-bytes={QUOTA_BYTES}")],
            places,
            ..EtcdOptions::default()
        };
        self.etcd = Some(EtcdCluster::start(options)?);
        Ok(())
    }

    fn start_servers(&mut self) -> Result<()> {
        let endpoints = self.etcd.as_ref().map(EtcdCluster::endpoints).unwrap_or_default();
        let kubernetes = match self.subject {
            Subject::Kubernetes => Some(Kubernetes::new(self.directory.path())?),
            _ => None,
        };
        for server in 0..self.subject.servers() {
            let node = self.server_node(server);
            let directory = self.directory.path().join(format!("server{server}"));
            std::fs::create_dir_all(&directory)?;
            let (address, mut enter) = (self.net.address(node), self.net.enter(node));
            let started = match &kubernetes {
                Some(kubernetes) => kubernetes.server(&directory, address, &enter, &endpoints)?,
                None => {
                    let clock = Clock::new(&directory)?;
                    enter.extend(clock.enter());
                    self.clocks.push(clock);
                    Server::hanse(&directory, address, &enter, &store_args(&endpoints))?
                }
            };
            self.servers.push(started);
        }
        Ok(())
    }

    /// Waits until every server answers, and makes what clients need.
    pub async fn prepare(&mut self) -> Result<()> {
        for server in 0..self.servers.len() {
            self.wait_until_ready(server).await?;
        }
        let stores = if self.subject == Subject::Apart { self.servers.len() } else { 1 };
        for server in 0..stores {
            self.outfit(&self.client(server).await?).await?;
        }
        Ok(())
    }

    /// Makes the workspace and the namespaces that clients use.
    async fn outfit(&self, client: &Client) -> Result<()> {
        if self.subject != Subject::Kubernetes {
            let team = json!({"metadata": {"name": "team"}});
            let made = client.post("/clusters/root/apis/hanse.io/v1alpha1/workspaces", &team).await?;
            anyhow::ensure!(made.code.is_success(), "{}", made.text());
        }
        for collection in self.subject.collections() {
            let (namespace, _) = collection.rsplit_once('/').context("a path")?;
            let (namespaces, name) = namespace.rsplit_once('/').context("a path")?;
            let body = json!({"metadata": {"name": name}});
            let deadline = Instant::now() + START_PATIENCE;
            loop {
                let made = client.post(namespaces, &body).await?;
                if made.code.is_success() || made.code == 409 {
                    break;
                }
                anyhow::ensure!(Instant::now() < deadline, "{namespaces}: {} {}", made.code, made.text());
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
        Ok(())
    }

    pub async fn client(&self, server: usize) -> Result<Client> {
        connect(&self.servers[server].url, &self.servers[server].admin()?).await
    }

    async fn wait_until_ready(&mut self, server: usize) -> Result<()> {
        let deadline = Instant::now() + START_PATIENCE;
        loop {
            let last = match self.client(server).await {
                Ok(client) => client.get("/readyz").await,
                Err(error) => Err(error),
            };
            if last.as_ref().is_ok_and(|answer| answer.code == 200) {
                return Ok(());
            }
            if let Some(how) = self.servers[server].ended() {
                bail!("{how}");
            }
            if Instant::now() > deadline {
                bail!("server {server} is not ready: {last:?}\n{}", self.servers[server].log_tail());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Everything that was ended runs again and everything that was broken works.
    pub fn heal(&mut self) -> Result<()> {
        self.net.heal()?;
        for disk in &self.disks {
            let _ = disk.thaw();
            let _ = disk.limit_writes(None);
            disk.make_room()?;
        }
        for clock in &self.clocks {
            clock.set(0)?;
        }
        for server in &mut self.servers {
            if server.is_launched() {
                server.go_on()?;
            } else {
                server.launch()?;
            }
        }
        Ok(())
    }

    /// Starts servers again that ended by themselves, as a supervisor does.
    pub fn supervise(&mut self) -> Result<()> {
        for server in &mut self.servers {
            if let Some(how) = server.ended() {
                println!("  started again: {}", how.lines().next().unwrap_or_default());
                server.launch()?;
            }
        }
        Ok(())
    }

    /// No server has panicked, not even where nobody noticed.
    pub fn check_panics(&self) -> Result<()> {
        for server in &self.servers {
            let panics = server.panics()?;
            anyhow::ensure!(panics.is_empty(), "{}", panics.join("\n"));
        }
        Ok(())
    }

    /// Keeps the files of a run that failed.
    pub fn keep(mut self) -> std::path::PathBuf {
        let etcd = self.etcd.as_ref().map(EtcdCluster::logs).unwrap_or_default();
        // Their own go with their disks.
        let _ = std::fs::write(self.directory.path().join("etcd.log"), etcd);
        // What is mounted there must go by the name it has.
        self.servers.clear();
        self.etcd = None;
        self.disks.clear();
        let kept = self.directory.path().with_extension("kept");
        let _ = std::fs::rename(self.directory.path(), &kept);
        kept
    }
}

fn store_args(endpoints: &[String]) -> Vec<String> {
    if endpoints.is_empty() {
        return Vec::new();
    }
    vec!["--store".to_owned(), format!("etcd://{}/hanse", endpoints.join(","))]
}

pub async fn connect(url: &str, admin: &testing::process::Admin) -> Result<Client> {
    let identity = Some((admin.certificate_pem.as_str(), admin.key_pem.as_str()));
    let connecting = Client::connect(url, &admin.ca_pem, identity);
    tokio::time::timeout(Duration::from_secs(3), connecting).await.context("no connection")?
}

/// Why this machine cannot run the suite, if it cannot.
pub fn obstacle() -> Option<String> {
    let net = Net::new(&["a"]).err().map(|error| format!("network namespaces: {error:#}"));
    let disk = || {
        let directory = tempfile::tempdir().ok()?;
        let disk = Disk::new(&Path::new(directory.path()).join("disk"), 16);
        disk.err().map(|error| format!("disks: {error:#}"))
    };
    net.or_else(disk)
}
