//! The clusters: one alone with all the nodes, a hub with simulated ones, and a hub with real ones.

use std::{
    fs::File,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::Value;
use tempfile::TempDir;
use testing::{
    client::Client,
    operator::Operator,
    patience::{Patience, eventually},
    process::{Admin, binary, free_port},
    real::{Options, RealCluster},
};

use super::{
    api::{Api, text},
    cloud::{Cloud, give_classes},
    side::{Door, Side},
};

/// As `hanse dev` calls its first three.
const MEMBERS: [&str; 3] = ["eu-1", "eu-2", "us-1"];
/// In each member; the cluster that stands alone has as many as all of them.
const NODES: usize = 3;

pub struct World {
    pub side: Side,
    // Dropped in this order.
    _clouds: Vec<Cloud>,
    _servers: Servers,
}

enum Servers {
    Plain(#[expect(dead_code, reason = "runs until it is dropped")] Box<RealCluster>),
    Simulated(#[expect(dead_code, reason = "runs until it is dropped")] Dev),
    Real(
        #[expect(dead_code, reason = "runs until it is dropped")] Box<Operator>,
        #[expect(dead_code, reason = "run until they are dropped")] Vec<RealCluster>,
    ),
}

impl World {
    /// A real control plane, whose nodes kwok pretends to be.
    pub async fn plain() -> Result<World> {
        let cluster = real_cluster("plain", NODES * MEMBERS.len()).await?;
        let api = api_of(&cluster).await?;
        let clouds = vec![Cloud::over(api.clone(), true).await?];
        let door = Door { url: cluster.url.clone(), ca_pem: cluster.ca_pem.clone() };
        let side = Side { name: "plain", api, members: Vec::new(), door };
        Ok(World { side, _clouds: clouds, _servers: Servers::Plain(Box::new(cluster)) })
    }

    /// The program as people try it: `hanse dev`.
    pub async fn simulated() -> Result<World> {
        let mut dev = Dev::start()?;
        for name in MEMBERS {
            give_classes(&Api::new(dev.client(name).await?), false).await?;
        }
        // Classes are looked for when a session begins, and then every few minutes.
        dev.restart()?;
        let hub = dev.context("hanse")?;
        let api = Api::new(hub.connect().await?);
        let (mut members, mut clouds) = (Vec::new(), Vec::new());
        for name in MEMBERS {
            let member = Api::new(dev.client(name).await?);
            clouds.push(Cloud::over(member.clone(), false).await?);
            members.push((name.to_owned(), member));
        }
        until_known(&api).await?;
        let side = Side { name: "simulated", api, members, door: hub.door };
        Ok(World { side, _clouds: clouds, _servers: Servers::Simulated(dev) })
    }

    /// Real control planes, joined as people do it.
    pub async fn real() -> Result<World> {
        let (mut clusters, mut members, mut clouds) = (Vec::new(), Vec::new(), Vec::new());
        for name in MEMBERS {
            let cluster = real_cluster(name, NODES).await?;
            let member = api_of(&cluster).await?;
            clouds.push(Cloud::over(member.clone(), true).await?);
            members.push((name.to_owned(), member));
            clusters.push(cluster);
        }
        let operator = Operator::start(clusters[0].kubectl())?;
        for (name, cluster) in MEMBERS.iter().zip(&clusters) {
            let kubeconfig = cluster.kubeconfig.display().to_string();
            let said = operator.hanse(&["join", name, "--kubeconfig", &kubeconfig, "--region", &name[..2]]);
            ensure!(said.done, "{}", said.text);
        }
        let admin = Admin::read(&operator.kubeconfig())?;
        let identity = (admin.certificate_pem.as_str(), admin.key_pem.as_str());
        let api = Api::new(Client::connect(&admin.url, &admin.ca_pem, Some(identity)).await?);
        until_known(&api).await?;
        let door = Door { url: admin.url.clone(), ca_pem: admin.ca_pem.clone() };
        let side = Side { name: "real", api, members, door };
        Ok(World { side, _clouds: clouds, _servers: Servers::Real(Box::new(operator), clusters) })
    }
}

async fn real_cluster(name: &str, nodes: usize) -> Result<RealCluster> {
    let options = Options {
        controller_manager: true,
        nodes: (1..=nodes).map(|number| format!("{name}-node-{number}")).collect(),
        fsync: false,
        client_limits: Some((500, 1000)),
        // As clusters mostly have it: namespaces decide.
        apiserver_args: vec!["--allow-privileged=true".to_owned()],
        ..Options::default()
    };
    tokio::task::spawn_blocking(|| RealCluster::start(options)).await?
}

async fn api_of(cluster: &RealCluster) -> Result<Api> {
    let identity = (cluster.admin_cert_pem.as_str(), cluster.admin_key_pem.as_str());
    Ok(Api::new(Client::connect(&cluster.url, &cluster.ca_pem, Some(identity)).await?))
}

/// Waits until the hub knows of all clusters what it decides by.
async fn until_known(hub: &Api) -> Result<()> {
    let kind = serde_json::json!({"apiVersion": "hanse.io/v1alpha1", "kind": "Cluster"});
    let served = hub.served(&kind).await?;
    let is_known = |it: &Value| {
        let ready = api::cluster::condition(it, "Ready").is_some_and(|it| it["status"] == "True");
        let classes = it["status"]["classes"].to_string();
        ready
            && it["status"]["nodes"]["ready"] == NODES
            && it["status"]["apis"][0].is_object()
            && ["nginx", "standard"].iter().all(|class| classes.contains(class))
    };
    eventually("the hub knows all clusters", || async {
        let clusters = hub.list(&served, None).await?;
        Ok((clusters.len() == MEMBERS.len() && clusters.iter().all(is_known)).then_some(()))
    })
    .await
}

/// What a context of a kubeconfig says.
struct Context {
    door: Door,
    certificate_pem: String,
    key_pem: String,
}

impl Context {
    /// What it says of the path does not count: the workspace `default` needs none.
    fn read(config: &Value, context: &str) -> Result<Context> {
        let named = |list: &str, name: &str| {
            let all = config[list].as_array().into_iter().flatten();
            let found = all.into_iter().find(|it| it["name"] == name).cloned();
            found.with_context(|| format!("no {name} in {list}"))
        };
        let context = named("contexts", context)?;
        let cluster = named("clusters", text(&context, "/context/cluster"))?;
        let user = named("users", text(&context, "/context/user"))?;
        let pem =
            |of: &Value, at: &str| anyhow::Ok(String::from_utf8(BASE64_STANDARD.decode(text(of, at))?)?);
        let server = text(&cluster, "/cluster/server");
        let url = server.split("/clusters/").next().unwrap_or_default().to_owned();
        Ok(Context {
            door: Door { url, ca_pem: pem(&cluster, "/cluster/certificate-authority-data")? },
            certificate_pem: pem(&user, "/user/client-certificate-data")?,
            key_pem: pem(&user, "/user/client-key-data")?,
        })
    }

    async fn connect(&self) -> Result<Client> {
        let identity = (self.certificate_pem.as_str(), self.key_pem.as_str());
        Client::connect(&self.door.url, &self.door.ca_pem, Some(identity)).await
    }
}

/// `hanse dev`. Killed when dropped.
struct Dev {
    child: Child,
    port: u16,
    directory: TempDir,
}

impl Dev {
    fn start() -> Result<Dev> {
        let (directory, port) = (tempfile::tempdir()?, free_port()?);
        let child = Self::spawn(directory.path(), port)?;
        let mut dev = Dev { child, port, directory };
        dev.until_ready()?;
        Ok(dev)
    }

    /// Stops it, and starts it where it was.
    fn restart(&mut self) -> Result<()> {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        self.child.wait()?;
        self.child = Self::spawn(self.directory.path(), self.port)?;
        self.until_ready()
    }

    fn spawn(directory: &Path, port: u16) -> Result<Child> {
        let log = File::create(directory.join("log"))?;
        Command::new(binary()?)
            .arg("dev")
            .arg("--dir")
            .arg(directory.join("dev"))
            .args(["--listen", &format!("127.0.0.1:{port}")])
            .args(["--clusters", &MEMBERS.len().to_string(), "--nodes", &NODES.to_string()])
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("starting hanse dev")
    }

    fn until_ready(&mut self) -> Result<()> {
        let mut patience = Patience::default();
        loop {
            let said = std::fs::read_to_string(self.directory.path().join("log"))?;
            if said.contains("is ready") {
                return Ok(());
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("hanse dev ended with {status}: {said}");
            }
            ensure!(patience.lasts(said.len()), "hanse dev is not ready: {said}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn context(&self, name: &str) -> Result<Context> {
        let text = std::fs::read_to_string(self.directory.path().join("dev/kubeconfig"))?;
        Context::read(&serde_saphyr::from_str(&text)?, name)
    }

    async fn client(&self, context: &str) -> Result<Client> {
        self.context(context)?.connect().await
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
