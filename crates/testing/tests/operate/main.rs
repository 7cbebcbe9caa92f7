//! What operators do to a peer, with the real program: back it up, compact it, look into it, restart it, install it.

#![allow(clippy::disallowed_methods)] // Tests run on the real machine.

mod absence;
mod access;
mod backup;
mod install;
mod look;
mod older;
mod restart;

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

use anyhow::{Context, Result};
use http::StatusCode;
use serde_json::{Value, json};
use tempfile::TempDir;
use testing::{
    client::Client,
    process::{HubProcess, binary},
};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A directory for a hub, and a place beside it.
fn mk_place() -> Result<(TempDir, PathBuf)> {
    let directory = tempfile::tempdir()?;
    let data = directory.path().join("data");
    std::fs::create_dir(&data)?;
    Ok((directory, data))
}

/// Runs `hanse` to its end, with nothing of this machine's user in its environment.
fn hanse(args: &[&str]) -> Result<Output> {
    let mut command = Command::new(binary()?);
    command.args(args).env_remove("KUBECONFIG").current_dir("/");
    command.output().context("hanse runs")
}

/// Runs `hanse` and expects it to succeed; what it said.
fn done(args: &[&str]) -> Result<String> {
    let output = hanse(args)?;
    let said = said(&output);
    anyhow::ensure!(output.status.success(), "{args:?}: {said}");
    Ok(said)
}

/// Runs `hanse` and expects it to fail; what it said.
fn refused(args: &[&str]) -> Result<String> {
    let output = hanse(args)?;
    let said = said(&output);
    anyhow::ensure!(!output.status.success(), "{args:?} succeeded: {said}");
    Ok(said)
}

fn said(output: &Output) -> String {
    let text = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    String::from_utf8_lossy(&text).into_owned()
}

fn text(path: &Path) -> &str {
    path.to_str().expect("paths of tests are UTF-8")
}

async fn create(client: &Client, path: &str, object: Value) -> Result<Value> {
    let made = client.post(path, &object).await?;
    assert_eq!(made.code, StatusCode::CREATED, "{path}: {}", made.text());
    Ok(made.json())
}

async fn mk_config_map(client: &Client, name: &str) -> Result<Value> {
    create(client, CONFIG_MAPS, json!({"metadata": {"name": name}, "data": {"of": name}})).await
}

fn revision_of(object: &Value) -> u64 {
    let text = object["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    text.parse().expect("a resourceVersion is a number")
}

/// A kubeconfig of the hub's admin, with the server at another address and perhaps a token for the certificate.
fn kubeconfig_at(hub: &HubProcess, place: &Path, url: &str, token: Option<&str>) -> Result<PathBuf> {
    let text = std::fs::read_to_string(hub.kubeconfig())?;
    let mut config: Value = serde_saphyr::from_str(&text).context("a kubeconfig")?;
    for cluster in config["clusters"].as_array_mut().context("clusters")? {
        let server = cluster["cluster"]["server"].as_str().unwrap_or_default().replace(&hub.url, url);
        cluster["cluster"]["server"] = json!(server);
    }
    if let Some(token) = token {
        config["users"][0]["user"] = json!({"token": token});
    }
    let path = place.join(format!("kubeconfig-{}", url.rsplit(':').next().unwrap_or_default()));
    std::fs::write(&path, config.to_string())?;
    Ok(path)
}
