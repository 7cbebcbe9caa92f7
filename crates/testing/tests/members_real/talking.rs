//! Pods of a real cluster get the hub's tokens: the same as those of the simulated ones, and clients that know nothing of
//! Hanse reach their workspace by them.

use serde_json::{Value, json};
use testing::{
    operator::{Operator, eventually},
    real::{Options, RealCluster},
    talking::{ACCOUNTS, HOME, NAMESPACE, cases, outcome},
};

/// Until the cluster says that of its tokens.
fn until_tokens(operator: &Operator, reason: &str) {
    eventually("tokens are seen to", || {
        let cluster = operator.object("cluster", "real-1");
        match api::cluster::condition(&cluster, "Tokens") {
            Some(condition) if condition["reason"] == reason => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
}

fn namespace() -> Value {
    let labels = json!({api::WORKSPACE_LABEL: "default", api::NAMESPACE_LABEL: HOME});
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}})
}

fn account(name: &str, automount: Option<bool>) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": NAMESPACE},
        "automountServiceAccountToken": automount,
    })
}

/// What the member makes of the pods of the table.
fn pods_are_completed(operator: &Operator, cluster: &RealCluster) {
    // A trial that began before the policies were in force may have said something else meanwhile.
    let address = eventually("it is said where pods reach the hub", || {
        let cluster = operator.object("cluster", "real-1");
        let condition = api::cluster::condition(&cluster, "Tokens").cloned().unwrap_or_default();
        let message = condition["message"].as_str().unwrap_or_default();
        let address = message.rsplit_once(' ').and_then(|(_, address)| address.rsplit_once(':'));
        match address.filter(|_| condition["status"] == "True") {
            Some((host, port)) => Ok((host.to_owned(), port.to_owned())),
            None => Err(condition.to_string()),
        }
    });
    let (host, port) = (address.0.as_str(), address.1.as_str());
    for case in cases((host, port)) {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod", "namespace": NAMESPACE}, "spec": case.spec,
        });
        let file = operator.data.with_file_name("pod.json");
        std::fs::write(&file, pod.to_string()).expect("a file");
        let create = ["create", "--dry-run=server", "-o", "json", "-f", &file.display().to_string()];
        let said = operator.kubectl(&cluster.kubeconfig, &create);
        match case.expected {
            Ok(expected) => {
                let pod: Value = serde_json::from_str(&said.ok()).expect("a pod");
                assert_eq!(outcome(&pod), expected, "{}", case.name);
            }
            Err(why) => said.refused(why),
        }
    }
}

/// The policies take a moment to be in force in the member.
fn until_in_force(operator: &Operator, cluster: &RealCluster) {
    let create = ["run", "try", "-n", NAMESPACE, "--image=i", "--dry-run=server", "-o", "json"];
    eventually("the policies are in force", || match operator.kubectl(&cluster.kubeconfig, &create) {
        said if said.text.contains("hanse-token-default") => Ok(()),
        said => Err(said.text),
    });
}

fn the_session_may_write_its_own_policies_alone(operator: &Operator, cluster: &RealCluster) {
    let may = |verb: &str, what: &str| {
        let session = "--as=system:serviceaccount:hanse-system:hanse-session";
        let said = operator.kubectl(&cluster.kubeconfig, &["auth", "can-i", verb, what, session]);
        said.text.lines().any(|line| line == "yes")
    };
    for kind in ["mutatingadmissionpolicies", "validatingadmissionpolicybindings"] {
        for verb in ["patch", "delete"] {
            assert!(may(verb, &format!("{kind}.admissionregistration.k8s.io/hanse-pods")), "{verb} {kind}");
            assert!(!may(verb, &format!("{kind}.admissionregistration.k8s.io/other")), "{verb} {kind}");
        }
    }
}

/// A pod that is placed there by the hub has what its spec says, in the words of the workspace, and is left alone then.
fn a_placed_pod_is_what_was_sent(operator: &Operator, cluster: &RealCluster) {
    let prefixed = json!({"spec": {"namespaces": "Prefixed"}}).to_string();
    operator.hub(&["patch", "cluster", "real-1", "--type=merge", "-p", &prefixed]).ok();
    operator.hub(&["create", "namespace", "lab"]).ok();
    operator.hub(&["annotate", "namespace", "lab", "hanse.io/clusters=real-1"]).ok();
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "placed", "namespace": "lab"},
        "spec": {
            "volumes": [{"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "jwt"}}]}}],
            "containers": [{
                "name": "main", "image": "i", "volumeMounts": [{"name": "t", "mountPath": "/t"}],
                "env": [{"name": "NS", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}],
            }],
        },
    });
    operator.create(&operator.kubeconfig(), &pod);
    let get = ["get", "pod", "-n", "default-lab", "placed", "-o", "json"];
    let there = eventually("it is placed", || match operator.kubectl(&cluster.kubeconfig, &get) {
        said if said.done => Ok(said.text),
        said => Err(said.text + &operator.hub(&["get", "assignments", "-n", "lab", "-o", "yaml"]).text),
    });
    assert!(!there.contains("\"serviceAccountToken\""), "{there}");
    let there: Value = serde_json::from_str(&there).expect("a pod");
    let env = there["spec"]["containers"][0]["env"].as_array().cloned().unwrap_or_default();
    assert!(env.contains(&json!({"name": "NS", "value": "lab"})), "{env:?}");
    let path = "jsonpath={.status.clusters[0].applied}{.status.clusters[0].reason}";
    let reports = ["get", "assignment", "pods.placed", "-n", "lab", "-o", path];
    eventually("it is reported", || match operator.hub(&reports) {
        said if said.done && said.text == "true" => Ok(()),
        said => Err(said.text + &operator.hub(&["get", "assignments", "-n", "lab", "-o", "yaml"]).text),
    });
    // Whatever makes the session look again, it finds what it sent.
    operator.hub(&["label", "pod", "-n", "lab", "placed", "a=b"]).ok();
    eventually("a change arrives", || {
        let text = operator.kubectl(&cluster.kubeconfig, &get).text;
        let now: Value = serde_json::from_str(&text).unwrap_or_default();
        let is_same = now["metadata"]["uid"] == there["metadata"]["uid"] && now["spec"] == there["spec"];
        if now["metadata"]["labels"]["a"] == "b" && is_same { Ok(()) } else { Err(text) }
    });
    assert_eq!(operator.hub(&reports).ok(), "true");
}

#[test]
fn pods_of_a_real_cluster_are_given_the_hubs_tokens() {
    let cluster =
        RealCluster::start(Options { controller_manager: true, fsync: false, ..Options::default() })
            .expect("it starts");
    let mut operator = Operator::start(cluster.kubectl()).expect("the hub starts");
    let kubeconfig = cluster.kubeconfig.display().to_string();
    operator.hanse(&["join", "real-1", "--kubeconfig", &kubeconfig]).ok();
    operator.hub(&["create", "namespace", HOME]).ok();
    operator.create(&cluster.kubeconfig, &namespace());
    for (name, automount) in ACCOUNTS {
        operator.create(&cluster.kubeconfig, &account(name, automount));
    }
    until_tokens(&operator, "Installed");
    until_in_force(&operator, &cluster);
    pods_are_completed(&operator, &cluster);
    the_session_may_write_its_own_policies_alone(&operator, &cluster);

    a_placed_pod_is_what_was_sent(&operator, &cluster);

    let secret = ["get", "secret", "-n", NAMESPACE, "hanse-token-default", "-o", "json"];
    let before = eventually("there is a token", || match operator.kubectl(&cluster.kubeconfig, &secret) {
        said if said.done => Ok(said.text),
        said => Err(said.text),
    });

    // With the hub away, pods are made all the same.
    operator.stop_hub().expect("it is killed");
    let run = ["run", "healed", "-n", NAMESPACE, "--image=i", "-o", "json"];
    let pod = operator.kubectl(&cluster.kubeconfig, &run).ok();
    assert!(pod.contains("hanse-token-default") && !pod.contains("serviceAccountToken"), "{pod}");
    operator.restart_hub().expect("it starts again");
    until_tokens(&operator, "Installed");
    let after = operator.kubectl(&cluster.kubeconfig, &secret).ok();
    assert_eq!(after, before, "it is still good");

    // Nothing is left in the member when it is unjoined.
    operator.hanse(&["unjoin", "real-1"]).ok();
    for what in ["mutatingadmissionpolicy/hanse-pods", "validatingadmissionpolicybinding/hanse-pods"] {
        eventually("the policies are gone", || match operator.kubectl(&cluster.kubeconfig, &["get", what]) {
            said if !said.done && said.text.contains("NotFound") => Ok(()),
            said => Err(said.text),
        });
    }
}

/// Policies that nobody acts by are none.
#[test]
fn nothing_is_placed_in_a_cluster_that_does_not_act_by_the_policies() {
    let off = vec!["--disable-admission-plugins=ValidatingAdmissionPolicy".to_owned()];
    let options =
        Options { controller_manager: true, fsync: false, apiserver_args: off, ..Options::default() };
    let cluster = RealCluster::start(options).expect("it starts");
    let operator = Operator::start(cluster.kubectl()).expect("the hub starts");
    let kubeconfig = cluster.kubeconfig.display().to_string();
    operator.hanse(&["join", "real-1", "--kubeconfig", &kubeconfig]).ok();
    operator.hub(&["create", "namespace", HOME]).ok();
    operator.hub(&["annotate", "namespace", HOME, "hanse.io/clusters=real-1"]).ok();
    operator.hub(&["create", "deployment", "web", "-n", HOME, "--image=i"]).ok();
    until_tokens(&operator, "NotInForce");
    let path = "jsonpath={.status.clusters[0].reason}";
    let report = ["get", "assignment", "deployments.apps.web", "-n", HOME, "-o", path];
    eventually("it is reported", || match operator.hub(&report) {
        said if said.text == "TokensUnknown" => Ok(()),
        said => Err(said.text),
    });
    let there = operator.kubectl(&cluster.kubeconfig, &["get", "deployments", "-n", HOME, "-o", "name"]).ok();
    assert!(!there.contains("web"), "it waits: {there}");
}

/// As older ones do not.
#[test]
fn a_cluster_without_mutating_policies_says_so_and_what_is_placed_there_has_the_hubs_token() {
    let off = "--runtime-config=admissionregistration.k8s.io/v1/mutatingadmissionpolicies=false,\
               admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings=false";
    let off = [off, "--disable-admission-plugins=MutatingAdmissionPolicy"].map(str::to_owned).to_vec();
    let options =
        Options { controller_manager: true, fsync: false, apiserver_args: off, ..Options::default() };
    let cluster = RealCluster::start(options).expect("it starts");
    let operator = Operator::start(cluster.kubectl()).expect("the hub starts");
    let kubeconfig = cluster.kubeconfig.display().to_string();
    operator.hanse(&["join", "real-1", "--kubeconfig", &kubeconfig]).ok();
    until_tokens(&operator, "NotServed");

    operator.hub(&["create", "namespace", HOME]).ok();
    operator.hub(&["annotate", "namespace", HOME, "hanse.io/clusters=real-1"]).ok();
    operator.hub(&["create", "deployment", "web", "-n", HOME, "--image=i"]).ok();
    let pods = ["get", "pods", "-n", HOME, "-o", "json"];
    let pods = eventually("there is a pod", || {
        let list: Value = serde_json::from_str(&operator.kubectl(&cluster.kubeconfig, &pods).text)
            .map_err(|error| error.to_string())?;
        let first = list["items"].get(0).cloned();
        first.ok_or_else(|| operator.hub(&["get", "assignments", "-n", HOME, "-o", "yaml"]).text)
    });
    let text = pods.to_string();
    assert!(text.contains("hanse-token-default") && !text.contains("serviceAccountToken\":{"), "{text}");
    assert!(text.contains("KUBERNETES_SERVICE_HOST"), "{text}");
    // What only the policies would refuse there is not sent at all.
    let token = json!({"serviceAccountToken": {"path": "t", "audience": "vault"}});
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "vault", "namespace": HOME},
        "spec": {
            "volumes": [{"name": "t", "projected": {"sources": [token]}}],
            "containers": [{"name": "main", "image": "i"}],
        },
    });
    operator.create(&operator.kubeconfig(), &pod);
    let path = "jsonpath={.status.clusters[0].reason}: {.status.clusters[0].message}";
    let report = ["get", "assignment", "pods.vault", "-n", HOME, "-o", path];
    eventually("it is reported", || match operator.hub(&report) {
        said if said.text.starts_with("Invalid: spec.volumes: a token of this cluster") => Ok(()),
        said => Err(said.text),
    });
    let secret = ["get", "secret", "-n", HOME, "hanse-token-default"];
    eventually("there is a token", || match operator.kubectl(&cluster.kubeconfig, &secret) {
        said if said.done => Ok(()),
        said => Err(said.text),
    });
}
