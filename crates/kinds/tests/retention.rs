//! What a copy keeps of its member when it is written anew.

use kinds::{of, retain, split};
use serde_json::{Value, json};

/// What becomes of `desired` in a cluster that has `member`.
fn kept(group: &str, kind: &str, desired: Value, member: Value) -> Value {
    let mut desired = desired;
    retain(&of(group, kind), &mut desired, &member).expect("kept");
    desired
}

#[test]
fn what_belongs_to_the_member_stays() {
    let token = "kubernetes.io/service-account-token";
    let rows: [(&str, &str, Value, Value, Value); 12] = [
        (
            "",
            "ConfigMap",
            json!({"metadata": {"labels": {"a": "new"}, "annotations": {"mine": "1"}}}),
            json!({"metadata": {
                "resourceVersion": "7", "finalizers": ["f"], "ownerReferences": [{"name": "o"}],
                "labels": {"a": "old", "b": "theirs"}, "annotations": {"theirs": "2"},
            }}),
            json!({"metadata": {
                "resourceVersion": "7", "finalizers": ["f"], "ownerReferences": [{"name": "o"}],
                "labels": {"a": "new", "b": "theirs"}, "annotations": {"mine": "1", "theirs": "2"},
            }}),
        ),
        (
            "",
            "PersistentVolumeClaim",
            json!({"spec": {}}),
            json!({"spec": {"volumeName": "pv-1", "storageClassName": "fast", "volumeMode": "Filesystem"}}),
            json!({"spec": {"volumeName": "pv-1", "storageClassName": "fast", "volumeMode": "Filesystem"}}),
        ),
        (
            "",
            "PersistentVolume",
            json!({"spec": {"claimRef": {"name": "c"}}}),
            json!({"spec": {"claimRef": {"name": "c", "uid": "u"}}}),
            json!({"spec": {"claimRef": {"name": "c", "uid": "u"}}}),
        ),
        (
            "batch",
            "Job",
            json!({"spec": {"template": {"metadata": {"labels": {"app": "a"}}}}}),
            json!({"spec": {
                "selector": {"matchLabels": {"controller-uid": "u"}},
                "template": {"metadata": {"labels": {"app": "old", "controller-uid": "u"}}},
            }}),
            json!({"spec": {
                "selector": {"matchLabels": {"controller-uid": "u"}},
                "template": {"metadata": {"labels": {"app": "a", "controller-uid": "u"}}},
            }}),
        ),
        (
            "",
            "Secret",
            json!({"type": token, "data": {"token": "hub's"}}),
            json!({"data": {"token": "member's"}}),
            json!({"type": token, "data": {"token": "member's"}}),
        ),
        (
            "",
            "Secret",
            json!({"type": "Opaque", "data": {"a": "new"}}),
            json!({"data": {"a": "old"}}),
            json!({"type": "Opaque", "data": {"a": "new"}}),
        ),
        (
            "",
            "Namespace",
            json!({}),
            json!({"spec": {"finalizers": ["kubernetes"]}}),
            json!({"spec": {"finalizers": ["kubernetes"]}}),
        ),
        (
            "",
            "Pod",
            json!({"spec": {"containers": [{"name": "c", "image": "new"}]}}),
            json!({"spec": {
                "nodeName": "n", "priority": 5, "volumes": [{"name": "token"}], "tolerations": [{"key": "k"}],
                "containers": [{"name": "c", "image": "old", "volumeMounts": [{"name": "token"}]}, {"name": "added"}],
            }}),
            json!({"spec": {
                "nodeName": "n", "priority": 5, "volumes": [{"name": "token"}], "tolerations": [{"key": "k"}],
                "containers": [{"name": "c", "image": "new", "volumeMounts": [{"name": "token"}]}],
            }}),
        ),
        (
            "",
            "ServiceAccount",
            json!({"imagePullSecrets": [{"name": "mine"}]}),
            json!({"secrets": [{"name": "s"}], "imagePullSecrets": [{"name": "theirs"}]}),
            json!({"secrets": [{"name": "s"}], "imagePullSecrets": [{"name": "mine"}]}),
        ),
        (
            "",
            "Service",
            json!({"spec": {"type": "ExternalName"}}),
            json!({"spec": {"clusterIP": "10.0.0.1"}}),
            json!({"spec": {"type": "ExternalName"}}),
        ),
        (
            "",
            "Service",
            json!({"spec": {"type": "ClusterIP", "ports": [{"port": 80}]}}),
            json!({"spec": {"clusterIP": "10.0.0.1", "ports": [{"port": 80, "nodePort": 30000}]}}),
            json!({"spec": {"type": "ClusterIP", "clusterIP": "10.0.0.1", "ports": [{"port": 80}]}}),
        ),
        (
            "",
            "Service",
            json!({"spec": {"clusterIP": "None"}}),
            json!({"spec": {"clusterIP": "10.0.0.1"}}),
            json!({"spec": {"clusterIP": "None"}}),
        ),
    ];
    for (group, kind, desired, member, expected) in rows {
        assert_eq!(kept(group, kind, desired.clone(), member), expected, "{kind}: {desired}");
    }
}

#[test]
fn a_copy_that_is_as_the_member_has_it_changes_nothing() {
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "labels": {"app": "web"}},
        "spec": {"type": "LoadBalancer", "selector": {"app": "web"}, "ports": [{"name": "http", "port": 80}]},
    });
    let shares = [("a".to_owned(), kinds::Share::default())].into();
    let copy = split(&service, &shares).expect("copies").remove("a").expect("a copy");
    let mut member = copy.clone();
    member["metadata"]["resourceVersion"] = json!("9");
    member["spec"]["clusterIP"] = json!("10.0.0.1");
    member["spec"]["clusterIPs"] = json!(["10.0.0.1"]);
    member["spec"]["healthCheckNodePort"] = json!(31000);
    member["spec"]["ports"][0]["nodePort"] = json!(30001);
    assert_eq!(kept("", "Service", copy, member.clone()), member);
}
