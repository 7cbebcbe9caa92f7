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
    MANAGER, NAMESPACE, apis,
    client::{Access, Client, Error, Identity, JSON, MERGE, list_pages, query_escaped},
    copies::Type,
    join::{ACCOUNT, CLUSTERS, JOINED_BY, ROLE, Refusal, TOKEN_SECRET, secret_path, uid},
    reflect::METADATA_LIST,
    rights,
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
    /// Also delete the member's namespaces that Hanse made for workspaces, with all that runs in them, and the copies in those
    /// that others made.
    pub delete_namespaces: bool,
}

/// What came of it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Unjoined {
    /// False: it was not joined.
    pub was_joined: bool,
    /// The member's namespaces that were deleted.
    pub deleted: Vec<String>,
    /// The paths of copies that were deleted in namespaces that stay, and of those in none.
    pub removed: Vec<String>,
    /// Namespaces that are labelled for workspaces and stay, because Hanse did not make them.
    pub kept: Vec<String>,
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
    // The hub does not say any more where it is.
    let again = |what: &str, why: String| {
        Refusal::No(format!(
            "{} is not joined any more, and {what}: {why}; unjoin it again with an admin's --kubeconfig of the member",
            request.name
        ))
    };
    if is_marked {
        unmark(member).await.map_err(|why| again("some of what stays there says that it is managed", why))?;
    }
    if request.delete_namespaces {
        // What is left of one is no reason to leave all of the other.
        let copies =
            until_none(member, async || copies_apart(member).await, async |it| it.delete(member).await).await;
        let namespaces =
            until_none(member, async || namespaces_to_go(member).await, async |it| it.delete(member).await)
                .await;
        let left = [&copies, &namespaces]
            .into_iter()
            .filter_map(|it| it.as_ref().err().cloned())
            .collect::<Vec<_>>();
        if !left.is_empty() {
            return Err(again("some of what was placed there is left", left.join("; ")));
        }
        unjoined.removed = copies.unwrap_or_default();
        unjoined.deleted = namespaces.unwrap_or_default();
        unjoined.kept = namespaces_that_stay(member).await.map_err(Refusal::Member)?;
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
    let has_rights = remove_rights(member).await?;
    let mark = json!({"metadata": {"annotations": {JOINED_BY: null}}});
    member.call(Method::PATCH, &path, MERGE, Some(&mark)).await?;
    // It may be the account itself that asks, so this is the last it can do. Its token goes with it.
    let account = format!("{path}/serviceaccounts/{ACCOUNT}");
    if let Some(object) = member.find(&account).await? {
        delete(member, &account, &object).await?;
    }
    let stays = format!("its namespace {NAMESPACE} is also used by others: it stays");
    Ok(Some(match has_rights {
        false => stays,
        true => format!(
            "{stays}, and so do roles, which nobody has any more, but would have who made the account {ACCOUNT} there \
             again; as an admin of it: kubectl delete clusterrolebinding,clusterrole {ROLE} {}",
            rights::ROLE
        ),
    }))
}

/// What the account might do, which is not in the namespace. Only an admin may take it away: `true` if it is there still.
async fn remove_rights(member: &Client) -> Result<bool, Error> {
    let of = |root: String, resource: &str, name: &str| format!("{root}/{resource}/{name}");
    let rbac = || format!("/apis/{}/v1", rights::RBAC);
    let policies = || format!("/apis/{}/v1", policy::GROUP);
    // Bindings first: without them the others give nothing and forbid nothing.
    let paths = [
        of(rbac(), "clusterrolebindings", ROLE),
        of(rbac(), "clusterrolebindings", rights::ROLE),
        of(rbac(), "clusterroles", ROLE),
        of(rbac(), "clusterroles", rights::ROLE),
        of(policies(), "validatingadmissionpolicybindings", rights::POLICY),
        of(policies(), policy::VALIDATING, rights::POLICY),
    ];
    let mut is_left = false;
    for path in paths {
        let removed = match member.find(&path).await {
            Ok(Some(object)) => delete(member, &path, &object).await,
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        match removed {
            Ok(()) => {}
            Err(error) if error.code() == Some(403) => is_left = true,
            Err(error) => return Err(error),
        }
    }
    Ok(is_left)
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

/// Namespaces of the member that show in workspaces by their label, whoever made them.
async fn labelled_namespaces(member: &Client) -> Result<Vec<Value>, Error> {
    let path = format!("/api/v1/namespaces?labelSelector={}", api::WORKSPACE_LABEL.replace('/', "%2F"));
    let list = member.get(&path).await?;
    Ok(list["items"].as_array().cloned().unwrap_or_default())
}

/// So often is looked again whether a session that was ending has put something back.
const LOOKS: u32 = 20;
const BETWEEN: Duration = Duration::from_millis(500);

/// Something of the member that is to be changed or to go.
struct Found {
    path: String,
    /// What it is called when it is told of.
    name: String,
    uid: Value,
}

impl Found {
    async fn delete(&self, member: &Client) -> Result<(), Error> {
        delete(member, &self.path, &json!({"metadata": {"uid": self.uid}})).await
    }
}

/// Does it to all that is found, until nothing is found twice in a row: a session that was ending may have put something
/// back. Answers to what it was done, by name; `Err`: what is left, and why.
async fn until_none(
    member: &Client,
    find: impl AsyncFn() -> Result<Vec<Found>, Error>,
    deed: impl AsyncFn(&Found) -> Result<(), Error>,
) -> Result<Vec<String>, String> {
    let mut done = BTreeSet::new();
    let (mut quiet, mut stuck) = (0, 0);
    for look in 0..LOOKS {
        if look > 0 {
            member.env().clock.sleep(BETWEEN).await;
        }
        let left = find().await.map_err(|error| error.to_string())?;
        quiet = if left.is_empty() { quiet + 1 } else { 0 };
        if quiet == 2 {
            return Ok(done.into_iter().collect());
        }
        let mut failed = BTreeMap::new();
        for it in &left {
            match deed(it).await {
                Ok(()) => drop(done.insert(it.name.clone())),
                Err(error) => drop(failed.insert(&it.name, error.to_string())),
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

async fn namespaces_to_go(member: &Client) -> Result<Vec<Found>, Error> {
    let found = |namespace: &Value| {
        let name = namespace["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let path = format!("/api/v1/namespaces/{name}");
        Found { path, name, uid: namespace["metadata"]["uid"].clone() }
    };
    Ok(labelled_namespaces(member).await?.iter().filter(|it| is_to_go(it)).map(found).collect())
}

async fn namespaces_that_stay(member: &Client) -> Result<Vec<String>, Error> {
    let labelled = labelled_namespaces(member).await?;
    let stay = labelled.iter().filter(|it| !is_made(it) && it["metadata"]["deletionTimestamp"].is_null());
    Ok(stay.filter_map(|it| it["metadata"]["name"].as_str()).map(str::to_owned).collect())
}

/// Copies in namespaces that stay, and those in none.
async fn copies_apart(member: &Client) -> Result<Vec<Found>, Error> {
    let labelled = labelled_namespaces(member).await?;
    let going: BTreeSet<&str> =
        labelled.iter().filter(|it| is_made(it)).filter_map(|it| it["metadata"]["name"].as_str()).collect();
    let is_apart = |object: &Value| {
        let metadata = &object["metadata"];
        let goes_with_its_namespace =
            metadata["namespace"].as_str().is_some_and(|namespace| going.contains(namespace));
        // Controllers of the member hand on what their objects say of themselves.
        let is_copy = !metadata["annotations"][api::SOURCE_ANNOTATION].is_null()
            && metadata["ownerReferences"].as_array().is_none_or(Vec::is_empty);
        is_copy && !goes_with_its_namespace && metadata["deletionTimestamp"].is_null()
    };
    let kinds = apis::kinds(member).await?.into_iter().filter(|ty| ty.plural != "namespaces").collect();
    labelled_objects(member, kinds, "", is_apart).await
}

/// Copies that say, in the words of KubeFed, that somebody manages them.
async fn marked(member: &Client) -> Result<Vec<Found>, Error> {
    let selector = format!(",{}%3Dtrue", query_escaped(dialects::MANAGED_LABEL));
    labelled_objects(member, apis::kinds(member).await?, &selector, |_| true).await
}

/// Objects with the label of a workspace and what else the selector asks for.
async fn labelled_objects(
    member: &Client,
    kinds: BTreeSet<Type>,
    selector: &str,
    is_meant: impl Fn(&Value) -> bool,
) -> Result<Vec<Found>, Error> {
    let mut found = Vec::new();
    for ty in kinds {
        let path = format!("{}{selector}", ty.selected());
        let listed = list_pages(member, &path, METADATA_LIST, |page| {
            for object in page.items().filter_map(|it| serde_json::from_slice::<Value>(it).ok()) {
                if is_meant(&object) {
                    let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default();
                    let path = ty.path_of(text("namespace"), text("name"));
                    found.push(Found { name: path.clone(), path, uid: object["metadata"]["uid"].clone() });
                }
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
    Ok(found)
}

/// What stays in a cluster that is left is managed by nobody. What else says where it came from stays: with that it is
/// taken up as it is if the cluster is joined again.
async fn unmark(member: &Client) -> Result<(), String> {
    let change = json!({"metadata": {"labels": {dialects::MANAGED_LABEL: null}}});
    let deed = async |it: &Found| match member.call(Method::PATCH, &it.path, MERGE, Some(&change)).await {
        Err(error) if error.code() != Some(404) => Err(error),
        _ => Ok(()),
    };
    until_none(member, async || marked(member).await, deed).await.map(drop)
}

/// Made for a workspace, and not on its way out.
fn is_to_go(namespace: &Value) -> bool {
    is_made(namespace) && namespace["metadata"]["deletionTimestamp"].is_null()
}

/// Whoever has the cluster labels namespaces for workspaces, too, so that they show there: only what Hanse makes, or has
/// taken over, says of which workspace's object it is a copy.
fn is_made(namespace: &Value) -> bool {
    let metadata = &namespace["metadata"];
    let name = metadata["name"].as_str().unwrap_or_default();
    let says = |part: &str, key: &str| metadata[part][key].as_str().is_some_and(|value| !value.is_empty());
    !matches!(name, "" | "default" | NAMESPACE)
        && !name.starts_with("kube-")
        && says("labels", api::WORKSPACE_ID_LABEL)
        && says("annotations", api::SOURCE_ANNOTATION)
}
