//! What each side of a partition may do, one partition at a time.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use testing::{
    client::{Answer, Client, Lines},
    patience::{Patience, STANDSTILL},
};

use crate::cluster::{CLIENT, Cluster, Subject};

/// Blocks until it is over.
pub fn run() -> Result<()> {
    let mut cluster = Cluster::start(Subject::Etcd)?;
    let net = cluster.net.clone();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .on_thread_start(move || net.move_here(CLIENT).expect("the namespace is there"))
        .build()?;
    let outcome = runtime.block_on(async {
        cluster.prepare().await?;
        for (collection, lonely) in cluster.subject.collections().iter().zip([0, 1]) {
            cut_off(&cluster, collection, lonely)
                .await
                .with_context(|| format!("server {lonely} is cut off"))?;
        }
        Ok(())
    });
    runtime.shutdown_timeout(Duration::from_secs(5));
    outcome
}

/// One server loses etcd; clients reach both, and the servers reach each other.
async fn cut_off(cluster: &Cluster, collection: &str, lonely: usize) -> Result<()> {
    let (here, there) = (cluster.client(lonely).await?, cluster.client(1 - lonely).await?);
    // Given an object, and a watch at the one that will be cut off.
    let first = until_taken(&there, collection, "first").await?;
    let watch = format!("{collection}?watch=true&resourceVersion={}", revision_of(&first)?);
    until_seen(&here, collection, "first").await?;
    let mut lines = here.watch(&watch).await?;

    // When it loses etcd.
    let node = cluster.server_node(lonely);
    for member in 0..cluster.subject.members() {
        cluster.net.cut(node, cluster.member_node(member))?;
        cluster.net.cut(cluster.member_node(member), node)?;
    }

    // Then the other takes writes, once the lease has run out if it was not the leader.
    let second = until_taken(&there, collection, "second").await?;
    let third = json!({"metadata": {"name": "third"}});
    let (second_path, any_path) = (format!("{collection}/second"), format!("{collection}?resourceVersion=0"));
    let (read, list, any, write) = tokio::join!(
        ask(here.get(&second_path)),
        ask(here.get(collection)),
        ask(here.get(&any_path)),
        ask(here.post(collection, &third)),
    );
    // What the lonely one says is not older than what was acknowledged, or it says that it does not know.
    let read = read?;
    ensure!(is_told_or_unavailable(&read), "a most recent read: {} {}", read.code, read.text());
    let list = list?;
    ensure!(is_told_or_unavailable(&list), "a most recent list: {} {}", list.code, list.text());
    ensure!(
        list.code != 200 || has(&list, "second"),
        "a list without what was acknowledged: {}",
        list.text()
    );
    // What does not ask for the most recent is answered.
    let any = any?;
    ensure!(any.code == 200 && has(&any, "first"), "a list as of any time: {} {}", any.code, any.text());
    // A write is taken, and then is there for everybody, or is not acknowledged.
    match write?.code.as_u16() {
        201 => until_seen(&there, collection, "third").await?,
        code => ensure!(code == 503 || code == 504, "a write at a server without etcd: {code}"),
    }

    // And when etcd is back, its watch goes on where it was, with everything.
    cluster.net.heal()?;
    let told = until_told(&mut lines, "second").await?;
    ensure!(revision_of(&told)? == revision_of(&second)?, "the watch was told {told}");
    let last = until_taken(&here, collection, "last").await?;
    until_told(&mut lines, "last").await?;
    ensure!(revision_of(&last)? > revision_of(&second)?, "revisions increase");
    Ok(())
}

fn is_told_or_unavailable(answer: &Answer) -> bool {
    [200, 503, 504].contains(&answer.code.as_u16())
}

async fn ask(asked: impl Future<Output = Result<Answer>>) -> Result<Answer> {
    tokio::time::timeout(STANDSTILL, asked).await.context("no answer at all")?
}

fn revision_of(object: &Value) -> Result<u64> {
    Ok(object["metadata"]["resourceVersion"].as_str().context("a resourceVersion")?.parse()?)
}

fn has(list: &Answer, name: &str) -> bool {
    let list = list.json();
    list["items"].as_array().is_some_and(|items| items.iter().any(|item| item["metadata"]["name"] == name))
}

/// Creates an object, asking again while nobody takes it.
async fn until_taken(client: &Client, collection: &str, name: &str) -> Result<Value> {
    let mut patience = Patience::default();
    loop {
        let made = ask(client.post(collection, &json!({"metadata": {"name": name}}))).await?;
        match made.code.as_u16() {
            201 => return Ok(made.json()),
            // An attempt of ours whose outcome we were not told.
            409 => return Ok(ask(client.get(&format!("{collection}/{name}"))).await?.json()),
            _ => ensure!(patience.lasts(()), "{name} is not taken: {} {}", made.code, made.text()),
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

async fn until_seen(client: &Client, collection: &str, name: &str) -> Result<()> {
    let mut patience = Patience::default();
    let list = loop {
        let list = ask(client.get(collection)).await?;
        // It may say that it does not know, never something old.
        if list.code == 200 || !patience.lasts(()) {
            break list;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    };
    ensure!(has(&list, name), "{name} is acknowledged and not there: {}", list.text());
    Ok(())
}

/// The object of the event that tells of it; no other end of the watch will do.
async fn until_told(lines: &mut Lines, name: &str) -> Result<Value> {
    loop {
        let line = tokio::time::timeout(STANDSTILL, lines.next()).await.context("no event comes")??;
        let line = line.context("the watch ended")?;
        ensure!(line["type"] != "ERROR", "{line}");
        if line["object"]["metadata"]["name"] == name {
            return Ok(line["object"].clone());
        }
    }
}
