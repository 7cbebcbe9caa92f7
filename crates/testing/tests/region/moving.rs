//! `hanse migrate`: from a directory to etcd, by TLS and as a user with a password, and back; also of what was restored
//! from a backup.

use std::{path::Path, process::Command};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use testing::{
    client::Client,
    etcd::{EtcdCluster, EtcdOptions, EtcdUser},
    process::{HubProcess, binary, free_port},
};

pub const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Runs `hanse` with `args`: whether it succeeded, and what it said.
pub fn hanse(args: &[String]) -> Result<(bool, String)> {
    let output = Command::new(binary()?).args(args).output()?;
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    Ok((output.status.success(), said.concat()))
}

pub fn migrate(from: &str, to: &str, access: &[String]) -> Result<(bool, String)> {
    let mut args: Vec<String> = ["migrate", "--from", from, "--to", to].map(str::to_owned).to_vec();
    args.extend_from_slice(access);
    hanse(&args)
}

pub fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

pub fn secured() -> Result<(EtcdCluster, Vec<String>, tempfile::TempDir)> {
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

/// The config maps of each workspace, as they are listed.
pub async fn maps(client: &Client, workspaces: &[&str]) -> Result<Vec<Value>> {
    let mut lists = Vec::new();
    for workspace in workspaces {
        let list = client.get(&format!("/clusters/{workspace}{MAPS}")).await?;
        ensure!(list.code == 200, "{workspace}: {}", list.text());
        lists.push(list.json());
    }
    Ok(lists)
}

fn revision(object: &Value) -> Result<u64> {
    let text = object.pointer("/metadata/resourceVersion").and_then(Value::as_str);
    Ok(text.context("it has no revision")?.parse()?)
}

/// The way out when etcd is lost, and the way to grow from what is only in a backup any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_backed_up_and_restored_moves_to_etcd() -> Result<()> {
    const WORKSPACES: [&str; 3] = ["root", "default", "team"];
    // Given a backup of a peer with several workspaces, and a write after it
    let (cluster, access, directory) = secured()?;
    let data = directory.path().join("first");
    let hub = HubProcess::start(&data)?;
    let client = hub.client().await?;
    let team = json!({"metadata": {"name": "team"}});
    ensure!(client.post("/clusters/root/apis/hanse.io/v1alpha1/workspaces", &team).await?.code == 201);
    let large = "x".repeat(900_000);
    for workspace in WORKSPACES {
        for (name, value) in [("small", "1"), ("large", large.as_str()), ("changed", "1"), ("gone", "1")] {
            let map = json!({"metadata": {"name": name}, "data": {"v": value}});
            ensure!(client.post(&format!("/clusters/{workspace}{MAPS}"), &map).await?.code == 201);
        }
        let path = format!("/clusters/{workspace}{MAPS}");
        let changed = json!({"metadata": {"name": "changed"}, "data": {"v": "2"}});
        ensure!(client.put(&format!("{path}/changed"), &changed).await?.code == 200);
        ensure!(client.delete(&format!("{path}/gone")).await?.code == 200);
    }
    let before = maps(&client, &WORKSPACES).await?;
    let file = directory.path().join("backup");
    let backup = ["backup", "--kubeconfig", &text(&hub.kubeconfig()), &text(&file)].map(str::to_owned);
    let (done, said) = hanse(&backup)?;
    ensure!(done, "{said}");
    let later = client.post(MAPS, &json!({"metadata": {"name": "later"}})).await?;
    ensure!(later.code == 201);
    let seen = revision(&later.json())?;
    hub.stop()?;

    // When it is restored into a directory, and that is moved to etcd
    let restored = directory.path().join("restored");
    let restore = ["restore", "--data", &text(&restored), &text(&file)].map(str::to_owned);
    let (done, said) = hanse(&restore)?;
    ensure!(done, "{said}");
    // Certificates are not in a backup; whoever has some is to keep them.
    let copied = Command::new("cp").arg("-r").arg(data.join("pki")).arg(&restored).status()?;
    ensure!(copied.success(), "pki/ cannot be copied");
    let url = format!("etcd://{}/eu", cluster.endpoints().join(","));
    let (done, said) = migrate(&text(&restored), &url, &access)?;
    ensure!(done, "{said}");

    // Then a server there has every object of the backup as it was, and nothing else
    let mut flags = vec!["--store".to_owned(), url];
    flags.extend_from_slice(&access);
    let hub = HubProcess::start_with(&restored, free_port()?, &flags)?;
    let client = hub.client().await?;
    let after = maps(&client, &WORKSPACES).await?;
    for ((workspace, before), after) in WORKSPACES.iter().zip(&before).zip(&after) {
        ensure!(
            after["items"] == before["items"],
            "{workspace}: objects, their revisions and their UIDs are the same"
        );
        ensure!(revision(after)? > revision(before)?, "{workspace} begins a new epoch");
    }
    // And whoever saw what came after the backup begins again, above all that ever was.
    let behind = client.get(&format!("{MAPS}?watch=true&resourceVersion={seen}")).await?.json();
    ensure!(behind["object"]["code"] == 410, "{behind}");
    let next = client.post(MAPS, &json!({"metadata": {"name": "next"}})).await?;
    ensure!(next.code == 201 && revision(&next.json())? > seen, "{}", next.text());
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
