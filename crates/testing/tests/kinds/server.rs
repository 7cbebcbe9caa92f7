//! One server, to which objects are written.

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use testing::{
    client::Client,
    hub::TestHub,
    real::{Options, RealCluster},
};
use tokio::sync::Semaphore;

use super::{
    objects::Base,
    plan::{Case, Verb},
    scope::{Kind, NAMESPACE},
};

/// Requests in flight at one server.
const AT_ONCE: usize = 12;

/// Plugins of the real server that are switched off, so that the kinds' own rules are compared: they ask others
/// (webhooks and policies) or who writes (Certificate*). They have tests of their own.
const DISABLED_PLUGINS: &[&str] = &[
    "CertificateApproval",
    "CertificateSigning",
    "CertificateSubjectRestriction",
    "ClusterTrustBundleAttest",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionWebhook",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionWebhook",
];

/// Those of the real cluster that write to objects as Hanse does by itself.
const CONTROLLERS: [&str; 2] = ["clusterrole-aggregation-controller", "resourcequota-controller"];

/// What the objects need to be around them: their namespace, and the classes that pods name.
fn surroundings() -> [(&'static str, Value); 3] {
    let priority = json!({"metadata": {"name": "important"}, "value": 10, "preemptionPolicy": "Never"});
    let runtime = json!({
        "metadata": {"name": "sandboxed"}, "handler": "sandbox",
        "overhead": {"podFixed": {"cpu": "100m", "memory": "32Mi"}},
    });
    [
        ("/api/v1/namespaces", json!({"metadata": {"name": NAMESPACE}})),
        ("/apis/scheduling.k8s.io/v1/priorityclasses", priority),
        ("/apis/node.k8s.io/v1/runtimeclasses", runtime),
    ]
}

/// What keeps a server running.
enum Running {
    Kube { _cluster: Box<RealCluster> },
    Hanse { _hub: Box<TestHub> },
}

#[derive(Clone)]
pub struct Server {
    client: Client,
    places: Arc<Semaphore>,
    _running: Arc<Running>,
}

/// What a request came back with.
#[derive(Clone, Debug)]
pub struct Reply {
    pub code: u16,
    /// The texts of `Warning` headers.
    pub warnings: Vec<String>,
    pub body: Value,
}

impl Reply {
    const CRASHED: Reply = Reply { code: 0, warnings: Vec::new(), body: Value::Null };

    pub fn is_accepted(&self) -> bool {
        (200..300).contains(&self.code)
    }
}

impl Server {
    pub async fn kube() -> Result<Server> {
        let apiserver_args = vec![
            format!("--disable-admission-plugins={}", DISABLED_PLUGINS.join(",")),
            // Hanse's own.
            "--service-cluster-ip-range=10.96.0.0/12".to_owned(),
        ];
        let options = Options {
            fsync: false,
            apiserver_args,
            controller_manager: true,
            controllers: CONTROLLERS.map(str::to_owned).to_vec(),
            ..Options::default()
        };
        let cluster = tokio::task::spawn_blocking(|| RealCluster::start(options)).await??;
        let identity = (cluster.admin_cert_pem.as_str(), cluster.admin_key_pem.as_str());
        let client = Client::connect(&cluster.url, &cluster.ca_pem, Some(identity)).await?;
        Self::new(client, Running::Kube { _cluster: Box::new(cluster) }).await
    }

    pub async fn hanse() -> Result<Server> {
        let hub = TestHub::start().await?;
        let client = hub.admin().await?;
        Self::new(client, Running::Hanse { _hub: Box::new(hub) }).await
    }

    async fn new(client: Client, running: Running) -> Result<Server> {
        let places = Arc::new(Semaphore::new(AT_ONCE));
        let server = Server { client, places, _running: Arc::new(running) };
        for (path, object) in surroundings() {
            let made = server.client.post(path, &object).await?;
            if made.code != http::StatusCode::CREATED {
                bail!("cannot make {object}: {}", made.text());
            }
        }
        // Hanse makes the first by itself; the real server's controllers do not run.
        for account in ["default", "builder"] {
            let path = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts");
            server.client.post(&path, &json!({"metadata": {"name": account}})).await?;
        }
        Ok(server)
    }

    /// Whether the server has the kind at all.
    pub async fn serves(&self, kind: &Kind) -> Result<bool> {
        let reply = self.send(Method::GET, &format!("{}?limit=1", kind.collection()), None, &[]).await?;
        Ok(reply.is_accepted())
    }

    /// Removes an object that others would be judged by.
    pub async fn delete(&self, base: &Base) -> Result<()> {
        let path = format!("{}/{}", base.kind.collection(), base.name);
        let reply = self.send(Method::DELETE, &path, None, &[]).await?;
        if !reply.is_accepted() {
            bail!("cannot delete {path}: {}", reply.body);
        }
        Ok(())
    }

    /// Really.
    pub async fn create(&self, base: &Base) -> Result<Reply> {
        self.send(Method::POST, &base.kind.collection(), Some(&base.object), &[]).await
    }

    pub async fn get(&self, base: &Base, headers: &[(&str, &str)]) -> Result<Reply> {
        let path = format!("{}/{}", base.kind.collection(), base.name);
        self.send(Method::GET, &path, None, headers).await
    }

    /// Whether it would be accepted.
    pub async fn attempt(&self, base: &Base, case: &Case) -> Result<Reply> {
        let collection = base.kind.collection();
        let (method, path) = match case.verb {
            Verb::Create => (Method::POST, format!("{collection}?dryRun=All")),
            Verb::Update => (Method::PUT, format!("{collection}/{}?dryRun=All", base.name)),
            Verb::UpdateStatus => (Method::PUT, format!("{collection}/{}/status?dryRun=All", base.name)),
        };
        let reply = self.send(method, &path, Some(&case.object), &[]).await;
        reply.with_context(|| format!("{}: {}", base.kind, case.name))
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        headers: &[(&str, &str)],
    ) -> Result<Reply> {
        let _place = self.places.acquire().await?;
        let mut headers = headers.to_vec();
        headers.push(("content-type", "application/json"));
        let body = body.map_or(Bytes::new(), |body| Bytes::from(body.to_string()));
        let answer = match self.client.call(method, path, &headers, body).await {
            Ok(answer) => answer,
            // A handler that panics ends its stream and nothing else.
            Err(error) if format!("{error:#}").contains("stream error") => return Ok(Reply::CRASHED),
            Err(error) => return Err(error),
        };
        let body = serde_json::from_slice(&answer.bytes).unwrap_or_else(|_| json!(answer.text()));
        Ok(Reply { code: answer.code.as_u16(), warnings: warnings(&answer.headers), body })
    }
}

/// `299 - "a \"text\""` is `a "text"`.
fn warnings(headers: &http::HeaderMap) -> Vec<String> {
    let texts = headers.get_all("warning").iter().map(|value| String::from_utf8_lossy(value.as_bytes()));
    let quoted = |text: &str| Some(text.split_once('"')?.1.rsplit_once('"')?.0.replace("\\\"", "\""));
    texts.map(|text| quoted(&text).unwrap_or_else(|| text.into_owned())).collect()
}
