//! Unjoining a cluster: what Hanse made in it goes, and then what says in the hub that it was joined. What runs there goes
//! on, unless the caller asks for more.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use env::Env;
use http::Method;
use serde_json::{Value, json};

use crate::{
    MANAGER, NAMESPACE,
    client::{Access, Client, Error, Identity, JSON, MERGE, list_pages},
    join::{ACCOUNT, CLUSTERS, JOINED_BY, ROLE, Refusal, TOKEN_SECRET, secret_path, uid},
    objects,
    reflect::METADATA_LIST,
    tokens::policy,
};

const LIMIT: Duration = Duration::from_secs(10);

/// What to unjoin, and how.
pub struct Request<'a> {
    pub name: &'a str,
    /// The workspace's API.
    pub hub: &'a Client,
    /// As an admin of the member; without it, as the session that is to end.
    pub member: Option<&'a Client>,
    /// The member is gone, or out of reach for good: only the hub is changed.
    pub forget: bool,
    /// Also delete the member's namespaces that show in other workspaces, with all that runs in them.
    pub delete_namespaces: bool,
}

/// What came of it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Unjoined {
    /// False: it was not joined.
    pub was_joined: bool,
    /// The member's namespaces that were deleted.
    pub deleted: Vec<String>,
    /// What stays in the member though Hanse made it, and why.
    pub left_behind: Option<String>,
}

pub async fn unjoin(request: &Request<'_>) -> Result<Unjoined, Refusal> {
    let path = format!("{CLUSTERS}/{}", request.name);
    let cluster = request.hub.find(&path).await.map_err(Refusal::Hub)?;
    let secret = request.hub.find(&secret_path(request.name)).await.map_err(Refusal::Hub)?;
    let mut unjoined = Unjoined { was_joined: cluster.is_some(), ..Unjoined::default() };
    // Where the member is, the Cluster says, or who gave a way to it.
    if !request.forget && (cluster.is_some() || request.member.is_some()) {
        let known = cluster.clone().unwrap_or_default();
        leave_member(request, &known, secret.as_ref(), &mut unjoined).await?;
    }
    for (path, object) in [(path, cluster), (secret_path(request.name), secret)] {
        let Some(object) = object else { continue };
        forget(request.hub, &path, &object).await?;
    }
    Ok(unjoined)
}

async fn forget(hub: &Client, path: &str, object: &Value) -> Result<(), Refusal> {
    let options = json!({"preconditions": {"uid": object["metadata"]["uid"]}});
    match hub.call(Method::DELETE, path, JSON, Some(&options)).await {
        Ok(_) => Ok(()),
        Err(error) if error.code() == Some(404) => Ok(()),
        Err(error) => Err(Refusal::Hub(error)),
    }
}

/// A client with the credential of the session.
pub(crate) fn session_client(env: &Env, cluster: &Value, secret: Option<&Value>) -> Result<Client, String> {
    let token = secret.and_then(|it| it["data"]["token"].as_str()).ok_or("its credential is gone")?;
    let token = STANDARD.decode(token).ok().and_then(|it| String::from_utf8(it).ok());
    let authority = STANDARD.decode(cluster["spec"]["caBundle"].as_str().unwrap_or_default());
    let access = Access {
        server: cluster["spec"]["endpoint"].as_str().unwrap_or_default().to_owned(),
        authority: authority.map_err(|error| error.to_string())?,
        server_name: cluster["spec"]["tlsServerName"].as_str().map(str::to_owned),
        identity: Identity::Token(token.ok_or("its token makes no sense")?),
    };
    Client::new(env.clone(), &access, LIMIT).map_err(|error| error.to_string())
}

async fn leave_member(
    request: &Request<'_>,
    cluster: &Value,
    secret: Option<&Value>,
    unjoined: &mut Unjoined,
) -> Result<(), Refusal> {
    let advice = "give an admin's --kubeconfig of the member, or, if it is gone for good, --forget it";
    let own;
    let member = match request.member {
        Some(member) => member,
        None => {
            let made = session_client(request.hub.env(), cluster, secret);
            own =
                made.map_err(|why| Refusal::No(format!("the member cannot be reached: {why}; {advice}")))?;
            &own
        }
    };
    let system = match member.get("/api/v1/namespaces/kube-system").await {
        Ok(system) => system,
        // The account is gone: this was done before, and cut off after it.
        Err(error) if error.code() == Some(401) && request.member.is_none() => {
            unjoined.left_behind = Some("the member does not know its credential any more".to_owned());
            return Ok(());
        }
        Err(error) => return Err(Refusal::No(format!("the member cannot be reached: {error}; {advice}"))),
    };
    let joined = cluster["status"]["identity"].as_str().unwrap_or_default();
    let found = uid(&system).map_err(Refusal::Member)?;
    if !joined.is_empty() && found != joined {
        return Err(Refusal::No(format!(
            "the cluster that answers is {found}, and {joined} was joined: nothing of it is touched; {advice}"
        )));
    }
    let is_marked = !request.delete_namespaces && !marked(member).await.map_err(Refusal::Member)?.is_empty();
    // As long as it is joined, what is placed there is put back.
    if (request.delete_namespaces || is_marked) && unjoined.was_joined {
        forget(request.hub, &format!("{CLUSTERS}/{}", request.name), cluster).await?;
    }
    if is_marked {
        unmark(member).await.map_err(|why| {
            Refusal::No(format!(
                "{} is not joined any more, and some of what stays there says that it is managed: {why}; unjoin it again \
                 with an admin's --kubeconfig of the member",
                request.name
            ))
        })?;
    }
    if request.delete_namespaces {
        unjoined.deleted = delete_namespaces(member).await.map_err(|why| {
            // The hub does not say any more where it is.
            Refusal::No(format!(
                "{} is not joined any more, and some of its namespaces are left: {why}; unjoin it again with an admin's \
                 --kubeconfig of the member",
                request.name
            ))
        })?;
    }
    let hub = uid(&request.hub.get("/api/v1/namespaces/kube-system").await.map_err(Refusal::Hub)?);
    let owner = format!("{}/{}", hub.map_err(Refusal::Hub)?, request.name);
    unjoined.left_behind = remove_account(member, &owner).await.map_err(Refusal::Member)?;
    Ok(())
}

/// What `join` made goes: the namespace with what is in it, if that is all that is in it, else the account alone. `Some`:
/// something stays, and why.
async fn remove_account(member: &Client, owner: &str) -> Result<Option<String>, Error> {
    let path = format!("/api/v1/namespaces/{NAMESPACE}");
    let Some(namespace) = member.find(&path).await? else { return Ok(None) };
    if namespace["metadata"]["annotations"][JOINED_BY].as_str() != Some(owner) {
        return Ok(Some(format!("its namespace {NAMESPACE} is not this hub's")));
    }
    // Before the account, which may be the one that asks.
    for path in policy::paths() {
        match member.find(&path).await {
            Ok(Some(object)) => delete(member, &path, &object).await?,
            Ok(None) => {}
            // Joined before there were any, and not again since.
            Err(error) if error.code() == Some(403) => {}
            Err(error) => return Err(error),
        }
    }
    // One that was there before is somebody else's, whatever is in it.
    let is_own = namespace["metadata"]["labels"]["app.kubernetes.io/managed-by"] == MANAGER;
    if is_own && !others_in(member, &path).await? {
        delete(member, &path, &namespace).await?;
        return Ok(None);
    }
    let mark = json!({"metadata": {"annotations": {JOINED_BY: null}}});
    member.call(Method::PATCH, &path, MERGE, Some(&mark)).await?;
    // It may be the account itself that asks, so this is the last it can do. Its token goes with it.
    let account = format!("{path}/serviceaccounts/{ACCOUNT}");
    if let Some(object) = member.find(&account).await? {
        delete(member, &account, &object).await?;
    }
    Ok(Some(format!(
        "its namespace {NAMESPACE} is also used by others: it stays, and so do the ClusterRole and \
         ClusterRoleBinding {ROLE}, which nobody has any more"
    )))
}

/// Whether there is anything in the namespace that neither `join` made nor every namespace has.
async fn others_in(member: &Client, path: &str) -> Result<bool, Error> {
    let own: [(&str, &[&str]); 6] = [
        ("pods", &[]),
        ("secrets", &[TOKEN_SECRET]),
        ("configmaps", &["kube-root-ca.crt"]),
        ("serviceaccounts", &["default", ACCOUNT]),
        ("services", &[]),
        ("persistentvolumeclaims", &[]),
    ];
    for (resource, own) in own {
        let list = member.get(&format!("{path}/{resource}")).await?;
        let names = list["items"].as_array().into_iter().flatten().map(|it| &it["metadata"]["name"]);
        // Some clusters make a secret for each account.
        let is_own =
            |name: &str| own.contains(&name) || (resource == "secrets" && name.starts_with("default-token-"));
        if names.into_iter().any(|name| !is_own(name.as_str().unwrap_or_default())) {
            return Ok(true);
        }
    }
    Ok(false)
}

async fn delete(member: &Client, path: &str, object: &Value) -> Result<(), Error> {
    let options = json!({
        "propagationPolicy": "Background", "preconditions": {"uid": object["metadata"]["uid"]},
    });
    match member.call(Method::DELETE, path, JSON, Some(&options)).await {
        Ok(_) => Ok(()),
        Err(error) if error.code() == Some(404) => Ok(()),
        // It is on its way out already.
        Err(error) if error.code() == Some(409) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Namespaces of the member that were made for workspaces.
pub async fn labelled_namespaces(member: &Client) -> Result<Vec<Value>, Error> {
    let path = format!("/api/v1/namespaces?labelSelector={}", api::WORKSPACE_LABEL.replace('/', "%2F"));
    let list = member.get(&path).await?;
    Ok(list["items"].as_array().cloned().unwrap_or_default())
}

/// So often is looked again whether a session that was ending has put something back.
const LOOKS: u32 = 20;
const BETWEEN: Duration = Duration::from_millis(500);

/// `Err`: which are left, and why.
async fn delete_namespaces(member: &Client) -> Result<Vec<String>, String> {
    let mut deleted = BTreeSet::new();
    let (mut quiet, mut stuck) = (0, 0);
    for look in 0..LOOKS {
        if look > 0 {
            member.env().clock.sleep(BETWEEN).await;
        }
        let labelled = labelled_namespaces(member).await.map_err(|error| error.to_string())?;
        let left: Vec<&Value> = labelled.iter().filter(|it| is_to_go(it)).collect();
        quiet = if left.is_empty() { quiet + 1 } else { 0 };
        if quiet == 2 {
            return Ok(deleted.into_iter().collect());
        }
        let mut failed = BTreeMap::new();
        for namespace in &left {
            let name = namespace["metadata"]["name"].as_str().unwrap_or_default();
            match delete(member, &format!("/api/v1/namespaces/{name}"), namespace).await {
                Ok(()) => drop(deleted.insert(name.to_owned())),
                Err(error) => drop(failed.insert(name, error.to_string())),
            }
        }
        stuck = if !failed.is_empty() && failed.len() == left.len() { stuck + 1 } else { 0 };
        if stuck == 2 {
            let failed: Vec<String> = failed.iter().map(|(name, why)| format!("{name}: {why}")).collect();
            return Err(failed.join("; "));
        }
    }
    Err("somebody makes them again".to_owned())
}

/// Copies that say, in the words of KubeFed, that somebody manages them.
async fn marked(member: &Client) -> Result<Vec<String>, Error> {
    let escaped = |label: &str| label.replace('/', "%2F");
    let selector = format!("{}%3Dtrue,{}", escaped(dialects::MANAGED_LABEL), escaped(api::WORKSPACE_LABEL));
    let mut paths = Vec::new();
    for target in dialects::types::TARGETS {
        let root = match target.group {
            "" => format!("/api/{}", target.version),
            group => format!("/apis/{group}/{}", target.version),
        };
        let path = format!("{root}/{}?labelSelector={selector}", target.plural);
        let listed = list_pages(member, &path, METADATA_LIST, |page| {
            for head in page.items().filter_map(objects::head) {
                let (namespace, name) = (head.metadata.namespace, head.metadata.name);
                paths.push(match &*namespace {
                    "" => format!("{root}/{}/{name}", target.plural),
                    namespace => format!("{root}/namespaces/{namespace}/{}/{name}", target.plural),
                });
            }
            Ok(())
        });
        match listed.await {
            Ok(_) => {}
            // What a session may not see, or the member does not serve, it has not made there.
            Err(error) if matches!(error.code(), Some(403 | 404)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(paths)
}

/// What stays in a cluster that is left is managed by nobody. What else says where it came from stays: with that it is
/// taken up as it is if the cluster is joined again.
async fn unmark(member: &Client) -> Result<(), String> {
    let mut quiet = 0;
    let change = json!({"metadata": {"labels": {dialects::MANAGED_LABEL: null}}});
    for look in 0..LOOKS {
        if look > 0 {
            member.env().clock.sleep(BETWEEN).await;
        }
        let left = marked(member).await.map_err(|error| error.to_string())?;
        quiet = if left.is_empty() { quiet + 1 } else { 0 };
        if quiet == 2 {
            return Ok(());
        }
        for path in left {
            match member.call(Method::PATCH, &path, MERGE, Some(&change)).await {
                Ok(_) => {}
                Err(error) if error.code() == Some(404) => {}
                Err(error) => return Err(format!("{path}: {error}")),
            }
        }
    }
    Err("somebody marks them again".to_owned())
}

/// Made for a workspace, and not on its way out.
fn is_to_go(namespace: &Value) -> bool {
    let name = namespace["metadata"]["name"].as_str().unwrap_or_default();
    let is_of_the_cluster = matches!(name, "" | "default" | NAMESPACE) || name.starts_with("kube-");
    !is_of_the_cluster && namespace["metadata"]["deletionTimestamp"].is_null()
}
