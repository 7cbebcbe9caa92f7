//! An operator that knows nothing of Hanse, applied to the hub: it runs in a container of the member, and works in the
//! workspace.

use serde_json::{Value, json};
use testing::{
    operator::{Operator, Said, eventually},
    real::{IMAGE, RealCluster},
};

use crate::{ACCESS, clients};

const NAMESPACE: &str = "yard";

fn definition() -> Value {
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "crews.crews.hanse.test"},
        "spec": {
            "group": "crews.hanse.test", "scope": "Namespaced",
            "names": {"plural": "crews", "singular": "crew", "kind": "Crew", "listKind": "CrewList"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": open, "status": open}}},
            }],
        },
    })
}

/// What an operator's chart has for its account. None of it travels.
fn access() -> Vec<Value> {
    let all = json!(["*"]);
    let rule = |groups: &[&str], resources: &[&str]| json!({"apiGroups": groups, "resources": resources, "verbs": all});
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "crew-operator"},
        "rules": [
            rule(&[""], &["pods", "services", "secrets", "events"]),
            rule(&["apps"], &["statefulsets"]), rule(&["batch"], &["jobs"]),
            rule(&["coordination.k8s.io"], &["leases"]), rule(&["events.k8s.io"], &["events"]),
            rule(&["crews.hanse.test"], &["crews", "crews/status", "crews/finalizers"]),
        ],
    });
    let subjects = json!([{"kind": "ServiceAccount", "name": "crew", "namespace": NAMESPACE}]);
    let bound = |kind: &str, name: &str, role: &str| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": name, "namespace": NAMESPACE},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}, "subjects": subjects,
        })
    };
    let nodes = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "crew-nodes"},
        "rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]}],
    });
    let mut everywhere = bound("ClusterRoleBinding", "crew-nodes", "crew-nodes");
    everywhere["metadata"] = json!({"name": "crew-nodes"});
    vec![role, nodes, bound("RoleBinding", "crew", "crew-operator"), everywhere]
}

/// On the network of this machine, where the hub is; the program is one file of this machine, and so is kubectl.
fn deployment(cluster: &RealCluster) -> Value {
    let tools = cluster.kubectl().parent().expect("it is in a directory").to_owned();
    let mounts = [("clients", clients()), ("tools", tools)];
    let volumes = mounts.clone().map(|(name, path)| json!({"name": name, "hostPath": {"path": path}}));
    let mounted = mounts.map(|(name, path)| json!({"name": name, "mountPath": path, "readOnly": true}));
    let labels = json!({"app": "crew-operator"});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "crew-operator", "namespace": NAMESPACE},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels},
            "spec": {
                "serviceAccountName": "crew", "hostNetwork": true, "terminationGracePeriodSeconds": 2, "volumes": volumes,
                "containers": [{
                    "name": "operator", "image": IMAGE, "imagePullPolicy": "Never",
                    "command": [clients().join("crew"), "serve"], "volumeMounts": mounted,
                }],
            },
        }},
    })
}

fn crew(cooks: u64) -> Value {
    json!({
        "apiVersion": "crews.hanse.test/v1", "kind": "Crew", "metadata": {"name": "hulk", "namespace": NAMESPACE},
        "spec": {"sailors": 2, "cooks": cooks, "image": IMAGE},
    })
}

fn hub(operator: &Operator, args: &[&str]) -> Said {
    operator.hub(&[&["-n", NAMESPACE][..], args].concat())
}

fn ready(operator: &Operator, also: impl Fn(&Value) -> bool) -> Value {
    eventually("the Crew is ready", || {
        let said = hub(operator, &["get", "crew", "hulk", "-o", "json"]).text;
        let crew: Value = serde_json::from_str(&said).unwrap_or_default();
        let condition = &crew["status"]["conditions"][0];
        match condition["status"] == "True" && also(&crew["status"]) {
            true => Ok(crew["status"].clone()),
            false => {
                let log = hub(operator, &["logs", "deploy/crew-operator", "--tail=3"]).text;
                Err(format!("{condition} {log}"))
            }
        }
    })
}

/// What its Deployment, its account and its rights in the workspace let it do, and nothing else.
pub fn scenario_17_an_operator_runs_as_a_workload(operator: &Operator, cluster: &RealCluster) {
    assert!(clients().join("crew").exists(), "no crew: tests/clients/run --build crew");
    operator.hub(&["create", "namespace", NAMESPACE]).ok();
    hub(operator, &["create", "serviceaccount", "crew"]).ok();
    for object in [definition()].iter().chain(&access()).chain([&deployment(cluster)]) {
        operator.create(&operator.kubeconfig(), object);
    }
    hub(operator, &["rollout", "status", "deployment/crew-operator", "--timeout=120s"]).ok();
    operator.create(&operator.kubeconfig(), &crew(2));

    let status = ready(operator, |_| true);

    it_holds_its_lease_in_the_hub(operator, cluster);
    let sailors = status["sailors"].as_array().cloned().unwrap_or_default();
    assert_eq!(sailors.len(), 2, "{status}");
    for sailor in &sailors {
        assert_eq!(sailor["node"], "real-1", "{status}");
        assert!(sailor["ip"].as_str().is_some_and(|address| address.starts_with("198.1")), "{status}");
    }
    let key = hub(operator, &["get", "secret", "hulk-key", "-o", "jsonpath={.data.of}"]).ok();
    assert_eq!(key, "aHVsaw==", "what it keeps secret can be read by who may");
    it_reaches_its_workspace_alone(operator, cluster);
    a_killed_pod_is_replaced(operator, cluster, &sailors[0]);
    all_goes_with_the_crew(operator, cluster);
}

fn it_holds_its_lease_in_the_hub(operator: &Operator, cluster: &RealCluster) {
    let lease = ["get", "lease", "crew-operator", "-o", "jsonpath={.spec.holderIdentity}"];
    assert!(!hub(operator, &lease).ok().is_empty());
    let member = |what: &str| operator.kubectl(&cluster.kubeconfig, &["get", "-n", NAMESPACE, what]);
    member("lease/crew-operator").refused("NotFound");
    member("rolebinding/crew").refused("NotFound");
    member("clusterrole/crew-operator").refused("NotFound");
}

fn it_reaches_its_workspace_alone(operator: &Operator, cluster: &RealCluster) {
    let script = |path: &str| {
        format!(
            "{} --server=https://$KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT{path} --token=$(cat {ACCESS}/token) \
             --certificate-authority={ACCESS}/ca.crt get crews -n {NAMESPACE} -o name",
            cluster.kubectl().display()
        )
    };
    let ask = |path: &str| hub(operator, &["exec", "deploy/crew-operator", "--", "sh", "-c", &script(path)]);
    for own in ["", "/clusters/default"] {
        assert_eq!(ask(own).ok(), "crew.crews.hanse.test/hulk\n");
    }
    for other in ["/clusters/root", "/clusters/nobodys"] {
        ask(other).refused("logged in to the server");
    }
}

fn a_killed_pod_is_replaced(operator: &Operator, cluster: &RealCluster, sailor: &Value) {
    let name = sailor["name"].as_str().expect("a name");
    operator.kubectl(&cluster.kubeconfig, &["delete", "pod", "-n", NAMESPACE, name, "--now"]).ok();
    ready(operator, |status| {
        let sailors = status["sailors"].as_array().into_iter().flatten();
        sailors.into_iter().any(|it| it["name"] == name && it["uid"] != sailor["uid"])
    });
}

fn all_goes_with_the_crew(operator: &Operator, cluster: &RealCluster) {
    hub(operator, &["delete", "crew", "hulk"]).ok();
    let what = "pods,statefulsets,jobs,services,secrets";
    let left = ["get", what, "-n", NAMESPACE, "-l", "crew=hulk", "-o", "name"];
    eventually("nothing is left of it", || {
        let there =
            [operator.hub(&left), operator.kubectl(&cluster.kubeconfig, &left)].map(Said::ok).concat();
        if there.is_empty() { Ok(()) } else { Err(there) }
    });
    operator.hub(&["delete", "namespace", NAMESPACE, "--timeout=60s"]).ok();
}
