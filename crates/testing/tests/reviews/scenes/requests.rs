//! Requests, and whom they concern.

use serde_json::{Value, json};

use super::*;

/// How each kind of request looks in a review.
pub fn objects() -> Vec<Scene> {
    let options = json!({"gracePeriodSeconds": 0, "propagationPolicy": "Background"});
    let mut labelled = map("a");
    labelled["metadata"]["labels"] = json!({"x": "y"});
    let autoscaler = json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "h"},
        "spec": {
            "maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
            "metrics": [{"type": "Resource", "resource": {"name": "memory", "target": {"type": "Utilization", "averageUtilization": 50}}}],
        },
    });
    vec![
        Scene {
            title: "config maps",
            hooks: observers("", "v1", &["configmaps"]),
            before: vec![],
            steps: vec![
                step("POST", MAPS, map("a")),
                step(
                    "POST",
                    &format!("{MAPS}?dryRun=All&fieldManager=me&fieldValidation=Strict"),
                    map("tried"),
                ),
                step("POST", MAPS, json!({"metadata": {"generateName": "gen-"}})),
                step("PUT", &format!("{MAPS}/a"), labelled),
                step("PUT", &format!("{MAPS}/a?dryRun=All"), map("a")),
                step("PATCH", &format!("{MAPS}/a"), json!({"data": {"b": "2"}})),
                step("APPLY", &format!("{MAPS}/a?fieldManager=me&force=true"), map("a")),
                step("APPLY", &format!("{MAPS}/applied?fieldManager=me"), map("applied")),
                step("POST", MAPS, map("a")),
                step("PUT", &format!("{MAPS}/missing"), map("missing")),
                step("DELETE", &format!("{MAPS}/applied?dryRun=All"), Value::Null),
                step("DELETE", &format!("{MAPS}/applied?gracePeriodSeconds=5"), Value::Null),
                step("DELETE", &format!("{MAPS}/a"), options),
                step("POST", MAPS, json!({"metadata": {"name": "b", "labels": {"goes": "yes"}}})),
                step("DELETE", &format!("{MAPS}?labelSelector=goes%3Dyes"), Value::Null),
            ],
        },
        Scene {
            title: "deployments and what is below them",
            hooks: observers("apps", "v1", &["deployments", "deployments/*"]),
            before: vec![],
            steps: vec![
                step("POST", DEPLOYMENTS, deployment("d")),
                step("PUT", &format!("{DEPLOYMENTS}/d"), deployment("d")),
                step("PATCH", &format!("{DEPLOYMENTS}/d"), json!({"spec": {"replicas": 3}})),
                step("PATCH", &format!("{DEPLOYMENTS}/d/scale"), json!({"spec": {"replicas": 4}})),
                step(
                    "PUT",
                    &format!("{DEPLOYMENTS}/d/scale"),
                    json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d", "namespace": "<ns>"}, "spec": {"replicas": 1}}),
                ),
                step("PATCH", &format!("{DEPLOYMENTS}/d/status"), json!({"status": {"replicas": 1}})),
                step("DELETE", &format!("{DEPLOYMENTS}/d"), json!({"propagationPolicy": "Foreground"})),
            ],
        },
        Scene {
            title: "pods and what is below them",
            hooks: observers("", "v1", &["pods", "pods/*"]),
            before: vec![(
                "/api/v1/namespaces/<ns>/serviceaccounts".into(),
                json!({"metadata": {"name": "default"}}),
            )],
            steps: vec![
                step("POST", PODS, pod("p")),
                step(
                    "POST",
                    &format!("{PODS}/p/binding"),
                    json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}}),
                ),
                step("PATCH", &format!("{PODS}/p/status"), json!({"status": {"phase": "Running"}})),
                step(
                    "PATCH",
                    &format!("{PODS}/p/ephemeralcontainers"),
                    json!({"spec": {"ephemeralContainers": [{"name": "debug", "image": "busybox"}]}}),
                ),
                step("DELETE", &format!("{PODS}/p"), Value::Null),
                step("POST", PODS, pod("q")),
                step(
                    "POST",
                    &format!("{PODS}/q/eviction"),
                    json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "q"}}),
                ),
            ],
        },
        Scene {
            title: "other kinds",
            hooks: vec![
                with(
                    hook(true, "/see/m", "*", "*", &["*/*"]),
                    json!({"namespaceSelector": {"matchLabels": {"scene": "yes"}}}),
                ),
                with(
                    hook(false, "/see/v", "*", "*", &["*/*"]),
                    json!({"namespaceSelector": {"matchLabels": {"scene": "yes"}}}),
                ),
            ],
            before: vec![],
            steps: vec![
                step("POST", "/apis/autoscaling/v2/namespaces/<ns>/horizontalpodautoscalers", autoscaler),
                step(
                    "PATCH",
                    "/apis/autoscaling/v1/namespaces/<ns>/horizontalpodautoscalers/h",
                    json!({"spec": {"maxReplicas": 4}}),
                ),
                step(
                    "POST",
                    "/api/v1/namespaces/<ns>/secrets",
                    json!({"metadata": {"name": "s"}, "stringData": {"a": "b"}}),
                ),
                step(
                    "POST",
                    "/api/v1/namespaces/<ns>/services",
                    json!({"metadata": {"name": "s"}, "spec": {"clusterIP": "None", "ports": [{"port": 80}]}}),
                ),
                step(
                    "POST",
                    "/apis/batch/v1/namespaces/<ns>/cronjobs",
                    json!({"metadata": {"name": "c"}, "spec": {
                        "schedule": "@daily",
                        "jobTemplate": {"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}},
                    }}),
                ),
                step(
                    "POST",
                    "/apis/rbac.authorization.k8s.io/v1/namespaces/<ns>/roles",
                    json!({"metadata": {"name": "r"}, "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]}),
                ),
                step(
                    "POST",
                    "/apis/networking.k8s.io/v1/namespaces/<ns>/ingresses",
                    json!({"metadata": {"name": "i"}, "spec": {"defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}}}),
                ),
                step(
                    "POST",
                    "/apis/coordination.k8s.io/v1/namespaces/<ns>/leases",
                    json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "me"}}),
                ),
            ],
        },
        Scene {
            title: "custom resources",
            hooks: observers("reviews.io", "v1", &["widgets", "widgets/*"]),
            before: vec![("/apis/apiextensions.k8s.io/v1/customresourcedefinitions".into(), definition())],
            steps: vec![
                step("POST", WIDGETS, widget("v1", "w")),
                step("POST", WIDGETS_V2, widget("v2", "w2")),
                step("PATCH", &format!("{WIDGETS}/w"), json!({"spec": {"size": 2}})),
                step("PATCH", &format!("{WIDGETS_V2}/w"), json!({"spec": {"size": 3}})),
                step("PATCH", &format!("{WIDGETS}/w/status"), json!({"status": {"phase": "New"}})),
                step("DELETE", &format!("{WIDGETS_V2}/w"), Value::Null),
            ],
        },
    ]
}

/// Whom a request concerns.
pub fn matching() -> Vec<Scene> {
    let events = json!({
        "metadata": {"name": "e"}, "reason": "R", "type": "Normal", "eventTime": "2026-01-02T03:04:05.000000Z",
        "action": "A", "reportingController": "c.x", "reportingInstance": "i", "regarding": {"kind": "Pod", "namespace": "<ns>", "name": "p"},
    });
    let rule = |operations: Value, scope: &str| json!({"rules": [{"operations": operations, "apiGroups": [""], "apiVersions": ["v1"], "resources": ["*"], "scope": scope}]});
    let condition = |expression: &str| json!({"matchConditions": [{"name": "c", "expression": expression}]});
    let namespaced = json!({"namespaceSelector": {"matchLabels": {"team": "blue"}}});
    let maps = |path: &str| hook(false, path, "", "v1", &["configmaps"]);
    let mut blue = map("blue");
    blue["metadata"]["labels"] = json!({"team": "blue"});
    vec![
        Scene {
            title: "operations and scopes",
            hooks: vec![
                with(maps("/see/create"), rule(json!(["CREATE"]), "*")),
                with(maps("/see/update"), rule(json!(["UPDATE", "DELETE"]), "Namespaced")),
                with(maps("/see/cluster"), rule(json!(["*"]), "Cluster")),
            ],
            before: vec![],
            steps: vec![
                step("POST", MAPS, map("a")),
                step("PATCH", &format!("{MAPS}/a"), json!({"data": {"b": "2"}})),
                step("DELETE", &format!("{MAPS}/a"), Value::Null),
                step("POST", "/api/v1/namespaces", json!({"metadata": {"name": "scoped"}})),
                step("PATCH", "/api/v1/namespaces/scoped", json!({"metadata": {"labels": {"a": "b"}}})),
                step("POST", "/api/v1/namespaces/scoped/configmaps", map("a")),
            ],
        },
        Scene {
            title: "namespaces select themselves",
            hooks: vec![
                with(hook(false, "/see/v", "", "v1", &["*"]), namespaced.clone()),
                with(hook(true, "/see/m", "", "v1", &["namespaces", "nodes"]), namespaced),
            ],
            before: vec![],
            steps: vec![
                step(
                    "POST",
                    "/api/v1/namespaces",
                    json!({"metadata": {"name": "red", "labels": {"team": "red"}}}),
                ),
                step(
                    "POST",
                    "/api/v1/namespaces",
                    json!({"metadata": {"name": "blue", "labels": {"team": "blue"}}}),
                ),
                step("POST", "/api/v1/namespaces/red/configmaps", map("a")),
                step("POST", "/api/v1/namespaces/blue/configmaps", map("a")),
                step("PATCH", "/api/v1/namespaces/red", json!({"metadata": {"labels": {"team": "blue"}}})),
                step("PATCH", "/api/v1/namespaces/blue", json!({"metadata": {"labels": {"team": "red"}}})),
                step(
                    "POST",
                    "/api/v1/nodes",
                    json!({"metadata": {"name": "n1"}, "spec": {"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]}}),
                ),
                step("POST", "/api/v1/namespaces/none/configmaps", map("a")),
                step(
                    "POST",
                    "/api/v1/namespaces",
                    json!({"metadata": {"name": "green", "labels": {"team": "blue"}}}),
                ),
                step("DELETE", "/api/v1/namespaces/green", Value::Null),
            ],
        },
        Scene {
            title: "labels before or after",
            hooks: vec![with(maps("/see/v"), json!({"objectSelector": {"matchLabels": {"team": "blue"}}}))],
            before: vec![],
            steps: vec![
                step("POST", MAPS, map("plain")),
                step("POST", MAPS, blue),
                step("PATCH", &format!("{MAPS}/plain"), json!({"metadata": {"labels": {"team": "blue"}}})),
                step("PATCH", &format!("{MAPS}/blue"), json!({"metadata": {"labels": {"team": null}}})),
                step("PATCH", &format!("{MAPS}/blue"), json!({"data": {"b": "2"}})),
                step("DELETE", &format!("{MAPS}/plain"), Value::Null),
            ],
        },
        Scene {
            title: "versions of the same",
            hooks: vec![
                hook(false, "/see/hpa1", "autoscaling", "v1", &["horizontalpodautoscalers"]),
                with(
                    hook(false, "/see/exact", "autoscaling", "v1", &["horizontalpodautoscalers"]),
                    json!({"matchPolicy": "Exact"}),
                ),
                hook(true, "/patch/labels", "autoscaling", "v1", &["horizontalpodautoscalers"]),
                hook(false, "/see/events", "", "v1", &["events"]),
            ],
            before: vec![],
            steps: vec![
                step(
                    "POST",
                    "/apis/autoscaling/v2/namespaces/<ns>/horizontalpodautoscalers",
                    json!({"metadata": {"name": "h"}, "spec": {
                        "maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
                        "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}],
                    }}),
                ),
                step(
                    "PATCH",
                    "/apis/autoscaling/v1/namespaces/<ns>/horizontalpodautoscalers/h",
                    json!({"spec": {"maxReplicas": 5}}),
                ),
                step("POST", "/apis/events.k8s.io/v1/namespaces/<ns>/events", events),
                step(
                    "DELETE",
                    "/apis/autoscaling/v2/namespaces/<ns>/horizontalpodautoscalers/h",
                    Value::Null,
                ),
            ],
        },
        Scene {
            title: "conditions",
            hooks: vec![
                with(maps("/see/named"), condition("object.metadata.name == 'a'")),
                with(
                    maps("/see/others"),
                    condition("request.operation != 'DELETE' && object.metadata.name != 'a'"),
                ),
                with(
                    maps("/see/ann"),
                    condition("request.userInfo.username == 'ann' && 'dev' in request.userInfo.groups"),
                ),
                with(
                    maps("/see/open"),
                    with(condition("object.data.missing == 'x'"), json!({"failurePolicy": "Ignore"})),
                ),
                with(
                    maps("/see/closed"),
                    with(
                        condition("object.data.missing == 'x'"),
                        json!({"objectSelector": {"matchLabels": {"closed": "yes"}}}),
                    ),
                ),
            ],
            before: vec![],
            steps: vec![
                step("POST", MAPS, map("a")),
                step("POST", MAPS, map("b")),
                step(
                    "POST",
                    MAPS,
                    json!({"metadata": {"name": "c", "labels": {"closed": "yes"}}, "data": {"a": "1"}}),
                ),
                step("DELETE", &format!("{MAPS}/b"), Value::Null),
            ],
        },
        Scene {
            title: "configurations concern nobody",
            hooks: vec![hook(false, "/deny/all", "admissionregistration.k8s.io", "*", &["*"])],
            before: vec![],
            steps: vec![
                step(
                    "POST",
                    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
                    json!({"metadata": {"name": "free"}}),
                ),
                step(
                    "DELETE",
                    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/free",
                    Value::Null,
                ),
            ],
        },
    ]
}
