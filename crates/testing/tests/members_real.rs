//! A real Kubernetes cluster, joined, listed and unjoined by the real program.

#![allow(clippy::disallowed_methods)] // Tests run on the real machine.

use std::{
    path::Path,
    process::{Command, Output},
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use testing::{
    process::{HubProcess, binary},
    real::{Options, RealCluster},
};

/// The real cluster, and the hub that it joins.
struct Setting {
    cluster: RealCluster,
    data: std::path::PathBuf,
    _directory: tempfile::TempDir,
}

impl Setting {
    fn hanse(&self, args: &[&str]) -> (bool, String) {
        let mut command = Command::new(binary().expect("hanse is built"));
        command.args(args).arg("--hub-kubeconfig").arg(self.data.join("admin.kubeconfig"));
        text_of(command.output().expect("hanse starts"))
    }

    fn kubectl(&self, kubeconfig: &Path, args: &[&str]) -> (bool, String) {
        let mut command = Command::new(self.cluster.kubectl());
        text_of(command.arg("--kubeconfig").arg(kubeconfig).args(args).output().expect("kubectl starts"))
    }

    fn hub(&self, args: &[&str]) -> (bool, String) {
        self.kubectl(&self.data.join("admin.kubeconfig"), args)
    }

    fn member(&self, args: &[&str]) -> (bool, String) {
        self.kubectl(&self.cluster.kubeconfig, args)
    }

    fn joined(&self) -> Value {
        let (_, text) = self.hub(&["get", "cluster", "real-1", "-o", "json"]);
        serde_json::from_str(&text).unwrap_or_default()
    }
}

fn text_of(output: Output) -> (bool, String) {
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

fn eventually<T>(what: &str, mut ask: impl FnMut() -> Result<T, String>) -> T {
    let deadline = Instant::now() + Duration::from_secs(90);
    loop {
        match ask() {
            Ok(found) => return found,
            Err(instead) if Instant::now() > deadline => panic!("{what}: {instead}"),
            Err(_) => std::thread::sleep(Duration::from_millis(200)),
        }
    }
}

#[test]
fn a_real_cluster_is_joined_seen_and_left_as_it_was() {
    let cluster =
        RealCluster::start(Options { controller_manager: true, fsync: false, ..Options::default() })
            .expect("it starts");
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path().join("hub");
    std::fs::create_dir(&data).expect("a directory");
    let hub = HubProcess::start(&data).expect("the hub starts");
    let setting = Setting { cluster, data, _directory: directory };
    let kubeconfig = setting.cluster.kubeconfig.display().to_string();

    let join = |name: &str| {
        setting.hanse(&["join", name, "--kubeconfig", &kubeconfig, "--region", "eu", "--zone", "eu-a"])
    };
    let (joined, said) = join("real-1");
    assert!(joined && said.contains("real-1 is ready"), "{said}");
    let (joined, said) = join("real-1");
    assert!(joined && said.contains("joined again"), "{said}");
    let (joined, said) = join("real-2");
    assert!(!joined && said.contains("joined already, as real-1"), "{said}");

    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "worker"},
        "status": {
            "capacity": {"cpu": "4", "memory": "8Gi"}, "allocatable": {"cpu": "3500m", "memory": "7Gi"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    });
    let file = setting.data.join("node.json");
    std::fs::write(&file, node.to_string()).expect("a file");
    let (made, said) = setting.member(&["create", "-f", &file.display().to_string()]);
    assert!(made, "{said}");
    let (made, said) = setting.member(&["create", "deployment", "web", "--image=nginx", "--replicas=2"]);
    assert!(made, "{said}");
    let seen = eventually("the cluster is known", || {
        let cluster = setting.joined();
        let status = &cluster["status"];
        match status["nodes"]["total"] == 1 && status["version"] == "v1.36.4" && status["apis"][0].is_object()
        {
            true => Ok(cluster),
            false => Err(status.to_string()),
        }
    });
    assert_eq!(
        seen["status"]["skew"],
        json!({"missingFields": {}}),
        "it is of the release that this hub speaks"
    );
    assert_eq!(seen["metadata"]["labels"]["topology.kubernetes.io/zone"], "eu-a");
    let (listed, table) = setting.hanse(&["clusters"]);
    let row = table.lines().find(|line| line.starts_with("real-1")).unwrap_or_default();
    let cells: Vec<&str> = row.split_whitespace().collect();
    assert!(listed && cells.get(1..6) == Some(&["True", "v1.36.4", "eu", "eu-a", "1"]), "{table}");
    let (_, nodes) = setting.hub(&["get", "nodes"]);
    assert!(nodes.contains("real-1") && nodes.contains("Ready"), "{nodes}");

    // A hub that is killed goes on where it was.
    let port = hub.url.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).expect("a port");
    hub.kill().expect("it dies");
    let hub = HubProcess::start_on(&setting.data, port).expect("it starts again");
    let before = setting.joined()["status"]["heartbeat"].clone();
    eventually("it is heard of again", || {
        let cluster = setting.joined();
        match cluster["status"]["heartbeat"] != before {
            true => Ok(()),
            false => Err(cluster["status"]["conditions"].to_string()),
        }
    });

    let (unjoined, said) = setting.hanse(&["unjoin", "real-1"]);
    assert!(unjoined, "{said}");
    for what in ["namespace/hanse-system", "clusterrole/hanse:session", "clusterrolebinding/hanse:session"] {
        eventually(&format!("{what} is gone"), || match setting.member(&["get", what]) {
            (false, said) if said.contains("NotFound") => Ok(()),
            (_, said) => Err(said),
        });
    }
    let (there, said) = setting.member(&["get", "deployment", "web"]);
    assert!(there, "what runs there goes on: {said}");
    eventually("the node is gone", || match setting.hub(&["get", "node", "real-1"]) {
        (false, _) => Ok(()),
        (true, said) => Err(said),
    });
    hub.kill().expect("it dies");
}
