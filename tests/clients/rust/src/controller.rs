//! The controller, and what it must bring about.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::StreamExt as _;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::events::v1::Event as KubeEvent;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::Controller;
use kube::runtime::controller::Action;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::runtime::finalizer::{Event as Finalizer, finalizer};
use kube::runtime::wait::{await_condition, conditions};
use kube::runtime::watcher;
use kube::{Client, Resource as _, ResourceExt as _};
use serde_json::json;
use tokio::sync::oneshot;

use crate::World;
use crate::lamp::{Colour, Lamp, LampSpec};
use crate::suite::{Suite, eventually};

const MANAGER: &str = "lamp-controller";
const FINALIZER: &str = "clients-rust.hanse.test/lamp";

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Kube(#[from] kube::Error),
    #[error("finalizer: {0}")]
    Finalizer(#[source] Box<kube::runtime::finalizer::Error<Error>>),
    #[error("the lamp has no {0}")]
    Missing(&'static str),
}

struct Context {
    client: Client,
    recorder: Recorder,
}

pub async fn checks(world: &World, suite: &mut Suite) {
    let (stop, stopped) = oneshot::channel::<()>();
    let controller = tokio::spawn(run(world.client.clone(), world.namespace.clone(), stopped));
    suite.run("a Lamp is reconciled", reconciled(world)).await;
    suite.run("a change of a Lamp is followed", followed(world)).await;
    suite.run("an owned object comes back", comes_back(world)).await;
    suite.run("an owned object is corrected", corrected(world)).await;
    suite.run("an event is recorded", recorded(world)).await;
    suite.run("a Lamp is finalized and its objects are collected", finalized(world)).await;
    suite
        .run("the controller stops cleanly", async {
            let _ = stop.send(());
            controller.await.context("the controller")
        })
        .await;
}

async fn run(client: Client, namespace: String, stopped: oneshot::Receiver<()>) {
    let config = watcher::Config::default().streaming_lists();
    let reporter = Reporter { controller: MANAGER.to_owned(), instance: None };
    let context = Context { client: client.clone(), recorder: Recorder::new(client.clone(), reporter) };
    Controller::new(Api::<Lamp>::namespaced(client.clone(), &namespace), config.clone())
        .owns(Api::<ConfigMap>::namespaced(client.clone(), &namespace), config.clone())
        .owns(Api::<Deployment>::namespaced(client, &namespace), config)
        .graceful_shutdown_on(async move {
            let _ = stopped.await;
        })
        .run(reconcile, |_, _, _| Action::requeue(Duration::from_millis(200)), Arc::new(context))
        .for_each(|_| std::future::ready(()))
        .await;
}

async fn reconcile(lamp: Arc<Lamp>, context: Arc<Context>) -> Result<Action, Error> {
    let namespace = lamp.namespace().ok_or(Error::Missing("namespace"))?;
    let lamps = Api::namespaced(context.client.clone(), &namespace);
    finalizer(&lamps, FINALIZER, lamp, |event| async {
        match event {
            Finalizer::Apply(lamp) => keep(&lamp, &namespace, &context).await,
            Finalizer::Cleanup(lamp) => switch_off(&lamp, &namespace, &context).await,
        }
    })
    .await
    .map_err(|error| Error::Finalizer(Box::new(error)))
}

async fn keep(lamp: &Lamp, namespace: &str, context: &Context) -> Result<Action, Error> {
    let (name, client) = (lamp.name_any(), &context.client);
    let apply = PatchParams::apply(MANAGER).force();
    let owner = lamp.controller_owner_ref(&()).ok_or(Error::Missing("identity"))?;
    let settings = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "ownerReferences": [owner]},
        "data": {"colour": lamp.spec.colour},
    });
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    maps.patch(&name, &apply, &Patch::Apply(&settings)).await?;
    let labels = json!({"lamp": name});
    let bulbs = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "ownerReferences": [owner]},
        "spec": {"replicas": lamp.spec.bulbs, "selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels},
            "spec": {"containers": [{"name": "bulb", "image": "example.com/bulb:1"}]},
        }},
    });
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    deployments.patch(&name, &apply, &Patch::Apply(&bulbs)).await?;

    if !lamp.is_seen() {
        let status = json!({"status": {
            "observedGeneration": lamp.metadata.generation, "bulbs": lamp.spec.bulbs,
            "conditions": [{"type": "Lit", "status": "True"}],
        }});
        let lamps: Api<Lamp> = Api::namespaced(client.clone(), namespace);
        lamps.patch_status(&name, &PatchParams::default(), &Patch::Merge(&status)).await?;
        let event = Event {
            type_: EventType::Normal,
            reason: "Lit".to_owned(),
            note: Some(format!("{} bulbs", lamp.spec.bulbs)),
            action: "Reconcile".to_owned(),
            secondary: None,
        };
        context.recorder.publish(&event, &lamp.object_ref(&())).await?;
    }
    Ok(Action::await_change())
}

/// Leaves a note that outlives the lamp.
async fn switch_off(lamp: &Lamp, namespace: &str, context: &Context) -> Result<Action, Error> {
    let name = format!("{}-off", lamp.name_any());
    let note = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    let maps: Api<ConfigMap> = Api::namespaced(context.client.clone(), namespace);
    maps.patch(&name, &PatchParams::apply(MANAGER), &Patch::Apply(&note)).await?;
    Ok(Action::await_change())
}

async fn seen(world: &World, name: &str) -> Result<Lamp> {
    let seen = |lamp: Option<&Lamp>| lamp.is_some_and(Lamp::is_seen);
    await_condition(world.api(), name, seen).await?.context("no lamp")
}

async fn reconciled(world: &World) -> Result<()> {
    let lamps: Api<Lamp> = world.api();
    let wanted = Lamp::new("desk", LampSpec { bulbs: 2, colour: Colour::Green });
    let created = lamps.create(&PostParams::default(), &wanted).await?;
    ensure!(created.metadata.generation == Some(1), "generation 1, not {:?}", created.metadata.generation);
    let lamp = seen(world, "desk").await?;
    ensure!(lamp.finalizers() == [FINALIZER], "the finalizer, not {:?}", lamp.finalizers());
    ensure!(lamp.status.is_some_and(|status| status.conditions.len() == 1), "a condition");
    let settings = world.api::<ConfigMap>().get("desk").await?;
    ensure!(settings.data.is_some_and(|data| data["colour"] == "green"), "the colour");
    let bulbs = world.api::<Deployment>().get("desk").await?;
    ensure!(
        bulbs.owner_references().iter().any(|owner| Some(&owner.uid) == created.metadata.uid.as_ref()),
        "an owner"
    );
    Ok(())
}

async fn followed(world: &World) -> Result<()> {
    let patch = json!({"spec": {"bulbs": 4}});
    world.api::<Lamp>().patch("desk", &PatchParams::default(), &Patch::Merge(&patch)).await?;
    let lamp = seen(world, "desk").await?;
    ensure!(lamp.metadata.generation == Some(2), "generation 2, not {:?}", lamp.metadata.generation);
    ensure!(replicas(world).await? == Some(4), "four replicas");
    Ok(())
}

async fn replicas(world: &World) -> Result<Option<i32>> {
    Ok(world.api::<Deployment>().get("desk").await?.spec.and_then(|spec| spec.replicas))
}

async fn comes_back(world: &World) -> Result<()> {
    let maps = world.api::<ConfigMap>();
    let uid = maps.get("desk").await?.uid();
    maps.delete("desk", &DeleteParams::default()).await?;
    let another = |found: Option<&ConfigMap>| found.is_some_and(|found| found.uid() != uid);
    await_condition(maps.clone(), "desk", another).await?;
    Ok(())
}

async fn corrected(world: &World) -> Result<()> {
    let patch = json!({"spec": {"replicas": 9}});
    let deployments = world.api::<Deployment>();
    let meddled = deployments.patch("desk", &PatchParams::default(), &Patch::Strategic(&patch)).await?;
    ensure!(meddled.spec.and_then(|spec| spec.replicas) == Some(9), "nine replicas at first");
    eventually("replicas were not corrected", async || Ok(replicas(world).await? == Some(4))).await
}

async fn recorded(world: &World) -> Result<()> {
    let events: Api<KubeEvent> = world.api();
    let lit = ListParams::default().fields("reason=Lit");
    eventually("no event", async || {
        let found = events.list(&lit).await?;
        Ok(found
            .iter()
            .any(|event| event.regarding.as_ref().is_some_and(|about| about.kind.as_deref() == Some("Lamp"))))
    })
    .await
}

async fn finalized(world: &World) -> Result<()> {
    let lamps = world.api::<Lamp>();
    let uid = lamps.get("desk").await?.uid().context("no uid")?;
    lamps.delete("desk", &DeleteParams::background()).await?;
    await_condition(lamps.clone(), "desk", conditions::is_deleted(&uid)).await?;
    world.api::<ConfigMap>().get("desk-off").await.context("the note")?;
    eventually("owned objects are still there", async || {
        let map = world.api::<ConfigMap>().get_opt("desk").await?;
        Ok(map.is_none() && world.api::<Deployment>().get_opt("desk").await?.is_none())
    })
    .await
}
