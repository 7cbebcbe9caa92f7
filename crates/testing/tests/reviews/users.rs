//! Webhooks that others wrote: cert-manager's, from its chart, and Kyverno's, as its own tests expect them. They come
//! inside Go modules, so that the module proxy has them and its checksum database vouches for them.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use testing::real;

use super::scenes::{Scene, Step, step, with};

const CERT_MANAGER: &str = "github.com/cert-manager/cert-manager@v1.21.2";
const KYVERNO: &str = "github.com/kyverno/kyverno@v1.19.1";

/// The directory of a Go module, downloaded if it is not there.
fn module(source: &str) -> Result<PathBuf> {
    let directory = tempfile::tempdir()?;
    let output = Command::new("go")
        .args(["mod", "download", "-json", source])
        .envs([("GOTOOLCHAIN", "local"), ("GOFLAGS", "-mod=mod"), ("GOWORK", "off")])
        .current_dir(directory.path())
        .output()
        .context("cannot run go")?;
    ensure!(output.status.success(), "cannot download {source}: {}", String::from_utf8_lossy(&output.stdout));
    let told: Value = serde_json::from_slice(&output.stdout)?;
    Ok(PathBuf::from(told["Dir"].as_str().context("it is nowhere")?))
}

fn documents(text: &str) -> impl Iterator<Item = Value> + '_ {
    text.split("\n---").filter_map(|document| serde_saphyr::from_str::<Value>(document).ok())
}

fn webhooks(document: &Value) -> Vec<Value> {
    let mutating = match document["kind"].as_str() {
        Some("MutatingWebhookConfiguration") => true,
        Some("ValidatingWebhookConfiguration") => false,
        _ => return Vec::new(),
    };
    let hooks = document["webhooks"].as_array().cloned().unwrap_or_default();
    hooks.into_iter().map(|hook| with(hook, json!({"mutating": mutating}))).collect()
}

/// The webhook, answering at `path` of ours.
fn lead_to(mut hook: Value, path: &str) -> Value {
    if let Some(hook) = hook.as_object_mut() {
        hook.remove("clientConfig");
    }
    with(hook, json!({"path": path}))
}

fn cert_manager() -> Result<Scene> {
    let chart = module(CERT_MANAGER)?.join("deploy/charts/cert-manager");
    let helm = real::build(&["helm"])?.join("helm");
    let output = Command::new(helm)
        .args(["template", "cert-manager", "--set", "crds.enabled=true"])
        .arg(chart)
        .output()
        .context("cannot run helm")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let rendered = String::from_utf8(output.stdout)?;
    let all: Vec<Value> = documents(&rendered).collect();
    let hooks: Vec<Value> = all.iter().flat_map(webhooks).collect();
    ensure!(hooks.len() == 2, "the chart has other webhooks than it had");
    let hooks = hooks.into_iter().map(|hook| {
        let path = if hook["mutating"] == true { "/see/mutate" } else { "/see/validate" };
        lead_to(hook, path)
    });
    let definitions = all.iter().filter(|it| it["kind"] == "CustomResourceDefinition").map(|definition| {
        ("/apis/apiextensions.k8s.io/v1/customresourcedefinitions".to_owned(), definition.clone())
    });
    let at = |plural: &str| format!("/apis/cert-manager.io/v1/namespaces/<ns>/{plural}");
    let object = |kind: &str, spec: Value| json!({"apiVersion": "cert-manager.io/v1", "kind": kind, "metadata": {"name": "x"}, "spec": spec});
    let certificate = json!({"secretName": "tls", "dnsNames": ["example.com"], "issuerRef": {"name": "x"}});
    Ok(Scene {
        title: "cert-manager",
        hooks: hooks.collect(),
        before: definitions.collect(),
        steps: vec![
            step("POST", &at("issuers"), object("Issuer", json!({"selfSigned": {}}))),
            step("POST", &at("certificates"), object("Certificate", certificate)),
            step(
                "PATCH",
                &format!("{}/x", at("certificates")),
                json!({"spec": {"dnsNames": ["a.example.com"]}}),
            ),
            step("PATCH", &format!("{}/x/status", at("certificates")), json!({"status": {"revision": 1}})),
            step(
                "POST",
                &at("certificaterequests"),
                object("CertificateRequest", json!({"request": "bm90aGluZw==", "issuerRef": {"name": "x"}})),
            ),
            step("POST", "/api/v1/namespaces/<ns>/configmaps", json!({"metadata": {"name": "x"}})),
            step("DELETE", &format!("{}/x", at("issuers")), Value::Null),
        ],
    })
}

fn yaml_files(directory: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            yaml_files(&path, found)?;
        } else if path.extension().is_some_and(|it| it == "yaml") {
            found.push(path);
        }
    }
    found.sort();
    Ok(())
}

/// All at once: each leads to a path of its own, which says whether it was asked.
fn kyverno() -> Result<Scene> {
    let mut files = Vec::new();
    yaml_files(&module(KYVERNO)?.join("test/conformance/chainsaw"), &mut files)?;
    let mut hooks: Vec<Value> = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file)?;
        for hook in documents(&text).collect::<Vec<_>>().iter().flat_map(webhooks) {
            // They expect parts of what there is; what decides about requests is among them.
            let kept = [
                "rules",
                "matchConditions",
                "matchPolicy",
                "namespaceSelector",
                "objectSelector",
                "mutating",
            ];
            let parts =
                hook.as_object().into_iter().flatten().filter(|(key, _)| kept.contains(&key.as_str()));
            let hook: Value = parts
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect::<serde_json::Map<_, _>>()
                .into();
            let complete = |rule: &Value| {
                ["apiGroups", "apiVersions", "operations", "resources"].iter().all(|key| rule[key].is_array())
            };
            if hook["rules"].as_array().is_some_and(|rules| rules.iter().all(complete))
                && !hooks.contains(&hook)
            {
                hooks.push(hook);
            }
        }
    }
    ensure!(hooks.len() > 20, "Kyverno expects fewer webhooks than it did: {}", hooks.len());
    let hooks = hooks.into_iter().enumerate().map(|(at, hook)| {
        with(lead_to(hook, &format!("/see/{at:03}")), json!({"name": format!("w{at}.kyverno.reviews.io")}))
    });
    let pod = json!({
        "metadata": {"name": "p", "labels": {"app": "web"}},
        "spec": {
            "containers": [{"name": "c", "image": "nginx:latest"}], "automountServiceAccountToken": false,
            "serviceAccountName": "default", "priority": 0, "preemptionPolicy": "PreemptLowerPriority",
        },
    });
    let deployment = json!({
        "metadata": {"name": "d"},
        "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
        },
    });
    let deployments = "/apis/apps/v1/namespaces/<ns>/deployments";
    let pods = "/api/v1/namespaces/<ns>/pods";
    let asked = |step: Step| Step { only_who: true, ..step };
    Ok(Scene {
        title: "Kyverno",
        hooks: hooks.collect(),
        before: vec![(
            "/api/v1/namespaces/<ns>/serviceaccounts".into(),
            json!({"metadata": {"name": "default"}}),
        )],
        steps: vec![
            asked(step("POST", pods, pod)),
            asked(step(
                "PATCH",
                &format!("{pods}/p/ephemeralcontainers"),
                json!({"spec": {"ephemeralContainers": [{"name": "debug", "image": "busybox"}]}}),
            )),
            asked(step("PATCH", &format!("{pods}/p/status"), json!({"status": {"phase": "Running"}}))),
            asked(step("POST", deployments, deployment)),
            asked(step("PATCH", &format!("{deployments}/d/scale"), json!({"spec": {"replicas": 2}}))),
            asked(step("DELETE", &format!("{deployments}/d"), Value::Null)),
            asked(step("POST", "/api/v1/namespaces/<ns>/configmaps", json!({"metadata": {"name": "m"}}))),
            asked(step(
                "POST",
                "/api/v1/namespaces/<ns>/services",
                json!({"metadata": {"name": "s"}, "spec": {"clusterIP": "None", "ports": [{"port": 80}]}}),
            )),
            asked(step("POST", "/api/v1/namespaces/<ns>/secrets", json!({"metadata": {"name": "s"}}))),
            asked(step("POST", "/api/v1/namespaces", json!({"metadata": {"name": "kyverno-scene"}}))),
            asked(step(
                "PATCH",
                "/api/v1/namespaces/kyverno-scene",
                json!({"metadata": {"labels": {"a": "b"}}}),
            )),
            asked(step(
                "POST",
                "/apis/rbac.authorization.k8s.io/v1/clusterroles",
                json!({"metadata": {"name": "kyverno-scene"}}),
            )),
            asked(step("DELETE", "/api/v1/namespaces/<ns>/configmaps/m", Value::Null)),
        ],
    })
}

pub fn all() -> Result<Vec<Scene>> {
    Ok(vec![cert_manager()?, kyverno()?])
}
