//! A whole peer on a virtual machine: clock, disk and network are simulated, the code is the same.

#![allow(clippy::disallowed_methods)] // Tests run on the real machine.

use std::{net::SocketAddr, path::Path, sync::Arc, time::Duration};

use anyhow::Result;
use env::{Env, Network, files::sim::SimDisk, network::sim::SimNet};
use http::StatusCode;
use serde_json::{Value, json};
use server::{
    Options,
    peer::{Peer, PeerOptions},
    pki::EnvTime,
};
use store::embedded::EmbeddedStore;
use testing::client::{self, Client};

const SECRETS: &str = "/api/v1/namespaces/default/secrets";

struct Machine {
    env: Env,
    net: SimNet,
    disk: SimDisk,
}

impl Machine {
    fn mk(seed: u64) -> Machine {
        let (net, disk) = (SimNet::new("eu"), SimDisk::new(seed));
        Machine { env: Env::simulated(seed, disk.clone(), net.clone()), net, disk }
    }

    /// The same machine, started again on what its disk holds.
    fn reboot(self, seed: u64) -> Machine {
        let disk = self.disk.copy(seed);
        Machine { env: Env::simulated(seed, disk.clone(), self.net.clone()), net: self.net, disk }
    }

    async fn start(&self, port: u16) -> Result<(Peer, Arc<EmbeddedStore>)> {
        let store = Arc::new(EmbeddedStore::open(&self.env, Path::new("/data/store"), Default::default())?);
        let options = PeerOptions {
            pki: "/data/pki".into(),
            listen: SocketAddr::new(self.net.ip(), port),
            advertise: None,
            server: Options::default(),
            login: Default::default(),
            sharing: None,
        };
        Ok((Peer::start(&self.env, store.clone(), options).await?, store))
    }

    /// A client on another host of the same network.
    async fn client(&self, peer: &Peer) -> Result<Client> {
        let credential = peer.authority.client("admin", &["system:masters"])?;
        let identity = (credential.certificate_pem.as_str(), credential.key_pem.as_str());
        let time = Arc::new(EnvTime(self.env.clock.clone()));
        let config = client::tls_at(time, peer.authority.certificate_pem(), Some(identity), &["h2"])?;
        let stream = self.net.host("laptop").dial(peer.address).await?;
        Client::over(stream, &peer.address.to_string(), config).await
    }
}

fn mk_secret(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": {"a": "Yg=="}})
}

#[tokio::test(start_paused = true)]
async fn a_peer_survives_the_crash_of_its_machine() -> Result<()> {
    // Given a peer on a virtual machine with a few acknowledged objects
    let machine = Machine::mk(7);
    let (peer, _store) = machine.start(6443).await?;
    let client = machine.client(&peer).await?;
    let mut written = Vec::new();
    for number in 0..20 {
        let answer = client.post(SECRETS, &mk_secret(&format!("m-{number:02}"))).await?;
        assert_eq!(answer.code, StatusCode::CREATED, "{}", answer.text());
        written.push(answer.json());
    }
    // When the machine loses power and comes back
    machine.disk.crash();
    let machine = machine.reboot(8);
    let (peer, _store) = machine.start(6444).await?;
    let client = machine.client(&peer).await?;
    // Then every acknowledged object is there as it was
    let list = client.get(SECRETS).await?.json();
    let there: Vec<Value> = list["items"].as_array().cloned().unwrap_or_default();
    assert_eq!(there.len(), written.len());
    for (object, was) in there.iter().zip(&written) {
        assert_eq!(object["metadata"], was["metadata"]);
        assert_eq!(object["data"], was["data"]);
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn time_is_virtual() -> Result<()> {
    // Given an event, which lives for an hour, and a watch with a bookmark every minute
    let machine = Machine::mk(9);
    let (peer, _store) = machine.start(6443).await?;
    let client = machine.client(&peer).await?;
    let event = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"},
        "involvedObject": {"kind": "ConfigMap", "name": "x", "namespace": "default"},
    });
    let created = client.post("/api/v1/namespaces/default/events", &event).await?;
    assert_eq!(created.code, StatusCode::CREATED, "{}", created.text());
    let mut watch = client
        .watch("/api/v1/namespaces/default/events?watch=1&allowWatchBookmarks=true&timeoutSeconds=7200")
        .await?;
    assert_eq!(watch.expect_virtual().await?["type"], "ADDED");
    // When nobody does anything, an hour passes at once
    let mut bookmarks = 0;
    let gone = loop {
        let next = watch.expect_virtual().await?;
        match next["type"].as_str() {
            Some("BOOKMARK") => bookmarks += 1,
            _ => break next,
        }
    };
    // Then the event has expired, and the watch had a bookmark every minute until then
    assert_eq!(gone["type"], "DELETED");
    assert!((58..=61).contains(&bookmarks), "{bookmarks} bookmarks");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_partition_holds_a_watch_back_and_loses_nothing() -> Result<()> {
    // Given a client that watches from another host
    let machine = Machine::mk(11);
    let (peer, _store) = machine.start(6443).await?;
    let far = machine.client(&peer).await?;
    let mut watch = far.watch(&format!("{SECRETS}?watch=1&resourceVersion=0")).await?;
    // When the network between them is cut while objects are made, for less than it takes to give up
    machine.net.partition("eu", "laptop");
    let hub = peer.hub.clone();
    for number in 0..5 {
        let request = http::Request::post(SECRETS)
            .body(http_body_util::Full::new(mk_secret(&format!("p-{number}")).to_string().into()))?;
        let admin = server::user::User {
            name: "admin".into(),
            groups: vec!["system:masters".into()],
            ..Default::default()
        };
        let caller = server::login::caller::Caller::Known(Arc::new(admin));
        let from = server::service::Connection { caller: Some(Arc::new(caller)), ..Default::default() };
        let answer = server::service::handle(hub.clone(), Arc::new(from), request).await;
        assert_eq!(answer.status(), StatusCode::CREATED);
    }
    tokio::time::advance(Duration::from_secs(5)).await;
    machine.net.heal("eu", "laptop");
    // Then every event arrives, once and in order
    for number in 0..5 {
        let event = watch.expect_virtual().await?;
        assert_eq!(event["object"]["metadata"]["name"], format!("p-{number}"), "{event}");
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_paged_list_that_pauses_too_long_goes_on_with_newer_objects() -> Result<()> {
    // Given the first page of a list
    let machine = Machine::mk(10);
    let (peer, _store) = machine.start(6443).await?;
    let client = machine.client(&peer).await?;
    for name in ["a", "b", "c"] {
        client.post(SECRETS, &mk_secret(name)).await?;
    }
    let first = client.get(&format!("{SECRETS}?limit=1")).await?.json();
    let token = first["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
    let go_on = |token: &str| format!("{SECRETS}?limit=1&continue={token}");
    // When something changes, and five minutes have not passed yet
    client.post(SECRETS, &mk_secret("d")).await?;
    machine.env.clock.sleep(Duration::from_secs(299)).await;
    // Then the list goes on as it began
    let second = client.get(&go_on(&token)).await?.json();
    assert_eq!(second["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
    // When more time has passed
    machine.env.clock.sleep(Duration::from_secs(160)).await;
    // Then the token has expired, and the answer has another one, for the rest as it is now
    let expired = client.get(&go_on(&token)).await?;
    assert_eq!(expired.code, StatusCode::GONE);
    let token = expired.json()["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
    let newer = client.get(&go_on(&token)).await?.json();
    assert_eq!(newer["items"][0]["metadata"]["name"], "b");
    assert_eq!(newer["metadata"]["remainingItemCount"], 2);
    assert_ne!(newer["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
    Ok(())
}

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Lets so much time pass at once, and then enough for those who look now and then.
async fn pass(machine: &Machine, time: Duration) {
    tokio::time::advance(time).await;
    machine.env.clock.sleep(Duration::from_secs(60)).await;
}

#[tokio::test(start_paused = true)]
async fn the_hub_renews_the_certificate_it_serves_with() -> Result<()> {
    // Given a peer with a certificate of its own, which is good for a year
    let machine = Machine::mk(12);
    let (peer, _store) = machine.start(6443).await?;
    pass(&machine, Duration::ZERO).await;
    let not_after = || peer.hub.metrics.login.serving_not_after.get();
    let first = not_after();
    assert_eq!(first, 1_893_456_000 + 365 * 24 * 3600);
    // When more than half of its time is over, but not two thirds, it stays
    pass(&machine, 200 * DAY).await;
    assert_eq!(not_after(), first);
    // When two thirds are over there is a new one
    pass(&machine, 50 * DAY).await;
    assert!(not_after() > first + 240 * 24 * 3600, "{} {first}", not_after());
    // Then clients get in when the first would be good no longer
    machine.env.clock.sleep(Duration::from_secs(1)).await;
    tokio::time::advance(130 * DAY).await;
    assert!(machine.env.clock.now().as_second() > first);
    let client = machine.client(&peer).await?;
    assert_eq!(client.get("/version").await?.code, StatusCode::OK);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn old_requests_for_certificates_go_in_every_workspace() -> Result<()> {
    // Given a request that nobody decides about, in two workspaces
    let machine = Machine::mk(13);
    let (peer, _store) = machine.start(6443).await?;
    let client = machine.client(&peer).await?;
    let workspace = json!({"metadata": {"name": "team"}});
    client.post("/clusters/root/apis/hanse.io/v1alpha1/workspaces", &workspace).await?;
    let request =
        rcgen::CertificateParams::default().serialize_request(&rcgen::KeyPair::generate()?)?.pem()?;
    let request = json!({
        "metadata": {"name": "r"},
        "spec": {
            "request": base64::Engine::encode(&base64::prelude::BASE64_STANDARD, request),
            "signerName": "example.com/nobody", "usages": ["client auth"],
        },
    });
    let paths = ["/clusters/default", "/clusters/team"]
        .map(|it| format!("{it}/apis/certificates.k8s.io/v1/certificatesigningrequests"));
    for path in &paths {
        let made = client.post(path, &request).await?;
        assert_eq!(made.code, StatusCode::CREATED, "{}", made.text());
    }
    // When less than a day has passed, they stay; after that they go
    for (hours, expected) in [(22, StatusCode::OK), (4, StatusCode::NOT_FOUND)] {
        pass(&machine, Duration::from_secs(hours * 3600)).await;
        machine.env.clock.sleep(Duration::from_secs(10)).await;
        let client = machine.client(&peer).await?;
        for path in &paths {
            assert_eq!(client.get(&format!("{path}/r")).await?.code, expected, "{path}");
        }
    }
    Ok(())
}
