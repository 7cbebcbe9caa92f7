//! The contract of a store on a real etcd member, where this server leads and where another one does.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use anyhow::Result;
use bytes::Bytes;
use env::{BoxFuture, Env};
use etcd::{Client, Etcd};
use parking_lot::Mutex;
use store::{
    Store, WorkspaceId,
    etcd::{Courier, EtcdStore, Options, Registration, Undelivered},
    suite,
};
use testing::etcd::{EtcdCluster, EtcdOptions};

/// Passes letters to servers of the same process.
#[derive(Clone, Default)]
struct Hand(Arc<Mutex<HashMap<String, EtcdStore>>>);

impl Courier for Hand {
    fn deliver(&self, to: &Registration, letter: Bytes) -> BoxFuture<'static, Result<Bytes, Undelivered>> {
        let store = self.0.lock().get(&to.url).cloned();
        Box::pin(async move {
            match store {
                Some(store) => Ok(store.receive(letter).await),
                None => Err(Undelivered::NotSent("nobody is there".to_owned())),
            }
        })
    }
}

async fn server(cluster: &EtcdCluster, prefix: &str, name: &str, hand: &Hand) -> EtcdStore {
    let env = Env::real();
    let endpoints =
        cluster.endpoints().iter().map(|endpoint| endpoint.parse().expect("an endpoint")).collect();
    let client = Client::new(env.clone(), etcd::Options::new(endpoints)).expect("a client");
    let options = Options { prefix: prefix.to_owned(), ..Options::default() };
    let store = EtcdStore::open(&env, Arc::new(client) as Arc<dyn Etcd>, Arc::new(hand.clone()), options);
    let store = store.await.expect("the store opens");
    let url = format!("{prefix}/{name}");
    hand.0.lock().insert(url.clone(), store.clone());
    let registration = Registration { url, authorities: String::new(), secret: String::new() };
    store.announce(registration).await.expect("is announced");
    store
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_alone_keeps_the_contract() -> Result<()> {
    let cluster = EtcdCluster::start(EtcdOptions::default())?;
    let (count, hand) = (AtomicUsize::new(0), Hand::default());
    suite::run(async |_| {
        let prefix = format!("alone-{}", count.fetch_add(1, Ordering::Relaxed));
        Arc::new(server(&cluster, &prefix, "a", &hand).await) as Arc<dyn Store>
    })
    .await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_leads_nothing_keeps_the_contract() -> Result<()> {
    let cluster = EtcdCluster::start(EtcdOptions::default())?;
    let (count, hand) = (AtomicUsize::new(0), Hand::default());
    suite::run(async |_| {
        let prefix = format!("second-{}", count.fetch_add(1, Ordering::Relaxed));
        let leader = server(&cluster, &prefix, "leader", &hand).await;
        for workspace in ["home", "other", "new"] {
            let workspace = WorkspaceId(workspace.into());
            leader.compact(&workspace, leader.head(&workspace)).await.expect("nothing to forget");
        }
        Arc::new(server(&cluster, &prefix, "other", &hand).await) as Arc<dyn Store>
    })
    .await;
    Ok(())
}
