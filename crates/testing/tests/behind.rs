//! A server that may be behind others on the same store: what it waits for has limits, and what it answers is not of a
//! workspace that is gone. The store plays the others.

#![allow(clippy::disallowed_methods)] // Tests run on the real machine.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::Result;
use env::BoxFuture;
use parking_lot::Mutex;
use serde_json::json;
use server::{Options, level::STRANGERS};
use store::{Error, WorkspaceId, memory::MemoryStore};
use testing::{
    hub::{TestHub, eventually},
    interposed::{Between, Interposed},
};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const WORKSPACES: &str = "/clusters/root/apis/hanse.io/v1alpha1/workspaces";

type Meanwhile = BoxFuture<'static, ()>;

#[derive(Default)]
struct Others {
    out_of_reach: AtomicBool,
    waiting: AtomicUsize,
    /// What they do while somebody waits for the workspace.
    meanwhile: Mutex<Option<(WorkspaceId, Meanwhile)>>,
}

impl Between for Others {
    fn level(
        &self,
        _: &MemoryStore,
        workspace: &WorkspaceId,
    ) -> Option<BoxFuture<'static, Result<(), Error>>> {
        if self.out_of_reach.load(Ordering::SeqCst) {
            self.waiting.fetch_add(1, Ordering::SeqCst);
            return Some(Box::pin(std::future::pending()));
        }
        let (_, meanwhile) = self.meanwhile.lock().take_if(|(of, _)| of == workspace)?;
        Some(Box::pin(async move {
            meanwhile.await;
            Ok(())
        }))
    }

    fn is_well(&self, _: &MemoryStore) -> Result<(), String> {
        match self.out_of_reach.load(Ordering::SeqCst) {
            true => Err("out of reach".into()),
            false => Ok(()),
        }
    }
}

#[tokio::test]
async fn readiness_tells_that_the_store_cannot_serve_and_liveness_does_not() -> Result<()> {
    let store = Interposed::new(Others::default());
    let hub = TestHub::start_on(store.clone(), Options::default()).await?;
    let client = hub.admin().await?;
    assert_eq!(client.get("/readyz").await?.code, 200);
    store.between.out_of_reach.store(true, Ordering::SeqCst);
    for path in ["/readyz", "/readyz?verbose"] {
        let answer = client.get(path).await?;
        assert_eq!(answer.code, 500, "{path}");
        assert!(answer.text().contains("[-]store failed: out of reach"), "{}", answer.text());
    }
    for (path, code) in
        [("/readyz/store", 500), ("/readyz/ping", 200), ("/readyz?exclude=store", 200), ("/livez", 200)]
    {
        assert_eq!(client.get(path).await?.code, code, "{path}");
    }
    store.between.out_of_reach.store(false, Ordering::SeqCst);
    assert_eq!(client.get("/readyz").await?.code, 200);
    Ok(())
}

#[tokio::test]
async fn a_wait_for_others_counts_as_part_of_the_request() -> Result<()> {
    let store = Interposed::new(Others::default());
    let options = Options { request_timeout: Duration::from_secs(2), ..Options::default() };
    let hub = TestHub::start_on(store.clone(), options).await?;
    let client = hub.admin().await?;
    store.between.out_of_reach.store(true, Ordering::SeqCst);
    for path in [format!("{MAPS}?timeout=100ms"), MAPS.to_owned(), format!("{MAPS}?watch=true")] {
        let answer = client.get(&path).await?;
        assert_eq!(answer.code, 504, "{path}: {}", answer.text());
    }
    let map = json!({"metadata": {"name": "m"}});
    assert_eq!(client.post(&format!("{MAPS}?timeout=100ms"), &map).await?.code, 504);
    let old = client.get(&format!("{MAPS}?resourceVersion=0")).await?;
    assert_eq!(old.code, 200, "what may be old waits for nobody: {}", old.text());
    Ok(())
}

#[tokio::test]
async fn a_workspace_that_others_delete_or_make_anew_meanwhile_is_not_answered_for() -> Result<()> {
    let store = Interposed::new(Others::default());
    let hub = TestHub::start_on(store.clone(), Options::default()).await?;
    let client = hub.admin().await?;
    let team = json!({"metadata": {"name": "team"}});
    let maps = format!("/clusters/team{MAPS}");
    for made_anew in [true, false] {
        client.post(WORKSPACES, &team).await?;
        assert_eq!(client.post(&maps, &json!({"metadata": {"name": "old"}})).await?.code, 201);
        let id = hub.peer.hub.space("team").map_err(|status| anyhow::anyhow!("{status}"))?.id().clone();
        let other = hub.admin().await?;
        let again = team.clone();
        let meanwhile: Meanwhile = Box::pin(async move {
            let path = format!("{WORKSPACES}/team");
            other.delete(&path).await.expect("it answers");
            let gone = || async { Ok((other.get(&path).await?.code == 404).then_some(())) };
            eventually("the workspace is gone", gone).await.expect("it goes");
            if made_anew {
                other.post(WORKSPACES, &again).await.expect("it answers");
            }
        });
        *store.between.meanwhile.lock() = Some((id, meanwhile));
        let answer = client.get(&format!("{maps}/old")).await?;
        assert_eq!(answer.code, 404, "{}", answer.text());
        let about = if made_anew { "configmaps" } else { "workspaces" };
        assert!(answer.text().contains(about), "{}", answer.text());
    }
    Ok(())
}

#[tokio::test]
async fn only_so_many_wait_before_they_are_known() -> Result<()> {
    let store = Interposed::new(Others::default());
    let options = Options { request_timeout: Duration::from_secs(20), ..Options::default() };
    let hub = TestHub::start_on(store.clone(), options).await?;
    let client = Arc::new(hub.admin().await?);
    store.between.out_of_reach.store(true, Ordering::SeqCst);
    let path = format!("/clusters/unknown{MAPS}");
    for _ in 0..STRANGERS {
        let (client, path) = (client.clone(), path.clone());
        tokio::spawn(async move { client.get(&path).await });
    }
    eventually("all wait", || async {
        Ok((store.between.waiting.load(Ordering::SeqCst) >= STRANGERS).then_some(()))
    })
    .await?;
    let answer = client.get(&path).await?;
    assert_eq!(answer.code, 404, "answered at once: {}", answer.text());
    Ok(())
}
