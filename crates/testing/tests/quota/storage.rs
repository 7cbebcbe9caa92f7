//! Storage that is in use stays, and goes when it is not any more.

use anyhow::Result;
use http::StatusCode;
use serde_json::{Value, json};
use testing::{client::Client, hub::eventually};

use crate::{NAMESPACE, mk, mk_hub, refusal};

async fn eventually_gone(client: &Client, path: &str) -> Result<()> {
    eventually(&format!("{path} is gone"), async || {
        Ok((client.get(path).await?.code == StatusCode::NOT_FOUND).then_some(()))
    })
    .await
}

fn mk_claim(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"storageClassName": "fast", "accessModes": ["ReadWriteOnce"],
        "volumeAttributesClassName": "gold", "resources": {"requests": {"storage": "1Gi"}}}})
}

#[tokio::test]
async fn a_claim_goes_when_no_pod_on_a_node_uses_it() -> Result<()> {
    let (_hub, client) = mk_hub().await?;
    let claims = format!("{NAMESPACE}/persistentvolumeclaims");
    let claim = mk(&client, &claims, mk_claim("used")).await?;
    assert_eq!(claim["metadata"]["finalizers"], json!(["kubernetes.io/pvc-protection"]));
    mk(&client, &claims, mk_claim("unused")).await?;
    let pod = json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n",
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "used"}}],
        "containers": [{"name": "c", "image": "i"}]}});
    mk(&client, &format!("{NAMESPACE}/pods"), pod).await?;
    for name in ["used", "unused"] {
        client.delete(&format!("{claims}/{name}")).await?;
    }
    eventually_gone(&client, &format!("{claims}/unused")).await?;
    assert_eq!(client.get(&format!("{claims}/used")).await?.code, StatusCode::OK);
    client.delete(&format!("{NAMESPACE}/pods/p?gracePeriodSeconds=0")).await?;
    eventually_gone(&client, &format!("{claims}/used")).await
}

#[tokio::test]
async fn a_volume_and_a_class_go_when_nothing_is_bound_to_them() -> Result<()> {
    let (_hub, client) = mk_hub().await?;
    let volumes = "/api/v1/persistentvolumes";
    let volume = json!({"metadata": {"name": "v"}, "spec": {"capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}}});
    let made = mk(&client, volumes, volume).await?;
    assert_eq!(made["metadata"]["finalizers"], json!(["kubernetes.io/pv-protection"]));
    client.merge_patch(&format!("{volumes}/v/status"), &json!({"status": {"phase": "Bound"}})).await?;
    client.delete(&format!("{volumes}/v")).await?;
    assert_eq!(client.get(&format!("{volumes}/v")).await?.code, StatusCode::OK);
    client.merge_patch(&format!("{volumes}/v/status"), &json!({"status": {"phase": "Released"}})).await?;
    eventually_gone(&client, &format!("{volumes}/v")).await?;
    let classes = "/apis/storage.k8s.io/v1/volumeattributesclasses";
    let class =
        json!({"metadata": {"name": "gold"}, "driverName": "example.com/disk", "parameters": {"a": "b"}});
    mk(&client, classes, class).await?;
    let claims = format!("{NAMESPACE}/persistentvolumeclaims");
    mk(&client, &claims, mk_claim("c")).await?;
    client.delete(&format!("{classes}/gold")).await?;
    assert_eq!(client.get(&format!("{classes}/gold")).await?.code, StatusCode::OK);
    client.delete(&format!("{claims}/c")).await?;
    eventually_gone(&client, &format!("{classes}/gold")).await
}

#[tokio::test]
async fn a_namespace_with_claims_can_be_deleted() -> Result<()> {
    let (_hub, client) = mk_hub().await?;
    mk(&client, &format!("{NAMESPACE}/persistentvolumeclaims"), mk_claim("c")).await?;
    client.delete(NAMESPACE).await?;
    eventually_gone(&client, NAMESPACE).await
}

#[tokio::test]
async fn only_bound_claims_grow_and_only_where_the_class_allows_it() -> Result<()> {
    let (_hub, client) = mk_hub().await?;
    let claims = format!("{NAMESPACE}/persistentvolumeclaims");
    mk(&client, &claims, mk_claim("c")).await?;
    let grow = async || {
        let larger = json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}});
        client.merge_patch(&format!("{claims}/c"), &larger).await
    };
    // Not bound: that is the kind's own rule.
    assert_eq!(grow().await?.code, StatusCode::UNPROCESSABLE_ENTITY);
    client.merge_patch(&format!("{claims}/c/status"), &json!({"status": {"phase": "Bound"}})).await?;
    assert_eq!(
        refusal(&grow().await?),
        "persistentvolumeclaims \"c\" is forbidden: only dynamically provisioned pvc can be resized and the \
         storageclass that provisions the pvc must support resize"
    );
    let class =
        json!({"metadata": {"name": "fast"}, "provisioner": "example.com/x", "allowVolumeExpansion": true});
    mk(&client, "/apis/storage.k8s.io/v1/storageclasses", class).await?;
    assert_eq!(grow().await?.code, StatusCode::OK);
    Ok(())
}
