//! What these tests say often.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::{
    app::NS,
    world::{CLUSTERS, Member, World, collection, path, text},
};

pub const A: &str = "a";
pub const B: &str = "b";
pub const C: &str = "c";
/// KubeFed's own namespace.
pub const SYSTEM: &str = "kube-federation-system";

/// Creates as `kubectl create` does, which sends nothing that it is not sure of.
pub async fn create(world: &World, object: &Value) -> Result<Value> {
    let mut object = object.clone();
    let is_namespaced = !matches!(text(&object, "/kind"), "Namespace" | "Placement");
    if is_namespaced && text(&object, "/metadata/namespace").is_empty() {
        object["metadata"]["namespace"] = json!("default");
    }
    let path = format!("{}?fieldValidation=Strict", collection(&object));
    let made = world.client.post(&path, &object).await?;
    ensure!(made.code == 201, "{path}: {}", made.text());
    Ok(made.json())
}

pub fn documents(yaml: &str) -> Result<Vec<Value>> {
    let parts = yaml.split("\n---\n");
    parts.map(|part| Ok(serde_saphyr::from_str::<Value>(part)?)).collect()
}

pub async fn label_cluster(world: &World, name: &str, labels: Value) -> Result<()> {
    world.patch(&format!("{CLUSTERS}/{name}"), json!({"metadata": {"labels": labels}})).await.map(drop)
}

/// Deletes an object of the hub with these options, in the body or nowhere.
pub async fn delete(world: &World, place: &str, options: &Value) -> Result<()> {
    let json = [("content-type", "application/json")];
    let deleted = world.client.call(http::Method::DELETE, place, &json, options.to_string()).await?;
    ensure!(deleted.code.is_success(), "{place}: {}", deleted.text());
    Ok(())
}

/// As `kubectl delete` does, which says that all that belongs to it goes, too.
pub async fn delete_whole(world: &World, place: &str) -> Result<()> {
    delete(world, place, &json!({"propagationPolicy": "Background"})).await
}

/// Of the unified form, in the namespace of these tests.
pub fn federated(kind: &str, name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "types.kubefed.io/v1beta1", "kind": format!("Federated{kind}"),
        "metadata": {"name": name, "namespace": NS}, "spec": spec,
    })
}

/// How federation is configured; it is read in [`SYSTEM`].
pub fn federation_config(spec: Value) -> Value {
    json!({
        "apiVersion": "core.kubefed.io/v1beta1", "kind": "KubeFedConfig",
        "metadata": {"name": "kubefed", "namespace": SYSTEM}, "spec": spec,
    })
}

/// In the clusters of these names.
pub fn named(names: &[&str]) -> Value {
    json!({"clusters": names.iter().map(|name| json!({"name": name})).collect::<Vec<_>>()})
}

/// A workspace where what nobody says anything else of is divided as federation did.
pub async fn begin(members: &[&str]) -> Result<World> {
    let world = World::start(members).await?;
    world.apply(&crate::scheduling::federation(true)).await?;
    Ok(world)
}

/// A namespace of such a workspace that is federated to all of them.
pub async fn start(members: &[&str]) -> Result<World> {
    let world = begin(members).await?;
    world.namespace(NS).await?;
    world.apply(&federated("Namespace", NS, json!({"placement": {"clusterSelector": {}}}))).await?;
    Ok(world)
}

/// The hub goes and comes back with what it stored and nothing that it had seen, and finds its members.
pub async fn restart(world: &mut World, members: &[&str]) -> Result<()> {
    world.restart_hub(true).await?;
    for name in members {
        world.until_ready(name).await?;
    }
    Ok(())
}

/// Waits until a Warning about an object says something.
pub async fn until_warned(world: &World, object: &Value, what: &str) -> Result<()> {
    let name = text(object, "/metadata/name");
    let says = |list: &Value| {
        let items = list["items"].as_array().into_iter().flatten();
        items
            .filter(|it| {
                it["involvedObject"]["name"] == name && it["involvedObject"]["kind"] == object["kind"]
            })
            .any(|it| it["type"] == "Warning" && text(it, "/message").contains(what))
    };
    let events = format!("/api/v1/namespaces/{}/events", text(object, "/metadata/namespace"));
    world.until(&events, &format!("a warning says {what:?}"), says).await.map(drop)
}

/// A Deployment's template, with so many replicas.
pub fn template(replicas: u32) -> Value {
    let mut deployment = crate::app::deployment("web", replicas);
    json!({"metadata": {"labels": {"app": "web"}}, "spec": deployment["spec"].take()})
}

pub fn plain(object: &Value) -> Value {
    let kind = text(object, "/kind").trim_start_matches("Federated");
    let api_version = match kind {
        "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet" => "apps/v1",
        "Job" | "CronJob" => "batch/v1",
        "Ingress" => "networking.k8s.io/v1",
        "HorizontalPodAutoscaler" => "autoscaling/v2",
        _ => "v1",
    };
    json!({"apiVersion": api_version, "kind": kind, "metadata": object["metadata"]})
}

/// The words that a federated object has for each cluster, with those of its condition.
pub fn told(object: &Value) -> (Vec<(String, String)>, String) {
    let clusters = object["status"]["clusters"].as_array().into_iter().flatten();
    let clusters =
        clusters.map(|it| (text(it, "/name").to_owned(), text(it, "/status").to_owned())).collect();
    let condition = &object["status"]["conditions"][0];
    (clusters, format!("{}{}", text(condition, "/status"), text(condition, "/reason")))
}

pub async fn until_told(
    world: &World,
    object: &Value,
    clusters: &[(&str, &str)],
    condition: &str,
) -> Result<Value> {
    let wanted: Vec<(String, String)> =
        clusters.iter().map(|(name, status)| ((*name).to_owned(), (*status).to_owned())).collect();
    let holds = |it: &Value| {
        told(it) == (wanted.clone(), condition.to_owned())
            && it["status"]["observedGeneration"] == it["metadata"]["generation"]
    };
    world.until(&path(object), &format!("it says {wanted:?} {condition}"), holds).await
}

/// Waits until a copy has so many replicas.
pub async fn until_replicas(member: &Member, object: &Value, replicas: u64) -> Result<Value> {
    let holds = |it: &Value| it["spec"]["replicas"] == replicas;
    member.until(&path(object), &format!("it has {replicas} replicas"), holds).await
}
