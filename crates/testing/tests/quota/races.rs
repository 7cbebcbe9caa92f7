//! Many at once: what is used is never more than what is allowed, and never forgotten.

use std::{path::Path, sync::Arc};

use anyhow::Result;
use env::Env;
use http::StatusCode;
use serde_json::json;
use store::{Store, embedded::EmbeddedStore};
use testing::{
    client::Client,
    hub::{TestHub, eventually, outfitted},
};

use crate::{NAMESPACE, eventually_used, mk, mk_hub, mk_pod, mk_quota, used};

const AT_ONCE: usize = 200;

/// Creates many secrets at once; how many were accepted.
async fn create_many(client: &Client, prefix: &str) -> Result<usize> {
    let running: Vec<_> = (0..AT_ONCE)
        .map(|number| {
            let (client, name) = (client.clone(), format!("{prefix}-{number}"));
            tokio::spawn(async move {
                client.post(&format!("{NAMESPACE}/secrets"), &json!({"metadata": {"name": name}})).await
            })
        })
        .collect();
    let mut accepted = 0;
    for task in running {
        let answer = task.await??;
        match answer.code {
            StatusCode::CREATED => accepted += 1,
            StatusCode::FORBIDDEN => {}
            _ => anyhow::bail!("{}", answer.text()),
        }
    }
    Ok(accepted)
}

async fn count(client: &Client) -> Result<usize> {
    let list = client.get(&format!("{NAMESPACE}/secrets")).await?.json();
    Ok(list["items"].as_array().map_or(0, Vec::len))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_at_once_exactly_as_many_come_in_as_fit() -> Result<()> {
    let (_hub, client) = mk_hub().await?;
    let already = count(&client).await?;
    mk_quota(&client, "narrow", json!({"hard": {"secrets": (already + 10).to_string()}})).await?;
    mk_quota(&client, "wide", json!({"hard": {"count/secrets": "1000"}})).await?;
    assert_eq!(create_many(&client, "a").await?, 10);
    assert_eq!(count(&client).await?, already + 10);
    assert_eq!(used(&client, "narrow").await?, json!({"secrets": (already + 10).to_string()}));
    assert_eq!(used(&client, "wide").await?, json!({"count/secrets": (already + 10).to_string()}));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn creating_and_deleting_at_once_never_uses_more_and_ends_exact() -> Result<()> {
    // Given a quota for twenty, and a watch on it
    let (_hub, client) = mk_hub().await?;
    mk_quota(&client, "q", json!({"hard": {"pods": "20", "requests.cpu": "2"}})).await?;
    let pods = format!("{NAMESPACE}/pods");
    let mut watch = client.watch(&format!("{NAMESPACE}/resourcequotas?watch=1&resourceVersion=0")).await?;
    // When many make and delete pods
    let workers: Vec<_> = (0..8)
        .map(|worker| {
            let (client, pods) = (client.clone(), pods.clone());
            tokio::spawn(async move {
                for round in 0..25 {
                    let name = format!("p-{worker}-{round}");
                    let answer = client.post(&pods, &mk_pod(&name, "100m")).await?;
                    anyhow::ensure!(
                        matches!(answer.code, StatusCode::CREATED | StatusCode::FORBIDDEN),
                        "{}",
                        answer.text()
                    );
                    if round % 3 != 0 {
                        client.delete(&format!("{pods}/{name}")).await?;
                    }
                }
                anyhow::Ok(())
            })
        })
        .collect();
    for worker in workers {
        worker.await??;
    }
    // Then what is said to be used is, in the end, what is there
    let list = client.get(&pods).await?.json();
    let there = list["items"].as_array().map_or(0, Vec::len);
    assert!(there <= 20, "{there} pods");
    let cpu =
        machinery::quantity::Quantity::from_milli(there as i64 * 100, machinery::quantity::Format::DecimalSi);
    eventually_used(&client, "q", json!({"pods": there.to_string(), "requests.cpu": cpu.to_string()}))
        .await?;
    // And never was it more than is allowed
    mk(&client, &format!("{NAMESPACE}/resourcequotas"), json!({"metadata": {"name": "end"}})).await?;
    loop {
        let event = watch.expect().await?;
        if event["object"]["metadata"]["name"] == "end" {
            return Ok(());
        }
        let used = event["object"]["status"]["used"]["pods"].as_str().unwrap_or("0").to_owned();
        assert!(used.parse::<i64>()? <= 20, "{event}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_quota_made_in_the_middle_counts_everything_in_the_end() -> Result<()> {
    let (_hub, client) = mk_hub().await?;
    let creating = tokio::spawn({
        let client = client.clone();
        async move { create_many(&client, "a").await }
    });
    mk_quota(&client, "q", json!({"hard": {"secrets": "100000"}})).await?;
    assert_eq!(creating.await??, AT_ONCE);
    let there = count(&client).await?;
    eventually_used(&client, "q", json!({"secrets": there.to_string()})).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_restart_forgets_no_charge() -> Result<()> {
    // Given a hub on a disk whose quota is full
    let directory = tempfile::tempdir()?;
    let open = || -> Result<Arc<dyn Store>> {
        Ok(Arc::new(EmbeddedStore::open(&Env::real(), Path::new(directory.path()), Default::default())?))
    };
    let hub = TestHub::start_on(open()?, Default::default()).await?;
    let client = hub.admin().await?;
    mk(&client, "/api/v1/namespaces", json!({"metadata": {"name": "shop"}})).await?;
    outfitted(&client, NAMESPACE).await?;
    let already = count(&client).await?;
    mk_quota(&client, "q", json!({"hard": {"secrets": (already + 5).to_string()}})).await?;
    assert_eq!(create_many(&client, "a").await?, 5);
    drop(client);
    hub.stop().await;
    // When it starts again
    let hub = eventually("the store is free", async || match open() {
        Ok(store) => Ok(Some(TestHub::start_on(store, Default::default()).await?)),
        Err(_) => Ok(None),
    })
    .await?;
    let client = hub.admin().await?;
    // Then nothing more comes in, until something goes
    assert_eq!(create_many(&client, "b").await?, 0);
    assert_eq!(used(&client, "q").await?, json!({"secrets": (already + 5).to_string()}));
    let list = client.get(&format!("{NAMESPACE}/secrets")).await?.json();
    let names =
        list["items"].as_array().into_iter().flatten().filter_map(|it| it["metadata"]["name"].as_str());
    let one = names.into_iter().find(|name| name.starts_with("a-")).unwrap_or_default().to_owned();
    client.delete(&format!("{NAMESPACE}/secrets/{one}")).await?;
    eventually_used(&client, "q", json!({"secrets": (already + 4).to_string()})).await?;
    assert_eq!(create_many(&client, "c").await?, 1);
    Ok(())
}
