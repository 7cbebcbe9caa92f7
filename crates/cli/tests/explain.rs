//! `hanse explain` without a hub: files in, decisions and reasons out.

#![allow(clippy::disallowed_methods)] // Tests run on the real machine.

use std::{
    io::Write,
    process::{Command, Output, Stdio},
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

const CLUSTERS: &str = r#"
apiVersion: hanse.io/v1alpha1
kind: Cluster
metadata: {name: eu-1, labels: {topology.kubernetes.io/region: eu}}
spec: {network: Flat}
---
apiVersion: hanse.io/v1alpha1
kind: Cluster
metadata: {name: us-1, labels: {topology.kubernetes.io/region: us}}
spec: {network: Flat, taints: [{key: gpu, effect: NoSchedule}]}
---
apiVersion: hanse.io/v1alpha1
kind: Cluster
metadata: {name: ap-1, labels: {topology.kubernetes.io/region: ap}}
spec: {network: Flat}
"#;

const WEB: &str = r#"
apiVersion: v1
kind: List
items:
- apiVersion: apps/v1
  kind: Deployment
  metadata: {name: web}
  spec:
    replicas: 5
    selector: {matchLabels: {app: web}}
    template:
      metadata: {labels: {app: web}}
      spec: {containers: [{name: web, image: "web:1", envFrom: [{configMapRef: {name: settings}}]}]}
- {apiVersion: v1, kind: ConfigMap, metadata: {name: settings}}
- {apiVersion: v1, kind: Service, metadata: {name: web}, spec: {selector: {app: web}, ports: [{port: 80}]}}
- apiVersion: networking.k8s.io/v1
  kind: Ingress
  metadata: {name: web}
  spec: {defaultBackend: {service: {name: web, port: {number: 80}}}}
"#;

const DIVIDED: &str = r#"
---
apiVersion: hanse.io/v1alpha1
kind: Placement
metadata: {name: everywhere}
spec: {select: [{kinds: [Deployment]}]}
"#;

fn explain(clusters: &str, objects: &str, more: &[&str]) -> Result<Output> {
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("clusters.yaml");
    std::fs::write(&file, clusters)?;
    let mut child = Command::new(env!("CARGO_BIN_EXE_hanse"))
        .args(["explain", "-f", "-", "--clusters"])
        .arg(&file)
        .args(more)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    child.stdin.take().context("stdin is piped")?.write_all(objects.as_bytes())?;
    Ok(child.wait_with_output()?)
}

fn decided(clusters: &str, objects: &str) -> Result<Vec<(String, Value)>> {
    let output = explain(clusters, objects, &["--json"])?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let told: Value = serde_json::from_slice(&output.stdout)?;
    let told = told.as_array().context("a list")?.iter();
    Ok(told
        .map(|it| {
            (it["explanation"]["object"].as_str().unwrap_or_default().to_owned(), it["clusters"].clone())
        })
        .collect())
}

#[test]
fn by_default_an_application_is_on_one_cluster_with_all_it_needs() -> Result<()> {
    let told = decided(CLUSTERS, WEB)?;
    let (web, at) = &told[0];
    assert_eq!(web, "Deployment default/web");
    let home = at.as_object().context("clusters")?.keys().next().context("one cluster")?.clone();
    assert_eq!(*at, serde_json::json!({home.as_str(): 5}));
    for (object, at) in &told[1..] {
        assert_eq!(
            at.as_object().map(|at| at.keys().cloned().collect()),
            Some(vec![home.clone()]),
            "{object}"
        );
    }
    Ok(())
}

#[test]
fn a_placement_divides_it_and_what_it_needs_follows() -> Result<()> {
    let told = decided(CLUSTERS, &format!("{WEB}{DIVIDED}"))?;
    // us-1 has a taint that nobody tolerates.
    assert_eq!(told[0].1.as_object().map(serde_json::Map::len), Some(2));
    let sum: u64 = told[0].1.as_object().into_iter().flatten().filter_map(|(_, it)| it.as_u64()).sum();
    assert_eq!(sum, 5);
    for (object, at) in &told[1..] {
        let names: Vec<&String> = at.as_object().into_iter().flatten().map(|(name, _)| name).collect();
        assert_eq!(names, ["ap-1", "eu-1"], "{object}");
    }
    Ok(())
}

#[test]
fn the_text_says_what_stands_in_the_way() -> Result<()> {
    let output = explain(CLUSTERS, &format!("{WEB}{DIVIDED}"), &[])?;
    let text = String::from_utf8(output.stdout)?;
    for expected in [
        "Deployment default/web: 5 replicas in 2 clusters",
        "Decided by a Placement of the workspace, everywhere.",
        "us-1: untolerated taint gpu:NoSchedule (would change it: a toleration of it)",
    ] {
        assert!(text.contains(expected), "{expected:?} is not in:\n{text}");
    }
    Ok(())
}

#[test]
fn what_the_hub_would_refuse_is_refused_here() -> Result<()> {
    let wrong =
        DIVIDED.replace("kinds: [Deployment]}]", "kinds: [Deployment]}], strategy: Single, divide: {}");
    for (clusters, objects, why) in [
        (CLUSTERS, format!("{WEB}{wrong}"), "only strategy Divide divides"),
        (CLUSTERS, DIVIDED.to_owned(), "nothing to explain"),
        (WEB, WEB.to_owned(), "is no Cluster"),
        (CLUSTERS, "kind: Deployment".to_owned(), "needs apiVersion and kind"),
        (CLUSTERS, "{".to_owned(), "not YAML"),
        (CLUSTERS, WEB.replace("replicas: 5", "replicas: many"), "replicas"),
    ] {
        let output = explain(clusters, &objects, &[])?;
        let said = String::from_utf8(output.stderr)?;
        assert!(!output.status.success() && said.contains(why), "{why:?} is not in:\n{said}");
    }
    Ok(())
}
