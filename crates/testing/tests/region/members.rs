//! Members seen through every server, although one of them has the sessions.

use std::{path::Path, process::Command};

use anyhow::{Result, ensure};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::json;
use testing::{client::Client, hub::eventually, process::binary, real, simulated::TestClusters};

use crate::servers::Region;

const PODS: &str = "/api/v1/namespaces/default/pods";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

fn said(command: &mut Command) -> Result<String> {
    let output = command.output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    Ok(text)
}

fn join(hub: &Path, member: &Path) -> Result<String> {
    let mut command = Command::new(binary()?);
    command.args(["join", "eu-1", "--kubeconfig"]).arg(member).arg("--hub-kubeconfig").arg(hub);
    said(&mut command)
}

/// Waits until a server shows the two pods as running.
async fn shows_both(client: &Client) -> Result<()> {
    eventually("the pods are seen", || async {
        let list = client.get(PODS).await?;
        let running = |pod: &&serde_json::Value| pod["status"]["phase"] == "Running";
        let json = list.json();
        let pods = json["items"].as_array().into_iter().flatten().filter(running).count();
        Ok((list.code == 200 && pods == 2).then_some(()))
    })
    .await
}

/// Two servers, and a cluster with two pods that is joined through the second.
async fn joined() -> Result<(Region, TestClusters)> {
    let region = Region::start().await?;
    let clusters = TestClusters::start(&["eu-1"]).await?;
    let member = clusters.admin("eu-1").await?;
    let deployment = json!({
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 2, "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "web", "image": "web:1"}]},
            },
        },
    });
    ensure!(member.post(DEPLOYMENTS, &deployment).await?.code == 201);
    let config = region.directory.path().join("member");
    std::fs::write(&config, clusters.simulation.kubeconfig("eu-1")?)?;
    join(&region.servers[1].kubeconfig(), &config)?;
    // One of them has the session; both show the same.
    for client in &region.clients {
        shows_both(client).await?;
    }
    Ok((region, clusters))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whichever_server_is_asked_shows_what_members_have() -> Result<()> {
    let kubectl = real::build(&["kubectl"])?.join("kubectl");
    let (region, _clusters) = joined().await?;
    let lists = [region.clients[0].get(PODS).await?.json(), region.clients[1].get(PODS).await?.json()];
    ensure!(lists[0] == lists[1], "{} {}", lists[0], lists[1]);
    let revision = lists[0]["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
    let pod = lists[0]["items"][0]["metadata"]["name"].as_str().unwrap_or_default().to_owned();

    for (number, client) in region.clients.iter().enumerate() {
        let mut watch = client.watch(&format!("{PODS}?watch=true&resourceVersion={revision}")).await?;
        let label = json!({"metadata": {"labels": {"seen": format!("by-{number}")}}});
        let changed = client.merge_patch(&format!("{PODS}/{pod}"), &label).await?;
        ensure!(changed.code == 200, "{}", changed.text());
        loop {
            let event = watch.expect().await?;
            if event["object"]["metadata"]["labels"]["seen"] == format!("by-{number}") {
                break;
            }
        }
        let table = client.get(&format!("{PODS}/missing")).await?;
        ensure!(table.code == 404, "{}", table.text());
    }
    for server in &region.servers {
        let mut command = Command::new(&kubectl);
        command.arg("--kubeconfig").arg(server.kubeconfig());
        ensure!(!said(command.args(["logs", &pod]))?.is_empty());
        let mut command = Command::new(&kubectl);
        command.arg("--kubeconfig").arg(server.kubeconfig());
        let answer = said(command.args(["exec", &pod, "--", "echo", "hello"]))?;
        ensure!(answer == "hello\n", "{answer:?}");
    }
    Ok(())
}

/// The first server is on duty, since there was no other when it started.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_comes_on_duty_sees_members_and_watches_end() -> Result<()> {
    let (mut region, _clusters) = joined().await?;
    let mut watch = region.clients[1].watch(&format!("{PODS}?watch=true")).await?;
    for _ in 0..2 {
        ensure!(watch.expect().await?["type"] == "ADDED");
    }
    region.servers.remove(0).kill()?;
    while watch.next().await?.is_some() {}
    // Nobody is on duty for a while, and nobody says that the pods are gone.
    eventually("the second server sees the pods itself", || async {
        let list = region.clients[1].get(PODS).await?;
        ensure!(list.code == 200 || list.code == 503, "{} {}", list.code, list.text());
        let log = region.clients[1].get(&format!("{PODS}/missing")).await?;
        ensure!(log.code == 404 || log.code == 503, "{} {}", log.code, log.text());
        let pods = list.json()["items"].as_array().map_or(0, Vec::len);
        ensure!(list.code == 503 || pods == 2, "{}", list.text());
        Ok((list.code == 200).then_some(()))
    })
    .await
}

/// Who a relayed request is for is believed of servers alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_else_can_pass_a_request_on() -> Result<()> {
    let region = Region::start().await?;
    let admin = json!({
        "name": "admin", "uid": "", "groups": ["system:masters"], "extra": {}, "workspace": "default",
    });
    let admin = STANDARD.encode(admin.to_string());
    for headers in [
        vec![("hanse-relayed-user", admin.as_str())],
        vec![("hanse-relayed-user", admin.as_str()), ("authorization", "Bearer wrong")],
        vec![("hanse-relayed-user", admin.as_str()), ("authorization", "Bearer ")],
    ] {
        let answer = region.clients[0].call(http::Method::GET, PODS, &headers, bytes::Bytes::new()).await?;
        ensure!(answer.code == 401, "{headers:?}: {}", answer.text());
    }
    Ok(())
}
