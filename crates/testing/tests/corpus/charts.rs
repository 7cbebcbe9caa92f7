//! Charts that others wrote, rendered by helm. They come inside Go modules, so that the module proxy has them and its
//! checksum database vouches for them; nothing of them is kept here.

use std::{fmt::Write, path::PathBuf, process::Command};

use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value, json};

use super::bundle::Bundle;

pub struct Chart {
    pub name: &'static str,
    /// With its version.
    pub module: &'static str,
    /// Where it is in the module.
    pub path: &'static str,
    /// Other values than its own.
    pub values: &'static [&'static str],
    /// Secrets that Jobs among its hooks make, with their keys, which its pods mount: whoever installs it without hooks has to.
    pub secrets: &'static [(&'static str, &'static [&'static str])],
}

const fn chart(name: &'static str, module: &'static str, path: &'static str) -> Chart {
    Chart { name, module, path, values: &[], secrets: &[] }
}

pub const CHARTS: &[Chart] = &[
    Chart {
        values: &["crds.enabled=true"],
        ..chart(
            "chart-cert-manager",
            "github.com/cert-manager/cert-manager@v1.21.2",
            "deploy/charts/cert-manager",
        )
    },
    chart("chart-crossplane", "github.com/crossplane/crossplane@v1.17.0", "cluster/charts/crossplane"),
    chart("chart-descheduler", "sigs.k8s.io/descheduler@v0.36.0", "charts/descheduler"),
    chart("chart-external-dns", "sigs.k8s.io/external-dns@v0.15.1", "charts/external-dns"),
    chart("chart-gatekeeper", "github.com/open-policy-agent/gatekeeper/v3@v3.23.1", "charts/gatekeeper"),
    Chart {
        // Clusters have a class of its usual name already.
        values: &["controller.ingressClassResource.name=chart-ingress-nginx"],
        secrets: &[("chart-ingress-nginx-admission", &["ca", "cert", "key"])],
        ..chart(
            "chart-ingress-nginx",
            "k8s.io/ingress-nginx@v0.0.0-20240708192948-52c50467d67d",
            "charts/ingress-nginx",
        )
    },
    chart("chart-kwok", "sigs.k8s.io/kwok@v0.8.0", "charts/kwok"),
    Chart {
        // An API that nothing answers at.
        values: &["apiService.create=false"],
        ..chart("chart-metrics-server", "sigs.k8s.io/metrics-server@v0.9.0", "charts/metrics-server")
    },
    chart("chart-sealed-secrets", "github.com/bitnami-labs/sealed-secrets@v0.40.0", "helm/sealed-secrets"),
];

/// Manifests as helm renders them, without hooks and webhooks: those are called at Services, and no container runs behind them.
pub fn render(chart: &Chart) -> Result<Bundle> {
    let helm = testing::real::build(&["helm"])?.join("helm");
    let output = Command::new(helm)
        .args(["template", chart.name])
        .arg(module(chart.module)?.join(chart.path))
        .args(["--namespace", chart.name, "--kube-version", "1.36.4", "--include-crds", "--no-hooks"])
        .args(chart.values.iter().flat_map(|value| ["--set", value]))
        .output()
        .context("cannot run helm")?;
    ensure!(output.status.success(), "{}: {}", chart.name, String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout)?;
    let namespace = format!(
        "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: {}\n  labels: {{pod-security.kubernetes.io/enforce: privileged}}\n",
        chart.name
    );
    let mut bundle = Bundle::of(chart.name, &[namespace, text])?;
    bundle.objects.extend(chart.secrets.iter().map(|(name, keys)| {
        let data: Map<String, Value> =
            keys.iter().map(|key| ((*key).to_owned(), json!("made by hand"))).collect();
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data})
    }));
    bundle.objects.retain(|it| {
        !matches!(
            it["kind"].as_str(),
            Some("ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration")
        )
    });
    Ok(bundle)
}

/// The directory of a Go module, downloaded if it is not there.
fn module(name: &str) -> Result<PathBuf> {
    let output = Command::new("go")
        .args(["mod", "download", "-json", name])
        .current_dir(std::env::temp_dir())
        .envs([("GOTOOLCHAIN", "local"), ("GOFLAGS", "-mod=mod"), ("GOWORK", "off")])
        .output()
        .context("cannot run go")?;
    let found: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let directory = found["Dir"].as_str().with_context(|| format!("{name} cannot be had: {found}"))?;
    Ok(directory.into())
}

pub fn table(row: impl Fn(&str) -> String, charts: &[Chart]) -> String {
    let mut text = String::from("| chart | from | simulated | real |\n| --- | --- | --- | --- |\n");
    for Chart { name, module, path, .. } in charts {
        let _ = writeln!(text, "| {name} | `{path}` of {module} | {} |", row(name));
    }
    text
}
