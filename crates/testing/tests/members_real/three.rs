//! Three control planes with nodes, joined to one hub: what shows of them there, and what can be done from there.

use std::{collections::BTreeMap, path::Path, thread};

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::Value;
use testing::{
    operator::{Operator, eventually},
    real::{Options, RealCluster},
};

const MEMBERS: [(&str, &str); 3] = [("eu-1", "eu"), ("eu-2", "eu"), ("us-1", "us")];
const REPLICAS: usize = 2;

/// What is to be known of a pod: in which cluster it is, and on which node.
type Pods = BTreeMap<String, (String, String)>;

fn start(name: &str) -> RealCluster {
    let options = Options {
        controller_manager: true,
        nodes: vec![format!("{name}-node")],
        fsync: false,
        ..Options::default()
    };
    RealCluster::start(options).unwrap_or_else(|error| panic!("{name} does not start: {error:#}"))
}

fn start_all() -> Vec<RealCluster> {
    thread::scope(|scope| {
        let starting = MEMBERS.map(|(name, _)| scope.spawn(move || start(name)));
        starting.into_iter().map(|it| it.join().expect("it starts")).collect()
    })
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The running pods of the Deployments, as the hub has them: by UID, and by name.
fn pods(operator: &Operator) -> (BTreeMap<String, String>, Pods) {
    let list = operator.hub(&["get", "pods", "-n", "default", "-l", "app", "-o", "json"]).ok();
    let list: Value = serde_json::from_str(&list).expect("a list");
    let running =
        |pod: &&Value| pod["status"]["phase"] == "Running" && pod["metadata"]["deletionTimestamp"].is_null();
    let (mut uids, mut places) = (BTreeMap::new(), Pods::new());
    for pod in list["items"].as_array().into_iter().flatten().filter(running) {
        let name = text(&pod["metadata"]["name"]);
        uids.insert(name.clone(), text(&pod["metadata"]["uid"]));
        let cluster = text(&pod["metadata"]["labels"]["hanse.io/cluster"]);
        assert_eq!(text(&pod["spec"]["nodeName"]), cluster, "its node here is its cluster");
        places.insert(name, (cluster, text(&pod["metadata"]["annotations"]["hanse.io/node"])));
    }
    (uids, places)
}

fn in_cluster(pods: &Pods, cluster: &str) -> Vec<String> {
    pods.iter().filter(|(_, place)| place.0 == cluster).map(|(name, _)| name.clone()).collect()
}

fn join(operator: &Operator, clusters: &[RealCluster]) {
    for ((name, region), cluster) in MEMBERS.into_iter().zip(clusters) {
        let kubeconfig = cluster.kubeconfig.display().to_string();
        let said = operator
            .hanse(&["join", name, "--kubeconfig", &kubeconfig, "--region", region, "--zone", name])
            .ok();
        assert!(said.contains(&format!("{name} is ready")), "{said}");
    }
    // By whatever name, a cluster is joined once.
    let kubeconfig = clusters[0].kubeconfig.display().to_string();
    operator.hanse(&["join", "again", "--kubeconfig", &kubeconfig]).refused("joined already, as eu-1");
    // And a name stands for one cluster.
    let kubeconfig = clusters[2].kubeconfig.display().to_string();
    operator.hanse(&["join", "eu-1", "--kubeconfig", &kubeconfig]).refused("eu-1 stands for another cluster");
}

/// Both tables of clusters, and the table of nodes.
fn clusters_show(operator: &Operator) {
    eventually("all are known", || {
        let known = |(name, _): &(&str, &str)| {
            let status = operator.object("cluster", name)["status"].take();
            status["version"] == "v1.36.4"
                && status["allocatable"]["cpu"] == "32"
                && status["nodes"]["ready"] == 1
        };
        let listed = operator.hub(&["get", "clusters"]).ok();
        if MEMBERS.iter().all(known) { Ok(()) } else { Err(listed) }
    });
    let tables = [operator.hanse(&["clusters"]).ok(), operator.hub(&["get", "clusters"]).ok()];
    for table in &tables {
        for (name, region) in MEMBERS {
            let row = table.lines().find(|line| line.starts_with(name)).unwrap_or_default();
            let cells: Vec<&str> = row.split_whitespace().collect();
            assert_eq!(cells.get(1..5), Some(&["True", "v1.36.4", region, name][..]), "{table}");
        }
    }
    let nodes = operator.hub(&["get", "nodes"]).ok();
    for (name, _) in MEMBERS {
        let row = nodes.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        let cells: Vec<&str> = row.split_whitespace().collect();
        assert_eq!((cells.get(1), cells.last()), (Some(&"Ready"), Some(&"v1.36.4")), "{nodes}");
    }
    let allocatable = operator.object("node", "eu-1")["status"]["allocatable"].take();
    assert_eq!((&allocatable["cpu"], &allocatable["pods"]), (&"32".into(), &"110".into()));
}

fn workloads_show(operator: &Operator, clusters: &[RealCluster]) -> Pods {
    for cluster in clusters {
        // One name in all of them: three Deployments that know nothing of each other.
        let replicas = format!("--replicas={REPLICAS}");
        let make = ["create", "deployment", "web", "--image=nginx", &replicas];
        operator.kubectl(&cluster.kubeconfig, &make).ok();
    }
    let pods = eventually("all pods run", || {
        let (_, pods) = pods(operator);
        if pods.len() == MEMBERS.len() * REPLICAS { Ok(pods) } else { Err(format!("{pods:?}")) }
    });
    let table = operator.hub(&["get", "pods", "-A", "-o", "wide"]).ok();
    for (name, _) in MEMBERS {
        let names = in_cluster(&pods, name);
        assert_eq!(names.len(), REPLICAS, "{pods:?}");
        for pod in names {
            let row = table.lines().find(|line| line.contains(&pod)).unwrap_or_default();
            assert!(row.contains("1/1") && row.contains("Running"), "{table}");
            assert!(row.contains(&format!(" {name} ")), "{table}");
            assert!(pods[&pod].1.starts_with(&format!("{name}-node")), "{pods:?}");
        }
    }
    pods
}

/// A pod that is deleted through the hub is replaced by its ReplicaSet, in its cluster.
fn a_deleted_pod_is_replaced(operator: &Operator, before: &Pods) {
    let gone = in_cluster(before, "us-1").swap_remove(0);
    operator.hub(&["delete", "pod", &gone]).ok();
    let after = eventually("it is replaced", || {
        let (_, pods) = pods(operator);
        let done = !pods.contains_key(&gone) && in_cluster(&pods, "us-1").len() == REPLICAS;
        if done { Ok(pods) } else { Err(format!("{pods:?}")) }
    });
    assert_eq!(in_cluster(&after, "eu-1"), in_cluster(before, "eu-1"), "others are left alone");
    assert_eq!(in_cluster(&after, "eu-2"), in_cluster(before, "eu-2"), "others are left alone");
}

fn token(operator: &Operator, name: &str) -> String {
    let secret = format!("cluster-{name}");
    let encoded =
        operator.hub(&["get", "secret", "-n", "hanse-system", &secret, "-o", "jsonpath={.data.token}"]).ok();
    String::from_utf8(BASE64_STANDARD.decode(encoded).expect("base64")).expect("a token")
}

/// A kubeconfig that is the session's.
fn as_session(cluster: &RealCluster, token: &str, file: &Path) {
    let text = std::fs::read_to_string(&cluster.kubeconfig).expect("a kubeconfig");
    let mut config: Value = serde_json::from_str(&text).expect("it is JSON");
    config["users"][0]["user"] = serde_json::json!({"token": token});
    std::fs::write(file, config.to_string()).expect("a file");
}

/// Its credentials are gone and nothing shows of it; what runs there goes on, and so do the others.
fn unjoining_leaves_what_runs(operator: &Operator, clusters: &[RealCluster]) {
    let session = operator.data.with_file_name("session.kubeconfig");
    as_session(&clusters[1], &token(operator, "eu-2"), &session);
    operator.kubectl(&session, &["get", "pods"]).ok();
    let (uids, before) = pods(operator);

    operator.hanse(&["unjoin", "eu-2"]).ok();

    eventually("the token is worth nothing", || match operator.kubectl(&session, &["get", "pods"]) {
        said if !said.done && (said.text.contains("Unauthorized") || said.text.contains("logged in")) => {
            Ok(())
        }
        said => Err(said.text),
    });
    for (of, what) in [
        (&clusters[1].kubeconfig, "namespace/hanse-system"),
        (&clusters[1].kubeconfig, "clusterrole/hanse:session"),
        (&clusters[1].kubeconfig, "clusterrolebinding/hanse:session"),
        (&operator.kubeconfig(), "cluster/eu-2"),
        (&operator.kubeconfig(), "node/eu-2"),
    ] {
        eventually(&format!("{what} is gone"), || match operator.kubectl(of, &["get", what]) {
            said if !said.done && said.text.contains("NotFound") => Ok(()),
            said => Err(said.text),
        });
    }
    operator.hub(&["get", "secret", "-n", "hanse-system", "cluster-eu-2"]).refused("NotFound");
    let (_, after) = pods(operator);
    let expected: Pods = before.clone().into_iter().filter(|(_, place)| place.0 != "eu-2").collect();
    assert_eq!(after, expected, "of the others everything shows, and of this one nothing");
    for pod in in_cluster(&before, "eu-2") {
        let ask = ["get", "pod", &pod, "-o", "jsonpath={.metadata.uid}/{.status.phase}"];
        let said = operator.kubectl(&clusters[1].kubeconfig, &ask).ok();
        assert_eq!(said, format!("{}/Running", uids[&pod]));
    }

    // It can come back.
    let kubeconfig = clusters[1].kubeconfig.display().to_string();
    operator.hanse(&["join", "eu-2", "--kubeconfig", &kubeconfig]).ok();
    eventually("its pods show again", || {
        let (_, pods) = pods(operator);
        if pods == before { Ok(()) } else { Err(format!("{pods:?}")) }
    });
}

#[test]
fn three_real_clusters_show_in_one_hub() {
    let clusters = start_all();
    let operator = Operator::start(clusters[0].kubectl()).expect("the hub starts");
    join(&operator, &clusters);
    clusters_show(&operator);
    let pods = workloads_show(&operator, &clusters);
    a_deleted_pod_is_replaced(&operator, &pods);
    unjoining_leaves_what_runs(&operator, &clusters);
}
