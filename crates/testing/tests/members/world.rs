//! Hubs with sessions, and members for them: other hubs, or workspaces of one, which are API servers like any other.

use std::{net::SocketAddr, path::Path, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use base64::{Engine, prelude::BASE64_STANDARD};
use env::Env;
use serde_json::{Map, Value, json};
use server::{Options, login::LoginOptions};
use store::{Store, memory::MemoryStore};
use sync::{
    client::{Access, Client as SyncClient, Identity},
    join::{self, Joined, Refusal},
    unjoin::{self, Unjoined},
};
use testing::{
    client::Client,
    cuts::Cuts,
    hub::{TestHub, eventually},
};

pub const CLUSTERS: &str = "/apis/hanse.io/v1alpha1/clusters";

/// Sessions that do everything sooner: what takes seconds for people to see takes fractions here.
pub fn brisk() -> sync::Options {
    sync::Options {
        probe_every: Duration::from_millis(250),
        retry_after: Duration::from_millis(100),
        request_limit: Duration::from_secs(2),
        report_every: Duration::from_millis(200),
        heartbeat_every: Duration::from_secs(1),
        ..sync::Options::default()
    }
}

/// A hub with sessions, whose links can be cut.
pub struct World {
    pub hub: TestHub,
    pub admin: Client,
    pub cuts: Cuts,
}

impl World {
    pub async fn start() -> Result<World> {
        Self::start_with(brisk()).await
    }

    pub async fn start_with(options: sync::Options) -> Result<World> {
        Self::start_on(Arc::new(MemoryStore::new()), None, options).await
    }

    /// `views`: where what was seen is kept.
    pub async fn start_on(
        store: Arc<dyn Store>,
        views: Option<&Path>,
        options: sync::Options,
    ) -> Result<World> {
        Self::start_between(store, views, options, Cuts::default()).await
    }

    /// From the beginning nothing reaches a member at this address.
    pub async fn start_cut_off(
        store: Arc<dyn Store>,
        member: SocketAddr,
        options: sync::Options,
    ) -> Result<World> {
        let cuts = Cuts::default();
        cuts.cut(member);
        Self::start_between(store, None, options, cuts).await
    }

    async fn start_between(
        store: Arc<dyn Store>,
        views: Option<&Path>,
        options: sync::Options,
        cuts: Cuts,
    ) -> Result<World> {
        let env = Env { network: Arc::new(cuts.clone()), ..Env::real() };
        let server = Options { views: views.map(Path::to_owned), ..Options::default() };
        let hub = TestHub::start_in(&env, store, server, LoginOptions::default()).await?;
        sync::start(&hub.peer.hub, options);
        let admin = hub.admin().await?;
        Ok(World { hub, admin, cuts })
    }

    /// Without sessions.
    #[allow(dead_code)] // Not all tests that have this file need it.
    pub async fn start_quietly(store: Arc<dyn Store>) -> Result<World> {
        let hub = TestHub::start_on(store, Options::default()).await?;
        let admin = hub.admin().await?;
        Ok(World { hub, admin, cuts: Cuts::default() })
    }

    pub fn access(&self) -> Access {
        access(&self.hub, "default")
    }

    pub async fn join(&self, name: &str, member: &Access) -> Result<Joined, Refusal> {
        join(&self.access(), name, member).await
    }

    pub async fn unjoin(&self, name: &str) -> Result<Unjoined, Refusal> {
        let hub = sync_client(&self.access());
        let request =
            unjoin::Request { name, hub: &hub, member: None, forget: false, delete_namespaces: false };
        unjoin::unjoin(&request).await
    }

    /// Unjoins a cluster as if it were gone for good.
    #[allow(dead_code)] // Not all tests that have this file need it.
    pub async fn forget(&self, name: &str) -> Result<Unjoined, Refusal> {
        let hub = sync_client(&self.access());
        let request =
            unjoin::Request { name, hub: &hub, member: None, forget: true, delete_namespaces: false };
        unjoin::unjoin(&request).await
    }

    pub async fn cluster(&self, name: &str) -> Result<Value> {
        Ok(self.admin.get(&format!("{CLUSTERS}/{name}")).await?.json())
    }

    /// Waits until the condition `Ready` has that reason, and answers the cluster.
    pub async fn until(&self, name: &str, reason: &str) -> Result<Value> {
        let what = format!("{name} is {reason}");
        let found = eventually(&what, || async {
            let cluster = self.cluster(name).await?;
            Ok((ready(&cluster)["reason"] == reason).then_some(cluster))
        });
        match found.await {
            Ok(found) => Ok(found),
            Err(error) => Err(error).context(self.cluster(name).await?["status"]["conditions"].to_string()),
        }
    }

    /// A `Cluster` made by hand, with a token.
    pub async fn cluster_by_hand(&self, name: &str, endpoint: &str, ca_bundle: &str) -> Result<()> {
        let secret =
            json!({"metadata": {"name": name}, "data": {"token": BASE64_STANDARD.encode("a-token")}});
        self.admin.post("/api/v1/namespaces/default/secrets", &secret).await?;
        let made = self.admin.post(CLUSTERS, &cluster(name, endpoint, ca_bundle)).await?;
        assert_eq!(made.code, 201, "{}", made.text());
        Ok(())
    }
}

pub fn cluster(name: &str, endpoint: &str, ca_bundle: &str) -> Value {
    json!({
        "apiVersion": api::API_VERSION, "kind": "Cluster", "metadata": {"name": name},
        "spec": {
            "endpoint": endpoint, "caBundle": ca_bundle, "secretRef": {"namespace": "default", "name": name},
        },
    })
}

pub fn ready(cluster: &Value) -> Value {
    api::cluster::condition(cluster, "Ready").cloned().unwrap_or_default()
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

pub async fn join(hub: &Access, name: &str, member: &Access) -> Result<Joined, Refusal> {
    let (hub, admin) = (sync_client(hub), sync_client(member));
    let labels = Map::from_iter([(api::REGION_LABEL.to_owned(), json!("eu"))]);
    join::join(&join::Request { name, labels, hub: &hub, member: &admin, access: member }).await
}

/// Workspaces of one hub, each a member of its own.
pub struct Members {
    pub hub: TestHub,
    pub admin: Client,
}

impl Members {
    pub async fn start(names: &[&str]) -> Result<Members> {
        let hub = TestHub::start().await?;
        let admin = hub.admin().await?;
        for name in names {
            let workspace = json!({"metadata": {"name": name}});
            admin.post("/clusters/root/apis/hanse.io/v1alpha1/workspaces", &workspace).await?;
        }
        Ok(Members { hub, admin })
    }

    pub fn access(&self, name: &str) -> Access {
        access(&self.hub, name)
    }

    pub async fn post(&self, member: &str, path: &str, object: Value) -> Result<Value> {
        let made = self.admin.post(&format!("/clusters/{member}{path}"), &object).await?;
        anyhow::ensure!(made.code == 201, "{path}: {}", made.text());
        Ok(made.json())
    }

    pub async fn get(&self, member: &str, path: &str) -> Result<testing::client::Answer> {
        self.admin.get(&format!("/clusters/{member}{path}")).await
    }

    /// A node that is ready.
    pub async fn mk_node(&self, member: &str, name: &str) -> Result<()> {
        let amounts = json!({"cpu": "4", "memory": "8Gi", "pods": "110"});
        let node = json!({
            "metadata": {"name": name},
            "status": {
                "capacity": amounts, "allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}],
            },
        });
        self.post(member, "/api/v1/nodes", node).await.map(drop)
    }

    pub async fn mk_pod(&self, member: &str, namespace: &str, name: &str, node: &str) -> Result<()> {
        let path = format!("/clusters/{member}/api/v1/namespaces/{namespace}");
        testing::hub::outfitted(&self.admin, &path).await?;
        self.post_pod(member, namespace, name.to_owned(), node).await
    }

    /// In a namespace that has what every namespace has.
    pub async fn post_pod(&self, member: &str, namespace: &str, name: String, node: &str) -> Result<()> {
        let requests = json!({"cpu": "500m", "memory": "1Gi"});
        let pod = json!({
            "metadata": {"name": name},
            "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i", "resources": {"requests": requests}}]},
        });
        let path = format!("/clusters/{member}/api/v1/namespaces/{namespace}/pods");
        testing::hub::eventually("the pod is made", || async {
            let made = self.admin.post(&path, &pod).await?;
            // The session may just be putting its policies there, and one of them came first.
            let is_early = made.code == 403 && made.text().contains("hanse-pods");
            anyhow::ensure!(made.code == 201 || is_early, "{path}: {}", made.text());
            Ok((!is_early).then_some(()))
        })
        .await
    }
}
