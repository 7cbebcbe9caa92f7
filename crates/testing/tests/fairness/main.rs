//! How tenants share a server: one that wants everything costs the others nothing, and what a workspace says about its
//! own requests divides its share and never makes it larger.

#![allow(clippy::disallowed_methods)] // Tests run on the real machine.

mod objects;

use std::{sync::Arc, time::Duration};

use anyhow::Result;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use server::Options;
use store::memory::MemoryStore;
use testing::{
    client::{Client, dial},
    hub::{TestHub, eventually},
};
use tokio::{io::AsyncWriteExt, net::TcpStream};
use tokio_rustls::client::TlsStream;

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const FLOWS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1";
/// A tenant alone may hold 16 of these.
const SEATS: u32 = 18;

/// A hub with few seats and two tenants.
struct Shared {
    hub: TestHub,
    admin: Client,
}

async fn start() -> Result<Shared> {
    let options = Options {
        max_requests_inflight: SEATS / 2,
        max_mutating_requests_inflight: SEATS / 2,
        // A quarter of it is how long a request may wait for its turn.
        request_timeout: Duration::from_secs(20),
        ..Options::default()
    };
    let hub = TestHub::start_on(Arc::new(MemoryStore::new()), options).await?;
    let admin = hub.admin().await?;
    for name in ["hog", "small"] {
        let workspace =
            json!({"kind": "Workspace", "apiVersion": "hanse.io/v1alpha1", "metadata": {"name": name}});
        admin.post("/clusters/root/apis/hanse.io/v1alpha1/workspaces", &workspace).await?;
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

    /// A request that is being worked on until the stream is dropped: its body never ends.
    async fn endless(&self, tenant: &str, headers: &str) -> Result<TlsStream<TcpStream>> {
        let credential = self.hub.peer.authority.client(tenant, &[tenant])?;
        let identity = (credential.certificate_pem.as_str(), credential.key_pem.as_str());
        let ca = self.hub.peer.authority.certificate_pem();
        let mut stream = dial(&self.hub.peer.url(), ca, Some(identity), "http/1.1").await?;
        let head = format!(
            "POST /clusters/{tenant}{CONFIG_MAPS} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n\
             {headers}Content-Length: 100\r\n\r\n{{"
        );
        stream.write_all(head.as_bytes()).await?;
        stream.flush().await?;
        Ok(stream)
    }

    /// The sum of a metric over those of its lines that hold `part`.
    async fn metric(&self, name: &str, part: &str) -> Result<u64> {
        let text = self.admin.get("/metrics").await?.text();
        let lines = text.lines().filter(|line| line.starts_with(name) && line.contains(part));
        Ok(lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum())
    }

    async fn hold(&self, tenant: &str, count: usize) -> Result<Vec<TlsStream<TcpStream>>> {
        self.hold_with(tenant, count, "").await
    }

    async fn hold_with(
        &self,
        tenant: &str,
        count: usize,
        headers: &str,
    ) -> Result<Vec<TlsStream<TcpStream>>> {
        let mut streams = Vec::new();
        for _ in 0..count {
            streams.push(self.endless(tenant, headers).await?);
        }
        eventually("all are let in or wait", async || {
            let executing = self.metric("apiserver_flowcontrol_current_executing_requests", "").await?;
            let waiting = self.metric("apiserver_flowcontrol_current_inqueue_requests", "").await?;
            Ok((executing + waiting >= count as u64).then_some(()))
        })
        .await?;
        Ok(streams)
    }
}

#[tokio::test]
async fn a_hog_waits_for_itself_and_costs_another_tenant_nothing() -> Result<()> {
    let shared = start().await?;
    let streams = shared.hold("hog", 60).await?;
    let executing = shared.metric("apiserver_flowcontrol_current_executing_requests", "").await?;
    assert!((2..=16).contains(&executing), "{executing}");
    let small = shared.tenant("small").await?;
    for at in 0..50 {
        let object = json!({"metadata": {"name": format!("c-{at}")}});
        let made = small.post(&format!("/clusters/small{CONFIG_MAPS}"), &object).await?;
        assert_eq!(made.code, StatusCode::CREATED, "{}", made.text());
    }
    // The platform's admins pass by, in the hog's own workspace, too.
    assert_eq!(shared.admin.get(&format!("/clusters/hog{CONFIG_MAPS}")).await?.code, StatusCode::OK);
    let refused = shared.tenant("hog").await?.get(&format!("/clusters/hog{CONFIG_MAPS}")).await?;
    assert_eq!(refused.code, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(refused.headers["retry-after"], "1");
    let status = refused.json();
    assert_eq!(status["reason"], "TooManyRequests");
    assert_eq!(status["message"], "Too many requests, please try again later.");
    assert_eq!(status["details"]["retryAfterSeconds"], 1);
    assert!(shared.metric("apiserver_flowcontrol_rejected_requests_total", "time-out").await? >= 1);
    drop(streams);
    eventually("all seats are free again", async || {
        let executing = shared.metric("apiserver_flowcontrol_current_executing_requests", "").await?;
        let waiting = shared.metric("apiserver_flowcontrol_current_inqueue_requests", "").await?;
        Ok((executing + waiting == 0).then_some(()))
    })
    .await?;
    let hog = shared.tenant("hog").await?;
    assert_eq!(hog.get(&format!("/clusters/hog{CONFIG_MAPS}")).await?.code, StatusCode::OK);
    Ok(())
}

fn mk_schema(name: &str, level: &str, user: &str) -> Value {
    json!({
        "kind": "FlowSchema", "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "metadata": {"name": name},
        "spec": {
            "priorityLevelConfiguration": {"name": level}, "matchingPrecedence": 50,
            "rules": [{
                "subjects": [{"kind": "User", "user": {"name": user}}],
                "resourceRules": [{
                    "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"],
                    "clusterScope": true,
                }],
            }],
        },
    })
}

#[tokio::test]
async fn a_tenant_that_exempts_itself_still_has_only_its_share() -> Result<()> {
    let shared = start().await?;
    let hog = shared.tenant("hog").await?;
    let path = format!("/clusters/hog{FLOWS}/flowschemas");
    let made = hog.post(&path, &mk_schema("me-first", "exempt", "hog")).await?;
    assert_eq!(made.code, StatusCode::CREATED, "{}", made.text());
    let streams = shared.hold("hog", 60).await?;
    let executing = shared.metric("apiserver_flowcontrol_current_executing_requests", "\"exempt\"").await?;
    assert_eq!(executing, 16, "all that one tenant may hold");
    let small = shared.tenant("small").await?;
    for _ in 0..50 {
        assert_eq!(small.get(&format!("/clusters/small{CONFIG_MAPS}")).await?.code, StatusCode::OK);
    }
    drop(streams);
    Ok(())
}

#[tokio::test]
async fn a_tenant_that_acts_as_a_platform_admin_still_has_only_its_share() -> Result<()> {
    let shared = start().await?;
    let headers = "Impersonate-User: x\r\nImpersonate-Group: system:masters\r\n";
    let streams = shared.hold_with("hog", 60, headers).await?;
    let executing = shared.metric("apiserver_flowcontrol_current_executing_requests", "\"exempt\"").await?;
    assert_eq!(executing, 16, "all that one tenant may hold");
    let small = shared.tenant("small").await?;
    assert_eq!(small.get(&format!("/clusters/small{CONFIG_MAPS}")).await?.code, StatusCode::OK);
    drop(streams);
    Ok(())
}

#[tokio::test]
async fn a_level_of_a_tenants_own_limits_whom_it_says() -> Result<()> {
    let shared = start().await?;
    let hog = shared.tenant("hog").await?;
    let level = json!({
        "metadata": {"name": "one-at-a-time"},
        "spec": {"type": "Limited", "limited": {
            "nominalConcurrencyShares": 1, "borrowingLimitPercent": 0, "limitResponse": {"type": "Reject"},
        }},
    });
    let path = format!("/clusters/hog{FLOWS}");
    let made = hog.post(&format!("{path}/prioritylevelconfigurations"), &level).await?;
    assert_eq!(made.code, StatusCode::CREATED, "{}", made.text());
    hog.post(&format!("{path}/flowschemas"), &mk_schema("slow-lane", "one-at-a-time", "hog")).await?;
    let _stream = shared.hold("hog", 1).await?;
    let refused = hog.get(&format!("/clusters/hog{CONFIG_MAPS}")).await?;
    assert_eq!(refused.code, StatusCode::TOO_MANY_REQUESTS);
    assert!(refused.headers.contains_key("x-kubernetes-pf-flowschema-uid"));
    let reason = "concurrency-limit";
    assert_eq!(shared.metric("apiserver_flowcontrol_rejected_requests_total", reason).await?, 1);
    assert_eq!(shared.metric("apiserver_request_terminations_total", "code=\"429\"").await?, 1);
    let other = shared.hub.user("colleague", &["hog"]).await?;
    assert_eq!(other.get(&format!("/clusters/hog{CONFIG_MAPS}")).await?.code, StatusCode::OK);
    Ok(())
}

#[tokio::test]
async fn watches_hold_no_seat_once_they_have_begun() -> Result<()> {
    let shared = start().await?;
    let small = shared.tenant("small").await?;
    let path = format!("/clusters/small{CONFIG_MAPS}");
    let mut watches = Vec::new();
    for _ in 0..3 * SEATS {
        watches.push(small.watch(&format!("{path}?watch=1")).await?);
    }
    assert_eq!(small.get(&path).await?.code, StatusCode::OK);
    small.post(&path, &json!({"metadata": {"name": "c"}})).await?;
    for watch in &mut watches {
        assert_eq!(watch.expect().await?["type"], "ADDED");
    }
    assert_eq!(shared.metric("apiserver_flowcontrol_current_executing_requests", "").await?, 0);
    Ok(())
}

#[tokio::test]
async fn the_headers_name_what_a_request_was_counted_under() -> Result<()> {
    let shared = start().await?;
    let small = shared.tenant("small").await?;
    let uid = async |kind: &str, name: &str| -> Result<String> {
        let answer = shared.admin.get(&format!("/clusters/small{FLOWS}/{kind}/{name}")).await?;
        Ok(answer.json()["metadata"]["uid"].as_str().unwrap_or_default().to_owned())
    };
    let rows = [
        (&small, CONFIG_MAPS, "global-default", "global-default"),
        (&small, "/readyz", "probes", "exempt"),
        (&shared.admin, CONFIG_MAPS, "exempt", "exempt"),
    ];
    for (client, path, schema, level) in rows {
        let answer = client.call(Method::GET, &format!("/clusters/small{path}"), &[], "").await?;
        let header = |name: &str| answer.headers[name].to_str().unwrap_or_default().to_owned();
        assert_eq!(header("x-kubernetes-pf-flowschema-uid"), uid("flowschemas", schema).await?, "{schema}");
        let level_uid = uid("prioritylevelconfigurations", level).await?;
        assert_eq!(header("x-kubernetes-pf-prioritylevel-uid"), level_uid, "{level}");
    }
    Ok(())
}

#[tokio::test]
async fn levels_beyond_the_first_by_name_count_for_nothing() -> Result<()> {
    let shared = start().await?;
    let hog = shared.tenant("hog").await?;
    let levels = format!("/clusters/hog{FLOWS}/prioritylevelconfigurations");
    let counted = async || -> Result<String> {
        let answer = hog.call(Method::GET, &format!("/clusters/hog{CONFIG_MAPS}"), &[], "").await?;
        Ok(answer.headers["x-kubernetes-pf-prioritylevel-uid"].to_str()?.to_owned())
    };
    let uid = async |name: &str| -> Result<String> {
        let answer = shared.admin.get(&format!("{levels}/{name}")).await?;
        Ok(answer.json()["metadata"]["uid"].as_str().unwrap_or_default().to_owned())
    };
    assert_eq!(counted().await?, uid("global-default").await?);
    for at in 0..64 {
        let level = json!({
            "metadata": {"name": format!("a-{at:02}")},
            "spec": {"type": "Limited", "limited": {
                "nominalConcurrencyShares": 1, "limitResponse": {"type": "Reject"},
            }},
        });
        let made = hog.post(&levels, &level).await?;
        assert_eq!(made.code, StatusCode::CREATED, "{}", made.text());
    }
    assert_eq!(
        counted().await?,
        uid("catch-all").await?,
        "64 come before it, and what must be there is there"
    );
    Ok(())
}
