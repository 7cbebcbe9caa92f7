//! A hub as a process, kubectl, and three real control planes whose nodes kwok pretends to be.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Value, json};
use tempfile::TempDir;
use testing::{
    link::Link,
    operator::{Operator, Said, eventually},
    process::{Admin, binary},
    real::{Options, RealCluster},
};

pub const MEMBERS: [&str; 3] = ["m1", "m2", "m3"];
const SESSION: &str = "system:serviceaccount:hanse-system:hanse-session";
/// How often something that is promised is asked after.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Pods, and what has pods.
const WORKLOADS: [&str; 7] =
    ["pods", "deployments", "replicasets", "statefulsets", "daemonsets", "jobs", "cronjobs"];
/// All that sessions write, with what they sent; of others, that they did.
const AUDIT: &str = r#"{
  "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
  "rules": [
    {"level": "None", "verbs": ["get", "list", "watch"]},
    {"level": "Request", "users": ["system:serviceaccount:hanse-system:hanse-session"]},
    {"level": "Metadata"}
  ]
}"#;

pub struct Member {
    pub name: &'static str,
    pub cluster: RealCluster,
    pub link: Link,
    audit: PathBuf,
}

pub struct World {
    pub operator: Operator,
    pub members: Vec<Member>,
    directory: TempDir,
}

impl World {
    pub fn start() -> World {
        let directory = tempfile::tempdir().expect("a directory");
        let place = directory.path();
        let members: Vec<Member> = thread::scope(|scope| {
            let starting = MEMBERS.map(|name| scope.spawn(move || Member::start(name, place)));
            starting.into_iter().map(|it| it.join().expect("it starts")).collect()
        });
        let operator = Operator::start(members[0].cluster.kubectl()).expect("the hub starts");
        let world = World { operator, members, directory };
        MEMBERS.iter().for_each(|name| world.begin_join(name));
        MEMBERS.iter().for_each(|name| world.until_known(name));
        world
    }

    fn begin_join(&self, name: &str) {
        let kubeconfig = self.member(name).kubeconfig_by_link(self.directory.path()).display().to_string();
        // Where a member was unjoined just now, what was made there is on its way out, and whoever is early is told so.
        eventually(&format!("{name} can be joined"), || {
            let said = self.operator.hanse(&["join", name, "--kubeconfig", &kubeconfig, "--region", "eu"]);
            if said.done || !said.text.contains("is being deleted") { Ok(said.ok()) } else { Err(said.text) }
        });
    }

    fn until_known(&self, name: &str) {
        self.until("cluster", name, "it is known", |it| {
            it["status"]["nodes"]["ready"] == 1 && it["status"]["apis"][0].is_object()
        });
    }

    /// A member joins again.
    pub fn join(&self, name: &str) {
        self.begin_join(name);
        self.until_known(name);
    }

    pub fn member(&self, name: &str) -> &Member {
        self.members.iter().find(|it| it.name == name).expect("it is one of them")
    }

    /// kubectl with the hub.
    pub fn k(&self, args: &[&str]) -> Said {
        self.operator.hub(args)
    }

    /// kubectl with a workspace, as a platform admin.
    pub fn w(&self, workspace: &str, args: &[&str]) -> Said {
        let server = format!("--server={}/clusters/{workspace}", self.admin().url);
        let args: Vec<&str> = std::iter::once(server.as_str()).chain(args.iter().copied()).collect();
        self.k(&args)
    }

    pub fn create_workspace(&self, name: &str) {
        let workspace =
            json!({"apiVersion": "hanse.io/v1alpha1", "kind": "Workspace", "metadata": {"name": name}});
        self.w("root", &["create", "-f", &self.file("workspace.json", &[workspace])]).ok();
    }

    pub fn delete_workspace(&self, name: &str) {
        self.w("root", &["delete", "workspace", name, "--timeout=180s"]).ok();
    }

    fn admin(&self) -> Admin {
        Admin::read(&self.operator.kubeconfig()).expect("a kubeconfig")
    }

    /// A kubeconfig of a workspace for somebody who has nothing but what they say.
    pub fn without_certificate(&self, workspace: &str) -> PathBuf {
        let admin = self.admin();
        let authority = BASE64_STANDARD.encode(&admin.ca_pem);
        let server = format!("{}/clusters/{workspace}", admin.url);
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "it",
            "clusters": [{"name": "it", "cluster": {"server": server, "certificate-authority-data": authority}}],
            "contexts": [{"name": "it", "context": {"cluster": "it"}}],
        });
        let path = self.directory.path().join(format!("{workspace}.plain"));
        std::fs::write(&path, config.to_string()).expect("a file");
        path
    }

    /// Writes a backup of the hub, which is stopped for that.
    pub fn back_up(&mut self, name: &str) -> PathBuf {
        let file = self.directory.path().join(name);
        self.operator.stop_hub().expect("it runs");
        hanse(&["backup", "--data", &text(&self.operator.data), &text(&file)]);
        self.operator.restart_hub().expect("it starts again");
        file
    }

    /// The hub goes on with what a backup has.
    pub fn restore(&mut self, backup: &Path) {
        self.operator.stop_hub().expect("it runs");
        let (data, old) = (&self.operator.data, self.directory.path().join("before-restore"));
        std::fs::rename(data, &old).expect("it is moved");
        hanse(&["restore", "--data", &text(data), &text(backup)]);
        // Who trusts whom is no part of it.
        std::fs::rename(old.join("pki"), data.join("pki")).expect("it is moved");
        self.operator.restart_hub().expect("it starts again");
    }

    /// kubectl with a member, as its own admin.
    pub fn m(&self, member: &str, args: &[&str]) -> Said {
        self.operator.kubectl(&self.member(member).cluster.kubeconfig, args)
    }

    /// Writes objects to a file for kubectl.
    pub fn file(&self, name: &str, objects: &[Value]) -> String {
        let path = self.directory.path().join(name);
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        std::fs::write(&path, list.to_string()).expect("a file");
        path.display().to_string()
    }

    pub fn apply(&self, name: &str, objects: &[Value]) {
        self.k(&["apply", "-f", &self.file(name, objects)]).ok();
    }

    /// Waits until an object of the hub is as it should be.
    pub fn until(&self, kind: &str, name: &str, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        self.until_in("default", kind, name, what, holds)
    }

    pub fn until_in(
        &self,
        namespace: &str,
        kind: &str,
        name: &str,
        what: &str,
        holds: impl Fn(&Value) -> bool,
    ) -> Value {
        eventually(&format!("{kind} {name}: {what}"), || self.look(namespace, kind, name, &holds))
    }

    /// An object of the hub if it is as it should be; else what there is instead.
    pub fn look(
        &self,
        namespace: &str,
        kind: &str,
        name: &str,
        holds: impl Fn(&Value) -> bool,
    ) -> Result<Value, String> {
        let said = self.k(&["get", "-n", namespace, kind, name, "-o", "json"]);
        let object: Value = serde_json::from_str(&said.text).unwrap_or_default();
        if holds(&object) { Ok(object) } else { Err(said.text) }
    }

    /// Objects of the hub, by their labels.
    pub fn items(&self, namespace: &str, kind: &str, selector: &str) -> Vec<Value> {
        let list = self.k(&["get", kind, "-n", namespace, "-l", selector, "-o", "json"]).ok();
        let list: Value = serde_json::from_str(&list).expect("a list");
        list["items"].as_array().cloned().unwrap_or_default()
    }

    pub fn rolled_out(&self, namespace: &str, name: &str) {
        self.k(&["rollout", "status", "-n", namespace, &format!("deploy/{name}"), "--timeout=300s"]).ok();
    }

    /// An object of a member, or nothing.
    pub fn there(&self, member: &str, namespace: &str, kind: &str, name: &str) -> Value {
        let said = self.m(member, &["get", "-n", namespace, kind, name, "-o", "json"]);
        serde_json::from_str(&said.text).unwrap_or_default()
    }

    pub fn until_gone_there(&self, member: &str, namespace: &str, what: &[&str]) {
        let ask: Vec<&str> = ["get", "-n", namespace, "-o", "name", "--ignore-not-found"]
            .into_iter()
            .chain(what.iter().copied())
            .collect();
        eventually(&format!("{what:?} is gone in {member}"), || match self.m(member, &ask) {
            said if said.done && said.text.trim().is_empty() => Ok(()),
            said => Err(said.text),
        });
    }

    /// The UIDs of running pods, with how often their first container was restarted.
    pub fn pods(&self, member: &str, namespace: &str) -> BTreeSet<String> {
        let list = self.m(member, &["get", "pods", "-n", namespace, "-o", "json"]).ok();
        let list: Value = serde_json::from_str(&list).expect("a list");
        let lives = |pod: &&Value| pod["metadata"]["deletionTimestamp"].is_null();
        let pods = list["items"].as_array().into_iter().flatten().filter(lives);
        pods.map(|pod| {
            let restarts = &pod["status"]["containerStatuses"][0]["restartCount"];
            format!("{} {restarts}", pod["metadata"]["uid"])
        })
        .collect()
    }

    /// Waits until something that is applied now is in all these members.
    pub fn barrier(&self, namespace: &str, number: usize, members: &[&str]) {
        let name = format!("barrier-{number}");
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {
                "name": name, "namespace": namespace, "annotations": {"hanse.io/clusters": members.join(",")},
            },
        });
        self.apply("barrier.json", &[object]);
        for member in members {
            eventually(&format!("{name} is in {member}"), || {
                match self.there(member, namespace, "configmap", &name)["metadata"]["uid"].is_string() {
                    true => Ok(()),
                    false => Err("it is not there".to_owned()),
                }
            });
        }
    }
}

impl Member {
    fn start(name: &'static str, directory: &Path) -> Member {
        let (policy, audit) =
            (directory.join(format!("{name}.policy")), directory.join(format!("{name}.audit")));
        std::fs::write(&policy, AUDIT).expect("a file");
        let options = Options {
            controller_manager: true,
            nodes: vec![format!("{name}-node")],
            fsync: false,
            apiserver_args: vec![
                format!("--audit-policy-file={}", policy.display()),
                format!("--audit-log-path={}", audit.display()),
            ],
            ..Options::default()
        };
        let cluster =
            RealCluster::start(options).unwrap_or_else(|error| panic!("{name} does not start: {error:#}"));
        let address =
            cluster.url.strip_prefix("https://").and_then(|it| it.parse().ok()).expect("an address");
        Member { name, cluster, link: Link::to(address), audit }
    }

    fn kubeconfig_by_link(&self, directory: &Path) -> PathBuf {
        let text = std::fs::read_to_string(&self.cluster.kubeconfig).expect("a kubeconfig");
        let path = directory.join(format!("{}.kubeconfig", self.name));
        let linked = text.replace(&self.cluster.url, &format!("https://{}", self.link.address));
        assert_ne!(text, linked, "the kubeconfig names the server");
        std::fs::write(&path, linked).expect("a file");
        path
    }

    /// What the session wrote so far, by the member's own audit log, but for what it knows of itself: what it only tried
    /// is nowhere, and tokens are renewed by a clock.
    pub fn session_writes(&self) -> Vec<Value> {
        let is_trial = |it: &Value| it["requestURI"].as_str().is_some_and(|it| it.contains("dryRun=All"));
        let is_token = |it: &Value| {
            let object = &it["objectRef"];
            let name = object["name"].as_str().or(it["requestObject"]["metadata"]["name"].as_str());
            object["resource"] == "secrets" && name.is_some_and(|name| name.starts_with("hanse-token-"))
        };
        let mut events = self.audited(|line| line.contains(SESSION));
        events.retain(|it| {
            it["user"]["username"] == SESSION && !is_trial(it) && !(is_token(it) && it["verb"] != "delete")
        });
        events
    }

    /// Whether it has refused what the session wanted to put there.
    pub fn has_refused(&self, namespace: &str, name: &str) -> bool {
        self.session_writes().iter().any(|it| {
            let (object, code) = (&it["objectRef"], it["responseStatus"]["code"].as_u64());
            object["namespace"] == namespace && object["name"] == name && matches!(code, Some(403 | 422))
        })
    }

    /// What anybody did so far to end pods and workloads of a namespace, by the same log.
    pub fn ends(&self, namespace: &str) -> Vec<Value> {
        let mut events = self.audited(|line| line.contains("delete") || line.contains("eviction"));
        events.retain(|it| {
            let object = &it["objectRef"];
            let ends = it["verb"] == "delete"
                || it["verb"] == "deletecollection"
                || object["subresource"] == "eviction";
            let is_workload = object["resource"].as_str().is_some_and(|it| WORKLOADS.contains(&it));
            ends && is_workload && object["namespace"] == namespace
        });
        events
    }

    /// What its audit log has so far, of those lines that are meant.
    fn audited(&self, is_meant: impl Fn(&str) -> bool) -> Vec<Value> {
        let text = std::fs::read_to_string(&self.audit).expect("an audit log");
        let lines = text.lines().filter(|line| is_meant(line));
        lines.filter_map(|line| serde_json::from_str(line).ok()).collect()
    }
}

/// Something that is promised within a time, from when this is made.
pub struct Promise {
    since: Instant,
    time: Duration,
}

impl Promise {
    pub fn within(time: Duration) -> Promise {
        Promise { since: Instant::now(), time }
    }

    /// Asks until the answer is yes. A no breaks it if the time was over before the question: how long programs take to
    /// ask and to answer is no part of it.
    #[track_caller]
    pub fn kept<T>(&self, what: &str, mut ask: impl FnMut() -> Result<T, String>) -> T {
        loop {
            let is_over = self.since.elapsed() >= self.time;
            match ask() {
                Ok(found) => return found,
                Err(instead) if is_over => panic!("{what}, within {:?}: {instead}", self.time),
                Err(_) => thread::sleep(LOOK_EVERY),
            }
        }
    }
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// The program of this repository, without any hub.
fn hanse(args: &[&str]) {
    let mut command = Command::new(binary().expect("hanse is built"));
    let output = command.args(args).output().expect("hanse starts");
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A condition of an object.
pub fn condition(object: &Value, kind: &str) -> Value {
    let all = object["status"]["conditions"].as_array().into_iter().flatten();
    all.into_iter().find(|it| it["type"] == kind).cloned().unwrap_or_default()
}

/// In words, for failures.
pub fn told(events: &[Value]) -> Vec<String> {
    let one = |it: &Value| {
        let object = &it["objectRef"];
        format!(
            "{} {} {}/{}: {}",
            it["verb"], object["resource"], object["namespace"], object["name"], it["responseStatus"]["code"]
        )
    };
    events.iter().map(one).collect()
}
