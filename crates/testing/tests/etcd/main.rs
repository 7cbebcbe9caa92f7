//! The client of etcd against real clusters: what the trait promises, and what it says when members fail.

#![allow(clippy::disallowed_methods)] // Tests run on the real machine.

mod access;
mod limits;
mod members;
mod same;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use env::{Env, Random};
use etcd::{Client, Endpoint, Error, Etcd, Identity, Keys, Op, Options, Range, Tls, Txn, WatchFrom, Watcher};
use testing::etcd::{EtcdCluster, EtcdOptions};

/// Longer than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// The members of a cluster, the first one first.
fn options(cluster: &EtcdCluster) -> Options {
    let endpoints = cluster.endpoints();
    let endpoints = endpoints.iter().map(|endpoint| endpoint.parse::<Endpoint>().expect("an endpoint"));
    Options::new(endpoints.collect())
}

fn with_certificates(cluster: &EtcdCluster) -> Options {
    let identity = Identity { cert_file: cluster.cert_file(), key_file: cluster.key_file() };
    let tls = Tls { ca_file: Some(cluster.ca_file()), identity: Some(identity) };
    Options { tls: Some(tls), ..options(cluster) }
}

fn client(options: Options) -> Arc<dyn Etcd> {
    client_in(first_first(), options)
}

fn client_in(env: Env, options: Options) -> Arc<dyn Etcd> {
    Arc::new(Client::new(env, options).expect("usable options"))
}

/// This machine, where the first member is the first to be asked.
fn first_first() -> Env {
    struct Zero;
    impl Random for Zero {
        fn fill(&self, bytes: &mut [u8]) {
            bytes.fill(0);
        }
    }
    Env { random: Arc::new(Zero), ..Env::real() }
}

fn put(key: &str, value: impl Into<Bytes>) -> Txn {
    let op = Op::Put { key: key.to_owned().into(), value: value.into(), lease: None };
    Txn { then: vec![op], ..Txn::default() }
}

async fn value(etcd: &Arc<dyn Etcd>, key: &str) -> Result<Option<Bytes>, Error> {
    let found = etcd.range(Range::now(Keys::one(key.to_owned()))).await?;
    Ok(found.kvs.into_iter().next().map(|kv| kv.value))
}

/// Tries until it is done; nothing else may stand against it than that nobody is there.
async fn persistently<T>(mut attempt: impl AsyncFnMut() -> Result<T, Error>) -> T {
    let done = tokio::time::timeout(PATIENCE, async {
        loop {
            match attempt().await {
                Ok(done) => return done,
                Err(Error::Unreachable(_) | Error::Uncertain(_)) => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                Err(other) => panic!("{other}"),
            }
        }
    });
    done.await.expect("done in time")
}

/// How the watch ends.
async fn end_of(watch: &mut Box<dyn Watcher>) -> Error {
    let end = async {
        loop {
            if let Err(error) = watch.next().await {
                return error;
            }
        }
    };
    tokio::time::timeout(PATIENCE, end).await.expect("the watch ends")
}

fn watch_of(key: &str, from: i64) -> WatchFrom {
    WatchFrom { keys: Keys::one(key.to_owned()), from }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plain_member_keeps_what_etcd_promises() {
    let cluster = EtcdCluster::start(EtcdOptions::default()).expect("starts");
    etcd::suite::run(client(options(&cluster)), Env::real().clock, "/suite/").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_members_with_tls_keep_what_etcd_promises() {
    let start = EtcdOptions { members: 3, tls: true, ..EtcdOptions::default() };
    let cluster = EtcdCluster::start(start).expect("starts");
    etcd::suite::run(client(with_certificates(&cluster)), Env::real().clock, "/suite/").await;
}
