//! A hand that assigns objects to clusters, and looks at what came of it.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use api::assignment::{Assignment, Reference, Report, Spec, State, Target, name_of};
use env::Env;
use machinery::{Draft, Object};
use serde_json::{Map, Value, json};
use server::Hub;
use store::{Change, Commit, Expect, Key, WorkspaceId, Write};
use sync::{client::Access, kubeconfig::Kubeconfig};
use testing::{client::Client, hub::eventually, simulated::TestClusters};

use crate::world::{CLUSTERS, Members, World};

/// One workspace of the hub.
pub struct Hand<'a> {
    world: &'a World,
    pub workspace: String,
    id: WorkspaceId,
}

/// `/api/v1/namespaces/shop/configmaps/a`: where an object is.
pub struct Spot {
    pub group: &'static str,
    pub version: &'static str,
    pub plural: &'static str,
    pub kind: &'static str,
}

pub const NAMESPACE: Spot = Spot { group: "", version: "v1", plural: "namespaces", kind: "Namespace" };
pub const CONFIG_MAP: Spot = Spot { group: "", version: "v1", plural: "configmaps", kind: "ConfigMap" };
pub const POD: Spot = Spot { group: "", version: "v1", plural: "pods", kind: "Pod" };
pub const SECRET: Spot = Spot { group: "", version: "v1", plural: "secrets", kind: "Secret" };
pub const DEPLOYMENT: Spot = Spot { group: "apps", version: "v1", plural: "deployments", kind: "Deployment" };
pub const AUTOSCALER: Spot = Spot {
    group: "autoscaling",
    version: "v2",
    plural: "horizontalpodautoscalers",
    kind: "HorizontalPodAutoscaler",
};

/// A kind that somebody defined.
pub const CREW: Spot = Spot { group: "example.com", version: "v1", plural: "crews", kind: "Crew" };

pub fn crews() -> Value {
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let schema = json!({"type": "object", "properties": {"spec": open, "status": open}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "crews.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "crews", "singular": "crew", "kind": "Crew", "listKind": "CrewList"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": schema},
            }],
        },
    })
}

/// Defines it; waits until it is served.
pub async fn define_crews(client: &Client, prefix: &str) -> Result<()> {
    let path = format!("{prefix}/apis/apiextensions.k8s.io/v1/customresourcedefinitions");
    let made = client.post(&path, &crews()).await?;
    ensure!(made.code == 201, "{}", made.text());
    let path = format!("{prefix}{}", CREW.path("", ""));
    let is_served = || async { Ok((client.get(&path).await?.code == 200).then_some(())) };
    eventually("crews are served", is_served).await
}

impl Spot {
    fn api_version(&self) -> String {
        match self.group {
            "" => self.version.to_owned(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// Of one object in a namespace; of all, if the name is empty.
    pub fn path(&self, namespace: &str, name: &str) -> String {
        let root = if self.group.is_empty() { "/api" } else { "/apis" };
        let within = match (self.plural, namespace) {
            ("namespaces", _) | (_, "") => String::new(),
            (_, namespace) => format!("/namespaces/{namespace}"),
        };
        let name = if name.is_empty() { String::new() } else { format!("/{name}") };
        format!("{root}/{}{within}/{}{name}", self.api_version(), self.plural)
    }
}

pub fn target(name: &str) -> Target {
    Target { name: name.into(), ..Target::default() }
}

pub fn share(name: &str, replicas: u64) -> Target {
    Target { replicas: Some(replicas), ..target(name) }
}

pub fn draining(name: &str) -> Target {
    Target { state: State::Draining, ..target(name) }
}

impl<'a> Hand<'a> {
    pub fn new(world: &'a World) -> Hand<'a> {
        Hand { world, workspace: "default".into(), id: server::hub::default_id() }
    }

    /// Of another workspace, which is made.
    pub async fn of(world: &'a World, workspace: &str) -> Result<Hand<'a>> {
        let body = json!({"metadata": {"name": workspace}});
        world.admin.post("/clusters/root/apis/hanse.io/v1alpha1/workspaces", &body).await?;
        let id = world.hub.peer.hub.space(workspace).map_err(|it| anyhow::anyhow!("{it:?}"))?.id().clone();
        Ok(Hand { world, workspace: workspace.into(), id })
    }

    fn hub(&self) -> &Arc<Hub> {
        &self.world.hub.peer.hub
    }

    fn admin(&self) -> &Client {
        &self.world.admin
    }

    fn in_workspace(&self, path: &str) -> String {
        format!("/clusters/{}{path}", self.workspace)
    }

    pub async fn get(&self, path: &str) -> Result<Value> {
        Ok(self.admin().get(&self.in_workspace(path)).await?.json())
    }

    /// Makes an object in the workspace, as a user does.
    pub async fn make(&self, spot: &Spot, namespace: &str, object: Value) -> Result<Value> {
        let path = self.in_workspace(&spot.path(namespace, ""));
        let made = self.admin().post(&path, &object).await?;
        ensure!(made.code == 201, "{path}: {}", made.text());
        Ok(made.json())
    }

    /// Answers what it is then.
    pub async fn patch(&self, spot: &Spot, namespace: &str, name: &str, change: Value) -> Result<Value> {
        let path = self.in_workspace(&spot.path(namespace, name));
        let done = self.admin().merge_patch(&path, &change).await?;
        ensure!(done.code == 200, "{path}: {}", done.text());
        Ok(done.json())
    }

    async fn uid(&self, target: &Target) -> Result<String> {
        if !target.uid.is_empty() {
            return Ok(target.uid.clone());
        }
        let cluster = self.admin().get(&format!("{CLUSTERS}/{}", target.name)).await?.json();
        Ok(cluster["metadata"]["uid"].as_str().context("there is no such cluster")?.to_owned())
    }

    fn key(&self, spot: &Spot, namespace: &str, name: &str) -> Key {
        Key::new(api::GROUP, api::assignment::PLURAL, namespace, &name_of(spot.group, spot.plural, name))
    }

    fn stored(&self, key: &Key) -> Option<Arc<Object>> {
        self.hub().store.get(&self.id, key)
    }

    /// Writes, as whoever decides does; `None`: removes.
    async fn write(&self, key: &Key, change: impl Fn(&mut Map<String, Value>) -> Result<bool>) -> Result<()> {
        loop {
            let old = self.stored(key);
            let mut tree = match &old {
                Some(old) => old.tree()?,
                None => Map::new(),
            };
            let change = match change(&mut tree)? {
                true => Change::Put { draft: Draft::encode(&tree)?, expires: None },
                false => Change::Remove,
            };
            let expect = old.map_or(Expect::Absent, |old| Expect::At(old.revision));
            let writes = vec![Write { key: key.clone(), expect, change }];
            match self.hub().store.commit(&self.id, Commit { guards: Vec::new(), writes }).await {
                Ok(_) => return Ok(()),
                Err(store::Error::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Says where an object runs; it must be there.
    pub async fn assign(&self, spot: &Spot, namespace: &str, name: &str, targets: &[Target]) -> Result<()> {
        self.assign_as(spot, namespace, name, targets, |_| {}).await
    }

    pub async fn assign_as(
        &self,
        spot: &Spot,
        namespace: &str,
        name: &str,
        targets: &[Target],
        more: impl Fn(&mut Spec),
    ) -> Result<()> {
        let object = self.get(&spot.path(namespace, name)).await?;
        let uid =
            object["metadata"]["uid"].as_str().with_context(|| format!("no {name}: {object}"))?.to_owned();
        let mut clusters = targets.to_vec();
        for target in &mut clusters {
            target.uid = self.uid(target).await?;
        }
        let object = Reference {
            api_version: spot.api_version(),
            kind: spot.kind.into(),
            resource: spot.plural.into(),
            name: name.into(),
            uid,
        };
        let mut spec = Spec { object, clusters, ..Spec::default() };
        more(&mut spec);
        let key = self.key(spot, namespace, name);
        let fresh = self.hub().new_uid();
        self.write(&key, |tree| {
            if tree.is_empty() {
                let metadata = json!({
                    "name": key.item.name(), "namespace": namespace, "uid": fresh, "finalizers": [api::assignment::FINALIZER],
                });
                tree.insert("apiVersion".into(), json!(api::API_VERSION));
                tree.insert("kind".into(), json!(api::assignment::KIND));
                tree.insert("metadata".into(), metadata);
            }
            tree.insert("spec".into(), serde_json::to_value(&spec)?);
            Ok(true)
        })
        .await
    }

    /// The namespace, and its Assignment to these clusters.
    pub async fn namespace(&self, name: &str, clusters: &[&str]) -> Result<()> {
        if self.get(&NAMESPACE.path("", name)).await?["kind"] != "Namespace" {
            self.make(&NAMESPACE, "", json!({"metadata": {"name": name}})).await?;
        }
        let targets: Vec<Target> = clusters.iter().map(|name| target(name)).collect();
        self.assign(&NAMESPACE, name, name, &targets).await
    }

    /// A ConfigMap that is assigned.
    pub async fn config_map(
        &self,
        namespace: &str,
        name: &str,
        data: Value,
        clusters: &[&str],
    ) -> Result<()> {
        self.make(&CONFIG_MAP, namespace, json!({"metadata": {"name": name}, "data": data})).await?;
        let targets: Vec<Target> = clusters.iter().map(|name| target(name)).collect();
        self.assign(&CONFIG_MAP, namespace, name, &targets).await
    }

    /// The Assignment is to go, as when its object was deleted.
    pub async fn unassign(&self, spot: &Spot, namespace: &str, name: &str) -> Result<()> {
        self.write(&self.key(spot, namespace, name), |tree| {
            let metadata = tree.get_mut("metadata").context("it is not there")?;
            metadata["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            // How copies go is always said.
            let spec = tree.get_mut("spec").and_then(Value::as_object_mut).context("it has no spec")?;
            spec.entry("propagation").or_insert(json!("Background"));
            Ok(true)
        })
        .await
    }

    /// The Assignment is gone, as after a backup was restored that did not have it.
    pub async fn forget(&self, spot: &Spot, namespace: &str, name: &str) -> Result<()> {
        self.write(&self.key(spot, namespace, name), |_| Ok(false)).await
    }

    pub fn reports(&self, spot: &Spot, namespace: &str, name: &str) -> Result<Vec<Report>> {
        let stored = self.stored(&self.key(spot, namespace, name)).context("there is no such Assignment")?;
        Ok(Assignment::read(&stored)?.status.clusters)
    }

    /// Waits until a cluster has reported something of an object.
    pub async fn until(
        &self,
        spot: &Spot,
        namespace: &str,
        name: &str,
        cluster: &str,
        holds: impl Fn(&Report) -> bool,
    ) -> Result<Report> {
        let what = format!("{} {name} is reported by {cluster}", spot.kind);
        let found = eventually(&what, || async {
            let reports = self.reports(spot, namespace, name)?;
            Ok(reports.into_iter().find(|it| it.name == cluster && holds(it)))
        });
        match found.await {
            Ok(found) => Ok(found),
            Err(error) => Err(error.context(format!("{:?}", self.reports(spot, namespace, name)?))),
        }
    }

    pub async fn until_applied(
        &self,
        spot: &Spot,
        namespace: &str,
        name: &str,
        cluster: &str,
    ) -> Result<Report> {
        self.until(spot, namespace, name, cluster, |it| it.applied).await
    }

    /// Messages of warnings about an object.
    pub async fn warnings(&self, namespace: &str, name: &str) -> Result<Vec<String>> {
        let events = self.get(&format!("/api/v1/namespaces/{namespace}/events")).await?;
        let about = |it: &&Value| it["involvedObject"]["name"] == name && it["type"] == "Warning";
        let events = events["items"].as_array().into_iter().flatten().filter(about);
        Ok(events.map(|it| it["message"].as_str().unwrap_or_default().to_owned()).collect())
    }
}

/// Waits until the object in the member is as it should be.
pub async fn copy(
    members: &Members,
    member: &str,
    path: &str,
    holds: impl Fn(&Value) -> bool,
) -> Result<Value> {
    let what = format!("{path} in {member}");
    let found = eventually(&what, || async {
        let answer = members.get(member, path).await?;
        let object = answer.json();
        Ok((answer.code == 200 && holds(&object)).then_some(object))
    });
    match found.await {
        Ok(found) => Ok(found),
        Err(error) => Err(error.context(members.get(member, path).await?.text())),
    }
}

pub async fn is_there(members: &Members, member: &str, path: &str) -> Result<bool> {
    Ok(members.get(member, path).await?.code == 200)
}

pub async fn patch(members: &Members, member: &str, path: &str, change: Value) -> Result<()> {
    let done = members.admin.merge_patch(&format!("/clusters/{member}{path}"), &change).await?;
    ensure!(done.code == 200, "{path}: {}", done.text());
    Ok(())
}

/// A hub with the cluster `eu-1`, which is the workspace `one` of another hub.
pub async fn one_cluster() -> Result<(World, Members)> {
    let (world, members) = (World::start().await?, Members::start(&["one"]).await?);
    world.join("eu-1", &members.access("one")).await?;
    Ok((world, members))
}

/// A way to a simulated cluster.
pub fn access(clusters: &TestClusters, name: &str) -> Result<Access> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("kubeconfig");
    std::fs::write(&path, clusters.simulation.kubeconfig(name)?)?;
    let kubeconfig = Kubeconfig::read(&Env::real(), &path)?.context("it was written")?;
    Ok(kubeconfig.access(&Env::real(), kubeconfig.current_context())?)
}

/// How often copies were written since the hub began, with this outcome.
pub async fn writes(world: &World, outcome: &str) -> Result<u64> {
    let metrics = world.admin.get("/metrics").await?.text();
    let label = format!("hanse_copy_writes_total{{outcome=\"{outcome}\"}} ");
    let count = metrics.lines().find_map(|line| line.strip_prefix(&label)?.trim().parse().ok());
    Ok(count.unwrap_or(0))
}
