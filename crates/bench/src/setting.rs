//! What is switched on in every server that is measured, in the same way: a user who is no administrator and passes
//! RBAC, an admission policy, quota, limits, pod security, a schema with a rule, and an audit log.
//!
//! The administrator makes all of it before anything is measured; the load is the other user's.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::client::{self, Connection, Endpoint, Failure};

/// Who makes the load.
pub const USER: &str = "bench";
/// In the CRD that `things` are defined by.
pub const GROUP: &str = "bench.hanse.io";
/// In words, for the page.
pub const IN_WORDS: &str = "a user who is not in system:masters and passes RBAC by a RoleBinding of the namespace; a \
    ValidatingAdmissionPolicy on every write of a ConfigMap; a ResourceQuota, a LimitRange and pod security \
    `restricted` in every namespace; a schema with a CEL rule for custom objects; an audit log of every request at \
    level Metadata, to a file that requests wait for";

const JSON: &str = "application/json";
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(20);

/// The flags, equal in both servers, that make it record every request.
pub struct Audit {
    pub flags: Vec<String>,
    log: PathBuf,
}

impl Audit {
    /// `directory` holds the policy and the log.
    pub fn in_directory(directory: &Path) -> Result<Self> {
        let (policy, log) = (directory.join("audit-policy.yaml"), directory.join("audit.log"));
        fs::write(
            &policy,
            "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:\n- level: Metadata\n",
        )?;
        let flags = vec![
            format!("--audit-policy-file={}", policy.display()),
            format!("--audit-log-path={}", log.display()),
            "--audit-log-mode=blocking".to_owned(),
            "--audit-log-maxsize=100".to_owned(),
            "--audit-log-maxbackup=1".to_owned(),
        ];
        Ok(Self { flags, log })
    }

    /// Fails if the log says nothing of what the user did.
    pub fn check(&self) -> Result<()> {
        let log = fs::read(&self.log).with_context(|| format!("no audit log {}", self.log.display()))?;
        let mark = format!(r#""username":"{USER}""#);
        ensure!(
            memchr::memmem::find(&log, mark.as_bytes()).is_some(),
            "the audit log says nothing of the load"
        );
        Ok(())
    }
}

/// The administrator of a running server.
pub struct Admin {
    endpoint: Endpoint,
    pub connection: Connection,
    /// Nobody else counts quotas there: that is a controller's work.
    counts_quotas: bool,
}

impl Admin {
    pub async fn connect(endpoint: &Endpoint, counts_quotas: bool) -> Result<Self> {
        Ok(Self { endpoint: endpoint.clone(), connection: endpoint.connect().await?, counts_quotas })
    }

    /// Once per server, before its first namespace.
    pub async fn furnish(&mut self) -> Result<()> {
        let rbac = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
        self.create(
            rbac,
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": USER},
                "rules": [
                    {"apiGroups": [""], "resources": ["configmaps", "pods"], "verbs": ["*"]},
                    {"apiGroups": [GROUP], "resources": ["things"], "verbs": ["*"]},
                ],
            }),
        )
        .await?;
        self.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition()).await?;
        let admission = "/apis/admissionregistration.k8s.io/v1";
        self.create(&format!("{admission}/validatingadmissionpolicies"), policy()).await?;
        let binding = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": USER}, "spec": {"policyName": USER, "validationActions": ["Deny"]},
        });
        self.create(&format!("{admission}/validatingadmissionpolicybindings"), binding).await
    }

    /// A namespace with everything that requests in it have to pass; returns when all of it is in force.
    pub async fn namespace(&mut self, name: &str) -> Result<()> {
        let namespace = json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": name, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
        });
        self.create("/api/v1/namespaces", namespace).await?;
        let path = format!("/api/v1/namespaces/{name}");
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
        self.create(&format!("{path}/serviceaccounts"), account).await?;
        self.create(&format!("{path}/limitranges"), limits()).await?;
        self.quota(&path).await?;
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": USER},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": USER},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER}],
        });
        self.create(&format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{name}/rolebindings"), binding)
            .await?;
        self.until_in_force(&path).await
    }

    async fn quota(&mut self, namespace: &str) -> Result<()> {
        let hard = json!({"pods": "10000000", "requests.cpu": "10000000", "count/secrets": "1000"});
        let mut quota = json!({
            "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": USER}, "spec": {"hard": hard},
        });
        self.create(&format!("{namespace}/resourcequotas"), quota.clone()).await?;
        if !self.counts_quotas {
            return Ok(());
        }
        let used = json!({"pods": "0", "requests.cpu": "0", "count/secrets": "0"});
        quota["status"] = json!({"hard": hard, "used": used});
        self.send(Method::PUT, &format!("{namespace}/resourcequotas/{USER}/status"), &quota).await?;
        Ok(())
    }

    /// Policies, quotas and roles take effect moments after they were made.
    async fn until_in_force(&mut self, namespace: &str) -> Result<()> {
        let started = Instant::now();
        loop {
            let missing = match self.missing(namespace).await? {
                None => return Ok(()),
                Some(missing) => missing,
            };
            ensure!(started.elapsed() < PATIENCE, "not in force: {missing}");
            sleep(PAUSE).await;
        }
    }

    /// What lets pass what it should refuse, or refuses what it should let pass.
    async fn missing(&mut self, namespace: &str) -> Result<Option<&'static str>> {
        let quota =
            self.send(Method::GET, &format!("{namespace}/resourcequotas/{USER}"), &Value::Null).await?;
        if serde_json::from_slice::<Value>(&quota)?.pointer("/status/hard/pods").is_none() {
            return Ok(Some("the quota"));
        }
        let path = format!("{namespace}/configmaps?dryRun=All");
        let refused = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "refused"}, "data": {"refused": ""},
        });
        if self.post(&path, &refused).await?.is_success() {
            return Ok(Some("the policy"));
        }
        let privileged = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "refused"},
            "spec": {"hostNetwork": true, "containers": [{"name": "main", "image": "registry.example/app:1"}]},
        });
        if self.post(&format!("{namespace}/pods?dryRun=All"), &privileged).await?.is_success() {
            return Ok(Some("pod security"));
        }
        let (_, name) = namespace.rsplit_once('/').unwrap_or_default();
        let thing = json!({
            "apiVersion": format!("{GROUP}/v1"), "kind": "Thing", "metadata": {"name": "allowed"},
            "spec": {"size": 1, "label": "x"},
        });
        let path = format!("/apis/{GROUP}/v1/namespaces/{name}/things?dryRun=All");
        let thing_passes = self.post(&path, &thing).await?.is_success();
        Ok(if thing_passes { None } else { Some("the definition") })
    }

    /// What is there already is good as well.
    async fn create(&mut self, path: &str, object: Value) -> Result<()> {
        match self.send(Method::POST, path, &object).await {
            Ok(_) | Err(Failure::Refused { status: StatusCode::CONFLICT, .. }) => Ok(()),
            Err(failure) => Err(failure).with_context(|| format!("POST {path}")),
        }
    }

    async fn post(&mut self, path: &str, object: &Value) -> Result<StatusCode> {
        match self.send(Method::POST, path, object).await {
            Ok(_) => Ok(StatusCode::CREATED),
            Err(Failure::Refused { status, .. }) => Ok(status),
            Err(failure) => Err(failure.into()),
        }
    }

    async fn send(&mut self, method: Method, path: &str, object: &Value) -> Result<Bytes, Failure> {
        let uri = self.endpoint.uri(path).map_err(|error| Failure::Unexpected(error.to_string()))?;
        let request = if object.is_null() {
            client::bare(method, uri)
        } else {
            client::with_body(method, uri, JSON, object.to_string().into())
        };
        self.connection.call(request).await
    }
}

fn policy() -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": USER},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"],
                "resources": ["configmaps"],
            }]},
            "validations": [
                {"expression": "!has(object.data) || !('refused' in object.data)"},
                {"expression": "!has(object.data) || object.data.all(key, size(object.data[key]) <= 1048576)"},
            ],
        },
    })
}

fn limits() -> Value {
    json!({
        "apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": USER},
        "spec": {"limits": [{
            "type": "Container", "default": {"cpu": "100m", "memory": "64Mi"},
            "defaultRequest": {"cpu": "50m", "memory": "32Mi"}, "max": {"cpu": "4", "memory": "4Gi"},
        }]},
    })
}

fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("things.{GROUP}")},
        "spec": {
            "group": GROUP, "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "required": ["spec"], "properties": {"spec": {
                    "type": "object", "required": ["label"],
                    "properties": {
                        "size": {"type": "integer", "minimum": 0, "maximum": 100, "default": 1},
                        "mode": {"type": "string", "enum": ["Slow", "Fast"], "default": "Slow"},
                        "label": {"type": "string", "maxLength": 65536},
                    },
                    "x-kubernetes-validations": [{"rule": "self.size > 0 || self.mode == 'Slow'"}],
                }}}},
            }],
        },
    })
}
