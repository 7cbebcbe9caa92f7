//! Events that are sent to somebody else, who may be slow, broken or gone.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result};
use http::StatusCode;
use serde_json::Value;
use server::{
    Options,
    audit::{AuditOptions, Mode, WebhookOptions},
};
use store::memory::MemoryStore;
use tempfile::TempDir;
use testing::{
    client::Client,
    hub::{TestHub, eventually},
};

use super::{
    CONFIG_MAPS, mk_config_map,
    receiver::{Manner, Receiver},
};

struct Sent {
    hub: TestHub,
    receiver: Receiver,
    _directory: TempDir,
}

/// Small portions, sent at once.
fn quick(options: &mut WebhookOptions) {
    options.batch_size = 2;
    options.batch_wait = Duration::from_millis(10);
    options.initial_backoff = Duration::from_millis(10);
    options.throttle = None;
}

async fn start(manner: Manner, change: impl FnOnce(&mut WebhookOptions)) -> Result<Sent> {
    let directory = tempfile::tempdir()?;
    let receiver = Receiver::start(manner).await?;
    let config = directory.path().join("webhook.kubeconfig");
    receiver.write_config(&config)?;
    let mut webhook = WebhookOptions::to(config);
    quick(&mut webhook);
    change(&mut webhook);
    let audit = AuditOptions { webhook: Some(webhook), ..AuditOptions::default() };
    let options = Options { audit, ..Options::default() };
    let hub = TestHub::start_on(Arc::new(MemoryStore::new()), options).await?;
    Ok(Sent { hub, receiver, _directory: directory })
}

async fn write(client: &Client, from: usize, to: usize) -> Result<()> {
    for at in from..to {
        let made = client.post(CONFIG_MAPS, &mk_config_map(&format!("c-{at}"))).await?;
        assert_eq!(made.code, StatusCode::CREATED);
    }
    Ok(())
}

/// The names of what `count` events are about.
async fn names(receiver: &mut Receiver, count: usize) -> Result<Vec<String>> {
    let mut names = Vec::new();
    while names.len() < count {
        let next = tokio::time::timeout(Duration::from_secs(20), receiver.lists.recv());
        let (authorization, list) = next.await.context("no list came")?.context("the receiver is gone")?;
        assert_eq!(authorization, "Bearer the-token");
        assert_eq!((&list["kind"], &list["apiVersion"]), (&"EventList".into(), &"audit.k8s.io/v1".into()));
        let items = list["items"].as_array().context("no items")?;
        assert!((1..=2).contains(&items.len()), "{}", items.len());
        names.extend(items.iter().map(|it| it["objectRef"]["name"].as_str().unwrap_or_default().to_owned()));
    }
    names.sort();
    Ok(names)
}

async fn lost(client: &Client) -> Result<u64> {
    let metrics = client.get("/metrics").await?.text();
    let start = "apiserver_audit_error_total{plugin=\"webhook\"} ";
    let count = metrics.lines().find_map(|line| line.strip_prefix(start)?.parse().ok());
    Ok(count.unwrap_or_default())
}

#[tokio::test]
async fn events_come_in_lists_each_once_whatever_the_manner_of_the_answer() -> Result<()> {
    for manner in [Manner::Well, Manner::Rambles, Manner::FailsFirst(3)] {
        let mut sent = start(manner, |_| {}).await?;
        let admin = sent.hub.admin().await?;
        write(&admin, 0, 5).await?;
        let expected: Vec<String> = (0..5).map(|at| format!("c-{at}")).collect();
        assert_eq!(names(&mut sent.receiver, 5).await?, expected, "{manner:?}");
        assert_eq!(lost(&admin).await?, 0, "{manner:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_receiver_that_hangs_holds_nobody_up_and_what_is_dropped_is_counted() -> Result<()> {
    let sent = start(Manner::Hangs, |options| options.buffer = 8).await?;
    let admin = sent.hub.admin().await?;
    write(&admin, 0, 100).await?;
    // Two in each of sixteen lists under way, two in hand, eight that wait: the others are lost.
    eventually("events are dropped", async || Ok((lost(&admin).await? >= 50).then_some(()))).await
}

#[tokio::test]
async fn events_that_nobody_takes_are_counted() -> Result<()> {
    let sent = start(Manner::AlwaysFails, |_| {}).await?;
    let admin = sent.hub.admin().await?;
    write(&admin, 0, 3).await?;
    eventually("three are lost", async || Ok((lost(&admin).await? == 3).then_some(()))).await
}

#[tokio::test]
async fn who_waits_for_its_events_is_answered_after_them() -> Result<()> {
    let mut sent = start(Manner::FailsFirst(2), |options| options.mode = Mode::Blocking).await?;
    let admin = sent.hub.admin().await?;
    write(&admin, 0, 1).await?;
    let list: Option<Value> = sent.receiver.lists.try_recv().ok().map(|(_, list)| list);
    assert_eq!(list.context("no list came before the answer")?["items"][0]["objectRef"]["name"], "c-0");
    Ok(())
}

#[tokio::test]
async fn the_strict_mode_refuses_what_it_cannot_record() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let policy = directory.path().join("policy.yaml");
    std::fs::write(&policy, super::policy(&serde_json::json!([{"level": "Metadata", "verbs": ["create"]}])))?;
    let receiver = Receiver::start(Manner::AlwaysFails).await?;
    let config = directory.path().join("webhook.kubeconfig");
    receiver.write_config(&config)?;
    let mut webhook = WebhookOptions { mode: Mode::BlockingStrict, ..WebhookOptions::to(config) };
    quick(&mut webhook);
    let audit = AuditOptions { policy_file: Some(policy), webhook: Some(webhook), ..AuditOptions::default() };
    let options = Options { audit, ..Options::default() };
    let hub = TestHub::start_on(Arc::new(MemoryStore::new()), options).await?;
    let admin = hub.admin().await?;
    let refused = admin.post(CONFIG_MAPS, &mk_config_map("c")).await?;
    assert_eq!(refused.code, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(refused.text().contains("failed to store audit event"), "{}", refused.text());
    assert_eq!(admin.get(&format!("{CONFIG_MAPS}/c")).await?.code, StatusCode::NOT_FOUND);
    assert!(admin.get("/metrics").await?.text().contains("apiserver_audit_requests_rejected_total 1"));
    Ok(())
}

#[tokio::test]
async fn events_that_wait_are_sent_before_the_end() -> Result<()> {
    let mut sent = start(Manner::Well, |options| {
        options.batch_size = 100;
        options.batch_wait = Duration::from_secs(3600);
    })
    .await?;
    let admin = sent.hub.admin().await?;
    write(&admin, 0, 2).await?;
    drop(admin);
    sent.hub.stop().await;
    assert_eq!(names(&mut sent.receiver, 2).await?, ["c-0", "c-1"]);
    Ok(())
}

#[tokio::test]
async fn a_config_that_leads_nowhere_is_refused_at_the_start() -> Result<()> {
    let directory = tempfile::tempdir()?;
    for (text, expected) in [
        ("{}", "not just one cluster"),
        ("current-context: x", "no context \"x\""),
        ("clusters: [{name: c, cluster: {server: 'ftp://x'}}]", "want https"),
        (
            "clusters: [{name: c, cluster: {server: 'https://x', insecure-skip-tls-verify: true}}]",
            "insecure-skip-tls-verify",
        ),
    ] {
        let config = directory.path().join("webhook.kubeconfig");
        std::fs::write(&config, text)?;
        let webhook = Some(WebhookOptions::to(config));
        let audit = AuditOptions { webhook, ..AuditOptions::default() };
        let options = Options { audit, ..Options::default() };
        let refused = TestHub::start_on(Arc::new(MemoryStore::new()), options).await;
        let why = refused.err().context("it started")?.to_string();
        assert!(why.contains(expected), "{why}");
    }
    Ok(())
}
