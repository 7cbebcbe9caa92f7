//! The client of etcd against real clusters: what the trait promises, and what it says when members fail.

#![allow(clippy::disallowed_methods)] // Tests run on the real machine.

use std::sync::Arc;

use env::Env;
use etcd::{Client, Endpoint, Etcd, Options};
use testing::etcd::{EtcdCluster, EtcdOptions};

fn options(cluster: &EtcdCluster) -> Options {
    let endpoints = cluster.endpoints();
    Options::new(
        endpoints.iter().map(|endpoint| endpoint.parse::<Endpoint>().expect("an endpoint")).collect(),
    )
}

fn client(options: Options) -> Arc<dyn Etcd> {
    Arc::new(Client::new(Env::real(), options).expect("usable options"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plain_member_keeps_what_etcd_promises() {
    let cluster = EtcdCluster::start(EtcdOptions::default()).expect("starts");
    etcd::suite::run(client(options(&cluster)), Env::real().clock, "/suite/").await;
}
