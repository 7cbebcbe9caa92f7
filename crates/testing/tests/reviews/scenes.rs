//! What happens: webhooks, and requests that concern them or not.

use serde_json::{Value, json};

pub struct Scene {
    pub title: &'static str,
    /// As configurations have them, with `path` for where they lead, and `mutating`.
    pub hooks: Vec<Value>,
    /// What is there before there are webhooks: where it is made, and what.
    pub before: Vec<(String, Value)>,
    pub steps: Vec<Step>,
}

pub struct Step {
    pub method: &'static str,
    pub path: String,
    pub body: Option<Value>,
    /// Webhooks are asked in an order that counts.
    pub keeps_order: bool,
}

fn step(method: &'static str, path: &str, body: Value) -> Step {
    Step { method, path: path.to_owned(), body: Some(body).filter(|it| !it.is_null()), keeps_order: false }
}

/// A webhook at `path` for all operations on `resources`, which are of one group and version.
fn hook(mutating: bool, path: &str, group: &str, version: &str, resources: &[&str]) -> Value {
    let name = format!("{}.reviews.io", path.trim_matches('/').replace('/', "-"));
    json!({
        "mutating": mutating, "path": path, "name": name,
        "rules": [{"operations": ["*"], "apiGroups": [group], "apiVersions": [version], "resources": resources}],
    })
}

fn with(mut hook: Value, changes: Value) -> Value {
    if let (Some(hook), Value::Object(changes)) = (hook.as_object_mut(), changes) {
        hook.extend(changes);
    }
    hook
}

/// A mutating and a validating one that only look.
fn observers(group: &str, version: &str, resources: &[&str]) -> Vec<Value> {
    vec![hook(true, "/see/m", group, version, resources), hook(false, "/see/v", group, version, resources)]
}

const MAPS: &str = "/api/v1/namespaces/<ns>/configmaps";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/<ns>/deployments";
const PODS: &str = "/api/v1/namespaces/<ns>/pods";
const WIDGETS: &str = "/apis/reviews.io/v1/namespaces/<ns>/widgets";
const WIDGETS_V2: &str = "/apis/reviews.io/v2/namespaces/<ns>/widgets";

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "1"}})
}

fn deployment(name: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "labels": {"app": "web"}},
        "spec": {
            "replicas": 2, "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "web", "image": "nginx"}]},
            },
        },
        "status": {"replicas": 9},
    })
}

fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        // What other plugins would add is there already: this is about webhooks.
        "spec": {
            "containers": [{"name": "web", "image": "nginx"}], "automountServiceAccountToken": false,
            "serviceAccountName": "default", "priority": 0, "preemptionPolicy": "PreemptLowerPriority",
            "tolerations": [
                {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
                {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
            ],
        },
    })
}

fn definition() -> Value {
    let version = |name: &str, storage: bool| {
        json!({
            "name": name, "served": true, "storage": storage, "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "spec": {"type": "object", "properties": {
                    "size": {"type": "integer"}, "color": {"type": "string", "default": "red"},
                }},
                "status": {"type": "object", "properties": {"phase": {"type": "string"}}},
            }}},
        })
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.reviews.io"},
        "spec": {
            "group": "reviews.io", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [version("v1", true), version("v2", false)],
        },
    })
}

fn widget(version: &str, name: &str) -> Value {
    json!({
        "apiVersion": format!("reviews.io/{version}"), "kind": "Widget", "metadata": {"name": name},
        "spec": {"size": 1},
    })
}

pub fn all() -> Vec<Scene> {
    let mut scenes = objects();
    scenes.extend(matching());
    scenes.extend(answers());
    scenes.extend(patches());
    scenes
}

/// How each kind of request looks in a review.
fn objects() -> Vec<Scene> {
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
                step("POST", &format!("{MAPS}?dryRun=All&fieldManager=me&fieldValidation=Strict"), map("tried")),
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
                step("POST", MAPS, map("b")),
                step("DELETE", MAPS, Value::Null),
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
            before: vec![("/api/v1/namespaces/<ns>/serviceaccounts".into(), json!({"metadata": {"name": "default"}}))],
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
                with(hook(true, "/see/m", "*", "*", &["*/*"]), json!({"namespaceSelector": {"matchLabels": {"scene": "yes"}}})),
                with(hook(false, "/see/v", "*", "*", &["*/*"]), json!({"namespaceSelector": {"matchLabels": {"scene": "yes"}}})),
            ],
            before: vec![],
            steps: vec![
                step("POST", "/apis/autoscaling/v2/namespaces/<ns>/horizontalpodautoscalers", autoscaler),
                step("PATCH", "/apis/autoscaling/v1/namespaces/<ns>/horizontalpodautoscalers/h", json!({"spec": {"maxReplicas": 4}})),
                step("POST", "/api/v1/namespaces/<ns>/secrets", json!({"metadata": {"name": "s"}, "stringData": {"a": "b"}})),
                step("POST", "/api/v1/namespaces/<ns>/services", json!({"metadata": {"name": "s"}, "spec": {"clusterIP": "None", "ports": [{"port": 80}]}})),
                step("POST", "/apis/batch/v1/namespaces/<ns>/cronjobs", json!({"metadata": {"name": "c"}, "spec": {
                    "schedule": "@daily",
                    "jobTemplate": {"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}},
                }})),
                step("POST", "/apis/rbac.authorization.k8s.io/v1/namespaces/<ns>/roles", json!({"metadata": {"name": "r"}, "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]})),
                step("POST", "/apis/networking.k8s.io/v1/namespaces/<ns>/ingresses", json!({"metadata": {"name": "i"}, "spec": {"defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}}})),
                step("POST", "/apis/coordination.k8s.io/v1/namespaces/<ns>/leases", json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "me"}})),
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
fn matching() -> Vec<Scene> {
    let events = json!({
        "metadata": {"name": "e"}, "reason": "R", "type": "Normal", "eventTime": "2026-01-02T03:04:05.000000Z",
        "action": "A", "reportingController": "c.x", "reportingInstance": "i", "regarding": {"kind": "Pod", "namespace": "<ns>", "name": "p"},
    });
    let rule = |operations: Value, scope: &str| {
        json!({"rules": [{"operations": operations, "apiGroups": [""], "apiVersions": ["v1"], "resources": ["*"], "scope": scope}]})
    };
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
                step("POST", "/api/v1/namespaces", json!({"metadata": {"name": "red", "labels": {"team": "red"}}})),
                step("POST", "/api/v1/namespaces", json!({"metadata": {"name": "blue", "labels": {"team": "blue"}}})),
                step("POST", "/api/v1/namespaces/red/configmaps", map("a")),
                step("POST", "/api/v1/namespaces/blue/configmaps", map("a")),
                step("PATCH", "/api/v1/namespaces/red", json!({"metadata": {"labels": {"team": "blue"}}})),
                step("PATCH", "/api/v1/namespaces/blue", json!({"metadata": {"labels": {"team": "red"}}})),
                step("POST", "/api/v1/nodes", json!({"metadata": {"name": "n1"}, "spec": {"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]}})),
                step("POST", "/api/v1/namespaces/none/configmaps", map("a")),
                step("POST", "/api/v1/namespaces", json!({"metadata": {"name": "green", "labels": {"team": "blue"}}})),
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
                with(hook(false, "/see/exact", "autoscaling", "v1", &["horizontalpodautoscalers"]), json!({"matchPolicy": "Exact"})),
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
                step("PATCH", "/apis/autoscaling/v1/namespaces/<ns>/horizontalpodautoscalers/h", json!({"spec": {"maxReplicas": 5}})),
                step("POST", "/apis/events.k8s.io/v1/namespaces/<ns>/events", events),
                step("DELETE", "/apis/autoscaling/v2/namespaces/<ns>/horizontalpodautoscalers/h", Value::Null),
            ],
        },
        Scene {
            title: "conditions",
            hooks: vec![
                with(maps("/see/named"), condition("object.metadata.name == 'a'")),
                with(maps("/see/others"), condition("request.operation != 'DELETE' && object.metadata.name != 'a'")),
                with(maps("/see/ann"), condition("request.userInfo.username == 'ann' && 'dev' in request.userInfo.groups")),
                with(maps("/see/open"), with(condition("object.data.missing == 'x'"), json!({"failurePolicy": "Ignore"}))),
                with(
                    maps("/see/closed"),
                    with(condition("object.data.missing == 'x'"), json!({"objectSelector": {"matchLabels": {"closed": "yes"}}})),
                ),
            ],
            before: vec![],
            steps: vec![
                step("POST", MAPS, map("a")),
                step("POST", MAPS, map("b")),
                step("POST", MAPS, json!({"metadata": {"name": "c", "labels": {"closed": "yes"}}, "data": {"a": "1"}})),
                step("DELETE", &format!("{MAPS}/b"), Value::Null),
            ],
        },
        Scene {
            title: "configurations concern nobody",
            hooks: vec![hook(false, "/deny/all", "admissionregistration.k8s.io", "*", &["*"])],
            before: vec![],
            steps: vec![
                step("POST", "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", json!({"metadata": {"name": "free"}})),
                step("DELETE", "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/free", Value::Null),
            ],
        },
    ]
}

/// What comes of what webhooks say, well and badly.
fn answers() -> Vec<Scene> {
    let maps = |mutating: bool, path: &str| hook(mutating, path, "", "v1", &["configmaps"]);
    // Each is for the config map that has its label, so that one scene has all of them.
    let selected = |mutating: bool, path: &str| {
        let label = path.trim_matches('/').replace('/', "-");
        with(maps(mutating, path), json!({"objectSelector": {"matchLabels": {"hook": label}}, "timeoutSeconds": 2}))
    };
    let concerned = |path: &str| {
        let label = path.trim_matches('/').replace('/', "-");
        json!({"metadata": {"name": label, "labels": {"hook": label}}, "data": {"a": "1"}})
    };
    let denials = ["/deny/nothing", "/deny/message", "/deny/teapot", "/deny/reason", "/deny/success", "/deny/missing", "/deny/details"];
    let bad = [
        "/bad/uid", "/bad/untyped", "/bad/kind", "/bad/version", "/bad/absent", "/bad/types", "/bad/cut", "/bad/empty", "/bad/500",
        "/bad/502", "/bad/404", "/bad/403", "/bad/503", "/bad/status", "/bad/patch-only", "/bad/type-only", "/bad/both", "/bad/merge",
        "/bad/object", "/bad/text", "/bad/close", "/bad/hang",
    ];
    let warnings = ["/warn/one", "/warn/many", "/warn/odd", "/warn/deny"];
    let scene = |title, paths: &[&str], mutating: bool, changes: Value| Scene {
        title,
        hooks: paths.iter().map(|path| with(selected(mutating, path), changes.clone())).collect(),
        before: vec![],
        steps: paths.iter().map(|path| step("POST", MAPS, concerned(path))).collect(),
    };
    vec![
        scene("denials of mutating webhooks", &denials, true, json!({})),
        scene("denials of validating webhooks", &denials, false, json!({})),
        scene("bad answers of mutating webhooks", &bad, true, json!({})),
        scene("bad answers of validating webhooks", &bad, false, json!({})),
        scene("bad answers that do not matter", &bad, true, json!({"failurePolicy": "Ignore"})),
        scene("bad answers that do not matter, validating", &bad, false, json!({"failurePolicy": "Ignore"})),
        scene("warnings", &warnings, true, json!({})),
        scene("warnings, validating", &warnings, false, json!({})),
        Scene {
            title: "the older review",
            hooks: ["/deny/message", "/bad/uid", "/bad/patch-only", "/patch/data"]
                .iter()
                .map(|path| with(selected(true, path), json!({"admissionReviewVersions": ["v2", "v1beta1", "v1"]})))
                .collect(),
            before: vec![],
            steps: ["/deny/message", "/bad/uid", "/bad/patch-only", "/patch/data"]
                .iter()
                .map(|path| step("POST", MAPS, concerned(path)))
                .collect(),
        },
        Scene {
            title: "nobody there",
            hooks: vec![
                with(selected(false, "/gone"), json!({"clientConfig": {"url": "https://127.0.0.1:1/gone"}, "timeoutSeconds": 3})),
            ],
            before: vec![],
            steps: vec![step("POST", MAPS, concerned("/gone"))],
        },
    ]
}

/// What webhooks make of objects.
fn patches() -> Vec<Scene> {
    let selected = |path: &str| {
        let label = path.trim_matches('/').replace('/', "-");
        with(hook(true, path, "", "v1", &["configmaps"]), json!({"objectSelector": {"matchLabels": {"hook": label}}}))
    };
    let concerned = |path: &str| {
        let label = path.trim_matches('/').replace('/', "-");
        json!({"metadata": {"name": label, "labels": {"hook": label}}, "data": {"a": "1"}})
    };
    let paths = [
        "/patch/first", "/patch/data", "/patch/same", "/patch/unknown", "/patch/types", "/patch/invalid", "/patch/test", "/patch/nowhere",
        "/patch/name", "/patch/uid", "/patch/namespace", "/patch/managers", "/patch/owners", "/patch/empty",
    ];
    let mut scenes = vec![Scene {
        title: "patches",
        hooks: paths.iter().map(|path| selected(path)).chain([hook(false, "/see/v", "", "v1", &["configmaps"])]).collect(),
        before: vec![],
        steps: paths.iter().map(|path| step("POST", MAPS, concerned(path))).collect(),
    }];
    scenes.push(Scene {
        title: "patches of what is there",
        hooks: paths.iter().map(|path| with(selected(path), json!({"rules": [
            {"operations": ["UPDATE", "DELETE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]},
        ]}))).collect(),
        before: paths.iter().map(|path| (MAPS.to_owned(), concerned(path))).collect(),
        steps: paths
            .iter()
            .flat_map(|path| {
                let at = format!("{MAPS}/{}", path.trim_matches('/').replace('/', "-"));
                [step("PATCH", &at, json!({"data": {"b": "2"}})), step("DELETE", &at, Value::Null)]
            })
            .collect(),
    });
    let again = |path: &str, policy: &str| {
        with(hook(true, path, "", "v1", &["configmaps"]), json!({"reinvocationPolicy": policy}))
    };
    let in_order = |method, path: &str, body| Step { keeps_order: true, ..step(method, path, body) };
    scenes.push(Scene {
        title: "asked again",
        hooks: vec![again("/patch/first", "IfNeeded"), again("/patch/second", "Never"), again("/patch/third", "IfNeeded"), again("/see/last", "IfNeeded")],
        before: vec![],
        steps: vec![in_order("POST", MAPS, map("a")), in_order("PATCH", &format!("{MAPS}/a"), json!({"data": {"b": "2"}}))],
    });
    scenes.push(Scene {
        title: "patches of deployments and their scale",
        hooks: vec![
            hook(true, "/patch/replicas", "apps", "v1", &["deployments", "deployments/scale"]),
            hook(false, "/see/v", "apps", "v1", &["*/*"]),
        ],
        before: vec![],
        steps: vec![
            step("POST", DEPLOYMENTS, deployment("d")),
            step("PATCH", &format!("{DEPLOYMENTS}/d/scale"), json!({"spec": {"replicas": 1}})),
            step("PATCH", &format!("{DEPLOYMENTS}/d"), json!({"spec": {"replicas": 2}})),
        ],
    });
    scenes.push(Scene {
        title: "patches of custom resources",
        hooks: vec![
            hook(true, "/patch/spec", "reviews.io", "v1", &["widgets"]),
            with(hook(true, "/patch/labels", "reviews.io", "v2", &["widgets"]), json!({"name": "labels.v2.reviews.io"})),
        ],
        before: vec![],
        steps: vec![
            step("POST", WIDGETS, widget("v1", "patched")),
            step("POST", WIDGETS_V2, widget("v2", "patched2")),
            step("PATCH", &format!("{WIDGETS}/patched"), json!({"spec": {"size": 5}})),
        ],
    });
    scenes.push(Scene {
        title: "patches of bindings",
        hooks: vec![hook(true, "/patch/node", "", "v1", &["pods/binding"])],
        before: vec![
            ("/api/v1/namespaces/<ns>/serviceaccounts".into(), json!({"metadata": {"name": "default"}})),
            (PODS.to_owned(), pod("p")),
        ],
        steps: vec![
            step(
                "POST",
                &format!("{PODS}/p/binding"),
                json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}}),
            ),
            step("GET", &format!("{PODS}/p"), Value::Null),
        ],
    });
    scenes
}
