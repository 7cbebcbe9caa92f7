//! A hub that places, with simulated members whose links can be cut.

use std::{collections::BTreeSet, path::Path, sync::Arc, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use api::assignment::name_of;
use env::Env;
use http::Method;
use serde_json::{Map, Value, json};
use server::{
    Options,
    audit::{AuditOptions, LogOptions},
    login::LoginOptions,
};
use sim::{ClusterOptions, Pace};
use store::{Store, WorkspaceId, memory::MemoryStore};
use sync::{
    client::{Access, Client as SyncClient, Identity},
    join,
    kubeconfig::Kubeconfig,
};
use tempfile::TempDir;
use testing::{
    client::{Answer, Client},
    cuts::Cuts,
    hub::{TestHub, eventually},
    simulated::TestClusters,
};

use crate::{
    app::NS,
    history::{Deed, History, Mark},
};

const APPLY: &str = "application/apply-patch+yaml";
pub const CLUSTERS: &str = "/apis/hanse.io/v1alpha1/clusters";

/// Sessions that do everything sooner: what takes seconds for people to see takes fractions here.
/// Of the hub.
const AUTOSCALER_WINDOW: Duration = Duration::from_secs(3);
const FEDERATED_GRACE: Duration = Duration::from_secs(3);

fn brisk() -> sync::Options {
    sync::Options {
        probe_every: Duration::from_millis(250),
        retry_after: Duration::from_millis(100),
        request_limit: Duration::from_secs(2),
        report_every: Duration::from_millis(200),
        heartbeat_every: Duration::from_secs(1),
        unschedulable_after: Duration::from_secs(2),
        ..sync::Options::default()
    }
}

pub struct World {
    pub hub: TestHub,
    /// Of a platform admin, in the workspace `default`.
    pub client: Client,
    pub clusters: TestClusters,
    /// What happened in the members.
    pub there: History,
    /// What happened in the hub.
    pub here: History,
    pub cuts: Cuts,
    store: Arc<dyn Store>,
    views: TempDir,
    audit: AuditOptions,
    pace: sync::Options,
}

impl World {
    pub async fn start(members: &[&str]) -> Result<World> {
        Self::start_on(Arc::new(MemoryStore::new()), members).await
    }

    /// A hub that keeps its objects there.
    pub async fn start_on(store: Arc<dyn Store>, members: &[&str]) -> Result<World> {
        Self::start_with(store, members, AuditOptions::default(), brisk()).await
    }

    /// Without members yet, and with sessions as they are by default: of very many, brisk ones would do nothing but ask.
    pub async fn start_calm() -> Result<World> {
        let store = Arc::new(MemoryStore::new());
        Self::start_with(store, &[], AuditOptions::default(), sync::Options::default()).await
    }

    /// A hub that records what is done.
    pub async fn start_audited(members: &[&str], log: &Path) -> Result<World> {
        let audit = AuditOptions { log: Some(LogOptions::at(log)), ..AuditOptions::default() };
        Self::start_with(Arc::new(MemoryStore::new()), members, audit, brisk()).await
    }

    async fn start_with(
        store: Arc<dyn Store>,
        members: &[&str],
        audit: AuditOptions,
        pace: sync::Options,
    ) -> Result<World> {
        let clusters = TestClusters::start_with(members, Pace::default(), ClusterOptions::default()).await?;
        let there = History::begin(&*clusters.simulation.hub().store);
        let (cuts, views) = (Cuts::default(), tempfile::tempdir()?);
        let here = History::begin(&*store);
        let (hub, client) = start_hub(&cuts, store.clone(), views.path(), &audit, &pace).await?;
        let world = World { hub, client, clusters, there, here, cuts, store, views, audit, pace };
        for name in members {
            world.join(name).await?;
        }
        Ok(world)
    }

    /// Joins a member to the workspace `default`, and waits until it can be used.
    pub async fn join(&self, name: &str) -> Result<()> {
        let member = self.member_access(name)?;
        let (hub, admin) = (sync_client(&access(&self.hub, api::DEFAULT)), sync_client(&member));
        let labels = Map::from_iter([(api::REGION_LABEL.to_owned(), json!("eu"))]);
        join::join(&join::Request { name, labels, hub: &hub, member: &admin, access: &member }).await?;
        self.until_ready(name).await
    }

    pub fn member_access(&self, name: &str) -> Result<Access> {
        let text = self.clusters.simulation.kubeconfig(name)?;
        let file = self.views.path().join(format!("{name}.kubeconfig"));
        std::fs::write(&file, text)?;
        let config = Kubeconfig::read(&Env::real(), &file)?.context("it was just written")?;
        let context = config.current_context().to_owned();
        Ok(config.access(&Env::real(), &context)?)
    }

    pub async fn until_ready(&self, cluster: &str) -> Result<()> {
        let is_ready = |it: &Value| {
            let ready = api::cluster::condition(it, "Ready").cloned().unwrap_or_default();
            ready["status"] == "True"
                && it["status"]["apis"][0].is_object()
                && it["status"]["nodes"]["ready"] != 0
        };
        self.until(&format!("{CLUSTERS}/{cluster}"), "it is ready", is_ready).await.map(drop)
    }

    /// The hub goes and comes back with what it stored. `blank`: and with nothing that it had seen.
    pub async fn restart_hub(&mut self, blank: bool) -> Result<()> {
        let store = self.store.clone();
        self.restart_hub_on(store, blank).await
    }

    /// It comes back with another store, such as an old backup.
    pub async fn restart_hub_on(&mut self, store: Arc<dyn Store>, blank: bool) -> Result<()> {
        if blank {
            self.views = tempfile::tempdir()?;
        }
        let spare = TestHub::start().await?;
        std::mem::replace(&mut self.hub, spare).stop().await;
        self.here = History::begin(&*store);
        (self.hub, self.client) =
            start_hub(&self.cuts, store.clone(), self.views.path(), &self.audit, &self.pace).await?;
        self.store = store;
        Ok(())
    }

    /// Hub and member do not hear of each other any more, and are not told.
    pub fn cut(&self, member: &str) -> Result<()> {
        self.cuts.cut(self.clusters.simulation.get(member)?.address);
        Ok(())
    }

    pub fn heal(&self, member: &str) -> Result<()> {
        self.cuts.heal(self.clusters.simulation.get(member)?.address);
        Ok(())
    }

    pub async fn member(&self, name: &str) -> Result<Member> {
        Ok(Member { client: self.clusters.admin(name).await? })
    }

    pub fn member_id(&self, name: &str) -> Result<WorkspaceId> {
        let space = self.clusters.simulation.hub().space(name);
        Ok(space.map_err(|status| anyhow::anyhow!("{status:?}"))?.id().clone())
    }

    /// What happened in a member since then.
    pub fn deeds(&self, member: &str, since: Mark) -> Result<Vec<Deed>> {
        let id = self.member_id(member)?;
        Ok(self.there.since(since).into_iter().filter(|deed| deed.workspace == id).collect())
    }

    /// What anybody did to copies in members since then, but for their status.
    pub fn writes_to_copies(&self, since: Mark) -> Vec<Deed> {
        use crate::history::What;
        let deeds = self.there.since(since).into_iter();
        deeds.filter(|deed| deed.is_copy && deed.what != What::Status).collect()
    }

    /// Makes a namespace.
    pub async fn namespace(&self, name: &str) -> Result<()> {
        self.apply(&crate::app::namespace(name)).await.map(drop)
    }

    /// Applies as `kubectl apply --server-side` does.
    pub async fn apply(&self, object: &Value) -> Result<Value> {
        let answer = apply(&self.client, "", object).await?;
        ensure!(answer.code.is_success(), "{}: {}", path(object), answer.text());
        Ok(answer.json())
    }

    pub async fn apply_all(&self, objects: &[Value]) -> Result<()> {
        for object in objects {
            self.apply(object).await?;
        }
        Ok(())
    }

    /// Sets annotations of an object of the hub.
    pub async fn annotate(&self, path: &str, annotations: Value) -> Result<()> {
        self.patch(path, json!({"metadata": {"annotations": annotations}})).await.map(drop)
    }

    pub async fn patch(&self, path: &str, patch: Value) -> Result<Value> {
        let answer = self.client.merge_patch(path, &patch).await?;
        ensure!(answer.code.is_success(), "{path}: {}", answer.text());
        Ok(answer.json())
    }

    pub async fn get(&self, path: &str) -> Result<Value> {
        Ok(self.client.get(path).await?.json())
    }

    /// Waits until an object of the hub is as it should be; what it is instead is said.
    pub async fn until(&self, path: &str, what: &str, holds: impl Fn(&Value) -> bool) -> Result<Value> {
        until(&self.client, path, what, holds).await
    }

    pub async fn until_gone(&self, path: &str) -> Result<()> {
        until_gone(&self.client, path).await
    }

    /// Waits until a Deployment has so many ready replicas, of what it says now.
    pub async fn until_rolled_out(&self, name: &str, replicas: u64) -> Result<Value> {
        self.until(&deployment_path(name), "it is rolled out", |it| is_rolled_out(it, replicas)).await
    }

    /// The Assignment of an object of the namespace `shop`.
    pub async fn assignment(&self, object: &Value) -> Result<Value> {
        self.get(&assignment_path(object)).await
    }

    /// Waits until something that was applied now has passed through hub, sessions and all these members: whatever was
    /// to happen because of anything before has begun by then.
    pub async fn barrier(&self, namespace: &str, number: usize, members: &[&str]) -> Result<()> {
        let mut object = crate::app::config_map(&format!("barrier-{number}"), "passed");
        object["metadata"]["namespace"] = json!(namespace);
        object["metadata"]["annotations"] = json!({"hanse.io/clusters": members.join(",")});
        self.apply(&object).await?;
        for name in members {
            self.member(name).await?.until(&path(&object), "it passed", |it| it["data"].is_object()).await?;
        }
        self.clusters.settled().await
    }

    /// Until nothing is done about something, here or in members, while all of them get other work done twice. What was
    /// under way may come to its end first; what goes round for ever never comes to rest.
    pub async fn until_at_rest(&self, members: &[&str], about: impl Fn(&Deed) -> bool) -> Result<()> {
        let mut deeds = Vec::new();
        let mut quiet = 0;
        for round in 0..20 {
            let (here, there) = (self.here.mark(), self.there.mark());
            self.barrier(NS, round, members).await?;
            // A report of progress waits for others up to a second.
            tokio::time::sleep(Duration::from_secs(1)).await;
            deeds = self.here.since(here).into_iter().chain(self.there.since(there)).filter(&about).collect();
            quiet = if deeds.is_empty() { quiet + 1 } else { 0 };
            if quiet == 2 {
                return Ok(());
            }
        }
        bail!("it does not come to rest: {deeds:?}")
    }
}

async fn start_hub(
    cuts: &Cuts,
    store: Arc<dyn Store>,
    views: &Path,
    audit: &AuditOptions,
    pace: &sync::Options,
) -> Result<(TestHub, Client)> {
    let env = Env { network: Arc::new(cuts.clone()), ..Env::real() };
    let server = Options {
        views: Some(views.to_owned()),
        audit: audit.clone(),
        autoscaler_window: AUTOSCALER_WINDOW,
        federated_grace: FEDERATED_GRACE,
        ..Options::default()
    };
    let hub = TestHub::start_in(&env, store, server, LoginOptions::default()).await?;
    assign::start(&hub.peer.hub);
    sync::start(&hub.peer.hub, pace.clone());
    let client = hub.admin().await?;
    Ok((hub, client))
}

/// A member, as its own admin sees it.
pub struct Member {
    pub client: Client,
}

impl Member {
    pub async fn get(&self, path: &str) -> Result<Value> {
        Ok(self.client.get(path).await?.json())
    }

    pub async fn has(&self, path: &str) -> Result<bool> {
        Ok(self.client.get(path).await?.code == 200)
    }

    pub async fn until(&self, path: &str, what: &str, holds: impl Fn(&Value) -> bool) -> Result<Value> {
        until(&self.client, path, what, holds).await
    }

    pub async fn until_there(&self, path: &str) -> Result<Value> {
        self.until(path, "it is there", |it| it["metadata"]["uid"].is_string()).await
    }

    pub async fn until_gone(&self, path: &str) -> Result<()> {
        until_gone(&self.client, path).await
    }

    pub async fn items(&self, path: &str) -> Result<Vec<Value>> {
        items(&self.client, path).await
    }

    /// Volumes are made for claims.
    pub async fn provide_volumes(&self) -> Result<()> {
        let class = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
            "metadata": {
                "name": "standard", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
            },
            "provisioner": "volumes.example.com",
        });
        self.create(&class).await.map(drop)
    }

    pub async fn create(&self, object: &Value) -> Result<Value> {
        let made = self.client.post(&collection(object), object).await?;
        ensure!(made.code == 201, "{}: {}", path(object), made.text());
        Ok(made.json())
    }

    /// The UIDs of the pods that run in a namespace, with how often they were restarted.
    pub async fn pods(&self, namespace: &str) -> Result<BTreeSet<(String, u64)>> {
        let pods = self.items(&format!("/api/v1/namespaces/{namespace}/pods")).await?;
        let lives = pods.iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
        let of = |pod: &Value| {
            let restarts = pod["status"]["containerStatuses"][0]["restartCount"].as_u64().unwrap_or(0);
            (text(pod, "/metadata/uid").to_owned(), restarts)
        };
        Ok(lives.map(of).collect())
    }
}

pub async fn apply(client: &Client, prefix: &str, object: &Value) -> Result<Answer> {
    let path = format!("{prefix}{}?fieldManager=kubectl&force=true", path(object));
    client.call(Method::PATCH, &path, &[("content-type", APPLY)], object.to_string()).await
}

pub async fn until(client: &Client, path: &str, what: &str, holds: impl Fn(&Value) -> bool) -> Result<Value> {
    let found = eventually(what, || async {
        // A session may have been cut off just now.
        let Ok(answer) = client.get(path).await else { return Ok(None) };
        let object = answer.json();
        Ok(holds(&object).then_some(object))
    });
    match found.await {
        Ok(found) => Ok(found),
        Err(error) => Err(error.context(format!("{path}: {}", client.get(path).await?.text()))),
    }
}

pub async fn until_gone(client: &Client, path: &str) -> Result<()> {
    until(client, path, "it is gone", |it| it["code"] == 404).await.map(drop)
}

pub async fn items(client: &Client, path: &str) -> Result<Vec<Value>> {
    let answer = client.get(path).await?;
    ensure!(answer.code == 200, "{path}: {}", answer.text());
    Ok(answer.json()["items"].as_array().cloned().unwrap_or_default())
}

/// A platform admin's way to a workspace.
pub fn access(hub: &TestHub, workspace: &str) -> Access {
    let credential = hub.peer.authority.client("admin", &["system:masters"]).expect("a certificate");
    Access {
        server: format!("{}/clusters/{workspace}", hub.peer.url()),
        authority: hub.peer.authority.certificate_pem().as_bytes().to_vec(),
        server_name: None,
        identity: Identity::Certificate {
            certificate: credential.certificate_pem.into_bytes(),
            key: credential.key_pem.into_bytes(),
        },
    }
}

pub fn sync_client(access: &Access) -> SyncClient {
    SyncClient::new(Env::real(), access, Duration::from_secs(20)).expect("a good address")
}

pub fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

pub fn plural(kind: &str) -> String {
    let lower = kind.to_lowercase();
    match lower.as_str() {
        _ if lower.ends_with('s') => format!("{lower}es"),
        _ if lower.ends_with("cy") => format!("{}ies", &lower[..lower.len() - 1]),
        _ => format!("{lower}s"),
    }
}

/// Where objects of its kind are.
pub fn collection(object: &Value) -> String {
    let api_version = text(object, "/apiVersion");
    let root = if api_version.contains('/') {
        format!("/apis/{api_version}")
    } else {
        format!("/api/{api_version}")
    };
    let plural = plural(text(object, "/kind"));
    match text(object, "/metadata/namespace") {
        "" => format!("{root}/{plural}"),
        namespace => format!("{root}/namespaces/{namespace}/{plural}"),
    }
}

pub fn path(object: &Value) -> String {
    format!("{}/{}", collection(object), text(object, "/metadata/name"))
}

pub fn assignment_path(object: &Value) -> String {
    let api_version = text(object, "/apiVersion");
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    let name = name_of(group, &plural(text(object, "/kind")), text(object, "/metadata/name"));
    let namespace = match text(object, "/metadata/namespace") {
        "" => text(object, "/metadata/name"),
        namespace => namespace,
    };
    format!("/apis/hanse.io/v1alpha1/namespaces/{namespace}/assignments/{name}")
}

pub fn deployment_path(name: &str) -> String {
    format!("/apis/apps/v1/namespaces/{NS}/deployments/{name}")
}

pub fn pods_path() -> String {
    format!("/api/v1/namespaces/{NS}/pods")
}

/// As `kubectl rollout status` has it.
pub fn is_rolled_out(deployment: &Value, replicas: u64) -> bool {
    let status = &deployment["status"];
    let counts = ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas"];
    status["observedGeneration"] == deployment["metadata"]["generation"]
        && counts.iter().all(|count| status[*count].as_u64().unwrap_or(0) == replicas)
}

/// A condition of an object.
pub fn condition(object: &Value, kind: &str) -> Value {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().find(|it| it["type"] == kind).cloned().unwrap_or_default()
}

/// Where an Assignment has its object, with the replicas of each, if it counts them.
pub fn shares(assignment: &Value) -> Vec<(String, u64)> {
    let clusters = assignment["spec"]["clusters"].as_array().into_iter().flatten();
    clusters.map(|it| (text(it, "/name").to_owned(), it["replicas"].as_u64().unwrap_or(0))).collect()
}
