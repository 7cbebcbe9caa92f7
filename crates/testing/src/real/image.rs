//! Container images without a registry: busybox of this machine, in an archive that `ctr images import` reads.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use aws_lc_rs::digest::{SHA256, digest};
use serde_json::json;

/// Linked statically, so that it needs nothing else in its image.
const BUSYBOX: &str = "/bin/busybox";
/// What scripts in tests use.
const APPLETS: [&str; 14] = [
    "sh", "cat", "echo", "sleep", "date", "hostname", "httpd", "id", "kill", "ls", "mkdir", "ps", "true",
    "wget",
];

/// Writes an archive with the image `name`, which runs `entrypoint`, and answers where it is.
pub fn write(directory: &Path, name: &str, entrypoint: &[&str]) -> Result<PathBuf> {
    let work = directory.join("image");
    let root = work.join("root");
    fs::create_dir_all(root.join("bin"))?;
    for made in ["tmp", "etc", "proc", "sys", "dev"] {
        fs::create_dir_all(root.join(made))?;
    }
    fs::copy(BUSYBOX, root.join("bin/busybox")).with_context(|| format!("there is no {BUSYBOX}"))?;
    for applet in APPLETS {
        symlink("busybox", root.join("bin").join(applet))?;
    }
    let layer = work.join("layer.tar");
    tar(&root, &layer, &["."])?;
    let hash = digest(&SHA256, &fs::read(&layer)?);
    let hash: String = hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let config = json!({
        "architecture": architecture, "os": "linux",
        "config": {"Entrypoint": entrypoint, "Env": ["PATH=/bin"], "WorkingDir": "/"},
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{hash}")]},
    });
    let manifest = json!([{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]);
    fs::write(work.join("config.json"), config.to_string())?;
    fs::write(work.join("manifest.json"), manifest.to_string())?;
    let archive = directory.join("image.tar");
    tar(&work, &archive, &["manifest.json", "config.json", "layer.tar"])?;
    fs::remove_dir_all(work)?;
    Ok(archive)
}

fn tar(from: &Path, to: &Path, what: &[&str]) -> Result<()> {
    let made = Command::new("tar")
        .args(["--owner=0", "--group=0", "--numeric-owner", "-C"])
        .arg(from)
        .arg("-cf")
        .arg(to)
        .args(what)
        .status()
        .context("cannot run tar")?;
    ensure!(made.success(), "tar ended with {made}");
    Ok(())
}
