//! What every cluster has from its provider, and a control plane alone has not: addresses for load balancers and
//! Ingresses, volumes for claims, and classes for both. The same for all clusters here, real and simulated; those that
//! make volumes by themselves go on doing so.

use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::api::{Api, Served, text};

const EVERY: Duration = Duration::from_millis(250);
const PROVISIONER: &str = "volumes.corpus.example.com";
/// Of those that are set aside for documentation.
const ADDRESS: &str = "203.0.113.10";

/// It works until it is dropped.
pub struct Cloud(JoinHandle<()>);

impl Drop for Cloud {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Cloud {
    /// Serves the cluster from now on. `volumes`: it has no class for them yet.
    pub async fn over(api: Api, volumes: bool) -> Result<Cloud> {
        give_classes(&api, volumes).await?;
        let kind = |version: &str, kind: &str| json!({"apiVersion": version, "kind": kind});
        let served = Kinds {
            services: api.served(&kind("v1", "Service")).await?,
            ingresses: api.served(&kind("networking.k8s.io/v1", "Ingress")).await?,
            claims: api.served(&kind("v1", "PersistentVolumeClaim")).await?,
            volumes: api.served(&kind("v1", "PersistentVolume")).await?,
        };
        let work = async move {
            loop {
                // What fails is done in the next round.
                if let Err(error) = serve(&api, &served).await {
                    eprintln!("the cloud: {error:#}");
                }
                tokio::time::sleep(EVERY).await;
            }
        };
        Ok(Cloud(tokio::spawn(work)))
    }
}

/// What objects may name.
pub async fn give_classes(api: &Api, volumes: bool) -> Result<()> {
    api.apply(&ingress_class(), "").await?;
    if volumes {
        api.apply(&storage_class(), "").await?;
    }
    Ok(())
}

struct Kinds {
    services: Served,
    ingresses: Served,
    claims: Served,
    volumes: Served,
}

fn ingress_class() -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "IngressClass",
        "metadata": {"name": "nginx", "annotations": {"ingressclass.kubernetes.io/is-default-class": "true"}},
        "spec": {"controller": "ingress.corpus.example.com/nginx"},
    })
}

fn storage_class() -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
        "metadata": {"name": "standard", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": PROVISIONER,
    })
}

async fn serve(api: &Api, kinds: &Kinds) -> Result<()> {
    for service in api.list(&kinds.services, None).await? {
        if service["spec"]["type"] == "LoadBalancer" {
            give_address(api, &kinds.services, &service).await?;
        }
    }
    for ingress in api.list(&kinds.ingresses, None).await? {
        give_address(api, &kinds.ingresses, &ingress).await?;
    }
    for claim in api.list(&kinds.claims, None).await? {
        let provisioner = text(&claim, "/metadata/annotations/volume.kubernetes.io~1storage-provisioner");
        if claim["status"]["phase"] == "Pending" && provisioner == PROVISIONER {
            api.apply(&volume_for(&claim), "").await?;
        }
    }
    for volume in api.list(&kinds.volumes, None).await? {
        let by = text(&volume, "/metadata/annotations/pv.kubernetes.io~1provisioned-by");
        if volume["status"]["phase"] == "Released" && by == PROVISIONER {
            let named =
                json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": volume["metadata"]});
            api.delete(&named, "").await?;
        }
    }
    Ok(())
}

async fn give_address(api: &Api, kind: &Served, object: &Value) -> Result<()> {
    let has = object["status"]["loadBalancer"]["ingress"].as_array().is_some_and(|it| !it.is_empty());
    if has || object["metadata"]["deletionTimestamp"].is_string() {
        return Ok(());
    }
    let (namespace, name) = (text(object, "/metadata/namespace"), text(object, "/metadata/name"));
    let path = format!("{}/namespaces/{namespace}/{}/{name}/status", kind.root, kind.plural);
    api.merge(&path, &json!({"status": {"loadBalancer": {"ingress": [{"ip": ADDRESS}]}}})).await
}

fn volume_for(claim: &Value) -> Value {
    let name = format!("pvc-{}", text(claim, "/metadata/uid"));
    json!({
        "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": {"pv.kubernetes.io/provisioned-by": PROVISIONER}},
        "spec": {
            "accessModes": claim["spec"]["accessModes"],
            "capacity": {"storage": claim["spec"]["resources"]["requests"]["storage"]},
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": claim["spec"]["storageClassName"],
            "volumeMode": claim["spec"]["volumeMode"],
            "hostPath": {"path": format!("/volumes/{name}")},
            "claimRef": {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "namespace": claim["metadata"]["namespace"], "name": claim["metadata"]["name"],
                "uid": claim["metadata"]["uid"],
            },
        },
    })
}
