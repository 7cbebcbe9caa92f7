//! What happens: webhooks, and requests that concern them or not.

mod answers;
mod requests;

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
    /// Only who is asked counts, not what is said.
    pub only_who: bool,
}

pub fn step(method: &'static str, path: &str, body: Value) -> Step {
    Step {
        method,
        path: path.to_owned(),
        body: Some(body).filter(|it| !it.is_null()),
        keeps_order: false,
        only_who: false,
    }
}

/// A webhook at `path` for all operations on `resources`, which are of one group and version.
fn hook(mutating: bool, path: &str, group: &str, version: &str, resources: &[&str]) -> Value {
    let name = format!("{}.reviews.io", path.trim_matches('/').replace('/', "-"));
    json!({
        "mutating": mutating, "path": path, "name": name,
        "rules": [{"operations": ["*"], "apiGroups": [group], "apiVersions": [version], "resources": resources}],
    })
}

pub fn with(mut hook: Value, changes: Value) -> Value {
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
    let mut scenes = requests::objects();
    scenes.extend(requests::matching());
    scenes.extend(answers::answers());
    scenes.extend(answers::patches());
    scenes
}
