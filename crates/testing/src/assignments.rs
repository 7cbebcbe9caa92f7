//! Assignments as the placement controller writes them, for tests that run without it.

use anyhow::{Context, Result};
use machinery::Draft;
use serde_json::{Value, json};
use server::Hub;
use store::{Change, Commit, Expect, Key, Write};

/// Assigns a ConfigMap of that name to clusters, by name and UID of each; none: it is assigned to nobody any more.
pub async fn assign(
    hub: &Hub,
    workspace: &str,
    namespace: &str,
    object: &str,
    clusters: &[(&str, &str)],
) -> Result<()> {
    write(hub, (workspace, namespace), ("ConfigMap", "configmaps", object), clusters).await
}

/// As [`assign`], for a namespace itself.
pub async fn assign_namespace(
    hub: &Hub,
    workspace: &str,
    namespace: &str,
    clusters: &[(&str, &str)],
) -> Result<()> {
    write(hub, (workspace, namespace), ("Namespace", "namespaces", namespace), clusters).await
}

async fn write(
    hub: &Hub,
    (workspace, namespace): (&str, &str),
    (kind, resource, object): (&str, &str, &str),
    clusters: &[(&str, &str)],
) -> Result<()> {
    let space = hub.space(workspace).map_err(|status| anyhow::anyhow!("{}", status.message()))?;
    let name = api::assignment::name_of("", resource, object);
    let key = Key::new(api::GROUP, api::assignment::PLURAL, namespace, &name);
    let entries: Vec<Value> = clusters.iter().map(|(name, uid)| json!({"name": name, "uid": uid})).collect();
    let tree = json!({
        "apiVersion": api::API_VERSION, "kind": api::assignment::KIND,
        "metadata": {
            "name": name, "namespace": namespace, "uid": hub.new_uid(), "creationTimestamp": hub.now_text(),
        },
        "spec": {
            "object": {
                "apiVersion": "v1", "kind": kind, "resource": resource, "name": object, "uid": "u",
            },
            "clusters": entries,
        },
    });
    let tree = tree.as_object().context("an object")?;
    let change = match clusters.is_empty() {
        true => Change::Remove,
        false => Change::Put { draft: Draft::encode(tree)?, expires: None },
    };
    let writes = vec![Write { key, expect: Expect::Anything, change }];
    hub.store.commit(space.id(), Commit { guards: Vec::new(), writes }).await?;
    Ok(())
}
