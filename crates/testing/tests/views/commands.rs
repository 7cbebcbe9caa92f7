//! Commands in members' pods: streams in both directions.

use std::{sync::Arc, time::Duration};

use anyhow::Result;
use bytes::Bytes;
use env::{BoxFuture, Env};
use http::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use machinery::status::Status;
use serde_json::{Map, json};
use server::{
    body::Body,
    streams::{Ask, Pods},
};
use sync::client::{Access, Identity};
use testing::hub::{TestHub, eventually};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::watch,
};

use crate::{Cluster, PODS, World, create, member::upgraded};

/// Pods that say what they are told, until they are told nothing more.
struct Echo(watch::Sender<bool>);

impl Pods for Echo {
    fn open(&self, ask: Ask) -> BoxFuture<'static, Result<Response<Body>, Status>> {
        let ended = self.0.clone();
        Box::pin(async move {
            let upgrade = ask.upgrade.ok_or_else(|| Status::bad_request("Upgrade request required"))?;
            tokio::spawn(async move {
                let (mut reads, mut writes) = tokio::io::split(TokioIo::new(upgrade.await.unwrap()));
                // The other side may be gone before all is said.
                let _ = tokio::io::copy(&mut reads, &mut writes).await;
                ended.send_replace(true);
            });
            let mut answer = Response::new(Body::Whole(None));
            *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
            for (name, value) in
                [("connection", "upgrade"), ("upgrade", "websocket"), ("sec-websocket-protocol", "v5")]
            {
                answer.headers_mut().insert(name, http::HeaderValue::from_static(value));
            }
            Ok(answer)
        })
    }
}

fn ask(path: &str) -> Result<Request<Bytes>> {
    let request = Request::builder().uri(path).header("connection", "Upgrade").header("upgrade", "websocket");
    Ok(request.header("sec-websocket-protocol", "v5").body(Bytes::new())?)
}

async fn world() -> Result<(World, Cluster, watch::Receiver<bool>)> {
    let world = World::start().await?;
    let _first = Cluster::joined(&world, "eu-1", &["web"]).await?;
    let us = Cluster::joined(&world, "us-1", &["web"]).await?;
    let (ends, ended) = watch::channel(false);
    assert!(us.hub.peer.hub.pods.set(Arc::new(Echo(ends))).is_ok());
    Ok((world, us, ended))
}

#[tokio::test]
async fn what_is_said_reaches_the_pod_and_comes_back() -> Result<()> {
    let (world, us, mut ended) = world().await?;
    for below in ["exec", "attach", "portforward"] {
        let path = format!("{PODS}/web-us-1/{below}?command=sh&command=-c&stdin=true");
        let mut answer = upgraded(&world.hub, ask(&path)?).await?;
        assert_eq!(answer.status(), StatusCode::SWITCHING_PROTOCOLS);
        assert_eq!(answer.headers()["sec-websocket-protocol"], "v5");
        let (_, asked, _) = us.last_asked();
        assert_eq!(asked, format!("{PODS}/web/{below}?command=sh&command=-c&stdin=true"));
        let mut stream = TokioIo::new(hyper::upgrade::on(&mut answer).await?);
        for words in ["hello", "again"] {
            stream.write_all(words.as_bytes()).await?;
            let mut heard = [0; 5];
            stream.read_exact(&mut heard).await?;
            assert_eq!(heard, words.as_bytes());
        }
        // When the client is gone, so is the stream at the member.
        drop(stream);
        tokio::time::timeout(Duration::from_secs(20), ended.wait_for(|it| *it)).await??;
    }
    Ok(())
}

#[tokio::test]
async fn who_may_only_look_may_do_nothing() -> Result<()> {
    let (world, us, _) = world().await?;
    let rules = json!({
        "metadata": {"name": "looks"},
        "rules": [{"apiGroups": [""], "resources": ["pods", "pods/exec"], "verbs": ["get"]}],
    });
    create(&world.client, "/apis/rbac.authorization.k8s.io/v1/clusterroles", &rules).await?;
    let binding = json!({
        "metadata": {"name": "looks"}, "subjects": [{"kind": "User", "name": "guest"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "looks"},
    });
    create(&world.client, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding).await?;
    let guest = world.hub.user("guest", &[]).await?;
    assert_eq!(guest.get(&format!("{PODS}/web-us-1")).await?.code, StatusCode::OK);
    assert_eq!(guest.get(&format!("{PODS}/web-us-1/exec?command=sh")).await?.code, StatusCode::FORBIDDEN);
    let admin = world.client.get(&format!("{PODS}/web-us-1/exec?command=sh")).await?;
    assert_eq!(admin.code, StatusCode::BAD_REQUEST, "it is no upgrade: {}", admin.text());
    assert_eq!(us.was_asked(), 0);
    Ok(())
}

/// A member that runs no pods refuses, and says so in its own words.
#[tokio::test]
async fn the_members_refusal_is_the_clients() -> Result<()> {
    let world = World::start().await?;
    let _eu = Cluster::joined(&world, "eu-1", &["web"]).await?;
    let refused = upgraded(&world.hub as &TestHub, ask(&format!("{PODS}/web/exec?command=sh"))?).await?;
    assert_eq!(refused.status(), StatusCode::BAD_REQUEST);
    Ok(())
}

/// A platform admin's way to a hub.
fn access(hub: &TestHub) -> Result<Access> {
    let credential = hub.peer.authority.client("admin", &["system:masters"])?;
    Ok(Access {
        server: hub.peer.url(),
        authority: hub.peer.authority.certificate_pem().as_bytes().to_vec(),
        server_name: None,
        identity: Identity::Certificate {
            certificate: credential.certificate_pem.into_bytes(),
            key: credential.key_pem.into_bytes(),
        },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_leaves_http_behind_as_well() -> Result<()> {
    let world = World::start().await?;
    sync::start(&world.hub.peer.hub, sync::Options::default());
    let member = Cluster::start("eu-1").await?;
    create(&member.client, PODS, &crate::mk_pod("web")).await?;
    let (ends, mut ended) = watch::channel(false);
    assert!(member.hub.peer.hub.pods.set(Arc::new(Echo(ends))).is_ok());
    let there = access(&member.hub)?;
    let client = |access: &Access| sync::client::Client::new(Env::real(), access, Duration::from_secs(20));
    let (hub, admin) = (client(&access(&world.hub)?)?, client(&there)?);
    let request =
        sync::join::Request { name: "eu-1", labels: Map::new(), hub: &hub, member: &admin, access: &there };
    sync::join::join(&request).await?;
    let path = format!("{PODS}/web");
    eventually("the pod shows", || async {
        Ok((world.client.get(&path).await?.code == StatusCode::OK).then_some(()))
    })
    .await?;
    let mut answer = upgraded(&world.hub, ask(&format!("{path}/exec?command=sh"))?).await?;
    assert_eq!(answer.status(), StatusCode::SWITCHING_PROTOCOLS);
    let mut stream = TokioIo::new(hyper::upgrade::on(&mut answer).await?);
    stream.write_all(b"hello").await?;
    let mut heard = [0; 5];
    stream.read_exact(&mut heard).await?;
    assert_eq!(&heard, b"hello");

    // Who leaves is not listened to any longer.
    let cluster = "/apis/hanse.io/v1alpha1/clusters/eu-1";
    assert_eq!(world.client.delete(cluster).await?.code, StatusCode::OK);
    let rest = tokio::time::timeout(Duration::from_secs(20), stream.read(&mut heard)).await?;
    assert!(matches!(rest, Ok(0) | Err(_)), "the stream goes on: {rest:?}");
    tokio::time::timeout(Duration::from_secs(20), ended.wait_for(|it| *it)).await??;
    Ok(())
}
