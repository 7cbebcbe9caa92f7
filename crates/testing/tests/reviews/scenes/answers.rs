//! Answers, and what comes of them.

use serde_json::{Value, json};

use super::*;

/// What comes of what webhooks say, well and badly.
pub fn answers() -> Vec<Scene> {
    let maps = |mutating: bool, path: &str| hook(mutating, path, "", "v1", &["configmaps"]);
    // Each is for the config map that has its label, so that one scene has all of them.
    let selected = |mutating: bool, path: &str| {
        let label = path.trim_matches('/').replace('/', "-");
        with(
            maps(mutating, path),
            json!({"objectSelector": {"matchLabels": {"hook": label}}, "timeoutSeconds": 2}),
        )
    };
    let concerned = |path: &str| {
        let label = path.trim_matches('/').replace('/', "-");
        json!({"metadata": {"name": label, "labels": {"hook": label}}, "data": {"a": "1"}})
    };
    let denials = [
        "/deny/nothing",
        "/deny/message",
        "/deny/teapot",
        "/deny/reason",
        "/deny/success",
        "/deny/missing",
        "/deny/details",
    ];
    let bad = [
        "/bad/uid",
        "/bad/untyped",
        "/bad/kind",
        "/bad/version",
        "/bad/absent",
        "/bad/types",
        "/bad/cut",
        "/bad/empty",
        "/bad/500",
        "/bad/502",
        "/bad/404",
        "/bad/403",
        "/bad/503",
        "/bad/status",
        "/bad/patch-only",
        "/bad/type-only",
        "/bad/both",
        "/bad/merge",
        "/bad/object",
        "/bad/text",
        "/bad/close",
        "/bad/hang",
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
                .map(|path| {
                    with(selected(true, path), json!({"admissionReviewVersions": ["v2", "v1beta1", "v1"]}))
                })
                .collect(),
            before: vec![],
            steps: ["/deny/message", "/bad/uid", "/bad/patch-only", "/patch/data"]
                .iter()
                .map(|path| step("POST", MAPS, concerned(path)))
                .collect(),
        },
        Scene {
            title: "nobody there",
            hooks: vec![with(
                selected(false, "/gone"),
                json!({"clientConfig": {"url": "https://127.0.0.1:1/gone"}, "timeoutSeconds": 3}),
            )],
            before: vec![],
            steps: vec![step("POST", MAPS, concerned("/gone"))],
        },
    ]
}

/// What webhooks make of objects.
pub fn patches() -> Vec<Scene> {
    let selected = |path: &str| {
        let label = path.trim_matches('/').replace('/', "-");
        with(
            hook(true, path, "", "v1", &["configmaps"]),
            json!({"objectSelector": {"matchLabels": {"hook": label}}}),
        )
    };
    let concerned = |path: &str| {
        let label = path.trim_matches('/').replace('/', "-");
        json!({"metadata": {"name": label, "labels": {"hook": label}}, "data": {"a": "1"}})
    };
    let paths = [
        "/patch/first",
        "/patch/data",
        "/patch/same",
        "/patch/unknown",
        "/patch/types",
        "/patch/invalid",
        "/patch/test",
        "/patch/nowhere",
        "/patch/name",
        "/patch/uid",
        "/patch/namespace",
        "/patch/managers",
        "/patch/owners",
        "/patch/empty",
    ];
    let mut scenes = vec![Scene {
        title: "patches",
        hooks: paths
            .iter()
            .map(|path| selected(path))
            .chain([hook(false, "/see/v", "", "v1", &["configmaps"])])
            .collect(),
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
        hooks: vec![
            again("/patch/first", "IfNeeded"),
            again("/patch/second", "Never"),
            again("/patch/third", "IfNeeded"),
            again("/see/last", "IfNeeded"),
        ],
        before: vec![],
        steps: vec![
            in_order("POST", MAPS, map("a")),
            in_order("PATCH", &format!("{MAPS}/a"), json!({"data": {"b": "2"}})),
        ],
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
            with(
                hook(true, "/patch/labels", "reviews.io", "v2", &["widgets"]),
                json!({"name": "labels.v2.reviews.io"}),
            ),
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
