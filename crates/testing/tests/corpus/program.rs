//! The programs of controllers, as processes: with a kubeconfig, or with exactly what their pods in a member have.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    path::Path,
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Value, json};
use tempfile::TempDir;
use testing::patience::eventually;
use tokio::{process::Command, task::JoinHandle};

use super::{
    api::{Api, text},
    controller::Controller,
    side::{Side, listed},
};

/// Where pods find out who they are.
const ACCESS: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// What a kubelet waits before it starts a container again, at first.
const AGAIN: Duration = Duration::from_secs(1);
const SAID: usize = 12;

/// Processes that go on until this is dropped.
pub struct Program {
    tasks: Vec<JoinHandle<()>>,
    /// How often one of them ended by itself.
    ended: Arc<AtomicUsize>,
    directory: TempDir,
}

/// What a process starts with.
struct Start {
    command: Vec<String>,
    variables: BTreeMap<String, String>,
    /// In files at `ACCESS`.
    access: BTreeMap<String, Vec<u8>>,
}

impl Drop for Program {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl Program {
    /// Outside of all clusters, as the account that it would have inside.
    pub async fn outside(side: &Side, controller: &Controller) -> Result<Program> {
        let home = controller.home();
        let token = side.api.token(home, &controller.name).await?;
        let program = Program::empty()?;
        let container = &controller.deployment["spec"]["template"]["spec"]["containers"][0];
        let mut variables = variables(container, home, &controller.name);
        let mut access = BTreeMap::new();
        if controller.in_cluster {
            let address = side.door.url.strip_prefix("https://").unwrap_or_default();
            let (host, port) = address.rsplit_once(':').context("a port")?;
            variables.insert("KUBERNETES_SERVICE_HOST".to_owned(), host.to_owned());
            variables.insert("KUBERNETES_SERVICE_PORT".to_owned(), port.to_owned());
            for (name, content) in
                [("token", token.as_str()), ("ca.crt", side.door.ca_pem.as_str()), ("namespace", home)]
            {
                access.insert(name.to_owned(), content.as_bytes().to_vec());
            }
        } else {
            let kubeconfig = program.directory.path().join("kubeconfig");
            fs::write(&kubeconfig, kubeconfig_of(side, &token))?;
            variables.insert("KUBECONFIG".to_owned(), kubeconfig.display().to_string());
        }
        let command = words(&container["command"]);
        let start =
            |_| Start { command: command.clone(), variables: variables.clone(), access: access.clone() };
        program.run((0..controller.replicas).map(start).collect())
    }

    /// Instead of the containers of its pods in the members, which nothing runs there.
    pub async fn placed(side: &Side, controller: &Controller) -> Result<Program> {
        side.api.apply(&controller.deployment, "").await?;
        let pods = eventually("the controller's pods run in a member", || async {
            let mut running = Vec::new();
            for (_, member) in &side.members {
                let pods = listed(&[member], "v1", "Pod", controller.home()).await?;
                let runs = pods.into_iter().filter(|it| it["status"]["phase"] == "Running");
                running.extend(runs.map(|it| (member.clone(), it)));
            }
            Ok((running.len() == controller.replicas).then_some(running))
        })
        .await?;
        let mut starts = Vec::new();
        for (member, pod) in pods {
            starts.push(start_of(&member, &pod).await?);
        }
        Program::empty()?.run(starts)
    }

    fn empty() -> Result<Program> {
        Ok(Program { tasks: Vec::new(), ended: Arc::default(), directory: tempfile::tempdir()? })
    }

    fn run(mut self, starts: Vec<Start>) -> Result<Program> {
        for (number, start) in starts.into_iter().enumerate() {
            let folder = self.directory.path().join(number.to_string());
            fs::create_dir(&folder)?;
            for (name, content) in &start.access {
                fs::write(folder.join(name), content)?;
            }
            let log = self.directory.path().join(format!("{number}.log"));
            let program = start.command.first().context("a program")?;
            ensure!(Path::new(program).exists(), "{program} is not built: ./test corpus-controllers does it");
            let ended = self.ended.clone();
            self.tasks.push(tokio::spawn(async move {
                loop {
                    if let Err(error) = once(&start, &folder, &log).await {
                        eprintln!("{}: {error:#}", start.command.join(" "));
                    }
                    ended.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(AGAIN).await;
                }
            }));
        }
        Ok(self)
    }

    /// Fails if one of them did not go on, with what it said.
    pub fn went_on(&self) -> Result<()> {
        let ended = self.ended.load(Ordering::Relaxed);
        ensure!(ended == 0, "the controller ended {ended} times: {}", self.said());
        Ok(())
    }

    /// The last that they said.
    pub fn said(&self) -> String {
        let logs = (0..self.tasks.len()).map(|it| self.directory.path().join(format!("{it}.log")));
        let last = |log| {
            let said = fs::read_to_string(log).unwrap_or_default();
            let lines: Vec<&str> = said.lines().collect();
            lines[lines.len().saturating_sub(SAID)..].join("\n")
        };
        logs.map(last).collect::<Vec<String>>().join("\n")
    }
}

/// Runs it until it ends. It is killed when nobody waits for it any more.
async fn once(start: &Start, folder: &Path, log: &Path) -> Result<()> {
    let log = File::options().create(true).append(true).open(log)?;
    let mut command = match start.access.is_empty() {
        true => Command::new(&start.command[0]),
        // In-cluster configurations know of one path only: this process alone sees its files there.
        false => {
            let mut command = Command::new("unshare");
            let script = format!(
                "mount -t tmpfs tmpfs /var/run && mkdir -p {ACCESS} && cp -r \"$1\"/. {ACCESS} && shift && exec \"$@\""
            );
            command.args(["--mount", "--propagation", "private", "sh", "-c", &script, "sh"]).arg(folder);
            command.arg(&start.command[0]);
            command
        }
    };
    command
        .args(&start.command[1..])
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
        .env("HOME", folder)
        .envs(&start.variables)
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .kill_on_drop(true);
    command.spawn()?.wait().await?;
    Ok(())
}

fn kubeconfig_of(side: &Side, token: &str) -> String {
    let authority = BASE64_STANDARD.encode(&side.door.ca_pem);
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "it",
        "clusters": [{"name": "it", "cluster": {"server": side.door.url, "certificate-authority-data": authority}}],
        "users": [{"name": "it", "user": {"token": token}}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
    })
    .to_string()
}

fn words(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// As a kubelet gives them to a container.
fn variables(container: &Value, namespace: &str, pod: &str) -> BTreeMap<String, String> {
    let value = |it: &Value| match text(it, "/valueFrom/fieldRef/fieldPath") {
        "metadata.namespace" => namespace.to_owned(),
        "metadata.name" => pod.to_owned(),
        _ => text(it, "/value").to_owned(),
    };
    let all = container["env"].as_array().into_iter().flatten();
    all.map(|it| (text(it, "/name").to_owned(), value(it))).collect()
}

/// Of a pod as it stands in the member.
async fn start_of(member: &Api, pod: &Value) -> Result<Start> {
    let (namespace, name) = (text(pod, "/metadata/namespace"), text(pod, "/metadata/name"));
    let container = &pod["spec"]["containers"][0];
    let mounts = container["volumeMounts"].as_array().into_iter().flatten();
    let mount = mounts.into_iter().find(|it| it["mountPath"] == ACCESS).context("it mounts no token")?;
    let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
    let volume = volumes.into_iter().find(|it| it["name"] == mount["name"]).context("its volume")?;
    let mut access = BTreeMap::new();
    for source in volume["projected"]["sources"].as_array().into_iter().flatten() {
        let secret = text(source, "/secret/name");
        if secret.is_empty() {
            bail!("not from the hub: {source}");
        }
        let wanted = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": secret, "namespace": namespace}});
        let found = eventually("the Secret with the token", || member.get(&wanted, namespace)).await?;
        for item in source["secret"]["items"].as_array().into_iter().flatten() {
            let content =
                BASE64_STANDARD.decode(text(&found["data"], &format!("/{}", text(item, "/key"))))?;
            access.insert(text(item, "/path").to_owned(), content);
        }
    }
    let variables = variables(container, namespace, name);
    ensure!(variables.contains_key("KUBERNETES_SERVICE_HOST"), "{name} is not told where the hub is");
    Ok(Start { command: words(&container["command"]), variables, access })
}
