//! Pods of workspaces, and what a member makes of them before they are stored: the same on a real API server and on ours.

use serde_json::{Value, json};

/// The namespace in the member that the pods are made in, and what it is called in its workspace.
pub const NAMESPACE: &str = "team-shop";
pub const HOME: &str = "shop";
/// Accounts that must be there beside `default`; the second wants no token.
pub const ACCOUNTS: [(&str, Option<bool>); 2] = [("robot", None), ("quiet", Some(false))];

const MOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// A pod, and what is to become of it.
pub struct Case {
    pub name: &'static str,
    pub spec: Value,
    /// `Err`: why it is refused.
    pub expected: Result<Value, &'static str>,
}

fn container(name: &str) -> Value {
    json!({"name": name, "image": "example.com/app:1"})
}

fn with(mut object: Value, key: &str, value: Value) -> Value {
    object[key] = value;
    object
}

fn source(secret: &str, key: &str, path: &str) -> Value {
    json!({"secret": {"name": secret, "items": [{"key": key, "path": path}]}})
}

/// What takes the place of the volume that every pod gets.
fn given(account: &str) -> Value {
    let secret = format!("hanse-token-{account}");
    let sources = ["token", "ca.crt", "namespace"].map(|key| source(&secret, key, key));
    json!({"kube-api-access-": sources})
}

fn mounted() -> Value {
    json!([format!("kube-api-access- {MOUNT}")])
}

/// What containers are told of the hub, with what they know already after it.
fn told(own: &[Value], without: &[&str], address: (&str, &str)) -> Value {
    let (host, port) = address;
    let all = [
        ("KUBERNETES_SERVICE_HOST", host),
        ("KUBERNETES_SERVICE_PORT", port),
        ("KUBERNETES_SERVICE_PORT_HTTPS", port),
    ];
    let given = all.iter().filter(|(name, _)| !without.contains(name));
    given.map(|(name, value)| json!({"name": name, "value": value})).chain(own.iter().cloned()).collect()
}

/// All that is tried, with the hub at `address`: host and port.
#[allow(clippy::too_many_lines, reason = "a table")]
pub fn cases(address: (&str, &str)) -> Vec<Case> {
    let told_all = || told(&[], &[], address);
    let plain = || json!({"env": told_all(), "mounts": mounted()});
    let named = |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), plain())).collect::<Value>();
    let own_host = json!({"name": "KUBERNETES_SERVICE_HOST", "value": "elsewhere"});
    let own_other = json!({"name": "A", "value": "$(KUBERNETES_SERVICE_HOST)"});
    let of_field = |path: &str| json!({"valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}});
    let field = |name: &str, path: &str| with(of_field(path), "name", json!(name));
    let all_own: Vec<Value> =
        ["KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", "KUBERNETES_SERVICE_PORT_HTTPS"]
            .iter()
            .map(|name| json!({"name": name, "value": "mine"}))
            .collect();
    let projected = |name: &str, sources: Value| json!({"name": name, "projected": {"sources": sources}});
    let token = |path: &str| json!({"serviceAccountToken": {"path": path}});
    let for_audience = |audience: &str| json!({"serviceAccountToken": {"path": "t", "audience": audience}});
    let unmounted = || json!({"main": {"env": told_all(), "mounts": []}});
    let secret_source = json!({"secret": {"name": "own", "items": [{"key": "k", "path": "p", "mode": 256}]}});
    vec![
        Case {
            name: "nothing said",
            spec: json!({"containers": [container("main")]}),
            expected: Ok(json!({"volumes": given("default"), "containers": named(&["main"])})),
        },
        Case {
            name: "an account of its own",
            spec: json!({"serviceAccountName": "robot", "containers": [container("main")]}),
            expected: Ok(json!({"volumes": given("robot"), "containers": named(&["main"])})),
        },
        Case {
            name: "several containers and such that go before",
            spec: json!({
                "containers": [container("main"), container("beside")],
                "initContainers": [container("before"), with(container("always"), "restartPolicy", json!("Always"))],
            }),
            expected: Ok(json!({
                "volumes": given("default"), "containers": named(&["main", "beside", "before", "always"]),
            })),
        },
        Case {
            name: "the pod wants no token",
            spec: json!({"automountServiceAccountToken": false, "containers": [container("main")]}),
            expected: Ok(json!({"volumes": {}, "containers": unmounted()})),
        },
        Case {
            name: "the account wants no token",
            spec: json!({"serviceAccountName": "quiet", "containers": [container("main")]}),
            expected: Ok(json!({"volumes": {}, "containers": unmounted()})),
        },
        Case {
            name: "the account wants no token and the pod does",
            spec: json!({
                "serviceAccountName": "quiet", "automountServiceAccountToken": true, "containers": [container("main")],
            }),
            expected: Ok(json!({"volumes": given("quiet"), "containers": named(&["main"])})),
        },
        Case {
            name: "variables of its own win and come later",
            spec: json!({"containers": [
                with(container("main"), "env", json!([own_other, own_host])),
                with(container("beside"), "env", json!(all_own)),
            ]}),
            expected: Ok(json!({
                "volumes": given("default"),
                "containers": {
                    "main": {
                        "env": told(&[own_other, own_host], &["KUBERNETES_SERVICE_HOST"], address),
                        "mounts": mounted(),
                    },
                    "beside": {"env": all_own, "mounts": mounted()},
                },
            })),
        },
        Case {
            name: "it asks for the name of its namespace",
            spec: json!({"containers": [with(
                container("main"),
                "env",
                json!([field("NS", "metadata.namespace"), field("POD", "metadata.name")]),
            )]}),
            expected: Ok(json!({
                "volumes": given("default"),
                "containers": {"main": {
                    "env": told(
                        &[json!({"name": "NS", "value": HOME}), field("POD", "metadata.name")],
                        &[],
                        address,
                    ),
                    "mounts": mounted(),
                }},
            })),
        },
        Case {
            name: "a volume of its own with a token and other things",
            spec: json!({
                "automountServiceAccountToken": false,
                "volumes": [
                    {"name": "scratch", "emptyDir": {}},
                    projected("creds", json!([
                        secret_source,
                        token("jwt"),
                        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "root.pem"}]}},
                        {"configMap": {"name": "kube-root-ca.crt"}},
                        {"downwardAPI": {"items": [
                            {"path": "ns", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}},
                            {"path": "labels", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.labels"}},
                        ]}},
                    ])),
                ],
                "containers": [with(
                    container("main"),
                    "volumeMounts",
                    json!([{"name": "creds", "mountPath": "/creds"}]),
                )],
            }),
            expected: Ok(json!({
                "volumes": {"creds": [
                    secret_source,
                    source("hanse-token-default", "token", "jwt"),
                    source("hanse-token-default", "ca.crt", "root.pem"),
                    source("hanse-token-default", "ca.crt", "ca.crt"),
                    source("hanse-token-default", "namespace", "ns"),
                    {"downwardAPI": {"items": [
                        {"path": "labels", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.labels"}},
                    ]}},
                ]},
                "containers": {"main": {"env": told_all(), "mounts": ["creds /creds"]}},
            })),
        },
        Case {
            name: "files of the downward API, alone and among others",
            spec: json!({
                "automountServiceAccountToken": false,
                "volumes": [
                    {"name": "fields", "downwardAPI": {"defaultMode": 256, "items": [
                        {"path": "labels", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.labels"}},
                        {"path": "ns", "mode": 384, "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}},
                    ]}},
                    {"name": "only", "downwardAPI": {"items": [
                        {"path": "ns", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}},
                    ]}},
                    projected("mixed", json!([
                        {"configMap": {"name": "kube-root-ca.crt"}},
                        {"downwardAPI": {"items": [
                            {"path": "ns", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}},
                            {"path": "name", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}},
                        ]}},
                        secret_source,
                    ])),
                    projected("others", json!([{"downwardAPI": {"items": [
                        {"path": "name", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}},
                    ]}}])),
                ],
                "containers": [container("main")],
            }),
            expected: Ok(json!({
                "volumes": {
                    "fields": [
                        {"secret": {
                            "name": "hanse-token-default", "items": [{"key": "namespace", "path": "ns", "mode": 384}],
                        }},
                        {"downwardAPI": {"items": [
                            {"path": "labels", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.labels"}},
                        ]}},
                    ],
                    "only": [source("hanse-token-default", "namespace", "ns")],
                    "mixed": [
                        {"configMap": {"name": "kube-root-ca.crt"}},
                        secret_source,
                        source("hanse-token-default", "namespace", "ns"),
                        {"downwardAPI": {"items": [
                            {"path": "name", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}},
                        ]}},
                    ],
                    "others": [{"downwardAPI": {"items": [
                        {"path": "name", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}},
                    ]}}],
                },
                "containers": unmounted(),
            })),
        },
        Case {
            name: "the volume came with the pod, as one that another server has completed",
            spec: json!({
                "volumes": [projected("kube-api-access-abcde", json!([
                    {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
                    {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                    {"downwardAPI": {"items": [
                        {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}},
                    ]}},
                ]))],
                "containers": [with(
                    container("main"),
                    "volumeMounts",
                    json!([{"name": "kube-api-access-abcde", "mountPath": MOUNT, "readOnly": true}]),
                )],
            }),
            expected: Ok(json!({"volumes": given("default"), "containers": named(&["main"])})),
        },
        Case {
            name: "something else is mounted where tokens are",
            spec: json!({
                "volumes": [{"name": "own", "emptyDir": {}}],
                "containers": [with(container("main"), "volumeMounts", json!([{"name": "own", "mountPath": MOUNT}]))],
            }),
            expected: Ok(json!({
                "volumes": {},
                "containers": {"main": {"env": told_all(), "mounts": [format!("own {MOUNT}")]}},
            })),
        },
        Case {
            name: "a token for the API by its name",
            spec: json!({
                "automountServiceAccountToken": false,
                "volumes": [projected("t", json!([for_audience("https://kubernetes.default.svc.cluster.local")]))],
                "containers": [container("main")],
            }),
            expected: Ok(json!({
                "volumes": {"t": [source("hanse-token-default", "token", "t")]}, "containers": unmounted(),
            })),
        },
        Case {
            name: "a token for somebody else",
            spec: json!({
                "volumes": [projected("t", json!([for_audience("vault")]))], "containers": [container("main")],
            }),
            expected: Err("a token of this cluster would be mounted"),
        },
        Case {
            name: "tokens for the API and for somebody else",
            spec: json!({
                "volumes": [projected("t", json!([token("a"), for_audience("vault")]))],
                "containers": [container("main")],
            }),
            expected: Err("a token of this cluster would be mounted"),
        },
    ]
}

/// What a case is about, of a pod as it is stored.
pub fn outcome(pod: &Value) -> Value {
    // Names of volumes that are made up are all the same here.
    let plain = |name: &str| match name.strip_prefix("kube-api-access-") {
        Some(_) => "kube-api-access-".to_owned(),
        None => name.to_owned(),
    };
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let spec = &pod["spec"];
    let volumes: Value = list(&spec["volumes"])
        .iter()
        .filter(|volume| volume["projected"].is_object())
        .map(|volume| (plain(&text(&volume["name"])), volume["projected"]["sources"].clone()))
        .collect();
    let containers: Value = ["containers", "initContainers"]
        .iter()
        .flat_map(|field| list(&spec[*field]))
        .map(|container| {
            let mounts: Vec<String> = list(&container["volumeMounts"])
                .iter()
                .map(|mount| format!("{} {}", plain(&text(&mount["name"])), text(&mount["mountPath"])))
                .collect();
            (text(&container["name"]), json!({"env": list(&container["env"]), "mounts": mounts}))
        })
        .collect();
    json!({"volumes": volumes, "containers": containers})
}
