//! A real Kubernetes API server, for tests that compare Hanse with it.
//!
//! ```text
//!   RealCluster --starts--> etcd <-- kube-apiserver <-- kube-controller-manager (if asked)
//!        |                                          <-- kube-scheduler, kwok (if it has nodes)
//!        |                                          <-- kubelet -- containerd (if it runs containers)
//!        |                    free loopback ports, one temporary directory, own CA
//!        +--pipe--> guard     kills them all when this process is gone, however it went
//! ```
//!
//! The binaries come from `tests/real/build`, which builds what is missing.

#![allow(clippy::disallowed_methods)]

mod authority;
mod children;
mod image;
mod node;

use std::{
    fs,
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use base64::{Engine, prelude::BASE64_STANDARD};
use rcgen::KeyPair;
use rustls::pki_types::ServerName;
use serde_json::json;
use tempfile::TempDir;

pub(crate) use self::children::{Guard, Process};
use self::node::RealNode;
pub use self::{
    authority::{Authority, Issued},
    node::IMAGE,
};

/// What to start, and how.
#[derive(Debug, Clone)]
pub struct Options {
    /// Also run kube-controller-manager: service accounts, garbage collection, workloads (but no pods run).
    pub controller_manager: bool,
    /// Run only these of its controllers; all if there are none here.
    pub controllers: Vec<String>,
    /// Nodes that kwok pretends to be, and a scheduler: pods run, as far as anybody can see.
    pub nodes: Vec<String>,
    /// A scheduler, and one node of this name that runs containers: this machine, which must be root's. Not beside
    /// those that kwok pretends to be.
    pub real_node: Option<String>,
    /// Off only where durability is not what is tested or measured.
    pub fsync: bool,
    /// How many requests per second kube-controller-manager and kube-scheduler may make, and how many at once; as they
    /// come if it does not say.
    pub client_limits: Option<(u32, u32)>,
    /// Further flags of kube-apiserver; a repeated flag overrides the one given here.
    pub apiserver_args: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            controller_manager: false,
            controllers: Vec::new(),
            nodes: Vec::new(),
            real_node: None,
            fsync: true,
            client_limits: None,
            apiserver_args: Vec::new(),
        }
    }
}

impl Options {
    fn client_flags(&self) -> Vec<String> {
        let flags =
            |(rate, burst)| vec![format!("--kube-api-qps={rate}"), format!("--kube-api-burst={burst}")];
        self.client_limits.map_or_else(Vec::new, flags)
    }
}

/// A running control plane. Dropping it kills its processes and removes its directory.
pub struct RealCluster {
    /// `https://127.0.0.1:PORT`
    pub url: String,
    /// Of the user `admin` in `system:masters`, with all data inline.
    pub kubeconfig: PathBuf,
    pub ca_pem: String,
    pub admin_cert_pem: String,
    pub admin_key_pem: String,
    authority: Authority,
    probe: Probe,
    binaries: PathBuf,
    // Dropped in this order: first the node, then the other processes, then the guard that needs no longer watch them, then their files.
    node: Option<RealNode>,
    processes: Vec<Process>,
    guard: Guard,
    directory: TempDir,
}

/// What kwok does with nodes and pods.
const STAGES: &str = include_str!("real/stages.yaml");
/// Readiness takes seconds on an idle machine; tests run beside builds on busy ones.
const START_TIMEOUT: Duration = Duration::from_secs(180);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Another process may take a free port before the child binds it.
const START_ATTEMPTS: usize = 3;

impl RealCluster {
    /// Starts a control plane and returns when it serves requests.
    pub fn start(options: Options) -> Result<Self> {
        let binaries = binaries(&options)?;
        let mut attempt = 1;
        loop {
            match Self::try_start(&options, &binaries) {
                Err(error)
                    if attempt < START_ATTEMPTS
                        && format!("{error:#}").contains("address already in use") =>
                {
                    attempt += 1;
                }
                result => return result,
            }
        }
    }

    fn try_start(options: &Options, binaries: &Path) -> Result<Self> {
        let [etcd_port, etcd_peer_port, api_port, manager_port, scheduler_port] = free_ports()?;
        let url = format!("https://127.0.0.1:{api_port}");
        let authority = Authority::new()?;
        let admin = authority.client("admin", &["system:masters"])?;
        let directory = tempfile::Builder::new().prefix("hanse-real-").tempdir()?;
        let mut cluster = Self {
            kubeconfig: directory.path().join("kubeconfig"),
            ca_pem: authority.pem(),
            probe: Probe::new(api_port, &authority, &admin)?,
            admin_cert_pem: admin.cert_pem,
            admin_key_pem: admin.key_pem,
            url,
            authority,
            binaries: binaries.to_owned(),
            node: None,
            processes: Vec::new(),
            guard: Guard::new(directory.path())?,
            directory,
        };
        cluster.write_kubeconfig(
            &cluster.kubeconfig,
            "admin",
            &cluster.admin_cert_pem,
            &cluster.admin_key_pem,
        )?;

        cluster.start_etcd(etcd_port, etcd_peer_port, options.fsync)?;
        let mut flags = cluster.flags_for_node(options)?;
        flags.extend_from_slice(&options.apiserver_args);
        cluster.start_apiserver(etcd_port, api_port, &flags)?;
        // The `default` namespace is made shortly after readiness; hardly a test can do without.
        cluster.wait_for("/readyz")?;
        cluster.wait_for("/api/v1/namespaces/default")?;
        if options.controller_manager {
            cluster.start_controller_manager(manager_port, options)?;
            if options.controllers.is_empty() {
                cluster.wait_for("/api/v1/namespaces/default/serviceaccounts/default")?;
                cluster.wait_for("/api/v1/namespaces/default/configmaps/kube-root-ca.crt")?;
            }
        }
        if !options.nodes.is_empty() || options.real_node.is_some() {
            cluster.start_scheduler(scheduler_port, options)?;
        }
        if !options.nodes.is_empty() {
            cluster.start_kwok()?;
            for node in &options.nodes {
                cluster.add_node(node)?;
            }
        }
        if let Some(name) = &options.real_node {
            let user = format!("system:node:{name}");
            let kubeconfig = cluster.kubeconfig_for(&user, &["system:nodes"])?;
            cluster.node = Some(RealNode::start(name, binaries, &kubeconfig, &cluster.ca_pem)?);
            cluster.kubectl_command(&["wait", "--for=create", "--timeout=120s", &format!("node/{name}")])?;
            cluster.kubectl_command(&[
                "wait",
                "--for=condition=Ready",
                "--timeout=120s",
                &format!("node/{name}"),
            ])?;
        }
        Ok(cluster)
    }

    /// What the API server needs to speak to a kubelet, and a kubelet to it.
    fn flags_for_node(&self, options: &Options) -> Result<Vec<String>> {
        if options.real_node.is_none() {
            return Ok(Vec::new());
        }
        self.write("kubelet-client.crt", &self.admin_cert_pem)?;
        self.write("kubelet-client.key", &self.admin_key_pem)?;
        Ok(vec![
            // Beside RBAC: this flag adds up.
            "--authorization-mode=Node".to_owned(),
            "--kubelet-preferred-address-types=InternalIP".to_owned(),
            format!("--kubelet-client-certificate={}", self.path("kubelet-client.crt")),
            format!("--kubelet-client-key={}", self.path("kubelet-client.key")),
        ])
    }

    /// A client certificate and its key, PEM, for any user; RBAC decides what it may do. X.509 as rcgen writes it
    /// carries at most two groups.
    pub fn issue(&self, user: &str, groups: &[&str]) -> Result<(String, String)> {
        let issued = self.authority.client(user, groups)?;
        Ok((issued.cert_pem, issued.key_pem))
    }

    /// A kubeconfig of such a user, in this cluster's directory.
    pub fn kubeconfig_for(&self, user: &str, groups: &[&str]) -> Result<PathBuf> {
        let issued = self.authority.client(user, groups)?;
        let file: String =
            user.chars().map(|char| if char.is_ascii_alphanumeric() { char } else { '-' }).collect();
        let path = self.directory.path().join(format!("kubeconfig-{file}"));
        self.write_kubeconfig(&path, user, &issued.cert_pem, &issued.key_pem)?;
        Ok(path)
    }

    /// kubectl of the same release.
    pub fn kubectl(&self) -> PathBuf {
        self.binaries.join("kubectl")
    }

    /// Name and process id of each part, to read memory and CPU time from `/proc`.
    pub fn pids(&self) -> Vec<(&'static str, u32)> {
        self.processes.iter().map(|process| (process.name, process.child.id())).collect()
    }

    /// Kills a part with `kill -9`: what others see of it is that nobody listens.
    pub fn kill(&mut self, name: &str) -> Result<()> {
        let process = self.processes.iter_mut().find(|process| process.name == name);
        let process = process.with_context(|| format!("there is no {name}"))?;
        self.guard.forget(process.child.id())?;
        process.kill();
        Ok(())
    }

    /// Starts those parts again that are dead, on the same data and ports, the store first; does not wait until they
    /// serve.
    pub fn restart(&mut self) -> Result<()> {
        for process in &mut self.processes {
            if process.is_alive() {
                continue;
            }
            process.restart(self.directory.path())?;
            self.guard.watch(process.child.id())?;
        }
        Ok(())
    }

    /// Waits until the API server serves.
    pub fn wait_until_ready(&mut self) -> Result<()> {
        self.wait_for("/readyz")
    }

    /// The last lines of a part's log, for a test's own error messages.
    pub fn log_tail(&self, name: &str) -> String {
        self.processes.iter().find(|process| process.name == name).map(Process::log_tail).unwrap_or_default()
    }

    fn start_etcd(&mut self, port: u16, peer_port: u16, fsync: bool) -> Result<()> {
        let (client, peer) = (format!("http://127.0.0.1:{port}"), format!("http://127.0.0.1:{peer_port}"));
        let mut args = vec![
            format!("--data-dir={}", self.path("etcd")),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster=default={peer}"),
            "--log-level=warn".to_owned(),
        ];
        if !fsync {
            args.push("--unsafe-no-fsync".to_owned());
        }
        self.spawn("etcd", &args)
    }

    fn start_apiserver(&mut self, etcd_port: u16, port: u16, extra: &[String]) -> Result<()> {
        let serving = self.authority.serving()?;
        let tokens = KeyPair::generate()?;
        self.write("ca.crt", &self.ca_pem)?;
        self.write("serving.crt", &serving.cert_pem)?;
        self.write("serving.key", &serving.key_pem)?;
        self.write("service-account.key", &tokens.serialize_pem())?;
        // The API server does not find the public half in a PKCS #8 file of an elliptic-curve key.
        self.write("service-account.pub", &tokens.public_key_pem())?;
        let mut args = vec![
            format!("--etcd-servers=http://127.0.0.1:{etcd_port}"),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={port}"),
            // Endpoints refuse loopback addresses. Nothing dials this one: it is reserved for documentation.
            "--advertise-address=203.0.113.1".to_owned(),
            format!("--cert-dir={}", self.path("apiserver")),
            format!("--tls-cert-file={}", self.path("serving.crt")),
            format!("--tls-private-key-file={}", self.path("serving.key")),
            format!("--client-ca-file={}", self.path("ca.crt")),
            "--authorization-mode=RBAC".to_owned(),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            format!("--service-account-key-file={}", self.path("service-account.pub")),
            format!("--service-account-signing-key-file={}", self.path("service-account.key")),
            "--service-cluster-ip-range=10.96.0.0/12".to_owned(),
        ];
        args.extend_from_slice(extra);
        self.spawn("kube-apiserver", &args)
    }

    fn start_controller_manager(&mut self, port: u16, options: &Options) -> Result<()> {
        let kubeconfig = self.kubeconfig_for("system:kube-controller-manager", &[])?;
        self.write("ca.key", &self.authority.key_pem())?;
        let mut args = vec![
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--authentication-kubeconfig={}", kubeconfig.display()),
            format!("--authorization-kubeconfig={}", kubeconfig.display()),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={port}"),
            format!("--cert-dir={}", self.path("controller-manager")),
            format!("--root-ca-file={}", self.path("ca.crt")),
            format!("--cluster-signing-cert-file={}", self.path("ca.crt")),
            format!("--cluster-signing-key-file={}", self.path("ca.key")),
            format!("--service-account-private-key-file={}", self.path("service-account.key")),
            "--use-service-account-credentials=true".to_owned(),
            "--leader-elect=false".to_owned(),
        ];
        args.extend(options.client_flags());
        if !options.nodes.is_empty() {
            // Pods of a node that is lost are no longer ready, and kwok, unlike a kubelet, does not say that they are again.
            args.push("--node-monitor-grace-period=24h".to_owned());
        }
        if !options.controllers.is_empty() {
            args.push(format!("--controllers={}", options.controllers.join(",")));
        }
        self.spawn("kube-controller-manager", &args)
    }

    fn start_scheduler(&mut self, port: u16, options: &Options) -> Result<()> {
        let kubeconfig = self.kubeconfig_for("system:kube-scheduler", &[])?;
        let mut args = vec![
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--authentication-kubeconfig={}", kubeconfig.display()),
            format!("--authorization-kubeconfig={}", kubeconfig.display()),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={port}"),
            format!("--cert-dir={}", self.path("scheduler")),
            "--leader-elect=false".to_owned(),
        ];
        args.extend(options.client_flags());
        self.spawn("kube-scheduler", &args)
    }

    fn start_kwok(&mut self) -> Result<()> {
        self.write("stages.yaml", STAGES)?;
        let args = [
            format!("--kubeconfig={}", self.kubeconfig.display()),
            format!("--config={}", self.path("stages.yaml")),
            "--manage-all-nodes=true".to_owned(),
            "--node-ip=203.0.113.2".to_owned(),
            "--node-lease-duration-seconds=40".to_owned(),
        ];
        self.spawn("kwok", &args)
    }

    /// Adds a node, and waits until it is ready.
    pub fn add_node(&mut self, name: &str) -> Result<()> {
        let resources = json!({ "cpu": "32", "memory": "256Gi", "pods": "110" });
        let node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {
                "name": name,
                "labels": { "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64" },
            },
            "status": { "allocatable": resources, "capacity": resources },
        });
        self.write("node.json", &node.to_string())?;
        self.kubectl_command(&["create", "-f", &self.path("node.json")])?;
        self.kubectl_command(&["wait", "--for=condition=Ready", "--timeout=120s", &format!("node/{name}")])
    }

    fn kubectl_command(&self, args: &[&str]) -> Result<()> {
        let output = Command::new(self.kubectl())
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .args(args)
            .stdin(Stdio::null())
            .output()
            .context("cannot run kubectl")?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let log = self.node.as_ref().map_or_else(|| self.log_tail("kwok"), RealNode::log_tail);
        bail!("kubectl {} failed: {said}\n--- nodes\n{log}", args.join(" "))
    }

    fn spawn(&mut self, name: &'static str, args: &[String]) -> Result<()> {
        let process = Process::spawn(name, &self.binaries.join(name), args, self.directory.path())?;
        self.guard.watch(process.child.id())?;
        self.processes.push(process);
        Ok(())
    }

    /// Waits until `path` answers 200, or fails with the log of the part that died or hangs.
    fn wait_for(&mut self, path: &str) -> Result<()> {
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            // An error is a connection refused, or TLS not yet up: not ready either way.
            let last = self.probe.status(path);
            if matches!(last, Ok(200)) {
                return Ok(());
            }
            for process in &mut self.processes {
                if let Some(status) = process.child.try_wait()? {
                    bail!("{} ended with {status}:\n{}", process.name, process.log_tail());
                }
            }
            if Instant::now() > deadline {
                let logs: String = self
                    .processes
                    .iter()
                    .map(|process| format!("\n--- {}\n{}", process.name, process.log_tail()))
                    .collect();
                bail!("{path} was not served within {START_TIMEOUT:?} (last answer: {last:?}){logs}");
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    fn write_kubeconfig(&self, path: &Path, user: &str, cert_pem: &str, key_pem: &str) -> Result<()> {
        let base64 = |pem: &str| BASE64_STANDARD.encode(pem);
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "real", "cluster": {
                "server": self.url,
                "certificate-authority-data": base64(&self.ca_pem),
            }}],
            "users": [{"name": user, "user": {
                "client-certificate-data": base64(cert_pem),
                "client-key-data": base64(key_pem),
            }}],
            "contexts": [{"name": "real", "context": {"cluster": "real", "user": user}}],
            "current-context": "real",
        });
        fs::write(path, serde_json::to_vec_pretty(&config)?)
            .with_context(|| format!("cannot write {}", path.display()))
    }

    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }

    fn write(&self, name: &str, content: &str) -> Result<()> {
        fs::write(self.directory.path().join(name), content).with_context(|| format!("cannot write {name}"))
    }
}

/// Builds what is missing; the directory with the binaries.
fn binaries(options: &Options) -> Result<PathBuf> {
    let mut tools = vec!["kube-apiserver", "etcd", "kubectl"];
    if options.controller_manager {
        tools.push("kube-controller-manager");
    }
    if !options.nodes.is_empty() {
        tools.extend(["kube-scheduler", "kwok"]);
    }
    if options.real_node.is_some() {
        tools.extend(["kube-scheduler", "kubelet"]);
    }
    build(&tools)
}

/// Runs `tests/real/build`, which is quick when there is nothing to do, and returns the directory that holds the
/// tools. Its progress goes to this process's stderr.
pub fn build(tools: &[&str]) -> Result<PathBuf> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/real/build");
    let output = Command::new(script)
        .args(tools)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot run {script}"))?;
    ensure!(output.status.success(), "tests/real/build {} failed: {}", tools.join(" "), output.status);
    Ok(PathBuf::from(String::from_utf8(output.stdout)?.trim_end()))
}

/// Ports that were free a moment ago; all held at once, so that they differ.
fn free_ports<const N: usize>() -> Result<[u16; N]> {
    let ports = some_free_ports(N)?;
    Ok(std::array::from_fn(|at| ports[at]))
}

pub(crate) fn some_free_ports(count: usize) -> Result<Vec<u16>> {
    let bind = |_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let held: Vec<TcpListener> = (0..count).map(bind).collect::<Result<_, _>>()?;
    Ok(held
        .iter()
        .map(|listener| Ok(listener.local_addr()?.port()))
        .collect::<Result<_, std::io::Error>>()?)
}

/// Asks the API server for a path as admin and looks at the status alone; no HTTP client is needed for that.
struct Probe {
    address: SocketAddr,
    tls: Arc<rustls::ClientConfig>,
}

impl Probe {
    const TIMEOUT: Duration = Duration::from_secs(10);

    fn new(port: u16, authority: &Authority, admin: &Issued) -> Result<Self> {
        let tls = authority.trusted_by(admin)?;
        Ok(Self { address: (Ipv4Addr::LOCALHOST, port).into(), tls })
    }

    fn status(&self, path: &str) -> Result<u16> {
        let socket = TcpStream::connect_timeout(&self.address, Self::TIMEOUT)?;
        socket.set_read_timeout(Some(Self::TIMEOUT))?;
        socket.set_write_timeout(Some(Self::TIMEOUT))?;
        let server = ServerName::IpAddress(Ipv4Addr::LOCALHOST.into());
        let connection = rustls::ClientConnection::new(self.tls.clone(), server)?;
        let mut stream = rustls::StreamOwned::new(connection, socket);
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut head = [0; "HTTP/1.1 200".len()];
        stream.read_exact(&mut head)?;
        let head = std::str::from_utf8(&head)?;
        let (_, code) = head.split_once(' ').context("not an HTTP answer")?;
        Ok(code.parse()?)
    }
}
