//! Simulated clusters as their clients see them.

#![allow(clippy::disallowed_methods)] // Tests run on the real machine.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use testing::{
    client::{Answer, Client},
    hub::eventually,
    simulated::TestClusters,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const PODS: &str = "/api/v1/namespaces/default/pods";

fn deployment(name: &str, replicas: u32, image: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [
                    {"name": "web", "image": image, "ports": [{"containerPort": 8080, "name": "http"}]},
                ]},
            },
        },
    })
}

fn created(answer: Answer) -> Result<Answer> {
    ensure!(answer.code == 201, "{}: {}", answer.code, answer.text());
    Ok(answer)
}

async fn items(client: &Client, path: &str) -> Result<Vec<Value>> {
    let answer = client.get(path).await?;
    ensure!(answer.code == 200, "{}: {}", answer.code, answer.text());
    Ok(answer.json()["items"].as_array().cloned().unwrap_or_default())
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|it| it["type"] == "Ready" && it["status"] == "True")
}

async fn ready_pods(client: &Client, count: usize) -> Result<Vec<Value>> {
    eventually("pods are ready", || async {
        let pods = items(client, PODS).await?;
        Ok((pods.len() == count && pods.iter().all(is_ready)).then_some(pods))
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deployment_lives_from_its_first_pod_to_its_last() -> Result<()> {
    let clusters = TestClusters::start(&["eu-1"]).await?;
    let client = clusters.admin("eu-1").await?;
    created(client.post(DEPLOYMENTS, &deployment("web", 3, "web:1")).await?)?;
    let pods = ready_pods(&client, 3).await?;
    let nodes: std::collections::BTreeSet<&str> =
        pods.iter().filter_map(|pod| pod["spec"]["nodeName"].as_str()).collect();
    assert_eq!(nodes.len(), 2, "they are spread over the nodes");
    eventually("its status says so", || async {
        let status = client.get(&format!("{DEPLOYMENTS}/web")).await?.json()["status"].clone();
        let counts = ["replicas", "readyReplicas", "availableReplicas", "updatedReplicas"]
            .map(|key| status[key].as_u64());
        Ok((counts == [Some(3); 4]).then_some(()))
    })
    .await?;
    let image = json!({"spec": {"template": {"spec": {"containers": [{"name": "web", "image": "web:2"}]}}}});
    client.merge_patch(&format!("{DEPLOYMENTS}/web"), &image).await?;
    eventually("all pods are new", || async {
        let pods = items(&client, PODS).await?;
        let new = |pod: &Value| pod["spec"]["containers"][0]["image"] == "web:2" && is_ready(pod);
        Ok((pods.len() == 3 && pods.iter().all(new)).then_some(()))
    })
    .await?;
    client.delete(&format!("{DEPLOYMENTS}/web")).await?;
    eventually("nothing is left", || async {
        let sets = items(&client, "/apis/apps/v1/namespaces/default/replicasets").await?;
        Ok((items(&client, PODS).await?.is_empty() && sets.is_empty()).then_some(()))
    })
    .await
}

/// One HTTP request, by hand: the pod's port is a real one.
async fn ask(address: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(b"GET /hello HTTP/1.1\r\nHost: pod\r\nConnection: close\r\n\r\n").await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    Ok(text)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_answers_on_its_own_address_and_writes_it_down() -> Result<()> {
    let clusters = TestClusters::start(&["eu-1"]).await?;
    let client = clusters.admin("eu-1").await?;
    created(client.post(DEPLOYMENTS, &deployment("web", 2, "web:1.27")).await?)?;
    for pod in ready_pods(&client, 2).await? {
        let name = pod["metadata"]["name"].as_str().context("no name")?;
        let place = format!("{}:8080", pod["status"]["podIP"].as_str().context("no address")?);
        let answer = eventually("it listens", || async { Ok(ask(&place).await.ok()) }).await?;
        for part in ["200 OK", "\"cluster\":\"eu-1\"", "\"version\":\"1.27\"", &format!("\"pod\":\"{name}\"")]
        {
            assert!(answer.contains(part), "{part} is not in {answer}");
        }
        let log = client.get(&format!("{PODS}/{name}/log")).await?.text();
        assert!(log.contains("simulated web:1.27 started"), "{log}");
        assert!(log.contains("GET /hello 200"), "{log}");
        let last = client.get(&format!("{PODS}/{name}/log?tailLines=1&timestamps=true")).await?.text();
        assert!(last.lines().count() == 1 && last.contains("Z GET /hello 200"), "{last}");
        let previous = client.get(&format!("{PODS}/{name}/log?previous=true")).await?;
        assert_eq!(previous.code, 400);
        client.delete(&format!("{PODS}/{name}")).await?;
        eventually("nobody listens any more", || async { Ok(ask(&place).await.is_err().then_some(())) })
            .await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_is_followed_to_the_end_of_its_container() -> Result<()> {
    let clusters = TestClusters::start(&["eu-1"]).await?;
    let client = clusters.admin("eu-1").await?;
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "talk"},
        "spec": {"restartPolicy": "Never", "containers": [
            {"name": "c", "image": "busybox", "command": ["sh", "-c", "echo one; sleep 1; echo two; sleep 1; exit 3"]},
        ]},
    });
    created(client.post(PODS, &pod).await?)?;
    eventually("it runs", || async {
        let phase = client.get(&format!("{PODS}/talk")).await?.json()["status"]["phase"].clone();
        Ok((phase != "Pending").then_some(()))
    })
    .await?;
    let mut lines = client.watch(&format!("{PODS}/talk/log?follow=true")).await?;
    let mut seen = Vec::new();
    while let Some(line) = lines.next_line().await? {
        seen.push(String::from_utf8_lossy(&line).trim().to_owned());
    }
    assert_eq!(seen, ["one", "two"]);
    let status = client.get(&format!("{PODS}/talk")).await?.json()["status"].clone();
    assert_eq!(status["phase"], "Failed");
    assert_eq!(status["containerStatuses"][0]["state"]["terminated"]["exitCode"], 3);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clusters_are_strangers_to_each_other() -> Result<()> {
    let clusters = TestClusters::start(&["eu-1", "us-1"]).await?;
    let (eu, us) = (clusters.admin("eu-1").await?, clusters.admin("us-1").await?);
    let identity = async |client: &Client| -> Result<String> {
        let namespace = client.get("/api/v1/namespaces/kube-system").await?.json();
        Ok(namespace["metadata"]["uid"].as_str().context("no UID")?.to_owned())
    };
    assert_ne!(identity(&eu).await?, identity(&us).await?);
    created(eu.post(DEPLOYMENTS, &deployment("web", 1, "web:1")).await?)?;
    ready_pods(&eu, 1).await?;
    assert!(items(&us, PODS).await?.is_empty());
    let nodes = items(&us, "/api/v1/nodes").await?;
    let names: Vec<&str> = nodes.iter().filter_map(|node| node["metadata"]["name"].as_str()).collect();
    assert_eq!(names, ["us-1-node-1", "us-1-node-2"]);
    assert_eq!(us.get("/clusters/eu-1/api/v1/nodes").await?.code, 404, "there is nothing beside it");
    let request = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {},
    });
    let token = eu.post("/api/v1/namespaces/default/serviceaccounts/default/token", &request);
    let token = token.await?.json()["status"]["token"].as_str().context("no token")?.to_owned();
    let review = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token},
    });
    let path = "/apis/authentication.k8s.io/v1/tokenreviews";
    assert_eq!(eu.post(path, &review).await?.json()["status"]["authenticated"], true);
    assert_ne!(us.post(path, &review).await?.json()["status"]["authenticated"], true);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_is_stopped_comes_back_as_it_was_and_one_that_is_killed_does_not() -> Result<()> {
    let clusters = TestClusters::start(&["eu-1", "us-1"]).await?;
    let eu = clusters.admin("eu-1").await?;
    created(eu.post(DEPLOYMENTS, &deployment("web", 2, "web:1")).await?)?;
    let before = ready_pods(&eu, 2).await?;
    let place = format!("{}:8080", before[0]["status"]["podIP"].as_str().context("no address")?);
    eventually("it listens", || async { Ok(ask(&place).await.ok()) }).await?;
    let simulation = &clusters.simulation;
    simulation.stop("eu-1").await?;
    assert!(eu.get(PODS).await.is_err(), "its connections are cut");
    eventually("nobody answers", || async { Ok(clusters.admin("eu-1").await.is_err().then_some(())) })
        .await?;
    eventually("its pods are down", || async { Ok(ask(&place).await.is_err().then_some(())) }).await?;
    assert_eq!(clusters.admin("us-1").await?.get(PODS).await?.code, 200, "others do not notice");
    simulation.resume("eu-1").await?;
    let eu = clusters.admin("eu-1").await?;
    let uids = |pods: &[Value]| pods.iter().map(|pod| pod["metadata"]["uid"].clone()).collect::<Vec<_>>();
    assert_eq!(uids(&ready_pods(&eu, 2).await?), uids(&before));
    eventually("its pods answer again", || async { Ok(ask(&place).await.ok()) }).await?;
    let identity = async |client: &Client| -> Result<Value> {
        Ok(client.get("/api/v1/namespaces/kube-system").await?.json()["metadata"]["uid"].clone())
    };
    let old = identity(&eu).await?;
    simulation.kill("eu-1").await?;
    simulation.resume("eu-1").await?;
    let eu = clusters.admin("eu-1").await?;
    assert_ne!(identity(&eu).await?, old);
    assert!(items(&eu, PODS).await?.is_empty());
    created(eu.post(DEPLOYMENTS, &deployment("web", 1, "web:1")).await?)?;
    ready_pods(&eu, 1).await?;
    assert!(simulation.stop("nowhere").await.is_err());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_cluster_answers_all_the_same() -> Result<()> {
    let clusters = TestClusters::start(&["eu-1"]).await?;
    let client = clusters.admin("eu-1").await?;
    clusters.simulation.slow("eu-1", Duration::from_millis(50))?;
    for _ in 0..3 {
        assert_eq!(client.get(PODS).await?.code, 200);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_clusters_are_worked_on_side_by_side() -> Result<()> {
    let names: Vec<String> = (0..40).map(|number| format!("c-{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let clusters = TestClusters::start(&names).await?;
    for name in &names {
        created(clusters.admin(name).await?.post(DEPLOYMENTS, &deployment("web", 5, "web:1")).await?)?;
    }
    for name in &names {
        ready_pods(&clusters.admin(name).await?, 5).await?;
    }
    clusters.settled().await
}
