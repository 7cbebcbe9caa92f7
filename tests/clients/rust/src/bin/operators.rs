//! Operators of the sorts that people write with kube-rs. They know nothing of Hanse; where the server is they find out as all
//! do, by `KUBECONFIG` or by what a pod is given.
//!
//! ```text
//! operators mesh | store | vault
//! ```

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use futures::StreamExt as _;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kube::core::NamespaceResourceScope;
use kube::runtime::controller::{Action, Controller};
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::runtime::finalizer::{Event as Finish, finalizer};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher;
use kube::{Client, CustomResource, KubeSchema, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

const GROUP: &str = "operators.hanse.test";
/// By which what an operator applies is known as its own.
const MANAGER: &str = "kube-rs-operators";

#[derive(CustomResource, Serialize, Deserialize, Debug, Clone, PartialEq, KubeSchema)]
#[kube(group = "operators.hanse.test", version = "v1", kind = "Store", namespaced)]
pub struct StoreSpec {
    replicas: i32,
    settings: BTreeMap<String, String>,
}

#[derive(CustomResource, Serialize, Deserialize, Debug, Clone, PartialEq, KubeSchema)]
#[kube(group = "operators.hanse.test", version = "v1", kind = "Vault", namespaced)]
pub struct VaultSpec {
    policy: String,
}

#[derive(CustomResource, Serialize, Deserialize, Debug, Clone, PartialEq, KubeSchema)]
#[kube(group = "operators.hanse.test", version = "v1", kind = "Mesh", namespaced)]
pub struct MeshSpec {
    /// Of Services.
    label: String,
}

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Kube(#[from] kube::Error),
    #[error("its finalizer: {0}")]
    Finalizer(String),
}

struct Operator {
    client: Client,
    recorder: Recorder,
    /// Its own namespace.
    home: String,
}

impl Operator {
    fn api<K>(&self, namespace: &str) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), namespace)
    }

    async fn apply<K>(&self, namespace: &str, object: Value) -> kube::Result<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        self.api(namespace).patch(&name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(object)).await
    }

    /// By server-side apply, which changes nothing where nothing is new.
    async fn tell<K>(&self, resource: &K, mut status: Value, missing: &str) -> kube::Result<()>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        let ready = missing.is_empty();
        let (status_of, reason) = if ready { ("True", "Done") } else { ("False", "Waiting") };
        status["observedGeneration"] = json!(resource.meta().generation);
        status["conditions"] =
            json!([{"type": "Ready", "status": status_of, "reason": reason, "message": missing}]);
        let patch = json!({
            "apiVersion": K::api_version(&()), "kind": K::kind(&()),
            "metadata": {"name": resource.name_any()}, "status": status,
        });
        let api: Api<K> = self.api(&resource.namespace().unwrap_or_default());
        let how = PatchParams::apply("kube-rs-status").force();
        api.patch_status(&resource.name_any(), &how, &Patch::Apply(patch)).await.map(drop)
    }
}

fn owned<K: Resource<DynamicType = ()>>(resource: &K, name: &str) -> Value {
    json!({"name": name, "ownerReferences": resource.controller_owner_ref(&()), "labels": {"made-by": MANAGER}})
}

/// Settings, a Deployment that is rolled when they change, and a Service, all by server-side apply.
async fn store(store: Arc<Store>, operator: Arc<Operator>) -> Result<Action, Failure> {
    let (name, namespace) = (store.name_any(), store.namespace().unwrap_or_default());
    if store.metadata.deletion_timestamp.is_some() {
        return Ok(Action::await_change());
    }
    let labels = json!({"store": name});
    let settings =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": owned(&*store, &name), "data": store.spec.settings});
    operator.apply::<ConfigMap>(&namespace, settings).await?;
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": owned(&*store, &name),
        "spec": {"selector": labels, "ports": [{"name": "main", "port": 6379}]},
    });
    operator.apply::<Service>(&namespace, service).await?;
    let container = json!({
        "name": "store", "image": "example.com/store:1", "ports": [{"containerPort": 6379}],
        "envFrom": [{"configMapRef": {"name": name}}],
    });
    let of_settings = json!({"settings": json!(store.spec.settings).to_string()});
    let wanted = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": owned(&*store, &name),
        "spec": {"replicas": store.spec.replicas, "selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels, "annotations": of_settings}, "spec": {"containers": [container]},
        }},
    });
    let live: Deployment = operator.apply(&namespace, wanted).await?;
    let (status, all) = (live.status.unwrap_or_default(), Some(store.spec.replicas));
    let done = status.observed_generation == live.metadata.generation
        && [status.available_replicas, status.updated_replicas, status.replicas].iter().all(|it| *it == all);
    let missing = if done { "" } else { "the Deployment rolls out" };
    operator.tell(&*store, json!({"available": status.available_replicas.unwrap_or(0)}), missing).await?;
    Ok(Action::await_change())
}

/// Something elsewhere, which goes by a finalizer, and events that say so.
async fn vault(vault: Arc<Vault>, operator: Arc<Operator>) -> Result<Action, Failure> {
    let api: Api<Vault> = operator.api(&vault.namespace().unwrap_or_default());
    let elsewhere = format!("{}-{}", vault.namespace().unwrap_or_default(), vault.name_any());
    let work = async |event: Finish<Vault>| {
        match event {
            Finish::Apply(vault) => {
                let wanted = json!({
                    "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": elsewhere}, "data": {"policy": vault.spec.policy},
                });
                operator.apply::<ConfigMap>(&operator.home, wanted).await?;
                let event = Event {
                    type_: EventType::Normal,
                    reason: "Sealed".to_owned(),
                    note: Some(format!("by {}", vault.spec.policy)),
                    action: "Seal".to_owned(),
                    secondary: None,
                };
                operator.recorder.publish(&event, &vault.object_ref(&())).await?;
                operator.tell(&*vault, json!({"policy": vault.spec.policy}), "").await?;
            }
            Finish::Cleanup(_) => {
                let there: Api<ConfigMap> = operator.api(&operator.home);
                match there.delete(&elsewhere, &DeleteParams::default()).await {
                    Err(kube::Error::Api(status)) if status.code == 404 => {}
                    other => drop(other?),
                }
            }
        }
        Ok::<Action, kube::Error>(Action::await_change())
    };
    let done = finalizer(&api, &format!("{GROUP}/vault"), vault, work).await;
    done.map_err(|error| Failure::Finalizer(error.to_string()))
}

/// A list of the Services that a label selects.
async fn mesh(mesh: Arc<Mesh>, operator: Arc<Operator>) -> Result<Action, Failure> {
    let (name, namespace) = (mesh.name_any(), mesh.namespace().unwrap_or_default());
    if mesh.metadata.deletion_timestamp.is_some() {
        return Ok(Action::await_change());
    }
    let services: Api<Service> = operator.api(&namespace);
    let found = services.list(&ListParams::default().labels(&mesh.spec.label)).await?;
    let port = |it: &Service| Some(it.spec.as_ref()?.ports.as_ref()?.first()?.port.to_string());
    let table: BTreeMap<String, String> =
        found.iter().map(|it| (it.name_any(), port(it).unwrap_or_default())).collect();
    let wanted =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": owned(&*mesh, &name), "data": table});
    operator.apply::<ConfigMap>(&namespace, wanted).await?;
    operator.tell(&*mesh, json!({"services": table.len()}), "").await?;
    Ok(Action::await_change())
}

fn again<K>(_: Arc<K>, error: &Failure, _: Arc<Operator>) -> Action {
    eprintln!("{error}");
    Action::requeue(Duration::from_millis(500))
}

#[tokio::main]
async fn main() -> Result<()> {
    let client = Client::try_default().await?;
    let reporter = Reporter { controller: MANAGER.to_owned(), instance: None };
    let home = std::env::var("POD_NAMESPACE").unwrap_or_else(|_| "default".to_owned());
    let operator =
        Arc::new(Operator { recorder: Recorder::new(client.clone(), reporter), client: client.clone(), home });
    let config = watcher::Config::default().streaming_lists();
    match std::env::args().nth(1).as_deref() {
        Some("store") => {
            Controller::new(Api::<Store>::all(client.clone()), config.clone())
                .owns(Api::<Deployment>::all(client.clone()), config.clone())
                .owns(Api::<ConfigMap>::all(client.clone()), config.clone())
                .owns(Api::<Service>::all(client), config)
                .run(store, again, operator)
                .for_each(|_| std::future::ready(()))
                .await;
        }
        Some("vault") => {
            Controller::new(Api::<Vault>::all(client), config)
                .run(vault, again, operator)
                .for_each(|_| std::future::ready(()))
                .await;
        }
        Some("mesh") => {
            let controller = Controller::new(Api::<Mesh>::all(client.clone()), config.clone());
            let meshes = controller.store();
            let same_place = move |service: Service| {
                let of = |it: &Arc<Mesh>| it.namespace() == service.namespace();
                let all: Vec<ObjectRef<Mesh>> =
                    meshes.state().iter().filter(|it| of(it)).map(|it| ObjectRef::from_obj(&**it)).collect();
                all
            };
            controller
                .owns(Api::<ConfigMap>::all(client.clone()), config.clone())
                .watches(Api::<Service>::all(client), config, same_place)
                .run(mesh, again, operator)
                .for_each(|_| std::future::ready(()))
                .await;
        }
        _ => bail!("usage: operators mesh | store | vault"),
    }
    Ok(())
}
