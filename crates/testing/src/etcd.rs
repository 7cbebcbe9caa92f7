//! A real etcd cluster, for tests of what stands on it.
//!
//! ```text
//!   EtcdCluster --starts--> member 0 · member 1 · member 2 …   free loopback ports, one temporary directory
//!        |                    kill, stop, let go on, restart: each by its number
//!        +--pipe--> guard     kills them all when this process is gone, however it went
//! ```
//!
//! Every call blocks until what it does is done; from async code wrap it in `spawn_blocking` where others must go on.

use std::{
    fs,
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use base64::{Engine, prelude::BASE64_STANDARD};
use rustix::process::{Pid, Signal, kill_process};
use rustls::pki_types::ServerName;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::real::{Authority, Guard, Process, build, some_free_ports};

/// What to start, and how.
#[derive(Debug, Clone)]
pub struct EtcdOptions {
    pub members: usize,
    /// Serve clients by TLS, and only those with a certificate of the cluster's authority.
    pub tls: bool,
    /// If there is one, nobody gets in without a password.
    pub users: Vec<EtcdUser>,
    /// Off only loses what a crash of the whole machine would; a killed member loses nothing.
    pub fsync: bool,
    /// Further flags of each member.
    pub args: Vec<String>,
    /// Where each member runs; on loopback, in the cluster's directory, if there is none here.
    pub places: Vec<Place>,
}

/// A place for a member, such as a network namespace and a disk of its own.
#[derive(Debug, Clone)]
pub struct Place {
    pub address: Ipv4Addr,
    /// A command that runs the rest of its line there.
    pub enter: Vec<String>,
    pub directory: PathBuf,
}

impl Default for EtcdOptions {
    fn default() -> Self {
        Self { members: 1, tls: false, users: Vec::new(), fsync: false, args: Vec::new(), places: Vec::new() }
    }
}

/// Somebody who may read and write what begins with a prefix.
#[derive(Debug, Clone)]
pub struct EtcdUser {
    pub name: String,
    pub password: String,
    pub prefix: String,
}

/// A running cluster. Dropping it kills its members and removes its directory.
pub struct EtcdCluster {
    options: EtcdOptions,
    binary: PathBuf,
    tls: Option<Arc<rustls::ClientConfig>>,
    ports: Vec<Ports>,
    // Dropped in this order: first the processes, then the guard that needs no longer watch them, then their files.
    members: Vec<Option<Process>>,
    /// Came to a cluster that was there.
    is_new: Vec<bool>,
    guard: Guard,
    directory: TempDir,
}

#[derive(Clone, Copy)]
struct Ports {
    client: u16,
    peer: u16,
    /// Plain HTTP, whatever clients use: `/health` and `/metrics`.
    metrics: u16,
}

/// An election takes seconds on an idle machine; tests run beside builds on busy ones.
const PATIENCE: Duration = Duration::from_secs(120);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);
/// Another process may take a free port before the child binds it.
const START_ATTEMPTS: usize = 3;
const ROOT_PASSWORD: &str = "root-of-a-test";

impl EtcdCluster {
    /// Starts a cluster and returns when all its members serve.
    pub fn start(options: EtcdOptions) -> Result<Self> {
        let binary = build(&["etcd"])?.join("etcd");
        let mut attempt = 1;
        loop {
            match Self::try_start(&options, &binary) {
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

    fn try_start(options: &EtcdOptions, binary: &Path) -> Result<Self> {
        ensure!(options.members > 0, "a cluster has a member");
        let directory = tempfile::Builder::new().prefix("hanse-etcd-").tempdir()?;
        let ports = some_free_ports(options.members * 3)?;
        let ports = ports.chunks_exact(3).map(|of| Ports { client: of[0], peer: of[1], metrics: of[2] });
        let mut cluster = Self {
            tls: options.tls.then(|| write_certificates(directory.path())).transpose()?,
            ports: ports.collect(),
            members: (0..options.members).map(|_| None).collect(),
            is_new: vec![false; options.members],
            guard: Guard::new(directory.path())?,
            binary: binary.to_owned(),
            options: options.clone(),
            directory,
        };
        for member in 0..options.members {
            cluster.spawn(member)?;
        }
        for member in 0..options.members {
            cluster.wait_until_served(member)?;
        }
        cluster.protect()?;
        Ok(cluster)
    }

    /// `HOST:PORT` of each member, in their order.
    pub fn endpoints(&self) -> Vec<String> {
        (0..self.ports.len()).map(|member| self.address(member).to_string()).collect()
    }

    pub fn address(&self, member: usize) -> SocketAddr {
        (self.host(member), self.ports[member].client).into()
    }

    fn host(&self, member: usize) -> Ipv4Addr {
        self.options.places.get(member).map_or(Ipv4Addr::LOCALHOST, |place| place.address)
    }

    /// The authority's certificate, PEM, if clients use TLS; beside it `client.crt` and `client.key`.
    pub fn ca_file(&self) -> PathBuf {
        self.directory.path().join("ca.crt")
    }

    pub fn cert_file(&self) -> PathBuf {
        self.directory.path().join("client.crt")
    }

    pub fn key_file(&self) -> PathBuf {
        self.directory.path().join("client.key")
    }

    /// Ends a member without warning. Its files stay.
    pub fn kill(&mut self, member: usize) {
        self.members[member] = None;
    }

    /// Where a member keeps everything. Only of a killed one can it be copied, or replaced.
    pub fn data(&self, member: usize) -> PathBuf {
        self.directory_of(member).join("data")
    }

    /// Starts all members on nothing, as a cluster of another name.
    pub fn begin_anew(&mut self, name: &str) -> Result<()> {
        for member in 0..self.members.len() {
            self.kill(member);
            fs::remove_dir_all(self.data(member))?;
        }
        self.options.args.push(format!("--initial-cluster-token={name}"));
        for member in 0..self.members.len() {
            self.spawn(member)?;
        }
        (0..self.members.len()).try_for_each(|member| self.wait_until_served(member))
    }

    /// Lets a member hang: its connections stay open and nothing answers.
    pub fn stop(&self, member: usize) -> Result<()> {
        self.signal(member, Signal::STOP)
    }

    pub fn go_on(&self, member: usize) -> Result<()> {
        self.signal(member, Signal::CONT)
    }

    /// Starts a killed member again, or a running one anew, and returns when it serves.
    pub fn restart(&mut self, member: usize) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            self.kill(member);
            self.spawn(member)?;
            match self.wait_until_served(member) {
                // Somebody else may use its port for a moment.
                Err(error)
                    if Instant::now() < deadline
                        && format!("{error:#}").contains("address already in use") => {}
                result => return result,
            }
        }
    }

    /// Starts a killed member again without waiting for it, which may be cut off from the others.
    pub fn launch(&mut self, member: usize) -> Result<()> {
        self.kill(member);
        self.spawn(member)
    }

    /// Takes a member out of the cluster with all it has, and a new one in at its place.
    pub fn replace(&mut self, member: usize) -> Result<()> {
        let other = (member + 1) % self.members.len();
        self.kill(member);
        let name = format!("member-{member}");
        let known = self.gateway(other, "/v3/cluster/member/list", &json!({}))?;
        let list = known["members"].as_array().context("a cluster has members")?;
        let found = list.iter().find(|it| it["name"] == name.as_str()).context("no such member")?;
        self.insist(other, "/v3/cluster/member/remove", &json!({"ID": found["ID"]}))?;
        let directory = self.data(member);
        fs::remove_dir_all(&directory).with_context(|| format!("cannot remove {}", directory.display()))?;
        let peer = format!("http://{}:{}", self.host(member), self.ports[member].peer);
        self.insist(other, "/v3/cluster/member/add", &json!({"peerURLs": [peer]}))?;
        self.is_new[member] = true;
        self.spawn(member)
    }

    /// The member that leads, waiting for one if there is none.
    pub fn leader(&self) -> Result<usize> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(leader) = self.leading() {
                return Ok(leader);
            }
            ensure!(Instant::now() < deadline, "no member leads{}", self.logs());
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// The member that leads and says so.
    pub fn leading(&self) -> Option<usize> {
        let leads = |member: &usize| {
            self.members[*member].is_some()
                && self
                    .get(*member, "/metrics")
                    .is_ok_and(|text| text.lines().any(|line| line == "etcd_server_is_leader 1"))
        };
        (0..self.members.len()).find(leads)
    }

    /// One of the metrics without labels that a member shows.
    pub fn metric(&self, member: usize, name: &str) -> Result<f64> {
        let text = self.get(member, "/metrics")?;
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        Ok(value.with_context(|| format!("member {member} shows no {name}"))?.parse()?)
    }

    pub fn pid(&self, member: usize) -> Option<u32> {
        self.members[member].as_ref().map(|process| process.child.id())
    }

    /// The last lines of all members' logs, for a test's own error messages.
    pub fn logs(&self) -> String {
        let running = self.members.iter().enumerate().filter_map(|(at, of)| Some((at, of.as_ref()?)));
        running.map(|(at, process)| format!("\n--- member {at}\n{}", process.log_tail())).collect()
    }

    /// Asks a member by etcd's JSON gateway, as root where there are users: `/v3/kv/put`, `/v3/maintenance/alarm` …
    pub fn gateway(&self, member: usize, path: &str, body: &Value) -> Result<Value> {
        let token = match self.options.users.is_empty() {
            true => None,
            false => {
                let who = json!({"name": "root", "password": ROOT_PASSWORD});
                let answer = self.post(member, "/v3/auth/authenticate", &who, None)?;
                Some(answer["token"].as_str().context("no token")?.to_owned())
            }
        };
        self.post(member, path, body, token.as_deref())
    }

    /// Asks for a change until it is made: a cluster takes none before it has been healthy for some seconds. An
    /// earlier attempt may have made it without our being told.
    fn insist(&self, member: usize, path: &str, body: &Value) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let Err(error) = self.gateway(member, path, body) else { return Ok(()) };
            let text = format!("{error:#}");
            if text.contains("Peer URLs already exists") || text.contains("member not found") {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "{path}: {text}");
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    fn spawn(&mut self, member: usize) -> Result<()> {
        let directory = self.directory_of(member);
        fs::create_dir_all(&directory)?;
        let enter = self.options.places.get(member).map_or(&[][..], |place| &place.enter);
        let mut line: Vec<String> = enter.to_vec();
        line.push(self.binary.display().to_string());
        line.extend(self.args(member));
        let program = PathBuf::from(line.remove(0));
        let process = Process::spawn("etcd", &program, &line, &directory)?;
        self.guard.watch(process.child.id())?;
        self.members[member] = Some(process);
        Ok(())
    }

    fn directory_of(&self, member: usize) -> PathBuf {
        match self.options.places.get(member) {
            Some(place) => place.directory.clone(),
            None => self.directory.path().join(format!("member-{member}")),
        }
    }

    fn args(&self, member: usize) -> Vec<String> {
        let Ports { client, peer, metrics } = self.ports[member];
        let host = self.host(member);
        let scheme = if self.options.tls { "https" } else { "http" };
        let peer_of =
            |(at, ports): (usize, &Ports)| format!("member-{at}=http://{}:{}", self.host(at), ports.peer);
        let cluster: Vec<String> = self.ports.iter().enumerate().map(peer_of).collect();
        let mut args = vec![
            format!("--name=member-{member}"),
            "--data-dir=data".to_owned(),
            format!("--listen-client-urls={scheme}://{host}:{client}"),
            format!("--advertise-client-urls={scheme}://{host}:{client}"),
            format!("--listen-peer-urls=http://{host}:{peer}"),
            format!("--initial-advertise-peer-urls=http://{host}:{peer}"),
            format!("--listen-metrics-urls=http://{host}:{metrics}"),
            format!("--initial-cluster={}", cluster.join(",")),
            "--log-level=warn".to_owned(),
        ];
        if self.is_new[member] {
            args.push("--initial-cluster-state=existing".to_owned());
        }
        if self.options.tls {
            let file = |name: &str| self.directory.path().join(name).display().to_string();
            args.push("--client-cert-auth".to_owned());
            args.push(format!("--trusted-ca-file={}", file("ca.crt")));
            args.push(format!("--cert-file={}", file("server.crt")));
            args.push(format!("--key-file={}", file("server.key")));
        }
        if !self.options.fsync {
            args.push("--unsafe-no-fsync".to_owned());
        }
        args.extend(self.options.args.iter().cloned());
        args
    }

    /// Makes the users and lets nobody else in.
    fn protect(&self) -> Result<()> {
        if self.options.users.is_empty() {
            return Ok(());
        }
        let post = |path: &str, body: Value| self.post(0, path, &body, None);
        post("/v3/auth/user/add", json!({"name": "root", "password": ROOT_PASSWORD}))?;
        post("/v3/auth/role/add", json!({"name": "root"}))?;
        post("/v3/auth/user/grant", json!({"user": "root", "role": "root"}))?;
        for user in &self.options.users {
            let EtcdUser { name, password, prefix } = user;
            let end = etcd_after(prefix.as_bytes());
            let permission = json!({
                "permType": "READWRITE",
                "key": BASE64_STANDARD.encode(prefix),
                "range_end": BASE64_STANDARD.encode(end),
            });
            post("/v3/auth/role/add", json!({"name": name}))?;
            post("/v3/auth/role/grant", json!({"name": name, "perm": permission}))?;
            post("/v3/auth/user/add", json!({"name": name, "password": password}))?;
            post("/v3/auth/user/grant", json!({"user": name, "role": name}))?;
        }
        post("/v3/auth/enable", json!({}))?;
        Ok(())
    }

    fn signal(&self, member: usize, signal: Signal) -> Result<()> {
        let process = self.members[member].as_ref().context("the member does not run")?;
        let pid = Pid::from_raw(process.child.id().cast_signed()).context("no process id")?;
        Ok(kill_process(pid, signal)?)
    }

    /// Waits until a member takes part in the cluster, or fails with its log.
    fn wait_until_served(&mut self, member: usize) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let last = self.get(member, "/health");
            if last.as_ref().is_ok_and(|body| body.contains("\"health\":\"true\"")) {
                return Ok(());
            }
            let process = self.members[member].as_mut().context("the member does not run")?;
            if let Some(status) = process.child.try_wait()? {
                bail!("member {member} ended with {status}:\n{}", process.log_tail());
            }
            ensure!(
                Instant::now() < deadline,
                "member {member} does not serve (last: {last:?}){}",
                self.logs()
            );
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    fn get(&self, member: usize, path: &str) -> Result<String> {
        let stream = dial(self.host(member), self.ports[member].metrics)?;
        exchange(stream, &format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n"))
    }

    fn post(&self, member: usize, path: &str, body: &Value, token: Option<&str>) -> Result<Value> {
        let body = body.to_string();
        let token = token.map(|token| format!("Authorization: {token}\r\n")).unwrap_or_default();
        let length = body.len();
        let request = format!(
            "POST {path} HTTP/1.0\r\nHost: localhost\r\n{token}Content-Length: {length}\r\n\r\n{body}"
        );
        let stream = dial(self.host(member), self.ports[member].client)?;
        let answer = match &self.tls {
            None => exchange(stream, &request)?,
            Some(tls) => {
                let server = ServerName::IpAddress(Ipv4Addr::LOCALHOST.into());
                let connection = rustls::ClientConnection::new(tls.clone(), server)?;
                exchange(rustls::StreamOwned::new(connection, stream), &request)?
            }
        };
        serde_json::from_str(&answer).with_context(|| format!("{path}: {answer}"))
    }
}

/// The first key after all that begin with `prefix`.
fn etcd_after(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

fn write_certificates(directory: &Path) -> Result<Arc<rustls::ClientConfig>> {
    let authority = Authority::new()?;
    let (server, client) = (authority.serving()?, authority.client("hanse", &[])?);
    for (name, content) in [
        ("ca.crt", &authority.pem()),
        ("server.crt", &server.cert_pem),
        ("server.key", &server.key_pem),
        ("client.crt", &client.cert_pem),
        ("client.key", &client.key_pem),
    ] {
        fs::write(directory.join(name), content).with_context(|| format!("cannot write {name}"))?;
    }
    // The gateway refuses whom a certificate names, because it cannot let them in by that name.
    authority.trusted_by(&authority.client("", &[])?)
}

fn dial(host: Ipv4Addr, port: u16) -> Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&(host, port).into(), PROBE_TIMEOUT)?;
    stream.set_read_timeout(Some(PROBE_TIMEOUT))?;
    stream.set_write_timeout(Some(PROBE_TIMEOUT))?;
    Ok(stream)
}

/// Sends an HTTP/1.0 request, after whose answer the connection ends; the body, if the answer is 200.
fn exchange(mut stream: impl Read + Write, request: &str) -> Result<String> {
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    // A TLS connection may end without saying so.
    let read = stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer);
    let Some((head, body)) = answer.split_once("\r\n\r\n") else {
        read?;
        bail!("not an HTTP answer: {answer}");
    };
    ensure!(head.split(' ').nth(1) == Some("200"), "{answer}");
    Ok(body.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_survives_its_leader_and_takes_it_back() {
        let mut cluster =
            EtcdCluster::start(EtcdOptions { members: 3, ..EtcdOptions::default() }).expect("starts");
        let first = cluster.leader().expect("a leader");
        cluster.kill(first);
        let second = cluster.leader().expect("a new leader");
        assert_ne!(first, second);
        cluster.restart(first).expect("comes back");
        cluster.stop(first).expect("stops");
        cluster.go_on(first).expect("goes on");
        cluster.wait_until_served(first).expect("serves");
    }

    #[test]
    fn a_protected_cluster_lets_in_who_has_a_certificate_and_a_password() {
        let user = EtcdUser { name: "hanse".into(), password: "secret".into(), prefix: "/h/".into() };
        let options = EtcdOptions { tls: true, users: vec![user], ..EtcdOptions::default() };
        let cluster = EtcdCluster::start(options).expect("starts");
        let key = json!({"key": BASE64_STANDARD.encode("/h/a")});
        assert!(cluster.post(0, "/v3/kv/range", &key, None).is_err());
        cluster.gateway(0, "/v3/kv/range", &key).expect("root may");
    }
}
