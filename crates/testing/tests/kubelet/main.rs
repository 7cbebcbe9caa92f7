//! A member with a real kubelet and real containers, seen and used through the hub that it is joined to.
//!
//! Needs root, and what `./test kubelet` installs.

#![allow(clippy::disallowed_methods)] // Tests run on the real machine.

mod placed;
mod pulls;
mod scenarios;

use std::{
    collections::BTreeSet,
    fs,
    io::{Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};
use testing::{
    operator::{Operator, eventually},
    real::{IMAGE, Options, RealCluster},
    talking::{HOME, NAMESPACE},
};

/// Found in the command line of the container's process, and in no other's.
fn marker() -> String {
    format!("hanse-test-{}", std::process::id())
}

fn pod(name: &str, script: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": name}},
        "spec": {
            "restartPolicy": "OnFailure",
            "terminationGracePeriodSeconds": 2,
            "volumes": [{"name": "kept", "emptyDir": {}}],
            "containers": [{
                "name": "main", "image": IMAGE, "imagePullPolicy": "Never",
                "command": ["sh", "-c", script],
                "volumeMounts": [{"name": "kept", "mountPath": "/kept"}],
            }],
        },
    })
}

/// Says who it is, serves a page and counts.
fn web() -> Value {
    let script = format!(
        ": {}; trap 'echo bye; exit 0' TERM; echo hello from $HOSTNAME; mkdir /kept/www; echo a page >/kept/www/index.html; \
         httpd -p 8080 -h /kept/www; n=0; while true; do echo tick $n; n=$((n+1)); sleep 1; done",
        marker()
    );
    pod("web", &script)
}

/// Fails once, and then goes on.
const FALLS_ONCE: &str =
    "if [ -e /kept/fell ]; then echo second life; sleep 3600; fi; echo first life; echo >/kept/fell; exit 3";

/// Whether a process of the container runs on this machine.
fn container_runs() -> bool {
    let marker = marker();
    let processes = fs::read_dir("/proc").expect("there is /proc").flatten();
    processes
        .filter_map(|process| fs::read(process.path().join("cmdline")).ok())
        .any(|command| String::from_utf8_lossy(&command).contains(&marker))
}

fn pods_show(operator: &Operator) {
    let table = eventually("the pod runs", || {
        let table = operator.hub(&["get", "pods", "-o", "wide"]).text;
        let row = table.lines().find(|line| line.starts_with("web")).unwrap_or_default();
        if row.contains("1/1") && row.contains("Running") { Ok(table) } else { Err(table) }
    });
    let row = table.lines().find(|line| line.starts_with("web")).unwrap_or_default();
    let cells: Vec<&str> = row.split_whitespace().collect();
    assert!(cells.get(5).is_some_and(|address| address.starts_with("198.1")), "{table}");
    assert_eq!(cells.get(6), Some(&"real-1"), "{table}");
    assert!(container_runs());
    // Kubernetes' own clients learn of the cluster what they would of a node.
    let node = operator.hub(&["get", "node", "real-1"]).ok();
    assert!(node.contains("Ready") && node.contains("v1.36.4"), "{node}");
}

fn logs_are_read(operator: &Operator) {
    let logs = operator.hub(&["logs", "web"]).ok();
    assert!(logs.starts_with("hello from web\n"), "{logs}");
    let last = operator.hub(&["logs", "web", "--tail=1"]).ok();
    assert!(last.starts_with("tick ") && last.lines().count() == 1, "{last}");
    eventually("the other one fell and got up", || {
        let row = operator.hub(&["get", "pod", "falls"]).text;
        if row.contains("1/1") && row.contains("1 (") { Ok(()) } else { Err(row) }
    });
    assert_eq!(operator.hub(&["logs", "falls"]).ok(), "second life\n");
    assert_eq!(operator.hub(&["logs", "falls", "--previous"]).ok(), "first life\n");
}

fn it_is_described(operator: &Operator) {
    // The kubelet sends events when it finds the time.
    eventually("what happened is told", || {
        let events = operator.hub(&["events", "--for", "pod/web"]).ok();
        if events.contains("Started") && events.contains("Scheduled") { Ok(()) } else { Err(events) }
    });
    let described = operator.hub(&["describe", "pod", "web"]).ok();
    for part in [
        IMAGE,
        "containerd://",
        "hanse.io/cluster=real-1",
        "Started",
        "real-1/198.1",
        "hanse.io/node: worker",
    ] {
        assert!(described.contains(part), "{part}: {described}");
    }
}

fn commands_run_inside(operator: &Operator) {
    let said = operator.hub(&[
        "exec",
        "web",
        "--",
        "sh",
        "-c",
        "echo $((6*7)) in $HOSTNAME; cat /kept/www/index.html",
    ]);
    assert_eq!(said.ok(), "42 in web\na page\n");
    operator.hub(&["exec", "web", "--", "sh", "-c", "exit 7"]).refused("exit code 7");
    let mut forward = operator.hub_stream(&["port-forward", "pod/web", ":8080"]);
    let said = forward.until("it forwards", |said| said.contains("-> 8080"));
    let port = said.split_once("127.0.0.1:").and_then(|(_, rest)| rest.split_once(' ')).expect("a port").0;
    let mut stream = TcpStream::connect(format!("127.0.0.1:{port}")).expect("it listens");
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").expect("it reads");
    let mut page = String::new();
    stream.read_to_string(&mut page).expect("it answers");
    assert!(page.starts_with("HTTP/1") && page.ends_with("a page\n"), "{page}");
}

/// The log goes on until the container does not.
fn deleting_kills_the_container(operator: &Operator) {
    let mut log = operator.hub_stream(&["logs", "-f", "web"]);
    let ticks = |said: &str| said.matches("tick").count();
    let seen = ticks(log.until("there is a log", |said| ticks(said) > 0));
    log.until("it goes on", |said| ticks(said) >= seen + 2);

    operator.hub(&["delete", "pod", "web"]).ok();

    assert!(!container_runs(), "kubectl waits until it is gone");
    operator.hub(&["get", "pod", "web"]).refused("NotFound");
    assert!(log.ended(), "a log ends with its container");
    log.until("it could say good-bye", |said| said.ends_with("bye\n"));
}

/// Where `tests/clients/run` builds programs.
fn clients() -> PathBuf {
    let named = |name: &str| std::env::var_os(name).map(PathBuf::from);
    named("HANSE_CLIENTS_CACHE").unwrap_or_else(|| {
        let cache = named("XDG_CACHE_HOME").or_else(|| Some(named("HOME")?.join(".cache")));
        cache.expect("there is a home").join("hanse/clients")
    })
}

/// Programs that know nothing of Hanse, with what they are run by: client-go, kube-rs and the Python client.
fn programs(kubectl: &Path) -> Vec<(&'static str, String)> {
    let clients = clients();
    let (rust, python) = (clients.join("rust/debug/incluster"), clients.join("python/bin/python"));
    for program in [&rust, &python] {
        assert!(program.exists(), "no {}: tests/clients/run --build rust python", program.display());
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/clients/python/incluster.py");
    let script = script.canonicalize().expect("it is there");
    let get = "get configmap note --output=jsonpath={.data.of}";
    vec![
        ("go", format!("echo $({} {get}) in $(cat {ACCESS}/namespace)", kubectl.display())),
        ("rust", rust.display().to_string()),
        ("python", format!("{} {}", python.display(), script.display())),
    ]
}

const ACCESS: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Directories of this machine that programs need, each where it is here.
fn places(kubectl: &Path) -> BTreeSet<PathBuf> {
    let python = clients().join("python/bin/python").canonicalize().expect("there is a Python");
    let of_python = python.parent().and_then(Path::parent).expect("it is in bin").to_owned();
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/clients/python");
    let tools = kubectl.parent().expect("it is in a directory").to_owned();
    let all = [clients(), of_python, tools, tests.canonicalize().expect("it is there")];
    all.into_iter().chain(["/usr", "/lib", "/lib64"].map(PathBuf::from)).collect()
}

/// A container for each program, on the network of this machine, where the hub is.
fn talker(kubectl: &Path) -> Value {
    let places: Vec<PathBuf> = places(kubectl).into_iter().collect();
    let name = |number: usize| format!("place-{number}");
    let volumes = places.iter().enumerate();
    let volumes: Vec<Value> =
        volumes.map(|(number, path)| json!({"name": name(number), "hostPath": {"path": path}})).collect();
    let mounts = places.iter().enumerate();
    let mounts: Vec<Value> = mounts
        .map(|(number, path)| json!({"name": name(number), "mountPath": path, "readOnly": true}))
        .collect();
    let containers = programs(kubectl).into_iter().map(|(name, command)| {
        json!({
            "name": name, "image": IMAGE, "imagePullPolicy": "Never",
            "command": ["sh", "-c", format!("{command}; echo $KUBERNETES_SERVICE_PORT $NS; sleep 3600")],
            "env": [{"name": "NS", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}],
            "volumeMounts": mounts,
        })
    });
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "talker", "namespace": NAMESPACE},
        "spec": {
            "serviceAccountName": "robot", "hostNetwork": true, "terminationGracePeriodSeconds": 1,
            "volumes": volumes, "containers": containers.collect::<Vec<_>>(),
        },
    })
}

/// Unmodified clients in containers reach their workspace, by the names that things have there.
fn pods_talk_to_the_hub(operator: &Operator, cluster: &RealCluster) {
    let labels = json!({api::WORKSPACE_LABEL: "default", api::NAMESPACE_LABEL: HOME});
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}});
    operator.create(&cluster.kubeconfig, &namespace);
    let member = |args: &[&str]| operator.kubectl(&cluster.kubeconfig, args);
    member(&["create", "serviceaccount", "robot", "-n", NAMESPACE]).ok();
    operator.create(&cluster.kubeconfig, &talker(&cluster.kubectl()));
    // Without a token there is no container.
    eventually("it waits for its token", || match member(&["get", "events", "-n", NAMESPACE]) {
        said if said.text.contains("hanse-token-robot") && said.text.contains("not found") => Ok(()),
        said => Err(said.text),
    });

    operator.hub(&["create", "namespace", HOME]).ok();
    operator.hub(&["create", "configmap", "note", "-n", HOME, "--from-literal=of=the hub"]).ok();
    operator.hub(&["create", "serviceaccount", "robot", "-n", HOME]).ok();
    let view = ["--clusterrole=view", &format!("--serviceaccount={HOME}:robot")];
    operator.hub(&[&["create", "rolebinding", "robot", "-n", HOME][..], &view].concat()).ok();

    let hub = operator.object("cluster", "real-1");
    let told = api::cluster::condition(&hub, "Tokens").expect("it is said")["message"].clone();
    let port = told.as_str().and_then(|it| it.rsplit_once(':')).expect("the address").1.to_owned();
    for (program, _) in programs(&cluster.kubectl()) {
        eventually(&format!("{program} reaches the hub"), || {
            let said = member(&["logs", "-n", NAMESPACE, "talker", "-c", program]);
            match said.text == format!("the hub in {HOME}\n{port} {HOME}\n") {
                true => Ok(()),
                false => Err(said.text),
            }
        });
    }
    member(&["delete", "pod", "talker", "-n", NAMESPACE]).ok();
}

#[test]
fn containers_of_a_real_kubelet_are_used_through_the_hub() {
    let cluster = RealCluster::start(Options {
        controller_manager: true,
        real_node: Some("worker".into()),
        fsync: false,
        ..Options::default()
    })
    .unwrap_or_else(|error| panic!("it does not start: {error:#}"));
    let mut operator = Operator::start(cluster.kubectl()).expect("the hub starts");
    let kubeconfig = cluster.kubeconfig.display().to_string();
    operator.hanse(&["join", "real-1", "--kubeconfig", &kubeconfig]).ok();
    operator.create(&cluster.kubeconfig, &web());
    operator.create(&cluster.kubeconfig, &pod("falls", FALLS_ONCE));

    pods_show(&operator);
    logs_are_read(&operator);
    it_is_described(&operator);
    commands_run_inside(&operator);
    deleting_kills_the_container(&operator);
    pods_talk_to_the_hub(&operator, &cluster);
    placed::scenario_17_an_operator_runs_as_a_workload(&operator, &cluster);
    pulls::scenario_07_an_image_that_cannot_be_pulled_is_told(&operator);
    scenarios::scenario_01_first_apply(&operator, &cluster);
    scenarios::scenario_12_containers_outlive_the_hub(&mut operator, &cluster);
    scenarios::scenario_10_delete_and_cascade(&operator, &cluster);
}
