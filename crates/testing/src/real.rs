//! A real Kubernetes API server, for tests that compare Hanse with it.
//!
//! ```text
//!   RealCluster --starts--> etcd <-- kube-apiserver <-- kube-controller-manager (if asked)
//!        |                                          <-- kube-scheduler, kwok (if it has nodes)
//!        |                    free loopback ports, one temporary directory, own CA
//!        +--pipe--> guard     kills them all when this process is gone, however it went
//! ```
//!
//! The binaries come from `tests/real/build`, which builds what is missing.

#![allow(clippy::disallowed_methods)]

use std::{
    fs,
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use base64::{Engine, prelude::BASE64_STANDARD};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    IsCa, KeyPair, KeyUsagePurpose,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use serde_json::json;
use tempfile::TempDir;

/// What to start, and how.
#[derive(Debug, Clone)]
pub struct Options {
    /// Also run kube-controller-manager: service accounts, garbage collection, workloads (but no pods run).
    pub controller_manager: bool,
    /// Run only these of its controllers; all if there are none here.
    pub controllers: Vec<String>,
    /// Nodes that kwok pretends to be, and a scheduler: pods run, as far as anybody can see.
    pub nodes: Vec<String>,
    /// Off only where durability is not what is tested or measured.
    pub fsync: bool,
    /// Further flags of kube-apiserver; a repeated flag overrides the one given here.
    pub apiserver_args: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            controller_manager: false,
            controllers: Vec::new(),
            nodes: Vec::new(),
            fsync: true,
            apiserver_args: Vec::new(),
        }
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
    // Dropped in this order: first the processes, then the guard that needs no longer watch them, then their files.
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
        cluster.start_apiserver(etcd_port, api_port, &options.apiserver_args)?;
        // The `default` namespace is made shortly after readiness; hardly a test can do without.
        cluster.wait_for("/readyz")?;
        cluster.wait_for("/api/v1/namespaces/default")?;
        if options.controller_manager {
            cluster.start_controller_manager(manager_port, &options.controllers)?;
            if options.controllers.is_empty() {
                cluster.wait_for("/api/v1/namespaces/default/serviceaccounts/default")?;
                cluster.wait_for("/api/v1/namespaces/default/configmaps/kube-root-ca.crt")?;
            }
        }
        if !options.nodes.is_empty() {
            cluster.start_scheduler(scheduler_port)?;
            cluster.start_kwok()?;
            for node in &options.nodes {
                cluster.add_node(node)?;
            }
        }
        Ok(cluster)
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

    fn start_controller_manager(&mut self, port: u16, controllers: &[String]) -> Result<()> {
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
        if !controllers.is_empty() {
            args.push(format!("--controllers={}", controllers.join(",")));
        }
        self.spawn("kube-controller-manager", &args)
    }

    fn start_scheduler(&mut self, port: u16) -> Result<()> {
        let kubeconfig = self.kubeconfig_for("system:kube-scheduler", &[])?;
        let args = [
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--authentication-kubeconfig={}", kubeconfig.display()),
            format!("--authorization-kubeconfig={}", kubeconfig.display()),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={port}"),
            format!("--cert-dir={}", self.path("scheduler")),
            "--leader-elect=false".to_owned(),
        ];
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
        let (said, log) = (String::from_utf8_lossy(&output.stderr).into_owned(), self.log_tail("kwok"));
        ensure!(output.status.success(), "kubectl {} failed: {said}\n--- kwok\n{log}", args.join(" "));
        Ok(())
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

/// One child in a process group of its own. Dropping it kills the group and reaps the child.
pub(crate) struct Process {
    pub(crate) name: &'static str,
    pub(crate) child: Child,
    log: PathBuf,
}

impl Process {
    pub(crate) fn spawn(
        name: &'static str,
        binary: &Path,
        args: &[String],
        directory: &Path,
    ) -> Result<Self> {
        let log = directory.join(format!("{name}.log"));
        let output = fs::File::create(&log)?;
        let child = Command::new(binary)
            .args(args)
            .current_dir(directory)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {}", binary.display()))?;
        Ok(Self { name, child, log })
    }

    pub(crate) fn log_tail(&self) -> String {
        const LINES: usize = 25;
        let log = fs::read(&self.log).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LINES)..].join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(group) = rustix::process::Pid::from_raw(self.child.id().cast_signed()) {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        let _ = self.child.wait();
    }
}

/// A shell that reads process ids from a pipe; when the pipe closes because this process is gone (killed, or a
/// cluster kept in a `static`, which is never dropped), it kills those groups and removes the directory.
pub(crate) struct Guard {
    shell: Child,
}

impl Guard {
    const SCRIPT: &str = r#"
        groups=
        while read -r group; do groups="$groups -$group"; done
        [ -z "$groups" ] || kill -s KILL -- $groups
        rm -rf -- "$1"
    "#;

    pub(crate) fn new(directory: &Path) -> Result<Self> {
        let shell = Command::new("sh")
            .args(["-c", Self::SCRIPT, "guard"])
            .arg(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .context("cannot start sh")?;
        Ok(Self { shell })
    }

    pub(crate) fn watch(&mut self, pid: u32) -> Result<()> {
        let pipe = self.shell.stdin.as_mut().context("the guard has no stdin")?;
        writeln!(pipe, "{pid}").context("the guard is gone")
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // Killed before its pipe closes (`Child::wait` closes it): the ids it holds are no longer ours.
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

/// A certificate authority, such as a cluster's own.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate and its key.
pub struct Issued {
    pub cert_pem: String,
    pub key_pem: String,
}

impl Authority {
    pub fn new() -> Result<Self> {
        let mut params = CertificateParams::new([])?;
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "real-cluster");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        Ok(Self { issuer: CertifiedIssuer::self_signed(params, KeyPair::generate()?)? })
    }

    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    fn key_pem(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    pub(crate) fn serving(&self) -> Result<Issued> {
        self.serving_for(&["127.0.0.1", "localhost", "10.96.0.1", "kubernetes.default.svc"])
    }

    pub(crate) fn serving_for(&self, names: &[&str]) -> Result<Issued> {
        let mut params =
            CertificateParams::new(names.iter().copied().map(str::to_owned).collect::<Vec<_>>())?;
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "kube-apiserver");
        // A member of etcd also dials itself with this one.
        self.sign(params, &[ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth])
    }

    /// For a client with this name; at most two groups.
    pub fn client(&self, user: &str, groups: &[&str]) -> Result<Issued> {
        // rcgen keeps one value per attribute type, but takes the type under its name and under its number.
        let attributes = [DnType::OrganizationName, DnType::CustomDnType(vec![2, 5, 4, 10])];
        ensure!(
            groups.len() <= attributes.len(),
            "a certificate can carry at most {} groups",
            attributes.len()
        );
        let mut params = CertificateParams::new([])?;
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, user);
        for (attribute, group) in attributes.into_iter().zip(groups) {
            params.distinguished_name.push(attribute, *group);
        }
        self.sign(params, &[ExtendedKeyUsagePurpose::ClientAuth])
    }

    /// TLS of a client that holds this certificate and trusts this authority.
    pub(crate) fn trusted_by(&self, client: &Issued) -> Result<Arc<rustls::ClientConfig>> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(self.issuer.der().clone())?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_client_auth_cert(
                vec![CertificateDer::from_pem_slice(client.cert_pem.as_bytes())?],
                PrivateKeyDer::from_pem_slice(client.key_pem.as_bytes())?,
            )?;
        Ok(Arc::new(tls))
    }

    fn sign(&self, mut params: CertificateParams, usages: &[ExtendedKeyUsagePurpose]) -> Result<Issued> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = usages.to_vec();
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let cert = params.signed_by(&key, &self.issuer)?;
        Ok(Issued { cert_pem: cert.pem(), key_pem: key.serialize_pem() })
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn when_the_pipe_closes_the_guard_kills_the_groups_and_removes_the_directory() {
        let directory = TempDir::new().expect("a directory");
        let mut guard = Guard::new(directory.path()).expect("a guard");
        let mut children = [(); 2].map(|()| {
            let child = Command::new("sleep").arg("600").process_group(0).spawn().expect("sleep starts");
            guard.watch(child.id()).expect("the guard listens");
            child
        });

        drop(guard.shell.stdin.take());

        for child in &mut children {
            let status = child.wait().expect("it ends");
            assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9));
        }
        guard.shell.wait().expect("the guard ends");
        assert!(!directory.path().exists());
    }
}
