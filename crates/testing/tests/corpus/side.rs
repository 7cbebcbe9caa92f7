//! Where applications are tried: one cluster alone, or a hub with the clusters behind it.

use std::collections::BTreeSet;

use anyhow::Result;
use futures_util::{StreamExt, TryStreamExt, stream};
use serde_json::{Value, json};

use super::{
    api::{Api, Served, text},
    bundle::Bundle,
    picture::{Picture, title},
};

/// Of what is left, not counted: what every namespace has (in a member also the token by which pods reach the hub), and
/// what is there for a time only.
const OF_EVERY_NAMESPACE: [&str; 3] =
    ["ServiceAccount default", "ConfigMap kube-root-ca.crt", "Secret hanse-token-default"];
const PASSING: [&str; 2] = ["Event", "Lease"];
/// Asked at once of one server.
const AT_ONCE: usize = 8;

pub struct Side {
    pub name: &'static str,
    /// Where applications are applied.
    pub api: Api,
    /// Where they run, if that is elsewhere.
    pub members: Vec<(String, Api)>,
    /// How others than this program come to where applications are applied.
    pub door: Door,
}

/// An address, and who signed for it.
#[derive(Clone)]
pub struct Door {
    pub url: String,
    pub ca_pem: String,
}

impl Side {
    /// The clusters that run pods.
    pub fn clusters(&self) -> Vec<&Api> {
        match self.members.is_empty() {
            true => vec![&self.api],
            false => self.members.iter().map(|(_, api)| api).collect(),
        }
    }

    /// What can be seen of an application now. The objects that were applied, and pods, are looked at where they were
    /// applied; what else controllers make of them, where they run.
    pub async fn picture(&self, bundle: &Bundle) -> Result<Picture> {
        let mut picture = Picture::default();
        for object in bundle.contents() {
            let found = self.api.get(object, &bundle.name).await?;
            picture.add(object, found.as_ref(), &bundle.name);
        }
        for namespace in bundle.namespaces() {
            let namespace = text(&namespace, "/metadata/name");
            let sets = listed(&[&self.api], "apps/v1", "ReplicaSet", namespace).await?;
            let pods = listed(&[&self.api], "v1", "Pod", namespace).await?;
            let between = [sets.clone(), pods.clone()].concat();
            picture.add_made(&made(pods, bundle), &between, &bundle.name);
            picture.add_made(&made(sets, bundle), &between, &bundle.name);
            for (version, kind) in [("v1", "PersistentVolumeClaim"), ("batch/v1", "Job")] {
                let all = listed(&self.clusters(), version, kind, namespace).await?;
                picture.add_made(&made(all, bundle), &between, &bundle.name);
            }
            let slices = listed(&self.clusters(), "discovery.k8s.io/v1", "EndpointSlice", namespace).await?;
            picture.add_endpoints(&slices, &bundle.name);
        }
        Ok(picture)
    }

    /// Kinds of objects that controllers made in the clusters and that are not seen where the application was applied.
    pub async fn hidden(&self, bundle: &Bundle) -> Result<BTreeSet<String>> {
        let mut hidden = BTreeSet::new();
        if self.members.is_empty() {
            return Ok(hidden);
        }
        let kinds =
            [("v1", "PersistentVolumeClaim"), ("batch/v1", "Job"), ("discovery.k8s.io/v1", "EndpointSlice")];
        for namespace in bundle.namespaces() {
            let namespace = text(&namespace, "/metadata/name");
            for (version, kind) in kinds {
                let there = made(listed(&self.clusters(), version, kind, namespace).await?, bundle);
                let here = listed(&[&self.api], version, kind, namespace).await?;
                if there.len() > made(here, bundle).len() {
                    hidden.insert(kind.to_owned());
                }
            }
        }
        Ok(hidden)
    }

    /// What is in the namespaces of an application, where it was applied and where it runs, and what of it is in none.
    pub async fn left(&self, bundle: &Bundle) -> Result<BTreeSet<String>> {
        let mut left = BTreeSet::new();
        let mut servers = vec![&self.api];
        servers.extend(self.members.iter().map(|(_, api)| api));
        for api in servers {
            for object in bundle.contents() {
                if let Some(found) = api.get(object, &bundle.name).await? {
                    left.insert(title(&found, &bundle.name));
                }
            }
            for namespace in bundle.namespaces() {
                left.extend(in_namespace(api, text(&namespace, "/metadata/name"), &bundle.name).await?);
            }
        }
        Ok(left)
    }

    /// What is left of the namespaces themselves, and of the volumes of what was in them.
    pub async fn left_of_namespaces(&self, bundle: &Bundle) -> Result<BTreeSet<String>> {
        let mut left = BTreeSet::new();
        let namespaces = bundle.namespaces();
        let is_one = |name: &str| namespaces.iter().any(|it| it["metadata"]["name"] == name);
        let mut servers = vec![&self.api];
        servers.extend(self.members.iter().map(|(_, api)| api));
        for api in servers {
            for namespace in &namespaces {
                if api.get(namespace, "").await?.is_some() {
                    left.insert(title(namespace, ""));
                }
            }
            let volume = api.served(&json!({"apiVersion": "v1", "kind": "PersistentVolume"})).await?;
            let volumes = api.list(&volume, None).await?;
            let of_it = |it: &&Value| is_one(text(it, "/spec/claimRef/namespace"));
            left.extend(
                volumes
                    .iter()
                    .filter(of_it)
                    .map(|it| format!("PersistentVolume of {}", text(it, "/spec/claimRef/name"))),
            );
        }
        Ok(left)
    }

    /// All that clusters hold, by the cluster, but for what Hanse has there for itself.
    pub async fn inventory(&self) -> Result<BTreeSet<String>> {
        let mut all = BTreeSet::new();
        for (cluster, api) in &self.members {
            for kind in api.everything().await?.into_iter().filter(|it| !PASSING.contains(&it.kind.as_str()))
            {
                let items = api.list(&kind, None).await?;
                let items = items.iter().filter(|it| it["metadata"]["namespace"] != "hanse-system");
                all.extend(items.map(|it| {
                    let of = |at: &str| text(it, at);
                    format!("{cluster}: {} {}/{}", kind.kind, of("/metadata/namespace"), of("/metadata/name"))
                }));
            }
        }
        Ok(all)
    }
}

/// Objects of a kind in a namespace of several servers, each with the kind that lists leave out.
pub async fn listed(apis: &[&Api], version: &str, kind: &str, namespace: &str) -> Result<Vec<Value>> {
    let mut all = Vec::new();
    for api in apis {
        let served = api.served(&json!({"apiVersion": version, "kind": kind})).await?;
        for mut object in api.list(&served, Some(namespace)).await? {
            object["apiVersion"] = version.into();
            object["kind"] = kind.into();
            all.push(object);
        }
    }
    Ok(all)
}

/// Those that the bundle does not name itself.
pub fn made(objects: Vec<Value>, bundle: &Bundle) -> Vec<Value> {
    let own: BTreeSet<String> = bundle.contents().map(|it| title(it, &bundle.name)).collect();
    objects.into_iter().filter(|it| !own.contains(&title(it, &bundle.name))).collect()
}

async fn in_namespace(api: &Api, namespace: &str, home: &str) -> Result<BTreeSet<String>> {
    let kinds = api.everything().await?;
    let namespaced = kinds.into_iter().filter(|it| it.namespaced && !PASSING.contains(&it.kind.as_str()));
    let list = |kind: Served| async move {
        let items = api.list(&kind, Some(namespace)).await?;
        let named = items.into_iter().map(|mut it| {
            it["kind"] = kind.kind.clone().into();
            it
        });
        anyhow::Ok(named.collect::<Vec<Value>>())
    };
    let lists: Vec<Vec<Value>> =
        stream::iter(namespaced.map(list)).buffer_unordered(AT_ONCE).try_collect().await?;
    let is_left = |it: &Value| {
        let short = format!("{} {}", text(it, "/kind"), text(it, "/metadata/name"));
        // A namespace is assigned as long as it lives.
        let of_namespace = it["kind"] == "Assignment" && it["spec"]["object"]["kind"] == "Namespace";
        !OF_EVERY_NAMESPACE.contains(&short.as_str()) && !of_namespace
    };
    Ok(lists.into_iter().flatten().filter(is_left).map(|it| title(&it, home)).collect())
}
