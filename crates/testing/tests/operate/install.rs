//! What is in `packaging/` works: the unit is one that systemd takes, and Kubernetes takes the manifests, strictly and under
//! the level of pod security that they ask for.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use testing::{
    process::{HubProcess, binary},
    real::{Options, RealCluster},
};

use super::*;

fn packaging() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging")
}

/// Says past the capture of output that something was not tried; where that must not be, it fails.
fn skip(what: &str) -> Result<()> {
    ensure!(std::env::var_os("HANSE_NO_SKIPS").is_none(), "{what}");
    let _ = std::fs::write("/dev/stderr", format!("SKIPPED {what}\n"));
    Ok(())
}

#[test]
fn systemd_takes_the_units_and_finds_little_to_object_to() -> Result<()> {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        return skip("systemd_takes_the_units…: there is no systemd-analyze");
    }
    let directory = tempfile::tempdir()?;
    let mut units = Vec::new();
    for name in ["hanse.service", "hanse.socket"] {
        let unit = std::fs::read_to_string(packaging().join("systemd").join(name))?;
        // Where the program is installed is where it is on this machine.
        let unit = unit.replace("/usr/bin/hanse", text(&binary()?));
        let path = directory.path().join(name);
        std::fs::write(&path, unit)?;
        units.push(path);
    }
    let verified = Command::new("systemd-analyze").arg("verify").args(&units).output()?;
    assert!(verified.status.success(), "{}", said(&verified));
    assert_eq!(said(&verified).trim(), "", "not even a warning");
    let security = Command::new("systemd-analyze")
        .args(["security", "--offline=true", "--threshold=20", "--no-pager"])
        .arg(&units[0])
        .output()?;
    assert!(security.status.success(), "{}", said(&security));
    Ok(())
}

/// The flags in the unit, the image and the manifests are flags of this program.
#[test]
fn flags_that_are_used_exist() -> Result<()> {
    let help = done(&["serve", "--help"])?;
    let files = ["systemd/hanse.service", "Containerfile", "kubernetes/local.yaml", "kubernetes/etcd.yaml"];
    for file in files {
        let text = std::fs::read_to_string(packaging().join(file))?;
        let lines = text.lines().filter(|line| {
            let line = line.trim_start();
            line.starts_with("ExecStart") || line.starts_with("CMD") || line.starts_with("- --")
        });
        let mut seen = 0;
        for word in lines.flat_map(|line| line.split([' ', '"', ','])) {
            if let Some(flag) = word.strip_prefix("--") {
                let flag = flag.split('=').next().unwrap_or_default();
                assert!(help.contains(&format!("--{flag} ")), "{file}: --{flag}");
                seen += 1;
            }
        }
        assert!(seen >= 2, "{file}");
    }
    Ok(())
}

fn apply(kubectl: &Path, kubeconfig: &Path, manifest: &str) -> Result<String> {
    let output = Command::new(kubectl)
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .args(["apply", "--validate=strict", "-f"])
        .arg(packaging().join("kubernetes").join(manifest))
        .output()
        .context("kubectl runs")?;
    ensure!(output.status.success(), "{manifest}: {}", said(&output));
    Ok(said(&output))
}

/// Pods as the templates make them, tried without being made: a workload that breaks a level is only warned about.
fn try_pod(kubectl: &Path, kubeconfig: &Path, workload: &str) -> Result<()> {
    let run = |args: &[&str]| -> Result<Output> {
        let mut command = Command::new(kubectl);
        command.arg("--kubeconfig").arg(kubeconfig).args(args);
        command.output().context("kubectl runs")
    };
    let shown = run(&["-n", "hanse", "get", workload, "-o", "json"])?;
    let workload: Value = serde_json::from_slice(&shown.stdout)?;
    let mut pod = workload["spec"]["template"].clone();
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    pod["metadata"]["name"] = json!("tried");
    // What the controller of a stateful set adds.
    for claim in workload["spec"]["volumeClaimTemplates"].as_array().into_iter().flatten() {
        let name = &claim["metadata"]["name"];
        let volume = json!({"name": name, "persistentVolumeClaim": {"claimName": name}});
        pod["spec"]["volumes"].as_array_mut().context("volumes")?.push(volume);
    }
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("pod.json");
    std::fs::write(&path, pod.to_string())?;
    let tried = run(&["-n", "hanse", "create", "--dry-run=server", "-f", text(&path)])?;
    ensure!(tried.status.success() && !said(&tried).contains("Warning"), "{}", said(&tried));
    Ok(())
}

fn takes_the_manifests(kubectl: &Path, kubeconfig: &Path) -> Result<()> {
    for (manifest, workload) in [("local.yaml", "statefulset/hanse"), ("etcd.yaml", "deployment/hanse")] {
        let told = apply(kubectl, kubeconfig, manifest)?;
        assert!(!told.contains("Warning"), "{manifest}: {told}");
        try_pod(kubectl, kubeconfig, workload).with_context(|| manifest.to_owned())?;
        let again = apply(kubectl, kubeconfig, manifest)?;
        assert!(!again.contains("created"), "{manifest} again: {again}");
    }
    Ok(())
}

#[test]
fn kubernetes_and_hanse_take_the_manifests() -> Result<()> {
    let cluster = RealCluster::start(Options { fsync: false, ..Options::default() })?;
    let kubectl = cluster.kubectl();
    takes_the_manifests(&kubectl, &cluster.kubeconfig).context("kube-apiserver")?;
    let (_directory, data) = mk_place()?;
    let hub = HubProcess::start(&data)?;
    takes_the_manifests(&kubectl, &hub.kubeconfig()).context("Hanse")
}
