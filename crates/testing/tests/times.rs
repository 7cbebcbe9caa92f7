//! What happens because time has passed: a hub that places, on a virtual machine whose clock runs as fast as it can.

#![allow(clippy::disallowed_methods)] // Tests run on the real machine.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use env::{Env, Network, files::sim::SimDisk, network::sim::SimNet};
use serde_json::{Value, json};
use server::{
    Options,
    peer::{Peer, PeerOptions},
    pki::EnvTime,
};
use store::memory::MemoryStore;
use testing::client::{self, Client};

const CLUSTERS: &str = "/apis/hanse.io/v1alpha1/clusters";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
/// Longer than the hub takes to do anything, and shorter than what is waited for here.
const MOMENT: Duration = Duration::from_secs(1);

struct World {
    env: Env,
    client: Client,
    _peer: Peer,
}

impl World {
    async fn start() -> Result<World> {
        let net = SimNet::new("eu");
        let env = Env::simulated(7, SimDisk::new(7), net.clone());
        let options = PeerOptions {
            pki: "/data/pki".into(),
            listen: SocketAddr::new(net.ip(), 6443),
            advertise: None,
            server: Options::default(),
            login: Default::default(),
            sharing: None,
        };
        let peer = Peer::start(&env, Arc::new(MemoryStore::new()), options).await?;
        assign::start(&peer.hub);
        let credential = peer.authority.client("admin", &["system:masters"])?;
        let identity = (credential.certificate_pem.as_str(), credential.key_pem.as_str());
        let time = Arc::new(EnvTime(env.clock.clone()));
        let config = client::tls_at(time, peer.authority.certificate_pem(), Some(identity), &["h2"])?;
        let stream = net.host("laptop").dial(peer.address).await?;
        let client = Client::over(stream, &peer.address.to_string(), config).await?;
        Ok(World { env, client, _peer: peer })
    }

    async fn post(&self, path: &str, object: Value) -> Result<Value> {
        let made = self.client.post(path, &object).await?;
        ensure!(made.code == 201, "{path}: {}", made.text());
        Ok(made.json())
    }

    async fn patch(&self, path: &str, change: Value) -> Result<Value> {
        let done = self.client.merge_patch(path, &change).await?;
        ensure!(done.code == 200, "{path}: {}", done.text());
        Ok(done.json())
    }

    /// A cluster that its session would say is ready.
    async fn cluster(&self, name: &str) -> Result<()> {
        let secret = json!({"namespace": "hanse-system", "name": name});
        let spec = json!({"endpoint": "https://10.0.0.1:6443", "secretRef": secret});
        self.post(CLUSTERS, json!({"metadata": {"name": name}, "spec": spec})).await?;
        let ready = json!({"type": "Ready", "status": "True", "reason": "Ready", "lastTransitionTime": "2030-01-01T00:00:00Z"});
        let status = json!({"status": {"conditions": [ready]}});
        self.patch(&format!("{CLUSTERS}/{name}/status"), status).await.map(drop)
    }

    async fn pass(&self, time: Duration) {
        self.env.clock.sleep(time).await;
    }

    /// `name:state` of the clusters of an Assignment.
    async fn assigned(&self, name: &str) -> Result<Vec<String>> {
        let path = format!("/apis/hanse.io/v1alpha1/namespaces/default/assignments/{name}");
        let found = self.client.get(&path).await?.json();
        let text = |it: &Value, key: &str| it[key].as_str().unwrap_or_default().to_owned();
        let clusters = found["spec"]["clusters"].as_array().into_iter().flatten();
        Ok(clusters.map(|it| format!("{}:{}", text(it, "name"), text(it, "state"))).collect())
    }
}

fn template(tolerations: Value) -> Value {
    json!({
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "image": "i"}], "tolerations": tolerations},
    })
}

#[tokio::test(start_paused = true)]
async fn what_bears_a_taint_for_a_time_leaves_when_that_is_over() -> Result<()> {
    let world = World::start().await?;
    world.cluster("eu-1").await?;
    let borne =
        json!([{"key": "repairs", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}]);
    let selector = json!({"matchLabels": {"app": "web"}});
    let spec = json!({"replicas": 2, "selector": selector, "template": template(borne)});
    world.post(DEPLOYMENTS, json!({"metadata": {"name": "web"}, "spec": spec})).await?;
    world.pass(MOMENT).await;
    assert_eq!(world.assigned("deployments.apps.web").await?, ["eu-1:Assigned"]);
    world.cluster("us-1").await?;
    let taint = json!({"spec": {"taints": [{"key": "repairs", "effect": "NoExecute"}]}});
    world.patch(&format!("{CLUSTERS}/eu-1"), taint).await?;

    world.pass(Duration::from_secs(297)).await;
    assert_eq!(world.assigned("deployments.apps.web").await?, ["eu-1:Assigned"]);
    world.pass(Duration::from_secs(5)).await;
    assert_eq!(world.assigned("deployments.apps.web").await?, ["eu-1:Draining", "us-1:Assigned"]);
    Ok(())
}

/// What a taint says of itself counts, whenever the hub began.
#[tokio::test(start_paused = true)]
async fn a_taint_that_says_since_when_it_is_there_is_believed() -> Result<()> {
    let world = World::start().await?;
    world.cluster("eu-1").await?;
    let borne =
        json!([{"key": "repairs", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}]);
    let selector = json!({"matchLabels": {"app": "web"}});
    let spec = json!({"replicas": 2, "selector": selector, "template": template(borne)});
    world.post(DEPLOYMENTS, json!({"metadata": {"name": "web"}, "spec": spec})).await?;
    world.pass(MOMENT).await;
    world.cluster("us-1").await?;
    world.pass(Duration::from_secs(400)).await;
    let taint = json!({"key": "repairs", "effect": "NoExecute", "timeAdded": "2030-01-01T00:00:00Z"});
    world.patch(&format!("{CLUSTERS}/eu-1"), json!({"spec": {"taints": [taint]}})).await?;
    world.pass(MOMENT).await;
    assert_eq!(world.assigned("deployments.apps.web").await?, ["eu-1:Draining", "us-1:Assigned"]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_finished_job_goes_when_its_time_is_over() -> Result<()> {
    let world = World::start().await?;
    world.cluster("eu-1").await?;
    let mut template = template(json!([]));
    template["spec"]["restartPolicy"] = json!("Never");
    for (name, seconds) in [("short", json!(100)), ("long", json!(200)), ("kept", Value::Null)] {
        let spec = json!({"template": template, "ttlSecondsAfterFinished": seconds});
        world.post(JOBS, json!({"metadata": {"name": name}, "spec": spec})).await?;
    }
    world.pass(Duration::from_secs(1000)).await;
    let there = async |name: &str| -> Result<bool> {
        Ok(world.client.get(&format!("{JOBS}/{name}")).await?.code == 200)
    };
    assert!(there("short").await?, "it has not finished");
    for name in ["short", "long", "kept"] {
        let at = world.env.clock.now().to_string();
        let condition = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": at, "lastProbeTime": at});
        let status = json!({
            "startTime": at, "completionTime": at, "succeeded": 1,
            "conditions": [condition("SuccessCriteriaMet"), condition("Complete")],
        });
        world.patch(&format!("{JOBS}/{name}/status"), json!({"status": status})).await?;
    }
    world.pass(Duration::from_secs(97)).await;
    assert!(there("short").await?, "its time is not over");
    world.pass(Duration::from_secs(5)).await;
    let job = world.client.get(&format!("{JOBS}/short")).await?;
    // Its copy goes first.
    assert!(job.code == 404 || job.json()["metadata"]["deletionTimestamp"].is_string(), "{}", job.text());
    assert!(there("long").await?);
    // Whoever wants to keep it says so in time.
    world.patch(&format!("{JOBS}/long"), json!({"spec": {"ttlSecondsAfterFinished": 100_000}})).await?;
    world.pass(Duration::from_secs(1000)).await;
    let long = world.client.get(&format!("{JOBS}/long")).await?.json();
    assert!(long["metadata"]["deletionTimestamp"].is_null(), "{long}");
    assert!(there("kept").await?);
    Ok(())
}

/// As in one cluster when a node is deleted: nobody runs them a second time.
#[tokio::test(start_paused = true)]
async fn pods_of_a_cluster_that_is_unjoined_are_lost_with_it() -> Result<()> {
    let world = World::start().await?;
    world.cluster("eu-1").await?;
    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({"metadata": {"name": "once"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    world.post(pods, pod.clone()).await?;
    let mut held = pod;
    (held["metadata"]["name"], held["metadata"]["finalizers"]) = (json!("held"), json!(["example.com/keep"]));
    world.post(pods, held).await?;
    world.pass(MOMENT).await;
    assert_eq!(world.assigned("pods.once").await?, ["eu-1:Assigned"]);
    world.cluster("us-1").await?;
    let gone = world.client.delete(&format!("{CLUSTERS}/eu-1")).await?;
    ensure!(gone.code == 200, "{}", gone.text());
    world.pass(Duration::from_secs(60)).await;
    assert_eq!(world.client.get(&format!("{pods}/once")).await?.code, 404);
    assert_eq!(world.assigned("pods.once").await?, [""; 0]);
    let held = world.client.get(&format!("{pods}/held")).await?.json();
    assert!(held["metadata"]["deletionTimestamp"].is_string(), "{held}");
    assert_eq!(held["status"]["phase"], "Failed");
    let conditions = held["status"]["conditions"].as_array().context("it says why")?;
    assert!(
        conditions.iter().any(|it| it["type"] == "DisruptionTarget" && it["reason"] == "DeletionByPodGC"),
        "{held}"
    );
    assert_eq!(world.assigned("pods.held").await?, [""; 0], "it does not run elsewhere");
    Ok(())
}
