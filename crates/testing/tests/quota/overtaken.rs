//! A count that takes long, and is overtaken.

use std::{
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
};

use anyhow::Result;
use env::BoxFuture;
use machinery::Draft;
use serde_json::{Value, json};
use store::{
    Change, Collection, Commit, Committed, Error, Expect, Key, Store, WorkspaceId, Write, memory::MemoryStore,
};
use testing::{
    hub::{TestHub, eventually, outfitted},
    interposed::{Between, Interposed},
};
use tokio::sync::watch;

use crate::{NAMESPACE, eventually_used, mk, mk_quota, used};

/// A store that holds counts back: commits that change a quota alone wait until they may pass.
struct Gate {
    open: watch::Receiver<bool>,
    waiting: watch::Sender<usize>,
    /// Done once, just before secrets are listed.
    before_list: Arc<Mutex<Option<Commit>>>,
}

impl Gate {
    fn is_count(commit: &Commit) -> bool {
        let is_count = |one: &Write| {
            one.key.collection == Collection::new("", "resourcequotas") && matches!(one.expect, Expect::At(_))
        };
        matches!(&commit.writes[..], [one] if is_count(one))
    }
}

impl Between for Gate {
    fn commit(
        &self,
        store: &MemoryStore,
        workspace: &WorkspaceId,
        commit: Commit,
    ) -> BoxFuture<'static, Result<Vec<Committed>, Error>> {
        let (is_count, mut open) = (Gate::is_count(&commit), self.open.clone());
        let passed = store.commit(workspace, commit);
        let waiting = self.waiting.clone();
        Box::pin(async move {
            if is_count && !*open.borrow() {
                waiting.send_modify(|count| *count += 1);
                let _ = open.wait_for(|open| *open).await;
            }
            passed.await
        })
    }

    fn before_list(&self, store: &MemoryStore, workspace: &WorkspaceId, collection: &Collection) {
        let is_secrets = *collection == Collection::new("", "secrets");
        if let Some(commit) = is_secrets.then(|| self.before_list.lock().ok()?.take()).flatten() {
            // The store in memory never waits: once polled, it is done.
            let mut commit = store.commit(workspace, commit);
            let done = commit.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert!(matches!(done, Poll::Ready(Ok(_))), "{done:?}");
        }
    }
}

#[tokio::test]
async fn a_count_that_was_overtaken_by_a_charge_is_made_again() -> Result<()> {
    // Given a quota with two secrets charged
    let (gate, open) = watch::channel(true);
    let (waiting, mut held) = watch::channel(0);
    let store = Interposed::new(Gate { open, waiting, before_list: Arc::default() });
    let hub = TestHub::start_on(store, Default::default()).await?;
    let client = hub.admin().await?;
    mk(&client, "/api/v1/namespaces", json!({"metadata": {"name": "shop"}})).await?;
    mk_quota(&client, "q", json!({"hard": {"secrets": "10"}})).await?;
    let secrets = format!("{NAMESPACE}/secrets");
    for name in ["a", "b"] {
        mk(&client, &secrets, json!({"metadata": {"name": name}})).await?;
    }
    let start = used(&client, "q").await?;
    assert_eq!(start, json!({"secrets": "2"}));
    let mut changes = client.watch(&format!("{NAMESPACE}/resourcequotas?watch=1&resourceVersion=0")).await?;
    changes.expect().await?;
    // When a count after a deletion has seen one secret, and before it is written down a third one is charged
    gate.send(false)?;
    client.delete(&format!("{secrets}/a")).await?;
    held.wait_for(|count| *count > 0).await?;
    mk(&client, &secrets, json!({"metadata": {"name": "c"}})).await?;
    assert_eq!(used(&client, "q").await?, json!({"secrets": "3"}), "nothing was given back yet");
    gate.send(true)?;
    // Then what the count saw is never written, and the next count is right
    eventually_used(&client, "q", json!({"secrets": "2"})).await?;
    let seen = |event: Value| event["object"]["status"]["used"]["secrets"].clone();
    assert_eq!(seen(changes.expect().await?), "3");
    assert_eq!(seen(changes.expect().await?), "2");
    Ok(())
}

#[tokio::test]
async fn what_is_made_while_a_quota_is_counted_for_the_first_time_is_not_missed() -> Result<()> {
    // Given a quota whose first count has seen no secret, and is not written down yet
    let (gate, open) = watch::channel(false);
    let (waiting, mut held) = watch::channel(0);
    let store = Interposed::new(Gate { open, waiting, before_list: Arc::default() });
    let hub = TestHub::start_on(store, Default::default()).await?;
    let client = hub.admin().await?;
    mk(&client, "/api/v1/namespaces", json!({"metadata": {"name": "shop"}})).await?;
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"secrets": "10"}}});
    mk(&client, &format!("{NAMESPACE}/resourcequotas"), quota).await?;
    held.wait_for(|count| *count > 0).await?;
    // When a secret is made meanwhile, which is not charged, and whoever counts has heard of it: what comes after it is done
    mk(&client, &format!("{NAMESPACE}/secrets"), json!({"metadata": {"name": "a"}})).await?;
    mk(&client, "/api/v1/namespaces", json!({"metadata": {"name": "later"}})).await?;
    outfitted(&client, "/api/v1/namespaces/later").await?;
    gate.send(true)?;
    // Then it counts
    eventually_used(&client, "q", json!({"secrets": "1"})).await
}

#[tokio::test]
async fn nobody_waits_for_a_count() -> Result<()> {
    // Given a count that does not come to an end
    let (gate, open) = watch::channel(true);
    let (waiting, mut held) = watch::channel(0);
    let store = Interposed::new(Gate { open, waiting, before_list: Arc::default() });
    let hub = TestHub::start_on(store, Default::default()).await?;
    let client = hub.admin().await?;
    mk(&client, "/api/v1/namespaces", json!({"metadata": {"name": "shop"}})).await?;
    mk_quota(&client, "q", json!({"hard": {"secrets": "100"}})).await?;
    let secrets = format!("{NAMESPACE}/secrets");
    mk(&client, &secrets, json!({"metadata": {"name": "first"}})).await?;
    gate.send(false)?;
    client.delete(&format!("{secrets}/first")).await?;
    held.wait_for(|count| *count > 0).await?;
    // When objects are made meanwhile, then they are charged as ever
    for number in 0..20 {
        mk(&client, &secrets, json!({"metadata": {"name": format!("s-{number}")}})).await?;
    }
    gate.send(true)?;
    eventually("the count is right", async || {
        Ok((used(&client, "q").await? == json!({"secrets": "20"})).then_some(()))
    })
    .await
}

#[tokio::test]
async fn a_count_that_agrees_by_chance_is_not_believed() -> Result<()> {
    // Given a quota that says two secrets, and so many are there
    let (_gate, open) = watch::channel(true);
    let before_list = Arc::default();
    let (waiting, _) = watch::channel(0);
    let store = Interposed::new(Gate { open, waiting, before_list: Arc::clone(&before_list) });
    let hub = TestHub::start_on(store.clone(), Default::default()).await?;
    let client = hub.admin().await?;
    mk(&client, "/api/v1/namespaces", json!({"metadata": {"name": "shop"}})).await?;
    mk_quota(&client, "q", json!({"hard": {"secrets": "10"}})).await?;
    let secrets = format!("{NAMESPACE}/secrets");
    for name in ["a", "b"] {
        mk(&client, &secrets, json!({"metadata": {"name": name}})).await?;
    }
    // When between the count's look at the quota and its look at the secrets another one is charged
    let workspace = WorkspaceId(api::DEFAULT.into());
    let read = |resource: &str, name: &str| {
        let key = Key::new("", resource, "shop", name);
        let object = store.store.get(&workspace, &key).expect("it is there");
        (key, object.revision, object.tree().expect("it can be read"))
    };
    let (quota, revision, mut charged) = read("resourcequotas", "q");
    charged["status"]["used"]["secrets"] = json!("3");
    let (_, _, mut secret) = read("secrets", "b");
    secret["metadata"]["name"] = json!("c");
    let put = |key, expect, tree| -> Result<Write> {
        let change = Change::Put { draft: Draft::encode(tree)?, expires: None };
        Ok(Write { key, expect, change })
    };
    let writes = vec![
        put(Key::new("", "secrets", "shop", "c"), Expect::Absent, &secret)?,
        put(quota, Expect::At(revision), &charged)?,
    ];
    *before_list.lock().expect("nobody panicked") = Some(Commit { guards: Vec::new(), writes });
    client.delete(&format!("{secrets}/a")).await?;
    // Then the count, two as the quota said before, is made again against what the quota says now
    eventually_used(&client, "q", json!({"secrets": "2"})).await?;
    let there = client.get(&secrets).await?.json()["items"].as_array().map_or(0, Vec::len);
    assert_eq!(there, 2);
    Ok(())
}
