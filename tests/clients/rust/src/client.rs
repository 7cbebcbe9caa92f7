//! What the client itself can do.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::core::{GroupVersionKind, PartialObjectMeta};
use kube::discovery::{Discovery, Scope, oneshot};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::reflector;
use kube::runtime::watcher::{self, Event};
use kube::{Client, ResourceExt as _};
use serde_json::json;

use crate::World;
use crate::lamp::{Colour, Lamp, LampSpec};
use crate::suite::Suite;

pub async fn checks(world: &World, suite: &mut Suite) {
    suite.run("objects live and are patched", life(world)).await;
    suite.run("apply conflicts, and forces", conflicts(world)).await;
    suite.run("an entry is committed or conflicts", entry(world)).await;
    suite.run("a Deployment is scaled", scale(world)).await;
    suite.run("an invalid Lamp is refused", invalid(world)).await;
    suite.run("a Lamp has defaults, and a status apart", defaults(world)).await;
    suite.run("discovery finds the new kind", discovery(world)).await;
    suite
        .run(
            "a watcher lists in pages, then watches",
            watches(world, watcher::Config::default().page_size(3)),
        )
        .await;
    suite
        .run(
            "a watcher streams its list, then watches",
            watches(world, watcher::Config::default().streaming_lists()),
        )
        .await;
    suite.run("a reflector follows", reflects(world)).await;
    suite.run("a metadata watcher follows", watches_metadata(world)).await;
}

fn map(name: &str, data: &[(&str, &str)]) -> ConfigMap {
    let data = data.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(BTreeMap::from([("set".to_owned(), "loops".to_owned())])),
            ..ObjectMeta::default()
        },
        data: Some(data.collect()),
        ..ConfigMap::default()
    }
}

/// The server refused, with this code.
fn refused<T>(outcome: kube::Result<T>, code: u16) -> Result<()> {
    match outcome {
        Err(kube::Error::Api(status)) if status.code == code => Ok(()),
        Err(error) => Err(error).with_context(|| format!("wanted {code}")),
        Ok(_) => bail!("was not refused with {code}"),
    }
}

async fn life(world: &World) -> Result<()> {
    let maps: Api<ConfigMap> = world.api();
    let created = maps.create(&PostParams::default(), &map("life", &[("a", "1")])).await?;
    refused(maps.create(&PostParams::default(), &map("life", &[])).await, 409)?;
    for (patch, wanted) in
        [(Patch::Merge(json!({"data": {"b": "2"}})), 2), (Patch::Strategic(json!({"data": {"a": null}})), 1)]
    {
        let patched = maps.patch("life", &PatchParams::default(), &patch).await?;
        ensure!(
            patched.data.clone().unwrap_or_default().len() == wanted,
            "{wanted} keys, not {:?}",
            patched.data
        );
    }
    refused(maps.replace("life", &PostParams::default(), &created).await, 409)?;
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    maps.create(&dry, &map("rehearsal", &[])).await?;
    ensure!(maps.get_opt("rehearsal").await?.is_none(), "nothing kept by a dry run");
    ensure!(maps.list(&ListParams::default().labels("set=loops")).await?.items.len() == 1, "one in the list");
    maps.delete("life", &DeleteParams::default()).await?;
    refused(maps.get("life").await, 404)
}

async fn conflicts(world: &World) -> Result<()> {
    let maps: Api<ConfigMap> = world.api();
    let wanted = |value: &str| {
        Patch::Apply(json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "disputed"}, "data": {"a": value},
        }))
    };
    maps.patch("disputed", &PatchParams::apply("one"), &wanted("1")).await?;
    refused(maps.patch("disputed", &PatchParams::apply("two"), &wanted("2")).await, 409)?;
    let forced = maps.patch("disputed", &PatchParams::apply("two").force(), &wanted("2")).await?;
    let managers: Vec<_> = forced.managed_fields().iter().filter_map(|entry| entry.manager.clone()).collect();
    ensure!(managers == ["two"], "the field taken over, not {managers:?}");
    Ok(())
}

async fn entry(world: &World) -> Result<()> {
    let maps: Api<ConfigMap> = world.api();
    let mut first = maps.entry("entry").await?.or_insert(|| map("entry", &[]));
    first.commit(&PostParams::default()).await?;
    let mut second = maps.entry("entry").await?.or_insert(|| map("entry", &[]));
    second.get_mut().data.get_or_insert_default().insert("a".to_owned(), "1".to_owned());
    second.commit(&PostParams::default()).await?;
    first.get_mut().data.get_or_insert_default().insert("a".to_owned(), "2".to_owned());
    ensure!(first.commit(&PostParams::default()).await.is_err(), "a conflict");
    Ok(())
}

async fn scale(world: &World) -> Result<()> {
    let deployments: Api<Deployment> = world.api();
    let wanted = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "scaled"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "scaled"}}, "template": {
            "metadata": {"labels": {"app": "scaled"}},
            "spec": {"containers": [{"name": "main", "image": "example.com/app:1"}]},
        }},
    });
    deployments.patch("scaled", &PatchParams::apply("loops"), &Patch::Apply(&wanted)).await?;
    let patch = json!({"spec": {"replicas": 3}});
    deployments.patch_scale("scaled", &PatchParams::default(), &Patch::Merge(&patch)).await?;
    let scale = deployments.get_scale("scaled").await?;
    ensure!(scale.spec.and_then(|spec| spec.replicas) == Some(3), "three replicas");
    ensure!(scale.status.and_then(|status| status.selector).as_deref() == Some("app=scaled"), "its selector");
    Ok(())
}

async fn invalid(world: &World) -> Result<()> {
    let lamps: Api<Lamp> = world.api();
    let many = Lamp::new("many", LampSpec { bulbs: 101, colour: Colour::White });
    refused(lamps.create(&PostParams::default(), &many).await, 422).context("a rule")?;
    let purple = Patch::Apply(json!({
        "apiVersion": "clients-rust.hanse.test/v1", "kind": "Lamp", "metadata": {"name": "purple"},
        "spec": {"bulbs": 1, "colour": "purple"},
    }));
    refused(lamps.patch("purple", &PatchParams::apply("loops"), &purple).await, 422).context("an enumeration")
}

async fn defaults(world: &World) -> Result<()> {
    let lamps: Api<Lamp> = world.api();
    let wanted = Patch::Apply(json!({
        "apiVersion": "clients-rust.hanse.test/v1", "kind": "Lamp", "metadata": {"name": "plain"},
        "spec": {"bulbs": 1}, "status": {"bulbs": 9},
    }));
    let created = lamps.patch("plain", &PatchParams::apply("loops"), &wanted).await?;
    ensure!(created.spec.colour == Colour::White, "a default");
    ensure!(created.status.is_none(), "no status from a write of the object");
    let mut changed = created.clone();
    changed.spec.bulbs = 5;
    changed.status = Some(Default::default());
    let changed = lamps.replace_status("plain", &PostParams::default(), &changed).await?;
    ensure!(changed.status.is_some() && changed.spec.bulbs == 1, "the status alone");
    ensure!(changed.metadata.generation == Some(1), "no new generation");
    lamps.delete("plain", &DeleteParams::default()).await?;
    Ok(())
}

async fn discovery(world: &World) -> Result<()> {
    let kind = GroupVersionKind::gvk("clients-rust.hanse.test", "v1", "Lamp");
    let all = Discovery::new(world.client.clone()).run_aggregated().await?;
    let (_, capabilities) = all.resolve_gvk(&kind).context("not discovered")?;
    ensure!(capabilities.scope == Scope::Namespaced, "namespaced");
    ensure!(capabilities.subresources.iter().any(|(part, _)| part.plural.ends_with("scale")), "its scale");
    let (resource, _) = oneshot::pinned_kind(&world.client, &kind).await?;
    let lamps: Api<DynamicObject> = Api::namespaced_with(world.client.clone(), &world.namespace, &resource);
    lamps.list(&ListParams::default()).await?;
    let version = world.client.apiserver_version().await?;
    ensure!(version.major == "1", "a version");
    Ok(())
}

fn maps(client: &Client, namespace: &str) -> Api<ConfigMap> {
    Api::namespaced(client.clone(), namespace)
}

async fn watches(world: &World, config: watcher::Config) -> Result<()> {
    let maps = maps(&world.client, &world.namespace);
    for name in ["w1", "w2", "w3", "w4"] {
        maps.create(&PostParams::default(), &map(name, &[])).await?;
    }
    let mut events = watcher::watcher(maps.clone(), config.labels("set=loops")).boxed();
    let mut listed = Vec::new();
    loop {
        match events.try_next().await?.context("the watch ended")? {
            Event::Init => {}
            Event::InitApply(object) => listed.push(object.name_any()),
            Event::InitDone => break,
            other => bail!("{other:?} within the list"),
        }
    }
    ensure!(listed.len() >= 4, "the list, not {listed:?}");
    for name in ["w1", "w2", "w3", "w4"] {
        maps.delete(name, &DeleteParams::default()).await?;
        let event = events.try_next().await?.context("the watch ended")?;
        ensure!(
            matches!(&event, Event::Delete(object) if object.name_any() == name),
            "{name} deleted, not {event:?}"
        );
    }
    Ok(())
}

async fn reflects(world: &World) -> Result<()> {
    let maps = maps(&world.client, &world.namespace);
    let (store, writer) = reflector::store();
    let config = watcher::Config::default().streaming_lists();
    let stream = watcher::watcher(maps.clone(), config).default_backoff().reflect(writer).applied_objects();
    let follower = tokio::spawn(stream.for_each(|_| std::future::ready(())));
    store.wait_until_ready().await?;
    maps.create(&PostParams::default(), &map("mirrored", &[("a", "1")])).await?;
    let key = reflector::ObjectRef::new("mirrored").within(&world.namespace);
    while store.get(&key).is_none() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    maps.delete("mirrored", &DeleteParams::default()).await?;
    while store.get(&key).is_some() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    follower.abort();
    Ok(())
}

async fn watches_metadata(world: &World) -> Result<()> {
    let maps = maps(&world.client, &world.namespace);
    let config = watcher::Config::default().fields("metadata.name=partial").streaming_lists();
    let metadata: Api<PartialObjectMeta<ConfigMap>> = world.api();
    let mut events = watcher::watcher(metadata, config).boxed();
    while !matches!(events.try_next().await?, Some(Event::InitDone)) {}
    maps.create(&PostParams::default(), &map("partial", &[("a", "1")])).await?;
    let event = events.try_next().await?.context("the watch ended")?;
    ensure!(
        matches!(&event, Event::Apply(object) if object.name_any() == "partial"),
        "it applied, not {event:?}"
    );
    Ok(())
}
