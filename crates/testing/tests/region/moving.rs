//! `hanse migrate`: from a directory to etcd, by TLS and as a user with a password, and back.

use std::{path::Path, process::Command};

use anyhow::{Result, ensure};
use serde_json::json;
use testing::{
    etcd::{EtcdCluster, EtcdOptions, EtcdUser},
    process::{HubProcess, binary, free_port},
};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Runs `hanse` with `args`: whether it succeeded, and what it said.
fn hanse(args: &[String]) -> Result<(bool, String)> {
    let output = Command::new(binary()?).args(args).output()?;
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    Ok((output.status.success(), said.concat()))
}

fn migrate(from: &str, to: &str, access: &[String]) -> Result<(bool, String)> {
    let mut args: Vec<String> = ["migrate", "--from", from, "--to", to].map(str::to_owned).to_vec();
    args.extend_from_slice(access);
    hanse(&args)
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn secured() -> Result<(EtcdCluster, Vec<String>, tempfile::TempDir)> {
    let user = EtcdUser { name: "hanse".into(), password: "open sesame".into(), prefix: "/eu/".into() };
    let cluster = EtcdCluster::start(EtcdOptions { tls: true, users: vec![user], ..EtcdOptions::default() })?;
    let directory = tempfile::tempdir()?;
    let password = directory.path().join("password");
    env::Env::real().files.write_atomic(&password, b"open sesame\n", true)?;
    let access = [
        ("--etcd-cafile", text(&cluster.ca_file())),
        ("--etcd-certfile", text(&cluster.cert_file())),
        ("--etcd-keyfile", text(&cluster.key_file())),
        ("--etcd-user", "hanse".to_owned()),
        ("--etcd-password-file", text(&password)),
    ];
    let access = access.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]).collect();
    Ok((cluster, access, directory))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_moves_to_etcd_and_back() -> Result<()> {
    let (cluster, access, directory) = secured()?;
    let url = format!("etcd://{}/eu", cluster.endpoints().join(","));
    let data = directory.path().join("first");
    let port = free_port()?;

    let hub = HubProcess::start_on(&data, port)?;
    let client = hub.client().await?;
    let large = "x".repeat(900_000);
    for (name, value) in [("small", "1"), ("large", large.as_str())] {
        let map = json!({"metadata": {"name": name}, "data": {"v": value}});
        ensure!(client.post(MAPS, &map).await?.code == 201);
    }
    let before = client.get(MAPS).await?.json();
    let (done, said) = migrate(&text(&data), &url, &access)?;
    ensure!(!done && said.contains("in use by another process"), "a running peer is not moved: {said}");
    hub.stop()?;

    let (done, said) = migrate(&text(&data), &url, &access)?;
    ensure!(done, "{said}");
    let (started, said) = hanse(&["serve".into(), "--data".into(), text(&data)])?;
    ensure!(!started && said.contains("was moved to etcd://"), "nobody starts on nothing by mistake: {said}");

    let mut flags = vec!["--store".to_owned(), url.clone()];
    flags.extend_from_slice(&access);
    let hub = HubProcess::start_with(&data, port, &flags)?;
    let client = hub.client().await?;
    let after = client.get(MAPS).await?.json();
    ensure!(after["items"] == before["items"], "objects, their revisions and their UIDs are the same");
    let revision = &before["metadata"]["resourceVersion"];
    ensure!(after["metadata"]["resourceVersion"] == *revision, "a client goes on where it was");
    ensure!(client.post(MAPS, &json!({"metadata": {"name": "in-etcd"}})).await?.code == 201);
    let before = client.get(MAPS).await?.json();
    let back = directory.path().join("second");
    let (done, said) = migrate(&url, &text(&back), &access)?;
    ensure!(!done && said.contains("servers run on"), "servers are not moved under their feet: {said}");
    hub.stop()?;

    let (done, said) = migrate(&url, &text(&back), &access)?;
    ensure!(done, "{said}");
    let (done, said) = migrate(&url, &text(&directory.path().join("third")), &access)?;
    ensure!(!done && said.contains("it was moved to"), "what was moved is closed: {said}");
    let hub = HubProcess::start_on(&back, port)?;
    let after = hub.client().await?.get(MAPS).await?.json();
    ensure!(after["items"] == before["items"], "all is back");
    hub.stop()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_does_not_mix() -> Result<()> {
    let (cluster, access, directory) = secured()?;
    let url = format!("etcd://{}/eu", cluster.endpoints().join(","));
    let (one, two) = (directory.path().join("one"), directory.path().join("two"));
    for data in [&one, &two] {
        HubProcess::start(data)?.stop()?;
    }
    let (done, said) = migrate(&text(&one), &url, &access)?;
    ensure!(done, "{said}");
    let (done, said) = migrate(&text(&two), &url, &access)?;
    ensure!(!done && said.contains("holds something below /eu already"), "{said}");
    let (done, said) = migrate(&text(&two), &text(&one), &access)?;
    ensure!(!done && said.contains("is a data directory, and the other is etcd"), "{said}");
    let mut flags = vec!["--store".to_owned(), url];
    flags.extend_from_slice(&access);
    let (done, said) = hanse(&[vec!["serve".into(), "--data".into(), text(&two)], flags].concat())?;
    ensure!(!done && said.contains("hanse migrate"), "objects are not left behind unseen: {said}");
    Ok(())
}
