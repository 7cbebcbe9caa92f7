//! Joining a cluster: an account for Hanse in the member, its token in the hub, and the `Cluster` that says so.
//!
//! ```text
//!   1 who is it?      member  kube-system's UID; refused if it is joined already, here or elsewhere
//!   2 claim it        member  Namespace hanse-system, marked with the hub's identity and the cluster's name
//!   3 an account      member  ServiceAccount, ClusterRole, ClusterRoleBinding, Secret with a token
//!   4 its token       hub     Secret hanse-system/cluster-NAME
//!   5 the cluster     hub     Cluster NAME
//! ```
//!
//! Every step may be done again, so that a join that was cut off anywhere is finished by the same command.

use std::time::Duration;

use base64::{Engine, engine::general_purpose::STANDARD};
use http::Method;
use machinery::names;
use serde_json::{Map, Value, json};

use crate::{
    MANAGER, NAMESPACE,
    client::{APPLY, Access, Client, Error, Identity, JSON, MERGE},
    rights,
    tokens::policy,
};

/// On the namespace in the member: whose it is.
pub const JOINED_BY: &str = "hanse.io/joined-by";
pub const ACCOUNT: &str = "hanse-session";
pub const ROLE: &str = "hanse:session";
pub const TOKEN_SECRET: &str = "hanse-session-token";
const KUBE_SYSTEM: &str = "/api/v1/namespaces/kube-system";
pub const CLUSTERS: &str = "/apis/hanse.io/v1alpha1/clusters";
/// How long the member may take to make a token.
const TOKEN_PATIENCE: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Why a cluster was not joined, or not unjoined.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    #[error("{0}")]
    No(String),
    #[error("member: {0}")]
    Member(#[source] Error),
    #[error("hub: {0}")]
    Hub(#[source] Error),
}

/// What to join, and how.
pub struct Request<'a> {
    pub name: &'a str,
    pub labels: Map<String, Value>,
    /// The workspace's API.
    pub hub: &'a Client,
    /// As an admin of the member.
    pub member: &'a Client,
    pub access: &'a Access,
}

/// What came of it.
#[derive(Debug, PartialEq, Eq)]
pub struct Joined {
    pub identity: String,
    pub version: String,
    /// It was joined before, and has been brought up to date.
    pub again: bool,
}

pub async fn join(request: &Request<'_>) -> Result<Joined, Refusal> {
    let wrong = names::is_dns1123_label(request.name);
    if !wrong.is_empty() {
        return Err(Refusal::No(format!(
            "{:?} is no name for a cluster: {}",
            request.name,
            wrong.join("; ")
        )));
    }
    let identity =
        uid(&request.member.get(KUBE_SYSTEM).await.map_err(Refusal::Member)?).map_err(Refusal::Member)?;
    let hub = uid(&request.hub.get(KUBE_SYSTEM).await.map_err(Refusal::Hub)?).map_err(Refusal::Hub)?;
    if hub == identity {
        return Err(Refusal::No("that is this workspace itself: it cannot be a member of itself".into()));
    }
    let version = request.member.get("/version").await.map_err(Refusal::Member)?;
    let version = version["gitVersion"].as_str().unwrap_or_default().to_owned();
    let again = check_hub(request, &identity).await?;
    let owner = format!("{hub}/{}", request.name);
    let namespace = claim(request, &owner).await?;
    let token = make_account(request.member, &namespace).await?;
    try_token(request, &token, &identity).await?;
    write_hub(request, &token, &identity).await.map_err(Refusal::Hub)?;
    Ok(Joined { identity, version, again })
}

pub fn uid(object: &Value) -> Result<String, Error> {
    let uid = object["metadata"]["uid"].as_str().filter(|uid| !uid.is_empty());
    uid.map(str::to_owned).ok_or_else(|| Error::Garbage("its namespace kube-system has no UID".into()))
}

/// Whether what is joined already allows it; true if this very cluster is joined by this name.
async fn check_hub(request: &Request<'_>, identity: &str) -> Result<bool, Refusal> {
    let list = request.hub.get(CLUSTERS).await.map_err(Refusal::Hub)?;
    let mut again = false;
    for cluster in list["items"].as_array().into_iter().flatten() {
        let name = cluster["metadata"]["name"].as_str().unwrap_or_default();
        let known = cluster["status"]["identity"].as_str().unwrap_or_default();
        if name == request.name && !known.is_empty() && known != identity {
            return Err(Refusal::No(format!(
                "{name} stands for another cluster, with the identity {known}; the one at {} is {identity}. If it was \
                 made anew, unjoin it first: hanse unjoin {name} --forget",
                request.access.server
            )));
        }
        if name != request.name && known == identity {
            return Err(Refusal::No(format!("this cluster is joined already, as {name}")));
        }
        again |= name == request.name;
    }
    Ok(again)
}

/// Marks the member as this hub's; answers the namespace.
async fn claim(request: &Request<'_>, owner: &str) -> Result<Value, Refusal> {
    let path = format!("/api/v1/namespaces/{NAMESPACE}");
    let new = json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {
            "name": NAMESPACE,
            "labels": {"app.kubernetes.io/managed-by": MANAGER},
            "annotations": {JOINED_BY: owner},
        },
    });
    for _ in 0..3 {
        let found = match request.member.find(&path).await.map_err(Refusal::Member)? {
            Some(found) => found,
            None => {
                let created = request.member.call(Method::POST, "/api/v1/namespaces", JSON, Some(&new)).await;
                match created {
                    Ok(created) => return Ok(created),
                    Err(error) if error.code() == Some(409) => continue,
                    Err(error) => return Err(Refusal::Member(error)),
                }
            }
        };
        if found["metadata"].get("deletionTimestamp").is_some() {
            return Err(Refusal::No(format!(
                "the member's namespace {NAMESPACE} is being deleted, perhaps by an unjoin; try again when it is gone"
            )));
        }
        match found["metadata"]["annotations"][JOINED_BY].as_str() {
            Some(held) if held == owner => return Ok(found),
            Some(held) => return Err(Refusal::No(held_by(held, owner))),
            None => {
                let version = &found["metadata"]["resourceVersion"];
                let mark =
                    json!({"metadata": {"resourceVersion": version, "annotations": {JOINED_BY: owner}}});
                match request.member.call(Method::PATCH, &path, MERGE, Some(&mark)).await {
                    Ok(marked) => return Ok(marked),
                    Err(error) if error.code() == Some(409) => {}
                    Err(error) => return Err(Refusal::Member(error)),
                }
            }
        }
    }
    Err(Refusal::No(format!("the member's namespace {NAMESPACE} keeps changing; try again")))
}

fn held_by(held: &str, owner: &str) -> String {
    let (hub, name) = held.split_once('/').unwrap_or((held, ""));
    match owner.split_once('/').is_some_and(|(own, _)| own == hub) {
        true => {
            format!("this cluster is joined already, as {name}: unjoin it first, or go on with that name")
        }
        false => format!(
            "this cluster is joined to another workspace or hub (identity {hub}, as {name}): unjoin it there. If that \
             hub is gone for good, delete the member's namespace {NAMESPACE}"
        ),
    }
}

/// What a session may do in a member. `docs/clusters.md` says why. `guarded`: a policy there says what the role may be about that
/// it may change itself.
pub fn rules(guarded: bool) -> Value {
    const READ: [&str; 3] = ["get", "list", "watch"];
    const READ_AND_TIDY: [&str; 5] = ["get", "list", "watch", "patch", "delete"];
    const WRITE: [&str; 7] = ["get", "list", "watch", "create", "update", "patch", "delete"];
    let mut rules = json!([
        // Looking at it: what it is, what it has room for, what it runs.
        {"nonResourceURLs": ["/readyz", "/livez", "/version", "/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*"],
         "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["nodes"], "verbs": READ},
        // What is made by others there, and shown here.
        {"apiGroups": [""], "resources": ["events"], "verbs": READ_AND_TIDY},
        {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": READ_AND_TIDY},
        {"apiGroups": ["apps"], "resources": ["controllerrevisions"], "verbs": READ_AND_TIDY},
        {"apiGroups": ["apiextensions.k8s.io"], "resources": ["customresourcedefinitions"], "verbs": READ},
        // Placing workloads and what belongs to them.
        {"apiGroups": [""],
         "resources": ["namespaces", "configmaps", "secrets", "services", "serviceaccounts", "persistentvolumeclaims",
                       "limitranges", "pods", "replicationcontrollers"],
         "verbs": WRITE},
        {"apiGroups": ["apps"], "resources": ["deployments", "statefulsets", "daemonsets", "replicasets"], "verbs": WRITE},
        {"apiGroups": ["batch"], "resources": ["jobs", "cronjobs"], "verbs": WRITE},
        {"apiGroups": ["autoscaling"], "resources": ["horizontalpodautoscalers"], "verbs": WRITE},
        {"apiGroups": ["policy"], "resources": ["poddisruptionbudgets"], "verbs": WRITE},
        {"apiGroups": ["networking.k8s.io"], "resources": ["ingresses", "networkpolicies"], "verbs": WRITE},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": WRITE},
        // Classes and volumes that workloads name and their workspace brings.
        {"apiGroups": [""], "resources": ["persistentvolumes"], "verbs": WRITE},
        {"apiGroups": ["storage.k8s.io"], "resources": ["storageclasses"], "verbs": WRITE},
        {"apiGroups": ["scheduling.k8s.io"], "resources": ["priorityclasses"], "verbs": WRITE},
        {"apiGroups": ["networking.k8s.io"], "resources": ["ingressclasses"], "verbs": WRITE},
        {"apiGroups": ["node.k8s.io"], "resources": ["runtimeclasses"], "verbs": WRITE},
        // Giving pods of workspaces the hub's tokens: by its own policies, which are applied and so made by name.
        {"apiGroups": [policy::GROUP],
         "resources": ["mutatingadmissionpolicies", "mutatingadmissionpolicybindings", "validatingadmissionpolicies",
                       "validatingadmissionpolicybindings"],
         "resourceNames": [policy::NAME],
         "verbs": ["get", "create", "patch", "delete"]},
        // What users do with pods, passed on.
        {"apiGroups": [""], "resources": ["pods/log", "pods/status"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]},
        {"apiGroups": [""], "resources": ["pods/exec", "pods/attach", "pods/portforward", "pods/proxy", "services/proxy"],
         "verbs": ["get", "create"]},
        {"apiGroups": [""], "resources": ["pods/ephemeralcontainers", "pods/resize"], "verbs": ["get", "patch", "update"]},
    ]);
    if let Some(rules) = rules.as_array_mut().filter(|_| guarded) {
        // Kinds that others defined, when something of them is placed there.
        rules.push(json!({
            "apiGroups": [rights::RBAC], "resources": ["clusterroles"], "resourceNames": [rights::ROLE],
            "verbs": ["get", "patch", "escalate"],
        }));
    }
    rules
}

/// Whether the member can keep what the session's second role may be about within bounds.
async fn can_guard(member: &Client) -> Result<bool, Error> {
    let served = member.find(&format!("/apis/{}/v1", policy::GROUP)).await?.unwrap_or_default();
    let mut resources = served["resources"].as_array().into_iter().flatten();
    Ok(resources.any(|it| it["name"] == policy::VALIDATING))
}

/// Makes the account and what it may do; answers its token.
async fn make_account(member: &Client, namespace: &Value) -> Result<String, Refusal> {
    let owner = json!([{
        "apiVersion": "v1", "kind": "Namespace", "name": NAMESPACE, "uid": namespace["metadata"]["uid"],
    }]);
    let labels = json!({"app.kubernetes.io/managed-by": MANAGER});
    let below = format!("/api/v1/namespaces/{NAMESPACE}");
    let rbac = format!("/apis/{}/v1", rights::RBAC);
    let guarded = can_guard(member).await.map_err(Refusal::Member)?;
    let binding = |role: &str| {
        let object = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": role, "labels": labels, "ownerReferences": owner},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}],
        });
        (format!("{rbac}/clusterrolebindings/{role}"), object)
    };
    let role = |role: &str| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": role, "labels": labels, "ownerReferences": owner},
        })
    };
    let mut objects = Vec::new();
    if guarded {
        objects.extend(rights::guard(&owner));
        // Its rules are the session's.
        objects.push((format!("{rbac}/clusterroles/{}", rights::ROLE), role(rights::ROLE)));
        objects.push(binding(rights::ROLE));
    }
    let mut own = role(ROLE);
    own["rules"] = rules(guarded);
    objects.extend([
        (
            format!("{below}/serviceaccounts/{ACCOUNT}"),
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT, "labels": labels}}),
        ),
        (
            format!("{below}/secrets/{TOKEN_SECRET}"),
            json!({
                "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
                "metadata": {
                    "name": TOKEN_SECRET, "labels": labels,
                    "annotations": {"kubernetes.io/service-account.name": ACCOUNT},
                },
            }),
        ),
        (format!("{rbac}/clusterroles/{ROLE}"), own),
        binding(ROLE),
    ]);
    for (path, object) in &objects {
        apply(member, path, object).await.map_err(Refusal::Member)?;
    }
    token(member, &format!("{below}/secrets/{TOKEN_SECRET}")).await
}

/// Makes the object as it is here, whoever owns its fields otherwise.
async fn apply(client: &Client, path: &str, object: &Value) -> Result<Value, Error> {
    let path = format!("{path}?fieldManager={MANAGER}&force=true");
    client.call(Method::PATCH, &path, APPLY, Some(object)).await
}

/// A controller of the member fills it in.
async fn token(member: &Client, path: &str) -> Result<String, Refusal> {
    let began = member.env().clock.elapsed();
    loop {
        let secret = member.get(path).await.map_err(Refusal::Member)?;
        let token = secret["data"]["token"].as_str().and_then(|text| STANDARD.decode(text).ok());
        if let Some(token) = token.and_then(|bytes| String::from_utf8(bytes).ok()).filter(|it| !it.is_empty())
        {
            return Ok(token);
        }
        if member.env().clock.elapsed().saturating_sub(began) > TOKEN_PATIENCE {
            return Err(Refusal::No(format!(
                "the member made no token for the Secret {NAMESPACE}/{TOKEN_SECRET}: does its controller manager run? \
                 The same command goes on from here"
            )));
        }
        member.env().clock.sleep(LOOK_EVERY).await;
    }
}

/// What is put into the hub has been seen to work.
async fn try_token(request: &Request<'_>, token: &str, identity: &str) -> Result<(), Refusal> {
    let access = Access { identity: Identity::Token(token.to_owned()), ..request.access.clone() };
    let client = Client::new(request.member.env().clone(), &access, Duration::from_secs(10));
    let client = client.map_err(Refusal::Member)?;
    let began = client.env().clock.elapsed();
    loop {
        match client.get(KUBE_SYSTEM).await {
            Ok(found) if uid(&found).is_ok_and(|uid| uid == identity) => return Ok(()),
            Ok(_) => return Err(Refusal::No("several clusters answer at this address".into())),
            // Roles take a moment to be known.
            Err(error)
                if matches!(error.code(), Some(401 | 403))
                    && client.env().clock.elapsed().saturating_sub(began) < TOKEN_PATIENCE =>
            {
                client.env().clock.sleep(LOOK_EVERY).await;
            }
            Err(error) => return Err(Refusal::Member(error)),
        }
    }
}

pub fn secret_name(cluster: &str) -> String {
    format!("cluster-{cluster}")
}

/// Where a credential is in the hub.
pub fn secret_path(cluster: &str) -> String {
    format!("/api/v1/namespaces/{NAMESPACE}/secrets/{}", secret_name(cluster))
}

async fn write_hub(request: &Request<'_>, token: &str, identity: &str) -> Result<(), Error> {
    let hub = request.hub;
    let labels = json!({"app.kubernetes.io/managed-by": MANAGER});
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    match hub.call(Method::POST, "/api/v1/namespaces", JSON, Some(&namespace)).await {
        Ok(_) => {}
        Err(error) if error.code() == Some(409) => {}
        Err(error) => return Err(error),
    }
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {"name": secret_name(request.name), "labels": labels},
        "data": {"token": STANDARD.encode(token)},
    });
    apply(hub, &secret_path(request.name), &secret).await?;
    let mut spec = json!({
        "endpoint": request.access.server,
        "caBundle": STANDARD.encode(&request.access.authority),
        "secretRef": {"namespace": NAMESPACE, "name": secret_name(request.name)},
    });
    if let Some(name) = &request.access.server_name {
        spec["tlsServerName"] = json!(name);
    }
    let mut metadata = json!({"name": request.name});
    if !request.labels.is_empty() {
        metadata["labels"] = Value::Object(request.labels.clone());
    }
    let cluster = json!({
        "apiVersion": api::API_VERSION, "kind": api::cluster::KIND, "metadata": metadata, "spec": spec,
    });
    let path = format!("{CLUSTERS}/{}", request.name);
    apply(hub, &path, &cluster).await?;
    // Whatever answers there later, this is what was joined.
    let status = json!({"status": {"identity": identity}});
    hub.call(Method::PATCH, &format!("{path}/status"), MERGE, Some(&status)).await.map(drop)
}
