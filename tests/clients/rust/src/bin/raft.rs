//! An operator written with kube-rs that makes pods itself, with names that the server chooses, as the etcd operator does:
//! it replaces those that have ended or are gone, and believes what their status says. It knows nothing of Hanse. Pods
//! must run where `KUBECONFIG` leads.

#[path = "../election.rs"]
mod election;
#[path = "../suite.rs"]
mod suite;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, EvictParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::wait::{await_condition, conditions};
use kube::runtime::watcher;
use kube::{Client, CustomResource, CustomResourceExt as _, KubeSchema, Resource as _, ResourceExt as _};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::election::Candidate;
use crate::suite::{Suite, eventually};

#[derive(CustomResource, Serialize, Deserialize, Debug, Clone, PartialEq, KubeSchema)]
#[kube(group = "clients-rust.hanse.test", version = "v1", kind = "Raft", namespaced, status = "RaftStatus")]
pub struct RaftSpec {
    members: usize,
    /// What each member does.
    script: String,
}

#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RaftStatus {
    #[serde(default)]
    members: Vec<Member>,
    #[serde(default)]
    observed_generation: i64,
    /// How those ended that were replaced.
    #[serde(default)]
    exit_codes: Vec<i32>,
}

#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, JsonSchema)]
struct Member {
    name: String,
    address: String,
    node: String,
}

impl Raft {
    fn is_ready(&self) -> bool {
        self.status.as_ref().is_some_and(|status| {
            status.members.len() == self.spec.members
                && Some(status.observed_generation) == self.metadata.generation
        })
    }
}

struct Operator {
    client: Client,
}

async fn reconcile(raft: Arc<Raft>, operator: Arc<Operator>) -> Result<Action, kube::Error> {
    let (name, namespace) = (raft.name_any(), raft.namespace().unwrap_or_default());
    if raft.metadata.deletion_timestamp.is_some() {
        return Ok(Action::await_change());
    }
    let pods: Api<Pod> = Api::namespaced(operator.client.clone(), &namespace);
    let nodes: Api<Node> = Api::all(operator.client.clone());
    let mut status = raft.status.clone().unwrap_or_default();
    (status.members, status.observed_generation) = (Vec::new(), raft.metadata.generation.unwrap_or_default());
    let mut alive = 0;
    for pod in pods.list(&ListParams::default().labels(&format!("raft={name}"))).await? {
        if let Some(code) = exit_code(&pod) {
            pods.delete(&pod.name_any(), &DeleteParams::default()).await?;
            status.exit_codes.push(code);
        } else if pod.metadata.deletion_timestamp.is_none() {
            alive += 1;
            if let Some(member) = member(&pod)
                && nodes.get_opt(&member.node).await?.is_some()
            {
                status.members.push(member);
            }
        }
    }
    for _ in alive..raft.spec.members {
        pods.create(&PostParams::default(), &pod_of(&raft, &name)).await?;
    }
    if raft.status.as_ref() != Some(&status) {
        let rafts: Api<Raft> = Api::namespaced(operator.client.clone(), &namespace);
        let patch = Patch::Merge(json!({"status": status}));
        rafts.patch_status(&name, &PatchParams::default(), &patch).await?;
    }
    Ok(Action::await_change())
}

fn pod_of(raft: &Raft, name: &str) -> Pod {
    let spec = json!({
        "restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "member", "image": "example.com/raft:1", "command": ["sh", "-c", raft.spec.script]}],
    });
    Pod {
        metadata: ObjectMeta {
            generate_name: Some(format!("{name}-")),
            labels: Some([("raft".to_owned(), name.to_owned())].into()),
            owner_references: raft.controller_owner_ref(&()).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        spec: serde_json::from_value(spec).ok(),
        status: None,
    }
}

/// Of a pod that has ended and is not going yet.
fn exit_code(pod: &Pod) -> Option<i32> {
    let status = pod.status.as_ref().filter(|_| pod.metadata.deletion_timestamp.is_none())?;
    status.phase.as_deref().filter(|phase| matches!(*phase, "Failed" | "Succeeded"))?;
    let container = status.container_statuses.as_ref()?.first()?;
    container.state.as_ref()?.terminated.as_ref().map(|terminated| terminated.exit_code)
}

/// A pod that is ready, and can be found.
fn member(pod: &Pod) -> Option<Member> {
    let status = pod.status.as_ref()?;
    let conditions = status.conditions.as_ref()?;
    conditions.iter().find(|it| it.type_ == "Ready" && it.status == "True")?;
    let node = pod.spec.as_ref()?.node_name.clone()?;
    Some(Member { name: pod.name_any(), address: status.pod_ip.clone()?, node })
}

async fn run(client: Client, namespace: String) {
    let config = watcher::Config::default().streaming_lists();
    Controller::new(Api::<Raft>::namespaced(client.clone(), &namespace), config.clone())
        .owns(Api::<Pod>::namespaced(client.clone(), &namespace), config)
        .run(reconcile, |_, _, _| Action::requeue(Duration::from_millis(200)), Arc::new(Operator { client }))
        .for_each(|_| std::future::ready(()))
        .await;
}

struct World {
    client: Client,
    namespace: String,
    rafts: Api<Raft>,
    pods: Api<Pod>,
}

#[tokio::main]
async fn main() -> Result<()> {
    let client = Client::try_default().await.context("KUBECONFIG names no server")?;
    let namespace = suite::unique("clients-raft");
    let world = World {
        rafts: Api::namespaced(client.clone(), &namespace),
        pods: Api::namespaced(client.clone(), &namespace),
        client,
        namespace,
    };
    let mut suite = Suite::default();
    suite.run("a namespace and a definition are made", prepare(&world)).await;
    suite.run("one of two is elected, and the other after it", elected(&world)).await;
    let operator = tokio::spawn(run(world.client.clone(), world.namespace.clone()));
    suite.run("pods that fail are seen, with how they ended", fail(&world)).await;
    suite.run("a Raft becomes ready, on nodes that there are", ready(&world)).await;
    suite.run("a pod that is evicted is replaced", evicted(&world)).await;
    suite.run("a Raft goes, and its pods with it", gone(&world)).await;
    operator.abort();
    suite.run("what was made goes", clean_up(&world)).await;
    suite.finish()
}

async fn prepare(world: &World) -> Result<()> {
    let metadata = ObjectMeta { name: Some(world.namespace.clone()), ..ObjectMeta::default() };
    let namespace = Namespace { metadata, ..Namespace::default() };
    Api::all(world.client.clone()).create(&PostParams::default(), &namespace).await?;
    let definitions: Api<CustomResourceDefinition> = Api::all(world.client.clone());
    let (name, apply) = (Raft::crd_name(), PatchParams::apply("raft").force());
    definitions.patch(name, &apply, &Patch::Apply(Raft::crd())).await?;
    await_condition(definitions, name, conditions::is_crd_established()).await?;
    Ok(())
}

async fn elected(world: &World) -> Result<()> {
    let candidate =
        |name: &str| Candidate::new(world.client.clone(), &world.namespace, "raft-operator", name);
    let (one, other) = (candidate("one"), candidate("other"));
    ensure!(one.stands().await?, "nobody else stood");
    ensure!(!other.stands().await?, "there is one already");
    ensure!(one.stands().await?, "it goes on");
    one.steps_down().await?;
    ensure!(other.stands().await?, "the place was free");
    Ok(())
}

async fn until(world: &World, what: &str, holds: impl Fn(&Raft) -> bool) -> Result<RaftStatus> {
    eventually(what, async || Ok(holds(&world.rafts.get("ark").await?))).await?;
    world.rafts.get("ark").await?.status.context("a status")
}

async fn fail(world: &World) -> Result<()> {
    let spec = RaftSpec { members: 3, script: "exit 3".to_owned() };
    world.rafts.create(&PostParams::default(), &Raft::new("ark", spec)).await?;
    let codes = |raft: &Raft| raft.status.as_ref().map(|it| it.exit_codes.clone()).unwrap_or_default();
    let status = until(world, "no three were replaced", |raft| codes(raft).len() >= 3).await?;
    ensure!(status.exit_codes.iter().all(|code| *code == 3), "{:?}", status.exit_codes);
    Ok(())
}

async fn ready(world: &World) -> Result<()> {
    let patch = json!({"spec": {"script": "sleep 3600"}});
    world.rafts.patch("ark", &PatchParams::default(), &Patch::Merge(&patch)).await?;
    let status = until(world, "it is not ready", Raft::is_ready).await?;
    for member in status.members {
        let on_node = ListParams::default().fields(&format!("spec.nodeName={}", member.node));
        let found = world.pods.list(&on_node).await?;
        ensure!(found.iter().any(|pod| pod.name_any() == member.name), "{} on {}", member.name, member.node);
        ensure!(!member.address.is_empty(), "{} has no address", member.name);
    }
    Ok(())
}

async fn evicted(world: &World) -> Result<()> {
    let before = until(world, "it is not ready", Raft::is_ready).await?;
    let first = before.members.first().context("a member")?.name.clone();
    world.pods.evict(&first, &EvictParams::default()).await?;
    until(world, "it is not ready again", |raft| {
        let has = |status: &RaftStatus| status.members.iter().any(|member| member.name == first);
        raft.is_ready() && !raft.status.as_ref().is_some_and(has)
    })
    .await?;
    Ok(())
}

async fn gone(world: &World) -> Result<()> {
    world.rafts.delete("ark", &DeleteParams::foreground()).await?;
    eventually("pods are left", async || {
        let left = world.pods.list(&ListParams::default().labels("raft=ark")).await?;
        Ok(left.items.is_empty() && world.rafts.get_opt("ark").await?.is_none())
    })
    .await
}

async fn clean_up(world: &World) -> Result<()> {
    let definitions: Api<CustomResourceDefinition> = Api::all(world.client.clone());
    definitions.delete(Raft::crd_name(), &DeleteParams::default()).await?;
    let namespaces: Api<Namespace> = Api::all(world.client.clone());
    namespaces.delete(&world.namespace, &DeleteParams::default()).await?;
    eventually("they are still there", async || {
        let namespace = namespaces.get_opt(&world.namespace).await?;
        Ok(namespace.is_none() && definitions.get_opt(Raft::crd_name()).await?.is_none())
    })
    .await
}
