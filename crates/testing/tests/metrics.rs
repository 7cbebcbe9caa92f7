//! What the metrics are called, beside a real kube-apiserver: a name of upstream's has its type and its labels, and
//! everything else begins with `hanse_`. What tenants make adds no series.

#![allow(clippy::disallowed_methods)] // Tests run on the real machine.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use http::StatusCode;
use serde_json::{Value, json};
use testing::{
    client::Client,
    hub::{TestHub, eventually},
    real::{Options, RealCluster},
};

/// Upstream shows these only when something has happened that no test of this kind makes happen. Their types and labels
/// are those of its sources.
const SELDOM: &[(&str, &str, &[&str])] = &[
    (
        "apiserver_admission_webhook_admission_duration_seconds",
        "histogram",
        &["name", "operation", "rejected", "type"],
    ),
    ("apiserver_admission_webhook_fail_open_count", "counter", &["name", "type"]),
    (
        "apiserver_admission_webhook_rejection_count",
        "counter",
        &["error_type", "name", "operation", "rejection_code", "type"],
    ),
    (
        "apiserver_admission_webhook_request_total",
        "counter",
        &["code", "name", "operation", "rejected", "type"],
    ),
    ("apiserver_audit_error_total", "counter", &["plugin"]),
    ("apiserver_audit_level_total", "counter", &["level"]),
    (
        "apiserver_flowcontrol_rejected_requests_total",
        "counter",
        &["flow_schema", "priority_level", "reason"],
    ),
    (
        "apiserver_request_terminations_total",
        "counter",
        &["code", "component", "group", "resource", "scope", "subresource", "verb", "version"],
    ),
    (
        "apiserver_mutating_admission_policy_check_total",
        "counter",
        &["error_type", "policy", "policy_binding"],
    ),
    (
        "apiserver_validating_admission_policy_check_total",
        "counter",
        &["enforcement_action", "error_type", "policy", "policy_binding"],
    ),
];

/// A metric's type and the names of its labels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Shape {
    kind: String,
    labels: BTreeSet<String>,
}

/// By name. Parsed as Prometheus would, and no name twice.
fn shapes(text: &str) -> BTreeMap<String, Shape> {
    let mut shapes: BTreeMap<String, Shape> = BTreeMap::new();
    let mut name = String::new();
    for line in text.lines() {
        if let Some((about, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            let shape = Shape { kind: kind.to_owned(), labels: BTreeSet::new() };
            assert_eq!(shapes.insert(about.to_owned(), shape), None, "{about} is there twice");
            about.clone_into(&mut name);
        } else if !line.starts_with('#') {
            let sample = line.split(['{', ' ']).next().unwrap_or_default();
            let suffix = sample.strip_prefix(&name);
            let fits = matches!(suffix, Some("" | "_bucket" | "_sum" | "_count"));
            assert!(fits, "{sample} stands below {name}");
            let Some(shape) = shapes.get_mut(&name) else { continue };
            shape.labels.extend(labels_of(line).filter(|label| !matches!(label.as_str(), "le" | "quantile")));
        }
    }
    shapes
}

fn labels_of(line: &str) -> impl Iterator<Item = String> + '_ {
    let inside =
        line.split_once('{').and_then(|(_, rest)| rest.rsplit_once('}')).map_or("", |(inside, _)| inside);
    // No value holds a quote and an equals sign: they are ours.
    inside.split("\",").filter_map(|pair| pair.split_once("=\"").map(|(label, _)| label.to_owned()))
}

/// A little of everything, so that most metrics have something to say.
async fn use_it(client: &Client) -> Result<()> {
    let maps = "/api/v1/namespaces/default/configmaps";
    for name in ["one", "two"] {
        let map = json!({"metadata": {"name": name}, "data": {"a": "b"}});
        assert_eq!(client.post(maps, &map).await?.code, StatusCode::CREATED);
    }
    client.get(&format!("{maps}/one")).await?;
    client.get(maps).await?;
    client.merge_patch(&format!("{maps}/one"), &json!({"data": {"a": "c"}})).await?;
    client.post(&format!("{maps}?dryRun=All"), &json!({"metadata": {"name": "dry"}})).await?;
    client.delete(&format!("{maps}/two")).await?;
    let mut watch = client.watch(&format!("{maps}?watch=true")).await?;
    watch.expect().await?;
    client.post("/api/v1/namespaces", &json!({"metadata": {"name": "made"}})).await?;
    client.delete("/api/v1/namespaces/made").await?;
    let token =
        client.post("/api/v1/namespaces/default/serviceaccounts/default/token", &json!({"spec": {}})).await?;
    let bearer = token.json()["status"]["token"].as_str().context("no token")?.to_owned();
    for token in [bearer.as_str(), "bad"] {
        let bearer = format!("Bearer {token}");
        client.call(http::Method::GET, maps, &[("authorization", &bearer)], "").await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn names_of_upstream_mean_what_they_mean_there() -> Result<()> {
    let real = RealCluster::start(Options { fsync: false, controller_manager: true, ..Options::default() })?;
    let identity = (real.admin_cert_pem.as_str(), real.admin_key_pem.as_str());
    let theirs = Client::connect(&real.url, &real.ca_pem, Some(identity)).await?;
    eventually("the default service account", || async {
        let answer = theirs.get("/api/v1/namespaces/default/serviceaccounts/default").await?;
        Ok((answer.code == StatusCode::OK).then_some(()))
    })
    .await?;
    use_it(&theirs).await?;
    let hub = TestHub::start().await?;
    let ours = hub.admin().await?;
    use_it(&ours).await?;
    let answer = ours.get("/metrics").await?;
    assert_eq!(
        answer.headers.get("content-type").and_then(|value| value.to_str().ok()),
        Some("text/plain; version=0.0.4; charset=utf-8")
    );
    let (ours, theirs) = (shapes(&answer.text()), shapes(&theirs.get("/metrics").await?.text()));
    let mut wrong = Vec::new();
    for (name, shape) in ours.iter().filter(|(name, _)| !name.starts_with("hanse_")) {
        let seldom = SELDOM.iter().find(|(seldom, ..)| seldom == name).map(|(_, kind, labels)| Shape {
            kind: (*kind).to_owned(),
            labels: labels.iter().map(|label| (*label).to_owned()).collect(),
        });
        let Some(expected) = theirs.get(name).cloned().or(seldom) else {
            wrong.push(format!("{name} is not upstream's"));
            continue;
        };
        let silent = |shape: &Shape| shape.labels.is_empty();
        let same_labels = shape.labels == expected.labels || silent(shape) || silent(&expected);
        if shape.kind != expected.kind || !same_labels {
            wrong.push(format!("{name}: {shape:?}, upstream {expected:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for name in DASHBOARDS {
        assert!(ours.contains_key(*name), "{name} is missing");
    }
    Ok(())
}

/// What dashboards and alerts for kube-apiserver ask for and is there at once. Of requests that were turned away, the tests
/// of fairness tell: as upstream, nothing is said of them before there is one.
const DASHBOARDS: &[&str] = &[
    "apiserver_request_total",
    "apiserver_request_duration_seconds",
    "apiserver_request_sli_duration_seconds",
    "apiserver_client_certificate_expiration_seconds",
    "apiserver_response_sizes",
    "apiserver_current_inflight_requests",
    "apiserver_longrunning_requests",
    "apiserver_watch_events_total",
    "apiserver_watch_events_sizes",
    "apiserver_storage_objects",
    "apiserver_resource_objects",
    "apiserver_audit_event_total",
    "apiserver_flowcontrol_current_executing_requests",
    "apiserver_flowcontrol_current_inqueue_requests",
    "apiserver_flowcontrol_dispatched_requests_total",
    "apiserver_flowcontrol_request_wait_duration_seconds",
    "apiserver_tls_handshake_errors_total",
    "authentication_attempts",
    "authorization_attempts_total",
    "kubernetes_build_info",
    "process_cpu_seconds_total",
    "process_open_fds",
    "process_resident_memory_bytes",
    "process_start_time_seconds",
    "workqueue_adds_total",
    "workqueue_depth",
    "workqueue_queue_duration_seconds",
    "workqueue_work_duration_seconds",
    "workqueue_retries_total",
];

fn definition(number: usize) -> Value {
    let (plural, group) = (format!("things{number}"), format!("tenant{number}.example.com"));
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"plural": plural, "singular": format!("thing{number}"), "kind": format!("Thing{number}")},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}}, "subresources": {"status": {}}}],
        },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn neither_workspaces_nor_their_kinds_add_series() -> Result<()> {
    let hub = TestHub::start().await?;
    let admin = hub.admin().await?;
    let series = async || -> Result<BTreeSet<String>> {
        let text = admin.get("/metrics").await?.text();
        let samples = text.lines().filter(|line| !line.starts_with('#'));
        Ok(samples.filter_map(|line| line.rsplit_once(' ').map(|(series, _)| series.to_owned())).collect())
    };
    let tenant = async |number: usize| -> Result<()> {
        let workspace = json!({"kind": "Workspace", "apiVersion": "hanse.io/v1alpha1", "metadata": {"name": format!("w{number}")}});
        admin.post("/clusters/root/apis/hanse.io/v1alpha1/workspaces", &workspace).await?;
        let root = format!("/clusters/w{number}");
        // Nobody knows yet what that is, as may be when a kind has just been defined.
        admin
            .post(
                &format!("{root}/apis/tenant{number}.example.com/v1/namespaces/default/things{number}"),
                &json!({}),
            )
            .await?;
        admin
            .post(
                &format!("{root}/apis/apiextensions.k8s.io/v1/customresourcedefinitions"),
                &definition(number),
            )
            .await?;
        let things = format!("{root}/apis/tenant{number}.example.com/v1/namespaces/default/things{number}");
        let thing = json!({"apiVersion": format!("tenant{number}.example.com/v1"), "kind": format!("Thing{number}"), "metadata": {"name": "a"}});
        eventually("the kind is served", || async {
            Ok((admin.post(&things, &thing).await?.code == StatusCode::CREATED).then_some(()))
        })
        .await?;
        admin.get(&things).await?;
        admin.watch(&format!("{things}?watch=true")).await?.expect().await?;
        admin.delete(&format!("{things}/a")).await?;
        admin.post(&things, &thing).await?;
        Ok(())
    };
    tenant(0).await?;
    tenant(1).await?;
    series().await?;
    let before = series().await?;
    for number in 2..10 {
        tenant(number).await?;
    }
    let after = series().await?;
    let added: Vec<&String> = after.difference(&before).collect();
    assert!(added.is_empty(), "{added:#?}");
    let stored = "apiserver_resource_objects{group=\"other\",resource=\"other\"}";
    assert!(after.contains(stored), "what tenants define is counted together");
    Ok(())
}
