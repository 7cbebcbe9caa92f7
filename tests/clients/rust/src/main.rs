//! A controller written with kube-rs: a derived custom resource, owned objects by server-side apply, a finalizer,
//! watchers that stream their lists, reflectors, and what else its client can do.

mod client;
mod controller;
mod lamp;
mod suite;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Client, CustomResourceExt, ResourceExt};

use crate::lamp::Lamp;
use crate::suite::{Suite, eventually};

/// What every check needs.
struct World {
    client: Client,
    namespace: String,
}

impl World {
    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let client = Client::try_default().await.context("KUBECONFIG names no server")?;
    let world = World { client, namespace: suite::unique("clients-rust") };
    let mut suite = Suite::default();

    suite.run("a namespace is made", create_namespace(&world)).await;
    suite.run("a derived definition is applied and established", define(&world)).await;
    client::checks(&world, &mut suite).await;
    controller::checks(&world, &mut suite).await;
    suite.run("the definition goes", undefine(&world)).await;
    suite.run("the namespace goes", delete_namespace(&world)).await;
    suite.finish()
}

async fn create_namespace(world: &World) -> Result<()> {
    let metadata = ObjectMeta { name: Some(world.namespace.clone()), ..ObjectMeta::default() };
    let namespace = Namespace { metadata, ..Namespace::default() };
    Api::all(world.client.clone()).create(&PostParams::default(), &namespace).await?;
    Ok(())
}

async fn delete_namespace(world: &World) -> Result<()> {
    let namespaces: Api<Namespace> = Api::all(world.client.clone());
    namespaces.delete(&world.namespace, &DeleteParams::default()).await?;
    eventually("the namespace is still there", async || {
        Ok(namespaces.get_opt(&world.namespace).await?.is_none())
    })
    .await
}

async fn define(world: &World) -> Result<()> {
    let definitions: Api<CustomResourceDefinition> = Api::all(world.client.clone());
    let wanted = Lamp::crd();
    if let Some(left) = definitions.get_opt(&wanted.name_any()).await?
        && left.metadata.deletion_timestamp.is_some()
    {
        let uid = left.uid().context("no uid")?;
        await_condition(definitions.clone(), &wanted.name_any(), conditions::is_deleted(&uid)).await?;
    }
    definitions
        .patch(&wanted.name_any(), &PatchParams::apply("loops").force(), &Patch::Apply(&wanted))
        .await?;
    await_condition(definitions.clone(), &wanted.name_any(), conditions::is_crd_established()).await?;
    let found = definitions.get(&wanted.name_any()).await?;
    ensure!(found.spec.names.categories.as_deref() == Some(&["lights".to_owned()][..]), "its category");
    Ok(())
}

async fn undefine(world: &World) -> Result<()> {
    // What an earlier check should not have been able to make may still be held by the controller's finalizer.
    let lamps: Api<Lamp> = world.api();
    for left in lamps.list(&ListParams::default()).await? {
        let released = serde_json::json!({"metadata": {"finalizers": null}});
        lamps.patch(&left.name_any(), &PatchParams::default(), &Patch::Merge(&released)).await?;
    }
    let definitions: Api<CustomResourceDefinition> = Api::all(world.client.clone());
    definitions.delete(Lamp::crd_name(), &DeleteParams::default()).await?;
    eventually("the definition is still there", async || {
        Ok(definitions.get_opt(Lamp::crd_name()).await?.is_none())
    })
    .await
}
