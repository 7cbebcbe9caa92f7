//! Servers on one simulated etcd cluster, which pass letters to one another directly.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
    time::Duration,
};

use bytes::Bytes;
use env::{BoxFuture, Env, files::sim::SimDisk, network::sim::SimNet};
use etcd::SimEtcd;
use machinery::Revision;
use parking_lot::Mutex;
use store::{
    Change, Commit, Committed, Error, Expect, Key, Store, WorkspaceId, Write,
    etcd::{Courier, EtcdStore, Options, Registration, Undelivered},
    suite::draft,
};

type Post = Arc<Mutex<HashMap<String, EtcdStore>>>;

/// Whoever is in here can be written to.
#[derive(Clone, Default)]
pub struct PostOffice(Post);

struct Carrier(Weak<Mutex<HashMap<String, EtcdStore>>>);

impl Courier for Carrier {
    fn deliver(&self, to: &Registration, letter: Bytes) -> BoxFuture<'static, Result<Bytes, Undelivered>> {
        let post = self.0.upgrade();
        let store = post.and_then(|post| post.lock().get(&to.url).cloned());
        let url = to.url.clone();
        Box::pin(async move {
            match store {
                Some(store) => Ok(store.receive(letter).await),
                None => Err(Undelivered::NotSent(format!("{url} is not reached"))),
            }
        })
    }
}

impl PostOffice {
    /// Letters to `name` are not delivered from now on.
    pub fn close(&self, name: &str) {
        self.0.lock().remove(name);
    }

    pub fn open(&self, name: &str, store: &EtcdStore) {
        self.0.lock().insert(name.to_owned(), store.clone());
    }
}

pub struct World {
    pub env: Env,
    pub etcd: SimEtcd,
    pub post: PostOffice,
}

fn registration(name: &str) -> Registration {
    Registration { url: name.to_owned(), authorities: String::new(), secret: String::new() }
}

impl World {
    pub fn new(seed: u64) -> Self {
        let env = Env::simulated(seed, SimDisk::new(seed), SimNet::default());
        let etcd = SimEtcd::new(&env, seed);
        Self { env, etcd, post: PostOffice::default() }
    }

    pub async fn server(&self, name: &str) -> EtcdStore {
        self.server_on(name, name).await
    }

    /// With the link `link` to etcd.
    pub async fn server_on(&self, name: &str, link: &str) -> EtcdStore {
        self.server_with(name, link, Options::default()).await
    }

    pub async fn server_with(&self, name: &str, link: &str, options: Options) -> EtcdStore {
        let carrier = Arc::new(Carrier(Arc::downgrade(&self.post.0)));
        let mut attempts = 0;
        let store = loop {
            let opened =
                EtcdStore::open(&self.env, self.etcd.client(link), carrier.clone(), options.clone()).await;
            match opened {
                Ok(store) => break store,
                Err(error) => {
                    attempts += 1;
                    assert!(attempts < 50, "{error}");
                    self.env.clock.sleep(Duration::from_millis(500)).await;
                }
            }
        };
        self.post.open(name, &store);
        while store.announce(registration(name)).await.is_err() {
            self.env.clock.sleep(Duration::from_millis(500)).await;
        }
        store
    }
}

pub fn home() -> WorkspaceId {
    WorkspaceId("home".into())
}

pub fn thing(name: &str) -> Key {
    Key::new("", "things", "ns", name)
}

pub fn put(name: &str, value: &str, expect: Expect) -> Write {
    Write { key: thing(name), expect, change: Change::Put { draft: draft(name, value), expires: None } }
}

pub async fn set(store: &EtcdStore, name: &str, value: &str) -> Result<Revision, Error> {
    let committed: Vec<Committed> = store
        .commit(&home(), Commit { guards: vec![], writes: vec![put(name, value, Expect::Anything)] })
        .await?;
    Ok(committed[0].revision)
}

pub fn value(store: &EtcdStore, name: &str) -> Option<String> {
    store.get(&home(), &thing(name)).map(|object| store::suite::value_of(&object))
}

/// Runs on one thread with a clock that jumps.
pub fn run(test: impl AsyncFnOnce()) {
    if let Ok(filter) = std::env::var("HANSE_LOG") {
        let filter = tracing_subscriber::EnvFilter::new(filter);
        let _ = tracing_subscriber::fmt().with_env_filter(filter).with_test_writer().try_init();
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.expect("a runtime").block_on(test());
}
