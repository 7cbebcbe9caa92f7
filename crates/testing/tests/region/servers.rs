//! Servers as processes on etcd members.

use std::{path::Path, process::Command};

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use testing::{
    client::Client,
    etcd::{EtcdCluster, EtcdOptions},
    hub::eventually,
    process::{HubProcess, free_port},
};

use crate::moving::{hanse, secured};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

pub struct Region {
    cluster: EtcdCluster,
    /// What servers need to get in.
    access: Vec<String>,
    prefix: &'static str,
    pub servers: Vec<HubProcess>,
    pub clients: Vec<Client>,
    pub directory: tempfile::TempDir,
}

impl Region {
    pub async fn start() -> Result<Region> {
        let cluster = EtcdCluster::start(EtcdOptions { members: 3, ..EtcdOptions::default() })?;
        Self::start_on(cluster, Vec::new(), "hanse", tempfile::tempdir()?).await
    }

    async fn start_on(
        cluster: EtcdCluster,
        access: Vec<String>,
        prefix: &'static str,
        directory: tempfile::TempDir,
    ) -> Result<Region> {
        let (servers, clients) = (Vec::new(), Vec::new());
        let mut region = Region { cluster, access, prefix, servers, clients, directory };
        for name in ["a", "b"] {
            region.add(name).await?;
        }
        Ok(region)
    }

    async fn add(&mut self, name: &str) -> Result<()> {
        let url = format!("etcd://{}/{}", self.cluster.endpoints().join(","), self.prefix);
        let data = self.directory.path().join(name);
        let flags = [vec!["--store".to_owned(), url], self.access.clone()].concat();
        let server = HubProcess::start_with(&data, free_port()?, &flags)?;
        self.clients.push(server.client().await?);
        self.servers.push(server);
        Ok(())
    }
}

fn map(name: &str, value: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"v": value}})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_servers_are_one_api() -> Result<()> {
    are_one_api(&Region::start().await?).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_servers_are_one_api_on_an_etcd_that_asks_who_they_are() -> Result<()> {
    // Given an etcd that lets in who has a certificate and a password, and to one prefix only
    let (cluster, access, directory) = secured()?;
    let mut region = Region::start_on(cluster, access, "eu", directory).await?;
    are_one_api(&region).await?;
    // When one of them dies, then the other takes over as the same user
    region.servers.remove(0).kill()?;
    let made = region.clients[1].post(MAPS, &map("after", "1")).await?;
    ensure!(made.code == 201, "{}", made.text());
    // And who does not know the password does not start
    let stranger = region.directory.path().join("stranger");
    let wrong = region.directory.path().join("wrong");
    std::fs::write(&wrong, "open barley")?;
    let password = region.access.last_mut();
    *password.ok_or_else(|| anyhow::anyhow!("no password"))? = wrong.display().to_string();
    let url = format!("etcd://{}/eu", region.cluster.endpoints().join(","));
    let serve = ["serve".to_owned(), "--data".to_owned(), stranger.display().to_string()];
    let (started, said) =
        hanse(&[serve.to_vec(), vec!["--store".to_owned(), url], region.access.clone()].concat())?;
    ensure!(!started && said.contains("etcd refuses access"), "{said}");
    Ok(())
}

/// What one takes, the other shows, refuses and finishes.
async fn are_one_api(region: &Region) -> Result<()> {
    let [a, b] = [&region.clients[0], &region.clients[1]];
    for round in 0..20 {
        let (writer, reader) = if round % 2 == 0 { (a, b) } else { (b, a) };
        let name = format!("map-{round}");
        ensure!(writer.post(MAPS, &map(&name, "1")).await?.code == 201);
        let read = reader.get(&format!("{MAPS}/{name}")).await?;
        ensure!(read.code == 200, "what one acknowledged, the other shows: {}", read.text());
        ensure!(reader.post(MAPS, &map(&name, "2")).await?.code == 409);
        let mut changed = read.json();
        changed["data"]["v"] = json!("2");
        ensure!(reader.put(&format!("{MAPS}/{name}"), &changed).await?.code == 200);
        let stale = writer.put(&format!("{MAPS}/{name}"), &changed).await?;
        ensure!(stale.code == 409, "an old version is refused by whichever server: {}", stale.text());
    }
    let lists = [a.get(MAPS).await?.json(), b.get(MAPS).await?.json()];
    ensure!(lists[0] == lists[1]);
    // A workspace that one makes is there at the other at once, with the kinds that one defines there.
    let workspaces = "/clusters/root/apis/hanse.io/v1alpha1/workspaces";
    let team = json!({"apiVersion": "hanse.io/v1alpha1", "kind": "Workspace", "metadata": {"name": "team"}});
    ensure!(a.post(workspaces, &team).await?.code == 201);
    let there = b.get("/clusters/team/api/v1/namespaces/default").await?;
    ensure!(there.code == 200, "{}", there.text());
    // The controllers of the one on duty finish what the other was asked for.
    let space = json!({"metadata": {"name": "going"}});
    ensure!(b.post("/api/v1/namespaces", &space).await?.code == 201);
    ensure!(b.delete("/api/v1/namespaces/going").await?.code == 200);
    eventually("the namespace is gone from both", || async {
        let both = [a.get("/api/v1/namespaces/going").await?, b.get("/api/v1/namespaces/going").await?];
        Ok((both[0].code == 404 && both[1].code == 404).then_some(()))
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_servers_together_exceed_no_quota() -> Result<()> {
    // Given a quota with room for thirty
    let region = Region::start().await?;
    let quotas = "/api/v1/namespaces/default/resourcequotas";
    let count = "count/secrets";
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {count: "30"}}});
    ensure!(region.clients[0].post(quotas, &quota).await?.code == 201);
    let used = async |client: &Client| -> Result<Value> {
        Ok(client.get(&format!("{quotas}/q")).await?.json()["status"]["used"][count].clone())
    };
    eventually("both know the quota", || async {
        let both = [used(&region.clients[0]).await?, used(&region.clients[1]).await?];
        Ok((both == ["0", "0"]).then_some(()))
    })
    .await?;
    // When a hundred come at once, to one server or the other
    let secrets = "/api/v1/namespaces/default/secrets";
    let running: Vec<_> = (0..100)
        .map(|number| {
            let client = region.clients[number % 2].clone();
            let secret = json!({"metadata": {"name": format!("s-{number}")}});
            tokio::spawn(async move { client.post(secrets, &secret).await })
        })
        .collect();
    let mut accepted = 0;
    for task in running {
        let answer = task.await??;
        match answer.code.as_u16() {
            201 => accepted += 1,
            403 => ensure!(answer.text().contains("exceeded quota: q"), "{}", answer.text()),
            _ => anyhow::bail!("{}", answer.text()),
        }
    }
    // Then thirty come in, and both servers say so
    ensure!(accepted == 30, "{accepted}");
    for client in &region.clients {
        ensure!(used(client).await? == "30");
        let list = client.get(secrets).await?.json();
        ensure!(list["items"].as_array().map_or(0, Vec::len) == 30);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_goes_on_at_the_other_server() -> Result<()> {
    let mut region = Region::start().await?;
    let revision = region.clients[0].get(MAPS).await?.json()["metadata"]["resourceVersion"].clone();
    let path = format!("{MAPS}?watch=true&resourceVersion={}", revision.as_str().unwrap_or_default());
    let mut watch = region.clients[0].watch(&path).await?;
    ensure!(region.clients[1].post(MAPS, &map("one", "1")).await?.code == 201);
    let seen = watch.expect().await?;
    ensure!(seen["object"]["metadata"]["name"] == "one", "{seen}");
    let server = region.servers.remove(0);
    server.kill()?;
    let after = seen["object"]["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
    // The one that was killed may have led: the other takes over when its lease has run out.
    let client = &region.clients[1];
    ensure!(
        client.post(MAPS, &map("two", "1")).await?.code == 201,
        "acknowledged after the death of the leader"
    );
    let mut watch = client.watch(&format!("{MAPS}?watch=true&resourceVersion={after}")).await?;
    let seen = watch.expect().await?;
    ensure!(seen["object"]["metadata"]["name"] == "two", "neither a gap nor a doubling: {seen}");
    region.add("c").await?;
    let list = region.clients[2].get(MAPS).await?.json();
    let names: Vec<&str> = list["items"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|it| it["metadata"]["name"].as_str())
        .collect();
    ensure!(names.contains(&"one") && names.contains(&"two"), "{names:?}");
    let mut watch = region.clients[2].watch(&format!("{MAPS}?watch=true&resourceVersion={after}")).await?;
    let seen = watch.expect().await?;
    ensure!(
        seen["object"]["metadata"]["name"] == "two",
        "a server that was just started resumes it, too: {seen}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn letters_are_for_servers_alone() -> Result<()> {
    let region = Region::start().await?;
    let letter = json!({"workspace": "root", "deed": "remove"});
    for path in ["/hanse/letters", "/clusters/default/hanse/letters", "/hanse/letters/"] {
        let answer = region.clients[0].post(path, &letter).await?;
        ensure!(
            matches!(answer.code.as_u16(), 401 | 403 | 404 | 405),
            "{path}: {} {}",
            answer.code,
            answer.text()
        );
    }
    ensure!(region.clients[0].get("/clusters/root/api/v1/namespaces").await?.code == 200);
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    let copied = Command::new("cp").arg("-a").args([from, to]).status()?;
    ensure!(copied.success(), "cp: {copied}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_etcd_restored_under_a_server_is_noticed() -> Result<()> {
    // Given a server, a backup of its etcd, and something that was written after it
    let mut cluster = EtcdCluster::start(EtcdOptions { fsync: true, ..EtcdOptions::default() })?;
    let directory = tempfile::tempdir()?;
    let (data, backup) = (directory.path().join("a"), directory.path().join("backup"));
    let (port, flags) = (free_port()?, ["--store".to_owned(), format!("etcd://{}/eu", cluster.address(0))]);
    let server = HubProcess::start_with(&data, port, &flags)?;
    let client = server.client().await?;
    ensure!(client.post(MAPS, &map("one", "1")).await?.code == 201);
    tokio::task::block_in_place(|| -> Result<()> {
        cluster.kill(0);
        copy(&cluster.data(0), &backup)?;
        cluster.restart(0)
    })?;
    eventually("it takes writes again", || async {
        let code = client.post(MAPS, &map("two", "1")).await?.code;
        Ok((code == 201 || code == 409).then_some(()))
    })
    .await?;
    // When the backup is restored
    tokio::task::block_in_place(|| -> Result<()> {
        cluster.kill(0);
        std::fs::remove_dir_all(cluster.data(0))?;
        copy(&backup, &cluster.data(0))?;
        cluster.restart(0)
    })?;
    // Then the server refuses, and says why
    let what_to_do = "the servers have to be started again";
    eventually("it is noticed", || async {
        let read = client.get(MAPS).await?;
        Ok((read.code == 503 && read.text().contains(what_to_do)).then_some(()))
    })
    .await?;
    let write = client.post(MAPS, &map("three", "1")).await?;
    ensure!(write.code == 503 && write.text().contains(what_to_do), "{} {}", write.code, write.text());
    let ready = client.get("/readyz").await?;
    ensure!(ready.code == 500 && ready.text().contains(what_to_do), "{}", ready.text());
    let any = client.get(&format!("{MAPS}?resourceVersion=0")).await?;
    ensure!(any.code == 200, "who does not ask for the latest is answered: {}", any.text());
    // until it is started again.
    server.stop()?;
    let server = HubProcess::start_with(&data, port, &flags)?;
    let client = server.client().await?;
    ensure!(client.get(&format!("{MAPS}/one")).await?.code == 200);
    ensure!(
        client.get(&format!("{MAPS}/two")).await?.code == 404,
        "it was lost with what was not in the backup"
    );
    ensure!(client.post(MAPS, &map("three", "1")).await?.code == 201);
    server.stop()
}
