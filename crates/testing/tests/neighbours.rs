//! A workspace that takes what it can get, and a quiet one beside it: the noisy one is refused, with a reason and a time
//! to come back where that helps, and the quiet one notices nothing.

#![allow(clippy::disallowed_methods)] // Tests run on the real machine.

use std::{sync::Arc, time::Duration};

use anyhow::Result;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use server::{Options, hub::root_id};
use store::{Bounds, live, memory::MemoryStore};
use testing::{
    client::{Answer, Client, dial},
    hub::{TestHub, eventually},
};
use tokio::{io::AsyncWriteExt, net::TcpStream};
use tokio_rustls::client::TlsStream;

const TENANTS: [&str; 2] = ["noisy", "quiet"];
const WORKSPACES: &str = "/clusters/root/apis/hanse.io/v1alpha1/workspaces";

struct Shared {
    hub: TestHub,
    admin: Client,
}

/// Two workspaces, in each of which everybody of the group of its name may do everything.
async fn start(options: Options) -> Result<Shared> {
    let bounds =
        live::Options { bounds: options.bounds(), unbounded: vec![root_id()], ..live::Options::default() };
    let hub = TestHub::start_on(Arc::new(MemoryStore::with_options(bounds)), options).await?;
    let admin = hub.admin().await?;
    for name in TENANTS {
        let workspace =
            json!({"kind": "Workspace", "apiVersion": "hanse.io/v1alpha1", "metadata": {"name": name}});
        assert_eq!(admin.post(WORKSPACES, &workspace).await?.code, StatusCode::CREATED);
        let group = "rbac.authorization.k8s.io";
        let binding = json!({
            "metadata": {"name": "tenants"},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"apiGroup": group, "kind": "Group", "name": name}],
        });
        let path = format!("/clusters/{name}/apis/{group}/v1/clusterrolebindings");
        assert_eq!(admin.post(&path, &binding).await?.code, StatusCode::CREATED);
    }
    Ok(Shared { hub, admin })
}

impl Shared {
    async fn tenant(&self, name: &str) -> Result<Client> {
        self.hub.user(name, &[name]).await
    }

    /// Requests refused for want of `limit`.
    async fn refused(&self, limit: &str) -> Result<u64> {
        let text = self.admin.get("/metrics").await?.text();
        let start = format!("hanse_limit_reached_total{{limit=\"{limit}\"}} ");
        let line = text.lines().find_map(|line| line.strip_prefix(start.as_str()));
        Ok(line.map_or(Ok(0), str::parse)?)
    }

    /// A request that has sent so much of its body and sends no more until the stream is dropped.
    async fn half_sent(&self, tenant: &str, bytes: usize) -> Result<TlsStream<TcpStream>> {
        let credential = self.hub.peer.authority.client(tenant, &[tenant])?;
        let identity = (credential.certificate_pem.as_str(), credential.key_pem.as_str());
        let ca = self.hub.peer.authority.certificate_pem();
        let mut stream = dial(&self.hub.peer.url(), ca, Some(identity), "http/1.1").await?;
        let head = format!(
            "POST {} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            maps(tenant),
            bytes + 1
        );
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(&vec![b' '; bytes]).await?;
        stream.flush().await?;
        Ok(stream)
    }
}

fn maps(workspace: &str) -> String {
    format!("/clusters/{workspace}/api/v1/namespaces/default/configmaps")
}

fn map(name: &str, bytes: usize) -> Value {
    json!({"metadata": {"name": name}, "data": {"key": "x".repeat(bytes)}})
}

/// 429, with the time to come back.
fn assert_too_many(answer: &Answer) {
    let status = answer.json();
    assert_eq!(answer.code, StatusCode::TOO_MANY_REQUESTS, "{status}");
    assert_eq!(status["reason"], "TooManyRequests");
    assert!(answer.headers.contains_key("retry-after"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workspace_has_so_many_watches_and_its_neighbour_as_many() -> Result<()> {
    let shared = start(Options { max_workspace_watches: 3, ..Options::default() }).await?;
    let [noisy, quiet] = [shared.tenant("noisy").await?, shared.tenant("quiet").await?];
    let watch = |whose: &str| format!("{}?watch=true", maps(whose));
    let mut open = Vec::new();
    for _ in 0..3 {
        open.push(noisy.watch(&watch("noisy")).await?);
    }
    let refused = noisy.call(Method::GET, &watch("noisy"), &[], "").await?;
    assert_too_many(&refused);
    assert!(
        refused.json()["message"].as_str().is_some_and(|it| it.contains("3 watches")),
        "{}",
        refused.text()
    );
    assert_eq!(noisy.get(&maps("noisy")).await?.code, StatusCode::OK, "what is no watch goes on");
    let mut others = Vec::new();
    for _ in 0..3 {
        others.push(quiet.watch(&watch("quiet")).await?);
    }
    assert_eq!(shared.refused("watches").await?, 1);
    drop(open.pop());
    eventually("room for a watch", || async { Ok(noisy.watch(&watch("noisy")).await.ok().map(drop)) }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_workspace_says_so_and_has_room_again_when_something_is_gone() -> Result<()> {
    let shared = start(Options { max_workspace_objects: 20, ..Options::default() }).await?;
    let [noisy, quiet] = [shared.tenant("noisy").await?, shared.tenant("quiet").await?];
    let namespace = json!({"metadata": {"name": "full"}});
    assert_eq!(noisy.post("/clusters/noisy/api/v1/namespaces", &namespace).await?.code, StatusCode::CREATED);
    let path = "/clusters/noisy/api/v1/namespaces/full/configmaps";
    let mut made = 0;
    let refused = loop {
        let answer = noisy.post(path, &map(&format!("n{made}"), 1)).await?;
        match answer.code {
            StatusCode::CREATED => made += 1,
            _ => break answer,
        }
    };
    assert_eq!(refused.code, StatusCode::FORBIDDEN);
    let status = refused.json();
    assert_eq!(status["reason"], "Forbidden");
    let message = status["message"].as_str().unwrap_or_default();
    assert!(message.contains("the workspace is full") && message.contains("20 of 20 objects"), "{message}");
    assert!((10..20).contains(&made), "the rest is what every namespace has: {made}");
    for (what, code) in [
        (noisy.put(&format!("{path}/n0"), &map("n0", 2)).await?, StatusCode::OK),
        (quiet.post(&maps("quiet"), &map("a", 1)).await?, StatusCode::CREATED),
        (noisy.delete(&format!("{path}/n0")).await?, StatusCode::OK),
        (noisy.post(path, &map("again", 1)).await?, StatusCode::CREATED),
    ] {
        assert_eq!(what.code, code, "{}", what.text());
    }
    assert!(shared.refused("stored").await? >= 1);
    // What all workspaces share goes too, although that it is gone has to be kept.
    let role = "/clusters/noisy/apis/rbac.authorization.k8s.io/v1/clusterroles/view";
    for (what, code) in [
        (noisy.delete(role).await?, StatusCode::OK),
        (noisy.get(role).await?, StatusCode::NOT_FOUND),
        (noisy.post(path, &map("more", 1)).await?, StatusCode::FORBIDDEN),
    ] {
        assert_eq!(what.code, code, "{}", what.text());
    }
    noisy.delete("/clusters/noisy/api/v1/namespaces/full").await?;
    eventually("a full namespace can be deleted", || async {
        let answer = noisy.get("/clusters/noisy/api/v1/namespaces/full").await?;
        Ok((answer.code == StatusCode::NOT_FOUND).then_some(()))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_are_bounded_as_objects_are_and_root_is_not() -> Result<()> {
    let shared = start(Options { max_workspace_bytes: 100_000, ..Options::default() }).await?;
    let noisy = shared.tenant("noisy").await?;
    assert_eq!(noisy.post(&maps("noisy"), &map("a", 60_000)).await?.code, StatusCode::CREATED);
    assert_eq!(noisy.post(&maps("noisy"), &map("b", 60_000)).await?.code, StatusCode::FORBIDDEN);
    assert_eq!(
        noisy.put(&format!("{}/a", maps("noisy")), &map("a", 120_000)).await?.code,
        StatusCode::FORBIDDEN
    );
    assert_eq!(noisy.put(&format!("{}/a", maps("noisy")), &map("a", 10)).await?.code, StatusCode::OK);
    assert_eq!(noisy.post(&maps("noisy"), &map("b", 60_000)).await?.code, StatusCode::CREATED);
    assert_eq!(shared.admin.post(&maps("root"), &map("a", 200_000)).await?.code, StatusCode::CREATED);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn large_requests_on_their_way_in_take_only_their_workspaces_memory() -> Result<()> {
    // A quarter of it is each workspace's.
    let shared = start(Options { max_request_bytes_inflight: 2 << 20, ..Options::default() }).await?;
    let [noisy, quiet] = [shared.tenant("noisy").await?, shared.tenant("quiet").await?];
    // Whichever of the two comes first is let in, and the other one is told.
    let held = eventually("no room for another large one", || async {
        let held = shared.half_sent("noisy", 450 << 10).await?;
        tokio::time::sleep(Duration::from_millis(50)).await;
        let answer = noisy.post(&maps("noisy"), &map("large", 200 << 10)).await?;
        if answer.code == StatusCode::CREATED {
            noisy.delete(&format!("{}/large", maps("noisy"))).await?;
            return Ok(None);
        }
        assert_too_many(&answer);
        Ok(Some(held))
    })
    .await?;
    assert_eq!(noisy.post(&maps("noisy"), &map("small", 10)).await?.code, StatusCode::CREATED);
    assert_eq!(quiet.post(&maps("quiet"), &map("large", 200 << 10)).await?.code, StatusCode::CREATED);
    assert!(shared.refused("request-bytes").await? >= 1);
    drop(held);
    eventually("room again", || async {
        let answer = noisy.post(&maps("noisy"), &map("large", 200 << 10)).await?;
        Ok((answer.code == StatusCode::CREATED).then_some(()))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_opens_connections_without_end_leaves_some_to_others() -> Result<()> {
    let shared = start(Options { max_connections: 20, ..Options::default() }).await?;
    let mut open = Vec::new();
    let refused = loop {
        assert!(open.len() < 20, "nobody said stop");
        let client = shared.tenant("noisy").await?;
        let answer = client.get(&maps("noisy")).await?;
        open.push(client);
        if answer.code != StatusCode::OK {
            break answer;
        }
    };
    assert_too_many(&refused);
    assert!(open.len() > 10, "alone it has most of them: {}", open.len());
    let quiet = shared.tenant("quiet").await?;
    assert_eq!(quiet.get(&maps("quiet")).await?.code, StatusCode::OK);
    assert_eq!(open[0].get(&maps("noisy")).await?.code, StatusCode::OK, "those that are open stay");
    assert_eq!(shared.refused("connections").await?, 1);
    let last = open.pop();
    eventually("the refused connection is closed", || async {
        let Some(last) = &last else { return Ok(Some(())) };
        Ok(last.get(&maps("noisy")).await.err().map(drop))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn root_is_told_who_uses_most_and_nobody_else() -> Result<()> {
    let shared = start(Options::default()).await?;
    let [noisy, quiet] = [shared.tenant("noisy").await?, shared.tenant("quiet").await?];
    for number in 0..5 {
        noisy.post(&maps("noisy"), &map(&format!("n{number}"), 1)).await?;
    }
    quiet.post(&maps("quiet"), &map("large", 10_000)).await?;
    let _watch = quiet.watch(&format!("{}?watch=true", maps("quiet"))).await?;
    for _ in 0..20 {
        noisy.get(&maps("noisy")).await?;
    }
    let first = async |by: &str| -> Result<Value> {
        let answer = shared.admin.get(&format!("/clusters/root/usage?by={by}&limit=1")).await?;
        assert_eq!(answer.code, StatusCode::OK, "{}", answer.text());
        let list = answer.json();
        assert_eq!(list["items"].as_array().map(Vec::len), Some(1), "{list}");
        Ok(list["items"][0].clone())
    };
    assert_eq!(first("objects").await?["name"], "noisy");
    assert_eq!(first("objects").await?["objects"], 6, "five, and what lets the tenant in");
    assert_eq!(first("bytes").await?["name"], "quiet");
    assert_eq!(first("watches").await?["name"], "quiet");
    assert_eq!(first("watches").await?["watches"], 1);
    let busiest = first("requests").await?;
    assert_eq!(busiest["name"], "noisy");
    assert!(busiest["requests"].as_u64().is_some_and(|count| count >= 25), "{busiest}");
    for wrong in ["by=name", "limit=0", "limit=1001", "limit=x"] {
        let answer = shared.admin.get(&format!("/clusters/root/usage?{wrong}")).await?;
        assert_eq!(answer.code, StatusCode::BAD_REQUEST, "{wrong}");
    }
    assert_eq!(shared.admin.get("/clusters/noisy/usage").await?.code, StatusCode::NOT_FOUND);
    assert_eq!(noisy.get("/clusters/root/usage").await?.code, StatusCode::FORBIDDEN);
    Ok(())
}

#[test]
fn no_limit_is_no_bound() {
    assert_eq!(Options::default().bounds(), Bounds::NONE);
    let options = Options { max_workspace_objects: 5, ..Options::default() };
    assert_eq!(options.bounds(), Bounds { objects: 5, bytes: u64::MAX });
}
